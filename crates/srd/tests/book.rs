//! The book that is made of docs/ (book.toml, docs/SUMMARY.md) has every page once, and every picture is shown. Links and anchors
//! are looked up by `citations.rs`. The page of settings says what `srd env --list` says.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Files below docs/ with this ending.
fn files(ending: &str) -> BTreeSet<String> {
    fn add(directory: &Path, before: &str, ending: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let name = format!("{before}{}", entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                add(&entry.path(), &format!("{name}/"), ending, found);
            } else if name.ends_with(ending) {
                found.insert(name);
            }
        }
    }
    let mut found = BTreeSet::new();
    add(&documents(), "", ending, &mut found);
    found
}

/// What a text links to, or shows: `](HERE)`.
fn links(text: &str) -> Vec<String> {
    let ends = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    ends.map(|(link, _)| link.split('#').next().unwrap().to_string()).collect()
}

#[test]
fn the_summary_names_every_page_once() {
    let summary = fs::read_to_string(documents().join("SUMMARY.md")).unwrap();
    let named = links(&summary);
    let once: BTreeSet<String> = named.iter().cloned().collect();
    assert_eq!(once.len(), named.len(), "a page stands twice in docs/SUMMARY.md");
    let mut pages = files(".md");
    pages.remove("SUMMARY.md");
    let (missing, gone): (Vec<_>, Vec<_>) =
        (pages.difference(&once).collect(), once.difference(&pages).collect());
    assert!(missing.is_empty() && gone.is_empty(), "docs/SUMMARY.md lacks {missing:?} and names {gone:?}");
}

/// mdBook takes lists of links, headings and links for themselves, and passes over the rest in silence.
#[test]
fn the_summary_is_what_mdbook_reads() {
    let summary = fs::read_to_string(documents().join("SUMMARY.md")).unwrap();
    for line in summary.lines().filter(|line| !line.is_empty()) {
        let link = line.trim_start().trim_start_matches("- ");
        assert!(line.starts_with("# ") || link.starts_with('[') && link.ends_with(".md)"), "{line}");
    }
    let book = fs::read_to_string(documents().join("../book.toml")).unwrap();
    assert!(book.contains("src = \"docs\""), "{book}");
}

#[test]
fn every_picture_is_shown_and_says_what_it_shows() {
    let root = documents().join("..");
    let shown: BTreeSet<String> = files(".md")
        .iter()
        .map(|page| format!("docs/{page}"))
        .chain(["README.md".to_string()])
        .flat_map(|page| links(&fs::read_to_string(root.join(page)).unwrap()))
        .filter_map(|link| link.rsplit('/').next().map(str::to_string))
        .collect();
    for picture in files(".svg") {
        let name = picture.rsplit('/').next().unwrap();
        assert!(shown.contains(name), "no page shows docs/{picture}");
        let text = fs::read_to_string(documents().join(&picture)).unwrap();
        assert!(text.starts_with("<svg xmlns=") && text.contains("aria-label=\""), "docs/{picture}");
    }
}

#[test]
fn the_page_of_settings_says_what_the_command_says() {
    let list = Command::new(env!("CARGO_BIN_EXE_srd")).args(["env", "--list", "--json"]).output().unwrap();
    let list: Vec<serde_json::Value> = serde_json::from_slice(&list.stdout).unwrap();
    assert!(list.len() > 15, "{list:?}");
    let page = fs::read_to_string(documents().join("..").join("docs/reference/settings.md")).unwrap();
    for row in list {
        let of = |name: &str| row[name].as_str().unwrap().to_string();
        let line =
            format!("| `{}` | {} | {} | {} |", of("name"), of("meaning"), of("default"), of("allowed"));
        assert!(page.contains(&line), "docs/reference/settings.md lacks the row\n{line}");
    }
}
