//! Calls of MPI. A program that polls in one call after another goes on between them, however often it finds nothing; within one call it waits
//! (`thread.rs`). When each began and returned, and what was computed before it, is noted in the shared memory, if somebody wants that; and the other way
//! round, computing that another run has noted is put on the clock before the same call.
//!
//! All of these functions are of numbers and addresses, at most [`WORDS`] of them, so one function may stand in front of each: it hands over what
//! it was given and, where there was less, what lies there.
#![allow(unsafe_code)]

use crate::communicators;
use crate::mpi;
use crate::process::{self, channel};
use crate::requests;
use crate::thread;
use libc::{c_int, c_void};
use srd_virtual::calls::{ANYONE, Call, FORMS, Form, kind_of};
use srd_virtual::layout::{Channel, Phase, SLOTS};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Most arguments of a function: `MPI_Rget_accumulate` has thirteen.
const WORDS: usize = 13;

/// What a function is given.
pub type Words = [usize; WORDS];

type TypeSize = unsafe extern "C-unwind" fn(usize, *mut c_int) -> c_int;

thread_local! {
    /// What it had computed when its last call returned that was no poll.
    static COMPUTED: Cell<u64> = const { Cell::new(0) };
}

/// Where the threads of each slot are in what they repeat.
static REPEATED: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

/// An argument that is a number.
fn number(words: &Words, at: u8) -> c_int {
    words[usize::from(at)] as c_int
}

/// MPICH's `MPI_DATATYPE_NULL`.
const NO_TYPE: u32 = 0x0c00_0000;

/// `MPI_IN_PLACE` of Open MPI and of MPICH: what a count of what is sent says beside it, the second argument, is of no meaning.
const IN_PLACE: [usize; 2] = [1, usize::MAX];
const SENT: u8 = 1;

/// A function of MPI's that is looked for once.
pub struct Found(AtomicPtr<c_void>);

