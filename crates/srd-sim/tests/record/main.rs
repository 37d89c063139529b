//! What a run leaves in a directory: that recording changes nothing, and that what is written is true.

mod captures;
mod others;
mod pages;
mod runs;
mod tables;
mod traces;

use srd_sim::input::Scenario;
use srd_sim::record::{self, Recorded, Recording};
use std::fs;
use std::path::{Path, PathBuf};

/// Eight flows into one port whose queue is too short for them, over two spines.
const INCAST: &str = "\
seed = 7
[fabric]
kind = \"leaf-spine\"
leaves = 3
spines = 2
hosts_per_leaf = 4
[transport]
paths = 16
[queues]
capacity = \"40KB\"
[[workload]]
kind = \"incast\"
senders = 8
size = \"300KB\"
";

/// The same with cables that lose, damage and go down.
const FAULTS: &str = "\
[[fault]]
kind = \"loss\"
link = \"leaf1-spine0\"
at_us = 20
probability = 0.05
[[fault]]
kind = \"corruption\"
link = \"leaf2-spine1\"
at_us = 20
probability = 0.05
[[fault]]
kind = \"down\"
link = \"leaf1-spine1\"
at_us = 60
for_us = 80
noticed_after_us = 1000
";

fn scenario(text: &str, sets: &[&str]) -> Scenario {
    let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
    Scenario::parse(text, "a.toml", Path::new(""), &sets).unwrap_or_else(|error| panic!("{error}"))
}

/// An empty directory of this name.
fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("record").join(name);
    let _ = fs::remove_dir_all(&path);
    path
}

fn record(scenario: &Scenario, recording: &Recording) -> Recorded {
    match record::run(scenario, recording, &mut |_| true) {
        Ok(Some(recorded)) => recorded,
        Ok(None) => panic!("nobody has given it up"),
        Err(error) => panic!("{error}"),
    }
}

fn text(recording: &Recording, file: &str) -> String {
    fs::read_to_string(recording.dir.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// A table: its rows as values by the names of their columns.
fn rows(recording: &Recording, file: &str) -> Vec<std::collections::BTreeMap<String, String>> {
    let text = text(recording, file);
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let row = |line: &str| {
        names.iter().map(|name| name.to_string()).zip(line.split(',').map(String::from)).collect()
    };
    lines.map(row).collect()
}
