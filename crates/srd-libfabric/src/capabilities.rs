//! What the provider offers: capabilities, limits, names.

use crate::constants::*;
use srd_msg::{Config, IOV_LIMIT};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The newest API that programs may ask for: all of 2.x, whose additions lie at the ends of structures. libfabric skips
/// providers that claim less than a program asks for.
pub(crate) const NEWEST_API: u32 = fi_version(2, 99);

/// Ours, as fi_info shows it.
pub(crate) const PROVIDER_VERSION: u32 = fi_version(0, 1);

/// The fabric: every host that speaks SRD.
pub(crate) const FABRIC: &str = "srd";

/// A protocol of our own (the highest bit says so).
pub(crate) const PROTOCOL: u32 = 1 << 31 | 0x5352;
pub(crate) const PROTOCOL_VERSION: u32 = 1;

/// The provider's name: `srd`, but `efa` if the library's file is called libefa-fi.so. Some programs (NIXL) accept only
/// providers whose names they know.
pub(crate) fn name() -> &'static CStr {
    static NAME: OnceLock<&'static CStr> = OnceLock::new();
    NAME.get_or_init(|| match own_file() {
        Some(file) if file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libefa-")) => c"efa",
        _ => c"srd",
    })
}

/// The file that this code was loaded from.
fn own_file() -> Option<PathBuf> {
    // SAFETY: plain data, which dladdr fills in.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here = crate::fi_prov_ini as extern "C" fn() -> *mut crate::layout::fi_provider;
    // SAFETY: `found` can be written.
    let known = unsafe { libc::dladdr(here as *const libc::c_void, &mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own copy of the name, which stays as long as the library does.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The messaging layer's limits.
pub(crate) fn config() -> Config {
    // Long buffers: half as many take four times the memory, most of which nothing ever touches.
    Config { longest: LONGEST_MESSAGE as u64, receive_buffers: 512, ..Config::default() }
}

/// What a program may do.
pub(crate) const OPERATIONS: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
/// In which direction messages go.
pub(crate) const MESSAGE_DIRECTIONS: u64 = FI_SEND | FI_RECV;
/// In which direction RMA and atomics go.
pub(crate) const RMA_DIRECTIONS: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// Capabilities that cost nothing, so that all have them.
pub(crate) const FREE: u64 = FI_MULTI_RECV | FI_FENCE | FI_LOCAL_COMM | FI_REMOTE_COMM;
/// Those that are given to who asks.
pub(crate) const ASKED: u64 = FI_SOURCE | FI_DIRECTED_RECV;
/// Those that only who names them gets, since they cost something: peers ask what is behind each key.
pub(crate) const NAMED: u64 = FI_RMA_EVENT;
/// Those that the host must have something for, and only who names them gets.
pub(crate) const OF_HOST: u64 = FI_HMEM;
/// Those that older programs mean something else by.
pub(crate) const SINCE_2_0: u64 = FI_TAGGED_DIRECTED_RECV | FI_EXACT_DIRECTED_RECV;

/// All capabilities for programs of that API.
pub(crate) fn capabilities(api: u32) -> u64 {
    let newer = if api >= fi_version(2, 0) { SINCE_2_0 } else { 0 };
    OPERATIONS | MESSAGE_DIRECTIONS | RMA_DIRECTIONS | FREE | ASKED | NAMED | newer
}

/// Those of a transmit context.
pub(crate) const TRANSMIT_CAPS: u64 = OPERATIONS | FI_SEND | FI_READ | FI_WRITE | FI_FENCE | OF_HOST;
/// Those of a receive context.
pub(crate) const RECEIVE_CAPS: u64 = OPERATIONS
    | FI_RECV
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_MULTI_RECV
    | ASKED
    | NAMED
    | SINCE_2_0
    | OF_HOST;
/// Those of a domain.
pub(crate) const DOMAIN_CAPS: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;

/// When a transmit operation completes.
pub(crate) const COMPLETION_LEVELS: u64 =
    FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
/// Flags that can hold for all operations of a transmit context.
pub(crate) const TRANSMIT_FLAGS: u64 = FI_COMPLETION | FI_INJECT | FI_MORE | COMPLETION_LEVELS;
/// The same of a receive context.
pub(crate) const RECEIVE_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;

/// Messages to a peer match there as they were sent; atomics are applied as they were started.
pub(crate) const ORDER: u64 =
    FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;

/// Messages and RMA of any length.
pub(crate) const LONGEST_MESSAGE: usize = 1 << 40;
/// All bits of a tag can be used (the format of fi_tagged(3) that says so).
pub(crate) const TAG_FORMAT: u64 = 0xAAAA_AAAA_AAAA_AAAA;
pub(crate) const KEY_BYTES: usize = 8;
pub(crate) const DATA_BYTES: usize = 8;
pub(crate) const IOV: usize = IOV_LIMIT;
/// Receives are limited by memory only; this is what programs size their queues by.
pub(crate) const RECEIVES: usize = 4096;
pub(crate) const MOST_RECEIVES: usize = 1 << 20;
/// Queue pair numbers have 16 bits.
pub(crate) const ENDPOINTS: usize = 32_768;
/// Completion queues and counters are limited by memory only.
pub(crate) const OBJECTS: usize = 65_536;
/// `DeviceConfig::max_mr`, less what the messaging layer takes.
pub(crate) const REGIONS: usize = 1 << 17;
