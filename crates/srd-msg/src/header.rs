//! What messages say to the layer at the other side, and the bytes of it. `docs/MESSAGES.md` draws them.
//!
//! Every message begins with the same 24 bytes ([`Common`]). Those that take part in the order between two endpoints
//! go on with their number in it. All fields are little-endian.
// What comes from peers goes through here: nothing of it may bring the process down.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

use crate::api::{Counted, IOV_LIMIT};
use arrayvec::ArrayVec;

/// What a message is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum MessageKind {
    /// A message of the program, or a part of one. Ordered.
    Message = 1,
    /// A write that the layer over there carries out. Ordered.
    Put = 2,
    /// An atomic operation. Ordered.
    Atomic = 3,
    /// Of writes that are done their completion data, and what of that and of reads is to be counted. Ordered.
    Notice = 4,
    /// Who I am, and how much may come.
    Hello = 5,
    /// What became of an operation of yours.
    Answer = 6,
    /// Send so many bytes of that message.
    Grant = 7,
    /// Bytes that were granted.
    Granted = 8,
    /// What is behind that key?
    KeyQuery = 9,
    /// That is.
    KeyAnswer = 10,
    /// Are you there? Nothing is to be done.
    Ping = 11,
    /// That session is over, or was with somebody else: begin anew.
    Stale = 12,
    /// The message with that number does not come, or not all of it. Ordered.
    Void = 13,
}

impl MessageKind {
    #[inline]
    fn from_u8(n: u8) -> Option<MessageKind> {
        use MessageKind::*;
        Some(match n {
            1 => Message,
            2 => Put,
            3 => Atomic,
            4 => Notice,
            5 => Hello,
            6 => Answer,
            7 => Grant,
            8 => Granted,
            9 => KeyQuery,
            10 => KeyAnswer,
            11 => Ping,
            12 => Stale,
            13 => Void,
            _ => return None,
        })
    }
}

/// Version of all of this; in the upper half of the first byte.
const VERSION: u8 = 2 << 4;

/// Flags of a message.
pub(crate) mod flag {
    /// It has a tag.
    pub const TAGGED: u8 = 1 << 0;
    /// It has completion data.
    pub const DATA: u8 = 1 << 1;
    /// Its sender wants to know when it is in the receiver's buffer.
    pub const RECEIPT: u8 = 1 << 2;
    /// It is one of several parts.
    pub const PART: u8 = 1 << 3;
    /// What does not come by itself is to be fetched.
    pub const RENDEZVOUS: u8 = 1 << 4;
    /// The sender's address shows no key.
    pub const WELL_KNOWN: u8 = 1 << 5;
    pub const ALL: u8 = TAGGED | DATA | RECEIPT | PART | RENDEZVOUS | WELL_KNOWN;
}

/// The first 24 bytes, without what the kind of message says itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Common {
    /// The sender's identity, which is never 0, and whether its address shows no key.
    pub from: u32,
    pub well_known: bool,
    /// The identity of the endpoint that the message is meant for; 0: that of a well-known one which has said nothing yet.
    pub toward: u32,
    /// The sender's session with this peer.
    pub session: u32,
    /// Bytes of the receiver's that the sender has consumed, modulo 2^32.
    pub consumed: u32,
    /// The identity of the last endpoint at the receiver's address whose session was lost with one of the sender's; 0: none.
    pub former: u32,
    /// Ordered messages: how many numbers before this one the oldest is that the device has not reported delivered; at most
    /// [`FAR_BACK`].
    pub back: u16,
}

/// So far back, or further.
pub(crate) const FAR_BACK: u16 = u16::MAX;

/// Bytes of [`Common`].
pub(crate) const COMMON: usize = 24;

/// The longest header of any message: a rendezvous with tag, data and all its sources.
pub(crate) const LONGEST: usize = COMMON + 8 + 8 + 8 + 16 + 8 + IOV_LIMIT * 24;

/// That of a message in one piece.
pub(crate) const LONGEST_WHOLE: usize = COMMON + 8 + 8 + 8;

/// The longest message that there can be: addresses of programs have 57 bits at most, and a total that much smaller than
/// 2^64 can be reckoned with.
pub(crate) const MOST_TOTAL: u64 = 1 << 57;

