//! Programs over transports that move flows: each message becomes one flow or three, as MPI libraries do it. A short one goes
//! at once, its envelope with it; a long one asks first and goes when a receive for it is there. All transports get the same
//! treatment, so what differs between them is the transport.
//!
//! Envelopes of a sender match in the order in which they were sent, whatever overtook what (MPI 4.1, section 3.5).

use crate::apps::{Completion, Messaging, Rank, Traffic};
use crate::hosts::intra_node::SharedMemory;
use crate::hosts::message_flows::{MessageFlows, OutgoingMessage, Programs};
use crate::hosts::settings::{MessageProtocol, Settings};
use srd_baselines::units::Ps;
use srd_wire::Time;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Ranks of which it is told what they wait for.
const MOST_TOLD: usize = 4;

/// What a flow of a program carries.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A short message: its number among those of the pair, and its tag.
    /// ... and the request, if its send has not ended yet.
    Eager { sequence: u32, tag: u64, bytes: u64, request: Option<u32> },
    /// A long one asks: likewise, its bytes, and the sender's request.
    Ask { sequence: u32, tag: u64, bytes: u64, request: u32 },
    /// The receiver agrees: the requests of sender and receiver, and the bytes.
    Agree { request: u32, recv: u32, bytes: u64 },
    /// The bytes: the requests of sender and receiver.
    Data { request: u32, recv: u32 },
    /// Bytes for the receiver's memory: the sender's request.
    Put { request: u32 },
    /// Asks for bytes of the receiver's memory: how many, and the sender's request.
    Get { request: u32, bytes: u64 },
    /// These: the receiver's request.
    Got { request: u32 },
}

/// A message that no receive was there for.
#[derive(Clone, Copy, Debug)]
enum Arrived {
    Eager,
    Asks { request: u32, bytes: u64 },
}

/// Envelopes of one sender.
#[derive(Default)]
struct Sequence {
    next: u32,
    early: BTreeMap<u32, (u64, Arrived)>,
}

/// Sender and tag: what a receive must match.
type Envelope = (u32, u64);

struct Place {
    rank: Rank,
    forever: bool,
    reported: bool,
    host: u32,
    shared_memory: Option<SharedMemory>,
    done: VecDeque<Completion>,
    posted: HashMap<Envelope, VecDeque<u32>>,
    unexpected: HashMap<Envelope, VecDeque<Arrived>>,
    sequences_in: HashMap<u32, Sequence>,
    sequences_out: HashMap<u32, u32>,
    /// Bytes of short messages to each receiver that have not come.
    copied_out: HashMap<u32, u64>,
}

/// See the module.
pub struct Messages {
    protocol: MessageProtocol,
    flows: MessageFlows<Kind>,
    places: Vec<Place>,
}

impl Messages {
    /// Most messages of a process that are under way at a time: what transports make room for.
    pub const MOST_AT_A_TIME: u32 = 1 << 16;

    /// The programs of `traffic`. Numbers of their flows begin at `base`.
    pub fn new(settings: &Settings, traffic: &Traffic, base: u32) -> Messages {
        let place = |(rank, program): (u32, &crate::apps::Program)| Place {
            rank: Rank::new(program.script.clone()).forever(program.forever),
            forever: program.forever,
            reported: false,
            host: program.at.host,
            shared_memory: settings.hosts.intra_node.map(|on| SharedMemory::new(on, rank)),
            done: VecDeque::new(),
            posted: HashMap::new(),
            unexpected: HashMap::new(),
            sequences_in: HashMap::new(),
            sequences_out: HashMap::new(),
            copied_out: HashMap::new(),
        };
        Messages {
            protocol: settings.protocol,
            flows: MessageFlows::new(traffic.programs.len(), base),
            places: (0..).zip(&traffic.programs).map(place).collect(),
        }
    }

    /// The ranks, to look at.
    pub fn ranks(&self) -> impl Iterator<Item = &Rank> {
        self.places.iter().map(|place| &place.rank)
    }

    /// What is to be said of ranks that have not come to their end if they never will: nothing is on its way, and nobody goes on
    /// by the clock.
    fn wait_for_ever(&self) -> Option<String> {
        let idle = !self.flows.is_carrying();
        let stuck = |place: &Place| {
            let near = place.shared_memory.as_ref().map_or(Time::NEVER, SharedMemory::next_timeout);
            place.rank.is_done() || place.done.is_empty() && place.rank.wakes_at().min(near) == Time::NEVER
        };
        if !idle || !self.places.iter().all(stuck) {
            return None;
        }
        let open = (0..).zip(&self.places).filter(|(_, place)| !place.rank.is_done());
        let open: Vec<u32> = open.map(|(rank, _)| rank).collect();
        let told: Vec<String> = open.iter().take(MOST_TOLD).map(|&rank| self.waits_for(rank)).collect();
        let more = match open.len() - told.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        Some(format!(
            "{} ranks of programs wait for each other for ever, or for some that have come to their end: {}{more}. Nothing is on \
             its way, so a larger `end_us` does not help: the program's sends and receives do not match",
            open.len(),
            told.join("; ")
        ))
    }

