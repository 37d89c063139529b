//! The surface of the messaging layer: a domain with its registered memory and its endpoints. Every call gets the device
//! that the domain works on, and the time.

use crate::api::*;
use crate::buffers::Buffers;
use crate::counters::Counters;
use crate::endpoint::{Endpoint, Place};
use crate::lane::{Lane, Loans};
use crate::peer::{MOST_SHORT, qkey_of};
use crate::placement::LEAST;
use crate::regions::Regions;
use crate::shared::{Completed, Cx, Shared};
use srd_device::{Access, AhNumber, Begun, CqId, Device, DeviceError, Loss, QpInit, QpKind, QpModify, Store};
use srd_wire::{Gid, Qpn, Status, Time};
use std::marker::PhantomData;

/// See the module.
pub struct Domain<M: Store> {
    shared: Shared,
    endpoints: Vec<Option<Endpoint>>,
    next_timeout: Time,
    memory: PhantomData<fn(M)>,
}

/// Completions that nobody has taken, beyond which nothing is taken from the device.
const MOST_DONE: usize = 1 << 14;

/// A message that finds no buffer is retried for ever: the receiver takes them as fast as it can.
const RNR_FOR_EVER: u8 = 7;

impl<M: Store> Domain<M> {
    /// Takes a protection domain, a completion queue and a key for all memory of the device.
    pub fn open(device: &mut Device<M>, config: Config) -> Result<Domain<M>, Refused> {
        let refused = |error| match error {
            DeviceError::Full(what) => Refused::NoMemory(what),
            _ => Refused::Invalid("device: offers too little"),
        };
        let pd = device.alloc_pd().map_err(refused)?;
        let cq = device.create_cq(device.config().max_cqe).map_err(refused)?;
        device.tell_losses(cq).map_err(refused)?;
        // For the layer's own use: what programs send from and receive into need not be registered. Peers cannot use it.
        let access = Access { local_write: true, remote_read: false, remote_write: false };
        let all_memory = device.reg_mr(pd, 0, u64::MAX, 0, access).map_err(refused)?;
        let shared = Shared {
            config,
            pd,
            cq,
            all_memory,
            max_msg: device.config().max_msg,
            short_msg: device.config().max_msg.min(MOST_SHORT),
            buffers: Buffers::default(),
            regions: Regions::new(device.keyed_hash()),
            counts: false,
            done: Completed::default(),
            counters: Counters::default(),
            touched: false,
            any_gone: false,
            any_strangers: false,
        };
        Ok(Domain { shared, endpoints: Vec::new(), next_timeout: Time::NEVER, memory: PhantomData })
    }

    /// Gives everything back to the device. Its endpoints are closed, and its regions deregistered.
    pub fn close(&mut self, device: &mut Device<M>, _now: Time) {
        self.shared.buffers.close(device.memory());
        let _ = device.dereg_mr(self.shared.all_memory);
        let _ = device.destroy_cq(self.shared.cq);
        let _ = device.dealloc_pd(self.shared.pd);
    }

    /// Limits and choices.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// What has been counted so far.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Where all queue pairs of this domain complete: to be armed, and waited for.
    pub fn cq(&self) -> CqId {
        self.shared.cq
    }

    // ---- endpoints ----

    /// What an endpoint's queue pair is to be made with (by `Device::create_qp`, or the instance's).
    pub fn qp_init(&self) -> QpInit {
        QpInit {
            kind: QpKind::Srd,
            pd: self.shared.pd,
            send_cq: self.shared.cq,
            recv_cq: self.shared.cq,
            sq_depth: 4096,
            rq_depth: self.shared.config.receive_buffers,
            send_sge: 2,
            recv_sge: 1,
            inline: 0,
            rdma_read: true,
            rdma_write: true,
            unsolicited_write_recv: false,
        }
    }

