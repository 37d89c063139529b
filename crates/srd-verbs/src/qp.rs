//! Queue pairs: making, changing, querying, destroying, and posting receives. Sends are in [`crate::wr_builder`].

use crate::acknowledgements::wait_for_acknowledgements;
use crate::boundary::{
    Errno, Outcome, abi, copy_in, copy_out, given_back, has_field, object, readable, writable,
};
use crate::context::Context;
use crate::cq::Cq;
use crate::layout::constant::*;
use crate::layout::*;
use crate::objects::Link;
use crate::pd::Pd;
use crate::profile;
use crate::queue_memory::{Place, QpMemory};
use crate::strict;
use crate::wr_builder::{self, Builder};
use libc::c_int;
use srd_device::{HostMemory, MAX_RECV_SGE, QpInit, QpKind, QpModify, QpState, RecvWr, Sge};
use srd_net::log;
use srd_wire::{MrKey, Qkey, Qpn};
use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

#[repr(C)]
pub(crate) struct Qp {
    /// What C sees and, for the builder, writes to.
    ex: UnsafeCell<ibv_qp_ex>,
    /// Zero: later releases of rdma-core may put function pointers here.
    _room: [usize; 8],
    dv: efadv_qp,
    /// Its number.
    pub qpn: Qpn,
    pub link: Link,
    /// What it may do.
    pub abilities: Abilities,
    /// The send that is being built.
    pub builder: Builder,
    /// Changes of state, one at a time.
    changing: Mutex<()>,
    /// Asynchronous events that the program was given.
    pub async_events_reported: AtomicU32,
    pd: &'static Pd,
}

/// What a queue pair may do.
#[derive(Clone, Copy)]
pub(crate) struct Abilities {
    pub kind: QpKind,
    /// Every send is signalled.
    pub signal_all: bool,
    /// Elements per send.
    pub send_sge: u32,
    /// Elements per receive.
    pub recv_sge: u32,
    /// Bytes of inline data.
    pub inline: u32,
    /// Whether RDMA writes may be inline.
    pub inline_write: bool,
    /// Made with send operations, so that the builder may be used.
    pub extended: bool,
    /// The device's: see [`strict`].
    pub strict: bool,
}

// SAFETY: the fields of the C part that change belong to the program, or to one that holds the builder's lock or
// `changing`.
unsafe impl Sync for Qp {}

impl Qp {
    /// # Safety
    /// The pointer is NULL or points to a live queue pair, which stays alive for `'a`.
    #[inline]
    pub unsafe fn of<'a>(pointer: *mut ibv_qp) -> Outcome<&'a Qp> {
        // SAFETY: as the caller says; `ex` begins with the plain structure.
        unsafe { object(pointer) }
    }

    /// As [`Qp::of`], for the builder, whose functions nobody calls with NULL.
    ///
    /// # Safety
    /// The pointer points to a live queue pair, which stays alive for `'a`.
    #[inline]
    pub unsafe fn of_ex<'a>(pointer: *mut ibv_qp_ex) -> &'a Qp {
        // SAFETY: as the caller says.
        unsafe { &*pointer.cast::<Qp>() }
    }

    /// What C calls it.
    pub fn pointer(&self) -> *mut ibv_qp {
        self.ex.get().cast()
    }

    pub fn context(&self) -> &Context {
        // SAFETY: a context outlives its objects, and nobody writes to the field.
        unsafe { Context::of((*self.pointer()).context) }.expect("it was there when this was made")
    }

    /// `wr_id` and `wr_flags` that the program has set for the next request.
    ///
    /// # Safety
    /// Called between the program's `wr_start` and `wr_complete`.
    #[inline]
    pub unsafe fn wr_id_and_flags(&self) -> (u64, u32) {
        let ex = self.ex.get();
        // SAFETY: fields that only the program's thread that builds writes to.
        unsafe { ((*ex).wr_id, (*ex).wr_flags) }
    }

    /// Ends it because its context closes.
    pub fn end(&self) {
        if let Some(instance) = self.link.end() {
            let _ = instance.destroy_qp(self.qpn);
        }
    }

