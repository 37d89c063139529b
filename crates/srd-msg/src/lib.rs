//! The messaging layer over SRD: what MPI and its like need above reliable datagrams that arrive in any order. Like all
//! layers below it, it has no sockets, clock or threads.
#![forbid(unsafe_code)]

mod api;
pub mod atomic_ops;
mod domain;

pub use api::*;
pub use domain::Domain;
