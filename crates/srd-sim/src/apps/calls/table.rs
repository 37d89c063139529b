//! The table of calls of MPI that a run of a program has left (docs/OUTPUTS.md): what a line says.

use srd_baselines::input::shown;
use srd_virtual::Call;
use srd_virtual::calls::{ANYONE, COLUMNS, FORMS, OTHER};
use std::collections::HashMap;
use std::sync::LazyLock;

/// In the column of a rank: any. In that of a communicator: none of ranks of one job.
pub(crate) const ANY: &str = "any";

/// What to do about a file that is none.
pub(crate) const REMEDY: &str = "name a calls.csv of `srd sim mpirun --out`";

static KINDS: LazyLock<HashMap<&str, u16>> =
    LazyLock::new(|| FORMS.iter().map(|form| form.name).zip(0..).collect());

/// Whether that is the first line of such a table; if not, why.
pub(crate) fn check_head(line: &str) -> Result<(), String> {
    match line == COLUMNS.join(",") {
        true => Ok(()),
        false => Err(format!("{} is not the table's first line", shown(line))),
    }
}

/// Any other line.
pub(crate) struct Row {
    pub job: u32,
    /// The rank there.
    pub rank: u32,
    pub call: Call,
}

/// What it says.
pub(crate) fn read(line: &str) -> Result<Row, String> {
    let cells: Vec<&str> = line.split(',').collect();
    let [job, rank, thread, name, peer, source, bytes, comm, began, ended, before, within, done_in] =
        cells[..]
    else {
        return Err(format!("{} cells, where there are {}", cells.len(), COLUMNS.len()));
    };
    let nanos = |cell: &str| match cell.parse::<f64>() {
        Ok(micros) if (0.0..1e12).contains(&micros) => Ok((micros * 1000.0).round() as u64),
        _ => Err(format!("{} is no time", shown(cell))),
    };
    let number = |cell: &str, what: &str| match cell {
        "" => Ok(0),
        _ => cell.parse::<u32>().map_err(|_| format!("{} is no {what}", shown(cell))),
    };
    let named = |cell: &str| match cell {
        "" => Ok(0),
        ANY => Ok(ANYONE),
        _ => number(cell, "rank").map(|rank| rank.saturating_add(1)),
    };
    let call = Call {
        kind: *KINDS.get(name).ok_or_else(|| format!("{} is no call of MPI that is noted", shown(name)))?,
        thread: thread.parse().map_err(|_| format!("{} is no thread", shown(thread)))?,
        peer: named(peer)?,
        source: named(source)?,
        bytes: match bytes {
            "" => 0,
            _ => bytes.parse().map_err(|_| format!("{} is no number of bytes", shown(bytes)))?,
        },
        comm: if comm == ANY { OTHER } else { number(comm, "communicator")? },
        began: nanos(began)?,
        ended: nanos(ended)?,
        before: nanos(before)?,
        within: nanos(within)?,
        done_in: match done_in {
            "" => 0,
            _ => u64::from(number(done_in, "number of a call")?) + 1,
        },
    };
    let job = job.parse().map_err(|_| format!("{} is no job", shown(job)))?;
    let rank = rank.parse().map_err(|_| format!("{} is no rank", shown(rank)))?;
    Ok(Row { job, rank, call })
}
