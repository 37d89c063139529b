//! Two devices with queue pairs and registered memory that send, write and read, while an attacker who hears everything
//! says anything. Nothing brings a device down, no work completes twice, no byte outside a registered region changes;
//! once the attacker is silent every send comes to an end, unless he has said what nobody promises anything against.
#![no_main]

#[path = "../../crates/srd-device/tests/harness/mod.rs"]
mod harness;

use arbitrary::{Result, Unstructured};
use harness::{Fate, Hosts, Net, QKEY, Side, gid, over_the_wire, port, srd, ud};
use libfuzzer_sys::fuzz_target;
use srd_device::*;
use srd_fuzz::forger::Forger;
use srd_fuzz::{data, packet, to_bytes};
use srd_wire::{Body, Nanos, codec};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

const MEMORY: usize = 32 << 10;
const GUARD: usize = 4096;
const MOST_STEPS: u32 = 100_000;

struct World {
    net: Hosts,
    sides: Vec<Side>,
    /// Memory of each host that no key opens.
    guards: Vec<u64>,
    heard: Rc<RefCell<Forger>>,
    lossy: Rc<Cell<bool>>,
    may_be_blocked: bool,
    sends: HashSet<u64>,
    receives: HashSet<u64>,
    next: u64,
}

impl World {
    fn new(u: &mut Unstructured<'_>) -> Result<World> {
        let mut config = DeviceConfig::default();
        config.transport.peer_timeout = Nanos::from_millis(*u.choose(&[50, 2000])?);
        config.transport.max_datagram = *u.choose(&[576, 1472, 8972])?;
        config.transport.max_peers = 4;
        config.max_msg = *u.choose(&[512, 8832])?;
        let mut net = Net::new(2, &config, VecMemory::default);
        net.carry = over_the_wire;
        let datagrams = u.ratio(1, 4)?;
        let init: fn(PdId, CqId) -> QpInit = if datagrams { ud } else { srd };
        let (mut sides, mut guards) = (Vec::new(), Vec::new());
        for host in 0..2 {
            guards.push(net.devices[host].memory().allocate(GUARD));
            let addr = net.devices[host].memory().allocate(MEMORY);
            guards.push(net.devices[host].memory().allocate(GUARD));
            let side = net.side(host, addr, MEMORY as u64, init);
            if !datagrams {
                // Nobody may wait for ever for a receive that is not posted.
                net.set_rnr_retry(&side, 3);
            }
            sides.push(side);
        }
        let heard = Rc::new(RefCell::new(Forger::default()));
        let lossy = Rc::new(Cell::new(false));
        let (ears, loses) = (heard.clone(), lossy.clone());
        net.judge = Some(Box::new(move |_, transmit| {
            let packet = transmit.packet.clone().map_payload(|it| it.as_slice().to_vec());
            ears.borrow_mut().hear_packet(&packet, to_bytes(&packet, 0));
            if loses.get() { Fate::Lost } else { Fate::Arrives }
        }));
        let (sends, receives) = (HashSet::new(), HashSet::new());
        Ok(World { net, sides, guards, heard, lossy, may_be_blocked: false, sends, receives, next: 1 })
    }

    fn post(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (from, to) = (u.int_in_range(0..=1)?, u.int_in_range(0..=1)?);
        let (from, to) = (self.sides[from].clone(), self.sides[to].clone());
        self.next += 1;
        let wr_id = self.next;
        let at = u.int_in_range(0..=MEMORY as u64)?;
        let len = *u.choose(&[0, 1, 100, 1500, 9000, 20_000, u32::MAX])?;
        let sges = [Sge { addr: from.addr + at, len, lkey: from.key }];
        if u.ratio(1, 3)? {
            if self.net.devices[from.host].post_recv(from.qpn, &RecvWr { wr_id, sges: &sges }).is_ok() {
                self.receives.insert(wr_id);
            }
            return Ok(());
        }
        let (rkey, addr) = (to.key, to.addr + u.int_in_range(0..=MEMORY as u64)?);
        let op = match u.int_in_range(0..=3)? {
            0 => SendOp::Read { rkey, addr },
            1 => SendOp::Write { rkey, addr, imm: u.arbitrary()? },
            _ => SendOp::Send { imm: u.arbitrary()? },
        };
        let wr = SendWr {
            wr_id,
            op,
            ah: from.ahs[to.host],
            dst_qpn: to.qpn,
            qkey: QKEY,
            data: SendData::Sges(&sges),
        };
        if self.net.devices[from.host].post_send(self.net.now, from.qpn, &wr).is_ok() {
            self.sends.insert(wr_id);
        }
        Ok(())
    }

