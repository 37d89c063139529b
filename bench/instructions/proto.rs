//! Messages to and fro between two transports in memory, for `make bench-instructions`: each carries the ACK of the one
//! before, nothing is lost, no timer rings that would not ring on a network of 20 us. Arguments: lengths in bytes.

#[path = "../../crates/srd-proto/tests/harness/count.rs"]
mod count;
#[path = "../../crates/srd-proto/tests/harness/length.rs"]
mod length;
mod rounds;

use count::Count;
use length::Length;
use rounds::of_each_length;
use srd_proto::*;
use srd_wire::*;

struct Pair {
    ends: [(Endpoint<Length>, Count); 2],
    now: Time,
}

const WAY: Nanos = Nanos::from_micros(10);
/// As many as leave in one send with the packet that they follow.
const MOST_FOLLOWERS: usize = 43;

fn addr(end: usize) -> InstanceAddr {
    InstanceAddr { gid: Gid([end as u8 + 1; 16]), port: 1 }
}

impl Pair {
    /// Packets that end `from` has to send now, there `WAY` later. Whether there were any.
    fn carry(&mut self, from: usize) -> bool {
        let Pair { ends: [first, second], now } = self;
        let (sender, (receiver, count)) = if from == 0 { (first, second) } else { (second, first) };
        let (now, mut any) = (*now, false);
        while let Some(mut transmit) = sender.0.poll_transmit_with(now, |transmit| transmit) {
            any = true;
            let received = Received::new(now + WAY, addr(from).gid, &transmit.packet, 1472);
            let followed = receiver.handle_packet(now + WAY, 0, received, count);
            sender.0.poll_followers(now, MOST_FOLLOWERS, |followers, payload| {
                let len = usize::from(followers.len);
                let part = |at: u32| payload.slice(at as usize * len, len);
                let taken =
                    if followed { receiver.handle_followers(now + WAY, &followers, part, count) } else { 0 };
                for at in taken..followers.count {
                    let Body::Data(data) = &mut transmit.packet.body else { return };
                    (data.psn, data.offset) = (followers.psn.plus(at), followers.offset + at * len as u32);
                    data.payload = part(at);
                    let received = Received::new(now + WAY, addr(from).gid, &transmit.packet, 1472);
                    receiver.handle_packet(now + WAY, 0, received, count);
                }
            });
        }
        any
    }

    fn timers(&mut self) {
        for (endpoint, count) in &mut self.ends {
            if endpoint.next_timeout() <= self.now {
                endpoint.handle_timeout(self.now, count);
            }
        }
    }
}

/// A message from one end to the other, until it is there.
#[inline(never)]
fn one_message(pair: &mut Pair, from: usize, len: usize) {
    let before = pair.ends[1 - from].1.received;
    let peer = pair.ends[from].0.connect(pair.now, 0, addr(1 - from)).expect("room for a peer");
    let route = Route { dst_qpn: Qpn(2), src_qpn: Qpn(2), qkey: Qkey(1) };
    let op = Op::Send { route, imm: None, datagram: false };
    pair.ends[from].0.send(pair.now, peer, Token(1), op, Length(len)).expect("room for a message");
    while pair.ends[1 - from].1.received == before {
        pair.carry(from);
        pair.now += WAY;
        pair.timers();
        if pair.ends[1 - from].1.received == before {
            pair.carry(1 - from);
            pair.now += WAY;
            pair.timers();
        }
    }
}

fn main() {
    let ends = [0, 1].map(|end| {
        let config = Config { base_rtt: Nanos::from_micros(200), ..Config::default() }; // as srd-net's hosts have it
        let endpoint = Endpoint::new(config, Incarnation(end as u64 + 1), &[1], end as u64);
        (endpoint, Count::default())
    });
    let mut pair = Pair { ends, now: Time(1_000_000) };
    of_each_length(1000, 2000, |message, len| one_message(&mut pair, message % 2, len));
}
