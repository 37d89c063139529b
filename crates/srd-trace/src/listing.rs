//! Lines of a trace that somebody wants to see: of some flows, some events, some time.

use crate::event::Event;
use crate::lines::{self, Named, event_names};
use crate::reading::not_there;
use crate::words::harmless;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Which lines are wanted.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Wanted {
    /// Those of these flows, and decisions about the connections that they take; empty: of all.
    pub flows: Vec<u32>,
    /// Those of these events; empty: of all that have a time.
    pub events: Vec<String>,
    /// From this time on.
    pub from_us: Option<f64>,
    /// Until this time.
    pub to_us: Option<f64>,
}

/// How lines are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As they are in the file.
    Json,
    /// For a person: time, event, whose it is, and the rest.
    Text,
}

/// Gives the wanted lines of the trace at `path` to `sink`, in their order, each with its end. Returns how many lines the
/// trace lacks because it became too long.
pub fn list(
    path: &Path,
    wanted: &Wanted,
    form: Form,
    sink: &mut dyn FnMut(&str) -> io::Result<()>,
) -> io::Result<u64> {
    if let Some(unknown) = wanted.events.iter().find(|event| !event_names().any(|name| name == **event)) {
        let names: Vec<&str> = event_names().collect();
        let message =
            format!("no event is called `{}`; there are {}", unknown.escape_debug(), names.join(", "));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let ends = ends_of(path, &wanted.flows)?;
    let mut missing = 0;
    let mut failed = None;
    let read = lines::read(path, |line| {
        let fields: Map<String, Value> = line.parse()?;
        if let Some(more) = fields.get("missing").filter(|_| line.named == Named::Happened) {
            missing = more.as_u64().unwrap_or(0);
        }
        if wants(wanted, &ends, &fields) {
            let text = match form {
                Form::Json => format!("{}\n", line.text),
                Form::Text => told(&fields),
            };
            failed = sink(&text).err();
        }
        // Whoever reads no more wants no more read.
        failed.as_ref().map_or(Ok(()), |error| Err(error.to_string()))
    });
    match failed {
        Some(error) => Err(error),
        None => read.map(|()| missing),
    }
}

/// Processes at the ends of these flows, in both orders.
fn ends_of(path: &Path, flows: &[u32]) -> io::Result<BTreeSet<(String, String)>> {
    let mut ends = BTreeMap::new();
    if flows.is_empty() {
        return Ok(BTreeSet::new());
    }
    lines::read(path, |line| {
        if line.named == Named::Happened
            && line.text.contains("\"flow_started\"")
            && let Event::FlowStarted { flow, src, dst, .. } = line.parse()?
        {
            ends.insert(flow, (src, dst));
        }
        Ok(())
    })?;
    if let Some(number) = flows.iter().find(|number| !ends.contains_key(number)) {
        return Err(not_there(*number, ends.into_keys()));
    }
    let wanted = flows.iter().filter_map(|flow| ends.get(flow));
    Ok(wanted.flat_map(|(src, dst)| [(src.clone(), dst.clone()), (dst.clone(), src.clone())]).collect())
}

fn wants(wanted: &Wanted, ends: &BTreeSet<(String, String)>, fields: &Map<String, Value>) -> bool {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let at = fields.get("t_us").and_then(Value::as_f64);
    let in_time = match at {
        Some(at) => wanted.from_us.is_none_or(|from| at >= from) && wanted.to_us.is_none_or(|to| at <= to),
        None => wanted.from_us.is_none() && wanted.to_us.is_none(),
    };
    let event = text("event");
    let named = match &wanted.events[..] {
        [] => at.is_some(),
        events => events.iter().any(|wanted| wanted == event),
    };
    let of_flow = || match fields.get("flow").and_then(Value::as_u64) {
        Some(number) => wanted.flows.iter().any(|&flow| flow as u64 == number),
        None => ends.contains(&(text("src").to_string(), text("dst").to_string())),
    };
    in_time && named && (wanted.flows.is_empty() || of_flow())
}

/// `1234.567 us  packet_lost         h3.0->h0.0    psn=7 path=3 ...`
fn told(fields: &Map<String, Value>) -> String {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let at = fields.get("t_us").and_then(Value::as_f64).unwrap_or(0.0);
    let whose = match fields.get("flow") {
        Some(number) => format!("flow {number}"),
        None if fields.contains_key("src") => format!("{}->{}", text("src"), text("dst")),
        None => String::new(),
    };
    let mut rest = String::new();
    for (name, value) in fields {
        let known = match name.as_str() {
            "event" | "t_us" | "flow" => true,
            "src" | "dst" => !fields.contains_key("flow"),
            _ => false,
        };
        if !known {
            rest += &match value {
                Value::String(text) => format!(" {name}={text}"),
                Value::Null => format!(" {name}=-"),
                value => format!(" {name}={value}"),
            };
        }
    }
    harmless(&format!("{at:>14.3} us  {:<18} {whose:<14}{rest}\n", text("event")))
}
