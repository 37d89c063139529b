//! Everything about a run that is neither its topology nor its traffic: [`Settings`], with those of the hosts; `net` has those
//! of switches and cables.

use crate::net::{Fault, QueueSettings, RoutingSettings};
use srd_baselines::Choice;
use srd_baselines::units::Ps;
use srd_proto::congestion_control::ControlLaw;
use srd_proto::{ControllerKind, SelectorKind};
use srd_wire::BitRate;

/// A run, complete.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Shown in reports.
    pub name: String,
    /// Feeds every random choice.
    pub seed: u64,
    /// The run ends here even if flows are unfinished.
    pub end: Ps,
    /// Switches' queues.
    pub queues: QueueSettings,
    /// How switches choose among several ways.
    pub routing: RoutingSettings,
    /// Hosts' network cards and their jitter.
    pub hosts: HostSettings,
    /// The transports, at least one: that of all who name none, and those that workloads name.
    pub transports: Vec<TransportSettings>,
    /// The messaging layer of processes that run programs over `srd_messaging`.
    pub messages: srd_msg::Config,
    /// How programs over transports that move flows send messages.
    pub protocol: MessageProtocol,
    /// Programs run over SRD's own messaging layer instead, `srd_messaging`: then there is nothing else.
    pub over_srd_messaging: bool,
    /// Real processes run here, and flows begin when these do.
    pub awaits_processes: bool,
    /// What goes wrong when.
    pub faults: Vec<Fault>,
    /// Pause between samples of queues, rates and paths; zero: none are taken.
    pub sample_every: Ps,
    /// Bytes per packet beyond those of Ethernet, IP, UDP and the transport's headers: preamble, check sequence and gap
    /// between frames (24 on real Ethernet; 0 to compare with htsim, which counts none).
    pub frame_overhead: u32,
}

/// A host's network card.
#[derive(Clone, PartialEq, Debug)]
pub struct HostSettings {
    /// Time that each packet costs the host when sent and when received: a ceiling on packets per second.
    pub per_packet: Ps,
    /// From the program to the wire and from the wire to the program, together, beside `per_packet`: added where a packet is
    /// received.
    pub latency: Ps,
    /// Packets received that may wait for the host; more are dropped, or the switch is paused where the class is lossless.
    pub receive_ring: u32,
    /// Receive queues that share the load (a flow stays in one); each works through its packets on its own.
    pub queues: u16,
    /// The host looks at what has arrived, and at its timers, up to so long after it should have (uniformly).
    pub jitter: Ps,
    /// Programs, and the messaging layer with them, look at what has completed at multiples of this; zero: at once.
    pub looks_every: Ps,
    /// How messages go from one program of a host to another; `None`: through the network card, to the switch and back.
    pub intra_node: Option<OnNode>,
    /// Hosts that are slow to receive.
    pub slow_hosts: Vec<u32>,
    /// What takes the place of `per_packet` when they receive.
    pub slow_per_packet: Ps,
}

/// Shared memory between programs of a host: a message takes `latency`, and its bytes the time that they take at `rate`, during
/// which its sender copies nothing else (the model of Hockney, 1994). Hosts have room for any number of such copies at a
/// time, and for any number of messages that nobody has received.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OnNode {
    /// From the program that sends to the one that receives.
    pub latency: Ps,
    /// Of one copy.
    pub rate: BitRate,
}

impl Default for OnNode {
    /// 0.3 us and 10 GB/s: about what processes of one socket see, with a copy on either side.
    fn default() -> OnNode {
        OnNode { latency: Ps::from_nanos(300), rate: BitRate(80_000_000_000) }
    }
}

impl HostSettings {
    /// Whether a received packet is dealt with at the moment at which it comes.
    pub fn is_instant(&self) -> bool {
        let alike = self.per_packet == Ps::ZERO && self.latency == Ps::ZERO && self.jitter == Ps::ZERO;
        alike && self.slow_hosts.is_empty()
    }
}

impl Default for HostSettings {
    /// An ideal host, one receive queue.
    fn default() -> HostSettings {
        let none = Ps::ZERO;
        HostSettings {
            per_packet: none,
            latency: none,
            receive_ring: 4096,
            queues: 1,
            jitter: none,
            looks_every: none,
            intra_node: None,
            slow_hosts: Vec::new(),
            slow_per_packet: none,
        }
    }
}

impl Settings {
    /// The transport of all who name none.
    pub fn transport(&self) -> &TransportSettings {
        &self.transports[0]
    }

    /// The largest IP datagram of all transports.
    pub fn largest_mtu(&self) -> u16 {
        self.transports.iter().map(|transport| transport.mtu).max().unwrap_or_default()
    }

    /// Whether all processes speak SRD, and all the same.
    pub fn is_plain_srd(&self) -> bool {
        self.transports.len() == 1 && self.ranks_speak_srd()
    }

    /// Whether real processes send packets of SRD, their own: they speak the first transport.
    pub fn ranks_speak_srd(&self) -> bool {
        matches!(&self.transports[..], [TransportSettings { choice: Choice::Srd(_), .. }, ..])
    }
}

/// How a program's message becomes flows: short ones go at once, long ones when the receiver has agreed (as MPI libraries do).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MessageProtocol {
    /// Longest message that goes at once.
    pub eager_limit: u64,
    /// Bytes of such messages to one receiver that are copied away, so that their sends end at once; others end when they have
    /// come.
    pub eager_buffer: u64,
    /// Bytes of envelope, and of a request or consent to send.
    pub header: u64,
}

impl Default for MessageProtocol {
    /// 16 KiB, where UCX and Open MPI change over on Ethernet, within a factor of two; a usual send queue of such; 64 bytes.
    fn default() -> MessageProtocol {
        MessageProtocol { eager_limit: 16 << 10, eager_buffer: 256 << 10, header: 64 }
    }
}

/// A transport that hosts run.
#[derive(Clone, PartialEq, Debug)]
pub struct TransportSettings {
    /// What workloads call it.
    pub name: String,
    /// Largest IP datagram in bytes.
    pub mtu: u16,
    /// Class of its packets, 0 to 7.
    pub class: u8,
    /// Unloaded round trip; `None`: computed from the topology (the longest).
    pub base_rtt: Option<Ps>,
    /// Rate of a host's link; `None`: that of the topology (the fastest).
    pub line_rate: Option<BitRate>,
    /// What its software adds to a packet's way, both ends together: 0 for a transport in the network card.
    pub stack: Ps,
    /// Which transport, and what only it has.
    pub choice: Choice<SrdSettings>,
}

impl TransportSettings {
    /// SRD's own settings, if it is SRD.
    pub fn srd(&self) -> Option<&SrdSettings> {
        match &self.choice {
            Choice::Srd(settings) => Some(settings),
            _ => None,
        }
    }
}

/// SRD.
#[derive(Clone, PartialEq, Debug)]
pub struct SrdSettings {
    /// Paths per peer.
    pub paths: u16,
    /// Path selection.
    pub selector: SelectorKind,
    /// Congestion control.
    pub controller: ControllerKind,
    /// The window of the fixed one.
    pub fixed_window_bytes: u64,
    /// Constants of the default controller.
    pub law: ControlLaw,
    /// Heed the receiver's count of senders; `None`: as the controller likes it.
    pub receiver_hint: Option<bool>,
    /// Data packets per ACK; `None`: so that a bandwidth-delay product has some 24 of them.
    pub ack_every: Option<u32>,
}
