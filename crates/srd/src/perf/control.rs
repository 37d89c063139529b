//! The control connection of `srd perf`: TCP, one JSON object per line. It carries what the two sides must agree on,
//! and its end tells each that the other has died. No call waits without a limit.

use super::plan::{Carrier, Plan};
use anyhow::{Context, anyhow, bail};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Port of the control connection (and, over UDP, of `srd doctor`'s probes): just below SRD's own.
pub const DEFAULT_PORT: u16 = 17407;

/// Version of this conversation; both sides must have the same.
pub const PROTOCOL: u32 = 1;

/// How long the other side may take to answer a question that needs no measuring.
pub const ANSWER: Duration = Duration::from_secs(10);

/// Longest line; a longer one does not come from a peer of ours.
const LONGEST: usize = 1 << 20;

/// Where a queue pair receives, and which memory it offers.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Endpoint {
    /// The host.
    pub address: IpAddr,
    /// The UDP port of its device instance.
    pub port: u16,
    /// Queue pair number.
    pub qpn: u16,
    /// Queue key.
    pub qkey: u32,
    /// Key of the memory region.
    pub rkey: u32,
    /// Its first byte.
    pub memory: u64,
}

/// The first line from the client.
#[derive(Serialize, Deserialize, Debug)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The program's version, for messages to people.
    pub version: String,
    /// What to do.
    pub plan: Plan,
    /// Where the client receives.
    pub endpoint: Endpoint,
}

/// The server's answer to it.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Welcome {
    /// Begin.
    Accepted {
        /// The server's queue pairs, one per peer of the plan.
        endpoints: Vec<Endpoint>,
    },
    /// Not now, or not at all.
    Refused {
        /// Why, and what to do.
        reason: String,
    },
    /// It went wrong before it began: the same line as [`Answer::Failed`].
    Failed {
        /// Why.
        reason: String,
    },
}

/// What the client asks for after that.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Get ready for a round.
    Round {
        /// Over what.
        carrier: Carrier,
    },
    /// The round is over; the client has nothing outstanding.
    End,
    /// The client has all it wanted.
    Bye,
}

/// What the server answers.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Ready for the round.
    Ready {
        /// TCP: where to connect.
        tcp_port: Option<u16>,
    },
    /// What the round was like.
    Report(Report),
    /// It went wrong.
    Failed {
        /// Why.
        reason: String,
    },
}

/// The server's part of a round.
#[derive(Clone, Default, Serialize, Deserialize, Debug)]
pub struct Report {
    /// Messages that arrived; 0 where the server's program takes no part in them.
    pub messages: u64,
    /// Sum of their numbers, where their content was checked.
    pub numbers: u64,
    /// Processor time used, in microseconds.
    pub cpu_us: f64,
    /// Packets (TCP: segments) sent again.
    pub retransmissions: u64,
}

/// One side of a control connection.
pub struct Control {
    stream: TcpStream,
    peer: String,
    received: Vec<u8>,
}

