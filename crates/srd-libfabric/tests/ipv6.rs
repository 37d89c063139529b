//! The same data between IPv6 addresses, and what those look like.

#[path = "data.rs"]
mod data;

use data::rig::*;

#[test]
fn addresses_are_those_of_ipv6() {
    const SOCKADDR_IN6: u32 = 3;
    let rig = Rig::new(0);
    let end = rig.end(0);
    let address = end.ep.address();
    assert_eq!((rig.info.get().addr_format, address.len()), (SOCKADDR_IN6, 28));
    assert_eq!(address[..2], (libc::AF_INET6 as u16).to_ne_bytes());
    assert_eq!(address[8..24], std::net::Ipv6Addr::LOCALHOST.octets());
    assert_eq!(end.av.insert(&address), 0);
    end.close();
    rig.close();
}
