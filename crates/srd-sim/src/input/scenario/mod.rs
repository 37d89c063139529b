//! Scenario files: TOML that says what a run is made of. docs/SCENARIOS.md is the reference.
//!
//! `document` knows where everything was written, `section` reads values and complains about them, the other files
//! hold one section each. Nothing is passed over in silence: unknown keys are errors, all else is in
//! [`Scenario::notes`].

mod control_law;
mod fabric;
mod faults;
mod hosts;
mod programs;
mod queues;
mod routing;
mod transport;
mod workloads;

use crate::apps::{Program, Size, Start, Traffic};
use crate::hosts::{MessageProtocol, Settings, TransportSettings};
use crate::net::{QueueSettings, Topology};
use srd_baselines::document::Document;
use srd_baselines::input::{InputError, read_text, shown};
use srd_baselines::section::Section;
use srd_baselines::units::Ps;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
pub use workloads::MOST_PROCESSES;

/// Keys of the top level.
pub const KEYS: [&str; 15] = [
    "name",
    "seed",
    "end_us",
    "fabric",
    "queues",
    "routing",
    "host",
    "transport",
    "rival",
    "law",
    "messages",
    "workload",
    "program",
    "fault",
    "sample",
];
const SAMPLE_KEYS: [&str; 1] = ["every_us"];
const MESSAGES_KEYS: [&str; 4] = ["layer", "eager_limit", "eager_buffer", "header"];

/// End of runs whose flows all have a size, unless the file says otherwise: an emergency brake.
const DEFAULT_END: Ps = Ps::from_micros(10_000_000);

/// A run, complete.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Everything but topology and traffic.
    pub settings: Settings,
    /// The fabric.
    pub topology: Topology,
    /// What it is to move.
    pub traffic: Traffic,
    /// What a person should know about the reading of the files: words that were passed over.
    pub notes: Vec<String>,
}

/// What all sections may need.
struct Context<'a> {
    document: &'a Document,
    /// Where files named in the scenario are looked for.
    directory: &'a Path,
    notes: Vec<String>,
}

impl Context<'_> {
    /// The text of the file that `key` of `section` names, and the name for messages.
    fn read_file(&self, section: &Section<'_>, key: &str) -> Result<(String, String), InputError> {
        let name = section.needed(key, section.text(key)?, "\"file\"")?;
        let path = self.directory.join(name);
        let text = read_text(&path).map_err(|error| section.error_at(key, error.to_string()))?;
        Ok((text, path.display().to_string()))
    }
}

impl Scenario {
    /// Reads the file at `path` and applies the overrides `sets`, each `section.key=value`.
    pub fn load(path: &Path, sets: &[String]) -> Result<Scenario, InputError> {
        let text = read_text(path)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        Scenario::parse(&text, &path.display().to_string(), directory, sets)
    }

    /// Reads `text`, called `file` in errors; files that it names are looked for in `directory`.
    pub fn parse(text: &str, file: &str, directory: &Path, sets: &[String]) -> Result<Scenario, InputError> {
        Scenario::read(text, file, directory, sets, None, DEFAULT_END)
    }

    /// A scenario without workloads, whose traffic is programs.
    pub fn of_programs(
        text: &str,
        file: &str,
        sets: &[String],
        programs: Vec<Program>,
    ) -> Result<Scenario, InputError> {
        Scenario::read(text, file, Path::new(""), sets, Some(programs), DEFAULT_END)
    }

    /// The file at `path`, which has no traffic, for processes of real programs. `sets` as for [`Scenario::load`]. Unless the file says when the
    /// run ends, only they end it.
    pub fn load_for_processes(
        path: &Path,
        sets: &[String],
        programs: Vec<Program>,
    ) -> Result<Scenario, InputError> {
        let (text, file) = (read_text(path)?, path.display().to_string());
        let mut document = Document::parse(&text, &file)?;
        sets.iter().try_for_each(|set| document.set(set))?;
        let root = Section::root(&document, &KEYS)?;
        for key in ["program", "messages"] {
            if root.has(key) {
                let message = "is of programs that the simulator plays, and here a real one runs: leave it out (other traffic is a [[workload]])";
                return Err(root.error_at(key, message));
            }
        }
        let directory = path.parent().unwrap_or(Path::new(""));
        // As on any host, unless the file says otherwise.
        let share = !Section::of(&document, "host")?.has("shared_memory");
        let own = share.then(|| "host.shared_memory=true".to_string());
        let sets: Vec<String> = sets.iter().cloned().chain(own).collect();
        Scenario::read(&text, &file, directory, &sets, Some(programs), Ps::NEVER)
    }

