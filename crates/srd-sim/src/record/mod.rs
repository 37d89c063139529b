//! What a run leaves in a directory: its outcome, tables over flows and time, captures of cables, a trace, and a page
//! with figures. docs/OUTPUTS.md is the reference.
//!
//! A run that is recorded runs twice. The first time nobody looks, so that what it costs is what it costs; the second
//! time everybody does, and it must come to the same outcome. Everything but costs, and the command and program that the
//! page names, depends on scenario and seed alone.
//!
//! `plan` decides what is looked at, `name_index` knows who is who, `samples` and `tables` write the tables (`table`),
//! `frame_bytes` and `capture` the captures, `trace`, `transport_events` and `observed` the trace (`frame_metadata` is what only a packet's sender
//! knows of it), `page` the page, with the charts of `srd-chart`.
//! `ranks` is what real programs leave, which run once: `calls` of MPI, a trace of their messages (`rank_trace`), and these in GOAL (`rank_goal`).
//! `srd-trace` says what lines of a trace are, and reads them. `verified` is a run in which every packet goes through the wire format.

mod calls;
mod capture;
mod folder;
mod frame_bytes;
mod frame_metadata;
mod name_index;
mod observed;
mod page;
mod plan;
mod rank_goal;
mod rank_trace;
mod ranks;
mod samples;
mod table;
mod tables;
mod trace;
mod transport_events;
mod verified;

pub use calls::{CALLS, TIMELINE, read_calls};
pub use capture::LONGEST_FRAME;
pub(crate) use folder::explained;
pub use folder::write_whole;
pub use frame_metadata::FrameMetadata;
pub use observed::Observed;
pub(crate) use page::distribution;
pub use page::{RanksRun, write_ranks_page};
pub use rank_goal::GOAL;
pub use ranks::{RanksRecorder, RanksRecording};
pub use table::Columns;
pub(crate) use table::quoted;
pub use verified::{check_verified, run_verified};

use crate::apps::Size;
use crate::hosts::{AnyHost, Process, Srd};
use crate::input::Scenario;
use crate::net::{Fabric, FrameHead, PortId, Sight, Watcher};
use crate::run::{self, Meter, Offer, Outcome, Ran, Simulation};
use capture::Captures;
use folder::Folder;
use name_index::NameIndex;
use plan::Plan;
use samples::Sampler;
use srd_baselines::units::Ps;
use srd_baselines::wire::Streams;
use srd_trace::{Event, TraceFile};
use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use trace::Trace;

/// The outcome, as `srd sim --json` prints it.
pub const OUTCOME: &str = "outcome.json";
/// The trace.
pub const TRACE: &str = "trace.jsonl";
/// The page.
pub const PAGE: &str = "index.html";
/// All tables.
pub const TABLES: [Columns; 7] = [
    tables::FLOWS,
    samples::RATES,
    samples::TOTALS,
    samples::QUEUES,
    samples::PATHS,
    tables::PORTS,
    tables::PROGRAMS,
];

/// How often whoever watches is told how far it is.
const WATCH_EVERY: Duration = Duration::from_millis(30);

/// Which flows' packets are traced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Traced {
    /// None: there is no trace.
    No,
    /// As many as make a trace of some 25 MB: the slowest, and the fastest to compare with.
    AsManyAsFit,
    /// So many of the slowest.
    Slowest(u32),
    /// Those with these numbers.
    Flows(Vec<u32>),
    /// All.
    All,
}

/// What a run is to leave behind.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Directory; made if it is not there.
    pub dir: PathBuf,
    /// Cables to capture, as [`crate::net::Topology::cables_named`] understands them.
    pub pcap: Vec<String>,
    /// Bytes kept of each captured frame; `None`: its headers.
    pub snap_len: Option<u32>,
    /// Flows to trace.
    pub traced: Traced,
    /// Puts every packet through the wire format: encoded, decoded, and compared.
    pub verify: bool,
    /// The command line, for the page.
    pub command: String,
    /// Which program this is, for the page: a version or a commit.
    pub program: String,
}

impl Recording {
    /// The usual: no captures, a trace that fits.
    pub fn to(dir: impl Into<PathBuf>) -> Recording {
        Recording {
            dir: dir.into(),
            pcap: Vec::new(),
            snap_len: None,
            traced: Traced::AsManyAsFit,
            verify: false,
            command: String::new(),
            program: program(),
        }
    }
}

