//! Why messages were late, as far as a host can know: from a trace in which a process has recorded what its own transport
//! decided (`srd trace --record`). There are no switches, queues and cables in it, nothing of what peers do, and nothing of when
//! a packet came to its receiver. What is left once a message's last packet has gone is one time, the answer's.

use crate::cause;
use crate::contexts::{Context, Decision};
use crate::event::Host;
use crate::flow_report::{Moment, rounded};
use crate::host_text;
use crate::reading::TraceFile;
use crate::send_stalls::{Held, Keeper};
use crate::words::harmless;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Most peers that are told of one by one.
const MOST_CONTEXTS: usize = 16;
/// Most moments of a message.
const MOST_MOMENTS: usize = 6;

/// What a host cannot know, for whoever reads a report.
pub(crate) const UNKNOWN: &str = "a host's trace has no view of the network: where packets waited or were lost, what the peer \
                                  did, and how the time of an answer divides between the way there, the receiver and the way \
                                  back, it cannot tell (a simulated run's trace can)";

/// See the module.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct HostReport {
    /// Whose trace it is.
    pub host: Host,
    /// How long it is.
    pub recorded_us: f64,
    /// Whether the recording ended in order: otherwise the process has died, or the file was cut.
    pub ended: bool,
    /// Events that the process could not keep up with.
    pub missing_lines: u64,
    /// Peers, those with the most packets first, at most 16.
    pub peers: Vec<ContextReport>,
    /// Peers that are left out.
    pub peers_left_out: usize,
    /// The slowest messages of all peers.
    pub slowest: Vec<MessageStory>,
    /// What the trace has no information on.
    pub not_known: &'static str,
}

/// What a process's transport did for one peer. Times are microseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ContextReport {
    /// The peer.
    pub peer: String,
    /// Messages that were queued and completed within the trace.
    pub messages: u64,
    /// Those of them that failed, or were refused.
    pub failed: u64,
    /// The same by completion status.
    pub failed_with: BTreeMap<u8, u64>,
    /// Messages that were not at their end when the trace was.
    pub open: u64,
    /// Messages that were under way where events are missing: nothing more is known of them.
    pub out_of_sight: u64,
    /// From being queued to being completed: the median, the 99th percentile, the longest.
    pub p50_us: f64,
    /// See `p50_us`.
    pub p99_us: f64,
    /// See `p50_us`.
    pub max_us: f64,
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets retransmitted.
    pub resent: u64,
    /// Packets that were taken for lost, by the rule that found them.
    pub lost: BTreeMap<String, u64>,
    /// Packets that were retransmitted for nothing.
    pub for_nothing: u64,
    /// Probes in silence.
    pub tail_probes: u64,
    /// Times that a path came into each state.
    pub path_changes: BTreeMap<String, u64>,
    /// Path slots that were given another source port.
    pub paths_rerolled: u64,
    /// The smallest window that the controller gave.
    pub least_window: Option<u64>,
    /// The last.
    pub last_window: Option<u64>,
    /// The slowest pace in bytes per nanosecond; none if unpaced.
    pub least_rate: Option<f64>,
    /// ACKs that told of congestion marks.
    pub marked_acks: u64,
    /// While messages waited or were being sent, and the peer's window was full.
    pub window_us: f64,
    /// The same, and the pace.
    pub pace_us: f64,
}

/// What a message's time went into. All parts together are the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spent {
    /// Before its last packet had left, with the window full.
    Window,
    /// The same, with the pace slow.
    Pace,
    /// The same, and neither: other messages had their turn, or the host was busy.
    Host,
    /// From the first departure of its last packet to the last time that one of its packets was retransmitted.
    SentAgain,
    /// Until it was acknowledged.
    Answer,
}

/// A part of a message's time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct MessagePart {
    /// What it went into.
    pub what: Spent,
    /// How long.
    pub us: f64,
    /// Which share of the whole.
    pub share: f64,
}

