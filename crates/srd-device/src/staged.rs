//! Faults that a program sees of its work, staged on purpose: a work request that fails with a status of EFA's, an address handle
//! that goes stale, a completion that comes late or after others, a completion queue that overflows, a device that ends. Which ones
//! is said by number, by share, or each so-manyth, and a seed decides what chance decides, so that a run can be repeated.

use crate::api::{AhNumber, Completion, CompletionOp, CqId, SendOp};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_wire::{Nanos, Qpn, Status, Time};
use std::collections::{HashMap, HashSet};

/// How a device ends on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceEnd {
    /// It is removed: there is none any more.
    Gone,
    /// Whoever opens it anew has it again.
    Reset,
}

/// What a rule counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Any,
    Send,
    Write,
    Read,
    Recv,
    /// Microseconds since something was first posted.
    Micros,
}

/// Which of those.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Which {
    /// The so-manyth, from 1.
    Nth(u64),
    /// Each so-manyth.
    Every(u64),
    Share(f64),
}

/// What a rule picks, in the form `[KIND:]WHICH`: `7`, `%100`, `0.01`, `write:%100`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Pick {
    kind: Kind,
    which: Which,
}

/// Kinds by their names.
type Kinds = &'static [(&'static str, Kind)];
const WORK: Kinds = &[("send", Kind::Send), ("write", Kind::Write), ("read", Kind::Read)];
const COMPLETED: Kinds =
    &[("send", Kind::Send), ("write", Kind::Write), ("read", Kind::Read), ("recv", Kind::Recv)];
const WORK_OR_TIME: Kinds =
    &[("send", Kind::Send), ("write", Kind::Write), ("read", Kind::Read), ("us", Kind::Micros)];

impl Pick {
    fn parse(text: &str, kinds: Kinds) -> Result<Pick, String> {
        let (kind, which) = match text.split_once(':') {
            Some((name, which)) => {
                let known = kinds.iter().find(|kind| kind.0 == name).ok_or_else(|| {
                    let names: Vec<_> = kinds.iter().map(|kind| kind.0).collect();
                    format!("{name:?} is none of {}", names.join(", "))
                })?;
                (known.1, which)
            }
            None => (Kind::Any, text),
        };
        let number = |text: &str| text.parse::<u64>().ok().filter(|&number| number > 0);
        let which = if let Some(every) = which.strip_prefix('%') {
            number(every).map(Which::Every)
        } else if which.contains('.') {
            which.parse().ok().filter(|share| (0.0..=1.0).contains(share)).map(Which::Share)
        } else {
            number(which).map(Which::Nth)
        };
        match which {
            Some(Which::Every(_) | Which::Share(_)) if kind == Kind::Micros => {
                Err(format!("{text:?}: a time is a number of microseconds, as us:2000000"))
            }
            Some(which) => Ok(Pick { kind, which }),
            None => {
                Err(format!("{text:?} says not which: 7 (the seventh), %7 (each seventh) or 0.07 (a share)"))
            }
        }
    }

    /// Whether it picks the last one counted, which is of that kind.
    fn picks(&self, kind: Kind, counts: Counts, rng: &mut SmallRng) -> bool {
        if self.kind != Kind::Any && self.kind != kind {
            return false;
        }
        let n = counts.0[self.kind as usize];
        match self.which {
            Which::Nth(nth) => n == nth,
            Which::Every(every) => n.is_multiple_of(every),
            Which::Share(share) => rng.random_bool(share),
        }
    }
}

/// What happens to what is picked.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    /// The work request is not sent, and completes with that status.
    Fail(Status),
    /// Its address handle is stale from now on.
    Stale,
    /// The completion comes so much later...
    Late(Nanos),
    /// ...or after so many others of its queue.
    Overtaken(u32),
    /// The completion is lost.
    Overrun,
    /// The device ends.
    End(DeviceEnd),
}

