//! Completion counters: what queue pairs have completed, in memory that a program reads instead of completion queues. Nobody who
//! reads it calls anything, so from the first one on that is attached a thread moves packets ([`crate::doorbells`]).

use crate::boundary::{
    Errno, Outcome, abi, copy_in, copy_out, given_back, has_field, object, readable, writable,
};
use crate::context::Context;
use crate::dma_buf::DmaBuf;
use crate::layout::constant::*;
use crate::layout::*;
use crate::objects::Link;
use crate::profile::{MAX_COMP_CNTR, MAX_COMP_CNTR_VALUE, Profile};
use crate::qp::Qp;
use crate::strict;
use libc::size_t;
use srd_device::accelerator::is_marked;
use srd_device::{CompletionCounter, Counted, DeviceError};
use srd_net::{accelerator, is_there, log};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

#[repr(C)]
pub(crate) struct CompCntr {
    ibv: ibv_comp_cntr,
    link: Link,
    counts: Arc<Counts>,
}

// SAFETY: the C part is written when it is made, and the rest is Sync.
unsafe impl Sync for CompCntr {}

/// What the device counts. It is changed under the device's lock alone.
#[derive(Debug)]
struct Counts {
    in_bytes: bool,
    completed: Count,
    failed: Count,
    /// Tells the thread that there was work.
    moved: Arc<AtomicBool>,
}

/// One number. Like a card's it is the device's own, and a copy of it is in memory: what a program writes there counts for nothing.
#[derive(Debug)]
struct Count {
    value: AtomicU64,
    copy: Option<Memory>,
}

/// Memory of the program's for a number.
#[derive(Debug)]
struct Memory {
    word: &'static AtomicU64,
    /// The program has it in its address space.
    seen: bool,
    _mapped: Option<DmaBuf>,
}

impl Count {
    fn new(copy: Option<Memory>) -> Count {
        let count = Count { value: AtomicU64::new(0), copy };
        count.set(0);
        count
    }

    /// ibv_query_comp_cntr_caps(3): beyond the highest value it begins again at zero.
    fn set(&self, value: u64) {
        let value = value & MAX_COMP_CNTR_VALUE;
        // What it counts is in memory before.
        self.value.store(value, Ordering::Release);
        if let Some(copy) = &self.copy {
            copy.word.store(value, Ordering::Release);
        }
    }

    fn add(&self, amount: u64) {
        self.set(self.value.load(Ordering::Relaxed).wrapping_add(amount));
    }

    /// What is in memory, as libefa reads it (`efa_read_comp_cntr`).
    fn read(&self) -> Outcome<u64> {
        match &self.copy {
            None => Ok(self.value.load(Ordering::Acquire)),
            Some(copy) if copy.seen => Ok(copy.word.load(Ordering::Acquire)),
            Some(_) => Err(Errno::UNSUPPORTED),
        }
    }
}

impl CompletionCounter for Counts {
    fn completed(&self, bytes: u32) {
        self.completed.add(if self.in_bytes { bytes as u64 } else { 1 });
        self.moved.store(true, Ordering::Relaxed);
    }

    fn failed(&self) {
        self.failed.add(1);
        self.moved.store(true, Ordering::Relaxed);
    }
}

impl CompCntr {
    /// # Safety
    /// The pointer is NULL or points to a live counter, which stays alive for `'a`.
    unsafe fn of<'a>(pointer: *mut ibv_comp_cntr) -> Outcome<&'a CompCntr> {
        // SAFETY: as the caller says; `ibv` is the first field.
        unsafe { object(pointer) }
    }

    /// The context that it belongs to.
    fn context(&self) -> &Context {
        // SAFETY: a context outlives its objects.
        unsafe { Context::of(self.ibv.context) }.expect("it was there when this was made")
    }

