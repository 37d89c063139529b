//! Addresses of endpoints as programs see them: the host's IP address, as port the number of the queue pair, and the
//! endpoint's key where a socket address has room: in `sin_zero`, or as flow label.

use crate::boundary::{Errno, Outcome, readable};
use crate::constants::*;
use crate::layout::fi_info;
use libc::{c_void, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use srd_msg::PeerAddr;
use srd_wire::{Gid, Qpn};
use std::ffi::CString;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An address as programs exchange them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    /// Host and port.
    pub at: SocketAddr,
    /// The endpoint's key; 0: that of whichever well-known endpoint is there, as of an address made of a name and a service.
    pub key: u32,
}

/// Longest address.
pub(crate) const LONGEST: usize = size_of::<sockaddr_in6>();

/// Bytes of an address of that family.
pub(crate) fn length_of(ip: IpAddr) -> usize {
    if ip.is_ipv6() { size_of::<sockaddr_in6>() } else { size_of::<sockaddr_in>() }
}

/// The format's name for addresses of that family.
pub(crate) fn format_of(ip: IpAddr) -> u32 {
    if ip.is_ipv6() { FI_SOCKADDR_IN6 } else { FI_SOCKADDR_IN }
}

/// The bytes of an address; as many as [`length_of`] says count.
pub(crate) fn to_bytes(addr: Address) -> [u8; LONGEST] {
    let mut bytes = [0; LONGEST];
    let key = addr.key.to_be_bytes();
    match addr.at {
        SocketAddr::V4(v4) => {
            // family, port, address, padding
            bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes[2..4].copy_from_slice(&v4.port().to_be_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            bytes[8..12].copy_from_slice(&key);
        }
        SocketAddr::V6(v6) => {
            // family, port, flow, address, scope
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes[2..4].copy_from_slice(&v6.port().to_be_bytes());
            bytes[4..8].copy_from_slice(&key);
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

/// The address in bytes; none if they hold no IP address, or too little of it.
pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Address> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?) as i32;
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match family {
        libc::AF_INET => {
            let ip: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            let key = u32::from_be_bytes(*bytes.get(8..)?.first_chunk()?);
            let at = SocketAddrV4::new(ip.into(), port).into();
            (bytes.len() >= size_of::<sockaddr_in>()).then_some(Address { at, key })
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            let scope = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?);
            let key = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?);
            Some(Address { at: SocketAddrV6::new(ip.into(), port, 0, scope).into(), key })
        }
        _ => None,
    }
}

/// The address at a pointer from C; none for NULL, or if it is no IP address.
///
/// # Safety
/// `len` bytes at the pointer may be read, or it is NULL.
pub(crate) unsafe fn read(pointer: *const c_void, len: usize) -> Option<Address> {
    if pointer.is_null() || len < size_of::<sockaddr_in>() {
        return None;
    }
    // SAFETY: as the caller says.
    from_bytes(unsafe { std::slice::from_raw_parts(pointer.cast(), len.min(LONGEST)) })
}

/// Copies as much of an address as fits, and says in `len` how long it is.
///
/// # Safety
/// `*len` bytes at `pointer` may be written.
pub(crate) unsafe fn write(addr: Address, pointer: *mut c_void, len: &mut usize) {
    let (bytes, needed) = (to_bytes(addr), length_of(addr.at.ip()));
    if !pointer.is_null() {
        // SAFETY: as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.cast(), needed.min(*len)) };
    }
    *len = needed;
}

/// The endpoint at an address.
pub(crate) fn to_peer(addr: Address) -> PeerAddr {
    PeerAddr { gid: Gid::from(addr.at.ip()), qpn: Qpn(addr.at.port()), key: addr.key }
}

/// An endpoint's address. `scope` is that of the local interface, which link-local addresses need.
pub(crate) fn of_peer(peer: PeerAddr, scope: u32) -> Address {
    Address { at: scoped(SocketAddr::new(peer.gid.ip(), peer.qpn.0), scope), key: peer.key }
}

