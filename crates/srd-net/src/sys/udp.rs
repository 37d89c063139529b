//! UDP sockets: many datagrams per call through GSO and GRO, don't-fragment, drops counted, errors told apart.
//!
//! A [`SendSocket`] names its destination in each call, so that one socket serves all peers. A [`ReceiveSocket`]
//! is filled by the kernel with runs of equal datagrams from one sender; [`ReceiveBatch`] holds several such runs.

use super::check;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

/// Most bytes that one call sends: what fits an IPv6 packet without extension headers behind an IPv6 and a UDP
/// header (an IPv4 packet takes 20 more).
pub const MAX_SEND: usize = 65_535 - 40 - 8;

/// Most buffers that one call gathers from (`UIO_MAXIOV`).
pub const MAX_GATHER: usize = 1024;

/// Size of a receive buffer: the longest run of datagrams that GRO hands over.
const RUN_BYTES: usize = 65_536;

/// Most runs that one call receives.
pub const MAX_RUNS: usize = 8;

/// Place of the count of drops in what `SO_MEMINFO` gives (linux/sock_diag.h).
const SK_MEMINFO_DROPS: usize = 8;

/// Room for the control messages that a receive socket asks for: segment size, drops, traffic class.
const CONTROL_BYTES: usize = 128;

/// A socket address in the kernel's form.
#[derive(Clone, Copy)]
pub struct Destination {
    addr: libc::sockaddr_in6,
    len: libc::socklen_t,
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

    fn as_ptr(&self) -> *const libc::sockaddr {
        ptr::from_ref(&self.addr).cast()
    }
}

/// The address in `raw`, which the kernel has written.
fn address_from(raw: &libc::sockaddr_in6) -> Option<SocketAddr> {
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

fn set_option(
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

fn get_option(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, ptr::from_mut(&mut value).cast(), &mut len)
    })?;
    Ok(value)
}

fn open_socket(v6: bool) -> io::Result<OwnedFd> {
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

fn bind(fd: BorrowedFd<'_>, addr: SocketAddr) -> io::Result<()> {
    let addr = Destination::new(addr);
    // SAFETY: the address outlives the call, and its length is given.
    check(unsafe { libc::bind(fd.as_raw_fd(), addr.as_ptr(), addr.len) })?;
    Ok(())
}

fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    // SAFETY: the structure is plain integers.
    let mut raw: libc::sockaddr_in6 = unsafe { zeroed() };
    let mut len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `raw`.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), ptr::from_mut(&mut raw).cast(), &mut len) })?;
    address_from(&raw).ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
}

fn connect(fd: BorrowedFd<'_>, to: SocketAddr) -> io::Result<()> {
    let to = Destination::new(to);
    // SAFETY: the address outlives the call, and its length is given.
    check(unsafe { libc::connect(fd.as_raw_fd(), to.as_ptr(), to.len) })?;
    Ok(())
}

/// The local address from which the routing table would send to `to`. Nothing is sent.
pub fn source_towards(to: IpAddr) -> io::Result<IpAddr> {
    let fd = open_socket(to.is_ipv6())?;
    connect(fd.as_fd(), SocketAddr::new(to, 9))?;
    Ok(local_address(fd.as_fd())?.ip())
}

/// The path MTU towards `to` as far as the kernel knows it: the route's, or what routers have answered.
pub fn path_mtu(to: SocketAddr) -> io::Result<u16> {
    let fd = open_socket(to.is_ipv6())?;
    connect(fd.as_fd(), to)?;
    let mtu = if to.is_ipv6() {
        get_option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MTU)?
    } else {
        get_option(fd.as_fd(), libc::IPPROTO_IP, libc::IP_MTU)?
    };
    Ok(mtu.clamp(0, u16::MAX as i32) as u16)
}

/// A socket that sends, from a port of its own, to whomever each call names.
#[derive(Debug)]
pub struct SendSocket {
    fd: OwnedFd,
    v6: bool,
}

