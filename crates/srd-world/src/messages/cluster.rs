//! The event loop: virtual time, what happens next, packets, and when a process runs its device and its domain.

use crate::ledger::{Violation, broken};
use crate::messages::Sabotage;
use crate::messages::faults::Fault;
use crate::messages::lanes::{End, SharedMemory};
use crate::messages::oracle::{Book, Entry, Party};
use crate::messages::process::{Datagram, Open, Process, identity};
use crate::net::Net;
use crate::plan::{Faults, Plan, purpose};
use crate::rng::{Rng, mix};
use crate::trace;
use crate::world::{Playable, Summary};
use srd_device::{Memory, VecMemory, VecPayload};
use srd_msg::{Done, Kind, PeerAddr};
use srd_proto::{Payload, Received, Transmit};
use srd_wire::{Body, Gid, Nanos, Packet, Time, codec};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// A datagram reaches the destination's socket.
    Arrive(usize),
    /// The engine of a process runs.
    Wake(usize),
    /// A program looks what has come.
    Look(usize),
    /// A program asks for operations.
    Act(usize),
    /// A program asks for another operation at that process's endpoint.
    Again(usize, usize, Party),
    /// A program posts a receive.
    Receive(usize),
    /// Something goes wrong.
    Fault(Fault),
    /// A dead process begins again.
    Restart(usize),
    /// A process that stands still goes on.
    Resume(usize),
    /// An endpoint opens again.
    Reopen(usize, usize),
}

/// How often dead processes are looked for (the provider's `SWEEP_EVERY`).
const SWEEP_EVERY: Nanos = Nanos::from_millis(100);

/// Records of a ring that are taken in one round (as the provider's `BUDGET`).
const BUDGET: usize = 64;

/// Most events of one run.
const MAX_EVENTS: u64 = 3_000_000;

/// See the module.
pub struct Cluster {
    /// What this run is.
    pub plan: Plan,
    /// Print every event.
    tracing: bool,
    /// The time.
    pub now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    /// The network.
    pub net: Net,
    /// The processes.
    pub processes: Vec<Process>,
    /// What they share, by host.
    pub memory: SharedMemory,
    /// The oracle.
    pub book: Book,
    air: Vec<Option<Datagram>>,
    air_free: Vec<usize>,
    by_addr: BTreeMap<(Gid, u16), usize>,
    /// What programs do.
    pub work: Rng,
    pub(super) engine: Rng,
    pub(super) births: Rng,
    /// The faults are over.
    pub healed: bool,
    /// By how much clocks have been set back.
    pub jumped_back: Nanos,
    /// Damage done so far.
    spoiled: u64,
    /// Operations that were tried again.
    pub(super) tries: u64,
    held_back: Option<(usize, Done)>,
    hash: u64,
    handled: u64,
    wakes: u64,
}

impl Cluster {
    /// The world of `plan`, with nothing begun.
    pub fn new(plan: &Plan, tracing: bool) -> Cluster {
        let count = (plan.shape.processes.max(1) as usize).min(crate::world::MAX_PROCESSES);
        let hosts = count.div_ceil(plan.shape.per_host.max(1) as usize);
        let processes: Vec<Process> = (0..count).map(|i| Process::new(plan, i)).collect();
        let by_addr = (0..).zip(&processes).map(|(i, p)| ((p.addr.gid, p.addr.port), i)).collect();
        let t = &plan.talk;
        let calm = plan.faults == Faults::calm() && t.reopens == 0;
        Cluster {
            net: Net::new(plan, hosts),
            processes,
            memory: SharedMemory::default(),
            book: Book::new(plan.seed, calm),
            plan: plan.clone(),
            tracing,
            now: Time(0),
            events: BinaryHeap::new(),
            sequence: 0,
            air: Vec::new(),
            air_free: Vec::new(),
            by_addr,
            work: Rng::new(plan.seed, purpose::WORKLOAD),
            engine: Rng::new(plan.seed, purpose::ENGINE),
            births: Rng::new(plan.seed, purpose::DEVICES),
            healed: false,
            jumped_back: Nanos::ZERO,
            spoiled: 0,
            tries: 0,
            held_back: None,
            hash: plan.seed,
            handled: 0,
            wakes: 0,
        }
    }

