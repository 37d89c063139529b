//! Where an MPI program begins and ends. What happens in `MPI_Init` is mostly between processes and their launcher, and takes as long as it
//! takes: no time passes for those who wait there, and all ranks leave it at the same moment. There and from `MPI_Finalize` on clocks show
//! the machine's time: libraries set timers by them that threads of theirs wait for, which know no other.
#![allow(unsafe_code)]

use crate::process::{self, channel};
use crate::thread;
use libc::{c_char, c_int, c_void};
use srd_virtual::layout::NEVER;
use srd_virtual::{Kind, Phase};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Calls of these functions within each other: an MPI may make one by another.
static DEPTH: AtomicU32 = AtomicU32::new(0);
/// The phase while the process has no place yet.
static PHASE: AtomicU32 = AtomicU32::new(0);

/// Its threads may call MPI at once.
static MULTIPLE: AtomicBool = AtomicBool::new(false);

/// `MPI_THREAD_MULTIPLE` of Open MPI, MPICH and those who are like it.
const THREAD_MULTIPLE: c_int = 3;

/// Whether threads of the program may call MPI at the same time.
pub fn is_multiple() -> bool {
    MULTIPLE.load(Ordering::Relaxed)
}

/// How far the program is.
pub fn phase() -> Phase {
    Phase::of(PHASE.load(Ordering::Relaxed))
}

/// The process has its place now.
pub fn tell() {
    if let Some(channel) = channel() {
        channel.phase.fetch_max(PHASE.load(Ordering::Relaxed), Ordering::AcqRel);
    }
}

/// The program is none of an MPI's, and takes its place: threads of it may use the fabric at the same time.
pub fn is_absent() {
    MULTIPLE.store(true, Ordering::Relaxed);
    enters(Phase::Running);
}

fn enters(phase: Phase) {
    PHASE.store(phase as u32, Ordering::Relaxed);
    tell();
}

/// The MPI's own, also where its library was loaded for another one only, as Python does for a module's.
pub fn next(name: &CStr) -> *mut c_void {
    next_in(name, b"libmpi") // libmpi.so.40, libmpi_abi.so.0
}

/// The same of a variable: the program's copy of it, if it has one, is what the library has, too.
pub fn variable(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() { next(name) } else { found }
}

/// The same of a function in a library whose name begins so.
pub fn next_in(name: &CStr, library: &[u8]) -> *mut c_void {
    // SAFETY: the name is a C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() {
        return next;
    }
    let mut search = (name, library, next);
    // SAFETY: the function gets what is given here, and is over before this goes.
    unsafe { libc::dl_iterate_phdr(Some(look_in), std::ptr::from_mut(&mut search).cast()) };
    search.2
}

/// Looks for the function in a library, if that is the one. Something else than 0 once it is found.
unsafe extern "C" fn look_in(
    library: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    search: *mut c_void,
) -> c_int {
    // SAFETY: as `dl_iterate_phdr(3)` and `next` give them.
    let (path, (name, wanted, found)) =
        unsafe { ((*library).dlpi_name, &mut *search.cast::<(&CStr, &[u8], *mut c_void)>()) };
    // SAFETY: a name is a C string.
    if path.is_null() || !has_name(unsafe { CStr::from_ptr(path) }.to_bytes(), wanted) {
        return 0;
    }
    // SAFETY: the library is there, and is not loaded anew; both names are C strings.
    unsafe {
        let handle = libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if !handle.is_null() {
            *found = libc::dlsym(handle, name.as_ptr());
        }
    }
    c_int::from(!found.is_null())
}

/// Whether the name of a library at that path begins so.
fn has_name(path: &[u8], wanted: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(wanted))
}

/// Calls `own`, which begins MPI.
fn begin(own: impl FnOnce() -> c_int) -> c_int {
    if DEPTH.fetch_add(1, Ordering::AcqRel) == 0 {
        enters(Phase::Beginning);
    }
    let result = own();
    if DEPTH.fetch_sub(1, Ordering::AcqRel) == 1 {
        enters(Phase::Running);
        thread::park(Kind::Together, NEVER);
        if let Some(channel) = channel() {
            process::begin_clocks(channel);
        }
    }
    result
}

type Init = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int;
type InitThread = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;

/// What MPI's functions return that are not there.
pub const NO_MPI: c_int = 16;

macro_rules! functions {
    ($init:ident, $init_thread:ident, $finalize:ident) => {
        /// As MPI has it.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
            // The name ends with a zero.
            let Ok(name) = CStr::from_bytes_with_nul(concat!(stringify!($init), "\0").as_bytes()) else {
                return NO_MPI;
            };
            let own = next(name);
            if own.is_null() {
                return NO_MPI;
            }
            // SAFETY: MPI's function of that name takes and returns that.
            begin(|| unsafe { std::mem::transmute::<*mut c_void, Init>(own)(argc, argv) })
        }

        /// As MPI has it.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $init_thread(
            argc: *mut c_int,
            argv: *mut *mut *mut c_char,
            required: c_int,
            provided: *mut c_int,
        ) -> c_int {
            let Ok(name) = CStr::from_bytes_with_nul(concat!(stringify!($init_thread), "\0").as_bytes())
            else {
                return NO_MPI;
            };
            let own = next(name);
            if own.is_null() {
                return NO_MPI;
            }
            // SAFETY: as above.
            let result = begin(|| unsafe {
                std::mem::transmute::<*mut c_void, InitThread>(own)(argc, argv, required, provided)
            });
            // SAFETY: the caller's promise.
            if unsafe { provided.as_ref() } == Some(&THREAD_MULTIPLE) {
                MULTIPLE.store(true, Ordering::Relaxed);
            }
            result
        }

        /// As MPI has it.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $finalize() -> c_int {
            crate::calls::finalize();
            enters(Phase::Ending);
            let Ok(name) = CStr::from_bytes_with_nul(concat!(stringify!($finalize), "\0").as_bytes()) else {
                return NO_MPI;
            };
            let own = next(name);
            if own.is_null() {
                return NO_MPI;
            }
            // SAFETY: as above.
            unsafe { std::mem::transmute::<*mut c_void, Finalize>(own)() }
        }
    };
}

functions!(MPI_Init, MPI_Init_thread, MPI_Finalize);
functions!(PMPI_Init, PMPI_Init_thread, PMPI_Finalize);
