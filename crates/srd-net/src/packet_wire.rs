//! The short way out: datagrams that leave by a packet socket or an AF_XDP socket, past the kernel's UDP and IP layers
//! (docs/design/host-datapath.md, "Packet sockets" and "AF_XDP sockets"). Where the kernel would send them is asked of its routing table, and
//! asked again every second; one datagram in that time goes by UDP, so that the kernel goes on looking after the neighbour, and
//! hears of a firewall in between.
//! Whatever does not fit this way goes by UDP, and the receiver cannot tell the difference.
//!
//! Neither passes packet filters, IPsec, or what tc has at the ingress of the interface. Who leaves the choice to us (`SRD_WIRE=auto`)
//! gets packet sockets, and only where there is nothing of these, which is looked at again while they run (`core.rs`).

use crate::address::LocalAddress;
use crate::frame;
use crate::log;
use crate::options::{LogLevel, Wire};
use crate::short_ring::{Ring, Sender};
use crate::sys::packet::{Lengths, MOST_BYTES, PacketRing, PacketSender};
use crate::sys::route::{InBetween, Mac, NoHop, Observer, Routes};
use crate::sys::xdp::{self, NoXdp};
use srd_wire::{InstanceAddr, Nanos, Time};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

/// How long the kernel's answer is believed.
const BELIEVED: Nanos = Nanos::from_secs(1);

/// A neighbour whose address is not known yet is asked for again after this time.
const SOON: Nanos = Nanos::from_millis(10);

/// Hosts that are known at a time.
const MOST_HOSTS: usize = 1 << 16;

/// Processes of a host that get packet sockets unasked: each of their rings looks at each packet that comes.
const MOST_RINGS: u16 = 8;

/// Why short packets do not take this way at all.
#[derive(Debug)]
pub enum NoWire {
    /// It is not asked for.
    NotAsked,
    /// So many processes of this host have it.
    Crowded,
    /// The address is an IPv6 one: routers choose ways by a label that the kernel gives each flow.
    Ipv6,
    /// Loopback has no neighbours.
    Loopback,
    /// This looks at packets, or may, that would not come to its notice.
    InBetween(InBetween),
    /// There are no AF_XDP sockets.
    Xdp(NoXdp),
    /// The system refuses.
    System(io::Error),
}

impl fmt::Display for NoWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoWire::NotAsked => "SRD_WIRE=udp",
            NoWire::Crowded => "eight processes of this host have packet sockets, and each looks at all that comes",
            NoWire::Ipv6 => "packet sockets and AF_XDP sockets are used with IPv4 only",
            NoWire::Loopback => "loopback has no neighbours",
            NoWire::InBetween(InBetween::Filter) => {
                "this host, or the control group of this process, filters packets, which packet sockets go around; SRD_WIRE=packet does so"
            }
            NoWire::InBetween(InBetween::Ipsec) => {
                "this host has IPsec policies, which packet sockets go around; SRD_WIRE=packet does so"
            }
            NoWire::InBetween(InBetween::Ingress) => {
                "tc looks at what comes by the interface, before which packet sockets take it; SRD_WIRE=packet does so"
            }
            NoWire::InBetween(_) => {
                "it may not be known whether this host filters packets (CAP_NET_ADMIN), which packet sockets go around; \
                 SRD_WIRE=packet does so"
            }
            NoWire::Xdp(why) => return why.fmt(f),
            NoWire::System(error) if error.raw_os_error() == Some(libc::EPERM) => {
                "packet sockets need CAP_NET_RAW: run as root, or give it to the container or the program"
            }
            NoWire::System(error) => return write!(f, "the system gives no packet socket: {error}"),
        })
    }
}

/// Whether short packets of processes at `local` could travel so, tried as far as it changes nothing for others; and by what, in words.
pub fn check(wire: Wire, local: &LocalAddress) -> Result<String, NoWire> {
    if wire != Wire::Xdp {
        return PacketWire::open(wire, local, 0).map(|(_, ring)| ring.to_string());
    }
    address(local)?;
    let mode = xdp::check(local.index).map_err(NoWire::Xdp)?;
    Ok(match mode {
        Some(mode) => format!("AF_XDP sockets ({mode})"),
        None => "AF_XDP sockets".to_owned(),
    })
}

/// The address at which short packets can go past UDP sockets.
fn address(local: &LocalAddress) -> Result<Ipv4Addr, NoWire> {
    match local.ip {
        IpAddr::V6(_) => Err(NoWire::Ipv6),
        IpAddr::V4(_) if local.loopback => Err(NoWire::Loopback),
        IpAddr::V4(ip) => Ok(ip),
    }
}

/// Where datagrams to a host go.
#[derive(Clone, Copy)]
struct Hop {
    to: Result<Mac, NoHop>,
    until: Time,
}

/// See the module.
pub struct PacketWire {
    sender: Sender,
    routes: Routes,
    from: Ipv4Addr,
    interface: u32,
    hops: HashMap<Ipv4Addr, Hop>,
    /// The one that the last datagram took.
    last: (Ipv4Addr, Hop),
    /// It ends as soon as this sees somebody who would look at packets.
    observer: Option<Observer>,
    closed: bool,
}

