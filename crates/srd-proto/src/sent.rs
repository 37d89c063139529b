//! What has been sent and is not acknowledged: one record per PSN in a ring, on two intrusive lists: all transmissions
//! in sending order (for timers), and those of each path in sending order (for the FIFO rule). No record is copied and
//! nothing is allocated once the ring has grown to the window in use.

use crate::delivery::{Deliveries, DeliveryMark};
use crate::paths::{NO_PSN, PathTable};
use crate::psn_bits::PsnBits;
use srd_wire::{PathId, Psn, Time, WINDOW_PACKETS};

/// What became of a PSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SentState {
    /// On its way.
    InFlight,
    /// Found lost; waits to be retransmitted.
    Lost,
    /// Acknowledged, or not in use.
    Acked,
}

/// One packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentPacket {
    pub(crate) state: SentState,
    /// Number of the last transmission.
    pub(crate) tx_count: u8,
    /// Path of the last transmission.
    pub(crate) path: PathId,
    /// Path whose silence caused the last transmission: to blame if that one is answered.
    pub(crate) blamed: Option<PathId>,
    /// Slot of the message.
    pub(crate) message: u32,
    /// Offset in the message.
    pub(crate) offset: u32,
    /// Payload bytes.
    pub(crate) len: u16,
    /// Bytes that count as in flight.
    pub(crate) bytes: u16,
    /// Time of the last transmission.
    pub(crate) sent: Time,
    /// Transmission number within the context.
    pub(crate) order: u64,
    /// What had been delivered when it left, and whether the program's pace shows in that.
    pub(crate) mark: DeliveryMark,
    pub(crate) app_limited: bool,
    path_prev: u32,
    path_next: u32,
    older: u32,
    newer: u32,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Slot of the message.
    pub(crate) message: u32,
    /// Offset in the message.
    pub(crate) offset: u32,
    /// Payload bytes.
    pub(crate) len: u16,
    /// Bytes that count as in flight.
    pub(crate) bytes: u16,
}

/// What settling needs to know of a packet, or of some that left as one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) count: u32,
    pub(crate) tx_count: u8,
    pub(crate) path: PathId,
    /// One that was sent before it on its path is still outstanding.
    pub(crate) overtook: bool,
    /// Of each.
    pub(crate) bytes: u16,
    pub(crate) message: u32,
    pub(crate) sent: Time,
    /// Of the last.
    pub(crate) order: u64,
}

const BLANK: SentPacket = SentPacket {
    state: SentState::Acked,
    tx_count: 0,
    path: PathId(0),
    blamed: None,
    message: 0,
    offset: 0,
    len: 0,
    bytes: 0,
    sent: Time(0),
    order: 0,
    mark: DeliveryMark::NONE,
    app_limited: false,
    path_prev: NO_PSN,
    path_next: NO_PSN,
    older: NO_PSN,
    newer: NO_PSN,
};

const _: () = assert!(size_of::<SentPacket>() == 64, "one cache line a record");

/// PSNs that only refusals and the like may take: each side's can wait for the other's.
const CONTROL_RESERVE: u32 = 256;

/// Smallest ring.
const MIN_RING: usize = 16;
/// A ring that is too small grows by this: 16, 64, 256 records and so on. Whoever has needed a size once needs it again, so
/// that nothing is allocated later; a simulator's thousands of hosts mostly stay with 4 or 16 KiB.
const RING_GROWTH: usize = 4;

/// See the module.
pub(crate) struct SentPackets {
    ring: Vec<SentPacket>,
    acked: PsnBits,
    /// Lowest PSN not acknowledged.
    una: Psn,
    /// Next PSN to be given out.
    next: Psn,
    oldest: u32,
    newest: u32,
    order: u64,
    inflight_bytes: u64,
    pub(crate) deliveries: Deliveries,
    /// Transmissions before this time have aged: bytes of those still in flight, and the oldest that has not aged.
    aged_until: Time,
    aged_bytes: u64,
    youth: u32,
}

