//! Faults on purpose: what is sent is lost, doubled, reordered, damaged, delayed or black-holed, by a seeded
//! generator, so that a run with faults can be repeated.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use srd_device::StagedFaults;
use srd_wire::{Nanos, Time};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;

/// What to inject.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FaultPlan {
    /// Share of packets that vanish.
    pub loss: f64,
    /// Share of packets that are sent twice.
    pub dup: f64,
    /// Share of packets that are held back until later ones have gone.
    pub reorder: f64,
    /// Share of packets in which a bit is flipped.
    pub corrupt: f64,
    /// Every packet leaves this many microseconds late.
    pub delay_us: u64,
    /// One path of each peer swallows all: packets from this source port (index into the pool) vanish, and from every one that is a
    /// multiple of the number of paths further on. A peer's paths are that many ports in a row.
    pub blackhole: Option<u16>,
    /// There is a panic inside the device once so many packets have been handed out to be sent: in the next call of the
    /// program.
    pub panic_call: Option<u64>,
    /// The same in the progress thread.
    pub panic_thread: Option<u64>,
    /// What a program sees of its work.
    pub staged: StagedFaults,
    /// Seed of the generators.
    pub seed: u64,
    /// What has been read, in one line: what repeats a run.
    pub text: String,
}

/// Bytes of a file with rules, at most.
const LONGEST_FILE: u64 = 1 << 16;

/// Of a file with rules: what stands in its lines before `#`.
fn rules_of(file: &str) -> Result<String, String> {
    let mut text = String::new();
    let read = File::open(file).and_then(|opened| opened.take(LONGEST_FILE + 1).read_to_string(&mut text));
    if read.map_err(|error| format!("cannot read {file}: {error}"))? as u64 > LONGEST_FILE {
        return Err(format!("{file} has more than {LONGEST_FILE} bytes, and is no list of rules"));
    }
    let rules = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(rules.filter(|rule| !rule.is_empty()).collect::<Vec<_>>().join(","))
}

impl FaultPlan {
    /// For those whose work requests are not the program's: what is to be said if the plan has faults of such.
    pub fn packets_only(&self, who: &str) -> Result<(), String> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let words: Vec<_> = StagedFaults::words().collect();
        Err(format!(
            "SRD_FAULT=\"{}\" is not possible here: {} are faults of work requests, which programs of the software EFA post (srd run \
             --efa); {who} takes loss, dup, reorder, corrupt, delay_us and blackhole",
            self.text,
            words.join(", "),
        ))
    }

    /// Reads the form of `SRD_FAULT`: `loss=0.02,dup=0.01,reorder=0.05,corrupt=0.001,delay_us=50,blackhole=3,seed=1`,
    /// `panic_call=20` or `panic_thread=20`, and the words of [`StagedFaults::set`], which may stand there more than once. `@FILE`: those of
    /// a file, in a line each, with comments after `#`.
    pub fn parse(text: &str) -> Result<FaultPlan, String> {
        let items = text.split(',').map(|item| match item.trim().strip_prefix('@') {
            Some(file) => rules_of(file),
            None => Ok(item.to_owned()),
        });
        let text = items.collect::<Result<Vec<_>, _>>()?.join(",");
        let mut plan = FaultPlan { text: text.clone(), ..FaultPlan::default() };
        let mut named = Vec::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (key, value) = item.split_once('=').ok_or_else(|| format!("{item:?} has no value"))?;
            if let Some(staged) = plan.staged.set(key, value) {
                staged?;
                continue;
            }
            if named.contains(&key) {
                return Err(format!("{key} stands there twice"));
            }
            named.push(key);
            let share = || match value.parse::<f64>() {
                Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
                _ => Err(format!("{key} is a share from 0 to 1, not {value:?}")),
            };
            let number =
                || value.parse::<u64>().map_err(|_| format!("{key} is a whole number, not {value:?}"));
            match key {
                "loss" => plan.loss = share()?,
                "dup" => plan.dup = share()?,
                "reorder" => plan.reorder = share()?,
                "corrupt" => plan.corrupt = share()?,
                "delay_us" => plan.delay_us = number()?,
                "blackhole" => {
                    let index = number()?;
                    plan.blackhole = Some(
                        u16::try_from(index)
                            .map_err(|_| format!("blackhole is at most 65535, not {value:?}"))?,
                    );
                }
                "panic_call" => plan.panic_call = Some(number()?),
                "panic_thread" => plan.panic_thread = Some(number()?),
                "seed" => plan.seed = number()?,
                _ => return Err(format!("{key:?} is no fault")),
            }
        }
        plan.staged.seed = plan.seed;
        Ok(plan)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }
}

/// How many faults there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FaultCounters {
    /// Datagrams that vanished by chance.
    pub lost: u64,
    /// Datagrams that vanished because of their source port.
    pub blackholed: u64,
    /// Datagrams that were sent twice.
    pub duplicated: u64,
    /// Datagrams that were held back until later ones had gone.
    pub reordered: u64,
    /// Datagrams that were damaged. Unsealed ones then vanish, as they would at the receiver's UDP checksum.
    pub corrupted: u64,
}

