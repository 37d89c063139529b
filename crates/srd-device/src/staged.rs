//! Faults that a program sees of its work, staged on purpose: a work request that fails with a status of EFA's, a completion that
//! comes late and is overtaken, a completion queue that overflows. Which ones is said by number, by share, or each so-manyth, and
//! a seed decides what chance decides, so that a run can be repeated.

use crate::api::{Completion, CompletionOp, CqId, SendOp};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_wire::{Nanos, Qpn, Status, Time};
use std::collections::HashMap;

/// What a rule counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Any,
    Send,
    Write,
    Read,
    Recv,
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

impl Pick {
    fn parse(text: &str, kinds: &[(&str, Kind)]) -> Result<Pick, String> {
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
        let why = || format!("{text:?} says not which: 7 (the seventh), %7 (each seventh) or 0.07 (a share)");
        Ok(Pick { kind, which: which.ok_or_else(why)? })
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

/// What is to be staged: words of `SRD_FAULT`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StagedFaults {
    fail: Vec<(Status, Pick)>,
    late: Vec<(Nanos, Pick)>,
    overrun: Vec<Pick>,
    /// Of what chance decides.
    pub seed: u64,
}

const WORK: [(&str, Kind); 3] = [("send", Kind::Send), ("write", Kind::Write), ("read", Kind::Read)];
const COMPLETED: [(&str, Kind); 4] =
    [("send", Kind::Send), ("write", Kind::Write), ("read", Kind::Read), ("recv", Kind::Recv)];

impl StagedFaults {
    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.fail.is_empty() && self.late.is_empty() && self.overrun.is_empty()
    }

    /// `fail=STATUS@WHICH`, several joined by `+`: of each queue pair, so many of its work requests for sending are not sent but
    /// complete with that status of `efa_io_defs.h`, or its number. `late=MICROSECONDS@WHICH`: completions of each queue pair come
    /// so much later. `overrun=WHICH`: completions of each queue are lost as if it were full.
    ///
    /// # Errors
    ///
    /// What is wrong with the value. `None`: there is no such word.
    pub fn set(&mut self, word: &str, value: &str) -> Option<Result<(), String>> {
        let each = |set: &mut dyn FnMut(&str) -> Result<(), String>| Some(value.split('+').try_for_each(set));
        match word {
            "fail" => each(&mut |rule| {
                let (status, which) = at(word, rule)?;
                let number = status.parse().ok().filter(|&number| number > 0);
                let status = number.and_then(Status::from_u8);
                let why = || format!("fail: {rule:?} has no status of a failure (1 to 15, and 18)");
                self.fail.push((status.ok_or_else(why)?, Pick::parse(which, &WORK)?));
                Ok(())
            }),
            "late" => each(&mut |rule| {
                let (micros, which) = at(word, rule)?;
                let why = |_| format!("late: {rule:?} has no number of microseconds");
                let micros: u32 = micros.parse().map_err(why)?;
                self.late.push((Nanos::from_micros(micros.into()), Pick::parse(which, &COMPLETED)?));
                Ok(())
            }),
            "overrun" => each(&mut |rule| {
                self.overrun.push(Pick::parse(rule, &COMPLETED)?);
                Ok(())
            }),
            _ => None,
        }
    }
}

fn at<'a>(word: &str, rule: &'a str) -> Result<(&'a str, &'a str), String> {
    rule.split_once('@')
        .ok_or_else(|| format!("{word}: {rule:?} says not which, as {word}=…@7 or {word}=…@%7"))
}

/// How many of each [`Kind`] there have been.
#[derive(Clone, Copy, Default, Debug)]
struct Counts([u64; 5]);

impl Counts {
    /// Counts one more, and says how many there are now.
    fn count(&mut self, kind: Kind) -> Counts {
        [Kind::Any, kind].into_iter().for_each(|kind| self.0[kind as usize] += 1);
        *self
    }
}

/// What has been counted, and what is held back.
#[derive(Debug)]
pub(crate) struct Stage {
    faults: StagedFaults,
    rng: SmallRng,
    posted: HashMap<Qpn, Counts>,
    completed: HashMap<Qpn, Counts>,
    queued: HashMap<CqId, Counts>,
    late: Vec<(Time, CqId, Completion)>,
}

