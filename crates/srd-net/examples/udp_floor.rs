//! What raw UDP sockets do here, with the calls that this crate makes and nothing above them: the floor that the
//! transport is compared with.
//!
//! ```text
//! udp_floor                          both ends in this process, over loopback, on the last two cores
//! udp_floor serve ADDR [CORE]        one end
//! udp_floor run ADDR PEER [CORE]     the other end
//! ```

use srd_net::udp::{Destination, Gather, MAX_RUNS, MAX_SEND, ReceiveBatch, ReceiveSocket, SendSocket};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

const PORT: u16 = 17_300;
/// Length of the datagram that ends a phase.
const STOP: usize = 1;
/// Length of the datagram that asks how many bytes have arrived.
const REPORT: usize = 2;
/// Length of the datagram after which the server sleeps between datagrams, or spins again.
const SLEEP_OR_SPIN: usize = 3;
/// Datagrams of this length and longer are counted, not answered.
const COUNTED: usize = 1400;
const ECHO_8K: usize = 1399;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => {
            let cores = std::thread::available_parallelism()?.get();
            let ip: IpAddr = [127, 0, 0, 1].into();
            let server = std::thread::spawn(move || serve(ip, cores - 1));
            run(ip, ip, cores.saturating_sub(2))?;
            server.join().expect("server panicked")
        }
        ["serve", addr] => serve(addr.parse()?, 1),
        ["serve", addr, core] => serve(addr.parse()?, core.parse()?),
        ["run", addr, peer] => run(addr.parse()?, peer.parse()?, 0),
        ["run", addr, peer, core] => run(addr.parse()?, peer.parse()?, core.parse()?),
        _ => Err("usage: udp_floor [serve ADDR [CORE] | run ADDR PEER [CORE]]".into()),
    }
}

struct End {
    receiver: ReceiveSocket,
    sender: SendSocket,
    batch: ReceiveBatch,
    gather: Gather,
    bytes: Vec<u8>,
    peer: Destination,
}

impl End {
    fn open(ip: IpAddr, port: u16, peer: SocketAddr, core: usize) -> Outcome<End> {
        srd_net::confine_thread_to(core)?;
        Ok(End {
            receiver: ReceiveSocket::bind(SocketAddr::new(ip, port), 8 << 20)?,
            sender: SendSocket::bind(ip, 0)?,
            batch: ReceiveBatch::new(),
            gather: Gather::new(),
            bytes: vec![0; MAX_SEND],
            peer: Destination::new(peer),
        })
    }

    /// `lens`: the datagram in pieces.
    fn send(&mut self, lens: &[usize], segment: Option<u16>) -> std::io::Result<()> {
        self.gather.clear();
        for (i, &len) in lens.iter().enumerate() {
            if i % 2 == 0 {
                self.gather.append(len);
            } else {
                // SAFETY: the buffer lives as long as the gather.
                unsafe { self.gather.reference(self.bytes.as_ptr(), len) };
            }
        }
        self.sender.send(&self.peer, &self.gather, segment)
    }
}

fn serve(ip: IpAddr, core: usize) -> Outcome<()> {
    let mut end = End::open(ip, PORT, SocketAddr::new(ip, PORT + 1), core)?;
    let (mut bytes, mut runs, mut sleeping) = (0u64, 0u64, false);
    loop {
        if sleeping {
            sleep_until_readable(&end.receiver);
        }
        let got = end.batch.receive(&end.receiver, MAX_RUNS)?;
        let mut answers = Vec::new();
        for i in 0..got {
            let Some(run) = end.batch.run(i) else { continue };
            end.peer = Destination::new(SocketAddr::new(run.from.ip(), PORT + 1));
            match run.bytes.len() {
                STOP => return Ok(()),
                SLEEP_OR_SPIN => sleeping = !sleeping,
                REPORT => answers.push(REPORT),
                _ if run.segment >= COUNTED => {
                    bytes += run.bytes.len() as u64;
                    runs += 1;
                }
                len => answers.push(len),
            }
        }
        for len in answers {
            if len == REPORT {
                end.gather.clear();
                let report = end.gather.append(16);
                report[..8].copy_from_slice(&bytes.to_ne_bytes());
                report[8..].copy_from_slice(&runs.to_ne_bytes());
                end.sender.send(&end.peer, &end.gather, None)?;
                (bytes, runs) = (0, 0);
            } else {
                end.send(&[len], None)?;
            }
        }
    }
}

