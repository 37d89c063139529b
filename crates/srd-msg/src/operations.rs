//! Operations of the program that take more than one piece of work, or an answer: when they may begin, what they wait for,
//! and when they are over.

use crate::api::*;
use crate::buffers::Buffer;
use crate::endpoint::Endpoint;
use crate::iov::{Iovs, gather, length};
use crate::peer::MESSAGE_COST;
use crate::shared::Cx;
use crate::transmit::failure_of;
use crate::work::{Await, Op};
use srd_device::Store;
use srd_device::slab::Key;
use srd_wire::Status;

/// Operations that wait for room in the device, at most for one peer, before posting is refused.
const MOST_WAITING: usize = 64;

/// Copies what is injected, and puts the copy into the place of the list.
pub(crate) fn copy_injected<M: Store>(
    cx: &mut Cx<'_, M>,
    local: &mut Iovs,
) -> Result<Option<Buffer>, Refused> {
    let len = length(local);
    if len == 0 {
        return Ok(None);
    }
    let buffer = cx.take_buffer(len as usize);
    if !gather(cx.memory(), local, buffer.addr) {
        cx.give_buffer(buffer);
        return Err(Refused::MemoryGone);
    }
    local.clear();
    local.push(Iov { addr: buffer.addr, len });
    Ok(Some(buffer))
}

impl Endpoint {
    /// Whether an operation may begin now.
    #[inline]
    pub fn check_room(&self, peer: PeerId, flags: &TxFlags) -> Result<(), Refused> {
        let peer = self.peers.get(peer.0 as usize).ok_or(Refused::Invalid("peer: no such peer"))?;
        let full = self.outstanding >= self.max_outstanding
            || peer.backlog.len() >= MOST_WAITING
            || !peer.has_numbers();
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
    pub fn ended(&mut self, peer: u32) {
        self.outstanding -= 1;
        self.peers[peer as usize].outstanding -= 1;
    }

    /// Takes an operation into the book. It is over when its parts are done and it awaits nothing.
    pub fn begin_op(&mut self, op: Op) -> Key {
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

    /// The operation is not over before its peer has accepted the session, if that may still drop what has come.
    #[inline]
    pub fn await_acceptance<M: Store>(&mut self, cx: &mut Cx<'_, M>, op: u32) {
        let entry = self.ops.at_mut(op).expect("the caller has it");
        let peer = &mut self.peers[entry.peer as usize];
        if peer.may_drop(self.identity.well_known) {
            entry.awaits = Await::Acceptance;
            peer.unaccepted.push(op);
            let peer = entry.peer;
            self.owes(cx, peer);
        }
    }

    /// A peer has accepted our session.
    pub fn accepted<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        self.peers[peer as usize].accepted = true;
        for op in std::mem::take(&mut self.peers[peer as usize].unaccepted) {
            let waits = |entry: &&mut Op| entry.peer == peer && entry.awaits == Await::Acceptance;
            if let Some(entry) = self.ops.at_mut(op).filter(waits) {
                entry.awaits = Await::Nothing;
                self.has_paid(peer);
                self.op_changed(cx, op);
            }
        }
    }

    /// An operation goes to its peer as a message with `len` bytes, to be carried out there.
    pub fn asks_operation(&mut self, op: u32, len: u64) {
        let entry = self.ops.at_mut(op).expect("the caller has it");
        entry.asked = len as u32 + MESSAGE_COST;
        self.peers[entry.peer as usize].unanswered += entry.asked;
    }

    /// A piece of an operation's work is done.
    #[inline]
    pub fn part_done<M: Store>(&mut self, cx: &mut Cx<'_, M>, op: u32, status: Status) {
        let Some(entry) = self.ops.at_mut(op) else { return };
        entry.parts -= 1;
        if status != Status::Ok {
            entry.failure.get_or_insert(failure_of(status));
        }
        self.op_changed(cx, op);
    }

    /// Ends an operation if nothing of it is left to be done.
    pub fn op_changed<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        let op = self.ops.at_mut(index).expect("the caller has it");
        if op.parts > 0 || op.awaits != Await::Nothing && op.failure.is_none() {
            return;
        }
        if op.failure.is_none() && op.notice.is_some() {
            return self.give_notice(cx, index);
        }
        if matches!(op.failure, Some(Failure::RemoteAccess { .. })) && self.ask_again(cx, index) {
            return;
        }
        let key = self.ops.key_at(index).expect("it is there");
        let mut op = self.ops.remove(key).expect("its key was found");
        if matches!(op.awaits, Await::Answer | Await::Acceptance) {
            self.has_paid(op.peer);
        }
        self.unexpose(cx, &mut op);
        if let Some(copy) = op.copy.take() {
            cx.give_buffer(copy);
        }
        self.peers[op.peer as usize].unanswered -= op.asked;
        self.ended(op.peer);
        let done = self.done(op.kind, op.context, op.report);
        cx.shared.done.push(Done { error: op.failure, ..done });
    }

    /// What peers could read of an operation, they cannot any more.
    pub fn unexpose<M: Store>(&mut self, cx: &mut Cx<'_, M>, op: &mut Op) {
        for key in op.exposed.drain(..) {
            if let Some(loans) = &mut self.loans {
                loans.end(key.0);
            }
            let _ = cx.device().dereg_mr(key);
        }
    }
}
