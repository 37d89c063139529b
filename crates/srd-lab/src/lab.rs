//! A lab: a fabric that is up, under a name.

use crate::bpf::Counts;
use crate::counters::{Counters, Sampler};
use crate::enter;
use crate::error::{Error, Result};
use crate::fault::{ActiveFault, Fault};
use crate::fault_injection::FaultInjection;
use crate::helper;
use crate::namespace;
use crate::plan::{Direction, Plan};
use crate::process;
use crate::setup::{self, namespaces, set_up};
use crate::shape::Shape;
use crate::state::{self, Phase, State};
use crate::target;
use serde::Serialize;
use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// A fabric that is up.
#[derive(Clone, Debug)]
pub struct Lab {
    name: String,
    plan: Plan,
    namespaces: Vec<String>,
}

/// A host of a lab.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// From 0; leaf by leaf.
    pub index: usize,
    /// As in `host3`.
    pub name: String,
    /// Its network namespace, as ip(8) knows it.
    pub namespace: String,
    /// On the fabric (device `e0`).
    pub fabric_address: Ipv4Addr,
    /// On the management network (device `m0`), which no fault touches.
    pub management_address: Ipv4Addr,
}

/// What happens in a lab now.
#[derive(Serialize, Clone, Debug)]
pub struct Status {
    /// Of the lab.
    pub name: String,
    /// Of its fabric.
    pub shape: Shape,
    /// Its hosts.
    pub hosts: Vec<Host>,
    /// Every way of every link.
    pub links: Vec<LinkStatus>,
    /// Faults in force.
    pub faults: Vec<FaultStatus>,
}

/// One way of a link.
#[derive(Serialize, Clone, Debug)]
pub struct LinkStatus {
    /// As in `leaf0>spine1`.
    pub name: String,
    /// Its rate without faults, Mbit/s.
    pub mbps: f64,
    /// What it has done.
    #[serde(flatten)]
    pub counters: Counters,
    /// Numbers of the faults on it.
    pub faults: Vec<u32>,
}

/// A fault in force.
#[derive(Serialize, Clone, Debug)]
pub struct FaultStatus {
    /// By which it is healed.
    pub id: u32,
    /// What it is.
    #[serde(flatten)]
    pub fault: Fault,
    /// In words.
    pub text: String,
    /// How many packets it has met, where it meets packets.
    pub packets: Option<u64>,
    /// What has become of a fault that does not work any more: a process that it needs has ended.
    pub broken: Option<String>,
}

/// What was found out of place when a lab went down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// All of a lab.
    Whole,
    /// A lab that had not been finished.
    HalfBuilt,
}

impl Lab {
    /// Builds a fabric. Nothing of it stays if that fails.
    pub fn up(name: &str, shape: &Shape) -> Result<Lab> {
        state::check_name(name)?;
        let plan = Plan::new(shape)?;
        namespace::check_rights()?;
        let namespaces = namespaces(name, &plan);
        let mut state = State {
            name: name.into(),
            phase: Phase::Building,
            shape: shape.clone(),
            namespaces: namespaces.clone(),
            queue_counters: Vec::new(),
            faults: Vec::new(),
            next_fault: 1,
        };
        let is_known = state::names().iter().any(|other| other == name);
        let taken = namespaces.iter().find(|namespace| namespace::exists(namespace));
        if let Some(namespace) = taken.filter(|_| !is_known) {
            return Err(Error::ForeignNamespace { namespace: namespace.clone() });
        }
        state.create()?;
        let lab = Lab { name: name.into(), plan, namespaces };
        let made = set_up(&lab.namespaces, &lab.plan).and_then(|counters| {
            enter::write_hosts(&lab)?;
            state.queue_counters = counters;
            state.phase = Phase::Up;
            state.write()
        });
        if let Err(error) = made {
            // The first error is the one that tells.
            let _ = remove(name, &lab.namespaces);
            return Err(error);
        }
        Ok(lab)
    }

    /// A lab that is up.
    pub fn open(name: &str) -> Result<Lab> {
        namespace::check_rights()?;
        let state = State::read(name)?;
        if state.phase == Phase::Building {
            return Err(Error::HalfBuilt { name: name.into() });
        }
        Ok(Lab { name: name.into(), plan: Plan::new(&state.shape)?, namespaces: state.namespaces })
    }

