//! Somebody who sends what a [`Forger`] writes, from any address of loopback, while something else goes on.

use super::forger::{Forger, Kind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Different packets of a lane: they are written beforehand.
const PACKETS: usize = 4096;

/// Packets to one address.
pub struct Lane {
    packets: Vec<Vec<u8>>,
    from: Vec<UdpSocket>,
    to: SocketAddr,
}

impl Lane {
    /// From those hosts of loopback, in turn.
    pub fn new(mut forger: Forger, kinds: &[Kind], from: &[IpAddr], to: SocketAddr) -> Lane {
        let packets = (0..PACKETS).map(|_| forger.any(kinds)).collect();
        let from = from.iter().map(|&ip| UdpSocket::bind((ip, 0)).expect("loopback")).collect();
        Lane { packets, from, to }
    }

    fn send(&self, number: usize) {
        // A full buffer loses a packet: there are others.
        let socket = &self.from[number % self.from.len()];
        let _ = socket.send_to(&self.packets[number / self.from.len() % PACKETS], self.to);
    }
}

/// Ends when it is dropped.
pub struct Attack {
    over: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Attack {
    /// So many packets a second, over all `lanes`.
    pub fn start(lanes: Vec<Lane>, rate: u64) -> Attack {
        let (over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, count) = (over.clone(), sent.clone());
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            let (mut number, mut due_then) = (0, 0);
            while !ends.load(Ordering::Relaxed) {
                let due = start.elapsed().as_nanos() as u64 * rate / 1_000_000_000;
                // What could not be sent within 5 ms is not made up for.
                for _ in due_then.max(due.saturating_sub(rate / 200))..due {
                    lanes[number % lanes.len()].send(number / lanes.len());
                    number += 1;
                }
                due_then = due;
                count.store(number as u64, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        Attack { over, sent, thread: Some(thread) }
    }

    /// How many packets have been sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
