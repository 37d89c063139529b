//! Endpoints (fi_endpoint(3)): when they begin and end, whom they know, and how something is posted to them. What that is, is in
//! [`crate::messages`], [`crate::rma`] and [`crate::atomic`], and the other calls in [`crate::endpoint_calls`].

use crate::address::{self, Address};
use crate::av::Vector;
use crate::boundary::{Errno, Outcome, object, refused};
use crate::completions::{Counts, Reports};
use crate::constants::*;
use crate::domain::Shared;
use crate::engine::Engine;
use crate::eq::Events;
use crate::layout::*;
use crate::shm_peers::{Layer, Messages, ShmPeers};
use crate::state::{Bound, State};
use libc::c_void;
use srd_device::{Device, HostMemory};
use srd_msg::{EndpointId, Identity, Level, PeerAddr, PeerId, Recv, Refused, TxFlags};
use srd_net::Seat;
use srd_net::log;
use srd_wire::{Qpn, Time};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

#[repr(C)]
pub(crate) struct Endpoint {
    pub fid: fid_ep,
    pub core: Arc<Core>,
    /// Flags of operations that are posted without: fi_endpoint(3), "op_flags".
    pub transmit_flags: AtomicU64,
    pub receive_flags: AtomicU64,
    /// Made by fi_ep_alias(3).
    pub is_alias: bool,
}

/// What an endpoint and its aliases share.
pub(crate) struct Core {
    pub domain: Arc<Shared>,
    /// Who carries what it does, for as long as it is there.
    pub engine: Arc<Engine>,
    pub _seat: Seat,
    /// Its number for the messaging layer; [`NOT_ENABLED`] before it is enabled.
    pub id: AtomicU32,
    /// Its queue pair: the port of its address.
    pub qpn: AtomicU16,
    /// Who it is: its key, unless the program has chosen the port.
    pub identity: NonZeroU32,
    pub well_known: AtomicBool,
    pub caps: u64,
    pub transmit_size: u32,
    pub min_multi_recv: AtomicU64,
    /// Every completion is reported, unless the queue was bound with FI_SELECTIVE_COMPLETION.
    pub report_transmits: AtomicBool,
    pub report_receives: AtomicBool,
    pub vector: OnceLock<Arc<Vector>>,
    pub binding: Mutex<Binding>,
}

/// What an endpoint is bound to.
#[derive(Default)]
pub(crate) struct Binding {
    pub reports: Reports,
    /// Nothing is reported there, but it is in use.
    pub events: Option<Arc<Events>>,
}

pub(crate) const NOT_ENABLED: u32 = u32::MAX;

impl Core {
    pub fn binding(&self) -> MutexGuard<'_, Binding> {
        self.binding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub fn id(&self) -> EndpointId {
        EndpointId(self.id.load(Ordering::Relaxed))
    }

    pub fn is_enabled(&self) -> bool {
        self.id().0 != NOT_ENABLED
    }

    /// Its address.
    pub fn address(&self) -> Address {
        let at = SocketAddr::new(self.domain.ip, self.qpn.load(Ordering::Relaxed));
        Address { at: address::scoped(at, self.domain.scope), key: self.identity().key() }
    }

    fn identity(&self) -> Identity {
        Identity { number: self.identity, well_known: self.well_known.load(Ordering::Relaxed) }
    }

