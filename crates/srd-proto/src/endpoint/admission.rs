//! Who gets a context, and whose it is: strangers are answered and forgotten, those who show a queue key or that they are at
//! their address are let in, as far as there is room; a process that was started again takes the place of the one before.

use super::{Endpoint, Received, Transmit};
use crate::hello::{is_compatible, own_hello};
use crate::peer::Peer;
use crate::replies::Asker;
use crate::shared::Shared;
use crate::{Payload, PeerId, PeerLoss, UpperLayer};
use srd_wire::codec::{COMMON_LEN, HELLO_LEN, Preamble};
use srd_wire::{
    Ack, Body, Echo, Gid, Hello, Hold, Incarnation, InstanceAddr, Packet, PathId, Probe, Psn, Status, Tag,
    Time, first_psn,
};

/// Contexts looked at, where the table is full, to find one that may go.
const LOOKS_FOR_ROOM: usize = 64;
/// Contexts with instances that nobody has vouched for: they are at their address, but neither does our program want them
/// nor have they known a queue key. They have to be told what they did wrong, no more.
const MAX_STRANGERS: usize = 1024;
/// Contexts with instances that have known a queue key, which may be a well-known one, and whose address may be forged. Who
/// comes when there are so many is answered first, as a stranger is.
const MAX_UNPROVEN: usize = 512;

impl<P: Payload> Endpoint<P> {
    /// The slot of the context to which a packet belongs that is to be heard, and whether it names us.
    #[inline]
    pub(super) fn admit<U: UpperLayer<P>>(
        &mut self,
        port: u8,
        received: &Received<'_, P>,
        upper: &mut U,
    ) -> Option<(u32, bool)> {
        let packet = received.packet;
        let addr = InstanceAddr { gid: received.from, port: packet.src_port };
        let known = self.known(port, addr);
        let own = match known {
            Some(slot) => self.peers[slot as usize].own,
            None => self.shared.identities.toward(port, addr, 0),
        };
        if packet.src_tag == own.tag() && self.shared.own_host != Some(received.from) {
            self.shared.stats.reflected += 1;
            return None;
        }
        if let Body::Reset { stale } = packet.body {
            self.on_reset(known, packet, stale, upper);
            return None;
        }
        // Who names us has got what we sent to his address: nobody else is told this incarnation.
        let named = packet.dst_tag == own.tag();
        if packet.dst_tag != Tag::UNKNOWN && !named && self.next_identity(known, own).tag() != packet.dst_tag
        {
            self.shared.stats.stale_incarnation += 1;
            self.reset(port, addr, own, packet.src_tag, packet.dst_tag, self.asker(known));
            return None;
        }
        let slot = self.identify(port, addr, known, own, packet, upper)?;
        self.peers[slot as usize].standing.prove(named, received.bytes);
        self.is_of_context(slot, packet.hello.as_ref(), upper).then_some((slot, named))
    }

