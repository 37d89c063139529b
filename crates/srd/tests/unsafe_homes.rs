//! docs/UNSAFE.md lists every file with unsafe code, and nothing else.

mod checkout;

use checkout::{text, texts};
use std::collections::{BTreeMap, BTreeSet};

/// C calls them, so that unsafe code is everywhere in them: every file of theirs that has some is a row all the same.
const SPEAK_C: [&str; 2] = ["srd-libfabric", "srd-verbs"];

/// Tests as a crate: it compiles sources of others once more, and nobody ships it.
const MODELS: &str = "srd-races";

/// Whether a line of code says `unsafe`. Comments do not count, and `unsafe_code` is another word.
fn says_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| word == "unsafe")
}

/// Sources of what is shipped, by crate: `srd-shm` and `src/ring.rs`.
fn crates() -> BTreeMap<String, Vec<(String, String)>> {
    let mut all: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (path, text) in texts("crates", ".rs") {
        let (name, file) = path["crates/".len()..].split_once('/').expect("sources are in crates");
        if name != MODELS && file.starts_with("src/") {
            all.entry(name.to_string()).or_default().push((file.to_string(), text));
        }
    }
    all
}

fn homes() -> BTreeSet<String> {
    let mut homes = BTreeSet::new();
    for (name, files) in crates() {
        let unsafe_ones = files.iter().filter(|(_, text)| text.lines().any(says_unsafe));
        homes.extend(unsafe_ones.map(|(file, _)| format!("{name}/{file}")));
    }
    homes
}

#[test]
fn unsafe_code_is_in_the_files_of_the_list_and_nowhere_else() {
    let text = text("docs/UNSAFE.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let mut listed = BTreeSet::new();
    for (file, why) in rows {
        assert!(why.len() > 10, "docs/UNSAFE.md says why there is unsafe code in {file}");
        assert!(listed.insert(file.to_string()), "{file} has two rows in docs/UNSAFE.md");
    }
    let homes = homes();
    let unlisted: Vec<_> = homes.difference(&listed).collect();
    assert!(unlisted.is_empty(), "unsafe code without a row in docs/UNSAFE.md: {unlisted:?}");
    let without: Vec<_> = listed.difference(&homes).collect();
    assert!(without.is_empty(), "rows of docs/UNSAFE.md without unsafe code: {without:?}");
}

#[test]
fn who_can_do_without_unsafe_code_forbids_it() {
    let homes = homes();
    for (name, files) in crates() {
        let forbids = !homes.iter().any(|home| home.starts_with(&format!("{name}/")));
        if SPEAK_C.contains(&name.as_str()) {
            assert!(!forbids, "{name} has no unsafe code any more: forbid it");
            continue;
        }
        for root in ["src/lib.rs", "src/main.rs"] {
            let Some((_, text)) = files.iter().find(|(file, _)| file == root) else { continue };
            let has = |level: &str| text.contains(&format!("#![{level}(unsafe_code)]"));
            let told = if forbids { "forbid" } else { "forbid or deny" };
            assert!(has("forbid") || !forbids && has("deny"), "{name}/{root} must {told} unsafe code");
        }
    }
}

#[test]
fn words_in_comments_and_longer_words_are_no_unsafe_code() {
    assert!(says_unsafe("    let x = unsafe { y };") && says_unsafe("#[unsafe(no_mangle)]"));
    assert!(!says_unsafe("// unsafe {") && !says_unsafe("#![deny(unsafe_code)]"));
}
