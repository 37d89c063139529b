//! Counters of completed operations (fi_cntr(3)).

use crate::bereaved::is_bound;
use crate::boundary::{Absent, Errno, Outcome, abi, object, writable};
use crate::completions::Count;
use crate::constants::*;
use crate::domain::{Domain, Shared};
use crate::layout::*;
use crate::movers::Movers;
use crate::wait::{WaitObject, timeout};
use crate::wait_set::signal_of;
use crate::waitable::{self, Waitable};
use libc::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(C)]
pub(crate) struct Counter {
    fid: fid_cntr,
    domain: Arc<Shared>,
    pub count: Arc<Count>,
    /// The engines of the endpoints that are bound to it.
    pub movers: Movers,
    /// What the last [`Waitable::look`] has seen.
    seen: AtomicU64,
}

impl Counter {
    /// # Safety
    /// The pointer is NULL or points to a live counter of ours.
    #[inline]
    pub unsafe fn of<'a>(pointer: *mut fid_cntr) -> Outcome<&'a Counter> {
        // SAFETY: as the caller says; `fid` is the first field.
        unsafe { object(pointer) }
    }

    pub fn domain(&self) -> &Arc<Shared> {
        &self.domain
    }

    fn wait(&self, threshold: u64, milliseconds: c_int) -> Outcome<()> {
        let count = &self.count;
        if count.wait.kind == FI_WAIT_NONE {
            return Err(Errno::INVALID);
        }
        let errors = count.errors.load(Ordering::Acquire);
        let failed = || count.errors.load(Ordering::Acquire) != errors;
        let reached = || count.value.load(Ordering::Acquire) >= threshold;
        if !self.movers.wait(timeout(milliseconds), || reached() || failed())? {
            return Err(Errno(libc::ETIMEDOUT));
        }
        if reached() { Ok(()) } else { Err(Errno(FI_EAVAIL)) }
    }

    #[inline]
    fn read(&self, number: &AtomicU64) -> u64 {
        let _ = self.movers.poll();
        number.load(Ordering::Acquire)
    }

    /// The program has changed it: others may wait for that.
    fn changed(&self) {
        self.count.wait.raise();
        self.movers.wake();
    }
}

impl Waitable for Counter {
    fn wait_object(&self) -> &WaitObject {
        &self.count.wait
    }

    fn context(&self) -> *mut c_void {
        self.fid.fid.context
    }

    fn movers(&self) -> Option<&Movers> {
        Some(&self.movers)
    }

    fn is_bound(&self) -> bool {
        is_bound(&self.count)
    }

    /// Whether it counts more than when this was last asked.
    fn look(&self) -> Outcome<bool> {
        self.movers.progress()?;
        let sum = self.count.sum();
        Ok(self.seen.swap(sum, Ordering::Relaxed) != sum)
    }
}

static FID_OPS: fi_ops = fi_ops { close, control, ..fi_ops::ABSENT };

static OPS: fi_ops_cntr = fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read,
    readerr,
    add,
    set,
    wait,
    adderr,
    seterr,
    export_xpu: Absent::ABSENT,
};

abi! {
    status fn open(
        domain: *mut fid_domain,
        attr: *mut fi_cntr_attr,
        cntr: *mut *mut fid_cntr,
        context: *mut c_void,
    ) {
        let domain = Domain::of(domain)?;
        let (events, kind, set) = match attr.as_ref() {
            Some(attr) => (attr.events, attr.wait_obj, attr.wait_set),
            None => (FI_CNTR_EVENTS_COMP, FI_WAIT_UNSPEC, std::ptr::null_mut()),
        };
        if events != FI_CNTR_EVENTS_COMP {
            return Err(Errno::NO_SYS);
        }
        let wait = WaitObject::new(kind, signal_of(set))?;
        let count = Arc::new(Count { value: AtomicU64::new(0), errors: AtomicU64::new(0), wait });
        domain.shared.engines.tell_of_failure(&count);
        let made = Box::into_raw(Box::new(Counter {
            fid: fid_cntr { fid: fid { fclass: FI_CLASS_CNTR, context, ops: &FID_OPS }, ops: &OPS },
            domain: domain.shared.clone(),
            count,
            movers: domain.shared.engines.movers(),
            seen: AtomicU64::new(0),
        }));
        waitable::enter(made);
        *writable(cntr)? = made.cast();
        Ok(())
    }

    closing fn close(fid: *mut fid) {
        waitable::close::<Counter>(fid)
    }

    status fn control(fid: *mut fid, command: c_int, arg: *mut c_void) {
        Counter::of(fid.cast())?.count.wait.control(command, arg)
    }

    status fn add(cntr: *mut fid_cntr, value: u64) {
        let counter = Counter::of(cntr)?;
        counter.count.value.fetch_add(value, Ordering::AcqRel);
        counter.changed();
        Ok(())
    }

    status fn set(cntr: *mut fid_cntr, value: u64) {
        let counter = Counter::of(cntr)?;
        counter.count.value.store(value, Ordering::Release);
        counter.changed();
        Ok(())
    }

    status fn adderr(cntr: *mut fid_cntr, value: u64) {
        let counter = Counter::of(cntr)?;
        counter.count.errors.fetch_add(value, Ordering::AcqRel);
        counter.changed();
        Ok(())
    }

    status fn seterr(cntr: *mut fid_cntr, value: u64) {
        let counter = Counter::of(cntr)?;
        counter.count.errors.store(value, Ordering::Release);
        counter.changed();
        Ok(())
    }

    status fn wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) {
        Counter::of(cntr)?.wait(threshold, timeout)
    }

    /// What it counts after a round; what it counted before if that is not possible.
    value fn read(cntr: *mut fid_cntr) -> u64 {
        Counter::of(cntr).map_or(0, |counter| counter.read(&counter.count.value))
    }

    value fn readerr(cntr: *mut fid_cntr) -> u64 {
        Counter::of(cntr).map_or(0, |counter| counter.read(&counter.count.errors))
    }
}
