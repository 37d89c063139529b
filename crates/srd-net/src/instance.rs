//! A running device: the lock around it, the sockets below it, and the ways in which a program drives it.

use crate::address::LocalAddress;
use crate::beside::Locked;
use crate::clock;
use crate::core::Core;
use crate::core_lock::Held;
use crate::counting;
use crate::hints;
use crate::host;
use crate::key_file;
use crate::last_panic;
use crate::link_senders::LinkSenders;
use crate::log;
use crate::notify::Subscription;
use crate::open::{
    OpenError, bind, find_address, find_fabric, is_taken, make_device, open_ring, open_transmitter,
    take_slot, warn_about_buffer,
};
use crate::options::{LogLevel, Options, ProgressMode};
use crate::progress::policy;
use crate::progress_thread::{self, LONGEST_DRAIN, LONGEST_SILENCE};
use crate::receive::Receiver;
use crate::shared::{Look, Shared, Unavailable, register_for_exit};
use crate::stats::{LayerStats, Stats};
use crate::stats_socket::StatsSocket;
use crate::sys::udp::ReceiveSocket;
use srd_device::{
    AsyncEvent, Begun, Completion, Counters, CqId, DeviceEnd, DeviceError, QPS_PER_PORT, QpInit,
};
use srd_wire::{Gid, InstanceAddr, Nanos, Qpn, Time};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A device that runs over UDP sockets of this process. Its methods may be called from any thread.
///
/// Dropping it ends it, after a few milliseconds in which peers can still learn what has arrived.
pub struct Instance {
    shared: Arc<Shared>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// How a wait has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// What was waited for is there.
    Ready,
    /// The time is over.
    TimedOut,
    /// A signal's handler has run.
    Signalled,
}

/// The instances that [`Instance::open`] shares.
static SHARED: Mutex<Vec<(Place, Weak<Instance>)>> = Mutex::new(Vec::new());

/// A local address, and a number among the process's instances there.
type Place = (IpAddr, u16);

/// Whether a call may have left the device with something to do, to tell or to wait for that it did not have before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touched(pub bool);

impl Instance {
    /// The process's instance at the local address that `options` choose: opened if there is none, shared if there
    /// is one (whose options then stay as they are). It ends when the last reference goes.
    ///
    /// Memory that is registered with the device must be there, as [`srd_device::HostMemory::new`] asks for, until it
    /// is deregistered; [`crate::Buffer`] is memory that is.
    pub fn open(options: &Options) -> Result<Arc<Instance>, OpenError> {
        Instance::open_numbered(options, 0)
    }

    /// The same for one of several instances of the process at that address, which are numbered from 0. They have nothing in
    /// common: each has its ports, its lock and its thread.
    pub fn open_numbered(options: &Options, number: u16) -> Result<Arc<Instance>, OpenError> {
        let local = find_address(options)?;
        let place = (local.ip, number);
        let mut instances = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        instances.retain(|(_, instance)| instance.strong_count() > 0);
        let known = instances.iter().find(|(known, instance)| {
            *known == place && instance.upgrade().is_some_and(|instance| instance.shared.canary.alive())
        });
        let mut options = options.clone();
        if let Some(instance) = known.and_then(|(_, instance)| instance.upgrade()) {
            let reset = || instance.shared.ended_on_purpose() == Some(DeviceEnd::Reset);
            if !instance.has_failed() {
                return Ok(instance);
            }
            if !reset() {
                return Err(OpenError::new(
                    format!("the device of this process at {} has failed", local.ip),
                    None,
                    "start the process again, and report what it said on standard error",
                ));
            }
            options.fault.iter_mut().for_each(|plan| plan.staged.after_reset());
            instances.retain(|(known, _)| *known != place);
        }
        let instance = Instance::open_at(&options, local, number)?;
        instances.push((place, Arc::downgrade(&instance)));
        Ok(instance)
    }

