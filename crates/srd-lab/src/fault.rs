//! Faults: what may go wrong in a fabric, how each is brought about, and how it ends.
//!
//! Several may be in force on one link. What two of them share (a link's state, its rate, a host's processes) follows from all
//! that are in force, and is set anew when one comes or goes.

use crate::bpf::{Loaded, Numbers, Side, detach};
use crate::error::{Doing, Error, Result};
use crate::iproute::{Program, batch};
use crate::namespace::{self, within};
use crate::plan::{Direction, Plan};
use crate::raise::shaping;
use crate::target;
use nix::sys::signal::{Signal, kill};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that goes wrong. `at` names links, ways of links or routers: `leaf0-spine1`, `leaf0>spine1`, `spine1`, `host3`,
/// `leaf0-*`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Fault {
    /// The link goes down and both ends see it (the upper end is switched off, the lower one loses carrier): the lower router
    /// takes other links at once; the upper one has no other way, and drops.
    Down {
        /// Links.
        at: String,
    },
    /// Nothing arrives, and nobody notices.
    Blackhole {
        /// Links, ways or routers.
        at: String,
    },
    /// Packets are lost at random.
    Loss {
        /// Links, ways or routers.
        at: String,
        /// Of all packets.
        percent: f64,
    },
    /// A bit behind the IP header is turned, at random.
    Corruption {
        /// Links, ways or routers.
        at: String,
        /// Of all packets.
        percent: f64,
    },
    /// Packets arrive twice.
    Duplication {
        /// Links, ways or routers.
        at: String,
        /// Of all packets.
        percent: f64,
    },
    /// Nothing arrives for part of each period, and nobody notices.
    Flap {
        /// Links, ways or routers.
        at: String,
        /// Length of a period.
        period_ms: u64,
        /// How long of it nothing arrives.
        down_ms: u64,
    },
    /// The link is slower.
    Slow {
        /// Links, ways or routers.
        at: String,
        /// Its rate, Mbit/s.
        mbps: f64,
    },
    /// Every process in a host stands still.
    Pause {
        /// Hosts: `host3`.
        host: String,
    },
}

/// A fault in force.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Standing {
    /// By which it is healed.
    pub id: u32,
    /// What it is.
    pub fault: Fault,
    /// Kernel's numbers of the maps in which its programs count.
    #[serde(default)]
    pub(crate) counters: Vec<u32>,
}

/// What a fault acts on.
pub(crate) struct Scene<'a> {
    pub plan: &'a Plan,
    /// Of the plan's nodes.
    pub namespaces: &'a [String],
}

impl Fault {
    /// Refuses names that do not exist and numbers that make no sense.
    pub(crate) fn check(&self, plan: &Plan) -> Result<()> {
        let refuse = |what: String| Err(Error::BadFault(what));
        match self {
            Fault::Down { at } => target::links(plan, at).map(drop),
            Fault::Blackhole { at } => target::directions(plan, at).map(drop),
            Fault::Loss { at, percent }
            | Fault::Corruption { at, percent }
            | Fault::Duplication { at, percent } => {
                if !(*percent > 0.0 && *percent <= 100.0) {
                    return refuse(format!("{percent} percent: it lies above 0 and is at most 100"));
                }
                target::directions(plan, at).map(drop)
            }
            Fault::Flap { at, period_ms, down_ms } => {
                if *down_ms == 0 || down_ms >= period_ms {
                    return refuse(format!(
                        "down for {down_ms} ms of every {period_ms}: it is down for a part of the period"
                    ));
                }
                target::directions(plan, at).map(drop)
            }
            Fault::Slow { at, mbps } => {
                for direction in target::directions(plan, at)? {
                    let link = &plan.links[direction.link];
                    if !(*mbps >= 0.1 && *mbps < link.mbps) {
                        return refuse(format!(
                            "{mbps} Mbit/s: slower than {} means 0.1 and more, and less than its {} Mbit/s",
                            link.name, link.mbps
                        ));
                    }
                }
                Ok(())
            }
            Fault::Pause { host } => plan.host(host).map(drop),
        }
    }
}

impl Fault {
    /// Whether it acts on a way of a link.
    pub(crate) fn is_on(&self, plan: &Plan, direction: Direction) -> bool {
        match self {
            Fault::Pause { .. } => false,
            Fault::Down { at }
            | Fault::Blackhole { at }
            | Fault::Loss { at, .. }
            | Fault::Corruption { at, .. }
            | Fault::Duplication { at, .. }
            | Fault::Flap { at, .. }
            | Fault::Slow { at, .. } => {
                target::directions(plan, at).is_ok_and(|directions| directions.contains(&direction))
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Down { at } => write!(out, "{at} down"),
            Fault::Blackhole { at } => write!(out, "{at} swallows all packets"),
            Fault::Loss { at, percent } => write!(out, "{at} loses {percent} % of packets"),
            Fault::Corruption { at, percent } => write!(out, "{at} corrupts {percent} % of packets"),
            Fault::Duplication { at, percent } => write!(out, "{at} duplicates {percent} % of packets"),
            Fault::Flap { at, period_ms, down_ms } => {
                write!(out, "{at} swallows all packets for {down_ms} ms of every {period_ms}")
            }
            Fault::Slow { at, mbps } => write!(out, "{at} at {mbps} Mbit/s"),
            Fault::Pause { host } => write!(out, "{host} paused"),
        }
    }
}

impl Scene<'_> {
    /// Brings a fault about. `standing` holds it and all others.
    pub(crate) fn begin(&self, standing: &mut [Standing], id: u32) -> Result<()> {
        let index = standing.iter().position(|fault| fault.id == id).expect("it is among them");
        let fault = standing[index].fault.clone();
        match &fault {
            Fault::Down { .. } | Fault::Slow { .. } => self.settle(&fault, standing),
            Fault::Pause { host } => self.signal(host, Signal::SIGSTOP),
            _ => {
                let (at, program, numbers) = on_the_wire(&fault).expect("all others are");
                let mut loaded = Loaded::wire(program, numbers)?;
                standing[index].counters.extend(loaded.counter());
                for direction in target::directions(self.plan, at)? {
                    self.at_receiver(direction, |namespace, device| {
                        loaded.attach(namespace, device, Side::Arriving, priority(id))
                    })?;
                }
                Ok(())
            }
        }
    }

