//! A trace file line by line. Whatever the file is, what is wrong with it is said with its line, and no line may be so long
//! that it does not fit into memory.

use crate::event::FORMAT;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// The longest line: several times what the names of a scenario and of ports come to.
const LONGEST: u64 = 1 << 16;

/// Names of the lines that are not decisions of transports: the variants of [`crate::Event`].
const HAPPENED: [&str; 14] = [
    "run",
    "flow_started",
    "frame_sent",
    "frame_queued",
    "frame_lost",
    "frame_arrived",
    "packet_acked",
    "flow_received",
    "flow_sent",
    "flow_failed",
    "call_returned",
    "truncated",
    "dropped",
    "recording_ended",
];

/// Names of all events that a trace has.
pub fn event_names() -> impl Iterator<Item = &'static str> {
    HAPPENED.into_iter().chain(srd_proto::EVENTS.iter().map(|schema| schema.name))
}

/// Which schema a line follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    /// [`crate::Event`].
    Happened,
    /// A decision of a transport, of this name.
    Decided(String),
}

/// A line.
pub(crate) struct Line<'a> {
    pub(crate) text: &'a str,
    pub(crate) named: Named,
}

impl Line<'_> {
    /// What it says.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_str(self.text).map_err(damaged)
    }
}

/// All that is needed to know what a line is.
#[derive(Deserialize)]
struct Name<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
}

fn damaged(error: serde_json::Error) -> String {
    // Where in the line it is says nothing to a person, and "line 1" would mislead.
    let told = error.to_string();
    let what = told.split(" at line 1 column").next().unwrap_or_default();
    format!(
        "this is no line of a trace: {what}; if the file was cut short or edited, run `srd sim` with --trace again"
    )
}

const NONE: &str = "this is no trace: the first line of a trace begins with {\"event\":\"run\"; `srd sim SCENARIO.toml --out \
                    DIR --trace` writes DIR/trace.jsonl, `srd trace --record PID --out FILE` records a process";

/// Gives each line of the file at `path` to `take`. Errors name the file and the line.
pub(crate) fn read(path: &Path, take: impl FnMut(&Line<'_>) -> Result<(), String>) -> io::Result<()> {
    let name = path.display();
    let named =
        |error: io::Error, advice: &str| io::Error::new(error.kind(), format!("{name}: {error}{advice}"));
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            named(error, "; `srd sim SCENARIO.toml --out DIR --trace` writes DIR/trace.jsonl")
        }
        _ => named(error, ""),
    })?;
    if file.metadata().is_ok_and(|found| found.is_dir()) {
        let what = "this is a directory; the trace in the directory of --out is called trace.jsonl";
        return Err(io::Error::new(io::ErrorKind::IsADirectory, format!("{name}: {what}")));
    }
    read_from(BufReader::new(file), take)
        .map_err(|error| io::Error::new(error.kind(), format!("{name}{error}")))
}

/// As [`read`]; errors begin with the number of the line, as in `:12: ...`.
pub(crate) fn read_from(
    mut from: impl BufRead,
    mut take: impl FnMut(&Line<'_>) -> Result<(), String>,
) -> io::Result<()> {
    let bad =
        |line: u64, what: String| Err(io::Error::new(io::ErrorKind::InvalidData, format!(":{line}: {what}")));
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let read = from.by_ref().take(LONGEST).read_until(b'\n', &mut bytes);
        match read.map_err(|error| io::Error::new(error.kind(), format!(":{number}: {error}")))? {
            0 if number == 1 => {
                return bad(1, format!("the file is empty: {}", &NONE["this is no trace: ".len()..]));
            }
            0 => break,
            _ if bytes.len() as u64 == LONGEST && bytes.last() != Some(&b'\n') => {
                let what = if number == 1 { NONE } else { "this is no line of a trace: it is too long" };
                return bad(number, what.to_string());
            }
            _ => {}
        }
        let Ok(text) = std::str::from_utf8(&bytes) else {
            let what = if number == 1 { NONE } else { "this is no line of a trace: it is not UTF-8 text" };
            return bad(number, what.to_string());
        };
        if let Err(what) = take_text(text.trim_end_matches(['\n', '\r']), number == 1, &mut take) {
            return bad(number, what);
        }
    }
    Ok(())
}

