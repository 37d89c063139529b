//! What lanes cost between two processes: half a round trip, messages per second, bytes per second through the ring and by
//! copies between address spaces.
//!
//! ```text
//! cargo run --release -p srd-shm --example pingpong -- [--cores A,B] [--rounds N] [--dir DIR]
//! ```
//!
//! Both processes poll without rest, so give each a core of its own. To compare: `fi_pingpong -p shm -e rdm -I 100000 -S 8`
//! on two cores, where a transfer is half a round trip as well.

use srd_shm::{Address, Inbox, Lane, Options};
use std::hint::{black_box, spin_loop};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const CHILD: &str = "SRD_SHM_PINGPONG_CHILD";
const LARGE: usize = 4 << 20;

struct Arguments {
    dir: PathBuf,
    cores: Option<(usize, usize)>,
    rounds: u32,
}

fn arguments() -> Result<Arguments, String> {
    let mut found = Arguments { dir: "/dev/shm".into(), cores: None, rounds: 1_000_000 };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().ok_or(format!("{name} needs a value"))?;
        let number = |text: &str| text.parse().map_err(|_| format!("{name}: {text} is no number"));
        match name.as_str() {
            "--dir" => found.dir = value.into(),
            "--rounds" => found.rounds = number(&value)? as u32,
            "--cores" => {
                let (a, b) = value.split_once(',').ok_or("--cores needs two, as in 0,1")?;
                found.cores = Some((number(a)?, number(b)?));
            }
            _ => return Err(format!("unknown: {name}; there are --cores A,B, --rounds N and --dir DIR")),
        }
    }
    Ok(found)
}

/// Keeps the calling thread on one core.
fn stay_on(core: usize) {
    // SAFETY: a set of bits, in which `core` is, if it is one; the kernel reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core.min(libc::CPU_SETSIZE as usize - 1), &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

fn address(of: u32, qpn: u16) -> Address {
    let mut ip = [0; 16];
    ip[12..].copy_from_slice(&of.to_be_bytes());
    Address { ip, port: 0, qpn }
}

/// One side: its post, and the lane to the other.
struct Side {
    post: Inbox,
    lane: Lane,
}

impl Side {
    fn open(dir: &Path, of: u32, own: u16, other: u16) -> Side {
        let post = Inbox::open(dir, address(of, own), 1, Options::default()).expect("a segment");
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match post.connect(address(of, other)) {
                Ok(lane) => return Side { post, lane },
                Err(e) if e.may_pass() && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                Err(e) => panic!("no lane: {e}"),
            }
        }
    }

    fn send(&mut self, parts: &[&[u8]]) {
        let mut spins = 0;
        while let Err(e) = self.lane.send(parts) {
            assert_eq!(e, srd_shm::SendError::Busy);
            self.spin(&mut spins);
        }
    }

    /// Rests for an instant. Ends this process if the other has ended.
    fn spin(&self, spins: &mut u32) {
        spin_loop();
        *spins = spins.wrapping_add(1);
        if spins.is_multiple_of(1 << 20) && !self.lane.peer_alive() {
            eprintln!("pingpong: the other process has ended");
            std::process::exit(1);
        }
    }

    /// Waits for `count` records; answers the last eight bytes of the last one.
    fn take(&mut self, count: u32) -> u64 {
        let (mut left, mut last, mut spins) = (count, 0, 0);
        while left > 0 {
            let taken = self.post.receive(left as usize, |_, bytes| {
                // As a receiver does: every byte is looked at.
                black_box(bytes);
                last = u64::from_le_bytes(bytes[bytes.len() - 8..].try_into().expect("eight bytes"));
            });
            left -= taken.records as u32;
            self.spin(&mut spins);
        }
        last
    }
}

/// As much as a message layer would put before a payload.
const HEADER: [u8; 40] = [1; 40];
const STREAMED: usize = 16 << 10;
/// What one side lends to the other's copies.
const KEY: u32 = 1;

