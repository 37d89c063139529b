//! Where a call of MPI begins. A program that polls in one call after another goes on between them, however often it finds nothing; within one call it
//! waits (`thread.rs`). What a call does is the MPI's own business: each takes numbers and pointers, words, which go on to it.
#![allow(unsafe_code)]

use crate::{mpi, thread};
use libc::{c_int, c_void};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The MPI's own function of a name, once it is found.
struct Function {
    name: &'static str,
    found: AtomicPtr<c_void>,
}

impl Function {
    /// The name ends with a zero.
    const fn new(name: &'static str) -> Function {
        Function { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[inline]
    fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.find() } else { found }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let found = CStr::from_bytes_with_nul(self.name.as_bytes()).map_or(std::ptr::null_mut(), mpi::next);
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! word {
    ($argument:ident) => {
        usize
    };
}

macro_rules! calls {
    (glances $glances:literal; $($arguments:tt: $($name:ident)+;)*) => {
        $(calls!(@of $glances $arguments $($name)+);)*
    };
    (@of $glances:literal $arguments:tt $($name:ident)+) => {
        // As the profiling interface and Fortran call it, too.
        $(
            calls!(@one $glances $arguments concat!("MPI_", stringify!($name)));
            calls!(@one $glances $arguments concat!("PMPI_", stringify!($name)));
        )+
    };
    (@one $glances:literal ($($argument:ident)+) $name:expr) => {
        const _: () = {
            /// As MPI has it.
            ///
            /// # Safety
            /// As that.
            #[unsafe(export_name = $name)]
            unsafe extern "C-unwind" fn call($($argument: usize),+) -> c_int {
                static OWN: Function = Function::new(concat!($name, "\0"));
                let own = OWN.get();
                if own.is_null() {
                    return mpi::NO_MPI;
                }
                let within = thread::begin_call($glances);
                // SAFETY: MPI's function of that name takes so many words, which are what our caller gave.
                let result = unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($(word!($argument)),+) -> c_int>(own)
                        ($($argument),+)
                };
                thread::end_call(within);
                result
            }
        };
    };
}

// Calls that may be over without anything having happened, and those that wait or begin something. All are of MPI 3, which all MPIs have: a program that finds a name here believes that its MPI has it.
calls! {
    glances true;
    (a): Win_sync Win_flush_all Win_flush_local_all Win_unlock_all;
    (a b): Win_flush Win_flush_local Win_unlock Win_lock_all Win_test;
    (a b c): Test Request_get_status;
    (a b c d): Testall Win_lock;
    (a b c d e): Testany Testsome Iprobe;
    (a b c d e f): Improbe;
}

calls! {
    glances false;
    (a): Barrier Cancel Start Request_free Comm_free Comm_disconnect Win_complete Win_wait Win_free;
    (a b): Wait Startall Ibarrier Comm_dup Buffer_detach Win_fence;
    (a b c): Waitall Comm_create Comm_idup Comm_dup_with_info Win_post Win_start Win_create_dynamic;
    (a b c d): Waitany Probe Comm_split Comm_create_group;
    (a b c d e): Waitsome Mprobe Mrecv Imrecv Bcast Comm_split_type;
    (a b c d e f): Send Ssend Bsend Rsend Ibcast Allreduce Scan Exscan Reduce_scatter Reduce_scatter_block
        Win_create Win_allocate Win_allocate_shared Cart_create Intercomm_create;
    (a b c d e f g): Recv Isend Issend Ibsend Irsend Irecv Reduce Iallreduce Iscan Iexscan Ireduce_scatter Ireduce_scatter_block
        Allgather Alltoall Neighbor_allgather Neighbor_alltoall Fetch_and_op Compare_and_swap;
    (a b c d e f g h): Put Get Gather Scatter Allgatherv Neighbor_allgatherv
        Ireduce Iallgather Ialltoall Ineighbor_allgather Ineighbor_alltoall;
    (a b c d e f g h i): Rput Rget Accumulate Sendrecv_replace Gatherv Scatterv Alltoallv Alltoallw Neighbor_alltoallv
        Neighbor_alltoallw Igather Iscatter Iallgatherv Ineighbor_allgatherv;
    (a b c d e f g h i j): Raccumulate Igatherv Iscatterv Ialltoallv Ialltoallw Ineighbor_alltoallv Ineighbor_alltoallw;
    (a b c d e f g h i j k l): Sendrecv Get_accumulate;
    (a b c d e f g h i j k l m): Rget_accumulate;
}
