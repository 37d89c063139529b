//! What has others run the shards of a sweep or of figures: a job for Slurm, a list of commands, a program for MPI's launchers.

use super::batch::Manner;
use super::needs;
use super::recording::{command_line, shell_word};
use anyhow::bail;
use srd_sim::record::program;
use srd_sim::sweep::Shard;
use std::path::Path;
use std::time::Duration;

/// Of the estimates: how far from the truth that of memory may be, how much slower than here it may be elsewhere.
const MEMORY_MARGIN: f64 = 1.5;
const TIME_MARGIN: u32 = 3;
/// What a job gets at least.
const LEAST_MB: u64 = 64;

/// Whose file it is.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An array job of Slurm, for sbatch
    Slurm,
    /// A command a line, for GNU parallel and its like
    Parallel,
    /// A program for mpirun or srun, each of whose ranks does a shard
    Mpi,
}

/// What is to be run.
pub struct JobFile<'a> {
    /// Its name.
    pub name: &'a str,
    /// How many runs it has, and what they are called.
    pub runs: usize,
    /// See `runs`.
    pub called: &'static str,
    /// The command that does all of it.
    pub command: String,
    /// What is added to it where it merges.
    pub tables: String,
    /// Where results lie.
    pub directory: &'a Path,
    /// How many shards there are.
    pub shards: u32,
    /// How runs are done.
    pub manner: &'a Manner,
    /// Memory of the largest run.
    pub bytes: u64,
    /// Time of each run, on this machine; `None` where nobody can tell.
    pub times: Option<Vec<Duration>>,
}

impl JobFile<'_> {
    /// Its text.
    pub fn text(&self, kind: Kind) -> anyhow::Result<String> {
        let JobFile { runs, called, shards, .. } = self;
        if *shards as usize > *runs {
            bail!("--shards {shards}: {runs} {called} make no more than {runs} shards");
        }
        Ok(match kind {
            Kind::Slurm => self.slurm()?,
            Kind::Parallel => self.parallel(),
            Kind::Mpi => self.mpi(),
        })
    }

    fn slurm(&self) -> anyhow::Result<String> {
        let time = self.minutes().map(|minutes| format!("#SBATCH --time={minutes}\n")).unwrap_or_default();
        Ok(format!(
            "#!/bin/sh\n\
             #SBATCH --job-name={name}\n\
             #SBATCH --array=1-{shards}\n\
             #SBATCH --ntasks=1\n\
             #SBATCH --cpus-per-task={threads}\n\
             #SBATCH --mem={memory}M\n\
             {time}\
             #SBATCH --requeue\n\
             #SBATCH --open-mode=append\n\
             #SBATCH --output={output}\n\
             {remarks}\
             # Submit it, and the merge behind it:\n\
             #   job=$(sbatch --parsable THIS-FILE)\n\
             #   sbatch --dependency=afterok:$job --output=/dev/null --wrap={merge}\n\
             exec {shard} --shard \"$SLURM_ARRAY_TASK_ID/{shards}\"\n",
            name = job_name(self.name),
            shards = self.shards,
            threads = self.threads(),
            memory = self.megabytes(),
            output = self.log()?,
            remarks = self.remarks(),
            merge = shell_word(&self.merge()),
            shard = self.shard(),
        ))
    }

    fn parallel(&self) -> String {
        let line = |shard: Shard| format!("{} --shard {shard}\n", self.shard());
        let lines: String = Shard::all(self.shards).map(line).collect();
        format!("{}# Merge: {}\n{lines}", self.remarks(), self.merge())
    }

    fn mpi(&self) -> String {
        let shards = self.shards;
        format!(
            "#!/bin/sh\n\
             {remarks}\
             # Start it:   mpirun -n {shards} sh THIS-FILE   or   srun -n {shards} sh THIS-FILE\n\
             # Merge: {merge}\n\
             rank=${{OMPI_COMM_WORLD_RANK:-${{PMIX_RANK:-${{PMI_RANK:-${{SLURM_PROCID:-none}}}}}}}}\n\
             if [ \"$rank\" = none ] || [ \"$rank\" -ge {shards} ]; then\n  \
             echo \"rank: $rank, and not one of {shards}: start this with mpirun -n {shards} or srun -n {shards}\" >&2\n  \
             exit 1\n\
             fi\n\
             exec {shard} --shard \"$((rank + 1))/{shards}\"\n",
            remarks = self.remarks(),
            merge = self.merge(),
            shard = self.shard(),
        )
    }

    /// The command of a shard, up to its number.
    fn shard(&self) -> String {
        let check = if self.manner.no_memory_check { " --no-memory-check" } else { "" };
        format!("{} --results {} --threads {}{check}", self.command, self.results(), self.threads())
    }

    /// The command that merges.
    fn merge(&self) -> String {
        format!("{} --merge {}{}", self.command, self.results(), self.tables)
    }

    fn results(&self) -> String {
        shell_word(&self.directory.to_string_lossy())
    }

    fn threads(&self) -> u16 {
        self.manner.threads.unwrap_or(1)
    }

    /// What it is, and how it comes to its numbers.
    fn remarks(&self) -> String {
        let JobFile { runs, called, shards, .. } = self;
        let time = match (self.time(), self.minutes()) {
            (Some(time), Some(minutes)) => format!(
                "the longest shard takes about {:.1} s where this was written, by runs tried for some seconds; with a margin of \
                 {TIME_MARGIN} and a minute, {minutes} min",
                time.as_secs_f64()
            ),
            _ => "no estimate: it does not tell how far it is".to_string(),
        };
        format!(
            "# {runs} {called} in {shards} shards, {threads} at once in each. Written by {program}:\n\
             #   {command}\n\
             # Memory: the largest run takes about {largest:.0} MB; with a margin of {MEMORY_MARGIN}, {memory} MB for a shard.\n\
             # Time: {time}.\n",
            threads = self.threads(),
            largest = self.bytes as f64 / 1e6,
            memory = self.megabytes(),
            program = program(),
            command = command_line().replace('\n', " "),
        )
    }

    fn megabytes(&self) -> u64 {
        let bytes = self.bytes as f64 * MEMORY_MARGIN * f64::from(self.threads());
        ((bytes / f64::from(1 << 20)).ceil() as u64).max(LEAST_MB)
    }

    /// Of the longest shard.
    fn time(&self) -> Option<Duration> {
        needs::of_longest_shard(self.times.as_ref()?, self.shards, self.threads())
    }

    fn minutes(&self) -> Option<u64> {
        self.time().map(|time| ((time * TIME_MARGIN).as_secs() + 60).div_ceil(60))
    }

    /// Where Slurm writes what a shard says. It has quotes and patterns of its own.
    fn log(&self) -> anyhow::Result<String> {
        let directory = self.directory.display().to_string();
        if let Some(bad) = directory.chars().find(|&c| "\"'\\".contains(c) || c.is_control()) {
            bail!(
                "--results {directory}: Slurm cannot have {bad:?} in names of files: choose another directory"
            );
        }
        Ok(format!("\"{}/shard-%a.log\"", directory.replace('%', "%%")))
    }
}

