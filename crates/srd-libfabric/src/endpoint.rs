//! Endpoints (fi_endpoint(3)): what they are bound to, when they begin and end, how they are called, their options. What is
//! posted to them is in [`crate::messages`], [`crate::rma`] and [`crate::atomic`].

use crate::address::{self, Address};
use crate::av::{Av, Vector};
use crate::boundary::{Absent, Errno, Outcome, abi, object, readable, refused, writable};
use crate::completions::Reports;
use crate::constants::*;
use crate::counter::Counter;
use crate::cq::Cq;
use crate::domain::{Domain, Shared};
use crate::engine::{Bound, Messages};
use crate::eq::{Eq, Events};
use crate::getinfo::source_of;
use crate::layout::*;
use crate::shm_peers::{Layer, ShmPeers};
use crate::{atomic, capabilities, messages, rma};
use libc::{c_int, c_void};
use srd_device::{Device, DeviceError, HostMemory};
use srd_msg::{EndpointId, Identity, Level, PeerAddr, PeerId, Refused, TxFlags};
use srd_net::log;
use srd_wire::{Qpn, Time};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

#[repr(C)]
pub(crate) struct Endpoint {
    fid: fid_ep,
    pub core: Arc<Core>,
    /// Flags of operations that are posted without: fi_endpoint(3), "op_flags".
    transmit_flags: AtomicU64,
    receive_flags: AtomicU64,
    /// Made by fi_ep_alias(3).
    is_alias: bool,
}

/// What an endpoint and its aliases share.
pub(crate) struct Core {
    pub domain: Arc<Shared>,
    /// Its number for the messaging layer; [`NOT_ENABLED`] before it is enabled.
    id: AtomicU32,
    /// Its queue pair: the port of its address.
    qpn: AtomicU16,
    /// Who it is: its key, unless the program has chosen the port.
    identity: NonZeroU32,
    well_known: AtomicBool,
    caps: u64,
    transmit_size: u32,
    min_multi_recv: AtomicU64,
    /// Every completion is reported, unless the queue was bound with FI_SELECTIVE_COMPLETION.
    report_transmits: AtomicBool,
    report_receives: AtomicBool,
    vector: OnceLock<Arc<Vector>>,
    binding: Mutex<Binding>,
}

#[derive(Default)]
struct Binding {
    reports: Reports,
    /// Nothing is reported there, but it is in use.
    events: Option<Arc<Events>>,
}

const NOT_ENABLED: u32 = u32::MAX;

/// FI_OPT_MIN_MULTI_RECV before the program sets it, as in libfabric's software providers.
const MIN_MULTI_RECV: u64 = 64;

impl Core {
    fn binding(&self) -> MutexGuard<'_, Binding> {
        self.binding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn id(&self) -> EndpointId {
        EndpointId(self.id.load(Ordering::Relaxed))
    }

    fn is_enabled(&self) -> bool {
        self.id().0 != NOT_ENABLED
    }

    /// Its address.
    fn address(&self) -> Address {
        let at = SocketAddr::new(self.domain.ip(), self.qpn.load(Ordering::Relaxed));
        Address { at: address::scoped(at, self.domain.scope()), key: self.identity().key() }
    }

    fn identity(&self) -> Identity {
        Identity { number: self.identity, well_known: self.well_known.load(Ordering::Relaxed) }
    }

    fn allocate(domain: &Shared, number: Option<u16>) -> Outcome<Qpn> {
        let instance = &domain.engine.instance;
        let init = domain.engine.with(|state, _, _| state.messages.qp_init())?;
        let made = match number {
            None => instance.create_qp(init)?,
            Some(number) => instance.create_numbered_qp(init, Qpn(number))?,
        };
        made.map_err(|error| match error {
            DeviceError::Busy(_) => Errno(libc::EADDRINUSE),
            other => other.into(),
        })
    }

