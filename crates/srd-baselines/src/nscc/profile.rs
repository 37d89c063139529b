//! MRC's choice of paths: entropy values (EVs) with a state each (arXiv 2606.18170, section II-A; arXiv 2605.04333, section 2.1).
//!
//! A set of EVs is in use, in rounds, in another order each. One whose packet came marked or was cut is passed over once. One
//! whose packet was lost is taken for broken at once: its backup takes its place, and probes ask whether it is whole again.
//! Backup `n + count` has a source port that leads to the same plane as EV `n`, where planes divide `count`: so planes are loaded
//! alike whatever is broken.

use srd_wire::{Nanos, Time};
use std::collections::VecDeque;

/// Pause between two probes of a connection's broken EVs, which take turns. The public descriptions say that there are such
/// probes, and not how often; a quicker round finds repaired paths sooner and costs 64 bytes each.
const PROBE_EVERY: Nanos = Nanos::from_micros(100);

/// One flow's EVs.
#[derive(Clone, Default, Debug)]
pub(super) struct Profile {
    /// EVs in use, and as many backups.
    count: u16,
    /// Of each of those in use: its backup has taken its place.
    on_backup: Vec<bool>,
    /// Of each of those in use: it is passed over once.
    skip: Vec<bool>,
    /// Broken EVs, the next to be probed first.
    broken: VecDeque<u16>,
    probe_at: Option<Time>,
}

impl Profile {
    pub(super) fn new(count: u16) -> Profile {
        let none = vec![false; count as usize];
        Profile { count, on_backup: none.clone(), skip: none, ..Profile::default() }
    }

    /// The EV in a place of the round, if it may be used now.
    pub(super) fn usable(&mut self, place: u16) -> Option<u16> {
        let at = place as usize;
        if std::mem::take(&mut self.skip[at]) {
            return None;
        }
        let ev = self.of(place);
        (!self.broken.contains(&ev)).then_some(ev)
    }

    /// The EV in a place of the round.
    fn of(&self, place: u16) -> u16 {
        place + if self.on_backup[place as usize] { self.count } else { 0 }
    }

    /// A packet came marked, or was cut.
    pub(super) fn congested(&mut self, ev: u16) {
        let place = ev % self.count;
        if self.of(place) == ev {
            self.skip[place as usize] = true;
        }
    }

    /// A packet was lost.
    pub(super) fn lost(&mut self, now: Time, ev: u16) {
        if self.broken.contains(&ev) {
            return;
        }
        self.broken.push_back(ev);
        let place = ev % self.count;
        let other = (ev + self.count) % (2 * self.count);
        if self.of(place) == ev && !self.broken.contains(&other) {
            self.on_backup[place as usize] = other >= self.count;
        }
        self.probe_at.get_or_insert(now + PROBE_EVERY);
    }

    /// A probe has come back.
    pub(super) fn works(&mut self, ev: u16) {
        self.broken.retain(|&broken| broken != ev);
        let place = ev % self.count;
        if self.broken.contains(&self.of(place)) {
            self.on_backup[place as usize] = ev >= self.count;
        }
        if self.broken.is_empty() {
            self.probe_at = None;
        }
    }

    /// When the next probe is due.
    pub(super) fn timer(&self) -> Time {
        self.probe_at.unwrap_or(Time::NEVER)
    }

    /// The EV to be probed, if it is time.
    pub(super) fn probe(&mut self, now: Time) -> Option<u16> {
        self.probe_at.filter(|&at| at <= now)?;
        self.probe_at = Some(now + PROBE_EVERY);
        self.broken.rotate_left(1);
        self.broken.back().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(profile: &mut Profile) -> Vec<Option<u16>> {
        (0..4).map(|place| profile.usable(place)).collect()
    }

    #[test]
    fn what_is_congested_is_passed_over_once() {
        let mut profile = Profile::new(4);
        profile.congested(2);
        assert_eq!(round(&mut profile), [Some(0), Some(1), None, Some(3)]);
        assert_eq!(round(&mut profile), [Some(0), Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn a_backup_takes_the_place_of_what_is_broken_until_a_probe_comes_back() {
        let mut profile = Profile::new(4);
        profile.lost(Time(0), 1);
        assert_eq!(round(&mut profile), [Some(0), Some(5), Some(2), Some(3)]);
        profile.lost(Time(0), 5);
        assert_eq!(round(&mut profile), [Some(0), None, Some(2), Some(3)]);
        assert_eq!(profile.timer(), Time(0) + PROBE_EVERY);
        let at = profile.timer();
        assert_eq!([profile.probe(at), profile.probe(at + PROBE_EVERY)], [Some(1), Some(5)]);
        profile.works(1);
        assert_eq!(round(&mut profile), [Some(0), Some(1), Some(2), Some(3)]);
        profile.works(5);
        assert_eq!(profile.timer(), Time::NEVER);
    }
}
