//! What a run of real programs leaves of its calls of MPI: a table, which another run may take what is computed from, and a timeline in the form
//! of Chrome's tracing, which Perfetto reads.

use super::folder::Folder;
use super::table::{Cell, Columns, Table};
use crate::input::Scenario;
use serde::Serialize;
use srd_baselines::input::shown;
use srd_baselines::units::Ps;
use srd_virtual::Call;
use srd_virtual::calls::FORMS;
use srd_wire::Time;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

/// The table.
pub const CALLS: Columns = Columns {
    file: "calls.csv",
    names: &["rank", "thread", "call", "peer", "bytes", "begin_us", "end_us", "before_us", "within_us"],
};
/// The timeline.
pub const TIMELINE: &str = "timeline.json";

fn ps(nanos: u64) -> Ps {
    Ps::of(Time(nanos))
}

/// Writes the table.
pub(super) fn write_table(folder: &Folder, calls: &[Vec<Call>]) -> io::Result<()> {
    let mut table = Table::create(folder, CALLS)?;
    for (rank, calls) in (0u32..).zip(calls) {
        for call in calls {
            table.row([
                rank.into(),
                call.thread.into(),
                FORMS[usize::from(call.kind)].name.into(),
                call.peer.checked_sub(1).into(),
                if call.bytes > 0 { call.bytes.into() } else { Cell::Empty },
                ps(call.began).into(),
                ps(call.ended).into(),
                ps(call.before).into(),
                ps(call.within).into(),
            ])?;
        }
    }
    table.finish()
}

/// An event of Chrome's tracing ("Trace Event Format", Google): a span on a thread's track, or a name.
#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    ph: &'a str,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    args: serde_json::Map<String, serde_json::Value>,
}

/// Writes the timeline: a process for each rank, a track for each thread.
pub(super) fn write_timeline(folder: &Folder, scenario: &Scenario, calls: &[Vec<Call>]) -> io::Result<()> {
    let mut out = folder.create(TIMELINE)?;
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut first = true;
    let mut put = |entry: &Entry<'_>| {
        out.write_all(if std::mem::take(&mut first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut out, entry).map_err(io::Error::from)
    };
    for ((rank, calls), program) in (0..).zip(calls).zip(&scenario.traffic.programs) {
        let mut args = serde_json::Map::new();
        args.insert("name".into(), format!("rank {rank}, h{}", program.at.host).into());
        put(&Entry { name: "process_name", ph: "M", pid: rank, tid: 0, ts: None, dur: None, args })?;
        let mut args = serde_json::Map::new();
        args.insert("sort_index".into(), rank.into());
        put(&Entry { name: "process_sort_index", ph: "M", pid: rank, tid: 0, ts: None, dur: None, args })?;
        for call in calls {
            let mut args = serde_json::Map::new();
            if let Some(peer) = call.peer.checked_sub(1) {
                args.insert("peer".into(), peer.into());
            }
            if call.bytes > 0 {
                args.insert("bytes".into(), call.bytes.into());
            }
            put(&Entry {
                name: FORMS[usize::from(call.kind)].name,
                ph: "X",
                pid: rank,
                tid: call.thread.into(),
                ts: Some(ps(call.began).as_micros()),
                dur: Some(ps(call.ended - call.began).as_micros()),
                args,
            })?;
        }
    }
    out.write_all(b"\n]}\n")?;
    out.flush()
}

/// What another run has noted, for each of so many ranks.
pub fn read_calls(file: &Path, ranks: u32) -> io::Result<Vec<Vec<Call>>> {
    let wrong = |line: usize, what: String| {
        let what =
            format!("{}:{line}: {what}: name a {} of `srd sim mpirun --out`", file.display(), CALLS.file);
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    let open = File::open(file)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    let kinds: HashMap<&str, u16> = FORMS.iter().map(|form| form.name).zip(0..).collect();
    let mut calls = vec![Vec::new(); ranks as usize];
    for (number, line) in (1..).zip(BufReader::new(open).lines()) {
        let line = line.map_err(|error| wrong(number, error.to_string()))?;
        if number == 1 {
            if line != CALLS.names.join(",") {
                return Err(wrong(1, format!("{} is not the table's first line", shown(&line))));
            }
            continue;
        }
        let cells: Vec<&str> = line.split(',').collect();
        let [rank, thread, name, _, _, began, ended, before, within] = cells[..] else {
            return Err(wrong(
                number,
                format!("{} cells, where there are {}", cells.len(), CALLS.names.len()),
            ));
        };
        let nanos = |cell: &str| match cell.parse::<f64>() {
            Ok(micros) if (0.0..1e12).contains(&micros) => Ok((micros * 1000.0).round() as u64),
            _ => Err(wrong(number, format!("{} is no time", shown(cell)))),
        };
        let rank: usize = rank.parse().map_err(|_| wrong(number, format!("{} is no rank", shown(rank))))?;
        let Some(of_rank) = calls.get_mut(rank) else {
            let what =
                format!("rank {rank} was recorded, and there are {ranks} ranks now: record with as many");
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", file.display())));
        };
        let kind = *kinds.get(name).ok_or_else(|| wrong(number, format!("{} is no call", shown(name))))?;
        if FORMS[usize::from(kind)].polls {
            continue; // another run makes more or less of them
        }
        of_rank.push(Call {
            kind,
            thread: thread.parse().map_err(|_| wrong(number, format!("{} is no thread", shown(thread))))?,
            began: nanos(began)?,
            ended: nanos(ended)?,
            before: nanos(before)?,
            within: nanos(within)?,
            ..Call::default()
        });
    }
    let refused =
        |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", file.display())));
    if let Some(rank) = calls.iter().position(Vec::is_empty) {
        return refused(format!(
            "rank {rank} has no calls there: record with the {ranks} ranks that there are now"
        ));
    }
    if calls.iter().flatten().all(|call| call.before + call.within == 0) {
        return refused("nothing was computed there: record with `--compute measured`".into());
    }
    Ok(calls)
}
