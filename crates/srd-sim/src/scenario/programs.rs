//! `[[program]]`: programs of processes that talk as MPI's do, and where their processes run.

use super::Context;
use super::workloads;
use crate::flow::{MAX_BYTES, Place, Program, Traffic};
use crate::input::InputError;
use crate::program::catalogue::{Job, Kind};
use crate::program::file_servers::FileServers;
use crate::program::gpcnet::{self, Congestor, Congestors, GpcNet};
use crate::program::hpcg::Hpcg;
use crate::program::hpl::{Broadcast, Hpl};
use crate::program::imb::{self, Imb};
use crate::program::lammps::{self, Lammps};
use crate::program::osu::{ExchangeBy, Operation, Osu, ReduceBy};
use crate::program::rotate::{Pairs, Rotate};
use crate::settings::TransportSettings;
use crate::topology::Topology;
use crate::workload::draw::Draw;
use srd_rivals::section::Section;
use srd_wire::Nanos;
use std::collections::BTreeMap;

/// Keys of all kinds.
const COMMON: [&str; 8] =
    ["kind", "name", "transport", "first_host", "hosts", "per_host", "placement", "forever"];

/// Kinds of program, each with the keys of its own.
const KINDS: [(&str, &[&str]); 12] = [
    ("barrier", &["times", "warmup"]),
    ("all-reduce", &["size", "algorithm", "times", "warmup"]),
    ("all-to-all", &["size", "algorithm", "at_once", "times", "warmup"]),
    ("rotate-bandwidth", &["size", "messages", "tests", "rotations"]),
    ("rotate-latency", &["size", "messages", "tests", "rotations"]),
    ("gpcnet", &["test", "congestors", "rings", "iterations", "warmup", "head_start_us"]),
    ("hpcg", &["points", "iterations", "gflops"]),
    ("lammps", &["benchmark", "atoms", "steps", "step_us", "thermo_every"]),
    ("hpl", &["rows", "columns", "order", "block", "panels", "broadcast", "gflops"]),
    ("imb", &["benchmark", "size", "iterations", "warmup"]),
    ("file-servers", &["servers", "operation", "size", "blocks", "stripes", "window"]),
    ("goal", &["file"]),
];

/// Most processes of a host.
const MOST_PROCESSES: u64 = 512;
/// Most ranks of a program.
const MOST_RANKS: u64 = 1 << 16;
/// Most repetitions of anything.
const MOST_TIMES: u64 = 1_000_000;
/// Most steps of all scripts of a program: 800 MB of memory.
const MOST_STEPS: u64 = 1 << 25;
/// Fastest process, in GFLOP/s.
const MOST_GFLOPS: f64 = 1e7;
/// Largest matrix of Linpack.
const MOST_ORDER: u64 = 1 << 26;

/// Every kind with its keys.
pub(super) fn kinds() -> Vec<(&'static str, Vec<&'static str>)> {
    KINDS.iter().map(|(kind, keys)| (*kind, COMMON.iter().chain(*keys).copied().collect())).collect()
}

/// Whether the scenario has programs.
pub(super) fn are_there(context: &Context<'_>) -> Result<bool, InputError> {
    Ok(!Section::all(context.document, "program")?.is_empty())
}

