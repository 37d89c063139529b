//! High Performance Linpack as its messages show it (HPL 2.3): ranks lie in P rows and Q columns, over which the matrix is
//! dealt out in square blocks. For each panel of block columns: the column of ranks that has it factors it, looking for a
//! pivot in every column of it; it goes along the rows of ranks in a ring; in the columns of ranks rows are swapped and
//! handed round; all update what is left of the matrix. Without look-ahead: nothing of this overlaps (depth 0).

use crate::apps::collective::Group;
use crate::apps::measure::spans;
use crate::apps::script::Script;
use crate::apps::writer::Writer;
use srd_wire::{Nanos, Time};

/// See the module.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hpl {
    /// Rows of ranks (P).
    pub rows: u32,
    /// Columns of ranks (Q). Rank 0's right neighbour is rank 1 (HPL's "row-major process mapping").
    pub columns: u32,
    /// Rows and columns of the matrix (N).
    pub order: u32,
    /// Columns of a panel (NB).
    pub block: u32,
    /// Panels from the first on; all, if there are not so many.
    pub panels: u32,
    /// How a panel goes along a row.
    pub broadcast: Broadcast,
    /// What a rank computes, in 10^9 floating-point operations a second.
    pub gflops: f64,
}

/// How a panel goes along a row of ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broadcast {
    /// From each to the next (BCAST 0, "1rg").
    Ring,
    /// The first gives it to the next and to the one after, who passes it on (BCAST 1, "1rM"): so the next, who has the next
    /// panel to factor, need not pass it on.
    ModifiedRing,
}

const DOUBLE: u64 = 8;
const TAG: u64 = 2000;

/// Sizes at one panel, as one rank sees them.
struct Panel {
    /// Number.
    number: u32,
    /// Its columns.
    width: u64,
    /// Rows of this rank from the panel on, and behind it.
    rows: u64,
    rows_left: u64,
    /// Columns of this rank behind it.
    columns_left: u64,
}

impl Hpl {
    /// Ranks.
    pub fn ranks(&self) -> u32 {
        self.rows * self.columns
    }

    fn panel_count(&self) -> u32 {
        self.order.div_ceil(self.block).min(self.panels)
    }

    /// Rows, or columns, from block `first` on that lie at `place` of `places` (numroc).
    fn share(&self, first: u32, place: u32, places: u32) -> u64 {
        let blocks = self.order.div_ceil(self.block);
        let mine = (first..blocks).filter(|number| number % places == place);
        let width = |number| self.block.min(self.order - number * self.block);
        mine.map(|number| u64::from(width(number))).sum()
    }

    fn panel(&self, number: u32, rank: u32) -> Panel {
        let (row, column) = (rank / self.columns, rank % self.columns);
        Panel {
            number,
            width: u64::from(self.block.min(self.order - number * self.block)),
            rows: self.share(number, row, self.rows),
            rows_left: self.share(number + 1, row, self.rows),
            columns_left: self.share(number + 1, column, self.columns),
        }
    }

    /// The scripts, by rank: a measurement is a panel.
    pub fn scripts(&self) -> Vec<Script> {
        let all: Vec<u32> = (0..self.ranks()).collect();
        (0..self.ranks()).map(|rank| self.script(&all, rank)).collect()
    }

    fn script(&self, all: &[u32], rank: u32) -> Script {
        let (row, column) = (rank / self.columns, rank % self.columns);
        let in_row: Vec<u32> = (0..self.columns).map(|other| row * self.columns + other).collect();
        let in_column: Vec<u32> = (0..self.rows).map(|other| other * self.columns + column).collect();
        let in_row = Group { ranks: &in_row, own: column };
        let in_column = Group { ranks: &in_column, own: row };
        let mut writer = Writer::default();
        writer.barrier(Group { ranks: all, own: rank });
        for number in 0..self.panel_count() {
            let panel = self.panel(number, rank);
            writer.measured(|writer| {
                if column == number % self.columns {
                    self.factor(writer, in_column, &panel);
                }
                self.hand_along(writer, in_row, &panel);
                self.swap(writer, in_column, &panel);
                self.compute(writer, panel.update());
            });
        }
        writer.script()
    }

