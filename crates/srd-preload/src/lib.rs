//! The clock of a process whose network is simulated: a library that LD_PRELOAD puts in front of the C library.
//!
//! Until the provider has taken the process's place in the fabric (`api.rs`) everything is as it was. From then on time is the
//! simulation's in all threads that call the provider, and in the one that opened it (`process.rs`, `thread.rs`); they sleep there, too
//! (`clocks.rs`, `waits.rs`, `tsc.rs`), and what they write to others is noted (`writes.rs`).
//! Programs of no MPI find each other by sockets (`sockets.rs`).
//! MPI's beginning and end are noted, too (`mpi.rs`), and where its calls begin (`calls.rs`; who takes part, `communicators.rs`, and what has ended in them, `requests.rs`): between them two runs see the same times. Nobody is told that he has others on his host (`pmix.rs`). Threads that have nothing to do with the provider, such as those of launchers' libraries, keep the time of
//! the machine.
//!
//! Threads that call MPI at once wait for each other in the simulation, too, and every thread that takes part does so until a time
//! (`locks.rs`, `barriers.rs`, `futexes.rs`, `births.rs`, `fellows.rs`, `crowd.rs`). What stands behind a function here is found by name (`own.rs`).
//!
//! Not covered: timers (`timerfd`, `setitimer`), and calls that a program makes without the C library.
#![deny(unsafe_code)]

mod api;
mod barriers;
mod births;
mod calls;
mod clocks;
mod communicators;
mod crowd;
mod fellows;
mod futexes;
mod locks;
mod mpi;
mod own;
mod pmix;
mod process;
mod real;
mod requests;
mod sockets;
mod thread;
mod tsc;
mod waits;
mod writes;
