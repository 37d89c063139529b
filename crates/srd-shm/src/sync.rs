//! What processes share, and in which order: the atomics, in one place so that models of every interleaving can put theirs
//! there (`srd-races`), and be less patient.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Looks in vain after which a lane is forgotten, shared by all that are looked at: a poll that finds nothing costs no
/// more than that many loads over the time it takes to forget them. At some ns a look, tens of us.
pub(crate) const LOOKS: u32 = 2048;
/// Least looks in vain for any lane.
pub(crate) const LEAST_LOOKS: u32 = 16;
