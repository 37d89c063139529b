//! The oracle: what every program has asked for, what it has been told, and what follows from the one for the other.

use crate::ledger::{Score, Violation, broken};
use crate::pattern::Pattern;
use srd_msg::{Done, Failure, Kind, PeerAddr};
use srd_wire::Time;

/// An endpoint, from its opening to its end: the next one at the same address is another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Party(pub usize);

/// What is known of an endpoint.
#[derive(Clone, Debug)]
pub struct PartyRecord {
    /// Its process.
    pub process: usize,
    /// Which of the process's.
    pub slot: usize,
    /// The process's life.
    pub life: u32,
    /// Where it is.
    pub addr: PeerAddr,
    /// When it ended.
    pub ended: Option<Time>,
}

/// A message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Who sends it.
    pub from: Party,
    /// Whom it is for.
    pub to: Party,
    /// Its tag.
    pub tag: Option<u64>,
    /// Its length.
    pub len: u64,
    /// Where it is, in the memory of its sender.
    pub addr: u64,
    /// When it was posted.
    pub posted: Time,
    /// What its sender was told; `None`: nothing yet, or the sender has ended.
    pub outcome: Option<Result<(), Failure>>,
    /// The receive that has taken it.
    pub taken: Option<usize>,
}

/// A receive.
#[derive(Clone, Debug)]
pub struct Receive {
    /// Whose.
    pub at: Party,
    /// From that peer only.
    pub from: Option<PeerAddr>,
    /// Tag, and what of it does not count.
    pub tag: Option<(u64, u64)>,
    /// Where its buffer is, and how long.
    pub buffer: (u64, u64),
    /// When it was posted.
    pub posted: Time,
    /// What was told.
    pub outcome: Option<Result<u64, Failure>>,
    /// The message that it has taken.
    pub took: Option<usize>,
    /// It was taken back before it had matched anything.
    pub cancelled: bool,
    /// That was at the end, when all had come that will.
    pub idle: bool,
}

/// What is done to another's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Its bytes are read.
    Read,
    /// It is written; with data, of which its program is told.
    Write {
        /// Whether there are.
        data: bool,
    },
    /// One is added to a number.
    Add,
}

/// An RMA or atomic operation.
#[derive(Clone, Debug)]
pub struct OneSided {
    /// Whose.
    pub from: Party,
    /// At whom.
    pub to: Party,
    /// What.
    pub deed: Deed,
    /// Where in the other's region, which no other operation touches.
    pub offset: u64,
    /// How long.
    pub len: u64,
    /// Where it reads into.
    pub local: u64,
    /// When it was posted.
    pub posted: Time,
    /// What was told.
    pub outcome: Option<Result<(), Failure>>,
    /// How often the other's program was told of it.
    pub notices: u32,
}

/// What an operation's context says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A message.
    Message(usize),
    /// A receive.
    Receive(usize),
    /// A one-sided operation.
    OneSided(usize),
}

const KINDS: u64 = 3;

impl Entry {
    /// As a context.
    pub fn context(self) -> u64 {
        match self {
            Entry::Message(n) => n as u64 * KINDS,
            Entry::Receive(n) => n as u64 * KINDS + 1,
            Entry::OneSided(n) => n as u64 * KINDS + 2,
        }
    }

    /// Of a context.
    pub fn of(context: u64) -> Entry {
        let n = (context / KINDS) as usize;
        [Entry::Message(n), Entry::Receive(n), Entry::OneSided(n)][(context % KINDS) as usize]
    }
}

/// See the module.
pub struct Book {
    seed: u64,
    /// Endpoints.
    pub parties: Vec<PartyRecord>,
    /// Messages, as they were posted.
    pub messages: Vec<Message>,
    /// Receives, as they were posted.
    pub receives: Vec<Receive>,
    /// Everything else, as it was posted.
    pub deeds: Vec<OneSided>,
    /// When an endpoint was told last that a peer is lost, and the peer.
    pub losses: Vec<(Party, PeerAddr, Time)>,
    /// Nothing was planned that could make an operation fail.
    pub calm: bool,
    /// Counts.
    pub score: Score,
}

