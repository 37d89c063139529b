//! The rest of a message by reading the sender's memory: several reads at a time, so that the way there and back is only
//! waited for once.

use crate::api::Iov;
use crate::endpoint::Endpoint;
use crate::header::Source;
use crate::incoming::{Fetch, Standing};
use crate::iov::{is_accelerators, stretch};
use crate::shared::Cx;
use crate::transmit::{failure_of, is_of_context};
use crate::work::{Purpose, Work};
use arrayvec::ArrayVec;
use srd_device::{SendOp, Sge, Store};
use srd_wire::{MrKey, Status};

impl Endpoint {
    /// Sees to the rest of a message that has its receive.
    pub fn fetch<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        self.ask_for_far(cx, index);
        self.copy_near(cx, index);
        match &self.incoming.at(index).expect("the caller has it").fetch {
            Fetch::Nothing => {}
            Fetch::Read { .. } => self.pull(cx, index),
            Fetch::Grant { .. } => self.grant(cx, index),
        }
    }

    /// What goes to an accelerator's memory is not read, but sent here on request: it comes in pieces that are longer than packets, which
    /// are copied there one by one.
    fn ask_for_far<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        let incoming = self.incoming.at_mut(index).expect("the caller has it");
        let Standing::Matched(matched) = &incoming.standing else { return };
        let begins =
            matches!(incoming.fetch, Fetch::Read { next, reads: 0, .. } if next == incoming.eager as u64);
        if begins && is_accelerators(cx.memory(), &matched.iov) {
            incoming.fetch = Fetch::Grant { granted: incoming.eager as u64, done: 0 };
        }
    }

    /// Copies the rest of a message out of the memory of a process of this host. What cannot be copied, or is not lent any
    /// more, is read: the sender's device, or the sender, then says what became of it.
    fn copy_near<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        let incoming = self.incoming.at_mut(index).expect("the caller has it");
        if incoming.failure.is_some() {
            return;
        }
        let Some(lane) = &mut self.peers[incoming.peer as usize].lane else { return };
        let Standing::Matched(matched) = &incoming.standing else { return };
        let Fetch::Read { sources, next, done, reads: 0, .. } = &mut incoming.fetch else { return };
        if !lane.can_read() {
            return;
        }
        let end = incoming.total.min(matched.capacity);
        let any = *next < end;
        while *next < end {
            let Some((there, target)) = piece(sources, &matched.iov, *next, end) else { return };
            if !lane.read(there.key, there.addr, target.addr, target.len) {
                return;
            }
            *next += target.len;
            *done += target.len;
        }
        cx.shared.counters.fetched_near += any as u64;
    }

    /// Posts reads, as many as may be under way.
    fn pull<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        let config = cx.shared.config;
        loop {
            let incoming = self.incoming.at_mut(index).expect("the caller has it");
            let Standing::Matched(matched) = &incoming.standing else { return };
            let end = incoming.total.min(matched.capacity);
            let Fetch::Read { sources, next, reads, refused, .. } = &mut incoming.fetch else { return };
            if *next >= end || *reads >= config.reads_in_flight || *refused || incoming.failure.is_some() {
                return;
            }
            let end = end.min(*next + config.read_bytes);
            let Some((there, target)) = piece(sources, &matched.iov, *next, end) else { return };
            let len = target.len as u32;
            let op = SendOp::Read { rkey: MrKey(there.key), addr: there.addr };
            *next += len as u64;
            *reads += 1;
            let peer = incoming.peer;
            let sge = Sge { addr: target.addr, len, lkey: cx.shared.all_memory };
            let purpose = Purpose::Pull { incoming: index, len };
            self.post(cx, peer, Work { purpose, buffer: None, op, sges: ArrayVec::from_iter([sge]) });
        }
    }

    /// A read is done.
    pub fn pulled<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32, len: u32, status: Status) {
        let Some(incoming) = self.incoming.at_mut(index) else { return };
        let Fetch::Read { reads, done, refused, .. } = &mut incoming.fetch else { return };
        *reads -= 1;
        let last = *reads == 0;
        // A peer whose lane goes on can send what its memory cannot be read for.
        let goes_on = self.peers[incoming.peer as usize].lane.is_some() && is_of_context(status);
        match status {
            Status::Ok => *done += len as u64,
            Status::RemoteBadAddress | Status::FeatureMismatch | Status::UnknownPeer if !incoming.orphan => {
                *refused = true;
            }
            _ if goes_on && !incoming.orphan => *refused = true,
            status => {
                let failure = failure_of(status);
                let incoming = self.incoming.at_mut(index).expect("it is there");
                incoming.failure.get_or_insert(failure);
            }
        }
        let incoming = self.incoming.at_mut(index).expect("it is there");
        if let Fetch::Read { refused: true, .. } = incoming.fetch {
            if last && incoming.failure.is_none() {
                // The sender's memory cannot be read: it is to send all of it.
                let ahead = incoming.eager as u64;
                incoming.fetch = Fetch::Grant { granted: ahead, done: 0 };
            }
        } else if incoming.failure.is_none() && matches!(incoming.fetch, Fetch::Read { .. }) {
            cx.shared.counters.fetched_by_read += last as u64;
        }
        self.fetch(cx, index);
        self.incoming_changed(cx, index);
    }
}

/// The bytes of a message from `next` on, up to `end`, that lie in one piece at both sides.
fn piece(sources: &[Source], iov: &[Iov], next: u64, end: u64) -> Option<(Source, Iov)> {
    let mut skip = next;
    let source = sources.iter().find(|source| {
        let here = skip < source.len;
        skip -= if here { 0 } else { source.len };
        here
    })?;
    let target = *stretch(iov, next, end - next).first()?;
    let len = target.len.min(source.len - skip);
    // The address is the sender's word: one that goes round the end of memory is nobody's, as its device will say.
    Some((Source { addr: source.addr.wrapping_add(skip), len, key: source.key }, Iov { len, ..target }))
}
