//! Limits that the kernel or the administrator sets.

use super::read_trimmed;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use serde::Serialize;

/// The limits that matter to SRD. `None` where the kernel does not tell.
#[derive(Clone, Serialize, Debug)]
pub struct Limits {
    /// Largest receive buffer that a socket may ask for, in bytes (`net.core.rmem_max`).
    pub rmem_max: Option<u64>,
    /// Largest send buffer that a socket may ask for, in bytes (`net.core.wmem_max`).
    pub wmem_max: Option<u64>,
    /// Memory that may be locked, in bytes; `None`: unlimited.
    pub memlock: Option<u64>,
    /// Files and sockets that may be open.
    pub open_files: Option<u64>,
    /// To how many the program may raise that by itself.
    pub open_files_hard: Option<u64>,
}

/// Reads them.
pub fn read() -> Limits {
    let (open_files, open_files_hard) = limit(Resource::RLIMIT_NOFILE);
    Limits {
        rmem_max: sysctl("net.core.rmem_max"),
        wmem_max: sysctl("net.core.wmem_max"),
        memlock: limit(Resource::RLIMIT_MEMLOCK).0,
        open_files,
        open_files_hard,
    }
}

/// A kernel parameter that is one number.
pub fn sysctl<T: std::str::FromStr>(name: &str) -> Option<T> {
    sysctl_text(name)?.parse().ok()
}

/// A kernel parameter as text.
pub fn sysctl_text(name: &str) -> Option<String> {
    read_trimmed(&format!("/proc/sys/{}", name.replace('.', "/")))
}

fn limit(resource: Resource) -> (Option<u64>, Option<u64>) {
    let finite = |limit| (limit != RLIM_INFINITY).then_some(limit);
    getrlimit(resource).map_or((None, None), |(soft, hard)| (finite(soft), finite(hard)))
}
