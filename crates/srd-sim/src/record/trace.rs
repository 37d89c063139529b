//! The trace of a run: what befell the packets of chosen flows, one JSON object per line, in the order in which it
//! happened.
//!
//! What a line says is `srd-trace`'s [`Event`]: what a simulation knows and a host does not. It comes from two sides, the ports
//! ([`Trace::see`]) and the processes (`observed`). What the transports decide has a schema of its own (`srd-proto`); its
//! events stand between the others, under their own names (`transport_events`).

use super::frame_metadata::FrameMetadata;
use super::name_index::NameIndex;
use super::transport_events::{Contexts, Decision};
use crate::apps::Place;
use crate::hosts::Srd;
use crate::net::{Content, DataPacket, FrameHead, Gone, PortId, Sight};
use serde::Serialize;
use srd_baselines::transport::Report;
use srd_baselines::units::Ps;
use srd_proto::PeerId;
use srd_trace::Event;
use srd_wire::Time;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

/// Most lines of a trace, whoever has chosen its flows: some 250 MB.
pub const MAX_LINES: u64 = 2_000_000;

/// Use of a host's link so far.
#[derive(Clone, Copy, Default)]
struct LinkUse {
    /// Time that all its frames take.
    busy: Ps,
    /// When the last of them has left.
    until: Ps,
}

impl LinkUse {
    /// Time for which it has been busy until `now`.
    fn busy_until(&self, now: Ps) -> Ps {
        self.busy - self.until.since(now)
    }
}

/// Since when a flow has had the chance to send its next packet, and how long its link had been busy by then.
#[derive(Clone, Copy, Default)]
struct Since {
    at: Ps,
    busy: Ps,
}

/// A flow of the trace.
#[derive(Clone, Copy)]
struct Told {
    /// The number that people see.
    id: u32,
    /// Sending and receiving process.
    ends: (u32, u32),
    /// What it is to move.
    bytes: Option<u64>,
    since: Since,
}

/// See the module.
pub(super) struct Trace {
    names: Arc<NameIndex>,
    out: BufWriter<File>,
    lines: u64,
    limit: u64,
    failed: Option<io::Error>,
    /// Flows of the trace.
    flows: HashMap<u32, Told>,
    links: HashMap<u32, LinkUse>,
    /// By sending and receiving process: packets that are not acknowledged.
    outstanding: HashMap<(u32, u32), Vec<Outstanding>>,
    /// How often packets of baselines have been sent.
    sent: HashMap<(u32, u32), u8>,
    /// What is on its host's cable.
    on_first_cable: HashSet<Name>,
    /// When what waits came to a port with several queues, which says later when it leaves.
    joined: HashMap<Name, Ps>,
    /// Packets that a switch has trimmed to their headers.
    cut: HashSet<Name>,
    contexts: Contexts,
}

/// A packet that is not acknowledged.
struct Outstanding {
    connection: u32,
    psn: u32,
    flow: u32,
}

/// A transmission of a data packet: flow, PSN, number.
type Name = (u32, u32, u8);

impl Trace {
    /// A trace of these flows with the bytes that they are to move.
    pub(super) fn new(
        names: Arc<NameIndex>,
        out: BufWriter<File>,
        limit: u64,
        flows: impl Iterator<Item = (u32, Option<u64>)>,
        run: &Event,
    ) -> Trace {
        let told = |(flow, bytes)| {
            (flow, Told { id: names.id(flow), ends: names.ends(flow), bytes, since: Since::default() })
        };
        let flows: HashMap<u32, Told> = flows.map(told).collect();
        let contexts = Contexts::of(names.clone(), flows.values().map(|told| told.ends));
        let hosts = flows.values().map(|told| names.place(told.ends.0).host);
        let mut trace = Trace {
            links: hosts.map(|host| (host, LinkUse::default())).collect(),
            flows,
            names,
            out,
            lines: 0,
            limit,
            failed: None,
            outstanding: HashMap::new(),
            sent: HashMap::new(),
            on_first_cable: HashSet::new(),
            joined: HashMap::new(),
            cut: HashSet::new(),
            contexts,
        };
        trace.write(run);
        trace
    }

