//! The receiving socket, and the buffers that it is read into.
// What comes from peers goes through here: nothing of it may bring the process down.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

use super::address::{NOBODY, address_from, bind, open_socket};
use super::control::{ControlBuffer, first_int, for_each_control_in, timespec_nanos};
use crate::frame::CE;
use crate::sys::check;
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

/// Size of a receive buffer: the longest run of datagrams that GRO hands over.
const RUN_BYTES: usize = 65_536;

/// Most runs that one call receives.
pub const MAX_RUNS: usize = 8;

/// Place of the count of drops in what `SO_MEMINFO` gives (linux/sock_diag.h).
const SK_MEMINFO_DROPS: usize = 8;

/// Room for the control messages that a receive socket asks for: segment size, traffic class, time.
const CONTROL_BYTES: usize = 128;

/// A socket that receives, on a port of its own.
#[derive(Debug)]
pub struct ReceiveSocket {
    socket: UdpSocket,
    rcvbuf: u64,
    gro: bool,
}

impl ReceiveSocket {
    /// Binds to `addr` alone: `AddrInUse` if anyone else has the port. `rcvbuf` is the buffer to ask for, in bytes.
    pub fn bind(addr: SocketAddr, rcvbuf: u64) -> io::Result<ReceiveSocket> {
        let socket = open_socket(addr.is_ipv6())?;
        // The buffer first: from the moment it is bound, the socket fills.
        let wanted = rcvbuf.min(libc::c_int::MAX as u64 / 2) as usize;
        // FORCE ignores net.core.rmem_max, with CAP_NET_ADMIN.
        if setsockopt(&socket, sockopt::RcvBufForce, &wanted).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &wanted)?;
        }
        // The kernel doubles the value, for its own overhead (socket(7)).
        let rcvbuf = getsockopt(&socket, sockopt::RcvBuf)? as u64 / 2;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        if addr.is_ipv6() {
            setsockopt(&socket, sockopt::Ipv6RecvTClass, &true)?;
        } else {
            setsockopt(&socket, sockopt::IpRecvTos, &true)?;
        }
        let gro = setsockopt(&socket, sockopt::UdpGroSegment, &true).is_ok();
        bind(&socket, addr)?;
        Ok(ReceiveSocket { socket, rcvbuf, gro })
    }

    /// The receive buffer that the system granted, in bytes.
    pub fn rcvbuf(&self) -> u64 {
        self.rcvbuf
    }

    /// Whether the kernel joins datagrams (GRO).
    pub fn has_gro(&self) -> bool {
        self.gro
    }

    /// Datagrams that it has dropped, because its buffer was full or its filter said so. Wraps.
    pub fn drops(&self) -> Option<u32> {
        let mut info = [0u32; SK_MEMINFO_DROPS + 1];
        let mut len = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `info`.
        check(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
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
        self.socket.local_addr()
    }
}

impl AsFd for ReceiveSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
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
    /// When the kernel received the first of them: nanoseconds of the system's real-time clock.
    pub arrived: Option<u64>,
}

impl<'a> Run<'a> {
    /// What has come from `from`, with what the kernel says of it in control messages.
    #[doc(hidden)]
    #[inline]
    pub fn new(from: SocketAddr, bytes: &'a mut [u8], control: &[u8]) -> Run<'a> {
        let segment = bytes.len();
        let mut run = Run { from, bytes, segment, ce: false, arrived: None };
        for_each_control_in(control, |level, kind, data| match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                // A length that cannot be splits nothing.
                if let Some(size @ 1..) = first_int(data) {
                    run.segment = size as usize;
                }
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => run.arrived = timespec_nanos(data),
            (libc::IPPROTO_IP, libc::IP_TOS) => run.ce = data.first().is_some_and(|tos| tos & 3 == CE),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                run.ce = first_int(data).is_some_and(|class| class as u8 & 3 == CE);
            }
            _ => {}
        });
        run
    }

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
        let mut names = Box::new([NOBODY; MAX_RUNS]);
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

    /// Receives up to `most` runs (at most [`MAX_RUNS`]) that are there now. Returns how many. One is received with the
    /// cheaper call.
    #[inline]
    pub fn receive(&mut self, socket: &ReceiveSocket, most: usize) -> io::Result<usize> {
        let most = most.min(MAX_RUNS);
        self.filled = 0;
        for header in self.headers.iter_mut().take(most) {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
        }
        // The system call itself, as in `send_pieces`.
        // SAFETY: every pointer in the first `most` headers leads to memory of the given length that `self` owns.
        let got = unsafe {
            let (fd, flags) = (socket.socket.as_raw_fd(), libc::MSG_DONTWAIT);
            if most == 1 {
                let header = &raw mut (*self.headers.as_mut_ptr()).msg_hdr;
                libc::syscall(libc::SYS_recvmsg, fd, header, flags)
            } else {
                let no_time = ptr::null_mut::<libc::timespec>();
                libc::syscall(libc::SYS_recvmmsg, fd, self.headers.as_mut_ptr(), most, flags, no_time)
            }
        };
        if got < 0 && Errno::last_raw() == libc::EAGAIN {
            return Ok(0); // as most calls do: no error is made of it
        }
        self.filled = match check(got as libc::c_int)? as usize {
            len if most == 1 => {
                self.headers.iter_mut().take(1).for_each(|header| header.msg_len = len as u32);
                1
            }
            n => n,
        };
        Ok(self.filled)
    }

    /// Run number `i` of those that the last call received.
    #[inline]
    pub fn run(&mut self, i: usize) -> Option<Run<'_>> {
        assert!(i < self.filled);
        let header = self.headers.get(i)?;
        let len = header.msg_len as usize;
        let control = self.controls.get(i)?.0.get(..header.msg_hdr.msg_controllen.min(CONTROL_BYTES))?;
        let bytes = self.bytes.get_mut(i * RUN_BYTES..)?.get_mut(..len)?;
        Some(Run::new(address_from(self.names.get(i)?)?, bytes, control))
    }
}
