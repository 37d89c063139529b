//! One side of a measurement over SRD: a device instance with one queue pair, its memory, and the loops that drive
//! it. Client and server each have the loops of their role; all of them do no more than post and poll.

use super::control::Endpoint;
use super::histogram::Histogram;
use super::memory::{self, Slots};
use super::plan::{Amount, Op, Plan, Test};
use super::round::{Arrived, Clock, Counted};
use super::watch::{NAP, Next, Role, Watch};
use anyhow::{anyhow, bail};
use srd_device::{
    Access, AhNumber, Completion, CompletionOp, CqId, DeviceError, MAX_INLINE, PdId, QpInit, QpKind,
    QpModify, RecvWr, SendData, SendOp, SendWr, Sge,
};
use srd_net::{Instance, Options};
use srd_wire::{Gid, MrKey, Qkey, Qpn, Status};
use std::sync::Arc;
use std::time::Instant;

/// Completions taken at once.
const BATCH: usize = 64;

/// Receives that are posted together: often enough to never run out, seldom enough to cost little.
const REPOST: usize = 32;

/// A remote queue pair.
#[derive(Clone, Copy, Debug)]
struct Peer {
    ah: AhNumber,
    qpn: Qpn,
    qkey: Qkey,
    rkey: MrKey,
    memory: u64,
}

/// See the module.
pub struct SrdSide {
    // The instance goes first when this is dropped: then nobody writes to the memory any more.
    instance: Arc<Instance>,
    pd: PdId,
    qpn: Qpn,
    qkey: Qkey,
    send_cq: CqId,
    recv_cq: CqId,
    outbox_key: MrKey,
    inbox_key: MrKey,
    outbox: Slots,
    inbox: Slots,
    peers: Vec<Peer>,
    /// Index of the one that the next message goes to.
    next_peer: usize,
    plan: Plan,
    completions: Vec<Completion>,
    /// Numbers of receives that have completed: where messages are sent, slots of the inbox.
    to_repost: Vec<u32>,
    sends_outstanding: u32,
    next_number: u64,
    arrived: Arrived,
}

/// Receives that a side posts: twice the window, as while the ones that came are posted again as many may be on their way.
fn receives(plan: &Plan) -> u32 {
    plan.window.max(REPOST as u32).saturating_mul(2)
}

/// How many messages a side has memory for: those that go out from it (or that others read), and those that come in.
fn slots(plan: &Plan, role: Role) -> (usize, usize) {
    let (window, client) = (plan.window as usize, role == Role::Client);
    match plan.op {
        Op::Send => (window, receives(plan) as usize),
        // Each side writes into the other's memory.
        Op::Write if !plan.is_one_sided() => (window, window),
        Op::Write if client => (window, 0),
        Op::Read if !client => (window, 0),
        Op::Write | Op::Read => (0, window),
    }
}

/// Refuses a plan for which this host has not the memory, `sides` times.
pub fn require_memory(plan: &Plan, role: Role, sides: u16) -> anyhow::Result<()> {
    let (outbox, inbox) = slots(plan, role);
    let bytes = [outbox, inbox].map(|count| Slots::bytes_of(count, plan.size as usize, plan.check));
    memory::require(bytes[0].saturating_add(bytes[1]).saturating_mul(sides.into()), plan)
}

