//! What a flood of hostile packets does to an instance on loopback, beside a socket that only reads and drops the same flood:
//! processor time of a program that polls, for each packet; the bandwidth of a flow that goes on meanwhile; how soon a new
//! peer connects. `cargo bench -p srd-net --bench hostile`; with `SECONDS=n` each takes so long.

#[path = "../tests/support/mod.rs"]
mod support;

use srd_device::SendOp;
use srd_net::udp::{MAX_RUNS, ReceiveBatch, ReceiveSocket};
use srd_wire::{InstanceAddr, Status};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::Host;
use support::attack::{Attack, Lane};
use support::forger::{Forger, IN_CLEAR, Kind, SEALED};
use support::keys::KeyFile;

/// Packets a second.
const RATE: u64 = 100_000;
/// Hosts from which it comes.
const SOURCES: u8 = 16;

/// Time that this thread has spent on a processor, in nanoseconds.
fn cpu_ns() -> f64 {
    let stat =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with scheduler statistics");
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number of nanoseconds")
}

/// Half of it comes from the address of a peer.
fn flooding(kinds: &[Kind], forger: &Forger, to: SocketAddr) -> Attack {
    let forger = Forger { overheard: forger.overheard.clone(), ..Forger::new(16, forger.src_port) };
    let others = (1..=SOURCES).map(|at| IpAddr::from([127, 0, 7, at]));
    let from: Vec<IpAddr> = others.flat_map(|other| [other, PEER]).collect();
    Attack::start(vec![Lane::new(forger, kinds, &from, to)], RATE)
}

/// Reads and drops, as an instance reads.
struct Sink {
    socket: ReceiveSocket,
    batch: ReceiveBatch,
    busy: bool,
    received: u64,
}

impl Sink {
    fn new() -> Sink {
        let socket = ReceiveSocket::bind(SocketAddr::from(([127, 0, 7, 99], 0)), 4 << 20).expect("loopback");
        Sink { socket, batch: ReceiveBatch::new(), busy: false, received: 0 }
    }

    fn address(&self) -> SocketAddr {
        self.socket.address().expect("bound")
    }

    fn poll(&mut self) {
        for _ in 0..4 {
            let most = if self.busy { MAX_RUNS } else { 1 };
            let runs = self.batch.receive(&self.socket, most).expect("loopback");
            self.busy = runs > 0;
            for run in 0..runs {
                self.received += self.batch.run(run).map_or(0, |run| run.datagrams().count() as u64);
            }
            if runs < MAX_RUNS {
                break;
            }
        }
    }
}

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 7, 101));

fn socket_address(of: InstanceAddr) -> SocketAddr {
    SocketAddr::new(of.gid.ip(), of.port)
}

fn packets_of(host: &Host) -> (u64, u64) {
    let stats = host.instance.stats().expect("not forked");
    (stats.receive.packets, stats.transmit.packets)
}

/// Two that know each other, and what an attacker on the way would know of them.
fn pair(variables: &[&str], sealed: bool) -> (Host, Host, Forger) {
    let (mut a, mut b) = (Host::open(&PEER.to_string(), variables), Host::open("127.0.7.102", variables));
    support::traffic::exchange(&mut a, &mut b, 3);
    support::traffic::exchange(&mut b, &mut a, 3);
    let mut forger = Forger::new(16, a.instance.address().port);
    if sealed {
        forger.overheard = vec![support::names_of(&b, &a)];
    }
    (a, b, forger)
}

/// Processor time and polls of a thread that does nothing but `poll`, for a while.
fn poll_for(seconds: f64, mut poll: impl FnMut()) -> (f64, u64) {
    let (start, before, mut polls) = (Instant::now(), cpu_ns(), 0);
    while start.elapsed().as_secs_f64() < seconds {
        (0..16).for_each(|_| poll());
        polls += 16;
    }
    (cpu_ns() - before, polls)
}

/// Rounds of which the median counts: others on the machine lengthen some of them.
const ROUNDS: usize = 7;

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn cost(seconds: f64, kind: Kind, sealed: bool, variables: &[&str]) {
    let (_a, b, forger) = pair(variables, sealed);
    let (mut all, mut sunk, mut rate, mut answers) = (vec![], vec![], vec![], vec![]);
    let span = seconds / ROUNDS as f64;
    for _ in 0..ROUNDS {
        let (idle, polls) = poll_for(span / 2.0, || assert_eq!(b.poll(), None));
        let idle = idle / polls as f64;
        let before = packets_of(&b);
        let attack = flooding(&[kind], &forger, socket_address(b.instance.address()));
        let (busy, polls) = poll_for(span, || assert_eq!(b.poll(), None));
        drop(attack);
        let after = packets_of(&b);
        let packets = (after.0 - before.0) as f64;
        all.push((busy - polls as f64 * idle) / packets);
        rate.push(packets / span);
        answers.push((after.1 - before.1) as f64 / packets);
        let mut sink = Sink::new();
        let (idle, polls) = poll_for(span / 2.0, || sink.poll());
        let idle = idle / polls as f64;
        let attack = flooding(&[kind], &forger, sink.address());
        let (busy, polls) = poll_for(span, || sink.poll());
        drop(attack);
        sunk.push((busy - polls as f64 * idle) / sink.received as f64);
    }
    let (all, sunk) = (median(all), median(sunk));
    println!(
        "{:>20} {:>8} {:>10.0} {all:>8.0} {sunk:>8.0} {:>8.0} {:>8.3}",
        format!("{kind:?}"),
        if sealed { "sealed" } else { "clear" },
        median(rate),
        all - sunk,
        median(answers),
    );
}

