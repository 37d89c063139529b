//! What is told of the messaging layer beside the counters of the instance (`srd top`, `SRD_STATS`): its own counters, and
//! how messages to each peer of this host go.

use crate::state::{Bound, State};
use srd_msg::PeerReport;
use srd_net::{LayerStats, LocalPeerStats, MOST_PEERS, named};
use srd_wire::Gid;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// All of it. `gid`: this host.
pub(crate) fn stats(state: &State, gid: Gid) -> LayerStats {
    let mut peers: Vec<(&Bound, PeerReport)> = Vec::new();
    for (id, bound) in state.endpoints() {
        // An endpoint may name itself. Of several that were at one place the last one is there.
        let others = state.messages.peers(id).filter(|peer| peer.addr.qpn != bound.qpn);
        let here = others.filter(|peer| peer.addr.gid == gid).map(|peer| (peer.addr.qpn, (bound, peer)));
        peers.extend(here.collect::<BTreeMap<_, _>>().into_values());
    }
    peers.sort_by_key(|(_, peer)| Reverse(peer.lane.map_or(0, |lane| lane.traffic.tx_bytes)));
    peers.truncate(MOST_PEERS);
    LayerStats {
        counters: named(state.messages.counters().iter()),
        local_peers: peers.iter().map(|(bound, peer)| local_peer(bound, peer)).collect(),
    }
}

fn local_peer(bound: &Bound, peer: &PeerReport) -> LocalPeerStats {
    let traffic = peer.lane.map(|lane| lane.traffic).unwrap_or_default();
    LocalPeerStats {
        endpoint: bound.qpn.0,
        address: SocketAddr::new(peer.addr.gid.ip(), peer.addr.qpn.0).to_string(),
        shared_memory: peer.lane.is_some(),
        copies: peer.lane.is_some_and(|lane| lane.copies),
        reason: if peer.lane.is_some() { None } else { Some(why_network(bound, peer)) },
        tx_msgs: traffic.tx_msgs,
        tx_bytes: traffic.tx_bytes,
        rx_bytes: peer.lane.map_or(0, |lane| lane.rx_bytes),
        copied_bytes: traffic.copied_bytes,
    }
}

/// Why messages to a peer of this host go over the network.
fn why_network(bound: &Bound, peer: &PeerReport) -> String {
    match &bound.shm {
        Err(why) => why.clone(),
        Ok(shm) => match shm.why_without(peer.id) {
            Some(why) => why.to_string(),
            None => "shared memory with it was not sought yet, or has ended".into(),
        },
    }
}
