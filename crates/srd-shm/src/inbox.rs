//! The receiving end: a segment, the lanes into it, and which of them to look at.
//!
//! # News
//!
//! A lane with something new must be found without looking at all of them. A sender that has published a record loads the
//! bit of its lane in `Signals::news` and sets it if it is not set. The owner looks at every lane whose bit is set, at each
//! poll, and leaves the bit set while the lane is busy: then the sender only loads, and the owner sees the record in the
//! ring itself. A lane that has had nothing for a while cools: the owner clears its bit, looks once more, and forgets it.
//!
//! Nothing is missed, because these four are sequentially consistent and so are in one order for all: the sender stores
//! the record's word, then loads the bit; the owner clears the bit, then loads the word. If the sender's load is before
//! the clearing, its store is, too, and the owner's last look sees it. Else the sender sees a cleared bit and sets it.
//!
//! # Sleep
//!
//! Likewise: the owner stores `asleep`, then looks at its lanes and at all bits. The sender stores the word, maybe sets
//! the bit, then loads `asleep`. One of the two sees the other: either the owner does not sleep, or the sender knows that
//! it must wake it, by means that are not ours. To be told twice does no harm; so `asleep` is cleared by the owner alone.
//! A sender that dies between its store and the wake-up it owes leaves a sleeper with a message: who sleeps without any
//! limit calls [`Inbox::sweep`] now and then, which finds it.

use crate::address::Address;
use crate::lane::{Lane, Origin};
use crate::layout::{FIRST_SENDER, Header, Shape, State};
use crate::loans::Loans;
use crate::process_identity::ProcessIdentity;
use crate::reason::{Damage, NoLane, WhyEnded};
use crate::ring::{self, Reader};
use crate::segment::{Segment, clear_away};
use crate::sync::{AtomicU64, LEAST_LOOKS, LOOKS, Ordering};
use crate::sys;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

/// Most records taken from a lane before the next one's turn.
const TURN: usize = 32;
/// Most slots that one sweep looks at.
const SWEEP: u16 = 32;

/// How large an inbox is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Most senders at a time, 1 to 256. Each costs memory only while it is there.
    pub lanes: u16,
    /// Bytes between a sender and this endpoint: a power of two from 4 KiB to 16 MiB. A record takes at most a quarter.
    pub ring_bytes: u32,
    /// Where the kernel confines copies between processes to ancestors (Yama), permit them to all of the user's.
    pub permit_copies: bool,
    /// Peers reach the endpoint by its address alone ([`crate::Lane::peer_is_well_known`]).
    pub well_known: bool,
}

impl Default for Options {
    /// 256 lanes of 128 KiB: 2,000 short messages, or four of the longest, between two looks of the receiver, and half of
    /// a usual second-level cache at most.
    fn default() -> Options {
        Options { lanes: 256, ring_bytes: 1 << 17, permit_copies: true, well_known: false }
    }
}

impl Options {
    /// The longest record that a lane into such an inbox takes.
    pub fn max_record(&self) -> usize {
        ring::max_record(self.ring_bytes as usize)
    }
}

/// Who sends on a lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sender {
    /// The endpoint.
    pub address: Address,
    /// Its incarnation.
    pub epoch: u32,
    /// The lane, below [`Options::lanes`]. Another sender may have it once this one has ended.
    pub lane: u16,
}

/// A lane has ended: no more will come from that sender on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Whose it was.
    pub sender: Sender,
    /// Why.
    pub why: WhyEnded,
}

/// A lane with somebody at its other end.
#[derive(Debug)]
struct Inbound {
    sender: Sender,
    process: ProcessIdentity,
    generation: u32,
    reader: Reader,
    /// Looks in vain since the last record.
    idle: u32,
    /// The sender's process has ended.
    dead: bool,
}

/// An endpoint's segment: receives what others of this host send to the endpoint, and connects lanes to theirs. Belongs to
/// the process that opened it; gone when dropped.
#[derive(Debug)]
pub struct Inbox {
    dir: PathBuf,
    segment: Segment,
    origin: Origin,
    /// By lane.
    inbound: Vec<Option<Box<Inbound>>>,
    /// Lanes that are looked at, and the same as bits.
    watched: Vec<u16>,
    watched_bits: [u64; 4],
    /// Which of `watched` is first, so that no lane always is.
    turn: usize,
    ended: VecDeque<Ended>,
    /// Where the next sweep begins.
    sweep_at: u16,
    /// What a peer reads in our memory to know that it is ours.
    token: Box<AtomicU64>,
}

/// What [`Inbox::receive`] has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// How many records.
    pub records: usize,
    /// Whether every sender that is looked at had nothing more when its turn was over.
    pub all: bool,
}

