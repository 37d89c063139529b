//! Sends: `ibv_post_send` and the work request builder (`ibv_wr_*`), with libefa's rules: everything is signalled,
//! nothing is fenced, RDMA has one local element, and what one `ibv_wr_complete` posts is posted whole or not at all.

use crate::ah::Ah;
use crate::boundary::{Errno, Outcome, abi};
use crate::layout::constant::*;
use crate::layout::*;
use crate::poll_lock::PollLock;
use crate::profile;
use crate::qp::{Qp, take_sges};
use crate::strict;
use libc::{c_int, c_void, size_t};
use srd_device::{AhNumber, Device, MAX_INLINE, MAX_SEND_SGE, SendData, SendOp, SendWr, Sge};
use srd_wire::{MrKey, Qkey, Qpn, Time};

/// Requests for which a builder has room from the start.
const ROOM: usize = 64;

/// The data of a request.
#[derive(Clone, Copy)]
enum Data {
    Sges { list: [Sge; MAX_SEND_SGE], count: usize },
    Inline { bytes: [u8; MAX_INLINE], count: usize },
}

/// A request as it is built.
#[derive(Clone, Copy)]
struct Built {
    wr_id: u64,
    op: SendOp,
    ah: AhNumber,
    dst_qpn: Qpn,
    qkey: Qkey,
    data: Data,
}

impl Built {
    fn new(wr_id: u64, op: SendOp) -> Built {
        Built {
            wr_id,
            op,
            ah: AhNumber::NONE,
            dst_qpn: Qpn(0),
            qkey: Qkey(0),
            data: Data::Sges { list: [Sge::default(); MAX_SEND_SGE], count: 0 },
        }
    }

    fn to(&mut self, ah: AhNumber, qpn: u32, qkey: u32) -> Outcome<()> {
        self.ah = ah;
        self.dst_qpn = Qpn(u16::try_from(qpn).map_err(|_| Errno::INVALID)?);
        self.qkey = Qkey(qkey);
        Ok(())
    }

    #[inline]
    fn post<M: srd_device::Memory>(&self, device: &mut Device<M>, now: Time, qp: &Qp) -> Outcome<()> {
        let whole;
        let data = match &self.data {
            Data::Sges { list, count } if qp.abilities.strict => {
                whole = strict::with_whole_keys(device, list);
                SendData::Sges(&whole[..*count])
            }
            Data::Sges { list, count } => SendData::Sges(&list[..*count]),
            Data::Inline { bytes, count } => SendData::Inline(&bytes[..*count]),
        };
        let wr = SendWr {
            wr_id: self.wr_id,
            op: self.op,
            ah: self.ah,
            dst_qpn: self.dst_qpn,
            qkey: self.qkey,
            data,
        };
        Ok(device.post_send(now, qp.qpn, &wr)?)
    }
}

/// The requests of one `wr_start` … `wr_complete`.
struct Session {
    requests: Vec<Built>,
    /// The first thing that was wrong; nothing is built after it.
    error: Option<Errno>,
}

/// What a queue pair's sends are built in. Locked from `wr_start` to `wr_complete` or `wr_abort`.
pub(crate) struct Builder(PollLock<Session>);

impl Builder {
    pub fn new() -> Builder {
        Builder(PollLock::new(Session { requests: Vec::with_capacity(ROOM), error: None }))
    }

    /// # Safety
    /// The calling thread is between `wr_start` and `wr_complete`.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    unsafe fn session(&self) -> &mut Session {
        // SAFETY: as the caller says.
        unsafe { self.0.held() }
    }
}

impl Session {
    /// Begins a request.
    fn begin(&mut self, qp: &Qp, wr_id: u64, flags: u32, op: SendOp) {
        if self.error.is_some() {
            return;
        }
        match check_flags(qp, flags) {
            Ok(()) => self.requests.push(Built::new(wr_id, op)),
            Err(errno) => self.error = Some(errno),
        }
    }

    /// Changes the request that was begun last.
    fn change(&mut self, change: impl FnOnce(&mut Built) -> Outcome<()>) {
        if self.error.is_none() {
            let result = self.requests.last_mut().ok_or(Errno::INVALID).and_then(change);
            self.error = result.err();
        }
    }
}

/// libefa's `efa_post_send_validate`. (State and room are the device's business.)
#[inline]
fn check_flags(qp: &Qp, flags: u32) -> Outcome<()> {
    let signalled = flags & IBV_SEND_SIGNALED != 0 || qp.abilities.signal_all;
    if !signalled || flags & !(IBV_SEND_SIGNALED | IBV_SEND_INLINE) != 0 {
        return Err(Errno::INVALID);
    }
    Ok(())
}

