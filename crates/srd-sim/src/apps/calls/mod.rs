//! A program as its calls of MPI, which one run of it has left ([`table`]), played without it, as many copies of the job at once as one likes:
//! collective operations of all its ranks are those of all copies' ranks, everything else stays within a copy (Hoefler, Schneider and Lumsdaine,
//! "LogGOPSim", HPDC'10). So it is with programs that are scaled weakly, about.
//!
//! A rank makes its calls one behind the other, on each of its threads, with what it has computed before and in each of them (before it). What a
//! call begins goes on beside those behind it, until the one in which its end was seen (`done_in`), a poll, too. What a call does is in
//! `function`, who receives which message in `pairing`.

mod function;
mod pairing;
pub(crate) mod table;

use crate::apps::collective::Group;
use crate::apps::graph::{Act, Dependency, Graph, Op, Until};
use crate::apps::script::{Script, Step};
use crate::apps::writer::Writer;
use function::{Collective, Function, Share};
use pairing::Taken;
use srd_baselines::input::{InputError, counted};
use srd_virtual::Call;
use srd_virtual::calls::{FORMS, OTHER};
use srd_wire::Nanos;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use table::Row;

/// Most ranks that were recorded.
const MOST_RANKS: u32 = 1 << 16;
/// Most operations of all ranks of all copies: 2 GB.
const MOST_OPS: usize = 1 << 25;

/// The communicator of all ranks.
const ALL: u32 = 0;

/// A call, what it does, and where that stands.
struct Noted {
    call: Call,
    function: Function,
    line: u32,
}

/// An operation that all ranks of a communicator have made.
struct Together {
    what: Collective,
    /// Its root, a rank of the job.
    root: Option<u32>,
    share: Share,
    /// See [`Collective::write`].
    bytes: u64,
    /// What the ranks have noted together, and how many that are.
    sum: u64,
    calls: u64,
    /// The first rank's.
    line: u32,
}

/// A communicator.
#[derive(Default)]
struct Communicator {
    /// Its number among others.
    number: u64,
    /// Its ranks, in their order.
    ranks: Vec<u32>,
    operations: Vec<Together>,
}

/// A job that was recorded.
pub struct Recorded {
    file: String,
    /// By rank.
    calls: Vec<Vec<Noted>>,
    takes: Vec<HashMap<usize, Taken>>,
    communicators: BTreeMap<u32, Communicator>,
}

/// Reads the text of a table, called `file` in errors.
pub fn parse(text: &str, file: &str) -> Result<Recorded, InputError> {
    let mut calls: Vec<Vec<Noted>> = Vec::new();
    let mut lines = (1..).zip(text.lines());
    let head = lines.next().map_or("", |(_, line)| line);
    let wrong = |line: u32, what: String| InputError::at(file, line, format!("{what}: {}", table::REMEDY));
    table::check_head(head).map_err(|what| wrong(1, what))?;
    for (line, row) in lines {
        let Row { job, rank, call } = table::read(row).map_err(|what| wrong(line, what))?;
        if job > 0 {
            return Err(InputError::at(file, line, "several jobs are not played: record one alone"));
        }
        if rank >= MOST_RANKS {
            return Err(InputError::at(
                file,
                line,
                format!("rank {rank}: at most {MOST_RANKS} ranks are played"),
            ));
        }
        if calls.len() <= rank as usize {
            calls.resize_with(rank as usize + 1, Vec::new);
        }
        let name = FORMS[usize::from(call.kind)].name;
        let refused = |why: &str| {
            let what = format!("{name} of rank {rank} cannot be played: {why}");
            InputError::at(file, line, format!("{what}. {MESSAGES}"))
        };
        let function = Function::of(name).map_err(refused)?;
        if call.comm == OTHER && function != Function::Nothing {
            return Err(refused("its communicator joins two groups, or ranks of several jobs"));
        }
        let place = calls[rank as usize].len() as u64;
        if call.done_in > 0 && call.done_in <= place + 1 {
            let what = format!("{} is no later call of rank {rank}", call.done_in - 1);
            return Err(wrong(line, what));
        }
        calls[rank as usize].push(Noted { call, function, line });
    }
    if let Some(rank) = calls.iter().position(Vec::is_empty) {
        return Err(InputError::of(file, format!("rank {rank} has no calls there: {}", table::REMEDY)));
    }
    if calls.is_empty() {
        return Err(InputError::of(file, format!("there are no calls: {}", table::REMEDY)));
    }
    let takes = pairing::pair(&calls, file)?;
    let communicators = communicators(&calls, file)?;
    Ok(Recorded { file: file.to_string(), calls, takes, communicators })
}

