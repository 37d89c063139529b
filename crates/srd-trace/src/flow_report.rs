//! What happened to one flow, worked out from its packets.

use crate::cause::{self, HeldBack, Why};
use crate::contexts::Context;
use crate::reading::{Copy, Fate, Flow, Packet, TraceFile};
use serde::Serialize;
use std::collections::BTreeMap;

/// Most ports, paths and losses that a story names.
const MOST: usize = 8;

/// A flow to compare with.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// Its number.
    pub flow: u32,
    /// Its time.
    pub total_us: f64,
}

/// Where the largest part of a flow's time went.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Before its first packet.
    LateStart,
    /// Its own packets were on its host's link: nothing was in its way.
    OwnPackets,
    /// Its host's link carried packets of others.
    SharedLink,
    /// Its host's link stood idle: the window was full or the pace slow, or the host busy.
    HeldBack,
    /// A packet had to be retransmitted.
    SentAgain,
    /// Its last packet waited in queues.
    Queues,
    /// Its last packet was on cables and in switches.
    Distance,
    /// The receiving host did not look at once.
    Receiver,
    /// The acknowledgement of its last packet was long on its way.
    Acknowledgement,
}

/// A part of a flow's time. All parts together are the whole.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Part {
    /// What it went into.
    pub what: Verdict,
    /// How long.
    pub us: f64,
    /// Which share of the whole.
    pub share: f64,
}

/// Between a flow's first packet and the last that left for the first time.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Sending {
    /// Packets.
    pub packets: u64,
    /// How long it took.
    pub us: f64,
    /// Of that, with other packets on the host's link.
    pub others_us: f64,
    /// Of that, with the link idle.
    pub idle_us: f64,
    /// The longest time that the link stood idle between two packets.
    pub longest_gap_us: f64,
    /// When that ended.
    pub longest_gap_at_us: f64,
}

/// Waiting at one port of a switch.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PortWaits {
    /// The port.
    pub port: String,
    /// Packets of the flow that went by it.
    pub packets: u64,
    /// Those of them with a congestion mark.
    pub marked: u64,
    /// What they waited, together.
    pub sum_us: f64,
    /// On average.
    pub mean_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Packets of the flow that were lost somewhere.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Loss {
    /// The port: where they did not fit, or where the cable begins that lost them.
    pub port: String,
    /// `queue_full`, `cable`, `no_route`, or `unknown` for those that left the port and were not seen again.
    pub why: String,
    /// How many.
    pub packets: u64,
}

/// Packets that were retransmitted.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Resent {
    /// Packets that were.
    pub packets: u64,
    /// How often, all together.
    pub copies: u64,
    /// Packets of which an earlier copy arrived as well: they need not have been.
    pub for_nothing: u64,
    /// From the first copy to the one that arrived first, on average over packets that needed a second one.
    pub mean_delay_us: f64,
    /// The longest.
    pub max_delay_us: f64,
    /// Where copies were lost, the most first.
    pub lost: Vec<Loss>,
    /// The transport's reasons for taking packets for lost, and how often each, if the trace tells.
    pub reasons: Vec<(String, u64)>,
}

/// Use of one path.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PathUse {
    /// Path slot.
    pub path: u16,
    /// UDP source port.
    pub source_port: u16,
    /// Copies sent on it.
    pub copies: u64,
    /// Of the flow's.
    pub share: f64,
    /// Those of them that were lost.
    pub lost: u64,
    /// From leaving the host to arriving, on average.
    pub mean_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
}

/// Something that happened.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Moment {
    /// When.
    pub t_us: f64,
    /// What.
    pub what: String,
}

/// The packet with which the flow was finished.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LastPacket {
    /// Its number.
    pub psn: u32,
    /// Its way.
    pub moments: Vec<Moment>,
}

