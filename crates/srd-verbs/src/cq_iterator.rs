//! Polling completion queues: the iterator of extended ones, and `ibv_poll_cq`.
//!
//! Completions are taken from the device in batches and handed out one by one. What they say, and in which word, is
//! what libefa says.

use crate::boundary::{Errno, Outcome, abi};
use crate::cq::Cq;
use crate::layout::constant::*;
use crate::layout::*;
use crate::status::{vendor_err, wc_status};
use libc::{c_int, c_uint};
use srd_device::{AhNumber, Completion, CompletionOp};
use srd_wire::{Gid, Qpn, Status};

/// Completions taken from the device at once.
const BATCH: usize = 32;

/// Completions on their way from the device to the program.
pub(crate) struct Polled {
    batch: [Completion; BATCH],
    /// So many are taken at once.
    most: usize,
    /// The next to hand out, and where the batch ends.
    next: usize,
    end: usize,
    current: Completion,
}

const NOTHING: Completion = Completion {
    wr_id: 0,
    status: Status::Ok,
    op: CompletionOp::Send,
    qpn: Qpn(0),
    src_qpn: Qpn(0),
    src_ah: AhNumber::NONE,
    src_gid: Gid([0; 16]),
    byte_len: 0,
    imm: None,
    unsolicited: false,
    claimed: false,
};

impl Polled {
    /// `strict`: a completion leaves the device, and its request the queue, when the program has it, not before.
    pub fn new(strict: bool) -> Polled {
        let most = if strict { 1 } else { BATCH };
        Polled { batch: [NOTHING; BATCH], most, next: 0, end: 0, current: NOTHING }
    }

    /// Whether completions wait here that the program has not seen.
    pub fn has_more(&self) -> bool {
        self.next < self.end
    }

    /// Takes what was not handed out.
    pub fn drain(&mut self) -> impl Iterator<Item = Completion> {
        let rest = self.next..std::mem::replace(&mut self.end, self.next);
        self.batch[rest].iter().copied()
    }

    /// Moves to the next completion; false if there is none.
    #[inline]
    fn advance(&mut self, cq: &Cq) -> Outcome<bool> {
        if self.next == self.end {
            self.next = 0;
            self.end = 0;
            self.end = cq.link.instance()?.poll_cq(cq.to_poll(), &mut self.batch[..self.most])?;
            if self.end == 0 {
                return Ok(false);
            }
        }
        self.current = self.batch[self.next];
        self.next += 1;
        Ok(true)
    }

    /// Forgets completions of a queue pair that is gone (docs/design/efa-verbs.md, "Trap 2").
    pub fn forget(&mut self, qpn: Qpn) {
        let mut kept = self.next;
        for at in self.next..self.end {
            if self.batch[at].qpn != qpn {
                self.batch[kept] = self.batch[at];
                kept += 1;
            }
        }
        self.end = kept;
    }
}

