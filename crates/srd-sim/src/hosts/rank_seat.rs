//! The seat of a real process in a simulation: what it is doing, its turns, and what goes to it. Whatever carries its packets has one for each.

use crate::hosts::process::Birth;
use crate::hosts::srd_nic::{FIRST_SOURCE_PORT, SOURCE_PORTS, gid, transport_config};
use srd_proto::{ControllerKind, SelectorKind};
use srd_virtual::layout::{Head, NEVER};
use srd_virtual::world::{Seat, State, Turn};
use srd_virtual::{Phase, Place, job::Job};
use srd_wire::Time;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// UDP port of a host's first process: that of devices on a network.
pub const PORT_BASE: u16 = 17408;
/// Turns that a process has at a moment.
const MOST_TURNS: u32 = 4;
/// Packets that wait for a process which does not take them, beyond which the card drops.
const LONGEST_INBOX: usize = 4096;

/// Whoever computes for so long is named: it may be long work, or a loop without an end.
const LONG_TURN: Duration = Duration::from_secs(10);

/// Processor time, in ticks of 10 ms, that a process uses while it is waited for until nobody waits for it any more; and before all ranks have
/// begun, when their launcher and libraries have much to do.
const RESTLESS: u64 = 100;
const LONGEST_START: u64 = 3_000;

/// What all processes of a run have in common.
#[derive(Debug, Default)]
pub struct Crowd {
    job: Job,
    /// Counts how often somebody has wanted attention, and what it showed when somebody looked.
    bell: Option<&'static AtomicU32>,
    heard: u32,
    /// Somebody has ended since somebody looked.
    has_ended: bool,
    /// Processes that wait in their seats.
    parked: BTreeSet<u32>,
    /// How many have not ended and do not wait in their seats.
    outside: u32,
    /// How many of those have not even come.
    absent: u32,
    /// How many are in each phase.
    phases: [u32; 4],
    /// How many send to the processes of each host, by its address.
    senders: BTreeMap<u32, u32>,
    /// Processes that never rest.
    restless: BTreeSet<u32>,
    /// Turns that there have been, but for looks and those of programs at their end.
    turns: u64,
    /// Somebody has written to somebody who is not of the fabric.
    spoke: bool,
    /// Somebody wants an end.
    stop: Arc<AtomicBool>,
    /// Tells a person at once.
    tell: Option<fn(&str)>,
}

/// Whether that is so whenever one looks for a while: between two looks somebody may have woken somebody, and the kernel takes its time with
/// what one process sends to another.
fn for_a_while(mut quiet: impl FnMut() -> bool) -> bool {
    quiet()
        && (0..2).all(|_| {
            std::thread::sleep(Duration::from_micros(300));
            quiet()
        })
}

impl Crowd {
    /// Nobody yet. `bell` counts how often somebody wants attention, `stop` says when somebody wants an end, `tell` is for what a person must
    /// know while it runs.
    pub fn new(bell: &'static AtomicU32, stop: Arc<AtomicBool>, tell: fn(&str)) -> Crowd {
        Crowd { bell: Some(bell), stop, tell: Some(tell), ..Crowd::default() }
    }

    /// Turns that there have been, but for looks and those of programs at their end.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Whether somebody wants an end.
    pub fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether somebody has wanted attention, or ended, since [`Crowd::hear`].
    pub fn has_rung(&self) -> bool {
        self.has_ended || self.bell.is_some_and(|bell| bell.load(Ordering::Acquire) != self.heard)
    }

    /// Everything is known of what the bell shows now.
    pub fn hear(&mut self) {
        self.has_ended = false;
        self.heard = self.bell.map_or(0, |bell| bell.load(Ordering::Acquire));
    }

    /// How many are in this phase.
    pub fn in_phase(&self, phase: Phase) -> u32 {
        self.phases[phase as usize]
    }

    /// Whether all have come: time does not begin before.
    pub fn is_complete(&self) -> bool {
        self.absent == 0
    }

    /// Whether any process does something that the simulation knows nothing of.
    pub fn is_anybody_outside(&self) -> bool {
        self.outside > 0
    }

    /// Whether nothing moves but by the simulation, in processes that do not wait in their seats.
    pub fn is_quiet(&mut self) -> bool {
        self.job.is_quiet(&|process| self.parked.contains(&process) || self.restless.contains(&process))
    }

    /// Whether that is so of all.
    pub fn is_all_quiet(&mut self) -> bool {
        for_a_while(|| self.job.is_quiet(&|process| self.restless.contains(&process)))
    }

