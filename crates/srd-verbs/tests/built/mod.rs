//! The two libraries as programs get them, and C programs compiled against the installed headers.
#![allow(dead_code)]

#[path = "../../../srd-net/tests/support/skip.rs"]
mod skip;

pub use skip::skip;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Where cargo puts what a test makes.
pub fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Whether rdma-core's headers are installed.
pub fn headers() -> bool {
    let there = Path::new("/usr/include/infiniband/efadv.h").exists();
    if !there {
        skip("no /usr/include/infiniband/efadv.h; apt-get install libibverbs-dev");
    }
    there
}

/// The directory of the two libraries, linked from the archive that cargo has built beside this test.
pub fn libraries() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let output = scratch().join(format!("libraries-{}", std::process::id()));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("link.sh");
        let status = Command::new(script).arg(archive()).arg(&output).status().unwrap();
        assert!(status.success(), "link.sh failed");
        output
    })
}

/// The crate's archive: the newest of those beside this test, since cargo has built it just before.
fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    std::fs::read_dir(test.parent().unwrap())
        .unwrap()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("libsrd_verbs-") && name.ends_with(".a")
        })
        .max_by_key(|entry| entry.metadata().unwrap().modified().unwrap())
        .expect("cargo builds the archive together with this test")
        .path()
}

/// Compiles a C program of `tests/c`.
pub fn compile(name: &str) -> PathBuf {
    static BUSY: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUSY.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let program = scratch().join(format!("{name}-{}", std::process::id()));
    if program.exists() {
        return program;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-parameter",
            "-Wno-stringop-overread",
            "-o",
        ])
        .arg(&program)
        .arg(source)
        .arg("-L")
        .arg(libraries())
        .args(["-lefa", "-libverbs", "-lpthread"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Compiles a C program from its text.
pub fn compile_text(name: &str, text: &str, program: &Path) -> Result<(), String> {
    let source = scratch().join(format!("{name}-{}.c", std::process::id()));
    std::fs::write(&source, text).unwrap();
    let output = Command::new("cc").arg("-w").arg("-o").arg(program).arg(&source).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// A command that runs with our libraries, on loopback, and with nothing else of ours set.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SRD_") {
            command.env_remove(name);
        }
    }
    command.env_remove("SYSFS_PATH").env_remove("FI_EFA_ENABLE_SHM_TRANSFER");
    command.env("LD_LIBRARY_PATH", libraries()).env("SRD_ADDR", "127.0.0.1");
    command
}

/// Longest that a C test may take, on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs one test of a C program of `tests/c` with these variables. It must end with success. Returns what it said,
/// unless it cannot run here.
pub fn run(program: &str, test: &str, variables: &[(&str, &str)]) -> Option<String> {
    run_within(PATIENCE, program, test, variables)
}

/// The same for one that may take longer.
pub fn run_within(
    patience: Duration,
    program: &str,
    test: &str,
    variables: &[(&str, &str)],
) -> Option<String> {
    if !headers() {
        return None;
    }
    let mut command = command(compile(program));
    command.arg(test).envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A process group of its own: what it forked ends with it.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().unwrap();
    let group = child.id();
    let end = Instant::now() + patience;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() > end => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let _ = Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).stderr(Stdio::null()).status();
    let output = child.wait_with_output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(status.is_some(), "{program} {test}: still running after {patience:?}\n{text}");
    assert!(output.status.success(), "{program} {test}: {}\n{text}", output.status);
    Some(text)
}
