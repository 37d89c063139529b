//! A switch with hosts around it, one process each: the least fabric on which a transport can be tried here. What needs more
//! is tried in the simulator.

use crate::frame::{Content, FrameHead};
use crate::transport::{Counts, Order, Report, Role};
use crate::units::Ps;
use crate::{Baseline, Surroundings};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_wire::{BitRate, Nanos};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What the fabric is like.
#[derive(Clone, Debug)]
pub(crate) struct Net {
    pub hosts: u32,
    /// Of every cable.
    pub rate: BitRate,
    /// Of every cable; a round trip has four of them.
    pub delay: Ps,
    /// Of the switch's port to each host, in bytes.
    pub capacity: u64,
    /// From how many bytes on frames are marked, from how many on all of them, and how likely just below that.
    pub marks: Option<(u64, u64, f64)>,
    pub trims: bool,
    /// Share of frames longer than 200 bytes that are lost.
    pub loss: f64,
    /// Every so many-th of them is lost, and none by chance.
    pub loses_each: Option<u64>,
    /// From one sample to the next.
    pub sample: Ps,
    pub mtu: u16,
    pub seed: u64,
}

impl Default for Net {
    /// 100 Gb/s, a round trip of 8 us, a megabyte to each host.
    fn default() -> Net {
        Net {
            hosts: 2,
            rate: BitRate(100_000_000_000),
            delay: Ps::from_micros(2),
            capacity: 1_000_000,
            marks: None,
            trims: false,
            loss: 0.0,
            loses_each: None,
            sample: Ps::from_micros(1),
            mtu: 4200,
            seed: 1,
        }
    }
}

impl Net {
    /// What a section is read with.
    pub fn surroundings(&self) -> Surroundings {
        let base_rtt = Nanos(4 * self.delay.0 / 1000);
        Surroundings {
            line_rate: self.rate,
            base_rtt,
            bdp: self.rate.0 / 8 * base_rtt.0 / 1_000_000_000,
            mtu: self.mtu,
            class: 0,
            marks: self.marks.is_some(),
            trims: self.trims,
            lossless: 0,
            reorders: false,
        }
    }
}

/// A transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub from: u32,
    pub to: u32,
    /// `u64::MAX`: until the run ends.
    pub bytes: u64,
    pub start: Ps,
    /// As [`Order::channel`].
    pub channel: u32,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// Of each transfer: when its sender had every byte acknowledged.
    pub sent: Vec<Option<Ps>>,
    /// Of each transfer: when its receiver had every byte.
    pub received: Vec<Option<Ps>>,
    pub failed: Vec<Option<&'static str>>,
    /// Of each transfer: bytes that came.
    pub delivered: Vec<u64>,
    /// Of each host.
    pub counts: Vec<Counts>,
    pub dropped: u64,
    pub marked: u64,
    /// Bytes that waited for host 0, at each sample.
    pub queue: Vec<u64>,
    /// Bytes that had come of each transfer, at each sample.
    pub progress: Vec<Vec<u64>>,
    pub at: Ps,
}

enum Event {
    Start(usize),
    Wake(u32),
    /// A frame of a host has come to the switch.
    Switch(FrameHead, usize),
    Host(FrameHead, usize, u32),
    Transmit(u32),
    Sample,
}

struct Host<T> {
    transport: T,
    /// Its cable to the switch is free.
    free_at: Ps,
    transmit_at: Ps,
    wakes_at: Ps,
    /// The switch's port to it is free.
    port_free_at: Ps,
    /// Transfer of each inbox.
    inboxes: Vec<usize>,
}

struct Run<'a, T: Baseline> {
    net: &'a Net,
    now: Ps,
    serial: u64,
    queue: BinaryHeap<Reverse<(Ps, u64, usize)>>,
    events: Vec<Option<Event>>,
    contents: Vec<Option<T::Content>>,
    hosts: Vec<Host<T>>,
    draws: SmallRng,
    /// Frames that are long enough to be lost.
    passed: u64,
    ended: Ended,
}