fn run(ip: IpAddr, peer: IpAddr, core: usize) -> Outcome<()> {
    let mut end = End::open(ip, PORT + 1, SocketAddr::new(peer, PORT), core)?;
    std::thread::sleep(Duration::from_millis(100));
    for (name, len, most) in [
        ("80 B, recvmsg", 80, 1),
        ("80 B, recvmmsg", 80, MAX_RUNS),
        ("80 B, recvmsg again", 80, 1),
        ("80 B, recvmmsg again", 80, MAX_RUNS),
        ("1399 B", ECHO_8K, 1),
    ] {
        let (p50, p99) = ping_pong(&mut end, len, most, false)?;
        println!("half round trip, {name}: p50 {p50:.2} us, p99 {p99:.2} us");
    }
    end.send(&[SLEEP_OR_SPIN], None)?;
    let (p50, p99) = ping_pong(&mut end, 80, 1, true)?;
    println!("half round trip, 80 B, both ends sleep: p50 {p50:.2} us, p99 {p99:.2} us");
    end.send(&[SLEEP_OR_SPIN], None)?;
    cost_of_calls(&mut end)?;
    for segment in [1472usize, 8972] {
        for count in [1, 4, 16, 44] {
            let count = count.min(MAX_SEND / segment);
            bandwidth(&mut end, segment, count)?;
        }
    }
    end.send(&[STOP], None)?;
    Ok(())
}

fn sleep_until_readable(socket: &ReceiveSocket) {
    let mut poll = libc::pollfd { fd: socket.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&mut poll, 1, 1000) };
}

fn ping_pong(end: &mut End, len: usize, most: usize, sleeping: bool) -> Outcome<(f64, f64)> {
    let mut samples = Vec::new();
    for _ in 0..30_000 {
        let start = Instant::now();
        end.send(&[len], None)?;
        if sleeping {
            sleep_until_readable(&end.receiver);
        }
        let mut asked = start;
        while end.batch.receive(&end.receiver, most)? == 0 {
            if start.elapsed() > Duration::from_secs(10) {
                return Err("no answer".into());
            }
            // Lost, or the other end has no core for so long.
            if asked.elapsed() > Duration::from_secs(1) {
                asked = Instant::now();
                end.send(&[len], None)?;
            }
        }
        samples.push(start.elapsed().as_nanos() as f64 / 2e3);
    }
    samples.drain(..5000);
    samples.sort_by(f64::total_cmp);
    Ok((samples[samples.len() / 2], samples[samples.len() * 99 / 100]))
}

/// Cost of calls that do not get anywhere, and of a send to a port where nobody is.
fn cost_of_calls(end: &mut End) -> Outcome<()> {
    for (name, most) in [("recvmsg", 1), ("recvmmsg", MAX_RUNS)] {
        let start = Instant::now();
        for _ in 0..200_000 {
            end.batch.receive(&end.receiver, most)?;
        }
        println!("{name} with nothing there: {:.0} ns", start.elapsed().as_nanos() as f64 / 200e3);
    }
    let start = Instant::now();
    for _ in 0..200_000 {
        std::hint::black_box(Instant::now());
    }
    println!("clock: {:.0} ns", start.elapsed().as_nanos() as f64 / 200e3);
    Ok(())
}

fn bandwidth(end: &mut End, segment: usize, count: usize) -> Outcome<()> {
    let start = Instant::now();
    let mut sent = 0u64;
    let pieces: Vec<usize> = (0..count).flat_map(|_| [64, segment - 64]).collect();
    while start.elapsed() < Duration::from_secs(1) {
        match end.send(&pieces, (count > 1).then_some(segment as u16)) {
            Ok(()) => sent += (segment * count) as u64,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) if e.raw_os_error() == Some(libc::EMSGSIZE) => {
                println!("{count} x {segment} B per send: larger than the MTU");
                return Ok(());
            }
            Err(e) => return Err(format!("{count} x {segment} B: {e}").into()),
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_millis(50));
    end.send(&[REPORT], None)?;
    let asked = Instant::now();
    while end.batch.receive(&end.receiver, 1)? == 0 {
        if asked.elapsed() > Duration::from_secs(1) {
            return Err("no report".into());
        }
    }
    let report = end.batch.run(0).ok_or("no run")?.bytes;
    let number = |i: usize| u64::from_ne_bytes(report[i * 8..][..8].try_into().unwrap_or_default());
    println!(
        "{count} x {segment} B per send: sent {:.1} Gb/s, received {:.1} Gb/s, {:.0} KB per receive",
        sent as f64 * 8e-9 / elapsed,
        number(0) as f64 * 8e-9 / elapsed,
        number(0) as f64 / 1e3 / number(1).max(1) as f64,
    );
    Ok(())
}
