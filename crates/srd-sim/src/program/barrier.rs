//! Barriers one behind the other, each measured (osu_barrier).

use super::collective::Group;
use super::script::Script;
use super::writer::Writer;

/// See the module.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Barrier {
    /// Ranks.
    pub ranks: u32,
    /// Barriers.
    pub times: u32,
    /// Barriers before those, not measured.
    pub warmup: u32,
}

impl Barrier {
    /// The scripts, by rank. A measurement is a barrier; its unit is the mean over ranks and times.
    pub fn scripts(&self) -> Vec<Script> {
        let all: Vec<u32> = (0..self.ranks).collect();
        let script = |own| {
            let group = Group { ranks: &all, own };
            let mut writer = Writer::default();
            writer.repeat(self.warmup, |writer| writer.barrier(group));
            writer.repeat(self.times, |writer| writer.measured(|writer| writer.barrier(group)));
            writer.script()
        };
        (0..self.ranks).map(script).collect()
    }
}
