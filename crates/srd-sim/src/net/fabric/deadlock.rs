//! Ports that wait for each other in a circle.
//!
//! A port that is paused waits until the switch at the other end of its cable has sent on what it got from there. If that lies
//! in queues whose ports are paused too, these must come first, and so on. Ports of which each waits for others among them
//! never send again.

use super::Fabric;
use crate::net::frame::Content;
use crate::net::settings::ClassSchedule;
use crate::net::topology::PortId;
use srd_baselines::units::Ps;
use std::collections::BTreeMap;

/// Deadlocks that are remembered: where watchdogs break them, they come again.
const MOST: usize = 8;

/// Ports that will never send a class again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// When the last of them was paused.
    pub at: Ps,
    /// The circle: each waits for the next, the last for the first.
    pub ports: Vec<PortId>,
    /// The lowest class that they may not send.
    pub class: u8,
}

/// What waits for what: bytes that came from one port and lie in the queue of another one.
type Waits = BTreeMap<PortId, BTreeMap<PortId, u64>>;

impl<C: Content> Fabric<C> {
    /// Looks for ports that wait for each other. Returns whether there are any.
    pub fn find_deadlock(&mut self) -> bool {
        let Some(pauses) = &self.pauses else { return false };
        let mut found = false;
        for group in pauses.groups() {
            let mut waits = self.waits(group);
            while let Some(free) = waits.keys().copied().find(|&port| !self.is_stuck(port, group, &waits)) {
                waits.remove(&free);
            }
            let Some((ports, at)) = self.circle(group, &waits) else { continue };
            found = true;
            let class = self.pauses.as_ref().map_or(0, |pauses| pauses.classes(group).trailing_zeros() as u8);
            let known = self.deadlocks.iter().any(|known| known.at == at && known.class == class);
            if !known && self.deadlocks.len() < MOST {
                self.deadlocks.push(Deadlock { at, ports, class });
            }
        }
        found
    }

    /// The deadlocks that have been found, the first few of them.
    pub fn deadlocks(&self) -> &[Deadlock] {
        &self.deadlocks
    }

    /// Whether ports can pause each other.
    pub fn pauses(&self) -> bool {
        self.pauses.is_some()
    }

    /// Ports between switches that are paused and will stay so for now, with the origins of what waits in their queues.
    fn waits(&self, group: usize) -> Waits {
        let mut waits = Waits::new();
        let Some(pauses) = &self.pauses else { return waits };
        let classes = pauses.classes(group);
        let queues = if self.settings.classes == ClassSchedule::None { 1 } else { classes };
        for id in (0..self.ports()).map(PortId) {
            let port = &self.ports[id.0 as usize];
            let between_switches =
                port.to.0 >= self.hosts && self.ports[id.other_end().0 as usize].to.0 >= self.hosts;
            if !between_switches || pauses.paused_since(id, group).is_none() || !pauses.is_told(id, group) {
                continue;
            }
            let mut origins = BTreeMap::new();
            for waiting in self.queued[port.queued as usize].frames_of(queues) {
                *origins.entry(waiting.from).or_insert(0) += waiting.bytes as u64;
            }
            waits.insert(id, origins);
        }
        waits
    }

    /// Whether a port stays paused if none of `waits` sends anything and all others send all they can.
    fn is_stuck(&self, port: PortId, group: usize, waits: &Waits) -> bool {
        let Some(pauses) = &self.pauses else { return false };
        let stays: u64 = waits.values().filter_map(|origins| origins.get(&port)).sum();
        let (held, _) = pauses.held(port, group);
        let pool = pauses.settings.pool.or(self.settings.shared.map(|shared| shared.bytes));
        // Whoever sends nothing more is not told to go on, whatever becomes free elsewhere.
        stays > 0 && (stays == held || stays + pauses.settings.gap > pauses.threshold(pool.unwrap_or(0), 0))
    }

    /// A circle among ports each of which waits for others among them, and when it was closed.
    fn circle(&self, group: usize, waits: &Waits) -> Option<(Vec<PortId>, Ps)> {
        let pauses = self.pauses.as_ref()?;
        let mut way = vec![*waits.keys().next()?];
        loop {
            let last = way[way.len() - 1];
            let waits_for = |(_, origins): &(&PortId, &BTreeMap<PortId, u64>)| origins.contains_key(&last);
            let next = *waits.iter().find(waits_for)?.0;
            if let Some(start) = way.iter().position(|&port| port == next) {
                way.drain(..start);
                break;
            }
            way.push(next);
        }
        let at = way.iter().filter_map(|&port| pauses.paused_since(port, group)).max()?;
        Some((way, at))
    }
}
