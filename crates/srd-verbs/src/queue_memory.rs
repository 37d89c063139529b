//! The device's queues in memory that programs write and read themselves, as libfabric's direct data path does: of a queue
//! pair a send queue, a receive queue and a doorbell of each, of a completion queue its entries and a doorbell. What the
//! entries say is in [`crate::descriptors`], who looks at the doorbells in [`crate::doorbells`].
//!
//! A doorbell is the number of entries that have been written since the beginning, modulo 2^16. Programs may write anything
//! anywhere: it is read once, and what does not fit ends the queue pair.

use crate::boundary::{Errno, Outcome};
use crate::descriptors::{self, COMPLETION_ENTRY, Data, RECEIVE_ENTRY, Receive, SEND_ENTRY};
use crate::event_queue::EventQueue;
use crate::layout::ibv_cq;
use crate::objects::Pointer;
use crate::pages::{self, Pages};
use crate::strict::MAX_BATCH;
use crate::write_trap::WriteTrap;
use srd_device::{
    Completion, CompletionOp, CqId, Device, DeviceError, MAX_RECV_SGE, Memory, QpInit, QpModify, QpState,
    RecvWr, SendData, SendWr, Sge,
};
use srd_wire::{Qpn, Status, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

// Why a queue pair ends.
const TOO_MANY: &str = "its doorbell was rung for more entries than its queue has free";
const FEWER: &str = "its doorbell was rung for fewer entries than before: two threads write to it without a lock \
                     (of libfabric, ask for FI_THREAD_SAFE)";
const OVERFULL: &str = "more sends are written than may be before its doorbell is rung, 16 (SRD_EFA_STRICT)";

/// Entries of a queue, of 16, 32 or 64 bytes, and before them a page for its doorbell, which only programs write to.
pub(crate) struct Queue {
    pages: Pages,
    /// Where the entries begin, in words.
    first: usize,
    count: u32,
    bell: Bell,
}

/// Whether writes to a doorbell are told of.
#[derive(Clone, Copy)]
enum Bell {
    /// They cannot be.
    Silent,
    Armed,
    /// One that was told of changes soon what stands there, to `coming` if that is known.
    Rings {
        before: u32,
        coming: u16,
    },
}

impl Queue {
    /// `count` is a power of two.
    fn new(count: u32, bytes: usize) -> Outcome<Queue> {
        let first = pages::page() / size_of::<u64>();
        let pages = Pages::new(first + count as usize * bytes / size_of::<u64>())?;
        Ok(Queue { pages, first, count, bell: Bell::Silent })
    }

    fn place(&self, entry_size: usize) -> Place {
        Place {
            buffer: self.word(0).as_ptr().cast(),
            entry_size: entry_size as u32,
            entries: self.count,
            doorbell: self.pages.words()[0].as_ptr().cast(),
        }
    }

    /// The 32 bits that the program has rung with.
    #[inline]
    fn doorbell(&self, order: Ordering) -> u32 {
        let [a, b, c, d, ..] = self.pages.words()[0].load(order).to_ne_bytes();
        u32::from_ne_bytes([a, b, c, d])
    }

    fn bell_page(&self) -> (*const u8, usize) {
        (self.pages.words().as_ptr().cast(), pages::page())
    }

    /// Writes to the doorbell will be told of, where that is possible.
    pub fn listen(&mut self, trap: &WriteTrap) {
        let (page, bytes) = self.bell_page();
        // Only a page that is there can be armed.
        self.pages.words()[0].store(0, Ordering::Relaxed);
        self.bell = match trap.add(page, bytes).and_then(|()| trap.arm(page, bytes)) {
            Ok(()) => Bell::Armed,
            Err(_) => Bell::Silent,
        };
    }

    /// The next write to the doorbell is told of. False if it cannot be, or if the last that was told of has not come yet: its
    /// writer needs the page open until it gets a core.
    pub fn arm(&mut self, trap: &WriteTrap) -> bool {
        match self.bell {
            Bell::Silent => return false,
            Bell::Armed => return true,
            Bell::Rings { before, .. } if self.doorbell(Ordering::Relaxed) == before => return false,
            Bell::Rings { .. } => {}
        }
        let (page, bytes) = self.bell_page();
        let armed = trap.arm(page, bytes).is_ok();
        self.bell = if armed { Bell::Armed } else { Bell::Silent };
        armed
    }

    /// Lets the write go on that was told of.
    fn let_ring(&mut self, trap: &WriteTrap, coming: Option<u16>) {
        let (page, bytes) = self.bell_page();
        let before = self.doorbell(Ordering::Relaxed);
        self.bell = Bell::Rings { before, coming: coming.unwrap_or(before as u16) };
        let _ = trap.release(page, bytes);
    }

    /// Whether that is its doorbell's page.
    fn rings_at(&self, at: usize) -> bool {
        let (page, bytes) = self.bell_page();
        (page.addr()..page.addr() + bytes).contains(&at)
    }

    /// The doorbell's count, as it will be in a moment if somebody is known to write it.
    #[inline]
    fn rung(&self) -> u16 {
        match (self.bell, self.doorbell(Ordering::Acquire)) {
            (Bell::Rings { before, coming }, now) if now == before => coming,
            (_, now) => now as u16,
        }
    }

    /// Whether a doorbell can have been rung with that after so many entries have been taken.
    #[inline]
    fn check(&self, rung: u16, taken: u16) -> Result<(), &'static str> {
        match (rung.wrapping_sub(taken), taken.wrapping_sub(rung)) {
            (more, _) if more as u32 <= self.count => Ok(()),
            (_, fewer) if fewer as u32 <= self.count => Err(FEWER),
            _ => Err(TOO_MANY),
        }
    }

    /// Writes are told of no more.
    pub fn be_silent(&mut self, trap: &WriteTrap) {
        if !matches!(self.bell, Bell::Silent) {
            let (page, bytes) = self.bell_page();
            let _ = trap.release(page, bytes);
            self.bell = Bell::Silent;
        }
    }

    /// The eight bytes at a place, in words of eight bytes.
    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.pages.words()[self.first + at]
    }

    #[inline]
    fn read<const BYTES: usize>(&self, index: u16) -> [u8; BYTES] {
        let first = (index as usize & (self.count as usize - 1)) * BYTES / 8;
        let mut entry = [0; BYTES];
        for (at, bytes) in entry.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.word(first + at).load(Ordering::Relaxed).to_ne_bytes());
        }
        entry
    }
}

