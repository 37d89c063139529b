//! Path selection: which path slot the next burst takes.
//!
//! A selector sees what became of single paths, never the rate. Which paths are usable at all is decided by the path
//! table (`paths`). To add one: a file here, a variant of [`crate::SelectorKind`], a line in [`selector`].

mod oblivious;
mod pinned;
mod reps;

use crate::{Config, SelectorKind};
use srd_wire::{PathId, Time};

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

/// See the module.
pub trait PathSelector: Send {
    /// A path out of `usable` (never empty), if possible another than `avoid`.
    fn pick(&mut self, now: Time, usable: &PathSet, avoid: Option<PathId>) -> PathId;

    /// A packet on `path` was acknowledged; `early` if its delay was not above what is usual.
    fn on_ack(&mut self, path: PathId, early: bool);

    /// A packet on `path` was lost although later ones on it arrived.
    fn on_loss(&mut self, path: PathId);

    /// A packet on `path` was not answered in time.
    fn on_timeout(&mut self, path: PathId);
}

/// The selector that `config` names. `salt` differs from peer to peer, so that peers do not sweep in step.
pub(crate) fn selector(config: &Config, salt: u64) -> Box<dyn PathSelector> {
    match config.selector {
        SelectorKind::Pinned => Box::new(pinned::Pinned),
        SelectorKind::Oblivious => Box::new(oblivious::Oblivious::new(config.paths, salt)),
        SelectorKind::Reps => Box::new(reps::Reps::new(config.paths, salt)),
    }
}