/// Reads all `[[program]]` and adds them to `traffic`, whose flows must be there already.
pub(super) fn read(
    context: &mut Context<'_>,
    topology: &Topology,
    transports: &[TransportSettings],
    bdp: u64,
    seed: u64,
    traffic: &mut Traffic,
) -> Result<(), InputError> {
    let mut houses = Houses::of(traffic);
    let words: Vec<(&str, usize)> = KINDS.iter().enumerate().map(|(n, (kind, _))| (*kind, n)).collect();
    for section in Section::all(context.document, "program")? {
        let kind = section.needed("kind", section.word("kind", &words)?, "\"hpcg\"")?;
        let (word, keys) = KINDS[kind];
        let keys: Vec<&'static str> = COMMON.iter().chain(keys).copied().collect();
        let section = section.called(word).only(&keys)?;
        let hosts = hosts(&section, topology)?;
        let per_host = section.whole("per_host", 1..=MOST_PROCESSES)?.unwrap_or(1) as u32;
        let places = u64::from(per_host) * hosts.len() as u64;
        if places > MOST_RANKS {
            let message = format!("{places} processes: at most {MOST_RANKS} in a program");
            return Err(section.error_at("per_host", message));
        }
        let room = Room { hosts: hosts.len() as u32, per_host, bdp };
        let kind = room.kind(context, &section, word)?;
        let ranks = kind.ranks();
        if u64::from(ranks) > places {
            let message =
                format!("it has {ranks} ranks, and there are {places} processes: write larger `hosts`");
            return Err(section.error(format!("{message} or `per_host`")));
        }
        if kind.steps() > MOST_STEPS {
            let message =
                "the scripts of all ranks would take too much memory: write fewer ranks, rounds or steps";
            return Err(section.error(message));
        }
        let order = placement(&section, &hosts, per_host, seed)?;
        let transport = workloads::transport(&section, transports)?;
        let forever = section.flag("forever")?.unwrap_or(false);
        let name = name(&section, word, traffic)?;
        let first = traffic.programs.len() as u32;
        for (member, &host) in kind.members(seed).into_iter().zip(&order) {
            let at = houses.move_in(host).ok_or_else(|| {
                section.error(format!("host {host} would have more than {MOST_PROCESSES} processes"))
            })?;
            let script = member.script.moved(first);
            traffic.programs.push(Program { at, transport, script, forever: forever || member.forever });
        }
        traffic.jobs.push(Job { name, kind, first });
    }
    let endless = !traffic.programs.is_empty() && traffic.programs.iter().all(|program| program.forever);
    if endless && traffic.flows.is_empty() {
        let message =
            "every [[program]] has `forever = true`, and there is no workload: the run would never end";
        return Err(InputError::of(&context.document.file, message));
    }
    Ok(())
}

/// Processes that hosts have already.
struct Houses(BTreeMap<u32, u64>);

impl Houses {
    /// Those of flows.
    fn of(traffic: &Traffic) -> Houses {
        let mut houses = BTreeMap::new();
        for place in traffic.flows.iter().flat_map(|flow| [flow.src, flow.dst]) {
            let taken: &mut u64 = houses.entry(place.host).or_default();
            *taken = (*taken).max(u64::from(place.process) + 1);
        }
        Houses(houses)
    }

    /// A place for one more.
    fn move_in(&mut self, host: u32) -> Option<Place> {
        let taken = self.0.entry(host).or_default();
        let process = u16::try_from(*taken).ok().filter(|_| *taken < MOST_PROCESSES)?;
        *taken += 1;
        Some(Place { host, process })
    }
}

/// The hosts that take part: `hosts` of them from `first_host` on, or all.
fn hosts(section: &Section<'_>, topology: &Topology) -> Result<Vec<u32>, InputError> {
    let there_are = topology.hosts;
    let first = section.host("first_host")?.unwrap_or(0);
    if first >= there_are {
        return Err(section.error_at("first_host", format!("this fabric has hosts 0 to {}", there_are - 1)));
    }
    let left = there_are - first;
    let count = section.count("hosts")?.unwrap_or(left);
    if count > left {
        let message = format!("{count} are too many: this fabric has {left} from host {first} on");
        return Err(section.error_at("hosts", message));
    }
    Ok((first..first + count).collect())
}

/// The host of each rank.
fn placement(section: &Section<'_>, hosts: &[u32], per_host: u32, seed: u64) -> Result<Vec<u32>, InputError> {
    let words = [("block", 0), ("scattered", 1), ("random", 2)];
    let block = |hosts: &[u32]| {
        hosts.iter().flat_map(|&host| std::iter::repeat_n(host, per_host as usize)).collect::<Vec<u32>>()
    };
    Ok(match section.word("placement", &words)?.unwrap_or(0) {
        0 => block(hosts),
        1 => hosts.repeat(per_host as usize),
        _ => {
            let mut hosts = hosts.to_vec();
            Draw::of(seed, 0x706c_6163).shuffle(&mut hosts);
            block(&hosts)
        }
    })
}

