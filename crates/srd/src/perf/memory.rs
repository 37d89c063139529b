//! Registered memory, divided into places for one message each.

use super::pattern::{self, Corrupt};
use super::plan::Plan;
use anyhow::bail;
use srd_net::Buffer;
use srd_sim::run::available_memory;

/// Messages begin where a cache line does.
const ALIGNMENT: usize = 64;

/// A longer message is made and looked at in pieces of this length, in bytes.
const PIECE: usize = 64 << 10;
const _: () = assert!(PIECE.is_multiple_of(pattern::WORD));

/// How much memory messages come from and go to where nobody looks at their content: what iperf3 uses for TCP. As in
/// perftest and the OSU benchmarks, messages then share it, so that the measure is the transport and not the caches.
pub const SHARED_BYTES: usize = 128 << 10;

/// Room for a number of messages of one size.
pub struct Slots {
    buffer: Buffer,
    count: usize,
    /// How many of them have memory of their own.
    distinct: usize,
    size: usize,
    stride: usize,
    /// A piece of a message, while it is made or looked at.
    piece: Vec<u8>,
}

/// How many of `count` slots have memory of their own, and how far each is from the next in bytes.
fn layout(count: usize, size: usize, distinct: bool) -> (usize, usize) {
    let stride = size.next_multiple_of(ALIGNMENT);
    (if distinct { count } else { (SHARED_BYTES / stride.max(1)).max(1).min(count) }, stride)
}

impl Slots {
    /// Bytes that [`Slots::new`] takes.
    pub fn bytes_of(count: usize, size: usize, distinct: bool) -> u64 {
        let (distinct, stride) = layout(count, size, distinct);
        (distinct as u64).saturating_mul(stride as u64)
    }

    /// `count` slots of `size` bytes, all zero and backed by memory now. Unless they are `distinct`, those beyond
    /// [`SHARED_BYTES`] share the memory of earlier ones.
    pub fn new(count: usize, size: usize, distinct: bool) -> Slots {
        let (distinct, stride) = layout(count, size, distinct);
        let buffer = Buffer::new(distinct * stride);
        let slots = Slots { buffer, count, distinct, size, stride, piece: vec![0; size.min(PIECE)] };
        (0..distinct).for_each(|slot| slots.clear(slot));
        slots
    }

    /// Address of the first slot.
    pub fn address(&self) -> u64 {
        self.buffer.addr()
    }

    /// Length of all slots together in bytes.
    pub fn bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// How far a slot's first byte lies from the first slot's, in bytes.
    pub fn offset(&self, slot: usize) -> usize {
        slot % self.distinct.max(1) * self.stride
    }

    /// Number of slots.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Writes the pattern of message `number` into a slot.
    pub fn fill(&mut self, slot: usize, number: u64) {
        let (begin, size) = (self.offset(slot), self.size);
        for from in (0..size).step_by(PIECE) {
            let piece = &mut self.piece[..PIECE.min(size - from)];
            pattern::fill_part(piece, from, size, number);
            self.buffer.write(begin + from, piece);
        }
    }

    /// Zeroes a slot.
    pub fn clear(&self, slot: usize) {
        let zeroes = [0; 4096];
        for from in (0..self.size).step_by(zeroes.len()) {
            self.buffer.write(self.offset(slot) + from, &zeroes[..zeroes.len().min(self.size - from)]);
        }
    }

    /// Whether nothing has been written to a zeroed slot.
    pub fn is_clear(&mut self, slot: usize) -> bool {
        let (begin, size) = (self.offset(slot), self.size);
        (0..size).step_by(PIECE).all(|from| {
            let piece = &mut self.piece[..PIECE.min(size - from)];
            self.buffer.read(begin + from, piece);
            piece.iter().all(|&byte| byte == 0)
        })
    }

    /// Copies the first bytes of a slot.
    pub fn read(&self, slot: usize, out: &mut [u8]) {
        self.buffer.read(self.offset(slot), out);
    }

    /// The number of the message whose pattern the slot holds, or what is wrong with it; see [`pattern::number`].
    pub fn check(&mut self, slot: usize) -> Result<Option<u64>, Corrupt> {
        let (begin, size) = (self.offset(slot), self.size);
        let mut number = None;
        for from in (0..size).step_by(PIECE) {
            let piece = &mut self.piece[..PIECE.min(size - from)];
            self.buffer.read(begin + from, piece);
            if from == 0 {
                number = pattern::number(piece);
            }
            pattern::check_part(piece, from, size, number)?;
        }
        Ok(number)
    }
}

