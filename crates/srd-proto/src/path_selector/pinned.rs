//! One path as long as it lives, as ECMP does to one flow.

use super::{Candidates, Choice, PathSelector};
use srd_wire::PathId;

/// See the module.
pub(super) struct Pinned;

impl PathSelector for Pinned {
    fn pick(&mut self, from: &Candidates) -> PathId {
        let usable = || (0..=255).map(PathId).filter(|&path| from.usable.contains(path));
        usable().find(|&path| from.fits(path)).or_else(|| usable().next()).unwrap_or_default()
    }

    fn last_choice(&self) -> Choice {
        Choice::by("first usable")
    }
}
