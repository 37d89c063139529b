//! A packet-level simulator of datacentre fabrics. Its hosts run the state machines that go on the wire
//! (`srd-device` and what is below it), with payloads that are mere lengths.
//!
//! One run is one thread and depends on its scenario and seed alone; sweeps run many at once.
//!
//! Each folder is a room with one door, and uses only those before it: [`net`] is the network, [`apps`] what is to be sent, [`hosts`]
//! who carries it, [`input`] the files that say so, [`run`] what comes of it, [`record`] what a run leaves in a directory, [`sweep`]
//! many runs, [`figures`] what others have published.
#![forbid(unsafe_code)]

pub mod apps;
pub mod figures;
pub mod hosts;
pub mod input;
pub mod net;
pub mod record;
pub mod run;
pub mod sweep;

pub use srd_baselines::units;
