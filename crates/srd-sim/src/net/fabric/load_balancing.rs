//! How a switch chooses among ports that lead to a destination over equally many cables, where that is not plain ECMP.

use super::Fabric;
use crate::net::event::Event;
use crate::net::event_queue::EventQueue;
use crate::net::frame::{Content, FrameHead, FrameId, FramePool};
use crate::net::rng;
use crate::net::rng::mix;
use crate::net::settings::RoutingMode;
use crate::net::topology::{NodeId, PortId, Role, Topology};
use foldhash::fast::FixedState;
use rand::Rng;
use srd_baselines::units::Ps;
use std::collections::{HashMap, VecDeque};

/// LoadBalancing that are compared with a flow's own before it moves.
const CANDIDATES: usize = 16;

/// What a switch takes for a flow: destination and hash of the 5-tuple.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FlowKey(u64);

impl FlowKey {
    pub(super) fn of(head: &FrameHead) -> FlowKey {
        FlowKey((head.dst as u64) << 32 | head.tuple_hash as u64)
    }
}

/// Something of each flow. Nobody goes through it, so that its order has no effect.
pub(super) type FlowMap<V> = HashMap<FlowKey, V, FixedState>;

/// What a switch knows of a flow.
#[derive(Clone, Copy)]
struct FlowState {
    /// When its last frame came, or its way was looked at.
    at: Ps,
    /// A port, or what is mixed into its hash.
    way: u32,
}

#[derive(Default)]
struct SwitchState {
    flows: FlowMap<FlowState>,
    /// How often it has chosen: ports with equal queues take turns.
    turns: u32,
    /// Products of the numbers of ways up from the switches below: see `static_divisors`.
    divisor: u32,
}

/// See the module.
pub(super) struct LoadBalancing {
    mode: RoutingMode,
    switches: Vec<SwitchState>,
}

/// Where a frame goes.
pub(super) enum Choice {
    /// There, if there is a way at all.
    Way(Option<PortId>),
    /// It waits for its turn, or has been sent on.
    Held,
}

impl LoadBalancing {
    /// `None` for ECMP.
    pub(super) fn new(mode: RoutingMode, topology: &Topology) -> Option<LoadBalancing> {
        let divisors = static_divisors(topology).into_iter();
        let switches = divisors.map(|divisor| SwitchState { divisor, ..SwitchState::default() }).collect();
        (mode != RoutingMode::Ecmp).then_some(LoadBalancing { mode, switches })
    }

    /// Whether the source port says where a frame goes.
    pub(super) fn heeds_source_ports(&self) -> bool {
        self.mode == RoutingMode::Source
    }

    /// Whether a switch looks at others' queues.
    pub(super) fn looks_far(&self) -> bool {
        matches!(self.mode, RoutingMode::Reroute { .. })
    }
}

/// D-mod-k (Zahavi, 2012): a switch takes way number `destination / divisor` of its k ways up, modulo k; its divisor is the
/// product of the k of the tiers below. So destinations that share a way from the first tier part at the second.
fn static_divisors(topology: &Topology) -> Vec<u32> {
    let switches = topology.switches.len();
    let switch = |node: u32| node.checked_sub(topology.hosts).map(|switch| switch as usize);
    let mut neighbours = vec![Vec::new(); switches];
    let mut tier = vec![u32::MAX; switches];
    let mut queue = VecDeque::new();
    for cable in &topology.cables {
        match (switch(cable.a.0), switch(cable.b.0)) {
            (Some(a), Some(b)) => {
                neighbours[a].push(b);
                neighbours[b].push(a);
            }
            (None, Some(edge)) if tier[edge] != 0 => {
                tier[edge] = 0;
                queue.push_back(edge);
            }
            _ => {}
        }
    }
    let mut order = Vec::with_capacity(switches);
    while let Some(lower) = queue.pop_front() {
        order.push(lower);
        for &upper in &neighbours[lower] {
            if tier[upper] == u32::MAX {
                tier[upper] = tier[lower] + 1;
                queue.push_back(upper);
            }
        }
    }
    let mut divisors = vec![1u32; switches];
    for lower in order {
        let up = neighbours[lower].iter().filter(|&&upper| tier[upper] == tier[lower] + 1).count() as u32;
        let product = divisors[lower].saturating_mul(up.max(1));
        for &upper in neighbours[lower].iter().filter(|&&upper| tier[upper] == tier[lower] + 1) {
            divisors[upper] = divisors[upper].max(product);
        }
    }
    divisors
}

