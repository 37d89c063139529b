//! All known programs under one roof: how many ranks each has, their scripts, and what its marks say.

use crate::apps::benchmarks::file_servers::FileServers;
use crate::apps::benchmarks::gpcnet::GpcNet;
use crate::apps::benchmarks::hpcg::Hpcg;
use crate::apps::benchmarks::hpl::Hpl;
use crate::apps::benchmarks::imb::Imb;
use crate::apps::benchmarks::lammps::Lammps;
use crate::apps::benchmarks::osu::Osu;
use crate::apps::benchmarks::rotate::{Pairs, Rotate};
use crate::apps::measure::{Summary, spans};
use crate::apps::script::Script;
use crate::apps::training::{StepTimes, Training};
use srd_wire::{Nanos, Time};

/// A known program.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// Collective operations.
    Osu(Osu),
    /// CBench's rotate and rotate_latency.
    Rotate(Rotate),
    /// A test of GPCNeT.
    GpcNet(GpcNet),
    /// HPCG.
    Hpcg(Hpcg),
    /// LAMMPS's lj and eam.
    Lammps(Lammps),
    /// Linpack.
    Hpl(Hpl),
    /// Intel's benchmarks.
    Imb(Imb),
    /// Clients of a parallel file system.
    FileServers(FileServers),
    /// Steps of training.
    Training(Training),
    /// Scripts by rank from elsewhere.
    Scripts(Vec<Script>),
}

/// A rank of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct Member {
    /// What it does.
    pub script: Script,
    /// At the end it begins again, until those that have an end have come to it.
    pub forever: bool,
}

/// A program that runs among others: which ranks are its own.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Tells programs apart in reports.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Its first rank among all ranks of the run.
    pub first: u32,
}

/// What a program says of its run.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// What it is.
    pub what: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The values, or the one.
    pub values: Summary,
}

impl Figure {
    fn of(what: &'static str, unit: &'static str, values: impl IntoIterator<Item = f64>) -> Option<Figure> {
        Some(Figure { what, unit, values: Summary::of(values)? })
    }
}

impl Job {
    /// What it says, from the marks of all ranks of the run.
    pub fn figures(&self, marks: &[Vec<Time>]) -> Vec<Figure> {
        let own = self.first as usize..(self.first + self.kind.ranks()) as usize;
        marks.get(own).map_or(Vec::new(), |marks| self.kind.figures(marks))
    }
}

impl Kind {
    /// How many ranks it has.
    pub fn ranks(&self) -> u32 {
        match self {
            Kind::Osu(osu) => osu.ranks,
            Kind::Rotate(rotate) => rotate.ranks,
            Kind::GpcNet(gpcnet) => gpcnet.nodes * gpcnet.per_node,
            Kind::Hpcg(hpcg) => hpcg.ranks,
            Kind::Lammps(lammps) => lammps.ranks,
            Kind::Hpl(hpl) => hpl.ranks(),
            Kind::Imb(imb) => imb.ranks,
            Kind::FileServers(files) => files.servers + files.clients,
            Kind::Training(training) => training.ranks(),
            Kind::Scripts(scripts) => scripts.len() as u32,
        }
    }

    /// Its ranks, in their order. `seed` decides what is left to chance.
    pub fn members(&self, seed: u64) -> Vec<Member> {
        let scripts = match self {
            Kind::GpcNet(gpcnet) => {
                let members = gpcnet.plan(seed).scripts().into_iter();
                return members.map(|(script, forever)| Member { script, forever }).collect();
            }
            Kind::Osu(osu) => osu.scripts(),
            Kind::Rotate(rotate) => rotate.scripts(),
            Kind::Hpcg(hpcg) => hpcg.scripts(),
            Kind::Lammps(lammps) => lammps.scripts(),
            Kind::Hpl(hpl) => hpl.scripts(),
            Kind::Imb(imb) => imb.scripts(),
            Kind::FileServers(files) => files.scripts(),
            Kind::Training(training) => training.scripts(),
            Kind::Scripts(scripts) => scripts.clone(),
        };
        scripts.into_iter().map(|script| Member { script, forever: false }).collect()
    }

