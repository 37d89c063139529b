//! From packets to sockets: packets that go to one peer from one port in datagrams of equal size are joined in one
//! send (GSO). What the system does not take now is kept and offered again; what it refuses is counted by cause.

use crate::address::LocalAddress;
use crate::fault::{Datagram, FaultCounters, Injector};
use crate::log;
use crate::options::LogLevel;
use crate::payload;
use crate::sys::udp::{self, Destination, Gather, MAX_SEND, SendSocket};
use serde::Serialize;
use srd_device::HostPayload;
use srd_proto::{Payload, Transmit};
use srd_wire::seal::{self, Keyring};
use srd_wire::{Body, Gid, InstanceAddr, Nanos, Time, codec};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;

/// Datagrams that one send may hold: `UDP_MAX_SEGMENTS` of Linux 6.9; before it was 64.
const MOST_SEGMENTS: usize = 128;
const MOST_SEGMENTS_BEFORE_6_9: usize = 64;

/// What the system has not taken is offered again this often.
const RETRY_AFTER: Nanos = Nanos::from_micros(50);
/// And for this long: the transport has sent it again by then.
const KEEP_FOR: Nanos = Nanos::from_millis(10);
/// While more than this waits, the transport is not asked for more.
const BACK_PRESSURE_BYTES: usize = 256 << 10;

/// What happened on the way to the sockets.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TransmitCounters {
    /// Packets given to the system.
    pub packets: u64,
    /// Bytes of their datagrams.
    pub bytes: u64,
    /// Calls that sent them.
    pub sends: u64,
    /// Sends that the system would not take at once (full socket buffer or queue).
    pub blocked: u64,
    /// Packets given up because the system would not take them for 10 ms.
    pub dropped_blocked: u64,
    /// Packets given up because the system refused them (see `errors`).
    pub dropped_refused: u64,
    /// Packets given up because they could not be sealed.
    pub dropped_unsealed: u64,
    /// Packets to an address of the other family.
    pub dropped_unroutable: u64,
    /// Refused sends, by the error's number.
    pub errors: BTreeMap<i32, u64>,
    /// Errors that the network reported (ICMP), by number.
    pub network_errors: BTreeMap<i32, u64>,
    /// Faults injected.
    pub faults: FaultCounters,
}

/// Packets that are being joined.
struct Batch {
    to: InstanceAddr,
    destination: Destination,
    entropy: u16,
    /// Size of the first datagram, and of all but the last.
    segment: usize,
    count: usize,
    /// A shorter datagram is the last.
    closed: bool,
    gather: Gather,
}

/// Bytes that the system has not taken yet.
struct Waiting {
    to: InstanceAddr,
    destination: Destination,
    entropy: u16,
    segment: usize,
    bytes: Vec<u8>,
    until: Time,
}

/// A datagram's destination on its way through the fault injector.
type Target = (InstanceAddr, Destination);

/// What became of a send.
enum Sent {
    Gone,
    NotNow,
    Refused,
}

/// The sending side of an instance.
pub struct Transmitter {
    local: LocalAddress,
    sockets: Vec<SendSocket>,
    gso: bool,
    most_segments: usize,
    batch: Batch,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    injector: Option<Injector<Target>>,
    /// Path MTUs below the local one that the system has reported since the last call of `take_path_mtu`.
    path_mtus: Vec<(Gid, u16)>,
    pushed: u64,
    pushed_bytes: u64,
    counters: TransmitCounters,
}

impl Transmitter {
    /// Sends from `local`, from `entropy` ports, or from as many as can be had.
    pub fn new(
        local: LocalAddress,
        entropy: u16,
        injector: Option<Injector<Target>>,
    ) -> io::Result<Transmitter> {
        let nowhere = InstanceAddr::default();
        let batch = Batch {
            to: nowhere,
            destination: Destination::new(SocketAddr::new(nowhere.gid.ip(), 0)),
            entropy: 0,
            segment: 0,
            count: 0,
            closed: false,
            gather: Gather::new(),
        };
        let mut sockets = Vec::with_capacity(entropy.max(1) as usize);
        for _ in 0..entropy.max(1) {
            match SendSocket::bind(local.ip, local.index) {
                Ok(socket) => sockets.push(socket),
                Err(e) if sockets.is_empty() => return Err(e),
                Err(e) => {
                    log::warn_once(format_args!(
                        "only {} of {entropy} source ports could be opened, so there are fewer paths: {e}; raise `ulimit -n`, or lower SRD_PATHS",
                        sockets.len()
                    ));
                    break;
                }
            }
        }
        let gso = sockets[0].has_gso();
        if !gso {
            log::warn_once(format_args!(
                "this kernel has no UDP segmentation offload (Linux 4.18 has): every packet is a call of its own, which is slow"
            ));
        }
        Ok(Transmitter {
            local,
            sockets,
            gso,
            most_segments: MOST_SEGMENTS,
            batch,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            injector,
            path_mtus: Vec::new(),
            pushed: 0,
            pushed_bytes: 0,
            counters: TransmitCounters::default(),
        })
    }

