//! The keys of each kind of program.

use super::super::Context;
use super::MOST_RANKS;
use crate::apps::MAX_BYTES;
use crate::apps::benchmarks::file_servers::FileServers;
use crate::apps::benchmarks::gpcnet::{self, Congestor, Congestors, GpcNet};
use crate::apps::benchmarks::hpcg::Hpcg;
use crate::apps::benchmarks::hpl::{Broadcast, Hpl};
use crate::apps::benchmarks::imb::{self, Imb};
use crate::apps::benchmarks::lammps::{self, Lammps};
use crate::apps::benchmarks::osu::{ExchangeBy, Operation, Osu, ReduceBy};
use crate::apps::benchmarks::rotate::{Pairs, Rotate};
use crate::apps::calls;
use crate::apps::catalogue::Kind;
use srd_baselines::input::InputError;
use srd_baselines::section::Section;
use srd_wire::Nanos;

/// Kinds of program, each with the keys of its own.
pub(super) const KINDS: [(&str, &[&str]); 14] = [
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
    (
        "training",
        &[
            "model",
            "layers",
            "tensor",
            "pipeline",
            "expert",
            "microbatches",
            "tokens",
            "gflops",
            "bucket",
            "reduce",
            "skew",
            "steps",
        ],
    ),
    ("goal", &["file"]),
    ("calls", &["file", "copies"]),
];

/// Most repetitions of anything.
const MOST_TIMES: u64 = 1_000_000;
/// Fastest process, in GFLOP/s.
const MOST_GFLOPS: f64 = 1e7;
/// Largest matrix of Linpack.
const MOST_ORDER: u64 = 1 << 26;

/// Where a program may run, as its parameters depend on it.
pub(super) struct Room {
    pub hosts: u32,
    pub per_host: u32,
    /// Bandwidth-delay product, a unit of bytes.
    pub bdp: u64,
    /// Of the run.
    pub seed: u64,
}

impl Room {
    pub fn ranks(&self) -> u32 {
        self.hosts * self.per_host
    }

    /// The program that the section says.
    pub fn kind(
        &self,
        context: &mut Context<'_>,
        section: &Section<'_>,
        word: &str,
    ) -> Result<Kind, InputError> {
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
            "training" => super::training::read(self, section)?,
            "calls" => self.calls(context, section)?,
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

    fn calls(&self, context: &Context<'_>, section: &Section<'_>) -> Result<Kind, InputError> {
        let copies = section.whole("copies", 1..=MOST_RANKS)?.unwrap_or(1);
        let (text, file) = context.read_file(section, "file")?;
        let recorded = calls::parse(&text, &file)?;
        let (ranks, there) = (copies * u64::from(recorded.ranks()), self.ranks());
        if ranks > u64::from(there) {
            let what = format!("`copies` = {copies} times {} recorded ranks are {ranks}", recorded.ranks());
            let message =
                format!("{what}, and there are {there} processes: write larger `hosts` or `per_host`");
            return Err(section.error(message + ", or fewer `copies`"));
        }
        Ok(Kind::Scripts(recorded.scripts(copies as u32)?))
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
pub(super) fn times(section: &Section<'_>, key: &str, usual: u32) -> Result<u32, InputError> {
    Ok(section.whole(key, 1..=MOST_TIMES)?.map_or(usual, |times| times as u32))
}

/// A count from 0 on.
fn whole(section: &Section<'_>, key: &str, usual: u32) -> Result<u32, InputError> {
    Ok(section.whole(key, 0..=MOST_TIMES)?.map_or(usual, |times| times as u32))
}

pub(super) fn gflops(section: &Section<'_>) -> Result<f64, InputError> {
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
    let goal = crate::apps::goal::parse(&text, &file)?;
    context.notes.extend(goal.notes);
    Ok(Kind::Scripts(goal.scripts))
}
