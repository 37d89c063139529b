//! An endpoint: its tables, and the work that it gives to the device. What the work is for is decided in the files that
//! have it done (`sending.rs`, `receiving.rs`, `pulling.rs`, `granting.rs`, `one_sided.rs`, `atomics.rs`, `sessions.rs`).

use crate::api::*;
use crate::buffers::{Buffer, Buffers};
use crate::counters::Counters;
use crate::header::{self, Body, COMMON, LONGEST, number_in};
use crate::lane::LaneSend;
use crate::matching::{FastMap, Place, Posted, Unexpected, Waiting, Wanted};
use crate::peer::Peer;
use crate::regions::Regions;
use arrayvec::ArrayVec;
use srd_device::slab::{Key, Slab};
use srd_device::{
    Completion, CompletionOp, CqId, Device, DeviceError, PdId, RecvWr, SendData, SendOp, SendWr, Sge, Store,
};
use srd_wire::{MrKey, Qkey, Qpn, Status, Time};
use std::collections::VecDeque;

/// Key of all endpoints' queue pairs: addresses are all that programs exchange.
pub(crate) const QKEY: Qkey = Qkey(0x5352_446D);

pub(crate) type Iovs = ArrayVec<Iov, IOV_LIMIT>;

/// What the endpoints of a domain have in common.
pub(crate) struct Shared {
    pub config: Config,
    pub pd: PdId,
    pub cq: CqId,
    /// Local key of all memory of the process.
    pub all_memory: MrKey,
    pub max_msg: u32,
    pub buffers: Buffers,
    pub regions: Regions,
    pub done: VecDeque<Done>,
    pub counters: Counters,
}

/// What a call works with.
pub(crate) struct Cx<'a, M: Store> {
    pub device: &'a mut Device<M>,
    pub now: Time,
    pub shared: &'a mut Shared,
}

impl<M: Store> Cx<'_, M> {
    #[inline]
    pub fn memory(&mut self) -> &mut M {
        self.device.memory()
    }

    /// A buffer; there must be memory for it, as for everything else of the process.
    #[inline]
    pub fn take_buffer(&mut self, len: usize) -> Buffer {
        let buffer = self.shared.buffers.take(self.device.memory(), len);
        buffer.unwrap_or_else(|| panic!("out of memory: {len} bytes for a message"))
    }

    #[inline]
    pub fn give_buffer(&mut self, buffer: Buffer) {
        self.shared.buffers.give(self.device.memory(), buffer);
    }
}

/// Work that the device has, or will get.
#[derive(Debug)]
pub(crate) struct Tx {
    pub peer: u32,
    /// Our session with it at that time.
    session: u32,
    /// Its number, if it takes part in the order.
    number: Option<u32>,
    pub purpose: Purpose,
    /// Ours to give back when it is done.
    pub buffer: Option<Buffer>,
    op: SendOp,
    sges: ArrayVec<Sge, 2>,
}

/// What a piece of work is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Nobody waits for it.
    Control,
    /// A ping.
    Ask,
    /// A whole message that completes with it.
    Eager { context: u64, tagged: bool, report: bool },
    /// A part of an operation of ours.
    Part(u32),
    /// A peer of this host has gone.
    Gone,
    /// A read for a message of a peer's.
    Pull { incoming: u32, len: u32 },
}

/// What an operation waits for beside its own work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Await {
    Nothing,
    /// The peer says what became of it.
    Answer,
    /// The peer is introduced, or says what is behind a key.
    Peer,
}

