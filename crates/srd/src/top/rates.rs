//! What two samples say together: how each process, peer and path fares now.

use super::sample::{Sample, Silent, Told};
use serde::Serialize;
use serde_json::value::RawValue;
use srd_device::QPS_PER_PORT;
use srd_net::{LocalPeerStats, PathStates, PathStats, PeerPathStats, PeerStats, Stats};
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;

/// All processes, at the end of an interval.
#[derive(Clone, Default, Serialize, Debug)]
pub struct Overview {
    /// Those that have answered; a process has one entry for each of its instances.
    pub processes: Vec<Process>,
    /// Those that have not.
    pub silent: Vec<Silent>,
}

/// An instance.
#[derive(Clone, Default, Serialize, Debug)]
pub struct Process {
    /// Its process, by its number here.
    pub pid: u32,
    /// The program.
    pub program: String,
    /// Where it receives.
    pub address: String,
    /// Numbers of its endpoints that have peers on this host.
    pub endpoints: Vec<u16>,
    /// Its interface.
    pub interface: String,
    /// MTU of the path.
    pub mtu: u16,
    /// Whether packets are encrypted and authenticated.
    pub sealed: bool,
    /// Since the sample before; none if it was not there then.
    pub rates: Option<Rates>,
    /// Peers over the network.
    pub peer_count: usize,
    /// Peers through shared memory.
    pub shared_memory_peers: usize,
    /// Peers, those with the most traffic first.
    pub peers: Vec<PeerRow>,
    /// Source ports, by number.
    pub paths: Vec<PathRow>,
    /// What is retransmitted, by cause.
    pub causes: Vec<CauseRow>,
    /// All that it has told.
    pub stats: Option<Box<RawValue>>,
}

/// How much a process moves.
#[derive(Clone, Copy, PartialEq, Default, Serialize, Debug)]
pub struct Rates {
    /// Time between the samples.
    pub interval_s: f64,
    /// Payload sent over the network, retransmissions included.
    pub tx_gbps: f64,
    /// Payload received.
    pub rx_gbps: f64,
    /// Packets sent.
    pub tx_packets_per_s: f64,
    /// Packets received.
    pub rx_packets_per_s: f64,
    /// Data packets retransmitted.
    pub retransmissions_per_s: f64,
    /// Their share of all packets sent.
    pub retransmission_share: f64,
    /// Bytes sent and received through shared memory, and copied out of the memory of others.
    pub shared_memory_gbps: f64,
    /// Completions made, send and receive, well or not.
    pub completions_per_s: f64,
    /// Operations that completed with an error.
    pub failures_per_s: f64,
}

/// Why packets are retransmitted, and how many; of those, also which need not have been.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct CauseRow {
    /// The rule that found them lost, as in traces; `silence`: to draw an answer; `spurious`: for nothing, whatever the rule.
    pub cause: &'static str,
    /// Of late.
    pub per_s: Option<f64>,
    /// Since the beginning.
    pub packets: u64,
}

/// Causes, their counters, and what of these counts elsewhere.
const CAUSES: [(&str, &str, Option<&str>); 7] = [
    ("path_order", "lost_by_path_order", None),
    ("reordering", "lost_by_rack", None),
    ("cut", "lost_by_cut", None),
    ("timer", "lost_by_timer", None),
    ("path_down", "lost_by_path_down", None),
    // Expired timers whose packet was not lost by the timer: nothing was answered.
    ("silence", "retrans_timeout_events", Some("lost_by_timer")),
    ("spurious", "spurious_retrans", None),
];

/// How messages to a peer go.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Debug)]
pub enum Over {
    /// In packets.
    #[default]
    #[serde(rename = "network")]
    Network,
    /// Without.
    #[serde(rename = "shared memory")]
    SharedMemory,
}

/// Whether a peer answers.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum PeerState {
    /// It does.
    Answered,
    /// It never has.
    New,
    /// It does not any more.
    Silent,
}

