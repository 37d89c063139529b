//! The sending end: a lane to one endpoint of this host.

use crate::address::Address;
use crate::layout::{FIRST_SENDER, GENERATIONS, State};
use crate::loans::Lent;
use crate::process_identity::ProcessIdentity;
use crate::reason::{CopyError, Damage, NoCopy, NoLane, SendError};
use crate::ring::Writer;
use crate::segment::Segment;
use crate::sync::Ordering;
use crate::sys;
use std::io;
use std::path::Path;

/// Bytes of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Iov {
    /// Address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Who sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub address: Address,
    pub epoch: u32,
    pub process: ProcessIdentity,
}

/// Sends records to one endpoint, in order, and copies between its memory and this process's. Belongs to the process that
/// connected it. Dropped, it tells the peer that no more will come.
#[derive(Debug)]
pub struct Lane {
    segment: Segment,
    writer: Writer,
    index: u16,
    generation: u32,
    copy: Result<(), NoCopy>,
    lent: Lent,
    origin: ProcessIdentity,
}

impl Lane {
    /// Claims a lane of the endpoint `to`.
    pub(crate) fn connect(dir: &Path, from: &Origin, to: &Address) -> Result<Lane, NoLane> {
        let segment = Segment::find(dir, to, &from.process)?;
        if segment.signals().closed.load(Ordering::Acquire) != 0 {
            return Err(NoLane::Closing);
        }
        let (index, generation) = claim(&segment, from)?;
        // From here on the lock is held: dropping the segment gives the lane back, for its state is still free.
        let ring = segment.ring_of_sender(index)?;
        let writer = Writer::new(ring, 0, segment.header.shape.ring_bytes as usize);
        let slot = segment.slot(index);
        let ip = u128::from_be_bytes(from.address.ip);
        slot.epoch.store(from.epoch, Ordering::Relaxed);
        let endpoint = u32::from(from.address.port) << 16 | u32::from(from.address.qpn);
        slot.endpoint.store(endpoint, Ordering::Relaxed);
        slot.pid.store(from.process.pid, Ordering::Relaxed);
        slot.started.store(from.process.started, Ordering::Relaxed);
        slot.namespace.store(from.process.namespace, Ordering::Relaxed);
        slot.ip[0].store(ip as u64, Ordering::Relaxed);
        slot.ip[1].store((ip >> 64) as u64, Ordering::Relaxed);
        slot.state.store(State::Open.with(generation), Ordering::SeqCst);
        let copy = probe(&segment, from);
        let lent = Lent::new(segment.loans());
        let lane = Lane { segment, writer, index, generation, copy, lent, origin: from.process };
        lane.tell();
        Ok(lane)
    }

    /// The endpoint it leads to.
    pub fn peer(&self) -> Address {
        self.segment.header.address
    }

    /// The incarnation of that endpoint.
    pub fn peer_epoch(&self) -> u32 {
        self.segment.header.epoch
    }

    /// Whether that endpoint is meant by whoever names its address without its incarnation.
    pub fn peer_is_well_known(&self) -> bool {
        self.segment.header.well_known
    }

    /// The process of that endpoint, by its own number.
    pub fn peer_pid(&self) -> u32 {
        self.segment.header.process.pid
    }

    /// The longest record, in bytes.
    #[inline]
    pub fn max_record(&self) -> usize {
        self.writer.max_record()
    }

    /// Sends `parts` as one record. [`SendError::Busy`]: nothing was sent, there is no room now.
    ///
    /// Then [`Lane::peer_asleep`] says whether the peer must be woken.
    #[inline]
    pub fn send(&mut self, parts: &[&[u8]]) -> Result<(), SendError> {
        self.may_send()?;
        self.writer.push(&self.segment.slot(self.index).head.0, parts)?;
        self.tell();
        self.writer.look_ahead();
        Ok(())
    }

    /// Sends a header and bytes from anywhere in memory as one record; otherwise as [`Lane::send`].
    ///
    /// # Safety
    ///
    /// All of `payload` can be read.
    #[allow(unsafe_code)]
    #[inline]
    pub unsafe fn send_from(&mut self, header: &[u8], payload: &[Iov]) -> Result<(), SendError> {
        self.may_send()?;
        // SAFETY: by the caller's promise.
        unsafe { self.writer.push_from(&self.segment.slot(self.index).head.0, header, payload) }?;
        self.tell();
        self.writer.look_ahead();
        Ok(())
    }

