//! Two processes and a link that does to each packet what a test says.

use crate::Baseline;
use crate::frame::{Content, FrameHead};
use crate::transport::{Order, Report, Role, Transport};
use srd_wire::{BitRate, Nanos, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A process, as most tests have it.
pub(crate) const ROLE: Role = Role {
    host: 0,
    process: 0,
    flows_out: 8,
    inboxes: 8,
    seed: 1,
    line_rate: BitRate(100_000_000_000),
    base_rtt: Nanos::from_micros(12),
    mtu: 4200,
    class: 0,
};
/// No test sends a hundredth of it, unless it hangs.
const MOST_PACKETS: usize = 2_000_000;
/// No flow that tests look at alone takes longer, unless it hangs.
const LONGEST_FLOW: Time = Time(5_000_000_000);

/// What happens to a packet.
#[derive(Clone, Copy)]
pub(crate) struct Fate {
    pub lost: bool,
    /// So much later than others.
    pub late: Nanos,
    pub marked: bool,
    /// Cut, if its transport makes something of that.
    pub trimmed: bool,
}

impl Fate {
    pub const ARRIVES: Fate = Fate { lost: false, late: Nanos::ZERO, marked: false, trimmed: false };
    pub const LOST: Fate = Fate { lost: true, ..Fate::ARRIVES };
    pub const MARKED: Fate = Fate { marked: true, ..Fate::ARRIVES };

    pub const fn late(nanos: u64) -> Fate {
        Fate { late: Nanos(nanos), ..Fate::ARRIVES }
    }
}

/// A packet that has left.
pub(crate) struct Sent<C> {
    pub at: Time,
    /// The end that sent it.
    pub from: usize,
    /// Its number, if it has data.
    pub psn: Option<u32>,
    /// Which copy of that data it is, from 1.
    pub copy: usize,
    pub head: FrameHead,
    pub content: C,
}

/// What happens to the first `copies` copies of these data packets.
pub(crate) fn first<C>(copies: usize, psns: &[u32], fate: Fate) -> impl FnMut(&Sent<C>) -> Fate {
    move |sent| match sent.psn {
        Some(psn) if sent.copy <= copies && psns.contains(&psn) => fate,
        _ => Fate::ARRIVES,
    }
}

pub(crate) struct TestLink<T: Transport> {
    /// The sender of all flows, and their receiver.
    pub ends: [T; 2],
    pub now: Time,
    /// What has left, in order.
    pub packets: Vec<Sent<T::Content>>,
    pub reports: Vec<(Time, Report)>,
    /// From a packet's beginning at one end to its end at the other.
    delay: Nanos,
    /// From one packet of an end to its next.
    gap: Nanos,
    free_at: [Time; 2],
    /// When which of the packets arrive at each end.
    arrivals: [BTreeSet<(Time, usize)>; 2],
    /// Copies of each connection's data packets.
    copies: BTreeMap<(u32, u32), usize>,
}

impl<T: Baseline> TestLink<T> {
    /// A link between a process with this role and another one like it on host 1.
    pub fn new(role: &Role, config: &T::Config, delay: Nanos, gap: Nanos) -> TestLink<T> {
        TestLink {
            ends: [0, 1].map(|host| T::open(&Role { host, ..role.clone() }, config)),
            now: Time(0),
            packets: Vec::new(),
            reports: Vec::new(),
            delay,
            gap,
            free_at: [Time(0); 2],
            arrivals: [BTreeSet::new(), BTreeSet::new()],
            copies: BTreeMap::new(),
        }
    }

    /// Begins a flow that fills the inbox of its number.
    pub fn start(&mut self, flow: u32, bytes: u64, channel: u32) {
        self.order(Order { flow, inbox: flow, bytes, channel });
    }

    pub fn order(&mut self, order: Order) {
        let [from, to] = &mut self.ends;
        to.expect(&from.address(), order.inbox, order.bytes);
        from.start(self.now, order, &to.address());
    }

    /// Carries one flow, to its end.
    pub fn carry(mut self, bytes: u64, fate: impl FnMut(&Sent<T::Content>) -> Fate) -> TestLink<T> {
        self.start(0, bytes, 0);
        assert!(self.run(LONGEST_FLOW, fate) && self.sent_at(0).is_some(), "{:?}", self.reports);
        self
    }

    /// Runs until nothing happens any more, or until that moment. False: something would happen later, or it hangs.
    pub fn run(&mut self, until: Time, mut fate: impl FnMut(&Sent<T::Content>) -> Fate) -> bool {
        loop {
            for end in 0..2 {
                self.transmit(end, &mut fate);
                while let Some(report) = self.ends[end].poll_report() {
                    self.reports.push((self.now, report));
                }
            }
            let next = self.next();
            if next == Time::NEVER || next > until || self.packets.len() > MOST_PACKETS {
                return next == Time::NEVER;
            }
            self.now = next;
            for end in 0..2 {
                self.wake(end);
            }
        }
    }

    /// When something happens next.
    fn next(&self) -> Time {
        let arrivals = self.arrivals.iter().filter_map(|arrivals| arrivals.first()).map(|arrival| arrival.0);
        let free = self.free_at.iter().copied().filter(|at| *at > self.now);
        let timers = self.ends.iter().map(|end| end.next_timeout().max(self.now + Nanos(1)));
        arrivals.chain(free).chain(timers).min().unwrap_or(Time::NEVER)
    }

    fn transmit(&mut self, from: usize, fate: &mut impl FnMut(&Sent<T::Content>) -> Fate) {
        while self.free_at[from] <= self.now {
            let Some(frame) = self.ends[from].poll_transmit(self.now, |frame| frame) else { return };
            self.free_at[from] = self.now + self.gap;
            let (head, content) = frame.into_frame(0, 0);
            let data = content.data();
            let copy = data.map_or(0, |data| {
                let copies = self.copies.entry((data.connection, data.psn)).or_default();
                *copies += 1;
                *copies
            });
            let psn = data.map(|data| data.psn);
            let mut sent = Sent { at: self.now, from, psn, copy, head, content };
            let Fate { lost, late, marked, trimmed } = fate(&sent);
            sent.head.marked = marked;
            sent.head.trimmed = trimmed && sent.content.trim().is_some();
            if !lost {
                self.arrivals[1 - from].insert((self.now + self.delay + late, self.packets.len()));
            }
            self.packets.push(sent);
        }
    }

    /// An end gets a packet that arrives now, and does what is due. It may send before it gets another.
    fn wake(&mut self, end: usize) {
        let arrival = self.arrivals[end].first().copied();
        if let Some((_, number)) = arrival.filter(|(at, _)| *at <= self.now) {
            self.arrivals[end].pop_first();
            let Sent { head, content, .. } = &self.packets[number];
            self.ends[end].receive(self.now, self.now, head, content);
        }
        if self.ends[end].next_timeout() <= self.now {
            self.ends[end].handle_timeout(self.now);
        }
    }

    /// How often that was reported.
    pub fn count(&self, report: Report) -> usize {
        self.reports.iter().filter(|it| it.1 == report).count()
    }

    fn when(&self, report: Report) -> Option<Time> {
        self.reports.iter().find(|it| it.1 == report).map(|it| it.0)
    }

    /// When the sender had every byte of the flow acknowledged.
    pub fn sent_at(&self, flow: u32) -> Option<Time> {
        self.when(Report::Sent { flow })
    }

    /// When the receiver had every byte for the inbox.
    pub fn received_at(&self, inbox: u32) -> Option<Time> {
        self.when(Report::Received { inbox })
    }
}
