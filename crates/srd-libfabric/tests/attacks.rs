//! Attacks over real sockets on two processes that send to each other by the provider: forged packets in the name of each,
//! and of somebody else, in clear and with a key. `SEED=n` takes other packets.

#[path = "../../srd-net/tests/support/attack.rs"]
mod attack;
#[path = "../../srd-net/tests/support/forger.rs"]
mod forger;
#[path = "../../srd-net/tests/support/memory.rs"]
mod memory;
mod rig;
mod sides;

use attack::{Attack, Lane};
use forger::{Dice, Forger, IN_CLEAR, Kind, SEALED, data};
use memory::resident;
use rig::*;
use sides::{Side, acquainted, end, variables, wait_for_messages, wait_until};
use srd_wire::*;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 41, 9));

/// The endpoint's queue pair, which is the port in its address.
fn qpn(of: &Side) -> u16 {
    let address = of.told("address ").remove(0);
    u16::from_str_radix(&address[4..8], 16).unwrap()
}

/// Nobody's sends fail, and nothing comes that nobody has sent.
fn numbers_flow_on(base: u16, way: &str, kinds: &[Kind], refusals: &[&str]) {
    let seed = seed();
    let told = |pid: &str| format!("{}/attacked-{pid}", env!("CARGO_TARGET_TMPDIR"));
    let mut variables = variables(way);
    variables.extend([("SRD_PORT_BASE", base.to_string().into()), ("SRD_STATS", told("%p").into())]);
    let sides = acquainted(&variables);
    let qpns = [qpn(&sides[0]), qpn(&sides[1])];
    let port = |qpn: u16| base + qpn / 128;
    let lanes = (0..2).map(|to| {
        let qpns_to_try = vec![Qpn(qpns[to]), Qpn(qpns[to] + 1)];
        let forger = Forger { qpns: qpns_to_try, ..Forger::new(seed + to as u64, port(qpns[1 - to])) };
        Lane::new(forger, kinds, &[HERE, ELSEWHERE], SocketAddr::new(HERE, port(qpns[to])))
    });
    let attack = Attack::start(lanes.collect(), 5000);
    wait_until("no attack", || attack.sent() > 10_000);
    wait_for_messages(&sides, 5);
    drop(attack);
    let pids = [0, 1].map(|i| sides[i].pid().to_string());
    assert_eq!(end(sides, "attacked"), 0, "a send has failed");
    for pid in pids {
        let counters = std::fs::read(told(&pid)).unwrap();
        std::fs::remove_file(told(&pid)).unwrap();
        let counters: serde_json::Value = serde_json::from_slice(&counters).unwrap();
        let count = |place: &str| counters.pointer(place).and_then(serde_json::Value::as_u64).unwrap_or(0);
        let refused = refusals.iter().map(|place| count(place));
        assert!(refused.clone().all(|count| count > 100), "{refusals:?}: {:?}", refused.collect::<Vec<_>>());
        assert_eq!((count("/peer_count"), count("/transport/peer_restarts")), (1, 0), "{counters}");
    }
}

#[test]
fn numbers_in_clear_flow_on_under_forged_packets() {
    let refusals = ["/transport/stale_incarnation", "/transport/resets_ignored", "/transport/unconfirmed"];
    numbers_flow_on(18_900, "clear", &IN_CLEAR, &refusals);
}

#[test]
fn sealed_numbers_flow_on_under_forged_packets() {
    let refusals = ["/receive/not_opened/not_sealed", "/receive/not_opened/wrong_key"];
    numbers_flow_on(19_000, "sealed", &[&IN_CLEAR[..], &SEALED].concat(), &refusals);
}

/// Ports of endpoints that everybody knows, and the queue key of such endpoints.
const SERVICE: u16 = 9230;
const OTHER: u16 = 9344;
const WELL_KNOWN: Qkey = Qkey(0x5352_446D);

/// Until a line of input, or its end, comes.
fn wait_for_input(end: &End) {
    let input = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
    while !input.is_finished() {
        assert_eq!(end.cq.read().map(|entry| entry.op_context), Err(EAGAIN));
    }
}

