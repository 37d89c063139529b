//! Experiments with MPI jobs. Debian's Open MPI, which also starts what is no MPI program.

use crate::experiment::{file, possible};
use crate::{name, said, srd};
use serde_json::Value;
use std::process::Output;

const HEAD: &str = "name = \"small\"\nabout = \"a test\"\nrepeats = 1\nmost_cpu_percent = 100\n\
                    transports = [\"tcp-cubic\"]\n\
                    [fabric]\nleaves = 2\nhosts_per_leaf = 2\nspines = 2\nhost_mbps = 20\n[[case]]\nname = \"a\"\n";
const PROGRAM: &str = "kind = \"program\", mpi = \"debian\", hosts = [\"host0\", \"host2\"]";

/// Runs an experiment of one case. Afterwards no lab stays, whatever has come of it.
fn perform(case: &str) -> Output {
    let lab = name();
    let text = file(&format!("{HEAD}{case}"));
    let output = srd(&["--lab", &lab, "experiment", &text, "--json"]).output().unwrap();
    for name in [lab.clone(), format!("{lab}-b")] {
        let after = srd(&["--lab", &name, "status"]).output().unwrap();
        assert!(said(&after).contains("no lab named"), "{}", said(&after));
    }
    let left = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> =
        left.filter(|found| found.to_string_lossy().starts_with(&format!("srd-experiment-{lab}"))).collect();
    assert!(left.is_empty(), "what was compiled is still there: {left:?}");
    output
}