    fn enable(self: &Arc<Core>) -> Outcome<()> {
        if self.is_enabled() {
            return Ok(());
        }
        let vector = self.vector.get().ok_or(Errno(FI_ENOAV))?;
        let reports = self.binding().reports.clone();
        let counts = &reports.counts;
        let transmits = self.caps & (FI_SEND | FI_READ | FI_WRITE) != 0;
        let counted = counts.send.is_some() || counts.read.is_some() || counts.write.is_some();
        if transmits && reports.transmit.is_none() && !counted
            || self.caps & FI_RECV != 0 && reports.receive.is_none() && counts.recv.is_none()
        {
            return Err(Errno(FI_ENOCQ));
        }
        let sources = reports.sources;
        self.domain.engine.with(|state, device, now| {
            let qpn = Qpn(self.qpn.load(Ordering::Relaxed));
            let id = state
                .messages
                .open_endpoint(device, now, qpn, self.identity(), self.transmit_size)
                .map_err(refused)?;
            state.messages.set_min_multi_recv(id, self.min_multi_recv.load(Ordering::Relaxed));
            let shm = match self.domain.shm {
                true => ShmPeers::open(id, device.gid(), qpn, device.config().port_base, self.identity()),
                false => Err("SRD_SHM=off in this process".into()),
            };
            if let Ok(shm) = &shm {
                state.messages.set_loans(id, Box::new((**shm.loans()).clone()));
                self.domain.engine.tell_of_failure(shm.loans());
                self.domain.engine.uses_shm();
            }
            state.enter(id, Bound { qpn, peers: Vec::new(), shm, reports });
            self.id.store(id.0, Ordering::Release);
            Ok::<_, Errno>(())
        })??;
        if sources {
            for index in vector.indices() {
                self.introduce(index)?;
            }
        }
        log::debug(format_args!("endpoint {} is enabled", self.address().at));
        Ok(())
    }

    /// A peer has come to the address vector. Who wants to know sources must know its label from now on; others meet it when
    /// they send.
    pub fn introduce(&self, index: u64) -> Outcome<()> {
        if self.caps & FI_SOURCE == 0 || !self.is_enabled() {
            return Ok(());
        }
        self.domain.engine.with(|state, device, now| {
            let id = self.id();
            let Ok((messages, bound)) = state.at(id) else { return Ok(()) }; // it is being closed
            match self.meet(messages, bound, device, now, id, index) {
                // Another thread has removed it.
                Err(_) if self.vector.get().is_none_or(|vector| vector.get(index).is_none()) => Ok(()),
                met => met.map(|_| ()),
            }
        })?
    }

    /// A peer has gone from the address vector.
    pub fn forget(&self, index: u64) -> Outcome<()> {
        if !self.is_enabled() {
            return Ok(());
        }
        self.domain.engine.with(|state, _, _| {
            let id = self.id();
            let Ok((messages, bound)) = state.at(id) else { return }; // as above
            if let Some(peer) = bound.peers.get_mut(index as usize).and_then(Option::take) {
                messages.forget_peer(id, peer);
            }
        })
    }

    #[cold]
    fn meet(
        &self,
        messages: &mut Messages,
        bound: &mut Bound,
        device: &mut Device<HostMemory>,
        now: Time,
        id: EndpointId,
        index: u64,
    ) -> Outcome<PeerId> {
        let addr: PeerAddr = self.vector.get().and_then(|vector| vector.get(index)).ok_or(Errno::INVALID)?;
        let peer = messages.peer(device, id, addr).map_err(refused)?;
        messages.set_label(id, peer, index);
        if let Ok(shm) = &mut bound.shm {
            shm.meet(&mut Layer { messages, device, now }, peer, addr);
        }
        if bound.peers.len() <= index as usize {
            bound.peers.resize(index as usize + 1, None);
        }
        bound.peers[index as usize] = Some(peer);
        Ok(peer)
    }

    fn close(&self) -> Outcome<()> {
        let qpn = Qpn(self.qpn.load(Ordering::Relaxed));
        let engine = &self.domain.engine;
        match self.is_enabled() {
            true => engine.close_endpoint(self.id(), qpn)?,
            false => engine.given_back(engine.instance.destroy_qp(qpn))?,
        }
        // What it was bound to may be closed now, though another thread may still be telling it of an address.
        *self.binding() = Binding::default();
        Ok(())
    }

    fn is_in_use(self: &Arc<Core>) -> bool {
        match self.vector.get() {
            Some(vector) => vector.is_in_use(self),
            None => Arc::strong_count(self) > 1,
        }
    }
}

