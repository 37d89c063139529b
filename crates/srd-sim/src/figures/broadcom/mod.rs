//! H. V. Shah, M. Voloshin (Broadcom), "Congestion Control for Large Scale RoCEv2 Deployments": slides about RoCEv2 on 100 Gb/s
//! cards in three configurations (priority flow control without congestion control, with it, and congestion control alone), and
//! TCP. Most of its charts are pictures without numbers; its fabric and congestion control are described in words only. Here:
//!
//! - The fabric: 32 hosts, 4 leaves, 4 spines, all cables 100 Gb/s ("multi-layer switch network", "cross path between
//!   switches"). Switches take 0.3 us, within the 0.2 to 0.5 of the slides, and the cards of both ends together 1.1: 1.1 us back to back.
//! - Their memory: Broadcom's Tomahawk with 32 ports of 100 Gb/s as SONiC sets it (sonic-buildimage, Arista-7060CX-32S, buffers_defaults_t0.j2):
//!   11.2 MB, of which queues that may drop get 8 times what is free. A port's share before it is paused is 1/8 of what is free,
//!   as HPCC's authors have it (mix/config.txt); SONiC has 1, which makes pauses without congestion control longer.
//! - Congestion control: "deterministic marking (DCTCP style)", a "low marking threshold": all are marked from 50 KB on. The
//!   reaction point has the constants of DCQCN's paper, which do best here of the three sets there are: ConnectX's and those of HPCC's
//!   authors cut deeper, and take longer to come back.
//! - TCP is the kernel's: 10 us of software in each packet's way. MPI ranks of one host talk through its memory.

mod all_to_all;
mod gpcnet;
mod hpcg;
mod lammps;
mod latency;
mod live_lock;

pub(super) use all_to_all::{BLOCKING, NON_BLOCKING};
pub(super) use gpcnet::GPCNET;
pub(super) use hpcg::HPCG;
pub(super) use lammps::{EAM, LJ};
pub(super) use latency::LATENCY;
pub(super) use live_lock::LIVE_LOCK;

use super::lab::{Lab, Run};
use crate::hosts::OnNode;
use srd_chart::plain;

const SOURCE: &str =
    "Shah and Voloshin (Broadcom), \"Congestion Control for Large Scale RoCEv2 Deployments\"";

const FABRIC: &str = r#"
[fabric]
kind = "leaf-spine"
leaves = 4
spines = 4
hosts_per_leaf = 8
cable_us = 0.02
switch_latency_us = 0.3

[queues]
shared = "11.2MB"
shared_alpha = 8
capacity = "9.5MB"

[host]
latency_us = 1.1

[transport]
kind = "srd"
"#;

/// A transport, and what the fabric does for it.
#[derive(Clone, Copy, Debug)]
struct Configuration {
    name: &'static str,
    sets: &'static [&'static str],
}

const CC_ONLY: Configuration = Configuration {
    name: "RoCE, CC only",
    sets: &["transport.kind=roce", "transport.preset=paper", "queues.ecn_min=50KB"],
};
const CC_AND_PFC: Configuration = Configuration {
    name: "RoCE, CC and PFC",
    sets: &["transport.kind=roce", "transport.preset=paper", "queues.ecn_min=50KB", "queues.lossless=[0]"],
};
const PFC_ONLY: Configuration =
    Configuration { name: "RoCE, PFC only", sets: &["transport.kind=roce", "queues.lossless=[0]"] };
const TCP: Configuration =
    Configuration { name: "TCP (CUBIC)", sets: &["transport.kind=tcp", "transport.stack_us=10"] };
/// Marks from 100 KB on, and the least timeout of 10 ms in place of 200 that its authors took for incasts (SIGCOMM'10, section
/// 4.2).
const DCTCP: Configuration = Configuration {
    name: "TCP (DCTCP)",
    sets: &[
        "transport.kind=tcp",
        "transport.congestion=dctcp",
        "transport.min_rto_us=10000",
        "transport.stack_us=10",
        "queues.ecn_min=100KB",
    ],
};
/// TCP in the card.
const IWARP: Configuration = Configuration { name: "iWARP", sets: &["transport.kind=iwarp"] };
/// Marks as its authors have them. The memory of all queues does better here than one bandwidth-delay product of it with packets
/// that are cut: 80 connections into one port, each with a packet under way, do not fit into that.
const NSCC: Configuration = Configuration {
    name: "NSCC",
    sets: &["transport.kind=nscc", BASE_RTT, PACKETS, "queues.ecn_min=0.2bdp", "queues.ecn_max=0.8bdp"],
};
/// The same for programs whose messages wait for each other: packets without data first, marks by what a packet leaves behind, and
/// one bandwidth-delay product for each port with what is beyond cut, as its authors have it (of these, of no cutting and of the
/// memory of all queues this is the quickest from 32 KiB on).
const NSCC_CUT: Configuration = Configuration {
    name: "NSCC, cut packets",
    sets: &[
        "transport.kind=nscc",
        BASE_RTT,
        PACKETS,
        "transport.class=1",
        "transport.control_class=0",
        "queues.classes=strict",
        "queues.ecn_min=0.2bdp",
        "queues.ecn_max=0.8bdp",
        "queues.ecn_at=leaving",
        "queues.trim=true",
        "queues.capacity=1bdp",
    ],
};
/// The same where nothing is cut.
const NSCC_DROPS: Configuration = Configuration {
    name: "NSCC",
    sets: &[
        "transport.kind=nscc",
        BASE_RTT,
        PACKETS,
        "transport.class=1",
        "transport.control_class=0",
        "queues.classes=strict",
        "queues.ecn_min=0.2bdp",
        "queues.ecn_max=0.8bdp",
        "queues.ecn_at=leaving",
    ],
};
const SRD: Configuration = Configuration { name: "SRD", sets: &[BASE_RTT, PACKETS] };
/// 4.9 us of the fabric, and the cards' time there and back: what these two would measure.
const BASE_RTT: &str = "transport.base_rtt_us=7.1";
/// As large as RoCE's largest: where switches take a packet in before they send it on, those of 9000 bytes take longer.
const PACKETS: &str = "transport.mtu=4200";

/// Those of the slides, and others. Applications that mostly compute need no second TCP.
const SLIDES: [Configuration; 7] = [CC_ONLY, CC_AND_PFC, PFC_ONLY, TCP, IWARP, NSCC_CUT, SRD];

fn sets(configuration: Configuration, more: &[String]) -> Vec<String> {
    configuration.sets.iter().map(|set| set.to_string()).chain(more.iter().cloned()).collect()
}

/// Runs what `text` has besides the fabric, with overrides.
fn run(lab: &mut Lab<'_>, text: &str, configuration: Configuration, more: &[String]) -> Option<Run> {
    let mut scenario = Lab::scenario(&format!("{FABRIC}{text}"), &sets(configuration, more));
    scenario.settings.hosts.intra_node = Some(OnNode::default());
    lab.run(&scenario)
}

/// Names and values, one behind the other.
fn list(of: impl IntoIterator<Item = (String, f64)>) -> String {
    let words: Vec<String> =
        of.into_iter().map(|(name, value)| format!("{name}: {}", plain(value))).collect();
    words.join(", ")
}
