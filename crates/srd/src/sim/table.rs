//! Outcomes as people read them: a line of times for each run, what packets did, what it took.

use srd_sim::outcome::{OfWorkload, Outcome, Times};

/// A column: its head, and what it shows of an outcome.
struct Column {
    head: &'static str,
    show: fn(&Outcome) -> String,
}

fn time(outcome: &Outcome, of: fn(&Times) -> f64) -> String {
    outcome.fct_us.as_ref().map(of).map_or_else(dash, |us| format!("{us:.1}"))
}

fn dash() -> String {
    "-".to_string()
}

fn ratio(outcome: &Outcome) -> String {
    match (&outcome.fct_us, outcome.ideal_us) {
        (Some(times), Some(ideal)) if ideal > 0.0 => format!("{:.3}", times.max / ideal),
        _ => dash(),
    }
}

const COLUMNS: &[Column] = &[
    Column { head: "seed", show: |o| o.seed.to_string() },
    Column { head: "min", show: |o| time(o, |times| times.min) },
    Column { head: "p50", show: |o| time(o, |times| times.p50) },
    Column { head: "mean", show: |o| time(o, |times| times.mean) },
    Column { head: "p99", show: |o| time(o, |times| times.p99) },
    Column { head: "max", show: |o| time(o, |times| times.max) },
    Column { head: "ideal", show: |o| o.ideal_us.map_or_else(dash, |us| format!("{us:.1}")) },
    Column { head: "max/ideal", show: ratio },
    Column { head: "spread", show: |o| o.spread.map_or_else(dash, |spread| format!("{spread:.3}")) },
    Column { head: "new", show: |o| o.packets_new.to_string() },
    Column { head: "again", show: |o| o.packets_rtx.to_string() },
    Column { head: "dropped", show: |o| o.packets_dropped.to_string() },
    Column { head: "lost", show: |o| o.packets_lost.to_string() },
    Column { head: "hops", show: |o| o.packet_hops.to_string() },
    Column { head: "events/s", show: |o| short(o.cost.events_per_cpu_s) },
    Column { head: "packets/s", show: |o| short(o.cost.packets_per_cpu_s) },
];

/// A rate with three digits: `8.13 M`, `331 k`.
fn short(rate: f64) -> String {
    match rate {
        r if r >= 9.995e6 => format!("{:.1} M", r / 1e6),
        r if r >= 1e6 => format!("{:.2} M", r / 1e6),
        r if r >= 1e3 => format!("{:.0} k", r / 1e3),
        r => format!("{r:.0}"),
    }
}

/// All runs of one scenario, none of them missing.
pub fn describe(outcomes: &[&Outcome]) -> String {
    let Some(first) = outcomes.first() else { return String::new() };
    let cells: Vec<Vec<String>> = outcomes
        .iter()
        .map(|outcome| COLUMNS.iter().map(|column| (column.show)(outcome)).collect())
        .collect();
    let widths: Vec<usize> = COLUMNS
        .iter()
        .enumerate()
        .map(|(n, column)| cells.iter().map(|row| row[n].len()).max().unwrap_or(0).max(column.head.len()))
        .collect();
    let line = |row: Vec<&str>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(text, width)| format!("{text:>width$}")).collect();
        format!("{}\n", cells.join("  "))
    };
    let mut text = format!(
        "{}, {}: {} flows between {} hosts; completion times in us, events and packets per CPU second\n\n",
        first.scenario, first.transport, first.flows, first.hosts
    );
    text += &line(COLUMNS.iter().map(|column| column.head).collect());
    for row in &cells {
        text += &line(row.iter().map(String::as_str).collect());
    }
    if first.workloads.len() > 1 {
        text += "\n";
        outcomes.iter().for_each(|outcome| text += &workloads(outcome));
    }
    outcomes.iter().for_each(|outcome| text += &programs(outcome));
    text + &cost(outcomes)
}

/// A line for each thing that a program measured.
fn programs(outcome: &Outcome) -> String {
    let mut text = String::new();
    for program in &outcome.programs {
        text += &format!("\nseed {}, {}: {} ranks\n", outcome.seed, program.name, program.ranks);
        for of in &program.figures {
            text += &format!(
                "  {} ({}): mean {:.3}, least {:.3}, 99 of 100 within {:.3}, most {:.3}; {} in number\n",
                of.what, of.unit, of.mean, of.least, of.p99, of.most, of.count
            );
        }
    }
    text
}

/// A line for each workload of a run that has several.
fn workloads(outcome: &Outcome) -> String {
    let line = |of: &OfWorkload| {
        let times = match &of.fct_us {
            Some(times) => format!("median {:.1} us, longest {:.1} us, ", times.p50, times.max),
            None => String::new(),
        };
        let flows = match of.goodput_of_flows_gbps {
            Some((least, most)) => format!(" ({least:.3} to {most:.3} each)"),
            None => String::new(),
        };
        format!(
            "seed {}, {} ({}): {} flows, {times}{:.3} Gb/s{flows}\n",
            outcome.seed, of.name, of.transport, of.flows, of.goodput_gbps
        )
    };
    outcome.workloads.iter().map(line).collect()
}

/// What all runs took together.
fn cost(outcomes: &[&Outcome]) -> String {
    let cpu: f64 = outcomes.iter().map(|outcome| outcome.cost.cpu_s).sum();
    let memory = outcomes.iter().map(|outcome| outcome.cost.rss_mb).fold(0.0, f64::max);
    let simulated = match outcomes {
        [one] => format!("{:.1} us simulated in ", one.sim_us),
        _ => String::new(),
    };
    format!("\n{simulated}{cpu:.2} s of CPU time, at most {memory:.0} MB of memory\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        for (rate, text) in
            [(12.0, "12"), (33_123.0, "33 k"), (8_126_000.0, "8.13 M"), (43_210_000.0, "43.2 M")]
        {
            assert_eq!(short(rate), text);
        }
    }

    #[test]
    fn a_run_without_an_end_has_no_times() {
        let text = describe(&[&Outcome { scenario: "endless".into(), ..Outcome::default() }]);
        assert!(text.starts_with("endless"), "{text}");
        assert!(text.lines().nth(3).unwrap().contains("  -  "), "{text}");
    }
}