/// A stretch of the sender's memory that may be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    pub addr: u64,
    pub len: u64,
    pub key: u32,
}

/// A message of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub number: u32,
    /// The sender's name of the operation.
    pub op: u32,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub receipt: bool,
    /// Of a message in parts. Apart, since most are in one piece, and are moved.
    pub part: Option<Box<Part>>,
}

/// Where a part belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// Length of the message.
    pub total: u64,
    /// Where this part begins.
    pub offset: u32,
    /// How much comes by itself.
    pub ahead: u32,
    /// The rest is to be fetched: from these, or if there are none by grants.
    pub rendezvous: Option<Sources>,
}

pub(crate) type Sources = ArrayVec<Source, IOV_LIMIT>;

/// A write by message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Put {
    pub number: u32,
    pub op: u32,
    pub key: u64,
    pub addr: u64,
    pub data: Option<u64>,
}

/// An atomic operation. Its targets follow, then operands, then values to compare.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Atomic {
    pub number: u32,
    pub op: u32,
    pub operation: u8,
    pub datatype: u8,
    pub form: u8,
    pub targets: ArrayVec<Target, IOV_LIMIT>,
}

/// What an atomic operation works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub addr: u64,
    pub key: u64,
    pub len: u32,
}

/// What has been done to the receiver's memory without its layer, and what is to be told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Notice {
    pub number: u32,
    pub read: bool,
    pub data: Option<u64>,
    pub len: u64,
    /// The key it was done by, if it is to be counted.
    pub key: Option<u64>,
    /// It has been counted at the endpoint: here only the region of another key that it was done by.
    pub again: bool,
}

/// Bits in a notice of what it says.
mod notice {
    pub const NO_DATA: u8 = 1 << 0;
    pub const READ: u8 = 1 << 1;
    pub const AGAIN: u8 = 1 << 2;
    pub const KEY: u8 = 1 << 3;
    pub const ALL: u8 = NO_DATA | READ | AGAIN | KEY;
}

/// Bits of [`Counted`] in an answer about a key.
const COUNTS_WRITES: u8 = 1 << 0;
const COUNTS_READS: u8 = 1 << 1;

/// Everything that is said, but for payload. A Stale names a session: whose it is, which the header's `toward` says, and its
/// count, which is all that one that has come holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    Message(Message),
    Put(Put),
    Atomic(Box<Atomic>),
    Notice(Notice),
    Hello { window: u32, session: u32, longest: Option<u32> },
    Answer { op: u32, status: u32 },
    Grant { op: u32, incoming: u32, offset: u64, len: u64 },
    Granted { incoming: u32, offset: u64 },
    KeyQuery { query: u32, key: u64 },
    KeyAnswer { query: u32, found: bool, counted: Counted, device_key: u32, key: u64 },
    Ping,
    Stale { session: u64 },
    Void { number: u32 },
}

impl Body {
    fn kind(&self) -> MessageKind {
        match self {
            Body::Message(_) => MessageKind::Message,
            Body::Put(_) => MessageKind::Put,
            Body::Atomic(_) => MessageKind::Atomic,
            Body::Notice(_) => MessageKind::Notice,
            Body::Hello { .. } => MessageKind::Hello,
            Body::Answer { .. } => MessageKind::Answer,
            Body::Grant { .. } => MessageKind::Grant,
            Body::Granted { .. } => MessageKind::Granted,
            Body::KeyQuery { .. } => MessageKind::KeyQuery,
            Body::KeyAnswer { .. } => MessageKind::KeyAnswer,
            Body::Ping => MessageKind::Ping,
            Body::Stale { .. } => MessageKind::Stale,
            Body::Void { .. } => MessageKind::Void,
        }
    }

    /// Whether it says something of what the receiver has sent.
    pub fn is_answer(&self) -> bool {
        let told = matches!(
            self,
            Body::Hello { .. } | Body::Answer { .. } | Body::KeyAnswer { .. } | Body::Stale { .. }
        );
        told || matches!(self, Body::Grant { .. } | Body::Granted { .. })
    }

