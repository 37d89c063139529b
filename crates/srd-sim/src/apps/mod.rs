//! What is sent: flows, and programs of processes that talk as MPI's do.
//!
//! `flow` is all that a run is to move, [`workload`] makes flows (of random numbers from `draw`). Each process of a program (a rank)
//! works through a script of sends, receives and waits, or through a graph of operations. `script` says what a step is, `graph`
//! what an operation is, `rank` works through either, over whatever carries its messages (`messaging`). Scripts are written by
//! `writer`, with the collective operations of `collective` and `rooted`, for known programs ([`benchmarks`]) or from traces ([`goal`], [`calls`]);
//! graphs for steps of [`training`]; [`catalogue`] names them all.
//!
//! Where real programs run, `jobs` says whose a rank is.
//!
//! Marks come in pairs: the time between a pair's first and its second is one measurement (`measure`).

pub mod benchmarks;
pub mod calls;
pub mod catalogue;
mod collective;
mod draw;
mod flow;
pub mod goal;
mod graph;
mod jobs;
mod measure;
mod messaging;
mod rank;
mod rooted;
mod script;
#[cfg(test)]
mod tests;
pub mod training;
pub mod workload;
mod writer;

pub use draw::Draw;
pub use flow::{Flow, Place, Size, Start, Traffic, TrafficFault, Trigger, TriggerKind};
pub(crate) use flow::{MAX_BYTES, MAX_FLOWS, Program};
pub use jobs::Jobs;
pub(crate) use measure::Summary;
pub(crate) use messaging::{Completion, Messaging};
pub(crate) use rank::Rank;
pub use script::Script;
