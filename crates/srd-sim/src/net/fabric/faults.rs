//! What is wrong with cables, and what that does to frames.

use super::{Fabric, Routes};
use crate::net::event::Event;
use crate::net::event_queue::EventQueue;
use crate::net::frame::{Content, FrameHead};
use crate::net::settings::{Direction, Fault, FaultKind};
use crate::net::topology::PortId;
use srd_baselines::units::Ps;

/// State of one direction.
#[derive(Clone, Copy, Default, PartialEq)]
struct State {
    /// Nothing passes.
    dead: bool,
    /// From when on switches know.
    noticed_at: Option<Ps>,
    loss: f64,
    corruption: f64,
}

/// See the module.
pub(super) struct Faults {
    ports: Vec<State>,
}

impl Faults {
    pub(super) fn new(cables: usize) -> Faults {
        Faults { ports: vec![State::default(); 2 * cables] }
    }

    /// Whether a frame that leaves now gets to the other end.
    pub(super) fn passes(&self, port: PortId, head: &mut FrameHead, mut draw: impl FnMut() -> f64) -> bool {
        let state = &self.ports[port.0 as usize];
        if state.dead || (state.loss > 0.0 && draw() < state.loss) {
            return false;
        }
        if state.corruption > 0.0 && draw() < state.corruption {
            head.corrupt = true;
        }
        true
    }
}

impl<C: Content> Fabric<C> {
    /// Something goes wrong, or right again.
    pub fn fault(&mut self, now: Ps, fault: &Fault, events: &mut EventQueue<Event>) {
        for &cable in &fault.cables {
            let ports = match fault.direction {
                Direction::Both => vec![PortId::at_a(cable), PortId::at_b(cable)],
                Direction::AToB => vec![PortId::at_a(cable)],
                Direction::BToA => vec![PortId::at_b(cable)],
            };
            for port in ports {
                self.afflict(now, port, fault.kind);
            }
        }
        match fault.kind {
            FaultKind::Down { noticed_after } => events.push(now + noticed_after, Event::Reroute),
            FaultKind::Heal => events.push(now, Event::Reroute),
            _ => {}
        }
    }

    fn afflict(&mut self, now: Ps, id: PortId, kind: FaultKind) {
        let state = &mut self.faults.ports[id.0 as usize];
        let port = &mut self.ports[id.0 as usize];
        let cable = &self.topology.cables[id.cable() as usize];
        match kind {
            FaultKind::Down { .. } | FaultKind::BlackHole => {
                state.dead = true;
                state.noticed_at = match kind {
                    FaultKind::Down { noticed_after } => Some(now + noticed_after),
                    _ => None,
                };
                port.epoch = port.epoch.wrapping_add(1); // what is on the cable is lost
            }
            FaultKind::Heal => {
                *state = super::faults::State::default();
                port.delay = cable.delay;
                if let Some(switch) = port.to.0.checked_sub(self.hosts) {
                    port.delay += self.topology.switches[switch as usize].latency;
                }
                port.set_rate(cable.rate.0 as f64);
            }
            FaultKind::Rate(share) => port.set_rate(cable.rate.0 as f64 * share),
            FaultKind::Delay(more) => port.delay += more,
            FaultKind::Loss(share) => state.loss = share,
            FaultKind::Corruption(share) => state.corruption = share,
        }
        let state = *state;
        port.faulty = state != State::default();
        let owner = if id.0.is_multiple_of(2) { cable.a } else { cable.b };
        let from_switch = owner.0 >= self.hosts;
        if matches!(kind, FaultKind::Rate(_) | FaultKind::Heal) && from_switch {
            // Capacity and thresholds are times: they follow the rate.
            let bytes = cable.queue_bytes[id.0 as usize % 2].unwrap_or(self.settings.capacity);
            let mut port = std::mem::replace(
                &mut self.ports[id.0 as usize],
                super::Port::new(cable.b, cable.rate, Ps::ZERO),
            );
            self.limit(&mut port, owner, bytes);
            self.ports[id.0 as usize] = port;
        }
    }

    /// Switches learn which cables are down: those that were withdrawn carry nothing any more.
    pub fn reroute(&mut self, now: Ps) {
        let known_dead = |port: u32| self.faults.ports[port as usize].noticed_at.is_some_and(|at| at <= now);
        let usable = |port: PortId| !known_dead(port.0) && !known_dead(port.0 ^ 1);
        self.routes = Routes::new(&self.topology, self.seed, usable);
    }
}