    /// The number in the order of messages.
    pub fn number(&self) -> Option<u32> {
        match self {
            Body::Message(message) => Some(message.number),
            Body::Put(put) => Some(put.number),
            Body::Atomic(atomic) => Some(atomic.number),
            Body::Notice(notice) => Some(notice.number),
            Body::Void { number } => Some(*number),
            _ => None,
        }
    }

    fn flags(&self) -> u8 {
        match self {
            Body::Message(message) => message.flags(),
            Body::Put(put) if put.data.is_some() => flag::DATA,
            Body::Hello { longest: Some(_), .. } => flag::DATA,
            _ => 0,
        }
    }
}

impl Message {
    #[inline]
    fn flags(&self) -> u8 {
        let mut flags = 0;
        for (set, bit) in [
            (self.tag.is_some(), flag::TAGGED),
            (self.data.is_some(), flag::DATA),
            (self.receipt, flag::RECEIPT),
            (self.part.is_some(), flag::PART),
            (self.part.as_ref().is_some_and(|part| part.rendezvous.is_some()), flag::RENDEZVOUS),
        ] {
            flags |= if set { bit } else { 0 };
        }
        flags
    }
}

/// Writes a header from the front.
struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    /// What is written is ours, and there is room for the longest.
    #[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.at..self.at + N].copy_from_slice(&bytes);
        self.at += N;
    }

    #[inline]
    fn u32(&mut self, n: u32) {
        self.put(n.to_le_bytes());
    }

    #[inline]
    fn u64(&mut self, n: u64) {
        self.put(n.to_le_bytes());
    }
}

/// Writes a message's header to the front of `bytes`, which has room for [`LONGEST`]. Returns its length.
pub(crate) fn encode(common: &Common, body: &Body, bytes: &mut [u8]) -> usize {
    let mut to = Writer { bytes, at: 0 };
    common.encode(body.kind(), body.flags(), &mut to);
    match body {
        Body::Message(message) => message.encode(&mut to),
        Body::Put(put) => {
            to.u32(put.number);
            to.u32(put.op);
            to.u64(put.key);
            to.u64(put.addr);
            if let Some(data) = put.data {
                to.u64(data);
            }
        }
        Body::Atomic(atomic) => {
            to.u32(atomic.number);
            to.u32(atomic.op);
            to.put([atomic.operation, atomic.datatype, atomic.form, atomic.targets.len() as u8]);
            to.u32(0);
            for target in &atomic.targets {
                to.u64(target.addr);
                to.u64(target.key);
                to.u32(target.len);
                to.u32(0);
            }
        }
        &Body::Notice(told) => {
            let mut what = 0;
            for (set, bit) in [
                (told.data.is_none(), notice::NO_DATA),
                (told.read, notice::READ),
                (told.again, notice::AGAIN),
                (told.key.is_some(), notice::KEY),
            ] {
                what |= if set { bit } else { 0 };
            }
            to.u32(told.number);
            to.put([what, 0, 0, 0]);
            to.u64(told.data.unwrap_or(0));
            to.u64(told.len);
            if let Some(key) = told.key {
                to.u64(key);
            }
        }
        &Body::Hello { window, session, longest } => {
            to.u32(window);
            to.u32(session);
            if let Some(longest) = longest {
                to.u32(longest);
            }
        }
        &Body::Answer { op, status } => {
            to.u32(op);
            to.u32(status);
        }
        &Body::Grant { op, incoming, offset, len } => {
            to.u32(op);
            to.u32(incoming);
            to.u64(offset);
            to.u64(len);
        }
        &Body::Granted { incoming, offset } => {
            to.u32(incoming);
            to.u32(0);
            to.u64(offset);
        }
        &Body::KeyQuery { query, key } => {
            to.u32(query);
            to.u32(0);
            to.u64(key);
        }
        &Body::KeyAnswer { query, found, counted, device_key, key } => {
            to.u32(query);
            let writes = if counted.writes { COUNTS_WRITES } else { 0 };
            to.put([found as u8, writes | if counted.reads { COUNTS_READS } else { 0 }, 0, 0]);
            to.u32(device_key);
            to.u32(0);
            to.u64(key);
        }
        Body::Ping => {}
        &Body::Stale { session } => to.u32(session as u32),
        &Body::Void { number } => to.u32(number),
    }
    to.at
}

