//! Attacks over real sockets on two processes that send to each other by the provider: forged packets in the name of each,
//! and of somebody else, in clear and with a key. `SEED=n` takes other packets.

#[path = "../../srd-net/tests/support/attack.rs"]
mod attack;
#[path = "../../srd-net/tests/support/forger.rs"]
mod forger;
mod rig;
mod sides;

use attack::{Attack, Lane};
use forger::{Dice, Forger, IN_CLEAR, Kind, SEALED, data};
use rig::*;
use sides::{Side, acquainted, end, variables, wait_for_messages, wait_until};
use srd_wire::*;
use std::io::Write;
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
    let seed = std::env::var("SEED").map_or(16, |text| text.parse().expect("SEED: a number"));
    println!("SEED={seed}");
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

/// Port of an endpoint that everybody knows, and the queue key of such endpoints.
const SERVICE: u16 = 9230;
const WELL_KNOWN: Qkey = Qkey(0x5352_446D);

/// Runs in a process of its own: has an endpoint that everybody knows; when its input ends it sends to a place where nobody is.
#[test]
#[ignore = "a program that a test starts"]
fn service() {
    let rig = Rig::new(0);
    rig.info.set_port(SERVICE);
    let end = rig.end(0);
    let input = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
    while !input.is_finished() {
        assert_eq!(end.cq.read().map(|entry| entry.op_context), Err(EAGAIN));
    }
    let to = end.av.insert(sockaddr([127, 0, 41, 77], 5));
    assert_eq!(end.ep.send(b"Is anybody there?", to, 1), 0);
    assert_eq!(end.cq.next_error().op_context as u64, 1);
    end.close();
    rig.close();
}

/// A message with a tag to whoever is at a well-known address, as docs/MESSAGES.md has it.
fn letter(from: u32) -> Vec<u8> {
    let mut bytes = vec![1 | 2 << 4, 1, 0xFF, 0xFF];
    [from, 0, 1, 0, 0, 0, 0].into_iter().for_each(|field| bytes.extend(field.to_le_bytes()));
    bytes.extend([0; 8 + 100]);
    bytes
}

/// Those who write and go away are nobody whose silence a person should hear of; that of whom the program wants to reach is.
#[test]
fn strangers_at_a_well_known_endpoint_neither_fill_standard_error_nor_silence_it() {
    const STRANGERS: u16 = 2000;
    let seed = std::env::var("SEED").map_or(16, |text| text.parse().expect("SEED: a number"));
    println!("SEED={seed}");
    let (base, mut dice) = (19_400, Dice(seed));
    let file = format!("{}/strangers-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let told = format!("{file}.json");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["service", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .envs([
            ("SRD_PORT_BASE", base.to_string()),
            ("SRD_PEER_TIMEOUT_S", "4".into()),
            ("SRD_STATS", told.clone()),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&file).unwrap())
        .spawn()
        .unwrap();
    let pid = child.id();
    let count = |name: &str| {
        let mut asked = srd_net::stats_directory::ask_all().into_iter().find(|asked| asked.pid == pid)?;
        let answer = asked.read(std::time::Instant::now() + PATIENCE).ok()?;
        let counters: serde_json::Value = serde_json::from_slice(&answer).ok()?;
        counters["transport"][name].as_u64()
    };
    wait_until("it does not begin", || count("peers_created").is_some());
    let to = SocketAddr::new(HERE, base + SERVICE / 128);
    let hosts = (1..=10).map(|host| UdpSocket::bind((IpAddr::from([127, 0, 42, host]), 0)).unwrap());
    let hosts: Vec<_> = hosts.collect();
    let mut write = || {
        for (number, socket) in (0..STRANGERS).zip(hosts.iter().cycle()) {
            let (who, slot) = (Incarnation(dice.roll() | 1), number / 10);
            let route = Route { dst_qpn: Qpn(SERVICE), src_qpn: Qpn(128 * slot), qkey: WELL_KNOWN };
            let (op, bytes) =
                (Op::Send { route, imm: None, datagram: false }, letter(dice.roll() as u32 | 1));
            let body = data(first_psn(who, 0), MsgId(0), bytes.len() as u32, op, bytes);
            socket.send_to(&Forger::new(seed, base + slot).hello_of(who, body), to).unwrap();
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    };
    // A busy machine loses some.
    wait_until("they are not let in", || {
        write();
        count("peers_created").is_some_and(|count| count > 800)
    });
    wait_until("they are asked for ever", || {
        count("unresponsive_remote_events").is_some_and(|count| count > 500)
    });
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let status = child.wait().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(status.success(), "{text}");
    let counters = std::fs::read(&told).unwrap();
    [file, told].iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let said = |of: &str| text.lines().filter(|line| line.starts_with("srd:") && line.contains(of)).count();
    assert_eq!(said("127.0.42."), 0, "of those whom nobody wanted: {text}");
    assert!(said(&format!("127.0.41.77:{base} never answered")) > 0, "{text}");
    // What the messaging layer has counted is told at the end, though the program has closed all that it had.
    let counters: serde_json::Value = serde_json::from_slice(&counters).unwrap();
    let unexpected = counters.pointer("/layers/0/counters/unexpected").and_then(serde_json::Value::as_u64);
    assert!(unexpected.is_some_and(|count| count > 500), "{counters}");
}
