//! `srd figures`: what others have published, made again, as one page.

use crate::output;
use crate::sim::batch::{self, Manner, Results};
use crate::sim::job_file::JobFile;
use crate::sim::needs::Needs;
use crate::sim::recording::{command_line, shell_word};
use crate::sim::shards::{self, Sharing, Wanted};
use anyhow::Context;
use srd_sim::figures::{self, Drawn, Figure, GROUPS, Group};
use srd_sim::record;
use srd_sim::run::MemoryEstimate;
use srd_sim::sweep::{Key, Shard};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The page's file, and that of the numbers in it.
const PAGE: &str = "index.html";
const DATA: &str = "figures.json";

const EXAMPLES: &str = "\
Examples:
  srd figures --list                         what there is, and where it was published
  srd figures --out figures                  all of them, as figures/index.html and figures.json
  srd figures rack-to-rack --out /tmp/f      one of them
  srd figures srd-paper efa --out /tmp/f     all of two publications
  srd figures --quick --out /tmp/f           all of them, coarser, in a tenth of the time
  srd figures --results DIR --shard 2/8      the second of eight parts, anywhere (docs/CLUSTER.md)
  srd figures --merge DIR --out figures      the page of what they have come to

Exit code: 0 if all went well, 1 if something failed, 130 after an interrupt: the page then has what is finished.";

/// Arguments of `srd figures`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Which figures, by their names or by those of groups [default: all]
    #[arg(value_name = "NAME", value_parser = named)]
    names: Vec<Named>,
    /// Write the page into this directory
    #[arg(long, value_name = "DIR", required_unless_present_any = ["list", "shard", "emit"], conflicts_with_all = ["shard", "emit"])]
    out: Option<PathBuf>,
    /// Fewer and shorter runs: the shape, in a tenth of the time
    #[arg(long)]
    quick: bool,
    /// List the figures and their groups instead
    #[arg(long, conflicts_with_all = ["names", "out", "quick", "results", "merge"])]
    list: bool,
    #[command(flatten)]
    sharing: Sharing,
    #[command(flatten)]
    manner: Manner,
}

/// What a name stands for.
#[derive(Clone, Debug)]
struct Named(Vec<&'static Figure>);

fn named(name: &str) -> Result<Named, String> {
    if let Some(figure) = Figure::named(name) {
        return Ok(Named(vec![figure]));
    }
    if let Some(group) = Group::named(name) {
        return Ok(Named(group.figures.clone()));
    }
    let groups: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
    let names: Vec<&str> = figures::all().map(|figure| figure.name).collect();
    let wrong: String = figures::wrong().iter().map(|wrong| format!("; not read: {wrong}")).collect();
    Err(format!("there are the groups {}, and the figures {}{wrong}", groups.join(", "), names.join(", ")))
}

/// Those that were named, each once and in the order of the page; all without a name.
fn wanted(names: &[Named]) -> Vec<&'static Figure> {
    let is_named =
        |figure: &Figure| names.iter().any(|Named(of)| of.iter().any(|other| other.name == figure.name));
    figures::all().filter(|figure| names.is_empty() || is_named(figure)).collect()
}

/// Makes them and writes the page.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    figures::wrong().iter().for_each(|wrong| eprintln!("srd: error: {wrong}"));
    if args.list {
        return list();
    }
    let wanted = wanted(&args.names);
    let estimate = MemoryEstimate::default();
    let one = |number: usize, watch: &mut dyn FnMut(f64) -> bool| wanted[number].make(args.quick, watch);
    let keys = || wanted.iter().map(|figure| figure.key(args.quick)).collect::<Vec<_>>();
    match args.sharing.wanted()? {
        Wanted::All => present(args, &wanted, &batch::run_all(wanted.len(), &args.manner, &estimate, &one)?),
        Wanted::Merged(results) => {
            let drawn = shards::merge(&results, &keys(), &command(args, "srd"))?;
            present(args, &wanted, &Results { all: drawn.into_iter().map(Some).collect() })
        }
        Wanted::Kept(results, named) => {
            let shard = named.unwrap_or(Shard::WHOLE);
            let numbers: Vec<usize> = (0..wanted.len()).filter(|&number| shard.holds(number)).collect();
            let keys: Vec<Key> = numbers.iter().map(|&number| wanted[number].key(args.quick)).collect();
            let done = shards::complete(
                &results,
                shard,
                &keys,
                &args.manner,
                &|_| Ok(estimate.clone()),
                &|number, watch| Some(anyhow::Ok(one(numbers[number], watch)?)),
            )?;
            if named.is_none() {
                return present(args, &wanted, &done.results);
            }
            shards::report(shard, &done);
            Ok(done.results.conclude(&|number| wanted[numbers[number]].name.to_string(), false))
        }
        Wanted::Others(results, kind, shards) => {
            let program = std::env::current_exe()?;
            let page = results.directory().join("page");
            let runs: Vec<_> = wanted.iter().map(|figure| figure.runs(args.quick)).collect();
            let counts: Vec<usize> = runs.iter().map(Vec::len).collect();
            let needs = Needs::of(&counts, &|figure, run| Ok(runs[figure][run].scenario()))?;
            let of_figures =
                |times: Vec<Vec<Duration>>| times.iter().map(|of_runs| of_runs.iter().sum()).collect();
            let job_file = JobFile {
                name: "figures",
                runs: wanted.len(),
                called: "figures",
                command: command(args, &program.to_string_lossy()),
                tables: format!(" --out {}", shell_word(&page.to_string_lossy())),
                directory: results.directory(),
                shards,
                manner: &args.manner,
                bytes: needs.bytes,
                times: needs.times.map(of_figures),
            };
            output::text(&job_file.text(kind)?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn list() -> anyhow::Result<ExitCode> {
    for group in GROUPS.iter() {
        let rows = group.figures.iter();
        let rows = rows.map(|figure| (figure.name, format!("{} ({})", figure.title, figure.source)));
        output::text(&format!("{}:\n{}", group.name, output::columns(rows)))?;
    }
    Ok(if figures::wrong().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The command that makes them.
fn command(args: &Args, program: &str) -> String {
    let named = wanted(&args.names).into_iter().filter(|_| !args.names.is_empty());
    let names: String = named.map(|figure| format!(" {}", figure.name)).collect();
    format!("{} figures{names}{}", shell_word(program), if args.quick { " --quick" } else { "" })
}

/// Writes the page of those that are made.
fn present(args: &Args, wanted: &[&'static Figure], results: &Results<Drawn>) -> anyhow::Result<ExitCode> {
    let out = args.out.as_ref().context("--out DIR says where the page goes")?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let drawn: Vec<_> = wanted
        .iter()
        .zip(&results.all)
        .filter_map(|(&figure, drawn)| Some((figure, drawn.clone()?)))
        .collect();
    for (figure, drawn) in &drawn {
        drawn.complaints.iter().for_each(|complaint| eprintln!("srd: {}: {complaint}", figure.name));
    }
    if !drawn.is_empty() {
        let (command, program) = (command_line(), record::program());
        let data = serde_json::to_string_pretty(&figures::data(&drawn, &command, &program))?;
        for (name, text) in [(PAGE, figures::page(&drawn, &command, &program)), (DATA, data + "\n")] {
            let path = out.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            output::text(&format!("{}\n", path.display()))?;
        }
    }
    let failed = !figures::wrong().is_empty() || drawn.iter().any(|(_, drawn)| !drawn.complaints.is_empty());
    Ok(results.conclude(&|number| wanted[number].name.to_string(), failed))
}
