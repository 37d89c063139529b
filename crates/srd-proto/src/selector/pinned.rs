//! One path as long as it lives, as ECMP does to one flow.

use super::{PathSelector, PathSet};
use srd_wire::{PathId, Time};

/// See the module.
pub(super) struct Pinned;

impl PathSelector for Pinned {
    fn pick(&mut self, _: Time, usable: &PathSet, avoid: Option<PathId>) -> PathId {
        let usable_ids = || (0..=255).map(PathId).filter(|&path| usable.contains(path));
        usable_ids().find(|&path| Some(path) != avoid).or_else(|| usable_ids().next()).unwrap_or_default()
    }

    fn on_ack(&mut self, _: PathId, _: bool) {}

    fn on_loss(&mut self, _: PathId) {}

    fn on_timeout(&mut self, _: PathId) {}
}
