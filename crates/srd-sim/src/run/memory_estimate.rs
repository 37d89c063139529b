//! What a run will need of memory, before it takes any. The figures are fitted to measurements and good to within a factor
//! of 1.5 for runs of more than 20 MB (`crates/srd/tests/sim/main.rs` holds them to that), which is enough to tell a run that
//! fits from one that brings the machine down.

use crate::apps::Size;
use crate::input::Scenario;
use crate::net::PacketSizes;
use srd_proto::ControllerKind;
use srd_wire::WINDOW_PACKETS;
use std::collections::HashMap;
use std::fs;

// Measured on x86-64 with glibc, as the growth of VmHWM over runs that differ in one thing: k-ary fat trees of 16 to
// 8192 hosts, 1 to 4 processes, 1 to 127 peers each, flows of 1 B to 2 MB, packets of 1.5 to 4.2 KB, 100 and 400 Gb/s.

/// The program, and events of an idle fabric.
const PROGRAM: u64 = 5 << 20;
/// A cable: two ports, topology, routes.
const CABLE: u64 = 500;
/// A pair of switches: an entry of the routing table.
const SWITCH_PAIR: u64 = 4;
const HOST: u64 = 200;
/// A process: its device, queues, tables.
const PROCESS: u64 = 10 << 10;
/// One end of a connection, and what each path of it takes.
const CONNECTION_END: u64 = 6 << 10;
const PATH: u64 = 24;
/// A flow: what is known of it, its trigger, its state.
const FLOW: u64 = 600;
/// A connection that has packets in flight; each of those; each slot of the ring of their records.
const BUSY: u64 = 4 << 10;
const PACKET: u64 = 110;
/// Bandwidth-delay products that transports other than SRD have in flight on a connection, about.
const BASELINE_WINDOW: f64 = 4.0;
const SLOT: u64 = 65;
const FEWER_RANKS: &str = "fewer ranks";
/// Rings begin with so many slots and grow by such factors (`srd-proto`, `sent.rs`).
const FIRST_RING: u64 = 16;
const RING_GROWTH: u64 = 4;

/// What a run needs, part by part.
#[derive(Clone, Default, Debug)]
pub struct MemoryEstimate {
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
struct Part {
    bytes: u64,
    /// Each thread of a run has all of it.
    of_each_thread: bool,
    /// What needs them: `1024 hosts and ...`.
    what: String,
    /// How to need less.
    remedy: &'static str,
}

impl MemoryEstimate {
    /// Of a run of `scenario`.
    pub fn of(scenario: &Scenario) -> MemoryEstimate {
        let Scenario { settings, topology, traffic, .. } = scenario;
        let sizes = PacketSizes::of(settings.transport().mtu, settings.frame_overhead);
        let rtt = settings.transport().base_rtt.unwrap_or_else(|| topology.longest_base_rtt(sizes));
        let rate = settings.transport().line_rate.unwrap_or_else(|| topology.fastest_host());
        let bdp = (rate.0 as f64 / 8.0 * rtt.as_micros() / 1e6).max(1.0);
        let srd = settings.transport().srd();
        let window_bytes = match srd {
            Some(srd) if srd.controller == ControllerKind::Fixed => srd.fixed_window_bytes as f64,
            Some(srd) => bdp * srd.law.max_window.max(srd.law.first_window),
            None => bdp * BASELINE_WINDOW,
        };
        let paths = srd.map_or(0, |srd| srd.paths as u64);
        let packet = settings.transport().mtu as f64;
        let window = ((window_bytes / packet).ceil() as u64).clamp(1, WINDOW_PACKETS as u64);

        // Packets of each connection, one way.
        let mut connections: HashMap<_, u64> = HashMap::new();
        let mut processes = std::collections::HashSet::new();
        for flow in &traffic.flows {
            let packets = match flow.size {
                Size::Bytes(bytes) => (bytes as f64 / packet).ceil() as u64,
                Size::Until(_) => u64::MAX,
            };
            let all = connections.entry((flow.src, flow.dst)).or_insert(0);
            *all = all.saturating_add(packets);
            processes.extend([flow.src, flow.dst]);
        }
        let reverse =
            connections.keys().filter(|(src, dst)| connections.contains_key(&(*dst, *src))).count() as u64;
        let ends = 2 * connections.len() as u64 - reverse;
        let of_packets = |&packets: &u64| match packets.min(window) {
            0 | 1 => 0,
            some => BUSY + some * PACKET + ring(some) * SLOT,
        };
        let in_flight = connections.values().map(of_packets).fold(0, u64::saturating_add);
        let switches = topology.switches.len() as u64;
        let fabric = topology.cables.len() as u64 * CABLE
            + switches * switches * SWITCH_PAIR
            + topology.hosts as u64 * HOST;
        let part = |bytes, what: String, remedy| Part { bytes, of_each_thread: true, what, remedy };
        let parts = vec![
            Part { of_each_thread: false, ..part(PROGRAM, "the program".to_string(), "") },
            part(fabric, format!("{} cables", topology.cables.len()), "a smaller fabric"),
            part(
                processes.len() as u64 * PROCESS,
                format!("{} processes", processes.len()),
                "fewer processes, or fewer hosts that take part",
            ),
            part(
                traffic.programs.len() as u64 * PROCESS,
                format!("{} ranks", traffic.programs.len()),
                FEWER_RANKS,
            ),
            part(
                ends * (CONNECTION_END + paths * PATH),
                format!("{} connections", connections.len()),
                "fewer connections, or fewer `paths`",
            ),
            part(traffic.flows.len() as u64 * FLOW, format!("{} flows", traffic.flows.len()), "fewer flows"),
            Part {
                of_each_thread: false,
                ..part(
                    in_flight,
                    format!("{window} packets in flight on each connection"),
                    "shorter flows, fewer of them, a larger `mtu` or a smaller window",
                )
            },
        ];
        MemoryEstimate { parts }
    }

