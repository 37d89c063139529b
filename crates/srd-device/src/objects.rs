//! All objects of a device but the transport, so that the transport can call them while it works. Who may do what with
//! an object is decided here; what happens to work requests is in [`crate::requester`] and [`crate::responder`].

use crate::address_handle::{AddressHandles, Last};
use crate::api::*;
use crate::async_event::AsyncEvents;
use crate::completion_queue::{CompletionQueue, Pushed};
use crate::counters::Counters;
use crate::deferred::{Deferred, DeferredQueues};
use crate::inbound::{InboundMessage, ReadResponse};
use crate::memory_region::Regions;
use crate::queue_pair::{QpNumbers, QueuePair, SLOTS};
use crate::send_queue::{Ending, Progress, SendRequest, completion_op};
use crate::slab::Slab;
use crate::staged::{DeviceEnd, Fate, Posting, Stage};
use crate::transport::Transport;
use srd_proto::PeerId;
use srd_wire::{Gid, KeyedHash, MrKey, Nanos, Qpn, Status, Time};
use std::collections::{HashMap, VecDeque};

/// See the module.
pub(crate) struct Objects<M: Memory> {
    pub config: DeviceConfig,
    pub gid: Gid,
    /// The time of the call that is under way, or of the last one.
    pub now: Time,
    pub memory: M,
    /// Of the objects whose keys peers choose.
    pub hash: KeyedHash,
    pub regions: Regions,
    pub handles: AddressHandles,
    pub numbers: QpNumbers,
    pub queue_pairs: Slab<QueuePair>,
    pub requests: Slab<SendRequest<M::Payload>>,
    pub inbound: Slab<InboundMessage>,
    /// The newest of those that are told of.
    pub begun: Option<Begun>,
    pub read_responses: Slab<ReadResponse<M::Payload>>,
    /// How many of them each peer has, by its slot.
    pub read_responses_of: Vec<u16>,
    pub deferred: DeferredQueues,

    /// Peers that owe us read data and are sent a keepalive now and then; whether one is asked for.
    pub watched: HashMap<PeerId, bool, KeyedHash>,
    /// Scratch: peers whose messages are being cancelled.
    pub peers: Vec<PeerId>,
    pub counters: Counters,
    completion_queues: Vec<Option<CompletionQueue>>,
    notifications: VecDeque<CqId>,
    events: AsyncEvents,
    /// The last peer that fell silent, and whether it had ever answered.
    pub silent: Option<(srd_wire::InstanceAddr, bool)>,
    /// Faults on purpose, if there are any.
    pub stage: Option<Box<Stage>>,
    /// The device has ended on purpose.
    pub ended: Option<DeviceEnd>,
}

/// Why a call failed that needs a queue pair.
pub(crate) const NO_QP: DeviceError = DeviceError::NotFound("queue pair: take the number from create_qp");
const NO_CQ: DeviceError = DeviceError::NotFound("completion queue: take the number from create_cq");

impl<M: Memory> Objects<M> {
    pub fn new(mut config: DeviceConfig, gid: Gid, seed: u64, memory: M) -> Objects<M> {
        // Work that is put off must lie in the future, or putting it off would never end.
        config.rnr_wait = config.rnr_wait.max(Nanos(1));
        assert!(
            config.port_base as usize + SLOTS <= 1 << 16,
            "port_base {}: 65024 is the highest, all {SLOTS} slots need a port",
            config.port_base,
        );
        let hash = KeyedHash::new(seed);
        let stage = Stage::new(&config.staged);
        Objects {
            hash,
            regions: Regions::new(config.max_pd, config.max_mr, hash),
            handles: AddressHandles::new(config.max_ah, hash),
            config,
            gid,
            now: Time::default(),
            memory,
            numbers: QpNumbers::new(),
            queue_pairs: Slab::new(),
            requests: Slab::new(),
            inbound: Slab::new(),
            begun: None,
            read_responses: Slab::new(),
            read_responses_of: Vec::new(),
            deferred: DeferredQueues::default(),

            watched: HashMap::with_hasher(hash),
            peers: Vec::new(),
            counters: Counters::default(),
            completion_queues: Vec::new(),
            notifications: VecDeque::new(),
            events: AsyncEvents::default(),
            silent: None,
            stage,
            ended: None,
        }
    }

