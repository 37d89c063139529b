//! What an endpoint keeps for peers, and how much that may be. A peer's headers are only claims: here it is decided whether
//! what they ask for is within what an honest peer may have under way. Whoever exceeds it has its session ended, so that
//! nobody waits for what was dropped. `docs/MESSAGES.md` has the bounds and their reasons.

use crate::endpoint::{Endpoint, Kept};
use crate::header::Body;
use crate::peer::{FIRST_WINDOW, MESSAGE_COST, Peer};
use crate::shared::{Cx, Shared};
use crate::work::{Purpose, Work};
use srd_device::Store;

/// Bytes of writes and atomic operations by message, each with [`MESSAGE_COST`], that a sender has unanswered at a peer.
/// They wait there for messages before them only, so this limits what comes early, and nothing else.
pub(crate) const OPERATIONS_WINDOW: u32 = 1 << 20;

/// Numbers that a sender is ahead of its oldest undelivered message when it takes another one for a request of the
/// program. Notices are numbered later, one for each outstanding operation at most.
pub(crate) const MOST_AHEAD: u32 = 4096;

/// Packets that the transport has under way to a peer at most (`docs/SPEC.md`, section 11): what it has delivered and does
/// not know of.
pub(crate) const MOST_UNKNOWN: u32 = 1024;

/// Peers that the program has not named.
const MOST_STRANGERS: u32 = 16_384;

/// Bytes that are kept for all of them together, and for those of them that may have forged their addresses. Before these are
/// used up, or where answers to them wait, whoever comes has to show first that he is where he says.
pub(crate) const STRANGERS_BYTES: u64 = 6 << 20;
const UNPROVEN_BYTES: u64 = 3 << 19;
const UNTRUSTING_BYTES: u64 = 1 << 20;

/// Replies that are under way to all of them together, and how many of those the device has. Whom there is none left for
/// is greeted when it speaks again.
const STRANGERS_REPLIES: u32 = 10_240;
const STRANGERS_IN_DEVICE: u32 = 512;

/// Replies that the device has for those of whom nobody knows whether they are where they say. Each of the transport's 512
/// contexts with such may have one more: whoever else comes, an honest one is answered, and has shown with that where it is.
const UNPROVEN_IN_DEVICE: u32 = 512;

/// What waits here until its receiver has shown that.
const MOST_WITHHELD: usize = 8192;

/// What the tables hold for a message beside its bytes, and for a reply that is not delivered.
const MESSAGE_MEMORY: u32 = 512;
const REPLY_MEMORY: u64 = 512;

/// Replies under way, beyond which nobody is told that its session is over.
const MOST_STALES: u32 = 64;

/// Why something of a peer's is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Breach {
    /// A number that cannot be: too far ahead, or there already.
    Number,
    /// More than its window.
    Window,
    /// Lengths that do not fit each other, or an operation that is too long.
    Length,
    /// An answer, a grant or bytes that were not asked for like that.
    Unasked,
    /// It has more answered than it takes answers.
    Replies,
    /// The program has not named it, and there is no room for more of those.
    Stranger,
    /// There is no memory.
    Memory,
}

const PROVEN: usize = 0;
const UNPROVEN: usize = 1;

/// See [`Endpoint::turn`].
pub(crate) enum Turn {
    Now,
    /// When others are delivered.
    AfterOthers,
    /// When the peer has shown that it is where it says.
    OnceProven,
}

impl Shared {
    /// Counts a refusal by its cause.
    pub fn count(&mut self, breach: Breach) {
        let counters = &mut self.counters;
        *match breach {
            Breach::Number => &mut counters.numbers_refused,
            Breach::Window => &mut counters.beyond_window,
            Breach::Length => &mut counters.lengths_refused,
            Breach::Unasked => &mut counters.unasked,
            Breach::Replies => &mut counters.replies_refused,
            Breach::Stranger => &mut counters.strangers_refused,
            Breach::Memory => &mut counters.no_memory,
        } += 1;
    }
}

impl Peer {
    /// Whether the program knows it.
    #[inline]
    pub fn is_stranger(&self) -> bool {
        !self.named
    }

    /// The same for one that is on another host, as far as we know: who has shown by its lane that it is on this one has forged
    /// no address.
    #[inline]
    pub fn is_distant_stranger(&self) -> bool {
        self.is_stranger() && self.lane.is_none() && !self.theirs_near && self.near_bytes == 0
    }

