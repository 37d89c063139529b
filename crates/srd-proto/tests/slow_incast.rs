//! 48 hosts of a slow network, where one packet takes half as long to send as an idle round trip takes, into one of them.

#[allow(dead_code)] // each test file uses a part of it
mod harness;
use harness::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_wire::*;
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

const SENDERS: usize = 48;
const LINE: BitRate = BitRate(100_000_000);
const FRAMES: u64 = 14 + 28;

/// Transmissions that have been cut: their sender, and what of them is like no other's.
type Cuts = Rc<RefCell<HashSet<(usize, Psn, u8)>>>;

/// A packet's name among those.
fn name(from: usize, packet: &Packet<Bytes>) -> Option<(usize, Psn, u8)> {
    match &packet.body {
        Body::Data(data) => Some((from, data.psn, data.tx_count)),
        _ => None,
    }
}

/// Everything to host 0 waits for its link, in a queue of `capacity` bytes; the rest of the way takes three more packet times, and
/// hosts up to `late` to look. What the queue has no room for is lost, or, with `cuts`, its headers pass at once.
fn port(capacity: u64, late: Nanos, seed: u64, cuts: Option<Cuts>) -> Network {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut free = Time(0);
    Box::new(move |now, from, t| {
        let size = bytes(&t.packet) as u64 + FRAMES;
        let way = Nanos(60_000 + 3 * LINE.time_for(size).0 + rng.random_range(0..=late.0));
        if from == 0 {
            return vec![way + LINE.time_for(size)];
        }
        let begins = free.max(now);
        if LINE.bytes_in(begins.since(now)) > capacity {
            let Some((cuts, name)) = cuts.as_ref().zip(name(from, &t.packet)) else { return vec![] };
            cuts.borrow_mut().insert(name);
            let headers = LINE.time_for(FRAMES + 128);
            free += headers;
            return vec![way + headers];
        }
        free = begins + LINE.time_for(size);
        vec![free.since(now) + way]
    })
}

/// The last arrival by the ideal (all bytes in full frames of TCP through the link), and the share of packets that was retransmitted.
fn incast(message: usize, capacity: u64, late_us: u64, trims: bool) -> (f64, f64) {
    let mut world = World::new(SENDERS + 1, &host_config(LINE, true));
    let cuts = Cuts::default();
    world.network = port(capacity, Nanos::from_micros(late_us), 1, trims.then(|| cuts.clone()));
    world.cuts =
        Box::new(move |from, packet| name(from, packet).is_some_and(|name| cuts.borrow_mut().remove(&name)));
    let start = world.now;
    for sender in 1..=SENDERS {
        for piece in pattern(message, sender as u8).chunks(6 * 1406) {
            world.send(sender, 0, piece.to_vec());
        }
    }
    world.settle(Nanos::from_secs(60));
    let stats = world.hosts[1..].iter().map(|host| *host.endpoint.stats());
    let (mut sent, mut again) = (0, 0);
    stats.for_each(|stats| (sent, again) = (sent + stats.tx_pkts, again + stats.retrans_pkts));
    let last = world.hosts[0].log.received_at.last().expect("all is there").since(start);
    let ideal = (SENDERS * message) as f64 / 1448.0 * 1514.0 * 8e9 / LINE.0 as f64;
    (last.as_f64() / ideal, again as f64 / sent as f64)
}

#[test]
fn the_link_stays_busy_and_little_is_lost_although_a_packet_of_each_is_more_than_the_queue_holds() {
    for (message, capacity, late_us, bound, most_again) in [
        (20_000, 150_000, 100, 1.2, 0.1),
        (200_000, 150_000, 100, 1.05, 0.03),
        (2_000_000, 150_000, 100, 1.04, 0.01),
        (20_000, 45_000, 100, 1.3, 0.15),
        (200_000, 45_000, 100, 1.05, 0.05),
        (200_000, 45_000, 400, 1.05, 0.05),
        (2_000_000, 45_000, 0, 1.04, 0.01),
        (2_000_000, 45_000, 100, 1.04, 0.01),
    ] {
        for trims in [false, true] {
            let (last, again) = incast(message, capacity, late_us, trims);
            // Cut packets are sent again sooner, while the queue is longer.
            let most_again = if trims { 1.5 * most_again } else { most_again };
            let what =
                format!("{message} bytes, queue of {capacity} that trims: {trims}, hosts {late_us} us late");
            println!("{what}: {last:.3} of ideal, {again:.3} sent again");
            assert!(last < bound && again < most_again, "{what}: {last:.3} of ideal, {again:.3} sent again");
        }
    }
}
