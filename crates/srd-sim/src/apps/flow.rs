//! What a run is to move: flows, and what starts them. Workloads and htsim's connection matrices become this.

use crate::apps::catalogue::Job;
use crate::apps::script::Script;
use srd_baselines::units::Ps;
use std::collections::HashMap;
use std::fmt;

/// A process on a host: it has a device instance of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// Host number.
    pub host: u32,
    /// Number among the host's processes.
    pub process: u16,
}

/// One transfer from one process to another.
#[derive(Clone, PartialEq, Debug)]
pub struct Flow {
    /// Number shown to people (in a `.cm` file, its id).
    pub id: u32,
    /// Index into [`Traffic::workloads`].
    pub workload: u16,
    /// Index of the transport that moves it, among the scenario's.
    pub transport: u16,
    /// Sender.
    pub src: Place,
    /// Receiver.
    pub dst: Place,
    /// How much.
    pub size: Size,
    /// When it starts.
    pub start: Start,
    /// Indices of triggers that fire when the sender has every byte acknowledged.
    pub on_sent: Vec<u32>,
    /// Indices of triggers that fire when the receiver has every byte.
    pub on_received: Vec<u32>,
}

/// How much a flow moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// So many bytes of payload, at least one.
    Bytes(u64),
    /// As much as goes until this moment.
    Until(Ps),
}

/// When a flow starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At this moment.
    At(Ps),
    /// When the trigger with this index says so.
    Trigger(u32),
}

/// Starts flows when others have done something.
#[derive(Clone, PartialEq, Debug)]
pub struct Trigger {
    /// How firing starts flows.
    pub kind: TriggerKind,
    /// Indices of the flows that name it in [`Flow::start`], in order.
    pub flows: Vec<u32>,
}

/// See docs/design/htsim-formats.md, "Trigger line".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TriggerKind {
    /// The first firing starts all its flows; a second is an error.
    Oneshot,
    /// Each firing starts the next flow; further ones do nothing.
    Multishot,
    /// After so many firings all its flows start; one more is an error.
    Barrier(u32),
}

/// A process works through a script; the messages of that belong to no flow.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The process. It has no other program.
    pub at: Place,
    /// Index of the transport that carries its messages, among the scenario's. Those who talk to each other have the same.
    pub transport: u16,
    /// What it does.
    pub script: Script,
    /// At the end of its script it begins again, until all programs that have an end, and all flows, have come to it.
    pub forever: bool,
}

/// Everything that a run is to move.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Traffic {
    /// Names, for reports.
    pub workloads: Vec<String>,
    /// Flows.
    pub flows: Vec<Flow>,
    /// Triggers.
    pub triggers: Vec<Trigger>,
    /// Programs, by rank.
    pub programs: Vec<Program>,
    /// Which of them belong together, for reports.
    pub jobs: Vec<Job>,
}

impl Traffic {
    /// These programs run beside the flows, whose processes come behind theirs on a host that has both.
    pub fn make_room(&mut self, programs: Vec<Program>) {
        let mut taken: HashMap<u32, u16> = HashMap::new();
        for Program { at, .. } in &programs {
            let of_host = taken.entry(at.host).or_default();
            *of_host = (*of_host).max(at.process + 1);
        }
        for place in self.flows.iter_mut().flat_map(|flow| [&mut flow.src, &mut flow.dst]) {
            place.process += taken.get(&place.host).copied().unwrap_or(0);
        }
        self.programs = programs;
    }
}