/// Names tell programs apart in reports.
fn name(section: &Section<'_>, kind: &str, traffic: &Traffic) -> Result<String, InputError> {
    let taken = |name: &str| traffic.jobs.iter().any(|other| other.name == name);
    match section.text("name")? {
        Some(name) if taken(name) => {
            Err(section.error_at("name", "another program has this name: write another"))
        }
        Some(name) => Ok(name.to_string()),
        None if !taken(kind) => Ok(kind.to_string()),
        None => {
            let numbered = (2..).map(|n| format!("{kind}-{n}")).find(|name| !taken(name));
            Ok(numbered.unwrap_or_else(|| kind.to_string()))
        }
    }
}

/// Where a program may run, as its parameters depend on it.
struct Room {
    hosts: u32,
    per_host: u32,
    bdp: u64,
}

impl Room {
    fn ranks(&self) -> u32 {
        self.hosts * self.per_host
    }

    fn kind(&self, context: &mut Context<'_>, section: &Section<'_>, word: &str) -> Result<Kind, InputError> {
        Ok(match word {
            "barrier" => self.osu(section, Operation::Barrier)?,
            "all-reduce" => self.all_reduce(section)?,
            "all-to-all" => self.all_to_all(section)?,
            "rotate-bandwidth" => self.rotate(section, Rotate::bandwidth(self.ranks()))?,
            "rotate-latency" => self.rotate(section, Rotate::latency(self.ranks()))?,
            "gpcnet" => self.gpcnet(section)?,
            "hpcg" => self.hpcg(section)?,
            "lammps" => self.lammps(section)?,
            "hpl" => self.hpl(section)?,
            "imb" => self.imb(section)?,
            "file-servers" => self.file_servers(section)?,
            _ => goal(context, section)?,
        })
    }

    /// Bytes of a message, at least `least`.
    fn size(&self, section: &Section<'_>, least: u64) -> Result<Option<u64>, InputError> {
        let Some(size) = section.bytes("size", least)? else { return Ok(None) };
        let bytes = size.with_bdp(self.bdp);
        match bytes <= MAX_BYTES {
            true => Ok(Some(bytes)),
            false => {
                Err(section.error_at("size", format!("a message of {bytes} bytes: at most {MAX_BYTES}")))
            }
        }
    }

    fn needed_size(&self, section: &Section<'_>) -> Result<u64, InputError> {
        let size = self.size(section, 0)?;
        section.needed("size", size, "\"4KiB\"")
    }

    fn osu(&self, section: &Section<'_>, operation: Operation) -> Result<Kind, InputError> {
        let (times, warmup) = (times(section, "times", 100)?, whole(section, "warmup", 10)?);
        Ok(Kind::Osu(Osu { ranks: self.ranks(), operation, times, warmup }))
    }

    fn all_reduce(&self, section: &Section<'_>) -> Result<Kind, InputError> {
        let words = [("auto", ReduceBy::Auto), ("doubling", ReduceBy::Doubling), ("ring", ReduceBy::Ring)];
        let by = section.word("algorithm", &words)?.unwrap_or(ReduceBy::Auto);
        self.osu(section, Operation::AllReduce { bytes: self.needed_size(section)?, by })
    }

    fn all_to_all(&self, section: &Section<'_>) -> Result<Kind, InputError> {
        let at_once = section.count("at_once")?;
        let all = ExchangeBy::AtOnce(at_once.unwrap_or(self.ranks()));
        let words = [
            ("auto", ExchangeBy::Auto),
            ("pairs", ExchangeBy::Pairs),
            ("bruck", ExchangeBy::Bruck),
            ("at-once", all),
        ];
        let by = section.word("algorithm", &words)?.unwrap_or(ExchangeBy::Auto);
        if at_once.is_some() && by != all {
            return Err(section.error_at("at_once", "goes with `algorithm = \"at-once\"`: write that, too"));
        }
        self.osu(section, Operation::AllToAll { bytes: self.needed_size(section)?, by })
    }

