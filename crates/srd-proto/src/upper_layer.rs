//! The surface between the transport and what lies above it (the device).

use srd_wire::{InstanceAddr, Op, Status};

/// Bytes of a message, or of a segment: a reference into memory, or in a simulator a mere length.
pub trait Payload: Clone {
    /// No bytes.
    fn empty() -> Self;

    /// How many bytes.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `len` of these bytes from `offset` on. The caller stays within bounds.
    fn slice(&self, offset: usize, len: usize) -> Self;
}

/// A peer context inside one endpoint: a slot number with a generation, so that an old number never means a new peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct PeerId {
    /// Slot in the endpoint's table.
    pub slot: u32,
    /// How often the slot has been given out.
    pub generation: u32,
}

/// Name that the upper layer gives to a message that it sends; comes back with the outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(pub u64);

/// Name that the upper layer gives to a message that it receives, from its first segment to its last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cookie(pub u64);

/// Head of an incoming message.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Incoming {
    /// The context it came from.
    pub peer: PeerId,
    /// The peer's address.
    pub from: InstanceAddr,
    /// Its sender has not shown yet that he is at that address, whether or not our program has sent something there.
    pub claimed: bool,
    /// Which of our receive ports it came to (index into the endpoint's ports).
    pub port: u8,
    /// What it asks for.
    pub op: Op,
    /// Its length in bytes.
    pub len: u32,
}

/// Somebody to whom our program has sent nothing of its own accord.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stranger {
    /// He is where he says.
    Proven,
    /// He may have forged his address.
    Unproven,
}

/// What the transport calls while it handles packets. The calls come in the middle of [`crate::Endpoint`]'s methods,
/// so the implementor records what it wants to send in answer (a read response, say) and hands it over afterwards.
pub trait UpperLayer<P: Payload> {
    /// Whether the sender of a message of that kind knows what only those know who were given an address here: the queue
    /// key. Asked of data whose sender has not shown otherwise that he is where he says; what is not vouched for waits
    /// until he has.
    fn vouches(&self, op: &Op, from: InstanceAddr) -> bool;

    /// Whether a message that is vouched for is taken from somebody of whom nobody knows yet whether he is where he says. If not,
    /// he is asked first, which costs him a round trip. `expected`: our program has sent something there, and nobody has answered.
    fn trusts(&self, _op: &Op, _expected: bool) -> bool {
        true
    }

    /// The first segment of a message has arrived (which need not be the one at offset 0). Reserve what it needs, or
    /// refuse it: the sender then gets the status as the outcome. Called once per message, however often its packets
    /// are duplicated. `rest_from`: there is more to come, from somebody whom our program has not named.
    fn begin(&mut self, message: &Incoming, rest_from: Option<Stranger>) -> Result<Cookie, Status>;

    /// A segment, each exactly once, in any order. Within `begin`'s length.
    fn place(&mut self, cookie: Cookie, message: &Incoming, offset: u32, payload: &P);

    /// All of the message is there. After this, and not before, its sender is told so; or that it was refused after
    /// all, if what it was for has gone in the meantime.
    fn finish(&mut self, cookie: Cookie, message: &Incoming) -> Result<(), Status>;

    /// The message will never be complete: its sender gave it up, or the context ended. Undo `begin`.
    fn abandon(&mut self, cookie: Cookie, message: &Incoming);

    /// What became of a message that was given to [`crate::Endpoint::send`]. Its payload is not read any more.
    fn outcome(&mut self, peer: PeerId, token: Token, outcome: Result<(), Status>);

    /// A peer has not answered for seconds, though it may be asked for longer before it counts as dead. Once per silence.
    fn peer_silent(&mut self, _addr: InstanceAddr, _answered_before: bool) {}

    /// The context with a peer, seen from our port number `port`, has ended; the outcomes of its messages have been reported
    /// just before. Not told of strangers: who neither was wanted by our program nor has been vouched for.
    fn peer_lost(&mut self, peer: PeerId, port: u8, addr: InstanceAddr, why: PeerLoss);
}

/// Why a context ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerLoss {
    /// No answer on any path for the configured time.
    Dead {
        /// Whether it had ever answered.
        answered_before: bool,
    },
    /// Another process answers at its address.
    Restarted,
    /// The same process has given us up.
    GivenUp,
    /// No common protocol version.
    Incompatible,
}
