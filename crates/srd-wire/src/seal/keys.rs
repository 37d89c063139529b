//! From the pre-shared key to the key of one packet, and which packets of a direction have been seen.

use super::replay::Window;
use super::{OpenError, Psk, TAG_LEN};
use crate::units::Incarnation;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use zeroize::Zeroizing;

/// Counters of one epoch, and packets under one key: 2^24. A datagram has fewer than 2^12 blocks of 16 bytes, so that fewer than 2^36 blocks
/// meet one key, and an observer's advantage stays below 2^-57 (AES-GCM as a permutation: blocks^2 / 2^129).
const EPOCH_SHIFT: u32 = 24;

/// 127 words remember 8128 counters: many times the packets that may be outstanding, so that reordering over 256
/// paths does not reach the end.
type ReplayWindow = Window<128>;

const KEY_LEN: usize = 32;
const NONCE_LEN: usize = 12;

/// What the keys of one direction are derived from, but for the pre-shared key: there is one of that, and no copy.
pub(super) struct Secret {
    /// One incarnation, or two.
    salt: [u8; 16],
    salt_len: usize,
    label: &'static [u8],
}

impl Secret {
    /// Protects what `sender` says to those whose incarnation it does not know.
    pub(super) fn introduction(sender: Incarnation) -> Secret {
        let mut salt = [0; 16];
        salt[..8].copy_from_slice(&sender.0.to_be_bytes());
        Secret { salt, salt_len: 8, label: b"opensrd 1 introduction" }
    }

    /// Protects what `sender` says to `receiver`.
    pub(super) fn context(sender: Incarnation, receiver: Incarnation) -> Secret {
        let mut salt = [0; 16];
        salt[..8].copy_from_slice(&sender.0.to_be_bytes());
        salt[8..].copy_from_slice(&receiver.0.to_be_bytes());
        Secret { salt, salt_len: 16, label: b"opensrd 1 context" }
    }

    /// The key of an epoch. What it is made of is wiped: by us, by HKDF's types, and by the C library when it frees.
    fn key(&self, psk: &Psk, epoch: u64) -> Key {
        let mut okm = Zeroizing::new([0; KEY_LEN + NONCE_LEN]);
        hkdf::Salt::new(hkdf::HKDF_SHA256, &self.salt[..self.salt_len])
            .extract(psk.bytes())
            .expand(&[self.label, &epoch.to_be_bytes()], OkmLen)
            .and_then(|okm_source| okm_source.fill(&mut *okm))
            .expect("44 bytes are within HKDF's limit");
        let mut iv = [0; NONCE_LEN];
        iv.copy_from_slice(&okm[KEY_LEN..]);
        let key = UnboundKey::new(&AES_256_GCM, &okm[..KEY_LEN]).expect("the key's length is right");
        Key { epoch, iv, aead: LessSafeKey::new(key) }
    }

    /// Decrypts `text`, which ends in its tag, in place, with a key that is forgotten at once.
    pub(super) fn open_once(
        &self,
        psk: &Psk,
        counter: u64,
        header: &[u8],
        text: &mut [u8],
    ) -> Result<(), OpenError> {
        self.key(psk, counter >> EPOCH_SHIFT).open(counter, header, text)
    }
}

struct OkmLen;

impl hkdf::KeyType for OkmLen {
    fn len(&self) -> usize {
        KEY_LEN + NONCE_LEN
    }
}

/// The key of one epoch of one direction.
pub(super) struct Key {
    epoch: u64,
    iv: [u8; NONCE_LEN],
    aead: LessSafeKey,
}

