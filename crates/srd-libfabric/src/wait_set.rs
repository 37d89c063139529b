//! Wait sets (fi_poll(3)): several queues and counters with one thing to sleep on.

use crate::boundary::{Errno, Outcome, abi, object, readable, writable};
use crate::constants::*;
use crate::fabric::{Fabric, Shared};
use crate::layout::*;
use crate::wait::{Signal, WaitObject, timeout};
use crate::waitable::{self, Waitable};
use libc::{c_int, c_void};
use std::sync::Arc;
use std::time::Instant;

#[repr(C)]
pub(crate) struct WaitSet {
    fid: fid_wait,
    _fabric: Arc<Shared>,
    wait: WaitObject,
}

/// The signal of a set.
///
/// # Safety
/// The pointer is NULL or points to a live wait set of ours.
pub(crate) unsafe fn signal_of(set: *mut fid_wait) -> Option<Arc<Signal>> {
    // SAFETY: as the caller says.
    unsafe { WaitSet::of(set) }.ok().and_then(|set| set.wait.signal.clone())
}

impl WaitSet {
    /// # Safety
    /// The pointer is NULL or points to a live wait set of ours.
    pub unsafe fn of<'a>(pointer: *mut fid_wait) -> Outcome<&'a WaitSet> {
        // SAFETY: as the caller says; `fid` is the first field.
        unsafe { object(pointer) }
    }
}

impl Waitable for WaitSet {
    fn wait_object(&self) -> &WaitObject {
        &self.wait
    }

    fn context(&self) -> *mut c_void {
        self.fid.fid.context
    }

    fn is_bound(&self) -> bool {
        self.wait.signal.as_ref().is_some_and(|signal| Arc::strong_count(signal) > 1)
    }

    /// Whether one of its objects has something. All have the set's signal, and it was lowered before the first is looked at:
    /// what one of them gets while another is looked at must be shown.
    fn look(&self) -> Outcome<bool> {
        for member in waitable::members_of(&self.wait) {
            // SAFETY: the program does not close an object of a set on which it waits.
            if !unsafe { &*member }.may_sleep()? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

static FID_OPS: fi_ops = fi_ops { close, control, ..fi_ops::ABSENT };

static OPS: fi_ops_wait = fi_ops_wait { size: size_of::<fi_ops_wait>(), wait };

abi! {
    status fn open(fabric: *mut fid_fabric, attr: *mut fi_wait_attr, set: *mut *mut fid_wait) {
        let fabric = Fabric::of(fabric)?;
        if !matches!(readable(attr)?.wait_obj, FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD) {
            return Err(Errno::NO_SYS);
        }
        let made = Box::new(WaitSet {
            fid: fid_wait {
                fid: fid { fclass: FI_CLASS_WAIT, context: std::ptr::null_mut(), ops: &FID_OPS },
                ops: &OPS,
            },
            _fabric: fabric.shared.clone(),
            wait: WaitObject::new(FI_WAIT_FD, None)?,
        });
        *writable(set)? = Box::into_raw(made).cast();
        Ok(())
    }

    closing fn close(fid: *mut fid) {
        waitable::close::<WaitSet>(fid)
    }

    status fn control(fid: *mut fid, command: c_int, arg: *mut c_void) {
        WaitSet::of(fid.cast())?.wait.control(command, arg)
    }

    status fn wait(set: *mut fid_wait, milliseconds: c_int) {
        let set = WaitSet::of(set)?;
        let until = timeout(milliseconds).map(|timeout| Instant::now() + timeout);
        loop {
            if !set.try_wait()? {
                return Ok(());
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Errno(libc::ETIMEDOUT));
            }
            set.wait.sleep(left);
        }
    }
}
