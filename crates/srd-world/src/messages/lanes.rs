//! What processes of one host have in shared memory, as a model of `srd-shm` and of what the provider does with it: each
//! connection is a ring of its own, which outlives its sender's process until what is in it has been read; a message may go
//! into the ring of a process that has died a few milliseconds before; and a process that sleeps has to be woken over the
//! network.

use crate::messages::oracle::Party;
use crate::messages::process::identity;
use srd_msg::{Lane, LaneSend, LaneTraffic, Loans};
use srd_wire::{Nanos, Time};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// The provider's `PRESUMED_ALIVE`: nobody looks for so long whether a process lives.
const PRESUMED_ALIVE: Nanos = Nanos::from_millis(5);

/// Bytes that a record costs beside its own.
const RECORD_COST: usize = 16;

/// What became of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum End {
    /// It is there.
    #[default]
    Open,
    /// It was closed.
    Closed,
    /// Its process was killed.
    Killed,
}

/// What an endpoint has in shared memory.
#[derive(Clone, Copy, Default)]
struct Post {
    end: End,
    asleep: bool,
    /// Its process is not there any more, nor is what could be read of its memory.
    unreadable: bool,
}

/// A connection.
struct Ring {
    from: Party,
    to: Party,
    /// The sender has taken leave of it.
    left: bool,
    records: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// Bytes to be copied from one process to another.
#[derive(Clone, Copy, Debug)]
pub struct Copying {
    /// Of whom.
    pub from: Party,
    /// Where they are.
    pub there: u64,
    /// Where they go.
    pub here: u64,
    /// How many.
    pub len: u64,
}

/// See the module.
#[derive(Default)]
pub struct Segments {
    posts: Vec<Post>,
    rings: Vec<Ring>,
    /// What is lent, by whom.
    loans: BTreeSet<(Party, u32)>,
    /// Endpoints to which something was sent.
    pub news: Vec<Party>,
    /// What is to be copied as soon as the call has returned in which it was asked for.
    pub copies: Vec<Copying>,
}

/// Shared, as the memory that it models is.
#[derive(Clone, Default)]
pub struct SharedMemory(Arc<Mutex<Segments>>);

impl SharedMemory {
    /// What is there.
    pub fn lock(&self) -> MutexGuard<'_, Segments> {
        self.0.lock().expect("nobody panics while he has it")
    }

    /// What an endpoint lends. `honest`: otherwise it does not say when a loan ends.
    pub fn loans(&self, of: Party, honest: bool) -> Box<dyn Loans> {
        Box::new(Lends { memory: self.clone(), of, honest })
    }

    /// A connection between two endpoints.
    pub fn connect(&self, from: Party, to: Party, ring_bytes: usize, copies: bool) -> Option<Box<dyn Lane>> {
        let mut segments = self.lock();
        if segments.end_of(to) != End::Open {
            return None;
        }
        segments.rings.push(Ring { from, to, left: false, records: VecDeque::new(), bytes: 0 });
        let ring = segments.rings.len() - 1;
        Some(Box::new(ToRing {
            memory: self.clone(),
            ring,
            to,
            ring_bytes,
            copies,
            seen: Time(0),
            traffic: LaneTraffic::default(),
        }))
    }
}

impl Segments {
    /// A new endpoint.
    pub fn open(&mut self, party: Party) {
        if self.posts.len() <= party.0 {
            self.posts.resize_with(party.0 + 1, Post::default);
        }
    }

    /// What became of an endpoint.
    pub fn end_of(&self, party: Party) -> End {
        self.posts[party.0].end
    }

    /// An endpoint ends.
    pub fn end(&mut self, party: Party, end: End) {
        self.posts[party.0].end = end;
        self.rings.iter_mut().filter(|ring| ring.to == party).for_each(|ring| ring.records.clear());
        if end == End::Closed {
            self.rings.iter_mut().filter(|ring| ring.from == party).for_each(|ring| ring.left = true);
        }
    }

    /// The process of an endpoint has died, which may have been closed before.
    pub fn forget_memory(&mut self, party: Party) {
        self.posts[party.0].unreadable = true;
    }

