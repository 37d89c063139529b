//! Strict order: the first switch numbers the frames of each flow, the last one holds those that have come early until the ones
//! before them have. Frames that never come are waited for only so long.
//!
//! What is held lies in memory of its own, of which there is enough.

use super::Fabric;
use super::load_balancing::{FlowKey, FlowMap};
use crate::net::event::Event;
use crate::net::event_queue::EventQueue;
use crate::net::frame::{Content, FrameHead, FrameId, FramePool};
use crate::net::topology::PortId;
use srd_baselines::units::Ps;

/// A frame that has come early.
#[derive(Clone, Copy)]
struct Early {
    number: u16,
    frame: FrameId,
    /// The port by which it came, and when.
    from: PortId,
    at: Ps,
}

/// A flow at its last switch.
#[derive(Default)]
struct Flow {
    /// Number of the frame that is next.
    next: u16,
    /// Later ones, in order.
    early: Vec<Early>,
    /// An event says when the first of them has waited long enough.
    watched: bool,
}

/// A switch to which hosts are cabled.
#[derive(Default)]
struct Edge {
    /// Of flows that begin here: the next number.
    numbers: FlowMap<u16>,
    /// Of flows that end here: their place in `flows`.
    places: FlowMap<u32>,
    flows: Vec<Flow>,
}

/// See the module.
pub(super) struct Resequencing {
    patience: Ps,
    edges: Vec<Edge>,
    /// Frames that came early.
    held: u64,
    /// Frames that came when their turn had passed.
    late: u64,
    /// Frames that were held are on their way to a port: they have had room all the time.
    pub(super) lets_go: bool,
}

impl Resequencing {
    pub(super) fn new(patience: Ps, switches: usize) -> Resequencing {
        let edges = std::iter::repeat_with(Edge::default).take(switches).collect();
        Resequencing { patience, edges, held: 0, late: 0, lets_go: false }
    }

    /// The number of a frame that comes from a host of `switch`.
    pub(super) fn number(&mut self, switch: u32, head: &FrameHead) -> u16 {
        let next = self.edges[switch as usize].numbers.entry(FlowKey::of(head)).or_insert(0);
        let number = *next;
        *next = next.wrapping_add(1);
        number
    }
}

impl<C: Content> Fabric<C> {
    /// A frame has come to its last switch by `from`: it goes on to its host by `to` as soon as it is its turn.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn in_turn(
        &mut self,
        now: Ps,
        switch: u32,
        from: PortId,
        to: PortId,
        frame: FrameId,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) {
        let Some(orders) = &mut self.orders else { return };
        let number = *frames.order(frame);
        let edge = &mut orders.edges[switch as usize];
        let Edge { places, flows, .. } = edge;
        let place = *places.entry(FlowKey::of(frames.head(frame))).or_insert_with(|| {
            flows.push(Flow::default());
            (flows.len() - 1) as u32
        });
        let flow = &mut flows[place as usize];
        match number.wrapping_sub(flow.next) as i16 {
            0 => {
                flow.next = flow.next.wrapping_add(1);
                self.forward(now, from, to, frame, frames, events);
                self.go_on(now, switch, place, frames, events);
            }
            1.. => {
                orders.held += 1;
                let distance = |early: &Early| early.number.wrapping_sub(flow.next);
                let at = flow.early.partition_point(|early| distance(early) < number.wrapping_sub(flow.next));
                flow.early.insert(at, Early { number, frame, from, at: now });
                if !std::mem::replace(&mut flow.watched, true) {
                    events.push(now + orders.patience, Event::GiveUp { switch, flow: place });
                }
            }
            _ => {
                orders.late += 1;
                self.forward(now, from, to, frame, frames, events);
            }
        }
    }

    /// Sends on what has become next.
    fn go_on(
        &mut self,
        now: Ps,
        switch: u32,
        place: u32,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) {
        while let Some(orders) = &mut self.orders {
            let flow = &mut orders.edges[switch as usize].flows[place as usize];
            let Some(&Early { number, frame, from, .. }) = flow.early.first() else { return };
            if number != flow.next {
                return;
            }
            flow.early.remove(0);
            flow.next = flow.next.wrapping_add(1);
            orders.lets_go = true;
            if let Some(to) = self.routes.next(switch, frames.head(frame).dst, 0) {
                self.forward(now, from, to, frame, frames, events);
            }
            self.orders.iter_mut().for_each(|orders| orders.lets_go = false);
        }
    }

    /// Frames of a flow may have waited long enough for those before them.
    pub fn give_up(
        &mut self,
        now: Ps,
        switch: u32,
        place: u32,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) {
        loop {
            let Some(orders) = &mut self.orders else { return };
            let flow = &mut orders.edges[switch as usize].flows[place as usize];
            let Some(first) = flow.early.iter().map(|early| early.at).min() else {
                flow.watched = false;
                return;
            };
            if first + orders.patience > now {
                return events.push(first + orders.patience, Event::GiveUp { switch, flow: place });
            }
            flow.next = flow.early[0].number;
            self.go_on(now, switch, place, frames, events);
        }
    }

    /// Frames that their last switch has held until it was their turn, and frames that came after it had passed.
    pub fn held_and_late(&self) -> (u64, u64) {
        self.orders.as_ref().map_or((0, 0), |orders| (orders.held, orders.late))
    }
}
