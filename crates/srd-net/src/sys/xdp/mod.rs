//! AF_XDP sockets: short IPv4 datagrams that an XDP program takes from an interface before the kernel's network layers see them, and
//! that leave past its queueing discipline. The frames are those that UDP sockets send and receive. What the program takes no UDP
//! socket gets; everything else passes, and comes by those.
//!
//! A receive queue has one such socket, so that an interface serves one process, the first. Program, tables and sockets are held by
//! descriptors alone: they end with the process.
// What comes from peers goes through here: nothing of it may bring the process down.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

mod program;
mod queue;
mod socket;

use super::bpf::{self, Map, Program};
use super::link::{self, Link, Links};
use super::packet::{Captured, MOST_PORTS};
use super::process::monotonic_ns;
use super::route::Mac;
use super::shaper;
use socket::{Receiving, Sending, Socket};
use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{SystemTime, UNIX_EPOCH};

/// Receive queues that have sockets: what comes by others comes by UDP sockets.
pub const MOST_QUEUES: u32 = 64;

/// XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

const ETHERNET: usize = 14;
const IPV4: [u8; 2] = (libc::ETH_P_IP as u16).to_be_bytes();

/// The two clocks are compared this often: they drift apart by less than 0.1 us in this time.
const COMPARE_EVERY: u64 = 200_000;

/// Why there are no AF_XDP sockets.
#[derive(Debug)]
pub enum NoXdp {
    /// The interface has an XDP program.
    Attached {
        /// Its number; none if it went again meanwhile.
        number: Option<u32>,
        /// Its name, if we may know it.
        name: Option<String>,
    },
    /// Its addresses are no Ethernet ones.
    NoEthernet,
    /// Its queueing discipline limits its rate.
    Shaped,
    /// The system does not let us.
    System(Step, io::Error),
}

/// What the system did not let us do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Look at the interface.
    Look,
    /// Load a program.
    Load,
    /// Attach it.
    Attach,
    /// Make a socket.
    Socket,
    /// Bind it to a queue.
    Bind,
}

impl fmt::Display for NoXdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (step, error) = match self {
            NoXdp::Attached { number, name } => {
                let number = number.map(|number| format!(" {number}")).unwrap_or_default();
                return match name.as_deref() {
                    Some(program::NAME) => write!(
                        f,
                        "another process, or another engine of this one, has the AF_XDP sockets of the interface (XDP program{number}, {}), and only one can",
                        program::NAME
                    ),
                    name => write!(
                        f,
                        "the interface has an XDP program already (program{number}, {})",
                        name.unwrap_or("whose name only root may know")
                    ),
                };
            }
            NoXdp::NoEthernet => return f.write_str("AF_XDP sockets are used with Ethernet interfaces only"),
            NoXdp::Shaped => {
                return f.write_str("the interface is shaped (`tc qdisc`), which AF_XDP sockets go around");
            }
            NoXdp::System(step, error) => (step, error),
        };
        match (step, error.raw_os_error()) {
            (Step::Load | Step::Attach, Some(libc::EPERM)) => f.write_str(
                "XDP programs need CAP_BPF and CAP_NET_ADMIN, and AF_XDP sockets CAP_NET_RAW: run as root, or give them to the container or \
                 the program",
            ),
            (Step::Socket, Some(libc::EPERM)) => f.write_str(
                "AF_XDP sockets need CAP_NET_RAW: run as root, or give it to the container or the program",
            ),
            (Step::Socket, Some(libc::ENOBUFS)) => {
                f.write_str("AF_XDP sockets lock their memory, 2.5 MiB for each receive queue: raise `ulimit -l`")
            }
            (Step::Socket, Some(libc::EAFNOSUPPORT)) => f.write_str("this kernel has no AF_XDP sockets"),
            (Step::Look, _) => write!(f, "the interface cannot be looked at: {error}"),
            (Step::Load, _) => write!(f, "the system does not load an XDP program: {error}"),
            (Step::Attach, _) => write!(f, "the system does not attach an XDP program: {error}"),
            (Step::Socket, _) => write!(f, "the system gives no AF_XDP socket: {error}"),
            (Step::Bind, Some(libc::EBUSY)) => {
                f.write_str("another process has the interface's receive queue (an AF_XDP socket)")
            }
            (Step::Bind, _) => write!(f, "the system does not bind an AF_XDP socket: {error}"),
        }
    }
}

fn at(step: Step) -> impl Fn(io::Error) -> NoXdp {
    move |error| NoXdp::System(step, error)
}

/// How frames come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The kernel makes packets of them first, and then asks the program.
    Generic,
    /// The driver asks the program; the kernel copies.
    Native,
    /// The driver asks the program, and puts them into our memory itself.
    ZeroCopy,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Generic => "generic mode, copies",
            Mode::Native => "native mode, copies",
            Mode::ZeroCopy => "native mode, zero copy",
        })
    }
}

