//! What a device over UDP does here: latency, message rate and bandwidth, to be compared with `udp_floor`.
//!
//! ```text
//! device_perf                          both ends in this process, over loopback, on the last two cores
//! device_perf serve ADDR [CORE]        one end (the other variables, such as SRD_MTU, come from the environment)
//! device_perf run ADDR PEER [CORE]     the other end
//! ```
//! `only=latency`, `only=blocking`, `only=send` or `only=write` before these runs one kind of test.

#[path = "../tests/support/mod.rs"]
mod support;

use srd_device::SendOp;
use srd_net::{Address, Instance, Options};
use srd_wire::{Gid, MrKey, Qpn};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use support::Host;

/// Every test is announced by a message of this many bytes; the answer has the same length.
const HELLO: usize = 24;
const WARM_UP: usize = 2000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (only, args): (Vec<_>, Vec<_>) =
        args.iter().map(String::as_str).partition(|arg| arg.starts_with("only="));
    let only = only.first().map_or("", |arg| &arg["only=".len()..]);
    let ip = |text: &str| text.parse::<IpAddr>().expect("an IP address");
    let core = |text: &str| text.parse::<usize>().expect("a core's number");
    match args[..] {
        [] => {
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
            let server = std::thread::spawn(move || serve(ip("127.0.0.2"), cores - 1));
            std::thread::sleep(Duration::from_millis(200));
            run(ip("127.0.0.1"), ip("127.0.0.2"), cores.saturating_sub(2), only);
            server.join().expect("server panicked");
        }
        ["serve", addr] => serve(ip(addr), 1),
        ["serve", addr, on] => serve(ip(addr), core(on)),
        ["run", addr, peer] => run(ip(addr), ip(peer), 0, only),
        ["run", addr, peer, on] => run(ip(addr), ip(peer), core(on), only),
        _ => panic!("usage: device_perf [serve ADDR [CORE] | run ADDR PEER [CORE]]"),
    }
}

fn open(ip: IpAddr, core: usize) -> Host {
    let (mut options, warnings) = Options::from_env().unwrap_or_else(|e| panic!("{e}"));
    warnings.iter().for_each(|warning| eprintln!("{warning}"));
    options.addr = Address::Ip(ip);
    let host = Host::with_options(&options); // the thread starts with the program's cores
    srd_net::confine_thread_to(core).expect("a core to run on");
    host
}

/// The queue pair that a fresh host at the first port has.
const FIRST_QPN: Qpn = Qpn(2); // 0 and 1 are special in InfiniBand

#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(u8)]
enum Test {
    Latency,
    Rate,
    Write,
    Blocking,
    End,
}

fn serve(ip: IpAddr, core: usize) {
    let mut host = open(ip, core);
    for i in 0..512 {
        host.recv(i, (i as usize) * 16384 % (1 << 19), 16384);
    }
    let mut completions = vec![];
    let mut peer = None;
    let mut test = Test::Latency;
    let mut left = 0u64;
    loop {
        if test == Test::Blocking {
            completions.push(blocking(&host));
        } else {
            poll_many(&host.instance, &host, &mut completions);
        }
        for got in completions.drain(..) {
            if got.op != srd_device::CompletionOp::Recv {
                continue;
            }
            let place = got.wr_id as usize * 16384 % (1 << 19);
            let from = *peer.insert((got.src_gid, got.src_qpn));
            if got.byte_len as usize == HELLO {
                let head = host.buffer.to_vec(place, HELLO);
                test = [Test::Latency, Test::Rate, Test::Write, Test::Blocking, Test::End][head[0] as usize];
                left = u64::from_le_bytes(head[8..16].try_into().unwrap());
                host.recv(got.wr_id, place, 16384);
                let mut answer = vec![0; HELLO];
                answer[0..8].copy_from_slice(&host.buffer.addr().to_le_bytes());
                answer[8..12].copy_from_slice(&host.key.0.to_le_bytes());
                host.buffer.write(1 << 19, &answer);
                host.send(u64::MAX, from, 1 << 19, HELLO);
                if test == Test::End {
                    let start = Instant::now();
                    while start.elapsed() < Duration::from_millis(20) {
                        host.poll();
                    }
                    return;
                }
                continue;
            }
            host.recv(got.wr_id, place, 16384);
            match test {
                Test::Latency | Test::Blocking => host.send(u64::MAX, from, 1 << 19, got.byte_len as usize),
                Test::Rate => {
                    left -= 1;
                    if left == 0 {
                        host.send(u64::MAX, from, 1 << 19, 1);
                    }
                }
                Test::Write | Test::End => {}
            }
        }
    }
}

fn poll_many(instance: &Instance, host: &Host, out: &mut Vec<srd_device::Completion>) {
    for _ in 0..32 {
        match instance.poll_one(host.cq).unwrap() {
            Some(completion) => out.push(completion),
            None => return,
        }
    }
}

/// The next completion, slept for.
fn blocking(host: &Host) -> srd_device::Completion {
    let mut got = None;
    let ready = || {
        got = host.poll();
        got.is_some()
    };
    assert!(host.instance.wait_until(Some(support::PATIENCE), ready).unwrap(), "{}", host.report());
    got.expect("ready")
}

