//! `srd trace --record` on processes that use SRD, and what `srd trace` makes of it.

mod processes;

use processes::{NO_PID, Place, eventually, pair, text};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

fn trace(place: &Place, arguments: &[&str]) -> Output {
    place.srd(&["trace"]).args(arguments).output().unwrap()
}

/// Records a process for a moment, once it can be.
fn recorded(place: &Place, pid: u32, more: &[&str]) -> PathBuf {
    let file = place.0.join("recorded.jsonl");
    let (pid, path) = (pid.to_string(), file.to_str().unwrap().to_owned());
    eventually("it is recorded", || {
        let mut arguments = vec!["--record", &pid, "--for", "0.3", "--out", &path];
        arguments.extend(more);
        let output = trace(place, &arguments);
        output.status.success().then_some(())
    });
    file
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
fn what_a_process_decides_is_recorded_as_the_table_of_events_says() {
    let place = Place::new("record");
    let (server, client) = pair(&place);
    let file = recorded(&place, client.pid(), &[]);
    let lines = lines(&file);
    let (first, last) = (&lines[0], lines.last().unwrap());
    assert_eq!((&first["event"], &first["host"]["pid"]), (&Value::from("run"), &Value::from(client.pid())));
    assert_eq!(last["event"], "recording_ended");
    let schemas: HashMap<&str, _> = srd_proto::EVENTS.iter().map(|schema| (schema.name, schema)).collect();
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for line in &lines[1..lines.len() - 1] {
        let name = line["event"].as_str().unwrap();
        if name == "dropped" {
            continue;
        }
        let schema = schemas[name];
        *seen.entry(schema.name).or_default() += 1;
        let fields = line.as_object().unwrap();
        assert_eq!(fields.len(), 4 + schema.fields.len(), "{line}");
        assert!(schema.fields.iter().all(|field| fields.contains_key(field.name)), "{line}");
        assert_eq!(line["src"], first["host"]["address"]);
        assert!(line["t_us"].as_f64() >= Some(0.0));
    }
    for name in ["message_queued", "packet_sent", "ack_received", "message_completed"] {
        assert!(seen.contains_key(name), "{seen:?}");
    }
    // And `srd trace` reads it.
    let path = file.to_str().unwrap();
    let told = text(&trace(&place, &[path]).stdout);
    for words in ["srd, process", "at the median", "The slowest messages", "no view of the network"] {
        assert!(told.contains(words), "{words} in {told}");
    }
    let report: Value = serde_json::from_slice(&trace(&place, &[path, "--json"]).stdout).unwrap();
    assert!(report["peers"][0]["messages"].as_u64() > Some(10), "{report}");
    let parts = report["slowest"][0]["parts"].as_array().unwrap();
    let sum: f64 = parts.iter().map(|part| part["us"].as_f64().unwrap()).sum();
    let total = report["slowest"][0]["total_us"].as_f64().unwrap();
    assert!((sum - total).abs() < 0.01, "{sum} of {total}");
    let listed = text(&trace(&place, &[path, "--event", "packet_sent", "--to", "1e9"]).stdout);
    assert!(listed.lines().count() > 10 && listed.contains("psn="), "{listed}");
    let refused = trace(&place, &[path, "--flow", "1"]);
    assert!(text(&refused.stderr).contains("knows messages and no flows"), "{refused:?}");
    drop((server, client));
}

#[test]
fn a_recording_ends_with_whoever_asked_for_it_and_another_can_begin() {
    let place = Place::new("record-again");
    let (server, _client) = pair(&place);
    recorded(&place, server.pid(), &[]);
    let pid = server.pid().to_string();
    let out = place.0.join("killed.jsonl");
    let arguments = ["trace", "--record", &pid, "--out", out.to_str().unwrap()];
    for signal in [nix::sys::signal::Signal::SIGKILL, nix::sys::signal::Signal::SIGINT] {
        let mut command = place.srd(&arguments);
        let mut recorder = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("it records", || (std::fs::metadata(&out).ok()?.len() > 0).then_some(()));
        let second = place.0.join("second.jsonl");
        let second = trace(&place, &["--record", &pid, "--for", "0.1", "--out", second.to_str().unwrap()]);
        assert!(text(&second.stderr).contains("somebody else records it already"), "{second:?}");
        let raw = nix::unistd::Pid::from_raw(recorder.id() as i32);
        nix::sys::signal::kill(raw, signal).unwrap();
        recorder.wait().unwrap();
        let _ = std::fs::remove_file(&out);
        recorded(&place, server.pid(), &[]); // as soon as the process has noticed
    }
}

#[test]
fn a_process_that_dies_leaves_a_trace_that_says_so() {
    let place = Place::new("record-died");
    let (server, client) = pair(&place);
    recorded(&place, client.pid(), &[]);
    let out = place.0.join("died.jsonl");
    let pid = client.pid().to_string();
    let mut command = place.srd(&["trace", "--record", &pid, "--out", out.to_str().unwrap()]);
    let recorder = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("it records", || (std::fs::metadata(&out).ok()?.len() > 0).then_some(()));
    drop((client, server)); // killed
    let output = recorder.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("the process ended"), "{output:?}");
    assert!(text(&output.stderr).contains("did not end in order"), "{output:?}");
    let told = text(&trace(&place, &[out.to_str().unwrap()]).stdout);
    assert!(told.contains("did not end in order"), "{told}");
}

#[test]
fn a_recording_has_no_more_lines_than_it_may() {
    let place = Place::new("record-lines");
    let (_server, client) = pair(&place);
    let lines = lines(&recorded(&place, client.pid(), &["--lines", "50"]));
    assert_eq!(lines.len(), 51, "and the last, which says when it ended");
    assert_eq!(lines[50]["event"], "recording_ended");
    assert_eq!(lines[50]["t_us"], lines[49]["t_us"]);
}

#[test]
fn what_cannot_be_recorded_is_said_with_what_to_do() {
    let place = Place::new("record-errors");
    let (server, _client) = pair(&place);
    recorded(&place, server.pid(), &[]);
    let pid = server.pid().to_string();
    let out = place.0.join("x.jsonl").to_str().unwrap().to_owned();
    let says = |arguments: &[&str], code: i32, words: &[&str]| {
        let output = trace(&place, arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{message}");
        words.iter().for_each(|word| assert!(message.contains(word), "{word} in {message}"));
    };
    says(&["--record", NO_PID, "--out", &out], 1, &[NO_PID, "srd top"]);
    says(&["--record", &pid, "--out", "/nowhere/x.jsonl", "--for", "1"], 1, &["/nowhere/x.jsonl"]);
    says(
        &["--record", &pid, "--out", &out, "--address", "10.9.9.9:1"],
        1,
        &["does not receive at 10.9.9.9:1", "127.0.0.1:"],
    );
    says(&["--record", &pid], 2, &["--out"]);
    says(&["--record", &pid, "--out", &out, "--for", "soon"], 2, &["a number of seconds"]);
    says(&[], 2, &["FILE"]);
    says(&["/nowhere/trace.jsonl"], 1, &["/nowhere/trace.jsonl"]);
}
