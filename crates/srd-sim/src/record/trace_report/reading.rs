//! A trace file as flows, packets, and each packet's copies.

use super::super::trace::{Event, FORMAT};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// A trace, read. Times are microseconds.
#[derive(Debug, Default)]
pub struct TraceFile {
    pub(super) scenario: String,
    pub(super) seed: u64,
    pub(super) flows_of_run: u32,
    pub(super) traced: u32,
    pub(super) base_rtt_us: f64,
    pub(super) missing_lines: u64,
    flows: BTreeMap<u32, Flow>,
    ports: Vec<String>,
    port_numbers: HashMap<String, u32>,
    /// By sending process, receiving process and PSN: why the transport took a packet for lost, and when.
    verdicts: HashMap<(String, String, u32), Vec<(f64, String)>>,
}

/// A flow.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) number: u32,
    pub(super) src: String,
    pub(super) dst: String,
    pub(super) bytes: Option<u64>,
    pub(super) started: f64,
    pub(super) received: Option<f64>,
    pub(super) sent: Option<f64>,
    pub(super) failed: Option<(f64, String)>,
    /// In the order in which they left first.
    pub(super) packets: Vec<Packet>,
    by_psn: HashMap<u32, usize>,
}

/// A packet, however often it was sent.
#[derive(Debug, Default)]
pub(super) struct Packet {
    pub(super) psn: u32,
    pub(super) acked: Option<f64>,
    pub(super) copies: Vec<Copy>,
}

/// One transmission.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) tx: u8,
    pub(super) path: u8,
    pub(super) source_port: u16,
    pub(super) port: u32,
    pub(super) sent: f64,
    pub(super) idle: f64,
    pub(super) others: f64,
    pub(super) hops: Vec<Hop>,
    pub(super) fate: Fate,
}

/// A switch's port on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    pub(super) port: u32,
    pub(super) came: f64,
    pub(super) leaves: f64,
    pub(super) marked: bool,
}

/// What became of a copy.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Fate {
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
    pub(super) fn total_us(&self) -> Option<f64> {
        Some(self.sent? - self.started)
    }
}

impl Copy {
    /// Time in queues of switches.
    pub(super) fn queued(&self) -> f64 {
        self.hops.iter().map(|hop| hop.leaves - hop.came).sum()
    }

    /// When it came to the receiver's card.
    pub(super) fn arrived(&self) -> Option<f64> {
        match self.fate {
            Fate::Arrived { at, .. } => Some(at),
            _ => None,
        }
    }
}

impl Packet {
    /// The copy that arrived first.
    pub(super) fn arrived_first(&self) -> Option<&Copy> {
        let arrived = self.copies.iter().filter_map(|copy| Some((copy.arrived()?, copy)));
        arrived.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, copy)| copy)
    }
}

/// All that is needed to know what a line is.
#[derive(Deserialize)]
struct Name<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
}

/// A transport's own event: it found a packet lost (`packet_lost` of srd-proto).
#[derive(Deserialize)]
struct PacketLost {
    t_us: f64,
    src: String,
    dst: String,
    psn: u32,
    cause: String,
}

