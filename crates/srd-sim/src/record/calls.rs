//! What a run of real programs leaves of its calls of MPI: a table, which another run may take what is computed from, and a timeline in the form
//! of Chrome's tracing, which Perfetto reads.

use super::folder::Folder;
use super::table::{Cell, Columns, Table};
use crate::apps::Jobs;
use crate::apps::calls::table::{self, ANY, REMEDY};
use crate::input::Scenario;
use serde::Serialize;
use srd_baselines::units::Ps;
use srd_virtual::Call;
use srd_virtual::calls::{ANYONE, COLUMNS, FORMS, OTHER};
use srd_wire::Time;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

/// The table.
pub const CALLS: Columns = Columns { file: "calls.csv", names: &COLUMNS };
/// The timeline.
pub const TIMELINE: &str = "timeline.json";

fn ps(nanos: u64) -> Ps {
    Ps::of(Time(nanos))
}

/// Writes the table.
pub(super) fn write_table(folder: &Folder, jobs: &Jobs, calls: &[Vec<Call>]) -> io::Result<()> {
    let named = |rank: u32| match rank {
        ANYONE => ANY.into(),
        _ => rank.checked_sub(1).into(),
    };
    let mut table = Table::create(folder, CALLS)?;
    for (number, calls) in (0..).zip(calls) {
        let (job, rank) = jobs.locate(number);
        for call in calls {
            table.row([
                job.into(),
                rank.into(),
                call.thread.into(),
                FORMS[usize::from(call.kind)].name.into(),
                named(call.peer),
                named(call.source),
                if call.bytes > 0 { call.bytes.into() } else { Cell::Empty },
                if call.comm == OTHER { ANY.into() } else { call.comm.into() },
                ps(call.began).into(),
                ps(call.ended).into(),
                ps(call.before).into(),
                ps(call.within).into(),
                call.done_in.checked_sub(1).into(),
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
            if let Some(peer) = call.named() {
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
        io::Error::new(io::ErrorKind::InvalidData, format!("{}:{line}: {what}: {REMEDY}", file.display()))
    };
    let open = File::open(file)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    let mut calls = vec![Vec::new(); ranks];
    for (number, line) in (1..).zip(BufReader::new(open).lines()) {
        let line = line.map_err(|error| wrong(number, error.to_string()))?;
        if number == 1 {
            table::check_head(&line).map_err(|what| wrong(1, what))?;
            continue;
        }
        let table::Row { job, rank, call } = table::read(&line).map_err(|what| wrong(number, what))?;
        let of_rank = of_job.get(job as usize).and_then(|of_job| of_job.clone().nth(rank as usize));
        let Some(of_rank) = of_rank.and_then(|number| calls.get_mut(number as usize)) else {
            let now = of_job.get(job as usize).map_or(0, ExactSizeIterator::len);
            let of = if jobs.are_several() { format!(" of job {job}") } else { String::new() };
            let what = format!(
                "rank {rank}{of} was recorded, and there are {now} ranks{of} now: record with as many"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", file.display())));
        };
        if !FORMS[usize::from(call.kind)].polls {
            of_rank.push(call); // of polls another run makes more or less
        }
    }
    let refused =
        |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", file.display())));
    if calls.iter().all(Vec::is_empty) {
        return refused(format!("there are no calls: {REMEDY}"));
    }
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
