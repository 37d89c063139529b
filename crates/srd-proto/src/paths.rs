//! The paths of one peer context: which source port each slot names, how each fares, and the state machine
//! active / suspect / down / probing. Which usable path comes next is the selector's business.

use crate::selector::PathSet;
use crate::{Config, Stats};
use rand::Rng;
use rand::rngs::SmallRng;
use srd_wire::{Echo, Nanos, PathId, Probe, Time};

/// Answered probes that bring a path back. CONGESTION_CONTROL, section 7.
const PROBES_TO_UP: u8 = 2;
/// Unanswered probes after which the slot is given another source port. CONGESTION_CONTROL, section 7.
const PROBES_TO_REROLL: u8 = 3;
/// Round trips from going down to the first probe. CONGESTION_CONTROL, section 7.
const PROBE_ROUNDS: u64 = 10;
/// Longest pause between probes. CONGESTION_CONTROL, section 7.
const MAX_PROBE_PAUSE: Nanos = Nanos::from_millis(100);
/// Never fewer usable paths than this, nor than a quarter. CONGESTION_CONTROL, section 7.
const MIN_USABLE: u32 = 4;

/// End of an intrusive list.
pub(crate) const NO_PSN: u32 = u32::MAX;

/// State of a path slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathState {
    /// In use.
    Active,
    /// A packet on it was not answered in time; it is asked at once, and carries no data until it answers.
    Suspect,
    /// It did not answer the probe either; it waits to be probed again.
    Down,
    /// Was down; a probe is out.
    Probing,
}

/// One slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Index of the source port.
    pub(crate) entropy: u16,
    pub(crate) state: PathState,
    probes_answered: u8,
    probes_lost: u8,
    backoff: u8,
    probe_number: u32,
    /// When to probe, or when the probe that is out counts as lost.
    probe_at: Time,
    /// Last success of a packet that was sent at this time or later.
    last_success: Time,
    /// Outstanding transmissions on this path, in sending order (see `sent`): first and last PSN.
    pub(crate) head: u32,
    pub(crate) tail: u32,
    /// Payload bytes sent.
    pub(crate) bytes: u64,
}

/// What one path has carried and how it is (for reports).
#[derive(Clone, Copy, Debug)]
pub struct PathReport {
    /// The slot.
    pub path: PathId,
    /// Index of its source port.
    pub entropy: u16,
    /// State.
    pub state: PathState,
    /// Payload bytes sent on it.
    pub bytes: u64,
}

/// See the module.
pub(crate) struct PathTable {
    paths: Vec<Path>,
    usable: PathSet,
    next_probe_number: u32,
    /// Earliest `probe_at`.
    next_event: Time,
    entropy_pool: u16,
    min_usable: u32,
    /// The path that answered last.
    last_good: PathId,
}

impl PathTable {
    pub(crate) fn new(config: &Config, rng: &mut SmallRng) -> PathTable {
        let count = config.paths;
        // A random rotation with stride: distinct ports while the pool lasts.
        let offset: u16 = rng.random_range(0..config.entropy);
        let paths = (0..count)
            .map(|i| Path {
                entropy: ((offset as u32 + i as u32) % config.entropy as u32) as u16,
                state: PathState::Active,
                probes_answered: 0,
                probes_lost: 0,
                backoff: 0,
                probe_number: 0,
                probe_at: Time::NEVER,
                last_success: Time(0),
                head: NO_PSN,
                tail: NO_PSN,
                bytes: 0,
            })
            .collect();
        PathTable {
            paths,
            usable: PathSet::first(count),
            next_probe_number: 0,
            next_event: Time::NEVER,
            entropy_pool: config.entropy,
            min_usable: MIN_USABLE.max(count as u32 / 4).min(count as u32),
            last_good: PathId(0),
        }
    }

