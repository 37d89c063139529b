//! Tokens: what the transport is told that a message is, so that its outcome finds its work.

use crate::slab::Key;
use srd_proto::{PeerId, Token};

/// What a token of the transport stands for. Two bits beside a slab key (its generation has 30).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenOf {
    /// A send work request: its message, or the request of a read.
    Request(Key),
    /// The answer to a peer's read.
    ReadResponse(Key),
    /// A keepalive to a watched peer.
    Watch(PeerId),
    /// A message whose outcome nobody waits for.
    Nobody,
}

impl TokenOf {
    pub fn token(self) -> Token {
        let pack = |kind: u64, index: u32, generation: u32| {
            Token((generation as u64) << 34 | kind << 32 | index as u64)
        };
        match self {
            TokenOf::Request(key) => pack(0, key.index, key.generation),
            TokenOf::ReadResponse(key) => pack(1, key.index, key.generation),
            TokenOf::Watch(peer) => pack(2, peer.slot, peer.generation),
            TokenOf::Nobody => pack(3, 0, 0),
        }
    }

    pub fn of(token: Token) -> TokenOf {
        let (index, generation) = (token.0 as u32, (token.0 >> 34) as u32);
        match token.0 >> 32 & 3 {
            0 => TokenOf::Request(Key { index, generation }),
            1 => TokenOf::ReadResponse(Key { index, generation }),
            2 => TokenOf::Watch(PeerId { slot: index, generation }),
            _ => TokenOf::Nobody,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_carry_what_they_stand_for() {
        let key = Key { index: u32::MAX, generation: (1 << 30) - 1 };
        let peer = PeerId { slot: 7, generation: 9 };
        for of in [TokenOf::Request(key), TokenOf::ReadResponse(key), TokenOf::Watch(peer), TokenOf::Nobody] {
            assert_eq!(TokenOf::of(of.token()), of);
        }
    }
}