/// An operation of the program that takes more than one piece of work, or an answer.
#[derive(Debug)]
pub(crate) struct Op {
    pub peer: u32,
    pub kind: Kind,
    pub context: u64,
    pub report: bool,
    /// Pieces of work that are not done.
    pub parts: u32,
    pub awaits: Await,
    pub failure: Option<Failure>,
    /// The program's memory, or the copy.
    pub local: Iovs,
    /// A copy of what was injected.
    pub copy: Option<Buffer>,
    /// What of it peers may read, for as long as it lasts.
    pub exposed: ArrayVec<MrKey, IOV_LIMIT>,
    /// One-sided operations: what is done where.
    pub remote: ArrayVec<RemoteIov, IOV_LIMIT>,
    /// Writes: completion data for the peer, until it has been sent.
    pub data: Option<u64>,
    /// The key has been asked for again, since the answer was out of date.
    pub asked_again: bool,
}

/// A receive of the program.
#[derive(Debug)]
pub(crate) struct Receive {
    pub wanted: Wanted,
    pub tagged: bool,
    pub place: Option<Place>,
    pub iov: Iovs,
    pub context: u64,
    pub report: bool,
    pub multi: Option<Multi>,
}

/// A buffer for many messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Multi {
    /// Where the next message goes.
    pub used: u64,
    /// Messages on their way into it.
    pub active: u32,
    /// It takes no more.
    pub full: bool,
}

/// A receive that a message has.
#[derive(Clone, Debug)]
pub(crate) struct Matched {
    pub iov: Iovs,
    pub capacity: u64,
    pub context: u64,
    pub report: bool,
    /// The receive, if it takes more messages.
    pub multi: Option<u32>,
}

/// Where a message of a peer's stands that is not in its receiver's buffer yet.
#[derive(Debug)]
pub(crate) enum Standing {
    /// Others must be matched first.
    Early,
    /// Nobody has asked for it.
    Unexpected(Waiting),
    /// A peek has set it aside.
    Claimed,
    /// It goes into this receive.
    Matched(Matched),
    /// Nobody will get it.
    Discarded,
}

/// A message of a peer's that is not complete, or for which nobody waits.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub peer: u32,
    pub number: u32,
    /// Its sender's name of it.
    pub op: u32,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub receipt: bool,
    pub total: u64,
    /// How much comes by itself, and has come.
    pub ahead: u32,
    pub arrived: u32,
    /// What has come before there was a receive.
    pub held: Option<Buffer>,
    pub standing: Standing,
    /// How the rest is fetched.
    pub fetch: Fetch,
    pub failure: Option<Failure>,
    /// More of it is to come of which the peer may be asked.
    pub owed: bool,
    /// The peer's session has ended: nobody is to be told, nothing more comes.
    pub orphan: bool,
}

/// How the rest of a message is fetched.
#[derive(Debug)]
pub(crate) enum Fetch {
    /// All of it comes by itself.
    Nothing,
    /// By reading the sender's memory.
    Read {
        sources: header::Sources,
        /// Where the next read begins.
        next: u64,
        /// Bytes that have come.
        done: u64,
        /// Reads under way.
        reads: u32,
        /// The sender's memory cannot be read after all.
        refused: bool,
    },
    /// By letting the sender send.
    Grant {
        /// Up to where it may.
        granted: u64,
        /// Bytes that have come.
        done: u64,
    },
}

/// Messages of one kind, with tags or without: receives that wait, and messages that do.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    pub posted: Posted,
    pub unexpected: Unexpected,
}

/// See the module.
pub(crate) struct Endpoint {
    pub id: EndpointId,
    pub qpn: Qpn,
    pub epoch: u32,
    pub peers: Vec<Peer>,
    /// Peers by host and queue pair.
    routes: FastMap<u32, u32>,
    by_addr: FastMap<PeerAddr, u32>,
    /// The last one looked up.
    last_route: (u32, u32),
    pub tx: Slab<Tx>,
    pub ops: Slab<Op>,
    pub incoming: Slab<Incoming>,
    pub receives: Slab<Receive>,
    pub tagged: Matcher,
    pub untagged: Matcher,
    pub claimed: FastMap<u64, u32>,
    pub min_multi_recv: u64,
    /// Operations of the program that are not complete, and how many there may be.
    outstanding: u32,
    max_outstanding: u32,
    /// Peers with work that the device had no room for.
    blocked: VecDeque<u32>,
    /// Work that was done as soon as it was posted, and what it was for.
    at_once: Vec<(Purpose, u32)>,
    /// Peers of this host that this layer has come to know by itself.
    pub strangers: Vec<u32>,
    pub watched: Vec<u32>,
    pub next_ask: Time,
    receive_buffers: u64,
    receive_stride: u64,
}

