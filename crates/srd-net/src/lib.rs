//! Runs a device over UDP: the thin edge between the state machines of the crates below and a host.
//!
//! An [`Instance`] owns a [`srd_device::Device`] and its sockets. Whatever a program does with the device goes
//! through [`Instance::with`]; completions come through [`Instance::poll_cq`], or after [`Instance::wait`]. Packets
//! move whenever the program polls, and in a thread that sleeps on the sockets while it does not (see `progress/`).
//!
//! The way of a packet out: `core.rs` takes it from the device, `transmit.rs` encodes it, seals it and joins it with
//! its neighbours, `fault.rs` may spoil it, `source_ports.rs` sends it through `sys/udp`. The way in: `sys/udp`,
//! `receive.rs`, the device.
//!
//! [`Options`] are read from the environment; [`VARIABLES`] lists all of them.
#![deny(unsafe_code)]

pub mod accelerator;
mod address;
mod beside;
mod clock;
mod copies;
mod core;
mod core_lock;
mod counting;
pub mod fault;
#[doc(hidden)]
pub mod frame;
mod hints;
pub mod host;
mod instance;
pub mod key_file;
mod last_panic;
mod link_senders;
pub mod log;
mod neighbours;
mod notify;
mod open;
pub mod options;
mod packet_wire;
mod payload;
mod progress;
mod progress_thread;
mod receive;
mod seats;
mod shared;
mod short_ring;
mod simulated;
mod slots;
mod source_ports;
mod stats;
pub mod stats_directory;
mod stats_socket;
mod sync;
mod sys;
mod trace;
mod transmit;
mod variables;

pub use self::core::CoreCounters;
pub use address::{AddressError, LocalAddress, is_private};
pub use beside::{Beside, Locked};
pub use fault::{FaultCounters, FaultPlan};
pub use instance::*;
pub use notify::Subscription;
pub use open::OpenError;
pub use open::{check, random};
pub use options::{Address, LogLevel, Options, OptionsError, ProgressMode, Warning, Wire};
pub use packet_wire::{NoWire, check as check_wire};
pub use progress::poll_activity::ProgressCounters;
pub use progress_thread::{LONGEST_DRAIN, LONGEST_SILENCE};
pub use receive::ReceiveCounters;
pub use seats::Seat;
pub use shared::Unavailable;
pub use slots::SLOTS;
pub use stats::{
    Counters, LayerStats, LocalPeerStats, MOST_LISTED_PATHS, MOST_PEERS, PathStates, PathStats,
    PeerPathStats, PeerStats, Stats, named,
};
pub use sync::this_thread;
pub use sys::event::EventFd;
pub use sys::memory::{Buffer, is_there};
pub use sys::udp;
pub use transmit::TransmitCounters;
pub use variables::{ReadBy, VARIABLES, Variable};

/// Confines the calling thread to one core. For benchmarks.
pub fn confine_thread_to(core: usize) -> std::io::Result<()> {
    sys::process::Cores::one(core).confine_thread()
}
