//! `[[workload]]`: what the fabric is to move.

use super::{Context, programs};
use crate::apps::workload::{self, Kind, Workload};
use crate::apps::{MAX_BYTES, MAX_FLOWS, Place, Size, Traffic};
use crate::hosts::TransportSettings;
use crate::input::htsim::cm_file;
use crate::net::{Fault, Topology};
use srd_baselines::input::{InputError, counted};
use srd_baselines::section::Section;
use srd_baselines::units::Ps;
use std::iter::repeat_n;

/// Kinds of workload, each with the keys of its section.
pub(super) const KINDS: [(&str, &[&str]); 10] = [
    (
        "flows",
        &[
            "kind",
            "name",
            "start_us",
            "transport",
            "pairs",
            "connections",
            "size",
            "until_us",
            "persistent",
            "rounds",
            "repeats",
            "spread_us",
        ],
    ),
    ("background", &["kind", "name", "start_us", "transport", "pairs", "until_us", "spread_us"]),
    (
        "incast",
        &[
            "kind",
            "name",
            "start_us",
            "transport",
            "senders",
            "sender_hosts",
            "processes",
            "receiver",
            "receiver_processes",
            "size",
            "until_us",
            "persistent",
            "rounds",
            "repeats",
            "spread_us",
        ],
    ),
    (
        "permutation",
        &[
            "kind",
            "name",
            "start_us",
            "transport",
            "hosts",
            "first_host",
            "processes",
            "size",
            "until_us",
            "persistent",
            "rounds",
            "repeats",
            "spread_us",
        ],
    ),
    (
        "rack-pairs",
        &[
            "kind",
            "name",
            "start_us",
            "transport",
            "from_leaf",
            "to_leaf",
            "hosts",
            "processes",
            "size",
            "until_us",
            "persistent",
            "rounds",
            "repeats",
            "spread_us",
        ],
    ),
    (
        "all-to-all",
        &["kind", "name", "start_us", "transport", "hosts", "first_host", "size", "at_once", "rounds"],
    ),
    ("ring-all-reduce", &["kind", "name", "start_us", "transport", "hosts", "first_host", "size", "rounds"]),
    (
        "tree-all-reduce",
        &["kind", "name", "start_us", "transport", "hosts", "first_host", "size", "chunks", "rounds"],
    ),
    (
        "join-leave",
        &["kind", "name", "start_us", "transport", "senders", "sender_hosts", "receiver", "every_us"],
    ),
    ("cm", &["kind", "name", "start_us", "transport", "file"]),
];

/// Most processes of a host: a device of SRD has one of 512 ports.
pub const MOST_PROCESSES: u64 = 512;
/// Most flows of a pair.
const MOST_CONNECTIONS: u64 = 1024;
/// Most rounds and repeats.
const MOST_ROUNDS: u64 = 1_000_000;

/// What the sections say.
pub(super) struct Load {
    pub(super) traffic: Traffic,
    /// Links that a connection matrix declares failed.
    pub(super) faults: Vec<Fault>,
}

/// What all workloads may need.
struct Surroundings<'a> {
    topology: &'a Topology,
    bdp: u64,
    end: Option<Ps>,
}

/// Reads all `[[workload]]`.
pub(super) fn read(
    context: &mut Context<'_>,
    topology: &Topology,
    transports: &[TransportSettings],
    bdp: u64,
    seed: u64,
    end: Option<Ps>,
) -> Result<Load, InputError> {
    let mut load = Load { traffic: Traffic::default(), faults: Vec::new() };
    let around = Surroundings { topology, bdp, end };
    let sections = Section::all(context.document, "workload")?;
    if sections.is_empty() && !programs::are_there(context)? {
        let none = "there is no workload: write a section [[workload]] or [[program]] with a `kind`";
        return Err(InputError::of(&context.document.file, none));
    }
    let kinds: Vec<(&str, usize)> = KINDS.iter().enumerate().map(|(n, (kind, _))| (*kind, n)).collect();
    for section in sections {
        let kind = section.needed("kind", section.word("kind", &kinds)?, "\"incast\"")?;
        let (word, keys) = KINDS[kind];
        let section = section.called(word).only(keys)?;
        let taken = |name: &str| load.traffic.workloads.iter().any(|other| other == name);
        let name = name(&section, "workload", word, taken)?;
        let start = section.micros("start_us")?.unwrap_or(Ps::ZERO);
        let transport = transport(&section, transports)?;
        if word == "cm" {
            let faults = matrix(context, &section, &around, &name, (start, transport), &mut load.traffic)?;
            load.faults.extend(faults);
        } else {
            let workload =
                Workload { name, start, transport, kind: pattern(&section, word, &around, start)? };
            workload.add_to(&mut load.traffic, topology, seed).map_err(|message| section.error(message))?;
            load.traffic.check(topology.hosts).map_err(|fault| section.error(fault.to_string()))?;
        }
    }
    Ok(load)
}

