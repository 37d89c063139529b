//! The oracle. It knows every message that was posted and everything that has happened to the objects it needs, and so
//! knows for each completion whether it may be.
//!
//! The rules, by the names under which a violation is reported:
//!
//! | rule | what it says |
//! |---|---|
//! | `exactly-once` | a message is received at most once; a work request completes once |
//! | `false success` | a sender is told of success only after the responder has the whole message |
//! | `corruption` | every byte that arrives is the byte that was sent |
//! | `stray memory access` | the device touches only memory that current work or a current region gives it |
//! | `destroyed` | nothing of a destroyed queue pair completes |
//! | `status` | a message fails only for a cause that was there |
//! | `wrong completion` | a completion says the truth about length, source, operation and immediate data |
//! | `refused post` | valid work is refused only when a queue is full |

use crate::memory::WorldMemory;
use crate::pattern::Pattern;
use arrayvec::ArrayVec;
use srd_device::{AhNumber, Completion, CompletionOp, CqId, Piece, QpKind};
use srd_wire::{Gid, MrKey, Nanos, Qkey, Qpn, Status, Time};
use std::collections::BTreeMap;

/// A rule has been broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which; see the module.
    pub rule: &'static str,
    /// By what.
    pub detail: String,
}

/// Shorthand for an error of `rule`.
pub fn broken<T>(rule: &'static str, detail: String) -> Result<T, Violation> {
    Err(Violation { rule, detail })
}

/// Operation of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Send.
    Send,
    /// RDMA read.
    Read,
    /// RDMA write.
    Write,
}

/// What is wrong with a message from the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Nothing.
    None,
    /// Another queue key than the destination's.
    Qkey,
    /// A queue pair number that nobody has.
    Qpn,
    /// A remote key that nobody has.
    Rkey,
    /// Remote addresses outside the region.
    Range,
    /// A region that does not permit remote access.
    Access,
    /// A local key that does not exist.
    Lkey,
    /// Longer than allowed.
    TooLong,
    /// An address handle that does not exist.
    Handle,
}

impl Flaw {
    /// Whether the sender's own device sees it.
    pub fn is_local(self) -> bool {
        matches!(self, Flaw::Lkey | Flaw::TooLong | Flaw::Handle)
    }
}

/// Where a message stands with its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not completed.
    Outstanding,
    /// Completed.
    Done(Status),
    /// It will never complete: its queue pair or its process is gone.
    Void,
}

/// A message, from the moment it was posted.
#[derive(Clone, Debug)]
pub struct Message {
    /// Operation.
    pub verb: Verb,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Length in bytes.
    pub len: u32,
    /// What is wrong with it.
    pub flaw: Flaw,
    /// The sending queue pair.
    pub qp: usize,
    /// The queue pair that it is for.
    pub dst_qp: usize,
    /// When it was posted.
    pub posted: Time,
    /// The same by the sender's clock.
    pub posted_local: Time,
    /// Where it stands.
    pub state: State,
    /// The destination has said that it is there.
    pub delivered: bool,
    /// The remote buffer held all of it when it was last looked at.
    pub placed: bool,
    /// Local buffers.
    pub local: ArrayVec<u64, 2>,
    /// Region of the local buffers.
    pub local_region: usize,
    /// Remote buffer.
    pub remote: Option<u64>,
    /// Region of the remote buffer.
    pub remote_region: usize,
}

/// A receive.
#[derive(Clone, Debug)]
pub struct Recv {
    /// Its queue pair.
    pub qp: usize,
    /// Where it puts what comes.
    pub pieces: ArrayVec<Piece, 2>,
    /// Its length.
    pub len: u32,
    /// Region of its buffers.
    pub region: usize,
    /// Not completed.
    pub open: bool,
}

/// A queue pair, from creation on.
#[derive(Clone, Debug)]
pub struct Qp {
    /// Its process...
    pub node: usize,
    /// ...and which life of it.
    pub life: u32,
    /// Its number.
    pub qpn: Qpn,
    /// Its kind.
    pub kind: QpKind,
    /// Its key.
    pub qkey: Qkey,
    /// Writes with immediate consume no receive.
    pub unsolicited: bool,
    /// Retries for want of a receive.
    pub rnr_retry: u8,
    /// Where sends complete.
    pub send_cq: CqId,
    /// Where receives complete.
    pub recv_cq: CqId,
    /// Entries of its receive queue.
    pub rq_depth: u32,
    /// There have been more receives than messages from the start.
    pub ample: bool,
    /// It has had receives shorter than the longest message.
    pub short: bool,
    /// Since when it is gone.
    pub destroyed: Option<Time>,
    /// Since when it is in the error state.
    pub errored: Option<Time>,
    /// Receives that are open.
    pub recvs_open: u32,
    /// Work requests in its send queue.
    pub sends_open: u32,
}