/// The same of a message of the program in one piece, for which there has to be room for [`LONGEST_WHOLE`] only.
#[inline]
pub(crate) fn encode_message(common: &Common, message: &Message, bytes: &mut [u8; LONGEST_WHOLE]) -> usize {
    let mut to = Writer { bytes, at: 0 };
    common.encode(MessageKind::Message, message.flags(), &mut to);
    message.encode(&mut to);
    to.at
}

impl Common {
    #[inline]
    fn encode(&self, kind: MessageKind, flags: u8, to: &mut Writer<'_>) {
        let [low, high] = self.back.to_le_bytes();
        let well_known = if self.well_known { flag::WELL_KNOWN } else { 0 };
        to.put([kind as u8 | VERSION, flags | well_known, low, high]);
        to.u32(self.from);
        to.u32(self.toward);
        to.u32(self.session);
        to.u32(self.consumed);
        to.u32(self.former);
    }
}

impl Message {
    #[inline]
    fn encode(&self, to: &mut Writer<'_>) {
        to.u32(self.number);
        to.u32(self.op);
        if let Some(tag) = self.tag {
            to.u64(tag);
        }
        if let Some(data) = self.data {
            to.u64(data);
        }
        let Some(part) = &self.part else { return };
        to.u64(part.total);
        to.u32(part.offset);
        to.u32(part.ahead);
        let Some(sources) = &part.rendezvous else { return };
        to.u32(sources.len() as u32);
        to.u32(0);
        for source in sources {
            to.u64(source.addr);
            to.u64(source.len);
            to.u32(source.key);
            to.u32(0);
        }
    }
}

/// Reads a header from the front.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*head)
    }

    #[inline]
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    #[inline]
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn skip(&mut self, n: usize) -> Option<()> {
        self.bytes = self.bytes.get(n..)?;
        Some(())
    }
}

/// The number of a message that takes part in the order, out of its header.
#[inline]
pub(crate) fn number_in(header: &[u8]) -> Option<u32> {
    let kind = header.first()? & 0x0F;
    let ordered = kind <= MessageKind::Notice as u8 || kind == MessageKind::Void as u8;
    let number = header.get(COMMON..)?.first_chunk().filter(|_| ordered)?;
    Some(u32::from_le_bytes(*number))
}

/// Whether it does no harm if a message comes once more: there is no counting what comes of it.
pub(crate) fn may_come_twice(header: &[u8]) -> bool {
    let counted = [MessageKind::Grant, MessageKind::Granted].map(|kind| kind as u8);
    matches!(header, [kind, flags, ..] if flags & flag::PART == 0 && !counted.contains(&(kind & 0x0F)))
}

/// Reads a message's header. Returns it and its length, after which the payload comes; `None` if it is none of ours.
#[inline]
pub(crate) fn decode(bytes: &[u8]) -> Option<(Common, Body, usize)> {
    let (&head, bytes_left) = bytes.split_first_chunk::<COMMON>()?;
    let [kind, flags, low, high, head @ ..] = head;
    if kind & 0xF0 != VERSION || flags & !flag::ALL != 0 {
        return None;
    }
    let kind = MessageKind::from_u8(kind & 0x0F)?;
    let [a, b, c, d, head @ ..] = head;
    let identity = u32::from_le_bytes([a, b, c, d]);
    let [a, b, c, d, head @ ..] = head;
    let toward = u32::from_le_bytes([a, b, c, d]);
    let [a, b, c, d, head @ ..] = head;
    let session = u32::from_le_bytes([a, b, c, d]);
    let [a, b, c, d, head @ ..] = head;
    let consumed = u32::from_le_bytes([a, b, c, d]);
    let former = u32::from_le_bytes(head);
    if identity == 0 || session == 0 {
        return None;
    }
    let back = u16::from_le_bytes([low, high]);
    let well_known = flags & flag::WELL_KNOWN != 0;
    let common = Common { from: identity, well_known, toward, session, consumed, former, back };
    let mut from = Reader { bytes: bytes_left };
    let body = match kind {
        MessageKind::Message => Body::Message(Message::decode(flags, &mut from)?),
        _ => decode_other(kind, flags, &mut from)?,
    };
    Some((common, body, bytes.len().saturating_sub(from.bytes.len())))
}

