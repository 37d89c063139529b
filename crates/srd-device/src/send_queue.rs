//! The send queue: work requests from posting to completion. The requests of all queue pairs lie in one slab, so that
//! a token of the transport finds its request at once; each queue pair links its own in the order of posting.

use crate::api::*;
use crate::slab::{Key, Slab};
use srd_proto::PeerId;
use srd_wire::{MrKey, Nanos, Qkey, Qpn, Status};

/// Where a work request stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Posted while the send queue is drained (SQD); leaves with the return to RTS.
    Held,
    /// Waits for its time to be handed to the transport (again).
    Waiting,
    /// With the transport.
    InFlight(PeerId),
    /// A read whose request was accepted: its data is to come from this peer.
    AwaitingData(PeerId),
}

/// A send work request.
#[derive(Debug)]
pub(crate) struct SendRequest<P> {
    pub wr_id: u64,
    /// The queue pair's slot.
    pub qp: u32,
    pub op: SendOp,
    /// Its host is there as long as the request is.
    pub ah: AhNumber,
    pub dst_qpn: Qpn,
    pub qkey: Qkey,
    /// Kept to the end: a message that found no receive buffer is retried.
    pub payload: P,
    /// The payload is a copy of the device's own.
    pub taken: bool,
    /// Bytes to send, or to read.
    pub len: u32,
    /// Where a read's data goes.
    pub sink: Piece,
    /// Keys of the memory in use; 0 is none.
    pub keys: [MrKey; 2],
    pub progress: Progress,
    /// A read's data is arriving: the key of that inbound message.
    pub inbound: Option<Key>,
    /// Retries when the receiver has no buffer.
    pub rnr: RnrRetries,
    /// It answers somebody whom the program has not named.
    pub answers: bool,
    /// A datagram that has completed and is still with the transport.
    pub told: bool,
    /// Chosen to be ended; only between choosing and ending.
    pub doomed: bool,
    prev: u32,
    next: u32,
}

/// The variable part of [`SendRequest::new`].
pub(crate) struct Posted<P> {
    pub payload: P,
    pub taken: bool,
    pub len: u32,
    pub sink: Piece,
    pub keys: [MrKey; 2],
}

impl<P> SendRequest<P> {
    /// It moves data to the peer, and is with the transport.
    pub fn is_in_flight(&self) -> bool {
        matches!(self.progress, Progress::InFlight(_)) && !matches!(self.op, SendOp::Read { .. })
    }

    pub fn new(qp: u32, wr: &SendWr<'_>, posted: Posted<P>, rnr: RnrRetries, answers: bool) -> Self {
        SendRequest {
            wr_id: wr.wr_id,
            qp,
            op: wr.op,
            ah: wr.ah,
            dst_qpn: wr.dst_qpn,
            qkey: wr.qkey,
            payload: posted.payload,
            taken: posted.taken,
            len: posted.len,
            sink: posted.sink,
            keys: posted.keys,
            progress: Progress::Waiting,
            inbound: None,
            rnr,
            answers,
            told: false,
            doomed: false,
            prev: END,
            next: END,
        }
    }

    /// The peer that work on this request is under way with.
    pub fn peer(&self) -> Option<PeerId> {
        match self.progress {
            Progress::InFlight(peer) | Progress::AwaitingData(peer) => Some(peer),
            Progress::Held | Progress::Waiting => None,
        }
    }
}

/// How often a message that found no receive buffer is retried: `rnr_retry` of the queue pair, 7 for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RnrRetries {
    left: u8,
    taken: u8,
    /// Of the longest length, since one was counted.
    waits: u8,
}

impl RnrRetries {
    /// IB specification, RNR retry: 7 is infinite; libfabric's `EFA_RNR_INFINITE_RETRY`.
    pub const FOR_EVER: u8 = 7;

    pub fn new(rnr_retry: u8) -> RnrRetries {
        RnrRetries { left: rnr_retry, taken: 0, waits: 0 }
    }

