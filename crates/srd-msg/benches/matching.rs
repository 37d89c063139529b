//! What a match costs with few and with many others waiting: `cargo bench -p srd-msg --bench matching`.
//!
//! One endpoint gives 8-byte messages to another by a lane, which keeps them until they are wanted: so all of the receiving
//! layer is measured, and nothing below it. Tags are distinct, the source is the same.

use srd_device::{Device, DeviceConfig, HostMemory};
use srd_msg::*;
use srd_wire::{Gid, Incarnation, Qpn, Time};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Instant;

type Letters = Arc<Mutex<Vec<Box<[u8]>>>>;

struct Letterbox(Letters, u32);

impl Lane for Letterbox {
    fn longest(&self) -> usize {
        1 << 16
    }

    fn identity(&self) -> u32 {
        self.1
    }

    fn send(&mut self, _now: Time, parts: &[&[u8]]) -> LaneSend {
        self.0.lock().unwrap().push(parts.concat().into());
        LaneSend::Sent { asleep: false }
    }

    fn can_read(&self) -> bool {
        false
    }

    fn read(&mut self, _: u32, _: u64, _: u64, _: u64) -> bool {
        false
    }

    fn traffic(&self) -> LaneTraffic {
        LaneTraffic::default()
    }
}

struct Side {
    device: Device<HostMemory>,
    domain: Domain<HostMemory>,
    endpoint: EndpointId,
    addr: PeerAddr,
}

const NOW: Time = Time(1_000_000);

fn side(host: u8) -> Side {
    let gid = Gid::from(IpAddr::from([10, 0, 0, host]));
    let config = DeviceConfig::default();
    let port = config.port_base;
    // SAFETY: what is registered and posted here lives to the end.
    let memory = unsafe { HostMemory::new() };
    let mut device = Device::new(config, gid, port, Incarnation(host as u64), 1, memory);
    let mut domain =
        Domain::open(&mut device, Config { unexpected_bytes: 1 << 30, ..Config::default() }).unwrap();
    let qpn: Qpn = device.create_qp(domain.qp_init()).unwrap();
    let number = NonZeroU32::new(0x1234_5678 * host as u32).expect("hosts count from 1");
    let identity = Identity { number, well_known: false };
    let endpoint = domain.open_endpoint(&mut device, NOW, qpn, identity, 0).unwrap();
    Side { device, domain, endpoint, addr: PeerAddr { gid, qpn, key: identity.key() } }
}

impl Side {
    fn peer(&mut self, addr: PeerAddr) -> PeerId {
        self.domain.peer(&mut self.device, self.endpoint, addr).unwrap()
    }

    fn drain(&mut self) -> usize {
        std::iter::from_fn(|| self.domain.poll_done()).filter(|done| done.error.is_none()).count()
    }
}

/// Nanoseconds for each of `n` matches: of messages with waiting receives, and of receives with waiting messages.
fn measure(n: u64, reverse: bool) -> (f64, f64) {
    let (mut a, mut b) = (side(1), side(2));
    let (to_b, to_a) = (a.peer(b.addr), b.peer(a.addr));
    let (letters, replies) = (Letters::default(), Letters::default());
    a.domain.set_lane(
        &mut a.device,
        NOW,
        a.endpoint,
        to_b,
        Some(Box::new(Letterbox(letters.clone(), b.addr.key))),
    );
    b.domain.set_lane(
        &mut b.device,
        NOW,
        b.endpoint,
        to_a,
        Some(Box::new(Letterbox(replies.clone(), a.addr.key))),
    );
    let bytes = [7u8; 8];
    let mut room = [0u8; 8];
    let from = Iov { addr: bytes.as_ptr() as u64, len: 8 };
    let to = Iov { addr: room.as_mut_ptr() as u64, len: 8 };
    let letters_of = |letters: &Letters| std::mem::take(&mut *letters.lock().unwrap());
    let deliver = |to: &mut Side, from: PeerAddr, letter: &[u8]| {
        let (at, len) = (letter.as_ptr() as u64, letter.len() as u32);
        to.domain.arrived_by_shm(&mut to.device, NOW, to.endpoint, (from.gid, from.qpn), at, len);
    };
    let send = |a: &mut Side, tag| {
        let flags = TxFlags { report: false, ..TxFlags::default() };
        let send = Send { to: to_b, tag: Some(tag), iov: &[from], data: None, context: 0, flags };
        a.domain.send(&mut a.device, NOW, a.endpoint, &send).unwrap();
    };
    let receive = |b: &mut Side, tag| {
        let matching = Match::Tagged { tag, ignore: 0 };
        let recv = Recv {
            from: Some(to_a),
            matching,
            iov: &[to],
            context: 0,
            report: true,
            multi: false,
            claim: false,
        };
        b.domain.recv(&mut b.device, NOW, b.endpoint, &recv).unwrap();
    };
    // They say hello, so that the sender knows how much the receiver takes.
    send(&mut a, 0);
    receive(&mut b, 0);
    for _ in 0..2 {
        letters_of(&letters).iter().for_each(|letter| deliver(&mut b, a.addr, letter));
        letters_of(&replies).iter().for_each(|letter| deliver(&mut a, b.addr, letter));
    }
    a.drain();
    b.drain();
    let mut result = (0.0, 0.0);
    for expected in [true, false] {
        for tag in 0..n {
            send(&mut a, tag);
            if !expected {
                letters_of(&letters).iter().for_each(|letter| deliver(&mut b, a.addr, letter));
            }
        }
        a.drain();
        let mut received = 0;
        let tags: Vec<u64> = if reverse { (0..n).rev().collect() } else { (0..n).collect() };
        let ns = if expected {
            tags.iter().for_each(|&tag| receive(&mut b, tag));
            // One behind the other, as a ring has them.
            let letters = letters_of(&letters).concat();
            let began = Instant::now();
            for letter in letters.chunks_exact(letters.len() / n as usize) {
                deliver(&mut b, a.addr, letter);
                received += b.drain();
            }
            began.elapsed()
        } else {
            let began = Instant::now();
            for &tag in &tags {
                receive(&mut b, tag);
                received += b.drain();
            }
            began.elapsed()
        };
        letters_of(&replies).iter().for_each(|letter| deliver(&mut a, b.addr, letter));
        assert_eq!(received, n as usize, "every message is received, in one piece");
        let each = ns.as_nanos() as f64 / n as f64;
        *(if expected { &mut result.0 } else { &mut result.1 }) = each;
    }
    result
}

fn main() {
    println!(
        "{:>8}  {:>28}  {:>28}",
        "waiting", "receives posted, ns a match", "messages waiting, ns a match"
    );
    println!(
        "{:>8}  {:>13} {:>14}  {:>13} {:>14}",
        "", "same order", "reverse order", "same order", "reverse order"
    );
    for n in [10, 100, 1_000, 10_000] {
        // The best of several: others use the machine, too.
        let best = |reverse| {
            (0..(200_000 / n).clamp(5, 2_000))
                .map(|_| measure(n, reverse))
                .fold((f64::MAX, f64::MAX), |best, now| (best.0.min(now.0), best.1.min(now.1)))
        };
        let (same, reverse) = (best(false), best(true));
        println!("{n:>8}  {:>13.0} {:>14.0}  {:>13.0} {:>14.0}", same.0, reverse.0, same.1, reverse.1);
    }
}
