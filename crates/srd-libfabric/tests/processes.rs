//! Two processes with libfabric's own program for that: the provider as it is loaded, used and unloaded by the installed
//! core.

mod built;

use serde_json::Value;
use srd_net::stats_directory::ask_all;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest that a run may take, on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(120);

fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    let mut command: Command = built::command("fi_pingpong");
    command.envs(variables.iter().copied());
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A port for the program's own connection.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
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
    exchange(&[]);
}

/// Two processes that exchange a few messages of each length, to their end.
fn exchange(variables: &[(&str, &str)]) {
    let port = free_port();
    let common = ["-p", "srd", "-e", "rdm", "-I", "50", "-c"];
    let server = start_with(&[&common[..], &["-B", &port]].concat(), variables);
    // It says nothing when it is ready.
    std::thread::sleep(Duration::from_millis(500));
    let client = start_with(&[&common[..], &["-P", &port, "127.0.0.1"]].concat(), variables);
    let output = end(client, "the client");
    end(server, "the server");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.lines().count() > 5, "a line for each length:\n{text}");
}

/// Two processes that exchange messages for as long as this lives.
struct Exchange {
    server: Child,
    client: Child,
    port: String,
    variables: &'static [(&'static str, &'static str)],
}

impl Exchange {
    const ARGUMENTS: [&str; 8] = ["-p", "srd", "-e", "rdm", "-I", "100000000", "-S", "64"];

    fn start(variables: &'static [(&'static str, &'static str)]) -> Exchange {
        let port = free_port();
        let server = start_with(&[&Exchange::ARGUMENTS[..], &["-B", &port]].concat(), variables);
        let client = Exchange::client(&port, variables);
        Exchange { server, client, port, variables }
    }

    fn client(port: &str, variables: &[(&str, &str)]) -> Child {
        start_with(&[&Exchange::ARGUMENTS[..], &["-P", port, "127.0.0.1"]].concat(), variables)
    }

    /// What the client tells of its only peer, once it has sent it something that `is_seen`.
    fn peer(&mut self, is_seen: impl Fn(&Value, &Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            if self.client.try_wait().unwrap().is_some() {
                self.client = Exchange::client(&self.port, self.variables); // the server was not ready
            }
            for mut asked in ask_all().into_iter().filter(|asked| asked.pid == self.client.id()) {
                let Ok(answer) = asked.read(Instant::now() + PATIENCE) else { continue };
                let counters: Value = serde_json::from_slice(&answer).expect("JSON");
                let peer = &counters["layers"][0]["local_peers"][0];
                if is_seen(&counters, peer) {
                    return peer.clone();
                }
            }
            assert!(start.elapsed() < PATIENCE, "no peer is seen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_process_tells_which_peers_it_reaches_through_shared_memory() {
    if !built::has_program("fi_pingpong") {
        return;
    }
    let sent = |_: &Value, peer: &Value| peer["tx_msgs"].as_u64() > Some(0);
    let peer = Exchange::start(&[]).peer(sent);
    assert_eq!((&peer["shared_memory"], &peer["reason"]), (&Value::Bool(true), &Value::Null), "{peer}");
    assert!(peer["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{peer}");
    assert!(peer["tx_bytes"].as_u64() > peer["tx_msgs"].as_u64(), "{peer}");
}

#[test]
fn a_process_tells_why_a_peer_of_its_host_is_reached_over_the_network() {
    if !built::has_program("fi_pingpong") {
        return;
    }
    let there = |counters: &Value, peer: &Value| {
        peer.is_object() && counters["layers"][0]["counters"]["eager_sent"].as_u64() > Some(0)
    };
    let peer = Exchange::start(&[("SRD_SHM", "off")]).peer(there);
    assert_eq!((&peer["shared_memory"], &peer["tx_msgs"]), (&Value::Bool(false), &Value::from(0)), "{peer}");
    assert_eq!(peer["reason"], "SRD_SHM=off in this process");
}

/// Queue pairs count from SRD_PORT_BASE on: the same numbers, and so the same addresses, belong to endpoints of both jobs.
#[test]
fn jobs_with_the_same_and_with_other_ports_run_side_by_side_on_one_address() {
    if !built::has_program("fi_pingpong") {
        return;
    }
    let seen = |_: &Value, peer: &Value| peer["tx_msgs"].as_u64() > Some(0);
    let mut running = Exchange::start(&[("SRD_PORT_BASE", "21504")]);
    let peer = running.peer(seen);
    for base in ["21504", "21505", "22016"] {
        exchange(&[("SRD_PORT_BASE", base)]);
    }
    let later = running.peer(|_, now| now["tx_msgs"].as_u64() > peer["tx_msgs"].as_u64());
    assert_eq!(later["shared_memory"], Value::Bool(true), "{later}");
}
