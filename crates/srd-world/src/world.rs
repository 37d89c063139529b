//! The event loop: virtual time, what happens next, and the two phases of a run.

use crate::ledger::{Ledger, Message, Score, State, Violation, broken};
use crate::memory::WorldMemory;
use crate::net::{Net, Tally};
use crate::node::{Datagram, Identity, Node, gid_of};
use crate::plan::{Plan, purpose};
use crate::rng::{Rng, mix};
use crate::trace;
use arrayvec::ArrayVec;
use srd_wire::{Gid, Nanos, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use crate::event::Event;

/// Most processes of a world.
pub const MAX_PROCESSES: usize = 16;

/// Damage that the harness does itself between device and oracle. Each must be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// None.
    None,
    /// A byte of a payload changes, and nobody drops the packet.
    ChangePayload,
    /// A completion is not reported.
    LoseCompletion,
    /// A completion is reported twice.
    RepeatCompletion,
    /// A failure is reported as success.
    LieSuccess,
    /// A success is reported as failure.
    LieFailure,
    /// A completion reports another length.
    WrongLength,
    /// A byte beside a buffer is written.
    StrayWrite,
    /// A timer is not run.
    SleepThrough,
    /// A completion says that the source is another one.
    WrongSource,
}

impl Sabotage {
    /// Every kind of damage.
    pub const ALL: [Sabotage; 9] = [
        Sabotage::ChangePayload,
        Sabotage::LoseCompletion,
        Sabotage::RepeatCompletion,
        Sabotage::LieSuccess,
        Sabotage::LieFailure,
        Sabotage::WrongLength,
        Sabotage::StrayWrite,
        Sabotage::SleepThrough,
        Sabotage::WrongSource,
    ];

    /// The kind with this number in a plan.
    pub fn from_number(n: u64) -> Sabotage {
        n.checked_sub(1).and_then(|i| Sabotage::ALL.get(i as usize)).copied().unwrap_or(Sabotage::None)
    }
}

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What it was.
    pub plan: Plan,
    /// Which rule and how.
    pub violation: Violation,
    /// When.
    pub at: Time,
}

/// A run that broke none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Of every event in order.
    pub hash: u64,
    /// Events handled.
    pub events: u64,
    /// Times that an engine ran.
    pub wakes: u64,
    /// Virtual time.
    pub end: Time,
    /// The network's counts.
    pub net: Tally,
    /// The oracle's counts.
    pub score: Score,
}

/// See the module.
pub struct World {
    /// What this run is.
    pub plan: Plan,
    /// Print every event.
    pub tracing: bool,
    /// The time.
    pub now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    /// The network.
    pub net: Net,
    /// The processes.
    pub nodes: Vec<Node>,
    /// The oracle.
    pub ledger: Ledger,
    pub(crate) air: Vec<Option<Datagram>>,
    pub(crate) air_free: Vec<usize>,
    pub(crate) by_addr: BTreeMap<(Gid, u16), usize>,
    pub(crate) work: Rng,
    pub(crate) engine: Rng,
    pub(crate) births: Rng,
    /// Messages that each process has still to send.
    pub(crate) left: Vec<u64>,
    pub(crate) slow_until: Vec<Time>,
    /// The faults are over.
    pub(crate) healed: bool,
    pub(crate) jumped_back: Nanos,
    pub(crate) sabotaged: u64,
    pub(crate) hash: u64,
    handled: u64,
    pub(crate) wakes: u64,
    pub(crate) keys: Vec<Option<Identity>>,
    pub(crate) idle_wakes: Vec<(u64, Time)>,
    /// When packets were sent for the twentieth time, by sender, destination and number.
    pub(crate) stubborn: BTreeMap<(usize, usize, u32), Time>,
    /// Completions of the current poll; kept for its room.
    pub(crate) polled: Vec<srd_device::Completion>,
}

/// Most events of one run: a run that needs more does not end.
const MAX_EVENTS: u64 = 4_000_000;

