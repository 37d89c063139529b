//! What is looked at every now and then while a run goes on: rates of flows, queues, paths, and everything together.

use super::folder::Folder;
use super::name_index::NameIndex;
use super::observed::Observed;
use super::plan::Plan;
use super::table::{Cell, Columns, Table};
use crate::apps::{Flow, Size};
use crate::hosts::{FIRST_SOURCE_PORT, Srd};
use crate::input::Scenario;
use crate::net::PortId;
use crate::run::{FlowState, Simulation};
use srd_baselines::units::Ps;
use srd_proto::{PathReport, PathState, PeerReport};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// Rates of flows over time.
pub const RATES: Columns = Columns {
    file: "rates.csv",
    names: &["time_us", "flow", "delivered_gbps", "window_bytes", "inflight_bytes", "rtt_us"],
};
/// Queues over time.
pub const QUEUES: Columns = Columns { file: "queues.csv", names: &["time_us", "port", "waiting_bytes"] };
/// Everything together over time.
pub const TOTALS: Columns = Columns {
    file: "totals.csv",
    names: &["time_us", "active_flows", "delivered_gbps", "packets_rtx", "packets_dropped"],
};
/// Paths over time.
pub const PATHS: Columns = Columns {
    file: "paths.csv",
    names: &[
        "time_us",
        "src_host",
        "src_process",
        "dst_host",
        "dst_process",
        "path",
        "source_port",
        "state",
        "sent_bytes",
    ],
};
/// Most paths whose state at the end is told: some 20 MB.
const MAX_LAST_PATHS: u64 = 400_000;

/// What was sampled, to be drawn.
#[derive(Default)]
pub(super) struct Series {
    /// When.
    pub(super) times: Vec<Ps>,
    /// Of each flow sampled: its rate in Gb/s, where it had begun and not ended.
    pub(super) rates: Vec<Vec<Option<f32>>>,
    /// Of each port sampled: bytes that waited.
    pub(super) queues: Vec<Vec<u64>>,
    /// All flows together, in Gb/s.
    pub(super) delivered: Vec<f64>,
    /// Of each path of each connection, at the end: what it carried by what each carried on average.
    pub(super) path_shares: Vec<f32>,
    /// Connections that these belong to.
    pub(super) connections: u64,
    /// Paths that were not in use at the end.
    pub(super) paths_unused: u64,
}

/// What a row of paths.csv says of a path.
type PathRow = (u16, PathState, u64);

/// See the module.
pub(super) struct Sampler {
    names: Arc<NameIndex>,
    plan: Plan,
    port_names: Vec<String>,
    rates: Table,
    queues: Table,
    totals: Table,
    paths: Table,
    pub(super) series: Series,
    /// Of the flows sampled: bytes delivered so far, and whether the end has been seen.
    delivered: Vec<(u64, bool)>,
    /// Flows that have not come to their end.
    open: Vec<u32>,
    /// When each flow without end is told to stop.
    until: Vec<Ps>,
    delivered_in_all: u64,
    last_paths: HashMap<(u32, u32, u8), PathRow>,
    last_time: Ps,
}

/// Bytes in so long, in Gb/s.
fn gbps(bytes: u64, span: Ps) -> f64 {
    bytes as f64 * 8000.0 / span.0.max(1) as f64
}

/// Whether a flow has come to its end.
fn is_over(state: &FlowState, until: Ps, now: Ps) -> bool {
    state.sent.is_some() || state.failed.is_some() || until <= now
}