/// What makes a [`Traffic`] impossible. Flows and triggers are given by index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrafficFault {
    /// A flow's end is not a host of the topology.
    NoSuchHost {
        /// The flow.
        flow: u32,
        /// The host.
        host: u32,
    },
    /// A flow ends on the host where it begins: it would not cross the fabric.
    ToItself {
        /// The flow.
        flow: u32,
    },
    /// A flow of no bytes, or of no time.
    Empty {
        /// The flow.
        flow: u32,
    },
    /// A flow names a trigger that there is not, or is not in that trigger's list.
    NoSuchTrigger {
        /// The flow.
        flow: u32,
    },
    /// A flow waits for a trigger that will not start it.
    NeverStarts {
        /// The flow.
        flow: u32,
        /// What it waits for.
        trigger: u32,
    },
    /// A oneshot or barrier is fired more often than it may be.
    FiredTooOften {
        /// The trigger.
        trigger: u32,
        /// How often it is fired.
        fired: u32,
    },
    /// A oneshot or barrier that is fired starts nothing.
    StartsNothing {
        /// The trigger.
        trigger: u32,
    },
}

impl fmt::Display for TrafficFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TrafficFault::NoSuchHost { flow, host } => {
                write!(f, "flow {flow} names host {host}, which is not there")
            }
            TrafficFault::ToItself { flow } => write!(f, "flow {flow} ends on the host where it begins"),
            TrafficFault::Empty { flow } => write!(f, "flow {flow} moves nothing"),
            TrafficFault::NoSuchTrigger { flow } => {
                write!(f, "flow {flow} names a trigger that is not there")
            }
            TrafficFault::NeverStarts { flow, trigger } => {
                write!(f, "flow {flow} waits for trigger {trigger}, which will not start it")
            }
            TrafficFault::FiredTooOften { trigger, fired } => {
                write!(f, "trigger {trigger} is fired {fired} times")
            }
            TrafficFault::StartsNothing { trigger } => write!(f, "trigger {trigger} starts nothing"),
        }
    }
}

/// Most bytes of a flow: what the simulated hosts can address.
pub const MAX_BYTES: u64 = 1 << 33;
/// Most flows of a run: each needs some hundred bytes before it has begun.
pub const MAX_FLOWS: u64 = 1 << 22;

impl Traffic {
    /// Takes a workload in. Returns its index.
    pub fn add_workload(&mut self, name: &str) -> u16 {
        self.workloads.push(name.to_string());
        (self.workloads.len() - 1) as u16
    }

    /// Takes a trigger in that starts nothing yet. Returns its index.
    pub fn add_trigger(&mut self, kind: TriggerKind) -> u32 {
        self.triggers.push(Trigger { kind, flows: Vec::new() });
        (self.triggers.len() - 1) as u32
    }

    /// Takes a flow in, also into the list of the trigger that starts it, which must be there. Returns its index.
    pub fn add_flow(&mut self, flow: Flow) -> u32 {
        let index = self.flows.len() as u32;
        if let Start::Trigger(trigger) = flow.start {
            self.triggers[trigger as usize].flows.push(index);
        }
        self.flows.push(flow);
        index
    }

    /// Number for the next flow: one above the highest.
    pub fn next_id(&self) -> u32 {
        self.flows.iter().map(|flow| flow.id).max().map_or(1, |id| id.saturating_add(1))
    }

    /// Takes in all of `other`, every moment in it so much later. Flows keep their numbers.
    pub fn append(&mut self, other: Traffic, later: Ps) {
        let (workloads, triggers) = (self.workloads.len() as u16, self.triggers.len() as u32);
        let flows = self.flows.len() as u32;
        self.workloads.extend(other.workloads);
        let ranks = self.programs.len() as u32;
        let moved = |program: Program| Program { script: program.script.moved(ranks), ..program };
        self.programs.extend(other.programs.into_iter().map(moved));
        self.jobs.extend(other.jobs.into_iter().map(|job| Job { first: job.first + ranks, ..job }));
        self.flows.extend(other.flows.into_iter().map(|mut flow| {
            flow.workload += workloads;
            flow.start = match flow.start {
                Start::At(at) => Start::At(at + later),
                Start::Trigger(trigger) => Start::Trigger(trigger + triggers),
            };
            if let Size::Until(end) = &mut flow.size {
                *end += later;
            }
            flow.on_sent.iter_mut().chain(&mut flow.on_received).for_each(|trigger| *trigger += triggers);
            flow
        }));
        self.triggers.extend(other.triggers.into_iter().map(|mut trigger| {
            trigger.flows.iter_mut().for_each(|flow| *flow += flows);
            trigger
        }));
    }

