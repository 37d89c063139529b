//! Atomic operations. They go as messages, which the layer over there carries out in the order of messages, each once, and
//! answers.

use crate::api::*;
use crate::atomic_ops::{AtomicOp, Datatype, Form};
use crate::endpoint::{Endpoint, name_of};
use crate::header::{self, Body, LONGEST, Target};
use crate::iov::{gather, is_accelerators, length, scatter};
use crate::kept::Breach;
use crate::one_sided::{ANSWER_DENIED, ANSWER_NO_KEY, ANSWER_UNSUPPORTED};
use crate::receiving::ANSWER_OK;
use crate::shared::Cx;
use crate::work::{Await, Op, Purpose};
use srd_device::Store;
use std::ops::Range;

impl Form {
    fn from_number(n: u8) -> Option<Form> {
        [Form::Base, Form::Fetch, Form::Compare].into_iter().find(|&form| form as u8 == n)
    }
}

impl Config {
    /// Bytes of operands of one atomic operation, where operands, values to compare and header share a message of
    /// `max_msg` bytes.
    pub fn longest_atomic(max_msg: u32, form: Form) -> u64 {
        let room = max_msg as u64 - LONGEST as u64 - 32;
        room / if form == Form::Compare { 2 } else { 1 } / 64 * 64
    }
}

impl Endpoint {
    pub fn atomic<M: Store>(&mut self, cx: &mut Cx<'_, M>, atomic: &Atomic<'_>) -> Result<(), Refused> {
        self.check_room(atomic.to, &atomic.flags)?;
        let lists = [atomic.operand.len(), atomic.compare.len(), atomic.result.len(), atomic.remote.len()];
        if lists.into_iter().any(|len| len > IOV_LIMIT) {
            return Err(Refused::Invalid("iov: more elements than the limit"));
        }
        let form = match (atomic.compare.is_empty(), atomic.result.is_empty()) {
            (false, _) => Form::Compare,
            (true, false) => Form::Fetch,
            (true, true) => Form::Base,
        };
        if !crate::atomic_ops::valid(form, atomic.op, atomic.datatype) {
            return Err(Refused::Unsupported("operation: not for that type, or not in that form"));
        }
        let len: u64 = atomic.remote.iter().map(|piece| piece.len).fold(0, u64::saturating_add);
        let fits = |iov: &[Iov]| iov.is_empty() || length(iov) == len;
        let operand_given = !atomic.operand.is_empty() || atomic.op == AtomicOp::Read;
        if len == 0
            || !fits(atomic.operand)
            || !fits(atomic.compare)
            || !fits(atomic.result)
            || !operand_given
        {
            return Err(Refused::Invalid("iov: operands, results and targets differ in length"));
        }
        let size = atomic.datatype.size() as u64;
        if !atomic.remote.iter().all(|piece| piece.len.is_multiple_of(size)) {
            return Err(Refused::Invalid("rma_iov: no whole number of elements"));
        }
        if len > Config::longest_atomic(cx.shared.short_msg, form) {
            return Err(Refused::TooLong);
        }
        let operands = if atomic.op == AtomicOp::Read { 0 } else { len };
        let message = operands + if form == Form::Compare { len } else { 0 };
        if !self.peers[atomic.to.0 as usize].has_operations_room(message) {
            return Err(Refused::Again);
        }
        if is_accelerators(cx.memory(), atomic.operand) || is_accelerators(cx.memory(), atomic.compare) {
            return self.atomic_copied(cx, atomic);
        }
        let op = Op {
            kind: Kind::Atomic { fetch: form != Form::Base },
            report: atomic.flags.report,
            parts: 1,
            ..Op::new(atomic.to.0, atomic.context, atomic.result.iter().copied().collect())
        };
        let key = self.begin_op(op);
        self.await_answer(cx, key.index);
        self.asks_operation(key.index, message);
        let peer = atomic.to.0;
        let body = Body::Atomic(Box::new(header::Atomic {
            number: self.peers[peer as usize].take_number(),
            op: name_of(key),
            operation: atomic.op as u8,
            datatype: atomic.datatype as u8,
            form: form as u8,
            targets: atomic
                .remote
                .iter()
                .map(|piece| Target { addr: piece.addr, key: piece.key, len: piece.len as u32 })
                .collect(),
        }));
        let operand: &[Iov] = if atomic.op == AtomicOp::Read { &[] } else { atomic.operand };
        let (operands, compares) = (length(operand), length(atomic.compare));
        let buffer = cx.take_buffer(LONGEST + (operands + compares) as usize);
        let header = self.write_header(cx, peer, &body, &buffer) as u64;
        let copied = gather(cx.memory(), operand, buffer.addr + header)
            && gather(cx.memory(), atomic.compare, buffer.addr + header + operands);
        debug_assert!(copied, "an accelerator's has been copied before");
        let len = (header + operands + compares) as usize;
        self.send_buffer(cx, peer, Purpose::Part(key.index), buffer, len, None);
        Ok(())
    }

