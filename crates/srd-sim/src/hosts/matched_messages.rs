//! Messages of another simulator's ranks, as flows of any transport: each is one flow, of its bytes and nothing else. The n-th
//! receive of a sender and a tag gets the n-th message sent to it with that tag, whatever overtook what. Between ranks of a host memory is copied,
//! where the host has it.

use crate::apps::Place;
use crate::hosts::intra_node::Copies;
use crate::hosts::message_flows::{MessageFlows, OutgoingMessage, Programs};
use crate::hosts::settings::OnNode;
use srd_baselines::units::Ps;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

/// Sender, receiver and tag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Envelope {
    /// Rank that sends.
    pub from: u32,
    /// Rank that receives.
    pub to: u32,
    /// What tells messages between these two apart.
    pub tag: u64,
}

/// Why a request has not come to a good end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The message has more bytes than its receive.
    Truncated,
    /// The transport gave it up, for this reason.
    GivenUp(&'static str),
}

/// A send or a receive has come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending {
    /// As whoever began it calls it.
    pub request: u64,
    /// What it was of.
    pub envelope: Envelope,
    /// It is a receive.
    pub receives: bool,
    /// Bytes of the message, or why there are none.
    pub bytes: Result<u64, Failure>,
}

/// What has been sent.
#[derive(Clone, Copy, Debug)]
struct Message {
    envelope: Envelope,
    /// Its number among those of the envelope.
    sequence: u64,
    bytes: u64,
    request: u64,
    /// It has come.
    come: bool,
    given_up: bool,
}

/// What memory does for a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Copied {
    /// Its sender is done.
    Away,
    /// Its receiver has it.
    There,
}

/// What is known of an envelope.
#[derive(Default)]
struct Line {
    sent: u64,
    /// Receives begun: the next gets the message of this number.
    received: u64,
    /// What has come and no receive is there for, by number.
    come: BTreeMap<u64, Result<u64, Failure>>,
    /// Receives that wait: of which number each, its request, and its room.
    waiting: BTreeMap<u64, (u64, u64)>,
}

/// See the module.
pub struct MatchedMessages {
    flows: MessageFlows<Message>,
    hosts: Vec<u32>,
    copies: Vec<Option<Copies>>,
    lines: HashMap<Envelope, Line>,
    /// What memory will have done, by when.
    copying: BinaryHeap<Reverse<(Ps, u64, Copied, u32)>>,
    copied: Vec<Message>,
    /// Messages of each receiver that are on the network.
    under_way: Vec<u32>,
    /// Those whose senders are not done, or that have not come.
    open: u64,
    endings: VecDeque<Ending>,
}

impl MatchedMessages {
    /// Most messages on their way to a rank at a time: what transports make room for.
    pub const MOST_AT_A_TIME: u32 = super::flow_messaging::Messages::MOST_AT_A_TIME;

    /// A rank at each of those places; `on` is what the hosts' memory is to them. Numbers of their flows begin at `base`.
    pub fn new(places: &[Place], on: Option<OnNode>, base: u32) -> MatchedMessages {
        MatchedMessages {
            flows: MessageFlows::new(places.len(), base),
            hosts: places.iter().map(|place| place.host).collect(),
            copies: places.iter().map(|_| on.map(Copies::new)).collect(),
            lines: HashMap::new(),
            copying: BinaryHeap::new(),
            copied: Vec::new(),
            under_way: vec![0; places.len()],
            open: 0,
            endings: VecDeque::new(),
        }
    }

    /// Whether a rank has room for one more on its way.
    pub fn has_room(&self, to: u32) -> bool {
        self.under_way[to as usize] < Self::MOST_AT_A_TIME
    }

    /// Sends; the request ends when the transport has every byte acknowledged, or memory is copied.
    pub fn send(&mut self, now: Ps, envelope: Envelope, bytes: u64, request: u64) {
        let line = self.lines.entry(envelope).or_default();
        let message = Message { envelope, sequence: line.sent, bytes, request, come: false, given_up: false };
        line.sent += 1;
        self.open += 2;
        let Envelope { from, to, .. } = envelope;
        let near = self.hosts[from as usize] == self.hosts[to as usize];
        if let Some(copies) = self.copies[from as usize].as_mut().filter(|_| near) {
            let copied = Ps::of(copies.copy(now.time(), bytes));
            let there = Ps::of(copies.there());
            let index = self.copied.len() as u32;
            self.copied.push(message);
            for (at, what, rank) in [(copied, Copied::Away, from), (there, Copied::There, to)] {
                self.copying.push(Reverse((at, u64::from(index), what, rank)));
                self.flows.set_alarm(rank, at, now);
            }
            return;
        }
        self.under_way[to as usize] += 1;
        // A transport has no flows of nothing: a packet without data has a byte here.
        self.flows.begin(from, to, message, bytes.max(1));
    }