impl SrdSide {
    /// Opens a device as `options` say and prepares a queue pair for the plan, for which there must be memory
    /// ([`require_memory`]).
    pub fn open(options: &Options, plan: &Plan, role: Role) -> anyhow::Result<SrdSide> {
        let instance = Instance::open_separate(options)?;
        let longest = instance.with(|device, _| match plan.op {
            Op::Send => device.config().max_msg,
            Op::Write | Op::Read => device.config().max_rdma,
        })?;
        if plan.size > longest {
            bail!(
                "a {:?} is at most {longest} bytes; --op write and --op read take longer messages",
                plan.op
            );
        }
        let size = plan.size as usize;
        let (outgoing, incoming) = slots(plan, role);
        let mut outbox = Slots::new(outgoing, size, plan.check);
        let inbox = Slots::new(incoming, size, plan.check);
        if plan.op == Op::Read && plan.check {
            (0..outgoing).for_each(|slot| outbox.fill(slot, slot as u64));
        }
        let qkey = Qkey(rand_qkey());

        let (pd, send_cq, recv_cq, outbox_key, inbox_key) = instance
            .with(|device, _| {
                let pd = device.alloc_pd()?;
                let send_cq = device.create_cq(2 * plan.window.max(BATCH as u32))?;
                let recv_cq = device.create_cq(receives(plan).saturating_mul(2))?;
                let access = Access { local_write: true, remote_read: true, remote_write: true };
                let outbox_key =
                    device.reg_mr(pd, outbox.address(), outbox.bytes(), outbox.address(), access)?;
                let inbox_key = device.reg_mr(pd, inbox.address(), inbox.bytes(), inbox.address(), access)?;
                Ok::<_, DeviceError>((pd, send_cq, recv_cq, outbox_key, inbox_key))
            })?
            .map_err(|error| refused("preparing the device", error))?;

        let qpn = instance
            .create_qp(QpInit {
                kind: QpKind::Srd,
                pd,
                send_cq,
                recv_cq,
                sq_depth: plan.window.max(REPOST as u32),
                rq_depth: receives(plan),
                send_sge: 1,
                recv_sge: 1,
                inline: MAX_INLINE as u32,
                rdma_read: true,
                rdma_write: true,
                unsolicited_write_recv: false,
            })?
            .map_err(|error| refused("creating a queue pair", error))?;
        let mut side = SrdSide {
            instance,
            pd,
            qpn,
            qkey,
            send_cq,
            recv_cq,
            outbox_key,
            inbox_key,
            outbox,
            inbox,
            peers: Vec::new(),
            next_peer: 0,
            plan: plan.clone(),
            completions: vec![no_completion(); BATCH],
            to_repost: Vec::new(),
            sends_outstanding: 0,
            next_number: 0,
            arrived: Arrived::default(),
        };
        side.start().map_err(|error| refused("bringing the queue pair to its ready state", error))?;
        Ok(side)
    }

    fn start(&mut self) -> Result<(), DeviceError> {
        // 7: for ever. The receiver posts buffers as fast as it can.
        let steps = QpModify::to_ready(self.qkey, Some(7));
        let qpn = self.qpn;
        self.instance
            .with(|device, now| steps.into_iter().try_for_each(|step| device.modify_qp(now, qpn, step)))
            .expect("nobody has forked")?;
        self.to_repost = (0..receives(&self.plan)).collect();
        self.repost();
        Ok(())
    }

    /// What the other side must know.
    pub fn endpoint(&self) -> Endpoint {
        let address = self.instance.address();
        let (rkey, memory) = match self.plan.op {
            Op::Read => (self.outbox_key, self.outbox.address()),
            _ => (self.inbox_key, self.inbox.address()),
        };
        Endpoint {
            address: address.gid.ip(),
            port: address.port,
            qpn: self.qpn.0,
            qkey: self.qkey.0,
            rkey: rkey.0,
            memory,
        }
    }

    /// Adds a queue pair to talk to.
    pub fn add_peer(&mut self, endpoint: &Endpoint) -> anyhow::Result<()> {
        let own = self.instance.address().gid.ip();
        if own.is_ipv4() != endpoint.address.is_ipv4() {
            bail!(
                "{own} and {} cannot reach each other: one is an IPv4 address, the other IPv6; set SRD_ADDR to an \
                 address of the same kind on both hosts, or unset it",
                endpoint.address
            );
        }
        let pd = self.pd;
        let ah = self
            .instance
            .with(|device, _| device.create_ah(pd, Gid::from(endpoint.address)))?
            .map_err(|error| refused("making an address handle", error))?;
        self.peers.push(Peer {
            ah,
            qpn: Qpn(endpoint.qpn),
            qkey: Qkey(endpoint.qkey),
            rkey: MrKey(endpoint.rkey),
            memory: endpoint.memory,
        });
        Ok(())
    }

