//! The trace of a run of real programs, whose packets are bytes: each message of SRD's is a flow there. All is told from what passes the ports: a
//! message begins when its first packet comes to its host's, and packets arrive when the last cable has carried them.

use super::name_index::{NameIndex, ends_of};
use super::rank_goal::Sent;
use super::trace::{Trace, TracedPacket};
use crate::apps::Place;
use crate::hosts::{RankContent, covers};
use crate::net::{DataPacket, FrameHead, PortId, Sight, Topology};
use srd_baselines::units::Ps;
use srd_wire::{Ack, Body, Data, Psn, codec};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// A message that is not at its end.
struct Message {
    flow: u32,
    bytes: u64,
    /// Bytes that have arrived, and that the sender knows of.
    came: u64,
    acked: u64,
    /// Of each packet, its payload and whether it has arrived.
    packets: HashMap<u32, (u32, bool)>,
}

/// See the module.
pub(super) struct RankTrace {
    trace: Trace,
    names: Arc<NameIndex>,
    topology: Topology,
    /// By sending and receiving process, and what the sender calls it.
    messages: HashMap<(u32, u32, u32), Message>,
    /// What that is, by flow.
    keys: HashMap<u32, (u32, u32, u32)>,
    /// All messages so far, by flow. Their ends are processes.
    sent: Vec<Sent>,
}

impl RankTrace {
    pub(super) fn new(trace: Trace, names: Arc<NameIndex>, topology: Topology) -> RankTrace {
        RankTrace { trace, names, topology, messages: HashMap::new(), keys: HashMap::new(), sent: Vec::new() }
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
                // A first copy that comes to a switch after all is of a message that may be at its end.
                if self.names.host_at(port).is_some() && data.tx_count == 0 {
                    self.begin(now, (from, to, data.msg.0), data.len);
                }
                self.traced((from, to, data.msg.0), seen.ports.0, data)
            }
            _ => None,
        };
        self.trace.see(now, port, head, traced, sight);
        let (Sight::Leaves(at), (_, end)) = (sight, ends_of(&self.topology, port)) else { return };
        if end.0 >= self.topology.hosts {
            return;
        }
        let cable = &self.topology.cables[port.cable() as usize];
        let arrived = at + self.names.time_on(port, head.bytes) + cable.delay;
        if let Some(packet) = traced {
            self.arrived(arrived, &packet);
        }
        if let Some(ack) = &packet.ack {
            self.acknowledged(arrived, to, from, ack);
        }
    }

    /// A message begins, unless it has.
    fn begin(&mut self, now: Ps, key: (u32, u32, u32), bytes: u32) {
        if self.messages.contains_key(&key) {
            return;
        }
        let (flow, bytes) = (self.sent.len() as u32, u64::from(bytes));
        self.sent.push(Sent { from: key.0, to: key.1, bytes, began: now, came: None });
        self.trace.take_in(flow, (key.0, key.1), bytes);
        self.trace.flow_started(now.time(), flow);
        self.keys.insert(flow, key);
        self.messages.insert(key, Message { flow, bytes, came: 0, acked: 0, packets: HashMap::new() });
    }

    /// Which message a packet is of, if that is not at its end.
    fn traced(&mut self, key: (u32, u32, u32), source_port: u16, data: &Data<&[u8]>) -> Option<TracedPacket> {
        let message = self.messages.get_mut(&key)?;
        let payload = data.payload.len() as u32;
        message.packets.entry(data.psn.0).or_insert((payload, false));
        let (flow, tx, path) = (message.flow, data.tx_count, data.path.0 as u16);
        let data = DataPacket { connection: 0, psn: data.psn.0, inbox: flow, payload, path };
        Some(TracedPacket { flow, tx, source_port, data })
    }

    fn arrived(&mut self, at: Ps, packet: &TracedPacket) {
        self.trace.arrived(at, at, packet.flow, packet.data.psn, packet.tx);
        let message = self.keys.get(&packet.flow).and_then(|key| self.messages.get_mut(key));
        let Some(message) = message else { return };
        let Some((payload, came)) = message.packets.get_mut(&packet.data.psn) else { return };
        if std::mem::replace(came, true) {
            return;
        }
        message.came += u64::from(*payload);
        if message.came >= message.bytes {
            self.trace.flow_received(at, packet.flow);
            self.sent[packet.flow as usize].came = Some(at);
        }
    }

    fn acknowledged(&mut self, at: Ps, sender: u32, receiver: u32, ack: &Ack) {
        for (psn, flow) in self.trace.acknowledged(at, sender, receiver, 0, |psn| covers(ack, Psn(psn))) {
            let Some(key) = self.keys.get(&flow) else { continue };
            let Some(message) = self.messages.get_mut(key) else { continue };
            message.acked += message.packets.get(&psn).map_or(0, |(payload, _)| u64::from(*payload));
            if message.acked >= message.bytes {
                self.trace.flow_sent(at, flow);
                self.messages.remove(key);
                self.keys.remove(&flow);
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