impl TraceFile {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> io::Result<TraceFile> {
        let name = path.display();
        let file = File::open(path).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::NotFound => {
                    "; `srd sim SCENARIO.toml --out DIR --trace` writes DIR/trace.jsonl"
                }
                _ => "",
            };
            io::Error::new(error.kind(), format!("{name}: {error}{advice}"))
        })?;
        TraceFile::of(BufReader::new(file))
            .map_err(|error| io::Error::new(error.kind(), format!("{name}{error}")))
    }

    /// Reads lines. Errors begin with the number of the line, as in `:12: ...`.
    pub(super) fn of(lines: impl BufRead) -> io::Result<TraceFile> {
        let mut trace = TraceFile::default();
        let bad = |line: usize, what: String| {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!(":{line}: {what}")))
        };
        let mut count = 0;
        for (line, number) in lines.lines().zip(1..) {
            count = number;
            if let Err(what) = trace.take_line(&line?, number == 1) {
                return bad(number, what);
            }
        }
        match count {
            0 => bad(1, "the file is empty; `srd sim SCENARIO.toml --out DIR --trace` writes one".into()),
            _ => Ok(trace),
        }
    }

    fn take_line(&mut self, line: &str, first: bool) -> Result<(), String> {
        let told = |error: serde_json::Error| match first {
            true => "this is no trace: the first line of one begins with {\"event\":\"run\"".to_string(),
            false => format!("this is no line of a trace: {error}"),
        };
        let name: Name<'_> = serde_json::from_str(line).map_err(told)?;
        if first && name.event != "run" {
            return Err("this is no trace: the first line of one begins with {\"event\":\"run\"".to_string());
        }
        match name.event.as_ref() {
            "packet_lost" => {
                let lost: PacketLost = serde_json::from_str(line).map_err(told)?;
                let key = (lost.src, lost.dst, lost.psn);
                self.verdicts.entry(key).or_default().push((lost.t_us, lost.cause));
                Ok(())
            }
            known if EVENTS.contains(&known) => self.take(serde_json::from_str(line).map_err(told)?),
            _ => Ok(()), // what a transport decides: see `trace`
        }
    }

    fn take(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Run { format, .. } if format != FORMAT => {
                return Err(format!("the trace has format {format}, and this program reads format {FORMAT}"));
            }
            Event::Run { scenario, seed, flows, traced, base_rtt_us, .. } => {
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
            Event::Truncated { missing } => self.missing_lines = missing,
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

    pub(super) fn port(&self, number: u32) -> &str {
        &self.ports[number as usize]
    }

    pub(super) fn flow(&self, number: u32) -> Option<&Flow> {
        self.flows.get(&number)
    }

    /// Why the transport took a packet of a flow for lost, each time.
    pub(super) fn verdicts(&self, flow: &Flow, psn: u32) -> &[(f64, String)] {
        let key = (flow.src.clone(), flow.dst.clone(), psn);
        self.verdicts.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Numbers of its flows; those that did not end come first.
    pub(super) fn slowest_first(&self) -> Vec<u32> {
        let time = |number: &u32| self.flows[number].total_us().unwrap_or(f64::INFINITY);
        let mut numbers: Vec<u32> = self.flows.keys().copied().collect();
        numbers.sort_by(|a, b| time(b).total_cmp(&time(a)).then(a.cmp(b)));
        numbers
    }

    /// For messages.
    pub(super) fn numbers(&self) -> String {
        let shown: Vec<String> = self.flows.keys().take(12).map(u32::to_string).collect();
        let more = if self.flows.len() > shown.len() { ", ..." } else { "" };
        match shown.is_empty() {
            true => "none".to_string(),
            false => format!("{}{more}", shown.join(", ")),
        }
    }
}

/// Names of [`Event`]'s variants in a file.
const EVENTS: [&str; 11] = [
    "run",
    "flow_started",
    "frame_sent",
    "frame_queued",
    "frame_lost",
    "frame_arrived",
    "packet_acked",
    "flow_received",
    "flow_sent",
    "flow_failed",
    "truncated",
];

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str =
        r#"{"event":"run","format":1,"scenario":"a","seed":1,"flows":1,"traced":1,"base_rtt_us":8}"#;

    fn read(lines: &[&str]) -> Result<TraceFile, String> {
        TraceFile::of(lines.join("\n").as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_no_trace_is_said_to_be_none() {
        for (lines, word) in [
            (&[][..], "empty"),
            (&["time_us,flow"][..], ":1: this is no trace"),
            (&[r#"{"event":"frame_sent"}"#][..], ":1: this is no trace"),
            (&[RUN, "{"][..], ":2: this is no line of a trace"),
            (&[RUN, r#"{"event":"flow_sent","t_us":1}"#][..], "missing field `flow`"),
            (
                &[RUN, r#"{"event":"frame_arrived","t_us":1,"flow":1,"psn":7,"tx":0,"arrived_us":1}"#],
                "never sent",
            ),
        ] {
            let error = read(lines).expect_err(word);
            assert!(error.contains(word), "{error}");
        }
        let other = RUN.replace("\"format\":1", "\"format\":2");
        assert!(read(&[&other]).is_err_and(|error| error.contains("format 2")));
    }

    #[test]
    fn all_events_of_the_schema_are_read() {
        let error = serde_json::from_str::<Event>(r#"{"event":"x"}"#).expect_err("unknown").to_string();
        let names = error.split("expected one of ").nth(1).unwrap_or_default().split(" at line").next();
        let names: Vec<&str> =
            names.unwrap_or_default().split(", ").map(|name| name.trim_matches('`')).collect();
        assert_eq!(names, EVENTS);
    }

    #[test]
    fn events_of_others_are_passed_by() {
        let trace = read(&[RUN, r#"{"event":"path_chosen","t_us":1.5,"src":"h1.0","dst":"h0.0","path":3}"#]);
        assert!(trace.is_ok_and(|trace| trace.flows.is_empty()));
    }
}