/// How many local elements an operation may have.
#[inline]
fn most_sges(qp: &Qp, op: SendOp) -> u32 {
    match op {
        SendOp::Send { .. } => qp.abilities.send_sge,
        SendOp::Read { .. } | SendOp::Write { .. } => profile::MAX_RDMA_SGE,
    }
}

/// Whether an operation may have inline data.
#[inline]
fn may_be_inline(qp: &Qp, op: SendOp) -> bool {
    match op {
        SendOp::Send { .. } => true,
        SendOp::Write { .. } => qp.abilities.inline_write,
        SendOp::Read { .. } => false,
    }
}

/// Copies pieces of the program's memory one after another. EINVAL if they are longer than `most` together.
///
/// # Safety
/// Each piece may be read.
unsafe fn gather(pieces: impl Iterator<Item = (*const u8, usize)>, most: u32) -> Outcome<Data> {
    let (mut bytes, mut count) = ([0u8; MAX_INLINE], 0usize);
    for (from, len) in pieces {
        let end = count
            .checked_add(len)
            .filter(|&end| end <= MAX_INLINE.min(most as usize))
            .ok_or(Errno::INVALID)?;
        // SAFETY: as the caller says; the target is within `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes[count..end].as_mut_ptr(), len) };
        count = end;
    }
    Ok(Data::Inline { bytes, count })
}

/// Immediate data that a program has given in network order.
#[inline]
fn imm(data: u32) -> Option<u32> {
    Some(u32::from_be(data))
}

/// What a request of `ibv_post_send` says. libefa takes only sends here, everything else through the builder.
///
/// # Safety
/// The request is as `ibv_post_send(3)` wants it.
#[inline]
unsafe fn built_of(qp: &Qp, wr: &ibv_send_wr) -> Outcome<Built> {
    check_flags(qp, wr.send_flags)?;
    let op = match wr.opcode {
        IBV_WR_SEND => SendOp::Send { imm: None },
        IBV_WR_SEND_WITH_IMM => SendOp::Send { imm: imm(wr.imm_data) },
        _ => return Err(Errno::INVALID),
    };
    let mut built = Built::new(wr.wr_id, op);
    // SAFETY: by the manual page a list of that length, and for a datagram the destination's address handle.
    unsafe {
        if wr.send_flags & IBV_SEND_INLINE != 0 {
            let count = usize::try_from(wr.num_sge).map_err(|_| Errno::INVALID)?;
            let pieces = (0..count)
                .map(|at| &*wr.sg_list.add(at))
                .map(|sge| (sge.addr as *const u8, sge.length as usize));
            built.data = gather(pieces, qp.abilities.inline)?;
        } else {
            let mut list = [Sge::default(); MAX_SEND_SGE];
            let count = take_sges(wr.sg_list, wr.num_sge, qp.abilities.send_sge, &mut list)?;
            built.data = Data::Sges { list, count };
        }
        let ud = wr.wr.ud;
        built.to(Ah::of(ud.ah)?.number, ud.remote_qpn, ud.remote_qkey)?;
    }
    Ok(built)
}

abi! {
    status fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) {
        let qp = Qp::of(qp)?;
        let mut next = wr;
        let result = qp.link.instance().and_then(|instance| {
            instance.with(|device, now| {
                while let Some(wr) = next.as_ref() {
                    built_of(qp, wr)?.post(device, now, qp)?;
                    next = wr.next;
                }
                Ok(())
            })?
        });
        if let Some(bad) = bad.as_mut().filter(|_| result.is_err()) {
            *bad = next;
        }
        result
    }

    value fn wr_start(qp: *mut ibv_qp_ex) -> () {
        let builder = &Qp::of_ex(qp).builder;
        builder.0.lock();
        let session = builder.session();
        session.requests.clear();
        session.error = None;
    }

    value fn wr_abort(qp: *mut ibv_qp_ex) -> () {
        Qp::of_ex(qp).builder.0.unlock()
    }

    status fn wr_complete(qp: *mut ibv_qp_ex) {
        let qp = Qp::of_ex(qp);
        let _locked = qp.builder.0.locked();
        let session = qp.builder.session();
        match session.error {
            Some(errno) => Err(errno),
            None => post_all(qp, &session.requests),
        }
    }

    value fn wr_send(qp: *mut ibv_qp_ex) -> () {
        begin(qp, SendOp::Send { imm: None })
    }

    value fn wr_send_imm(qp: *mut ibv_qp_ex, data: u32) -> () {
        begin(qp, SendOp::Send { imm: imm(data) })
    }

    value fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) -> () {
        begin(qp, SendOp::Read { rkey: MrKey(rkey), addr })
    }

    value fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) -> () {
        begin(qp, SendOp::Write { rkey: MrKey(rkey), addr, imm: None })
    }

    value fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, data: u32) -> () {
        begin(qp, SendOp::Write { rkey: MrKey(rkey), addr, imm: imm(data) })
    }

    value fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) -> () {
        let qp = Qp::of_ex(qp);
        qp.builder.session().change(|request| request.to(Ah::of(ah)?.number, qpn, qkey));
    }

    value fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) -> () {
        let qp = Qp::of_ex(qp);
        qp.builder.session().change(|request| {
            let mut list = [Sge::default(); MAX_SEND_SGE];
            list[0] = Sge { addr, len: length, lkey: MrKey(lkey) };
            request.data = Data::Sges { list, count: 1 };
            Ok(())
        });
    }

    value fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: size_t, from: *const ibv_sge) -> () {
        let qp = Qp::of_ex(qp);
        qp.builder.session().change(|request| {
            let mut list = [Sge::default(); MAX_SEND_SGE];
            let count = c_int::try_from(count).map_err(|_| Errno::INVALID)?;
            let count = take_sges(from, count, most_sges(qp, request.op), &mut list)?;
            request.data = Data::Sges { list, count };
            Ok(())
        });
    }

    value fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: size_t) -> () {
        let qp = Qp::of_ex(qp);
        qp.builder.session().change(|request| {
            set_inline(qp, request, std::iter::once((addr.cast_const().cast(), length)))
        });
    }

    value fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: size_t, list: *const ibv_data_buf) -> () {
        let qp = Qp::of_ex(qp);
        qp.builder.session().change(|request| {
            let pieces = (0..count).map(|at| &*list.add(at)).map(|buf| (buf.addr.cast_const().cast(), buf.length));
            set_inline(qp, request, pieces)
        });
    }
}

