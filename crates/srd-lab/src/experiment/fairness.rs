//! What each flow may have while others go: how many go at each time, an equal part for each, and how near they come to it.

use super::traffic::Flow;
use crate::flow::protocol::{Amount, Received};
use crate::shape::Shape;
use serde::Serialize;

/// Bytes of a full frame beside the MTU, and bytes of the MTU that are headers with TCP (IPv4, TCP with timestamps).
const ETHERNET: u32 = 14;
const TCP_HEADERS: u32 = 52;

/// Rates are looked at over so long: some 400 packets of a flow that has a quarter of a link of 100 Mbit/s, and some round trips
/// of TCP through full queues.
const WINDOW_NS: u64 = 200_000_000;
/// How far from its share a flow may be and still have it.
const NEAR: f64 = 0.2;

/// A time in which the same flows go.
#[derive(Clone, PartialEq, Debug)]
pub struct Stage {
    /// When it begins, from the start.
    pub from_ns: u64,
    /// When it ends.
    pub to_ns: u64,
    /// Who goes.
    pub flows: Vec<usize>,
    /// What they can have together.
    pub possible_mbps: f64,
}

impl Stage {
    /// How long it is.
    pub fn span_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }

    /// An equal part of what is possible.
    pub fn share_mbps(&self) -> f64 {
        self.possible_mbps / self.flows.len() as f64
    }
}

/// How soon flows had their shares after others had begun or ended.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Settling {
    /// Until each flow was within a fifth of its share in every fifth of a second to come, in milliseconds: the middle of all
    /// changes. After a change after which they never were, the whole time until the next.
    pub settled_ms: f64,
    /// Share of all fifths of a second of all flows in which a flow was not that near, in percent.
    pub off_share_percent: f64,
}

/// Payload by bytes on the wire, at best, over TCP.
pub(super) fn payload_share(mtu_bytes: u32) -> f64 {
    f64::from(mtu_bytes - TCP_HEADERS) / f64::from(mtu_bytes + ETHERNET)
}

/// What flows can have together: what their hosts' links carry, and no more than they have to send and `most_mbps`.
fn possible_mbps(flows: &[&Flow], shape: &Shape, most_mbps: Option<f64>) -> f64 {
    let busiest = |end: fn(&Flow) -> usize| {
        let of_host = |host| flows.iter().filter(|flow| end(flow) == host).count();
        flows.iter().map(|flow| of_host(end(flow))).max().unwrap_or(0)
    };
    let most = busiest(|flow| flow.from).max(busiest(|flow| flow.to)).max(1);
    let of_links = flows.len() as f64 * shape.host_mbps * payload_share(shape.mtu_bytes) / most as f64;
    let offered: f64 = flows.iter().map(|flow| flow.offered_bps as f64 / 1e6).sum();
    of_links.min(most_mbps.unwrap_or(f64::INFINITY)).min(offered)
}

/// The times between beginnings and ends of flows that have a time, without those in which nothing goes.
pub fn stages(flows: &[Flow], shape: &Shape, most_mbps: Option<f64>) -> Vec<Stage> {
    let end_ns = |flow: &Flow| match flow.amount {
        Amount::ForNs(span) => flow.begin_ns + span,
        Amount::Bytes(_) => flow.begin_ns,
    };
    let mut moments: Vec<u64> = flows.iter().flat_map(|flow| [flow.begin_ns, end_ns(flow)]).collect();
    moments.sort_unstable();
    moments.dedup();
    let stage = |moments: &[u64]| {
        let (from_ns, to_ns) = (moments[0], moments[1]);
        let goes = |flow: &Flow| flow.begin_ns <= from_ns && end_ns(flow) >= to_ns;
        let numbers: Vec<usize> = (0..flows.len()).filter(|&n| goes(&flows[n])).collect();
        let there: Vec<&Flow> = numbers.iter().map(|&n| &flows[n]).collect();
        let possible_mbps = possible_mbps(&there, shape, most_mbps);
        (!numbers.is_empty()).then_some(Stage { from_ns, to_ns, flows: numbers, possible_mbps })
    };
    moments.windows(2).filter_map(stage).collect()
}

/// Bytes of a flow between two moments, by the intervals that lie wholly between them, and how long these are.
fn bytes_between(received: &Received, bin_ns: u64, from_ns: u64, to_ns: u64) -> (u64, u64) {
    let (from, to) = (from_ns.div_ceil(bin_ns), to_ns / bin_ns);
    let bins = (from..to).filter_map(|bin| received.bins.get(bin as usize));
    (bins.sum(), to.saturating_sub(from) * bin_ns)
}

/// Jain's index of what flows got while all of them went (Jain, Chiu and Hawe: A quantitative measure of fairness, 1984):
/// 1 if all got the same, 1/n if one of n got everything. `None` if there are not two, or never all of them.
pub fn jain(stages: &[Stage], received: &[Received], bin_ns: u64) -> Option<f64> {
    let all = stages.iter().find(|stage| stage.flows.len() == received.len())?;
    let bytes = received.iter().map(|received| bytes_between(received, bin_ns, all.from_ns, all.to_ns).0);
    let (sum, squares) = bytes
        .map(|bytes| bytes as f64)
        .fold((0.0, 0.0), |(sum, squares), bytes| (sum + bytes, squares + bytes * bytes));
    (received.len() > 1 && squares > 0.0).then(|| sum * sum / (received.len() as f64 * squares))
}

