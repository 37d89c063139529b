//! Attacks over real sockets on two processes that send to each other by the provider: forged packets in the name of each,
//! and of somebody else, in clear and with a key. `SEED=n` takes other packets.

#[path = "../../srd-net/tests/support/attack.rs"]
mod attack;
#[path = "../../srd-net/tests/support/forger.rs"]
mod forger;
mod rig;
mod sides;

use attack::{Attack, Lane};
use forger::{Forger, IN_CLEAR, Kind, SEALED};
use sides::{Side, acquainted, end, variables, wait_for_messages, wait_until};
use srd_wire::Qpn;
use std::net::{IpAddr, SocketAddr};

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 41, 9));

/// The endpoint's queue pair, which is the port in its address.
fn qpn(of: &Side) -> u16 {
    let address = of.told("address ").remove(0);
    u16::from_str_radix(&address[4..8], 16).unwrap()
}

/// Nobody's sends fail, and nothing comes that nobody has sent.
fn numbers_flow_on(base: u16, way: &str, kinds: &[Kind], refusals: &[&str]) {
    let seed = std::env::var("SEED").map_or(16, |text| text.parse().expect("SEED: a number"));
    println!("SEED={seed}");
    let told = |pid: &str| format!("{}/attacked-{pid}", env!("CARGO_TARGET_TMPDIR"));
    let mut variables = variables(way);
    variables.extend([("SRD_PORT_BASE", base.to_string().into()), ("SRD_STATS", told("%p").into())]);
    let sides = acquainted(&variables);
    let qpns = [qpn(&sides[0]), qpn(&sides[1])];
    let port = |qpn: u16| base + qpn / 128;
    let lanes = (0..2).map(|to| {
        let qpns_to_try = vec![Qpn(qpns[to]), Qpn(qpns[to] + 1)];
        let forger = Forger { qpns: qpns_to_try, ..Forger::new(seed + to as u64, port(qpns[1 - to])) };
        Lane::new(forger, kinds, &[HERE, ELSEWHERE], SocketAddr::new(HERE, port(qpns[to])))
    });
    let attack = Attack::start(lanes.collect(), 5000);
    wait_until("no attack", || attack.sent() > 10_000);
    wait_for_messages(&sides, 5);
    drop(attack);
    let pids = [0, 1].map(|i| sides[i].pid().to_string());
    assert_eq!(end(sides, "attacked"), 0, "a send has failed");
    for pid in pids {
        let counters = std::fs::read(told(&pid)).unwrap();
        std::fs::remove_file(told(&pid)).unwrap();
        let counters: serde_json::Value = serde_json::from_slice(&counters).unwrap();
        let count = |place: &str| counters.pointer(place).and_then(serde_json::Value::as_u64).unwrap_or(0);
        let refused = refusals.iter().map(|place| count(place));
        assert!(refused.clone().all(|count| count > 100), "{refusals:?}: {:?}", refused.collect::<Vec<_>>());
        assert_eq!((count("/peer_count"), count("/transport/peer_restarts")), (1, 0), "{counters}");
    }
}

#[test]
fn numbers_in_clear_flow_on_under_forged_packets() {
    let refusals = ["/transport/stale_incarnation", "/transport/resets_ignored", "/transport/unconfirmed"];
    numbers_flow_on(18_900, "clear", &IN_CLEAR, &refusals);
}

#[test]
fn sealed_numbers_flow_on_under_forged_packets() {
    let refusals = ["/receive/not_opened/not_sealed", "/receive/not_opened/wrong_key"];
    numbers_flow_on(19_000, "sealed", &[&IN_CLEAR[..], &SEALED].concat(), &refusals);
}
