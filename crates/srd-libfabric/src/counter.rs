//! Counters of completed operations (fi_cntr(3)).

use crate::boundary::{Absent, Errno, Outcome, abi, object, value_or, writable};
use crate::constants::*;
use crate::domain::{Domain, Shared};
use crate::engine::{Bereaved, is_bound};
use crate::layout::*;
use crate::wait::{WaitObject, timeout};
use crate::wait_set;
use libc::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(C)]
pub(crate) struct Counter {
    fid: fid_cntr,
    domain: Arc<Shared>,
    pub count: Arc<Count>,
    /// What [`Counter::try_wait`] and a poll set have seen.
    seen: AtomicU64,
}

/// What endpoints keep of it.
pub(crate) struct Count {
    value: AtomicU64,
    errors: AtomicU64,
    wait: WaitObject,
}

impl Count {
    #[inline]
    pub fn add(&self, n: u64) {
        self.value.fetch_add(n, Ordering::Release);
        self.wait.raise();
    }

    pub fn add_error(&self, n: u64) {
        self.errors.fetch_add(n, Ordering::Release);
        self.wait.raise();
    }

    fn sum(&self) -> u64 {
        self.value.load(Ordering::Acquire).wrapping_add(self.errors.load(Ordering::Acquire))
    }
}

impl Bereaved for Count {
    /// fi_cntr_read(3) cannot fail: a program that reads on and on learns from the errors that it waits in vain.
    fn device_failed(&self) {
        self.add_error(1);
    }
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

    pub fn context(&self) -> *mut c_void {
        self.fid.fid.context
    }

    /// Moves packets, and tells whether it counts more than when this was last asked.
    pub fn look(&self) -> Outcome<bool> {
        self.domain.engine.progress()?;
        let sum = self.count.sum();
        Ok(self.seen.swap(sum, Ordering::Relaxed) != sum)
    }

    /// fi_trywait(3): whether the program may sleep on the descriptor.
    pub fn try_wait(&self) -> Outcome<bool> {
        if let Some(signal) = &self.count.wait.signal {
            signal.lower();
        }
        self.may_sleep()
    }

    /// The same for who has lowered the signal.
    pub fn may_sleep(&self) -> Outcome<bool> {
        // What comes by shared memory need not be anything for this program.
        loop {
            if self.look()? {
                return Ok(false);
            }
            if self.domain.engine.fall_asleep()? {
                break;
            }
        }
        self.domain.engine.instance.hand_over();
        Ok(true)
    }

    fn wait(&self, threshold: u64, milliseconds: c_int) -> Outcome<()> {
        let count = &self.count;
        if count.wait.kind == FI_WAIT_NONE {
            return Err(Errno::INVALID);
        }
        let errors = count.errors.load(Ordering::Acquire);
        let failed = || count.errors.load(Ordering::Acquire) != errors;
        let reached = || count.value.load(Ordering::Acquire) >= threshold;
        if !self.domain.engine.wait(timeout(milliseconds), || reached() || failed())? {
            return Err(Errno(libc::ETIMEDOUT));
        }
        if reached() { Ok(()) } else { Err(Errno(FI_EAVAIL)) }
    }

    /// The program has changed it: others may wait for that.
    fn changed(&self) {
        self.count.wait.raise();
        self.domain.engine.instance.wake();
    }
}

static FID_OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close,
    bind: Absent::ABSENT,
    control,
    ops_open: Absent::ABSENT,
    tostr: Absent::ABSENT,
    ops_set: Absent::ABSENT,
};

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
        let wait = WaitObject::new(kind, wait_set::signal_of(set))?;
        let count = Arc::new(Count { value: AtomicU64::new(0), errors: AtomicU64::new(0), wait });
        domain.shared.engine.tell_of_failure(&count);
        let made = Box::into_raw(Box::new(Counter {
            fid: fid_cntr { fid: fid { fclass: FI_CLASS_CNTR, context, ops: &FID_OPS }, ops: &OPS },
            domain: domain.shared.clone(),
            count,
            seen: AtomicU64::new(0),
        }));
        wait_set::enter(set, made.cast());
        *writable(cntr)? = made.cast();
        Ok(())
    }

    closing fn close(fid: *mut fid) {
        let counter = Counter::of(fid.cast())?;
        if is_bound(&counter.count) {
            return Err(Errno::BUSY);
        }
        wait_set::leave(&counter.count.wait, fid);
        drop(Box::from_raw(fid.cast::<Counter>()));
        Ok(())
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
}

/// What it counts after a round; what it counted before if that is not possible.
unsafe extern "C" fn read(cntr: *mut fid_cntr) -> u64 {
    value_or("fi_cntr_read", 0, || {
        // SAFETY: by fi_cntr(3) a live counter.
        let Ok(counter) = (unsafe { Counter::of(cntr) }) else { return 0 };
        let _ = counter.domain.engine.poll();
        counter.count.value.load(Ordering::Acquire)
    })
}

unsafe extern "C" fn readerr(cntr: *mut fid_cntr) -> u64 {
    value_or("fi_cntr_readerr", 0, || {
        // SAFETY: by fi_cntr(3) a live counter.
        let Ok(counter) = (unsafe { Counter::of(cntr) }) else { return 0 };
        let _ = counter.domain.engine.poll();
        counter.count.errors.load(Ordering::Acquire)
    })
}