/// What a program is told of a queue.
pub(crate) struct Place {
    pub buffer: *mut u8,
    pub entry_size: u32,
    pub entries: u32,
    pub doorbell: *mut u32,
}

/// The queues of a queue pair.
pub(crate) struct QpMemory {
    pub qpn: Qpn,
    sends: Queue,
    receives: Queue,
    recv_sge: usize,
    pub send_cq: CqId,
    pub recv_cq: CqId,
    /// Entries that have been taken.
    sent: u16,
    received: u16,
    /// Of those that have been taken, the last so many may have been taken before the doorbell was seen to say so.
    ahead: u16,
    /// The queue pair takes nothing any more, from now on.
    over: bool,
    strict: bool,
}

/// What the entries of a queue pair have led to, beside work of the device.
pub(crate) struct Taken {
    pub requests: u64,
    /// Work requests that complete at once, with a queue each.
    pub refused: Vec<(CqId, Completion)>,
    /// The program has rung for more than there is room for, or written rubbish where nothing can complete with an error.
    pub broken: Option<&'static str>,
}

/// What is to be done about an entry that the device did not take.
enum Refusal {
    /// It is looked at again.
    Later,
    Fail(Status),
    Broken,
}

impl QpMemory {
    /// Of a queue pair that was made so, with so many descriptors of receives.
    pub fn new(qpn: Qpn, init: &QpInit, receives: u32, strict: bool) -> Outcome<QpMemory> {
        Ok(QpMemory {
            qpn,
            sends: Queue::new(init.sq_depth, SEND_ENTRY)?,
            receives: Queue::new(receives, RECEIVE_ENTRY)?,
            recv_sge: (init.recv_sge as usize).clamp(1, MAX_RECV_SGE),
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            strict,
            sent: 0,
            received: 0,
            ahead: 0,
            over: false,
        })
    }

    pub fn send_queue(&self) -> Place {
        self.sends.place(SEND_ENTRY)
    }

    pub fn receive_queue(&self) -> Place {
        self.receives.place(RECEIVE_ENTRY)
    }

    /// Where sends are written. Nobody waits for receives to be seen at once: they are taken before packets are.
    pub fn urgent(&mut self) -> &mut Queue {
        &mut self.sends
    }

