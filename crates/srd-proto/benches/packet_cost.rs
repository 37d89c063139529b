//! Cost of the transport per wire packet, in memory: sending, receiving and the share of ACKs together, without
//! payload copies and sockets. `cargo bench -p srd-proto` prints nanoseconds per data packet.

#[path = "../tests/harness/count.rs"]
mod count;
#[path = "../tests/harness/length.rs"]
mod length;

use count::Count;
use length::Length;
use srd_proto::*;
use srd_wire::*;

/// Time that this thread has spent on a processor, in nanoseconds: what others do on the machine does not count.
fn cpu_ns() -> f64 {
    let stat =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with scheduler statistics");
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number of nanoseconds")
}

fn run(size: usize, messages: u64, batch: usize) -> (f64, f64) {
    let config = Config { ack_every: 16, ..Config::default() };
    let gids = [Gid([1; 16]), Gid([2; 16])];
    let addrs = gids.map(|gid| InstanceAddr { gid, port: 1 });
    let mut ends: [Endpoint<Length>; 2] =
        [1, 2].map(|i| Endpoint::new(config.clone(), Incarnation(i), &[1], i));
    let mut sinks = [Count::default(), Count::default()];
    let mut now = Time(1000);
    let route = Route { dst_qpn: Qpn(2), src_qpn: Qpn(2), qkey: Qkey(1) };
    let mut posted = 0;
    let mut packets = 0u64;
    let start = cpu_ns();
    while sinks[0].completed < messages {
        while posted < messages && posted - sinks[0].completed < 64 {
            let peer = ends[0].connect(now, 0, addrs[1]).unwrap();
            let op = Op::Send { route, imm: None, datagram: false };
            ends[0].send(now, peer, Token(posted), op, Length(size)).unwrap();
            posted += 1;
        }
        for from in 0..2 {
            let mut burst = 0;
            let [first, second] = &mut ends;
            let (sender, receiver) = if from == 0 { (first, second) } else { (second, first) };
            let arrival = now + Nanos::from_micros(2);
            while burst < batch
                && sender
                    .poll_transmit_with(now, |transmit| {
                        let sink = &mut sinks[1 - from];
                        let received = Received::new(arrival, gids[from], &transmit.packet, 1472);
                        receiver.handle_packet(arrival, 0, received, sink);
                    })
                    .is_some()
            {
                burst += 1;
            }
            packets += if from == 0 { burst as u64 } else { 0 };
            now += Nanos::from_micros(7);
        }
        for i in 0..2 {
            ends[i].handle_timeout(now, &mut sinks[i]);
        }
    }
    let ns = cpu_ns() - start;
    assert_eq!(ends[0].stats().retrans_pkts, 0);
    (ns / packets as f64, ends[1].stats().tx_pkts as f64 / packets as f64)
}

fn main() {
    for (size, messages) in [(8, 2_000_000), (1400, 1_000_000), (8192, 400_000), (1 << 20, 3_000)] {
        let best = (0..3).map(|_| run(size, messages, 44)).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        println!("{size:>8} B messages: {:6.1} ns per data packet, {:.3} ACK packets each", best.0, best.1);
    }
}
