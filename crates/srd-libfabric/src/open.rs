//! Fabrics and domains (fi_domain(3)) as programs open, bind and close them, and what is opened from them.

use crate::address::source_of;
use crate::boundary::{Absent, Errno, abi, readable, text, writable};
use crate::constants::*;
use crate::domain::{self, Domain};
use crate::engines::Engines;
use crate::environment::Place;
use crate::eq::{self, Eq};
use crate::fabric::{self, Fabric};
use crate::layout::*;
use crate::mr::{self, has_provider_keys, has_virtual_addresses};
use crate::{atomic, av, capabilities, counter, cq, endpoint_calls, poll_set, wait_set};
use libc::c_void;
use std::sync::{Arc, Mutex, PoisonError};

static FABRIC_FID_OPS: fi_ops = fi_ops { close: close_fabric, ..fi_ops::ABSENT };

static FABRIC_OPS: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: open_domain,
    passive_ep: Absent::ABSENT,
    eq_open: eq::open,
    wait_open: wait_set::open,
    trywait: poll_set::trywait,
    domain2: open_domain2,
};

static DOMAIN_FID_OPS: fi_ops = fi_ops { close: close_domain, bind: bind_domain, ..fi_ops::ABSENT };

static DOMAIN_OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: av::open,
    cq_open: cq::open,
    endpoint: endpoint_calls::open,
    scalable_ep: Absent::ABSENT,
    cntr_open: counter::open,
    poll_open: poll_set::open,
    stx_ctx: Absent::ABSENT,
    srx_ctx: Absent::ABSENT,
    query_atomic: atomic::query,
    query_collective: Absent::ABSENT,
    endpoint2: endpoint_calls::open2,
    xpu_ctx: Absent::ABSENT,
};

/// Whether a fabric is one of ours.
///
/// # Safety
/// The pointer is NULL or points to a live fabric of any provider.
pub(crate) unsafe fn is_our_fabric(pointer: *mut fid_fabric) -> bool {
    // SAFETY: as the caller says.
    unsafe { pointer.as_ref().is_some_and(|fabric| std::ptr::eq(fabric.ops, &FABRIC_OPS)) }
}

/// The domain, if it is one of ours.
///
/// # Safety
/// The pointer is NULL or points to a live domain of any provider.
pub(crate) unsafe fn our_domain<'a>(pointer: *mut fid_domain) -> Option<&'a Domain> {
    // SAFETY: as the caller says.
    unsafe {
        pointer.as_ref().filter(|domain| std::ptr::eq(domain.ops, &DOMAIN_OPS)).map(|_| &*pointer.cast())
    }
}

abi! {
    status fn open_fabric(attr: *mut fi_fabric_attr, fabric: *mut *mut fid_fabric, context: *mut c_void) {
        let attr = readable(attr)?;
        if text(attr.name)?.is_some_and(|name| !name.eq_ignore_ascii_case(capabilities::FABRIC)) {
            return Err(Errno::INVALID);
        }
        let made = Box::new(Fabric {
            fid: fid_fabric {
                fid: fid { fclass: FI_CLASS_FABRIC, context, ops: &FABRIC_FID_OPS },
                ops: &FABRIC_OPS,
                api_version: attr.api_version,
            },
            shared: Arc::new(fabric::Shared { api: attr.api_version }),
        });
        *writable(fabric)? = Box::into_raw(made).cast();
        Ok(())
    }

    closing fn close_fabric(fid: *mut fid) {
        if Arc::strong_count(&Fabric::of(fid.cast())?.shared) > 1 {
            return Err(Errno::BUSY);
        }
        drop(Box::from_raw(fid.cast::<Fabric>()));
        Ok(())
    }

    status fn open_domain(
        fabric: *mut fid_fabric,
        info: *mut fi_info,
        domain: *mut *mut fid_domain,
        context: *mut c_void,
    ) {
        let fabric = Fabric::of(fabric)?;
        let attr = readable(readable(info)?.domain_attr)?;
        let counts_peers = readable(info)?.caps & FI_RMA_EVENT != 0;
        let accelerators = readable(info)?.caps & FI_HMEM != 0;
        let wanted = source_of(info)?.map(|source| source.at.ip()).filter(|ip| !ip.is_unspecified());
        let place = Place::find(wanted, None).ok_or(Errno(libc::ENODEV))?;
        let made = Box::new(Domain {
            fid: fid_domain {
                fid: fid { fclass: FI_CLASS_DOMAIN, context, ops: &DOMAIN_FID_OPS },
                ops: &DOMAIN_OPS,
                mr: &mr::OPS,
            },
            shared: Arc::new(domain::Shared {
                fabric: fabric.shared.clone(),
                virtual_addresses: has_virtual_addresses(attr.mr_mode),
                provider_keys: has_provider_keys(attr.mr_mode),
                shm: place.options.shm,
                ip: place.local.ip,
                scope: place.local.index,
                accelerators,
                counts_peers,
                region_counts: Arc::default(),
                engines: Engines::open(place, counts_peers)?,
                registrations: Mutex::new(None),
            }),
        });
        *writable(domain)? = Box::into_raw(made).cast();
        Ok(())
    }

    status fn open_domain2(
        fabric: *mut fid_fabric,
        info: *mut fi_info,
        domain: *mut *mut fid_domain,
        flags: u64,
        context: *mut c_void,
    ) {
        match flags {
            0 => match open_domain(fabric, info, domain, context) {
                0 => Ok(()),
                negative => Err(Errno(-negative)),
            },
            _ => Err(Errno::NO_SYS),
        }
    }

    closing fn close_domain(fid: *mut fid) {
        let domain = Domain::of(fid.cast())?;
        if Arc::strong_count(&domain.shared) > 1 {
            return Err(Errno::BUSY);
        }
        domain.shared.engines.close();
        drop(Box::from_raw(fid.cast::<Domain>()));
        Ok(())
    }

    /// An event queue: with FI_REG_MR, registrations complete there.
    status fn bind_domain(fid: *mut fid, other: *mut fid, flags: u64) {
        let domain = Domain::of(fid.cast())?;
        if readable(other)?.fclass != FI_CLASS_EQ {
            return Err(Errno::INVALID);
        }
        let events = &Eq::of(other.cast())?.events;
        match flags {
            0 => domain.shared.engines.tell_of_failure(events),
            FI_REG_MR => {
                domain.shared.engines.tell_of_failure(events);
                let events = events.clone();
                *domain.shared.registrations.lock().unwrap_or_else(PoisonError::into_inner) = Some(events);
            }
            _ => return Err(BAD_FLAGS),
        }
        Ok(())
    }
}
