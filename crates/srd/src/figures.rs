//! `srd figures`: what others have published, made again, as one page.

use crate::output;
use crate::sim::batch::{self, Manner};
use crate::sim::recording::command_line;
use anyhow::Context;
use srd_sim::figures::{self, Figure, GROUPS, Group};
use srd_sim::record;
use srd_sim::run::MemoryEstimate;
use std::path::PathBuf;
use std::process::ExitCode;

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

Exit code: 0 if all went well, 1 if something failed, 130 after an interrupt: the page then has what is finished.";

/// Arguments of `srd figures`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Which figures, by their names or by those of groups [default: all]
    #[arg(value_name = "NAME", value_parser = named)]
    names: Vec<Named>,
    /// Write the page into this directory
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    out: Option<PathBuf>,
    /// Fewer and shorter runs: the shape, in a tenth of the time
    #[arg(long)]
    quick: bool,
    /// List the figures and their groups instead
    #[arg(long, conflicts_with_all = ["names", "out", "quick"])]
    list: bool,
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
    let incomplete = !figures::wrong().is_empty();
    let Some(out) = args.out.as_ref().filter(|_| !args.list) else {
        for group in GROUPS.iter() {
            let rows = group.figures.iter();
            let rows = rows.map(|figure| (figure.name, format!("{} ({})", figure.title, figure.source)));
            output::text(&format!("{}:\n{}", group.name, output::columns(rows)))?;
        }
        return Ok(if incomplete { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    };
    let wanted = wanted(&args.names);
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let results =
        batch::run_all(wanted.len(), &args.manner, &MemoryEstimate::default(), &|number, watch| {
            wanted[number].make(args.quick, watch)
        })?;
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
    let failed = incomplete || drawn.iter().any(|(_, drawn)| !drawn.complaints.is_empty());
    Ok(results.conclude(&|number| wanted[number].name.to_string(), failed))
}