/// Bytes a second that one writes into the other's memory, 64 KiB at a time, while the other's thread does `beside` at each
/// poll.
fn bandwidth(seconds: f64, a: &mut Host, b: &mut Host, mut beside: impl FnMut()) -> f64 {
    const LEN: usize = 65_536;
    const DEPTH: u64 = 8;
    b.handle(a.gid());
    let (to, over) = (b.address(), AtomicBool::new(false));
    let write = SendOp::Write { rkey: b.key, addr: b.buffer.addr(), imm: None };
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let (mut sent, mut done, start) = (0, 0, Instant::now());
            let rate = loop {
                while sent - done < DEPTH {
                    a.post(sent, write, to, 0, LEN);
                    sent += 1;
                }
                if let Some(completion) = a.poll() {
                    assert_eq!(completion.status, Status::Ok);
                    done += 1;
                }
                let elapsed = start.elapsed().as_secs_f64();
                if elapsed > seconds {
                    break (done * LEN as u64) as f64 / elapsed;
                }
            };
            (done..sent).for_each(|_| assert_eq!(a.success().status, Status::Ok));
            over.store(true, Ordering::Relaxed);
            rate
        });
        while !over.load(Ordering::Relaxed) {
            beside();
            assert_eq!(b.poll(), None);
        }
        sender.join().expect("the sender")
    })
}

fn beside_a_flow(seconds: f64, sealed: bool, variables: &[&str]) {
    let kinds: &[Kind] = if sealed { &SEALED } else { &IN_CLEAR };
    let (mut a, mut b, forger) = pair(variables, sealed);
    let (mut alone, mut sunk, mut refused, mut rate) = (vec![], vec![], vec![], vec![]);
    let span = seconds / ROUNDS as f64;
    for _ in 0..ROUNDS {
        let bandwidth_alone = bandwidth(span, &mut a, &mut b, || {});
        alone.push(bandwidth_alone);
        let mut sink = Sink::new();
        let attack = flooding(kinds, &forger, sink.address());
        let beside_sink = bandwidth(span, &mut a, &mut b, || sink.poll());
        drop(attack);
        let attack = flooding(kinds, &forger, socket_address(b.instance.address()));
        let (start, before) = (Instant::now(), attack.sent());
        let beside_flood = bandwidth(span, &mut a, &mut b, || {});
        rate.push((attack.sent() - before) as f64 / start.elapsed().as_secs_f64());
        drop(attack);
        sunk.push(beside_sink / bandwidth_alone);
        refused.push(beside_flood / bandwidth_alone);
    }
    let (sunk, refused) = (median(sunk), median(refused));
    println!(
        "{:>8}: alone {:>6.2} GB/s; beside a flood to a socket that is read by the same thread {sunk:.2} of it; beside a \
         flood to the instance ({:.0}/s) {refused:.2} of it, {:.2} of that",
        if sealed { "sealed" } else { "clear" },
        median(alone) / 1e9,
        median(rate),
        refused / sunk,
    );
}

/// How long a peer takes for its first message, during a flood and without one.
fn connecting(sealed: bool, variables: &[&str]) {
    let kinds: &[Kind] = if sealed { &SEALED } else { &IN_CLEAR };
    let (_a, b, forger) = pair(variables, sealed);
    for (flooded, net, what) in
        [(false, 8, "new, in quiet"), (true, 9, "new, in a flood"), (true, 8, "started again, in a flood")]
    {
        let flood = flooded.then(|| flooding(kinds, &forger, socket_address(b.instance.address())));
        std::thread::sleep(Duration::from_millis(200));
        let mut times: Vec<f64> = (0..30)
            .map(|peer| {
                let mut new = Host::open(&format!("127.0.{net}.{}", 1 + peer), variables);
                b.recv(1, 0, 100);
                let start = Instant::now();
                new.send(1, b.address(), 0, 100);
                new.success_while(|| {
                    b.poll();
                });
                start.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        drop(flood);
        times.sort_by(f64::total_cmp);
        println!(
            "{:>8} {what:>25}: first message in {:.2} ms (median of 30; longest {:.2})",
            if sealed { "sealed" } else { "clear" },
            times[15],
            times[29]
        );
    }
}

fn main() {
    let seconds: f64 =
        std::env::var("SECONDS").ok().map_or(1.0, |text| text.parse().expect("SECONDS: a number"));
    let part = std::env::var("PART").ok();
    let wanted = |name: &str| part.as_ref().is_none_or(|part| part == name);
    let key = KeyFile::new();
    let modes: [(bool, Vec<&str>); 2] = [(false, vec![]), (true, vec![key.variable()])];
    if wanted("cost") {
        println!(
            "nanoseconds of the polling thread's processor time for each packet, the kernel's part included:"
        );
        println!(
            "{:>20} {:>8} {:>10} {:>8} {:>8} {:>8} {:>8}",
            "packet", "receiver", "a second", "all", "sink", "rest", "answers"
        );
        for (sealed, variables) in &modes {
            let more: &[Kind] = if *sealed { &SEALED } else { &[] };
            for kind in IN_CLEAR.iter().chain(more) {
                cost(seconds, *kind, *sealed, variables);
            }
        }
    }
    if wanted("flow") {
        for (sealed, variables) in &modes {
            beside_a_flow(seconds, *sealed, variables);
        }
    }
    if wanted("connect") {
        for (sealed, variables) in &modes {
            connecting(*sealed, variables);
        }
    }
}