    /// Whether nothing is lost if it is forgotten but what it may know of us.
    pub fn holds_nothing(&self) -> bool {
        self.is_stranger()
            && self.held == 0
            && self.outstanding == 0
            && self.in_device == 0
            && self.ending == 0
            && self.awaited == 0
            && self.owed == 0
            && !self.watched
            && self.lane.is_none()
            && self.backlog.is_empty()
            && self.parked.is_empty()
            && self.early.is_empty()
            && self.assemblies.is_empty()
    }

    /// What it has of [`crate::Counters::kept_bytes`].
    pub fn memory_held(&self) -> u64 {
        self.held as u64 + self.replies as u64 * REPLY_MEMORY
    }

    /// Whether a message of ours may take another number.
    #[inline]
    pub fn has_numbers(&self) -> bool {
        self.ahead() < MOST_AHEAD
    }

    /// Whether what it says may be answered.
    #[inline]
    pub fn has_room_for_replies(&self, shared: &Shared) -> bool {
        self.replies <= shared.config.max_outstanding + 2 * MOST_UNKNOWN
    }

    /// Whether a write or an atomic operation of `len` bytes may go by message.
    #[inline]
    pub fn has_operations_room(&self, len: u64) -> bool {
        self.unanswered as u64 + len + MESSAGE_COST as u64 <= OPERATIONS_WINDOW as u64
    }
}

impl Endpoint {
    /// Whether another peer may be known that the program has not named, though none is forgotten for it.
    pub fn has_room_for_stranger(&self) -> bool {
        self.strangers_known < MOST_STRANGERS
    }

    /// How far ahead of its turn a message may be.
    #[inline]
    pub fn most_early(&self, shared: &Shared) -> u32 {
        MOST_AHEAD + shared.config.max_outstanding
    }

