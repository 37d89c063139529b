//! Calls of MPI: when each began and returned, and what was computed before it, noted in the shared memory; and the other way round, computing
//! that another run has noted, put on the clock before the same call.
//!
//! All of these functions are of numbers and addresses, at most [`WORDS`] of them, so one function may stand in front of each: it hands over what
//! it was given and, where there was less, what lies there.
#![allow(unsafe_code)]

use crate::mpi;
use crate::process::{self, channel};
use crate::thread;
use libc::{c_int, c_void};
use srd_virtual::calls::{Call, FORMS, kind_of};
use srd_virtual::layout::{Channel, Phase};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Most arguments of a function: `MPI_Sendrecv` and `MPI_Get_accumulate` have twelve.
const WORDS: usize = 12;

/// What a function is given.
type Words = [usize; WORDS];

/// The function of Fortran's `MPI_TYPE_SIZE`, or C's.
type TypeSize = unsafe extern "C-unwind" fn(usize, *mut c_int, *mut c_int) -> c_int;

thread_local! {
    /// The thread is in a call, which may make others.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// What it had computed when its last call returned that was no poll.
    static COMPUTED: Cell<u64> = const { Cell::new(0) };
    /// Where it is in what it repeats.
    static REPEATED: Cell<usize> = const { Cell::new(0) };
}

/// Whose function it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    C,
    /// All arguments are addresses.
    Fortran,
}

/// An argument that is a number.
fn number(language: Language, words: &Words, at: u8) -> c_int {
    let word = words[usize::from(at)];
    match language {
        Language::C => word as c_int,
        // SAFETY: Fortran gives the address of a number.
        Language::Fortran => unsafe { *(word as *const c_int) },
    }
}

/// MPICH's `MPI_DATATYPE_NULL`, whatever the language.
const NO_TYPE: usize = 0x0c00_0000;

/// `MPI_IN_PLACE` of Open MPI and of MPICH: what a count beside it says is of no meaning.
const IN_PLACE: [usize; 2] = [1, usize::MAX];

/// A function of MPI's that is looked for once.
struct Found(AtomicPtr<c_void>);

impl Found {
    const fn new() -> Found {
        Found(AtomicPtr::new(std::ptr::null_mut()))
    }

    fn get(&self, name: &CStr) -> *mut c_void {
        let mut found = self.0.load(Ordering::Relaxed);
        if found.is_null() {
            found = mpi::next(name);
            self.0.store(found, Ordering::Relaxed);
        }
        found
    }
}

/// Bytes of a buffer of so many elements of a type.
fn bytes(language: Language, words: &Words, count: u8, of: u8) -> u64 {
    static SIZE: [Found; 2] = [const { Found::new() }; 2];
    static NULL: Found = Found::new();
    let Some(count) = u64::try_from(number(language, words, count)).ok().filter(|count| *count > 0) else {
        return 0;
    };
    let of = words[usize::from(of)];
    let (size, no_type) = match language {
        Language::C => {
            let null = NULL.get(c"ompi_mpi_datatype_null") as usize;
            (SIZE[0].get(c"PMPI_Type_size"), of == null || of as u32 as usize == NO_TYPE)
        }
        Language::Fortran => {
            // SAFETY: Fortran gives the address of a number.
            let handle = unsafe { *(of as *const c_int) };
            (SIZE[1].get(c"mpi_type_size_"), handle <= 0 || handle as usize == NO_TYPE)
        }
    };
    if size.is_null() || no_type || IN_PLACE.contains(&words[0]) {
        return 0;
    }
    let (mut element, mut error) = (0, 0);
    // SAFETY: the function of that name takes this; C's leaves the last alone. What it does with a type that is none, it does with the call, too.
    unsafe { std::mem::transmute::<*mut c_void, TypeSize>(size)(of, &mut element, &mut error) };
    count * u64::try_from(element).unwrap_or(0)
}

