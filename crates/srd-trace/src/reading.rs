//! A trace file as flows, packets, and each packet's copies.

use crate::contexts::{Context, Decided, Decision};
use crate::event::{Event, Host};
use crate::lines::{self, Line, Named};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

/// A trace, read. Times are microseconds.
#[derive(Debug, Default)]
pub struct TraceFile {
    pub(crate) scenario: String,
    pub(crate) seed: u64,
    pub(crate) flows_of_run: u32,
    pub(crate) traced: u32,
    pub(crate) base_rtt_us: f64,
    pub(crate) missing_lines: u64,
    /// The process that recorded it, if it is none of the simulator's.
    pub(crate) host: Option<Host>,
    /// When its recording ended in order.
    pub(crate) recorded_until: Option<f64>,
    /// Time of the last line.
    pub(crate) last: f64,
    flows: BTreeMap<u32, Flow>,
    pub(crate) calls: Vec<Call>,
    ports: Vec<String>,
    port_numbers: HashMap<String, u32>,
    /// What transports have decided, by the process of the transport and that of its peer.
    pub(crate) contexts: HashMap<(String, String), Context>,
}

/// A call of MPI, in a rank of a real program.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Call {
    pub(crate) job: Option<u32>,
    pub(crate) rank: u32,
    pub(crate) process: String,
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) began: f64,
    pub(crate) ended: f64,
}

/// A flow.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    pub(crate) number: u32,
    pub(crate) src: String,
    pub(crate) dst: String,
    pub(crate) bytes: Option<u64>,
    pub(crate) started: f64,
    pub(crate) received: Option<f64>,
    pub(crate) sent: Option<f64>,
    pub(crate) failed: Option<(f64, String)>,
    /// In the order in which they left first.
    pub(crate) packets: Vec<Packet>,
    by_psn: HashMap<u32, usize>,
}

/// A packet, however often it was sent.
#[derive(Debug, Default)]
pub(crate) struct Packet {
    pub(crate) psn: u32,
    pub(crate) acked: Option<f64>,
    pub(crate) copies: Vec<Copy>,
}

/// One transmission.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) tx: u8,
    pub(crate) path: u16,
    pub(crate) source_port: u16,
    pub(crate) port: u32,
    pub(crate) sent: f64,
    pub(crate) idle: f64,
    pub(crate) others: f64,
    pub(crate) hops: Vec<Hop>,
    pub(crate) fate: Fate,
}

/// A switch's port on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) port: u32,
    pub(crate) came: f64,
    pub(crate) leaves: f64,
    pub(crate) marked: bool,
}

/// What became of a copy.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Fate {
    /// Nothing that the trace tells: it was on its way at the end, or the receiving host lost it.
    Unknown,
    Lost {
        at: f64,
        port: u32,
        why: String,
    },
    Arrived {
        at: f64,
        looked: f64,
    },
}

impl Flow {
    /// From its start to its end, if it has come to that.
    pub(crate) fn total_us(&self) -> Option<f64> {
        Some(self.sent? - self.started)
    }
}

impl Copy {
    /// Time in queues of switches.
    pub(crate) fn queued(&self) -> f64 {
        self.hops.iter().map(|hop| hop.leaves - hop.came).sum()
    }

    /// When it came to the receiver's card.
    pub(crate) fn arrived(&self) -> Option<f64> {
        match self.fate {
            Fate::Arrived { at, .. } => Some(at),
            _ => None,
        }
    }
}

impl Packet {
    /// The copy that arrived first.
    pub(crate) fn arrived_first(&self) -> Option<&Copy> {
        let arrived = self.copies.iter().filter_map(|copy| Some((copy.arrived()?, copy)));
        arrived.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, copy)| copy)
    }
}

impl TraceFile {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> io::Result<TraceFile> {
        let mut trace = TraceFile::default();
        lines::read(path, |line| trace.take_line(line))?;
        Ok(trace)
    }

    /// Reads the bytes of a file.
    pub fn parse(bytes: &[u8]) -> io::Result<TraceFile> {
        let mut trace = TraceFile::default();
        lines::read_from(bytes, |line| trace.take_line(line))?;
        Ok(trace)
    }

    pub(crate) fn take_line(&mut self, line: &Line<'_>) -> Result<(), String> {
        match &line.named {
            Named::Happened => self.take(line.parse()?),
            Named::Decided(_) => {
                let decision: Decision = line.parse()?;
                if decision != Decision::Other {
                    let Decided { t_us, src, dst } = line.parse()?;
                    self.last = self.last.max(t_us);
                    self.contexts.entry((src, dst)).or_default().decisions.push((t_us, decision));
                }
                Ok(())
            }
        }
    }

