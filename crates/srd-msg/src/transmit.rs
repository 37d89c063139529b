//! Work that an endpoint gives to the device, or a message to a lane: now, or as soon as there is room; and what follows
//! when it is done.

use crate::api::*;
use crate::buffers::Buffer;
use crate::endpoint::Endpoint;
use crate::header::{self, Body, COMMON, Common, LONGEST, LONGEST_WHOLE, Message, may_come_twice, number_in};
use crate::iov::Iovs;
use crate::kept::Turn;
use crate::lane::LaneSend;
use crate::shared::Cx;
use crate::work::{Await, Op, Purpose, Tx, Work};
use arrayvec::ArrayVec;
use srd_device::slab::Key;
use srd_device::{DeviceError, SendData, SendOp, SendWr, Sge, Store};
use srd_wire::Status;

/// A message goes again so often because another process turned out to be there.
const MOST_AGAIN: u8 = 3;

impl Endpoint {
    /// Writes the header of a message to a peer to the front of `buffer`. Returns its length.
    #[inline]
    pub fn write_header<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        body: &Body,
        buffer: &Buffer,
    ) -> usize {
        let toward = self.peers[peer as usize].toward(body);
        let common = self.common(peer, toward, body.number());
        header::encode(&common, body, cx.memory().bytes_mut(buffer.addr, LONGEST))
    }

    /// What every message to a peer begins with: with it the peer hears who we are, and what we have consumed.
    #[inline]
    fn common(&mut self, peer: u32, toward: u32, number: Option<u32>) -> Common {
        let peer = &mut self.peers[peer as usize];
        peer.advertised = peer.consumed;
        peer.introduced = true;
        Common {
            from: self.identity.number.get(),
            well_known: self.identity.well_known,
            toward,
            session: peer.session,
            consumed: peer.consumed,
            former: peer.former,
            back: peer.back(number),
        }
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
        let work = Work::message(cx.shared, purpose, buffer, len, payload);
        self.post(cx, peer, work);
    }

    /// Gives the device work, now or as soon as it has room.
    #[inline]
    pub fn post<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, work: Work) {
        if self.is_by_lane(peer, &work.op) {
            return self.post_near(cx, peer, work);
        }
        let turn = self.turn(cx, peer, &work.purpose);
        if let Turn::OnceProven = turn {
            return self.withhold(cx.shared, peer, work);
        }
        let key = self.enter(cx, peer, work);
        match turn {
            Turn::AfterOthers => self.strangers_wait.push_back(key),
            _ => self.post_entered(cx, key),
        }
    }

    /// Gives the device work that is in the book.
    #[inline]
    pub fn post_entered<M: Store>(&mut self, cx: &mut Cx<'_, M>, key: Key) {
        let Some(tx) = self.tx.get(key) else { return };
        let state = &self.peers[tx.peer as usize];
        if state.ending > 0 || !state.backlog.is_empty() || !self.try_post(cx, key.index) {
            self.enqueue(key.index);
        }
    }

    /// Takes work into the book.
    #[inline]
    fn enter<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, work: Work) -> Key {
        let Work { purpose, buffer, op, sges } = work;
        if matches!(purpose, Purpose::Control | Purpose::Ask) {
            self.reply_begins(cx.shared, peer);
        }
        let state = &mut self.peers[peer as usize];
        state.in_device += 1;
        let header = buffer.as_ref().map(|buffer| cx.memory().bytes(buffer.addr, COMMON + 4));
        let number = header.and_then(number_in);
        if let Some(number) = number {
            state.leaves(number);
        }
        self.tx.insert(Tx { peer, session: state.session, number, purpose, buffer, op, sges, again: 0 })
    }

    /// Gives the peer's lane a message that stands for itself, with its payload from where that lies. False if it has to wait.
    #[inline]
    pub fn give_to_lane<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        to: u32,
        message: &Message,
        payload: &[Iov],
    ) -> bool {
        let common = self.common(to, self.peers[to as usize].identity, Some(message.number));
        let Some(lane) = &mut self.peers[to as usize].lane else { return false };
        let mut header = [0; LONGEST_WHOLE];
        let len = header::encode_message(&common, message, &mut header);
        let mut parts = ArrayVec::<&[u8], { IOV_LIMIT + 1 }>::new();
        parts.push(&header[..len]);
        let (now, memory) = (cx.now, &*cx.memory());
        parts.extend(payload.iter().map(|piece| memory.bytes(piece.addr, piece.len as usize)));
        let sent = lane.send(now, &parts);
        drop(parts);
        self.lane_has(cx, to, sent)
    }

    /// Gives a message to the peer's lane, now or as soon as there is room.
    fn post_near<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, work: Work) {
        let full = !self.peers[peer as usize].backlog.is_empty();
        if full || !self.send_near(cx, peer, &work.sges) {
            return self.wait_for_lane(cx, peer, work);
        }
        if let Some(buffer) = work.buffer {
            cx.give_buffer(buffer);
        }
        match work.purpose {
            Purpose::Eager { context, tagged, report } => {
                self.ended(peer);
                cx.shared.done.push(self.done(Kind::Send { tagged }, context, report));
            }
            Purpose::Part(op) => self.at_once.push(op),
            // Pings go over the network, and reads are no messages.
            Purpose::Control | Purpose::Ask | Purpose::Pull { .. } => {}
        }
    }

    /// A message is for the peer's lane, which has no room.
    #[cold]
    pub fn wait_for_lane<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, work: Work) {
        let key = self.enter(cx, peer, work);
        self.enqueue(key.index);
    }

    /// False if the lane has no room, or leads nowhere any more: what waits for it then fails with its peer.
    fn send_near<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, sges: &[Sge]) -> bool {
        let state = &mut self.peers[peer as usize];
        let Some(lane) = &mut state.lane else { return true };
        let (now, memory) = (cx.now, &*cx.memory());
        let parts: ArrayVec<&[u8], 2> =
            sges.iter().map(|sge| memory.bytes(sge.addr, sge.len as usize)).collect();
        let sent = lane.send(now, &parts);
        drop(parts);
        self.lane_has(cx, peer, sent)
    }

    /// Does what follows from giving a lane a message. Returns whether it has it.
    #[inline(always)]
    fn lane_has<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, sent: LaneSend) -> bool {
        match sent {
            LaneSend::Sent { asleep: false } => true,
            LaneSend::Sent { asleep: true } => {
                self.wake_near(cx, peer);
                true
            }
            LaneSend::Full => false,
            LaneSend::Gone => {
                self.leads_nowhere(cx, peer);
                false
            }
        }
    }

    #[cold]
    fn leads_nowhere<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        if !self.gone.contains(&peer) {
            self.gone.push(peer);
            cx.shared.any_gone = true;
        }
        self.next_ask = cx.now;
    }

    /// A message over the network, which wakes a peer that does not look at its lanes.
    pub fn wake_near<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        let told = self.peers[peer as usize].advertised;
        let buffer = cx.take_buffer(LONGEST);
        let len = self.write_header(cx, peer, &Body::Ping, &buffer);
        // What it says of the window arrives out of turn.
        self.peers[peer as usize].advertised = told;
        let sge = Sge { addr: buffer.addr, len: len as u32, lkey: cx.shared.all_memory };
        let (op, sges) = (SendOp::Send { imm: None }, ArrayVec::from_iter([sge]));
        // Past whatever waits for room in the lane.
        let key = self.enter(cx, peer, Work { purpose: Purpose::Ask, buffer: Some(buffer), op, sges });
        if self.peers[peer as usize].ending > 0 || !self.try_post(cx, key.index) {
            let tx = self.tx.remove(key).expect("just entered");
            self.peers[peer as usize].in_device -= 1;
            self.reply_ends(cx.shared, peer);
            tx.buffer.into_iter().for_each(|buffer| cx.give_buffer(buffer));
            self.peers[peer as usize].asked = false;
        }
    }

    /// Does what follows from work that was done at once.
    #[inline]
    pub fn settle_at_once<M: Store>(&mut self, cx: &mut Cx<'_, M>) {
        if !self.at_once.is_empty() {
            self.settle_all(cx);
        }
    }

    #[inline(never)]
    fn settle_all<M: Store>(&mut self, cx: &mut Cx<'_, M>) {
        while let Some(op) = self.at_once.pop() {
            self.part_done(cx, op, Status::Ok);
        }
    }

    /// Loses the peers whose lanes have led nowhere: see [`crate::Domain::lanes_are_empty`].
    #[cold]
    pub fn settle_gone<M: Store>(&mut self, cx: &mut Cx<'_, M>) {
        for peer in std::mem::take(&mut self.gone) {
            self.lose_peer(cx, peer, Status::RemoteAbort);
        }
    }

    /// Whether work for a peer is a message that takes its lane.
    #[inline]
    fn is_by_lane(&self, peer: u32, op: &SendOp) -> bool {
        matches!(op, SendOp::Send { .. }) && self.peers[peer as usize].lane.is_some()
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
            qkey: peer.qkey(),
            data: SendData::Sges(&tx.sges),
        };
        let (now, device) = (cx.now, cx.device());
        let posted = match peer.is_distant_stranger() {
            true => device.post_answer(now, self.qpn, &wr),
            false => device.post_send(now, self.qpn, &wr),
        };
        match posted {
            Ok(()) => true,
            Err(DeviceError::Full(_)) => false,
            Err(error) => panic!("the device refuses work of the messaging layer: {error}"),
        }
    }

    /// Gives the device, and lanes, what they had no room for.
    pub fn unblock<M: Store>(&mut self, cx: &mut Cx<'_, M>) {
        for _ in 0..self.blocked.len() {
            let Some(peer) = self.blocked.pop_front() else { return };
            while let Some(&index) = self.peers[peer as usize].backlog.front() {
                let tx = self.tx.at(index).expect("it waits");
                let (near, sges) = (self.is_by_lane(peer, &tx.op), tx.sges.clone());
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

    /// What is still to reach peers. Reads are not: nobody but this endpoint has anything of them. Nor is what belongs to
    /// a session that is over.
    pub fn drain(&self) -> Drain {
        let goes_on = |tx: &Tx| {
            tx.session == self.peers[tx.peer as usize].session && !matches!(tx.op, SendOp::Read { .. })
        };
        if self.blocked.iter().any(|&peer| self.peers[peer as usize].lane.is_some()) {
            Drain::Queued
        } else if self.tx.iter().any(|(_, tx)| goes_on(tx)) {
            Drain::Unacknowledged
        } else {
            Drain::Over
        }
    }

    /// Work for a peer that the device does not have is given up.
    pub fn drop_backlog<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, status: Status) {
        self.drop_withheld(cx, peer);
        let backlog = std::mem::take(&mut self.peers[peer as usize].backlog);
        self.blocked.retain(|&blocked| blocked != peer);
        for index in backlog {
            self.work_done(cx, index, status);
        }
    }

    /// Whether a message that was lost with its context may go again: to another process than the device knew of, or by a
    /// lane. It waits until it is known why the context has ended. Where the address has no key a message may be meant for
    /// either of two processes, unless something has come from the peer in this session; and both may get it, one after the
    /// other.
    #[cold]
    fn may_go_again(&mut self, index: u32, status: Status) -> bool {
        let tx = self.tx.at_mut(index).expect("the caller has it");
        let peer = &mut self.peers[tx.peer as usize];
        let may = peer.addr.key != 0 || !peer.spoken || peer.lane.is_some();
        let of_now = tx.session == peer.session && peer.ending > 0;
        if !may || !of_now || !matches!(tx.op, SendOp::Send { .. }) || tx.again == MOST_AGAIN {
            return false;
        }
        tx.again += 1;
        peer.aborted.push((index, status));
        true
    }

    /// What was lost with a context goes again, before everything else, or has failed. `another`: to another process, which
    /// cannot have any of it. By a lane goes what does no harm if it comes twice: its number tells.
    pub fn settle_aborted<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, another: bool) {
        let near = self.peers[peer as usize].lane.is_some();
        let mut again = Vec::new();
        for (index, status) in std::mem::take(&mut self.peers[peer as usize].aborted) {
            let tx = self.tx.at(index).expect("it was kept");
            let header = tx.buffer.as_ref().map(|buffer| cx.memory().bytes(buffer.addr, COMMON));
            let of_now = tx.session == self.peers[peer as usize].session;
            if of_now && (another || near && header.is_some_and(may_come_twice)) {
                self.awaits_acceptance(cx, index);
                again.push(index);
            } else {
                self.fail_work(cx, index, status);
            }
        }
        let state = &mut self.peers[peer as usize];
        if state.backlog.is_empty() && !again.is_empty() {
            self.blocked.push_back(peer);
        }
        again.into_iter().rev().for_each(|index| state.backlog.push_front(index));
    }

    /// The operation of which a message goes again is not over before the peer has accepted the session, if that may still drop
    /// what has come.
    fn awaits_acceptance<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        let tx = self.tx.at(index).expect("the caller has it");
        let (peer, purpose) = (tx.peer, tx.purpose);
        if !self.peers[peer as usize].may_drop(self.identity.well_known) {
            return;
        }
        let op = match purpose {
            Purpose::Part(op) => op,
            Purpose::Eager { context, tagged, report } => {
                self.ended(peer); // as what it was begun
                let kind = Kind::Send { tagged };
                let op = Op { kind, report, parts: 1, ..Op::new(peer, context, Iovs::new()) };
                let op = self.begin_op(op).index;
                self.tx.at_mut(index).expect("as above").purpose = Purpose::Part(op);
                op
            }
            Purpose::Control | Purpose::Ask | Purpose::Pull { .. } => return,
        };
        if self.ops.at(op).is_some_and(|op| op.awaits == Await::Nothing) {
            self.await_acceptance(cx, op);
        }
    }

    /// A piece of work is done, well or not.
    #[inline]
    pub fn work_done<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32, status: Status) {
        let Some(key) = self.tx.key_at(index) else { return };
        if is_of_context(status) && self.may_go_again(index, status) {
            return;
        }
        self.end_work(cx, key, status);
    }

    /// The same, for what does not go again.
    fn fail_work<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32, status: Status) {
        if let Some(key) = self.tx.key_at(index) {
            self.end_work(cx, key, status);
        }
    }

    #[inline]
    fn end_work<M: Store>(&mut self, cx: &mut Cx<'_, M>, key: Key, status: Status) {
        let tx = self.tx.remove(key).expect("its key was found");
        if let Some(buffer) = tx.buffer {
            cx.give_buffer(buffer);
        }
        let peer = tx.peer;
        let state = &mut self.peers[peer as usize];
        state.in_device -= 1;
        if tx.session == state.session {
            if let (Status::Ok, Some(number)) = (status, tx.number) {
                state.delivered(number);
            } else if status != Status::Ok {
                let message = matches!(tx.op, SendOp::Send { .. }) && !matches!(tx.purpose, Purpose::Ask);
                self.not_delivered(cx, peer, tx.number, message, status);
            }
        }
        if let Purpose::Eager { context, tagged, report } = tx.purpose {
            self.ended(peer);
            let error = (status != Status::Ok).then(|| failure_of(status));
            let kind = Kind::Send { tagged };
            cx.shared.done.push(Done { error, ..self.done(kind, context, report) });
        }
        match tx.purpose {
            Purpose::Eager { .. } => {}
            Purpose::Control => self.reply_is_over(cx, peer),
            Purpose::Ask => {
                self.reply_is_over(cx, peer);
                self.peers[peer as usize].asked = false;
            }
            Purpose::Part(op) => self.part_done(cx, op, status),
            Purpose::Pull { incoming, len } => self.pulled(cx, incoming, len, status),
        }
    }
}