    /// What a rank waits for that has nothing on its way.
    fn waits_for(&self, rank: u32) -> String {
        let place = &self.places[rank as usize];
        let posted = place.posted.iter().filter(|(_, requests)| !requests.is_empty());
        if let Some((from, tag)) = posted.map(|(envelope, _)| *envelope).min() {
            return format!("rank {rank} for a message with tag {tag} of rank {from}");
        }
        let asks = |(to, place): (u32, &Place)| {
            let unmet = place.unexpected.iter().filter(|((from, _), arrived)| {
                *from == rank && arrived.iter().any(|arrived| matches!(arrived, Arrived::Asks { .. }))
            });
            Some((to, unmet.map(|((_, tag), _)| *tag).min()?))
        };
        match (0..).zip(&self.places).find_map(asks) {
            Some((to, tag)) => format!("rank {rank} until rank {to} receives its message with tag {tag}"),
            None => format!("rank {rank} for another one of its host"),
        }
    }

    /// Messages to programs of the same host have come as soon as they are sent; when they may be received is theirs to say.
    fn carry_near(&mut self, rank: u32) {
        while let Some((to, near)) =
            self.places[rank as usize].shared_memory.as_mut().and_then(SharedMemory::poll_outgoing)
        {
            let at = near.at;
            let other = &mut self.places[to as usize];
            other.shared_memory.as_mut().expect("all programs of a host have it, or none").arrives(near);
            self.flows.set_alarm(to, Ps::of(at), Ps::ZERO);
        }
    }

    fn complete(&mut self, rank: u32, request: u32, failed: Option<&'static str>) {
        self.places[rank as usize].done.push_back(Completion { request, failed });
    }

    /// An envelope has come: it and those that waited for it match, in order.
    fn arrive(&mut self, from: u32, to: u32, sequence: u32, tag: u64, what: Arrived) {
        let sequences = self.places[to as usize].sequences_in.entry(from).or_default();
        sequences.early.insert(sequence, (tag, what));
        while let Some((tag, what)) = self.next_in_order(from, to) {
            let place = &mut self.places[to as usize];
            match place.posted.get_mut(&(from, tag)).and_then(VecDeque::pop_front) {
                Some(recv) => self.matched(from, to, what, recv),
                None => place.unexpected.entry((from, tag)).or_default().push_back(what),
            }
        }
    }

    fn next_in_order(&mut self, from: u32, to: u32) -> Option<(u64, Arrived)> {
        let sequences = self.places[to as usize].sequences_in.get_mut(&from)?;
        let next = sequences.early.remove(&sequences.next)?;
        sequences.next = sequences.next.wrapping_add(1);
        Some(next)
    }

    fn matched(&mut self, from: u32, to: u32, what: Arrived, recv: u32) {
        match what {
            Arrived::Eager => self.complete(to, recv, None),
            Arrived::Asks { request, bytes } => {
                let header = self.protocol.header;
                self.flows.begin(to, from, Kind::Agree { request, recv, bytes }, header);
            }
        }
    }
}

impl Programs for Messages {
    fn advance(&mut self, now: Ps, rank: u32) -> bool {
        self.flows.looks(rank, now);
        let mut own = std::mem::take(&mut self.places[rank as usize].rank);
        own.advance(now.time(), &mut Port { messages: self, rank });
        self.places[rank as usize].rank = own;
        self.carry_near(rank);
        let place = &mut self.places[rank as usize];
        let shared = place.shared_memory.as_ref().map_or(Time::NEVER, SharedMemory::next_timeout);
        let wakes_at = place.rank.wakes_at().min(shared);
        self.flows.set_alarm(rank, Ps::of(wakes_at), now);
        let place = &mut self.places[rank as usize];
        let ended = place.rank.is_done() && !place.reported && !place.forever;
        place.reported |= ended;
        ended
    }

    fn poll_outgoing(&mut self) -> Option<OutgoingMessage> {
        self.flows.poll_outgoing()
    }

    fn poll_alarm(&mut self) -> Option<(Ps, u32)> {
        self.flows.poll_alarm()
    }

    fn sent(&mut self, number: u32) -> Option<u32> {
        let (from, to, &mut kind) = self.flows.sent(number);
        let request = match kind {
            Kind::Data { request, .. } | Kind::Put { request } => request,
            Kind::Eager { bytes, request, .. } => {
                if let Some(copied) = self.places[from as usize].copied_out.get_mut(&to) {
                    *copied -= bytes;
                }
                request?
            }
            _ => return None,
        };
        self.complete(from, request, None);
        self.flows.call(from)
    }

    fn received(&mut self, _: Ps, rank: u32, inbox: u32) -> Option<u32> {
        let (from, to, &mut kind) = self.flows.received(rank, inbox);
        match kind {
            Kind::Eager { sequence, tag, .. } => self.arrive(from, to, sequence, tag, Arrived::Eager),
            Kind::Ask { sequence, tag, bytes, request } => {
                self.arrive(from, to, sequence, tag, Arrived::Asks { request, bytes })
            }
            Kind::Agree { request, recv, bytes } => {
                self.flows.begin(to, from, Kind::Data { request, recv }, bytes)
            }
            Kind::Data { recv, .. } => self.complete(to, recv, None),
            Kind::Got { request } => self.complete(to, request, None),
            // The program here takes no part.
            Kind::Put { .. } => return None,
            Kind::Get { request, bytes } => self.flows.begin(to, from, Kind::Got { request }, bytes.max(1)),
        }
        self.flows.call(to)
    }

