//! Valid files, spoilt at random: a parser may refuse them, with a place and a message, but must never panic.

use crate::{htsim_file, shipped};
use proptest::prelude::*;
use srd_sim::input::htsim::{cm_file, topo_file};
use srd_sim::input::{InputError, Scenario};
use std::sync::LazyLock;

/// One change of a text.
#[derive(Clone, Debug)]
enum Change {
    /// Ends it there.
    Cut(prop::sample::Index),
    /// Takes some characters out.
    Remove(prop::sample::Index, usize),
    /// Puts a piece in.
    Insert(prop::sample::Index, String),
    /// Puts a line of it somewhere else once more.
    Repeat(prop::sample::Index, prop::sample::Index),
    /// Puts another value in the place of a number.
    Number(prop::sample::Index, String),
}

fn piece() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        " ",
        "  ",
        "\t",
        "\n",
        "#",
        "->",
        "0",
        "-1",
        "1",
        "4294967296",
        "99999999999999999999",
        "1e308",
        "nan",
        "inf",
        "=",
        "[",
        "]",
        "\"",
        "{",
        "trigger",
        "id",
        "size",
        "start",
        "msg",
        "barrier",
        "Tier",
        "Bundle",
        "h0",
        "*",
        "é",
        "\0",
        "true",
        "0.0",
        "2147483647",
        "bdp",
        "KB",
        "9223372036854775807",
    ];
    prop::sample::select(PIECES).prop_map(str::to_string)
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        1 => index().prop_map(Change::Cut),
        2 => (index(), 1usize..20).prop_map(|(at, n)| Change::Remove(at, n)),
        3 => (index(), piece()).prop_map(|(at, piece)| Change::Insert(at, piece)),
        2 => (index(), index()).prop_map(|(from, to)| Change::Repeat(from, to)),
        4 => (index(), piece()).prop_map(|(at, piece)| Change::Number(at, piece)),
    ]
}

/// A place between two characters.
fn place(text: &str, at: &prop::sample::Index) -> usize {
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    ends[at.index(ends.len())]
}

fn changed(text: &str, change: &Change) -> String {
    match change {
        Change::Cut(at) => text[..place(text, at)].to_string(),
        Change::Remove(at, n) => {
            let at = place(text, at);
            text[..at].chars().chain(text[at..].chars().skip(*n)).collect()
        }
        Change::Insert(at, piece) => {
            let at = place(text, at);
            format!("{}{piece}{}", &text[..at], &text[at..])
        }
        Change::Repeat(from, to) => {
            let mut lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                lines.insert(to.index(lines.len() + 1), lines[from.index(lines.len())]);
            }
            lines.join("\n")
        }
        Change::Number(at, piece) => {
            let is_digit = |at: &usize| text.as_bytes()[*at].is_ascii_digit();
            let digits: Vec<usize> = (0..text.len()).filter(is_digit).collect();
            if digits.is_empty() {
                return text.to_string();
            }
            let begin = digits[at.index(digits.len())];
            let end = (begin..text.len()).find(|at| !is_digit(at)).unwrap_or(text.len());
            format!("{}{piece}{}", &text[..begin], &text[end..])
        }
    }
}

fn spoilt(text: &str, changes: &[Change]) -> String {
    changes.iter().fold(text.to_string(), |text, change| changed(&text, change))
}

/// Says something, and where.
fn is_useful(error: &InputError, text: &str) -> bool {
    let line_exists = error.line.is_none_or(|line| line >= 1 && line as usize <= text.lines().count().max(1));
    !error.place.is_empty() && error.message.len() > 10 && line_exists && !error.message.contains('\n')
}

static MATRICES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let own = std::fs::read_to_string(shipped().join("triggers.cm")).unwrap();
    let failing = "Nodes 8\nConnections 1\nFailures 1\n0->7 start 0 size 1\nfailure switch_type AGG switch_id 0 link_id 1\n";
    vec![own, htsim_file("incast.cm"), htsim_file("perm_32n_32c_2MB.cm"), failing.to_string()]
});

static TOPOLOGIES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let own = std::fs::read_to_string(shipped().join("bundles.topo")).unwrap();
    vec![own, htsim_file("leaf_spine_tiny.topo"), htsim_file("fat_tree_128_1os.topo")]
});

static SCENARIOS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let files = std::fs::read_dir(shipped()).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
});

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spoilt_matrices_never_panic(which in any::<prop::sample::Index>(), changes in prop::collection::vec(change(), 1..4)) {
        let text = spoilt(&MATRICES[which.index(MATRICES.len())], &changes);
        let topology = topo_file::parse(&TOPOLOGIES[0], "a.topo").unwrap().topology;
        match cm_file::parse(&text, "a.cm", None) {
            Ok(matrix) => {
                prop_assert_eq!(matrix.traffic.check(matrix.hosts), Ok(()));
                if let Err(error) = matrix.faults(&topology) {
                    prop_assert!(is_useful(&error, &text), "{error}");
                }
            }
            Err(error) => prop_assert!(is_useful(&error, &text), "{error}"),
        }
    }

    #[test]
    fn spoilt_topologies_never_panic(which in any::<prop::sample::Index>(), changes in prop::collection::vec(change(), 1..4)) {
        let text = spoilt(&TOPOLOGIES[which.index(TOPOLOGIES.len())], &changes);
        match topo_file::parse(&text, "a.topo") {
            Ok(file) => prop_assert_eq!(file.topology.check(), Ok(())),
            Err(error) => prop_assert!(is_useful(&error, &text), "{error}"),
        }
    }

    #[test]
    fn spoilt_scenarios_never_panic(which in any::<prop::sample::Index>(), changes in prop::collection::vec(change(), 1..3)) {
        let text = spoilt(&SCENARIOS[which.index(SCENARIOS.len())], &changes);
        match Scenario::parse(&text, "a.toml", &shipped(), &[]) {
            Ok(scenario) => {
                prop_assert_eq!(scenario.topology.check(), Ok(()));
                prop_assert_eq!(scenario.traffic.check(scenario.topology.hosts), Ok(()));
            }
            Err(error) => prop_assert!(!error.message.is_empty(), "{error}"),
        }
    }
}
