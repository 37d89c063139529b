//! The metrics: names, types, units, meanings, and where in what a process tells (`srd_net::Stats`, as JSON) they are.
//! `docs/METRICS.md` is made of this table.

use std::fmt::Write;

/// Whether it only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It does, from the start of the instance on.
    Counter,
    /// It does not.
    Gauge,
    /// It does, and has a name that others have given it, without `_total`.
    Unknown,
}

/// What there is one of it for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// This host.
    Host,
    /// Each instance of a process: `pid`, `program`, `address`.
    Process,
    /// Its messaging layers, of libfabric's programs, together.
    Layers,
    /// Each of its peers over the network: `peer` besides.
    Peer,
    /// Each of its peers through shared memory: `peer` and `endpoint` besides.
    LocalPeer,
    /// Each EFA device of the machine that this command is in: `device`, `port`. Sources are files below the port's directory.
    Port,
}

/// How values of the same labels become one: an instance with several receive ports may have several contexts with a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// Their sum.
    Sum,
    /// The first, which has the most traffic.
    First,
}

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Source {
    /// A JSON pointer, into the instance's document or the peer's part of it.
    pub at: &'static str,
    /// A label that only this value has.
    pub label: Option<(&'static str, &'static str)>,
    /// It is an object: a value for each key, under this label.
    pub each: Option<&'static str>,
    /// What is to be taken from it.
    pub less: Option<&'static str>,
    /// What it is multiplied by.
    pub scale: f64,
}

/// A metric.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Metric {
    /// Its name, without `_total`.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its unit, with which the name ends; empty for counts.
    pub unit: &'static str,
    /// What it says.
    pub help: &'static str,
    /// What there is one of it for.
    pub scope: Scope,
    /// How values are joined.
    pub merge: Merge,
    /// Its values; none for those of the host, which [`super::gather`] knows.
    pub sources: &'static [Source],
}

impl Metric {
    /// The name of its values.
    pub fn sample_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge | Kind::Unknown => self.name.to_string(),
        }
    }
}

const fn at(at: &'static str) -> Source {
    Source { at, label: None, each: None, less: None, scale: 1.0 }
}

const fn with(at: &'static str, label: &'static str, value: &'static str) -> Source {
    Source { at, label: Some((label, value)), each: None, less: None, scale: 1.0 }
}

const fn each(at: &'static str, label: &'static str) -> Source {
    Source { at, label: None, each: Some(label), less: None, scale: 1.0 }
}

const fn with_difference(
    at: &'static str,
    less: &'static str,
    label: &'static str,
    value: &'static str,
) -> Source {
    Source { at, label: Some((label, value)), each: None, less: Some(less), scale: 1.0 }
}

const fn micros(at: &'static str) -> Source {
    Source { at, label: None, each: None, less: None, scale: 1e-6 }
}

const fn metric(
    scope: Scope,
    kind: Kind,
    name: &'static str,
    help: &'static str,
    sources: &'static [Source],
) -> Metric {
    Metric { name, kind, unit: "", help, scope, merge: Merge::Sum, sources }
}

const fn counter(name: &'static str, help: &'static str, sources: &'static [Source]) -> Metric {
    metric(Scope::Process, Kind::Counter, name, help, sources)
}

const fn gauge(name: &'static str, help: &'static str, sources: &'static [Source]) -> Metric {
    metric(Scope::Process, Kind::Gauge, name, help, sources)
}

const fn peer_counter(name: &'static str, help: &'static str, sources: &'static [Source]) -> Metric {
    metric(Scope::Peer, Kind::Counter, name, help, sources)
}

const fn peer_gauge(name: &'static str, help: &'static str, sources: &'static [Source]) -> Metric {
    metric(Scope::Peer, Kind::Gauge, name, help, sources)
}

const fn local(name: &'static str, help: &'static str, sources: &'static [Source]) -> Metric {
    metric(Scope::LocalPeer, Kind::Counter, name, help, sources)
}

