//! What a program needs of the layer that carries its messages. Nothing here knows network or time of its own.

use srd_wire::Time;

/// What a rank needs of the layer that carries its messages. Ranks are named by number; messages between two ranks are
/// matched by tag, in the order of sending (MPI 4.1, section 3.5). Several open requests may have the same number.
pub trait Messaging {
    /// Begins to send; [`Completion::request`] names it. False if there is no room now: to be asked again later.
    fn send(&mut self, now: Time, to: u32, tag: u64, bytes: u64, request: u32) -> bool;

    /// Begins to receive, as [`Messaging::send`].
    fn recv(&mut self, now: Time, from: u32, tag: u64, bytes: u64, request: u32) -> bool;

    /// Begins to write into the memory of `to`, whose program takes no part, as [`Messaging::send`]. It ends when all is
    /// there (MPI 4.1, section 12.5.4: MPI_Win_flush).
    fn put(&mut self, now: Time, to: u32, bytes: u64, request: u32) -> bool;

    /// Begins to read from the memory of `from`, whose program takes no part, as [`Messaging::send`]. It ends when all has
    /// come.
    fn get(&mut self, now: Time, from: u32, bytes: u64, request: u32) -> bool;

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
