//! The baseline: the same shapes over the kernel's TCP, as a program that wants the most of it would write them.
//!
//! `TCP_NODELAY` throughout. Polling sides spin on non-blocking sockets. A bandwidth test writes as much at a time as
//! iperf3 does. A message-rate test writes each message on its own, as programs do that send messages, but its
//! receiver takes all that is there with one read and acknowledges it with one write.

use super::histogram::Histogram;
use super::memory;
use super::pattern::fill;
use super::plan::{Amount, Op, Plan, Test};
use super::round::{Arrived, Clock, Counted};
use super::watch::{NAP, Next, Watch};
use anyhow::{Context, bail};
use nix::sys::socket::{MsgFlags, recv};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// What iperf3 writes and reads at a time.
const CHUNK: usize = super::memory::SHARED_BYTES;

/// Bytes that ask for a read: an address, a key and a length.
const READ_REQUEST: usize = 16;

/// One side's connections.
pub struct TcpSide {
    links: Vec<Link>,
    plan: Plan,
}

/// Bytes of a message from the client, and of the server's answer to it.
fn sizes(plan: &Plan) -> (usize, usize) {
    let size = plan.size as usize;
    match (plan.test, plan.op) {
        (_, Op::Read) => (READ_REQUEST, size),
        (Test::Latency, _) => (size, size),
        // A byte for each message says that it has arrived, as a send's completion does.
        (Test::Msgrate, _) => (size, 1),
        (Test::Bandwidth, _) => (size, 0),
    }
}

