//! Peers at our own address that have ended. Their silence would be death only after the peer timeout; here the kernel knows
//! it at once, for nobody has their port any more.
//!
//! That a port is closed is also what the network reports (ICMP), but who is not asked may have been made up: nothing here
//! hears reports. It is asked only about peers of which our own address says that they are in this network namespace,
//! that have answered before, and that are silent though something is under way to them. A port that is free has no process
//! behind it; one that a forked child has kept open is not free, and then the peer timeout holds.

use crate::address::LocalAddress;
use crate::log;
use crate::sys::udp::{is_free, scoped};
use srd_device::{Device, HostMemory};
use srd_wire::{Nanos, Time};

/// Silence after which the kernel is asked: longer than a retransmission takes, and than most waits for a core.
const SILENCE: Nanos = Nanos::from_millis(250);
/// How often at most.
const PAUSE: Nanos = Nanos::from_millis(100);

/// See the module.
#[derive(Default)]
pub struct Neighbours {
    next_look: Time,
}

impl Neighbours {
    /// Looks for peers that have ended, if it is time, and tells the device. To be called when timers have run: as long as
    /// a silent peer is asked, they do.
    #[inline]
    pub fn look(&mut self, now: Time, device: &mut Device<HostMemory>, local: &LocalAddress) {
        if now >= self.next_look {
            self.next_look = now + PAUSE;
            look(now, device, local);
        }
    }
}

#[cold]
fn look(now: Time, device: &mut Device<HostMemory>, local: &LocalAddress) {
    let gid = device.gid();
    let silent: Vec<_> = device.silent_peers(now, SILENCE).filter(|addr| addr.gid == gid).collect();
    if silent.is_empty() {
        return;
    }
    // A thread that is in another network namespace than our sockets does not find our own port in use, either.
    let is_gone = |port| matches!(is_free(scoped(local.ip, port, local.index)), Ok(true));
    if device.ports().next().is_none_or(is_gone) {
        return;
    }
    for addr in silent.into_iter().filter(|addr| is_gone(addr.port)) {
        log::info(format_args!("{addr} has ended: no process of this host has its port"));
        device.peer_is_gone(now, addr);
    }
}