/// Peers that an endpoint knows at most.
const MOST_PEERS: usize = 1 << 20;

/// Operations that wait for room in the device, at most for one peer, before posting is refused.
const MOST_WAITING: usize = 64;

/// The wire's name of an entry: 20 bits of slot, 12 of generation.
#[inline]
pub(crate) fn name_of(key: Key) -> u32 {
    key.generation << 20 | key.index
}

/// The entry that has that name.
#[inline]
pub(crate) fn named<T>(slab: &Slab<T>, name: u32) -> Option<u32> {
    let key = slab.key_at(name & 0xF_FFFF)?;
    (name_of(key) == name).then_some(key.index)
}

impl Endpoint {
    pub fn new<M: Store>(
        cx: &mut Cx<'_, M>,
        id: EndpointId,
        qpn: Qpn,
        epoch: u32,
        tx: u32,
    ) -> Result<Endpoint, Refused> {
        let count = cx.shared.config.receive_buffers as u64;
        // An odd number of cache lines, so that not all buffers begin in the same few sets of a cache.
        let stride = (cx.shared.max_msg as u64).div_ceil(64).next_multiple_of(2) * 64 + 64;
        let receive_buffers = cx.memory().allocate((count * stride) as usize);
        let receive_buffers = receive_buffers.ok_or(Refused::NoMemory("receive buffers"))?;
        let endpoint = Endpoint {
            id,
            qpn,
            epoch,
            peers: Vec::new(),
            routes: FastMap::default(),
            by_addr: FastMap::default(),
            last_route: (u32::MAX, 0),
            tx: Slab::new(),
            ops: Slab::new(),
            incoming: Slab::new(),
            receives: Slab::new(),
            tagged: Matcher::default(),
            untagged: Matcher::default(),
            claimed: FastMap::default(),
            min_multi_recv: 64,
            outstanding: 0,
            max_outstanding: match tx {
                0 => cx.shared.config.max_outstanding,
                tx => tx.min(cx.shared.config.max_outstanding),
            },
            blocked: VecDeque::new(),
            at_once: Vec::new(),
            strangers: Vec::new(),
            watched: Vec::new(),
            next_ask: Time::NEVER,
            receive_buffers,
            receive_stride: stride,
        };
        for index in 0..count {
            endpoint.post_receive(cx, index);
        }
        Ok(endpoint)
    }

    /// Gives all memory back. The queue pair touches none of it any more.
    pub fn close<M: Store>(&mut self, cx: &mut Cx<'_, M>) {
        let count = cx.shared.config.receive_buffers as u64;
        cx.memory().free(self.receive_buffers, (count * self.receive_stride) as usize);
        let buffers = std::mem::take(&mut self.tx);
        for tx in drain(buffers) {
            tx.buffer.into_iter().for_each(|buffer| cx.give_buffer(buffer));
        }
        for mut op in drain(std::mem::take(&mut self.ops)) {
            self.unexpose(cx, &mut op);
            op.copy.into_iter().for_each(|buffer| cx.give_buffer(buffer));
        }
        for incoming in drain(std::mem::take(&mut self.incoming)) {
            incoming.held.into_iter().for_each(|buffer| cx.give_buffer(buffer));
        }
        for peer in 0..self.peers.len() {
            for early in self.peers[peer].end_their_session().into_iter().flatten() {
                if let crate::peer::Early::Whole { payload: Some(buffer), .. } = early {
                    cx.give_buffer(buffer);
                }
            }
            let _ = cx.device.destroy_ah(cx.now, cx.shared.pd, self.peers[peer].ah);
        }
        self.peers.clear();
    }

