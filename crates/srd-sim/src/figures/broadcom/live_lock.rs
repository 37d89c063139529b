//! "PFC may result in transport live-lock", "PFC can create PFC storm due to slow receivers": senders whose timeouts are shorter
//! than pauses send again what is only held up, and what it costs flows that have nothing to do with it.

use super::super::lab::{Lab, Planned};
use super::super::{Drawn, Figure, Make, finding};
use super::{SOURCE, list, planned};
use srd_baselines::units::Ps;
use srd_chart::{Axis, Chart};

pub(in crate::figures) static LIVE_LOCK: Figure = Figure {
    name: "pause-live-lock",
    title: "Goodput into a slow receiver, by the retransmission timeout",
    source: SOURCE,
    make: Make::Code { runs, draw: live_lock },
};

/// InfiniBand's Local ACK Timeout, 4.096 us 2^n, for n from 4 to 11.
const TIMEOUTS: [u32; 8] = [4, 5, 6, 7, 8, 9, 10, 11];
const QUICK: [u32; 3] = [5, 8, 11];
const CONFIGURATIONS: [&str; 6] =
    ["RoCE, CC only", "RoCE, CC and PFC", PFC_ONLY, "iWARP", "NSCC, cut packets", "SRD"];
const PFC_ONLY: &str = "RoCE, PFC only";

/// The 24 hosts of three racks send to one that takes a packet every 0.7 us and has a ring of 256; another host of that rack gets
/// a flow of each rack.
fn text() -> String {
    let slow: Vec<String> =
        (8..16).flat_map(|host| [host, host + 8, host + 16]).map(|host| format!("\"{host}->0\"")).collect();
    format!(
        "[[workload]]\nkind = \"flows\"\nname = \"slow\"\npairs = [{}]\npersistent = true\n\
         [[workload]]\nkind = \"flows\"\nname = \"victims\"\npairs = [\"9->1\", \"17->1\", \"25->1\"]\npersistent = true\n",
        slow.join(", ")
    )
}

/// How long a run is, in microseconds.
fn end_us(quick: bool) -> u64 {
    if quick { 8_000 } else { 20_000 }
}

/// Timeouts of a configuration's runs; none if its runs do not depend on one. Only RoCE's are what decides: SRD's follow its measurements,
/// the others have theirs once.
fn timeouts(configuration: &str, quick: bool) -> &'static [u32] {
    match configuration.starts_with("RoCE") {
        true if quick => &QUICK,
        true => &TIMEOUTS,
        false => &[],
    }
}

fn micros(n: u32) -> f64 {
    4.096 * f64::from(1 << n)
}

fn runs(quick: bool) -> Vec<Planned> {
    let text = text();
    let mut runs = Vec::new();
    for configuration in CONFIGURATIONS {
        let timeouts = timeouts(configuration, quick);
        for number in 0..timeouts.len().max(1) {
            let mut more = vec![
                format!("end_us={}", end_us(quick)),
                "host.slow_hosts=[0]".to_string(),
                "host.slow_per_packet_us=0.7".to_string(),
                "host.receive_ring=256".to_string(),
            ];
            more.extend(timeouts.get(number).map(|&n| format!("transport.rto_us={}", micros(n))));
            if configuration == "iWARP" {
                // As long as the others', as the receiver counts packets.
                more.push("transport.mtu=4200".to_string());
            }
            runs.push(planned(&text, configuration, &more));
        }
    }
    runs
}

fn live_lock(lab: &mut Lab<'_>) -> Option<Drawn> {
    let quick = lab.is_quick();
    let mut runs = lab.all(&runs(quick), Ps::NEVER)?.into_iter();
    let mut findings = Vec::new();
    let mut goodputs = Vec::new();
    let all_timeouts = timeouts(PFC_ONLY, quick);
    for configuration in CONFIGURATIONS {
        let (mut goodput, mut victims, mut again, mut dead) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for run in runs.by_ref().take(timeouts(configuration, quick).len().max(1)) {
            goodput.push(run.goodput_gbps(0));
            victims.push(run.goodput_gbps(1));
            let sent = run.outcome.packets_new + run.outcome.packets_rtx;
            again.push(100.0 * run.outcome.packets_rtx as f64 / sent.max(1) as f64);
            dead += run.outcome.failed;
        }
        let words = |values: &[f64]| {
            list(all_timeouts.iter().zip(values).map(|(&n, value)| (format!("{:.0} us", micros(n)), *value)))
        };
        let name = configuration;
        let seed = |words: &'static str| if name == PFC_ONLY { words } else { "" };
        let (lock, spread) =
            (seed("\"may result in transport live-lock\""), seed("\"congestion spreading\""));
        findings.push(finding(
            format!("{name}: goodput into the slow receiver, Gb/s"),
            lock,
            words(&goodput),
        ));
        let died = if dead > 0 { format!("; {dead} queue pairs gave up") } else { String::new() };
        findings.push(finding(format!("{name}: % sent again"), "", words(&again) + &died));
        findings.push(finding(
            format!("{name}: goodput of the three bystanders, Gb/s"),
            spread,
            words(&victims),
        ));
        goodputs.push(goodput);
    }
    let x = Axis::new(
        "retransmission timeout (us)",
        micros(all_timeouts[0]),
        micros(all_timeouts[all_timeouts.len() - 1]),
    );
    let highest = goodputs.iter().flatten().copied().fold(0.0, f64::max);
    let y = Axis::new("goodput into the slow receiver (Gb/s)", 0.0, highest * 1.1);
    let mut chart = Chart::new(LIVE_LOCK.title, x.logarithmic(), y);
    for (configuration, goodput) in CONFIGURATIONS.iter().zip(&goodputs) {
        let last = goodput.len() - 1;
        let at =
            all_timeouts.iter().enumerate().map(|(number, &n)| (micros(n), Some(goodput[number.min(last)])));
        chart.line(configuration, at);
    }
    Some(Drawn {
        chart,
        caption: format!(
            "The 24 hosts of three racks send to one that takes a packet every 0.7 us, and three to another host of its rack, for {} ms. \
             SRD has no timeout to set; iWARP's (1 ms) and NSCC's (15 us and six round trips) stay as they are.",
            end_us(quick) / 1000
        ),
        findings,
        complaints: Vec::new(),
    })
}
