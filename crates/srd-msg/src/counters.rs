//! What the messaging layer counts.

use srd_wire::counters;

impl Counters {
    /// What peers have sent against the rules.
    pub fn refused(&self) -> u64 {
        self.malformed
            + self.numbers_refused
            + self.beyond_window
            + self.lengths_refused
            + self.unasked
            + self.replies_refused
            + self.strangers_refused
            + self.no_memory
    }
}

counters! {
    /// See the module.
    Counters {
        /// Messages sent in one piece.
        eager_sent,
        /// Of them, those to processes of this host, by shared memory.
        near_sent,
        /// Messages sent in several pieces without asking.
        medium_sent,
        /// Messages sent by rendezvous.
        rendezvous_sent,
        /// Of them, those that would have been sent at once if the receiver had taken what came before.
        held_back,
        /// Messages that found a receive waiting.
        expected,
        /// Messages that did not.
        unexpected,
        /// Messages placed in their receive from their first packet on.
        placed,
        /// Messages whose rest was read from the sender's memory.
        fetched_by_read,
        /// Messages whose rest was copied out of a process of this host.
        fetched_near,
        /// Messages whose rest was sent when it was granted.
        fetched_by_grants,
        /// Messages that came before their turn.
        early,
        /// Writes carried out here for peers by message.
        puts,
        /// Atomic operations carried out here for peers.
        atomics,
        /// Times that a peer was lost.
        peers_lost,
        /// Messages of sessions that are over.
        stale,
        /// Messages that made no sense.
        malformed,
        /// Messages of hosts for which there was no room in the tables.
        strangers_dropped,
        /// Sessions ended for a message number that could not be: too far ahead, or there already.
        numbers_refused,
        /// Sessions ended for more than the peer's window.
        beyond_window,
        /// Sessions ended for lengths that did not fit each other, and for operations that were too long.
        lengths_refused,
        /// Answers, grants and bytes that nobody had asked for like that.
        unasked,
        /// Sessions ended since the peer had more answered than it took answers.
        replies_refused,
        /// Messages refused of peers that the program had not named, for lack of room for those.
        strangers_refused,
        /// Sessions ended since there was no memory for a message.
        no_memory,
        /// Bytes that are kept for peers now: messages that are not consumed, and replies that are not delivered.
        kept_bytes,
    }
}
