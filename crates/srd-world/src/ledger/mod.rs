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
//!
//! Beside these, the world itself reports `liveness`, `silence`, `storm`, `livelock`, `codec` (packets that contradict
//! themselves or do not fit), `isolation`, `notification`, `counters`, `refused call` and `panic`.

mod causes;
mod records;

pub use records::*;

use crate::memory::WorldMemory;
use crate::pattern::Pattern;
use srd_device::{AhNumber, Completion, CompletionOp, Piece, QpKind};
use srd_wire::{Gid, MrKey, Nanos, Status, Time};
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
    /// `given_up[a][b]`: whether a has ever given up an instance at b's host.
    pub given_up: Vec<Vec<bool>>,
    /// `handles[a][b]`: whether a has an address handle of b's host.
    pub handles: Vec<Vec<Since>>,
    /// The number of that handle.
    pub handle_numbers: Vec<Vec<Option<AhNumber>>>,
    /// `contacts[a][b]`: what a has heard of b.
    pub contacts: Vec<Vec<Contact>>,
    /// When a region of a process was taken away.
    pub regions_gone: BTreeMap<(usize, usize), Time>,
    /// The network has begun to swallow packets of a size that it had carried before.
    pub mtu_dropped: bool,
    /// When the clock of a process last jumped.
    pub jumped: Vec<Option<Time>>,
    peer_timeout: Nanos,
    /// It cannot be said exactly how long a peer had been silent: processes have several receive ports, and a context
    /// for each pair of them, or they look at their completions late.
    pub vague_silence: bool,
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
    pub fn new(seed: u64, gids: Vec<Gid>, peer_timeout: Nanos) -> Ledger {
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
            given_up: vec![vec![false; n]; n],
            handles: vec![vec![never; n]; n],
            handle_numbers: vec![vec![None; n]; n],
            contacts: vec![vec![Contact::default(); n]; n],
            regions_gone: BTreeMap::new(),
            mtu_dropped: false,
            jumped: vec![None; n],
            gids,
            peer_timeout,
            vague_silence: false,
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

    /// Process `node` has given up an instance at the host `gid`.
    pub fn gave_up(&mut self, node: usize, gid: Gid) {
        for (peer, _) in self.gids.iter().enumerate().filter(|&(_, host)| *host == gid) {
            self.given_up[node][peer] = true;
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

    /// A key that no region has.
    pub fn no_such_key(salt: u64) -> MrKey {
        MrKey(0x00f0_0000 | (salt as u32 & 0xffff))
    }
}
