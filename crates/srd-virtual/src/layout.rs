//! The shared memory: a page that all have, and a [`Channel`] for each process.
#![allow(unsafe_code)]

use crate::calls::{Call, MOST};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What the memory begins with; another version of it has another number.
pub const MAGIC: u64 = 0x5352_4456_4952_0002;
/// Bytes for packets in each direction of a channel.
pub const RING: usize = 256 << 10;
/// Threads of a process that may take part.
pub const SLOTS: usize = 128;
/// No time.
pub const NEVER: u64 = u64::MAX;
/// Largest datagram.
pub const LARGEST: usize = 65_535;

const PAGE: usize = 4096;

/// What all processes share.
#[repr(C)]
#[derive(Debug)]
pub struct Hall {
    /// [`MAGIC`].
    pub magic: u64,
    /// Channels.
    pub channels: u32,
    /// Counts how often somebody wants the simulator's attention; it sleeps on this.
    pub bell: AtomicU32,
    /// When somebody has had the last turn.
    pub now: AtomicU64,
}

/// How the time that a process computes is told.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Compute {
    /// Each call of the provider costs so many nanoseconds.
    pub per_call: u64,
    /// The thread's processor time counts so often, in thousandths.
    pub measured: u64,
}

/// Where a process is, and what its transport must know: what the simulator knows before the process begins. Times in nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Place {
    /// IPv4 address of the host, as a number.
    pub ip: u32,
    /// The process's UDP port there.
    pub port: u16,
    /// UDP port of the first process of a host.
    pub port_base: u16,
    /// First source port.
    pub first_source_port: u16,
    /// Source ports, from the first one.
    pub source_ports: u16,
    /// Largest IP datagram in bytes.
    pub mtu: u16,
    /// As `srd_proto::Config` has them.
    pub paths: u16,
    /// Index among the path selectors, and among the congestion controllers.
    pub selector: u16,
    /// See above.
    pub controller: u16,
    /// Bits a second.
    pub line_rate: u64,
    /// Unloaded round trip.
    pub base_rtt: u64,
    /// Longest that an ACK waits.
    pub ack_delay: u64,
    /// Data packets for an ACK.
    pub ack_every: u32,
    /// Whether the receiver's count of senders is followed.
    pub receiver_hint: u32,
    /// 1: what goes to other processes of the host takes its memory, and not the card.
    pub shares_memory: u32,
    /// Window of the fixed controller.
    pub fixed_window_bytes: u64,
    /// Of its random numbers.
    pub seed: u64,
    /// 1: what carries its packets loses none and needs no acknowledgements: the transport is to send everything at once, and never again.
    pub carried: u32,
}

impl Place {
    /// Whether what goes to that address takes the host's memory, and not the card.
    pub fn is_near(&self, ip: u32) -> bool {
        self.shares_memory != 0 && self.ip == ip
    }
}

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Status {
    /// The slot is nobody's.
    Free = 0,
    /// It has the turn.
    Running = 1,
    /// And is using the channel, so that the turn cannot be taken from it.
    Busy = 2,
    /// It waits in its slot.
    Parked = 3,
    /// It had the turn, and waits for something that is not of the fabric.
    Outside = 4,
    /// It polls in vain, or spins because another thread that does so holds a lock: it runs, but has nothing to do before another thread of
    /// its process has done something.
    Adrift = 5,
}

/// How far an MPI program is. One of no MPI runs from when it takes its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Phase {
    /// MPI has not begun.
    Before = 0,
    /// In `MPI_Init`.
    Beginning = 1,
    /// Behind that.
    Running = 2,
    /// In `MPI_Finalize`, or behind that, or the device is closed.
    Ending = 3,
}

impl Phase {
    /// The one of that number.
    pub fn of(number: u32) -> Phase {
        match number {
            0 => Phase::Before,
            1 => Phase::Beginning,
            2 => Phase::Running,
            _ => Phase::Ending,
        }
    }
}

