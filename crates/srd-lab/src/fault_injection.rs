//! How faults are brought about, and how they end.
//!
//! Several may be in force on one link. What two of them share (a link's state, its rate, a host's processes) follows from all
//! that are in force, and is set anew when one comes or goes.

use crate::bpf::{Loaded, Numbers, detach};
use crate::emulator::{self, Lateness};
use crate::error::{Doing, Result};
use crate::fault::{ActiveFault, Fault};
use crate::helper;
use crate::iproute::{Program, batch};
use crate::namespace::{self, within};
use crate::plan::{Direction, MANAGEMENT_NODE, Plan};
use crate::process;
use crate::shaping::shaping;
use crate::target;
use nix::sys::signal::{Signal, kill};

/// What faults act on.
pub(crate) struct FaultInjection<'a> {
    /// Name of the lab.
    pub lab: &'a str,
    pub plan: &'a Plan,
    /// Of the plan's nodes, then the management network's.
    pub namespaces: &'a [String],
}

impl FaultInjection<'_> {
    /// Brings a fault about. `standing` holds it and all others.
    pub(crate) fn begin(&self, standing: &mut [ActiveFault], id: u32) -> Result<()> {
        let index = standing.iter().position(|fault| fault.id == id).expect("it is among them");
        let fault = standing[index].fault.clone();
        match &fault {
            Fault::Down { at } => self.settle_links(at, standing),
            Fault::Slow { at, .. } => self.settle_rates(at, standing),
            Fault::Pause { host } => self.signal(host, Signal::SIGSTOP),
            Fault::Kill { host, program } => {
                let host = self.plan.host(host)?;
                standing[index].ended = process::end(&self.namespaces[host], &fault.to_string(), program)?;
                Ok(())
            }
            Fault::Flap { at, period_ms, down_ms, carrier: true } => {
                let numbers = [format!("--period-ms={period_ms}"), format!("--down-ms={down_ms}")];
                let begin = ["flap".into(), at.clone(), "--lab".into(), self.lab.into()];
                let started = helper::start(self.management(), &[&begin[..], &numbers].concat())?;
                standing[index].helper = Some(started.as_raw());
                Ok(())
            }
            Fault::Delay { at, .. } | Fault::Reordering { at, .. } => self.delay(at, &mut standing[index]),
            _ => {
                let (at, program, numbers) = on_the_wire(&fault).expect("all others are");
                let mut loaded = Loaded::wire(program, id, numbers)?;
                standing[index].counters.extend(loaded.counter());
                for direction in target::directions(self.plan, at)? {
                    self.at_receiver(direction, |namespace, device| loaded.attach(namespace, device))?;
                }
                Ok(())
            }
        }
    }

    /// Ends a fault that may have come about in part only. `standing` holds those that stay.
    pub(crate) fn end(&self, ended: &ActiveFault, standing: &[ActiveFault]) -> Result<()> {
        match &ended.fault {
            Fault::Down { at } => self.settle_links(at, standing),
            Fault::Slow { at, .. } => self.settle_rates(at, standing),
            Fault::Pause { host } => {
                let paused = self.plan.host(host)?;
                let is_same = |other: &ActiveFault| match &other.fault {
                    Fault::Pause { host } => self.plan.host(host).is_ok_and(|host| host == paused),
                    _ => false,
                };
                if standing.iter().any(is_same) { Ok(()) } else { self.signal(host, Signal::SIGCONT) }
            }
            Fault::Kill { host, .. } => {
                let host = self.plan.host(host)?;
                process::start(self.lab, &self.namespaces[host], ended.id, &ended.ended)
            }
            Fault::Flap { at, carrier: true, .. } => {
                ended.helper().map_or(Ok(()), |pid| helper::end(self.management(), pid))?;
                self.settle_links(at, standing)
            }
            Fault::Blackhole { at }
            | Fault::Loss { at, .. }
            | Fault::Corruption { at, .. }
            | Fault::Duplication { at, .. }
            | Fault::Flap { at, .. }
            | Fault::Delay { at, .. }
            | Fault::Reordering { at, .. } => {
                for direction in target::directions(self.plan, at)? {
                    self.at_receiver(direction, |namespace, device| detach(namespace, device, ended.id))?;
                }
                // Last, so that nothing is handed to a process that has gone.
                ended.helper().map_or(Ok(()), |pid| helper::end(self.management(), pid))
            }
        }
    }

    /// Switches links on or off, as all faults together have it.
    pub(crate) fn settle_links(&self, at: &str, standing: &[ActiveFault]) -> Result<()> {
        for link in target::links(self.plan, at)? {
            let is_down = standing.iter().any(|other| match &other.fault {
                Fault::Down { at } => target::links(self.plan, at).is_ok_and(|links| links.contains(&link)),
                _ => false,
            });
            self.switch(link, !is_down)?;
        }
        Ok(())
    }

    /// Gives ways of links the rate that all faults together leave them.
    fn settle_rates(&self, at: &str, standing: &[ActiveFault]) -> Result<()> {
        for direction in target::directions(self.plan, at)? {
            let rates = standing.iter().filter_map(|other| match &other.fault {
                Fault::Slow { mbps, .. } => other.fault.is_on(self.plan, direction).then_some(*mbps),
                _ => None,
            });
            let mbps = rates.fold(self.plan.links[direction.link].mbps, f64::min);
            let namespace = &self.namespaces[self.plan.sender(direction).node];
            let commands = shaping(self.plan, direction, mbps);
            within(namespace, || batch(Program::Tc, namespace, &commands))?;
        }
        Ok(())
    }

    /// Switches the upper end of a link on or off. With a device the kernel drops its routes: they are set again.
    pub(crate) fn switch(&self, link: usize, on: bool) -> Result<()> {
        let end = &self.plan.links[link].upper;
        let namespace = &self.namespaces[end.node];
        let mut commands = format!("link set {} {}\n", end.device, if on { "up" } else { "down" });
        let routes = self.plan.nodes[end.node].routes.iter();
        for route in routes.filter(|route| on && route.via.iter().any(|(_, device)| *device == end.device)) {
            commands += &format!("{}\n", route.command());
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

    /// Sends packets round through a process that holds them back: each way has a device of its own, into which its packets
    /// are put where they arrive, and from which they come back.
    fn delay(&self, at: &str, standing: &mut ActiveFault) -> Result<()> {
        let directions = target::directions(self.plan, at)?;
        let device = |direction: &Direction| {
            format!("late{}.{}", standing.id, 2 * direction.link + usize::from(direction.upward))
        };
        let taps: Vec<_> = directions
            .iter()
            .map(|direction| {
                let node = self.plan.receiver(*direction).node;
                format!("{}:{}", self.namespaces[node], device(direction))
            })
            .collect();
        let arguments = emulator::arguments(&lateness(&standing.fault), &taps);
        let started = helper::start(self.management(), &arguments)?;
        standing.helper = Some(started.as_raw());
        for direction in &directions {
            let (id, tap) = (standing.id, device(direction));
            let counter = self.at_receiver(*direction, |namespace, arriving| {
                let numbers = |device: &str| -> Result<Numbers> {
                    let device = nix::net::if_::if_nametoindex(device)
                        .doing(|| format!("{namespace}: there is no device {device}"))?;
                    Ok(Numbers { device, ..Numbers::default() })
                };
                Loaded::wire("give_back", id, numbers(arriving)?)?.attach(namespace, &tap)?;
                let mut divert = Loaded::wire("divert", id, numbers(&tap)?)?;
                divert.attach(namespace, arriving)?;
                Ok(divert.counter())
            })?;
            standing.counters.extend(counter);
        }
        Ok(())
    }

    fn management(&self) -> &str {
        let last = self.namespaces.last().expect("there is always the management network");
        debug_assert!(last.ends_with(MANAGEMENT_NODE));
        last
    }

    fn at_receiver<T: Send>(
        &self,
        direction: Direction,
        work: impl FnOnce(&str, &str) -> Result<T> + Send,
    ) -> Result<T> {
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
        Fault::Flap { at, period_ms, down_ms, carrier: false } => {
            let (period_ns, down_ns) = (period_ms.saturating_mul(MS), down_ms.saturating_mul(MS));
            (at, "flap", Numbers { period_ns, down_ns, ..Numbers::default() })
        }
        _ => return None,
    })
}

fn lateness(fault: &Fault) -> Lateness {
    match fault {
        Fault::Delay { delay_us, jitter_us, .. } => {
            Lateness { delay_us: *delay_us, jitter_us: *jitter_us, ..Lateness::default() }
        }
        Fault::Reordering { percent, late_us, .. } => {
            Lateness { late_percent: *percent, late_us: *late_us, ..Lateness::default() }
        }
        _ => Lateness::default(),
    }
}
