//! "PFC may result in transport live-lock", "PFC can create PFC storm due to slow receivers": senders whose timeouts are shorter
//! than pauses send again what is only held up, and what it costs flows that have nothing to do with it.

use super::super::lab::Lab;
use super::super::{Drawn, Figure, Make, finding};
use super::{SOURCE, list, run};
use srd_chart::{Axis, Chart};

pub(in crate::figures) static LIVE_LOCK: Figure = Figure {
    name: "pause-live-lock",
    title: "Goodput into a slow receiver, by the retransmission timeout",
    source: SOURCE,
    make: Make::Code(live_lock),
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

fn live_lock(lab: &mut Lab<'_>) -> Option<Drawn> {
    let timeouts = lab.pick(&QUICK[..], &TIMEOUTS[..]);
    let end_us = lab.pick(8_000, 20_000);
    let text = text();
    lab.plan(CONFIGURATIONS.len() * timeouts.len());
    let mut findings = Vec::new();
    let mut goodputs = Vec::new();
    let micros = |n: u32| 4.096 * f64::from(1 << n);
    for configuration in CONFIGURATIONS {
        let (mut goodput, mut victims, mut again, mut dead) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for &n in timeouts {
            let mut more = vec![
                format!("end_us={end_us}"),
                "host.slow_hosts=[0]".to_string(),
                "host.slow_per_packet_us=0.7".to_string(),
                "host.receive_ring=256".to_string(),
            ];
            // Only RoCE's timeouts are what decides: SRD's follow its measurements, the others have theirs once.
            let with_timeouts = configuration.starts_with("RoCE");
            if with_timeouts {
                more.push(format!("transport.rto_us={}", micros(n)));
            }
            if configuration == "iWARP" {
                // As long as the others', as the receiver counts packets.
                more.push("transport.mtu=4200".to_string());
            }
            let run = run(lab, &text, configuration, &more)?;
            goodput.push(run.goodput_gbps(0));
            victims.push(run.goodput_gbps(1));
            let sent = run.outcome.packets_new + run.outcome.packets_rtx;
            again.push(100.0 * run.outcome.packets_rtx as f64 / sent.max(1) as f64);
            dead += run.outcome.failed;
            if !with_timeouts {
                break;
            }
        }
        let words = |values: &[f64]| {
            list(timeouts.iter().zip(values).map(|(&n, value)| (format!("{:.0} us", micros(n)), *value)))
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
    let x =
        Axis::new("retransmission timeout (us)", micros(timeouts[0]), micros(timeouts[timeouts.len() - 1]));
    let highest = goodputs.iter().flatten().copied().fold(0.0, f64::max);
    let y = Axis::new("goodput into the slow receiver (Gb/s)", 0.0, highest * 1.1);
    let mut chart = Chart::new(LIVE_LOCK.title, x.logarithmic(), y);
    for (configuration, goodput) in CONFIGURATIONS.iter().zip(&goodputs) {
        let last = goodput.len() - 1;
        let at = timeouts.iter().enumerate().map(|(number, &n)| (micros(n), Some(goodput[number.min(last)])));
        chart.line(configuration, at);
    }
    Some(Drawn {
        chart,
        caption: format!(
            "The 24 hosts of three racks send to one that takes a packet every 0.7 us, and three to another host of its rack, for {} ms. \
             SRD has no timeout to set; iWARP's (1 ms) and NSCC's (15 us and six round trips) stay as they are.",
            end_us / 1000
        ),
        findings,
        complaints: Vec::new(),
    })
}
