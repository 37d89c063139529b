//! Counters of a running instance, as a value and as a file. They are read where they are shown (`srd top`), maybe by another release:
//! what is missing is nothing, and what is new is passed over.

use crate::beside::Locked;
use crate::core::{Core, CoreCounters};
use crate::log;
use crate::progress::poll_activity::ProgressCounters;
use crate::receive::ReceiveCounters;
use crate::transmit::TransmitCounters;
use serde::{Deserialize, Deserializer, Serialize};
use srd_device::HostPayload;
use srd_proto::{Endpoint, PathReport, PathState, PeerReport};
use srd_wire::InstanceAddr;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Counters, by name.
pub type Counters = BTreeMap<Cow<'static, str>, u64>;

/// All counters of an instance. Counters only grow, from the opening of the instance on. Those that nobody asks for by name are not read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// The process.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// Nanoseconds since the process began to count time.
    pub time_ns: u64,
    /// Where it receives.
    pub address: String,
    /// All UDP ports on which it receives.
    pub ports: Vec<u16>,
    /// The port of endpoints 0 to 127; that of the next 128 is the next, and so on.
    pub port_base: u16,
    /// Its interface.
    pub interface: String,
    /// MTU of the path, IP header included.
    pub mtu: u16,
    /// Whether packets are encrypted and authenticated.
    pub sealed: bool,
    /// Whether many datagrams go in one call.
    pub gso: bool,
    /// By what short packets travel.
    pub short_packets_by: String,
    /// Source ports.
    pub source_ports: usize,
    /// The device's counters, under the names of EFA's driver.
    pub device: Counters,
    /// The transport's.
    pub transport: Counters,
    /// From the transport to the sockets.
    #[serde(skip_deserializing)]
    pub transmit: TransmitCounters,
    /// From the sockets to the transport.
    #[serde(skip_deserializing)]
    pub receive: ReceiveCounters,
    /// Rounds of moving packets.
    #[serde(skip_deserializing)]
    pub rounds: CoreCounters,
    /// What the thread did.
    #[serde(skip_deserializing)]
    pub progress: ProgressCounters,
    /// What each source port has carried.
    pub paths: Vec<PathStats>,
    /// How many peers there are.
    pub peer_count: usize,
    /// The peers with the most bytes sent, received, waiting or in flight, at most 256.
    pub peers: Vec<PeerStats>,
    /// The messaging layers above, if there are any; last those that have gone, in sum.
    pub layers: Vec<LayerStats>,
}

/// Counters with names of their own.
pub fn named(counters: impl IntoIterator<Item = (&'static str, u64)>) -> Counters {
    counters.into_iter().map(|(name, count)| (name.into(), count)).collect()
}

/// Of what a peer has, the numbers that no field is for.
fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<Counters, D::Error> {
    let all = BTreeMap::<String, serde_json::Value>::deserialize(from)?;
    Ok(all.into_iter().filter_map(|(name, value)| Some((name.into(), value.as_u64()?))).collect())
}

/// What is known of a peer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerStats {
    /// Its address.
    pub address: String,
    /// Whether it has answered.
    pub answered: bool,
    /// Whether it counts as dead: it has been silent for too long while something was outstanding.
    pub silent: bool,
    /// Smoothed round trip in microseconds; 0 before the first sample.
    pub rtt_us: f64,
    /// Smallest round trip of late in microseconds; 0 before the first sample.
    pub least_rtt_us: f64,
    /// Bytes in flight.
    pub inflight_bytes: u64,
    /// Bytes that wait to be sent for the first time.
    pub queued_bytes: u64,
    /// Bytes that may be in flight.
    pub window_bytes: u64,
    /// What has gone to it and come from it: the counters of the context.
    #[serde(flatten, deserialize_with = "numbers")]
    pub counters: Counters,
    /// Paths to it; 0 before anything was sent.
    pub paths: u32,
    /// Of them, those that are out of use at present.
    pub paths_down: u32,
    /// Of them, how many are in each state.
    pub path_states: PathStates,
    /// Each of them, if this is one of the [`MOST_LISTED_PATHS`] peers with the most traffic.
    pub path_list: Vec<PeerPathStats>,
}

/// How many paths are in each state (`PathState` of srd-proto).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PathStates {
    /// In use.
    pub active: u32,
    /// A packet was not answered in time; asked at once.
    pub suspect: u32,
    /// Nor was the question.
    pub down: u32,
    /// Asked whether they work again.
    pub probing: u32,
}

impl PathStates {
    fn count(&mut self, state: PathState) {
        let count = match state {
            PathState::Active => &mut self.active,
            PathState::Suspect => &mut self.suspect,
            PathState::Down => &mut self.down,
            PathState::Probing => &mut self.probing,
        };
        *count += 1;
    }
}

