//! The progress thread, which moves packets while the program does not (`progress/` decides when that is), and the end of an instance.

use crate::clock;
use crate::core::Core;
use crate::log;
use crate::options::LogLevel;
use crate::progress::policy::{self, Mover};
use crate::shared::{Shared, THREAD, Unavailable};
use crate::simulated::Fabric;
use crate::sys::process::{self, Cores};

use srd_wire::{Nanos, Time};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often counters are written.
const STATS_EVERY: Nanos = Nanos::from_secs(1);

/// For how long the thread leaves a lock alone that somebody else has.
const LOCKED: Nanos = Nanos::from_micros(200);

/// Longest that a queue pair that is destroyed waits for what it has sent to be acknowledged.
pub const LONGEST_DRAIN: Nanos = Nanos::from_secs(2);
/// And for how long nothing may arrive meanwhile: a lost packet is retransmitted a dozen times within this, and a peer whose
/// host is busy with others gets a core.
pub const LONGEST_SILENCE: Nanos = Nanos::from_millis(500);
/// Longest that an instance that ends goes on answering.
const LONGEST_LINGER: Nanos = Nanos::from_millis(100);
/// And for how long nothing must arrive before it is over. A peer whose host is busy gets a core within this time, and retransmits.
const QUIET: Nanos = Nanos::from_millis(20);
/// If nothing has arrived for this long, nobody expects an answer.
const LONG_AGO: Nanos = Nanos::from_millis(100);

/// Starts the thread, and waits until it has what memory a thread needs: libfabric's memory monitor overwrites `mmap`
/// and `munmap` while the program starts, and a thread that happens to be in one of them then dies.
pub(crate) fn start(shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let program = Cores::allowed().ok();
    let (ready, started) = mpsc::channel();
    let thread = process::with_signals_blocked(|| {
        std::thread::Builder::new().name(THREAD.into()).stack_size(512 << 10).spawn(move || {
            if let Some(program) = program {
                leave_cores_to(&program);
            }
            process::precise_timers();
            drop(std::hint::black_box(Box::new([0u8; 256]))); // makes the thread's heap
            let _ = ready.send(());
            drop(ready);
            // Nobody starts it again, so without it the device is no device.
            if catch_unwind(AssertUnwindSafe(|| run(&shared))).is_err() {
                shared.core.fail();
            }
        })
    })?;
    // An error means that the thread has ended already; its handle tells.
    let _ = started.recv();
    Ok(thread)
}

/// Keeps this thread off the cores of `program`, if it may run on others.
fn leave_cores_to(program: &Cores) {
    // What the system really permits shows only after asking for all.
    let others =
        Cores::all().confine_thread().and_then(|()| Cores::allowed()).map(|all| all.without(program));
    let result = match others {
        Ok(others) if others.count() > 0 => others.confine_thread(),
        Ok(_) => program.confine_thread(),
        Err(e) => Err(e),
    };
    if let Err(e) = result {
        log::say(LogLevel::Debug, format_args!("the progress thread shares the program's cores: {e}"));
    }
}

fn run(shared: &Shared) {
    if let Some(fabric) = shared.fabric {
        return run_as_card(shared, fabric);
    }
    while !shared.closing.load(Ordering::SeqCst) {
        let now = clock::now();
        match shared.mover(now) {
            Mover::Thread | Mover::Nobody => round(shared, now),
            Mover::Polls => await_handoff(shared, shared.handoff.watch(now)),
            Mover::Sleeper => {
                if let Some(until) = shared.handoff.begin_park(now, shared.notifier.sleepers()) {
                    await_handoff(shared, until);
                }
            }
        }
    }
}

/// In a simulated network the thread is the card, which acts on its own while no thread of the program polls.
fn run_as_card(shared: &Shared, fabric: Fabric) {
    loop {
        fabric.library.wait_as_card();
        if shared.closing.load(Ordering::SeqCst) {
            return;
        }
        let Ok(mut core) = shared.lock() else { return };
        let now = clock::now();
        core.thread_round(now);
        shared.leave(core, now, false);
    }
}

