//! Packets between a device and the network: out of the one, through codec and seal where the plan says so, over the
//! other, into a socket, and into the device at the far end.

use crate::ledger::{Violation, broken};
use crate::memory::Bytes;
use crate::net::Arrival;
use crate::node::{Carried, Datagram};
use crate::rng::{Rng, mix};
use crate::trace;
use crate::world::{Event, Sabotage, World};
use srd_proto::{Payload, Received, Transmit};
use srd_wire::seal::{OpenError, overhead};
use srd_wire::{Body, Gid, Incarnation, InstanceAddr, Nanos, Packet, Tag, Time, codec};

/// Most packets that a device may want to send at one moment.
const MAX_AT_ONCE: u64 = 50_000;

impl World {
    /// Gives the device what has come, and returns how many packets that was.
    pub(crate) fn take_packets(&mut self, node: usize) -> Result<u64, Violation> {
        let mut taken = 0;
        while let Some(datagram) = self.nodes[node].inbox.pop_front() {
            self.nodes[node].inbox_bytes -= datagram.bytes as u64;
            taken += 1;
            let Datagram { to, from, packet, bytes, marked, damaged, cut, leaves } = datagram;
            let leaves = leaves.filter(|_| cut);
            let packet = match packet {
                Carried::Typed(packet) if !damaged => Some(
                    packet.map_payload(|payload| if leaves.is_some() { Bytes::empty() } else { payload }),
                ),
                Carried::Typed(_) => None,
                Carried::Raw(raw) => self.open(node, from, to.port, raw, damaged, leaves)?,
            };
            let Some(packet) = packet else { continue };
            self.heard(node, from, &packet);
            let local = self.nodes[node].local(self.now);
            let received =
                Received { ce: marked, cut: leaves.is_some(), ..Received::new(local, from, &packet, bytes) };
            self.nodes[node].device().handle_packet(local, to.port, received);
        }
        Ok(taken)
    }

    /// Opens and decodes a datagram.
    fn open(
        &mut self,
        node: usize,
        from: Gid,
        port: u16,
        mut raw: Vec<u8>,
        damaged: bool,
        leaves: Option<usize>,
    ) -> Result<Option<Packet<Bytes>>, Violation> {
        raw.truncate(leaves.unwrap_or(raw.len()));
        let cut = leaves.is_some();
        let keyring = self.keys[node].as_mut().and_then(|identity| identity.keyring.as_mut());
        let Some(keyring) = keyring else {
            let packet = if cut { codec::decode_cut(&raw) } else { codec::decode(&raw) };
            if damaged {
                // UDP's checksum drops it; the decoder has seen it only to see whether it survives.
                return Ok(None);
            }
            return match packet {
                Ok(packet) => Ok(Some(packet.map_payload(Bytes::wire))),
                Err(error) => broken("codec", format!("a packet that was sent is refused: {error}")),
            };
        };
        match keyring.open(from, &mut raw) {
            Err(error) => {
                if matches!(error, OpenError::NoContext | OpenError::WrongDestination)
                    && let Some(outside) = codec::peek(&raw)
                {
                    let sender = InstanceAddr { gid: from, port: outside.src_port };
                    let local = self.nodes[node].local(self.now);
                    self.nodes[node].device().refuse(local, port, sender, outside.src_tag, outside.dst_tag);
                }
                self.tell(|| format!("{node} refuses a packet from {from:?}: {error}"));
                Ok(None)
            }
            Ok(_) if damaged || cut => broken("codec", "a damaged or cut packet is opened".to_string()),
            Ok(opened) => match codec::decode(opened.packet) {
                Ok(packet) => Ok(Some(packet.map_payload(Bytes::wire))),
                Err(error) => broken("codec", format!("a packet that was sealed is refused: {error}")),
            },
        }
    }

