//! The simulator's side: makes the memory, and gives turns.
#![allow(unsafe_code)]

use crate::calls::{Call, MOST};
use crate::futex;
use crate::job::{is_alive, sleeps, thread_ticks};
use crate::layout::{
    Channel, Compute, Hall, Head, Kind, NEVER, Phase, Place, Slot, Status, file_bytes, map_channel,
    read_calls, write_hall, write_plan,
};
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::Pid;
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a turn may last before it is looked what the process does.
const LOOK_AFTER: Duration = Duration::from_millis(2);
/// How often it is looked whether a process lives that has no turn.
const LOOK_WHETHER_ALIVE: Duration = Duration::from_millis(50);
/// How long it may last, without a call, before threads of the same process that poll go on, too: in a process in which one has spun before.
const CROWD_AFTER: Duration = Duration::from_micros(200);
/// The same in others: so many ticks of 10 ms of processor time, that a long turn is not taken for one that spins.
const SPINS_FOR: u64 = 2;
/// A thread that computes is left alone for so many ticks of 10 ms, if others want the turn.
const LET_COMPUTE: u64 = 100;
/// A processor's looks at a turn before it sleeps.
const SPINS: u32 = 50;

/// How processes are run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Manner {
    /// What computing costs.
    pub compute: Compute,
    /// Whether the processor's counter of time, which a program may read by an instruction, is the simulation's. That makes turns cost more:
    /// on virtual machines several times as much.
    pub covers_counter: bool,
    /// Whether they are an MPI's, which say when they begin and end. Others begin when they open the provider.
    pub mpi: bool,
    /// Whether its calls are noted.
    pub keeps_calls: bool,
}

/// The memory of all processes. It has no name in any directory, so nothing of it stays, however its processes end.
#[derive(Debug)]
pub struct World {
    hall: &'static Hall,
    file: File,
}

impl World {
    /// Makes it, for processes at these places. `repeats`: what each of them is to compute before its calls, if that is so; otherwise empty.
    pub fn create(places: &[Place], manner: Manner, repeats: &[Vec<Call>]) -> io::Result<(World, Vec<Seat>)> {
        let file = File::from(memfd_create("srd-sim", MFdFlags::MFD_CLOEXEC)?);
        let all = places.len() as u32;
        file.set_len(file_bytes(all))?;
        let world = World { hall: write_hall(&file, all)?, file };
        let seats = places.iter().zip(0..).map(|(place, number)| {
            let channel = map_channel(&world.file, number)?;
            // SAFETY: it has just been mapped, stays, and nobody else has it yet.
            let channel = unsafe { &mut *channel };
            channel.place = *place;
            channel.compute = manner.compute;
            channel.covers_counter = manner.covers_counter.into();
            channel.keeps_calls = manner.keeps_calls.into();
            channel.without_mpi = (!manner.mpi).into();
            channel.due.store(NEVER, Ordering::Relaxed);
            if let Some(repeats) = repeats.get(number as usize) {
                channel.repeats = 1;
                channel.planned = repeats.len().min(MOST) as u64;
                write_plan(&world.file, all, number, repeats)?;
            }
            Ok(Seat {
                channel,
                hall: world.hall,
                state: State::Absent,
                killed_in_a_wait: false,
                spins: Cell::new(false),
                by_itself: false,
                alive_at: None,
            })
        });
        let seats = seats.collect::<io::Result<_>>()?;
        Ok((world, seats))
    }

    /// Where others open it, while this process lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// The calls of MPI that a process has noted, in the order in which they returned; it has made so many, of which [`MOST`] found room.
    pub fn calls(&self, number: u32, made: u64) -> io::Result<Vec<Call>> {
        read_calls(&self.file, self.hall.channels, number, made.min(MOST as u64) as usize)
    }

    /// Counts how often somebody has wanted attention.
    pub fn bell(&self) -> &'static AtomicU32 {
        &self.hall.bell
    }

    /// Waits until somebody wants it again, or for `at_most`.
    pub fn listen(&self, at_most: Duration) {
        futex::wait(&self.hall.bell, self.hall.bell.load(Ordering::Acquire), Some(at_most));
    }
}

/// Keeps the calling thread on the processor on which it is.
#[derive(Debug)]
pub struct OneCore {
    before: CpuSet,
    core: u32,
}

