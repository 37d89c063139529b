//! A flood of strangers from many addresses fills no table and no memory, and keeps no real peer waiting. Alone in its
//! process: memory is the process's.

mod support;

use srd_wire::*;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use support::Host;
use support::attack::{Attack, Lane};
use support::forger::{Dice, Forger, IN_CLEAR, Kind, SEALED, data};
use support::keys::KeyFile;
use support::memory::resident;

/// More than there are places in the table of peers.
const STRANGERS: u64 = 70_000;
/// Those of them who answer at their address, and so get a context: more than may have one.
const CONFIRMED: u64 = 2500;
const MOST_GROWTH: u64 = 16 << 20;

fn address(host: &Host) -> SocketAddr {
    let address = host.instance.address();
    SocketAddr::new(address.gid.ip(), address.port)
}

/// Polls the host until all that has been sent to it has been looked at.
fn drain(host: &Host, socket: &UdpSocket) {
    std::thread::sleep(Duration::from_micros(200));
    (0..20).for_each(|_| assert!(host.poll().is_none()));
    let mut bytes = [0; 9000];
    while socket.recv(&mut bytes).is_ok() {}
}

/// Each is somebody else at another address: of some hosts any of their ports.
fn strangers_knock(host: &Host, dice: &mut Dice, kinds: &[Kind]) {
    let sockets: Vec<UdpSocket> =
        (1..=40).map(|last| UdpSocket::bind((IpAddr::from([127, 0, 31, last]), 0)).unwrap()).collect();
    sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    let mut forger = Forger::new(dice.roll(), 1);
    for number in 0..STRANGERS {
        forger.src_port = 1 + (number % 60_000) as u16;
        let socket = &sockets[dice.below(sockets.len())];
        socket.send_to(&forger.any(kinds), address(host)).unwrap();
        if number % 200 == 199 {
            drain(host, socket);
        }
    }
}

/// Each is told who he speaks to, and then wants something for which he has no key.
fn strangers_stay(host: &Host, dice: &mut Dice) {
    for number in 0..CONFIRMED {
        let ip = IpAddr::from([127, 0, 32, 1 + (number % 200) as u8]);
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut forger = Forger::new(dice.roll(), socket.local_addr().unwrap().port());
        let who = Incarnation(dice.roll() | 1);
        let hello = forger.hello_of(who, Body::None);
        let (mut bytes, start, mut asked) = ([0; 9000], Instant::now(), 0);
        let told = loop {
            assert!(start.elapsed() < support::PATIENCE, "no answer: {}", host.report());
            if start.elapsed() >= asked * Duration::from_millis(100) {
                socket.send_to(&hello, address(host)).unwrap(); // a socket that is full drops it
                asked += 1;
            }
            host.poll();
            if let Ok(len) = socket.recv(&mut bytes) {
                break codec::decode(&bytes[..len]).unwrap().hello.unwrap().incarnation;
            }
        };
        let route = Route { dst_qpn: host.qpn, src_qpn: Qpn(2), qkey: Qkey(0) };
        // Beginnings of messages, and messages given up.
        for message in 0..200 {
            let op = match message % 3 {
                0 => Op::Send { route, imm: None, datagram: false },
                1 => Op::Send { route, imm: None, datagram: true },
                _ => Op::Skip,
            };
            let (len, here) = if op == Op::Skip { (0, 0) } else { (100_000, 10) };
            let psn = first_psn(who, 0).plus(message);
            let body = data(psn, MsgId(message), len, op, vec![0xEE; here]);
            socket.send_to(&forger.confirmed(told, who, body), address(host)).unwrap();
            if message % 50 == 49 {
                host.poll();
            }
        }
    }
}

/// Milliseconds that a new peer's first message takes.
fn connect(host: &Host, last: u8, variables: &[&str]) -> f64 {
    let mut new = Host::open(&format!("127.0.33.{last}"), variables);
    host.recv(1, 0, 100);
    let start = Instant::now();
    new.send(1, host.address(), 0, 100);
    let (mut sent, mut came) = (false, false);
    while !(sent && came) {
        assert!(start.elapsed() < support::PATIENCE, "{} {}", new.report(), host.report());
        sent |= new.poll().is_some_and(|done| done.status == Status::Ok);
        came |= host.poll().is_some_and(|done| done.status == Status::Ok);
    }
    start.elapsed().as_secs_f64() * 1e3
}

fn flood(variables: &[&str], sealed: bool) {
    let mut dice = Dice(17);
    let host = Host::open("127.0.33.1", variables);
    let kinds = if sealed { [&IN_CLEAR[..], &SEALED].concat() } else { IN_CLEAR.to_vec() };
    connect(&host, 2, variables);
    let lane = Lane::new(Forger::new(3, 9), &kinds, &[host.gid().ip()], address(&host));
    let before = resident(std::process::id());
    strangers_knock(&host, &mut dice, &kinds);
    if !sealed {
        strangers_stay(&host, &mut dice);
    }
    let growth = resident(std::process::id()).saturating_sub(before);
    let _attack = Attack::start(vec![lane], 20_000);
    let took = connect(&host, 3, variables);
    println!(
        "{growth} B more in memory after {STRANGERS} strangers; a new peer's first message took {took:.1} ms"
    );
    assert!(growth < MOST_GROWTH, "{growth} B: {}", host.report());
    let stats = host.instance.stats().unwrap();
    assert_eq!(stats.transport["peer_limit_drops"], 0, "{}", host.report());
    assert!(stats.peer_count <= 1100, "{} peers", stats.peer_count);
}

#[test]
fn a_flood_fills_neither_table_nor_memory_and_keeps_nobody_waiting() {
    flood(&[], false);
    let key = KeyFile::new();
    flood(&[key.variable()], true);
}