/// What to do about calls that cannot be played.
const MESSAGES: &str =
    "Record with `--trace`, and play messages.goal (`kind = \"goal\"`), of as many ranks as ran";

/// Who has made which operations together.
fn communicators(calls: &[Vec<Noted>], file: &str) -> Result<BTreeMap<u32, Communicator>, InputError> {
    let mut all: BTreeMap<u32, Communicator> = BTreeMap::new();
    for (rank, noted) in (0u32..).zip(calls) {
        let mut made: HashMap<u32, usize> = HashMap::new();
        for Noted { call, function, line } in noted {
            let Function::Collective(what) = *function else { continue };
            let communicator = all.entry(call.comm).or_default();
            if communicator.ranks.last() != Some(&rank) {
                communicator.ranks.push(rank);
            }
            let at = made.entry(call.comm).or_default();
            let root = call.named();
            if *at == communicator.operations.len() {
                let share = function::share(call.kind);
                let new = Together { what, root, share, bytes: 0, sum: 0, calls: 0, line: *line };
                communicator.operations.push(new);
            }
            let together = &mut communicator.operations[*at];
            if (together.what, together.root) != (what, root) {
                let name = FORMS[usize::from(call.kind)].name;
                let what = format!(
                    "this {name} of rank {rank} is another operation than that of line {}",
                    together.line
                );
                return Err(InputError::at(
                    file,
                    *line,
                    format!("{what}, made at the same time: {}", table::REMEDY),
                ));
            }
            together.calls += 1;
            together.bytes = together.bytes.max(call.bytes);
            together.sum = together.sum.saturating_add(call.bytes);
            *at += 1;
        }
    }
    for (number, (comm, communicator)) in (0..).zip(&mut all) {
        let ranks = if *comm == ALL { calls.len() } else { communicator.ranks.len() } as u64;
        communicator.number = number;
        for together in &mut communicator.operations {
            if together.calls != ranks {
                let made = counted(together.calls, "rank");
                let what =
                    format!("{made} of {ranks} have made this operation with the others: record all of it");
                return Err(InputError::at(file, together.line, what));
            }
            if let Some(root) = together.root.filter(|root| communicator.ranks.binary_search(root).is_err()) {
                let what = format!("rank {root} is its root, and takes no part: {}", table::REMEDY);
                return Err(InputError::at(file, together.line, what));
            }
            together.bytes = match together.share {
                Share::Same => together.bytes,
                Share::Mean => together.sum.div_ceil(ranks),
                Share::MeanOfAll => together.sum.div_ceil(ranks * ranks),
            };
        }
    }
    Ok(all)
}

impl Recorded {
    /// How many ranks the job had.
    pub fn ranks(&self) -> u32 {
        self.calls.len() as u32
    }

    /// The scripts of so many copies of it.
    pub fn scripts(&self, copies: u32) -> Result<Vec<Script>, InputError> {
        let all: Vec<u32> = (0..copies * self.ranks()).collect();
        let mut left = MOST_OPS;
        let mut scripts = Vec::with_capacity(all.len());
        for &number in &all {
            let (first, rank) = (number / self.ranks() * self.ranks(), number % self.ranks());
            let mut play = Play { first, rank, ..Play::default() };
            for place in 0..self.calls[rank as usize].len() {
                play.call(self, place, &all);
                if play.ops.len() > left {
                    let what = format!("{} ranks make more than {MOST_OPS} operations", all.len());
                    return Err(InputError::of(
                        &self.file,
                        format!("{what}: write fewer `copies`, or record less"),
                    ));
                }
            }
            left -= play.ops.len();
            let graph =
                Graph::new(play.ops, &play.dependencies).expect("an operation waits for earlier ones");
            scripts.push(Script::Graph(Arc::new(graph)));
        }
        Ok(scripts)
    }
}

/// What is to have happened: of these operations the beginning or the end.
type Moment = Vec<(u32, Until)>;

/// Writes what one rank does.
#[derive(Default)]
struct Play {
    /// The first rank of its copy, and its own among those.
    first: u32,
    rank: u32,
    ops: Vec<Op>,
    dependencies: Vec<Dependency>,
    /// After which each thread makes its next call.
    after: HashMap<u16, Moment>,
    /// What is over in which call, by its place.
    over: HashMap<u64, Moment>,
    /// How many operations it has made with others, by communicator.
    made: HashMap<u32, usize>,
    writer: Writer,
}