impl Inbox {
    /// Opens the segment of the endpoint `own` in `dir`, which has to be a file system in memory that processes of this
    /// host share: `/dev/shm`. `epoch` tells this incarnation of the endpoint from others. Files of dead processes of this
    /// user are cleared away.
    ///
    /// # Errors
    ///
    /// `AddrInUse`: a living process has the segment of that endpoint. Others: what the system said; most often the
    /// directory is not there, or full.
    pub fn open(dir: &Path, own: Address, epoch: u32, options: Options) -> io::Result<Inbox> {
        let shape = Shape { lanes: options.lanes, ring_bytes: options.ring_bytes };
        if !shape.is_possible() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("no inbox has {} lanes of {} bytes; see Options", options.lanes, options.ring_bytes),
            ));
        }
        let process = ProcessIdentity::this()?;
        clear_away(dir, &process);
        if options.permit_copies {
            sys::permit_copies();
        }
        let token = Box::new(AtomicU64::new(token(&own, epoch, &process)));
        let header = Header {
            address: own,
            epoch,
            process,
            shape,
            token_at: token.as_ptr() as u64,
            token: token.load(Ordering::Relaxed),
            well_known: options.well_known,
        };
        Ok(Inbox {
            segment: Segment::create(dir, header)?,
            dir: dir.to_owned(),
            origin: Origin { address: own, epoch, process },
            inbound: (0..options.lanes).map(|_| None).collect(),
            watched: Vec::with_capacity(options.lanes.into()),
            watched_bits: [0; 4],
            turn: 0,
            ended: VecDeque::new(),
            sweep_at: 0,
            token,
        })
    }

    /// The endpoint.
    pub fn address(&self) -> Address {
        self.origin.address
    }

    /// What this endpoint lends to the copies of its peers ([`Lane::read`]): nothing yet.
    pub fn loans(&self) -> Loans {
        Loans::new(self.segment.loans())
    }

    /// Connects a lane to the endpoint `to`. Keep one per peer: what goes through two lanes has no order.
    pub fn connect(&self, to: Address) -> Result<Lane, NoLane> {
        Lane::connect(&self.dir, &self.origin, &to)
    }

    /// Gives up to `budget` records to `each`, those of one sender in the order they were sent. The bytes are those in the
    /// ring: they are good until `each` returns.
    #[inline]
    pub fn receive(&mut self, budget: usize, mut each: impl FnMut(&Sender, &[u8])) -> Taken {
        self.notice();
        let watched = self.watched.len();
        if watched == 0 {
            return Taken { records: 0, all: true };
        }
        self.turn = if self.turn + 1 < watched { self.turn + 1 } else { 0 };
        let (mut left, mut cooled, mut all) = (budget, false, true);
        let mut at = self.turn;
        for _ in 0..watched {
            if left == 0 {
                all = false;
                break;
            }
            let lane = self.watched[at];
            at = if at + 1 < watched { at + 1 } else { 0 };
            let Some(inbound) = &mut self.inbound[usize::from(lane)] else { continue };
            if !inbound.reader.has_next() {
                inbound.idle = inbound.idle.saturating_add(1);
                cooled |= inbound.idle >= LEAST_LOOKS && inbound.idle >= patience(watched);
                continue;
            }
            let most = left.min(TURN);
            let (taken, end) = drain(inbound, &self.segment, most, &mut each);
            left -= taken;
            all &= taken < most;
            inbound.idle = 0;
            if let Err(damage) = end {
                cooled = true;
                self.refuse(lane, damage);
            }
        }
        if cooled {
            self.cool(patience(watched));
        }
        Taken { records: budget - left, all }
    }

    /// Whether [`Inbox::receive`] would find something. Costs a load or two for a sender that was heard of lately, and a few
    /// for all others.
    #[inline]
    pub fn has_news(&self) -> bool {
        let waits = |&lane: &u16| {
            self.inbound[usize::from(lane)].as_ref().is_some_and(|inbound| inbound.reader.has_next())
        };
        self.watched.iter().any(waits) || self.has_new_lanes()
    }

    /// Whether a lane has news that is not looked at.
    #[inline]
    fn has_new_lanes(&self) -> bool {
        let news = self.segment.signals().news.iter().zip(self.watched_bits);
        news.fold(0, |new, (news, watched)| new | news.load(Ordering::SeqCst) & !watched) != 0
    }

    /// Says that this process is about to sleep. True: nothing has come, and whoever sends from now on finds
    /// [`Lane::peer_asleep`] and wakes it. False: something has come; do not sleep.
    #[must_use = "a process that sleeps though something has come may sleep for ever"]
    pub fn fall_asleep(&mut self) -> bool {
        self.segment.signals().asleep.store(1, Ordering::SeqCst);
        if self.has_news() {
            self.wake_up();
            return false;
        }
        true
    }

    /// Says that this process looks by itself again.
    pub fn wake_up(&mut self) {
        self.segment.signals().asleep.store(0, Ordering::SeqCst);
    }

    /// Looks at the next lanes for senders that died, and for what they left without a word. To be called every 100 ms or
    /// so, by a sleeper as well; it costs some 10 us for each of up to 32 lanes in use.
    pub fn sweep(&mut self) {
        let lanes = self.segment.header.shape.lanes;
        for _ in 0..SWEEP.min(lanes) {
            let lane = self.sweep_at;
            self.sweep_at = (lane + 1) % lanes;
            let (state, generation) = State::of(self.segment.slot(lane).state.load(Ordering::Acquire));
            if state == State::Free {
                continue;
            }
            let held = sys::is_locked(&self.segment.file, FIRST_SENDER + u64::from(lane)).unwrap_or(true);
            if state == State::Refused {
                if !held && !self.nobody_asks() {
                    self.free(lane, generation);
                }
                continue;
            }
            if self.inbound[usize::from(lane)].is_none() && !self.adopt(lane) {
                continue;
            }
            let this = self.origin.process;
            let Some(inbound) = &mut self.inbound[usize::from(lane)] else { continue };
            inbound.dead |= !held || inbound.process.has_ended(&this);
            if inbound.dead || state == State::Closing || inbound.reader.has_next() {
                // It is looked at, and forgotten as soon as nothing is left.
                inbound.idle = u32::MAX;
                self.watch(lane);
            }
        }
    }

    /// The next lane that has ended, with the reason.
    pub fn next_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// Whether so many lanes have ended unheard that no more may: a lane waits for that, and its next sender with it.
    fn nobody_asks(&self) -> bool {
        self.ended.len() > self.inbound.len()
    }

    /// How many senders there are.
    pub fn senders(&self) -> usize {
        self.inbound.iter().flatten().count()
    }

    /// Begins to look at lanes whose bit is new.
    #[inline]
    fn notice(&mut self) {
        if self.has_new_lanes() {
            self.notice_them();
        }
    }

    #[cold]
    fn notice_them(&mut self) {
        for word in 0..self.watched_bits.len() {
            let news = self.segment.signals().news[word].load(Ordering::Acquire);
            let new = news & !self.watched_bits[word];
            if new != 0 {
                self.notice_these(word, new);
            }
        }
    }

    fn notice_these(&mut self, word: usize, mut new: u64) {
        while new != 0 {
            let bit = new.trailing_zeros() as u16;
            new &= new - 1;
            let lane = word as u16 * 64 + bit;
            // A lane that was left, or none at all: the bit goes. A sender that opens it meanwhile is seen by the second
            // look, or sets the bit again.
            let open = lane < self.segment.header.shape.lanes
                && (self.adopt(lane) || {
                    self.clear_news(lane);
                    self.adopt(lane)
                });
            if open {
                self.watch(lane);
            } else {
                self.clear_news(lane);
            }
        }
    }

    /// Takes note of the sender of a lane. False: there is none.
    fn adopt(&mut self, lane: u16) -> bool {
        if self.inbound[usize::from(lane)].is_some() {
            return true;
        }
        let slot = self.segment.slot(lane);
        let (State::Open | State::Closing, generation) = State::of(slot.state.load(Ordering::SeqCst)) else {
            return false;
        };
        let half = |i: usize| u128::from(slot.ip[i].load(Ordering::Relaxed));
        let endpoint = slot.endpoint.load(Ordering::Relaxed);
        let address = Address {
            ip: (half(0) | half(1) << 64).to_be_bytes(),
            port: (endpoint >> 16) as u16,
            qpn: endpoint as u16,
        };
        let (mapping, at) = self.segment.ring_of_owner(lane);
        let reader = Reader::new(mapping, at, self.segment.header.shape.ring_bytes as usize);
        let process = ProcessIdentity {
            pid: slot.pid.load(Ordering::Relaxed),
            started: slot.started.load(Ordering::Relaxed),
            namespace: slot.namespace.load(Ordering::Relaxed),
        };
        let sender = Sender { address, epoch: slot.epoch.load(Ordering::Relaxed), lane };
        self.inbound[usize::from(lane)] =
            Some(Box::new(Inbound { sender, process, generation, reader, idle: 0, dead: false }));
        true
    }

    /// Looks at a lane from now on, with its bit set.
    fn watch(&mut self, lane: u16) {
        let (word, bit) = (usize::from(lane / 64), 1 << (lane % 64));
        if self.watched_bits[word] & bit == 0 {
            self.watched_bits[word] |= bit;
            self.watched.push(lane);
        }
        self.segment.signals().news[word].fetch_or(bit, Ordering::SeqCst);
    }

    fn clear_news(&self, lane: u16) {
        let (word, bit) = (usize::from(lane / 64), 1u64 << (lane % 64));
        self.segment.signals().news[word].fetch_and(!bit, Ordering::SeqCst);
    }

    /// Forgets lanes that have had nothing for long, and ends those whose sender has.
    #[cold]
    fn cool(&mut self, patience: u32) {
        let mut watched = std::mem::take(&mut self.watched);
        watched.retain(|&lane| !self.forget(lane, patience));
        self.watched = watched;
    }

    /// True if the lane is not looked at any more.
    fn forget(&mut self, lane: u16, patience: u32) -> bool {
        if let Some(inbound) = &self.inbound[usize::from(lane)] {
            if inbound.idle < patience {
                return false;
            }
            self.clear_news(lane);
            // The state first: what was sent before the lane was closed is seen by the look that follows.
            let (state, _) = State::of(self.segment.slot(lane).state.load(Ordering::SeqCst));
            let (dead, generation, sender) = (inbound.dead, inbound.generation, inbound.sender);
            let why = match state {
                _ if inbound.reader.has_next() => {
                    self.watch(lane);
                    return false;
                }
                State::Closing => Some(WhyEnded::Closed),
                _ if dead => Some(WhyEnded::Died),
                _ => None,
            };
            if let Some(why) = why {
                if self.nobody_asks() {
                    return false;
                }
                self.ended.push_back(Ended { sender, why });
                self.inbound[usize::from(lane)] = None;
                self.free(lane, generation);
            }
        } else {
            self.clear_news(lane);
        }
        self.watched_bits[usize::from(lane / 64)] &= !(1 << (lane % 64));
        true
    }

    /// Reads no more from a lane. It is free again once its sender has let go of it.
    #[cold]
    fn refuse(&mut self, lane: u16, damage: Damage) {
        let Some(inbound) = self.inbound[usize::from(lane)].take() else { return };
        self.segment.slot(lane).state.store(State::Refused.with(inbound.generation), Ordering::SeqCst);
        self.ended.push_back(Ended { sender: inbound.sender, why: WhyEnded::Damaged(damage) });
    }

    /// Makes a lane free for the next sender.
    fn free(&self, lane: u16, generation: u32) {
        let slot = self.segment.slot(lane);
        slot.head.0.store(0, Ordering::Relaxed);
        slot.state.store(State::Free.with(generation.wrapping_add(1)), Ordering::SeqCst);
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // A forked child drops its copy; the segment is the parent's.
        if self.origin.process.pid != std::process::id() {
            return;
        }
        self.segment.signals().closed.store(1, Ordering::SeqCst);
        self.token.store(0, Ordering::SeqCst);
        self.loans().end_all();
        // If the name stays, the next process of this user clears it away: the lock goes with the file.
        let _ = self.segment.remove(&self.dir);
    }
}

