//! Completion queues: what has completed and was not polled yet, which peers were lost between the one and the other, and
//! who wants to be woken.

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
    /// Losses of peers are told here, too.
    pub tells_losses: bool,
    /// Those that were not taken yet, each with the number of the completion before which it happened.
    losses: VecDeque<(u64, Loss)>,
    /// Completions that have left.
    popped: u64,
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
            tells_losses: false,
            losses: VecDeque::new(),
            popped: 0,
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
        self.popped += 1;
        Some(completion)
    }

    /// What waits to be polled, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = &Completion> {
        self.entries.iter()
    }

    /// A peer is lost: after what waits already, before what comes. Whether an armed notification has fired.
    pub fn push_loss(&mut self, loss: Loss) -> bool {
        let at = self.popped + self.entries.len() as u64;
        // Told twice of the same, one is none the wiser.
        if self.losses.back() != Some(&(at, loss)) {
            self.losses.push_back((at, loss));
        }
        std::mem::replace(&mut self.armed, Armed::No) != Armed::No
    }

    /// The oldest loss, if everything that was completed before it has been taken.
    #[inline]
    pub fn pop_loss(&mut self) -> Option<Loss> {
        let &(at, _) = self.losses.front()?;
        if at > self.popped { None } else { self.losses.pop_front().map(|(_, loss)| loss) }
    }

    /// Whether a completion or a loss waits.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.entries.is_empty() || !self.losses.is_empty()
    }

    /// Whether any waits.
    #[inline]
    pub fn has_losses(&self) -> bool {
        !self.losses.is_empty()
    }

    /// All that wait, whether their turn has come or not.
    pub fn losses(&self) -> impl Iterator<Item = Loss> {
        self.losses.iter().map(|&(_, loss)| loss)
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
        for (at, _) in &mut self.losses {
            let before = (*at - self.popped) as usize;
            *at -= self.entries.iter().take(before).filter(|completion| completion.qpn == qpn).count() as u64;
        }
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
            claimed: false,
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
    fn a_loss_keeps_its_place_among_completions() {
        let mut cq = CompletionQueue::new(8);
        let addr = srd_wire::InstanceAddr { gid: Gid::default(), port: 1 };
        let loss = Loss { peer: addr, slot: 0, why: srd_proto::PeerLoss::Restarted };
        let of = |qpn: u16| Completion { qpn: Qpn(qpn), ..completion(CompletionOp::Recv, Status::Ok) };
        [2, 3, 2].into_iter().for_each(|qpn| _ = cq.push(of(qpn)));
        cq.arm(true);
        assert!(cq.push_loss(loss), "somebody who sleeps must hear of it");
        assert!(!cq.push_loss(loss));
        cq.push(of(3));
        cq.pop().unwrap();
        assert_eq!((cq.pop_loss(), cq.losses().count()), (None, 1));
        cq.purge(Qpn(2));
        assert_eq!(cq.pop().unwrap().qpn, Qpn(3));
        assert_eq!((cq.pop_loss(), cq.pop_loss()), (Some(loss), None));
        assert_eq!(cq.pop().unwrap().qpn, Qpn(3));
        assert!(!cq.push_loss(loss));
        assert_eq!(cq.pop_loss(), Some(loss));
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