    /// What happened so far.
    pub fn counters(&self) -> TransmitCounters {
        let faults = self.injector.as_ref().map(Injector::counters).unwrap_or_default();
        TransmitCounters { faults, ..self.counters.clone() }
    }

    /// Packets taken so far.
    #[inline]
    pub fn packets_pushed(&self) -> u64 {
        self.pushed
    }

    /// Bytes of their datagrams.
    #[inline]
    pub fn bytes_pushed(&self) -> u64 {
        self.pushed_bytes
    }

    /// How many source ports there are.
    pub fn source_ports(&self) -> usize {
        self.sockets.len()
    }

    /// Whether packets are joined in one send.
    pub fn has_gso(&self) -> bool {
        self.gso
    }

    /// Whether the transport may be asked for more packets.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.waiting_bytes <= BACK_PRESSURE_BYTES
    }

    /// A host towards which packets of our MTU do not fit, and the MTU that does.
    pub fn take_path_mtu(&mut self) -> Option<(Gid, u16)> {
        self.path_mtus.pop()
    }

    /// When [`Transmitter::due`] has something to do.
    #[inline]
    pub fn next_timeout(&self, now: Time) -> Time {
        let retry = if self.waiting.is_empty() { Time::NEVER } else { now + RETRY_AFTER };
        match &self.injector {
            None => retry,
            Some(injector) => retry.min(injector.next_timeout()),
        }
    }

    /// Offers again what the system did not take, and releases what the fault injector holds back.
    #[inline]
    pub fn due(&mut self, now: Time) {
        if !self.waiting.is_empty() {
            self.retry(now);
        }
        if let Some(mut injector) = self.injector.take() {
            injector.due(now, &mut |datagram| self.send_datagram(now, datagram));
            self.injector = Some(injector);
        }
    }

    /// Takes a packet. It leaves with those that it can be joined with: at the latest with [`Transmitter::flush`].
    #[inline]
    pub fn push(&mut self, now: Time, transmit: &Transmit<HostPayload>, keyring: Option<&mut Keyring>) {
        self.pushed += 1;
        let packet = &transmit.packet;
        let (payload, pad_to) = match &packet.body {
            Body::Data(data) => (Some(&data.payload), transmit.pad_to as usize),
            _ => (None, transmit.pad_to as usize),
        };
        let payload_len = payload.map_or(0, |payload| payload.len());
        let header_len = codec::header_len(packet);
        let plain_len = header_len + payload_len.max(pad_to);
        let len = plain_len + if keyring.is_some() { seal::overhead(packet.hello.is_some()) } else { 0 };
        if len > MAX_SEND || !self.local_family(transmit.to) {
            self.counters.dropped_unroutable += 1;
            return;
        }
        self.pushed_bytes += len as u64;
        self.make_room(now, transmit.to, transmit.entropy, len);
        let gather = &mut self.batch.gather;
        match keyring {
            None => {
                codec::encode_header(packet, payload_len, gather.append(header_len));
                if let Some(payload) = payload {
                    payload::append(payload, gather);
                }
                if plain_len > header_len + payload_len {
                    gather.append(plain_len - header_len - payload_len).fill(0);
                }
            }
            Some(keyring) => {
                let out = gather.append(len);
                codec::encode_header(packet, payload_len, out);
                if let Some(payload) = payload {
                    payload::copy(payload, &mut out[header_len..header_len + payload_len]);
                }
                out[header_len + payload_len..plain_len].fill(0);
                if let Err(e) = keyring.seal(transmit.to, transmit.peer_incarnation, out, plain_len) {
                    debug_assert!(false, "{e}");
                    log::warn_once(format_args!("a packet to {} could not be sealed: {e}", transmit.to));
                    // What is in the batch by now cannot be taken out again; it goes as it is, and is refused there.
                    self.counters.dropped_unsealed += 1;
                    out.fill(0);
                }
            }
        }
        self.batch.count += 1;
        self.batch.closed = len < self.batch.segment;
    }

    fn local_family(&self, to: InstanceAddr) -> bool {
        let same = to.gid.ip().is_ipv6() == self.local.ip.is_ipv6();
        if !same {
            log::warn_once(format_args!(
                "{to} cannot be reached from {}: one is an IPv4 address, the other IPv6; set SRD_ADDR to an address of the other kind",
                self.local.ip
            ));
        }
        same
    }

    /// Sends the batch unless a datagram of `len` bytes to `to` can join it.
    #[inline]
    fn make_room(&mut self, now: Time, to: InstanceAddr, entropy: u16, len: usize) {
        let batch = &mut self.batch;
        let joins = batch.count > 0
            && batch.to == to
            && batch.entropy == entropy
            && len <= batch.segment
            && !batch.closed
            && batch.count < self.most_segments
            // Header, two pieces of payload, padding.
            && batch.gather.has_room(4, len);
        if joins {
            return;
        }
        if batch.count > 0 {
            self.flush(now);
        }
        let batch = &mut self.batch;
        if batch.to != to {
            batch.to = to;
            batch.destination = Destination::new(udp::scoped(to.gid.ip(), to.port, self.local.index));
        }
        batch.entropy = entropy;
        batch.segment = len;
        batch.closed = false;
    }

    /// Sends what has been pushed.
    #[inline]
    pub fn flush(&mut self, now: Time) {
        if self.batch.count == 0 {
            return;
        }
        if self.injector.is_some() {
            self.flush_through_injector(now);
        } else if !self.waiting.is_empty() && self.waiting.iter().any(|it| it.entropy == self.batch.entropy) {
            self.keep_batch(now);
        } else {
            let Batch { to, destination, entropy, segment, count, .. } = self.batch;
            match self.send(to, &destination, entropy, segment, count, None) {
                Sent::Gone | Sent::Refused => {}
                Sent::NotNow => {
                    self.counters.blocked += 1;
                    self.keep_batch(now);
                }
            }
        }
        self.batch.gather.clear();
        self.batch.count = 0;
    }

    /// Sends the batch, or `bytes` in its place.
    #[inline]
    fn send(
        &mut self,
        to: InstanceAddr,
        destination: &Destination,
        entropy: u16,
        segment: usize,
        count: usize,
        bytes: Option<&[u8]>,
    ) -> Sent {
        let index = entropy as usize % self.sockets.len();
        if count > 1 && !self.gso {
            return self.send_singly(to, destination, index, segment, bytes);
        }
        let len = bytes.map_or(self.batch.gather.len(), <[u8]>::len);
        let gso = (count > 1).then_some(segment as u16);
        for attempt in 0..4 {
            let socket = &self.sockets[index];
            let result = match bytes {
                None => socket.send(destination, &self.batch.gather, gso),
                Some(bytes) => socket.send_bytes(destination, bytes, gso),
            };
            let Err(error) = result else {
                self.counters.packets += count as u64;
                self.counters.bytes += len as u64;
                self.counters.sends += 1;
                return Sent::Gone;
            };
            let errno = error.raw_os_error().unwrap_or(0);
            match errno {
                libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => {
                    self.drain_errors(index, to);
                    return Sent::NotNow;
                }
                libc::EINTR => {}
                libc::EINVAL if count > MOST_SEGMENTS_BEFORE_6_9 => {
                    self.most_segments = MOST_SEGMENTS_BEFORE_6_9;
                    return self.send_singly(to, destination, index, segment, bytes);
                }
                // What answers these to many datagrams in one call may still take them one by one.
                libc::EINVAL | libc::EIO | libc::EOPNOTSUPP if count > 1 => {
                    return self.send_without_gso(error, to, destination, index, segment, bytes);
                }
                _ => {
                    *self.counters.errors.entry(errno).or_default() += 1;
                    // Errors of earlier sends, perhaps to other peers, are reported in place of sending: once all of
                    // them have been taken, try again.
                    let drained = self.drain_errors(index, to);
                    if errno == libc::EMSGSIZE {
                        self.learn_path_mtu(to);
                        break;
                    }
                    if !drained || attempt == 3 {
                        log::say(
                            LogLevel::Debug,
                            format_args!("{count} packets to {to} were not sent: {error}"),
                        );
                        break;
                    }
                }
            }
        }
        self.counters.dropped_refused += count as u64;
        Sent::Refused
    }

    /// Each datagram of the batch (or of `bytes`) by itself.
    #[cold]
    fn send_singly(
        &mut self,
        to: InstanceAddr,
        destination: &Destination,
        index: usize,
        segment: usize,
        bytes: Option<&[u8]>,
    ) -> Sent {
        let mut own = Vec::new();
        let bytes = bytes.unwrap_or_else(|| {
            self.batch.gather.copy_to(&mut own);
            &own
        });
        for datagram in bytes.chunks(segment) {
            if let Sent::NotNow = self.send(to, destination, index as u16, datagram.len(), 1, Some(datagram))
            {
                // The rest comes again with the transport's retransmissions: keeping part of a batch is not worth
                // the trouble on a path that is slow anyway.
                self.counters.blocked += 1;
                self.counters.dropped_blocked += 1;
            }
        }
        Sent::Gone
    }

    #[cold]
    fn send_without_gso(
        &mut self,
        error: io::Error,
        to: InstanceAddr,
        destination: &Destination,
        index: usize,
        segment: usize,
        bytes: Option<&[u8]>,
    ) -> Sent {
        let refused_before = self.counters.dropped_refused;
        let sent = self.send_singly(to, destination, index, segment, bytes);
        // EINVAL is also how some kernels say that the segments are larger than the path MTU; then single datagrams
        // are refused as well, and it was not for GSO.
        if self.counters.dropped_refused == refused_before {
            self.gso = false;
            log::warn_once(format_args!(
                "the system does not send many datagrams in one call on {} ({error}): every packet is a call of its own from now on, which is slow; \
                 `ethtool -K {} tx on` may help",
                self.local.interface, self.local.interface
            ));
        }
        sent
    }

    /// Takes all errors that the socket was told of; returns whether there were any.
    #[cold]
    fn drain_errors(&mut self, index: usize, to: InstanceAddr) -> bool {
        let mut any = false;
        while let Some(error) = self.sockets[index].take_error() {
            any = true;
            if error.from_network {
                *self.counters.network_errors.entry(error.errno).or_default() += 1;
            }
            if let Some(mtu) = error.mtu {
                let gid = error.to.map_or(to.gid, |addr| Gid::from(addr.ip()));
                self.note_path_mtu(gid, mtu);
            }
        }
        any
    }

    #[cold]
    fn learn_path_mtu(&mut self, to: InstanceAddr) {
        if let Ok(mtu) = udp::path_mtu(udp::scoped(to.gid.ip(), to.port, self.local.index)) {
            self.note_path_mtu(to.gid, mtu);
        }
    }

    fn note_path_mtu(&mut self, gid: Gid, mtu: u16) {
        if mtu >= 576 && !self.path_mtus.contains(&(gid, mtu)) {
            log::warn_once(format_args!(
                "the path to {gid:?} takes packets of at most {mtu} bytes; if nothing arrives there, set SRD_MTU={mtu} on all hosts"
            ));
            self.path_mtus.push((gid, mtu));
        }
    }

    /// Copies the batch to be sent later.
    #[cold]
    fn keep_batch(&mut self, now: Time) {
        let Batch { to, destination, entropy, segment, .. } = self.batch;
        let mut bytes = Vec::with_capacity(self.batch.gather.len());
        self.batch.gather.copy_to(&mut bytes);
        self.keep(Waiting { to, destination, entropy, segment, bytes, until: now + KEEP_FOR });
    }

    fn keep(&mut self, waiting: Waiting) {
        self.waiting_bytes += waiting.bytes.len();
        self.waiting.push_back(waiting);
    }

    #[cold]
    fn retry(&mut self, now: Time) {
        let mut blocked: Vec<u16> = Vec::new();
        for _ in 0..self.waiting.len() {
            let Some(waiting) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= waiting.bytes.len();
            let Waiting { to, destination, entropy, segment, bytes, until } = waiting;
            let count = bytes.len().div_ceil(segment);
            let sent = if blocked.contains(&entropy) {
                Sent::NotNow
            } else {
                self.send(to, &destination, entropy, segment, count, Some(&bytes))
            };
            if let Sent::NotNow = sent {
                blocked.push(entropy);
                if until <= now {
                    self.counters.dropped_blocked += count as u64;
                } else {
                    self.keep(Waiting { to, destination, entropy, segment, bytes, until });
                }
            }
        }
    }

    #[cold]
    fn flush_through_injector(&mut self, now: Time) {
        let Some(mut injector) = self.injector.take() else { return };
        let Batch { to, destination, entropy, segment, .. } = self.batch;
        let mut bytes = Vec::with_capacity(self.batch.gather.len());
        self.batch.gather.copy_to(&mut bytes);
        for datagram in bytes.chunks(segment) {
            let datagram = Datagram { entropy, to: (to, destination), bytes: datagram.to_vec() };
            injector.pass(now, datagram, &mut |datagram| self.send_datagram(now, datagram));
        }
        self.injector = Some(injector);
    }

    fn send_datagram(&mut self, now: Time, datagram: Datagram<Target>) {
        let Datagram { entropy, to: (to, destination), bytes } = datagram;
        let len = bytes.len();
        if let Sent::NotNow = self.send(to, &destination, entropy, len, 1, Some(&bytes)) {
            self.counters.blocked += 1;
            self.keep(Waiting { to, destination, entropy, segment: len, bytes, until: now + KEEP_FOR });
        }
    }
}