/// Looks in vain after which a lane is forgotten where so many are looked at.
fn patience(watched: usize) -> u32 {
    (LOOKS / watched as u32).max(LEAST_LOOKS)
}

/// Gives up to `most` records of a lane to `each`. Answers how many, and whether the lane is in order.
#[inline]
fn drain(
    inbound: &mut Inbound,
    segment: &Segment,
    most: usize,
    each: &mut impl FnMut(&Sender, &[u8]),
) -> (usize, Result<(), Damage>) {
    let head = &segment.slot(inbound.sender.lane).head.0;
    for taken in 0..most {
        match inbound.reader.next() {
            Ok(Some(bytes)) => each(&inbound.sender, bytes),
            Ok(None) => return (taken, Ok(())),
            Err(damage) => return (taken, Err(damage)),
        }
        head.store(inbound.reader.position(), Ordering::Release);
    }
    (most, Ok(()))
}

/// A number that another process hardly has where this one has it. It need not be secret: whoever can read it may.
fn token(own: &Address, epoch: u32, process: &ProcessIdentity) -> u64 {
    let ip = u128::from_be_bytes(own.ip);
    let words = [
        ip as u64,
        (ip >> 64) as u64,
        u64::from(own.port) << 48 | u64::from(own.qpn) << 32 | u64::from(epoch),
        u64::from(process.pid),
        process.started,
    ];
    // The mixing step of SplitMix64 (Steele, Lea, Flood 2014).
    let mix = |sum: u64, word: u64| {
        let mut z = sum.wrapping_add(word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    // Never zero, which is what memory holds that nobody has written.
    words.into_iter().fold(0, mix) | 1
}
