//! A packet-level simulator of datacentre fabrics. Its hosts run the state machines that go on the wire
//! (`srd-device` and what is below it), with payloads that are mere lengths.
//!
//! One run is one thread and depends on its scenario and seed alone; sweeps run many at once.
#![forbid(unsafe_code)]

pub mod event_queue;
pub mod fabric;
pub mod figures;
pub mod flow;
pub mod frame;
pub mod htsim;
pub mod lower_bound;
mod rng;

mod foreign_flows;
mod intra_node;
pub mod memory_estimate;
pub mod messages;
pub mod msg_transport;
pub mod outcome;
pub mod process;
pub mod program;
pub mod record;
pub mod run;
pub mod scenario;
pub mod settings;
pub mod simulation;
pub mod srd_nic;
pub mod srd_transport;
pub mod sweep;
pub mod topology;

pub mod workload;

pub use srd_baselines::{input, transport, units};
