//! The edge to C that the two C libraries have in common: error numbers, functions that no panic leaves, what pointers of
//! callers become, and structures that are compared with the installed headers.
//!
//! What a function returns differs: the verbs give an error number as it is, libfabric with a minus sign. So each library has
//! a module `boundary`, with a function for each kind of [`abi!`].
#![deny(unsafe_code)]

mod errno;
mod guard;
mod layout;
mod pointers;

pub use errno::{Errno, Outcome, closing};
pub use guard::{guarded, told};
pub use layout::StructLayout;
pub use pointers::{object, readable, writable};