/// A message. Times are microseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct MessageStory {
    /// The peer.
    pub peer: String,
    /// Its number on the wire; none if it never left.
    pub message: Option<u32>,
    /// Its length.
    pub bytes: u64,
    /// When the program handed it over.
    pub queued_us: f64,
    /// When its first packet left.
    pub started_us: Option<f64>,
    /// From being handed over to its end, or to that of the trace.
    pub total_us: f64,
    /// Its completion status, 0 if all went well; none if it was not at its end when the trace was.
    pub status: Option<u8>,
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets retransmitted.
    pub resent: u64,
    /// Where the largest part of its time went.
    pub verdict: Option<Spent>,
    /// Where all of it went.
    pub parts: Vec<MessagePart>,
    /// What the transport decided meanwhile.
    pub decisions: Vec<Moment>,
}

/// A message that is being put together.
#[derive(Clone, Debug, Default)]
struct Message {
    number: Option<u32>,
    bytes: u64,
    queued: f64,
    started: Option<f64>,
    /// When its last packet left for the first time, and when one was last sent again.
    last_sent: Option<f64>,
    last_resent: Option<f64>,
    ended: Option<(f64, u8)>,
    packets: u64,
    resent: u64,
    losses: Vec<Moment>,
    out_of_sight: bool,
}

impl Message {
    fn total(&self, end: f64) -> f64 {
        self.ended.map_or(end, |(at, _)| at) - self.queued
    }
}

impl TraceFile {
    /// What a trace says that a process has recorded, with so many of its slowest messages; `None` for the simulator's traces.
    pub fn host_report(&self, slowest: usize) -> Option<HostReport> {
        let host = self.host.clone()?;
        let end = self.recorded_until.unwrap_or(self.last);
        let mut peers = Vec::new();
        let mut stories: Vec<MessageStory> = Vec::new();
        for ((_, peer), context) in &self.contexts {
            let held = Held::of(context);
            let (messages, out_of_sight) = messages(context);
            peers.push(ContextReport { out_of_sight, ..report(peer, context, &messages, &held) });
            let mut late: Vec<&Message> = messages.iter().collect();
            late.sort_by(|a, b| b.total(end).total_cmp(&a.total(end)).then(a.queued.total_cmp(&b.queued)));
            let late = late.into_iter().take(slowest);
            stories.extend(late.map(|message| tell(peer, message, context, &held, end)));
        }
        peers.sort_by(|a, b| b.packets.cmp(&a.packets).then(a.peer.cmp(&b.peer)));
        stories.sort_by(|a, b| b.total_us.total_cmp(&a.total_us).then(a.queued_us.total_cmp(&b.queued_us)));
        stories.truncate(slowest);
        Some(HostReport {
            host,
            recorded_us: rounded(end),
            ended: self.recorded_until.is_some(),
            missing_lines: self.missing_lines,
            peers_left_out: peers.len().saturating_sub(MOST_CONTEXTS),
            peers: peers.into_iter().take(MOST_CONTEXTS).collect(),
            slowest: stories,
            not_known: UNKNOWN,
        })
    }
}

impl HostReport {
    /// For a person who reads a terminal.
    pub fn text(&self) -> String {
        harmless(&host_text::of(self))
    }
}

