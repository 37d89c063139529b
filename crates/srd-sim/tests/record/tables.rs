//! The tables say what the run did, and docs/OUTPUTS.md what they say.

use crate::{FAULTS, INCAST, directory, record, rows, scenario};
use srd_sim::apps::Size;
use srd_sim::record::{Recording, TABLES, Traced};
use std::collections::{BTreeMap, BTreeSet};

type Row = BTreeMap<String, String>;

fn number(row: &Row, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column}: {:?} is no number", row[column]))
}

#[test]
fn every_column_is_documented() {
    let page = include_str!("../../../../docs/OUTPUTS.md");
    for table in TABLES {
        let heading = format!("### `{}`", table.file);
        let section =
            page.split("\n##").find(|part| heading.ends_with(part.lines().next().unwrap_or_default()));
        let section = section.unwrap_or_else(|| panic!("docs/OUTPUTS.md has no section {heading}"));
        for name in table.names {
            assert!(
                section.contains(&format!("| `{name}` |")),
                "docs/OUTPUTS.md, {}: no `{name}`",
                table.file
            );
        }
        let rows = section.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, table.names.len(), "docs/OUTPUTS.md, {}: a column that there is not", table.file);
    }
}

#[test]
fn flows_are_all_there_and_agree_with_the_outcome() {
    let recording = Recording::to(directory("flows"));
    let scenario = scenario(INCAST, &[]);
    let recorded = record(&scenario, &recording);
    let flows = rows(&recording, "flows.csv");
    assert_eq!(flows.len(), scenario.traffic.flows.len());
    for (row, flow) in flows.iter().zip(&scenario.traffic.flows) {
        assert_eq!(row["id"], flow.id.to_string());
        assert_eq!((row["src_host"].as_str(), row["dst_host"].as_str()), (&*flow.src.host.to_string(), "0"));
        let Size::Bytes(bytes) = flow.size else { unreachable!() };
        assert_eq!((number(row, "bytes"), number(row, "delivered_bytes")), (bytes as f64, bytes as f64));
        assert!(number(row, "received_us") < number(row, "fct_us"));
        // 300 KB at 100 Gb/s are 24 us, headers and distance not counted.
        assert!((26.0..40.0).contains(&number(row, "alone_us")), "{row:?}");
        assert!(number(row, "alone_us") < number(row, "fct_us"));
    }
    let slowest = flows.iter().map(|row| number(row, "fct_us")).fold(0.0, f64::max);
    assert_eq!(Some(slowest), recorded.ran.outcome.fct_us.map(|times| times.max));
}

#[test]
fn a_flow_alone_takes_the_time_that_it_would_take_alone() {
    for size in ["64B", "9KB", "2MB"] {
        let recording = Recording::to(directory("alone"));
        let sets =
            [format!("workload.size={size}"), "queues.capacity=1MB".into(), "host.latency_us=2".into()];
        record(
            &scenario(&INCAST.replace("senders = 8", "sender_hosts = [9]"), &sets.each_ref().map(|s| &**s)),
            &recording,
        );
        let flow = &rows(&recording, "flows.csv")[0];
        let (fct, alone) = (number(flow, "fct_us"), number(flow, "alone_us"));
        assert!((0.99..1.1).contains(&(fct / alone)), "{size}: {fct} us, not {alone} us");
    }
}

#[test]
fn rates_add_up_to_what_was_delivered() {
    let recording = Recording::to(directory("rates"));
    record(&scenario(&format!("{INCAST}{FAULTS}"), &["sample.every_us=4"]), &recording);
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for row in rows(&recording, "rates.csv") {
        let (sum, last) = sums.entry(row["flow"].clone()).or_default();
        *sum += number(&row, "delivered_gbps") * 125.0 * (number(&row, "time_us") - *last);
        *last = number(&row, "time_us");
        assert!(number(&row, "window_bytes") > 0.0);
    }
    assert_eq!(sums.len(), 8);
    for (flow, (bytes, _)) in sums {
        assert!((bytes - 300_000.0).abs() < 300.0, "flow {flow}: {bytes}");
    }
    let (mut all, mut last) = (0.0, 0.0);
    for row in rows(&recording, "totals.csv") {
        all += number(&row, "delivered_gbps") * 125.0 * (number(&row, "time_us") - last);
        last = number(&row, "time_us");
    }
    assert!((all - 2_400_000.0).abs() < 2400.0, "{all}");
}

#[test]
fn samples_are_as_far_apart_as_the_scenario_says() {
    let recording = Recording::to(directory("pause"));
    record(&scenario(INCAST, &["sample.every_us=5"]), &recording);
    let times: Vec<f64> = rows(&recording, "totals.csv").iter().map(|row| number(row, "time_us")).collect();
    assert!(times.len() > 30);
    assert!(times[..times.len() - 1].iter().zip(1..).all(|(&time, n)| time == 5.0 * n as f64), "{times:?}");
}

