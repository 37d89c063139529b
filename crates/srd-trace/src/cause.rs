//! Why a flow was late, as far as its sender's transport decided it: what kept packets back while the link stood idle, what
//! made the window small, which packets were taken for lost, which paths were given up.

use crate::contexts::{Context, Decision, Span};
use crate::flow_report::{Moment, copies_until, rounded};
use crate::reading::{Copy, Flow};
use crate::words::counted;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Most moments of one kind that a story names.
const MOST: usize = 3;
/// A window is reduced if it comes to this share of what it was ...
const REDUCED: f64 = 0.75;
/// ... until it has grown by this factor again.
const GROWN: f64 = 1.1;
/// Shorter waits than this share of the flow's time are not named one by one.
const LONG_WAIT: f64 = 0.02;

/// What kept packets back while the sender's link stood idle, between the flow's first packet and its last.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct HeldBack {
    /// As much was in flight as the window allows.
    pub window_us: f64,
    /// The next packet's time had not come.
    pub pace_us: f64,
    /// Neither: the host was busy, other messages to the same peer were on their way, or nobody knows.
    pub other_us: f64,
}

/// What the sender's transport did to a flow.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Why {
    pub(crate) held_back: HeldBack,
    /// The weightiest decisions, in order.
    pub(crate) moments: Vec<Moment>,
    /// Decisions of the same kinds that weigh less.
    pub(crate) left_out: u64,
}

/// What kept a packet back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keeper {
    Window,
    Pace,
    Other,
}

/// Moments of several kinds, of each the weightiest.
#[derive(Default)]
struct Collected {
    moments: Vec<Moment>,
    left_out: u64,
}

impl Collected {
    /// Takes the weightiest of a kind.
    fn add(&mut self, mut kind: Vec<(f64, Moment)>) {
        kind.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.t_us.total_cmp(&b.1.t_us)));
        self.left_out += kind.len().saturating_sub(MOST) as u64;
        self.moments.extend(kind.into_iter().take(MOST).map(|(_, moment)| moment));
    }
}

/// Why a flow took its time, by what its transport decided from `flow`'s beginning to its end.
pub(crate) fn explain(flow: &Flow, context: &Context) -> Why {
    let until = flow.sent.or(flow.failed.as_ref().map(|(at, _)| *at)).unwrap_or(f64::INFINITY);
    let mut collected = Collected::default();
    let (held_back, waits) = held_back(flow, context);
    collected.add(waits);
    collected.add(reductions(flow.started, until, context));
    collected.add(losses(flow, context));
    collected.add(path_changes(flow, until, context));
    collected.add(others(flow.started, until, context));
    collected.moments.sort_by(|a, b| a.t_us.total_cmp(&b.t_us));
    Why { held_back, moments: collected.moments, left_out: collected.left_out }
}

/// What kept the flow's packets back, and the longest waits.
fn held_back(flow: &Flow, context: &Context) -> (HeldBack, Vec<(f64, Moment)>) {
    let mut held = HeldBack::default();
    let mut waits = Vec::new();
    let firsts = || flow.packets.iter().filter_map(|packet| packet.copies.first());
    let (Some(first), Some(last)) = (firsts().next(), firsts().next_back()) else { return (held, waits) };
    let (spans, packet) = (context.spans(), context.largest_packet());
    let long = LONG_WAIT * (flow.sent.unwrap_or(last.sent) - flow.started);
    for copy in copies_until(flow, last.sent).filter(|copy| copy.sent > first.sent && copy.idle > 0.0) {
        let wait = Wait::of(copy, &spans, packet);
        held.window_us += wait.shares[0];
        held.pace_us += wait.shares[1];
        held.other_us += wait.shares[2];
        if copy.idle >= long {
            waits.push((copy.idle, Moment { t_us: rounded(wait.from), what: wait.words(copy) }));
        }
    }
    let HeldBack { window_us, pace_us, other_us } = held;
    held = HeldBack { window_us: rounded(window_us), pace_us: rounded(pace_us), other_us: rounded(other_us) };
    (held, waits)
}

/// The time before a packet in which the link stood idle.
struct Wait {
    from: f64,
    /// What of the idle time is the window's, the pace's, and neither's.
    shares: [f64; 3],
    /// The longest span of each.
    longest: [Option<Span>; 3],
}

impl Wait {
    fn of(copy: &Copy, spans: &[Span], packet: u64) -> Wait {
        let from = copy.sent - copy.idle - copy.others;
        let mut wait = Wait { from, shares: [0.0; 3], longest: [None; 3] };
        let overlap = |span: &Span| span.until.min(copy.sent) - span.from.max(from);
        let begin = spans.partition_point(|span| span.until <= from);
        for span in spans[begin..].iter().take_while(|span| span.from < copy.sent) {
            let keeper = keeper(span, packet) as usize;
            wait.shares[keeper] += overlap(span).max(0.0);
            if wait.longest[keeper].is_none_or(|longest| overlap(&longest) < overlap(span)) {
                wait.longest[keeper] = Some(*span);
            }
        }
        let known: f64 = wait.shares.iter().sum();
        // The link may have carried other packets for a part of the time; which part, nobody knows.
        let scale = if known > 0.0 { copy.idle / known } else { 0.0 };
        wait.shares.iter_mut().for_each(|share| *share *= scale);
        if known <= 0.0 {
            wait.shares[Keeper::Other as usize] = copy.idle;
        }
        wait
    }