    fn write(&mut self, event: &impl Serialize) {
        self.lines += 1;
        if self.lines <= self.limit {
            self.put(event);
        }
    }

    fn put(&mut self, event: &impl Serialize) {
        let line = serde_json::to_writer(&mut self.out, event).map_err(io::Error::from);
        if let Err(error) = line.and_then(|()| self.out.write_all(b"\n")) {
            self.failed.get_or_insert(error);
        }
    }

    /// The run has ended. Returns what a person should know.
    pub(super) fn finish(&mut self) -> io::Result<Vec<String>> {
        let missing = self.lines.saturating_sub(self.limit);
        let mut notes = Vec::new();
        if missing > 0 {
            self.put(&Event::Truncated { missing });
            notes.push(format!(
                "trace.jsonl ends after {} lines; {missing} more are missing: trace fewer flows",
                self.limit
            ));
        }
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.out.flush().map(|()| notes),
        }
    }

    // ---- the processes' side ----

    /// One more flow, which nobody knew of before: its number is its index.
    pub(super) fn take_in(&mut self, flow: u32, ends: (u32, u32), bytes: u64) {
        self.links.entry(self.names.place(ends.0).host).or_default();
        let told = Told { id: flow, ends, bytes: Some(bytes), since: Since::default() };
        self.flows.insert(flow, told);
    }

    pub(super) fn flow_started(&mut self, now: Time, flow: u32) {
        let Some(&Told { id, ends: (from, to), bytes, .. }) = self.flows.get(&flow) else {
            return; // or a message of a program
        };
        let (host, now) = (self.names.place(from).host, Ps::of(now));
        let since = Since { at: now, busy: self.links[&host].busy_until(now) };
        self.flows.entry(flow).and_modify(|told| told.since = since);
        let (src, dst) = (self.names.process_name(from), self.names.process_name(to));
        self.write(&Event::FlowStarted { t_us: now.as_micros(), flow: id, src, dst, bytes });
    }

    pub(super) fn flow_reported(&mut self, now: Time, process: u32, report: Report) {
        let flow = match report {
            Report::Sent { flow } | Report::Failed { flow, .. } => Some(flow),
            Report::Received { inbox } => self.names.flow_into(process, inbox),
            Report::Ended => None,
        };
        let Some(told) = flow.and_then(|flow| self.flows.get(&flow)) else { return };
        let (t_us, flow) = (Ps::of(now).as_micros(), told.id);
        self.write(&match report {
            Report::Sent { .. } => Event::FlowSent { t_us, flow },
            Report::Received { .. } => Event::FlowReceived { t_us, flow },
            Report::Failed { why, .. } => Event::FlowFailed { t_us, flow, why: why.to_string() },
            Report::Ended => unreachable!("a program is no flow"),
        });
    }

    /// A process looks at a frame that came at `arrived`.
    pub(super) fn frame_received(
        &mut self,
        process: u32,
        now: Time,
        arrived: Time,
        head: &FrameHead,
        seen: &FrameMetadata,
    ) {
        if let Some(data) = seen.data().filter(|_| !head.trimmed)
            && let Some(flow) = self.traced(process, &data)
        {
            self.arrived(Ps::of(now), Ps::of(arrived), flow, data.psn, seen.tx);
        }
        if let Some(connection) = seen.acknowledges()
            && let Some(peer) = self.names.process_at(seen.from)
        {
            self.acknowledged(Ps::of(now), process, peer, connection, |psn| seen.covers(psn));
        }
    }

    /// The receiver has every byte of a flow.
    pub(super) fn flow_received(&mut self, now: Ps, flow: u32) {
        self.write(&Event::FlowReceived { t_us: now.as_micros(), flow: self.flows[&flow].id });
    }

    /// The sender has every byte of a flow acknowledged.
    pub(super) fn flow_sent(&mut self, now: Ps, flow: u32) {
        self.write(&Event::FlowSent { t_us: now.as_micros(), flow: self.flows[&flow].id });
    }

    /// A call of a program's.
    pub(super) fn call_returned(&mut self, call: &Event) {
        self.write(call);
    }

    /// The receiving host looks at a packet.
    pub(super) fn arrived(&mut self, now: Ps, arrived: Ps, flow: u32, psn: u32, tx: u8) {
        self.write(&Event::FrameArrived {
            t_us: now.as_micros(),
            flow: self.flows[&flow].id,
            psn,
            tx,
            arrived_us: arrived.as_micros(),
        });
    }

    /// What has been acknowledged: packets and their flows.
    pub(super) fn acknowledged(
        &mut self,
        now: Ps,
        process: u32,
        peer: u32,
        connection: u32,
        covers: impl Fn(u32) -> bool,
    ) -> Vec<(u32, u32)> {
        let Some(outstanding) = self.outstanding.get_mut(&(process, peer)) else { return Vec::new() };
        let mut acked = Vec::new();
        outstanding.retain(|&Outstanding { connection: of, psn, flow }| {
            let covered = of == connection && covers(psn);
            if covered {
                acked.push((psn, flow));
            }
            !covered
        });
        let t_us = now.as_micros();
        for &(psn, flow) in &acked {
            self.write(&Event::PacketAcked { t_us, flow: self.flows[&flow].id, psn });
        }
        acked
    }

    // ---- the transports' side ----

    /// Whether decisions of this process belong into the trace.
    pub(super) fn decides(&self, process: u32) -> bool {
        self.contexts.has(process)
    }

    /// A transport has decided something about a context.
    pub(super) fn decided(&mut self, process: u32, now: Time, peer: PeerId, event: &srd_proto::Event) {
        if let Some(decision) = self.contexts.take(process, now, peer, event) {
            self.write(&decision);
        }
    }

    /// The transport of `process` has done what it was asked to: who its new contexts' peers are can be seen.
    pub(super) fn settle(&mut self, process: u32, srd: &Srd) {
        let late: Vec<Decision> = self.contexts.settle(process, srd);
        late.iter().for_each(|decision| self.write(decision));
    }

    // ---- the fabric's side ----

    /// The flow of a data packet to `process`, if it is one of the trace.
    fn traced(&self, process: u32, data: &DataPacket) -> Option<u32> {
        let flow = self.names.flow_into(process, data.inbox)?;
        self.flows.contains_key(&flow).then_some(flow)
    }

    /// A baseline's packet leaves for the process at `to`. Returns how often it has been sent before.
    pub(super) fn times_sent(&mut self, to: Place, data: &DataPacket) -> u8 {
        let flow = self.names.process_at(to).and_then(|process| self.traced(process, data));
        let Some(flow) = flow else { return 0 };
        let next = self.sent.entry((flow, data.psn)).or_default();
        let times = *next;
        *next = next.saturating_add(1);
        times
    }

    /// What a frame is, if it is of a flow of the trace.
    pub(super) fn packet_of(&self, head: &FrameHead, seen: &FrameMetadata) -> Option<TracedPacket> {
        let data = seen.data()?;
        let to = Place { host: head.dst, process: head.process };
        let flow = self.names.process_at(to).and_then(|process| self.traced(process, &data))?;
        Some(TracedPacket { flow, tx: seen.tx, source_port: seen.ports.0, data })
    }

    /// A frame on a port; `packet` says what it is, if it is of a flow of the trace.
    pub(super) fn see(
        &mut self,
        now: Ps,
        port: PortId,
        head: &FrameHead,
        mut packet: Option<TracedPacket>,
        sight: Sight,
    ) {
        if head.trimmed
            && let Some(packet) = packet.take()
        {
            // What is left of it is told of once, where it was cut.
            if self.cut.insert(packet.name()) {
                self.lost(now, port, &packet, "trimmed");
            }
            return;
        }
        let host = self.names.host_at(port);
        let Some(host) = host else {
            if let Some(packet) = packet {
                match sight {
                    Sight::Joins => {
                        self.joined.insert(packet.name(), now);
                    }
                    Sight::Leaves(at) => self.queued(now, at, port, &packet, head),
                    Sight::Gone(why) => self.lost(now, port, &packet, word(why)),
                }
            }
            return;
        };
        match sight {
            Sight::Joins => {}
            Sight::Leaves(at) => self.leaves_host(at, port, host, packet.as_ref(), head),
            Sight::Gone(why) => {
                let Some(packet) = packet else { return };
                // A cable that is dead takes frames without their being seen to leave.
                if !self.on_first_cable.contains(&packet.name()) {
                    self.leaves_host(now, port, host, Some(&packet), head);
                }
                self.lost(now, port, &packet, word(why));
            }
        }
    }

    fn leaves_host(
        &mut self,
        at: Ps,
        port: PortId,
        host: u32,
        packet: Option<&TracedPacket>,
        head: &FrameHead,
    ) {
        if let Some(packet) = packet {
            self.sent(at, port, host, packet, head);
            self.on_first_cable.insert(packet.name());
        }
        self.occupy(host, port, at, head, packet.map(|packet| packet.flow));
    }

    /// A host's link is taken by a frame from `at` on.
    fn occupy(&mut self, host: u32, port: PortId, at: Ps, head: &FrameHead, flow: Option<u32>) {
        let Some(link) = self.links.get_mut(&host) else { return };
        let takes = self.names.time_on(port, head.bytes);
        link.busy += takes;
        link.until = at + takes;
        if let Some(flow) = flow
            && let Some(told) = self.flows.get_mut(&flow)
        {
            told.since = Since { at: link.until, busy: link.busy };
        }
    }

    fn sent(&mut self, at: Ps, port: PortId, host: u32, packet: &TracedPacket, head: &FrameHead) {
        let &TracedPacket { flow, tx, source_port, data } = packet;
        let (Told { since, ends, .. }, link) = (self.flows[&flow], self.links[&host]);
        let waited = at - since.at;
        let others = (link.busy_until(at) - since.busy).min(waited);
        if tx == 0 {
            let outstanding = self.outstanding.entry(ends).or_default();
            outstanding.push(Outstanding { connection: data.connection, psn: data.psn, flow });
        }
        self.write(&Event::FrameSent {
            t_us: at.as_micros(),
            flow: self.flows[&flow].id,
            psn: data.psn,
            tx,
            path: data.path,
            source_port,
            port: self.names.port_name(port),
            bytes: head.bytes,
            payload: data.payload,
            idle_us: (waited - others).as_micros(),
            others_us: others.as_micros(),
        });
    }

    fn queued(&mut self, now: Ps, leaves: Ps, port: PortId, packet: &TracedPacket, head: &FrameHead) {
        let name = packet.name();
        self.on_first_cable.remove(&name);
        let came = self.joined.remove(&name).unwrap_or(now);
        self.write(&Event::FrameQueued {
            t_us: came.as_micros(),
            flow: self.flows[&packet.flow].id,
            psn: packet.data.psn,
            tx: packet.tx,
            port: self.names.port_name(port),
            leaves_us: leaves.as_micros(),
            marked: head.marked,
        });
    }

    fn lost(&mut self, now: Ps, port: PortId, packet: &TracedPacket, why: &str) {
        self.on_first_cable.remove(&packet.name());
        self.write(&Event::FrameLost {
            t_us: now.as_micros(),
            flow: self.flows[&packet.flow].id,
            psn: packet.data.psn,
            tx: packet.tx,
            port: self.names.port_name(port),
            why: why.to_string(),
        });
    }
}

fn word(why: Gone) -> &'static str {
    match why {
        Gone::NoRoom => "queue_full",
        Gone::Fault => "cable",
        Gone::NoRoute => "no_route",
    }
}

/// A data packet of a traced flow on its way.
#[derive(Clone, Copy)]
pub(super) struct TracedPacket {
    pub(super) flow: u32,
    /// How often it had been sent before.
    pub(super) tx: u8,
    pub(super) source_port: u16,
    pub(super) data: DataPacket,
}

impl TracedPacket {
    fn name(&self) -> Name {
        (self.flow, self.data.psn, self.tx)
    }
}
