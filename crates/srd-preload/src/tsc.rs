//! The processor's counter of time, which programs read by an instruction: the kernel makes that a fault in threads that ask for it
//! (prctl(2), `PR_SET_TSC`), and the handler here answers with the simulation's time.
#![allow(unsafe_code)]
#![cfg(target_arch = "x86_64")]

use crate::process;
use crate::real;
use crate::thread;
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// rdtsc and rdtscp.
const READ: [u8; 2] = [0x0f, 0x31];
const READ_WITH_PROCESSOR: [u8; 3] = [0x0f, 0x01, 0xf9];
/// The kernel's pages in the process, whose clock reads the counter, have no more bytes than this.
const VDSO: usize = 4 * 4096;
/// The counter is compared with a clock for at least so long, in nanoseconds.
const COMPARE: u64 = 20_000_000;

static INSTALLED: AtomicBool = AtomicBool::new(false);
/// The counter and the clock when the library was loaded.
static COUNTER_THEN: AtomicU64 = AtomicU64::new(0);
static CLOCK_THEN: AtomicU64 = AtomicU64::new(0);
/// The counter when the simulation's clock showed zero, and its kilohertz.
static COUNTER: AtomicU64 = AtomicU64::new(0);
static KILOHERTZ: AtomicU64 = AtomicU64::new(0);
/// What the program wants to be done about faults: a handler, whether it takes three arguments.
static OTHER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static OTHER_TAKES_THREE: AtomicBool = AtomicBool::new(false);

fn counter() -> u64 {
    // SAFETY: every processor of this architecture has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

fn clock() -> u64 {
    real::clock(libc::CLOCK_MONOTONIC_RAW)
}

/// Called when the library is loaded.
extern "C" fn note_beginning() {
    COUNTER_THEN.store(counter(), Ordering::Relaxed);
    CLOCK_THEN.store(clock(), Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_BEGINNING: extern "C" fn() = note_beginning;

fn let_thread_read(permitted: bool) {
    let how = if permitted { libc::PR_TSC_ENABLE } else { libc::PR_TSC_SIGSEGV };
    // SAFETY: it changes what an instruction does in this thread, for which there is a handler.
    unsafe { libc::prctl(libc::PR_SET_TSC, how as libc::c_ulong, 0, 0, 0) };
}

/// From now on the calling thread, and those that it starts, read the simulation's time.
pub fn cover_thread() {
    if !INSTALLED.swap(true, Ordering::AcqRel) {
        while clock() - CLOCK_THEN.load(Ordering::Relaxed) < COMPARE {
            std::hint::spin_loop();
        }
        let (ticks, span) =
            (counter() - COUNTER_THEN.load(Ordering::Relaxed), clock() - CLOCK_THEN.load(Ordering::Relaxed));
        // To a megahertz, which hides what the comparison is wrong by.
        let megahertz = (u128::from(ticks) * 1000 + u128::from(span) / 2) / u128::from(span);
        KILOHERTZ.store(megahertz as u64 * 1000, Ordering::Relaxed);
        COUNTER.store(counter(), Ordering::Relaxed);
        install();
    }
    let_thread_read(false);
}

fn install() {
    // SAFETY: all zeros is a valid value of each field.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
    let mut old = action;
    if real_sigaction(libc::SIGSEGV, &action, &mut old) == 0 {
        remember(&old);
    }
}

fn remember(action: &libc::sigaction) {
    OTHER_TAKES_THREE.store(action.sa_flags & libc::SA_SIGINFO != 0, Ordering::Relaxed);
    OTHER.store(action.sa_sigaction, Ordering::Relaxed);
}

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

fn real_sigaction(signal: c_int, action: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the next definition of the function behind this library's is the C library's.
    unsafe {
        let symbol = libc::dlsym(libc::RTLD_NEXT, c"sigaction".as_ptr());
        if symbol.is_null() {
            return -1;
        }
        std::mem::transmute::<*mut c_void, Sigaction>(symbol)(signal, action, old)
    }
}

/// `sigaction(2)`: what a program does about faults stays behind the handler here.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if signal != libc::SIGSEGV || !INSTALLED.load(Ordering::Acquire) {
        return real_sigaction(signal, action, old);
    }
    // SAFETY: the caller's promise.
    unsafe {
        if !old.is_null() {
            *old = std::mem::zeroed();
            (*old).sa_sigaction = OTHER.load(Ordering::Relaxed);
            (*old).sa_flags = if OTHER_TAKES_THREE.load(Ordering::Relaxed) { libc::SA_SIGINFO } else { 0 };
        }
        if let Some(action) = action.as_ref() {
            remember(action);
        }
    }
    0
}

/// `signal(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: all zeros is a valid value of each field; both are there.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        let mut old = action;
        if sigaction(signal, &action, &mut old) == 0 { old.sa_sigaction } else { libc::SIG_ERR }
    }
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives the handler the context of what it interrupts. The bytes at the instruction's address can be read: the
    // processor has just done so, if it was an instruction that faulted; a jump to nowhere has its address in `si_addr`.
    unsafe {
        let registers = &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize] as usize;
        let jumped_nowhere = (*info).si_code > 0 && (*info).si_addr() as usize == at;
        let bytes = at as *const u8;
        let length = match () {
            () if jumped_nowhere => 0,
            () if std::slice::from_raw_parts(bytes, 2) == READ => 2,
            () if std::slice::from_raw_parts(bytes, 3) == READ_WITH_PROCESSOR => 3,
            () => 0,
        };
        if length == 0 {
            return pass_on(signal, info, context);
        }
        let value = value(at);
        registers[libc::REG_RAX as usize] = (value & 0xffff_ffff) as i64;
        registers[libc::REG_RDX as usize] = (value >> 32) as i64;
        if length == 3 {
            registers[libc::REG_RCX as usize] = 0;
        }
        registers[libc::REG_RIP as usize] = (at + length) as i64;
    }
}

/// What the instruction at `at` is to read.
fn value(at: usize) -> u64 {
    // SAFETY: it only looks.
    let kernels = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if process::channel().is_some()
        && !(kernels..kernels + VDSO).contains(&at)
        && let Some(now) = thread::look_at_clock()
    {
        let ticks = u128::from(now) * u128::from(KILOHERTZ.load(Ordering::Relaxed)) / 1_000_000;
        return COUNTER.load(Ordering::Relaxed) + ticks as u64;
    }
    let_thread_read(true);
    let now = counter();
    let_thread_read(false);
    now
}

/// A fault of the program's own.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    match OTHER.load(Ordering::Relaxed) {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all zeros is the default.
            let default: libc::sigaction = unsafe { std::mem::zeroed() };
            real_sigaction(signal, &default, std::ptr::null_mut());
            // The instruction is tried again, and ends the process.
        }
        // SAFETY: the program has said that this is its handler, and how many arguments it takes.
        handler => unsafe {
            if OTHER_TAKES_THREE.load(Ordering::Relaxed) {
                std::mem::transmute::<usize, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(handler)(
                    signal, info, context,
                );
            } else {
                std::mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal);
            }
        },
    }
}
