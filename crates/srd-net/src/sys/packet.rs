//! Packet sockets (packet(7)): short IPv4 datagrams past the kernel's UDP and IP layers. They arrive in a ring that the
//! kernel shares with us, so that to look costs a load; they leave through the interface's queue as all others do.
//!
//! The frames are those that UDP sockets send and receive. Which ones the ring takes, a UDP socket of ours must not take, too:
//! [`PacketRing::share`] tells its filter.
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

use super::check;
use super::route::Mac;
use crate::frame::{HEADERS, UDP};
use arrayvec::ArrayVec;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, getsockopt, setsockopt, socket, sockopt};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use std::io;
use std::iter::successors;
use std::mem::size_of;
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// The longest datagram, UDP header included, that takes this way: a message of 1 KiB fits, a full packet of a stream does not.
pub const MOST_BYTES: u16 = 1280;

/// The longest of joined datagrams that do: a message of 8 KiB fits, a full send of a stream does not.
pub const MOST_JOINED: u16 = 9216;

/// From this MTU on full packets fill frames of the ring, and take this way, too.
const FILLS_FRAMES: u32 = 4500;

/// Which lengths come this way at an interface: of datagrams, alone or joined, UDP header included.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Longer ones come this way, up to [`MOST_JOINED`].
    alone: u16,
}

impl Lengths {
    /// At an interface of this MTU. A full packet of a stream does not where frames are longer: there is room for fewer of these than in a
    /// UDP socket.
    pub fn at(mtu: u32) -> Lengths {
        let alone = if mtu < FILLS_FRAMES { mtu.saturating_sub(IP_HEADER) as u16 } else { 0 };
        Lengths { alone: alone.max(MOST_BYTES) }
    }

    /// Whether this length does.
    #[inline]
    pub fn take(self, len: usize) -> bool {
        let [most, alone, most_joined] = [MOST_BYTES, self.alone, MOST_JOINED].map(usize::from);
        len <= most || (alone < len && len <= most_joined)
    }
}

/// Ports that a ring can take from: its filter names them one by one.
pub const MOST_PORTS: usize = 16;

// Options for which the library has no name.
sockopt_impl!(PacketVersion, SetOnly, libc::SOL_PACKET, libc::PACKET_VERSION, libc::c_int);
sockopt_impl!(IgnoreOutgoing, SetOnly, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, bool);
sockopt_impl!(PacketOffloads, SetOnly, libc::SOL_PACKET, libc::PACKET_VNET_HDR, bool);
sockopt_impl!(ReceiveRing, SetOnly, libc::SOL_PACKET, libc::PACKET_RX_RING, libc::tpacket_req);
sockopt_impl!(PacketCounts, GetOnly, libc::SOL_PACKET, libc::PACKET_STATISTICS, libc::tpacket_stats);
sockopt_impl!(Filter, SetOnly, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, libc::sock_fprog);

/// The first field of `struct tpacket2_hdr`: whose the frame is.
struct Status(AtomicU32);

/// `struct virtio_net_hdr` of linux/virtio_net.h, which lies before a packet.
const OFFLOADS: usize = 10;
const SEGMENT_IN_OFFLOADS: usize = 4;

const IP_HEADER: u32 = (HEADERS - UDP) as u32;

/// Linux that says into which datagrams it would cut what lies in the ring (VIRTIO_NET_HDR_GSO_UDP_L4).
const LEAST_LINUX: (u32, u32) = (6, 2);

/// Where a filter finds the IP header, however long what is before it.
const IP: u32 = libc::SKF_NET_OFF as u32;

/// A frame: a seventh of a block, which begins with one.
const FRAME: usize = 9360;
const BLOCK: usize = 64 << 10;
const FRAMES: usize = BLOCK / FRAME * (RING.get() / BLOCK);
const RING: NonZeroUsize = NonZeroUsize::new(4 << 20).unwrap();
/// What the kernel puts before an IP packet (linux/if_packet.h), rounded up.
const BEFORE: usize = 96;
const _: () = assert!(
    FRAME.is_multiple_of(libc::TPACKET_ALIGNMENT) && BEFORE + HEADERS - UDP + MOST_JOINED as usize <= FRAME
);

