//! Counters of the device, under the names that EFA's driver gives them (`efa_verbs.c`, `EFA_DEFINE_PORT_STATS` and
//! `EFA_DEFINE_DEVICE_STATS`), and after them those that only this device has.

use srd_wire::counters;

counters! {
    /// See the module. A copy of the values at one moment, in the driver's order.
    Counters {
        /// Payload bytes given to the network, retransmissions included (from the transport).
        tx_bytes,
        /// Packets given to the network (from the transport).
        tx_pkts,
        /// Payload bytes taken from the network, duplicates excluded (from the transport).
        rx_bytes,
        /// Packets taken from the network (from the transport).
        rx_pkts,
        /// Packets that the transport dropped on arrival, duplicates excluded, and UD messages without a place.
        rx_drops,
        /// Bytes of sends that completed well.
        send_bytes,
        /// Send work requests that completed well.
        send_wrs,
        /// Bytes of sends received.
        recv_bytes,
        /// Receive work requests completed by a send.
        recv_wrs,
        /// RDMA reads that completed well.
        rdma_read_wrs,
        /// Bytes that they brought.
        rdma_read_bytes,
        /// RDMA reads that completed with an error.
        rdma_read_wr_err,
        /// Bytes that were read by peers.
        rdma_read_resp_bytes,
        /// RDMA writes that completed well.
        rdma_write_wrs,
        /// Bytes that they took.
        rdma_write_bytes,
        /// RDMA writes that completed with an error.
        rdma_write_wr_err,
        /// Bytes that were written by peers.
        rdma_write_recv_bytes,
        /// Payload bytes that were retransmitted (from the transport).
        retrans_bytes,
        /// Packets that were retransmitted (from the transport).
        retrans_pkts,
        /// Retransmission timers that ran out (from the transport).
        retrans_timeout_events,
        /// Peers that did not answer any more, or never did (from the transport).
        unresponsive_remote_events,
        /// Connections that lost paths, or whose peer restarted with work outstanding (from the transport).
        impaired_remote_conn_events,
        /// Failed calls of `alloc_pd`.
        alloc_pd_err,
        /// Failed calls of `create_qp`.
        create_qp_err,
        /// Failed calls of `create_cq`.
        create_cq_err,
        /// Failed calls of `reg_mr`.
        reg_mr_err,
        /// Failed calls of `create_ah`.
        create_ah_err,
        /// Work requests taken, send and receive.
        submitted_wrs,
        /// Completions made, send and receive, well or not.
        completed_wrs,
        /// Send work requests that completed with an error, flushed ones included.
        send_wr_err,
        /// Messages of ours that found no receive buffer and were retried later.
        rnr_retries,
        /// Messages of peers that found no receive buffer here, or for which too much of theirs was under way.
        rnr_refused,
        /// Messages of peers refused for any other reason.
        refused_msgs,
        /// UD messages dropped: no receive buffer, another queue key, or a buffer too short.
        ud_drops,
        /// Work requests that the program has written to a queue in memory itself (`efadv_query_qp_wqs(3)`).
        wrs_from_memory,
        /// Completions lost because their queue was full.
        cq_overruns,
        /// Asynchronous events lost because nobody took them.
        async_events_lost,
        /// Answers to reads of peers that are under way now.
        answers_kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_counter_of_the_driver_is_there() {
        let names: Vec<_> = Counters::default().iter().map(|(name, _)| name).collect();
        let driver = "tx_bytes tx_pkts rx_bytes rx_pkts rx_drops send_bytes send_wrs recv_bytes recv_wrs \
                      rdma_read_wrs rdma_read_bytes rdma_read_wr_err rdma_read_resp_bytes rdma_write_wrs \
                      rdma_write_bytes rdma_write_wr_err rdma_write_recv_bytes retrans_bytes retrans_pkts \
                      retrans_timeout_events unresponsive_remote_events impaired_remote_conn_events";
        for name in driver.split_whitespace() {
            assert!(names.contains(&name), "{name}");
        }
    }
}
