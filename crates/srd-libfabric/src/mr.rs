//! Registered memory (fi_mr(3)). Only peers need it: the messaging layer takes the program's own buffers as they are, so a
//! registration without remote rights is nothing but an object, and its key is nobody's.

use crate::boundary::{Errno, Outcome, abi, array, object, readable, writable};
use crate::completions::RegionCount;
use crate::constants::*;
use crate::counter::Counter;
use crate::domain::{Domain, Shared};
use crate::engines::Region;
use crate::layout::*;
use crate::pieces::ACCELERATORS;
use libc::{c_int, c_void, iovec};
use srd_device::accelerator::{MARK, is_marked};
use srd_msg::{Registration, RemoteRights};
use srd_net::{accelerator, log};
use std::sync::{Arc, Mutex, PoisonError};

#[repr(C)]
pub(crate) struct Mr {
    fid: fid_mr,
    domain: Arc<Shared>,
    region: Option<Region>,
    counts: Mutex<RegionCount>,
}

/// What a registration may permit.
const ACCESS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

impl Mr {
    /// # Safety
    /// The pointer is NULL or points to a live registration of ours.
    unsafe fn of<'a>(pointer: *mut fid) -> Outcome<&'a Mr> {
        // SAFETY: as the caller says; `fid` is the first field.
        unsafe { object(pointer) }
    }
}

/// Whether peers name bytes by virtual address.
pub(crate) fn has_virtual_addresses(mr_mode: i32) -> bool {
    mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC) != 0
}

/// Whether the provider chooses keys.
pub(crate) fn has_provider_keys(mr_mode: i32) -> bool {
    mr_mode & (FI_MR_PROV_KEY | FI_MR_BASIC) != 0
}

fn register(
    domain: &Domain,
    range: &[iovec],
    iface: u32,
    access: u64,
    offset: u64,
    requested_key: u64,
    context: *mut c_void,
) -> Outcome<*mut fid_mr> {
    // mr_iov_limit is 1; the offset is reserved (fi_mr(3)).
    let [range] = range else { return Err(Errno::INVALID) };
    if access & !ACCESS != 0 || offset != 0 {
        return Err(Errno::INVALID);
    }
    let (addr, len) = (range.iov_base as u64, range.iov_len as u64);
    // From address 0 with the greatest length: all memory of the host's.
    if addr.checked_add(len).is_none() || is_marked(addr) {
        return Err(Errno::INVALID);
    }
    let len = len.min(MARK - addr);
    let shared = &domain.shared;
    let addr = locate(shared, iface, addr, len)?;
    let rights = RemoteRights { read: access & FI_REMOTE_READ != 0, write: access & FI_REMOTE_WRITE != 0 };
    let key = (!shared.provider_keys).then_some(requested_key);
    let (region, key) = if rights == RemoteRights::default() {
        (None, key.unwrap_or(FI_KEY_NOTAVAIL))
    } else {
        let registration =
            Registration { addr, len, key, virtual_addresses: shared.virtual_addresses, rights };
        let (region, key) = shared.engines.register(registration)?;
        (Some(region), key)
    };
    let made = Box::into_raw(Box::new(Mr {
        fid: fid_mr {
            fid: fid { fclass: FI_CLASS_MR, context, ops: &FID_OPS },
            mem_desc: if is_marked(addr) { ACCELERATORS } else { std::ptr::null_mut() },
            key,
        },
        domain: shared.clone(),
        region,
        counts: Mutex::default(),
    }));
    if let Some(events) = shared.registrations() {
        events.report(FI_MR_COMPLETE, fi_eq_entry { fid: made.cast(), context, data: 0 });
    }
    Ok(made.cast())
}

/// The address by which the device is to reach memory of an interface (fi_mr(3), iface).
fn locate(shared: &Shared, iface: u32, addr: u64, len: u64) -> Outcome<u64> {
    let refuse = |errno, why: std::fmt::Arguments<'_>| {
        log::warn(format_args!("fi_mr_regattr: {why}"));
        Err(errno)
    };
    match iface {
        FI_HMEM_SYSTEM => Ok(addr),
        _ if !shared.accelerators => refuse(
            Errno::NO_SYS,
            format_args!("memory of interface {iface} in a domain that was opened without FI_HMEM"),
        ),
        FI_HMEM_CUDA => {
            accelerator::locate(addr, len).or_else(|why| refuse(Errno::INVALID, format_args!("{why}")))
        }
        _ => refuse(
            Errno::NO_SYS,
            format_args!("memory of interface {iface} cannot be used: only that of CUDA (FI_HMEM_CUDA) can"),
        ),
    }
}

