//! Named situations with measures of their own.

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
pub const ALL: &[Scenario] = &[];