/// A datagram that is ready to be sent. `A` says where and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram<A> {
    /// Index of its source port in the pool.
    pub entropy: u16,
    /// Where it goes.
    pub to: A,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Applies a [`FaultPlan`] to the datagrams that pass.
#[derive(Debug)]
pub struct Injector<A> {
    plan: FaultPlan,
    paths: u16,
    sealed: bool,
    rng: SmallRng,
    /// What is delayed, by the time at which it goes.
    delayed: VecDeque<(Time, Datagram<A>)>,
    /// What waits until so many others have gone, or until the time.
    held_back: Vec<(u32, Time, Datagram<A>)>,
    counters: FaultCounters,
}

impl<A: Clone> Injector<A> {
    /// Most others that overtake a datagram that is held back.
    const MOST_OVERTAKING: u32 = 16;
    /// Longest that a datagram is held back when nothing overtakes it.
    const LONGEST_HOLD: Nanos = Nanos::from_micros(500);

    /// `paths`: how many a peer has, at least one. `sealed`: whether the receiver notices damage by itself.
    pub fn new(plan: FaultPlan, paths: u16, sealed: bool) -> Injector<A> {
        let rng = SmallRng::seed_from_u64(plan.seed);
        let (delayed, held_back) = (VecDeque::new(), Vec::new());
        Injector { plan, paths, sealed, rng, delayed, held_back, counters: FaultCounters::default() }
    }

    /// How many faults there were.
    pub fn counters(&self) -> FaultCounters {
        self.counters
    }