    /// Lets the write to its doorbell go on, if it is that which waits. What it says need not be waited for: whoever rings has
    /// written his entries.
    pub fn let_ring(&mut self, trap: &WriteTrap, at: usize) {
        if self.sends.rings_at(at) {
            let mut written = self.sent;
            while (written.wrapping_sub(self.sent) as u32) < self.sends.count
                && descriptors::is_written(&self.sends.read::<SEND_ENTRY>(written), self.phase_of(written))
            {
                written = written.wrapping_add(1);
            }
            self.ahead = written.wrapping_sub(self.sends.doorbell(Ordering::Relaxed) as u16);
            self.sends.let_ring(trap, Some(written));
        }
    }

    /// Whether a doorbell has been rung for what was not taken yet.
    #[inline]
    pub fn has_rung(&self) -> bool {
        let rung = self.sends.rung() != self.sent || self.receives.rung() != self.received;
        !self.over && (rung || self.is_overfull())
    }

    /// Whether more sends are written than may be without ringing. (Who rings before anybody looks is not caught.)
    fn is_overfull(&self) -> bool {
        if !self.strict || self.sends.count <= MAX_BATCH {
            return false;
        }
        let rung = self.sends.doorbell(Ordering::Acquire) as u16;
        let beyond = rung.wrapping_add(MAX_BATCH as u16);
        let entry = self.sends.read::<SEND_ENTRY>(beyond);
        std::sync::atomic::fence(Ordering::Acquire);
        // What is rung for later is no longer waiting.
        descriptors::is_written(&entry, self.phase_of(beyond))
            && self.sends.doorbell(Ordering::Relaxed) as u16 == rung
    }

    /// The phase of the round in which a send is written.
    fn phase_of(&self, index: u16) -> bool {
        index as u32 / self.sends.count % 2 == 1
    }

    /// Gives the device what doorbells have been rung for.
    pub fn take<M: Memory>(&mut self, device: &mut Device<M>, now: Time) -> Taken {
        let mut taken = Taken { requests: 0, refused: Vec::new(), broken: None };
        if self.over {
            return taken;
        }
        if self.is_overfull() {
            (self.over, taken.broken) = (true, Some(OVERFULL));
        } else {
            // Receives first: who posts one and then asks for the answer may have rung for both.
            taken.broken = self
                .take_receives(device, &mut taken)
                .and_then(|()| self.take_sends(device, now, &mut taken))
                .err();
            self.over = taken.broken.is_some();
        }
        if taken.broken.is_some() {
            let to_error = QpModify { state: Some(QpState::Err), ..QpModify::default() };
            let _ = device.modify_qp(now, self.qpn, to_error);
        }
        device.count_from_memory(taken.requests);
        taken.refused.iter().for_each(|(_, completion)| device.count_refused(self.qpn, completion.op));
        taken
    }

    fn take_sends<M: Memory>(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        taken: &mut Taken,
    ) -> Result<(), &'static str> {
        let rung = self.sends.rung();
        if rung != self.sent && self.sent.wrapping_sub(rung) <= self.ahead {
            return Ok(()); // it was rung for less than was written
        }
        self.sends.check(rung, self.sent)?;
        while self.sent != rung {
            let entry = self.sends.read::<SEND_ENTRY>(self.sent);
            let request = descriptors::request_of(&entry);
            let posted = match descriptors::send(&entry, self.phase_of(self.sent)) {
                Ok(_) if self.strict && !descriptors::is_signalled(&entry) => {
                    Err(Refusal::Fail(Status::LocalUnsupportedOp))
                }
                Ok(send) => post_send(device, now, self.qpn, request, &send),
                Err(status) => Err(Refusal::Fail(status)),
            };
            match posted {
                Ok(()) => taken.requests += 1,
                Err(Refusal::Later) => return Ok(()),
                Err(Refusal::Broken) => return Err(TOO_MANY),
                Err(Refusal::Fail(status)) => {
                    let op = descriptors::op_of(&entry);
                    taken.refused.push((self.send_cq, failed(request, op, self.qpn, status)));
                }
            }
            self.sent = self.sent.wrapping_add(1);
        }
        Ok(())
    }

    fn take_receives<M: Memory>(
        &mut self,
        device: &mut Device<M>,
        taken: &mut Taken,
    ) -> Result<(), &'static str> {
        let rung = self.receives.rung();
        self.receives.check(rung, self.received)?;
        while self.received != rung {
            let mut sges = [Sge::default(); MAX_RECV_SGE];
            let (mut count, mut whole) = (0, false);
            let (request, mut next) = (self.receive_at(self.received).request, self.received);
            while next != rung && count < self.recv_sge && !whole {
                let Receive { sge, first, last, .. } = self.receive_at(next);
                if first != (count == 0) {
                    break;
                }
                sges[count] = Sge { lkey: device.key_of_descriptor(sge.lkey.0), ..sge };
                (count, whole, next) = (count + 1, last, next.wrapping_add(1));
            }
            let posted = match whole {
                true => post_recv(device, self.qpn, request as u64, &sges[..count]),
                false => {
                    next = self.received.wrapping_add(1);
                    Err(Refusal::Fail(Status::LocalQpInternal))
                }
            };
            match posted {
                Ok(()) => taken.requests += 1,
                Err(Refusal::Later) => return Ok(()),
                Err(Refusal::Broken) => return Err(TOO_MANY),
                Err(Refusal::Fail(status)) => {
                    let completion = failed(request as u64, CompletionOp::Recv, self.qpn, status);
                    taken.refused.push((self.recv_cq, completion));
                }
            }
            self.received = next;
        }
        Ok(())
    }

    fn receive_at(&self, index: u16) -> Receive {
        descriptors::receive(&self.receives.read::<RECEIVE_ENTRY>(index))
    }
}

