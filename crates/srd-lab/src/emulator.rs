//! Delay and reordering: a process that takes packets out of devices and puts them in again, later. The kernels of small machines
//! lack netem, which would do it inside.
//!
//! One process serves all ways of a fault.

use crate::error::{Doing, Error, Result};
use crate::helper;
use crate::iproute::{Program, batch};
use crate::namespace::within;
use crate::tap;
use nix::poll::{PollFd, PollFlags};
use nix::sys::time::TimeSpec;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Held packets of all ways together; more are dropped, as by a queue that is full.
const MOST_HELD_BYTES: usize = 256 << 20;

/// By how much packets are late.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Lateness {
    /// Every packet.
    pub delay_us: u64,
    /// Up to so much more, at random; packets stay in order.
    pub jitter_us: u64,
    /// Of all packets, those that are overtaken.
    pub late_percent: f64,
    /// How late those are.
    pub late_us: u64,
}

/// Arguments of the process that delays packets, which passes through devices, `NAMESPACE:DEVICE` each.
pub(crate) fn arguments(lateness: &Lateness, taps: &[String]) -> Vec<String> {
    let own = [
        "emulate".into(),
        format!("--delay-us={}", lateness.delay_us),
        format!("--jitter-us={}", lateness.jitter_us),
        format!("--late-percent={}", lateness.late_percent),
        format!("--late-us={}", lateness.late_us),
    ];
    own.into_iter().chain(taps.iter().cloned()).collect()
}

/// A packet that waits.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    due: Instant,
    /// In order of arrival where times are equal.
    number: u64,
    device: usize,
    bytes: Vec<u8>,
}

struct Device {
    file: File,
    /// The latest packet that is not overtaken: others stay behind it.
    last_due: Instant,
}

/// What the process does, for ever: makes its devices, says so, and delays what comes in.
pub fn emulate(lateness: &Lateness, taps: &[String]) -> Result<()> {
    let began = Instant::now();
    let mut devices = Vec::new();
    for tap in taps {
        let Some((namespace, device)) = tap.split_once(':') else {
            return Err(Error::BadFault(format!("{tap} is no NAMESPACE:DEVICE")));
        };
        let file = within(namespace, || {
            let file = tap::create(device)?;
            // Its queue holds what comes while this process sleeps.
            let commands = format!("link set {device} mtu 65521 txqueuelen 10000 up\n");
            batch(Program::Ip, namespace, &commands)?;
            Ok(file)
        })?;
        devices.push(Device { file, last_due: began });
    }
    tap::sharpen_timers()?;
    helper::say_ready()?;
    Emulator {
        lateness: *lateness,
        random: SmallRng::seed_from_u64(u64::from(std::process::id())),
        devices,
        held: BinaryHeap::new(),
        held_bytes: 0,
        number: 0,
    }
    .run()
    .doing(|| "cannot delay packets".into())
}

struct Emulator {
    lateness: Lateness,
    random: SmallRng,
    devices: Vec<Device>,
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: usize,
    number: u64,
}

impl Emulator {
    fn run(mut self) -> io::Result<()> {
        loop {
            self.wait()?;
            for device in 0..self.devices.len() {
                self.take_in(device)?;
            }
            self.give_out();
        }
    }

    /// Until a packet comes or is due.
    fn wait(&self) -> io::Result<()> {
        let left = self.held.peek().map(|Reverse(next)| next.due.saturating_duration_since(Instant::now()));
        let mut files: Vec<_> =
            self.devices.iter().map(|device| PollFd::new(device.file.as_fd(), PollFlags::POLLIN)).collect();
        let timeout = left.map(TimeSpec::from);
        match nix::poll::ppoll(&mut files, timeout, None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_in(&mut self, device: usize) -> io::Result<()> {
        let mut buffer = [0; 65_536];
        loop {
            let length = match (&self.devices[device].file).read(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            if self.held_bytes + length > MOST_HELD_BYTES {
                continue;
            }
            let due = self.due(device);
            self.held_bytes += length;
            self.number += 1;
            let bytes = buffer[..length].to_vec();
            self.held.push(Reverse(Held { due, number: self.number, device, bytes }));
        }
    }

    /// When a packet that comes now is to go on.
    fn due(&mut self, device: usize) -> Instant {
        let Lateness { delay_us, jitter_us, late_percent, late_us } = self.lateness;
        let due = Instant::now() + Duration::from_micros(delay_us + self.random.random_range(0..=jitter_us));
        if self.random.random::<f64>() * 100.0 < late_percent {
            return due + Duration::from_micros(late_us);
        }
        let last = &mut self.devices[device].last_due;
        *last = due.max(*last);
        *last
    }

    fn give_out(&mut self) {
        let now = Instant::now();
        while self.held.peek().is_some_and(|Reverse(next)| next.due <= now) {
            let Some(Reverse(packet)) = self.held.pop() else { return };
            self.held_bytes -= packet.bytes.len();
            // A device that cannot take it is as good as a link that loses it.
            let _ = (&self.devices[packet.device].file).write(&packet.bytes);
        }
    }
}