impl OneCore {
    /// From now on; `None` if it may run on one only, or the system does not let it.
    pub fn here() -> Option<OneCore> {
        let before = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let core = sched_getcpu().ok()?;
        let others = (0..CpuSet::count()).any(|other| other != core && before.is_set(other) == Ok(true));
        let mut only = CpuSet::new();
        only.set(core).ok()?;
        (others && sched_setaffinity(Pid::from_raw(0), &only).is_ok())
            .then_some(OneCore { before, core: core as u32 })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.core
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        let _ = sched_setaffinity(Pid::from_raw(0), &self.before);
    }
}

/// What a process is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It has not taken its place yet.
    Absent,
    /// Some thread of it waits for something that is not of the fabric.
    Outside,
    /// All its threads that take part are parked.
    Parked,
    /// It has ended.
    Ended,
}

/// How a turn has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The thread has parked, or ended.
    Over,
    /// It waits for something that is not of the fabric.
    Taken,
    /// Its process is no more.
    Died,
}

/// The simulator's end of a channel.
#[derive(Debug)]
pub struct Seat {
    channel: &'static mut Channel,
    hall: &'static Hall,
    state: State,
    killed_in_a_wait: bool,
    /// A thread has spun while others polled.
    spins: Cell<bool>,
    /// Who had the last turn did not poll before.
    by_itself: bool,
    /// When it was last seen whether the process lives.
    alive_at: Option<Instant>,
}

impl Seat {
    /// The process, once it has taken its place.
    pub fn process(&self) -> Option<u32> {
        Some(self.channel.process.load(Ordering::Acquire)).filter(|process| *process != 0)
    }

    /// How many calls of MPI the process has made, if they are noted.
    pub fn calls(&self) -> u64 {
        self.channel.calls.load(Ordering::Acquire)
    }

    /// The process has made another call than it was to repeat: behind so many that were the same.
    pub fn strayed(&self) -> Option<u64> {
        self.channel.strayed.load(Ordering::Acquire).checked_sub(1)
    }

    /// From now on its threads have their turns on this processor.
    pub fn set_core(&self, core: u32) {
        self.channel.core.store(core + 1, Ordering::Release);
    }

    /// Whether the program goes on: who had the last turn did not poll before.
    pub fn goes_on_by_itself(&self) -> bool {
        self.by_itself
    }

    /// What the process is doing, as of the last look.
    pub fn state(&self) -> State {
        self.state
    }

    /// How far its program is.
    pub fn phase(&self) -> Phase {
        if self.state == State::Ended { Phase::Ending } else { self.came_to() }
    }

    /// The same, of one that has ended, too: how far it came.
    fn came_to(&self) -> Phase {
        Phase::of(self.channel.phase.load(Ordering::Acquire))
    }

    /// Whether it was killed while all its threads waited.
    pub fn was_killed_in_a_wait(&self) -> bool {
        self.killed_in_a_wait
    }

    /// Whether it has ended between MPI's beginning and its end.
    pub fn has_left(&self) -> bool {
        self.state == State::Ended && self.came_to() == Phase::Running
    }

    /// Whether it waits for the other ranks to be where it is.
    pub fn is_together(&self) -> bool {
        self.parked().any(|(_, kind, _)| kind == Kind::Together)
    }

    /// They are: it goes on at this moment.
    pub fn go_on(&self) {
        let waits = |slot: &&Slot| slot.status() == Status::Parked && slot.waits_for().0 == Kind::Together;
        self.channel.slots().iter().filter(waits).for_each(|slot| slot.set_wait(Kind::Sleeper, 0));
    }

    /// Looks what it is doing.
    pub fn look(&mut self) -> State {
        self.state = match self.process() {
            _ if self.state == State::Ended || self.channel.ended.load(Ordering::Acquire) != 0 => {
                State::Ended
            }
            None => State::Absent,
            Some(process) if self.has_died(process) => {
                self.killed_in_a_wait = self.state == State::Parked;
                State::Ended
            }
            Some(_) => self.threads(),
        };
        self.state
    }

    /// Whether it was killed: it is looked now and then.
    fn has_died(&mut self, process: u32) -> bool {
        if self.alive_at.is_some_and(|at| at.elapsed() < LOOK_WHETHER_ALIVE) {
            return false;
        }
        self.alive_at = Some(Instant::now());
        !is_alive(process)
    }

    fn threads(&self) -> State {
        let outside = |slot: &Slot| matches!(slot.status(), Status::Outside | Status::Running | Status::Busy);
        if self.channel.slots().iter().any(outside) { State::Outside } else { State::Parked }
    }

    /// Whether a thread asks for the turn.
    pub fn is_wanted(&self) -> bool {
        let wants = |slot: &Slot| slot.status() == Status::Parked && slot.waits_for().0 == Kind::Want;
        self.state != State::Ended && self.channel.slots().iter().any(wants)
    }