/// A peer: an instance over the network, or an endpoint through shared memory.
#[derive(Clone, Default, Serialize, Debug)]
pub struct PeerRow {
    /// An instance's address and port; or an endpoint's address and number.
    pub address: String,
    /// How messages to it go.
    pub over: Over,
    /// What else is to be said of that.
    pub note: Option<String>,
    /// Of the network alone, as what follows.
    pub state: Option<PeerState>,
    /// Smoothed round trip, once there was one.
    pub rtt_us: Option<f64>,
    /// Smallest round trip of late.
    pub least_rtt_us: Option<f64>,
    /// Bytes that may be in flight.
    pub window_bytes: Option<u64>,
    /// Bytes in flight.
    pub inflight_bytes: Option<u64>,
    /// Bytes that wait to be sent.
    pub queued_bytes: Option<u64>,
    /// Paths to it.
    pub paths: Option<u32>,
    /// Of them, those out of use.
    pub paths_down: Option<u32>,
    /// Of them, how many are in each state.
    pub path_states: Option<PathStates>,
    /// Each of them, for the peers with the most traffic.
    pub path_list: Vec<PeerPathRow>,
    /// Bytes sent to it per second.
    pub tx_gbps: Option<f64>,
    /// Bytes received from it, or copied out of its memory, per second.
    pub rx_gbps: Option<f64>,
    /// Data packets retransmitted.
    pub retransmissions_per_s: Option<f64>,
    /// Their share of all packets sent to it.
    pub retransmission_share: Option<f64>,
}

/// A path to a peer.
#[derive(Clone, Default, Serialize, Debug)]
pub struct PeerPathRow {
    /// Its slot.
    pub path: u8,
    /// The UDP source port that it names.
    pub source_port: u16,
    /// How it is.
    pub state: Cow<'static, str>,
    /// Smoothed round trip, once there was one.
    pub rtt_us: Option<f64>,
    /// Payload sent on it.
    pub tx_gbps: Option<f64>,
    /// The same since the beginning, in bytes.
    pub tx_bytes: u64,
}

impl PeerPathRow {
    /// Whether data goes over it.
    pub fn is_active(&self) -> bool {
        self.state == "active"
    }
}

/// A source port.
#[derive(Clone, Copy, Default, Serialize, Debug)]
pub struct PathRow {
    /// Its number in the pool.
    pub path: u16,
    /// Its UDP port.
    pub source_port: u16,
    /// Payload sent over it.
    pub tx_gbps: Option<f64>,
    /// The same since the beginning, in bytes.
    pub tx_bytes: u64,
    /// Peers that cannot be reached over it at present.
    pub down: u32,
}

/// A span of time, and how much counters have grown in it. (They grow; less than before means that it is another's.)
#[derive(Clone, Copy)]
struct Span(f64);

impl Span {
    fn between(before: &Stats, now: &Stats) -> Option<Span> {
        let ns = now.time_ns.checked_sub(before.time_ns).filter(|&ns| ns > 0)?;
        Some(Span(ns as f64 / 1e9))
    }

    fn per_second(self, before: u64, now: u64) -> f64 {
        now.saturating_sub(before) as f64 / self.0
    }

    fn gbps(self, before: u64, now: u64) -> f64 {
        8.0 * self.per_second(before, now) / 1e9
    }
}