    fn take(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Run { scenario, seed, flows, traced, base_rtt_us, host, .. } => {
                self.host = host;
                (self.scenario, self.seed, self.base_rtt_us) = (scenario, seed, base_rtt_us);
                (self.flows_of_run, self.traced) = (flows, traced);
            }
            Event::FlowStarted { t_us, flow, src, dst, bytes } => {
                let flow = self.flow_mut(flow);
                (flow.started, flow.bytes) = (t_us, bytes);
                (flow.src, flow.dst) = (src, dst);
            }
            Event::FlowReceived { t_us, flow } => self.flow_mut(flow).received = Some(t_us),
            Event::FlowSent { t_us, flow } => self.flow_mut(flow).sent = Some(t_us),
            Event::FlowFailed { t_us, flow, why } => self.flow_mut(flow).failed = Some((t_us, why)),
            Event::PacketAcked { t_us, flow, psn } => self.packet(flow, psn).acked = Some(t_us),
            Event::CallReturned { t_us, job, rank, process, call, began_us, bytes, .. } => {
                self.calls.push(Call { job, rank, process, name: call, bytes, began: began_us, ended: t_us });
            }
            Event::Truncated { missing } => self.missing_lines = missing,
            Event::Dropped { t_us, missing } => {
                self.missing_lines += missing;
                self.last = self.last.max(t_us);
                self.contexts.values_mut().for_each(|context| context.decisions.push((t_us, Decision::Gap)));
            }
            Event::RecordingEnded { t_us, .. } => self.recorded_until = Some(t_us),
            Event::FrameSent { t_us, flow, psn, tx, path, source_port, port, idle_us, others_us, .. } => {
                let port = self.port_number(port);
                self.packet(flow, psn).copies.push(Copy {
                    tx,
                    path,
                    source_port,
                    port,
                    sent: t_us,
                    idle: idle_us,
                    others: others_us,
                    hops: Vec::new(),
                    fate: Fate::Unknown,
                });
            }
            Event::FrameQueued { t_us, flow, psn, tx, port, leaves_us, marked } => {
                let port = self.port_number(port);
                self.copy(flow, psn, tx)?.hops.push(Hop { port, came: t_us, leaves: leaves_us, marked });
            }
            Event::FrameLost { t_us, flow, psn, tx, port, why } => {
                let port = self.port_number(port);
                self.copy(flow, psn, tx)?.fate = Fate::Lost { at: t_us, port, why };
            }
            Event::FrameArrived { t_us, flow, psn, tx, arrived_us } => {
                self.copy(flow, psn, tx)?.fate = Fate::Arrived { at: arrived_us, looked: t_us };
            }
        }
        Ok(())
    }

    fn flow_mut(&mut self, number: u32) -> &mut Flow {
        self.flows.entry(number).or_insert_with(|| Flow { number, ..Flow::default() })
    }

    fn packet(&mut self, flow: u32, psn: u32) -> &mut Packet {
        let flow = self.flow_mut(flow);
        let place = *flow.by_psn.entry(psn).or_insert_with(|| {
            flow.packets.push(Packet { psn, ..Packet::default() });
            flow.packets.len() - 1
        });
        &mut flow.packets[place]
    }

    fn copy(&mut self, flow: u32, psn: u32, tx: u8) -> Result<&mut Copy, String> {
        let copies = self.packet(flow, psn).copies.iter_mut().rev();
        copies.into_iter().find(|copy| copy.tx == tx).ok_or_else(|| {
            format!("transmission {tx} of packet {psn} of flow {flow} is on its way but was never sent")
        })
    }

    fn port_number(&mut self, name: String) -> u32 {
        let next = self.ports.len() as u32;
        *self.port_numbers.entry(name).or_insert_with_key(|name| {
            self.ports.push(name.clone());
            next
        })
    }

    pub(crate) fn port(&self, number: u32) -> &str {
        &self.ports[number as usize]
    }

    pub(crate) fn flow(&self, number: u32) -> Option<&Flow> {
        self.flows.get(&number)
    }

    /// What a flow's sender has decided about its receiver.
    pub(crate) fn context(&self, flow: &Flow) -> Option<&Context> {
        self.contexts.get(&(flow.src.clone(), flow.dst.clone()))
    }

    /// Numbers of its flows; those that did not end come first.
    pub(crate) fn slowest_first(&self) -> Vec<u32> {
        let time = |number: &u32| self.flows[number].total_us().unwrap_or(f64::INFINITY);
        let mut numbers: Vec<u32> = self.flows.keys().copied().collect();
        numbers.sort_by(|a, b| time(b).total_cmp(&time(a)).then(a.cmp(b)));
        numbers
    }

    /// Numbers of its flows in order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.flows.keys().copied()
    }
}

/// A flow is asked about that a trace does not have.
pub(crate) fn not_there(number: u32, there: impl Iterator<Item = u32>) -> io::Error {
    let all: Vec<String> = there.map(|number| number.to_string()).collect();
    let have = match &all[..] {
        [] => "none".to_string(),
        few if few.len() <= 12 => few.join(", "),
        many => format!("{}, ...", many[..12].join(", ")),
    };
    io::Error::new(io::ErrorKind::NotFound, format!("flow {number} is not in this trace, which has {have}"))
}
