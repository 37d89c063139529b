//! The paths that were good most recently, oldest first.

use srd_wire::PathId;

/// Paths remembered: as many as REPS has (arXiv 2407.21625). 4 to 64 make no difference (docs/design/path-selection.md, "REPS").
const ROOM: usize = 8;

/// See the module. When it is full, the oldest makes way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentPaths {
    paths: [PathId; ROOM],
    oldest: usize,
    count: usize,
}

impl RecentPaths {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn push(&mut self, path: PathId) {
        if self.count == ROOM {
            self.pop();
        }
        self.paths[(self.oldest + self.count) % ROOM] = path;
        self.count += 1;
    }

    pub(super) fn pop(&mut self) -> Option<PathId> {
        if self.count == 0 {
            return None;
        }
        let path = self.paths[self.oldest];
        self.oldest = (self.oldest + 1) % ROOM;
        self.count -= 1;
        Some(path)
    }

    pub(super) fn contains(&self, path: PathId) -> bool {
        (0..self.count).any(|i| self.paths[(self.oldest + i) % ROOM] == path)
    }
}
