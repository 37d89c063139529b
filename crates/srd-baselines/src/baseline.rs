//! What a scenario asks of a transport: its keys, and what it needs of the fabric.

use crate::input::InputError;
use crate::section::Section;
use crate::transport::{Role, Transport, WireCost};
use srd_wire::{BitRate, Nanos};

/// What a transport may want to know of the fabric when its section is read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Surroundings {
    /// Rate of the fastest host's link.
    pub line_rate: BitRate,
    /// Longest unloaded round trip between two hosts.
    pub base_rtt: Nanos,
    /// Bytes of both.
    pub bdp: u64,
    /// Largest IP datagram in bytes.
    pub mtu: u16,
    /// Class of the transport's packets, 0 to 7.
    pub class: u8,
    /// Switches mark packets.
    pub marks: bool,
    /// Switches cut packets that find no room down to their headers.
    pub trims: bool,
    /// Classes that never find a queue full, because whoever sends them is paused before (a bit each).
    pub lossless: u8,
    /// Packets of a flow may overtake each other: some switch chooses a way for each of them.
    pub reorders: bool,
}

/// A transport that scenarios may name.
pub trait Baseline: Transport {
    /// What its section says.
    type Config: Clone + PartialEq + std::fmt::Debug;

    /// What scenarios call it (`kind`).
    const NAME: &'static str;
    /// Keys of its section, beside those that all transports have (`kind`, `mtu`, `class` and the like).
    const KEYS: &'static [&'static str];

    /// Whether [`Content::headers`](crate::frame::Content::headers) of its packets says what they look like on a wire.
    const HAS_HEADERS: bool = false;

    /// Whether [`Transport::senders`] counts who sends to a process of it. Otherwise the host's card does, where somebody wants
    /// to know.
    const COUNTS_SENDERS: bool = false;

    /// Reads its section, and refuses what cannot be: values, and fabrics that lack what it needs or have what it cannot use.
    fn read(section: &Section<'_>, around: &Surroundings) -> Result<Self::Config, InputError>;

    /// Whether it makes anything of packets that switches have cut.
    fn takes_cut_packets(_config: &Self::Config) -> bool {
        false
    }

    /// A process as `role` says.
    fn open(role: &Role, config: &Self::Config) -> Self;

    /// What its flows cost on the wire in IP datagrams of at most `mtu` bytes; `overhead` is what each frame costs beside
    /// Ethernet's header and the datagram.
    fn cost(config: &Self::Config, mtu: u16, overhead: u32) -> WireCost;
}