    /// Returns how long to wait before the next one: `rnr_wait`, and twice as long each time up to `rnr_wait_max`. `None` if none
    /// is left. Unless all are counted, waits shorter than `rnr_wait_max` are not, and of those one in [`WAITS_PER_RETRY`]: a
    /// receiver that merely waits for a core is back within them, and who counts wants to know of one that is not.
    pub fn take(&mut self, config: &DeviceConfig) -> Option<Nanos> {
        let (first, longest) = (config.rnr_wait, config.rnr_wait_max);
        let wait = Nanos(first.0.saturating_mul(1 << self.taken.min(32)));
        if self.left == 0 {
            return None;
        }
        self.taken = self.taken.saturating_add(1);
        if (wait >= longest || config.rnr_counts_all) && self.left != RnrRetries::FOR_EVER {
            self.waits += 1;
            if self.waits == WAITS_PER_RETRY || config.rnr_counts_all {
                self.waits = 0;
                self.left -= 1;
            }
        }
        Some(wait.min(longest.max(first)))
    }
}

/// Longest waits that make up one retry: a third of a second with the default of 10 ms.
pub(crate) const WAITS_PER_RETRY: u8 = 32;

const END: u32 = u32::MAX;

/// One queue pair's requests in the order of posting, and how many of its slots are taken.
#[derive(Debug)]
pub(crate) struct SendQueue {
    head: u32,
    tail: u32,
    /// Slots taken. A slot is free again when its completion has been *polled*, not when it was made: so counts libefa
    /// (`efa_wq_cqe_finalize`), and so a completion queue as deep as the queues that complete there cannot overrun.
    pub used: u32,
    /// See [`SendRequest::told`].
    pub told: u32,
}

impl SendQueue {
    pub fn new() -> SendQueue {
        SendQueue { head: END, tail: END, used: 0, told: 0 }
    }

    /// Appends a request that is in the slab.
    pub fn link<P>(&mut self, requests: &mut Slab<SendRequest<P>>, key: Key) {
        let tail = std::mem::replace(&mut self.tail, key.index);
        requests.at_mut(key.index).expect("linked entries are in the slab").prev = tail;
        match tail {
            END => self.head = key.index,
            tail => requests.at_mut(tail).expect("linked entries are in the slab").next = key.index,
        }
    }

    /// Takes out a request that has just been removed from the slab.
    pub fn unlink<P>(&mut self, requests: &mut Slab<SendRequest<P>>, request: &SendRequest<P>) {
        match request.prev {
            END => self.head = request.next,
            prev => requests.at_mut(prev).expect("linked entries are in the slab").next = request.next,
        }
        match request.next {
            END => self.tail = request.prev,
            next => requests.at_mut(next).expect("linked entries are in the slab").prev = request.prev,
        }
    }

    /// The requests in order of posting.
    pub fn iter<'a, P>(
        &self,
        requests: &'a Slab<SendRequest<P>>,
    ) -> impl Iterator<Item = (Key, &'a SendRequest<P>)> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let key = requests.key_at(at)?;
            let request = requests.get(key)?;
            at = request.next;
            Some((key, request))
        })
    }
}

/// What becomes of work requests that end before their time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// They complete with this status.
    Complete(Status),
    /// Nothing of them completes.
    Forget,
}

/// What a send work request completes as.
pub(crate) fn completion_op(op: SendOp) -> CompletionOp {
    match op {
        SendOp::Send { .. } => CompletionOp::Send,
        SendOp::Read { .. } => CompletionOp::Read,
        SendOp::Write { .. } => CompletionOp::Write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_rnr_retries_are_for_ever() {
        let config = DeviceConfig { rnr_wait: Nanos(10), rnr_wait_max: Nanos(30), ..DeviceConfig::default() };
        let take = |retries: &mut RnrRetries| retries.take(&config).map(|wait| wait.0);
        let mut three = RnrRetries::new(3);
        let waits: Vec<u64> = std::iter::from_fn(|| take(&mut three)).collect();
        let longest = [30; 3 * WAITS_PER_RETRY as usize];
        assert_eq!((&waits[..2], &waits[2..]), (&[10, 20][..], &longest[..]));
        let mut ever = RnrRetries::new(7);
        assert!((0..1000).all(|_| take(&mut ever).is_some()));
        assert_eq!(take(&mut ever), Some(30));
        assert_eq!(take(&mut RnrRetries::new(0)), None);

        let config = DeviceConfig { rnr_counts_all: true, ..config };
        let mut three = RnrRetries::new(3);
        let waits: Vec<_> = std::iter::from_fn(|| three.take(&config)).collect();
        assert_eq!(waits, [Nanos(10), Nanos(20), Nanos(30)]);
    }
}
