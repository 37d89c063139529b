//! The messaging layer over SRD: what MPI and its like need above reliable datagrams that arrive in any order. Like all
//! layers below it, it has no sockets, clock or threads.
//!
//! A [`Domain`] works on a [`srd_device::Device`]. Requests go in, [`Done`] comes out of [`Domain::poll_done`], and
//! [`Domain::progress`] is called whenever the device has completed something. `docs/MESSAGES.md` says what endpoints say
//! to each other.
#![forbid(unsafe_code)]

mod api;
mod arrivals;
pub mod atomic_ops;
mod atomics;
mod buffers;
mod counters;
mod domain;
mod endpoint;
#[doc(hidden)]
pub mod fuzz;
mod grants;
mod header;
mod incoming;
mod iov;
mod kept;
mod lane;
mod matching;
mod one_sided;
mod operations;
mod peer;
mod placement;
mod read_rendezvous;
mod receiving;
mod regions;
mod sending;
mod sessions;
mod shared;
mod transmit;
mod work;

pub use api::*;
pub use counters::Counters;
pub use domain::Domain;
pub use lane::{Lane, LaneSend, LaneTraffic, Loans};
