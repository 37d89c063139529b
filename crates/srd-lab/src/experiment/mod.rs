//! Experiments: the same traffic over SRD and over the kernel's TCP, on fabrics of the same shape, several times in turn.
//!
//! A file says what ([`plan`]; `check.rs` reads and checks it); [`campaign`] runs it: for each case, each repeat and each transport
//! a fabric is built, a worker process started in each host ([`run`]), and what came of it worked out ([`measure`]; what flows may
//! have, `fairness`). [`page`] shows it, under the names of [`columns`]; `labs.rs` sees to it that no fabric stays. Runs in which the
//! machine was too busy to be believed are told and made again.
//!
//! What is measured may also be an MPI job ([`job`]): alone, and then with flows beside it or with faults, in the same lab
//! (`interference.rs`); its processes are those of `launch.rs`.

pub mod campaign;
mod check;
pub mod columns;
mod cpu_usage;
mod fairness;
pub mod interference;
pub mod job;
mod labs;
mod launch;
pub mod measure;
pub mod page;
pub mod plan;
pub mod run;
mod traffic;