    #[inline]
    fn post_receive<M: Store>(&self, cx: &mut Cx<'_, M>, index: u64) {
        let sge = Sge {
            addr: self.receive_buffers + index * self.receive_stride,
            len: cx.shared.max_msg,
            lkey: cx.shared.all_memory,
        };
        let posted = cx.device.post_recv(self.qpn, &RecvWr { wr_id: index, sges: &[sge] });
        debug_assert!(posted.is_ok(), "there are as many receive slots as buffers: {posted:?}");
    }

    // ---- peers ----

    pub fn peer_at<M: Store>(&mut self, cx: &mut Cx<'_, M>, addr: PeerAddr) -> Result<u32, Refused> {
        if let Some(&peer) = self.by_addr.get(&addr) {
            return Ok(peer);
        }
        if self.peers.len() >= MOST_PEERS {
            return Err(Refused::NoMemory("peers of an endpoint"));
        }
        let ah = cx.device.create_ah(cx.shared.pd, addr.gid).map_err(|error| match error {
            DeviceError::Full(what) => Refused::NoMemory(what),
            _ => Refused::Invalid("address: that of one host, neither unspecified nor multicast"),
        })?;
        let index = self.peers.len() as u32;
        self.peers.push(Peer::new(addr, ah, self.epoch));
        self.by_addr.insert(addr, index);
        self.routes.insert(route(ah.0, addr.qpn), index);
        Ok(index)
    }

    /// Who sent it.
    #[inline]
    fn peer_of<M: Store>(&mut self, cx: &mut Cx<'_, M>, completion: &Completion) -> Option<u32> {
        let route = route(completion.src_ah.0, completion.src_qpn);
        if self.last_route.0 == route {
            return Some(self.last_route.1);
        }
        let peer = match self.routes.get(&route) {
            Some(&peer) => peer,
            None => {
                let addr = PeerAddr { gid: completion.src_gid, qpn: completion.src_qpn };
                self.stranger_at(cx, addr)?
            }
        };
        // A host without a handle has no number of its own.
        if completion.src_ah != srd_device::AhNumber::NONE {
            self.last_route = (route, peer);
        }
        Some(peer)
    }

    /// The peer at an address that the program has not named.
    pub fn stranger_at<M: Store>(&mut self, cx: &mut Cx<'_, M>, addr: PeerAddr) -> Option<u32> {
        let known = self.peers.len();
        let peer = self.peer_at(cx, addr).ok()?;
        if peer as usize >= known && addr.gid == cx.device.gid() {
            self.strangers.push(peer);
        }
        Some(peer)
    }

    // ---- what the program may post ----

    /// Whether an operation may begin now.
    #[inline]
    pub fn check_room(&self, peer: PeerId, flags: &TxFlags) -> Result<(), Refused> {
        let peer = self.peers.get(peer.0 as usize).ok_or(Refused::Invalid("peer: no such peer"))?;
        let full = self.outstanding >= self.max_outstanding || peer.backlog.len() >= MOST_WAITING;
        if full || flags.fence && peer.outstanding > 0 {
            return Err(Refused::Again);
        }
        Ok(())
    }

    /// An operation has begun.
    #[inline]
    pub fn begun(&mut self, peer: u32) {
        self.outstanding += 1;
        self.peers[peer as usize].outstanding += 1;
    }

    /// An operation is complete.
    #[inline]
    fn ended(&mut self, peer: u32) {
        self.outstanding -= 1;
        self.peers[peer as usize].outstanding -= 1;
    }

    // ---- work for the device ----