    fn rotate(&self, section: &Section<'_>, usual: Rotate) -> Result<Kind, InputError> {
        let pairs = match usual.pairs {
            Pairs::Stream { bytes, messages } => Pairs::Stream {
                bytes: self.size(section, 1)?.unwrap_or(bytes),
                messages: times(section, "messages", messages)?,
            },
            Pairs::PingPong { bytes, rounds } => Pairs::PingPong {
                bytes: self.size(section, 0)?.unwrap_or(bytes),
                rounds: times(section, "messages", rounds)?,
            },
        };
        if self.ranks() < 2 {
            return Err(section.error("pairs need two processes: write larger `hosts` or `per_host`"));
        }
        Ok(Kind::Rotate(Rotate {
            rotations: times(section, "rotations", usual.rotations)?,
            tests: times(section, "tests", usual.tests)?,
            pairs,
            ..usual
        }))
    }

    fn gpcnet(&self, section: &Section<'_>) -> Result<Kind, InputError> {
        use gpcnet::{LEAST_NODES, Test};
        let tests =
            [("latency", Test::Latency), ("bandwidth", Test::Bandwidth), ("all-reduce", Test::AllReduce)];
        let congestors = [
            ("none", Congestors::None),
            ("all", Congestors::All),
            ("all-to-all", Congestors::Only(Congestor::AllToAll)),
            ("incast", Congestors::Only(Congestor::Incast)),
            ("put-incast", Congestors::Only(Congestor::PutIncast)),
            ("get-broadcast", Congestors::Only(Congestor::GetBroadcast)),
        ];
        if self.hosts < LEAST_NODES {
            return Err(section.error(format!("GPCNeT needs {LEAST_NODES} hosts, and has {}", self.hosts)));
        }
        let test = section.needed("test", section.word("test", &tests)?, "\"latency\"")?;
        let congestors = section.word("congestors", &congestors)?.unwrap_or(Congestors::All);
        let usual = GpcNet::new(self.hosts, self.per_host, test, congestors);
        Ok(Kind::GpcNet(GpcNet {
            rings: times(section, "rings", usual.rings)?,
            iterations: times(section, "iterations", usual.iterations)?,
            warmup: whole(section, "warmup", usual.warmup)?,
            head_start: section.micros("head_start_us")?.map_or(usual.head_start, |ps| Nanos(ps.0 / 1000)),
            ..usual
        }))
    }

    fn hpcg(&self, section: &Section<'_>) -> Result<Kind, InputError> {
        let points = section.whole("points", 16..=1024)?.unwrap_or(104) as u32;
        if !points.is_multiple_of(8) {
            return Err(section.error_at("points", format!("{points} cannot be: write a multiple of 8")));
        }
        let iterations = times(section, "iterations", 50)?;
        Ok(Kind::Hpcg(Hpcg {
            ranks: self.ranks(),
            points: [points; 3],
            iterations,
            gflops: gflops(section)?,
        }))
    }

    fn lammps(&self, section: &Section<'_>) -> Result<Kind, InputError> {
        let words = [("lj", lammps::Benchmark::Lj), ("eam", lammps::Benchmark::Eam)];
        let benchmark = section.needed("benchmark", section.word("benchmark", &words)?, "\"lj\"")?;
        let usual = Lammps::new(self.ranks(), benchmark);
        let atoms = section.whole("atoms", 1000..=100_000_000)?.map_or(usual.atoms, |atoms| atoms as u32);
        // In proportion to the atoms, unless it is given.
        let alone = Nanos((usual.step_alone.0 as f64 * f64::from(atoms) / f64::from(usual.atoms)) as u64);
        Ok(Kind::Lammps(Lammps {
            atoms,
            steps: times(section, "steps", usual.steps)?,
            step_alone: section.micros("step_us")?.map_or(alone, |ps| Nanos(ps.0 / 1000)),
            thermo_every: times(section, "thermo_every", usual.thermo_every)?,
            ..usual
        }))
    }