/// The transport that a section names, by index.
pub(super) fn transport(section: &Section<'_>, transports: &[TransportSettings]) -> Result<u16, InputError> {
    let named: Vec<(&str, u16)> =
        transports.iter().map(|transport| transport.name.as_str()).zip(0..).collect();
    Ok(section.word("transport", &named)?.unwrap_or(0))
}

/// Names tell workloads, and programs, apart in reports: one that is not `taken`, by the kind if the section gives none.
pub(super) fn name(
    section: &Section<'_>,
    what: &str,
    kind: &str,
    taken: impl Fn(&str) -> bool,
) -> Result<String, InputError> {
    match section.text("name")? {
        Some(name) if taken(name) => {
            Err(section.error_at("name", format!("another {what} has this name: write another")))
        }
        Some(name) => Ok(name.to_string()),
        None if !taken(kind) => Ok(kind.to_string()),
        None => {
            let numbered = (2..).map(|n| format!("{kind}-{n}")).find(|name| !taken(name));
            Ok(numbered.unwrap_or_else(|| kind.to_string()))
        }
    }
}

fn matrix(
    context: &mut Context<'_>,
    section: &Section<'_>,
    around: &Surroundings<'_>,
    name: &str,
    (start, transport): (Ps, u16),
    traffic: &mut Traffic,
) -> Result<Vec<Fault>, InputError> {
    let (text, file) = context.read_file(section, "file")?;
    let mut matrix = cm_file::parse(&text, &file, Some(around.topology.hosts))?;
    let faults = matrix.faults(around.topology)?;
    context.notes.append(&mut matrix.notes);
    matrix.traffic.workloads = vec![name.to_string()];
    matrix.traffic.flows.iter_mut().for_each(|flow| flow.transport = transport);
    traffic.append(matrix.traffic, start);
    Ok(faults)
}

fn pattern(
    section: &Section<'_>,
    kind: &str,
    around: &Surroundings<'_>,
    start: Ps,
) -> Result<Kind, InputError> {
    Ok(match kind {
        "flows" => {
            let load = flow_load(section, around, start)?;
            let each = section.whole("connections", 1..=MOST_CONNECTIONS)?.unwrap_or(1) as usize;
            Kind::Pairs(workload::Pairs { pairs: pairs(section, each)?, load })
        }
        "background" => {
            let load = background(section, around, start)?;
            Kind::Pairs(workload::Pairs { pairs: pairs(section, 1)?, load })
        }
        "incast" => Kind::Incast(incast(section, around, start)?),
        "permutation" => Kind::Permutation(workload::Permutation {
            hosts: hosts(section, around.topology)?,
            processes: processes(section, "processes")?,
            load: flow_load(section, around, start)?,
        }),
        "rack-pairs" => Kind::RackPairs(workload::RackPairs {
            from_leaf: section.host("from_leaf")?.unwrap_or(0),
            to_leaf: section.host("to_leaf")?.unwrap_or(1),
            hosts: section.count("hosts")?,
            processes: processes(section, "processes")?,
            load: flow_load(section, around, start)?,
        }),
        "join-leave" => Kind::JoinLeave(join_leave(section, around)?),
        _ => collective(section, kind, around)?,
    })
}

fn collective(section: &Section<'_>, kind: &str, around: &Surroundings<'_>) -> Result<Kind, InputError> {
    let (hosts, bytes) = (hosts(section, around.topology)?, size(section, around)?);
    let rounds = rounds(section, "rounds")?;
    Ok(match kind {
        "all-to-all" => {
            let at_once = section.count("at_once")?;
            Kind::AllToAll(workload::AllToAll { hosts, bytes, at_once, rounds })
        }
        "ring-all-reduce" => Kind::RingAllReduce(workload::RingAllReduce { hosts, bytes, rounds }),
        _ => {
            let chunks = section.count("chunks")?.unwrap_or(1);
            Kind::TreeAllReduce(workload::TreeAllReduce { hosts, bytes, chunks, rounds })
        }
    })
}