/// libefa's word for what completed. Its reads complete as `IBV_WC_SEND`: its iterator knows only whether a request
/// was a write (`efa_wc_read_opcode`), and programs written for it tell by their own work request.
#[inline]
fn wc_opcode(op: CompletionOp) -> c_int {
    match op {
        CompletionOp::Send | CompletionOp::Read => IBV_WC_SEND,
        CompletionOp::Write => IBV_WC_RDMA_WRITE,
        CompletionOp::Recv => IBV_WC_RECV,
        CompletionOp::RecvRdmaWithImm => IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

#[inline]
fn wc_flags(completion: &Completion) -> c_uint {
    if completion.imm.is_some() { IBV_WC_WITH_IMM } else { 0 }
}

#[inline]
fn is_receive(completion: &Completion) -> bool {
    matches!(completion.op, CompletionOp::Recv | CompletionOp::RecvRdmaWithImm)
}

/// Immediate data in network order, as programs gave it and take it.
#[inline]
fn imm_data(completion: &Completion) -> u32 {
    completion.imm.unwrap_or(0).to_be()
}

fn to_wc(completion: &Completion) -> ibv_wc {
    let receive = is_receive(completion);
    ibv_wc {
        wr_id: completion.wr_id,
        status: wc_status(completion.status),
        opcode: wc_opcode(completion.op),
        vendor_err: vendor_err(completion.status),
        byte_len: if receive { completion.byte_len } else { 0 },
        imm_data: imm_data(completion),
        qp_num: completion.qpn.0 as u32,
        src_qp: completion.src_qpn.0 as u32,
        wc_flags: wc_flags(completion),
        pkey_index: 0,
        slid: if receive { completion.src_ah.0 } else { 0 },
        sl: 0,
        dlid_path_bits: 0,
    }
}

/// Moves to the next completion and shows it. ENOENT if there is none.
///
/// # Safety
/// The calling thread holds the lock of `cq.polled`.
#[inline]
unsafe fn show_next(cq: &Cq) -> Outcome<()> {
    // SAFETY: as the caller says.
    let polled = unsafe { cq.polled.held() };
    if !polled.advance(cq)? {
        return Err(Errno::NO_ENTRY);
    }
    let ex = cq.ex();
    // SAFETY: fields of a live object that only the holder of the lock writes to.
    unsafe {
        (*ex).wr_id = polled.current.wr_id;
        (*ex).status = wc_status(polled.current.status);
    }
    Ok(())
}

abi! {
    polled fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) {
        if attr.as_ref().is_some_and(|attr| attr.comp_mask != 0) {
            return Err(Errno::INVALID);
        }
        let cq = Cq::of_ex(cq);
        // Who found nothing does not call `end_poll` (ibv_create_cq_ex(3)).
        let locked = cq.polled.guard();
        show_next(cq)?;
        locked.keep();
        Ok(())
    }

    polled fn next_poll(cq: *mut ibv_cq_ex) {
        show_next(Cq::of_ex(cq))
    }

    value fn end_poll(cq: *mut ibv_cq_ex) -> () {
        Cq::of_ex(cq).polled.unlock()
    }

    number fn poll_cq(cq: *mut ibv_cq, max: c_int, wc: *mut ibv_wc) {
        let cq = Cq::of(cq)?;
        if max > 0 && wc.is_null() {
            return Err(Errno::INVALID);
        }
        cq.polled.with(|polled| {
            for count in 0..max {
                match polled.advance(cq) {
                    Ok(true) => wc.add(count as usize).write(to_wc(&polled.current)),
                    Err(errno) if count == 0 => return Err(errno),
                    _ => return Ok(count),
                }
            }
            Ok(max.max(0))
        })
    }
}

/// A function that reads one field of the current completion.
macro_rules! readers {
    ($($name:ident -> $type:ty = |$completion:ident| $value:expr;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: called between `start_poll` and `end_poll`, by the thread that holds the lock.
            let $completion = unsafe { &Cq::of_ex(cq).polled.held().current };
            $value
        })*
    };
}

readers! {
    read_opcode -> c_int = |completion| wc_opcode(completion.op);
    read_vendor_err -> u32 = |completion| vendor_err(completion.status);
    read_wc_flags -> c_uint = |completion| wc_flags(completion);
    read_byte_len -> u32 = |completion| if is_receive(completion) { completion.byte_len } else { 0 };
    read_imm_data -> u32 = |completion| imm_data(completion);
    read_qp_num -> u32 = |completion| completion.qpn.0 as u32;
    read_src_qp -> u32 = |completion| completion.src_qpn.0 as u32;
    read_slid -> u32 = |completion| completion.src_ah.0 as u32;
    read_sl -> u8 = |_completion| 0;
    read_dlid_path_bits -> u8 = |_completion| 0;
}