    /// As many entries as libefa's `efa_setup_qp` makes: a receive takes one for each element.
    fn give_memory(&self) -> Outcome<[Place; 2]> {
        let context = self.context();
        let watch = context.watch_queues()?;
        let init = watch.instance.with(|device, _| device.query_qp(self.qpn))??.init;
        let per_receive = init.recv_sge.max(1);
        let receives = (init.rq_depth * per_receive).max(1).next_power_of_two();
        let instance = watch.instance.clone();
        let made = || QpMemory::new(self.qpn, &init, receives, self.abilities.strict);
        let places = context
            .doorbells
            .map_qp(watch, self.qpn, made, |memory| [memory.send_queue(), memory.receive_queue()])?;
        instance.with(|device, _| device.set_receives(self.qpn, places[1].entries))?;
        Ok(places)
    }

    fn destroy(&self) -> Outcome<()> {
        let context = self.context();
        if context.is_inherited() {
            return Ok(());
        }
        if let Ok(instance) = self.link.instance() {
            context.doorbells.forget_qp(instance, self.qpn);
            given_back(instance.destroy_qp(self.qpn))?;
            self.forget_completions();
            context.objects.remove(|live| &mut live.qps, self.pointer());
            context.async_events.forget_qp(self.pointer());
        }
        let ex = self.pointer();
        // SAFETY: fields of this live object.
        unsafe {
            let (mutex, cond) = (&raw mut (*ex).mutex, &raw mut (*ex).cond);
            let reported = self.async_events_reported.load(Ordering::Relaxed);
            wait_for_acknowledgements(mutex, cond, &raw const (*ex).events_completed, reported);
        }
        self.pd.count_user(false);
        Ok(())
    }

    /// Forgets completions that were taken from the device and not seen by the program.
    fn forget_completions(&self) {
        // SAFETY: completion queues cannot be destroyed while a queue pair uses them; nobody writes to the fields.
        let queues = unsafe { [(*self.pointer()).send_cq, (*self.pointer()).recv_cq] };
        for cq in queues {
            // SAFETY: as above.
            if let Ok(cq) = unsafe { Cq::of(cq) } {
                cq.polled.with(|polled| polled.forget(self.qpn));
            }
        }
    }

