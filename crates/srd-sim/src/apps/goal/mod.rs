//! GOAL, the text format of LogGOPSim and ATLAHS (Hoefler, Siebert and Lumsdaine, "Group Operation Assembly Language",
//! ICPP'09; grammar: txt2bin.re): for each rank sends, receives and computations, and which of them wait for which.
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//!   l1: calc 100 cpu 0
//!   l2: send 10b to 1 tag 5 cpu 0 nic 0
//!   l2 requires l1
//! }
//! rank 1 {
//!   l1: recv 10b from 0 tag 5
//! }
//! ```
//!
//! Computations are in nanoseconds. A rank's processors do one thing at a time. What can never end is refused here: circles,
//! and messages without a receive.

mod tokens;

use crate::apps::flow::MAX_BYTES;
use crate::apps::graph::{Act, Dependency, Graph, NeverBegins, Op, Until};
use crate::apps::script::Script;
use srd_baselines::input::{InputError, counted, shown};
use srd_wire::Nanos;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokens::{Token, Tokens};

/// What a file says.
#[derive(Clone, PartialEq, Debug)]
pub struct Goal {
    /// By rank: graphs, whose beginning and end are marked.
    pub scripts: Vec<Script>,
    /// What was passed over.
    pub notes: Vec<String>,
}

/// Most ranks.
const MOST_RANKS: u64 = 1 << 16;
/// Most operations of all ranks, and most dependencies.
const MOST_OPS: usize = 1 << 24;
/// Longest computation: eleven days.
const LONGEST_NS: u64 = 1_000_000_000_000_000;

/// Reads the text of a file, called `file` in errors.
pub fn parse(text: &str, file: &str) -> Result<Goal, InputError> {
    let mut reader = Reader {
        tokens: Tokens::new(text, file),
        ranks: 0,
        scripts: Vec::new(),
        left_ops: MOST_OPS,
        left_dependencies: MOST_OPS,
        pairs: BTreeMap::new(),
        nic: None,
    };
    reader.file()?;
    let notes =
        reader.nic.map(|line| format!("{file}:{line}: `nic` is passed over: a host has one network card"));
    let scripts = reader.scripts.into_iter().map(Option::unwrap_or_default).collect();
    Ok(Goal { scripts, notes: notes.into_iter().collect() })
}

/// Messages of one pair and tag: how many are sent and how many received, of how many bytes in all, and the line of one.
#[derive(Default)]
struct Pair {
    sends: u32,
    recvs: u32,
    sent: u128,
    received: u128,
    line: u32,
}

struct Reader<'a> {
    tokens: Tokens<'a>,
    ranks: u32,
    /// By rank, once it has been read.
    scripts: Vec<Option<Script>>,
    left_ops: usize,
    left_dependencies: usize,
    /// By sender, receiver and tag.
    pairs: BTreeMap<(u32, u32, u64), Pair>,
    /// Where a network card was named.
    nic: Option<u32>,
}

/// What is read of a rank.
#[derive(Default)]
struct Block<'a> {
    ops: Vec<Op>,
    lines: Vec<u32>,
    labels: HashMap<&'a str, u32>,
    /// By label: who waits, for whom, for what; and the line.
    dependencies: Vec<(&'a str, &'a str, Until, u32)>,
}

impl<'a> Reader<'a> {
    fn error(&self, message: impl Into<String>) -> InputError {
        self.tokens.error(message)
    }

    /// Not what may be here.
    fn expected(&self, what: &str, token: Option<Token<'_>>) -> InputError {
        let instead = match token {
            None | Some(Token::End) => "the line ends".to_string(),
            Some(Token::Word(word)) => format!("there is {}", shown(word)),
            Some(Token::Number(number)) => format!("there is {number}"),
            Some(Token::Sign(sign)) => format!("there is `{sign}`"),
        };
        self.error(format!("{instead} where {what} must be"))
    }