/// What becomes of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Comes,
    /// It is held back until then.
    ComesAt(Time),
    Lost,
}

impl Stage {
    /// `None` if nothing is staged.
    pub fn new(faults: &StagedFaults) -> Option<Box<Stage>> {
        let stage = || Stage {
            faults: faults.clone(),
            rng: SmallRng::seed_from_u64(faults.seed),
            posted: HashMap::new(),
            completed: HashMap::new(),
            queued: HashMap::new(),
            late: Vec::new(),
        };
        (!faults.is_empty()).then(|| Box::new(stage()))
    }

    /// A work request is posted. The status with which it fails instead of being sent.
    pub fn post(&mut self, qpn: Qpn, op: SendOp) -> Option<Status> {
        let kind = match op {
            SendOp::Send { .. } => Kind::Send,
            SendOp::Write { .. } => Kind::Write,
            SendOp::Read { .. } => Kind::Read,
        };
        let counts = self.posted.entry(qpn).or_default().count(kind);
        let picked = |rule: &&(Status, Pick)| rule.1.picks(kind, counts, &mut self.rng);
        self.faults.fail.iter().find(picked).map(|rule| rule.0)
    }

    /// Something completes in `cq`. What becomes of that. What is late is not asked about again.
    pub fn complete(&mut self, now: Time, cq: CqId, completion: &Completion) -> Fate {
        let kind = match completion.op {
            CompletionOp::Send => Kind::Send,
            CompletionOp::Write => Kind::Write,
            CompletionOp::Read => Kind::Read,
            CompletionOp::Recv | CompletionOp::RecvRdmaWithImm => Kind::Recv,
        };
        let counts = self.queued.entry(cq).or_default().count(kind);
        if self.faults.overrun.iter().any(|pick| pick.picks(kind, counts, &mut self.rng)) {
            return Fate::Lost;
        }
        let counts = self.completed.entry(completion.qpn).or_default().count(kind);
        let picked = |rule: &&(Nanos, Pick)| rule.1.picks(kind, counts, &mut self.rng);
        match self.faults.late.iter().find(picked) {
            Some(&(wait, _)) => {
                self.late.push((now + wait, cq, *completion));
                Fate::ComesAt(now + wait)
            }
            None => Fate::Comes,
        }
    }

    /// The earliest of what is late and due.
    pub fn pop_late(&mut self, now: Time) -> Option<(CqId, Completion)> {
        let (at, _) = self.late.iter().enumerate().min_by_key(|&(at, late)| (late.0, at))?;
        if self.late[at].0 > now {
            return None;
        }
        let (_, cq, completion) = self.late.remove(at);
        Some((cq, completion))
    }

    /// What is late.
    pub fn late(&self) -> impl Iterator<Item = (CqId, Completion)> {
        self.late.iter().map(|&(_, cq, completion)| (cq, completion))
    }

    /// A queue pair is destroyed or reset: nothing of it comes any more, and the next one of that number counts from the start.
    pub fn purge(&mut self, qpn: Qpn) {
        self.late.retain(|late| late.2.qpn != qpn);
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
        let send = SendOp::Send { imm: None };
        assert_eq!([0; 4].map(|_| stage.post(Qpn(1), send)), [None, Some(Status::Unresponsive), None, None]);
        assert_eq!(stage.post(Qpn(2), send), None, "each queue pair counts for itself");
        let read = SendOp::Read { rkey: srd_wire::MrKey(1), addr: 0 };
        let reads =
            [0; 6].map(|_| stage.post(Qpn(3), read).is_some_and(|status| status == Status::RemoteRnr));
        assert_eq!(reads, [false, false, true, false, false, true]);
        let write = SendOp::Write { rkey: srd_wire::MrKey(1), addr: 0, imm: None };
        let failed =
            (0..1000).filter(|_| stage.post(Qpn(4), write) == Some(Status::RemoteBadAddress)).count();
        assert!((200..300).contains(&failed), "{failed}");
    }
}
