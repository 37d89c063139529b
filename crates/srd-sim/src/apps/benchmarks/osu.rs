//! Collective operations one behind the other, each measured, as the OSU Micro-Benchmarks do (osu_barrier, osu_allreduce,
//! osu_alltoall, and osu_ialltoall's "pure communication time"): barriers keep the operations apart.

use crate::apps::collective::Group;
use crate::apps::script::Script;
use crate::apps::writer::Writer;

/// See the module.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Osu {
    /// Ranks.
    pub ranks: u32,
    /// What is measured.
    pub operation: Operation,
    /// Operations.
    pub times: u32,
    /// Operations before those, not measured.
    pub warmup: u32,
}

/// A collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Nobody leaves before all have come: dissemination.
    Barrier,
    /// All get the sum of what all have.
    AllReduce {
        /// Of a vector.
        bytes: u64,
        /// How it is made of messages.
        by: ReduceBy,
    },
    /// Each has something for each.
    AllToAll {
        /// From one rank to another.
        bytes: u64,
        /// How it is made of messages.
        by: ExchangeBy,
    },
}

/// How an all-reduce is made of messages. Adding takes no time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReduceBy {
    /// Doubling up to 2 KiB (MPICH's MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE), else a ring.
    Auto,
    /// Recursive doubling: few rounds, in each the whole vector.
    Doubling,
    /// A ring: many rounds, in each a small part of the vector.
    Ring,
}

/// How an all-to-all is made of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExchangeBy {
    /// As MPICH 4 chooses without further settings (MPIR_CVAR_ALLTOALL_SHORT_MSG_SIZE, ..._MEDIUM_MSG_SIZE and
    /// ..._THROTTLE): up to 256 bytes, among at least 8 ranks, Bruck's; up to 32 KiB, 32 messages at once; else pairwise.
    Auto,
    /// Pairwise exchanges, one behind the other.
    Pairs,
    /// Bruck's, for small data: few messages, but most bytes travel several times.
    Bruck,
    /// So many messages at once; all of them are what a non-blocking all-to-all begins with.
    AtOnce(u32),
}

/// Bytes up to which MPICH's all-reduce doubles.
pub(in crate::apps) const SHORT_REDUCE: u64 = 2048;
/// Bytes up to which MPICH takes Bruck's algorithm, and from how many ranks on.
const SHORT_EXCHANGE: (u64, u32) = (256, 8);
/// Bytes up to which MPICH has several messages at once, and how many.
const MEDIUM_EXCHANGE: (u64, u32) = (32_768, 32);

impl Osu {
    /// The scripts, by rank. A measurement is an operation; OSU tells the mean over ranks and times.
    pub fn scripts(&self) -> Vec<Script> {
        let all: Vec<u32> = (0..self.ranks).collect();
        let script = |own| {
            let group = Group { ranks: &all, own };
            let mut writer = Writer::default();
            let apart = |writer: &mut Writer| {
                if self.operation != Operation::Barrier {
                    writer.barrier(group);
                }
            };
            apart(&mut writer);
            writer.repeat(self.warmup, |writer| {
                self.operation.write(writer, group);
                apart(writer);
            });
            writer.repeat(self.times, |writer| {
                writer.measured(|writer| self.operation.write(writer, group));
                apart(writer);
            });
            writer.script()
        };
        (0..self.ranks).map(script).collect()
    }
}

impl Operation {
    /// What a rank does in it.
    pub(in crate::apps) fn write(self, writer: &mut Writer, group: Group<'_>) {
        let ranks = group.size();
        match self {
            Operation::Barrier => writer.barrier(group),
            Operation::AllReduce { bytes, by } => match by {
                ReduceBy::Auto if bytes <= SHORT_REDUCE => writer.all_reduce(group, bytes),
                ReduceBy::Doubling => writer.all_reduce(group, bytes),
                ReduceBy::Auto | ReduceBy::Ring => writer.all_reduce_in_ring(group, bytes),
            },
            Operation::AllToAll { bytes, by } => match by {
                ExchangeBy::Auto if bytes <= SHORT_EXCHANGE.0 && ranks >= SHORT_EXCHANGE.1 => {
                    writer.all_to_all_by_bruck(group, bytes)
                }
                ExchangeBy::Auto if bytes <= MEDIUM_EXCHANGE.0 => {
                    writer.all_to_all_at_once(group, bytes, MEDIUM_EXCHANGE.1)
                }
                ExchangeBy::Auto | ExchangeBy::Pairs => writer.all_to_all_by_pairs(group, bytes),
                ExchangeBy::Bruck => writer.all_to_all_by_bruck(group, bytes),
                ExchangeBy::AtOnce(messages) => writer.all_to_all_at_once(group, bytes, messages),
            },
        }
    }
}
