//! The process and its threads: forks noticed, cores chosen, signals kept away.

use super::check;
use std::io;
use std::mem::{size_of, zeroed};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Tells whether this process is the one that made it. After `fork` (by whatever means: the kernel does it) the
/// child's copy says no.
#[derive(Debug)]
pub struct ForkCanary {
    page: NonNull<AtomicU32>,
    len: usize,
}

// SAFETY: the page is only accessed atomically.
unsafe impl Send for ForkCanary {}
// SAFETY: as above.
unsafe impl Sync for ForkCanary {}

impl ForkCanary {
    const ALIVE: u32 = 0x5244_5253;

    /// A canary of this process.
    pub fn new() -> io::Result<ForkCanary> {
        // SAFETY: no memory is involved.
        let len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize;
        // SAFETY: a new anonymous mapping.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let canary = ForkCanary { page: NonNull::new(page.cast()).expect("mmap answers no null"), len };
        // The kernel hands a child zeroes in place of this page (Linux 4.14).
        // SAFETY: the range is the mapping just made.
        check(unsafe { libc::madvise(page, len, libc::MADV_WIPEONFORK) })?;
        canary.word().store(Self::ALIVE, Ordering::Relaxed);
        Ok(canary)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the mapping lives as long as `self`, is aligned to a page, and holds zeroes or the value stored.
        unsafe { self.page.as_ref() }
    }

    /// Whether this is still the process that made the canary.
    #[inline]
    pub fn alive(&self) -> bool {
        self.word().load(Ordering::Relaxed) == Self::ALIVE
    }
}

impl Drop for ForkCanary {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody refers to it any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.len) };
    }
}

/// A set of cores.
#[derive(Clone, Copy)]
pub struct Cores(libc::cpu_set_t);

impl Cores {
    /// The cores that the calling thread may run on.
    pub fn allowed() -> io::Result<Cores> {
        // SAFETY: a set of bits; the kernel writes at most its size.
        let mut set: libc::cpu_set_t = unsafe { zeroed() };
        // SAFETY: as above.
        check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) })?;
        Ok(Cores(set))
    }

    /// All cores there could be.
    pub fn all() -> Cores {
        // SAFETY: a set of bits.
        let mut set: libc::cpu_set_t = unsafe { zeroed() };
        for core in 0..libc::CPU_SETSIZE as usize {
            // SAFETY: `core` is within the set.
            unsafe { libc::CPU_SET(core, &mut set) };
        }
        Cores(set)
    }

    /// One core.
    pub fn one(core: usize) -> Cores {
        // SAFETY: a set of bits.
        let mut set: libc::cpu_set_t = unsafe { zeroed() };
        // SAFETY: `core` is within the set.
        unsafe { libc::CPU_SET(core.min(libc::CPU_SETSIZE as usize - 1), &mut set) };
        Cores(set)
    }

    /// How many.
    pub fn count(&self) -> usize {
        // SAFETY: a set of bits.
        unsafe { libc::CPU_COUNT(&self.0) as usize }
    }

    /// These without `others`.
    pub fn without(&self, others: &Cores) -> Cores {
        // SAFETY: a set of bits.
        let mut set: libc::cpu_set_t = unsafe { zeroed() };
        for core in 0..libc::CPU_SETSIZE as usize {
            // SAFETY: `core` is within the sets.
            unsafe {
                if libc::CPU_ISSET(core, &self.0) && !libc::CPU_ISSET(core, &others.0) {
                    libc::CPU_SET(core, &mut set);
                }
            }
        }
        Cores(set)
    }

    /// Confines the calling thread to them (and to what the system's administrator permits).
    pub fn confine_thread(&self) -> io::Result<()> {
        // SAFETY: the kernel reads the set.
        check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &self.0) })?;
        Ok(())
    }
}

/// Runs `f` with all signals blocked: a thread that it starts inherits that, so that no handler of the program ever
/// runs there.
pub fn with_signals_blocked<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: two sets of bits, written and read by the calls.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { (zeroed(), zeroed()) };
    // SAFETY: as above.
    let blocked = unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) == 0
    };
    let result = f();
    if blocked {
        // SAFETY: the set that the first call has written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    }
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
    // SAFETY: no memory is involved. Failure changes nothing but precision.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Calls `f` when the process exits in order (or, from a library, when that is unloaded). Returns whether it will.
pub fn at_exit(f: extern "C" fn()) -> bool {
    // SAFETY: `f` is a function without arguments, as asked for.
    unsafe { libc::atexit(f) == 0 }
}

/// The effective user of this process.
pub fn user() -> u32 {
    // SAFETY: no memory is involved, and it cannot fail.
    unsafe { libc::geteuid() }
}

/// How many more descriptors this process may open.
pub fn free_descriptors() -> Option<usize> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    // SAFETY: `limit` is plain data that the call fills.
    let limit = unsafe {
        let mut limit: libc::rlimit = zeroed();
        check(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit)).ok()?;
        limit
    };
    Some(usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX).saturating_sub(open))
}

/// Nanoseconds for which the calling thread has been able to run and had no core (`/proc/thread-self/schedstat`).
pub fn waited_for_core() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().nth(1)?.parse().ok()
}