    /// Ends a fault that may have come about in part only. `standing` holds those that stay.
    pub(crate) fn end(&self, ended: &Standing, standing: &[Standing]) -> Result<()> {
        match &ended.fault {
            fault @ (Fault::Down { .. } | Fault::Slow { .. }) => self.settle(fault, standing),
            Fault::Pause { host } => {
                let still = standing
                    .iter()
                    .any(|other| matches!(&other.fault, Fault::Pause { host: h } if h == host));
                if still { Ok(()) } else { self.signal(host, Signal::SIGCONT) }
            }
            fault => {
                let (at, ..) = on_the_wire(fault).expect("all others are");
                for direction in target::directions(self.plan, at)? {
                    self.at_receiver(direction, |namespace, device| {
                        detach(namespace, device, Side::Arriving, priority(ended.id))
                    })?;
                }
                Ok(())
            }
        }
    }

    /// Sets what follows from all faults together, on the links of one that has come or gone.
    fn settle(&self, changed: &Fault, standing: &[Standing]) -> Result<()> {
        match changed {
            Fault::Down { at } => {
                for link in target::links(self.plan, at)? {
                    let is_down = standing.iter().any(|other| {
                        matches!(&other.fault, Fault::Down { at }
                            if target::links(self.plan, at).is_ok_and(|links| links.contains(&link)))
                    });
                    self.switch(link, !is_down)?;
                }
                Ok(())
            }
            Fault::Slow { at, .. } => {
                for direction in target::directions(self.plan, at)? {
                    let rates = standing.iter().filter_map(|other| match &other.fault {
                        Fault::Slow { at, mbps } => target::directions(self.plan, at)
                            .is_ok_and(|directions| directions.contains(&direction))
                            .then_some(*mbps),
                        _ => None,
                    });
                    let mbps = rates.fold(self.plan.links[direction.link].mbps, f64::min);
                    let namespace = &self.namespaces[self.plan.sender(direction).node];
                    let command = shaping(self.plan, direction, mbps).replacen("replace", "change", 1);
                    within(namespace, || batch(Program::Tc, namespace, &command))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Switches the upper end of a link on or off; the kernel has dropped its routes with it.
    fn switch(&self, link: usize, on: bool) -> Result<()> {
        let end = &self.plan.links[link].upper;
        let namespace = &self.namespaces[end.node];
        let mut commands = format!("link set {} {}\n", end.device, if on { "up" } else { "down" });
        if on {
            let routes = self.plan.nodes[end.node].routes.iter();
            for route in routes.filter(|route| route.via.iter().any(|(_, device)| *device == end.device)) {
                commands += &format!("{}\n", route.command());
            }
        }
        within(namespace, || batch(Program::Ip, namespace, &commands))
    }

    /// Sends a signal to every process in a host.
    fn signal(&self, host: &str, signal: Signal) -> Result<()> {
        let host = self.plan.host(host)?;
        for (_, pid) in namespace::processes(&self.namespaces[host..=host]) {
            match kill(pid, signal) {
                Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                result => result.doing(|| format!("cannot send {signal} to process {pid}"))?,
            }
        }
        Ok(())
    }

    fn at_receiver(
        &self,
        direction: Direction,
        work: impl FnOnce(&str, &str) -> Result<()> + Send,
    ) -> Result<()> {
        let end = self.plan.receiver(direction);
        let namespace = &self.namespaces[end.node];
        within(namespace, || work(namespace, &end.device))
    }
}

/// The program that brings a fault about where packets arrive, if one does.
fn on_the_wire(fault: &Fault) -> Option<(&str, &'static str, Numbers)> {
    const MS: u64 = 1_000_000;
    Some(match fault {
        Fault::Blackhole { at } => (at, "lose", Numbers::percent(100.0)),
        Fault::Loss { at, percent } => (at, "lose", Numbers::percent(*percent)),
        Fault::Corruption { at, percent } => (at, "corrupt", Numbers::percent(*percent)),
        Fault::Duplication { at, percent } => (at, "duplicate", Numbers::percent(*percent)),
        Fault::Flap { at, period_ms, down_ms } => {
            let numbers = Numbers { period_ns: period_ms * MS, down_ns: down_ms * MS, ..Numbers::default() };
            (at, "flap", numbers)
        }
        _ => return None,
    })
}

/// Filters of a device are asked in the order of their priorities.
fn priority(id: u32) -> u16 {
    id as u16
}
