//! `srd top` beside processes that use SRD, and on a terminal.

mod processes;

use processes::{NO_PID, PATIENCE, Place, Process, eventually, pair, text};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What is told of a process.
fn of(overview: &Value, process: &Process) -> Option<Value> {
    overview["processes"].as_array()?.iter().find(|told| told["pid"] == process.pid()).cloned()
}

#[test]
fn two_processes_are_seen_with_each_other_as_peers() {
    let place = Place::new("pair");
    let (server, client) = pair(&place);
    let pids = [server.pid(), client.pid()].map(|pid| pid.to_string());
    let (of_server, of_client) = eventually("both send to each other", || {
        let output = place.top(&["--once", "--json", "--interval", "0.2", &pids[0], &pids[1]]);
        let overview: Value = serde_json::from_slice(&output.stdout).ok()?;
        let (server, client) = (of(&overview, &server)?, of(&overview, &client)?);
        let sends = |told: &Value| told["rates"]["tx_packets_per_s"].as_f64() > Some(0.0);
        (sends(&server) && sends(&client)).then_some((server, client))
    });
    for (told, peer) in [(&of_server, &of_client), (&of_client, &of_server)] {
        let peers = told["peers"].as_array().unwrap();
        let row = peers.iter().find(|row| row["address"] == peer["address"]).expect("its peer");
        assert_eq!((&row["over"], &row["state"]), (&Value::from("network"), &Value::from("answered")));
        assert!(row["tx_gbps"].as_f64() > Some(0.0) && row["rtt_us"].as_f64() > Some(0.0), "{row}");
        assert_eq!(told["program"], "srd");
        assert_eq!(told["stats"]["pid"], told["pid"]);
        assert!(told["rates"]["completions_per_s"].as_f64() > Some(0.0), "{}", told["rates"]);
        let paths = row["path_list"].as_array().unwrap();
        assert_eq!((paths.len(), &row["path_states"]["active"]), (64, &Value::from(64)), "{row}");
        assert!(paths.iter().all(|path| path["state"] == "active" && path["source_port"].as_u64() > Some(0)));
        let causes: Vec<&str> =
            told["causes"].as_array().unwrap().iter().filter_map(|row| row["cause"].as_str()).collect();
        assert_eq!(causes, ["path_order", "reordering", "cut", "timer", "path_down", "silence", "spurious"]);
        assert!(told["stats"]["device"]["tx_pkts"].as_u64() > Some(0));
    }
    // The same as text, and by name.
    let output = place.top(&["--interval", "0.1", "--program", "srd"]);
    let tables = text(&output.stdout);
    assert!(output.status.success() && tables.starts_with("pid") || tables.starts_with(' '), "{output:?}");
    for told in [&of_server, &of_client] {
        assert!(
            tables.contains(&format!("{} srd, {}:", told["pid"], told["address"].as_str().unwrap())),
            "{tables}"
        );
    }
    assert!(tables.contains("sent again a second, by cause"), "{tables}");
    let output = place.top(&["--once", "--interval", "0.1", "--paths", &pids[0]]);
    assert!(text(&output.stdout).matches(" active ").count() >= 64, "{output:?}");
}

#[test]
fn a_process_that_was_stopped_does_not_answer_and_holds_nobody_up() {
    let place = Place::new("stopped");
    let (server, client) = pair(&place);
    let pids = [server.pid(), client.pid()].map(|pid| pid.to_string());
    let told = |pid: &str| text(&place.top(&["--once", "--interval", "0.05", pid]).stdout);
    eventually("the server answers", || told(&pids[0]).contains("srd, 127.0.0.1:").then_some(()));
    server.signal(nix::sys::signal::Signal::SIGSTOP);
    eventually("it has stopped", || told(&pids[0]).contains("srd: it does not answer").then_some(()));
    server.signal(nix::sys::signal::Signal::SIGCONT);
    eventually("it answers again", || told(&pids[0]).contains("srd, 127.0.0.1:").then_some(()));
}