    fn failed(&mut self, number: u32, why: &'static str) -> Option<u32> {
        let (from, to, &kind) = self.flows.get(number);
        match kind {
            Kind::Data { request, .. }
            | Kind::Ask { request, .. }
            | Kind::Put { request }
            | Kind::Get { request, .. } => {
                self.complete(from, request, Some(why));
                self.flows.call(from)
            }
            Kind::Got { request } => {
                self.complete(to, request, Some(why));
                self.flows.call(to)
            }
            Kind::Agree { recv, .. } => {
                self.complete(from, recv, Some(why));
                self.flows.call(from)
            }
            // Its sender has forgotten it: the receiver waits in vain, and the run says so at its end.
            Kind::Eager { .. } => self.flows.call(to),
        }
    }

    fn complaints(&self, now: Ps) -> Vec<String> {
        let failed = self.places.iter().zip(0..).find_map(|(place, rank)| {
            let (step, why) = place.rank.failed()?;
            Some(format!("rank {rank} fails at {step:?}: {why}"))
        });
        let open = self.places.iter().filter(|place| !place.forever && !place.rank.is_done()).count();
        let unfinished = (open > 0).then(|| {
            if let Some(waiting) = self.wait_for_ever() {
                return waiting;
            }
            let now = now.as_micros();
            format!("{open} ranks of programs unfinished when the run ends at {now} us: a larger `end_us` gives them more time")
        });
        failed.into_iter().chain(unfinished).collect()
    }

    fn is_carrying(&self) -> bool {
        self.flows.is_carrying()
    }

    fn scripts(&self) -> Option<&Messages> {
        Some(self)
    }
}

/// What a rank sees of it.
struct Port<'a> {
    messages: &'a mut Messages,
    rank: u32,
}

impl Port<'_> {
    fn near(&mut self, rank: u32) -> Option<&mut SharedMemory> {
        let here = self.messages.places[rank as usize].host == self.messages.places[self.rank as usize].host;
        self.messages.places[self.rank as usize].shared_memory.as_mut().filter(|_| here)
    }
}

impl Messaging for Port<'_> {
    fn send(&mut self, now: Time, to: u32, tag: u64, bytes: u64, request: u32) -> bool {
        if let Some(shared_memory) = self.near(to) {
            shared_memory.send(now, to, tag, bytes, request);
            return true;
        }
        let (from, messages) = (self.rank, &mut *self.messages);
        let next = messages.places[from as usize].sequences_out.entry(to).or_default();
        let sequence = *next;
        *next = next.wrapping_add(1);
        let MessageProtocol { eager_limit, eager_buffer, header } = messages.protocol;
        if bytes <= eager_limit {
            let copied = messages.places[from as usize].copied_out.entry(to).or_default();
            *copied += bytes;
            let request = (*copied > eager_buffer).then_some(request).or_else(|| {
                messages.complete(from, request, None);
                None
            });
            messages.flows.begin(from, to, Kind::Eager { sequence, tag, bytes, request }, bytes + header);
        } else {
            messages.flows.begin(from, to, Kind::Ask { sequence, tag, bytes, request }, header);
        }
        true
    }

    fn recv(&mut self, now: Time, from: u32, tag: u64, _bytes: u64, request: u32) -> bool {
        if let Some(shared_memory) = self.near(from) {
            shared_memory.recv(now, from, tag, request);
            return true;
        }
        let place = &mut self.messages.places[self.rank as usize];
        match place.unexpected.get_mut(&(from, tag)).and_then(VecDeque::pop_front) {
            Some(what) => self.messages.matched(from, self.rank, what, request),
            None => place.posted.entry((from, tag)).or_default().push_back(request),
        }
        true
    }

    fn put(&mut self, now: Time, to: u32, bytes: u64, request: u32) -> bool {
        match self.near(to) {
            Some(shared_memory) => shared_memory.copy(now, bytes, request),
            None => {
                let bytes = bytes + self.messages.protocol.header;
                self.messages.flows.begin(self.rank, to, Kind::Put { request }, bytes);
            }
        }
        true
    }

    fn get(&mut self, now: Time, from: u32, bytes: u64, request: u32) -> bool {
        match self.near(from) {
            Some(shared_memory) => shared_memory.copy(now, bytes, request),
            None => {
                let header = self.messages.protocol.header;
                self.messages.flows.begin(self.rank, from, Kind::Get { request, bytes }, header);
            }
        }
        true
    }

    fn poll(&mut self, now: Time) -> Option<Completion> {
        let place = &mut self.messages.places[self.rank as usize];
        let near = place.shared_memory.as_mut().and_then(|shared_memory| shared_memory.poll(now));
        if let Some(request) = near {
            return Some(Completion { request, failed: None });
        }
        place.done.pop_front()
    }
}