/// All that is needed before anything changes for the interface.
struct Prepared {
    links: Links,
    mac: Mac,
    /// What its driver can do ([`features`]).
    features: Option<(bool, bool)>,
    wanted: Map,
    sockets: Map,
    program: Program,
}

impl Prepared {
    fn new(interface: u32) -> Result<Prepared, NoXdp> {
        let links = Links::open().map_err(at(Step::Look))?;
        let link = links.look(interface).map_err(at(Step::Look))?;
        let mac = link.mac.ok_or(NoXdp::NoEthernet)?;
        if shaper::bytes_per_s(interface).map_err(at(Step::Look))?.is_some() {
            return Err(NoXdp::Shaped);
        }
        if link.program.is_some() {
            return Err(attached(link.program));
        }
        // An address may change: for a moment there are keys with both.
        let wanted =
            Map::new(bpf::HASH, program::KEY, 2 * MOST_PORTS, "srd_wanted").map_err(at(Step::Load))?;
        let sockets = Map::new(bpf::SOCKETS, size_of::<u32>(), MOST_QUEUES as usize, "srd_sockets")
            .map_err(at(Step::Load))?;
        let program = Program::load(&program::instructions(&wanted, &sockets), program::NAME)
            .map_err(at(Step::Load))?;
        Ok(Prepared { links, mac, features: features(interface, link), wanted, sockets, program })
    }

    /// Attaches the program: by the driver, or where that cannot, behind it. Says whether it is the driver.
    fn attach(&self, interface: u32) -> Result<(bpf::Link, bool), NoXdp> {
        let refused = |error: io::Error| match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => {
                attached(self.links.look(interface).ok().and_then(|link| link.program))
            }
            _ => NoXdp::System(Step::Attach, error),
        };
        if self.features.is_none_or(|(native, _)| native) {
            match self.program.attach(interface, NATIVE).map_err(refused) {
                Ok(link) => return Ok((link, true)),
                Err(NoXdp::System(..)) => {}
                Err(attached) => return Err(attached),
            }
        }
        self.program.attach(interface, GENERIC).map(|link| (link, false)).map_err(refused)
    }
}

/// Whether the driver of an interface is to run programs, and whether it fills sockets' memory itself; `None`: the kernel does not say.
///
/// Not that of a virtual pair: its other end would cut long packets itself from then on. Nor those that run programs, and then
/// drop what these hand to sockets.
fn features(interface: u32, link: Link) -> Option<(bool, bool)> {
    if link.is_veth { Some((false, false)) } else { link::xdp_features(interface).ok() }
}

fn attached(number: Option<u32>) -> NoXdp {
    NoXdp::Attached { number, name: number.and_then(|number| bpf::program_name(number).ok()) }
}

/// Whether there could be AF_XDP sockets at an interface, tried as far as it goes without attaching a program, and how frames would come,
/// if the kernel says so.
pub fn check(interface: u32) -> Result<Option<Mode>, NoXdp> {
    let prepared = Prepared::new(interface)?;
    Socket::open().map_err(at(Step::Socket))?;
    Ok(prepared.features.map(|features| match features {
        (true, true) => Mode::ZeroCopy,
        (true, false) => Mode::Native,
        (false, _) => Mode::Generic,
    }))
}

/// Both directions of what goes to and from `address` by an Ethernet interface. Needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW.
pub fn open(interface: u32, address: Ipv4Addr) -> Result<(XdpRing, XdpSender), NoXdp> {
    let prepared = Prepared::new(interface)?;
    let links = Links::open().map_err(at(Step::Look))?;
    let (receiving, sending) = Socket::open().map_err(at(Step::Socket))?;
    let (link, native) = prepared.attach(interface)?;
    receiving.socket.bind(interface, 0, !native).map_err(at(Step::Bind))?;
    let zero_copy = receiving.socket.is_zero_copy();
    let mode = match (native, zero_copy) {
        (false, _) => Mode::Generic,
        (true, false) => Mode::Native,
        (true, true) => Mode::ZeroCopy,
    };
    let Prepared { links: ring_links, mac, wanted, sockets, .. } = prepared;
    let mut queues = vec![receiving];
    for queue in 1..MOST_QUEUES {
        let Ok((other, _)) = Socket::open() else { break };
        if other.socket.bind(interface, queue, !zero_copy).is_err() {
            break; // there are no more, or somebody has it
        }
        queues.push(other);
    }
    for (queue, receiving) in (0u32..).zip(&queues) {
        sockets.set(&queue.to_ne_bytes(), Some(receiving.socket.number())).map_err(at(Step::Socket))?;
    }
    let ring = XdpRing {
        queues,
        next: 0,
        program: Some(Attached { wanted, _sockets: sockets, _link: link }),
        mode,
        interface,
        address,
        mac,
        ports: Vec::new(),
        links: ring_links,
        offset: 0,
        compared_at: 0,
    };
    Ok((ring, XdpSender { sending, interface, mac, links }))
}