/// What a word means.
enum Meaning {
    Always(Fault),
    /// It goes by what stands before the `@`: what that is, and what is meant by it.
    By(&'static str, fn(&str) -> Option<Fault>),
}

/// A word of `SRD_FAULT`.
struct Word {
    name: &'static str,
    meaning: Meaning,
    kinds: Kinds,
}

const fn word(name: &'static str, meaning: Meaning, kinds: Kinds) -> Word {
    Word { name, meaning, kinds }
}

const WORDS: [Word; 7] = [
    word("fail", Meaning::By("status of a failure (1 to 15, and 18)", fail), WORK),
    word("stale", Meaning::Always(Fault::Stale), WORK),
    word("late", Meaning::By("number of microseconds", late), COMPLETED),
    word("overtaken", Meaning::By("number of completions", overtaken), COMPLETED),
    word("overrun", Meaning::Always(Fault::Overrun), COMPLETED),
    word("gone", Meaning::Always(Fault::End(DeviceEnd::Gone)), WORK_OR_TIME),
    word("reset", Meaning::Always(Fault::End(DeviceEnd::Reset)), WORK_OR_TIME),
];

fn fail(status: &str) -> Option<Fault> {
    let number = status.parse().ok().filter(|&number| number > 0);
    number.and_then(Status::from_u8).map(Fault::Fail)
}

fn late(micros: &str) -> Option<Fault> {
    micros.parse::<u32>().ok().map(|micros| Fault::Late(Nanos::from_micros(micros.into())))
}

fn overtaken(others: &str) -> Option<Fault> {
    others.parse().ok().filter(|&others| others > 0).map(Fault::Overtaken)
}

impl Word {
    fn rule(&self, text: &str) -> Result<Rule, String> {
        let name = self.name;
        let (fault, which) = match self.meaning {
            Meaning::Always(fault) => (fault, text),
            Meaning::By(what, read) => {
                let (before, which) = text.split_once('@').ok_or_else(|| {
                    format!("{name}: {text:?} says not which, as {name}=…@7 or {name}=…@%7")
                })?;
                (read(before).ok_or_else(|| format!("{name}: {text:?} has no {what}"))?, which)
            }
        };
        let pick = Pick::parse(which, self.kinds).map_err(|why| format!("{name}: {why}"))?;
        Ok(Rule { fault, pick })
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Rule {
    fault: Fault,
    pick: Pick,
}

/// What is to be staged: words of `SRD_FAULT`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StagedFaults {
    rules: Vec<Rule>,
    /// Of what chance decides.
    pub seed: u64,
}

impl StagedFaults {
    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The words that there are.
    pub fn words() -> impl Iterator<Item = &'static str> {
        WORDS.iter().map(|word| word.name)
    }

    /// Adds rules, several joined by `+`. `fail=STATUS@WHICH`: so many work requests for sending of each queue pair are not sent but
    /// complete with that status of `efa_io_defs.h`. `stale=WHICH`: the address handle of such a work request is stale from then on.
    /// `late=MICROSECONDS@WHICH`, `overtaken=COUNT@WHICH`: completions of each queue pair come so much later, or after so many
    /// others. `overrun=WHICH`: completions of each queue are lost as if it were full. `gone=WHICH`, `reset=WHICH`: the device
    /// ends with so many work requests, or at a time.
    ///
    /// # Errors
    ///
    /// What is wrong with the value. `None`: there is no such word.
    pub fn set(&mut self, word: &str, value: &str) -> Option<Result<(), String>> {
        let word = WORDS.iter().find(|known| known.name == word)?;
        Some(value.split('+').try_for_each(|text| {
            self.rules.push(word.rule(text)?);
            Ok(())
        }))
    }

    /// For the device that comes after one that was reset: what was to happen once has happened.
    pub fn after_reset(&mut self) {
        let done = |rule: &Rule| matches!((rule.fault, rule.pick.which), (Fault::End(_), Which::Nth(_)));
        self.rules.retain(|rule| !done(rule));
    }
}

/// How many of each [`Kind`] there have been; time is not counted.
#[derive(Clone, Copy, Default, Debug)]
struct Counts([u64; 5]);

impl Counts {
    /// Counts one more, and says how many there are now.
    fn count(&mut self, kind: Kind) -> Counts {
        [Kind::Any, kind].into_iter().for_each(|kind| self.0[kind as usize] += 1);
        *self
    }
}

/// A completion that is held back.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Until then, or...
    until: Time,
    /// ...so many others have come before.
    others: Option<u32>,
    cq: CqId,
    completion: Completion,
}

/// What has been counted, and what is held back.
#[derive(Debug)]
pub(crate) struct Stage {
    faults: StagedFaults,
    rng: SmallRng,
    posted: HashMap<Qpn, Counts>,
    posted_to_all: Counts,
    completed: HashMap<Qpn, Counts>,
    queued: HashMap<CqId, Counts>,
    stale: HashSet<AhNumber>,
    held: Vec<Held>,
}

/// What is to become of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Posting {
    Sent,
    Fails(Status),
    /// It finds its address handle stale.
    GoesStale,
}

/// What becomes of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Comes,
    /// It is held back, until then at most.
    ComesBy(Time),
    Lost,
}

