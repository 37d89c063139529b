//! Flows over the kernel's TCP: a connection each, made before the start, as MPI's are.

use super::arrivals::Arrivals;
use super::clock::{now_ns, sleep_until};
use super::order::{Amount, Door, Inbound, Outbound, Received, Sent};
use super::tcp_info;
use anyhow::{Context, bail};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Bytes of a read or a write: what iperf3 uses.
const PIECE: usize = 128 << 10;
/// Longest wait for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Names the congestion controls that can be used here.
pub fn available() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default()
}

fn socket(address: SocketAddr, congestion: &str) -> anyhow::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))
        .context("cannot open a TCP socket")?;
    socket.set_tcp_congestion(congestion.as_bytes()).with_context(|| {
        format!(
            "this kernel has no congestion control {congestion:?} for TCP; it has {}(or load it: modprobe tcp_{congestion})",
            available().replace('\n', " ")
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
    pub fn door(&self) -> anyhow::Result<Door> {
        let at = self.listener.local_addr()?;
        Ok(Door { flow: self.flow.flow, address: at.ip(), port: at.port(), qpn: 0, qkey: 0 })
    }

    /// Receives until all is there, the connection ends or `until_ns` has come.
    pub fn run(self, start_ns: u64, until_ns: u64, bin_ns: u64) -> anyhow::Result<Received> {
        let mut arrivals = Arrivals::new(self.flow.flow, self.flow.amount, start_ns, bin_ns);
        let (mut stream, _) = self.listener.accept().context("cannot accept a connection")?;
        let mut piece = vec![0; PIECE];
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

    /// Sends from `start_ns` on.
    pub fn run(mut self, start_ns: u64, until_ns: u64) -> Sent {
        sleep_until(start_ns);
        let error = self.send(start_ns, until_ns).err().map(|error| format!("{error:#}"));
        let info = tcp_info::of(&self.stream);
        let (packets, again) = info.map_or((0, 0), |info| (info.segments, info.again));
        Sent { flow: self.flow.flow, packets, again, error }
    }

    fn send(&mut self, start_ns: u64, until_ns: u64) -> anyhow::Result<()> {
        let piece = vec![0x5a; PIECE];
        let (mut left, stop_ns) = match self.flow.amount {
            Amount::Bytes(bytes) => (bytes, until_ns),
            Amount::ForNs(span) => (u64::MAX, until_ns.min(start_ns + span)),
        };
        while left > 0 {
            let time = Duration::from_nanos(stop_ns.saturating_sub(now_ns()));
            if time.is_zero() {
                break;
            }
            self.stream.set_write_timeout(Some(time.max(Duration::from_micros(1))))?;
            match self.stream.write(&piece[..left.min(PIECE as u64) as usize]) {
                Ok(bytes) => left -= bytes as u64,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("sending"),
            }
        }
        let Amount::Bytes(bytes) = self.flow.amount else { return Ok(()) };
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