    /// Which of the process's instances at an address has the numbers of a queue pair's port.
    pub fn number_of_owner(ip: IpAddr, port_base: u16, queue_pair: Qpn) -> Option<u16> {
        let port = port_base.wrapping_add(queue_pair.0 / QPS_PER_PORT);
        let instances = SHARED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let here = instances.into_iter().filter(|((at, _), _)| *at == ip);
        let owner = here.filter_map(|((_, number), instance)| Some((number, instance.upgrade()?))).find(
            |(_, instance)| {
                instance.shared.lock().is_ok_and(|core| core.receiver.ports().any(|own| own == port))
            },
        );
        owner.map(|(number, _)| number)
    }

    /// An instance that is shared with nobody, for programs that play several hosts.
    pub fn open_separate(options: &Options) -> Result<Arc<Instance>, OpenError> {
        Instance::open_at(options, find_address(options)?, 0)
    }

    fn open_at(options: &Options, local: LocalAddress, number: u16) -> Result<Arc<Instance>, OpenError> {
        log::set_level(options.log);
        last_panic::remember();
        let psk = options.key_file.as_deref().map(key_file::read).transpose()?;
        let fabric = find_fabric()?;
        let (port, socket) = match fabric {
            Some(fabric) => (fabric.place.port, None),
            None => {
                let (port, socket) = take_slot(&local, options.port_base, options.rcvbuf)?;
                warn_about_buffer(&socket, options.rcvbuf);
                (port, Some(socket))
            }
        };
        let rcvbuf = socket.as_ref().map_or(0, ReceiveSocket::rcvbuf);
        let mut transport = match fabric {
            Some(fabric) => {
                let datagram = host::max_datagram(fabric.place.mtu, false, psk.is_some());
                fabric.transport_config(options, datagram)
            }
            None => host::transport_config(options, &local, rcvbuf),
        };
        let mut transmitter = open_transmitter(options, &local, fabric, &mut transport)?;
        let ring = match fabric {
            Some(_) => None,
            None => open_ring(options, &local, port - options.port_base, &mut transmitter),
        };
        let by_ring = ring.as_ref().map_or_else(String::new, |ring| format!(", short packets by {ring}"));
        let address = InstanceAddr { gid: Gid::from(local.ip), port };
        let (device, keyring) = make_device(options, address, transport, psk)?;
        let sealed = keyring.is_some();
        if !sealed {
            hints::in_clear(local.ip);
        }
        let may_defer = options.progress != ProgressMode::Inline && fabric.is_none();
        let link_senders = match fabric {
            Some(_) => None,
            None => LinkSenders::open(&local, device.config().transport.base_rtt),
        };
        let receiver = Receiver::new(local.ip, ring, fabric);
        let mut core = Core::new(device, transmitter, receiver, keyring, link_senders, may_defer);
        if let Some(plan) = &options.fault {
            core.panic_after = [plan.panic_call, plan.panic_thread];
        }
        let shared = Arc::new(Shared::new(options, number, local, address, sealed, core, socket)?);
        let weak = Arc::downgrade(&shared);
        shared.core.on_failure(move || {
            if let Some(shared) = weak.upgrade() {
                shared.device_failed();
            }
        });
        register_for_exit(&shared);
        let thread = match options.progress {
            ProgressMode::Inline => None,
            ProgressMode::Auto | ProgressMode::Thread => {
                Some(progress_thread::start(shared.clone()).map_err(|e| {
                    OpenError::new(
                        "cannot start the progress thread",
                        Some(e),
                        "raise `ulimit -u`, or set SRD_PROGRESS=inline",
                    )
                })?)
            }
        };
        if options.top
            && let Some(socket) = StatsSocket::open(&shared)
        {
            let _ = shared.stats_socket.set(socket); // the only one
        }
        log::say(
            LogLevel::Info,
            format_args!(
                "receiving on {address} ({}, MTU {}, receive buffer {} KiB, {}{})",
                shared.local.interface,
                shared.mtu,
                rcvbuf / 1024,
                if sealed { "sealed" } else { "in clear" },
                by_ring,
            ),
        );
        Ok(Arc::new(Instance { shared, thread: Mutex::new(thread) }))
    }