/// The hash of a frame whose first switch has given it a way. Way 0 is ECMP's.
fn rehashed(tuple_hash: u32, way: u16) -> u32 {
    tuple_hash ^ (way as u32).wrapping_mul(0x9E37_79B1)
}

impl<C: Content> Fabric<C> {
    /// By which port `switch` sends a frame on that came by `from`. Where order is strict, the last switch does so itself.
    pub(super) fn choose(
        &mut self,
        now: Ps,
        switch: u32,
        from: PortId,
        frame: FrameId,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) -> Choice {
        let head = *frames.head(frame);
        let source = self.ports[from.other_end().0 as usize].to.0;
        let (first, last) = (source < self.hosts, self.routes.is_last(switch, head.dst));
        // Behind a card stands the first switch that chooses.
        let enters = self.topology.role(NodeId(source)) == Role::Card || first;
        if last {
            let Some(to) = self.routes.next(switch, head.dst, head.tuple_hash) else {
                return Choice::Way(None);
            };
            if self.orders.is_none() || first {
                return Choice::Way(Some(to));
            }
            self.in_turn(now, switch, from, to, frame, frames, events);
            return Choice::Held;
        }
        if first && let Some(orders) = &mut self.orders {
            *frames.order(frame) = orders.number(switch, &head);
        }
        let Some(ways) = &mut self.ways else {
            return Choice::Way(self.routes.next(switch, head.dst, head.tuple_hash));
        };
        let list = self.routes.ways(switch, head.dst);
        let state = &mut ways.switches[switch as usize];
        Choice::Way(match ways.mode {
            RoutingMode::Ecmp => self.routes.next(switch, head.dst, head.tuple_hash),
            RoutingMode::Static => list.get((head.dst / state.divisor) as usize % list.len().max(1)).copied(),
            RoutingMode::Lag => {
                if first {
                    *frames.way(frame) = mix(mix(source) ^ head.dst) as u16;
                }
                self.routes.next(switch, head.dst, rehashed(0, *frames.way(frame)))
            }
            RoutingMode::Source if enters => self.routes.by_source(switch, &head),
            RoutingMode::Source => self.routes.next(switch, head.dst, head.tuple_hash),
            RoutingMode::Valiant => {
                if enters {
                    let hash = mix(mix(head.tuple_hash));
                    // Half of them go the shortest way.
                    let detour = self.routes.detour(switch, hash << 1).filter(|_| hash >> 31 == 0);
                    *frames.way(frame) = detour.map_or(0, |router| router as u16 + 1);
                }
                self.over_detour(switch, &head, frames.way(frame))
            }
            RoutingMode::Ugal => {
                if enters {
                    state.turns = state.turns.wrapping_add(1);
                    let hash = rng::source(self.seed ^ 0x06A1, switch, state.turns).random();
                    *frames.way(frame) = self.cheaper_way(now, switch, &head, hash);
                }
                self.over_detour(switch, &head, frames.way(frame))
            }
            RoutingMode::Adaptive => {
                state.turns = state.turns.wrapping_add(1);
                let turn = state.turns;
                self.shortest_queue(now, list, turn, head.class)
            }
            RoutingMode::Flowlet { gap } => {
                let known = state.flows.get(&FlowKey::of(&head)).filter(|flow| now - flow.at <= gap);
                let way = match known.map(|flow| PortId(flow.way)).filter(|way| list.contains(way)) {
                    Some(way) => Some(way),
                    None => {
                        state.turns = state.turns.wrapping_add(1);
                        let turn = state.turns;
                        self.shortest_queue(now, list, turn, head.class)
                    }
                };
                self.remember(switch, &head, way.map(|way| FlowState { at: now, way: way.0 }));
                way
            }
            RoutingMode::Reroute { every, least } => {
                if first {
                    *frames.way(frame) = self.way_of_flow(now, switch, &head, every, least);
                }
                self.routes.next(switch, head.dst, rehashed(head.tuple_hash, *frames.way(frame)))
            }
        })
    }

