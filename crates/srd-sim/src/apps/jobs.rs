//! Jobs of real programs on one fabric: which ranks are whose. All ranks are numbered in one row, those of a job behind those of the job before it.

use srd_baselines::input::counted;
use std::ops::Range;

/// Ranks of each job. The first is the one that is measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Jobs(Vec<u32>);

impl Jobs {
    /// So many ranks in each; one job at least.
    pub fn of(ranks: Vec<u32>) -> Jobs {
        assert!(!ranks.is_empty(), "a run has a job");
        Jobs(ranks)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether outputs have to say whose a rank is.
    pub fn are_several(&self) -> bool {
        self.count() > 1
    }

    /// Numbers of a job's ranks.
    pub fn ranks_of(&self, job: usize) -> Range<u32> {
        let first = self.0[..job].iter().sum();
        first..first + self.0[job]
    }

    /// Those of each job.
    pub fn all(&self) -> impl Iterator<Item = Range<u32>> {
        (0..self.count()).map(|job| self.ranks_of(job))
    }

    /// The job of a rank, and its rank there.
    pub fn locate(&self, number: u32) -> (u32, u32) {
        let (job, ranks) =
            (0..).zip(self.all()).find(|(_, ranks)| ranks.contains(&number)).expect("it is a rank's");
        (job, number - ranks.start)
    }

    /// What there is: `4 ranks`, `2 jobs of 4 and 8 ranks`.
    pub fn summary(&self) -> String {
        let (last, others) = self.0.split_last().expect("a run has a job");
        if others.is_empty() {
            return counted(u64::from(*last), "rank");
        }
        let others: Vec<String> = others.iter().map(u32::to_string).collect();
        format!("{} jobs of {} and {}", self.count(), others.join(", "), counted(u64::from(*last), "rank"))
    }

    /// As a person is told of a rank.
    pub fn name(&self, number: u32) -> String {
        match self.locate(number) {
            (job, rank) if self.are_several() => format!("rank {rank} of job {job}"),
            (_, rank) => format!("rank {rank}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_job_are_behind_those_of_the_one_before_it() {
        let jobs = Jobs::of(vec![2, 3, 1]);
        assert_eq!(jobs.all().collect::<Vec<_>>(), [0..2, 2..5, 5..6]);
        assert_eq!(
            (0..6).map(|number| jobs.locate(number)).collect::<Vec<_>>(),
            [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0)]
        );
    }

    #[test]
    fn a_rank_is_said_to_be_of_a_job_where_there_are_several() {
        assert_eq!(Jobs::of(vec![4]).name(3), "rank 3");
        assert_eq!(Jobs::of(vec![4, 2]).name(5), "rank 1 of job 1");
        assert_eq!(Jobs::of(vec![4]).summary(), "4 ranks");
        assert_eq!(Jobs::of(vec![4, 2, 8]).summary(), "3 jobs of 4, 2 and 8 ranks");
    }
}
