//! UDP sockets: many datagrams per call through GSO and GRO, don't-fragment, drops counted, errors told apart.
//!
//! A [`SendSocket`] names its destination in each call, so that one socket serves all peers. A [`ReceiveSocket`]
//! is filled by the kernel with runs of equal datagrams from one sender; [`ReceiveBatch`] holds several such runs.

mod address;
mod control;
mod gather;
mod receive;
mod send;

pub use address::{Destination, is_free, path_mtu, scoped, source_towards};
pub use gather::{Gather, MAX_GATHER, MAX_SEND};
pub use receive::{MAX_RUNS, ReceiveBatch, ReceiveSocket, Run};
pub use send::{SendSocket, SocketError};