/// A counter of a port of a device, by the name that AWS's exporter gives it (awslabs/awsome-distributed-training,
/// `3.efa-node-exporter/amazon_efa_linux.go`).
const fn port(name: &'static str, help: &'static str, sources: &'static [Source]) -> Metric {
    metric(Scope::Port, Kind::Unknown, name, help, sources)
}

const fn layers(name: &'static str, help: &'static str, sources: &'static [Source]) -> Metric {
    metric(Scope::Layers, Kind::Counter, name, help, sources)
}

const fn host(name: &'static str, help: &'static str) -> Metric {
    metric(Scope::Host, Kind::Gauge, name, help, &[])
}

const fn bytes(metric: Metric) -> Metric {
    Metric { unit: "bytes", ..metric }
}

const fn seconds(metric: Metric) -> Metric {
    Metric { unit: "seconds", merge: Merge::First, ..metric }
}

const fn first(metric: Metric) -> Metric {
    Metric { merge: Merge::First, ..metric }
}

/// All of them.
#[rustfmt::skip] // a line or two each
pub const METRICS: &[Metric] = &[
    host("srd_processes", "Instances that are told of."),
    host("srd_processes_silent", "Processes that use SRD and did not answer: stopped, or in one long call of the device."),
    host("srd_processes_left_out", "Instances that are not told of, because there are too many or two have the same labels."),
    // What processes are.
    gauge("srd_sealed", "1 if packets are encrypted and authenticated.", &[at("/sealed")]),
    bytes(gauge("srd_path_mtu_bytes", "MTU of the path, IP header included.", &[at("/mtu")])),
    gauge("srd_source_ports", "UDP source ports in the pool; a path is one of them.", &[at("/source_ports")]),
    gauge("srd_peers", "Peers over the network.", &[at("/peer_count")]),
    gauge("srd_peers_left_out", "Of them, those that are not told of one by one, having less traffic than the others.", &[]),
    // The transport.
    counter("srd_tx_packets", "Packets sent, of every kind.", &[at("/transport/tx_pkts")]),
    bytes(counter("srd_tx_payload_bytes", "Payload sent, retransmissions included.", &[at("/transport/tx_bytes")])),
    counter("srd_rx_packets", "Packets received that were well-formed and for this instance.", &[at("/transport/rx_pkts")]),
    bytes(counter("srd_rx_payload_bytes", "Payload accepted, duplicates excluded.", &[at("/transport/rx_bytes")])),
    counter("srd_retransmitted_packets", "Data packets retransmitted.", &[at("/transport/retrans_pkts")]),
    bytes(counter("srd_retransmitted_payload_bytes", "Payload sent again.", &[at("/transport/retrans_bytes")])),
    counter("srd_lost_packets", "Packets taken for lost, and so sent again, by cause: path_order (a later one on the same path arrived), \
        reordering (one sent a reordering window later arrived on any path), cut (its headers arrived alone: a switch had no room for the rest), timer (it expired though others were answered), path_down (their \
        path was given up), silence (nothing was answered).", &[
        with("/transport/lost_by_path_order", "cause", "path_order"), with("/transport/lost_by_rack", "cause", "reordering"),
        with("/transport/lost_by_cut", "cause", "cut"), with("/transport/lost_by_timer", "cause", "timer"),
        with("/transport/lost_by_path_down", "cause", "path_down"),
        with_difference("/transport/retrans_timeout_events", "/transport/lost_by_timer", "cause", "silence")]),
    counter("srd_tail_probes", "Times that silence was answered with a question, or with a packet sent again, to draw an answer.", &[at("/transport/tail_probes")]),
    counter("srd_spurious_retransmissions", "Retransmissions whose original turned out to have arrived.", &[at("/transport/spurious_retrans")]),
    counter("srd_retransmission_timeouts", "Retransmission timers that expired.", &[at("/transport/retrans_timeout_events")]),
    counter("srd_acks_sent", "Acknowledgements sent: on packets of their own (pure), or on data (piggybacked).", &[
        with("/transport/pure_acks_sent", "kind", "pure"), with("/transport/piggybacked_acks_sent", "kind", "piggybacked")]),
    counter("srd_acks_received", "Acknowledgements received.", &[at("/transport/acks_received")]),
    counter("srd_acks_predicted", "Acknowledgements received that held no news, of which the controller was not told.", &[at("/transport/acks_predicted")]),
    counter("srd_acks_impossible", "Acknowledgements of packets never sent.", &[at("/transport/bad_acks")]),
    counter("srd_rx_discarded_packets", "Packets received and not taken, by cause.", &[
        with("/transport/duplicates", "cause", "duplicate"), with("/transport/out_of_window", "cause", "out_of_window"),
        with("/transport/partial_limit_drops", "cause", "too_many_incomplete_messages"), with("/transport/inconsistent", "cause", "inconsistent"),
        with("/transport/stale_incarnation", "cause", "for_another_incarnation"), with("/transport/replaced_incarnation", "cause", "of_an_earlier_context"),
        with("/transport/unintroduced", "cause", "not_introduced"), with("/transport/unconfirmed", "cause", "not_confirmed"),
        with("/transport/version_mismatch", "cause", "no_common_version"), with("/transport/peer_limit_drops", "cause", "too_many_peers"),
        with("/transport/reflected", "cause", "own_packet_sent_back"), with("/transport/cut_pkts", "cause", "cut")]),
    counter("srd_congestion_marked_packets", "Packets that arrived with a congestion mark.", &[at("/transport/ce_marks")]),
    counter("srd_refused_messages", "Messages refused: by this side (here), or of ours by a peer (peer).", &[
        with("/transport/refused_messages", "by", "here"), with("/transport/refusals_received", "by", "peer")]),
    counter("srd_peers_created", "Contexts made.", &[at("/transport/peers_created")]),
    counter("srd_peers_evicted", "Contexts of strangers, or of peers long silent that the program did not want, that made way for others.", &[at("/transport/peers_evicted")]),
    counter("srd_peers_unresponsive", "Peers that stopped answering, or never did.", &[at("/transport/unresponsive_remote_events")]),
    counter("srd_peers_impaired", "Peers that lost paths or restarted while work was outstanding.", &[at("/transport/impaired_remote_conn_events")]),
    counter("srd_peers_restarted", "Peers found restarted.", &[at("/transport/peer_restarts")]),
    counter("srd_given_up_by_peers", "Peers that had given us up: what was under way with them has ended.", &[at("/transport/given_up_by_peers")]),
    counter("srd_resets_sent", "Resets sent: somebody asked for a process that is not here any more.", &[at("/transport/resets_sent")]),
    counter("srd_resets_ignored", "Resets received that did not name the current context.", &[at("/transport/resets_ignored")]),
    counter("srd_paths_gone_down", "Paths that went down.", &[at("/transport/paths_down")]),
    counter("srd_paths_come_back", "Paths that came back.", &[at("/transport/paths_up")]),
    counter("srd_paths_rerolled", "Path slots that were given another source port.", &[at("/transport/paths_rerolled")]),
    counter("srd_path_collapses", "Times that most paths went down at once, which was taken for the peer's or the first hop's fault and undone.", &[at("/transport/path_collapses")]),
    counter("srd_probes_sent", "Probes sent: whether a path works (path), or how large packets may be (mtu).", &[
        with("/transport/path_probes_sent", "kind", "path"), with("/transport/mtu_probes_sent", "kind", "mtu")]),
    counter("srd_timer_callbacks", "Timer callbacks of peers.", &[at("/transport/timer_callbacks")]),
    // The device.
    counter("srd_submitted_work_requests", "Work requests taken, send and receive.", &[at("/device/submitted_wrs")]),
    counter("srd_completions", "Completions made, send and receive, well or not.", &[at("/device/completed_wrs")]),
    counter("srd_operations", "Operations that completed well: sends, receives completed by a send, RDMA reads and writes.", &[
        with("/device/send_wrs", "operation", "send"), with("/device/recv_wrs", "operation", "receive"),
        with("/device/rdma_read_wrs", "operation", "read"), with("/device/rdma_write_wrs", "operation", "write")]),
    counter("srd_failed_operations", "Operations that completed with an error: sends and whatever else was posted to send (all, flushed ones included), \
        and of those RDMA reads and writes.", &[
        with("/device/send_wr_err", "operation", "all"), with("/device/rdma_read_wr_err", "operation", "read"), with("/device/rdma_write_wr_err", "operation", "write")]),
    bytes(counter("srd_operation_bytes", "Bytes of operations that completed well, and of those of peers: what they read here (read_by_peers), and wrote \
        (written_by_peers).", &[
        with("/device/send_bytes", "operation", "send"), with("/device/recv_bytes", "operation", "receive"),
        with("/device/rdma_read_bytes", "operation", "read"), with("/device/rdma_write_bytes", "operation", "write"),
        with("/device/rdma_read_resp_bytes", "operation", "read_by_peers"), with("/device/rdma_write_recv_bytes", "operation", "written_by_peers")])),
    counter("srd_receiver_not_ready", "Messages that found no receive buffer: of ours, sent again later (peer), and of peers (here).", &[
        with("/device/rnr_retries", "at", "peer"), with("/device/rnr_refused", "at", "here")]),
    counter("srd_messages_refused_otherwise", "Messages of peers refused for any other reason.", &[at("/device/refused_msgs")]),
    counter("srd_wrs_from_memory", "Work requests that programs have written to the device's queues in memory themselves.", &[at("/device/wrs_from_memory")]),
    counter("srd_datagrams_discarded", "UD messages dropped: no receive buffer, another queue key, or a buffer too short.", &[at("/device/ud_drops")]),
    counter("srd_rx_drops", "Packets that the transport dropped on arrival, duplicates excluded, and UD messages without a place.", &[at("/device/rx_drops")]),
    counter("srd_completions_lost", "Completions lost because their queue was full.", &[at("/device/cq_overruns")]),
    gauge("srd_answers_under_way", "Reads of peers that are being answered.", &[at("/device/answers_kept")]),
    counter("srd_async_events_lost", "Asynchronous events lost because nobody took them.", &[at("/device/async_events_lost")]),
    counter("srd_failed_calls", "Calls of the program that failed.", &[
        with("/device/alloc_pd_err", "call", "alloc_pd"), with("/device/create_qp_err", "call", "create_qp"), with("/device/create_cq_err", "call", "create_cq"),
        with("/device/reg_mr_err", "call", "reg_mr"), with("/device/create_ah_err", "call", "create_ah")]),
    // The sockets.
    counter("srd_tx_datagrams", "Datagrams given to the system.", &[at("/transmit/packets")]),
    counter("srd_tx_packet_socket_datagrams", "Those of them that left by a packet socket or an AF_XDP socket.", &[at("/transmit/by_packet_socket")]),
    bytes(counter("srd_tx_datagram_bytes", "Their bytes.", &[at("/transmit/bytes")])),
    counter("srd_tx_calls", "System calls that sent them.", &[at("/transmit/sends")]),
    counter("srd_tx_blocked", "Sends that the system would not take at once: its buffer or queue was full.", &[at("/transmit/blocked")]),
    counter("srd_tx_given_up_datagrams", "Datagrams given up before they left, by cause; what was lost so comes again.", &[
        with("/transmit/dropped_blocked", "cause", "blocked"), with("/transmit/dropped_refused", "cause", "refused"),
        with("/transmit/dropped_unsealed", "cause", "not_sealed"), with("/transmit/dropped_unreadable", "cause", "memory_gone"),
        with("/transmit/dropped_unroutable", "cause", "other_address_family")]),
    counter("srd_tx_errors", "Sends that the system refused, by the error's number.", &[each("/transmit/errors", "errno")]),
    counter("srd_network_errors", "Errors that the network reported (ICMP), by the error's number.", &[each("/transmit/network_errors", "errno")]),
    counter("srd_injected_faults", "Faults injected on purpose (SRD_FAULT), by kind.", &[each("/transmit/faults", "kind")]),
    counter("srd_rx_datagrams", "Datagrams that arrived.", &[at("/receive/packets")]),
    counter("srd_rx_packet_socket_datagrams", "Those of them that came by a packet socket or an AF_XDP socket.", &[at("/receive/by_packet_socket")]),
    bytes(counter("srd_rx_datagram_bytes", "Their bytes.", &[at("/receive/bytes")])),
    counter("srd_rx_runs", "Runs of datagrams that the kernel had joined (GRO), or single ones.", &[at("/receive/runs")]),
    counter("srd_rx_calls", "System calls that received something.", &[at("/receive/receives")]),
    counter("srd_rx_socket_drops", "Datagrams that the sockets dropped because their buffer was full: this host was too slow.", &[at("/receive/host_drops")]),
    counter("srd_rx_not_decoded", "Datagrams that are not packets, by cause.", &[each("/receive/not_decoded", "cause")]),
    counter("srd_rx_not_opened", "Datagrams that could not be opened, by cause (with a pre-shared key).", &[each("/receive/not_opened", "cause")]),
    counter("srd_rx_errors", "Receives that failed, by the error's number.", &[each("/receive/errors", "errno")]),
    // How packets are moved.
    counter("srd_rounds", "Looks at sockets and clock.", &[at("/rounds/rounds")]),
    counter("srd_idle_rounds", "Of them, those that found nothing to do.", &[at("/rounds/idle_rounds")]),
    counter("srd_deferred_calls", "Calls whose packets were left for the next poll, to be joined with others.", &[at("/rounds/deferred")]),
    counter("srd_deferred_calls_in_vain", "Times that the program did not poll after such calls, so that the thread had to send.", &[at("/rounds/deferred_in_vain")]),
    counter("srd_thread_wakes", "Times that the progress thread woke to move packets.", &[at("/progress/thread_wakes")]),
    counter("srd_thread_parks", "Times that it found the program polling, and slept on.", &[at("/progress/thread_parks")]),
    counter("srd_thread_kicks", "Times that it was woken for something due before it would have woken.", &[at("/progress/thread_kicks")]),
    counter("srd_poll_rests", "Times that a poll found nothing and gave way, or slept for a moment, because others wanted the cores.", &[at("/progress/rests")]),
    // Messaging layers.
    layers("srd_peer_messages_refused", "What peers have sent against the rules, by cause (docs/MESSAGES.md): not read (malformed), numbers that could not \
        be, more than the window, lengths that did not fit, answers and grants that nobody had asked for, more questions than answers taken, no room \
        for peers that the program has not named (no_place for the peer, stranger for what it sent), no memory. All but numbers that were there already \
        and those without a place end the peer's session.", &[
        with("/counters/malformed", "cause", "malformed"), with("/counters/numbers_refused", "cause", "number"),
        with("/counters/beyond_window", "cause", "window"), with("/counters/lengths_refused", "cause", "length"),
        with("/counters/unasked", "cause", "unasked"), with("/counters/replies_refused", "cause", "replies"),
        with("/counters/strangers_dropped", "cause", "no_place"), with("/counters/strangers_refused", "cause", "stranger"),
        with("/counters/no_memory", "cause", "memory")]),
    bytes(metric(Scope::Layers, Kind::Gauge, "srd_kept_for_peers_bytes", "Memory in use for peers: messages that are not received, and replies that are not \
        delivered.", &[at("/counters/kept_bytes")])),
    // Peers over the network.
    peer_counter("srd_peer_tx_packets", "Packets sent to it, of every kind.", &[at("/tx_pkts")]),
    bytes(peer_counter("srd_peer_tx_payload_bytes", "Payload sent to it, retransmissions included.", &[at("/tx_bytes")])),
    bytes(peer_counter("srd_peer_rx_payload_bytes", "Payload accepted from it, duplicates excluded.", &[at("/rx_bytes")])),
    peer_counter("srd_peer_retransmitted_packets", "Data packets sent to it again.", &[at("/retrans_pkts")]),
    first(peer_gauge("srd_peer_answered", "1 once it has answered.", &[at("/answered")])),
    first(peer_gauge("srd_peer_silent", "1 while it counts as dead: silent for too long with something outstanding.", &[at("/silent")])),
    seconds(peer_gauge("srd_peer_rtt_seconds", "Smoothed round trip; 0 before the first sample.", &[micros("/rtt_us")])),
    seconds(peer_gauge("srd_peer_least_rtt_seconds", "Smallest round trip of late; 0 before the first sample.", &[micros("/least_rtt_us")])),
    bytes(peer_gauge("srd_peer_inflight_bytes", "In flight.", &[at("/inflight_bytes")])),
    bytes(peer_gauge("srd_peer_queued_bytes", "What waits to be sent for the first time.", &[at("/queued_bytes")])),
    bytes(peer_gauge("srd_peer_window_bytes", "What may be in flight.", &[at("/window_bytes")])),
    peer_gauge("srd_peer_paths", "Paths to it, by state: active, suspect, down or probing.", &[
        with("/path_states/active", "state", "active"), with("/path_states/suspect", "state", "suspect"),
        with("/path_states/down", "state", "down"), with("/path_states/probing", "state", "probing")]),
    // Peers through shared memory.
    local("srd_local_peer_tx_messages", "Messages sent to it through shared memory.", &[at("/tx_msgs")]),
    bytes(local("srd_local_peer_tx_bytes", "Their bytes.", &[at("/tx_bytes")])),
    bytes(local("srd_local_peer_rx_bytes", "Bytes of messages received from it through shared memory.", &[at("/rx_bytes")])),
    bytes(local("srd_local_peer_copied_bytes", "Bytes copied out of its memory.", &[at("/copied_bytes")])),
    // Devices of a machine.
    port("node_amazonefa_info", "1 for each device.", &[at("")]),
    port("node_amazonefa_tx_bytes", "Payload bytes sent, retransmissions included.", &[at("hw_counters/tx_bytes")]),
    port("node_amazonefa_tx_pkts", "Packets sent.", &[at("hw_counters/tx_pkts")]),
    port("node_amazonefa_rx_bytes", "Payload bytes received, duplicates excluded.", &[at("hw_counters/rx_bytes")]),
    port("node_amazonefa_rx_pkts", "Packets received.", &[at("hw_counters/rx_pkts")]),
    port("node_amazonefa_rx_drops", "Packets dropped on arrival.", &[at("hw_counters/rx_drops")]),
    port("node_amazonefa_send_bytes", "Bytes of sends that completed well.", &[at("hw_counters/send_bytes")]),
    port("node_amazonefa_send_wrs", "Sends that completed well.", &[at("hw_counters/send_wrs")]),
    port("node_amazonefa_recv_bytes", "Bytes of sends received.", &[at("hw_counters/recv_bytes")]),
    port("node_amazonefa_recv_wrs", "Receives that a send completed.", &[at("hw_counters/recv_wrs")]),
    port("node_amazonefa_rdma_read_wrs", "RDMA reads that completed well.", &[at("hw_counters/rdma_read_wrs")]),
    port("node_amazonefa_rdma_read_bytes", "Bytes that they brought.", &[at("hw_counters/rdma_read_bytes")]),
    port("node_amazonefa_rdma_read_wr_err", "RDMA reads that completed with an error.", &[at("hw_counters/rdma_read_wr_err")]),
    port("node_amazonefa_rdma_read_resp_bytes", "Bytes that peers have read.", &[at("hw_counters/rdma_read_resp_bytes")]),
    port("node_amazonefa_rdma_write_wrs", "RDMA writes that completed well.", &[at("hw_counters/rdma_write_wrs")]),
    port("node_amazonefa_rdma_write_bytes", "Bytes that they took.", &[at("hw_counters/rdma_write_bytes")]),
    port("node_amazonefa_rdma_write_wr_err", "RDMA writes that completed with an error.", &[at("hw_counters/rdma_write_wr_err")]),
    port("node_amazonefa_rdma_write_recv_bytes", "Bytes that peers have written.", &[at("hw_counters/rdma_write_recv_bytes")]),
    port("node_amazonefa_retrans_bytes", "Payload bytes sent again.", &[at("hw_counters/retrans_bytes")]),
    port("node_amazonefa_retrans_pkts", "Packets sent again.", &[at("hw_counters/retrans_pkts")]),
    port("node_amazonefa_retrans_timeout_events", "Retransmission timers that expired.", &[at("hw_counters/retrans_timeout_events")]),
    port("node_amazonefa_unresponsive_remote_events", "Peers that stopped answering, or never did.", &[at("hw_counters/unresponsive_remote_events")]),
    port("node_amazonefa_impaired_remote_conn_events", "Peers that lost paths or restarted while work was outstanding.", &[at("hw_counters/impaired_remote_conn_events")]),
    port("node_amazonefa_lifespan", "For how long a card's counters are kept before it is asked again, in ms.", &[at("hw_counters/lifespan")]),
];

