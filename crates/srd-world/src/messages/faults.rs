//! What happens to processes, to their endpoints, and to the network between them.

use crate::ledger::Violation;
use crate::messages::cluster::{Cluster, Event};
use crate::plan::purpose;
use crate::rng::Rng;
use srd_wire::{Nanos, Time};

/// Something that goes wrong; the number decides to whom and how badly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// Two hosts are cut off from each other, one way or both.
    Cut(u64),
    /// A process is killed and begins again.
    Restart(u64),
    /// A process, or two, stand still.
    Pause(u64),
    /// A clock jumps forward.
    JumpForward(u64),
    /// A clock jumps backward.
    JumpBack(u64),
    /// A process dies for good.
    Death(u64),
    /// An endpoint is closed and opened again.
    Reopen(u64),
}

/// How long an endpoint waits at most for what it has sent, when it is closed (as the provider's).
pub const FAREWELL: Nanos = Nanos::from_secs(2);

/// A kind of faults, without the number.
type Kind = fn(u64) -> Fault;

impl Cluster {
    pub(super) fn schedule_mishaps(&mut self) {
        let (f, t) = (&self.plan.faults, &self.plan.talk);
        let kinds: [(u64, Kind); 7] = [
            (f.cuts, Fault::Cut),
            (f.restarts, Fault::Restart),
            (f.pauses, Fault::Pause),
            (f.jumps_forward, Fault::JumpForward),
            (f.jumps_back, Fault::JumpBack),
            (f.deaths, Fault::Death),
            (t.reopens, Fault::Reopen),
        ];
        for (at, (count, kind)) in kinds.into_iter().enumerate() {
            // A stream for each kind, so that one can be taken away without changing the others.
            let mut rng = Rng::new(self.plan.seed, purpose::FAULTS ^ (at as u64) << 32);
            for _ in 0..count {
                let when = Time(rng.below(self.plan.shape.span_ns));
                self.at(when, Event::Fault(kind(rng.word())));
            }
        }
    }

    pub(super) fn strike(&mut self, faults: Fault) -> Result<(), Violation> {
        if self.healed {
            return Ok(());
        }
        self.tell(|| format!("## {faults:?}"));
        match faults {
            Fault::Cut(draw) => self.cut(&mut Rng::new(draw, 0)),
            Fault::Restart(draw) => {
                let rng = &mut Rng::new(draw, 0);
                let index = self.any(rng);
                self.kill(index)?;
                let wait = rng.below(self.plan.faults.restart_ns + 1);
                self.after(wait, Event::Restart(index));
            }
            Fault::Pause(draw) => self.pause(&mut Rng::new(draw, 0)),
            Fault::JumpForward(draw) => self.jump(&mut Rng::new(draw, 0), 1),
            Fault::JumpBack(draw) => self.jump(&mut Rng::new(draw, 0), -1),
            Fault::Death(draw) => {
                let index = self.any(&mut Rng::new(draw, 0));
                self.processes[index].gone = true;
                self.kill(index)?;
            }
            Fault::Reopen(draw) => {
                let rng = &mut Rng::new(draw, 0);
                let (index, slot) = (self.any(rng), rng.below(self.plan.talk.endpoints) as usize);
                if !self.processes[index].runs(self.now) {
                    return Ok(());
                }
                // What it has been told counts.
                self.collect(index)?;
                if rng.percent(self.plan.talk.abrupt_percent) {
                    return self.close_endpoint(index, slot);
                }
                let latest = self.processes[index].local(self.now) + FAREWELL;
                if let Some(open) = &mut self.processes[index].living().slots[slot] {
                    open.closing = Some(latest);
                }
                self.wake_at(index, self.now);
            }
        }
        Ok(())
    }

    fn any(&self, rng: &mut Rng) -> usize {
        rng.below(self.processes.len() as u64) as usize
    }

    fn lasts(&self, most: u64, rng: &mut Rng) -> Time {
        self.now + Nanos(rng.within(most * 3 / 4, most))
    }

    fn cut(&mut self, rng: &mut Rng) {
        let (a, b) = (self.any(rng), self.any(rng));
        let (a, b) = (self.processes[a].host, self.processes[b].host);
        let until = self.lasts(self.plan.faults.cut_ns, rng);
        self.net.cut(a, b, until);
        if rng.percent(50) {
            self.net.cut(b, a, until);
        }
    }

    fn pause(&mut self, rng: &mut Rng) {
        let twins = rng.percent(self.plan.talk.twins_percent);
        for _ in 0..1 + twins as u64 {
            let index = self.any(rng);
            let until = self.lasts(self.plan.faults.pause_ns, rng);
            self.tell(|| format!("{index} stands still until {} us", until.0 / 1_000));
            let process = &mut self.processes[index];
            process.paused_until = until.max(process.paused_until);
            self.at(until, Event::Resume(index));
        }
    }

    fn jump(&mut self, rng: &mut Rng, sign: i64) {
        let index = self.any(rng);
        // The device takes a clock that was set back for one that stands still until it has caught up.
        let most = self.plan.faults.jump_ns.min(if sign < 0 { 100_000_000 } else { u64::MAX });
        let by = rng.below(most + 1);
        self.tell(|| format!("{index}: the clock jumps by {} us", sign * (by / 1_000) as i64));
        self.processes[index].clock_ahead += sign * by as i64;
        if sign < 0 {
            self.jumped_back = self.jumped_back + Nanos(by);
        }
        self.processes[index].wake_at = Time::NEVER;
        self.wake_at(index, self.now);
    }
}
