//! The jobs of a command line: the one that is measured, and those that run beside it on the same fabric.

use anyhow::bail;
use clap::Parser;
use clap::builder::Resettable;
use std::ffi::OsString;

/// What stands between a job's command and the options of the next. (A colon is the launchers' own, for programs of one MPI_COMM_WORLD.)
const BESIDE: &str = "--beside";

/// How many ranks a job has, and where they are.
#[derive(clap::Args, Clone, Debug)]
pub struct Ranks {
    /// Processes of each command
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub n: u32,
    /// Ranks of each host: the first K are on the first host, and so on
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub per_host: u32,
    /// Hosts of the ranks, as in 0,4,8; 0,0,1,1 has two ranks on each of two [default: the first ones]
    #[arg(long, value_name = "HOST", value_delimiter = ',', conflicts_with = "per_host")]
    pub place: Vec<u32>,
}

impl Ranks {
    /// The host of each; from `first` on if nothing else is said.
    pub fn hosts(&self, first: u32) -> anyhow::Result<Vec<u32>> {
        if self.place.is_empty() {
            return Ok((0..self.n).map(|rank| first + rank / self.per_host).collect());
        }
        let (named, n) = (self.place.len(), self.n);
        if named != n as usize {
            bail!("--place names {named} hosts for {n} ranks: name one for each");
        }
        Ok(self.place.clone())
    }
}

/// What stands behind [`BESIDE`].
#[derive(Parser, Debug)]
#[command(name = "srd sim mpirun ... --beside", no_binary_name = true, disable_help_flag = true)]
#[command(mut_arg("n", |n| n.required(true).default_value(Resettable::Reset).help("Ranks")))]
struct Beside {
    #[command(flatten)]
    ranks: Ranks,
    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// A job: the host of each of its ranks, and what they run.
#[derive(Debug)]
pub struct Job {
    /// By rank.
    pub hosts: Vec<u32>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// The jobs of a command line: `words` are the first one's command, and the others. One that does not say where it is, is on the hosts behind those of the
/// jobs before it.
pub fn read(ranks: &Ranks, words: &[OsString]) -> anyhow::Result<Vec<Job>> {
    let mut parts = words.split(|word| word == BESIDE);
    let command = parts.next().unwrap_or_default().to_vec();
    if command.is_empty() {
        bail!("no command before {BESIDE}: write what the first job runs there");
    }
    let mut jobs = vec![Job { hosts: ranks.hosts(0)?, command }];
    for part in parts {
        let Beside { ranks, command } = Beside::try_parse_from(part).unwrap_or_else(|error| error.exit());
        if let Some(option) = command[0].to_str().filter(|word| word.starts_with('-')) {
            bail!(
                "{option} is no option of a job behind {BESIDE}: it has -n, --place and --per-host; others stand in front of the first command"
            );
        }
        let first = jobs.iter().flat_map(|job| &job.hosts).max().map_or(0, |last| last + 1);
        jobs.push(Job { hosts: ranks.hosts(first)?, command });
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(place: &[u32], words: &str) -> Vec<(Vec<u32>, Vec<OsString>)> {
        let ranks = Ranks { n: 2, per_host: 1, place: place.to_vec() };
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        read(&ranks, &words).unwrap().into_iter().map(|job| (job.hosts, job.command)).collect()
    }

    #[test]
    fn a_command_line_without_a_job_beside_is_one_job() {
        assert_eq!(
            jobs(&[], "./a -n 3 : x"),
            [(vec![0, 1], ["./a", "-n", "3", ":", "x"].map(OsString::from).into())]
        );
    }

    #[test]
    fn jobs_are_where_they_say_or_behind_those_before_them() {
        let all = jobs(&[4, 2], "./a --beside -n 4 --per-host 2 -- ./b -n 1 --beside -n 1 --place 0 ./c");
        let hosts: Vec<_> = all.iter().map(|(hosts, _)| hosts.clone()).collect();
        assert_eq!(hosts, [vec![4, 2], vec![5, 5, 6, 6], vec![0]]);
        let commands: Vec<_> = all.into_iter().map(|(_, command)| command).collect();
        assert_eq!(commands, [vec!["./a"], vec!["./b", "-n", "1"], vec!["./c"]]);
    }

    #[test]
    fn a_job_has_a_host_for_each_rank_and_the_first_one_a_command() {
        let two = Ranks { n: 2, per_host: 1, place: vec![1] };
        let said = read(&two, &["./a".into()]).unwrap_err().to_string();
        assert_eq!(said, "--place names 1 hosts for 2 ranks: name one for each");
        let two = Ranks { n: 2, per_host: 1, place: Vec::new() };
        let words = ["--beside", "-n", "1", "./b"].map(OsString::from);
        assert!(read(&two, &words).unwrap_err().to_string().starts_with("no command before --beside"));
        let words = ["./a", "--beside", "-n", "1", "--mpi", "mpich", "./b"].map(OsString::from);
        assert!(read(&two, &words).unwrap_err().to_string().starts_with("--mpi is no option of a job"));
    }
}