impl SentPackets {
    pub(crate) fn new(first: Psn) -> SentPackets {
        SentPackets {
            ring: Vec::new(),
            acked: PsnBits::new(),
            una: first,
            next: first,
            oldest: NO_PSN,
            newest: NO_PSN,
            order: 0,
            inflight_bytes: 0,
            deliveries: Deliveries::new(),
            aged_until: Time(0),
            aged_bytes: 0,
            youth: NO_PSN,
        }
    }

    /// The next PSN to be given out.
    pub(crate) fn next(&self) -> Psn {
        self.next
    }

    /// Number of the next transmission.
    pub(crate) fn next_order(&self) -> u64 {
        self.order
    }

    /// The program has nothing more to send for now.
    pub(crate) fn note_dry(&mut self) {
        self.deliveries.note_dry(self.order);
    }

    /// The path of the newest outstanding transmission.
    pub(crate) fn newest_path(&self) -> Option<PathId> {
        (self.newest != NO_PSN).then(|| self.record(Psn(self.newest)).path)
    }

    /// The outstanding transmission that follows the one of `packet`.
    pub(crate) fn newer(&self, packet: &SentPacket) -> Option<Psn> {
        (packet.newer != NO_PSN).then_some(Psn(packet.newer))
    }

    pub(crate) fn una(&self) -> Psn {
        self.una
    }

    /// PSNs given out and not acknowledged, those beyond a gap included.
    #[inline]
    pub(crate) fn span(&self) -> u32 {
        self.next.offset_from(self.una)
    }

    /// Whether no PSN is left in the window but those kept for the transport's own messages.
    #[inline]
    pub(crate) fn window_full(&self) -> bool {
        self.room() == 0
    }

    /// PSNs that are left in all.
    pub(crate) fn numbers_left(&self) -> u32 {
        WINDOW_PACKETS.saturating_sub(self.span())
    }

    pub(crate) fn inflight_bytes(&self) -> u64 {
        self.inflight_bytes
    }

    /// Bytes in flight that were sent at `since` or later. `since` does not go back.
    pub(crate) fn young_bytes(&mut self, since: Time) -> u64 {
        if since > self.aged_until {
            self.aged_until = since;
            while self.youth != NO_PSN {
                let packet = self.at(self.youth);
                if packet.sent >= since {
                    break;
                }
                let (bytes, newer) = (packet.bytes as u64, packet.newer);
                self.aged_bytes += bytes;
                self.youth = newer;
            }
        }
        self.inflight_bytes - self.aged_bytes
    }

    /// The PSN whose last transmission is the oldest.
    pub(crate) fn oldest(&self) -> Option<Psn> {
        (self.oldest != NO_PSN).then_some(Psn(self.oldest))
    }

    fn index(&self, psn: Psn) -> usize {
        psn.0 as usize & (self.ring.len() - 1)
    }

    #[inline]
    fn at(&mut self, psn: u32) -> &mut SentPacket {
        let mask = self.ring.len() - 1;
        &mut self.ring[psn as usize & mask]
    }

    /// The record of `psn` if it was given out and is not acknowledged.
    pub(crate) fn get(&self, psn: Psn) -> Option<&SentPacket> {
        if psn.offset_from(self.una) >= self.span() {
            return None;
        }
        let packet = &self.ring[self.index(psn)];
        (packet.state != SentState::Acked).then_some(packet)
    }

    /// The record of `psn`, which was settled since the last transmission.
    pub(crate) fn record(&self, psn: Psn) -> &SentPacket {
        &self.ring[self.index(psn)]
    }

