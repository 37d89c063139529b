//! The pool of sending sockets, each with a source port of its own: a path of any peer names one of them. Knows what
//! to do with every error that a send can meet; does not know what is being sent.

use crate::address::LocalAddress;
use crate::log;
use crate::options::LogLevel;
use crate::packet_wire::PacketWire;
use crate::simulated::Fabric;
use crate::sys::process;
use crate::sys::udp::{self, Destination, Gather, SendSocket};
use srd_wire::{Gid, InstanceAddr, Nanos, Time};
use std::collections::BTreeMap;
use std::io;

/// Datagrams that one send may hold: `UDP_MAX_SEGMENTS` of Linux 6.9; before it was 64.
const MOST_SEGMENTS: usize = 128;
const MOST_SEGMENTS_BEFORE_6_9: usize = 64;

/// For so long after what is not short everything of its path goes by UDP: by two ways one may overtake the other, and paths are taken
/// to be FIFO. Short datagrams that went by UDP do not count: where the receiver has a ring, they come by that, too. Queues on the way, and
/// receivers that poll, rarely hold a packet back for longer.
const SAME_WAY: Nanos = Nanos::from_millis(1);

/// After so many sends to one destination in a row a socket is connected to it.
const CONNECT_AFTER: u32 = 64;

/// A send is tried again so often when errors of earlier sends were reported in its place.
const ATTEMPTS: usize = 4;

/// An IPv4 host takes packets of this size in any case (RFC 791); who reports less is mistaken or means harm.
const LEAST_MTU: u16 = 576;

/// Datagrams of equal size, of which the last may be shorter, to one destination from one port.
#[derive(Clone, Copy)]
pub struct Burst {
    /// Whom for.
    pub to: InstanceAddr,
    /// The same for the kernel.
    pub destination: Destination,
    /// Which source port.
    pub entropy: u16,
    /// Size of a datagram.
    pub segment: usize,
    /// Whether who is there knows us. Nothing is asked and kept of the way to others: strangers cause what goes to them, from whatever address.
    pub known: bool,
    /// Whether IP may cut what is too long for the way now: data that was cut to packets when the way took longer ones. Probes of the way's
    /// size it may not.
    pub in_fragments: bool,
}

/// Where a burst's bytes are.
#[derive(Clone, Copy)]
pub enum Bytes<'a> {
    /// In pieces.
    Gathered(&'a Gather),
    /// In one piece.
    Whole(&'a [u8]),
}

impl Bytes<'_> {
    fn len(self) -> usize {
        match self {
            Bytes::Gathered(gather) => gather.len(),
            Bytes::Whole(bytes) => bytes.len(),
        }
    }

    /// All of them, if they lie together in memory of ours.
    #[inline]
    fn as_whole(&self) -> Option<&[u8]> {
        match self {
            Bytes::Gathered(gather) => gather.as_own(),
            Bytes::Whole(bytes) => Some(bytes),
        }
    }

    /// A copy; `None` if memory of the program among them has gone.
    pub fn to_vec(self) -> Option<Vec<u8>> {
        match self {
            Bytes::Whole(bytes) => Some(bytes.to_vec()),
            Bytes::Gathered(gather) => gather.to_vec(),
        }
    }
}

/// What became of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The system has taken it.
    Gone,
    /// The system does not take it now: its buffer or queue is full.
    NotNow,
    /// The system does not take it (or not all of it); counted.
    Refused,
}

/// What happened at the sockets.
#[derive(Clone, Debug, Default)]
pub struct PortCounters {
    /// Packets given to the system.
    pub packets: u64,
    /// Those of them that left by a packet socket or an AF_XDP socket.
    pub by_packet_socket: u64,
    /// Bytes of their datagrams.
    pub bytes: u64,
    /// Calls that sent them.
    pub sends: u64,
    /// Packets that the system refused.
    pub refused: u64,
    /// Refused sends, by the error's number.
    pub errors: BTreeMap<i32, u64>,
    /// Errors that the network reported (ICMP), by number.
    pub network_errors: BTreeMap<i32, u64>,
}

/// One of them.
struct SourcePort {
    socket: SendSocket,
    /// While the socket is not connected: to whom it has sent last, and how often in a row.
    to: (InstanceAddr, u32),
    /// When it has sent last what is not short.
    long_at: Time,
}

