//! Counters of the transport. Everything that is dropped, resent or refused is counted by cause.

use srd_wire::counters;

counters! {
    /// Counters of an endpoint. Those that EFA has bear EFA's names.
    Stats {
        /// Packets sent, of every kind.
        tx_pkts,
        /// Payload bytes sent, retransmissions included.
        tx_bytes,
        /// Packets received that were well-formed and for this instance.
        rx_pkts,
        /// Payload bytes accepted, duplicates excluded.
        rx_bytes,
        /// Data packets retransmitted.
        retrans_pkts,
        /// Payload bytes retransmitted.
        retrans_bytes,
        /// Times that a retransmission timer expired.
        retrans_timeout_events,
        /// Packets found lost because a later one on the same path arrived.
        lost_by_path_order,
        /// Packets found lost because a later one on any path arrived a reordering window ago.
        lost_by_rack,
        /// Packets found lost because a switch had cut off their payload, as the peer told.
        lost_by_cut,
        /// Packets found lost by timer.
        lost_by_timer,
        /// Packets given up at once because their path went down.
        lost_by_path_down,
        /// Tail probes: packets retransmitted in silence to draw an answer.
        tail_probes,
        /// Retransmissions whose original turned out to have arrived.
        spurious_retrans,
        /// ACK packets sent that carry nothing else.
        pure_acks_sent,
        /// ACKs that rode on data.
        piggybacked_acks_sent,
        /// ACKs received.
        acks_received,
        /// Of these, those that held no news: the controller has not been told of them.
        acks_predicted,
        /// Data packets that had been received before.
        duplicates,
        /// Data packets that came without their payload, which a switch had cut off.
        cut_pkts,
        /// Data packets beyond the receive window.
        out_of_window,
        /// Data packets not taken because too many messages are incomplete; they come again.
        partial_limit_drops,
        /// Data packets whose fields contradict the message they belong to.
        inconsistent,
        /// Packets for another incarnation of this instance.
        stale_incarnation,
        /// Packets of a context that has ended, or of another incarnation than the context's that has not shown that it lives.
        replaced_incarnation,
        /// Packets of an instance that has not introduced itself.
        unintroduced,
        /// Packets whose sender had shown neither that what we send reaches him nor that he was given an address here: he
        /// was told who we are, and nothing else came of them.
        unconfirmed,
        /// Hellos that speak no common version.
        version_mismatch,
        /// Packets from new peers beyond the limit of contexts.
        peer_limit_drops,
        /// Contexts of strangers, or of peers that our program did not want and that had long been silent, that made way for
        /// new ones.
        peers_evicted,
        /// Packets of this instance that came back from another host.
        reflected,
        /// Resets sent.
        resets_sent,
        /// Resets received that did not name the current context.
        resets_ignored,
        /// Acknowledgements of packets never sent.
        bad_acks,
        /// Messages that this side refused.
        refused_messages,
        /// Messages that a peer refused.
        refusals_received,
        /// Peers that stopped answering, or never did.
        unresponsive_remote_events,
        /// Peers that lost paths or restarted while work was outstanding.
        impaired_remote_conn_events,
        /// Paths that went down.
        paths_down,
        /// Paths that came back.
        paths_up,
        /// Times that most paths went down at once, which was taken for the peer's or the first hop's fault and undone.
        path_collapses,
        /// Path slots that were given another source port.
        paths_rerolled,
        /// Path probes sent.
        path_probes_sent,
        /// Probes sent to find how large packets may be.
        mtu_probes_sent,
        /// Packets that arrived with a congestion mark.
        ce_marks,
        /// Peers found restarted.
        peer_restarts,
        /// Peers that had given us up: what was under way with them has ended.
        given_up_by_peers,
        /// Contexts made.
        peers_created,
        /// Timer callbacks of peers.
        timer_callbacks,
    }
}

counters! {
    /// Counters of a context, from its making on; they outlive restarts of the peer.
    PeerCounters {
        /// Packets sent, of every kind.
        tx_pkts,
        /// Payload bytes sent, retransmissions included.
        tx_bytes,
        /// Data packets retransmitted.
        retrans_pkts,
        /// Payload bytes accepted, duplicates excluded.
        rx_bytes,
    }
}