    /// The QPN block of a receive port.
    pub fn slot_of_port(&self, port: u16) -> Result<u16, DeviceError> {
        port.checked_sub(self.config.port_base)
            .filter(|&slot| (slot as usize) < SLOTS)
            .ok_or(DeviceError::Invalid("port: must lie in port_base .. port_base + 512"))
    }

    #[inline]
    pub fn qp_index(&self, qpn: Qpn) -> Result<u32, DeviceError> {
        self.numbers.find(qpn).ok_or(NO_QP)
    }

    #[inline]
    pub fn qp(&self, index: u32) -> &QueuePair {
        self.queue_pairs.at(index).expect("work of a queue pair ends before it does")
    }

    #[inline]
    pub fn qp_mut(&mut self, index: u32) -> &mut QueuePair {
        self.queue_pairs.at_mut(index).expect("work of a queue pair ends before it does")
    }

    /// Does a piece of work whose time has come, if its object is still there.
    pub fn work<T: Transport<M::Payload>>(&mut self, transport: &mut T, work: Deferred) {
        match work {
            Deferred::Start(key) => self.start_or_wait(transport, key),
            Deferred::ReadResponse(key) => self.send_read_response(transport, key),
            Deferred::FailRead { peer, read, status } => self.fail_read(transport, peer, read, status),
            Deferred::Watch(peer) => self.ask_watched(transport, peer),
            Deferred::Alarm(cq) => self.ring(cq),
            Deferred::Late => self.complete_held(),
            Deferred::End(end) => self.ended = self.ended.or(Some(end)),
        }
    }

    // Protection domains and memory regions.

    pub fn alloc_pd(&mut self) -> Result<PdId, DeviceError> {
        self.regions.alloc_pd().inspect_err(|_| self.counters.alloc_pd_err += 1)
    }

    pub fn reg_mr(
        &mut self,
        pd: PdId,
        addr: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<MrKey, DeviceError> {
        // efa_reg_mr: rights that the device does not offer cannot be given (EOPNOTSUPP).
        let registered = if access.remote_read && !self.config.rdma_read {
            Err(DeviceError::Unsupported("remote_read: this device does not offer RDMA read"))
        } else if access.remote_write && !self.config.rdma_write {
            Err(DeviceError::Unsupported("remote_write: this device does not offer RDMA write"))
        } else {
            self.regions.register(pd, addr, len, iova, access)
        };
        registered.inspect_err(|_| self.counters.reg_mr_err += 1)
    }

    /// What is under way with the region ends at once, so that its memory may go when this returns.
    pub fn dereg_mr<T: Transport<M::Payload>>(
        &mut self,
        transport: &mut T,
        key: MrKey,
    ) -> Result<(), DeviceError> {
        self.regions.deregister(key)?;
        self.keep_what_has_left(transport, key);
        self.end_requests(transport, Ending::Complete(Status::LocalInvalidLkey), |request| {
            request.keys.contains(&key)
        });
        self.end_landings_in(key);
        self.end_answers(transport, Status::RemoteBadAddress, |answer| answer.rkey == key);
        Ok(())
    }

    // Address handles.

    pub fn create_ah(&mut self, pd: PdId, gid: Gid) -> Result<AhNumber, DeviceError> {
        let made = self.regions.check_pd(pd).and_then(|()| self.handles.create(pd, gid));
        if made.is_ok() {
            self.regions.enter(pd).expect("it was found a moment ago");
        }
        made.inspect_err(|_| self.counters.create_ah_err += 1)
    }

    /// SRD.txt, section 1: "If an AH is destroyed, any outstanding WRs using that AH are completed in error."
    pub fn destroy_ah<T: Transport<M::Payload>>(
        &mut self,
        transport: &mut T,
        pd: PdId,
        ah: AhNumber,
    ) -> Result<(), DeviceError> {
        let last = self.handles.destroy(pd, ah)?;
        self.regions.leave(pd);
        if last == Last::No {
            return Ok(());
        }
        if let (Last::OfDevice, Some(stage)) = (last, &mut self.stage) {
            stage.forget_handle(ah);
        }
        let in_domain: Vec<u32> =
            self.queue_pairs.iter().filter(|(_, qp)| qp.init.pd == pd).map(|(key, _)| key.index).collect();
        self.end_requests(transport, Ending::Complete(Status::Flushed), |request| {
            request.ah == ah && !request.told && in_domain.contains(&request.qp)
        });
        Ok(())
    }

    // Completion queues.

    pub fn create_cq(&mut self, depth: u32) -> Result<CqId, DeviceError> {
        self.try_create_cq(depth).inspect_err(|_| self.counters.create_cq_err += 1)
    }

    fn try_create_cq(&mut self, depth: u32) -> Result<CqId, DeviceError> {
        if depth == 0 || depth > self.config.max_cqe {
            return Err(DeviceError::Invalid("depth: 1 to DeviceConfig::max_cqe"));
        }
        let index = match self.completion_queues.iter().position(Option::is_none) {
            Some(index) => index,
            None if (self.completion_queues.len() as u32) < self.config.max_cq => {
                self.completion_queues.push(None);
                self.completion_queues.len() - 1
            }
            None => return Err(DeviceError::Full("completion queues (DeviceConfig::max_cq)")),
        };
        self.completion_queues[index] = Some(CompletionQueue::new(depth));
        Ok(CqId(index as u32))
    }

    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), DeviceError> {
        if self.cq(cq)?.users > 0 {
            return Err(DeviceError::Busy("completion queue: a queue pair completes there"));
        }
        self.completion_queues[cq.0 as usize] = None;
        self.notifications.retain(|&waiting| waiting != cq);
        Ok(())
    }