    /// Each column's pivot row is found by exchanging the best of each rank with its row and the current one (HPL_pdmxswp.c).
    fn factor(&self, writer: &mut Writer, column: Group<'_>, panel: &Panel) {
        let each = panel.factoring() / panel.width.max(1) as f64;
        writer.repeat(panel.width as u32, |writer| {
            self.compute(writer, each);
            writer.all_reduce(column, (2 * panel.width + 4) * DOUBLE);
        });
    }

    /// The panel: this row's part of it, the block on the diagonal, and the pivots (HPL_pdpanel_init.c).
    fn hand_along(&self, writer: &mut Writer, row: Group<'_>, panel: &Panel) {
        let size = row.size();
        let bytes = (panel.rows * panel.width + panel.width * panel.width + panel.width + 1) * DOUBLE;
        // Places count from the one who has it.
        let place = (row.own + size - panel.number % size) % size;
        let (from, to): (Option<u32>, &[u32]) = match self.broadcast {
            _ if size == 1 => (None, &[]),
            Broadcast::ModifiedRing if size > 2 => match place {
                0 => (None, &[1, 2]),
                1 => (Some(1), &[]),
                2 => (Some(2), if size > 3 { &[1] } else { &[] }),
                place => (Some(1), if place + 1 < size { &[1] } else { &[] }),
            },
            Broadcast::Ring | Broadcast::ModifiedRing => {
                ((place > 0).then_some(1), if place + 1 < size { &[1] } else { &[] })
            }
        };
        if let Some(places) = from {
            writer.recv(row.before(places), TAG, bytes);
            writer.wait();
        }
        for &places in to {
            writer.send(row.after(places), TAG, bytes);
            writer.wait();
        }
    }

    /// Rows change places between the ranks of a column: those that have come up lie in the diagonal's row of ranks; then
    /// everyone's part of these goes round (HPL_pdlaswp01T.c: spread, then roll).
    fn swap(&self, writer: &mut Writer, column: Group<'_>, panel: &Panel) {
        let size = column.size();
        let part = panel.width * panel.columns_left / u64::from(size) * DOUBLE;
        if size == 1 || part == 0 {
            return;
        }
        let diagonal = panel.number % size;
        if column.own == diagonal {
            let others: Vec<u32> = (1..size).map(|places| column.after(places)).collect();
            others.iter().for_each(|&other| writer.recv(other, TAG + 1, part));
            others.iter().for_each(|&other| writer.send(other, TAG + 1, part));
            writer.wait();
        } else {
            writer.exchange(column.at(diagonal), column.at(diagonal), TAG + 1, part);
        }
        writer.repeat(size - 1, |writer| writer.exchange(column.after(1), column.before(1), TAG + 2, part));
    }

    fn compute(&self, writer: &mut Writer, operations: f64) {
        writer.compute(Nanos((operations / self.gflops).round() as u64));
    }

    /// Floating-point operations of all ranks for these panels.
    pub fn operations(&self) -> f64 {
        let of_rank = |rank: u32| {
            let of = |number: u32| {
                let panel = self.panel(number, rank);
                let factors = rank % self.columns == number % self.columns;
                panel.update() + if factors { panel.factoring() } else { 0.0 }
            };
            (0..self.panel_count()).map(of).sum::<f64>()
        };
        (0..self.ranks()).map(of_rank).sum()
    }

    /// From all ranks' marks, 10^9 operations a second of all together; `None` without marks.
    pub fn gflops_of(&self, marks: &[Vec<Time>]) -> Option<f64> {
        marks.iter().flat_map(|marks| spans(marks)).next()?;
        let first = marks.iter().filter_map(|marks| marks.first()).min()?;
        let last = marks.iter().filter_map(|marks| marks.last()).max()?;
        Some(self.operations() / last.since(*first).as_f64())
    }
}

impl Panel {
    /// Operations of its factors: its rows times the square of its width.
    fn factoring(&self) -> f64 {
        self.rows as f64 * (self.width * self.width) as f64
    }

    /// Operations of the update: a triangular solve, and a product of what is left.
    fn update(&self) -> f64 {
        let (width, columns) = (self.width as f64, self.columns_left as f64);
        width * width * columns + 2.0 * self.rows_left as f64 * columns * width
    }
}