impl SendSocket {
    /// Binds to a port that the system chooses.
    ///
    /// Datagrams are never fragmented, by us or on the way; they carry ECT(0), so that a switch marks instead of
    /// dropping; and asynchronous errors (ICMP) and local drops are reported (`IP_RECVERR`).
    pub fn bind(ip: IpAddr, scope: u32) -> io::Result<SendSocket> {
        let v6 = ip.is_ipv6();
        let socket = SendSocket { fd: open_socket(v6)?, v6 };
        let fd = socket.fd.as_fd();
        // DO, not PROBE: the kernel then learns from routers and answers EMSGSIZE.
        if v6 {
            set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
            set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
            set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, ECT0)?;
        } else {
            set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
            set_option(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
            set_option(fd, libc::IPPROTO_IP, libc::IP_TOS, ECT0)?;
        }
        bind(fd, with_scope(ip, 0, scope))?;
        Ok(socket)
    }

    /// Whether the kernel can cut one buffer into many datagrams.
    pub fn has_gso(&self) -> bool {
        get_option(self.fd.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
    }

    /// The port it is bound to.
    pub fn port(&self) -> io::Result<u16> {
        Ok(local_address(self.fd.as_fd())?.port())
    }

    /// Sends what `gather` names to `to`: as one datagram, or with `segment` as datagrams of that size of which the
    /// last may be shorter. Never blocks.
    #[inline]
    pub fn send(&self, to: &Destination, gather: &Gather, segment: Option<u16>) -> io::Result<()> {
        self.send_pieces(to, &gather.pieces, segment)
    }

    #[inline]
    fn send_pieces(&self, to: &Destination, pieces: &[libc::iovec], segment: Option<u16>) -> io::Result<()> {
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
        header.msg_name = to.as_ptr().cast_mut().cast();
        header.msg_namelen = to.len;
        header.msg_iov = pieces.as_ptr().cast_mut();
        header.msg_iovlen = pieces.len();
        if segment.is_some() {
            header.msg_control = ptr::from_mut(&mut control).cast();
            header.msg_controllen = size_of::<SegmentControl>();
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // The system call itself: the C library's function is a cancellation point, which costs two atomic writes.
        // SAFETY: address, control message and the array of pieces outlive the call. What the pieces point to
        // can be read, by the promise of whoever added them.
        let sent = unsafe { libc::syscall(libc::SYS_sendmsg, self.fd.as_raw_fd(), &header, flags) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// As [`SendSocket::send`], one piece.
    pub fn send_bytes(&self, to: &Destination, bytes: &[u8], segment: Option<u16>) -> io::Result<()> {
        let pieces = [libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }];
        self.send_pieces(to, &pieces, segment)
    }

    /// Takes the oldest asynchronous error that the socket has been told of.
    pub fn take_error(&self) -> Option<SocketError> {
        // SAFETY: address and header are plain integers and pointers.
        let (mut name, mut header): (libc::sockaddr_in6, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
        let mut control = ControlBuffer([0; 512]);
        header.msg_name = ptr::from_mut(&mut name).cast();
        header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len();
        // SAFETY: the kernel writes at most the given lengths to address and control buffer; there is no data buffer.
        let got = unsafe {
            libc::recvmsg(self.fd.as_raw_fd(), &mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
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
        self.fd.as_fd()
    }
}

/// "ECN-capable transport", RFC 3168, section 5.
const ECT0: libc::c_int = 0b10;
/// "Congestion experienced", RFC 3168, section 5.
const CE: u8 = 0b11;

fn with_scope(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        IpAddr::V4(v4) => SocketAddr::V4(SocketAddrV4::new(v4, port)),
        IpAddr::V6(v6) => {
            let link_local = v6.is_unicast_link_local();
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, if link_local { scope } else { 0 }))
        }
    }
}

/// An address with the scope that a link-local one needs.
pub fn scoped(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    with_scope(ip, port, scope)
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

/// The bytes of a call to [`SendSocket::send`], gathered from pieces: some written into the gather's own buffer, some
/// left where they are in the program's memory.
pub struct Gather {
    pieces: Vec<libc::iovec>,
    // The own buffer. Raw, because pieces point into it while later ones are written.
    own: NonNull<u8>,
    own_used: usize,
    total: usize,
}

// SAFETY: the addresses are used only through `&self` and `&mut self`, from whichever thread that is.
unsafe impl Send for Gather {}

impl Default for Gather {
    fn default() -> Gather {
        Gather::new()
    }
}

impl Drop for Gather {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` with this length, and nobody uses it any more.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.own.as_ptr(), Self::OWN_BYTES)) });
    }
}

impl Gather {
    /// Size of the own buffer: the longest send.
    const OWN_BYTES: usize = MAX_SEND;

    /// Without pieces.
    pub fn new() -> Gather {
        let own = Box::into_raw(vec![0u8; Self::OWN_BYTES].into_boxed_slice()).cast::<u8>();
        Gather {
            pieces: Vec::with_capacity(MAX_GATHER),
            own: NonNull::new(own).expect("a box is not null"),
            own_used: 0,
            total: 0,
        }
    }

    /// How many bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.total
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Whether `pieces` more pieces with `bytes` more bytes still fit.
    #[inline]
    pub fn has_room(&self, pieces: usize, bytes: usize) -> bool {
        self.pieces.len() + pieces <= MAX_GATHER && self.total + bytes <= MAX_SEND
    }

    /// Forgets all pieces.
    #[inline]
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.own_used = 0;
        self.total = 0;
    }

    /// Adds `len` bytes of the own buffer, to be written by the caller: what they hold is left from before.
    ///
    /// # Panics
    ///
    /// If that is more than there is room for (see [`Gather::has_room`]).
    #[inline]
    pub fn append(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= Self::OWN_BYTES - self.own_used, "gather buffer overrun");
        // SAFETY: within the buffer, as just checked.
        let addr = unsafe { self.own.add(self.own_used) };
        self.own_used += len;
        self.push(addr.as_ptr(), len);
        // SAFETY: within the buffer, initialised when it was made, and given out to nobody else since `clear`.
        unsafe { std::slice::from_raw_parts_mut(addr.as_ptr(), len) }
    }

    /// Adds bytes that stay where they are.
    ///
    /// # Safety
    ///
    /// Until the gather is cleared, the `len` bytes at `addr` can be read.
    #[inline]
    pub unsafe fn reference(&mut self, addr: *const u8, len: usize) {
        self.push(addr.cast_mut(), len);
    }

    #[inline]
    fn push(&mut self, addr: *mut u8, len: usize) {
        self.total += len;
        if let Some(last) = self.pieces.last_mut()
            && last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == addr
        {
            last.iov_len += len;
            return;
        }
        self.pieces.push(libc::iovec { iov_base: addr.cast(), iov_len: len });
    }

    /// A copy of all bytes at the end of `out`.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            let start = out.len();
            out.resize(start + piece.iov_len, 0);
            // SAFETY: the piece can be read, by the promise of whoever added it or because it is ours; `out` has
            // just been made long enough. A program that writes its buffer while it is being sent may get either
            // content sent, as with any device that reads memory.
            unsafe {
                ptr::copy_nonoverlapping(
                    piece.iov_base.cast::<u8>(),
                    out.as_mut_ptr().add(start),
                    piece.iov_len,
                )
            };
        }
    }
}

/// A socket that receives, on a port of its own.
#[derive(Debug)]
pub struct ReceiveSocket {
    fd: OwnedFd,
    rcvbuf: u64,
    gro: bool,
}

impl ReceiveSocket {
    /// Binds to `addr` alone: `AddrInUse` if anyone else has the port. `rcvbuf` is the buffer to ask for, in bytes.
    pub fn bind(addr: SocketAddr, rcvbuf: u64) -> io::Result<ReceiveSocket> {
        let fd = open_socket(addr.is_ipv6())?;
        // The buffer first: from the moment it is bound, the socket fills.
        let wanted = rcvbuf.min(libc::c_int::MAX as u64 / 2) as libc::c_int;
        // FORCE ignores net.core.rmem_max, with CAP_NET_ADMIN.
        if set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wanted).is_err() {
            set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, wanted)?;
        }
        // The kernel doubles the value, for its own overhead (socket(7)).
        let rcvbuf = get_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF)? as u64 / 2;
        set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        if addr.is_ipv6() {
            set_option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        } else {
            set_option(fd.as_fd(), libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        }
        let gro = set_option(fd.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        bind(fd.as_fd(), addr)?;
        Ok(ReceiveSocket { fd, rcvbuf, gro })
    }

    /// The receive buffer that the system granted, in bytes.
    pub fn rcvbuf(&self) -> u64 {
        self.rcvbuf
    }

    /// Whether the kernel joins datagrams (GRO).
    pub fn has_gro(&self) -> bool {
        self.gro
    }

    /// Datagrams that it has dropped because its buffer was full. Wraps.
    pub fn drops(&self) -> Option<u32> {
        let mut info = [0u32; SK_MEMINFO_DROPS + 1];
        let mut len = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `info`.
        check(unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                info.as_mut_ptr().cast(),
                &mut len,
            )
        })
        .ok()?;
        (len as usize >= size_of_val(&info)).then_some(info[SK_MEMINFO_DROPS])
    }

    /// The address it is bound to.
    pub fn address(&self) -> io::Result<SocketAddr> {
        local_address(self.fd.as_fd())
    }
}

impl AsFd for ReceiveSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Buffers for what one call receives, kept from call to call.
pub struct ReceiveBatch {
    headers: Box<[libc::mmsghdr; MAX_RUNS]>,
    // The headers point into these three; none of them moves or is replaced while the batch lives.
    names: Box<[libc::sockaddr_in6; MAX_RUNS]>,
    controls: Box<[ControlBuffer<CONTROL_BYTES>; MAX_RUNS]>,
    _iovecs: Box<[libc::iovec; MAX_RUNS]>,
    bytes: Box<[u8]>,
    filled: usize,
}

// SAFETY: the addresses in the headers lead to memory that the batch owns.
unsafe impl Send for ReceiveBatch {}

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct ControlBuffer<const N: usize>([u8; N]);

/// Datagrams from one sender, of equal length but for the last, which may be shorter.
#[derive(Debug)]
pub struct Run<'a> {
    /// The sender.
    pub from: SocketAddr,
    /// The datagrams, one behind the other.
    pub bytes: &'a mut [u8],
    /// Length of each.
    pub segment: usize,
    /// Whether they carry a congestion mark.
    pub ce: bool,
    /// Datagrams that the socket has dropped so far because its buffer was full, if the kernel said so. Wraps.
    pub drops: Option<u32>,
    /// When the kernel received the first of them: nanoseconds of the system's real-time clock.
    pub arrived: Option<u64>,
}

impl<'a> Run<'a> {
    /// The datagrams.
    #[inline]
    pub fn datagrams(self) -> std::slice::ChunksMut<'a, u8> {
        self.bytes.chunks_mut(self.segment.max(1))
    }
}

impl Default for ReceiveBatch {
    fn default() -> ReceiveBatch {
        ReceiveBatch::new()
    }
}

impl ReceiveBatch {
    /// Buffers for [`MAX_RUNS`] runs. The memory is only really taken when it is first written.
    pub fn new() -> ReceiveBatch {
        let mut bytes = vec![0; MAX_RUNS * RUN_BYTES].into_boxed_slice();
        // SAFETY: the structures are pointers and integers, for which zero is a value.
        let mut headers: Box<[libc::mmsghdr; MAX_RUNS]> = unsafe { Box::new(zeroed()) };
        // SAFETY: as above.
        let mut names: Box<[libc::sockaddr_in6; MAX_RUNS]> = unsafe { Box::new(zeroed()) };
        // SAFETY: as above.
        let mut iovecs: Box<[libc::iovec; MAX_RUNS]> = unsafe { Box::new(zeroed()) };
        let mut controls = Box::new([ControlBuffer([0; CONTROL_BYTES]); MAX_RUNS]);
        let base = bytes.as_mut_ptr();
        let iovec_base = iovecs.as_mut_ptr();
        let control_base = controls.as_mut_ptr();
        let name_base = names.as_mut_ptr();
        for (i, header) in headers.iter_mut().enumerate() {
            // Pointers derived once from the start of each array, so that later use of one element does not
            // invalidate the others.
            let iovec = libc::iovec { iov_base: base.wrapping_add(i * RUN_BYTES).cast(), iov_len: RUN_BYTES };
            // SAFETY: `i` is below the length of the array.
            unsafe { iovec_base.add(i).write(iovec) };
            header.msg_hdr.msg_iov = iovec_base.wrapping_add(i);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = name_base.wrapping_add(i).cast();
            header.msg_hdr.msg_control = control_base.wrapping_add(i).cast();
        }
        ReceiveBatch { headers, names, controls, _iovecs: iovecs, bytes, filled: 0 }
    }

    /// Receives up to `most` runs (at most [`MAX_RUNS`]) that are there now. Returns how many.
    #[inline]
    pub fn receive(&mut self, socket: &ReceiveSocket, most: usize) -> io::Result<usize> {
        let most = most.min(MAX_RUNS);
        self.filled = 0;
        for header in &mut self.headers[..most] {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
        }
        // The system call itself, as in `send_pieces`.
        // SAFETY: every pointer in the first `most` headers leads to memory of the given length that `self` owns.
        let got = unsafe {
            libc::syscall(
                libc::SYS_recvmmsg,
                socket.fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                most as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut::<libc::timespec>(),
            )
        };
        match check(got as libc::c_int) {
            Ok(n) => {
                self.filled = n as usize;
                Ok(self.filled)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(e) => Err(e),
        }
    }

    /// Run number `i` of those that the last call received.
    #[inline]
    pub fn run(&mut self, i: usize) -> Option<Run<'_>> {
        assert!(i < self.filled);
        let header = &self.headers[i];
        let len = header.msg_len as usize;
        let mut run = Run {
            from: address_from(&self.names[i])?,
            bytes: &mut self.bytes[i * RUN_BYTES..i * RUN_BYTES + len],
            segment: len,
            ce: false,
            drops: None,
            arrived: None,
        };
        let control = &self.controls[i].0[..header.msg_hdr.msg_controllen.min(CONTROL_BYTES)];
        for_each_control_in(control, |level, kind, data| match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                if let Some(size) = first_int(data) {
                    run.segment = size.max(1) as usize;
                }
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => run.arrived = timespec_nanos(data),
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => run.drops = first_int(data).map(|n| n as u32),
            (libc::IPPROTO_IP, libc::IP_TOS) => run.ce = data.first().is_some_and(|tos| tos & 3 == CE),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                run.ce = first_int(data).is_some_and(|class| class as u8 & 3 == CE);
            }
            _ => {}
        });
        Some(run)
    }
}

/// The time in `data`, a `struct timespec`.
#[inline]
fn timespec_nanos(data: &[u8]) -> Option<u64> {
    if data.len() < size_of::<libc::timespec>() {
        return None;
    }
    // SAFETY: there are that many bytes, and every bit pattern is a value.
    let time: libc::timespec = unsafe { ptr::read_unaligned(data.as_ptr().cast()) };
    Some((time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64))
}

fn first_int(data: &[u8]) -> Option<i32> {
    data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

/// Calls `f` with level, type and data of each control message of `header`.
fn for_each_control(header: &libc::msghdr, f: impl FnMut(i32, i32, &[u8])) {
    if header.msg_controllen > 0 {
        // SAFETY: the kernel has written that many bytes there, and they are not written while `header` is borrowed.
        let control = unsafe {
            std::slice::from_raw_parts(header.msg_control.cast_const().cast::<u8>(), header.msg_controllen)
        };
        for_each_control_in(control, f);
    }
}

/// Calls `f` with level, type and data of each control message in `control`: `cmsg(3)` with bounds checks.
#[inline]
fn for_each_control_in(mut control: &[u8], mut f: impl FnMut(i32, i32, &[u8])) {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    const WORD: usize = size_of::<usize>();
    while control.len() >= HEADER {
        // SAFETY: there are that many bytes, and every bit pattern is a value.
        let header: libc::cmsghdr = unsafe { ptr::read_unaligned(control.as_ptr().cast()) };
        let len = header.cmsg_len;
        if len < HEADER || len > control.len() {
            return;
        }
        f(header.cmsg_level, header.cmsg_type, &control[HEADER..len]);
        control = control.get(len.next_multiple_of(WORD)..).unwrap_or(&[]);
    }
}