impl PacketWire {
    /// Both directions, if there is nothing against it. `slot`: how many processes of this host came before.
    pub fn open(wire: Wire, local: &LocalAddress, slot: u16) -> Result<(PacketWire, Ring), NoWire> {
        if wire == Wire::Udp {
            return Err(NoWire::NotAsked);
        }
        let from = address(local)?;
        let mut observer = None;
        if wire == Wire::Auto {
            let in_between = observer.insert(Observer::new(local.index).map_err(NoWire::System)?).look();
            match in_between {
                InBetween::Nothing if slot < MOST_RINGS => {}
                InBetween::Nothing => return Err(NoWire::Crowded),
                other => return Err(NoWire::InBetween(other)),
            }
        }
        let routes = Routes::open().map_err(NoWire::System)?;
        let (sender, ring) = if wire == Wire::Xdp {
            let (ring, sender) = xdp::open(local.index, from).map_err(NoWire::Xdp)?;
            (Sender::Xdp(sender), Ring::Xdp(ring))
        } else {
            let lengths = Lengths::at(routes.mtu(local.index).unwrap_or(0));
            let ring = PacketRing::open(local.index, from, lengths).map_err(NoWire::System)?;
            let sender = PacketSender::open(local.index).map_err(NoWire::System)?;
            (Sender::Packet(sender), Ring::Packet(ring))
        };
        let wire = PacketWire {
            sender,
            routes,
            from,
            interface: local.index,
            hops: HashMap::new(),
            last: (Ipv4Addr::UNSPECIFIED, Hop { to: Err(NoHop::Unknown), until: Time(0) }),
            observer,
            closed: false,
        };
        Ok((wire, ring))
    }

    /// Whether somebody would look at packets now who would not see these.
    #[cold]
    pub fn must_give_way(&self) -> bool {
        self.observer.as_ref().is_some_and(|observer| observer.look() != InBetween::Nothing)
    }

    /// It is not used any more.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether so many bytes are short.
    #[inline]
    pub fn fits(len: usize) -> bool {
        len + frame::UDP <= usize::from(MOST_BYTES)
    }

    /// Sends a datagram that fits. False if it is to go by UDP.
    #[inline]
    pub fn send(&mut self, now: Time, from_port: u16, to: InstanceAddr, datagram: &[u8]) -> bool {
        let (IpAddr::V4(ip), false) = (to.gid.ip(), self.closed) else { return false };
        if self.last.0 != ip {
            let known = self.hops.get(&ip).copied();
            self.last = (ip, known.unwrap_or(Hop { to: Err(NoHop::Unknown), until: Time(0) }));
        }
        if now >= self.last.1.until {
            self.ask(now, SocketAddrV4::new(ip, to.port));
            return false;
        }
        let Ok(neighbour) = self.last.1.to else { return false };
        let from = SocketAddrV4::new(self.from, from_port);
        let header = frame::headers(from, SocketAddrV4::new(ip, to.port), datagram);
        match self.sender.send(neighbour, &header, datagram) {
            Ok(()) => true,
            Err(error) => {
                self.failed(now, ip, &error);
                false
            }
        }
    }

    /// Asks where datagrams to a host go.
    #[cold]
    fn ask(&mut self, now: Time, to: SocketAddrV4) {
        let ip = *to.ip();
        let len = frame::HEADERS as u32 + u32::from(MOST_BYTES);
        let found = self.routes.next_hop(self.from, to, self.interface, len);
        let known = self.hops.get(&ip).map(|hop| hop.to.as_ref().err().copied());
        // What is not known yet is found out by the datagram that is about to leave by UDP.
        let news = known != Some(found.err()) && found != Err(NoHop::Unknown);
        if news {
            let way = match found {
                Ok(_) => self.sender.to_string(),
                Err(why) => format!("UDP ({why:?})"),
            };
            log::say(LogLevel::Info, format_args!("short packets to {ip} leave by {way}"));
        }
        if self.hops.len() >= MOST_HOSTS {
            self.hops.clear();
        }
        let until = match found {
            Err(NoHop::Unknown) => now + SOON,
            _ => now + BELIEVED,
        };
        self.know(ip, Hop { to: found, until });
        self.sender.look();
    }

    fn know(&mut self, ip: Ipv4Addr, hop: Hop) {
        self.hops.insert(ip, hop);
        self.last = (ip, hop);
    }

    /// A datagram was not taken: full queues pass, and what else it is will be seen when the kernel is asked again.
    #[cold]
    fn failed(&mut self, now: Time, ip: Ipv4Addr, error: &io::Error) {
        let passes = matches!(
            error.raw_os_error(),
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::ENOMEM | libc::EINTR)
        );
        if !passes {
            log::say(LogLevel::Info, format_args!("short packets to {ip} leave by UDP: {error}"));
            self.know(ip, Hop { to: Err(NoHop::Unknown), until: now + BELIEVED });
        }
    }
}
