//! Completion queues (fi_cq(3)). They grow: the size that a program asks for is a hint, and nothing is ever lost.

use crate::bereaved::is_bound;
use crate::boundary::{Absent, Errno, Outcome, abi, copy_text, object, readable, value_or, writable};
use crate::completions::in_words;
use crate::constants::*;
use crate::domain::{Domain, Shared};
use crate::entries::{Locked, Queue};
use crate::layout::*;
use crate::movers::Movers;
use crate::wait::{WaitObject, timeout};
use crate::wait_set::signal_of;
use crate::waitable::{self, Waitable};
use libc::{c_char, c_int, c_void};
use srd_net::Unavailable;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// So many reads in a row may hand out entries that are there without moving packets. A program that always finds something
/// must not keep the rest of the world waiting.
const READS_WITHOUT_ROUND: u32 = 16;

#[repr(C)]
pub(crate) struct Cq {
    fid: fid_cq,
    domain: Arc<Shared>,
    pub queue: Arc<Queue>,
    /// The engines of the endpoints that are bound to it.
    pub movers: Movers,
    format: u32,
    has_threshold: bool,
    /// [`signal`] was called and has woken nobody yet.
    signalled: AtomicBool,
}

impl Cq {
    /// # Safety
    /// The pointer is NULL or points to a live queue of ours.
    #[inline]
    pub unsafe fn of<'a>(pointer: *mut fid_cq) -> Outcome<&'a Cq> {
        // SAFETY: as the caller says; `fid` is the first field.
        unsafe { object(pointer) }
    }

    pub fn domain(&self) -> &Arc<Shared> {
        &self.domain
    }

    /// What waits here. In a forked child another thread of the parent may have had the lock.
    #[inline]
    fn waiting(&self) -> Outcome<Locked<'_>> {
        match self.movers.are_parents() {
            true => Err(Unavailable::Forked.into()),
            false => Ok(self.queue.lock()),
        }
    }

    /// # Safety
    /// As of [`Waiting::take`](crate::entries::Waiting::take).
    #[inline]
    unsafe fn read(&self, buf: *mut c_void, count: usize, sources: *mut fi_addr_t) -> Outcome<usize> {
        let was_empty = self.queue.is_empty();
        if was_empty {
            self.movers.poll()?;
            if self.queue.is_empty() {
                return Err(Errno::AGAIN);
            }
        }
        // SAFETY: as the caller says.
        unsafe { self.take(was_empty, buf, count, sources) }
    }

    /// Takes what is there. `moved`: packets have been moved just now.
    ///
    /// # Safety
    /// As of [`Waiting::take`](crate::entries::Waiting::take).
    #[inline(never)]
    unsafe fn take(
        &self,
        moved: bool,
        buf: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
    ) -> Outcome<usize> {
        let mut waiting = self.waiting()?;
        if !moved && waiting.reads_without_round >= READS_WITHOUT_ROUND {
            drop(waiting);
            self.movers.poll()?;
            // SAFETY: as the caller says.
            return unsafe { self.take(true, buf, count, sources) };
        }
        waiting.reads_without_round = if moved { 0 } else { waiting.reads_without_round + 1 };
        // SAFETY: as the caller says.
        unsafe { waiting.take(self.format, buf, count, sources) }
    }

    /// # Safety
    /// As of [`Waiting::take`](crate::entries::Waiting::take); `threshold` is NULL or leads to a number.
    unsafe fn wait_and_read(
        &self,
        buf: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
        threshold: *const c_void,
        milliseconds: c_int,
    ) -> Outcome<usize> {
        if self.queue.wait.kind == FI_WAIT_NONE {
            return Err(Errno::INVALID);
        }
        let enough = match self.has_threshold && !threshold.is_null() {
            // SAFETY: by fi_cq(3) a size_t where the queue waits for a threshold.
            true => unsafe { *threshold.cast::<usize>() }.max(1),
            false => 1,
        };
        let mut signalled = false;
        let waited = self.movers.wait(timeout(milliseconds), || {
            signalled = signalled || self.signalled.swap(false, Ordering::SeqCst);
            let waiting = self.queue.lock();
            signalled
                || waiting.entries.len() >= enough
                || waiting.entries.front().is_some_and(|entry| entry.err != 0)
        });
        if self.queue.is_empty() {
            waited?; // otherwise what had completed before the device failed
        }
        // SAFETY: as the caller says.
        unsafe { self.waiting()?.take(self.format, buf, count, sources) }
    }
}

impl Waitable for Cq {
    fn wait_object(&self) -> &WaitObject {
        &self.queue.wait
    }

    fn context(&self) -> *mut c_void {
        self.fid.fid.context
    }

    fn movers(&self) -> Option<&Movers> {
        Some(&self.movers)
    }

    fn is_bound(&self) -> bool {
        is_bound(&self.queue)
    }

