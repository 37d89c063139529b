//! The machine's monotonic clock, which all processes of a lab share.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Nanoseconds since the machine started.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// Sleeps until then.
pub fn sleep_until(at_ns: u64) {
    while let Some(left @ 1..) = at_ns.checked_sub(now_ns()) {
        std::thread::sleep(Duration::from_nanos(left));
    }
}
