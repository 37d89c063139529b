//! What an endpoint knows of a peer: the two sessions between them, the order of messages, and how much may come.
//!
//! A session is one direction of the traffic, from the first message on. It begins with number 0, is named by its sender's
//! identity and a count, and ends with the device's context below it, on both sides: what was acknowledged of it has come
//! then, everything else has failed, and the next message begins another.
//!
//! An endpoint whose address holds its key is one peer for ever, and its successor at the same place is another. A
//! well-known one has no key in its address, so that a peer may turn out to be another endpoint than before: then what was
//! under way with the old one is lost.

use crate::api::{Config, Counted, NO_LABEL, PeerAddr};
use crate::buffers::Buffer;
use crate::header::{Body, FAR_BACK};
use crate::lane::Lane;
use crate::matching::FastMap;
use srd_device::AhNumber;
use srd_wire::{KeyedHash, MrKey, Qkey, Status, Time};
use std::collections::VecDeque;

/// The key of well-known endpoints' queue pairs, which everybody knows.
const WELL_KNOWN_QKEY: Qkey = Qkey(0x5352_446D);

/// The longest message of EFA's SRD, which every peer takes in one piece; and of writes and atomic operations by message.
pub(crate) const MOST_SHORT: u32 = 8832;

/// Bytes that may be sent to a peer that has not said anything yet.
pub(crate) const FIRST_WINDOW: u32 = 64 << 10;

/// What a message costs of the window beside its bytes: that many messages without any must not be for nothing.
pub(crate) const MESSAGE_COST: u32 = 64;

/// A message that came before its turn.
#[derive(Debug)]
pub(crate) enum Early {
    /// All of it, with its payload.
    Whole { body: Body, payload: Option<Buffer>, len: u32 },
    /// Parts of it have come; they are collected there.
    Parts(u32),
}

/// What a peer has said of a key.
#[derive(Clone, Copy)]
pub(crate) struct KnownKey {
    /// The device's key behind it.
    pub device_key: MrKey,
    /// What the peer counts of what is done by it.
    pub counted: Counted,
}

/// See the module.
pub(crate) struct Peer {
    pub addr: PeerAddr,
    /// The way to it, if it is near.
    pub lane: Option<Box<dyn Lane>>,
    /// The longest message that it takes.
    pub longest_near: u64,
    /// Bytes that have come from it without the network.
    pub near_bytes: u64,
    pub ah: AhNumber,
    pub label: u64,
    /// The program has taken it out of its address vector.
    pub forgotten: bool,
    /// The program has named it: it is no stranger.
    pub named: bool,
    /// It may have forged its address, as far as is known.
    pub unproven: bool,

    /// Our session with it: how many there were, this one included.
    pub session: u32,
    /// The identity of the last endpoint there whose session was lost with one of ours; 0: none.
    pub former: u32,
    /// The identity of its endpoint; 0 while a well-known one has said nothing that can be believed.
    pub identity: u32,
    /// Something has come from it in this session, and by a lane an answer: it is there, and knows us.
    pub spoken: bool,
    /// It has said Hello in this session of ours: what comes of it there stays, also when the session ends.
    pub accepted: bool,
    /// Its first context has ended, and it goes on with what is now there.
    pub moved: bool,
    /// Something has been sent in this session, to which it will say who it is.
    pub introduced: bool,
    /// Number of the next ordered message.
    pub next_number: u32,
    /// Number of the oldest message of which the device has not reported all parts delivered, and how many parts of it
    /// and of each after it are missing.
    floor: u32,
    undelivered: VecDeque<u16>,
    /// Bytes sent for which nobody may be waiting, and how many of them it has consumed; modulo 2^32.
    pub sent_bytes: u32,
    pub consumed_there: u32,
    /// How many more bytes it takes than it has consumed.
    pub window: u32,
    /// The longest message that it takes in one piece, header included.
    pub longest: u32,
    /// Bytes of writes and atomic operations by message that it has not answered.
    pub unanswered: u32,
    /// Operations that are not complete.
    pub outstanding: u32,
    /// Pieces of work for it in the book, and those of them that only answer it.
    pub in_device: u32,
    pub replies: u32,
    /// Work that the device had no room for.
    pub backlog: VecDeque<u32>,
    /// How many ends of contexts with it the device has told of that have not had their turn. Until then nothing is sent.
    pub ending: u32,
    /// Messages that were lost with those contexts, and may go again.
    pub aborted: Vec<(u32, Status)>,
    /// Messages of this session have been lost with a context.
    pub gaps: bool,
    /// Operations that wait to know it, or what is behind a key.
    pub parked: Vec<u32>,
    /// Operations that are not over before it has accepted the session.
    pub unaccepted: Vec<u32>,
    /// What is behind keys of its program's.
    pub keys: FastMap<u64, KnownKey>,

