//! Domains (fi_domain(3)): an address of this host, with messaging layers of its own.

use crate::boundary::{Outcome, object};
use crate::completions::RegionCounts;
use crate::engines::Engines;
use crate::eq::Events;
use crate::fabric;
use crate::layout::*;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

#[repr(C)]
pub(crate) struct Domain {
    pub fid: fid_domain,
    pub shared: Arc<Shared>,
}

/// What its children keep.
pub(crate) struct Shared {
    pub fabric: Arc<fabric::Shared>,
    /// The messaging layers.
    pub engines: Engines,
    /// Peers name bytes by virtual address.
    pub virtual_addresses: bool,
    /// The provider chooses keys.
    pub provider_keys: bool,
    /// Peers of this host are reached by shared memory where that works.
    pub shm: bool,
    /// Memory may be an accelerator's (FI_HMEM).
    pub accelerators: bool,
    /// What peers do can be counted (FI_RMA_EVENT).
    pub counts_peers: bool,
    pub region_counts: Arc<RegionCounts>,
    /// The address of this host.
    pub ip: IpAddr,
    /// The number of its interface, which link-local addresses need.
    pub scope: u32,
    /// Where registrations are reported, if the program has bound an event queue for that.
    pub registrations: Mutex<Option<Arc<Events>>>,
}

impl Shared {
    /// The API that the program was written for.
    pub fn api(&self) -> u32 {
        self.fabric.api
    }

    /// Where registrations are reported.
    pub fn registrations(&self) -> Option<Arc<Events>> {
        self.registrations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Domain {
    /// # Safety
    /// The pointer is NULL or points to a live domain of ours.
    pub unsafe fn of<'a>(pointer: *mut fid_domain) -> Outcome<&'a Domain> {
        // SAFETY: as the caller says; `fid` is the first field.
        unsafe { object(pointer) }
    }
}
