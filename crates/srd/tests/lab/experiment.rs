//! Experiments: flows over SRD and over the kernel's TCP across the same fabric.

use crate::{Fabric, name, said, small, srd};
use serde_json::Value;
use std::fs;

const SMALL: &str = "[fabric]\nleaves = 2\nhosts_per_leaf = 2\nspines = 2\n";

fn file(text: &str) -> String {
    let path = std::env::temp_dir().join(format!("{}.toml", name()));
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Whether labs can be built here; if not, that has been said.
fn possible() -> bool {
    Fabric::up(small()).is_some()
}

#[test]
fn all_flows_arrive_over_srd_and_over_tcp_and_no_lab_stays() {
    if !possible() {
        return;
    }
    let experiment = file(&format!(
        "name = \"small\"\nabout = \"a test\"\nrepeats = 1\nmost_cpu_percent = 100\ntransports = [\"srd\", \"tcp-cubic\"]\n{SMALL}\
         [[case]]\nname = \"incast\"\ntraffic = {{ kind = \"incast\", flows = 6, from = [\"host1\", \"host2\", \"host3\"], \
         to = \"host0\", bytes = 30_000 }}\n\
         [[case]]\nname = \"a spine fails\"\n\
         fault = [{{ at_ms = 200, heal_ms = 400, kind = \"blackhole\", at = \"spine1\" }}]\n\
         traffic = {{ kind = \"pairs\", pairs = [\"host0->host2\", \"host1->host3\"], seconds = 0.6 }}\n\
         beside = {{ transport = \"tcp-reno\", traffic = {{ kind = \"pairs\", pairs = [\"host2->host0\"], seconds = 0.6 }} }}\n"
    ));
    let lab = name();
    let output = srd(&["--lab", &lab, "experiment", &experiment, "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = report["results"].as_array().unwrap();
    let of = |result: &Value| (result["case"].to_string(), result["transport"].to_string());
    assert_eq!(results.len(), 4);
    for result in results {
        let run = &result["runs"][0];
        assert_eq!(run["figures"]["incomplete"], 0, "{:?}: {run}", of(result));
        match result["case"].as_str().unwrap() {
            "incast" => {
                let by_ideal = run["figures"]["completion"]["last_by_ideal"].as_f64().unwrap();
                // Nothing is quicker than the last link.
                assert!(by_ideal > 0.95, "{:?}: {run}", of(result));
                let bytes: f64 = run["series_mbps"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(|flow| {
                        flow.as_array().unwrap().iter().map(|mbps| mbps.as_f64().unwrap() * 20e-3 * 1e6 / 8.0)
                    })
                    .sum();
                assert_eq!(bytes.round(), 6.0 * 30_000.0, "{:?}", of(result));
            }
            _ => {
                let sum = run["figures"]["throughput"]["sum_mbps"].as_f64().unwrap();
                assert!((1.0..200.0).contains(&sum), "{:?}: {run}", of(result));
                assert_eq!(run["beside"]["incomplete"], 0, "{:?}: {run}", of(result));
            }
        }
    }
    let after = srd(&["--lab", &lab, "status"]).output().unwrap();
    assert!(said(&after).contains("no lab named"), "{}", said(&after));
}

#[test]
fn an_experiment_that_cannot_be_is_refused_with_the_reason() {
    let head = "name = \"x\"\nabout = \"x\"\ntransports = [\"srd\"]\n";
    let case = |traffic: &str| format!("{head}{SMALL}[[case]]\nname = \"a\"\ntraffic = {traffic}\n");
    for (text, told) in [
        (case("{ kind = \"pairs\", pairs = [\"host0->host9\"], bytes = 1 }"), "host9"),
        (case("{ kind = \"pairs\", pairs = [\"host0->host0\"], bytes = 1 }"), "would not cross"),
        (case("{ kind = \"pairs\", pairs = [\"host0\"], bytes = 1 }"), "is no pair"),
        (case("{ kind = \"pairs\", pairs = [\"host0->host1\"] }"), "either `bytes`"),
        (case("{ kind = \"pairs\", pairs = [\"host0->host1\"], bytes = 0 }"), "either `bytes`"),
        (case("{ kind = \"pairs\", pairs = [\"host0->host1\"], seconds = -1 }"), "0.01 to 600"),
        (case("{ kind = \"storm\" }"), "storm"),
        (
            case("{ kind = \"pairs\", pairs = [\"host0->host1\"], bytes = 1 }").replace("srd", "udp"),
            "no transport is called",
        ),
        (format!("{head}colour = 3\n"), "line 4"),
        (head.to_owned(), "case"),
    ] {
        let output = srd(&["--lab", &name(), "experiment", &file(&text)]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}: {}", said(&output));
        assert!(said(&output).contains(told), "{text}: {}", said(&output));
    }
    let output = srd(&["experiment", "/nowhere.toml"]).output().unwrap();
    assert!(
        !output.status.success() && said(&output).contains("cannot read /nowhere.toml"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_congestion_control_that_the_kernel_has_not_is_named_and_no_lab_stays() {
    if !possible() {
        return;
    }
    let text = format!(
        "name = \"x\"\nabout = \"x\"\ntransports = [\"tcp-nonesuch\"]\n{SMALL}[[case]]\nname = \"a\"\n\
         traffic = {{ kind = \"pairs\", pairs = [\"host0->host2\"], bytes = 1000 }}\n"
    );
    let lab = name();
    let output = srd(&["--lab", &lab, "experiment", &file(&text)]).output().unwrap();
    assert!(!output.status.success() && said(&output).contains("nonesuch"), "{}", said(&output));
    let after = srd(&["--lab", &lab, "status"]).output().unwrap();
    assert!(said(&after).contains("no lab named"), "{}", said(&after));
}

#[test]
fn the_experiments_that_are_shipped_can_be_read() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../labs");
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        srd_lab::experiment::plan::Experiment::from_toml(&text).unwrap();
        count += 1;
    }
    assert!(count >= 5);
}
