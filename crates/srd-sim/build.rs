//! Lists the figures that are files, for the program to have their text. And sets `SRD_COMMIT`, the commit that the program is
//! built from, for pages of runs. Who builds without git may set it in the environment; otherwise it stays unset.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    list_figures();
    println!("cargo:rerun-if-env-changed=SRD_COMMIT");
    if std::env::var_os("SRD_COMMIT").is_some() {
        return; // the compiler sees the environment as it is
    }
    // A repository that merely lies around a copy of the sources has other commits.
    if git(&["ls-files", "--error-unmatch", "build.rs"]).is_none() {
        return;
    }
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return };
    println!("cargo:rustc-env=SRD_COMMIT={commit}");
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for file in
        [Some("HEAD".to_string()), Some("logs/HEAD".to_string()), Some("packed-refs".to_string()), branch]
    {
        let path = file.and_then(|file| git(&["rev-parse", "--git-path", &file]));
        // What is not there would make every build run this again.
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

/// The first line of what git says, if it says something. Build scripts run in the directory of their package.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let line = String::from_utf8(output.stdout).ok()?.lines().next()?.trim().to_string();
    (!line.is_empty()).then_some(line)
}

/// Writes `figures.rs`: folder, path and text of each file below `figures/`.
fn list_figures() {
    println!("cargo:rerun-if-changed=figures");
    let below = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort_unstable();
        paths
    };
    let mut text = "static FILES: &[(&str, &str, &str)] = &[\n".to_string();
    for folder in below(Path::new("figures")) {
        let name = folder.file_name().and_then(|name| name.to_str()).expect("names are text");
        for path in below(&folder) {
            let path = path.display().to_string();
            let whole = format!("concat!(env!(\"CARGO_MANIFEST_DIR\"), {:?})", format!("/{path}"));
            let _ = writeln!(text, "    ({name:?}, {path:?}, include_str!({whole})),");
        }
    }
    text += "];\n";
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("figures.rs"), text).expect("OUT_DIR can be written to");
}
