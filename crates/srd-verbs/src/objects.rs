//! What a program has made in a context and not destroyed yet, by what C calls it, and how an object reaches the running
//! device.

use crate::boundary::{Errno, Outcome};
use crate::layout::*;
use srd_device::CqId;
use srd_net::Instance;
use srd_wire::Qpn;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// An object's way to the running device. It ends with the object, or with its context if that closes first; calls
/// fail from then on.
pub(crate) struct Link(AtomicPtr<Instance>);

impl Link {
    /// The context keeps the instance until all its objects' links have ended.
    pub fn new(instance: &Arc<Instance>) -> Link {
        Link(AtomicPtr::new(Arc::as_ptr(instance).cast_mut()))
    }

    /// The running device.
    #[inline]
    pub fn instance(&self) -> Outcome<&Instance> {
        // SAFETY: NULL, or alive as long as the link has not ended; ending an object while another thread uses it is
        // against the contract of every call.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }.ok_or(Errno::IO)
    }

    /// Ends it. `None` if it had ended before.
    pub fn end(&self) -> Option<&Instance> {
        // SAFETY: as above.
        unsafe { self.0.swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() }
    }
}

/// What C calls an object, as a key.
pub(crate) struct Pointer<T>(*const T);

impl<T> Pointer<T> {
    pub fn new(object: *const T) -> Pointer<T> {
        Pointer(object)
    }

    pub fn get(self) -> *mut T {
        self.0.cast_mut()
    }
}

impl<T> Clone for Pointer<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Pointer<T> {}
impl<T> PartialEq for Pointer<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T> Eq for Pointer<T> {}
impl<T> Hash for Pointer<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
// SAFETY: the objects may be used from any thread; who follows the pointer answers for its being alive.
unsafe impl<T> Send for Pointer<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Pointer<T> {}

/// Live objects, by kind.
#[derive(Default)]
pub(crate) struct Live {
    pub pds: HashSet<Pointer<ibv_pd>>,
    pub mrs: HashSet<Pointer<ibv_mr>>,
    pub ahs: HashSet<Pointer<ibv_ah>>,
    pub cqs: HashSet<Pointer<ibv_cq>>,
    pub qps: HashSet<Pointer<ibv_qp>>,
    pub comp_cntrs: HashSet<Pointer<ibv_comp_cntr>>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Objects(Mutex<Live>);

impl Objects {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Enters an object.
    pub fn add<T>(&self, kind: impl FnOnce(&mut Live) -> &mut HashSet<Pointer<T>>, object: *const T) {
        kind(&mut self.live()).insert(Pointer::new(object));
    }

    /// Removes an object that the program destroys.
    pub fn remove<T>(&self, kind: impl FnOnce(&mut Live) -> &mut HashSet<Pointer<T>>, object: *const T) {
        kind(&mut self.live()).remove(&Pointer::new(object));
    }

    /// Calls `f` with the queue pair of that number, if it is of this context. It cannot end meanwhile.
    pub fn with_qp(&self, qpn: Qpn, f: impl FnOnce(Pointer<ibv_qp>)) {
        let live = self.live();
        // SAFETY: an object leaves the set before it ends, for which it needs the lock that we hold. Nobody writes to
        // the field.
        if let Some(&qp) = live.qps.iter().find(|qp| unsafe { (*qp.get()).qp_num == qpn.0 as u32 }) {
            f(qp);
        }
    }

    /// Calls `f` with the completion queue of that number, if it is of this context. It cannot end meanwhile.
    pub fn with_cq(&self, id: CqId, f: impl FnOnce(Pointer<ibv_cq>)) {
        let live = self.live();
        // SAFETY: as above.
        if let Some(&cq) = live.cqs.iter().find(|cq| unsafe { (*cq.get()).handle == id.0 }) {
            f(cq);
        }
    }

    /// Forgets everything and returns it.
    pub fn take(&self) -> Live {
        std::mem::take(&mut *self.live())
    }
}
