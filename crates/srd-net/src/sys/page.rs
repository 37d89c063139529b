//! A page of its own for a value that children of a fork are not to have.

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use std::io;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use zerocopy::FromZeros;

/// A value in a page of its own, zeroes to begin with. After `fork` (by whatever means: the kernel does it) the child finds
/// zeroes again.
#[derive(Debug)]
pub struct Page<T: FromZeros>(NonNull<T>);

// SAFETY: the page is this value's alone.
unsafe impl<T: FromZeros + Send> Send for Page<T> {}
// SAFETY: as above.
unsafe impl<T: FromZeros + Sync> Sync for Page<T> {}

impl<T: FromZeros> Page<T> {
    /// The kernel rounds it up to whole pages.
    const LEN: NonZeroUsize = NonZeroUsize::new(size_of::<T>()).unwrap();

    /// One of zeroes.
    pub fn new() -> io::Result<Page<T>> {
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping.
        let page = unsafe { mmap_anonymous(None, Self::LEN, rights, MapFlags::MAP_PRIVATE) }?;
        let page: Page<T> = Page(page.cast());
        page.advise(MmapAdvise::MADV_WIPEONFORK)?; // Linux 4.14
        Ok(page)
    }

    /// Keeps it out of core dumps and swap. Where the user may lock nothing (RLIMIT_MEMLOCK) it may be swapped out.
    pub fn hide(&self) -> io::Result<()> {
        // SAFETY: the mapping is ours.
        let _ = unsafe { mlock(self.0.cast(), Self::LEN.get()) };
        self.advise(MmapAdvise::MADV_DONTDUMP)
    }

    fn advise(&self, advice: MmapAdvise) -> io::Result<()> {
        // SAFETY: the mapping is ours; of this advice, none changes what this process finds in it.
        Ok(unsafe { madvise(self.0.cast(), Self::LEN.get(), advice) }?)
    }
}

impl<T: FromZeros> Deref for Page<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping lives as long as `self`, is aligned to a page, and holds zeroes or what was stored.
        unsafe { self.0.as_ref() }
    }
}

impl<T: FromZeros> DerefMut for Page<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed as a whole.
        unsafe { self.0.as_mut() }
    }
}

impl<T: FromZeros> Drop for Page<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody refers to it any more.
        let _ = unsafe { munmap(self.0.cast(), Self::LEN.get()) };
    }
}