/// The messages of a context that were queued within the trace (of others nobody knows when), and how many were under way
/// where events are missing.
fn messages(context: &Context) -> (Vec<Message>, u64) {
    let mut all: Vec<Message> = Vec::new();
    let mut by_token: HashMap<u64, usize> = HashMap::new();
    let mut by_number: HashMap<u32, usize> = HashMap::new();
    let mut by_psn: HashMap<u32, usize> = HashMap::new();
    for (at, decision) in &context.decisions {
        match decision {
            Decision::MessageQueued { token, bytes } => {
                by_token.insert(*token, all.len());
                all.push(Message { queued: *at, bytes: *bytes, ..Message::default() });
            }
            Decision::MessageStarted { message, token } => {
                by_number.remove(message);
                let Some(&index) = token.and_then(|token| by_token.get(&token)) else { continue };
                by_number.insert(*message, index);
                all[index].number = Some(*message);
                all[index].started = Some(*at);
            }
            Decision::MessageCompleted { token, status } => {
                let Some(index) = by_token.remove(token) else { continue };
                all[index].ended = Some((*at, *status));
            }
            Decision::PacketSent { psn, message, .. } => {
                by_psn.remove(psn);
                let Some(&index) = by_number.get(message) else { continue };
                by_psn.insert(*psn, index);
                all[index].packets += 1;
                all[index].last_sent = Some(*at);
            }
            Decision::PacketResent { psn, .. } => {
                let Some(&index) = by_psn.get(psn) else { continue };
                all[index].resent += 1;
                all[index].last_resent = Some(*at);
            }
            Decision::PacketLost { psn, path, cause, age } => {
                let Some(&index) = by_psn.get(psn) else { continue };
                let (age, rule) = (age / 1e3, cause::rule(cause));
                let what =
                    format!("PSN {psn} counts as lost, {age:.3} us after it left on path {path}: {rule}");
                all[index].losses.push(Moment { t_us: *at, what });
            }
            Decision::Gap => {
                by_token.values().for_each(|&index| all[index].out_of_sight = true);
                (by_token, by_number, by_psn) = Default::default();
            }
            _ => {}
        }
    }
    let before = all.len();
    all.retain(|message| !message.out_of_sight);
    let out_of_sight = (before - all.len()) as u64;
    (all, out_of_sight)
}

fn report(peer: &str, context: &Context, messages: &[Message], held: &Held) -> ContextReport {
    let mut report = ContextReport { peer: peer.to_string(), ..ContextReport::default() };
    for (_, decision) in &context.decisions {
        match decision {
            Decision::PacketSent { .. } => report.packets += 1,
            Decision::PacketResent { .. } => report.resent += 1,
            Decision::PacketLost { cause, .. } => *report.lost.entry(cause.clone()).or_default() += 1,
            Decision::Spurious { .. } => report.for_nothing += 1,
            Decision::TailProbe { .. } => report.tail_probes += 1,
            Decision::PathChanged { to, .. } => *report.path_changes.entry(to.clone()).or_default() += 1,
            Decision::PathRerolled { .. } => report.paths_rerolled += 1,
            Decision::AckReceived { ce_marks, .. } => report.marked_acks += (*ce_marks > 0) as u64,
            Decision::ControllerUpdated { window, rate, .. } => {
                report.last_window = Some(*window);
                report.least_window = Some(report.least_window.map_or(*window, |least| least.min(*window)));
                if let Some(rate) = rate {
                    report.least_rate = Some(report.least_rate.map_or(*rate, |least| least.min(*rate)));
                }
            }
            _ => {}
        }
    }
    let mut totals: Vec<f64> = Vec::new();
    for message in messages {
        match message.ended {
            Some((at, status)) => {
                totals.push(at - message.queued);
                if status != 0 {
                    report.failed += 1;
                    *report.failed_with.entry(status).or_default() += 1;
                }
            }
            None => report.open += 1,
        }
    }
    totals.sort_by(f64::total_cmp);
    let quantile = |share: f64| match totals.len() {
        0 => 0.0,
        n => rounded(totals[((n - 1) as f64 * share).round() as usize]),
    };
    report.messages = totals.len() as u64;
    (report.p50_us, report.p99_us, report.max_us) = (quantile(0.5), quantile(0.99), quantile(1.0));
    for (from, until) in busy(messages) {
        let [window, pace, _] = held.between(from, until);
        report.window_us += window;
        report.pace_us += pace;
    }
    (report.window_us, report.pace_us) = (rounded(report.window_us), rounded(report.pace_us));
    report
}

/// Times in which any message waited or was being sent, in order and apart.
fn busy(messages: &[Message]) -> Vec<(f64, f64)> {
    let mut times: Vec<(f64, f64)> = Vec::new();
    let spans = messages.iter().filter_map(|message| Some((message.queued, message.last_sent?)));
    let mut spans: Vec<(f64, f64)> = spans.collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (from, until) in spans {
        match times.last_mut() {
            Some(last) if last.1 >= from => last.1 = last.1.max(until),
            _ => times.push((from, until)),
        }
    }
    times
}

