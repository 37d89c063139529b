//! What a run of real programs leaves of its calls of MPI: a table, which another run may take what is computed from, and a timeline in the form
//! of Chrome's tracing, which Perfetto reads.

use super::folder::Folder;
use super::table::{Cell, Columns, Table};
use crate::apps::Jobs;
use crate::input::Scenario;
use serde::Serialize;
use srd_baselines::input::{counted, shown};
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
/// The same of several jobs.
const CALLS_OF_JOBS: Columns = Columns {
    file: CALLS.file,
    names: &[
        "job",
        "rank",
        "thread",
        "call",
        "peer",
        "bytes",
        "begin_us",
        "end_us",
        "before_us",
        "within_us",
    ],
};
/// The timeline.
pub const TIMELINE: &str = "timeline.json";

fn ps(nanos: u64) -> Ps {
    Ps::of(Time(nanos))
}

fn columns(jobs: &Jobs) -> Columns {
    if jobs.are_several() { CALLS_OF_JOBS } else { CALLS }
}

/// Writes the table.
pub(super) fn write_table(folder: &Folder, jobs: &Jobs, calls: &[Vec<Call>]) -> io::Result<()> {
    let mut table = Table::create(folder, columns(jobs))?;
    for (number, calls) in (0..).zip(calls) {
        let (job, rank) = jobs.locate(number);
        for call in calls {
            let cells = [
                job.into(),
                rank.into(),
                call.thread.into(),
                FORMS[usize::from(call.kind)].name.into(),
                call.peer.checked_sub(1).into(),
                if call.bytes > 0 { call.bytes.into() } else { Cell::Empty },
                ps(call.began).into(),
                ps(call.ended).into(),
                ps(call.before).into(),
                ps(call.within).into(),
            ];
            if jobs.are_several() {
                table.row(cells)?;
            } else {
                let [_, of_one_job @ ..] = cells;
                table.row(of_one_job)?;
            }
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
pub(super) fn write_timeline(
    folder: &Folder,
    scenario: &Scenario,
    jobs: &Jobs,
    calls: &[Vec<Call>],
) -> io::Result<()> {
    let mut out = folder.create(TIMELINE)?;
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut first = true;
    let mut put = |entry: &Entry<'_>| {
        out.write_all(if std::mem::take(&mut first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut out, entry).map_err(io::Error::from)
    };
    for ((rank, calls), program) in (0..).zip(calls).zip(&scenario.traffic.programs) {
        let mut args = serde_json::Map::new();
        args.insert("name".into(), format!("{}, h{}", jobs.name(rank), program.at.host).into());
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

/// What another run of as many jobs with as many ranks has noted, for each rank.
pub fn read_calls(file: &Path, jobs: &Jobs) -> io::Result<Vec<Vec<Call>>> {
    let of_job: Vec<_> = jobs.all().collect();
    let ranks = of_job.iter().map(ExactSizeIterator::len).sum::<usize>();
    let wrong = |line: usize, what: String| {
        let what =
            format!("{}:{line}: {what}: name a {} of `srd sim mpirun --out`", file.display(), CALLS.file);
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    let open = File::open(file)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    let kinds: HashMap<&str, u16> = FORMS.iter().map(|form| form.name).zip(0..).collect();
    let mut calls = vec![Vec::new(); ranks];
    for (number, line) in (1..).zip(BufReader::new(open).lines()) {
        let line = line.map_err(|error| wrong(number, error.to_string()))?;
        if number == 1 {
            if line != columns(jobs).names.join(",") {
                let of = counted(jobs.count() as u64, "job");
                return Err(wrong(1, format!("{} is not the first line of the table of {of}", shown(&line))));
            }
            continue;
        }
        let mut cells: Vec<&str> = line.split(',').collect();
        let job = if jobs.are_several() { cells.remove(0) } else { "0" };
        let [rank, thread, name, _, _, began, ended, before, within] = cells[..] else {
            return Err(wrong(
                number,
                format!("{} cells in a row, where there are {}", cells.len(), CALLS.names.len()),
            ));
        };
        let nanos = |cell: &str| match cell.parse::<f64>() {
            Ok(micros) if (0.0..1e12).contains(&micros) => Ok((micros * 1000.0).round() as u64),
            _ => Err(wrong(number, format!("{} is no time", shown(cell)))),
        };
        let rank: usize = rank.parse().map_err(|_| wrong(number, format!("{} is no rank", shown(rank))))?;
        let job: usize = job.parse().map_err(|_| wrong(number, format!("{} is no job", shown(job))))?;
        let of_rank = of_job.get(job).and_then(|of_job| of_job.clone().nth(rank));
        let Some(of_rank) = of_rank.and_then(|number| calls.get_mut(number as usize)) else {
            let now = of_job.get(job).map_or(0, ExactSizeIterator::len);
            let of = if jobs.are_several() { format!(" of job {job}") } else { String::new() };
            let what = format!(
                "rank {rank}{of} was recorded, and there are {now} ranks{of} now: record with as many"
            );
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
            "{} has no calls there: record with the {ranks} ranks that there are now",
            jobs.name(rank as u32)
        ));
    }
    if calls.iter().flatten().all(|call| call.before + call.within == 0) {
        return refused("nothing was computed there: record with `--compute measured`".into());
    }
    Ok(calls)
}
