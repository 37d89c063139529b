//! What tables and figures call what was measured. An entry of a summary that is not listed here is shown under its own name.

use super::campaign::CaseResult;
use super::measure::Spread;
use super::plan::Experiment;
use srd_chart::plain;

/// See the module.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Column {
    /// Its name in a summary.
    pub name: &'static str,
    /// Above a column.
    pub title: &'static str,
    /// Above a figure, with the unit.
    pub words: &'static str,
    /// Digits after the point.
    pub digits: usize,
    /// Where it is shown.
    pub shown: Shown,
}

/// Where something is shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Shown {
    /// In the page's tables.
    OnPage,
    /// There and in a terminal's.
    InTables,
    /// There, and as a figure on the page.
    AsFigure,
}

const fn column(
    name: &'static str,
    title: &'static str,
    digits: usize,
    shown: Shown,
    words: &'static str,
) -> Column {
    Column { name, title, words, digits, shown }
}

/// All that is known, in the order of columns.
pub const COLUMNS: [Column; 25] = [
    column("last_by_ideal", "last/ideal", 3, Shown::AsFigure, "last arrival by the ideal"),
    column("last_by_first", "last/first", 2, Shown::AsFigure, "last arrival by the first"),
    column("first_ms", "first ms", 1, Shown::OnPage, "first arrival (ms)"),
    column("median_ms", "median ms", 1, Shown::OnPage, "median arrival (ms)"),
    column("last_ms", "last ms", 1, Shown::OnPage, "last arrival (ms)"),
    column("sum_mbps", "Mbit/s", 1, Shown::InTables, "payload of all flows together (Mbit/s)"),
    column("of_possible", "of possible", 3, Shown::AsFigure, "payload of all flows, of what is possible"),
    column("slowest_of_share", "slowest/share", 2, Shown::AsFigure, "slowest flow by an equal share"),
    column("longest_stall_ms", "stall ms", 1, Shown::AsFigure, "longest stall of a flow (ms)"),
    column("jain", "Jain", 3, Shown::AsFigure, "Jain's index while all flows go"),
    column("settled_ms", "settled ms", 0, Shown::AsFigure, "until all flows have their shares (ms)"),
    column(
        "off_share_percent",
        "off share %",
        1,
        Shown::InTables,
        "time in which flows are off their shares (%)",
    ),
    column("beside_mbps", "beside Mbit/s", 1, Shown::AsFigure, "payload of the flows beside (Mbit/s)"),
    column("mean_us", "alone us", 0, Shown::InTables, "an operation, alone (us)"),
    column("p99_us", "99 % us", 0, Shown::InTables, "an operation, alone, 99 % of them (us)"),
    column(
        "mean_by_alone",
        "beside/alone",
        2,
        Shown::AsFigure,
        "an operation beside the flows, by that alone",
    ),
    column("median_by_alone", "median", 2, Shown::OnPage, "the middle one beside the flows, by that alone"),
    column("p99_by_alone", "99 %", 2, Shown::AsFigure, "99 % of operations beside the flows, by those alone"),
    column(
        "mean_elsewhere_by_alone",
        "elsewhere/alone",
        2,
        Shown::AsFigure,
        "an operation while those flows are in another lab, by that alone",
    ),
    column(
        "p99_elsewhere_by_alone",
        "99 %",
        2,
        Shown::InTables,
        "99 % of operations while those flows are in another lab, by those alone",
    ),
    column("alone_s", "alone s", 2, Shown::InTables, "the program, alone (s)"),
    column("by_alone", "disturbed/alone", 2, Shown::AsFigure, "the program, disturbed, by that alone"),
    column(
        "elsewhere_by_alone",
        "elsewhere/alone",
        2,
        Shown::InTables,
        "the program while those flows are in another lab, by that alone",
    ),
    column("again_percent", "again %", 1, Shown::InTables, "packets retransmitted (%)"),
    column("cpu_percent", "CPU %", 0, Shown::InTables, "processors busy (%)"),
];

