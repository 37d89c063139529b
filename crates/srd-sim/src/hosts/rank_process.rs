//! A simulated host's process that is a real one: a program of the user's, whose provider sends and receives here instead of by
//! sockets (`srd-virtual`). Everything above the network card runs there, and the clock that it sees is the simulation's.

use crate::hosts::process::{Birth, Process};
use crate::hosts::srd_nic::{FIRST_SOURCE_PORT, IP_UDP, SOURCE_PORTS, gid, host_of, transport_config};
use crate::net::{Content, FrameHead};
use srd_baselines::transport::{Counts, Order, Outgoing, Report, Transport};
use srd_proto::{ControllerKind, SelectorKind};
use srd_virtual::layout::{Head, NEVER};
use srd_virtual::world::{Seat, State, Turn};
use srd_virtual::{Phase, Place, job::Job};
use srd_wire::{Body, Time, codec};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// UDP port of a host's first process: that of devices on a network.
const PORT_BASE: u16 = 17408;
/// Turns that a process has at a moment.
const MOST_TURNS: u32 = 4;
/// Packets that wait for a process which does not take them, beyond which the card drops.
const LONGEST_INBOX: usize = 4096;

/// A datagram of a process, as it would be on a wire.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Sending host.
    from: u32,
    ports: (u16, u16),
    bytes: Box<[u8]>,
}

impl Content for Datagram {
    fn trim(&mut self) -> Option<u32> {
        None // as SRD's packets of scripts
    }
}

/// What all processes of a run have in common.
#[derive(Debug, Default)]
pub struct Crowd {
    job: Job,
    /// Counts how often somebody has wanted attention, and what it showed when somebody looked.
    bell: Option<&'static AtomicU32>,
    heard: u32,
    /// Processes that wait in their seats.
    parked: BTreeSet<u32>,
    /// How many have not ended and do not wait in their seats.
    outside: u32,
    /// How many of those have not even come.
    absent: u32,
    /// How many are in each phase.
    phases: [u32; 4],
    /// Processes that never rest.
    restless: BTreeSet<u32>,
    /// Somebody has written to somebody who is not of the fabric.
    spoke: bool,
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
    /// Nobody yet. `bell` counts how often somebody wants attention.
    pub fn new(bell: &'static AtomicU32) -> Crowd {
        Crowd { bell: Some(bell), ..Crowd::default() }
    }

    /// Whether somebody has wanted attention since [`Crowd::hear`].
    pub fn has_rung(&self) -> bool {
        self.bell.is_some_and(|bell| bell.load(Ordering::Acquire) != self.heard)
    }

    /// Everything is known of what the bell shows now.
    pub fn hear(&mut self) {
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
        let restless = self.job.restless(&|process| self.restless.contains(&process));
        self.restless.extend(&restless);
        restless
    }

    /// Whether somebody has written to somebody who is not of the fabric since this was last asked.
    pub fn has_spoken(&mut self) -> bool {
        std::mem::take(&mut self.spoke)
    }

    /// The same for certain.
    pub fn stays_quiet(&mut self) -> bool {
        for_a_while(|| self.is_quiet())
    }

    /// Ends whatever still runs.
    pub fn kill(&mut self) {
        self.job.kill();
    }
}

/// See the module.
pub struct RankProcess {
    host: u32,
    class: u8,
    place: Place,
    seat: Option<(Seat, Rc<RefCell<Crowd>>)>,
    /// What has come, and when.
    inbox: VecDeque<(Head, Box<[u8]>, Time)>,
    outbox: VecDeque<Outgoing<Datagram>>,
    /// How far its program is, as of the last look.
    phase: Phase,
    /// Classes that are paused, a bit each.
    paused: u8,
    counts: Counts,
    dropped: u64,
    /// It has not been told of yet that it has ended.
    reported: bool,
}

impl RankProcess {
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