    #[inline]
    fn may_send(&self) -> Result<(), SendError> {
        if self.peer_closed() {
            return Err(SendError::PeerClosed);
        }
        if self.segment.slot(self.index).state.load(Ordering::Relaxed) != State::Open.with(self.generation) {
            return Err(SendError::Damaged(Damage::Refused));
        }
        Ok(())
    }

    /// Sees to it that the owner looks into this lane. The load is not older than the record (see `inbox.rs`).
    #[inline]
    fn tell(&self) {
        let (word, bit) = (usize::from(self.index / 64), 1 << (self.index % 64));
        let news = &self.segment.signals().news[word];
        if news.load(Ordering::SeqCst) & bit == 0 {
            news.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Whether the peer sleeps and has to be woken by other means. True after a send: the peer may not see the record
    /// until it is woken. False after a send: the peer sees it before it falls asleep.
    #[inline]
    pub fn peer_asleep(&self) -> bool {
        self.segment.signals().asleep.load(Ordering::SeqCst) != 0
    }

    /// Whether the peer has closed its endpoint. Costs a load; a peer that was killed does not say so.
    #[inline]
    pub fn peer_closed(&self) -> bool {
        self.segment.signals().closed.load(Ordering::Acquire) != 0
    }

    /// Whether the peer's process is there and its endpoint open. Costs a system call or two: ask now and then, not with
    /// every message.
    pub fn peer_alive(&self) -> bool {
        if self.peer_closed() || !self.segment.owner_lives().unwrap_or(true) {
            return false;
        }
        // The lock may be a forked child's.
        match self.copy {
            Ok(()) => !matches!(token(&self.segment), Err(CopyError::PeerGone)),
            Err(_) => !self.segment.header.process.has_ended(&self.origin),
        }
    }

    /// Whether [`Lane::read`] and [`Lane::write`] work with this peer.
    pub fn can_copy(&self) -> Result<(), NoCopy> {
        self.copy
    }

    /// Copies `len` bytes at `remote` in the peer's process, which it lends by `key`, to `local` in this one.
    ///
    /// The bytes come from the process that owns the peer's endpoint or not at all, even if it dies meanwhile and another
    /// process gets its number; and all of them were lent until they had been copied.
    ///
    /// # Safety
    ///
    /// `local` is good for `len` bytes, which nothing else of this process uses meanwhile. (What is not mapped is an
    /// error, not a crash.)
    #[allow(unsafe_code)]
    pub unsafe fn read(&self, key: u32, remote: u64, local: u64, len: u64) -> Result<(), CopyError> {
        self.copy.map_err(CopyError::NoCopy)?;
        let owner = &self.segment.header;
        let copy = || {
            pieces(remote, local, len, |remote, local, len| {
                // SAFETY: a part of `local`, by the caller's promise.
                match unsafe { sys::read_process(owner.process.pid, owner.token_at, remote, local, len) } {
                    Ok((got, token)) if token == owner.token => Ok(got),
                    Ok(_) => Err(CopyError::PeerGone),
                    Err(e) => Err(self.named(e)),
                }
            })
        };
        self.lent.during(key, copy).unwrap_or(Err(CopyError::NotLent))
    }

    /// Copies `len` bytes at `local` in this process to `remote` in the peer's.
    ///
    /// # Safety
    ///
    /// `local` can be read, `len` bytes, and the peer's program expects these bytes at `remote`.
    #[allow(unsafe_code)]
    pub unsafe fn write(&self, remote: u64, local: u64, len: u64) -> Result<(), CopyError> {
        self.copy.map_err(CopyError::NoCopy)?;
        token(&self.segment)?;
        pieces(remote, local, len, |remote, local, len| {
            // SAFETY: parts of both ranges, by the caller's promise.
            unsafe { sys::write_process(self.segment.header.process.pid, remote, local, len) }
                .map_err(|e| self.named(e))
        })
    }

    /// What a failed copy means. An address that is not mapped reads the same whether the program or its process went.
    fn named(&self, error: io::Error) -> CopyError {
        match error.raw_os_error() {
            Some(libc::ESRCH) => CopyError::PeerGone,
            Some(libc::EFAULT) => match token(&self.segment) {
                Err(CopyError::PeerGone) => CopyError::PeerGone,
                _ => CopyError::Fault,
            },
            Some(libc::EPERM) => CopyError::NoCopy(NoCopy::NotPermitted),
            _ => CopyError::System(error),
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // A forked child drops its copy; the lane is the parent's.
        if self.origin.pid != std::process::id() {
            return;
        }
        let state = &self.segment.slot(self.index).state;
        let (open, closing) = (State::Open.with(self.generation), State::Closing.with(self.generation));
        if state.compare_exchange(open, closing, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            self.tell();
        }
    }
}

/// Takes the lock of a lane that is free. Answers which, and its generation. A sender killed from here on leaves a free
/// lane whose lock is free again.
fn claim(segment: &Segment, from: &Origin) -> Result<(u16, u32), NoLane> {
    let lanes = segment.header.shape.lanes;
    // Senders that come at the same time begin at different lanes.
    let first = (from.process.pid ^ u32::from(from.address.qpn)) % u32::from(lanes);
    for turn in 0..u32::from(lanes) {
        let index = ((first + turn) % u32::from(lanes)) as u16;
        let is_free = || match State::of(segment.slot(index).state.load(Ordering::Acquire)) {
            (State::Free, generation) => Some(generation & GENERATIONS),
            _ => None,
        };
        let byte = FIRST_SENDER + u64::from(index);
        if is_free().is_none() || !sys::lock(&segment.file, byte).map_err(NoLane::system("lock a lane"))? {
            continue;
        }
        if let Some(generation) = is_free() {
            return Ok((index, generation));
        }
        sys::unlock(&segment.file, byte).map_err(NoLane::system("unlock a lane"))?;
    }
    Err(NoLane::Full { lanes })
}

/// Whether copies between this process and the owner's work: by one.
fn probe(segment: &Segment, from: &Origin) -> Result<(), NoCopy> {
    if segment.header.process.namespace != from.process.namespace {
        return Err(NoCopy::OtherPidNamespace);
    }
    match token(segment) {
        Ok(()) => Ok(()),
        Err(CopyError::System(e)) if e.raw_os_error() == Some(libc::EPERM) => Err(NoCopy::NotPermitted),
        Err(CopyError::System(e)) if e.raw_os_error() == Some(libc::ENOSYS) => Err(NoCopy::NotThere),
        Err(_) => Err(NoCopy::OtherProcess),
    }
}

/// Whether the owner's number still is the process that owns the segment: its memory holds the token.
#[allow(unsafe_code)]
fn token(segment: &Segment) -> Result<(), CopyError> {
    let owner = &segment.header;
    // SAFETY: no bytes but the token.
    match unsafe { sys::read_process(owner.process.pid, owner.token_at, 0, 0, 0) } {
        Ok((_, token)) if token == owner.token => Ok(()),
        Ok(_) => Err(CopyError::PeerGone),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ESRCH | libc::EFAULT)) => Err(CopyError::PeerGone),
        Err(e) => Err(CopyError::System(e)),
    }
}

/// Copies all of a range with a call that may copy less than asked for.
fn pieces(
    remote: u64,
    local: u64,
    len: u64,
    mut copy: impl FnMut(u64, u64, usize) -> Result<usize, CopyError>,
) -> Result<(), CopyError> {
    let overflows = |start: u64| start.checked_add(len).is_none();
    let all = usize::try_from(len).map_err(|_| CopyError::Fault)?;
    if overflows(remote) || overflows(local) {
        return Err(CopyError::Fault);
    }
    let mut done = 0;
    while done < all {
        // A call copies less than 2 GiB (MAX_RW_COUNT of the kernel).
        let step = (all - done).min(1 << 30);
        let got = copy(remote + done as u64, local + done as u64, step)?;
        if got == 0 {
            return Err(CopyError::Fault);
        }
        done += got.min(step);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_goes_on_where_a_call_stopped() {
        let mut calls = Vec::new();
        pieces(1000, 2000, 25, |remote, local, len| {
            calls.push((remote, local, len));
            Ok(10.min(len))
        })
        .unwrap();
        assert_eq!(calls, [(1000, 2000, 25), (1010, 2010, 15), (1020, 2020, 5)]);
    }

    #[test]
    fn a_copy_that_gets_nowhere_or_beyond_the_address_space_is_a_fault() {
        assert!(matches!(pieces(0, 0, 5, |_, _, _| Ok(0)), Err(CopyError::Fault)));
        let never = |_, _, _| unreachable!("nothing is copied");
        assert!(matches!(pieces(u64::MAX, 0, 5, never), Err(CopyError::Fault)));
        assert!(matches!(pieces(0, u64::MAX, 5, never), Err(CopyError::Fault)));
    }
}
