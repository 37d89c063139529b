//! Distances: the unloaded round trip of a pair of hosts, and how fast it can go. `longest_rtt` looks at all pairs.
//!
//! Switches store and forward: a packet is sent in full on each cable before the next. Packets take a shortest
//! path, as ECMP does; of several the quickest counts.

use super::Topology;
use super::check::SwitchLinks;
use crate::net::frame::ETHERNET_HEADER;
use srd_baselines::units::Ps;
use srd_wire::BitRate;

/// IPv4 and UDP headers, then an ACK with one echo and one bitmap word (docs/SPEC.md, sections 2 and 4).
const ACK_DATAGRAM: u64 = 20 + 8 + 12 + 20 + 12 + 8;

/// Bytes on the wire, everything included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketSizes {
    /// A full data packet.
    pub data: u64,
    /// Its ACK.
    pub ack: u64,
}

impl PacketSizes {
    /// For IP datagrams of up to `mtu` bytes and frames with `frame_overhead` bytes beyond Ethernet's header.
    pub fn of(mtu: u16, frame_overhead: u32) -> PacketSizes {
        let frame = (ETHERNET_HEADER + frame_overhead) as u64;
        PacketSizes { data: mtu as u64 + frame, ack: ACK_DATAGRAM + frame }
    }
}

/// What a hop costs both ways: data one way, its ACK the other.
pub(super) fn there_and_back(rate: BitRate, delay: Ps, sizes: PacketSizes) -> [Ps; 2] {
    [Ps::to_send(sizes.data, rate) + delay, Ps::to_send(sizes.ack, rate) + delay]
}

impl Topology {
    /// From the first bit of a data packet at `src` to the last bit of its ACK back there, with empty queues. The
    /// topology must have passed its check, and the hosts must differ.
    pub fn base_rtt(&self, sizes: PacketSizes, src: u32, dst: u32) -> Ps {
        let from_src = self.costs_from(&SwitchLinks::of(self), self.leaf_of(src), sizes);
        let [data, ack] = from_src[self.leaf_of(dst) as usize].unwrap_or([Ps::NEVER; 2]);
        self.access(src, sizes) + self.access(dst, sizes) + data + ack
    }

    /// What the cable of `host` adds to the round trip.
    pub(super) fn access(&self, host: u32, sizes: PacketSizes) -> Ps {
        let cable = self.host_cable(host);
        let [data, ack] = there_and_back(cable.rate, cable.delay, sizes);
        data + ack
    }

    /// Cost of data and of ACKs from the input of switch `from` to the output of each switch.
    fn costs_from(&self, links: &SwitchLinks, from: u32, sizes: PacketSizes) -> Vec<Option<[Ps; 2]>> {
        let (lengths, nearest_first) = links.lengths_from(from);
        let mut costs: Vec<Option<[Ps; 2]>> = vec![None; self.switches.len()];
        costs[from as usize] = Some([self.switches[from as usize].latency; 2]);
        for switch in nearest_first {
            let Some(so_far) = costs[switch as usize] else { continue };
            for &(next, cable, length) in links.of_switch(switch) {
                if lengths[next as usize] != lengths[switch as usize].map(|here| here + length) {
                    continue;
                }
                let cable = &self.cables[cable as usize];
                let latency = self.switches[next as usize].latency;
                let hop = there_and_back(cable.rate, cable.delay, sizes);
                let cost = [so_far[0] + hop[0] + latency, so_far[1] + hop[1] + latency];
                let known = costs[next as usize].get_or_insert(cost);
                *known = [known[0].min(cost[0]), known[1].min(cost[1])];
            }
        }
        costs
    }

    /// The most that can pass from `src` to `dst` when all paths of the fewest cables are used: the least of the hosts'
    /// own cables and of what each layer of cables between their switches carries together.
    pub fn narrowest_rate(&self, src: u32, dst: u32) -> BitRate {
        let access = self.host_cable(src).rate.0.min(self.host_cable(dst).rate.0);
        let (from, to) = (self.leaf_of(src), self.leaf_of(dst));
        let links = SwitchLinks::of(self);
        let ((before, _), (after, _)) = (links.lengths_from(from), links.lengths_from(to));
        let Some(length) = before[to as usize] else { return BitRate(0) };
        let mut layers = vec![0u64; length as usize];
        for cable in self.cables.iter().filter(|cable| cable.a.0 >= self.hosts) {
            let (a, b) = ((cable.a.0 - self.hosts) as usize, (cable.b.0 - self.hosts) as usize);
            for (near, far) in [(a, b), (b, a)] {
                let Some((near, far)) = before[near].zip(after[far]) else { continue };
                let own = self.length(cable);
                if near + own + far == length {
                    for layer in &mut layers[near as usize..(near + own) as usize] {
                        *layer = layer.saturating_add(cable.rate.0);
                    }
                }
            }
        }
        BitRate(layers.into_iter().min().unwrap_or(u64::MAX).min(access))
    }

    /// Rate of the fastest host's cable.
    pub fn fastest_host(&self) -> BitRate {
        BitRate((0..self.hosts).map(|host| self.host_cable(host).rate.0).max().unwrap_or(0))
    }
}
