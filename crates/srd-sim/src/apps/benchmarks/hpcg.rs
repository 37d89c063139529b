//! HPCG as its messages show it (High Performance Conjugate Gradients, Dongarra, Heroux and Luszczek, 2015; version 3.1): in
//! each iteration eleven exchanges with up to 26 neighbours on four grids, three all-reduces of 8 bytes, and the arithmetic
//! of these between them, at a given rate.

use crate::apps::benchmarks::grid::Grid;
use crate::apps::collective::Group;
use crate::apps::measure::spans;
use crate::apps::script::Script;
use crate::apps::writer::Writer;
use srd_wire::{Nanos, Time};

/// See the module.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hpcg {
    /// Ranks.
    pub ranks: u32,
    /// Points of a rank's grid in each dimension: multiples of 8, at least 16. HPCG's own: 104.
    pub points: [u32; 3],
    /// Iterations of the conjugate gradient method; a set has 50.
    pub iterations: u32,
    /// What a rank computes, in 10^9 floating-point operations a second: HPCG alone on a process of the machine.
    pub gflops: f64,
}

/// Grids, each with half the points of the one before in each dimension.
const LEVELS: u32 = 4;
const TAG: u64 = 99;
const DOUBLE: u64 = 8;

/// What a rank exchanges and computes on one grid.
struct Level {
    /// Neighbours in the order of their numbers, and bytes.
    neighbours: Vec<(u32, u64)>,
    /// The matrix's entries that are not 0.
    nonzeros: f64,
}

impl Hpcg {
    /// The scripts, by rank: a measurement is an iteration.
    pub fn scripts(&self) -> Vec<Script> {
        let all: Vec<u32> = (0..self.ranks).collect();
        let grid = Grid::of(self.ranks);
        let script = |own| {
            let levels: Vec<Level> = (0..LEVELS).map(|level| self.level(grid, own, level)).collect();
            let group = Group { ranks: &all, own };
            let mut writer = Writer::default();
            writer.barrier(group);
            writer.repeat(self.iterations, |writer| {
                writer.measured(|writer| self.iteration(writer, group, &levels));
            });
            writer.script()
        };
        (0..self.ranks).map(script).collect()
    }

    fn level(&self, grid: Grid, rank: u32, level: u32) -> Level {
        let points = self.points.map(|points| u64::from(points >> level));
        let mut neighbours = Vec::new();
        for step in (0..27).map(|n| [n % 3 - 1, n / 3 % 3 - 1, n / 9 - 1]).filter(|step| step != &[0; 3]) {
            if let Some(neighbour) = grid.neighbour(rank, step) {
                let shared =
                    (0..3).filter(|&dimension| step[dimension] == 0).map(|dimension| points[dimension]);
                neighbours.push((neighbour, shared.product::<u64>() * DOUBLE));
            }
        }
        // A point has three in each dimension, itself among them, but where the whole grid ends.
        let place = grid.place(rank);
        let in_dimension = |dimension: usize| {
            let ends =
                (place[dimension] == 0) as u64 + (place[dimension] + 1 == grid.ranks[dimension]) as u64;
            (3 * points[dimension] - ends) as f64
        };
        Level { neighbours, nonzeros: (0..3).map(in_dimension).product() }
    }

    fn rows(&self) -> f64 {
        self.points.map(f64::from).iter().product()
    }

    /// As CG.cpp has it: preconditioner, dot product, vector update, matrix times vector, dot product, two updates, dot product.
    fn iteration(&self, writer: &mut Writer, group: Group<'_>, levels: &[Level]) {
        let of_vectors = 2.0 * self.rows();
        self.multigrid(writer, levels);
        self.dot(writer, group);
        self.compute(writer, of_vectors);
        self.multiply(writer, &levels[0]);
        self.dot(writer, group);
        self.compute(writer, 2.0 * of_vectors);
        self.dot(writer, group);
    }

    /// ComputeMG_ref.cpp.
    fn multigrid(&self, writer: &mut Writer, levels: &[Level]) {
        let [level, coarser @ ..] = levels else { return };
        self.smooth(writer, level);
        if !coarser.is_empty() {
            self.multiply(writer, level);
            self.multigrid(writer, coarser);
            self.smooth(writer, level);
        }
    }

    /// A symmetric Gauss-Seidel sweep: 4 operations an entry (ReportResults.cpp).
    fn smooth(&self, writer: &mut Writer, level: &Level) {
        level.exchange(writer);
        self.compute(writer, 4.0 * level.nonzeros);
    }

    /// Matrix times vector: 2 operations an entry.
    fn multiply(&self, writer: &mut Writer, level: &Level) {
        level.exchange(writer);
        self.compute(writer, 2.0 * level.nonzeros);
    }

    fn dot(&self, writer: &mut Writer, group: Group<'_>) {
        self.compute(writer, 2.0 * self.rows());
        writer.all_reduce(group, DOUBLE);
    }

    /// Operations take their number by the rate; by 10^9 a second, that is nanoseconds.
    fn compute(&self, writer: &mut Writer, operations: f64) {
        writer.compute(Nanos((operations / self.gflops).round() as u64));
    }

    /// Floating-point operations of all ranks in an iteration (ReportResults.cpp).
    pub fn operations(&self) -> f64 {
        let grid = Grid::of(self.ranks);
        let nonzeros = |level: u32| {
            let of = |dimension: usize| {
                let points = u64::from(self.points[dimension] >> level) * u64::from(grid.ranks[dimension]);
                (3 * points - 2) as f64
            };
            (0..3).map(of).product::<f64>()
        };
        let vectors = 12.0 * self.rows() * f64::from(self.ranks);
        let grids: f64 = (0..LEVELS - 1).map(|level| 10.0 * nonzeros(level)).sum();
        vectors + 2.0 * nonzeros(0) + grids + 4.0 * nonzeros(LEVELS - 1)
    }

    /// From all ranks' marks, 10^9 operations a second of all together; `None` without marks.
    pub fn gflops_of(&self, marks: &[Vec<Time>]) -> Option<f64> {
        let iterations = marks.iter().map(|marks| spans(marks).count()).min()?;
        let first = marks.iter().filter_map(|marks| marks.first()).min()?;
        let last = marks.iter().filter_map(|marks| marks.last()).max()?;
        Some(self.operations() * iterations as f64 / last.since(*first).as_f64())
    }
}

impl Level {
    /// ExchangeHalo.cpp: all receives first.
    fn exchange(&self, writer: &mut Writer) {
        self.neighbours.iter().for_each(|&(rank, bytes)| writer.recv(rank, TAG, bytes));
        self.neighbours.iter().for_each(|&(rank, bytes)| writer.send(rank, TAG, bytes));
        writer.wait();
    }
}