/// Receives what comes to some UDP ports of one address by one interface.
#[derive(Debug)]
pub struct PacketRing {
    fd: OwnedFd,
    interface: u32,
    address: Ipv4Addr,
    ports: Vec<u16>,
    lengths: Lengths,
    memory: NonNull<u8>,
    /// Where the next frame begins.
    next: usize,
    closed: bool,
    /// Packets that have come, and that found no room: the kernel forgets its counts when it is asked.
    seen: u32,
    dropped: u32,
}

// SAFETY: the memory belongs to the ring alone, and is used only through `&self` and `&mut self`.
unsafe impl Send for PacketRing {}

/// A packet in the ring.
#[derive(Debug)]
pub struct Captured<'a> {
    /// Its bytes, from its IP header on.
    pub bytes: &'a mut [u8],
    /// Of datagrams that their sender or the kernel has joined (GSO, GRO): the length of each but the last.
    pub segment: Option<u16>,
    /// Whether its UDP checksum is known to be right: it never left this machine, or the card has looked.
    pub checked: bool,
    /// When the kernel received it: nanoseconds of the system's real-time clock.
    pub arrived: u64,
}

impl PacketRing {
    /// A ring for what comes to `address` by an Ethernet interface. Needs CAP_NET_RAW.
    pub fn open(interface: u32, address: Ipv4Addr, lengths: Lengths) -> io::Result<PacketRing> {
        if linux().is_none_or(|version| version < LEAST_LINUX) {
            let why = "it takes Linux 6.2 to tell joined datagrams apart";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let fd = open_socket(SockType::Raw)?;
        setsockopt(&fd, PacketVersion, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        setsockopt(&fd, PacketOffloads, &true)?;
        setsockopt(&fd, IgnoreOutgoing, &true)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as libc::c_uint,
            tp_block_nr: (RING.get() / BLOCK) as libc::c_uint,
            tp_frame_size: FRAME as libc::c_uint,
            tp_frame_nr: FRAMES as libc::c_uint,
        };
        setsockopt(&fd, ReceiveRing, &request)?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let kind = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: a new mapping of the descriptor's ring.
        let memory = unsafe { mmap(None, RING, rights, kind, &fd, 0) }?.cast();
        let ring = PacketRing {
            fd,
            interface,
            address,
            ports: Vec::new(),
            lengths,
            memory,
            next: 0,
            closed: false,
            seen: 0,
            dropped: 0,
        };
        // Before it is bound, so that nothing else ever comes.
        ring.filter()?;
        // All that comes: of IP packets alone it would get each when IP and UDP are through with it, which takes a microsecond.
        let to =
            libc::sockaddr_ll { sll_protocol: (libc::ETH_P_ALL as u16).to_be(), ..link_address(interface) };
        // SAFETY: the address outlives the call, and its length is given.
        check(unsafe {
            libc::bind(ring.fd.as_raw_fd(), ptr::from_ref(&to).cast(), size_of_val(&to) as libc::socklen_t)
        })?;
        if ring.bound_to()?.sll_hatype != libc::ARPHRD_ETHER {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it is no Ethernet interface"));
        }
        Ok(ring)
    }

    /// Takes from this UDP port, too, from now on. False if there is no room for another one.
    pub fn add_port(&mut self, port: u16) -> io::Result<bool> {
        if self.closed || self.ports.len() == MOST_PORTS {
            return Ok(false);
        }
        self.ports.push(port);
        let filtered = self.filter();
        if filtered.is_err() {
            self.ports.pop();
        }
        filtered.map(|()| true)
    }

    /// Whether it takes from this UDP port.
    pub fn has_port(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }

    /// Makes a UDP socket that is bound to a port of ours leave to the ring what that takes, or take all.
    pub fn share(&self, socket: BorrowedFd<'_>, leaves: bool) -> io::Result<()> {
        if leaves {
            set_filter(socket, &udp_filter(self.interface, self.lengths))
        } else {
            set_filter(socket, &[step(RETURN, u32::MAX)])
        }
    }

    /// Takes nothing more; what it has is still to be taken. `sockets`: all those that have left packets to it ([`PacketRing::share`]).
    pub fn close<'a>(&mut self, mut sockets: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<()> {
        self.closed = true;
        sockets.try_for_each(|socket| self.share(socket, false))?;
        self.ports.clear();
        self.filter()
    }

