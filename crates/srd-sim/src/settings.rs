//! Everything about a run that is neither its topology nor its traffic.

use crate::units::Ps;
use srd_baselines::Choice;
use srd_proto::controller::ControlLaw;
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
    /// The messaging layer of processes that run programs over [`crate::msg_transport`].
    pub messages: srd_msg::Config,
    /// How programs over other transports send messages.
    pub protocol: MessageProtocol,
    /// What goes wrong when.
    pub faults: Vec<Fault>,
    /// Pause between samples of queues, rates and paths; zero: none are taken.
    pub sample_every: Ps,
    /// Bytes per packet beyond those of Ethernet, IP, UDP and the transport's headers: preamble, check sequence and gap
    /// between frames (24 on real Ethernet; 0 to compare with htsim, which counts none).
    pub frame_overhead: u32,
}

/// Output queues of switches.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QueueSettings {
    /// Capacity of a port in bytes.
    pub capacity: u64,
    /// Memory that all ports of a switch share; a port may then hold `alpha` times what is free, and at most `capacity`.
    pub shared: Option<SharedBuffer>,
    /// Congestion marks.
    pub ecn: Option<Ecn>,
    /// Classes whose packets are marked, a bit each.
    pub marked_classes: u8,
    /// Cut what does not fit down to its headers, and send these first, instead of dropping it.
    pub trim: bool,
    /// How the classes of a port share it. `ClassSchedule::None`: one queue.
    pub classes: ClassSchedule,
    /// Who runs out of memory pauses the port that sends to it.
    pub pause: Option<PauseSettings>,
}

impl QueueSettings {
    /// Classes that never find a queue full, because whoever sends them is paused before (a bit each).
    pub fn lossless(&self) -> u8 {
        self.pause.map_or(0, |pause| pause.classes)
    }

    /// Whether packets of a class are trimmed to their headers where they find no room.
    pub fn trims(&self, class: u8) -> bool {
        self.trim && self.lossless() >> class & 1 == 0
    }

    /// Whether packets of a class are marked.
    pub fn marks(&self, class: u8) -> bool {
        self.ecn.is_some() && self.marked_classes >> class & 1 == 1
    }
}

/// Flow control between neighbours: IEEE 802.1Qbb for single classes, IEEE 802.3x for whole links. Each switch counts what it
/// holds of a class that came by a port. Above a threshold it pauses the port at the other end of that cable.
///
/// What it holds is first the port's own (`xoff`), then shared (`pool`), then headroom, which takes what is on its way when
/// the threshold is crossed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PauseSettings {
    /// Classes that are paused, a bit each.
    pub classes: u8,
    /// All of them at once, as one.
    pub whole_link: bool,
    /// Bytes of each port and class before anything shared is taken.
    pub xoff: u64,
    /// A class goes on when so many bytes fewer are held than the threshold.
    pub gap: u64,
    /// Share of the switch's memory that is free, beside `xoff`; `None`: `xoff` is all.
    pub alpha: Option<f64>,
    /// Bytes that lossless classes of a switch share; `None`: they take from [`QueueSettings::shared`] as all others.
    pub pool: Option<u64>,
    /// Bytes of headroom of each port and class; `None`: what it takes to lose nothing.
    pub headroom: Option<u64>,
    /// From a pause frame's arrival to its effect, beside the frame that is leaving.
    pub response: Ps,
    /// A queue that has been paused for so long drops what it holds and gets, until it may send again.
    pub watchdog: Option<Ps>,
    /// Bytes of a full frame.
    pub frame: u64,
}

/// How switches choose among several ways of equal length.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoutingSettings {
    /// Who chooses, and when.
    pub mode: RoutingMode,
    /// The last switch holds packets that have come early until those before them have, for at most so long.
    pub strict_order: Option<Ps>,
}

impl RoutingSettings {
    /// Whether packets of a flow may overtake each other, because a switch chooses a way for each of them.
    pub fn reorders(&self) -> bool {
        self.mode == RoutingMode::Adaptive && self.strict_order.is_none()
    }
}

impl Default for RoutingSettings {
    fn default() -> RoutingSettings {
        RoutingSettings { mode: RoutingMode::Ecmp, strict_order: None }
    }
}

/// By what a switch chooses among ports that lead to a destination over equally many cables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoutingMode {
    /// A hash of addresses and ports.
    Ecmp,
    /// A hash of the two hosts' addresses, as link aggregation does it at layer 2.
    Lag,
    /// The destination alone, as InfiniBand's subnet managers do it (d-mod-k).
    Static,
    /// The shortest queue, for each packet.
    Adaptive,
    /// The shortest queue, for each burst of a flow (LetFlow; Vanini and others, 2017).
    Flowlet {
        /// Pause of a flow after which it may take another way.
        gap: Ps,
    },
    /// The first switch gives each flow a way by hash and another one when that is congested (Woven Systems' active congestion
    /// management; Naegle and others, 2008).
    Reroute {
        /// How often a flow's way is looked at.
        every: Ps,
        /// A flow moves if that takes so many bytes of queues out of its way.
        least: u64,
    },
}

/// Memory shared by a switch's ports, with dynamic thresholds (Choudhury and Hahne, 1998).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SharedBuffer {
    /// Bytes of the switch.
    pub bytes: u64,
    /// What a port may hold, in units of what is free.
    pub alpha: f64,
}

/// When a packet that joins a queue of so many bytes is marked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ecn {
    /// Never below this.
    pub min_bytes: u64,
    /// Always from here on; equal to `min_bytes` for a plain threshold.
    pub max_bytes: u64,
    /// Probability just below `max_bytes`; it rises linearly from 0 at `min_bytes`.
    pub max_probability: f64,
    /// A packet is marked when it leaves, by what it leaves behind; otherwise when it joins, by what is before it. The news of a
    /// long queue is younger by the time that the queue takes.
    pub on_leaving: bool,
}

/// How classes share a port.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ClassSchedule {
    /// One queue for everything.
    None,
    /// A packet of a class goes when all classes with lower numbers are empty.
    Strict,
    /// Weighted round robin: so many bytes of each class in turn, in proportion to the weights.
    Weighted([u32; 8]),
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
        matches!(&self.transports[..], [TransportSettings { choice: Choice::Srd(_), .. }])
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
    /// Constants of the default controller.
    pub law: ControlLaw,
    /// Heed the receiver's count of senders; `None`: as the controller likes it.
    pub receiver_hint: Option<bool>,
    /// Data packets per ACK; `None`: so that a bandwidth-delay product has some 24 of them.
    pub ack_every: Option<u32>,
}

/// Something goes wrong, or right again.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// When.
    pub at: Ps,
    /// Which cables, as indices into the topology's.
    pub cables: Vec<u32>,
    /// Which direction of each.
    pub direction: Direction,
    /// What.
    pub kind: FaultKind,
}

/// Direction of a cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Both.
    Both,
    /// From `a` to `b`.
    AToB,
    /// From `b` to `a`.
    BToA,
}

/// What may befall a cable.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FaultKind {
    /// Nothing passes, and switches know: ECMP avoids it after so long.
    Down {
        /// Until switches have noticed.
        noticed_after: Ps,
    },
    /// Nothing passes, and nobody knows.
    BlackHole,
    /// Whole again, at the rate it was built with.
    Heal,
    /// Slower or faster: this share of its rate.
    Rate(f64),
    /// Longer: this much more delay.
    Delay(Ps),
    /// This share of packets is lost.
    Loss(f64),
    /// This share of packets arrives damaged and is thrown away by the receiver's check.
    Corruption(f64),
}
