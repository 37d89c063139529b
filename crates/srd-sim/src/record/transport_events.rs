//! What the transports decide, as lines of a trace: events of srd-proto's table, with the two processes whose context
//! they are about. Contexts of traced flows are told of, at both ends, from their beginning to their end, with all that
//! they carry.

use super::name_index::NameIndex;
use crate::hosts::Srd;
use srd_baselines::units::Ps;
use srd_proto::{Event, EventLine, PeerId};
use srd_wire::Time;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A line: what a process has decided about its context with another.
pub(super) type Decision = EventLine<String>;

/// Which contexts a trace tells of.
pub(super) struct Contexts {
    names: Arc<NameIndex>,
    /// Processes at their ends, in both orders.
    pairs: HashSet<(u32, u32)>,
    processes: HashSet<u32>,
    /// The process at the other end, by process and its number for the context; `None` for those that are not told of.
    peers: HashMap<(u32, PeerId), Option<u32>>,
    /// Events of contexts so new that nobody has looked who the peer is. The transport cannot be asked in the middle of
    /// what it does.
    unsettled: Vec<(u32, Time, PeerId, Event)>,
}

impl Contexts {
    /// Those between the ends of flows.
    pub(super) fn of(names: Arc<NameIndex>, ends: impl Iterator<Item = (u32, u32)>) -> Contexts {
        let pairs: HashSet<(u32, u32)> = ends.flat_map(|(from, to)| [(from, to), (to, from)]).collect();
        Contexts {
            names,
            processes: pairs.iter().map(|&(process, _)| process).collect(),
            pairs,
            peers: HashMap::new(),
            unsettled: Vec::new(),
        }
    }

    /// Whether a process has one.
    pub(super) fn has(&self, process: u32) -> bool {
        self.processes.contains(&process)
    }

    /// The line that an event makes now, if it makes one.
    pub(super) fn take(&mut self, process: u32, now: Time, peer: PeerId, event: &Event) -> Option<Decision> {
        match self.peers.get(&(process, peer)) {
            Some(&other) => Some(self.line(process, now, other?, event)),
            None => {
                self.unsettled.push((process, now, peer, *event));
                None
            }
        }
    }

    /// Lines of events that had to wait until the transport of `process` could be asked for its peers.
    pub(super) fn settle(&mut self, process: u32, srd: &Srd) -> Vec<Decision> {
        let mut lines = Vec::new();
        for (of, now, peer, event) in std::mem::take(&mut self.unsettled) {
            debug_assert_eq!(of, process, "each process is settled before another is asked to do something");
            let told = *self.peers.entry((of, peer)).or_insert_with(|| {
                let report = srd.endpoint().peers().find(|report| report.id == peer);
                let other = report.and_then(|report| self.names.process_of(&report.addr));
                other.filter(|&other| self.pairs.contains(&(of, other)))
            });
            lines.extend(told.map(|other| self.line(of, now, other, &event)));
        }
        lines
    }

    fn line(&self, process: u32, now: Time, other: u32, event: &Event) -> Decision {
        Decision {
            t_us: Ps::of(now).as_micros(),
            src: self.names.process_name(process),
            dst: self.names.process_name(other),
            event: *event,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_proto::EVENTS;
    use srd_wire::PathId;

    #[test]
    fn no_field_is_called_as_what_every_line_has() {
        for event in EVENTS {
            for field in event.fields {
                assert!(!["event", "t_us", "src", "dst", "flow"].contains(&field.name), "{}", event.name);
            }
        }
    }

    #[test]
    fn a_decision_is_a_line_of_its_own() {
        let event = Event::PathChosen {
            path: PathId(3),
            rule: "first",
            other: None,
            score: f64::INFINITY,
            other_score: 1.5,
            usable: 16,
        };
        let decision = Decision { t_us: 1.25, src: "h1.0".into(), dst: "h0.0".into(), event };
        assert_eq!(
            serde_json::to_string(&decision).unwrap(),
            "{\"event\":\"path_chosen\",\"t_us\":1.25,\"src\":\"h1.0\",\"dst\":\"h0.0\",\"path\":3,\
             \"rule\":\"first\",\"other\":null,\"score\":null,\"other_score\":1.5,\"usable\":16}"
        );
    }
}
