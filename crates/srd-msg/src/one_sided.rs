//! RMA. Where the device's key is known, the device reads and writes by itself. Where only the program's key is known, a
//! short write goes as a message that the layer over there carries out; for anything else the key is asked for once.

use crate::api::*;
use crate::endpoint::{Endpoint, name_of};
use crate::header::{Body, LONGEST, Notice, Put};
use crate::iov::{Iovs, is_accelerators, length, stretch};
use crate::operations::copy_injected;
use crate::peer::KnownKey;
use crate::receiving::ANSWER_OK;
use crate::regions::{Denied, device_key_in};
use crate::shared::Cx;
use crate::work::{Await, Op, Purpose, Told, Work};
use arrayvec::ArrayVec;
use srd_device::slab::Key;
use srd_device::{SendOp, Sge, Store};
use srd_wire::MrKey;

/// Answers to writes and atomic operations.
pub(crate) const ANSWER_NO_KEY: u32 = 1;
pub(crate) const ANSWER_DENIED: u32 = 2;
pub(crate) const ANSWER_UNSUPPORTED: u32 = 3;

/// Longest piece that the device is given at once.
const LONGEST_PIECE: u64 = 64 << 20;

impl Denied {
    pub fn answer(self) -> u32 {
        match self {
            Denied::NoSuchKey => ANSWER_NO_KEY,
            Denied::NotPermitted => ANSWER_DENIED,
        }
    }
}

impl Endpoint {
    pub fn rma<M: Store>(&mut self, cx: &mut Cx<'_, M>, rma: &Rma<'_>) -> Result<(), Refused> {
        self.check_room(rma.to, &rma.flags)?;
        if rma.local.len() > IOV_LIMIT || rma.remote.len() > IOV_LIMIT {
            return Err(Refused::Invalid("iov: more elements than the limit"));
        }
        let len = length(rma.local);
        let there: u64 = rma.remote.iter().map(|piece| piece.len).fold(0, u64::saturating_add);
        if there != len {
            return Err(Refused::Invalid("rma_iov: not as long as the local list"));
        }
        let longest = if rma.flags.inject { cx.shared.config.inject_size } else { cx.shared.config.longest };
        if len > longest {
            return Err(Refused::TooLong);
        }
        // Of what may go by message: whether it does is found out when it starts.
        let short = len <= (cx.shared.short_msg as usize - LONGEST) as u64;
        if !rma.read && short && !self.peers[rma.to.0 as usize].has_operations_room(len) {
            return Err(Refused::Again);
        }
        let mut local: Iovs = rma.local.iter().copied().collect();
        // What may go by message is copied now, too, out of an accelerator's memory.
        let copied = rma.flags.inject || !rma.read && short && is_accelerators(cx.memory(), &local);
        let copy = if copied { copy_injected(cx, &mut local)? } else { None };
        let op = Op {
            kind: if rma.read { Kind::Read } else { Kind::Write },
            report: rma.flags.report,
            copy,
            remote: rma.remote.iter().copied().collect(),
            notice: Told::new(rma.data, false),
            ..Op::new(rma.to.0, rma.context, local)
        };
        let key = self.begin_op(op);
        self.start_one_sided(cx, key.index);
        Ok(())
    }

