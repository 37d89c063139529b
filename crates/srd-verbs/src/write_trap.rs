//! Pages whose next write somebody hears of: `userfaultfd(2)` with write protection. Who writes to an armed page waits in the kernel
//! until the page is released, and gives its core to others meanwhile, as a write to a card's doorbell wakes the card.

use libc::{c_int, c_ulong};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// Of linux/userfaultfd.h, with its structures as arrays of words.
const USER_MODE_ONLY: c_int = 1;
const API: u64 = 0xAA;
const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1;
const REGISTER_MODE_WP: u64 = 1 << 1;
const WRITEPROTECT_MODE_WP: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;
const UFFDIO_API: c_ulong = read_write::<3>(0x3F);
const UFFDIO_REGISTER: c_ulong = read_write::<4>(0x00);
const UFFDIO_WRITEPROTECT: c_ulong = read_write::<3>(0x06);

/// `_IOWR(0xAA, number, u64[WORDS])`.
const fn read_write<const WORDS: usize>(number: c_ulong) -> c_ulong {
    3 << 30 | (WORDS as c_ulong * 8) << 16 | 0xAA << 8 | number
}

/// See the module. It does not hear of writes by the kernel for the program.
pub(crate) struct WriteTrap(OwnedFd);

impl WriteTrap {
    /// An error where kernel or container refuse it: Linux before 5.11, or a seccomp filter.
    pub fn new() -> io::Result<WriteTrap> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: a system call without pointers.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was made here.
        let trap = WriteTrap(unsafe { OwnedFd::from_raw_fd(fd as c_int) });
        trap.control(UFFDIO_API, [API, FEATURE_PAGEFAULT_FLAG_WP, 0])?;
        Ok(trap)
    }

    /// Those written bytes, whole pages, may be armed from now on.
    pub fn add(&self, pages: *const u8, bytes: usize) -> io::Result<()> {
        self.control(UFFDIO_REGISTER, [pages.addr() as u64, bytes as u64, REGISTER_MODE_WP, 0])
    }

    /// The next write waits. What is written to afterwards is no news until then.
    pub fn arm(&self, pages: *const u8, bytes: usize) -> io::Result<()> {
        self.control(UFFDIO_WRITEPROTECT, [pages.addr() as u64, bytes as u64, WRITEPROTECT_MODE_WP])
    }

    /// Writes go through, the one that waits first.
    pub fn release(&self, pages: *const u8, bytes: usize) -> io::Result<()> {
        self.control(UFFDIO_WRITEPROTECT, [pages.addr() as u64, bytes as u64, 0])
    }

    /// The page that somebody waits to write to, if there is another.
    pub fn caught(&self) -> Option<usize> {
        let mut message = [0u64; 4];
        // SAFETY: 32 bytes, which is what one message has.
        let read = unsafe { libc::read(self.0.as_raw_fd(), message.as_mut_ptr().cast(), 32) };
        let [event, ..] = message[0].to_ne_bytes();
        (read == 32 && event == EVENT_PAGEFAULT).then_some(message[2] as usize)
    }

    fn control<const WORDS: usize>(&self, request: c_ulong, mut words: [u64; WORDS]) -> io::Result<()> {
        // SAFETY: a structure of so many words, as the request's number says; those who call mean memory of ours.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, words.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Readable while somebody waits to write.
impl AsFd for WriteTrap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::{self, Pages};
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    #[test]
    fn a_write_to_an_armed_page_waits_until_it_is_released() {
        let Ok(trap) = WriteTrap::new() else { return };
        let pages = Pages::new(1).unwrap();
        let word = &pages.words()[0];
        word.store(1, Ordering::Relaxed);
        let (page, bytes) = (pages.words().as_ptr().cast(), pages::page());
        trap.add(page, bytes).unwrap();
        trap.arm(page, bytes).unwrap();
        assert_eq!(trap.caught(), None);
        std::thread::scope(|scope| {
            scope.spawn(|| word.store(2, Ordering::Relaxed));
            let at = loop {
                match trap.caught() {
                    Some(at) => break at,
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            };
            assert_eq!((at, word.load(Ordering::Relaxed)), (page.addr(), 1));
            trap.release(page, bytes).unwrap();
        });
        assert_eq!(word.load(Ordering::Relaxed), 2);
        word.store(3, Ordering::Relaxed);
        assert_eq!(trap.caught(), None, "it was not armed again");
    }
}