impl Stage {
    /// So long a completion waits for others to overtake it.
    const LONGEST: Nanos = Nanos::from_millis(100);

    /// `None` if nothing is staged.
    pub fn new(faults: &StagedFaults) -> Option<Box<Stage>> {
        let stage = || Stage {
            faults: faults.clone(),
            rng: SmallRng::seed_from_u64(faults.seed),
            posted: HashMap::new(),
            posted_to_all: Counts::default(),
            completed: HashMap::new(),
            queued: HashMap::new(),
            stale: HashSet::new(),
            held: Vec::new(),
        };
        (!faults.is_empty()).then(|| Box::new(stage()))
    }

    /// Of the rules about `wanted` the first that picks what was counted last.
    fn first<T>(&mut self, kind: Kind, counts: Counts, wanted: impl Fn(Fault) -> Option<T>) -> Option<T> {
        let rng = &mut self.rng;
        self.faults
            .rules
            .iter()
            .find_map(|rule| wanted(rule.fault).filter(|_| rule.pick.picks(kind, counts, rng)))
    }

    /// A work request is posted.
    pub fn post(&mut self, qpn: Qpn, op: SendOp, ah: AhNumber) -> (Posting, Option<DeviceEnd>) {
        let kind = match op {
            SendOp::Send { .. } => Kind::Send,
            SendOp::Write { .. } => Kind::Write,
            SendOp::Read { .. } => Kind::Read,
        };
        let counts = self.posted_to_all.count(kind);
        let end = self.first(kind, counts, |fault| match fault {
            Fault::End(end) => Some(end),
            _ => None,
        });
        let counts = self.posted.entry(qpn).or_default().count(kind);
        let picked = self.first(kind, counts, |fault| match fault {
            Fault::Fail(status) => Some(Posting::Fails(status)),
            Fault::Stale => Some(Posting::GoesStale),
            _ => None,
        });
        let stale = || if self.stale.contains(&ah) { Posting::GoesStale } else { Posting::Sent };
        (picked.unwrap_or_else(stale), end)
    }

    /// When the device ends by the clock, counted from the first thing posted; asked with each, answered with the first.
    pub fn ends(&self) -> impl Iterator<Item = (Nanos, DeviceEnd)> {
        let first = self.posted_to_all.0[Kind::Any as usize] == 1;
        self.faults.rules.iter().filter(move |_| first).filter_map(|rule| match (rule.fault, rule.pick) {
            (Fault::End(end), Pick { kind: Kind::Micros, which: Which::Nth(micros) }) => {
                Some((Nanos(micros.saturating_mul(1000)), end))
            }
            _ => None,
        })
    }

    /// An address handle is stale from now on. False if it was already.
    pub fn go_stale(&mut self, ah: AhNumber) -> bool {
        self.stale.insert(ah)
    }

    /// The number of an address handle is free for another.
    pub fn forget_handle(&mut self, ah: AhNumber) {
        self.stale.remove(&ah);
    }

    /// Something completes in `cq`. What becomes of that. What is held back is not asked about again.
    pub fn complete(&mut self, now: Time, cq: CqId, completion: &Completion) -> Fate {
        let kind = match completion.op {
            CompletionOp::Send => Kind::Send,
            CompletionOp::Write => Kind::Write,
            CompletionOp::Read => Kind::Read,
            CompletionOp::Recv | CompletionOp::RecvRdmaWithImm => Kind::Recv,
        };
        let counts = self.queued.entry(cq).or_default().count(kind);
        if self.first(kind, counts, |fault| (fault == Fault::Overrun).then_some(())).is_some() {
            return Fate::Lost;
        }
        let counts = self.completed.entry(completion.qpn).or_default().count(kind);
        let held = self.first(kind, counts, |fault| match fault {
            Fault::Late(wait) => Some((wait, None)),
            Fault::Overtaken(others) => Some((Stage::LONGEST, Some(others))),
            _ => None,
        });
        match held {
            Some((wait, others)) => {
                let until = now + wait;
                self.held.push(Held { until, others, cq, completion: *completion });
                Fate::ComesBy(until)
            }
            None => Fate::Comes,
        }
    }

    /// A completion has come into `cq`, before those that are held back there.
    pub fn overtake(&mut self, cq: CqId) {
        for others in
            self.held.iter_mut().filter(|held| held.cq == cq).filter_map(|held| held.others.as_mut())
        {
            *others = others.saturating_sub(1);
        }
    }

