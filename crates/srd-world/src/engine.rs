//! How a process runs its device: packets in, timers, packets out, completions. The part that `srd-net` plays on a
//! host, with its liberties: it may wake late, take packets in batches, find its socket full, or wake for nothing.

use crate::ledger::{RECV_BASE, Verb, Violation, broken};
use crate::memory::Bytes;
use crate::node::{Carried, Datagram};
use crate::rng::mix;
use crate::trace;
use crate::world::{Event, Sabotage, World};
use srd_device::{Completion, CompletionOp};
use srd_proto::{Payload, Transmit};
use srd_wire::seal::{Keyring, Limits, OpenError, Psk};
use srd_wire::{Body, Incarnation, InstanceAddr, Nanos, Packet, Status, Time, codec};

/// Who a living process is.
pub struct Identity {
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its keys, if packets are sealed.
    pub keyring: Option<Keyring>,
}

impl Identity {
    /// The identity of a process that has just started.
    pub fn new(
        incarnation: Incarnation,
        sealed: bool,
        own: impl Iterator<Item = srd_wire::InstanceAddr>,
    ) -> Identity {
        let keyring = sealed.then(|| {
            let psk = Psk::from_bytes(&[7; Psk::LEN]).expect("of the right length");
            let mut keyring = Keyring::new(incarnation, psk, Limits::default());
            own.for_each(|addr| keyring.allow_self(addr.gid));
            keyring
        });
        Identity { incarnation, keyring }
    }
}

/// Most packets that a device may want to send at one moment.
const MAX_AT_ONCE: u64 = 50_000;

/// Times that a device may want to be called again at once without doing anything.
const MAX_SPINS: u32 = 64;

impl World {
    /// Makes the engine of a process run at `at`, unless it runs earlier anyway.
    pub(crate) fn wake_at(&mut self, node: usize, at: Time) {
        let at = at.max(self.now);
        if at < self.nodes[node].wake_at {
            self.nodes[node].wake_at = at;
            self.at(at, Event::Wake(node));
        }
    }

    pub(crate) fn wake(&mut self, node: usize) -> Result<(), Violation> {
        // A wake-up that was overtaken by an earlier one.
        if self.nodes[node].wake_at != self.now {
            return Ok(());
        }
        self.serve(node)
    }

    /// Runs the engine of a process once.
    pub(crate) fn serve(&mut self, node: usize) -> Result<(), Violation> {
        self.nodes[node].wake_at = Time::NEVER;
        if self.nodes[node].device.is_none() {
            return Ok(());
        }
        if !self.nodes[node].runs(self.now) {
            self.wake_at(node, self.nodes[node].paused_until);
            return Ok(());
        }
        self.wakes += 1;
        let timers_first = self.plan.shape.timers_first != 0;
        let local = self.nodes[node].local(self.now);
        let due = self.nodes[node].device().next_timeout() <= local;
        let mut moved = 0;
        if timers_first {
            self.run_timers(node);
        }
        moved += self.take_packets(node)?;
        if !timers_first {
            self.run_timers(node);
        }
        let (sent, full) = self.send_packets(node)?;
        moved += sent;
        if !full {
            self.settle(node)?;
        }
        self.check_memory(node)?;
        if self.plan.shape.cq_lag_ns == 0 {
            moved += self.poll_now(node)?;
        } else {
            let lag = self.engine.below(self.plan.shape.cq_lag_ns);
            self.after(lag, Event::Poll(node));
        }
        self.plan_next_wake(node, full);
        if moved == 0 {
            let next = self.nodes[node].device().next_timeout();
            self.tell(|| {
                format!(
                    "{node} wakes for nothing (due: {due}); next at {} ns",
                    self.nodes[node].world(next).0
                )
            });
        }
        if due || moved > 0 { self.count_idle(node, moved) } else { Ok(()) }
    }

