//! A simulated host's process that is a real one: a program of the user's, whose provider sends and receives here instead of by
//! sockets (`srd-virtual`). Everything above the network card runs there, and the clock that it sees is the simulation's.

use crate::apps::Place;
use crate::hosts::intra_node::Copies;
use crate::hosts::process::{Birth, Process};
use crate::hosts::rank_seat::{PORT_BASE, RankSeat, ip_of, place_of};
use crate::hosts::srd_nic::{IP_UDP, host_of};
use crate::net::{Content, ETHERNET_HEADER, FrameHead};
use srd_baselines::transport::{Counts, Order, Outgoing, Report, Transport};
use srd_virtual::layout::Head;
use srd_wire::{BitRate, Body, Packet, Time, codec};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

/// Bytes of UDP's payload that switches leave of a packet which they cut, as the lab's routers do: SRD's headers, but for long ACKs.
const CUT: usize = 128;

/// A datagram of a process, as it would be on a wire.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Sending host, and the process there.
    pub from: u32,
    /// See above.
    pub process: u16,
    /// Source and destination.
    pub ports: (u16, u16),
    /// What UDP carries.
    pub bytes: Box<[u8]>,
}

impl Datagram {
    /// The process that sent it.
    pub fn at(&self) -> Place {
        Place { host: self.from, process: self.process }
    }
}

impl Content for Datagram {
    /// What is left are the first [`CUT`] bytes; a padded question asks for its size.
    fn trim(&mut self) -> Option<u32> {
        if self.bytes.len() > CUT {
            if let Ok(Packet { body: Body::Probe(_), .. }) = codec::decode(&self.bytes) {
                return None;
            }
            self.bytes = self.bytes[..CUT].into();
        }
        Some(ETHERNET_HEADER + IP_UDP + self.bytes.len() as u32)
    }
}

/// A datagram to another process of the host, and when it is there.
pub struct NearDatagram {
    head: Head,
    bytes: Box<[u8]>,
    at: Time,
}

/// The way to others by the host's memory.
struct Memory {
    copies: Copies,
    /// Ranks of the host's processes, by number.
    ranks: HashMap<u16, u32>,
    outgoing: VecDeque<(u32, NearDatagram)>,
}

/// See the module.
pub struct RankProcess {
    host: u32,
    number: u16,
    class: u8,
    memory: Option<Memory>,
    /// Where it sits.
    pub seat: RankSeat,
    /// What the card has not sent yet.
    outbox: VecDeque<Outgoing<Datagram>>,
    /// Other processes use the card, too.
    shares_card: bool,
    line_rate: BitRate,
    /// Bytes that a datagram takes on the wire beside itself.
    overhead: u32,
    /// When its last packet has left, if no other's was before it.
    busy_until: Time,
    /// Classes that are paused, a bit each.
    paused: u8,
    counts: Counts,
}

/// What a datagram is, to be counted.
fn count(counts: &mut Counts, bytes: &[u8]) {
    match codec::decode(bytes).map(|packet| packet.body) {
        Ok(Body::Data(data)) if data.tx_count > 0 => counts.data_again += 1,
        Ok(Body::Data(_)) => counts.data_new += 1,
        _ => counts.bare += 1,
    }
}

impl RankProcess {
    /// Its turns at this moment. The card takes a packet if it `takes`.
    fn run(&mut self, now: Time, takes: bool) {
        let RankProcess { host, number, class, memory, seat, outbox, counts, .. } = self;
        seat.run(now, takes, &mut |head, bytes| {
            let ports = (head.ports[0], head.ports[1]);
            let to = host_of(IpAddr::V4(Ipv4Addr::from_bits(head.peer)).into());
            let Some(process) = ports.1.checked_sub(PORT_BASE) else { return true };
            let near = memory.as_mut().filter(|_| to == *host);
            if let Some(memory) = near {
                if let Some(&rank) = memory.ranks.get(&process) {
                    let at = memory.copies.carry(now, bytes);
                    memory.outgoing.push_back((rank, NearDatagram { head, bytes: bytes.into(), at }));
                }
                return true;
            }
            count(counts, bytes);
            outbox.push_back(Outgoing {
                to,
                process,
                ports,
                bytes: bytes.len() as u32 + IP_UDP,
                class: *class,
                ecn_capable: true,
                content: Datagram { from: *host, process: *number, ports, bytes: bytes.into() },
            });
            false
        });
    }