/// What a parked thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// A time.
    Sleeper = 0,
    /// A packet, a deadline of the transport, or a time.
    Poller = 1,
    /// The same, if no thread polls.
    Card = 2,
    /// The turn.
    Want = 3,
    /// That all ranks are where this one is.
    Together = 4,
    /// What another thread of its process does, or a time.
    Fellow = 5,
}

impl Kind {
    fn of(number: u32) -> Kind {
        match number {
            0 => Kind::Sleeper,
            1 => Kind::Poller,
            2 => Kind::Card,
            3 => Kind::Want,
            4 => Kind::Together,
            _ => Kind::Fellow,
        }
    }
}

/// A thread that takes part.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    status: AtomicU32,
    kind: AtomicU32,
    /// What the thread sleeps on: 1 when it may go on.
    pub word: AtomicU32,
    /// The kernel's number of it.
    pub thread: AtomicU32,
    until: AtomicU64,
}

impl Slot {
    /// What its thread is doing.
    pub fn status(&self) -> Status {
        match self.status.load(Ordering::Acquire) {
            0 => Status::Free,
            1 => Status::Running,
            2 => Status::Busy,
            3 => Status::Parked,
            4 => Status::Outside,
            _ => Status::Adrift,
        }
    }

    /// From now on that.
    pub fn set_status(&self, status: Status) {
        self.status.store(status as u32, Ordering::Release);
    }

    /// The same if it was `from` until now.
    pub fn change_status(&self, from: Status, to: Status) -> bool {
        self.status.compare_exchange(from as u32, to as u32, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// What it waits for, and until when.
    pub fn waits_for(&self) -> (Kind, u64) {
        (Kind::of(self.kind.load(Ordering::Acquire)), self.until.load(Ordering::Acquire))
    }

    /// It will wait for that.
    pub fn set_wait(&self, kind: Kind, until: u64) {
        self.kind.store(kind as u32, Ordering::Release);
        self.until.store(until, Ordering::Release);
    }
}

/// Packets in one direction. Whoever has the turn writes or reads, so there is nothing to synchronise.
#[repr(C)]
#[derive(Debug)]
pub struct Ring {
    /// Bytes that are written, and bytes that are read.
    written: AtomicU32,
    read: AtomicU32,
    bytes: [u8; RING],
}

/// What a datagram says beside its bytes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// Bytes of it.
    pub len: u32,
    /// IPv4 address of the other host, as a number.
    pub peer: u32,
    /// UDP ports, source and destination.
    pub ports: [u16; 2],
    /// Whether a switch has marked it.
    pub marked: u32,
    /// Nanoseconds since it came to the network card.
    pub age: u64,
}

const HEAD: usize = size_of::<Head>();

impl Ring {
    /// Whether there is room for a datagram of that size.
    pub fn has_room(&self, len: usize) -> bool {
        self.written.load(Ordering::Relaxed) as usize + HEAD + len.next_multiple_of(8) <= RING
    }

    /// Puts a datagram behind the others, whose bytes `fill` writes. False if there is no room.
    pub fn put(&mut self, head: &Head, fill: impl FnOnce(&mut [u8])) -> bool {
        let len = head.len as usize;
        if !self.has_room(len) {
            return false;
        }
        let at = self.written.load(Ordering::Relaxed) as usize;
        // SAFETY: the ring has room for the head there, aligned as all of them are (`at` is a multiple of 8, and the bytes are
        // aligned by the fields before them); heads are plain numbers.
        unsafe { self.bytes.as_mut_ptr().add(at).cast::<Head>().write_unaligned(*head) };
        fill(&mut self.bytes[at + HEAD..at + HEAD + len]);
        self.written.store((at + HEAD + len.next_multiple_of(8)) as u32, Ordering::Relaxed);
        true
    }

    /// The oldest datagram that has not been taken. Once all have been taken the ring is empty again.
    pub fn take(&mut self) -> Option<(Head, &mut [u8])> {
        let at = self.read.load(Ordering::Relaxed) as usize;
        let written = self.written.load(Ordering::Relaxed) as usize;
        if at >= written || written > RING || at + HEAD > written {
            self.clear();
            return None;
        }
        // SAFETY: that many bytes are there, and any bytes are a head.
        let head = unsafe { self.bytes.as_ptr().add(at).cast::<Head>().read_unaligned() };
        let len = head.len as usize;
        let next = at + HEAD + len.next_multiple_of(8);
        if next > written {
            self.clear(); // a process has written over it
            return None;
        }
        self.read.store(next as u32, Ordering::Relaxed);
        Some((head, &mut self.bytes[at + HEAD..at + HEAD + len]))
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.read.load(Ordering::Relaxed) >= self.written.load(Ordering::Relaxed)
    }