    /// MTU of the path in bytes.
    pub fn mtu(&self) -> u16 {
        self.instance.mtu()
    }

    /// Packets retransmitted so far.
    pub fn retransmissions(&self) -> u64 {
        let stats = self.instance.stats().expect("nobody has forked");
        stats.transport["retrans_pkts"]
    }

    // ---- the client's loops ----

    /// One message at a time, to each peer in turn, and its answer.
    pub fn ping(
        &mut self,
        amount: Amount,
        histogram: &mut Histogram,
        watch: &mut Watch,
    ) -> anyhow::Result<Counted> {
        let answer_cq = if self.plan.op == Op::Read { self.send_cq } else { self.recv_cq };
        let mut clock = Clock::start(amount);
        let mut trips = 0;
        let mut began = Instant::now();
        loop {
            self.post_batch(&[0])?;
            let mut answers = 0;
            while answers == 0 {
                answers = self.next(answer_cq, watch)?.ok_or_else(|| anyhow!("the round has ended early"))?;
            }
            let now = Instant::now();
            histogram.record((now - began).as_nanos() as u64);
            began = now;
            trips += 1;
            if clock.is_over(now, trips, histogram) {
                self.drain(watch)?;
                return Ok(clock.counted(now, trips));
            }
        }
    }

    /// As many messages outstanding as the window allows, to the peers in turn.
    pub fn stream(
        &mut self,
        amount: Amount,
        histogram: &mut Histogram,
        watch: &mut Watch,
    ) -> anyhow::Result<Counted> {
        let mut clock = Clock::start(amount);
        let mut free: Vec<u32> = (0..self.plan.window).collect();
        let (mut posted, mut completed) = (0, 0);
        loop {
            if !free.is_empty() {
                self.post_batch(&free)?;
                posted += free.len() as u64;
                free.clear();
            }
            let count =
                self.next(self.send_cq, watch)?.ok_or_else(|| anyhow!("the round has ended early"))?;
            if count == 0 {
                continue;
            }
            completed += count as u64;
            free.extend(self.completions[..count].iter().map(|completion| completion.wr_id as u32));
            let now = Instant::now();
            if clock.is_over(now, completed, histogram) {
                let counted = clock.counted(now, completed);
                self.drain(watch)?;
                return Ok(Counted { all_messages: posted, ..counted });
            }
        }
    }

    // ---- the server's loops ----

    /// Takes what has come, and in the latency test answers it. Returns how much, or `None` when the round is over.
    pub fn serve(&mut self, watch: &mut Watch) -> anyhow::Result<Option<usize>> {
        let Some(count) = self.next(self.recv_cq, watch)? else { return Ok(None) };
        if count > 0 && self.plan.test == Test::Latency {
            // Slot 0 is the only one of a window of 1, and its last answer has long arrived.
            (0..count).try_for_each(|_| self.post_batch(&[0]))?;
        }
        Ok(Some(count))
    }

    /// Takes what the round has left. Returns what has arrived since the last call.
    pub fn finish(&mut self, watch: &mut Watch) -> anyhow::Result<Arrived> {
        self.drain(watch)?;
        // The end of the round may have been seen in the same waking as its last messages: they are here by now, since
        // the client ends it when all have been acknowledged.
        self.reap(self.recv_cq)?;
        if self.plan.check && self.plan.op == Op::Write && self.plan.is_one_sided() {
            // Their order and number are unknown here, but each slot must hold one whole message (or none yet).
            for slot in 0..self.inbox.count() {
                if !self.inbox.is_clear(slot) {
                    self.inbox.check(slot)?;
                    self.inbox.clear(slot);
                }
            }
        }
        self.next_number = 0;
        Ok(std::mem::take(&mut self.arrived))
    }

