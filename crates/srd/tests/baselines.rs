//! That the transports SRD is compared with are what their authors have made: figures of others' simulators on the same inputs
//! (docs/BASELINES.md has the commands that gave these), and that SRD gets along with them.

mod simulated;

use serde_json::Value;
use simulated::outcome as sim;
use std::path::Path;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// A scenario that a test has written.
fn written(name: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[track_caller]
fn near(what: &str, ours: f64, theirs: f64) {
    assert!((0.9..=1.1).contains(&(ours / theirs)), "{what}: {ours} here, {theirs} there");
}

/// The longest flow of a matrix of htsim's.
fn takes_as_long_as_in_htsim(transport: &str, matrix: &str, how: &[&str], htsim_us: f64) {
    let file = format!("crates/srd-sim/tests/inputs/htsim/{matrix}");
    let fixed = ["htsim", "--transport", transport, "--link-gbps", "100", "--cm", &file];
    let outcome = sim(&[&fixed[..], how].concat());
    near(&format!("{transport}, {matrix} {how:?}"), number(&outcome["fct_us"]["max"]), htsim_us);
}

#[test]
fn nscc_takes_as_long_as_in_its_consortiums_simulator() {
    for (matrix, how, htsim_us) in [
        ("one.cm", &["--trim"][..], 176.2),
        ("incast.cm", &["--trim"], 2478.5),
        ("incast_128.cm", &["--trim"], 21029.3),
        ("perm_1024n_1024c_0u_2000000b.cm", &["--trim"], 205.6),
        ("incast.cm", &["--queue-packets", "36"], 2452.0),
        ("incast_128.cm", &["--queue-packets", "36"], 20726.0),
        ("perm_1024n_1024c_0u_2000000b.cm", &["--queue-packets", "36"], 270.8),
        ("incast.cm", &["--trim", "--paths", "4096"], 2478.5),
    ] {
        takes_as_long_as_in_htsim("nscc", matrix, how, htsim_us);
    }
}

#[test]
fn rccc_takes_as_long_as_in_its_consortiums_simulator() {
    for (matrix, how, htsim_us) in [
        ("one.cm", &["--trim"][..], 177.4),
        ("incast.cm", &["--trim"], 2464.4),
        ("incast_128.cm", &["--trim"], 20891.4),
        ("perm_1024n_1024c_0u_2000000b.cm", &["--trim"], 209.9),
        ("incast.cm", &["--queue-packets", "36"], 2466.3),
        ("incast_128.cm", &["--queue-packets", "36"], 20916.7),
        ("perm_1024n_1024c_0u_2000000b.cm", &["--queue-packets", "36"], 267.1),
        ("incast_128.cm", &["--trim", "--set", "transport.window=true"], 20892.4),
        ("perm_1024n_1024c_0u_2000000b.cm", &["--trim", "--set", "transport.window=true"], 206.5),
    ] {
        takes_as_long_as_in_htsim("rccc", matrix, how, htsim_us);
    }
}

/// htsim's fat tree of 128 hosts, and PFC thresholds of its lossless queues in bytes.
const LOSSLESS_TREE: &str = r#"
end_us = 100_000

[fabric]
kind = "fat-tree"
k = 8
host_gbps = 100
frame_overhead = 0

[queues]
capacity = "10MB"
lossless = [0]
pfc_xoff = "64KB"
pfc_xon = "51KB"

[transport]
kind = "roce"
mtu = 4200
"#;

#[test]
fn roce_over_pfc_takes_as_long_as_in_csg_htsim() {
    let permutation = "[[workload]]\nkind = \"permutation\"\nsize = \"2MB\"\n";
    let file = written("roce-permutation.toml", &format!("{LOSSLESS_TREE}{permutation}"));
    let runs = sim(&[&file, "--seeds", "1..8"]);
    let runs = runs.as_array().unwrap();
    let mean =
        |field: &str| runs.iter().map(|run| number(&run["fct_us"][field])).sum::<f64>() / runs.len() as f64;
    near("median of a permutation", mean("p50"), 450.0);
    near("mean of a permutation", mean("mean"), 454.3);
    near("longest of a permutation", mean("max"), 808.1);
    assert!(runs.iter().all(|run| run["lossless_drops"] == 0 && run["packets_dropped"] == 0));
    for (matrix, csg_us) in [("incast.cm", 2434.3), ("incast_128.cm", 20544.9)] {
        let file = format!("crates/srd-sim/tests/inputs/htsim/{matrix}");
        let htsim = ["htsim", "--transport", "roce", "--link-gbps", "100", "--cm", &file];
        let outcome = sim(&htsim);
        near(matrix, number(&outcome["fct_us"]["max"]), csg_us);
        assert_eq!(outcome["packets_dropped"], 0, "its class is lossless");
        let lossy = sim(&[&htsim[..], &["--set", "queues.lossless=[]"]].concat());
        assert_ne!(lossy["packets_dropped"], 0, "unless somebody wants it otherwise");
    }
    let incast = "[[workload]]\nkind = \"incast\"\nsenders = 48\nsize = \"2MB\"\n";
    let file = written("roce-incast.toml", &format!("{LOSSLESS_TREE}{incast}"));
    let outcome = sim(&[&file]);
    near("median of an incast", number(&outcome["fct_us"]["p50"]), 6798.8);
    near("longest of an incast", number(&outcome["fct_us"]["max"]), 7770.4);
}

/// Four flows of SRD and four of another transport into one port.
fn shares(name: &str, queues: &str, rival: &str) -> (f64, f64) {
    let text = format!(
        "end_us = 40_000\n[fabric]\nkind = \"one-switch\"\nhosts = 9\nhost_gbps = 100\nbase_rtt_us = 12\n\
         [queues]\n{queues}\n[transport]\nmtu = 9000\n[[rival]]\nname = \"other\"\n{rival}\n\
         [[workload]]\nname = \"srd\"\nkind = \"flows\"\npairs = [\"1->0\", \"2->0\", \"3->0\", \"4->0\"]\npersistent = true\n\
         [[workload]]\nname = \"other\"\nkind = \"flows\"\ntransport = \"other\"\n\
         pairs = [\"5->0\", \"6->0\", \"7->0\", \"8->0\"]\npersistent = true\n"
    );
    let outcome = sim(&[&written(&format!("{name}.toml"), &text)]);
    let gbps = |which: usize| number(&outcome["workloads"][which]["goodput_gbps"]);
    let least = |which: usize| number(&outcome["workloads"][which]["goodput_of_flows_gbps"][0]);
    assert!(least(0).min(least(1)) > 2.0, "{name}: a flow is starved: {}", outcome["workloads"]);
    (gbps(0), gbps(1))
}

#[test]
fn srd_and_others_on_one_port_get_their_shares() {
    let dcqcn = "ecn_min = \"400KB\"\necn_max = \"1600KB\"\necn_probability = 0.2\n";
    let nscc = "ecn_min = \"0.2bdp\"\necn_max = \"0.8bdp\"";
    for (name, queues, rival) in [
        ("cubic", "capacity = \"1MB\"", "kind = \"tcp\""),
        ("cubic-deep", "capacity = \"4MB\"", "kind = \"tcp\""),
        ("dctcp", "capacity = \"1MB\"\necn_min = \"100KB\"", "kind = \"tcp\"\ncongestion = \"dctcp\""),
        ("dctcp-deep", "capacity = \"2MB\"\necn_min = \"400KB\"", "kind = \"tcp\"\ncongestion = \"dctcp\""),
        (
            "nscc",
            "capacity = \"1MB\"\necn_min = \"0.2bdp\"\necn_max = \"0.8bdp\"\ntrim = true",
            "kind = \"nscc\"",
        ),
        ("dcqcn", &format!("capacity = \"2MB\"\n{dcqcn}"), "kind = \"roce\""),
        ("nscc", &format!("capacity = \"1MB\"\n{nscc}"), "kind = \"nscc\""),
        ("nscc-cut", &format!("capacity = \"1MB\"\ntrim = true\n{nscc}"), "kind = \"nscc\""),
        ("rccc", &format!("capacity = \"1MB\"\n{nscc}"), "kind = \"rccc\""),
        ("rccc-cut", &format!("capacity = \"1MB\"\ntrim = true\n{nscc}"), "kind = \"rccc\""),
        ("dcqcn-pfc", &format!("capacity = \"2MB\"\nlossless = [3]\n{dcqcn}"), "kind = \"roce\"\nclass = 3"),
    ] {
        let (srd, other) = shares(name, queues, rival);
        let half = (srd + other) / 2.0;
        assert!(srd + other > 90.0, "{name}: {srd} and {other} Gb/s leave the port idle");
        assert!((0.5..=2.0).contains(&(srd / half)), "{name}: SRD {srd}, the other {other} Gb/s");
        assert!((0.5..=2.0).contains(&(other / half)), "{name}: SRD {srd}, the other {other} Gb/s");
    }
}

#[test]
fn a_class_of_its_own_keeps_a_job_from_another_transports() {
    let slowest = |sets: &[&str]| {
        let outcome = sim(&[&["scenarios/two-jobs.toml"], sets].concat());
        number(&outcome["programs"][0]["figures"][0]["p99"])
    };
    let alone = slowest(&["--set", "program.1.size=1B"]);
    let beside = slowest(&[]);
    let isolated = slowest(&["--set", "queues.classes=strict", "--set", "rival.0.class=1"]);
    assert!(beside > 2.0 * alone, "the other job does no harm: {alone} us alone, {beside} us beside it");
    assert!(isolated < 1.5 * alone, "a class of its own does not help: {alone} us alone, {isolated} us");
}

#[test]
fn what_a_rival_has_not_is_refused_with_a_reason() {
    let base = "[fabric]\nkind = \"one-switch\"\nhosts = 2\n[[workload]]\nkind = \"flows\"\npairs = [\"0->1\"]\nsize = \"1MB\"\n";
    for (sections, told) in [
        ("[queues]\nlossless = [0]\n[transport]\nkind = \"tcp\"\n", "lossless"),
        ("[transport]\nkind = \"tcp\"\ncongestion = \"dctcp\"\n", "mark"),
        ("[transport]\nkind = \"roce\"\ndcqcn = true\n", "mark"),
        ("[transport]\nkind = \"nscc\"\n", "mark"),
        ("[transport]\nkind = \"tcp\"\ndcqcn = true\n", "has no key `dcqcn`"),
        ("[transport]\nkind = \"tcp\"\nrcvbuf = 1000\n", "two packets"),
        ("[transport]\nkind = \"sctp\"\n", "one of"),
        ("[[rival]]\nname = \"x\"\n", "`kind` is missing"),
        ("[[rival]]\nkind = \"tcp\"\n[[rival]]\nkind = \"tcp\"\n", "another transport called"),
        (
            "[[rival]]\nkind = \"tcp\"\n[[workload]]\nkind = \"incast\"\nsenders = 1\nprocesses = 500\nsize = \"1KB\"\n\
             [[workload]]\nkind = \"incast\"\nname = \"b\"\ntransport = \"tcp\"\nsenders = 1\nprocesses = 500\nsize = \"1KB\"\n",
            "more than 512 processes",
        ),
    ] {
        let file = written("refused.toml", &format!("{base}{sections}"));
        let output = simulated::command(&[&file]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && message.contains(told), "{sections}: {message}");
    }
}

#[test]
fn what_switches_do_for_nobody_is_told() {
    let trims = "makes anything of packets that switches cut";
    for (kind, set, told) in [
        ("tcp", "queues.trim=true", trims),
        ("srd", "queues.trim=true", ""),
        ("srd", "queues.lossless=[3]", "sends in lossless class 3"),
    ] {
        let kind = format!("transport.kind={kind}");
        let arguments =
            ["scenarios/living-together.toml", "--set", "end_us=100", "--set", &kind, "--set", set];
        let output = simulated::command(&arguments).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && message.contains(told), "{kind}, {set}: {message}");
        assert!(told == trims || !message.contains(trims), "{kind}, {set}: {message}");
    }
}