    /// The slot of the context that a packet belongs to; a new one, or a new incarnation's, if the packet introduces its
    /// sender and he has shown that he is at his address, or that he was given ours.
    fn identify<U: UpperLayer<P>>(
        &mut self,
        port: u8,
        addr: InstanceAddr,
        known: Option<u32>,
        own: Incarnation,
        packet: &Packet<P>,
        upper: &mut U,
    ) -> Option<u32> {
        let named = packet.dst_tag == own.tag();
        let peer = known.map(|slot| &self.peers[slot as usize]);
        if let Some(remote) = peer.and_then(|peer| peer.remote)
            && remote.tag() == packet.src_tag
            // Somebody else may have that tag.
            && packet.hello.is_none_or(|hello| hello.incarnation == remote)
            // Without our tag the 64 bits of his incarnation, which only we are told, speak for him. Who knows nothing of us has
            // given nothing up.
            && (named || packet.dst_tag == Tag::UNKNOWN && packet.hello.is_some_and(|hello| hello.context == 0))
        {
            return known;
        }
        let Some(hello) = packet.hello else {
            self.shared.stats.unintroduced += 1;
            if named {
                // Its sender believes that we know it: whatever it has outstanding here is lost.
                self.reset(port, addr, own, packet.src_tag, packet.dst_tag, self.asker(known));
            }
            return None;
        };
        // Who was taken for the peer has not been told who we are. This one has.
        if let Some(slot) = known.filter(|&slot| named && self.peers[slot as usize].standing.claimed) {
            self.make_way(slot, upper);
            self.peers[slot as usize].adopt(&hello, named, &mut self.shared);
            return Some(slot);
        }
        // The first context with an address belongs to whoever is there first. Later ones do not: a packet of a dead
        // process, late on its way, could end a live context, or bring a message a second time.
        if let Some(peer) = peer.filter(|peer| peer.standing.ever_known) {
            let (next, asker) = (self.next_identity(known, own), self.asker(known));
            let number = self.shared.identities.question(port, addr, hello.incarnation, peer.reign());
            let answers = |echo: &Echo| echo.tx_count == Echo::PROBE && echo.psn == Psn(number);
            // In clear mode nobody was told that incarnation before; in sealed mode all are told the same.
            let answered = !self.shared.config.confirm_first
                || packet.ack.iter().flat_map(|ack| &ack.echoes).any(answers);
            if !answered || packet.dst_tag != next.tag() {
                self.shared.stats.replaced_incarnation += 1;
                let probe = Probe { path: PathId(0), number, stamp: self.now.stamp() };
                self.answer_stranger(asker, port, addr, next, &hello, None, Body::Probe(probe));
                if let Body::Probe(probe) = &packet.body {
                    // Both sides may be in doubt about each other.
                    self.answer_stranger(asker, port, addr, next, &hello, Some(probe), Body::None);
                }
                return None;
            }
            let slot = known?;
            if self.peers[slot as usize].remote.is_some() {
                self.replace(slot, upper);
            }
            self.peers[slot as usize].adopt(&hello, true, &mut self.shared);
            return Some(slot);
        }
        let data = match &packet.body {
            Body::Data(data) => Some(data),
            _ => None,
        };
        let vouched = data.is_some_and(|data| upper.vouches(&data.op, addr));
        let trusted = || {
            hello.context == 0
                && is_compatible(&hello)
                && data.is_some_and(|data| upper.trusts(&data.op, known.is_some()))
        };
        let on_trust = !named && !self.shared.config.confirm_first;
        if !named && (!vouched || on_trust && (!trusted() || known.is_none() && self.are_unproven_many())) {
            if !matches!(packet.body, Body::None) {
                self.shared.stats.unconfirmed += 1;
            }
            let probe = match &packet.body {
                Body::Probe(probe) => Some(probe),
                _ => None,
            };
            self.answer_stranger(self.asker(known), port, addr, own, &hello, probe, Body::None);
            return None;
        }
        let slot = match known {
            Some(slot) => slot,
            // In sealed mode only those who have the key get here.
            None => match self.add_peer(port, addr, vouched || self.shared.config.confirm_first, Some(upper))
            {
                Some(slot) => slot,
                None => {
                    self.shared.stats.peer_limit_drops += 1;
                    return None;
                }
            },
        };
        if on_trust && known.is_none() {
            self.unproven.push_back(slot);
        }
        self.peers[slot as usize].adopt(&hello, !on_trust, &mut self.shared);
        Some(slot)
    }

    /// Who we, who are `own` to the address of the context in `known`, shall be to the next process there: somebody else
    /// than to the one that is known, if one is and has been told.
    fn next_identity(&self, known: Option<u32>, own: Incarnation) -> Incarnation {
        match known.map(|slot| &self.peers[slot as usize]) {
            Some(peer) if peer.remote.is_some() && !peer.standing.claimed => {
                self.shared.identities.toward(peer.port, peer.addr, peer.standing.life + 1)
            }
            _ => own,
        }
    }

    /// Whether a packet of the peer in `slot` belongs to the context that goes on. Where the peer has begun another, because it
    /// has given us up, so do we.
    #[inline]
    fn is_of_context<U: UpperLayer<P>>(&mut self, slot: u32, hello: Option<&Hello>, upper: &mut U) -> bool {
        let peer = &mut self.peers[slot as usize];
        match hello {
            None if peer.hello.joined => return true,
            Some(hello) if hello.context == peer.context => {
                peer.hello.joined = true;
                return true;
            }
            Some(hello) if hello.context.wrapping_sub(peer.context) < u16::MAX / 2 => {
                self.follow(slot, hello.context, upper);
                return true;
            }
            _ => {}
        }
        // It does not know yet that we have given it up.
        self.shared.stats.replaced_incarnation += 1;
        peer.hello.context_confirmed = false;
        peer.revive(self.now);
        peer.answer_hello(self.now, &self.shared);
        self.make_ready(slot);
        false
    }