fn failed(request: u64, op: CompletionOp, qpn: Qpn, status: Status) -> Completion {
    Completion {
        wr_id: request,
        status,
        op,
        qpn,
        src_qpn: Qpn(0),
        src_ah: srd_device::AhNumber::NONE,
        src_gid: srd_wire::Gid::default(),
        byte_len: 0,
        imm: None,
        unsolicited: false,
        claimed: false,
    }
}

fn post_send<M: Memory>(
    device: &mut Device<M>,
    now: Time,
    qpn: Qpn,
    request: u64,
    send: &descriptors::Send,
) -> Result<(), Refusal> {
    let mut whole = [Sge::default(); srd_device::MAX_SEND_SGE];
    let data = match &send.data {
        Data::Inline(bytes, count) => SendData::Inline(&bytes[..*count]),
        Data::Sges(sges, count) => {
            for (to, sge) in whole.iter_mut().zip(&sges[..*count]) {
                *to = Sge { lkey: device.key_of_descriptor(sge.lkey.0), ..*sge };
            }
            SendData::Sges(&whole[..*count])
        }
    };
    let wr =
        SendWr { wr_id: request, op: send.op, ah: send.ah, dst_qpn: send.dst_qpn, qkey: send.qkey, data };
    match device.post_send(now, qpn, &wr) {
        Ok(()) => Ok(()),
        // Either the queue, and then the program has not waited for completions, or the transport.
        Err(DeviceError::Full(_)) if device.send_room(qpn) == Ok(0) => Err(Refusal::Broken),
        Err(DeviceError::Full(_)) => Err(Refusal::Later),
        Err(_) => Err(refusal_by_state(device, qpn, QpState::Rts, Status::LocalBadLength)),
    }
}

fn post_recv<M: Memory>(device: &mut Device<M>, qpn: Qpn, request: u64, sges: &[Sge]) -> Result<(), Refusal> {
    match device.post_recv(qpn, &RecvWr { wr_id: request, sges }) {
        Ok(()) => Ok(()),
        Err(DeviceError::Full(_)) => Err(Refusal::Broken),
        Err(_) => Err(refusal_by_state(device, qpn, QpState::Init, Status::LocalQpInternal)),
    }
}

/// Why the device did not take an entry, if it is not the queue: a queue pair in error flushes, one that is not ready yet leaves
/// the entry where it is, and otherwise the entry is wrong.
fn refusal_by_state<M: Memory>(device: &Device<M>, qpn: Qpn, ready: QpState, status: Status) -> Refusal {
    let before = |state: QpState| {
        matches!((state, ready), (QpState::Reset, _) | (QpState::Init | QpState::Rtr, QpState::Rts))
    };
    match device.query_qp(qpn).map(|info| info.state) {
        Ok(QpState::Err) => Refusal::Fail(Status::Flushed),
        Ok(state) if before(state) => Refusal::Later,
        Ok(_) => Refusal::Fail(status),
        Err(_) => Refusal::Broken,
    }
}

/// The entries of a completion queue.
pub(crate) struct CqMemory {
    pub id: CqId,
    entries: Queue,
    /// Entries that have been written.
    written: u32,
    /// The doorbell as it was last seen.
    seen: u32,
    /// The program wants to be told of the next entry.
    pub armed: Arc<AtomicBool>,
    told: Notice,
}

