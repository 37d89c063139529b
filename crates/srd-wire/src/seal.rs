//! Sealing: with a pre-shared key every packet is authenticated and encrypted, and none is accepted twice. This
//! module keeps the keys and the counters of one device instance; it decides which packet is genuine, not what it
//! means. The format and the argument that no nonce repeats are in `docs/SPEC.md`.
//!
//! A sealed datagram is the packet's common header in clear, the rest encrypted, and a trailer:
//! tag, the sender's incarnation (where the packet has a hello), counter. So a packet is sealed and opened where it
//! lies, without a byte of it being moved.

mod keys;
mod psk;
mod refusal;
mod replay;

pub use psk::{Place, Psk, PskError};
pub use refusal::{OpenError, SealError};

use crate::codec::{COMMON_LEN, HELLO_LEN, peek};
use crate::layout::{FLAG_ACK, FLAG_HELLO, FLAG_INITIAL, FLAG_SEALED, KIND_NONE, KIND_RESET};
use crate::packet::VERSION;
use crate::units::{Gid, Incarnation, InstanceAddr, Tag};
use keys::{Epochs, Opener, Sealer, Secret};
use replay::Window;
use std::collections::{BTreeMap, HashMap};

/// Bytes of an authentication tag.
pub const TAG_LEN: usize = 16;
/// Bytes of a packet counter.
pub const COUNTER_LEN: usize = 8;
/// Bytes of an incarnation in a trailer.
pub const INCARNATION_LEN: usize = 8;

/// Bytes by which sealing makes a packet longer. `hello`: whether the packet has one.
pub const fn overhead(hello: bool) -> usize {
    TAG_LEN + COUNTER_LEN + if hello { INCARNATION_LEN } else { 0 }
}

/// Hellos are few and are repeated until they are answered.
type IntroductionWindow = Window<4>;

/// How much a [`Keyring`] remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Contexts with peers that have proved to be alive, about 4 KiB each. The longest unused makes way for a new one.
    pub confirmed: usize,
    /// Contexts with peers that have not yet. The longest unused makes way for a new one.
    pub unconfirmed: usize,
    /// Former contexts of which the last counter is remembered, so that their packets cannot be played again.
    pub retired: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { confirmed: 16_384, unconfirmed: 1_024, retired: 65_536 }
    }
}

/// A packet that has been opened.
#[derive(PartialEq, Eq, Debug)]
pub struct Opened<'a> {
    /// The packet, as [`crate::codec::decode`] understands it.
    pub packet: &'a mut [u8],
    /// It was sealed under the sender's introduction key, so it proves that the sender has the pre-shared key, but
    /// not when it was sent: it is to be answered, and to change nothing about a peer that is known.
    pub introduction: bool,
}

/// Where the context of a packet without trailing incarnation is found: the peer's host, and which of the processes
/// there. Not the port: an instance may receive on several.
type Name = (Gid, Tag);

/// The keys with one incarnation of one peer.
struct Context {
    peer: Incarnation,
    /// Of a confirmed context the only one that is accepted.
    address: Gid,
    sealer: Sealer,
    opener: Opener,
    hellos: IntroductionWindow,
}

impl Context {
    fn name(&self) -> Name {
        (self.address, self.peer.tag())
    }
}

/// A place for a context.
struct Slot {
    /// When it was last used, in [`Keyring::uses`].
    used: u64,
    /// A packet has been opened in it.
    confirmed: bool,
    context: Box<Context>,
}

/// The keys and counters of one device instance.
///
/// Contexts come into being by sealing to a peer and by opening what a peer sealed, one for each incarnation that is
/// spoken to. A context is confirmed when a packet has been opened in it: its key is derived from both incarnations,
/// so the peer has seen ours, and ours is new with this process.
pub struct Keyring {
    own: Incarnation,
    own_addresses: Vec<Gid>,
    psk: Psk,
    limits: Limits,
    epochs: Epochs,
    introduction: Sealer,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    confirmed: usize,
    by_peer: HashMap<Incarnation, usize>,
    by_name: HashMap<Name, usize>,
    /// The entries of the two that were last looked up: packets come and go in bursts.
    last_peer: Option<(Incarnation, usize)>,
    last_name: Option<(Name, usize)>,
    retired: Retired,
    /// Counts uses of contexts, to know the longest unused.
    uses: u64,
}

/// The counters that dropped contexts had come to.
#[derive(Default)]
struct Retired {
    /// One more than the highest counter seen from a peer, and the peer's place in `order`.
    next: HashMap<Incarnation, (u64, u64)>,
    order: BTreeMap<u64, Incarnation>,
    count: u64,
}

impl Retired {
    fn next(&self, peer: Incarnation) -> u64 {
        self.next.get(&peer).map_or(0, |(next, _)| *next)
    }

