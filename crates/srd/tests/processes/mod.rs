//! Processes that use SRD, for tests that look at them.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest that a test waits for something that must come, on a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// No process has a number above the kernel's limit of 2^22.
pub const NO_PID: &str = "4194305";

/// Where the processes of a test meet: theirs alone. (Paths of sockets are short, so it cannot be in the build's.)
pub struct Place(pub PathBuf);

impl Place {
    pub fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("srd-top-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    pub fn srd(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
        command.args(arguments).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SRD_") {
                command.env_remove(name);
            }
        }
        command.env("SRD_ADDR", "127.0.0.1").env("XDG_RUNTIME_DIR", &self.0);
        command
    }

    pub fn top(&self, arguments: &[&str]) -> Output {
        self.srd(&["top"]).args(arguments).output().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed when dropped.
pub struct Process(pub Child);

impl Process {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid() as i32), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server and a client that exchange messages, each asleep while the other works.
pub fn pair(place: &Place) -> (Process, Process) {
    let mut server = place.srd(&["perf", "server", "--port", "0"]);
    let mut server = Process(server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().rsplit(' ').next().unwrap();
    let mut client = place.srd(&["perf", "client", "127.0.0.1", "--port", port, "--blocking"]);
    client.args(["--test", "latency", "--seconds", "3600", "--timeout", "3600"]);
    let client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    (server, Process(client))
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What `look` finds, which may take a while to be there.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
