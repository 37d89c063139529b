//! A running device: the lock around it, the sockets below it, and the ways in which a program drives it.

use crate::address::LocalAddress;
use crate::clock;
use crate::contention::{Contention, REST};
use crate::core::Core;
use crate::fault::Injector;
use crate::host;
use crate::log;
use crate::notify::{Notifier, Subscription};
use crate::options::{LogLevel, Options, ProgressMode};
use crate::progress::{self, Pulse};
use crate::receive::Receiver;
use crate::stats::{self, Stats};
use crate::sys::event::{Epoll, EventFd};
use crate::sys::process::ForkCanary;
use crate::sys::udp::{ReceiveSocket, scoped};
use crate::transmit::Transmitter;
use rand::TryRngCore;
use rand::rngs::OsRng;
use srd_device::{AsyncEvent, Completion, CqId, Device, DeviceConfig, DeviceError, QpInit};
use srd_wire::seal::{Keyring, Limits, Psk};
use srd_wire::{Gid, Incarnation, InstanceAddr, Nanos, Qpn, Time};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Receive ports that a host has: 16-bit queue pair numbers, 128 to a port.
pub const SLOTS: u16 = 512;

/// A device that runs over UDP sockets of this process. Its methods may be called from any thread.
///
/// Dropping it ends it, after a few milliseconds in which peers can still learn what has arrived.
pub struct Instance {
    shared: Arc<Shared>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// What the instance, its thread and the process's exit hook share.
pub(crate) struct Shared {
    pub(crate) canary: ForkCanary,
    pub(crate) core: Mutex<Core>,
    pub(crate) notifier: Notifier,
    pub(crate) pulse: Pulse,
    pub(crate) contention: Contention,
    /// What the thread sleeps on: the receive sockets and `kick`.
    pub(crate) epoll: Epoll,
    pub(crate) kick: EventFd,
    pub(crate) closing: AtomicBool,
    pub(crate) mode: ProgressMode,
    pub(crate) stats_file: Option<PathBuf>,
    local: LocalAddress,
    port_base: u16,
    rcvbuf: u64,
    address: InstanceAddr,
    mtu: u16,
    sealed: bool,
}

/// This process is a fork of the one that opened the instance. The instance belongs to the parent; the child must
/// open its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forked;

impl fmt::Display for Forked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the device was opened before fork() and belongs to the parent process; open it again in this process",
        )
    }
}

impl std::error::Error for Forked {}

/// Why an instance could not be opened: what failed, where, and what to do.
#[derive(Debug)]
pub struct OpenError {
    /// What failed.
    pub what: String,
    /// The system's reason, if it was the system that refused.
    pub source: Option<io::Error>,
    /// What to do.
    pub advice: String,
}

