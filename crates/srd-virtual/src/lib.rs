//! What a process of an unmodified program and the simulator of its fabric have in common: a piece of shared memory for each
//! process, by which packets go to and fro, and turns.
//!
//! One of all that share the memory acts at a time: the simulator, or one thread of one process, which has the *turn*. A thread has it until
//! it *parks*: it waits for packets, or until a time, or both, and says so in its [`Slot`]. The simulator then goes on, and when what the
//! thread waits for has come it sets the process's clock and gives it the turn. So time passes in the simulator alone, a process sees
//! no packet late or early, and it makes no difference on what machine and beside what load all of this runs.
//!
//! A thread that has the turn and waits for something else than the fabric (its launcher, a pipe, a lock that another thread has) would stop
//! the world. The simulator takes the turn from it once nothing else of the job moves ([`Status::Outside`]); it asks for another when it
//! comes back.
//!
//! `layout` is the memory, `calls` what a rank notes of its calls of MPI in it, `api` what the preloaded library gives to whoever moves packets in the process, `world` the simulator's side,
//! `job` what it sees of the processes from outside.
#![deny(unsafe_code)]

pub mod api;
pub mod calls;
pub mod futex;
pub mod job;
pub mod layout;
pub mod world;

pub use calls::Call;
pub use layout::{Channel, Compute, Kind, Phase, Place, Slot, Status};

/// Names the file of shared memory to processes.
pub const WORLD_VARIABLE: &str = "SRD_SIM";
/// Which of its pieces is the process's.
pub const RANK_VARIABLE: &str = "SRD_SIM_RANK";
/// The function of the preloaded library that gives its [`api::Api`].
pub const API_SYMBOL: &std::ffi::CStr = c"srd_virtual_api";
