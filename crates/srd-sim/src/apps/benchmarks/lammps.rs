//! LAMMPS as its messages show it: the benchmarks `lj` (a Lennard-Jones liquid) and `eam` (copper, embedded atoms), weakly
//! scaled. Each rank has a cube of atoms and exchanges those near its faces with six neighbours, dimension after dimension, in
//! every step: positions out (forward), forces back (reverse); every few steps atoms move house and the lists of those near
//! the faces are made anew (comm_brick.cpp).
//!
//! Bytes follow from density and cutoff, so they are averages. Computing takes what the benchmark takes on one process, the
//! same on all: without the noise and imbalance of real machines.

use crate::apps::benchmarks::grid::Grid;
use crate::apps::collective::Group;
use crate::apps::measure::spans;
use crate::apps::script::Script;
use crate::apps::writer::Writer;
use srd_wire::{Nanos, Time};

/// See the module.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lammps {
    /// Ranks.
    pub ranks: u32,
    /// Which benchmark.
    pub benchmark: Benchmark,
    /// Atoms of a rank. The benchmarks': 32,000.
    pub atoms: u32,
    /// Steps. The benchmarks': 100.
    pub steps: u32,
    /// What a step takes on one process.
    pub step_alone: Nanos,
    /// Temperature and pressure are summed up every so many steps; the benchmarks do it at the beginning and at the end.
    pub thermo_every: u32,
}

/// A benchmark of LAMMPS's bench directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Benchmark {
    /// in.lj.
    Lj,
    /// in.eam.
    Eam,
}

/// What a benchmark's input says. Lengths are in its own units (sigma, angstrom).
struct Matter {
    /// Atoms in a unit of volume.
    density: f64,
    /// From here on another rank's atoms matter: cutoff and skin.
    reach: f64,
    /// Atoms that cross a unit of area in a step, each way.
    flux: f64,
    /// Steps from one list to the next.
    lists_every: u32,
    /// Steps after which it is asked whether a new list is due, by an all-reduce in each.
    asks_after: Option<u32>,
}

/// Position or force of an atom: three doubles.
const VECTOR: f64 = 24.0;
/// Density or its embedding's derivative: a double.
const SCALAR: f64 = 8.0;
/// An atom that is near a face, as a new list has it: position, tag, type, mask (atom_vec_atomic.cpp, size_border).
const BORDER: f64 = 48.0;
/// An atom that moves house: 11 doubles (pack_exchange of the same).
const MOVER: f64 = 88.0;
/// A count.
const COUNT: u64 = 4;
const TAG: u64 = 7;

impl Benchmark {
    /// What a step takes on one process: the loop times of 1.61 s and 4.43 s for 100 steps of 32,000 atoms (Broadcom,
    /// "Congestion Control for Large Scale RoCEv2 Deployments").
    pub fn step_alone(self) -> Nanos {
        match self {
            Benchmark::Lj => Nanos(16_100_000),
            Benchmark::Eam => Nanos(44_300_000),
        }
    }

    fn matter(self) -> Matter {
        match self {
            // rho* 0.8442; cutoff 2.5, skin 0.3; every 20 steps. A liquid at T* 0.76 (the melt's), 0.005 tau a step: the flux of
            // an ideal gas, density times sqrt(T / 2 pi).
            Benchmark::Lj => Matter {
                density: 0.8442,
                reach: 2.8,
                flux: 0.8442 * (0.76 / std::f64::consts::TAU).sqrt() * 0.005,
                lists_every: 20,
                asks_after: None,
            },
            // Copper, 4 atoms in a cube of 3.615 A; cutoff 4.95 A, skin 1.0 A; `delay 5 every 1 check yes`, which makes 13
            // lists in 100 steps. A crystal: hardly an atom moves house.
            Benchmark::Eam => Matter {
                density: 4.0 / (3.615 * 3.615 * 3.615),
                reach: 5.95,
                flux: 0.0,
                lists_every: 8,
                asks_after: Some(5),
            },
        }
    }
}

/// A step's messages.
struct Plan {
    /// For each dimension, those below and above, and the atoms that lie near each face, with those that came before along
    /// other dimensions. Where a rank is its own neighbour it copies, which is part of the time on one process.
    swaps: Vec<(u32, u32, f64)>,
    /// Atoms that move house through a face in a step.
    movers: f64,
    matter: Matter,
}

impl Lammps {
    /// The benchmark as it comes.
    pub fn new(ranks: u32, benchmark: Benchmark) -> Lammps {
        let step_alone = benchmark.step_alone();
        Lammps { ranks, benchmark, atoms: 32_000, steps: 100, step_alone, thermo_every: 100 }
    }

    /// The scripts, by rank: a measurement is a step.
    pub fn scripts(&self) -> Vec<Script> {
        let all: Vec<u32> = (0..self.ranks).collect();
        (0..self.ranks).map(|own| self.script(Group { ranks: &all, own })).collect()
    }

