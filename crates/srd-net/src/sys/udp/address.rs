//! Socket addresses, and what all UDP sockets have in common.

use crate::sys::check;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, getsockopt, setsockopt, socket, sockopt,
};
use nix::{getsockopt_impl, sockopt_impl};
use std::io;
use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr;

// The library has no name for it.
sockopt_impl!(Ipv6Mtu, GetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU, libc::c_int);

/// An address with the scope that a link-local one needs.
pub fn scoped(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        IpAddr::V4(v4) => SocketAddr::V4(SocketAddrV4::new(v4, port)),
        IpAddr::V6(v6) => {
            let link_local = v6.is_unicast_link_local();
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, if link_local { scope } else { 0 }))
        }
    }
}

/// Of family 0, AF_UNSPEC.
pub(super) const NOBODY: libc::sockaddr_in6 = libc::sockaddr_in6 {
    sin6_family: 0,
    sin6_port: 0,
    sin6_flowinfo: 0,
    sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
    sin6_scope_id: 0,
};

/// A socket address in the kernel's form. Of IPv4 it is a `sockaddr_in`, whose address lies where the longer structure has
/// its flow.
#[derive(Clone, Copy)]
pub struct Destination {
    pub(super) addr: libc::sockaddr_in6,
    pub(super) len: libc::socklen_t,
}

const _: () =
    assert!(offset_of!(libc::sockaddr_in, sin_addr) == offset_of!(libc::sockaddr_in6, sin6_flowinfo));

impl PartialEq for Destination {
    #[inline]
    fn eq(&self, other: &Destination) -> bool {
        // What an IPv4 address leaves of the structure is zero.
        let (a, b) = (&self.addr, &other.addr);
        (a.sin6_family, a.sin6_port, a.sin6_flowinfo, a.sin6_scope_id)
            == (b.sin6_family, b.sin6_port, b.sin6_flowinfo, b.sin6_scope_id)
            && a.sin6_addr.s6_addr == b.sin6_addr.s6_addr
    }
}

impl Destination {
    /// The address in the kernel's form.
    pub fn new(addr: SocketAddr) -> Destination {
        let mut raw = NOBODY;
        raw.sin6_port = addr.port().to_be();
        let len = match addr {
            SocketAddr::V4(v4) => {
                raw.sin6_family = libc::AF_INET as libc::sa_family_t;
                raw.sin6_flowinfo = u32::from_ne_bytes(v4.ip().octets());
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                raw.sin6_addr.s6_addr = v6.ip().octets();
                raw.sin6_scope_id = v6.scope_id();
                size_of::<libc::sockaddr_in6>()
            }
        };
        Destination { addr: raw, len: len as libc::socklen_t }
    }

    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        ptr::from_ref(&self.addr).cast()
    }
}

/// The address in `raw`, which the kernel has written.
pub(super) fn address_from(raw: &libc::sockaddr_in6) -> Option<SocketAddr> {
    match raw.sin6_family as libc::c_int {
        libc::AF_INET => {
            let ip = raw.sin6_flowinfo.to_ne_bytes().into();
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(raw.sin6_port))))
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(raw.sin6_port), 0, raw.sin6_scope_id)))
        }
        _ => None,
    }
}

/// Whether no socket of this network namespace has the port of `addr`, an address of this host. Found out by having it
/// for a moment: that tells of one port in microseconds, where the kernel's list of sockets has them all.
pub fn is_free(addr: SocketAddr) -> io::Result<bool> {
    match bind(&open_socket(addr.is_ipv6())?, addr) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn open_socket(v6: bool) -> io::Result<UdpSocket> {
    let family = if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Datagram, flags, None)?;
    if v6 {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    Ok(socket.into())
}

pub(super) fn bind(socket: &UdpSocket, addr: SocketAddr) -> io::Result<()> {
    Ok(nix::sys::socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(addr))?)
}

/// Undoes `connect` (connect(2), AF_UNSPEC).
pub(super) fn disconnect(socket: &UdpSocket) -> io::Result<()> {
    let len = size_of_val(&NOBODY) as libc::socklen_t;
    // SAFETY: the address outlives the call, and its length is given.
    check(unsafe { libc::connect(socket.as_raw_fd(), ptr::from_ref(&NOBODY).cast(), len) })?;
    Ok(())
}

/// The local address from which the routing table would send to `to`. Nothing is sent.
pub fn source_towards(to: IpAddr) -> io::Result<IpAddr> {
    let socket = open_socket(to.is_ipv6())?;
    socket.connect((to, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// The path MTU towards `to` as far as the kernel knows it: the route's, or what routers have answered.
pub fn path_mtu(to: SocketAddr) -> io::Result<u16> {
    let socket = open_socket(to.is_ipv6())?;
    socket.connect(to)?;
    let mtu = if to.is_ipv6() { getsockopt(&socket, Ipv6Mtu)? } else { getsockopt(&socket, sockopt::IpMtu)? };
    Ok(mtu.clamp(0, u16::MAX as i32) as u16)
}
