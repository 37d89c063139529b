//! What came of a run, in numbers.

use super::fairness::{self, Settling, Stage, payload_share};
use super::run::Account;
use super::traffic::Flow;
use crate::flow::protocol::{Amount, Received};
use crate::shape::Shape;
use serde::Serialize;

/// The figures of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// Share of packets that were retransmitted, in percent; of an MPI job nobody counts them.
    pub again_percent: Option<f64>,
    /// Flows of which something is missing.
    pub incomplete: usize,
    /// What senders complained of.
    pub complaints: Vec<String>,
    /// When each flow that has a size was there, in milliseconds.
    pub times_ms: Vec<f64>,
    /// For flows that have a size.
    pub completion: Option<Completion>,
    /// For flows that have a time.
    pub throughput: Option<Throughput>,
    /// For MPI jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobFigures>,
}

/// When flows were there, from their common start.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Completion {
    /// The quickest, in milliseconds.
    pub first_ms: f64,
    /// The middle one.
    pub median_ms: f64,
    /// The slowest.
    pub last_ms: f64,
    /// All bytes in full frames of TCP through the busiest host's link.
    pub ideal_ms: f64,
    /// The slowest by the ideal.
    pub last_by_ideal: f64,
    /// The slowest by the quickest.
    pub last_by_first: f64,
}

/// How fast flows were.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Throughput {
    /// Payload of each, Mbit/s.
    pub flows_mbps: Vec<f64>,
    /// All together, from the first one's beginning to the last one's end.
    pub sum_mbps: f64,
    /// Of what was possible.
    pub of_possible: f64,
    /// The slowest, by an equal part of what was possible.
    pub slowest_of_share: f64,
    /// Longest time in which nothing arrived of some flow, in milliseconds.
    pub longest_stall_ms: f64,
    /// When it began.
    pub longest_stall_at_ms: f64,
    /// Jain's index of the flows while all of them went.
    pub jain: Option<f64>,
    /// How soon they had their shares, if they do not all begin at once.
    pub settling: Option<Settling>,
}

/// What an MPI job has measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct JobFigures {
    /// Where it ran, rank by rank if hosts have one each.
    pub hosts: Vec<String>,
    /// By itself.
    pub alone: Measured,
    /// In the same lab, with flows beside it or with faults.
    pub disturbed: Option<Measured>,
    /// With the same flows in another lab: what they cost by the processors that both labs have in common.
    pub elsewhere: Option<Measured>,
    /// Lines that should be the same in every run, and are not those of the first one.
    pub different: Option<String>,
}

/// What a job has measured once.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measured {
    /// From beginning to end, in seconds.
    pub seconds: f64,
    /// How busy the processors were, in percent.
    pub cpu_percent: f64,
    /// Of a collective operation: times of each.
    pub operation: Option<Times>,
}

/// Times of an operation that was carried out many times, in microseconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Times {
    /// How many times.
    pub count: usize,
    /// On average.
    pub mean_us: f64,
    /// Percentiles: the least, 1 %, ... 99 %, the most.
    pub percentiles_us: Vec<f64>,
}

impl Times {
    /// Of these; `None` if there are none.
    pub(super) fn of(mut times_us: Vec<f64>) -> Option<Times> {
        times_us.sort_by(f64::total_cmp);
        let count = times_us.len();
        let last = count.checked_sub(1)?;
        let percentiles_us = (0..=100).map(|percent| times_us[(last * percent).div_ceil(100)]).collect();
        Some(Times { count, mean_us: times_us.iter().sum::<f64>() / count as f64, percentiles_us })
    }

    /// The middle one.
    pub fn median_us(&self) -> f64 {
        self.percentiles_us[50]
    }

    /// That which one in a hundred exceeds.
    pub fn p99_us(&self) -> f64 {
        self.percentiles_us[99]
    }
}

/// Works out the figures. `bin_ns`: how long arrivals were counted together. `possible_mbps`: of payload, all flows together;
/// without it what hosts' links carry.
pub fn figures(
    flows: &[Flow],
    account: &Account,
    bin_ns: u64,
    shape: &Shape,
    possible_mbps: Option<f64>,
) -> Figures {
    let sent: u64 = account.sent.iter().map(|sent| sent.packets).sum();
    let again: u64 = account.sent.iter().map(|sent| sent.again).sum();
    let mut complaints: Vec<String> = account.sent.iter().filter_map(|sent| sent.error.clone()).collect();
    complaints.sort();
    complaints.dedup();
    let timed = matches!(flows[0].amount, Amount::ForNs(_));
    if timed {
        complaints.clear(); // what is under way when time is over is no fault
    }
    Figures {
        again_percent: Some(100.0 * again as f64 / sent.max(1) as f64),
        incomplete: account.received.iter().filter(|received| !received.complete).count(),
        complaints,
        times_ms: if timed { Vec::new() } else { times_ms(account) },
        completion: (!timed).then(|| completion(flows, account, shape)).flatten(),
        throughput: timed
            .then(|| throughput(flows, account, bin_ns, &fairness::stages(flows, shape, possible_mbps))),
        job: None,
    }
}

/// Sums by host of `end`.
fn by_host(flows: &[Flow], end: impl Fn(&Flow) -> usize, what: impl Fn(&Flow) -> f64) -> f64 {
    let hosts = flows.iter().map(&end).max().unwrap_or(0) + 1;
    let mut sums = vec![0.0; hosts];
    flows.iter().for_each(|flow| sums[end(flow)] += what(flow));
    sums.into_iter().fold(0.0, f64::max)
}