impl TcpSide {
    /// Connects to a server, once per peer of the plan.
    pub fn connect(server: IpAddr, port: u16, plan: &Plan, limit: Duration) -> anyhow::Result<TcpSide> {
        let address = SocketAddr::new(server, port);
        let links = (0..plan.peers)
            .map(|_| {
                let stream = TcpStream::connect_timeout(&address, limit).with_context(|| {
                    format!("cannot reach TCP port {address}, which the server has just opened")
                })?;
                Link::new(stream, plan, sizes(plan).0, plan.op == Op::Read || plan.test == Test::Latency)
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(TcpSide { links, plan: plan.clone() })
    }

    /// Accepts one connection per peer of the plan.
    pub fn accept(listener: &TcpListener, plan: &Plan, limit: Duration) -> anyhow::Result<TcpSide> {
        listener.set_nonblocking(true)?;
        let deadline = Instant::now() + limit;
        let mut links = Vec::new();
        while links.len() < usize::from(plan.peers) {
            match listener.accept() {
                Ok((stream, _)) => links.push(Link::new(stream, plan, sizes(plan).1, plan.op != Op::Read)?),
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error).context("the client's TCP connection has not come"),
            }
        }
        Ok(TcpSide { links, plan: plan.clone() })
    }

    /// The client's part of a round.
    pub fn run(
        &mut self,
        amount: Amount,
        histogram: &mut Histogram,
        watch: &mut Watch,
    ) -> anyhow::Result<Counted> {
        let counted = match (self.plan.test, self.plan.op) {
            (Test::Bandwidth, Op::Read) => self.soak(amount, histogram, watch),
            (Test::Bandwidth, _) => self.flood(amount, histogram, watch),
            _ => self.exchange(amount, histogram, watch),
        }?;
        for link in &mut self.links {
            link.stream.shutdown(Shutdown::Write)?;
        }
        self.read_to_end(watch)?;
        Ok(counted)
    }

    /// The server's part of a round, until the client closes its connections.
    pub fn serve(&mut self, watch: &mut Watch) -> anyhow::Result<Arrived> {
        match (self.plan.test, self.plan.op) {
            (Test::Bandwidth, Op::Read) => self.flood_until_end(watch)?,
            (Test::Bandwidth, _) => self.read_to_end(watch)?,
            _ => self.answer(watch)?,
        }
        let messages = match (self.plan.test, self.plan.op) {
            (_, Op::Read) => 0,
            _ => self.links.iter().map(|link| link.received / u64::from(self.plan.size)).sum(),
        };
        Ok(Arrived { messages, numbers: 0 })
    }

    /// A window of messages outstanding, each answered.
    fn exchange(
        &mut self,
        amount: Amount,
        histogram: &mut Histogram,
        watch: &mut Watch,
    ) -> anyhow::Result<Counted> {
        let answer = sizes(&self.plan).1 as u64;
        let mut clock = Clock::start(amount);
        let (mut sent, mut answered) = (0, 0);
        let mut began = Instant::now();
        loop {
            while sent - answered < u64::from(self.plan.window) {
                let turn = sent as usize % self.links.len();
                self.links[turn].write_messages(1, watch)?;
                sent += 1;
            }
            let mut now_answered = answered;
            while now_answered == answered {
                let mut found = false;
                for link in self.links.iter_mut().filter(|link| link.received < link.number * answer) {
                    found |= link.read_or_fail(watch)?;
                }
                if found {
                    now_answered = self.links.iter().map(|link| link.received / answer).sum();
                } else {
                    self.pause(watch)?;
                }
            }
            answered = now_answered;
            let now = Instant::now();
            histogram.record((now - began).as_nanos() as u64);
            began = now;
            if clock.is_over(now, answered, histogram) {
                let counted = clock.counted(now, answered);
                return Ok(Counted { all_messages: sent, ..counted });
            }
        }
    }

    /// Writes as fast as the connections take it.
    fn flood(
        &mut self,
        amount: Amount,
        histogram: &mut Histogram,
        watch: &mut Watch,
    ) -> anyhow::Result<Counted> {
        let mut clock = Clock::start(amount);
        let mut sent = 0;
        loop {
            for link in &mut self.links {
                sent += link.write_chunk(watch)?;
            }
            let now = Instant::now();
            if clock.is_over(now, sent, histogram) {
                return Ok(clock.counted(now, sent));
            }
        }
    }

    /// Reads as fast as the connections give it.
    fn soak(
        &mut self,
        amount: Amount,
        histogram: &mut Histogram,
        watch: &mut Watch,
    ) -> anyhow::Result<Counted> {
        let mut clock = Clock::start(amount);
        loop {
            let mut found = false;
            for link in &mut self.links {
                found |= link.read_or_fail(watch)?;
            }
            if !found {
                self.pause(watch)?;
                continue;
            }
            let messages =
                self.links.iter().map(|link| link.received).sum::<u64>() / u64::from(self.plan.size);
            let now = Instant::now();
            if clock.is_over(now, messages, histogram) {
                return Ok(clock.counted(now, messages));
            }
        }
    }

    /// Answers messages until the client closes.
    fn answer(&mut self, watch: &mut Watch) -> anyhow::Result<()> {
        let request = sizes(&self.plan).0 as u64;
        while self.links.iter().any(|link| !link.ended) {
            let mut found = false;
            for link in self.links.iter_mut().filter(|link| !link.ended) {
                found |= link.read(watch)?;
                let waiting = link.received / request - link.number;
                if waiting > 0 {
                    link.write_messages(waiting as usize, watch)?;
                }
            }
            if !found && self.pause(watch)? == Next::Stop {
                break;
            }
        }
        Ok(())
    }

    /// Writes until the client closes.
    fn flood_until_end(&mut self, watch: &mut Watch) -> anyhow::Result<()> {
        while self.links.iter().any(|link| !link.ended) {
            for link in self.links.iter_mut().filter(|link| !link.ended) {
                link.write_chunk(watch)?;
                if link.has_ended()? {
                    link.stream.shutdown(Shutdown::Write)?;
                    link.ended = true;
                }
            }
        }
        Ok(())
    }

    /// Reads until the other side has sent all.
    fn read_to_end(&mut self, watch: &mut Watch) -> anyhow::Result<()> {
        while self.links.iter().any(|link| !link.ended) {
            let mut found = false;
            for link in self.links.iter_mut().filter(|link| !link.ended) {
                found |= link.read(watch)?;
            }
            if !found && self.pause(watch)? == Next::Stop {
                break;
            }
        }
        Ok(())
    }

    fn pause(&self, watch: &mut Watch) -> anyhow::Result<Next> {
        // A blocking read has already slept.
        if self.plan.blocking { watch.look() } else { watch.idle() }
    }
}

/// One connection and how far it has come.
struct Link {
    stream: TcpStream,
    blocking: bool,
    size: usize,
    check: bool,
    /// What is read into.
    buffer: Vec<u8>,
    /// What is written: a number of messages.
    outgoing: Vec<u8>,
    /// Bytes of one of them.
    message: usize,
    /// Number of the next message to write.
    number: u64,
    /// Bytes read so far.
    received: u64,
    /// Follows the content of what is read.
    verifier: Option<Verifier>,
    /// The other side has closed its direction.
    ended: bool,
}

impl Link {
    /// A side that writes messages of `message` bytes. `full` messages come back: of the plan's size.
    fn new(stream: TcpStream, plan: &Plan, message: usize, full: bool) -> anyhow::Result<Link> {
        stream.set_nodelay(true)?;
        if plan.blocking {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(NAP))?;
            stream.set_write_timeout(Some(NAP))?;
        } else {
            stream.set_nonblocking(true)?;
        }
        let size = plan.size as usize;
        // Room for a window of messages that are answered, and for whole ones of at least a chunk.
        let window =
            if plan.test == Test::Bandwidth { 0 } else { message.saturating_mul(plan.window as usize) };
        let room = if message == size { window.max(size * CHUNK.div_ceil(size)) } else { window };
        let verified = plan.check && full;
        memory::require((room as u64).saturating_add(if verified { size as u64 } else { 0 }), plan)?;
        Ok(Link {
            stream,
            blocking: plan.blocking,
            size,
            check: plan.check && message == size,
            buffer: vec![0; CHUNK],
            // Not zeroes: the system would read one page of zeroes over and over, which lies in the nearest cache.
            outgoing: vec![1; room],
            message,
            number: 0,
            received: 0,
            verifier: verified.then(|| Verifier::new(size)),
            ended: false,
        })
    }

