//! A libfabric provider over SRD, loaded by libfabric as `libsrd-fi.so` (FI_PROVIDER_PATH).
//!
//! What an operation does on the wire is decided in `srd-msg`, and packets move in `srd-net`. Here is the C side: what is
//! offered and negotiated (`capabilities.rs`, `hints.rs`, `attributes.rs`, `getinfo.rs`), one file for each kind of object, one for
//! each table of operations (`messages.rs`, `rma.rs`, `atomic.rs`), and the edge itself (`layout.rs`, `boundary.rs`). `engine.rs`
//! says who holds which lock and who makes progress.
//!
//! Objects handed to C are allocations of their own that begin with the C structure; a pointer from C is a pointer to the
//! object. Nothing allocates or looks anything up by name while operations are posted or completions are read. Nothing is
//! imported from libfabric: one library serves every release from 1.17 on.

mod address;
mod atomic;
mod attributes;
mod av;
mod bereaved;
mod boundary;
mod capabilities;
mod completions;
mod constants;
mod counter;
mod cq;
mod domain;
mod endpoint;
mod endpoint_calls;
mod engine;
mod engines;
mod entries;
mod environment;
mod eq;
mod fabric;
mod getinfo;
mod hints;
mod info;
pub mod layout;
mod messages;
mod movers;
mod mr;
mod open;
mod pieces;
mod poll_set;
mod provider;
mod random;
mod report;
mod rma;
mod shm_peers;
mod state;
mod wait;
mod wait_set;
mod waitable;

pub use provider::fi_prov_ini;