    /// Packets that came while the process took none, and found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Looks what it is doing. Whether it asks for the turn.
    pub fn look(&mut self) -> bool {
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

    /// They are.
    pub fn go_on(&self) {
        if let Some((seat, _)) = &self.seat {
            seat.go_on();
        }
    }

    /// Lets a thread look that polls, though nothing has come.
    pub fn let_look(&mut self, now: Time) -> bool {
        self.turn(now, |seat, now, stuck| seat.let_look(now, stuck))
    }

    /// Does something with the seat, and keeps the crowd's books.
    fn change<R>(&mut self, f: impl FnOnce(&mut Seat, &Rc<RefCell<Crowd>>) -> R) -> Option<R> {
        let (seat, crowd) = self.seat.as_mut()?;
        let is_outside = |state| matches!(state, State::Absent | State::Outside);
        let (before, phase) = (is_outside(seat.state()), self.phase);
        let was_absent = seat.state() == State::Absent;
        let result = f(seat, crowd);
        let after = is_outside(seat.state());
        let mut crowd = crowd.borrow_mut();
        crowd.absent -= u32::from(was_absent && seat.state() != State::Absent);
        crowd.spoke |= seat.has_spoken();
        self.phase = seat.phase();
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
        give: impl FnOnce(&mut Seat, u64, &mut dyn FnMut(bool) -> bool) -> Option<Turn>,
    ) -> bool {
        let backlog = self.outbox.len() as u32;
        let waiting = std::mem::take(&mut self.inbox);
        let mut left = VecDeque::new();
        let mut room = true;
        let turn = self.change(|seat, crowd| {
            seat.set_backlog(backlog);
            for (mut head, bytes, arrived) in waiting {
                head.age = now.since(arrived).0;
                room = room && seat.put(&head, &bytes);
                if !room {
                    left.push_back((head, bytes, arrived));
                }
            }
            let process = seat.process();
            let mut stuck = |asleep: bool| {
                let mut crowd = crowd.borrow_mut();
                if !asleep {
                    return crowd.has_rung();
                }
                // The process itself does not count as parked while it has the turn.
                if let Some(process) = process {
                    crowd.parked.remove(&process);
                }
                crowd.stays_quiet()
            };
            give(seat, now.0, &mut stuck)
        });
        self.inbox = left;
        self.collect();
        turn.flatten().is_some()
    }

    /// Takes what the process has sent.
    fn collect(&mut self) {
        let Some((seat, _)) = &mut self.seat else { return };
        while let Some((head, bytes)) = seat.take() {
            let ports = (head.ports[0], head.ports[1]);
            let to = host_of(IpAddr::V4(Ipv4Addr::from_bits(head.peer)).into());
            let Some(process) = ports.1.checked_sub(PORT_BASE) else { continue };
            match codec::decode(bytes).map(|packet| packet.body) {
                Ok(Body::Data(data)) if data.tx_count > 0 => self.counts.data_again += 1,
                Ok(Body::Data(_)) => self.counts.data_new += 1,
                _ => self.counts.bare += 1,
            }
            self.outbox.push_back(Outgoing {
                to,
                process,
                ports,
                bytes: bytes.len() as u32 + IP_UDP,
                class: self.class,
                ecn_capable: true,
                content: Datagram { from: self.host, ports, bytes: bytes.into() },
            });
        }
    }

    /// Gives turns to those who are to have one now; so many, lest one keep time from passing.
    fn run(&mut self, now: Time) {
        for _ in 0..MOST_TURNS {
            if !self.turn(now, Seat::run) {
                break;
            }
        }
    }
}

impl Process for RankProcess {
    const RUNS_PROGRAMS: bool = true;

    fn new(birth: Birth<'_>) -> RankProcess {
        let config = transport_config(&birth);
        let role = &birth.role;
        let ip = match gid(role.host).ip() {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(_) => unreachable!("simulated hosts have IPv4 addresses"),
        };
        let selector = SelectorKind::ALL.iter().position(|(_, kind)| *kind == config.selector);
        let controller = ControllerKind::ALL.iter().position(|(_, kind)| *kind == config.controller);
        let place = Place {
            ip,
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
            fixed_window_bytes: config.fixed_window_bytes,
            seed: role.seed,
        };
        RankProcess {
            host: role.host,
            class: role.class,
            place,
            seat: None,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            phase: Phase::Before,
            paused: 0,
            counts: Counts::default(),
            dropped: 0,
            reported: false,
        }
    }
}

impl Transport for RankProcess {
    type Content = Datagram;
    type Address = ();

    fn address(&self) {}

    fn expect(&mut self, _: &(), _: u32, _: u64) {
        unreachable!("programs receive no flows");
    }

    fn start(&mut self, _: Time, _: Order, _: &()) {
        unreachable!("programs send no flows");
    }

    fn stop(&mut self, _: Time, _: u32) {
        unreachable!("programs send no flows");
    }

    fn meet(&mut self, _: &[()]) {}

    fn receive(&mut self, now: Time, arrived: Time, head: &FrameHead, content: &Datagram) {
        if self.inbox.len() >= LONGEST_INBOX || self.state() == State::Ended {
            self.dropped += 1;
            return;
        }
        let IpAddr::V4(from) = gid(content.from).ip() else { return };
        let own = Head {
            len: content.bytes.len() as u32,
            peer: from.to_bits(),
            ports: [content.ports.0, content.ports.1],
            marked: head.marked.into(),
            age: 0,
        };
        self.inbox.push_back((own, content.bytes.clone(), arrived));
        self.run(now);
    }

    fn poll_transmit<R>(&mut self, _: Time, mut sink: impl FnMut(Outgoing<Datagram>) -> R) -> Option<R> {
        if self.paused >> self.class & 1 != 0 {
            return None;
        }
        let outgoing = self.outbox.pop_front()?;
        if let Some((seat, _)) = &self.seat {
            seat.set_backlog(self.outbox.len() as u32);
        }
        Some(sink(outgoing))
    }

    fn set_paused(&mut self, classes: u8) {
        self.paused = classes;
    }

    fn handle_timeout(&mut self, now: Time) {
        self.run(now);
    }

    fn next_timeout(&self) -> Time {
        let due = self.seat.as_ref().map_or(NEVER, |(seat, _)| seat.due());
        if due == NEVER { Time::NEVER } else { Time(due) }
    }

    fn program_timeout(&self) -> Time {
        self.next_timeout()
    }

    fn poll_report(&mut self) -> Option<Report> {
        let ends = self.state() == State::Ended && !self.reported;
        self.reported |= ends;
        ends.then_some(Report::Ended)
    }

    fn delivered(&mut self, _: u32) -> u64 {
        unreachable!("programs receive no flows");
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