    /// Whether it takes datagrams, alone or joined, of this length, UDP header included.
    pub fn takes(&self, len: usize) -> bool {
        self.lengths.take(len)
    }

    /// Whether it takes nothing more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn filter(&self) -> io::Result<()> {
        set_filter(self.fd.as_fd(), &ring_filter(self.address, &self.ports, self.lengths))
    }

    /// The frame that begins there.
    #[inline]
    fn frame(&self, at: usize) -> (NonNull<u8>, &AtomicU32) {
        // SAFETY: at `next`, and at what `after` makes of it, begins a frame, and that with such a header, aligned to a part of a page.
        unsafe {
            let frame = self.memory.add(at);
            (frame, &(*frame.cast::<Status>().as_ptr()).0)
        }
    }

    /// Where the frame after that begins.
    #[inline]
    fn after(at: usize) -> usize {
        let next = at + FRAME;
        if next % BLOCK + FRAME <= BLOCK { next } else { next.next_multiple_of(BLOCK) % RING }
    }

    /// How many packets are there, up to `most`.
    #[inline]
    pub fn ready(&self, most: usize) -> usize {
        let there = |at: &usize| self.frame(*at).1.load(Ordering::Acquire) & libc::TP_STATUS_USER != 0;
        successors(Some(self.next), |&at| Some(Self::after(at))).take(most).take_while(there).count()
    }

    /// The oldest packet, if there is one that has come until then; it is the kernel's again when `f` returns.
    #[inline]
    pub fn take<R>(&mut self, until: u64, f: impl FnOnce(Captured<'_>) -> R) -> Option<R> {
        let (frame, status) = self.frame(self.next);
        let state = status.load(Ordering::Acquire);
        if state & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the rest of the frame, which is ours until its status says otherwise.
        let rest = unsafe {
            std::slice::from_raw_parts_mut(
                frame.add(size_of::<Status>()).as_ptr(),
                FRAME - size_of::<Status>(),
            )
        };
        let captured = captured(state, rest);
        if captured.arrived > until {
            return None;
        }
        let result = f(captured);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = Self::after(self.next);
        Some(result)
    }

    /// Packets that have come, and those of them that it had no room for. Both wrap.
    pub fn seen_and_dropped(&mut self) -> (u32, u32) {
        if let Ok(counts) = getsockopt(&self.fd, PacketCounts) {
            self.seen = self.seen.wrapping_add(counts.tp_packets);
            self.dropped = self.dropped.wrapping_add(counts.tp_drops);
        }
        (self.seen, self.dropped)
    }

    /// Whether it still belongs to its interface: one that is deleted, or leaves the namespace, does not come back.
    #[cold]
    pub fn is_bound(&self) -> bool {
        self.bound_to().is_ok_and(|to| to.sll_ifindex == self.interface as libc::c_int)
    }

    /// The library's function refuses an address that is shorter than its structure, as the kernel's are.
    fn bound_to(&self) -> io::Result<libc::sockaddr_ll> {
        let mut to = link_address(0);
        let mut len = size_of_val(&to) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to the address.
        check(unsafe { libc::getsockname(self.fd.as_raw_fd(), ptr::from_mut(&mut to).cast(), &mut len) })?;
        Ok(to)
    }

    /// Forgets that the interface was down: until then a sleep on the descriptor ends at once.
    #[cold]
    pub fn clear_error(&self) {
        let _ = getsockopt(&self.fd, sockopt::SocketError);
    }
}

impl AsFd for PacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: the mapping that `open` made, which nobody uses any more.
        let _ = unsafe { munmap(self.memory.cast(), RING.get()) };
    }
}

