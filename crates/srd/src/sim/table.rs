//! Outcomes as people read them: a line of times for each run, what packets did, what it took.

use srd_sim::run::{OfWorkload, Outcome, Times};

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

/// Of which run.
const RUN: Column = Column { head: "seed", show: |o| o.seed.to_string() };
/// Completion times.
const TIMES: &[Column] = &[
    Column { head: "min", show: |o| time(o, |times| times.min) },
    Column { head: "p50", show: |o| time(o, |times| times.p50) },
    Column { head: "mean", show: |o| time(o, |times| times.mean) },
    Column { head: "p99", show: |o| time(o, |times| times.p99) },
    Column { head: "max", show: |o| time(o, |times| times.max) },
    Column { head: "ideal", show: |o| o.ideal_us.map_or_else(dash, |us| format!("{us:.1}")) },
    Column { head: "max/ideal", show: ratio },
    Column { head: "spread", show: |o| o.spread.map_or_else(dash, |spread| format!("{spread:.3}")) },
];
/// What flows without end come to.
const RATES: &[Column] = &[
    Column {
        head: "Gb/s",
        show: |o| format!("{:.3}", o.workloads.iter().map(|of| of.goodput_gbps).sum::<f64>()),
    },
    Column {
        head: "least",
        show: |o| format!("{:.3}", rates(o).map(|(least, _)| least).fold(f64::MAX, f64::min)),
    },
    Column { head: "most", show: |o| format!("{:.3}", rates(o).map(|(_, most)| most).fold(0.0, f64::max)) },
];
/// Packets, and what the run took.
const PACKETS: &[Column] = &[
    Column { head: "new", show: |o| o.packets_new.to_string() },
    Column { head: "again", show: |o| o.packets_rtx.to_string() },
    Column { head: "dropped", show: |o| o.packets_dropped.to_string() },
    Column { head: "lost", show: |o| o.packets_lost.to_string() },
    Column { head: "hops", show: |o| o.packet_hops.to_string() },
    Column { head: "events/s", show: |o| short(o.cost.events_per_cpu_s) },
    Column { head: "packets/s", show: |o| short(o.cost.packets_per_cpu_s) },
];

/// Least and greatest goodput of a flow without end, of each workload that has such.
fn rates(outcome: &Outcome) -> impl Iterator<Item = (f64, f64)> + '_ {
    outcome.workloads.iter().filter_map(|of| of.goodput_of_flows_gbps)
}

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
    // All of them are of one scenario: flows have an end in each or in none.
    let endless = outcomes.iter().all(|outcome| outcome.fct_us.is_none() && rates(outcome).next().is_some());
    let (what, first_columns) = match endless {
        true => ("goodput in Gb/s of all flows, and of the slowest and the fastest", RATES),
        false => ("completion times in us", TIMES),
    };
    let columns: Vec<&Column> = [&RUN].into_iter().chain(first_columns).chain(PACKETS).collect();
    let cells: Vec<Vec<String>> = outcomes
        .iter()
        .map(|outcome| columns.iter().map(|column| (column.show)(outcome)).collect())
        .collect();
    let widths: Vec<usize> = columns
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
        "{}, {}: {} flows between {} hosts; {what}, events and packets per CPU second\n\n",
        first.scenario, first.transport, first.flows, first.hosts
    );
    text += &line(columns.iter().map(|column| column.head).collect());
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
    fn flows_without_end_have_rates() {
        let of = |goodput_gbps, least, most| OfWorkload {
            goodput_gbps,
            goodput_of_flows_gbps: Some((least, most)),
            ..OfWorkload::default()
        };
        let workloads = vec![of(50.0, 12.0, 13.5), of(40.0, 9.25, 11.0)];
        let text = describe(&[&Outcome { workloads, ..Outcome::default() }]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[2][..4], ["seed", "Gb/s", "least", "most"], "{text}");
        assert_eq!(lines[3][..4], ["0", "90.000", "9.250", "13.500"], "{text}");
    }

    #[test]
    fn a_run_without_an_end_has_no_times() {
        let text = describe(&[&Outcome { scenario: "endless".into(), ..Outcome::default() }]);
        assert!(text.starts_with("endless"), "{text}");
        assert!(text.lines().nth(3).unwrap().contains("  -  "), "{text}");
    }
}