impl Key {
    #[inline]
    fn nonce(&self, counter: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, count) in nonce[4..].iter_mut().zip(counter.to_be_bytes()) {
            *byte ^= count;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts `text` in place and returns the tag.
    fn seal(&self, counter: u64, header: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        let tag = self
            .aead
            .seal_in_place_separate_tag(self.nonce(counter), Aad::from(header), text)
            .expect("a datagram is within AES-GCM's limit");
        let mut bytes = [0; TAG_LEN];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    /// Decrypts `text`, which ends in its tag, in place.
    fn open(&self, counter: u64, header: &[u8], text: &mut [u8]) -> Result<(), OpenError> {
        match self.aead.open_in_place(self.nonce(counter), Aad::from(header), text) {
            Ok(_) => Ok(()),
            Err(_) => Err(OpenError::BadTag),
        }
    }
}

/// Hands out the epochs of one instance, each of them once. So no counter is used twice by an instance, under
/// whatever key, and whatever contexts come and go.
#[derive(Default)]
pub(super) struct Epochs {
    next: u64,
    /// Keys of earlier epochs are not used any more: they may be a copy's, too.
    first_fresh: u64,
}

/// From here on epochs are not left out any more, so that they do not come to an end: half of the 2^40 that a counter has.
const LAST_LEAP: u64 = 1 << 39;

impl Epochs {
    /// Leaves out up to 2^20 epochs, as `random` says, and has every key be of a later one. 2^20 leaps are possible.
    pub(super) fn leap(&mut self, random: u32) {
        if self.next < LAST_LEAP {
            self.next += u64::from(random >> 12);
        }
        self.first_fresh = self.next;
    }
}

/// The sending end of one direction.
pub(super) struct Sealer {
    secret: Secret,
    key: Option<Key>,
    next: u64,
}

impl Sealer {
    pub(super) fn new(secret: Secret) -> Sealer {
        Sealer { secret, key: None, next: 0 }
    }

    /// Encrypts `text` in place and returns the counter and the tag.
    pub(super) fn seal(
        &mut self,
        psk: &Psk,
        epochs: &mut Epochs,
        header: &[u8],
        text: &mut [u8],
    ) -> (u64, [u8; TAG_LEN]) {
        let key = match &self.key {
            Some(key) if self.next >> EPOCH_SHIFT == key.epoch && key.epoch >= epochs.first_fresh => key,
            _ => {
                let epoch = epochs.next;
                epochs.next += 1;
                self.next = epoch << EPOCH_SHIFT;
                self.key.insert(self.secret.key(psk, epoch))
            }
        };
        let counter = self.next;
        self.next += 1;
        (counter, key.seal(counter, header, text))
    }
}

/// The receiving end of one direction.
pub(super) struct Opener {
    secret: Secret,
    /// Counters before this one are not accepted.
    first: u64,
    current: Option<Box<Epoch>>,
    /// The one before: packets come in any order, also where the epoch changes.
    previous: Option<Box<Epoch>>,
}

struct Epoch {
    key: Key,
    seen: ReplayWindow,
}

impl Epoch {
    #[inline]
    fn open(&mut self, counter: u64, header: &[u8], text: &mut [u8]) -> Result<(), OpenError> {
        if !self.seen.is_fresh(counter) {
            return Err(OpenError::Replayed);
        }
        self.key.open(counter, header, text)?;
        self.seen.mark(counter);
        Ok(())
    }
}

impl Opener {
    /// Accepts no counter before `first`.
    pub(super) fn new(secret: Secret, first: u64) -> Opener {
        Opener { secret, first, current: None, previous: None }
    }

    /// One more than the highest counter that has been opened.
    pub(super) fn next(&self) -> u64 {
        self.current.as_ref().map_or(self.first, |epoch| epoch.seen.next())
    }

    /// Decrypts `text`, which ends in its tag, in place.
    pub(super) fn open(
        &mut self,
        psk: &Psk,
        counter: u64,
        header: &[u8],
        text: &mut [u8],
    ) -> Result<(), OpenError> {
        let number = counter >> EPOCH_SHIFT;
        if let Some(current) = &mut self.current {
            if number == current.key.epoch {
                return current.open(counter, header, text);
            }
            if number < current.key.epoch {
                return match &mut self.previous {
                    Some(previous) if number == previous.key.epoch => previous.open(counter, header, text),
                    _ => Err(OpenError::Replayed),
                };
            }
        }
        // Only a packet that opens moves the epoch on.
        let first = self.first.max(number << EPOCH_SHIFT);
        let mut epoch = Epoch { key: self.secret.key(psk, number), seen: ReplayWindow::starting_at(first) };
        epoch.open(counter, header, text)?;
        self.previous = self.current.replace(Box::new(epoch));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::context(Incarnation(2), Incarnation(3))
    }

    fn psk() -> Psk {
        Psk::from_bytes(&[1; 32]).unwrap()
    }

    const EPOCH: u64 = 1 << EPOCH_SHIFT;

    fn sealed_at(counter: u64) -> Vec<u8> {
        let mut sealer = Sealer::new(secret());
        let key = sealer.key.insert(sealer.secret.key(&psk(), counter >> EPOCH_SHIFT));
        let mut text = b"text".to_vec();
        let tag = key.seal(counter, b"header", &mut text);
        text.extend_from_slice(&tag);
        text
    }

    fn open(opener: &mut Opener, counter: u64) -> Result<(), OpenError> {
        let mut text = sealed_at(counter);
        opener.open(&psk(), counter, b"header", &mut text)?;
        assert_eq!(&text[..4], b"text");
        Ok(())
    }

    #[test]
    fn packets_cross_the_change_of_an_epoch_in_any_order_and_once() {
        let mut opener = Opener::new(secret(), 0);
        for counter in [EPOCH - 1, EPOCH, EPOCH - 3, EPOCH + 9, EPOCH - 2, EPOCH + 1] {
            assert_eq!(open(&mut opener, counter), Ok(()), "{counter:#x}");
            assert_eq!(open(&mut opener, counter), Err(OpenError::Replayed), "{counter:#x}");
        }
        assert_eq!(opener.next(), EPOCH + 10);
    }

    #[test]
    fn epochs_may_be_far_apart_and_older_ones_are_closed() {
        let mut opener = Opener::new(secret(), 0);
        for counter in [EPOCH, 7 * EPOCH + 1, EPOCH + 1, 1000 * EPOCH, 7 * EPOCH] {
            assert_eq!(open(&mut opener, counter), Ok(()), "{counter:#x}");
        }
        for counter in [0, EPOCH + 2, 8 * EPOCH] {
            assert_eq!(open(&mut opener, counter), Err(OpenError::Replayed), "{counter:#x}");
        }
    }

    #[test]
    fn a_forged_epoch_moves_nothing() {
        let mut opener = Opener::new(secret(), 0);
        assert_eq!(open(&mut opener, 0), Ok(()));
        assert_eq!(opener.open(&psk(), 5 * EPOCH, b"header", &mut sealed_at(0)), Err(OpenError::BadTag));
        assert_eq!(open(&mut opener, 1), Ok(()));
        assert_eq!(opener.next(), 2);
    }

    #[test]
    fn what_was_seen_before_stays_refused() {
        let mut opener = Opener::new(secret(), EPOCH + 5);
        for counter in [0, EPOCH - 1, EPOCH, EPOCH + 4] {
            assert_eq!(open(&mut opener, counter), Err(OpenError::Replayed), "{counter:#x}");
        }
        assert_eq!(open(&mut opener, EPOCH + 5), Ok(()));
    }

    #[test]
    fn no_two_sealers_of_an_instance_share_a_counter() {
        let mut epochs = Epochs::default();
        let mut sealers = [Sealer::new(secret()), Sealer::new(secret())];
        let mut opener = Opener::new(secret(), 0);
        let mut seal = |sealer: &mut Sealer| {
            let mut text = b"text".to_vec();
            let (counter, tag) = sealer.seal(&psk(), &mut epochs, b"header", &mut text);
            text.extend_from_slice(&tag);
            assert_eq!(opener.open(&psk(), counter, b"header", &mut text), Ok(()));
            counter
        };
        assert_eq!((seal(&mut sealers[0]), seal(&mut sealers[1]), seal(&mut sealers[0])), (0, EPOCH, 1));
        sealers[0].next = EPOCH - 1;
        assert_eq!((seal(&mut sealers[0]), seal(&mut sealers[0])), (EPOCH - 1, 2 * EPOCH));
    }

    #[test]
    fn directions_and_purposes_have_keys_of_their_own() {
        let (ours, other) = (psk(), Psk::from_bytes(&[2; 32]).unwrap());
        let (a, b) = (Incarnation(2), Incarnation(3));
        let mut seen = std::collections::HashSet::new();
        for (psk, secret) in [
            (&ours, Secret::context(a, b)),
            (&ours, Secret::context(b, a)),
            (&ours, Secret::introduction(a)),
            (&ours, Secret::introduction(b)),
            (&other, Secret::context(a, b)),
        ] {
            for epoch in [0, 1] {
                assert!(seen.insert(secret.key(psk, epoch).seal(0, b"", &mut [0; 4])));
            }
        }
    }

    /// A process that is copied while it runs, as with a snapshot of its machine: both copies have the same keys and counters.
    #[test]
    fn two_copies_of_an_instance_share_no_counter_after_a_leap() {
        let sealed_after = |random| {
            let mut epochs = Epochs::default();
            let mut sealer = Sealer::new(secret());
            let mut seal = |epochs: &mut Epochs| sealer.seal(&psk(), epochs, b"header", &mut [0; 4]).0;
            let before = seal(&mut epochs);
            epochs.leap(random);
            (before, [seal(&mut epochs), seal(&mut epochs)])
        };
        let ((before, one), (also_before, other)) = (sealed_after(0x1234_5678), sealed_after(0x9abc_def0));
        assert_eq!(before, also_before);
        assert!(one.iter().all(|counter| !other.contains(counter)), "{one:x?} {other:x?}");
        assert!(one[0] > before && one[1] == one[0] + 1, "{one:x?} after {before:x}");
        // Even if chance has it that nothing is left out, the key is another.
        assert_eq!(sealed_after(0).1[0], EPOCH);
    }

    #[test]
    fn leaps_leave_enough_epochs_for_a_life() {
        let mut epochs = Epochs::default();
        (0..1 << 22).for_each(|_| epochs.leap(u32::MAX));
        assert!(epochs.next < (1 << 39) + (1 << 20), "{:x}", epochs.next);
    }
}