    /// Makes a queue pair in RESET an endpoint that can send and receive; `tx` limits its outstanding transmit operations
    /// (0: the configuration's).
    pub fn open_endpoint(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        qpn: Qpn,
        identity: Identity,
        tx: u32,
    ) -> Result<EndpointId, Refused> {
        let [init, rtr, rts] = QpModify::to_ready(qkey_of(identity.key()), Some(RNR_FOR_EVER));
        let invalid = |_| Refused::Invalid("qpn: an SRD queue pair in RESET, made with qp_init()");
        device.modify_qp(now, qpn, init).map_err(invalid)?;
        let index = self.endpoints.iter().position(Option::is_none).unwrap_or(self.endpoints.len());
        let id = EndpointId(index as u32);
        device.take_newest_receive(qpn);
        device.tell_begun(qpn, LEAST);
        let cx = &mut Cx::new(device, now, &mut self.shared);
        let endpoint = Endpoint::new(cx, id, qpn, identity, tx)?;
        if identity.well_known {
            device.set_well_known(qpn);
        }
        for change in [rtr, rts] {
            device.modify_qp(now, qpn, change).map_err(invalid)?;
        }
        match self.endpoints.get_mut(index) {
            Some(slot) => *slot = Some(endpoint),
            None => self.endpoints.push(Some(endpoint)),
        }
        Ok(id)
    }

    /// What an endpoint that is to be closed still owes its peers: it should go on for a moment.
    pub fn drain(&self, endpoint: EndpointId) -> Drain {
        self.at(endpoint).map_or(Drain::Over, Endpoint::drain)
    }

    /// Ends an endpoint, whose queue pair the caller has destroyed. Nothing of it completes any more.
    pub fn close_endpoint(&mut self, device: &mut Device<M>, now: Time, endpoint: EndpointId) {
        let slot = self.endpoints.get_mut(endpoint.0 as usize);
        let Some(mut closed) = slot.and_then(Option::take) else { return };
        let cx = &mut Cx::new(device, now, &mut self.shared);
        closed.close(cx);
        self.shared.done.retain(|done| done.endpoint != endpoint);
    }

    /// Peers write nothing at this endpoint: who says that it has is refused.
    pub fn refuse_notices(&mut self, endpoint: EndpointId) {
        if let Some(endpoint) = self.at_mut(endpoint) {
            endpoint.takes_notices = false;
        }
    }

    /// From now on this is counted that peers do by way of an endpoint. Those that have asked for a key already do not tell of what they
    /// do with it.
    pub fn count_at(&mut self, endpoint: EndpointId, counted: Counted) {
        self.shared.counts |= counted.any();
        if let Some(endpoint) = self.at_mut(endpoint) {
            endpoint.counted = counted;
        }
    }

    /// The same of what they do in a region, whichever endpoint it is by. `context` comes back with each.
    pub fn count_in(&mut self, region: RegionId, counted: Counted, context: u64) {
        self.shared.counts |= counted.any();
        self.shared.regions.count_in(region, counted, context);
    }

    /// FI_OPT_MIN_MULTI_RECV.
    pub fn set_min_multi_recv(&mut self, endpoint: EndpointId, bytes: u64) {
        if let Some(endpoint) = self.at_mut(endpoint) {
            endpoint.min_multi_recv = bytes;
        }
    }

    fn at(&self, endpoint: EndpointId) -> Option<&Endpoint> {
        self.endpoints.get(endpoint.0 as usize)?.as_ref()
    }

    fn at_mut(&mut self, endpoint: EndpointId) -> Option<&mut Endpoint> {
        self.endpoints.get_mut(endpoint.0 as usize)?.as_mut()
    }

