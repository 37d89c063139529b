//! Path selection: which path slot the next burst takes.
//!
//! A selector sees what became of single paths, never the rate. Which paths are usable at all is decided by the path
//! table (`paths`). The default is `reps`. To add one: a file here, and a line in the list of [`SelectorKind`].

mod bitmap;
mod mixed;
mod oblivious;
mod pinned;
mod recent;
mod reps;
mod rtt_p2c;

use crate::kinds::kinds;
use srd_wire::{Nanos, PathId, Time};

/// A set of path slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathSet([u64; 4]);

impl PathSet {
    /// The slots 0 to `n - 1`.
    pub fn first(n: u16) -> PathSet {
        let mut set = PathSet::default();
        (0..n).for_each(|i| set.insert(PathId(i as u8)));
        set
    }

    /// Whether `path` is in.
    #[inline]
    pub fn contains(&self, path: PathId) -> bool {
        self.0[path.0 as usize / 64] >> (path.0 % 64) & 1 == 1
    }

    /// Puts `path` in.
    pub fn insert(&mut self, path: PathId) {
        self.0[path.0 as usize / 64] |= 1 << (path.0 % 64);
    }

    /// Takes `path` out.
    pub fn remove(&mut self, path: PathId) {
        self.0[path.0 as usize / 64] &= !(1 << (path.0 % 64));
    }

    /// The slots that are in.
    pub fn iter(&self) -> impl Iterator<Item = PathId> {
        self.0.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                bits &= bits.checked_sub(1)?;
                Some(PathId((64 * word as u32 + bit) as u8))
            })
        })
    }

    /// How many are in.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether none is in.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }
}

/// Packets in flight, by path.
pub trait PathLoad {
    /// How many paths there are, usable or not.
    fn paths(&self) -> u16;

    /// Packets in flight on `path`.
    fn on(&self, path: PathId) -> u32;

    /// Packets in flight on all paths.
    fn total(&self) -> u32 {
        (0..self.paths()).map(|path| self.on(PathId(path as u8))).sum()
    }
}

/// What a selector chooses from.
#[derive(Clone, Copy)]
pub struct Candidates<'a> {
    /// When the packet leaves.
    pub now: Time,
    /// The paths that may be used; never empty.
    pub usable: &'a PathSet,
    /// A path to be taken only if there is no other.
    pub avoid: Option<PathId>,
    /// What is in flight on each.
    pub load: &'a dyn PathLoad,
}

impl Candidates<'_> {
    /// Whether `path` may be taken and need not be avoided.
    #[inline]
    pub fn fits(&self, path: PathId) -> bool {
        self.usable.contains(path) && Some(path) != self.avoid
    }
}

/// What an ACK tells about one path: what became of its newest packet.
#[derive(Clone, Copy, Debug)]
pub struct AckedPath {
    /// When the ACK came.
    pub now: Time,
    /// The path.
    pub path: PathId,
    /// Round trip of that packet without the receiver's hold time, if it can be told.
    pub rtt: Option<Nanos>,
    /// It came no later than is usual on this context's paths.
    pub early: bool,
    /// It certainly carried a congestion mark. ACKs count marks and do not say whose they are, so that this is known only
    /// where one path is acknowledged, or all packets were marked.
    pub ce: bool,
}

/// Why a path was chosen, for the event trace.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Choice {
    /// The rule that applied.
    pub rule: &'static str,
    /// The path that lost against the chosen one, if two were compared.
    pub other: Option<PathId>,
    /// Scores of the chosen path and of the other one, in nanoseconds; lower is better. 0 where nothing was compared.
    pub score: f32,
    /// See `score`.
    pub other_score: f32,
}

impl Choice {
    /// A choice in which nothing was compared.
    pub const fn by(rule: &'static str) -> Choice {
        Choice { rule, other: None, score: 0.0, other_score: 0.0 }
    }
}

/// See the module.
pub trait PathSelector: Send {
    /// One of the candidates.
    fn pick(&mut self, from: &Candidates) -> PathId;

    /// Why the last path was picked.
    fn last_choice(&self) -> Choice;

    /// A packet on a path was acknowledged.
    fn on_ack(&mut self, _acked: &AckedPath) {}

    /// A packet on `path` was lost although later ones on it arrived.
    fn on_loss(&mut self, _now: Time, _path: PathId) {}

    /// A packet on `path` was not answered in time.
    fn on_timeout(&mut self, _now: Time, _path: PathId) {}

    /// `path` did not answer a probe either.
    fn on_path_down(&mut self, _now: Time, _path: PathId) {}

    /// The slot of `path` leads elsewhere from now on: what was known of it says nothing any more.
    fn on_reroll(&mut self, _path: PathId) {}
}

// `salt` differs from peer to peer, so that peers do not sweep in step.
kinds! {
    /// Which algorithm chooses paths.
    pub enum SelectorKind;
    pub(crate) fn selector(config.selector, salt: u64) -> dyn PathSelector;
    /// Always the first path, as ECMP does to one flow.
    Pinned = "pinned": pinned::Pinned;
    /// All paths in turn, in a permuted order.
    Oblivious = "oblivious": oblivious::Oblivious::new(config.paths, salt);
    /// All paths in turn, leaving out those with penalties for marks, losses and timeouts.
    Bitmap = "bitmap": bitmap::Bitmap::new(config.paths, salt);
    /// Recycle the paths whose ACKs came back early (REPS); otherwise the next of the sweep.
    Reps = "reps": reps::Reps::new(config.paths, config.base_rtt, salt);
    /// Recycle as `Reps` does; otherwise sweep as `Bitmap` does.
    Mixed = "mixed": mixed::Mixed::new(config.paths, salt);
    /// Of two random paths the one with the shorter round trip.
    RttP2c = "rtt-p2c": rtt_p2c::RttP2c::new(config.paths, config.base_rtt, salt);
}

#[cfg(test)]
pub(crate) mod tests;
