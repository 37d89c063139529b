//! The clock of all instances of this process.

use crate::sys::process::monotonic_ns;
use crate::sys::simulated;
use srd_wire::{Nanos, Time};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

static ORIGIN: OnceLock<u64> = OnceLock::new();

/// The time now: monotonic, in nanoseconds since the first call in this process (plus a second, so that no sensible
/// subtraction meets zero).
#[inline]
pub fn now() -> Time {
    if let Some((library, _)) = simulated::known() {
        return Time(1_000_000_000 + library.now());
    }
    let origin = *ORIGIN.get_or_init(monotonic_ns);
    Time(1_000_000_000 + (monotonic_ns() - origin))
}

/// Translates the kernel's time stamps of received packets, which are of the real-time clock.
#[derive(Debug, Default)]
pub struct KernelClock {
    /// Real time less our time.
    offset: i64,
    compared_at: Time,
}

impl KernelClock {
    /// The two clocks drift apart by less than 0.1 us in this time (500 ppm, the most that NTP slews).
    const COMPARE_EVERY: Nanos = Nanos::from_micros(200);
    /// For stamps that are in our time.
    pub fn ours() -> KernelClock {
        KernelClock { offset: 0, compared_at: Time::NEVER }
    }

    /// A stamp that is older says that the clock was set.
    const LONGEST: u64 = 1_000_000_000;

    /// How long before `now` the kernel's clock showed `stamp`. Zero if that cannot be: the clock has been set.
    #[inline]
    pub fn age(&mut self, stamp: u64, now: Time) -> Nanos {
        if now.since(self.compared_at) > Self::COMPARE_EVERY {
            let real = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_nanos() as u64);
            self.offset = real.wrapping_sub(now.0) as i64;
            self.compared_at = now;
        }
        let age = now.0.wrapping_add(self.offset as u64).wrapping_sub(stamp);
        Nanos(if age > Self::LONGEST { 0 } else { age })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_stamp_has_an_age_unless_the_clock_was_set() {
        let mut clock = KernelClock::default();
        let now = now();
        clock.age(0, now);
        let real = now.0.wrapping_add(clock.offset as u64);
        assert_eq!(clock.age(real - 5_000, now), Nanos(5_000));
        assert_eq!(clock.age(real + 5_000, now), Nanos(0));
        assert_eq!(clock.age(real - 3_600_000_000_000, now), Nanos(0));
    }
}