    /// Writes the header of a message to a peer to the front of `buffer`. Returns its length.
    #[inline]
    pub fn write_header<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        body: &Body,
        buffer: &Buffer,
    ) -> usize {
        let peer = &mut self.peers[peer as usize];
        peer.told = peer.consumed;
        peer.introduced = true;
        let bytes = cx.memory().bytes_mut(buffer.addr, LONGEST);
        let back = body.number().map_or(0, |number| peer.back_from(number));
        header::encode(peer.session, peer.epoch, peer.consumed, back, body, bytes)
    }

    /// Sends a message without payload that nobody waits for.
    pub fn tell<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, body: &Body) {
        self.tell_for(cx, peer, body, Purpose::Control);
    }

    /// Sends a message without payload.
    pub fn tell_for<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, body: &Body, purpose: Purpose) {
        let buffer = cx.take_buffer(LONGEST);
        let len = self.write_header(cx, peer, body, &buffer);
        self.send_buffer(cx, peer, purpose, buffer, len, None);
    }

    /// Sends `len` bytes of `buffer`, then `payload`.
    #[inline]
    pub fn send_buffer<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        purpose: Purpose,
        buffer: Buffer,
        len: usize,
        payload: Option<Iov>,
    ) {
        let lkey = cx.shared.all_memory;
        let mut sges = ArrayVec::new();
        sges.push(Sge { addr: buffer.addr, len: len as u32, lkey });
        if let Some(payload) = payload.filter(|payload| payload.len > 0) {
            sges.push(Sge { addr: payload.addr, len: payload.len as u32, lkey });
        }
        self.post(cx, peer, purpose, Some(buffer), SendOp::Send { imm: None }, sges);
    }

    /// Gives the device work, now or as soon as it has room.
    #[inline]
    pub fn post<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        purpose: Purpose,
        buffer: Option<Buffer>,
        op: SendOp,
        sges: ArrayVec<Sge, 2>,
    ) {
        if matches!(op, SendOp::Send { .. }) && self.peers[peer as usize].lane.is_some() {
            return self.post_near(cx, peer, purpose, buffer, op, sges);
        }
        let key = self.enter(cx, peer, purpose, buffer, op, sges);
        if !self.peers[peer as usize].backlog.is_empty() || !self.try_post(cx, key.index) {
            self.enqueue(key.index);
        }
    }

    /// Takes work into the book.
    #[inline]
    fn enter<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        purpose: Purpose,
        buffer: Option<Buffer>,
        op: SendOp,
        sges: ArrayVec<Sge, 2>,
    ) -> Key {
        let state = &mut self.peers[peer as usize];
        let header = buffer.as_ref().map(|buffer| cx.device.memory().bytes(buffer.addr, COMMON + 4));
        let number = header.and_then(number_in);
        if let Some(number) = number {
            state.leaves(number);
        }
        self.tx.insert(Tx { peer, session: state.session, number, purpose, buffer, op, sges })
    }

    /// Gives a message to the peer's lane, now or as soon as there is room.
    fn post_near<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        purpose: Purpose,
        buffer: Option<Buffer>,
        op: SendOp,
        sges: ArrayVec<Sge, 2>,
    ) {
        let full = !self.peers[peer as usize].backlog.is_empty();
        if full || !self.send_near(cx, peer, &sges) {
            let key = self.enter(cx, peer, purpose, buffer, op, sges);
            return self.enqueue(key.index);
        }
        if let Some(buffer) = buffer {
            cx.give_buffer(buffer);
        }
        match purpose {
            Purpose::Eager { context, tagged, report } => {
                self.ended(peer);
                cx.shared.done.push_back(self.done(Kind::Send { tagged }, context, report));
            }
            Purpose::Control => {}
            // Whoever posts it need not be ready to hear that it is done.
            purpose => self.at_once.push((purpose, peer)),
        }
    }

    /// False if the lane has no room.
    fn send_near<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, sges: &[Sge]) -> bool {
        let state = &mut self.peers[peer as usize];
        let Some(lane) = &mut state.lane else { return true };
        let memory = &*cx.device.memory();
        let parts: ArrayVec<&[u8], 2> =
            sges.iter().map(|sge| memory.bytes(sge.addr, sge.len as usize)).collect();
        let sent = lane.send(&parts);
        drop(parts);
        match sent {
            LaneSend::Sent { asleep: false } => true,
            LaneSend::Sent { asleep: true } => {
                self.wake_near(cx, peer);
                true
            }
            LaneSend::Full => false,
            LaneSend::Gone => {
                self.at_once.push((Purpose::Gone, peer));
                true
            }
        }
    }

    /// A message over the network, which wakes a peer that does not look at its lanes.
    pub fn wake_near<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        let told = self.peers[peer as usize].told;
        let buffer = cx.take_buffer(LONGEST);
        let len = self.write_header(cx, peer, &Body::Ping, &buffer);
        // What it says of the window arrives out of turn.
        self.peers[peer as usize].told = told;
        let sge = Sge { addr: buffer.addr, len: len as u32, lkey: cx.shared.all_memory };
        let (op, sges) = (SendOp::Send { imm: None }, ArrayVec::from_iter([sge]));
        // Past whatever waits for room in the lane.
        let key = self.enter(cx, peer, Purpose::Ask, Some(buffer), op, sges);
        if !self.try_post(cx, key.index) {
            let tx = self.tx.remove(key).expect("just entered");
            tx.buffer.into_iter().for_each(|buffer| cx.give_buffer(buffer));
            self.peers[peer as usize].asked = false;
        }
    }

    /// Does what follows from work that was done at once.
    #[inline]
    pub fn settle_at_once<M: Store>(&mut self, cx: &mut Cx<'_, M>) {
        while let Some((purpose, peer)) = self.at_once.pop() {
            match purpose {
                Purpose::Part(op) => self.part_done(cx, op, Status::Ok),
                Purpose::Ask => self.peers[peer as usize].asked = false,
                Purpose::Gone => {
                    self.peers[peer as usize].lane = None;
                    self.lose_peer(cx, peer, Status::RemoteBadDestQpn);
                }
                Purpose::Control | Purpose::Eager { .. } | Purpose::Pull { .. } => {}
            }
        }
    }

    #[cold]
    fn enqueue(&mut self, index: u32) {
        let peer = self.tx.at(index).expect("just inserted").peer;
        let backlog = &mut self.peers[peer as usize].backlog;
        if backlog.is_empty() {
            self.blocked.push_back(peer);
        }
        backlog.push_back(index);
    }

    /// False if the device has no room.
    #[inline]
    fn try_post<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) -> bool {
        let tx = self.tx.at(index).expect("the caller has it");
        let peer = &self.peers[tx.peer as usize];
        let wr = SendWr {
            wr_id: index as u64,
            op: tx.op,
            ah: peer.ah,
            dst_qpn: peer.addr.qpn,
            qkey: QKEY,
            data: SendData::Sges(&tx.sges),
        };
        match cx.device.post_send(cx.now, self.qpn, &wr) {
            Ok(()) => true,
            Err(DeviceError::Full(_)) => false,
            Err(error) => panic!("the device refuses work of the messaging layer: {error}"),
        }
    }

    /// Gives the device, and lanes, what they had no room for.
    #[inline]
    pub fn unblock<M: Store>(&mut self, cx: &mut Cx<'_, M>) {
        for _ in 0..self.blocked.len() {
            let Some(peer) = self.blocked.pop_front() else { return };
            while let Some(&index) = self.peers[peer as usize].backlog.front() {
                let tx = self.tx.at(index).expect("it waits");
                let near = matches!(tx.op, SendOp::Send { .. }) && self.peers[peer as usize].lane.is_some();
                let sges = tx.sges.clone();
                if !(if near { self.send_near(cx, peer, &sges) } else { self.try_post(cx, index) }) {
                    self.blocked.push_back(peer);
                    break;
                }
                self.peers[peer as usize].backlog.pop_front();
                if near {
                    self.work_done(cx, index, Status::Ok);
                }
            }
        }
    }

    /// Work for a peer that the device does not have is given up.
    pub fn drop_backlog<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, status: Status) {
        let backlog = std::mem::take(&mut self.peers[peer as usize].backlog);
        self.blocked.retain(|&blocked| blocked != peer);
        for index in backlog {
            self.work_done(cx, index, status);
        }
    }

    // ---- what the device has completed ----

    /// Takes a completion of the device.
    #[inline]
    pub fn completed<M: Store>(&mut self, cx: &mut Cx<'_, M>, completion: &Completion) {
        if completion.op != CompletionOp::Recv {
            self.work_done(cx, completion.wr_id as u32, completion.status);
            return;
        }
        let index = completion.wr_id;
        if completion.status == Status::Ok {
            match self.peer_of(cx, completion) {
                Some(peer) => {
                    let at = self.receive_buffers + index * self.receive_stride;
                    self.arrived(cx, peer, at, completion.byte_len);
                }
                None => cx.shared.counters.strangers_dropped += 1,
            }
        }
        self.post_receive(cx, index);
    }

    #[inline]
    fn work_done<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32, status: Status) {
        let Some(key) = self.tx.key_at(index) else { return };
        let tx = self.tx.remove(key).expect("its key was found");
        if let Some(buffer) = tx.buffer {
            cx.give_buffer(buffer);
        }
        let peer = tx.peer;
        let state = &mut self.peers[peer as usize];
        if let (Status::Ok, Some(number)) = (status, tx.number)
            && tx.session == state.session
        {
            state.delivered(number);
        }
        if let Purpose::Eager { context, tagged, report } = tx.purpose {
            self.ended(peer);
            let error = (status != Status::Ok).then(|| self.failure_of(peer, status));
            let kind = Kind::Send { tagged };
            cx.shared.done.push_back(Done { error, ..self.done(kind, context, report) });
        }
        // A session that is over already needs no other end.
        if is_of_peer(status) && tx.session == self.peers[peer as usize].session {
            self.lose_peer(cx, peer, status);
        }
        match tx.purpose {
            Purpose::Control | Purpose::Eager { .. } | Purpose::Gone => {}
            Purpose::Ask => self.peers[peer as usize].asked = false,
            Purpose::Part(op) => self.part_done(cx, op, status),
            Purpose::Pull { incoming, len } => self.pulled(cx, incoming, len, status),
        }
    }

    /// How a status of the device shows.
    pub fn failure_of(&self, _peer: u32, status: Status) -> Failure {
        match status {
            Status::RemoteBadAddress => Failure::RemoteAccess { known: true },
            Status::FeatureMismatch => Failure::RemoteUnsupported,
            status if is_of_peer(status) => Failure::PeerLost(status),
            status => Failure::Device(status),
        }
    }

    /// A completion at this endpoint, to be filled in.
    #[inline]
    pub fn done(&self, kind: Kind, context: u64, report: bool) -> Done {
        Done {
            endpoint: self.id,
            kind,
            context,
            report,
            len: 0,
            buf: 0,
            tag: 0,
            data: None,
            source: NO_LABEL,
            from: None,
            buffer_released: false,
            error: None,
        }
    }

    // ---- operations ----

    /// Takes an operation into the book. It is over when its parts are done and it awaits nothing.
    pub fn begin_op<M: Store>(&mut self, _cx: &mut Cx<'_, M>, op: Op) -> Key {
        self.begun(op.peer);
        self.ops.insert(op)
    }

    /// From now on the operation waits for its peer's answer.
    pub fn await_answer<M: Store>(&mut self, cx: &mut Cx<'_, M>, op: u32) {
        let entry = self.ops.at_mut(op).expect("the caller has it");
        entry.awaits = Await::Answer;
        let peer = entry.peer;
        self.owes(cx, peer);
    }

    #[inline]
    fn part_done<M: Store>(&mut self, cx: &mut Cx<'_, M>, op: u32, status: Status) {
        let Some(entry) = self.ops.at_mut(op) else { return };
        entry.parts -= 1;
        if status != Status::Ok && entry.failure.is_none() {
            let peer = entry.peer;
            let failure = self.failure_of(peer, status);
            self.ops.at_mut(op).expect("it is there").failure = Some(failure);
        }
        self.op_changed(cx, op);
    }

    /// Ends an operation if nothing of it is left to be done.
    pub fn op_changed<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        let op = self.ops.at_mut(index).expect("the caller has it");
        if op.parts > 0 || op.awaits != Await::Nothing && op.failure.is_none() {
            return;
        }
        if op.failure.is_none() && op.data.is_some() {
            return self.give_notice(cx, index);
        }
        if matches!(op.failure, Some(Failure::RemoteAccess { .. })) && self.ask_again(cx, index) {
            return;
        }
        let key = self.ops.key_at(index).expect("it is there");
        let mut op = self.ops.remove(key).expect("its key was found");
        if op.awaits == Await::Answer {
            self.has_paid(op.peer);
        }
        self.unexpose(cx, &mut op);
        if let Some(copy) = op.copy.take() {
            cx.give_buffer(copy);
        }
        self.ended(op.peer);
        let done = self.done(op.kind, op.context, op.report);
        cx.shared.done.push_back(Done { error: op.failure, ..done });
    }

    /// What peers could read of an operation, they cannot any more.
    fn unexpose<M: Store>(&mut self, cx: &mut Cx<'_, M>, op: &mut Op) {
        for key in op.exposed.drain(..) {
            let _ = cx.device.dereg_mr(key);
        }
    }
}

