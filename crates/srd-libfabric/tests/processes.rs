//! Two processes with libfabric's own program for that: the provider as it is loaded, used and unloaded by the installed
//! core.

mod built;

use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest that a run may take, on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(120);

fn start(arguments: &[&str]) -> Child {
    let mut command: Command = built::command("fi_pingpong");
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(mut child: Child, what: &str) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{what} still runs after {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{text}", output.status);
    output
}

#[test]
fn fi_pingpong_runs_between_two_processes() {
    if !built::has_program("fi_pingpong") {
        return;
    }
    // The port of the program's own connection.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let common = ["-p", "srd", "-e", "rdm", "-I", "50", "-c"];
    let server = start(&[&common[..], &["-B", &port]].concat());
    // It says nothing when it is ready.
    std::thread::sleep(Duration::from_millis(500));
    let client = start(&[&common[..], &["-P", &port, "127.0.0.1"]].concat());
    let output = end(client, "the client");
    end(server, "the server");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.lines().count() > 5, "a line for each length:\n{text}");
}