impl Play {
    /// Something that it does after a moment, on the processor of a thread.
    fn op(&mut self, act: Act, after: &Moment, thread: u16) -> u32 {
        let op = self.ops.len() as u32;
        self.ops.push(Op { act, processor: (thread % 256) as u8 });
        self.dependencies.extend(after.iter().map(|&(on, until)| Dependency { op, on, until }));
        op
    }

    fn call(&mut self, recorded: &Recorded, place: usize, all: &[u32]) {
        let Noted { call, function, .. } = &recorded.calls[self.rank as usize][place];
        let mut after = self.after.remove(&call.thread).unwrap_or_default();
        let computed = Nanos(call.before + call.within);
        if computed > Nanos::ZERO {
            after = vec![(self.op(Act::Calc(computed), &after, call.thread), Until::Done)];
        }
        after.extend(self.over.remove(&(place as u64)).unwrap_or_default());
        let (begun, ended) = match function {
            Function::Nothing => (after.clone(), after),
            Function::Collective(_) => self.together(recorded, call, after, all),
            Function::Send | Function::Recv | Function::Exchange => {
                self.messages(call, recorded.takes[self.rank as usize].get(&place), *function, after)
            }
        };
        let begins = FORMS[usize::from(call.kind)].begins.is_some();
        if let Some(place) = call.done_in.checked_sub(1).filter(|_| begins) {
            self.over.entry(place).or_default().extend(&ended);
        }
        self.after.insert(call.thread, if begins { begun } else { ended });
    }

    /// What a call sends and receives: when that has begun, and when it is over.
    fn messages(
        &mut self,
        call: &Call,
        taken: Option<&Taken>,
        function: Function,
        after: Moment,
    ) -> (Moment, Moment) {
        let mut begun = after;
        let mut ended = Moment::new();
        let own = self.rank;
        let mut acts = Vec::with_capacity(2);
        if let Some(&Taken { from, thread, bytes }) = taken.filter(|taken| taken.from != own) {
            acts.push(Act::Recv { from: self.first + from, tag: thread.into(), bytes });
        }
        if let Some(to) = call.named().filter(|to| function != Function::Recv && *to != own) {
            acts.push(Act::Send { to: self.first + to, tag: call.thread.into(), bytes: call.bytes });
        }
        for act in acts {
            let op = self.op(act, &begun, call.thread);
            begun = vec![(op, Until::Begun)];
            ended.push((op, Until::Done));
        }
        if ended.is_empty() {
            ended.clone_from(&begun);
        }
        (begun, ended)
    }

    /// What it does in an operation with others: when its first messages have begun, and when it is over.
    fn together(&mut self, recorded: &Recorded, call: &Call, after: Moment, all: &[u32]) -> (Moment, Moment) {
        let made = self.made.entry(call.comm).or_default();
        let communicator = &recorded.communicators[&call.comm];
        let operation = &communicator.operations[*made];
        // Two that are under way at once are told apart.
        let tag = (communicator.number * 8 + *made as u64 % 8) << 36;
        *made += 1;
        let of_copy: Vec<u32>;
        let ranks = match call.comm {
            ALL => all,
            _ => {
                of_copy = communicator.ranks.iter().map(|rank| self.first + rank).collect();
                &of_copy
            }
        };
        let place = |rank: u32| ranks.binary_search(&rank).expect("it is one of them") as u32;
        // The root of all is the first copy's.
        let first = if call.comm == ALL { 0 } else { self.first };
        let root = operation.root.map_or(0, |root| place(first + root));
        let group = Group { ranks, own: place(self.first + self.rank) };
        let mut writer = std::mem::take(&mut self.writer);
        operation.what.write(&mut writer, group, root, operation.bytes);
        let mut now = after;
        let mut begun = None;
        let mut open = Moment::new();
        for step in writer.take() {
            let act = match step {
                Step::Send { to, tag: of, bytes } => Act::Send { to, tag: tag | of, bytes },
                Step::Recv { from, tag: of, bytes } => Act::Recv { from, tag: tag | of, bytes },
                Step::Wait { .. } => {
                    begun.get_or_insert(now);
                    now = std::mem::take(&mut open);
                    continue;
                }
                _ => unreachable!("collective operations send, receive and wait"),
            };
            let op = self.op(act, &now, call.thread);
            now = vec![(op, Until::Begun)];
            open.push((op, Until::Done));
        }
        self.writer = writer;
        (begun.unwrap_or_else(|| now.clone()), now)
    }
}
