//! The memory that an AF_XDP socket shares with the kernel: frames, and the rings in which they are handed over
//! (the kernel's Documentation/networking/af_xdp.rst; linux/if_xdp.h).

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::io;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

const RIGHTS: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

/// Memory that is unmapped when it is dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: NonZeroUsize,
}

// SAFETY: addresses and a length; who uses what is there says why he may.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory that stays the same for parent and kernel when a process forks.
    pub fn new(len: NonZeroUsize) -> io::Result<Mapping> {
        let kind = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: a new mapping.
        let start = unsafe { mmap_anonymous(None, len, RIGHTS, kind) }?.cast();
        Ok(Mapping { start, len })
    }

    fn of(fd: impl AsFd, len: NonZeroUsize, at: u64) -> io::Result<Mapping> {
        let kind = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: a new mapping.
        let start = unsafe { mmap(None, len, RIGHTS, kind, fd, at as libc::off_t) }?.cast();
        Ok(Mapping { start, len })
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// How long it is.
    pub fn len(&self) -> usize {
        self.len.get()
    }

    /// The bytes at a place, if they lie in it.
    pub fn part(&self, at: u64, len: usize) -> Option<NonNull<[u8]>> {
        let at = usize::try_from(at).ok()?;
        let fits = at.checked_add(len).is_some_and(|end| end <= self.len.get());
        // SAFETY: it lies in the mapping, as has just been seen.
        fits.then(|| NonNull::slice_from_raw_parts(unsafe { self.start.add(at) }, len))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that was made, which nobody uses any more.
        let _ = unsafe { munmap(self.start.cast(), self.len.get()) };
    }
}

/// One of the socket's rings.
#[derive(Debug)]
struct Ring<T> {
    memory: Mapping,
    offsets: libc::xdp_ring_offset,
    entries: u32,
    /// How far we are.
    ours: u32,
    of: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// The one of so many entries, a power of two, that the socket has at that place.
    fn new(fd: impl AsFd, offsets: libc::xdp_ring_offset, entries: u32, at: u64) -> io::Result<Ring<T>> {
        let len = offsets.desc as usize + entries as usize * size_of::<T>();
        let len = NonZeroUsize::new(len).ok_or(io::ErrorKind::InvalidInput)?;
        let inside = |at: u64| at as usize + size_of::<AtomicU32>() <= len.get();
        if ![offsets.producer, offsets.consumer, offsets.flags].into_iter().all(inside) {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        Ok(Ring { memory: Mapping::of(fd, len, at)?, offsets, entries, ours: 0, of: PhantomData })
    }

    fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: it lies in the mapping, aligned, as the kernel has said and `new` has seen; both sides use it as an atomic.
        unsafe { self.memory.start.add(at as usize).cast().as_ref() }
    }

    fn entry(&self) -> NonNull<T> {
        let place = (self.ours & (self.entries - 1)) as usize;
        // SAFETY: below the number of entries, for all of which there is room.
        unsafe { self.memory.start.add(self.offsets.desc as usize).cast::<T>().add(place) }
    }
}

/// A ring from which we take.
#[derive(Debug)]
pub struct Incoming<T>(Ring<T>);

impl<T: Copy> Incoming<T> {
    /// See [`Outgoing::new`].
    pub fn new(
        fd: impl AsFd,
        offsets: libc::xdp_ring_offset,
        entries: u32,
        at: u64,
    ) -> io::Result<Incoming<T>> {
        Ring::new(fd, offsets, entries, at).map(Incoming)
    }

    /// The oldest entry.
    #[inline]
    pub fn first(&self) -> Option<T> {
        let ring = &self.0;
        let theirs = ring.word(ring.offsets.producer).load(Ordering::Acquire);
        // SAFETY: the kernel has written it before it said so, and leaves it alone until we do.
        (theirs != ring.ours).then(|| unsafe { ring.entry().read() })
    }

    /// The oldest entry has been taken.
    #[inline]
    pub fn advance(&mut self) {
        let ring = &mut self.0;
        ring.ours = ring.ours.wrapping_add(1);
        ring.word(ring.offsets.consumer).store(ring.ours, Ordering::Release);
    }
}

/// A ring into which we put.
#[derive(Debug)]
pub struct Outgoing<T>(Ring<T>);

impl<T: Copy> Outgoing<T> {
    /// Of so many entries, a power of two; `at`: which of the socket's rings.
    pub fn new(
        fd: impl AsFd,
        offsets: libc::xdp_ring_offset,
        entries: u32,
        at: u64,
    ) -> io::Result<Outgoing<T>> {
        Ring::new(fd, offsets, entries, at).map(Outgoing)
    }

    /// Puts an entry. False if there is no room.
    #[inline]
    pub fn put(&mut self, entry: T) -> bool {
        let ring = &mut self.0;
        let theirs = ring.word(ring.offsets.consumer).load(Ordering::Acquire);
        if ring.ours.wrapping_sub(theirs) >= ring.entries {
            return false;
        }
        // SAFETY: the kernel has taken what was there, and reads it again when it has been told.
        unsafe { ring.entry().write(entry) };
        ring.ours = ring.ours.wrapping_add(1);
        ring.word(ring.offsets.producer).store(ring.ours, Ordering::Release);
        true
    }

    /// Whether the kernel looks at it only when it is called.
    #[inline]
    pub fn must_call(&self) -> bool {
        let ring = &self.0;
        ring.word(ring.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}
