//! Several queues and counters looked at in one call: poll sets (fi_poll(3)), and fi_trywait(3) before a sleep.

use crate::boundary::{Errno, Outcome, abi, array, object, readable, writable};
use crate::constants::*;
use crate::counter::Counter;
use crate::cq::Cq;
use crate::domain::{Domain, Shared};
use crate::eq::Eq;
use crate::layout::*;
use crate::wait_set::WaitSet;
use crate::waitable::Waitable;
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

/// The object of ours, of whichever kind.
///
/// # Safety
/// The pointer is NULL or points to a live object of ours.
unsafe fn waitable<'a>(fid: *mut fid) -> Outcome<&'a dyn Waitable> {
    // SAFETY: as the caller says, and objects know their kind.
    unsafe {
        Ok(match readable(fid)?.fclass {
            FI_CLASS_CQ => Cq::of(fid.cast())?,
            FI_CLASS_CNTR => Counter::of(fid.cast())?,
            FI_CLASS_EQ => Eq::of(fid.cast())?,
            FI_CLASS_WAIT => WaitSet::of(fid.cast())?,
            _ => return Err(Errno::INVALID),
        })
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
