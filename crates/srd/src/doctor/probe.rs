//! The doctor's probes: small UDP requests of any size, each with one answer.
//!
//! An answer is never longer than its request, so that the responder cannot be used to swamp a third party.
//!
//! | bytes | request | answer |
//! |---|---|---|
//! | 0..4 | `SRDq` | `SRDa` |
//! | 4 | version, 1 | the same |
//! | 5 | 0: answer only; 1: also listen on a sample of SRD's ports for a while | the same |
//! | 6..8 | wanted length of the answer | length of the request |
//! | 8..16 | nonce of the asking program | returned |
//! | 16..20 | number of the request | returned |
//! | 20..22 | first port of the sample | returned |
//! | 22..24 | 0 | 0 |
//! | 24..32 | 0 | bit i: it listens on the port 8 i places after the first |
//!
//! Numbers are little-endian.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::setsockopt;
use nix::{libc, setsockopt_impl, sockopt_impl};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

// Options for which the library has no name.
sockopt_impl!(Ipv4MtuDiscovery, SetOnly, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::c_int);
sockopt_impl!(Ipv6MtuDiscovery, SetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::c_int);

/// Length of the shortest request and answer.
pub const SHORTEST: usize = 32;

/// Distance between the ports of a sample. Between them, programs find ports for themselves meanwhile.
const STRIDE: u16 = 8;

/// Longest datagram over IPv4.
pub const LONGEST: usize = 65_507;

/// How long an answer may take before the request is repeated.
const PATIENCE: Duration = Duration::from_millis(250);

/// How often a request is sent before it counts as lost.
const TRIES: u32 = 4;

/// Source ports that are tried before a responder counts as absent: a path or two may be dead.
const SOURCE_PORTS: u32 = 10;

const VERSION: u8 = 1;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Request {
    /// Listen on a sample of ports too.
    pub open_ports: bool,
    /// Wanted length of the answer.
    pub answer_len: u16,
    /// Whose request it is.
    pub nonce: u64,
    /// Which one.
    pub number: u32,
    /// First port of the sample.
    pub first_port: u16,
}

impl Request {
    /// The request as a datagram of `len` bytes.
    pub fn encode(&self, len: usize) -> Vec<u8> {
        let mut datagram = vec![0; len.max(SHORTEST)];
        datagram[..4].copy_from_slice(b"SRDq");
        datagram[4] = VERSION;
        datagram[5] = u8::from(self.open_ports);
        datagram[6..8].copy_from_slice(&self.answer_len.to_le_bytes());
        datagram[8..16].copy_from_slice(&self.nonce.to_le_bytes());
        datagram[16..20].copy_from_slice(&self.number.to_le_bytes());
        datagram[20..22].copy_from_slice(&self.first_port.to_le_bytes());
        datagram
    }

    /// The request in a datagram, if it is one.
    pub fn decode(datagram: &[u8]) -> Option<Request> {
        if datagram.len() < SHORTEST || !datagram.starts_with(b"SRDq") || datagram[4] != VERSION {
            return None;
        }
        let u16_at = |at: usize| u16::from_le_bytes([datagram[at], datagram[at + 1]]);
        Some(Request {
            open_ports: datagram[5] == 1,
            answer_len: u16_at(6),
            nonce: u64::from_le_bytes(datagram[8..16].try_into().ok()?),
            number: u32::from_le_bytes(datagram[16..20].try_into().ok()?),
            first_port: u16_at(20),
        })
    }

    /// The answer to this request, which came in a datagram of `len` bytes.
    pub fn answer(&self, len: usize, listening: u64) -> Vec<u8> {
        let mut datagram = self.encode(usize::from(self.answer_len).min(len));
        datagram[..4].copy_from_slice(b"SRDa");
        datagram[6..8].copy_from_slice(&(len.min(usize::from(u16::MAX)) as u16).to_le_bytes());
        datagram[24..32].copy_from_slice(&listening.to_le_bytes());
        datagram
    }
}

/// The ports of a sample, 64 at most.
pub fn sample(first_port: u16) -> impl Iterator<Item = u16> {
    (first_port..=u16::MAX).step_by(STRIDE.into()).take(64)
}

/// Those of a sample's ports on which the sender of an answer listens.
pub fn listening(answer: &[u8], first_port: u16) -> Vec<u16> {
    let bits = answer.get(24..32).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    sample(first_port).enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, port)| port).collect()
}

/// Nonce and number of the request that a datagram answers, if it is an answer.
pub fn answered(datagram: &[u8]) -> Option<(u64, u32)> {
    if datagram.len() < SHORTEST || !datagram.starts_with(b"SRDa") || datagram[4] != VERSION {
        return None;
    }
    let nonce = u64::from_le_bytes(datagram[8..16].try_into().ok()?);
    Some((nonce, u32::from_le_bytes(datagram[16..20].try_into().ok()?)))
}