/// The program at the interface, as long as this lives.
#[derive(Debug)]
struct Attached {
    wanted: Map,
    _sockets: Map,
    _link: bpf::Link,
}

/// Receives what comes to some UDP ports of one address by one interface.
#[derive(Debug)]
pub struct XdpRing {
    /// By receive queue.
    queues: Vec<Receiving>,
    /// The one that is looked at first.
    next: usize,
    /// None: it is closed.
    program: Option<Attached>,
    mode: Mode,
    interface: u32,
    address: Ipv4Addr,
    mac: Mac,
    ports: Vec<u16>,
    links: Links,
    /// Real time less monotonic time, and when they were compared.
    offset: u64,
    compared_at: u64,
}

impl XdpRing {
    /// Takes from this UDP port, too, from now on. False if there is no room for another one.
    pub fn add_port(&mut self, port: u16) -> io::Result<bool> {
        let Some(program) = &self.program else { return Ok(false) };
        if self.ports.len() == MOST_PORTS {
            return Ok(false);
        }
        program.wanted.set(&program::key(self.mac, port, self.address), Some(1))?;
        self.ports.push(port);
        Ok(true)
    }

    /// Takes nothing more; what it has is still to be taken.
    pub fn close(&mut self) {
        self.program = None;
    }

    /// Whether it takes nothing more.
    pub fn is_closed(&self) -> bool {
        self.program.is_none()
    }

    /// How frames come.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The oldest packet of a queue, if there is one that has come until then; it is the kernel's again when `f` returns.
    #[inline]
    pub fn take<R>(&mut self, until: u64, f: impl FnOnce(Captured<'_>) -> R) -> Option<R> {
        for _ in 0..self.queues.len() {
            let queue = self.queues.get_mut(self.next)?;
            if let Some((stamp, frame)) = queue.first(program::STAMP) {
                let stamp = stamp.first_chunk().map_or(0, |&stamp| u64::from_ne_bytes(stamp));
                if stamp.wrapping_sub(self.compared_at) > COMPARE_EVERY {
                    self.compared_at = monotonic_ns();
                    let real =
                        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_nanos() as u64);
                    self.offset = real.wrapping_sub(self.compared_at);
                }
                let arrived = stamp.wrapping_add(self.offset);
                if arrived <= until {
                    let bytes = frame.get_mut(ETHERNET..).unwrap_or_default();
                    let result = f(Captured { bytes, segment: None, checked: false, arrived });
                    queue.advance();
                    return Some(result);
                }
            }
            self.next = if self.next + 1 < self.queues.len() { self.next + 1 } else { 0 };
        }
        None
    }

    /// Packets that it had no room for.
    pub fn dropped(&self) -> u32 {
        self.queues.iter().map(|queue| queue.socket.dropped()).fold(0, u64::wrapping_add) as u32
    }

    /// Whether it still belongs to its interface. Follows that to another address.
    #[cold]
    pub fn is_bound(&mut self) -> bool {
        if let Ok(link) = self.links.look(self.interface)
            && let Some(mac) = link.mac.filter(|&mac| mac != self.mac)
            && let Some(program) = &self.program
        {
            for &port in &self.ports {
                // Without it its packets come by UDP sockets.
                let _ = program.wanted.set(&program::key(mac, port, self.address), Some(1));
                let _ = program.wanted.set(&program::key(self.mac, port, self.address), None);
            }
            self.mac = mac;
        }
        self.queues.iter().all(|queue| queue.socket.is_bound())
    }

    /// What to sleep on.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.socket.as_fd())
    }
}

/// Sends IPv4 packets to neighbours.
#[derive(Debug)]
pub struct XdpSender {
    sending: Sending,
    interface: u32,
    mac: Mac,
    links: Links,
}

impl XdpSender {
    /// Sends a packet, header and what follows it. Never blocks.
    #[inline]
    pub fn send(&mut self, to: Mac, header: &[u8], payload: &[u8]) -> io::Result<()> {
        let ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5], [t0, t1]) = (to, self.mac, IPV4);
        let ethernet: [u8; ETHERNET] = [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1];
        self.sending.send([&ethernet, header, payload])
    }

    /// Follows the interface to another address.
    #[cold]
    pub fn look(&mut self) {
        if let Ok(link) = self.links.look(self.interface)
            && let Some(mac) = link.mac
        {
            self.mac = mac;
        }
    }
}
