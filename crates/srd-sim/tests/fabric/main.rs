//! What switches may do beside queueing and ECMP: pausing each other, choosing ways, keeping order; and shapes of fabrics whose
//! ways are not all through spines.

mod pause;
mod routing;
mod shapes;

use srd_sim::hosts::AnyHost;
use srd_sim::input::Scenario;
use srd_sim::net::{PortCounters, PortId};
use srd_sim::run::{self, Meter, Offer, Outcome, Simulation};
use srd_sim::units::Ps;
use std::path::Path;

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "fabric.toml", Path::new(""), &[]).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// What is wrong with a scenario.
fn refusal(text: &str) -> String {
    let read = Scenario::parse(text, "fabric.toml", Path::new(""), &[]);
    read.expect_err(text).to_string()
}

/// A simulation of a scenario, at its beginning.
fn begun(scenario: &Scenario) -> Simulation<'_, AnyHost> {
    run::prepare_hosts(scenario, &Offer::of(scenario))
}

/// The same at its end.
fn done(scenario: &Scenario) -> Simulation<'_, AnyHost> {
    let mut simulation = begun(scenario);
    simulation.run(Ps::NEVER);
    simulation
}

fn outcome(simulation: &mut Simulation<'_, AnyHost>) -> Outcome {
    let outcome = Outcome::of(simulation, None, &Meter::start());
    Outcome { cost: Default::default(), ..outcome }
}

/// The port called so.
fn port(simulation: &Simulation<'_, AnyHost>, name: &str) -> PortId {
    let mut ports = (0..simulation.fabric.ports()).map(PortId);
    ports.find(|&port| simulation.fabric.port_name(port) == name).unwrap_or_else(|| panic!("no port {name}"))
}

fn counters(simulation: &Simulation<'_, AnyHost>, name: &str) -> PortCounters {
    simulation.fabric.counters(port(simulation, name))
}

/// For how long a port was paused, in microseconds.
fn paused(simulation: &Simulation<'_, AnyHost>, name: &str) -> f64 {
    simulation.fabric.paused(simulation.now, port(simulation, name)).as_micros()
}

/// From a flow's start to its last byte at the receiver, in microseconds.
fn took(simulation: &Simulation<'_, AnyHost>, flow: usize) -> f64 {
    let state = simulation.flows[flow];
    (state.received.expect("the flow is done") - state.started.expect("and has begun")).as_micros()
}

/// Gb/s of payload of a flow, until its end or now.
fn gbps(simulation: &mut Simulation<'_, AnyHost>, flow: usize) -> f64 {
    let state = simulation.flows[flow];
    let span = state.received.unwrap_or(simulation.now) - state.started.expect("the flow has begun");
    simulation.delivered(flow as u32) as f64 * 8e-3 / span.as_micros()
}
