//! Socket addresses, and what all UDP sockets have in common.

use crate::sys::check;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

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

/// A socket address in the kernel's form.
#[derive(Clone, Copy)]
pub struct Destination {
    pub(super) addr: libc::sockaddr_in6,
    pub(super) len: libc::socklen_t,
}

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
        // SAFETY: both address structures are plain integers, for which zero is a value.
        let mut raw: libc::sockaddr_in6 = unsafe { zeroed() };
        let len = match addr {
            SocketAddr::V4(v4) => {
                // SAFETY: `sockaddr_in6` is longer than `sockaddr_in` and at least as strictly aligned.
                let raw = unsafe { &mut *ptr::from_mut(&mut raw).cast::<libc::sockaddr_in>() };
                raw.sin_family = libc::AF_INET as libc::sa_family_t;
                raw.sin_port = v4.port().to_be();
                raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                raw.sin6_port = v6.port().to_be();
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
            // SAFETY: `sockaddr_in6` is longer than `sockaddr_in` and at least as strictly aligned.
            let raw = unsafe { &*ptr::from_ref(raw).cast::<libc::sockaddr_in>() };
            let ip = raw.sin_addr.s_addr.to_ne_bytes().into();
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(raw.sin_port))))
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(raw.sin6_port), 0, raw.sin6_scope_id)))
        }
        _ => None,
    }
}

pub(super) fn set_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: `value` outlives the call, and its size is given.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

pub(super) fn get_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, ptr::from_mut(&mut value).cast(), &mut len)
    })?;
    Ok(value)
}

/// Whether no socket of this network namespace has the port of `addr`, an address of this host. Found out by having it
/// for a moment: that tells of one port in microseconds, where the kernel's list of sockets has them all.
pub fn is_free(addr: SocketAddr) -> io::Result<bool> {
    match bind(open_socket(addr.is_ipv6())?.as_fd(), addr) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn open_socket(v6: bool) -> io::Result<OwnedFd> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: no memory is involved.
    let fd = check(unsafe {
        libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    })?;
    // SAFETY: the descriptor is new and belongs to nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if v6 {
        set_option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    Ok(fd)
}

pub(super) fn bind(fd: BorrowedFd<'_>, addr: SocketAddr) -> io::Result<()> {
    let addr = Destination::new(addr);
    // SAFETY: the address outlives the call, and its length is given.
    check(unsafe { libc::bind(fd.as_raw_fd(), addr.as_ptr(), addr.len) })?;
    Ok(())
}

pub(super) fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    // SAFETY: the structure is plain integers.
    let mut raw: libc::sockaddr_in6 = unsafe { zeroed() };
    let mut len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `raw`.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), ptr::from_mut(&mut raw).cast(), &mut len) })?;
    address_from(&raw).ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
}

pub(super) fn connect(fd: BorrowedFd<'_>, to: &Destination) -> io::Result<()> {
    // SAFETY: the address outlives the call, and its length is given.
    check(unsafe { libc::connect(fd.as_raw_fd(), to.as_ptr(), to.len) })?;
    Ok(())
}

/// Undoes [`connect`] (connect(2), AF_UNSPEC).
pub(super) fn disconnect(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the structure is plain integers, and its family, zero, is AF_UNSPEC.
    let nobody: libc::sockaddr = unsafe { zeroed() };
    let len = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: the address outlives the call, and its length is given.
    check(unsafe { libc::connect(fd.as_raw_fd(), &nobody, len) })?;
    Ok(())
}

/// The local address from which the routing table would send to `to`. Nothing is sent.
pub fn source_towards(to: IpAddr) -> io::Result<IpAddr> {
    let fd = open_socket(to.is_ipv6())?;
    connect(fd.as_fd(), &Destination::new(SocketAddr::new(to, 9)))?;
    Ok(local_address(fd.as_fd())?.ip())
}

/// The path MTU towards `to` as far as the kernel knows it: the route's, or what routers have answered.
pub fn path_mtu(to: SocketAddr) -> io::Result<u16> {
    let fd = open_socket(to.is_ipv6())?;
    connect(fd.as_fd(), &Destination::new(to))?;
    let mtu = if to.is_ipv6() {
        get_option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MTU)?
    } else {
        get_option(fd.as_fd(), libc::IPPROTO_IP, libc::IP_MTU)?
    };
    Ok(mtu.clamp(0, u16::MAX as i32) as u16)
}
