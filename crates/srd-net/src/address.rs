//! Which local address an instance uses, and what is known of the link behind it.

use crate::log;
use crate::options::{Address, LogLevel};
use crate::sys::{interface, shaper, udp};
use srd_wire::BitRate;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A local address with its interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalAddress {
    /// The address.
    pub ip: IpAddr,
    /// The interface that has it.
    pub interface: String,
    /// The interface's number: the scope of link-local addresses.
    pub index: u32,
    /// The interface's MTU in bytes.
    pub mtu: u32,
    /// The rate at which this host may send: the link's, if it is a real link that knows it, or less if the host shapes what
    /// it sends.
    pub line_rate: Option<BitRate>,
    /// Whether it is loopback.
    pub loopback: bool,
}

/// Whether no packet that comes to `own` from a network may have this source ("martian", RFC 1812, 5.3.7; RFC 4291, 2.5 to 2.7): an
/// answer would go to everybody, or to whoever listens on this host. Linux refuses some of them by itself, and none for packet sockets.
pub fn is_martian(source: IpAddr, own: IpAddr) -> bool {
    if source.is_loopback() {
        return !own.is_loopback();
    }
    match source {
        IpAddr::V4(ip) => ip.octets()[0] == 0 || ip.octets()[0] >= 224,
        IpAddr::V6(ip) => ip.is_unspecified() || ip.is_multicast() || ip.to_ipv4_mapped().is_some(),
    }
}

/// Why there is no such local address.
#[derive(Debug)]
pub enum AddressError {
    /// The system does not list its addresses.
    List(io::Error),
    /// No interface has the address.
    NotLocal {
        /// The address.
        ip: IpAddr,
        /// Addresses that there are.
        have: String,
    },
    /// No such interface, or it has no address.
    NoInterface {
        /// The interface.
        name: String,
        /// Interfaces that have addresses.
        have: String,
    },
    /// Not even loopback is up.
    Nothing,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::List(e) => write!(f, "cannot list the addresses of this host: {e}"),
            AddressError::NotLocal { ip, have } => {
                write!(f, "{ip} is not an address of this host; it has {have}")
            }
            AddressError::NoInterface { name, have } => {
                write!(f, "no interface {name:?} with an address; with one there are {have}")
            }
            AddressError::Nothing => {
                f.write_str("no interface is up, not even loopback; try `ip link set lo up`")
            }
        }
    }
}

impl std::error::Error for AddressError {}

impl LocalAddress {
    /// Finds the address that `choice` names.
    pub fn find(choice: &Address) -> Result<LocalAddress, AddressError> {
        let all = interface::addresses().map_err(AddressError::List)?;
        let list = |names: &mut dyn Iterator<Item = String>| {
            let mut names: Vec<String> = names.collect();
            names.sort();
            names.dedup();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        let found = match choice {
            // All of 127.0.0.0/8 is this host, whatever is listed: so one machine can play several hosts.
            Address::Ip(IpAddr::V4(v4)) if v4.is_loopback() => {
                all.iter().find(|it| it.loopback && it.ip.is_ipv4()).ok_or(AddressError::Nothing)
            }
            Address::Ip(ip) => all.iter().find(|it| it.ip == *ip).ok_or_else(|| AddressError::NotLocal {
                ip: *ip,
                have: list(&mut all.iter().map(|it| it.ip.to_string())),
            }),
            Address::Interface(name) => {
                all.iter().filter(|it| it.interface == *name).min_by_key(|it| preference(it.ip)).ok_or_else(
                    || AddressError::NoInterface {
                        name: name.clone(),
                        have: list(&mut all.iter().map(|it| it.interface.clone())),
                    },
                )
            }
            Address::Auto => automatic(&all).ok_or(AddressError::Nothing),
        }?;
        Ok(LocalAddress {
            ip: match choice {
                Address::Ip(ip) => *ip,
                _ => found.ip,
            },
            interface: found.interface.clone(),
            index: found.index,
            mtu: interface::mtu(&found.interface).map_err(AddressError::List)?,
            line_rate: line_rate(found),
            loopback: found.loopback,
        })
    }
}

fn line_rate(of: &interface::InterfaceAddress) -> Option<BitRate> {
    let link = interface::speed_mbps(&of.interface).map(|mbps| BitRate(mbps as u64 * 1_000_000));
    let shaped = match shaper::bytes_per_s(of.index) {
        Ok(rate) => rate.map(|bytes| BitRate(bytes.saturating_mul(8))),
        Err(error) => {
            log::say(LogLevel::Info, format_args!("cannot read how {} is shaped: {error}", of.interface));
            None
        }
    };
    link.into_iter().chain(shaped).min()
}

fn automatic(all: &[interface::InterfaceAddress]) -> Option<&interface::InterfaceAddress> {
    // Documentation addresses (RFC 5737, RFC 3849): certainly nobody's neighbours, so the default route decides.
    let anywhere = [
        IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    ];
    let by_route = anywhere
        .iter()
        .filter_map(|&to| udp::source_towards(to).ok())
        .find_map(|ip| all.iter().find(|it| it.ip == ip && !it.loopback));
    by_route
        .or_else(|| all.iter().filter(|it| it.up && !it.loopback).min_by_key(|it| preference(it.ip)))
        .or_else(|| all.iter().filter(|it| it.loopback).min_by_key(|it| preference(it.ip)))
}

/// IPv4 before IPv6, and an address that reaches further before a link-local one.
fn preference(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(v4) if !v4.is_link_local() => 0,
        IpAddr::V6(v6) if !v6.is_unicast_link_local() => 1,
        IpAddr::V4(_) => 2,
        IpAddr::V6(_) => 3,
    }
}

/// Whether an address is of loopback or of a network that the internet does not route to: RFC 1918, shared (RFC 6598),
/// link-local, unique local (RFC 4193).
pub fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [first, second, ..] = ip.octets();
            ip.is_loopback() || ip.is_private() || ip.is_link_local() || (first, second & 0xC0) == (100, 64)
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_networks_are_known() {
        for private in [
            "127.0.0.1",
            "127.9.9.9",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.1.1",
            "::1",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(is_private(private.parse().unwrap()), "{private}");
        }
        for public in [
            "8.8.8.8",
            "172.15.0.1",
            "172.32.0.1",
            "192.169.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "11.0.0.1",
            "2001:db8::1",
            "fe00::1",
            "::ffff:8.8.8.8",
        ] {
            assert!(!is_private(public.parse().unwrap()), "{public}");
        }
    }
}
