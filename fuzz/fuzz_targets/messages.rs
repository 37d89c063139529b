//! Two endpoints of the messaging layer that send, receive, peek, claim, read, write and work on each other's memory,
//! while a third process, and one that has a lane of shared memory, send them messages of any kind: what was heard,
//! with fields at their edges. Nothing panics, nothing completes twice, no memory changes that is not registered. The
//! first byte 0: the rest is read as a header alone.
#![no_main]

#[path = "../../crates/srd-msg/tests/support/mod.rs"]
#[allow(unused_imports)]
mod support;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use srd_device::{RecvWr, SendData, SendOp, SendWr, Sge};
use srd_fuzz::forger::Forger;
use srd_msg::atomic_ops::{AtomicOp, Datatype};
use srd_msg::*;
use srd_wire::{Body, Nanos, Op};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use support::harness::{Fate, Side, gid, srd};
use support::{ALL_RIGHTS, Cluster, DELIVER, INJECT, REPORT};

/// The host of the attacker, who has a device like everybody.
const ATTACKER: usize = 2;
const BUFFER: usize = 64 << 10;
const GUARD: usize = 4096;
const LONGEST_MESSAGE: u64 = 8192;

struct World {
    cluster: Cluster,
    heard: Rc<RefCell<Forger>>,
    lossy: Rc<Cell<bool>>,
    raw: Side,
    /// By host: memory for messages, the key of a registered region, memory that nobody names (two each).
    buffers: Vec<Iov>,
    keys: Vec<u64>,
    guards: Vec<Iov>,
    /// Operations that have not completed.
    open: HashSet<u64>,
    /// Receives that complete more than once.
    multi: HashSet<u64>,
    claimed: Vec<u64>,
    next: u64,
}

impl World {
    fn new(u: &mut Unstructured<'_>) -> Result<World> {
        let config = Config {
            receive_buffers: 16,
            max_outstanding: *u.choose(&[4, 64])?,
            medium_limit: *u.choose(&[1 << 10, 16 << 10])?,
            eager_ahead: *u.choose(&[0, 4 << 10])?,
            read_bytes: 8 << 10,
            grant_bytes: 4 << 10,
            rendezvous_by_read: u.arbitrary()?,
            unexpected_bytes: 256 << 10,
            ..Config::default()
        };
        let mut device_config = support::device_config();
        device_config.transport.max_datagram = 8972;
        let mut cluster = Cluster::with_device(3, config, device_config);
        let raw = {
            let addr = cluster.net.devices[ATTACKER].memory().allocate(BUFFER);
            cluster.net.side(ATTACKER, addr, BUFFER as u64, srd)
        };
        // The first half is for what it sends, the second for what it is sent.
        let room = Sge { addr: raw.addr + BUFFER as u64 / 2, len: BUFFER as u32 / 2, lkey: raw.key };
        for wr_id in 0..64 {
            let wr = RecvWr { wr_id, sges: &[room] };
            cluster.net.devices[ATTACKER].post_recv(raw.qpn, &wr).expect("room for receives");
        }
        let (mut buffers, mut keys, mut guards) = (Vec::new(), Vec::new(), Vec::new());
        for host in 0..2 {
            guards.push(cluster.room(host, GUARD));
            buffers.push(cluster.room(host, BUFFER));
            let region = cluster.room(host, BUFFER);
            let (_, key) = cluster.register(host, region, Some(7), ALL_RIGHTS);
            keys.push(key);
            guards.push(cluster.room(host, GUARD));
        }
        let heard = Rc::new(RefCell::new(Forger::default()));
        let lossy = Rc::new(Cell::new(false));
        let (ears, loses) = (heard.clone(), lossy.clone());
        cluster.net.judge = Some(Box::new(move |_, transmit| {
            if let Body::Data(data) = &transmit.packet.body
                && matches!(data.op, Op::Send { .. })
                && data.offset == 0
            {
                let message = data.payload.as_slice();
                ears.borrow_mut().hear(message[..message.len().min(512)].to_vec());
            }
            if loses.get() { Fate::Lost } else { Fate::Arrives }
        }));
        let world = World {
            cluster,
            heard,
            lossy,
            raw,
            buffers,
            keys,
            guards,
            open: HashSet::new(),
            multi: HashSet::new(),
            claimed: Vec::new(),
            next: 0,
        };
        Ok(world)
    }

