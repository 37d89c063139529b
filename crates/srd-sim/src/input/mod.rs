//! Files that say what a run is: scenarios, which are this project's own (`scenario`), and [`htsim`]'s.

pub mod htsim;
mod scenario;

pub use scenario::{MOST_PROCESSES, Scenario, all_keys};
pub use srd_baselines::input::{InputError, read_text};