    /// PSNs that packets of messages may still take.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        (WINDOW_PACKETS - CONTROL_RESERVE).saturating_sub(self.span())
    }

    /// Gives out the next `count` PSNs for as many packets that leave now, one behind the other on `path`, and differ in
    /// nothing but their offsets; `first` is the first of them. The first PSN.
    #[inline]
    pub(crate) fn first_transmissions(
        &mut self,
        now: Time,
        path: PathId,
        first: Load,
        count: u32,
        paths: &mut PathTable,
    ) -> Psn {
        debug_assert!(self.numbers_left() >= count);
        while self.ring.len() < (self.span() + count) as usize {
            self.grow();
        }
        let psn = self.next;
        self.next = psn.plus(count);
        let Load { message, offset, len, bytes } = first;
        self.link(now, psn, count, SentPacket { message, offset, len, bytes, path, ..BLANK }, paths);
        psn
    }

    /// A lost packet leaves again now.
    pub(crate) fn retransmission(
        &mut self,
        now: Time,
        psn: Psn,
        path: PathId,
        paths: &mut PathTable,
    ) -> SentPacket {
        let packet = *self.at(psn.0);
        debug_assert_eq!(packet.state, SentState::Lost);
        let tx_count = (packet.tx_count + 1).min(254);
        self.link(now, psn, 1, SentPacket { tx_count, path, ..packet }, paths);
        *self.at(psn.0)
    }

    /// The payload of a lost packet is not sent again.
    pub(crate) fn drop_payload(&mut self, psn: Psn) {
        let packet = self.at(psn.0);
        packet.bytes -= packet.len.min(packet.bytes);
        packet.len = 0;
    }

    /// Whether `psn` is on its way.
    pub(crate) fn is_in_flight(&self, psn: Psn) -> bool {
        self.get(psn).is_some_and(|packet| packet.state == SentState::InFlight)
    }

    /// Whether `psn` waits to be retransmitted.
    pub(crate) fn is_lost(&self, psn: Psn) -> bool {
        self.get(psn).is_some_and(|packet| packet.state == SentState::Lost)
    }

    /// Notes that `count` packets from `first` on leave now, one behind the other, of which that is the first.
    #[inline]
    fn link(&mut self, now: Time, first: Psn, count: u32, packet: SentPacket, paths: &mut PathTable) {
        let SentPacket { path, offset, len, bytes, .. } = packet;
        let order = self.order;
        self.order += count as u64;
        let newest = self.newest;
        let last = first.plus(count - 1);
        let slot = paths.get_mut(path);
        slot.in_flight += count as u16;
        let path_tail = slot.tail;
        slot.tail = last.0;
        if path_tail == NO_PSN {
            slot.head = first.0;
        }
        if newest == NO_PSN {
            self.deliveries.note_idle(now);
        }
        let (mark, app_limited) = self.deliveries.mark();
        let packet = SentPacket { state: SentState::InFlight, sent: now, mark, app_limited, ..packet };
        let (mut path_prev, mut older) = (path_tail, newest);
        for i in 0..count {
            let psn = first.plus(i);
            let next = if psn == last { NO_PSN } else { psn.plus(1).0 };
            *self.at(psn.0) = SentPacket {
                offset: offset + i * len as u32,
                order: order + i as u64,
                path_prev,
                path_next: next,
                older,
                newer: next,
                ..packet
            };
            (path_prev, older) = (psn.0, psn.0);
        }
        let bytes = bytes as u64 * count as u64;
        if path_tail != NO_PSN {
            self.at(path_tail).path_next = first.0;
        }
        if newest != NO_PSN {
            self.at(newest).newer = first.0;
        } else {
            self.oldest = first.0;
        }
        self.newest = last.0;
        if self.youth == NO_PSN {
            self.youth = first.0;
        }
        self.inflight_bytes += bytes;
        self.deliveries.sent_bytes += bytes;
    }

    /// How many packets from `psn` on, at most `most`, are in flight as one, as they left: on one path, at one time, of one
    /// message and size, with nothing between them. At least one.
    #[inline]
    fn run(&mut self, psn: Psn, most: u32) -> u32 {
        let first = *self.at(psn.0);
        let mut count = 1;
        while count < most {
            let before = psn.plus(count - 1).0;
            let packet = self.at(psn.plus(count).0);
            let goes_on = packet.state == SentState::InFlight
                && packet.older == before
                && packet.path_prev == before
                && packet.message == first.message
                && packet.bytes == first.bytes
                && packet.tx_count == first.tx_count
                && packet.sent == first.sent;
            if !goes_on {
                break;
            }
            count += 1;
        }
        count
    }

    /// Takes the run of `count` packets from `first` on out of what is in flight.
    #[inline]
    fn unlink(&mut self, first: Psn, count: u32, paths: &mut PathTable) {
        let SentPacket { path, path_prev, older, bytes, sent, .. } = *self.at(first.0);
        let last = first.plus(count - 1);
        let SentPacket { path_next, newer, .. } = *self.at(last.0);
        let bytes = bytes as u64 * count as u64;
        let slot = paths.get_mut(path);
        slot.in_flight -= count as u16;
        if path_prev == NO_PSN {
            slot.head = path_next;
        } else {
            self.at(path_prev).path_next = path_next;
        }
        if path_next == NO_PSN {
            slot.tail = path_prev;
        } else {
            self.at(path_next).path_prev = path_prev;
        }
        if older != NO_PSN {
            self.at(older).newer = newer;
        } else {
            self.oldest = newer;
        }
        if newer != NO_PSN {
            self.at(newer).older = older;
        } else {
            self.newest = older;
        }
        // All of a run have aged, or none.
        if first.0 == self.youth {
            self.youth = newer;
        } else if sent < self.aged_until {
            self.aged_bytes -= bytes;
        }
        self.inflight_bytes -= bytes;
    }

    /// `psn` is lost: it is in flight no more. The caller queues it.
    pub(crate) fn lose(&mut self, psn: Psn, paths: &mut PathTable) -> SentPacket {
        self.unlink(psn, 1, paths);
        let packet = self.at(psn.0);
        packet.state = SentState::Lost;
        *packet
    }

    /// Names the path to blame if the next transmission of the lost `psn` is answered.
    pub(crate) fn blame(&mut self, psn: Psn, path: PathId) {
        self.at(psn.0).blamed = Some(path);
    }

    /// `psn` is acknowledged, and `most` packets from there on are; what it was if it was not before. Those that left as one
    /// are settled as one.
    #[inline]
    pub(crate) fn acknowledge(&mut self, psn: Psn, most: u32, paths: &mut PathTable) -> Option<Settled> {
        let ahead = psn.offset_from(self.una);
        if ahead >= self.span() {
            return None;
        }
        let SentPacket { state, tx_count, path, bytes, message, sent, order, path_prev, .. } =
            *self.at(psn.0);
        let in_flight = state == SentState::InFlight;
        let overtook = in_flight && path_prev != NO_PSN;
        let count = match state {
            SentState::Acked => return None,
            SentState::InFlight if !overtook => self.run(psn, most.min(self.span() - ahead)),
            SentState::InFlight | SentState::Lost => 1,
        };
        if in_flight {
            self.unlink(psn, count, paths);
        }
        for i in 0..count {
            self.at(psn.plus(i).0).state = SentState::Acked;
        }
        for from in (0..count).step_by(64) {
            self.acked.insert_run(psn.plus(from), (count - from).min(64));
        }
        let order = order + (count - 1) as u64;
        Some(Settled { count, tx_count, path, overtook, bytes, message, sent, order })
    }

    /// Moves the lower edge over everything that is acknowledged.
    pub(crate) fn advance(&mut self) {
        while self.una != self.next {
            let run = self.acked.run_at(self.una).min(self.span());
            if run == 0 {
                break;
            }
            self.acked.clear_run(self.una, run);
            self.una = self.una.plus(run);
        }
    }

    /// Which of the 64 PSNs from `psn` on are acknowledged already.
    pub(crate) fn acked_word(&self, psn: Psn) -> u64 {
        self.acked.word_at(psn)
    }

    fn grow(&mut self) {
        let size = (self.ring.len() * RING_GROWTH).clamp(MIN_RING, WINDOW_PACKETS as usize);
        let old = std::mem::replace(&mut self.ring, vec![BLANK; size]);
        for i in 0..self.span() {
            let psn = self.una.plus(i);
            *self.at(psn.0) = old[psn.0 as usize & (old.len() - 1)];
        }
    }

    /// Gives the ring back; only when nothing is outstanding.
    pub(crate) fn release(&mut self) {
        if self.span() == 0 && self.ring.len() > MIN_RING {
            self.ring = Vec::new();
        }
    }
}
