//! Addresses of endpoints, and the names of their segments.

use crate::sys;
use std::fmt;
use std::io;
use std::net::Ipv6Addr;

/// Where an endpoint is: a host, a UDP port and a queue pair there. Processes may count queue pairs from different ports on
/// (`SRD_PORT_BASE`), so that a number alone may be the number of two; of a port there is one owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The host's IPv6 address, or its IPv4 address mapped (`::ffff:a.b.c.d`), in network order.
    pub ip: [u8; 16],
    /// The UDP port at which the endpoint's process receives for it.
    pub port: u16,
    /// The endpoint's queue pair.
    pub qpn: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = Ipv6Addr::from(self.ip);
        match ip.to_ipv4_mapped() {
            Some(ip) => write!(f, "{ip}:{}", self.qpn),
            None => write!(f, "[{ip}]:{}", self.qpn),
        }
    }
}

/// How the names of all segments of this user begin.
pub(crate) fn prefix() -> String {
    format!("opensrd-{}-", sys::user())
}

/// The name of an endpoint's segment. Another network namespace may use the same address for another endpoint, so the
/// name holds the namespace, too. Within one the kernel gives a port of an address to one process.
pub(crate) fn file_name(address: &Address) -> io::Result<String> {
    let network = sys::namespace("net")?;
    let ip = u128::from_be_bytes(address.ip);
    Ok(format!("{}{network}-{ip:032x}-{:04x}-{:04x}", prefix(), address.port, address.qpn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn addresses_read_as_socket_addresses_do() {
        let ip = Ipv4Addr::new(10, 0, 0, 7).to_ipv6_mapped().octets();
        assert_eq!(Address { ip, port: 17408, qpn: 17 }.to_string(), "10.0.0.7:17");
        let ip = Ipv6Addr::LOCALHOST.octets();
        assert_eq!(Address { ip, port: 17919, qpn: 65_535 }.to_string(), "[::1]:65535");
    }

    #[test]
    fn different_endpoints_have_different_names() {
        let ip = Ipv6Addr::LOCALHOST.octets();
        let name = |ip, port, qpn| file_name(&Address { ip, port, qpn }).unwrap();
        assert_ne!(name(ip, 17_408, 1), name(ip, 17_408, 2));
        assert_ne!(name(ip, 17_408, 1), name([0; 16], 17_408, 1));
        assert_ne!(name(ip, 17_408, 1), name(ip, 20_000, 1), "numbers count from different ports on");
        assert!(name(ip, 17_408, 1).starts_with(&prefix()));
    }
}