#[test]
fn queues_are_those_of_ports_that_waited() {
    let recording = Recording { traced: Traced::No, ..Recording::to(directory("queues")) };
    let recorded = record(&scenario(INCAST, &["sample.every_us=2"]), &recording);
    let ports: BTreeMap<String, Row> =
        rows(&recording, "ports.csv").into_iter().map(|row| (row["port"].clone(), row)).collect();
    let queues = rows(&recording, "queues.csv");
    let sampled: BTreeSet<&str> = queues.iter().map(|row| row["port"].as_str()).collect();
    assert!(sampled.contains("leaf0->h0") && !sampled.contains("h4->leaf1"), "{sampled:?}");
    for row in &queues {
        assert!(number(row, "waiting_bytes") <= number(&ports[&row["port"]], "most_waiting_bytes"));
    }
    let longest = queues.iter().map(|row| number(row, "waiting_bytes")).fold(0.0, f64::max);
    assert!((30_000.0..=40_000.0).contains(&longest), "the queue has 40 KB: {longest}");
    let dropped: f64 = ports.values().map(|row| number(row, "dropped")).sum();
    assert_eq!(dropped as u64, recorded.ran.outcome.packets_dropped);
}

#[test]
fn paths_end_with_all_that_was_sent() {
    let recording = Recording::to(directory("paths"));
    let recorded = record(&scenario(&format!("{INCAST}{FAULTS}"), &[]), &recording);
    let mut last: BTreeMap<(String, String), f64> = BTreeMap::new();
    for row in rows(&recording, "paths.csv") {
        assert!(["active", "suspect", "down", "probing"].contains(&row["state"].as_str()));
        assert!(number(&row, "source_port") >= 49152.0);
        let key = (row["src_host"].clone(), row["path"].clone());
        let bytes = number(&row, "sent_bytes");
        assert!(last.insert(key, bytes).is_none_or(|before| before <= bytes), "bytes only grow");
    }
    assert_eq!(last.len(), 8 * 16);
    let sent: f64 = last.values().sum();
    let outcome = &recorded.ran.outcome;
    assert!(outcome.packets_rtx > 0);
    assert!(sent > 2_400_000.0 && sent < 2_400_000.0 + 9000.0 * outcome.packets_rtx as f64, "{sent}");
}

#[test]
fn what_is_left_out_is_said() {
    let recording = Recording { traced: Traced::AsManyAsFit, ..Recording::to(directory("many")) };
    let notes = record(&scenario(INCAST, &["workload.processes=20", "workload.size=2KB"]), &recording).notes;
    assert!(notes.iter().any(|note| note.contains("128 of 160 flows")), "{notes:?}");
    let often = Recording { traced: Traced::No, ..recording };
    let notes = record(&scenario(INCAST, &["sample.every_us=0.001"]), &often).notes;
    assert!(notes.iter().any(|note| note.contains("not 0.001 us")), "{notes:?}");
}

/// What a port held on average, by its samples.
fn sampled_mean(recording: &Recording, port: &str) -> f64 {
    let (mut sum, mut last) = (0.0, 0.0);
    for row in rows(recording, "queues.csv").iter().filter(|row| row["port"] == port) {
        sum += number(row, "waiting_bytes") * (number(row, "time_us") - last);
        last = number(row, "time_us");
    }
    sum / last
}

#[test]
fn the_outcome_tells_of_the_longest_queues() {
    for (n, sets) in [&[][..], &["queues.classes=strict"], &["queues.shared=100KB"]].into_iter().enumerate() {
        let recording = Recording { traced: Traced::No, ..Recording::to(directory(&format!("longest{n}"))) };
        let sets = [&["sample.every_us=0.05"], sets].concat();
        let queues = record(&scenario(INCAST, &sets), &recording).ran.outcome.queues;
        assert!(queues.len() == 8 && queues.is_sorted_by(|a, b| a.most_bytes >= b.most_bytes), "{queues:?}");
        let longest = &queues[0];
        assert_eq!(longest.port, "leaf0->h0");
        let ports = rows(&recording, "ports.csv");
        let port = ports.iter().find(|row| row["port"] == "leaf0->h0").unwrap();
        assert_eq!(longest.most_bytes as f64, number(port, "most_waiting_bytes"));
        assert_eq!(longest.sent_bytes as f64, number(port, "sent_bytes"));
        let sampled = sampled_mean(&recording, "leaf0->h0");
        assert!((longest.mean_bytes / sampled - 1.0).abs() < 0.01, "{} and {sampled}", longest.mean_bytes);
    }
}