/// The commit that this is built from (`build.rs`).
pub const COMMIT: &str = match option_env!("SRD_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// This program: its version, and the commit that it was built from.
pub fn program() -> String {
    format!("OpenSRD {} (commit {COMMIT})", env!("CARGO_PKG_VERSION"))
}

/// A run that has been recorded.
#[derive(Clone, PartialEq, Debug)]
pub struct Recorded {
    /// What became of it.
    pub ran: Ran,
    /// Names of the files in the directory.
    pub files: Vec<String>,
    /// What a person should know about them: what was left out.
    pub notes: Vec<String>,
}

/// Runs a scenario and records it. `watch` is told every now and then which share of the work is done; `None` if it
/// returned false: the run was given up.
pub fn run(
    scenario: &Scenario,
    recording: &Recording,
    watch: &mut dyn FnMut(f64) -> bool,
) -> io::Result<Option<Recorded>> {
    plan::check_traced(&recording.traced, scenario)?;
    let cables = capture::chosen(scenario, &recording.pcap)?;
    check_recording(recording, scenario)?;
    let folder = Folder::open(&recording.dir)?;
    let mut names: Vec<&str> = vec![OUTCOME, TRACE, PAGE];
    names.extend(TABLES.iter().map(|table| table.file));
    folder.clear(&names)?;

    let offer = Offer::of(scenario);
    let first = match run::is_plain(scenario) {
        true => run_first::<Srd>(scenario, &offer, &recording.traced, watch),
        false => run_first::<AnyHost>(scenario, &offer, &recording.traced, watch),
    };
    let Some((ran, plan)) = first else { return Ok(None) };
    let json = serde_json::to_string_pretty(&ran.outcome)?;
    folder.write(OUTCOME, &(json + "\n"))?;

    let mut second = Second::prepare(scenario, &offer, recording, &folder, plan, &cables)?;
    if !second.run(&ran.outcome, watch)? {
        return Ok(None);
    }
    let mut files: Vec<String> = vec![PAGE.into(), OUTCOME.into()];
    let tables = tables_of(scenario);
    files.extend(tables.map(|table| table.file.to_string()));
    files.extend(second.trace.iter().map(|_| TRACE.to_string()));
    files.extend(cables.into_iter().map(|(_, file)| file));
    let notes = second.finish(&ran, &files, recording)?;
    Ok(Some(Recorded { ran, files, notes }))
}

/// The tables that a run leaves.
fn tables_of(scenario: &Scenario) -> impl Iterator<Item = Columns> {
    let programs = !scenario.traffic.programs.is_empty();
    TABLES.into_iter().filter(move |table| programs || table.file != tables::PROGRAMS.file)
}

/// Whether there is something to verify, if somebody wants it.
fn check_recording(recording: &Recording, scenario: &Scenario) -> io::Result<()> {
    match recording.verify {
        true => check_verified(scenario)
            .map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, what.to_string())),
        false => Ok(()),
    }
}

/// The run that nobody looks at, and what is to be looked at in the second one.
fn run_first<T: Process>(
    scenario: &Scenario,
    offer: &Offer,
    traced: &Traced,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Option<(Ran, Plan)> {
    let meter = Meter::start();
    let mut plain: Simulation<'_, T> = run::prepare_hosts(scenario, offer);
    if !run::drive(&mut plain, scenario, offer, &mut |share| watch(share / 2.0)) {
        return None;
    }
    let ran = Ran::of(&mut plain, scenario, offer, &meter);
    let plan = Plan::after(&mut plain, scenario, traced);
    Some((ran, plan))
}

/// The run that is looked at.
struct Second<'a> {
    scenario: &'a Scenario,
    offer: &'a Offer,
    folder: &'a Folder,
    simulation: Simulation<'a, Observed>,
    names: Arc<NameIndex>,
    sampler: Sampler,
    captures: Option<Rc<RefCell<Captures>>>,
    trace: Option<Arc<Mutex<Trace>>>,
    notes: Vec<String>,
}

