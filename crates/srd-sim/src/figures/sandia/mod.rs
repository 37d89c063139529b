//! Sandia's cluster: J. Naegle and others, "iWARP and Adaptive Routing in a 10G Ethernet Cluster", OpenFabrics workshop, Sonoma, 2008.
//! 128 nodes on one switch of 144 ports (Woven EFX-1000: twelve line cards of twelve ports) that moves flows around hot spots, and
//! on SDR InfiniBand, whose routes do not move. The slides' graphs are lost; what they say in words is what is compared.
//!
//! Not in the slides, and chosen here:
//! - the switch inside: twelve line cards of 24 ports, half of them up, each to one of twelve cores, so that the bandwidth is
//!   there and only routing can waste it; 1 MB of memory for each chip, as the 24-port 10 Gb/s chips of the time had;
//! - SDR InfiniBand on the same shape, 8 Gb/s of data on each cable, packets of 2 KB, 32 KB of buffer for what comes by a cable.
//!   Credits are class-wise pauses of go-back-N on RoCE's frames, which come to the same: nothing is lost;
//! - latencies of cards, hosts and chips, of which results are made where nothing else is measured.
//!
//! SRD runs on the switch as it is without rerouting: hashes, no pauses.

pub(super) mod bandwidth;
pub(super) mod bisection;
pub(super) mod collectives;
pub(super) mod contention;
pub(super) mod latency;
pub(super) mod linpack;
pub(super) mod order;

use super::lab::{Lab, Run};
use crate::apps::catalogue;
use crate::input::Scenario;

const SOURCE: &str = "Naegle et al., OpenFabrics workshop, 2008";

/// The switch and its hosts. Jobs get nodes as a batch system hands them out: ranks in random order.
const SWITCH: &str = r#"
[fabric]
kind = "leaf-spine"
leaves = 12
spines = 12
hosts_per_leaf = 12
host_gbps = 10
cable_us = 0.05
switch_latency_us = 0.5

[host]
latency_us = 6.0

[queues]
shared = "1MB"
capacity = "1MB"

[transport]
kind = "iwarp"
mtu = 9000
"#;

/// Rotate bandwidth: a tenth of the 80 MB, once instead of three times.
const ROTATE: &str = r#"
[[program]]
kind = "rotate-bandwidth"
placement = "random"
size = "4MB"
messages = 2
tests = 1
"#;

/// The nodes of the cluster; the switch has ports for 144.
const NODES: u32 = 128;

/// A network, and what its hosts run.
#[derive(Clone, Copy)]
struct Network {
    label: &'static str,
    sets: &'static [&'static str],
}

const LAG: Network = Network { label: "iWARP, LAG hash", sets: &["routing.mode=lag"] };
const LAG_PAUSE: Network =
    Network { label: "iWARP, LAG hash, pause", sets: &["routing.mode=lag", "queues.link_pause=true"] };
const ECMP: Network = Network { label: "iWARP, ECMP hash", sets: &["routing.mode=ecmp"] };
const MOVED: Network = Network { label: "iWARP, adaptive", sets: &["routing.mode=reroute"] };
const MOVED_PAUSE: Network =
    Network { label: "iWARP, adaptive, pause", sets: &["routing.mode=reroute", "queues.link_pause=true"] };
/// With packets as long as SRD's.
const MOVED_SHORT: Network = Network {
    label: "iWARP, adaptive, packets of 4200 bytes",
    sets: &["routing.mode=reroute", "transport.mtu=4200"],
};
const INFINIBAND: Network = Network {
    label: "SDR InfiniBand, static",
    sets: &[
        "routing.mode=static",
        "transport.kind=roce",
        "transport.mtu=2200",
        "fabric.host_gbps=8",
        "fabric.frame_overhead=0",
        "fabric.switch_latency_us=0.2",
        "host.latency_us=3.0",
        "queues.lossless=[0]",
        "queues.pfc_xoff=32KB",
    ],
};
/// Linux's: CUBIC, and a stack in software, for which 8 us are taken.
const TCP: Network = Network {
    label: "TCP (CUBIC), ECMP hash",
    sets: &["routing.mode=ecmp", "transport.kind=tcp", "transport.stack_us=8.0"],
};
/// Packets of 4 KiB: one of 9000 bytes takes 7 us here, as long as 90 KB take at the 100 Gb/s for which 8 KiB were chosen.
const SRD: Network = Network {
    label: "SRD, ECMP hash",
    sets: &["routing.mode=ecmp", "transport.kind=srd", "transport.mtu=4200"],
};

