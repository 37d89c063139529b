//! Where the kernel would send a packet to, and whether something stands in between that a packet socket would go around
//! (rtnetlink(7); linux/rtnetlink.h, linux/neighbour.h).

use super::bpf::programs_at;
use super::cgroup::Groups;
use super::netlink::{Netlink, attribute, u16_of, u32_of, with_attribute};
use super::shaper;
use nix::sys::socket::SockProtocol::{self, NetlinkNetFilter, NetlinkRoute};
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;

const ROUTE: usize = 12; // struct rtmsg
const ROUTE_TYPE: usize = 7; // rtm_type in it
const NEIGHBOUR: usize = 12; // struct ndmsg
const MTU: u16 = 2; // RTAX_MTU
const VIA: u16 = 18; // RTA_VIA
const ENCAP_TYPE: u16 = 21; // RTA_ENCAP_TYPE
const IP_PROTO: u16 = 27; // RTA_IP_PROTO
const DPORT: u16 = 29; // RTA_DPORT
const NEXT_HOP: u16 = 30; // RTA_NH_ID: one, or several
const LINK: usize = 16; // struct ifinfomsg
const LINK_INDEX: usize = 4; // ifi_index in it

const TCX_INGRESS: u32 = 46; // BPF_TCX_INGRESS of linux/bpf.h

/// The states in which a neighbour's address is used (linux/neighbour.h, NUD_VALID).
const VALID: u16 = libc::NUD_PERMANENT
    | libc::NUD_NOARP
    | libc::NUD_REACHABLE
    | libc::NUD_PROBE
    | libc::NUD_STALE
    | libc::NUD_DELAY;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Why packets to an address cannot leave by a packet socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoHop {
    /// They are not routed, or the neighbour's address is not known yet.
    Unknown,
    /// They leave by another interface, or stay on this host.
    OtherInterface,
    /// Several routes lead there, and the kernel chooses by flow.
    SeveralWays,
    /// The route does something to them: a tunnel, another family's gateway.
    Special,
    /// The path takes shorter packets only.
    SmallMtu,
}

/// The routing table, asked.
#[derive(Debug)]
pub struct Routes {
    netlink: Netlink,
}

impl Routes {
    /// Of this network namespace.
    pub fn open() -> io::Result<Routes> {
        Ok(Routes { netlink: Netlink::open(NetlinkRoute)? })
    }

    /// The neighbour to whom UDP packets of up to `len` bytes from `from` to `to` go by `interface`.
    pub fn next_hop(&self, from: Ipv4Addr, to: SocketAddrV4, interface: u32, len: u32) -> Result<Mac, NoHop> {
        let route = self.route(from, to, 0)?;
        if route.first_chunk::<ROUTE>().is_none_or(|route| route[ROUTE_TYPE] != libc::RTN_UNICAST) {
            return Err(NoHop::OtherInterface);
        }
        let attributes = &route[ROUTE..];
        if attribute(attributes, libc::RTA_OIF).and_then(u32_of) != Some(interface) {
            return Err(NoHop::OtherInterface);
        }
        if attribute(attributes, VIA).is_some() || attribute(attributes, ENCAP_TYPE).is_some() {
            return Err(NoHop::Special);
        }
        let metrics = attribute(attributes, libc::RTA_METRICS).unwrap_or_default();
        let of_route = attribute(metrics, MTU).and_then(u32_of).filter(|&mtu| mtu != 0);
        if of_route.into_iter().chain(self.mtu(interface)).any(|mtu| mtu < len) {
            return Err(NoHop::SmallMtu);
        }
        let gateway = attribute(attributes, libc::RTA_GATEWAY).unwrap_or(&to.ip().octets()).to_vec();
        // What was found is one flow's way; the entry of the table has all.
        let entry = self.route(from, to, libc::RTM_F_FIB_MATCH)?;
        let several = |entry: &[u8]| {
            [libc::RTA_MULTIPATH, NEXT_HOP].iter().any(|&kind| attribute(entry, kind).is_some())
        };
        if entry.get(ROUTE..).is_none_or(several) {
            return Err(NoHop::SeveralWays);
        }
        self.neighbour(&gateway, interface)
    }

    fn route(&self, from: Ipv4Addr, to: SocketAddrV4, flags: u32) -> Result<Vec<u8>, NoHop> {
        let mut body = vec![libc::AF_INET as u8, 32, 32, 0, 0, 0, 0, 0];
        body.extend_from_slice(&flags.to_ne_bytes());
        body.extend(with_attribute(libc::RTA_DST, &to.ip().octets()));
        body.extend(with_attribute(libc::RTA_SRC, &from.octets()));
        body.extend(with_attribute(IP_PROTO, &[libc::IPPROTO_UDP as u8]));
        body.extend(with_attribute(DPORT, &to.port().to_be_bytes()));
        self.netlink.get(libc::RTM_GETROUTE, &body).map_err(|_| NoHop::Unknown)
    }

