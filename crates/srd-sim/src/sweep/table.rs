//! Results of a sweep as tables in Markdown that can be read as they are.

use super::{Case, Combine, Figure, Row, Sweep};
use crate::run::Outcome;
use std::fmt::Write;

/// Name of a case of which nothing is changed.
const AS_IT_IS: &str = "as it is";

/// A table: its head, and its rows. The first column is text, the others are figures.
struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// In Markdown, with columns aligned.
    fn markdown(&self) -> String {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3);
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cell = |(column, text): (usize, &String)| match column {
                0 => format!(" {text:<w$} ", w = widths[0]),
                _ => format!(" {text:>w$} ", w = widths[column]),
            };
            format!("|{}|\n", row.iter().enumerate().map(cell).collect::<Vec<_>>().join("|"))
        };
        let rule = |(column, width): (usize, &usize)| match column {
            0 => "-".repeat(width + 2),
            _ => format!("{}:", "-".repeat(width + 1)),
        };
        let rules: Vec<String> = widths.iter().enumerate().map(rule).collect();
        let mut text = line(&self.head);
        text += &format!("|{}|\n", rules.join("|"));
        self.rows.iter().for_each(|row| text += &line(row));
        text
    }
}

impl Figure {
    /// In the order of columns.
    const ALL: [Figure; 7] = [
        Figure::Middle,
        Figure::Slowest,
        Figure::Median,
        Figure::Ideal,
        Figure::Spread,
        Figure::Again,
        Figure::Spurious,
    ];

    fn title(self) -> &'static str {
        match self {
            Figure::Ideal => "slowest/ideal",
            Figure::Median => "median/ideal",
            Figure::Slowest => "slowest us",
            Figure::Middle => "median us",
            Figure::Spread => "spread",
            Figure::Again => "again %",
            Figure::Spurious => "for nothing",
        }
    }

    fn of(self, outcome: &Outcome) -> Option<f64> {
        let ratio = |us: f64| Some(us / outcome.ideal_us.filter(|ideal| *ideal > 0.0)?);
        match self {
            Figure::Ideal => ratio(outcome.fct_us?.max),
            Figure::Median => ratio(outcome.fct_us?.p50),
            Figure::Slowest => Some(outcome.fct_us?.max),
            Figure::Middle => Some(outcome.fct_us?.p50),
            Figure::Spread => outcome.spread,
            Figure::Again => Some(outcome.packets_rtx as f64 / outcome.packets_new.max(1) as f64 * 100.0),
            Figure::Spurious => Some(outcome.packets_spurious as f64),
        }
    }

    fn shown(self, value: f64) -> String {
        match self {
            Figure::Ideal | Figure::Median => format!("{value:.3}"),
            Figure::Spread => format!("{value:.2}"),
            Figure::Slowest | Figure::Middle | Figure::Again => format!("{value:.1}"),
            Figure::Spurious => format!("{value:.0}"),
        }
    }
}

/// The cell of a figure: the worst of the seeds.
fn cell(figure: Figure, runs: &[&Row]) -> String {
    let worst = runs.iter().filter_map(|row| figure.of(&row.outcome)).reduce(f64::max);
    worst.map_or_else(|| "-".to_string(), |worst| figure.shown(worst))
}

impl Sweep {
    /// All tables, as a page in Markdown. `rows` may lack some: those runs count as missing.
    pub fn markdown(&self, rows: &[Row]) -> String {
        let mut page = format!("# {}\n", self.name);
        if !self.text.is_empty() {
            let _ = write!(page, "\n{}\n", self.text);
        }
        match self.combine {
            Combine::Each if !self.axes.is_empty() => {
                let _ = write!(page, "\n{}", self.legend());
                for (number, axis) in self.axes.iter().enumerate() {
                    let _ = write!(page, "\n## {}\n\n", axis.name);
                    if !axis.text.is_empty() {
                        let _ = write!(page, "{}\n\n", axis.text);
                    }
                    page += &self.axis_table(number, rows).markdown();
                }
            }
            Combine::Each => {
                let _ = write!(page, "\n{}", self.plain_table(rows).markdown());
            }
            Combine::All => (0..self.cases.len()).for_each(|case| {
                let _ = write!(
                    page,
                    "\n## {}\n\n{}",
                    self.cases[case].name,
                    self.case_table(case, rows).markdown()
                );
            }),
        }
        page
    }

