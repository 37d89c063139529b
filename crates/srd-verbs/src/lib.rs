//! A software EFA: `libibverbs.so.1` and `libefa.so.1` for programs written for the Elastic Fabric Adapter.
//!
//! The functions here are what such programs call by name or through the headers' inline code; what a verb means is
//! decided in `srd-device`, and packets move in `srd-net`. `link.sh` makes the two shared libraries of this crate,
//! `exports/` says what they export and under which versions. `docs/design/efa-verbs.md` holds what
//! programs expect.
//!
//! Objects handed to C are allocations of their own that begin with the C structure; a pointer from C is a pointer to
//! the object. Nothing allocates or looks anything up while work is posted or completions are polled.

mod acknowledgements;
mod ah;
mod async_event;
mod async_queue;
mod boundary;
mod comp_channel;
mod comp_cntr;
mod context;
mod cq;
mod cq_iterator;
mod descriptors;
mod device_list;
mod dma_buf;
mod doorbells;
mod efadv;
mod event_queue;
pub mod layout;
mod local_address;
mod machine;
mod mr;
mod objects;
mod open;
mod pages;
mod pd;
mod poll_lock;
mod profile;
mod qp;
mod queue_memory;
mod start;
mod status;
mod strict;
mod strings;
mod stubs;
mod sysfs;
mod sysfs_reader;
mod wr_builder;
mod write_trap;
