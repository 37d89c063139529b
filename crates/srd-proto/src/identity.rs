//! Who this instance is to each of its peers. In clear mode to each somebody else: an incarnation is a keyed hash of the
//! peer's address, so what one peer is told is of no use against another (the tags of its packets, its first PSNs; RFC
//! 6528 makes TCP's initial sequence numbers in the same way). And since it need not be remembered, strangers are
//! answered without a context: whoever names the incarnation that belongs to his address has got our answer there (as with
//! the stateless cookies of RFC 9000, section 8.1.3).
//!
//! In sealed mode packets prove whose they are, and one incarnation, which the keys are derived from, serves all.

use siphasher::sip::SipHasher24;
use srd_wire::{Incarnation, InstanceAddr};
use std::hash::Hasher;

/// See the module.
pub(crate) struct Identities {
    key: (u64, u64),
    /// What every peer is told.
    shared: Option<Incarnation>,
    /// Counts the contexts forgotten whose peers may remember them, each with a share of all addresses: who comes later from one of
    /// those is told another incarnation. Empty as long as none was.
    eras: Vec<u32>,
}

/// Shares of all addresses. Who has been told an incarnation and has not named it yet is told another one if a context of his share
/// is forgotten meanwhile: so rarely that nobody is kept out by it, however many strangers come and go.
const SHARES: usize = 1 << 16;

/// What a number is for, so that none says anything of another.
#[derive(Clone, Copy)]
enum Use {
    Identity = 1,
    Question = 2,
    Share = 3,
}

impl Identities {
    /// `secret` and `seed` are known to nobody else.
    pub(crate) fn new(secret: Incarnation, seed: u64, to_all: bool) -> Identities {
        Identities { key: (secret.0, seed), shared: to_all.then_some(secret), eras: Vec::new() }
    }

    /// Who we are, at receive port number `port`, to the instance at `to`, which has been another one `life` times: what one
    /// of them is told, or has yet to hear, is of no use to the next.
    pub(crate) fn toward(&self, port: u8, to: InstanceAddr, life: u32) -> Incarnation {
        let own = || {
            let era = if self.eras.is_empty() { 0 } else { self.eras[self.share(port, to)] };
            Incarnation(self.number(Use::Identity, port, to, [era as u64, life as u64]).max(1))
        };
        self.shared.unwrap_or_else(own)
    }

    /// The number that only `who`, at `to`, can know once we have sent it there: it takes the place of who is known there, for
    /// the time of that `reign`, if it returns it.
    pub(crate) fn question(&self, port: u8, to: InstanceAddr, who: Incarnation, reign: u64) -> u32 {
        self.number(Use::Question, port, to, [who.0, reign]) as u32
    }

    /// The context with the instance at `to` is forgotten, of which that may remember something.
    pub(crate) fn forget(&mut self, port: u8, to: InstanceAddr) {
        if self.shared.is_none() {
            self.eras.resize(SHARES, 0);
            let share = self.share(port, to);
            self.eras[share] = self.eras[share].wrapping_add(1);
        }
    }

    fn share(&self, port: u8, to: InstanceAddr) -> usize {
        self.number(Use::Share, port, to, [0; 2]) as usize % SHARES
    }

    fn number(&self, what: Use, port: u8, to: InstanceAddr, more: [u64; 2]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key.0, self.key.1);
        hasher.write(&[what as u8, port]);
        hasher.write(&to.gid.0);
        hasher.write(&to.port.to_be_bytes());
        more.iter().for_each(|word| hasher.write(&word.to_be_bytes()));
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_wire::Gid;

    fn addr(last: u8, port: u16) -> InstanceAddr {
        InstanceAddr { gid: Gid::from(std::net::IpAddr::from([10, 0, 0, last])), port }
    }

    #[test]
    fn each_peer_is_told_another_incarnation_in_clear_mode_and_all_the_same_in_sealed_mode() {
        let clear = Identities::new(Incarnation(7), 8, false);
        let of = |identities: &Identities| {
            [(0, addr(1, 1)), (0, addr(1, 2)), (0, addr(2, 1)), (1, addr(1, 1))]
                .map(|(port, to)| identities.toward(port, to, 0))
        };
        let different: std::collections::HashSet<_> = of(&clear).into_iter().collect();
        assert_eq!(different.len(), 4);
        assert!(!different.contains(&Incarnation(7)), "the secret is told nobody");
        assert!(
            !different.contains(&clear.toward(0, addr(1, 1), 1)),
            "nor is the next process there told the same"
        );
        assert_eq!(of(&Identities::new(Incarnation(7), 8, true)), [Incarnation(7); 4]);
        assert_ne!(of(&Identities::new(Incarnation(7), 9, false)), of(&clear), "the seed counts, too");
    }

    #[test]
    fn who_comes_after_a_context_was_forgotten_is_told_another_incarnation_and_hardly_anybody_else() {
        let mut clear = Identities::new(Incarnation(7), 8, false);
        let told = |clear: &Identities| -> Vec<_> {
            (0..1000).map(|port| clear.toward(0, addr(1, port), 0)).collect()
        };
        let before = told(&clear);
        (0..50).for_each(|port| clear.forget(0, addr(2, port)));
        let changed = before.iter().zip(told(&clear)).filter(|(old, new)| *old != new).count();
        assert!(changed < 10, "{changed} of 1000");
        let before = told(&clear);
        clear.forget(0, addr(1, 500));
        assert_ne!(told(&clear)[500], before[500]);
    }
}
