//! docs/GLOSSARY.md names types that there are, in words that stand once.

mod checkout;

use checkout::{text, texts};
use std::collections::BTreeSet;

/// Names of the types that all sources define.
fn types() -> BTreeSet<String> {
    let defined = |line: &str| {
        let mut words =
            line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        words.by_ref().find(|word| ["struct", "enum", "trait", "type"].contains(word))?;
        words.next().map(str::to_string)
    };
    texts("crates", ".rs").values().flat_map(|text| text.lines().filter_map(defined)).collect()
}

/// The types that a text names: in backticks, of letters alone, the first a capital and another one not.
fn named_types(text: &str) -> Vec<&str> {
    let is_type = |word: &&str| {
        let mut letters = word.chars();
        letters.next().is_some_and(char::is_uppercase)
            && word.chars().all(char::is_alphanumeric)
            && letters.any(char::is_lowercase)
    };
    text.split('`').skip(1).step_by(2).filter(is_type).collect()
}

#[test]
fn what_counts_as_a_type() {
    assert_eq!(
        named_types("a `UpperLayer`, `upper.rs`, `[law]`, `SO_LINGER` and `Drain`"),
        ["UpperLayer", "Drain"]
    );
}

#[test]
fn types_of_the_glossary_exist() {
    let glossary = text("docs/GLOSSARY.md");
    let defined = types();
    let named = named_types(&glossary);
    assert!(named.len() > 5, "{named:?}");
    let missing: Vec<_> = named.iter().filter(|name| !defined.contains(**name)).collect();
    assert!(missing.is_empty(), "docs/GLOSSARY.md names types that nobody defines: {missing:?}");
}

#[test]
fn no_term_stands_twice() {
    let glossary = text("docs/GLOSSARY.md");
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| **")?.split(" |").next());
    let terms: Vec<&str> = rows.flat_map(|cell| cell.split("**")).filter(|word| word.len() > 2).collect();
    let mut seen = BTreeSet::new();
    let twice: Vec<_> = terms.iter().filter(|term| !seen.insert(**term)).collect();
    assert!(terms.len() > 50, "{terms:?}");
    assert!(twice.is_empty(), "{twice:?}");
}