#[test]
fn who_was_killed_leaves_nothing_behind() {
    let place = Place::new("killed");
    let (server, client) = pair(&place);
    let sockets = || std::fs::read_dir(place.0.join("srd")).map_or(0, |entries| entries.count());
    eventually("both offer their counters", || (sockets() == 2).then_some(()));
    // First stopped: who sees the other die may end in order.
    for process in [&server, &client] {
        process.signal(nix::sys::signal::Signal::SIGSTOP);
    }
    let killed = [server.pid(), client.pid()].map(|pid| pid.to_string());
    drop((server, client));
    assert_eq!(sockets(), 2, "killed processes cannot clear away");
    // A socket that is not much older might be about to be listened to.
    eventually("they are cleared away", || {
        for pid in &killed {
            let seen: Value = serde_json::from_slice(&place.top(&["--once", "--json", pid]).stdout).unwrap();
            assert_eq!(seen["processes"], Value::Array(Vec::new()));
        }
        (sockets() == 0).then_some(())
    });
}

#[test]
fn where_nobody_is_it_says_so_and_how_to_start_one() {
    let place = Place::new("nobody");
    let output = place.top(&["--once", NO_PID]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains(NO_PID) && message.contains("srd run -- PROGRAM"), "{message}");
    assert!(output.stdout.is_empty());
    let output = place.top(&["--once", "--json", "--program", "no-such-program"]);
    assert_eq!(output.status.code(), Some(1));
    let overview: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(overview["processes"], Value::Array(Vec::new()));
}

#[test]
fn a_directory_that_nobody_may_use_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("open");
    let directory = place.0.join("srd");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    let message = text(&place.top(&["--once", NO_PID]).stderr);
    assert!(message.contains(directory.to_str().unwrap()) && message.contains("chmod 700"), "{message}");
}

#[test]
fn a_process_that_is_not_there_is_missed_beside_one_that_is() {
    let place = Place::new("missing");
    let (server, _client) = pair(&place);
    let pid = server.pid().to_string();
    let shown = eventually("the server answers", || {
        let shown = text(&place.top(&["--once", "--interval", "0.05", &pid, NO_PID]).stdout);
        shown.contains("srd, 127.0.0.1:").then_some(shown)
    });
    assert!(shown.contains(&format!("\n{NO_PID}: no process of this user")), "{shown}");
}

/// The live view on a terminal of its own, which script(1) makes.
struct Live {
    script: Process,
    shown: std::thread::JoinHandle<String>,
    pid: u32,
}

const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

impl Live {
    fn start(place: &Place) -> Live {
        let pid_file = place.0.join("pid");
        let command = format!(
            "stty rows 24 cols 80; echo $$ > {}; exec {} top --interval 0.1 {NO_PID}",
            pid_file.display(),
            env!("CARGO_BIN_EXE_srd")
        );
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).env("XDG_RUNTIME_DIR", &place.0).env("TERM", "xterm");
        let script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut script = Process(script.spawn().expect("script(1), of bsdutils"));
        let mut output = script.0.stdout.take().unwrap();
        let (seen, has_drawn) = std::sync::mpsc::channel();
        let shown = std::thread::spawn(move || {
            let (mut all, mut piece) = (Vec::new(), [0; 4096]);
            while let Ok(n @ 1..) = output.read(&mut piece) {
                all.extend_from_slice(&piece[..n]);
                if text(&all).contains("Waiting") {
                    let _ = seen.send(());
                }
            }
            text(&all)
        });
        has_drawn.recv_timeout(PATIENCE).expect("it draws");
        let pid = std::fs::read_to_string(Path::new(&pid_file)).unwrap().trim().parse().unwrap();
        Live { script, shown, pid }
    }

    /// Waits for its end. The terminal must be as before.
    fn ended(mut self) {
        let status = eventually("it ends", || self.script.0.try_wait().unwrap());
        let shown = self.shown.join().unwrap();
        assert!(status.success(), "{status}: {shown}");
        let (enter, leave) =
            (shown.find(ENTER).unwrap(), shown.rfind(LEAVE).expect("the terminal is put back"));
        assert!(enter < leave && shown[leave..].contains("\u{1b}[?25h"), "the cursor is back: {shown}");
    }
}

#[test]
fn q_ends_the_live_view_and_puts_the_terminal_back() {
    let place = Place::new("key");
    let mut live = Live::start(&place);
    live.script.0.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    live.ended();
}

#[test]
fn a_signal_ends_the_live_view_and_puts_the_terminal_back() {
    let place = Place::new("signal");
    let live = Live::start(&place);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(live.pid as i32), nix::sys::signal::Signal::SIGTERM)
        .unwrap();
    live.ended();
}