/// # Safety
/// The calling thread is between `wr_start` and `wr_complete` of this queue pair.
#[inline]
unsafe fn begin(qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: as the caller says.
    unsafe {
        let qp = Qp::of_ex(qp);
        let (wr_id, flags) = qp.wr_id_and_flags();
        qp.builder.session().begin(qp, wr_id, flags, op);
    }
}

/// # Safety
/// Each piece may be read.
unsafe fn set_inline(
    qp: &Qp,
    request: &mut Built,
    pieces: impl Iterator<Item = (*const u8, usize)>,
) -> Outcome<()> {
    if !may_be_inline(qp, request.op) {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller says.
    request.data = unsafe { gather(pieces, qp.abilities.inline)? };
    Ok(())
}

/// Posts all requests or, if the queue has no room for all, none. Nothing else can be wrong with one and not with the
/// others by now: form is looked at as they are built, and what the device finds shows in completions.
fn post_all(qp: &Qp, requests: &[Built]) -> Outcome<()> {
    qp.link.instance()?.with(|device, now| {
        if device.send_room(qp.qpn)? < requests.len() {
            return Err(Errno::NO_MEMORY);
        }
        requests.iter().try_for_each(|request| request.post(device, now, qp))
    })?
}

/// An advice to the device how to handle a request. It changes nothing here, so it may come at any time.
unsafe extern "C" fn wr_set_processing_hints(_qp: *mut efadv_qp, _hints: u32) {}

/// Fills in the builder's functions: those of the operations that `ops` ask for.
pub(crate) fn install(ex: &mut ibv_qp_ex, ops: u64) {
    let asked = |op: u64| ops & op != 0;
    ex.wr_start = Some(wr_start);
    ex.wr_complete = Some(wr_complete);
    ex.wr_abort = Some(wr_abort);
    ex.wr_set_ud_addr = Some(wr_set_ud_addr);
    ex.wr_set_sge = Some(wr_set_sge);
    ex.wr_set_sge_list = Some(wr_set_sge_list);
    ex.wr_set_inline_data = Some(wr_set_inline_data);
    ex.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    ex.wr_send = asked(IBV_QP_EX_WITH_SEND).then_some(wr_send);
    ex.wr_send_imm = asked(IBV_QP_EX_WITH_SEND_WITH_IMM).then_some(wr_send_imm);
    ex.wr_rdma_read = asked(IBV_QP_EX_WITH_RDMA_READ).then_some(wr_rdma_read);
    ex.wr_rdma_write = asked(IBV_QP_EX_WITH_RDMA_WRITE).then_some(wr_rdma_write);
    ex.wr_rdma_write_imm = asked(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM).then_some(wr_rdma_write_imm);
}

/// The fields that only EFA has.
pub(crate) fn efa_fields(flags: u64) -> efadv_qp {
    efadv_qp {
        comp_mask: 0,
        wr_set_processing_hints: (flags & EFADV_WR_EX_WITH_PROCESSING_HINTS != 0)
            .then_some(wr_set_processing_hints),
    }
}
