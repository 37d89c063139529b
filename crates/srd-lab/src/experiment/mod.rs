//! Experiments: the same traffic over SRD and over the kernel's TCP, on fabrics of the same shape, several times in turn.
//!
//! A file says what ([`plan`]); [`campaign`] runs it: for each case, each repeat and each transport a fabric is built, a worker
//! process started in each host ([`run`]), and what came of it worked out ([`measure`]). Runs in which the machine was too busy
//! to be believed are told and made again.

pub mod campaign;
pub mod measure;
pub mod plan;
mod processor;
pub mod run;
mod traffic;
