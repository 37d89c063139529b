//! A rank works through its script.

use super::script::{Script, Step};
use super::{Completion, Messaging};
use srd_wire::Time;

/// See the module.
#[derive(Clone, Debug)]
pub struct Rank {
    script: Script,
    /// The next step.
    next: usize,
    /// Requests begun that have not come to their end.
    open: u32,
    /// It computes until then.
    busy_until: Option<Time>,
    marks: Vec<Time>,
    failed: Option<(Step, &'static str)>,
}

impl Rank {
    /// At the beginning of a script.
    pub fn new(script: Script) -> Rank {
        assert!(u32::try_from(script.len()).is_ok(), "requests are named by their step");
        Rank { script, next: 0, open: 0, busy_until: None, marks: Vec::new(), failed: None }
    }

    /// Goes as far as it can now. To be called when the layer below may have completed something, or has room again, and
    /// at [`Rank::wakes_at`].
    pub fn advance(&mut self, now: Time, messaging: &mut impl Messaging) {
        self.take_completions(now, messaging);
        loop {
            self.take_steps(now, messaging);
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
                self.failed = Some((self.script[request as usize], why));
            }
        }
        any
    }

    fn take_steps(&mut self, now: Time, messaging: &mut impl Messaging) {
        while self.failed.is_none() && self.busy_until.is_none_or(|until| now >= until) {
            self.busy_until = None;
            let Some(&step) = self.script.get(self.next) else { return };
            let request = self.next as u32;
            match step {
                Step::Send { to, tag, bytes } if messaging.send(now, to, tag, bytes, request) => {
                    self.open += 1
                }
                Step::Recv { from, tag, bytes } if messaging.recv(now, from, tag, bytes, request) => {
                    self.open += 1
                }
                Step::Send { .. } | Step::Recv { .. } => return,
                Step::Wait { open } if self.open > open => return,
                Step::Wait { .. } => {}
                Step::Compute(span) => self.busy_until = Some(now + span),
                Step::Mark => self.marks.push(now),
            }
            self.next += 1;
        }
    }

    /// When it goes on by itself.
    pub fn wakes_at(&self) -> Time {
        self.busy_until.filter(|_| self.failed.is_none()).unwrap_or(Time::NEVER)
    }

    /// Whether it has come to the end of its script. It ends early where a request fails.
    pub fn is_done(&self) -> bool {
        self.next == self.script.len() && self.open == 0 || self.failed.is_some()
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
