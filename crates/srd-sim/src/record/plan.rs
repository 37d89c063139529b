//! What of a run is sampled, how often, and which flows are traced. A run that is recorded runs twice: first as it is,
//! for its outcome and what it costs, then under observation. So the plan knows how long it takes, which queues will be
//! the longest and which flows the slowest.

use super::Traced;
use super::name_index::{ends_of, numbers};
use crate::apps::Size;
use crate::hosts::Process;
use crate::input::Scenario;
use crate::net::{PacketSizes, PortId};
use crate::run::{self, FlowState, Simulation};
use srd_baselines::input::counted;
use srd_baselines::units::Ps;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Samples of a run that does not say how often: enough for a figure.
const USUAL_SAMPLES: u64 = 400;
/// Most samples of a run.
pub const MAX_SAMPLES: u64 = 5_000;
/// Most flows whose rates are sampled.
pub const MAX_FLOWS: usize = 128;
/// Most ports whose queues are sampled.
pub const MAX_PORTS: usize = 200;
/// Most connections whose paths are sampled, and how often in a run.
pub const MAX_CONNECTIONS: usize = 16;
const PATH_SAMPLES: u64 = 100;
/// Lines of a trace that nobody has chosen flows for: some 25 MB.
const USUAL_LINES: u64 = 180_000;
/// Lines per packet beside those of its hops: sent, arrived, acknowledged.
const LINES_PER_PACKET: u64 = 3;
/// Ports of switches on a packet's way, about.
const HOPS: u64 = 4;
/// Decisions of transports per packet, about: its path, that it leaves, what its acknowledgement tells of it, and its part
/// of what an acknowledgement of several comes to.
const DECISIONS_PER_PACKET: u64 = 5;

/// See the module. Flows are named by their index.
pub(super) struct Plan {
    /// Pause between samples.
    pub(super) step: Ps,
    /// Flows whose rates are sampled.
    pub(super) flows: Vec<u32>,
    /// Ports whose queues are sampled, the longest queue first.
    pub(super) ports: Vec<PortId>,
    /// Sending and receiving process of those whose paths are sampled.
    pub(super) connections: Vec<(u32, u32)>,
    /// Samples from one look at paths to the next.
    pub(super) paths_every: u64,
    /// Flows whose packets are traced, in order.
    pub(super) traced: Vec<u32>,
    /// What a person should know.
    pub(super) notes: Vec<String>,
}

impl Plan {
    /// For a run of `scenario` that has come out as `plain`.
    pub(super) fn after<T: Process>(
        plain: &mut Simulation<'_, T>,
        scenario: &Scenario,
        traced: &Traced,
    ) -> Plan {
        let mut notes = Vec::new();
        let step = step(plain.now, scenario.settings.sample_every, &mut notes);
        let all: Vec<u32> = (0..plain.flows.len() as u32).collect();
        let flows = spread_over(&all, MAX_FLOWS);
        if flows.len() < all.len() {
            notes.push(format!("rates.csv has {} of {} flows, evenly chosen", flows.len(), all.len()));
        }
        let ends = |&flow: &u32| (plain.flows[flow as usize].from, plain.flows[flow as usize].to);
        let connections: BTreeSet<(u32, u32)> = flows.iter().map(ends).collect();
        let connections: Vec<_> = connections.into_iter().collect();
        let ports = busiest(plain, scenario, &mut notes);
        let samples = plain.now.0 / step.0 + 1;
        Plan {
            step,
            ports,
            connections: spread_over(&connections, MAX_CONNECTIONS),
            paths_every: samples.div_ceil(PATH_SAMPLES),
            traced: chosen(plain, scenario, traced, &mut notes),
            flows,
            notes,
        }
    }
}

/// At most `most` of `all`, one of each of so many equal parts. Which one differs from part to part: flows of a round may
/// follow one another as regularly.
fn spread_over<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    const GOLDEN: f64 = 0.618_033_988_749_895; // its multiples are spread evenly, whatever the period (Weyl, 1916)
    let count = all.len().min(most);
    let place = |part: usize| {
        let (from, to) = (part * all.len() / count, (part + 1) * all.len() / count);
        from + ((to - from) as f64 * (part as f64 * GOLDEN).fract()) as usize
    };
    (0..count).map(|part| all[place(part)]).collect()
}