    fn remove(&mut self, peer: Incarnation) {
        if let Some((_, order)) = self.next.remove(&peer) {
            self.order.remove(&order);
        }
    }

    fn insert(&mut self, peer: Incarnation, next: u64, limit: usize) {
        self.remove(peer);
        self.count += 1;
        self.next.insert(peer, (next, self.count));
        self.order.insert(self.count, peer);
        if self.next.len() > limit
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.next.remove(&oldest);
        }
    }
}

/// The header and trailer of a sealed datagram.
struct Outside {
    header: [u8; COMMON_LEN],
    name: Name,
    dst_tag: Tag,
    counter: u64,
    /// From the trailer, where there is a hello.
    incarnation: Option<Incarnation>,
    /// Where the tag ends.
    text_end: usize,
}

impl Outside {
    fn read(from: Gid, datagram: &[u8]) -> Result<Outside, OpenError> {
        let preamble = peek(datagram).ok_or(OpenError::Truncated)?;
        if preamble.version != VERSION {
            return Err(OpenError::Version { version: preamble.version });
        }
        if !preamble.sealed {
            return Err(OpenError::NotSealed);
        }
        let mut header = [0; COMMON_LEN];
        header.copy_from_slice(&datagram[..COMMON_LEN]);
        let hello = header[1] & FLAG_HELLO != 0;
        if datagram.len() < COMMON_LEN + overhead(hello) {
            return Err(OpenError::Truncated);
        }
        let (rest, counter) = datagram.split_last_chunk().ok_or(OpenError::Truncated)?;
        let (text_end, incarnation) = if hello {
            let (rest, incarnation) = rest.split_last_chunk().ok_or(OpenError::Truncated)?;
            (rest.len(), Some(Incarnation(u64::from_be_bytes(*incarnation))))
        } else {
            (rest.len(), None)
        };
        if incarnation.is_some_and(|it| it.0 == 0 || it.tag() != preamble.src_tag) {
            return Err(OpenError::IncarnationMismatch);
        }
        Ok(Outside {
            header,
            name: (from, preamble.src_tag),
            dst_tag: preamble.dst_tag,
            counter: u64::from_be_bytes(*counter),
            incarnation,
            text_end,
        })
    }

    fn is_introduction(&self) -> bool {
        self.header[1] & FLAG_INITIAL != 0
    }
}

/// Whether kind and flags are those of a packet that may go under an introduction key.
fn introduces(header: &[u8]) -> bool {
    let kind = header[0] & 0xf;
    header[1] & FLAG_HELLO != 0 && header[1] & FLAG_ACK == 0 && (kind == KIND_NONE || kind == KIND_RESET)
}

impl Keyring {
    /// The keyring of the instance with incarnation `own`. That must be random and never have been used with `psk`
    /// before: no nonce repeats only because no incarnation does.
    pub fn new(own: Incarnation, psk: Psk, limits: Limits) -> Keyring {
        Keyring {
            own,
            own_addresses: Vec::new(),
            epochs: Epochs::default(),
            introduction: Sealer::new(Secret::introduction(own)),
            psk,
            limits,
            slots: Vec::new(),
            free: Vec::new(),
            confirmed: 0,
            by_peer: HashMap::new(),
            by_name: HashMap::new(),
            last_peer: None,
            last_name: None,
            retired: Retired::default(),
            uses: 0,
        }
    }

    /// Lets this instance talk to itself at the host `address`. From any other address its own packets are refused, so that
    /// nobody can pass for a peer by sending them back.
    pub fn allow_self(&mut self, address: Gid) {
        self.own_addresses.push(address);
    }

    /// From the next packet on every key is a new one, of an epoch that `random` decides: a copy of this process that is
    /// given another number seals nothing under a key and counter of ours. Peers need not be told, and nothing is lost.
    pub fn leap(&mut self, random: u32) {
        self.epochs.leap(random);
    }

    /// How many contexts there are, confirmed and not.
    pub fn contexts(&self) -> (usize, usize) {
        (self.confirmed, self.by_peer.len() - self.confirmed)
    }

    /// On which host `peer` is, if it has proved to be alive.
    pub fn confirmed_address(&self, peer: Incarnation) -> Option<Gid> {
        let slot = self.slots[*self.by_peer.get(&peer)?].as_ref()?;
        slot.confirmed.then_some(slot.context.address)
    }

    /// Drops the context with `peer`, if there is one. What it sent so far stays refused.
    pub fn forget(&mut self, peer: Incarnation) {
        if let Some(&at) = self.by_peer.get(&peer) {
            self.drop_slot(at);
        }
    }

