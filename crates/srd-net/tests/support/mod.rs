//! A host with one queue pair, for tests.
#![allow(dead_code)]

pub mod attack;
pub mod forger;
pub mod keys;
pub mod memory;
pub mod traffic;

use srd_device::{
    Access, AhNumber, Completion, CqId, PdId, QpInit, QpKind, QpModify, RecvWr, SendData, SendOp, SendWr, Sge,
};
use srd_net::{Buffer, Instance, Options};
use srd_wire::{Gid, Incarnation, InstanceAddr, MrKey, Qkey, Qpn, Status};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const QKEY: Qkey = Qkey(0x1234);
/// Nothing on one machine takes this long.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Host {
    // In this order: the instance ends before the memory goes.
    pub instance: Arc<Instance>,
    pub pd: PdId,
    pub cq: CqId,
    pub qpn: Qpn,
    pub key: MrKey,
    pub buffer: Arc<Buffer>,
    handles: HashMap<Gid, AhNumber>,
}

/// The counters that an instance at `address` gives to whoever asks.
pub fn counters_of(address: InstanceAddr) -> Option<serde_json::Value> {
    let asked = srd_net::stats_directory::ask_all();
    let ours = asked.into_iter().filter(|asked| asked.pid == std::process::id());
    ours.filter_map(|mut asked| {
        let answer = asked.read(Instant::now() + PATIENCE).ok()?;
        Some(serde_json::from_slice(&answer).expect("JSON"))
    })
    .find(|counters: &serde_json::Value| counters["address"] == address.to_string())
}

/// Options of a host at `addr`, with variables added: `"SRD_FAULT=loss=0.1"`.
pub fn options(addr: &str, variables: &[&str]) -> Options {
    let variables = variables.iter().map(|text| text.split_once('=').expect("NAME=VALUE"));
    let all = [("SRD_ADDR", addr)].into_iter().chain(variables);
    let (options, warnings) =
        Options::from_vars(all.map(|(name, value)| (name.into(), value.into()))).unwrap();
    assert_eq!(warnings, []);
    options
}

impl Host {
    pub fn open(addr: &str, variables: &[&str]) -> Host {
        Host::with_options(&options(addr, variables))
    }

    pub fn with_options(options: &Options) -> Host {
        let instance = Instance::open_separate(options).unwrap_or_else(|e| panic!("{e}"));
        let buffer = Arc::new(Buffer::new(1 << 20));
        let (pd, cq, key) = instance
            .with(|device, _| {
                let pd = device.alloc_pd().unwrap();
                let access = Access { local_write: true, remote_read: true, remote_write: true };
                let key =
                    device.reg_mr(pd, buffer.addr(), buffer.len() as u64, buffer.addr(), access).unwrap();
                (pd, device.create_cq(4096).unwrap(), key)
            })
            .unwrap();
        let qpn = new_qp(&instance, pd, cq);
        Host { instance, pd, cq, qpn, key, buffer, handles: HashMap::new() }
    }

    /// A region whose memory has gone: nothing is mapped below vm.mmap_min_addr.
    pub fn gone(&self) -> Sge {
        let access = Access { local_write: true, remote_read: true, remote_write: true };
        let (addr, len) = (4096, 1 << 15);
        let key = self.instance.with(|device, _| device.reg_mr(self.pd, addr, len as u64, addr, access));
        Sge { addr, len, lkey: key.expect("not forked").expect("a region") }
    }

    pub fn gid(&self) -> Gid {
        self.instance.gid()
    }

    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge { addr: self.buffer.addr() + offset as u64, len: len as u32, lkey: self.key }
    }

    pub fn handle(&mut self, gid: Gid) -> AhNumber {
        let (instance, pd) = (&self.instance, self.pd);
        *self
            .handles
            .entry(gid)
            .or_insert_with(|| instance.with(|device, _| device.create_ah(pd, gid)).unwrap().unwrap())
    }

    pub fn post(&mut self, wr_id: u64, op: SendOp, to: (Gid, Qpn), offset: usize, len: usize) {
        self.post_sge(wr_id, op, to, self.sge(offset, len));
    }

    pub fn post_sge(&mut self, wr_id: u64, op: SendOp, to: (Gid, Qpn), sge: Sge) {
        let ah = self.handle(to.0);
        let sges = [sge];
        let wr = SendWr { wr_id, op, ah, dst_qpn: to.1, qkey: QKEY, data: SendData::Sges(&sges) };
        self.instance.with(|device, now| device.post_send(now, self.qpn, &wr)).unwrap().unwrap();
    }

    pub fn send(&mut self, wr_id: u64, to: (Gid, Qpn), offset: usize, len: usize) {
        self.post(wr_id, SendOp::Send { imm: None }, to, offset, len);
    }

    pub fn recv(&self, wr_id: u64, offset: usize, len: usize) {
        let sges = [self.sge(offset, len)];
        self.instance
            .with(|device, _| device.post_recv(self.qpn, &RecvWr { wr_id, sges: &sges }))
            .unwrap()
            .unwrap();
    }

    pub fn address(&self) -> (Gid, Qpn) {
        (self.gid(), self.qpn)
    }

    pub fn poll(&self) -> Option<Completion> {
        self.instance.poll_one(self.cq).unwrap()
    }

    /// Polls until there is a completion.
    pub fn completion(&self) -> Completion {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.poll() {
                return completion;
            }
            if start.elapsed() > PATIENCE {
                panic!("no completion; {}", self.report());
            }
        }
    }

    /// Polls until there is a completion, which must be good.
    pub fn success(&self) -> Completion {
        let completion = self.completion();
        assert_eq!(completion.status, Status::Ok, "{completion:?}; {}", self.report());
        completion
    }

    /// As [`Host::success`]; meanwhile does `more` again and again.
    pub fn success_while(&self, more: impl Fn()) -> Completion {
        let start = Instant::now();
        loop {
            more();
            if let Some(completion) = self.poll() {
                assert_eq!(completion.status, Status::Ok, "{completion:?}; {}", self.report());
                return completion;
            }
            assert!(start.elapsed() < PATIENCE, "no completion; {}", self.report());
        }
    }

    pub fn report(&self) -> String {
        serde_json::to_string(&self.instance.stats().unwrap()).unwrap()
    }
}

/// Who `to` is to `from`, and `from` to `to`: what an attacker learns who sees their packets (with a key), or nobody (in clear).
pub fn names_of(to: &Host, from: &Host) -> (Incarnation, Incarnation) {
    let toward = |one: &Host, other: &Host| {
        let address = other.instance.address();
        one.instance.with(|device, _| device.endpoint().incarnation_toward(0, address)).unwrap()
    };
    (toward(to, from), toward(from, to))
}

/// A queue pair that may send.
pub fn new_qp(instance: &Instance, pd: PdId, cq: CqId) -> Qpn {
    let init = QpInit {
        kind: QpKind::Srd,
        pd,
        send_cq: cq,
        recv_cq: cq,
        sq_depth: 1024,
        rq_depth: 1024,
        send_sge: 2,
        recv_sge: 2,
        inline: 32,
        rdma_read: true,
        rdma_write: true,
        unsolicited_write_recv: false,
    };
    let qpn = instance.create_qp(init).unwrap().unwrap();
    let steps = QpModify::to_ready(QKEY, Some(7));
    instance
        .with(|device, now| steps.into_iter().try_for_each(|step| device.modify_qp(now, qpn, step)))
        .unwrap()
        .unwrap();
    qpn
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}
