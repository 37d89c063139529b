//! From packets to sockets: packets that go to one peer from one port in datagrams of equal size are joined in one
//! send (GSO); why full sends matter: docs/design/host-datapath.md, "What a send costs". What the system does not take now is
//! kept and offered again; what it refuses is counted by cause.

use crate::address::LocalAddress;
use crate::fault::{Datagram, FaultCounters, Injector};
use crate::log;
use crate::packet_wire::PacketWire;
use crate::payload;
use crate::source_ports::{Burst, Bytes, Sent, SourcePorts};
use crate::sys::udp::{Destination, Gather, MAX_SEND, scoped};
use serde::Serialize;
use srd_device::HostPayload;
use srd_proto::{Followers, Payload, PeerId, Transmit};
use srd_wire::seal::{self, Keyring};
use srd_wire::{Body, Gid, Incarnation, InstanceAddr, MsgId, Nanos, NextHeader, Op, Packet, Time, codec};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

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
    /// Those of them that left by a packet socket or an AF_XDP socket.
    pub by_packet_socket: u64,
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
    /// Packets whose memory the program has unmapped; the transport sends them again, or gives their messages up.
    pub dropped_unreadable: u64,
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
    burst: Burst,
    count: usize,
    /// A shorter datagram is the last.
    closed: bool,
    /// The last packet, if that is a data packet with neither hello nor ACK nor padding.
    last: Option<Last>,
    gather: Gather,
}

/// A packet that others may follow.
struct Last {
    next: NextHeader,
    peer_incarnation: Option<Incarnation>,
}

/// Bytes that the system has not taken yet.
struct Waiting {
    burst: Burst,
    bytes: Vec<u8>,
    until: Time,
}

/// The sending side of an instance.
pub struct Transmitter {
    ports: SourcePorts,
    batch: Batch,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    injector: Option<Injector<Burst>>,
    /// The payload of a packet that is copied with care.
    scratch: Vec<u8>,
    /// Messages whose memory has gone, since [`Transmitter::take_unreadable`].
    unreadable: Vec<(PeerId, MsgId)>,
    pushed: u64,
    pushed_bytes: u64,
    counters: TransmitCounters,
}

impl Transmitter {
    /// Sends from `ports`, by way of `injector` if there is one.
    pub fn new(ports: SourcePorts, injector: Option<Injector<Burst>>) -> Transmitter {
        let nowhere = InstanceAddr::default();
        let destination = Destination::new(SocketAddr::new(nowhere.gid.ip(), 0));
        Transmitter {
            ports,
            batch: Batch {
                burst: Burst {
                    to: nowhere,
                    destination,
                    entropy: 0,
                    segment: 0,
                    known: false,
                    in_fragments: false,
                },
                count: 0,
                closed: false,
                last: None,
                gather: Gather::new(),
            },
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            injector,
            scratch: Vec::new(),
            unreadable: Vec::new(),
            pushed: 0,
            pushed_bytes: 0,
            counters: TransmitCounters::default(),
        }
    }

    /// From now on short packets leave this way where it leads.
    pub fn send_short_by(&mut self, wire: PacketWire) {
        self.ports.send_short_by(wire);
    }

    /// Whether short packets must not leave that way any more ([`PacketWire::must_give_way`]).
    pub fn must_give_way(&self) -> bool {
        self.ports.must_give_way()
    }

    /// From now on they do not.
    pub fn close_short_way(&mut self) {
        self.ports.close_short_way();
    }

    /// What happened so far.
    pub fn counters(&self) -> TransmitCounters {
        let ports = self.ports.counters();
        TransmitCounters {
            packets: ports.packets,
            by_packet_socket: ports.by_packet_socket,
            bytes: ports.bytes,
            sends: ports.sends,
            dropped_refused: ports.refused,
            errors: ports.errors.clone(),
            network_errors: ports.network_errors.clone(),
            faults: self.injector.as_ref().map(Injector::counters).unwrap_or_default(),
            ..self.counters.clone()
        }
    }

    /// Packets taken so far.
    #[inline]
    pub fn packets_pushed(&self) -> u64 {
        self.pushed
    }

    /// Sends of the system so far.
    #[inline]
    pub fn sends(&self) -> u64 {
        self.ports.counters().sends
    }

    /// Bytes of their datagrams.
    #[inline]
    pub fn bytes_pushed(&self) -> u64 {
        self.pushed_bytes
    }

    /// The local address.
    pub fn local(&self) -> &LocalAddress {
        self.ports.local()
    }

    /// How many source ports there are.
    pub fn source_ports(&self) -> usize {
        self.ports.count()
    }

    /// Their UDP ports.
    pub fn source_port_numbers(&self) -> &[u16] {
        self.ports.numbers()
    }

    /// Whether packets are joined in one send.
    pub fn has_gso(&self) -> bool {
        self.ports.most_segments() > 1 // of sockets
    }

