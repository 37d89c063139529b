//! What a run of real programs leaves in a directory. Such a run happens once: all of it is taken down while it runs.

use super::calls::{self, CALLS, TIMELINE};
use super::capture::{Captures, chosen};
use super::folder::Folder;
use super::name_index::NameIndex;
use super::rank_goal::{self, GOAL, Sent};
use super::rank_trace::RankTrace;
use super::trace::{MAX_LINES, Trace};
use super::{OUTCOME, PAGE, TRACE};
use crate::apps::Place;
use crate::hosts::{RankContent, RankHost};
use crate::input::Scenario;
use crate::net::{FrameHead, PortId, Sight, Watcher};
use crate::run::{Lived, Offer, Onlooker, Simulation};
use srd_baselines::units::Ps;
use srd_trace::Event;
use srd_virtual::calls::FORMS;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// What is to be taken down of a run of real programs.
#[derive(Clone, Debug)]
pub struct RanksRecording {
    /// Directory; made if it is not there.
    pub dir: PathBuf,
    /// Cables to capture, as [`crate::net::Topology::cables_named`] understands them.
    pub pcap: Vec<String>,
    /// Bytes kept of each captured frame; `None`: its headers.
    pub snap_len: Option<u32>,
    /// Whether packets are traced.
    pub trace: bool,
}

#[derive(Default)]
struct Seen {
    captures: Captures,
    trace: Option<RankTrace>,
}

impl Watcher<RankContent> for Rc<RefCell<Seen>> {
    fn see(&mut self, now: Ps, port: PortId, head: &FrameHead, seen: &RankContent, sight: Sight) {
        let all = &mut *self.borrow_mut();
        if let RankContent::Rank(seen) = seen {
            all.captures.add(now, port, head, seen, sight);
        }
        if let Some(trace) = &mut all.trace {
            trace.see(now, port, head, seen, sight);
        }
    }
}

/// Takes it down.
pub struct RanksRecorder {
    recording: RanksRecording,
    folder: Folder,
    seen: Rc<RefCell<Seen>>,
    files: Vec<String>,
    notes: Vec<String>,
    /// The process of each rank.
    ranks: Vec<u32>,
}

impl RanksRecorder {
    /// At its beginning: what an earlier run has left in the directory goes.
    pub fn new(recording: RanksRecording) -> io::Result<RanksRecorder> {
        let folder = Folder::open(&recording.dir)?;
        folder.clear(&[OUTCOME, TRACE, PAGE, TIMELINE, CALLS.file, GOAL])?;
        Ok(RanksRecorder {
            recording,
            folder,
            seen: Rc::default(),
            files: Vec::new(),
            notes: Vec::new(),
            ranks: Vec::new(),
        })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.recording.dir
    }

    /// The run has ended so. Returns what a person should know, a line each.
    pub fn finish(mut self, scenario: &Scenario, lived: &Lived) -> io::Result<Vec<String>> {
        calls::write_table(&self.folder, &lived.jobs, &lived.calls)?;
        calls::write_timeline(&self.folder, scenario, &lived.jobs, &lived.calls)?;
        let json = serde_json::to_string_pretty(&lived.outcome)?;
        self.folder.write(OUTCOME, &(json + "\n"))?;
        if let Some(trace) = &mut self.seen.borrow_mut().trace {
            for ((number, calls), program) in (0..).zip(&lived.calls).zip(&scenario.traffic.programs) {
                let Place { host, process } = program.at;
                let (job, rank) = lived.jobs.locate(number);
                let job = lived.jobs.are_several().then_some(job);
                for call in calls {
                    trace.trace().call_returned(&Event::CallReturned {
                        t_us: call.ended as f64 / 1e3,
                        job,
                        rank,
                        process: format!("h{host}.{process}"),
                        thread: call.thread,
                        call: FORMS[usize::from(call.kind)].name.into(),
                        began_us: call.began as f64 / 1e3,
                        peer: call.named(),
                        bytes: call.bytes,
                    });
                }
            }
            let rank_of: HashMap<u32, u32> = self.ranks.iter().copied().zip(0..).collect();
            let between_ranks =
                |sent: &Sent| Sent { from: rank_of[&sent.from], to: rank_of[&sent.to], ..*sent };
            let messages: Vec<Sent> = trace.sent().iter().map(between_ranks).collect();
            let rate = scenario.topology.fastest_host();
            rank_goal::write(&self.folder, &messages, self.ranks.len() as u32, rate)?;
            let hosts: BTreeSet<u32> =
                scenario.traffic.programs.iter().map(|program| program.at.host).collect();
            if hosts.len() < self.ranks.len() && scenario.settings.hosts.intra_node.is_some() {
                self.notes.push(format!("{TRACE} and {GOAL} lack what went by hosts' memory"));
            }
            self.notes.extend(trace.finish()?);
            self.files.extend([TRACE, GOAL].map(String::from));
        }
        let files = [OUTCOME, CALLS.file, TIMELINE].map(String::from).into_iter().chain(self.files);
        let files: Vec<String> = files.collect();
        self.notes.push(format!("{} has {}", self.recording.dir.display(), files.join(", ")));
        Ok(self.notes)
    }
}

impl Onlooker for RanksRecorder {
    fn begin(&mut self, scenario: &Scenario, simulation: &mut Simulation<'_, RankHost>) -> io::Result<()> {
        let cables = chosen(scenario, &self.recording.pcap)?;
        let captures = Captures::create(&self.folder, &cables, self.recording.snap_len)?;
        captures.ports().for_each(|port| simulation.fabric.watch(port));
        self.files = cables.into_iter().map(|(_, file)| file).collect();
        let ranks = scenario.traffic.programs.len() as u32;
        self.ranks = (0..ranks).map(|rank| simulation.process_of(rank)).collect();
        let trace = self.recording.trace.then(|| self.begin_trace(scenario, simulation)).transpose()?;
        self.seen.replace(Seen { captures, trace });
        simulation.fabric.watcher = Some(Box::new(Rc::clone(&self.seen)));
        Ok(())
    }

    fn end(&mut self, now: Ps) -> io::Result<()> {
        let captures = std::mem::take(&mut self.seen.borrow_mut().captures);
        self.notes = captures.finish(now)?;
        Ok(())
    }
}

impl RanksRecorder {
    fn begin_trace(
        &self,
        scenario: &Scenario,
        simulation: &mut Simulation<'_, RankHost>,
    ) -> io::Result<RankTrace> {
        (0..simulation.fabric.ports()).for_each(|port| simulation.fabric.watch(PortId(port)));
        let processes: Vec<_> = simulation.places().map(|(place, _)| (place, None)).collect();
        let names = Arc::new(NameIndex::of(scenario, simulation, &processes));
        let first_line = Event::Run {
            format: srd_trace::FORMAT,
            scenario: scenario.settings.name.clone(),
            seed: scenario.settings.seed,
            flows: 0,
            traced: 0,
            base_rtt_us: Offer::of(scenario).base_rtt.as_micros(),
            host: None,
        };
        let out = self.folder.create(TRACE)?;
        let trace = Trace::new(names.clone(), out, MAX_LINES, std::iter::empty(), &first_line);
        Ok(RankTrace::new(trace, names))
    }
}