/// What a frame holds, from the second field of its `struct tpacket2_hdr` on. Whatever its offsets are, it stays within.
#[inline]
fn captured(state: u32, rest: &mut [u8]) -> Captured<'_> {
    let word = |at: usize| {
        let bytes = rest.get(at - size_of::<Status>()..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |&bytes| u32::from_ne_bytes(bytes))
    };
    let half = |at: usize| {
        let bytes = rest.get(at.saturating_sub(size_of::<Status>())..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |&bytes| u16::from_ne_bytes(bytes))
    };
    let (snaplen, mac, net) = (word(8) as usize, usize::from(half(12)), usize::from(half(14)));
    let arrived = u64::from(word(16)) * 1_000_000_000 + u64::from(word(20));
    let segment = half(mac.saturating_sub(OFFLOADS) + SEGMENT_IN_OFFLOADS);
    let place = |at: usize| at.saturating_sub(size_of::<Status>());
    let end = place(mac + snaplen).min(rest.len());
    Captured {
        bytes: rest.get_mut(place(net)..end).unwrap_or_default(),
        segment: (segment > 0).then_some(segment),
        checked: state & (libc::TP_STATUS_CSUM_VALID | libc::TP_STATUS_CSUMNOTREADY) != 0,
        arrived,
    }
}

/// Sends IPv4 packets to neighbours.
#[derive(Debug)]
pub struct PacketSender {
    fd: OwnedFd,
    interface: u32,
}

impl PacketSender {
    /// By that interface. Needs CAP_NET_RAW.
    pub fn open(interface: u32) -> io::Result<PacketSender> {
        // It asks for no protocol: so it receives nothing.
        Ok(PacketSender { fd: open_socket(SockType::Datagram)?, interface })
    }

    /// Sends a packet, header and what follows it. Never blocks.
    #[inline]
    pub fn send(&self, to: Mac, header: &[u8], payload: &[u8]) -> io::Result<()> {
        let [m0, m1, m2, m3, m4, m5] = to;
        let to = libc::sockaddr_ll {
            sll_halen: to.len() as u8,
            sll_addr: [m0, m1, m2, m3, m4, m5, 0, 0],
            ..link_address(self.interface)
        };
        // In one piece: the kernel takes longer to gather two than we do to join them.
        let mut packet = ArrayVec::<u8, { HEADERS - UDP + MOST_BYTES as usize }>::new();
        let joined =
            packet.try_extend_from_slice(header).and_then(|()| packet.try_extend_from_slice(payload));
        if joined.is_err() {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        // SAFETY: address and packet outlive the call, and their lengths are given.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                self.fd.as_raw_fd(),
                packet.as_ptr(),
                packet.len(),
                libc::MSG_DONTWAIT,
                ptr::from_ref(&to),
                size_of::<libc::sockaddr_ll>(),
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn open_socket(kind: SockType) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(AddressFamily::Packet, kind, flags, None)?)
}

/// The kernel's version.
fn linux() -> Option<(u32, u32)> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn link_address(interface: u32) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: (libc::ETH_P_IP as u16).to_be(),
        sll_ifindex: interface as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

// ---- filters: the kernel's instructions of old (BPF; its Documentation/networking/filter.rst) ----

fn step(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_HALF_BEHIND_HEADER: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
const HEADER_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const ABOVE: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
const PROTOCOL: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
/// Whether it has a tag of 802.1Q: it is for another interface then.
const VLAN_TAG: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG_PRESENT) as u32;
const INTERFACE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_IFINDEX) as u32;

/// Goes on where `yes` and `no` say, counted from the next instruction.
fn jump(test: u32, k: u32, yes: usize, no: usize) -> libc::sock_filter {
    libc::sock_filter { jt: yes as u8, jf: no as u8, ..step(test, k) }
}

/// Of a length, which is loaded: goes to the next instruction if it takes this way, and over `no` instructions if not.
fn takes(lengths: Lengths, no: usize) -> [libc::sock_filter; 3] {
    [
        jump(ABOVE, u32::from(MOST_BYTES), 0, 2),
        jump(ABOVE, u32::from(lengths.alone), 0, no + 1),
        jump(ABOVE, u32::from(MOST_JOINED), no, 0),
    ]
}

