//! The trace of a run of real programs, whose packets are bytes: each message of SRD's is a flow there. All is told from what passes the ports: a
//! message begins when its first packet comes to its host's, and packets arrive when the last cable has carried them.

use super::name_index::NameIndex;
use super::rank_goal::Sent;
use super::trace::{Trace, TracedPacket};
use crate::apps::Place;
use crate::hosts::{RankContent, covers};
use crate::net::{DataPacket, FrameHead, PortId, Sight};
use srd_baselines::units::Ps;
use srd_wire::{Ack, Body, Data, Psn, codec};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// A message that is not at its end.
#[derive(Default)]
struct Message {
    /// Bytes that have left, that have arrived, and that the sender knows of.
    left: u64,
    came: u64,
    acked: u64,
}

/// A packet: of which flow, how much, and whether it has arrived.
struct Known {
    flow: u32,
    payload: u32,
    came: bool,
}

/// See the module.
pub(super) struct RankTrace {
    trace: Trace,
    names: Arc<NameIndex>,
    /// By sending and receiving process, and what the sender calls it: the flow of a message of which not all has left. It calls others so later.
    leaving: HashMap<(u32, u32, u32), u32>,
    messages: HashMap<u32, Message>,
    /// By sending and receiving process, and sequence number.
    packets: HashMap<(u32, u32, u32), Known>,
    /// All messages so far, by flow. Their ends are processes.
    sent: Vec<Sent>,
}

impl RankTrace {
    pub(super) fn new(trace: Trace, names: Arc<NameIndex>) -> RankTrace {
        RankTrace {
            trace,
            names,
            leaving: HashMap::new(),
            messages: HashMap::new(),
            packets: HashMap::new(),
            sent: Vec::new(),
        }
    }

    /// A frame on a port.
    pub(super) fn see(&mut self, now: Ps, port: PortId, head: &FrameHead, seen: &RankContent, sight: Sight) {
        let RankContent::Rank(seen) = seen else {
            self.trace.see(now, port, head, None, sight); // it takes its time on its host's link
            return;
        };
        let to = Place { host: head.dst, process: head.process };
        let (Some(from), Some(to)) = (self.names.process_at(seen.at()), self.names.process_at(to)) else {
            return;
        };
        let Ok(packet) = codec::decode(&seen.bytes) else { return };
        let traced = match &packet.body {
            Body::Data(data) => {
                if self.names.host_at(port).is_some() {
                    self.leaves(now, from, to, data);
                }
                self.traced(from, to, seen.ports.0, data)
            }
            _ => None,
        };
        self.trace.see(now, port, head, traced, sight);
        let Sight::Leaves(at) = sight else { return };
        let Some(arrived) = self.names.at_host(port, at, head.bytes) else { return };
        if let Some(packet) = traced {
            self.arrived(arrived, (from, to, packet.data.psn), &packet);
        }
        if let Some(ack) = &packet.ack {
            self.acknowledged(arrived, to, from, ack);
        }
    }

    /// A packet comes to its host's port: if that is new, so may its message be.
    fn leaves(&mut self, now: Ps, from: u32, to: u32, data: &Data<&[u8]>) {
        let (packet, name) = ((from, to, data.psn.0), (from, to, data.msg.0));
        if self.packets.contains_key(&packet) {
            return;
        }
        let flow = self.leaving.get(&name).copied().unwrap_or_else(|| {
            let (flow, bytes) = (self.sent.len() as u32, u64::from(data.len));
            self.sent.push(Sent { from, to, bytes, began: now, came: None });
            self.trace.take_in(flow, (from, to), bytes);
            self.trace.flow_started(now.time(), flow);
            self.messages.insert(flow, Message::default());
            self.leaving.insert(name, flow);
            flow
        });
        let payload = data.payload.len() as u32;
        self.packets.insert(packet, Known { flow, payload, came: false });
        if let Some(message) = self.messages.get_mut(&flow) {
            message.left += u64::from(payload);
            if message.left >= self.sent[flow as usize].bytes {
                self.leaving.remove(&name);
            }
        }
    }

    /// Which message a packet is of.
    fn traced(&self, from: u32, to: u32, source_port: u16, data: &Data<&[u8]>) -> Option<TracedPacket> {
        let Known { flow, payload, .. } = *self.packets.get(&(from, to, data.psn.0))?;
        let (tx, path) = (data.tx_count, data.path.0 as u16);
        let data = DataPacket { connection: 0, psn: data.psn.0, inbox: flow, payload, path };
        Some(TracedPacket { flow, tx, source_port, data })
    }

    fn arrived(&mut self, at: Ps, name: (u32, u32, u32), packet: &TracedPacket) {
        self.trace.arrived(at, at, packet.flow, packet.data.psn, packet.tx);
        let Some(known) = self.packets.get_mut(&name).filter(|known| !known.came) else { return };
        known.came = true;
        let Some(message) = self.messages.get_mut(&packet.flow) else { return };
        message.came += u64::from(known.payload);
        if message.came >= self.sent[packet.flow as usize].bytes {
            self.trace.flow_received(at, packet.flow);
            self.sent[packet.flow as usize].came = Some(at);
        }
    }

    fn acknowledged(&mut self, at: Ps, sender: u32, receiver: u32, ack: &Ack) {
        for (psn, flow) in self.trace.acknowledged(at, sender, receiver, 0, |psn| covers(ack, Psn(psn))) {
            let Some(message) = self.messages.get_mut(&flow) else { continue };
            let payload = self.packets.get(&(sender, receiver, psn)).map_or(0, |known| known.payload);
            message.acked += u64::from(payload);
            if message.acked >= self.sent[flow as usize].bytes {
                self.trace.flow_sent(at, flow);
                self.messages.remove(&flow);
            }
        }
    }

    /// The run has ended. Returns what a person should know.
    pub(super) fn finish(&mut self) -> io::Result<Vec<String>> {
        self.trace.finish()
    }

    /// All messages, by flow. Their ends are processes.
    pub(super) fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// A line of somebody else.
    pub(super) fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }
}