    // ---- what the loops are made of ----

    /// Posts the outbox's slots as one message each, to the peers in turn. Uses the occasion to take completed sends,
    /// and to post receives, after the messages are on their way.
    fn post_batch(&mut self, slots: &[u32]) -> anyhow::Result<()> {
        if self.plan.check && self.plan.op != Op::Read {
            for &slot in slots {
                self.outbox.fill(slot as usize, self.next_number);
                self.next_number += 1;
            }
        }
        let SrdSide { instance, qpn, outbox, outbox_key, inbox, inbox_key, peers, next_peer, plan, .. } =
            self;
        instance
            .with(|device, now| {
                for &slot in slots {
                    let peer = &peers[*next_peer];
                    *next_peer += 1;
                    if *next_peer == peers.len() {
                        *next_peer = 0;
                    }
                    let (memory, lkey) =
                        if plan.op == Op::Read { (&*inbox, *inbox_key) } else { (&*outbox, *outbox_key) };
                    let offset = memory.offset(slot as usize) as u64;
                    let remote = peer.memory + offset;
                    let op = match plan.op {
                        Op::Send => SendOp::Send { imm: None },
                        Op::Write => SendOp::Write {
                            rkey: peer.rkey,
                            addr: remote,
                            imm: (plan.test == Test::Latency).then_some(slot),
                        },
                        Op::Read => SendOp::Read { rkey: peer.rkey, addr: remote },
                    };
                    let sges = [Sge { addr: memory.address() + offset, len: plan.size, lkey }];
                    let mut inline = [0; MAX_INLINE];
                    let data = if plan.op == Op::Send && plan.size as usize <= MAX_INLINE {
                        let inline = &mut inline[..plan.size as usize];
                        memory.read(slot as usize, inline);
                        SendData::Inline(inline)
                    } else {
                        SendData::Sges(&sges)
                    };
                    let request = SendWr {
                        wr_id: slot.into(),
                        op,
                        ah: peer.ah,
                        dst_qpn: peer.qpn,
                        qkey: peer.qkey,
                        data,
                    };
                    device.post_send(now, *qpn, &request)?;
                }
                Ok::<_, DeviceError>(())
            })?
            .map_err(|error| refused("posting a message", error))?;
        self.sends_outstanding += slots.len() as u32;
        if self.to_repost.len() >= REPOST {
            self.repost();
        }
        if self.plan.test == Test::Latency && self.sends_outstanding >= REPOST as u32 / 2 {
            self.reap(self.send_cq)?;
        }
        Ok(())
    }

    /// Posts the receives that have completed, or were never posted.
    fn repost(&mut self) {
        let SrdSide { instance, qpn, inbox, inbox_key, to_repost, plan, .. } = self;
        instance
            .with(|device, _| {
                for slot in to_repost.drain(..) {
                    let addr = inbox.address() + inbox.offset(slot as usize) as u64;
                    let sges = [Sge { addr, len: plan.size, lkey: *inbox_key }];
                    // A write lands where its sender says.
                    let sges = if plan.op == Op::Send { &sges[..] } else { &[] };
                    device
                        .post_recv(*qpn, &RecvWr { wr_id: slot.into(), sges })
                        .expect("there are as many receives as places in the queue");
                }
            })
            .expect("nobody has forked");
    }