/// Runs in a process of its own: has an endpoint that everybody knows; when its input ends it sends to a place where nobody is.
#[test]
#[ignore = "a program that a test starts"]
fn service() {
    let rig = Rig::new(0);
    rig.info.set_port(SERVICE);
    let end = rig.end(0);
    println!("begun");
    wait_for_input(&end);
    let to = end.av.insert(sockaddr([127, 0, 41, 77], 5));
    assert_eq!(end.ep.send(b"Is anybody there?", to, 1), 0);
    assert_eq!(end.cq.next_error().op_context as u64, 1);
    end.close();
    rig.close();
}

/// What is written to a well-known endpoint in the name of somebody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Forged {
    /// A message with a tag.
    Letter,
    /// The first packet of one that never goes on.
    HalfLetter,
    /// A message with a tag, of 8,000 bytes.
    LongLetter,
    /// What is behind a key?
    Question,
    /// The first packet of a write to memory that is not there.
    HalfWrite,
}

impl Forged {
    /// The message, as docs/MESSAGES.md has it, of the endpoint `from`.
    fn message(self, from: u32, well_known: bool) -> Vec<u8> {
        let (kind, flags) = if self == Forged::Question { (9, 0) } else { (1, 1) };
        let mut bytes = vec![kind | 2 << 4, flags | if well_known { 32 } else { 0 }, 0xFF, 0xFF];
        // From whom, to whom, session, consumed, former; number and operation, or question and nothing; tag or key.
        [from, 0, 1, 0, 0, 0, 0, 7, 0].into_iter().for_each(|field| bytes.extend(field.to_le_bytes()));
        bytes.resize(bytes.len() + if self == Forged::LongLetter { 8000 } else { 100 }, 0);
        bytes
    }

    /// A packet with that, the `number`th from queue pairs of `who` that are behind port `base + slot`.
    fn packet(self, who: Incarnation, from: u32, base: u16, slot: u16, number: u16) -> Vec<u8> {
        let src_qpn = Qpn(128 * slot + number % 128);
        let route = Route { dst_qpn: Qpn(SERVICE), src_qpn, qkey: WELL_KNOWN };
        let op = match self {
            Forged::HalfWrite => Op::Write { route, rkey: MrKey(7), addr: 7, imm: None },
            _ => Op::Send { route, imm: None, datagram: false },
        };
        let bytes = self.message(from, src_qpn == Qpn(OTHER));
        let more = if matches!(self, Forged::HalfLetter | Forged::HalfWrite) { 3000 } else { 0 };
        let first = first_psn(who, 0);
        let psn = Psn(first.0.wrapping_add(2 * u32::from(number)));
        let body = data(psn, MsgId(number.into()), bytes.len() as u32 + more, op, bytes);
        Forger::new(16, base + slot).hello_of(who, body)
    }
}

/// Such a program.
struct Service {
    child: std::process::Child,
    /// Where it writes its standard error, and its counters at its end.
    file: String,
    at: SocketAddr,
}