    /// Its session with us, by [`session_name`]; 0: none.
    pub their_session: u64,
    /// A session of its that we have ended.
    ended_session: u64,
    /// It has been told who we are, in this session of its.
    pub greeted: bool,
    /// The last session of its of which messages may have completed.
    pub welcomed: u64,
    /// `ended_session` ended with a context, and not because the peer broke the rules or another endpoint is there.
    pub may_resume: bool,
    /// Messages of its session have come by its lane: all that are still to come will.
    pub theirs_near: bool,
    /// Those of its session that it sent over the network and that did not come never will.
    pub theirs_gaps: bool,
    /// Number of the message whose turn it is.
    pub expected: u32,
    /// Those behind it that have come, by number.
    pub early: FastMap<u32, Early>,
    /// Messages of which parts are missing, by number.
    pub assemblies: FastMap<u32, u32>,
    /// Bytes of its that we have consumed, and how many we have told it of.
    pub consumed: u32,
    pub advertised: u32,
    /// How many more it may send than we have consumed, as it knows; and the most that it was told in this session.
    pub window_told: u32,
    pub window_most: u32,
    /// Bytes of its messages that are not consumed, each with [`MESSAGE_COST`]: of its session, and of those that have
    /// ended.
    pub kept: u32,
    pub left: u32,
    /// Bytes of its writes and atomic operations that came before their turn.
    pub early_bytes: u32,
    /// Memory that is in use for all that.
    pub held: u32,

    /// Things that it owes us.
    pub owed: u32,
    /// Receives that wait for messages of this peer and no other.
    pub awaited: u32,
    /// It is asked now and then whether it is there; and it is just being asked.
    pub watched: bool,
    pub asked: bool,
    pub heard: Time,
}

impl Peer {
    pub fn new(addr: PeerAddr, ah: AhNumber, hash: KeyedHash) -> Peer {
        Peer {
            addr,
            lane: None,
            longest_near: 0,
            near_bytes: 0,
            ah,
            label: NO_LABEL,
            forgotten: false,
            named: false,
            unproven: true,
            session: 1,
            former: 0,
            identity: addr.key,
            spoken: false,
            accepted: false,
            moved: false,
            introduced: false,
            next_number: 0,
            floor: 0,
            undelivered: VecDeque::new(),
            sent_bytes: 0,
            consumed_there: 0,
            window: FIRST_WINDOW,
            longest: MOST_SHORT,
            unanswered: 0,
            outstanding: 0,
            in_device: 0,
            replies: 0,
            backlog: VecDeque::new(),
            ending: 0,
            aborted: Vec::new(),
            gaps: false,
            parked: Vec::new(),
            unaccepted: Vec::new(),
            keys: FastMap::with_hasher(hash),
            their_session: 0,
            ended_session: 0,
            greeted: false,
            welcomed: 0,
            may_resume: false,
            theirs_near: false,
            theirs_gaps: false,
            expected: 0,
            early: FastMap::with_hasher(hash),
            assemblies: FastMap::with_hasher(hash),
            consumed: 0,
            advertised: 0,
            window_told: FIRST_WINDOW,
            window_most: FIRST_WINDOW,
            kept: 0,
            left: 0,
            early_bytes: 0,
            held: 0,
            owed: 0,
            awaited: 0,
            watched: false,
            asked: false,
            heard: Time(0),
        }
    }

    /// How many bytes may be sent for which nobody may be waiting.
    #[inline]
    pub fn credit(&self) -> u32 {
        self.window.saturating_sub(self.sent_bytes.wrapping_sub(self.consumed_there))
    }