    /// Names of all labs of this machine, also of half-built ones.
    pub fn names() -> Vec<String> {
        state::names()
    }

    /// Removes a lab with all that runs in it.
    pub fn down(self) -> Result<()> {
        Lab::remove(&self.name).map(drop)
    }

    /// Removes whatever there is of a lab, also of one whose `up` was interrupted.
    pub fn remove(name: &str) -> Result<Found> {
        namespace::check_rights()?;
        let (namespaces, found) = match State::read(name) {
            Ok(state) if state.phase == Phase::Up => (state.namespaces, Found::Whole),
            Ok(state) => (state.namespaces, Found::HalfBuilt),
            // Interrupted before the notes were written: so was all else.
            Err(Error::HalfBuilt { .. }) => (Vec::new(), Found::HalfBuilt),
            Err(error) => return Err(error),
        };
        let _lock = state::lock(name)?;
        remove(name, &namespaces)?;
        Ok(found)
    }

    /// Whether routers hash with seeds of their own, the same in every lab. Before Linux 6.11 they all hash alike, and
    /// otherwise each time the machine has been started.
    pub fn has_hash_seeds() -> bool {
        setup::has_hash_seed()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.plan.shape
    }

    /// Its routers and links.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Its hosts, in order.
    pub fn hosts(&self) -> Vec<Host> {
        let host = |index: usize| Host {
            index,
            name: self.plan.nodes[index].name.clone(),
            namespace: self.namespaces[index].clone(),
            fabric_address: self.plan.fabric_address(index),
            management_address: self.plan.management_address(index),
        };
        (0..self.plan.hosts()).map(host).collect()
    }

    /// A host by its name, `host3` or `h3`.
    pub fn host(&self, name: &str) -> Result<Host> {
        self.plan.host(name).map(|index| self.hosts().swap_remove(index))
    }

