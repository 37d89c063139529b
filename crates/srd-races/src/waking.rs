//! Threads of a program that sleep, and the progress thread that parks meanwhile.

use crate::explore;
use crate::notify::Notifier;
use crate::progress_handoff::ProgressHandoff;
use crate::sync::Mutex;
use crate::sys::event::EventFd;
use loom::thread;
use srd_wire::Time;
use std::sync::Arc;

/// Threads that wait for something that another one does under the lock, and tells, are all woken.
pub fn whoever_sleeps_is_woken(sleepers: usize, preemptions: usize) {
    explore(preemptions, move || {
        let notifier = Arc::new(Notifier::new().unwrap());
        // What the instance's lock protects.
        let done = Arc::new(Mutex::new(false));
        let threads: Vec<_> = (0..sleepers)
            .map(|_| {
                let (notifier, done) = (notifier.clone(), done.clone());
                thread::spawn(move || {
                    let asleep = notifier.sleepers().enter();
                    loop {
                        let mark = asleep.mark();
                        if *done.lock().unwrap() {
                            break;
                        }
                        assert!(!asleep.sleep(mark, None, None, true), "there are no signals");
                    }
                })
            })
            .collect();
        *done.lock().unwrap() = true;
        notifier.sleepers().wake();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// When a thread of the program comes out of its sleep the progress thread moves packets again, by the alarm at the latest,
/// whether it had parked, was about to or had not begun; `turns`: how often the program sleeps, one time behind the other.
pub fn the_progress_thread_is_back(turns: usize) {
    explore(3, move || {
        let kick = EventFd::new().unwrap();
        let handoff = Arc::new(ProgressHandoff::new(&kick).unwrap());
        let notifier = Arc::new(Notifier::new().unwrap());
        let now = Time(1 << 40);
        let (sleeps, tells) = (handoff.clone(), notifier.clone());
        let program = thread::spawn(move || {
            for _ in 0..turns {
                let asleep = tells.sleepers().enter();
                drop(asleep);
                sleeps.begin(now);
            }
        });
        while handoff.begin_park(now, notifier.sleepers()).is_some() {
            handoff.park();
        }
        program.join().unwrap();
    });
}