    fn number(&mut self, what: &str, most: u64) -> Result<u64, InputError> {
        match self.tokens.next()? {
            Some(Token::Number(number)) if number <= most => Ok(number),
            Some(Token::Number(number)) => {
                Err(self.error(format!("{number} cannot be: {what} is at most {most}")))
            }
            Some(Token::Sign('-')) => {
                let message = "any (`-1`) cannot be: here each receive names its sender and its tag";
                Err(self.error(message))
            }
            other => Err(self.expected(&format!("a number, {what},"), other)),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), InputError> {
        match self.tokens.next()? {
            Some(Token::Word(there)) if there == word => Ok(()),
            other => Err(self.expected(&format!("`{word}`"), other)),
        }
    }

    fn end(&mut self) -> Result<(), InputError> {
        match self.tokens.next()? {
            None | Some(Token::End) => Ok(()),
            other => Err(self.expected("the end of the line", other)),
        }
    }

    fn file(&mut self) -> Result<(), InputError> {
        while let Some(token) = self.tokens.next()? {
            match token {
                Token::End => {}
                Token::Word("num_ranks") if self.ranks == 0 => {
                    self.ranks = self.number("the number of ranks", MOST_RANKS)? as u32;
                    if self.ranks == 0 {
                        return Err(
                            self.error("0 ranks do nothing: write `num_ranks` and how many there are")
                        );
                    }
                    self.scripts.resize(self.ranks as usize, None);
                }
                Token::Word("num_ranks") => return Err(self.error("`num_ranks` has been given already")),
                Token::Word("rank") => self.block()?,
                other => return Err(self.expected("`num_ranks` or `rank`", Some(other))),
            }
        }
        if self.ranks == 0 {
            let message = "there is no `num_ranks N`: write it into the first line";
            return Err(InputError::of(self.tokens.file, message));
        }
        self.check_pairs()
    }

    /// Every message has a receive, and the other way round, and they are of equal length.
    fn check_pairs(&self) -> Result<(), InputError> {
        for (&(from, to, tag), &Pair { sends, recvs, sent, received, line }) in &self.pairs {
            if sends == recvs && sent != received {
                let message =
                    format!("rank {from} sends {sent} bytes with tag {tag} to rank {to}, which receives");
                let place = self.tokens.file;
                return Err(InputError::at(
                    place,
                    line,
                    format!("{message} {received}: they must be equally many"),
                ));
            }
            if sends != recvs {
                let messages = counted(u64::from(sends), "message");
                let receives = counted(u64::from(recvs), "receive");
                let message =
                    format!("rank {from} sends {messages} with tag {tag} to rank {to}, which has {receives}");
                let place = self.tokens.file;
                return Err(InputError::at(place, line, format!("{message}: they must be equally many")));
            }
        }
        Ok(())
    }

    fn block(&mut self) -> Result<(), InputError> {
        if self.ranks == 0 {
            return Err(self.error("write `num_ranks N` before the first rank"));
        }
        let rank = self.number("the rank", u64::from(self.ranks) - 1)? as u32;
        if self.scripts[rank as usize].is_some() {
            return Err(self.error(format!("rank {rank} has been given already: write one block for each")));
        }
        match self.tokens.next()? {
            Some(Token::Sign('{')) => {}
            other => return Err(self.expected("`{`", other)),
        }
        let began = self.tokens.line;
        let mut block = Block::default();
        loop {
            match self.tokens.next()? {
                Some(Token::End) => {}
                Some(Token::Word(word)) => self.statement(rank, word, &mut block)?,
                Some(Token::Sign('}')) => break,
                None => {
                    let message = format!("rank {rank} has no end: write `}}` behind its last line");
                    return Err(InputError::at(self.tokens.file, began, message));
                }
                other => return Err(self.expected("`send`, `recv`, `calc`, a label or `}`", other)),
            }
        }
        self.scripts[rank as usize] = Some(self.graph(block)?);
        Ok(())
    }

    /// Dependencies by number; a circle among them cannot be.
    fn graph(&self, block: Block<'a>) -> Result<Script, InputError> {
        let at = |line: u32, message: String| InputError::at(self.tokens.file, line, message);
        let number = |label: &str, line: u32| {
            let number = block.labels.get(label).copied();
            number.ok_or_else(|| at(line, format!("there is no label {} in this rank", shown(label))))
        };
        let mut dependencies = Vec::with_capacity(block.dependencies.len());
        for &(op, on, until, line) in &block.dependencies {
            dependencies.push(Dependency { op: number(op, line)?, on: number(on, line)?, until });
        }
        let graph = Graph::new(block.ops, &dependencies).map_err(|NeverBegins { op }| {
            at(block.lines[op as usize], "this never begins: it waits for what waits for it".to_string())
        })?;
        Ok(Script::Graph(Arc::new(graph)))
    }

    fn statement(&mut self, rank: u32, word: &'a str, block: &mut Block<'a>) -> Result<(), InputError> {
        if matches!(word, "send" | "recv" | "calc") {
            return self.op(rank, word, block);
        }
        let line = self.tokens.line;
        let until = match self.tokens.next()? {
            Some(Token::Sign(':')) => {
                if block.labels.insert(word, block.ops.len() as u32).is_some() {
                    return Err(self.error(format!("label {} is there already in this rank", shown(word))));
                }
                return match self.tokens.next()? {
                    Some(Token::Word(op)) if matches!(op, "send" | "recv" | "calc") => {
                        self.op(rank, op, block)
                    }
                    other => Err(self.expected("`send`, `recv` or `calc`", other)),
                };
            }
            Some(Token::Word("requires")) => Until::Done,
            Some(Token::Word("irequires")) => Until::Begun,
            other => return Err(self.expected("`:`, `requires` or `irequires`", other)),
        };
        match self.tokens.next()? {
            Some(Token::Word(on)) => block.dependencies.push((word, on, until, line)),
            other => return Err(self.expected("a label", other)),
        }
        self.left_dependencies = self.left_dependencies.checked_sub(1).ok_or_else(|| {
            self.error(format!(
                "there are more than {MOST_OPS} dependencies: this is no input of the simulator"
            ))
        })?;
        self.end()
    }

    /// What stands behind `send`, `recv` or `calc`.
    fn op(&mut self, rank: u32, word: &str, block: &mut Block<'a>) -> Result<(), InputError> {
        self.left_ops = self.left_ops.checked_sub(1).ok_or_else(|| {
            self.error(format!(
                "there are more than {MOST_OPS} operations: this is no input of the simulator"
            ))
        })?;
        block.lines.push(self.tokens.line);
        let mut tag = 0;
        let mut processor = 0;
        let (amount, peer) = match word {
            "calc" => (self.number("the nanoseconds", LONGEST_NS)?, 0),
            _ => {
                let bytes = self.number("the bytes", MAX_BYTES)?;
                self.word("b")?;
                self.word(if word == "send" { "to" } else { "from" })?;
                (bytes, self.number("the rank", u64::from(self.ranks) - 1)? as u32)
            }
        };
        loop {
            match self.tokens.next()? {
                None | Some(Token::End) => break,
                Some(Token::Word("tag")) if word != "calc" => {
                    tag = self.number("the tag", u64::from(u32::MAX))?;
                }
                Some(Token::Word("cpu")) => processor = self.number("the processor", 255)? as u8,
                Some(Token::Word("nic")) => {
                    if self.number("the network card", 255)? > 0 {
                        self.nic.get_or_insert(self.tokens.line);
                    }
                }
                other if word == "calc" => return Err(self.expected("`cpu` or the end of the line", other)),
                other => return Err(self.expected("`tag`, `cpu`, `nic` or the end of the line", other)),
            }
        }
        let act = match word {
            "calc" => Act::Calc(Nanos(amount)),
            "send" => Act::Send { to: peer, tag, bytes: amount },
            _ => Act::Recv { from: peer, tag, bytes: amount },
        };
        let line = *block.lines.last().expect("it was just put there");
        self.note_pair(rank, act, line)?;
        block.ops.push(Op { act, processor });
        Ok(())
    }

    fn note_pair(&mut self, rank: u32, act: Act, line: u32) -> Result<(), InputError> {
        let (envelope, sends, recvs, sent, received) = match act {
            Act::Send { to, tag, bytes } => ((rank, to, tag), 1, 0, u128::from(bytes), 0),
            Act::Recv { from, tag, bytes } => ((from, rank, tag), 0, 1, 0, u128::from(bytes)),
            Act::Calc(_) => return Ok(()),
        };
        if envelope.0 == envelope.1 {
            let message =
                format!("rank {rank} has a message for itself: write `calc` for what the copy takes");
            return Err(InputError::at(self.tokens.file, line, message));
        }
        let pair = self.pairs.entry(envelope).or_default();
        pair.sends += sends;
        pair.recvs += recvs;
        pair.sent += sent;
        pair.received += received;
        pair.line = line;
        Ok(())
    }
}