/// The table as a document.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Metrics\n\n\
         What `srd metrics` prints and serves, as OpenMetrics text and as JSON, of all processes of this user on this host. This\n\
         file is generated from the table in `crates/srd/src/metrics/table.rs`; `srd metrics --document > docs/METRICS.md` writes\n\
         it anew, and a test compares both.\n\n\
         Counters grow from the opening of an instance on; in samples their names end with `_total`. Names end with the unit, if\n\
         there is one. Every process has the labels `pid`, `program` and `address` (a process has an entry for each of its\n\
         instances); peers over the network have `peer` besides, peers through shared memory `peer` and `endpoint`, the number of\n\
         the endpoint here; devices have `device` and `port`. Of each process at most `--peers` peers of either kind are told of (64 unless set, at most 256), of a\n\
         host at most 512 instances, of numbered errors at most 32 numbers: what is left out is counted.\n\n\
         Where an instance has several contexts with a peer, because it receives on several ports, their values are added; of round\n\
         trips, and of whether it answers, that of the context with the most traffic is given.\n\n\
         The JSON has `time_s` (since 1970), `metrics`: for each its `name`, `type`, `unit`, `help` and `samples`, each with `labels`\n\
         and `value`; and `silent`: processes that did not answer, with `pid`, `program` and `why`.\n",
    );
    let scopes = [
        (Scope::Host, "The host"),
        (Scope::Process, "Each instance of a process"),
        (Scope::Layers, "The messaging layers of each instance, together (libfabric's programs)"),
        (Scope::Peer, "Each of its peers over the network"),
        (Scope::LocalPeer, "Each of its peers through shared memory"),
        (Scope::Port, "Each EFA device of a machine (`srd run --machine`), where `srd metrics` runs in one"),
    ];
    for (scope, title) in scopes {
        let _ =
            write!(text, "\n## {title}\n\n| name | type | labels besides | meaning |\n|---|---|---|---|\n");
        for metric in METRICS.iter().filter(|metric| metric.scope == scope) {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Unknown => "unknown",
            };
            let _ = writeln!(
                text,
                "| `{}` | {kind} | {} | {} |",
                metric.sample_name(),
                labels(metric),
                metric.help
            );
        }
    }
    text
}

