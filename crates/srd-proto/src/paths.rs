//! The paths of one peer context: which source port each slot names, how each fares, and the state machine
//! active / suspect / down / probing. Which usable path comes next is the selector's business.
//!
//! The sources are in docs/design/path-selection.md, "Path states". What matters here:
//!
//! - A suspect carries no data at all, but it is asked at once, and one answer clears it: a mere loss costs a path one round
//!   trip, and a dead one is known after one unanswered probe. Delay alone makes no suspect: the selector sees it packet by
//!   packet.
//! - Round trips of the constants below are the context's patience, its probe timeout.
//! - That more than half of the paths go down at once is believed only the second time. The first time it is taken for the
//!   peer's or the first hop's fault and undone. If it comes again soon although nobody is suspected for a while, so many
//!   paths really are dead (two of three uplinks, say), and undoing it for ever would never find the living ones.
//! - Congestion moves no slot to another port, so that nothing has to be suspended after a move.

use crate::events::Event;
use crate::path_selector::{Candidates, PathLoad, PathSet};
use crate::shared::Shared;
use crate::{Config, PeerId};
use rand::Rng;
use rand::rngs::SmallRng;
use srd_wire::{Echo, Nanos, PathId, Probe, Time};

/// Answered probes that bring a path back. This and the next ones: docs/design/path-selection.md, "Path states".
const PROBES_TO_UP: u8 = 2;
/// Unanswered probes after which the slot is given another source port.
const PROBES_TO_REROLL: u8 = 3;
/// Round trips from going down to the first probe.
const PROBE_ROUNDS: u64 = 10;
/// Longest pause between probes.
const MAX_PROBE_PAUSE: Nanos = Nanos::from_millis(100);
/// Never fewer usable paths than this, nor than a quarter.
const MIN_USABLE: u32 = 4;
/// More than half of the paths down within so many round trips are undone.
const COLLAPSE_ROUNDS: u64 = 2;
/// Round trips after that in which no path is suspected...
const TRUSTING_ROUNDS: u64 = 16;
/// ...and in which a second such event is believed.
const DOUBTING_ROUNDS: u64 = 64;
/// Round trips between two looks at how long paths are.
const LENGTH_ROUNDS: u64 = 4;
/// Samples that it takes to tell how long a path is: one alone may have waited in a queue.
const LENGTH_SAMPLES: u8 = 2;
/// What a packet or two in its way, the resolution of stamps and a late timer may add to a long round trip.
const LENGTH_MARGIN: f32 = 1.0 + 1.0 / 8.0;
/// Draws for a source port that no other slot has.
const DRAWS: usize = 16;
/// Gains of the smoothed round trip and of its variation. RFC 6298, section 2.3.
const RTT_GAIN: f32 = 1.0 / 8.0;
const VARIATION_GAIN: f32 = 1.0 / 4.0;

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

impl PathState {
    /// Its name in traces and counters.
    pub fn name(self) -> &'static str {
        match self {
            PathState::Active => "active",
            PathState::Suspect => "suspect",
            PathState::Down => "down",
            PathState::Probing => "probing",
        }
    }
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
    /// How many these are.
    pub(crate) in_flight: u16,
    /// Payload bytes sent.
    pub(crate) bytes: u64,
    /// Smoothed round trip and its variation in nanoseconds; 0 until the first sample.
    smoothed_ns: f32,
    variation_ns: f32,
    /// Smallest sample in nanoseconds, and how many there were, as far as a byte counts.
    least_ns: f32,
    samples: u8,
}

const _: () = assert!(size_of::<Path>() == 64, "one cache line a path");

impl Path {
    /// The smoothed round trip, once there was a sample.
    pub(crate) fn rtt(&self) -> Option<Nanos> {
        (self.smoothed_ns > 0.0).then_some(Nanos(self.smoothed_ns as u64))
    }

    /// The smoothed round trip and `k` times its variation, once there was a sample.
    pub(crate) fn rtt_with_variation(&self, k: f32) -> Option<Nanos> {
        (self.smoothed_ns > 0.0).then_some(Nanos((self.smoothed_ns + k * self.variation_ns) as u64))
    }

    /// The shortest round trip, once there was a sample.
    pub(crate) fn least_rtt(&self) -> Option<Nanos> {
        self.least_ns.is_finite().then_some(Nanos(self.least_ns as u64))
    }

