//! Outcomes as comma-separated values: one line for each run, the columns of its JSON.

use super::{Row, Sweep};
use crate::record::quoted;
use crate::run::{Outcome, Times};
use std::fmt::Write;

type Column = (&'static str, fn(&Outcome) -> String);

fn time(outcome: &Outcome, of: fn(&Times) -> f64) -> String {
    outcome.fct_us.as_ref().map(of).map_or_else(String::new, |us| us.to_string())
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Columns and what they hold; names are those of the JSON, a point written as `_`.
const COLUMNS: &[Column] = &[
    ("scenario", |o| quoted(&o.scenario).into_owned()),
    ("transport", |o| quoted(&o.transport).into_owned()),
    ("hosts", |o| o.hosts.to_string()),
    ("flows", |o| o.flows.to_string()),
    ("finished", |o| o.finished.to_string()),
    ("failed", |o| o.failed.to_string()),
    ("fct_us_min", |o| time(o, |times| times.min)),
    ("fct_us_p50", |o| time(o, |times| times.p50)),
    ("fct_us_mean", |o| time(o, |times| times.mean)),
    ("fct_us_p99", |o| time(o, |times| times.p99)),
    ("fct_us_max", |o| time(o, |times| times.max)),
    ("ideal_us", |o| number(o.ideal_us)),
    ("spread", |o| number(o.spread)),
    ("packets_new", |o| o.packets_new.to_string()),
    ("packets_rtx", |o| o.packets_rtx.to_string()),
    ("packets_spurious", |o| o.packets_spurious.to_string()),
    ("packets_bare", |o| o.packets_bare.to_string()),
    ("packets_dropped", |o| o.packets_dropped.to_string()),
    ("packets_lost", |o| o.packets_lost.to_string()),
    ("packets_marked", |o| o.packets_marked.to_string()),
    ("packets_trimmed", |o| o.packets_trimmed.to_string()),
    ("pause_frames", |o| o.pause_frames.to_string()),
    ("paused_us", |o| o.paused_us.to_string()),
    ("lossless_drops", |o| o.lossless_drops.to_string()),
    ("watchdog_drops", |o| o.watchdog_drops.to_string()),
    ("deadlocks", |o| o.deadlocks.len().to_string()),
    ("packet_hops", |o| o.packet_hops.to_string()),
    ("events", |o| o.events.to_string()),
    ("sim_us", |o| o.sim_us.to_string()),
    ("cost_cpu_s", |o| o.cost.cpu_s.to_string()),
    ("cost_wall_s", |o| o.cost.wall_s.to_string()),
    ("cost_rss_mb", |o| o.cost.rss_mb.to_string()),
    ("cost_packets_per_cpu_s", |o| o.cost.packets_per_cpu_s.to_string()),
    ("cost_events_per_cpu_s", |o| o.cost.events_per_cpu_s.to_string()),
];

/// Of a sweep: case, one column for each axis (empty where it was not changed), seed, then the outcome.
pub fn of_sweep(sweep: &Sweep, rows: &[Row]) -> String {
    let mut text = "case".to_string();
    for axis in &sweep.axes {
        text += &format!(",{}", quoted(&axis.name));
    }
    text += ",seed";
    for (name, _) in COLUMNS {
        text += &format!(",{name}");
    }
    for row in rows {
        let _ = write!(text, "\n{}", quoted(&row.case));
        for axis in &sweep.axes {
            let change = row.changes.iter().find(|change| change.axis == axis.name);
            let _ = write!(
                text,
                ",{}",
                change.map_or_else(String::new, |change| quoted(&change.value).into_owned())
            );
        }
        let _ = write!(text, ",{}", row.seed);
        for (_, column) in COLUMNS {
            let _ = write!(text, ",{}", column(&row.outcome));
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Meter;

    #[test]
    fn columns_are_those_of_the_json() {
        let times = Times { min: 1.0, p50: 2.0, mean: 3.0, p99: 4.0, max: 5.0 };
        let outcome = Outcome {
            scenario: "a, \"b\"".to_string(),
            transport: "srd".to_string(),
            fct_us: Some(times),
            cost: Meter::start().stop(1, 1),
            ..Outcome::default()
        };
        let mut expected = Vec::new();
        for (key, value) in serde_json::to_value(&outcome).unwrap().as_object().unwrap() {
            match value.as_object() {
                Some(inner) => expected.extend(inner.keys().map(|inner| format!("{key}_{inner}"))),
                None => expected.push(key.clone()),
            }
        }
        expected
            .retain(|name| name != "seed" && !["queues", "workloads", "programs"].contains(&name.as_str())); // a list has no column
        let mut names: Vec<String> = COLUMNS.iter().map(|(name, _)| name.to_string()).collect();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected);
        assert_eq!(COLUMNS[0].1(&outcome), "\"a, \"\"b\"\"\"");
        assert_eq!(COLUMNS[10].1(&outcome), "5");
    }
}
