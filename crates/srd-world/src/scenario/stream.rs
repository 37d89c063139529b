//! A steady stream of sends from one process to another through a world, with what the scenarios ask of it.

use crate::ledger::{Flaw, Verb, Violation};
use crate::plan::Plan;
use crate::posting::Posted;
use crate::workload::Draft;
use crate::world::World;
use srd_device::QpKind;
use srd_wire::{Nanos, Time};

/// A world in which process 0 sends to process 1.
pub struct Stream {
    /// The world.
    pub world: World,
    from: usize,
    to: usize,
    draft: Draft,
    /// Messages that are kept outstanding.
    depth: u64,
}

impl Stream {
    /// The stream of `plan`: messages of `len` bytes, `depth` of them outstanding.
    pub fn new(plan: &Plan, len: u32, depth: u64) -> Result<Stream, Violation> {
        let mut world = World::new(plan);
        world.ledger.deliveries = Some(Vec::new());
        for node in 0..world.nodes.len() {
            world.start(node)?;
        }
        let mut ends = [0, 1].map(|node| world.make_qp(node, QpKind::Srd));
        let (from, to) = (std::mem::replace(&mut ends[0], Ok(0))?, std::mem::replace(&mut ends[1], Ok(0))?);
        let draft = Draft {
            datagram: false,
            verb: Verb::Send,
            imm: false,
            len,
            inline: false,
            split: 0,
            to_self: false,
            flaw: Flaw::None,
        };
        Ok(Stream { world, from, to, draft, depth })
    }

    /// Streams until `until`.
    pub fn run(&mut self, until: Time) -> Result<(), Violation> {
        while self.world.now < until {
            while self.world.ledger.outstanding < self.depth {
                match self.world.post(self.from, self.to, &self.draft)? {
                    Posted::Taken(_) => {}
                    Posted::Full | Posted::No => break,
                }
            }
            self.world.wake_at(0, self.world.now);
            let before = self.world.ledger.outstanding;
            let step = self.world.now + Nanos(1_000_000);
            self.world.run_until(step.min(until), |world| world.ledger.outstanding < before)?;
        }
        Ok(())
    }

    /// Waits for everything to complete.
    pub fn drain(&mut self) -> Result<(), Violation> {
        let patience = self.world.patience();
        self.world.run_until(self.world.now + patience, |world| world.ledger.outstanding == 0)
    }

    /// When messages arrived.
    pub fn deliveries(&self) -> &[Time] {
        self.world.ledger.deliveries.as_deref().unwrap_or_default()
    }

    /// A counter of the sending device.
    pub fn counter(&mut self, name: &str) -> u64 {
        let counters = self.world.nodes[0].device().counters();
        counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| value)
    }
}
