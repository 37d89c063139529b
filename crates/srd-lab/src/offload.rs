//! Offloads of a device switched off, as `ethtool -K DEVICE tso off gso off gro off tx off` does, without a process each.
//!
//! With them packets of 64 KB would cross the fabric as one, and no checksum would be computed, so that nobody could notice a
//! corrupted packet.
#![allow(unsafe_code)]

use crate::error::{Doing, Result};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::os::fd::{AsRawFd, OwnedFd};

/// linux/ethtool.h: ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_STXCSUM.
const OFF: [u32; 4] = [0x1f, 0x24, 0x2c, 0x17];

/// linux/ethtool.h, struct ethtool_value.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Switches offloads of devices in the calling thread's namespace.
pub(crate) struct Offloads {
    socket: OwnedFd,
}

impl Offloads {
    pub(crate) fn open() -> Result<Offloads> {
        let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
            .doing(|| "cannot open a socket to set offloads".into())?;
        Ok(Offloads { socket })
    }

    /// Switches all of a device off.
    pub(crate) fn switch_off(&self, device: &str) -> Result<()> {
        for command in OFF {
            self.set(device, Value { command, data: 0 }).doing(|| {
                format!("offloads of {device} cannot be switched off (ethtool command {command:#x})")
            })?;
        }
        Ok(())
    }

    fn set(&self, device: &str, mut value: Value) -> nix::Result<()> {
        let mut name = [0; libc::IFNAMSIZ];
        for (to, from) in name.iter_mut().zip(device.bytes()).take(libc::IFNAMSIZ - 1) {
            *to = from as libc::c_char;
        }
        let mut request = libc::ifreq {
            ifr_name: name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut value).cast() },
        };
        // SAFETY: `request` and the value it points to live until the call returns; netdevice(7) and linux/ethtool.h say that
        // SIOCETHTOOL takes an ifreq whose data points to a struct ethtool_value for these commands.
        let status =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        nix::errno::Errno::result(status).map(drop)
    }
}
