//! The process and its threads: forks noticed, cores chosen, signals kept away.

use super::page::Page;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::prctl::set_timerslack;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::{Pid, geteuid};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// Tells whether this process is the one that made it: the copy that a child has after `fork` says no.
#[derive(Debug)]
pub struct ForkCanary(Page<AtomicU32>);

impl ForkCanary {
    const ALIVE: u32 = 0x5244_5253;

    /// A canary of this process.
    pub fn new() -> io::Result<ForkCanary> {
        let page = Page::<AtomicU32>::new()?;
        page.store(Self::ALIVE, Ordering::Relaxed);
        Ok(ForkCanary(page))
    }

    /// Whether this is still the process that made the canary.
    #[inline]
    pub fn alive(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::ALIVE
    }
}

/// A number that no other living thread has. (The address of a variable of the thread takes four times the instructions in a library.)
#[inline]
pub fn this_thread() -> usize {
    // SAFETY: it looks at nothing but the calling thread, and cannot fail.
    unsafe { libc::pthread_self() as usize }
}

/// To the calls that take a thread's number, the calling thread.
const THIS_THREAD: Pid = Pid::from_raw(0);

/// A set of cores.
#[derive(Clone, Copy)]
pub struct Cores(CpuSet);

impl Cores {
    /// The cores that the calling thread may run on.
    pub fn allowed() -> io::Result<Cores> {
        Ok(Cores(sched_getaffinity(THIS_THREAD)?))
    }

    /// All cores there could be.
    pub fn all() -> Cores {
        Cores::of(|_| true)
    }

    /// One core.
    pub fn one(core: usize) -> Cores {
        Cores::of(|other| other == core.min(CpuSet::count() - 1))
    }

    /// How many.
    pub fn count(&self) -> usize {
        (0..CpuSet::count()).filter(|&core| self.has(core)).count()
    }

    /// These without `others`.
    pub fn without(&self, others: &Cores) -> Cores {
        Cores::of(|core| self.has(core) && !others.has(core))
    }

    /// Confines the calling thread to them (and to what the system's administrator permits).
    pub fn confine_thread(&self) -> io::Result<()> {
        Ok(sched_setaffinity(THIS_THREAD, &self.0)?)
    }

    fn has(&self, core: usize) -> bool {
        self.0.is_set(core).unwrap_or(false)
    }

    fn of(wanted: impl Fn(usize) -> bool) -> Cores {
        let mut set = CpuSet::new();
        for core in (0..CpuSet::count()).filter(|&core| wanted(core)) {
            set.set(core).expect("the set has room for it");
        }
        Cores(set)
    }
}

/// Runs `f` with all signals blocked: a thread that it starts inherits that, so that no handler of the program ever
/// runs there.
pub fn with_signals_blocked<R>(f: impl FnOnce() -> R) -> R {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
    let result = f();
    let _ = before.and_then(|before| before.thread_set_mask());
    result
}

/// The system's monotonic clock in nanoseconds. A poll reads it once: `Instant` takes twice the instructions.
#[inline]
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is there to be written. The call cannot fail: the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Lets the calling thread's timers fire when they are due, not up to 50 us later (the default timer slack).
pub fn precise_timers() {
    let _ = set_timerslack(1); // failure changes nothing but precision
}

/// Calls `f` when the process exits in order (or, from a library, when that is unloaded). Returns whether it will.
pub fn at_exit(f: extern "C" fn()) -> bool {
    // SAFETY: `f` is a function without arguments, as asked for.
    unsafe { libc::atexit(f) == 0 }
}

/// The effective user of this process.
pub fn user() -> u32 {
    geteuid().as_raw()
}

/// How many more descriptors this process may open.
pub fn free_descriptors() -> Option<usize> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let (most, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some(usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(open))
}

/// Nanoseconds for which the calling thread has been able to run and had no core (`/proc/thread-self/schedstat`).
pub fn waited_for_core() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().nth(1)?.parse().ok()
}
