//! The clock of all instances of this process.

use srd_wire::Time;
use std::sync::OnceLock;
use std::time::Instant;

static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// The time now: monotonic, in nanoseconds since the first call in this process (plus a second, so that no sensible
/// subtraction meets zero).
#[inline]
pub fn now() -> Time {
    let origin = *ORIGIN.get_or_init(Instant::now);
    Time(1_000_000_000 + origin.elapsed().as_nanos() as u64)
}
