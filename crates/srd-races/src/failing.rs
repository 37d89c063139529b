//! The lock of a device in which there is a panic.

use crate::core::Core;
use crate::core_lock::{CoreLock, Refused};
use crate::explore;
use crate::sync::{locks_held, unwind};
use loom::thread;
use srd_device::CqId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const CQ: CqId = CqId(3);
/// Completions that the device has when it fails.
const LEFT: u64 = 2;

/// What a thread does with the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// It calls, and polls what is left if the device has failed.
    Calls,
    /// It looks whether anybody is inside, and goes in if nobody is.
    Looks,
    /// There is a panic while it is inside.
    Panics,
    /// It goes in while it unwinds because of something else, and comes out.
    Unwinds,
    /// There is a panic elsewhere, for which it gives the device up.
    GivesUp,
}

/// A device and who is told of its end.
struct Place {
    lock: CoreLock,
    /// How often somebody was told, and how many locks the thread had that told.
    told: Arc<[AtomicUsize; 2]>,
}

/// These threads at once. Nobody gets a device in which there was a panic, half changed as it is; whoever asks for what it
/// has left gets each completion once and does not wait for ever; its end is told once, with no lock held; and whoever has
/// the lock is refused instead of waiting for himself.
pub fn a_panic_is_final(parts: &'static [Part], preemptions: usize) {
    explore(preemptions, move || {
        let place = Arc::new(Place { lock: CoreLock::new(Core::new(CQ, LEFT)), told: Arc::default() });
        let told = place.told.clone();
        place.lock.on_failure(move || {
            told[0].fetch_add(1, Ordering::Relaxed);
            told[1].fetch_add(locks_held(), Ordering::Relaxed);
        });
        let (first, others) = parts.split_first().expect("somebody does something");
        let others: Vec<_> = others
            .iter()
            .map(|&part| {
                let place = place.clone();
                thread::spawn(move || place.play(part))
            })
            .collect();
        let mut taken = place.play(*first);
        others.into_iter().for_each(|thread| taken.extend(thread.join().unwrap()));
        let has_failed = parts.iter().any(|part| matches!(part, Part::Panics | Part::GivesUp));
        assert_eq!((place.lock.has_failed(), place.lock.is_over()), (has_failed, has_failed));
        let told = [0, 1].map(|n: usize| place.told[n].load(Ordering::Relaxed));
        assert_eq!(told, [has_failed.into(), 0]);
        if has_failed {
            taken.extend(place.poll());
            taken.sort_unstable();
            assert_eq!(taken, (0..LEFT).collect::<Vec<_>>());
        } else {
            assert!(place.lock.lock().is_ok_and(|core| !core.device.is_half_changed));
        }
    });
}

impl Place {
    /// What it has polled of what a failed device has left.
    fn play(&self, part: Part) -> Vec<u64> {
        let lock = &self.lock;
        match part {
            Part::Calls => return self.poll(),
            Part::Looks => {
                lock.is_held_by_another();
                let had_failed = lock.has_failed();
                let held = lock.try_lock();
                assert!(held.is_none_or(|core| !had_failed && !core.device.is_half_changed), "what is left");
            }
            Part::Panics => {
                let Ok(mut core) = lock.lock() else { return self.poll() };
                assert!(!core.device.is_half_changed, "what is left");
                core.device.is_half_changed = true;
                unwind(|| drop(core));
                assert!(lock.has_failed());
            }
            Part::Unwinds => unwind(|| drop(lock.lock())),
            Part::GivesUp => lock.fail(),
        }
        Vec::new()
    }

    /// As an instance polls.
    fn poll(&self) -> Vec<u64> {
        let lock = &self.lock;
        let had_failed = lock.has_failed();
        match lock.lock() {
            Ok(mut core) => {
                assert!(!had_failed && !core.device.is_half_changed, "what is left");
                core.device.is_half_changed = true;
                // A signal comes in the middle.
                assert!(!lock.is_held_by_another());
                assert!(matches!(lock.lock(), Err(Refused::Interrupted)));
                assert!(lock.try_lock().is_none());
                lock.fail();
                core.device.is_half_changed = false;
                Vec::new()
            }
            Err(Refused::Failed) => {
                std::iter::from_fn(|| lock.take_last(CQ)).map(|completion| completion.wr_id).collect()
            }
            Err(Refused::Interrupted) => panic!("it is in nobody's way but another's"),
        }
    }
}
