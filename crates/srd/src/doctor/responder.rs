//! Answers the doctor's probes, and on request listens on SRD's ports for a while to show whether they are open.

use super::probe::{LONGEST, Request, forbid_fragments, sample, wait_readable};
use anyhow::Context;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long the extra ports stay open without a probe. Meanwhile SRD programs that start here take others.
const LINGER: Duration = Duration::from_secs(3);

/// Answers on one port, at times on more.
pub struct Responder {
    /// The first is the responder's own; the others were asked for.
    sockets: Vec<UdpSocket>,
    /// Of those that were asked for, which are open: see [`super::probe`].
    listening: u64,
    close_at: Instant,
}

impl Responder {
    /// Listens on a UDP port of all addresses.
    pub fn bind(port: u16) -> anyhow::Result<Responder> {
        let socket = bind(port).with_context(|| {
            format!("cannot listen on UDP port {port}; do srd doctor or srd perf already run here?")
        })?;
        Ok(Responder { sockets: vec![socket], listening: 0, close_at: Instant::now() })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.sockets[0].local_addr().map_or(0, |address| address.port())
    }

    /// Answers for ever.
    pub fn run(mut self) -> anyhow::Result<ExitCode> {
        let mut buffer = vec![0; LONGEST];
        loop {
            let limit = if self.sockets.len() > 1 { LINGER } else { Duration::from_secs(3600) };
            for index in wait_readable(&self.sockets, limit)? {
                // Opening ports changes the list; what is ready stays so until the next look.
                if index < self.sockets.len() {
                    self.answer(index, &mut buffer)?;
                }
            }
            if Instant::now() >= self.close_at {
                self.sockets.truncate(1);
                self.listening = 0;
            }
        }
    }

    fn answer(&mut self, index: usize, buffer: &mut [u8]) -> anyhow::Result<()> {
        let (len, from) = match self.sockets[index].recv_from(buffer) {
            Ok(received) => received,
            // The answer to an earlier request came to a closed port.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {
                return Ok(());
            }
            Err(error) => return Err(error).context("receiving probes"),
        };
        let Some(request) = Request::decode(&buffer[..len]) else { return Ok(()) };
        if request.open_ports {
            self.open(&request);
        }
        if self.sockets.len() > 1 {
            self.close_at = Instant::now() + LINGER;
        }
        // An answer that cannot be sent is one that was lost, and the other side counts it so.
        let _ = self.sockets[index].send_to(&request.answer(len, self.listening), from);
        Ok(())
    }

    /// Opens the ports that are free. They are opened once; a repeated request finds them open.
    fn open(&mut self, request: &Request) {
        if self.sockets.len() > 1 {
            return;
        }
        for (bit, port) in sample(request.first_port).enumerate() {
            if let Ok(socket) = bind(port) {
                self.sockets.push(socket);
                self.listening |= 1 << bit;
            }
        }
    }
}

/// A socket for both IP versions where the host has both.
fn bind(port: u16) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))?;
    socket.set_nonblocking(true)?;
    forbid_fragments(&socket)?;
    Ok(socket)
}
