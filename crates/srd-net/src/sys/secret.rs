//! Memory for a key: a page of its own, which is not written to core dumps or swapped out, and which children of a fork find empty.

use super::check;
use srd_wire::seal::{Place, Psk};
use std::io;
use std::ptr::{self, NonNull};
use zeroize::Zeroize;

/// A page with a pre-shared key in it, wiped and given back when dropped.
pub struct SecretPage {
    key: NonNull<[u8; Psk::LEN]>,
    len: usize,
}

// SAFETY: the page is this value's alone, and is written through `&mut` only.
unsafe impl Send for SecretPage {}
// SAFETY: as above.
unsafe impl Sync for SecretPage {}

impl SecretPage {
    /// An empty one.
    pub fn new() -> io::Result<SecretPage> {
        // SAFETY: no memory is involved.
        let len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping.
        let page = unsafe { libc::mmap(ptr::null_mut(), len, rights, kind, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let secret = SecretPage { key: NonNull::new(page.cast()).expect("mmap answers no null"), len };
        // Marks on this page alone: whether and what else the program dumps is its own affair (so no PR_SET_DUMPABLE).
        for advice in [libc::MADV_DONTDUMP, libc::MADV_WIPEONFORK] {
            // SAFETY: the range is the mapping just made.
            check(unsafe { libc::madvise(page, len, advice) })?;
        }
        // SAFETY: as above. Where the user may lock nothing (RLIMIT_MEMLOCK) the page may be swapped out.
        unsafe { libc::mlock(page, len) };
        Ok(secret)
    }

    /// The key, to be filled in.
    pub fn key_mut(&mut self) -> &mut [u8; Psk::LEN] {
        // SAFETY: the mapping lives as long as `self`, any bytes are a key, and `self` is borrowed as a whole.
        unsafe { self.key.as_mut() }
    }
}

impl Place for SecretPage {
    fn key(&self) -> &[u8; Psk::LEN] {
        // SAFETY: as in `key_mut`.
        unsafe { self.key.as_ref() }
    }
}

impl Drop for SecretPage {
    fn drop(&mut self) {
        self.key_mut().zeroize();
        // SAFETY: the mapping is ours, and nobody refers to it any more.
        unsafe { libc::munmap(self.key.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_not_dumped_and_not_inherited() {
        let mut secret = SecretPage::new().unwrap();
        secret.key_mut().fill(0xA5);
        let start = format!("{:x}-", secret.key.as_ptr().addr());
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mapping = maps.split(&start).nth(1).unwrap();
        let flags = mapping.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        // proc(5): do not include in a core dump; wipe on fork.
        for flag in [" dd", " wf"] {
            assert!(flags.contains(flag), "{flags}");
        }
        assert_eq!(secret.key(), &[0xA5; Psk::LEN]);
    }
}