    /// The port towards the router that a frame makes its detour over, until it is in that router's group; then, and without a
    /// detour, towards its destination.
    fn over_detour(&self, switch: u32, head: &FrameHead, way: &mut u16) -> Option<PortId> {
        if let Some(router) = (*way as u32).checked_sub(1) {
            if self.routes.role(switch) == Role::Card {
                return self.routes.next(switch, head.dst, head.tuple_hash);
            }
            if !self.routes.same_group(switch, router) {
                let detour = self.routes.toward(switch, router, head.tuple_hash);
                return detour.or_else(|| self.routes.next(switch, head.dst, head.tuple_hash));
            }
            *way = 0;
        }
        self.routes.next(switch, head.dst, head.tuple_hash)
    }

    /// The detour that `hash` names, or 0 for the shortest way: UGAL with what this switch knows, its own queues. A detour has
    /// twice as many cables between groups, so it must have less than half as much before it.
    fn cheaper_way(&self, now: Ps, switch: u32, head: &FrameHead, hash: u32) -> u16 {
        let Some(router) = self.routes.detour(switch, hash) else { return 0 };
        let shortest = self.routes.next(switch, head.dst, head.tuple_hash);
        let detour = self.routes.toward(switch, router, head.tuple_hash);
        let (Some(shortest), Some(detour)) = (shortest, detour) else { return 0 };
        let (stopped, near) = self.wait(now, shortest, head.class);
        let (detour_stopped, far) = self.wait(now, detour, head.class);
        let cheaper = (detour_stopped, Ps(2 * far.0)) < (stopped, near);
        if cheaper { router as u16 + 1 } else { 0 }
    }

    fn remember(&mut self, switch: u32, head: &FrameHead, state: Option<FlowState>) {
        if let (Some(ways), Some(state)) = (&mut self.ways, state) {
            ways.switches[switch as usize].flows.insert(FlowKey::of(head), state);
        }
    }

    /// The port of a list that would send a frame of `class` first; of equal ones, whoever's turn it is.
    fn shortest_queue(&self, now: Ps, list: &[PortId], turn: u32, class: u8) -> Option<PortId> {
        let start = turn as usize % list.len().max(1);
        let (later, sooner) = list.split_at(start);
        sooner.iter().chain(later).copied().min_by_key(|&port| self.wait(now, port, class))
    }

    /// How long a frame of `class` would wait at a port; those that are paused come last.
    fn wait(&self, now: Ps, id: PortId, class: u8) -> (bool, Ps) {
        let port = &self.ports[id.0 as usize];
        match self.queued.get(port.queued as usize) {
            Some(queued) => (queued.paused >> (class % 8) & 1 == 1, port.time_of(queued.bytes)),
            None => (false, port.free_at - now),
        }
    }

    /// The way of a flow that begins at `switch`, a new one if the old is congested.
    fn way_of_flow(&mut self, now: Ps, switch: u32, head: &FrameHead, every: Ps, least: u64) -> u16 {
        let Some(ways) = &mut self.ways else { return 0 };
        let state = &mut ways.switches[switch as usize];
        let flow = state.flows.entry(FlowKey::of(head)).or_insert(FlowState { at: now, way: 0 });
        let way = flow.way as u16;
        if now - flow.at < every {
            return way;
        }
        state.turns = state.turns.wrapping_add(1);
        let mut source = rng::source(self.seed ^ 0x3A9, switch, state.turns);
        let load = self.load(now, switch, head, way);
        let mut best = (load.saturating_sub(least), way);
        for _ in 0..if load > least { CANDIDATES } else { 0 } {
            let other: u16 = source.random();
            let load = self.load(now, switch, head, other);
            if load < best.0 {
                best = (load, other);
            }
        }
        self.remember(switch, head, Some(FlowState { at: now, way: best.1 as u32 }));
        best.1
    }

    /// Bytes in the queues on a way from `switch` to the last one.
    fn load(&self, now: Ps, mut switch: u32, head: &FrameHead, way: u16) -> u64 {
        let hash = rehashed(head.tuple_hash, way);
        let mut sum = 0;
        while !self.routes.is_last(switch, head.dst) {
            let Some(port) = self.routes.next(switch, head.dst, hash) else { return u64::MAX };
            sum += self.waiting(now, port);
            switch = self.ports[port.0 as usize].to.0 - self.hosts;
        }
        sum
    }
}