    /// Writes `count` messages with one call.
    fn write_messages(&mut self, count: usize, watch: &mut Watch) -> anyhow::Result<()> {
        let bytes = count * self.message;
        if bytes > self.outgoing.len() {
            bail!("more messages have come than the window allows");
        }
        self.write(count, bytes, watch)
    }

    /// Writes as many whole messages as make a chunk. Returns how many.
    fn write_chunk(&mut self, watch: &mut Watch) -> anyhow::Result<u64> {
        let count = CHUNK.div_ceil(self.size);
        self.write(count, count * self.size, watch)?;
        Ok(count as u64)
    }

    fn write(&mut self, count: usize, bytes: usize, watch: &mut Watch) -> anyhow::Result<()> {
        if self.check {
            for (index, message) in self.outgoing[..bytes].chunks_mut(self.size).enumerate() {
                fill(message, self.number + index as u64);
            }
        }
        self.number += count as u64;
        let mut rest = &self.outgoing[..bytes];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(written) => {
                    watch.progress();
                    rest = &rest[written..];
                }
                Err(error) if is_temporary(error.kind()) => {
                    let next = if self.blocking { watch.look()? } else { watch.idle()? };
                    if next == Next::Stop {
                        bail!("the round has ended while messages were on their way");
                    }
                }
                Err(error) => return Err(error).context("the TCP connection broke"),
            }
        }
        Ok(())
    }

    /// Reads what is there. Returns whether that was anything, the end included.
    fn read(&mut self, watch: &mut Watch) -> anyhow::Result<bool> {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => {
                self.ended = true;
                Ok(true)
            }
            Ok(count) => {
                watch.progress();
                self.received += count as u64;
                if let Some(verifier) = &mut self.verifier {
                    verifier.take(&self.buffer[..count])?;
                }
                Ok(true)
            }
            Err(error) if is_temporary(error.kind()) => Ok(false),
            Err(error) => Err(error).context("the TCP connection broke"),
        }
    }

    /// As [`Link::read`], where the end comes too early.
    fn read_or_fail(&mut self, watch: &mut Watch) -> anyhow::Result<bool> {
        let found = self.read(watch)?;
        if self.ended {
            bail!("the other side has closed its TCP connection");
        }
        Ok(found)
    }

    /// Whether the other side, of whom nothing is expected, has closed its direction.
    fn has_ended(&self) -> anyhow::Result<bool> {
        Ok(recv(self.stream.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT) == Ok(0))
    }
}