/// The pause between samples: what the scenario says, or such that there are enough.
fn step(length: Ps, asked: Ps, notes: &mut Vec<String>) -> Ps {
    if asked == Ps::ZERO {
        return round_up(length.0 / USUAL_SAMPLES);
    }
    if length.0 / asked.0 <= MAX_SAMPLES {
        return asked;
    }
    let step = round_up(length.0 / MAX_SAMPLES);
    let (asked, given) = (asked.as_micros(), step.as_micros());
    notes.push(format!("samples are {given} us apart, not {asked} us: a run has at most {MAX_SAMPLES}"));
    step
}

/// The next 1, 2 or 5 times a power of ten, at least 10 ns.
fn round_up(at_least: u64) -> Ps {
    let mut unit = 10_000;
    loop {
        for factor in [1, 2, 5] {
            if unit * factor >= at_least {
                return Ps(unit * factor);
            }
        }
        unit *= 10;
    }
}

/// Ports of switches at which a frame has waited for another, the longest queue first.
fn busiest<T: Process>(
    plain: &Simulation<'_, T>,
    scenario: &Scenario,
    notes: &mut Vec<String>,
) -> Vec<PortId> {
    let Scenario { settings, topology, .. } = scenario;
    let frame = PacketSizes::of(settings.largest_mtu(), settings.frame_overhead).data;
    let switches =
        (0..plain.fabric.ports()).map(PortId).filter(|&port| ends_of(topology, port).0.0 >= topology.hosts);
    let longest = switches.map(|port| (plain.fabric.counters(port).most_waiting, port));
    let mut waited: Vec<(u64, PortId)> = longest.filter(|&(bytes, _)| bytes > frame).collect();
    waited.sort_by_key(|&(bytes, port)| (std::cmp::Reverse(bytes), port));
    if waited.len() > MAX_PORTS {
        let all = waited.len();
        notes.push(format!("queues.csv has the {MAX_PORTS} of {all} ports with the longest queues"));
    }
    waited.into_iter().take(MAX_PORTS).map(|(_, port)| port).collect()
}

/// Whether all flows that a person wants to trace are there.
pub(super) fn check_traced(traced: &Traced, scenario: &Scenario) -> io::Result<()> {
    if *traced != Traced::No && scenario.traffic.flows.is_empty() {
        let what =
            "trace: this scenario has no flows, and messages of programs are not traced: leave the trace out";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let Traced::Flows(ids) = traced else { return Ok(()) };
    let known: BTreeSet<u32> = numbers(&scenario.traffic).into_iter().collect();
    let Some(id) = ids.iter().find(|id| !known.contains(id)) else { return Ok(()) };
    let there = match (known.first(), known.last()) {
        (Some(first), Some(last)) => format!("there are {}, {first} to {last}", known.len()),
        _ => "there is none".to_string(),
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("trace: no flow has number {id}; {there}")))
}

/// Flows to be traced, by index, in order.
fn chosen<T: Process>(
    plain: &mut Simulation<'_, T>,
    scenario: &Scenario,
    traced: &Traced,
    notes: &mut Vec<String>,
) -> Vec<u32> {
    let all = &scenario.traffic.flows;
    let mut chosen: Vec<u32> = match traced {
        Traced::No => Vec::new(),
        Traced::All => (0..all.len() as u32).collect(),
        Traced::Slowest(count) => slowest_first(plain).into_iter().take(*count as usize).collect(),
        Traced::Flows(ids) => {
            let numbers = (0..).zip(numbers(&scenario.traffic));
            numbers.filter(|(_, number)| ids.contains(number)).map(|(flow, _)| flow).collect()
        }
        Traced::AsManyAsFit => {
            let mut order = slowest_first(plain);
            if order.len() > 2 {
                let fastest = order.remove(order.len() - 1);
                order.insert(1, fastest); // to compare with
            }
            let costs = run::costs(&scenario.settings);
            let packets = (0..).zip(all).map(|(flow, of)| {
                let bytes = match of.size {
                    Size::Bytes(bytes) => bytes,
                    Size::Until(_) => plain.delivered(flow),
                };
                bytes.div_ceil(costs[of.transport as usize].payload)
            });
            let packets = packets.collect();
            as_many_as_fit(&order, &Lines::of(packets, |flow| context(&plain.flows[flow])))
        }
    };
    if matches!(traced, Traced::AsManyAsFit) && chosen.len() < all.len() {
        let n = counted(chosen.len() as u64, "flow");
        notes.push(format!("trace.jsonl has {n} of {}: the slowest, and the fastest", all.len()));
    }
    chosen.sort_unstable();
    chosen
}

