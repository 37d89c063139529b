//! Domains (fi_domain(3)): an address of this host, with a messaging layer of its own.

use crate::attributes::{has_provider_keys, has_virtual_addresses};
use crate::boundary::{Absent, Errno, Outcome, abi, object, readable, writable};
use crate::constants::*;
use crate::engine::Engine;
use crate::environment::Place;
use crate::eq::{Eq, Events};
use crate::fabric::{self, Fabric};
use crate::getinfo::source_of;
use crate::layout::*;
use crate::{atomic, av, counter, cq, endpoint, mr, poll_set};
use libc::c_void;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

#[repr(C)]
pub(crate) struct Domain {
    fid: fid_domain,
    pub shared: Arc<Shared>,
}

/// What its children keep.
pub(crate) struct Shared {
    fabric: Arc<fabric::Shared>,
    /// The messaging layer.
    pub engine: Arc<Engine>,
    /// Peers name bytes by virtual address.
    pub virtual_addresses: bool,
    /// The provider chooses keys.
    pub provider_keys: bool,
    /// Peers of this host are reached by shared memory where that works.
    pub shm: bool,
    ip: IpAddr,
    scope: u32,
    /// Where registrations are reported, if the program has bound an event queue for that.
    registrations: Mutex<Option<Arc<Events>>>,
}

impl Shared {
    /// The API that the program was written for.
    pub fn api(&self) -> u32 {
        self.fabric.api
    }

    /// The address of this host.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The number of its interface, which link-local addresses need.
    pub fn scope(&self) -> u32 {
        self.scope
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

    /// The domain, if it is one of ours.
    ///
    /// # Safety
    /// The pointer is NULL or points to a live domain of any provider.
    pub unsafe fn recognize<'a>(pointer: *mut fid_domain) -> Option<&'a Domain> {
        // SAFETY: as the caller says.
        unsafe { pointer.as_ref().filter(|domain| std::ptr::eq(domain.ops, &OPS)).map(|_| &*pointer.cast()) }
    }

    /// The address of this host.
    pub fn ip(&self) -> IpAddr {
        self.shared.ip
    }
}

static FID_OPS: fi_ops = fi_ops { close, bind, ..fi_ops::ABSENT };

static OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: av::open,
    cq_open: cq::open,
    endpoint: endpoint::open,
    scalable_ep: Absent::ABSENT,
    cntr_open: counter::open,
    poll_open: poll_set::open,
    stx_ctx: Absent::ABSENT,
    srx_ctx: Absent::ABSENT,
    query_atomic: atomic::query,
    query_collective: Absent::ABSENT,
    endpoint2: endpoint::open2,
    xpu_ctx: Absent::ABSENT,
};

abi! {
    status fn open(
        fabric: *mut fid_fabric,
        info: *mut fi_info,
        domain: *mut *mut fid_domain,
        context: *mut c_void,
    ) {
        let fabric = Fabric::of(fabric)?;
        let attr = readable(readable(info)?.domain_attr)?;
        let wanted = source_of(info)?.map(|source| source.at.ip()).filter(|ip| !ip.is_unspecified());
        let place = Place::find(wanted, None).ok_or(Errno(libc::ENODEV))?;
        let made = Box::new(Domain {
            fid: fid_domain {
                fid: fid { fclass: FI_CLASS_DOMAIN, context, ops: &FID_OPS },
                ops: &OPS,
                mr: &mr::OPS,
            },
            shared: Arc::new(Shared {
                fabric: fabric.shared.clone(),
                engine: Engine::open(&place)?,
                virtual_addresses: has_virtual_addresses(attr.mr_mode),
                provider_keys: has_provider_keys(attr.mr_mode),
                shm: place.options.shm,
                ip: place.local.ip,
                scope: place.local.index,
                registrations: Mutex::new(None),
            }),
        });
        *writable(domain)? = Box::into_raw(made).cast();
        Ok(())
    }

    status fn open2(
        fabric: *mut fid_fabric,
        info: *mut fi_info,
        domain: *mut *mut fid_domain,
        flags: u64,
        context: *mut c_void,
    ) {
        match flags {
            0 => match open(fabric, info, domain, context) {
                0 => Ok(()),
                negative => Err(Errno(-negative)),
            },
            _ => Err(Errno::NO_SYS),
        }
    }

    closing fn close(fid: *mut fid) {
        let domain = Domain::of(fid.cast())?;
        if Arc::strong_count(&domain.shared) > 1 {
            return Err(Errno::BUSY);
        }
        domain.shared.engine.close();
        drop(Box::from_raw(fid.cast::<Domain>()));
        Ok(())
    }

    /// An event queue: with FI_REG_MR, registrations complete there.
    status fn bind(fid: *mut fid, other: *mut fid, flags: u64) {
        let domain = Domain::of(fid.cast())?;
        if readable(other)?.fclass != FI_CLASS_EQ {
            return Err(Errno::INVALID);
        }
        let events = &Eq::of(other.cast())?.events;
        match flags {
            0 => domain.shared.engine.tell_of_failure(events),
            FI_REG_MR => {
                domain.shared.engine.tell_of_failure(events);
                let events = events.clone();
                *domain.shared.registrations.lock().unwrap_or_else(PoisonError::into_inner) = Some(events);
            }
            _ => return Err(BAD_FLAGS),
        }
        Ok(())
    }
}
