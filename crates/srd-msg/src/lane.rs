//! Ways to processes of the same host that do not lead over the network. Who makes them lies above this layer, which only
//! prefers one where there is one.

use srd_wire::Time;

/// What became of a message given to a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneSend {
    /// It is where the peer will look. `asleep`: the peer does not look, it must be woken over the network.
    Sent {
        /// See above.
        asleep: bool,
    },
    /// There is no room now.
    Full,
    /// The peer has gone.
    Gone,
}

/// What has gone over a lane so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaneTraffic {
    /// Messages sent.
    pub tx_msgs: u64,
    /// Their bytes, headers included.
    pub tx_bytes: u64,
    /// Bytes copied out of the peer's memory.
    pub copied_bytes: u64,
}

/// A way to one endpoint of another process of this host, in the order of sending. What comes the other way is given to
/// [`crate::Domain::arrived_by_shm`].
pub trait Lane: Send {
    /// The longest message that it takes.
    fn longest(&self) -> usize;

    /// The number of the identity of the endpoint that it leads to.
    fn identity(&self) -> u32;

    /// Sends one message, whose bytes are those of `parts` one behind the other.
    fn send(&mut self, now: Time, parts: &[&[u8]]) -> LaneSend;

    /// Whether [`Lane::read`] works.
    fn can_read(&self) -> bool;

    /// Copies `len` bytes at `there`, in the peer's process, to `here`, in this one. False if they cannot be read, or if the
    /// peer has not lent them by `key` until the end of the copy: then what is at `here` now means nothing.
    fn read(&mut self, key: u32, there: u64, here: u64, len: u64) -> bool;

    /// What has gone over it so far.
    fn traffic(&self) -> LaneTraffic;
}

/// What an endpoint lends to those who have a lane to it: memory that [`Lane::read`] copies over there. They have no other
/// way to know that a message has failed here, and that its memory is the program's again.
pub trait Loans: Send {
    /// What has this key may be copied from now on.
    fn lend(&mut self, key: u32);

    /// It may not any more: no copy succeeds that has anything of what is written there from now on.
    fn end(&mut self, key: u32);
}
