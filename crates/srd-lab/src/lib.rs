//! A real Linux fabric out of network namespaces, with faults, and measured flows across it.

pub mod flow;