impl World {
    /// The world of `plan`, with nothing started.
    pub fn new(plan: &Plan) -> World {
        let processes = (plan.shape.processes.max(1) as usize).min(MAX_PROCESSES);
        let hosts = processes.div_ceil(plan.shape.per_host.max(1) as usize);
        let nodes: Vec<Node> = (0..processes).map(|i| Node::new(plan, i, hosts)).collect();
        let by_addr = nodes
            .iter()
            .flat_map(|node| {
                let ports = std::iter::once(node.addr.port).chain(node.more_ports.iter().copied());
                ports.map(|port| ((node.addr.gid, port), node.index))
            })
            .collect();
        let gids = nodes.iter().map(|node| gid_of(node.host)).collect();
        let timeout = Nanos(plan.shape.peer_timeout_ns);
        let mut ledger = Ledger::new(plan.seed, gids, timeout);
        ledger.vague_silence = plan.shape.extra_ports > 0 || plan.shape.cq_lag_ns > 0;
        World {
            net: Net::new(plan, hosts),
            ledger,
            plan: plan.clone(),
            tracing: false,
            now: Time(0),
            events: BinaryHeap::new(),
            sequence: 0,
            air: Vec::new(),
            air_free: Vec::new(),
            by_addr,
            work: Rng::new(plan.seed, purpose::WORKLOAD),
            engine: Rng::new(plan.seed, purpose::ENGINE),
            births: Rng::new(plan.seed, purpose::DEVICES),
            left: vec![0; processes],
            slow_until: vec![Time(0); processes],
            healed: false,
            jumped_back: Nanos::ZERO,
            sabotaged: 0,
            hash: plan.seed,
            handled: 0,
            wakes: 0,
            keys: (0..processes).map(|_| None).collect(),
            idle_wakes: vec![(0, Time(0)); processes],
            stubborn: BTreeMap::new(),
            polled: Vec::new(),
            nodes,
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

    /// Adds to the hash of the run.
    pub(crate) fn note(&mut self, what: u64) {
        self.hash = mix(self.hash ^ what).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }

    /// Tells what happens, if somebody listens.
    pub(crate) fn tell(&self, line: impl FnOnce() -> String) {
        if self.tracing {
            println!("{} {}", trace::stamp(self.now), line());
        }
    }

    /// Handles what happens until `until`, or until `done` says so.
    pub fn run_until(&mut self, until: Time, done: impl Fn(&World) -> bool) -> Result<(), Violation> {
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
            Event::Fabric(slot) => self.pass_downlink(slot),
            Event::Arrive(slot) => self.arrive(slot)?,
            Event::Wake(node) => self.wake(node)?,
            Event::Post(node) => self.post_messages(node)?,
            Event::Stock(qp) => self.stock(qp)?,
            Event::Poll(node) => self.poll(node)?,
            Event::Fault(fault) => self.strike(fault)?,
            Event::Restart(node) => self.start(node)?,
            Event::Resume(node) => self.resume(node)?,
            Event::Handle(node, host) => self.make_handle(node, host)?,
        }
        Ok(())
    }

    /// The memories of the processes that live.
    pub(crate) fn memories(nodes: &mut [Node]) -> ArrayVec<Option<&mut WorldMemory>, MAX_PROCESSES> {
        nodes.iter_mut().map(|node| node.device.as_mut().map(|device| device.memory())).collect()
    }

    /// Starts every process and spreads messages and faults over the safety phase.
    pub fn begin(&mut self) -> Result<(), Violation> {
        for node in 0..self.nodes.len() {
            self.start(node)?;
        }
        let shape = self.plan.shape.clone();
        let bursts = shape.messages / shape.post_burst.max(1) + 1;
        for _ in 0..bursts {
            let node = self.work.below(self.nodes.len() as u64) as usize;
            self.left[node] += shape.post_burst;
            let at = self.work.below(shape.span_ns);
            self.at(Time(at), Event::Post(node));
        }
        self.schedule_calamities();
        Ok(())
    }

    /// Runs both phases.
    pub fn play(&mut self) -> Result<(), Violation> {
        self.begin()?;
        self.run_until(Time(self.plan.shape.span_ns), |_| false)?;
        self.heal()?;
        let patience = self.patience();
        self.tell(|| {
            format!("== the faults are over; everything must end within {} ms", patience.0 / 1_000_000)
        });
        self.run_until(self.now + patience, |world| world.ledger.outstanding == 0)?;
        for node in 0..self.nodes.len() {
            self.poll(node)?;
        }
        self.all_ended()?;
        self.run_until(self.now + self.longest_flight(), |_| false)?;
        self.greet()?;
        self.fall_silent()?;
        self.tear_down()
    }

    /// What the run did.
    pub fn summary(&self) -> Summary {
        Summary {
            hash: self.hash,
            events: self.handled,
            wakes: self.wakes,
            end: self.now,
            net: self.net.tally,
            score: self.ledger.score,
        }
    }

    /// How long a packet may be on its way.
    fn longest_flight(&self) -> Nanos {
        let (shape, faults) = (&self.plan.shape, &self.plan.faults);
        let queue = |mbps: u64, packets: u64| (packets * 12_000_000).checked_div(mbps).unwrap_or(0);
        let queues = queue(faults.slow_mbps, faults.slow_packets)
            + queue(faults.downlink_mbps, faults.downlink_packets);
        Nanos(
            2 * self.longest_path()
                + faults.dup_ns
                + faults.reorder_ns
                + 2 * queues
                + shape.batch_ns
                + shape.late_ns,
        )
    }

    /// One way, without queues.
    fn longest_path(&self) -> u64 {
        let (shape, faults) = (&self.plan.shape, &self.plan.faults);
        shape.rtt_ns * faults.skew_percent.max(100) / 200 + faults.delay_step_ns + faults.jitter_ns
    }

    /// By when after the end of the faults everything outstanding must have ended: a peer may have to be given up,
    /// a retransmission timer may have backed off all the way, a sender may wait its longest for a receive, a dead
    /// process may still have to start, a clock that was set back may have to catch up.
    pub fn patience(&self) -> Nanos {
        let shape = &self.plan.shape;
        let dead = shape.peer_timeout_ns + shape.peer_timeout_ns / 4;
        let timers = 8 * (shape.max_rto_ns + shape.late_ns + shape.batch_ns);
        let receives = 8 * shape.rnr_wait_max_ns;
        Nanos(dead + timers + receives + 100_000_000)
            + self.slowest_transfer()
            + self.longest_flight()
            + self.jumped_back
            + self.jumped_back
    }

    /// How long what is outstanding takes at the slowest.
    fn slowest_transfer(&self) -> Nanos {
        self.crawl(|message| message.state == State::Outstanding)
    }

    /// How long the messages that `which` picks take if every sender is at its smallest window all the while: a
    /// congestion control that takes slow hosts or a wrong base round trip for congestion goes no further down.
    pub(crate) fn crawl(&self, which: impl Fn(&Message) -> bool) -> Nanos {
        let shape = &self.plan.shape;
        let chosen = self.ledger.messages.iter().filter(|message| which(message));
        let packets: u64 = chosen.map(|message| 4 + message.len as u64 / 400).sum();
        let ack_delay = shape.ack_delay_ns.max(shape.stream_ack_delay_ns);
        let round = 2 * self.longest_path() + 2 * (shape.late_ns + shape.batch_ns) + ack_delay;
        let window_milli = if shape.window_bytes == 0 { shape.min_window_milli } else { 1_000 };
        Nanos(packets * round * 1_000 / window_milli)
    }

    fn all_ended(&self) -> Result<(), Violation> {
        let mut stuck = self
            .ledger
            .messages
            .iter()
            .enumerate()
            .filter(|(_, message)| message.state == State::Outstanding)
            .map(|(id, message)| {
                let (src, dst) = (&self.ledger.qps[message.qp], &self.ledger.qps[message.dst_qp]);
                format!("message {id} from process {} to {}: {message:?}", src.node, dst.node)
            });
        if let Some(first) = stuck.next() {
            return broken("liveness", format!("{} messages never end: {first}", stuck.count() + 1));
        }
        for (at, qp) in self.ledger.qps.iter().enumerate() {
            let node = &self.nodes[qp.node];
            let lives = qp.life == self.ledger.lives[qp.node].0 && node.device.is_some();
            if lives && qp.errored.is_some() && qp.destroyed.is_none() && qp.recvs_open > 0 {
                return broken(
                    "liveness",
                    format!("{} receives of queue pair {at} in error are not flushed", qp.recvs_open),
                );
            }
        }
        Ok(())
    }
}

/// A world that is made, and has still to happen.
pub(crate) trait Playable {
    /// Lets everything happen, until the first rule that is broken.
    fn play(&mut self) -> Result<(), Violation>;
    /// What the run did.
    fn summary(&self) -> Summary;
    /// The time.
    fn now(&self) -> Time;
}

impl Playable for World {
    fn play(&mut self) -> Result<(), Violation> {
        World::play(self)
    }

