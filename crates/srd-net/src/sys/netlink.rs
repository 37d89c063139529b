//! Questions to the kernel over netlink(7), and how its answers are read.

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const HEADER: usize = 16; // struct nlmsghdr

/// More than the kernel puts in one datagram (NLMSG_GOODSIZE).
const MOST_BYTES: usize = 32 << 10;

/// A socket to one part of the kernel.
#[derive(Debug)]
pub struct Netlink {
    fd: OwnedFd,
    /// Number of the last request.
    asked: Cell<u32>,
}

impl Netlink {
    /// To that part (`NetlinkRoute`, ...).
    pub fn open(part: SockProtocol) -> io::Result<Netlink> {
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, part)?;
        Ok(Netlink { fd, asked: Cell::new(0) })
    }

    /// All that there is of what `what` asks for, each without its header.
    pub fn dump(&self, what: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.request(what, libc::NLM_F_DUMP, body)?;
        let mut messages = Vec::new();
        while !self.receive(&mut messages)? {}
        Ok(messages)
    }

    /// The one answer to a request for one thing, without its header. An error if there is no such thing.
    pub fn get(&self, what: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        self.request(what, 0, body)?;
        let mut messages = Vec::new();
        while messages.is_empty() && !self.receive(&mut messages)? {}
        messages.pop().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn request(&self, what: u16, flags: libc::c_int, body: &[u8]) -> io::Result<()> {
        let mut request = Vec::with_capacity(HEADER + body.len());
        request.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
        request.extend_from_slice(&what.to_ne_bytes());
        request.extend_from_slice(&((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        self.asked.set(self.asked.get().wrapping_add(1));
        request.extend_from_slice(&self.asked.get().to_ne_bytes());
        request.extend_from_slice(&[0; 4]); // sender
        request.extend_from_slice(body);
        // Without an address it goes to the kernel.
        send(self.fd.as_raw_fd(), &request, MsgFlags::empty())?;
        Ok(())
    }

    /// Receives one datagram; says whether the answer ends with it.
    fn receive(&self, messages: &mut Vec<Vec<u8>>) -> io::Result<bool> {
        let mut buffer = vec![0u8; MOST_BYTES];
        // The kernel answers within the call that asks: there is never anything to wait for.
        let got = recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT)?;
        Ok(got == 0 || take_messages(&buffer[..got], self.asked.get(), messages)?)
    }
}

/// Cuts a datagram into the messages that answer a request; says whether the answer ends with it.
fn take_messages(mut datagram: &[u8], asked: u32, messages: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    while datagram.len() >= HEADER {
        let length = u32_of(&datagram[..4]).expect("four bytes") as usize;
        let kind = u16_of(&datagram[4..6]).expect("two bytes") as libc::c_int;
        let answers = u32_of(&datagram[8..12]) == Some(asked);
        let Some(body) = datagram.get(HEADER..length) else { break };
        match kind {
            _ if !answers => {}
            libc::NLMSG_DONE => {
                // A dump may fail as late as here.
                return match body.get(..4).and_then(u32_of).unwrap_or(0) as i32 {
                    code @ ..0 => Err(io::Error::from_raw_os_error(-code)),
                    _ => Ok(true),
                };
            }
            libc::NLMSG_ERROR => {
                let code = body.get(..4).and_then(u32_of).unwrap_or(0) as i32;
                return Err(io::Error::from_raw_os_error(-code));
            }
            _ => messages.push(body.to_vec()),
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

pub(super) fn u16_of(bytes: &[u8]) -> Option<u16> {
    bytes.try_into().ok().map(u16::from_ne_bytes)
}

pub(super) fn u32_of(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

pub(super) fn u64_of(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

/// The value of the first attribute (`struct rtattr`) of that kind.
pub(super) fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = u16_of(attributes.get(..2)?)? as usize;
        let kind = u16_of(attributes.get(2..4)?)? & 0x3fff; // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
        let value = attributes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

/// An attribute of that kind.
pub(super) fn with_attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_short_is_no_message() {
        let mut messages = Vec::new();
        assert!(!take_messages(&[0xff; 40], u32::MAX, &mut messages).unwrap());
        assert!(messages.is_empty());
    }

    #[test]
    fn an_attribute_is_found_behind_others() {
        let all = [with_attribute(7, b"abc"), with_attribute(9, b"xy")].concat();
        assert_eq!(attribute(&all, 9), Some(&b"xy"[..]));
        assert_eq!(attribute(&all, 8), None);
        for cut in 0..all.len() - 2 {
            assert_eq!(attribute(&all[..cut], 9), None, "{cut}");
        }
    }
}
