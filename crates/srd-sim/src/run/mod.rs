//! A run: from a scenario to what came of it.
//!
//! `offer` is what the fabric offers, `lower_bound` the best that could be; `simulation` is what happens, `drive` takes it to its
//! end, with several `threads` if there are, `outcome` is what it came to. `programs` runs programs over SRD's messaging layer by themselves,
//! `processes` those of the user's, and in a `co_simulation` another simulator's ranks send and receive. `memory_estimate` says
//! before what a run will need.

mod co_simulation;
mod drive;
mod lower_bound;
mod memory_estimate;
mod offer;
mod outcome;
mod processes;
mod programs;
mod simulation;
mod threads;

pub use co_simulation::{CoSimulation, JobTotals, Turn, with_jobs};
pub use drive::{Ran, drive, prepare, prepare_hosts, run, run_watched};
pub(crate) use drive::{complaints, is_plain};
pub use memory_estimate::{MemoryEstimate, available_memory};
pub use offer::Offer;
pub(crate) use offer::costs;
pub use outcome::{Meter, OfWorkload, Outcome, Times, peak_memory};
pub use processes::{End, Launcher, Lived, Onlooker, Order, of_processes, run_processes};
pub use programs::{Ended, place, to_end};
pub(crate) use simulation::FlowState;
pub use simulation::Simulation;
