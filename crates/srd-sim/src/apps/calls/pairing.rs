//! Which receive takes which message. Tags are not noted: among those of a pair of ranks and a communicator the first receive takes the first
//! message, and so on. A receive from anyone takes, of the messages that no other receive of that rank names the sender of, the one that was
//! sent first.

use super::Noted;
use super::function::Function;
use srd_baselines::input::{InputError, counted};
use srd_virtual::calls::{ANYONE, FORMS};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Whose message a receive takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Taken {
    pub from: u32,
    pub thread: u16,
    pub bytes: u64,
}

/// Sender, receiver and communicator.
type Way = (u32, u32, u32);

struct Sent {
    taken: Taken,
    began: u64,
    line: u32,
}

/// For each rank by the place of the call; those from no rank are not there.
pub(super) fn pair(ranks: &[Vec<Noted>], file: &str) -> Result<Vec<HashMap<usize, Taken>>, InputError> {
    let mut sent: BTreeMap<Way, VecDeque<Sent>> = BTreeMap::new();
    for (rank, noted) in (0u32..).zip(ranks) {
        for Noted { call, function, line } in noted {
            if !matches!(function, Function::Send | Function::Exchange) {
                continue;
            }
            let Some(to) = call.named() else { continue };
            let taken = Taken { from: rank, thread: call.thread, bytes: call.bytes };
            let message = Sent { taken, began: call.began, line: *line };
            sent.entry((rank, to, call.comm)).or_default().push_back(message);
        }
    }
    let mut takes = Vec::with_capacity(ranks.len());
    for (rank, noted) in (0u32..).zip(ranks) {
        takes.push(of_rank(rank, noted, &mut sent, file)?);
    }
    match sent.iter().find(|(_, messages)| !messages.is_empty()) {
        None => Ok(takes),
        Some(((from, to, _), messages)) => {
            let left = counted(messages.len() as u64, "message");
            let what =
                format!("{left} of rank {from} to rank {to}, this one first, and nobody receives them");
            Err(InputError::at(file, messages[0].line, format!("{what}: {WHOLE}")))
        }
    }
}

/// What to do where calls are missing.
const WHOLE: &str = "record the program from its beginning to its end";

/// Of one rank, out of what all have sent.
fn of_rank(
    rank: u32,
    noted: &[Noted],
    sent: &mut BTreeMap<Way, VecDeque<Sent>>,
    file: &str,
) -> Result<HashMap<usize, Taken>, InputError> {
    let mut takes = HashMap::new();
    // How many messages of each way receives that name the sender will take.
    let mut named: HashMap<Way, usize> = HashMap::new();
    let receives = || {
        noted.iter().enumerate().filter_map(|(at, noted)| {
            let from = match noted.function {
                Function::Recv if FORMS[usize::from(noted.call.kind)].peer.is_none() => ANYONE,
                Function::Recv => noted.call.peer,
                Function::Exchange => noted.call.source,
                _ => 0,
            };
            (from > 0).then_some((at, noted, from))
        })
    };
    for (_, noted, from) in receives().filter(|(_, _, from)| *from != ANYONE) {
        *named.entry((from - 1, rank, noted.call.comm)).or_default() += 1;
    }
    for (at, noted, from) in receives() {
        let way = if from == ANYONE {
            let any_comm = FORMS[usize::from(noted.call.kind)].comm.is_none();
            let free = sent.iter().filter(|(way, messages)| {
                way.1 == rank
                    && (any_comm || way.2 == noted.call.comm)
                    && messages.len() > named.get(way).copied().unwrap_or(0)
            });
            free.min_by_key(|(_, messages)| messages[0].began).map(|(way, _)| *way)
        } else {
            let way = (from - 1, rank, noted.call.comm);
            *named.get_mut(&way).expect("it was counted") -= 1;
            Some(way)
        };
        let message = way.and_then(|way| sent.get_mut(&way)?.pop_front());
        let Some(message) = message else {
            let name = FORMS[usize::from(noted.call.kind)].name;
            let whose = if from == ANYONE { "anyone".into() } else { format!("rank {}", from - 1) };
            let what = format!("this {name} of rank {rank} receives from {whose}, and no message is left");
            return Err(InputError::at(file, noted.line, format!("{what}: {WHOLE}")));
        };
        takes.insert(at, message.taken);
    }
    Ok(takes)
}
