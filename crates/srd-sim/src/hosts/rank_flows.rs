//! Real processes over transports that move flows: each message that a process's provider would put on a wire becomes a flow of the rival's, and comes
//! when that is complete. SRD's own acknowledgements have nothing to do there, since rivals lose nothing: they cost nothing, and take the way of an
//! empty fabric.

use crate::apps::{self, Jobs};
use crate::hosts::intra_node::Copies;
use crate::hosts::message_flows::{MessageFlows, OutgoingMessage, Programs};
use crate::hosts::rank_seat::{PORT_BASE, RankSeat, ip_of};
use crate::hosts::settings::OnNode;
use crate::hosts::srd_nic::{FIRST_SOURCE_PORT, host_of};
use srd_baselines::units::Ps;
use srd_virtual::Place;
use srd_virtual::layout::{Head, LARGEST};
use srd_wire::{BitRate, Body, Nanos, Time, codec};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

/// Least that a message takes: what an RDMA read asks by (InfiniBand Architecture 1.3, 9.3.3: the RETH).
const LEAST: u64 = 16;

/// A process's datagram.
type Datagram = (Head, Box<[u8]>);

/// A message of which a process has not sent all datagrams yet.
#[derive(Default)]
struct Begun {
    datagrams: Vec<Datagram>,
    bytes: u64,
}

struct Rank {
    seat: RankSeat,
    /// Where it is, and the way to others there by the host's memory.
    host: u32,
    copies: Option<Copies>,
}

/// See the module.
pub struct RankFlows {
    flows: MessageFlows<Vec<Datagram>>,
    ranks: Vec<Rank>,
    /// By host and UDP port.
    rank_of: HashMap<(u32, u16), u32>,
    /// By sender, receiver, and what the sender calls it.
    begun: HashMap<(u32, u32, u32), Begun>,
    /// What a packet without data takes.
    empty_way: Ps,
    jobs: Jobs,
    failed: Vec<String>,
}

/// What such a process must know, in a fabric of that round trip.
fn place_of(at: apps::Place, seed: u64, line_rate: BitRate, base_rtt: Nanos) -> Place {
    Place {
        ip: ip_of(at.host),
        port: PORT_BASE + at.process,
        port_base: PORT_BASE,
        first_source_port: FIRST_SOURCE_PORT,
        source_ports: 1,
        mtu: LARGEST as u16,
        paths: 1,
        line_rate: line_rate.0,
        base_rtt: base_rtt.0,
        carried: 1,
        seed: seed ^ u64::from(at.host) << 32 ^ u64::from(at.process) << 16,
        ..Place::default()
    }
}

impl RankFlows {
    /// A process at each of those places, in the order of ranks of the jobs; `on` is what the hosts' memory is to them. Numbers of their flows begin
    /// at `base`.
    pub fn new(
        jobs: Jobs,
        places: &[apps::Place],
        on: Option<OnNode>,
        seed: u64,
        base: u32,
        line_rate: BitRate,
        base_rtt: Nanos,
    ) -> RankFlows {
        let rank = |&at: &apps::Place| Rank {
            seat: RankSeat::new(place_of(at, seed, line_rate, base_rtt)),
            host: at.host,
            copies: on.map(Copies::new),
        };
        let address = |at: &apps::Place| (at.host, PORT_BASE + at.process);
        RankFlows {
            flows: MessageFlows::new(places.len(), base),
            ranks: places.iter().map(rank).collect(),
            rank_of: places.iter().map(address).zip(0..).collect(),
            begun: HashMap::new(),
            empty_way: Ps(Ps::from(base_rtt).0 / 2),
            jobs,
            failed: Vec::new(),
        }
    }

    /// A process has sent something.
    fn carry(&mut self, now: Ps, from: u32, head: Head, bytes: Box<[u8]>) {
        let host = host_of(IpAddr::V4(Ipv4Addr::from_bits(head.peer)).into());
        let Some(&to) = self.rank_of.get(&(host, head.ports[1])) else { return }; // nobody is there
        let sender = &mut self.ranks[from as usize];
        let head = Head { peer: sender.seat.place().ip, ..head };
        if let Some(copies) = sender.copies.as_mut().filter(|_| sender.host == host) {
            let at = copies.carry(now.time(), &bytes);
            return self.expect(now, to, Ps::of(at), head, bytes);
        }
        if let Ok(Body::Data(data)) = codec::decode(&bytes).map(|packet| packet.body) {
            let (name, whole) = ((from, to, data.msg.0), u64::from(data.len));
            let begun = self.begun.entry(name).or_default();
            begun.bytes += data.payload.len() as u64;
            begun.datagrams.push((head, bytes));
            if begun.bytes >= whole {
                let datagrams = std::mem::take(&mut begun.datagrams);
                self.begun.remove(&name);
                self.flows.begin(from, to, datagrams, whole.max(LEAST));
            }
            return;
        }
        self.expect(now, to, now + self.empty_way, head, bytes);
    }

    /// It comes without a flow.
    fn expect(&mut self, now: Ps, to: u32, at: Ps, head: Head, bytes: Box<[u8]>) {
        self.ranks[to as usize].seat.expect(at.time(), head, bytes);
        self.flows.set_alarm(to, Ps::of(at.time()), now);
    }
}

impl Programs for RankFlows {
    fn advance(&mut self, now: Ps, number: u32) -> bool {
        self.flows.looks(number, now);
        let rank = &mut self.ranks[number as usize];
        let mut out = Vec::new();
        rank.seat.run(now.time(), true, &mut |head, bytes| {
            out.push((head, Box::from(bytes)));
            true
        });
        let ended = rank.seat.has_just_ended();
        let due = match rank.seat.due() {
            Time::NEVER => Ps::NEVER,
            due => Ps::of(due),
        };
        for (head, bytes) in out {
            self.carry(now, number, head, bytes);
        }
        self.flows.set_alarm(number, due, now);
        ended
    }

    fn poll_outgoing(&mut self) -> Option<OutgoingMessage> {
        self.flows.poll_outgoing()
    }

    fn poll_alarm(&mut self) -> Option<(Ps, u32)> {
        self.flows.poll_alarm()
    }

    fn sent(&mut self, number: u32) -> Option<u32> {
        self.flows.sent(number);
        None // its receiver tells
    }

    fn received(&mut self, now: Ps, number: u32, inbox: u32) -> Option<u32> {
        let (_, _, datagrams) = self.flows.received(number, inbox);
        let seat = &mut self.ranks[number as usize].seat;
        for (head, bytes) in std::mem::take(datagrams) {
            seat.receive(head, bytes, now.time());
        }
        self.flows.call(number)
    }

    fn failed(&mut self, number: u32, why: &'static str) -> Option<u32> {
        let (from, to, _) = self.flows.get(number);
        let (from, to) = (self.jobs.name(from), self.jobs.name(to));
        let failed = format!("a message of {from} to {to} has failed: {why}");
        if !self.failed.contains(&failed) {
            self.failed.push(failed);
        }
        None
    }

    fn complaints(&self, _: Ps) -> Vec<String> {
        self.failed.clone()
    }

    fn is_carrying(&self) -> bool {
        self.flows.is_carrying() || self.ranks.iter().any(|rank| rank.seat.is_expecting())
    }

    fn seat(&mut self, rank: u32) -> Option<&mut RankSeat> {
        self.ranks.get_mut(rank as usize).map(|rank| &mut rank.seat)
    }
}
