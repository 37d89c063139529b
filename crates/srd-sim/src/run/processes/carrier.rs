//! What carries what processes send: packets of their own, or flows of another transport.

use super::Onlooker;
use crate::hosts::{AnyHost, Process, RankHost, RankSeat};
use crate::input::Scenario;
use crate::run::simulation::Simulation;
use std::io;

/// See the module.
pub(super) trait Carrier: Process {
    /// The seat of a rank.
    fn seat<'s>(simulation: &'s mut Simulation<'_, Self>, rank: u32) -> &'s mut RankSeat
    where
        Self: Sized;

    /// Lets a rank do what it has to do now.
    fn call(simulation: &mut Simulation<'_, Self>, rank: u32)
    where
        Self: Sized;

    /// Lets somebody look at the packets.
    fn let_look(
        simulation: &mut Simulation<'_, Self>,
        scenario: &Scenario,
        onlooker: &mut dyn Onlooker,
    ) -> io::Result<()>
    where
        Self: Sized;
}

/// The ranks' own packets, on SRD's hosts.
impl Carrier for RankHost {
    fn seat<'s>(simulation: &'s mut Simulation<'_, RankHost>, rank: u32) -> &'s mut RankSeat {
        let process = simulation.process_of(rank);
        &mut simulation.transport_mut(process).rank_mut().expect("it is a rank's").seat
    }

    fn call(simulation: &mut Simulation<'_, RankHost>, rank: u32) {
        simulation.call(simulation.process_of(rank));
    }

    fn let_look(
        simulation: &mut Simulation<'_, RankHost>,
        scenario: &Scenario,
        onlooker: &mut dyn Onlooker,
    ) -> io::Result<()> {
        onlooker.begin(scenario, simulation)
    }
}

/// Their messages, as flows of another transport.
impl Carrier for AnyHost {
    fn seat<'s>(simulation: &'s mut Simulation<'_, AnyHost>, rank: u32) -> &'s mut RankSeat {
        simulation.programs_mut().and_then(|programs| programs.seat(rank)).expect("real processes run here")
    }

    fn call(simulation: &mut Simulation<'_, AnyHost>, rank: u32) {
        simulation.advance(rank);
    }

    fn let_look(_: &mut Simulation<'_, AnyHost>, _: &Scenario, _: &mut dyn Onlooker) -> io::Result<()> {
        Ok(()) // it sees calls only
    }
}