impl OpenError {
    fn new(what: impl Into<String>, source: Option<io::Error>, advice: impl Into<String>) -> OpenError {
        OpenError { what: what.into(), source, advice: advice.into() }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        write!(f, "; {}", self.advice)
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// The instances that [`Instance::open`] shares.
static SHARED: Mutex<Vec<(IpAddr, Weak<Instance>)>> = Mutex::new(Vec::new());

impl Instance {
    /// The process's instance at the local address that `options` choose: opened if there is none, shared if there
    /// is one (whose options then stay as they are). It ends when the last reference goes.
    ///
    /// Memory that is registered with the device must be there, as [`srd_device::HostMemory::new`] asks for, until it
    /// is deregistered; [`crate::Buffer`] is memory that is.
    pub fn open(options: &Options) -> Result<Arc<Instance>, OpenError> {
        let local = find_address(options)?;
        let mut instances = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        instances.retain(|(_, instance)| instance.strong_count() > 0);
        let known = instances.iter().find(|(ip, instance)| {
            *ip == local.ip && instance.upgrade().is_some_and(|instance| instance.shared.canary.alive())
        });
        if let Some(instance) = known.and_then(|(_, instance)| instance.upgrade()) {
            return Ok(instance);
        }
        let ip = local.ip;
        let instance = Instance::open_at(options, local)?;
        instances.push((ip, Arc::downgrade(&instance)));
        Ok(instance)
    }

    /// An instance that is shared with nobody, for programs that play several hosts.
    pub fn open_separate(options: &Options) -> Result<Arc<Instance>, OpenError> {
        Instance::open_at(options, find_address(options)?)
    }

    fn open_at(options: &Options, local: LocalAddress) -> Result<Arc<Instance>, OpenError> {
        log::set_level(options.log);
        let psk = options.key_file.as_deref().map(read_key).transpose()?;
        let system = |what: &'static str| {
            move |e: io::Error| {
                OpenError::new(what, Some(e), "the system lacks something that is always there")
            }
        };
        let (port, socket) = take_slot(&local, options.port_base, options.rcvbuf)?;
        warn_about_buffer(&socket, options.rcvbuf);
        let mut transport = host::transport_config(options, &local, socket.rcvbuf());
        let injector = options.fault.clone().map(|plan| Injector::new(plan, psk.is_some()));
        let transmitter = Transmitter::new(local.clone(), transport.entropy, injector).map_err(|e| {
            OpenError::new(
                format!("cannot open a UDP socket to send from {}", local.ip),
                Some(e),
                "raise `ulimit -n` if there are too many open files",
            )
        })?;
        transport.entropy = transmitter.source_ports() as u16;
        if !transmitter.has_gso() {
            transport.burst_bytes = transport.max_datagram as u32;
        }
        let gid = Gid::from(local.ip);
        let address = InstanceAddr { gid, port };
        let incarnation = Incarnation(random()? | 1);
        let keyring = psk.map(|psk| {
            let mut keyring = Keyring::new(incarnation, psk, Limits::default());
            keyring.allow_self(address.gid);
            keyring
        });
        let config = DeviceConfig { port_base: options.port_base, transport, ..DeviceConfig::default() };
        let device =
            Device::new(config, gid, port, incarnation, random()?, crate::sys::memory::host_memory());
        let rcvbuf = socket.rcvbuf();
        let mut receiver = Receiver::new();
        let epoll = Epoll::new().map_err(system("cannot make an epoll set"))?;
        let kick = EventFd::new().map_err(system("cannot make an event counter"))?;
        let notifier = Notifier::new().map_err(system("cannot make an event counter"))?;
        for watched in [socket.as_fd(), kick.as_fd()] {
            epoll.add_readable(watched).map_err(system("cannot watch a socket"))?;
        }
        notifier.sleepers().watch(socket.as_fd()).map_err(system("cannot watch a socket"))?;
        receiver.add(socket, port);
        let sealed = keyring.is_some();
        let shared = Arc::new(Shared {
            canary: ForkCanary::new().map_err(system("cannot map a page that forks leave behind"))?,
            core: Mutex::new(Core::new(
                device,
                transmitter,
                receiver,
                keyring,
                options.progress != ProgressMode::Inline,
            )),
            notifier,
            pulse: Pulse::new(),
            contention: Contention::new(),
            epoll,
            kick,
            closing: AtomicBool::new(false),
            mode: options.progress,
            stats_file: options.stats.as_deref().map(stats::file_name),
            mtu: host::path_mtu(options, &local),
            local,
            port_base: options.port_base,
            rcvbuf: options.rcvbuf,
            address,
            sealed,
        });
        stats::register_for_exit(&shared);
        let thread = match options.progress {
            ProgressMode::Inline => None,
            ProgressMode::Auto | ProgressMode::Thread => {
                Some(progress::start(shared.clone()).map_err(|e| {
                    OpenError::new(
                        "cannot start the progress thread",
                        Some(e),
                        "raise `ulimit -u`, or set SRD_PROGRESS=inline",
                    )
                })?)
            }
        };
        log::say(
            LogLevel::Info,
            format_args!(
                "receiving on {address} ({}, MTU {}, receive buffer {} KiB, {}, incarnation {:016x})",
                shared.local.interface,
                shared.mtu,
                rcvbuf / 1024,
                if sealed { "sealed" } else { "in clear" },
                incarnation.0,
            ),
        );
        Ok(Arc::new(Instance { shared, thread: Mutex::new(thread) }))
    }

    /// Runs `f` on the device. Afterwards transmits what is due, or, while the program polls all the time, leaves it
    /// for the next poll to be joined with more.
    #[inline]
    pub fn with<R>(
        &self,
        f: impl FnOnce(&mut Device<srd_device::HostMemory>, Time) -> R,
    ) -> Result<R, Forked> {
        let shared = &*self.shared;
        let mut core = shared.lock()?;
        let now = clock::now();
        let result = f(&mut core.device, now);
        let busy = shared.pulse.calls_now(now);
        core.after_call(now, busy);
        shared.pulse.called(now);
        shared.leave(core, now, busy);
        Ok(result)
    }

    /// Creates a queue pair; takes another receive port if those in use have no number left.
    pub fn create_qp(&self, init: QpInit) -> Result<Result<Qpn, DeviceError>, Forked> {
        loop {
            match self.with(|device, _| device.create_qp(init))? {
                Err(DeviceError::Full("port")) => {}
                other => return Ok(other),
            }
            if let Err(e) = self.add_port()? {
                log::say(LogLevel::Error, format_args!("no further queue pair: {e}"));
                return Ok(Err(DeviceError::Full("port")));
            }
        }
    }

    /// Takes another receive port, for 128 more queue pairs.
    fn add_port(&self) -> Result<Result<(), OpenError>, Forked> {
        let shared = &*self.shared;
        let mut core = shared.lock()?;
        let (port, socket) = match take_slot(&shared.local, shared.port_base, shared.rcvbuf) {
            Ok(taken) => taken,
            Err(e) => return Ok(Err(e)),
        };
        let watched = shared
            .epoll
            .add_readable(socket.as_fd())
            .and_then(|()| shared.notifier.sleepers().watch(socket.as_fd()));
        if let Err(e) = watched {
            return Ok(Err(OpenError::new("cannot watch a socket", Some(e), "raise `ulimit -n`")));
        }
        if let Err(e) = core.device.add_port(port) {
            return Ok(Err(OpenError::new(
                format!("port {port} is not taken: {e:?}"),
                None,
                "this is a mistake here",
            )));
        }
        core.receiver.add(socket, port);
        Ok(Ok(()))
    }

    /// Moves packets, then takes completions, as many as there are and fit. Returns how many.
    #[inline]
    pub fn poll_cq(&self, cq: CqId, out: &mut [Completion]) -> Result<usize, Forked> {
        let shared = &*self.shared;
        let mut core = shared.lock()?;
        let n = core.take(cq, out);
        if n > 0 && core.may_skip_look() {
            return Ok(n);
        }
        let now = shared.poll(&mut core);
        let n = n + core.take(cq, &mut out[n..]);
        shared.leave_poll(core, now, n > 0);
        Ok(n)
    }

    /// Moves packets, then takes the oldest completion.
    #[inline]
    pub fn poll_one(&self, cq: CqId) -> Result<Option<Completion>, Forked> {
        let shared = &*self.shared;
        let mut core = shared.lock()?;
        let first = core.device.poll_cq(cq);
        if first.is_some() && core.may_skip_look() {
            return Ok(first);
        }
        let now = shared.poll(&mut core);
        let first = first.or_else(|| core.device.poll_cq(cq));
        shared.leave_poll(core, now, first.is_some());
        Ok(first)
    }

    /// Moves packets: receives what is there, runs timers that are due, transmits.
    #[inline]
    pub fn progress(&self) -> Result<(), Forked> {
        let shared = &*self.shared;
        let mut core = shared.lock()?;
        let now = shared.poll(&mut core);
        shared.leave(core, now, true);
        Ok(())
    }

    /// Sleeps until the notification of any armed completion queue fires (see `Device::arm_cq`), moving packets
    /// meanwhile; at once if one has fired since the last call. Returns whether one fired within `timeout` (`None`:
    /// for ever). For programs in which one thread waits; others use [`Instance::wait_until`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Forked> {
        self.wait_until(timeout, || self.shared.notifier.take_unclaimed())
    }

