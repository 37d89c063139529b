//! Anything in any order: random calls, random messages of a peer, random outcomes. Whatever happens, nothing panics,
//! a work request completes once at most and never after its queue pair has gone, slots are accounted for, and memory
//! that is no longer registered stays as it is.

use super::*;
use srd_proto::{Cookie, PeerLoss};
use std::collections::{HashMap, HashSet};

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len() as u64) as usize])
    }
}

/// A message of the peer that is under way.
struct Arriving {
    cookie: Cookie,
    message: Incoming,
    placed: u32,
}

struct Model {
    rng: Rng,
    bench: Bench,
    queue_pairs: Vec<Qpn>,
    regions: Vec<(MrKey, u64)>,
    /// What the memory of regions that have gone holds.
    gone: Vec<(u64, Vec<u8>)>,
    arriving: Vec<Arriving>,
    /// Work requests that may still complete, with their queue pair.
    open: HashMap<u64, Qpn>,
    next_wr: u64,
    now: u64,
}

const REGION: usize = 1024;

impl Model {
    fn new(seed: u64) -> Model {
        let mut bench = Bench::new();
        bench.objects.dereg_mr(&mut bench.transport, bench.key).unwrap();
        let queue_pairs = vec![bench.qpn];
        Model {
            rng: Rng(seed),
            bench,
            queue_pairs,
            regions: vec![],
            gone: vec![],
            arriving: vec![],
            open: HashMap::new(),
            next_wr: 1,
            now: 0,
        }
    }

