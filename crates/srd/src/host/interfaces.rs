//! The host's network interfaces.

use super::read_trimmed;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{AddressFamily, SockaddrLike, SockaddrStorage};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A network interface.
#[derive(Clone, Serialize, Debug)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Whether it is up and has a carrier.
    pub up: bool,
    /// What stands behind it.
    pub kind: Kind,
    /// Largest packet in bytes, IP header included.
    pub mtu: Option<u32>,
    /// Speed in Mb/s, where the driver knows.
    pub speed_mbps: Option<u32>,
    /// IP addresses.
    pub addresses: Vec<IpAddr>,
}

/// What stands behind an interface.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// This host itself.
    Loopback,
    /// A point-to-point device without link layer: WireGuard, OpenVPN's tun, PPP, GRE.
    Tunnel,
    /// Something with Ethernet frames, real or virtual.
    Ethernet,
    /// Something else.
    Other,
}

/// All interfaces, by name.
pub fn all() -> Vec<Interface> {
    let mut found = BTreeMap::<String, Interface>::new();
    for entry in getifaddrs().into_iter().flatten() {
        let interface = found.entry(entry.interface_name.clone()).or_insert_with(|| {
            let name = entry.interface_name.clone();
            Interface {
                up: entry.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING),
                kind: kind(&name, entry.flags),
                mtu: mtu(&name),
                speed_mbps: speed(&name),
                addresses: Vec::new(),
                name,
            }
        });
        interface.addresses.extend(entry.address.as_ref().and_then(ip));
    }
    found.into_values().collect()
}

/// The interface that holds `address`.
pub fn of_address(address: IpAddr) -> Option<Interface> {
    let owner = all().into_iter().find(|interface| interface.addresses.contains(&address));
    // All of 127/8 is this host, though only 127.0.0.1 is listed.
    owner.or_else(|| all().into_iter().find(|i| address.is_loopback() && i.kind == Kind::Loopback))
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    match address.family()? {
        AddressFamily::Inet => Some(address.as_sockaddr_in()?.ip().into()),
        AddressFamily::Inet6 => Some(address.as_sockaddr_in6()?.ip().into()),
        _ => None,
    }
}

fn kind(name: &str, flags: InterfaceFlags) -> Kind {
    if flags.contains(InterfaceFlags::IFF_LOOPBACK) {
        return Kind::Loopback;
    }
    // Numbers of if_arp.h: 1 is Ethernet; a device that needs no address resolution and joins two points is a tunnel.
    match read_trimmed(&format!("/sys/class/net/{name}/type")).as_deref() {
        Some("1") => Kind::Ethernet,
        _ if flags.contains(InterfaceFlags::IFF_POINTOPOINT) => Kind::Tunnel,
        _ => Kind::Other,
    }
}

fn mtu(name: &str) -> Option<u32> {
    // /sys shows the network namespace that it was mounted in, /proc/sys that of the reader; the former also knows
    // interfaces without IPv6.
    ["/sys/class/net/NAME/mtu", "/proc/sys/net/ipv6/conf/NAME/mtu"]
        .iter()
        .find_map(|path| read_trimmed(&path.replace("NAME", name))?.parse().ok())
}

fn speed(name: &str) -> Option<u32> {
    // -1 and a read error both mean that the driver does not know.
    read_trimmed(&format!("/sys/class/net/{name}/speed"))?.parse().ok().filter(|&mbps| mbps > 0)
}
