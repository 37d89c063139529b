//! The same data with `SRD_SHM=off`: by packets, also between endpoints of one host.

#[path = "data.rs"]
mod data;
