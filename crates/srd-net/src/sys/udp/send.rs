//! The sending socket.

use super::address::{Destination, NOBODY, address_from, bind, disconnect, open_socket, scoped};
use super::control::{ControlBuffer, for_each_control};
use super::gather::Gather;
use crate::frame::ECT0;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::{setsockopt_impl, sockopt_impl};
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

// Options for which the library has no name.
sockopt_impl!(Ipv4MtuDiscovery, SetOnly, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::c_int);
sockopt_impl!(Ipv6MtuDiscovery, SetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::c_int);

/// Another process may take a port in the moment in which we let go of it.
const BIND_ATTEMPTS: u32 = 16;

/// A socket that sends, from a port of its own, to whomever each call names. To the one that it is connected to it sends
/// faster: the kernel remembers the way.
pub struct SendSocket {
    socket: UdpSocket,
    v6: bool,
    connected: Option<Destination>,
}

impl SendSocket {
    /// Binds to a port that the system chooses.
    ///
    /// Datagrams are never fragmented, by us or on the way; they carry ECT(0), so that a switch marks instead of
    /// dropping; and asynchronous errors (ICMP) and local drops are reported (`IP_RECVERR`).
    pub fn bind(ip: IpAddr, scope: u32) -> io::Result<SendSocket> {
        let v6 = ip.is_ipv6();
        let socket = open_socket(v6)?;
        // DO, not PROBE: the kernel then learns from routers and answers EMSGSIZE.
        if v6 {
            setsockopt(&socket, Ipv6MtuDiscovery, &libc::IPV6_PMTUDISC_DO)?;
            setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
            setsockopt(&socket, sockopt::Ipv6TClass, &ECT0.into())?;
        } else {
            setsockopt(&socket, Ipv4MtuDiscovery, &libc::IP_PMTUDISC_DO)?;
            setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
            setsockopt(&socket, sockopt::Ipv4Tos, &ECT0.into())?;
        }
        // By its number: a port that the system has chosen for a socket goes when that is disconnected.
        let mut attempts = BIND_ATTEMPTS;
        loop {
            let chosen = open_socket(v6)?;
            bind(&chosen, scoped(ip, 0, scope))?;
            let port = chosen.local_addr()?.port();
            drop(chosen);
            match bind(&socket, scoped(ip, port, scope)) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => attempts -= 1,
                bound => return bound.map(|()| SendSocket { socket, v6, connected: None }),
            }
        }
    }

    /// Connects it to `to`, if the system knows a way there. Until it is disconnected it does not hear what routers say of
    /// datagrams to anybody else.
    pub fn connect(&mut self, to: &Destination) {
        let known = address_from(&to.addr).is_some_and(|to| self.socket.connect(to).is_ok());
        self.connected = known.then_some(*to);
    }

    /// Connects it to nobody. It keeps its port.
    pub fn disconnect(&mut self) {
        if disconnect(&self.socket).is_ok() {
            self.connected = None;
        }
    }

    /// Whom it is connected to.
    #[inline]
    pub fn connected(&self) -> Option<&Destination> {
        self.connected.as_ref()
    }

    /// Whether the kernel can cut one buffer into many datagrams.
    pub fn has_gso(&self) -> bool {
        getsockopt(&self.socket, sockopt::UdpGsoSegment).is_ok()
    }

    /// The port it is bound to.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Sends what `gather` names to `to`: as one datagram, or with `segment` as datagrams of that size of which the
    /// last may be shorter. Never blocks.
    #[inline]
    pub fn send(&self, to: &Destination, gather: &Gather, segment: Option<u16>) -> io::Result<()> {
        self.send_pieces(to, &gather.pieces, segment)
    }

    #[inline]
    fn send_pieces(&self, to: &Destination, pieces: &[libc::iovec], segment: Option<u16>) -> io::Result<()> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let (name, name_len) = match self.connected.as_ref() == Some(to) {
            true => (ptr::null_mut(), 0),
            false => (to.as_ptr().cast_mut(), to.len),
        };
        if let (&[piece], None) = (pieces, segment) {
            // The same with less to copy for the kernel.
            // SAFETY: the address outlives the call. What the piece points to can be read, by the promise of whoever added it.
            let sent = unsafe {
                let (fd, len) = (self.socket.as_raw_fd(), piece.iov_len);
                libc::syscall(libc::SYS_sendto, fd, piece.iov_base, len, flags, name, name_len)
            };
            return if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        }
        /// A control message with a 16-bit value, laid out as `CMSG_FIRSTHDR` and `CMSG_DATA` find it.
        #[repr(C)]
        struct SegmentControl {
            header: libc::cmsghdr,
            segment: u16,
            pad: [u8; 6],
        }
        let mut control = SegmentControl {
            header: libc::cmsghdr {
                cmsg_len: size_of::<libc::cmsghdr>() + size_of::<u16>(),
                cmsg_level: libc::SOL_UDP,
                cmsg_type: libc::UDP_SEGMENT,
            },
            segment: segment.unwrap_or(0),
            pad: [0; 6],
        };
        // SAFETY: the structure is pointers and integers, for which zero is a value.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_name, header.msg_namelen) = (name.cast(), name_len);
        header.msg_iov = pieces.as_ptr().cast_mut();
        header.msg_iovlen = pieces.len();
        if segment.is_some() {
            header.msg_control = ptr::from_mut(&mut control).cast();
            header.msg_controllen = size_of::<SegmentControl>();
        }
        // The system call itself: the C library's function is a cancellation point, which costs two atomic writes.
        // SAFETY: address, control message and the array of pieces outlive the call. What the pieces point to
        // can be read, by the promise of whoever added them.
        let sent = unsafe { libc::syscall(libc::SYS_sendmsg, self.socket.as_raw_fd(), &header, flags) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends one datagram, in fragments if the way takes no longer ones.
    #[cold]
    pub fn send_in_fragments(&self, to: &Destination, bytes: &[u8]) -> io::Result<()> {
        let discover = |discover: bool| match (self.v6, discover) {
            (true, true) => setsockopt(&self.socket, Ipv6MtuDiscovery, &libc::IPV6_PMTUDISC_DO),
            (true, false) => setsockopt(&self.socket, Ipv6MtuDiscovery, &libc::IPV6_PMTUDISC_DONT),
            (false, true) => setsockopt(&self.socket, Ipv4MtuDiscovery, &libc::IP_PMTUDISC_DO),
            (false, false) => setsockopt(&self.socket, Ipv4MtuDiscovery, &libc::IP_PMTUDISC_DONT),
        };
        discover(false)?;
        let sent = self.send_bytes(to, bytes, None);
        discover(true)?;
        sent
    }

    /// As [`SendSocket::send`], one piece.
    pub fn send_bytes(&self, to: &Destination, bytes: &[u8], segment: Option<u16>) -> io::Result<()> {
        let pieces = [libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }];
        self.send_pieces(to, &pieces, segment)
    }

    /// Takes the oldest asynchronous error that the socket has been told of.
    pub fn take_error(&self) -> Option<SocketError> {
        let mut name = NOBODY;
        // SAFETY: the structure is pointers and integers, for which zero is a value.
        let mut header: libc::msghdr = unsafe { zeroed() };
        let mut control = ControlBuffer([0; 512]);
        header.msg_name = ptr::from_mut(&mut name).cast();
        header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len();
        // SAFETY: the kernel writes at most the given lengths to address and control buffer; there is no data buffer.
        let got = unsafe {
            libc::recvmsg(self.socket.as_raw_fd(), &mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
        };
        if got < 0 {
            return None;
        }
        let mut error = SocketError { to: address_from(&name), errno: 0, from_network: false, mtu: None };
        for_each_control(&header, |level, kind, data| {
            let wanted = if self.v6 {
                (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            } else {
                (libc::IPPROTO_IP, libc::IP_RECVERR)
            };
            if (level, kind) == wanted && data.len() >= size_of::<libc::sock_extended_err>() {
                // SAFETY: the length has been checked, and every bit pattern is a value.
                let report: libc::sock_extended_err = unsafe { ptr::read_unaligned(data.as_ptr().cast()) };
                error.errno = report.ee_errno as i32;
                error.from_network = report.ee_origin != libc::SO_EE_ORIGIN_LOCAL;
                if error.errno == libc::EMSGSIZE {
                    error.mtu = Some(report.ee_info.min(u16::MAX as u32) as u16);
                }
            }
        });
        Some(error)
    }
}

impl AsFd for SendSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What a socket was told after a send had returned, or in place of sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketError {
    /// Where the datagram was to go.
    pub to: Option<SocketAddr>,
    /// The error's number.
    pub errno: i32,
    /// Whether a router or the destination reported it (ICMP).
    pub from_network: bool,
    /// If the datagram was too large: what fits.
    pub mtu: Option<u16>,
}
