//! What stands here for what the included sources find in their own crates.

pub mod core;
pub mod memory;
pub mod process_identity;
pub mod segment;
pub mod sync;
pub mod sys;
