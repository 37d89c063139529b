//! Planes: disjoint fabrics of one shape, on each of which every host's card has a port.
//!
//! A card is the host's own switch: all that the host sends crosses to it at the rate of all ports together and leaves by one
//! of them. Its queues have no limit, as a host's memory has none, and it sends nothing on that came by another port.

use super::{Cable, NodeId, Role, Switch, Topology};
use srd_baselines::input::counted;
use srd_baselines::units::Ps;
use srd_wire::BitRate;

/// Most planes. Cards of 2026 have up to eight ports.
pub const MAX_PLANES: u32 = 16;
/// Most ports of all cards together: each card counts as a switch in tables of routes, which grow with the square. Of 30,000 cards
/// on two planes they are 4 GB.
const MAX_CARD_PORTS: u64 = 60_000;

/// `planes` times the fabric `one`, which must hold together. The host's cables become those of its card's ports: host `h` is
/// cabled to `card<h>`, port `p` of the card to the switch `p<p>.<name>`.
pub fn in_planes(one: &Topology, planes: u32) -> Result<Topology, String> {
    if planes == 0 || planes > MAX_PLANES {
        return Err(format!("a card has 1 to {MAX_PLANES} ports, one on each plane, not {planes}"));
    }
    let (hosts, switches) = (one.hosts, one.switches.len() as u32);
    let ports = hosts as u64 * planes as u64;
    if ports > MAX_CARD_PORTS {
        let hosts = counted(hosts.into(), "host");
        return Err(format!(
            "{hosts} on {planes} planes make {ports} ports of cards: at most {MAX_CARD_PORTS}. Write fewer planes or hosts"
        ));
    }
    let mut topology = Topology { hosts, ..Topology::default() };
    let card = |host: u32| Switch { name: format!("card{host}"), latency: Ps::ZERO, role: Role::Card };
    topology.switches.extend((0..hosts).map(card));
    for plane in 0..planes {
        let of_plane =
            |switch: &Switch| Switch { name: format!("p{plane}.{}", switch.name), ..switch.clone() };
        topology.switches.extend(one.switches.iter().map(of_plane));
    }
    let place = |plane: u32, node: NodeId| NodeId(2 * hosts + plane * switches + (node.0 - hosts));
    for host in 0..hosts {
        let rate = BitRate(one.host_cable(host).rate.0 * planes as u64);
        let ends = (NodeId(host), NodeId(hosts + host));
        topology.cables.push(Cable { a: ends.0, b: ends.1, rate, delay: Ps::ZERO, queue_bytes: [None; 2] });
    }
    for host in 0..hosts {
        let cable = one.host_cable(host);
        let port = |plane| Cable { a: NodeId(hosts + host), b: place(plane, cable.b), ..*cable };
        topology.cables.extend((0..planes).map(port));
    }
    for plane in 0..planes {
        let between = one.cables.iter().filter(|cable| cable.a.0 >= hosts);
        let of_plane = |cable: &Cable| Cable { a: place(plane, cable.a), b: place(plane, cable.b), ..*cable };
        topology.cables.extend(between.map(of_plane));
    }
    Ok(topology)
}
