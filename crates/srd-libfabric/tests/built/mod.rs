//! The provider's library as cargo has built it, and C programs compiled against the installed headers.
#![allow(dead_code)]

#[path = "../../../srd-net/tests/support/skip.rs"]
mod skip;

pub use skip::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo puts what a test makes.
pub fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Whether libfabric's headers are installed.
pub fn headers() -> bool {
    let there = Path::new("/usr/include/rdma/fabric.h").exists();
    if !there {
        skip("no /usr/include/rdma/fabric.h; apt-get install libfabric-dev");
    }
    there
}

/// Whether a program of libfabric's is installed.
pub fn has_program(name: &str) -> bool {
    let there = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(name).exists()));
    if !there {
        skip(format_args!("no {name}; apt-get install libfabric-bin"));
    }
    there
}

/// A directory for FI_PROVIDER_PATH, with the provider in it.
pub fn provider_directory() -> PathBuf {
    let directory = scratch().join(format!("provider-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let target = directory.join("libsrd-fi.so");
    if !target.exists() {
        std::fs::copy(library(), &target).unwrap();
    }
    directory
}

/// The crate's library: the newest of those beside this test, since cargo has built it just before.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    std::fs::read_dir(test.parent().unwrap())
        .unwrap()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("libsrd_libfabric") && !name.contains("efa") && name.ends_with(".so")
        })
        .max_by_key(|entry| entry.metadata().unwrap().modified().unwrap())
        .expect("cargo builds the library together with this test")
        .path()
}

/// Compiles a C program from its text.
pub fn compile_text(name: &str, text: &str, options: &[&str]) -> Result<PathBuf, String> {
    let program = scratch().join(format!("{name}-{}", std::process::id()));
    let source = program.with_extension("c");
    std::fs::write(&source, text).unwrap();
    let output =
        Command::new("cc").arg("-w").arg("-o").arg(&program).arg(&source).args(options).output().unwrap();
    if output.status.success() {
        Ok(program)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// A command that finds the provider, on loopback, and nothing else of ours set.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SRD_") {
            command.env_remove(name);
        }
    }
    command.env("FI_PROVIDER_PATH", provider_directory()).env("FI_PROVIDER", "srd");
    command.env("SRD_ADDR", "127.0.0.1");
    command
}
