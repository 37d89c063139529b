//! Fabrics of network namespaces: hosts, leaves, spines and cores, each a namespace of its own, with links that have a
//! rate and a queue, and routers that choose among equal ways by a hash of addresses and ports as switches do. Links and
//! hosts can be made to fail in many ways. Nothing of it lies in the machine's own network namespace.
//!
//! ```no_run
//! # fn main() -> Result<(), srd_lab::Error> {
//! use srd_lab::{Fault, Lab, Shape};
//! let lab = Lab::up("mine", &Shape::default())?;
//! let status = lab.command(0, "ping").args(["-c", "3"]).arg(lab.hosts()[5].fabric_address.to_string()).status();
//! let fault = lab.fault(Fault::Blackhole { at: "spine1".into() })?;
//! println!("{:?} {:?}", status, lab.status()?.links);
//! lab.heal(fault)?;
//! lab.down()
//! # }
//! ```
#![deny(unsafe_code)]

mod bpf;
mod counters;
mod emulator;
mod enter;
mod error;
pub mod experiment;
mod fault;
mod fault_injection;
pub mod flow;
mod helper;
mod iproute;
mod lab;
mod mpi;
mod namespace;
mod offload;
mod plan;
mod private;
mod process;
mod setup;
mod shape;
mod shaping;
mod state;
mod tap;
mod target;

pub use counters::{Counters, Sampler};
pub use emulator::{Lateness, emulate};
pub use error::{Error, Result};
pub use fault::{ActiveFault, Fault};
pub use lab::{FaultStatus, Found, Host, Lab, LinkStatus, Status};
pub use mpi::{Mpi, MpiJob, Transport};
pub use plan::{Direction, End, FABRIC_DEVICE, Link, MANAGEMENT_DEVICE, Node, Plan, Role};
pub use shape::Shape;
