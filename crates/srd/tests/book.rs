//! The book that is made of docs/ (book.toml, docs/SUMMARY.md) has every page once, and every picture is shown. Links and anchors
//! are looked up by `citations.rs`. The page of settings says what `srd env --list` says.

mod checkout;

use checkout::{text, texts, walk};
use std::collections::BTreeSet;
use std::process::Command;

/// What a text links to, or shows: `](HERE)`.
fn links(text: &str) -> Vec<String> {
    let ends = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    ends.map(|(link, _)| link.split('#').next().unwrap().to_string()).collect()
}

#[test]
fn the_summary_names_every_page_once() {
    let summary = text("docs/SUMMARY.md");
    let named = links(&summary);
    let once: BTreeSet<String> = named.iter().cloned().collect();
    assert_eq!(once.len(), named.len(), "a page stands twice in docs/SUMMARY.md");
    let mut pages: BTreeSet<String> = texts("docs", ".md")
        .into_keys()
        .filter_map(|path| Some(path.strip_prefix("docs/")?.to_string()))
        .collect();
    pages.remove("SUMMARY.md");
    let (missing, gone): (Vec<_>, Vec<_>) =
        (pages.difference(&once).collect(), once.difference(&pages).collect());
    assert!(missing.is_empty() && gone.is_empty(), "docs/SUMMARY.md lacks {missing:?} and names {gone:?}");
}

/// mdBook takes lists of links, headings and links for themselves, and passes over the rest in silence.
#[test]
fn the_summary_is_what_mdbook_reads() {
    let summary = text("docs/SUMMARY.md");
    for line in summary.lines().filter(|line| !line.is_empty()) {
        let link = line.trim_start().trim_start_matches("- ");
        assert!(line.starts_with("# ") || link.starts_with('[') && link.ends_with(".md)"), "{line}");
    }
    let book = text("book.toml");
    assert!(book.contains("src = \"docs\""), "{book}");
}

#[test]
fn every_picture_is_shown_and_says_what_it_shows() {
    let mut pages: Vec<String> = texts("docs", ".md").into_values().collect();
    pages.push(text("README.md"));
    let shown: BTreeSet<String> = pages
        .iter()
        .flat_map(|page| links(page))
        .filter_map(|link| link.rsplit('/').next().map(str::to_string))
        .collect();
    for picture in walk("docs").into_iter().filter(|path| path.ends_with(".svg")) {
        let name = picture.rsplit('/').next().unwrap();
        assert!(shown.contains(name), "no page shows {picture}");
        let text = text(&picture);
        assert!(text.starts_with("<svg xmlns=") && text.contains("aria-label=\""), "{picture}");
    }
}

#[test]
fn the_page_of_settings_says_what_the_command_says() {
    let list = Command::new(env!("CARGO_BIN_EXE_srd")).args(["env", "--list", "--json"]).output().unwrap();
    let list: Vec<serde_json::Value> = serde_json::from_slice(&list.stdout).unwrap();
    assert!(list.len() > 15, "{list:?}");
    let page = text("docs/reference/settings.md");
    for row in list {
        let of = |name: &str| row[name].as_str().unwrap().to_string();
        let line =
            format!("| `{}` | {} | {} | {} |", of("name"), of("meaning"), of("default"), of("allowed"));
        assert!(page.contains(&line), "docs/reference/settings.md lacks the row\n{line}");
    }
}
