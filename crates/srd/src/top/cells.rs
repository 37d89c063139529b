//! What stands in the columns of the tables, on the terminal and as plain text.

use super::rates::{CauseRow, Over, PeerPathRow, PeerRow, PeerState, Process};

/// A column.
#[derive(Clone, Copy)]
pub struct Column {
    /// Its title.
    pub title: &'static str,
    /// Numbers stand at the right.
    pub right: bool,
}

const fn number(title: &'static str) -> Column {
    Column { title, right: true }
}

const fn text(title: &'static str) -> Column {
    Column { title, right: false }
}

/// Columns of processes: what changes first, for narrow terminals.
pub const PROCESS_COLUMNS: [Column; 16] = [
    number("pid"),
    text("program"),
    number("tx Gb/s"),
    number("rx Gb/s"),
    number("tx pkt/s"),
    number("rx pkt/s"),
    number("rtx/s"),
    number("rtx %"),
    number("compl/s"),
    number("fail/s"),
    number("peers"),
    number("shm peers"),
    number("shm Gb/s"),
    text("address"),
    text("interface"),
    text("packets"),
];

/// Columns of peers.
pub const PEER_COLUMNS: [Column; 13] = [
    text("peer"),
    text("over"),
    number("tx Gb/s"),
    number("rx Gb/s"),
    number("rtt us"),
    number("least"),
    number("window"),
    number("in flight"),
    number("queued"),
    number("rtx/s"),
    number("rtx %"),
    number("paths"),
    text(""),
];

/// Columns of paths.
pub const PATH_COLUMNS: [Column; 8] = [
    text("peer"),
    number("path"),
    number("source port"),
    text("state"),
    number("rtt us"),
    number("tx Gb/s"),
    number("%"),
    number("tx bytes"),
];

/// A row of processes.
pub fn process_cells(process: &Process) -> [String; PROCESS_COLUMNS.len()] {
    let rate = |of: fn(&super::rates::Rates) -> f64, show: fn(f64) -> String| {
        process.rates.as_ref().map_or_else(|| "-".into(), |rates| show(of(rates)))
    };
    [
        process.pid.to_string(),
        process.program.clone(),
        rate(|rates| rates.tx_gbps, gbps),
        rate(|rates| rates.rx_gbps, gbps),
        rate(|rates| rates.tx_packets_per_s, count),
        rate(|rates| rates.rx_packets_per_s, count),
        rate(|rates| rates.retransmissions_per_s, count),
        rate(|rates| rates.retransmission_share, percent),
        rate(|rates| rates.completions_per_s, count),
        rate(|rates| rates.failures_per_s, count),
        process.peer_count.to_string(),
        process.shared_memory_peers.to_string(),
        rate(|rates| rates.shared_memory_gbps, gbps),
        process.address.clone(),
        process.interface.clone(),
        format!("MTU {}, {}", process.mtu, if process.sealed { "sealed" } else { "in clear" }),
    ]
}

/// A row of peers.
pub fn peer_cells(peer: &PeerRow) -> [String; PEER_COLUMNS.len()] {
    let state = match peer.state {
        Some(PeerState::Silent) => Some("does not answer any more"),
        Some(PeerState::New) => Some("has not answered yet"),
        Some(PeerState::Answered) | None => None,
    };
    let notes: Vec<&str> = state.into_iter().chain(peer.note.as_deref()).collect();
    [
        peer.address.clone(),
        match peer.over {
            Over::Network => "network".into(),
            Over::SharedMemory => "shared memory".into(),
        },
        shown(peer.tx_gbps, gbps),
        shown(peer.rx_gbps, gbps),
        shown(peer.rtt_us, microseconds),
        shown(peer.least_rtt_us, microseconds),
        shown(peer.window_bytes, bytes),
        shown(peer.inflight_bytes, bytes),
        shown(peer.queued_bytes, bytes),
        shown(peer.retransmissions_per_s, count),
        shown(peer.retransmission_share, percent),
        match (peer.paths, peer.paths_down) {
            (Some(paths), Some(down)) => format!("{}/{paths}{}", paths - down.min(paths), path_states(peer)),
            _ => "-".into(),
        },
        notes.join("; "),
    ]
}

/// How many paths are out of use, by state, if any are: ` (1 suspect, 2 down)`.
fn path_states(peer: &PeerRow) -> String {
    let Some(states) = peer.path_states else { return String::new() };
    let states = [(states.suspect, "suspect"), (states.down, "down"), (states.probing, "probing")];
    let told: Vec<String> = states
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) }
}