    fn run_timers(&mut self, node: usize) {
        let local = self.nodes[node].local(self.now);
        let device = self.nodes[node].device();
        let due = device.next_timeout() <= local;
        if due && self.sabotage(Sabotage::SleepThrough, 20) {
            return;
        }
        let device = self.nodes[node].device();
        if due || self.engine.percent(self.plan.shape.spurious_percent) {
            device.handle_timeout(local);
        }
    }

    /// Gives the device what has come, and returns how many packets that was.
    fn take_packets(&mut self, node: usize) -> Result<u64, Violation> {
        let mut taken = 0;
        while let Some(datagram) = self.nodes[node].inbox.pop_front() {
            self.nodes[node].inbox_bytes -= datagram.bytes as u64;
            taken += 1;
            let Datagram { to, from, packet, bytes, marked, damaged } = datagram;
            let packet = match packet {
                Carried::Typed(packet) if !damaged => Some(*packet),
                Carried::Typed(_) => None,
                Carried::Raw(raw) => self.open(node, from, to.port, raw, damaged)?,
            };
            let Some(packet) = packet else { continue };
            self.heard(node, from, &packet);
            let local = self.nodes[node].local(self.now);
            self.nodes[node].device().handle_packet(local, to.port, from, &packet, bytes, marked);
        }
        Ok(taken)
    }

