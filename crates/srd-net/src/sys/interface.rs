//! The network interfaces of this host.

use super::check;
use super::netlink::u16_of;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, socket};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

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
    let running = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let with_ip = getifaddrs()?.filter_map(|entry| Some((ip_of(&entry.address?)?, entry)));
    let address = |(ip, entry): (IpAddr, nix::ifaddrs::InterfaceAddress)| InterfaceAddress {
        index: if_nametoindex(entry.interface_name.as_str()).unwrap_or(0),
        interface: entry.interface_name,
        ip,
        up: entry.flags.contains(running),
        loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
    };
    Ok(with_ip.map(address).collect())
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
    v4.or_else(|| Some(address.as_sockaddr_in6()?.ip().into()))
}

type Data = libc::__c_anonymous_ifr_ifru;

/// Asks the kernel about an interface (netdevice(7)).
///
/// # Safety
/// `data` is such as `what` takes.
unsafe fn ask(interface: &str, what: libc::c_ulong, data: Data) -> io::Result<Data> {
    let fd = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: data };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request names an interface; of its data by the caller's promise.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), what, &raw mut request) })?;
    Ok(request.ifr_ifru)
}

/// MTU of an interface.
pub fn mtu(interface: &str) -> io::Result<u32> {
    // SAFETY: the kernel writes this member.
    Ok(unsafe { ask(interface, libc::SIOCGIFMTU, Data { ifru_mtu: 0 })?.ifru_mtu } as u32)
}

/// More than the structures of the commands below have.
const MOST_BYTES: usize = 256;
const ETHTOOL_GSET: u32 = 1; // linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 3;

/// Speed of the interface's link in Mb/s, if it is a real link that knows its speed. Virtual pairs report a speed
/// that means nothing.
pub fn speed_mbps(interface: &str) -> Option<u32> {
    let driver = ethtool(interface, ETHTOOL_GDRVINFO).ok()?;
    let name = driver[4..36].split(|&byte| byte == 0).next().unwrap_or_default();
    if [&b"veth"[..], b"tun", b"bridge", b"dummy", b"ipvlan", b"macvlan"].contains(&name) {
        return None;
    }
    speed_in(&ethtool(interface, ETHTOOL_GSET).ok()?)
}

/// The speed in a `struct ethtool_cmd`: `speed` and `speed_hi`.
fn speed_in(settings: &[u8; MOST_BYTES]) -> Option<u32> {
    let mbps = u32::from(u16_of(&settings[28..30])?) << 16 | u32::from(u16_of(&settings[12..14])?);
    // SPEED_UNKNOWN is -1, in 16 or in 32 bits.
    (mbps != 0 && mbps != u32::MAX && mbps != u16::MAX as u32).then_some(mbps)
}

/// The structure that a command of `ethtool` asks for: its first word is the command.
fn ethtool(interface: &str, command: u32) -> io::Result<[u8; MOST_BYTES]> {
    let mut answer = [0; MOST_BYTES];
    answer[..4].copy_from_slice(&command.to_ne_bytes());
    let data = Data { ifru_data: answer.as_mut_ptr().cast() };
    // SAFETY: there is room for the structures of our commands.
    unsafe { ask(interface, libc::SIOCETHTOOL as libc::c_ulong, data) }?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_of_more_than_16_bits_is_read() {
        let mut settings = [0xff; MOST_BYTES];
        settings[12..14].copy_from_slice(&0x86a0u16.to_ne_bytes());
        settings[28..30].copy_from_slice(&1u16.to_ne_bytes());
        assert_eq!(speed_in(&settings), Some(100_000));
        assert_eq!(speed_in(&[0xff; MOST_BYTES]), None);
    }
}