    /// Whether the program waits for messages of this peer alone. One that has never sent anything need not have begun.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.awaited > 0 && self.has_begun()
    }

    /// Whether the peer has sent something, in this session or an earlier one. Who has none of its own, but an address
    /// that others may have after it, need not be there yet.
    #[inline]
    pub fn has_begun(&self) -> bool {
        self.their_session != 0 || self.addr.key != 0 && self.ended_session != 0
    }

    #[inline]
    pub fn take_number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        number
    }

    /// How many numbers have been given since that of the oldest message that may not be delivered.
    #[inline]
    pub fn ahead(&self) -> u32 {
        if self.undelivered.is_empty() { 0 } else { self.next_number.wrapping_sub(self.floor) }
    }

    /// A part of a message is given to the device.
    #[inline]
    pub fn leaves(&mut self, number: u32) {
        if self.undelivered.is_empty() {
            // All before it are delivered, those by a lane included.
            self.floor = number;
        }
        let at = number.wrapping_sub(self.floor) as usize;
        if self.undelivered.len() <= at {
            self.undelivered.resize(at + 1, 0);
        }
        self.undelivered[at] += 1;
    }

    /// A part of a message is at the peer's endpoint.
    #[inline]
    pub fn delivered(&mut self, number: u32) {
        let at = number.wrapping_sub(self.floor) as usize;
        let Some(missing) = self.undelivered.get_mut(at) else { return };
        *missing -= 1;
        while self.undelivered.front() == Some(&0) {
            self.undelivered.pop_front();
            self.floor = self.floor.wrapping_add(1);
        }
    }

    /// With a number: how far before that message the oldest lies that may not have been delivered. Without: how many messages of
    /// this session have certainly come where it goes. [`FAR_BACK`]: nothing is said about that.
    #[inline]
    pub fn back(&self, number: Option<u32>) -> u16 {
        let back = number.map_or(self.floor, |number| number.wrapping_sub(self.floor));
        // What lies in a lane may be read before or after what comes by the network.
        if self.lane.is_some() { FAR_BACK } else { back.min(FAR_BACK as u32) as u16 }
    }

    /// The key of its queue pair.
    #[inline]
    pub fn qkey(&self) -> Qkey {
        qkey_of(self.addr.key)
    }

    /// Whom a message is meant for: the endpoint that is there, but what answers only whoever has asked.
    #[inline]
    pub fn toward(&self, body: &Body) -> u32 {
        match *body {
            Body::Stale { session } => identity_in(session),
            _ if self.identity == 0 && body.is_answer() => identity_in(self.their_session),
            _ => self.identity,
        }
    }

    /// Whether messages of this session of ours that were acknowledged may still be dropped, should it end. The first between
    /// endpoints that have keys finds nothing there that others have left. `well_known`: our own endpoint has none.
    #[inline]
    pub fn may_drop(&self, well_known: bool) -> bool {
        !self.accepted && (self.session > 1 || self.moved || self.addr.key == 0 || well_known)
    }

    /// Whether there is anything that could be lost with it.
    pub fn is_in_touch(&self) -> bool {
        self.introduced || self.their_session != 0 || self.outstanding > 0 || !self.backlog.is_empty()
    }

    /// The next session of ours begins: nothing is known of the peer but what its address says.
    pub fn begin_session(&mut self) {
        self.session += 1;
        if self.their_session != 0 {
            self.former = identity_in(self.their_session);
        }
        self.identity = self.addr.key;
        self.spoken = false;
        self.accepted = false;
        self.moved = false;
        self.introduced = false;
        self.next_number = 0;
        self.floor = 0;
        self.undelivered.clear();
        self.gaps = false;
        self.sent_bytes = 0;
        self.consumed_there = 0;
        self.window = FIRST_WINDOW;
        self.longest = MOST_SHORT;
        self.keys.clear();
    }

    /// The program names the address anew. That of a well-known endpoint may be another's now: nothing is taken to be known
    /// of it, unless something is still under way.
    pub fn begin_anew(&mut self) {
        if self.addr.key == 0
            && self.outstanding == 0
            && self.backlog.is_empty()
            && self.parked.is_empty()
            && self.undelivered.is_empty()
        {
            self.lane = None;
            self.begin_session();
        }
    }

    /// Its session with us ends. What had come of it and waits for its turn is returned, to be given back.
    pub fn end_their_session(&mut self) -> FastMap<u32, Early> {
        if self.their_session != 0 {
            self.ended_session = self.their_session;
        }
        self.their_session = 0;
        (self.theirs_near, self.theirs_gaps) = (false, false);
        self.may_resume = false;
        self.expected = 0;
        self.consumed = 0;
        self.advertised = 0;
        self.window_told = FIRST_WINDOW;
        self.window_most = FIRST_WINDOW;
        self.assemblies.clear();
        let none = FastMap::with_hasher(*self.early.hasher());
        std::mem::replace(&mut self.early, none)
    }

    /// Whether messages of its session may have completed.
    #[inline]
    pub fn is_welcome(&self) -> bool {
        self.welcomed == self.their_session
    }

    /// Its session has ended with a context: it may go on by a lane, if nothing of it has been dropped.
    pub fn resumes(&mut self) {
        self.may_resume = self.welcomed == self.ended_session;
    }

    /// How `session` relates to the one that goes on.
    pub fn judge_session(&self, session: u64) -> Session {
        if session == self.their_session {
            return Session::Current;
        }
        if session == self.ended_session {
            return Session::Ended;
        }
        let last = if self.their_session != 0 { self.their_session } else { self.ended_session };
        if identity_in(session) == identity_in(last) && session < last {
            return Session::Old;
        }
        Session::New
    }
}

/// The name of a session: whose it is, and which of theirs with the same peer.
#[inline]
pub(crate) fn session_name(identity: u32, count: u32) -> u64 {
    u64::from(identity) << 32 | u64::from(count)
}

/// The identity of the endpoint whose session it is.
#[inline]
fn identity_in(session: u64) -> u32 {
    (session >> 32) as u32
}

/// The key of a queue pair whose endpoint's address holds `key`.
#[inline]
pub(crate) fn qkey_of(key: u32) -> Qkey {
    if key == 0 { WELL_KNOWN_QKEY } else { Qkey(key) }
}

/// See [`Peer::judge_session`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Session {
    /// It goes on.
    Current,
    /// It is one that we have ended.
    Ended,
    /// It is older than the one that goes on.
    Old,
    /// It begins.
    New,
}

/// The largest window of a peer.
pub(crate) const MOST_WINDOW: u32 = 1 << 20;

/// How much each of `peers` peers may send for which nobody may be waiting.
pub(crate) fn window(config: &Config, peers: usize) -> u32 {
    (config.unexpected_bytes / peers.max(1) as u64).clamp(FIRST_WINDOW as u64, MOST_WINDOW as u64) as u32
}
