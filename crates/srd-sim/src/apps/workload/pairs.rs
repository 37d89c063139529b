//! Given pairs: single flows, background traffic.

use super::{Load, Plan};
use crate::apps::draw::Draw;
use crate::apps::flow::Place;

/// Flows between pairs of processes.
#[derive(Clone, PartialEq, Debug)]
pub struct Pairs {
    /// Senders and receivers.
    pub pairs: Vec<(Place, Place)>,
    /// What each does.
    pub load: Load,
}

impl Pairs {
    pub(super) fn plan(&self, plan: &mut Plan, draw: &mut Draw) -> Result<(), String> {
        if self.pairs.is_empty() {
            return Err("no pairs".to_string());
        }
        self.load.plan(plan, draw, &self.pairs)
    }
}
