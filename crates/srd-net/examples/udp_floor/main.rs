//! What raw UDP sockets do here, with the calls that this crate makes and nothing above them: the floor that the
//! transport is compared with.
//!
//! ```text
//! udp_floor                          both ends in this process, over loopback, on the last two cores
//! udp_floor serve ADDR [CORE]        one end
//! udp_floor run ADDR PEER [CORE]     the other end
//! ```
//!
//! It also measures what this crate does otherwise than one might: `recvmmsg` for `recvmsg`, sockets in an epoll set,
//! sockets without our options, and those connected.

mod plain;

use srd_net::udp::{Destination, Gather, MAX_RUNS, MAX_SEND, ReceiveBatch, ReceiveSocket, SendSocket};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The server's port; the client's is the next one. The two after those are for plain sockets.
const PORT: u16 = 17_300;
/// Length of the datagram that ends a phase.
const STOP: usize = 1;
/// Length of the datagram that asks how many bytes have arrived.
const REPORT: usize = 2;
/// Length of the datagram after which the server sleeps between datagrams, or spins again.
const SLEEP_OR_SPIN: usize = 3;
/// Length of the datagram after which the server's socket is in an epoll set, or no more.
const IN_EPOLL_SET: usize = 4;
/// Length of the datagram after which the server answers on a plain socket, until [`STOP`] comes there.
const PLAIN: usize = 5;
/// The same, and that socket is connected.
const CONNECTED: usize = 6;
/// Datagrams of this length and longer are counted, not answered.
const COUNTED: usize = 1400;
const LONGEST_ECHO: usize = COUNTED - 1;
/// Length of a small packet of ours: a header and 8 bytes.
const SMALL: usize = 80;
/// Latencies are medians of so many rounds, in which all ways take turns.
const ROUNDS: usize = 15;

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
    epoll_set: Option<OwnedFd>,
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
            epoll_set: None,
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

    /// Puts the receiving socket into an epoll set, or takes it out.
    fn toggle_epoll_set(&mut self) -> std::io::Result<()> {
        self.epoll_set = match self.epoll_set.take() {
            Some(_) => None,
            None => Some(epoll_set(self.receiver.as_fd().as_raw_fd())?),
        };
        Ok(())
    }

    /// Sends one datagram and waits for its echo.
    fn exchange(&mut self, len: usize, most: usize, sleeping: bool) -> Outcome<()> {
        let start = Instant::now();
        self.send(&[len], None)?;
        if sleeping {
            sleep_until_readable(&self.receiver);
        }
        let mut asked = start;
        while self.batch.receive(&self.receiver, most)? == 0 {
            if start.elapsed() > Duration::from_secs(10) {
                return Err("no answer".into());
            }
            // Lost, or the other end has no core for so long.
            if asked.elapsed() > Duration::from_secs(1) {
                asked = Instant::now();
                self.send(&[len], None)?;
            }
        }
        Ok(())
    }
}

fn epoll_set(member: i32) -> std::io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and belongs to nobody else.
    let set = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: one event.
    match unsafe { libc::epoll_ctl(fd, libc::EPOLL_CTL_ADD, member, &mut event) } {
        0 => Ok(set),
        _ => Err(std::io::Error::last_os_error()),
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
                IN_EPOLL_SET => end.toggle_epoll_set()?,
                len @ (PLAIN | CONNECTED) => {
                    let client = SocketAddr::new(run.from.ip(), PORT + 3);
                    plain::echo(SocketAddr::new(ip, PORT + 2), (len == CONNECTED).then_some(client))?;
                }
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
    latencies(&mut end, SocketAddr::new(ip, PORT + 3), SocketAddr::new(peer, PORT + 2))?;
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

/// A way of exchanging datagrams.
#[derive(Clone, Copy)]
enum Way {
    /// Length, and most runs of one receiving call.
    Spin(usize, usize),
    /// The sockets of both ends are in an epoll set, on which nobody sleeps.
    InEpollSet,
    /// Both ends sleep until something comes.
    Sleep,
    /// One plain socket at each end for both directions; connected, if this says so.
    Plain(bool),
}

/// `plain` and `plain_peer`: addresses of the plain sockets.
fn latencies(end: &mut End, plain: SocketAddr, plain_peer: SocketAddr) -> Outcome<()> {
    let ways = [
        ("80 B, recvmsg", Way::Spin(SMALL, 1)),
        ("80 B, recvmmsg", Way::Spin(SMALL, MAX_RUNS)),
        ("80 B, recvmsg, sockets in an epoll set", Way::InEpollSet),
        ("80 B, plain sockets", Way::Plain(false)),
        ("80 B, plain sockets, connected", Way::Plain(true)),
        ("80 B, both ends sleep", Way::Sleep),
        ("1399 B, recvmsg", Way::Spin(LONGEST_ECHO, 1)),
    ];
    let mut measured = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for (figures, &(_, way)) in measured.iter_mut().zip(&ways) {
            figures.push(measure(end, plain, plain_peer, way)?);
        }
    }
    println!("half round trip, medians of {ROUNDS} rounds:");
    for (figures, (name, _)) in measured.iter().zip(&ways) {
        let middle = |figure: fn(&(f64, f64)) -> f64| {
            let mut all: Vec<f64> = figures.iter().map(figure).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        println!("  {name}: p50 {:.2} us, p99 {:.2} us", middle(|f| f.0), middle(|f| f.1));
    }
    Ok(())
}

/// Median and 99th percentile of half a round trip in microseconds.
fn measure(end: &mut End, plain: SocketAddr, plain_peer: SocketAddr, way: Way) -> Outcome<(f64, f64)> {
    match way {
        Way::Spin(len, most) => ping_pong(|| end.exchange(len, most, false)),
        Way::Sleep => {
            end.send(&[SLEEP_OR_SPIN], None)?;
            let figures = ping_pong(|| end.exchange(SMALL, 1, true));
            end.send(&[SLEEP_OR_SPIN], None)?;
            figures
        }
        Way::InEpollSet => {
            end.toggle_epoll_set()?;
            end.send(&[IN_EPOLL_SET], None)?;
            let figures = ping_pong(|| end.exchange(SMALL, 1, false));
            end.send(&[IN_EPOLL_SET], None)?;
            end.toggle_epoll_set()?;
            figures
        }
        Way::Plain(connected) => {
            end.send(&[if connected { CONNECTED } else { PLAIN }], None)?;
            std::thread::sleep(Duration::from_millis(10));
            let mut socket = plain::Plain::open(plain, plain_peer, connected)?;
            let figures = ping_pong(|| socket.exchange(SMALL));
            socket.send(STOP)?;
            figures
        }
    }
}

fn ping_pong(mut exchange: impl FnMut() -> Outcome<()>) -> Outcome<(f64, f64)> {
    let mut samples = Vec::new();
    for _ in 0..12_000 {
        let start = Instant::now();
        exchange()?;
        samples.push(start.elapsed().as_nanos() as f64 / 2e3);
    }
    samples.drain(..2000);
    samples.sort_by(f64::total_cmp);
    Ok((samples[samples.len() / 2], samples[samples.len() * 99 / 100]))
}

fn sleep_until_readable(socket: &ReceiveSocket) {
    let mut poll = libc::pollfd { fd: socket.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&mut poll, 1, 1000) };
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
