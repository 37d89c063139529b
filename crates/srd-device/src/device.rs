//! The device: owns every object and the transport endpoint, and brings the two together. Decisions are in the objects.

use crate::api::*;
use crate::completion_counter::{CompletionCounter, Counted};
use crate::counters::Counters;
use crate::deferred::Deferred;
use crate::objects::Objects;
use crate::staged::DeviceEnd;
use srd_proto::{Endpoint, Followers, PeerId, Received, Transmit};
use srd_wire::codec::Preamble;
use srd_wire::*;
use std::sync::Arc;

/// See the module. `now` must not run backwards from one call to the next.
pub struct Device<M: Memory> {
    endpoint: Endpoint<M::Payload>,
    objects: Objects<M>,
}

impl<M: Memory> Device<M> {
    /// Opens a device of host `gid` that receives on UDP `port` (= `port_base` + slot).
    ///
    /// # Panics
    /// If `port` does not lie in `port_base .. port_base + 512`, or `port_base` is above 65,024.
    pub fn new(
        config: DeviceConfig,
        gid: Gid,
        port: u16,
        incarnation: Incarnation,
        seed: u64,
        memory: M,
    ) -> Device<M> {
        let mut endpoint = Endpoint::new(config.transport.clone(), incarnation, &[port], seed);
        endpoint.allow_self(gid);
        let mut objects = Objects::new(config, gid, seed, memory);
        objects.regions.set_secret([seed, 0]);
        let slot = objects.slot_of_port(port).unwrap_or_else(|error| panic!("port {port}: {error}"));
        objects.numbers.add_slot(slot).expect("the first slot is free");
        Device { endpoint, objects }
    }

    /// What memory keys are drawn from, from now on: whoever knows it knows them. Until then they follow from the seed, so a
    /// device on a real network is given random bits of the system before memory is registered.
    pub fn set_secret(&mut self, secret: [u64; 2]) {
        self.objects.regions.set_secret(secret);
    }

    /// Adds a receive port (another block of 128 QPNs). `create_qp` answers `Full("port")` when one is needed.
    pub fn add_port(&mut self, port: u16) -> Result<(), DeviceError> {
        let slot = self.objects.slot_of_port(port)?;
        self.objects.numbers.add_slot(slot)?;
        let index = self.endpoint.add_port(port);
        debug_assert_eq!(Some(index), self.objects.numbers.port_of_slot(slot), "both number ports in order");
        Ok(())
    }

