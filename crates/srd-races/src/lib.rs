//! Models of what threads and processes do at once, in every order that there is and with every value that the memory model
//! lets a load see, by [loom](https://docs.rs/loom).
//!
//! Nothing here is a copy: the sources of `srd-shm` (rings, posts, lanes) and of `srd-net` (sleepers, handoff, the
//! lock of the device) are compiled
//! once more, with atomics, locks and memory of loom's in place of theirs (`model/`). What the kernel does (files with locks,
//! event counters, alarms, sleeping on them) is modelled.
//!
//! `lanes.rs`, `waking.rs` and `failing.rs` are the small programs; `tests/` runs them:
//!
//!     cargo test --release -p srd-races
//!
//! A failure prints how to have it again: `LOOM_LOG=trace LOOM_LOCATION=1` with the name of the test tells every step of it.
//!
//! # What a model cannot tell
//!
//! loom knows no order that all sequentially consistent accesses are in, but knows fences; so each program runs with one
//! behind every sequentially consistent store, as on x86, and again with one before every such load: either is enough for
//! that order, and each shows where an access of the other kind is too weak. A fence orders what is beside it a little more
//! than the language does. Threads are preempted at most a few times in a run, which is where nearly all mistakes are found.
#![allow(dead_code, unused_imports)] // not all of what the sources have is used

mod model;
use model::{core, memory, process_identity, segment, sync, sys};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use sync::Fences;

#[path = "../../srd-shm/src/address.rs"]
mod address;
#[path = "../../srd-shm/src/inbox.rs"]
mod inbox;
#[path = "../../srd-shm/src/lane.rs"]
mod lane;
#[path = "../../srd-shm/src/layout.rs"]
mod layout;
#[path = "../../srd-shm/src/loans.rs"]
mod loans;
#[path = "../../srd-shm/src/reason.rs"]
mod reason;
#[path = "../../srd-shm/src/ring.rs"]
mod ring;

#[path = "../../srd-net/src/core_lock.rs"]
mod core_lock;
#[path = "../../srd-net/src/notify.rs"]
mod notify;
#[path = "../../srd-net/src/progress/handoff.rs"]
mod progress_handoff;

pub mod failing;
pub mod lanes;
pub mod waking;

/// Runs every interleaving of `program` in which threads are preempted at most so often, once for each way to keep
/// sequential consistency.
fn explore(preemptions: usize, program: impl Fn() + Sync + Send + 'static) {
    let program = Arc::new(program);
    for fences in [Fences::BehindStores, Fences::BeforeLoads] {
        let (program, runs) = (program.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = runs.clone();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            fences.put();
            program();
        });
        eprintln!("{} orders, fences {fences:?}", runs.load(Ordering::Relaxed));
    }
}