fn incast(
    section: &Section<'_>,
    around: &Surroundings<'_>,
    start: Ps,
) -> Result<workload::Incast, InputError> {
    let receiver = section.host("receiver")?.unwrap_or(0);
    Ok(workload::Incast {
        senders: senders(section, around, receiver)?,
        processes: processes(section, "processes")?,
        receiver,
        receiver_processes: processes(section, "receiver_processes")?,
        load: flow_load(section, around, start)?,
    })
}

fn join_leave(section: &Section<'_>, around: &Surroundings<'_>) -> Result<workload::JoinLeave, InputError> {
    let receiver = section.host("receiver")?.unwrap_or(0);
    let every = section.some_micros("every_us")?;
    Ok(workload::JoinLeave {
        senders: senders(section, around, receiver)?,
        receiver,
        every: section.needed("every_us", every, "1000")?,
    })
}

fn size(section: &Section<'_>, around: &Surroundings<'_>) -> Result<u64, InputError> {
    let size = section.bytes("size", 1)?;
    let bytes = section.needed("size", size, "\"2MB\"")?.with_bdp(around.bdp);
    match bytes <= MAX_BYTES {
        true => Ok(bytes),
        false => Err(section.error_at("size", format!("a flow of {bytes} bytes: at most {MAX_BYTES}"))),
    }
}

fn rounds(section: &Section<'_>, key: &str) -> Result<u32, InputError> {
    Ok(section.whole(key, 1..=MOST_ROUNDS)?.unwrap_or(1) as u32)
}

fn processes(section: &Section<'_>, key: &str) -> Result<u16, InputError> {
    Ok(section.whole(key, 1..=MOST_PROCESSES)?.unwrap_or(1) as u16)
}

/// `size`, `until_us` or `persistent`, and what goes with each.
fn flow_load(
    section: &Section<'_>,
    around: &Surroundings<'_>,
    start: Ps,
) -> Result<workload::Load, InputError> {
    let given = ["size", "until_us", "persistent"].into_iter().filter(|key| section.has(key)).count();
    if given != 1 {
        let one = "exactly one of `size` (bytes of each flow), `until_us` and `persistent = true` (until the run ends)";
        return Err(section.error(format!("write {one}")));
    }
    let size = match section.has("size") {
        true => Size::Bytes(size(section, around)?),
        false => Size::Until(until(section, around, start)?),
    };
    let (rounds, repeats) = (rounds(section, "rounds")?, rounds(section, "repeats")?);
    Ok(workload::Load { size, rounds, repeats, spread: spread(section)? })
}

fn background(
    section: &Section<'_>,
    around: &Surroundings<'_>,
    start: Ps,
) -> Result<workload::Load, InputError> {
    Ok(workload::Load { spread: spread(section)?, ..workload::Load::until(until(section, around, start)?) })
}

fn spread(section: &Section<'_>) -> Result<Ps, InputError> {
    Ok(section.micros("spread_us")?.unwrap_or(Ps::ZERO))
}

/// The moment until which flows go on.
fn until(section: &Section<'_>, around: &Surroundings<'_>, start: Ps) -> Result<Ps, InputError> {
    if let Some(until) = section.some_micros("until_us")? {
        let begins = start + spread(section)?;
        return match until > begins {
            true => Ok(until),
            false => Err(section
                .error_at("until_us", format!("flows begin up to {} us: write more", begins.as_micros()))),
        };
    }
    if section.may_have("persistent") && section.flag("persistent")? == Some(false) {
        return Err(
            section.error_at("persistent", "false says nothing: write `size` or `until_us` in its place")
        );
    }
    let missing = "flows go on until the run ends: write `end_us` at the top level, before the first section";
    around.end.ok_or_else(|| section.error(missing))
}

