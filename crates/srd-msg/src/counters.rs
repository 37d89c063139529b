//! What the messaging layer counts.

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages sent in one piece.
    pub eager_sent: u64,
    /// Of them, those to processes of this host, by shared memory.
    pub near_sent: u64,
    /// Messages sent in several pieces without asking.
    pub medium_sent: u64,
    /// Messages sent by rendezvous.
    pub rendezvous_sent: u64,
    /// Of them, those that would have been sent at once if the receiver had taken what came before.
    pub held_back: u64,
    /// Messages that found a receive waiting.
    pub expected: u64,
    /// Messages that did not.
    pub unexpected: u64,
    /// Messages whose rest was read from the sender's memory.
    pub fetched_by_read: u64,
    /// Messages whose rest was copied out of a process of this host.
    pub fetched_near: u64,
    /// Messages whose rest was sent when it was granted.
    pub fetched_by_grants: u64,
    /// Messages that came before their turn.
    pub early: u64,
    /// Writes carried out here for peers by message.
    pub puts: u64,
    /// Atomic operations carried out here for peers.
    pub atomics: u64,
    /// Times that a peer was lost.
    pub peers_lost: u64,
    /// Messages of sessions that are over.
    pub stale: u64,
    /// Messages that made no sense.
    pub malformed: u64,
    /// Messages of hosts for which there was no room in the tables.
    pub strangers_dropped: u64,
}
