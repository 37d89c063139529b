//! The one rule for tests that cannot run everywhere: such a test says so, past whatever captures what tests say, and
//! `make test` counts it as skipped. Where nothing may be missing it fails: `make test` sets `OPENSRD_TEST_ROOT` for root, who has
//! all rights, and for whom it has installed all programs.

use std::fmt::Display;
use std::io::Write;

/// This test cannot run here.
pub fn skip(why: impl Display) {
    assert!(std::env::var_os("OPENSRD_TEST_ROOT").is_none(), "cannot run: {why}");
    kernel_lacks(why);
}

/// Nor can this one, whatever the rights are.
#[allow(dead_code)] // few ask for what some kernels lack
pub fn kernel_lacks(why: impl Display) {
    let thread = std::thread::current();
    let _ = write!(std::io::stderr(), "\nSKIPPED {}: {why}\n", thread.name().unwrap_or("a test"));
}
