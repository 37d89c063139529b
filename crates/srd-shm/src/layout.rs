//! What lies where in a segment.
//!
//! ```text
//! 0       header: who owns it; written before the file has a name, never after
//! 512     signals: which lanes have news, whether the owner sleeps, whether it has closed
//! 4096    keys of the memory that the owner lends to its peers' copies, 256 lines of 16
//! 20480   one slot of 128 bytes per lane: its state, who sends, how far the owner has read
//! ...     one ring per lane, each where a page begins; memory only once somebody sends there
//! ```
//!
//! All words are the host's: no other host ever sees them.

use crate::address::Address;
use crate::process_identity::ProcessIdentity;
use crate::reason::NoLane;
use crate::sync::{AtomicU32, AtomicU64, LOAN_LINES, LOANS};

/// `OpenSRDm`, and below it what must be equal on both sides.
const MAGIC: u64 = u64::from_le_bytes(*b"OpenSRDm");
/// Counts layouts that do not understand each other.
pub(crate) const VERSION: u64 = 4;

/// A cache line of every processor this runs on; records begin at multiples of it.
pub(crate) const LINE: usize = 64;
/// Most lanes of a segment: bits of [`Signals::news`].
pub(crate) const MOST_LANES: u16 = 256;
/// Smallest and largest ring.
pub(crate) const RING_BYTES: std::ops::RangeInclusive<u32> = 4096..=1 << 24;

const SIGNALS_AT: usize = 512;
const LOANS_AT: usize = 4096;
const SLOTS_AT: usize = LOANS_AT + (16 << 10);
/// Bytes of [`Slot`].
const SLOT_BYTES: usize = 128;

/// The byte of the file whose lock says that the owner lives.
pub(crate) const LIFE: u64 = 0;
/// The byte whose lock is held by who removes the file of a dead owner.
pub(crate) const BURIAL: u64 = 1;
/// The byte whose lock says that the sender of lane 0 lives; those of the others follow.
pub(crate) const FIRST_SENDER: u64 = 16;

/// How large a segment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Lanes.
    pub lanes: u16,
    /// Bytes of each ring, a power of two.
    pub ring_bytes: u32,
}

impl Shape {
    /// Whether there can be such a segment.
    pub fn is_possible(&self) -> bool {
        (1..=MOST_LANES).contains(&self.lanes)
            && RING_BYTES.contains(&self.ring_bytes)
            && self.ring_bytes.is_power_of_two()
    }

    /// Where the slot of a lane begins.
    #[inline]
    pub fn slot_at(&self, lane: u16) -> usize {
        SLOTS_AT + usize::from(lane) * SLOT_BYTES
    }

    /// Bytes before the rings, in whole pages of any size in use: one of 64 KiB, however many lanes there are.
    pub fn control_bytes(&self) -> usize {
        self.slot_at(self.lanes).next_multiple_of(1 << 16)
    }

    /// Where the ring of a lane begins.
    pub fn ring_at(&self, lane: u16) -> usize {
        // A page of 64 KiB is as small as some processors have them; a smaller ring has a page to itself.
        self.control_bytes() + usize::from(lane) * (self.ring_bytes as usize).next_multiple_of(1 << 16)
    }

    /// Bytes of the whole file.
    pub fn total_bytes(&self) -> usize {
        self.ring_at(self.lanes)
    }
}

/// Where the signals begin.
pub(crate) const fn signals_at() -> usize {
    SIGNALS_AT
}

/// Where the keys of what is lent begin.
pub(crate) const fn loans_at() -> usize {
    LOANS_AT
}

/// Who owns a segment. Constant while the file has a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// The endpoint.
    pub address: Address,
    /// Its incarnation.
    pub epoch: u32,
    /// Its process.
    pub process: ProcessIdentity,
    /// Lanes and rings.
    pub shape: Shape,
    /// Where the owner's memory holds `token`: whoever reads it there reads this process's memory.
    pub token_at: u64,
    /// A number hardly found there in another process.
    pub token: u64,
    /// Who knows its place alone may send to it; otherwise its incarnation must be known, too.
    pub well_known: bool,
}

const HEADER_WORDS: usize = 15;
/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = HEADER_WORDS * 8;