    /// Operands in an accelerator's memory are copied out first.
    #[cold]
    fn atomic_copied<M: Store>(&mut self, cx: &mut Cx<'_, M>, atomic: &Atomic<'_>) -> Result<(), Refused> {
        let (operands, compares) = (length(atomic.operand), length(atomic.compare));
        let buffer = cx.take_buffer((operands + compares) as usize);
        let piece = |addr, len| if len > 0 { vec![Iov { addr, len }] } else { Vec::new() };
        let (operand, compare) = (piece(buffer.addr, operands), piece(buffer.addr + operands, compares));
        let there = gather(cx.memory(), atomic.operand, buffer.addr)
            && gather(cx.memory(), atomic.compare, buffer.addr + operands);
        let begun = match there {
            true => self.atomic(cx, &Atomic { operand: &operand, compare: &compare, ..*atomic }),
            false => Err(Refused::MemoryGone),
        };
        cx.give_buffer(buffer);
        begun
    }

    /// A peer says what became of an operation of ours.
    pub fn answered<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        index: u32,
        status: u32,
        payload: u64,
        len: u32,
    ) -> Result<(), Breach> {
        let op = self.ops.at_mut(index).expect("the caller has it");
        let fetches = status == ANSWER_OK && op.kind == Kind::Atomic { fetch: true };
        // Who compares need not want the values before it.
        let fits = if fetches { op.local.is_empty() || len as u64 == length(&op.local) } else { len == 0 };
        if op.awaits != Await::Answer {
            return Err(Breach::Unasked);
        }
        if !fits {
            return Err(Breach::Length);
        }
        op.awaits = Await::Nothing;
        match status {
            ANSWER_OK if scatter(cx.memory(), payload, len as u64, &op.local, 0) => {}
            ANSWER_OK => op.failure = Some(Failure::MemoryGone),
            ANSWER_NO_KEY => op.failure = Some(Failure::RemoteAccess { known: false }),
            ANSWER_DENIED => op.failure = Some(Failure::RemoteAccess { known: true }),
            _ => op.failure = Some(Failure::RemoteUnsupported),
        }
        op.asked_again = true;
        let peer = op.peer;
        self.has_paid(peer);
        self.op_changed(cx, index);
        Ok(())
    }

    /// A peer has an atomic operation carried out here.
    pub fn atomic_here<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        atomic: &header::Atomic,
        payload: u64,
        len: u32,
    ) -> Result<(), Breach> {
        // No sender has more, and more would take its time here while nobody else gets any.
        let total: u64 = atomic.targets.iter().map(|target| target.len as u64).sum();
        let form = Form::from_number(atomic.form).unwrap_or(Form::Base);
        if total > Config::longest_atomic(cx.shared.short_msg, form) {
            return Err(Breach::Length);
        }
        cx.shared.counters.atomics += 1;
        let result = self.carry_out(cx, atomic, payload, len);
        if cx.shared.counts && result.is_ok() {
            self.count_atomic(cx, atomic, form);
        }
        let (status, results) = match result {
            Ok(results) => (ANSWER_OK, results),
            Err(status) => (status, Vec::new()),
        };
        let body = Body::Answer { op: atomic.op, status };
        let buffer = cx.take_buffer(LONGEST + results.len());
        let header = self.write_header(cx, peer, &body, &buffer);
        cx.memory().bytes_mut(buffer.addr + header as u64, results.len()).copy_from_slice(&results);
        self.send_buffer(cx, peer, Purpose::Control, buffer, header + results.len(), None);
        Ok(())
    }

    /// At an endpoint what returns values counts as a read (fi_endpoint(3)), in a region what changes something as a write (fi_mr(3)).
    #[cold]
    fn count_atomic<M: Store>(&mut self, cx: &mut Cx<'_, M>, atomic: &header::Atomic, form: Form) {
        let reads = atomic.operation == AtomicOp::Read as u8;
        self.count_at_endpoint(cx, form != Form::Base);
        for (at, target) in atomic.targets.iter().enumerate() {
            let before = atomic.targets.iter().take(at);
            if before.into_iter().all(|other| other.key != target.key) {
                self.count_in_region(cx, reads, target.key);
            }
        }
    }

    fn carry_out<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        atomic: &header::Atomic,
        payload: u64,
        len: u32,
    ) -> Result<Vec<u8>, u32> {
        let (op, datatype, form) = (
            AtomicOp::from_number(atomic.operation as u32),
            Datatype::from_number(atomic.datatype as u32),
            Form::from_number(atomic.form),
        );
        let (Some(op), Some(datatype), Some(form)) = (op, datatype, form) else {
            return Err(ANSWER_UNSUPPORTED);
        };
        if !crate::atomic_ops::valid(form, op, datatype) {
            return Err(ANSWER_UNSUPPORTED);
        }
        let size = datatype.size();
        let total: u64 = atomic.targets.iter().map(|target| target.len as u64).sum();
        let operands = if op == AtomicOp::Read { 0 } else { total };
        let compares = if form == Form::Compare { total } else { 0 };
        let whole = atomic.targets.iter().all(|target| (target.len as usize).is_multiple_of(size));
        if operands + compares != len as u64 || !whole {
            return Err(ANSWER_UNSUPPORTED);
        }
        let needed = RemoteRights { read: form != Form::Base, write: op != AtomicOp::Read };
        // All or nothing: every target is looked at before the first is changed.
        let mut places: arrayvec::ArrayVec<Range<u64>, IOV_LIMIT> = Default::default();
        for target in &atomic.targets {
            let place = cx.shared.regions.locate(target.key, target.addr, target.len as u64, needed);
            let place = place.map_err(|denied| denied.answer())?;
            if !cx.memory().is_there(place.clone(), true) {
                return Err(ANSWER_DENIED);
            }
            places.push(place);
        }
        // What came early and has no operands lies nowhere.
        let given = if len > 0 { cx.memory().bytes(payload, len as usize).to_vec() } else { Vec::new() };
        let (operand, compare) = given.split_at(operands as usize);
        let mut results = vec![0; if form == Form::Base { 0 } else { total as usize }];
        let mut at = 0;
        for addr in places.into_iter().flat_map(|place| place.step_by(size)) {
            let element = at..at + size;
            let mut old = [0; 32];
            let updated = cx.memory().update(addr, size, &mut |value| {
                old[..size].copy_from_slice(value);
                let operand = operand.get(element.clone()).unwrap_or(&[]);
                let compare = compare.get(element.clone()).unwrap_or(&[]);
                crate::atomic_ops::apply(op, datatype, value, operand, compare);
            });
            if !updated {
                return Err(ANSWER_DENIED);
            }
            if let Some(result) = results.get_mut(element.clone()) {
                result.copy_from_slice(&old[..size]);
            }
            at = element.end;
        }
        Ok(results)
    }
}