/// Of IPv4 packets on Ethernet that are for this host alone: whole UDP datagrams of such lengths for these ports of this address.
fn ring_filter(address: Ipv4Addr, ports: &[u16], lengths: Lengths) -> Vec<libc::sock_filter> {
    // What each test asks for; those that must not be met jump the other way.
    let tests: [(libc::sock_filter, u32, u32, bool); 6] = [
        (step(LOAD_HALF, PROTOCOL), EQUAL, libc::ETH_P_IP as u32, true),
        (step(LOAD_BYTE, VLAN_TAG), EQUAL, 0, true),
        (step(LOAD_BYTE, PACKET_TYPE), EQUAL, u32::from(libc::PACKET_HOST), true),
        (step(LOAD_BYTE, IP + 9), EQUAL, libc::IPPROTO_UDP as u32, true),
        (step(LOAD_WORD, IP + 16), EQUAL, u32::from(address), true),
        (step(LOAD_HALF, IP + 6), ANY_BIT, 0x3fff, false), // more fragments, or not the first
    ];
    let of_length = takes(lengths, 0).len();
    let mut program = vec![step(HEADER_LENGTH, IP)];
    let len = program.len() + 2 * tests.len() + 1 + of_length + 1 + ports.len() + 2;
    let refuse = len - 2;
    for (load, test, k, wanted) in tests {
        program.push(load);
        let far = refuse - program.len() - 1;
        let (yes, no) = if wanted { (0, far) } else { (far, 0) };
        program.push(jump(test, k, yes, no));
    }
    program.push(step(LOAD_HALF_BEHIND_HEADER, IP + 4));
    program.extend(takes(lengths, refuse - program.len() - of_length));
    program.push(step(LOAD_HALF_BEHIND_HEADER, IP + 2));
    for &port in ports {
        let far = refuse - program.len();
        program.push(jump(EQUAL, u32::from(port), far, 0));
    }
    program.extend([step(RETURN, 0), step(RETURN, u32::MAX)]);
    program
}

/// Of datagrams, from their UDP header on: those that a ring of this interface does not take.
fn udp_filter(interface: u32, lengths: Lengths) -> Vec<libc::sock_filter> {
    let takes = takes(lengths, 1);
    let keep = takes.len() + 2;
    let mut program = vec![
        step(LOAD_BYTE, PACKET_TYPE),
        jump(EQUAL, u32::from(libc::PACKET_HOST), 0, keep + 2),
        step(LOAD_WORD, INTERFACE),
        jump(EQUAL, interface, 0, keep),
        step(LOAD_HALF, 4),
    ];
    program.extend(takes);
    program.extend([step(RETURN, 0), step(RETURN, u32::MAX)]);
    program
}

fn set_filter(fd: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let program =
        libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_ptr().cast_mut() };
    Ok(setsockopt(&fd, Filter, &program)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where `program` goes on with this value: the number of the instruction, which may be the one behind it.
    fn runs(program: &[libc::sock_filter], value: u32) -> usize {
        let mut at = 0;
        while let Some(step) = program.get(at) {
            assert_eq!(u32::from(step.code), ABOVE);
            at += 1 + usize::from(if value > step.k { step.jt } else { step.jf });
        }
        at
    }

    #[test]
    fn filters_take_the_lengths_that_take_this_way() {
        for mtu in [0, 576, 1300, 1500, 4499, 4500, 9000, 65_535] {
            let lengths = Lengths::at(mtu);
            let program = takes(lengths, 7);
            for len in 0..=u16::MAX {
                let goes_on = runs(&program, len.into());
                let expected = program.len() + if lengths.take(len.into()) { 0 } else { 7 };
                assert_eq!(goes_on, expected, "{len} at an MTU of {mtu}");
            }
            assert!(lengths.take(MOST_BYTES.into()) && lengths.take(MOST_JOINED.into()));
            assert!(!lengths.take(usize::from(MOST_JOINED) + 1));
            let full = mtu as usize - HEADERS.min(mtu as usize) + UDP;
            assert!(mtu >= FILLS_FRAMES || full <= usize::from(MOST_BYTES) || !lengths.take(full), "{mtu}");
        }
    }
}
