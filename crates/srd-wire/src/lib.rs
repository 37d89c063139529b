//! Packet formats of Scalable Reliable Datagram.
//!
//! This crate knows what a packet says and how it is written as bytes; it keeps no state about peers and decides
//! nothing. State machines exchange the typed packets of [`packet`]; [`codec`] turns them into bytes and back at the
//! edge, and [`seal`] authenticates and encrypts those bytes where a pre-shared key is configured.
//! The format is specified in `docs/SPEC.md`.
#![forbid(unsafe_code)]

mod ack_box;
pub mod codec;
mod counters;
mod keyed_hash;
mod layout;
mod next_header;
pub mod packet;
pub mod seal;
pub mod units;

pub use ack_box::AckBox;
pub use keyed_hash::{KeyedHash, KeyedHasher};
pub use next_header::NextHeader;
pub use packet::*;
pub use units::*;