    fn clear(&self) {
        self.read.store(0, Ordering::Relaxed);
        self.written.store(0, Ordering::Relaxed);
    }
}

/// The memory of one process.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Channel {
    /// Where it is.
    pub place: Place,
    /// How its computing is told.
    pub compute: Compute,
    /// 1: the program reads the processor's counter of time by itself, which is to be the simulation's.
    pub covers_counter: u32,
    /// 1: the program is none of an MPI's: it begins when it takes its place, and ends by itself.
    pub without_mpi: u32,
    /// The process, once it is there.
    pub process: AtomicU32,
    /// How far the program is ([`Phase`]).
    pub phase: AtomicU32,
    /// It has ended.
    pub ended: AtomicU32,
    /// How many threads of the process have the turn; most often one. The simulator sleeps on this.
    pub turn: AtomicU32,
    /// 1: that thread has not called for a while, perhaps because one that polls holds a lock; those that poll go on beside it.
    pub crowded: AtomicU32,
    /// The device has more to send than the card has taken.
    pub more: AtomicU32,
    /// 1: the card takes a packet. It sends it at once: what is sent is decided when the link is free, and not before.
    pub takes: AtomicU32,
    /// How many send to the process over its host's link, and how many to others of the host.
    pub senders: AtomicU32,
    /// See above.
    pub neighbours: AtomicU32,
    /// The thread that had the turn has changed what others that poll may wait for.
    pub stirred: AtomicU32,
    /// The thread that had the turn has written to somebody who is not of the fabric.
    pub spoke: AtomicU32,
    /// The card's thread is to look.
    pub card_called: AtomicU32,
    /// The processor on which those run that have turns, plus one: between two of them turns change much faster there. 0: any.
    pub core: AtomicU32,
    /// 1: calls of MPI are noted.
    pub keeps_calls: u32,
    /// 1: what is computed before each call is as it was in another run ([`map_plan`]).
    pub repeats: u32,
    /// How many calls there are in that.
    pub planned: u64,
    /// The process has made another call than is written there: so many before it were the same, plus one.
    pub strayed: AtomicU64,
    /// Calls that are noted, and those for which there was no room.
    pub calls: AtomicU64,
    /// The process's clock, in nanoseconds of the simulation.
    pub now: AtomicU64,
    /// When the transport wants to run.
    pub due: AtomicU64,
    /// Its threads; those of them that have ever been somebody's come first, and are so many.
    slots: [Slot; SLOTS],
    used: AtomicU32,
    /// To the fabric.
    pub out: Ring,
    /// From the fabric.
    pub inward: Ring,
}

impl Channel {
    /// The slots that may be somebody's.
    pub fn slots(&self) -> &[Slot] {
        &self.slots[..(self.used.load(Ordering::Acquire) as usize).min(SLOTS)]
    }

    /// Makes a free slot somebody's; the number of it. `None` if there is none.
    pub fn claim_slot(&self) -> Option<usize> {
        let claim = |slot: &Slot| slot.change_status(Status::Free, Status::Outside);
        let number = self.slots.iter().position(claim)?;
        self.used.fetch_max(number as u32 + 1, Ordering::AcqRel);
        Some(number)
    }
}

/// Bytes of a list of calls.
const LIST: usize = MOST * size_of::<Call>();

/// Where channels end, and lists begin: of each rank's calls, and then of what each is to repeat. Nothing of a file takes memory that nobody
/// has written to.
fn lists_at(channels: u32) -> usize {
    PAGE + channels as usize * size_of::<Channel>()
}

/// Bytes of the file for so many channels.
pub fn file_bytes(channels: u32) -> u64 {
    (lists_at(channels) + 2 * channels as usize * LIST) as u64
}

