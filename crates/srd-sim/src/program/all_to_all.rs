//! All-to-all, blocking (osu_alltoall) and non-blocking (osu_ialltoall's "pure communication time"): each operation is
//! measured, and barriers keep them apart, as the OSU Micro-Benchmarks do.

use super::collective::Group;
use super::script::Script;
use super::writer::Writer;

/// See the module.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AllToAll {
    /// Ranks.
    pub ranks: u32,
    /// Bytes that each has for each.
    pub bytes: u64,
    /// How it is made of messages.
    pub by: Algorithm,
    /// Operations.
    pub times: u32,
    /// Operations before those, not measured.
    pub warmup: u32,
}

/// How an all-to-all is made of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// As MPICH 4 chooses without further settings (MPIR_CVAR_ALLTOALL_SHORT_MSG_SIZE, ..._MEDIUM_MSG_SIZE and
    /// ..._THROTTLE): up to 256 bytes, among at least 8 ranks, Bruck's; up to 32 KiB, 32 messages at once; else pairwise.
    Auto,
    /// Pairwise exchanges, one behind the other.
    Pairs,
    /// Bruck's, for small data: few messages, but most bytes travel several times.
    Bruck,
    /// So many messages at once.
    AtOnce(u32),
}

/// Messages that MPICH has under way at once.
const THROTTLE: u32 = 32;
/// Bytes up to which MPICH takes Bruck's algorithm, and from how many ranks on.
const SHORT: (u64, u32) = (256, 8);
/// Bytes up to which MPICH has several messages at once.
const MEDIUM: u64 = 32_768;

impl AllToAll {
    /// What [`Algorithm::Auto`] stands for.
    fn algorithm(&self) -> Algorithm {
        match self.by {
            Algorithm::Auto if self.bytes <= SHORT.0 && self.ranks >= SHORT.1 => Algorithm::Bruck,
            Algorithm::Auto if self.bytes <= MEDIUM => Algorithm::AtOnce(THROTTLE),
            Algorithm::Auto => Algorithm::Pairs,
            given => given,
        }
    }

    /// The scripts, by rank. A measurement is an operation; OSU tells the mean over ranks and times.
    pub fn scripts(&self) -> Vec<Script> {
        let all: Vec<u32> = (0..self.ranks).collect();
        let script = |own| {
            let group = Group { ranks: &all, own };
            let mut writer = Writer::default();
            writer.barrier(group);
            writer.repeat(self.warmup, |writer| {
                self.write(writer, group);
                writer.barrier(group);
            });
            writer.repeat(self.times, |writer| {
                writer.measured(|writer| self.write(writer, group));
                writer.barrier(group);
            });
            writer.script()
        };
        (0..self.ranks).map(script).collect()
    }

    fn write(&self, writer: &mut Writer, group: Group<'_>) {
        match self.algorithm() {
            Algorithm::Bruck => writer.all_to_all_by_bruck(group, self.bytes),
            Algorithm::AtOnce(messages) => writer.all_to_all_at_once(group, self.bytes, messages),
            Algorithm::Pairs | Algorithm::Auto => writer.all_to_all_by_pairs(group, self.bytes),
        }
    }
}