    /// Runs `f` at an endpoint.
    #[inline]
    fn with<R>(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        f: impl FnOnce(&mut Endpoint, &mut Cx<'_, M>) -> Result<R, Refused>,
    ) -> Result<R, Refused> {
        let endpoint = self.endpoints.get_mut(endpoint.0 as usize).and_then(Option::as_mut);
        let endpoint = endpoint.ok_or(Refused::Invalid("endpoint: no such endpoint"))?;
        let cx = &mut Cx::new(device, now, &mut self.shared);
        let result = f(endpoint, cx);
        endpoint.settle_at_once(cx);
        self.next_timeout = self.next_timeout.min(endpoint.next_ask);
        result
    }

    /// The same for what gives the device work: contexts that have ended are known to have before anything is sent, so that
    /// a session never goes on in another context than the one that it began in.
    #[inline]
    fn with_known<R>(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        f: impl FnOnce(&mut Endpoint, &mut Cx<'_, M>) -> Result<R, Refused>,
    ) -> Result<R, Refused> {
        if device.has_losses(self.shared.cq) {
            self.take_completions(device, now);
        }
        self.with(device, now, endpoint, f)
    }

    // ---- peers ----

    /// The peer at an address, known from now on. The same address gives the same peer.
    pub fn peer(
        &mut self,
        device: &mut Device<M>,
        endpoint: EndpointId,
        addr: PeerAddr,
    ) -> Result<PeerId, Refused> {
        self.with(device, Time(0), endpoint, |endpoint, cx| {
            let peer = endpoint.peer_at(cx, addr)?;
            endpoint.renamed(peer, |peer| peer.named = true);
            Ok(PeerId(peer))
        })
    }

    /// What [`Done::source`] says of messages from this peer (its fi_addr_t); [`NO_LABEL`] takes the label away.
    pub fn set_label(&mut self, endpoint: EndpointId, peer: PeerId, label: u64) {
        if let Some(peer) = self.at_mut(endpoint).and_then(|endpoint| endpoint.peers.get_mut(peer.0 as usize))
        {
            peer.label = label;
            if label != NO_LABEL && std::mem::take(&mut peer.forgotten) {
                peer.begin_anew();
            }
        }
    }

    /// The program will not name this peer again (fi_av_remove). What is under way completes. If it names the address
    /// again, that is a new peer.
    pub fn forget_peer(&mut self, endpoint: EndpointId, peer: PeerId) {
        let Some(endpoint) = self.at_mut(endpoint) else { return };
        if (peer.0 as usize) < endpoint.peers.len() {
            endpoint
                .renamed(peer.0, |peer| (peer.label, peer.forgotten, peer.named) = (NO_LABEL, true, false));
        }
    }

    /// From now on messages to that peer, which is another process of this host, take that lane; `None`: the network again.
    /// A lane to another endpoint than the peer's address names is not taken.
    pub fn set_lane(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        peer: PeerId,
        lane: Option<Box<dyn Lane>>,
    ) {
        let _ = self.with(device, now, endpoint, |endpoint, cx| {
            let Some(state) = endpoint.peers.get_mut(peer.0 as usize) else { return Ok(()) };
            state.lane = None;
            let other = lane.as_ref().is_some_and(|lane| ![0, lane.identity()].contains(&state.identity));
            if other && state.addr.key != 0 {
                return Ok(());
            }
            if other {
                // Another endpoint has its well-known address now.
                endpoint.lose_peer(cx, peer.0, Status::RemoteAbort);
            }
            let state = &mut endpoint.peers[peer.0 as usize];
            state.longest_near = lane.as_ref().map_or(0, |lane| lane.longest() as u64);
            state.lane = lane;
            Ok(())
        });
    }

    /// Where an endpoint says what it lends to those who have a lane to it: without it they read long messages over the
    /// network.
    pub fn set_loans(&mut self, endpoint: EndpointId, loans: Box<dyn Loans>) {
        if let Some(endpoint) = self.at_mut(endpoint) {
            endpoint.loans = Some(loans);
        }
    }

    /// All peers of an endpoint.
    pub fn peers(&self, endpoint: EndpointId) -> impl Iterator<Item = PeerReport> {
        let peers = self.at(endpoint).into_iter().flat_map(|endpoint| &endpoint.peers);
        let known = (0..).zip(peers).filter(|(_, peer)| peer.ah != AhNumber::NONE);
        known.map(|(id, peer)| PeerReport {
            id: PeerId(id),
            addr: peer.addr,
            named: peer.named,
            lane: peer.lane.as_ref().map(|lane| LaneReport {
                traffic: lane.traffic(),
                rx_bytes: peer.near_bytes,
                copies: lane.can_read(),
            }),
        })
    }

    /// Whether [`Domain::poll_stranger`] may have any.
    #[inline]
    pub fn has_strangers(&self) -> bool {
        self.shared.any_strangers
    }

    /// A peer of this host that has sent something and that the program has not named: it may get a lane.
    pub fn poll_stranger(&mut self) -> Option<(EndpointId, PeerId, PeerAddr)> {
        let found = self.endpoints.iter_mut().flatten().find_map(|endpoint| {
            let peer = endpoint.strangers.pop()?;
            Some((endpoint.id, PeerId(peer), endpoint.peers[peer as usize].addr))
        });
        self.shared.any_strangers = found.is_some();
        found
    }

    /// A message from an endpoint at `gid` and `qpn`, which is near, lies at `at` until this returns.
    #[inline]
    pub fn arrived_by_shm(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        (gid, qpn): (Gid, Qpn),
        at: u64,
        len: u32,
    ) {
        let from = Place { gid, qpn, ah: AhNumber::NONE, near: true, claimed: false };
        if device.has_losses(self.shared.cq) {
            self.losses_before(device, now, endpoint, &from, at, len);
        }
        let _ = self.with(device, now, endpoint, |endpoint, cx| {
            if let Some(peer) = endpoint.arrived(cx, &from, at, len) {
                endpoint.peers[peer as usize].near_bytes += u64::from(len);
            }
            Ok(())
        });
    }

    /// What the peer sent by its lane before it knew that a context had ended has its turn before that, and what it has sent since
    /// after it.
    #[cold]
    fn losses_before(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        from: &Place,
        at: u64,
        len: u32,
    ) {
        let cx = &mut Cx::new(device, now, &mut self.shared);
        let known = self.endpoints.get(endpoint.0 as usize).and_then(Option::as_ref);
        match known.is_some_and(|endpoint| endpoint.goes_on(cx, from, at, len)) {
            true => self.note_losses(device, now),
            false => _ = self.take_completions(device, now),
        }
    }

    /// The process of an endpoint at `gid` and `qpn`, which was near, has ended.
    pub fn lost_by_shm(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        (gid, qpn): (Gid, Qpn),
        identity: u32,
    ) {
        // What the device has accepted from it counts.
        self.take_completions(device, now);
        let _ = self.with(device, now, endpoint, |endpoint, cx| {
            if let Some(peer) = endpoint.peer_with(gid, qpn, identity) {
                endpoint.peers[peer as usize].lane = None;
                // Also where it has not said anything: nobody will.
                endpoint.fail_directed(cx.shared, peer, Failure::PeerLost(Status::RemoteAbort));
                endpoint.lose_peer(cx, peer, Status::RemoteAbort);
            }
            Ok(())
        });
    }

    // ---- registered memory ----

    /// Registers memory. Returns its handle and the key by which peers name it.
    pub fn register(
        &mut self,
        device: &mut Device<M>,
        registration: &Registration,
    ) -> Result<(RegionId, u64), Refused> {
        self.shared.regions.register(device, self.shared.pd, registration)
    }

    /// Peers cannot reach it any more, and nothing of it is touched, when this returns.
    pub fn deregister(
        &mut self,
        device: &mut Device<M>,
        _now: Time,
        region: RegionId,
    ) -> Result<(), Refused> {
        self.shared.regions.deregister(device, region)
    }

    // ---- operations ----

    /// Sends a message.
    #[inline]
    pub fn send(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        send: &Send<'_>,
    ) -> Result<(), Refused> {
        self.with_known(device, now, endpoint, |endpoint, cx| endpoint.send(cx, send))
    }

    /// Gives a buffer for a message.
    #[inline]
    pub fn recv(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        recv: &Recv<'_>,
    ) -> Result<(), Refused> {
        self.with_known(device, now, endpoint, |endpoint, cx| endpoint.recv(cx, recv))
    }

    /// The same of a receive from any peer that takes one message, if none is there which it would take: then it waits, and nothing
    /// follows. False: [`Domain::recv`] has to be asked.
    #[inline]
    pub fn recv_later(&mut self, endpoint: EndpointId, recv: &Recv<'_>) -> Result<bool, Refused> {
        let endpoint = self.at_mut(endpoint).ok_or(Refused::Invalid("endpoint: no such endpoint"))?;
        Ok(endpoint.recv_later(recv))
    }

    /// Looks for a message.
    pub fn peek(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        peek: &Peek,
    ) -> Result<(), Refused> {
        self.with_known(device, now, endpoint, |endpoint, cx| endpoint.peek(cx, peek))
    }

    /// FI_CLAIM | FI_DISCARD without FI_PEEK: drops the message that was set aside under `context`.
    pub fn discard_claimed(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        context: u64,
    ) -> Result<(), Refused> {
        self.with_known(device, now, endpoint, |endpoint, cx| endpoint.discard_claimed(cx, context))
    }

    /// Reads or writes a peer's memory.
    #[inline]
    pub fn rma(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        rma: &Rma<'_>,
    ) -> Result<(), Refused> {
        self.with_known(device, now, endpoint, |endpoint, cx| endpoint.rma(cx, rma))
    }

    /// Works on a peer's memory.
    #[inline]
    pub fn atomic(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        atomic: &Atomic<'_>,
    ) -> Result<(), Refused> {
        self.with_known(device, now, endpoint, |endpoint, cx| endpoint.atomic(cx, atomic))
    }

    /// fi_cancel(3) of the oldest receive with that context that no message has matched: it completes with
    /// [`Failure::Canceled`]. False if there is none.
    pub fn cancel(&mut self, endpoint: EndpointId, context: u64) -> bool {
        let found = self.endpoints.get_mut(endpoint.0 as usize).and_then(Option::as_mut);
        found.is_some_and(|endpoint| endpoint.cancel(&mut self.shared, context))
    }

    // ---- progress ----

    /// Whether peers are to be lost by [`Domain::lanes_are_empty`].
    #[inline]
    pub fn has_gone(&self) -> bool {
        self.shared.any_gone
    }

    /// All that had come by lanes has been given to [`Domain::arrived_by_shm`]: so peers are lost to whom a lane has led nowhere. What they
    /// sent before they went is not lost with them.
    #[inline]
    pub fn lanes_are_empty(&mut self, device: &mut Device<M>, now: Time) {
        if std::mem::take(&mut self.shared.any_gone) {
            self.lose_gone(device, now);
        }
    }

    #[cold]
    fn lose_gone(&mut self, device: &mut Device<M>, now: Time) {
        let cx = &mut Cx::new(device, now, &mut self.shared);
        for endpoint in self.endpoints.iter_mut().flatten().filter(|endpoint| !endpoint.gone.is_empty()) {
            endpoint.settle_gone(cx);
        }
    }

    /// The device has just told of a message that has begun ([`Device::poll_begun`]): if its receive waits, the rest of it goes there.
    /// Who does not hand this on has it copied there when all of it has come.
    #[cold]
    pub fn take_up(&mut self, device: &mut Device<M>, now: Time, begun: &Begun) {
        // What came before it has its turn before it.
        self.take_completions(device, now);
        let cx = &mut Cx::new(device, now, &mut self.shared);
        let of_qp = |endpoint: &&mut Endpoint| endpoint.qpn == begun.receive.qpn;
        if let Some(endpoint) = self.endpoints.iter_mut().flatten().find(of_qp) {
            endpoint.take_up(cx, begun);
            self.next_timeout = self.next_timeout.min(endpoint.next_ask);
        }
    }

    /// Takes what the device has completed and does what follows from it. Returns whether there was anything.
    #[inline]
    pub fn progress(&mut self, device: &mut Device<M>, now: Time) -> bool {
        let any = self.take_completions(device, now);
        let cx = &mut Cx::new(device, now, &mut self.shared);
        for endpoint in self.endpoints.iter_mut().flatten() {
            if !endpoint.blocked.is_empty() {
                endpoint.unblock(cx);
            }
            endpoint.settle_at_once(cx);
        }
        if now >= self.next_timeout {
            self.ask_watched(device, now);
        }
        any
    }

    #[inline(never)]
    fn ask_watched(&mut self, device: &mut Device<M>, now: Time) {
        let cx = &mut Cx::new(device, now, &mut self.shared);
        self.next_timeout = Time::NEVER;
        for endpoint in self.endpoints.iter_mut().flatten() {
            if now >= endpoint.next_ask {
                endpoint.ask_watched(cx);
            }
            self.next_timeout = self.next_timeout.min(endpoint.next_ask);
        }
    }

    /// Takes what the device has completed, and what contexts with peers have ended meanwhile, each in its turn: what was
    /// accepted before such an end belongs to the sessions that end with it, and what comes after it to others.
    #[inline(always)]
    fn take_completions(&mut self, device: &mut Device<M>, now: Time) -> bool {
        device.has_news(self.shared.cq) && self.take_news(device, now)
    }

    fn take_news(&mut self, device: &mut Device<M>, now: Time) -> bool {
        self.note_losses(device, now);
        let cx = &mut Cx::new(device, now, &mut self.shared);
        let cq = cx.shared.cq;
        let mut any = false;
        loop {
            while cx.asked().has_losses(cq)
                && let Some(loss) = cx.device().poll_loss(cq)
            {
                any = true;
                for endpoint in self.endpoints.iter_mut().flatten() {
                    endpoint.context_ended(cx, &loss);
                    self.next_timeout = self.next_timeout.min(endpoint.next_ask);
                }
            }
            // A program that does not look at what is done gets no more of it: peers wait for receive buffers then.
            if cx.shared.done.len() >= MOST_DONE {
                return any;
            }
            let Some(completion) = cx.device().poll_cq(cq) else { return any };
            any = true;
            let of_qp = |endpoint: &&mut Endpoint| endpoint.qpn == completion.qpn;
            if let Some(endpoint) = self.endpoints.iter_mut().flatten().find(of_qp) {
                endpoint.completed(cx, &completion);
                self.next_timeout = self.next_timeout.min(endpoint.next_ask);
            }
        }
    }

    /// What is done before the ends of contexts have their turn must not be sent in those that have begun since.
    #[inline]
    fn note_losses(&mut self, device: &mut Device<M>, now: Time) {
        let cx = &mut Cx::new(device, now, &mut self.shared);
        let cq = cx.shared.cq;
        if cx.asked().has_losses(cq) {
            let losses: Vec<Loss> = cx.asked().losses(cq).collect();
            for endpoint in self.endpoints.iter_mut().flatten() {
                endpoint.contexts_will_end(cx, &losses);
            }
        }
    }

    /// Whether the device has been asked for anything since the last call of this: if not, what it has to do, and to wait for, is what
    /// it was then.
    #[inline]
    pub fn take_touched(&mut self) -> bool {
        std::mem::take(&mut self.shared.touched)
    }

    /// When [`Domain::progress`] is to be called though the device has completed nothing.
    #[inline]
    pub fn next_timeout(&self) -> Time {
        self.next_timeout
    }

    /// Hands all completions that nobody has taken to `each`, the oldest first. Returns whether there was any.
    #[inline]
    pub fn take_done(&mut self, each: impl FnMut(&Done)) -> bool {
        self.shared.done.take(each)
    }

    /// The oldest completion that nobody has taken.
    #[inline]
    pub fn poll_done(&mut self) -> Option<Done> {
        self.shared.done.pop()
    }
}

#[cfg(test)]
#[path = "../../srd-device/tests/harness/mod.rs"]
mod harness;

#[cfg(test)]
mod tests {
    use super::*;
    use harness::{Net, srd};
    use srd_device::{DeviceConfig, SendData, SendOp, SendWr, Sge, VecMemory};
    use srd_wire::{MrKey, Nanos};
    use std::num::NonZeroU32;

    #[test]
    fn the_key_of_all_memory_is_of_no_use_to_peers() {
        let mut net = Net::new(1, &DeviceConfig::default(), VecMemory::default);
        let addr = net.devices[0].memory().allocate(4096);
        let peer = net.side(0, addr, 4096, srd);
        let device = &mut net.devices[0];
        let mut domain = Domain::open(device, Config::default()).unwrap();
        let qpn = device.create_qp(domain.qp_init()).unwrap();
        let identity = Identity { number: NonZeroU32::new(0x1234_5678).unwrap(), well_known: false };
        domain.open_endpoint(device, Time(0), qpn, identity, 0).unwrap();
        let rights = RemoteRights { read: true, write: true };
        let open = Registration { addr, len: 4096, key: None, virtual_addresses: true, rights };
        let (_, open) = domain.register(device, &open).unwrap();
        let mut tries = |rkey, op: fn(MrKey, u64) -> SendOp| {
            let sges = [Sge { addr, len: 8, lkey: peer.key }];
            let (ah, data) = (peer.ahs[0], SendData::Sges(&sges));
            let wr = SendWr {
                wr_id: 1,
                op: op(rkey, addr),
                ah,
                dst_qpn: qpn,
                qkey: qkey_of(identity.key()),
                data,
            };
            net.devices[0].post_send(net.now, peer.qpn, &wr).unwrap();
            let mut done = None;
            net.run_until(Nanos::from_secs(10), |net| {
                done = net.devices[0].poll_cq(peer.cq);
                done.is_some()
            });
            done.unwrap().status
        };
        let all = domain.shared.all_memory;
        for op in
            [|rkey, addr| SendOp::Write { rkey, addr, imm: None }, |rkey, addr| SendOp::Read { rkey, addr }]
                as [fn(MrKey, u64) -> SendOp; 2]
        {
            assert_eq!(tries(all, op), Status::RemoteBadAddress);
            assert_eq!(tries(MrKey(open as u32), op), Status::Ok);
        }
    }
}