fn tell(peer: &str, message: &Message, context: &Context, held: &Held, end: f64) -> MessageStory {
    let until = message.ended.map_or(end, |(at, _)| at);
    let total = until - message.queued;
    let sent = message.last_sent.unwrap_or(until);
    let answered_from = message.last_resent.map_or(sent, |again| again.max(sent)).min(until);
    let kept = held.between(message.queued, sent);
    let (window, pace) = (kept[Keeper::Window as usize], kept[Keeper::Pace as usize]);
    let parts = [
        (Spent::Window, window),
        (Spent::Pace, pace),
        (Spent::Host, sent - message.queued - window - pace),
        (Spent::SentAgain, answered_from - sent),
        (Spent::Answer, until - answered_from),
    ];
    let parts = parts.map(|(what, us)| MessagePart {
        what,
        us: rounded(us.max(0.0)),
        share: if total > 0.0 { rounded((us / total).clamp(0.0, 1.0)) } else { 0.0 },
    });
    let largest = parts.iter().max_by(|a, b| a.us.total_cmp(&b.us)).filter(|part| part.us > 0.0);
    MessageStory {
        peer: peer.to_string(),
        message: message.number,
        bytes: message.bytes,
        queued_us: rounded(message.queued),
        started_us: message.started.map(rounded),
        total_us: rounded(total),
        status: message.ended.map(|(_, status)| status),
        packets: message.packets,
        resent: message.resent,
        verdict: largest.map(|part| part.what),
        parts: parts.to_vec(),
        decisions: decisions(message, until, context),
    }
}

