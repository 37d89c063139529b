//! A process whose endpoints are spread over several engines (`SRD_ENGINES`): a thread for each endpoint, memory that is reached
//! through each, queues that several have in common, and ends in any order. The other side is a process with one engine, or as many.

mod rig;

use rig::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

const ENGINES: usize = 4;
const MESSAGES: usize = 200;
const ROOM: usize = 64 << 10;

/// Endpoints of other tests would take their turns.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The provider's objects may be used by several threads.
struct Shared<T>(T);
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

/// A domain whose keys the provider chooses, or the program.
fn rig(provider_keys: bool) -> Rig {
    let mut hints = Hints::new(0);
    hints.domain.mr_mode = if provider_keys { 1 << 4 | 1 << 5 | 1 << 6 } else { 0 };
    Rig::of(hints.get().unwrap())
}

/// Which of the process's ports an endpoint has: each engine has its own.
fn port(end: &End) -> u16 {
    end.ep.port() / 128
}

fn four(rig: &Rig) -> Vec<End> {
    (0..ENGINES).map(|_| rig.end(0)).collect()
}

fn to_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_text(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..][..2], 16).unwrap()).collect()
}

/// Lengths that are injected, sent at once, and announced first.
fn length(number: usize) -> usize {
    [8, 1000, 9000, ROOM][number % 4]
}

/// As many messages as there are to and fro, each looked at. `begins`: this side sends the first.
fn exchange(end: &End, peer: u64, thread: usize, begins: bool) {
    let mut buf = vec![0; ROOM];
    for number in 0..MESSAGES {
        let expected = pattern(thread * 1000 + number, length(number));
        if (number % 2 == 0) == begins {
            while end.ep.send(&expected, peer, 1) == EAGAIN {}
            end.cq.next();
        } else {
            assert_eq!(end.ep.recv(&mut buf, 2), 0);
            let entry = end.cq.next();
            assert!(buf[..entry.len] == expected, "thread {thread}, message {number}");
        }
    }
}

fn exchange_in_threads(ends: &[Shared<End>], peers: &[u64], begins: bool) {
    thread::scope(|scope| {
        for (number, (end, &peer)) in ends.iter().zip(peers).enumerate() {
            scope.spawn(move || exchange(&{ end }.0, peer, number, begins));
        }
    });
}

/// Runs in a process of its own: answers at four endpoints, and has memory for whoever knows the key.
#[test]
#[ignore = "a program that the tests start"]
fn program() {
    let rig = rig(std::env::var("KEYS").is_ok_and(|whose| whose == "provider"));
    let (early, mut memory) = (rig.end(0), vec![0u8; ENGINES * ROOM]);
    // Registered before most engines are open.
    let mr = rig.register(memory.as_mut_ptr() as u64, memory.len(), REMOTE_READ | REMOTE_WRITE, 77).unwrap();
    let ends: Vec<_> = std::iter::once(early).chain((1..ENGINES).map(|_| rig.end(0))).map(Shared).collect();
    for end in &ends {
        println!("address {}", to_text(&end.0.ep.address()));
    }
    println!("memory {} {}", mr.key(), memory.as_ptr() as u64);
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let peers: Vec<_> = ends.iter().map(|end| end.0.av.insert(from_text(&lines.next().unwrap()))).collect();
    exchange_in_threads(&ends, &peers, false);
    println!("exchanged");
    if lines.next().is_some() {
        for end in ends {
            end.0.close();
        }
        close(mr.0).unwrap();
        rig.close();
    }
}