    pub fn enable(self: &Arc<Core>) -> Outcome<()> {
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
        self.engine.with(|state, device, now| {
            let qpn = Qpn(self.qpn.load(Ordering::Relaxed));
            let id = state
                .messages
                .open_endpoint(device, now, qpn, self.identity(), self.transmit_size)
                .map_err(refused)?;
            if self.caps & FI_REMOTE_WRITE == 0 {
                state.messages.refuse_notices(id);
            }
            self.count_peers(state, id, &reports.counts);
            state.messages.set_min_multi_recv(id, self.min_multi_recv.load(Ordering::Relaxed));
            let shm = match self.domain.shm {
                true => ShmPeers::open(id, device.gid(), qpn, device.config().port_base, self.identity()),
                false => Err("SRD_SHM=off in this process".into()),
            };
            if let Ok(shm) = &shm {
                state.messages.set_loans(id, Box::new((**shm.loans()).clone()));
                self.domain.engines.tell_of_failure(shm.loans());
                self.engine.uses_shm();
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

    /// What peers do without telling is counted where the program has asked for that.
    pub fn count_peers(&self, state: &mut State, id: EndpointId, counts: &Counts) {
        if self.caps & FI_RMA_EVENT != 0 {
            state.messages.count_at(id, counts.of_peers());
        }
    }

    /// A peer has come to the address vector. Who wants to know sources must know its label from now on; others meet it when
    /// they send.
    pub fn introduce(&self, index: u64) -> Outcome<()> {
        if self.caps & FI_SOURCE == 0 || !self.is_enabled() {
            return Ok(());
        }
        self.engine.with(|state, device, now| {
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
        self.engine.with(|state, _, _| {
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

    pub fn close(&self) -> Outcome<()> {
        let qpn = Qpn(self.qpn.load(Ordering::Relaxed));
        let engine = &self.engine;
        match self.is_enabled() {
            true => engine.close_endpoint(self.id(), qpn)?,
            false => engine.given_back(engine.instance.destroy_qp(qpn))?,
        }
        // What it was bound to may be closed now, though another thread may still be telling it of an address.
        *self.binding() = Binding::default();
        Ok(())
    }

    pub fn is_in_use(self: &Arc<Core>) -> bool {
        match self.vector.get() {
            Some(vector) => vector.is_in_use(self),
            None => Arc::strong_count(self) > 1,
        }
    }
}

impl Endpoint {
    /// A descriptor of the program's, which is of interest only where memory may be an accelerator's: others pass what they like
    /// (fi_mr(3), FI_MR_LOCAL).
    #[inline]
    pub fn desc(&self, desc: *mut c_void) -> *mut c_void {
        if self.core.caps & FI_HMEM == 0 { null_mut() } else { desc }
    }

    /// The same for a list of them.
    #[inline]
    pub fn descs(&self, descs: *mut *mut c_void) -> *mut *mut c_void {
        if self.core.caps & FI_HMEM == 0 { null_mut() } else { descs }
    }

    /// # Safety
    /// The pointer is NULL or points to a live endpoint of ours.
    #[inline]
    pub unsafe fn of<'a>(pointer: *mut fid_ep) -> Outcome<&'a Endpoint> {
        // SAFETY: as the caller says; `fid` is the first field.
        unsafe { object(pointer) }
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
        let posted = core.engine.ask(|state, device, now| {
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
            core.engine.progress()?;
        }
        posted
    }

    /// One poll, as a read of a completion queue makes.
    pub fn progress(&self) -> Outcome<()> {
        self.core.engine.progress()
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
        if self.is_directed(from) {
            return self
                .post(from, |messages, device, now, id, peer| f(messages, device, now, id, Some(peer)));
        }
        let core = &*self.core;
        core.engine.ask(|state, device, now| {
            let id = core.id();
            let (messages, _) = state.at(id)?;
            f(messages, device, now, id, None).map_err(refused)
        })?
    }

    /// Posts a receive.
    #[inline]
    pub fn post_recv(&self, from: fi_addr_t, recv: &mut Recv<'_>) -> Outcome<()> {
        let core = &*self.core;
        if !self.is_directed(from)
            && core.engine.note(|state| state.messages.recv_later(core.id(), recv))? == Ok(true)
        {
            return Ok(());
        }
        self.post_recv_now(from, recv)
    }

    /// The same where more than its waiting may follow.
    #[inline(never)]
    fn post_recv_now(&self, from: fi_addr_t, recv: &mut Recv<'_>) -> Outcome<()> {
        self.post_receive(from, |messages, device, now, id, from| {
            recv.from = from;
            messages.recv(device, now, id, recv)
        })
    }

    /// Whether a receive is to take messages of that peer only.
    #[inline]
    fn is_directed(&self, from: fi_addr_t) -> bool {
        from != FI_ADDR_UNSPEC && self.core.caps & (FI_DIRECTED_RECV | FI_TAGGED_DIRECTED_RECV) != 0
    }
}

/// When an operation completes. Delivery is no more than transmission: nothing is acknowledged before its endpoint has it, and that
/// may keep it until it is asked for (fi_cq(3)).
#[inline]
fn level(flags: u64) -> Level {
    if flags & FI_MATCH_COMPLETE != 0 {
        Level::Match
    } else if flags & (FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE | FI_INJECT_COMPLETE) == FI_INJECT_COMPLETE
    {
        Level::Inject
    } else {
        Level::Transmit
    }
}