/// The pool.
pub struct SourcePorts {
    local: LocalAddress,
    /// A shorter way for short packets, if there is one.
    packet_wire: Option<PacketWire>,
    /// The only way there is, in a simulated network.
    fabric: Option<Fabric>,
    ports: Vec<SourcePort>,
    /// Their numbers.
    numbers: Vec<u16>,
    gso: bool,
    most_segments: usize,
    /// Path MTUs below ours that were reported since the last call of `take_path_mtu`.
    path_mtus: Vec<(Gid, u16)>,
    /// The one that was reported last.
    last_path_mtu: Option<(Gid, u16)>,
    counters: PortCounters,
}

impl SourcePort {
    /// A socket that goes on sending to one destination is connected to it.
    #[inline]
    fn connect_if_worth_it(&mut self, burst: &Burst) {
        match self.socket.connected() {
            Some(to) if *to == burst.destination => return,
            Some(_) => self.socket.disconnect(),
            None => {}
        }
        let (to, sends) = &mut self.to;
        if *to != burst.to {
            (*to, *sends) = (burst.to, 0);
        }
        *sends += 1;
        if *sends >= CONNECT_AFTER {
            *sends = 0;
            self.socket.connect(&burst.destination);
        }
    }
}

/// What a socket had been told.
#[derive(Default)]
struct Told {
    anything: bool,
    /// Of a datagram that is too large for what this host knows of the path, rather than for a router on it.
    too_large_here: bool,
}

impl SourcePorts {
    /// Opens `count` ports at `local`, or as many as can be had while half of the descriptors that this process may
    /// still open are left to it.
    pub fn open(local: LocalAddress, count: u16) -> io::Result<SourcePorts> {
        let most = process::free_descriptors().map_or(usize::MAX, |free| free / 2);
        let wanted = count.max(1) as usize;
        let mut sockets = Vec::with_capacity(wanted);
        let mut shortage = None;
        while sockets.len() < wanted && shortage.is_none() {
            match SendSocket::bind(local.ip, local.index) {
                _ if sockets.len() >= most.max(1) => {
                    shortage = Some(io::Error::from_raw_os_error(libc::EMFILE))
                }
                Ok(socket) => sockets.push(socket),
                Err(e) if sockets.is_empty() => return Err(e),
                Err(e) => shortage = Some(e),
            }
        }
        if let Some(e) = shortage {
            log::warn_once(format_args!(
                "only {} of {wanted} source ports are opened, so there are fewer paths: {e}; raise `ulimit -n`, or \
                 lower SRD_PATHS",
                sockets.len()
            ));
        }
        let gso = sockets[0].has_gso();
        if !gso {
            log::warn_once(format_args!(
                "this kernel has no UDP segmentation offload (Linux 4.18 has): every packet is a call of its own, \
                 which is slow"
            ));
        }
        let numbers = sockets.iter().map(SendSocket::port).collect::<io::Result<_>>()?;
        Ok(SourcePorts {
            local,
            packet_wire: None,
            fabric: None,
            ports: sockets
                .into_iter()
                .map(|socket| SourcePort { socket, to: (InstanceAddr::default(), 0), long_at: Time(0) })
                .collect(),
            numbers,
            gso,
            most_segments: MOST_SEGMENTS,
            path_mtus: Vec::new(),
            last_path_mtu: None,
            counters: PortCounters::default(),
        })
    }

    /// Those of a simulated network.
    pub fn simulated(local: LocalAddress, fabric: Fabric) -> SourcePorts {
        SourcePorts {
            local,
            packet_wire: None,
            fabric: Some(fabric),
            ports: Vec::new(),
            numbers: fabric.source_ports(),
            gso: true,
            most_segments: 1,
            path_mtus: Vec::new(),
            last_path_mtu: None,
            counters: PortCounters::default(),
        }
    }

