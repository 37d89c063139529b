//! Two processes and a wire that does to each segment what a test says.

use crate::frame::FrameHead;
use crate::tcp::config::Config;
use crate::tcp::engine::Engine;
use crate::tcp::segment::{Data, Segment};
use crate::transport::{Counts, Order, Report, Role, Transport};
use srd_wire::{BitRate, Nanos, Time};
use std::collections::BTreeMap;

/// One way.
pub const WAY: Nanos = Nanos::from_micros(50);
/// Between two frames of a sender.
const FRAME: Nanos = Nanos::from_micros(1);

/// What happens to a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happens {
    Nothing,
    Lost,
    Late(Nanos),
    Marked,
}

pub struct Pair {
    /// The sender, and the receiver.
    pub ends: [Engine<()>; 2],
    pub now: Time,
    wire: BTreeMap<(Time, u64), (usize, Segment, bool)>,
    free_at: [Time; 2],
    serial: u64,
    /// Data segments in the order in which they left.
    pub sent: Vec<(Time, u64)>,
    copies: BTreeMap<(u32, u64), usize>,
    pub reports: Vec<(Time, Report)>,
    /// Sizes of ACKs.
    pub acks: Vec<u32>,
}

impl Pair {
    pub fn new(config: &Config) -> Pair {
        let role = |host| Role {
            host,
            process: 0,
            flows_out: 4,
            inboxes: 4,
            seed: 7,
            line_rate: BitRate(12_000_000_000),
            base_rtt: Nanos(2 * WAY.0),
            mtu: 1500,
            class: 0,
        };
        Pair {
            ends: [0, 1].map(|host| Engine::new(&role(host), config)),
            now: Time(0),
            wire: BTreeMap::new(),
            free_at: [Time(0); 2],
            serial: 0,
            sent: Vec::new(),
            copies: BTreeMap::new(),
            reports: Vec::new(),
            acks: Vec::new(),
        }
    }

    pub fn start(&mut self, flow: u32, bytes: u64, channel: u32) {
        let [sender, receiver] = &mut self.ends;
        receiver.expect(&sender.address(), flow, bytes);
        sender.start(self.now, Order { flow, inbox: flow, bytes, channel }, &receiver.address());
    }

    /// Runs until all is quiet, or until `end`. The test says what happens to a data segment, and to which
    /// copy of it, or to an ACK.
    pub fn run(&mut self, end: Time, mut happens: impl FnMut(Option<&Data>, usize) -> Happens) {
        while self.now <= end {
            self.transmit(&mut happens);
            for end in &mut self.ends {
                while let Some(report) = end.poll_report() {
                    self.reports.push((self.now, report));
                }
            }
            let frame = self.wire.keys().next().map_or(Time::NEVER, |key| key.0);
            let wakes = self.ends.iter().map(|end| end.next_timeout()).min().unwrap_or(Time::NEVER);
            let wakes = wakes.max(self.now + Nanos(1));
            let free = self.free_at.iter().copied().filter(|&at| at > self.now).min();
            let next = frame.min(wakes).min(free.unwrap_or(Time::NEVER));
            if next == Time::NEVER {
                return;
            }
            self.now = next;
            while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, segment, marked) = entry.remove();
                let head = FrameHead {
                    tuple_hash: 0,
                    dst: to as u32,
                    bytes: 1500,
                    class: 0,
                    ecn_capable: true,
                    marked,
                    trimmed: false,
                    corrupt: false,
                    epoch: 0,
                    process: 0,
                };
                self.ends[to].receive(self.now, self.now, &head, &segment);
            }
            for end in &mut self.ends {
                if end.next_timeout() <= self.now {
                    end.handle_timeout(self.now);
                }
            }
        }
    }

    fn transmit(&mut self, happens: &mut impl FnMut(Option<&Data>, usize) -> Happens) {
        for place in 0..2 {
            if self.free_at[place] > self.now {
                continue;
            }
            let Some(frame) = self.ends[place].poll_transmit(self.now, |frame| frame) else { continue };
            self.free_at[place] = self.now + FRAME;
            let what = match &frame.content {
                Segment::Data(data) => {
                    self.sent.push((self.now, data.number));
                    let copies = self.copies.entry((data.connection.serial, data.number)).or_default();
                    *copies += 1;
                    happens(Some(data), *copies)
                }
                Segment::Ack(_) => {
                    self.acks.push(frame.bytes);
                    happens(None, 0)
                }
            };
            let late = match what {
                Happens::Lost => continue,
                Happens::Late(late) => late,
                _ => Nanos::ZERO,
            };
            self.serial += 1;
            let key = (self.now + WAY + late, self.serial);
            self.wire.insert(key, (frame.to as usize, frame.content, what == Happens::Marked));
        }
    }

    pub fn counts(&self) -> Counts {
        self.ends[0].counts()
    }

    /// When the flow was complete at its receiver.
    pub fn received(&self, flow: u32) -> Option<Time> {
        self.reports.iter().find(|(_, report)| *report == Report::Received { inbox: flow }).map(|it| it.0)
    }
}
