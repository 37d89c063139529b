//! The same threads with `SRD_SHM=off`: by packets, also between endpoints of one host.

#[path = "threads.rs"]
mod threads;