impl Header {
    /// As bytes of a file.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let ip = u128::from_be_bytes(self.address.ip);
        let words: [u64; HEADER_WORDS] = [
            MAGIC,
            VERSION,
            ip as u64,
            (ip >> 64) as u64,
            self.address.port.into(),
            self.address.qpn.into(),
            self.epoch.into(),
            self.process.pid.into(),
            self.process.started,
            self.process.namespace,
            self.shape.lanes.into(),
            self.shape.ring_bytes.into(),
            self.token_at,
            self.token,
            self.well_known.into(),
        ];
        let mut bytes = [0; HEADER_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Out of bytes of a file.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, NoLane> {
        let mut words =
            bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
        let mut next = || words.next().expect("as many words as a header has");
        fn narrow<T: TryFrom<u64>>(word: u64) -> Result<T, NoLane> {
            T::try_from(word).map_err(|_| NoLane::Damaged("a number is too large"))
        }
        if next() != MAGIC {
            return Err(NoLane::Damaged("it is no segment of OpenSRD"));
        }
        let version = next();
        if version != VERSION {
            return Err(NoLane::OtherVersion { theirs: version, ours: VERSION });
        }
        let ip = (u128::from(next()) | u128::from(next()) << 64).to_be_bytes();
        let header = Header {
            address: Address { ip, port: narrow(next())?, qpn: narrow(next())? },
            epoch: narrow(next())?,
            process: ProcessIdentity { pid: narrow(next())?, started: next(), namespace: next() },
            shape: Shape { lanes: narrow(next())?, ring_bytes: narrow(next())? },
            token_at: next(),
            token: next(),
            well_known: next() != 0,
        };
        if !header.shape.is_possible() {
            return Err(NoLane::Damaged("lanes of a size that cannot be"));
        }
        Ok(header)
    }
}

/// What senders and the owner tell each other about all lanes. The owner's polls read it, so senders write it only when
/// something changes.
#[repr(C, align(128))]
pub(crate) struct Signals {
    /// Bit of a lane: the owner will look into it without being told. Set by its sender, cleared by the owner.
    pub news: [AtomicU64; 4],
    /// 1: the owner sleeps; who sends wakes it.
    pub asleep: AtomicU32,
    /// 1: the owner takes nothing more.
    pub closed: AtomicU32,
}

/// The keys of one line of what the owner lends; 0 where there is none. Written by the owner alone.
#[repr(C, align(64))]
pub(crate) struct LoanLine(pub [AtomicU32; LOANS]);

/// All of them: see `loans.rs`.
#[repr(C)]
pub(crate) struct LoanTable(pub [LoanLine; LOAN_LINES]);

/// One lane. The first line changes when the lane does; the second with every record read.
#[repr(C, align(128))]
pub(crate) struct Slot {
    /// [`State`] and generation.
    pub state: AtomicU32,
    /// The sender's incarnation.
    pub epoch: AtomicU32,
    /// The sender's port (high half) and queue pair.
    pub endpoint: AtomicU32,
    /// The sender's process.
    pub pid: AtomicU32,
    /// When that started.
    pub started: AtomicU64,
    /// Its PID namespace.
    pub namespace: AtomicU64,
    /// The sender's host: low and high half.
    pub ip: [AtomicU64; 2],
    /// How far the owner has read, in bytes since the lane was opened.
    pub head: Head,
}

/// On a line of its own: the owner writes it with every record.
#[repr(C, align(64))]
pub(crate) struct Head(pub AtomicU64);

const _: () = assert!(HEADER_BYTES <= SIGNALS_AT && SIGNALS_AT + 128 <= LOANS_AT);

/// What a lane is in. The sender makes `Free` into `Open`, holding the lock of the lane, and `Open` into `Closing`; the
/// owner makes either into `Refused`, and anything into `Free` of the next generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Nobody sends.
    Free = 0,
    /// Somebody sends.
    Open = 1,
    /// The sender will send no more; what it has sent is still to be read.
    Closing = 2,
    /// What it has sent made no sense; nothing more is read.
    Refused = 3,
}

/// Generations count up to this and begin again.
pub(crate) const GENERATIONS: u32 = u32::MAX >> 2;

impl State {
    /// With the generation, as in [`Slot::state`].
    #[inline]
    pub fn with(self, generation: u32) -> u32 {
        (generation & GENERATIONS) << 2 | self as u32
    }

    /// Out of [`Slot::state`]: state and generation.
    pub fn of(word: u32) -> (State, u32) {
        let state = match word & 3 {
            0 => State::Free,
            1 => State::Open,
            2 => State::Closing,
            _ => State::Refused,
        };
        (state, word >> 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            address: Address { ip: std::array::from_fn(|i| i as u8), port: 0x4567, qpn: 0xabcd },
            epoch: 7,
            process: ProcessIdentity { pid: 12, started: 34, namespace: 56 },
            shape: Shape { lanes: 256, ring_bytes: 1 << 17 },
            token_at: 78,
            token: 90,
            well_known: true,
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        assert_eq!(Header::decode(&header().encode()).unwrap(), header());
    }

    #[test]
    fn headers_that_cannot_be_are_refused_by_name() {
        let with = |word: usize, value: u64| {
            let mut bytes = header().encode();
            bytes[word * 8..][..8].copy_from_slice(&value.to_ne_bytes());
            Header::decode(&bytes)
        };
        assert!(matches!(with(0, 1), Err(NoLane::Damaged(_))));
        assert!(matches!(with(1, 99), Err(NoLane::OtherVersion { theirs: 99, .. })));
        for (word, value) in [
            (4, 1 << 16),
            (5, 1 << 16),
            (10, 0),
            (10, 257),
            (11, 4095),
            (11, 5000),
            (11, 1 << 25),
            (11, 1 << 40),
        ] {
            assert!(matches!(with(word, value), Err(NoLane::Damaged(_))), "word {word} = {value}");
        }
    }

    #[test]
    fn slots_signals_and_loans_are_as_large_as_their_places() {
        assert_eq!((size_of::<Slot>(), size_of::<Signals>()), (SLOT_BYTES, 128));
        assert_eq!(size_of::<LoanTable>(), SLOTS_AT - LOANS_AT);
    }

    #[test]
    fn slots_and_rings_do_not_overlap() {
        for (lanes, ring_bytes) in [(1, 4096), (3, 1 << 16), (256, 1 << 17)] {
            let shape = Shape { lanes, ring_bytes };
            assert!(shape.slot_at(lanes) <= shape.ring_at(0));
            for lane in 0..lanes {
                assert!(shape.ring_at(lane) + ring_bytes as usize <= shape.ring_at(lane + 1));
                assert_eq!(shape.ring_at(lane) % 4096, 0);
            }
        }
    }
}
