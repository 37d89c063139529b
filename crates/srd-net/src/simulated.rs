//! A network that is simulated: in place of sockets, and of the clock, there is what `srd sim mpirun` has put under the process
//! (the library of `srd-preload`). All else is as on a real one.

use crate::address::LocalAddress;
use crate::options::Options;
use crate::sys::simulated::{self, Library};
use siphasher::sip::SipHasher13;
use srd_proto::{Config, ControllerKind, OwnAddress, SelectorKind};
use srd_virtual::layout::{Head, NEVER};
use srd_virtual::{Place, WORLD_VARIABLE};
use srd_wire::{BitRate, Gid, InstanceAddr, Nanos, Time};
use std::hash::Hasher;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};

/// Name of the interface.
const INTERFACE: &str = "sim0";

/// The process's place in the simulated network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fabric {
    /// What moves packets and time there.
    pub library: Library,
    /// Where it is, and what its transport must know.
    pub place: Place,
}

/// Random numbers that the process has had.
static DRAWN: AtomicU64 = AtomicU64::new(0);

/// Why a process has no place in the simulated fabric that its environment names.
#[derive(Debug)]
pub(crate) struct NoPlace {
    /// What does not work.
    pub what: String,
    /// The system's reason, if there is one.
    pub source: Option<io::Error>,
    /// What to do.
    pub advice: &'static str,
}

/// The simulated network, if the process is in one. The first call takes its place there.
pub(crate) fn fabric() -> Result<Option<Fabric>, NoPlace> {
    match known() {
        None if std::env::var_os(WORLD_VARIABLE).is_some() => take_place().map(|()| known()),
        known => Ok(known),
    }
}

/// The same, if the process has its place.
pub(crate) fn known() -> Option<Fabric> {
    simulated::known().map(|&(library, place)| Fabric { library, place })
}

fn take_place() -> Result<(), NoPlace> {
    let library = simulated::library().ok_or_else(|| NoPlace {
        what: format!("{WORLD_VARIABLE} names a simulated fabric, but libsrd-time.so is not in this process"),
        source: None,
        advice: "start the program by `srd sim mpirun`, which sets LD_PRELOAD, and not statically linked",
    })?;
    library.attach().map_err(|errno| NoPlace {
        what: "cannot take a place in the simulated fabric".into(),
        source: Some(io::Error::from_raw_os_error(errno)),
        advice: match errno {
            libc::EBUSY => {
                "another process has the place of this rank: only one process of a rank may open the provider, and no child of it"
            }
            libc::EPROTO => "the simulator and this library are of different versions: use both from one build",
            _ => "start the program by `srd sim mpirun`",
        },
    })
}

impl Fabric {
    /// The process's address.
    pub fn local(&self) -> LocalAddress {
        LocalAddress {
            ip: IpAddr::V4(Ipv4Addr::from_bits(self.place.ip)),
            interface: INTERFACE.into(),
            index: 0,
            mtu: u32::from(self.place.mtu),
            line_rate: Some(BitRate(self.place.line_rate)),
            loopback: false,
        }
    }

    /// The next random number of the process: a hash of how many there have been, by its seed.
    pub fn random(&self) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.place.seed, 0);
        hasher.write_u64(DRAWN.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }

    /// What source ports there are.
    pub fn source_ports(&self) -> Vec<u16> {
        (0..self.place.source_ports).map(|number| self.place.first_source_port + number).collect()
    }

    /// The transport's configuration: that of the simulated card.
    pub fn transport_config(&self, options: &Options, max_datagram: u16) -> Config {
        let place = &self.place;
        if place.carried != 0 {
            return carried(place, max_datagram);
        }
        let of = |index: u16| usize::from(index);
        Config {
            paths: place.paths,
            entropy: place.source_ports,
            max_datagram,
            burst_bytes: u32::from(max_datagram),
            selector: SelectorKind::ALL.get(of(place.selector)).map_or(options.selector, |(_, kind)| *kind),
            controller: ControllerKind::ALL.get(of(place.controller)).map_or(options.cc, |(_, kind)| *kind),
            fixed_window_bytes: place.fixed_window_bytes,
            line_rate: BitRate(place.line_rate),
            line_rate_known: true,
            base_rtt: Nanos(place.base_rtt),
            receiver_hint: place.receiver_hint != 0,
            ack_delay: Nanos(place.ack_delay),
            ack_every: place.ack_every,
            own_address: match place.shares_memory {
                0 => OwnAddress::OverLink,
                _ => OwnAddress::ByMemory,
            },
            ..Config::of_a_simulated_card()
        }
    }

    /// The calling thread has used the device; the transport wants to run at `due`, so many send to it, and it has `more` to send than the
    /// card has taken.
    pub fn leave(&self, now: Time, due: Time, senders: u16, more: bool) {
        self.library.set_senders(senders);
        self.library.set_more(more);
        self.library.leave(if due == Time::NEVER { NEVER } else { due.since(now).0 });
    }

    /// Sends a datagram. False if there is no room.
    pub fn send(&self, source_port: u16, to: InstanceAddr, datagram: &[u8]) -> bool {
        let IpAddr::V4(ip) = to.gid.ip() else { return true }; // nobody is there
        let head = Head {
            len: datagram.len() as u32,
            peer: ip.to_bits(),
            ports: [source_port, to.port],
            ..Head::default()
        };
        self.library.send(&head, datagram)
    }

    /// Hands over what has come, packet by packet.
    pub fn receive(&self, mut take: impl FnMut(Come<'_>)) {
        self.library.receive(|head, bytes| {
            take(Come {
                from: Gid::from(IpAddr::V4(Ipv4Addr::from_bits(head.peer))),
                ports: head.ports,
                marked: head.marked != 0,
                age: Nanos(head.age),
                bytes,
            });
        });
    }
}

/// For a network that loses nothing, and does by itself what else the transport is there for.
fn carried(place: &Place, max_datagram: u16) -> Config {
    let never = Nanos::from_secs(1_000_000);
    Config {
        paths: 1,
        entropy: 1,
        max_datagram,
        burst_bytes: u32::from(max_datagram),
        chunk_bytes: u32::from(max_datagram),
        selector: SelectorKind::Pinned,
        controller: ControllerKind::Fixed,
        fixed_window_bytes: 1 << 50,
        line_rate: BitRate(place.line_rate),
        line_rate_known: true,
        base_rtt: Nanos(place.base_rtt),
        receiver_hint: false,
        ack_delay: Nanos::ZERO,
        ack_every: 1,
        min_rto: never,
        min_pto: never,
        max_rto: never,
        peer_timeout: never,
        ..Config::of_a_simulated_card()
    }
}

/// A datagram that has come.
pub(crate) struct Come<'a> {
    /// From that host.
    pub from: Gid,
    /// Source and destination port.
    pub ports: [u16; 2],
    /// A switch has marked it.
    pub marked: bool,
    /// For so long it has been here.
    pub age: Nanos,
    /// What it says.
    pub bytes: &'a mut [u8],
}