/// `cause`: `timer`, ...
fn labels(metric: &Metric) -> String {
    let mut values = metric.sources.iter().filter_map(|source| source.label).peekable();
    if let Some(each) = metric.sources.iter().find_map(|source| source.each) {
        return format!("`{each}`");
    }
    let Some((name, _)) = values.peek().copied() else { return String::new() };
    let values: Vec<String> = values.map(|(_, value)| format!("`{value}`")).collect();
    format!("`{name}`: {}", values.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_as_openmetrics_wants_them() {
        let mut names = BTreeSet::new();
        for metric in METRICS {
            assert!(names.insert(metric.name), "{} twice", metric.name);
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let prefix = if metric.scope == Scope::Port { "node_amazonefa_" } else { "srd_" };
            assert!(metric.name.starts_with(prefix) && metric.name.chars().all(fits), "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}", metric.name);
            if metric.kind == Kind::Unknown {
                continue; // others have named it
            }
            assert!(!metric.name.ends_with("_total") && !metric.name.ends_with("_info"), "{}", metric.name);
            for unit in ["bytes", "seconds"] {
                assert_eq!(
                    metric.name.ends_with(&format!("_{unit}")),
                    metric.unit == unit,
                    "{}",
                    metric.name
                );
            }
            let labels: BTreeSet<_> = metric.sources.iter().map(|source| source.label).collect();
            assert_eq!(labels.len(), metric.sources.len(), "{} has values with the same labels", metric.name);
        }
    }

    #[test]
    fn the_document_is_that_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/METRICS.md");
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written == markdown(), "`srd metrics --document > docs/METRICS.md` writes it anew");
    }

    #[test]
    fn every_counter_of_a_port_has_a_metric() {
        for name in srd_machine::PORT_COUNTERS {
            let metric = format!("node_amazonefa_{name}");
            assert!(METRICS.iter().any(|known| known.name == metric), "{metric}");
        }
    }

    #[test]
    fn every_counter_that_a_process_tells_has_a_metric() {
        let known: BTreeSet<&str> =
            METRICS.iter().flat_map(|metric| metric.sources).map(|source| source.at).collect();
        let transport = srd_proto::Stats::default();
        let transport: Vec<_> = transport.iter().map(|(name, _)| name).collect();
        let peer = srd_proto::PeerCounters::default();
        for name in &transport {
            assert!(known.contains(format!("/transport/{name}").as_str()), "{name}");
        }
        for (name, _) in peer.iter() {
            assert!(known.contains(format!("/{name}").as_str()), "{name} of a peer");
        }
        // The device gives some of the transport's under the names of EFA's driver, too.
        for (name, _) in srd_device::Counters::default().iter().filter(|(name, _)| !transport.contains(name))
        {
            assert!(known.contains(format!("/device/{name}").as_str()), "{name} of the device");
        }
        // Of the messaging layers what peers do wrong.
        for metric in METRICS.iter().filter(|metric| metric.scope == Scope::Layers) {
            for source in metric.sources {
                let told = srd_msg::Counters::default();
                let name = source.at.strip_prefix("/counters/").expect("a counter of theirs");
                assert!(told.iter().any(|(told, _)| told == name), "{name} of messaging layers");
            }
        }
        let groups = [
            ("transmit", serde_json::to_value(srd_net::TransmitCounters::default())),
            ("receive", serde_json::to_value(srd_net::ReceiveCounters::default())),
            ("rounds", serde_json::to_value(srd_net::CoreCounters::default())),
            ("progress", serde_json::to_value(srd_net::ProgressCounters::default())),
        ];
        for (group, counters) in groups {
            for name in counters.unwrap().as_object().unwrap().keys() {
                assert!(known.contains(format!("/{group}/{name}").as_str()), "{group}/{name}");
            }
        }
    }
}
