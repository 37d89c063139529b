//! Devices that carry lengths instead of bytes, on a wire with a fixed delay: for what a world is too heavy for.

use crate::node::PORT_BASE;
use srd_device::{
    Access, AhNumber, CqId, Device, DeviceConfig, DeviceError, Length, LengthMemory, PdId, QpInit, QpKind,
    QpModify,
};
use srd_proto::{Payload, Received};
use srd_wire::{Body, Gid, Incarnation, MrKey, Nanos, Packet, Qkey, Qpn, Time, codec};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

/// Queue key of every queue pair here.
pub const QKEY: Qkey = Qkey(0x1111);

/// A device with one of each object.
pub struct End {
    /// The device.
    pub device: Device<LengthMemory>,
    /// Its host.
    pub gid: Gid,
    /// Its protection domain.
    pub pd: PdId,
    /// Its completion queue.
    pub cq: CqId,
    /// A region of 2^40 bytes at address 0, open to everybody.
    pub key: MrKey,
    /// A queue pair.
    pub qpn: Qpn,
}

/// The address of host number `n`.
pub fn gid(n: u32) -> Gid {
    Gid::from(IpAddr::V4(Ipv4Addr::from(0x0a00_0001 + n)))
}

impl End {
    /// Host number `n` with a queue pair that can send and receive.
    pub fn new(n: u32, config: &DeviceConfig) -> Result<End, DeviceError> {
        let incarnation = Incarnation(crate::rng::mix(n as u64 + 1) | 1);
        let gid = gid(n);
        let mut device = Device::new(config.clone(), gid, PORT_BASE, incarnation, n as u64, LengthMemory);
        let pd = device.alloc_pd()?;
        let cq = device.create_cq(8_192)?;
        let access = Access { local_write: true, remote_read: true, remote_write: true };
        let key = device.reg_mr(pd, 0, 1 << 40, 0, access)?;
        let init = QpInit {
            kind: QpKind::Srd,
            pd,
            send_cq: cq,
            recv_cq: cq,
            sq_depth: 512,
            rq_depth: 512,
            send_sge: 2,
            recv_sge: 2,
            inline: 32,
            rdma_read: true,
            rdma_write: true,
            unsolicited_write_recv: false,
        };
        let qpn = device.create_qp(init)?;
        for change in QpModify::to_ready(QKEY, Some(7)) {
            device.modify_qp(Time(0), qpn, change)?;
        }
        Ok(End { device, gid, pd, cq, key, qpn })
    }

    /// An address handle of `host`.
    pub fn handle(&mut self, host: Gid) -> Result<AhNumber, DeviceError> {
        self.device.create_ah(self.pd, host)
    }
}

/// A packet on the wire.
pub struct Flying {
    /// When it arrives.
    pub at: Time,
    /// Who sent it.
    pub from: Gid,
    /// To whom.
    pub to: Gid,
    /// What it says.
    pub packet: Packet<Length>,
    /// Its size.
    pub bytes: usize,
}

/// A wire on which everything takes equally long.
#[derive(Default)]
pub struct Wire {
    /// What is on it, in order.
    pub flying: VecDeque<Flying>,
    /// Packets so far.
    pub packets: u64,
}

/// One way.
pub const DELAY: Nanos = Nanos::from_micros(7);

impl Wire {
    /// Takes everything that `end` wants to send, except what `drop` picks by its number.
    pub fn collect(&mut self, now: Time, end: &mut End, drop: impl Fn(u64) -> bool) {
        while let Some(transmit) = end.device.poll_transmit(now) {
            self.packets += 1;
            if drop(self.packets) {
                continue;
            }
            let payload = match &transmit.packet.body {
                Body::Data(data) => data.payload.len(),
                _ => 0,
            };
            let bytes = codec::header_len(&transmit.packet) + payload.max(transmit.pad_to as usize);
            let (from, to) = (end.gid, transmit.to.gid);
            self.flying.push_back(Flying { at: now + DELAY, from, to, packet: transmit.packet, bytes });
        }
    }

    /// Gives `end` what has arrived for it at the head of the wire. Whether there was anything.
    pub fn deliver(&mut self, now: Time, end: &mut End) -> bool {
        let mut any = false;
        while let Some(first) = self.flying.front()
            && first.at <= now
            && first.to == end.gid
        {
            let Some(packet) = self.flying.pop_front() else { break };
            let received = Received::new(now, packet.from, &packet.packet, packet.bytes);
            end.device.handle_packet(now, PORT_BASE, received);
            any = true;
        }
        any
    }
}