    /// Opens and decodes a datagram.
    fn open(
        &mut self,
        node: usize,
        from: srd_wire::Gid,
        port: u16,
        mut raw: Vec<u8>,
        damaged: bool,
    ) -> Result<Option<Packet<Bytes>>, Violation> {
        let keyring = self.keys[node].as_mut().and_then(|identity| identity.keyring.as_mut());
        let Some(keyring) = keyring else {
            let packet = codec::decode(&raw);
            if damaged {
                // UDP's checksum drops it; the decoder has seen it only to see whether it survives.
                return Ok(None);
            }
            return match packet {
                Ok(packet) => Ok(Some(own(&packet))),
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
            Ok(_) if damaged => broken("codec", "a damaged packet is opened".to_string()),
            Ok(opened) => match codec::decode(opened.packet) {
                Ok(packet) => Ok(Some(own(&packet))),
                Err(error) => broken("codec", format!("a packet that was sealed is refused: {error}")),
            },
        }
    }

    /// Remembers that `node` hears of a peer, if the packet says something and is of now.
    fn heard(&mut self, node: usize, from: srd_wire::Gid, packet: &Packet<Bytes>) {
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
    fn send_packets(&mut self, node: usize) -> Result<(u64, bool), Violation> {
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
        contact.introduced &= packet.dst_tag != srd_wire::Tag::UNKNOWN;
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
        to: srd_wire::InstanceAddr,
        peer_incarnation: Option<Incarnation>,
        entropy: u16,
        pad_to: u16,
        packet: Packet<Bytes>,
        mut bytes: usize,
    ) -> Result<(), Violation> {
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
            let (marked, damaged) = (arrival.marked, arrival.damaged);
            let slot = self.fly(Datagram { to, from, packet, bytes, marked, damaged });
            let event = if self.net.has_downlink(dst) { Event::Fabric(slot) } else { Event::Arrive(slot) };
            self.at(arrival.at, event);
        }
        Ok(())
    }

    fn encode(
        &mut self,
        node: usize,
        to: srd_wire::InstanceAddr,
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
        raw.resize(len + srd_wire::seal::overhead(packet.hello.is_some()), 0);
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
        match self.net.downlink(self.now, self.nodes[node].host, datagram.bytes) {
            Some((at, marked)) => {
                datagram.marked |= marked;
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

    /// A device that wants to be called at once must have something to do then.
    fn settle(&mut self, node: usize) -> Result<(), Violation> {
        let local = self.nodes[node].local(self.now);
        for spin in 0.. {
            if self.nodes[node].device().next_timeout() > local {
                return Ok(());
            }
            if self.plan.faults.sabotage != 0 {
                return Ok(());
            }
            if spin >= MAX_SPINS {
                let due = self.nodes[node].device().next_timeout();
                return broken(
                    "livelock",
                    format!(
                        "process {node} wants to be called at {} when it is {}, for ever",
                        due.0, local.0
                    ),
                );
            }
            self.nodes[node].device().handle_timeout(local);
            if self.send_packets(node)?.1 {
                return Ok(());
            }
        }
        Ok(())
    }

    fn plan_next_wake(&mut self, node: usize, full: bool) {
        if full {
            // The socket has room again after a while.
            let soon = 1 + self.engine.below(5_000);
            self.wake_at(node, Time(self.now.0 + soon));
        }
        let due = self.nodes[node].device().next_timeout();
        if due != Time::NEVER {
            let late = self.engine.below(self.plan.shape.late_ns + 1);
            let at = self.nodes[node].world(due);
            self.wake_at(node, Time(at.0.saturating_add(late)).max(Time(self.now.0 + 1)));
        }
    }

    /// Wake-ups for nothing are allowed, but not one after the other without time passing.
    fn count_idle(&mut self, node: usize, moved: u64) -> Result<(), Violation> {
        let (count, since) = &mut self.idle_wakes[node];
        if moved > 0 {
            (*count, *since) = (0, self.now);
            return Ok(());
        }
        *count += 1;
        if *count % 256 == 0 {
            if self.now.since(*since).0 < 256 * 1_000 && !self.healed {
                return broken("livelock", format!("process {node}: 256 wake-ups without effect in 256 us"));
            }
            *since = self.now;
        }
        Ok(())
    }

    pub(crate) fn check_memory(&mut self, node: usize) -> Result<(), Violation> {
        let Some(device) = self.nodes[node].device.as_mut() else { return Ok(()) };
        match device.memory().breaches.first() {
            Some(first) => broken("stray memory access", format!("the device of process {node} {first}")),
            None => Ok(()),
        }
    }

    pub(crate) fn poll(&mut self, node: usize) -> Result<(), Violation> {
        if self.nodes[node].runs(self.now) {
            self.poll_now(node)?;
        }
        Ok(())
    }

    /// Takes what has completed, and gives it to the oracle: what was received first, because a sender's success
    /// must come after it. Returns how many completions there were.
    pub(crate) fn poll_now(&mut self, node: usize) -> Result<u64, Violation> {
        let mut polled = std::mem::take(&mut self.polled);
        polled.clear();
        for at in 0..self.nodes[node].cqs.len() {
            let cq = self.nodes[node].cqs[at];
            let device = self.nodes[node].device();
            polled.extend(std::iter::from_fn(|| device.poll_cq(cq)));
        }
        self.spoil(node, &mut polled);
        let sent = |completion: &Completion| {
            matches!(completion.op, CompletionOp::Send | CompletionOp::Read | CompletionOp::Write)
        };
        let local = self.nodes[node].local(self.now);
        for sends in [false, true] {
            for &completion in polled.iter().filter(|completion| sent(completion) == sends) {
                self.note(completion.wr_id ^ (completion.status as u64) << 56 ^ (node as u64) << 50);
                self.tell(|| format!("{node} completes {completion:?}"));
                if sends && completion.status == Status::Ok {
                    self.ask_responder(completion.wr_id as usize, node)?;
                }
                let (now, ledger) = (self.now, &mut self.ledger);
                let mut memories = World::memories(&mut self.nodes);
                ledger.completed(now, local, node, &completion, &mut memories)?;
            }
        }
        let count = polled.len() as u64;
        for completion in polled.iter().filter(|completion| !sent(completion)) {
            if let Some(recv) = self.ledger.recvs.get(completion.wr_id.wrapping_sub(RECV_BASE) as usize) {
                let qp = recv.qp;
                let wait = self.engine.around(if self.healed { 0 } else { self.plan.shape.repost_ns });
                self.after(wait, Event::Stock(qp));
            }
        }
        self.polled = polled;
        self.check_memory(node)?;
        Ok(count)
    }

    /// Before a success is judged, the responder's completions must be known, even if its program is slow to look.
    fn ask_responder(&mut self, id: usize, asker: usize) -> Result<(), Violation> {
        let Some(message) = self.ledger.messages.get(id) else { return Ok(()) };
        let announced = message.verb == Verb::Send || message.imm.is_some();
        let node = self.ledger.qps[message.dst_qp].node;
        if announced && !message.delivered && node != asker && self.nodes[node].device.is_some() {
            let kept = std::mem::take(&mut self.polled);
            self.poll_now(node)?;
            self.polled = kept;
        }
        Ok(())
    }

    /// Whether to do this damage now: about once in `one_in` chances, and not before the run is under way.
    pub(crate) fn sabotage(&mut self, kind: Sabotage, one_in: u64) -> bool {
        if Sabotage::from_number(self.plan.faults.sabotage) != kind || self.engine.below(one_in) != 0 {
            return false;
        }
        self.sabotaged += 1;
        self.tell(|| format!("!! {kind:?}"));
        true
    }

    fn spoil(&mut self, node: usize, polled: &mut Vec<Completion>) {
        let kind = Sabotage::from_number(self.plan.faults.sabotage);
        if kind == Sabotage::None || polled.is_empty() {
            return;
        }
        let last = polled[polled.len() - 1];
        let received = matches!(last.op, CompletionOp::Recv | CompletionOp::RecvRdmaWithImm);
        match kind {
            Sabotage::LoseCompletion if self.sabotage(kind, 5) => {
                polled.pop();
            }
            Sabotage::RepeatCompletion if self.sabotage(kind, 5) => polled.push(last),
            Sabotage::LieSuccess if last.status != Status::Ok && self.sabotage(kind, 1) => {
                polled.last_mut().expect("not empty").status = Status::Ok;
            }
            Sabotage::LieFailure if last.status == Status::Ok && self.sabotage(kind, 5) => {
                polled.last_mut().expect("not empty").status = Status::RemoteBadAddress;
            }
            Sabotage::WrongLength if received && self.sabotage(kind, 5) => {
                polled.last_mut().expect("not empty").byte_len += 1;
            }
            Sabotage::WrongSource if received && self.sabotage(kind, 5) => {
                polled.last_mut().expect("not empty").src_qpn.0 ^= 1;
            }
            Sabotage::StrayWrite if self.sabotage(kind, 5) => {
                let piece = srd_device::Piece { addr: (1 << 48 | 1 << 38) + 50_000_000, len: 1 };
                let memory = self.nodes[node].device().memory();
                srd_device::Memory::write(memory, &[piece], 0, &Bytes::wire(&[0]));
            }
            _ => {}
        }
    }
}

/// The packet with a payload of its own.
fn own(packet: &Packet<&[u8]>) -> Packet<Bytes> {
    let body = match &packet.body {
        Body::None => Body::None,
        Body::Probe(probe) => Body::Probe(*probe),
        Body::Reset { stale } => Body::Reset { stale: *stale },
        Body::Data(data) => Body::Data(srd_wire::Data {
            psn: data.psn,
            stamp: data.stamp,
            path: data.path,
            tx_count: data.tx_count,
            ack_request: data.ack_request,
            msg: data.msg,
            len: data.len,
            offset: data.offset,
            op: data.op,
            payload: Bytes::wire(data.payload),
        }),
    };
    Packet {
        src_port: packet.src_port,
        dst_tag: packet.dst_tag,
        src_tag: packet.src_tag,
        hello: packet.hello,
        ack: packet.ack.clone(),
        body,
    }
}

/// Changes some bits.
fn damage(raw: &mut [u8], rng: &mut crate::rng::Rng) {
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