impl Book {
    /// An empty book.
    pub fn new(seed: u64, calm: bool) -> Book {
        Book {
            seed,
            parties: Vec::new(),
            messages: Vec::new(),
            receives: Vec::new(),
            deeds: Vec::new(),
            losses: Vec::new(),
            calm,
            score: Score::default(),
        }
    }

    /// The bytes of an operation.
    pub fn pattern(&self, entry: Entry) -> Pattern {
        Pattern::of(self.seed, entry.context())
    }

    /// Whether an endpoint is there.
    pub fn is_open(&self, party: Party) -> bool {
        self.parties[party.0].ended.is_none()
    }

    /// An endpoint has ended: its program is told nothing any more.
    pub fn ended(&mut self, now: Time, party: Party) {
        self.parties[party.0].ended.get_or_insert(now);
    }

    fn addr(&self, party: Party) -> PeerAddr {
        self.parties[party.0].addr
    }

    /// Whether a receive may take a message.
    fn matches(&self, receive: &Receive, message: &Message) -> bool {
        let tags = match (receive.tag, message.tag) {
            (None, None) => true,
            (Some((tag, ignore)), Some(sent)) => (tag ^ sent) & !ignore == 0,
            _ => false,
        };
        tags && receive.at == message.to && receive.from.is_none_or(|from| from == self.addr(message.from))
    }

    fn failed(
        &mut self,
        now: Time,
        at: Party,
        peer: Option<PeerAddr>,
        why: Failure,
        what: &str,
    ) -> Result<(), Violation> {
        let fits = matches!(why, Failure::PeerLost(_) | Failure::RemoteAccess { .. });
        if self.calm || !fits {
            return broken("needless failure", format!("{what} of {at:?} failed: {why:?}"));
        }
        if let Some(peer) = peer {
            self.losses.push((at, peer, now));
        }
        Ok(())
    }