/// A stretch of time since which something has been so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Since {
    /// So or not.
    pub so: bool,
    /// Since when.
    pub at: Time,
}

/// What a process has heard of another one, by its own clock.
#[derive(Clone, Copy, Default, Debug)]
pub struct Contact {
    /// Last packet with an acknowledgement, of the current incarnations.
    pub heard: Option<Time>,
    /// Whether anything was heard since the context was last lost.
    pub answered: bool,
    /// The first packet sent since then.
    pub asked: Option<Time>,
    /// The peer has said how large its packets may be.
    pub introduced: bool,
    /// The last message that was begun before that.
    pub last_begun: Option<u32>,
}

/// What distinguishes messages for the eye of the receiver. Messages that look alike are counted together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Looks {
    src_gid: Gid,
    src_qpn: u16,
    dst_qp: usize,
    len: u32,
    imm: Option<u32>,
    prefix: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Count {
    sent: u32,
    received: u32,
    succeeded: u32,
    first: usize,
}

/// `wr_id`s of receives begin here; below are messages.
pub const RECV_BASE: u64 = 1 << 40;

/// Keys and counts of what the run did, for the summary.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Score {
    /// Messages posted.
    pub posted: u64,
    /// Completed with success.
    pub succeeded: u64,
    /// Completed with an error.
    pub failed: u64,
    /// Without completion because their queue pair or process went.
    pub void: u64,
    /// Receive completions with success.
    pub received: u64,
}

/// See the module.
pub struct Ledger {
    seed: u64,
    /// Every message of the run; its place is its number.
    pub messages: Vec<Message>,
    /// Every queue pair of the run.
    pub qps: Vec<Qp>,
    /// Every receive of the run.
    pub recvs: Vec<Recv>,
    looks: BTreeMap<Looks, Count>,
    /// Host of each process.
    gids: Vec<Gid>,
    /// The current life of each process, and since when.
    pub lives: Vec<(u32, Time)>,
    /// Processes that have been killed, ever.
    pub killed: Vec<Option<Time>>,
    /// `handles[a][b]`: whether a has an address handle of b's host.
    pub handles: Vec<Vec<Since>>,
    /// The number of that handle.
    pub handle_numbers: Vec<Vec<Option<AhNumber>>>,
    /// `contacts[a][b]`: what a has heard of b.
    pub contacts: Vec<Vec<Contact>>,
    /// When a region of a process was taken away.
    pub regions_gone: BTreeMap<(usize, usize), Time>,
    /// When the network last began to swallow packets that it had carried before.
    pub mtu_dropped: Option<Time>,
    /// When the clock of a process last jumped.
    pub jumped: Vec<Option<Time>>,
    peer_timeout: Nanos,
    confirm_first: bool,
    /// Processes have several receive ports, and a context for each pair of them: what is known of one may be unknown in
    /// another.
    pub many_contexts: bool,
    /// Messages outstanding.
    pub outstanding: u64,
    /// Totals.
    pub score: Score,
    /// When sends were received, if somebody wants to know.
    pub deliveries: Option<Vec<Time>>,
    look_room: Vec<u8>,
}

impl Ledger {
    /// A ledger for processes on these hosts.
    pub fn new(seed: u64, gids: Vec<Gid>, peer_timeout: Nanos, confirm_first: bool) -> Ledger {
        let n = gids.len();
        let never = Since { so: false, at: Time(0) };
        Ledger {
            seed,
            messages: Vec::new(),
            qps: Vec::new(),
            recvs: Vec::new(),
            looks: BTreeMap::new(),
            lives: vec![(0, Time(0)); n],
            killed: vec![None; n],
            handles: vec![vec![never; n]; n],
            handle_numbers: vec![vec![None; n]; n],
            contacts: vec![vec![Contact::default(); n]; n],
            regions_gone: BTreeMap::new(),
            mtu_dropped: None,
            jumped: vec![None; n],
            gids,
            peer_timeout,
            confirm_first,
            many_contexts: false,
            outstanding: 0,
            score: Score::default(),
            deliveries: None,
            look_room: Vec::new(),
        }
    }

