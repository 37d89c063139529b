//! One step behind the other.

use super::Desk;
use crate::apps::messaging::Messaging;
use crate::apps::script::Step;
use srd_wire::Time;
use std::sync::Arc;

/// A script and how far it has come.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    script: Arc<[Step]>,
    /// The next step.
    next: usize,
    /// It computes until then.
    busy_until: Option<Time>,
    /// Repetitions under way, inner ones behind: where each stands, and how often it is still to come.
    repeats: Vec<(usize, u32)>,
}

impl Steps {
    pub fn new(script: Arc<[Step]>) -> Steps {
        assert!(u32::try_from(script.len()).is_ok(), "requests are named by their step");
        let there = |(at, step): (usize, &Step)| match *step {
            Step::Repeat { steps, .. } => steps as usize <= at,
            _ => true,
        };
        assert!(script.iter().enumerate().all(there), "a step repeats what is not there");
        Steps { script, next: 0, busy_until: None, repeats: Vec::new() }
    }

    /// Which made that request.
    pub fn step(&self, request: u32) -> Step {
        self.script[request as usize]
    }

    pub fn begin_again(&mut self) {
        self.next = 0;
    }

    pub fn is_done(&self) -> bool {
        self.next == self.script.len() && self.busy_until.is_none()
    }

    pub fn wakes_at(&self) -> Time {
        self.busy_until.unwrap_or(Time::NEVER)
    }

    /// Which share of its steps it has taken, each as often as it comes.
    pub fn done(&self) -> f64 {
        // Of the steps before each.
        let mut taken = vec![0u64];
        for (at, step) in self.script.iter().enumerate() {
            let more = match *step {
                Step::Repeat { steps, times } => {
                    u64::from(times).saturating_mul(taken[at] - taken[at - steps as usize])
                }
                _ => 1,
            };
            taken.push(taken[at].saturating_add(more));
        }
        let again = self.repeats.iter().map(|&(at, left)| match self.script[at] {
            Step::Repeat { steps, times } => {
                u64::from(times - left) * (taken[at] - taken[at - steps as usize])
            }
            _ => 0,
        });
        let done = again.fold(taken[self.next], u64::saturating_add);
        done as f64 / taken[self.script.len()].max(1) as f64
    }

    /// Takes steps until one must wait.
    pub fn go_on(&mut self, desk: &mut Desk<'_>, messaging: &mut impl Messaging) {
        let now = desk.now;
        while self.busy_until.is_none_or(|until| now >= until) {
            self.busy_until = None;
            let Some(&step) = self.script.get(self.next) else { return };
            let request = self.next as u32;
            let goes_on = match step {
                Step::Send { to, tag, bytes } => desk.begun(messaging.send(now, to, tag, bytes, request)),
                Step::Recv { from, tag, bytes } => desk.begun(messaging.recv(now, from, tag, bytes, request)),
                Step::Put { to, bytes } => desk.begun(messaging.put(now, to, bytes, request)),
                Step::Get { from, bytes } => desk.begun(messaging.get(now, from, bytes, request)),
                Step::Wait { open } => *desk.open <= open,
                Step::Compute(span) => {
                    self.busy_until = Some(now + span);
                    true
                }
                Step::Mark => {
                    desk.mark();
                    true
                }
                Step::Repeat { steps, times } => {
                    self.repeat(steps as usize, times);
                    continue;
                }
            };
            if !goes_on {
                return;
            }
            self.next += 1;
        }
    }

    /// At a repetition: back, or on if it has been often enough.
    fn repeat(&mut self, steps: usize, times: u32) {
        let left = match self.repeats.last_mut() {
            Some((at, left)) if *at == self.next => left,
            _ => {
                self.repeats.push((self.next, times));
                &mut self.repeats.last_mut().expect("it was just put there").1
            }
        };
        if *left == 0 {
            self.repeats.pop();
            self.next += 1;
        } else {
            *left -= 1;
            self.next -= steps;
        }
    }
}
