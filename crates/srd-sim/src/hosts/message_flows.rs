//! Messages of programs as flows: which are under way, in which inbox each comes, and which ranks are to look. What a message is, and what follows
//! from its end, those say who send it (`flow_messaging`, `rank_flows`).

use crate::hosts::flow_messaging::Messages;
use crate::hosts::matched_messages::MatchedMessages;
use crate::hosts::rank_seat::RankSeat;
use srd_baselines::units::Ps;
use std::collections::VecDeque;

/// A flow that is to begin.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingMessage {
    /// Number of the flow.
    pub number: u32,
    /// Rank of the sender.
    pub from: u32,
    /// Rank of the receiver.
    pub to: u32,
    /// Number among the receiver's inboxes for messages.
    pub inbox: u32,
    /// How much.
    pub bytes: u64,
}

/// Programs whose messages are flows.
pub trait Programs {
    /// A rank goes on as far as it can. Returns whether it has just come to its end.
    fn advance(&mut self, now: Ps, rank: u32) -> bool;

    /// The next flow that is to begin.
    fn poll_outgoing(&mut self) -> Option<OutgoingMessage>;

    /// When a rank wants [`Programs::advance`] to be called.
    fn poll_alarm(&mut self) -> Option<(Ps, u32)>;

    /// A flow's sender has every byte acknowledged. Returns a rank that is to advance.
    fn sent(&mut self, number: u32) -> Option<u32>;

    /// An inbox of a rank is full. Returns a rank that is to advance.
    fn received(&mut self, now: Ps, rank: u32, inbox: u32) -> Option<u32>;

    /// A flow is given up. Returns a rank that is to advance.
    fn failed(&mut self, number: u32, why: &'static str) -> Option<u32>;

    /// What did not go as it should, a line each.
    fn complaints(&self, now: Ps) -> Vec<String>;

    /// Whether anything is under way between ranks.
    fn is_carrying(&self) -> bool;

    /// Those of scripts.
    fn scripts(&self) -> Option<&Messages> {
        None
    }

    /// Those of another simulator.
    fn matched(&mut self) -> Option<&mut MatchedMessages> {
        None
    }

    /// The seat of a rank that is a real process.
    fn seat(&mut self, _rank: u32) -> Option<&mut RankSeat> {
        None
    }
}

/// A message under way, and what it is.
#[derive(Debug)]
struct Message<W> {
    from: u32,
    to: u32,
    what: W,
    /// Its sender, and its receiver, have nothing more to do with it.
    sent: bool,
    received: bool,
}

#[derive(Debug)]
struct Rank {
    /// Message of each inbox, and inboxes that are free.
    inboxes: Vec<u32>,
    free_inboxes: Vec<u32>,
    /// It has been told to look, and has not yet.
    called: bool,
    alarm_at: Ps,
}

/// See the module.
#[derive(Debug)]
pub struct MessageFlows<W> {
    /// Numbers of flows begin here.
    base: u32,
    messages: Vec<Message<W>>,
    free: Vec<u32>,
    ranks: Vec<Rank>,
    outgoing: VecDeque<OutgoingMessage>,
    alarms: VecDeque<(Ps, u32)>,
}

impl<W> MessageFlows<W> {
    /// None yet, between so many ranks. Numbers of flows begin at `base`.
    pub fn new(ranks: usize, base: u32) -> MessageFlows<W> {
        let rank =
            || Rank { inboxes: Vec::new(), free_inboxes: Vec::new(), called: false, alarm_at: Ps::NEVER };
        MessageFlows {
            base,
            messages: Vec::new(),
            free: Vec::new(),
            ranks: std::iter::repeat_with(rank).take(ranks).collect(),
            outgoing: VecDeque::new(),
            alarms: VecDeque::new(),
        }
    }

    /// One more is to begin.
    pub fn begin(&mut self, from: u32, to: u32, what: W, bytes: u64) {
        let receiver = &mut self.ranks[to as usize];
        let inbox = receiver.free_inboxes.pop().unwrap_or_else(|| {
            receiver.inboxes.push(0);
            receiver.inboxes.len() as u32 - 1
        });
        let message = Message { from, to, what, sent: false, received: false };
        let index = match self.free.pop() {
            Some(index) => {
                self.messages[index as usize] = message;
                index
            }
            None => {
                self.messages.push(message);
                self.messages.len() as u32 - 1
            }
        };
        self.ranks[to as usize].inboxes[inbox as usize] = index;
        self.outgoing.push_back(OutgoingMessage { number: self.base + index, from, to, inbox, bytes });
    }

    fn release(&mut self, index: u32) -> (u32, u32, &mut W) {
        let message = &mut self.messages[index as usize];
        if message.sent && message.received {
            self.free.push(index);
        }
        (message.from, message.to, &mut message.what)
    }

    /// The sender of a flow is done with it. From whom to whom it was, and what.
    pub fn sent(&mut self, number: u32) -> (u32, u32, &mut W) {
        let index = number - self.base;
        self.messages[index as usize].sent = true;
        self.release(index)
    }

    /// An inbox of a rank is full. The same of what was in it.
    pub fn received(&mut self, rank: u32, inbox: u32) -> (u32, u32, &mut W) {
        let rank = &mut self.ranks[rank as usize];
        let index = rank.inboxes[inbox as usize];
        rank.free_inboxes.push(inbox);
        self.messages[index as usize].received = true;
        self.release(index)
    }

    /// The same of a flow.
    pub fn get(&self, number: u32) -> (u32, u32, &W) {
        let message = &self.messages[(number - self.base) as usize];
        (message.from, message.to, &message.what)
    }

    /// A rank has something to look at. Returns it if it has not been called yet.
    pub fn call(&mut self, rank: u32) -> Option<u32> {
        let called = std::mem::replace(&mut self.ranks[rank as usize].called, true);
        (!called).then_some(rank)
    }

    /// It looks now.
    pub fn looks(&mut self, rank: u32, now: Ps) {
        let rank = &mut self.ranks[rank as usize];
        rank.called = false;
        if rank.alarm_at <= now {
            rank.alarm_at = Ps::NEVER;
        }
    }

    /// It is to look at that time at the latest, which is not before now.
    pub fn set_alarm(&mut self, rank: u32, at: Ps, now: Ps) {
        let of = &mut self.ranks[rank as usize];
        if at < of.alarm_at {
            of.alarm_at = at.max(now);
            self.alarms.push_back((of.alarm_at, rank));
        }
    }

    /// As [`Programs::poll_outgoing`].
    pub fn poll_outgoing(&mut self) -> Option<OutgoingMessage> {
        self.outgoing.pop_front()
    }

    /// As [`Programs::poll_alarm`].
    pub fn poll_alarm(&mut self) -> Option<(Ps, u32)> {
        self.alarms.pop_front()
    }

    /// Whether any is under way.
    pub fn is_carrying(&self) -> bool {
        self.messages.len() > self.free.len()
    }
}