impl Sampler {
    pub(super) fn create(
        folder: &Folder,
        names: Arc<NameIndex>,
        plan: Plan,
        scenario: &Scenario,
    ) -> io::Result<Sampler> {
        let until = |flow: &Flow| match flow.size {
            Size::Bytes(_) => Ps::NEVER,
            Size::Until(until) => until,
        };
        let flows = &scenario.traffic.flows;
        Ok(Sampler {
            until: flows.iter().map(until).collect(),
            port_names: plan.ports.iter().map(|&port| names.port_name(port)).collect(),
            rates: Table::create(folder, RATES)?,
            queues: Table::create(folder, QUEUES)?,
            totals: Table::create(folder, TOTALS)?,
            paths: Table::create(folder, PATHS)?,
            series: Series {
                rates: vec![Vec::new(); plan.flows.len()],
                queues: vec![Vec::new(); plan.ports.len()],
                ..Series::default()
            },
            delivered: vec![(0, false); plan.flows.len()],
            open: (0..flows.len() as u32).collect(),
            delivered_in_all: 0,
            last_paths: HashMap::new(),
            last_time: Ps::ZERO,
            names,
            plan,
        })
    }

    /// The pause between samples.
    pub(super) fn step(&self) -> Ps {
        self.plan.step
    }

    /// Looks at everything, now.
    pub(super) fn sample(&mut self, simulation: &mut Simulation<'_, Observed>) -> io::Result<()> {
        let span = simulation.now - self.last_time;
        if span == Ps::ZERO {
            return Ok(());
        }
        self.sample_rates(simulation, span)?;
        self.sample_queues(simulation)?;
        self.sample_totals(simulation, span)?;
        if (self.series.times.len() as u64).is_multiple_of(self.plan.paths_every) {
            self.sample_paths(simulation)?;
        }
        self.series.times.push(simulation.now);
        self.last_time = simulation.now;
        Ok(())
    }

    fn sample_rates(&mut self, simulation: &mut Simulation<'_, Observed>, span: Ps) -> io::Result<()> {
        let mut rates = Vec::with_capacity(self.plan.flows.len());
        for (&flow, (before, over)) in self.plan.flows.iter().zip(&mut self.delivered) {
            let state = simulation.flows[flow as usize];
            if *over || state.started.is_none() {
                rates.push(None);
                continue;
            }
            let delivered = simulation.delivered(flow);
            rates.push(Some(gbps(delivered.saturating_sub(std::mem::replace(before, delivered)), span)));
            *over = is_over(&state, self.until[flow as usize], simulation.now);
        }
        let transports: Vec<&Observed> = simulation.transports().collect();
        for ((&flow, rate), series) in self.plan.flows.iter().zip(rates).zip(&mut self.series.rates) {
            series.push(rate.map(|rate| rate as f32));
            let Some(rate) = rate else { continue };
            let (from, to) = self.names.ends(flow);
            let peer = peer_of(transports[from as usize], &self.names, to);
            self.rates.row([
                simulation.now.into(),
                self.names.id(flow).into(),
                rate.into(),
                peer.map(|peer| peer.window_bytes).into(),
                peer.map(|peer| peer.inflight_bytes).into(),
                peer.map(|peer| Ps::from(peer.rtt)).filter(|&rtt| rtt > Ps::ZERO).into(),
            ])?;
        }
        Ok(())
    }

    fn sample_queues(&mut self, simulation: &Simulation<'_, Observed>) -> io::Result<()> {
        let ports = self.plan.ports.iter().zip(&self.port_names);
        for ((&port, name), series) in ports.zip(&mut self.series.queues) {
            let waiting = simulation.fabric.waiting(simulation.now, port);
            series.push(waiting);
            self.queues.row([simulation.now.into(), name.as_str().into(), waiting.into()])?;
        }
        Ok(())
    }

    fn sample_totals(&mut self, simulation: &mut Simulation<'_, Observed>, span: Ps) -> io::Result<()> {
        let until = &self.until;
        self.open
            .retain(|&flow| !is_over(&simulation.flows[flow as usize], until[flow as usize], simulation.now));
        let begun = |flow: &&u32| simulation.flows[**flow as usize].started.is_some();
        let active = self.open.iter().filter(begun).count();
        let bytes: u64 = simulation.transports_mut().map(Observed::bytes_in).sum();
        let rate = gbps(bytes.saturating_sub(std::mem::replace(&mut self.delivered_in_all, bytes)), span);
        self.series.delivered.push(rate);
        let fabric = &simulation.fabric;
        let dropped: u64 = (0..fabric.ports()).map(|port| fabric.counters(PortId(port)).dropped).sum();
        self.totals.row([
            simulation.now.into(),
            (active as u64).into(),
            rate.into(),
            simulation.counts().data_again.into(),
            (dropped + simulation.host_losses.ring).into(),
        ])
    }