    /// A program has been told that something is complete. `bytes` reads its memory.
    pub fn completed(
        &mut self,
        now: Time,
        at: Party,
        done: &Done,
        bytes: &mut dyn FnMut(u64, u64) -> Vec<u8>,
    ) -> Result<(), Violation> {
        if done.kind == Kind::RemoteWrite {
            return self.noticed(at, done);
        }
        let entry = Entry::of(done.context);
        let outcome = done.error.map_or(Ok(()), Err);
        match entry {
            Entry::Message(number) => {
                let Some(message) = self.messages.get_mut(number).filter(|message| message.from == at) else {
                    return broken("stray completion", format!("nobody asked {at:?} for this: {done:?}"));
                };
                if message.outcome.is_some() {
                    return broken("completed twice", format!("message {number}: {message:?}, now {done:?}"));
                }
                message.outcome = Some(outcome);
                let to = message.to;
                self.count(outcome);
                if let Err(why) = outcome {
                    self.failed(now, at, Some(self.addr(to)), why, "a send")?;
                }
            }
            Entry::Receive(number) => self.received(now, at, number, done, bytes)?,
            Entry::OneSided(number) => {
                let Some(deed) = self.deeds.get_mut(number).filter(|deed| deed.from == at) else {
                    return broken("stray completion", format!("nobody asked {at:?} for this: {done:?}"));
                };
                if deed.outcome.is_some() {
                    return broken("completed twice", format!("operation {number}: {deed:?}, now {done:?}"));
                }
                deed.outcome = Some(outcome);
                let deed = deed.clone();
                self.count(outcome);
                match outcome {
                    Err(why) => self.failed(now, at, Some(self.addr(deed.to)), why, "an operation")?,
                    Ok(()) if deed.deed == Deed::Read => {
                        let read = bytes(deed.local, deed.len);
                        if self.pattern(entry).mismatch(0, &read).is_some() {
                            return broken(
                                "corruption",
                                format!("operation {number} has read other bytes: {deed:?}"),
                            );
                        }
                    }
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, outcome: Result<(), Failure>) {
        *if outcome.is_ok() { &mut self.score.succeeded } else { &mut self.score.failed } += 1;
    }

    /// A program has been told that its memory was written.
    fn noticed(&mut self, at: Party, done: &Done) -> Result<(), Violation> {
        let number = done.data.map(Entry::of);
        let Some(Entry::OneSided(number)) = number else {
            return broken("stray completion", format!("no write has these data: {done:?}"));
        };
        let Some(deed) = self.deeds.get(number).filter(|deed| deed.deed == Deed::Write { data: true }) else {
            return broken("stray completion", format!("no write has these data: {done:?}"));
        };
        if deed.to != at {
            return broken("taken for another", format!("{at:?} is told of operation {number}: {deed:?}"));
        }
        if deed.notices > 0 {
            return broken(
                "delivered twice",
                format!("{at:?} is told twice of operation {number}: {deed:?}"),
            );
        }
        if done.from != Some(self.addr(deed.from)) {
            return broken("source", format!("operation {number} is not from there: {done:?}"));
        }
        self.deeds[number].notices += 1;
        Ok(())
    }

    fn received(
        &mut self,
        now: Time,
        at: Party,
        number: usize,
        done: &Done,
        bytes: &mut dyn FnMut(u64, u64) -> Vec<u8>,
    ) -> Result<(), Violation> {
        let Some(receive) = self.receives.get(number).filter(|receive| receive.at == at) else {
            return broken("stray completion", format!("nobody asked {at:?} for this: {done:?}"));
        };
        if receive.outcome.is_some() {
            return broken("completed twice", format!("receive {number}: {receive:?}, now {done:?}"));
        }
        let receive = receive.clone();
        self.receives[number].outcome = Some(done.error.map_or(Ok(done.len), Err));
        let over = match done.error {
            None => 0,
            Some(Failure::Truncated { over }) => over,
            Some(Failure::Canceled) if receive.cancelled => return Ok(()),
            Some(why) => {
                let peer = done.from.or(receive.from);
                return self.failed(now, at, peer, why, "a receive");
            }
        };
        let Some(Entry::Message(id)) = done.data.map(Entry::of).filter(|entry| match entry {
            Entry::Message(id) => *id < self.messages.len(),
            _ => false,
        }) else {
            return broken("stray completion", format!("no message has these data: {done:?}"));
        };
        let message = self.messages[id].clone();
        if message.to != at {
            return broken("taken for another", format!("message {id} comes to {at:?}: {message:?}"));
        }
        if let Some(before) = message.taken {
            return broken(
                "delivered twice",
                format!("message {id} came to receive {before} and comes to {number}: {message:?}"),
            );
        }
        if !self.matches(&receive, &message) || done.from != Some(self.addr(message.from)) {
            return broken(
                "matching",
                format!("message {id}, {message:?}, does not match {receive:?}: {done:?}"),
            );
        }
        if done.tag != message.tag.unwrap_or(0) || done.len + over != message.len {
            return broken("corruption", format!("message {id}, {message:?}, is told as {done:?}"));
        }
        let got = bytes(receive.buffer.0, done.len);
        if let Some(bad) = self.pattern(Entry::Message(id)).mismatch(0, &got) {
            return broken(
                "corruption",
                format!("byte {bad} of message {id}, {message:?}, receive {receive:?}"),
            );
        }
        self.messages[id].taken = Some(number);
        self.receives[number].took = Some(id);
        self.score.received += 1;
        Ok(())
    }

    /// Operations of endpoints that are there of which nothing has been told.
    pub fn outstanding(&self) -> impl Iterator<Item = Entry> {
        let messages = self.messages.iter().enumerate().filter_map(|(n, message)| {
            (message.outcome.is_none() && self.is_open(message.from)).then_some(Entry::Message(n))
        });
        let deeds = self.deeds.iter().enumerate().filter_map(|(n, deed)| {
            (deed.outcome.is_none() && self.is_open(deed.from)).then_some(Entry::OneSided(n))
        });
        messages.chain(deeds)
    }

    /// Messages of an endpoint of whose end it was told nothing.
    pub fn unfinished_of(&self, party: Party) -> Vec<usize> {
        let all = self.messages.iter().enumerate();
        all.filter(|(_, message)| message.from == party && message.outcome.is_none())
            .map(|(n, _)| n)
            .collect()
    }

    /// Messages whose send has completed, that were not received, and that could be.
    pub fn undelivered(&self) -> impl Iterator<Item = usize> {
        self.messages.iter().enumerate().filter_map(|(n, message)| {
            (message.outcome == Some(Ok(())) && message.taken.is_none() && self.is_open(message.to))
                .then_some(n)
        })
    }

    /// Completed writes with data of which the other's program was not told, and could be.
    pub fn unnoticed(&self) -> impl Iterator<Item = usize> {
        self.deeds.iter().enumerate().filter_map(|(n, deed)| {
            let told = deed.deed != Deed::Write { data: true } || deed.notices > 0;
            (deed.outcome == Some(Ok(())) && !told && self.is_open(deed.to)).then_some(n)
        })
    }

    /// Receives that wait.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        self.receives
            .iter()
            .enumerate()
            .filter_map(|(n, receive)| (receive.outcome.is_none() && self.is_open(receive.at)).then_some(n))
    }

    /// Receives for messages of one peer alone that had sent something to that endpoint, has gone, and so should have
    /// been found to have: nothing was lost with it since that it could have been taken for lost by.
    pub fn waiting_in_vain(&self) -> impl Iterator<Item = usize> {
        self.waiting().filter(|&n| {
            let receive = &self.receives[n];
            let Some(from) = receive.from else { return false };
            let last = self.parties.iter().enumerate().rev().find(|(_, party)| party.addr == from);
            let Some((last, party)) = last else { return false };
            let lost = self.losses.iter().filter(|(at, peer, _)| (*at, *peer) == (receive.at, from));
            let lost = lost.map(|&(_, _, when)| when).max();
            let has_sent = |message: &Message| {
                message.from == Party(last)
                    && message.to == receive.at
                    && message.taken.is_some()
                    && lost.is_none_or(|lost| message.posted > lost)
            };
            party.ended.is_some() && self.messages.iter().any(has_sent)
        })
    }

    /// Messages of one endpoint to another do not overtake each other, nor do receives.
    pub fn check_order(&self) -> Result<(), Violation> {
        for (second, receive) in self.receives.iter().enumerate() {
            let Some(id) = receive.took else { continue };
            let message = &self.messages[id];
            for (earlier, other) in self.messages[..id].iter().enumerate() {
                let same =
                    (other.from, other.to) == (message.from, message.to) && self.matches(receive, other);
                if same && other.taken.is_some_and(|taken| taken > second) {
                    return broken(
                        "order",
                        format!("message {id} overtook {earlier}: {message:?}, {other:?}"),
                    );
                }
            }
            for (first, other) in self.receives[..second].iter().enumerate() {
                let taken_back = other.cancelled && !other.idle;
                if other.at != receive.at || taken_back || !self.matches(other, message) {
                    continue;
                }
                let fine = match other.took {
                    Some(took) => self.messages[took].from != message.from || took < id,
                    // One that has matched a message may not live to see it whole.
                    None => !other.idle && (matches!(other.outcome, Some(Err(_))) || !self.is_open(other.at)),
                };
                if !fine {
                    return broken(
                        "order",
                        format!("receive {second} overtook {first}: {receive:?}, {other:?}"),
                    );
                }
            }
        }
        Ok(())
    }
}