    fn summary(&self) -> Summary {
        World::summary(self)
    }

    fn now(&self) -> Time {
        self.now
    }
}

/// Runs `plan` from beginning to end. A panic is a violation like any other.
pub(crate) fn run(plan: &Plan, tracing: bool) -> Result<Summary, Box<Failure>> {
    let mut world = World::new(plan);
    world.tracing = tracing;
    to_the_end(plan, world)
}

/// Lets a world happen. A panic is a violation like any other.
pub(crate) fn to_the_end(plan: &Plan, mut world: impl Playable) -> Result<Summary, Box<Failure>> {
    let ended = catch_unwind(AssertUnwindSafe(|| world.play()));
    let violation = match ended {
        Ok(Ok(())) => {
            let summary = world.summary();
            // What falls over while it is dropped fails the run too.
            return match catch_unwind(AssertUnwindSafe(|| drop(world))) {
                Ok(()) => Ok(summary),
                Err(panic) => Err(failure(plan, panicked(&*panic), summary.end)),
            };
        }
        Ok(Err(violation)) => violation,
        Err(panic) => panicked(&*panic),
    };
    let at = world.now();
    // A device that has panicked may panic again while it is dropped.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(world)));
    Err(failure(plan, violation, at))
}

fn failure(plan: &Plan, violation: Violation, at: Time) -> Box<Failure> {
    Box::new(Failure { plan: plan.clone(), violation, at })
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Violation {
    let what = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message");
    let place = PANIC_PLACE.with_borrow(String::clone);
    Violation { rule: "panic", detail: format!("{what} ({place})") }
}

thread_local! {
    static PANIC_PLACE: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// Panics of runs are reported as violations, with their place; they print nothing of their own.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
        PANIC_PLACE.with_borrow_mut(|last| *last = place);
    }));
}