    fn context(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Some bytes of a host's buffer.
    fn some(&self, u: &mut Unstructured<'_>, host: usize) -> Result<Iov> {
        let len = *u.choose(&[0, 8, 64, 1500, 5000, 20_000, 40_000])?;
        Ok(Iov { addr: self.buffers[host].addr + 8 * u.int_in_range(0..=128)?, len })
    }

    fn took(&mut self, context: u64, took: std::result::Result<(), Refused>) {
        if took.is_ok() {
            self.open.insert(context);
        }
    }

    fn matching(u: &mut Unstructured<'_>) -> Result<Match> {
        Ok(if u.arbitrary()? {
            Match::Untagged
        } else {
            Match::Tagged { tag: u.int_in_range(0..=1)?, ignore: *u.choose(&[0, 1, u64::MAX])? }
        })
    }

    fn operate(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let at = u.int_in_range(0..=1)?;
        let other = 1 - at;
        let context = self.context();
        let iov = self.some(u, at)?;
        let flags = *u.choose(&[REPORT, DELIVER, INJECT])?;
        let key = self.keys[other];
        let remote = RemoteIov { addr: 8 * u.int_in_range(0..=8192)?, len: iov.len, key };
        match u.int_in_range(0..=7)? {
            0 | 1 => {
                let to = self.cluster.peer(at, other);
                let tag = if u.arbitrary()? { Some(u.int_in_range(0..=1)?) } else { None };
                let send = Send { to, tag, iov: &[iov], data: u.arbitrary()?, context, flags };
                let took = self.cluster.post_send(at, &send);
                self.took(context, took);
            }
            2..=4 => {
                let from = if u.arbitrary()? { Some(self.cluster.peer(at, other)) } else { None };
                let multi = u.ratio(1, 8)?;
                let claim = !multi && u.ratio(1, 4)?;
                let context = if claim { self.claimed.pop().unwrap_or(context) } else { context };
                let matching = World::matching(u)?;
                let recv = Recv { from, matching, iov: &[iov], context, report: true, multi, claim };
                let took = self.cluster.post(at, &recv);
                if multi && took.is_ok() {
                    self.multi.insert(context);
                }
                self.took(context, took);
            }
            5 => {
                let matching = World::matching(u)?;
                let (claim, discard) = (u.arbitrary()?, u.ratio(1, 4)?);
                let took = self.cluster.peek(at, &Peek { from: None, matching, context, claim, discard });
                if took.is_ok() && claim && !discard {
                    self.claimed.push(context);
                }
                self.took(context, took);
            }
            6 => {
                let to = self.cluster.peer(at, other);
                let (read, data) = (u.arbitrary()?, u.arbitrary()?);
                let data = if read { None } else { data };
                let (local, remote) = (&[iov], &[remote]);
                let took = self.cluster.rma(at, &Rma { to, read, local, remote, data, context, flags });
                self.took(context, took);
            }
            _ => {
                let to = self.cluster.peer(at, other);
                let op = *u.choose(&AtomicOp::ALL)?;
                let operand = [iov];
                let (result, compare): (&[Iov], &[Iov]) =
                    if op.compares() { (&operand, &operand) } else { (&[], &[]) };
                let atomic = Atomic {
                    to,
                    op,
                    datatype: Datatype::Uint64,
                    operand: &operand,
                    compare,
                    result,
                    remote: &[remote],
                    context,
                    flags,
                };
                let took = self.cluster.atomic(at, &atomic);
                self.took(context, took);
            }
        }
        Ok(())
    }

    fn attack(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let fresh: Vec<u8> = u.arbitrary()?;
        let mut message = self.heard.borrow().forge(u, fresh)?;
        // Payload behind the header.
        let longer = *u.choose(&[0, 1, 100, 4000])?;
        message.resize(message.len() + longer, 0x5a);
        message.truncate(LONGEST_MESSAGE as usize);
        let to = u.int_in_range(0..=1)?;
        let len = message.len() as u32;
        if u.arbitrary()? {
            // From its own queue pair, with the key that addresses tell.
            let qkey =
                self.cluster.net.devices[to].query_qp(self.cluster.qpns[to]).expect("it is there").qkey;
            self.cluster.net.devices[ATTACKER]
                .memory()
                .at_mut(self.raw.addr, message.len())
                .copy_from_slice(&message);
            let sges = [Sge { addr: self.raw.addr, len, lkey: self.raw.key }];
            let data = SendData::Sges(if len == 0 { &[] } else { &sges });
            let (ah, dst_qpn) = (self.raw.ahs[to], self.cluster.qpns[to]);
            let wr = SendWr { wr_id: 1000, op: SendOp::Send { imm: None }, ah, dst_qpn, qkey, data };
            let now = self.cluster.net.now;
            let _ = self.cluster.net.devices[ATTACKER].post_send(now, self.raw.qpn, &wr);
            self.cluster.net.flush();
        } else {
            // By a lane: as the other endpoint, or as somebody of the same host.
            let of_the_other = u.arbitrary()?;
            let from = match of_the_other {
                true => (gid(1 - to), self.cluster.qpns[1 - to]),
                false => (gid(ATTACKER), self.raw.qpn),
            };
            let at = self.guards[2 * to];
            let memory = self.cluster.net.devices[to].memory();
            memory
                .at_mut(at.addr, GUARD.min(message.len()))
                .copy_from_slice(&message[..GUARD.min(message.len())]);
            let len = len.min(GUARD as u32);
            let (now, endpoint) = (self.cluster.net.now, self.cluster.endpoints[to]);
            let (domain, device) = (&mut self.cluster.domains[to], &mut self.cluster.net.devices[to]);
            domain.arrived_by_shm(device, now, endpoint, from, at.addr, len);
            device.memory().at_mut(at.addr, GUARD).fill(0);
        }
        Ok(())
    }

    fn poll(&mut self) {
        self.cluster.progress();
        for host in 0..2 {
            while let Some(done) = self.cluster.domains[host].poll_done() {
                let known = done.kind == Kind::RemoteWrite
                    || self.multi.contains(&done.context)
                    || self.open.remove(&done.context);
                assert!(known, "completes once: {done:?}");
            }
        }
        let device = &mut self.cluster.net.devices[ATTACKER];
        while device.poll_cq(self.raw.cq).is_some() {}
        while self.cluster.domains[ATTACKER].poll_done().is_some() {}
        for (i, guard) in self.guards.iter().enumerate() {
            let bytes = self.cluster.net.devices[i / 2].memory().at(guard.addr, GUARD);
            assert!(bytes.iter().all(|&byte| byte == 0), "memory that nobody names is written");
        }
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=12)? {
            0..=4 => self.operate(u)?,
            5 => self.lossy.set(u.ratio(1, 4)?),
            6 => {
                let at = u.int_in_range(0..=1)?;
                let endpoint = self.cluster.endpoints[at];
                let context = u.int_in_range(0..=self.next)?;
                self.cluster.domains[at].cancel(endpoint, context);
            }
            7 => {
                let span = Nanos(*u.choose(&[10_000, 1_000_000, 600_000_000, 3_000_000_000])?);
                self.cluster.settle(span);
            }
            8 => _ = self.cluster.step(),
            _ => self.attack(u)?,
        }
        self.poll();
        Ok(())
    }
}

fn run(bytes: &[u8]) -> Result<()> {
    let u = &mut Unstructured::new(bytes);
    let mut world = World::new(u)?;
    while !u.is_empty() && world.step(u).is_ok() {}
    world.lossy.set(false);
    world.cluster.settle(Nanos::from_millis(10));
    world.poll();
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    match bytes.split_first() {
        Some((0, header)) => srd_msg::fuzz::header(header),
        Some((_, rest)) => _ = run(rest),
        None => {}
    }
});
