//! Sockets as the standard library makes them.

use super::{COUNTED, Outcome, STOP};
use std::io::{ErrorKind, Result};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

pub struct Plain {
    socket: UdpSocket,
    peer: SocketAddr,
    connected: bool,
    bytes: [u8; COUNTED],
}

impl Plain {
    pub fn open(addr: SocketAddr, peer: SocketAddr, connected: bool) -> Result<Plain> {
        let socket = UdpSocket::bind(addr)?;
        socket.set_nonblocking(true)?;
        if connected {
            socket.connect(peer)?;
        }
        Ok(Plain { socket, peer, connected, bytes: [0; COUNTED] })
    }

    pub fn send(&self, len: usize) -> Result<()> {
        let bytes = &self.bytes[..len];
        if self.connected {
            self.socket.send(bytes)?
        } else {
            self.socket.send_to(bytes, self.peer)?
        };
        Ok(())
    }

    /// Length of what has come, if anything has.
    fn receive(&mut self) -> Result<Option<usize>> {
        let got = if self.connected {
            self.socket.recv(&mut self.bytes)
        } else {
            self.socket.recv_from(&mut self.bytes).map(|(len, from)| {
                self.peer = from;
                len
            })
        };
        match got {
            Ok(len) => Ok(Some(len)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub fn exchange(&mut self, len: usize) -> Outcome<()> {
        let start = Instant::now();
        self.send(len)?;
        while self.receive()?.is_none() {
            if start.elapsed() > Duration::from_secs(10) {
                return Err("no answer".into());
            }
        }
        Ok(())
    }
}

/// Echoes what comes, until [`STOP`] does.
pub fn echo(addr: SocketAddr, peer: Option<SocketAddr>) -> Outcome<()> {
    let mut plain = Plain::open(addr, peer.unwrap_or(addr), peer.is_some())?;
    loop {
        match plain.receive()? {
            Some(STOP) => return Ok(()),
            Some(len) => plain.send(len)?,
            None => {}
        }
    }
}