/// What happened to a flow. Times are microseconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowReport {
    /// Its number.
    pub flow: u32,
    /// Sending process.
    pub src: String,
    /// Receiving process.
    pub dst: String,
    /// Bytes to be moved; none for a flow without end.
    pub bytes: Option<u64>,
    /// When it began.
    pub started_us: f64,
    /// From then until every byte was acknowledged; none if it did not come to that.
    pub total_us: Option<f64>,
    /// Why it failed.
    pub failed: Option<String>,
    /// Where the largest part of its time went.
    pub verdict: Option<Verdict>,
    /// Where all of it went; empty for flows that did not end, or whose last packet is not in the trace.
    pub parts: Vec<Part>,
    /// How it sent.
    pub sending: Sending,
    /// What kept its packets back while its host's link stood idle; none if the trace does not tell what its transport
    /// decided.
    pub held_back: Option<HeldBack>,
    /// What its transport decided, of each kind what delayed it most, in order.
    pub decisions: Vec<Moment>,
    /// Decisions of the same kinds that weigh less.
    pub lesser_decisions: u64,
    /// Where its packets waited, the most first.
    pub queues: Vec<PortWaits>,
    /// What was retransmitted.
    pub resent: Resent,
    /// Paths that it used.
    pub paths_used: u64,
    /// Those of them with the longest delays, the longest first.
    pub slowest_paths: Vec<PathUse>,
    /// The packet with which it was finished.
    pub last_packet: Option<LastPacket>,
}

/// The story of a flow.
pub(crate) fn tell(trace: &TraceFile, flow: &Flow) -> FlowReport {
    let parts = parts(flow).unwrap_or_default();
    let largest = parts.iter().max_by(|a, b| a.us.total_cmp(&b.us));
    let (paths_used, slowest_paths) = paths(flow);
    let told = trace.context(flow).map(|context| cause::explain(flow, context));
    let held_back = told.as_ref().map(|why| why.held_back);
    let Why { moments: decisions, left_out: lesser_decisions, .. } = told.unwrap_or_default();
    FlowReport {
        flow: flow.number,
        src: flow.src.clone(),
        dst: flow.dst.clone(),
        bytes: flow.bytes,
        started_us: flow.started,
        total_us: flow.total_us(),
        failed: flow.failed.as_ref().map(|(_, why)| why.clone()),
        verdict: largest.map(|part| part.what),
        sending: sending(flow),
        held_back,
        decisions,
        lesser_decisions,
        queues: queues(trace, flow),
        resent: resent(trace, flow),
        paths_used,
        slowest_paths,
        last_packet: last_packet(flow).map(|packet| story_of(trace, flow, packet)),
        parts,
    }
}

/// The packet that was acknowledged last, and of several the one that arrived last.
fn last_packet(flow: &Flow) -> Option<&Packet> {
    let arrived = |packet: &Packet| packet.arrived_first().and_then(Copy::arrived).unwrap_or(f64::INFINITY);
    flow.packets.iter().max_by(|a, b| {
        let acked = |packet: &Packet| packet.acked.unwrap_or(f64::INFINITY);
        acked(a).total_cmp(&acked(b)).then(arrived(a).total_cmp(&arrived(b)))
    })
}

/// Where the flow's time went. Each part is the time between two moments, one after the other, so that nothing is lost.
fn parts(flow: &Flow) -> Option<Vec<Part>> {
    let total = flow.total_us()?;
    let last = last_packet(flow)?;
    let (first_sent, arrived) = (last.copies.first()?, last.arrived_first()?);
    let Fate::Arrived { at, looked } = arrived.fate else { return None };
    last.acked?;
    let begun = flow.packets.first()?.copies.first()?.sent;
    let until_last = copies_until(flow, first_sent.sent);
    let (idle, others) = until_last.fold((0.0, 0.0), |(idle, others), copy| {
        // What went before the first packet is counted apart.
        if copy.sent <= begun { (idle, others) } else { (idle + copy.idle, others + copy.others) }
    });
    let queued = arrived.queued();
    let parts = [
        (Verdict::LateStart, begun - flow.started),
        (Verdict::OwnPackets, first_sent.sent - begun - idle - others),
        (Verdict::SharedLink, others),
        (Verdict::HeldBack, idle),
        (Verdict::SentAgain, arrived.sent - first_sent.sent),
        (Verdict::Queues, queued),
        (Verdict::Distance, at - arrived.sent - queued),
        (Verdict::Receiver, looked - at),
        (Verdict::Acknowledgement, flow.started + total - looked),
    ];
    let share = |us: f64| if total > 0.0 { us / total } else { 0.0 };
    // The transport's clock ticks in nanoseconds and the fabric's in picoseconds: differences may fall below zero.
    let part = |(what, us): (Verdict, f64)| Part {
        what,
        us: rounded(us.max(0.0)),
        share: rounded(share(us).clamp(0.0, 1.0)),
    };
    Some(parts.into_iter().map(part).collect())
}