    fn read(
        text: &str,
        file: &str,
        directory: &Path,
        sets: &[String],
        programs: Option<Vec<Program>>,
        usual_end: Ps,
    ) -> Result<Scenario, InputError> {
        let mut document = Document::parse(text, file)?;
        sets.iter().try_for_each(|set| document.set(set))?;
        let mut context = Context { document: &document, directory, notes: Vec::new() };
        let root = Section::root(&document, &KEYS)?;
        let name = match root.text("name")? {
            Some(name) => name.to_string(),
            None => Path::new(file)
                .file_stem()
                .map_or("scenario".into(), |stem| stem.to_string_lossy().into_owned()),
        };
        let seed = root.whole("seed", 0..=i64::MAX as u64)?.unwrap_or(1);
        let given_end = root.some_micros("end_us")?;
        let end = given_end.unwrap_or(usual_end);
        // Real programs say themselves when they have come to their end.
        let given_end = given_end.or(programs.is_some().then_some(end));
        let awaits_processes = programs.is_some();

        let wires = transport::wires(&document)?;
        let mtu = transport::largest_mtu(&wires);
        let fabric::Fabric { topology, frame_overhead } = fabric::read(&mut context, mtu)?;
        let sizes = crate::net::PacketSizes::of(mtu, frame_overhead);
        let bdp = transport::bdp(&wires, &topology, sizes);
        let queues = queues::read(&document, bdp, sizes.data)?;
        let routing = routing::read(&document, &topology, bdp, topology.longest_base_rtt(sizes))?;
        let transports = transport::read(&document, wires, &topology, sizes, &queues, &routing, bdp)?;
        context.notes.extend(idle_queues(&queues, &transports));
        let workloads::Load { mut traffic, mut faults } = match programs.is_some() && !root.has("workload") {
            true => workloads::Load { traffic: Traffic::default(), faults: Vec::new() },
            false => workloads::read(&mut context, &topology, &transports, bdp, seed, given_end)?,
        };
        traffic.make_room(programs.unwrap_or_default());
        programs::read(&mut context, &topology, &transports, bdp, seed, &mut traffic)?;
        check_times(&root, &traffic, given_end, end)?;
        check_processes(&root, &traffic)?;
        faults.extend(faults::read(&mut context, &topology, seed, end)?);
        faults.sort_by_key(|fault| fault.at);
        let over_srd_messaging = over_srd_messaging(&document, &transports, &traffic)?;
        let settings = Settings {
            name,
            seed,
            end,
            queues,
            routing,
            hosts: hosts::read(&document, topology.hosts)?,
            transports,
            messages: srd_msg::Config::default(),
            protocol: protocol(&document, bdp)?,
            over_srd_messaging,
            awaits_processes,
            faults,
            sample_every: Section::of(&document, "sample")?
                .only(&SAMPLE_KEYS)?
                .micros("every_us")?
                .unwrap_or(Ps::ZERO),
            frame_overhead,
        };
        Ok(Scenario { settings, topology, traffic, notes: context.notes })
    }
}

/// Reads `[messages]`.
fn protocol(document: &Document, bdp: u64) -> Result<MessageProtocol, InputError> {
    let section = Section::of(document, "messages")?.only(&MESSAGES_KEYS)?;
    let usual = MessageProtocol::default();
    Ok(MessageProtocol {
        eager_limit: section.bytes("eager_limit", 0)?.map_or(usual.eager_limit, |bytes| bytes.with_bdp(bdp)),
        eager_buffer: section
            .bytes("eager_buffer", 0)?
            .map_or(usual.eager_buffer, |bytes| bytes.with_bdp(bdp)),
        header: section.whole("header", 1..=1024)?.unwrap_or(usual.header),
    })
}

/// Whether programs run over SRD's own messaging layer.
fn over_srd_messaging(
    document: &Document,
    transports: &[TransportSettings],
    traffic: &Traffic,
) -> Result<bool, InputError> {
    let section = Section::of(document, "messages")?.only(&MESSAGES_KEYS)?;
    let srd = section.word("layer", &[("flows", false), ("srd", true)])?.unwrap_or(false);
    if srd && !matches!(transports, [only] if only.srd().is_some()) {
        return Err(section.error_at("layer", "is SRD's own, and other transports are here: leave it out"));
    }
    if srd && !traffic.flows.is_empty() {
        return Err(section
            .error_at("layer", "is that of programs, and there is a [[workload]]: leave one of them out"));
    }
    if let Some(key) = MESSAGES_KEYS[1..].iter().find(|key| srd && section.has(key)) {
        return Err(section.error_at(key, "is of messages over flows: leave it out, or `layer`"));
    }
    Ok(srd)
}

