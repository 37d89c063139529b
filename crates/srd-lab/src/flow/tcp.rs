//! Flows over the kernel's TCP: a connection each, made before the start, as MPI's are.

use super::arrivals::Arrivals;
use super::clock::{now_ns, sleep_until};
use super::protocol::{ALL, Amount, Inbound, ListenAddr, Offer, Outbound, Received, Sent};
use super::tcp_info;
use anyhow::{Context, bail};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Bytes of a read or a write: what iperf3 uses.
const PIECE: usize = 128 << 10;
/// The same where the program has not all at once: as SRD's messages.
const STEP: usize = 8 << 10;
/// Longest wait for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether this kernel has that congestion control, or loads it when asked; if not, what it has, in words.
pub fn check(congestion: &str) -> anyhow::Result<()> {
    socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), congestion).map(drop)
}

fn socket(address: SocketAddr, congestion: &str) -> anyhow::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))
        .context("cannot open a TCP socket")?;
    socket.set_tcp_congestion(congestion.as_bytes()).with_context(|| {
        let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let available = available.unwrap_or_default();
        format!(
            "this kernel has no congestion control {congestion:?} for TCP; it has {} (or load it: modprobe tcp_{congestion})",
            available.trim()
        )
    })?;
    socket.set_tcp_nodelay(true).context("cannot set TCP_NODELAY")?;
    Ok(socket)
}

/// A receiver, before its sender has come.
pub struct Receiver {
    listener: TcpListener,
    flow: Inbound,
}

impl Receiver {
    /// Opens a port.
    pub fn open(address: IpAddr, flow: Inbound, congestion: &str) -> anyhow::Result<Receiver> {
        let at = SocketAddr::new(address, 0);
        let socket = socket(at, congestion)?;
        socket.bind(&SockAddr::from(at)).with_context(|| format!("cannot listen on {address}"))?;
        socket.listen(1).context("cannot listen")?;
        Ok(Receiver { listener: socket.into(), flow })
    }

    /// Where it is.
    pub fn listen_addr(&self) -> anyhow::Result<ListenAddr> {
        let at = self.listener.local_addr()?;
        Ok(ListenAddr { flow: self.flow.flow, address: at.ip(), port: at.port(), qpn: 0, qkey: 0 })
    }

    /// Receives until all is there, the connection ends or `until_ns` has come.
    pub fn run(self, start_ns: u64, until_ns: u64, bin_ns: u64) -> anyhow::Result<Received> {
        let mut arrivals = Arrivals::new(self.flow.clone(), start_ns, bin_ns);
        let (mut stream, _) = self.listener.accept().context("cannot accept a connection")?;
        let mut piece = vec![0; PIECE];
        let timed = matches!(self.flow.amount, Amount::ForNs(_));
        while !arrivals.is_complete() {
            let left = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
            if left.is_zero() {
                break;
            }
            stream.set_read_timeout(Some(left.max(Duration::from_micros(1))))?;
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(bytes) => arrivals.add(now_ns(), bytes as u64),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset && timed => break,
                Err(error) => return Err(error).context("receiving"),
            }
        }
        Ok(arrivals.close(until_ns))
    }
}

/// A sender with its connection.
pub struct Sender {
    stream: TcpStream,
    flow: Outbound,
}

impl Sender {
    /// Connects.
    pub fn open(address: IpAddr, flow: Outbound, congestion: &str) -> anyhow::Result<Sender> {
        let to = SocketAddr::new(flow.to.address, flow.to.port);
        let socket = socket(to, congestion)?;
        let from = SocketAddr::new(address, flow.source_port);
        socket.bind(&SockAddr::from(from)).with_context(|| format!("cannot send from {from}"))?;
        socket
            .connect_timeout(&SockAddr::from(to), PATIENCE)
            .with_context(|| format!("cannot connect to {to}"))?;
        Ok(Sender { stream: socket.into(), flow })
    }

    /// Sends from its beginning on, where the start is at `start_ns`.
    pub fn run(mut self, start_ns: u64, until_ns: u64) -> Sent {
        let begin_ns = start_ns + self.flow.begin_ns;
        sleep_until(begin_ns);
        let error = self.send(begin_ns, until_ns).err().map(|error| format!("{error:#}"));
        let info = tcp_info::of(&self.stream);
        let (packets, again) = info.map_or((0, 0), |info| (info.segments, info.again));
        Sent { flow: self.flow.flow, packets, again, error }
    }

    fn send(&mut self, begin_ns: u64, until_ns: u64) -> anyhow::Result<()> {
        let piece = vec![0x5a; PIECE];
        let (mut left, stop_ns) = match self.flow.amount {
            Amount::Bytes(bytes) => (bytes, until_ns),
            Amount::ForNs(span) => (u64::MAX, until_ns.min(begin_ns + span)),
        };
        let offer = Offer { begin_ns, bps: self.flow.offered_bps };
        let most = if offer.bps == ALL { PIECE } else { STEP };
        let mut sent = 0;
        while left > 0 {
            let here = left.min((most - (sent % most as u64) as usize) as u64);
            sleep_until(offer.has_had_at(sent + here).min(stop_ns));
            let time = Duration::from_nanos(stop_ns.saturating_sub(now_ns()));
            if time.is_zero() {
                break;
            }
            self.stream.set_write_timeout(Some(time.max(Duration::from_micros(1))))?;
            match self.stream.write(&piece[..here as usize]) {
                Ok(bytes) => (left, sent) = (left - bytes as u64, sent + bytes as u64),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("sending"),
            }
        }
        let Amount::Bytes(bytes) = self.flow.amount else {
            // Its time is over: what the kernel still holds must not go on beside flows that have not ended (socket(7), SO_LINGER).
            return SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).context("ending the flow");
        };
        if left > 0 {
            bail!("{left} bytes are not sent at the end of the time given");
        }
        // The kernel still sends what it has taken; what it sends again counts, too.
        while let Some(info) = tcp_info::of(&self.stream).filter(|info| info.acknowledged_bytes < bytes) {
            if now_ns() >= until_ns {
                let missing = bytes - info.acknowledged_bytes;
                bail!("{missing} bytes are not acknowledged at the end of the time given");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}