fn take_text(
    text: &str,
    first: bool,
    take: &mut impl FnMut(&Line<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let Name { event } =
        serde_json::from_str(text).map_err(|error| if first { NONE.to_string() } else { damaged(error) })?;
    match (first, event.as_ref()) {
        (true, "run") => check_format(text)?,
        (true, _) => return Err(NONE.to_string()),
        (false, "run") => {
            return Err("a second run begins here: a trace has one, in its first line".to_string());
        }
        (false, _) => {}
    }
    let named = match HAPPENED.contains(&event.as_ref()) {
        true => Named::Happened,
        false => Named::Decided(event.into_owned()),
    };
    take(&Line { text, named })
}

/// Refuses traces of other formats.
fn check_format(run: &str) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    match serde_json::from_str(run).map_err(damaged)? {
        Format { format: FORMAT } => Ok(()),
        Format { format } => Err(format!(
            "the trace has format {format}, and this program reads format {FORMAT}: run `srd sim` with --trace again, or \
             use the program that wrote it"
        )),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::event::Event;
    use crate::reading::TraceFile;

    const RUN: &str =
        r#"{"event":"run","format":2,"scenario":"a","seed":1,"flows":1,"traced":1,"base_rtt_us":8}"#;

    /// The trace of these lines.
    pub(crate) fn read(lines: &[&str]) -> Result<TraceFile, String> {
        TraceFile::parse(lines.join("\n").as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_no_trace_is_said_to_be_none() {
        let long = format!("{{\"event\":\"{}\"}}", "x".repeat(LONGEST as usize));
        for (lines, word) in [
            (&[][..], ":1: the file is empty: "),
            (&["time_us,flow"][..], ":1: this is no trace"),
            (&[""][..], "the file is empty"),
            (&["\0\0"][..], ":1: this is no trace"),
            (&[long.as_str()][..], ":1: this is no trace"),
            (&[r#"{"event":"frame_sent"}"#][..], ":1: this is no trace"),
            (&[RUN, "{"][..], ":2: this is no line of a trace: EOF"),
            (&[RUN, ""][..], ":2: this is no line of a trace"),
            (&[RUN, long.as_str()][..], ":2: this is no line of a trace: it is too long"),
            (&[RUN, RUN][..], ":2: a second run begins here"),
            (&[RUN, r#"{"event":"flow_sent","t_us":1}"#][..], "missing field `flow`"),
            (
                &[RUN, r#"{"event":"packet_lost","t_us":1,"src":"h0.0"}"#][..],
                ":2: this is no line of a trace",
            ),
            (
                &[RUN, r#"{"event":"frame_arrived","t_us":1,"flow":1,"psn":7,"tx":0,"arrived_us":1}"#],
                "never sent",
            ),
        ] {
            // A file ends with the end of a line.
            let lines: Vec<&str> = if lines == [RUN, ""] { vec![RUN, "", ""] } else { lines.to_vec() };
            let error = read(&lines).expect_err(word);
            assert!(error.contains(word), "{error}");
        }
        let other = RUN.replace("\"format\":2", "\"format\":3");
        assert!(read(&[&other]).is_err_and(|error| error.contains("format 3") && error.contains("again")));
        let not_text = read_from(&b"\xff\xfe\n"[..], |_| Ok(())).expect_err("no text").to_string();
        assert!(not_text.contains(":1: this is no trace"), "{not_text}");
    }

    #[test]
    fn all_events_of_the_schema_are_read() {
        let error = serde_json::from_str::<Event>(r#"{"event":"x"}"#).expect_err("unknown").to_string();
        let names = error.split("expected one of ").nth(1).unwrap_or_default().split(" at line").next();
        let names: Vec<&str> =
            names.unwrap_or_default().split(", ").map(|name| name.trim_matches('`')).collect();
        assert_eq!(names, HAPPENED);
    }

    #[test]
    fn no_two_events_have_the_same_name() {
        let mut names: Vec<&str> = event_names().collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    }

    #[test]
    fn decisions_of_later_transports_are_passed_by() {
        let trace = read(&[RUN, r#"{"event":"mind_changed","t_us":1.5,"src":"h1.0","dst":"h0.0","path":3}"#]);
        assert!(trace.is_ok_and(|trace| trace.numbers().next().is_none()));
    }
}