    /// Whether the transport may be asked for more packets.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.waiting_bytes <= BACK_PRESSURE_BYTES && self.ports.has_room()
    }

    /// A host towards which packets of our MTU do not fit, and the MTU that does.
    pub fn take_path_mtu(&mut self) -> Option<(Gid, u16)> {
        self.ports.take_path_mtu()
    }

    /// A message whose memory the program has unmapped, and whom it is for.
    #[inline]
    pub fn take_unreadable(&mut self) -> Option<(PeerId, MsgId)> {
        self.unreadable.pop()
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
        self.batch.last = None;
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
        let with_care = self.needs_care(packet, keyring.is_some());
        if with_care && !self.copy_with_care(transmit) {
            return;
        }
        self.make_room(now, transmit, len);
        self.batch.burst.in_fragments &= payload.is_some();
        let (Batch { gather, last, .. }, scratch) = (&mut self.batch, &self.scratch);
        let in_part = matches!(&packet.body, Body::Data(data) if data.len as usize > payload_len);
        let leads = in_part && !with_care && plain_len == header_len + payload_len;
        let peer_incarnation = transmit.peer_incarnation;
        let lead = |plain: &[u8]| {
            let next = if leads { NextHeader::after(plain, packet) } else { None };
            next.map(|next| Last { next, peer_incarnation })
        };
        match keyring {
            None => {
                let header = gather.append(header_len);
                codec::encode_header(packet, payload_len, header);
                *last = lead(header);
                match payload {
                    Some(_) if with_care => gather.append(payload_len).copy_from_slice(scratch),
                    Some(payload) => payload::append(payload, gather),
                    None => {}
                }
                if plain_len > header_len + payload_len {
                    gather.append(plain_len - header_len - payload_len).fill(0);
                }
            }
            Some(keyring) => {
                let out = gather.append(len);
                codec::encode_header(packet, payload_len, out);
                *last = lead(out);
                let place = &mut out[header_len..header_len + payload_len];
                match payload {
                    Some(_) if with_care => place.copy_from_slice(scratch),
                    Some(payload) => payload::copy(payload, place),
                    None => {}
                }
                out[header_len + payload_len..plain_len].fill(0);
                seal_in(out, plain_len, transmit.to, transmit.peer_incarnation, keyring, &mut self.counters);
            }
        }
        self.batch.count += 1;
        self.batch.closed = len < self.batch.burst.segment;
    }

    /// How many packets that follow the last one can leave with it, while no more than `limit` bytes in all are taken.
    #[inline]
    pub fn room_for_followers(&self, limit: u64) -> usize {
        let Batch { burst, count, closed, last, gather } = &self.batch;
        if last.is_none() || *closed {
            return 0;
        }
        let segments = self.ports.most_segments().saturating_sub(*count);
        let bytes = limit.saturating_sub(self.pushed_bytes).div_ceil(burst.segment as u64) as usize;
        // Header, two pieces of payload.
        segments.min(bytes).min(gather.room(3, burst.segment))
    }

    /// Takes packets that follow the last one, with their payload. There must be room.
    #[inline]
    pub fn push_followers(
        &mut self,
        followers: &Followers,
        payload: &HostPayload,
        keyring: Option<&mut Keyring>,
    ) {
        let Batch { burst, count, last: Some(Last { next, peer_incarnation }), gather, .. } = &mut self.batch
        else {
            return;
        };
        debug_assert_eq!((next.psn(), next.offset()), (followers.psn, followers.offset));
        let (header, len) = (next.header_len(), usize::from(followers.len));
        match keyring {
            None => {
                payload::append_parts(payload, len, gather, |gather| next.put(gather.append(header)));
            }
            Some(keyring) => {
                for part in payload::parts(payload, len) {
                    let out = gather.append(burst.segment);
                    let (start, rest) = out.split_at_mut(header);
                    next.put(start);
                    payload::copy(&part, &mut rest[..len]);
                    seal_in(out, followers.bytes, burst.to, *peer_incarnation, keyring, &mut self.counters);
                }
            }
        }
        *count += followers.count as usize;
        self.pushed += u64::from(followers.count);
        self.pushed_bytes += u64::from(followers.count) * burst.segment as u64;
    }

    /// Whether the payload may have gone though its region is registered, and is to be copied by the kernel, which
    /// answers where a process dies. That is so for the answers to reads: their reader may have all of it, and have told
    /// the program so, before we hear of it; and a program that unmaps memory then may deregister it later (libfabric's
    /// cache of registrations does). And it is so for all that is retransmitted: a send that the kernel could not gather
    /// was dropped with all that it held, and here it is found out whose memory has gone. An accelerator's memory its driver copies.
    #[inline]
    fn needs_care(&self, packet: &Packet<HostPayload>, sealed: bool) -> bool {
        let Body::Data(data) = &packet.body else { return false };
        let short = data.payload.len() < payload::COPY_BELOW;
        data.tx_count > 0
            || matches!(data.op, Op::ReadResponse { .. }) && (short || sealed)
            || data.payload.is_accelerators()
    }

    /// Copies the payload to `scratch`. Returns false, and notes the message, if it has gone.
    fn copy_with_care(&mut self, transmit: &Transmit<HostPayload>) -> bool {
        let Body::Data(data) = &transmit.packet.body else { return false };
        self.scratch.resize(data.payload.len(), 0);
        let there = payload::try_copy(&data.payload, &mut self.scratch);
        if !there {
            self.counters.dropped_unreadable += 1;
            self.unreadable.push((transmit.peer, data.msg));
        }
        there
    }

    fn local_family(&self, to: InstanceAddr) -> bool {
        let same = to.gid.is_ipv6() == self.ports.local().ip.is_ipv6();
        if !same {
            log::warn_once(format_args!(
                "{to} cannot be reached from {}: one is an IPv4 address, the other IPv6; set SRD_ADDR to an address of the other kind",
                self.ports.local().ip
            ));
        }
        same
    }

    /// Sends the batch unless the datagram of `transmit`, of `len` bytes, can join it.
    #[inline]
    fn make_room(&mut self, now: Time, transmit: &Transmit<HostPayload>, len: usize) {
        let Transmit { to, entropy, peer_incarnation, .. } = *transmit;
        let batch = &mut self.batch;
        let joins = batch.count > 0
            && batch.burst.to == to
            && batch.burst.entropy == entropy
            && len <= batch.burst.segment
            && !batch.closed
            && batch.count < self.ports.most_segments()
            // Header, two pieces of payload, padding.
            && batch.gather.room(4, len) > 0;
        if joins {
            return;
        }
        if batch.count > 0 {
            self.flush(now);
        }
        let burst = &mut self.batch.burst;
        if burst.to != to {
            burst.to = to;
            burst.destination = Destination::new(scoped(to.gid.ip(), to.port, self.ports.local().index));
        }
        burst.entropy = entropy;
        burst.segment = len;
        burst.known = peer_incarnation.is_some();
        burst.in_fragments = true;
        self.batch.closed = false;
    }

    /// Sends what has been pushed.
    #[inline]
    pub fn flush(&mut self, now: Time) {
        if self.batch.count == 0 {
            return;
        }
        let burst = self.batch.burst;
        if self.injector.is_some() {
            self.flush_through_injector(now, &burst);
        } else if !self.waiting.is_empty() && self.waiting.iter().any(|it| it.burst.entropy == burst.entropy)
        {
            self.keep_batch(now, burst);
        } else if self.ports.send(now, &burst, Bytes::Gathered(&self.batch.gather)) == Sent::NotNow {
            self.counters.blocked += 1;
            self.keep_batch(now, burst);
        }
        self.batch.gather.clear();
        self.batch.count = 0;
        self.batch.last = None;
    }

    /// Copies the batch to be sent later.
    #[cold]
    fn keep_batch(&mut self, now: Time, burst: Burst) {
        match Bytes::Gathered(&self.batch.gather).to_vec() {
            Some(bytes) => self.keep(Waiting { burst, bytes, until: now + KEEP_FOR }),
            None => self.counters.dropped_unreadable += self.batch.count as u64,
        }
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
            let entropy = waiting.burst.entropy;
            // In order: nothing passes what its own socket did not take.
            let not_now = blocked.contains(&entropy)
                || self.ports.send(now, &waiting.burst, Bytes::Whole(&waiting.bytes)) == Sent::NotNow;
            if not_now {
                blocked.push(entropy);
                if waiting.until <= now {
                    self.counters.dropped_blocked +=
                        waiting.bytes.len().div_ceil(waiting.burst.segment.max(1)) as u64;
                } else {
                    self.keep(waiting);
                }
            }
        }
    }

    #[cold]
    fn flush_through_injector(&mut self, now: Time, burst: &Burst) {
        let Some(bytes) = Bytes::Gathered(&self.batch.gather).to_vec() else {
            self.counters.dropped_unreadable += self.batch.count as u64;
            return;
        };
        let Some(mut injector) = self.injector.take() else { return };
        for datagram in bytes.chunks(burst.segment.max(1)) {
            let single = Burst { segment: datagram.len(), ..*burst };
            let datagram = Datagram { entropy: burst.entropy, to: single, bytes: datagram.to_vec() };
            injector.pass(now, datagram, &mut |datagram| self.send_datagram(now, datagram));
        }
        self.injector = Some(injector);
    }

    fn send_datagram(&mut self, now: Time, datagram: Datagram<Burst>) {
        let Datagram { to: burst, bytes, .. } = datagram;
        if self.ports.send(now, &burst, Bytes::Whole(&bytes)) == Sent::NotNow {
            self.counters.blocked += 1;
            self.keep(Waiting { burst, bytes, until: now + KEEP_FOR });
        }
    }
}

/// Seals the packet of `len` bytes at the beginning of `out`, which has room for what that adds.
#[inline]
fn seal_in(
    out: &mut [u8],
    len: usize,
    to: InstanceAddr,
    peer_incarnation: Option<Incarnation>,
    keyring: &mut Keyring,
    counters: &mut TransmitCounters,
) {
    if let Err(e) = keyring.seal(to, peer_incarnation, out, len) {
        debug_assert!(false, "{e}");
        log::warn_once(format_args!("a packet to {to} could not be sealed: {e}"));
        // What is in the batch by now cannot be taken out again; it goes as it is, and is refused there.
        counters.dropped_unsealed += 1;
        out.fill(0);
    }
}