/// Runs until all transfers with an end are done, or until `end`.
pub(crate) fn run<T: Baseline>(net: &Net, config: &T::Config, transfers: &[Transfer], end: Ps) -> Ended {
    let blank = vec![None; transfers.len()];
    let mut hosts: Vec<Host<T>> = (0..net.hosts)
        .map(|host| {
            let role = Role {
                host,
                process: 0,
                flows_out: transfers.len() as u32,
                inboxes: transfers.len() as u32,
                seed: net.seed << 16 | host as u64,
                line_rate: net.rate,
                base_rtt: net.surroundings().base_rtt,
                mtu: net.mtu,
                class: 0,
            };
            Host {
                transport: T::open(&role, config),
                free_at: Ps::ZERO,
                transmit_at: Ps::NEVER,
                wakes_at: Ps::NEVER,
                port_free_at: Ps::ZERO,
                inboxes: Vec::new(),
            }
        })
        .collect();
    let addresses: Vec<T::Address> = hosts.iter().map(|host| host.transport.address()).collect();
    for (number, transfer) in transfers.iter().enumerate() {
        hosts[transfer.to as usize].inboxes.push(number);
    }
    let mut run: Run<'_, T> = Run {
        net,
        now: Ps::ZERO,
        serial: 0,
        queue: BinaryHeap::new(),
        events: Vec::new(),
        contents: Vec::new(),
        hosts,
        draws: SmallRng::seed_from_u64(net.seed),
        passed: 0,
        ended: Ended {
            sent: blank.clone(),
            received: blank,
            failed: vec![None; transfers.len()],
            delivered: vec![0; transfers.len()],
            counts: Vec::new(),
            dropped: 0,
            marked: 0,
            queue: Vec::new(),
            progress: vec![Vec::new(); transfers.len()],
            at: Ps::ZERO,
        },
    };
    for (number, transfer) in transfers.iter().enumerate() {
        run.push(transfer.start, Event::Start(number));
    }
    run.push(Ps::ZERO, Event::Sample);
    while let Some(Reverse((at, _, event))) = run.queue.pop() {
        let open = (0..transfers.len()).any(|n| {
            transfers[n].bytes == u64::MAX || (run.ended.sent[n].is_none() && run.ended.failed[n].is_none())
        });
        if at > end || !open {
            break;
        }
        run.now = at;
        let event = run.events[event].take().expect("an event happens once");
        run.happen(event, transfers, &addresses);
    }
    for (number, transfer) in transfers.iter().enumerate() {
        run.ended.delivered[number] = run.delivered(transfers, number, transfer);
    }
    run.ended.counts = run.hosts.iter().map(|host| host.transport.counts()).collect();
    run.ended.at = run.now;
    run.ended
}

