//! Sessions with peers: who is admitted, when one is over, and how the end of one that only owes us something is found.

use crate::api::{Failure, PeerAddr};
use crate::endpoint::{Endpoint, Place};
use crate::header::{Body, Common};
use crate::incoming::{Fetch, Standing};
use crate::peer::{MESSAGE_COST, MOST_SHORT, MOST_WINDOW, Session, session_name};
use crate::shared::{Cx, Shared};
use crate::work::{Await, Purpose};
use srd_device::PeerLoss;
use srd_device::slab::Key;
use srd_device::{DeviceConfig, Loss, QPS_PER_PORT, Store};
use srd_wire::{Nanos, Status, Time};

/// How long a process of this host may owe something before it is woken: it may be computing.
const ASK_NEAR: Nanos = Nanos::from_millis(1);

/// A peer that is only waited for is asked that many times as rarely as one that owes something.
const PATIENCE: u64 = 4;

impl Endpoint {
    /// Whether a message is to be taken; begins and ends sessions.
    #[inline]
    pub fn admit<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        common: &Common,
        body: &Body,
        from: &Place,
    ) -> bool {
        let goes_on = session_name(common.from, common.session) == self.peers[peer as usize].their_session;
        if goes_on && self.is_meant(common) && !matches!(body, Body::Stale { .. }) {
            return true;
        }
        self.admit_other(cx, peer, common, body, from)
    }

    /// Whether a message is for this endpoint, and not for one that was at this address before. Who names nobody means
    /// whoever is at a well-known address.
    #[inline]
    pub fn is_meant(&self, common: &Common) -> bool {
        common.toward == self.identity.number.get() || common.toward == 0 && self.identity.well_known
    }

    /// Whether a message's sender has shown nothing that only a peer can know that has heard us, be it by a lane: he may have
    /// forged his address.
    #[inline]
    pub fn is_claimed(&self, from: &Place, common: &Common) -> bool {
        from.claimed && common.toward != self.identity.number.get()
    }

    #[cold]
    fn admit_other<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        common: &Common,
        body: &Body,
        from: &Place,
    ) -> bool {
        let is_meant = self.is_meant(common);
        if let &Body::Stale { session } = body {
            // Said of a session that is over already, or to somebody else, it is no news.
            if is_meant && session == u64::from(self.peers[peer as usize].session) {
                self.lose_peer(cx, peer, Status::RemoteAbort);
            }
            return false;
        }
        let session = session_name(common.from, common.session);
        if !is_meant {
            cx.shared.counters.stale += 1;
            // Nobody waits for what becomes of an answer.
            if !body.is_answer() {
                self.tell_stale(cx, peer, session);
            }
            return false;
        }
        match self.peers[peer as usize].judge_session(session) {
            Session::Current => return true,
            // A context has ended, and with it what had come by it of the session, but the peer's lane goes on as if nothing
            // had happened: so does the session. If it asks whether we are there, it waits for what we have lost: it hears
            // of our next session.
            Session::Ended if self.resumes_by(peer, from.near, body) => {
                let state = &mut self.peers[peer as usize];
                (state.their_session, state.theirs_gaps, state.greeted) = (session, true, false);
                return true;
            }
            Session::Old | Session::Ended => {
                cx.shared.counters.stale += 1;
                // It waits, and has not been told, or not heard. By a lane it need not wait for this, unless it asks.
                if *body == Body::Ping || !from.near && !body.is_answer() {
                    self.tell_stale(cx, peer, session);
                }
                return false;
            }
            // A question overtakes what lies in the peer's lane, and so begins no session there.
            Session::New if !from.near && self.peers[peer as usize].theirs_near && *body == Body::Ping => {
                self.peers[peer as usize].heard = cx.now;
                return false;
            }
            Session::New => {}
        }
        let state = &self.peers[peer as usize];
        if state.identity != 0 && state.identity != common.from {
            // Another endpoint has its well-known address now. What we had to do with the old one has ended.
            self.lose_peer(cx, peer, Status::RemoteAbort);
        } else if state.their_session != 0 {
            // It has begun anew, though no context of ours has ended. If that came over the network, nothing had come to it
            // from us before; otherwise it does not pay any more what it owes.
            self.end_their_session(cx, peer, Status::RemoteAbort);
        }
        // What we have sent by a lane has outlived a context, but need not have done so where it came. What was lost there of
        // another endpoint, before us, is not ours.
        let near = from.near || self.peers[peer as usize].lane.is_some();
        if near && common.former == self.identity.number.get() {
            self.fail_ops(cx, peer, Failure::PeerLost(Status::RemoteAbort));
        }
        if from.near && self.peers[peer as usize].lane.is_none() && !self.strangers.contains(&peer) {
            // There is a lane to it by now, while the context may be that of another process.
            self.strangers.push(peer);
            cx.shared.any_strangers = true;
        }
        let claimed = self.is_claimed(from, common);
        let state = &mut self.peers[peer as usize];
        (state.their_session, state.greeted) = (session, false);
        if !claimed {
            state.identity = common.from;
        }
        if common.session == 1 && !common.well_known && !self.identity.well_known {
            state.welcomed = session;
        }
        if state.awaited > 0 {
            self.watch(cx, peer);
        }
        self.unpark(cx, peer);
        true
    }

    /// Whether a session that has ended here with its context goes on with that message, because it goes by a lane.
    fn resumes_by(&self, peer: u32, near: bool, body: &Body) -> bool {
        let state = &self.peers[peer as usize];
        state.may_resume && (near || state.lane.is_some() && matches!(body, Body::Ping))
    }

    /// Says hello to a peer whose session has begun, as soon as there is room for it.
    #[cold]
    pub fn greet<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        if self.may_greet(cx, peer) && self.may_welcome(cx.shared, peer) {
            self.peers[peer as usize].greeted = true;
            self.say_hello(cx, peer);
        }
    }

    /// Whether what comes in a peer's session may outlive it. It may not while earlier ones have left too much: until a
    /// Hello names the session nothing of it has completed.
    fn may_welcome(&self, shared: &Shared, peer: u32) -> bool {
        let state = &self.peers[peer as usize];
        state.is_welcome() || state.left <= shared.config.most_left
    }

    /// The program has received something that an ended session has left: another may have waited for that.
    #[cold]
    pub fn less_is_left<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        let state = &self.peers[peer as usize];
        if state.their_session != 0 && !state.greeted {
            self.greet(cx, peer);
        }
    }

    /// A session of a peer's cannot go on: the peer is told, ends ours, too, and begins another.
    #[cold]
    pub fn refuse_session<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, session: u64) {
        match self.peers[peer as usize].identity {
            // Who has spoken may have forged the peer's address: nothing of ours ends because of him.
            0 => self.end_their_session(cx, peer, Status::RemoteAbort),
            _ => self.lose_peer(cx, peer, Status::RemoteAbort),
        }
        if session != 0 {
            self.tell_stale(cx, peer, session);
        }
    }

    /// Says who we are, and how much may come.
    pub fn say_hello<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        let (window, welcome) = (self.window_for(cx.shared, peer), self.may_welcome(cx.shared, peer));
        let state = &mut self.peers[peer as usize];
        state.window_told = window;
        state.window_most = state.window_most.max(window);
        if welcome && state.their_session != 0 {
            state.welcomed = state.their_session;
        }
        // The count in the session's name: 0 where none of its goes on, or none that is welcome.
        let session = if welcome { state.their_session as u32 } else { 0 };
        let longest = Some(cx.shared.max_msg).filter(|&longest| longest > MOST_SHORT);
        self.tell(cx, peer, &Body::Hello { window, session, longest });
    }

    /// A peer has said how much it takes, in a session of ours that has begun there.
    pub fn introduced<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, window: u32, session: u32) {
        // More than any endpoint takes would only be on the way for nothing.
        self.peers[peer as usize].window = window.min(MOST_WINDOW);
        if session == self.peers[peer as usize].session {
            self.accepted(cx, peer);
        }
        self.unpark(cx, peer);
    }

    /// What waited for a peer to be known, or for what is behind a key, is tried again.
    pub fn unpark<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        for op in std::mem::take(&mut self.peers[peer as usize].parked) {
            if let Some(entry) =
                self.ops.at_mut(op).filter(|entry| entry.peer == peer && entry.awaits == Await::Peer)
            {
                entry.awaits = Await::Nothing;
                self.has_paid(peer);
                self.start_one_sided(cx, op);
            }
        }
    }

    // ---- ends of contexts ----

    /// Whether it is the context that has ended by which the traffic with `addr` goes.
    fn goes_by(&self, config: &DeviceConfig, loss: &Loss, addr: PeerAddr) -> bool {
        let port = config.port_base.wrapping_add(addr.qpn.0 / QPS_PER_PORT);
        (self.qpn.0 / QPS_PER_PORT, addr.gid, port) == (loss.slot, loss.peer.gid, loss.peer.port)
    }

    fn peers_in<M: Store>(&self, cx: &Cx<'_, M>, loss: &Loss) -> Vec<u32> {
        let config = cx.asked().config();
        let there = (0..).zip(&self.peers).filter(|(_, peer)| self.goes_by(config, loss, peer.addr));
        there.map(|(index, _)| index).collect()
    }

    /// Contexts have ended, but some of what was done in them has to be looked at first.
    #[cold]
    pub fn contexts_will_end<M: Store>(&mut self, cx: &mut Cx<'_, M>, losses: &[Loss]) {
        for peer in losses.iter().flat_map(|loss| self.peers_in(cx, loss)).collect::<Vec<_>>() {
            self.peers[peer as usize].ending = self.pending_losses(cx, self.peers[peer as usize].addr);
        }
    }

    /// How many contexts by which the traffic with `addr` goes have ended without having had their turn.
    pub fn pending_losses<M: Store>(&self, cx: &Cx<'_, M>, addr: PeerAddr) -> u32 {
        let losses = cx.asked().losses(cx.shared.cq);
        losses.filter(|loss| self.goes_by(cx.asked().config(), loss, addr)).count() as u32
    }

    /// A context of the device's has ended, in both directions: what was acknowledged of it has come, everything else never
    /// will. So have the sessions that went by it.
    #[cold]
    pub fn context_ended<M: Store>(&mut self, cx: &mut Cx<'_, M>, loss: &Loss) {
        let status = match loss.why {
            PeerLoss::Dead { answered_before: true } => Status::Unresponsive,
            PeerLoss::Dead { answered_before: false } => Status::Unreachable,
            PeerLoss::Restarted | PeerLoss::GivenUp => Status::RemoteAbort,
            PeerLoss::Incompatible => Status::FeatureMismatch,
        };
        for peer in self.peers_in(cx, loss) {
            // Who has a key cannot have been in the old process and be in the new one. If it was in the old one nobody will
            // know its key, and if it is in the new one the old has taken nothing that was meant for it. But the new one may
            // have, which we took for the old: if it has spoken the session is over, and if not that may have ended there, so
            // that what goes again in it is not over before a Hello names it.
            let state = &mut self.peers[peer as usize];
            let keyed = state.addr.key != 0;
            let another = loss.why == PeerLoss::Restarted;
            let goes_on = another && !state.spoken && (keyed || !state.aborted.is_empty());
            state.moved |= goes_on && state.lane.is_none();
            self.settle_aborted(cx, peer, goes_on);
            let state = &mut self.peers[peer as usize];
            state.ending = state.ending.saturating_sub(1);
            if !state.is_in_touch() || goes_on && !keyed {
                continue;
            }
            if goes_on && !state.gaps {
                self.tell(cx, peer, &Body::Ping);
            } else if state.lane.is_some() {
                self.context_of_near_ended(cx, peer, status);
            } else {
                self.lose_peer(cx, peer, status);
                self.peers[peer as usize].resumes();
            }
        }
    }

    /// The context with a process of this host has ended, because one of the two stood still for long. Lanes go on: as long
    /// as nothing was lost with the context, so do the sessions.
    fn context_of_near_ended<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, status: Status) {
        let failure = Failure::PeerLost(status);
        let state = &self.peers[peer as usize];
        // What it would have answered over the network need not come.
        if state.gaps || state.their_session != 0 && !state.theirs_near {
            self.peers[peer as usize].begin_session();
            self.drop_backlog(cx, peer, status);
            self.fail_ops(cx, peer, failure);
            // Who hears of the new session waits for no answer to what was in the old one.
            self.orphan_all(cx, peer, failure, true);
            self.say_hello(cx, peer);
        }
        let state = &mut self.peers[peer as usize];
        if state.their_session != 0 && state.theirs_near {
            state.theirs_gaps = true;
            let early: Vec<_> = state.early.drain().collect();
            if !early.is_empty() {
                self.has_paid(peer);
            }
            self.without_the_missing(cx, peer, early, true);
        } else if state.their_session != 0 {
            self.fail_directed(cx.shared, peer, failure);
            self.end_their_session(cx, peer, status);
            self.peers[peer as usize].resumes();
        }
        // Whether it lives is asked where its lane leads.
        self.tell(cx, peer, &Body::Ping);
    }

    /// The session with a peer is over in both directions, because its device, its endpoint or the network has gone. All
    /// that is under way with it fails, and what waits for messages of this peer alone if it ever has sent any; what has
    /// arrived whole stays.
    pub fn lose_peer<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, status: Status) {
        cx.shared.counters.peers_lost += 1;
        let state = &mut self.peers[peer as usize];
        state.begin_session();
        // A lane leads to a process. Another may be there now, with lanes of its own.
        if state.lane.take().is_some() {
            self.strangers.push(peer);
            cx.shared.any_strangers = true;
        }
        // Whoever is there next is not to be lost with that lane.
        self.gone.retain(|&gone| gone != peer);
        self.settle_aborted(cx, peer, false);
        self.drop_backlog(cx, peer, status);
        let failure = Failure::PeerLost(status);
        if self.peers[peer as usize].has_begun() {
            self.fail_directed(cx.shared, peer, failure);
        }
        self.fail_ops(cx, peer, failure);
        self.end_their_session(cx, peer, status);
        let state = &mut self.peers[peer as usize];
        state.owed = 0;
        state.asked = false;
    }

    /// Operations that wait for something of a peer's fail.
    fn fail_ops<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, failure: Failure) {
        self.peers[peer as usize].parked.clear();
        self.peers[peer as usize].unaccepted.clear();
        let mut ops: Vec<Key> = Vec::new();
        if self.peers[peer as usize].outstanding > 0 {
            ops.extend(self.ops.iter().filter(|(_, op)| op.peer == peer).map(|(key, _)| key));
        }
        for key in ops {
            let Some(op) = self.ops.get_mut(key) else { continue };
            // What is only with the device may still have arrived: its completion tells.
            if op.awaits != Await::Nothing {
                op.failure.get_or_insert(failure);
                self.op_changed(cx, key.index);
            }
        }
    }

    /// Nothing more comes in the peer's session with us. Messages of one that was not welcome have not completed, and nobody
    /// receives them any more.
    fn end_their_session<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, status: Status) {
        let welcome = self.peers[peer as usize].is_welcome();
        let early: Vec<_> = self.peers[peer as usize].end_their_session().into_iter().collect();
        if !early.is_empty() {
            self.has_paid(peer);
        }
        self.without_the_missing(cx, peer, early, welcome);
        self.orphan_all(cx, peer, Failure::PeerLost(status), welcome);
    }

    /// Nothing more comes of what has begun to come from a peer. `whole`: what has come whole stays.
    fn orphan_all<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, failure: Failure, whole: bool) {
        self.peers[peer as usize].assemblies.clear();
        if self.peers[peer as usize].kept == 0 {
            return;
        }
        let theirs = self.incoming.iter().filter(|(_, incoming)| incoming.peer == peer && !incoming.orphan);
        for key in theirs.map(|(key, _)| key).collect::<Vec<Key>>() {
            if self.incoming.get_mut(key).is_some() {
                self.orphan(cx, key.index, failure, whole);
            }
        }
    }

    /// Nobody is to be told of a message any more; what is kept of it was left by its session.
    pub fn leave(&mut self, index: u32) {
        let incoming = self.incoming.at_mut(index).expect("the caller has it");
        incoming.orphan = true;
        let (peer, ahead, owed) = (incoming.peer, incoming.eager, std::mem::take(&mut incoming.owed));
        let state = &mut self.peers[peer as usize];
        state.kept -= ahead + MESSAGE_COST;
        state.left += ahead + MESSAGE_COST;
        if owed {
            self.has_paid(peer);
        }
    }

    /// Nothing more comes of a message, and nobody is to be told of it. `stays`: it does if it has come whole, also where
    /// the program does not know of it yet.
    pub fn orphan<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32, failure: Failure, stays: bool) {
        self.leave(index);
        let incoming = self.incoming.at_mut(index).expect("it is there");
        let whole = matches!(incoming.fetch, Fetch::Nothing) && incoming.arrived == incoming.eager;
        let stays = match incoming.standing {
            Standing::Early => false,
            Standing::Unexpected(_) => stays,
            Standing::Claimed | Standing::Matched(_) | Standing::Discarded => true,
        };
        if whole && stays {
            return;
        }
        incoming.failure.get_or_insert(failure);
        match incoming.standing {
            // A claimed message has been promised; whoever receives it is told that it failed.
            Standing::Claimed => {}
            Standing::Matched(_) => self.incoming_changed(cx, index),
            Standing::Early | Standing::Unexpected(_) | Standing::Discarded => {
                self.leave_unexpected(index);
                let incoming = self.incoming.at_mut(index).expect("it is there");
                incoming.standing = Standing::Discarded;
                if let Some(held) = incoming.held.take() {
                    cx.give_buffer(held);
                }
                self.incoming_changed(cx, index);
            }
        }
    }

    // ---- signs of life ----

    /// A peer owes us something: it is watched from now on.
    pub fn owes<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        self.peers[peer as usize].owed += 1;
        self.watch(cx, peer);
    }

    /// A receive waits for messages of one peer.
    #[inline]
    pub fn awaits<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        let state = &mut self.peers[peer as usize];
        state.awaited += 1;
        if state.is_awaited() && !state.watched {
            self.watch(cx, peer);
        }
    }

    fn watch<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        let state = &mut self.peers[peer as usize];
        let every =
            if state.lane.is_some() && state.owed > 0 { ASK_NEAR } else { cx.shared.config.ask_every };
        if !state.watched {
            state.watched = true;
            state.heard = cx.now;
            self.watched.push(peer);
        }
        self.next_ask = self.next_ask.min(cx.now + every);
    }

    /// A peer has done what it owed.
    #[inline]
    pub fn has_paid(&mut self, peer: u32) {
        let state = &mut self.peers[peer as usize];
        state.owed = state.owed.saturating_sub(1);
    }

    /// Asks those that owe something, or are waited for, and are silent whether they are there. The device finds out if
    /// they are not.
    pub fn ask_watched<M: Store>(&mut self, cx: &mut Cx<'_, M>) {
        let every = cx.shared.config.ask_every;
        let mut watched = std::mem::take(&mut self.watched);
        let mut any_near = false;
        watched.retain(|&peer| {
            let state = &mut self.peers[peer as usize];
            let awaited = state.is_awaited();
            if state.owed == 0 && !awaited {
                state.watched = false;
                return false;
            }
            let near = state.lane.is_some();
            any_near |= near && state.owed > 0;
            let patience = match near {
                // Once a process of this host is asked, the device soon learns that it has ended.
                false if state.addr.gid == cx.asked().gid() => every,
                // It may well compute for long, and many may be waited for.
                _ if state.owed == 0 => Nanos(PATIENCE * every.0),
                true => ASK_NEAR,
                false => every,
            };
            let silent = cx.now.since(state.heard) >= patience;
            if !state.asked && silent {
                state.asked = true;
                match near {
                    // It may be computing: what comes over the network is looked at nevertheless.
                    true => self.wake_near(cx, peer),
                    false => self.tell_for(cx, peer, &Body::Ping, Purpose::Ask),
                }
            }
            true
        });
        // Asking may have found somebody gone, whose work was watched anew.
        self.watched.extend(watched);
        self.next_ask = match (self.watched.is_empty(), any_near) {
            (true, _) => Time::NEVER,
            (false, true) => cx.now + ASK_NEAR,
            (false, false) => cx.now + every,
        };
    }
}
