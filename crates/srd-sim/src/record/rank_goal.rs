//! The messages of a run of real programs as a trace in GOAL's text format (Hoefler, Siebert, Lumsdaine: "Group Operation Assembly Language", 2009),
//! which `[[program]]` of kind `goal` plays, and LogGOPSim and ATLAHS read: what a rank sends waits for what had come to it, and for what it had
//! sent, before. Collective operations are there as the messages that the MPI made of them.

use super::folder::Folder;
use srd_baselines::units::Ps;
use srd_wire::BitRate;
use std::io::{self, Write};

/// The file.
pub const GOAL: &str = "messages.goal";
/// Shorter times between what came and what is sent are none.
const LEAST: Ps = Ps::from_nanos(1);

/// A message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) bytes: u64,
    pub(super) began: Ps,
    /// When all of it had come; none if it did not.
    pub(super) came: Option<Ps>,
}

/// What happens to a rank: a message comes, or it sends one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Comes,
    Sends,
}

/// Writes those messages that came, between so many ranks whose links have that rate.
pub(super) fn write(folder: &Folder, messages: &[Sent], ranks: u32, rate: BitRate) -> io::Result<()> {
    let mut of_rank: Vec<Vec<(Ps, What, usize)>> = vec![Vec::new(); ranks as usize];
    for (number, message) in messages.iter().enumerate() {
        let Some(came) = message.came else { continue };
        of_rank[message.from as usize].push((message.began, What::Sends, number));
        of_rank[message.to as usize].push((came, What::Comes, number));
    }
    let mut out = folder.create(GOAL)?;
    writeln!(out, "num_ranks {ranks}")?;
    for (rank, mut happens) in of_rank.into_iter().enumerate() {
        happens.sort_unstable();
        writeln!(out, "rank {rank} {{")?;
        let mut waits = Vec::new();
        // The last message that came, and the last that was sent, with when its link was free again.
        let mut came: Option<(Ps, usize)> = None;
        let mut sent: Option<(Ps, usize)> = None;
        for (at, what, number) in happens {
            let Sent { from, to, bytes, .. } = messages[number];
            let bytes = bytes.max(1);
            if what == What::Comes {
                writeln!(out, "r{number}: recv {bytes}b from {from} tag {number}")?;
                came = Some((at, number));
                continue;
            }
            let since = [came, sent].into_iter().flatten().map(|(at, _)| at).max().unwrap_or(Ps::ZERO);
            let computes = at.since(since);
            let mut first = format!("s{number}");
            if computes >= LEAST {
                writeln!(out, "c{number}: calc {}", computes.0 / 1000)?;
                waits.push(format!("s{number} requires c{number}"));
                first = format!("c{number}");
            }
            writeln!(out, "s{number}: send {bytes}b to {to} tag {number}")?;
            waits.extend(came.map(|(_, before)| format!("{first} requires r{before}")));
            waits.extend(sent.map(|(_, before)| format!("{first} irequires s{before}")));
            sent = Some((at + Ps::to_send(bytes, rate), number));
        }
        for line in waits {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "}}")?;
    }
    out.flush()
}