    /// Those that never rest are not waited for any more. Their numbers.
    pub fn give_up_on_the_restless(&mut self) -> Vec<u32> {
        let beginning = self.absent + self.in_phase(Phase::Beginning) > 0;
        let most = if beginning { LONGEST_START } else { RESTLESS };
        let restless = self.job.restless(most, &|process| self.restless.contains(&process));
        self.restless.extend(&restless);
        restless
    }

    /// Whether somebody has written to somebody who is not of the fabric since this was last asked.
    pub fn has_spoken(&mut self) -> bool {
        std::mem::take(&mut self.spoke)
    }

    /// Somebody computes for long.
    fn tell_of_long_work(&self, process: Option<u32>) {
        if let (Some(tell), Some(process)) = (self.tell, process) {
            tell(&format!(
                "process {process} has computed for {} s without a call of MPI, and all others wait for it",
                LONG_TURN.as_secs()
            ));
        }
    }

    /// Whether that is so for certain: nothing moves in processes that do not wait in their seats.
    pub fn stays_quiet(&mut self) -> bool {
        for_a_while(|| self.is_quiet())
    }

    /// Ends whatever still runs.
    pub fn kill(&mut self) {
        self.job.kill();
    }
}

/// A host's address, as a number.
pub fn ip_of(host: u32) -> u32 {
    match gid(host).ip() {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(_) => unreachable!("simulated hosts have IPv4 addresses"),
    }
}

/// Where a process is, and what its transport must know.
pub fn place_of(birth: &Birth<'_>) -> Place {
    let config = transport_config(birth);
    let role = &birth.role;
    let selector = SelectorKind::ALL.iter().position(|(_, kind)| *kind == config.selector);
    let controller = ControllerKind::ALL.iter().position(|(_, kind)| *kind == config.controller);
    Place {
        ip: ip_of(role.host),
        port: PORT_BASE + role.process,
        port_base: PORT_BASE,
        first_source_port: FIRST_SOURCE_PORT,
        source_ports: SOURCE_PORTS,
        mtu: role.mtu,
        paths: config.paths,
        selector: selector.unwrap_or(0) as u16,
        controller: controller.unwrap_or(0) as u16,
        line_rate: config.line_rate.0,
        base_rtt: config.base_rtt.0,
        ack_delay: config.ack_delay.0,
        ack_every: config.ack_every,
        receiver_hint: config.receiver_hint.into(),
        shares_memory: birth.settings.hosts.intra_node.is_some().into(),
        fixed_window_bytes: config.fixed_window_bytes,
        seed: role.seed,
        carried: 0,
    }
}

type Datagram = (Head, Box<[u8]>);

/// See the module.
pub struct RankSeat {
    place: Place,
    seat: Option<(Seat, Rc<RefCell<Crowd>>)>,
    /// What has come, and when.
    inbox: VecDeque<(Head, Box<[u8]>, Time)>,
    /// What will come: when, and as the how manieth.
    under_way: BTreeMap<(Time, u64), Datagram>,
    expected: u64,
    /// How far its program is, as of the last look.
    phase: Phase,
    dropped: u64,
    /// Turns of threads that had not polled, before its program's end.
    own_turns: u64,
    /// It gets no turns, and time does not wait for it.
    rests: bool,
    /// It has not been told of yet that it has ended.
    reported: bool,
}

/// Whether a process in this state does something that the simulation knows nothing of.
fn is_outside(state: State) -> bool {
    matches!(state, State::Absent | State::Outside)
}