    // ---- paths ----

    /// Writes the paths that have changed since they were looked at last.
    fn sample_paths(&mut self, simulation: &Simulation<'_, Observed>) -> io::Result<()> {
        let transports: Vec<&Observed> = simulation.transports().collect();
        for (from, to) in self.plan.connections.clone() {
            let Some(peer) = peer_of(transports[from as usize], &self.names, to) else { continue };
            let Some(srd) = transports[from as usize].srd() else { continue };
            for path in srd.endpoint().paths(peer.id) {
                self.write_path(simulation.now, from, to, &path, false)?;
            }
        }
        Ok(())
    }

    fn write_path(&mut self, now: Ps, from: u32, to: u32, path: &PathReport, always: bool) -> io::Result<()> {
        let row = (path.entropy, path.state, path.bytes);
        if !always && self.last_paths.insert((from, to, path.path.0), row) == Some(row) {
            return Ok(());
        }
        let (src, dst) = (self.names.place(from), self.names.place(to));
        let state = match path.state {
            PathState::Active => "active",
            PathState::Suspect => "suspect",
            PathState::Down => "down",
            PathState::Probing => "probing",
        };
        self.paths.row([
            now.into(),
            src.host.into(),
            src.process.into(),
            dst.host.into(),
            dst.process.into(),
            Cell::Count(path.path.0 as u64),
            (FIRST_SOURCE_PORT + path.entropy).into(),
            state.into(),
            path.bytes.into(),
        ])
    }

    /// The run has ended: writes the last of all paths. Returns what is to be drawn, and what a person should know.
    pub(super) fn finish(
        mut self,
        simulation: &Simulation<'_, Observed>,
    ) -> io::Result<(Plan, Series, Vec<String>)> {
        let mut seen = 0;
        for (from, transport) in (0..).zip(simulation.transports()) {
            let Some(endpoint) = transport.srd().map(Srd::endpoint) else { continue };
            for peer in endpoint.peers() {
                let [.., b, c, d] = peer.addr.gid.0;
                let host = u32::from_be_bytes([0, b, c, d]);
                let Some(to) = self.names.process_on(host, peer.addr.port) else { continue };
                let paths: Vec<PathReport> = endpoint.paths(peer.id).collect();
                seen += paths.len() as u64;
                if seen <= MAX_LAST_PATHS {
                    self.note_shares(&paths);
                    let now = simulation.now;
                    paths.iter().try_for_each(|path| self.write_path(now, from, to, path, true))?;
                }
            }
        }
        let mut notes = Vec::new();
        if seen > MAX_LAST_PATHS {
            notes.push(format!("of {seen} paths, paths.csv and the page tell of the first {MAX_LAST_PATHS}"));
        }
        for table in [self.rates, self.queues, self.totals, self.paths] {
            table.finish()?;
        }
        Ok((self.plan, self.series, notes))
    }

    fn note_shares(&mut self, paths: &[PathReport]) {
        let sum: u64 = paths.iter().map(|path| path.bytes).sum();
        if sum == 0 {
            return;
        }
        let series = &mut self.series;
        let mean = sum as f64 / paths.len() as f64;
        series.connections += 1;
        series.path_shares.extend(paths.iter().map(|path| (path.bytes as f64 / mean) as f32));
        series.paths_unused += paths.iter().filter(|path| path.state != PathState::Active).count() as u64;
    }
}

/// The context of a process with process number `to`, of those that speak SRD.
fn peer_of(transport: &Observed, names: &NameIndex, to: u32) -> Option<PeerReport> {
    let addr = names.address(to)?;
    transport.srd()?.endpoint().peers().find(|peer| peer.addr == addr)
}
