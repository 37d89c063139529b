//! Poll sets (fi_poll(3)): several completion queues and counters looked at in one call.

use crate::boundary::{Errno, Outcome, abi, object, readable, writable};
use crate::constants::*;
use crate::domain::{Domain, Shared};
use crate::layout::*;
use crate::wait_set::waitable;
use libc::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

#[repr(C)]
pub(crate) struct PollSet {
    fid: fid_poll,
    _domain: Arc<Shared>,
    members: Mutex<Vec<*mut fid>>,
}

impl PollSet {
    /// # Safety
    /// The pointer is NULL or points to a live poll set of ours.
    unsafe fn of<'a>(pointer: *mut fid_poll) -> Outcome<&'a PollSet> {
        // SAFETY: as the caller says; `fid` is the first field.
        unsafe { object(pointer) }
    }
}

static FID_OPS: fi_ops = fi_ops { close, ..fi_ops::ABSENT };

static OPS: fi_ops_poll = fi_ops_poll { size: size_of::<fi_ops_poll>(), poll, poll_add, poll_del };

abi! {
    status fn open(domain: *mut fid_domain, attr: *mut fi_poll_attr, set: *mut *mut fid_poll) {
        let domain = Domain::of(domain)?;
        if attr.as_ref().is_some_and(|attr| attr.flags != 0) {
            return Err(BAD_FLAGS);
        }
        let made = Box::new(PollSet {
            fid: fid_poll {
                fid: fid { fclass: FI_CLASS_POLL, context: std::ptr::null_mut(), ops: &FID_OPS },
                ops: &OPS,
            },
            _domain: domain.shared.clone(),
            members: Mutex::default(),
        });
        *writable(set)? = Box::into_raw(made).cast();
        Ok(())
    }

    closing fn close(fid: *mut fid) {
        PollSet::of(fid.cast())?;
        drop(Box::from_raw(fid.cast::<PollSet>()));
        Ok(())
    }

    status fn poll_add(set: *mut fid_poll, fid: *mut fid, _flags: u64) {
        let mut members = PollSet::of(set)?.members.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(readable(fid)?.fclass, FI_CLASS_CQ | FI_CLASS_CNTR | FI_CLASS_EQ) {
            return Err(Errno::INVALID);
        }
        if !members.contains(&fid) {
            members.push(fid);
        }
        Ok(())
    }

    status fn poll_del(set: *mut fid_poll, fid: *mut fid, _flags: u64) {
        let mut members = PollSet::of(set)?.members.lock().unwrap_or_else(PoisonError::into_inner);
        let at = members.iter().position(|member| *member == fid).ok_or(Errno::INVALID)?;
        members.swap_remove(at);
        Ok(())
    }

    /// Returns how many have something, and their contexts.
    number fn poll(set: *mut fid_poll, contexts: *mut *mut c_void, count: c_int) {
        let members = PollSet::of(set)?.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut n = 0;
        for fid in members {
            if n == count {
                break;
            }
            let member = waitable(fid)?;
            if member.look()? {
                *contexts.add(n as usize) = member.context();
                n += 1;
            }
        }
        Ok(n)
    }
}