    pub(crate) fn get(&self, path: PathId) -> &Path {
        &self.paths[path.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, path: PathId) -> &mut Path {
        &mut self.paths[path.0 as usize]
    }

    /// Whether there is such a slot (a peer may echo anything).
    pub(crate) fn has(&self, path: PathId) -> bool {
        (path.0 as usize) < self.paths.len()
    }

    pub(crate) fn usable(&self) -> &PathSet {
        &self.usable
    }

    pub(crate) fn reports(&self) -> impl Iterator<Item = PathReport> {
        self.paths.iter().enumerate().map(|(i, path)| PathReport {
            path: PathId(i as u8),
            entropy: path.entropy,
            state: path.state,
            bytes: path.bytes,
        })
    }

    /// A packet sent at `sent` on `path` has arrived.
    pub(crate) fn on_success(&mut self, path: PathId, sent: Time, stats: &mut Stats) {
        let p = &mut self.paths[path.0 as usize];
        p.last_success = p.last_success.max(sent);
        if p.state == PathState::Active {
            self.last_good = path;
        } else {
            self.bring_up(path, stats);
        }
    }

    /// The path that answered last, if it may be used and is not `avoid`.
    pub(crate) fn proven(&self, avoid: PathId) -> Option<PathId> {
        (self.last_good != avoid && self.usable.contains(self.last_good)).then_some(self.last_good)
    }

    /// Any path that may be used, if possible not `avoid`.
    pub(crate) fn any_usable(&self, avoid: PathId, rng: &mut SmallRng) -> PathId {
        let start = rng.random_range(0..self.paths.len());
        let turned = (0..self.paths.len()).map(|i| PathId(((start + i) % self.paths.len()) as u8));
        turned.into_iter().find(|&path| path != avoid && self.usable.contains(path)).unwrap_or(avoid)
    }

    /// A packet sent at `sent` on `path` was not answered in time although later ones on other paths were. The path
    /// is asked at once, unless too few others are left.
    pub(crate) fn on_timeout(&mut self, now: Time, path: PathId, sent: Time) {
        let usable = self.usable.len();
        let p = &mut self.paths[path.0 as usize];
        if sent < p.last_success || p.state != PathState::Active || usable <= self.min_usable {
            return;
        }
        p.state = PathState::Suspect;
        p.probes_answered = 0;
        p.probes_lost = 0;
        p.backoff = 0;
        p.probe_number = 0;
        p.probe_at = now;
        self.next_event = now;
        self.usable.remove(path);
    }

    fn bring_up(&mut self, path: PathId, stats: &mut Stats) {
        let p = &mut self.paths[path.0 as usize];
        if matches!(p.state, PathState::Down | PathState::Probing) {
            stats.paths_up += 1;
        }
        p.state = PathState::Active;
        p.probe_at = Time::NEVER;
        self.usable.insert(path);
        self.last_good = path;
    }

    /// An answer to a probe.
    pub(crate) fn on_probe_echo(&mut self, now: Time, echo: &Echo, stats: &mut Stats) {
        let p = &mut self.paths[echo.path.0 as usize];
        if p.probe_number != echo.psn.0 || p.probe_number == 0 {
            return;
        }
        match p.state {
            PathState::Active | PathState::Down => {}
            PathState::Suspect => self.bring_up(echo.path, stats),
            PathState::Probing => {
                p.probes_answered += 1;
                p.probes_lost = 0;
                if p.probes_answered >= PROBES_TO_UP {
                    self.bring_up(echo.path, stats);
                } else {
                    p.state = PathState::Down;
                    p.probe_at = now;
                    self.next_event = now;
                }
            }
        }
    }

    /// When [`PathTable::poll_probe`] has something to do.
    pub(crate) fn next_event(&self) -> Time {
        self.next_event
    }

    /// The next probe to send, if one is due. `patience`: how long an answer may take. Paths that have just gone
    /// down are added to `down`.
    pub(crate) fn poll_probe(
        &mut self,
        now: Time,
        patience: Nanos,
        rng: &mut SmallRng,
        stats: &mut Stats,
        down: &mut PathSet,
    ) -> Option<Probe> {
        if now < self.next_event {
            return None;
        }
        let mut probe = None;
        let mut next = Time::NEVER;
        for (i, p) in self.paths.iter_mut().enumerate() {
            if p.probe_at <= now && probe.is_none() {
                let out =
                    p.state == PathState::Probing || p.state == PathState::Suspect && p.probe_number != 0;
                if out {
                    if p.state == PathState::Suspect {
                        stats.paths_down += 1;
                        down.insert(PathId(i as u8));
                    } else {
                        p.probes_lost += 1;
                        p.backoff = (p.backoff + 1).min(16);
                    }
                    p.state = PathState::Down;
                    p.probes_answered = 0;
                    if p.probes_lost >= PROBES_TO_REROLL {
                        p.probes_lost = 0;
                        p.backoff = 0;
                        p.entropy = rng.random_range(0..self.entropy_pool);
                        stats.paths_rerolled += 1;
                    }
                    let pause =
                        Nanos(patience.0.saturating_mul(PROBE_ROUNDS) << p.backoff).min(MAX_PROBE_PAUSE);
                    p.probe_at = now + jittered(pause, rng);
                } else {
                    self.next_probe_number = self.next_probe_number.wrapping_add(1).max(1);
                    p.probe_number = self.next_probe_number;
                    if p.state == PathState::Down {
                        p.state = PathState::Probing;
                    }
                    p.probe_at = now + patience;
                    stats.path_probes_sent += 1;
                    probe = Some(Probe { path: PathId(i as u8), number: p.probe_number, stamp: now.stamp() });
                }
            }
            next = next.min(p.probe_at);
        }
        self.next_event = next;
        probe
    }

    /// The peer, not the paths, was silent: all are usable again.
    pub(crate) fn forgive(&mut self, stats: &mut Stats) {
        let last_good = self.last_good;
        for i in 0..self.paths.len() {
            if self.paths[i].state != PathState::Active {
                self.bring_up(PathId(i as u8), stats);
            }
        }
        self.last_good = last_good;
        self.next_event = Time::NEVER;
    }
}

/// `span` +- 25 %, so that the probes of many paths and peers do not come together.
fn jittered(span: Nanos, rng: &mut SmallRng) -> Nanos {
    Nanos((span.as_f64() * rng.random_range(0.75..1.25)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use srd_wire::{Hold, Psn};

    const RTT: Nanos = Nanos::from_micros(20);

    fn table() -> (PathTable, SmallRng, Stats) {
        let mut rng = SmallRng::seed_from_u64(1);
        (PathTable::new(&Config::default(), &mut rng), rng, Stats::default())
    }

    fn down(table: &mut PathTable, path: PathId, rng: &mut SmallRng, stats: &mut Stats) {
        table.on_timeout(Time(1000), path, Time(900));
        let mut gone = PathSet::default();
        assert!(
            table.poll_probe(Time(1000), RTT, rng, stats, &mut gone).is_some(),
            "a suspect is asked at once"
        );
        assert_eq!(table.poll_probe(table.next_event(), RTT, rng, stats, &mut gone), None);
        assert!(gone.contains(path));
        assert_eq!(table.get(path).state, PathState::Down);
    }

    fn answer(probe: Probe) -> Echo {
        let (path, psn) = (probe.path, Psn(probe.number));
        Echo { path, tx_count: Echo::PROBE, hold: Hold(0), psn, stamp: probe.stamp }
    }

    #[test]
    fn a_suspect_that_answers_is_active_again() {
        let (mut table, mut rng, mut stats) = table();
        table.on_timeout(Time(1000), PathId(3), Time(900));
        assert!(!table.usable().contains(PathId(3)));
        let probe = table.poll_probe(Time(1000), RTT, &mut rng, &mut stats, &mut PathSet::default()).unwrap();
        table.on_probe_echo(Time(2000), &answer(probe), &mut stats);
        assert!(table.usable().contains(PathId(3)));
    }

    #[test]
    fn a_path_that_is_down_comes_back_after_two_answered_probes() {
        let (mut table, mut rng, mut stats) = table();
        let path = PathId(3);
        down(&mut table, path, &mut rng, &mut stats);
        for _ in 0..PROBES_TO_UP {
            assert!(!table.usable().contains(path));
            let now = table.next_event();
            let probe = table.poll_probe(now, RTT, &mut rng, &mut stats, &mut PathSet::default()).unwrap();
            table.on_probe_echo(now + RTT, &answer(probe), &mut stats);
        }
        assert!(table.usable().contains(path));
    }

    #[test]
    fn unanswered_probes_give_the_slot_another_port() {
        let (mut table, mut rng, mut stats) = table();
        down(&mut table, PathId(0), &mut rng, &mut stats);
        for _ in 0..2 * PROBES_TO_REROLL {
            let now = table.next_event();
            table.poll_probe(now, RTT, &mut rng, &mut stats, &mut PathSet::default());
        }
        assert_eq!(stats.paths_rerolled, 1);
    }

    #[test]
    fn a_quarter_of_the_paths_always_stays_usable() {
        let (mut table, ..) = table();
        for path in 0..64 {
            table.on_timeout(Time(1000), PathId(path), Time(999));
        }
        assert_eq!(table.usable().len(), 16);
    }
}
