//! A packet-level simulator of datacentre fabrics. Its hosts run the state machines that go on the wire
//! (`srd-device` and what is below it), with payloads that are mere lengths.
//!
//! One run is one thread and depends on its scenario and seed alone; sweeps run many at once.
#![forbid(unsafe_code)]

pub mod flow;
pub mod settings;
pub mod topology;
pub mod units;
pub mod event_queue;
pub mod fabric;
pub mod frame;
pub mod simulation;
pub mod srd_transport;
pub mod transport;
