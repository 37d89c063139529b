//! Fabrics of namespaces: what a lab is made of, what faults do to packets, what is left behind (nothing), what is refused.
//!
//! These tests need root and namespaces; for others they are skipped.

#[path = "lab/experiment.rs"]
mod experiment;
#[path = "lab/fabric.rs"]
mod fabric;
#[path = "lab/faults.rs"]
mod faults;
#[path = "lab/jobs.rs"]
mod jobs;
#[path = "lab/lifetime.rs"]
mod lifetime;
#[path = "../../srd-net/tests/support/skip.rs"]
mod skip;

use srd_lab::{Error, Lab, LinkStatus, Shape};
use std::io::ErrorKind;
use std::net::{SocketAddrV4, UdpSocket};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest that a test waits for what must come, on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long one waits for what must not come, once all that can come has.
const SILENCE: Duration = Duration::from_millis(200);
const PORT: u16 = 7000;

/// A lab of this test's own, removed when dropped.
struct Fabric(Lab);

impl Fabric {
    /// Nothing if this machine allows no namespaces.
    fn up(shape: Shape) -> Option<Fabric> {
        match Lab::up(&name(), &shape) {
            Ok(lab) => Some(Fabric(lab)),
            Err(error @ Error::NotPermitted { .. }) => {
                skip::skip(error);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Two leaves of two hosts, two spines: hosts 0 and 1 are on one leaf, 2 and 3 on the other.
    fn small() -> Option<Fabric> {
        Fabric::up(small())
    }

    /// A socket in a host, at an address of its own.
    fn socket(&self, host: usize, port: u16) -> UdpSocket {
        let host = &self.0.hosts()[host];
        let namespace = std::fs::File::open(format!("/run/netns/{}", host.namespace)).unwrap();
        let address = host.fabric_address;
        // A socket stays in the namespace in which it was made; a thread leaves it by ending.
        let make = move || {
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let began = Instant::now();
            loop {
                match UdpSocket::bind((address, port)) {
                    // A socket that has been closed lives on for a moment in what other tests start, until that is another program.
                    Err(error) if error.kind() == ErrorKind::AddrInUse && began.elapsed() < PATIENCE => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    result => break result.unwrap(),
                }
            }
        };
        std::thread::spawn(make).join().unwrap()
    }

    fn address(&self, host: usize) -> SocketAddrV4 {
        SocketAddrV4::new(self.0.hosts()[host].fabric_address, PORT)
    }

    fn link(&self, name: &str) -> LinkStatus {
        self.0.status().unwrap().links.into_iter().find(|link| link.name == name).unwrap()
    }

    fn packets(&self, name: &str) -> u64 {
        self.link(name).counters.packets
    }

    /// How many packets the only fault has met.
    fn met(&self) -> u64 {
        self.0.status().unwrap().faults[0].packets.unwrap()
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        match Lab::remove(self.0.name()) {
            Ok(_) | Err(Error::NoSuchLab { .. }) => {} // some tests remove it themselves
            Err(error) => eprintln!("{error}"),
        }
    }
}

fn small() -> Shape {
    Shape { leaves: 2, hosts_per_leaf: 2, spines: Some(2), ..Shape::default() }
}

/// A name that no other test has.
fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("srdtest{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn srd(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.arg("lab").args(arguments);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// Sends numbered packets of some size, a moment apart, so that no queue overflows.
fn send(from: &UdpSocket, to: SocketAddrV4, count: u32, bytes: usize) {
    for number in 0..count {
        let mut packet = vec![0xa5; bytes];
        packet[..4].copy_from_slice(&number.to_be_bytes());
        from.send_to(&packet, to).unwrap();
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Everything that comes, until nothing has come for a while: numbers and contents.
fn receive(socket: &UdpSocket, silence: Duration) -> Vec<(u32, Vec<u8>)> {
    socket.set_read_timeout(Some(silence)).unwrap();
    let (mut all, mut buffer) = (Vec::new(), [0; 2000]);
    while let Ok(length) = socket.recv(&mut buffer) {
        all.push((u32::from_be_bytes(buffer[..4].try_into().unwrap()), buffer[..length].to_vec()));
    }
    all
}

/// Waits for something that must come.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends from one socket to another, and what comes there. Received at the same time: a socket's buffer holds only some 250
/// packets.
fn exchange(
    from: &UdpSocket,
    to: &UdpSocket,
    address: SocketAddrV4,
    count: u32,
    bytes: usize,
) -> Vec<(u32, Vec<u8>)> {
    let sent = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut all = Vec::new();
            loop {
                let is_last = sent.load(Ordering::Acquire);
                all.extend(receive(to, SILENCE));
                if is_last {
                    return all;
                }
            }
        });
        send(from, address, count, bytes);
        sent.store(true, Ordering::Release);
        receiver.join().unwrap()
    })
}

/// Sends from host 0 to host 2, and what comes there.
fn crossing(fabric: &Fabric, count: u32) -> Vec<(u32, Vec<u8>)> {
    exchange(&fabric.socket(0, 0), &fabric.socket(2, PORT), fabric.address(2), count, 100)
}