/// What the thread is to compute before this call, as in the run that it repeats.
fn repeated(channel: &Channel, kind: u16) -> u64 {
    let Some(plan) = process::plan() else { return 0 };
    let own = thread::number().map_or(0, |(_, at)| at as u16);
    let at = REPEATED.get();
    let rest = plan.get(at..).unwrap_or_default();
    let Some(next) = rest.iter().position(|call| call.thread == own) else {
        let _ = channel.strayed.compare_exchange(0, at as u64 + 1, Ordering::AcqRel, Ordering::Acquire);
        return 0;
    };
    let call = &rest[next];
    if call.kind != kind {
        let _ =
            channel.strayed.compare_exchange(0, (at + next) as u64 + 1, Ordering::AcqRel, Ordering::Acquire);
        REPEATED.set(usize::MAX);
        return 0;
    }
    REPEATED.set(at + next + 1);
    call.before + call.within
}

/// Makes a call, and notes it.
fn call(kind: u16, language: Language, words: &Words, own: impl FnOnce() -> c_int) -> c_int {
    let noted = channel().filter(|channel| channel.keeps_calls != 0 || channel.repeats != 0);
    let Some(channel) = noted.filter(|_| mpi::phase() == Phase::Running && !INSIDE.get()) else {
        return own();
    };
    let Some((_, at)) = thread::number() else { return own() };
    let form = &FORMS[usize::from(kind)];
    INSIDE.set(true);
    if channel.repeats != 0 && !form.polls {
        thread::compute(repeated(channel, kind));
    }
    let (began, computed) = thread::account_of();
    let result = own();
    let (ended, computed_then) = thread::account_of();
    INSIDE.set(false);
    let mut noted = Call {
        kind,
        thread: at as u16,
        peer: form.peer.map_or(0, |at| (number(language, words, at).wrapping_add(1)).max(0) as u32),
        bytes: form.data.map_or(0, |(count, of)| bytes(language, words, count, of)),
        began,
        ended,
        ..Call::default()
    };
    if !form.polls {
        noted.before = computed - COMPUTED.replace(computed_then).min(computed);
        noted.within = computed_then - computed;
    }
    process::note(channel, &noted);
    result
}

/// What [`finalize`] has called is at its beginning.
pub fn finalize() {
    call(kind_of("MPI_Finalize"), Language::C, &[0; WORDS], || 0);
}

/// What MPI's functions return that are not there.
const NO_MPI: c_int = 16;

/// Stands in front of functions, in C and in Fortran.
macro_rules! calls {
    ($($name:ident $fortran:ident),* $(,)?) => {
        $(
            calls!(@ $name, $name, Language::C);
            calls!(@ $fortran, $name, Language::Fortran);
        )*
    };
    (@ $symbol:ident, $name:ident, $language:expr) => {
        /// As MPI has it.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub unsafe extern "C-unwind" fn $symbol(
            a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
            g: usize, h: usize, i: usize, j: usize, k: usize, l: usize,
        ) -> c_int {
            const KIND: u16 = kind_of(stringify!($name));
            // The name ends with a zero.
            let Ok(name) = CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) else {
                return NO_MPI;
            };
            static OWN: Found = Found::new();
            let own = OWN.get(name);
            if own.is_null() {
                return NO_MPI;
            }
            let words = [a, b, c, d, e, f, g, h, i, j, k, l];
            // SAFETY: the function of that name is given what our caller gave, in the same places.
            call(KIND, $language, &words, || unsafe {
                std::mem::transmute::<*mut c_void, Any>(own)(a, b, c, d, e, f, g, h, i, j, k, l)
            })
        }
    };
}

type Any = unsafe extern "C-unwind" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> c_int;

