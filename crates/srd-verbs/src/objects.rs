//! What a program has made in a context and not destroyed yet, and how an object reaches the running device.

use crate::ah::Ah;
use crate::boundary::{Errno, Outcome};
use crate::cq::Cq;
use crate::mr::Mr;
use crate::pd::Pd;
use crate::qp::Qp;
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

/// A pointer to an object, as a key.
pub(crate) struct Pointer<T>(*const T);

impl<T> Pointer<T> {
    pub fn new(object: &T) -> Pointer<T> {
        Pointer(object)
    }

    pub fn get(self) -> *const T {
        self.0
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
unsafe impl<T: Sync> Send for Pointer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Pointer<T> {}

/// Live objects, by kind.
#[derive(Default)]
pub(crate) struct Live {
    pub pds: HashSet<Pointer<Pd>>,
    pub mrs: HashSet<Pointer<Mr>>,
    pub ahs: HashSet<Pointer<Ah>>,
    pub cqs: HashSet<Pointer<Cq>>,
    pub qps: HashSet<Pointer<Qp>>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Objects(Mutex<Live>);

impl Objects {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Enters an object.
    pub fn add<T>(&self, kind: impl FnOnce(&mut Live) -> &mut HashSet<Pointer<T>>, object: &T) {
        kind(&mut self.live()).insert(Pointer(object));
    }

    /// Removes an object that the program destroys.
    pub fn remove<T>(&self, kind: impl FnOnce(&mut Live) -> &mut HashSet<Pointer<T>>, object: &T) {
        kind(&mut self.live()).remove(&Pointer(object));
    }

    /// Calls `f` with the queue pair of that number, if it is of this context. It cannot end meanwhile.
    pub fn with_qp(&self, qpn: Qpn, f: impl FnOnce(&Qp)) {
        let live = self.live();
        // SAFETY: an object leaves the set before it ends, for which it needs the lock that we hold.
        if let Some(qp) = live.qps.iter().map(|qp| unsafe { &*qp.get() }).find(|qp| qp.qpn == qpn) {
            f(qp);
        }
    }

    /// Calls `f` with the completion queue of that number, if it is of this context. It cannot end meanwhile.
    pub fn with_cq(&self, id: CqId, f: impl FnOnce(&Cq)) {
        let live = self.live();
        // SAFETY: as above.
        if let Some(cq) = live.cqs.iter().map(|cq| unsafe { &*cq.get() }).find(|cq| cq.id == id) {
            f(cq);
        }
    }

    /// Ends everything, users before what they use. Returns how much there was.
    pub fn end_all(&self) -> usize {
        let live = std::mem::take(&mut *self.live());
        // SAFETY: what is in the sets is alive, and the context that closes is the only one to know it.
        unsafe {
            live.qps.iter().for_each(|qp| (*qp.get()).end());
            live.cqs.iter().for_each(|cq| (*cq.get()).end());
            live.mrs.iter().for_each(|mr| (*mr.get()).end());
            live.ahs.iter().for_each(|ah| (*ah.get()).end());
            live.pds.iter().for_each(|pd| (*pd.get()).end());
        }
        live.qps.len() + live.cqs.len() + live.mrs.len() + live.ahs.len() + live.pds.len()
    }
}