    /// Whether more packets are taken now: a simulated card takes one when its link is free.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.fabric.is_none_or(|fabric| fabric.library.has_room())
    }

    /// From now on short packets leave this way where it leads.
    pub fn send_short_by(&mut self, wire: PacketWire) {
        self.packet_wire = Some(wire);
    }

    /// Whether short packets must not leave that way any more ([`PacketWire::must_give_way`]).
    pub fn must_give_way(&self) -> bool {
        self.packet_wire.as_ref().is_some_and(PacketWire::must_give_way)
    }

    /// From now on they do not.
    pub fn close_short_way(&mut self) {
        if let Some(wire) = &mut self.packet_wire {
            wire.close();
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Their UDP ports.
    pub fn numbers(&self) -> &[u16] {
        &self.numbers
    }

    /// Most datagrams of one send.
    #[inline]
    pub fn most_segments(&self) -> usize {
        if self.gso { self.most_segments } else { 1 }
    }

    /// What happened so far.
    pub fn counters(&self) -> &PortCounters {
        &self.counters
    }

    /// The local address.
    pub fn local(&self) -> &LocalAddress {
        &self.local
    }

    /// A host towards which packets of our MTU do not fit, and the MTU that does.
    pub fn take_path_mtu(&mut self) -> Option<(Gid, u16)> {
        self.path_mtus.pop()
    }

    /// Sends a burst.
    #[inline]
    pub fn send(&mut self, now: Time, burst: &Burst, bytes: Bytes<'_>) -> Sent {
        let len = bytes.len();
        let count = len.div_ceil(burst.segment.max(1)).max(1);
        if let Some(fabric) = self.fabric {
            return self.send_simulated(fabric, burst, bytes);
        }
        if self.sends_short(now, burst, count, bytes) {
            self.count_sent(1, len);
            self.counters.by_packet_socket += 1;
            return Sent::Gone;
        }
        if count > self.most_segments() {
            return self.send_singly(now, burst, bytes);
        }
        let segment = (count > 1).then_some(burst.segment as u16);
        self.port(burst).connect_if_worth_it(burst);
        for attempt in 1..=ATTEMPTS {
            let socket = &self.port(burst).socket;
            let result = match bytes {
                Bytes::Gathered(gather) => socket.send(&burst.destination, gather, segment),
                Bytes::Whole(bytes) => socket.send_bytes(&burst.destination, bytes, segment),
            };
            let Err(error) = result else {
                self.count_sent(count, len);
                return Sent::Gone;
            };
            if let Some(sent) = self.on_error(now, burst, bytes, count, &error, attempt == ATTEMPTS) {
                return sent;
            }
        }
        Sent::Refused
    }

    /// By a simulated network.
    #[cold]
    fn send_simulated(&mut self, fabric: Fabric, burst: &Burst, bytes: Bytes<'_>) -> Sent {
        let copy;
        let whole = match bytes.as_whole() {
            Some(whole) => whole,
            None => {
                copy = bytes.to_vec();
                let Some(copy) = &copy else { return Sent::Refused };
                copy
            }
        };
        let port = self.numbers[burst.entropy as usize % self.numbers.len()];
        for datagram in whole.chunks(burst.segment.max(1)) {
            if !fabric.send(port, burst.to, datagram) {
                return Sent::NotNow;
            }
            self.count_sent(1, datagram.len());
        }
        Sent::Gone
    }

    /// Whether a packet leaves by a packet socket, and has left.
    #[inline]
    fn sends_short(&mut self, now: Time, burst: &Burst, count: usize, bytes: Bytes<'_>) -> bool {
        let index = self.index(burst);
        let Some(wire) = &mut self.packet_wire else { return false };
        let port = &mut self.ports[index];
        if !PacketWire::fits(bytes.len()) {
            port.long_at = now;
            return false;
        }
        let alone = if count == 1 { bytes.as_whole() } else { None };
        alone.is_some_and(|datagram| {
            burst.known
                && now.since(port.long_at) > SAME_WAY
                && wire.send(now, self.numbers[index], burst.to, datagram)
        })
    }

    #[inline]
    fn count_sent(&mut self, packets: usize, bytes: usize) {
        self.counters.packets += packets as u64;
        self.counters.bytes += bytes as u64;
        self.counters.sends += 1;
    }

    fn index(&self, burst: &Burst) -> usize {
        burst.entropy as usize % self.ports.len()
    }

    fn port(&mut self, burst: &Burst) -> &mut SourcePort {
        let index = self.index(burst);
        &mut self.ports[index]
    }

    /// What an error means; `None`: to be tried again.
    #[cold]
    fn on_error(
        &mut self,
        now: Time,
        burst: &Burst,
        bytes: Bytes<'_>,
        count: usize,
        error: &io::Error,
        last: bool,
    ) -> Option<Sent> {
        let errno = error.raw_os_error().unwrap_or(0);
        match errno {
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => {
                self.take_errors(burst);
                return Some(Sent::NotNow);
            }
            libc::EINTR if !last => return None,
            libc::EINVAL if count > MOST_SEGMENTS_BEFORE_6_9 => {
                self.most_segments = MOST_SEGMENTS_BEFORE_6_9;
                return Some(self.send_singly(now, burst, bytes));
            }
            // What answers these to many datagrams in one call may still take them one by one.
            libc::EINVAL | libc::EIO | libc::EOPNOTSUPP if count > 1 => {
                return Some(self.send_without_gso(now, burst, bytes, error));
            }
            _ => {}
        }
        *self.counters.errors.entry(errno).or_default() += 1;
        // Errors of earlier sends, perhaps to other peers, are reported in place of sending.
        let told = self.take_errors(burst);
        let too_large = errno == libc::EMSGSIZE && (told.too_large_here || !told.anything);
        if too_large {
            self.ask_for_path_mtu(burst.to);
            if burst.in_fragments {
                return Some(self.send_in_fragments(burst, bytes));
            }
        } else if told.anything && !last {
            return None;
        }
        log::say(LogLevel::Debug, format_args!("{count} packets to {} were not sent: {error}", burst.to));
        self.counters.refused += count as u64;
        Some(Sent::Refused)
    }

    /// Each datagram by itself, cut by IP where it is too long.
    #[cold]
    fn send_in_fragments(&mut self, burst: &Burst, bytes: Bytes<'_>) -> Sent {
        let Some(copy) = bytes.to_vec() else { return Sent::Refused };
        for datagram in copy.chunks(burst.segment.max(1)) {
            match self.port(burst).socket.send_in_fragments(&burst.destination, datagram) {
                Ok(()) => self.count_sent(1, datagram.len()),
                Err(error) => {
                    *self.counters.errors.entry(error.raw_os_error().unwrap_or(0)).or_default() += 1;
                    self.counters.refused += 1;
                }
            }
        }
        Sent::Gone
    }

    /// Each datagram by itself.
    #[cold]
    fn send_singly(&mut self, now: Time, burst: &Burst, bytes: Bytes<'_>) -> Sent {
        let Some(copy) = bytes.to_vec() else {
            self.counters.refused += bytes.len().div_ceil(burst.segment.max(1)) as u64;
            return Sent::Refused;
        };
        let mut worst = Sent::Gone;
        for datagram in copy.chunks(burst.segment.max(1)) {
            let single = Burst { segment: datagram.len(), ..*burst };
            match self.send(now, &single, Bytes::Whole(datagram)) {
                Sent::Gone => {}
                Sent::Refused => worst = Sent::Refused,
                // The transport sends it again: keeping a part of a burst is not worth the trouble.
                Sent::NotNow => {
                    self.counters.refused += 1;
                    worst = Sent::Refused;
                }
            }
        }
        worst
    }

    #[cold]
    fn send_without_gso(&mut self, now: Time, burst: &Burst, bytes: Bytes<'_>, error: &io::Error) -> Sent {
        let sent = self.send_singly(now, burst, bytes);
        // EINVAL is also how some kernels say that the segments are larger than the path MTU; then single datagrams
        // are refused as well, and it was not for GSO.
        if sent == Sent::Gone {
            self.gso = false;
            log::warn_once(format_args!(
                "the system does not send many datagrams in one call on {0} ({error}): every packet is a call of its \
                 own from now on, which is slow; `ethtool -K {0} tx on` may help",
                self.local.interface
            ));
        }
        sent
    }

    /// Takes all errors that the socket was told of.
    #[cold]
    fn take_errors(&mut self, burst: &Burst) -> Told {
        let mut told = Told::default();
        while let Some(error) = self.port(burst).socket.take_error() {
            told.anything = true;
            if error.from_network {
                *self.counters.network_errors.entry(error.errno).or_default() += 1;
            }
            if let Some(mtu) = error.mtu {
                told.too_large_here |= !error.from_network;
                self.note_path_mtu(error.to.map_or(burst.to.gid, |addr| Gid::from(addr.ip())), mtu);
            }
        }
        told
    }

    #[cold]
    fn ask_for_path_mtu(&mut self, to: InstanceAddr) {
        if let Ok(mtu) = udp::path_mtu(udp::scoped(to.gid.ip(), to.port, self.local.index)) {
            self.note_path_mtu(to.gid, mtu);
        }
    }

    fn note_path_mtu(&mut self, gid: Gid, mtu: u16) {
        if mtu >= LEAST_MTU && !self.path_mtus.contains(&(gid, mtu)) {
            if self.last_path_mtu != Some((gid, mtu)) {
                log::say(
                    LogLevel::Info,
                    format_args!("the path to {gid:?} takes packets of at most {mtu} bytes"),
                );
            }
            self.last_path_mtu = Some((gid, mtu));
            self.path_mtus.push((gid, mtu));
        }
    }
}