/// Refuses a plan that needs more bytes on this side than this host has, or than this process may have.
pub fn require(bytes: u64, plan: &Plan) -> anyhow::Result<()> {
    require_of(bytes, available_memory().unwrap_or(u64::MAX), plan)
}

fn require_of(bytes: u64, available: u64, plan: &Plan) -> anyhow::Result<()> {
    let limits = [("--size", true), ("--window", plan.window > 1), ("--peers", plan.peers > 1)];
    let limits: Vec<_> = limits.iter().filter(|(_, helps)| *helps).map(|(name, _)| *name).collect();
    let needed = format!("messages of {} bytes take {} of memory on this side", plan.size, shown(bytes));
    let helps = limits.join(" or ");
    if bytes > available {
        bail!("{needed}, and {} are available: reduce {helps}", shown(available));
    }
    // What is available to the host may be more than `ulimit -v` lets this process have.
    if usize::try_from(bytes).map_or(true, |bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_err()) {
        bail!("{needed}, more than this process may have: raise `ulimit -v`, or reduce {helps}");
    }
    Ok(())
}

/// `52 MB`, `13.4 GB`.
fn shown(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        mb if mb < 1000.0 => format!("{mb:.0} MB"),
        mb => format!("{:.1} GB", mb / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap() {
        let mut slots = Slots::new(4, 100, true);
        (0..4).for_each(|slot| slots.fill(slot, slot as u64));
        assert!((0..4).all(|slot| slots.check(slot) == Ok(Some(slot as u64))));
        assert_eq!((slots.count(), slots.offset(3), slots.bytes()), (4, 384, 512));
        slots.clear(1);
        assert!(slots.is_clear(1) && !slots.is_clear(0) && !slots.is_clear(2));
    }

    #[test]
    fn shared_slots_take_no_more_memory_than_they_may() {
        let slots = Slots::new(1000, 8192, false);
        assert_eq!((slots.count(), slots.bytes()), (1000, SHARED_BYTES as u64));
        assert_eq!(slots.offset(999), 999 % 16 * 8192);
        assert_eq!(Slots::new(3, 1 << 20, false).bytes(), 1 << 20);
        assert_eq!(Slots::new(3, 8, false).bytes(), 3 * 64);
    }

    #[test]
    fn a_message_of_several_pieces_is_whole() {
        let size = 2 * PIECE + 13;
        let mut slots = Slots::new(1, size, true);
        assert!(slots.is_clear(0));
        slots.fill(0, 7);
        assert_eq!(slots.check(0), Ok(Some(7)));
        slots.buffer.write(size - 1, &[0]);
        assert!(slots.check(0).is_err());
        slots.clear(0);
        slots.buffer.write(size - 1, &[1]);
        assert!(!slots.is_clear(0));
    }

    #[test]
    fn no_slots_take_no_memory() {
        assert_eq!((Slots::bytes_of(0, 1 << 30, true), Slots::bytes_of(0, 8, false)), (0, 0));
        assert_eq!(Slots::bytes_of(usize::MAX, 1 << 30, true), u64::MAX);
        assert_eq!(Slots::new(0, 1 << 30, true).count(), 0);
    }

    #[test]
    fn a_refusal_says_what_to_reduce() {
        let plan = |window, peers| Plan {
            test: super::super::plan::Test::Bandwidth,
            op: super::super::plan::Op::Write,
            size: 1 << 30,
            window,
            blocking: false,
            check: true,
            peers,
            timeout_ms: 1000,
        };
        let said = |bytes, available, plan| require_of(bytes, available, &plan).unwrap_err().to_string();
        assert_eq!(
            said(68 << 30, 4 << 30, plan(64, 1)),
            "messages of 1073741824 bytes take 73.0 GB of memory on this side, and 4.3 GB are available: reduce \
             --size or --window"
        );
        assert!(said(2, 1, plan(1, 1)).ends_with("reduce --size"));
        assert!(said(u64::MAX, u64::MAX, plan(1, 3)).ends_with("reduce --size or --peers"));
        assert!(require_of(1 << 20, 1 << 30, &plan(1, 1)).is_ok());
    }
}
