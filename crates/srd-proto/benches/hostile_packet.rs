//! What a packet costs that somebody sends who means harm: opening (with a key), decoding, refusing and what answer leaves,
//! in memory. `cargo bench -p srd-proto --bench hostile_packet` prints nanoseconds of processor for each kind; with `KIND=NAME` it runs
//! that kind alone, a million times, for a profiler: `valgrind --tool=callgrind` counts the instructions.

#[path = "../tests/harness/count.rs"]
mod count;
#[path = "../../srd-net/tests/support/forger.rs"]
mod forger;
#[path = "../tests/harness/length.rs"]
mod length;

use count::Count;
use forger::{Forger, IN_CLEAR, Kind, SEALED};
use length::Length;
use srd_proto::*;
use srd_wire::seal::{Keyring, Limits, OpenError, Psk};
use srd_wire::*;
use std::hint::black_box;
use std::time::Instant;

const PORT: u16 = 4791;
const GIDS: [Gid; 2] = [Gid([1; 16]), Gid([2; 16])];
/// Different packets of a kind.
const PACKETS: usize = 4096;
/// A hundred thousand a second.
const PERIOD: Nanos = Nanos::from_micros(10);

/// One of two instances that know each other.
struct End {
    endpoint: Endpoint<Length>,
    keyring: Option<Keyring>,
    upper: Count,
    answers: u64,
}

impl End {
    fn new(at: usize, sealed: bool) -> End {
        let incarnation = Incarnation(0x1111_2222_3333_4444 * (at as u64 + 1));
        let config = Config { confirm_first: sealed, ..Config::default() };
        let psk = || Psk::from_bytes(&[7; 32]).expect("a key");
        End {
            endpoint: Endpoint::new(config, incarnation, &[PORT], at as u64),
            keyring: sealed.then(|| Keyring::new(incarnation, psk(), Limits::default())),
            upper: Count { closed: true, ..Count::default() },
            answers: 0,
        }
    }

    /// What leaves now, as datagrams.
    fn transmit(&mut self, now: Time, mut to: impl FnMut(&mut [u8])) {
        let End { endpoint, keyring, answers, .. } = self;
        let mut bytes = [0; 2048];
        while endpoint
            .poll_transmit_with(now, |transmit| {
                let payload = if let Body::Data(data) = &transmit.packet.body { data.payload.0 } else { 0 };
                let plain = codec::encode_header(&transmit.packet, payload, &mut bytes) + payload;
                let len = match keyring {
                    None => plain,
                    Some(keyring) => keyring
                        .seal(transmit.to, transmit.peer_incarnation, &mut bytes, plain)
                        .expect("sealed"),
                };
                *answers += 1;
                to(&mut bytes[..len]);
            })
            .is_some()
        {}
    }

    fn receive(&mut self, now: Time, from: Gid, datagram: &mut [u8]) {
        let bytes = datagram.len();
        let plain = match &mut self.keyring {
            None => &*datagram,
            Some(keyring) => match keyring.open(from, datagram) {
                Ok(opened) => &*opened.packet,
                Err(OpenError::NoContext | OpenError::WrongDestination) => {
                    if let Some(outside) = codec::peek(datagram) {
                        let sender = InstanceAddr { gid: from, port: outside.src_port };
                        self.endpoint.refuse(now, 0, sender, outside.src_tag, outside.dst_tag);
                    }
                    return;
                }
                Err(_) => return,
            },
        };
        if let Ok(packet) = codec::decode(plain) {
            let packet = packet.map_payload(|payload| Length(payload.len()));
            let received = Received::new(now, from, &packet, bytes);
            self.endpoint.handle_packet(now, 0, received, &mut self.upper);
        }
    }
}

/// Two instances that have exchanged a message each.
fn acquainted(sealed: bool) -> ([End; 2], Time) {
    let mut ends = [End::new(0, sealed), End::new(1, sealed)];
    let mut now = Time(1_000_000);
    let route = Route { dst_qpn: Qpn(2), src_qpn: Qpn(2), qkey: Qkey(1) };
    for from in [0, 1] {
        let to = InstanceAddr { gid: GIDS[1 - from], port: PORT };
        let peer = ends[from].endpoint.connect(now, 0, to).expect("room");
        let op = Op::Send { route, imm: None, datagram: false };
        ends[from].endpoint.send(now, peer, Token(1), op, Length(100)).expect("room");
    }
    for _ in 0..1000 {
        for from in [0, 1] {
            let [first, second] = &mut ends;
            let (sender, receiver) = if from == 0 { (first, second) } else { (second, first) };
            sender.transmit(now, |datagram| receiver.receive(now, GIDS[from], datagram));
            now += Nanos::from_micros(5);
            let End { endpoint, upper, .. } = &mut ends[from];
            endpoint.handle_timeout(now, upper);
        }
    }
    assert!(ends.iter().all(|end| end.endpoint.peers().all(|peer| peer.answered)));
    (ends, now)
}

struct Figures {
    ns: f64,
    answers: f64,
    bytes: f64,
}

fn cost(kind: Kind, sealed: bool, rounds: usize) -> Figures {
    let ([_, mut victim], mut now) = acquainted(sealed);
    let mut forger = Forger::new(16, PORT);
    if sealed {
        // Who they are stands in clear in their packets.
        let of = |at: u64| Incarnation(0x1111_2222_3333_4444 * at);
        forger.overheard = vec![(of(2), of(1))];
    }
    let packets: Vec<Vec<u8>> = (0..PACKETS).map(|_| forger.forge(kind)).collect();
    let bytes = packets.iter().map(Vec::len).sum::<usize>() as f64 / PACKETS as f64;
    let mut datagram = [0; 2048];
    let answers = victim.answers;
    let mut times = Vec::new();
    for round in 0..rounds {
        let start = Instant::now();
        for (number, packet) in packets.iter().enumerate() {
            // Half of them from the address of the peer.
            let mut from = GIDS[0];
            if number % 2 == 1 {
                from.0[..8].copy_from_slice(&((round * PACKETS + number) as u64 | 1 << 63).to_be_bytes());
            }
            let len = packet.len();
            datagram[..len].copy_from_slice(packet);
            victim.receive(now, from, black_box(&mut datagram[..len]));
            now += PERIOD;
            victim.transmit(now, |datagram| {
                black_box(datagram);
            });
        }
        times.push(start.elapsed().as_nanos() as f64 / PACKETS as f64);
    }
    let all = (rounds * PACKETS) as f64;
    times.sort_by(f64::total_cmp);
    // The median: others on the machine lengthen some rounds.
    Figures { ns: times[rounds / 2], answers: (victim.answers - answers) as f64 / all, bytes }
}

fn main() {
    let only = std::env::var("KIND").ok();
    let rounds = if only.is_some() { 245 } else { 50 };
    println!("{:>20} {:>8} {:>8} {:>10} {:>9}", "packet", "receiver", "bytes", "ns", "answers");
    for sealed in [false, true] {
        let receiver = if sealed { "sealed" } else { "clear" };
        for kind in IN_CLEAR.into_iter().chain(SEALED) {
            let name = format!("{kind:?}");
            if only.as_ref().is_some_and(|only| *only != name && *only != format!("{name}/{receiver}")) {
                continue;
            }
            let Figures { ns, answers, bytes } = cost(kind, sealed, rounds);
            println!("{name:>20} {receiver:>8} {bytes:>8.0} {ns:>10.0} {answers:>9.3}");
        }
    }
}