    /// Whether the card would send a packet at once.
    fn is_link_free(&self, now: Time) -> bool {
        !self.shares_card && self.outbox.is_empty() && self.busy_until <= now && !self.is_paused()
    }

    fn is_paused(&self) -> bool {
        self.paused >> self.class & 1 != 0
    }
}

impl Process for RankProcess {
    const RUNS_PROGRAMS: bool = true;
    type Near = NearDatagram;

    fn poll_near(&mut self) -> Option<(u32, NearDatagram)> {
        self.memory.as_mut()?.outgoing.pop_front()
    }

    fn receive_near(&mut self, near: NearDatagram) {
        self.seat.expect(near.at, near.head, near.bytes); // its peer is of the same address
    }

    fn new(birth: Birth<'_>) -> RankProcess {
        RankProcess {
            host: birth.role.host,
            number: birth.role.process,
            class: birth.role.class,
            memory: birth.settings.hosts.intra_node.map(|on| Memory {
                copies: Copies::new(on),
                ranks: HashMap::new(),
                outgoing: VecDeque::new(),
            }),
            seat: RankSeat::new(place_of(&birth)),
            outbox: VecDeque::new(),
            shares_card: false,
            line_rate: birth.role.line_rate,
            overhead: ETHERNET_HEADER + birth.settings.frame_overhead,
            busy_until: Time(0),
            paused: 0,
            counts: Counts::default(),
        }
    }
}

impl Transport for RankProcess {
    type Content = Datagram;
    /// Host, and number there.
    type Address = (u32, u16);

    fn address(&self) -> (u32, u16) {
        (self.host, self.number)
    }

    fn expect(&mut self, _: &(u32, u16), _: u32, _: u64) {
        unreachable!("programs receive no flows");
    }

    fn start(&mut self, _: Time, _: Order, _: &(u32, u16)) {
        unreachable!("programs send no flows");
    }

    fn stop(&mut self, _: Time, _: u32) {
        unreachable!("programs send no flows");
    }

    fn meet(&mut self, ranks: &[(u32, u16)]) {
        let here = (0..).zip(ranks).filter(|(_, (host, _))| *host == self.host);
        self.shares_card = here.clone().count() > 1;
        if let Some(memory) = &mut self.memory {
            memory.ranks = here.map(|(rank, (_, number))| (*number, rank)).collect();
        }
    }

    fn receive(&mut self, now: Time, arrived: Time, head: &FrameHead, content: &Datagram) {
        let own = Head {
            len: content.bytes.len() as u32,
            peer: ip_of(content.from),
            ports: [content.ports.0, content.ports.1],
            marked: head.marked.into(),
            age: 0,
        };
        self.seat.receive(own, content.bytes.clone(), arrived);
        self.run(now, self.is_link_free(now));
    }

    fn poll_transmit<R>(&mut self, now: Time, mut sink: impl FnMut(Outgoing<Datagram>) -> R) -> Option<R> {
        if self.is_paused() {
            return None;
        }
        if self.outbox.is_empty() && self.seat.has_more() {
            self.run(now, true);
        }
        let outgoing = self.outbox.pop_front()?;
        self.busy_until = now + self.line_rate.time_for(u64::from(outgoing.bytes + self.overhead));
        Some(sink(outgoing))
    }

    fn set_paused(&mut self, classes: u8) {
        self.paused = classes;
    }

    fn handle_timeout(&mut self, now: Time) {
        self.run(now, self.is_link_free(now));
    }

    fn next_timeout(&self) -> Time {
        self.seat.due()
    }

    fn program_timeout(&self) -> Time {
        self.next_timeout()
    }

    fn poll_report(&mut self) -> Option<Report> {
        self.seat.has_just_ended().then_some(Report::Ended)
    }

    fn delivered(&mut self, _: u32) -> u64 {
        unreachable!("programs receive no flows");
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
