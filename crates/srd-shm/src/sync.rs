//! What processes share, and in which order: the atomics, in one place so that models of every interleaving can put theirs
//! there (`srd-races`), and be less patient.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Looks in vain after which a lane is forgotten, shared by all that are looked at: a poll that finds nothing costs no
/// more than that many loads over the time it takes to forget them. At some ns a look, tens of us.
pub(crate) const LOOKS: u32 = 2048;
/// Least looks in vain for any lane.
pub(crate) const LEAST_LOOKS: u32 = 16;

/// Keys in a line of what is lent, and lines: a peer that reads a key looks at one line of the cache, and as many of a
/// process's messages as a line has keys must be long, lent and of one line before the next one goes by the network.
pub(crate) const LOANS: usize = 16;
/// See above.
pub(crate) const LOAN_LINES: usize = 256;
