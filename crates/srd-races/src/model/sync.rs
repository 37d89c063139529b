//! loom's atomics, with sequential consistency by fences, and its locks.

pub use loom::sync::{Condvar, MutexGuard};
pub use std::sync::atomic::Ordering;

use loom::sync::atomic::fence;

/// A lane cools with the first look in vain: no order of steps has thousands.
pub const LOOKS: u32 = 1;
pub const LEAST_LOOKS: u32 = 1;

/// Where the fences are that keep sequentially consistent accesses in one order.
#[derive(Clone, Copy, Debug)]
pub enum Fences {
    BehindStores,
    BeforeLoads,
}

std::thread_local! {
    /// loom runs all threads of a model in one of the system's.
    static FENCES: std::cell::Cell<Fences> = const { std::cell::Cell::new(Fences::BehindStores) };
}

impl Fences {
    /// From now on they are there.
    pub fn put(self) {
        FENCES.set(self);
    }
}

loom::lazy_static! {
    static ref TURN: loom::sync::atomic::AtomicUsize = loom::sync::atomic::AtomicUsize::new(0);
}

/// Another thread may have its turn here. loom tries orders only of steps that it takes to depend on each other, and
/// forgets some that do: a load of one thread before another's load and store. All steps depend on this one, and
/// since nobody loads what it stores, nothing is ordered by it.
#[track_caller]
fn turn() {
    TURN.store(0, Ordering::Relaxed);
}

/// As the standard library's.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    #[track_caller]
    pub fn lock(&self) -> std::sync::LockResult<MutexGuard<'_, T>> {
        turn();
        self.0.lock()
    }
}

fn before_load(order: Ordering) {
    if order == Ordering::SeqCst && matches!(FENCES.get(), Fences::BeforeLoads) {
        fence(Ordering::SeqCst);
    }
}

fn behind_store(order: Ordering) {
    if order == Ordering::SeqCst && matches!(FENCES.get(), Fences::BehindStores) {
        fence(Ordering::SeqCst);
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// As the standard library's.
        #[derive(Debug)]
        pub struct $name(loom::sync::atomic::$name);

        impl $name {
            pub fn new(value: $value) -> $name {
                $name(loom::sync::atomic::$name::new(value))
            }

            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                turn();
                before_load(order);
                self.0.load(if order == Ordering::SeqCst { Ordering::Acquire } else { order })
            }

            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                turn();
                self.0.store(value, if order == Ordering::SeqCst { Ordering::Release } else { order });
                behind_store(order);
            }

            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.modify(order, |_| value)
            }

            #[track_caller]
            pub fn fetch_or(&self, bits: $value, order: Ordering) -> $value {
                self.modify(order, |old| old | bits)
            }

            #[track_caller]
            pub fn fetch_and(&self, bits: $value, order: Ordering) -> $value {
                self.modify(order, |old| old & bits)
            }

            #[track_caller]
            pub fn fetch_add(&self, more: $value, order: Ordering) -> $value {
                self.modify(order, |old| old.wrapping_add(more))
            }

            #[track_caller]
            pub fn fetch_sub(&self, less: $value, order: Ordering) -> $value {
                self.modify(order, |old| old.wrapping_sub(less))
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                order: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                turn();
                before_load(order);
                let weaker = |order| if order == Ordering::SeqCst { Ordering::AcqRel } else { order };
                let done = self.0.compare_exchange(from, to, weaker(order), failed);
                behind_store(order);
                done
            }

            /// Where it is; nobody looks there.
            pub fn as_ptr(&self) -> *mut $value {
                std::ptr::from_ref(self).cast_mut().cast()
            }

            #[track_caller]
            fn modify(&self, order: Ordering, f: impl Fn($value) -> $value) -> $value {
                turn();
                before_load(order);
                let inner = if order == Ordering::SeqCst { Ordering::AcqRel } else { order };
                let old = self.0.fetch_update(inner, Ordering::Relaxed, |old| Some(f(old)));
                behind_store(order);
                old.expect("the function always answers")
            }
        }
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);
atomic!(AtomicUsize, usize);
