//! `srd sim` as programs and people use it: what it prints, with which code it ends, and that it says the same twice.

mod sharing;

use serde_json::Value;
use srd_sim::input::Scenario;
use srd_sim::run::MemoryEstimate;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn srd(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// One of htsim's own files.
fn htsim(name: &str) -> String {
    repository().join("crates/srd-sim/tests/inputs/htsim").join(name).display().to_string()
}

/// A file that a test has written.
fn written(name: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn run(arguments: &[&str]) -> Output {
    srd(arguments).output().unwrap()
}

/// What a run that goes well prints as JSON.
fn json(arguments: &[&str]) -> Value {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// What a run that is refused says, with its exit code.
fn refused(arguments: &[&str]) -> (i32, String) {
    let output = run(arguments);
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code().unwrap(), text(&output.stderr))
}

fn without_cost(mut value: Value) -> Value {
    let strip = |run: &mut Value| {
        let cost = run.as_object_mut().unwrap().remove("cost").unwrap();
        assert!(cost["packets_per_cpu_s"].as_f64().unwrap() > 0.0, "{cost}");
    };
    match &mut value {
        Value::Array(runs) => runs.iter_mut().for_each(strip),
        run => strip(run),
    }
    value
}

const SMALL: &str = "\
[fabric]
kind = \"leaf-spine\"
leaves = 2
spines = 4
hosts_per_leaf = 4
[[workload]]
kind = \"incast\"
senders = 6
size = \"200KB\"
";

#[test]
fn every_shipped_scenario_runs_to_its_end() {
    // What makes the longer ones short enough for a test, without changing what they are about.
    let shorter: &[(&str, &[&str])] = &[
        ("all-reduce-ring", &["workload.size=4MB"]),
        ("all-reduce-tree", &["workload.size=4MB"]),
        ("congested-paths", &["workload.0.size=2MB", "end_us=5000"]),
        ("fig2-incast-48", &["workload.rounds=1"]),
        ("fig2-48-servers", &["workload.rounds=1"]),
        ("fig4-persistent", &["end_us=2000"]),
        ("fig6-rack-pairs", &["workload.repeats=1"]),
        ("host-jitter", &["workload.size=10MB"]),
        ("join-leave", &["end_us=40000", "workload.every_us=200"]),
        ("oversubscribed", &["workload.size=500KB"]),
        ("permutation-128", &["workload.size=500KB"]),
        ("slow-link", &["workload.size=500KB"]),
    ];
    let mut names: Vec<PathBuf> = std::fs::read_dir(repository().join("scenarios"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    names.sort();
    assert!(names.len() >= 19);
    for path in names {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let path = path.display().to_string();
        let mut arguments = vec!["sim", &path, "--json"];
        for (_, sets) in shorter.iter().filter(|(name, _)| *name == stem) {
            sets.iter().for_each(|set| arguments.extend(["--set", set]));
        }
        let outcome = json(&arguments);
        assert_eq!(outcome["scenario"], *stem);
        assert!(outcome["packets_new"].as_u64().unwrap() > 0, "{outcome}");
        if let (Some(fastest), Some(ideal)) =
            (outcome["fct_us"]["min"].as_f64(), outcome["ideal_us"].as_f64())
        {
            let slowest = outcome["fct_us"]["max"].as_f64().unwrap();
            assert!(fastest <= slowest && slowest > 0.0 && ideal > 0.0, "{outcome}");
        }
    }
}

#[test]
fn the_same_scenario_and_seed_give_the_same_bytes() {
    let file = written("same.toml", SMALL);
    let printed = |threads: &str| {
        let output = run(&["sim", &file, "--seeds", "1..4", "--threads", threads, "--json"]);
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    };
    // As bytes, the objects of `cost` cut out.
    let bytes = |json: &str| {
        let mut parts = json.split("\"cost\":{");
        let first = parts.next().unwrap().to_string();
        parts.fold(first, |all, part| all + part.split_once('}').unwrap().1)
    };
    let first = printed("1");
    for threads in ["1", "2", "3"] {
        assert_eq!(bytes(&printed(threads)), bytes(&first), "{threads} threads");
    }
    let all = without_cost(serde_json::from_str(&first).unwrap());
    let all = all.as_array().unwrap();
    assert_eq!(all.iter().map(|run| run["seed"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_ne!(all[0]["fct_us"], all[1]["fct_us"]);
    // One alone is what it is among others, and neither packets in their wire format nor records change anything.
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("same");
    for more in
        [&[][..], &["--verify"], &["--out", out.to_str().unwrap(), "--trace", "--pcap", "leaf0-spine*"]]
    {
        let alone = json(&[&["sim", &file, "--seed", "3", "--json"], more].concat());
        assert_eq!(without_cost(alone), all[2], "{more:?}");
    }
    let kept: Value = serde_json::from_slice(&std::fs::read(out.join("outcome.json")).unwrap()).unwrap();
    assert_eq!(without_cost(kept), all[2]);
}

#[test]
fn json_has_the_promised_fields() {
    let outcome = json(&["sim", &written("fields.toml", SMALL), "--json"]);
    for field in [
        "transport",
        "hosts",
        "flows",
        "seed",
        "fct_us",
        "ideal_us",
        "spread",
        "packets_new",
        "packets_rtx",
        "packets_dropped",
        "packet_hops",
        "events",
        "sim_us",
        "cost",
    ] {
        assert!(!outcome[field].is_null(), "{field}: {outcome}");
    }
    for field in ["min", "p50", "mean", "p99", "max"] {
        assert!(outcome["fct_us"][field].as_f64().unwrap() > 0.0);
    }
    for field in ["cpu_s", "wall_s", "rss_mb", "packets_per_cpu_s"] {
        assert!(outcome["cost"][field].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn overrides_change_what_runs() {
    let file = written("sets.toml", SMALL);
    let plain = json(&["sim", &file, "--json"]);
    let changed =
        json(&["sim", &file, "--set", "workload.senders=3", "--set", "workload.0.size=100KB", "--json"]);
    assert_eq!((&plain["flows"], &changed["flows"]), (&6.into(), &3.into()));
    assert!(changed["packets_new"].as_u64() < plain["packets_new"].as_u64());
    let table = text(&run(&["sim", &file, "--seeds", "1..2"]).stdout);
    assert_eq!(table.lines().filter(|line| line.trim_start().starts_with(['1', '2'])).count(), 2, "{table}");
    assert!(table.contains("max/ideal") && table.contains("packets/s"), "{table}");
}

#[test]
fn bad_input_is_laid_to_its_line() {
    let file = written("bad.toml", &format!("{SMALL}[transport]\npath = 3\n"));
    let (code, message) = refused(&["sim", &file]);
    assert_eq!(code, 1);
    assert!(message.contains("bad.toml:11: [transport] has no key `path`"), "{message}");
    let good = written("good.toml", SMALL);
    let (code, message) = refused(&["sim", &good, "--set", "transport.path=3"]);
    assert!(code == 1 && message.contains("--set transport.path=3: [transport] has no key"), "{message}");
    let (code, message) = refused(&["sim", "no/such.toml"]);
    assert!(code == 1 && message.contains("no/such.toml: there is no such file"), "{message}");
    let (code, message) = refused(&["sim", &good, "--seeds", "4..2"]);
    assert!(code == 2 && message.contains("the last seed, 2, is below the first, 4"), "{message}");
    let (code, message) = refused(&["sim", &good, "--out", "/tmp/x", "--pcap", "leaf0-spine9"]);
    assert!(code == 1 && message.contains("no cable is called `leaf0-spine9`"), "{message}");
    for senseless in
        [&["sim"][..], &["sim", &good, "--trace"], &["sim", &good, "--seed", "1", "--seeds", "1..2"]]
    {
        assert_eq!(refused(senseless).0, 2, "{senseless:?}");
    }
}

#[test]
fn files_that_are_no_text_are_refused_whatever_they_are() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("a-directory");
    std::fs::create_dir_all(&directory).unwrap();
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("binary.toml");
    std::fs::write(&binary, b"seed = 1\n# \xff\n").unwrap();
    for (file, told) in [
        (directory.to_str().unwrap(), "a-directory: this is a directory"),
        (binary.to_str().unwrap(), "binary.toml:2: here it is no longer text in UTF-8"),
        ("/dev/zero", "/dev/zero: it has more than 256 MiB"),
        ("none.toml", "none.toml: there is no such file"),
    ] {
        let htsim = ["sim", "htsim", "--link-gbps", "100", "--cm"];
        let one = self::htsim("one.cm");
        let topo = [&htsim[..], &[&one, "--topo"]].concat();
        for command in [&["sim"][..], &["sim", "sweep"], &htsim, &topo] {
            let (code, message) = refused(&[command, &[file]].concat());
            assert!(code == 1 && message.contains(told), "{command:?} {file}: {message}");
        }
        let (code, message) = refused(&["trace", file]);
        assert!(code == 1 && message.contains(file) && message.contains("trace"), "{file}: {message}");
    }
}

#[test]
fn what_is_too_much_is_refused() {
    let good = written("much.toml", SMALL);
    let deep = format!("{}b=1", "a.".repeat(50_000));
    for (set, told) in [
        (deep.as_str(), "write `section.key=value`"),
        ("workload.processes=513", "513 cannot be: write a whole number from 1 to 512"),
        ("queues.capacity=9000", "9000 bytes hold no full frame"),
        ("queues.shared=5KB", "5000 bytes hold no full frame"),
        ("end_us=1e300", "end_us: 1e300 cannot be"),
    ] {
        let (code, message) = refused(&["sim", &good, "--set", set]);
        assert!(code == 1 && message.contains(told) && message.len() < 500, "{message}");
    }
    let one = htsim("one.cm");
    for queue in [["--queue-packets", "1"], ["--queue-bdp", "0.001"]] {
        let (code, message) =
            refused(&[&["sim", "htsim", "--cm", &one, "--link-gbps", "100"], &queue[..]].concat());
        assert!(code == 1 && message.contains("hold no full packet of srd"), "{message}");
    }
    run_with_most_processes();
}

/// As many as a host can have.
fn run_with_most_processes() {
    let file = written("processes.toml", SMALL);
    let outcome =
        json(&["sim", &file, "--set", "workload.processes=512", "--set", "workload.size=1KB", "--json"]);
    assert_eq!(outcome["finished"], outcome["flows"]);
}

#[test]
fn unfinished_flows_end_with_1() {
    let file = written("unfinished.toml", &SMALL.replacen("[fabric]", "end_us = 40\n[fabric]", 1));
    let output = run(&["sim", &file, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("6 of 6 flows unfinished when the run ends at 40 us"),
        "{output:?}"
    );
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&outcome["finished"], &outcome["fct_us"]), (&0.into(), &Value::Null));
}

#[test]
fn htsims_matrices_run_with_htsims_packets() {
    let run = |name: &str, more: &[&str]| {
        let file = htsim(name);
        let fixed = [
            "sim",
            "htsim",
            "--cm",
            &file,
            "--transport",
            "srd",
            "--link-gbps",
            "100",
            "--paths",
            "64",
            "--json",
        ];
        json(&[&fixed[..], more].concat())
    };
    // 2 MB are 489 packets of 4096 bytes; the first few introduce their sender.
    for (name, hosts, flows, floor) in [("one.cm", 16, 1, 160.0), ("incast.cm", 16, 15, 2437.5)] {
        let outcome = run(name, &[]);
        assert_eq!((&outcome["hosts"], &outcome["flows"]), (&hosts.into(), &flows.into()));
        assert_eq!(outcome["packets_new"], 489 * flows, "{outcome}");
        let (slowest, ideal) =
            (outcome["fct_us"]["max"].as_f64().unwrap(), outcome["ideal_us"].as_f64().unwrap());
        assert!(floor < ideal && ideal <= slowest * 1.001 && slowest < 1.25 * ideal, "{outcome}");
        assert_eq!(outcome["packets_lost"], 0);
    }
    // Twice the queue, fewer drops; htsim's own unit of queues.
    let dropped = |more: &[&str]| run("incast.cm", more)["packets_dropped"].as_u64().unwrap();
    assert!(dropped(&["--queue-bdp", "0.25"]) > dropped(&["--queue-bdp", "8"]));
    assert_eq!(dropped(&["--queue-packets", "43"]), dropped(&[]), "one BDP is 43 packets here");
}

#[test]
fn a_topology_of_htsims_runs_too() {
    let (cm, topo) = (htsim("perm_32n_32c_2MB.cm"), htsim("leaf_spine_tiny.topo"));
    let outcome = json(&[
        "sim",
        "htsim",
        "--cm",
        &cm,
        "--topo",
        &topo,
        "--link-gbps",
        "200",
        "--seeds",
        "2..2",
        "--json",
    ]);
    assert_eq!((&outcome[0]["hosts"], &outcome[0]["seed"]), (&32.into(), &2.into()));
    let (code, message) =
        refused(&["sim", "htsim", "--cm", &htsim("incast.cm"), "--topo", &topo, "--link-gbps", "200"]);
    assert!(
        code == 1 && message.contains("incast.cm:1: Nodes says 16, but the topology has 32 hosts"),
        "{message}"
    );
}

#[test]
fn faults_of_a_matrix_count() {
    let text = "Nodes 16\nConnections 1\nFailures 1\n0->15 id 1 start 0 size 100000\nfailure switch_type AGG switch_id 0 link_id 0\n";
    let good = written("failure.cm", text);
    json(&["sim", "htsim", "--cm", &good, "--link-gbps", "100", "--json"]);
    let bad = written("bad-failure.cm", &text.replace("link_id 0", "link_id 7"));
    let (code, message) = refused(&["sim", "htsim", "--cm", &bad, "--link-gbps", "100"]);
    assert!(code == 1 && message.contains("bad-failure.cm:5: AGG switch 0 has no link 7"), "{message}");
}

#[test]
fn bad_htsim_input_is_refused() {
    let bad = written("bad.cm", "Nodes 16\nConnections 2\n0->1 start 0 size 100\n2->16 start 0 size 100\n");
    let (code, message) = refused(&["sim", "htsim", "--cm", &bad, "--link-gbps", "100"]);
    assert!(code == 1 && message.contains("bad.cm:4: "), "{message}");
    let odd = written("odd.cm", "Nodes 17\nConnections 1\n0->1 start 0 size 100\n");
    let (_, message) = refused(&["sim", "htsim", "--cm", &odd, "--link-gbps", "100"]);
    assert!(message.contains("odd.cm: no fat tree has 17 hosts") && message.contains("--topo"), "{message}");
    let good = htsim("one.cm");
    let (code, message) =
        refused(&["sim", "htsim", "--cm", &good, "--link-gbps", "100", "--transport", "sctp"]);
    assert!(code == 2 && message.contains("there are srd"), "{message}");
    let (code, message) = refused(&["sim", "htsim", "--cm", "none.cm", "--link-gbps", "100"]);
    assert!(code == 1 && message.contains("none.cm: there is no such file"), "{message}");
    let (code, message) =
        refused(&["sim", "htsim", "--cm", &good, "--link-gbps", "100", "--set", "workload.sizes=1"]);
    assert!(code == 1 && message.contains("--set workload.sizes=1"), "{message}");
    assert_eq!(refused(&["sim", "htsim", "--cm", &good]).0, 2);
    let late = written("late.cm", "Nodes 16\nConnections 1\n0->1 start 20000000 size 100\n");
    let (code, message) = refused(&["sim", "htsim", "--cm", &late, "--link-gbps", "100"]);
    assert!(code == 1 && message.contains("begins at 20000000 us"), "{message}");
}

#[test]
fn notes_are_given_once() {
    let cm = written("notes.cm", "Nodes 16\nColour 3\nConnections 1\n0->1 start 0 size 100 prio 1\n");
    let output = run(&["sim", "htsim", "--cm", &cm, "--link-gbps", "100", "--seeds", "1..3", "--json"]);
    let notes = text(&output.stderr);
    assert_eq!(notes.matches("notes.cm:2: `Colour` is passed over").count(), 1, "{notes}");
    assert_eq!(notes.matches("notes.cm:4: `prio` is passed over").count(), 1, "{notes}");
}

#[test]
fn a_sweep_changes_one_thing_at_a_time() {
    written("base.toml", SMALL);
    let sweep = "seeds = \"1..2\"\n[[case]]\nscenario = \"base.toml\"\n[[case]]\nname = \"few\"\nscenario = \"base.toml\"\n\
                 set = [\"workload.senders=2\"]\n[[axis]]\nname = \"paths\"\nkey = \"transport.paths\"\nvalues = [1, 16]\n\
                 cases = [\"few\"]\n";
    let file = written("sweep.toml", sweep);
    let csv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sweep.csv");
    let rows = json(&["sim", "sweep", &file, "--json", "--csv", csv.to_str().unwrap()]);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2 + 3 * 2);
    assert_eq!((&rows[0]["case"], &rows[1]["seed"]), (&"base".into(), &2.into()));
    assert_eq!(rows[4]["changes"], serde_json::json!([{"axis": "paths", "value": "1"}]));
    // What a row says repeats it.
    let mut arguments = vec!["sim".to_string(), written("base.toml", SMALL), "--json".to_string()];
    for set in rows[7]["sets"].as_array().unwrap() {
        arguments.extend(["--set".to_string(), set.as_str().unwrap().to_string()]);
    }
    let again = json(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(without_cost(again), without_cost(rows[7]["outcome"].clone()));
    let lines: Vec<String> = std::fs::read_to_string(&csv).unwrap().lines().map(String::from).collect();
    assert!(lines[0].starts_with("case,paths,seed,scenario,") && lines.len() == 9, "{lines:?}");
    assert!(lines[5].starts_with("few,1,1,base,"), "{lines:?}");
    let page = text(&run(&["sim", "sweep", &file]).stdout);
    assert!(
        page.contains("## paths") && page.contains("| as it is |") && page.contains("| 16       |"),
        "{page}"
    );
    let all = json(&["sim", "sweep", &written("all.toml", &format!("combine = \"all\"\n{sweep}")), "--json"]);
    assert_eq!(all.as_array().unwrap().len(), 2 + 2 * 2);
}

#[test]
fn a_sweep_is_checked_before_anything_runs() {
    written("base.toml", SMALL);
    let sweep =
        |more: &str| written("bad-sweep.toml", &format!("[[case]]\nscenario = \"base.toml\"\n{more}"));
    for (more, expected) in [
        (
            "[[axis]]\nkey = \"law.slop\"\nvalues = [0]\n",
            "bad-sweep.toml:5: [[axis]] 0 values: law.slop=0: [law] has no key `slop`",
        ),
        ("[[axis]]\nkey = \"law.slope\"\nvalue = [0]\n", "bad-sweep.toml:5: [[axis]] 0 has no key `value`"),
        ("[[axis]]\nkey = \"law.slope\"\n", "`values` is missing"),
        ("[[axis]]\nvalues = [1]\n", "`name` is missing"),
        ("[[axis]]\nname = \"a\"\nvalues = [1]\n", "1 cannot be: write a list of overrides"),
        (
            "[[axis]]\nkey = \"law.slope\"\nvalues = [1]\ncases = [\"none\"]\n",
            "write a list of names of cases; there are base",
        ),
        ("[[axis]]\nkey = \"law.slope\"\nvalues = [1, 1]\n", "`1` is there twice"),
        ("[[axis]]\nkey = \"law.slope\"\nvalues = [1]\nlabels = []\n", "0 labels for 1 values"),
        ("seeds = \"2..1\"\n", "the last seed, 1, is below the first, 2"),
        ("show = [\"all\"]\n", "write a list of ideal, median, slowest"),
        ("[[case]]\nscenario = \"base.toml\"\n", "another case is called `base` already"),
        ("[[case]]\nscenario = \"gone.toml\"\n", "bad-sweep.toml:4: [[case]] 1 scenario: "),
        ("set = [\"fabric.leaves=0\"]\n", "bad-sweep.toml:3: [[case]] 0 set: fabric.leaves=0"),
    ] {
        let (code, message) = refused(&["sim", "sweep", &sweep(more)]);
        assert!(code == 1 && message.contains(expected), "{more}: {message}");
    }
    let (code, message) = refused(&["sim", "sweep", &written("empty.toml", "name = \"x\"\n")]);
    assert!(code == 1 && message.contains("empty.toml: there is no [[case]]"), "{message}");
}

#[test]
fn the_reference_explains_every_key_of_sweeps() {
    let page = std::fs::read_to_string(repository().join("docs/SCENARIOS.md")).unwrap();
    for (section, keys) in srd_sim::sweep::KEYS {
        for key in keys.iter().filter(|key| !["case", "axis"].contains(key)) {
            assert!(
                page.contains(&format!("| `{key}` |")),
                "docs/SCENARIOS.md does not explain `{key}` of {section}"
            );
        }
    }
}

#[test]
fn shipped_sweeps_hold_together() {
    for entry in std::fs::read_dir(repository().join("sweeps")).unwrap() {
        let path = entry.unwrap().path();
        let sweep = srd_sim::sweep::Sweep::load(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert!(sweep.jobs().len() > 10, "{}", path.display());
    }
}

/// Starts what goes on for minutes, interrupts it after a while, and returns its code and what it printed.
fn interrupted(arguments: &[&str]) -> (Option<i32>, String, String) {
    let file = |name: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let paths = [file("interrupted.out"), file("interrupted.err")];
    let [out, err] = [0, 1].map(|n| Stdio::from(std::fs::File::create(&paths[n]).unwrap()));
    let mut child = srd(arguments).stdout(out).stderr(err).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let asked = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if asked.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("it goes on after an interrupt");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let [out, err] = paths.map(|path| std::fs::read_to_string(path).unwrap());
    (status.code(), out, err)
}

#[test]
fn an_interrupt_keeps_what_is_finished() {
    let file = written("batch.toml", SMALL);
    let (code, out, err) = interrupted(&["sim", &file, "--seeds", "1..100000", "--json"]);
    assert_eq!(code, Some(130), "{err}");
    let runs: Value = serde_json::from_str(&out).unwrap();
    let finished = runs.as_array().unwrap().len();
    assert!(finished > 0 && finished < 100_000);
    let expected = format!("interrupted: {finished} of 100000 runs are finished; missing: seed ");
    assert!(err.contains(&expected), "{err}");

    let (code, out, err) = interrupted(&["sim", &file, "--set", "workload.size=8GB", "--json"]);
    assert_eq!((code, out.as_str()), (Some(130), ""), "{err}");
    assert!(err.contains("interrupted: the run has not come to its end"), "{err}");
}

#[test]
fn a_run_that_does_not_fit_is_refused_with_the_number() {
    let file = written(
        "huge.toml",
        "[fabric]\nkind = \"one-switch\"\nhosts = 512\n[[workload]]\nkind = \"permutation\"\nprocesses = 512\nsize = \"8GB\"\n",
    );
    let sets = ["--set", "fabric.base_rtt_us=10000", "--set", "transport.mtu=576"];
    let (code, message) = refused(&[&["sim", &file], &sets[..]].concat());
    assert_eq!(code, 1);
    for part in [
        "a run needs about ",
        " GB, and ",
        "are available: ",
        "packets in flight",
        "What helps: ",
        "--no-memory-check",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn the_memory_estimate_is_near_what_runs_take() {
    let fabric = "[fabric]\nkind = \"fat-tree\"\nk = 12\nframe_overhead = 0\n[transport]\nmtu = 4226\n";
    for (name, workload) in [
        ("permutation", "kind = \"permutation\"\nsize = \"300KB\"\n"),
        ("short", "kind = \"permutation\"\nsize = 1\nprocesses = 3\n"),
        ("exchange", "kind = \"all-to-all\"\nhosts = 100\nsize = 1000\n"),
    ] {
        let file = written(&format!("memory-{name}.toml"), &format!("{fabric}[[workload]]\n{workload}"));
        let estimate =
            MemoryEstimate::of(&Scenario::load(Path::new(&file), &[]).unwrap()).bytes() as f64 / 1e6;
        let taken = json(&["sim", &file, "--json"])["cost"]["rss_mb"].as_f64().unwrap() * 1.048576;
        let ratio = estimate / taken;
        assert!((0.6..1.7).contains(&ratio), "{name}: {taken:.1} MB taken, {estimate:.1} MB estimated");
    }
}

#[test]
fn captures_keep_as_much_of_a_frame_as_is_asked_for() {
    let file = written("captured.toml", SMALL);
    let size = |name: &str, more: &[&str]| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let given = ["sim", &file, "--out", out.to_str().unwrap(), "--pcap", "h0-leaf0", "--json"];
        json(&[&given, more].concat());
        let bytes = std::fs::read(out.join("h0-leaf0.pcap")).unwrap();
        (u32::from_le_bytes(bytes[16..20].try_into().unwrap()), bytes.len())
    };
    let [headers, short, whole] =
        [("headers", &[][..]), ("short", &["--snap-len", "40"]), ("whole", &["--snap-len", "65549"])]
            .map(|(name, more)| size(name, more));
    assert_eq!((headers.0, short.0, whole.0), (65_549, 40, 65_549), "the file says how much it keeps");
    assert!(short.1 < headers.1 && 2 * headers.1 < whole.1, "{short:?}, {headers:?}, {whole:?}");
    for bad in [&["--snap-len", "0"][..], &["--snap-len", "65550"], &["--snap-len", "x"]] {
        let given = ["sim", &file, "--out", "/tmp/x", "--pcap", "h0-leaf0"];
        assert_eq!(refused(&[&given, bad].concat()).0, 2, "{bad:?}");
    }
    let (code, message) = refused(&["sim", &file, "--out", "/tmp/x", "--snap-len", "64"]);
    assert!(code == 2 && message.contains("--pcap"), "{message}");
}

#[test]
fn a_trace_is_told() {
    let file = written("traced.toml", SMALL);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("traced");
    let out = out.to_str().unwrap();
    json(&["sim", &file, "--out", out, "--trace=1,2", "--json"]);
    let trace = format!("{out}/trace.jsonl");
    let report = json(&["trace", &trace, "--flow", "2", "--json"]);
    assert_eq!((&report["traced"], report["stories"].as_array().unwrap().len()), (&2.into(), 1));
    let told = text(&run(&["trace", &trace]).stdout);
    assert!(told.contains("Flow 1") && told.contains("Flow 2"), "{told}");
    let (code, message) = refused(&["trace", &trace, "--flow", "5"]);
    assert!(code == 1 && message.contains("flow 5 is not in this trace"), "{message}");
    assert_eq!(refused(&["trace", "none.jsonl"]).0, 1);
}

#[test]
fn lines_of_a_trace_are_listed() {
    let file = written("listed.toml", SMALL);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("listed");
    json(&["sim", &file, "--out", out.to_str().unwrap(), "--trace=all", "--json"]);
    let trace = out.join("trace.jsonl").display().to_string();
    let told = text(&run(&["trace", &trace, "--event", "packet_sent", "--flow", "1"]).stdout);
    assert!(told.lines().count() > 1 && told.lines().all(|line| line.contains("  packet_sent  ")), "{told}");
    let lines = text(&run(&["trace", &trace, "--from", "1", "--to", "3.5", "--json"]).stdout);
    for line in lines.lines() {
        let at = serde_json::from_str::<Value>(line).unwrap()["t_us"].as_f64().unwrap();
        assert!((1.0..=3.5).contains(&at), "{line}");
    }
    for (arguments, code, word) in [
        (&["--event", "packet_lots"][..], 1, "no event is called `packet_lots`; there are run, "),
        (&["--flow", "99", "--from", "1"], 1, "flow 99 is not in this trace"),
        (&["--from", "5", "--to", "4"], 1, "--to 4 lies before --from 5"),
        (&["--from", "nan"], 2, "a number of microseconds"),
        (&["--slowest", "2", "--from", "1"], 2, "cannot be used with"),
    ] {
        let (ended, message) = refused(&[&["trace", &trace], arguments].concat());
        assert!(ended == code && message.contains(word), "{arguments:?}: {message}");
    }
}

#[test]
fn every_command_explains_itself_with_examples() {
    for command in [&["sim"][..], &["sim", "htsim"], &["sim", "sweep"], &["trace"], &["figures"]] {
        let output = srd(command).arg("--help").output().unwrap();
        assert!(output.status.success() && text(&output.stdout).contains("Examples:"), "{command:?}");
    }
}

#[test]
fn published_figures_come_as_one_page() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("figures");
    let named = text(&run(&["figures", "--list"]).stdout);
    assert!(named.lines().count() >= 3 && named.contains("rack-to-rack"), "{named}");
    let done = run(&["figures", "incast-distribution", "--quick", "--out", &out.display().to_string()]);
    let [page, data] = ["index.html", "figures.json"].map(|name| out.join(name));
    assert_eq!(text(&done.stdout), format!("{}\n{}\n", page.display(), data.display()));
    let page = std::fs::read_to_string(page).unwrap();
    let data: Value = serde_json::from_slice(&std::fs::read(data).unwrap()).unwrap();
    let lines = data["figures"][0]["chart"]["lines"].as_array().unwrap();
    assert!(lines.iter().any(|line| line["label"] == "SRD" && line["points"].as_array().unwrap().len() > 10));
    assert!(page.contains("id=\"incast-distribution\"") && page.matches("<figure").count() == 1);
    let (code, message) = refused(&["figures", "incast", "--out", "/nowhere"]);
    assert!(code == 2 && message.contains("incast-by-size, incast-distribution"), "{message}");
    assert!(message.contains("groups srd-paper, efa, mellanox, broadcom, sandia"), "{message}");
    assert!(named.lines().any(|line| line == "sandia:"), "{named}");
}

/// Flows without end into a port whose class is lossless, with too little room for what is under way.
const ENDLESS: &str = "\
end_us = 500
[fabric]
kind = \"one-switch\"
hosts = 9
[queues]
capacity = \"1MB\"
lossless = [0]
pfc_xoff = \"20KB\"
pfc_headroom = \"2KB\"
[transport]
kind = \"roce\"
mtu = 4200
[[workload]]
kind = \"incast\"
senders = 8
persistent = true
";

#[test]
fn lossless_classes_that_lose_are_warned_of() {
    let file = written("headroom.toml", ENDLESS);
    let output = run(&["sim", &file]);
    let (told, table) = (text(&output.stderr), text(&output.stdout));
    assert!(output.status.success(), "a warning is no failure: {told}");
    let lost = json(&["sim", &file, "--json"])["lossless_drops"].as_u64().unwrap();
    assert!(
        lost > 0 && told.contains(&format!("warning: {lost} packets of lossless classes lost")),
        "{told}"
    );
    assert!(told.contains("`pfc_headroom`"), "{told}");
    assert!(table.contains("goodput in Gb/s") && !table.contains("  -  "), "{table}");
    let enough = run(&["sim", &file, "--set", "queues.pfc_headroom=100KB"]);
    assert!(!text(&enough.stderr).contains("warning"), "{enough:?}");
}

#[test]
fn samples_that_go_nowhere_are_told_of() {
    let file = written("sampled.toml", &format!("{SMALL}[sample]\nevery_us = 5\n"));
    let told = text(&run(&["sim", &file, "--seeds", "1..3"]).stderr);
    assert_eq!(told.matches("[sample] has no effect without --out").count(), 1, "{told}");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sampled");
    let told = text(&run(&["sim", &file, "--out", out.to_str().unwrap()]).stderr);
    assert!(!told.contains("[sample]"), "{told}");
}

#[test]
fn ranks_that_wait_for_each_other_are_named() {
    let trace = "num_ranks 3\nrank 0 {\nl1: recv 100b from 1 tag 7\nl2: send 100b to 1 tag 7\nl2 requires l1\n}\n\
                 rank 1 {\nl1: recv 100b from 0 tag 7\nl2: send 100b to 0 tag 7\nl2 requires l1\n}\n\
                 rank 2 {\nl1: calc 100\n}\n";
    written("waiting.goal", trace);
    let fabric = "end_us = 1000\n[fabric]\nkind = \"one-switch\"\nhosts = 4\n";
    let program = format!("{fabric}[[program]]\nkind = \"goal\"\nfile = \"waiting.goal\"\n");
    for kind in ["srd", "tcp", "roce"] {
        let file = written("waiting.toml", &format!("{program}[transport]\nkind = \"{kind}\"\n"));
        let output = run(&["sim", &file]);
        let told = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && told.contains("2 ranks of programs wait for each other"),
            "{told}"
        );
        assert!(told.contains("rank 0 for a message with tag 7 of rank 1"), "{told}");
        assert!(told.contains("a larger `end_us` does not help"), "{told}");
    }
    // A send that needs its receiver, and time that is too short for a program that goes on.
    let long = trace
        .replace("l1: recv 100b from", "l1: send 10000000b to")
        .replace("l2: send 100b to", "l2: recv 10000000b from");
    written("waiting.goal", &long);
    let told = text(&run(&["sim", &written("waiting.toml", &program)]).stderr);
    assert!(told.contains("rank 0 until rank 1 receives its message with tag 7"), "{told}");
    written("waiting.goal", "num_ranks 2\nrank 0 {\nl1: calc 2000000\n}\nrank 1 {\nl1: calc 1\n}\n");
    let told = text(&run(&["sim", &written("waiting.toml", &program)]).stderr);
    assert!(told.contains("a larger `end_us` gives them more time"), "{told}");
}

#[test]
fn runs_of_any_transport_are_recorded() {
    let [single, mixed] = ["[transport]\nkind = \"tcp\"\n", "[[rival]]\nkind = \"tcp\"\n"];
    let file = written("tcp.toml", &format!("{SMALL}{single}"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tcp-recorded");
    let out = out.to_str().unwrap();
    json(&["sim", &file, "--out", out, "--trace=1", "--pcap", "h0-leaf0", "--json"]);
    let told = text(&run(&["trace", &format!("{out}/trace.jsonl")]).stdout);
    assert!(told.contains("Flow 1, ") && told.contains("It used 1 path"), "{told}");
    let (code, message) = refused(&["sim", &file, "--verify"]);
    assert!(code == 1 && message.contains("nobody speaks SRD here"), "{message}");
    let (code, message) = refused(&["sim", &file, "--out", out, "--verify"]);
    assert!(code == 1 && message.contains("nobody speaks SRD here"), "{message}");
    json(&["sim", &written("both.toml", &format!("{SMALL}{mixed}")), "--verify", "--json"]);
}
