//! Two processes that send numbers to each other over real sockets all the time, for tests of what may happen to them
//! meanwhile.
#![allow(dead_code)]

use crate::rig::*;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a busy machine may take for what takes a moment.
const LONGEST: Duration = Duration::from_secs(180);
/// Between two messages.
const PERIOD: Duration = Duration::from_millis(100);
/// Receives posted at a time.
const RECEIVES: u64 = 16;

/// Runs in a process of its own: sends a number every [`PERIOD`] until its input ends, and tells what becomes of it and what
/// comes.
#[test]
#[ignore = "a program that the tests start"]
fn program() {
    let rig = Rig::new(0);
    let end = rig.end(0);
    let address: String = end.ep.address().iter().map(|byte| format!("{byte:02x}")).collect();
    eprintln!("address {address}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let bytes = |text: &str| -> Vec<u8> {
        (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..][..2], 16).unwrap()).collect()
    };
    let to = end.av.insert(bytes(line.trim()));
    let over = Arc::new(AtomicBool::new(false));
    let ends = over.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        ends.store(true, Ordering::Relaxed);
    });
    let mut rooms: Vec<Box<[u8; 8]>> = (0..RECEIVES).map(|_| Box::default()).collect();
    for (number, room) in (0..).zip(&mut rooms) {
        assert_eq!(end.ep.recv(&mut room[..], number), 0);
    }
    let mut sent: HashMap<u64, Box<[u8; 8]>> = HashMap::new();
    let (mut number, mut next, mut quiet) = (RECEIVES, Instant::now(), Instant::now());
    while !over.load(Ordering::Relaxed) || !sent.is_empty() || quiet.elapsed() < Duration::from_secs(1) {
        let (context, outcome) = match end.cq.read() {
            Ok(entry) => (entry.op_context as u64, "sent"),
            Err(EAVAIL) => (end.cq.next_error().op_context as u64, "failed"),
            Err(EAGAIN) => {
                if Instant::now() >= next && !over.load(Ordering::Relaxed) {
                    let message = Box::new(number.to_le_bytes());
                    if end.ep.send(&message[..], to, number) == 0 {
                        sent.insert(number, message);
                        number += 1;
                    }
                    next = Instant::now() + PERIOD;
                }
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            Err(code) => panic!("fi_cq_read: {code}"),
        };
        quiet = Instant::now();
        if context >= RECEIVES {
            sent.remove(&context).expect("it completes once");
            eprintln!("{outcome} {context}");
            continue;
        }
        let room = &mut rooms[context as usize];
        if outcome == "sent" {
            eprintln!("got {}", u64::from_le_bytes(**room));
        }
        assert_eq!(end.ep.recv(&mut room[..], context), 0);
    }
}

pub type Variables = Vec<(&'static str, OsString)>;

/// What the two go by: the network in clear or sealed mode, or shared memory.
pub const WAYS: [&str; 3] = ["clear", "sealed", "shared memory"];

pub fn variables(way: &str) -> Variables {
    match way {
        "clear" => vec![("SRD_SHM", "off".into())],
        "sealed" => vec![("SRD_SHM", "off".into()), ("SRD_KEY_FILE", key_file().into())],
        _ => vec![],
    }
}

/// One of the two.
pub struct Side {
    child: Child,
    input: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Side {
    pub fn start(variables: &Variables) -> Side {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["sides::program", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (text, to) = (BufReader::new(child.stderr.take().unwrap()), lines.clone());
        std::thread::spawn(move || {
            for line in text.lines().map_while(Result::ok) {
                to.lock().unwrap().push(line);
            }
        });
        Side { input: child.stdin.take(), child, lines }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The words behind `what` in all lines that begin so.
    pub fn told(&self, what: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter_map(|line| Some(line.strip_prefix(what)?.trim().to_string())).collect()
    }

    pub fn numbers(&self, what: &str) -> Vec<u64> {
        self.told(what).iter().map(|number| number.parse().unwrap()).collect()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: plain numbers; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < LONGEST, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Two of them that have heard from each other.
pub fn acquainted(variables: &Variables) -> [Side; 2] {
    let mut sides = [Side::start(variables), Side::start(variables)];
    wait_until("no address", || sides.iter().all(|side| !side.told("address ").is_empty()));
    for i in 0..2 {
        let address = sides[1 - i].told("address ").remove(0);
        writeln!(sides[i].input.as_mut().unwrap(), "{address}").unwrap();
    }
    wait_for_messages(&sides, 5);
    sides
}

/// So many more have come on both sides.
pub fn wait_for_messages(sides: &[Side; 2], count: usize) {
    let come = |side: &Side| side.numbers("got ").len();
    let before = [0, 1].map(|i| come(&sides[i]));
    wait_until("nothing flows", || (0..2).all(|i| come(&sides[i]) > before[i] + count));
}

/// They stop sending and end; what completed has come, once and in order, and nothing that nobody has sent. How many sends
/// have failed.
pub fn end(mut sides: [Side; 2], what: &str) -> usize {
    sides.iter_mut().for_each(|side| drop(side.input.take()));
    wait_until("somebody waits for ever", || {
        sides.iter_mut().all(|side| side.child.try_wait().unwrap().is_some())
    });
    let mut failures = 0;
    for (from, to) in [(0, 1), (1, 0)] {
        let (sent, failed) = (sides[from].numbers("sent "), sides[from].numbers("failed "));
        let got = sides[to].numbers("got ");
        let about = format!(
            "from {from} to {to}, {what}; {} completed, {} failed, {} came",
            sent.len(),
            failed.len(),
            got.len()
        );
        let lost: Vec<_> = sent.iter().filter(|number| !got.contains(number)).collect();
        assert!(lost.is_empty(), "{lost:?} completed and never came: {about}");
        assert!(got.is_sorted_by(|one, next| one < next), "twice, or out of order: {about}; {got:?}");
        let strange: Vec<_> =
            got.iter().filter(|number| !sent.contains(number) && !failed.contains(number)).collect();
        assert!(strange.is_empty(), "nobody has sent {strange:?}: {about}");
        failures += failed.len();
    }
    failures
}
