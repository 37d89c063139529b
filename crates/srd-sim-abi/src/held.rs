//! A simulation together with the scenario that it borrows, for callers that know no lifetimes.
#![allow(unsafe_code)]

use srd_sim::apps::Jobs;
use srd_sim::input::Scenario;
use srd_sim::run::CoSimulation;
use std::mem::ManuallyDrop;

/// See the module.
pub struct Held {
    simulation: ManuallyDrop<CoSimulation<'static>>,
    scenario: *mut Scenario,
}

impl Held {
    /// Begins a simulation.
    pub fn new(scenario: Scenario, jobs: Jobs) -> Held {
        let scenario = Box::into_raw(Box::new(scenario));
        // SAFETY: it was a box just now, nobody changes it, and it is freed in `drop` only, behind the simulation that borrows it. That is lent
        // for no longer than `self` is, so nothing of the scenario gets out.
        let simulation = CoSimulation::new(unsafe { &*scenario }, jobs);
        Held { simulation: ManuallyDrop::new(simulation), scenario }
    }

    /// The simulation.
    pub fn simulation(&mut self) -> &mut CoSimulation<'_> {
        // SAFETY: only the lifetime of what it borrows becomes shorter: `&mut` forbids that in general, since something shorter could be put into
        // it, but whatever a caller gives to a simulation is plain values.
        unsafe {
            std::mem::transmute::<&mut CoSimulation<'static>, &mut CoSimulation<'_>>(&mut self.simulation)
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: once, and the simulation first; then nobody borrows the scenario.
        unsafe {
            ManuallyDrop::drop(&mut self.simulation);
            drop(Box::from_raw(self.scenario));
        }
    }
}
