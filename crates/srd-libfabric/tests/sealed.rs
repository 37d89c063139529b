//! The same data with a key: every packet is sealed.

#[path = "data.rs"]
mod data;