    fn words(&self, copy: &Copy) -> String {
        let us = copy.idle;
        let most = (0..3).max_by(|&a, &b| self.shares[a].total_cmp(&self.shares[b])).unwrap_or(2);
        let span = self.longest[most].filter(|_| self.shares[most] > us / 2.0);
        match span {
            Some(Span { inflight, window: Some(window), .. }) if most == Keeper::Window as usize => {
                format!("the link idles {us:.3} us: {inflight} bytes are in flight, the window is {window}")
            }
            Some(Span { rate: Some(rate), .. }) if most == Keeper::Pace as usize => {
                format!("the link idles {us:.3} us for the pace of {:.3} Gb/s", rate * 8.0)
            }
            _ => format!("the link idles {us:.3} us, neither for want of window nor for the pace alone"),
        }
    }
}

fn keeper(span: &Span, packet: u64) -> Keeper {
    match span.window {
        Some(window) if span.inflight > 0 && span.inflight.saturating_add(packet) > window => Keeper::Window,
        _ if span.rate.is_some() => Keeper::Pace,
        _ => Keeper::Other,
    }
}

/// What ACKs have told while a window became smaller.
#[derive(Clone, Copy, Default)]
struct Told {
    delays: (f64, u64, f64),
    marks: u64,
    senders: u64,
    lost: u64,
    target: f64,
}

/// A window on its way down.
struct Fall {
    high: (f64, u64),
    /// The window before the first ACK is not told: it was at least what was in flight.
    at_least: bool,
    low: (f64, u64),
    senders: u64,
    at_low: Told,
    told: Told,
}

impl Fall {
    fn from(at: f64, window: u64, senders: u64) -> Fall {
        let told = Told { senders, ..Told::default() };
        Fall { high: (at, window), at_least: false, low: (at, window), senders, at_low: told, told }
    }

    fn is_one(&self) -> bool {
        (self.low.1 as f64) < self.high.1 as f64 * REDUCED
    }

    fn moment(&self) -> (f64, Moment) {
        let ((_, high), (at, low), told) = (self.high, self.low, &self.at_low);
        let least = if self.at_least { "at least " } else { "" };
        let mut what =
            format!("window reduced from {least}{high} to {low} bytes since {:.3} us", self.high.0);
        let mut causes = Vec::new();
        if told.delays.1 > 0 {
            let mean = told.delays.0 / told.delays.1 as f64;
            let target = match told.target > 0.0 {
                true => format!(", with a target of {:.3} us", told.target / 1e3),
                false => String::new(),
            };
            let most = told.delays.2 / 1e3;
            causes.push(format!(
                "queueing delay was {:.3} us on average, {most:.3} us at most{target}",
                mean / 1e3
            ));
        }
        match (self.senders, told.senders) {
            (before, now) if before == now => {}
            (0, now) => causes.push(format!("the receiver serves {}", counted(now, "sender"))),
            (before, now) => {
                causes.push(format!("the receiver serves {} instead of {before}", counted(now, "sender")));
            }
        }
        if told.marks > 0 {
            causes.push(counted(told.marks, "congestion mark"));
        }
        if told.lost > 0 {
            causes.push(format!("{} counted as lost", counted(told.lost, "packet")));
        }
        if !causes.is_empty() {
            what += &format!(": {}", causes.join("; "));
        }
        (high as f64 / low.max(1) as f64, Moment { t_us: at, what })
    }
}

