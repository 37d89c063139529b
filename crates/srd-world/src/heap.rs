//! An allocator that counts per thread, for the scenarios that bound memory. It belongs to binaries, not to the
//! library: only a program can choose its allocator.

use srd_world::scenario::Gauge;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted.
pub struct Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count(bytes: i64, calls: u64) {
    // Nothing is counted while the thread's own variables are taken down.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
    let _ = CALLS.try_with(|all| all.set(all.get() + calls));
}

// SAFETY: every call goes to the system's allocator with the arguments it came with; the counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64, 1);
        // SAFETY: the caller's promise about `layout` is the one that the system asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64), 0);
        // SAFETY: `pointer` came from `alloc` above, hence from the system, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64, 1);
        // SAFETY: `pointer` came from `alloc` above, hence from the system, with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// What this thread has allocated.
pub fn gauge() -> Gauge {
    Gauge { live: || LIVE.with(Cell::get), calls: || CALLS.with(Cell::get) }
}
