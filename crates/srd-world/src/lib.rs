//! A deterministic world: many [`srd_device::Device`]s joined by a simulated network in virtual time.
//!
//! One seed decides everything: how many devices there are and how they are configured, what they send to whom, and
//! what goes wrong on the way. A run has two phases. In the *safety* phase packets are lost, delayed, duplicated and
//! damaged, processes die and come back, clocks jump, objects are destroyed with work in flight; the [`ledger`] watches
//! every completion and every access to memory, and stops the run at the first that breaks a rule. In the *liveness*
//! phase the faults stop: everything outstanding must complete within a time that follows from the configuration, a
//! fresh message between every pair must succeed, and then there must be silence.
//!
//! A failing seed replays: `cargo run --profile checked -p srd-world -- --seed N --trace`.
//!
//! What lies where: [`plan`] draws the flat structures that say what a run is made of; [`net`] is the network;
//! [`memory`] the memory of a process, with every access checked; [`node`] a process: its device, its clock and the
//! objects it has made; [`ledger`] the oracle; [`workload`] draws what the processes do; [`world`] is the event loop that
//! joins them, with `event` (what may happen) below it, and `engine` (when a process runs its device), `traffic` (packets), `posting`
//! (work), `polling` (completions), `faults` (what happens to it) and `liveness` (the liveness phase) beside it; [`shrink`] makes a
//! failing plan smaller; [`scenario`] holds named situations with their own measures.
#![forbid(unsafe_code)]

mod engine;
mod event;
mod faults;
pub mod ledger;
mod liveness;
pub mod memory;
pub mod messages;
pub mod net;
pub mod node;
pub mod pattern;
pub mod plan;
mod polling;
mod posting;
pub mod rng;
pub mod scenario;
pub mod shrink;
mod trace;
mod traffic;
pub mod workload;
pub mod world;

pub use plan::Plan;
pub use world::{Failure, Summary};

/// Runs `plan` from beginning to end. A panic is a violation like any other.
pub fn run(plan: &Plan, tracing: bool) -> Result<Summary, Box<Failure>> {
    match plan.talk.layer {
        0 => world::run(plan, tracing),
        _ => messages::run(plan, tracing),
    }
}