fn job_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c } else { '-' };
    format!("srd-{}", name.chars().map(plain).take(60).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Manner = Manner { threads: Some(2), no_memory_check: false };

    fn job_file(directory: &str) -> JobFile<'_> {
        JobFile {
            name: "15:1, all",
            runs: 40,
            called: "runs",
            command: "srd sim sweep 'it'\\''s'".to_string(),
            tables: String::new(),
            directory: Path::new(directory),
            shards: 4,
            manner: &TWO,
            bytes: 100 << 20,
            times: Some(vec![Duration::from_secs(20); 40]),
        }
    }

    #[test]
    fn slurm_is_told_what_a_shard_needs() {
        let text = job_file("/r 100%").text(Kind::Slurm).unwrap();
        for line in [
            "#SBATCH --job-name=srd-15-1--all",
            "#SBATCH --array=1-4",
            "#SBATCH --cpus-per-task=2",
            "#SBATCH --mem=300M",
            "#SBATCH --time=6",
            "#SBATCH --output=\"/r 100%%/shard-%a.log\"",
            "exec srd sim sweep 'it'\\''s' --results '/r 100%' --threads 2 --shard \"$SLURM_ARRAY_TASK_ID/4\"",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
        assert!(job_file("/it's").text(Kind::Slurm).is_err());
        let unknown = JobFile { times: None, ..job_file("/r") }.text(Kind::Slurm).unwrap();
        assert!(!unknown.contains("--time"), "{unknown}");
        let small = JobFile { bytes: 1, ..job_file("/r") }.text(Kind::Slurm).unwrap();
        assert!(small.contains("#SBATCH --mem=64M\n"), "{small}");
    }

    #[test]
    fn each_shard_has_a_command() {
        let text = job_file("/r").text(Kind::Parallel).unwrap();
        let commands: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(commands.len(), 4);
        assert_eq!(commands[3], "srd sim sweep 'it'\\''s' --results /r --threads 2 --shard 4/4");
    }
}