/// Bytes that have come from a process of this host without the network.
fn received(peer: &LocalPeerStats) -> u64 {
    peer.rx_bytes + peer.copied_bytes
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Compares two samples.
pub fn compare(before: &Sample, now: &Sample) -> Overview {
    let known: HashMap<_, _> = before.instances.iter().map(|told| (&told.socket, &told.stats)).collect();
    let processes = now.instances.iter().map(|told| {
        let before = known.get(&told.socket).copied().filter(|before| before.pid == told.stats.pid);
        process(before, told)
    });
    Overview { processes: processes.collect(), silent: now.silent.clone() }
}

fn process(before: Option<&Stats>, told: &Told) -> Process {
    let Told { pid, stats: now, answer, .. } = told;
    let nothing = Stats::default();
    let span = before.and_then(|before| Span::between(before, now));
    let before = before.unwrap_or(&nothing);
    let mut endpoints: Vec<u16> = now.local_peers().map(|peer| peer.endpoint).collect();
    endpoints.sort_unstable();
    endpoints.dedup();
    Process {
        pid: *pid,
        endpoints,
        rates: span.map(|span| rates(span, before, now)),
        peer_count: now.peer_count,
        shared_memory_peers: now.local_peers().filter(|peer| peer.shared_memory).count(),
        peers: peers(span, before, now),
        paths: now.paths.iter().map(|path| path_row(span, before, path)).collect(),
        causes: causes(span, before, now),
        program: now.program.clone(),
        address: now.address.clone(),
        interface: now.interface.clone(),
        mtu: now.mtu,
        sealed: now.sealed,
        stats: Some(answer.clone()),
    }
}

fn rates(span: Span, before: &Stats, now: &Stats) -> Rates {
    let grown = |name| now.transport_counter(name).saturating_sub(before.transport_counter(name));
    let per_second = |name| span.per_second(before.transport_counter(name), now.transport_counter(name));
    let gbps = |name| span.gbps(before.transport_counter(name), now.transport_counter(name));
    let of_device = |name| span.per_second(before.device_counter(name), now.device_counter(name));
    let near =
        |stats: &Stats| -> u64 { stats.local_peers().map(|peer| peer.tx_bytes + received(peer)).sum() };
    Rates {
        interval_s: span.0,
        tx_gbps: gbps("tx_bytes"),
        rx_gbps: gbps("rx_bytes"),
        tx_packets_per_s: per_second("tx_pkts"),
        rx_packets_per_s: per_second("rx_pkts"),
        retransmissions_per_s: per_second("retrans_pkts"),
        retransmission_share: share(grown("retrans_pkts"), grown("tx_pkts")),
        shared_memory_gbps: span.gbps(near(before), near(now)),
        completions_per_s: of_device("completed_wrs"),
        failures_per_s: of_device("send_wr_err"),
    }
}

fn causes(span: Option<Span>, before: &Stats, now: &Stats) -> Vec<CauseRow> {
    let row = |(cause, counter, less): (_, &str, Option<&str>)| {
        let count = |stats: &Stats| {
            stats
                .transport_counter(counter)
                .saturating_sub(less.map_or(0, |less| stats.transport_counter(less)))
        };
        let per_s = span.map(|span| span.per_second(count(before), count(now)));
        CauseRow { cause, per_s, packets: count(now) }
    };
    CAUSES.map(row).to_vec()
}

fn peer_path_row(span: Option<Span>, before: &PeerStats, path: &PeerPathStats) -> PeerPathRow {
    let in_place = before.path_list.get(path.path as usize).filter(|known| known.path == path.path);
    let earlier = in_place.or_else(|| before.path_list.iter().find(|known| known.path == path.path));
    PeerPathRow {
        path: path.path,
        source_port: path.source_port,
        state: path.state.clone(),
        rtt_us: (path.rtt_us > 0.0).then_some(path.rtt_us),
        // A peer that had less traffic before was not told of path by path.
        tx_gbps: span.zip(earlier).map(|(span, earlier)| span.gbps(earlier.tx_bytes, path.tx_bytes)),
        tx_bytes: path.tx_bytes,
    }
}

fn path_row(span: Option<Span>, before: &Stats, path: &PathStats) -> PathRow {
    let earlier = before.paths.iter().find(|known| known.path == path.path);
    let earlier = earlier.map_or(0, |known| known.tx_bytes);
    PathRow {
        path: path.path,
        source_port: path.source_port,
        tx_gbps: span.map(|span| span.gbps(earlier, path.tx_bytes)),
        tx_bytes: path.tx_bytes,
        down: path.down,
    }
}

/// All peers: instances, and endpoints of this host that are reached without packets, or that nothing was sent to.
fn peers(span: Option<Span>, before: &Stats, now: &Stats) -> Vec<PeerRow> {
    let mut local: HashMap<String, Vec<&LocalPeerStats>> = HashMap::new();
    for endpoint in now.local_peers() {
        local.entry(instance_of(endpoint, now.port_base)).or_default().push(endpoint);
    }
    let earlier: HashMap<_, _> = before.peers.iter().map(|peer| (&peer.address, peer)).collect();
    let instances = now.peers.iter().map(|peer| {
        let note = local.get(&peer.address).map(|endpoints| note_on_instance(endpoints));
        network_row(span, earlier.get(&peer.address).copied(), peer, note)
    });
    let mut rows: Vec<PeerRow> = instances.collect();
    now.peers.iter().for_each(|peer| {
        if let Some(endpoints) = local.get_mut(&peer.address) {
            endpoints.retain(|endpoint| endpoint.shared_memory);
        }
    });
    let known: HashMap<_, _> =
        before.local_peers().map(|peer| ((peer.endpoint, &peer.address), peer)).collect();
    rows.extend(local.values().flatten().map(|peer| {
        let earlier = known.get(&(peer.endpoint, &peer.address)).copied();
        endpoint_row(span, earlier, peer)
    }));
    let moved = |row: &PeerRow| row.tx_gbps.unwrap_or(0.0) + row.rx_gbps.unwrap_or(0.0);
    rows.sort_by(|a, b| moved(b).total_cmp(&moved(a)).then_with(|| a.address.cmp(&b.address)));
    rows
}

fn network_row(
    span: Option<Span>,
    before: Option<&PeerStats>,
    peer: &PeerStats,
    note: Option<String>,
) -> PeerRow {
    let nothing = PeerStats::default();
    let before = before.unwrap_or(&nothing);
    let grown = |name| peer.counter(name).saturating_sub(before.counter(name));
    let gbps = |name| span.map(|span| span.gbps(before.counter(name), peer.counter(name)));
    let sampled = |us: f64| (us > 0.0).then_some(us);
    PeerRow {
        address: peer.address.clone(),
        over: Over::Network,
        note,
        state: Some(match (peer.silent, peer.answered) {
            (true, _) => PeerState::Silent,
            (false, true) => PeerState::Answered,
            (false, false) => PeerState::New,
        }),
        rtt_us: sampled(peer.rtt_us),
        least_rtt_us: sampled(peer.least_rtt_us),
        window_bytes: Some(peer.window_bytes),
        inflight_bytes: Some(peer.inflight_bytes),
        queued_bytes: Some(peer.queued_bytes),
        paths: Some(peer.paths),
        paths_down: Some(peer.paths_down),
        path_states: Some(peer.path_states),
        path_list: peer.path_list.iter().map(|path| peer_path_row(span, before, path)).collect(),
        tx_gbps: gbps("tx_bytes"),
        rx_gbps: gbps("rx_bytes"),
        retransmissions_per_s: span
            .map(|span| span.per_second(before.counter("retrans_pkts"), peer.counter("retrans_pkts"))),
        retransmission_share: span.map(|_| share(grown("retrans_pkts"), grown("tx_pkts"))),
    }
}

fn endpoint_row(span: Option<Span>, before: Option<&LocalPeerStats>, peer: &LocalPeerStats) -> PeerRow {
    let (sent, come) = before.map_or((0, 0), |before| (before.tx_bytes, received(before)));
    let (over, note) = match (peer.shared_memory, peer.copies) {
        (true, true) => (Over::SharedMemory, None),
        (true, false) => (Over::SharedMemory, Some("long messages go over the network".into())),
        (false, _) => (Over::Network, peer.reason.clone()),
    };
    PeerRow {
        address: peer.address.clone(),
        over,
        note,
        tx_gbps: span.map(|span| span.gbps(sent, peer.tx_bytes)),
        rx_gbps: span.map(|span| span.gbps(come, received(peer))),
        ..PeerRow::default()
    }
}

/// The address of the instance that has an endpoint. An instance's ports have 128 numbers each.
fn instance_of(endpoint: &LocalPeerStats, port_base: u16) -> String {
    let Ok(mut address) = endpoint.address.parse::<SocketAddr>() else { return String::new() };
    address.set_port(port_base.saturating_add(address.port() / QPS_PER_PORT));
    address.to_string()
}

/// Why an instance of this host is reached over the network, though endpoints of it are known to be on this host.
fn note_on_instance(endpoints: &[&LocalPeerStats]) -> String {
    let reason = endpoints.iter().find_map(|peer| peer.reason.clone());
    reason.unwrap_or_else(|| "messages go through shared memory, packets wake it".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn told(answer: Value) -> Told {
        let stats = crate::top::answer::read(&answer.to_string()).unwrap();
        let answer = serde_json::value::to_raw_value(&answer).unwrap();
        Told { socket: "/a".into(), pid: stats.pid, stats, answer }
    }

    fn compared(before: Value, now: Value) -> Process {
        let sample = |answer| Sample { instances: vec![told(answer)], silent: Vec::new() };
        let mut overview = compare(&sample(before), &sample(now));
        overview.processes.remove(0)
    }

    #[test]
    fn rates_are_what_has_grown_in_the_time_that_the_process_says_has_passed() {
        let before = json!({"pid": 7, "time_ns": 1_000_000_000u64, "device": {"completed_wrs": 5}, "transport":
            {"tx_bytes": 1000, "rx_bytes": 0, "tx_pkts": 100, "rx_pkts": 50, "retrans_pkts": 10}});
        let now = json!({"pid": 7, "time_ns": 3_000_000_000u64, "device": {"completed_wrs": 45, "send_wr_err": 1}, "transport":
            {"tx_bytes": 1000 + 250_000_000, "rx_bytes": 500_000_000, "tx_pkts": 300, "rx_pkts": 60, "retrans_pkts": 20}});
        assert_eq!(
            compared(before, now).rates,
            Some(Rates {
                interval_s: 2.0,
                tx_gbps: 1.0,
                rx_gbps: 2.0,
                tx_packets_per_s: 100.0,
                rx_packets_per_s: 5.0,
                retransmissions_per_s: 5.0,
                retransmission_share: 0.05,
                shared_memory_gbps: 0.0,
                completions_per_s: 20.0,
                failures_per_s: 0.5,
            })
        );
    }

    #[test]
    fn a_process_that_was_not_there_before_has_no_rates() {
        let now = json!({"pid": 7, "time_ns": 5, "peers": [{"address": "10.0.0.2:17408", "tx_bytes": 9}]});
        let overview =
            compare(&Sample::default(), &Sample { instances: vec![told(now)], silent: Vec::new() });
        assert_eq!(overview.processes[0].rates, None);
        assert_eq!(overview.processes[0].peers[0].tx_gbps, None);
        // Nor has one that has taken the place of another, whose clock and counters were further.
        let process = compared(json!({"pid": 7, "time_ns": 9}), json!({"pid": 7, "time_ns": 5}));
        assert_eq!(process.rates, None);
        let process = compared(json!({"pid": 6, "time_ns": 1}), json!({"pid": 7, "time_ns": 5}));
        assert_eq!(process.rates, None);
    }

    #[test]
    fn peers_and_paths_have_rates_of_their_own_and_the_busiest_peer_comes_first() {
        let before = json!({"pid": 7, "time_ns": 0, "paths": [{"path": 3, "tx_bytes": 1000}],
            "peers": [{"address": "10.0.0.2:17408", "tx_bytes": 1000, "tx_pkts": 10, "retrans_pkts": 0}]});
        let now = json!({"pid": 7, "time_ns": 1_000_000_000, "paths": [{"path": 3, "tx_bytes": 2000, "down": 1}],
            "peers": [{"address": "10.0.0.3:17408", "answered": true},
                {"address": "10.0.0.2:17408", "answered": true, "silent": true, "rtt_us": 12.5,
                 "tx_bytes": 2000, "tx_pkts": 30, "retrans_pkts": 5}]});
        let process = compared(before, now);
        let [busy, idle] = &process.peers[..] else { panic!("two peers") };
        assert_eq!((busy.address.as_str(), idle.address.as_str()), ("10.0.0.2:17408", "10.0.0.3:17408"));
        assert_eq!((busy.state, idle.state), (Some(PeerState::Silent), Some(PeerState::Answered)));
        assert_eq!((busy.rtt_us, idle.rtt_us), (Some(12.5), None));
        assert_eq!(busy.tx_gbps, Some(8e-6));
        assert_eq!((busy.retransmissions_per_s, busy.retransmission_share), (Some(5.0), Some(0.25)));
        assert_eq!((process.paths[0].tx_gbps, process.paths[0].down), (Some(8e-6), 1));
    }

    #[test]
    fn paths_have_their_state_and_losses_their_cause() {
        let path = |state: &str, bytes: u64| json!({"path": 5, "source_port": 40_000, "state": state, "rtt_us": 0.0, "tx_bytes": bytes});
        let document = |time_ns: u64, state: &str, bytes: u64, lost: u64| {
            json!({"pid": 7, "time_ns": time_ns, "transport": {"lost_by_timer": lost, "retrans_timeout_events": lost + 3},
                "peers": [{"address": "10.0.0.2:17408", "paths": 2, "paths_down": 1,
                    "path_states": {"active": 1, "suspect": 1}, "path_list": [path(state, bytes)]}]})
        };
        let process = compared(document(0, "active", 0, 1), document(2_000_000_000, "suspect", 250, 5));
        let [path] = &process.peers[0].path_list[..] else { panic!("one path") };
        assert_eq!((&*path.state, path.source_port, path.rtt_us), ("suspect", 40_000, None));
        assert_eq!((path.tx_gbps, path.is_active()), (Some(1e-6), false));
        assert_eq!(process.peers[0].path_states.unwrap().suspect, 1);
        let cause = |name| *process.causes.iter().find(|row| row.cause == name).unwrap();
        assert_eq!(cause("timer"), CauseRow { cause: "timer", per_s: Some(2.0), packets: 5 });
        assert_eq!(cause("silence"), CauseRow { cause: "silence", per_s: Some(0.0), packets: 3 });
    }

    #[test]
    fn every_cause_is_a_counter_of_the_transport() {
        let counters = srd_proto::Stats::default();
        for (cause, counter, _) in CAUSES {
            assert!(counters.iter().any(|(name, _)| name == counter), "{cause}");
        }
    }

    #[test]
    fn peers_of_this_host_are_listed_once_with_how_they_are_reached() {
        let local = |address: &str, shared: bool, reason: Option<&str>, bytes: u64| {
            json!({"address": address, "shared_memory": shared, "copies": shared, "reason": reason,
                "tx_bytes": bytes, "copied_bytes": bytes})
        };
        let document = |time_ns: u64, bytes: u64| {
            json!({"pid": 7, "time_ns": time_ns, "port_base": 17408,
                "peers": [{"address": "[fd00::1]:17408"}, {"address": "[fd00::1]:17409"}, {"address": "[fd00::9]:17408"}],
                "layers": [{"local_peers": [
                    local("[fd00::1]:5", true, None, bytes),
                    local("[fd00::1]:130", false, Some("off there"), 0),
                    local("[fd00::1]:300", false, Some("not asked"), 0)]}]})
        };
        let process = compared(document(0, 0), document(1_000_000_000, 125_000_000));
        assert_eq!((process.shared_memory_peers, process.rates.unwrap().shared_memory_gbps), (1, 2.0));
        let rows: Vec<_> =
            process.peers.iter().map(|row| (row.address.as_str(), row.over, row.note.as_deref())).collect();
        let wakes = "messages go through shared memory, packets wake it";
        assert_eq!(
            rows,
            [
                ("[fd00::1]:5", Over::SharedMemory, None),
                ("[fd00::1]:17408", Over::Network, Some(wakes)),
                ("[fd00::1]:17409", Over::Network, Some("off there")),
                ("[fd00::1]:300", Over::Network, Some("not asked")),
                ("[fd00::9]:17408", Over::Network, None),
            ]
        );
        assert_eq!((process.peers[0].tx_gbps, process.peers[0].rx_gbps), (Some(1.0), Some(1.0)));
    }
}
