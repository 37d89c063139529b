//! The fabric: what domains and event queues belong to.

use crate::boundary::{Outcome, object};
use crate::layout::*;
use std::sync::Arc;

#[repr(C)]
pub(crate) struct Fabric {
    pub fid: fid_fabric,
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
}