/// Switches cut packets. Unlike at 100 Gb/s, a bandwidth-delay product is five packets here: windows of one and a half and an ACK
/// for each 16 KiB leave the line idle (a pair alone gets 818 of 1214 MB/s), windows of three and an ACK for each packet do best.
const NSCC: Network = Network {
    label: "NSCC, cut packets, ECMP hash",
    sets: &[
        "routing.mode=ecmp",
        "transport.kind=nscc",
        "transport.mtu=4200",
        "transport.max_window=3.0",
        "transport.ack_every=1",
        "transport.class=1",
        "transport.control_class=0",
        "queues.classes=strict",
        "queues.ecn_min=0.2bdp",
        "queues.ecn_max=0.8bdp",
        "queues.ecn_at=leaving",
        "queues.trim=true",
    ],
};

/// The network and what happens in it; `seed` shuffles.
fn scenario(network: &Network, traffic: &str, seed: u64, more: &[String]) -> Scenario {
    let mut sets: Vec<String> = network.sets.iter().map(|set| set.to_string()).collect();
    sets.push(format!("seed={seed}"));
    sets.extend_from_slice(more);
    Lab::scenario(&format!("{SWITCH}{traffic}"), &sets)
}

/// What the one program of a run says: its figures by their order in the catalogue, empty where it did not come to its end.
fn said(scenario: &Scenario, run: &Run) -> Vec<catalogue::Figure> {
    scenario.traffic.jobs[0].figures(&run.marks)
}

/// Complaints of all but TCP's runs, which are slow enough for that to be a result.
fn complaints(network: &Network, run: &Run) -> Vec<String> {
    match network.label == TCP.label {
        true => Vec::new(),
        false => run.complaints.iter().map(|complaint| format!("{}: {complaint}", network.label)).collect(),
    }
}

/// Mean of values, and the least and the most.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Spread {
    least: f64,
    mean: f64,
    most: f64,
}

impl Spread {
    /// `None` of none.
    fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let all: Vec<f64> = values.into_iter().collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let end = |fold: fn(f64, f64) -> f64| all.iter().copied().reduce(fold);
        Some(Spread { least: end(f64::min)?, mean, most: end(f64::max)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_what_they_are_called() {
        let program = "[[program]]\nkind = \"barrier\"\nhosts = 16\nplacement = \"random\"\n";
        for network in [LAG, LAG_PAUSE, ECMP, MOVED, MOVED_PAUSE, MOVED_SHORT, INFINIBAND, TCP, NSCC, SRD] {
            let scenario = scenario(&network, program, 1, &[]);
            let pauses = scenario.settings.queues.pause.is_some();
            let lossless = network.label.contains("pause") || network.label.contains("InfiniBand");
            assert_eq!(pauses, lossless, "{}", network.label);
            let kind = scenario.settings.transports[0].name.as_str();
            let words = [
                ("iwarp", "iWARP"),
                ("roce", "InfiniBand"),
                ("tcp", "TCP"),
                ("nscc", "NSCC"),
                ("srd", "SRD"),
            ];
            let (_, word) = words.into_iter().find(|(name, _)| *name == kind).expect("one of these");
            assert!(network.label.contains(word), "{} is {kind}", network.label);
        }
    }

    #[test]
    fn a_spread_has_its_ends() {
        assert_eq!(Spread::of([2.0, 1.0, 6.0]), Some(Spread { least: 1.0, mean: 3.0, most: 6.0 }));
        assert_eq!(Spread::of([]), None);
    }
}