    /// Receives up to `room` bytes; the request ends when they have come.
    pub fn recv(&mut self, envelope: Envelope, room: u64, request: u64) {
        let line = self.lines.entry(envelope).or_default();
        let sequence = line.received;
        line.received += 1;
        match line.come.remove(&sequence) {
            Some(bytes) => self.end_receive(envelope, request, fits(bytes, room)),
            None => _ = line.waiting.insert(sequence, (request, room)),
        }
    }

    /// The next request that has come to its end.
    pub fn poll(&mut self) -> Option<Ending> {
        self.endings.pop_front()
    }

    /// Whether any message is on its way.
    pub fn are_open(&self) -> bool {
        self.open > 0
    }

    /// Envelopes of receives for which nothing was sent, in their order, and how many wait in each.
    pub fn unmatched(&self) -> Vec<(Envelope, usize)> {
        let waiting = self.lines.iter().filter(|(_, line)| !line.waiting.is_empty());
        let mut all: Vec<_> = waiting.map(|(&envelope, line)| (envelope, line.waiting.len())).collect();
        all.sort_unstable();
        all
    }

    fn end_receive(&mut self, envelope: Envelope, request: u64, bytes: Result<u64, Failure>) {
        self.endings.push_back(Ending { request, envelope, receives: true, bytes });
    }

    fn end_send(&mut self, message: Message, bytes: Result<u64, Failure>) {
        self.open -= 1;
        let Message { request, envelope, .. } = message;
        self.endings.push_back(Ending { request, envelope, receives: false, bytes });
    }

    /// A message has come, or never will.
    fn arrives(&mut self, message: Message, bytes: Result<u64, Failure>) {
        self.open -= 1;
        let line = self.lines.get_mut(&message.envelope).expect("it was sent");
        match line.waiting.remove(&message.sequence) {
            Some((request, room)) => self.end_receive(message.envelope, request, fits(bytes, room)),
            None => _ = line.come.insert(message.sequence, bytes),
        }
    }
}

/// A message in a receive of that room.
fn fits(bytes: Result<u64, Failure>, room: u64) -> Result<u64, Failure> {
    bytes.and_then(|bytes| if bytes <= room { Ok(bytes) } else { Err(Failure::Truncated) })
}

impl Programs for MatchedMessages {
    fn advance(&mut self, now: Ps, rank: u32) -> bool {
        self.flows.looks(rank, now);
        while let Some(&Reverse((at, index, what, _))) = self.copying.peek() {
            if at > now {
                break;
            }
            self.copying.pop();
            let message = self.copied[index as usize];
            match what {
                Copied::Away => self.end_send(message, Ok(message.bytes)),
                Copied::There => self.arrives(message, Ok(message.bytes)),
            }
        }
        if self.copying.is_empty() {
            self.copied.clear();
        }
        false
    }

    fn poll_outgoing(&mut self) -> Option<OutgoingMessage> {
        self.flows.poll_outgoing()
    }

    fn poll_alarm(&mut self) -> Option<(Ps, u32)> {
        self.flows.poll_alarm()
    }

    fn sent(&mut self, number: u32) -> Option<u32> {
        let (_, _, &mut message) = self.flows.sent(number);
        self.end_send(message, Ok(message.bytes));
        None
    }

    fn received(&mut self, _: Ps, rank: u32, inbox: u32) -> Option<u32> {
        let (_, to, message) = self.flows.received(rank, inbox);
        message.come = true;
        let message = *message;
        self.under_way[to as usize] -= 1;
        if !message.given_up {
            self.arrives(message, Ok(message.bytes));
        }
        None
    }

    fn failed(&mut self, number: u32, why: &'static str) -> Option<u32> {
        let (_, _, message) = self.flows.sent(number);
        message.given_up = true;
        let message = *message;
        let failure = Err(Failure::GivenUp(why));
        self.end_send(message, failure);
        if !message.come {
            self.arrives(message, failure);
        }
        None
    }

    fn complaints(&self, _: Ps) -> Vec<String> {
        Vec::new() // its requests tell
    }

    fn is_carrying(&self) -> bool {
        self.are_open()
    }

    fn matched(&mut self) -> Option<&mut MatchedMessages> {
        Some(self)
    }
}