/// What the transport decided while a message was under way, the weightiest, in order.
fn decisions(message: &Message, until: f64, context: &Context) -> Vec<Moment> {
    let mut weighed = cause::reductions(message.queued, until, context);
    weighed.extend(cause::others(message.queued, until, context));
    weighed.extend(context.between(message.queued, until).filter_map(|(at, decision)| {
        let (weight, what) = match decision {
            Decision::PathChanged { path, to } if to == "suspect" => {
                (2.0, format!("path {path} declared suspect"))
            }
            Decision::PathChanged { path, to } if to == "down" => {
                (3.0, format!("path {path} given up as down"))
            }
            _ => return None,
        };
        Some((weight, Moment { t_us: *at, what }))
    }));
    weighed.extend(message.losses.iter().map(|moment| (10.0, moment.clone())));
    weighed.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.t_us.total_cmp(&b.1.t_us)));
    let mut moments: Vec<Moment> = weighed.into_iter().take(MOST_MOMENTS).map(|(_, moment)| moment).collect();
    moments.sort_by(|a, b| a.t_us.total_cmp(&b.t_us));
    moments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::tests::read;

    const RUN: &str = r#"{"event":"run","format":2,"scenario":"lmp, process 7 on n1","seed":0,"flows":0,"traced":0,"base_rtt_us":0,"host":{"pid":7,"program":"lmp","address":"10.0.0.1:17408","name":"n1","began_unix_s":1.5}}"#;

    fn line(event: &str, t_us: f64, rest: &str) -> String {
        format!(r#"{{"event":"{event}","t_us":{t_us},"src":"10.0.0.1:17408","dst":"10.0.0.2:17408",{rest}}}"#)
    }

    /// A message of two packets, the second of which is lost and sent again.
    fn lossy() -> Vec<String> {
        let mut lines = vec![RUN.to_string()];
        let mut add = |event: &str, t_us: f64, rest: &str| lines.push(line(event, t_us, rest));
        add("controller_updated", 0.5, r#""window":1000,"rate":null,"phase":"x","delay":0,"target":0"#);
        add("message_queued", 1.0, r#""token":5,"bytes":1800,"queued":1800"#);
        add("message_started", 11.0, r#""message":3,"token":5,"bytes":1800"#);
        add("packet_sent", 11.0, r#""psn":70,"path":1,"message":3,"offset":0,"bytes":900,"inflight":900"#);
        add("ack_received", 31.0, r#""newly_acked":1,"inflight":900,"ce_marks":1,"senders":1"#);
        add("packet_sent", 31.0, r#""psn":71,"path":2,"message":3,"offset":900,"bytes":900,"inflight":900"#);
        add("packet_lost", 90.0, r#""psn":71,"path":2,"tx_count":0,"cause":"timer","age":59000"#);
        add("path_changed", 90.0, r#""path":2,"from":"active","to":"suspect""#);
        add(
            "packet_resent",
            91.0,
            r#""psn":71,"path":4,"lost_on":2,"tx_count":1,"bytes":900,"inflight":900"#,
        );
        lines
    }

    fn report(lines: &[String]) -> HostReport {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        read(&lines).expect("a trace").host_report(3).expect("a host's")
    }

    #[test]
    fn the_parts_of_a_messages_time_add_up_and_say_what_kept_it() {
        let mut lines = lossy();
        lines.push(line("message_completed", 101.0, r#""token":5,"status":0"#));
        lines.push(r#"{"event":"recording_ended","t_us":120.0,"missing":0}"#.into());
        let report = report(&lines);
        assert!(report.ended);
        let [peer] = &report.peers[..] else { panic!("one peer") };
        assert_eq!((peer.messages, peer.failed, peer.open, peer.packets, peer.resent), (1, 0, 0, 2, 1));
        assert_eq!((peer.p50_us, peer.max_us, peer.marked_acks), (100.0, 100.0, 1));
        assert_eq!(peer.lost, BTreeMap::from([("timer".to_string(), 1)]));
        assert_eq!(peer.path_changes, BTreeMap::from([("suspect".to_string(), 1)]));
        let [story] = &report.slowest[..] else { panic!("one message") };
        let parts: Vec<_> = story.parts.iter().map(|part| (part.what, part.us)).collect();
        let wanted = [
            (Spent::Window, 20.0),
            (Spent::Pace, 0.0),
            (Spent::Host, 10.0),
            (Spent::SentAgain, 60.0),
            (Spent::Answer, 10.0),
        ];
        assert_eq!(parts, wanted);
        assert_eq!((story.verdict, story.status), (Some(Spent::SentAgain), Some(0)));
        assert!(
            story.decisions.iter().any(|moment| moment.what.contains("its timer has expired")),
            "{story:?}"
        );
        assert!(
            story.decisions.iter().any(|moment| moment.what.contains("path 2 declared suspect")),
            "{story:?}"
        );
        let text = report.text();
        for words in ["no view of the network", "a packet was lost and had", "1 taken for lost by rule timer"]
        {
            assert!(text.contains(words), "{words} in {text}");
        }
    }

    #[test]
    fn of_what_was_under_way_where_events_are_missing_nothing_is_said() {
        let mut lines = lossy();
        lines.push(r#"{"event":"dropped","t_us":92.0,"missing":40}"#.into());
        lines.push(line("message_queued", 95.0, r#""token":5,"bytes":1,"queued":1"#));
        lines.push(line("message_completed", 99.0, r#""token":5,"status":10"#));
        let report = report(&lines);
        let peer = &report.peers[0];
        assert_eq!((report.missing_lines, peer.out_of_sight, peer.open, peer.messages), (40, 1, 0, 1));
        assert_eq!((peer.max_us, &peer.failed_with), (4.0, &BTreeMap::from([(10, 1)])));
        let text = report.text();
        assert!(text.contains("40 events are missing") && text.contains("1 (status 10)"), "{text}");
    }

    #[test]
    fn a_message_without_an_end_counts_until_that_of_the_trace() {
        let report = report(&lossy());
        assert!(!report.ended);
        assert_eq!((report.missing_lines, report.peers[0].open), (0, 1));
        let story = &report.slowest[0];
        assert_eq!((story.total_us, story.status), (90.0, None));
        let text = report.text();
        assert!(text.contains("not at its end"), "{text}");
        assert!(text.contains("did not end in order"), "{text}");
    }
}