/// The same of a message of the program in one piece; `None`: it is another one, or none of ours.
#[inline]
pub(crate) fn decode_whole(bytes: &[u8]) -> Option<(Common, Message, usize)> {
    const HEAD: usize = COMMON + 8;
    let head = bytes.first_chunk::<HEAD>()?;
    let word = |at: usize| head.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word));
    let [kind, flags, low, high, ..] = *head;
    let others = flag::ALL ^ (flag::TAGGED | flag::DATA | flag::RECEIPT | flag::WELL_KNOWN);
    if kind != MessageKind::Message as u8 | VERSION || flags & (others | !flag::ALL) != 0 {
        return None;
    }
    let common = Common {
        from: word(4)?,
        well_known: flags & flag::WELL_KNOWN != 0,
        toward: word(8)?,
        session: word(12)?,
        consumed: word(16)?,
        former: word(20)?,
        back: u16::from_le_bytes([low, high]),
    };
    let mut from = Reader { bytes: bytes.get(HEAD..)? };
    let tag = if flags & flag::TAGGED != 0 { Some(from.u64()?) } else { None };
    let data = if flags & flag::DATA != 0 { Some(from.u64()?) } else { None };
    let receipt = flags & flag::RECEIPT != 0;
    let message = Message { number: word(24)?, op: word(28)?, tag, data, receipt, part: None };
    let length = bytes.len().saturating_sub(from.bytes.len());
    (common.from != 0 && common.session != 0).then_some((common, message, length))
}

/// What is no message of the program: apart, since those are most.
#[inline(never)]
fn decode_other(kind: MessageKind, flags: u8, from: &mut Reader<'_>) -> Option<Body> {
    Some(match kind {
        MessageKind::Message => return None,
        MessageKind::Put => Body::Put(Put {
            number: from.u32()?,
            op: from.u32()?,
            key: from.u64()?,
            addr: from.u64()?,
            data: if flags & flag::DATA != 0 { Some(from.u64()?) } else { None },
        }),
        MessageKind::Atomic => Body::Atomic(Box::new(Atomic::decode(from)?)),
        MessageKind::Notice => Body::Notice(Notice::decode(from)?),
        MessageKind::Hello => Body::Hello {
            window: from.u32()?,
            session: from.u32()?,
            longest: if flags & flag::DATA != 0 { Some(from.u32()?) } else { None },
        },
        MessageKind::Answer => Body::Answer { op: from.u32()?, status: from.u32()? },
        MessageKind::Grant => {
            Body::Grant { op: from.u32()?, incoming: from.u32()?, offset: from.u64()?, len: from.u64()? }
        }
        MessageKind::Granted => {
            let incoming = from.u32()?;
            from.skip(4)?;
            Body::Granted { incoming, offset: from.u64()? }
        }
        MessageKind::KeyQuery => {
            let query = from.u32()?;
            from.skip(4)?;
            Body::KeyQuery { query, key: from.u64()? }
        }
        MessageKind::KeyAnswer => {
            let query = from.u32()?;
            let [found, counts, ..] = from.take::<4>()?;
            let counted = Counted { reads: counts & COUNTS_READS != 0, writes: counts & COUNTS_WRITES != 0 };
            let device_key = from.u32()?;
            from.skip(4)?;
            Body::KeyAnswer { query, found: found != 0, counted, device_key, key: from.u64()? }
        }
        MessageKind::Ping => Body::Ping,
        MessageKind::Stale => Body::Stale { session: from.u32()?.into() },
        MessageKind::Void => Body::Void { number: from.u32()? },
    })
}