/// Processes at both ends of a flow, the same in both directions.
fn context(state: &FlowState) -> (u32, u32) {
    (state.from.min(state.to), state.from.max(state.to))
}

/// Lines that flows make in a trace.
struct Lines {
    /// Of each flow: its packets, and between which processes.
    flows: Vec<(u64, (u32, u32))>,
    /// Packets of all flows between two processes: the decisions about all of them are told.
    contexts: BTreeMap<(u32, u32), u64>,
}

impl Lines {
    fn of(packets: Vec<u64>, context: impl Fn(usize) -> (u32, u32)) -> Lines {
        let flows: Vec<_> = packets.into_iter().enumerate().map(|(flow, n)| (n, context(flow))).collect();
        let mut contexts = BTreeMap::new();
        for &(packets, context) in &flows {
            *contexts.entry(context).or_default() += packets;
        }
        Lines { flows, contexts }
    }
}

/// Of flows in this order those whose packets fit into a trace, and the decisions about them; at least one.
fn as_many_as_fit(order: &[u32], lines: &Lines) -> Vec<u32> {
    let mut room = USUAL_LINES;
    let mut taken = Vec::new();
    let mut told = BTreeSet::new();
    for &flow in order {
        let (packets, context) = lines.flows[flow as usize];
        let decided = if told.contains(&context) { 0 } else { lines.contexts[&context] };
        let needed = packets * (HOPS + LINES_PER_PACKET) + decided * DECISIONS_PER_PACKET;
        if needed <= room || taken.is_empty() {
            room = room.saturating_sub(needed);
            told.insert(context);
            taken.push(flow);
        }
    }
    taken
}

/// Flows that have begun, the slowest first; those that did not end are the slowest of all.
fn slowest_first<T: Process>(plain: &Simulation<'_, T>) -> Vec<u32> {
    let time = |state: &FlowState| state.sent.map_or(Ps::NEVER, |sent| sent - state.started.unwrap_or(sent));
    let mut order: Vec<u32> =
        (0..plain.flows.len() as u32).filter(|&flow| plain.flows[flow as usize].started.is_some()).collect();
    order.sort_by_key(|&flow| (std::cmp::Reverse(time(&plain.flows[flow as usize])), flow));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_is_spread_and_does_not_follow_a_period() {
        let all: Vec<u32> = (0..640).collect();
        let chosen = spread_over(&all, 128);
        assert!(chosen.len() == 128 && chosen.is_sorted_by(|a, b| a < b));
        for round in 0..5 {
            let of_round = chosen.iter().filter(|&flow| flow % 5 == round).count();
            assert!((20..32).contains(&of_round), "{of_round} of 128 are flows of round {round}");
        }
        assert_eq!(spread_over(&all[..3], 128), [0, 1, 2]);
    }

    #[test]
    fn pauses_are_round() {
        for (length, pause) in [(0, 10_000), (4_000_000, 10_000), (7_820_000_000, 20_000_000)] {
            assert_eq!(step(Ps(length), Ps::ZERO, &mut Vec::new()), Ps(pause));
        }
        let mut notes = Vec::new();
        assert_eq!(step(Ps(1_000_000_000), Ps(100), &mut notes), Ps(200_000));
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn a_trace_has_at_least_one_flow() {
        let alike = Lines::of(vec![USUAL_LINES; 5], |flow| (0, flow as u32));
        assert_eq!(as_many_as_fit(&[4, 1, 2], &alike), [4]);
        let one_is_large = Lines::of(vec![10, USUAL_LINES, 10, 10, 10], |flow| (0, flow as u32));
        assert_eq!(as_many_as_fit(&[4, 1, 2], &one_is_large), [4, 2]);
    }

    #[test]
    fn flows_with_busy_connections_take_more_of_a_trace() {
        let share = USUAL_LINES / DECISIONS_PER_PACKET / 2;
        let lines = Lines::of(vec![10, 10, share, share, 10], |flow| (0, [0, 0, 0, 0, 1][flow]));
        assert_eq!(as_many_as_fit(&[0, 1, 4], &lines), [0], "all packets of its connection are told of");
        assert_eq!(as_many_as_fit(&[4, 0, 1], &lines), [4], "the others' connection does not fit");
    }
}
