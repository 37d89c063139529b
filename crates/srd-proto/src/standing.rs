//! What is known of an address, whatever process is there and in whichever context: whether our program wants it, what it has
//! shown, and how much it may be sent before.

use crate::Stranger;

/// Bytes that may answer each of who may have forged his address (RFC 9000, section 8.1).
const ANSWER_FACTOR: u32 = 3;
/// Nothing leaves to him while less is left: a hello with an acknowledgement and a refusal.
const LONGEST_ANSWER: u32 = 144;

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    /// Our program wants to talk to this address.
    pub(crate) named: bool,
    /// Our program wants it, or the peer has known a queue key of ours.
    pub(crate) vouched: bool,
    /// It is at its address, or our program wants it, or it has known the key of memory of ours. Until then it is sent no more
    /// than [`ANSWER_FACTOR`] bytes for each of its own; of those, `credit` are left.
    pub(crate) proven: bool,
    credit: u32,
    /// Who is taken for the instance at this address has not shown yet that he is there.
    pub(crate) claimed: bool,
    /// An instance has been known at this address, in this context or an earlier one.
    pub(crate) ever_known: bool,
    /// How many others have been at this address since we know it.
    pub(crate) life: u32,
}

impl Standing {
    #[inline]
    pub(crate) fn new(proven: bool) -> Standing {
        Standing {
            named: false,
            vouched: false,
            proven,
            credit: 0,
            claimed: false,
            ever_known: false,
            life: 0,
        }
    }

    /// That of the next process at the address.
    #[inline]
    pub(crate) fn of_successor(self) -> Standing {
        Standing { credit: 0, claimed: false, life: self.life + 1, ..self }
    }

    /// Our program wants to talk to this address, and to whoever is there.
    #[inline]
    pub(crate) fn name(&mut self) {
        (self.named, self.vouched, self.proven) = (true, true, true);
    }

    /// A packet of `bytes` has come from the peer. `named`: it names us, whom only its address has been told.
    #[inline]
    pub(crate) fn prove(&mut self, named: bool, bytes: usize) {
        self.claimed &= !named;
        if !self.proven {
            self.proven = named;
            let more = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_mul(ANSWER_FACTOR);
            self.credit = self.credit.saturating_add(more);
        }
    }

    /// As what the upper layer knows him.
    #[inline]
    pub(crate) fn stranger(&self) -> Option<Stranger> {
        match (self.named, self.proven) {
            (true, _) => None,
            (false, true) => Some(Stranger::Proven),
            (false, false) => Some(Stranger::Unproven),
        }
    }

    /// So many bytes go to a peer that has proven nothing.
    #[inline]
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.credit = self.credit.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Whether nothing more is sent before something else comes.
    #[inline]
    pub(crate) fn is_withheld(&self) -> bool {
        !self.proven && self.credit < LONGEST_ANSWER
    }
}