/// Moves packets, then sleeps on the sockets.
fn round(shared: &Shared, now: Time) {
    let Some(mut core) = shared.core.try_lock() else {
        // Whoever holds the lock moves packets. If the device has failed, `closing` is set soon.
        return park(shared, now, LOCKED);
    };
    let now = clock::now(); // behind whoever had the lock before
    shared.poll_activity.counters.wakes.fetch_add(1, Ordering::Relaxed);
    shared.handoff.takes_over(now);
    core.thread_round(now);
    let stats_due = shared.write_stats_if_due(&mut core, now);
    let due = core.next_timeout().min(stats_due);
    shared.poll_activity.thread_wakes.store(due.0, Ordering::Relaxed);
    let fired = core.fired();
    let moved = core.take_moved();
    drop(core);
    shared.tell(fired);
    if moved {
        shared.notifier.sleepers().wake();
    }
    let sleep = due.since(clock::now());
    if sleep > Nanos::ZERO {
        let timeout = (due != Time::NEVER).then(|| Duration::from_nanos(sleep.0));
        if shared.poll_set.wait(timeout).first_is_ready {
            shared.kick.drain();
        }
    }
}

/// Sleeps until whoever moves packets stops: until `until`, if nobody puts that off.
fn await_handoff(shared: &Shared, until: Time) {
    note_park(shared, until);
    if shared.handoff.park() {
        shared.kick.drain();
    }
}

fn park(shared: &Shared, now: Time, time: Nanos) {
    note_park(shared, now + time);
    if shared.kick.wait(Duration::from_nanos(time.0)) {
        shared.kick.drain();
    }
}

fn note_park(shared: &Shared, until: Time) {
    shared.poll_activity.counters.parks.fetch_add(1, Ordering::Relaxed);
    shared.poll_activity.thread_wakes.store(until.0, Ordering::Relaxed);
}

impl Shared {
    /// Who moves packets at this time.
    fn mover(&self, now: Time) -> Mover {
        policy::mover(self.mode, self.notifier.sleepers().any(), self.poll_activity.calls_now(now))
    }

    /// A thread of the program has slept and moved packets; from now on it may do neither.
    pub(crate) fn hand_over(&self) {
        if let Some(alarm_at) = self.handoff.begin(clock::now()) {
            self.poll_activity.thread_wakes.store(alarm_at.0, Ordering::Relaxed);
        }
    }

    /// Writes the counters if it is time and they have changed. Returns when to ask again.
    pub(crate) fn write_stats_if_due(&self, core: &mut Core, now: Time) -> Time {
        let Some(file) = &self.stats_file else { return Time::NEVER };
        let rounds = core.counters.rounds - core.counters.idle_rounds;
        if rounds == core.stats_written_at_rounds {
            return Time::NEVER;
        }
        if now < core.stats_due {
            return core.stats_due;
        }
        core.stats_due = now + STATS_EVERY;
        core.stats_written_at_rounds = rounds;
        self.stats_of(core).write(file);
        Time::NEVER
    }

    /// Rounds until `over` says so; between them, sleep.
    pub(crate) fn go_on_until(&self, mut over: impl FnMut(&Core, Time) -> bool) -> Result<(), Unavailable> {
        loop {
            let mut core = self.lock()?;
            let now = clock::now();
            core.round(now, false);
            let ends = over(&core, now);
            let due = core.next_timeout().since(now).0.clamp(20_000, 1_000_000);
            self.leave(core, now, true);
            if ends {
                return Ok(());
            }
            self.poll_set.wait(Some(Duration::from_nanos(due)));
        }
    }

    /// The end: answers for a little longer, so that peers learn that what they sent has arrived, and writes the
    /// counters a last time.
    pub(crate) fn finish(&self) {
        let start = clock::now();
        let over = |core: &Core, now: Time| {
            let quiet = now.since(core.last_arrival);
            quiet > LONG_AGO
                || (quiet > QUIET && now.since(start) > QUIET)
                || now.since(start) > LONGEST_LINGER
        };
        if self.go_on_until(over).is_ok()
            && let Ok(mut core) = self.lock()
        {
            if let Some(file) = &self.stats_file {
                self.stats_of(&mut core).write(file);
            }
            if let Some(counted) = self.counted.get() {
                counted(&core.device.counters());
            }
        }
    }
}
