//! Runs whose results lie in a directory: what is missing there is made, by one worker or by many, and a merge takes what
//! they have left.

use super::batch::{self, Manner};
use super::job_file::Kind;
use super::recording::shell_word;
use anyhow::bail;
use serde::Serialize;
use serde::de::DeserializeOwned;
use srd_sim::record;
use srd_sim::run::MemoryEstimate;
use srd_sim::sweep::{Found, Key, Results, Shard};
use std::fmt::{Debug, Display};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files that a message names.
const FEW: usize = 5;

/// How runs are shared.
#[derive(clap::Args, Debug)]
pub struct Sharing {
    /// Leave each result in a file of this directory, and run only what is not there
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
    /// Run only this part, and show nothing
    #[arg(long, value_name = "I/N", requires = "results")]
    pub shard: Option<Shard>,
    /// Run nothing: take all results from this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["results", "shard", "emit", "shards", "threads", "no_memory_check"])]
    pub merge: Option<PathBuf>,
    /// Run nothing: print what has others run the shards
    #[arg(long, value_name = "KIND", requires = "results", requires = "shards", conflicts_with = "shard")]
    pub emit: Option<Kind>,
    /// How many shards, with --emit
    #[arg(long, value_name = "N", requires = "emit", value_parser = clap::value_parser!(u32).range(1..))]
    pub shards: Option<u32>,
}

/// What is to be done with results.
pub enum Wanted {
    /// They are shown, and nothing is left behind.
    All,
    /// Those of a shard are left in a directory; those of all are shown, too, where no shard is named.
    Kept(Results, Option<Shard>),
    /// They are taken from a directory, and shown.
    Merged(Results),
    /// Others are to make them in the directory, in so many shards.
    Others(Results, Kind, u32),
}

impl Sharing {
    /// What is asked for.
    pub fn wanted(&self) -> anyhow::Result<Wanted> {
        Ok(match (&self.merge, &self.results, self.emit.zip(self.shards)) {
            (Some(directory), ..) => Wanted::Merged(Results::of(directory)),
            (_, Some(directory), Some((kind, shards))) => {
                let results = Results::of(&std::path::absolute(directory)?);
                results.make()?; // a job's first output goes there
                Wanted::Others(results, kind, shards)
            }
            (_, Some(directory), None) => Wanted::Kept(Results::of(directory), self.shard),
            (_, None, _) => Wanted::All,
        })
    }
}

/// Says what a worker has done that shows nothing else.
pub fn report<T>(shard: Shard, done: &Done<T>) {
    let (runs, left) = (done.results.all.len(), done.results.missing().len());
    let made = runs - left - done.there;
    eprintln!("srd: shard {shard}: of {runs} runs {} were there, {made} made, {left} left", done.there);
}

/// What the runs of a worker have come to.
pub struct Done<T> {
    /// In the order of their keys; `None` where an interrupt came first.
    pub results: batch::Results<T>,
    /// How many had been there before.
    pub there: usize,
}

/// Has a worker's runs in the directory, one under each key: those that are not there are run. `estimate`: what the largest of the runs
/// of these numbers needs.
pub fn complete<T, E>(
    results: &Results,
    shard: Shard,
    keys: &[Key],
    manner: &Manner,
    estimate: &dyn Fn(&[usize]) -> anyhow::Result<MemoryEstimate>,
    run: &srd_sim::sweep::batch::Job<'_, Result<T, E>>,
) -> anyhow::Result<Done<T>>
where
    T: Clone + Debug + DeserializeOwned + Send + Serialize,
    E: Into<anyhow::Error>,
{
    results.make()?;
    let lock = results.lock(shard)?;
    if lock.is_none() {
        eprintln!(
            "srd: no file can be locked in {}: see to it that no two workers have one shard",
            show(results)
        );
    }
    let mut all = there::<T>(results, keys)?;
    let missing =
        |all: &[Option<T>]| (0..all.len()).filter(|&number| all[number].is_none()).collect::<Vec<_>>();
    let todo = missing(&all);
    let there = all.len() - todo.len();
    let broken = AtomicBool::new(false);
    let one = |place: usize, watch: &mut dyn FnMut(f64) -> bool| {
        let mut watch = |done| watch(done) && !broken.load(Ordering::Relaxed);
        let made = watch(0.0).then(|| run(todo[place], &mut watch))??;
        let kept = made.map_err(E::into).and_then(|made| {
            results.keep(&keys[todo[place]], shard, &made)?;
            Ok(made)
        });
        broken.fetch_or(kept.is_err(), Ordering::Relaxed);
        Some(kept)
    };
    let made = batch::run_all(todo.len(), manner, &estimate(&todo)?, &one)?;
    let mut errors = Vec::new();
    for (&number, made) in todo.iter().zip(made.all) {
        match made {
            Some(Ok(made)) => all[number] = Some(made),
            Some(Err(error)) => errors.push(error),
            None => {}
        }
    }
    if let Some(error) = errors.into_iter().next() {
        let finished = all.len() - missing(&all).len();
        return Err(error.context(format!(
            "stopped with {finished} of {} runs in {}, which stay there, and the same command does the rest",
            all.len(),
            show(results)
        )));
    }
    Ok(Done { results: batch::Results { all }, there })
}

