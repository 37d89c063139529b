//! What a trace tells of the decisions of one transport about one peer: events of srd-proto's table, docs/EVENTS.md.

use serde::Deserialize;
use std::collections::HashMap;

/// Whose decision a line is, and when it was taken.
#[derive(Deserialize)]
pub(crate) struct Decided {
    pub(crate) t_us: f64,
    pub(crate) src: String,
    pub(crate) dst: String,
}

/// What of a decision matters to a flow's story. Windows and packets are bytes, times nanoseconds, rates bytes per
/// nanosecond.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Decision {
    MessageQueued {
        token: u64,
        bytes: u64,
    },
    MessageStarted {
        message: u32,
        /// None: one of the transport's own.
        token: Option<u64>,
    },
    MessageCompleted {
        token: u64,
        status: u8,
    },
    PacketSent {
        psn: u32,
        message: u32,
        bytes: u64,
        inflight: u64,
    },
    PacketResent {
        psn: u32,
        path: u8,
        bytes: u64,
        inflight: u64,
    },
    PacketLost {
        psn: u32,
        path: u8,
        cause: String,
        age: f64,
    },
    AckReceived {
        inflight: u64,
        ce_marks: u64,
        senders: u64,
    },
    PathAcked {
        delay: Option<f64>,
    },
    ControllerUpdated {
        window: u64,
        /// None: unpaced.
        rate: Option<f64>,
        target: f64,
    },
    PathChanged {
        path: u8,
        to: String,
    },
    PathRerolled {
        path: u8,
    },
    Spurious {
        psn: u32,
    },
    PathsUndone {
        down: u64,
    },
    TimerFired {
        inflight: u64,
    },
    TailProbe {
        psn: u32,
        path: u8,
    },
    LossRule {
        rule: String,
    },
    PeerDied {
        silence: f64,
    },
    /// Events are missing here: whatever was on its way, nobody knows what became of it. (No line of a transport's.)
    #[serde(skip)]
    Gap,
    /// Another that stories do without.
    #[serde(other)]
    Other,
}

/// A transport's decisions about one peer, in order, with their times in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Context {
    pub(crate) decisions: Vec<(f64, Decision)>,
}

/// A time in which nothing is known to have changed: how much was in flight, and how much might have been.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Span {
    pub(crate) from: f64,
    pub(crate) until: f64,
    pub(crate) inflight: u64,
    /// None before the controller has been heard of.
    pub(crate) window: Option<u64>,
    pub(crate) rate: Option<f64>,
}

impl Context {
    /// Decisions from one time to another, both included.
    pub(crate) fn between(&self, from: f64, until: f64) -> impl Iterator<Item = &(f64, Decision)> {
        self.decisions.iter().filter(move |(at, _)| (from..=until).contains(at))
    }

    /// The largest packet that was sent.
    pub(crate) fn largest_packet(&self) -> u64 {
        let bytes = self.decisions.iter().map(|(_, decision)| match decision {
            Decision::PacketSent { bytes, .. } => *bytes,
            _ => 0,
        });
        bytes.max().unwrap_or(0)
    }

    /// The whole time in spans. What is in flight is said by the event at the end of each: it tells of what was before.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        let (mut from, mut window, mut rate) = (0.0, None, None);
        for (at, decision) in &self.decisions {
            let inflight = match decision {
                Decision::PacketSent { bytes, inflight, .. }
                | Decision::PacketResent { bytes, inflight, .. } => inflight.saturating_sub(*bytes),
                Decision::AckReceived { inflight, .. } | Decision::TimerFired { inflight } => *inflight,
                Decision::ControllerUpdated { window: most, rate: pace, .. } => {
                    (window, rate) = (Some(*most), *pace);
                    continue;
                }
                Decision::Gap => {
                    from = *at;
                    continue;
                }
                _ => continue,
            };
            if *at > from {
                spans.push(Span { from, until: *at, inflight, window, rate });
                from = *at;
            }
        }
        spans
    }

    /// Why and when each packet was taken for lost: rule and time, by PSN.
    pub(crate) fn losses(&self) -> HashMap<u32, Vec<(f64, &str)>> {
        let mut losses: HashMap<u32, Vec<(f64, &str)>> = HashMap::new();
        for (at, decision) in &self.decisions {
            if let Decision::PacketLost { psn, cause, .. } = decision {
                losses.entry(*psn).or_default().push((*at, cause));
            }
        }
        losses
    }
}