/// Whether a status says that the peer, or its endpoint, is not what it was.
pub(crate) fn is_of_peer(status: Status) -> bool {
    matches!(
        status,
        Status::Unresponsive
            | Status::Unreachable
            | Status::RemoteAbort
            | Status::RemoteBadDestQpn
            | Status::Flushed
            | Status::RemoteBadStatus
    )
}

#[inline]
fn route(ah: u16, qpn: Qpn) -> u32 {
    (ah as u32) << 16 | qpn.0 as u32
}

/// Everything in a table.
pub(crate) fn drain<T>(mut slab: Slab<T>) -> impl Iterator<Item = T> {
    let keys: Vec<Key> = slab.iter().map(|(key, _)| key).collect();
    keys.into_iter().filter_map(move |key| slab.remove(key))
}

/// How long a list is.
#[inline]
pub(crate) fn length(iov: &[Iov]) -> u64 {
    iov.iter().map(|piece| piece.len).sum()
}

/// The pieces of a list from `skip` on that cover `len` bytes.
pub(crate) fn stretch(iov: &[Iov], mut skip: u64, mut len: u64) -> Iovs {
    let mut pieces = Iovs::new();
    for piece in iov {
        let passed = skip.min(piece.len);
        skip -= passed;
        let take = len.min(piece.len - passed);
        if take > 0 {
            pieces.push(Iov { addr: piece.addr + passed, len: take });
            len -= take;
        }
    }
    pieces
}

/// Copies a list to contiguous memory.
pub(crate) fn gather<M: Store>(memory: &mut M, iov: &[Iov], mut to: u64) {
    for piece in iov {
        memory.copy(piece.addr, to, piece.len as usize);
        to += piece.len;
    }
}

/// Copies contiguous memory to a list, from `skip` on, as far as it has room.
#[inline]
pub(crate) fn scatter<M: Store>(memory: &mut M, mut from: u64, len: u64, iov: &[Iov], mut skip: u64) {
    let mut left = len;
    for piece in iov {
        let passed = skip.min(piece.len);
        skip -= passed;
        let take = left.min(piece.len - passed);
        if take > 0 {
            memory.copy(from, piece.addr + passed, take as usize);
            from += take;
            left -= take;
        }
    }
}
