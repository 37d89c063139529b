//! An AF_XDP socket of one receive queue of an interface, with its frames.

use super::queue::{Incoming, Mapping, Outgoing};
use crate::sys::check;
use nix::sys::socket::{getsockopt, setsockopt};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

sockopt_impl!(Frames, SetOnly, libc::SOL_XDP, libc::XDP_UMEM_REG, libc::xdp_umem_reg);
sockopt_impl!(FillRing, SetOnly, libc::SOL_XDP, libc::XDP_UMEM_FILL_RING, libc::c_int);
sockopt_impl!(CompletionRing, SetOnly, libc::SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, libc::c_int);
sockopt_impl!(ReceiveRing, SetOnly, libc::SOL_XDP, libc::XDP_RX_RING, libc::c_int);
sockopt_impl!(TransmitRing, SetOnly, libc::SOL_XDP, libc::XDP_TX_RING, libc::c_int);
sockopt_impl!(Offsets, GetOnly, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, libc::xdp_mmap_offsets);
sockopt_impl!(Counts, GetOnly, libc::SOL_XDP, libc::XDP_STATISTICS, libc::xdp_statistics);
sockopt_impl!(Facts, GetOnly, libc::SOL_XDP, libc::XDP_OPTIONS, libc::xdp_options);

/// The least that the kernel takes: a packet of 1,500 bytes fits with what lies before it.
pub const FRAME: usize = 2048;

/// Frames into which packets come, and from which they leave.
const RECEIVED: u32 = 1024;
const SENT: u32 = 256;
const MEMORY: NonZeroUsize = NonZeroUsize::new((RECEIVED + SENT) as usize * FRAME).unwrap();

/// The socket itself.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    memory: Mapping,
}

/// What comes by it.
#[derive(Debug)]
pub struct Receiving {
    pub socket: Arc<Socket>,
    free: Outgoing<u64>,
    received: Incoming<libc::xdp_desc>,
}

/// What leaves by it.
#[derive(Debug)]
pub struct Sending {
    socket: Arc<Socket>,
    to_send: Outgoing<libc::xdp_desc>,
    sent: Incoming<u64>,
    /// Frames in which nothing waits to leave.
    free: Vec<u64>,
}

