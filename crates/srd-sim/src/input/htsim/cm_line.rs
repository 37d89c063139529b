//! Single lines of connection matrices.

use super::tokens::{Line, plain_number};
use crate::apps::TriggerKind;
use srd_baselines::input::{InputError, listed, shown};
use srd_baselines::units::Ps;

/// `0->13 id 1 start 0 size 2000000 send_done_trigger 1`
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) line: u32,
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) id: Option<u32>,
    pub(super) begin: Begin,
    pub(super) bytes: u64,
    pub(super) on_sent: Option<u32>,
    pub(super) on_received: Option<u32>,
    /// A message on the connection with this id.
    pub(super) message: bool,
    pub(super) priority: bool,
}

/// When a connection begins, triggers by their numbers in the file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Begin {
    At(Ps),
    Trigger(u32),
}

/// `trigger id 2 barrier count 1`
pub(super) struct TriggerLine {
    pub(super) line: u32,
    pub(super) id: u32,
    pub(super) kind: TriggerKind,
}

/// `failure switch_type AGG switch_id 0 link_id 3`: the link from an aggregation switch to one of its cores is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailedLink {
    /// Line of the file.
    pub line: u32,
    /// Aggregation switch, counted through all pods.
    pub switch: u32,
    /// Its so-manieth core, from 0 on.
    pub link: u32,
}

/// Latest start of a flow: eleven days. Far beyond any run, and far from where picoseconds overflow.
const LATEST_START_US: f64 = 1e12;
const CONNECTION_KEYWORDS: [&str; 8] =
    ["start", "trigger", "size", "id", "send_done_trigger", "recv_done_trigger", "prio", "msg"];

/// What has been read of a connection line.
#[derive(Default)]
struct Parts {
    start: Option<Ps>,
    trigger: Option<u32>,
    size: Option<u32>,
    id: Option<u32>,
    on_sent: Option<u32>,
    on_received: Option<u32>,
    priority: Option<u32>,
    message: Option<u32>,
}

/// The line that begins with `SRC->DST` (the word `ends`), on a network of `hosts` hosts.
pub(super) fn connection(ends: &str, mut line: Line<'_>, hosts: u32) -> Result<Connection, InputError> {
    let (src, dst) = ends_of(ends, &line, hosts)?;
    let mut parts = Parts::default();
    while let Some(keyword) = line.word() {
        connection_word(keyword, &mut line, &mut parts)?;
    }
    let begin = match (parts.start, parts.trigger) {
        (Some(at), None) => Begin::At(at),
        (None, Some(trigger)) => Begin::Trigger(trigger),
        (None, None) => return Err(line.error("no beginning: write `start T` (microseconds) or `trigger N`")),
        (Some(_), Some(_)) => return Err(line.error("both `start` and `trigger`: leave one of them out")),
    };
    let lacking = || line.error("no size: write `size B` (bytes of payload)");
    let bytes = parts.size.ok_or_else(lacking)?.into();
    if parts.message.is_some() && parts.id.is_none() {
        return Err(line.error("`msg` without `id`: a message needs the id of its connection"));
    }
    Ok(Connection {
        line: line.number,
        src,
        dst,
        id: parts.id,
        begin,
        bytes,
        on_sent: parts.on_sent,
        on_received: parts.on_received,
        message: parts.message.is_some(),
        priority: parts.priority.is_some(),
    })
}

fn ends_of(ends: &str, line: &Line<'_>, hosts: u32) -> Result<(u32, u32), InputError> {
    let numbers = ends.split_once("->").and_then(|(src, dst)| {
        let (src, dst) = (plain_number::<u64>(src)?, plain_number::<u64>(dst)?);
        Some((src, dst))
    });
    let Some((src, dst)) = numbers else {
        return Err(
            line.error(format!("{} is not a pair of hosts: write `SRC->DST`, such as `0->13`", shown(ends)))
        );
    };
    for host in [src, dst] {
        if host >= hosts.into() {
            let range = format!("Nodes says {hosts}, so hosts are 0 to {}", hosts.saturating_sub(1));
            return Err(line.error(format!("there is no host {host}: {range}")));
        }
    }
    if src == dst {
        return Err(
            line.error(format!("host {src} sends to itself: such a flow crosses no network, take it out"))
        );
    }
    Ok((src as u32, dst as u32))
}

