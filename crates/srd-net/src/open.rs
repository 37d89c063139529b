//! What an instance needs of the system before it can run: an address, a port, a key. Each failure says what was
//! tried, why it failed, and what to do.

use crate::address::LocalAddress;
use crate::fault::Injector;
use crate::key_file;
use crate::log;
use crate::options::{LogLevel, Options, WIRES, Wire};
use crate::packet_wire::{NoWire, PacketWire};
use crate::short_ring::{Ring, UDP_SOCKETS};
use crate::simulated::{self, Fabric};
use crate::slots::SLOTS;
use crate::source_ports::SourcePorts;
use crate::sys::udp::{ReceiveSocket, scoped};
use crate::transmit::Transmitter;
use rand::TryRngCore;
use rand::rngs::OsRng;
use srd_device::{Device, DeviceConfig, HostMemory};
use srd_proto::Config;
use srd_wire::seal::{Keyring, Limits, Psk};
use srd_wire::{Incarnation, InstanceAddr};
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Why an instance could not be opened: what failed, where, and what to do.
#[derive(Debug)]
pub struct OpenError {
    /// What failed.
    pub what: String,
    /// The system's reason, if it was the system that refused.
    pub source: Option<io::Error>,
    /// What to do.
    pub advice: String,
}

impl OpenError {
    pub(crate) fn new(
        what: impl Into<String>,
        source: Option<io::Error>,
        advice: impl Into<String>,
    ) -> OpenError {
        OpenError { what: what.into(), source, advice: advice.into() }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        write!(f, "; {}", self.advice)
    }
}

impl std::error::Error for OpenError {} // the text names the source already

/// What to do about an error of the system that nobody expects.
pub(crate) fn advice_for(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE) => "raise `ulimit -n`, or lower SRD_PATHS: each path takes two sockets",
        Some(libc::ENFILE) => "the system has no open file left; see fs.file-max",
        Some(libc::ENOMEM | libc::ENOBUFS) => "the system is out of memory",
        _ => "the system lacks something that is always there",
    }
}

/// The local address of an instance with these options, and what else can be known to be wrong with them before one is
/// opened: an interface that does not carry so much, a key that cannot be read.
pub fn check(options: &Options) -> Result<LocalAddress, OpenError> {
    options.key_file.as_deref().map(key_file::check).transpose()?;
    find_address(options)
}

/// The simulated network, if the process is in one.
pub(crate) fn find_fabric() -> Result<Option<Fabric>, OpenError> {
    simulated::fabric().map_err(|why| OpenError::new(why.what, why.source, why.advice))
}

pub(crate) fn find_address(options: &Options) -> Result<LocalAddress, OpenError> {
    if let Some(fabric) = find_fabric()? {
        return Ok(fabric.local());
    }
    let local = LocalAddress::find(&options.addr).map_err(|e| {
        OpenError::new(e.to_string(), None, "set SRD_ADDR to an address or interface of this host")
    })?;
    match options.mtu {
        Some(mtu) if mtu as u32 > local.mtu => Err(OpenError::new(
            format!("SRD_MTU is {mtu}, but {} carries no packet above {} bytes", local.interface, local.mtu),
            None,
            "lower SRD_MTU, or unset it to use what the interface carries",
        )),
        _ => Ok(local),
    }
}

/// A number that nobody can guess; in a simulated fabric one of its seed.
pub fn random() -> Result<u64, OpenError> {
    if let Some(fabric) = find_fabric()? {
        return Ok(fabric.random());
    }
    OsRng.try_next_u64().map_err(|e| {
        OpenError::new(format!("the system gives no random numbers: {e}"), None, "see getrandom(2)")
    })
}

/// Binds to the lowest free port of the host's slots.
pub(crate) fn take_slot(
    local: &LocalAddress,
    base: u16,
    rcvbuf: u64,
) -> Result<(u16, ReceiveSocket), OpenError> {
    let last = base.saturating_add(SLOTS - 1);
    for port in base..=last {
        match bind(local, port, rcvbuf) {
            Err(e) if is_taken(&e) => {}
            taken => return taken.map(|socket| (port, socket)),
        }
    }
    Err(OpenError::new(
        format!("every UDP port from {base} to {last} of {} is in use", local.ip),
        Some(io::Error::from_raw_os_error(libc::EADDRINUSE)),
        format!(
            "end processes that hold them (`ss -ulnp 'sport >= {base}'` lists them), or set SRD_PORT_BASE"
        ),
    ))
}

/// Binds to this port.
pub(crate) fn bind(local: &LocalAddress, port: u16, rcvbuf: u64) -> Result<ReceiveSocket, OpenError> {
    let addr: SocketAddr = scoped(local.ip, port, local.index);
    ReceiveSocket::bind(addr, rcvbuf).map_err(|e| {
        let advice = match e.kind() {
            io::ErrorKind::AddrInUse => "another process has the numbers of that port; choose another number",
            io::ErrorKind::AddrNotAvailable => "the address has gone from its interface",
            io::ErrorKind::PermissionDenied => "set SRD_PORT_BASE to ports that this user may bind",
            _ => "raise `ulimit -n` if there are too many open files",
        };
        OpenError::new(format!("cannot receive on UDP {addr}"), Some(e), advice)
    })
}

