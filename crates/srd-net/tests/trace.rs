//! What an instance tells of its transport's decisions, to whoever asks for as long as he listens.

mod support;

use serde_json::Value;
use srd_net::stats_directory::{ask_all, record};
use srd_wire::InstanceAddr;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::{Host, PATIENCE, counters_of, traffic::exchange};

fn socket_of(address: InstanceAddr) -> PathBuf {
    let ours = ask_all().into_iter().filter(|asked| asked.pid == std::process::id());
    let found = ours.into_iter().find_map(|mut asked| {
        let answer = asked.read(Instant::now() + PATIENCE).ok()?;
        let counters: Value = serde_json::from_slice(&answer).ok()?;
        (counters["address"] == address.to_string()).then(|| asked.path.clone())
    });
    found.expect("its socket")
}

fn first_line(stream: &UnixStream) -> Value {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Byte by byte: what follows is for another reader.
    let mut line = Vec::new();
    let mut byte = [0];
    while byte != *b"\n" {
        std::io::Read::read_exact(&mut &*stream, &mut byte).unwrap();
        line.push(byte[0]);
    }
    serde_json::from_slice(&line).unwrap()
}

/// Begins to record; another may just be ending.
fn begun(socket: &Path) -> UnixStream {
    let start = Instant::now();
    loop {
        let stream = record(socket).unwrap();
        let first = first_line(&stream);
        if first["event"] == "run" {
            return stream;
        }
        assert!(start.elapsed() < PATIENCE, "{first}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn rest(stream: UnixStream) -> Vec<Value> {
    BufReader::new(stream).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

fn count(lines: &[Value], event: &str) -> usize {
    lines.iter().filter(|line| line["event"] == event).count()
}

#[test]
fn decisions_are_told_while_somebody_listens_to_the_last() {
    let mut a = Host::open("127.0.1.1", &[]);
    let mut b = Host::open("127.0.1.2", &[]);
    exchange(&mut a, &mut b, 1); // not told
    let socket = socket_of(a.instance.address());
    let stream = begun(&socket);
    exchange(&mut a, &mut b, 2);
    // Counters are told meanwhile.
    assert!(counters_of(a.instance.address()).is_some());
    stream.shutdown(Shutdown::Write).unwrap();
    let lines = rest(stream);
    let messages = 2 * support::traffic::LENGTHS.len();
    assert_eq!((count(&lines, "message_queued"), count(&lines, "message_completed")), (messages, messages));
    assert!(count(&lines, "packet_sent") >= messages);
    let b_address = b.instance.address().to_string();
    assert!(lines.iter().filter(|line| line["event"] == "packet_sent").all(|line| line["dst"] == b_address));
    let last = lines.last().unwrap();
    assert_eq!((&last["event"], &last["missing"]), (&Value::from("recording_ended"), &Value::from(0)));
    // Times do not run backwards.
    let times: Vec<f64> = lines.iter().map(|line| line["t_us"].as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn peers_that_come_while_it_lasts_are_known() {
    let mut a = Host::open("127.0.1.3", &[]);
    let stream = begun(&socket_of(a.instance.address()));
    let mut b = Host::open("127.0.1.4", &[]);
    exchange(&mut a, &mut b, 1);
    stream.shutdown(Shutdown::Write).unwrap();
    let lines = rest(stream);
    assert!(count(&lines, "packet_sent") > 0);
    assert!(lines.iter().all(|line| line["dst"] != "unknown"), "{lines:?}");
}

#[test]
fn one_can_record_at_a_time_and_the_next_once_he_has_gone_however_he_went() {
    let host = Host::open("127.0.1.5", &[]);
    let socket = socket_of(host.instance.address());
    let first = begun(&socket);
    let second = first_line(&record(&socket).unwrap());
    assert!(second["error"].as_str().is_some_and(|why| why.contains("already")), "{second}");
    drop(first); // as when his process dies
    let third = begun(&socket);
    third.shutdown(Shutdown::Both).unwrap();
    drop(begun(&socket));
}

#[test]
fn the_end_of_an_instance_is_the_end_of_its_trace() {
    let mut a = Host::open("127.0.1.6", &[]);
    let mut b = Host::open("127.0.1.7", &[]);
    let stream = begun(&socket_of(a.instance.address()));
    exchange(&mut a, &mut b, 1);
    drop((a, b));
    let lines = rest(stream);
    assert_eq!(count(&lines, "recording_ended"), 1);
    assert_eq!(count(&lines, "message_completed"), support::traffic::LENGTHS.len());
}

#[test]
fn who_reads_nothing_keeps_neither_traffic_nor_the_end_of_an_instance_waiting() {
    let mut a = Host::open("127.0.1.8", &[]);
    let mut b = Host::open("127.0.1.9", &[]);
    let stream = begun(&socket_of(a.instance.address()));
    exchange(&mut a, &mut b, 400);
    assert!(counters_of(a.instance.address()).is_some());
    drop((a, b));
    drop(stream);
}

#[test]
fn what_nobody_understands_is_answered_with_why() {
    let host = Host::open("127.0.1.10", &[]);
    let socket = socket_of(host.instance.address());
    for (said, wanted) in
        [("dance\n", "error"), ("", "pid"), ("stats\n", "pid"), (&*"x".repeat(100), "error")]
    {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        let answer: Value = serde_json::from_str(answer.trim()).unwrap();
        assert!(answer.get(wanted).is_some(), "{said:?}: {answer}");
    }
}
