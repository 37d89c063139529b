//! Experiments: flows over SRD and over the kernel's TCP across the same fabric.

use crate::{Fabric, eventually, name, said, small, srd};
use serde_json::Value;
use srd_lab::{Error, Lab};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

const SMALL: &str = "[fabric]\nleaves = 2\nhosts_per_leaf = 2\nspines = 2\n";

pub fn file(text: &str) -> String {
    let path = std::env::temp_dir().join(format!("{}.toml", name()));
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Whether labs can be built here; if not, that has been said.
pub fn possible() -> bool {
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
    let out = std::env::temp_dir().join(&lab);
    let command = ["--lab", &lab, "experiment", &experiment, "--json", "--out", out.to_str().unwrap()];
    let output = srd(&command).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(fs::read_to_string(out.join("report.json")).unwrap().trim(), report_line(&output));
    a_page_shows(&fs::read_to_string(out.join("index.html")).unwrap());
    fs::remove_dir_all(&out).unwrap();
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

fn report_line(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap().trim()
}

/// The page of the experiment above.
fn a_page_shows(page: &str) {
    let count = |what: &str| page.matches(what).count();
    assert_eq!(count("<h3>Throughput of each flow over time, "), 2, "{page}");
    assert_eq!(count("<h3>Completion times</h3>"), 1, "{page}");
    assert_eq!(count("<h3>Last arrival by the ideal</h3>"), 1, "{page}");
    assert_eq!(count("<h3>Longest stall of a flow (ms)</h3>"), 1, "{page}");
    for flow in ["host0 to host2", "host1 to host3", "host2 to host0 (tcp-reno)"] {
        assert_eq!(count(&format!("<title>{flow}</title>")), 2, "{flow}: {page}");
    }
    let lines =
        page.split("<title>host0 to host2</title>").next().unwrap().rsplit("<path d=\"").next().unwrap();
    assert!(lines.split('L').count() > 20, "a point for each interval: {lines}");
    assert_eq!(count("spine1 swallows all packets</span>"), 2, "{page}");
    assert!(page.contains("<code>srd lab --lab") && page.ends_with("</html>\n"), "{page}");
}

#[test]
fn flows_begin_and_end_one_after_the_other() {
    if !possible() {
        return;
    }
    let experiment = file(&format!(
        "name = \"x\"\nabout = \"x\"\nrepeats = 1\nmost_cpu_percent = 100\ntransports = [\"srd\", \"tcp-cubic\"]\n{SMALL}\
         [[case]]\nname = \"a\"\ntraffic = {{ kind = \"incast\", flows = 2, from = [\"host1\", \"host2\"], to = \"host0\", \
         seconds = 1.6, every_ms = 800 }}\n"
    ));
    let output = srd(&["--lab", &name(), "experiment", &experiment, "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for result in report["results"].as_array().unwrap() {
        let (transport, run) = (&result["transport"], &result["runs"][0]);
        let megabits = |flow: usize, from_ms: usize, to_ms: usize| -> f64 {
            let bins = run["series_mbps"][flow].as_array().unwrap();
            (from_ms / 20..to_ms / 20).filter_map(|bin| Some(bins.get(bin)?.as_f64()? * 0.02)).sum()
        };
        let all = |flow| megabits(flow, 0, 100_000);
        assert!(all(0) > 0.0 && all(1) > 0.0, "{transport}: {run}");
        assert_eq!(megabits(1, 0, 800), 0.0, "{transport}: {run}");
        // What is in queues comes a little later, and more so on a busy machine.
        assert!(megabits(0, 1700, 100_000) < 0.2 * all(0), "{transport}: {run}");
        assert!(megabits(1, 1600, 2500) > 0.2 * all(1), "{transport}: {run}");
        let throughput = &run["figures"]["throughput"];
        let jain = throughput["jain"].as_f64().unwrap();
        let settled_ms = throughput["settling"]["settled_ms"].as_f64().unwrap();
        assert!((0.5..=1.0).contains(&jain) && (0.0..=800.0).contains(&settled_ms), "{transport}: {run}");
    }
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
        (
            case("{ kind = \"pairs\", pairs = [\"host0->host1\"], bytes = 1, every_ms = 5 }"),
            "`every_ms` is for",
        ),
        (
            case(
                "{ kind = \"incast\", flows = 9, from = [\"host1\"], to = \"host0\", seconds = 1, every_ms = 100_000 }",
            ),
            "after more than 600 seconds",
        ),
        (case("{ kind = \"pairs\", pairs = [\"host0->host1\"], bytes = 1, mbps = 5 }"), "`mbps` is for"),
        (
            case("{ kind = \"pairs\", pairs = [\"host0->host1\"], seconds = 1 }")
                + "fault = [{ at_ms = 1000, heal_ms = 2000, kind = \"blackhole\", at = \"host0\" }]\n",
            "when all flows have ended",
        ),
        (
            case("{ kind = \"pairs\", pairs = [\"host0->host1\"], seconds = 1 }")
                + "wanted = { colour = { at_most = 3 } }\n",
            "last_by_ideal",
        ),
        (
            case("{ kind = \"pairs\", pairs = [\"host0->host1\"], bytes = 9_000_000_000_000 }"),
            "at most 7500000000 `bytes` in 600 seconds",
        ),
        (
            case("{ kind = \"pairs\", pairs = [\"host0->host1\"], seconds = 1 }") + "possible_mbps = 0\n",
            "possible_mbps lies between",
        ),
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
fn a_transport_that_the_kernel_has_not_is_left_out_of_several() {
    if !possible() {
        return;
    }
    let text = format!(
        "name = \"x\"\nabout = \"x\"\nrepeats = 1\nmost_cpu_percent = 100\n\
         transports = [\"tcp-nonesuch\", \"tcp-reno\", \"tcp-nonesuch+ecn\"]\n{SMALL}[[case]]\nname = \"a\"\n\
         traffic = {{ kind = \"pairs\", pairs = [\"host0->host2\"], bytes = 1000 }}\n"
    );
    let output = srd(&["--lab", &name(), "experiment", &file(&text), "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let left_out = report["left_out"].as_array().unwrap();
    let names: Vec<_> = left_out.iter().map(|left_out| left_out["transport"].as_str().unwrap()).collect();
    assert_eq!(names, ["tcp-nonesuch", "tcp-nonesuch+ecn"]);
    assert!(left_out[0]["why"].as_str().unwrap().contains("reno"), "it says what there is: {left_out:?}");
    assert_eq!(report["results"].as_array().unwrap().len(), 1);
    assert_eq!(report["results"][0]["transport"], "tcp-reno");
    assert!(said(&output).contains("tcp-nonesuch is left out"), "{}", said(&output));
}

#[test]
fn an_interrupt_ends_it_without_the_run_at_hand_and_what_was_measured_is_reported() {
    if !possible() {
        return;
    }
    let text = format!(
        "name = \"x\"\nabout = \"x\"\nrepeats = 1\nmost_cpu_percent = 100\ntransports = [\"tcp-reno\"]\n{SMALL}\
         [[case]]\nname = \"a\"\ntraffic = {{ kind = \"pairs\", pairs = [\"host0->host2\"], bytes = 1000 }}\n\
         [[case]]\nname = \"b\"\ntraffic = {{ kind = \"pairs\", pairs = [\"host0->host2\"], seconds = 100 }}\n"
    );
    let lab = name();
    let mut command = srd(&["--lab", &lab, "experiment", &file(&text), "--json"]);
    let mut experiment = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(experiment.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("1/2 a"));
    let began = Instant::now();
    eventually("the second run's lab is up", || Lab::open(&lab).is_ok());
    std::thread::sleep(Duration::from_millis(500));
    let pid = nix::unistd::Pid::from_raw(experiment.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = experiment.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(60), "the run at hand takes 100 s");
    assert!(matches!(Lab::open(&lab), Err(Error::NoSuchLab { .. })));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = |case: usize| report["results"][case]["runs"].as_array().unwrap().len();
    assert_eq!((&report["whole"], runs(0), runs(1)), (&Value::from(false), 1, 0));
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
    assert!(count >= 9);
}

#[test]
fn packets_that_routers_have_cut_are_told_of_and_sent_again() {
    if !possible() {
        return;
    }
    let lab = name();
    let stats = std::env::temp_dir().join(format!("{lab}.%p.json"));
    let experiment = file(&format!(
        "name = \"cut\"\nabout = \"a test\"\nrepeats = 1\nmost_cpu_percent = 100\ntransports = [\"srd\"]\n{SMALL}\
         host_mbps = 50\nbuffer_bytes = 20_000\ntrim = true\n\
         [[case]]\nname = \"incast\"\ntraffic = {{ kind = \"incast\", flows = 12, from = [\"host1\", \"host2\", \"host3\"], \
         to = \"host0\", bytes = 60_000 }}\n"
    ));
    let output =
        srd(&["--lab", &lab, "experiment", &experiment, "--json"]).env("SRD_STATS", &stats).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["results"][0]["runs"][0]["figures"]["incomplete"], 0, "{report}");
    // Every process's counters: the receiver's of packets that came cut, the senders' of those that they heard of.
    let (mut cut, mut heard) = (0, 0);
    for entry in fs::read_dir(std::env::temp_dir()).unwrap().map(Result::unwrap) {
        if entry.file_name().to_str().is_some_and(|file| file.starts_with(&format!("{lab}."))) {
            if let Ok(counters) = serde_json::from_slice::<Value>(&fs::read(entry.path()).unwrap()) {
                cut += counters["transport"]["cut_pkts"].as_u64().unwrap();
                heard += counters["transport"]["lost_by_cut"].as_u64().unwrap();
            }
            fs::remove_file(entry.path()).unwrap();
        }
    }
    assert!(cut > 0 && heard > 0, "{cut} packets came cut, and {heard} were heard of: {report}");
}