    /// The peer in `slot` has begun context number `context` with us.
    #[cold]
    fn follow<U: UpperLayer<P>>(&mut self, slot: u32, context: u16, upper: &mut U) {
        let shared = &mut self.shared;
        shared.stats.given_up_by_peers += 1;
        let peer = &mut self.peers[slot as usize];
        let mut old = peer.begin_context(self.now, context, shared);
        peer.hello.joined = true;
        old.end(self.now, Status::RemoteAbort, PeerLoss::GivenUp, shared, upper);
        self.timers.set(slot, Time::NEVER);
    }

    /// Another process than the one that is taken for the peer is at this address. What our program has sent to an address
    /// from which nobody had shown himself is for whoever is there.
    fn make_way<U: UpperLayer<P>>(&mut self, slot: u32, upper: &mut U) {
        let peer = &mut self.peers[slot as usize];
        if peer.standing.claimed && peer.standing.named {
            peer.disclaim(self.now, &mut self.shared, upper);
            self.make_ready(slot);
        } else {
            self.replace(slot, upper);
        }
    }

    /// The process at this address has restarted: the context ends, and a new one takes its slot.
    fn replace<U: UpperLayer<P>>(&mut self, slot: u32, upper: &mut U) {
        let own = self.next_identity(Some(slot), self.peers[slot as usize].own);
        let shared = &mut self.shared;
        shared.stats.peer_restarts += 1;
        shared.stats.peers_created += 1;
        let old = &mut self.peers[slot as usize];
        if old.busy() {
            shared.stats.impaired_remote_conn_events += 1;
        }
        let id = PeerId { slot, generation: old.id.generation.wrapping_add(1) };
        let mut new = Peer::new(id, old.addr, old.port, own, 0, self.now, shared);
        (new.ready, new.in_ack_queue) = (old.ready, old.in_ack_queue);
        (new.standing, new.counters) = (old.standing.of_successor(), old.counters);
        let mut old = std::mem::replace(&mut self.peers[slot as usize], new);
        old.end(self.now, Status::RemoteAbort, PeerLoss::Restarted, shared, upper);
        self.timers.set(slot, Time::NEVER);
    }

    /// The slot of a new context; none if there is no room. `vouched`: it is not a stranger's. `upper`: who is to hear of what
    /// another one leaves that makes way; without it, for a peer that our program names, none does of whose messages one is half
    /// taken.
    pub(super) fn add_peer(
        &mut self,
        port: u8,
        addr: InstanceAddr,
        vouched: bool,
        upper: Option<&mut dyn UpperLayer<P>>,
    ) -> Option<u32> {
        let full = self.peers.len() >= self.shared.config.max_peers as usize;
        let crowded = self.strangers.len() >= MAX_STRANGERS;
        let makes_way = match (full || crowded).then(|| self.oldest_stranger(upper.is_some())).flatten() {
            None if full && vouched => Some(self.find_room(upper.is_none())?),
            None if full || crowded && !vouched => return None,
            stranger => stranger,
        };
        // The one that the peer has been told, if it has been: whoever makes way for it changes nothing of that.
        let own = self.shared.identities.toward(port, addr, 0);
        let slot = match makes_way {
            Some(slot) => {
                self.evict(slot, upper);
                slot
            }
            None => self.peers.len() as u32,
        };
        let generation = self.peers.get(slot as usize).map_or(0, |old| old.id.generation.wrapping_add(1));
        let id = PeerId { slot, generation };
        let mut peer = Peer::new(id, addr, port, own, 0, self.now, &mut self.shared);
        peer.standing.vouched = vouched;
        match self.peers.get_mut(slot as usize) {
            Some(old) => {
                (peer.ready, peer.in_ack_queue) = (old.ready, old.in_ack_queue);
                *old = peer;
            }
            None => self.peers.push(peer),
        }
        if !vouched {
            self.strangers.push_back(slot);
        }
        self.shared.stats.peers_created += 1;
        self.by_addr.insert((port, addr), slot);
        Some(slot)
    }

