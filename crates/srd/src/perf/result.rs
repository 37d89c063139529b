//! Results: what one round says, the median of several, the comparison with TCP, and how they are shown.

use super::histogram::Quantiles;
use super::plan::{Carrier, Plan, Test};
use super::round::Counted;
use serde::Serialize;

/// One measurement; in JSON the fields that `srd perf` promises.
#[derive(Clone, Serialize, Debug)]
pub struct Measurement {
    /// What was measured.
    pub test: Test,
    /// Over what.
    pub transport: Carrier,
    /// Bytes of a message.
    pub size: u32,
    /// Paths to each peer.
    pub paths: u16,
    /// MTU of the path in bytes, IP header included.
    pub mtu: u16,
    /// Half the round trip in microseconds (latency test only).
    pub half_rtt_us: Option<Quantiles>,
    /// Payload in 10^9 bits per second.
    pub gbps: f64,
    /// Messages per second, in the latency test those of both directions.
    pub msgs_per_s: f64,
    /// Processor time of both sides, kernel included, per message.
    pub cpu_us_per_msg: f64,
    /// Packets (TCP: segments) sent again by both sides.
    pub retransmissions: u64,
}

/// How SRD compares: its figure divided by TCP's.
#[derive(Clone, Serialize, Debug)]
pub struct Ratio {
    /// Below 1: SRD is faster.
    pub half_rtt_us: Option<Quantiles>,
    /// Above 1: SRD is faster.
    pub gbps: f64,
    /// Above 1: SRD is faster.
    pub msgs_per_s: f64,
    /// Below 1: SRD uses less.
    pub cpu_us_per_msg: f64,
}

/// What is printed.
#[derive(Clone, Serialize, Debug)]
pub struct Outcome {
    /// SRD's figures.
    #[serde(flatten)]
    pub srd: Measurement,
    /// TCP's, of the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Measurement>,
    /// One divided by the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
}

/// One round's raw figures.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// The client's count.
    pub counted: Counted,
    /// Half the round trip.
    pub half_rtt_us: Option<Quantiles>,
    /// Processor time of both sides in microseconds.
    pub cpu_us: f64,
    /// Of both sides.
    pub retransmissions: u64,
}

impl Round {
    /// The round's rates.
    pub fn measure(&self, plan: &Plan, transport: Carrier, paths: u16, mtu: u16) -> Measurement {
        // In the latency test a round trip is two messages, unless the answer is only the completion of a read.
        let per_trip = if plan.test == Test::Latency && plan.op != super::plan::Op::Read { 2.0 } else { 1.0 };
        let msgs_per_s =
            per_second(self.counted.messages as f64 * per_trip, self.counted.elapsed.as_secs_f64());
        Measurement {
            test: plan.test,
            transport,
            size: plan.size,
            paths,
            mtu,
            half_rtt_us: self.half_rtt_us,
            gbps: msgs_per_s * f64::from(plan.size) * 8.0 / 1e9,
            msgs_per_s,
            cpu_us_per_msg: self.cpu_us / (self.counted.all_messages as f64 * per_trip).max(1.0),
            retransmissions: self.retransmissions,
        }
    }
}

fn per_second(count: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { count / seconds } else { 0.0 }
}

/// The median of each figure over the rounds; at least one.
pub fn median(rounds: &[Measurement]) -> Measurement {
    let figure = |of: &dyn Fn(&Measurement) -> f64| middle(rounds.iter().map(of).collect());
    let quantile = |of: fn(&Quantiles) -> f64| figure(&|m| m.half_rtt_us.as_ref().map_or(0.0, of));
    Measurement {
        half_rtt_us: rounds[0].half_rtt_us.map(|_| Quantiles {
            p50: quantile(|q| q.p50),
            p99: quantile(|q| q.p99),
            p999: quantile(|q| q.p999),
        }),
        gbps: figure(&|m| m.gbps),
        msgs_per_s: figure(&|m| m.msgs_per_s),
        cpu_us_per_msg: figure(&|m| m.cpu_us_per_msg),
        retransmissions: figure(&|m| m.retransmissions as f64) as u64,
        ..rounds[0]
    }
}

/// The middle one; of an even number, the mean of the two in the middle.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