calls!(
    MPI_Send mpi_send_,
    MPI_Bsend mpi_bsend_,
    MPI_Ssend mpi_ssend_,
    MPI_Rsend mpi_rsend_,
    MPI_Isend mpi_isend_,
    MPI_Ibsend mpi_ibsend_,
    MPI_Issend mpi_issend_,
    MPI_Irsend mpi_irsend_,
    MPI_Recv mpi_recv_,
    MPI_Irecv mpi_irecv_,
    MPI_Sendrecv mpi_sendrecv_,
    MPI_Sendrecv_replace mpi_sendrecv_replace_,
    MPI_Mrecv mpi_mrecv_,
    MPI_Imrecv mpi_imrecv_,
    MPI_Probe mpi_probe_,
    MPI_Mprobe mpi_mprobe_,
    MPI_Iprobe mpi_iprobe_,
    MPI_Improbe mpi_improbe_,
    MPI_Start mpi_start_,
    MPI_Startall mpi_startall_,
    MPI_Wait mpi_wait_,
    MPI_Waitall mpi_waitall_,
    MPI_Waitany mpi_waitany_,
    MPI_Waitsome mpi_waitsome_,
    MPI_Test mpi_test_,
    MPI_Testall mpi_testall_,
    MPI_Testany mpi_testany_,
    MPI_Testsome mpi_testsome_,
    MPI_Barrier mpi_barrier_,
    MPI_Bcast mpi_bcast_,
    MPI_Gather mpi_gather_,
    MPI_Gatherv mpi_gatherv_,
    MPI_Scatter mpi_scatter_,
    MPI_Scatterv mpi_scatterv_,
    MPI_Allgather mpi_allgather_,
    MPI_Allgatherv mpi_allgatherv_,
    MPI_Alltoall mpi_alltoall_,
    MPI_Alltoallv mpi_alltoallv_,
    MPI_Alltoallw mpi_alltoallw_,
    MPI_Reduce mpi_reduce_,
    MPI_Allreduce mpi_allreduce_,
    MPI_Reduce_scatter_block mpi_reduce_scatter_block_,
    MPI_Reduce_scatter mpi_reduce_scatter_,
    MPI_Scan mpi_scan_,
    MPI_Exscan mpi_exscan_,
    MPI_Neighbor_allgather mpi_neighbor_allgather_,
    MPI_Neighbor_alltoall mpi_neighbor_alltoall_,
    MPI_Neighbor_alltoallv mpi_neighbor_alltoallv_,
    MPI_Ibarrier mpi_ibarrier_,
    MPI_Ibcast mpi_ibcast_,
    MPI_Igather mpi_igather_,
    MPI_Iscatter mpi_iscatter_,
    MPI_Iallgather mpi_iallgather_,
    MPI_Iallgatherv mpi_iallgatherv_,
    MPI_Ialltoall mpi_ialltoall_,
    MPI_Ialltoallv mpi_ialltoallv_,
    MPI_Ireduce mpi_ireduce_,
    MPI_Iallreduce mpi_iallreduce_,
    MPI_Ireduce_scatter_block mpi_ireduce_scatter_block_,
    MPI_Iscan mpi_iscan_,
    MPI_Put mpi_put_,
    MPI_Get mpi_get_,
    MPI_Accumulate mpi_accumulate_,
    MPI_Get_accumulate mpi_get_accumulate_,
    MPI_Fetch_and_op mpi_fetch_and_op_,
    MPI_Compare_and_swap mpi_compare_and_swap_,
    MPI_Rput mpi_rput_,
    MPI_Rget mpi_rget_,
    MPI_Win_create mpi_win_create_,
    MPI_Win_allocate mpi_win_allocate_,
    MPI_Win_free mpi_win_free_,
    MPI_Win_fence mpi_win_fence_,
    MPI_Win_post mpi_win_post_,
    MPI_Win_start mpi_win_start_,
    MPI_Win_complete mpi_win_complete_,
    MPI_Win_wait mpi_win_wait_,
    MPI_Win_lock mpi_win_lock_,
    MPI_Win_unlock mpi_win_unlock_,
    MPI_Win_lock_all mpi_win_lock_all_,
    MPI_Win_unlock_all mpi_win_unlock_all_,
    MPI_Win_flush mpi_win_flush_,
    MPI_Win_flush_all mpi_win_flush_all_,
    MPI_Comm_dup mpi_comm_dup_,
    MPI_Comm_split mpi_comm_split_,
    MPI_Comm_split_type mpi_comm_split_type_,
    MPI_Comm_create mpi_comm_create_,
    MPI_Comm_free mpi_comm_free_,
    MPI_Cart_create mpi_cart_create_,
);