    /// Sleeps until `ready` says yes, moving packets meanwhile. `ready` is asked at the start and whenever packets
    /// have moved or a handler has run. Returns whether it said yes within `timeout` (`None`: for ever).
    pub fn wait_until(
        &self,
        timeout: Option<Duration>,
        mut ready: impl FnMut() -> bool,
    ) -> Result<bool, Forked> {
        let shared = &*self.shared;
        let until =
            timeout.map(|timeout| clock::now() + Nanos(timeout.as_nanos().min(u64::MAX as u128) as u64));
        let sleepers = shared.notifier.sleepers();
        let asleep = sleepers.enter();
        let result = loop {
            let mark = asleep.mark();
            let rounds = shared.lock()?.counters.rounds;
            if ready() {
                break true;
            }
            let mut core = shared.lock()?;
            if core.counters.rounds == rounds {
                // `ready` looks, but does not poll: that is done here, and then it looks again.
                let now = shared.poll(&mut core);
                core.take_moved();
                shared.leave(core, now, true);
                if ready() {
                    break true;
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
                break false;
            }
            let span = |to: Time| (to != Time::NEVER).then(|| Duration::from_nanos(to.since(now).0));
            asleep.sleep(mark, until.and_then(span), span(due), shared.mode != ProgressMode::Thread);
        };
        drop(asleep);
        shared.hand_over();
        Ok(result)
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

    /// MTU of the path in bytes, IP header included.
    pub fn mtu(&self) -> u16 {
        self.shared.mtu
    }

    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.shared.local.interface
    }

    /// All counters.
    pub fn stats(&self) -> Result<Stats, Forked> {
        Ok(self.shared.stats_of(&*self.shared.lock()?))
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
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.kick.signal();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // The last reference may go in a handler, which runs in the thread itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
        self.shared.finish();
    }
}

impl Shared {
    /// Takes the lock, unless this is a forked child: there another thread of the parent may have held it.
    #[inline]
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Core>, Forked> {
        if !self.canary.alive() {
            return Err(Forked);
        }
        // A panic inside the device is a mistake there; going on may help a program to end in order.
        Ok(self.core.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A round on behalf of a poll of the program.
    #[inline]
    fn poll(&self, core: &mut Core) -> Time {
        let now = clock::now();
        self.pulse.called(now);
        match self.mode {
            ProgressMode::Thread => {}
            ProgressMode::Auto => core.poll_round(now),
            ProgressMode::Inline => {
                core.poll_round(now);
                self.write_stats_if_due(core, now);
            }
        }
        now
    }

    /// Lets go of the lock, tells what has fired, and wakes whoever would sleep past something. `busy`: the program
    /// was calling already, so that its next call is in time.
    #[inline]
    pub(crate) fn leave(&self, mut core: MutexGuard<'_, Core>, now: Time, busy: bool) {
        let fired = core.fired();
        let due = core.next_timeout();
        let moved = core.take_moved();
        drop(core);
        self.notifier.tell(fired);
        let sleepers = self.notifier.sleepers();
        if sleepers.any() {
            sleepers.moved(moved, due);
        }
        let leader = sleepers.any() && self.mode != ProgressMode::Thread;
        if self.mode != ProgressMode::Inline && !leader && self.pulse.sleeps_past(due, now, busy) {
            self.kick.signal();
        }
    }

    /// The same after a poll. One that found nothing rests for a moment where others want the cores.
    #[inline]
    fn leave_poll(&self, core: MutexGuard<'_, Core>, now: Time, found: bool) {
        let due = core.next_timeout();
        self.leave(core, now, true);
        let sleeps_anyway = self.notifier.sleepers().any();
        if !found && !sleeps_anyway && self.mode != ProgressMode::Thread && self.contention.should_rest(now) {
            let until = due.min(now + REST);
            self.epoll.wait(Some(Duration::from_nanos(until.since(now).0)));
            self.contention.rested(clock::now(), until);
        }
    }

    pub(crate) fn stats_of(&self, core: &Core) -> Stats {
        Stats::collect(
            core,
            self.address,
            &self.local.interface,
            self.mtu,
            self.sealed,
            self.pulse.counters(self.contention.rests()),
        )
    }
}

fn find_address(options: &Options) -> Result<LocalAddress, OpenError> {
    LocalAddress::find(&options.addr).map_err(|e| {
        OpenError::new(e.to_string(), None, "set SRD_ADDR to an address or interface of this host")
    })
}

fn random() -> Result<u64, OpenError> {
    OsRng.try_next_u64().map_err(|e| {
        OpenError::new(format!("the system gives no random numbers: {e}"), None, "see getrandom(2)")
    })
}

fn read_key(path: &std::path::Path) -> Result<Psk, OpenError> {
    const ADVICE: &str =
        "SRD_KEY_FILE names a file with 64 hexadecimal digits (`openssl rand -hex 32` makes them)";
    let bytes = std::fs::read(path).map_err(|e| {
        OpenError::new(format!("cannot read the key file {}", path.display()), Some(e), ADVICE)
    })?;
    if std::fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o007 != 0) {
        log::warn_once(format_args!(
            "everybody on this host can read the key file {0}; `chmod 600 {0}`",
            path.display()
        ));
    }
    let key = match std::str::from_utf8(&bytes) {
        Ok(text) if bytes.len() != Psk::LEN => text.parse(),
        _ => Psk::from_bytes(&bytes),
    };
    key.map_err(|e| OpenError::new(format!("key file {}: {e}", path.display()), None, ADVICE))
}

/// Binds to the lowest free port of the host's slots.
fn take_slot(local: &LocalAddress, base: u16, rcvbuf: u64) -> Result<(u16, ReceiveSocket), OpenError> {
    let last = base.saturating_add(SLOTS - 1);
    for port in base..=last {
        let addr: SocketAddr = scoped(local.ip, port, local.index);
        match ReceiveSocket::bind(addr, rcvbuf) {
            Ok(socket) => return Ok((port, socket)),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            Err(e) => {
                let advice = match e.kind() {
                    io::ErrorKind::AddrNotAvailable => "the address has gone from its interface",
                    io::ErrorKind::PermissionDenied => "set SRD_PORT_BASE to ports that this user may bind",
                    _ => "raise `ulimit -n` if there are too many open files",
                };
                return Err(OpenError::new(format!("cannot receive on UDP {addr}"), Some(e), advice));
            }
        }
    }
    Err(OpenError::new(
        format!("every UDP port from {base} to {last} of {} is in use", local.ip),
        Some(io::Error::from_raw_os_error(libc::EADDRINUSE)),
        format!(
            "end processes that hold them (`ss -ulnp 'sport >= {base}'` lists them), or set SRD_PORT_BASE"
        ),
    ))
}

fn warn_about_buffer(socket: &ReceiveSocket, wanted: u64) {
    let granted = socket.rcvbuf();
    if granted < wanted {
        log::warn_once(format_args!(
            "the receive buffer is {granted} bytes, not {wanted}: bursts from many senders will be dropped here; \
             `sysctl -w net.core.rmem_max={wanted}`, or set SRD_RCVBUF={granted} to accept it"
        ));
    }
    if !socket.has_gro() {
        log::warn_once(format_args!(
            "this kernel does not join UDP datagrams on receive (Linux 5.0 does), which is slow"
        ));
    }
}