/// To the picosecond: sums of fractions end in digits that mean nothing.
pub(crate) fn rounded(us: f64) -> f64 {
    (us * 1e6).round() / 1e6
}

/// Copies of all packets that left at `until` or before.
pub(crate) fn copies_until(flow: &Flow, until: f64) -> impl Iterator<Item = &Copy> {
    flow.packets.iter().flat_map(|packet| &packet.copies).filter(move |copy| copy.sent <= until)
}

fn sending(flow: &Flow) -> Sending {
    let firsts = flow.packets.iter().filter_map(|packet| packet.copies.first());
    let (Some(first), Some(last)) = (firsts.clone().next(), firsts.clone().next_back()) else {
        return Sending::default();
    };
    let mut sending = Sending {
        packets: flow.packets.len() as u64,
        us: rounded(last.sent - first.sent),
        ..Sending::default()
    };
    for copy in copies_until(flow, last.sent).filter(|copy| copy.sent > first.sent) {
        sending.others_us += copy.others;
        sending.idle_us += copy.idle;
        if copy.idle > sending.longest_gap_us {
            (sending.longest_gap_us, sending.longest_gap_at_us) = (copy.idle, copy.sent);
        }
    }
    (sending.others_us, sending.idle_us) = (rounded(sending.others_us), rounded(sending.idle_us));
    sending
}

fn queues(trace: &TraceFile, flow: &Flow) -> Vec<PortWaits> {
    let mut ports: BTreeMap<u32, PortWaits> = BTreeMap::new();
    for hop in flow.packets.iter().flat_map(|packet| &packet.copies).flat_map(|copy| &copy.hops) {
        let waits = ports.entry(hop.port).or_insert_with(|| PortWaits {
            port: trace.port(hop.port).to_string(),
            packets: 0,
            marked: 0,
            sum_us: 0.0,
            mean_us: 0.0,
            max_us: 0.0,
        });
        let waited = hop.leaves - hop.came;
        waits.packets += 1;
        waits.marked += hop.marked as u64;
        waits.sum_us += waited;
        waits.max_us = waits.max_us.max(rounded(waited));
    }
    let mut ports: Vec<PortWaits> = ports.into_values().collect();
    for waits in &mut ports {
        waits.mean_us = rounded(waits.sum_us / waits.packets as f64);
        waits.sum_us = rounded(waits.sum_us);
    }
    ports.sort_by(|a, b| b.sum_us.total_cmp(&a.sum_us).then(a.port.cmp(&b.port)));
    ports.truncate(MOST);
    ports
}

/// Where a copy that did not arrive was seen last, and why it is gone; `None` if it arrived, or nobody has missed it.
fn loss(packet: &Packet, copy: &Copy) -> Option<(u32, String)> {
    match &copy.fate {
        Fate::Arrived { .. } => None,
        Fate::Lost { port, why, .. } => Some((*port, why.clone())),
        // A later copy says that it is missed; otherwise it may be on its way.
        Fate::Unknown => {
            let missed = packet.copies.iter().any(|other| other.sent > copy.sent);
            missed.then(|| (copy.hops.last().map_or(copy.port, |hop| hop.port), "unknown".to_string()))
        }
    }
}