struct Other {
    child: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(engines: usize, variables: &[(&str, &str)]) -> Other {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["program", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env("SRD_ENGINES", engines.to_string()).envs(variables.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Other { input: child.stdin.take().unwrap(), child, lines }
    }

    /// The words behind `what` in the next line with it.
    fn told(&mut self, what: &str) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        lines.find_map(|line| Some(line.split_once(what)?.1.trim().to_owned())).expect("it goes on")
    }

    /// Everybody knows everybody. What memory it has: the key, and where.
    fn meet(&mut self, ends: &[Shared<End>]) -> (Vec<u64>, u64, u64) {
        let addresses: Vec<_> = ends.iter().map(|_| self.told("address ")).collect();
        let memory = self.told("memory ");
        let (key, addr) = memory.split_once(' ').unwrap();
        for end in ends {
            writeln!(self.input, "{}", to_text(&end.0.ep.address())).unwrap();
        }
        let peers = ends.iter().zip(&addresses).map(|(end, address)| end.0.av.insert(from_text(address)));
        (peers.collect(), key.parse().unwrap(), addr.parse().unwrap())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Four threads with an endpoint each exchange messages with four others of another process, and then reach its memory through
/// each endpoint.
fn exchange_with(engines: usize, variables: &[(&str, &str)]) {
    let _alone = alone();
    let mut other = Other::start(engines, variables);
    let rig = rig(false);
    let ends: Vec<_> = four(&rig).into_iter().map(Shared).collect();
    let mut ports: Vec<_> = ends.iter().map(|end| port(&end.0)).collect();
    ports.sort();
    ports.dedup();
    assert_eq!(ports.len(), ENGINES, "each endpoint has an engine of its own");
    let (peers, key, addr) = other.meet(&ends);
    exchange_in_threads(&ends, &peers, true);
    other.told("exchanged");
    let addr = if variables.contains(&("KEYS", "provider")) { addr } else { 0 };
    for i in 0..ENGINES {
        let (written, mut read) = (pattern(50 + i, ROOM), vec![0; ROOM]);
        let there = addr + (i * ROOM) as u64;
        let (writer, reader) = (&ends[i].0, (i + 1) % ENGINES);
        assert_eq!(writer.ep.rma(false, &written, peers[i], there, key, 0, 3, DELIVERY_COMPLETE), 0);
        writer.cq.next();
        // By another engine of either side.
        assert_eq!(ends[reader].0.ep.rma(true, &read, peers[reader], there, key, 0, 4, 0), 0);
        ends[reader].0.cq.next();
        assert!(std::hint::black_box(&mut read) == &written, "through endpoint {i}");
        let wrong = ends[i].0.ep.rma(true, &read, peers[i], there, key ^ 1, 0, 5, 0);
        assert_eq!((wrong, writer.cq.next_error().op_context as u64), (0, 5));
    }
    writeln!(other.input, "end").unwrap();
    assert!(other.child.wait().unwrap().success());
    ends.into_iter().rev().for_each(|end| end.0.close());
    rig.close();
}

#[test]
fn threads_with_an_engine_each_exchange_messages_and_reach_memory() {
    exchange_with(ENGINES, &[("KEYS", "provider")]);
}

#[test]
fn and_without_shared_memory_with_a_process_of_one_engine() {
    exchange_with(1, &[("SRD_SHM", "off")]);
}

#[test]
fn and_with_as_many_over_the_network_by_keys_of_the_provider() {
    exchange_with(ENGINES, &[("SRD_SHM", "off"), ("KEYS", "provider")]);
}

#[test]
fn and_with_fewer_engines_than_endpoints_by_keys_of_the_program() {
    exchange_with(2, &[]);
}

#[test]
fn a_killed_peer_is_found_out_by_each_engine() {
    let _alone = alone();
    for shm in ["on", "off"] {
        let mut other = Other::start(ENGINES, &[("SRD_SHM", shm)]);
        let rig = rig(false);
        let ends: Vec<_> = four(&rig).into_iter().map(Shared).collect();
        let (peers, ..) = other.meet(&ends);
        exchange_in_threads(&ends, &peers, true);
        other.told("exchanged");
        other.child.kill().unwrap();
        other.child.wait().unwrap();
        // What is put into shared memory before anybody looks whether he lives has been sent.
        thread::sleep(Duration::from_millis(20));
        for (end, &peer) in ends.iter().zip(&peers) {
            assert_eq!(end.0.ep.send(b"anybody there?", peer, 6), 0);
            assert_eq!(end.0.cq.next_error().op_context as u64, 6, "{shm}");
        }
        ends.into_iter().for_each(|end| end.0.close());
        rig.close();
    }
}

/// A queue of endpoints of several engines: whoever sleeps on it hears of each.
#[test]
fn a_queue_has_what_all_its_engines_bring() {
    let _alone = alone();
    for wait_obj in [WAIT_UNSPEC, WAIT_FD] {
        let rig = Rig::new(0);
        let (cq, av) = (rig.cq(0, wait_obj), rig.av());
        let ends: Vec<_> = (0..ENGINES).map(|_| rig.end_with(cq, av, 0)).collect();
        let engines: std::collections::HashSet<_> = ends.iter().map(port).collect();
        assert_eq!(engines.len(), ENGINES);
        let other = Rig::new(0);
        let sender = Shared(other.end(0));
        let to: Vec<_> = ends.iter().map(|end| sender.0.av.insert(end.ep.address())).collect();
        assert_eq!(cq.wait(20).map(|entry| entry.op_context), Err(EAGAIN));
        let mut buf = [0u8; 8];
        for (turn, end) in ends.iter().chain(&ends).chain(&ends).enumerate() {
            assert_eq!(end.ep.recv(&mut buf, turn as u64), 0);
            thread::scope(|scope| {
                let (sender, to) = (&sender, to[turn % ENGINES]);
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(20));
                    assert_eq!(sender.0.ep.send(b"wake up!", to, 1), 0);
                    sender.0.cq.next();
                });
                let start = std::time::Instant::now();
                let entry = cq.wait(30_000).unwrap_or_else(|code| panic!("turn {turn}: {code}"));
                assert_eq!((entry.op_context as usize, &buf), (turn, b"wake up!"));
                assert!(start.elapsed() < Duration::from_secs(20));
            });
        }
        for End { ep, .. } in ends {
            close(ep.0).unwrap();
        }
        close(cq.0).unwrap();
        close(av.0).unwrap();
        sender.0.close();
        rig.close();
        other.close();
    }
}