    /// As libefa's `create_qp` checks and rounds. Writes what the queue pair has got to `attr.cap`.
    fn create(
        context: &Context,
        attr: &mut ibv_qp_init_attr_ex,
        efa: &efadv_qp_init_attr,
    ) -> Outcome<*mut ibv_qp> {
        check_attr(context, attr, efa)?;
        let strict = context.device.strict;
        check_limits(attr, strict::send_depth(strict && efa.flags & EFADV_QP_FLAGS_INLINE_WRITE != 0))?;
        // SAFETY: by the manual page live objects.
        let (pd, send_cq, recv_cq) =
            unsafe { (Pd::of::<'static>(attr.pd)?, Cq::of(attr.send_cq)?, Cq::of(attr.recv_cq)?) };
        let extended = attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
        let ops = if extended { attr.send_ops_flags } else { 0 };
        let kind = if attr.qp_type == IBV_QPT_DRIVER { QpKind::Srd } else { QpKind::Ud };
        let cap = &mut attr.cap;
        cap.max_send_wr = cap.max_send_wr.max(1).next_power_of_two();
        // EFA counts descriptors, one for each element.
        let per_receive = cap.max_recv_sge.max(1);
        cap.max_recv_wr = (per_receive * cap.max_recv_wr).max(1).next_power_of_two() / per_receive;
        let init = QpInit {
            kind,
            pd: pd.id,
            send_cq: send_cq.id,
            recv_cq: recv_cq.id,
            sq_depth: cap.max_send_wr,
            rq_depth: cap.max_recv_wr,
            send_sge: cap.max_send_sge,
            recv_sge: cap.max_recv_sge,
            inline: cap.max_inline_data,
            rdma_read: ops & IBV_QP_EX_WITH_RDMA_READ != 0,
            rdma_write: ops & (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) != 0,
            unsolicited_write_recv: efa.flags & EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV != 0,
        };
        let instance = context.instance()?;
        let qpn = instance.create_qp(init)??;
        // SAFETY: numbers, pointers and optional function pointers, for all of which zero is valid.
        let mut ex: ibv_qp_ex = unsafe { std::mem::zeroed() };
        ex.qp_base.context = context.pointer();
        ex.qp_base.qp_context = attr.qp_context;
        ex.qp_base.pd = attr.pd;
        ex.qp_base.send_cq = attr.send_cq;
        ex.qp_base.recv_cq = attr.recv_cq;
        ex.qp_base.handle = qpn.0 as u32;
        ex.qp_base.qp_num = qpn.0 as u32;
        ex.qp_base.state = IBV_QPS_RESET;
        ex.qp_base.qp_type = attr.qp_type;
        ex.qp_base.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        ex.qp_base.cond = libc::PTHREAD_COND_INITIALIZER;
        if extended {
            wr_builder::install(&mut ex, ops);
        }
        let qp = Box::leak(Box::new(Qp {
            ex: UnsafeCell::new(ex),
            _room: [0; 8],
            dv: wr_builder::efa_fields(efa.wr_flags),
            qpn,
            link: Link::new(instance),
            abilities: Abilities {
                kind,
                signal_all: attr.sq_sig_all != 0,
                send_sge: cap.max_send_sge,
                recv_sge: cap.max_recv_sge,
                inline: cap.max_inline_data,
                inline_write: efa.flags & EFADV_QP_FLAGS_INLINE_WRITE != 0,
                extended,
                strict,
            },
            builder: Builder::new(),
            changing: Mutex::new(()),
            async_events_reported: AtomicU32::new(0),
            pd,
        }));
        pd.count_user(true);
        context.objects.add(|live| &mut live.qps, qp.pointer());
        Ok(qp.pointer())
    }
}

fn queue_attributes(place: &Place, max_batch: u32, caps: u16) -> efadv_wq_attr {
    efadv_wq_attr {
        comp_mask: 0,
        buffer: place.buffer,
        entry_size: place.entry_size,
        num_entries: place.entries,
        doorbell: place.doorbell,
        max_batch,
        caps,
        reserved: [0; 2],
    }
}

/// libefa's `efa_check_qp_attr`.
fn check_attr(context: &Context, attr: &ibv_qp_init_attr_ex, efa: &efadv_qp_init_attr) -> Outcome<()> {
    let profile = &context.device.profile;
    let mut send_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    let mut efa_flags = 0;
    match attr.qp_type {
        IBV_QPT_UD => {}
        IBV_QPT_DRIVER if efa.driver_qp_type == EFADV_QP_DRIVER_TYPE_SRD => {
            if profile.rdma_read {
                send_ops |= IBV_QP_EX_WITH_RDMA_READ;
            }
            if profile.rdma_write {
                send_ops |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
                efa_flags |= EFADV_QP_FLAGS_INLINE_WRITE;
            }
            if profile.unsolicited_write_recv {
                efa_flags |= EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV;
            }
        }
        // UCX looks whether there is RC by asking for it, and wants to hear that there is not
        // (docs/design/efa-verbs.md, "Trap 7").
        _ => return Err(Errno::UNSUPPORTED),
    }
    if attr.comp_mask & !(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0
        || efa.flags & !efa_flags != 0
        || efa.wr_flags & !EFADV_WR_EX_WITH_PROCESSING_HINTS != 0
    {
        return Err(Errno::UNSUPPORTED);
    }
    if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 {
        return Err(Errno::INVALID);
    }
    if attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0 && attr.send_ops_flags & !send_ops != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    if attr.send_cq.is_null() || attr.recv_cq.is_null() || !attr.srq.is_null() {
        return Err(Errno::INVALID);
    }
    Ok(())
}

/// libefa's `efa_check_qp_limits`.
fn check_limits(attr: &ibv_qp_init_attr_ex, send_depth: u32) -> Outcome<()> {
    let cap = &attr.cap;
    let over = cap.max_send_sge > profile::MAX_SQ_SGE
        || cap.max_recv_sge > profile::MAX_RQ_SGE
        || cap.max_send_wr > send_depth
        || cap.max_recv_wr.saturating_mul(cap.max_recv_sge.max(1)) > profile::MAX_RQ_WR
        || cap.max_inline_data > profile::INLINE_BYTES;
    if over {
        log::debug(format_args!(
            "queue pair refused: at most {} sends of {} elements, {} receives of {} elements, {} bytes inline; asked for {} of {}, {} of {}, {}",
            send_depth,
            profile::MAX_SQ_SGE,
            profile::MAX_RQ_WR,
            profile::MAX_RQ_SGE,
            profile::INLINE_BYTES,
            cap.max_send_wr,
            cap.max_send_sge,
            cap.max_recv_wr,
            cap.max_recv_sge,
            cap.max_inline_data,
        ));
        return Err(Errno::INVALID);
    }
    Ok(())
}

/// The short form of a queue pair's attributes, and the domain apart, as the long form.
fn extended_attr(attr: &ibv_qp_init_attr, pd: *mut ibv_pd) -> ibv_qp_init_attr_ex {
    ibv_qp_init_attr_ex {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
        comp_mask: IBV_QP_INIT_ATTR_PD,
        pd,
        xrcd: std::ptr::null_mut(),
        create_flags: 0,
        max_tso_header: 0,
        rwq_ind_tbl: std::ptr::null_mut(),
        rx_hash_conf: [0; 3],
        source_qpn: 0,
        send_ops_flags: 0,
    }
}

const fn plain(driver_qp_type: u32) -> efadv_qp_init_attr {
    efadv_qp_init_attr { comp_mask: 0, driver_qp_type, flags: 0, sl: 0, reserved: 0, wr_flags: 0 }
}

fn state_of(number: c_int) -> Outcome<QpState> {
    Ok(match number {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        IBV_QPS_SQD => QpState::Sqd,
        IBV_QPS_SQE => QpState::Sqe,
        IBV_QPS_ERR => QpState::Err,
        _ => return Err(Errno::INVALID),
    })
}

fn number_of(state: QpState) -> c_int {
    match state {
        QpState::Reset => IBV_QPS_RESET,
        QpState::Init => IBV_QPS_INIT,
        QpState::Rtr => IBV_QPS_RTR,
        QpState::Rts => IBV_QPS_RTS,
        QpState::Sqd => IBV_QPS_SQD,
        QpState::Sqe => IBV_QPS_SQE,
        QpState::Err => IBV_QPS_ERR,
    }
}

abi! {
    exported pointer fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> ibv_qp {
        let attr = writable(attr)?;
        let context = Pd::of(pd)?.context();
        if attr.qp_type != IBV_QPT_UD {
            return Err(Errno::UNSUPPORTED);
        }
        let mut long = extended_attr(attr, pd);
        let qp = Qp::create(context, &mut long, &plain(0))?;
        attr.cap = long.cap;
        Ok(qp)
    }

    pointer fn create_qp_ex(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> ibv_qp {
        let attr = writable(attr)?;
        if attr.qp_type != IBV_QPT_UD {
            return Err(Errno::UNSUPPORTED);
        }
        Qp::create(Context::of(context)?, attr, &plain(0))
    }

    exported pointer fn srd_efadv_create_driver_qp(
        pd: *mut ibv_pd,
        attr: *mut ibv_qp_init_attr,
        driver_qp_type: u32,
    ) -> ibv_qp {
        let attr = writable(attr)?;
        let context = Pd::of(pd)?.context();
        if attr.qp_type != IBV_QPT_DRIVER {
            return Err(Errno::INVALID);
        }
        let mut long = extended_attr(attr, pd);
        let qp = Qp::create(context, &mut long, &plain(driver_qp_type))?;
        attr.cap = long.cap;
        Ok(qp)
    }

    exported pointer fn srd_efadv_create_qp_ex(
        context: *mut ibv_context,
        attr: *mut ibv_qp_init_attr_ex,
        efa_attr: *mut efadv_qp_init_attr,
        len: u32,
    ) -> ibv_qp {
        let attr = writable(attr)?;
        let context = Context::of(context)?;
        if attr.qp_type != IBV_QPT_DRIVER
            || efa_attr.is_null()
            || !has_field(std::mem::offset_of!(efadv_qp_init_attr, driver_qp_type), len as usize)
        {
            return Err(Errno::INVALID);
        }
        let efa = copy_in(efa_attr, len as usize).ok_or(Errno::INVALID)?;
        if efa.comp_mask != 0 || efa.reserved != 0 {
            return Err(Errno::INVALID);
        }
        Qp::create(context, attr, &efa)
    }

    /// NULL, without an error, for a queue pair that was made without send operations.
    exported pointer fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> ibv_qp_ex {
        let extended = !qp.is_null() && Qp::of(qp)?.abilities.extended;
        Ok(if extended { qp.cast() } else { std::ptr::null_mut() })
    }

    exported pointer fn srd_efadv_qp_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> efadv_qp {
        let qp: &Qp = object(qp)?;
        Ok((&raw const qp.dv).cast_mut())
    }

    exported closing fn ibv_destroy_qp(qp: *mut ibv_qp) {
        Qp::of(qp)?.destroy()?;
        drop(Box::from_raw(qp.cast::<Qp>()));
        Ok(())
    }

    /// The driver's `efa_modify_qp`; which attributes go with which change is the device's business.
    exported status fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) {
        let qp = Qp::of(qp)?;
        let attr = readable(attr)?;
        let known = IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_PKEY_INDEX | IBV_QP_PORT
            | IBV_QP_QKEY | IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY;
        if mask & !known != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if qp.abilities.strict && mask & IBV_QP_QKEY != 0 {
            strict::check_queue_key(attr.qkey)?;
        }
        if mask & IBV_QP_EN_SQD_ASYNC_NOTIFY != 0 && attr.en_sqd_async_notify != 0 {
            log::once(log::Level::Warn, "sqd", format_args!(
                "ibv_modify_qp: no event will tell that the send queue is drained; poll ibv_query_qp's sq_draining"
            ));
        }
        let given = |bit: c_int| mask & bit != 0;
        let change = QpModify {
            state: given(IBV_QP_STATE).then(|| state_of(attr.qp_state)).transpose()?,
            current_state: given(IBV_QP_CUR_STATE).then(|| state_of(attr.cur_qp_state)).transpose()?,
            qkey: given(IBV_QP_QKEY).then_some(Qkey(attr.qkey)),
            pkey_index: given(IBV_QP_PKEY_INDEX).then_some(attr.pkey_index),
            port: given(IBV_QP_PORT).then_some(attr.port_num),
            sq_psn: given(IBV_QP_SQ_PSN).then_some(attr.sq_psn),
            rnr_retry: given(IBV_QP_RNR_RETRY).then_some(attr.rnr_retry),
        };
        let _one_at_a_time = qp.changing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        qp.link.instance()?.with(|device, now| device.modify_qp(now, qp.qpn, change))??;
        if let Some(state) = change.state {
            (*qp.pointer()).state = number_of(state);
            if state == QpState::Reset {
                qp.forget_completions();
            }
        }
        Ok(())
    }

    exported status fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        mask: c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) {
        let qp = Qp::of(qp)?;
        let (attr, init_attr) = (writable(attr)?, writable(init_attr)?);
        let known = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_SQ_PSN | IBV_QP_CAP | IBV_QP_RNR_RETRY;
        if mask & !known != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let info = qp.link.instance()?.with(|device, _| device.query_qp(qp.qpn))??;
        let c = &*qp.pointer();
        *attr = std::mem::zeroed();
        attr.qp_state = number_of(info.state);
        attr.cur_qp_state = attr.qp_state;
        attr.qkey = info.qkey.0;
        attr.sq_psn = info.sq_psn;
        attr.sq_draining = info.draining as u8;
        attr.port_num = 1;
        attr.rnr_retry = info.rnr_retry;
        attr.cap = ibv_qp_cap {
            max_send_wr: info.init.sq_depth,
            max_recv_wr: info.init.rq_depth,
            max_send_sge: info.init.send_sge,
            max_recv_sge: info.init.recv_sge,
            max_inline_data: info.init.inline,
        };
        *init_attr = ibv_qp_init_attr {
            qp_context: c.qp_context,
            send_cq: c.send_cq,
            recv_cq: c.recv_cq,
            srq: std::ptr::null_mut(),
            cap: attr.cap,
            qp_type: c.qp_type,
            sq_sig_all: qp.abilities.signal_all as c_int,
        };
        if mask & IBV_QP_STATE != 0 {
            (*qp.pointer()).state = attr.qp_state;
        }
        Ok(())
    }

    /// What is true of the transport: an RDMA write's aligned blocks of 128 bytes are written once and in order.
    /// Packets of one message come in any order, so no operation is in order as a whole.
    exported value fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: c_int, flags: u32) -> c_int {
        let known = IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS | IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY;
        if flags & !known != 0 || flags & IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS == 0 {
            return 0;
        }
        let write = matches!(op, IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM);
        let srd = Qp::of(qp).is_ok_and(|qp| qp.abilities.kind == QpKind::Srd);
        if write && srd && HostMemory::WRITES_IN_ORDER { IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES } else { 0 }
    }

    /// From now on doorbells of the queue pair are looked at (docs/design/efa-verbs.md, "Direct data path").
    exported status fn srd_efadv_query_qp_wqs(
        qp: *mut ibv_qp,
        sq: *mut efadv_wq_attr,
        rq: *mut efadv_wq_attr,
        len: u32,
    ) {
        let qp = Qp::of(qp)?;
        let len = len as usize;
        if sq.is_null() || rq.is_null() || !has_field(offset_of!(efadv_wq_attr, max_batch), len) {
            return Err(Errno::INVALID);
        }
        let [sends, receives] = qp.give_memory()?;
        // Requests are what the program calls them, with all 64 bits.
        let most = if qp.abilities.strict { strict::MAX_BATCH } else { sends.entries };
        let sends = queue_attributes(&sends, most.min(sends.entries), EFADV_WQ_CAPS_64_BIT_REQ_ID);
        copy_out(&sends, sq, len);
        copy_out(&queue_attributes(&receives, receives.entries, 0), rq, len);
        Ok(())
    }

    status fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) {
        let qp = Qp::of(qp)?;
        let mut next = wr;
        let result = qp.link.instance().and_then(|instance| {
            instance.with(|device, _| {
                while let Some(wr) = next.as_ref() {
                    let mut sges = [Sge::default(); MAX_RECV_SGE];
                    let count = take_sges(wr.sg_list, wr.num_sge, qp.abilities.recv_sge, &mut sges)?;
                    if qp.abilities.strict {
                        sges = strict::with_whole_keys(device, &sges);
                    }
                    device.post_recv(qp.qpn, &RecvWr { wr_id: wr.wr_id, sges: &sges[..count] })?;
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
}

/// Copies a list of elements. Returns how many there are; EINVAL if more than `most`.
///
/// # Safety
/// `list` points to `count` elements.
#[inline]
pub(crate) unsafe fn take_sges(
    list: *const ibv_sge,
    count: c_int,
    most: u32,
    sges: &mut [Sge],
) -> Outcome<usize> {
    let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
    if count > most as usize || count > sges.len() || (count > 0 && list.is_null()) {
        return Err(Errno::INVALID);
    }
    for (at, sge) in sges[..count].iter_mut().enumerate() {
        // SAFETY: as the caller says.
        let from = unsafe { &*list.add(at) };
        *sge = Sge { addr: from.addr, len: from.length, lkey: MrKey(from.lkey) };
    }
    Ok(count)
}