    fn add_rtt(&mut self, sample: Nanos) {
        let sample = (sample.0 as f32).max(1.0);
        self.least_ns = self.least_ns.min(sample);
        self.samples = self.samples.saturating_add(1);
        if self.smoothed_ns == 0.0 {
            self.smoothed_ns = sample;
            self.variation_ns = sample / 2.0;
        } else {
            self.variation_ns += VARIATION_GAIN * ((sample - self.smoothed_ns).abs() - self.variation_ns);
            self.smoothed_ns += RTT_GAIN * (sample - self.smoothed_ns);
        }
    }

    fn forget_rtt(&mut self) {
        self.smoothed_ns = 0.0;
        self.variation_ns = 0.0;
        self.least_ns = f32::INFINITY;
        self.samples = 0;
    }
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
    /// Smoothed round trip; zero before the first sample.
    pub rtt: Nanos,
}

/// What asking paths has brought to light.
#[derive(Default)]
pub(crate) struct Findings {
    /// Paths that have just gone down.
    pub(crate) down: PathSet,
    /// Slots that have just been given another port.
    pub(crate) rerolled: PathSet,
}

/// See the module.
pub(crate) struct PathTable {
    peer: PeerId,
    paths: Vec<Path>,
    usable: PathSet,
    next_probe_number: u32,
    /// Earliest `probe_at`.
    next_event: Time,
    entropy_pool: u16,
    min_usable: u32,
    /// The path that answered last.
    last_good: PathId,
    /// Paths that have gone down since `downs_since`.
    downs: u32,
    downs_since: Time,
    /// Round trip of a packet that takes a long path and whose ACK takes a long way back; zero while unknown.
    longest: Nanos,
    longest_until: Time,
    /// No path is suspected before this.
    trusting_until: Time,
    /// A collapse before this is believed.
    doubting_until: Time,
}