    fn sge(&mut self, longest: u64) -> Sge {
        let (lkey, addr) = self.rng.pick(&self.regions).unwrap_or((MrKey(7), 0));
        let at = self.rng.below(REGION as u64 / 2);
        Sge { addr: addr + at, len: self.rng.below(longest) as u32, lkey }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..2 => self.create_qp(),
            2..3 => self.destroy_qp(),
            3..7 => self.modify_qp(),
            7..10 => self.register(),
            10..12 => self.deregister(),
            12..14 => self.handles(),
            14..34 => self.post_send(),
            34..50 => self.post_recv(),
            50..64 => self.arrive(),
            64..80 => self.proceed(),
            80..92 => self.report(),
            92..95 => self.advance(),
            95..96 => self.lose_peer(),
            _ => self.poll(),
        }
        self.bench.do_ready();
    }

    fn create_qp(&mut self) {
        let mut init = srd(self.bench.pd, self.bench.cq);
        if self.rng.below(4) == 0 {
            init = ud(self.bench.pd, self.bench.cq);
        } else if self.rng.below(2) == 0 {
            init.unsolicited_write_recv = true;
        }
        if let Ok(qpn) = self.bench.objects.create_qp(init) {
            self.bench.ready(qpn);
            self.queue_pairs.push(qpn);
        }
    }

    fn destroy_qp(&mut self) {
        let Some(qpn) = self.rng.pick(&self.queue_pairs) else { return };
        self.bench.objects.destroy_qp(&mut self.bench.transport, qpn).unwrap();
        self.queue_pairs.retain(|&other| other != qpn);
        self.open.retain(|_, of| *of != qpn);
    }

    fn modify_qp(&mut self) {
        let Some(qpn) = self.rng.pick(&self.queue_pairs) else { return };
        let to = [QpState::Sqd, QpState::Rts, QpState::Err, QpState::Reset][self.rng.below(4) as usize];
        let done = self.bench.objects.modify_qp(&mut self.bench.transport, qpn, &state(to));
        if to == QpState::Reset {
            done.unwrap();
            self.open.retain(|_, of| *of != qpn);
            self.bench.ready(qpn);
        }
    }

    fn register(&mut self) {
        if self.regions.len() < 8 {
            let addr = self.bench.objects.memory.allocate(REGION);
            let key = self.bench.objects.reg_mr(self.bench.pd, addr, REGION as u64, addr, ALL).unwrap();
            self.regions.push((key, addr));
        }
    }

    fn deregister(&mut self) {
        let Some((key, addr)) = self.rng.pick(&self.regions) else { return };
        self.bench.transport.sent = self.rng.below(2) == 0;
        self.bench.objects.dereg_mr(&mut self.bench.transport, key).unwrap();
        self.regions.retain(|&(other, _)| other != key);
        self.gone.push((addr, self.bench.objects.memory.at(addr, REGION).to_vec()));
    }

    fn handles(&mut self) {
        let objects = &mut self.bench.objects;
        if self.rng.below(2) == 0 {
            self.bench.ah = objects.create_ah(self.bench.pd, peer_gid()).unwrap();
        } else {
            let _ = objects.destroy_ah(&mut self.bench.transport, self.bench.pd, self.bench.ah);
        }
    }

    fn post_send(&mut self) {
        let Some(qpn) = self.rng.pick(&self.queue_pairs) else { return };
        let sges = [self.sge(600)];
        let op = match self.rng.below(3) {
            0 => SEND,
            1 => SendOp::Read { rkey: MrKey(1), addr: 0 },
            _ => SendOp::Write { rkey: MrKey(1), addr: 0, imm: None },
        };
        let wr_id = self.next_wr;
        self.bench.transport.refuse = (self.rng.below(20) == 0).then_some(SendError::Full);
        let wr = self.bench.wr(wr_id, op, SendData::Sges(&sges));
        if self.bench.objects.post_send(&mut self.bench.transport, qpn, &wr).is_ok() {
            self.open.insert(wr_id, qpn);
            self.next_wr += 1;
        }
        self.bench.transport.refuse = None;
    }

    fn post_recv(&mut self) {
        let Some(qpn) = self.rng.pick(&self.queue_pairs) else { return };
        let sges = [self.sge(600), self.sge(600)];
        let wr_id = self.next_wr;
        if self.bench.objects.post_recv(qpn, &RecvWr { wr_id, sges: &sges }).is_ok() {
            self.open.insert(wr_id, qpn);
            self.next_wr += 1;
        }
    }

    /// A message of the peer begins, sensible or not.
    fn arrive(&mut self) {
        let dst_qpn = self.rng.pick(&self.queue_pairs).unwrap_or(Qpn(5));
        let qkey = if self.rng.below(20) == 0 { Qkey(1) } else { QKEY };
        let route = Route { dst_qpn, src_qpn: PEER_QPN, qkey };
        let target = self.sge(600);
        let (rkey, addr) = (target.lkey, target.addr);
        let imm = (self.rng.below(2) == 0).then_some(9);
        let read = self.some_read();
        let (op, len) = match self.rng.below(6) {
            0 => (Op::Send { route, imm, datagram: self.rng.below(4) == 0 }, target.len),
            1 => (Op::Write { route, rkey, addr, imm }, target.len),
            2 => (Op::ReadRequest { route, rkey, addr, read_len: target.len, read: 3 }, 0),
            3 => (Op::ReadFailed { read: read.0, status: Status::RemoteBadAddress }, 0),
            _ => (Op::ReadResponse { read: read.0 }, read.1),
        };
        let message = self.bench.incoming(op, len);
        if let Ok(cookie) = self.bench.objects.begin(&message, None) {
            self.arriving.push(Arriving { cookie, message, placed: 0 });
        }
    }

    /// Name and length of a read that is open, or nonsense.
    fn some_read(&mut self) -> (u32, u32) {
        let reads: Vec<(u32, u32)> = self
            .bench
            .transport
            .open
            .iter()
            .filter_map(|message| match message.op {
                Op::ReadRequest { read, read_len, .. } => Some((read, read_len)),
                _ => None,
            })
            .collect();
        match self.rng.below(10) {
            0 => (self.rng.below(1 << 32) as u32, 5),
            _ => self.rng.pick(&reads).unwrap_or((0, 0)),
        }
    }

    /// A message goes on: more of it comes, or it ends well or not.
    fn proceed(&mut self) {
        if self.arriving.is_empty() {
            return;
        }
        let at = self.rng.below(self.arriving.len() as u64) as usize;
        let arriving = &mut self.arriving[at];
        if self.rng.below(10) == 0 {
            let Arriving { cookie, message, .. } = self.arriving.swap_remove(at);
            return self.bench.objects.abandon(cookie, &message);
        }
        let part = (arriving.message.len - arriving.placed).min(200);
        if part > 0 {
            let bytes = vec![self.rng.below(256) as u8; part as usize];
            let payload = VecPayload::from(&bytes[..]);
            self.bench.objects.place(arriving.cookie, &arriving.message, arriving.placed, &payload);
            arriving.placed += part;
        }
        if arriving.placed == arriving.message.len {
            let Arriving { cookie, message, .. } = self.arriving.swap_remove(at);
            let _ = self.bench.objects.finish(cookie, &message);
        }
    }

    /// The transport reports an outcome.
    fn report(&mut self) {
        let open = &mut self.bench.transport.open;
        if open.is_empty() {
            return;
        }
        let message = open.swap_remove(self.rng.below(open.len() as u64) as usize);
        let outcome = match self.rng.below(8) {
            0 => Err(Status::RemoteRnr),
            1 => Err(Status::RemoteBadDestQpn),
            2 => Err(Status::Unresponsive),
            _ => Ok(()),
        };
        self.bench.objects.outcome(message.peer, message.token, outcome);
    }

    fn advance(&mut self) {
        self.now += self.rng.below(20_000_000);
        self.bench.advance_to(Time(self.now));
    }

    fn lose_peer(&mut self) {
        let peer = self.bench.peer();
        for message in std::mem::take(&mut self.bench.transport.open) {
            self.bench.objects.outcome(message.peer, message.token, Err(Status::Unresponsive));
        }
        for Arriving { cookie, message, .. } in std::mem::take(&mut self.arriving) {
            self.bench.objects.abandon(cookie, &message);
        }
        self.bench.objects.peer_lost(peer, 0, peer_addr(), PeerLoss::Dead { answered_before: true });
    }

    fn poll(&mut self) {
        for completion in self.bench.poll_all() {
            if completion.unsolicited {
                assert_eq!(completion.wr_id, 0);
            } else {
                assert_eq!(self.open.remove(&completion.wr_id), Some(completion.qpn), "{completion:?}");
            }
        }
    }

    fn check(&mut self) {
        self.poll();
        let objects = &self.bench.objects;
        let mut linked = 0;
        for &qpn in &self.queue_pairs {
            let qp = objects.qp(objects.qp_index(qpn).unwrap());
            let requests = qp.sq.iter(&objects.requests).count() as u32;
            assert_eq!(qp.sq.used, requests - qp.sq.told, "all its completions were polled");
            linked += requests;
            let open = self.open.values().filter(|&&of| of == qpn).count() as u32;
            assert_eq!(qp.sq.used + qp.rq.used, open, "every slot is that of an open work request");
        }
        assert_eq!(objects.requests.len(), linked);
        for (addr, bytes) in &self.gone {
            assert_eq!(objects.memory.at(*addr, REGION), bytes, "deregistered memory was written");
        }
    }
}

#[test]
fn whatever_happens_work_requests_and_memory_are_accounted_for() {
    for seed in 0..60 {
        let mut model = Model::new(seed);
        for step in 0..3000 {
            model.step();
            if step % 50 == 0 {
                model.check();
            }
        }
        // Everything ends: nothing is left behind.
        model.lose_peer();
        for qpn in std::mem::take(&mut model.queue_pairs) {
            model.bench.objects.destroy_qp(&mut model.bench.transport, qpn).unwrap();
        }
        model.open.clear();
        model.check();
        model.bench.do_ready();
        let objects = &model.bench.objects;
        let left = (objects.requests.len(), objects.inbound.len(), objects.read_responses.len());
        assert_eq!(left, (0, 0, 0), "seed {seed}");
        assert_eq!(HashSet::<u64>::from_iter(model.open.keys().copied()).len(), 0);
    }
}