impl<'a> Second<'a> {
    fn prepare(
        scenario: &'a Scenario,
        offer: &'a Offer,
        recording: &Recording,
        folder: &'a Folder,
        mut plan: Plan,
        cables: &[(u32, String)],
    ) -> io::Result<Second<'a>> {
        let mut simulation: Simulation<'_, Observed> = run::prepare_hosts(scenario, offer);
        simulation.keep_order();
        let port = |process: &Observed| Some(process.srd()?.endpoint().ports()[0]);
        let processes: Vec<_> =
            simulation.transports().map(|process| (process.at(), port(process))).collect();
        let names = Arc::new(NameIndex::of(scenario, &simulation, &processes));
        let notes = std::mem::take(&mut plan.notes);
        let trace = match recording.traced {
            Traced::No => None,
            _ => Some(Arc::new(Mutex::new(start_trace(scenario, offer, folder, &names, &plan.traced)?))),
        };
        let captures = match cables {
            [] => None,
            _ => Some(Rc::new(RefCell::new(Captures::create(folder, cables, recording.snap_len)?))),
        };
        let streams = captures.as_ref().map(|_| Rc::new(RefCell::new(Streams::default())));
        for (process, transport) in (0..).zip(simulation.transports_mut()) {
            if recording.verify {
                transport.verify();
            }
            if let Some(streams) = &streams {
                transport.capture_with(streams.clone());
            }
            if let Some(trace) = &trace {
                transport.trace_to(trace.clone(), process);
            }
        }
        let onlooker = Onlooker { captures: captures.clone(), trace: trace.clone() };
        onlooker.watch(&mut simulation.fabric);
        let sampler = Sampler::create(folder, names.clone(), plan, scenario)?;
        Ok(Second { scenario, offer, folder, simulation, names, sampler, captures, trace, notes })
    }

    /// Runs to the end. Returns whether it came there, and fails if it came to another outcome than `first`.
    fn run(&mut self, first: &Outcome, watch: &mut dyn FnMut(f64) -> bool) -> io::Result<bool> {
        let mut told = Instant::now();
        let mut until = Ps::ZERO;
        loop {
            until += self.sampler.step();
            let more = self.simulation.run(until);
            self.sampler.sample(&mut self.simulation)?;
            if !more {
                watch(1.0);
                break;
            }
            if told.elapsed() >= WATCH_EVERY {
                told = Instant::now();
                if !watch(0.5 + 0.5 * self.simulation.now.as_micros() / first.sim_us) {
                    return Ok(false);
                }
            }
        }
        let defect = self.simulation.transports().find_map(Observed::defect).map(str::to_string);
        let second = Outcome::of(&mut self.simulation, self.offer.ideal, &Meter::start());
        let same = Outcome { cost: first.cost, ..second } == *first;
        match defect {
            Some(defect) => Err(io::Error::other(format!("verification: {defect}"))),
            None if !same => Err(io::Error::other(
                "the run came to another outcome when it was recorded, which is a defect of the simulator: please \
                 report it with scenario and seed",
            )),
            None => Ok(true),
        }
    }

    /// Writes what is written at the end. Returns what a person should know.
    fn finish(mut self, ran: &Ran, files: &[String], recording: &Recording) -> io::Result<Vec<String>> {
        let mut notes = self.notes;
        self.simulation.fabric.watcher = None;
        if let Some(captures) = self.captures {
            notes.extend(captures.take().finish(self.simulation.now)?);
        }
        let traced = self.trace.is_some();
        if let Some(trace) = self.trace {
            notes.extend(trace.lock().expect("nobody panics while writing a trace").finish()?);
        }
        let (plan, series, more) = self.sampler.finish(&self.simulation)?;
        notes.extend(more);
        let delivered = tables::write_flows(self.folder, self.scenario, &self.names, &mut self.simulation)?;
        tables::write_ports(self.folder, self.scenario, &self.names, &self.simulation)?;
        if !self.scenario.traffic.programs.is_empty() {
            tables::write_programs(self.folder, &ran.outcome)?;
        }
        let told = match traced {
            true => Some(TraceFile::read(&recording.dir.join(TRACE))?),
            false => None,
        };
        let page = page::Page {
            scenario: self.scenario,
            offer: self.offer,
            ran,
            recording,
            files,
            notes: &notes,
            plan: &plan,
            series: &series,
            names: &self.names,
            simulation: &self.simulation,
            delivered: &delivered,
            told: told.as_ref(),
        };
        self.folder.write(PAGE, &page.html())?;
        Ok(notes)
    }
}

fn start_trace(
    scenario: &Scenario,
    offer: &Offer,
    folder: &Folder,
    names: &Arc<NameIndex>,
    traced: &[u32],
) -> io::Result<Trace> {
    let flows = &scenario.traffic.flows;
    let first_line = Event::Run {
        format: srd_trace::FORMAT,
        scenario: scenario.settings.name.clone(),
        seed: scenario.settings.seed,
        flows: flows.len() as u32,
        traced: traced.len() as u32,
        base_rtt_us: offer.base_rtt.as_micros(),
        host: None,
    };
    let sized = traced.iter().map(|&flow| match flows[flow as usize].size {
        Size::Bytes(bytes) => (flow, Some(bytes)),
        Size::Until(_) => (flow, None),
    });
    Ok(Trace::new(names.clone(), folder.create(TRACE)?, trace::MAX_LINES, sized, &first_line))
}

/// Sees frames on ports, for captures and the trace.
struct Onlooker {
    captures: Option<Rc<RefCell<Captures>>>,
    trace: Option<Arc<Mutex<Trace>>>,
}

impl Onlooker {
    /// Takes its place at the ports that matter.
    fn watch(self, fabric: &mut Fabric<FrameMetadata>) {
        if let Some(captures) = &self.captures {
            captures.borrow().ports().for_each(|port| fabric.watch(port));
        }
        if self.trace.is_some() {
            (0..fabric.ports()).for_each(|port| fabric.watch(PortId(port)));
        }
        if self.captures.is_some() || self.trace.is_some() {
            fabric.watcher = Some(Box::new(self));
        }
    }
}

impl Watcher<FrameMetadata> for Onlooker {
    fn see(&mut self, now: Ps, port: PortId, head: &FrameHead, seen: &FrameMetadata, sight: Sight) {
        if let Some(captures) = &self.captures {
            captures.borrow_mut().add(now, port, head, seen, sight);
        }
        if let Some(trace) = &self.trace {
            let mut trace = trace.lock().expect("nobody panics while writing a trace");
            let packet = trace.packet_of(head, seen);
            trace.see(now, port, head, packet, sight);
        }
    }
}
