//! Asynchronous events, until somebody takes them.

use crate::api::AsyncEvent;
use std::collections::VecDeque;

/// Events that wait at most; a program that never asks for them must not fill memory.
const MAX_WAITING: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct AsyncEvents {
    waiting: VecDeque<AsyncEvent>,
}

impl AsyncEvents {
    /// Returns false if there is no room and the event is lost.
    #[must_use]
    pub fn push(&mut self, event: AsyncEvent) -> bool {
        let room = self.waiting.len() < MAX_WAITING;
        if room {
            self.waiting.push_back(event);
        }
        room
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn pop(&mut self) -> Option<AsyncEvent> {
        self.waiting.pop_front()
    }
}