    /// The earliest of what is held back no longer.
    pub fn pop_held(&mut self, now: Time) -> Option<(CqId, Completion)> {
        let due = |held: &Held| held.until <= now || held.others == Some(0);
        let held = self.held.iter().enumerate().filter(|(_, held)| due(held));
        let (at, _) = held.min_by_key(|&(at, held)| (held.until, at))?;
        let held = self.held.remove(at);
        Some((held.cq, held.completion))
    }

    /// What is held back.
    pub fn held(&self) -> impl Iterator<Item = (CqId, Completion)> {
        self.held.iter().map(|held| (held.cq, held.completion))
    }

    /// A queue pair is destroyed or reset: nothing of it comes any more, and the next one of that number counts from the start.
    pub fn purge(&mut self, qpn: Qpn) {
        self.held.retain(|held| held.completion.qpn != qpn);
        self.posted.remove(&qpn);
        self.completed.remove(&qpn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(words: &[(&str, &str)]) -> Result<StagedFaults, String> {
        let mut faults = StagedFaults { seed: 1, ..StagedFaults::default() };
        words.iter().try_for_each(|(word, value)| faults.set(word, value).expect("a word of ours"))?;
        Ok(faults)
    }

    #[test]
    fn rules_say_what_is_wrong_with_them() {
        for (word, value, part) in [
            ("fail", "13", "says not which"),
            ("fail", "0@1", "no status of a failure"),
            ("fail", "16@1", "no status of a failure"),
            ("fail", "13@recv:1", "none of send, write, read"),
            ("fail", "13@0", "says not which"),
            ("fail", "13@%0", "says not which"),
            ("fail", "13@1.5", "says not which"),
            ("fail", "10@1+x@2", "no status of a failure"),
            ("late", "x@1", "no number of microseconds"),
            ("overrun", "any:1", "none of send, write, read, recv"),
            ("overtaken", "0@1", "no number of completions"),
            ("stale", "recv:1", "none of send, write, read"),
            ("gone", "us:%5", "number of microseconds"),
            ("reset", "0", "reset: \"0\" says not which"),
        ] {
            let why = faults(&[(word, value)]).unwrap_err();
            assert!(why.contains(part), "{word}={value}: {why}");
        }
        assert!(StagedFaults::default().set("loss", "1").is_none());
        assert!(StagedFaults::default().is_empty() && Stage::new(&StagedFaults::default()).is_none());
    }

    #[test]
    fn work_fails_by_number_by_kind_and_by_share() {
        let words = [("fail", "13@2+10@read:%3+7@write:0.25")];
        let mut stage = Stage::new(&faults(&words).unwrap()).unwrap();
        let mut post = |qpn, op| stage.post(Qpn(qpn), op, AhNumber(0)).0;
        let send = SendOp::Send { imm: None };
        let unresponsive = Posting::Fails(Status::Unresponsive);
        assert_eq!([0; 3].map(|_| post(1, send)), [Posting::Sent, unresponsive, Posting::Sent]);
        assert_eq!(post(2, send), Posting::Sent, "each queue pair counts for itself");
        let read = SendOp::Read { rkey: srd_wire::MrKey(1), addr: 0 };
        let reads = [0; 6].map(|_| post(3, read) == Posting::Fails(Status::RemoteRnr));
        assert_eq!(reads, [false, false, true, false, false, true]);
        let write = SendOp::Write { rkey: srd_wire::MrKey(1), addr: 0, imm: None };
        let failed = (0..1000).filter(|_| post(4, write) == Posting::Fails(Status::RemoteBadAddress)).count();
        assert!((200..300).contains(&failed), "{failed}");
    }

    #[test]
    fn a_device_ends_with_what_all_its_queue_pairs_are_given() {
        let mut stage = Stage::new(&faults(&[("reset", "3+us:70"), ("gone", "%5")]).unwrap()).unwrap();
        let send = SendOp::Send { imm: None };
        let mut times = 0;
        let ends: Vec<_> = (0..5)
            .map(|qpn| {
                let end = stage.post(Qpn(qpn), send, AhNumber(0)).1;
                times += stage.ends().filter(|end| *end == (Nanos(70_000), DeviceEnd::Reset)).count();
                end
            })
            .collect();
        assert_eq!(ends, [None, None, Some(DeviceEnd::Reset), None, Some(DeviceEnd::Gone)]);
        assert_eq!(times, 1, "the clock starts once");
        let mut faults = stage.faults.clone();
        faults.after_reset();
        assert_eq!(faults.rules.len(), 1, "each fifth stays, the third and the time have been");
    }
}