impl PathTable {
    pub(crate) fn new(peer: PeerId, config: &Config, rng: &mut SmallRng) -> PathTable {
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
                in_flight: 0,
                bytes: 0,
                smoothed_ns: 0.0,
                variation_ns: 0.0,
                least_ns: f32::INFINITY,
                samples: 0,
            })
            .collect();
        PathTable {
            peer,
            paths,
            usable: PathSet::first(count),
            next_probe_number: 0,
            next_event: Time::NEVER,
            entropy_pool: config.entropy,
            min_usable: MIN_USABLE.max(count as u32 / 4).min(count as u32),
            last_good: PathId(0),
            downs: 0,
            downs_since: Time(0),
            longest: Nanos::ZERO,
            longest_until: Time(0),
            trusting_until: Time(0),
            doubting_until: Time(0),
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

    /// What a selector may choose from now.
    pub(crate) fn candidates(&self, now: Time, avoid: Option<PathId>) -> Candidates<'_> {
        Candidates { now, usable: &self.usable, avoid, load: self }
    }

    pub(crate) fn reports(&self) -> impl Iterator<Item = PathReport> {
        self.paths.iter().enumerate().map(|(i, path)| PathReport {
            path: PathId(i as u8),
            entropy: path.entropy,
            state: path.state,
            bytes: path.bytes,
            rtt: path.rtt().unwrap_or_default(),
        })
    }

    /// A round trip on `path` took so long.
    pub(crate) fn add_rtt(&mut self, now: Time, path: PathId, sample: Nanos, base: Nanos) {
        self.paths[path.0 as usize].add_rtt(sample);
        if now >= self.longest_until {
            self.longest_until = now + Nanos(LENGTH_ROUNDS * base.0);
            self.longest = self.measure_longest();
        }
    }

    /// Round trip of a packet that takes a long path and whose ACK takes a long way back, without queues, as of late.
    pub(crate) fn longest(&self) -> Nanos {
        self.longest
    }

    /// A path's least round trip is that of its way there and of the shortest way back (an ACK speaks for several paths and
    /// takes one way). The ways back are taken for as long as the ways there.
    fn measure_longest(&self) -> Nanos {
        let known = self.paths.iter().filter(|path| path.samples >= LENGTH_SAMPLES).map(|path| path.least_ns);
        let (short, long) =
            known.fold((f32::INFINITY, 0.0f32), |(short, long), least| (short.min(least), long.max(least)));
        if long > 0.0 { Nanos((LENGTH_MARGIN * (2.0 * long - short)) as u64) } else { Nanos::ZERO }
    }

    /// The shortest and the longest smoothed round trip of the paths in use.
    pub(crate) fn rtt_span(&self) -> Option<(Nanos, Nanos)> {
        let usable = self.paths.iter().enumerate().filter(|&(i, _)| self.usable.contains(PathId(i as u8)));
        usable.filter_map(|(_, path)| path.rtt()).fold(None, |span: Option<(Nanos, Nanos)>, rtt| {
            let (least, most) = span.unwrap_or((rtt, rtt));
            Some((least.min(rtt), most.max(rtt)))
        })
    }

    /// A packet sent at `sent` on `path` has arrived.
    pub(crate) fn on_success(&mut self, now: Time, path: PathId, sent: Time, shared: &mut Shared) {
        let p = &mut self.paths[path.0 as usize];
        p.last_success = p.last_success.max(sent);
        if p.state == PathState::Active {
            self.last_good = path;
        } else {
            self.bring_up(now, path, shared);
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
    pub(crate) fn on_timeout(&mut self, now: Time, path: PathId, sent: Time, shared: &mut Shared) {
        let p = &self.paths[path.0 as usize];
        let innocent = sent < p.last_success || p.state != PathState::Active;
        if innocent || self.usable.len() <= self.min_usable || now < self.trusting_until {
            return;
        }
        self.change(now, path, PathState::Suspect, shared);
        let p = &mut self.paths[path.0 as usize];
        p.probes_answered = 0;
        p.probes_lost = 0;
        p.backoff = 0;
        p.probe_number = 0;
        p.probe_at = now;
        self.next_event = now;
        self.usable.remove(path);
    }

    fn change(&mut self, now: Time, path: PathId, to: PathState, shared: &mut Shared) {
        let from = std::mem::replace(&mut self.paths[path.0 as usize].state, to);
        shared.trace.emit(now, self.peer, || Event::PathChanged { path, from, to });
    }

    fn bring_up(&mut self, now: Time, path: PathId, shared: &mut Shared) {
        let p = &mut self.paths[path.0 as usize];
        if matches!(p.state, PathState::Down | PathState::Probing) {
            shared.stats.paths_up += 1;
            p.forget_rtt();
        }
        p.probe_at = Time::NEVER;
        self.change(now, path, PathState::Active, shared);
        self.usable.insert(path);
        self.last_good = path;
    }

    /// An answer to a probe.
    pub(crate) fn on_probe_echo(&mut self, now: Time, echo: &Echo, shared: &mut Shared) {
        let p = &mut self.paths[echo.path.0 as usize];
        if p.probe_number != echo.psn.0 || p.probe_number == 0 {
            return;
        }
        match p.state {
            PathState::Active | PathState::Down => {}
            PathState::Suspect => self.bring_up(now, echo.path, shared),
            PathState::Probing => {
                p.probes_answered += 1;
                p.probes_lost = 0;
                if p.probes_answered >= PROBES_TO_UP {
                    self.bring_up(now, echo.path, shared);
                } else {
                    p.probe_at = now;
                    self.next_event = now;
                    self.change(now, echo.path, PathState::Down, shared);
                }
            }
        }
    }

    /// When [`PathTable::poll_probe`] has something to do.
    pub(crate) fn next_event(&self) -> Time {
        self.next_event
    }

    /// The next probe to send, if one is due. `patience`: how long an answer may take.
    pub(crate) fn poll_probe(
        &mut self,
        now: Time,
        patience: Nanos,
        shared: &mut Shared,
        findings: &mut Findings,
    ) -> Option<Probe> {
        if now < self.next_event {
            return None;
        }
        let mut probe = None;
        let mut next = Time::NEVER;
        for i in 0..self.paths.len() {
            let (path, p) = (PathId(i as u8), &self.paths[i]);
            if p.probe_at <= now && probe.is_none() {
                let out =
                    p.state == PathState::Probing || p.state == PathState::Suspect && p.probe_number != 0;
                if out {
                    self.probe_lost(now, path, patience, shared, findings);
                } else {
                    probe = Some(self.ask(now, path, patience, shared));
                }
            }
            next = next.min(self.paths[i].probe_at);
        }
        self.next_event = next;
        probe
    }

    fn ask(&mut self, now: Time, path: PathId, patience: Nanos, shared: &mut Shared) -> Probe {
        self.next_probe_number = self.next_probe_number.wrapping_add(1).max(1);
        let p = &mut self.paths[path.0 as usize];
        p.probe_number = self.next_probe_number;
        p.probe_at = now + patience;
        if p.state == PathState::Down {
            self.change(now, path, PathState::Probing, shared);
        }
        let number = self.next_probe_number;
        shared.stats.path_probes_sent += 1;
        shared.trace.emit(now, self.peer, || Event::PathProbed { path, number });
        Probe { path, number, stamp: now.stamp() }
    }

    /// The probe on `path` was not answered in time.
    fn probe_lost(
        &mut self,
        now: Time,
        path: PathId,
        patience: Nanos,
        shared: &mut Shared,
        findings: &mut Findings,
    ) {
        let p = &mut self.paths[path.0 as usize];
        if p.state == PathState::Suspect {
            shared.stats.paths_down += 1;
            findings.down.insert(path);
            self.count_down(now, patience);
        } else {
            p.probes_lost += 1;
            p.backoff = (p.backoff + 1).min(16);
        }
        self.change(now, path, PathState::Down, shared);
        let p = &mut self.paths[path.0 as usize];
        p.probes_answered = 0;
        if p.probes_lost >= PROBES_TO_REROLL {
            p.probes_lost = 0;
            p.backoff = 0;
            p.forget_rtt();
            findings.rerolled.insert(path);
            self.reroll(now, path, shared);
        }
        let p = &mut self.paths[path.0 as usize];
        let pause = Nanos(patience.0.saturating_mul(PROBE_ROUNDS) << p.backoff).min(MAX_PROBE_PAUSE);
        p.probe_at = now + jittered(pause, &mut shared.rng);
    }

    /// Another source port for the slot, if possible one that no slot has.
    fn reroll(&mut self, now: Time, path: PathId, shared: &mut Shared) {
        let old = self.paths[path.0 as usize].entropy;
        let mut new = old;
        for _ in 0..DRAWS {
            new = shared.rng.random_range(0..self.entropy_pool);
            if self.paths.iter().all(|p| p.entropy != new) {
                break;
            }
        }
        self.paths[path.0 as usize].entropy = new;
        shared.stats.paths_rerolled += 1;
        shared.trace.emit(now, self.peer, || Event::PathRerolled { path, old, new });
    }

    fn count_down(&mut self, now: Time, patience: Nanos) {
        if now > self.downs_since + Nanos(COLLAPSE_ROUNDS * patience.0) {
            self.downs_since = now;
            self.downs = 0;
        }
        self.downs += 1;
    }

    /// Whether so many paths have gone down at once that it is not the paths; then all are usable again, and none is
    /// suspected for a while.
    pub(crate) fn undo_collapse(&mut self, now: Time, patience: Nanos, shared: &mut Shared) -> bool {
        let down = self.downs;
        if 2 * down <= self.paths.len() as u32 || now < self.doubting_until {
            return false;
        }
        self.downs = 0;
        self.trusting_until = now + Nanos(TRUSTING_ROUNDS * patience.0);
        self.doubting_until = now + Nanos(DOUBTING_ROUNDS * patience.0);
        shared.stats.path_collapses += 1;
        shared.trace.emit(now, self.peer, || Event::PathsUndone { down });
        self.forgive(now, shared);
        true
    }

    /// The peer, not the paths, was silent: all are usable again.
    pub(crate) fn forgive(&mut self, now: Time, shared: &mut Shared) {
        let last_good = self.last_good;
        for i in 0..self.paths.len() {
            if self.paths[i].state != PathState::Active {
                self.bring_up(now, PathId(i as u8), shared);
            }
        }
        self.last_good = last_good;
        self.next_event = Time::NEVER;
    }
}

impl PathLoad for PathTable {
    fn paths(&self) -> u16 {
        self.paths.len() as u16
    }

    fn on(&self, path: PathId) -> u32 {
        self.get(path).in_flight as u32
    }
}

/// `span` +- 25 %, so that the probes of many paths and peers do not come together.
fn jittered(span: Nanos, rng: &mut SmallRng) -> Nanos {
    Nanos((span.as_f64() * rng.random_range(0.75..1.25)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_wire::{Hold, Psn};

    const RTT: Nanos = Nanos::from_micros(20);

    fn table() -> (PathTable, Shared) {
        let mut shared = Shared::for_tests(Config::default());
        let peer = PeerId { slot: 0, generation: 0 };
        (PathTable::new(peer, &shared.config.clone(), &mut shared.rng), shared)
    }

    fn suspect(table: &mut PathTable, now: Time, path: PathId, shared: &mut Shared) {
        table.on_timeout(now, path, Time(now.0 - 100), shared);
    }

    fn down(table: &mut PathTable, path: PathId, shared: &mut Shared) {
        suspect(table, Time(1000), path, shared);
        let mut findings = Findings::default();
        assert!(
            table.poll_probe(Time(1000), RTT, shared, &mut findings).is_some(),
            "a suspect is asked at once"
        );
        assert_eq!(table.poll_probe(table.next_event(), RTT, shared, &mut findings), None);
        assert!(findings.down.contains(path));
        assert_eq!(table.get(path).state, PathState::Down);
    }

    fn answer(probe: Probe) -> Echo {
        let (path, psn) = (probe.path, Psn(probe.number));
        Echo { path, tx_count: Echo::PROBE, hold: Hold(0), psn, stamp: probe.stamp }
    }

    #[test]
    fn a_suspect_that_answers_is_active_again() {
        let (mut table, mut shared) = table();
        suspect(&mut table, Time(1000), PathId(3), &mut shared);
        assert!(!table.usable().contains(PathId(3)));
        let probe = table.poll_probe(Time(1000), RTT, &mut shared, &mut Findings::default()).unwrap();
        table.on_probe_echo(Time(2000), &answer(probe), &mut shared);
        assert!(table.usable().contains(PathId(3)));
    }

    #[test]
    fn a_path_that_is_down_comes_back_after_two_answered_probes_and_its_round_trip_is_forgotten() {
        let (mut table, mut shared) = table();
        let path = PathId(3);
        table.add_rtt(Time(1000), path, RTT, RTT);
        down(&mut table, path, &mut shared);
        for _ in 0..PROBES_TO_UP {
            assert!(!table.usable().contains(path));
            let now = table.next_event();
            let probe = table.poll_probe(now, RTT, &mut shared, &mut Findings::default()).unwrap();
            table.on_probe_echo(now + RTT, &answer(probe), &mut shared);
        }
        assert!(table.usable().contains(path));
        assert_eq!(table.get(path).rtt(), None);
    }

    #[test]
    fn unanswered_probes_give_the_slot_a_port_that_no_other_slot_has() {
        let (mut table, mut shared) = table();
        down(&mut table, PathId(0), &mut shared);
        let mut findings = Findings::default();
        for _ in 0..2 * PROBES_TO_REROLL {
            let now = table.next_event();
            table.poll_probe(now, RTT, &mut shared, &mut findings);
        }
        assert_eq!(shared.stats.paths_rerolled, 1);
        assert!(findings.rerolled.contains(PathId(0)));
        let ports: std::collections::BTreeSet<u16> = table.reports().map(|report| report.entropy).collect();
        assert_eq!(ports.len(), 64);
    }

    #[test]
    fn a_quarter_of_the_paths_always_stays_usable() {
        let (mut table, mut shared) = table();
        for path in 0..64 {
            suspect(&mut table, Time(1000), PathId(path), &mut shared);
        }
        assert_eq!(table.usable().len(), 16);
    }

    /// Suspects `count` paths at once and lets none of them answer.
    fn collapse(table: &mut PathTable, now: Time, count: u8, shared: &mut Shared) -> bool {
        for path in 0..count {
            suspect(table, now, PathId(path), shared);
        }
        let mut findings = Findings::default();
        while table.poll_probe(now, RTT, shared, &mut findings).is_some() {}
        while table.poll_probe(now + RTT, RTT, shared, &mut findings).is_some() {}
        table.undo_collapse(now + RTT, RTT, shared)
    }

    #[test]
    fn more_than_half_of_the_paths_down_at_once_is_not_the_paths_fault() {
        let (mut table, mut shared) = table();
        assert!(collapse(&mut table, Time(1000), 33, &mut shared));
        assert_eq!(table.usable().len(), 64);
        suspect(&mut table, Time(100_000), PathId(0), &mut shared);
        assert_eq!(table.usable().len(), 64, "for a while none is suspected");
    }

    #[test]
    fn half_of_the_paths_down_at_once_may_be() {
        let (mut table, mut shared) = table();
        assert!(!collapse(&mut table, Time(1000), 32, &mut shared));
        assert_eq!(table.usable().len(), 32);
    }

    #[test]
    fn a_collapse_that_comes_again_is_believed() {
        let (mut table, mut shared) = table();
        assert!(collapse(&mut table, Time(1000), 40, &mut shared));
        let trusting = Nanos((TRUSTING_ROUNDS + 2) * RTT.0);
        assert!(!collapse(&mut table, Time(1000) + trusting, 40, &mut shared));
        assert_eq!(table.usable().len(), 24);
    }
}
