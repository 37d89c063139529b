//! How jobs fare: the first is the one that is measured, and others go on beside it until it is at its end.

use super::carrier::Carrier;
use super::{Launcher, Run};
use crate::run::outcome::OfJob;
use srd_baselines::units::Ps;
use srd_virtual::Phase;
use std::io;

/// How a job fares.
#[derive(Clone, Copy, Default)]
pub(super) struct Fare {
    /// When all its ranks were at their program's end.
    pub ended_at: Option<Ps>,
    /// Its launcher has ended, with this code.
    pub code: Option<i32>,
}

impl<T: Carrier> Run<'_, T> {
    /// Whether the first job is at its end now. One beside it that comes to its own goes on when the first is there: so time waits neither for it nor for
    /// its launcher.
    pub(super) fn is_first_at_its_end(&mut self) -> bool {
        let ending = self.crowd.borrow().in_phase(Phase::Ending);
        if std::mem::replace(&mut self.ending, ending) != ending {
            for job in 0..self.jobs.count() {
                let mut ranks = self.jobs.ranks_of(job);
                let is_at_its_end =
                    ranks.all(|rank| T::seat(&mut self.simulation, rank).phase() == Phase::Ending);
                if !is_at_its_end || self.fares[job].ended_at.is_some() {
                    continue;
                }
                self.fares[job].ended_at = Some(self.simulation.now);
                if job > 0 && self.fares[0].ended_at.is_none() {
                    let at = self.simulation.now.as_micros();
                    self.complaints.push(format!(
                        "job {job} was at its end at {at} us: from there on the first one ran without it"
                    ));
                    self.jobs
                        .ranks_of(job)
                        .for_each(|rank| T::seat(&mut self.simulation, rank).set_resting(true));
                }
            }
        }
        self.fares[0].ended_at.is_some()
    }

    /// The first job is at its end.
    pub(super) fn end_those_beside(&mut self, launcher: &mut dyn Launcher) -> io::Result<()> {
        for job in 1..self.jobs.count() {
            let goes_on = self.fares[job].ended_at.is_none();
            for rank in self.jobs.ranks_of(job) {
                T::seat(&mut self.simulation, rank).set_resting(goes_on);
            }
            if goes_on {
                launcher.end(job)?;
            }
        }
        Ok(())
    }

    /// The job whose launcher says how the run has ended, and its code. Behind the outcome all that were at their end with it are waited for.
    pub(super) fn have_ended(&mut self, launcher: &mut dyn Launcher) -> io::Result<Option<(usize, i32)>> {
        let is_over = self.outcome.is_some();
        for (job, fare) in self.fares.iter_mut().enumerate() {
            if fare.code.is_none() && (!is_over || fare.ended_at.is_some()) {
                fare.code = launcher.ended(job)?;
            }
        }
        if is_over && self.fares.iter().any(|fare| fare.ended_at.is_some() && fare.code.is_none()) {
            return Ok(None);
        }
        // One beside the first may have ended well before it, though not all its ranks were in `MPI_Finalize`.
        let ends_the_run = |(job, fare): (usize, &Fare)| {
            let code = fare.code?;
            (job == 0 || code != 0 || fare.ended_at.is_none()).then_some((job, code))
        };
        let ended: Vec<_> = self.fares.iter().enumerate().filter_map(ends_the_run).collect();
        Ok(ended.iter().find(|(_, code)| *code != 0).or(ended.first()).copied())
    }

    /// What became of each job, where there are several.
    pub(super) fn tell_of_jobs(&self) -> Vec<OfJob> {
        let fares = self.fares.iter().filter(|_| self.jobs.are_several());
        let of = self.jobs.all().zip(fares).map(|(ranks, fare)| OfJob {
            ranks: ranks.len() as u32,
            ended_us: fare.ended_at.map(Ps::as_micros),
        });
        of.collect()
    }
}