    /// Whether a thread has written to somebody who is not of the fabric since this was last asked.
    pub fn has_spoken(&self) -> bool {
        self.channel.spoke.swap(0, Ordering::AcqRel) != 0
    }

    /// Whether the card takes a packet.
    pub fn set_takes(&self, takes: bool) {
        self.channel.takes.store(takes.into(), Ordering::Relaxed);
    }

    /// Whether the device has more to send than the card has taken.
    pub fn has_more(&self) -> bool {
        self.state != State::Ended && self.channel.more.load(Ordering::Acquire) != 0
    }

    /// So many send to the process, as far as its transport knew at the end of its last turn.
    pub fn senders(&self) -> u32 {
        self.channel.senders.load(Ordering::Relaxed)
    }

    /// So many send to other processes of its host.
    pub fn set_neighbours(&self, senders: u32) {
        self.channel.neighbours.store(senders, Ordering::Relaxed);
    }

    fn transport_due(&self) -> u64 {
        match self.has_more() && self.channel.takes.load(Ordering::Relaxed) != 0 {
            true => 0,
            false => self.channel.due.load(Ordering::Acquire),
        }
    }

    fn parked(&self) -> impl Iterator<Item = (usize, Kind, u64)> {
        self.channel.slots().iter().enumerate().filter(|(_, slot)| slot.status() == Status::Parked).map(
            |(number, slot)| {
                let (kind, until) = slot.waits_for();
                (number, kind, until)
            },
        )
    }

    /// When a thread is to have the turn even if no packet comes; [`NEVER`] if none is.
    pub fn due(&self) -> u64 {
        if self.state == State::Ended {
            return NEVER;
        }
        let (transport, called) =
            (self.transport_due(), self.channel.card_called.load(Ordering::Acquire) != 0);
        let due = self.parked().map(|(_, kind, until)| match kind {
            Kind::Want => 0,
            Kind::Sleeper => until,
            Kind::Poller => until.min(transport),
            Kind::Card if called => 0,
            Kind::Card => transport,
            Kind::Fellow => until,
            Kind::Together => NEVER,
        });
        due.min().unwrap_or(NEVER)
    }

    /// Whether a thread sleeps until a time, and polls for nothing.
    pub fn awaits_a_time(&self) -> bool {
        let sleeps = |kind| matches!(kind, Kind::Sleeper | Kind::Fellow);
        self.state != State::Ended && self.parked().any(|(_, kind, until)| sleeps(kind) && until < NEVER)
    }

    /// Who is to have the turn now: whoever asks for it, who receives packets or has to do what the transport wants, whose time has come.
    fn next(&self, now: u64, packets: bool) -> Option<usize> {
        let wants = self.parked().find(|(_, kind, _)| *kind == Kind::Want);
        let called = self.channel.card_called.swap(0, Ordering::AcqRel) != 0;
        let of_kind = |wanted| self.parked().find(|(_, kind, _)| *kind == wanted);
        let moves = packets || self.transport_due() <= now;
        let mover = || {
            let poller = if moves { of_kind(Kind::Poller) } else { None };
            poller.or_else(|| if moves || called { of_kind(Kind::Card) } else { None })
        };
        let timely = || self.parked().find(|(_, kind, until)| *until <= now && *kind != Kind::Together);
        let (number, ..) = wants.or_else(mover).or_else(timely)?;
        Some(number)
    }

    /// Puts a packet where the process takes it from. False if there is no room.
    pub fn put(&mut self, head: &Head, bytes: &[u8]) -> bool {
        self.channel.inward.put(head, |place| place.copy_from_slice(bytes))
    }

    /// What the process has sent, a packet at a time.
    pub fn take(&mut self) -> Option<(Head, &[u8])> {
        self.channel.out.take().map(|(head, bytes)| (head, &*bytes))
    }

    /// Whether packets lie there that the process has not taken.
    pub fn has_untaken(&self) -> bool {
        !self.channel.inward.is_empty()
    }

    /// Gives the turn to the thread that is to have it at `now`, and waits for its end. `None` if none is. `stuck` says, of a thread that
    /// sleeps, whether nobody will wake it but those who are parked; of one that does not, whether others want the turn: then both go on at
    /// this moment.
    pub fn run(&mut self, now: u64, stuck: &mut dyn FnMut(bool) -> bool) -> Option<Turn> {
        if self.state == State::Ended {
            return None;
        }
        let number = self.next(now, self.has_untaken())?;
        Some(self.give(number, now, stuck))
    }