/// A number that nobody can guess.
fn random() -> Outcome<NonZeroU32> {
    loop {
        let mut bytes = [0; 4];
        // SAFETY: room for four bytes.
        if unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } != 4 {
            return Err(Errno::IO);
        }
        if let Some(number) = NonZeroU32::new(u32::from_ne_bytes(bytes)) {
            return Ok(number);
        }
    }
}

impl Endpoint {
    /// # Safety
    /// The pointer is NULL or points to a live endpoint of ours.
    #[inline]
    pub unsafe fn of<'a>(pointer: *mut fid_ep) -> Outcome<&'a Endpoint> {
        // SAFETY: as the caller says; `fid` is the first field.
        unsafe { object(pointer) }
    }

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

    /// How an operation that was posted without flags is carried out.
    #[inline]
    pub fn default_transmit(&self) -> TxFlags {
        self.transmit(self.transmit_flags.load(Ordering::Relaxed))
    }

    /// How an operation that was posted with flags is carried out: they stand instead of the endpoint's.
    #[inline]
    pub fn transmit(&self, flags: u64) -> TxFlags {
        TxFlags {
            inject: flags & FI_INJECT != 0,
            level: level(flags),
            report: flags & FI_COMPLETION != 0 || self.core.report_transmits.load(Ordering::Relaxed),
            fence: flags & FI_FENCE != 0,
        }
    }

    /// The endpoint's flags for receives, and whether they are reported.
    #[inline]
    pub fn default_receive(&self) -> (u64, bool) {
        let flags = self.receive_flags.load(Ordering::Relaxed);
        (flags, self.reports_receive(flags))
    }

    /// Whether a receive that was posted with flags is reported.
    #[inline]
    pub fn reports_receive(&self, flags: u64) -> bool {
        flags & FI_COMPLETION != 0 || self.core.report_receives.load(Ordering::Relaxed)
    }

    /// Posts something to a peer.
    #[inline]
    pub fn post(
        &self,
        to: fi_addr_t,
        f: impl FnOnce(&mut Messages, &mut Device<HostMemory>, Time, EndpointId, PeerId) -> Result<(), Refused>,
    ) -> Outcome<()> {
        let core = &*self.core;
        let posted = core.domain.engine.with(|state, device, now| {
            let id = core.id();
            let (messages, bound) = state.at(id)?;
            let peer = match bound.peers.get(to as usize) {
                Some(&Some(peer)) => peer,
                _ => core.meet(messages, bound, device, now, id, to)?,
            };
            f(messages, device, now, id, peer).map_err(refused)
        })?;
        if posted == Err(Errno::AGAIN) {
            // A program that only posts again and again would wait for ever for what only a round can bring.
            core.domain.engine.progress()?;
        }
        posted
    }

    /// One poll, as a read of a completion queue makes.
    pub fn progress(&self) -> Outcome<()> {
        self.core.domain.engine.progress()
    }

    /// Posts something for which a peer is named or not.
    #[inline]
    pub fn post_receive(
        &self,
        from: fi_addr_t,
        f: impl FnOnce(
            &mut Messages,
            &mut Device<HostMemory>,
            Time,
            EndpointId,
            Option<PeerId>,
        ) -> Result<(), Refused>,
    ) -> Outcome<()> {
        let core = &*self.core;
        const DIRECTED: u64 = FI_DIRECTED_RECV | FI_TAGGED_DIRECTED_RECV;
        if from != FI_ADDR_UNSPEC && core.caps & DIRECTED != 0 {
            return self
                .post(from, |messages, device, now, id, peer| f(messages, device, now, id, Some(peer)));
        }
        core.domain.engine.with(|state, device, now| {
            let id = core.id();
            let (messages, _) = state.at(id)?;
            f(messages, device, now, id, None).map_err(refused)
        })?
    }
}

