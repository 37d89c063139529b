//! `[[program]]`: programs of processes that talk as MPI's do, and where their processes run.

mod kinds;
mod training;

use super::Context;
use super::workloads::{self, MOST_PROCESSES};
use crate::apps::catalogue::Job;
use crate::apps::{Draw, Place, Program, Traffic};
use crate::hosts::TransportSettings;
use crate::net::Topology;
use kinds::{KINDS, Room};
use srd_baselines::input::InputError;
use srd_baselines::section::Section;
use std::collections::BTreeMap;

/// Keys of all kinds.
const COMMON: [&str; 8] =
    ["kind", "name", "transport", "first_host", "hosts", "per_host", "placement", "forever"];

/// Most ranks of a program.
const MOST_RANKS: u64 = 1 << 16;
/// Most steps of all scripts of a program: 800 MB of memory.
const MOST_STEPS: u64 = 1 << 25;

/// Every kind with its keys.
pub(super) fn kinds() -> Vec<(&'static str, Vec<&'static str>)> {
    KINDS.iter().map(|(kind, keys)| (*kind, COMMON.iter().chain(*keys).copied().collect())).collect()
}

/// Whether the scenario has programs.
pub(super) fn are_there(context: &Context<'_>) -> Result<bool, InputError> {
    Ok(!Section::all(context.document, "program")?.is_empty())
}

/// Reads all `[[program]]` and adds them to `traffic`, whose flows must be there already.
pub(super) fn read(
    context: &mut Context<'_>,
    topology: &Topology,
    transports: &[TransportSettings],
    bdp: u64,
    seed: u64,
    traffic: &mut Traffic,
) -> Result<(), InputError> {
    let mut houses = Houses::of(traffic);
    let words: Vec<(&str, usize)> = KINDS.iter().enumerate().map(|(n, (kind, _))| (*kind, n)).collect();
    for section in Section::all(context.document, "program")? {
        let kind = section.needed("kind", section.word("kind", &words)?, "\"hpcg\"")?;
        let (word, keys) = KINDS[kind];
        let keys: Vec<&'static str> = COMMON.iter().chain(keys).copied().collect();
        let section = section.called(word).only(&keys)?;
        let hosts = workloads::hosts(&section, topology)?;
        let per_host = section.whole("per_host", 1..=MOST_PROCESSES)?.unwrap_or(1) as u32;
        let places = u64::from(per_host) * hosts.len() as u64;
        if places > MOST_RANKS {
            let message = format!("{places} processes: at most {MOST_RANKS} in a program");
            return Err(section.error_at("per_host", message));
        }
        let room = Room { hosts: hosts.len() as u32, per_host, bdp, seed };
        let kind = room.kind(context, &section, word)?;
        let ranks = kind.ranks();
        if u64::from(ranks) > places {
            let message =
                format!("it has {ranks} ranks, and there are {places} processes: write larger `hosts`");
            return Err(section.error(format!("{message} or `per_host`")));
        }
        if kind.steps() > MOST_STEPS {
            let message =
                "the scripts of all ranks would take too much memory: write fewer ranks, rounds or steps";
            return Err(section.error(message));
        }
        let order = placement(&section, &hosts, per_host, seed)?;
        let transport = workloads::transport(&section, transports)?;
        let forever = section.flag("forever")?.unwrap_or(false);
        let taken = |name: &str| traffic.jobs.iter().any(|other| other.name == name);
        let name = workloads::name(&section, "program", word, taken)?;
        let first = traffic.programs.len() as u32;
        for (member, &host) in kind.members(seed).into_iter().zip(&order) {
            let at = houses.move_in(host).ok_or_else(|| {
                section.error(format!("host {host} would have more than {MOST_PROCESSES} processes"))
            })?;
            let script = member.script.moved(first);
            traffic.programs.push(Program { at, transport, script, forever: forever || member.forever });
        }
        traffic.jobs.push(Job { name, kind, first });
    }
    let endless = !traffic.programs.is_empty() && traffic.programs.iter().all(|program| program.forever);
    if endless && traffic.flows.is_empty() {
        let message =
            "every [[program]] has `forever = true`, and there is no workload: the run would never end";
        return Err(InputError::of(&context.document.file, message));
    }
    Ok(())
}

/// Processes that hosts have already.
struct Houses(BTreeMap<u32, u64>);

impl Houses {
    /// Those of flows.
    fn of(traffic: &Traffic) -> Houses {
        let mut houses = BTreeMap::new();
        for place in traffic.flows.iter().flat_map(|flow| [flow.src, flow.dst]) {
            let taken: &mut u64 = houses.entry(place.host).or_default();
            *taken = (*taken).max(u64::from(place.process) + 1);
        }
        Houses(houses)
    }

    /// A place for one more.
    fn move_in(&mut self, host: u32) -> Option<Place> {
        let taken = self.0.entry(host).or_default();
        let process = u16::try_from(*taken).ok().filter(|_| *taken < MOST_PROCESSES)?;
        *taken += 1;
        Some(Place { host, process })
    }
}

/// The host of each rank.
fn placement(section: &Section<'_>, hosts: &[u32], per_host: u32, seed: u64) -> Result<Vec<u32>, InputError> {
    let words = [("block", 0), ("scattered", 1), ("random", 2)];
    let block = |hosts: &[u32]| {
        hosts.iter().flat_map(|&host| std::iter::repeat_n(host, per_host as usize)).collect::<Vec<u32>>()
    };
    Ok(match section.word("placement", &words)?.unwrap_or(0) {
        0 => block(hosts),
        1 => hosts.repeat(per_host as usize),
        _ => {
            let mut hosts = hosts.to_vec();
            Draw::of(seed, 0x706c_6163).shuffle(&mut hosts);
            block(&hosts)
        }
    })
}
