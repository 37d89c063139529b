//! htsim's input files: connection matrices (`.cm`), topologies (`.topo`), and the topology that it takes where none is
//! given. docs/SCENARIOS.md says what is supported and where we deviate; formats and behaviour were read from
//! ultraethernet/uet-htsim, commit 40ccb0526bb6.

pub mod cm_file;
mod cm_line;
mod default_tree;
mod tokens;
pub mod topo_file;

pub use cm_file::{FailedLink, Matrix};
pub use default_tree::default_tree;
