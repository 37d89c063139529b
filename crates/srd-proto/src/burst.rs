//! What leaves together: a burst on one path, and whose turn it is among a context's messages.

use srd_wire::PathId;

/// How much of a message leaves before the next one has its turn.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// So many bytes.
    pub(crate) bytes: u32,
    /// And what else leaves in the burst that they end in: where the datapath joins packets of a message, another turn in between would cost
    /// more than it brings.
    pub(crate) to_end_of_burst: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Burst {
    pub(crate) path: PathId,
    /// Bytes that may still leave.
    pub(crate) left: u64,
    /// Bytes that the message at the head may still send before the next one has its turn.
    turn_left: u32,
}

impl Burst {
    /// Whether the next one is another peer's.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    #[inline]
    pub(crate) fn end(&mut self) {
        self.left = 0;
    }

    /// Packets of `bytes` each leave. Where there is no room for another like them, the burst is over.
    #[inline]
    pub(crate) fn take(&mut self, packets: u32, bytes: u64) {
        self.left = self.left.saturating_sub(u64::from(packets) * bytes);
        if self.left < bytes {
            self.end();
        }
    }

    /// Whether the next packet begins a turn.
    #[inline]
    pub(crate) fn turn_is_over(&self) -> bool {
        self.turn_left == 0
    }

    /// Packets of `bytes` each leave, with `len` bytes each of a message, of which that is all or not. Whether another message has its turn
    /// before the rest. More than one are no more than [`Burst::packets`].
    #[inline]
    pub(crate) fn ends_turn(
        &mut self,
        packets: u32,
        bytes: u64,
        len: u32,
        all_sent: bool,
        turn: Turn,
    ) -> bool {
        self.take(packets, bytes);
        let least = u32::from(turn.to_end_of_burst && !self.is_over());
        self.turn_left =
            if all_sent { 0 } else { self.of_turn(turn).saturating_sub(packets * len).max(least) };
        self.turn_left == 0 && !all_sent
    }

    /// How many packets of `bytes` each, with `len` bytes each of a message, may leave in the burst before another message has its turn.
    #[inline]
    pub(crate) fn packets(&self, bytes: u64, len: u32, turn: Turn) -> u32 {
        let in_burst = (self.left / bytes) as u32;
        if turn.to_end_of_burst { in_burst } else { in_burst.min(self.of_turn(turn).div_ceil(len)) }
    }

    /// Bytes that are left of the turn, if the next packet begins none.
    #[inline]
    fn of_turn(&self, turn: Turn) -> u32 {
        if self.turn_left == 0 { turn.bytes } else { self.turn_left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many packets of 1,000 bytes leave before each end of a turn, in bursts of `burst` bytes.
    fn turns(burst: u64, to_end_of_burst: bool) -> Vec<usize> {
        let (turn, mut leaves) = (Turn { bytes: 8000, to_end_of_burst }, Burst::default());
        let mut lengths = vec![0];
        for _ in 0..160 {
            if leaves.left < 1000 {
                leaves.left = burst;
            }
            *lengths.last_mut().unwrap() += 1;
            if leaves.ends_turn(1, 1000, 1000, false, turn) {
                lengths.push(0);
            }
        }
        lengths.pop();
        lengths
    }

    #[test]
    fn a_turn_is_so_many_bytes_and_where_asked_the_rest_of_their_burst() {
        assert!(turns(40_000, false).iter().all(|&packets| packets == 8));
        assert_eq!(turns(40_000, true), [40; 4]);
        // Bursts of a packet do not make turns of one, nor do bursts that end within the bytes of a turn.
        assert!(turns(1000, true).iter().all(|&packets| packets == 8));
        assert!(turns(3000, true).iter().all(|&packets| packets == 9));
    }

    #[test]
    fn who_follows_a_message_that_has_ended_has_a_whole_turn() {
        for to_end_of_burst in [false, true] {
            let mut leaves = Burst { left: 40_000, ..Burst::default() };
            let turn = Turn { bytes: 8000, to_end_of_burst };
            assert!(!leaves.ends_turn(1, 1000, 1000, true, turn));
            assert!(leaves.turn_is_over());
        }
    }
}
