//! Programs of simulated processes that talk as MPI's do: each process (rank) works through a script of sends, receives and
//! waits. `script` says what a step is, `pairs` and `all_reduce` write scripts, `rank` works through one.
//!
//! What carries the messages is behind [`Messaging`]; this module knows neither network nor time of its own.

pub mod all_reduce;
pub mod pairs;
mod rank;
pub mod run;
pub mod script;
#[cfg(test)]
mod tests;

pub use rank::Rank;

use srd_wire::Time;

/// What a rank needs of the layer that carries its messages. Ranks are named by number; messages between two ranks are
/// matched by tag, in the order of sending (MPI 4.1, section 3.5).
pub trait Messaging {
    /// Begins to send; [`Completion::request`] names it. False if there is no room now: to be asked again later.
    fn send(&mut self, now: Time, to: u32, tag: u64, bytes: u64, request: u32) -> bool;

    /// Begins to receive, as [`Messaging::send`].
    fn recv(&mut self, now: Time, from: u32, tag: u64, bytes: u64, request: u32) -> bool;

    /// The next request that has come to its end.
    fn poll(&mut self, now: Time) -> Option<Completion>;
}

/// A request has come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// As it was begun.
    pub request: u32,
    /// Why it failed.
    pub failed: Option<&'static str>,
}
