//! How switches queue and route, and what befalls cables.

use srd_baselines::units::Ps;

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
        matches!(self.mode, RoutingMode::Adaptive | RoutingMode::Ugal) && self.strict_order.is_none()
    }

    /// Whether packets take other ways than the shortest.
    pub(crate) fn makes_detours(&self) -> bool {
        matches!(self.mode, RoutingMode::Valiant | RoutingMode::Ugal)
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
    /// As the sender says: its source port names the plane, and what is left of it the first switch's port, as a source route does
    /// (SRv6, or MRC's structured entropy values).
    Source,
    /// On a dragonfly: a hash of addresses and ports, by which half of them go the shortest way, and the others over a router of
    /// another group (Valiant, 1982; Kim and others, 2008).
    Valiant,
    /// On a dragonfly: the same for each packet, where the first router has more before it on the shortest way than twice what it
    /// has on the detour (UGAL; Singh, 2005; Kim and others, 2008).
    Ugal,
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
    /// Ports to hosts mark as well; otherwise a mark says that the fabric is full, and never the receiver's port.
    pub at_last_hop: bool,
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

impl FaultKind {
    /// Whether switches come to know of it, and send packets other ways then.
    pub(crate) fn is_noticed(&self) -> bool {
        matches!(self, FaultKind::Down { .. } | FaultKind::Heal)
    }
}