    /// Takes a datagram that is to be sent now. What really is to be sent goes to `send`.
    pub fn pass(&mut self, now: Time, mut datagram: Datagram<A>, send: &mut impl FnMut(Datagram<A>)) {
        if self.plan.blackhole.is_some_and(|path| path % self.paths == datagram.entropy % self.paths) {
            self.counters.blackholed += 1;
            return;
        }
        // All draws are made for every datagram, so that one fault's share does not change where others fall.
        let [lost, doubled, held, damaged] =
            [self.plan.loss, self.plan.dup, self.plan.reorder, self.plan.corrupt]
                .map(|p| self.rng.random_bool(p));
        let (bit, others) = (self.rng.random::<u32>(), self.rng.random_range(1..=Self::MOST_OVERTAKING));
        if lost {
            self.counters.lost += 1;
            return;
        }
        if damaged && !datagram.bytes.is_empty() {
            self.counters.corrupted += 1;
            if !self.sealed {
                return;
            }
            let bit = bit as usize % (datagram.bytes.len() * 8);
            datagram.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        if doubled {
            self.counters.duplicated += 1;
            self.delay(now, datagram.clone(), send);
        }
        if held {
            self.counters.reordered += 1;
            self.held_back.push((others, now + Self::LONGEST_HOLD, datagram));
        } else {
            self.delay(now, datagram, send);
        }
        self.overtake(now, send);
    }

    /// Hands over what is due by the clock.
    pub fn due(&mut self, now: Time, send: &mut impl FnMut(Datagram<A>)) {
        while self.delayed.front().is_some_and(|&(at, _)| at <= now)
            && let Some((_, datagram)) = self.delayed.pop_front()
        {
            send(datagram);
        }
        while let Some(i) = self.held_back.iter().position(|&(_, until, _)| until <= now) {
            let (_, _, datagram) = self.held_back.remove(i);
            self.delay(now, datagram, send);
        }
    }

    /// When [`Injector::due`] has something to do.
    pub fn next_timeout(&self) -> Time {
        let delayed = self.delayed.front().map(|&(at, _)| at);
        let held = self.held_back.iter().map(|&(_, until, _)| until).min();
        delayed.into_iter().chain(held).min().unwrap_or(Time::NEVER)
    }

    fn delay(&mut self, now: Time, datagram: Datagram<A>, send: &mut impl FnMut(Datagram<A>)) {
        if self.plan.delay_us == 0 {
            send(datagram);
        } else {
            self.delayed.push_back((now + Nanos::from_micros(self.plan.delay_us), datagram));
        }
    }

    fn overtake(&mut self, now: Time, send: &mut impl FnMut(Datagram<A>)) {
        for held in &mut self.held_back {
            held.0 = held.0.saturating_sub(1);
        }
        while let Some(i) = self.held_back.iter().position(|&(others, _, _)| others == 0) {
            let (_, _, datagram) = self.held_back.remove(i);
            self.delay(now, datagram, send);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "loss=0.1,dup=0.1,reorder=0.2,corrupt=0.05,seed=7";

    /// Numbers of the datagrams that leave when 0 to `n` are passed.
    fn run(plan: &str, n: u32, sealed: bool) -> (Vec<u32>, FaultCounters) {
        let mut injector = Injector::new(FaultPlan::parse(plan).unwrap(), 4, sealed);
        let mut sent = Vec::new();
        for i in 0..n {
            let datagram = Datagram { entropy: (i % 4) as u16, to: i, bytes: vec![0; 100] };
            injector.pass(Time(i as u64 * 1000), datagram, &mut |datagram| sent.push(datagram.to));
        }
        injector.due(Time(u64::MAX - 1), &mut |datagram| sent.push(datagram.to));
        assert_eq!(injector.next_timeout(), Time::NEVER);
        (sent, injector.counters())
    }

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        assert_eq!(run(PLAN, 5000, true), run(PLAN, 5000, true));
        assert_ne!(run(PLAN, 5000, true), run(&PLAN.replace("seed=7", "seed=8"), 5000, true));
    }

    #[test]
    fn shares_are_kept_and_every_datagram_is_accounted_for() {
        let n = 20_000;
        let (sent, counters) = run(PLAN, n, true);
        assert_eq!(sent.len() as u64, n as u64 - counters.lost + counters.duplicated);
        for (count, share) in [
            (counters.lost, 0.1),
            (counters.duplicated, 0.1 * 0.9),
            (counters.reordered, 0.2 * 0.9),
            (counters.corrupted, 0.05 * 0.9),
        ] {
            let off = (count as f64 / (n as f64 * share) - 1.0).abs();
            assert!(off < 0.1, "{count} of {n}, wanted {share}");
        }
    }

    #[test]
    fn without_reordering_the_order_stays() {
        let (sent, _) = run("loss=0.3,dup=0.3,seed=1", 2000, false);
        assert!(sent.is_sorted());
        let (sent, counters) = run("reorder=0.3,seed=1", 2000, false);
        assert!(!sent.is_sorted() && counters.reordered > 0);
    }

    #[test]
    fn damage_in_clear_is_loss() {
        let (sent, counters) = run("corrupt=0.5,seed=3", 1000, false);
        assert_eq!(sent.len() as u64, 1000 - counters.corrupted);
    }

    #[test]
    fn a_black_hole_takes_one_path() {
        for plan in ["blackhole=2", "blackhole=6"] {
            let (sent, counters) = run(plan, 1000, false);
            assert_eq!((sent.len(), counters.blackholed), (750, 250));
            assert!(sent.iter().all(|i| i % 4 != 2));
        }
    }

    #[test]
    fn delayed_datagrams_leave_at_their_time() {
        let mut injector = Injector::new(FaultPlan::parse("delay_us=50").unwrap(), 4, false);
        let mut sent = 0;
        injector.pass(Time(1_000), Datagram { entropy: 0, to: (), bytes: vec![] }, &mut |_| sent += 1);
        assert_eq!(injector.next_timeout(), Time(51_000));
        injector.due(Time(50_999), &mut |_| sent += 1);
        assert_eq!(sent, 0);
        injector.due(Time(51_000), &mut |_| sent += 1);
        assert_eq!(sent, 1);
    }

    #[test]
    fn a_plan_says_what_is_wrong_with_it() {
        for (text, part) in [
            ("loss", "no value"),
            ("loss=2", "share from 0 to 1"),
            ("loss=x", "share from 0 to 1"),
            ("delay_us=-1", "whole number"),
            ("blackhole=70000", "at most 65535"),
            ("lost=0.1", "\"lost\" is no fault"),
            ("loss=0.1,dup=0.1,loss=0.2", "loss stands there twice"),
        ] {
            let why = FaultPlan::parse(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
        let why = FaultPlan::parse("@/no/such/file").unwrap_err();
        assert!(why.contains("cannot read /no/such/file"), "{why}");
        let why = FaultPlan::parse("loss=0.1,@/dev/zero").unwrap_err();
        assert!(why.contains("/dev/zero has more than 65536 bytes"), "{why}");
        let why = FaultPlan::parse("fail=13").unwrap_err();
        assert!(why.contains("fail: \"13\" says not which"), "{why}");
        let plan =
            FaultPlan::parse("loss=0.02, dup=0.01,reorder=0.05,corrupt=0.001,delay_us=5,blackhole=3,seed=1")
                .unwrap();
        assert_eq!((plan.loss, plan.delay_us, plan.blackhole, plan.seed), (0.02, 5, Some(3), 1));
    }

    #[test]
    fn a_file_says_the_same_as_a_line() {
        let file = std::env::temp_dir().join(format!("srd-faults-{}", std::process::id()));
        let text = "# what my card does\nfail=13@5 # the fifth\n\n  fail=7@write:0.5\nloss=0.1\n";
        std::fs::write(&file, text).unwrap();
        let read = FaultPlan::parse(&format!("seed=3,@{}", file.display()));
        std::fs::write(&file, "# nothing\n").unwrap();
        let nothing = FaultPlan::parse(&format!("@{}", file.display()));
        std::fs::remove_file(&file).unwrap();
        let line = "seed=3,fail=13@5,fail=7@write:0.5,loss=0.1";
        assert_eq!(read, FaultPlan::parse(line));
        assert_eq!(read.unwrap().text, line, "what is said of it repeats it, without the file");
        assert!(nothing.unwrap().is_empty());
    }
}
