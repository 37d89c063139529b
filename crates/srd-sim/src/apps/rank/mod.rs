//! A rank works through its script.

mod graph;
mod steps;

use crate::apps::messaging::{Completion, Messaging};
use crate::apps::script::{Script, Step};
use graph::Operations;
use srd_wire::{Nanos, Time};
use steps::Steps;

/// Marks that are kept of a rank that begins again and again: the first ones.
const MARKS_OF_ENDLESS: usize = 4096;

/// See the module.
#[derive(Clone, Debug)]
pub struct Rank {
    work: Work,
    /// Requests begun that have not come to their end.
    open: u32,
    marks: Vec<Time>,
    failed: Option<(Step, &'static str)>,
    /// At the end of its script it begins again.
    forever: bool,
    /// How often it has come to the end.
    passes: u64,
    /// When it began anew.
    began: Time,
    /// It begins anew then, the last pass having taken no time.
    rests_until: Option<Time>,
}

#[derive(Clone, Debug)]
enum Work {
    Steps(Steps),
    Graph(Operations),
}

/// What is open, and where marks go, while a rank works.
struct Desk<'a> {
    now: Time,
    open: &'a mut u32,
    marks: &'a mut Vec<Time>,
    most_marks: usize,
}

impl Default for Rank {
    /// With nothing to do.
    fn default() -> Rank {
        Rank::new(Script::default())
    }
}

impl Desk<'_> {
    /// A request was made. Returns whether there was room for it.
    fn begun(&mut self, taken: bool) -> bool {
        *self.open += taken as u32;
        taken
    }

    fn mark(&mut self) {
        if self.marks.len() < self.most_marks {
            self.marks.push(self.now);
        }
    }
}

impl Rank {
    /// At the beginning of a script.
    ///
    /// # Panics
    /// If a script has so many steps that 32 bits cannot name them, or repeats what is not there.
    pub fn new(script: Script) -> Rank {
        let work = match script {
            Script::Steps(steps) => Work::Steps(Steps::new(steps)),
            Script::Graph(graph) => Work::Graph(Operations::new(graph)),
        };
        Rank {
            work,
            open: 0,
            marks: Vec::new(),
            failed: None,
            forever: false,
            passes: 0,
            began: Time(0),
            rests_until: None,
        }
    }

    /// Whether it begins again at the end, each time when all requests have come to theirs. Such a rank is never done; of
    /// its marks the first few thousand are kept.
    pub fn forever(self, forever: bool) -> Rank {
        Rank { forever, ..self }
    }

    /// Goes as far as it can now. To be called when the layer below may have completed something, or has room again, and
    /// at [`Rank::wakes_at`].
    pub fn advance(&mut self, now: Time, messaging: &mut impl Messaging) {
        self.take_completions(now, messaging);
        loop {
            self.go_on(now, messaging);
            // What has just begun may have come to its end at once.
            if !self.take_completions(now, messaging) {
                return;
            }
        }
    }

    /// Returns whether there were any.
    fn take_completions(&mut self, now: Time, messaging: &mut impl Messaging) -> bool {
        let mut any = false;
        while let Some(Completion { request, failed }) = messaging.poll(now) {
            any = true;
            self.open = self.open.checked_sub(1).expect("a request comes to its end once");
            if let (Some(why), None) = (failed, self.failed) {
                let step = match &self.work {
                    Work::Steps(steps) => steps.step(request),
                    Work::Graph(operations) => operations.step(request),
                };
                self.failed = Some((step, why));
            }
            if let Work::Graph(operations) = &mut self.work {
                operations.ended(request);
            }
        }
        any
    }

    fn go_on(&mut self, now: Time, messaging: &mut impl Messaging) {
        while self.failed.is_none() && self.rests_until.is_none_or(|until| now >= until) {
            self.rests_until = None;
            let most_marks = if self.forever { MARKS_OF_ENDLESS } else { usize::MAX };
            let desk = &mut Desk { now, open: &mut self.open, marks: &mut self.marks, most_marks };
            match &mut self.work {
                Work::Steps(steps) => steps.go_on(desk, messaging),
                Work::Graph(operations) => operations.go_on(desk, messaging),
            }
            if !self.forever || !self.at_end() {
                return;
            }
            self.passes += 1;
            match &mut self.work {
                Work::Steps(steps) => steps.begin_again(),
                Work::Graph(operations) => operations.begin_again(),
            }
            // Else a script that need not wait for anything would keep time from passing.
            if std::mem::replace(&mut self.began, now) == now {
                self.rests_until = Some(now + Nanos(1));
            }
        }
    }

    fn at_end(&self) -> bool {
        self.open == 0
            && match &self.work {
                Work::Steps(steps) => steps.is_done(),
                Work::Graph(operations) => operations.is_done(),
            }
    }

    /// When it goes on by itself.
    pub fn wakes_at(&self) -> Time {
        if self.failed.is_some() {
            return Time::NEVER;
        }
        let works = match &self.work {
            Work::Steps(steps) => steps.wakes_at(),
            Work::Graph(operations) => operations.wakes_at(),
        };
        self.rests_until.unwrap_or(works)
    }

    /// Whether it has come to the end of its script, which has no other beginning. It ends early where a request fails.
    pub fn is_done(&self) -> bool {
        self.failed.is_some() || !self.forever && self.at_end()
    }

    /// Which share of its script is done, from 0 to 1, however long each step takes. `None` if it begins again and again.
    pub fn done(&self) -> Option<f64> {
        (!self.forever).then(|| match &self.work {
            _ if self.is_done() => 1.0,
            Work::Steps(steps) => steps.done(),
            Work::Graph(operations) => operations.done(),
        })
    }

    /// Whether it begins again at the end.
    pub fn is_endless(&self) -> bool {
        self.forever
    }

    /// How often it came to its end and began again.
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// The times that it noted.
    pub fn marks(&self) -> &[Time] {
        &self.marks
    }

    /// The step that failed first, and why.
    pub fn failed(&self) -> Option<(Step, &'static str)> {
        self.failed
    }
}