/// Whether it is another socket that is in the way.
pub(crate) fn is_taken(error: &OpenError) -> bool {
    error.source.as_ref().is_some_and(|source| source.kind() == io::ErrorKind::AddrInUse)
}

/// The sockets to send from, and the faults that are put into what they send. Tells the transport what they can do.
pub(crate) fn open_transmitter(
    options: &Options,
    local: &LocalAddress,
    fabric: Option<Fabric>,
    transport: &mut Config,
) -> Result<Transmitter, OpenError> {
    let injector =
        options.fault.clone().map(|plan| Injector::new(plan, options.paths, options.key_file.is_some()));
    let ports = match fabric {
        Some(fabric) => Ok(SourcePorts::simulated(local.clone(), fabric)),
        None => SourcePorts::open(local.clone(), transport.entropy),
    };
    let ports = ports.map_err(|e| {
        OpenError::new(
            format!("cannot open a UDP socket to send from {}", local.ip),
            Some(e),
            "raise `ulimit -n` if there are too many open files",
        )
    })?;
    if let Some(plan) = &options.fault {
        let ports = ports.count();
        log::warn_once(format_args!(
            "SRD_FAULT=\"{}\" is set: packets are lost, delayed or changed, or work fails, on purpose",
            plan.text
        ));
        if let Some(port) = plan.blackhole.filter(|&port| port as usize >= ports) {
            return Err(OpenError::new(
                format!("SRD_FAULT: there is no source port {port}, only 0 to {}", ports - 1),
                None,
                "name ports below twice SRD_PATHS",
            ));
        }
    }
    let transmitter = Transmitter::new(ports, injector);
    transport.entropy = transmitter.source_ports() as u16;
    if !transmitter.has_gso() {
        transport.burst_bytes = transport.max_datagram as u32;
    }
    Ok(transmitter)
}

/// The receiver of short packets past the UDP sockets, if `options` ask for it and the system permits it. `transmitter` sends
/// its short packets so, too. Instead of AF_XDP sockets there may be packet sockets.
pub(crate) fn open_ring(
    options: &Options,
    local: &LocalAddress,
    slot: u16,
    transmitter: &mut Transmitter,
) -> Option<Ring> {
    let asked = options.wire;
    let mut why_not = Vec::new();
    let mut open = |wire| match PacketWire::open(wire, local, slot) {
        Ok((wire, ring)) => {
            transmitter.send_short_by(wire);
            Some(ring)
        }
        Err(why) => {
            why_not.push(why);
            None
        }
    };
    let ring = open(asked).or_else(|| if asked == Wire::Xdp { open(Wire::Packet) } else { None });
    let by = ring.as_ref().map_or_else(|| UDP_SOCKETS.to_owned(), Ring::to_string);
    let why: Vec<_> =
        why_not.iter().filter(|why| !matches!(why, NoWire::NotAsked)).map(NoWire::to_string).collect();
    if why.is_empty() {
        return ring;
    }
    let why = why.join("; ");
    match WIRES.iter().find(|(_, wire)| *wire == asked && asked != Wire::Auto) {
        Some((name, _)) => {
            log::warn_once(format_args!("SRD_WIRE={name}: short packets travel by {by} all the same: {why}"))
        }
        None => log::say(LogLevel::Info, format_args!("short packets travel by {by}: {why}")),
    }
    ring
}

/// A new incarnation of the device, and its keys if there is a pre-shared one.
pub(crate) fn make_device(
    options: &Options,
    address: InstanceAddr,
    transport: Config,
    psk: Option<Psk>,
) -> Result<(Device<HostMemory>, Option<Keyring>), OpenError> {
    let incarnation = Incarnation(random()? | 1);
    let keyring = psk.map(|psk| {
        let mut keyring = Keyring::new(incarnation, psk, Limits::default());
        keyring.allow_self(address.gid);
        keyring
    });
    let config = DeviceConfig {
        port_base: options.port_base,
        transport,
        max_msg: options.max_msg,
        rnr_counts_all: options.rnr_counts_all,
        loopback: options.loopback,
        staged: options.fault.as_ref().map(|plan| plan.staged.clone()).unwrap_or_default(),
        ..DeviceConfig::default()
    };
    let memory = crate::sys::memory::host_memory();
    let mut device = Device::new(config, address.gid, address.port, incarnation, random()?, memory);
    device.set_secret([random()?, random()?]);
    Ok((device, keyring))
}

pub(crate) fn warn_about_buffer(socket: &ReceiveSocket, wanted: u64) {
    let granted = socket.rcvbuf();
    if granted < wanted {
        log::warn_once(format_args!(
            "the receive buffer is {granted} bytes, not {wanted}: bursts from many senders will be dropped here; \
             `sysctl -w net.core.rmem_max={wanted}`, or set SRD_RCVBUF={granted} to accept it"
        ));
    }
    if !socket.has_gro() {
        log::warn_once(format_args!(
            "this kernel does not join UDP datagrams on receive (Linux 5.0 does), which is slow"
        ));
    }
}