fn is_temporary(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Compares a stream of messages, which arrive in pieces of any length, with what it should be.
struct Verifier {
    expected: Vec<u8>,
    number: u64,
    position: usize,
}

impl Verifier {
    fn new(size: usize) -> Verifier {
        let mut expected = vec![0; size];
        fill(&mut expected, 0);
        Verifier { expected, number: 0, position: 0 }
    }

    fn take(&mut self, mut bytes: &[u8]) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            let here = bytes.len().min(self.expected.len() - self.position);
            if bytes[..here] != self.expected[self.position..][..here] {
                bail!("TCP message {} is corrupt near its byte {}", self.number, self.position);
            }
            bytes = &bytes[here..];
            self.position += here;
            if self.position == self.expected.len() {
                self.position = 0;
                self.number += 1;
                fill(&mut self.expected, self.number);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::control::{ANSWER, Control, Request};
    use crate::perf::watch::Role;

    /// Both sides of one round in this process: what the client counted and what arrived.
    fn round(plan: &Plan, messages: u64) -> (Counted, Arrived) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut near = Control::connect("127.0.0.1", port).unwrap();
        let mut far = Control::new(listener.accept().unwrap().0, "client".into()).unwrap();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut side = TcpSide::accept(&listener, plan, ANSWER).unwrap();
                let mut watch = Watch::new(&mut far, Role::Server, plan.timeout());
                let arrived = side.serve(&mut watch).unwrap();
                drop(side);
                watch.wait_for_end().unwrap();
                arrived
            });
            let mut side = TcpSide::connect("127.0.0.1".parse().unwrap(), port, plan, ANSWER).unwrap();
            let mut watch = Watch::new(&mut near, Role::Client, plan.timeout());
            let counted = side.run(Amount::Messages(messages), &mut Histogram::new(), &mut watch).unwrap();
            near.send(&Request::End).unwrap();
            (counted, server.join().unwrap())
        })
    }

    fn plan(test: Test, op: Op) -> Plan {
        let window = if test == Test::Latency { 1 } else { 16 };
        Plan { test, op, size: 300, window, blocking: false, check: true, peers: 1, timeout_ms: 10_000 }
    }

    #[test]
    fn every_shape_brings_every_message_unharmed() {
        for test in [Test::Latency, Test::Bandwidth, Test::Msgrate] {
            for op in [Op::Send, Op::Write, Op::Read] {
                for (blocking, peers) in [(false, 1), (true, 1), (false, 3)] {
                    let plan = Plan { blocking, peers, ..plan(test, op) };
                    let (counted, arrived) = round(&plan, 1000);
                    assert!(counted.messages >= 1000, "{plan:?}: {counted:?}");
                    let expected = if op == Op::Read { 0 } else { counted.all_messages };
                    assert_eq!(arrived.messages, expected, "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn messages_longer_than_the_socket_buffers_pass() {
        for test in [Test::Latency, Test::Bandwidth, Test::Msgrate] {
            for blocking in [false, true] {
                let plan = Plan { size: 9_000_001, window: 1, blocking, ..plan(test, Op::Send) };
                assert!(round(&plan, 3).0.messages >= 3);
            }
        }
    }

    #[test]
    fn a_stream_is_verified_whatever_its_pieces() {
        let mut stream = vec![0; 13 * 50];
        stream.chunks_mut(13).enumerate().for_each(|(number, message)| fill(message, number as u64));
        for piece in [1, 5, 13, 14, 600] {
            let mut verifier = Verifier::new(13);
            stream.chunks(piece).for_each(|bytes| verifier.take(bytes).unwrap());
        }
        stream[600] ^= 1;
        let error = Verifier::new(13).take(&stream).unwrap_err();
        assert!(error.to_string().contains("message 46 is corrupt"), "{error}");
    }
}