impl Found {
    pub const fn new() -> Found {
        Found(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub fn get(&self, name: &CStr) -> *mut c_void {
        let mut found = self.0.load(Ordering::Relaxed);
        if found.is_null() {
            found = mpi::next(name);
            self.0.store(found, Ordering::Relaxed);
        }
        found
    }
}

/// Bytes of a buffer of so many elements of a type; `None` if these say nothing.
fn bytes(words: &Words, count_of: u8, of: u8) -> Option<u64> {
    let count = u64::try_from(number(words, count_of)).ok().filter(|count| *count > 0)?;
    if count_of == SENT && IN_PLACE.contains(&words[0]) {
        return None;
    }
    Some(count * element(words[usize::from(of)])?)
}

/// The same of as many counts as the communicator has ranks.
fn sum(words: &Words, counts: u8, of: u8, ranks: usize) -> Option<u64> {
    let counts = words[usize::from(counts)] as *const c_int;
    if counts.is_null() || IN_PLACE.contains(&words[0]) {
        return None;
    }
    // SAFETY: the function that is called reads as many there.
    let counts = (0..ranks).map(|at| unsafe { counts.add(at).read_unaligned() });
    Some(counts.map(|count| count.max(0) as u64).sum::<u64>() * element(words[usize::from(of)])?)
}

/// Bytes of an element of a type; `None` if it is none.
fn element(of: usize) -> Option<u64> {
    static SIZE: Found = Found::new();
    let size = SIZE.get(c"PMPI_Type_size");
    if size.is_null() || of == open_mpi_no_type() as usize || of as u32 == NO_TYPE {
        return None;
    }
    let mut element = 0;
    // SAFETY: the function of that name takes this. What it does with a type that is none, it does with the call, too.
    unsafe { std::mem::transmute::<*mut c_void, TypeSize>(size)(of, &mut element) };
    u64::try_from(element).ok()
}

/// What is noted of who takes part in a call and of what goes from one to the other.
fn described(kind: u16, form: &Form, words: &Words) -> Call {
    let members = form.comm.map(|at| communicators::members(words[usize::from(at)]));
    let rank = |at: u8| match (number(words, at), &members) {
        (rank @ 0.., Some(members)) => members.in_world(rank as u32).wrapping_add(1),
        (rank @ 0.., None) => rank as u32 + 1,
        (rank, _) if rank == any_source() => ANYONE,
        _ => 0,
    };
    let of_buffer = [form.data, form.received].into_iter().flatten();
    let of_buffer = of_buffer.into_iter().find_map(|(count, of)| bytes(words, count, of));
    let ranks = members.as_ref().map_or(0, |members| members.count());
    let of_all = form.counts.and_then(|(counts, of)| sum(words, counts, of, ranks));
    Call {
        kind,
        peer: form.peer.map_or(0, rank),
        source: form.source.map_or(0, rank),
        comm: members.as_ref().map_or(0, |members| members.number),
        bytes: of_buffer.or(of_all).unwrap_or(0),
        ..Call::default()
    }
}

/// What the thread is to compute before this call, as in the run that it repeats.
fn repeated(channel: &Channel, slot: usize, kind: u16) -> u64 {
    let Some(plan) = process::plan() else { return 0 };
    let at = REPEATED[slot].load(Ordering::Relaxed);
    let rest = plan.get(at..).unwrap_or_default();
    let next = rest.iter().position(|call| usize::from(call.thread) == slot).unwrap_or(rest.len());
    match rest.get(next).filter(|call| call.kind == kind) {
        Some(call) => {
            REPEATED[slot].store(at + next + 1, Ordering::Relaxed);
            call.before + call.within
        }
        None => {
            let same = at.saturating_add(next) as u64;
            let _ = channel.strayed.compare_exchange(
                0,
                same.saturating_add(1),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            REPEATED[slot].store(usize::MAX, Ordering::Relaxed);
            0
        }
    }
}

/// By it a program may wait until others have written into its window.
const SYNC: u16 = kind_of("MPI_Win_sync");

/// Makes a call, and notes it unless it is made by another one.
fn call(kind: u16, words: &Words, own: impl FnOnce() -> c_int) -> c_int {
    let form = &FORMS[usize::from(kind)];
    let within = thread::begin_call(form.glances);
    let noted = channel().filter(|channel| channel.keeps_calls != 0 || channel.repeats != 0);
    let result = match (noted.filter(|_| mpi::phase() == Phase::Running && !within), thread::number()) {
        (Some(channel), Some((_, at))) => {
            if channel.repeats != 0 && !form.polls {
                thread::compute(repeated(channel, at, kind));
            }
            let before = (channel.keeps_calls != 0)
                .then(|| (described(kind, form, words), requests::given(form, words)));
            let (began, computed) = thread::account_of();
            let result = own();
            let (ended, computed_then) = thread::account_of();
            let mut spent = (0, 0);
            if !form.polls {
                spent.0 = computed - COMPUTED.replace(computed_then).min(computed);
                spent.1 = computed_then.saturating_sub(computed);
            }
            if let Some((call, given)) = before {
                let (before, within) = spent;
                let call = Call { thread: at as u16, began, ended, before, within, ..call };
                if let Some(place) = process::note(channel, &call) {
                    requests::ended(form, words, &given, place);
                    requests::begun(form, words, place);
                }
                if [kind_of("MPI_Comm_free"), kind_of("MPI_Comm_disconnect")].contains(&kind) {
                    communicators::forget();
                }
            }
            result
        }
        _ => own(),
    };
    if kind == SYNC && !within {
        thread::glance();
    }
    thread::end_call(within);
    result
}

/// Whether the MPI is Open MPI: its handles are addresses, those of others are numbers.
pub fn is_open_mpi() -> bool {
    !open_mpi_no_type().is_null()
}

/// `MPI_ANY_SOURCE` of Open MPI, and of MPICH.
fn any_source() -> c_int {
    if is_open_mpi() { -1 } else { -2 }
}

/// `MPI_DATATYPE_NULL` of Open MPI; null with another MPI.
fn open_mpi_no_type() -> *mut c_void {
    static FOUND: OnceLock<usize> = OnceLock::new();
    *FOUND.get_or_init(|| mpi::variable(c"ompi_mpi_datatype_null") as usize) as *mut c_void
}

/// What [`finalize`] has called is at its beginning.
pub fn finalize() {
    call(kind_of("MPI_Finalize"), &[0; WORDS], || 0);
}

/// Stands in front of functions, and of those that the profiling interface has beside each, by which Fortran's are made.
macro_rules! calls {
    ($($name:ident),* $(,)?) => {
        $(
            calls!(@ $name, concat!("MPI_", stringify!($name)));
            calls!(@ $name, concat!("PMPI_", stringify!($name)));
        )*
        // All that are noted, but for [`finalize`].
        const _: () = assert!([$(stringify!($name)),*].len() + 1 == FORMS.len());
    };
    (@ $name:ident, $symbol:expr) => {
        const _: () = {
            /// As MPI has it.
            ///
            /// # Safety
            /// As that.
            #[unsafe(export_name = $symbol)]
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C-unwind" fn function(
                a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize,
                h: usize, i: usize, j: usize, k: usize, l: usize, m: usize,
            ) -> c_int {
                const KIND: u16 = kind_of(concat!("MPI_", stringify!($name)));
                static OWN: Found = Found::new();
                // The name ends with a zero.
                let name = CStr::from_bytes_with_nul(concat!($symbol, "\0").as_bytes());
                let own = name.map_or(std::ptr::null_mut(), |name| OWN.get(name));
                if own.is_null() {
                    return mpi::NO_MPI;
                }
                let words = [a, b, c, d, e, f, g, h, i, j, k, l, m];
                // SAFETY: the function of that name is given what our caller gave, in the same places.
                call(KIND, &words, || unsafe {
                    std::mem::transmute::<*mut c_void, Any>(own)(a, b, c, d, e, f, g, h, i, j, k, l, m)
                })
            }
        };
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
    usize,
) -> c_int;

calls!(
    Send,
    Bsend,
    Ssend,
    Rsend,
    Isend,
    Ibsend,
    Issend,
    Irsend,
    Recv,
    Irecv,
    Sendrecv,
    Sendrecv_replace,
    Mrecv,
    Imrecv,
    Probe,
    Mprobe,
    Iprobe,
    Improbe,
    Start,
    Startall,
    Wait,
    Waitall,
    Waitany,
    Waitsome,
    Test,
    Testall,
    Testany,
    Testsome,
    Barrier,
    Bcast,
    Gather,
    Gatherv,
    Scatter,
    Scatterv,
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Alltoallw,
    Reduce,
    Allreduce,
    Reduce_scatter_block,
    Reduce_scatter,
    Scan,
    Exscan,
    Neighbor_allgather,
    Neighbor_alltoall,
    Neighbor_alltoallv,
    Ibarrier,
    Ibcast,
    Igather,
    Iscatter,
    Iallgather,
    Iallgatherv,
    Ialltoall,
    Ialltoallv,
    Ireduce,
    Iallreduce,
    Ireduce_scatter_block,
    Iscan,
    Put,
    Get,
    Accumulate,
    Get_accumulate,
    Fetch_and_op,
    Compare_and_swap,
    Rput,
    Rget,
    Win_create,
    Win_allocate,
    Win_free,
    Win_fence,
    Win_post,
    Win_start,
    Win_complete,
    Win_wait,
    Win_lock,
    Win_unlock,
    Win_lock_all,
    Win_unlock_all,
    Win_flush,
    Win_flush_all,
    Comm_dup,
    Comm_split,
    Comm_split_type,
    Comm_create,
    Comm_free,
    Cart_create,
    Win_sync,
    Win_flush_local_all,
    Win_flush_local,
    Win_test,
    Request_get_status,
    Cancel,
    Request_free,
    Comm_disconnect,
    Buffer_detach,
    Comm_idup,
    Comm_dup_with_info,
    Win_create_dynamic,
    Comm_create_group,
    Win_allocate_shared,
    Intercomm_create,
    Iexscan,
    Ireduce_scatter,
    Neighbor_allgatherv,
    Ineighbor_allgather,
    Ineighbor_alltoall,
    Neighbor_alltoallw,
    Ineighbor_allgatherv,
    Raccumulate,
    Igatherv,
    Iscatterv,
    Ialltoallw,
    Ineighbor_alltoallv,
    Ineighbor_alltoallw,
    Rget_accumulate,
);