    /// What cells hold, where a cell has several figures.
    fn legend(&self) -> String {
        let mut text = "Cells hold for\n\n".to_string();
        let mut told: Vec<&[Figure]> = Vec::new();
        for case in &self.cases {
            if told.contains(&&case.show[..]) {
                continue;
            }
            told.push(&case.show);
            let same = self.cases.iter().filter(|other| other.show == case.show);
            let names: Vec<String> = same.map(|case| format!("`{}`", case.name)).collect();
            let titles: Vec<&str> = case.show.iter().map(|figure| figure.title()).collect();
            let _ = writeln!(text, "- {}: {}", names.join(", "), titles.join(", "));
        }
        text
    }

    /// The values of one axis, below each other; the cases that it concerns beside each other.
    fn axis_table(&self, axis: usize, rows: &[Row]) -> Table {
        let axis = &self.axes[axis];
        let mut head = vec![String::new()];
        for &case in &axis.cases {
            head.push(self.cases[case].name.clone());
        }
        let line = |value: Option<&str>| {
            let mut cells = vec![value.unwrap_or(AS_IT_IS).to_string()];
            for &case in &axis.cases {
                let changed = |row: &&Row| match (value, &row.changes[..]) {
                    (None, []) => true,
                    (Some(value), [change]) => (&*change.axis, &*change.value) == (&axis.name, value),
                    _ => false,
                };
                let (figures, note) = self.cells(case, rows, changed);
                cells.push(figures.join(" / ") + note);
            }
            cells
        };
        let values = axis.values.iter().map(|value| line(Some(&value.name)));
        Table { head, rows: std::iter::once(line(None)).chain(values).collect() }
    }

    /// All cases below each other, nothing being changed.
    fn plain_table(&self, rows: &[Row]) -> Table {
        let figures: Vec<Figure> = Figure::ALL
            .into_iter()
            .filter(|figure| self.cases.iter().any(|case| case.show.contains(figure)))
            .collect();
        let titles = figures.iter().map(|figure| figure.title().to_string());
        let head = std::iter::once("case".to_string()).chain(titles).collect();
        let line = |(number, case): (usize, &Case)| {
            let (cells, note) = self.cells(number, rows, |_| true);
            let place = |figure: &Figure| case.show.iter().position(|shown| shown == figure);
            let cell = |figure: &Figure| place(figure).map_or_else(String::new, |place| cells[place].clone());
            std::iter::once(case.name.clone() + note).chain(figures.iter().map(cell)).collect()
        };
        Table { head, rows: self.cases.iter().enumerate().map(line).collect() }
    }

    /// All that was done to one case, below each other.
    fn case_table(&self, case: usize, rows: &[Row]) -> Table {
        let mut head = vec![String::new()];
        head.extend(self.cases[case].show.iter().map(|figure| figure.title().to_string()));
        let mine: Vec<&Row> = rows.iter().filter(|row| row.case == self.cases[case].name).collect();
        let mut points: Vec<_> = mine.iter().map(|row| &row.changes).collect();
        points.dedup();
        let line = |changes: &Vec<super::Change>| {
            let names: Vec<String> =
                changes.iter().map(|change| format!("{} {}", change.axis, change.value)).collect();
            let (mut cells, note) = self.cells(case, rows, |row| row.changes == *changes);
            cells.insert(0, if names.is_empty() { AS_IT_IS.into() } else { names.join(", ") } + note);
            cells
        };
        Table { head, rows: points.into_iter().map(line).collect() }
    }

    /// The figures of some runs of a case, and what a person must know of them.
    fn cells(
        &self,
        case: usize,
        rows: &[Row],
        changed: impl Fn(&&Row) -> bool,
    ) -> (Vec<String>, &'static str) {
        let case = &self.cases[case];
        let runs: Vec<&Row> = rows.iter().filter(|row| row.case == case.name).filter(changed).collect();
        let note = match runs.len() < case.seeds.iter().count() {
            true => ", runs are missing",
            false if runs.iter().any(|row| !row.complaints.is_empty()) => ", flows unfinished",
            false => "",
        };
        (case.show.iter().map(|&figure| cell(figure, &runs)).collect(), note)
    }
}
