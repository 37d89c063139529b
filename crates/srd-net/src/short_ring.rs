//! What short packets come and leave by past the kernel's UDP sockets, of whichever kind.

use crate::sys::packet::{Captured, MOST_BYTES, PacketRing, PacketSender};
use crate::sys::route::Mac;
use crate::sys::xdp::{XdpRing, XdpSender};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// What they are where there is neither, in words.
pub const UDP_SOCKETS: &str = "UDP sockets";

/// Where they come.
#[derive(Debug)]
pub enum Ring {
    /// A packet socket, beside the UDP sockets: these get what it takes, too, unless they leave it ([`Ring::share`]).
    Packet(PacketRing),
    /// AF_XDP sockets, before the UDP sockets: these do not get what those take.
    Xdp(XdpRing),
}

impl Ring {
    /// Takes from this UDP port, too, from now on. False if there is no room for another one.
    pub fn add_port(&mut self, port: u16) -> io::Result<bool> {
        match self {
            Ring::Packet(ring) => ring.add_port(port),
            Ring::Xdp(ring) => ring.add_port(port),
        }
    }

    /// Whether UDP sockets get what it takes from this UDP port, too, unless they leave it.
    pub fn shares_port(&self, port: u16) -> bool {
        match self {
            Ring::Packet(ring) => ring.has_port(port),
            Ring::Xdp(_) => false,
        }
    }

    /// Makes a UDP socket that is bound to a port of ours leave to the ring what that takes, or take all.
    pub fn share(&self, socket: BorrowedFd<'_>, leaves: bool) -> io::Result<()> {
        match self {
            Ring::Packet(ring) => ring.share(socket, leaves),
            Ring::Xdp(_) => Ok(()),
        }
    }

    /// Takes nothing more; what it has is still to be taken. `sockets`: all those that have left packets to it ([`Ring::share`]).
    pub fn close<'a>(&mut self, sockets: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<()> {
        match self {
            Ring::Packet(ring) => ring.close(sockets),
            Ring::Xdp(ring) => {
                ring.close();
                Ok(())
            }
        }
    }

    /// Whether it takes datagrams, alone or joined, of this length, UDP header included.
    pub fn takes(&self, len: usize) -> bool {
        match self {
            Ring::Packet(ring) => ring.takes(len),
            Ring::Xdp(_) => len <= usize::from(MOST_BYTES),
        }
    }

    /// Whether it takes nothing more.
    pub fn is_closed(&self) -> bool {
        match self {
            Ring::Packet(ring) => ring.is_closed(),
            Ring::Xdp(ring) => ring.is_closed(),
        }
    }

    /// How many packets may be taken before the sockets are looked at again, up to `most`: those of a packet socket that are there, since
    /// what came before them, and did not come so, is in the sockets by now.
    #[inline]
    pub fn ready(&self, most: usize) -> usize {
        match self {
            Ring::Packet(ring) => ring.ready(most),
            Ring::Xdp(_) => most,
        }
    }

    /// The oldest packet, if there is one that has come until then; it is the kernel's again when `f` returns.
    #[inline]
    pub fn take<R>(&mut self, until: u64, f: impl FnOnce(Captured<'_>) -> R) -> Option<R> {
        match self {
            Ring::Packet(ring) => ring.take(until, f),
            Ring::Xdp(ring) => ring.take(until, f),
        }
    }

    /// Packets that have come by it and that UDP sockets have left to it, and packets that it had no room for. Both wrap.
    pub fn shared_and_dropped(&mut self) -> (u32, u32) {
        match self {
            Ring::Packet(ring) => ring.seen_and_dropped(),
            Ring::Xdp(ring) => (0, ring.dropped()),
        }
    }

    /// Whether it still belongs to its interface: one that is deleted, or leaves the namespace, does not come back. Follows that to another
    /// Ethernet address.
    #[cold]
    pub fn is_bound(&mut self) -> bool {
        match self {
            Ring::Packet(ring) => {
                ring.clear_error();
                ring.is_bound()
            }
            Ring::Xdp(ring) => ring.is_bound(),
        }
    }

    /// What to sleep on.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Ring::Packet(ring) => vec![ring.as_fd()],
            Ring::Xdp(ring) => ring.descriptors().collect(),
        }
    }
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ring::Packet(_) => f.write_str("packet sockets"),
            Ring::Xdp(ring) => write!(f, "AF_XDP sockets ({})", ring.mode()),
        }
    }
}

/// By what they leave.
pub enum Sender {
    /// A packet socket.
    Packet(PacketSender),
    /// An AF_XDP socket.
    Xdp(XdpSender),
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sender::Packet(_) => "a packet socket",
            Sender::Xdp(_) => "an AF_XDP socket",
        })
    }
}

impl Sender {
    /// Sends a packet, header and what follows it, to a neighbour. Never blocks.
    #[inline]
    pub fn send(&mut self, to: Mac, header: &[u8], payload: &[u8]) -> io::Result<()> {
        match self {
            Sender::Packet(sender) => sender.send(to, header, payload),
            Sender::Xdp(sender) => sender.send(to, header, payload),
        }
    }

    /// Follows the interface to another Ethernet address.
    #[cold]
    pub fn look(&mut self) {
        match self {
            Sender::Packet(_) => {} // the kernel writes it
            Sender::Xdp(sender) => sender.look(),
        }
    }
}
