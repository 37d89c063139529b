//! Intel MPI Benchmarks: PingPong, Sendrecv and Exchange. As there, all iterations together are one measurement.

use crate::apps::collective::Group;
use crate::apps::measure::spans;
use crate::apps::script::Script;
use crate::apps::writer::Writer;
use srd_wire::Time;

/// See the module.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Imb {
    /// Ranks.
    pub ranks: u32,
    /// Which.
    pub benchmark: Benchmark,
    /// Of a message.
    pub bytes: u64,
    /// Iterations.
    pub iterations: u32,
    /// Iterations before those.
    pub warmup: u32,
}

/// Which benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Benchmark {
    /// Each rank of the first half with one of the second, all pairs at once (`-multi`): there and back.
    PingPong,
    /// A ring: each sends to the right and receives from the left.
    Sendrecv,
    /// A ring: each sends to both sides and receives from both.
    Exchange,
}

const TAG: u64 = 5;

impl Imb {
    /// The scripts, by rank.
    pub fn scripts(&self) -> Vec<Script> {
        let all: Vec<u32> = (0..self.ranks).collect();
        let script = |own| {
            let group = Group { ranks: &all, own };
            let mut writer = Writer::default();
            writer.repeat(self.warmup, |writer| self.iteration(writer, group));
            writer.barrier(group);
            writer.measured(|writer| writer.repeat(self.iterations, |writer| self.iteration(writer, group)));
            writer.script()
        };
        (0..self.ranks).map(script).collect()
    }

    fn iteration(&self, writer: &mut Writer, group: Group<'_>) {
        let (half, own, bytes) = (self.ranks / 2, group.own, self.bytes);
        match self.benchmark {
            Benchmark::PingPong if own < half => {
                writer.exchange(own + half, own + half, TAG, bytes);
            }
            Benchmark::PingPong if own < 2 * half => {
                writer.recv(own - half, TAG, bytes);
                writer.wait();
                writer.send(own - half, TAG, bytes);
                writer.wait();
            }
            Benchmark::Sendrecv if self.ranks > 1 => {
                writer.exchange(group.after(1), group.before(1), TAG, bytes)
            }
            Benchmark::Exchange if self.ranks > 1 => {
                let (left, right) = (group.before(1), group.after(1));
                writer.recv(left, TAG, bytes);
                writer.recv(right, TAG + 1, bytes);
                writer.send(left, TAG + 1, bytes);
                writer.send(right, TAG, bytes);
                writer.wait();
            }
            // A rank without a partner.
            Benchmark::PingPong | Benchmark::Sendrecv | Benchmark::Exchange => {}
        }
    }

    /// From all ranks' marks, of each rank the time in us as IMB tells it: of half an iteration of PingPong, of an iteration
    /// of the others. IMB's bandwidths are 1, 2 and 4 messages in that time.
    pub fn times(&self, marks: &[Vec<Time>]) -> Vec<f64> {
        let parts = if self.benchmark == Benchmark::PingPong { 2.0 } else { 1.0 };
        let of = |marks: &Vec<Time>| {
            Some(spans(marks).next()?.as_f64() / (1e3 * parts * f64::from(self.iterations)))
        };
        let partners = match self.benchmark {
            Benchmark::PingPong => self.ranks / 2,
            Benchmark::Sendrecv | Benchmark::Exchange => self.ranks,
        };
        marks.iter().take(partners as usize).filter_map(of).collect()
    }
}