    /// Remembers that `node` hears of a peer, if the packet says something and is of now.
    fn heard(&mut self, node: usize, from: Gid, packet: &Packet<Bytes>) {
        let Some(&peer) = self.by_addr.get(&(from, packet.src_port)) else { return };
        let tag = |node: usize| self.keys[node].as_ref().map(|identity| identity.incarnation.tag());
        self.tell(|| format!("{node} hears {peer}: {}", trace::packet(packet)));
        self.ledger.contacts[node][peer].introduced |= packet.hello.is_some();
        if packet.ack.is_some() && tag(peer) == Some(packet.src_tag) && tag(node) == Some(packet.dst_tag) {
            let local = self.nodes[node].local(self.now);
            let contact = &mut self.ledger.contacts[node][peer];
            contact.heard = Some(local);
            contact.answered = true;
            contact.asked = None;
        }
    }

    /// Sends what the device wants to send. Says how much that was, and whether the socket was full.
    pub(crate) fn send_packets(&mut self, node: usize) -> Result<(u64, bool), Violation> {
        let local = self.nodes[node].local(self.now);
        let room = match self.plan.shape.socket_room {
            0 => u64::MAX,
            n => self.engine.within(1, n),
        };
        let mut sent = 0;
        while sent < room {
            let Some(transmit) = self.nodes[node].device().poll_transmit(local) else {
                return Ok((sent, false));
            };
            self.nodes[node].sent += 1;
            self.transmit(node, transmit)?;
            sent += 1;
            if sent > MAX_AT_ONCE {
                return broken("storm", format!("process {node} sends {sent} packets at one moment"));
            }
        }
        Ok((sent, true))
    }

    fn transmit(&mut self, node: usize, transmit: Transmit<Bytes>) -> Result<(), Violation> {
        let Transmit { to, peer_incarnation, entropy, pad_to, mut packet, .. } = transmit;
        let mut seg_len = 0;
        if let Body::Data(data) = &mut packet.body {
            data.payload = self.nodes[node].device().memory().resolve(&data.payload);
            seg_len = data.payload.len();
        }
        if let Err(error) = codec::check(&packet, seg_len) {
            let line = trace::packet(&packet);
            return broken("codec", format!("process {node} sends an inconsistent packet ({error}): {line}"));
        }
        if packet.hello.is_none() && packet.ack.is_none() && matches!(packet.body, Body::None) {
            let line = trace::packet(&packet);
            return broken("codec", format!("process {node} sends a packet that says nothing: {line}"));
        }
        let config = &self.nodes[node].config.transport;
        if entropy >= config.entropy {
            return broken("codec", format!("source port {entropy} of {}", config.entropy));
        }
        let bytes = codec::header_len(&packet) + seg_len.max(pad_to as usize);
        let peer = self.by_addr.get(&(to.gid, to.port)).copied();
        let room = self.room(node, peer, &packet);
        if bytes > room as usize {
            let line = trace::packet(&packet);
            return broken("codec", format!("process {node} sends {bytes} bytes where {room} fit: {line}"));
        }
        self.note(digest(&packet) ^ (entropy as u64) << 48 ^ (node as u64) << 32 ^ bytes as u64);
        if let Some(peer) = peer {
            self.tell(|| format!("{node} to {peer} by {entropy}, {bytes} B: {}", trace::packet(&packet)));
            let local = self.nodes[node].local(self.now);
            self.ledger.contacts[node][peer].asked.get_or_insert(local);
            self.watch_stubborn(node, peer, &packet)?;
        }
        if matches!(&packet.body, Body::Data(data) if !data.payload.is_empty())
            && self.sabotage(Sabotage::ChangePayload, 10)
            && let Body::Data(data) = &mut packet.body
        {
            let mut changed = data.payload.held().to_vec();
            let at = changed.len() / 2;
            changed[at] ^= 0x10;
            data.payload = Bytes::wire(&changed);
        }
        self.put_on_wire(node, to, peer_incarnation, entropy, pad_to, packet, bytes)
    }