    /// The contents of message `id`.
    pub fn pattern(&self, id: usize) -> Pattern {
        Pattern::of(self.seed, id as u64)
    }

    /// Notes a message that the device has taken. Its number is the next.
    pub fn posted(&mut self, message: Message) -> usize {
        let id = self.messages.len();
        if message.verb == Verb::Send && message.flaw == Flaw::None {
            let looks = self.looks_of(&message, id);
            let count = self.looks.entry(looks).or_insert(Count { first: id, ..Count::default() });
            count.sent += 1;
        }
        self.qps[message.qp].sends_open += 1;
        self.messages.push(message);
        self.outstanding += 1;
        self.score.posted += 1;
        id
    }

    fn looks_of(&self, message: &Message, id: usize) -> Looks {
        let src = &self.qps[message.qp];
        Looks {
            src_gid: self.gids[src.node],
            src_qpn: src.qpn.0,
            dst_qp: message.dst_qp,
            len: message.len,
            imm: message.imm,
            prefix: self.pattern(id).prefix(message.len as usize),
        }
    }

    /// Judges a completion that process `node` has polled. `memories` gives the memory of a process if it lives.
    pub fn completed(
        &mut self,
        now: Time,
        local: Time,
        node: usize,
        completion: &Completion,
        memories: &mut [Option<&mut WorldMemory>],
    ) -> Result<(), Violation> {
        match completion.op {
            CompletionOp::Send | CompletionOp::Read | CompletionOp::Write => {
                self.send_completed(now, local, node, completion, memories)
            }
            CompletionOp::Recv | CompletionOp::RecvRdmaWithImm => {
                self.recv_completed(now, node, completion, memories)
            }
        }
    }

    fn send_completed(
        &mut self,
        now: Time,
        local: Time,
        node: usize,
        completion: &Completion,
        memories: &mut [Option<&mut WorldMemory>],
    ) -> Result<(), Violation> {
        let id = completion.wr_id as usize;
        let Some(message) = self.messages.get(id) else {
            return broken("wrong completion", format!("of work {id:#x} that nobody posted: {completion:?}"));
        };
        let qp = &self.qps[message.qp];
        if qp.destroyed.is_some() {
            return broken("destroyed", format!("message {id} of a destroyed queue pair: {completion:?}"));
        }
        if qp.node != node || qp.life != self.lives[node].0 || qp.qpn != completion.qpn {
            return broken(
                "wrong completion",
                format!("message {id} is not of this queue pair: {completion:?}"),
            );
        }
        if message.state != State::Outstanding {
            return broken(
                "exactly-once",
                format!("message {id} completes twice: {:?}, {completion:?}", message.state),
            );
        }
        let op = match message.verb {
            Verb::Send => CompletionOp::Send,
            Verb::Read => CompletionOp::Read,
            Verb::Write => CompletionOp::Write,
        };
        if completion.op != op {
            return broken("wrong completion", format!("message {id} is a {op:?}: {completion:?}"));
        }
        self.look_at_target(id, memories);
        if completion.status == Status::Ok {
            self.may_succeed(id, now, memories)?;
            self.score.succeeded += 1;
        } else {
            let dst = self.qps[self.messages[id].dst_qp].node;
            self.may_fail(id, completion.status, local).map_err(|why| Violation {
                rule: "status",
                detail: format!(
                    "message {id} from process {node} to {dst} ended {:?}: {why}; {:?}",
                    completion.status, self.messages[id]
                ),
            })?;
            self.score.failed += 1;
            if matches!(completion.status, Status::Unresponsive | Status::Unreachable | Status::RemoteAbort) {
                self.contacts[node][dst].answered = false;
            }
        }
        let message = &mut self.messages[id];
        message.state = State::Done(completion.status);
        self.outstanding -= 1;
        self.qps[message.qp].sends_open -= 1;
        self.close_buffers(id, completion.status == Status::Ok, memories);
        Ok(())
    }

