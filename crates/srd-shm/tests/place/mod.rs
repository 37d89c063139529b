//! A directory for a test's segments, in memory where there is such a file system, and addresses in it.

use srd_shm::Address;
use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that goes with the test.
pub struct Place {
    dir: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let parent = Path::new("/dev/shm");
        let parent = if parent.is_dir() { parent.to_owned() } else { std::env::temp_dir() };
        let name = format!("srd-shm-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = parent.join(name);
        fs::create_dir(&dir).unwrap();
        Place { dir }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The names of all files in it.
    #[allow(dead_code, reason = "not every test that uses this module asks")]
    pub fn names(&self) -> Vec<OsString> {
        fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    /// How many files are in it.
    #[allow(dead_code, reason = "not every test that uses this module asks")]
    pub fn files(&self) -> usize {
        self.names().len()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// An endpoint of a test.
pub fn address(qpn: u16) -> Address {
    address_from(17_408, qpn)
}

/// One of a job whose queue pairs count from this port on.
#[allow(dead_code, reason = "not every test that uses this module asks")]
pub fn address_from(base: u16, qpn: u16) -> Address {
    Address { ip: Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets(), port: base + qpn / 128, qpn }
}
