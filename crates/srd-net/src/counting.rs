//! Who adds the counters of devices up elsewhere hears of them while an instance lives, in a thread of its own: the progress thread
//! sleeps while the program polls, and must not wait for files.

use crate::shared::Shared;
use crate::sys::process;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often counters that change are told.
const OFTEN: Duration = Duration::from_millis(100);
/// And how often is looked, at last, while they do not.
const SELDOM: Duration = Duration::from_millis(800);

/// Starts the thread. It ends soon after the instance.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::downgrade(shared);
    process::with_signals_blocked(|| {
        let thread = std::thread::Builder::new().name("srd-counters".into()).stack_size(256 << 10);
        thread.spawn(move || run(&shared)).map(drop)
    })
}

fn run(shared: &Weak<Shared>) {
    let mut told = None;
    let mut pause = OFTEN;
    loop {
        std::thread::sleep(pause);
        let Some(shared) = shared.upgrade() else { return };
        let Some(counted) = shared.counted.get() else { return };
        let Ok(core) = shared.lock() else { return };
        let counters = core.device.counters();
        drop(core);
        let changed = told.as_ref() != Some(&counters);
        pause = if changed { OFTEN } else { (pause * 2).min(SELDOM) };
        if changed {
            counted(&counters);
            told = Some(counters);
        }
    }
}
