//! The fabric: what domains and event queues are opened from.

use crate::boundary::{Absent, Errno, Outcome, abi, array, object, readable, text, writable};
use crate::constants::*;
use crate::layout::*;
use crate::wait_set::waitable;
use crate::{capabilities, domain, eq, wait_set};
use libc::{c_int, c_void};
use std::sync::Arc;

#[repr(C)]
pub(crate) struct Fabric {
    fid: fid_fabric,
    pub shared: Arc<Shared>,
}

/// What its children keep.
pub(crate) struct Shared {
    /// The API that the program was written for.
    pub api: u32,
}

impl Fabric {
    /// # Safety
    /// The pointer is NULL or points to a live fabric of ours.
    pub unsafe fn of<'a>(pointer: *mut fid_fabric) -> Outcome<&'a Fabric> {
        // SAFETY: as the caller says; `fid` is the first field.
        unsafe { object(pointer) }
    }

    /// The fabric, if it is one of ours.
    ///
    /// # Safety
    /// The pointer is NULL or points to a live fabric of any provider.
    pub unsafe fn recognize<'a>(pointer: *mut fid_fabric) -> Option<&'a Fabric> {
        // SAFETY: as the caller says.
        unsafe { pointer.as_ref().filter(|fabric| std::ptr::eq(fabric.ops, &OPS)).map(|_| &*pointer.cast()) }
    }
}

static FID_OPS: fi_ops = fi_ops { close, ..fi_ops::ABSENT };

static OPS: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: domain::open,
    passive_ep: Absent::ABSENT,
    eq_open: eq::open,
    wait_open: wait_set::open,
    trywait,
    domain2: domain::open2,
};

abi! {
    status fn open(attr: *mut fi_fabric_attr, fabric: *mut *mut fid_fabric, context: *mut c_void) {
        let attr = readable(attr)?;
        if text(attr.name)?.is_some_and(|name| !name.eq_ignore_ascii_case(capabilities::FABRIC)) {
            return Err(Errno::INVALID);
        }
        let made = Box::new(Fabric {
            fid: fid_fabric {
                fid: fid { fclass: FI_CLASS_FABRIC, context, ops: &FID_OPS },
                ops: &OPS,
                api_version: attr.api_version,
            },
            shared: Arc::new(Shared { api: attr.api_version }),
        });
        *writable(fabric)? = Box::into_raw(made).cast();
        Ok(())
    }

    closing fn close(fid: *mut fid) {
        if Arc::strong_count(&Fabric::of(fid.cast())?.shared) > 1 {
            return Err(Errno::BUSY);
        }
        drop(Box::from_raw(fid.cast::<Fabric>()));
        Ok(())
    }

    /// fi_trywait(3): 0 if the program may sleep on the descriptors of all, -FI_EAGAIN if one of them has something.
    status fn trywait(_fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) {
        for &fid in array(fids, usize::try_from(count).map_err(|_| Errno::INVALID)?)? {
            if !waitable(fid)?.try_wait()? {
                return Err(Errno::AGAIN);
            }
        }
        Ok(())
    }
}