impl RankSeat {
    /// Nobody's yet, for a process at that place.
    pub fn new(place: Place) -> RankSeat {
        RankSeat {
            place,
            seat: None,
            inbox: VecDeque::new(),
            under_way: BTreeMap::new(),
            expected: 0,
            phase: Phase::Before,
            dropped: 0,
            own_turns: 0,
            rests: false,
            reported: false,
        }
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// From now on it is that of this seat.
    pub fn sit(&mut self, seat: Seat, crowd: Rc<RefCell<Crowd>>) {
        crowd.borrow_mut().outside += 1;
        crowd.borrow_mut().absent += 1;
        crowd.borrow_mut().phases[self.phase as usize] += 1;
        self.seat = Some((seat, crowd));
    }

    /// What the process is doing.
    pub fn state(&self) -> State {
        self.seat.as_ref().map_or(State::Ended, |(seat, _)| seat.state())
    }

    /// The system's number of it.
    pub fn process(&self) -> Option<u32> {
        self.seat.as_ref().and_then(|(seat, _)| seat.process())
    }

    /// How many calls of MPI its process has made, if they are noted.
    pub fn calls(&self) -> u64 {
        self.seat.as_ref().map_or(0, |(seat, _)| seat.calls())
    }

    /// Its process has made another call than it was to repeat: behind so many that were the same.
    pub fn strayed(&self) -> Option<u64> {
        self.seat.as_ref().and_then(|(seat, _)| seat.strayed())
    }

    /// Packets that came while the process took none, and found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Turns of threads that had not polled, before its program's end.
    pub fn own_turns(&self) -> u64 {
        self.own_turns
    }

    /// How far its program is, as of the last look.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// While it rests it gets no turns, and time does not wait for it: its job is at its end.
    pub fn set_resting(&mut self, rests: bool) {
        if self.rests == rests {
            return;
        }
        self.rests = rests;
        if let Some((_, crowd)) = self.seat.as_ref().filter(|(seat, _)| is_outside(seat.state())) {
            let outside = &mut crowd.borrow_mut().outside;
            *outside = if rests { *outside - 1 } else { *outside + 1 };
        }
    }

    /// Whether it has ended behind MPI's beginning, and without its end.
    pub fn has_left(&self) -> bool {
        self.seat.as_ref().is_some_and(|(seat, _)| seat.has_left())
    }

    /// Whether it was killed while it waited.
    pub fn was_killed_in_a_wait(&self) -> bool {
        self.seat.as_ref().is_some_and(|(seat, _)| seat.was_killed_in_a_wait())
    }

    /// Looks what it is doing. Whether it asks for the turn.
    pub fn look(&mut self) -> bool {
        if self.rests {
            return false;
        }
        self.change(|seat, _| {
            seat.look();
            seat.is_wanted()
        })
        .unwrap_or(false)
    }

    /// Whether it waits for the other ranks to be where it is.
    pub fn is_together(&self) -> bool {
        self.seat.as_ref().is_some_and(|(seat, _)| seat.is_together())
    }

    /// From now on it has its turns on this processor.
    pub fn set_core(&self, core: u32) {
        if let Some((seat, _)) = &self.seat {
            seat.set_core(core);
        }
    }

    /// They are.
    pub fn go_on(&self) {
        if let Some((seat, _)) = &self.seat {
            seat.go_on();
        }
    }

    /// Lets a thread look that polls, though nothing has come. What it sends is taken with the next turn.
    pub fn let_look(&mut self, now: Time) {
        if !self.rests {
            self.turn(now, false, |seat, now, stuck| seat.let_look(now, stuck));
        }
    }

    /// Does something with the seat, and keeps the crowd's books.
    fn change<R>(&mut self, f: impl FnOnce(&mut Seat, &Rc<RefCell<Crowd>>) -> R) -> Option<R> {
        let (seat, crowd) = self.seat.as_mut()?;
        let (before, phase) = (is_outside(seat.state()), self.phase);
        let (was_absent, had_ended) = (seat.state() == State::Absent, seat.state() == State::Ended);
        let result = f(seat, crowd);
        let after = is_outside(seat.state());
        let mut crowd = crowd.borrow_mut();
        crowd.absent -= u32::from(was_absent && seat.state() != State::Absent);
        crowd.has_ended |= !had_ended && seat.state() == State::Ended;
        self.phase = seat.phase();
        // At MPI's end nobody waits for the answer whose time counts.
        crowd.spoke |= seat.has_spoken() && self.phase != Phase::Ending;
        crowd.phases[phase as usize] -= 1;
        crowd.phases[self.phase as usize] += 1;
        crowd.outside = crowd.outside + u32::from(after) - u32::from(before);
        if let Some(process) = seat.process() {
            match seat.state() {
                State::Parked => crowd.parked.insert(process),
                _ => crowd.parked.remove(&process),
            };
        }
        Some(result)
    }

    /// A turn, and what comes of it. Whether there was one.
    fn turn(
        &mut self,
        now: Time,
        takes: bool,
        give: impl FnOnce(&mut Seat, u64, &mut dyn FnMut(bool) -> bool) -> Option<Turn>,
    ) -> bool {
        let waiting = std::mem::take(&mut self.inbox);
        let mut left = VecDeque::new();
        let mut room = true;
        let host = self.place.ip;
        let turn = self.change(|seat, crowd| {
            seat.set_takes(takes);
            let neighbours =
                crowd.borrow().senders.get(&host).map_or(0, |all| all.saturating_sub(seat.senders()));
            seat.set_neighbours(neighbours);
            for (mut head, bytes, arrived) in waiting {
                head.age = now.since(arrived).0;
                room = room && seat.put(&head, &bytes);
                if !room {
                    left.push_back((head, bytes, arrived));
                }
            }
            let process = seat.process();
            let timeless = matches!(seat.phase(), Phase::Beginning | Phase::Ending);
            let (began, mut told) = (Instant::now(), false);
            let mut stuck = |asleep: bool| {
                let mut crowd = crowd.borrow_mut();
                if !asleep {
                    if !told && began.elapsed() > LONG_TURN {
                        told = true;
                        crowd.tell_of_long_work(process);
                    }
                    return crowd.has_rung();
                }
                // While it waits for its launcher others may go on in any order.
                if timeless || crowd.is_to_stop() {
                    return true;
                }
                // The process itself does not count as parked while it has the turn.
                if let Some(process) = process {
                    crowd.parked.remove(&process);
                }
                crowd.stays_quiet() && !process.is_some_and(|process| crowd.job.awaits_a_program(process))
            };
            let turn = give(seat, now.0, &mut stuck);
            crowd.borrow_mut().senders.insert(host, neighbours + seat.senders());
            turn
        });
        self.inbox = left;
        turn.flatten().is_some()
    }

    /// Gives turns to those who are to have one now; so many, lest one keep time from passing. After each of them `collect` gets what the
    /// process has sent. The card takes a packet if it `takes`, until `collect` says that it takes no more.
    pub fn run(&mut self, now: Time, mut takes: bool, collect: &mut dyn FnMut(Head, &[u8]) -> bool) {
        while let Some(next) = self.under_way.first_entry().filter(|next| next.key().0 <= now) {
            let ((at, _), (head, bytes)) = next.remove_entry();
            self.receive(head, bytes, at);
        }
        if self.rests {
            return;
        }
        let mut turns = 0;
        // What has come and found no room is taken in any case: nothing else may happen that would give another turn.
        while turns < MOST_TURNS || !self.inbox.is_empty() {
            turns += 1;
            let had = self.turn(now, takes, Seat::run);
            if let Some((seat, crowd)) = &self.seat {
                let had = had && self.phase != Phase::Ending;
                crowd.borrow_mut().turns += u64::from(had);
                self.own_turns += u64::from(had && seat.goes_on_by_itself());
            }
            if let Some((seat, _)) = &mut self.seat {
                while let Some((head, bytes)) = seat.take() {
                    takes &= collect(head, bytes);
                }
                seat.set_takes(takes);
            }
            if !had {
                break;
            }
        }
    }

    /// A packet has come.
    pub fn receive(&mut self, head: Head, bytes: Box<[u8]>, arrived: Time) {
        if self.inbox.len() >= LONGEST_INBOX || self.state() == State::Ended {
            self.dropped += 1;
            return;
        }
        self.inbox.push_back((head, bytes, arrived));
    }

    /// A packet will come at that time.
    pub fn expect(&mut self, at: Time, head: Head, bytes: Box<[u8]>) {
        self.expected += 1;
        self.under_way.insert((at, self.expected), (head, bytes));
    }

    /// Whether any will.
    pub fn is_expecting(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether its device has more to send than the card has taken.
    pub fn has_more(&self) -> bool {
        !self.rests && self.seat.as_ref().is_some_and(|(seat, _)| seat.has_more())
    }

    /// Whether its program will go on at some time, whatever comes.
    pub fn awaits_a_time(&self) -> bool {
        let awaits = self.seat.as_ref().is_some_and(|(seat, _)| seat.awaits_a_time());
        awaits && self.phase != Phase::Ending && !self.rests
    }

    /// When it wants a turn; [`Time::NEVER`] if it waits for packets only of which nobody knows when they come.
    pub fn due(&self) -> Time {
        let due = self.seat.as_ref().filter(|_| !self.rests).map_or(NEVER, |(seat, _)| seat.due());
        let own = if due == NEVER { Time::NEVER } else { Time(due) };
        self.under_way.first_key_value().map_or(own, |((at, _), _)| own.min(*at))
    }

    /// Whether it has just ended.
    pub fn has_just_ended(&mut self) -> bool {
        let ends = self.state() == State::Ended && !self.reported;
        self.reported |= ends;
        ends
    }
}