    fn plan(&self, rank: u32) -> Plan {
        let grid = Grid::of(self.ranks);
        let matter = self.benchmark.matter();
        let side = (f64::from(self.atoms) / matter.density).cbrt();
        let with_ghosts = side + 2.0 * matter.reach;
        let mut swaps = Vec::new();
        for dimension in (0..3).filter(|&dimension| grid.ranks[dimension] > 1) {
            // Along y, the atoms that came along x are near the face, too; along z, those of both.
            let face = with_ghosts.powi(dimension as i32) * side.powi(2 - dimension as i32);
            let (below, above) = (grid.around(rank, dimension, false), grid.around(rank, dimension, true));
            swaps.push((below, above, face * matter.reach * matter.density));
        }
        Plan { swaps, movers: side * side * matter.flux, matter }
    }

    fn script(&self, group: Group<'_>) -> Script {
        let plan = self.plan(group.own);
        let mut writer = Writer::default();
        writer.barrier(group);
        for step in 1..=self.steps {
            writer.measured(|writer| {
                let of_list = (step - 1) % plan.matter.lists_every + 1;
                if plan.matter.asks_after.is_some_and(|after| of_list >= after) {
                    writer.all_reduce(group, COUNT);
                }
                if of_list == plan.matter.lists_every {
                    plan.new_lists(writer);
                } else {
                    plan.forward(writer, VECTOR);
                }
                self.forces(writer, &plan);
                plan.reverse(writer, VECTOR);
                if step.is_multiple_of(self.thermo_every) {
                    // Temperature, energy, and the six parts of the pressure.
                    [8, 8, 48].into_iter().for_each(|bytes| writer.all_reduce(group, bytes));
                }
            });
        }
        writer.script()
    }

    /// Embedded atoms (pair_eam.cpp) need their neighbours' densities in the middle, which is taken to be half of the work.
    fn forces(&self, writer: &mut Writer, plan: &Plan) {
        match self.benchmark {
            Benchmark::Lj => writer.compute(self.step_alone),
            Benchmark::Eam => {
                let half = Nanos(self.step_alone.0 / 2);
                writer.compute(half);
                plan.reverse(writer, SCALAR);
                plan.forward(writer, SCALAR);
                writer.compute(self.step_alone - half);
            }
        }
    }

    /// Bytes that a rank sends in a step between two new lists.
    pub fn bytes_per_step(&self, rank: u32) -> u64 {
        let an_atom = match self.benchmark {
            Benchmark::Lj => &[VECTOR, VECTOR][..],
            Benchmark::Eam => &[VECTOR, VECTOR, SCALAR, SCALAR],
        };
        let of_swap = |&(_, _, atoms): &(u32, u32, f64)| {
            an_atom.iter().map(|bytes| 2 * bytes_of(atoms, *bytes)).sum::<u64>()
        };
        self.plan(rank).swaps.iter().map(of_swap).sum()
    }

    /// From all ranks' marks, the time on one process by the time on all, as the weakly scaled benchmark tells its efficiency;
    /// `None` without marks.
    pub fn efficiency(&self, marks: &[Vec<Time>]) -> Option<f64> {
        let steps = marks.iter().map(|marks| spans(marks).count()).min()?;
        let first = marks.iter().filter_map(|marks| marks.first()).min()?;
        let last = marks.iter().filter_map(|marks| marks.last()).max()?;
        Some(self.step_alone.as_f64() * steps as f64 / last.since(*first).as_f64())
    }
}

fn bytes_of(atoms: f64, each: f64) -> u64 {
    (atoms.round() * each) as u64
}

impl Plan {
    /// Data of the atoms near the faces goes to the neighbours, so many bytes of each.
    fn forward(&self, writer: &mut Writer, bytes: f64) {
        for &(below, above, atoms) in &self.swaps {
            writer.both(below, above, bytes_of(atoms, bytes));
        }
    }

    /// And what the neighbours have found out about them comes back, the other way round.
    fn reverse(&self, writer: &mut Writer, bytes: f64) {
        for &(below, above, atoms) in self.swaps.iter().rev() {
            writer.both(below, above, bytes_of(atoms, bytes));
        }
    }

    /// Atoms move house, and the lists of those near the faces are made: counts first, as the other side does not know them.
    fn new_lists(&self, writer: &mut Writer) {
        let movers = self.movers * f64::from(self.matter.lists_every);
        for &(below, above, _) in &self.swaps {
            writer.both(below, above, COUNT);
            writer.both(below, above, bytes_of(movers, MOVER));
        }
        for &(below, above, atoms) in &self.swaps {
            writer.both(below, above, COUNT);
            writer.both(below, above, bytes_of(atoms, BORDER));
        }
    }
}

impl Writer {
    /// So many bytes to each neighbour in a dimension, one after the other.
    fn both(&mut self, below: u32, above: u32, bytes: u64) {
        self.exchange(below, above, TAG, bytes);
        self.exchange(above, below, TAG, bytes);
    }
}