impl Message {
    #[inline]
    fn decode(flags: u8, from: &mut Reader<'_>) -> Option<Message> {
        let [a, b, c, d, op @ ..] = from.take::<8>()?;
        let (number, op) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(op));
        let tag = if flags & flag::TAGGED != 0 { Some(from.u64()?) } else { None };
        let data = if flags & flag::DATA != 0 { Some(from.u64()?) } else { None };
        let part = if flags & flag::PART != 0 { Some(Box::new(Part::decode(flags, from)?)) } else { None };
        Some(Message { number, op, tag, data, receipt: flags & flag::RECEIPT != 0, part })
    }
}

impl Notice {
    fn decode(from: &mut Reader<'_>) -> Option<Notice> {
        let number = from.u32()?;
        let [what, ..] = from.take::<4>()?;
        let (data, len) = (from.u64()?, from.u64()?);
        let data = (what & notice::NO_DATA == 0).then_some(data);
        let key = if what & notice::KEY != 0 { Some(from.u64()?) } else { None };
        let (read, again) = (what & notice::READ != 0, what & notice::AGAIN != 0);
        // One that says nothing, or brings data with what brings none, nobody sends.
        if what & !notice::ALL != 0 || data.is_none() && key.is_none() || data.is_some() && (read || again) {
            return None;
        }
        Some(Notice { number, read, data, len, key, again })
    }
}

impl Part {
    fn decode(flags: u8, from: &mut Reader<'_>) -> Option<Part> {
        let (total, offset, ahead) = (from.u64()?, from.u32()?, from.u32()?);
        let mut rendezvous = None;
        if flags & flag::RENDEZVOUS != 0 {
            let count = from.u32()? as usize;
            from.skip(4)?;
            if count > IOV_LIMIT {
                return None;
            }
            let mut sources = Sources::new();
            let mut length = 0u64;
            for _ in 0..count {
                let source = Source { addr: from.u64()?, len: from.u64()?, key: from.u32()? };
                from.skip(4)?;
                source.addr.checked_add(source.len)?;
                length = length.checked_add(source.len)?;
                sources.push(source);
            }
            if count > 0 && length != total {
                return None;
            }
            rendezvous = Some(sources);
        }
        let pushed_all = rendezvous.is_some() || ahead as u64 == total;
        (pushed_all && total <= MOST_TOTAL && ahead as u64 <= total && offset <= ahead).then_some(Part {
            total,
            offset,
            ahead,
            rendezvous,
        })
    }
}