    /// Gives it to a thread that polls, though nothing has come: what it waits for may be no packet.
    pub fn let_look(&mut self, now: u64, stuck: &mut dyn FnMut(bool) -> bool) -> Option<Turn> {
        let (number, ..) = self.parked().find(|(_, kind, _)| *kind == Kind::Poller)?;
        Some(self.give(number, now, stuck))
    }

    fn give(&mut self, number: usize, now: u64, stuck: &mut dyn FnMut(bool) -> bool) -> Turn {
        self.channel.now.store(now, Ordering::Release);
        self.hall.now.store(now, Ordering::Release);
        self.channel.crowded.store(0, Ordering::Release);
        self.channel.turn.store(1, Ordering::Release);
        let slot = &self.channel.slots()[number];
        self.by_itself = !matches!(slot.waits_for().0, Kind::Poller | Kind::Card);
        slot.set_status(Status::Running);
        slot.word.store(1, Ordering::Release);
        futex::wake(&slot.word);
        let turn = self.await_end(number, stuck);
        self.state = match turn {
            Turn::Died => State::Ended,
            _ if self.channel.ended.load(Ordering::Acquire) != 0 => State::Ended,
            _ => self.threads(),
        };
        if self.channel.stirred.swap(0, Ordering::AcqRel) != 0 {
            // What the thread has done may be what others poll for.
            for slot in self.channel.slots() {
                if slot.status() == Status::Parked && slot.waits_for() == (Kind::Poller, NEVER) {
                    let others = self.parked().filter(|(_, kind, _)| *kind != Kind::Card).count();
                    if others > 1 {
                        slot.set_wait(Kind::Poller, now + 1);
                    }
                }
            }
        }
        turn
    }

    /// Those of the process's threads that have the turn.
    fn running(&self) -> impl Iterator<Item = &Slot> {
        self.channel.slots().iter().filter(|slot| matches!(slot.status(), Status::Running | Status::Busy))
    }

    fn await_end(&self, number: usize, stuck: &mut dyn FnMut(bool) -> bool) -> Turn {
        let turn = &self.channel.turn;
        let over = || turn.load(Ordering::Acquire) == 0;
        for _ in 0..SPINS {
            if over() {
                return Turn::Over;
            }
            std::hint::spin_loop();
        }
        let began = Instant::now();
        let slot = &self.channel.slots()[number];
        let mut computed = None;
        loop {
            let has_fellows = self.parked().any(|(_, kind, _)| matches!(kind, Kind::Poller | Kind::Want));
            let threads = turn.load(Ordering::Acquire);
            if threads > 0 {
                let may_spin = has_fellows && self.spins.get();
                futex::wait(turn, threads, Some(if may_spin { CROWD_AFTER } else { LOOK_AFTER }));
            }
            if over() {
                return Turn::Over;
            }
            let process = self.channel.process.load(Ordering::Acquire);
            let asleep =
                || self.running().all(|slot| sleeps(process, slot.thread.load(Ordering::Acquire))) && !over();
            if has_fellows && self.spins.get() && began.elapsed() >= CROWD_AFTER && !asleep() {
                self.crowd();
            }
            if began.elapsed() < LOOK_AFTER {
                continue;
            }
            if !is_alive(process) {
                return Turn::Died;
            }
            let take = match asleep() {
                true => stuck(true) && asleep(),
                false => {
                    let ticks = thread_ticks(process, slot.thread.load(Ordering::Acquire));
                    let ticks = ticks - *computed.get_or_insert(ticks);
                    self.spins.set(self.spins.get() || has_fellows && ticks >= SPINS_FOR);
                    ticks > LET_COMPUTE && stuck(false)
                }
            };
            if take {
                let taken = self
                    .running()
                    .filter(|slot| slot.change_status(Status::Running, Status::Outside))
                    .count();
                if taken > 0 && turn.fetch_sub(taken as u32, Ordering::AcqRel) == taken as u32 {
                    return Turn::Taken;
                }
            }
        }
    }

    /// Threads that poll, or want the turn, go on beside the one that has it.
    fn crowd(&self) {
        self.channel.core.store(0, Ordering::Release); // one spins while another works
        self.channel.crowded.store(1, Ordering::Release);
        for slot in self.channel.slots() {
            if slot.status() == Status::Parked && matches!(slot.waits_for().0, Kind::Poller | Kind::Want) {
                self.channel.turn.fetch_add(1, Ordering::AcqRel);
                slot.set_status(Status::Running);
                slot.word.store(1, Ordering::Release);
                futex::wake(&slot.word);
            }
        }
    }
}