/// When an operation completes.
#[inline]
fn level(flags: u64) -> Level {
    if flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE) != 0 {
        Level::Delivery
    } else if flags & (FI_TRANSMIT_COMPLETE | FI_INJECT_COMPLETE) == FI_INJECT_COMPLETE {
        Level::Inject
    } else {
        Level::Transmit
    }
}

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
        if source.is_some_and(|addr| !addr.ip().is_unspecified() && addr.ip() != domain.ip()) {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        let number = source.map(|addr| addr.port()).filter(|&port| port != 0);
        let caps = if wanted.caps == 0 { capabilities::capabilities(domain.shared.api()) } else { wanted.caps };
        let (tx, rx) = (wanted.tx_attr.as_ref(), wanted.rx_attr.as_ref());
        let transmit_size = tx.map_or(0, |tx| tx.size.min(capabilities::config().max_outstanding as usize));
        let flags = (tx.map_or(0, |tx| tx.op_flags), rx.map_or(0, |rx| rx.op_flags));
        let binding = Binding {
            reports: Reports { sources: caps & FI_SOURCE != 0, ..Reports::default() },
            events: None,
        };
        let core = Arc::new(Core {
            qpn: AtomicU16::new(Core::allocate(&domain.shared, number)?.0),
            identity: random()?,
            // Others find it by the port that the program has chosen.
            well_known: AtomicBool::new(number.is_some()),
            domain: domain.shared.clone(),
            id: AtomicU32::new(NOT_ENABLED),
            caps,
            transmit_size: transmit_size as u32,
            min_multi_recv: AtomicU64::new(MIN_MULTI_RECV),
            report_transmits: AtomicBool::new(true),
            report_receives: AtomicBool::new(true),
            vector: OnceLock::new(),
            binding: Mutex::new(binding),
        });
        *writable(ep)? = Endpoint::make(core, context, flags, false);
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
        if core.is_enabled() && kind != FI_CLASS_EQ {
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
                core.domain.engine.tell_of_failure(&events);
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
                *flags = ep.operation_flags(*flags)?.load(Ordering::Relaxed);
                Ok(())
            }
            FI_SETOPSFLAG => {
                let flags: &u64 = readable(arg.cast())?;
                let target = ep.operation_flags(*flags & (FI_TRANSMIT | FI_RECV))?;
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
                let made = Endpoint::make(ep.core.clone(), ep.fid.fid.context, flags, true);
                *writable(alias.fid)? = made.cast();
                Ok(())
            }
            _ => Err(Errno::NO_SYS),
        }
    }

    /// 0 whether there was such a receive or not: one that has just been matched completes by itself.
    posted fn cancel(fid: *mut fid, context: *mut c_void) {
        let core = &Endpoint::of(fid.cast())?.core;
        core.domain.engine.with(|state, _, _| {
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
        if level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV {
            return Err(Errno(libc::ENOPROTOOPT));
        }
        if len != size_of::<usize>() {
            return Err(Errno::INVALID);
        }
        let bytes = *readable(value.cast::<usize>())? as u64;
        core.min_multi_recv.store(bytes, Ordering::Relaxed);
        if core.is_enabled() {
            core.domain.engine.with(|state, _, _| state.messages.set_min_multi_recv(core.id(), bytes))?;
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
        if addr.ip() != core.domain.ip() && !addr.ip().is_unspecified() {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        if addr.port() == 0 {
            return Ok(());
        }
        let now = core.qpn.load(Ordering::Relaxed);
        if addr.port() != now {
            let qpn = Core::allocate(&core.domain, Some(addr.port()))?;
            core.qpn.store(qpn.0, Ordering::Relaxed);
            core.domain.engine.instance.destroy_qp(Qpn(now))??;
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

impl Endpoint {
    /// The flags of one direction.
    fn operation_flags(&self, direction: u64) -> Outcome<&AtomicU64> {
        match direction {
            FI_TRANSMIT => Ok(&self.transmit_flags),
            FI_RECV => Ok(&self.receive_flags),
            _ => Err(Errno::INVALID),
        }
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
    let mut binding = core.binding();
    let counts = &mut binding.reports.counts;
    for (flag, slot) in [
        (FI_SEND, &mut counts.send),
        (FI_RECV, &mut counts.recv),
        (FI_READ, &mut counts.read),
        (FI_WRITE, &mut counts.write),
        // What peers do without telling is counted where FI_RMA_EVENT is offered, which is not here.
        (FI_REMOTE_WRITE, &mut counts.remote_write),
    ] {
        if flags & flag != 0 {
            *slot = Some(counter.count.clone());
        }
    }
    Ok(())
}
