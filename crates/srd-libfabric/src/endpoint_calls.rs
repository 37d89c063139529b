//! Endpoints as programs open, bind, enable and close them, with their flags, options and names (fi_endpoint(3), fi_cm(3)).

use crate::address::{self, source_of};
use crate::av::Av;
use crate::boundary::{Absent, Errno, Outcome, abi, readable, writable};
use crate::completions::Reports;
use crate::constants::*;
use crate::counter::Counter;
use crate::cq::Cq;
use crate::domain::Domain;
use crate::endpoint::{Binding, Core, Endpoint, NOT_ENABLED};
use crate::engine::Engine;
use crate::eq::Eq;
use crate::layout::*;
use crate::random::random;
use crate::{atomic, capabilities, messages, rma};
use libc::{c_int, c_void};
use srd_device::DeviceError;
use srd_wire::Qpn;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// FI_OPT_MIN_MULTI_RECV before the program sets it, as in libfabric's software providers.
const MIN_MULTI_RECV: u64 = 64;

static FID_OPS: fi_ops = fi_ops { close, bind, control, ..fi_ops::ABSENT };

static OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: Absent::ABSENT,
    rx_ctx: Absent::ABSENT,
    rx_size_left: Absent::ABSENT,
    tx_size_left: Absent::ABSENT,
    export_xpu: Absent::ABSENT,
};

static CM_OPS: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname,
    getname,
    getpeer: Absent::ABSENT,
    connect: Absent::ABSENT,
    listen: Absent::ABSENT,
    accept: Absent::ABSENT,
    reject: Absent::ABSENT,
    shutdown: Absent::ABSENT,
    join: Absent::ABSENT,
};

static COLLECTIVE_OPS: fi_ops_collective = fi_ops_collective {
    size: size_of::<fi_ops_collective>(),
    barrier: Absent::ABSENT,
    broadcast: Absent::ABSENT,
    alltoall: Absent::ABSENT,
    allreduce: Absent::ABSENT,
    allgather: Absent::ABSENT,
    reduce_scatter: Absent::ABSENT,
    reduce: Absent::ABSENT,
    scatter: Absent::ABSENT,
    gather: Absent::ABSENT,
    msg: Absent::ABSENT,
    barrier2: Absent::ABSENT,
};

/// A new object for C.
fn make(core: Arc<Core>, context: *mut c_void, flags: (u64, u64), is_alias: bool) -> *mut fid_ep {
    let made = Box::new(Endpoint {
        fid: fid_ep {
            fid: fid { fclass: FI_CLASS_EP, context, ops: &FID_OPS },
            ops: &OPS,
            cm: &CM_OPS,
            msg: &messages::MSG_OPS,
            rma: &rma::OPS,
            tagged: &messages::TAGGED_OPS,
            atomic: &atomic::OPS,
            collective: &COLLECTIVE_OPS,
        },
        core,
        transmit_flags: AtomicU64::new(flags.0),
        receive_flags: AtomicU64::new(flags.1),
        is_alias,
    });
    Box::into_raw(made).cast()
}

/// A new queue pair, of that number if one is given.
fn allocate(engine: &Engine, number: Option<u16>) -> Outcome<Qpn> {
    let instance = &engine.instance;
    let init = engine.with(|state, _, _| state.messages.qp_init())?;
    let made = match number {
        None => instance.create_qp(init)?,
        Some(number) => instance.create_numbered_qp(init, Qpn(number))?,
    };
    made.map_err(|error| match error {
        DeviceError::Busy(_) => Errno(libc::EADDRINUSE),
        other => other.into(),
    })
}