/// A link-local address with the number of its interface; any other as it is.
pub(crate) fn scoped(mut addr: SocketAddr, scope: u32) -> SocketAddr {
    if let SocketAddr::V6(v6) = &mut addr
        && v6.ip().is_unicast_link_local()
    {
        v6.set_scope_id(scope);
    }
    addr
}

/// What a name and a service stand for, of the family of `like` if there is one of that.
pub(crate) fn resolve(
    node: Option<&str>,
    service: Option<&str>,
    numeric: bool,
    passive: bool,
    like: Option<IpAddr>,
) -> Outcome<SocketAddr> {
    let c_string = |text: Option<&str>| text.map(CString::new).transpose().map_err(|_| Errno::INVALID);
    let (node, service) = (c_string(node)?, c_string(service)?);
    let pointer = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
    // SAFETY: numbers and pointers, for which zero is valid.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_socktype = libc::SOCK_DGRAM;
    if numeric {
        hints.ai_flags |= libc::AI_NUMERICHOST;
    }
    if passive {
        hints.ai_flags |= libc::AI_PASSIVE;
    }
    let mut list = std::ptr::null_mut();
    // SAFETY: C strings or NULL, not both NULL as the caller has seen to.
    if unsafe { libc::getaddrinfo(pointer(&node), pointer(&service), &hints, &mut list) } != 0 {
        return Err(Errno::NO_DATA);
    }
    let mut found: Option<SocketAddr> = None;
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an entry of the list that getaddrinfo has made.
        let entry = unsafe { &*at };
        // SAFETY: its address with its length.
        let addr =
            unsafe { read(entry.ai_addr.cast::<sockaddr>().cast(), entry.ai_addrlen as socklen_t as usize) };
        match (found, addr.map(|addr| addr.at)) {
            (None, Some(addr)) => found = Some(addr),
            (Some(other), Some(addr))
                if like
                    .is_some_and(|ip| ip.is_ipv6() == addr.is_ipv6() && ip.is_ipv6() != other.is_ipv6()) =>
            {
                found = Some(addr);
            }
            _ => {}
        }
        at = entry.ai_next;
    }
    // SAFETY: the list of above, used no more.
    unsafe { libc::freeaddrinfo(list) };
    found.ok_or(Errno::NO_DATA)
}

/// An address in words, as fi_av_straddr(3) and fi_tostr(3) write it, and its key, if there is one.
pub(crate) fn in_words(addr: Address) -> String {
    let place = match addr.at {
        SocketAddr::V4(v4) => format!("fi_sockaddr_in://{v4}"),
        SocketAddr::V6(v6) => format!("fi_sockaddr_in6://[{}]:{}", v6.ip(), v6.port()),
    };
    if addr.key == 0 { place } else { format!("{place}?key={:08x}", addr.key) }
}

/// The source address in an info, as programs hand it to fi_domain(3) and fi_endpoint(3).
///
/// # Safety
/// The pointer is NULL or leads to a live info.
pub(crate) unsafe fn source_of(info: *const fi_info) -> Outcome<Option<Address>> {
    // SAFETY: as the caller says; by fi_getinfo(3) the length goes with the address.
    unsafe {
        let info = readable(info)?;
        Ok(read(info.src_addr, info.src_addrlen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_bytes() {
        for text in ["10.1.2.3:9228", "[fe80::1%3]:77"] {
            for key in [0, 0x1234_5678] {
                let addr = Address { at: text.parse().unwrap(), key };
                assert_eq!(from_bytes(&to_bytes(addr)[..length_of(addr.at.ip())]), Some(addr));
            }
        }
        assert_eq!(from_bytes(&[0; LONGEST]), None);
        assert_eq!(from_bytes(&to_bytes(Address { at: "1.2.3.4:5".parse().unwrap(), key: 6 })[..12]), None);
    }

    #[test]
    fn numeric_names_are_resolved_in_the_family_asked_for() {
        let v4 = resolve(Some("127.0.0.1"), Some("80"), true, false, None).unwrap();
        assert_eq!(v4, "127.0.0.1:80".parse().unwrap());
        assert_eq!(resolve(Some("no number"), None, true, false, None), Err(Errno::NO_DATA));
    }
}