impl Control {
    /// Connects to a server, trying all addresses of the name.
    pub fn connect(host: &str, port: u16) -> anyhow::Result<Control> {
        let addresses: Vec<SocketAddr> =
            (host, port).to_socket_addrs().with_context(|| format!("{host} has no address"))?.collect();
        let mut last = anyhow!("{host} has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, ANSWER) {
                Ok(stream) => return Control::new(stream, format!("{host}:{port}")),
                Err(error) => last = explain(error, address),
            }
        }
        Err(last)
    }

    /// Takes an accepted connection.
    pub fn new(stream: TcpStream, peer: String) -> anyhow::Result<Control> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(ANSWER))?;
        Ok(Control { stream, peer, received: Vec::new() })
    }

    /// Who is at the other end, for messages.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The local address through which the other side is reached.
    pub fn local_address(&self) -> anyhow::Result<IpAddr> {
        Ok(self.stream.local_addr()?.ip().to_canonical())
    }

    /// The other side's address.
    pub fn peer_address(&self) -> anyhow::Result<IpAddr> {
        Ok(self.stream.peer_addr()?.ip().to_canonical())
    }

    /// Sends one line.
    pub fn send(&mut self, message: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.write_all(&line).with_context(|| format!("the connection to {} broke", self.peer))
    }

    /// Waits up to `limit` for a line.
    pub fn receive<T: DeserializeOwned>(&mut self, limit: Duration) -> anyhow::Result<T> {
        self.receive_meanwhile(limit, limit, || Ok(()))
    }

    /// The same, with `work` to be done each time that nothing has come for as long as `nap`.
    pub fn receive_meanwhile<T: DeserializeOwned>(
        &mut self,
        limit: Duration,
        nap: Duration,
        mut work: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(message) = self.take_line()? {
                return Ok(message);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // One who was stopped meanwhile finds the answer there.
                if let Some(message) = self.poll()? {
                    return Ok(message);
                }
                bail!("{} has not answered for {} s", self.peer, limit.as_secs());
            }
            self.stream.set_read_timeout(Some(left.min(nap)))?;
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(self.closed()),
                Ok(n) => self.received.extend_from_slice(&chunk[..n]),
                Err(error) if is_temporary(error.kind()) => work()?,
                Err(error) => {
                    return Err(error).with_context(|| format!("the connection to {} broke", self.peer));
                }
            }
        }
    }

    /// A line, if one is there; does not wait.
    pub fn poll<T: DeserializeOwned>(&mut self) -> anyhow::Result<Option<T>> {
        let mut chunk = [0; 4096];
        match recv(self.stream.as_raw_fd(), &mut chunk, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return Err(self.closed()),
            Ok(n) => self.received.extend_from_slice(&chunk[..n]),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("the connection to {} broke", self.peer));
            }
        }
        self.take_line()
    }

    /// Says goodbye and waits until the server has let go of everything, so that it is ready for the next client.
    pub fn part(mut self) -> anyhow::Result<()> {
        self.send(&Request::Bye)?;
        self.stream.set_read_timeout(Some(ANSWER))?;
        // Whatever ends this, there is nothing left to do.
        let _ = self.stream.read(&mut [0]);
        Ok(())
    }

    fn take_line<T: DeserializeOwned>(&mut self) -> anyhow::Result<Option<T>> {
        let Some(end) = self.received.iter().position(|&byte| byte == b'\n') else {
            if self.received.len() > LONGEST {
                bail!("{} does not speak the language of srd perf", self.peer);
            }
            return Ok(None);
        };
        let line: Vec<u8> = self.received.drain(..=end).collect();
        let message = serde_json::from_slice(&line)
            .with_context(|| format!("{} does not speak the language of srd perf", self.peer))?;
        Ok(Some(message))
    }

    fn closed(&self) -> anyhow::Error {
        anyhow!("{} has closed the connection: it was stopped or has died", self.peer)
    }
}

fn is_temporary(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn explain(error: std::io::Error, address: SocketAddr) -> anyhow::Error {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            anyhow!("nobody listens on {address}; start `srd perf server` there first")
        }
        ErrorKind::TimedOut => anyhow!(
            "no answer from {address} for {} s; is TCP port {} open in the firewalls between?",
            ANSWER.as_secs(),
            address.port()
        ),
        _ => anyhow!("cannot reach {address}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Control, Control) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = Control::connect("127.0.0.1", listener.local_addr().unwrap().port()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        (near, Control::new(stream, "client".into()).unwrap())
    }

    #[test]
    fn lines_arrive_whole_and_in_order() {
        let (mut near, mut far) = pair();
        near.send(&Request::Round { carrier: Carrier::Tcp }).unwrap();
        near.send(&Request::End).unwrap();
        let first: Request = far.receive(ANSWER).unwrap();
        assert!(matches!(first, Request::Round { carrier: Carrier::Tcp }));
        assert!(matches!(far.receive(ANSWER).unwrap(), Request::End));
        assert!(far.poll::<Request>().unwrap().is_none());
    }

    #[test]
    fn a_dead_peer_is_an_error_and_silence_ends() {
        let (mut near, far) = pair();
        let error = near.receive::<Request>(Duration::from_millis(20)).unwrap_err();
        assert!(error.to_string().contains("has not answered"), "{error}");
        drop(far);
        let error = near.receive::<Request>(ANSWER).unwrap_err();
        assert!(error.to_string().contains("has died"), "{error}");
        assert!(near.poll::<Request>().is_err());
    }

    #[test]
    fn an_answer_that_is_there_is_taken_however_late_it_is_looked_for() {
        let (mut near, mut far) = pair();
        far.send(&Answer::Failed { reason: "why".into() }).unwrap();
        let mut there = [0];
        near.stream.peek(&mut there).unwrap();
        let Welcome::Failed { reason } = near.receive(Duration::ZERO).unwrap() else {
            panic!("another answer")
        };
        assert_eq!(reason, "why");
    }

    #[test]
    fn a_stranger_is_recognised() {
        let (mut near, mut far) = pair();
        far.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let error = near.receive::<Answer>(ANSWER).unwrap_err();
        assert!(error.to_string().contains("does not speak"), "{error}");
    }

    #[test]
    fn a_refused_connection_says_what_to_start() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let error = Control::connect("127.0.0.1", port).err().unwrap();
        assert!(error.to_string().contains("srd perf server"), "{error}");
    }
}
