//! An endpoint: its tables, and the work that it gives to the device. What the work is for is decided in the files that
//! have it done (`sending.rs`, `receiving.rs`, `read_rendezvous.rs`, `grants.rs`, `one_sided.rs`, `atomics.rs`, `sessions.rs`).

use crate::api::*;
use crate::incoming::{Incoming, Matcher, Receive};
use crate::lane::Loans;
use crate::matching::FastMap;
use crate::peer::Peer;
use crate::shared::Cx;
use crate::work::{Op, Tx, Work};
use srd_device::slab::{Key, Slab};
use srd_device::{AhNumber, Completion, CompletionOp, DeviceError, RecvWr, Sge, Store};
use srd_wire::{Gid, Qpn, Status, Time};
use std::collections::VecDeque;

/// What is kept for strangers: for those at their addresses, and for those that may have forged them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kept {
    /// Memory for what has come of them.
    pub bytes: u64,
    /// Replies to them that are under way.
    pub replies: u32,
}

/// See the module.
pub(crate) struct Endpoint {
    pub id: EndpointId,
    pub qpn: Qpn,
    pub identity: Identity,
    pub peers: Vec<Peer>,
    /// Peers by host, queue pair and key.
    routes: FastMap<u64, u32>,
    by_addr: FastMap<PeerAddr, u32>,
    /// The last one looked up.
    last_route: (u64, u32),
    /// The same of messages by shared memory.
    last_near: Option<(PeerAddr, u32)>,
    pub tx: Slab<Tx>,
    pub ops: Slab<Op>,
    pub incoming: Slab<Incoming>,
    pub receives: Slab<Receive>,
    pub tagged: Matcher,
    pub untagged: Matcher,
    pub claimed: FastMap<u64, u32>,
    pub min_multi_recv: u64,
    /// Peers may say that they have written here.
    pub takes_notices: bool,
    /// What of their doing is counted here.
    pub counted: Counted,
    /// Operations of the program that are not complete, and how many there may be.
    pub outstanding: u32,
    pub max_outstanding: u32,
    /// Peers with work that the device had no room for.
    pub blocked: VecDeque<u32>,
    /// What follows from work that was done as soon as it was posted.
    pub at_once: Vec<u32>,
    /// Peers whose lanes have led nowhere.
    pub gone: Vec<u32>,
    /// Peers of this host that this layer has come to know by itself.
    pub strangers: Vec<u32>,
    /// What peers with a lane to this endpoint may copy.
    pub loans: Option<Box<dyn Loans>>,
    pub watched: Vec<u32>,
    /// Places of peers that were forgotten, how many peers are strangers, and what is kept for those.
    pub free_peers: Vec<u32>,
    pub strangers_known: u32,
    pub kept: [Kept; 2],
    /// What the device was last told: strangers may come without having shown that they are where they say.
    pub trusting: bool,
    /// Work for peers that may have forged their addresses, which waits until they have shown that they have not; and how much.
    pub withheld: FastMap<u32, Vec<Work>>,
    pub withheld_works: usize,
    /// Of the replies to strangers at their addresses, those that wait for others to be delivered.
    pub strangers_wait: VecDeque<Key>,
    /// Where a stranger was last looked for that may go.
    hand: usize,
    pub next_ask: Time,
    receive_buffers: u64,
    receive_stride: u64,
}

/// Peers that are looked at to find one that may be forgotten.
const LOOKS_FOR_ROOM: usize = 64;
/// Where something came from.
pub(crate) struct Place {
    pub gid: Gid,
    pub qpn: Qpn,
    /// The device's handle of the host, if it has one.
    pub ah: AhNumber,
    /// It came by a lane.
    pub near: bool,
    /// As in [`srd_device::Completion`].
    pub claimed: bool,
}

impl Place {
    /// Where a message came from that the device has received.
    #[inline]
    pub fn of(receive: &Completion) -> Place {
        Place {
            gid: receive.src_gid,
            qpn: receive.src_qpn,
            ah: receive.src_ah,
            near: false,
            claimed: receive.claimed,
        }
    }
}