    /// With so many ranks more, of whose messages nothing is known yet.
    pub fn and_ranks(mut self, ranks: u64) -> MemoryEstimate {
        let (bytes, what) = (ranks * PROCESS, format!("{ranks} ranks"));
        self.parts.push(Part { bytes, of_each_thread: true, what, remedy: FEWER_RANKS });
        self
    }

    /// All parts together.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add)
    }

    /// What each further thread adds.
    pub fn bytes_of_thread(&self) -> u64 {
        let parts = self.parts.iter().filter(|part| part.of_each_thread);
        parts.map(|part| part.bytes).fold(0, u64::saturating_add)
    }

    /// That it needs more than is available, why, and what would help.
    pub fn refusal(&self, available: u64) -> String {
        let mut large: Vec<&Part> = self.parts.iter().filter(|part| part.bytes >= self.bytes() / 5).collect();
        large.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        let why: Vec<String> =
            large.iter().map(|part| format!("{} for {}", shown(part.bytes), part.what)).collect();
        let remedies: Vec<&str> = large.iter().map(|part| part.remedy).collect();
        format!("{}: {}. What helps: {}", self.comparison(available), why.join(", "), remedies.join("; "))
    }

    /// What it needs beside what is available.
    pub fn comparison(&self, available: u64) -> String {
        format!("a run needs about {}, and {} are available", shown(self.bytes()), shown(available))
    }
}

/// Slots of the ring in which so many packets fit.
fn ring(packets: u64) -> u64 {
    let mut slots = FIRST_RING;
    while slots < packets {
        slots *= RING_GROWTH;
    }
    slots.min(WINDOW_PACKETS as u64)
}

/// `52 MB`, `13.4 GB`.
fn shown(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        mb if mb < 1000.0 => format!("{mb:.0} MB"),
        mb => format!("{:.1} GB", mb / 1e3),
    }
}

/// Memory that a program may still take without anything being swapped out: what the system says is available, or what
/// this process's control group leaves where that is less. `None` where neither can be read.
pub fn available_memory() -> Option<u64> {
    [of_system(), of_control_group()].into_iter().flatten().min()
}

/// proc(5), `MemAvailable`.
fn of_system() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// cgroups(7), version 2: the limit less what is taken and cannot be dropped.
fn of_control_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let file = |name: &str| fs::read_to_string(format!("/sys/fs/cgroup{path}/{name}")).ok();
    let limit: u64 = file("memory.max")?.trim().parse().ok()?;
    let stat = file("memory.stat")?;
    let anonymous = stat.lines().find_map(|line| line.strip_prefix("anon "))?.trim().parse().ok()?;
    Some(limit.saturating_sub(anonymous))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn estimate(hosts: u32, size: &str) -> MemoryEstimate {
        let text = format!(
            "[fabric]\nkind = \"one-switch\"\nhosts = {hosts}\n[[workload]]\nkind = \"permutation\"\nsize = \"{size}\"\n"
        );
        MemoryEstimate::of(&Scenario::parse(&text, "a.toml", Path::new(""), &[]).unwrap())
    }

    #[test]
    fn more_hosts_and_more_in_flight_need_more() {
        assert!(estimate(64, "1B").bytes() < estimate(128, "1B").bytes());
        assert!(estimate(64, "1B").bytes() < estimate(64, "2MB").bytes());
        assert_eq!(
            estimate(64, "2MB").bytes(),
            estimate(64, "2GB").bytes(),
            "a window is all that is in flight"
        );
    }

    #[test]
    fn a_further_thread_has_hosts_of_its_own_and_shares_what_is_in_flight() {
        let [short, long] = ["1B", "2MB"].map(|size| estimate(1024, size));
        assert_eq!(short.bytes_of_thread(), long.bytes_of_thread());
        assert!(long.bytes_of_thread() < long.bytes() && long.bytes_of_thread() > 10 << 20);
    }

    #[test]
    fn a_refusal_names_numbers_and_remedies() {
        let text = estimate(1024, "2MB").refusal(10_000_000);
        assert!(text.contains("10 MB are available"), "{text}");
        assert!(text.contains("processes") && text.contains("What helps: "), "{text}");
    }

    #[test]
    fn the_system_tells_what_is_available() {
        assert!(available_memory().unwrap() > 1 << 20);
    }

    #[test]
    fn rings_hold_what_is_in_flight() {
        assert_eq!([1, 16, 17, 128, 129].map(ring), [16, 16, 64, 256, 256]);
        assert!(ring(WINDOW_PACKETS as u64) >= WINDOW_PACKETS as u64);
    }
}
