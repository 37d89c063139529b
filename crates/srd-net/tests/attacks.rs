//! Attacks over real sockets: somebody on loopback sends whatever he likes, from any address, to instances that talk to each
//! other. In clear he sees nothing of what they say, with a key all of it. What he sends follows from a seed: `SEED=n` takes
//! another one.

mod support;

use srd_wire::codec::{COMMON_LEN, HELLO_LEN};
use srd_wire::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::attack::{Attack, Lane};
use support::forger::{Dice, Forger, IN_CLEAR, Kind, SEALED, data};
use support::keys::KeyFile;
use support::traffic::{exchange, exchange_by_way_of, write_and_read};
use support::{Host, PATIENCE, names_of, pattern};

fn seed() -> u64 {
    let seed = std::env::var("SEED").map_or(16, |text| text.parse().expect("SEED: a number"));
    println!("SEED={seed}");
    seed
}

fn socket_address(of: &Host) -> SocketAddr {
    let address = of.instance.address();
    SocketAddr::new(address.gid.ip(), address.port)
}

/// Refusals by cause.
fn causes(of: &Host) -> BTreeMap<&'static str, u64> {
    let stats = of.instance.stats().unwrap();
    let names =
        ["stale_incarnation", "replaced_incarnation", "unintroduced", "unconfirmed", "resets_ignored"];
    let transport = names.map(|name| (name, stats.transport_counter(name)));
    transport.into_iter().chain(stats.receive.not_decoded).chain(stats.receive.not_opened).collect()
}

/// Bytes that nobody is to change, where no test writes.
const SECRET_AT: usize = 900_000;
const SECRET_LEN: usize = 100_000;

/// Hosts `net`.1 and `net`.2 of loopback talk to each other, and `net`.9 sends packets in the name of both, and in his own.
fn a_flow_goes_on(net: u8, variables: &[&str], sealed: bool, expected: &[&str]) {
    let seed = seed();
    let at = |host| IpAddr::from([127, 0, net, host]);
    let mut hosts = [1, 2].map(|host| Host::open(&at(host).to_string(), variables));
    let [a, b] = &mut hosts;
    exchange(a, b, 1);
    exchange(b, a, 1);
    let secret = pattern(5, SECRET_LEN);
    a.buffer.write(SECRET_AT, &secret);
    b.buffer.write(SECRET_AT, &secret);
    // With a key he has overheard who they are; in clear they have told him when he asked, who they are to him.
    let names = |to: &Host, from: &Host| -> Vec<(Incarnation, Incarnation)> {
        if sealed {
            return vec![names_of(to, from)];
        }
        let [to, from] = [to, from].map(|host| {
            let him = InstanceAddr { gid: at(9).into(), port: host.instance.address().port };
            host.instance.with(|device, _| device.endpoint().incarnation_toward(0, him)).unwrap()
        });
        vec![(to, from), (from, to)]
    };
    let kinds = if sealed { [&IN_CLEAR[..], &SEALED].concat() } else { IN_CLEAR.to_vec() };
    let lanes = [(&*a, &*b), (&*b, &*a)].into_iter().zip(seed..).flat_map(|((from, to), seed)| {
        let port = from.instance.address().port;
        let own = Forger { qpns: vec![to.qpn], ..Forger::new(seed, port) };
        let theirs = Forger { overheard: names(to, from), qpns: vec![to.qpn], ..Forger::new(!seed, port) };
        [(theirs, from.gid().ip()), (own, at(9))]
            .map(|(forger, ip)| Lane::new(forger, &kinds, &[ip], socket_address(to)))
    });
    let attack = Attack::start(lanes.collect(), 20_000);
    let mut rounds = 0;
    while attack.sent() < 20_000 {
        exchange(a, b, 3);
        exchange(b, a, 3);
        write_and_read(a, b, 100_000, rounds);
        rounds += 1;
    }
    drop(attack);
    exchange(a, b, 3);
    for host in [&*a, &*b] {
        assert!(host.buffer.to_vec(SECRET_AT, SECRET_LEN) == secret, "somebody has written there");
        let stats = host.instance.stats().unwrap();
        for name in ["peer_restarts", "given_up_by_peers", "unresponsive_remote_events"] {
            assert_eq!(stats.transport[name], 0, "{name}: {}", host.report());
        }
        assert_eq!(stats.peer_count, 1, "nothing is kept of strangers");
        let causes = causes(host);
        for cause in expected {
            assert!(causes.get(cause).is_some_and(|count| *count > 0), "{cause}: {causes:?}");
        }
    }
}