/// When the window became smaller by a quarter or more, and what ACKs told meanwhile.
pub(crate) fn reductions(from: f64, until: f64, context: &Context) -> Vec<(f64, Moment)> {
    let mut falls = Vec::new();
    let mut senders = 0;
    let mut fall: Option<Fall> = None;
    for (at, decision) in context.between(0.0, until) {
        match (decision, &mut fall) {
            (Decision::AckReceived { senders: now, ce_marks, .. }, fall) => {
                senders = *now;
                if let Some(fall) = fall {
                    (fall.told.senders, fall.told.marks) = (*now, fall.told.marks.saturating_add(*ce_marks));
                }
            }
            (Decision::PathAcked { delay: Some(delay) }, Some(fall)) => {
                let (sum, count, most) = fall.told.delays;
                fall.told.delays = (sum + delay, count + 1, most.max(*delay));
            }
            (Decision::PacketLost { .. }, Some(fall)) => fall.told.lost += 1,
            (Decision::PacketSent { inflight, .. }, None) => {
                fall = Some(Fall { at_least: true, ..Fall::from(*at, *inflight, senders) });
            }
            (Decision::PacketSent { inflight, .. }, Some(fall)) if fall.at_least && fall.low == fall.high => {
                (fall.high, fall.low) = ((*at, *inflight), (*at, *inflight));
            }
            (Decision::ControllerUpdated { window, target, .. }, Some(going)) => {
                going.told.target = *target;
                if *window < going.low.1 {
                    (going.low, going.at_low) = ((*at, *window), going.told);
                }
                let grown = *window as f64 > going.low.1 as f64 * GROWN;
                if grown || *window >= going.high.1 {
                    falls.extend((going.is_one() && going.low.0 >= from).then(|| going.moment()));
                    fall = Some(Fall::from(*at, *window, senders));
                }
            }
            _ => {}
        }
    }
    falls.extend(fall.filter(|fall| fall.is_one() && fall.low.0 >= from).map(|fall| fall.moment()));
    falls
}

/// Packets of the flow that were taken for lost, by what it cost until they left again.
fn losses(flow: &Flow, context: &Context) -> Vec<(f64, Moment)> {
    let own: BTreeSet<u32> = flow.packets.iter().map(|packet| packet.psn).collect();
    let mut losses = Vec::new();
    // Those that wait to be retransmitted, by PSN: when they were lost, how old they were, and what is said of them.
    let mut open: BTreeMap<u32, (f64, f64, String)> = BTreeMap::new();
    for (at, decision) in &context.decisions {
        match decision {
            Decision::PacketLost { psn, path, cause, age } if own.contains(psn) => {
                let age = age / 1e3;
                let what = format!(
                    "PSN {psn} counts as lost, {age:.3} us after it left on path {path}: {}",
                    rule(cause)
                );
                open.insert(*psn, (*at, age, what));
            }
            Decision::PacketResent { psn, path, .. } => {
                if let Some((lost, age, what)) = open.remove(psn) {
                    let after = at - lost;
                    let when = match after > 0.0 {
                        true => format!("{after:.3} us later"),
                        false => "at once".to_string(),
                    };
                    let what = format!("{what}; sent again {when} on path {path}");
                    losses.push((age + after, Moment { t_us: lost, what }));
                }
            }
            _ => {}
        }
    }
    let never = open.into_values();
    losses.extend(never.map(|(lost, _, what)| {
        (f64::INFINITY, Moment { t_us: lost, what: format!("{what}; not sent again") })
    }));
    losses
}

pub(crate) fn rule(cause: &str) -> String {
    let words = match cause {
        "path_order" => "one sent later on that path has arrived",
        "reordering" => "one sent later by more than the reordering window has arrived",
        "timer" => "its timer has expired though others were answered",
        "path_down" => "that path went down",
        "silence" => "nothing has been answered",
        _ => return format!("rule {cause}"),
    };
    format!("{words} (rule {cause})")
}

/// Paths of the flow that were given up, or came back.
fn path_changes(flow: &Flow, until: f64, context: &Context) -> Vec<(f64, Moment)> {
    let used: BTreeSet<u16> =
        flow.packets.iter().flat_map(|packet| &packet.copies).map(|copy| copy.path).collect();
    let changes = context.between(flow.started, until).filter_map(|(at, decision)| {
        let (weight, path, what) = match decision {
            Decision::PathChanged { path, to } => match to.as_str() {
                "suspect" => (2.0, path, format!("path {path} declared suspect")),
                "down" => (3.0, path, format!("path {path} given up as down")),
                "probing" => (0.0, path, format!("path {path} is asked whether it works again")),
                _ => (1.0, path, format!("path {path} in use again")),
            },
            Decision::PathRerolled { path } => (0.5, path, format!("path {path} gets another source port")),
            _ => return None,
        };
        used.contains(&(*path as u16)).then_some((weight, Moment { t_us: *at, what }))
    });
    changes.collect()
}

/// What is rare: silence, and what is concluded from it.
pub(crate) fn others(from: f64, until: f64, context: &Context) -> Vec<(f64, Moment)> {
    let rare = context.between(from, until).filter_map(|(at, decision)| {
        let (weight, what) = match decision {
            Decision::PathsUndone { down } => (
                3.0,
                format!("{down} paths went down at once: the peer or the first hop is blamed, not they"),
            ),
            Decision::TailProbe { psn, path } => {
                (1.0, format!("nothing has been answered: PSN {psn} is retransmitted, not on path {path}"))
            }
            Decision::LossRule { rule } => (2.0, format!("losses are judged by rule {rule} from now on")),
            Decision::PeerDied { silence } => {
                (4.0, format!("the peer counts as dead after {:.3} us of silence", silence / 1e3))
            }
            _ => return None,
        };
        Some((weight, Moment { t_us: *at, what }))
    });
    rare.collect()
}