/// A path to the peer at `peer`; `total_gbps`: what all to it have sent of late.
pub fn path_cells(peer: &str, path: &PeerPathRow, total_gbps: f64) -> [String; PATH_COLUMNS.len()] {
    [
        peer.to_owned(),
        path.path.to_string(),
        path.source_port.to_string(),
        path.state.clone().into(),
        shown(path.rtt_us, microseconds),
        shown(path.tx_gbps, gbps),
        shown(path.tx_gbps.filter(|_| total_gbps > 0.0).map(|rate| rate / total_gbps), percent),
        bytes(path.tx_bytes),
    ]
}

/// The paths of a process's peers that are told of one by one: those out of use first, then the busiest.
pub fn path_rows(process: &Process) -> Vec<([String; PATH_COLUMNS.len()], bool)> {
    let rate = |path: &PeerPathRow| path.tx_gbps.unwrap_or(0.0);
    let mut rows: Vec<(&PeerRow, &PeerPathRow)> =
        process.peers.iter().flat_map(|peer| peer.path_list.iter().map(move |path| (peer, path))).collect();
    rows.sort_by(|a, b| {
        let order = a.1.is_active().cmp(&b.1.is_active()).then(rate(b.1).total_cmp(&rate(a.1)));
        order.then_with(|| (&a.0.address, a.1.path).cmp(&(&b.0.address, b.1.path)))
    });
    let cells = rows.into_iter().map(|(peer, path)| {
        let total = peer.path_list.iter().map(rate).sum();
        (path_cells(&peer.address, path, total), !path.is_active())
    });
    cells.collect()
}

/// Why packets are retransmitted: `path order 0 (12), reordering 0 (3), ...`.
pub fn causes(process: &Process) -> String {
    let told = |row: &CauseRow| {
        let cause = row.cause.replace('_', " ").replace("spurious", "for nothing");
        format!("{cause} {} ({})", shown(row.per_s, count), whole(row.packets))
    };
    let told: Vec<String> = process.causes.iter().map(told).collect();
    format!("sent again a second, by cause (and since the beginning): {}", told.join(", "))
}

fn shown<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

/// Three digits.
fn three(value: f64) -> String {
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// 10^9 bits per second.
fn gbps(rate: f64) -> String {
    match rate {
        0.0 => "0".into(),
        _ if rate < 0.001 => "<0.001".into(),
        _ if rate < 0.9995 => format!("{rate:.3}"),
        _ => three(rate),
    }
}

/// How many (a second), with k for thousands and so on.
fn count(number: f64) -> String {
    match number {
        _ if number >= 999.5e6 => format!("{}G", three(number / 1e9)),
        _ if number >= 999.5e3 => format!("{}M", three(number / 1e6)),
        _ if number >= 999.5 => format!("{}k", three(number / 1e3)),
        0.0 => "0".into(),
        _ if number < 9.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// A number of things, with k for thousands and so on.
fn whole(number: u64) -> String {
    if number < 1000 { number.to_string() } else { count(number as f64) }
}

fn percent(share: f64) -> String {
    match share {
        0.0 => "0".into(),
        _ if share < 1e-4 => "<0.01".into(),
        _ => three(100.0 * share),
    }
}

fn microseconds(us: f64) -> String {
    three(us)
}

/// Bytes, with K for 1024 and so on.
fn bytes(bytes: u64) -> String {
    const STEP: f64 = 1024.0;
    let mut scaled = bytes as f64;
    for unit in ["", "K", "M", "G", "T"] {
        if scaled < 999.5 {
            return if unit.is_empty() { bytes.to_string() } else { format!("{}{unit}", three(scaled)) };
        }
        scaled /= STEP;
    }
    format!("{}P", three(scaled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let rates = [0.0, 1e-7, 0.0123, 0.9996, 9.99, 9.996, 99.96, 412.3];
        let shown = ["0", "<0.001", "0.012", "1.00", "9.99", "10.0", "100", "412"];
        assert_eq!(rates.map(gbps), shown);
        let counts = [0.0, 0.25, 9.96, 999.4, 999.6, 12_345.0, 999_600.0, 2.5e9];
        assert_eq!(counts.map(count), ["0", "0.2", "10", "999", "1.00k", "12.3k", "1.00M", "2.50G"]);
        assert_eq!([0, 999, 1000, 65_536, 1 << 30].map(bytes), ["0", "999", "0.98K", "64.0K", "1.00G"]);
        assert_eq!([0.0, 0.00001, 0.021, 1.0].map(percent), ["0", "<0.01", "2.10", "100"]);
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let cells = peer_cells(&PeerRow { over: Over::SharedMemory, ..PeerRow::default() });
        assert_eq!(cells[1], "shared memory");
        assert!(cells[2..12].iter().all(|cell| cell == "-"), "{cells:?}");
    }
}