/// How soon flows had their shares; `None` if all begin and end at once, or no two are long enough beside each other.
pub fn settling(stages: &[Stage], received: &[Received], bin_ns: u64) -> Option<Settling> {
    if stages.len() < 2 {
        return None;
    }
    let mut settled_ms = Vec::new();
    let (mut windows, mut off) = (0, 0);
    for stage in stages.iter().filter(|stage| stage.flows.len() > 1 && stage.span_ns() >= WINDOW_NS) {
        let last_ns = stage.to_ns - WINDOW_NS;
        let mut settled_ns = 0;
        for from_ns in (stage.from_ns..=last_ns).step_by(bin_ns as usize) {
            let is_off = |flow: &&usize| {
                let (bytes, span_ns) = bytes_between(&received[**flow], bin_ns, from_ns, from_ns + WINDOW_NS);
                let mbps = bytes as f64 * 8e3 / span_ns.max(1) as f64;
                (mbps / stage.share_mbps() - 1.0).abs() > NEAR
            };
            let off_now = stage.flows.iter().filter(is_off).count();
            windows += stage.flows.len();
            off += off_now;
            if off_now > 0 {
                let next_ns = from_ns + bin_ns;
                settled_ns = if next_ns > last_ns { stage.span_ns() } else { next_ns - stage.from_ns };
            }
        }
        settled_ms.push(settled_ns as f64 / 1e6);
    }
    settled_ms.sort_by(f64::total_cmp);
    let settled_ms = *settled_ms.get(settled_ms.len() / 2)?;
    Some(Settling { settled_ms, off_share_percent: 100.0 * off as f64 / windows as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::protocol::ALL;

    const BIN_NS: u64 = 20_000_000;

    /// Two flows into one host, the second 1 s after the first, each for 2 s.
    fn staggered() -> Vec<Flow> {
        let flow = |n: usize| Flow {
            from: n + 1,
            to: 0,
            amount: Amount::ForNs(2_000_000_000),
            begin_ns: n as u64 * 1_000_000_000,
            offered_bps: ALL,
        };
        (0..2).map(flow).collect()
    }

    /// Whose rate in each interval is that share of a link's.
    fn received(flow: u32, link_mbps: f64, share: impl Fn(f64) -> f64) -> Received {
        let bin = |bin: u64| (link_mbps * share(bin as f64 * 0.02) * BIN_NS as f64 / 8e3).round() as u64;
        let bins: Vec<u64> = (0..150).map(bin).collect();
        let bytes = bins.iter().sum();
        Received { flow, bytes, last_ns: 0, complete: true, longest_gap_ns: 0, longest_gap_at_ns: 0, bins }
    }

    #[test]
    fn a_share_is_of_what_goes_at_the_time() {
        let stages = stages(&staggered(), &Shape::default(), None);
        let link = stages[0].possible_mbps;
        assert!((95.0..96.0).contains(&link), "{link}");
        let seconds = stages.iter().map(|stage| (stage.from_ns / 1_000_000_000, stage.flows.clone()));
        assert_eq!(seconds.collect::<Vec<_>>(), [(0, vec![0]), (1, vec![0, 1]), (2, vec![1])]);
        assert_eq!(stages[1].share_mbps(), link / 2.0);
    }

    #[test]
    fn who_is_stated_to_have_less_has_less() {
        let stages = stages(&staggered(), &Shape::default(), Some(50.0));
        assert_eq!(stages[1].share_mbps(), 25.0);
    }

    #[test]
    fn flows_have_settled_once_they_stay_near_their_shares() {
        let stages = stages(&staggered(), &Shape::default(), None);
        let link = stages[0].possible_mbps;
        // For 300 ms of the time together the first has still four fifths: over the fifth of a second from 240 ms on 0.59, and
        // near enough is 0.6.
        let first = |at: f64| {
            if at < 1.0 {
                1.0
            } else if at < 1.3 {
                0.8
            } else if at < 2.0 {
                0.5
            } else {
                0.0
            }
        };
        let second = |at: f64| {
            if at < 1.0 {
                0.0
            } else if at < 1.3 {
                0.2
            } else if at < 2.0 {
                0.5
            } else {
                1.0
            }
        };
        let received = [received(0, link, first), received(1, link, second)];
        let settling = settling(&stages, &received, BIN_NS).unwrap();
        // 12 of 41 fifths of a second begin before 240.
        assert_eq!(settling.settled_ms, 240.0);
        assert!((settling.off_share_percent - 100.0 * 12.0 / 41.0).abs() < 1e-6, "{settling:?}");
        // 0.59 and 0.41 of a link: 1 / (2 (0.59^2 + 0.41^2)).
        let jain = jain(&stages, &received, BIN_NS).unwrap();
        assert!((jain - 0.9686).abs() < 1e-3, "{jain}");
    }

    #[test]
    fn who_never_settles_counts_with_the_whole_time() {
        let stages = stages(&staggered(), &Shape::default(), None);
        let link = stages[0].possible_mbps;
        let received = [received(0, link, |_| 1.0), received(1, link, |_| 0.0)];
        assert_eq!(settling(&stages, &received, BIN_NS).unwrap().settled_ms, 1000.0);
        assert_eq!(jain(&stages, &received, BIN_NS), Some(0.5));
    }
}
