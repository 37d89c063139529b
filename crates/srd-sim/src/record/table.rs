//! Tables of comma-separated values (RFC 4180), whose columns are said once.

use super::folder::Folder;
use srd_baselines::units::Ps;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// A file and its columns; docs/OUTPUTS.md says what each holds.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// Name of the file.
    pub file: &'static str,
    /// Names of the columns, unit last.
    pub names: &'static [&'static str],
}

/// One value.
pub(super) enum Cell<'a> {
    Empty,
    Count(u64),
    /// A time or a span, in microseconds to the picosecond.
    Micros(Ps),
    /// Anything else that has a fraction: four digits of it.
    Real(f64),
    Text(&'a str),
}

impl From<u64> for Cell<'_> {
    fn from(n: u64) -> Self {
        Cell::Count(n)
    }
}

impl From<u32> for Cell<'_> {
    fn from(n: u32) -> Self {
        Cell::Count(n as u64)
    }
}

impl From<u16> for Cell<'_> {
    fn from(n: u16) -> Self {
        Cell::Count(n as u64)
    }
}

impl From<Ps> for Cell<'_> {
    fn from(time: Ps) -> Self {
        Cell::Micros(time)
    }
}

impl From<f64> for Cell<'_> {
    fn from(x: f64) -> Self {
        Cell::Real(x)
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Cell::Text(text)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Empty, Into::into)
    }
}

/// See the module.
pub(super) struct Table {
    out: BufWriter<File>,
    columns: usize,
    line: String,
}

impl Table {
    pub(super) fn create(folder: &Folder, columns: Columns) -> io::Result<Table> {
        let mut out = folder.create(columns.file)?;
        writeln!(out, "{}", columns.names.join(","))?;
        Ok(Table { out, columns: columns.names.len(), line: String::new() })
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [Cell<'_>; N]) -> io::Result<()> {
        debug_assert_eq!(N, self.columns, "a row has a value for each column");
        self.line.clear();
        for (place, cell) in cells.into_iter().enumerate() {
            if place > 0 {
                self.line.push(',');
            }
            put(&mut self.line, cell);
        }
        self.line.push('\n');
        self.out.write_all(self.line.as_bytes())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn put(line: &mut String, cell: Cell<'_>) {
    let _ = match cell {
        Cell::Empty => Ok(()),
        Cell::Count(n) => write!(line, "{n}"),
        Cell::Micros(time) => write!(line, "{}", time.as_micros()),
        Cell::Real(x) => write!(line, "{}", (x * 1e4).round() / 1e4),
        Cell::Text(text) => write!(line, "{}", quoted(text)),
    };
}

/// A field, in quotes where it needs them.
pub(crate) fn quoted(text: &str) -> Cow<'_, str> {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")).into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_so_that_others_read_them() {
        let mut line = String::new();
        for cell in [
            Cell::from(7u32),
            Cell::from(Ps(1_234_567)),
            Cell::from(0.1 + 0.2),
            Cell::from("a \"b\", c"),
            Cell::from(None::<u32>),
        ] {
            put(&mut line, cell);
            line.push(',');
        }
        assert_eq!(line, "7,1.234567,0.3,\"a \"\"b\"\", c\",,");
    }
}
