//! What an instance tells of itself, as far as it is shown (`srd_net::Stats` is all of it). An instance of another release
//! may tell less: what is missing is nothing.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Default, Deserialize, Debug)]
#[serde(default)]
pub struct Document {
    /// The process, by its own number.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// Its clock.
    pub time_ns: u64,
    /// Where it receives.
    pub address: String,
    /// Port of its first 128 endpoints.
    pub port_base: u16,
    /// Its interface.
    pub interface: String,
    /// MTU of the path.
    pub mtu: u16,
    /// Whether packets are encrypted.
    pub sealed: bool,
    /// Counters of the device.
    pub device: BTreeMap<String, u64>,
    /// Counters of the transport.
    pub transport: BTreeMap<String, u64>,
    /// By source port.
    pub paths: Vec<Path>,
    /// All peers.
    pub peer_count: usize,
    /// Those with the most traffic.
    pub peers: Vec<Peer>,
    /// Messaging layers.
    pub layers: Vec<Layer>,
}

/// What a source port has carried.
#[derive(Clone, Default, Deserialize, Debug)]
#[serde(default)]
pub struct Path {
    /// Its number in the pool.
    pub path: u16,
    /// Its UDP port.
    pub source_port: u16,
    /// Payload bytes.
    pub tx_bytes: u64,
    /// Peers that cannot be reached over it at present.
    pub down: u32,
}

/// A peer over the network.
#[derive(Clone, Default, Deserialize, Debug)]
#[serde(default)]
pub struct Peer {
    /// Where it receives.
    pub address: String,
    /// It has answered.
    pub answered: bool,
    /// It counts as dead.
    pub silent: bool,
    /// Smoothed round trip.
    pub rtt_us: f64,
    /// Smallest round trip of late.
    pub least_rtt_us: f64,
    /// Bytes in flight.
    pub inflight_bytes: u64,
    /// Bytes that wait.
    pub queued_bytes: u64,
    /// Bytes that may be in flight.
    pub window_bytes: u64,
    /// Packets sent.
    pub tx_pkts: u64,
    /// Payload bytes sent.
    pub tx_bytes: u64,
    /// Data packets retransmitted.
    pub retrans_pkts: u64,
    /// Payload bytes received.
    pub rx_bytes: u64,
    /// Paths to it.
    pub paths: u32,
    /// Of them, those out of use.
    pub paths_down: u32,
    /// Of them, how many are in each state.
    pub path_states: PathStates,
    /// Each of them, if the peer is one of those with the most traffic.
    pub path_list: Vec<PeerPath>,
}

/// How many paths are in each state.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, Debug)]
#[serde(default)]
pub struct PathStates {
    /// In use.
    pub active: u32,
    /// Asked whether they work.
    pub suspect: u32,
    /// Given up.
    pub down: u32,
    /// Asked whether they work again.
    pub probing: u32,
}

/// How a path is (srd-proto's `PathState`).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum PathState {
    /// In use.
    Active,
    /// Asked whether it works.
    Suspect,
    /// Given up.
    Down,
    /// Asked whether it works again.
    Probing,
    /// Something that a later release knows.
    #[default]
    #[serde(other)]
    Unknown,
}

impl PathState {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            PathState::Active => "active",
            PathState::Suspect => "suspect",
            PathState::Down => "down",
            PathState::Probing => "probing",
            PathState::Unknown => "unknown",
        }
    }
}

/// A path to a peer.
#[derive(Clone, Default, Deserialize, Debug)]
#[serde(default)]
pub struct PeerPath {
    /// Its slot.
    pub path: u8,
    /// The UDP source port that it names.
    pub source_port: u16,
    /// How it is.
    pub state: PathState,
    /// Smoothed round trip.
    pub rtt_us: f64,
    /// Payload bytes sent on it.
    pub tx_bytes: u64,
}

/// A messaging layer.
#[derive(Clone, Default, Deserialize, Debug)]
#[serde(default)]
pub struct Layer {
    /// Peers that are processes of this host.
    pub local_peers: Vec<LocalPeer>,
}

/// A peer that is a process of this host.
#[derive(Clone, Default, Deserialize, Debug)]
#[serde(default)]
pub struct LocalPeer {
    /// The endpoint that has this peer.
    pub endpoint: u16,
    /// The peer's IP address, and for port the number of its endpoint.
    pub address: String,
    /// Messages go through shared memory.
    pub shared_memory: bool,
    /// Long ones are copied out of its memory.
    pub copies: bool,
    /// Why messages do not go through shared memory.
    pub reason: Option<String>,
    /// Bytes sent through shared memory.
    pub tx_bytes: u64,
    /// Bytes received through shared memory.
    pub rx_bytes: u64,
    /// Bytes copied out of its memory.
    pub copied_bytes: u64,
}

impl Document {
    /// The document in an answer.
    pub fn read(answer: &str) -> serde_json::Result<Document> {
        let mut document: Document = serde_json::from_str(answer)?;
        let texts = [&mut document.program, &mut document.address, &mut document.interface];
        let peers = document.peers.iter_mut().map(|peer| &mut peer.address);
        let local = document.layers.iter_mut().flat_map(|layer| &mut layer.local_peers);
        let local = local.flat_map(|peer| [Some(&mut peer.address), peer.reason.as_mut()]).flatten();
        texts.into_iter().chain(peers).chain(local).for_each(|text| *text = printable(text));
        Ok(document)
    }

    /// Peers of this host.
    pub fn local_peers(&self) -> impl Iterator<Item = &LocalPeer> {
        self.layers.iter().flat_map(|layer| &layer.local_peers)
    }

    /// A counter of the transport.
    pub fn counter(&self, name: &str) -> u64 {
        self.transport.get(name).copied().unwrap_or(0)
    }

    /// A counter of the device.
    pub fn device_counter(&self, name: &str) -> u64 {
        self.device.get(name).copied().unwrap_or(0)
    }
}

/// A program may call itself what it likes; the terminal must not take it for a command.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_an_instance_of_another_release_does_not_tell_is_nothing() {
        let document =
            Document::read(&json!({"pid": 7, "unknown": [1], "peers": [{"address": "a"}]}).to_string())
                .unwrap();
        assert_eq!((document.pid, document.peers.len(), document.peers[0].tx_bytes), (7, 1, 0));
        assert_eq!(document.counter("tx_bytes"), 0);
        assert!(Document::read(&json!({"peers": 7}).to_string()).is_err());
    }

    #[test]
    fn no_name_reaches_the_terminal_as_a_command() {
        let document = Document::read(&json!({"program": "a\u{1b}[2Jb"}).to_string()).unwrap();
        assert_eq!(document.program, "a?[2Jb");
    }
}