/// What there is under each of some keys, and what is wrong with the rest, by the names of files.
struct Looked<T> {
    all: Vec<Option<T>>,
    missing: Vec<String>,
    damaged: Vec<(String, &'static str)>,
    foreign: Vec<String>,
}

fn look<T: DeserializeOwned>(results: &Results, keys: &[Key]) -> anyhow::Result<Looked<T>> {
    let (mut all, mut missing, mut damaged, mut foreign) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for key in keys {
        let file = key.file();
        all.push(match results.find(key)? {
            Found::Whole(result) => Some(result),
            other => {
                match other {
                    Found::Damaged(how) => damaged.push((file, how)),
                    Found::Foreign(whose) => foreign.push(format!("{file} ({whose})")),
                    _ => missing.push(file),
                }
                None
            }
        });
    }
    Ok(Looked { all, missing, damaged, foreign })
}

/// What is there already. What another program has left there must not be mixed with what this one makes.
fn there<T: DeserializeOwned>(results: &Results, keys: &[Key]) -> anyhow::Result<Vec<Option<T>>> {
    let Looked { all, damaged, foreign, .. } = look(results, keys)?;
    for (file, how) in damaged {
        eprintln!("srd: {}: {how}: run again", results.directory().join(file).display());
    }
    if !foreign.is_empty() {
        bail!(
            "{} has results that are not this program's, {}: {}. Take another directory, or remove them",
            show(results),
            record::program(),
            few(&foreign)
        );
    }
    Ok(all)
}

/// All results, one under each key, or everything that is wrong with them. `command` does all of it.
pub fn merge<T: DeserializeOwned>(results: &Results, keys: &[Key], command: &str) -> anyhow::Result<Vec<T>> {
    if !results.directory().is_dir() {
        bail!("{} is no directory: --merge takes the one that --results named", show(results));
    }
    let Looked { all, missing, damaged, foreign } = look(results, keys)?;
    let mut wrong = Vec::new();
    let mut say = |names: &[String], what: &str, remedy: &dyn Display| {
        if !names.is_empty() {
            wrong.push(format!("\n  {} {what}: {}\n    {remedy}", names.len(), few(names)));
        }
    };
    let directory = shell_word(&results.directory().to_string_lossy());
    let makes = format!("made by: {command} --results {directory} --shard 1/1");
    say(&missing, "missing", &makes);
    let damaged: Vec<String> = damaged.into_iter().map(|(file, how)| format!("{file} ({how})")).collect();
    say(&damaged, "damaged", &makes);
    let ours =
        format!("this program is {}: merge with theirs, or remove them and run again", record::program());
    say(&foreign, "not this program's", &ours);
    if !wrong.is_empty() {
        bail!("{} does not have the results of all {} runs:{}", show(results), keys.len(), wrong.concat());
    }
    Ok(all.into_iter().flatten().collect())
}

fn show(results: &Results) -> impl Display {
    results.directory().display()
}

/// The first few of some names.
fn few(names: &[String]) -> String {
    let more = match names.len().saturating_sub(FEW) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    names[..names.len().min(FEW)].join(", ") + &more
}