    /// Remembers whether the remote buffer of a write holds all of it.
    fn look_at_target(&mut self, id: usize, memories: &mut [Option<&mut WorldMemory>]) {
        let message = &mut self.messages[id];
        let dst = &self.qps[message.dst_qp];
        if dst.life == self.lives[dst.node].0
            && let (Some(addr), Some(memory)) = (message.remote, &memories[dst.node])
        {
            message.placed |= memory.is_written(addr);
        }
    }

    fn may_succeed(
        &mut self,
        id: usize,
        now: Time,
        memories: &mut [Option<&mut WorldMemory>],
    ) -> Result<(), Violation> {
        let message = &self.messages[id];
        let (src, dst) = (&self.qps[message.qp], &self.qps[message.dst_qp]);
        let lie = |why: &str| {
            broken("false success", format!("message {id} succeeds {why}: {:?}", self.messages[id]))
        };
        if src.kind == QpKind::Ud {
            return if message.flaw.is_local() { lie("despite its flaw") } else { Ok(()) };
        }
        if message.flaw != Flaw::None {
            return lie("despite its flaw");
        }
        if message.verb != Verb::Send {
            let handle = self.handles[dst.node][src.node];
            let one_life = dst.life == self.lives[dst.node].0;
            if one_life && !handle.so && handle.at <= message.posted && message.posted < now {
                return lie("at a responder that has no address handle of us");
            }
        }
        match message.verb {
            Verb::Read => {
                let memory = memories[src.node].as_ref().expect("the sender lives");
                if message.len > 0 && !message.local.iter().all(|&addr| memory.is_written(addr)) {
                    return lie("but not all that was to be read has come");
                }
            }
            Verb::Write if message.imm.is_some() => {
                if !message.delivered {
                    return lie("but the responder has no completion of it");
                }
            }
            Verb::Write => {
                if message.len > 0 && !message.placed {
                    return lie("but is not all there");
                }
            }
            Verb::Send => {
                let looks = self.looks_of(message, id);
                let count = self.looks.get_mut(&looks).expect("counted when posted");
                count.succeeded += 1;
                if count.succeeded > count.received {
                    return lie("but the responder has not received it");
                }
            }
        }
        Ok(())
    }

    /// Whether `status` has a cause; the error says why not.
    fn may_fail(&self, id: usize, status: Status, local: Time) -> Result<(), String> {
        let message = &self.messages[id];
        let (src, dst) = (&self.qps[message.qp], &self.qps[message.dst_qp]);
        let flaw = message.flaw;
        let rdma = message.verb != Verb::Send;
        let (s, d) = (src.node, dst.node);
        let another_life = dst.life != self.lives[d].0;
        let dst_gone = another_life || dst.destroyed.is_some() || dst.errored.is_some();
        let region_gone =
            |node, region| self.regions_gone.get(&(node, region)).is_some_and(|&t| t >= message.posted);
        let handle_moved = |a: usize, b: usize| self.handles[a][b].at >= message.posted;
        let just = |so: bool, why: &str| if so { Ok(()) } else { Err(why.to_string()) };
        // A flawed message may fail for any other cause that is there, but for its flaw only as the flaw says.
        match status {
            Status::Ok => Ok(()),
            Status::Flushed => {
                just(src.errored.is_some() || handle_moved(s, d), "neither queue pair nor handle ended")
            }
            Status::LocalInvalidAh => {
                just(flaw == Flaw::Handle || handle_moved(s, d), "the address handle is valid")
            }
            Status::LocalInvalidLkey => just(
                flaw == Flaw::Lkey || region_gone(s, message.local_region),
                "the local key is valid and covers the buffer",
            ),
            Status::LocalBadLength => just(flaw == Flaw::TooLong, "the length is allowed"),
            Status::RemoteBadAddress => just(
                matches!(flaw, Flaw::Rkey | Flaw::Range | Flaw::Access)
                    || another_life
                    || (rdma && region_gone(d, message.remote_region))
                    // The region of the receive buffer that it was landing in.
                    || (!rdma && self.any_region_gone_since(d, message.posted)),
                "the remote key and address are valid",
            ),
            Status::RemoteAbort => {
                just(self.killed[d].is_some(), "the peer has been one and the same process from the start")
            }
            Status::RemoteBadDestQpn => just(
                matches!(flaw, Flaw::Qpn | Flaw::Qkey) || dst_gone,
                "the destination queue pair is there",
            ),
            Status::RemoteRnr => {
                let consumes = !rdma || (message.imm.is_some() && !dst.unsolicited);
                if src.rnr_retry == 7 {
                    return Err("retries have no end".to_string());
                }
                just(consumes && (!dst.ample || dst_gone), "there have always been receives")
            }
            Status::RemoteBadLength => just(dst.short, "every receive is long enough"),
            Status::UnknownPeer => {
                let handle = self.handles[d][s];
                let lacked = !handle.so || handle.at >= message.posted || another_life;
                just(rdma && lacked, "the responder has an address handle of us")
            }
            Status::Unresponsive | Status::Unreachable => {
                self.may_be_dead(s, d, status, message.posted, local)
            }
            _ => Err("there is never a cause for this status".to_string()),
        }
    }

