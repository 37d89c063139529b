//! Recording: the same run, the same files, and what a person is told who asks for what cannot be.

use crate::{FAULTS, INCAST, directory, record, scenario, text};
use srd_sim::record as recorder;
use srd_sim::record::{PAGE, Recording, Traced};
use srd_sim::run::{self, Outcome};
use std::fs;

fn everything(name: &str) -> Recording {
    Recording {
        pcap: vec!["*".into()],
        traced: Traced::All,
        verify: true,
        command: "srd sim a.toml".into(),
        ..Recording::to(directory(name))
    }
}

#[test]
fn recording_and_verification_change_no_outcome() {
    let several_queues = ["queues.classes=strict", "queues.ecn_min=10KB", "sample.every_us=3"];
    let slow_hosts = ["host.per_packet_us=0.4", "host.latency_us=1", "host.jitter_us=5", "host.queues=2"];
    let endless = ["workload.persistent=true", "end_us=300"];
    let cut = ["queues.trim=true"];
    for (n, sets) in
        [&[][..], &["queues.shared=100KB"], &several_queues, &slow_hosts, &cut].into_iter().enumerate()
    {
        for text in [INCAST.to_string(), format!("{INCAST}{FAULTS}")] {
            let scenario = scenario(&text, sets);
            let plain = run::run(&scenario);
            let recorded = record(&scenario, &everything(&format!("same{n}"))).ran.outcome;
            assert_eq!(Outcome { cost: plain.cost, ..recorded }, plain, "{sets:?}");
            assert!(
                plain.packets_dropped + plain.packets_lost + plain.packets_trimmed > 0,
                "losses are what is to be verified: {sets:?}"
            );
        }
    }
    let text = INCAST.replace("size = \"300KB\"\n", "");
    let scenario = scenario(&text, &endless);
    let recorded = record(&scenario, &everything("endless")).ran.outcome;
    let plain = run::run(&scenario);
    assert_eq!(Outcome { cost: plain.cost, ..recorded }, plain);
}

#[test]
fn the_same_scenario_and_seed_leave_the_same_files() {
    let scenario = scenario(&format!("{INCAST}{FAULTS}"), &[]);
    let (first, second) = (everything("first"), everything("second"));
    let files = record(&scenario, &first).files;
    assert_eq!(record(&scenario, &second).files, files);
    assert!(files.len() > 20, "a file for each of the cables: {files:?}");
    for file in &files {
        let (mut a, mut b) =
            (fs::read(first.dir.join(file)).unwrap(), fs::read(second.dir.join(file)).unwrap());
        if file == PAGE {
            let without_cost =
                |text: String| text.lines().filter(|line| !line.contains("class=\"cost\"")).collect();
            (a, b) =
                [&first, &second].map(|run| without_cost(text(run, file))).map(String::into_bytes).into();
        }
        if file == "outcome.json" {
            (a, b) = [&first, &second]
                .map(|run| text(run, file).split("\"cost\"").next().unwrap_or_default().to_string())
                .map(String::into_bytes)
                .into();
        }
        assert!(a == b, "{file} differs");
    }
}

#[test]
fn a_run_that_is_given_up_is_no_error() {
    let scenario = scenario(INCAST, &[]);
    let recording = Recording::to(directory("given-up"));
    assert!(matches!(recorder::run(&scenario, &recording, &mut |_| false), Ok(None)));
}

#[test]
fn progress_goes_from_nothing_to_everything() {
    let mut shares = Vec::new();
    let scenario = scenario(INCAST, &["workload.size=5MB"]);
    let mut watch = |share| {
        shares.push(share);
        true
    };
    recorder::run(&scenario, &Recording::to(directory("progress")), &mut watch).unwrap();
    assert!(shares.is_sorted() && shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    assert_eq!(shares.last(), Some(&1.0));
}

/// What a person is told who records into `recording`.
fn refusal(recording: &Recording) -> String {
    match recorder::run(&scenario(INCAST, &[]), recording, &mut |_| true) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{recording:?} was accepted"),
    }
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do_instead() {
    let unknown = Recording { pcap: vec!["leaf0-spine9".into()], ..Recording::to(directory("unknown")) };
    let told = refusal(&unknown);
    assert!(told.contains("`leaf0-spine9`") && told.contains("leaf0-spine0 to leaf2-spine1"), "{told}");
    assert!(!unknown.dir.exists(), "nothing is written before all is checked");

    let nobody = Recording { traced: Traced::Flows(vec![1, 99]), ..Recording::to(directory("nobody")) };
    let told = refusal(&nobody);
    assert!(told.contains("no flow has number 99") && told.contains("1 to 8"), "{told}");

    let way = directory("way");
    fs::create_dir_all(&way).unwrap();
    fs::write(way.join("file"), "").unwrap();
    let told = refusal(&Recording::to(way.join("file")));
    assert!(told.contains("a file is in the way") && told.contains("file"), "{told}");

    fs::create_dir_all(way.join("rates.csv")).unwrap();
    let told = refusal(&Recording::to(&way));
    assert!(told.contains("rates.csv") && told.contains("directory"), "{told}");
}

#[test]
fn files_of_an_earlier_run_do_not_stay() {
    let recording = Recording::to(directory("again"));
    let scenario = scenario(INCAST, &[]);
    record(&scenario, &recording);
    assert!(recording.dir.join("trace.jsonl").exists());
    let without = Recording { traced: Traced::No, ..recording };
    let files = record(&scenario, &without).files;
    assert!(!without.dir.join("trace.jsonl").exists() && !files.contains(&"trace.jsonl".to_string()));
}
