//! The rest of a message by grants, where the sender's memory cannot be read: the receiver says how much may come, and says
//! it again while that comes.

use crate::api::Failure;
use crate::endpoint::{Endpoint, name_of, named};
use crate::header::{Body, LONGEST};
use crate::incoming::{Fetch, Standing};
use crate::iov::{length, scatter, stretch};
use crate::kept::{Breach, MOST_UNKNOWN};
use crate::shared::Cx;
use crate::work::{Await, Purpose};
use srd_device::Store;
use srd_wire::Status;

impl Endpoint {
    /// Grants more if less than half of what has been granted is still to come.
    pub fn grant<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        let each = cx.shared.config.grant_bytes.max(1);
        loop {
            let key = self.incoming.key_at(index).expect("the caller has it");
            let incoming = self.incoming.at_mut(index).expect("the caller has it");
            let Standing::Matched(matched) = &incoming.standing else { return };
            let end = incoming.total.min(matched.capacity);
            let Fetch::Grant { granted, done } = &mut incoming.fetch else { return };
            let coming = *granted - incoming.eager as u64 - *done;
            if *granted >= end || coming > each / 2 || incoming.failure.is_some() {
                return;
            }
            let (offset, len) = (*granted, each.min(end - *granted));
            *granted += len;
            let (peer, op) = (incoming.peer, incoming.op);
            self.tell(cx, peer, &Body::Grant { op, incoming: name_of(key), offset, len });
        }
    }

    /// We may send so much of a message of ours. A receiver grants one stretch after the other, each when bytes of the one
    /// before have reached it: so they come in order, and what it may grant next is known.
    pub fn granted<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        (op, incoming): (u32, u32),
        offset: u64,
        len: u64,
    ) -> Result<(), Breach> {
        let Some(index) = named(&self.ops, op) else {
            // It has failed here, of which the receiver does not know.
            if self.may_greet(cx, peer) {
                self.tell(cx, peer, &Body::Granted { incoming, offset });
            }
            return Ok(());
        };
        let op = self.ops.at_mut(index).expect("just found");
        let longest = cx.shared.max_msg.min(self.peers[peer as usize].longest) as usize;
        let lane = self.peers[peer as usize].lane.as_ref();
        let longest = (lane.map_or(longest, |lane| lane.longest().min(longest)) - LONGEST) as u64;
        let end = offset.checked_add(len).filter(|&end| end <= length(&op.local));
        let (Some(end), Some(granted)) = (end, op.granted) else { return Err(Breach::Unasked) };
        if op.peer != peer || op.awaits != Await::Answer || offset != granted || len == 0 {
            return Err(Breach::Unasked);
        }
        // What it has got without our knowing is limited by the transport; beyond that, pieces would only queue up here.
        let pieces = len.div_ceil(longest);
        if len > cx.shared.config.grant_bytes.max(1) || op.parts as u64 > 2 * pieces + MOST_UNKNOWN as u64 {
            return Err(Breach::Length);
        }
        op.granted = Some(end);
        let local = op.local.clone();
        let mut at = offset;
        while at < end {
            let len = longest.min(end - at);
            self.ops.at_mut(index).expect("it awaits an answer").parts += 1;
            let body = Body::Granted { incoming, offset: at };
            let payload = stretch(&local, at, len);
            if !self.send_with_payload(cx, peer, Purpose::Part(index), &body, &payload) {
                self.tell(cx, peer, &Body::Granted { incoming, offset: at });
                let op = self.ops.at_mut(index).expect("as above");
                op.failure = Some(Failure::MemoryGone);
                op.parts -= 1;
                self.op_changed(cx, index);
                return Ok(());
            }
            at += len;
        }
        Ok(())
    }

    /// Bytes that we have granted, or none: its sender has the message no more.
    pub fn granted_bytes<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        incoming: u32,
        offset: u64,
        from: u64,
        len: u32,
    ) -> Result<(), Breach> {
        let Some(index) = named(&self.incoming, incoming) else { return Ok(()) };
        let incoming = self.incoming.at_mut(index).expect("just found");
        let Standing::Matched(matched) = &incoming.standing else { return Err(Breach::Unasked) };
        let Fetch::Grant { granted, done } = &mut incoming.fetch else { return Err(Breach::Unasked) };
        if incoming.peer != peer || incoming.orphan {
            return Err(Breach::Unasked);
        }
        if len == 0 {
            incoming.failure.get_or_insert(Failure::PeerLost(Status::RemoteAbort));
            self.incoming_changed(cx, index);
            return Ok(());
        }
        let end = offset.checked_add(len as u64).filter(|end| end <= granted);
        let coming = *granted - incoming.eager as u64 - *done;
        if end.is_none() || offset < incoming.eager as u64 || len as u64 > coming {
            return Err(Breach::Length);
        }
        *done += len as u64;
        let complete = *done + incoming.eager as u64 >= incoming.total.min(matched.capacity);
        cx.shared.counters.fetched_by_grants += complete as u64;
        if !scatter(cx.memory(), from, len as u64, &matched.iov, offset) {
            incoming.failure.get_or_insert(Failure::MemoryGone);
        }
        self.grant(cx, index);
        self.incoming_changed(cx, index);
        Ok(())
    }
}
