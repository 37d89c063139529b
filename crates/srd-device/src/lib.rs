//! The EFA device model over SRD: queue pairs, completion queues, address handles, memory regions, and what each
//! verb means. Like the transport below it, it has no sockets, clock or threads.
//!
//! Semantics follow the EFA kernel driver's `SRD.txt` and `efa_io_defs.h`, and libefa's manual pages; each clause is
//! cited where it is implemented and held by a test named for it.
//!
//! A [`Device`] is an [`srd_proto::Endpoint`] and the objects that it calls. A program posts work requests and polls
//! completion queues; whoever drives the device brings packets and time.
#![deny(unsafe_code)]

pub mod accelerator;
mod address_handle;
pub mod api;
mod async_event;
mod completion_counter;
mod completion_queue;
mod counters;
mod deferred;
mod device;
mod divert;
mod header_memory;
mod host_memory;
mod inbound;
mod keepalive;
mod length_memory;
mod memory_region;
mod objects;
mod queue_pair;
mod read_responses;
mod receive_queue;
mod requester;
mod responder;
mod routing_header;
mod send_queue;
pub mod slab;
mod staged;
mod status;
mod store;
#[cfg(test)]
mod tests;
mod token;
mod transport;
mod vec_memory;

pub use api::*;
pub use completion_counter::{CompletionCounter, Counted};
pub use counters::Counters;
pub use device::Device;
pub use header_memory::{HeaderMemory, HeaderPayload};
pub use host_memory::{Check, Copies, HostMemory, HostPayload, Read};
pub use length_memory::{Length, LengthMemory};
pub use memory_region::DESCRIPTOR_BITS;
pub use routing_header::ROUTING_HEADER_LEN;
pub use srd_proto::{Followers, PeerLoss, Received};
pub use staged::{DeviceEnd, StagedFaults};
pub use status::{describe, ibv_wc_status};
pub use store::Store;
pub use vec_memory::{VecMemory, VecPayload};