impl Outcome {
    /// Medians, and the comparison if TCP ran too.
    pub fn new(srd: &[Measurement], tcp: &[Measurement]) -> Outcome {
        let srd = median(srd);
        let tcp = (!tcp.is_empty()).then(|| median(tcp));
        let ratio = tcp.as_ref().map(|tcp| Ratio {
            half_rtt_us: srd.half_rtt_us.zip(tcp.half_rtt_us).map(|(srd, tcp)| Quantiles {
                p50: srd.p50 / tcp.p50,
                p99: srd.p99 / tcp.p99,
                p999: srd.p999 / tcp.p999,
            }),
            gbps: srd.gbps / tcp.gbps,
            msgs_per_s: srd.msgs_per_s / tcp.msgs_per_s,
            cpu_us_per_msg: srd.cpu_us_per_msg / tcp.cpu_us_per_msg,
        });
        Outcome { srd, tcp, ratio }
    }

    /// A table for people.
    pub fn describe(&self, plan: &Plan) -> String {
        let mut text = format!(
            "{} of {} B messages by {}, {}, window {}, {} paths, MTU {}\n\n",
            name(plan.test),
            plan.size,
            name(plan.op),
            if plan.blocking { "blocking" } else { "polling" },
            plan.window,
            self.srd.paths,
            self.srd.mtu
        );
        text += &format!(
            "{:9} {:>30} {:>9} {:>12} {:>11} {:>8}\n",
            "", "half RTT us  p50    p99  p99.9", "Gb/s", "messages/s", "CPU us/msg", "resent"
        );
        for measured in [Some(&self.srd), self.tcp.as_ref()].into_iter().flatten() {
            let transport = format!("{:?}", measured.transport).to_uppercase();
            text += &format!(
                "{transport:9} {:>30} {:>9.3} {:>12.0} {:>11.3} {:>8}\n",
                three(measured.half_rtt_us, 1),
                measured.gbps,
                measured.msgs_per_s,
                measured.cpu_us_per_msg,
                measured.retransmissions
            );
        }
        if let Some(ratio) = &self.ratio {
            text += &format!(
                "{:9} {:>30} {:>9.2} {:>12.2} {:>11.2}\n",
                "SRD/TCP",
                three(ratio.half_rtt_us, 2),
                ratio.gbps,
                ratio.msgs_per_s,
                ratio.cpu_us_per_msg
            );
        }
        text
    }
}

fn three(quantiles: Option<Quantiles>, digits: usize) -> String {
    quantiles.map_or_else(
        || "-".into(),
        |Quantiles { p50, p99, p999 }| format!("{p50:.digits$} {p99:6.digits$} {p999:6.digits$}"),
    )
}

/// A choice as it is written on the command line.
fn name(choice: impl clap::ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(msgs_per_s: f64) -> Measurement {
        Measurement {
            test: Test::Latency,
            transport: Carrier::Srd,
            size: 8,
            paths: 64,
            mtu: 1500,
            half_rtt_us: Some(Quantiles { p50: 2.0, p99: 4.0, p999: 8.0 }),
            gbps: 1.0,
            msgs_per_s,
            cpu_us_per_msg: 1.0,
            retransmissions: 3,
        }
    }

    #[test]
    fn the_median_leaves_an_outlier_aside() {
        let rounds = [measurement(10.0), measurement(1000.0), measurement(12.0)];
        assert_eq!(median(&rounds).msgs_per_s, 12.0);
        assert_eq!(median(&rounds[..2]).msgs_per_s, 505.0);
    }

    #[test]
    fn json_has_the_promised_fields_and_no_other() {
        let keys = |value: &serde_json::Value| {
            let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            keys.sort();
            keys
        };
        let mut promised = vec![
            "test",
            "transport",
            "size",
            "paths",
            "mtu",
            "half_rtt_us",
            "gbps",
            "msgs_per_s",
            "cpu_us_per_msg",
            "retransmissions",
        ];
        promised.sort_unstable();
        let alone = serde_json::to_value(Outcome::new(&[measurement(1.0)], &[])).unwrap();
        assert_eq!(keys(&alone), promised);
        assert_eq!(keys(&alone["half_rtt_us"]), ["p50", "p99", "p999"]);

        let compared = serde_json::to_value(Outcome::new(&[measurement(2.0)], &[measurement(1.0)])).unwrap();
        assert_eq!(keys(&compared["tcp"]), promised);
        assert_eq!(compared["ratio"]["msgs_per_s"], 2.0);
        promised.extend(["tcp", "ratio"]);
        promised.sort_unstable();
        assert_eq!(keys(&compared), promised);
    }
}