fn only_run(output: &Output) -> Value {
    assert!(output.status.success(), "{}", said(output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["results"][0]["runs"][0].clone()
}

#[test]
fn a_collective_operation_is_measured_alone_beside_flows_and_with_those_elsewhere() {
    if !possible() {
        return;
    }
    let output = perform(
        "random_hosts = true\n\
         traffic = { kind = \"collective\", operation = \"all-reduce\", bytes = 100_000, seconds = 0.5, mpi = \"debian\", \
         hosts = [\"host0\", \"host1\"] }\n\
         beside = { transport = \"same\", traffic = { kind = \"all-to-all\", hosts = [\"host2\", \"host3\"], seconds = 3 } }\n",
    );
    let run = only_run(&output);
    let job = &run["figures"]["job"];
    for phase in ["alone", "disturbed", "elsewhere"] {
        let operation = &job[phase]["operation"];
        assert!(operation["count"].as_u64().unwrap() >= 4, "{phase}: {job}");
        // Each rank needs all that the other has, through links of 20 Mbit/s: 40 ms of payload. Only then has it crossed them.
        let least_us = operation["percentiles_us"][0].as_f64().unwrap();
        assert!(least_us > 38_000.0, "{phase}: {job}");
    }
    assert_eq!(job["hosts"].as_array().unwrap().len(), 2, "{job}");
    let beside_mbps = run["beside"]["throughput"]["sum_mbps"].as_f64().unwrap();
    assert!((1.0..40.0).contains(&beside_mbps), "{run}");
}

#[test]
fn a_program_is_timed_from_its_first_line_and_its_answers_are_compared() {
    if !possible() {
        return;
    }
    let input = file("the input\n");
    let script = |answer: &str| {
        format!(
            "sleep 0.5; echo begun; sleep 0.3; echo answer {answer}; cat *.toml; [ $(hostname) = host0 ] && echo whole=1 > out; true"
        )
    };
    let case = |answer: &str| {
        format!(
            "traffic = {{ {PROGRAM}, program = [\"sh\", \"-c\", '{}'], inputs = [\"{input}\"], results = \"out\", \
             begins = \"^begun\", expect = [\"^whole=1$\"], same = \"^answer|^the input\" }}\n\
             fault = [{{ at_ms = 100, heal_ms = 200, kind = \"blackhole\", at = \"spine1\" }}]\n",
            script(answer)
        )
    };
    // On a busy machine the first line may be read late, and the time is short then: not every time.
    let mut runs = (0..5).map(|_| only_run(&perform(&case("42")))["figures"]["job"].clone());
    let took = |job: &Value, phase: &str| job[phase]["seconds"].as_f64().unwrap();
    let in_time = |job: &Value| ["alone", "disturbed"].iter().all(|phase| took(job, phase) >= 0.29);
    let job =
        runs.find(in_time).expect("the time from the first line on is 0.3 s at least once in five runs");
    assert!(job["different"].is_null() && job["elsewhere"].is_null(), "{job}");
    // A clock's nanoseconds are never the same twice.
    let run = only_run(&perform(&case("$(date +%s%N)")));
    let told = run["figures"]["job"]["different"].as_str().unwrap();
    assert!(told.contains("2 of 4 lines differ"), "{told}");
}

#[test]
fn a_rank_that_dies_is_quoted() {
    if !possible() {
        return;
    }
    let failing = |rest: &str| perform(&format!("traffic = {{ {PROGRAM}, {rest} }}\n"));
    for (rest, told) in [
        ("program = [\"sh\", \"-c\", \"echo last words; exit 3\"]", "last words"),
        ("program = [\"sh\", \"-c\", \"echo other words\"], expect = [\"^done\"]", "other words"),
        (
            "program = [\"sh\", \"-c\", \"echo other words\"], begins = \"^done\"",
            "no line that matches `begins`",
        ),
        ("program = [\"sh\", \"-c\", \"echo slow; sleep 1000\"], limit_s = 4", "in time"),
        ("program = [\"sh\", \"-c\", \"true\"], results = \"out\"", "has left no out"),
    ] {
        let output = failing(rest);
        assert_eq!(output.status.code(), Some(1), "{rest}: {}", said(&output));
        assert!(said(&output).contains(told), "{rest}: {}", said(&output));
    }
}

#[test]
fn a_job_that_cannot_be_is_refused_before_anything_runs() {
    let collective = "kind = \"collective\", operation = \"all-reduce\", bytes = 8, seconds = 1, hosts = [\"host0\", \"host1\"]";
    let beside = |traffic: &str| {
        format!(
            "traffic = {{ {collective} }}\nbeside = {{ transport = \"same\", traffic = {{ {traffic} }} }}\n"
        )
    };
    let program = |rest: &str| format!("traffic = {{ {PROGRAM}, {rest} }}\n");
    let changed = |from: &str, to: &str| format!("traffic = {{ {} }}\n", collective.replace(from, to));
    for (case, told) in [
        (changed("\"host0\", \"host1\"", "\"host0\""), "two hosts or more"),
        (changed("\"host0\", \"host1\"", "\"host0\", \"h0\""), "each named once"),
        (changed("\"host0\", \"host1\"", "\"host0\", \"host4\""), "host0 to host3"),
        (changed("bytes = 8", "bytes = 9"), "a multiple of 8"),
        (changed("seconds = 1", "seconds = 0"), "0.1 to 600"),
        (changed("seconds = 1", "seconds = 1, ranks = 1"), "at least one in each"),
        (changed("seconds = 1", "seconds = 1, mpi = \"lam\""), "lam"),
        (changed("seconds = 1", "seconds = 1, colour = 3"), "colour"),
        (changed("all-reduce", "gossip"), "line 13"),
        (changed("seconds = 1", "seconds = 1, prefix = \"/nowhere\""), "make setup"),
        (beside("kind = \"pairs\", pairs = [\"host2->host1\"], seconds = 1"), "host1 belongs to"),
        (beside("kind = \"pairs\", pairs = [\"host2->host3\"], bytes = 1"), "have `seconds`"),
        (beside(&collective.replace("\"host", "\"h")), "what goes on beside it are flows"),
        (program("program = []"), "names a program"),
        (program("program = [\"no-such-program\"]"), "no program no-such-program"),
        (program("program = [\"sh\"], inputs = [\"nothing.txt\"]"), "nothing.txt"),
        (program("program = [\"sh\"], same = \"(\""), "no regular expression"),
        (program("program = [\"sh\"], limit_s = 0"), "limit_s"),
    ] {
        let output = perform(&case);
        assert_eq!(output.status.code(), Some(1), "{case}: {}", said(&output));
        assert!(said(&output).contains(told), "{case}: {}", said(&output));
    }
}
