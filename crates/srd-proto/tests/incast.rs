//! 48 senders into one port of 100 Gb/s, all at the same moment: SRD paper, Figures 2 and 3. One drop-tail queue stands for
//! the fabric; the simulator has the rest.

#[allow(dead_code)] // each test file uses a part of it
mod harness;
use harness::*;
use srd_proto::*;
use srd_wire::*;

const SENDERS: usize = 48;
const LINE: f64 = 12.5; // B/ns
const BASE: Nanos = Nanos::from_micros(12);

fn config(controller: ControllerKind) -> Config {
    Config {
        controller,
        max_datagram: 8972,
        base_rtt: BASE,
        learn_base_rtt: false,
        min_rto: Nanos(3 * BASE.0),
        min_pto: Nanos(2 * BASE.0),
        ack_delay: Nanos::from_micros(2),
        min_window: 1.0 / 64.0,
        ..Config::default()
    }
}

/// Everything to the receiver, host 0, goes through a queue of `capacity` bytes.
fn port(capacity: f64) -> Network {
    let half = Nanos(BASE.0 / 2);
    let mut free = 0.0;
    Box::new(move |now, from, t| {
        if from == 0 {
            return vec![half];
        }
        let (now, takes) = (now.0 as f64, bytes(&t.packet) as f64 / LINE);
        let waits = (free - now).max(0.0);
        if waits * LINE > capacity {
            return vec![];
        }
        free = now + waits + takes;
        vec![half + Nanos((waits + takes) as u64)]
    })
}

/// The last and the first completion, and the share of packets that was retransmitted.
fn incast(config: &Config, capacity: f64, message: usize) -> (Nanos, Nanos, f64) {
    let mut world = World::new(SENDERS + 1, config);
    world.network = port(capacity);
    let start = world.now;
    for sender in 1..=SENDERS {
        world.send(sender, 0, pattern(message, sender as u8));
    }
    world.settle(Nanos::from_secs(1));
    let stats = world.hosts[1..].iter().map(|host| *host.endpoint.stats());
    let (mut sent, mut again) = (0, 0);
    stats.for_each(|stats| (sent, again) = (sent + stats.tx_pkts, again + stats.retrans_pkts));
    let (first, last) = (world.hosts[0].log.received_at[0], *world.hosts[0].log.received_at.last().unwrap());
    (last.since(start), first.since(start), again as f64 / sent as f64)
}

#[test]
fn the_papers_controller_shares_a_port_among_48() {
    // Queues of one bandwidth-delay product and of 1 MB.
    for capacity in [150_000.0, 1_000_000.0] {
        for (message, bound) in [(262_144, 1.15), (524_288, 1.15)] {
            let (last, first, again) = incast(&config(ControllerKind::Paper), capacity, message);
            let ideal = (SENDERS * message) as f64 * 1.007 / LINE + BASE.as_f64();
            let slowdown = last.as_f64() / ideal;
            assert!(
                slowdown < bound,
                "{message} bytes, queue of {capacity}: {slowdown:.3} of ideal, {again:.2} sent again"
            );
            // Without a count of senders the flows are not equal.
            assert!(2 * last.0 < 5 * first.0, "{message} bytes: from {first:?} to {last:?}");
        }
    }
}
