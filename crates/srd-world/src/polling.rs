//! How a process learns what has completed, and how the oracle does.

use crate::ledger::{RECV_BASE, Verb, Violation, broken};
use crate::memory::Bytes;
use crate::posting::setup;
use crate::world::{Event, Sabotage, World};
use srd_device::{AsyncEvent, Completion, CompletionOp, CqId, Memory, Piece};
use srd_wire::Status;

impl World {
    pub(crate) fn poll(&mut self, node: usize) -> Result<(), Violation> {
        if self.nodes[node].runs(self.now) {
            self.poll_now(node)?;
        }
        Ok(())
    }

    /// Takes what has completed, and gives it to the oracle: what was received first, because a sender's success
    /// must come after it. Returns how many completions there were.
    pub(crate) fn poll_now(&mut self, node: usize) -> Result<u64, Violation> {
        let mut polled = std::mem::take(&mut self.polled);
        polled.clear();
        for at in 0..self.nodes[node].cqs.len() {
            let cq = self.nodes[node].cqs[at];
            let device = self.nodes[node].device();
            let before = polled.len();
            polled.extend(std::iter::from_fn(|| device.poll_cq(cq)));
            self.check_notification(node, cq, polled.len() > before)?;
        }
        self.check_events(node)?;
        self.spoil(node, &mut polled);
        let sent = |completion: &Completion| {
            matches!(completion.op, CompletionOp::Send | CompletionOp::Read | CompletionOp::Write)
        };
        let local = self.nodes[node].local(self.now);
        for sends in [false, true] {
            for &completion in polled.iter().filter(|completion| sent(completion) == sends) {
                self.note(completion.wr_id ^ (completion.status as u64) << 56 ^ (node as u64) << 50);
                self.tell(|| format!("{node} completes {completion:?}"));
                if sends && completion.status == Status::Ok {
                    self.ask_responder(completion.wr_id as usize, node)?;
                }
                if sends && completion.status == Status::RemoteAbort {
                    self.ask_who_gave_up(completion.wr_id as usize)?;
                }
                let (now, ledger) = (self.now, &mut self.ledger);
                let mut memories = World::memories(&mut self.nodes);
                ledger.completed(now, local, node, &completion, &mut memories)?;
            }
        }
        let count = polled.len() as u64;
        for completion in polled.iter().filter(|completion| !sent(completion)) {
            if let Some(recv) = self.ledger.recvs.get(completion.wr_id.wrapping_sub(RECV_BASE) as usize) {
                let qp = recv.qp;
                let wait = self.engine.around(if self.healed { 0 } else { self.plan.shape.repost_ns });
                self.after(wait, Event::Stock(qp));
            }
        }
        self.polled = polled;
        self.check_memory(node)?;
        Ok(count)
    }

    /// A completion queue that was armed when it was empty has told of what came. (It may have told of what has been
    /// taken away since.)
    fn check_notification(&mut self, node: usize, cq: CqId, any: bool) -> Result<(), Violation> {
        if self.plan.shape.notified == 0 {
            return Ok(());
        }
        let host = &mut self.nodes[node];
        let armed = host.armed.iter().position(|&armed| armed == cq);
        let mut told = false;
        while let Some(fired) = host.device().poll_notification() {
            told |= fired == cq;
            host.armed.retain(|&armed| armed != fired || fired == cq);
            if fired != cq {
                // The other queue's turn comes next; it is polled all the same.
                host.fired.push(fired);
            }
        }
        if let Some(at) = host.fired.iter().position(|&fired| fired == cq) {
            host.fired.swap_remove(at);
            told = true;
        }
        if any && armed.is_some() && !told {
            return broken("notification", format!("process {node} was not told of completions in {cq:?}"));
        }
        if armed.is_none() || told {
            setup("arm_cq", host.device().arm_cq(cq, false))?;
            host.armed.retain(|&armed| armed != cq);
            host.armed.push(cq);
        }
        Ok(())
    }

    /// Nothing but the loss of a peer may be told out of turn.
    fn check_events(&mut self, node: usize) -> Result<(), Violation> {
        while let Some(event) = self.nodes[node].device().poll_async_event() {
            self.tell(|| format!("{node} is told {event:?}"));
            match event {
                AsyncEvent::RemoteUnresponsive { peer, .. } => self.ledger.gave_up(node, peer.gid),
                AsyncEvent::QpFatal(_) | AsyncEvent::CqOverrun(_) | AsyncEvent::DeviceFatal => {
                    return broken("isolation", format!("process {node} is told {event:?}"));
                }
            }
        }
        Ok(())
    }

    /// Before a success is judged, the responder's completions must be known, even if its program is slow to look.
    fn ask_responder(&mut self, id: usize, asker: usize) -> Result<(), Violation> {
        let Some(message) = self.ledger.messages.get(id) else { return Ok(()) };
        let announced = message.verb == Verb::Send || message.imm.is_some();
        let node = self.ledger.qps[message.dst_qp].node;
        // Short messages may look alike, and then it was perhaps another one that was delivered.
        let delivered = message.delivered && message.len >= 8;
        if announced && !delivered && node != asker && self.nodes[node].device.is_some() {
            let kept = std::mem::take(&mut self.polled);
            self.poll_now(node)?;
            self.polled = kept;
        }
        Ok(())
    }

    /// Before the end of a context is judged it must be known whom the responder has given up, even if its program is slow to look.
    fn ask_who_gave_up(&mut self, id: usize) -> Result<(), Violation> {
        let Some(message) = self.ledger.messages.get(id) else { return Ok(()) };
        let node = self.ledger.qps[message.dst_qp].node;
        if self.nodes[node].device.is_some() { self.check_events(node) } else { Ok(()) }
    }

    fn spoil(&mut self, node: usize, polled: &mut Vec<Completion>) {
        let kind = Sabotage::from_number(self.plan.faults.sabotage);
        if kind == Sabotage::None || polled.is_empty() {
            return;
        }
        let last = polled[polled.len() - 1];
        let received = matches!(last.op, CompletionOp::Recv | CompletionOp::RecvRdmaWithImm);
        match kind {
            Sabotage::LoseCompletion if self.sabotage(kind, 5) => {
                polled.pop();
            }
            Sabotage::RepeatCompletion if self.sabotage(kind, 5) => polled.push(last),
            Sabotage::LieSuccess if last.status != Status::Ok && self.sabotage(kind, 1) => {
                polled.last_mut().expect("not empty").status = Status::Ok;
            }
            Sabotage::LieFailure if last.status == Status::Ok && self.sabotage(kind, 5) => {
                polled.last_mut().expect("not empty").status = Status::RemoteBadAddress;
            }
            Sabotage::WrongLength if received && self.sabotage(kind, 5) => {
                polled.last_mut().expect("not empty").byte_len += 1;
            }
            Sabotage::WrongSource if received && self.sabotage(kind, 5) => {
                polled.last_mut().expect("not empty").src_qpn.0 ^= 1;
            }
            Sabotage::StrayWrite if self.sabotage(kind, 5) => {
                let piece = Piece { addr: (1 << 48 | 1 << 38) + 50_000_000, len: 1 };
                let memory = self.nodes[node].device().memory();
                Memory::write(memory, &[piece], 0, &Bytes::wire(&[0]));
            }
            _ => {}
        }
    }
}