    /// Of an interface.
    pub fn mtu(&self, interface: u32) -> Option<u32> {
        let mut body = [0; LINK];
        body[LINK_INDEX..LINK_INDEX + 4].copy_from_slice(&interface.to_ne_bytes());
        let link = self.netlink.get(libc::RTM_GETLINK, &body).ok()?;
        attribute(link.get(LINK..)?, libc::IFLA_MTU).and_then(u32_of)
    }

    fn neighbour(&self, address: &[u8], interface: u32) -> Result<Mac, NoHop> {
        let mut body = vec![libc::AF_INET as u8, 0, 0, 0];
        body.extend_from_slice(&interface.to_ne_bytes());
        body.extend_from_slice(&[0; NEIGHBOUR - 8]);
        body.extend(with_attribute(libc::NDA_DST, address));
        let found = self.netlink.get(libc::RTM_GETNEIGH, &body).map_err(|_| NoHop::Unknown)?;
        let state = found.get(8..10).and_then(u16_of).unwrap_or(0);
        let mac = found.get(NEIGHBOUR..).and_then(|attributes| attribute(attributes, libc::NDA_LLADDR));
        let mac = mac.and_then(|mac| Mac::try_from(mac).ok());
        mac.filter(|_| state & VALID != 0).ok_or(NoHop::Unknown)
    }
}

/// What may look at this host's IP packets, or change them, and never sees those of a packet socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InBetween {
    /// Nothing.
    Nothing,
    /// Tables of a packet filter, or programs of a control group that are one.
    Filter,
    /// Policies of IPsec.
    Ipsec,
    /// Filters of `tc` for what comes by the interface.
    Ingress,
    /// Who asks may not know.
    Hidden,
}

/// Looks for it at an interface, in the network namespace in which it was made.
#[derive(Debug)]
pub struct Observer {
    interface: u32,
    tc: Netlink,
    /// /proc/net of that namespace.
    directory: File,
    parts: [Option<Netlink>; 2],
    groups: Groups,
}

const GET_TABLES: u16 = (libc::NFNL_SUBSYS_NFTABLES << 8 | libc::NFT_MSG_GETTABLE) as u16;

/// The library has no name for it, but for a protocol of the same number.
const NETLINK_XFRM: SockProtocol = SockProtocol::Tcp;
const _: () = assert!(NETLINK_XFRM as libc::c_int == libc::NETLINK_XFRM);

/// What is asked of each part: which message, what it holds, and what it means if there is an answer.
const QUESTIONS: [(SockProtocol, u16, usize, InBetween); 2] = [
    (NetlinkNetFilter, GET_TABLES, 4, InBetween::Filter), // struct nfgenmsg
    (NETLINK_XFRM, 21, 64, InBetween::Ipsec),             // XFRM_MSG_GETPOLICY; struct xfrm_userpolicy_id
];

impl Observer {
    /// Of an interface of this network namespace.
    pub fn new(interface: u32) -> io::Result<Observer> {
        let directory = File::open("/proc/thread-self/net")?;
        let mut parts = [None, None];
        for (part, (protocol, ..)) in parts.iter_mut().zip(QUESTIONS) {
            match Netlink::open(protocol) {
                Ok(netlink) => *part = Some(netlink),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Observer { interface, tc: Netlink::open(NetlinkRoute)?, directory, parts, groups: Groups::new()? })
    }

    /// What there is.
    pub fn look(&self) -> InBetween {
        let tables = format!("/proc/self/fd/{}/ip_tables_names", self.directory.as_raw_fd());
        match fs::read_to_string(tables) {
            Ok(tables) if tables.trim().is_empty() => {}
            Ok(_) => return InBetween::Filter,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return InBetween::Hidden,
        }
        for (part, (_, what, len, found)) in self.parts.iter().zip(QUESTIONS) {
            let Some(netlink) = part else { continue };
            match netlink.dump(what, &[0; 64][..len]) {
                Ok(all) if all.is_empty() => {}
                Ok(_) => return found,
                Err(error) if is_absent(&error) => {}
                Err(_) => return InBetween::Hidden,
            }
        }
        let asked = [
            (self.groups.has_packet_filter(), InBetween::Filter),
            (shaper::looks_at_what_comes(&self.tc, self.interface), InBetween::Ingress),
            (programs_at(self.interface, TCX_INGRESS, 0).map(|programs| programs > 0), InBetween::Ingress),
        ];
        for (answer, found) in asked {
            match answer {
                Ok(false) => {}
                Ok(true) => return found,
                Err(error) if is_absent(&error) => {}
                Err(_) => return InBetween::Hidden,
            }
        }
        InBetween::Nothing
    }
}

/// Whether an error says that there is no such part of the kernel, or no such interface.
fn is_absent(error: &io::Error) -> bool {
    let absent = [
        libc::EPROTONOSUPPORT,
        libc::EAFNOSUPPORT,
        libc::EINVAL,
        libc::EOPNOTSUPP,
        libc::ENOENT,
        libc::ENODEV,
    ];
    error.raw_os_error().is_some_and(|errno| absent.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_on_this_host_has_no_next_hop() {
        let local = Ipv4Addr::LOCALHOST;
        let found = Routes::open().unwrap().next_hop(local, SocketAddrV4::new(local, 9), 1, 100);
        assert_eq!(found, Err(NoHop::OtherInterface));
    }
}