/// Peers that an endpoint knows at most.
const MOST_PEERS: usize = 1 << 20;

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
        identity: Identity,
        tx: u32,
    ) -> Result<Endpoint, Refused> {
        let count = cx.shared.config.receive_buffers as u64;
        // An odd number of cache lines, so that not all buffers begin in the same few sets of a cache.
        let stride = (cx.shared.max_msg as u64).div_ceil(64).next_multiple_of(2) * 64 + 64;
        let receive_buffers = cx.memory().allocate((count * stride) as usize);
        let receive_buffers = receive_buffers.ok_or(Refused::NoMemory("receive buffers"))?;
        let hash = cx.asked().keyed_hash();
        let endpoint = Endpoint {
            id,
            qpn,
            identity,
            peers: Vec::new(),
            routes: FastMap::with_hasher(hash),
            by_addr: FastMap::with_hasher(hash),
            last_route: (u64::MAX, 0),
            last_near: None,
            tx: Slab::new(),
            ops: Slab::new(),
            incoming: Slab::new(),
            receives: Slab::new(),
            tagged: Matcher::new(hash),
            untagged: Matcher::new(hash),
            claimed: FastMap::with_hasher(hash),
            min_multi_recv: 64,
            takes_notices: true,
            counted: Counted::default(),
            outstanding: 0,
            max_outstanding: match tx {
                0 => cx.shared.config.max_outstanding,
                tx => tx.min(cx.shared.config.max_outstanding),
            },
            blocked: VecDeque::new(),
            at_once: Vec::new(),
            gone: Vec::new(),
            strangers: Vec::new(),
            loans: None,
            watched: Vec::new(),
            free_peers: Vec::new(),
            strangers_known: 0,
            kept: Default::default(),
            trusting: true,
            withheld: FastMap::with_hasher(hash),
            withheld_works: 0,
            strangers_wait: VecDeque::new(),
            hand: 0,
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
            self.drop_withheld(cx, peer as u32);
            for early in self.peers[peer].end_their_session().into_values() {
                self.drop_early(cx, peer as u32, early);
            }
            cx.shared.counters.kept_bytes -= self.peers[peer].memory_held();
            cx.destroy_ah(self.peers[peer].ah);
        }
        self.peers.clear();
    }

    /// Where the receive of that number lies.
    #[inline]
    pub fn receive_buffer(&self, index: u64) -> u64 {
        self.receive_buffers + index * self.receive_stride
    }

    #[inline]
    fn post_receive<M: Store>(&self, cx: &mut Cx<'_, M>, index: u64) {
        let sge =
            Sge { addr: self.receive_buffer(index), len: cx.shared.max_msg, lkey: cx.shared.all_memory };
        let posted = cx.device().post_recv(self.qpn, &RecvWr { wr_id: index, sges: &[sge] });
        debug_assert!(posted.is_ok(), "there are as many receive slots as buffers: {posted:?}");
    }

    // ---- peers ----

    pub fn peer_at<M: Store>(&mut self, cx: &mut Cx<'_, M>, addr: PeerAddr) -> Result<u32, Refused> {
        if let Some(&peer) = self.by_addr.get(&addr) {
            return Ok(peer);
        }
        if self.peers.len() >= MOST_PEERS && self.free_peers.is_empty() {
            return Err(Refused::NoMemory("peers of an endpoint"));
        }
        let pd = cx.shared.pd;
        let ah = cx.device().create_ah(pd, addr.gid).map_err(|error| match error {
            DeviceError::Full(what) => Refused::NoMemory(what),
            _ => Refused::Invalid("address: that of one host, neither unspecified nor multicast"),
        })?;
        let mut peer = Peer::new(addr, ah, cx.asked().keyed_hash());
        peer.ending = self.pending_losses(cx, addr);
        self.strangers_known += 1;
        let index = match self.free_peers.pop() {
            Some(index) => {
                self.peers[index as usize] = peer;
                index
            }
            None => {
                if self.peers.len() == self.peers.capacity() {
                    // Not doubled: strangers make it grow.
                    self.peers.reserve_exact((self.peers.len() / 4).max(4));
                }
                self.peers.push(peer);
                self.peers.len() as u32 - 1
            }
        };
        self.by_addr.insert(addr, index);
        self.routes.insert(route(ah.0, addr.qpn, addr.key), index);
        Ok(index)
    }

    /// Who sent it: the endpoint at `from` whose address holds `key`.
    #[inline]
    pub fn peer_of<M: Store>(&mut self, cx: &mut Cx<'_, M>, from: &Place, key: u32) -> Option<u32> {
        let addr = PeerAddr { gid: from.gid, qpn: from.qpn, key };
        if from.ah == AhNumber::NONE {
            if let Some((last, peer)) = self.last_near
                && last == addr
            {
                return Some(peer);
            }
            let peer = self.stranger_at(cx, addr)?;
            self.last_near = Some((addr, peer));
            return Some(peer);
        }
        if let Some(peer) = self.known_peer(from, key) {
            return Some(peer);
        }
        let peer = self.stranger_at(cx, addr)?;
        self.last_route = (route(from.ah.0, from.qpn, key), peer);
        Some(peer)
    }

    /// The same, if it is the last one that was looked up.
    #[inline]
    pub fn last_peer(&self, from: &Place, key: u32) -> Option<u32> {
        if from.ah == AhNumber::NONE {
            let (last, peer) = self.last_near?;
            return (last == PeerAddr { gid: from.gid, qpn: from.qpn, key }).then_some(peer);
        }
        let (last, peer) = self.last_route;
        (last == route(from.ah.0, from.qpn, key)).then_some(peer)
    }

    /// The same, if the device has a handle of its host and it has been heard of.
    #[inline]
    pub fn known_peer(&mut self, from: &Place, key: u32) -> Option<u32> {
        let route = route(from.ah.0, from.qpn, key);
        if self.last_route.0 != route {
            self.last_route = (route, *self.routes.get(&route)?);
        }
        Some(self.last_route.1)
    }

    /// The peer that is, or was, the endpoint of that identity at a place.
    pub fn peer_with(&self, gid: Gid, qpn: Qpn, identity: u32) -> Option<u32> {
        let known = |key| self.by_addr.get(&PeerAddr { gid, qpn, key }).copied();
        known(identity).or_else(|| {
            known(0).filter(|&peer| {
                let peer = &self.peers[peer as usize];
                let led_to = peer.lane.as_ref().map_or(0, |lane| lane.identity());
                [peer.identity, led_to].iter().all(|&known| known == 0 || known == identity)
            })
        })
    }

    /// The peer at an address that the program has not named.
    pub fn stranger_at<M: Store>(&mut self, cx: &mut Cx<'_, M>, addr: PeerAddr) -> Option<u32> {
        if let Some(&peer) = self.by_addr.get(&addr) {
            return Some(peer);
        }
        if !self.has_room_for_stranger() && !self.forget_stranger(cx) {
            return None;
        }
        let peer = self.peer_at(cx, addr).ok()?;
        if addr.gid == cx.asked().gid() {
            self.strangers.push(peer);
            cx.shared.any_strangers = true;
        }
        Some(peer)
    }

    /// Makes room for another stranger: one for which nothing is kept is forgotten. If it says anything more, it hears that
    /// its session is over.
    #[cold]
    fn forget_stranger<M: Store>(&mut self, cx: &mut Cx<'_, M>) -> bool {
        for _ in 0..LOOKS_FOR_ROOM.min(self.peers.len()) {
            self.hand = if self.hand + 1 < self.peers.len() { self.hand + 1 } else { 0 };
            let (index, peer) = (self.hand as u32, &self.peers[self.hand]);
            let (addr, ah) = (peer.addr, peer.ah);
            // Those of this host are known to the program by their lanes.
            let near = addr.gid == cx.asked().gid();
            if near
                || !peer.holds_nothing()
                || self.withheld.contains_key(&index)
                || self.by_addr.get(&addr) != Some(&index)
            {
                continue;
            }
            self.peers[self.hand].ah = AhNumber::NONE;
            self.by_addr.remove(&addr);
            self.routes.remove(&route(ah.0, addr.qpn, addr.key));
            self.last_route = (u64::MAX, 0);
            self.last_near = None;
            cx.destroy_ah(ah);
            self.strangers_known -= 1;
            self.free_peers.push(index);
            return true;
        }
        false
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
            let from = Place::of(completion);
            self.arrived(cx, &from, self.receive_buffer(index), completion.byte_len);
        }
        self.post_receive(cx, index);
    }

    /// A completion at this endpoint, to be filled in.
    #[inline]
    pub fn done(&self, kind: Kind, context: u64, report: bool) -> Done {
        Done::new(self.id, kind, context, report)
    }
}

#[inline]
fn route(ah: u16, qpn: Qpn, key: u32) -> u64 {
    u64::from(ah) << 48 | u64::from(qpn.0) << 32 | u64::from(key)
}

/// Everything in a table.
pub(crate) fn drain<T>(mut slab: Slab<T>) -> impl Iterator<Item = T> {
    let keys: Vec<Key> = slab.iter().map(|(key, _)| key).collect();
    keys.into_iter().filter_map(move |key| slab.remove(key))
}