    fn any_region_gone_since(&self, node: usize, since: Time) -> bool {
        self.regions_gone.iter().any(|(&(owner, _), &at)| owner == node && at >= since)
    }

    fn may_be_dead(
        &self,
        node: usize,
        peer: usize,
        status: Status,
        posted: Time,
        local: Time,
    ) -> Result<(), String> {
        let contact = &self.contacts[node][peer];
        // A clock that jumps makes a silence look longer, here or there.
        let jumped = self.jumped[node].is_some_and(|at| at + self.peer_timeout >= posted);
        if status == Status::Unreachable && contact.answered && !self.many_contexts {
            return Err("the peer has answered".to_string());
        }
        let Some(asked) = contact.asked.or(self.many_contexts.then_some(local)) else {
            return Err("nothing has been asked since the last answer".to_string());
        };
        let silent = local.since(contact.heard.map_or(asked, |heard| heard.max(asked)));
        // An eighth for the resolution of timers.
        if !jumped && !self.many_contexts && silent.0 + silent.0 / 8 < self.peer_timeout.0 {
            return Err(format!(
                "the peer has been silent for {} us of {}",
                silent.0 / 1_000,
                self.peer_timeout.0 / 1_000
            ));
        }
        Ok(())
    }

    fn close_buffers(&self, id: usize, success: bool, memories: &mut [Option<&mut WorldMemory>]) {
        let message = &self.messages[id];
        let (src, dst) = (&self.qps[message.qp], &self.qps[message.dst_qp]);
        if let Some(memory) = &mut memories[src.node] {
            message.local.iter().for_each(|&addr| memory.close(addr));
        }
        // What failed may still be under way, and may still be written. And what was read may be read again: the
        // responder does not know yet that its answer has come.
        if success
            && message.verb == Verb::Write
            && dst.life == self.lives[dst.node].0
            && let (Some(addr), Some(memory)) = (message.remote, &mut memories[dst.node])
        {
            memory.close(addr);
        }
    }

