//! Operations of a rank that depend on each other, as traces have them (`goal`).

use srd_wire::Nanos;

/// An operation of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// What it does.
    pub act: Act,
    /// Which of the rank's processors computes and sends; receives need none. Each does one thing at a time, in the order in
    /// which they become possible.
    pub processor: u8,
}

/// See [`Op`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Sends.
    Send {
        /// Rank.
        to: u32,
        /// Tag.
        tag: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Receives.
    Recv {
        /// Rank.
        from: u32,
        /// Tag.
        tag: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Computes.
    Calc(Nanos),
}

impl Act {
    /// Of several that become possible at once, sends go before computations.
    fn order(self) -> u8 {
        match self {
            Act::Send { .. } => 0,
            Act::Recv { .. } => 1,
            Act::Calc(_) => 2,
        }
    }
}

/// What an operation waits for in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// Its end.
    Done,
    /// Its beginning.
    Begun,
}

/// An operation waits for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dependency {
    /// Which waits.
    pub op: u32,
    /// For which.
    pub on: u32,
    /// For what of it.
    pub until: Until,
}

/// Those that wait for one operation: the numbers of a stretch of [`Graph::waiting`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stretch {
    first: u32,
    /// From here on they wait for its end, before that for its beginning.
    done: u32,
    end: u32,
}

/// Operations and what they wait for: a graph without circles.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graph {
    ops: Vec<Op>,
    stretches: Vec<Stretch>,
    waiting: Vec<u32>,
    /// How many others each waits for.
    unmet: Vec<u32>,
    /// Those that wait for none, as they begin.
    free: Vec<u32>,
    processors: u16,
}

/// An operation waits for itself by way of others, or for one that is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeverBegins {
    /// The first such operation.
    pub op: u32,
}

impl Graph {
    /// Of operations, which dependencies name by their place in the list.
    ///
    /// # Panics
    /// If there are more than 2^31 of either.
    pub fn new(ops: Vec<Op>, dependencies: &[Dependency]) -> Result<Graph, NeverBegins> {
        assert!(ops.len().max(dependencies.len()) <= 1 << 31, "operations are named by 32 bits");
        let count = ops.len() as u32;
        if let Some(wrong) = dependencies.iter().find(|of| of.op >= count || of.on >= count) {
            return Err(NeverBegins { op: wrong.op });
        }
        let mut edges: Vec<&Dependency> = dependencies.iter().collect();
        edges.sort_by_key(|of| (of.on, of.until == Until::Done, ops[of.op as usize].act.order(), of.op));
        let waiting: Vec<u32> = edges.iter().map(|of| of.op).collect();
        let mut unmet = vec![0; ops.len()];
        waiting.iter().for_each(|&op| unmet[op as usize] += 1);
        let mut at = 0;
        let mut stretch = |on: u32| {
            let mut run = |until| {
                let these = edges[at..].iter().take_while(|of| of.on == on && of.until == until);
                at += these.count();
                at as u32
            };
            let first = run(Until::Begun);
            (first, run(Until::Done))
        };
        let mut first = 0;
        let stretches = (0..count)
            .map(|op| {
                let (done, end) = stretch(op);
                Stretch { first: std::mem::replace(&mut first, end), done, end }
            })
            .collect();
        let mut free: Vec<u32> = (0..count).filter(|&op| unmet[op as usize] == 0).collect();
        free.sort_by_key(|&op| (ops[op as usize].act.order(), op));
        let processors = ops.iter().map(|op| op.processor as u16 + 1).max().unwrap_or(0);
        let graph = Graph { ops, stretches, waiting, unmet, free, processors };
        graph.check().map(|()| graph)
    }

    /// Whether all can begin.
    fn check(&self) -> Result<(), NeverBegins> {
        let mut unmet = self.unmet.clone();
        let mut ready = self.free.clone();
        while let Some(op) = ready.pop() {
            let stretch = self.stretches[op as usize];
            for &next in &self.waiting[stretch.first as usize..stretch.end as usize] {
                unmet[next as usize] -= 1;
                if unmet[next as usize] == 0 {
                    ready.push(next);
                }
            }
        }
        match unmet.iter().position(|&unmet| unmet > 0) {
            None => Ok(()),
            Some(op) => Err(NeverBegins { op: op as u32 }),
        }
    }

    /// Its operations.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// How many processors they name.
    pub(super) fn processors(&self) -> usize {
        self.processors as usize
    }

    /// How many others each waits for.
    pub(super) fn unmet(&self) -> &[u32] {
        &self.unmet
    }

    /// Those that wait for none, as they begin.
    pub(super) fn free(&self) -> &[u32] {
        &self.free
    }

    /// Those that wait for this of an operation.
    pub(super) fn waiting(&self, op: u32, until: Until) -> &[u32] {
        let Stretch { first, done, end } = self.stretches[op as usize];
        match until {
            Until::Begun => &self.waiting[first as usize..done as usize],
            Until::Done => &self.waiting[done as usize..end as usize],
        }
    }

    /// The same among ranks whose numbers are greater by so many.
    pub(super) fn moved(&self, by: u32) -> Graph {
        let mut moved = self.clone();
        for op in &mut moved.ops {
            match &mut op.act {
                Act::Send { to: rank, .. } | Act::Recv { from: rank, .. } => *rank += by,
                Act::Calc(_) => {}
            }
        }
        moved
    }
}
