//! Sockets of programs of no MPI, which find each other by them before they use the fabric. They are the machine's, on which all hosts are; so that
//! each host has its own, the addresses of simulated hosts stand for addresses of the machine's loopback interface. An MPI's launcher has
//! ways of its own, and is left alone.
#![allow(unsafe_code)]

use crate::own::own;
use crate::{mpi, real};
use libc::{addrinfo, c_char, c_int, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use srd_virtual::Phase;
use srd_virtual::layout::{is_without_mpi, read_ip};
use srd_virtual::{RANK_VARIABLE, WORLD_VARIABLE};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

own!(own_bind, c"bind", None, (socket: c_int, address: *const sockaddr, length: socklen_t));
own!(own_connect, c"connect", None, (socket: c_int, address: *const sockaddr, length: socklen_t));
own!(own_getaddrinfo, c"getaddrinfo", None,
    (node: *const c_char, service: *const c_char, hints: *const addrinfo, found: *mut *mut addrinfo));

/// What the loopback interface's addresses of hosts begin with; their hosts' own begin with 10.
const LOOPBACK: u32 = 127 << 24 | 128 << 16;
const OWN: u32 = 10 << 24;

/// So often, and so far apart in milliseconds, a server is asked for that is not there yet: the commands of a run begin one after the other, but nobody
/// can see when one of them is ready.
const ASKS: u32 = 100;
const ASK_EVERY: u64 = 20;

/// The hosts of all processes, by address, and the one that this process is on.
struct Hosts {
    all: Vec<u32>,
    own: u32,
}

/// Those, in a process of no MPI.
fn hosts() -> Option<&'static Hosts> {
    static HOSTS: OnceLock<Option<Hosts>> = OnceLock::new();
    HOSTS.get_or_init(read).as_ref()
}

fn read() -> Option<Hosts> {
    let file = File::open(std::env::var_os(WORLD_VARIABLE)?).ok()?;
    let rank = std::env::var(RANK_VARIABLE).ok()?.parse().ok()?;
    if !is_without_mpi(&file, rank).ok()? {
        return None;
    }
    let mut all: Vec<u32> = (0..).map_while(|number| read_ip(&file, number).ok()).collect();
    let own = *all.get(rank as usize)?;
    all.sort_unstable();
    all.dedup();
    Some(Hosts { all, own })
}

impl Hosts {
    /// The machine's address that stands for one; itself if it is no host's.
    fn stands_for(&self, ip: Ipv4Addr) -> Ipv4Addr {
        let host = match ip {
            Ipv4Addr::LOCALHOST | Ipv4Addr::UNSPECIFIED => self.own,
            ip if self.all.binary_search(&ip.to_bits()).is_ok() => ip.to_bits(),
            other => return other,
        };
        Ipv4Addr::from_bits((host - OWN) | LOOPBACK)
    }
}

/// Calls `call` with the address that stands for the given one, and if that fails because the socket can have no such address, with that itself.
///
/// # Safety
/// So many bytes are at the address, or it is null.
unsafe fn translated(
    address: *const sockaddr,
    length: socklen_t,
    call: impl Fn(*const sockaddr, socklen_t) -> c_int,
) -> c_int {
    let Some(hosts) =
        hosts().filter(|_| !address.is_null() && length as usize >= size_of::<libc::sa_family_t>())
    else {
        return call(address, length);
    };
    // SAFETY: the caller's promise.
    let family = c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() });
    if family == libc::AF_INET && length as usize >= size_of::<sockaddr_in>() {
        // SAFETY: as above.
        let mut own = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
        own.sin_addr.s_addr =
            hosts.stands_for(Ipv4Addr::from_bits(u32::from_be(own.sin_addr.s_addr))).to_bits().to_be();
        return call(std::ptr::from_ref(&own).cast(), size_of::<sockaddr_in>() as socklen_t);
    }
    if family == libc::AF_INET6 && length as usize >= size_of::<sockaddr_in6>() {
        // SAFETY: as above.
        let mut own = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
        let given = match Ipv6Addr::from(own.sin6_addr.s6_addr) {
            Ipv6Addr::LOCALHOST => Some(Ipv4Addr::LOCALHOST),
            Ipv6Addr::UNSPECIFIED => Some(Ipv4Addr::UNSPECIFIED),
            other => other.to_ipv4_mapped(),
        };
        if let Some(given) = given {
            own.sin6_addr.s6_addr = hosts.stands_for(given).to_ipv6_mapped().octets();
            let result = call(std::ptr::from_ref(&own).cast(), size_of::<sockaddr_in6>() as socklen_t);
            // A socket of IPv6 alone has no such addresses.
            if result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
                return result;
            }
        }
    }
    call(address, length)
}

/// `bind(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { translated(address, length, |address, length| own_bind(socket, address, length)) }
}

/// `connect(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn connect(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    for _ in 1..ASKS {
        // SAFETY: the caller's promise.
        let result =
            unsafe { translated(address, length, |address, length| own_connect(socket, address, length)) };
        let refused = || std::io::Error::last_os_error().raw_os_error() == Some(libc::ECONNREFUSED);
        if result == 0 || hosts().is_none() || mpi::phase() != Phase::Before || !refused() {
            return result;
        }
        real::pause(ASK_EVERY);
    }
    // SAFETY: as above.
    unsafe { translated(address, length, |address, length| own_connect(socket, address, length)) }
}

/// The address of the host called `h` and its number, if it is one of a process.
fn named(node: &CStr) -> Option<CString> {
    let number: u32 = node.to_str().ok()?.strip_prefix('h')?.parse().ok()?;
    let ip = OWN.checked_add(number)?;
    hosts()?.all.binary_search(&ip).ok()?;
    CString::new(Ipv4Addr::from_bits(ip).to_string()).ok()
}

/// `getaddrinfo(3)`, which knows simulated hosts by their names: h0, h1.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: the caller's promise.
    let named = if node.is_null() { None } else { named(unsafe { CStr::from_ptr(node) }) };
    own_getaddrinfo(named.as_ref().map_or(node, |name| name.as_ptr()), service, hints, found)
}
