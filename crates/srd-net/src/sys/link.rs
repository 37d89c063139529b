//! What the kernel says of an interface over netlink: its address, the XDP program that it has, and what its driver can do with one
//! (rtnetlink(7); linux/if_link.h, linux/netdev.h).

use super::netlink::{Netlink, attribute, u16_of, u32_of, u64_of, with_attribute};
use super::route::Mac;
use nix::sys::socket::SockProtocol::{NetlinkGeneric, NetlinkRoute};
use std::io;

const LINK: usize = 16; // struct ifinfomsg
const ADDRESS: u16 = 1; // IFLA_ADDRESS
const INFO: u16 = 18; // IFLA_LINKINFO
const KIND: u16 = 1; // IFLA_INFO_KIND
const XDP: u16 = 43; // IFLA_XDP
const PROGRAM: u16 = 4; // IFLA_XDP_PROG_ID

const GENERIC: usize = 4; // struct genlmsghdr
const CONTROL: u16 = 16; // GENL_ID_CTRL
const GET_FAMILY: u8 = 3; // CTRL_CMD_GETFAMILY
const FAMILY_NUMBER: u16 = 1; // CTRL_ATTR_FAMILY_ID
const FAMILY_NAME: u16 = 2; // CTRL_ATTR_FAMILY_NAME
const GET_DEVICE: u8 = 1; // NETDEV_CMD_DEV_GET
const DEVICE: u16 = 1; // NETDEV_A_DEV_IFINDEX
const FEATURES: u16 = 3; // NETDEV_A_DEV_XDP_FEATURES
const NATIVE: u64 = 3; // NETDEV_XDP_ACT_BASIC and _REDIRECT
const ZERO_COPY: u64 = 8; // NETDEV_XDP_ACT_XSK_ZEROCOPY

/// An interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its address, if it is an Ethernet one.
    pub mac: Option<Mac>,
    /// The number of its XDP program.
    pub program: Option<u32>,
    /// Whether it is an end of a virtual pair.
    pub is_veth: bool,
}

/// The interfaces, asked.
#[derive(Debug)]
pub struct Links {
    netlink: Netlink,
}

impl Links {
    /// Of this network namespace.
    pub fn open() -> io::Result<Links> {
        Ok(Links { netlink: Netlink::open(NetlinkRoute)? })
    }

    /// The one of that number.
    pub fn look(&self, interface: u32) -> io::Result<Link> {
        let mut body = [0; LINK];
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        let link = self.netlink.get(libc::RTM_GETLINK, &body)?;
        let ethernet = link.get(2..4).and_then(u16_of) == Some(libc::ARPHRD_ETHER);
        let attributes = link.get(LINK..).unwrap_or_default();
        let mac = attribute(attributes, ADDRESS).and_then(|mac| Mac::try_from(mac).ok());
        let xdp = attribute(attributes, XDP).unwrap_or_default();
        let program = attribute(xdp, PROGRAM).and_then(u32_of).filter(|&program| program != 0);
        let info = attribute(attributes, INFO).unwrap_or_default();
        let is_veth = attribute(info, KIND).is_some_and(|kind| kind.starts_with(b"veth"));
        Ok(Link { mac: mac.filter(|_| ethernet), program, is_veth })
    }
}

/// What the driver of an interface can do with XDP: whether it runs programs itself, and whether it fills a socket's memory itself.
/// Linux 6.3 says so.
pub fn xdp_features(interface: u32) -> io::Result<(bool, bool)> {
    let netlink = Netlink::open(NetlinkGeneric)?;
    let ask = |part: u16, command: u8, asked: Vec<u8>, wanted: u16| {
        let answer = netlink.get(part, &[vec![command, 1, 0, 0], asked].concat())?;
        let found = answer.get(GENERIC..).and_then(|attributes| attribute(attributes, wanted));
        found.map(<[u8]>::to_vec).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    };
    let part = ask(CONTROL, GET_FAMILY, with_attribute(FAMILY_NAME, b"netdev\0"), FAMILY_NUMBER)?;
    let part = u16_of(&part).unwrap_or_default();
    let features = ask(part, GET_DEVICE, with_attribute(DEVICE, &interface.to_ne_bytes()), FEATURES)?;
    let features = u64_of(&features).unwrap_or_default();
    Ok((features & NATIVE == NATIVE, features & ZERO_COPY != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_no_ethernet_and_has_no_program() {
        let link = Links::open().unwrap().look(1).unwrap();
        assert_eq!(link, Link { mac: None, program: None, is_veth: false });
    }
}
