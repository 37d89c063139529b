//! Sets `SRD_COMMIT`, the commit that the program is built from, for pages of runs. Who builds without git may set it in the
//! environment; otherwise it stays unset.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
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
