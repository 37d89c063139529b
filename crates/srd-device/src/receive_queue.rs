//! The receive queue: buffers in the order of posting. A message takes the first one, or where that is wanted the last; one whose
//! message never completes comes back to its place.

use crate::api::*;
use srd_proto::Stranger;
use std::collections::VecDeque;

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub wr_id: u64,
    /// Place in the order of posting.
    pub serial: u64,
    sges: [Sge; MAX_RECV_SGE],
    sge_count: u8,
    /// It is for the rest of a message of somebody whom the program has not named.
    lent: Option<Stranger>,
}

impl Receive {
    pub fn sges(&self) -> &[Sge] {
        &self.sges[..self.sge_count as usize]
    }
}

/// One queue pair's receives.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    waiting: VecDeque<Receive>,
    /// See [`crate::Device::take_newest_receive`].
    newest_first: bool,
    posted: u64,
    /// Slots taken; free again when the completion has been polled, as in the send queue.
    pub used: u32,
    /// Those that are lent to strangers who have shown where they are, and to others.
    lent: [u32; 2],
}

impl ReceiveQueue {
    pub fn new() -> ReceiveQueue {
        ReceiveQueue { waiting: VecDeque::new(), newest_first: false, posted: 0, used: 0, lent: [0; 2] }
    }

    /// The caller has checked the number of elements and taken a slot.
    #[inline]
    pub fn post(&mut self, wr: &RecvWr<'_>) {
        let mut sges = [Sge::default(); MAX_RECV_SGE];
        sges[..wr.sges.len()].copy_from_slice(wr.sges);
        let serial = self.posted;
        self.posted += 1;
        let receive = Receive { wr_id: wr.wr_id, serial, sges, sge_count: wr.sges.len() as u8, lent: None };
        match self.newest_first {
            true => self.waiting.push_front(receive),
            false => self.waiting.push_back(receive),
        }
    }

    /// Before the first is posted.
    pub fn take_newest_first(&mut self) {
        debug_assert!(self.waiting.is_empty());
        self.newest_first = true;
    }

    /// The buffer that the next message would take.
    #[inline]
    pub fn first(&self) -> Option<&Receive> {
        self.waiting.front()
    }

    #[inline]
    pub fn take(&mut self) -> Option<Receive> {
        self.waiting.pop_front()
    }

    /// A buffer that was taken waits for the rest of a message.
    #[inline]
    pub fn lend(&mut self, receive: &mut Receive, rest_from: Option<Stranger>) {
        receive.lent = rest_from;
        if let Some(stranger) = rest_from {
            self.lent[stranger as usize] += 1;
        }
    }

    /// It waits no longer.
    #[inline]
    pub fn settle(&mut self, receive: &mut Receive) {
        if let Some(stranger) = receive.lent.take() {
            self.lent[stranger as usize] -= 1;
        }
    }

    /// How many wait for what strangers have begun, and how many of these for such as may have forged their addresses.
    pub fn lent(&self) -> (u32, u32) {
        (self.lent.iter().sum(), self.lent[Stranger::Unproven as usize])
    }

    /// Back to its place: behind those that would have been taken before it.
    pub fn give_back(&mut self, mut receive: Receive) {
        self.settle(&mut receive);
        let newest_first = self.newest_first;
        let place = self.waiting.partition_point(|it| (it.serial < receive.serial) != newest_first);
        self.waiting.insert(place, receive);
    }

    /// Those that no message has taken.
    pub fn iter(&self) -> impl Iterator<Item = &Receive> {
        self.waiting.iter()
    }

    pub fn clear(&mut self) {
        self.waiting.clear();
    }
}
