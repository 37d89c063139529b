//! Named situations with measures of their own, where a random run has only rules.

mod failover;
mod idle_peers;
mod lengths;
mod reordering;
mod steady;
mod stream;

pub use failover::failover;
pub use idle_peers::idle_peers;
pub use reordering::reordering;
pub use steady::steady;

/// Counts of the allocator, if the program has one that counts.
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    /// Bytes allocated and not freed by this thread.
    pub live: fn() -> i64,
    /// Calls for memory by this thread.
    pub calls: fn() -> u64,
}

/// A named situation.
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Runs it; says what was measured or what was wrong.
    pub run: fn(&Gauge) -> Result<String, String>,
}

/// Every scenario.
pub const ALL: &[Scenario] = &[
    Scenario {
        name: "failover",
        about: "a quarter of 64 paths goes dark in the middle of a stream: how long does nothing arrive?",
        run: |_| failover(),
    },
    Scenario {
        name: "reordering",
        about: "paths with round trips up to four times apart, nothing lost: nothing may be sent twice",
        run: |_| reordering(),
    },
    Scenario {
        name: "idle-peers",
        about: "10,000 peers after one exchange each: memory, timers and packets per peer",
        run: idle_peers,
    },
    Scenario {
        name: "steady",
        about: "a steady stream of every operation, with loss: no call of the device allocates after warm-up",
        run: steady,
    },
];