/// Memory of such a file, for the rest of the process's life.
fn map(file: &File, offset: usize, length: usize) -> io::Result<*mut u8> {
    let length = NonZeroUsize::new(length).expect("structures have a size");
    let (read_write, shared) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED);
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let memory = unsafe { mmap(None, length, read_write, shared, file, offset as libc::off_t) }?;
    Ok(memory.as_ptr().cast())
}

/// Maps what all share.
pub fn map_hall(file: &File) -> io::Result<&'static Hall> {
    let hall = map(file, 0, PAGE)?.cast::<Hall>();
    // SAFETY: the page is there for good; all that changes in it is atomic, or is written before any process is told of it.
    Ok(unsafe { &*hall })
}

/// Writes what all share begins with.
pub fn write_hall(file: &File, channels: u32) -> io::Result<&'static Hall> {
    let hall = map(file, 0, PAGE)?.cast::<Hall>();
    // SAFETY: nobody else has the file yet, and the page is there for good.
    unsafe {
        hall.write(Hall { magic: MAGIC, channels, bell: AtomicU32::new(0), now: AtomicU64::new(0) });
        Ok(&*hall)
    }
}

/// The address of the host of a channel's process, as [`Place::ip`]. An error if there is no such channel.
pub fn read_ip(file: &File, number: u32) -> io::Result<u32> {
    let at =
        PAGE + number as usize * size_of::<Channel>() + offset_of!(Channel, place) + offset_of!(Place, ip);
    let mut ip = [0; 4];
    file.read_exact_at(&mut ip, at as u64)?;
    Ok(u32::from_ne_bytes(ip))
}

/// Whether the program of a channel is none of an MPI's.
pub fn is_without_mpi(file: &File, number: u32) -> io::Result<bool> {
    let at = PAGE + number as usize * size_of::<Channel>() + offset_of!(Channel, without_mpi);
    let mut without = [0; 4];
    file.read_exact_at(&mut without, at as u64)?;
    Ok(u32::from_ne_bytes(without) != 0)
}

/// Maps a channel.
pub fn map_channel(file: &File, number: u32) -> io::Result<*mut Channel> {
    Ok(map(file, PAGE + number as usize * size_of::<Channel>(), size_of::<Channel>())?.cast())
}

/// Where the calls of a process are noted.
fn calls_at(channels: u32, number: u32) -> usize {
    lists_at(channels) + number as usize * LIST
}

/// Where that is which it repeats.
fn plan_at(channels: u32, number: u32) -> usize {
    lists_at(channels) + (channels as usize + number as usize) * LIST
}

/// Maps the calls of a process, [`MOST`] of them.
pub fn map_calls(file: &File, channels: u32, number: u32) -> io::Result<*mut Call> {
    Ok(map(file, calls_at(channels, number), LIST)?.cast())
}

/// Maps what a process is to compute before each of its calls, as many.
pub fn map_plan(file: &File, channels: u32, number: u32) -> io::Result<*mut Call> {
    Ok(map(file, plan_at(channels, number), LIST)?.cast())
}

/// What a process has noted, so many of them.
pub fn read_calls(file: &File, channels: u32, number: u32, count: usize) -> io::Result<Vec<Call>> {
    let mut calls = vec![Call::default(); count.min(MOST)];
    // SAFETY: a call is numbers without gaps between them, of which any bytes are some, and so many of them are there to be written.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(calls.as_mut_ptr().cast::<u8>(), size_of_val(calls.as_slice()))
    };
    file.read_exact_at(bytes, calls_at(channels, number) as u64)?;
    Ok(calls)
}

/// Writes what a process is to repeat.
pub fn write_plan(file: &File, channels: u32, number: u32, calls: &[Call]) -> io::Result<()> {
    let calls = &calls[..calls.len().min(MOST)];
    // SAFETY: as above.
    let bytes = unsafe { std::slice::from_raw_parts(calls.as_ptr().cast::<u8>(), size_of_val(calls)) };
    file.write_all_at(bytes, plan_at(channels, number) as u64)
}
