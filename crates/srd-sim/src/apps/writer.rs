//! Writes a rank's steps one behind the other.

use crate::apps::script::{Script, Step};
use srd_wire::Nanos;

/// See the module.
#[derive(Default)]
pub(super) struct Writer {
    steps: Vec<Step>,
}

impl Writer {
    pub fn send(&mut self, to: u32, tag: u64, bytes: u64) {
        self.steps.push(Step::Send { to, tag, bytes });
    }

    pub fn recv(&mut self, from: u32, tag: u64, bytes: u64) {
        self.steps.push(Step::Recv { from, tag, bytes });
    }

    pub fn put(&mut self, to: u32, bytes: u64) {
        self.steps.push(Step::Put { to, bytes });
    }

    pub fn get(&mut self, from: u32, bytes: u64) {
        self.steps.push(Step::Get { from, bytes });
    }

    /// Until all that was begun has ended.
    pub fn wait(&mut self) {
        self.wait_for(0);
    }

    /// Until at most so many of the requests begun are open.
    pub fn wait_for(&mut self, open: u32) {
        self.steps.push(Step::Wait { open });
    }

    pub fn compute(&mut self, span: Nanos) {
        if span > Nanos::ZERO {
            self.steps.push(Step::Compute(span));
        }
    }

    pub fn mark(&mut self) {
        self.steps.push(Step::Mark);
    }

    /// What `body` writes, between two marks.
    pub fn measured(&mut self, body: impl FnOnce(&mut Writer)) {
        self.mark();
        body(self);
        self.mark();
    }

    /// What `body` writes, so many times.
    pub fn repeat(&mut self, times: u32, body: impl FnOnce(&mut Writer)) {
        if times == 0 {
            return;
        }
        let from = self.steps.len();
        body(self);
        let steps = self.steps.len() - from;
        if times > 1 && steps > 0 {
            let steps = u32::try_from(steps).expect("a script has fewer steps than 32 bits can name");
            self.steps.push(Step::Repeat { steps, times: times - 1 });
        }
    }

    /// Both directions at once, and the end of both (MPI_Sendrecv).
    pub fn exchange(&mut self, to: u32, from: u32, tag: u64, bytes: u64) {
        self.recv(from, tag, bytes);
        self.send(to, tag, bytes);
        self.wait();
    }

    pub fn script(self) -> Script {
        self.steps.into()
    }

    /// What has been written since it was last asked.
    pub fn take(&mut self) -> impl Iterator<Item = Step> {
        self.steps.drain(..)
    }
}