/// When each flow was there, those of which something is missing left out.
fn times_ms(account: &Account) -> Vec<f64> {
    let there = account.received.iter().filter(|received| received.complete);
    there.map(|received| received.last_ns as f64 / 1e6).collect()
}

fn completion(flows: &[Flow], account: &Account, shape: &Shape) -> Option<Completion> {
    if account.received.iter().any(|received| !received.complete) {
        return None;
    }
    let mut times_ms = times_ms(account);
    times_ms.sort_by(f64::total_cmp);
    let bytes = |flow: &Flow| match flow.amount {
        Amount::Bytes(bytes) => bytes as f64,
        Amount::ForNs(_) => 0.0,
    };
    let busiest = by_host(flows, |flow| flow.from, bytes).max(by_host(flows, |flow| flow.to, bytes));
    let ideal_ms = busiest * 8.0 / payload_share(shape.mtu_bytes) / (shape.host_mbps * 1e3);
    let (first_ms, last_ms) = (*times_ms.first()?, *times_ms.last()?);
    Some(Completion {
        first_ms,
        median_ms: times_ms[times_ms.len() / 2],
        last_ms,
        ideal_ms,
        last_by_ideal: last_ms / ideal_ms,
        last_by_first: last_ms / first_ms,
    })
}

fn throughput(flows: &[Flow], account: &Account, bin_ns: u64, stages: &[Stage]) -> Throughput {
    let mbps = |bytes: u64, span_ns: u64| bytes as f64 * 8e3 / span_ns as f64;
    let received = &account.received;
    let flows_mbps: Vec<f64> = flows
        .iter()
        .zip(received)
        .map(|(flow, received)| match flow.amount {
            Amount::ForNs(span_ns) => mbps(received.bytes, span_ns),
            Amount::Bytes(_) => unreachable!("these flows have a time"),
        })
        .collect();
    // Sums over stages are of Mbit/s times nanoseconds.
    let share_of = |flow: usize| -> f64 {
        let there = stages.iter().filter(|stage| stage.flows.contains(&flow));
        there.map(|stage| stage.share_mbps() * stage.span_ns() as f64).sum()
    };
    let of_share = received.iter().enumerate().map(|(flow, of)| of.bytes as f64 * 8e3 / share_of(flow));
    let possible: f64 = stages.iter().map(|stage| stage.possible_mbps * stage.span_ns() as f64).sum();
    let bytes: u64 = received.iter().map(|received| received.bytes).sum();
    let span_ns: u64 = stages.iter().map(Stage::span_ns).sum();
    let gap = |received: &Received| (received.longest_gap_ns, received.longest_gap_at_ns);
    let (stall_ns, stall_at_ns) = received.iter().map(gap).max().unwrap_or_default();
    Throughput {
        flows_mbps,
        sum_mbps: mbps(bytes, span_ns),
        of_possible: bytes as f64 * 8e3 / possible,
        slowest_of_share: of_share.fold(f64::INFINITY, f64::min),
        longest_stall_ms: stall_ns as f64 / 1e6,
        longest_stall_at_ms: stall_at_ns as f64 / 1e6,
        jain: fairness::jain(stages, received, bin_ns),
        settling: fairness::settling(stages, received, bin_ns),
    }
}

/// The middle of several values, and their ends.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of these; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let (lower, upper) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Spread { median: (lower + upper) / 2.0, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::protocol::{ALL, Sent};

    fn account(last_ns: &[u64], bytes: u64) -> Account {
        let received = |(flow, &last_ns): (usize, &u64)| Received {
            flow: flow as u32,
            bytes,
            last_ns,
            complete: true,
            longest_gap_ns: 1_000_000,
            longest_gap_at_ns: 0,
            bins: Vec::new(),
        };
        let sent = |flow| Sent { flow, packets: 10, again: 1, error: None };
        Account {
            received: last_ns.iter().enumerate().map(received).collect(),
            sent: (0..last_ns.len() as u32).map(sent).collect(),
        }
    }

    #[test]
    fn an_incasts_ideal_is_that_of_the_receivers_link() {
        let flows: Vec<Flow> = (1..=48)
            .map(|from| Flow { from, to: 0, amount: Amount::Bytes(20_000), begin_ns: 0, offered_bps: ALL })
            .collect();
        let times: Vec<u64> = (1..=48).map(|n| n * 2_000_000).collect();
        let figures = figures(&flows, &account(&times, 20_000), 20_000_000, &Shape::default(), None);
        let completion = figures.completion.unwrap();
        assert!((completion.ideal_ms - 80.3).abs() < 0.1, "{completion:?}");
        assert_eq!((completion.first_ms, completion.last_ms), (2.0, 96.0));
        assert_eq!(figures.again_percent, Some(10.0));
        assert_eq!((figures.times_ms.len(), figures.times_ms[0]), (48, 2.0));
    }

    #[test]
    fn shares_are_of_what_is_possible() {
        let flows: Vec<Flow> = (0..4)
            .map(|n| Flow {
                from: n,
                to: n + 4,
                amount: Amount::ForNs(1_000_000_000),
                begin_ns: 0,
                offered_bps: ALL,
            })
            .collect();
        let figures =
            figures(&flows, &account(&[1; 4], 5_000_000), 20_000_000, &Shape::default(), Some(200.0));
        let throughput = figures.throughput.unwrap();
        assert_eq!((throughput.sum_mbps, throughput.of_possible), (160.0, 0.8));
        assert_eq!((throughput.slowest_of_share, throughput.longest_stall_ms), (0.8, 1.0));
        assert_eq!(throughput.settling, None, "they all begin at once");
    }

    #[test]
    fn the_middle_and_the_ends() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(Spread::of([]), None);
    }
}