    /// Seals the packet in the first `len` bytes of `buf`, for the instance at `to` with incarnation `peer`, `None`
    /// if that is not known. The sealed datagram is longer by [`overhead`]; its length is returned.
    pub fn seal(
        &mut self,
        to: InstanceAddr,
        peer: Option<Incarnation>,
        buf: &mut [u8],
        len: usize,
    ) -> Result<usize, SealError> {
        let preamble = buf.get(..len).and_then(peek).ok_or(SealError::NotAPacket)?;
        if preamble.version != VERSION || preamble.sealed || preamble.src_tag != self.own.tag() {
            return Err(SealError::NotAPacket);
        }
        let hello = buf[1] & FLAG_HELLO != 0;
        let sealed_len = len + overhead(hello);
        if buf.len() < sealed_len {
            return Err(SealError::NoRoom);
        }
        let flags = match peer {
            Some(peer) if preamble.dst_tag != peer.tag() => return Err(SealError::WrongDestination),
            None if !introduces(buf) => return Err(SealError::NotAnIntroduction),
            Some(_) => FLAG_SEALED,
            None => FLAG_SEALED | FLAG_INITIAL,
        };
        let own = self.own;
        let at = peer.map(|peer| self.slot_for(peer, to.gid));
        self.uses += 1;
        let sealer = match at.map(|at| &mut self.slots[at]) {
            Some(Some(slot)) => {
                slot.used = self.uses;
                &mut slot.context.sealer
            }
            _ => &mut self.introduction,
        };
        buf[1] |= flags;
        let (header, rest) = buf.split_at_mut(COMMON_LEN);
        let (text, trailer) = rest.split_at_mut(len - COMMON_LEN);
        let (counter, tag) = sealer.seal(&self.psk, &mut self.epochs, header, text);
        let (tag_out, trailer) = trailer.split_at_mut(TAG_LEN);
        tag_out.copy_from_slice(&tag);
        let counter_out = if hello {
            let (incarnation_out, counter_out) = trailer.split_at_mut(INCARNATION_LEN);
            incarnation_out.copy_from_slice(&own.0.to_be_bytes());
            counter_out
        } else {
            trailer
        };
        counter_out[..COUNTER_LEN].copy_from_slice(&counter.to_be_bytes());
        Ok(sealed_len)
    }