/// The hosts that take part: `hosts` of them from `first_host` on, or all.
pub(super) fn hosts(section: &Section<'_>, topology: &Topology) -> Result<Vec<u32>, InputError> {
    let there_are = topology.hosts;
    let first = section.host("first_host")?.unwrap_or(0);
    if first >= there_are {
        return Err(section.error_at("first_host", format!("this fabric has hosts 0 to {}", there_are - 1)));
    }
    let left = there_are - first;
    let count = section.count("hosts")?.unwrap_or(left);
    if count > left {
        let message = format!("{count} are too many: this fabric has {left} from host {first} on");
        return Err(section.error_at("hosts", message));
    }
    Ok((first..first + count).collect())
}

/// `sender_hosts`, or the first `senders` hosts other than the receiver.
fn senders(section: &Section<'_>, around: &Surroundings<'_>, receiver: u32) -> Result<Vec<u32>, InputError> {
    let there_are = around.topology.hosts;
    if receiver >= there_are {
        return Err(section.error_at("receiver", format!("this fabric has hosts 0 to {}", there_are - 1)));
    }
    let listed = section.list("sender_hosts", "numbers of hosts, such as [1, 2, 3]", |item| item.whole())?;
    match (listed, section.count("senders")?) {
        (Some(_), Some(_)) => {
            Err(section.error_at("senders", "not together with `sender_hosts`: leave one of them out"))
        }
        (Some(hosts), None) => Ok(hosts),
        (None, None) => {
            Err(section.error("`senders` is missing: write, for example, `senders = 4`, or `sender_hosts`"))
        }
        (None, Some(n)) => {
            let hosts: Vec<u32> = (0..there_are).filter(|&host| host != receiver).take(n as usize).collect();
            match hosts.len() == n as usize {
                true => Ok(hosts),
                false => {
                    let besides = counted(hosts.len() as u64, "host");
                    let what = format!("{n} are too many: besides the receiver this fabric has {besides}");
                    Err(section
                        .error_at("senders", format!("{what}. Write `processes` for several flows per host")))
                }
            }
        }
    }
}

/// `["0->13", "1.2->12.0", "1..16->0"]`: hosts, and processes on them; each pair so many times.
fn pairs(section: &Section<'_>, each: usize) -> Result<Vec<(Place, Place)>, InputError> {
    let expected = "a list such as [\"0->13\", \"1.2->12.0\", \"1..16->0\"]: hosts, and behind a point a process up to 511 if it is not 0";
    let lists = section.list("pairs", expected, |item| {
        let (from, to) = item.text()?.split_once("->")?;
        Some((places(from)?, places(to)?))
    })?;
    let lists = section.needed("pairs", lists, "[\"0->1\"]")?;
    let flows = lists.iter().map(|(from, to)| from.len() as u64 * to.len() as u64 * each as u64).sum::<u64>();
    if flows > MAX_FLOWS {
        return Err(section.error_at("pairs", format!("this would make {flows} flows: at most {MAX_FLOWS}")));
    }
    Ok(lists.iter().flat_map(|(from, to)| of_lists(from, to)).flat_map(|pair| repeat_n(pair, each)).collect())
}

/// Each to each other: several begin with different ones.
fn of_lists(from: &[Place], to: &[Place]) -> Vec<(Place, Place)> {
    let first = |n: usize| if from.len() > 1 { n + 1 } else { 0 };
    let of = |(n, &from): (usize, &Place)| {
        let others = (0..to.len()).map(move |k| (from, to[(first(n) + k) % to.len()]));
        others.filter(|(from, other)| to.len() == 1 || from != other).collect::<Vec<_>>()
    };
    from.iter().enumerate().flat_map(of).collect()
}

/// A process, or the same of several hosts.
fn places(text: &str) -> Option<Vec<Place>> {
    let Some((first, last)) = text.split_once("..") else { return Some(vec![place(text.trim())?]) };
    let (first, last) = (place(first.trim())?, place(last.trim())?);
    let count = u64::from(last.host.checked_sub(first.host)?);
    (first.process == last.process && count < MAX_FLOWS)
        .then(|| (first.host..=last.host).map(|host| Place { host, ..first }).collect())
}

fn place(text: &str) -> Option<Place> {
    let (host, process) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let process: u16 = digits(process).then(|| process.parse().ok())??;
    let host = digits(host).then(|| host.parse().ok())??;
    (u64::from(process) < MOST_PROCESSES).then_some(Place { host, process })
}
