//! A simulated process that speaks a transport: how one begins.

use crate::apps::{Program, Rank};
use crate::hosts::settings::{Settings, TransportSettings};
use srd_baselines::transport::{Role, Transport};

/// What a process is born with.
#[derive(Clone, Debug)]
pub struct Birth<'a> {
    /// What every transport must know.
    pub role: Role,
    /// Everything about the run.
    pub settings: &'a Settings,
    /// The transport that it is to speak.
    pub transport: &'a TransportSettings,
    /// Its rank and program, if it runs one.
    pub program: Option<(u32, &'a Program)>,
}

/// A transport of which the simulation can make processes.
pub trait Process: Transport {
    /// It works through programs itself; otherwise the simulation does, and makes flows of their messages.
    const RUNS_PROGRAMS: bool = false;
    /// A message between programs of a host that does not leave it.
    type Near;

    /// The next of those, and the rank that it is for.
    fn poll_near(&mut self) -> Option<(u32, Self::Near)> {
        None
    }

    /// One will have come at its time.
    fn receive_near(&mut self, _near: Self::Near) {
        unreachable!("this transport runs no programs");
    }

    /// What it works through by itself.
    fn rank(&self) -> Option<&Rank> {
        None
    }

    /// A process at its beginning.
    fn new(birth: Birth<'_>) -> Self;
}