/// Counts what peers do here. Those that know the key by then may not tell of it.
fn bind_counter(mr: &Mr, counter: &Counter, flags: u64) -> Outcome<()> {
    if flags & !(FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 {
        return Err(BAD_FLAGS);
    }
    if flags == 0 || !Arc::ptr_eq(counter.domain(), &mr.domain) {
        return Err(Errno::INVALID);
    }
    if !mr.domain.counts_peers {
        return Err(Errno::NO_SYS); // the domain was opened without FI_RMA_EVENT
    }
    let mut counts = mr.counts.lock().unwrap_or_else(PoisonError::into_inner);
    if flags & FI_REMOTE_READ != 0 {
        counts.read = Some(counter.count.clone());
    }
    if flags & FI_REMOTE_WRITE != 0 {
        counts.write = Some(counter.count.clone());
    }
    let Some(region) = mr.region else { return Ok(()) }; // peers cannot reach it
    mr.domain.region_counts.set(region.0, counts.clone());
    let engines = mr.domain.engines.count_in(region, counts.counted())?;
    engines.iter().for_each(|engine| counter.movers.enter(engine));
    Ok(())
}

static FID_OPS: fi_ops = fi_ops { close, bind, control, ..fi_ops::ABSENT };

pub(crate) static OPS: fi_ops_mr = fi_ops_mr { size: size_of::<fi_ops_mr>(), reg, regv, regattr };

abi! {
    status fn reg(
        domain: *mut fid,
        buf: *const c_void,
        len: usize,
        access: u64,
        offset: u64,
        requested_key: u64,
        flags: u64,
        mr: *mut *mut fid_mr,
        context: *mut c_void,
    ) {
        if flags & !FI_RMA_EVENT != 0 {
            return Err(BAD_FLAGS);
        }
        let range = iovec { iov_base: buf.cast_mut(), iov_len: len };
        *writable(mr)? = register(Domain::of(domain.cast())?, &[range], FI_HMEM_SYSTEM, access, offset, requested_key, context)?;
        Ok(())
    }

    status fn regv(
        domain: *mut fid,
        iov: *const iovec,
        count: usize,
        access: u64,
        offset: u64,
        requested_key: u64,
        flags: u64,
        mr: *mut *mut fid_mr,
        context: *mut c_void,
    ) {
        if flags & !FI_RMA_EVENT != 0 {
            return Err(BAD_FLAGS);
        }
        let domain = Domain::of(domain.cast())?;
        *writable(mr)? = register(domain, array(iov, count)?, FI_HMEM_SYSTEM, access, offset, requested_key, context)?;
        Ok(())
    }

    status fn regattr(domain: *mut fid, attr: *const fi_mr_attr, flags: u64, mr: *mut *mut fid_mr) {
        let domain = Domain::of(domain.cast())?;
        let attr = readable(attr)?;
        // Where device memory lies is asked of its driver, whatever the flags say.
        let of_devices = if domain.shared.accelerators { FI_HMEM_DEVICE_ONLY | FI_HMEM_HOST_ALLOC } else { 0 };
        if flags & !(FI_RMA_EVENT | of_devices) != 0 {
            return Err(BAD_FLAGS);
        }
        // Part of another registration.
        if domain.shared.api() >= fi_version(2, 0) && !attr.base_mr.is_null() {
            return Err(Errno::NO_SYS);
        }
        // The field is there since 1.10.
        let iface = if domain.shared.api() >= fi_version(1, 10) { attr.iface } else { FI_HMEM_SYSTEM };
        let ranges = array(attr.mr_iov, attr.iov_count)?;
        *writable(mr)? =
            register(domain, ranges, iface, attr.access, attr.offset, attr.requested_key, attr.context)?;
        Ok(())
    }

    closing fn close(fid: *mut fid) {
        let mr = Mr::of(fid)?;
        if let Some(region) = mr.region {
            mr.domain.engines.deregister(region)?;
            mr.domain.region_counts.remove(region.0);
        }
        drop(Box::from_raw(fid.cast::<Mr>()));
        Ok(())
    }

    /// Registrations belong to the domain and count for all of its endpoints: only counters are bound to them.
    status fn bind(fid: *mut fid, other: *mut fid, flags: u64) {
        let mr = Mr::of(fid)?;
        match readable(other)?.fclass {
            FI_CLASS_EP => Ok(()),
            FI_CLASS_CNTR => bind_counter(mr, Counter::of(other.cast())?, flags),
            _ => Err(Errno::INVALID),
        }
    }

    /// A registration is enabled from the start, also one with FI_RMA_EVENT: FI_MR_RMA_EVENT is not asked of programs.
    status fn control(fid: *mut fid, command: c_int, _arg: *mut c_void) {
        Mr::of(fid)?;
        if command == FI_ENABLE { Ok(()) } else { Err(Errno::NO_SYS) }
    }
}