    fn recv_completed(
        &mut self,
        now: Time,
        node: usize,
        completion: &Completion,
        memories: &mut [Option<&mut WorldMemory>],
    ) -> Result<(), Violation> {
        let wrong = |why: &str| broken("wrong completion", format!("{why}: {completion:?}"));
        let life = self.lives[node].0;
        if completion.unsolicited {
            let at = self.qps.iter().rposition(|qp| {
                qp.node == node && qp.life == life && qp.qpn == completion.qpn && qp.destroyed.is_none()
            });
            let Some(at) = at else {
                return broken("destroyed", format!("queue pair that is not there: {completion:?}"));
            };
            if !self.qps[at].unsolicited || completion.op != CompletionOp::RecvRdmaWithImm {
                return wrong("unsolicited at a queue pair that did not ask for it");
            }
            if completion.wr_id != 0 || completion.status != Status::Ok {
                return wrong("unsolicited with a work request or an error");
            }
            return self.write_received(node, at, completion, memories);
        }
        let index = completion.wr_id.wrapping_sub(RECV_BASE) as usize;
        let Some(recv) = self.recvs.get_mut(index) else {
            return wrong("a receive that nobody posted");
        };
        if !recv.open {
            return broken("exactly-once", format!("receive {index} completes twice: {completion:?}"));
        }
        recv.open = false;
        let (at, len, region) = (recv.qp, recv.len, recv.region);
        let pieces = recv.pieces.clone();
        let qp = &mut self.qps[at];
        qp.recvs_open -= 1;
        if qp.node != node || qp.life != life || qp.qpn != completion.qpn {
            return wrong("a receive of another queue pair");
        }
        if qp.destroyed.is_some() {
            return broken("destroyed", format!("receive {index} of a destroyed queue pair: {completion:?}"));
        }
        let verdict = if completion.status != Status::Ok {
            let region_gone = self.regions_gone.contains_key(&(node, region));
            match completion.status {
                Status::Flushed if qp.errored.is_some() => Ok(()),
                // It was consumed by a write whose region went away.
                Status::Flushed if self.regions_gone.keys().any(|(owner, _)| *owner == node) => Ok(()),
                Status::LocalInvalidLkey if region_gone => Ok(()),
                Status::LocalBadLength if qp.short => Ok(()),
                _ => broken("status", format!("receive {index} has no cause to end so: {completion:?}")),
            }
        } else if completion.op == CompletionOp::RecvRdmaWithImm {
            if qp.unsolicited {
                return wrong("a write with immediate consumed a receive where it should not");
            }
            self.write_received(node, at, completion, memories)
        } else {
            let memory = memories[node].as_ref().expect("polled by a process that lives");
            self.send_received(now, at, index, len, region, &pieces, completion, memory)
        };
        if let Some(memory) = &mut memories[node] {
            pieces.iter().for_each(|piece| memory.close(piece.addr));
        }
        verdict
    }

