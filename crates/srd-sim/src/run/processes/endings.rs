//! How a run comes to its end, and what a person is told of it.

use super::carrier::Carrier;
use super::{End, Left, Run};
use srd_baselines::units::Ps;
use srd_virtual::Phase;
use srd_virtual::world::State;
use std::time::{Duration, Instant};

/// For so long nothing has happened at all: all wait for each other. Where a rank has ended early it is plain why.
const STANDSTILL: Duration = Duration::from_secs(20);
const STANDSTILL_WITHOUT_A_RANK: Duration = Duration::from_secs(2);
/// Messages by which a rank asks another one whether it lives, and their answers, at most: twice what the messaging layer sends.
const QUESTIONS_A_SECOND: f64 = 8.0;
/// A turn that lasts longer than this is work.
const LONG_STEP: Duration = Duration::from_secs(1);

/// By what it is seen whether programs go on.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// When, of the machine's time.
    pub at: Instant,
    /// Turns of threads that had not polled.
    pub own_turns: u64,
    /// Packets with data.
    pub sent: u64,
    /// The simulation's time.
    pub now: Ps,
}

impl<T: Carrier> Run<'_, T> {
    /// Whether the first job stands still though something happens: ranks that wait ask each other now and then whether they live, for ever.
    pub(super) fn has_stopped(&mut self, now: Instant) -> bool {
        let works = now - std::mem::replace(&mut self.last, now) > LONG_STEP;
        if works || self.outcome.is_some() || !self.together {
            self.seen.at = now;
            return false;
        }
        if now - self.seen.at <= STANDSTILL {
            return false;
        }
        let ranks = self.jobs.ranks_of(0);
        let seen = Seen {
            at: now,
            own_turns: self.own_turns(ranks.clone()),
            sent: self.simulation.ranks().take(ranks.len()).map(|rank| rank.counts().data_new).sum(),
            now: self.simulation.now,
        };
        let before = std::mem::replace(&mut self.seen, seen);
        let seconds = (seen.now - before.now).as_micros() / 1e6;
        let asked = QUESTIONS_A_SECOND * f64::from(ranks.end).powi(2) * seconds;
        let goes_on = seen.own_turns != before.own_turns || (seen.sent - before.sent) as f64 > asked;
        !goes_on && !ranks.into_iter().any(|rank| T::seat(&mut self.simulation, rank).awaits_a_time())
    }

    /// For how long nothing may happen.
    pub(super) fn patience(&self) -> Duration {
        let is_of_first = |left: Left| self.jobs.locate(left.rank).0 == 0;
        if self.left.is_some_and(is_of_first) { STANDSTILL_WITHOUT_A_RANK } else { STANDSTILL }
    }

    pub(super) fn interrupted(&mut self) -> End {
        self.complaints.push("interrupted".into());
        End::Interrupted
    }

    pub(super) fn out_of_time(&mut self) -> End {
        self.complaints.push(format!(
            "end_us = {} was reached before the program's end: {} of {} ranks were still running. Raise it, or leave it out",
            self.simulation.now.as_micros(),
            self.ranks - self.crowd.borrow().in_phase(Phase::Ending),
            self.ranks,
        ));
        End::OutOfTime
    }

    /// The launcher of a job has ended.
    pub(super) fn conclude(&mut self, job: usize, code: i32) -> End {
        if self.crowd.borrow().is_to_stop() {
            return self.interrupted(); // it was killed
        }
        let _ = self.look_at_all(); // who has ended since
        let ranks = self.jobs.ranks_of(job);
        let absent = ranks.filter(|&rank| T::seat(&mut self.simulation, rank).process().is_none()).count();
        let of_job = if self.jobs.are_several() { format!(" of job {job}") } else { String::new() };
        if absent > 0 && code == 0 {
            let why = match self.mpi {
                true => {
                    "the program is no MPI program, or its MPI took another way than libfabric's provider srd"
                }
                false => "the program has not opened libfabric's provider srd",
            };
            self.complaints.push(format!(
                "{absent} ranks{of_job} have not used the simulated fabric: {why}, or it is statically linked"
            ));
        }
        if code != 0 {
            let who = if self.mpi { "the launcher" } else { "a process" };
            self.complaints.push(format!("{who}{of_job} has ended with code {code}"));
        }
        self.complaints.extend(self.left.map(|left| self.ended_early(left.rank)));
        if job == 0 {
            let is_of_other = |left: &Left| self.jobs.locate(left.rank).0 > 0;
            return match self.left.filter(is_of_other) {
                Some(_) if code == 0 => End::Beside(1), // its launcher has not noticed yet
                None if code == 0 && absent > 0 => End::Bypassed,
                _ => End::Launcher(code),
            };
        }
        if self.outcome.is_none() {
            self.complaints.push(format!(
                "job {job} has ended before its ranks were at their end, and with it the run: mend it, or leave it out"
            ));
        }
        End::Beside(code)
    }

    /// Who waits for whom, as far as anybody can tell.
    pub(super) fn standstill(&mut self) -> End {
        if self.crowd.borrow().is_to_stop() {
            return self.interrupted(); // it stood still before, and somebody has not waited for what follows
        }
        let state = |rank| {
            let seat = T::seat(&mut self.simulation, rank);
            (seat.state(), seat.process())
        };
        let all: Vec<_> = (0..self.ranks).map(state).collect();
        let count = |wanted| all.iter().filter(|(state, _)| *state == wanted).count();
        let mut ranks = (0..).zip(&all);
        let first = ranks.find(|(_, (state, _))| matches!(state, State::Absent | State::Outside));
        let hint = match (self.left, first) {
            (Some(left), _) => self.ended_early(left.rank),
            (None, Some((rank, (_, process)))) => format!(
                "{} {}",
                self.jobs.name(rank),
                match process {
                    Some(process) => format!("(process {process}) waits for something that is not of the fabric"),
                    None => "has not opened the provider: does the program use libfabric, and is it dynamically linked?".into(),
                }
            ),
            (None, None) if count(State::Parked) == 0 => "all have ended, but their launcher has not".into(),
            (None, None) => "each waits for a message that nobody sends".into(),
        };
        let patience = self.patience().as_secs();
        self.complaints.push(format!(
            "standstill: nothing has happened for {patience} s: {} ranks wait for the fabric ({} of them in MPI_Finalize), {} for something \
             else, {} have not come, {} have ended; {hint}",
            count(State::Parked),
            self.crowd.borrow().in_phase(Phase::Ending).saturating_sub(count(State::Ended) as u32),
            count(State::Outside),
            count(State::Absent),
            count(State::Ended),
        ));
        End::Standstill
    }

    /// What is said of a rank that has ended too early.
    pub(super) fn ended_early(&self, rank: u32) -> String {
        let without = if self.mpi { "MPI_Finalize" } else { "closing the provider" };
        format!("{} has ended without {without}", self.jobs.name(rank))
    }
}