    /// Takes completions from `cq`; 0 if there are none yet, `None` if the round is over. Sleeps if the plan says so.
    fn next(&mut self, cq: CqId, watch: &mut Watch) -> anyhow::Result<Option<usize>> {
        let mut count = self.instance.poll_cq(cq, &mut self.completions)?;
        if count == 0 && self.plan.blocking {
            self.instance
                .with(|device, _| device.arm_cq(cq, false))?
                .map_err(|error| refused("asking for a notification", error))?;
            // What came in between rings no bell.
            count = self.instance.poll_cq(cq, &mut self.completions)?;
        }
        if count == 0 {
            let next = if self.plan.blocking {
                self.instance.wait(Some(NAP))?;
                watch.look()?
            } else {
                watch.idle()?
            };
            if next != Next::Poll && cq == self.recv_cq {
                // Sends that failed complete elsewhere, and the answer that is waited for never comes.
                self.reap(self.send_cq)?;
            }
            return Ok((next != Next::Stop).then_some(0));
        }
        watch.progress();
        for index in 0..count {
            self.take(index)?;
        }
        Ok(Some(count))
    }

    /// Looks at one completion.
    fn take(&mut self, index: usize) -> anyhow::Result<()> {
        let completion = &self.completions[index];
        let slot = completion.wr_id as usize;
        match completion.op {
            CompletionOp::Send | CompletionOp::Write => self.sends_outstanding -= 1,
            CompletionOp::Read => {
                self.sends_outstanding -= 1;
                if self.plan.check && completion.status == Status::Ok {
                    self.check_read(slot)?;
                }
            }
            CompletionOp::Recv | CompletionOp::RecvRdmaWithImm => {
                self.to_repost.push(slot as u32);
                self.arrived.messages += 1;
                if self.plan.check && completion.status == Status::Ok {
                    // A write lands where its sender said, which the immediate data repeats.
                    let landed = completion.imm.map_or(slot, |slot| slot as usize);
                    let number = self.inbox.check(landed)?;
                    self.arrived.numbers = self.arrived.numbers.wrapping_add(number.unwrap_or(0));
                }
                if self.to_repost.len() >= REPOST && self.plan.test != Test::Latency {
                    self.repost();
                }
            }
        }
        let completion = &self.completions[index];
        if completion.status != Status::Ok {
            let (op, status) = (completion.op, completion.status);
            bail!("{op:?} ended with status {}: {}", status as u8, srd_device::describe(status));
        }
        Ok(())
    }

    fn check_read(&mut self, slot: usize) -> anyhow::Result<()> {
        if let Some(number) = self.inbox.check(slot)?
            && number != slot as u64
        {
            bail!("a read of slot {slot} returned slot {number}");
        }
        self.inbox.clear(slot);
        Ok(())
    }

    /// Takes the completions of `cq` without moving packets.
    fn reap(&mut self, cq: CqId) -> anyhow::Result<()> {
        while let Some(completion) = self.instance.with(|device, _| device.poll_cq(cq))? {
            self.completions[0] = completion;
            self.take(0)?;
        }
        Ok(())
    }

    /// Moves packets, where nobody else does while this side waits for something else.
    pub fn poll(&mut self) -> anyhow::Result<()> {
        let count = self.instance.poll_cq(self.send_cq, &mut self.completions)?;
        (0..count).try_for_each(|index| self.take(index))
    }

    /// Waits until all that was posted has completed.
    fn drain(&mut self, watch: &mut Watch) -> anyhow::Result<()> {
        while self.sends_outstanding > 0 {
            self.next(self.send_cq, watch)?;
        }
        Ok(())
    }
}

fn refused(what: &str, error: DeviceError) -> anyhow::Error {
    anyhow!("{what}: {error}")
}

fn no_completion() -> Completion {
    Completion {
        wr_id: 0,
        status: Status::Ok,
        op: CompletionOp::Send,
        qpn: Qpn(0),
        src_qpn: Qpn(0),
        src_ah: AhNumber::NONE,
        src_gid: Gid::default(),
        byte_len: 0,
        imm: None,
        unsolicited: false,
        claimed: false,
    }
}

/// A queue key below 2^31, as programs may choose: enough that two sessions do not take each other's messages.
fn rand_qkey() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id()) as u32 >> 1
}