impl Socket {
    /// One that is not bound yet, and its two directions. Needs CAP_NET_RAW.
    pub fn open() -> io::Result<(Receiving, Sending)> {
        // SAFETY: nothing but numbers.
        let fd = check(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: it is new, and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let memory = Mapping::new(MEMORY)?;
        let frames = libc::xdp_umem_reg {
            addr: memory.address(),
            len: memory.len() as u64,
            chunk_size: FRAME as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        setsockopt(&fd, Frames, &frames)?;
        setsockopt(&fd, FillRing, &(RECEIVED as libc::c_int))?;
        setsockopt(&fd, CompletionRing, &(SENT as libc::c_int))?;
        setsockopt(&fd, ReceiveRing, &(RECEIVED as libc::c_int))?;
        setsockopt(&fd, TransmitRing, &(SENT as libc::c_int))?;
        let at = getsockopt(&fd, Offsets)?;
        let mut free = Outgoing::new(&fd, at.fr, RECEIVED, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let received = Incoming::new(&fd, at.rx, RECEIVED, libc::XDP_PGOFF_RX_RING as u64)?;
        let to_send = Outgoing::new(&fd, at.tx, SENT, libc::XDP_PGOFF_TX_RING as u64)?;
        let sent = Incoming::new(&fd, at.cr, SENT, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let frame = |number: u32| u64::from(number) * FRAME as u64;
        (0..RECEIVED).map(frame).for_each(|frame| _ = free.put(frame));
        let socket = Arc::new(Socket { fd, memory });
        Ok((
            Receiving { socket: socket.clone(), free, received },
            Sending { socket, to_send, sent, free: (RECEIVED..RECEIVED + SENT).map(frame).collect() },
        ))
    }

    /// Binds it to a receive queue. `copies`: the driver must not fill its frames itself; otherwise it does so where it can.
    pub fn bind(&self, interface: u32, queue: u32, copies: bool) -> io::Result<()> {
        let to = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP | if copies { libc::XDP_COPY } else { 0 },
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let len = size_of_val(&to) as libc::socklen_t;
        // SAFETY: the address outlives the call, and its length is given.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), ptr::from_ref(&to).cast(), len) }).map(drop)
    }

    /// Whether the driver fills its frames itself.
    pub fn is_zero_copy(&self) -> bool {
        getsockopt(&self.fd, Facts).is_ok_and(|facts| facts.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Whether it is still bound: an interface that is deleted, or leaves the namespace, does not come back.
    #[cold]
    pub fn is_bound(&self) -> bool {
        self.call_to_receive().err().and_then(|error| error.raw_os_error()) != Some(libc::ENXIO)
    }

    /// Packets for which there was no room.
    pub fn dropped(&self) -> u64 {
        getsockopt(&self.fd, Counts).map_or(0, |counts| counts.rx_dropped + counts.rx_ring_full)
    }

    /// Its number, for the table of sockets.
    pub fn number(&self) -> u32 {
        self.fd.as_raw_fd() as u32
    }

    /// Makes the kernel look for free frames.
    fn call_to_receive(&self) -> io::Result<()> {
        // SAFETY: no memory is handed over.
        let got = unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Makes the kernel look for what is to be sent.
    #[inline]
    fn call_to_send(&self) -> io::Result<()> {
        // SAFETY: no memory is handed over.
        let sent =
            unsafe { libc::sendto(self.fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Receiving {
    /// The oldest frame that has come: what lies in it and, in front of that, so many bytes that the program has written. Nothing
    /// if either lies elsewhere.
    #[inline]
    pub fn first(&mut self, in_front: usize) -> Option<(&mut [u8], &mut [u8])> {
        let place = self.received.first()?;
        let memory = &self.socket.memory;
        let part = |at: Option<u64>, len: usize| {
            let part = at.and_then(|at| memory.part(at, len))?;
            // SAFETY: of a frame that the kernel has handed over, and gets back with `advance`, for which this borrow must have ended.
            Some(unsafe { &mut *part.as_ptr() })
        };
        let front = part(place.addr.checked_sub(in_front as u64), in_front);
        let frame = part(Some(place.addr), place.len as usize);
        Some((front.unwrap_or_default(), frame.unwrap_or_default()))
    }

    /// The oldest frame is the kernel's again.
    #[inline]
    pub fn advance(&mut self) {
        if let Some(place) = self.received.first() {
            self.free.put(place.addr); // there is room: it has as many entries as there are frames
            self.received.advance();
            if self.free.must_call() {
                let _ = self.socket.call_to_receive();
            }
        }
    }
}

impl Sending {
    /// Sends a frame that consists of these pieces. Never blocks.
    #[inline]
    pub fn send(&mut self, pieces: [&[u8]; 3]) -> io::Result<()> {
        let Sending { socket, to_send, sent, free } = self;
        while let Some(frame) = sent.first() {
            free.push(frame);
            sent.advance();
        }
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let frame = free.last().copied().filter(|_| len <= FRAME);
        let Some(part) = frame.and_then(|frame| socket.memory.part(frame, len)) else {
            let _ = socket.call_to_send();
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        };
        // SAFETY: of a frame that nobody else uses: the kernel has handed it back, or has never had it.
        let mut rest = unsafe { &mut *part.as_ptr() };
        for piece in pieces {
            let Some((to, behind)) = rest.split_at_mut_checked(piece.len()) else { break };
            to.copy_from_slice(piece);
            rest = behind;
        }
        let addr = part.as_ptr().cast::<u8>() as u64 - socket.memory.address();
        if to_send.put(libc::xdp_desc { addr, len: len as u32, options: 0 }) {
            free.pop();
        }
        if !to_send.must_call() {
            return Ok(());
        }
        match socket.call_to_send() {
            // It waits in the ring for the next call.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS)) => Ok(()),
            result => result,
        }
    }
}
