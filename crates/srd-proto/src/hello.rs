//! How the two sides of a context introduce themselves: what a hello says, which packets carry one, and when one is answered.

use crate::shared::Shared;
use srd_wire::{FEATURE_CUTS, Hello, Incarnation, Nanos, Time, VERSION};

/// Introduces us as `own` to a peer of whose incarnation, in context number `context`, we know `echo` (0: nothing).
pub(crate) fn own_hello(shared: &Shared, own: Incarnation, echo: u64, context: u16) -> Hello {
    Hello {
        incarnation: own,
        echo,
        version_min: VERSION,
        version_max: VERSION,
        features: FEATURE_CUTS,
        context,
        max_datagram: shared.config.max_datagram,
        rcvbuf_kib: (shared.config.rcvbuf_bytes / 1024) as u32,
    }
}

/// Whether its sender speaks our version.
pub(crate) fn is_compatible(hello: &Hello) -> bool {
    (hello.version_min..=hello.version_max).contains(&VERSION)
}

/// How far that has come.
pub(crate) struct Introduction {
    /// The peer has shown that it is in this context.
    pub(crate) joined: bool,
    /// It has shown that it knows our incarnation, and that it knows that we are in this context.
    pub(crate) confirmed: bool,
    pub(crate) context_confirmed: bool,
    /// It has acknowledged something of ours.
    pub(crate) acknowledged: bool,
    /// When a hello may be sent again, and how many were sent.
    pub(crate) at: Time,
    pub(crate) sent: u32,
    /// No introduction is answered for its own sake before this.
    answer_at: Time,
}

impl Introduction {
    #[inline]
    pub(crate) fn new(now: Time) -> Introduction {
        Introduction {
            joined: false,
            confirmed: false,
            context_confirmed: false,
            acknowledged: false,
            at: now,
            sent: 0,
            answer_at: Time(0),
        }
    }

    /// Whether packets carry a hello. With data it goes on until something of this context has been
    /// acknowledged: the peer must have seen the context's number. `known`: we know who the peer is.
    #[inline]
    pub(crate) fn is_carried(&self, with_data: bool, known: bool) -> bool {
        // Segments are cut for one or the other: what was acknowledged once needs no introduction ever after.
        if with_data { !self.acknowledged } else { !self.confirmed || !self.context_confirmed || !known }
    }

    /// One is sent on its own.
    #[inline]
    pub(crate) fn note_sent(&mut self, now: Time, shared: &Shared) {
        self.sent += 1;
        self.at = now + Nanos(shared.config.min_rto.0 << self.sent.min(16)).min(shared.config.max_rto);
    }

    /// When the peer's own is answered: all that it sends in its first round trip has one; answers that are nothing else keep a
    /// distance.
    #[inline]
    pub(crate) fn answer(&mut self, now: Time, shared: &Shared) -> Time {
        if now < self.answer_at {
            return self.answer_at;
        }
        self.answer_at = now + shared.config.ack_delay;
        now
    }
}