abi! {
    status fn open(
        domain: *mut fid_domain,
        info: *mut fi_info,
        ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) {
        let domain = Domain::of(domain)?;
        let wanted = readable(info)?;
        if wanted.ep_attr.as_ref().is_some_and(|attr| ![FI_EP_UNSPEC, FI_EP_RDM].contains(&attr.r#type)) {
            return Err(Errno::NO_SYS);
        }
        let source = source_of(info)?;
        let source = source.map(|source| source.at);
        if source.is_some_and(|addr| !addr.ip().is_unspecified() && addr.ip() != domain.shared.ip) {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        let number = source.map(|addr| addr.port()).filter(|&port| port != 0);
        let caps = match wanted.caps {
            0 => capabilities::capabilities(domain.shared.api()) & !capabilities::NAMED,
            caps => caps,
        };
        let (tx, rx) = (wanted.tx_attr.as_ref(), wanted.rx_attr.as_ref());
        let transmit_size = tx.map_or(0, |tx| tx.size.min(capabilities::config().max_outstanding as usize));
        let flags = (tx.map_or(0, |tx| tx.op_flags), rx.map_or(0, |rx| rx.op_flags));
        let binding = Binding {
            reports: Reports {
                regions: domain.shared.region_counts.clone(),
                sources: caps & FI_SOURCE != 0,
                ..Reports::default()
            },
            events: None,
        };
        let (engine, seat) = domain.shared.engines.of_next_endpoint(number)?;
        let core = Arc::new(Core {
            qpn: AtomicU16::new(allocate(&engine, number)?.0),
            identity: random()?,
            // Others find it by the port that the program has chosen.
            well_known: AtomicBool::new(number.is_some()),
            domain: domain.shared.clone(),
            engine,
            _seat: seat,
            id: AtomicU32::new(NOT_ENABLED),
            caps,
            transmit_size: transmit_size as u32,
            min_multi_recv: AtomicU64::new(MIN_MULTI_RECV),
            report_transmits: AtomicBool::new(true),
            report_receives: AtomicBool::new(true),
            vector: OnceLock::new(),
            binding: Mutex::new(binding),
        });
        *writable(ep)? = make(core, context, flags, false);
        Ok(())
    }

    status fn open2(
        domain: *mut fid_domain,
        info: *mut fi_info,
        ep: *mut *mut fid_ep,
        flags: u64,
        context: *mut c_void,
    ) {
        match flags {
            0 => match open(domain, info, ep, context) {
                0 => Ok(()),
                negative => Err(Errno(-negative)),
            },
            _ => Err(Errno::NO_SYS),
        }
    }

    closing fn close(fid: *mut fid) {
        let ep = Endpoint::of(fid.cast())?;
        if !ep.is_alias {
            if ep.core.is_in_use() {
                return Err(Errno::BUSY);
            }
            ep.core.close()?;
        }
        drop(Box::from_raw(fid.cast::<Endpoint>()));
        Ok(())
    }

    status fn bind(fid: *mut fid, other: *mut fid, flags: u64) {
        let core = &Endpoint::of(fid.cast())?.core;
        let kind = readable(other)?.fclass;
        // Counters at any time, as at libfabric's own providers: Sandia OpenSHMEM binds some to an endpoint that it uses.
        if core.is_enabled() && ![FI_CLASS_EQ, FI_CLASS_CNTR].contains(&kind) {
            return Err(BAD_STATE);
        }
        match kind {
            FI_CLASS_CQ => bind_cq(core, Cq::of(other.cast())?, flags),
            FI_CLASS_CNTR => bind_counter(core, Counter::of(other.cast())?, flags),
            FI_CLASS_AV => {
                let av = Av::of(other.cast())?;
                if !Arc::ptr_eq(av.domain(), &core.domain) || core.vector.set(av.vector.clone()).is_err() {
                    return Err(Errno::INVALID);
                }
                av.vector.enter(Arc::downgrade(core));
                Ok(())
            }
            FI_CLASS_EQ => {
                let events = Eq::of(other.cast())?.events.clone();
                core.domain.engines.tell_of_failure(&events);
                core.binding().events = Some(events);
                Ok(())
            }
            _ => Err(Errno::INVALID),
        }
    }

    status fn control(fid: *mut fid, command: c_int, arg: *mut c_void) {
        let ep = Endpoint::of(fid.cast())?;
        match command {
            FI_ENABLE => ep.core.enable(),
            FI_GETOPSFLAG => {
                let flags: &mut u64 = writable(arg.cast())?;
                *flags = operation_flags(ep, *flags)?.load(Ordering::Relaxed);
                Ok(())
            }
            FI_SETOPSFLAG => {
                let flags: &u64 = readable(arg.cast())?;
                let target = operation_flags(ep, *flags & (FI_TRANSMIT | FI_RECV))?;
                target.store(flags & !(FI_TRANSMIT | FI_RECV), Ordering::Relaxed);
                Ok(())
            }
            FI_ALIAS => {
                let alias: &fi_alias = readable(arg.cast())?;
                let mut flags = (
                    ep.transmit_flags.load(Ordering::Relaxed),
                    ep.receive_flags.load(Ordering::Relaxed),
                );
                match alias.flags & (FI_TRANSMIT | FI_RECV) {
                    FI_TRANSMIT => flags.0 = alias.flags & !FI_TRANSMIT,
                    FI_RECV => flags.1 = alias.flags & !FI_RECV,
                    _ => return Err(Errno::INVALID),
                }
                let made = make(ep.core.clone(), ep.fid.fid.context, flags, true);
                *writable(alias.fid)? = made.cast();
                Ok(())
            }
            _ => Err(Errno::NO_SYS),
        }
    }

    /// 0 whether there was such a receive or not: one that has just been matched completes by itself.
    posted fn cancel(fid: *mut fid, context: *mut c_void) {
        let core = &Endpoint::of(fid.cast())?.core;
        core.engine.with(|state, _, _| {
            let id = core.id();
            state.at(id)?.0.cancel(id, context as u64);
            Ok(())
        })?
    }

    status fn getopt(fid: *mut fid, level: c_int, name: c_int, value: *mut c_void, len: *mut usize) {
        let core = &Endpoint::of(fid.cast())?.core;
        if level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV {
            return Err(Errno(libc::ENOPROTOOPT));
        }
        let len = writable(len)?;
        if std::mem::replace(len, size_of::<usize>()) < size_of::<usize>() {
            return Err(TOO_SMALL);
        }
        *writable(value.cast::<usize>())? = core.min_multi_recv.load(Ordering::Relaxed) as usize;
        Ok(())
    }

    status fn setopt(fid: *mut fid, level: c_int, name: c_int, value: *const c_void, len: usize) {
        let core = &Endpoint::of(fid.cast())?.core;
        if level == FI_OPT_ENDPOINT && core.caps & FI_HMEM != 0 {
            match name {
                FI_OPT_FI_HMEM_P2P if len == size_of::<c_int>() => return allow_p2p(*readable(value.cast::<c_int>())?),
                FI_OPT_CUDA_API_PERMITTED if len == size_of::<bool>() => {
                    return allow_driver(*readable(value.cast::<u8>())? != 0);
                }
                _ => {}
            }
        }
        if level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV {
            return Err(Errno(libc::ENOPROTOOPT));
        }
        if len != size_of::<usize>() {
            return Err(Errno::INVALID);
        }
        let bytes = *readable(value.cast::<usize>())? as u64;
        core.min_multi_recv.store(bytes, Ordering::Relaxed);
        if core.is_enabled() {
            core.engine.with(|state, _, _| state.messages.set_min_multi_recv(core.id(), bytes))?;
        }
        Ok(())
    }

    /// Another address for an endpoint that is not enabled yet: the host's own, with another port.
    status fn setname(fid: *mut fid, addr: *mut c_void, len: usize) {
        let core = &Endpoint::of(fid.cast())?.core;
        if core.is_enabled() {
            return Err(BAD_STATE);
        }
        let addr = address::read(addr, len).ok_or(Errno::INVALID)?;
        if addr == core.address() {
            return Ok(());
        }
        let addr = addr.at;
        if addr.ip() != core.domain.ip && !addr.ip().is_unspecified() {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        if addr.port() == 0 {
            return Ok(());
        }
        let now = core.qpn.load(Ordering::Relaxed);
        if addr.port() != now {
            let qpn = allocate(&core.engine, Some(addr.port()))?;
            core.qpn.store(qpn.0, Ordering::Relaxed);
            core.engine.instance.destroy_qp(Qpn(now))??;
        }
        core.well_known.store(true, Ordering::Relaxed);
        Ok(())
    }

    status fn getname(fid: *mut fid, addr: *mut c_void, len: *mut usize) {
        let core = &Endpoint::of(fid.cast())?.core;
        let len = writable(len)?;
        let room = *len;
        address::write(core.address(), addr, len);
        if room < *len { Err(TOO_SMALL) } else { Ok(()) }
    }
}

/// Nothing goes from one accelerator to the other without the processor (fi_endpoint(3), FI_OPT_FI_HMEM_P2P).
fn allow_p2p(wanted: c_int) -> Outcome<()> {
    match wanted {
        FI_HMEM_P2P_REQUIRED => Err(Errno::UNSUPPORTED),
        0..=FI_HMEM_P2P_DISABLED => Ok(()),
        _ => Err(Errno::INVALID),
    }
}

/// Without the driver nothing is copied (fi_endpoint(3), FI_OPT_CUDA_API_PERMITTED); who forbids it goes by way of the host's memory.
fn allow_driver(allowed: bool) -> Outcome<()> {
    if allowed { Ok(()) } else { Err(Errno::UNSUPPORTED) }
}

/// The flags of one direction.
fn operation_flags(ep: &Endpoint, direction: u64) -> Outcome<&AtomicU64> {
    match direction {
        FI_TRANSMIT => Ok(&ep.transmit_flags),
        FI_RECV => Ok(&ep.receive_flags),
        _ => Err(Errno::INVALID),
    }
}

fn bind_cq(core: &Core, cq: &Cq, flags: u64) -> Outcome<()> {
    if flags & !(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION) != 0 {
        return Err(BAD_FLAGS);
    }
    if flags & (FI_TRANSMIT | FI_RECV) == 0 || !Arc::ptr_eq(cq.domain(), &core.domain) {
        return Err(Errno::INVALID);
    }
    let all = flags & FI_SELECTIVE_COMPLETION == 0;
    cq.movers.enter(&core.engine);
    let mut binding = core.binding();
    let reports = &mut binding.reports;
    if flags & FI_TRANSMIT != 0 && reports.transmit.is_some()
        || flags & FI_RECV != 0 && reports.receive.is_some()
    {
        return Err(Errno::INVALID);
    }
    if flags & FI_TRANSMIT != 0 {
        reports.transmit = Some(cq.queue.clone());
        core.report_transmits.store(all, Ordering::Relaxed);
    }
    if flags & FI_RECV != 0 {
        reports.receive = Some(cq.queue.clone());
        core.report_receives.store(all, Ordering::Relaxed);
    }
    Ok(())
}

fn bind_counter(core: &Core, counter: &Counter, flags: u64) -> Outcome<()> {
    const KNOWN: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if flags & !KNOWN != 0 {
        return Err(BAD_FLAGS);
    }
    if flags == 0 || !Arc::ptr_eq(counter.domain(), &core.domain) {
        return Err(Errno::INVALID);
    }
    counter.movers.enter(&core.engine);
    let mut binding = core.binding();
    let counts = &mut binding.reports.counts;
    for (flag, slot) in [
        (FI_SEND, &mut counts.send),
        (FI_RECV, &mut counts.recv),
        (FI_READ, &mut counts.read),
        (FI_WRITE, &mut counts.write),
        (FI_REMOTE_READ, &mut counts.remote_read),
        (FI_REMOTE_WRITE, &mut counts.remote_write),
    ] {
        if flags & flag != 0 {
            *slot = Some(counter.count.clone());
        }
    }
    if !core.is_enabled() {
        return Ok(());
    }
    let counts = counts.clone();
    core.engine.with(|state, _, _| {
        let id = core.id();
        core.count_peers(state, id, &counts);
        state.at(id)?.1.reports.counts = counts;
        Ok(())
    })?
}