/// Endpoints of different engines close in any order, and others take their turns.
#[test]
fn endpoints_end_in_any_order_while_others_go_on() {
    let _alone = alone();
    let rig = rig(true);
    let memory = [0u8; 64];
    let mr = rig.register(memory.as_ptr() as u64, memory.len(), REMOTE_READ, 0).unwrap();
    for first in 0..ENGINES {
        let mut ends = four(&rig);
        while !ends.is_empty() {
            for i in 1..ends.len() {
                let to = ends[i].av.insert(ends[i - 1].ep.address());
                let mut buf = [0u8; 8];
                assert_eq!(ends[i - 1].ep.recv(&mut buf, 1), 0);
                assert_eq!(ends[i].ep.send(b"still on", to, 2), 0);
                ends[i].cq.next();
                ends[i - 1].cq.next();
                assert_eq!(&buf, b"still on");
                ends[i].av.remove(to).unwrap();
            }
            ends.remove(first % ends.len()).close();
        }
    }
    close(mr.0).unwrap();
    let again = rig.register(memory.as_ptr() as u64, memory.len(), REMOTE_READ, 0).unwrap();
    close(again.0).unwrap();
    rig.close();
}

/// Numbers of one port belong to one engine: the second endpoint goes where the first is.
#[test]
fn ports_that_the_program_chooses_lead_to_their_engine() {
    let _alone = alone();
    let rig = Rig::new(0);
    let ends: Vec<_> = [9301u16, 9302, 9601]
        .map(|port| {
            rig.info.set_port(port);
            rig.end(0)
        })
        .into();
    assert_eq!(ends.iter().map(|end| end.ep.port()).collect::<Vec<_>>(), [9301, 9302, 9601]);
    let to = ends[2].av.insert(sockaddr([127, 0, 0, 1], 9302));
    let mut buf = [0u8; 4];
    assert_eq!(ends[1].ep.recv(&mut buf, 1), 0);
    assert_eq!(ends[2].ep.send(b"here", to, 2), 0);
    ends[2].cq.next();
    ends[1].cq.next();
    assert_eq!(&buf, b"here");
    ends.into_iter().for_each(End::close);
    rig.close();
}
