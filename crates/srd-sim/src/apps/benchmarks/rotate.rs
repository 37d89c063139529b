//! CBench's rotate and rotate_latency (Sandia, rotate.c and rotate_latency.c): all ranks of one half send to, or play
//! ping-pong with, one of the other half each, all at once; then partners are shifted by one, until each has met each.
//! Static routes show in the slowest pair.

use crate::apps::collective::Group;
use crate::apps::measure::{Summary, spans};
use crate::apps::script::Script;
use crate::apps::writer::Writer;
use srd_wire::{Nanos, Time};

/// Rotations, of the bandwidth test or of the latency test. One rank more than an even number only takes part in barriers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rotate {
    /// Ranks.
    pub ranks: u32,
    /// How many of the `ranks / 2` rotations, spread evenly over them; the original takes all.
    pub rotations: u32,
    /// How often each is measured. Of several times the best counts. The original: 3, for latency 1.
    pub tests: u32,
    /// What pairs do.
    pub pairs: Pairs,
}

/// What pairs do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pairs {
    /// So many messages one way, each when the one before has gone. The original: 10 of 8 MiB.
    Stream {
        /// Of a message.
        bytes: u64,
        /// Messages.
        messages: u32,
    },
    /// So many there and back. The original: 10,000 of no bytes.
    PingPong {
        /// Of a message.
        bytes: u64,
        /// Messages each way.
        rounds: u32,
    },
}

const TAG: u64 = 14;

impl Rotate {
    /// The bandwidth test as CBench has it, 80 MiB a pair, all but for the number of ranks.
    pub fn bandwidth(ranks: u32) -> Rotate {
        let pairs = Pairs::Stream { bytes: 8 << 20, messages: 10 };
        Rotate { ranks, rotations: ranks / 2, tests: 3, pairs }
    }

    /// The latency test as CBench has it.
    pub fn latency(ranks: u32) -> Rotate {
        Rotate { ranks, rotations: ranks / 2, tests: 1, pairs: Pairs::PingPong { bytes: 0, rounds: 10_000 } }
    }

    fn half(&self) -> u32 {
        self.ranks / 2
    }

    fn shifts(&self) -> impl Iterator<Item = u32> {
        let (half, count) = (self.half(), self.rotations.min(self.half()));
        (0..count).map(move |n| (n as u64 * half as u64 / count as u64) as u32)
    }

    /// Whom a rank has for a partner.
    fn partner(&self, rank: u32, shift: u32) -> u32 {
        let half = self.half();
        match rank < half {
            true => half + (rank + shift) % half,
            false => (rank - half + half - shift) % half,
        }
    }

    /// The scripts, by rank: a measurement for each rotation and test. The clock begins at the first half's rank; the
    /// last byte of a stream stops it at the second's ([`Rotate::rates`]), so that only the second mark counts there.
    pub fn scripts(&self) -> Vec<Script> {
        let all: Vec<u32> = (0..self.ranks).collect();
        (0..self.ranks).map(|own| self.script(Group { ranks: &all, own })).collect()
    }

    fn script(&self, group: Group<'_>) -> Script {
        let mut writer = Writer::default();
        for shift in self.shifts() {
            writer.repeat(self.tests, |writer| {
                writer.barrier(group);
                if group.own < 2 * self.half() {
                    let partner = self.partner(group.own, shift);
                    writer.exchange(partner, partner, TAG, 0);
                    writer.measured(|writer| self.pairs.write(writer, group.own < self.half(), partner));
                }
            });
        }
        writer.script()
    }

    /// Whether all ranks came to their end.
    pub fn complete(&self, marks: &[Vec<Time>]) -> bool {
        let all = 2 * self.tests as usize * self.shifts().count();
        let pairs = marks.get(..2 * self.half() as usize);
        pairs.is_some_and(|pairs| pairs.iter().all(|marks| marks.len() == all))
    }

    /// From all ranks' marks, for each rotation what the pairs attained, in MB/s (10^6 bytes), of the best test each.
    ///
    /// # Panics
    /// If pairs play ping-pong, or not all ranks came to their end.
    pub fn rates(&self, marks: &[Vec<Time>]) -> Vec<Summary> {
        let Pairs::Stream { bytes, messages } = self.pairs else { panic!("latency has no rate") };
        let span = |sender: &[Time], receiver: &[Time]| receiver[1].since(sender[0]);
        let mbps = |span: Nanos| bytes as f64 * messages as f64 * 1e3 / span.as_f64();
        self.summaries(marks, span, mbps)
    }

    /// From all ranks' marks, for each rotation half the time there and back of the pairs, in us, of the best test each.
    ///
    /// # Panics
    /// If pairs stream, or not all ranks came to their end.
    pub fn latencies(&self, marks: &[Vec<Time>]) -> Vec<Summary> {
        let Pairs::PingPong { rounds, .. } = self.pairs else { panic!("bandwidth has no latency") };
        let span = |first: &[Time], _: &[Time]| spans(first).next().expect("a pair of marks");
        self.summaries(marks, span, |span| span.as_f64() / (2e3 * rounds as f64))
    }

    fn summaries(
        &self,
        marks: &[Vec<Time>],
        span: impl Fn(&[Time], &[Time]) -> Nanos,
        value: impl Fn(Nanos) -> f64,
    ) -> Vec<Summary> {
        let of_shift = |(n, shift): (usize, u32)| {
            let best = |rank: u32| {
                let partner = self.partner(rank, shift);
                let tests = (0..self.tests as usize).map(|test| {
                    let at = 2 * (n * self.tests as usize + test);
                    span(&marks[rank as usize][at..at + 2], &marks[partner as usize][at..at + 2])
                });
                tests.min()
            };
            Summary::of((0..self.half()).filter_map(best).map(&value))
        };
        self.shifts().enumerate().filter_map(of_shift).collect()
    }
}

impl Pairs {
    fn write(self, writer: &mut Writer, first: bool, partner: u32) {
        match self {
            Pairs::Stream { bytes, messages } => writer.repeat(messages, |writer| {
                match first {
                    true => writer.send(partner, TAG, bytes),
                    false => writer.recv(partner, TAG, bytes),
                }
                writer.wait();
            }),
            Pairs::PingPong { bytes, rounds } => writer.repeat(rounds, |writer| {
                writer.recv(partner, TAG, bytes);
                if !first {
                    writer.wait();
                }
                writer.send(partner, TAG, bytes);
                writer.wait();
            }),
        }
    }
}