    /// The context in `slot` makes way for another.
    fn evict(&mut self, slot: u32, upper: Option<&mut dyn UpperLayer<P>>) {
        let old = &mut self.peers[slot as usize];
        if !old.is_unused() {
            self.shared.identities.forget(old.port, old.addr);
        }
        if let Some(upper) = upper {
            old.abandon_half_taken(&mut self.shared, upper);
        }
        old.count_reassemblies(&mut self.shared);
        self.by_addr.remove(&(old.port, old.addr));
        self.last_peer = None;
        self.timers.set(slot, Time::NEVER);
        self.shared.stats.peers_evicted += 1;
    }

    /// Takes the stranger that has been here longest off the list. `any`: also if one of its messages is half taken.
    fn oldest_stranger(&mut self, any: bool) -> Option<u32> {
        for _ in 0..self.strangers.len() {
            let slot = self.strangers.pop_front()?;
            let peer = &self.peers[slot as usize];
            if peer.standing.vouched {
                // A stranger no more. One that may be elsewhere can become one again.
                if !peer.standing.proven {
                    self.unproven.push_back(slot);
                }
                continue;
            }
            if any || !peer.reassemblies.await_more() {
                return Some(slot);
            }
            self.strangers.push_back(slot);
        }
        None
    }

    /// Whether no other context is made for who has not proven where he is. Those that have are taken off the list, and those
    /// that have been given up are strangers from then on.
    fn are_unproven_many(&mut self) -> bool {
        for _ in 0..LOOKS_FOR_ROOM {
            if self.unproven.len() < MAX_UNPROVEN {
                return false;
            }
            let slot = self.unproven.pop_front().expect("there are many");
            let peer = &self.peers[slot as usize];
            match peer.standing.vouched {
                _ if peer.standing.proven => {}
                true => self.unproven.push_back(slot),
                false => self.strangers.push_back(slot),
            }
        }
        true
    }

    /// A context of a full table that may go, or, `for_named`, be displaced.
    fn find_room(&mut self, for_named: bool) -> Option<u32> {
        let mut find = |may: fn(&Peer<P>, Time, &Shared) -> bool| {
            (0..LOOKS_FOR_ROOM.min(self.peers.len())).find_map(|_| {
                let slot = self.next_look % self.peers.len();
                self.next_look = slot + 1;
                may(&self.peers[slot], self.now, &self.shared).then_some(slot as u32)
            })
        };
        let room = find(Peer::may_go);
        if for_named { room.or_else(|| find(|peer, _, shared| peer.may_be_displaced(shared))) } else { room }
    }

    /// A packet from instance `from` cannot be for any context here: its sender is told so, at a limited rate. Called
    /// here for packets that name another incarnation, and by the edge for sealed packets that no key opens.
    pub fn refuse(&mut self, now: Time, port: u8, from: InstanceAddr, src_tag: Tag, dst_tag: Tag) {
        self.advance(now);
        let own = self.incarnation_toward(port, from);
        // Whoever that is: the packet has not been opened.
        self.reset(port, from, own, src_tag, dst_tag, Asker::Stranger);
    }

    /// A packet of another version has come from `gid`, `bytes` long, of which `preamble` can be read. Whoever begins with
    /// one is told which versions we speak, by no more bytes than have come. Not in sealed mode, because a seal belongs to
    /// its version, and not in answer to an answer, which names us.
    pub fn other_version(&mut self, now: Time, port: u8, gid: Gid, preamble: &Preamble, bytes: usize) {
        let begins = preamble.dst_tag == Tag::UNKNOWN && preamble.src_tag != Tag::UNKNOWN;
        if self.shared.config.confirm_first
            || !begins
            || bytes < COMMON_LEN + HELLO_LEN
            || !self.replies.has_room(Asker::Stranger)
        {
            return;
        }
        self.advance(now);
        let from = InstanceAddr { gid, port: preamble.src_port };
        let own = self.incarnation_toward(port, from);
        let hello = own_hello(&self.shared, own, 0, 0);
        self.reply(Asker::Stranger, port, from, own, None, preamble.src_tag, Some(hello), None, Body::None);
    }