fn resent(trace: &TraceFile, flow: &Flow) -> Resent {
    let mut resent = Resent::default();
    let mut delays = Vec::new();
    let mut lost: BTreeMap<(u32, String), u64> = BTreeMap::new();
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    let verdicts = trace.context(flow).map(Context::losses).unwrap_or_default();
    for packet in &flow.packets {
        for place in packet.copies.iter().filter_map(|copy| loss(packet, copy)) {
            *lost.entry(place).or_default() += 1;
        }
        for (_, cause) in verdicts.get(&packet.psn).into_iter().flatten() {
            *reasons.entry(cause.to_string()).or_default() += 1;
        }
        let [first, again @ ..] = packet.copies.as_slice() else { continue };
        if again.is_empty() {
            continue;
        }
        resent.packets += 1;
        resent.copies += again.len() as u64;
        match packet.arrived_first() {
            Some(copy) if copy.tx == first.tx => resent.for_nothing += 1,
            Some(copy) => delays.push(copy.sent - first.sent),
            None => {}
        }
    }
    resent.max_delay_us = rounded(delays.iter().copied().fold(0.0, f64::max));
    resent.mean_delay_us = rounded(delays.iter().sum::<f64>() / delays.len().max(1) as f64);
    let losses = lost.into_iter().map(|((port, why), packets)| Loss {
        port: trace.port(port).to_string(),
        why,
        packets,
    });
    resent.lost = losses.collect();
    resent.lost.sort_by_key(|loss| std::cmp::Reverse(loss.packets));
    resent.lost.truncate(MOST);
    resent.reasons = reasons.into_iter().collect();
    resent
}

/// How many paths the flow used, and the slowest of them.
fn paths(flow: &Flow) -> (u64, Vec<PathUse>) {
    let mut paths: BTreeMap<(u16, u16), (u64, u64, Vec<f64>)> = BTreeMap::new();
    let mut all = 0;
    for packet in &flow.packets {
        for copy in &packet.copies {
            let (copies, lost, times) = paths.entry((copy.path, copy.source_port)).or_default();
            *copies += 1;
            all += 1;
            *lost += loss(packet, copy).is_some() as u64;
            times.extend(copy.arrived().map(|arrived| arrived - copy.sent));
        }
    }
    let used = paths.len() as u64;
    let mut paths: Vec<PathUse> = paths
        .into_iter()
        .map(|((path, source_port), (copies, lost, times))| PathUse {
            path,
            source_port,
            copies,
            share: rounded(copies as f64 / all as f64),
            lost,
            mean_us: (!times.is_empty()).then(|| rounded(times.iter().sum::<f64>() / times.len() as f64)),
            max_us: times.iter().copied().reduce(f64::max).map(rounded),
        })
        .collect();
    let slowness = |path: &PathUse| path.mean_us.unwrap_or(f64::INFINITY);
    paths.sort_by(|a, b| slowness(b).total_cmp(&slowness(a)).then(a.path.cmp(&b.path)));
    paths.truncate(MOST);
    (used, paths)
}

/// Everything that befell a packet, in order.
fn story_of(trace: &TraceFile, flow: &Flow, packet: &Packet) -> LastPacket {
    let mut moments = Vec::new();
    let mut tell = |t_us: f64, what: String| moments.push(Moment { t_us, what });
    for copy in &packet.copies {
        let again = if copy.tx == 0 { "sent" } else { "sent again" };
        tell(copy.sent, format!("{again} on path {} (source port {})", copy.path, copy.source_port));
        for hop in &copy.hops {
            let wait = match hop.leaves - hop.came {
                waited if waited > 0.0 => format!(", waits {waited:.3} us"),
                _ => String::new(),
            };
            let mark = if hop.marked { ", carries a congestion mark" } else { "" };
            tell(hop.came, format!("comes to {}{wait}{mark}", trace.port(hop.port)));
        }
        match &copy.fate {
            Fate::Lost { at, port, why } => {
                let why = match why.as_str() {
                    "queue_full" => "finds the queue full",
                    "cable" => "is lost on the cable",
                    "no_route" => "finds no way on",
                    _ => "is lost",
                };
                tell(*at, format!("{why} at {}", trace.port(*port)));
            }
            Fate::Arrived { at, looked } => {
                tell(*at, "arrives".to_string());
                if looked - at > 1e-3 {
                    tell(*looked, "is looked at by the receiving host".to_string());
                }
            }
            Fate::Unknown => {}
        }
    }
    let losses = trace.context(flow).map(Context::losses).unwrap_or_default();
    for (at, cause) in losses.get(&packet.psn).into_iter().flatten() {
        tell(*at, format!("counts as lost: {cause}"));
    }
    if let Some(acked) = packet.acked {
        tell(acked, "its acknowledgement reaches the sender".to_string());
    }
    moments.sort_by(|a, b| a.t_us.total_cmp(&b.t_us));
    LastPacket { psn: packet.psn, moments }
}