    /// Whether an endpoint looks by itself.
    pub fn set_asleep(&mut self, party: Party, asleep: bool) {
        self.posts[party.0].asleep = asleep;
    }

    /// Whether something waits for an endpoint.
    pub fn has_news(&self, party: Party) -> bool {
        self.rings.iter().any(|ring| ring.to == party && !ring.records.is_empty())
    }

    /// The rings of an endpoint.
    pub fn rings_of(&self, party: Party) -> Vec<usize> {
        (0..self.rings.len()).filter(|&ring| self.rings[ring].to == party).collect()
    }

    /// The next record of a ring, and who has sent it.
    pub fn take(&mut self, ring: usize) -> Option<(Party, Vec<u8>)> {
        let ring = &mut self.rings[ring];
        let record = ring.records.pop_front()?;
        ring.bytes -= record.len() + RECORD_COST;
        Some((ring.from, record))
    }

    /// A connection whose sender has been killed and of which everything has been read, if there is one; each once.
    pub fn next_ended(&mut self, party: Party) -> Option<Party> {
        let posts = &self.posts;
        let ended = |ring: &&mut Ring| {
            ring.to == party && !ring.left && ring.records.is_empty() && posts[ring.from.0].end == End::Killed
        };
        let ring = self.rings.iter_mut().find(ended)?;
        ring.left = true;
        Some(ring.from)
    }
}

/// The sender's end of a connection.
struct ToRing {
    memory: SharedMemory,
    ring: usize,
    to: Party,
    ring_bytes: usize,
    copies: bool,
    /// When it was last looked whether the process lives.
    seen: Time,
    traffic: LaneTraffic,
}

impl Lane for ToRing {
    fn longest(&self) -> usize {
        self.ring_bytes / 2
    }

    fn identity(&self) -> u32 {
        identity(self.to).number.get()
    }

    fn send(&mut self, now: Time, parts: &[&[u8]]) -> LaneSend {
        let mut segments = self.memory.lock();
        let Post { end, asleep, .. } = segments.posts[self.to.0];
        let looks = now.since(self.seen) > PRESUMED_ALIVE;
        if looks {
            self.seen = now;
        }
        match end {
            End::Closed => return LaneSend::Gone,
            End::Killed if looks => return LaneSend::Gone,
            End::Killed | End::Open => {}
        }
        let record = parts.concat();
        let bytes = record.len() + RECORD_COST;
        let ring = &mut segments.rings[self.ring];
        if ring.bytes + bytes > self.ring_bytes {
            return LaneSend::Full;
        }
        ring.bytes += bytes;
        self.traffic.tx_msgs += 1;
        self.traffic.tx_bytes += record.len() as u64;
        ring.records.push_back(record);
        segments.news.push(self.to);
        LaneSend::Sent { asleep }
    }

    fn can_read(&self) -> bool {
        self.copies
    }

    fn read(&mut self, key: u32, there: u64, here: u64, len: u64) -> bool {
        let mut segments = self.memory.lock();
        if segments.posts[self.to.0].unreadable || !segments.loans.contains(&(self.to, key)) {
            return false;
        }
        // That of an endpoint that was closed can be read as well, which is more than there is: only its keys say no.
        segments.copies.push(Copying { from: self.to, there, here, len });
        true
    }

    fn traffic(&self) -> LaneTraffic {
        self.traffic
    }
}

impl Drop for ToRing {
    fn drop(&mut self) {
        let mut segments = self.memory.lock();
        let ring = &mut segments.rings[self.ring];
        let from = ring.from;
        // Who is killed takes no leave.
        if segments.end_of(from) != End::Killed {
            segments.rings[self.ring].left = true;
        }
    }
}

/// The owner's side of what it lends. Copies are carried out at once here, so that no loan ends in the midst of one (which
/// `srd-races` tries).
struct Lends {
    memory: SharedMemory,
    of: Party,
    honest: bool,
}

impl Loans for Lends {
    fn lend(&mut self, key: u32) {
        self.memory.lock().loans.insert((self.of, key));
    }

    fn end(&mut self, key: u32) {
        if self.honest {
            self.memory.lock().loans.remove(&(self.of, key));
        }
    }
}