/// One path to a peer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerPathStats {
    /// Its slot.
    pub path: u8,
    /// UDP source port that the slot names now; 0 if that is not known.
    pub source_port: u16,
    /// `active`, `suspect`, `down` or `probing`.
    pub state: Cow<'static, str>,
    /// Smoothed round trip in microseconds; 0 before the first sample.
    pub rtt_us: f64,
    /// Payload bytes sent on it.
    pub tx_bytes: u64,
}

/// What a messaging layer above the instance tells of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LayerStats {
    /// Its counters.
    pub counters: Counters,
    /// Peers that are processes of this host, at most [`MOST_PEERS`].
    pub local_peers: Vec<LocalPeerStats>,
}

/// What is known of a peer that is a process of this host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalPeerStats {
    /// Number of the endpoint here.
    pub endpoint: u16,
    /// The peer as libfabric's programs name it: its address, and for port the number of its endpoint.
    pub address: String,
    /// Whether messages to it go through shared memory.
    pub shared_memory: bool,
    /// Whether long messages from it are copied out of its memory, in one go.
    pub copies: bool,
    /// Why messages to it go over the network, if they do.
    pub reason: Option<String>,
    /// Messages sent to it through shared memory.
    pub tx_msgs: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Bytes of messages received from it through shared memory.
    pub rx_bytes: u64,
    /// Bytes copied out of its memory.
    pub copied_bytes: u64,
}

/// What a layer above has to say, asked with the device locked: it must not call the instance. `None`: it has gone.
pub(crate) type Reporter = Box<dyn Fn(&mut Locked<'_>) -> Option<LayerStats> + Send>;

/// What one source port has carried, over all peers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PathStats {
    /// Number of the source port in the pool.
    pub path: u16,
    /// Its UDP port.
    pub source_port: u16,
    /// Payload bytes sent.
    pub tx_bytes: u64,
    /// Peers whose path over this port is out of use at present.
    pub down: u32,
}

/// Most peers that are listed. The device is locked while they are collected.
pub const MOST_PEERS: usize = 256;

/// Most peers of which each path is listed.
pub const MOST_LISTED_PATHS: usize = 4;

/// What each source port has carried, where peers have paths over it.
struct Ports<'a> {
    numbers: &'a [u16],
    used: Vec<Option<PathStats>>,
}

impl Ports<'_> {
    fn number(&self, report: &PathReport) -> u16 {
        self.numbers.get(report.entropy as usize).copied().unwrap_or(0)
    }

    fn add(&mut self, report: &PathReport) {
        let source_port = self.number(report);
        let Some(port) = self.used.get_mut(report.entropy as usize) else { return };
        let port =
            port.get_or_insert(PathStats { path: report.entropy, source_port, ..PathStats::default() });
        port.tx_bytes += report.bytes;
        port.down += (report.state != PathState::Active) as u32;
    }
}

fn peer_stats(
    peer: &PeerReport,
    endpoint: &Endpoint<HostPayload>,
    ports: &mut Ports<'_>,
    lists_paths: bool,
) -> PeerStats {
    let (mut paths, mut paths_down) = (0, 0);
    let (mut path_states, mut path_list) = (PathStates::default(), Vec::new());
    for report in endpoint.paths(peer.id) {
        paths += 1;
        paths_down += (report.state != PathState::Active) as u32;
        path_states.count(report.state);
        ports.add(&report);
        if lists_paths {
            path_list.push(PeerPathStats {
                path: report.path.0,
                source_port: ports.number(&report),
                state: report.state.name().into(),
                rtt_us: report.rtt.0 as f64 / 1e3,
                tx_bytes: report.bytes,
            });
        }
    }
    PeerStats {
        address: peer.addr.to_string(),
        answered: peer.answered,
        silent: peer.silent,
        rtt_us: peer.rtt.0 as f64 / 1e3,
        least_rtt_us: peer.least_rtt.0 as f64 / 1e3,
        inflight_bytes: peer.inflight_bytes,
        queued_bytes: peer.queued_bytes,
        window_bytes: peer.window_bytes,
        counters: named(peer.counters.iter()),
        paths,
        paths_down,
        path_states,
        path_list,
    }
}

impl PeerStats {
    /// A counter of the context.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

impl Stats {
    /// A counter of the device.
    pub fn device_counter(&self, name: &str) -> u64 {
        self.device.get(name).copied().unwrap_or(0)
    }

    /// A counter of the transport.
    pub fn transport_counter(&self, name: &str) -> u64 {
        self.transport.get(name).copied().unwrap_or(0)
    }

    /// Peers that are processes of this host.
    pub fn local_peers(&self) -> impl Iterator<Item = &LocalPeerStats> {
        self.layers.iter().flat_map(|layer| &layer.local_peers)
    }

