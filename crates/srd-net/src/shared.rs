//! What an instance, its threads and the process's exit share: the lock around the device, who sleeps, who asks, and how calls
//! and polls take the lock and leave it.

use crate::address::LocalAddress;
use crate::beside::Locked;
use crate::clock;
use crate::core::Core;
use crate::core_lock::{CoreLock, Held, Refused};
use crate::host;
use crate::last_panic;
use crate::log;
use crate::notify::{Fired, Notifier};
use crate::open::{OpenError, advice_for};
use crate::options::{Options, ProgressMode};
use crate::progress::contention::Contention;
use crate::progress::handoff::ProgressHandoff;
use crate::progress::policy::{self, VainPoll};
use crate::progress::poll_activity::PollActivity;
use crate::short_ring::Ring;
use crate::simulated::{self, Fabric};
use crate::stats::{self, LayerStats, Reporter, Stats};
use crate::stats_socket::StatsSocket;
use crate::sys::event::{EventFd, PollSet};
use crate::sys::process::{self, ForkCanary};
use crate::sys::udp::ReceiveSocket;
use srd_device::{AsyncEvent, Completion, CqId, DeviceEnd};
use srd_wire::{InstanceAddr, Time};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Name of the thread.
pub(crate) const THREAD: &str = "srd-progress";

/// See the module.
pub(crate) struct Shared {
    pub(crate) canary: ForkCanary,
    pub(crate) core: CoreLock,
    pub(crate) notifier: Notifier,
    pub(crate) poll_activity: PollActivity,
    pub(crate) contention: Contention,
    /// What the thread sleeps on: `kick` and the receive sockets.
    pub(crate) poll_set: PollSet,
    pub(crate) kick: EventFd,
    pub(crate) handoff: ProgressHandoff,
    pub(crate) closing: AtomicBool,
    pub(crate) mode: ProgressMode,
    pub(crate) stats_file: Option<PathBuf>,
    pub(crate) local: LocalAddress,
    pub(crate) port_base: u16,
    pub(crate) rcvbuf: u64,
    pub(crate) address: InstanceAddr,
    pub(crate) mtu: u16,
    sealed: bool,
    /// The network, if it is a simulated one.
    pub(crate) fabric: Option<Fabric>,
    /// Where `srd top` asks for the counters.
    pub(crate) stats_socket: OnceLock<StatsSocket>,
    /// What layers above add to them.
    pub(crate) reporters: Mutex<Vec<Reporter>>,
    /// The last counters of layers that have gone, in sum.
    pub(crate) of_the_gone: Mutex<Option<LayerStats>>,
    /// Who adds the device's counters up elsewhere.
    pub(crate) counted: OnceLock<CountedBy>,
}

/// See [`crate::Instance::on_counters`].
pub(crate) type CountedBy = Box<dyn Fn(&srd_device::Counters) + Send + Sync>;

/// What the look of a poll has seen.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) now: Time,
    /// Nothing at all, and nothing has changed since the poll before it: there is nothing to tell, and nobody to wake.
    pub(crate) in_vain: bool,
}

/// Why an instance cannot be used here and now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unavailable {
    /// This process is a fork of the one that opened the instance. The instance belongs to the parent; the child must
    /// open its own.
    Forked,
    /// A signal has interrupted this thread inside the device, and its handler calls the device again.
    Interrupted,
    /// There was a panic inside the device. It never works again in this process; everything that was under way and was
    /// not polled has failed.
    Failed,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unavailable::Forked => {
                "the device was opened before fork() and belongs to the parent process; open it again in this process"
            }
            Unavailable::Interrupted => {
                "a signal handler calls the device that the signal has interrupted; let it set a flag instead"
            }
            Unavailable::Failed => "the device of this process has failed; start the process again",
        })
    }
}

impl std::error::Error for Unavailable {}