impl Service {
    fn start(base: u16, timeout_s: u32) -> Service {
        let file = format!("{}/service-{base}-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
        let mut child = program("service", base, timeout_s)
            .env("SRD_STATS", format!("{file}.json"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&file).unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        wait_for_line(&mut lines, "begun");
        // What it says at its end is not to find the pipe closed.
        std::thread::spawn(move || lines.count());
        Service { child, file, at: SocketAddr::new(HERE, base + SERVICE / 128) }
    }

    fn count(&self, place: &str) -> Option<u64> {
        let mut asked =
            srd_net::stats_directory::ask_all().into_iter().find(|asked| asked.pid == self.child.id())?;
        let answer = asked.read(std::time::Instant::now() + PATIENCE).ok()?;
        let counters: serde_json::Value = serde_json::from_slice(&answer).ok()?;
        counters.pointer(place)?.as_u64()
    }

    /// What it has written to its standard error, and its counters.
    fn end(mut self) -> (String, serde_json::Value) {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let status = self.child.wait().unwrap();
        let text = std::fs::read_to_string(&self.file).unwrap();
        assert!(status.success(), "{text}");
        let counters = std::fs::read(format!("{}.json", self.file)).unwrap();
        (text, serde_json::from_slice(&counters).unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.file);
        let _ = std::fs::remove_file(format!("{}.json", self.file));
    }
}

/// Until a program has said this at a line's end, after whatever the test harness has written there.
fn wait_for_line(lines: &mut impl Iterator<Item = std::io::Result<String>>, what: &str) {
    let found = lines.find(|line| line.as_ref().unwrap().ends_with(what));
    assert!(found.is_some(), "it does not say {what}");
}

/// One of this file's programs.
fn program(name: &str, base: u16, timeout_s: u32) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .envs([("SRD_PORT_BASE", base.to_string()), ("SRD_PEER_TIMEOUT_S", timeout_s.to_string())])
        // They are on one host, and are to meet as if they were not.
        .env("SRD_SHM", "off")
        .stdout(Stdio::null());
    command
}

fn seed() -> u64 {
    let seed = std::env::var("SEED").map_or(16, |text| text.parse().expect("SEED: a number"));
    println!("SEED={seed}");
    seed
}

/// Nobody is flooded by having his address forged: RFC 9000, section 8.1.
#[test]
fn a_letter_to_a_well_known_endpoint_is_answered_with_three_times_its_bytes_at_most() {
    let (base, mut dice) = (19_500, Dice(seed()));
    let service = Service::start(base, 2);
    // He has not written, and does not answer.
    let forged = UdpSocket::bind((IpAddr::from([127, 0, 43, 1]), base + 7)).unwrap();
    forged.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    let letter = Forged::Letter.packet(Incarnation(dice.roll() | 1), dice.roll() as u32 | 1, base, 7, 0);
    forged.send_to(&letter, service.at).unwrap();
    let (mut packets, mut bytes, mut datagram) = (0, 0, [0; 65_536]);
    // Until he is given up.
    let given_up = std::time::Instant::now() + std::time::Duration::from_secs(5);
    wait_until("the letter is not answered", || {
        if let Ok((len, _)) = forged.recv_from(&mut datagram) {
            (packets, bytes) = (packets + 1, bytes + len);
        }
        packets > 0 && std::time::Instant::now() > given_up
    });
    println!("one letter of {} bytes: {packets} packets of {bytes} bytes", letter.len());
    assert!(bytes <= 3 * letter.len(), "{packets} packets of {bytes} bytes for one of {}", letter.len());
    // A message of the messaging layer's was among it.
    assert!(packets >= 2, "{packets} packets of {bytes} bytes");
    service.end();
}

/// Runs in a process of its own, and says how long its first messages to the endpoint that everybody knows took: one for its
/// program, and questions for memory that is not there.
#[test]
#[ignore = "a program that a test starts"]
fn writer() {
    let rig = Rig::new(0);
    let end = rig.end(0);
    let to = end.av.insert(sockaddr([127, 0, 0, 1], SERVICE));
    let begin = std::time::Instant::now();
    assert_eq!(end.ep.send(b"Is anybody there?", to, 1), 0);
    for context in 2..6 {
        assert_eq!(end.ep.rma(true, &[0; 8], to, 0, 1000 + context, 0, context, 0), 0);
    }
    let mut outcomes = [0; 5].map(|_| match end.cq.next_outcome() {
        Ok((entry, _)) => (entry.op_context as u64, 0),
        Err(error) => (error.op_context as u64, error.err),
    });
    println!("took {} us", begin.elapsed().as_micros());
    outcomes.sort_unstable();
    let not_there = |context| (context, libc::EKEYREJECTED);
    assert_eq!(outcomes, [(1, 0), not_there(2), not_there(3), not_there(4), not_there(5)]);
    end.close();
    rig.close();
}

/// `each` packets in the name of each of `hosts` addresses: a new peer's first messages are over long before they are given up.
fn forged_packets_keep_nobody_out(base: u16, kind: Forged, hosts: u16, each: u16) {
    const TIMEOUT_S: u32 = 60;
    /// What may be kept for them, and what the allocator and the pages of a library need that begins to work.
    const MOST_KIB: u64 = 16 << 10;
    let mut dice = Dice(seed());
    let service = Service::start(base, TIMEOUT_S);
    let before = resident(service.child.id());
    for host in 0..hosts {
        let address = IpAddr::from([127, 0, 44 + (host / 250) as u8, 1 + (host % 250) as u8]);
        let socket = UdpSocket::bind((address, 0)).unwrap();
        let (who, from) = (Incarnation(dice.roll() | 1), dice.roll() as u32 | 1);
        for number in 0..each {
            socket.send_to(&kind.packet(who, from, base, 7, number), service.at).unwrap();
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
    let begin = std::time::Instant::now();
    let writer = program("writer", base, TIMEOUT_S).stdout(Stdio::piped()).output().unwrap();
    let text = String::from_utf8_lossy(&writer.stdout).into_owned();
    let what = format!("{each} x {kind:?} of each of {hosts} addresses");
    assert!(writer.status.success(), "{what}: {}", String::from_utf8_lossy(&writer.stderr));
    let took = text.lines().find(|line| line.contains("took ")).unwrap_or("it does not say how long it took");
    let more = resident(service.child.id()).saturating_sub(before) >> 10;
    println!("{what}: a new peer's first messages {took}; {more} KiB more");
    assert!(begin.elapsed().as_secs() < TIMEOUT_S as u64 / 3, "{took} with {what}");
    assert!(more < MOST_KIB, "{more} KiB more with {what}");
}

/// Whose addresses are forged, in however many packets each, is in nobody's way.
#[test]
fn forged_letters_to_a_well_known_endpoint_keep_nobody_out() {
    for (base, hosts, each) in [(19_600, 1100, 1), (19_700, 700, 16), (19_800, 80, 120)] {
        forged_packets_keep_nobody_out(base, Forged::Letter, hosts, each);
    }
}

#[test]
fn long_forged_letters_to_a_well_known_endpoint_keep_nobody_out() {
    forged_packets_keep_nobody_out(20_600, Forged::LongLetter, 1000, 4);
}

/// Of a letter in several packets the first takes a buffer, of which there are 1,024.
#[test]
fn half_letters_to_a_well_known_endpoint_keep_nobody_out() {
    forged_packets_keep_nobody_out(19_900, Forged::HalfLetter, 20, 64);
}

/// Each is from another queue pair, and answered.
#[test]
fn forged_questions_to_a_well_known_endpoint_keep_nobody_out() {
    forged_packets_keep_nobody_out(20_300, Forged::Question, 1020, 16);
    forged_packets_keep_nobody_out(20_400, Forged::Question, 200, 120);
}

/// Each is refused.
#[test]
fn forged_writes_to_a_well_known_endpoint_keep_nobody_out() {
    forged_packets_keep_nobody_out(20_500, Forged::HalfWrite, 1000, 64);
}

/// Runs in a process of its own: has an endpoint that everybody knows, and sends to the other one when it is told to.
#[test]
#[ignore = "a program that a test starts"]
fn caller() {
    let rig = Rig::new(0);
    rig.info.set_port(SERVICE);
    let end = rig.end(0);
    println!("begun");
    wait_for_input(&end);
    let to = end.av.insert(sockaddr([127, 0, 0, 1], OTHER));
    for number in 1..=3 {
        assert_eq!(end.ep.send(format!("Call {number}").as_bytes(), to, number), 0);
    }
    println!("called");
    end.cq.skip(3);
    for number in 4..=5 {
        assert_eq!(end.ep.send(format!("Call {number}").as_bytes(), to, number), 0);
    }
    end.cq.skip(2);
    end.close();
    rig.close();
}

/// Runs in a process of its own: has the other endpoint, and is called.
#[test]
#[ignore = "a program that a test starts"]
fn called() {
    let rig = Rig::new(0);
    rig.info.set_port(OTHER);
    let end = rig.end(0);
    let mut buffers = [[0; 16]; 5];
    for (context, buffer) in (1..).zip(&mut buffers) {
        assert_eq!(end.ep.recv(buffer, context), 0);
    }
    assert_eq!([0; 5].map(|_| end.cq.next().op_context as u64), [1, 2, 3, 4, 5]);
    let calls = buffers.map(|buffer| String::from_utf8_lossy(&buffer[..6]).into_owned());
    assert_eq!(calls, [1, 2, 3, 4, 5].map(|number| format!("Call {number}")));
    end.close();
    rig.close();
}

/// Who writes in the name of a peer that has not begun yet, before or after something has been sent to that, ends none of it.
#[test]
fn a_letter_in_the_name_of_a_peer_that_has_not_begun_ends_nothing_of_what_goes_to_it() {
    let (mut base, mut dice) = (20_000, Dice(seed()));
    for before in [false, true] {
        base += 100;
        let mut caller = program("caller", base, 60)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(caller.stdout.take().unwrap()).lines();
        wait_for_line(&mut lines, "begun");
        let mut forge = || {
            let socket = UdpSocket::bind((HERE, 0)).unwrap();
            let at = SocketAddr::new(HERE, base + SERVICE / 128);
            let (who, from) = (Incarnation(dice.roll() | 1), dice.roll() as u32 | 1);
            socket.send_to(&Forged::Letter.packet(who, from, base, OTHER / 128, OTHER % 128), at).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(50));
        };
        if before {
            forge();
        }
        caller.stdin.take().unwrap().write_all(b"\n").unwrap();
        wait_for_line(&mut lines, "called");
        if !before {
            forge();
        }
        let called = program("called", base, 60).stderr(Stdio::piped()).output().unwrap();
        let ended = caller.wait_with_output().unwrap();
        for (who, output) in [("called", called), ("caller", ended)] {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{who}, forged before the calls: {before}: {text}");
        }
    }
}

/// Those who write and go away are nobody whose silence a person should hear of; that of whom the program wants to reach is.
#[test]
fn strangers_at_a_well_known_endpoint_neither_fill_standard_error_nor_silence_it() {
    const STRANGERS: u16 = 2000;
    let (base, mut dice) = (19_400, Dice(seed()));
    let service = Service::start(base, 4);
    let hosts = (1..=10).map(|host| UdpSocket::bind((IpAddr::from([127, 0, 42, host]), 0)).unwrap());
    let hosts: Vec<_> = hosts.collect();
    let mut write = || {
        for (number, socket) in (0..STRANGERS).zip(hosts.iter().cycle()) {
            let (who, slot) = (Incarnation(dice.roll() | 1), number / 10);
            let letter = Forged::Letter.packet(who, dice.roll() as u32 | 1, base, slot, 0);
            socket.send_to(&letter, service.at).unwrap();
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    };
    // A busy machine loses some.
    wait_until("they are not let in", || {
        write();
        service.count("/transport/peers_created").is_some_and(|count| count > 800)
    });
    wait_until("they are asked for ever", || {
        service.count("/layers/0/counters/peers_lost").is_some_and(|count| count > 500)
    });
    let (text, counters) = service.end();
    let said = |of: &str| text.lines().filter(|line| line.starts_with("srd:") && line.contains(of)).count();
    assert_eq!(said("127.0.42."), 0, "of those whom nobody wanted: {text}");
    assert!(said(&format!("127.0.41.77:{base} never answered")) > 0, "{text}");
    // What the messaging layer has counted is told at the end, though the program has closed all that it had.
    let unexpected = counters.pointer("/layers/0/counters/unexpected").and_then(serde_json::Value::as_u64);
    assert!(unexpected.is_some_and(|count| count > 500), "{counters}");
}

/// A stranger who is at his address, and knows no key: he is told who we are, names us, and is refused.
fn visit(at: SocketAddr, address: [u8; 4], port: u16, who: Incarnation) {
    let socket = UdpSocket::bind((IpAddr::from(address), port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut forger = Forger::new(16, port);
    socket.send_to(&forger.hello_of(who, Body::None), at).unwrap();
    let mut datagram = [0; 65_536];
    let len = socket.recv(&mut datagram).unwrap();
    let told = codec::decode(&datagram[..len]).unwrap().hello.unwrap().incarnation;
    let route = Route { dst_qpn: Qpn(SERVICE), src_qpn: Qpn(128 * 10), qkey: Qkey(7) };
    let op = Op::Send { route, imm: None, datagram: false };
    let wrong = data(first_psn(who, 0), MsgId(1), 8, op, vec![0; 8]);
    socket.send_to(&forger.confirmed(told, who, wrong), at).unwrap();
}

/// However many such strangers come and make way for each other, the first messages of who comes after them are not refused.
#[test]
fn strangers_without_a_key_are_in_nobodys_way() {
    const STRANGERS: u16 = 1100;
    let (base, mut dice) = (20_700, Dice(seed()));
    let service = Service::start(base, 60);
    for number in 0..STRANGERS {
        let address = [127, 0, 45, 1 + (number / 400) as u8];
        visit(service.at, address, base + 10 + number % 400, Incarnation(dice.roll() | 1));
    }
    wait_until("they are not let in", || {
        service.count("/transport/peers_created").is_some_and(|count| count > 1024)
    });
    for _ in 0..5 {
        let writer = program("writer", base, 60).output().unwrap();
        assert!(writer.status.success(), "{}", String::from_utf8_lossy(&writer.stderr));
    }
    assert_eq!(service.count("/transport/stale_incarnation"), Some(0));
}