struct Client {
    host: Host,
    peer: (Gid, Qpn),
}

impl Client {
    /// Announces a test; returns the server's buffer.
    fn announce(&mut self, test: Test, messages: u64) -> (u64, MrKey) {
        let mut head = vec![0; HELLO];
        head[0] = test as u8;
        head[8..16].copy_from_slice(&messages.to_le_bytes());
        self.host.buffer.write(0, &head);
        self.host.recv(7, 1 << 18, 16384);
        self.host.send(9, self.peer, 0, HELLO);
        let mut answer = None;
        for _ in 0..2 {
            let done = self.host.success();
            if done.wr_id == 7 {
                answer = Some(self.host.buffer.to_vec(1 << 18, HELLO));
            }
        }
        let answer = answer.expect("an answer");
        let addr = u64::from_le_bytes(answer[0..8].try_into().unwrap());
        (addr, MrKey(u32::from_le_bytes(answer[8..12].try_into().unwrap())))
    }

    fn latency(&mut self, len: usize, rounds: usize, test: Test) {
        self.announce(test, 0);
        let mut samples = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            self.host.recv(7, 1 << 18, 16384);
            let start = Instant::now();
            self.host.send(9, self.peer, 0, len);
            let mut sent = false;
            loop {
                let done = if test == Test::Blocking { blocking(&self.host) } else { self.host.success() };
                match done.wr_id {
                    7 => break,
                    _ => sent = true,
                }
            }
            samples.push(start.elapsed().as_nanos() as f64 / 2e3);
            if !sent {
                self.host.success();
            }
        }
        samples.drain(..WARM_UP);
        samples.sort_by(f64::total_cmp);
        let at = |share: f64| samples[(samples.len() as f64 * share) as usize];
        println!(
            "{test:?} {len} B: half round trip p50 {:.2} p99 {:.2} p99.9 {:.2} us",
            at(0.5),
            at(0.99),
            at(0.999)
        );
    }

    fn rate(&mut self, len: usize, messages: u64, window: u64) {
        self.announce(Test::Rate, messages);
        self.host.recv(7, 1 << 18, 16384);
        let start = Instant::now();
        let (mut posted, mut done, mut over) = (0, 0, false);
        let mut completions = vec![];
        while !over || done < messages {
            while posted < messages && posted - done < window {
                self.host.send(9, self.peer, (posted % 32) as usize * 8192, len);
                posted += 1;
            }
            poll_many(&self.host.instance, &self.host, &mut completions);
            for completion in completions.drain(..) {
                assert_eq!(completion.status, srd_wire::Status::Ok, "{}", self.host.report());
                if completion.wr_id == 7 { over = true } else { done += 1 }
            }
        }
        let elapsed = start.elapsed().as_secs_f64();
        println!(
            "send {len} B, {window} outstanding: {:.3} M/s, {:.2} Gb/s",
            messages as f64 / elapsed / 1e6,
            (messages * len as u64) as f64 * 8e-9 / elapsed
        );
    }

    fn write(&mut self, len: usize, messages: u64, window: u64) {
        let (addr, rkey) = self.announce(Test::Write, 0);
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < messages {
            while posted < messages && posted - done < window {
                self.host.post(9, SendOp::Write { rkey, addr, imm: None }, self.peer, 0, len);
                posted += 1;
            }
            self.host.success();
            done += 1;
        }
        let elapsed = start.elapsed().as_secs_f64();
        println!(
            "RDMA write {len} B, {window} outstanding: {:.2} Gb/s",
            (messages * len as u64) as f64 * 8e-9 / elapsed
        );
    }
}

fn run(ip: IpAddr, peer: IpAddr, core: usize, only: &str) {
    let mut client = Client { host: open(ip, core), peer: (Gid::from(peer), FIRST_QPN) };
    let wanted = |kind: &str| only.is_empty() || only == kind;
    client.announce(Test::Latency, 0);
    if wanted("latency") {
        for len in [8, 1000, 4096, 8192] {
            client.latency(len, 20_000, Test::Latency);
        }
    }
    if wanted("blocking") {
        client.latency(8, 20_000, Test::Blocking);
    }
    if wanted("send") {
        for (len, messages, window) in [
            (8, 1_000_000, 64),
            (64, 500_000, 64),
            (1024, 500_000, 64),
            (8192, 200_000, 64),
            (8192, 200_000, 256),
        ] {
            client.rate(len, messages, window);
        }
    }
    if wanted("write") {
        for (len, messages) in [(65_536, 20_000), (1 << 20, 2_000)] {
            client.write(len, messages, 16);
        }
    }
    client.announce(Test::End, 0);
    let stats = client.host.instance.stats().unwrap();
    println!("{:#?}\n{:?}\n{:?}", stats.transmit, stats.rounds, stats.progress);
    let counted: Vec<_> = stats.transport.iter().filter(|(_, n)| **n > 0).collect();
    println!("{counted:?}\n{:?}", stats.peers);
}