    /// Says what makes it impossible on a topology of `hosts` hosts, if anything does. Triggers are followed from the
    /// flows that start at a given time, each flow being done at some time.
    pub fn check(&self, hosts: u32) -> Result<(), TrafficFault> {
        (0..self.flows.len() as u32).try_for_each(|flow| self.check_flow(flow, hosts))?;
        let fired = self.follow_triggers()?;
        for (index, trigger) in self.triggers.iter().enumerate() {
            let (index, n) = (index as u32, fired[index]);
            let most = match trigger.kind {
                TriggerKind::Oneshot => 1,
                TriggerKind::Barrier(count) => count,
                TriggerKind::Multishot => continue,
            };
            if n > most {
                return Err(TrafficFault::FiredTooOften { trigger: index, fired: n });
            }
            if n == most && n > 0 && trigger.flows.is_empty() {
                return Err(TrafficFault::StartsNothing { trigger: index });
            }
        }
        Ok(())
    }

    fn check_flow(&self, index: u32, hosts: u32) -> Result<(), TrafficFault> {
        let flow = &self.flows[index as usize];
        for host in [flow.src.host, flow.dst.host] {
            if host >= hosts {
                return Err(TrafficFault::NoSuchHost { flow: index, host });
            }
        }
        if flow.src.host == flow.dst.host {
            return Err(TrafficFault::ToItself { flow: index });
        }
        let empty = match (flow.size, flow.start) {
            (Size::Bytes(bytes), _) => bytes == 0,
            (Size::Until(end), Start::At(start)) => end <= start,
            (Size::Until(end), Start::Trigger(_)) => end == Ps::ZERO,
        };
        if empty {
            return Err(TrafficFault::Empty { flow: index });
        }
        let mut named = flow.on_sent.iter().chain(&flow.on_received);
        let known = |trigger: &u32| (*trigger as usize) < self.triggers.len();
        let listed = match flow.start {
            Start::At(_) => true,
            Start::Trigger(trigger) => known(&trigger),
        };
        if !named.all(known) || !listed {
            return Err(TrafficFault::NoSuchTrigger { flow: index });
        }
        Ok(())
    }

    /// How often each trigger fires, provided that every flow starts and ends.
    fn follow_triggers(&self) -> Result<Vec<u32>, TrafficFault> {
        let mut fired = vec![0u32; self.triggers.len()];
        let mut started = vec![false; self.flows.len()];
        let at_a_time = |flow: &u32| matches!(self.flows[*flow as usize].start, Start::At(_));
        let mut ready: Vec<u32> = (0..self.flows.len() as u32).filter(at_a_time).collect();
        while let Some(index) = ready.pop() {
            let Some(flow) = self.flows.get(index as usize) else {
                return Err(TrafficFault::NoSuchTrigger { flow: index });
            };
            if std::mem::replace(&mut started[index as usize], true) {
                continue;
            }
            for &trigger in flow.on_sent.iter().chain(&flow.on_received) {
                let n = &mut fired[trigger as usize];
                *n = n.saturating_add(1);
                let trigger = &self.triggers[trigger as usize];
                match trigger.kind {
                    TriggerKind::Oneshot if *n == 1 => ready.extend(&trigger.flows),
                    TriggerKind::Barrier(count) if *n == count => ready.extend(&trigger.flows),
                    TriggerKind::Multishot => ready.extend(trigger.flows.get(*n as usize - 1)),
                    TriggerKind::Oneshot | TriggerKind::Barrier(_) => {}
                }
            }
        }
        match started.iter().position(|started| !started) {
            None => Ok(fired),
            Some(flow) => match self.flows[flow].start {
                Start::Trigger(trigger) => Err(TrafficFault::NeverStarts { flow: flow as u32, trigger }),
                Start::At(_) => Err(TrafficFault::NoSuchTrigger { flow: flow as u32 }),
            },
        }
    }
}
