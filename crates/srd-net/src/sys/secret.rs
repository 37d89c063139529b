//! Memory for a key: a page of its own, which is not written to core dumps or swapped out, and which children of a fork find empty.

use super::page::Page;
use srd_wire::seal::{Place, Psk};
use std::io;
use zeroize::Zeroize;

/// A page with a pre-shared key in it, wiped and given back when dropped.
pub struct SecretPage(Page<[u8; Psk::LEN]>);

impl SecretPage {
    /// An empty one.
    pub fn new() -> io::Result<SecretPage> {
        let secret = SecretPage(Page::new()?);
        // This page alone: whether and what else the program dumps is its own affair (so no PR_SET_DUMPABLE).
        secret.0.hide()?;
        Ok(secret)
    }

    /// The key, to be filled in.
    pub fn key_mut(&mut self) -> &mut [u8; Psk::LEN] {
        &mut self.0
    }
}

impl Place for SecretPage {
    fn key(&self) -> &[u8; Psk::LEN] {
        &self.0
    }
}

impl Drop for SecretPage {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_not_dumped_and_not_inherited() {
        let mut secret = SecretPage::new().unwrap();
        secret.key_mut().fill(0xA5);
        let start = format!("{:x}-", secret.key().as_ptr().addr());
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
