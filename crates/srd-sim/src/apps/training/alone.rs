//! Programs on a network that takes no time: what computing and waiting for others' computing come to.

use crate::apps::messaging::{Completion, Messaging};
use crate::apps::rank::Rank;
use crate::apps::script::Script;
use srd_wire::{Nanos, Time};
use std::collections::{HashMap, VecDeque};

/// Sender, receiver and tag.
type Envelope = (u32, u32, u64);

#[derive(Default)]
struct NoTime {
    sent: HashMap<Envelope, u32>,
    posted: HashMap<Envelope, VecDeque<u32>>,
    done: Vec<VecDeque<u32>>,
    /// Ranks that have something to look at.
    called: VecDeque<u32>,
}

/// What a rank sees of it.
struct Port<'a>(&'a mut NoTime, u32);

impl NoTime {
    fn end(&mut self, rank: u32, request: u32) {
        self.done[rank as usize].push_back(request);
        self.called.push_back(rank);
    }
}

impl Messaging for Port<'_> {
    fn send(&mut self, _: Time, to: u32, tag: u64, _: u64, request: u32) -> bool {
        let Port(net, own) = self;
        let envelope = (*own, to, tag);
        match net.posted.get_mut(&envelope).and_then(VecDeque::pop_front) {
            Some(recv) => net.end(to, recv),
            None => *net.sent.entry(envelope).or_default() += 1,
        }
        net.end(*own, request);
        true
    }

    fn recv(&mut self, _: Time, from: u32, tag: u64, _: u64, request: u32) -> bool {
        let Port(net, own) = self;
        let envelope = (from, *own, tag);
        match net.sent.get_mut(&envelope).filter(|sent| **sent > 0) {
            Some(sent) => {
                *sent -= 1;
                net.end(*own, request);
            }
            None => net.posted.entry(envelope).or_default().push_back(request),
        }
        true
    }

    fn put(&mut self, _: Time, _: u32, _: u64, request: u32) -> bool {
        self.0.end(self.1, request);
        true
    }

    fn get(&mut self, now: Time, from: u32, bytes: u64, request: u32) -> bool {
        self.put(now, from, bytes, request)
    }

    fn poll(&mut self, _: Time) -> Option<Completion> {
        self.0.done[self.1 as usize].pop_front().map(|request| Completion { request, failed: None })
    }
}

/// What those programs take together, if messages take no time. `None` if they wait for each other for ever.
pub fn time_alone(scripts: Vec<Script>) -> Option<Nanos> {
    let mut ranks: Vec<Rank> = scripts.into_iter().map(Rank::new).collect();
    let mut net = NoTime { done: vec![VecDeque::new(); ranks.len()], ..NoTime::default() };
    net.called.extend(0..ranks.len() as u32);
    let mut now = Time(0);
    loop {
        while let Some(rank) = net.called.pop_front() {
            ranks[rank as usize].advance(now, &mut Port(&mut net, rank));
        }
        let next = ranks.iter().map(Rank::wakes_at).min().unwrap_or(Time::NEVER);
        if next == Time::NEVER {
            return ranks.iter().all(Rank::is_done).then(|| now.since(Time(0)));
        }
        now = next;
        let due = (0..).zip(&ranks).filter(|(_, rank)| rank.wakes_at() <= now).map(|(rank, _)| rank);
        net.called.extend(due);
    }
}