    fn hpl(&self, section: &Section<'_>) -> Result<Kind, InputError> {
        let words = [("ring", Broadcast::Ring), ("modified-ring", Broadcast::ModifiedRing)];
        let side = |key: &str| section.whole(key, 1..=MOST_RANKS);
        let (rows, columns) = match (side("rows")?, side("columns")?) {
            (Some(rows), Some(columns)) if rows * columns <= u64::from(self.ranks()) => {
                (rows as u32, columns as u32)
            }
            (Some(rows), Some(columns)) => {
                let (ranks, there) = (rows * columns, self.ranks());
                let message =
                    format!("{rows} times `columns` are {ranks} ranks, and there are {there} processes");
                return Err(section.error_at("rows", format!("{message}: write less")));
            }
            (None, None) => nearly_square(self.ranks()),
            _ => return Err(section.error("`rows` and `columns` go together: write both or none")),
        };
        let order = section.whole("order", 1..=MOST_ORDER)?;
        let order = section.needed("order", order, "20000")? as u32;
        Ok(Kind::Hpl(Hpl {
            rows,
            columns,
            order,
            block: section.whole("block", 1..=4096)?.unwrap_or(192) as u32,
            panels: section.count("panels")?.unwrap_or(u32::MAX),
            broadcast: section.word("broadcast", &words)?.unwrap_or(Broadcast::ModifiedRing),
            gflops: gflops(section)?,
        }))
    }

    fn imb(&self, section: &Section<'_>) -> Result<Kind, InputError> {
        let words = [
            ("pingpong", imb::Benchmark::PingPong),
            ("sendrecv", imb::Benchmark::Sendrecv),
            ("exchange", imb::Benchmark::Exchange),
        ];
        let benchmark = section.needed("benchmark", section.word("benchmark", &words)?, "\"pingpong\"")?;
        Ok(Kind::Imb(Imb {
            ranks: self.ranks(),
            benchmark,
            bytes: self.needed_size(section)?,
            iterations: times(section, "iterations", 1000)?,
            warmup: whole(section, "warmup", 10)?,
        }))
    }

    fn file_servers(&self, section: &Section<'_>) -> Result<Kind, InputError> {
        let servers = section.needed_count("servers")?;
        let clients = self.ranks().saturating_sub(servers);
        if clients == 0 {
            let message =
                format!("{servers} leave none of {} processes for clients: write fewer", self.ranks());
            return Err(section.error_at("servers", message));
        }
        let write = section.word("operation", &[("write", true), ("read", false)])?.unwrap_or(true);
        let stripes = section.count("stripes")?.unwrap_or(servers);
        if stripes > servers {
            let message = format!("{stripes} are too many: there are {servers} servers");
            return Err(section.error_at("stripes", message));
        }
        Ok(Kind::FileServers(FileServers {
            servers,
            clients,
            write,
            bytes: self.size(section, 1)?.unwrap_or(1 << 20),
            blocks: times(section, "blocks", 64)?,
            stripes,
            window: section.whole("window", 1..=4096)?.unwrap_or(8) as u32,
        }))
    }
}

/// A count from 1 on.
fn times(section: &Section<'_>, key: &str, usual: u32) -> Result<u32, InputError> {
    Ok(section.whole(key, 1..=MOST_TIMES)?.map_or(usual, |times| times as u32))
}

/// A count from 0 on.
fn whole(section: &Section<'_>, key: &str, usual: u32) -> Result<u32, InputError> {
    Ok(section.whole(key, 0..=MOST_TIMES)?.map_or(usual, |times| times as u32))
}

fn gflops(section: &Section<'_>) -> Result<f64, InputError> {
    let gflops = section.number("gflops", 1e-3..=MOST_GFLOPS)?;
    section.needed("gflops", gflops, "1.5")
}

/// Rows and columns of ranks, no more rows than columns.
fn nearly_square(ranks: u32) -> (u32, u32) {
    let rows = (1..=ranks.isqrt()).rev().find(|&rows| ranks.is_multiple_of(rows)).unwrap_or(1);
    (rows, ranks / rows)
}

fn goal(context: &mut Context<'_>, section: &Section<'_>) -> Result<Kind, InputError> {
    let (text, file) = context.read_file(section, "file")?;
    let goal = crate::program::goal::parse(&text, &file)?;
    context.notes.extend(goal.notes);
    Ok(Kind::Scripts(goal.scripts))
}