    /// Starts an operation, or has it wait for what it needs to know.
    pub fn start_one_sided<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        let op = self.ops.at(index).expect("the caller has it");
        let peer = &self.peers[op.peer as usize];
        let (read, data) = (op.kind == Kind::Read, op.notice.and_then(Told::data));
        let mut counted = false;
        let keys: Option<ArrayVec<MrKey, IOV_LIMIT>> = op
            .remote
            .iter()
            .map(|piece| {
                // Who counts gives out no keys that say what is behind them.
                device_key_in(piece.key).or_else(|| {
                    let known = peer.keys.get(&piece.key)?;
                    counted |= known.counted.has(read);
                    Some(known.device_key)
                })
            })
            .collect();
        let len = length(&op.local);
        let short = len <= (cx.shared.short_msg as usize - LONGEST) as u64 && op.remote.len() == 1;
        let write = !read;
        // What the peer is to hear goes along, which spares the way back that a notice would wait for.
        // One that comes back from waiting for a key may find no room; it goes on waiting for the key.
        let goes_by_message = write && short && (data.is_some() || keys.is_none() || !peer.spoken || counted);
        if goes_by_message && peer.has_operations_room(len) {
            return self.put(cx, index);
        }
        if counted && !op.notice.is_some_and(Told::is_counted) {
            self.ops.at_mut(index).expect("the caller has it").notice = Told::new(data, true);
            return self.start_one_sided(cx, index);
        }
        if op.remote.iter().all(|piece| piece.len == 0) && (write || op.remote.is_empty()) {
            // Nothing to do but to tell the peer, if it is to be told.
            return self.op_changed(cx, index);
        }
        match keys {
            // The device over there answers only hosts that it knows.
            Some(keys) if peer.spoken => self.start_direct(cx, index, &keys),
            Some(_) => self.park(cx, index, None),
            None => {
                let unknown = op
                    .remote
                    .iter()
                    .find(|piece| device_key_in(piece.key).is_none() && !peer.keys.contains_key(&piece.key));
                let key = unknown.map(|piece| piece.key);
                self.park(cx, index, key);
            }
        }
    }

    /// The operation waits: for the peer to say who it is, or what is behind `key`.
    fn park<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32, key: Option<u64>) {
        let op = self.ops.at_mut(index).expect("the caller has it");
        op.awaits = Await::Peer;
        let peer = op.peer;
        self.peers[peer as usize].parked.push(index);
        self.owes(cx, peer);
        match key {
            Some(key) => self.tell(cx, peer, &Body::KeyQuery { query: 0, key }),
            None if !self.peers[peer as usize].introduced => self.tell(cx, peer, &Body::Ping),
            None => {}
        }
    }

    /// The device does it.
    fn start_direct<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32, keys: &[MrKey]) {
        let op = self.ops.at(index).expect("the caller has it");
        let (peer, read, local, remote) =
            (op.peer, op.kind == Kind::Read, op.local.clone(), op.remote.clone());
        let mut at = 0;
        for (piece, &rkey) in remote.iter().zip(keys) {
            let mut offset = 0;
            while offset < piece.len {
                let here = stretch(&local, at, (piece.len - offset).min(LONGEST_PIECE))[0];
                let addr = piece.addr.wrapping_add(offset);
                let op = match read {
                    true => SendOp::Read { rkey, addr },
                    false => SendOp::Write { rkey, addr, imm: None },
                };
                let sge = Sge { addr: here.addr, len: here.len as u32, lkey: cx.shared.all_memory };
                self.ops.at_mut(index).expect("it has parts").parts += 1;
                let sges = ArrayVec::from_iter([sge]);
                self.post(cx, peer, Work { purpose: Purpose::Part(index), buffer: None, op, sges });
                offset += here.len;
                at += here.len;
            }
        }
        self.op_changed(cx, index);
    }

    /// The layer over there does it.
    fn put<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        let key = self.ops.key_at(index).expect("the caller has it");
        let op = self.ops.at_mut(index).expect("the caller has it");
        let (peer, target, data) = (op.peer, op.remote[0], op.notice.take().and_then(Told::data));
        let local = op.local.clone();
        op.parts += 1;
        let number = self.peers[peer as usize].take_number();
        let body = Body::Put(Put { number, op: name_of(key), key: target.key, addr: target.addr, data });
        self.await_answer(cx, index);
        self.asks_operation(index, length(&local));
        let sent = self.send_with_payload(cx, peer, Purpose::Part(index), &body, &local);
        debug_assert!(sent, "an accelerator's has been copied before");
    }

    /// All is done; the peer's program is to hear of it.
    pub fn give_notice<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        let op = self.ops.at_mut(index).expect("the caller has it");
        let told = op.notice.take().expect("the caller has looked");
        op.parts += 1;
        let (peer, len, read) = (op.peer, length(&op.local), op.kind == Kind::Read);
        let piece = if let Told::Also(piece) = told { usize::from(piece) } else { 0 };
        let mut key = None;
        if told.is_counted() {
            key = op.remote.get(piece).map(|piece| piece.key);
            let is_new = |at: &usize| op.remote[..*at].iter().all(|before| before.key != op.remote[*at].key);
            op.notice = (piece + 1..op.remote.len()).find(is_new).map(|at| Told::Also(at as u8));
        }
        let again = matches!(told, Told::Also(_));
        let number = self.peers[peer as usize].take_number();
        self.await_acceptance(cx, index);
        let body = Body::Notice(Notice { number, read, data: told.data(), len, key, again });
        self.tell_for(cx, peer, &body, Purpose::Part(index));
    }

    /// An answer about a key may be out of date: once it is asked for again. False if that is of no use.
    pub fn ask_again<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) -> bool {
        let op = self.ops.at_mut(index).expect("the caller has it");
        let peer = op.peer;
        let one_sided = matches!(op.kind, Kind::Read | Kind::Write) && op.awaits == Await::Nothing;
        if !one_sided || op.asked_again {
            return false;
        }
        // Several operations may find out at the same time; each asks for itself. One of the provider's keys says what is
        // behind it, but not whether that is still there.
        let of_program = |key: &u64| device_key_in(*key).is_none();
        let mut keys = op.remote.iter().map(|piece| piece.key);
        let Some(key) = keys.clone().find(of_program).or_else(|| keys.next()) else { return false };
        op.asked_again = true;
        op.failure = None;
        // Nor need what is behind it now be counted.
        op.notice = Told::new(op.notice.and_then(Told::data), false);
        self.peers[peer as usize].keys.remove(&key);
        self.park(cx, index, Some(key));
        true
    }

    // ---- at the target ----

    /// A peer asks what is behind a key.
    pub fn tell_key<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, query: u32, key: u64) {
        let behind = cx.shared.regions.behind(key);
        let (device_key, counted) = behind.unwrap_or((MrKey(0), Counted::default()));
        let body = Body::KeyAnswer {
            query,
            found: behind.is_some(),
            counted: counted.or(self.counted),
            device_key: device_key.0,
            key,
        };
        self.tell(cx, peer, &body);
    }

    /// A peer says what is behind a key.
    pub fn learn_key<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, key: u64, known: Option<KnownKey>) {
        // Several operations may have asked for the same: the first answer serves all of them.
        let asked = |&op: &u32| {
            self.ops
                .at(op)
                .is_some_and(|op| op.peer == peer && op.remote.iter().any(|piece| piece.key == key))
        };
        if !self.peers[peer as usize].parked.iter().any(asked) {
            return;
        }
        if let Some(known) = known {
            self.peers[peer as usize].keys.insert(key, known);
            return self.unpark(cx, peer);
        }
        let waiting: Vec<Key> = self
            .ops
            .iter()
            .filter(|(_, op)| {
                op.peer == peer && op.awaits == Await::Peer && op.remote.iter().any(|piece| piece.key == key)
            })
            .map(|(key, _)| key)
            .collect();
        for op in waiting {
            self.peers[peer as usize].parked.retain(|&parked| parked != op.index);
            let entry = self.ops.get_mut(op).expect("collected a moment ago");
            entry.awaits = Await::Nothing;
            entry.asked_again = true;
            entry.failure = Some(Failure::RemoteAccess { known: false });
            self.has_paid(peer);
            self.op_changed(cx, op.index);
        }
    }

    /// A peer has a write carried out here.
    pub fn put_here<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, put: &Put, payload: u64, len: u32) {
        let needed = RemoteRights { read: false, write: true };
        let mut status = ANSWER_OK;
        // With nothing to write no key is needed.
        if len > 0 {
            match cx.shared.regions.locate(put.key, put.addr, len as u64, needed) {
                Ok(target)
                    if cx.memory().is_there(target.clone(), true)
                        && cx.memory().copy(payload, target.start, len as usize) => {}
                Ok(_) => status = ANSWER_DENIED,
                Err(denied) => status = denied.answer(),
            }
        }
        cx.shared.counters.puts += 1;
        if let (ANSWER_OK, Some(data)) = (status, put.data) {
            self.tell_of_data(cx, peer, data, len as u64);
        }
        if cx.shared.counts && status == ANSWER_OK {
            self.count_access(cx, false, put.data.is_some(), put.key);
        }
        self.tell(cx, peer, &Body::Answer { op: put.op, status });
    }

    /// A peer has read or written here, and says so.
    pub fn notice_here<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, notice: &Notice) {
        if let Some(data) = notice.data {
            self.tell_of_data(cx, peer, data, notice.len);
        }
        match notice.key {
            Some(key) if cx.shared.counts => {
                self.count_access(cx, notice.read, notice.again || notice.data.is_some(), key);
            }
            _ => {}
        }
    }

    /// A peer has read or changed what is behind a key of ours: it is counted where that is wanted. `is_known`: at the endpoint it has been,
    /// or is by its data.
    fn count_access<M: Store>(&mut self, cx: &mut Cx<'_, M>, read: bool, is_known: bool, key: u64) {
        if !is_known {
            self.count_at_endpoint(cx, read);
        }
        self.count_in_region(cx, read, key);
    }

    pub fn count_at_endpoint<M: Store>(&mut self, cx: &mut Cx<'_, M>, read: bool) {
        if self.counted.has(read) {
            let kind = if read { Kind::RemoteRead } else { Kind::RemoteWrite };
            cx.shared.done.push(self.done(kind, 0, false));
        }
    }

    pub fn count_in_region<M: Store>(&mut self, cx: &mut Cx<'_, M>, read: bool, key: u64) {
        if let Some(context) = cx.shared.regions.counts(key, read) {
            cx.shared.done.push(self.done(Kind::Access { write: !read }, context, false));
        }
    }

    /// A peer has written here, with data.
    fn tell_of_data<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, data: u64, len: u64) {
        let from = &self.peers[peer as usize];
        cx.shared.done.push(crate::api::Done {
            len,
            data: Some(data),
            source: from.label,
            from: Some(from.addr),
            ..self.done(Kind::RemoteWrite, 0, true)
        });
    }
}