fn connection_word(keyword: &str, line: &mut Line<'_>, parts: &mut Parts) -> Result<(), InputError> {
    match keyword {
        "start" => {
            let start = start(line)?;
            once(&mut parts.start, start, keyword, line)
        }
        "trigger" => {
            let trigger = line.number(keyword, 1)?;
            if parts.id.is_none() {
                return Err(line.error("`trigger` needs the flow's `id` before it on the line"));
            }
            once(&mut parts.trigger, trigger, keyword, line)
        }
        "msg" => {
            let number = line.peek().is_some_and(|word| plain_number::<u32>(word).is_some());
            let message = if number { line.number(keyword, 1)? } else { 0 };
            once(&mut parts.message, message, keyword, line)
        }
        "addon" => Err(line.error("`addon` is csg-htsim's word: write `msg`")),
        _ => {
            let (slot, least) = match keyword {
                "size" => (&mut parts.size, 1),
                "id" => (&mut parts.id, 1),
                "send_done_trigger" => (&mut parts.on_sent, 1),
                "recv_done_trigger" => (&mut parts.on_received, 1),
                "prio" => (&mut parts.priority, 0),
                _ => {
                    let known = format!("a connection has {}", listed(&CONNECTION_KEYWORDS));
                    let comment =
                        if keyword.starts_with('#') { " (comments stand in the header only)" } else { "" };
                    return Err(line.error(format!("{} is not known: {known}{comment}", shown(keyword))));
                }
            };
            let value = line.number(keyword, least)?;
            once(slot, value, keyword, line)
        }
    }
}

/// Microseconds, whole or not.
fn start(line: &mut Line<'_>) -> Result<Ps, InputError> {
    let word = line.value("start")?;
    match word.parse::<f64>() {
        Ok(micros) if (0.0..=LATEST_START_US).contains(&micros) => Ok(Ps::from_micros_f64(micros)),
        _ => {
            let range = format!("write microseconds, from 0 to {LATEST_START_US:e}");
            Err(line.error(format!("{} is not a value of `start`: {range}", shown(word))))
        }
    }
}

fn once<T>(slot: &mut Option<T>, value: T, keyword: &str, line: &Line<'_>) -> Result<(), InputError> {
    match slot.replace(value) {
        Some(_) => Err(line.error(format!("`{keyword}` comes twice: leave one out"))),
        None => Ok(()),
    }
}

/// The line behind the word `trigger`.
pub(super) fn trigger(mut line: Line<'_>) -> Result<TriggerLine, InputError> {
    let (mut id, mut kind, mut count) = (None, None, None);
    while let Some(word) = line.word() {
        match word {
            "id" => {
                let number = line.number(word, 1)?;
                once(&mut id, number, word, &line)?;
            }
            "count" => {
                let number = line.number::<u32>(word, 1)?;
                once(&mut count, number, word, &line)?;
            }
            "oneshot" => once(&mut kind, TriggerKind::Oneshot, "the kind of trigger", &line)?,
            "multishot" => once(&mut kind, TriggerKind::Multishot, "the kind of trigger", &line)?,
            "barrier" => once(&mut kind, TriggerKind::Barrier(0), "the kind of trigger", &line)?,
            _ => {
                let known = "a trigger has `id N`, then `oneshot`, `multishot` or `barrier count K`";
                return Err(line.error(format!("{} is not known: {known}", shown(word))));
            }
        }
    }
    let id = id.ok_or_else(|| line.error("a trigger without `id N`"))?;
    let kind = match (kind, count) {
        (Some(TriggerKind::Barrier(_)), Some(count)) => TriggerKind::Barrier(count),
        (Some(TriggerKind::Barrier(_)), None) => {
            return Err(
                line.error("a barrier needs `count K`: how often it is fired before it starts its flows")
            );
        }
        (Some(_), Some(_)) => return Err(line.error("`count` goes with `barrier` alone: leave it out")),
        (Some(kind), None) => kind,
        (None, _) => {
            return Err(
                line.error("a trigger without a kind: write `oneshot`, `multishot` or `barrier count K`")
            );
        }
    };
    Ok(TriggerLine { line: line.number, id, kind })
}

/// The line behind the word `failure`.
pub(super) fn failure(mut line: Line<'_>) -> Result<FailedLink, InputError> {
    let (mut of_agg, mut switch, mut link) = (None, None, None);
    while let Some(word) = line.word() {
        match word {
            "switch_type" => match line.value(word)? {
                "AGG" => once(&mut of_agg, (), word, &line)?,
                other => {
                    let why = "failures of links between AGG and core alone are supported";
                    return Err(line
                        .error(format!("switch_type {}: {why}, here as in htsim; write AGG", shown(other))));
                }
            },
            "switch_id" => {
                let number = line.number::<u32>(word, 0)?;
                once(&mut switch, number, word, &line)?;
            }
            "link_id" => {
                let number = line.number::<u32>(word, 0)?;
                once(&mut link, number, word, &line)?;
            }
            _ => {
                let known = "a failure has `switch_type AGG switch_id S link_id L`";
                return Err(line.error(format!("{} is not known: {known}", shown(word))));
            }
        }
    }
    match (of_agg, switch, link) {
        (Some(()), Some(switch), Some(link)) => Ok(FailedLink { line: line.number, switch, link }),
        _ => Err(line.error("a failure needs all of `switch_type AGG switch_id S link_id L`")),
    }
}