    /// The receive ports (UDP), in the order of adding.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        let base = self.objects.config.port_base;
        self.objects.numbers.slots().map(move |slot| base + slot)
    }

    /// The host.
    pub fn gid(&self) -> Gid {
        self.objects.gid
    }

    /// What the device was opened with.
    pub fn config(&self) -> &DeviceConfig {
        &self.objects.config
    }

    /// What objects of whoever uses this device may hash keys with that peers choose.
    pub fn keyed_hash(&self) -> KeyedHash {
        self.objects.hash
    }

    /// The transport, to look at.
    pub fn endpoint(&self) -> &Endpoint<M::Payload> {
        &self.endpoint
    }

    /// As [`srd_proto::Endpoint::set_tracer`].
    pub fn set_tracer(&mut self, tracer: Option<srd_proto::Tracer>) {
        self.endpoint.set_tracer(tracer);
    }

    /// As [`srd_proto::Endpoint::set_neighbours`].
    pub fn set_neighbours(&mut self, senders: u16) {
        self.endpoint.set_neighbours(senders);
    }

    /// The memory.
    pub fn memory(&mut self) -> &mut M {
        &mut self.objects.memory
    }

    /// A new protection domain.
    pub fn alloc_pd(&mut self) -> Result<PdId, DeviceError> {
        self.objects.alloc_pd()
    }

    /// EBUSY while a region, queue pair or address handle is in it.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), DeviceError> {
        self.objects.regions.dealloc_pd(pd)
    }

    /// Registers memory; local and remote key are the same number. `iova` is the address by which SGEs and peers name
    /// the first byte, `addr` where it really lies.
    pub fn reg_mr(
        &mut self,
        pd: PdId,
        addr: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<MrKey, DeviceError> {
        self.objects.reg_mr(pd, addr, len, iova, access)
    }

    /// Later use of the key fails. Work in flight that uses the region is given up: our sends complete with a local
    /// key error, receives that were being filled too, and peers that were reading get an error. The memory is not
    /// touched any more when this returns.
    pub fn dereg_mr(&mut self, key: MrKey) -> Result<(), DeviceError> {
        self.objects.dereg_mr(&mut self.endpoint, key)
    }

    /// The key of the region that a descriptor names, which has room for its lower 24 bits; one that opens nothing if there is no
    /// such region.
    #[inline]
    pub fn key_of_descriptor(&self, bits: u32) -> MrKey {
        self.objects.regions.of_descriptor(bits)
    }

    /// A completion queue of `depth` entries. It cannot overrun if it is as deep as the queues that complete there.
    pub fn create_cq(&mut self, depth: u32) -> Result<CqId, DeviceError> {
        self.objects.create_cq(depth)
    }

    /// EBUSY while a queue pair uses it.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), DeviceError> {
        self.objects.destroy_cq(cq)
    }

    /// Takes the oldest completion; the slot of its work request is free then.
    #[inline]
    pub fn poll_cq(&mut self, cq: CqId) -> Option<Completion> {
        self.objects.poll_cq(cq)
    }

    /// Whether [`Device::poll_cq`] or [`Device::poll_loss`] may have something.
    #[inline]
    pub fn has_news(&self, cq: CqId) -> bool {
        self.objects.has_news(cq)
    }

    /// For who gives the device up because there was a panic inside it: what has completed and was not polled, and then
    /// everything that is posted, as flushed, each queue in its order. It only reads, since what a panic leaves half
    /// changed had better not be changed further; it may miss what was being moved.
    pub fn last_completions(&self) -> Vec<(CqId, Completion)> {
        self.objects.last_completions()
    }

    /// From now on the losses of peers are told in that queue, too, each in its place among the completions
    /// ([`Device::poll_loss`]). Whoever asks for that has to take them.
    pub fn tell_losses(&mut self, cq: CqId) -> Result<(), DeviceError> {
        self.objects.tell_losses(cq)
    }

    /// The loss of a peer, if it is what comes next: asked before each completion that is taken.
    #[inline]
    pub fn poll_loss(&mut self, cq: CqId) -> Option<Loss> {
        self.objects.poll_loss(cq)
    }

    /// Whether losses wait in a queue.
    #[inline]
    pub fn has_losses(&self, cq: CqId) -> bool {
        self.objects.has_losses(cq)
    }

    /// All losses that wait in a queue, whatever has to be taken before them.
    pub fn losses(&self, cq: CqId) -> impl Iterator<Item = Loss> {
        self.objects.losses(cq)
    }

    /// Asks for one notification at the next completion. With `solicited_only`, sends that went well do not count;
    /// every receive does (SRD has no solicited bit).
    pub fn arm_cq(&mut self, cq: CqId, solicited_only: bool) -> Result<(), DeviceError> {
        self.objects.arm_cq(cq, solicited_only)
    }

    /// Takes back what [`Device::arm_cq`] asked for, a notification that has fired and was not taken yet, and the alarm:
    /// for who is about to look anyway.
    #[inline]
    pub fn disarm_cq(&mut self, cq: CqId) -> Result<(), DeviceError> {
        self.objects.disarm_cq(cq)
    }

    /// Asks for a notification at a time, armed or not, though nothing completes; [`Time::NEVER`] for none. The last time
    /// asked for holds.
    #[inline]
    pub fn set_alarm(&mut self, cq: CqId, at: Time) -> Result<(), DeviceError> {
        self.objects.set_alarm(cq, at)
    }

    /// A completion queue whose armed notification has fired; each once, however often it fired since it was last
    /// taken here.
    pub fn poll_notification(&mut self) -> Option<CqId> {
        self.objects.poll_notification()
    }

    /// Whether anything is to be polled of the two above and below.
    #[inline]
    pub fn has_fired(&self) -> bool {
        self.objects.has_fired()
    }

    /// Asynchronous events.
    pub fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        self.objects.poll_async_event()
    }

    /// Whether the device has ended on purpose ([`crate::StagedFaults`]). Whoever runs it sees to what follows.
    pub fn ended(&self) -> Option<DeviceEnd> {
        self.objects.ended
    }

    /// A peer that has not answered for seconds, and whether it ever did. No event: it may still answer.
    pub fn poll_silent_peer(&mut self) -> Option<(InstanceAddr, bool)> {
        self.objects.silent.take()
    }

    /// Address handle of a host. Each call makes a handle; handles of one GID share a number (as EFA's do). Queue pairs
    /// in other protection domains than `pd` cannot use it.
    pub fn create_ah(&mut self, pd: PdId, gid: Gid) -> Result<AhNumber, DeviceError> {
        self.objects.create_ah(pd, gid)
    }

    /// Gives one handle of `pd` back. Outstanding work of that domain to the host ends flushed when its last one goes.
    pub fn destroy_ah(&mut self, now: Time, pd: PdId, ah: AhNumber) -> Result<(), DeviceError> {
        self.objects.now = now;
        self.objects.destroy_ah(&mut self.endpoint, pd, ah)
    }

    /// A queue pair in RESET; `Full("port")` if every QPN of the ports is taken.
    pub fn create_qp(&mut self, init: QpInit) -> Result<Qpn, DeviceError> {
        self.objects.create_qp(init)
    }

    /// The same with a number of the caller's choice. `Full("port")` if the number's port (`port_base` + number / 128) has
    /// not been added, `Busy` if another queue pair has the number, `Invalid` if it is reserved.
    pub fn create_numbered_qp(&mut self, init: QpInit, number: Qpn) -> Result<Qpn, DeviceError> {
        self.objects.create_numbered_qp(init, number)
    }

    /// Changes the state or attributes of a queue pair.
    pub fn modify_qp(&mut self, now: Time, qpn: Qpn, change: QpModify) -> Result<(), DeviceError> {
        self.objects.now = now;
        self.objects.modify_qp(&mut self.endpoint, qpn, &change)
    }

    /// State and attributes of a queue pair.
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpInfo, DeviceError> {
        self.objects.query_qp(qpn)
    }

    /// What a queue pair has done.
    pub fn qp_counters(&self, qpn: Qpn) -> Result<QpCounters, DeviceError> {
        Ok(self.objects.qp(self.objects.qp_index(qpn)?).counters)
    }

    /// Nothing of it completes any more after this, not even what was completed and not polled; the payloads of its
    /// sends and its receive buffers are not touched any more.
    pub fn destroy_qp(&mut self, now: Time, qpn: Qpn) -> Result<(), DeviceError> {
        self.objects.now = now;
        self.objects.destroy_qp(&mut self.endpoint, qpn)
    }

    /// From now on the counter is told what the queue pair completes of that kind, until the queue pair is destroyed. `Busy` if
    /// another is.
    pub fn attach_counter(
        &mut self,
        qpn: Qpn,
        what: &[Counted],
        counter: &Arc<dyn CompletionCounter>,
    ) -> Result<(), DeviceError> {
        let index = self.objects.qp_index(qpn)?;
        self.objects.qp_mut(index).attach(what, counter)
    }

    /// Whether messages of a queue pair are with the transport and not yet answered.
    pub fn sends_in_flight(&self, qpn: Qpn) -> Result<bool, DeviceError> {
        let index = self.objects.qp_index(qpn)?;
        Ok(self.objects.requests.iter().any(|(_, request)| request.qp == index && request.is_in_flight()))
    }

    /// Posts a send. What the device finds wrong with it (key, length, handle, operation) shows in its completion.
    #[inline]
    pub fn post_send(&mut self, now: Time, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), DeviceError> {
        self.objects.now = now;
        self.objects.post_send(&mut self.endpoint, qpn, wr)
    }

    /// The same for an answer to somebody whom the program has not named: where nobody has spoken from it fails, and to who may
    /// have forged his address no more is sent than he has sent three times over.
    pub fn post_answer(&mut self, now: Time, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), DeviceError> {
        self.objects.now = now;
        self.objects.post(&mut self.endpoint, qpn, wr, true)
    }

    /// Whether the first messages to a queue pair from somewhere are taken before it is known whether their sender is where he
    /// says (he knows the queue key, which may be known to everybody). If not, he is asked first. It is so from the beginning.
    pub fn trust_newcomers(&mut self, qpn: Qpn, trust: bool) {
        if let Ok(index) = self.objects.qp_index(qpn) {
            self.objects.qp_mut(index).trusts_newcomers = trust;
        }
    }

    /// Everybody knows the queue key of that queue pair, and who sends to it comes back if there is no buffer for him. So strangers
    /// do not get all of its buffers for messages that come in several packets, and one who says that he is somebody to
    /// whom the program has sent something is not believed before he has shown where he is.
    pub fn set_well_known(&mut self, qpn: Qpn) {
        if let Ok(index) = self.objects.qp_index(qpn) {
            self.objects.qp_mut(index).well_known = true;
        }
    }

    /// Of the receives posted to that queue pair, to which none has been posted yet, a message takes the one that was posted last, not
    /// the first: for who does not mind, since the memory that was used last is the one that caches hold.
    pub fn take_newest_receive(&mut self, qpn: Qpn) {
        if let Ok(index) = self.objects.qp_index(qpn) {
            self.objects.qp_mut(index).rq.take_newest_first();
        }
    }

    /// From now on the queue pair takes so many receives: of one descriptor each, if its program writes descriptors itself.
    pub fn set_receives(&mut self, qpn: Qpn, receives: u32) {
        if let Ok(index) = self.objects.qp_index(qpn) {
            let most = self.objects.config.max_rq;
            self.objects.qp_mut(index).init.rq_depth = receives.min(most);
        }
    }

    /// So many work requests came from queues in the program's memory.
    pub fn count_from_memory(&mut self, requests: u64) {
        self.objects.counters.wrs_from_memory += requests;
    }

    /// A work request of such a queue has failed before it could be posted.
    pub fn count_refused(&mut self, qpn: Qpn, op: CompletionOp) {
        if let Ok(index) = self.objects.qp_index(qpn) {
            self.objects.qp(index).attached.failed(Counted::of(op));
        }
    }

    /// Of messages of `least` bytes and more to that queue pair, which is an SRD one, is told as soon as their first packet is there,
    /// if nothing else of them has come before ([`Device::poll_begun`]).
    pub fn tell_begun(&mut self, qpn: Qpn, least: u32) {
        if let Ok(index) = self.objects.qp_index(qpn) {
            self.objects.qp_mut(index).tells_begun = least;
        }
    }

    /// The message whose first bytes were in the packet that was just handled, if more of it is to come. Its receive has not completed,
    /// and may never do.
    #[inline]
    pub fn poll_begun(&mut self) -> Option<Begun> {
        self.objects.begun.take()
    }

    /// What comes of that message from byte `front` on goes to `rest` from now on, until the receive completes or
    /// [`Device::divert_back`] is called; what has come already is in the receive. False: nothing has changed, since the message
    /// has ended, it does not fit, or its receive has more pieces than one.
    pub fn divert(&mut self, begun: &Begun, front: u32, rest: &Sge) -> bool {
        self.objects.divert(begun, front, rest)
    }

    /// What comes of it from now on goes to its receive again, as if nothing of it had been elsewhere. It may have ended.
    pub fn divert_back(&mut self, inbound: InboundId) {
        self.objects.divert_back(inbound);
    }

    /// How many messages our queue pair `qpn` and those behind the same port have under way to the instance that serves queue
    /// pair `at` of host `gid`, if that may have forged its address; `None` if it has not.
    pub fn unproven(&self, qpn: Qpn, gid: Gid, at: Qpn) -> Option<usize> {
        let port = self.objects.port_of(qpn).ok()?;
        let to = InstanceAddr { gid, port: self.objects.config.port_base.wrapping_add(at.0 / QPS_PER_PORT) };
        self.endpoint.unproven(self.endpoint.context_of(port, to)?)
    }

    /// How many sends the queue pair takes now. So many posts do not fail for lack of room.
    pub fn send_room(&self, qpn: Qpn) -> Result<usize, DeviceError> {
        self.objects.send_room(qpn)
    }

    /// Posts a receive. Its keys are looked at when a message takes it.
    #[inline]
    pub fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), DeviceError> {
        self.objects.post_recv(qpn, wr)
    }

    /// The transport's number of a receive port (UDP) of ours.
    #[inline]
    fn port_index(&self, port: u16) -> Option<u8> {
        let slot = port.wrapping_sub(self.objects.config.port_base);
        self.objects.numbers.port_of_slot(slot)
    }

    /// As [`srd_proto::Endpoint::handle_packet`]; `port` is the receive port's number (UDP). A packet for a port that
    /// is not ours is dropped and counted.
    #[inline]
    pub fn handle_packet(&mut self, now: Time, port: u16, received: Received<'_, M::Payload>) -> bool {
        self.objects.now = now;
        let Some(index) = self.port_index(port) else {
            self.objects.counters.rx_drops += 1;
            return false;
        };
        self.objects.begun = None; // nobody has asked
        let followed = self.endpoint.handle_packet(now, index, received, &mut self.objects);
        self.do_ready();
        followed
    }

    /// As [`srd_proto::Endpoint::handle_followers`].
    #[inline]
    pub fn handle_followers(
        &mut self,
        now: Time,
        followers: &Followers,
        payload: impl Fn(u32) -> M::Payload,
    ) -> u32 {
        self.objects.begun = None;
        let taken = self.endpoint.handle_followers(now, followers, payload, &mut self.objects);
        if taken > 0 {
            self.do_ready();
        }
        taken
    }

    /// As [`srd_proto::Endpoint::take_unsendable`].
    pub fn take_unsendable(&mut self) -> Option<InstanceAddr> {
        self.endpoint.take_unsendable()
    }

    /// As [`srd_proto::Endpoint::limit_datagram`].
    pub fn limit_datagram(&mut self, gid: Gid, bytes: u16) {
        self.endpoint.limit_datagram(gid, bytes);
    }

    /// As [`srd_proto::Endpoint::refuse`]; `port` is the receive port's number (UDP).
    pub fn refuse(&mut self, now: Time, port: u16, from: InstanceAddr, src_tag: Tag, dst_tag: Tag) {
        if let Some(index) = self.port_index(port) {
            self.endpoint.refuse(now, index, from, src_tag, dst_tag);
        }
    }

    /// As [`srd_proto::Endpoint::other_version`]; `port` is the receive port's number (UDP).
    pub fn other_version(&mut self, now: Time, port: u16, gid: Gid, preamble: &Preamble, bytes: usize) {
        if let Some(index) = self.port_index(port) {
            self.endpoint.other_version(now, index, gid, preamble, bytes);
        }
    }

    /// As [`srd_proto::Endpoint::poll_transmit`].
    #[inline]
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit<M::Payload>> {
        self.endpoint.poll_transmit(now)
    }

    /// As [`srd_proto::Endpoint::poll_transmit_with`].
    #[inline]
    pub fn poll_transmit_with<R>(
        &mut self,
        now: Time,
        sink: impl FnMut(Transmit<M::Payload>) -> R,
    ) -> Option<R> {
        self.endpoint.poll_transmit_with(now, sink)
    }

    /// As [`srd_proto::Endpoint::poll_followers`].
    #[inline]
    pub fn poll_followers(&mut self, now: Time, most: usize, sink: impl FnMut(Followers, &M::Payload)) {
        self.endpoint.poll_followers(now, most, sink);
    }

    /// The memory of a message that packets to `peer` call `message` is not there any more, though its region is
    /// registered: a program may unmap memory of which it knows that nobody needs it (libfabric deregisters what it caches
    /// later). Nothing more of it is sent. A work request completes with a local key error; who reads is told.
    pub fn unreadable(&mut self, now: Time, peer: PeerId, message: MsgId) {
        self.objects.now = now;
        let Some(token) = self.endpoint.token_of(peer, message) else { return };
        self.objects.unreadable(&mut self.endpoint, token);
    }

    /// As [`srd_proto::Endpoint::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        self.objects.now = now;
        self.endpoint.handle_timeout(now, &mut self.objects);
        while let Some(work) = self.objects.deferred.pop_due(now) {
            self.work(work);
        }
        self.do_ready();
    }

    /// As [`srd_proto::Endpoint::silent_peers`].
    pub fn silent_peers(&self, now: Time, silence: Nanos) -> impl Iterator<Item = InstanceAddr> {
        self.endpoint.silent_peers(now, silence)
    }

    /// As [`srd_proto::Endpoint::peer_is_gone`].
    pub fn peer_is_gone(&mut self, now: Time, addr: InstanceAddr) {
        self.objects.now = now;
        self.endpoint.peer_is_gone(now, addr, &mut self.objects);
        self.do_ready();
    }

    /// As [`srd_proto::Endpoint::next_timeout`].
    #[inline]
    pub fn next_timeout(&self) -> Time {
        self.endpoint.next_timeout().min(self.objects.deferred.next_due())
    }

    /// The same for somebody who may not send anything now.
    #[inline]
    pub fn next_timer(&self) -> Time {
        self.endpoint.next_timer().min(self.objects.deferred.next_due())
    }

    /// As [`srd_proto::Endpoint::has_to_send`].
    #[inline]
    pub fn has_to_send(&self, now: Time) -> bool {
        self.endpoint.has_to_send(now)
    }

    #[inline]
    fn do_ready(&mut self) {
        while let Some(work) = self.objects.deferred.pop_ready() {
            self.work(work);
        }
    }

    fn work(&mut self, work: Deferred) {
        self.objects.work(&mut self.endpoint, work);
    }

    /// Everything that is counted: the device's own counters, and the transport's.
    pub fn counters(&self) -> Counters {
        let stats = self.endpoint.stats();
        let dropped = stats.stale_incarnation
            + stats.replaced_incarnation
            + stats.unintroduced
            + stats.out_of_window
            + stats.partial_limit_drops
            + stats.peer_limit_drops
            + stats.reflected
            + stats.inconsistent;
        Counters {
            tx_bytes: stats.tx_bytes,
            tx_pkts: stats.tx_pkts,
            rx_bytes: stats.rx_bytes,
            rx_pkts: stats.rx_pkts,
            rx_drops: self.objects.counters.rx_drops + dropped,
            retrans_bytes: stats.retrans_bytes,
            retrans_pkts: stats.retrans_pkts,
            retrans_timeout_events: stats.retrans_timeout_events,
            unresponsive_remote_events: stats.unresponsive_remote_events,
            impaired_remote_conn_events: stats.impaired_remote_conn_events,
            ..self.objects.counters
        }
    }
}