/// Tells the program that there is something in a completion queue, if it has a channel.
#[derive(Clone)]
pub(crate) struct Notice {
    pub target: Pointer<ibv_cq>,
    pub events: Option<Arc<EventQueue<Pointer<ibv_cq>>>>,
    /// Whether notices may still be entered; asked under the channel's lock.
    pub open: Arc<AtomicBool>,
    /// Those that the program was given, or will be.
    pub reported: Arc<AtomicU32>,
}

impl Notice {
    pub fn tell(&self) {
        if let Some(events) = &self.events {
            let count = || _ = self.reported.fetch_add(1, Ordering::Relaxed);
            events.push_if(self.target, || self.open.load(Ordering::Relaxed), count);
        }
    }
}

/// Of a completion queue's doorbell (`efa_io_regs_defs.h`).
const CONSUMED: u32 = 0xFFFF;
const ARM: u32 = 1 << 31;

impl CqMemory {
    /// `depth` is a power of two.
    pub fn new(id: CqId, depth: u32, told: Notice) -> Outcome<CqMemory> {
        if !depth.is_power_of_two() {
            return Err(Errno::INVALID);
        }
        Ok(CqMemory {
            id,
            entries: Queue::new(depth, COMPLETION_ENTRY)?,
            written: 0,
            seen: 0,
            armed: Arc::default(),
            told,
        })
    }

    pub fn place(&self) -> Place {
        self.entries.place(COMPLETION_ENTRY)
    }

    /// Its entries, if its doorbell may ask for a notice.
    pub fn urgent(&mut self) -> Option<&mut Queue> {
        self.told.events.as_ref().map(|_| &mut self.entries)
    }

    /// Lets the write to its doorbell go on, if it is that which waits.
    pub fn let_ring(&mut self, trap: &WriteTrap, at: usize) {
        if self.entries.rings_at(at) {
            self.entries.let_ring(trap, None);
        }
    }

    /// Whether its doorbell says something that was not looked at yet.
    pub fn has_rung(&self) -> bool {
        self.told.events.is_some() && self.entries.doorbell(Ordering::Relaxed) != self.seen
    }

    /// Writes the next entry, over what the program has not consumed if it has made the queue too short: what it has consumed nobody
    /// can tell. Its doorbell lags behind, since libfabric and libefa ring it only where they stop before the queue is empty.
    pub fn push(&mut self, completion: &Completion) {
        let round = self.written / self.entries.count;
        let entry = descriptors::completion(completion, round.is_multiple_of(2));
        let first = (self.written % self.entries.count) as usize * COMPLETION_ENTRY / 8;
        for (at, bytes) in entry.chunks_exact(8).enumerate().rev() {
            let word = u64::from_ne_bytes(bytes.try_into().expect("chunks of eight"));
            // The first word, which holds the phase, comes last.
            let order = if at == 0 { Ordering::Release } else { Ordering::Relaxed };
            self.entries.word(first + at).store(word, order);
        }
        // 2^32 is a multiple of two rounds, and of what the doorbell counts.
        self.written = self.written.wrapping_add(1);
    }

    /// After entries have been written, and now and then: the doorbell may ask for a notice.
    pub fn look(&mut self, pushed: bool) {
        let rung = self.entries.doorbell(Ordering::Acquire);
        if rung != self.seen {
            self.seen = rung;
            if rung & ARM != 0 {
                self.armed.store(true, Ordering::SeqCst);
                if rung & CONSUMED != self.written & CONSUMED {
                    return self.tell();
                }
            }
        }
        if pushed {
            self.tell();
        }
    }

    fn tell(&mut self) {
        if self.armed.swap(false, Ordering::SeqCst) {
            self.told.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doorbell_says_more_than_before_and_no_more_than_there_is_room_for() {
        let queue = Queue::new(8, SEND_ENTRY).unwrap();
        for taken in [0, 5, u16::MAX] {
            let check = |more: i16| queue.check(taken.wrapping_add_signed(more), taken);
            assert!((0..=8).all(|more| check(more) == Ok(())));
            assert!((-8..0).all(|more| check(more) == Err(FEWER)));
            assert!([-9, 9, i16::MAX, i16::MIN].iter().all(|&more| check(more) == Err(TOO_MANY)));
        }
    }
}