    /// A command that runs a program in a host.
    pub fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        assert!(host < self.plan.hosts(), "there is no host {host}");
        self.command_at(host, program.as_ref())
    }

    /// A command that runs a program in a host or router: `host3`, `leaf0`, `spine1`.
    pub fn command_in(&self, node: &str, program: impl AsRef<OsStr>) -> Result<Command> {
        let index = match self.plan.nodes.iter().position(|other| other.name == node) {
            Some(index) => index,
            None => self.plan.host(node)?,
        };
        Ok(self.command_at(index, program.as_ref()))
    }

    /// By ip(8), which also shows the program the namespace's devices in /sys.
    fn command_at(&self, node: usize, program: &OsStr) -> Command {
        // `set_up` has found ip.
        let ip = crate::iproute::Program::Ip.locate().unwrap_or_else(|_| "ip".into());
        let mut command = Command::new(ip);
        command.args(["netns", "exec", &self.namespaces[node]]).arg(program);
        command
    }

    /// Lets something go wrong; the answer is the fault's number.
    pub fn fault(&self, fault: Fault) -> Result<u32> {
        fault.check(&self.plan)?;
        let _lock = state::lock(&self.name)?;
        let mut state = State::read(&self.name)?;
        let id = state.next_fault;
        state.next_fault += 1;
        state.faults.push(ActiveFault::new(id, fault));
        // Before it comes about, so that it can be healed whatever happens.
        state.write()?;
        let begun = self.injection().begin(&mut state.faults, id);
        if let Err(error) = begun {
            self.end(&mut state, |standing| standing.id == id)?;
            return Err(error);
        }
        state.write()?;
        Ok(id)
    }

    /// Ends one fault.
    pub fn heal(&self, id: u32) -> Result<()> {
        let _lock = state::lock(&self.name)?;
        let mut state = State::read(&self.name)?;
        if state.faults.iter().all(|standing| standing.id != id) {
            let ids: Vec<_> = state.faults.iter().map(|standing| standing.id.to_string()).collect();
            let there = if ids.is_empty() { "no faults".into() } else { ids.join(", ") };
            return Err(Error::NoSuchPart { what: "fault", name: id.to_string(), there });
        }
        self.end(&mut state, |standing| standing.id == id)
    }

    /// Ends all faults.
    pub fn heal_all(&self) -> Result<()> {
        let _lock = state::lock(&self.name)?;
        let mut state = State::read(&self.name)?;
        self.end(&mut state, |_| true)
    }

    /// What the process of a flapping link does, until the lab is gone or somebody ends it.
    #[doc(hidden)]
    pub fn flap(&self, at: &str, period: Duration, down: Duration) -> Result<()> {
        let links = target::links(&self.plan, at)?;
        helper::say_ready()?;
        loop {
            {
                // Whoever ends this process holds the lock, so that it is not in the middle of switching.
                let _lock = state::lock(&self.name)?;
                links.iter().try_for_each(|link| self.injection().switch(*link, false))?;
            }
            thread::sleep(down);
            {
                // Other faults may hold them down.
                let _lock = state::lock(&self.name)?;
                self.injection().settle_links(at, &State::read(&self.name)?.faults)?;
            }
            thread::sleep(period.saturating_sub(down));
        }
    }

    /// Ends some faults; the first error is told when all have been tried. A fault that cannot be ended stays in the notes, but
    /// a program that does not start again is gone for good.
    fn end(&self, state: &mut State, which: impl Fn(&ActiveFault) -> bool) -> Result<()> {
        let (ended, mut staying): (Vec<_>, Vec<_>) = state.faults.iter().cloned().partition(which);
        let mut first_error = Ok(());
        for standing in ended {
            if let Err(error) = self.injection().end(&standing, &staying) {
                first_error = first_error.and(Err(error));
                if !matches!(standing.fault, Fault::Kill { .. }) {
                    staying.push(standing);
                }
            }
        }
        state.faults = staying;
        state.write()?;
        first_error
    }

    fn injection(&self) -> FaultInjection<'_> {
        FaultInjection { lab: &self.name, plan: &self.plan, namespaces: &self.namespaces }
    }

    /// Reads counters many times.
    pub fn sampler(&self) -> Result<Sampler> {
        let state = State::read(&self.name)?;
        Sampler::open(&self.plan, &self.namespaces, &state.queue_counters)
    }

    /// What happens now.
    pub fn status(&self) -> Result<Status> {
        self.status_by(&self.sampler()?)
    }

    /// The same by a sampler of this lab, for those who ask again and again. An error once the lab has been removed.
    pub fn status_by(&self, sampler: &Sampler) -> Result<Status> {
        let state = State::read(&self.name);
        // Its sockets keep namespaces alive that have no name any more. The names go first and the notes last: whoever has not
        // found the notes whole because of a removal finds no namespace now.
        if !sampler.is_of(&self.namespaces) {
            return Err(Error::Removed { name: self.name.clone() });
        }
        let state = state?;
        let faults_on = |direction: Direction| {
            let on = |standing: &&ActiveFault| standing.fault.is_on(&self.plan, direction);
            state.faults.iter().filter(on).map(|standing| standing.id).collect()
        };
        let links = sampler.sample()?.into_iter().map(|(direction, counters)| LinkStatus {
            name: self.plan.direction_name(direction),
            mbps: self.plan.links[direction.link].mbps,
            counters,
            faults: faults_on(direction),
        });
        let faults = state.faults.iter().map(|standing| FaultStatus {
            id: standing.id,
            fault: standing.fault.clone(),
            text: standing.fault.to_string(),
            packets: standing
                .counters
                .iter()
                .filter_map(|map| Some(Counts::open(*map)?.get(0)))
                .reduce(|sum, n| sum + n),
            broken: standing.helper().filter(|pid| !process::lives(*pid)).map(|pid| {
                format!("process {pid}, which it needs, has ended; heal it (srd lab heal {})", standing.id)
            }),
        });
        Ok(Status {
            name: self.name.clone(),
            shape: self.plan.shape.in_full(),
            hosts: self.hosts(),
            links: links.collect(),
            faults: faults.collect(),
        })
    }
}

/// Removes namespaces, with all that runs in them, and the notes last.
fn remove(name: &str, namespaces: &[String]) -> Result<()> {
    namespace::kill_processes(namespaces)?;
    for namespace in namespaces {
        namespace::remove(namespace)?;
    }
    State::remove(name)
}