impl Atomic {
    fn decode(from: &mut Reader<'_>) -> Option<Atomic> {
        let (number, op) = (from.u32()?, from.u32()?);
        let [operation, datatype, form, count] = from.take()?;
        from.skip(4)?;
        if count as usize > IOV_LIMIT {
            return None;
        }
        let mut targets = ArrayVec::new();
        for _ in 0..count {
            targets.push(Target { addr: from.u64()?, key: from.u64()?, len: from.u32()? });
            from.skip(4)?;
        }
        Some(Atomic { number, op, operation, datatype, form, targets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn body() -> impl Strategy<Value = Body> {
        let source = (0u64..1 << 63, 0u64..1 << 40, any::<u32>()).prop_map(|(addr, len, key)| Source {
            addr,
            len,
            key,
        });
        let rendezvous = proptest::option::of(proptest::collection::vec(source, 0..=IOV_LIMIT));
        let part = (0u64..1 << 40, any::<u32>(), any::<u32>(), rendezvous).prop_map(
            |(total, ahead, offset, rendezvous)| {
                let sources: Option<Sources> = rendezvous.map(|sources| sources.into_iter().collect());
                let total = match &sources {
                    Some(sources) if !sources.is_empty() => sources.iter().map(|source| source.len).sum(),
                    Some(_) => total,
                    None => total % (1 << 32),
                };
                let ahead = match sources {
                    Some(_) => (ahead as u64).min(total) as u32,
                    None => total as u32,
                };
                Box::new(Part { total, offset: offset.min(ahead), ahead, rendezvous: sources })
            },
        );
        let message = (
            any::<u32>(),
            any::<u32>(),
            any::<Option<u64>>(),
            any::<Option<u64>>(),
            any::<bool>(),
            proptest::option::of(part),
        )
            .prop_map(|(number, op, tag, data, receipt, part)| {
                Body::Message(Message { number, op, tag, data, receipt, part })
            });
        let target =
            (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(addr, key, len)| Target { addr, key, len });
        let targets = proptest::collection::vec(target, 0..=IOV_LIMIT);
        let atomic = (any::<u32>(), any::<u32>(), any::<[u8; 3]>(), targets).prop_map(
            |(number, op, [operation, datatype, form], targets)| {
                let targets = targets.into_iter().collect();
                Body::Atomic(Box::new(Atomic { number, op, operation, datatype, form, targets }))
            },
        );
        prop_oneof![
            message,
            atomic,
            (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<Option<u64>>())
                .prop_map(|(number, op, key, addr, data)| Body::Put(Put { number, op, key, addr, data })),
            (any::<u32>(), any::<u64>(), any::<u64>(), any::<[bool; 2]>(), any::<Option<u64>>()).prop_map(
                |(number, data, len, [read, again], key)| {
                    let data = (!(read || again) || key.is_none()).then_some(data);
                    let bare = data.is_none();
                    let (read, again) = (read && bare, again && bare);
                    Body::Notice(Notice { number, read, data, len, key, again })
                }
            ),
            any::<(u32, u32, Option<u32>)>().prop_map(|(window, session, longest)| Body::Hello {
                window,
                session,
                longest
            }),
            (any::<u32>(), any::<u32>()).prop_map(|(op, status)| Body::Answer { op, status }),
            (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>())
                .prop_map(|(op, incoming, offset, len)| Body::Grant { op, incoming, offset, len }),
            (any::<u32>(), any::<u64>()).prop_map(|(incoming, offset)| Body::Granted { incoming, offset }),
            (any::<u32>(), any::<u64>()).prop_map(|(query, key)| Body::KeyQuery { query, key }),
            (any::<u32>(), any::<[bool; 3]>(), any::<u32>(), any::<u64>()).prop_map(
                |(query, [found, reads, writes], device_key, key)| {
                    let counted = Counted { reads, writes };
                    Body::KeyAnswer { query, found, counted, device_key, key }
                }
            ),
            Just(Body::Ping),
            any::<u32>().prop_map(|session| Body::Stale { session: session.into() }),
            any::<u32>().prop_map(|number| Body::Void { number }),
        ]
    }

    fn common() -> impl Strategy<Value = Common> {
        (any::<[u32; 5]>(), any::<bool>(), any::<u16>()).prop_map(
            |([from, toward, session, consumed, former], well_known, back)| Common {
                from: from.max(1),
                well_known,
                toward,
                session: session.max(1),
                consumed,
                former,
                back,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(body in body(), common in common(), payload in 0usize..64) {
            let mut bytes = [0xA5; LONGEST + 64];
            let len = encode(&common, &body, &mut bytes);
            prop_assert!(len <= LONGEST);
            prop_assert_eq!(number_in(&bytes), body.number());
            let whole = match &body {
                Body::Message(message) if message.part.is_none() => Some((common, message.clone(), len)),
                _ => None,
            };
            prop_assert_eq!(decode_whole(&bytes[..len + payload]), whole.clone());
            if let Some((_, message, _)) = whole {
                let mut alone = [0; LONGEST_WHOLE];
                prop_assert_eq!(encode_message(&common, &message, &mut alone), len);
                prop_assert_eq!(&alone[..len], &bytes[..len]);
            }
            prop_assert_eq!(decode(&bytes[..len + payload]), Some((common, body, len)));
        }

        #[test]
        fn a_header_cut_short_is_none(
            body in body(),
            common in common(),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = [0; LONGEST];
            let len = encode(&common, &body, &mut bytes);
            prop_assert_eq!(decode(&bytes[..cut.index(len)]), None);
            prop_assert_eq!(decode_whole(&bytes[..cut.index(len)]), None);
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            message in any::<bool>(),
        ) {
            if message && let Some(kind) = bytes.first_mut() {
                *kind = MessageKind::Message as u8 | VERSION;
            }
            if let Some((common, message, header)) = decode_whole(&bytes) {
                prop_assert_eq!(decode(&bytes), Some((common, Body::Message(message), header)));
            }
            if let Some((_, _, header)) = decode(&bytes) {
                prop_assert!(header <= bytes.len());
            }
        }
    }
}