    /// At most so many steps, or a little more, have all its scripts together: 24 bytes of memory each.
    pub fn steps(&self) -> u64 {
        let ranks = u64::from(self.ranks());
        let rounds = u64::from(self.ranks().max(1).ilog2()) + 1;
        let each = match self {
            Kind::Osu(_) => 12 * ranks,
            Kind::Rotate(rotate) => u64::from(rotate.rotations.min(rotate.ranks / 2)) * (3 * rounds + 14),
            Kind::GpcNet(gpcnet) => {
                let exchange = 3 * u64::from(gpcnet.nodes);
                u64::from(gpcnet.rings) * (12 * rounds + 80) / 5 + exchange
            }
            Kind::Hpcg(_) => 700 + 12 * rounds,
            Kind::Lammps(lammps) => u64::from(lammps.steps) * (90 + 12 * rounds),
            Kind::Hpl(hpl) => {
                u64::from(hpl.order.div_ceil(hpl.block).min(hpl.panels))
                    * (30 + 3 * rounds + 2 * u64::from(hpl.rows))
            }
            Kind::Imb(_) => 20 + 3 * rounds,
            Kind::FileServers(files) => 10 + 4 * u64::from(files.stripes),
            // An operation takes three times the memory of a step, with what waits for it.
            Kind::Training(training) => 3 * training.ops(),
            Kind::Scripts(_) => 0,
        };
        ranks.saturating_mul(each)
    }

    /// What it says of its run, from its ranks' marks; nothing of a run that did not come to its end.
    pub fn figures(&self, marks: &[Vec<Time>]) -> Vec<Figure> {
        let us = |marks: &Vec<Time>| spans(marks).map(|span| span.as_f64() / 1e3).collect::<Vec<f64>>();
        let all_us = || marks.iter().flat_map(us);
        let spread = |each: fn(&Summary) -> f64, of: &[Summary]| of.iter().map(each).collect::<Vec<f64>>();
        let by_rotation = |what: [&'static str; 3], unit, of: &[Summary]| {
            let [least, mean, most] = what;
            vec![
                Figure::of(least, unit, spread(|of| of.least, of)),
                Figure::of(mean, unit, spread(|of| of.mean, of)),
                Figure::of(most, unit, spread(|of| of.most, of)),
            ]
        };
        let figures = match self {
            Kind::Osu(_) => vec![Figure::of("time of an operation", "us", all_us())],
            Kind::Rotate(rotate) if !rotate.complete(marks) => vec![],
            Kind::Rotate(rotate) => match rotate.pairs {
                Pairs::Stream { .. } => {
                    let what =
                        ["slowest pair of a rotation", "mean of a rotation", "fastest pair of a rotation"];
                    by_rotation(what, "MB/s", &rotate.rates(marks))
                }
                Pairs::PingPong { .. } => {
                    let what =
                        ["quickest pair of a rotation", "mean of a rotation", "slowest pair of a rotation"];
                    by_rotation(what, "us", &rotate.latencies(marks))
                }
            },
            Kind::GpcNet(gpcnet) => {
                let figures = gpcnet.figures(marks);
                let unit = gpcnet.test.unit();
                vec![
                    figures.and_then(|of| Figure::of("average", unit, [of.average])),
                    figures.and_then(|of| Figure::of("99 %", unit, [of.tail])),
                ]
            }
            Kind::Hpcg(hpcg) => vec![
                Figure::of("time of an iteration", "us", all_us()),
                Figure::of("rate of all ranks", "GFLOP/s", hpcg.gflops_of(marks)),
            ],
            Kind::Lammps(lammps) => vec![
                Figure::of("time of a step", "us", all_us()),
                Figure::of("efficiency", "of one process", lammps.efficiency(marks)),
            ],
            Kind::Hpl(hpl) => vec![
                Figure::of("time of a panel", "us", all_us()),
                Figure::of("rate of all ranks", "GFLOP/s", hpl.gflops_of(marks)),
            ],
            Kind::Imb(imb) => vec![Figure::of("time of a message or exchange", "us", imb.times(marks))],
            Kind::FileServers(files) => vec![Figure::of("rate of a client", "MB/s", files.rates(marks))],
            Kind::Training(training) => match training.times(marks) {
                None => vec![],
                Some(StepTimes { step, alone }) => {
                    let us = |span: Nanos| span.as_f64() / 1e3;
                    let open = 1.0 - alone.as_f64() / step.as_f64().max(1.0);
                    vec![
                        Figure::of("time of a step", "us", [us(step)]),
                        Figure::of("time of a step without the network", "us", [us(alone)]),
                        Figure::of("communication that is not hidden", "of a step", [open]),
                    ]
                }
            },
            Kind::Scripts(_) => vec![Figure::of("time of a rank", "us", all_us())],
        };
        figures.into_iter().flatten().collect()
    }
}
