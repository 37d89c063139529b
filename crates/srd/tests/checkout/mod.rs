//! The files of this repository, for tests that read them.
#![allow(dead_code)] // each test uses a part of it

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The repository's folder.
pub fn repository() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).expect("it is there")
}

/// Paths of all files below a folder of the repository (`""`: of it) that are not made by building or fuzzing.
pub fn walk(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(repository().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}")) {
        let entry = entry.expect("a folder can be read");
        let name = entry.file_name().into_string().expect("names are text");
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if !entry.file_type().expect("it is there").is_dir() {
            found.push(path);
        } else if !["target", "corpus", "artifacts"].contains(&name.as_str()) && !name.starts_with('.') {
            found.extend(walk(&path));
        }
    }
    found
}

/// A file's text.
pub fn text(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The texts of all files below a folder whose names end so, by their paths.
pub fn texts(folder: &str, ending: &str) -> BTreeMap<String, String> {
    let paths = walk(folder).into_iter().filter(|path| path.ends_with(ending));
    paths.map(|path| (path.clone(), text(&path))).collect()
}