impl<T: Baseline> Run<'_, T> {
    fn push(&mut self, at: Ps, event: Event) {
        self.serial += 1;
        self.queue.push(Reverse((at, self.serial, self.events.len())));
        self.events.push(Some(event));
    }

    fn delivered(&mut self, transfers: &[Transfer], number: usize, transfer: &Transfer) -> u64 {
        if transfer.start >= self.now {
            return 0;
        }
        let inbox = inbox_of(transfers, number);
        self.hosts[transfer.to as usize].transport.delivered(inbox)
    }

    fn happen(&mut self, event: Event, transfers: &[Transfer], addresses: &[T::Address]) {
        match event {
            Event::Start(number) => {
                let Transfer { from, to, bytes, .. } = transfers[number];
                let inbox = inbox_of(transfers, number);
                self.hosts[to as usize].transport.expect(&addresses[from as usize], inbox, bytes);
                let order = Order { flow: number as u32, inbox, bytes, channel: transfers[number].channel };
                let sender = &mut self.hosts[from as usize].transport;
                sender.start(self.now.time(), order, &addresses[to as usize]);
                self.attend(from);
            }
            Event::Wake(host) => {
                if self.hosts[host as usize].wakes_at == self.now {
                    self.hosts[host as usize].wakes_at = Ps::NEVER;
                    self.hosts[host as usize].transport.handle_timeout(self.now.time());
                    self.attend(host);
                }
            }
            Event::Transmit(host) => {
                self.hosts[host as usize].transmit_at = Ps::NEVER;
                self.transmit(host);
            }
            Event::Switch(head, content) => self.switch(head, content),
            Event::Host(head, content, host) => {
                let content = self.contents[content].take().expect("a frame arrives once");
                let now = self.now.time();
                self.hosts[host as usize].transport.receive(now, now, &head, &content);
                self.attend(host);
            }
            Event::Sample => {
                let waiting = self.hosts[0].port_free_at.since(self.now);
                let bytes = waiting.0 as u128 * self.net.rate.0 as u128 / 8_000_000_000_000;
                self.ended.queue.push(bytes as u64);
                for number in 0..transfers.len() {
                    let delivered = self.delivered(transfers, number, &transfers[number]);
                    self.ended.progress[number].push(delivered);
                }
                self.push(self.now + self.net.sample, Event::Sample);
            }
        }
    }

    fn attend(&mut self, host: u32) {
        while let Some(report) = self.hosts[host as usize].transport.poll_report() {
            match report {
                Report::Sent { flow } => self.ended.sent[flow as usize] = Some(self.now),
                Report::Received { inbox } => {
                    let transfer = self.hosts[host as usize].inboxes[inbox as usize];
                    assert_eq!(self.ended.received[transfer], None, "an inbox is full once");
                    self.ended.received[transfer] = Some(self.now);
                }
                Report::Failed { flow, why } => self.ended.failed[flow as usize] = Some(why),
                Report::Ended => unreachable!("no programs here"),
            }
        }
        self.transmit(host);
    }

    fn transmit(&mut self, number: u32) {
        loop {
            let host = &mut self.hosts[number as usize];
            if host.free_at > self.now {
                if host.free_at < host.transmit_at {
                    host.transmit_at = host.free_at;
                    let at = host.free_at;
                    self.push(at, Event::Transmit(number));
                }
                break;
            }
            let Some(frame) = host.transport.poll_transmit(self.now.time(), |outgoing| outgoing) else {
                break;
            };
            let (head, content) = frame.into_frame(0, 0);
            host.free_at = self.now + Ps::to_send(head.bytes as u64, self.net.rate);
            let at = host.free_at + self.net.delay;
            self.contents.push(Some(content));
            self.push(at, Event::Switch(head, self.contents.len() - 1));
        }
        let host = &mut self.hosts[number as usize];
        let wants = Ps::of(host.transport.next_timeout());
        if wants < Ps::NEVER {
            let at = wants.max(self.now + Ps::from_nanos(1));
            if at < host.wakes_at {
                host.wakes_at = at;
                self.push(at, Event::Wake(number));
            }
        }
    }

    fn switch(&mut self, mut head: FrameHead, content: usize) {
        let port = &mut self.hosts[head.dst as usize];
        let waiting = port.port_free_at.since(self.now);
        let bytes = (waiting.0 as u128 * self.net.rate.0 as u128 / 8_000_000_000_000) as u64;
        let long = head.bytes > 200;
        self.passed += u64::from(long);
        let lost = match self.net.loses_each {
            Some(each) => long && self.passed.is_multiple_of(each),
            None => long && self.net.loss > 0.0 && self.draws.random::<f64>() < self.net.loss,
        };
        let full = bytes + head.bytes as u64 > self.net.capacity;
        if full && self.net.trims && !lost {
            let left = self.contents[content].as_mut().expect("it is there").trim();
            if let Some(left) = left {
                (head.bytes, head.trimmed) = (left, true);
            }
        }
        if lost || (full && !head.trimmed) {
            self.ended.dropped += 1;
            self.contents[content] = None;
            return;
        }
        if let Some((min, max, most)) = self.net.marks.filter(|_| head.ecn_capable) {
            let share = bytes.saturating_sub(min) as f64 / (max - min).max(1) as f64;
            if bytes >= max || (bytes >= min && self.draws.random::<f64>() < share * most) {
                head.marked = true;
                self.ended.marked += 1;
            }
        }
        // A header that was cut overtakes what waits.
        let begins = if head.trimmed { self.now } else { port.port_free_at.max(self.now) };
        let leaves = begins + Ps::to_send(head.bytes as u64, self.net.rate);
        port.port_free_at = port.port_free_at.max(leaves);
        self.push(leaves + self.net.delay, Event::Host(head, content, head.dst));
    }
}

/// Number of a transfer among those to the same host.
fn inbox_of(transfers: &[Transfer], number: usize) -> u32 {
    transfers[..number].iter().filter(|other| other.to == transfers[number].to).count() as u32
}