    #[allow(clippy::too_many_arguments)]
    fn send_received(
        &mut self,
        now: Time,
        at: usize,
        index: usize,
        capacity: u32,
        region: usize,
        pieces: &[Piece],
        completion: &Completion,
        memory: &WorldMemory,
    ) -> Result<(), Violation> {
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.push(now);
        }
        let qp = &self.qps[at];
        let header = if qp.kind == QpKind::Ud { 40 } else { 0 };
        if completion.byte_len < header || completion.byte_len > capacity {
            return broken(
                "wrong completion",
                format!("length beyond the receive's {capacity}: {completion:?}"),
            );
        }
        if completion.byte_len > 0 && self.regions_gone.contains_key(&(qp.node, region)) {
            return broken(
                "stray memory access",
                format!("received into a region that is gone: {completion:?}"),
            );
        }
        let mut bytes = std::mem::take(&mut self.look_room);
        let seen = memory.look(pieces, completion.byte_len as usize, &mut bytes);
        let verdict = match seen {
            None => {
                broken("wrong completion", format!("receive {index} lies in no open memory: {completion:?}"))
            }
            Some(()) => self.match_send(at, completion, &bytes[header as usize..]),
        };
        self.look_room = bytes;
        verdict
    }

    fn match_send(&mut self, at: usize, completion: &Completion, bytes: &[u8]) -> Result<(), Violation> {
        let mut first = [0; 8];
        let n = bytes.len().min(8);
        first[..n].copy_from_slice(&bytes[..n]);
        let looks = Looks {
            src_gid: completion.src_gid,
            src_qpn: completion.src_qpn.0,
            dst_qp: at,
            len: bytes.len() as u32,
            imm: completion.imm,
            prefix: u64::from_le_bytes(first),
        };
        let Some(count) = self.looks.get_mut(&looks) else {
            // Flawed messages are not counted here, so one that arrives all the same ends here too.
            return broken("corruption", format!("nobody sent what was received: {completion:?}, {looks:?}"));
        };
        let id = count.first;
        count.received += 1;
        if count.received > count.sent {
            return broken("exactly-once", format!("message {id} is received again: {completion:?}"));
        }
        if let Some(bad) = Pattern::of(self.seed, id as u64).mismatch(0, bytes) {
            return broken(
                "corruption",
                format!("message {id} of {} bytes is wrong from byte {bad} on: {completion:?}", bytes.len()),
            );
        }
        let message = &mut self.messages[id];
        message.delivered = true;
        let posted = message.posted;
        let src = self.qps[message.qp].node;
        self.score.received += 1;
        self.check_source(at, src, posted, completion)
    }

    /// The address handle that a receive names.
    fn check_source(
        &self,
        at: usize,
        src: usize,
        posted: Time,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let node = self.qps[at].node;
        let handle = self.handles[node][src];
        let expected = match (handle.so, self.handle_numbers[node][src]) {
            (true, Some(number)) => number,
            _ => AhNumber::NONE,
        };
        if handle.at < posted && completion.src_ah != expected {
            return broken("wrong completion", format!("source is handle {expected:?}: {completion:?}"));
        }
        Ok(())
    }

    fn write_received(
        &mut self,
        node: usize,
        at: usize,
        completion: &Completion,
        memories: &mut [Option<&mut WorldMemory>],
    ) -> Result<(), Violation> {
        let wrong = |why: &str| broken("wrong completion", format!("{why}: {completion:?}"));
        let Some(id) = completion.imm.map(|imm| imm as usize).filter(|&id| id < self.messages.len()) else {
            return wrong("a write with immediate data that nobody sent");
        };
        let message = &self.messages[id];
        let src = &self.qps[message.qp];
        if message.verb != Verb::Write || message.imm.is_none() || message.dst_qp != at {
            return wrong("a write that was not sent here");
        }
        if message.delivered {
            return broken("exactly-once", format!("message {id} is received again: {completion:?}"));
        }
        if message.flaw != Flaw::None {
            return wrong("a flawed write arrives");
        }
        if completion.byte_len != message.len || completion.src_qpn != src.qpn {
            return wrong("length or source");
        }
        if completion.src_gid != self.gids[src.node] {
            return wrong("source host");
        }
        let (from, posted, remote) = (src.node, message.posted, message.remote);
        let memory = memories[node].as_ref().expect("polled by a process that lives");
        if message.len > 0 && remote.is_some_and(|addr| !memory.is_written(addr)) {
            return broken(
                "corruption",
                format!("write {id} is announced before it is there: {completion:?}"),
            );
        }
        self.messages[id].delivered = true;
        self.messages[id].placed = true;
        self.score.received += 1;
        self.check_source(at, from, posted, completion)
    }

    /// A queue pair is destroyed: its work is void, its memory closed.
    pub fn qp_destroyed(&mut self, now: Time, qp: usize, memory: &mut WorldMemory) {
        self.qps[qp].destroyed = Some(now);
        self.void_messages(|message, _| message.qp == qp, Some(memory));
        for recv in self.recvs.iter_mut().filter(|recv| recv.qp == qp && recv.open) {
            recv.open = false;
            recv.pieces.iter().for_each(|piece| memory.close(piece.addr));
        }
    }

    /// A process dies. What it had is void; what others had placed there is remembered.
    pub fn process_died(&mut self, now: Time, node: usize, memory: &WorldMemory) {
        for message in &mut self.messages {
            let dst = &self.qps[message.dst_qp];
            if let Some(addr) = message.remote
                && (dst.node, dst.life) == (node, self.lives[node].0)
            {
                message.placed |= memory.is_written(addr);
            }
        }
        self.void_messages(|_, src| src.node == node, None);
        for recv in &mut self.recvs {
            recv.open &= self.qps[recv.qp].node != node;
        }
        self.killed[node] = Some(now);
        self.regions_gone.retain(|(owner, _), _| *owner != node);
        self.lives[node] = (self.lives[node].0 + 1, now);
        for peer in 0..self.lives.len() {
            self.handles[node][peer] = Since { so: false, at: now };
            self.handle_numbers[node][peer] = None;
            self.contacts[node][peer] = Contact::default();
        }
    }

    fn void_messages(&mut self, which: impl Fn(&Message, &Qp) -> bool, mut memory: Option<&mut WorldMemory>) {
        for message in &mut self.messages {
            if message.state != State::Outstanding || !which(message, &self.qps[message.qp]) {
                continue;
            }
            message.state = State::Void;
            self.qps[message.qp].sends_open -= 1;
            self.outstanding -= 1;
            self.score.void += 1;
            if let Some(memory) = &mut memory {
                message.local.iter().for_each(|&addr| memory.close(addr));
            }
        }
    }

    /// Whether messages from the dead may still be confirmed to a new process: only without keys.
    pub fn confirms_first(&self) -> bool {
        self.confirm_first
    }

    /// A key that no region has.
    pub fn no_such_key(salt: u64) -> MrKey {
        MrKey(0x00f0_0000 | (salt as u32 & 0xffff))
    }
}
