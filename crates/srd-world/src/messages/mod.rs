//! Worlds of the messaging layer: processes with a [`srd_msg::Domain`] each send messages, read, write and work on each
//! other's memory, over the simulated network and over lanes of shared memory, while packets are lost, hosts stand still,
//! networks are cut, clocks jump, processes die and endpoints are closed.
//!
//! As in the worlds of the device, one seed decides everything, and a run has a phase in which things go wrong and one in
//! which they do not. The [`book`] knows what every program has asked for and been told, and holds the layer to this:
//!
//! - *Completed means delivered.* A message whose send completed without error comes to a receive of the endpoint that it
//!   was meant for, whatever becomes of its sender, as long as that endpoint is open and asks for messages. A write that
//!   completed is in memory, and its notice comes. An atomic operation that completed has been carried out.
//! - *Nothing comes twice*, neither to an endpoint nor to two; what failed came once or not at all.
//! - *Messages of one endpoint to another do not overtake each other*, nor do receives.
//! - *Nobody waits for ever*: when the faults have ended every operation completes or fails in a time that follows from the
//!   configuration, and so do receives from a peer that has sent before and has gone. After that everybody who lives can
//!   talk to everybody else.
//!
//! What lies where: `process` a process, with its device and its domain; `lanes` what processes of one host have in shared
//! memory; `cluster` the event loop; `programs` what they ask for; `faults` what happens to them; `ending` the phase without
//! faults.

mod cluster;
mod faults;
mod lanes;
mod liveness;
pub mod oracle;
mod process;
mod programs;

use crate::plan::Plan;
use crate::world::{Failure, Summary, to_the_end};

/// Runs `plan` from beginning to end.
pub fn run(plan: &Plan, tracing: bool) -> Result<Summary, Box<Failure>> {
    to_the_end(plan, cluster::Cluster::new(plan, tracing))
}

/// Damage that the harness does itself between messaging layer and oracle. Each must be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// None.
    None,
    /// A receive's completion is not reported, so its message is lost.
    LoseReceive,
    /// A receive's completion is reported twice.
    RepeatReceive,
    /// A completion of a send is not reported.
    LoseSend,
    /// A failure is reported as success.
    LieSuccess,
    /// Two receives of messages of one peer are reported as having taken each other's.
    Swap,
    /// What was lent to copies through shared memory is never taken back.
    KeepLoan,
}

impl Sabotage {
    /// Every kind of damage.
    pub const ALL: [Sabotage; 6] = [
        Sabotage::LoseReceive,
        Sabotage::RepeatReceive,
        Sabotage::LoseSend,
        Sabotage::LieSuccess,
        Sabotage::Swap,
        Sabotage::KeepLoan,
    ];

    /// Its number in a plan.
    pub fn number(self) -> u64 {
        Sabotage::ALL.iter().position(|&kind| kind == self).map_or(0, |at| at as u64 + 1)
    }

    /// The kind with this number in a plan.
    pub fn from_number(n: u64) -> Sabotage {
        n.checked_sub(1).and_then(|i| Sabotage::ALL.get(i as usize)).copied().unwrap_or(Sabotage::None)
    }
}