    /// Opens `datagram`, which came from host `from`, where it lies.
    pub fn open<'a>(&mut self, from: Gid, datagram: &'a mut [u8]) -> Result<Opened<'a>, OpenError> {
        let outside = Outside::read(from, datagram)?;
        if outside.incarnation == Some(self.own) && !self.own_addresses.contains(&outside.name.0) {
            return Err(OpenError::Reflected);
        }
        let text = &mut datagram[COMMON_LEN..outside.text_end];
        if outside.is_introduction() {
            self.open_introduction(&outside, text)?;
        } else {
            self.open_in_context(&outside, text)?;
        }
        datagram[1] &= !(FLAG_SEALED | FLAG_INITIAL);
        Ok(Opened {
            packet: &mut datagram[..outside.text_end - TAG_LEN],
            introduction: outside.is_introduction(),
        })
    }

    fn open_introduction(&mut self, outside: &Outside, text: &mut [u8]) -> Result<(), OpenError> {
        let Some(peer) = outside.incarnation.filter(|_| introduces(&outside.header)) else {
            return Err(OpenError::NotAnIntroduction);
        };
        if outside.dst_tag != Tag::UNKNOWN && outside.dst_tag != self.own.tag() {
            return Err(OpenError::WrongDestination);
        }
        let known = self.by_peer.get(&peer).and_then(|&at| self.slots[at].as_ref());
        if known.is_some_and(|slot| !slot.context.hellos.is_fresh(outside.counter)) {
            return Err(OpenError::Replayed);
        }
        Secret::introduction(peer)
            .open_once(&self.psk, outside.counter, &outside.header, text)
            .map_err(|_| OpenError::WrongKey)?;
        check_hello(peer, text)?;
        let at = self.slot_for(peer, outside.name.0);
        self.uses += 1;
        let slot = self.slots[at].as_mut().expect("a slot that is named is filled");
        slot.context.hellos.mark(outside.counter);
        if !slot.confirmed {
            slot.used = self.uses;
            self.move_to(at, outside.name.0);
        }
        Ok(())
    }

    fn open_in_context(&mut self, outside: &Outside, text: &mut [u8]) -> Result<(), OpenError> {
        if outside.dst_tag != self.own.tag() {
            return Err(OpenError::WrongDestination);
        }
        let known = match outside.incarnation {
            None => Some(self.find_name(&outside.name).ok_or(OpenError::NoContext)?),
            Some(peer) => self.by_peer.get(&peer).copied(),
        };
        let Some(at) = known else {
            let peer = outside.incarnation.ok_or(OpenError::NoContext)?;
            // Only a packet that opens makes a context, so that forged ones cost no memory.
            let mut context = self.new_context(peer, outside.name.0);
            context.open(&self.psk, outside, text)?;
            let at = self.insert(context);
            self.confirm(at);
            return Ok(());
        };
        self.uses += 1;
        let slot = self.slots[at].as_mut().expect("a slot that is named is filled");
        if slot.confirmed {
            if slot.context.address != outside.name.0 {
                return Err(OpenError::WrongAddress);
            }
            slot.context.open(&self.psk, outside, text)?;
            slot.used = self.uses;
        } else {
            slot.context.open(&self.psk, outside, text)?;
            self.move_to(at, outside.name.0);
            self.confirm(at);
        }
        Ok(())
    }

    #[inline]
    fn find_name(&mut self, name: &Name) -> Option<usize> {
        if let Some((last, at)) = self.last_name
            && last == *name
        {
            return Some(at);
        }
        let at = *self.by_name.get(name)?;
        self.last_name = Some((*name, at));
        Some(at)
    }

    /// The place of the context with `peer`; if there is none, of a new one, unconfirmed, with the peer at `address`.
    fn slot_for(&mut self, peer: Incarnation, address: Gid) -> usize {
        if let Some((last, at)) = self.last_peer
            && last == peer
        {
            return at;
        }
        if let Some(&at) = self.by_peer.get(&peer) {
            self.last_peer = Some((peer, at));
            return at;
        }
        if self.by_peer.len() - self.confirmed >= self.limits.unconfirmed.max(1) {
            self.drop_longest_unused(false);
        }
        self.insert(self.new_context(peer, address))
    }

    fn new_context(&self, peer: Incarnation, address: Gid) -> Box<Context> {
        Box::new(Context {
            peer,
            address,
            sealer: Sealer::new(Secret::context(self.own, peer)),
            opener: Opener::new(Secret::context(peer, self.own), self.retired.next(peer)),
            hellos: IntroductionWindow::starting_at(0),
        })
    }

    /// Gives `context` a place, where it is unconfirmed.
    fn insert(&mut self, context: Box<Context>) -> usize {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.by_peer.insert(context.peer, at);
        self.by_name.insert(context.name(), at);
        self.last_name = None;
        self.uses += 1;
        self.slots[at] = Some(Slot { used: self.uses, confirmed: false, context });
        at
    }

    /// The peer of the context at `at` is at `address`.
    fn move_to(&mut self, at: usize, address: Gid) {
        let slot = self.slots[at].as_mut().expect("a slot that is named is filled");
        if slot.context.address != address {
            self.last_name = None;
            let before = slot.context.name();
            slot.context.address = address;
            let after = slot.context.name();
            if self.by_name.get(&before) == Some(&at) {
                self.by_name.remove(&before);
            }
            self.by_name.insert(after, at);
        }
    }

    /// The context at `at` has opened its first packet.
    fn confirm(&mut self, at: usize) {
        if self.confirmed >= self.limits.confirmed.max(1) {
            self.drop_longest_unused(true);
        }
        self.uses += 1;
        let slot = self.slots[at].as_mut().expect("a slot that is named is filled");
        slot.confirmed = true;
        slot.used = self.uses;
        self.confirmed += 1;
        // The context itself knows now.
        self.retired.remove(slot.context.peer);
    }

    fn drop_longest_unused(&mut self, confirmed: bool) {
        let of_these = |slot: &&Slot| slot.confirmed == confirmed;
        let filled = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(at, slot)| Some((at, slot.as_ref().filter(of_these)?)));
        if let Some((at, _)) = filled.min_by_key(|(_, slot)| slot.used) {
            self.drop_slot(at);
        }
    }

    /// Drops a context, but for what is needed to refuse its packets if they are played again.
    fn drop_slot(&mut self, at: usize) {
        let Some(Slot { confirmed, context, .. }) = self.slots[at].take() else {
            return;
        };
        (self.last_peer, self.last_name) = (None, None);
        self.free.push(at);
        self.by_peer.remove(&context.peer);
        if self.by_name.get(&context.name()) == Some(&at) {
            self.by_name.remove(&context.name());
        }
        if confirmed {
            self.confirmed -= 1;
            self.retired.insert(context.peer, context.opener.next(), self.limits.retired);
        }
    }
}

impl Context {
    fn open(&mut self, psk: &Psk, outside: &Outside, text: &mut [u8]) -> Result<(), OpenError> {
        self.opener.open(psk, outside.counter, &outside.header, text)?;
        if outside.incarnation.is_some() { check_hello(self.peer, text) } else { Ok(()) }
    }
}

/// The hello comes first in `text`, and begins with the incarnation.
fn check_hello(peer: Incarnation, text: &[u8]) -> Result<(), OpenError> {
    if text.len() < HELLO_LEN + TAG_LEN {
        return Err(OpenError::Truncated);
    }
    if text[..INCARNATION_LEN] == peer.0.to_be_bytes() { Ok(()) } else { Err(OpenError::IncarnationMismatch) }
}