    pub(crate) fn collect(
        core: &mut Core,
        address: InstanceAddr,
        interface: &str,
        mtu: u16,
        sealed: bool,
        progress: ProgressCounters,
    ) -> Stats {
        let endpoint = core.device.endpoint();
        let mut peers: Vec<_> = endpoint.peers().collect();
        let carried = |peer: &PeerReport| {
            peer.counters.tx_bytes + peer.counters.rx_bytes + peer.inflight_bytes + peer.queued_bytes
        };
        peers.sort_by_key(|peer| Reverse(carried(peer)));
        let numbers = core.transmitter.source_port_numbers();
        let mut ports = Ports { numbers, used: vec![None; numbers.len()] };
        let (peer_count, listed) = (peers.len(), peers.iter().take(MOST_PEERS).enumerate());
        let peers = listed
            .map(|(rank, peer)| peer_stats(peer, endpoint, &mut ports, rank < MOST_LISTED_PATHS))
            .collect();
        Stats {
            pid: std::process::id(),
            program: std::fs::read_to_string("/proc/self/comm").unwrap_or_default().trim().to_owned(),
            time_ns: crate::clock::now().0,
            address: address.to_string(),
            ports: core.receiver.ports().collect(),
            port_base: core.device.config().port_base,
            interface: interface.to_owned(),
            mtu,
            sealed,
            gso: core.transmitter.has_gso(),
            short_packets_by: core.receiver.short_packets_by(),
            source_ports: core.transmitter.source_ports(),
            device: named(core.device.counters().iter()),
            transport: named(endpoint.stats().iter()),
            transmit: core.transmitter.counters(),
            receive: core.receiver.counters(),
            rounds: core.counters,
            progress,
            paths: ports.used.into_iter().flatten().collect(),
            peer_count,
            peers,
            layers: Vec::new(),
        }
    }

    /// Writes the file whole or not at all.
    pub(crate) fn write(&self, file: &Path) {
        if let Err(e) = self.try_write(file) {
            log::warn_once(format_args!("cannot write counters to {} (SRD_STATS): {e}", file.display()));
        }
    }

    fn try_write(&self, file: &Path) -> io::Result<()> {
        // To take the place of a device (/dev/null) would take it from everybody.
        if std::fs::metadata(file).is_ok_and(|is| !is.is_file()) {
            return Err(io::Error::other("it is no regular file; name one, or none yet"));
        }
        let mut json = serde_json::to_vec_pretty(self)?;
        json.push(b'\n');
        let mut temporary = file.as_os_str().to_owned();
        // Two instances may write at once.
        static WRITTEN: AtomicU32 = AtomicU32::new(0);
        temporary.push(format!(".{}.{}.tmp", self.pid, WRITTEN.fetch_add(1, Ordering::Relaxed)));
        // Anybody can guess that name, and may have put a link there, where the directory is everybody's (/tmp).
        let _ = std::fs::remove_file(&temporary);
        std::fs::File::create_new(&temporary)?.write_all(&json)?;
        std::fs::rename(&temporary, file)
    }
}

/// The name of an instance's file: `%p` stands for the process's number. Instances from 1 on have theirs before the extension.
pub(crate) fn file_name(pattern: &Path, instance: u16) -> PathBuf {
    let file = match pattern.to_str() {
        Some(text) if text.contains("%p") => text.replace("%p", &std::process::id().to_string()).into(),
        _ => pattern.to_owned(),
    };
    match (instance, file.extension().and_then(OsStr::to_str)) {
        (0, _) => file,
        (_, Some(extension)) => file.with_extension(format!("{instance}.{extension}")),
        (_, None) => file.with_extension(instance.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instance_of_a_process_has_a_file() {
        let pid = std::process::id();
        let name = |pattern: &str, instance| file_name(Path::new(pattern), instance).display().to_string();
        assert_eq!(name("/tmp/srd.%p.json", 0), format!("/tmp/srd.{pid}.json"));
        assert_eq!(name("/tmp/srd.%p.json", 2), format!("/tmp/srd.{pid}.2.json"));
        assert_eq!(
            (name("a/counters", 0), name("a/counters", 1)),
            ("a/counters".into(), "a/counters.1".into())
        );
    }

    #[test]
    fn counters_take_the_place_of_a_file_and_of_nothing_else() {
        let directory = std::env::temp_dir().join(format!("srd-stats-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (file, link) = (directory.join("file"), directory.join("link"));
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for _ in 0..2 {
            Stats::default().try_write(&file).unwrap();
        }
        assert!(std::fs::read_to_string(&file).unwrap().ends_with("}\n"));
        for other in [&link, &directory] {
            let refused = Stats::default().try_write(other).unwrap_err().to_string();
            assert!(refused.contains("no regular file"), "{refused}");
        }
        assert!(link.is_symlink());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
