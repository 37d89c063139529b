//! A device whose packets a program receives and sends (TAP, linux' tuntap.rst).
#![allow(unsafe_code)]

use crate::error::{Doing, Error, Result};
use nix::errno::Errno;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// linux/if_tun.h: IFF_TAP, and IFF_NO_PI for packets without a header of its own.
const FLAGS: libc::c_short = 0x0002 | 0x1000;
/// linux/if_tun.h: TUNSETIFF.
const SET_DEVICE: libc::c_ulong = 0x4004_54ca;

/// Makes a device in the calling thread's namespace. It goes with the file.
pub(crate) fn create(device: &str) -> Result<File> {
    let missing = |error: std::io::Error| Error::MissingFeature {
        what: format!("the device {device}"),
        reason: error.to_string(),
        option: "CONFIG_TUN and /dev/net/tun",
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(missing)?;
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(device.bytes()).take(libc::IFNAMSIZ - 1) {
        *to = from as libc::c_char;
    }
    let mut request =
        libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: FLAGS } };
    // SAFETY: `request` lives until the call returns; tuntap.rst says that TUNSETIFF takes an ifreq with name and flags.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), SET_DEVICE, &raw mut request) };
    Errno::result(status).map_err(std::io::Error::from).map_err(missing)?;
    Ok(file)
}

/// Lets timers of the calling thread be exact to the microsecond; the kernel would join those within 50.
pub(crate) fn sharpen_timers() -> Result<()> {
    const SLACK_NS: libc::c_ulong = 1000;
    // SAFETY: prctl(2): PR_SET_TIMERSLACK takes a number and touches no memory.
    let status = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
    Errno::result(status).map(drop).doing(|| "cannot set the timers' slack".into())
}