fn child(dir: &Path, of: u32, rounds: u32, core: Option<usize>) {
    core.into_iter().for_each(stay_on);
    let mut side = Side::open(dir, of, 2, 1);
    for _ in 0..rounds {
        let token = side.take(1);
        side.send(&[&HEADER, &token.to_le_bytes()]);
    }
    // A stream of short messages, then of long ones; each is answered at its end.
    let mut into = vec![0u8; STREAMED];
    side.take(rounds);
    side.send(&[&[0; 8]]);
    let (mut left, mut spins) = (rounds / 16, 0);
    while left > 0 {
        let taken = side.post.receive(8, |_, bytes| into[..bytes.len() - 40].copy_from_slice(&bytes[40..]));
        left -= taken.records as u32;
        side.spin(&mut spins);
    }
    side.send(&[&[0; 8]]);
    // Copies: the other side says where.
    let mut here = vec![1u8; LARGE];
    loop {
        let remote = side.take(1);
        if remote == 0 {
            return;
        }
        // SAFETY: all of `here`.
        unsafe { side.lane.read(KEY, remote, here.as_mut_ptr() as u64, LARGE as u64) }.expect("a copy");
        black_box(&here);
        side.send(&[&[0; 8]]);
    }
}

fn percentile(sorted: &[u32], per_mille: usize) -> f64 {
    f64::from(sorted[(sorted.len() - 1) * per_mille / 1000]) / 2.0
}

fn main() {
    let arguments = arguments().unwrap_or_else(|e| {
        eprintln!("pingpong: {e}");
        std::process::exit(2);
    });
    let Arguments { dir, cores, rounds } = arguments;
    if let Ok(parent) = std::env::var(CHILD) {
        return child(&dir, parent.parse().expect("a number"), rounds, cores.map(|(_, b)| b));
    }
    let of = std::process::id();
    let this = std::env::current_exe().expect("this program");
    let mut other = Command::new(this)
        .args(std::env::args().skip(1))
        .env(CHILD, of.to_string())
        .spawn()
        .expect("a second process");
    cores.into_iter().for_each(|(a, _)| stay_on(a));
    let mut side = Side::open(&dir, of, 1, 2);

    let mut took = Vec::with_capacity(rounds as usize);
    let begin = Instant::now();
    for n in 0..u64::from(rounds) {
        let sent = Instant::now();
        side.send(&[&HEADER, &n.to_le_bytes()]);
        assert_eq!(side.take(1), n);
        took.push(sent.elapsed().as_nanos() as u32);
    }
    let mean = begin.elapsed().as_nanos() as f64 / f64::from(rounds) / 2.0;
    took.sort_unstable();
    println!(
        "8 B and a header of 40 B, half a round trip: p50 {:.0} ns, p99 {:.0} ns, mean {mean:.0} ns",
        percentile(&took, 500),
        percentile(&took, 990)
    );

    let begin = Instant::now();
    for n in 0..u64::from(rounds) {
        side.send(&[&HEADER, &n.to_le_bytes()]);
    }
    side.take(1);
    let rate = f64::from(rounds) / begin.elapsed().as_secs_f64() / 1e6;
    println!("8 B and a header of 40 B, one way: {rate:.2} million per second");

    let payload = vec![5u8; STREAMED];
    let begin = Instant::now();
    for _ in 0..rounds / 16 {
        side.send(&[&HEADER, &payload]);
    }
    side.take(1);
    let bytes = (rounds / 16) as f64 * STREAMED as f64;
    println!("16 KiB through the ring: {:.2} GB/s", bytes / begin.elapsed().as_secs_f64() / 1e9);

    let large = vec![7u8; LARGE];
    side.post.loans().lend(KEY);
    let copies = 200.min(rounds);
    let begin = Instant::now();
    for _ in 0..copies {
        side.send(&[&(large.as_ptr() as u64).to_le_bytes()]);
        side.take(1);
    }
    let bytes = f64::from(copies) * LARGE as f64;
    println!("4 MiB by a copy between processes: {:.2} GB/s", bytes / begin.elapsed().as_secs_f64() / 1e9);

    let mut into = vec![1u8; LARGE];
    let begin = Instant::now();
    for _ in 0..copies {
        into.copy_from_slice(black_box(&large));
        black_box(&mut into);
    }
    println!("4 MiB by memcpy in one process: {:.2} GB/s", bytes / begin.elapsed().as_secs_f64() / 1e9);
    side.send(&[&[0; 8]]);
    other.wait().expect("the second process ends");
}
