//! Counters of a running instance, as a value and as a file.

use crate::core::{Core, CoreCounters};
use crate::instance::Shared;
use crate::log;
use crate::progress::ProgressCounters;
use crate::receive::ReceiveCounters;
use crate::sys::process;
use crate::transmit::TransmitCounters;
use serde::Serialize;
use srd_proto::PathState;
use srd_wire::InstanceAddr;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// All counters of an instance. Counters only grow, from the opening of the instance on.
#[derive(Clone, Debug, Serialize)]
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
    /// Its interface.
    pub interface: String,
    /// MTU of the path, IP header included.
    pub mtu: u16,
    /// Whether packets are encrypted and authenticated.
    pub sealed: bool,
    /// Whether many datagrams go in one call.
    pub gso: bool,
    /// Source ports.
    pub source_ports: usize,
    /// The device's counters, under the names of EFA's driver.
    pub device: BTreeMap<&'static str, u64>,
    /// The transport's.
    pub transport: BTreeMap<&'static str, u64>,
    /// From the transport to the sockets.
    pub transmit: TransmitCounters,
    /// From the sockets to the transport.
    pub receive: ReceiveCounters,
    /// Rounds of moving packets.
    pub rounds: CoreCounters,
    /// What the thread did.
    pub progress: ProgressCounters,
    /// What each source port has carried.
    pub paths: Vec<PathStats>,
    /// The peers with the most traffic waiting or in flight, at most 256.
    pub peers: Vec<PeerStats>,
}

/// What is known of a peer.
#[derive(Clone, Debug, Serialize)]
pub struct PeerStats {
    /// Its address.
    pub address: String,
    /// Whether it has answered.
    pub answered: bool,
    /// Smoothed round trip in microseconds; 0 before the first sample.
    pub rtt_us: f64,
    /// Bytes in flight.
    pub inflight_bytes: u64,
    /// Bytes that wait to be sent for the first time.
    pub queued_bytes: u64,
    /// Bytes that may be in flight.
    pub window_bytes: u64,
}

/// What one source port has carried, over all peers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PathStats {
    /// Number of the source port in the pool.
    pub path: u16,
    /// Payload bytes sent.
    pub tx_bytes: u64,
    /// Peers whose path over this port is out of use at present.
    pub down: u32,
}

const MOST_PEERS: usize = 256;

fn paths(core: &Core) -> Vec<PathStats> {
    let endpoint = core.device.endpoint();
    let mut ports: BTreeMap<u16, PathStats> = BTreeMap::new();
    for report in endpoint.peers().take(MOST_PEERS).flat_map(|peer| endpoint.paths(peer.id)) {
        let port = ports.entry(report.entropy).or_default();
        port.path = report.entropy;
        port.tx_bytes += report.bytes;
        port.down += (report.state != PathState::Active) as u32;
    }
    ports.into_values().collect()
}

impl Stats {
    pub(crate) fn collect(
        core: &Core,
        address: InstanceAddr,
        interface: &str,
        mtu: u16,
        sealed: bool,
        progress: ProgressCounters,
    ) -> Stats {
        let endpoint = core.device.endpoint();
        let mut peers: Vec<_> = endpoint.peers().collect();
        peers.sort_by_key(|peer| std::cmp::Reverse(peer.inflight_bytes + peer.queued_bytes));
        Stats {
            pid: std::process::id(),
            program: std::fs::read_to_string("/proc/self/comm").unwrap_or_default().trim().to_owned(),
            time_ns: crate::clock::now().0,
            address: address.to_string(),
            ports: core.receiver.ports().collect(),
            interface: interface.to_owned(),
            mtu,
            sealed,
            gso: core.transmitter.has_gso(),
            source_ports: core.transmitter.source_ports(),
            device: core.device.counters().iter().collect(),
            transport: endpoint.stats().iter().collect(),
            transmit: core.transmitter.counters(),
            receive: core.receiver.counters(),
            rounds: core.counters,
            progress,
            paths: paths(core),
            peers: peers
                .into_iter()
                .take(MOST_PEERS)
                .map(|peer| PeerStats {
                    address: peer.addr.to_string(),
                    answered: peer.answered,
                    rtt_us: peer.rtt.0 as f64 / 1e3,
                    inflight_bytes: peer.inflight_bytes,
                    queued_bytes: peer.queued_bytes,
                    window_bytes: peer.window_bytes,
                })
                .collect(),
        }
    }

    /// Writes the file whole or not at all.
    pub(crate) fn write(&self, file: &Path) {
        let result = serde_json::to_vec_pretty(self).map_err(std::io::Error::other).and_then(|mut json| {
            json.push(b'\n');
            let mut temporary = file.as_os_str().to_owned();
            temporary.push(format!(".{}.tmp", self.pid));
            std::fs::write(&temporary, json)?;
            std::fs::rename(&temporary, file)
        });
        if let Err(e) = result {
            log::warn_once(format_args!("cannot write counters to {} (SRD_STATS): {e}", file.display()));
        }
    }
}

/// The name of the file: `%p` stands for the process's number.
pub(crate) fn file_name(pattern: &Path) -> PathBuf {
    match pattern.to_str() {
        Some(text) if text.contains("%p") => text.replace("%p", &std::process::id().to_string()).into(),
        _ => pattern.to_owned(),
    }
}

/// The instances that are to end in order when the process exits without having closed them.
static AT_EXIT: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

pub(crate) fn register_for_exit(shared: &Arc<Shared>) {
    static HOOKED: std::sync::Once = std::sync::Once::new();
    HOOKED.call_once(|| {
        process::at_exit(finish_all);
    });
    let mut list = AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner);
    list.retain(|shared| shared.strong_count() > 0);
    list.push(Arc::downgrade(shared));
}

extern "C" fn finish_all() {
    let Ok(list) = AT_EXIT.try_lock() else { return };
    for shared in list.iter().filter_map(Weak::upgrade).filter(|shared| shared.canary.alive()) {
        // Whoever called exit() inside the device has the lock for ever: that must not keep the process from ending.
        for _ in 0..100 {
            if shared.core.try_lock().is_some() {
                shared.finish();
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