    /// Ends it because its context closes, after its queue pairs.
    pub fn end(&self) {
        if self.link.end().is_some() {
            self.context().device.comp_cntrs.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The kernel refuses while it is attached (`uverbs_free_comp_cntr`).
    fn destroy(&self) -> Outcome<()> {
        let context = self.context();
        if context.is_inherited() {
            return Ok(());
        }
        if let Ok(instance) = self.link.instance() {
            given_back(instance.with(|_, _| match Arc::strong_count(&self.counts) {
                1 => Ok(()),
                _ => Err(DeviceError::Busy("completion counter: a queue pair has it; destroy that first")),
            }))?;
            context.objects.remove(|live| &mut live.comp_cntrs, &self.ibv);
            self.end();
        }
        Ok(())
    }

    /// Changes one of its numbers.
    fn change(&self, change: impl FnOnce(&Counts)) -> Outcome<()> {
        self.link.instance()?.with(|_, _| change(&self.counts))?;
        Ok(())
    }

    /// As libefa's `efa_create_comp_cntr_impl` and the driver's `efa_create_comp_cntr` check.
    ///
    /// # Safety
    /// What is said to be memory of the program's stays so until the counter is destroyed.
    unsafe fn create(
        context: &Context,
        attr: &ibv_comp_cntr_init_attr,
        efa: &efadv_comp_cntr_init_attr,
    ) -> Outcome<*mut ibv_comp_cntr> {
        let known = EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM | EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM;
        if attr.comp_mask != 0 || attr.flags != 0 || efa.comp_mask != 0 || efa.flags & !known != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let in_bytes = match attr.kind {
            IBV_COMP_CNTR_TYPE_WRS => false,
            IBV_COMP_CNTR_TYPE_BYTES => true,
            _ => return Err(Errno::UNSUPPORTED),
        };
        if in_bytes && context.device.strict {
            strict::check_counter_in_bytes()?;
        }
        let memory = |flag: u32, place: &efadv_memory_location| match efa.flags & flag {
            0 => check_kind(place).map(|()| None),
            // SAFETY: as the caller says.
            _ => unsafe { memory_of(place) }.map(Some),
        };
        let completed = memory(EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM, &efa.comp_cntr_ext_mem)?;
        let failed = memory(EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM, &efa.err_cntr_ext_mem)?;
        let instance = context.instance()?;
        let used = &context.device.comp_cntrs;
        if used.fetch_add(1, Ordering::Relaxed) >= MAX_COMP_CNTR {
            used.fetch_sub(1, Ordering::Relaxed);
            return Err(
                DeviceError::Full("completion counters (max_counters of ibv_query_comp_cntr_caps)").into()
            );
        }
        static HANDLES: AtomicU32 = AtomicU32::new(0);
        let cntr = Box::leak(Box::new(CompCntr {
            ibv: ibv_comp_cntr {
                context: context.pointer(),
                handle: HANDLES.fetch_add(1, Ordering::Relaxed),
            },
            link: Link::new(instance),
            counts: Arc::new(Counts {
                in_bytes,
                completed: Count::new(completed),
                failed: Count::new(failed),
                moved: context.doorbells.moved(),
            }),
        }));
        context.objects.add(|live| &mut live.comp_cntrs, &cntr.ibv);
        Ok(&mut cntr.ibv)
    }

    /// As the kernel checks it (`UVERBS_METHOD_QP_ATTACH_COMP_CNTR`), which finds no counters of other contexts.
    fn attach(&self, qp: &Qp, mask: u32) -> Outcome<()> {
        let context = self.context();
        if !std::ptr::eq(context, qp.context()) {
            return Err(Errno::INVALID);
        }
        if mask & !supported(&context.device.profile) != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let what: Vec<Counted> = Counted::ALL
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| mask >> bit & 1 != 0)
            .map(|(_, what)| what)
            .collect();
        let counts: Arc<dyn CompletionCounter> = self.counts.clone();
        context.doorbells.start(context.watch()?)?;
        qp.link.instance()?.with(|device, _| device.attach_counter(qp.qpn, &what, &counts))??;
        context.doorbells.count_for(qp.qpn);
        Ok(())
    }
}

fn check_kind(place: &efadv_memory_location) -> Outcome<()> {
    match place.kind {
        EFADV_MEMORY_LOCATION_VA | EFADV_MEMORY_LOCATION_DMABUF => Ok(()),
        _ => Err(Errno::UNSUPPORTED),
    }
}

/// # Safety
/// Memory that a pointer names stays there for as long as the number is written.
unsafe fn memory_of(place: &efadv_memory_location) -> Outcome<Memory> {
    check_kind(place)?;
    let (mapped, at, seen) = match place.kind {
        EFADV_MEMORY_LOCATION_DMABUF => {
            let (mapped, at) = DmaBuf::map(place.dmabuf_fd, place.dmabuf_offset, size_of::<u64>()).inspect_err(|errno| {
                log::warn(format_args!(
                    "efadv_create_comp_cntr: the CPU cannot map this DMA-BUF (error {}), as the software EFA has to; give the counter \
                     memory of the process (EFADV_MEMORY_LOCATION_VA)",
                    errno.0
                ));
            })?;
            (Some(mapped), at.cast(), !place.ptr.is_null())
        }
        _ => (None, place.ptr.cast::<u64>(), true),
    };
    if !at.is_aligned() {
        return Err(Errno::INVALID);
    }
    let of_gpu = matches!(accelerator::locate(at as u64, 8), Ok(located) if is_marked(located));
    if of_gpu || is_marked(at as u64) || !is_there(at as usize, size_of::<u64>(), true) {
        log::warn(format_args!("efadv_create_comp_cntr: {at:p} is not memory that the CPU can write to"));
        return Err(Errno::FAULT);
    }
    // SAFETY: it is there, aligned, and stays as the caller says, or as long as the mapping; the program may only read it, or
    // writes words as another thread with atomics would.
    Ok(Memory { word: unsafe { AtomicU64::from_ptr(at) }, seen, _mapped: mapped })
}

/// What may be counted: what the device can do.
fn supported(profile: &Profile) -> u32 {
    let mut ops = IBV_QP_ATTACH_COMP_CNTR_OP_SEND | IBV_QP_ATTACH_COMP_CNTR_OP_RECV;
    if profile.rdma_read {
        ops |= IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ | IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ;
    }
    if profile.rdma_write {
        ops |= IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE | IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE;
    }
    ops
}

const fn plain() -> efadv_comp_cntr_init_attr {
    const NOWHERE: efadv_memory_location = efadv_memory_location {
        ptr: std::ptr::null_mut(),
        dmabuf_offset: 0,
        dmabuf_fd: 0,
        dmabuf_reserved: 0,
        kind: EFADV_MEMORY_LOCATION_VA,
        reserved: [0; 7],
    };
    efadv_comp_cntr_init_attr {
        comp_mask: 0,
        flags: 0,
        reserved: 0,
        comp_cntr_ext_mem: NOWHERE,
        err_cntr_ext_mem: NOWHERE,
    }
}

abi! {
    exported status fn _ibv_query_comp_cntr_caps(
        context: *mut ibv_context,
        caps: *mut ibv_comp_cntr_caps,
        len: size_t,
    ) {
        let profile = &Context::of(context)?.device.profile;
        if caps.is_null() || len < size_of::<ibv_comp_cntr_caps>() {
            return Err(Errno::INVALID);
        }
        let answer = ibv_comp_cntr_caps {
            max_value: MAX_COMP_CNTR_VALUE,
            max_counters: MAX_COMP_CNTR,
            supported_qp_attach_ops: supported(profile),
        };
        copy_out(&answer, caps, len);
        Ok(())
    }

    exported pointer fn ibv_create_comp_cntr(
        context: *mut ibv_context,
        attr: *mut ibv_comp_cntr_init_attr,
    ) -> ibv_comp_cntr {
        CompCntr::create(Context::of(context)?, readable(attr)?, &plain())
    }

    exported pointer fn srd_efadv_create_comp_cntr(
        context: *mut ibv_context,
        attr: *mut ibv_comp_cntr_init_attr,
        efa_attr: *mut efadv_comp_cntr_init_attr,
        len: u32,
    ) -> ibv_comp_cntr {
        let context = Context::of(context)?;
        if efa_attr.is_null() || !has_field(offset_of!(efadv_comp_cntr_init_attr, err_cntr_ext_mem), len as usize) {
            return Err(Errno::INVALID);
        }
        let efa = copy_in(efa_attr, len as usize).ok_or(Errno::INVALID)?;
        CompCntr::create(context, readable(attr)?, &efa)
    }

    exported closing fn ibv_destroy_comp_cntr(cntr: *mut ibv_comp_cntr) {
        CompCntr::of(cntr)?.destroy()?;
        drop(Box::from_raw(cntr.cast::<CompCntr>()));
        Ok(())
    }

    exported status fn ibv_set_comp_cntr(cntr: *mut ibv_comp_cntr, value: u64) {
        CompCntr::of(cntr)?.change(|counts| counts.completed.set(value))
    }

    exported status fn ibv_set_err_comp_cntr(cntr: *mut ibv_comp_cntr, value: u64) {
        CompCntr::of(cntr)?.change(|counts| counts.failed.set(value))
    }

    exported status fn ibv_inc_comp_cntr(cntr: *mut ibv_comp_cntr, amount: u64) {
        CompCntr::of(cntr)?.change(|counts| counts.completed.add(amount))
    }

    exported status fn ibv_inc_err_comp_cntr(cntr: *mut ibv_comp_cntr, amount: u64) {
        CompCntr::of(cntr)?.change(|counts| counts.failed.add(amount))
    }

    exported status fn ibv_read_comp_cntr(cntr: *mut ibv_comp_cntr, value: *mut u64) {
        *writable(value)? = CompCntr::of(cntr)?.counts.completed.read()?;
        Ok(())
    }

    exported status fn ibv_read_err_comp_cntr(cntr: *mut ibv_comp_cntr, value: *mut u64) {
        *writable(value)? = CompCntr::of(cntr)?.counts.failed.read()?;
        Ok(())
    }

    exported status fn ibv_qp_attach_comp_cntr(
        qp: *mut ibv_qp,
        cntr: *mut ibv_comp_cntr,
        attr: *mut ibv_qp_attach_comp_cntr_attr,
    ) {
        let (qp, cntr, attr) = (Qp::of(qp)?, CompCntr::of(cntr)?, readable(attr)?);
        if attr.comp_mask != 0 {
            return Err(Errno::INVALID);
        }
        cntr.attach(qp, attr.op_mask)
    }
}