/// What switches are told to do for transports that are not there.
fn idle_queues(queues: &QueueSettings, transports: &[TransportSettings]) -> Vec<String> {
    let mut notes = Vec::new();
    let cut =
        |transport: &TransportSettings| queues.trims(transport.class) && transport.choice.takes_cut_packets();
    if queues.trim && !transports.iter().any(cut) {
        notes.push(
            "no transport here makes anything of packets that switches cut: they count as lost (`trim`)"
                .into(),
        );
    }
    let used = transports.iter().fold(0u8, |used, transport| used | 1 << transport.class);
    // Where all classes pause together, none is meant in particular.
    if queues.lossless() != u8::MAX && queues.lossless() & !used != 0 {
        let idle: Vec<String> = (0..8)
            .filter(|class| queues.lossless() & !used & 1 << class != 0)
            .map(|class| class.to_string())
            .collect();
        let classes = idle.join(", ");
        notes.push(format!(
            "no transport here sends in lossless class {classes}: `class` of a transport says its class"
        ));
    }
    notes
}

/// Flows must begin, and those that go on until a time must end, before the run does.
fn check_times(
    root: &Section<'_>,
    traffic: &Traffic,
    given_end: Option<Ps>,
    end: Ps,
) -> Result<(), InputError> {
    let workload = |index: u16| shown(&traffic.workloads[index as usize]);
    for flow in &traffic.flows {
        if matches!(flow.size, Size::Until(_)) && given_end.is_none() {
            let message = format!("workload {} goes on until a time", workload(flow.workload));
            return Err(root.error(format!("`end_us` is missing, and {message}: say when the run ends")));
        }
        if let Start::At(start) = flow.start
            && start >= end
        {
            let (start, end) = (start.as_micros(), end.as_micros());
            let message =
                format!("the run ends at {end} us, but a flow of workload {}", workload(flow.workload));
            return Err(
                root.error_at("end_us", format!("{message} begins at {start} us: write a larger `end_us`"))
            );
        }
        if let Size::Until(until) = flow.size
            && until > end
        {
            let (until, end) = (until.as_micros(), end.as_micros());
            let message =
                format!("the run ends at {end} us, but a flow of workload {}", workload(flow.workload));
            return Err(root
                .error_at("end_us", format!("{message} goes on until {until} us: write a larger `end_us`")));
        }
    }
    Ok(())
}

/// A host has so many processes of all transports together.
fn check_processes(root: &Section<'_>, traffic: &Traffic) -> Result<(), InputError> {
    let mut processes: BTreeMap<u32, BTreeSet<(u16, u16)>> = BTreeMap::new();
    let of_flows =
        traffic.flows.iter().flat_map(|flow| [(flow.src, flow.transport), (flow.dst, flow.transport)]);
    let of_programs = traffic.programs.iter().map(|program| (program.at, program.transport));
    for (place, transport) in of_flows.chain(of_programs) {
        let of_host = processes.entry(place.host).or_default();
        of_host.insert((transport, place.process));
        if of_host.len() as u64 > MOST_PROCESSES {
            let host = place.host;
            let message = format!("host {host} would have more than {MOST_PROCESSES} processes");
            return Err(root.error(format!("{message} of all transports: write fewer `processes`")));
        }
    }
    Ok(())
}

/// Every section with its keys, and with the kinds that have keys of their own: what docs/SCENARIOS.md must explain.
pub fn all_keys() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut all = vec![("top level", KEYS.to_vec()), ("sample", SAMPLE_KEYS.to_vec())];
    all.extend([("queues", queues::KEYS.to_vec()), ("host", hosts::KEYS.to_vec())]);
    all.push(("routing", routing::KEYS.to_vec()));
    all.extend([("transport", transport::COMMON_KEYS.to_vec()), ("law", control_law::keys())]);
    all.push(("messages", MESSAGES_KEYS.to_vec()));
    all.extend(transport::kinds());
    all.extend(fabric::KINDS.iter().map(|(kind, keys)| (*kind, keys.to_vec())));
    all.extend(workloads::KINDS.iter().map(|(kind, keys)| (*kind, keys.to_vec())));
    all.extend(programs::kinds());
    all.extend(faults::KINDS.iter().map(|(kind, keys)| (*kind, keys.to_vec())));
    all
}
