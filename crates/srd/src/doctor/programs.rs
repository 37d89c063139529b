//! SRD programs that run on the other host. Any of them answers a packet that was meant for a predecessor (it names an
//! incarnation that was never there) with a reset, sealed or not, and forgets it; so it serves as a responder of sorts
//! where nobody runs `srd doctor --serve`.

use super::finding::Finding;
use super::probe::{any_address, unfragmented, wait_readable};
use super::system::PORTS;
use srd_wire::codec::{encode_header, peek};
use srd_wire::seal::{Keyring, Limits, Psk, overhead};
use srd_wire::{
    Body, Data, Gid, Incarnation, InstanceAddr, MsgId, Op, Packet, PathId, Psn, Qkey, Qpn, Route, Stamp,
};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// How often each port is tried.
const ROUNDS: u32 = 3;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(200);

/// A program that answers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Program {
    /// The UDP port on which it receives.
    pub port: u16,
    /// Whether it seals its packets.
    pub sealed: bool,
}

/// Who asks, in the name of nobody that any program knows.
pub struct Stranger {
    sockets: [UdpSocket; 1],
    own: Incarnation,
}

impl Stranger {
    /// Prepares to ask programs on the host of `to`.
    pub fn open(to: SocketAddr) -> io::Result<Stranger> {
        let socket = unfragmented(any_address(to.ip()))?;
        socket.set_nonblocking(true)?;
        Ok(Stranger { sockets: [socket], own: Incarnation(super::probe::nonce() | 1) })
    }

    /// The programs that answer on UDP ports from `port_base` on.
    pub fn find(&self, to: IpAddr, port_base: u16) -> io::Result<Vec<Program>> {
        let mut found = Vec::new();
        for _ in 0..ROUNDS {
            for port in port_base..=port_base.saturating_add(PORTS - 1) {
                for sealed in [false, true] {
                    self.send(to, Program { port, sealed }, 0)?;
                }
            }
            self.collect(|program| {
                found.push(program);
                false
            })?;
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Whether a packet whose datagram is `len` bytes long reaches the program.
    pub fn reaches(&self, to: IpAddr, program: Program, len: usize) -> io::Result<bool> {
        for _ in 0..ROUNDS {
            if self.send(to, program, len)? && self.collect(|answer| answer.port == program.port)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the packet could be sent.
    fn send(&self, to: IpAddr, program: Program, len: usize) -> io::Result<bool> {
        let own_port = self.sockets[0].local_addr()?.port();
        let mut datagram = self.misdirected(own_port, len.saturating_sub(seal_overhead(program)));
        if program.sealed {
            let destination = InstanceAddr { gid: Gid::from(to), port: program.port };
            self.seal(destination, &mut datagram);
        }
        // What cannot be sent is longer than the interface takes, or an earlier packet was refused.
        Ok(self.sockets[0].send_to(&datagram, (to, program.port)).is_ok())
    }

    /// Hands over those who answer, until `enough` says so; returns whether it did.
    fn collect(&self, mut enough: impl FnMut(Program) -> bool) -> io::Result<bool> {
        let mut buffer = [0; 2048];
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            wait_readable(&self.sockets, deadline.saturating_duration_since(Instant::now()))?;
            while let Ok(len) = self.sockets[0].recv(&mut buffer) {
                // The head stays readable when the rest is sealed.
                let answer = peek(&buffer[..len]).filter(|answer| answer.dst_tag == self.own.tag());
                if answer.is_some_and(|head| enough(Program { port: head.src_port, sealed: head.sealed })) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// An incarnation that is nobody's.
    fn nobody(&self) -> Incarnation {
        Incarnation(self.own.0.rotate_left(32) ^ 2)
    }

    /// An empty message for nobody, in a datagram of at least `len` bytes.
    fn misdirected(&self, src_port: u16, len: usize) -> Vec<u8> {
        let route = Route { dst_qpn: Qpn(0), src_qpn: Qpn(0), qkey: Qkey(0) };
        let data = Data {
            psn: Psn(0),
            stamp: Stamp(0),
            path: PathId(0),
            tx_count: 0,
            ack_request: false,
            more: false,
            msg: MsgId(0),
            len: 0,
            offset: 0,
            op: Op::Send { route, imm: None, datagram: false },
            payload: (),
        };
        let (dst_tag, src_tag) = (self.nobody().tag(), self.own.tag());
        let packet = Packet { src_port, dst_tag, src_tag, hello: None, ack: None, body: Body::Data(data) };
        let mut datagram = vec![0; 256];
        let used = encode_header(&packet, 0, &mut datagram);
        // What is behind the payload is padding.
        datagram.resize(len.max(used), 0);
        datagram
    }

    /// Seals with any key: a program sees that the packet is not for itself before it tries to open it.
    fn seal(&self, to: InstanceAddr, datagram: &mut Vec<u8>) {
        let psk = Psk::from_bytes(&[0; Psk::LEN]).expect("of the right length");
        let len = datagram.len();
        datagram.resize(len + overhead(false), 0);
        Keyring::new(self.own, psk, Limits::default())
            .seal(to, Some(self.nobody()), datagram, len)
            .expect("a packet of our own, and room behind it");
    }
}

fn seal_overhead(program: Program) -> usize {
    if program.sealed { overhead(false) } else { 0 }
}

/// Says which programs answer, and whether this host's programs could talk to them.
pub fn describe(host: IpAddr, programs: &[Program], key_here: bool) -> Finding {
    let check = "programs";
    let list: Vec<String> = programs.iter().take(8).map(|program| program.port.to_string()).collect();
    let more = if programs.len() > 8 { ", …" } else { "" };
    let what =
        format!("{} SRD programs answer on {host} (UDP port {}{more})", programs.len(), list.join(", "));
    match programs.iter().find(|program| program.sealed != key_here) {
        None => Finding::ok(check, what),
        Some(Program { port, sealed: true }) => Finding::warn(
            check,
            format!("{what}; that on port {port} takes sealed packets only, and no key is set here"),
        )
        .mend("export SRD_KEY_FILE=FILE, the same key on both hosts"),
        Some(Program { port, sealed: false }) => Finding::warn(
            check,
            format!("{what}; that on port {port} takes no sealed packets, and a key is set here"),
        )
        .mend("export SRD_KEY_FILE=FILE on both hosts, or unset SRD_KEY_FILE on both"),
    }
}