/// The sender's GID, which EFA reports only where there is no address handle for it: otherwise -ENOENT.
unsafe extern "C" fn read_sgid(cq: *mut efadv_cq, sgid: *mut ibv_gid) -> c_int {
    // SAFETY: called between `start_poll` and `end_poll`, by the thread that holds the lock.
    let completion = unsafe { &Cq::of_dv(cq).polled.held().current };
    if completion.src_ah != AhNumber::NONE {
        return -libc::ENOENT;
    }
    // SAFETY: by efadv_create_cq(3) a GID of the program's.
    unsafe { sgid.cast::<[u8; 16]>().write(completion.src_gid.0) };
    0
}

unsafe extern "C" fn is_unsolicited(cq: *mut efadv_cq) -> bool {
    // SAFETY: called between `start_poll` and `end_poll`, by the thread that holds the lock.
    unsafe { Cq::of_dv(cq).polled.held().current.unsolicited }
}

/// Fills in the iterator's functions: those of the fields that `flags` ask for.
pub(crate) fn install(ex: &mut ibv_cq_ex, flags: u64) {
    ex.start_poll = Some(start_poll);
    ex.next_poll = Some(next_poll);
    ex.end_poll = Some(end_poll);
    ex.read_opcode = Some(read_opcode);
    ex.read_vendor_err = Some(read_vendor_err);
    ex.read_wc_flags = Some(read_wc_flags);
    let asked = |flag: u64| flags & flag != 0;
    ex.read_byte_len = asked(IBV_WC_EX_WITH_BYTE_LEN).then_some(read_byte_len);
    ex.read_imm_data = asked(IBV_WC_EX_WITH_IMM).then_some(read_imm_data);
    ex.read_qp_num = asked(IBV_WC_EX_WITH_QP_NUM).then_some(read_qp_num);
    ex.read_src_qp = asked(IBV_WC_EX_WITH_SRC_QP).then_some(read_src_qp);
    ex.read_slid = asked(IBV_WC_EX_WITH_SLID).then_some(read_slid);
    ex.read_sl = asked(IBV_WC_EX_WITH_SL).then_some(read_sl);
    ex.read_dlid_path_bits = asked(IBV_WC_EX_WITH_DLID_PATH_BITS).then_some(read_dlid_path_bits);
}

/// The fields that only EFA has.
pub(crate) fn efa_fields(flags: u64) -> efadv_cq {
    efadv_cq {
        comp_mask: 0,
        wc_read_sgid: (flags & EFADV_WC_EX_WITH_SGID != 0).then_some(read_sgid),
        wc_is_unsolicited: (flags & EFADV_WC_EX_WITH_IS_UNSOLICITED != 0).then_some(is_unsolicited),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_qp(qpn: u16, wr_id: u64) -> Completion {
        Completion { qpn: Qpn(qpn), wr_id, ..NOTHING }
    }

    /// docs/design/efa-verbs.md, "Trap 2": after `ibv_destroy_qp` nothing of the queue pair may surface, batched or not.
    #[test]
    fn a_batch_forgets_the_completions_of_a_destroyed_queue_pair() {
        let mut polled = Polled::new(false);
        for (at, qpn) in [7, 8, 7, 9, 8].into_iter().enumerate() {
            polled.batch[at] = of_qp(qpn, at as u64);
        }
        (polled.next, polled.end) = (1, 5);
        polled.forget(Qpn(8));
        let left: Vec<u64> = polled.batch[polled.next..polled.end].iter().map(|c| c.wr_id).collect();
        assert_eq!(left, [2, 3]);
        polled.forget(Qpn(7));
        polled.forget(Qpn(9));
        assert!(!polled.has_more());
    }

    #[test]
    fn immediate_data_keeps_its_byte_order() {
        let completion = Completion { imm: Some(u32::from_be(0x1122_3344)), ..NOTHING };
        assert_eq!(imm_data(&completion), 0x1122_3344);
        assert_eq!(wc_flags(&completion), IBV_WC_WITH_IMM);
    }
}