    #[inline]
    fn cq(&mut self, cq: CqId) -> Result<&mut CompletionQueue, DeviceError> {
        self.completion_queues.get_mut(cq.0 as usize).and_then(Option::as_mut).ok_or(NO_CQ)
    }

    pub fn arm_cq(&mut self, cq: CqId, solicited_only: bool) -> Result<(), DeviceError> {
        self.cq(cq)?.arm(solicited_only);
        Ok(())
    }

    /// Takes back what was armed, what has fired and the alarm: nobody need be told of anything until it is armed again.
    #[inline]
    pub fn disarm_cq(&mut self, cq: CqId) -> Result<(), DeviceError> {
        let queue = self.cq(cq)?;
        queue.disarm();
        if std::mem::take(&mut queue.notified) {
            self.notifications.retain(|&waiting| waiting != cq);
        }
        Ok(())
    }

    /// The alarm is a number in the queue. The work that rings is queued only for an earlier time than any before, so that
    /// an alarm that is put off again and again costs nothing.
    #[inline]
    pub fn set_alarm(&mut self, cq: CqId, at: Time) -> Result<(), DeviceError> {
        let queue = self.cq(cq)?;
        queue.alarm = at;
        if at < queue.alarm_queued {
            queue.alarm_queued = at;
            self.deferred.push_later(at, Deferred::Alarm(cq));
        }
        Ok(())
    }

    fn ring(&mut self, cq: CqId) {
        let now = self.now;
        let Ok(queue) = self.cq(cq) else { return };
        if queue.alarm_queued <= now {
            queue.alarm_queued = Time::NEVER;
        }
        let at = queue.alarm;
        if at > now {
            self.set_alarm(cq, at).expect("it was found a moment ago");
            return;
        }
        queue.alarm = Time::NEVER;
        self.notify(cq);
    }

    fn notify(&mut self, cq: CqId) {
        let queue = self.cq(cq).expect("a queue stays while somebody is told of it");
        if !std::mem::replace(&mut queue.notified, true) {
            self.notifications.push_back(cq);
        }
    }

    pub fn poll_notification(&mut self) -> Option<CqId> {
        let cq = self.notifications.pop_front()?;
        self.cq(cq).expect("notifications go with their queue").notified = false;
        Some(cq)
    }

    #[inline]
    pub fn has_fired(&self) -> bool {
        !self.notifications.is_empty() || !self.events.is_empty() || self.ended.is_some()
    }