    /// A packet that is not acknowledged is sent less and less often.
    fn watch_stubborn(&mut self, node: usize, peer: usize, packet: &Packet<Bytes>) -> Result<(), Violation> {
        let Body::Data(data) = &packet.body else { return Ok(()) };
        match data.tx_count {
            20 => {
                self.stubborn.insert((node, peer, data.psn.0), self.now);
            }
            120 => {
                let since = self.stubborn.remove(&(node, peer, data.psn.0));
                if since.is_some_and(|since| self.now.since(since) < Nanos::from_millis(20)) {
                    let line = trace::packet(packet);
                    return broken("storm", format!("100 times in 20 ms from {node} to {peer}: {line}"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// How large a packet may be. The pieces of a message that was begun before the peer had said what it can take
    /// stay as they are.
    fn room(&mut self, node: usize, peer: Option<usize>, packet: &Packet<Bytes>) -> u16 {
        let ours = self.nodes[node].config.transport.max_datagram;
        let Some(peer) = peer else { return ours };
        let contact = &mut self.ledger.contacts[node][peer];
        // A new context knows nothing.
        contact.introduced &= packet.dst_tag != Tag::UNKNOWN;
        let message = match &packet.body {
            Body::Data(data) => Some(data.msg.0),
            _ => None,
        };
        if !contact.introduced {
            contact.last_begun = message.max(contact.last_begun);
            return ours;
        }
        if message.is_some() && message <= contact.last_begun {
            return ours;
        }
        ours.min(self.nodes[peer].config.transport.max_datagram)
    }

    #[allow(clippy::too_many_arguments)]
    fn put_on_wire(
        &mut self,
        node: usize,
        to: InstanceAddr,
        peer_incarnation: Option<Incarnation>,
        entropy: u16,
        pad_to: u16,
        packet: Packet<Bytes>,
        mut bytes: usize,
    ) -> Result<(), Violation> {
        let leaves = match &packet.body {
            Body::Data(data) if !data.payload.is_empty() => {
                Some(codec::header_len(&packet) + data.payload.len() / 2)
            }
            _ => None,
        };
        let carried = match self.plan.shape.codec {
            0 => Carried::Typed(Box::new(packet)),
            _ => {
                let raw = self.encode(node, to, peer_incarnation, pad_to, &packet)?;
                bytes = raw.len();
                Carried::Raw(raw)
            }
        };
        let Some(&peer) = self.by_addr.get(&(to.gid, to.port)) else { return Ok(()) };
        let (src, dst) = (self.nodes[node].host, self.nodes[peer].host);
        let arrivals = self.net.send(self.now, src, dst, entropy, bytes);
        let from = self.nodes[node].addr.gid;
        if arrivals.is_empty() {
            self.tell(|| "  lost".to_string());
        }
        for arrival in arrivals {
            let mut packet = carried.clone();
            if arrival.damaged
                && let Carried::Raw(raw) = &mut packet
            {
                damage(raw, &mut self.engine);
            }
            let Arrival { marked, damaged, cut, .. } = arrival;
            let slot = self.fly(Datagram { to, from, packet, bytes, marked, damaged, cut, leaves });
            let event = if self.net.has_downlink(dst) { Event::Fabric(slot) } else { Event::Arrive(slot) };
            self.at(arrival.at, event);
        }
        Ok(())
    }

    fn encode(
        &mut self,
        node: usize,
        to: InstanceAddr,
        peer: Option<Incarnation>,
        pad_to: u16,
        packet: &Packet<Bytes>,
    ) -> Result<Vec<u8>, Violation> {
        let payload = match &packet.body {
            Body::Data(data) => data.payload.held(),
            _ => &[],
        };
        let mut raw = vec![0; codec::MAX_HEADER];
        let header = codec::encode_header(packet, payload.len(), &mut raw);
        raw.truncate(header);
        raw.extend_from_slice(payload);
        raw.resize(header + payload.len().max(pad_to as usize), 0);
        let keyring = self.keys[node].as_mut().and_then(|identity| identity.keyring.as_mut());
        let Some(keyring) = keyring else { return Ok(raw) };
        let len = raw.len();
        raw.resize(len + overhead(packet.hello.is_some()), 0);
        match keyring.seal(to, peer, &mut raw, len) {
            Ok(sealed) => {
                raw.truncate(sealed);
                Ok(raw)
            }
            Err(error) => {
                let line = trace::packet(packet);
                broken("codec", format!("process {node} cannot seal for {peer:?}: {error}: {line}"))
            }
        }
    }

    fn fly(&mut self, datagram: Datagram) -> usize {
        match self.air_free.pop() {
            Some(slot) => {
                self.air[slot] = Some(datagram);
                slot
            }
            None => {
                self.air.push(Some(datagram));
                self.air.len() - 1
            }
        }
    }

    fn land(&mut self, slot: usize) -> Datagram {
        self.air_free.push(slot);
        self.air[slot].take().expect("lands once")
    }

    pub(crate) fn pass_downlink(&mut self, slot: usize) {
        let datagram = self.air[slot].as_mut().expect("in the air");
        let Some(&node) = self.by_addr.get(&(datagram.to.gid, datagram.to.port)) else { return };
        match self.net.downlink(self.now, self.nodes[node].host, datagram.bytes, datagram.cut) {
            Some((at, marked, cut)) => {
                datagram.marked |= marked;
                datagram.cut |= cut;
                self.at(at, Event::Arrive(slot));
            }
            None => {
                self.land(slot);
                self.tell(|| format!("  lost in the queue to process {node}"));
            }
        }
    }

    pub(crate) fn arrive(&mut self, slot: usize) -> Result<(), Violation> {
        let datagram = self.land(slot);
        let Some(&node) = self.by_addr.get(&(datagram.to.gid, datagram.to.port)) else { return Ok(()) };
        if self.nodes[node].device.is_none() {
            return Ok(());
        }
        if self.nodes[node].inbox_bytes + datagram.bytes as u64 > self.plan.shape.rcvbuf_bytes.max(20_000) {
            self.tell(|| format!("  lost in the socket of process {node}"));
            return Ok(());
        }
        self.nodes[node].inbox_bytes += datagram.bytes as u64;
        self.nodes[node].inbox.push_back(datagram);
        let batch = self.engine.below(self.plan.shape.batch_ns + 1);
        self.wake_at(node, Time(self.now.0 + batch));
        Ok(())
    }
}

/// Changes some bits.
fn damage(raw: &mut [u8], rng: &mut Rng) {
    let before = raw.to_vec();
    for _ in 0..rng.within(1, 4) {
        let bit = rng.below(raw.len() as u64 * 8) as usize;
        raw[bit / 8] ^= 1 << (bit % 8);
    }
    if before == raw {
        raw[0] ^= 1;
    }
}

/// What a packet says, as a number.
fn digest(packet: &Packet<Bytes>) -> u64 {
    let mut hash = (packet.src_tag.0 as u64) << 32 | packet.dst_tag.0 as u64;
    let mut add = |word: u64| hash = mix(hash ^ word);
    if let Some(ack) = &packet.ack {
        add((ack.cum.0 as u64) << 32 | ack.rcvd_bytes as u64);
        ack.sack.iter().for_each(|&word| add(word));
        ack.echoes.iter().for_each(|echo| add((echo.psn.0 as u64) << 32 | echo.stamp.0 as u64));
    }
    match &packet.body {
        Body::None => {}
        Body::Data(data) => {
            add((data.psn.0 as u64) << 32 | data.stamp.0 as u64);
            add((data.msg.0 as u64) << 32 | data.offset as u64);
            add((data.tx_count as u64) << 32 | data.path.0 as u64);
        }
        Body::Probe(probe) => add((probe.number as u64) << 32 | probe.stamp.0 as u64),
        Body::Reset { stale } => add(stale.0 as u64),
    }
    hash
}
