//! Operations as soon as those are done that they depend on.

use super::Desk;
use crate::apps::graph::{Act, Graph, Until};
use crate::apps::messaging::Messaging;
use crate::apps::script::Step;
use srd_wire::Time;
use std::collections::VecDeque;
use std::sync::Arc;

/// A graph and how far it has come. Its beginning and its end are marked.
#[derive(Clone, Debug)]
pub(super) struct Operations {
    graph: Arc<Graph>,
    /// What each still waits for.
    unmet: Vec<u32>,
    /// Receives that wait for nothing any more.
    receives: VecDeque<u32>,
    processors: Vec<Processor>,
    /// Operations that have not come to their end.
    left: u32,
    stage: Stage,
    wakes_at: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    New,
    Begun,
    Ended,
}

#[derive(Clone, Default, Debug)]
struct Processor {
    /// What it is to do, in this order.
    ready: VecDeque<u32>,
    /// What it computes, and until when.
    busy: Option<(Time, u32)>,
}

impl Operations {
    pub fn new(graph: Arc<Graph>) -> Operations {
        let processors = vec![Processor::default(); graph.processors()];
        let (unmet, receives) = (Vec::new(), VecDeque::new());
        let wakes_at = Time::NEVER;
        let mut new = Operations { graph, unmet, receives, processors, left: 0, stage: Stage::New, wakes_at };
        new.begin_again();
        new
    }

    /// Which made that request, as a step.
    pub fn step(&self, request: u32) -> Step {
        match self.graph.ops()[request as usize].act {
            Act::Send { to, tag, bytes } => Step::Send { to, tag, bytes },
            Act::Recv { from, tag, bytes } => Step::Recv { from, tag, bytes },
            Act::Calc(span) => Step::Compute(span),
        }
    }

    pub fn begin_again(&mut self) {
        let graph = self.graph.clone();
        self.unmet.clear();
        self.unmet.extend_from_slice(graph.unmet());
        self.left = graph.ops().len() as u32;
        self.stage = Stage::New;
        graph.free().iter().for_each(|&op| self.is_ready(op));
    }

    pub fn is_done(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Which share of its operations has come to its end.
    pub fn done(&self) -> f64 {
        let all = self.graph.ops().len() as u32;
        f64::from(all - self.left) / f64::from(all.max(1))
    }

    pub fn wakes_at(&self) -> Time {
        self.wakes_at
    }

    fn is_ready(&mut self, op: u32) {
        let of = self.graph.ops()[op as usize];
        match of.act {
            Act::Recv { .. } => self.receives.push_back(op),
            Act::Send { .. } | Act::Calc(_) => self.processors[of.processor as usize].ready.push_back(op),
        }
    }

    /// Those that wait for this of an operation need not any more.
    fn met(&mut self, op: u32, until: Until) {
        for at in 0..self.graph.waiting(op, until).len() {
            let next = self.graph.waiting(op, until)[at];
            self.unmet[next as usize] -= 1;
            if self.unmet[next as usize] == 0 {
                self.is_ready(next);
            }
        }
    }

    /// An operation has come to its end.
    pub fn ended(&mut self, op: u32) {
        self.left -= 1;
        self.met(op, Until::Done);
    }

    /// Begins what can begin.
    pub fn go_on(&mut self, desk: &mut Desk<'_>, messaging: &mut impl Messaging) {
        if self.stage == Stage::New {
            self.stage = Stage::Begun;
            desk.mark();
        }
        loop {
            let mut any = self.begin_receives(desk, messaging);
            for processor in 0..self.processors.len() {
                any |= self.process(processor, desk, messaging);
            }
            if !any {
                break;
            }
        }
        let busy = self.processors.iter().filter_map(|processor| processor.busy);
        self.wakes_at = busy.map(|(until, _)| until).min().unwrap_or(Time::NEVER);
        if self.left == 0 && self.stage == Stage::Begun {
            self.stage = Stage::Ended;
            desk.mark();
        }
    }

    fn begin_receives(&mut self, desk: &mut Desk<'_>, messaging: &mut impl Messaging) -> bool {
        let mut any = false;
        while let Some(&op) = self.receives.front() {
            let Act::Recv { from, tag, bytes } = self.graph.ops()[op as usize].act else {
                unreachable!("only receives wait here")
            };
            if !desk.begun(messaging.recv(desk.now, from, tag, bytes, op)) {
                break;
            }
            self.receives.pop_front();
            self.met(op, Until::Begun);
            any = true;
        }
        any
    }

    /// What a processor can do now. Returns whether that was anything.
    fn process(&mut self, number: usize, desk: &mut Desk<'_>, messaging: &mut impl Messaging) -> bool {
        let mut any = false;
        loop {
            let processor = &mut self.processors[number];
            if let Some((until, op)) = processor.busy {
                if desk.now < until {
                    return any;
                }
                processor.busy = None;
                any = true;
                self.ended(op);
                continue;
            }
            let Some(&op) = processor.ready.front() else { return any };
            match self.graph.ops()[op as usize].act {
                Act::Calc(span) => processor.busy = Some((desk.now + span, op)),
                Act::Send { to, tag, bytes } => {
                    if !desk.begun(messaging.send(desk.now, to, tag, bytes, op)) {
                        return any;
                    }
                }
                Act::Recv { .. } => unreachable!("receives need no processor"),
            }
            self.processors[number].ready.pop_front();
            self.met(op, Until::Begun);
            any = true;
        }
    }
}