    pub fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop()
    }

    pub fn raise(&mut self, event: AsyncEvent) {
        if !self.events.push(event) {
            self.counters.async_events_lost += 1;
        }
    }

    /// Polling frees the slot of the queue that the work request was posted to.
    #[inline]
    pub fn poll_cq(&mut self, cq: CqId) -> Option<Completion> {
        let completion = self.completion_queues.get_mut(cq.0 as usize)?.as_mut()?.pop()?;
        self.free_slot(&completion);
        Some(completion)
    }

    #[inline]
    pub fn has_news(&self, cq: CqId) -> bool {
        matches!(self.completion_queues.get(cq.0 as usize), Some(Some(queue)) if queue.has_news())
    }

    pub fn tell_losses(&mut self, cq: CqId) -> Result<(), DeviceError> {
        self.cq(cq)?.tells_losses = true;
        Ok(())
    }

    #[inline]
    pub fn poll_loss(&mut self, cq: CqId) -> Option<Loss> {
        self.completion_queues.get_mut(cq.0 as usize)?.as_mut()?.pop_loss()
    }

    #[inline]
    pub fn has_losses(&self, cq: CqId) -> bool {
        let queue = self.completion_queues.get(cq.0 as usize).and_then(Option::as_ref);
        queue.is_some_and(CompletionQueue::has_losses)
    }

    pub fn losses(&self, cq: CqId) -> impl Iterator<Item = Loss> {
        let queue = self.completion_queues.get(cq.0 as usize).and_then(Option::as_ref);
        queue.into_iter().flat_map(CompletionQueue::losses)
    }

    /// A peer is lost: those who want to know are told, in the order of things.
    pub fn tell_loss(&mut self, loss: Loss) {
        for index in 0..self.completion_queues.len() {
            let queue = self.completion_queues[index].as_mut().filter(|queue| queue.tells_losses);
            if queue.is_some_and(|queue| queue.push_loss(loss)) {
                self.notify(CqId(index as u32));
            }
        }
    }

    #[inline]
    fn free_slot(&mut self, completion: &Completion) {
        let index = self.numbers.find(completion.qpn).expect("completions go with their queue pair");
        let qp = self.qp_mut(index);
        match completion.op {
            CompletionOp::Send | CompletionOp::Read | CompletionOp::Write => qp.sq.used -= 1,
            CompletionOp::Recv | CompletionOp::RecvRdmaWithImm if completion.unsolicited => {}
            CompletionOp::Recv | CompletionOp::RecvRdmaWithImm => qp.rq.used -= 1,
        }
    }

    /// Puts a completion into its queue. One that finds no room is lost, which is an event; its slot is free then,
    /// since nobody can poll it.
    #[inline]
    pub fn complete(&mut self, cq: CqId, completion: Completion) {
        self.counters.completed_wrs += 1;
        if let Some(stage) = &mut self.stage {
            match stage.complete(self.now, cq, &completion) {
                Fate::Comes => stage.overtake(cq),
                Fate::ComesBy(due) => return self.deferred.push_later(due, Deferred::Late),
                Fate::Lost => return self.lose(cq, &completion, true),
            }
            self.enqueue(cq, completion);
            return self.complete_held();
        }
        self.enqueue(cq, completion);
    }

    #[inline]
    fn enqueue(&mut self, cq: CqId, completion: Completion) {
        let queue = self.cq(cq).expect("a queue stays while a queue pair completes there");
        match queue.push(completion) {
            Pushed::Queued => {}
            Pushed::Notify => self.notify(cq),
            Pushed::Lost { first } => self.lose(cq, &completion, first),
        }
    }

    #[cold]
    fn lose(&mut self, cq: CqId, completion: &Completion, first: bool) {
        self.counters.cq_overruns += 1;
        self.free_slot(completion);
        if first {
            self.raise(AsyncEvent::CqOverrun(cq));
        }
    }

    fn complete_held(&mut self) {
        while let Some((cq, completion)) = self.stage.as_mut().and_then(|stage| stage.pop_held(self.now)) {
            self.enqueue(cq, completion);
        }
    }

    /// A work request is posted, and faults are staged: the status with which it fails instead of being sent.
    #[cold]
    pub fn stage_post<T: Transport<M::Payload>>(
        &mut self,
        transport: &mut T,
        qpn: Qpn,
        wr: &SendWr<'_>,
    ) -> Option<Status> {
        let stage = self.stage.as_mut()?;
        let (posting, end) = stage.post(qpn, wr.op, wr.ah);
        for (wait, end) in stage.ends() {
            self.deferred.push_later(self.now + wait, Deferred::End(end));
        }
        self.ended = self.ended.or(end);
        match posting {
            Posting::Sent => None,
            Posting::Fails(status) => Some(status),
            Posting::GoesStale => {
                if self.handles.get(wr.ah).is_some() && stage.go_stale(wr.ah) {
                    // As if somebody had destroyed it: see `destroy_ah`.
                    self.end_requests(transport, Ending::Complete(Status::Flushed), |request| {
                        request.ah == wr.ah && !request.told
                    });
                }
                Some(Status::LocalInvalidAh)
            }
        }
    }

    /// See [`crate::Device::last_completions`].
    pub fn last_completions(&self) -> Vec<(CqId, Completion)> {
        let mut last = Vec::new();
        for (id, queue) in (0..).map(CqId).zip(&self.completion_queues) {
            last.extend(queue.iter().flat_map(CompletionQueue::waiting).map(|completion| (id, *completion)));
        }
        last.extend(self.stage.iter().flat_map(|stage| stage.held()));
        for (key, qp) in self.queue_pairs.iter() {
            // The list may be a ring by now.
            let requests = qp.sq.iter(&self.requests).take(self.requests.len() as usize);
            for (_, request) in requests.filter(|(_, request)| !request.told) {
                let op = completion_op(request.op);
                last.push((qp.init.send_cq, Completion::bare(request.wr_id, op, qp.qpn, Status::Flushed)));
            }
            for receive in self.receives_of(key.index) {
                let failed = Completion::bare(receive.wr_id, CompletionOp::Recv, qp.qpn, Status::Flushed);
                last.push((qp.init.recv_cq, failed));
            }
        }
        last
    }

    // Queue pairs.

    pub fn create_qp(&mut self, init: QpInit) -> Result<Qpn, DeviceError> {
        self.try_create_qp(init, None).inspect_err(|_| self.counters.create_qp_err += 1)
    }

    pub fn create_numbered_qp(&mut self, init: QpInit, number: Qpn) -> Result<Qpn, DeviceError> {
        self.try_create_qp(init, Some(number)).inspect_err(|_| self.counters.create_qp_err += 1)
    }

    fn try_create_qp(&mut self, init: QpInit, number: Option<Qpn>) -> Result<Qpn, DeviceError> {
        self.check_qp(&init)?;
        if self.queue_pairs.len() == self.config.max_qp {
            return Err(DeviceError::Full("queue pairs (DeviceConfig::max_qp)"));
        }
        // `Full("port")` is the one refusal that the caller mends: by adding a receive port.
        let (qpn, port) = match number {
            Some(qpn) => (qpn, self.numbers.check_free(qpn)?),
            None => self.numbers.free_number().ok_or(DeviceError::Full("port"))?,
        };
        self.regions.enter(init.pd)?;
        self.cq(init.send_cq)?.users += 1;
        self.cq(init.recv_cq)?.users += 1;
        let qp = QueuePair::new(qpn, port, init, &self.config);
        let key = self.queue_pairs.insert(qp);
        self.numbers.take(qpn, key.index);
        Ok(qpn)
    }

    /// efa_qp_validate_cap, efa_qp_validate_attr.
    fn check_qp(&mut self, init: &QpInit) -> Result<(), DeviceError> {
        self.regions.check_pd(init.pd)?;
        self.cq(init.send_cq)?;
        self.cq(init.recv_cq)?;
        let config = &self.config;
        let limits: [(bool, DeviceError); 9] = [
            (init.sq_depth > config.max_sq, DeviceError::Invalid("sq_depth: more than DeviceConfig::max_sq")),
            (init.rq_depth > config.max_rq, DeviceError::Invalid("rq_depth: more than DeviceConfig::max_rq")),
            (init.send_sge as usize > MAX_SEND_SGE, DeviceError::Invalid("send_sge: 2 is the most")),
            (init.recv_sge as usize > MAX_RECV_SGE, DeviceError::Invalid("recv_sge: 3 is the most")),
            (init.inline as usize > MAX_INLINE, DeviceError::Invalid("inline: 32 bytes is the most")),
            (init.rdma_read && !config.rdma_read, DeviceError::Unsupported("rdma_read: not offered here")),
            (init.rdma_write && !config.rdma_write, DeviceError::Unsupported("rdma_write: not offered here")),
            (
                init.unsolicited_write_recv && !config.unsolicited_write_recv,
                DeviceError::Unsupported("unsolicited_write_recv: not offered here"),
            ),
            (
                init.kind == QpKind::Ud && (init.rdma_read || init.rdma_write || init.unsolicited_write_recv),
                DeviceError::Unsupported("RDMA: SRD queue pairs only"),
            ),
        ];
        match limits.into_iter().find(|(exceeded, _)| *exceeded) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    pub fn query_qp(&self, qpn: Qpn) -> Result<QpInfo, DeviceError> {
        let qp = self.qp(self.qp_index(qpn)?);
        let draining = qp.state == QpState::Sqd
            && qp.sq.iter(&self.requests).any(|(_, request)| request.progress != Progress::Held);
        Ok(QpInfo {
            state: qp.state,
            init: qp.init,
            qkey: qp.qkey,
            sq_psn: qp.sq_psn,
            rnr_retry: qp.rnr_retry,
            draining,
        })
    }

    pub fn modify_qp<T: Transport<M::Payload>>(
        &mut self,
        transport: &mut T,
        qpn: Qpn,
        change: &QpModify,
    ) -> Result<(), DeviceError> {
        let index = self.qp_index(qpn)?;
        let qp = self.queue_pairs.at_mut(index).ok_or(NO_QP)?;
        let from = qp.modify(change, &self.config)?;
        match (from, qp.state) {
            (QpState::Sqd, QpState::Rts) => self.release_held(transport, index),
            (from, QpState::Err) if from != QpState::Err => self.flush(transport, index),
            (from, QpState::Reset) if from != QpState::Reset => self.drop_all(transport, index),
            _ => {}
        }
        Ok(())
    }

    /// docs/design/efa-verbs.md, "Trap 2": nothing of it may complete after this. SRD.txt, section 1: its sends are cancelled
    /// "without affecting SRD processing of other WRs".
    pub fn destroy_qp<T: Transport<M::Payload>>(
        &mut self,
        transport: &mut T,
        qpn: Qpn,
    ) -> Result<(), DeviceError> {
        let index = self.qp_index(qpn)?;
        self.drop_all(transport, index);
        let key = self.queue_pairs.key_at(index).ok_or(NO_QP)?;
        let qp = self.queue_pairs.remove(key).ok_or(NO_QP)?;
        self.numbers.give_back(qpn);
        self.regions.leave(qp.init.pd);
        for cq in [qp.init.send_cq, qp.init.recv_cq] {
            self.cq(cq)?.users -= 1;
        }
        Ok(())
    }

    /// To ERR: everything that is posted completes flushed, each queue in its order.
    fn flush<T: Transport<M::Payload>>(&mut self, transport: &mut T, index: u32) {
        self.end_requests(transport, Ending::Complete(Status::Flushed), |request| {
            request.qp == index && !request.told
        });
        self.flush_receives(index);
        self.end_answers(transport, Status::RemoteBadDestQpn, |answer| answer.qp == index);
    }

    /// To RESET, and before the end: everything is forgotten, completions that were not polled included.
    fn drop_all<T: Transport<M::Payload>>(&mut self, transport: &mut T, index: u32) {
        self.end_requests(transport, Ending::Forget, |request| request.qp == index);
        self.forget_receives(index);
        self.end_answers(transport, Status::RemoteBadDestQpn, |answer| answer.qp == index);
        let qp = self.qp_mut(index);
        qp.sq.used = 0;
        qp.rq.used = 0;
        let (qpn, queues) = (qp.qpn, [qp.init.send_cq, qp.init.recv_cq]);
        for cq in queues {
            self.cq(cq).expect("a queue stays while a queue pair completes there").purge(qpn);
        }
        if let Some(stage) = &mut self.stage {
            stage.purge(qpn);
        }
    }

    #[inline]
    pub fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), DeviceError> {
        let index = self.qp_index(qpn)?;
        let qp = self.qp_mut(index);
        qp.check_can_post_receive()?;
        if wr.sges.len() > qp.init.recv_sge as usize {
            return Err(DeviceError::Invalid("sges: more than the queue pair's recv_sge"));
        }
        if qp.rq.used == qp.init.rq_depth {
            return Err(DeviceError::Full("receive queue: poll the completion queue first"));
        }
        qp.rq.used += 1;
        qp.rq.post(wr);
        qp.counters.recvs_posted += 1;
        self.counters.submitted_wrs += 1;
        Ok(())
    }
}
