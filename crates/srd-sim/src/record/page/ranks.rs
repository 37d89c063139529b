//! The page of a program that has run on simulated fabrics: what its ranks did when, and how long its calls of MPI took, over each transport.

use super::super::calls::{CALLS, TIMELINE};
use super::super::folder::Folder;
use super::super::{GOAL, OUTCOME, PAGE, TRACE, program};
use super::{grouped, plain_us};
use crate::input::Scenario;
use crate::run::Lived;
use srd_baselines::input::counted;
use srd_chart::{Axis, Chart, END, beginning, escape, figure, plain};
use srd_virtual::Call;
use srd_virtual::calls::FORMS;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

/// A run of a program's ranks.
#[derive(Clone, Copy, Debug)]
pub struct RanksRun<'a> {
    /// The transport's name, if the program ran over several.
    pub name: Option<&'a str>,
    /// Where it ran.
    pub scenario: &'a Scenario,
    /// What became of it.
    pub lived: &'a Lived,
}

/// A job's part in a run.
struct Part<'a> {
    /// `, job 1` where there are several.
    suffix: String,
    number: usize,
    /// The calls of its ranks.
    calls: &'a [Vec<Call>],
}

impl RanksRun<'_> {
    fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.lived.jobs.all().enumerate().map(|(number, ranks)| Part {
            suffix: if self.lived.jobs.are_several() { format!(", job {number}") } else { String::new() },
            number,
            calls: &self.lived.calls[ranks.start as usize..ranks.end as usize],
        })
    }
}

/// Most ranks that a figure has, evenly chosen.
const MOST_RANKS: usize = 64;
/// Most functions of a table, the longest first.
const MOST_FUNCTIONS: usize = 12;

/// Kinds of calls, by colour.
const KINDS: [&str; 4] = ["point to point", "collective", "one-sided", "polls, and others"];

fn kind_of(call: &Call) -> usize {
    let form = FORMS[usize::from(call.kind)];
    let name = form.name.trim_start_matches("MPI_");
    const MESSAGES: [&str; 6] = ["end", "ecv", "Wait", "robe", "Start", "Sendrecv"];
    match name {
        _ if form.polls || name == "Finalize" => 3,
        _ if name.starts_with("Win")
            || ["Put", "Get", "Acc", "Rput", "Rget", "Fetch", "Compare"]
                .iter()
                .any(|it| name.starts_with(it)) =>
        {
            2
        }
        _ if name.starts_with("Comm") || name.starts_with("Cart") => 1,
        _ if MESSAGES.iter().any(|it| name.contains(it)) => 0,
        _ => 1,
    }
}

/// Times of one function.
#[derive(Default)]
struct Times {
    all: Vec<u64>,
    bytes: u64,
}

