//! The rest of a message by grants, where the sender's memory cannot be read: the receiver says how much may come, and says
//! it again while that comes.

use crate::endpoint::{Endpoint, name_of, named};
use crate::header::{Body, LONGEST};
use crate::incoming::{Fetch, Standing};
use crate::iov::{length, scatter, stretch};
use crate::shared::Cx;
use crate::work::Purpose;
use srd_device::Store;

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
            let coming = *granted - incoming.ahead as u64 - *done;
            if *granted >= end || coming > each / 2 || incoming.failure.is_some() {
                return;
            }
            let (offset, len) = (*granted, each.min(end - *granted));
            *granted += len;
            let (peer, op) = (incoming.peer, incoming.op);
            self.tell(cx, peer, &Body::Grant { op, incoming: name_of(key), offset, len });
        }
    }

    /// We may send so much of a message of ours.
    pub fn granted<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        (op, incoming): (u32, u32),
        offset: u64,
        len: u64,
    ) {
        let op = named(&self.ops, op).filter(|&op| self.ops.at(op).is_some_and(|op| op.peer == peer));
        let Some(op) = op else { return };
        let longest = (cx.shared.max_msg - LONGEST as u32) as u64;
        let local = self.ops.at(op).expect("just found").local.clone();
        let end = offset.saturating_add(len).min(length(&local));
        let mut at = offset;
        while at < end {
            let len = longest.min(end - at);
            self.ops.at_mut(op).expect("it awaits an answer").parts += 1;
            let body = Body::Granted { incoming, offset: at };
            let payload = stretch(&local, at, len);
            self.send_with_payload(cx, peer, Purpose::Part(op), &body, &payload);
            at += len;
        }
    }

    /// Bytes that we have granted.
    pub fn granted_bytes<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        incoming: u32,
        offset: u64,
        from: u64,
        len: u32,
    ) {
        let Some(index) = named(&self.incoming, incoming) else { return };
        let incoming = self.incoming.at_mut(index).expect("just found");
        let Standing::Matched(matched) = &incoming.standing else { return };
        let Fetch::Grant { granted, done } = &mut incoming.fetch else { return };
        let end = offset.saturating_add(len as u64);
        if incoming.peer != peer || incoming.orphan || offset < incoming.ahead as u64 || end > *granted {
            cx.shared.counters.malformed += 1;
            return;
        }
        *done += len as u64;
        let complete = *done + incoming.ahead as u64 >= incoming.total.min(matched.capacity);
        cx.shared.counters.fetched_by_grants += complete as u64;
        scatter(cx.device.memory(), from, len as u64, &matched.iov, offset);
        self.grant(cx, index);
        self.incoming_changed(cx, index);
    }
}
