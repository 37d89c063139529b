//! The same as `proto.rs`, through two devices over the program's memory: post, place, complete.

mod rounds;

use rounds::of_each_length;
use srd_device::*;
use srd_proto::Payload;
use srd_wire::{Body, Gid, Incarnation, Nanos, Qkey, Qpn, Status, Time};

const QKEY: Qkey = Qkey(7);
const WAY: Nanos = Nanos::from_micros(10);
/// As many as leave in one send with the packet that they follow.
const MOST_FOLLOWERS: usize = 43;
/// What a device takes in one message.
const LONGEST: usize = 8192;

struct Side {
    device: Device<HostMemory>,
    cq: CqId,
    qpn: Qpn,
    ah: AhNumber,
    piece: Sge,
}

struct Pair {
    sides: [Side; 2],
    now: Time,
}

fn gid(side: usize) -> Gid {
    Gid::from(std::net::IpAddr::from([10, 0, 0, side as u8 + 1]))
}

impl Side {
    fn new(side: usize, memory: &mut [u8]) -> Side {
        let mut config = DeviceConfig::default();
        config.transport.base_rtt = Nanos::from_micros(200); // as srd-net's hosts have it
        let port = config.port_base + side as u16;
        let incarnation = Incarnation(0x1234_5678_9ABC_DEF0 + side as u64);
        // SAFETY: the memory outlives the device, and nobody else refers to it meanwhile.
        let store = unsafe { HostMemory::new() };
        let mut device = Device::new(config, gid(side), port, incarnation, side as u64, store);
        let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(4096).unwrap());
        let access = Access { local_write: true, ..Access::default() };
        let addr = memory.as_mut_ptr() as u64;
        let lkey = device.reg_mr(pd, addr, memory.len() as u64, addr, access).unwrap();
        let ah = device.create_ah(pd, gid(1 - side)).unwrap();
        let init = QpInit {
            kind: QpKind::Srd,
            pd,
            send_cq: cq,
            recv_cq: cq,
            sq_depth: 64,
            rq_depth: 64,
            send_sge: 2,
            recv_sge: 2,
            inline: 0,
            rdma_read: false,
            rdma_write: false,
            unsolicited_write_recv: false,
        };
        let qpn = device.create_qp(init).unwrap();
        for change in QpModify::to_ready(QKEY, None) {
            device.modify_qp(Time(1_000_000), qpn, change).unwrap();
        }
        Side { device, cq, qpn, ah, piece: Sge { addr, len: 0, lkey } }
    }

    /// Takes what has completed. How many receives were among it.
    fn complete(&mut self) -> usize {
        let mut received = 0;
        while let Some(done) = self.device.poll_cq(self.cq) {
            assert_eq!(done.status, Status::Ok);
            received += (done.wr_id == 1) as usize;
        }
        received
    }
}

impl Pair {
    fn carry(&mut self, from: usize) {
        let Pair { sides: [first, second], now } = self;
        let (sender, receiver) = if from == 0 { (first, second) } else { (second, first) };
        let now = *now;
        while let Some(mut transmit) = sender.device.poll_transmit_with(now, |transmit| transmit) {
            let port = transmit.to.port;
            let received = Received::new(now + WAY, gid(from), &transmit.packet, 1472);
            let followed = receiver.device.handle_packet(now + WAY, port, received);
            sender.device.poll_followers(now, MOST_FOLLOWERS, |followers, payload| {
                let len = usize::from(followers.len);
                let part = |at: u32| payload.slice(at as usize * len, len);
                let taken =
                    if followed { receiver.device.handle_followers(now + WAY, &followers, part) } else { 0 };
                for at in taken..followers.count {
                    let Body::Data(data) = &mut transmit.packet.body else { return };
                    (data.psn, data.offset) = (followers.psn.plus(at), followers.offset + at * len as u32);
                    data.payload = part(at);
                    let received = Received::new(now + WAY, gid(from), &transmit.packet, 1472);
                    receiver.device.handle_packet(now + WAY, port, received);
                }
            });
        }
    }

    fn wait(&mut self) {
        self.now += WAY;
        for side in &mut self.sides {
            if side.device.next_timeout() <= self.now {
                side.device.handle_timeout(self.now);
            }
        }
    }
}

/// A message from one side to the other, until its receive has completed. A long one is several of the device's.
#[inline(never)]
fn one_message(pair: &mut Pair, from: usize, len: usize) {
    let now = pair.now;
    for begin in (0..len).step_by(LONGEST) {
        let len = (len - begin).min(LONGEST) as u32;
        let to = &mut pair.sides[1 - from];
        let room = [Sge { len, ..to.piece }];
        to.device.post_recv(to.qpn, &RecvWr { wr_id: 1, sges: &room }).unwrap();
        let dst_qpn = to.qpn;
        let side = &mut pair.sides[from];
        let piece = [Sge { len, ..side.piece }];
        let (op, data) = (SendOp::Send { imm: None }, SendData::Sges(&piece));
        let wr = SendWr { wr_id: 2, op, ah: side.ah, dst_qpn, qkey: QKEY, data };
        side.device.post_send(now, side.qpn, &wr).unwrap();
    }
    let mut missing = len.div_ceil(LONGEST);
    while missing > 0 {
        pair.carry(from);
        pair.wait();
        missing -= pair.sides[1 - from].complete();
        if missing > 0 {
            pair.carry(1 - from);
            pair.wait();
            pair.sides[from].complete();
        }
    }
    pair.sides[from].complete();
}

fn main() {
    let mut memory = [vec![1; LONGEST], vec![2; LONGEST]];
    let [first, second] = &mut memory;
    let sides = [Side::new(0, first), Side::new(1, second)];
    let mut pair = Pair { sides, now: Time(1_000_000) };
    of_each_length(1000, 2000, |message, len| one_message(&mut pair, message % 2, len));
}