#[test]
fn a_flow_in_clear_goes_on_under_forged_packets() {
    let transport = ["stale_incarnation", "unconfirmed", "resets_ignored", "replaced_incarnation"];
    let codec = ["small_datagram", "truncated", "incarnation_mismatch", "version"];
    let causes = [&transport[..], &codec].concat();
    a_flow_goes_on(21, &[], false, &causes);
}

#[test]
fn a_sealed_flow_goes_on_under_forged_packets() {
    let key = KeyFile::new();
    let causes =
        ["not_sealed", "bad_tag", "wrong_key", "wrong_destination", "incarnation_mismatch", "version"];
    a_flow_goes_on(22, &[key.variable()], true, &causes);
}

/// What a stranger sends once is answered by no more than three times its bytes, however long he waits. He listens where he
/// says that he does; somebody else's address may stand there as well.
fn answers_are_short(net: u8, variables: &[&str], kinds: &[Kind]) {
    let seed = seed();
    let host = Host::open(&format!("127.0.{net}.1"), variables);
    let key_is_known = kinds == [Kind::Data];
    (0..10).for_each(|id| host.recv(id, 0, 4096));
    let ask = |number: usize| {
        let ip = IpAddr::from([127, 0, net, 10 + (number / 100) as u8]);
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut forger = Forger::new(seed + number as u64, socket.local_addr().unwrap().port());
        if key_is_known {
            (forger.qpns, forger.qkeys) = (vec![host.qpn], vec![support::QKEY]);
        }
        let kind = kinds[number % kinds.len()];
        let packet = forger.forge(kind);
        socket.send_to(&packet, socket_address(&host)).unwrap();
        // Not more at a time than are answered.
        std::thread::sleep(Duration::from_micros(300));
        (kind, socket, packet.len(), 0)
    };
    let mut askers: Vec<_> = (0..(40 * kinds.len()).max(200)).map(ask).collect();
    // What is retransmitted is retransmitted within this time.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        for (_, socket, _, back) in &mut askers {
            let mut bytes = [0; 9000];
            while let Ok(len) = socket.recv(&mut bytes) {
                *back += len;
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for (kind, _, sent, back) in &askers {
        assert!(*back <= 3 * sent, "{kind:?}: {back} B for {sent} B; {}", host.report());
    }
    assert!(askers.iter().any(|(.., back)| *back > 0), "nobody was answered: {}", host.report());
    let peers = host.instance.stats().unwrap().peer_count;
    assert!(peers == 0 || key_is_known, "{peers} are remembered");
}

#[test]
fn strangers_in_clear_are_answered_by_three_times_their_bytes_at_most() {
    answers_are_short(23, &[], &IN_CLEAR);
}

#[test]
fn strangers_without_the_key_are_answered_by_three_times_their_bytes_at_most() {
    let key = KeyFile::new();
    answers_are_short(24, &[key.variable()], &[&IN_CLEAR[..2], &SEALED].concat());
}

/// Of a well-known endpoint everybody knows the queue key. His messages are taken or refused, and that is acknowledged, and
/// said once.
#[test]
fn strangers_who_know_the_queue_key_are_answered_by_three_times_their_bytes_at_most() {
    answers_are_short(28, &[], &[Kind::Data]);
}

/// He is where he says he is, and has been told who he speaks to: so he has a context, and is told that he may not.
#[test]
fn a_stranger_who_is_at_his_address_reads_writes_and_delivers_nothing() {
    let mut host = Host::open("127.0.25.1", &[]);
    let friend = Host::open("127.0.25.2", &[]);
    let mut dice = Dice(seed());
    host.handle(IpAddr::from([127, 0, 25, 9]).into()); // RDMA is for hosts that are known: so is his
    let secret = pattern(5, 1 << 20);
    host.buffer.write(0, &secret);
    host.recv(1, 0, 100);
    let socket = UdpSocket::bind("127.0.25.9:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut forger = Forger::new(dice.roll(), socket.local_addr().unwrap().port());
    let hear = |wanted: &mut dyn FnMut(&Packet<&[u8]>) -> bool| -> bool {
        let mut bytes = [0; 9000];
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            assert!(host.poll().is_none(), "something has come: {}", host.report());
            let Ok(len) = socket.recv(&mut bytes) else { continue };
            let packet = codec::decode(&bytes[..len]).expect("a packet");
            if let Body::Data(data) = &packet.body {
                assert!(!matches!(data.op, Op::ReadResponse { .. }), "memory was read: {data:?}");
            }
            if wanted(&packet) {
                return true;
            }
        }
        false
    };
    for life in 0..30 {
        let who = Incarnation(dice.roll() | 1);
        let hello = forger.hello_of(who, Body::None);
        socket.send_to(&hello, socket_address(&host)).unwrap();
        let mut told = None;
        // Of a later life he is asked with a probe first.
        let mut answer = |packet: &Packet<&[u8]>| {
            told = packet.hello.filter(|_| packet.dst_tag == who.tag()).map(|hello| hello.incarnation);
            told.is_some()
        };
        assert!(hear(&mut answer), "life {life}: no answer; {}", host.report());
        let told = told.unwrap();
        let route =
            Route { dst_qpn: host.qpn, src_qpn: Qpn(2), qkey: Qkey(dice.pick(&[0, 1, dice.0 as u32])) };
        // He guesses the key of the memory, and where it is; or he knows both, but not the queue key.
        let known = dice.below(2) == 0;
        let rkey = if known { host.key } else { MrKey(dice.edge(4) as u32) };
        let addr = host.buffer.addr();
        let op = match life % 3 {
            0 => Op::Send { route, imm: None, datagram: false },
            1 => Op::Write { route, rkey, addr, imm: None },
            _ => Op::ReadRequest { route, rkey, addr, read_len: 100, read: 1 },
        };
        let payload = if life % 3 == 2 { vec![] } else { vec![0xEE; 50] };
        let body = data(first_psn(who, 0), MsgId(0), payload.len() as u32, op, payload);
        let packet = forger.confirmed(told, who, body);
        socket.send_to(&packet, socket_address(&host)).unwrap();
        let mut refused = |packet: &Packet<&[u8]>| match &packet.body {
            Body::Data(data) => matches!(data.op, Op::Refuse { .. } | Op::ReadFailed { .. }),
            _ => false,
        };
        assert!(hear(&mut refused), "life {life}: {op:?} was not refused; {}", host.report());
    }
    assert!(host.buffer.to_vec(0, secret.len()) == secret, "memory was written");
    // The receive is still there for who may send.
    let mut friend = friend;
    friend.buffer.write(0, &[7; 100]);
    friend.send(1, host.address(), 0, 100);
    assert_eq!((host.success().wr_id, host.buffer.to_vec(0, 100)), (1, vec![7; 100]));
}

/// One hello with an impossible length in the name of a peer that has not begun once ended a process.
#[test]
fn what_is_forged_in_the_name_of_a_peer_that_has_not_begun_does_not_keep_it_out() {
    let base = "SRD_PORT_BASE=18700";
    let mut a = Host::open("127.0.26.1", &[base]);
    let mut forger = Forger::new(seed(), 18_700);
    let socket = UdpSocket::bind("127.0.26.2:0").unwrap();
    for number in 0..5000 {
        let kind = if number % 2 == 0 { Kind::SmallHello } else { forger.dice.pick(&IN_CLEAR) };
        socket.send_to(&forger.forge(kind), socket_address(&a)).unwrap();
        if number % 100 == 0 {
            assert!(a.poll().is_none());
        }
    }
    let mut b = Host::open("127.0.26.2", &[base]);
    assert_eq!(b.instance.address().port, 18_700);
    exchange(&mut a, &mut b, 2);
    exchange(&mut b, &mut a, 2);
    write_and_read(&mut a, &mut b, 100_000, 1);
    assert_eq!(a.instance.stats().unwrap().transport["peer_restarts"], 0, "{}", a.report());
}

/// Ends the attacker with the test, also where that fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Between two sealed instances: sends on what comes, and besides what he has heard, changed, late, again, back, and from
/// elsewhere.
fn between(
    dice: &mut Dice,
    middle: &UdpSocket,
    elsewhere: &UdpSocket,
    ends: [SocketAddr; 2],
    over: &AtomicBool,
) -> u64 {
    let (mut heard, mut forged) = (Vec::new(), 0);
    let mut bytes = [0; 65_536];
    while !over.load(Ordering::Relaxed) {
        let Ok((len, from)) = middle.recv_from(&mut bytes) else { continue };
        let datagram = bytes[..len].to_vec();
        let to = if from.ip() == ends[0].ip() { ends[1] } else { ends[0] };
        let _ = middle.send_to(&datagram, to);
        heard.push((to, datagram));
        if heard.len() > 2000 {
            heard.remove(0);
        }
        if dice.below(4) > 0 {
            continue;
        }
        let (to, mut datagram) = heard[dice.below(heard.len())].clone();
        let to = if dice.below(4) == 0 { ends[dice.below(2)] } else { to };
        match dice.below(4) {
            0 => {
                let at = dice.below(datagram.len());
                datagram[at] ^= 1 << dice.below(8);
            }
            1 => {
                // Addresses, tags and kind are outside.
                let at = dice.below(12);
                datagram[at] = dice.edge(1) as u8;
            }
            2 => datagram.truncate(dice.below(datagram.len())),
            _ => {}
        }
        let socket = if dice.below(4) == 0 { elsewhere } else { middle };
        let _ = socket.send_to(&datagram, to);
        forged += 1;
    }
    forged
}

#[test]
fn who_is_on_the_way_of_sealed_packets_changes_repeats_and_turns_back_nothing() {
    let key = KeyFile::new();
    let variables = [key.variable(), "SRD_PORT_BASE=18800"];
    let (mut a, mut b) = (Host::open("127.0.27.1", &variables), Host::open("127.0.27.2", &variables));
    let ends = [socket_address(&a), socket_address(&b)];
    assert_eq!(ends.map(|end| end.port()), [18_800; 2]);
    let middle = UdpSocket::bind("127.0.27.50:18800").unwrap();
    middle.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let elsewhere = UdpSocket::bind("127.0.27.51:0").unwrap();
    let (mut dice, over) = (Dice(seed()), AtomicBool::new(false));
    let gid: Gid = IpAddr::from([127, 0, 27, 50]).into();
    let secret = pattern(5, SECRET_LEN);
    [&a, &b].into_iter().for_each(|host| host.buffer.write(SECRET_AT, &secret));
    let forged = std::thread::scope(|scope| {
        let attacker = scope.spawn(|| between(&mut dice, &middle, &elsewhere, ends, &over));
        let end = Over(&over);
        for _ in 0..60 {
            exchange_by_way_of(&mut a, &mut b, gid, gid, 2);
            exchange_by_way_of(&mut b, &mut a, gid, gid, 2);
        }
        drop(end);
        attacker.join().unwrap()
    });
    let opened = [causes(&a), causes(&b)];
    assert!(forged > 500, "{forged} packets forged");
    let replayed: u64 = opened.iter().filter_map(|causes| causes.get("replayed")).sum();
    assert!(replayed > forged / 8, "{replayed} of {forged}: {opened:?}");
    for cause in ["replayed", "bad_tag", "wrong_destination", "wrong_address", "not_sealed", "truncated"] {
        assert!(opened.iter().any(|causes| causes.contains_key(cause)), "{cause}: {opened:?}");
    }
    for host in [&a, &b] {
        assert!(host.buffer.to_vec(SECRET_AT, SECRET_LEN) == secret);
        let transport = host.instance.stats().unwrap().transport;
        assert_eq!((transport["peer_restarts"], transport["given_up_by_peers"]), (0, 0), "{}", host.report());
    }
}

/// Whoever begins in another version learns which versions there are, by no more bytes than he has sent; an answer is not
/// answered, or two versions would talk for ever.
#[test]
fn whoever_begins_in_another_version_is_told_ours() {
    let host = Host::open("127.0.45.1", &[]);
    let socket = UdpSocket::bind(("127.0.45.9", 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut forger = Forger::new(seed(), socket.local_addr().unwrap().port());
    // An answer, somebody who cannot be answered, one byte less than an answer takes; then whoever may have one.
    let least = COMMON_LEN + HELLO_LEN;
    for (dst_tag, src_tag, bytes) in [(1u32, 3u32, least), (0, 0, least), (0, 5, least - 1), (0, 7, least)] {
        let mut packet = forger.hello_of(Incarnation(0x1_0000_0001), Body::None);
        packet[0] = (VERSION + 1) << 4;
        packet[4..8].copy_from_slice(&dst_tag.to_be_bytes());
        packet[8..12].copy_from_slice(&src_tag.to_be_bytes());
        packet.resize(bytes, 0);
        socket.send_to(&packet, socket_address(&host)).unwrap();
    }
    let (mut bytes, start) = ([0; 9000], Instant::now());
    let len = loop {
        assert!(host.poll().is_none());
        match socket.recv(&mut bytes) {
            Ok(len) => break len,
            Err(_) => assert!(start.elapsed() < PATIENCE, "no answer; {}", host.report()),
        }
    };
    let answer = codec::decode(&bytes[..len]).unwrap();
    let hello = answer.hello.expect("it says which versions there are");
    assert_eq!((answer.dst_tag, hello.version_min, hello.version_max), (Tag(7), VERSION, VERSION));
    assert!(len <= least, "{len} bytes");
}
