//! Completion queues: what has completed and was not polled yet, and who wants to be woken.

use crate::api::*;
use srd_wire::{Qpn, Status, Time};
use std::collections::VecDeque;

/// What an armed queue waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Armed {
    No,
    /// See [`solicited`].
    Solicited,
    Any,
}

/// Whether a completion wakes one who asked for solicited ones only: `ibv_req_notify_cq(3)` counts receives whose
/// message has the solicited bit, and errors. SRD messages carry no such bit (libefa refuses the request, EOPNOTSUPP),
/// so every receive counts: waking too often does no harm, not waking does.
fn solicited(completion: &Completion) -> bool {
    completion.status != Status::Ok
        || matches!(completion.op, CompletionOp::Recv | CompletionOp::RecvRdmaWithImm)
}

/// What became of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pushed {
    /// It waits to be polled.
    Queued,
    /// It waits, and an armed notification has fired.
    Notify,
    /// The queue is full; the completion is lost. `first`: since the queue was last below its limit.
    Lost { first: bool },
}

/// One queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    entries: VecDeque<Completion>,
    depth: u32,
    armed: Armed,
    overrun: bool,
    /// Queue pairs that complete here, once for each of their two queues.
    pub users: u32,
    /// Its notification waits in the device's list.
    pub notified: bool,
    /// When its notification fires though nothing completes.
    pub alarm: Time,
    /// When the earliest work for that is queued.
    pub alarm_queued: Time,
}

/// Completions for which there is room from the start; a program that polls seldom leaves more.
const AT_ONCE: u32 = 1024;

impl CompletionQueue {
    pub fn new(depth: u32) -> CompletionQueue {
        CompletionQueue {
            entries: VecDeque::with_capacity(depth.min(AT_ONCE) as usize),
            depth,
            armed: Armed::No,
            overrun: false,
            users: 0,
            notified: false,
            alarm: Time::NEVER,
            alarm_queued: Time::NEVER,
        }
    }

    #[inline]
    pub fn push(&mut self, completion: Completion) -> Pushed {
        if self.entries.len() as u32 == self.depth {
            let first = !std::mem::replace(&mut self.overrun, true);
            return Pushed::Lost { first };
        }
        let fires = match self.armed {
            Armed::No => false,
            Armed::Solicited => solicited(&completion),
            Armed::Any => true,
        };
        self.entries.push_back(completion);
        if fires {
            self.armed = Armed::No;
            Pushed::Notify
        } else {
            Pushed::Queued
        }
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Completion> {
        let completion = self.entries.pop_front()?;
        self.overrun = false;
        Some(completion)
    }

    /// What waits to be polled, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = &Completion> {
        self.entries.iter()
    }

    /// One notification at the next completion; those that wait already do not count (`ibv_req_notify_cq(3)`). Asking
    /// for any after asking for solicited ones widens the request, never the other way round.
    pub fn arm(&mut self, solicited_only: bool) {
        self.armed = match (self.armed, solicited_only) {
            (Armed::No | Armed::Solicited, true) => Armed::Solicited,
            _ => Armed::Any,
        };
    }

    /// No notification until it is armed again.
    pub fn disarm(&mut self) {
        self.armed = Armed::No;
        self.alarm = Time::NEVER;
    }

    /// Forgets the completions of a queue pair that is destroyed or reset.
    pub fn purge(&mut self, qpn: Qpn) {
        self.entries.retain(|completion| completion.qpn != qpn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_wire::Gid;

    fn completion(op: CompletionOp, status: Status) -> Completion {
        Completion {
            wr_id: 1,
            status,
            op,
            qpn: Qpn(2),
            src_qpn: Qpn(0),
            src_ah: AhNumber::NONE,
            src_gid: Gid::default(),
            byte_len: 0,
            imm: None,
            unsolicited: false,
        }
    }

    #[test]
    fn an_armed_queue_notifies_once() {
        let mut cq = CompletionQueue::new(8);
        let send = completion(CompletionOp::Send, Status::Ok);
        assert_eq!(cq.push(send), Pushed::Queued);
        cq.arm(false);
        assert_eq!(cq.push(send), Pushed::Notify);
        assert_eq!(cq.push(send), Pushed::Queued);
    }

    #[test]
    fn armed_for_solicited_only_a_send_that_went_well_does_not_wake() {
        let mut cq = CompletionQueue::new(8);
        cq.arm(true);
        assert_eq!(cq.push(completion(CompletionOp::Send, Status::Ok)), Pushed::Queued);
        assert_eq!(cq.push(completion(CompletionOp::Recv, Status::Ok)), Pushed::Notify);
        cq.arm(true);
        assert_eq!(cq.push(completion(CompletionOp::Send, Status::RemoteRnr)), Pushed::Notify);
        cq.arm(false);
        cq.arm(true);
        assert_eq!(cq.push(completion(CompletionOp::Send, Status::Ok)), Pushed::Notify);
    }

    #[test]
    fn a_full_queue_loses_completions_and_says_so_once_per_episode() {
        let mut cq = CompletionQueue::new(1);
        let send = completion(CompletionOp::Send, Status::Ok);
        assert_eq!(cq.push(send), Pushed::Queued);
        assert_eq!(cq.push(send), Pushed::Lost { first: true });
        assert_eq!(cq.push(send), Pushed::Lost { first: false });
        cq.pop().unwrap();
        assert_eq!(cq.push(send), Pushed::Queued);
        assert_eq!(cq.push(send), Pushed::Lost { first: true });
    }
}