/// A socket whose packets are never cut on their way, whatever the kernel believes the path's MTU to be.
pub fn unfragmented(bind: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((bind, 0))?;
    forbid_fragments(&socket)?;
    Ok(socket)
}

/// Sets don't-fragment and ignores learned path MTUs.
pub fn forbid_fragments(socket: &UdpSocket) -> io::Result<()> {
    let is_v6 = socket.local_addr()?.is_ipv6();
    if is_v6 {
        setsockopt(socket, Ipv6MtuDiscovery, &libc::IPV6_PMTUDISC_PROBE)?;
    }
    match setsockopt(socket, Ipv4MtuDiscovery, &libc::IP_PMTUDISC_PROBE) {
        // A socket of IPv6 serves IPv4 too, unless it may not.
        Err(_) if is_v6 => Ok(()),
        result => Ok(result?),
    }
}

/// An address to bind to that fits the destination's IP version.
pub fn any_address(to: IpAddr) -> IpAddr {
    if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() }
}

/// A number that no other program uses for its requests.
pub fn nonce() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// Waits until one of the sockets has something to read; returns which have.
pub fn wait_readable(sockets: &[UdpSocket], limit: Duration) -> io::Result<Vec<usize>> {
    let mut fds: Vec<PollFd> = sockets.iter().map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)).collect();
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    poll(&mut fds, limit)?;
    let is_ready = |fd: &PollFd| fd.revents().is_some_and(|events| !events.is_empty());
    Ok(fds.iter().enumerate().filter(|(_, fd)| is_ready(fd)).map(|(index, _)| index).collect())
}

/// Asks one responder, one question at a time.
pub struct Prober {
    socket: UdpSocket,
    to: SocketAddr,
    nonce: u64,
    number: u32,
}

impl Prober {
    /// Looks for a source port from which `to` answers; `None` if there is none.
    pub fn open(to: SocketAddr) -> io::Result<Option<Prober>> {
        for _ in 0..SOURCE_PORTS {
            let socket = unfragmented(any_address(to.ip()))?;
            let mut prober = Prober { socket, to, nonce: nonce(), number: 0 };
            if prober.ask_repeatedly(Request::default(), SHORTEST, 1)?.is_some() {
                return Ok(Some(prober));
            }
        }
        Ok(None)
    }

    /// Whom it asks.
    pub fn to(&self) -> SocketAddr {
        self.to
    }

    /// Sends the request in a datagram of `len` bytes until it is answered; `None` if it never is. A datagram that
    /// does not even fit the local interface counts as lost.
    pub fn ask(&mut self, request: Request, len: usize) -> io::Result<Option<Vec<u8>>> {
        self.ask_repeatedly(request, len, TRIES)
    }

    fn ask_repeatedly(&mut self, request: Request, len: usize, tries: u32) -> io::Result<Option<Vec<u8>>> {
        self.number += 1;
        let request = Request { nonce: self.nonce, number: self.number, ..request }.encode(len);
        let mut buffer = vec![0; LONGEST];
        for _ in 0..tries {
            match self.socket.send_to(&request, self.to) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => return Ok(None),
                // The refusal of an earlier datagram; this one has not been sent.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            }
            let deadline = Instant::now() + PATIENCE;
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                self.socket.set_read_timeout(Some(left))?;
                match self.socket.recv(&mut buffer) {
                    Ok(len) if answered(&buffer[..len]) == Some((self.nonce, self.number)) => {
                        buffer.truncate(len);
                        return Ok(Some(buffer));
                    }
                    Ok(_) => {}
                    Err(error)
                        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_wire_and_an_answer_is_never_longer() {
        let request = Request { open_ports: true, answer_len: 9000, nonce: 7, number: 8, first_port: 17408 };
        let datagram = request.encode(1472);
        assert_eq!(datagram.len(), 1472);
        assert_eq!(Request::decode(&datagram), Some(request));
        let answer = request.answer(datagram.len(), 0b101);
        assert_eq!(answer.len(), 1472);
        assert_eq!(answered(&answer), Some((7, 8)));
        assert_eq!(listening(&answer, 17408), [17408, 17424]);
    }

    #[test]
    fn a_sample_ends_where_ports_do() {
        assert_eq!(sample(17408).count(), 64);
        assert_eq!(sample(65_520).collect::<Vec<_>>(), [65_520, 65_528]);
    }

    #[test]
    fn strangers_are_not_answered() {
        assert_eq!(Request::decode(&[0; 200]), None);
        assert_eq!(Request::decode(&Request::default().encode(SHORTEST)[..SHORTEST - 1]), None);
        let mut other_version = Request::default().encode(SHORTEST);
        other_version[4] += 1;
        assert_eq!(Request::decode(&other_version), None);
    }
}