impl Endpoint {
    /// Work of a session that goes on was not done.
    #[cold]
    fn not_delivered<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        number: Option<u32>,
        message: bool,
        status: Status,
    ) {
        let state = &mut self.peers[peer as usize];
        if state.ending > 0 {
            // The context has ended, and what that means is decided when its turn comes.
            state.gaps |= message;
        } else if status == Status::RemoteBadDestQpn {
            // Nobody has that key, or will ever have it.
            state.lane = None;
            self.lose_peer(cx, peer, status);
        } else if let Some(number) = number {
            // It alone has failed. Others wait for their turn behind it.
            self.tell(cx, peer, &Body::Void { number });
            self.peers[peer as usize].delivered(number);
        }
    }
}

/// How a status of the device shows.
pub(crate) fn failure_of(status: Status) -> Failure {
    match status {
        Status::RemoteBadAddress => Failure::RemoteAccess { known: true },
        Status::FeatureMismatch => Failure::RemoteUnsupported,
        status if is_of_peer(status) => Failure::PeerLost(status),
        status => Failure::Device(status),
    }
}

/// Whether a status says that the context with the peer has ended.
pub(crate) fn is_of_context(status: Status) -> bool {
    matches!(status, Status::Unresponsive | Status::Unreachable | Status::RemoteAbort)
}

/// Whether a status says that the peer, or its endpoint, is not what it was.
fn is_of_peer(status: Status) -> bool {
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