    /// Moves packets unless something is there already.
    fn look(&self) -> Outcome<bool> {
        if self.queue.is_empty() {
            self.movers.progress()?;
        }
        Ok(!self.queue.is_empty())
    }
}

static FID_OPS: fi_ops = fi_ops { close, control, ..fi_ops::ABSENT };

static OPS: fi_ops_cq = fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read,
    readfrom,
    readerr,
    sread,
    sreadfrom,
    signal,
    strerror,
    export_xpu: Absent::ABSENT,
};

abi! {
    status fn open(domain: *mut fid_domain, attr: *mut fi_cq_attr, cq: *mut *mut fid_cq, context: *mut c_void) {
        let domain = Domain::of(domain)?;
        // A program that gives no attributes wants what suits us (fi_cq(3) has no words for it; others do the same).
        let (format, kind, condition, set) = match attr.as_ref() {
            Some(attr) => (attr.format, attr.wait_obj, attr.wait_cond, attr.wait_set),
            None => (FI_CQ_FORMAT_UNSPEC, FI_WAIT_NONE, FI_CQ_COND_NONE, std::ptr::null_mut()),
        };
        if condition > FI_CQ_COND_THRESHOLD {
            return Err(Errno::INVALID);
        }
        let format = match format {
            FI_CQ_FORMAT_UNSPEC => FI_CQ_FORMAT_TAGGED,
            FI_CQ_FORMAT_CONTEXT..=FI_CQ_FORMAT_TAGGED => format,
            _ => return Err(Errno::NO_SYS),
        };
        let wait = WaitObject::new(kind, signal_of(set))?;
        let made = Box::new(Cq {
            fid: fid_cq { fid: fid { fclass: FI_CLASS_CQ, context, ops: &FID_OPS }, ops: &OPS },
            domain: domain.shared.clone(),
            queue: Arc::new(Queue::new(wait)),
            movers: domain.shared.engines.movers(),
            format,
            has_threshold: condition == FI_CQ_COND_THRESHOLD,
            signalled: AtomicBool::new(false),
        });
        made.domain.engines.tell_of_failure(&made.queue);
        let made = Box::into_raw(made);
        waitable::enter(made);
        *writable(cq)? = made.cast();
        Ok(())
    }

    closing fn close(fid: *mut fid) {
        waitable::close::<Cq>(fid)
    }

    status fn control(fid: *mut fid, command: c_int, arg: *mut c_void) {
        Cq::of(fid.cast())?.queue.wait.control(command, arg)
    }

    count fn read(cq: *mut fid_cq, buf: *mut c_void, count: usize) {
        Cq::of(cq)?.read(buf, count, std::ptr::null_mut())
    }

    count fn readfrom(cq: *mut fid_cq, buf: *mut c_void, count: usize, sources: *mut fi_addr_t) {
        Cq::of(cq)?.read(buf, count, sources)
    }

    count fn sread(cq: *mut fid_cq, buf: *mut c_void, count: usize, condition: *const c_void, timeout: c_int) {
        Cq::of(cq)?.wait_and_read(buf, count, std::ptr::null_mut(), condition, timeout)
    }

    count fn sreadfrom(
        cq: *mut fid_cq,
        buf: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
        condition: *const c_void,
        timeout: c_int,
    ) {
        Cq::of(cq)?.wait_and_read(buf, count, sources, condition, timeout)
    }

    /// Structures of programs that are older than 1.20 end before the source.
    count fn readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, _flags: u64) {
        let cq = Cq::of(cq)?;
        readable(buf)?;
        let mut waiting = cq.waiting()?;
        let entry = *waiting.entries.front().filter(|entry| entry.err != 0).ok_or(Errno::AGAIN)?;
        waiting.entries.pop_front();
        drop(waiting);
        (*buf).op_context = entry.context as *mut c_void;
        (*buf).flags = entry.flags;
        (*buf).len = entry.len as usize;
        (*buf).buf = entry.buf as *mut c_void;
        (*buf).data = entry.data;
        (*buf).tag = entry.tag;
        (*buf).olen = entry.over as usize;
        (*buf).err = entry.err;
        (*buf).prov_errno = entry.prov_errno;
        if cq.domain.api() < fi_version(1, 5) {
            (*buf).err_data = std::ptr::null_mut();
        }
        (*buf).err_data_size = 0;
        if cq.domain.api() >= fi_version(1, 20) {
            (*buf).src_addr = entry.source;
        }
        Ok(1)
    }

    status fn signal(cq: *mut fid_cq) {
        let cq = Cq::of(cq)?;
        cq.signalled.store(true, Ordering::SeqCst);
        cq.queue.wait.raise();
        cq.movers.wake();
        Ok(())
    }
}

unsafe extern "C" fn strerror(
    _cq: *mut fid_cq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    value_or("fi_cq_strerror", c"internal error".as_ptr(), || {
        // SAFETY: by fi_cq(3) there is that much room, or none.
        unsafe { copy_text(in_words(prov_errno), buf, len) }
    })
}
