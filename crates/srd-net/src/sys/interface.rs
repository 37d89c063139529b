//! The network interfaces of this host.

use super::check;
use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// An address of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceAddress {
    /// The interface.
    pub interface: String,
    /// Its number: the scope of its link-local addresses.
    pub index: u32,
    /// The address.
    pub ip: IpAddr,
    /// Whether it is up and running.
    pub up: bool,
    /// Whether it is loopback.
    pub loopback: bool,
}

/// All addresses of all interfaces, in the system's order.
pub fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: the call writes the head of a list that it allocates.
    check(unsafe { libc::getifaddrs(&mut list) })?;
    let mut found = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an element of the list, which lives until `freeifaddrs`.
        let entry = unsafe { &*at };
        at = entry.ifa_next;
        // SAFETY: an address of the family that it names, or null.
        let Some(ip) = (unsafe { address(entry.ifa_addr) }) else { continue };
        // SAFETY: a string that ends in zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        let flags = entry.ifa_flags as libc::c_int;
        found.push(InterfaceAddress {
            interface: name.to_string_lossy().into_owned(),
            // SAFETY: a string that ends in zero.
            index: unsafe { libc::if_nametoindex(name.as_ptr()) },
            ip,
            up: flags & (libc::IFF_UP | libc::IFF_RUNNING) == libc::IFF_UP | libc::IFF_RUNNING,
            loopback: flags & libc::IFF_LOOPBACK != 0,
        });
    }
    // SAFETY: the list that `getifaddrs` made, given back once.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// `raw` is null or points to an address of the family that it names.
unsafe fn address(raw: *const libc::sockaddr) -> Option<IpAddr> {
    if raw.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise.
    match unsafe { (*raw).sa_family } as libc::c_int {
        libc::AF_INET => {
            // SAFETY: by the caller's promise, an IPv4 address.
            let raw = unsafe { &*raw.cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: by the caller's promise, an IPv6 address.
            let raw = unsafe { &*raw.cast::<libc::sockaddr_in6>() };
            Some(Ipv6Addr::from(raw.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

fn request_for(interface: &str) -> io::Result<(OwnedFd, libc::ifreq)> {
    // SAFETY: no memory is involved.
    let fd = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new and belongs to nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the structure is integers, pointers and characters, for which zero is a value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    Ok((fd, request))
}

/// MTU of an interface.
pub fn mtu(interface: &str) -> io::Result<u32> {
    let (fd, mut request) = request_for(interface)?;
    // SAFETY: the request names an interface; the kernel writes its MTU into it.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU, ptr::from_mut(&mut request)) })?;
    // SAFETY: the call has written this member.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}

const SIOCETHTOOL: libc::c_ulong = 0x8946; // linux/sockios.h
const ETHTOOL_GSET: u32 = 1; // linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 3;

/// `struct ethtool_cmd` of linux/ethtool.h.
#[repr(C)]
struct EthtoolCmd {
    cmd: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    bytes: [u8; 8],
    max_tx: u32,
    max_rx: u32,
    speed_hi: u16,
    bytes2: [u8; 2],
    lp_advertising: u32,
    reserved: [u32; 2],
}

/// `struct ethtool_drvinfo` of linux/ethtool.h.
#[repr(C)]
struct EthtoolDrvinfo {
    cmd: u32,
    driver: [u8; 32],
    rest: [u8; 32 * 4 + 12 + 4 * 5],
}

/// Speed of the interface's link in Mb/s, if it is a real link that knows its speed. Virtual pairs report a speed
/// that means nothing.
pub fn speed_mbps(interface: &str) -> Option<u32> {
    // SAFETY: both are plain integers.
    let (mut driver, mut settings): (EthtoolDrvinfo, EthtoolCmd) = unsafe { (zeroed(), zeroed()) };
    driver.cmd = ETHTOOL_GDRVINFO;
    settings.cmd = ETHTOOL_GSET;
    // SAFETY: the structure that the command asks for.
    unsafe { ethtool(interface, ptr::from_mut(&mut driver).cast()) }.ok()?;
    let name = driver.driver.split(|&byte| byte == 0).next().unwrap_or_default();
    if [&b"veth"[..], b"tun", b"bridge", b"dummy", b"ipvlan", b"macvlan"].contains(&name) {
        return None;
    }
    // SAFETY: the structure that the command asks for.
    unsafe { ethtool(interface, ptr::from_mut(&mut settings).cast()) }.ok()?;
    let mbps = (settings.speed_hi as u32) << 16 | settings.speed as u32;
    // SPEED_UNKNOWN is -1, in 16 or in 32 bits.
    (mbps != 0 && mbps != u32::MAX && mbps != u16::MAX as u32).then_some(mbps)
}

/// # Safety
/// `command` points to the structure that its first word, the command's number, asks for.
unsafe fn ethtool(interface: &str, command: *mut libc::c_char) -> io::Result<()> {
    let (fd, mut request) = request_for(interface)?;
    request.ifr_ifru.ifru_data = command;
    // SAFETY: the request names an interface; of `command` by the caller's promise.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL, ptr::from_mut(&mut request)) })?;
    Ok(())
}
