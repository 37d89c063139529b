//! Which of the instances that a process may have at an address somebody gets: the one that fewest have.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A part in an instance of the process, for as long as this lives. The instance is opened by
/// [`Instance::open_numbered`](crate::Instance::open_numbered).
#[derive(Debug)]
pub struct Seat {
    ip: IpAddr,
    number: u16,
    /// The process that took it: in a forked child another thread of the parent may have held the lock.
    process: u32,
}

/// Who has what part now.
static TAKEN: Mutex<Vec<(IpAddr, u16)>> = Mutex::new(Vec::new());

fn taken() -> MutexGuard<'static, Vec<(IpAddr, u16)>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seat {
    /// In the one of `instances` at an address that fewest have, the first of such.
    pub fn take(ip: IpAddr, instances: u16) -> Seat {
        Seat::take_among(ip, 0..instances)
    }

    /// The same among instances of these numbers: a device has instances of its own, also where it shares its address.
    pub fn take_among(ip: IpAddr, instances: Range<u16>) -> Seat {
        let mut taken = taken();
        let others = |number: u16| taken.iter().filter(|&&seat| seat == (ip, number)).count();
        let first = instances.start;
        let number = instances.min_by_key(|&number| others(number)).unwrap_or(first);
        taken.push((ip, number));
        Seat { ip, number, process: std::process::id() }
    }

    /// In this one.
    pub fn take_at(ip: IpAddr, number: u16) -> Seat {
        taken().push((ip, number));
        Seat { ip, number, process: std::process::id() }
    }

    /// The number of the instance.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let mut taken = taken();
        if let Some(at) = taken.iter().position(|&seat| seat == (self.ip, self.number)) {
            taken.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_dealt_in_turn_and_those_that_become_free_are_taken_again() {
        let ip = IpAddr::from([192, 0, 2, 1]);
        let other = Seat::take(IpAddr::from([192, 0, 2, 2]), 3);
        let mut seats: Vec<Seat> = (0..6).map(|_| Seat::take(ip, 3)).collect();
        assert_eq!(other.number(), 0);
        assert_eq!(seats.iter().map(Seat::number).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
        drop(seats.remove(1));
        let named = Seat::take_at(ip, 0);
        assert_eq!((named.number(), Seat::take(ip, 3).number(), Seat::take(ip, 1).number()), (0, 1, 0));
        let [second, third] = [(); 2].map(|()| Seat::take_among(ip, 8..10));
        assert_eq!((second.number(), third.number()), (8, 9));
    }
}
