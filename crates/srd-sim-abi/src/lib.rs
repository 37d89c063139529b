//! `libsrd-sim.so`: a fabric of `srd-sim` under another simulator, one of training say, as a C interface. `include/srd_sim.h` is what programs
//! see, and says what each function does.
//!
//! `abi` is the edge: arguments of C, panics, threads, and who is called back. `session` is what a program has opened: jobs, the run, what it
//! is to be told. `held` keeps the scenario as long as its simulation.
#![deny(unsafe_code)]

mod abi;
mod held;
mod session;

pub use abi::*;