    fn reset(
        &mut self,
        port: u8,
        from: InstanceAddr,
        own: Incarnation,
        src_tag: Tag,
        dst_tag: Tag,
        asker: Asker,
    ) {
        if dst_tag == Tag::UNKNOWN || src_tag == Tag::UNKNOWN || !self.replies.has_room(asker) {
            return;
        }
        self.shared.stats.resets_sent += 1;
        // In sealed mode only a hello opens without a context.
        let context = || self.by_addr.get(&(port, from)).map_or(0, |&slot| self.peers[slot as usize].context);
        let hello = self.shared.config.confirm_first.then(|| own_hello(&self.shared, own, 0, context()));
        self.reply(asker, port, from, own, None, src_tag, hello, None, Body::Reset { stale: dst_tag });
    }

    fn on_reset<U: UpperLayer<P>>(
        &mut self,
        known: Option<u32>,
        packet: &Packet<P>,
        stale: Tag,
        upper: &mut U,
    ) {
        let current = |slot: &u32| {
            let peer = &self.peers[*slot as usize];
            peer.remote.is_some() && peer.remote_tag == stale && packet.dst_tag == peer.own.tag()
        };
        let Some(slot) = known.filter(current) else {
            self.shared.stats.resets_ignored += 1;
            return;
        };
        let peer = &mut self.peers[slot as usize];
        if stale == packet.src_tag {
            // It is whom we mean, but does not know us, or did not when it sent this: an instance that lives forgets
            // nobody, but may have no key for us any more. Introduce ourselves again; the context goes on.
            peer.hello.confirmed = false;
            peer.hello.at = self.now;
            self.make_ready(slot);
        } else {
            self.make_way(slot, upper);
        }
    }

    /// Who has sent a packet, which has been opened if there is a key, from the address of the context in `known`.
    fn asker(&self, known: Option<u32>) -> Asker {
        if self.shared.config.confirm_first {
            return Asker::Member;
        }
        let standing = known.map(|slot| self.peers[slot as usize].standing);
        if standing.is_some_and(|standing| standing.named || standing.ever_known) {
            Asker::Acquaintance
        } else {
            Asker::Stranger
        }
    }

    /// Tells an instance with which there is no context who we are, and echoes the `probe` with which it has asked: nothing
    /// has been received of the context that it names. Nothing of it is remembered here.
    #[allow(clippy::too_many_arguments)]
    fn answer_stranger(
        &mut self,
        asker: Asker,
        port: u8,
        addr: InstanceAddr,
        own: Incarnation,
        hello: &Hello,
        probe: Option<&Probe>,
        body: Body<P>,
    ) {
        if !self.replies.has_room(asker) {
            return;
        }
        let ack = probe.map(|probe| {
            let echo = Echo {
                path: probe.path,
                tx_count: Echo::PROBE,
                hold: Hold::TOO_LONG,
                psn: Psn(probe.number),
                stamp: probe.stamp,
            };
            let cum = first_psn(hello.incarnation, hello.context);
            Ack { cum, echoes: [echo].into_iter().collect(), ..Ack::default() }
        });
        let (who, tag) = (hello.incarnation, hello.incarnation.tag());
        let ours = own_hello(&self.shared, own, 0, 0);
        self.reply(asker, port, addr, own, Some(who), tag, Some(ours), ack, body);
    }

    #[allow(clippy::too_many_arguments)]
    fn reply(
        &mut self,
        asker: Asker,
        port: u8,
        to: InstanceAddr,
        own: Incarnation,
        peer_incarnation: Option<Incarnation>,
        dst_tag: Tag,
        hello: Option<Hello>,
        ack: Option<Ack>,
        body: Body<P>,
    ) {
        let packet = Packet {
            src_port: self.shared.ports[port as usize],
            dst_tag,
            src_tag: own.tag(),
            hello,
            ack: ack.map(Into::into),
            body,
        };
        let peer = PeerId { slot: u32::MAX, generation: 0 };
        // Each another way: one may be dead, and a stranger asks until an answer comes.
        self.reply_turn = self.reply_turn.wrapping_add(1);
        let entropy = self.reply_turn % self.shared.config.entropy;
        self.replies.add(asker, Transmit { peer, to, peer_incarnation, entropy, pad_to: 0, packet });
    }
}