impl Column {
    /// The column of that name, if it is known.
    pub fn named(name: &str) -> Option<&'static Column> {
        COLUMNS.iter().find(|column| column.name == name)
    }

    /// What stands above the column of that name.
    pub fn title(name: &str) -> &str {
        Column::named(name).map_or(name, |column| column.title)
    }

    /// What it means, in words.
    pub fn words(name: &str) -> &str {
        Column::named(name).map_or(name, |column| column.words)
    }

    /// Whether it is shown there.
    pub fn is_shown(name: &str, shown: Shown) -> bool {
        Column::named(name).is_none_or(|column| column.shown >= shown)
    }
}

/// Names of what was measured of some of these, known ones first and in their order.
pub fn names<'a>(results: impl IntoIterator<Item = &'a CaseResult>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in results.into_iter().flat_map(|result| &result.summary) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let place = |name: &str| COLUMNS.iter().position(|column| column.name == name).unwrap_or(COLUMNS.len());
    names.sort_by_key(|name| place(name));
    names
}

/// The middle and the ends of what was measured, if it was.
pub fn spread(result: &CaseResult, name: &str) -> Option<Spread> {
    result.summary.iter().find(|(other, _)| other == name).map(|(_, spread)| *spread)
}

/// A cell: the middle, and in brackets the least and the most of several runs.
pub fn cell(result: &CaseResult, name: &str) -> String {
    let Some(Spread { median, least, most }) = spread(result, name) else { return "-".into() };
    let text = |value: f64| match Column::named(name) {
        Some(column) => format!("{value:.*}", column.digits),
        None => plain(value),
    };
    match result.runs.len() {
        1 => text(median),
        _ => format!("{} ({}-{})", text(median), text(least), text(most)),
    }
}

/// What a table has no column for, and a reader must know.
pub fn remarks(result: &CaseResult, experiment: &Experiment) -> Vec<String> {
    let CaseResult { transport, runs, .. } = result;
    let mut remarks = Vec::new();
    let incomplete: usize = runs.iter().map(|run| run.figures.incomplete).sum();
    if incomplete > 0 {
        remarks.push(format!("{transport}: {incomplete} flows did not finish"));
    }
    let wanted = experiment.cases.iter().find(|case| case.name == result.case).map(|case| &case.wanted);
    for (name, bound) in wanted.into_iter().flatten().filter(|_| transport == "srd") {
        let words = Column::words(name);
        match spread(result, name) {
            Some(Spread { median, .. }) if !bound.holds(median) => {
                remarks.push(format!("{transport}: {words}: {}, wanted: {bound}", plain(median)));
            }
            None if !runs.is_empty() => {
                remarks
                    .push(format!("{transport}: {words}: wanted, but there is no such figure of this case"));
            }
            _ => {}
        }
    }
    for different in runs.iter().filter_map(|run| run.figures.job.as_ref()?.different.as_ref()) {
        remarks.push(format!("{transport}: DIFFERENT ANSWERS: {different}"));
    }
    if let Some(why) = &result.failed {
        remarks.push(format!("{transport}: the experiment ended here: {why}"));
    } else if runs.is_empty() && result.discarded == 0 {
        remarks.push(format!("{transport}: not run, since the experiment ended before"));
    } else if runs.is_empty() {
        remarks.push(format!(
            "{transport}: no run counts; try again on a quieter machine, or with --most-cpu 100"
        ));
    }
    if let Some(busy) = runs.iter().find(|run| run.is_busy(experiment)) {
        let (cpu_percent, pause_ms) = (busy.cpu_percent, busy.longest_pause_ms);
        remarks.push(format!(
            "{transport}: the machine was never quiet enough; its last run stands, with processors busy for {cpu_percent:.0} % of \
             the time and the machine standing still for {pause_ms:.0} ms at most"
        ));
    }
    remarks
}
