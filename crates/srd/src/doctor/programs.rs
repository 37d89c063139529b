//! SRD programs that run on the other host. Any of them answers a packet that was meant for a predecessor (it names an
//! incarnation that was never there) with a reset, sealed or not, and forgets it; so it serves as a responder of sorts
//! where nobody runs `srd doctor --serve`.

use super::finding::Finding;
use super::probe::{any_address, unfragmented, wait_readable};
use super::system::PORTS;
use srd_wire::codec::{encode_header, peek};
use srd_wire::{Body, Data, MsgId, Op, Packet, PathId, Psn, Qkey, Qpn, Route, Stamp, Tag};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// How often each port is tried.
const ROUNDS: u32 = 3;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(200);

/// Who asks, in the name of nobody that any program knows.
pub struct Stranger {
    sockets: [UdpSocket; 1],
    tag: Tag,
}

impl Stranger {
    /// Prepares to ask programs on the host of `to`.
    pub fn open(to: SocketAddr) -> io::Result<Stranger> {
        let socket = unfragmented(any_address(to.ip()))?;
        socket.set_nonblocking(true)?;
        Ok(Stranger { sockets: [socket], tag: Tag(super::probe::nonce() as u32 | 1) })
    }

    /// The UDP ports from `port_base` on where a program answers.
    pub fn find(&self, to: SocketAddr, port_base: u16) -> io::Result<Vec<u16>> {
        let mut found = Vec::new();
        for _ in 0..ROUNDS {
            for port in port_base..=port_base.saturating_add(PORTS - 1) {
                self.send(SocketAddr::new(to.ip(), port), 0)?;
            }
            self.collect(|port| {
                found.push(port);
                false
            })?;
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Whether a packet whose datagram is `len` bytes long reaches the program at `to`.
    pub fn reaches(&self, to: SocketAddr, len: usize) -> io::Result<bool> {
        for _ in 0..ROUNDS {
            if self.send(to, len)? && self.collect(|port| port == to.port())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the packet could be sent.
    fn send(&self, to: SocketAddr, len: usize) -> io::Result<bool> {
        let own_port = self.sockets[0].local_addr()?.port();
        match self.sockets[0].send_to(&misdirected(own_port, self.tag, len), to) {
            Ok(_) => Ok(true),
            // Longer than the interface takes, or the refusal of an earlier packet.
            Err(_) => Ok(false),
        }
    }

    /// Hands over the ports of those who answer, until `enough` says so; returns whether it did.
    fn collect(&self, mut enough: impl FnMut(u16) -> bool) -> io::Result<bool> {
        let mut buffer = [0; 2048];
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            wait_readable(&self.sockets, deadline.saturating_duration_since(Instant::now()))?;
            while let Ok(len) = self.sockets[0].recv(&mut buffer) {
                // The head stays readable when the rest is sealed.
                let answer = peek(&buffer[..len]).filter(|answer| answer.dst_tag == self.tag);
                if answer.is_some_and(|answer| enough(answer.src_port)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// An empty message for an incarnation that is nobody's, in a datagram of at least `len` bytes.
fn misdirected(src_port: u16, src_tag: Tag, len: usize) -> Vec<u8> {
    let nobody = Tag(src_tag.0.rotate_left(16) | 1);
    let route = Route { dst_qpn: Qpn(0), src_qpn: Qpn(0), qkey: Qkey(0) };
    let data = Data {
        psn: Psn(0),
        stamp: Stamp(0),
        path: PathId(0),
        tx_count: 0,
        ack_request: false,
        msg: MsgId(0),
        len: 0,
        offset: 0,
        op: Op::Send { route, imm: None, datagram: false },
        payload: (),
    };
    let packet =
        Packet { src_port, dst_tag: nobody, src_tag, hello: None, ack: None, body: Body::Data(data) };
    let mut datagram = vec![0; 256];
    let used = encode_header(&packet, 0, &mut datagram);
    // What is behind the payload is padding.
    datagram.resize(len.max(used), 0);
    datagram
}

/// Says which programs answer.
pub fn describe(host: std::net::IpAddr, ports: &[u16]) -> Finding {
    let list: Vec<String> = ports.iter().take(8).map(u16::to_string).collect();
    let more = if ports.len() > 8 { ", …" } else { "" };
    Finding::ok(
        "programs",
        format!("{} SRD programs answer on {host} (UDP port {}{more})", ports.len(), list.join(", ")),
    )
}
