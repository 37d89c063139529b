//! Faults: what may go wrong in a fabric, and how it is told. `fault_injection.rs` brings them about.

use crate::error::{Error, Result};
use crate::plan::{Direction, Plan};
use crate::process::Ended;
use crate::target;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Ten seconds; the process that delays packets has to hold all of them.
const LONGEST_DELAY_US: u64 = 10_000_000;

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
    /// Nothing arrives for part of each period: nobody notices, or both ends see the link go down.
    Flap {
        /// Links, ways or routers.
        at: String,
        /// Length of a period.
        period_ms: u64,
        /// How long of it nothing arrives.
        down_ms: u64,
        /// The link goes down each time, as by `Down`. For whole links only.
        carrier: bool,
    },
    /// The link is slower.
    Slow {
        /// Links, ways or routers.
        at: String,
        /// Its rate, Mbit/s.
        mbps: f64,
    },
    /// Packets take longer, and stay in order.
    Delay {
        /// Links, ways or routers.
        at: String,
        /// By so much.
        delay_us: u64,
        /// And by up to so much more, at random.
        jitter_us: u64,
    },
    /// Some packets take longer, and are overtaken.
    Reordering {
        /// Links, ways or routers.
        at: String,
        /// Of all packets.
        percent: f64,
        /// How much longer.
        late_us: u64,
    },
    /// Every process that is in a host now stands still.
    Pause {
        /// As in `host3`.
        host: String,
    },
    /// Processes end at once, without a chance to do anything about it; when the fault is healed they are started again.
    Kill {
        /// As in `host3`.
        host: String,
        /// Its name, or its number.
        program: String,
    },
}

/// A fault in force.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct ActiveFault {
    /// By which it is healed.
    pub id: u32,
    /// What it is.
    pub fault: Fault,
    /// Kernel's numbers of the maps in which its programs count.
    #[serde(default)]
    pub(crate) counters: Vec<u32>,
    /// The process that it needs.
    #[serde(default)]
    pub(crate) helper: Option<i32>,
    /// What was ended and is to be started again.
    #[serde(default)]
    pub(crate) ended: Vec<Ended>,
}

impl ActiveFault {
    pub(crate) fn new(id: u32, fault: Fault) -> ActiveFault {
        ActiveFault { id, fault, counters: Vec::new(), helper: None, ended: Vec::new() }
    }

    pub(crate) fn helper(&self) -> Option<Pid> {
        self.helper.map(Pid::from_raw)
    }
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
            | Fault::Duplication { at, percent }
            | Fault::Reordering { at, percent, .. } => {
                if !(*percent > 0.0 && *percent <= 100.0) {
                    return refuse(format!("{percent} percent: it lies above 0 and is at most 100"));
                }
                target::directions(plan, at).map(drop)
            }
            Fault::Flap { at, period_ms, down_ms, carrier } => {
                if *down_ms == 0 || down_ms >= period_ms {
                    return refuse(format!(
                        "down for {down_ms} ms of every {period_ms}: it is down for a part of the period"
                    ));
                }
                if *carrier {
                    target::links(plan, at).map(drop)
                } else {
                    target::directions(plan, at).map(drop)
                }
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
            Fault::Delay { at, delay_us, jitter_us } => {
                if !(1..=LONGEST_DELAY_US).contains(&delay_us.saturating_add(*jitter_us)) {
                    return refuse(format!(
                        "{delay_us} us and up to {jitter_us}: 1 to {LONGEST_DELAY_US} together"
                    ));
                }
                target::directions(plan, at).map(drop)
            }
            Fault::Kill { program, .. } if program.is_empty() => {
                return refuse("kill needs the name or the number of a program".into());
            }
            Fault::Pause { host } | Fault::Kill { host, .. } => plan.host(host).map(drop),
        }?;
        match self {
            Fault::Reordering { late_us, .. } if !(1..=LONGEST_DELAY_US).contains(late_us) => {
                refuse(format!("{late_us} us late: 1 to {LONGEST_DELAY_US}"))
            }
            _ => Ok(()),
        }
    }
}

impl Fault {
    /// Whether it acts on a way of a link.
    pub(crate) fn is_on(&self, plan: &Plan, direction: Direction) -> bool {
        match self {
            Fault::Pause { .. } | Fault::Kill { .. } => false,
            Fault::Down { at }
            | Fault::Blackhole { at }
            | Fault::Loss { at, .. }
            | Fault::Corruption { at, .. }
            | Fault::Duplication { at, .. }
            | Fault::Flap { at, .. }
            | Fault::Delay { at, .. }
            | Fault::Reordering { at, .. }
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
            Fault::Flap { at, period_ms, down_ms, carrier: true } => {
                write!(out, "{at} down for {down_ms} ms of every {period_ms}")
            }
            Fault::Flap { at, period_ms, down_ms, carrier: false } => {
                write!(out, "{at} swallows all packets for {down_ms} ms of every {period_ms}")
            }
            Fault::Slow { at, mbps } => write!(out, "{at} at {mbps} Mbit/s"),
            Fault::Delay { at, delay_us, jitter_us: 0 } => write!(out, "{at} takes {delay_us} us longer"),
            Fault::Delay { at, delay_us, jitter_us } => {
                write!(out, "{at} takes {delay_us} to {} us longer", delay_us + jitter_us)
            }
            Fault::Reordering { at, percent, late_us } => {
                write!(out, "{at} has {percent} % of packets overtaken, {late_us} us late")
            }
            Fault::Pause { host } => write!(out, "{host} paused"),
            Fault::Kill { host, program } => write!(out, "{program} of {host} killed"),
        }
    }
}
