//! A C program, compiled against `srd_sim.h` and the library, finds what the header promises.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The crate's library: the newest of those beside this test, since cargo has built it just before.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let entries = std::fs::read_dir(test.parent().unwrap()).unwrap().flatten();
    let libraries = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libsrd_sim_abi") && name.ends_with(".so")
    });
    let newest = libraries.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
    newest.expect("cargo builds the library together with this test").path()
}

/// The program of that source, linked with the library under the name that it is installed by.
fn compile(source: &Path) -> PathBuf {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-abi-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    std::fs::copy(library(), scratch.join("libsrd-sim.so")).unwrap();
    let program = scratch.join("abi");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut command = Command::new("cc");
    command
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(include)
        .arg("-o")
        .arg(&program)
        .arg(source);
    command.arg("-L").arg(&scratch).args(["-lsrd-sim", "-lpthread"]);
    command.arg(format!("-Wl,-rpath,{}", scratch.display()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

#[test]
fn a_c_program_finds_what_the_header_promises() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let program = compile(&here.join("abi.c"));
    let files = ["fabric.toml", "none.toml", "dead.toml", "huge.toml"];
    let output = Command::new(program).args(files.map(|file| here.join(file))).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert_eq!(output.stdout, b"good\n", "{told}");
}