impl Shared {
    pub(crate) fn new(
        options: &Options,
        number: u16,
        local: LocalAddress,
        address: InstanceAddr,
        sealed: bool,
        mut core: Core,
        socket: Option<ReceiveSocket>,
    ) -> Result<Shared, OpenError> {
        let lacks = |what: &'static str| {
            move |e: io::Error| {
                let advice = advice_for(&e);
                OpenError::new(what, Some(e), advice)
            }
        };
        let poll_set = PollSet::new();
        let kick = EventFd::new().map_err(lacks("cannot make an event counter"))?;
        let notifier = Notifier::new().map_err(lacks("cannot make an event counter"))?;
        poll_set.add_readable(kick.as_fd());
        if let Some(socket) = &socket {
            poll_set.add_readable(socket.as_fd());
            notifier.sleepers().watch(socket.as_fd());
        }
        for comes_by in core.receiver.ring().map(Ring::descriptors).into_iter().flatten() {
            poll_set.add_readable(comes_by);
            notifier.sleepers().watch(comes_by);
        }
        if let Some(socket) = socket {
            core.receiver.add(socket, address.port);
        }
        Ok(Shared {
            canary: ForkCanary::new().map_err(lacks("cannot map a page that forks leave behind"))?,
            core: CoreLock::new(core),
            notifier,
            poll_activity: PollActivity::new(),
            contention: Contention::new(),
            poll_set,
            handoff: ProgressHandoff::new(&kick).map_err(lacks("cannot make a timer"))?,
            kick,
            closing: AtomicBool::new(false),
            mode: options.progress,
            stats_file: options.stats.as_deref().map(|pattern| stats::file_name(pattern, number)),
            mtu: host::path_mtu(options, &local),
            local,
            port_base: options.port_base,
            rcvbuf: options.rcvbuf,
            address,
            sealed,
            fabric: simulated::known(),
            stats_socket: OnceLock::new(),
            reporters: Mutex::default(),
            of_the_gone: Mutex::default(),
            counted: OnceLock::new(),
        })
    }

    /// Takes the lock, unless this is a forked child: there another thread of the parent may have held it. Nor does a
    /// thread wait for itself.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Result<Held<'_>, Unavailable> {
        let mut core = self.lock_to_poll()?;
        core.disturb();
        Ok(core)
    }

    /// The same for who changes nothing but by [`Shared::round`] and [`Core::after_call`], and takes completions.
    #[inline(always)]
    pub(crate) fn lock_to_poll(&self) -> Result<Held<'_>, Unavailable> {
        match self.lock_if_free() {
            Some(core) => Ok(core),
            None => self.lock_waiting(),
        }
    }

    /// The same where that is not simple.
    #[inline(never)]
    pub(crate) fn lock_waiting(&self) -> Result<Held<'_>, Unavailable> {
        if !self.canary.alive() {
            return Err(Unavailable::Forked);
        }
        if let Some(fabric) = self.fabric {
            fabric.library.enter();
            let mut core = self.wait_for_lock()?;
            core.device.set_neighbours(fabric.library.neighbours());
            return Ok(core);
        }
        self.wait_for_lock()
    }

    /// The same if that is simple: nobody has the lock.
    #[inline(always)]
    pub(crate) fn lock_if_free(&self) -> Option<Held<'_>> {
        if self.canary.alive() && self.fabric.is_none() { self.core.try_lock() } else { None }
    }

    #[inline]
    fn wait_for_lock(&self) -> Result<Held<'_>, Unavailable> {
        self.core.lock().map_err(|refused| match refused {
            Refused::Interrupted => Unavailable::Interrupted,
            Refused::Failed => Unavailable::Failed,
        })
    }

    /// What a failed device has left for a completion queue.
    #[cold]
    pub(crate) fn take_last(
        &self,
        barred: Unavailable,
        cq: CqId,
        out: &mut [Completion],
    ) -> Result<usize, Unavailable> {
        if barred != Unavailable::Failed {
            return Err(barred);
        }
        let last = std::iter::from_fn(|| self.core.take_last(cq));
        let n = out.iter_mut().zip(last).map(|(out, completion)| *out = completion).count();
        if n > 0 { Ok(n) } else { Err(Unavailable::Failed) }
    }

    /// There was a panic inside the device, or it has ended on purpose: whoever waits, or sleeps, or is told of events, hears of
    /// it. Packets are sent and taken under the lock only, which nobody gets any more.
    pub(crate) fn device_failed(&self) {
        self.say_why_it_failed();
        self.closing.store(true, Ordering::SeqCst);
        self.kick.signal();
        self.notifier.tell_all(AsyncEvent::DeviceFatal);
    }

    /// How the device has ended, if that was on purpose. To be asked once it has failed.
    pub(crate) fn ended_on_purpose(&self) -> Option<DeviceEnd> {
        let mut ended = None;
        self.core.with_failed(|core| ended = core.device.ended());
        ended
    }

    fn say_why_it_failed(&self) {
        if let Some(end) = self.ended_on_purpose() {
            let what = match end {
                DeviceEnd::Gone => "gone",
                DeviceEnd::Reset => "reset",
            };
            return log::warn(format_args!(
                "the device {} of this process is {what}, on purpose, as SRD_FAULT says: whatever was under way fails",
                self.address,
            ));
        }
        let thread = std::thread::current();
        let thread = if thread.name() == Some(THREAD) { "the progress thread" } else { "a call" };
        let what = last_panic::of_this_thread().unwrap_or_else(|| "no message".to_owned());
        log::error(format_args!(
            "the device {} of this process is gone after an internal error, {what}, in {thread}: whatever was under way fails, \
             nothing more is sent, and only another process can go on. Please report this line with the version, {}, what \
             the program did, and what came before with RUST_BACKTRACE=1",
            self.address,
            env!("CARGO_PKG_VERSION"),
        ));
    }

    /// Another thread has the lock while the program polls. False in a forked child.
    #[cold]
    pub(crate) fn is_called_beside(&self) -> bool {
        let alive = self.canary.alive();
        if alive {
            self.poll_activity.called(clock::now());
        }
        alive
    }

    /// One of a crowd polls: whether another one has looked at the sockets just now.
    #[cold]
    pub(crate) fn others_look(&self, now: Time) -> bool {
        let looked = self.contention.has_looked(now);
        if looked {
            self.poll_activity.called(now);
        }
        looked
    }

    /// A poll of the program: a look and, unless that is in vain, a round.
    #[inline(always)]
    pub(crate) fn poll(&self, core: &mut Core) -> Look {
        let look = self.look(core);
        if !look.in_vain {
            self.round(core, look.now);
        }
        look
    }

    /// A poll of the program looks whether anything has come. What it has seen [`Shared::round`] takes, unless it is in vain.
    #[inline(always)]
    pub(crate) fn look(&self, core: &mut Core) -> Look {
        let now = clock::now();
        self.poll_activity.called(now);
        if let Some(alarm_at) = self.handoff.polled(now) {
            self.poll_activity.thread_wakes.store(alarm_at.0, Ordering::Relaxed);
        }
        self.contention.looks(now);
        Look { now, in_vain: core.finds_nothing(now) }
    }

    /// The round of such a poll.
    #[inline]
    pub(crate) fn round(&self, core: &mut Core, now: Time) {
        let crowded = self.contention.is_crowd();
        match self.mode {
            ProgressMode::Thread => {}
            ProgressMode::Auto => core.poll_round(now, crowded),
            ProgressMode::Inline => {
                core.poll_round(now, crowded);
                let due = self.write_stats_if_due(core, now);
                core.ends_quiet(due);
            }
        }
    }

    /// Lets go of the lock, tells what has fired, and wakes whoever would sleep past something. `busy`: the program
    /// was calling already, so that its next call is in time.
    #[inline]
    pub(crate) fn leave(&self, mut core: Held<'_>, now: Time, busy: bool) {
        let fired = core.device.has_fired().then(|| core.fired());
        let due = core.next_timeout();
        let moved = core.take_moved();
        let long = core.take_moved_many();
        match self.fabric {
            None => core.release(),
            Some(fabric) => {
                let (senders, more) = (core.device.endpoint().senders(now), core.is_held_back());
                drop(core);
                fabric.leave(now, due, senders, more);
            }
        }
        if long {
            self.poll_activity.goes_on(clock::now());
        }
        if let Some(fired) = fired {
            self.tell(fired);
        }
        let sleepers = self.notifier.sleepers();
        if sleepers.any() {
            sleepers.moved(moved, due);
        }
        if policy::thread_is_in_charge(self.mode, sleepers.any())
            && self.poll_activity.sleeps_past(due, now, busy)
        {
            self.kick.signal();
        }
    }

    /// Tells what has fired. A device that has ended on purpose fails like any other: its lock is never given out again.
    #[inline(never)]
    pub(crate) fn tell(&self, fired: Fired) {
        let ended = fired.ended;
        self.notifier.tell(fired);
        if ended {
            self.core.fail();
        }
    }

    /// The same after a poll. One that found nothing gives way, or rests for a moment, where others want the cores.
    #[inline]
    pub(crate) fn leave_poll(&self, core: Held<'_>, now: Time, found: bool) {
        let due = core.next_timeout();
        let found = found || core.has_moved();
        self.leave(core, now, true);
        if let Some(fabric) = self.fabric {
            return fabric.library.polled(found);
        }
        if found { self.contention.found() } else { self.give_way(now, due) }
    }

    /// The same after a look in vain.
    #[inline(always)]
    pub(crate) fn leave_in_vain(&self, core: Held<'_>, now: Time) {
        let due = core.next_timeout();
        core.release();
        self.give_way(now, due);
    }

    /// After a poll that found nothing; `due`: when there will be something to do.
    #[inline(always)]
    fn give_way(&self, now: Time, due: Time) {
        match policy::vain_poll(self.mode, self.notifier.sleepers().any(), self.contention.cores(now)) {
            VainPoll::Return => {}
            VainPoll::GiveWay => self.contention.give_way(),
            VainPoll::Yield => {
                self.contention.give_way();
                self.contention.count_rest();
            }
            VainPoll::Rest => self.rest(now, due),
        }
    }

    #[cold]
    fn rest(&self, now: Time, due: Time) {
        let until = due.min(now + self.contention.rest());
        self.poll_activity.rests(until);
        self.poll_set.wait(Some(Duration::from_nanos(until.since(now).0)));
        self.contention.rested(clock::now(), until);
    }

    pub(crate) fn stats_of(&self, core: &mut Core) -> Stats {
        let mut stats = Stats::collect(
            core,
            self.address,
            &self.local.interface,
            self.mtu,
            self.sealed,
            self.poll_activity.counters(self.contention.rests()),
        );
        let mut reporters = self.reporters.lock().unwrap_or_else(PoisonError::into_inner);
        reporters.retain(|report| {
            let layer = report(&mut Locked::new(&mut core.device));
            let there = layer.is_some();
            stats.layers.extend(layer);
            there
        });
        let gone = self.of_the_gone.lock().unwrap_or_else(PoisonError::into_inner);
        stats.layers.extend(gone.clone());
        stats
    }

    /// The process exits: nobody can ask for the counters any more.
    pub(crate) fn close_stats_socket(&self) {
        if let Some(socket) = self.stats_socket.get() {
            socket.close();
        }
    }

    /// And whoever records what the transport decides has its end.
    pub(crate) fn end_trace(&self) {
        if let Some(socket) = self.stats_socket.get() {
            socket.wait_for_trace();
        }
    }
}

/// The instances that are to end in order when the process exits without having closed them.
static AT_EXIT: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

pub(crate) fn register_for_exit(shared: &Arc<Shared>) {
    static HOOKED: std::sync::Once = std::sync::Once::new();
    HOOKED.call_once(|| {
        process::at_exit(finish_all);
    });
    let mut list = AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner);
    list.retain(|shared| shared.strong_count() > 0);
    list.push(Arc::downgrade(shared));
}

extern "C" fn finish_all() {
    let Ok(list) = AT_EXIT.try_lock() else { return };
    for shared in list.iter().filter_map(Weak::upgrade).filter(|shared| shared.canary.alive()) {
        shared.close_stats_socket();
        // Whoever called exit() inside the device has the lock for ever: that must not keep the process from ending.
        for _ in 0..100 {
            if shared.core.has_failed() {
                break;
            }
            if shared.core.try_lock().is_some() {
                shared.finish();
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        shared.end_trace();
    }
}