/// Writes the page.
pub fn write_ranks_page(dir: &Path, runs: &[RanksRun<'_>], command: &str) -> io::Result<()> {
    let Some(first_run) = runs.first() else { return Ok(()) };
    let hosts = first_run.scenario.topology.hosts;
    let summary =
        format!("{} on a fabric of {}", first_run.lived.jobs.summary(), counted(u64::from(hosts), "host"));
    let mut out = beginning(&first_run.scenario.settings.name, &summary);
    let from = format!(
        "<p class=\"from\">{}, seed {} &middot; <code>{}</code> &middot; {}</p>\n",
        escape(&first_run.scenario.settings.name),
        first_run.scenario.settings.seed,
        escape(command),
        escape(&program())
    );
    for run in runs {
        let over = run.name.map_or_else(String::new, |name| format!("{name}: "));
        for complaint in run.lived.gave_up.iter().chain(&run.lived.complaints) {
            let _ = writeln!(out, "<p class=\"complaint\">{}</p>", escape(&format!("{over}{complaint}")));
        }
    }
    outcomes(&mut out, runs);
    out.push_str("<h2>What ranks did when</h2>\n<div class=\"figures\">\n");
    // One scale for all, so that they can be held against each other.
    let longest = runs.iter().map(|run| last(&run.lived.calls)).max().unwrap_or(0);
    for run in runs {
        for part in run.parts() {
            let title = run.name.unwrap_or("Calls of MPI").to_string() + &part.suffix;
            let span = (first(&run.lived.calls), longest);
            out.push_str(&figure(&title, &timeline(part.calls, span), &caption(part.calls.len()), &from));
        }
    }
    out.push_str("</div>\n");
    functions(&mut out, runs);
    out.push_str("<h2>Files</h2>\n<ul>\n");
    for run in runs {
        let folder = run.name.filter(|_| runs.len() > 1).map_or_else(String::new, |name| format!("{name}/"));
        for (file, what) in [
            (OUTCOME, "the outcome"),
            (CALLS.file, "the calls of MPI"),
            (TIMELINE, "the same for ui.perfetto.dev and chrome://tracing"),
            (TRACE, "what befell messages and packets: srd trace reads it"),
            (GOAL, "the messages, to be played on other fabrics"),
        ] {
            if dir.join(&folder).join(file).exists() {
                let _ = writeln!(out, "<li><a href=\"{folder}{file}\">{folder}{file}</a>: {what}");
            }
        }
    }
    out.push_str("</ul>\n");
    out.push_str(END);
    Folder::open(dir)?.write(PAGE, &out)
}

/// When the last call returned.
fn last(calls: &[Vec<Call>]) -> u64 {
    calls.iter().flatten().map(|call| call.ended).max().unwrap_or(0)
}

/// When the first one began.
fn first(calls: &[Vec<Call>]) -> u64 {
    calls.iter().flatten().map(|call| call.began).min().unwrap_or(0)
}

fn outcomes(out: &mut String, runs: &[RanksRun<'_>]) {
    out.push_str(
        "<h2>Outcome</h2>\n<div class=\"wide\"><table>\n<tr><th>Transport<th>from the first call to the last<th>in MPI, of all ranks' time<th>packets with \
         data<th>sent again<th>dropped</tr>\n",
    );
    for (run, part) in runs.iter().flat_map(|run| run.parts().map(move |part| (run, part))) {
        let (calls, outcome) = (part.calls, &run.lived.outcome);
        // They are those of all jobs.
        let packets = |count| if part.number == 0 { grouped(count) } else { String::new() };
        let whole = last(calls) - first(calls);
        let inside: u64 = calls.iter().flatten().map(|call| call.ended - call.began).sum();
        let share = inside as f64 / (whole.max(1) * calls.len().max(1) as u64) as f64;
        let _ = writeln!(
            out,
            "<tr><td>{}<td>{} us<td>{} %<td>{}<td>{}<td>{}</tr>",
            escape(&(run.name.unwrap_or(&outcome.transport).to_string() + &part.suffix)),
            plain_us(whole as f64 / 1e3),
            plain((share * 1000.0).round() / 10.0),
            packets(outcome.packets_new),
            packets(outcome.packets_rtx),
            packets(outcome.packets_dropped),
        );
    }
    out.push_str("</table></div>\n");
}

fn caption(ranks: usize) -> String {
    let chosen = match ranks > MOST_RANKS {
        true => format!(" {MOST_RANKS} of {ranks} ranks, evenly chosen."),
        false => String::new(),
    };
    format!("In which calls of MPI each rank was. Between them it computed, or slept.{chosen}")
}

fn timeline(calls: &[Vec<Call>], (begin, longest): (u64, u64)) -> String {
    let ranks = calls.len();
    let shown = ranks.min(MOST_RANKS);
    let chosen: Vec<usize> = (0..shown).map(|n| n * ranks / shown.max(1)).collect();
    let (unit, nanos) = match longest.saturating_sub(begin) {
        2_000_000_000.. => ("s", 1e9),
        2_000_000.. => ("ms", 1e6),
        _ => ("us", 1e3),
    };
    let at = |time: u64| time.saturating_sub(begin) as f64 / nanos;
    let x = Axis::new(format!("time since the first call ({unit})"), 0.0, at(longest));
    let y = Axis::new("rank", -0.5, ranks as f64 - 0.5);
    let mut chart = Chart::new("Calls of MPI", x, y);
    let high = 0.8 * ranks as f64 / shown.max(1) as f64;
    for (kind, name) in KINDS.into_iter().enumerate() {
        let of_kind = |&rank: &usize| {
            let own = calls[rank].iter().filter(move |call| kind_of(call) == kind);
            own.map(move |call| (rank as f64, at(call.began), at(call.ended)))
        };
        let mut stripes = chosen.iter().flat_map(of_kind).peekable();
        if stripes.peek().is_some() {
            chart.stripes(name, high, stripes);
        }
    }
    chart.html()
}

/// How long calls took, by function.
fn functions(out: &mut String, runs: &[RanksRun<'_>]) {
    out.push_str(
        "<h2>Calls by function</h2>\n<div class=\"wide\"><table>\n<tr><th>Transport<th>function<th>calls<th>of all ranks' time in MPI<th>mean us<th>99 % \
         us<th>most us<th>mean bytes</tr>\n",
    );
    for (run, part) in runs.iter().flat_map(|run| run.parts().map(move |part| (run, part))) {
        let mut times: BTreeMap<u16, Times> = BTreeMap::new();
        for call in part.calls.iter().flatten() {
            let of = times.entry(call.kind).or_default();
            of.all.push(call.ended - call.began);
            of.bytes += call.bytes;
        }
        let mut all: Vec<(u64, u16, Times)> =
            times.into_iter().map(|(kind, times)| (times.all.iter().sum(), kind, times)).collect();
        all.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let whole: u64 = all.iter().map(|(sum, ..)| sum).sum();
        for (sum, kind, mut times) in all.into_iter().take(MOST_FUNCTIONS) {
            times.all.sort_unstable();
            let count = times.all.len();
            let us = |nanos: u64| plain(nanos as f64 / 1e3);
            let _ = writeln!(
                out,
                "<tr><td>{}<td>{}<td>{}<td>{} %<td>{}<td>{}<td>{}<td>{}</tr>",
                escape(&(run.name.unwrap_or(&run.lived.outcome.transport).to_string() + &part.suffix)),
                FORMS[usize::from(kind)].name,
                grouped(count as u64),
                plain((sum as f64 / whole.max(1) as f64 * 1000.0).round() / 10.0),
                us(sum / count as u64),
                us(times.all[(count * 99).div_ceil(100) - 1]),
                us(times.all[count - 1]),
                if times.bytes > 0 { grouped(times.bytes / count as u64) } else { String::new() },
            );
        }
    }
    out.push_str("</table></div>\n");
}