    /// Runs `f` on the device. Afterwards transmits what is due, or, while the program polls all the time, leaves it
    /// for the next poll to be joined with more.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut Locked<'_>, Time) -> R) -> Result<R, Unavailable> {
        Ok(self.run(self.shared.lock()?, f))
    }

    /// Whether this process is a fork of the one that opened it.
    #[inline]
    pub fn is_parents(&self) -> bool {
        !self.shared.canary.alive()
    }

    /// Whether there was a panic inside the device. From then on no function runs that was given to this instance.
    pub fn has_failed(&self) -> bool {
        self.shared.core.is_over()
    }

    /// Of a device that has failed: lets a layer above get at what it has put [`crate::Beside`] it. The device itself is not to
    /// be used any more.
    #[cold]
    pub fn with_failed(&self, f: impl FnOnce(&mut Locked<'_>)) {
        self.shared.core.with_failed(|core| f(&mut Locked::new(&mut core.device)));
    }

    /// There was a panic in a layer above, in a call of the program: nobody knows what it has left half done. All devices of
    /// this process that [`Instance::open`] gives out fail.
    #[cold]
    pub fn fail_all() {
        // A thread that opens an instance has the lock, and may be the one that calls; the instances are not open then.
        let Ok(instances) = SHARED.try_lock() else { return };
        let open: Vec<_> = instances.iter().filter_map(|(_, instance)| instance.upgrade()).collect();
        drop(instances);
        for instance in open.iter().filter(|instance| instance.shared.canary.alive()) {
            instance.shared.core.fail();
        }
    }

    /// Whether another thread calls the device at this moment. If so, who asks counts as calling it, too: where the progress thread is the
    /// other one, that is to leave packets to the program.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.shared.core.is_held_by_another() && self.shared.is_called_beside()
    }

    /// Whether a poll may leave the sockets to others: it is one of so many threads' that each waits for a core, and one of them
    /// has looked just now. Where that is so, who finds nothing calls [`Instance::give_way`].
    #[inline]
    pub fn others_look(&self) -> bool {
        let shared = &*self.shared;
        shared.contention.is_crowd() && shared.others_look(clock::now())
    }

    /// A poll that did not look at the sockets has found nothing: whether other threads poll, too.
    #[inline]
    pub fn in_company(&self) -> bool {
        self.shared.contention.in_company()
    }

    /// Lets another thread have the core.
    pub fn give_way(&self) {
        self.shared.contention.give_way();
    }

    /// As [`Instance::with`] for a layer above that does most of what it does without the device. `f` also answers whether it has
    /// [`Touched`] the device. If not, what is due is what was due before, and there is nothing to transmit and nobody to be told.
    #[inline(always)]
    pub fn with_layer<R>(
        &self,
        f: impl FnOnce(&mut Locked<'_>, Time) -> (R, Touched),
    ) -> Result<R, Unavailable> {
        // Not `lock_to_poll`: that takes the guard through memory.
        let core = match self.shared.lock_if_free() {
            Some(core) => core,
            None => self.shared.lock_waiting()?,
        };
        Ok(self.run_layer(core, f))
    }

    /// The same for what has nothing to do with the device, and needs no time.
    #[inline(always)]
    pub fn with_layer_alone<R>(&self, f: impl FnOnce(&mut Locked<'_>) -> R) -> Result<R, Unavailable> {
        let mut core = match self.shared.lock_if_free() {
            Some(core) => core,
            None => self.shared.lock_waiting()?,
        };
        let result = f(&mut Locked::new(&mut core.device));
        match self.shared.fabric {
            None => core.release(),
            Some(_) => self.leave_fabric(core),
        }
        Ok(result)
    }

    /// A simulated network is told of the end of each call: until then time does not go on.
    #[cold]
    fn leave_fabric(&self, core: Held<'_>) {
        let now = clock::now();
        self.shared.poll_activity.called(now);
        self.end_call(core, now, true);
    }

    #[inline(always)]
    fn run_layer<R>(&self, mut core: Held<'_>, f: impl FnOnce(&mut Locked<'_>, Time) -> (R, Touched)) -> R {
        let shared = &*self.shared;
        let now = clock::now();
        let (result, Touched(touched)) = f(&mut Locked::new(&mut core.device), now);
        let busy = shared.poll_activity.calls_now(now);
        shared.poll_activity.called(now);
        // Calls of a program that has not called for long see to it that somebody looks after what is due.
        if touched || !busy || core.is_owed_a_look() || shared.fabric.is_some() {
            self.end_call(core, now, busy);
        } else {
            core.release();
        }
        result
    }

    #[inline(never)]
    fn end_call(&self, mut core: Held<'_>, now: Time, busy: bool) {
        core.after_call(now, busy, self.shared.contention.is_crowd());
        self.shared.leave(core, now, busy);
    }

    /// As [`Instance::with_layer`] if `wanted` says so under the same lock; otherwise the call is as if it had not been.
    #[inline(always)]
    pub fn with_layer_if(
        &self,
        wanted: impl FnOnce(&mut Locked<'_>) -> bool,
        f: impl FnOnce(&mut Locked<'_>, Time) -> (bool, Touched),
    ) -> Result<bool, Unavailable> {
        let mut core = match self.shared.lock_if_free() {
            Some(core) => core,
            None => self.shared.lock_waiting()?,
        };
        if !wanted(&mut Locked::new(&mut core.device)) {
            core.release();
            return Ok(false);
        }
        Ok(self.run_layer(core, f))
    }

    /// As [`Instance::with`] if `wanted` says so under the same lock, for a layer above that looks at something else than
    /// sockets; otherwise nothing is transmitted, and nobody is told anything.
    #[inline]
    pub fn with_if(
        &self,
        wanted: impl FnOnce(&mut Locked<'_>) -> bool,
        f: impl FnOnce(&mut Locked<'_>, Time) -> bool,
    ) -> Result<bool, Unavailable> {
        let mut core = self.shared.lock_to_poll()?;
        if !wanted(&mut Locked::new(&mut core.device)) {
            core.release();
            return Ok(false);
        }
        Ok(self.run(core, f))
    }

    #[inline]
    fn run<R>(&self, mut core: Held<'_>, f: impl FnOnce(&mut Locked<'_>, Time) -> R) -> R {
        let shared = &*self.shared;
        let now = clock::now();
        let result = f(&mut Locked::new(&mut core.device), now);
        let busy = shared.poll_activity.calls_now(now);
        core.after_call(now, busy, shared.contention.is_crowd());
        shared.poll_activity.called(now);
        shared.leave(core, now, busy);
        result
    }

    /// Creates a queue pair; takes another receive port if those in use have no number left.
    pub fn create_qp(&self, init: QpInit) -> Result<Result<Qpn, DeviceError>, Unavailable> {
        loop {
            match self.with(|device, _| device.create_qp(init))? {
                Err(DeviceError::Full("port")) => {}
                other => return Ok(other),
            }
            if let Err(e) = self.add_port(None)? {
                log::say(LogLevel::Error, format_args!("no further queue pair: {e}"));
                return Ok(Err(DeviceError::Full("port")));
            }
        }
    }

    /// Creates a queue pair with this very number, and takes the receive port that belongs to it if it is not ours yet.
    /// `Busy` if a queue pair of this process or of another has the number.
    pub fn create_numbered_qp(
        &self,
        init: QpInit,
        number: Qpn,
    ) -> Result<Result<Qpn, DeviceError>, Unavailable> {
        let create = || self.with(|device, _| device.create_numbered_qp(init, number));
        match create()? {
            Err(DeviceError::Full("port")) => {}
            other => return Ok(other),
        }
        let port = self.shared.port_base + number.0 / QPS_PER_PORT;
        match self.add_port(Some(port))? {
            Err(e) if is_taken(&e) => {
                log::say(LogLevel::Info, format_args!("no queue pair {}: {e}", number.0));
                Ok(Err(DeviceError::Busy("queue pair number: its port is taken by another process")))
            }
            Err(e) => {
                log::say(LogLevel::Error, format_args!("no queue pair {}: {e}", number.0));
                Ok(Err(DeviceError::Full("port")))
            }
            Ok(()) => create(),
        }
    }

    /// Destroys a queue pair. What it has sent and nobody has acknowledged is given a little time to arrive: a network card
    /// goes on when its program ends, and programs count on it (libfabric destroys its queue pair with a message on its
    /// way; were that lost, its receiver would wait for ever).
    pub fn destroy_qp(&self, qpn: Qpn) -> Result<Result<(), DeviceError>, Unavailable> {
        let start = clock::now();
        self.shared.go_on_until(|core, now| {
            let silent = now.since(core.last_arrival.max(start)) >= LONGEST_SILENCE;
            let long = now.since(start) >= LONGEST_DRAIN;
            silent || long || core.device.sends_in_flight(qpn) != Ok(true)
        })?;
        self.with(|device, now| device.destroy_qp(now, qpn))
    }

    /// When the last packet arrived.
    pub fn last_arrival(&self) -> Result<Time, Unavailable> {
        Ok(self.shared.lock()?.last_arrival)
    }

    /// Takes another receive port, for 128 more queue pairs: this one, or any.
    fn add_port(&self, port: Option<u16>) -> Result<Result<(), OpenError>, Unavailable> {
        let shared = &*self.shared;
        if shared.fabric.is_some() {
            return Ok(Err(OpenError::new(
                "a process has one port in a simulated fabric",
                None,
                "open fewer endpoints, or share one between threads",
            )));
        }
        let mut core = shared.lock()?;
        let taken = match port {
            Some(port) => bind(&shared.local, port, shared.rcvbuf).map(|socket| (port, socket)),
            None => take_slot(&shared.local, shared.port_base, shared.rcvbuf),
        };
        let (port, socket) = match taken {
            Ok(taken) => taken,
            Err(e) => return Ok(Err(e)),
        };
        if let Err(e) = core.device.add_port(port) {
            return Ok(Err(OpenError::new(
                format!("the device is full ({e:?})"),
                None,
                "destroy queue pairs that are no longer used, or let the program run in several processes",
            )));
        }
        shared.poll_set.add_readable(socket.as_fd());
        shared.notifier.sleepers().watch(socket.as_fd());
        core.receiver.add(socket, port);
        drop(core);
        // Whoever sleeps already does not sleep on this socket.
        if shared.mode != ProgressMode::Inline {
            shared.kick.signal();
        }
        shared.notifier.sleepers().wake();
        Ok(Ok(()))
    }

    /// Moves packets, then takes completions, as many as there are and fit. Returns how many. Of a device that has failed
    /// that is what had completed before, then everything else as flushed, and then an error.
    #[inline]
    pub fn poll_cq(&self, cq: CqId, out: &mut [Completion]) -> Result<usize, Unavailable> {
        let shared = &*self.shared;
        let mut core = match shared.lock_to_poll() {
            Ok(core) => core,
            Err(barred) => return shared.take_last(barred, cq, out),
        };
        // Nothing is taken before packets have moved: should the device fail meanwhile, it would be lost.
        let is_empty = core.may_skip_look();
        if is_empty {
            let n = core.take(cq, out);
            if n > 0 {
                return Ok(n);
            }
        }
        let Look { now, in_vain } = shared.poll(&mut core);
        if in_vain && is_empty {
            shared.leave_in_vain(core, now);
            return Ok(0);
        }
        let n = core.take(cq, out);
        shared.leave_poll(core, now, n > 0);
        Ok(n)
    }

    /// Moves packets, then takes the oldest completion.
    #[inline]
    pub fn poll_one(&self, cq: CqId) -> Result<Option<Completion>, Unavailable> {
        let shared = &*self.shared;
        let mut core = match shared.lock_to_poll() {
            Ok(core) => core,
            Err(Unavailable::Failed) => {
                return shared.core.take_last(cq).map(Some).ok_or(Unavailable::Failed);
            }
            Err(barred) => return Err(barred),
        };
        let is_empty = core.may_skip_look();
        if is_empty && let Some(first) = core.device.poll_cq(cq) {
            return Ok(Some(first));
        }
        let Look { now, in_vain } = shared.poll(&mut core);
        if in_vain && is_empty {
            shared.leave_in_vain(core, now);
            return Ok(None);
        }
        let first = core.device.poll_cq(cq);
        shared.leave_poll(core, now, first.is_some());
        Ok(first)
    }

    /// Moves packets: receives what is there, runs timers that are due, transmits.
    #[inline]
    pub fn progress(&self) -> Result<(), Unavailable> {
        let shared = &*self.shared;
        let mut core = shared.lock()?;
        let Look { now, in_vain } = shared.poll(&mut core);
        if !in_vain {
            shared.leave(core, now, true);
        }
        Ok(())
    }

    /// After polls that have found nothing: sleeps until a packet comes, `other` is readable or something is due, and not longer
    /// than `at_most`. It counts as polling: packets are left to whoever calls this.
    pub fn rest(&self, at_most: Duration, other: Option<BorrowedFd<'_>>) -> Result<(), Unavailable> {
        let shared = &*self.shared;
        let due = shared.lock_to_poll()?.next_timeout();
        let now = clock::now();
        let until = due.min(now + Nanos(at_most.as_nanos() as u64));
        shared.poll_activity.rests(until);
        shared.poll_set.wait_or(Some(Duration::from_nanos(until.since(now).0)), other);
        Ok(())
    }

    /// One poll of a layer above that takes the completions of `cq` itself: moves packets, runs `f`, transmits what follows.
    /// `f` takes all completions, and answers whether it has found anything to do. It does not run where nothing has moved and
    /// `has_work` says no: then nothing has completed either, for the queue is armed between calls, and what comes while nobody
    /// calls is told to the handlers of [`Instance::on_notification`]. With `may_rest` a poll that finds nothing rests for a
    /// moment where others want the cores; who also looks at other things than sockets must not.
    #[inline(always)]
    pub fn progress_with(
        &self,
        cq: CqId,
        may_rest: bool,
        has_work: impl Fn(&mut Locked<'_>) -> bool,
        f: impl FnOnce(&mut Locked<'_>, Time) -> bool,
    ) -> Result<bool, Unavailable> {
        let shared = &*self.shared;
        // Not `lock_to_poll`, which has two ways to the guard: that costs a poll in vain 30 instructions more.
        let Some(mut core) = shared.lock_if_free() else {
            let mut core = shared.lock_waiting()?;
            let look = shared.look(&mut core);
            return Ok(self.progress_on(core, look, cq, may_rest, has_work, f));
        };
        let look = shared.look(&mut core);
        if !look.in_vain || has_work(&mut Locked::new(&mut core.device)) {
            return Ok(self.progress_on(core, look, cq, may_rest, has_work, f));
        }
        match may_rest {
            true => shared.leave_in_vain(core, look.now),
            false => core.release(),
        }
        Ok(false)
    }

    /// The rest of such a poll, if it is not over after a look in vain.
    #[inline(never)]
    fn progress_on(
        &self,
        mut core: Held<'_>,
        look: Look,
        cq: CqId,
        may_rest: bool,
        has_work: impl Fn(&mut Locked<'_>) -> bool,
        f: impl FnOnce(&mut Locked<'_>, Time) -> bool,
    ) -> bool {
        let (shared, now) = (&*self.shared, look.now);
        if !look.in_vain {
            shared.round(&mut core, now);
        }
        let mut found = false;
        if core.has_moved() || has_work(&mut Locked::new(&mut core.device)) {
            // What has completed just now `f` takes. (A queue that has gone tells nobody anything.)
            let _ = core.device.disarm_cq(cq);
            found = f(&mut Locked::new(&mut core.device), now);
            core.after_call(now, true, shared.contention.is_crowd());
            let _ = core.device.arm_cq(cq, false);
        }
        match may_rest {
            true => shared.leave_poll(core, now, found),
            false => shared.leave(core, now, true),
        }
        found
    }

    /// The same for a handler of [`Instance::on_notification`]: whoever called it has moved packets, and it is not the
    /// program that polls.
    pub fn progress_when_notified(
        &self,
        cq: CqId,
        f: impl FnOnce(&mut Locked<'_>, Time) -> bool,
    ) -> Result<bool, Unavailable> {
        let shared = &*self.shared;
        let mut core = shared.lock()?;
        let _ = core.device.disarm_cq(cq);
        let now = clock::now();
        let found = f(&mut Locked::new(&mut core.device), now);
        core.after_call(now, false, false);
        let _ = core.device.arm_cq(cq, false);
        // One of many threads may have moved the packets, for all.
        let busy = shared.poll_activity.calls_now(now);
        shared.leave(core, now, busy);
        Ok(found)
    }

    /// The program is about to sleep on something that only a handler will wake: the thread takes over now, not when it
    /// notices that nobody polls any more.
    pub fn hand_over(&self) {
        let shared = &*self.shared;
        shared.poll_activity.paused();
        let now = clock::now();
        let sleepers = shared.notifier.sleepers().any();
        if policy::thread_is_in_charge(shared.mode, sleepers)
            && shared.poll_activity.sleeps_past(now, now, false)
        {
            shared.kick.signal();
        }
    }

    /// Sleeps until the notification of any armed completion queue fires (see `Device::arm_cq`), moving packets
    /// meanwhile; at once if one has fired since the last call. Returns whether one fired within `timeout` (`None`:
    /// for ever). For programs in which one thread waits; others use [`Instance::wait_until`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Unavailable> {
        self.wait_until(timeout, || self.shared.notifier.take_unclaimed())
    }

    /// Sleeps until `ready` says yes, moving packets meanwhile. `ready` is asked at the start, whenever packets have
    /// moved (whoever moved them), after handlers have run, and after [`Instance::wake`]. Returns whether it said yes within `timeout`
    /// (`None`: for ever).
    pub fn wait_until(
        &self,
        timeout: Option<Duration>,
        ready: impl FnMut() -> bool,
    ) -> Result<bool, Unavailable> {
        Ok(self.wait_for(timeout, false, ready)? == Waited::Ready)
    }

    /// The same, but a signal whose handler has run in this thread ends it, too. (Of several threads that wait at once, one
    /// notices signals.)
    pub fn wait_until_signal(
        &self,
        timeout: Option<Duration>,
        ready: impl FnMut() -> bool,
    ) -> Result<Waited, Unavailable> {
        self.wait_for(timeout, true, ready)
    }

    fn wait_for(
        &self,
        timeout: Option<Duration>,
        heeds_signals: bool,
        mut ready: impl FnMut() -> bool,
    ) -> Result<Waited, Unavailable> {
        let shared = &*self.shared;
        let until =
            timeout.map(|timeout| clock::now() + Nanos(timeout.as_nanos().min(u64::MAX as u128) as u64));
        let sleepers = shared.notifier.sleepers();
        let asleep = sleepers.enter();
        let mut signalled = false;
        let result = loop {
            let mark = asleep.mark();
            let rounds = shared.lock()?.counters.rounds;
            if ready() {
                break Waited::Ready;
            }
            if signalled {
                break Waited::Signalled;
            }
            let mut core = shared.lock()?;
            if core.counters.rounds == rounds {
                // `ready` looks, but does not poll: that is done here, and then it looks again.
                let now = shared.poll(&mut core).now;
                core.take_moved();
                shared.leave(core, now, true);
                if ready() {
                    break Waited::Ready;
                }
                core = shared.lock()?;
            }
            // Under the lock, because whoever calls the device later looks whether the leader would sleep past
            // something.
            let due = core.next_timeout();
            asleep.will_wake_at(due);
            drop(core);
            let now = clock::now();
            if until.is_some_and(|until| now >= until) {
                break Waited::TimedOut;
            }
            let span = |to: Time| (to != Time::NEVER).then(|| Duration::from_nanos(to.since(now).0));
            let lead = shared.mode != ProgressMode::Thread;
            signalled = asleep.sleep(mark, until.and_then(span), span(due), lead) && heeds_signals;
        };
        drop(asleep);
        shared.hand_over();
        Ok(result)
    }

    /// Makes all that sleep in [`Instance::wait_until`] ask again whether they are ready.
    #[inline]
    pub fn wake(&self) {
        self.shared.notifier.sleepers().wake();
    }

    /// Calls `handler` whenever the armed notification of `cq` fires, from whatever thread moves packets at that
    /// time. No lock is held: the handler may call the instance.
    pub fn on_notification(&self, cq: CqId, handler: impl Fn(CqId) + Send + Sync + 'static) -> Subscription {
        self.shared.notifier.on_cq(cq, Arc::new(handler))
    }

    /// Calls `handler` for every asynchronous event. All subscribers see all events.
    pub fn on_async_event(&self, handler: impl Fn(AsyncEvent) + Send + Sync + 'static) -> Subscription {
        self.shared.notifier.on_event(Arc::new(handler))
    }

    /// The host's identifier.
    pub fn gid(&self) -> Gid {
        self.shared.address.gid
    }

    /// Where this instance receives: its host and first port.
    pub fn address(&self) -> InstanceAddr {
        self.shared.address
    }

    /// UDP port of the first slot at any address.
    pub fn port_base(&self) -> u16 {
        self.shared.port_base
    }

    /// MTU of the path in bytes, IP header included.
    pub fn mtu(&self) -> u16 {
        self.shared.mtu
    }

    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.shared.local.interface
    }

    /// From now on `reporter` tells what a layer above has to add to the counters, until it answers `None`. It is called
    /// with the device locked, and must not call the instance.
    pub fn on_stats(&self, reporter: impl Fn(&mut Locked<'_>) -> Option<LayerStats> + Send + 'static) {
        let mut reporters = self.shared.reporters.lock().unwrap_or_else(PoisonError::into_inner);
        reporters.push(Box::new(reporter));
    }

    /// A layer goes, whose reporter answers `None` from now on; its counters stay. To be called with the device locked, so that
    /// nobody finds them missing or twice.
    pub fn keep_stats(&self, counters: impl Iterator<Item = (&'static str, u64)>) {
        let mut gone = self.shared.of_the_gone.lock().unwrap_or_else(PoisonError::into_inner);
        let sums = &mut gone.get_or_insert_default().counters;
        counters.for_each(|(name, count)| *sums.entry(name.into()).or_default() += count);
    }

    /// From now on `names` tells whether the program has named a peer to a layer above, until it answers `None`. Where there are
    /// such layers, nobody is told of the silence of peers that none of them has heard of. It is called as reporters are.
    pub fn on_silence(
        &self,
        names: impl Fn(&mut Locked<'_>, InstanceAddr) -> Option<bool> + Send + 'static,
    ) -> Result<(), Unavailable> {
        self.shared.lock()?.names.push(Box::new(names));
        Ok(())
    }

    /// From now on `told` hears of messages whose first packet has come, if their queue pair tells of them
    /// ([`srd_device::Device::tell_begun`]), until it answers false. It is called between two packets, by whoever moves them, under the lock.
    pub fn on_begun(
        &self,
        told: impl FnMut(&mut Locked<'_>, Time, &Begun) -> bool + Send + 'static,
    ) -> Result<(), Unavailable> {
        self.shared.lock()?.on_begun.push(Box::new(told));
        Ok(())
    }

    /// From now on `counted` hears the device's counters, soon after they change and at the end, when they are what `SRD_STATS` has.
    /// Of several calls of this the first counts. An earlier state may come after a later one.
    pub fn on_counters(&self, counted: impl Fn(&Counters) + Send + Sync + 'static) {
        if self.shared.counted.set(Box::new(counted)).is_ok()
            && let Err(error) = counting::start(&self.shared)
        {
            log::warn_once(format_args!(
                "cannot start a thread that tells counters, which are told at the end only: {error}"
            ));
        }
    }

    /// All counters.
    pub fn stats(&self) -> Result<Stats, Unavailable> {
        Ok(self.shared.stats_of(&mut *self.shared.lock()?))
    }
}

impl Instance {
    /// Ends it while others still refer to it: a program that exits ends its threads first. What is called afterwards
    /// finds a device whose packets only its polls move.
    pub fn end(&self) {
        if !self.shared.canary.alive() {
            return;
        }
        if let Some(socket) = self.shared.stats_socket.get() {
            socket.end();
        }
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.kick.signal();
        if let Some(fabric) = self.shared.fabric {
            fabric.library.close();
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last reference may go in a handler, which runs in the thread itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
        self.shared.finish();
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if !self.shared.canary.alive() {
            // In a forked child: whatever the parent's threads were doing to the state stays as it was, and what the
            // parent uses stays open.
            std::mem::forget(self.shared.clone());
            std::mem::forget(self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take());
            return;
        }
        self.end();
    }
}