    /// Puts `event` at `at`, which is not before now.
    pub fn at(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at.max(self.now), self.sequence, event)));
    }

    /// Puts `event` after `span`.
    pub fn after(&mut self, span: u64, event: Event) {
        self.at(self.now + Nanos(span), event);
    }

    fn note(&mut self, what: u64) {
        self.hash = mix(self.hash ^ what).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }

    /// Tells what happens, if somebody listens.
    pub fn tell(&self, line: impl FnOnce() -> String) {
        if self.tracing {
            println!("{} {}", trace::stamp(self.now), line());
        }
    }

    /// Handles what happens until `until`, or until `done` says so.
    pub fn run_until(&mut self, until: Time, done: impl Fn(&Cluster) -> bool) -> Result<(), Violation> {
        while !done(self) {
            match self.events.peek() {
                Some(Reverse((at, _, _))) if *at <= until => {}
                _ => {
                    self.now = self.now.max(until);
                    return Ok(());
                }
            }
            let Reverse((at, _, event)) = self.events.pop().expect("peeked");
            self.now = at;
            self.handled += 1;
            if self.handled > MAX_EVENTS {
                return broken("livelock", format!("{MAX_EVENTS} events and no end"));
            }
            self.handle(event)?;
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Arrive(slot) => self.arrive(slot),
            Event::Wake(process) if self.processes[process].wake_at == self.now => self.serve(process)?,
            Event::Wake(_) => {}
            Event::Look(process) => self.look(process)?,
            Event::Act(process) => self.act(process)?,
            Event::Again(process, slot, to) => self.act_at(process, slot, to)?,
            Event::Receive(process) => self.receive(process)?,
            Event::Fault(faults) => self.strike(faults)?,
            Event::Restart(process) => self.begin_process(process)?,
            Event::Resume(process) => self.wake_at(process, self.now),
            Event::Reopen(process, slot) => self.open_endpoint(process, slot)?,
        }
        Ok(())
    }

    // ---- when a process runs ----

    /// Makes the engine of a process run at `at`, unless it runs earlier anyway.
    pub fn wake_at(&mut self, process: usize, at: Time) {
        let at = at.max(self.now);
        if at < self.processes[process].wake_at {
            self.processes[process].wake_at = at;
            self.at(at, Event::Wake(process));
        }
    }

    /// Runs the engine of a process once.
    fn serve(&mut self, index: usize) -> Result<(), Violation> {
        let process = &mut self.processes[index];
        process.wake_at = Time::NEVER;
        if process.life.is_none() {
            return Ok(());
        }
        if !process.runs(self.now) {
            let until = process.paused_until;
            self.wake_at(index, until);
            return Ok(());
        }
        self.wakes += 1;
        let local = process.local(self.now);
        while let Some(Datagram { to, from, packet, bytes, marked, cut }) = process.inbox.pop_front() {
            process.inbox_bytes -= bytes as u64;
            let received = Received { ce: marked, cut, ..Received::new(local, from, &packet, bytes) };
            let life = process.living();
            life.device.handle_packet(local, to.port, received);
            if let Some(begun) = life.device.poll_begun() {
                life.domain.take_up(&mut life.device, local, &begun);
            }
        }
        let device = &mut process.living().device;
        if device.next_timeout() <= local {
            device.handle_timeout(local);
        }
        self.send_packets(index)?;
        if self.plan.shape.cq_lag_ns == 0 {
            self.look_now(index)?;
        } else if self.processes[index].look_at == Time::NEVER {
            // Its program computes: the engine acknowledges meanwhile what nobody has looked at.
            let lag = self.engine.below(self.plan.shape.cq_lag_ns);
            self.processes[index].look_at = self.now + Nanos(lag);
            self.after(lag, Event::Look(index));
        }
        self.plan_next_wake(index);
        Ok(())
    }

    fn plan_next_wake(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let Some(life) = &process.life else { return };
        let mut due = life.device.next_timeout();
        // A program that computes looks later than its timers want.
        if process.look_at == Time::NEVER {
            due = due.min(life.domain.next_timeout());
            if life.slots.iter().flatten().any(|open| open.closing.is_some()) {
                due = due.min(process.local(self.now) + Nanos::from_micros(200));
            }
            // Who sleeps is woken for sweeps, too.
            if self.plan.shape.per_host > 1 {
                due = due.min(life.next_sweep);
            }
        }
        if due != Time::NEVER {
            let at = process.world(due).max(Time(self.now.0 + 1));
            self.wake_at(index, at);
        }
    }

    fn look(&mut self, index: usize) -> Result<(), Violation> {
        let process = &mut self.processes[index];
        process.look_at = Time::NEVER;
        if process.life.is_none() {
            return Ok(());
        }
        if !process.runs(self.now) {
            let until = process.paused_until;
            process.look_at = until;
            self.at(until, Event::Look(index));
            return Ok(());
        }
        self.look_now(index)?;
        self.plan_next_wake(index);
        Ok(())
    }

    /// Lets a program take what has come, and tells the oracle what it is told.
    pub fn look_now(&mut self, index: usize) -> Result<(), Violation> {
        for slot in 0..self.plan.talk.endpoints as usize {
            self.take_near(index, slot);
        }
        let local = self.processes[index].local(self.now);
        let mut slots = 0..self.plan.talk.endpoints as usize;
        let has_news = |slot| {
            self.processes[index].open(slot).is_some_and(|open| self.memory.lock().has_news(open.party))
        };
        let empty = !slots.any(has_news);
        let life = self.processes[index].living();
        if empty {
            life.domain.lanes_are_empty(&mut life.device, local);
        }
        life.domain.progress(&mut life.device, local);
        self.settle_copies(index);
        if local >= self.processes[index].living().next_sweep {
            self.sweep(index, local);
        }
        while let Some((id, peer, addr)) = self.processes[index].living().domain.poll_stranger() {
            let slots = &self.processes[index].living().slots;
            if let Some(slot) = slots.iter().position(|open| open.as_ref().is_some_and(|open| open.id == id))
            {
                self.meet(index, slot, peer, addr);
            }
        }
        self.collect(index)?;
        self.close_those_that_wait(index)?;
        self.send_packets(index)?;
        self.spread_news();
        if self.processes[index].life.is_some() {
            let asleep = self.plan.shape.notified != 0;
            for slot in 0..self.plan.talk.endpoints as usize {
                let Some(open) = self.processes[index].open(slot) else { continue };
                let mut segments = self.memory.lock();
                let sleeps = asleep && !segments.has_news(open.party);
                segments.set_asleep(open.party, sleeps);
                let left = segments.has_news(open.party);
                drop(segments);
                if left {
                    self.wake_at(index, Time(self.now.0 + 1));
                }
            }
        }
        Ok(())
    }

    /// What the domains have completed is told to the oracle.
    pub fn collect(&mut self, index: usize) -> Result<(), Violation> {
        while let Some(done) = self.processes[index].living().domain.poll_done() {
            let slots = &self.processes[index].living().slots;
            let open = slots.iter().flatten().find(|open| open.id == done.endpoint);
            let Some(party) = open.map(|open| open.party) else {
                return broken("stray completion", format!("of an endpoint that is closed: {done:?}"));
            };
            for done in self.spoil(index, done) {
                self.tell(|| format!("{index} {party:?} completes {done:?}"));
                self.note(done.context ^ (index as u64) << 56 ^ done.len << 20);
                let memory = self.processes[index].life.as_mut().expect("it lives").device.memory();
                let mut bytes = |at: u64, len: u64| memory.at(at, len as usize).to_vec();
                self.book.completed(self.now, party, &done, &mut bytes)?;
                self.check_written(&done)?;
                if let (Kind::Send { .. }, Entry::Message(number)) = (done.kind, Entry::of(done.context)) {
                    self.use_again(number);
                }
                self.try_again(index, &done);
            }
        }
        Ok(())
    }

    // ---- shared memory ----

    fn take_near(&mut self, index: usize, slot: usize) {
        let Some(open) = self.processes[index].open(slot) else { return };
        let (party, id) = (open.party, open.id);
        self.memory.lock().set_asleep(party, false);
        let mut rings = self.memory.lock().rings_of(party);
        if rings.is_empty() {
            return;
        }
        // What goes through two of them has no order.
        let first = self.engine.below(rings.len() as u64) as usize;
        rings.rotate_left(first);
        let local = self.processes[index].local(self.now);
        for ring in rings {
            for _ in 0..BUDGET {
                let Some((from, record)) = self.memory.lock().take(ring) else { break };
                let from = self.book.parties[from.0].addr;
                let life = self.processes[index].living();
                let at = life.bytes(record.len() as u64);
                life.device.memory().at_mut(at, record.len()).copy_from_slice(&record);
                let place = (from.gid, from.qpn);
                life.domain.arrived_by_shm(&mut life.device, local, id, place, at, record.len() as u32);
                self.settle_copies(index);
            }
        }
    }

    fn sweep(&mut self, index: usize, local: Time) {
        self.processes[index].living().next_sweep = local + SWEEP_EVERY;
        for slot in 0..self.plan.talk.endpoints as usize {
            let Some(open) = self.processes[index].open(slot) else { continue };
            let (party, id) = (open.party, open.id);
            loop {
                let ended = self.memory.lock().next_ended(party);
                let Some(from) = ended else { break };
                self.tell(|| format!("{index} {party:?} notices that {from:?} has gone"));
                let addr = self.book.parties[from.0].addr;
                let life = self.processes[index].living();
                let who = identity(from).number.get();
                life.domain.lost_by_shm(&mut life.device, local, id, (addr.gid, addr.qpn), who);
            }
            let open = self.processes[index].living().slots[slot].as_mut().expect("it is open");
            for (peer, addr) in std::mem::take(&mut open.without) {
                self.meet(index, slot, peer, addr);
            }
        }
    }

    /// A peer of this host may get a lane.
    pub fn meet(&mut self, index: usize, slot: usize, peer: srd_msg::PeerId, addr: PeerAddr) {
        let Some(there) = self.book.parties.iter().rposition(|party| party.addr == addr) else { return };
        let (to, process) = (Party(there), self.book.parties[there].process);
        if process == index || self.processes[process].host != self.processes[index].host {
            return;
        }
        let pair = mix(self.plan.seed ^ mix((index.min(process) as u64) << 8 | index.max(process) as u64));
        if pair % 100 >= self.plan.talk.lanes_percent {
            return;
        }
        let local = self.processes[index].local(self.now);
        let (memory, talk) = (self.memory.clone(), self.plan.talk.clone());
        let life = self.processes[index].living();
        let connected = life.connect(local, slot, peer, to, &memory, &talk);
        let open = self.processes[index].living().slots[slot].as_mut();
        if let Some(open) = open.filter(|_| !connected) {
            open.without.push((peer, addr));
        }
        self.tell(|| {
            format!("{index} {slot} meets {to:?}: {}", if connected { "a lane" } else { "none yet" })
        });
    }

    /// Who has something new in shared memory looks, unless it sleeps.
    pub fn spread_news(&mut self) {
        let news = std::mem::take(&mut self.memory.lock().news);
        for party in news {
            let process = self.book.parties[party.0].process;
            if self.book.is_open(party) && self.plan.shape.notified == 0 {
                let at = Time(self.now.0 + 100 + self.engine.below(self.plan.shape.batch_ns + 1));
                self.wake_at(process, at);
            }
        }
    }

    /// Carries out what a call has promised.
    pub fn settle_copies(&mut self, index: usize) {
        let copies = std::mem::take(&mut self.memory.lock().copies);
        for copy in copies {
            let process = self.book.parties[copy.from.0].process;
            let bytes =
                self.processes[process].living().device.memory().at(copy.there, copy.len as usize).to_vec();
            let memory = self.processes[index].living().device.memory();
            memory.at_mut(copy.here, bytes.len()).copy_from_slice(&bytes);
        }
    }

    // ---- packets ----

    /// Sends what a device wants to send.
    pub fn send_packets(&mut self, index: usize) -> Result<(), Violation> {
        if self.processes[index].life.is_none() {
            return Ok(());
        }
        let local = self.processes[index].local(self.now);
        let mut sent = 0;
        while let Some(transmit) = self.processes[index].living().device.poll_transmit(local) {
            self.transmit(index, transmit);
            sent += 1;
            if sent > 50_000 {
                return broken("storm", format!("process {index} sends {sent} packets at one moment"));
            }
        }
        Ok(())
    }

    fn transmit(&mut self, index: usize, transmit: Transmit<VecPayload>) {
        let Transmit { to, entropy, pad_to, packet, .. } = transmit;
        let payload = match &packet.body {
            Body::Data(data) => data.payload.len(),
            _ => 0,
        };
        let bytes = codec::header_len(&packet) + payload.max(pad_to as usize);
        let packet = if self.plan.shape.codec > 0 { as_bytes(&packet, pad_to) } else { packet };
        self.note((bytes as u64) << 20 ^ entropy as u64 ^ (index as u64) << 50);
        let Some(&there) = self.by_addr.get(&(to.gid, to.port)) else { return };
        self.tell(|| format!("{index} to {there} by {entropy}, {bytes} B: {}", trace::packet(&packet)));
        let from = self.processes[index].addr.gid;
        let (src, dst) = (self.processes[index].host, self.processes[there].host);
        let arrivals = self.net.send(self.now, src, dst, entropy, bytes);
        if arrivals.is_empty() {
            self.tell(|| "  lost".to_string());
        }
        for arrival in arrivals.into_iter().filter(|arrival| !arrival.damaged) {
            let cut = arrival.cut && payload > 0;
            let packet =
                packet.clone().map_payload(|payload| if cut { VecPayload::empty() } else { payload });
            let datagram = Datagram { to, from, packet, bytes, marked: arrival.marked, cut };
            let slot = self.air_free.pop().unwrap_or(self.air.len());
            if slot == self.air.len() {
                self.air.push(None);
            }
            self.air[slot] = Some(datagram);
            self.at(arrival.at, Event::Arrive(slot));
        }
    }

    fn arrive(&mut self, slot: usize) {
        self.air_free.push(slot);
        let datagram = self.air[slot].take().expect("it lands once");
        let index = self.by_addr[&(datagram.to.gid, datagram.to.port)];
        let process = &mut self.processes[index];
        let room = self.plan.shape.rcvbuf_bytes.max(20_000);
        if process.life.is_none() || process.inbox_bytes + datagram.bytes as u64 > room {
            self.tell(|| format!("  lost at the socket of process {index}"));
            return;
        }
        process.inbox_bytes += datagram.bytes as u64;
        process.inbox.push_back(datagram);
        let batch = self.engine.below(self.plan.shape.batch_ns + 1);
        self.wake_at(index, Time(self.now.0 + batch));
    }

    // ---- processes and endpoints ----

    /// Begins a process, with all its endpoints.
    pub fn begin_process(&mut self, index: usize) -> Result<(), Violation> {
        if self.processes[index].life.is_some() || self.processes[index].gone {
            return Ok(());
        }
        self.processes[index].start(&self.plan.talk, &mut self.births);
        self.tell(|| format!("{index} begins"));
        for slot in 0..self.plan.talk.endpoints as usize {
            self.open_endpoint(index, slot)?;
        }
        Ok(())
    }

    fn open_endpoint(&mut self, index: usize, slot: usize) -> Result<(), Violation> {
        let process = &mut self.processes[index];
        let (qpn, local) = (process.qpn(slot), process.local(self.now));
        let (lives, gid) = (process.lives, process.addr.gid);
        let Some(life) = &mut process.life else { return Ok(()) };
        if life.slots[slot].is_some() {
            return Ok(());
        }
        let party = Party(self.book.parties.len());
        let made = life.device.create_numbered_qp(life.domain.qp_init(), qpn);
        made.map_err(|error| Violation { rule: "setup", detail: format!("queue pair: {error:?}") })?;
        let opened = life.domain.open_endpoint(&mut life.device, local, qpn, identity(party), 0);
        let id =
            opened.map_err(|error| Violation { rule: "setup", detail: format!("endpoint: {error:?}") })?;
        let forgetful = self.plan.talk.spoil == Sabotage::KeepLoan.number();
        life.domain.set_loans(id, self.memory.loans(party, !forgetful));
        life.slots[slot] = Some(Open { party, id, without: Vec::new(), closing: None });
        let addr = PeerAddr { gid, qpn, key: identity(party).key() };
        self.tell(|| format!("{index} opens {slot}: {party:?}"));
        self.book.parties.push(crate::messages::oracle::PartyRecord {
            process: index,
            slot,
            life: lives,
            addr,
            ended: None,
        });
        self.memory.lock().open(party);
        self.wake_at(index, self.now);
        Ok(())
    }

    /// Closes an endpoint now.
    pub fn close_endpoint(&mut self, index: usize, slot: usize) -> Result<(), Violation> {
        let (qpn, local) = (self.processes[index].qpn(slot), self.processes[index].local(self.now));
        let life = self.processes[index].living();
        let Some(open) = life.slots[slot].take() else { return Ok(()) };
        let destroyed = life.device.destroy_qp(local, qpn);
        destroyed.map_err(|error| Violation { rule: "setup", detail: format!("destroy_qp: {error:?}") })?;
        life.domain.close_endpoint(&mut life.device, local, open.id);
        self.memory.lock().end(open.party, End::Closed);
        self.book.ended(self.now, open.party);
        for number in self.book.unfinished_of(open.party) {
            self.use_again(number);
        }
        self.tell(|| format!("{index} has closed {slot}: {:?}", open.party));
        self.send_packets(index)?;
        let wait = self.births.below(2_000_000);
        self.after(wait, Event::Reopen(index, slot));
        Ok(())
    }

    fn close_those_that_wait(&mut self, index: usize) -> Result<(), Violation> {
        let local = self.processes[index].local(self.now);
        for slot in 0..self.plan.talk.endpoints as usize {
            let Some(open) = self.processes[index].open(slot) else { continue };
            let Some(latest) = open.closing else { continue };
            let id = open.id;
            let drain = self.processes[index].living().domain.drain(id);
            if drain == srd_msg::Drain::Over || local >= latest {
                self.close_endpoint(index, slot)?;
            }
        }
        Ok(())
    }

    /// Kills a process.
    pub fn kill(&mut self, index: usize) -> Result<(), Violation> {
        if self.processes[index].life.is_none() {
            return Ok(());
        }
        // What it has been told counts.
        self.collect(index)?;
        self.check_untouched(index)?;
        self.tell(|| format!("{index} is killed"));
        for slot in 0..self.plan.talk.endpoints as usize {
            if let Some(party) = self.processes[index].open(slot).map(|open| open.party) {
                self.memory.lock().end(party, End::Killed);
                self.book.ended(self.now, party);
            }
        }
        let all = (0..).map(Party).zip(&self.book.parties).filter(|(_, party)| party.process == index);
        all.for_each(|(party, _)| self.memory.lock().forget_memory(party));
        let process = &mut self.processes[index];
        process.life = None;
        process.inbox.clear();
        process.inbox_bytes = 0;
        process.paused_until = Time(0);
        Ok(())
    }

    // ---- damage of our own ----

    fn spoil(&mut self, index: usize, done: Done) -> Vec<Done> {
        let kind = Sabotage::from_number(self.plan.talk.spoil);
        if kind == Sabotage::None {
            return vec![done];
        }
        let received = matches!(done.kind, Kind::Recv { .. }) && done.error.is_none();
        let sent = matches!(done.kind, Kind::Send { .. });
        let now = self.engine.below(5) == 0;
        match kind {
            Sabotage::LoseReceive if received && now => Vec::new(),
            Sabotage::RepeatReceive if received && now => vec![done, done],
            Sabotage::LoseSend if sent && now => Vec::new(),
            Sabotage::LieSuccess if sent && done.error.is_some() => vec![Done { error: None, ..done }],
            Sabotage::Swap if received && self.held_back.is_none() && self.spoiled == 0 => {
                self.held_back = Some((index, done));
                Vec::new()
            }
            Sabotage::Swap if received => match self.held_back.take() {
                Some((at, held))
                    if at == index && held.from == done.from && held.endpoint == done.endpoint =>
                {
                    self.spoiled += 1;
                    vec![Done { context: held.context, ..done }, Done { context: done.context, ..held }]
                }
                other => {
                    self.held_back = other;
                    vec![done]
                }
            },
            _ => vec![done],
        }
    }
}

/// A packet that has been bytes.
fn as_bytes(packet: &Packet<VecPayload>, pad_to: u16) -> Packet<VecPayload> {
    let empty = VecPayload::empty();
    let payload = match &packet.body {
        Body::Data(data) => data.payload.as_slice(),
        _ => empty.as_slice(),
    };
    let mut raw = vec![0; codec::header_len(packet)];
    codec::encode_header(packet, payload.len(), &mut raw);
    let len = raw.len() + payload.len().max(pad_to as usize);
    raw.extend_from_slice(payload);
    raw.resize(len, 0);
    let decoded = codec::decode(&raw).unwrap_or_else(|error| panic!("{error:?}: {packet:?}"));
    decoded.map_payload(|bytes| VecMemory::default().inline(bytes))
}

impl Playable for Cluster {
    fn play(&mut self) -> Result<(), Violation> {
        self.begin()?;
        self.run_until(Time(self.plan.shape.span_ns), |_| false)?;
        self.end()
    }

    fn summary(&self) -> Summary {
        Summary {
            hash: self.hash,
            events: self.handled,
            wakes: self.wakes,
            end: self.now,
            net: self.net.tally,
            score: self.book.score,
        }
    }

    fn now(&self) -> Time {
        self.now
    }
}