    /// A message of `len` bytes that come by themselves is kept until it is consumed, if it may. A sender stays within its
    /// window; beyond it there are only messages by rendezvous without any bytes, which are outstanding operations.
    #[inline]
    pub fn charge<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, len: u32) -> Result<(), Breach> {
        let state = &mut self.peers[peer as usize];
        let kept = state.kept as u64 + len as u64 + MESSAGE_COST as u64;
        if kept > state.window_most as u64 + MESSAGE_COST as u64 * cx.shared.config.max_outstanding as u64 {
            return Err(Breach::Window);
        }
        self.hold_memory(cx, peer, len + MESSAGE_MEMORY)?;
        self.peers[peer as usize].kept = kept as u32;
        Ok(())
    }

    /// It is consumed, or dropped; `left`: its session had ended.
    #[inline]
    pub fn discharge(&mut self, shared: &mut Shared, peer: u32, len: u32, left: bool) {
        let state = &mut self.peers[peer as usize];
        *if left { &mut state.left } else { &mut state.kept } -= len + MESSAGE_COST;
        self.give_memory(shared, peer, len + MESSAGE_MEMORY);
    }

    /// A write, atomic operation or notice waits for its turn, if it may.
    pub fn charge_operation<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        body: &Body,
        len: u32,
    ) -> Result<(), Breach> {
        let bytes = operation_bytes(body, len);
        if self.peers[peer as usize].early_bytes as u64 + bytes as u64 > OPERATIONS_WINDOW as u64 {
            return Err(Breach::Window);
        }
        self.hold_memory(cx, peer, len + MESSAGE_MEMORY)?;
        self.peers[peer as usize].early_bytes += bytes;
        Ok(())
    }

    pub fn discharge_operation(&mut self, shared: &mut Shared, peer: u32, body: &Body, len: u32) {
        self.peers[peer as usize].early_bytes -= operation_bytes(body, len);
        self.give_memory(shared, peer, len + MESSAGE_MEMORY);
    }

    fn hold_memory<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, bytes: u32) -> Result<(), Breach> {
        if self.peers[peer as usize].is_stranger() {
            let most = if self.unproven(cx, peer).is_some() { UNPROVEN_BYTES } else { STRANGERS_BYTES };
            let [proven, unproven] = self.kept.each_ref().map(|kept| kept.bytes);
            if unproven + bytes as u64 > most || proven + unproven + bytes as u64 > STRANGERS_BYTES {
                return Err(Breach::Stranger);
            }
        }
        self.count_kept(peer, |kept| kept.bytes += bytes as u64);
        self.peers[peer as usize].held += bytes;
        cx.shared.counters.kept_bytes += bytes as u64;
        Ok(())
    }

    fn give_memory(&mut self, shared: &mut Shared, peer: u32, bytes: u32) {
        self.count_kept(peer, |kept| kept.bytes -= bytes as u64);
        self.peers[peer as usize].held -= bytes;
        shared.counters.kept_bytes -= bytes as u64;
    }

    /// The program names a peer, or forgets it: what is kept for it counts for the strangers no more, or again.
    pub fn renamed(&mut self, peer: u32, change: impl FnOnce(&mut Peer)) {
        let was = self.peers[peer as usize].is_stranger();
        self.recount(peer, change);
        match (was, self.peers[peer as usize].is_stranger()) {
            (true, false) => {
                self.strangers_known -= 1;
                // Its window is another one now, of which it hears when it speaks again.
                self.peers[peer as usize].greeted = false;
            }
            (false, true) => self.strangers_known += 1,
            _ => {}
        }
    }

    /// A reply is under way. There is no limit here: what is answered has been let in by [`Endpoint::may_ask`].
    #[inline]
    pub fn reply_begins(&mut self, shared: &mut Shared, peer: u32) {
        self.peers[peer as usize].replies += 1;
        self.count_kept(peer, |kept| kept.replies += 1);
        shared.counters.kept_bytes += REPLY_MEMORY;
    }

    #[inline]
    pub fn reply_ends(&mut self, shared: &mut Shared, peer: u32) {
        self.peers[peer as usize].replies -= 1;
        self.count_kept(peer, |kept| kept.replies -= 1);
        shared.counters.kept_bytes -= REPLY_MEMORY;
    }

    /// When the device gets work for a peer that the program has not named: one with something under way costs the transport
    /// more than it costs here.
    #[inline]
    pub fn turn<M: Store>(&mut self, cx: &Cx<'_, M>, peer: u32, purpose: &Purpose) -> Turn {
        let reply = matches!(purpose, Purpose::Control | Purpose::Ask);
        if !reply || !self.peers[peer as usize].is_stranger() {
            return Turn::Now;
        }
        match self.unproven(cx, peer) {
            None if self.kept[PROVEN].replies.saturating_sub(self.strangers_wait.len() as u32)
                < STRANGERS_IN_DEVICE =>
            {
                Turn::Now
            }
            None => Turn::AfterOthers,
            Some(waiting) if self.has_unproven_room(waiting) => Turn::Now,
            Some(_) => Turn::OnceProven,
        }
    }

    /// Whether the device gets another reply to a peer that may have forged its address, where `waiting` are under way.
    fn has_unproven_room(&self, waiting: usize) -> bool {
        waiting == 0 || self.kept[UNPROVEN].replies < UNPROVEN_IN_DEVICE
    }

    /// Keeps work for a peer until that has shown that it is where it says.
    #[cold]
    pub fn withhold(&mut self, shared: &mut Shared, peer: u32, work: Work) {
        self.withheld_works += 1;
        shared.counters.kept_bytes += REPLY_MEMORY;
        self.withheld.entry(peer).or_default().push(work);
    }

    /// A peer may have shown that. What was withheld goes, if it has.
    #[inline]
    pub fn release<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        if self.withheld_works > 0 && self.withheld.contains_key(&peer) && self.unproven(cx, peer).is_none() {
            self.take_withheld(cx.shared, peer).into_iter().for_each(|work| self.post(cx, peer, work));
        }
    }

    /// What is withheld from a peer will never be said.
    pub fn drop_withheld<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        let works = self.take_withheld(cx.shared, peer);
        works.into_iter().filter_map(|work| work.buffer).for_each(|buffer| cx.give_buffer(buffer));
    }

    fn take_withheld(&mut self, shared: &mut Shared, peer: u32) -> Vec<Work> {
        let works = self.withheld.remove(&peer).unwrap_or_default();
        self.withheld_works -= works.len();
        shared.counters.kept_bytes -= works.len() as u64 * REPLY_MEMORY;
        works
    }

    /// How many messages are under way to a stranger's device, if it may have forged its address. Once it has not it never has.
    #[inline]
    fn unproven<M: Store>(&mut self, cx: &Cx<'_, M>, peer: u32) -> Option<usize> {
        let state = &self.peers[peer as usize];
        if !state.unproven {
            return None;
        }
        let (gid, qpn) = (state.addr.gid, state.addr.qpn);
        let waiting =
            if state.is_distant_stranger() { cx.asked().unproven(self.qpn, gid, qpn) } else { None };
        if waiting.is_none() {
            self.recount(peer, |peer| peer.unproven = false);
        }
        waiting
    }

    /// Changes what is kept for those like a peer; nothing counts what is kept for who has been named by the program.
    #[inline]
    fn count_kept(&mut self, peer: u32, change: impl FnOnce(&mut Kept)) {
        let state = &self.peers[peer as usize];
        if state.is_stranger() {
            change(&mut self.kept[state.unproven as usize]);
        }
    }

    /// A peer becomes one of others.
    fn recount(&mut self, peer: u32, change: impl FnOnce(&mut Peer)) {
        let state = &self.peers[peer as usize];
        let its = Kept { bytes: state.held as u64, replies: state.replies };
        self.count_kept(peer, |kept| {
            *kept = Kept { bytes: kept.bytes - its.bytes, replies: kept.replies - its.replies }
        });
        change(&mut self.peers[peer as usize]);
        self.count_kept(peer, |kept| {
            *kept = Kept { bytes: kept.bytes + its.bytes, replies: kept.replies + its.replies }
        });
    }

    /// The transport takes messages from who may have forged his address as long as there is room for them.
    #[inline]
    pub fn trust_newcomers<M: Store>(&mut self, cx: &mut Cx<'_, M>) {
        let kept = &self.kept[UNPROVEN];
        let trusting =
            kept.bytes < UNTRUSTING_BYTES && kept.replies < UNPROVEN_IN_DEVICE && self.withheld_works == 0;
        if trusting != self.trusting {
            self.trusting = trusting;
            cx.device().trust_newcomers(self.qpn, trusting);
        }
    }

    /// A reply to that peer is delivered, or has failed: one to another that waited for that is posted.
    pub fn reply_is_over<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        self.reply_ends(cx.shared, peer);
        self.release(cx, peer);
        self.trust_newcomers(cx);
        if let Some(key) = self.strangers_wait.pop_front() {
            self.post_entered(cx, key);
        }
    }

    /// Whether a peer may say something that may be answered. It has an operation outstanding for every answer, but for
    /// those that have reached it without our knowing.
    #[inline]
    pub fn may_ask<M: Store>(&mut self, cx: &Cx<'_, M>, peer: u32, body: &Body) -> Result<(), Breach> {
        if !self.peers[peer as usize].has_room_for_replies(cx.shared) {
            return Err(Breach::Replies);
        }
        let answered = matches!(body, Body::Put(_) | Body::Atomic(_) | Body::KeyQuery { .. });
        if !answered || self.may_greet(cx, peer) {
            return Ok(());
        }
        let may_wait = self.peers[peer as usize].unproven && self.withheld_works < MOST_WITHHELD;
        if may_wait { Ok(()) } else { Err(Breach::Stranger) }
    }

    /// Whether there is room for a reply to that peer now, as far as all strangers share it.
    #[inline]
    pub fn may_greet<M: Store>(&mut self, cx: &Cx<'_, M>, peer: u32) -> bool {
        if !self.peers[peer as usize].is_stranger() {
            return true;
        }
        match self.unproven(cx, peer) {
            None => self.kept[PROVEN].replies < STRANGERS_REPLIES,
            Some(waiting) => self.has_unproven_room(waiting),
        }
    }

    /// A peer has broken the rules: nothing more of this session is believed, in either direction, and it is told so.
    #[cold]
    pub fn breach<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, breach: Breach) {
        cx.shared.count(breach);
        let session = self.peers[peer as usize].their_session;
        // Nor is what has come of it before its turn.
        let early: Vec<_> = self.peers[peer as usize].early.drain().collect();
        if !early.is_empty() {
            self.has_paid(peer);
        }
        early.into_iter().for_each(|(_, early)| self.drop_early(cx, peer, early));
        self.refuse_session(cx, peer, session);
    }

    /// Tells a peer that its session is over, unless much is on the way to it already: one that waits asks now and then
    /// whether we are there, and is told then.
    pub fn tell_stale<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, session: u64) {
        if self.peers[peer as usize].replies < MOST_STALES && self.may_greet(cx, peer) {
            self.tell(cx, peer, &Body::Stale { session });
        }
    }

    /// What a peer's next Hello says of its window: that of a named one is less by what ended sessions have left.
    pub fn window_for(&self, shared: &Shared, peer: u32) -> u32 {
        let state = &self.peers[peer as usize];
        if state.is_stranger() {
            return FIRST_WINDOW;
        }
        let named = self.peers.len() as u32 - self.strangers_known - self.free_peers.len() as u32;
        let window = crate::peer::window(&shared.config, named as usize);
        window.saturating_sub(state.left).max(FIRST_WINDOW)
    }
}

/// What something early costs of [`OPERATIONS_WINDOW`]. A notice has no bytes, and its number is bound.
fn operation_bytes(body: &Body, len: u32) -> u32 {
    match body {
        Body::Notice(_) => 0,
        _ => len + MESSAGE_COST,
    }
}