    fn attack(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let body = if u.arbitrary()? { Body::Data(data(u)?) } else { Body::None };
        let made_up = packet(u, body)?;
        let payload = if let Body::Data(data) = &made_up.body { data.payload.len() } else { 0 };
        let consistent = codec::check(&made_up, payload).is_ok();
        let fresh = if consistent { to_bytes(&made_up, 0) } else { Vec::new() };
        let bytes = self.heard.borrow().forge(u, fresh)?;
        let (to, from) = (u.int_in_range(0..=1)?, u.int_in_range(0..=4)?);
        let read = codec::decode(&bytes);
        let cut = read.is_err();
        let Ok(packet) = read.or_else(|_| codec::decode_cut(&bytes)) else { return Ok(()) };
        self.may_be_blocked |= self.heard.borrow().may_block(&packet, &bytes);
        let packet = packet.map_payload(VecPayload::from);
        let now = self.net.now;
        let received = Received::new(now, gid(from), &packet, bytes.len());
        let received = Received { ce: u.arbitrary()?, cut, ..received };
        self.net.devices[to].handle_packet(now, port(to), received);
        Ok(())
    }

    fn poll(&mut self) {
        for side in &self.sides {
            while let Some(done) = self.net.devices[side.host].poll_cq(side.cq) {
                if done.unsolicited {
                    continue;
                }
                let of = match done.op {
                    CompletionOp::Recv | CompletionOp::RecvRdmaWithImm => &mut self.receives,
                    _ => &mut self.sends,
                };
                assert!(of.remove(&done.wr_id), "completes once: {done:?}");
            }
        }
    }

    /// No byte has changed that no key opens.
    fn check_guards(&mut self) {
        for (i, &guard) in self.guards.iter().enumerate() {
            let bytes = self.net.devices[i / 2].memory().at(guard, GUARD);
            assert!(bytes.iter().all(|&byte| byte == 0), "memory that no key opens is written");
        }
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=10)? {
            0..=2 => self.post(u)?,
            3 => self.lossy.set(u.arbitrary()?),
            4 => {
                let side = &mut self.sides[u.int_in_range(0..=1)?];
                let device = &mut self.net.devices[side.host];
                if device.dereg_mr(side.key).is_ok() {
                    let access = Access {
                        local_write: u.arbitrary()?,
                        remote_read: u.arbitrary()?,
                        remote_write: u.arbitrary()?,
                    };
                    let key = device.reg_mr(side.pd, side.addr, MEMORY as u64, side.addr, access);
                    side.key = key.expect("room for the region that has just gone");
                }
            }
            5 => self.net.settle(Nanos(u.int_in_range(0..=3_000_000_000)?)),
            6 | 7 => _ = self.net.step(),
            _ => self.attack(u)?,
        }
        self.net.flush();
        self.poll();
        self.check_guards();
        Ok(())
    }

    fn end(&mut self) {
        if self.may_be_blocked {
            return;
        }
        self.lossy.set(false);
        let end = self.net.now + Nanos::from_secs(60);
        for _ in 0..MOST_STEPS {
            if self.sends.is_empty() {
                return;
            }
            assert!(self.net.step(), "sends without a completion, and nothing left to do");
            assert!(self.net.now < end, "sends without a completion");
            self.poll();
        }
        panic!("time stands still");
    }
}

fn run(bytes: &[u8]) -> Result<()> {
    let u = &mut Unstructured::new(bytes);
    let mut world = World::new(u)?;
    while !u.is_empty() && world.step(u).is_ok() {}
    world.end();
    world.check_guards();
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = run(bytes);
});
