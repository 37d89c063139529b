//! loom's atomics, with sequential consistency by fences, and its locks.

pub use std::sync::atomic::Ordering;

pub use loom::sync::atomic::fence;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

/// A lane cools with the first look in vain: no order of steps has thousands.
pub const LOOKS: u32 = 1;
pub const LEAST_LOOKS: u32 = 1;

/// Few keys may be lent, and in each line two.
pub const LOANS: usize = 2;
pub const LOAN_LINES: usize = 2;

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

loom::thread_local! {
    static MARK: usize = MARKS.fetch_add(1, Ordering::Relaxed);
    static PANICKING: std::cell::Cell<bool> = std::cell::Cell::new(false);
    static LOCKS: std::cell::Cell<usize> = std::cell::Cell::new(0);
}

/// So many threads have asked for their number.
static MARKS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(1);

/// A number that no other thread has. (The system gives that of one that has ended to another one, and whatever that does
/// comes behind the end of the first: here nothing would order the two.)
pub fn this_thread() -> usize {
    MARK.with(|mark| *mark)
}

/// Whether this thread unwinds.
pub fn panicking() -> bool {
    PANICKING.with(|panicking| panicking.get())
}

/// Does what a panic of this thread does on its way out. (A real one would seem to be one of all threads, which are one of
/// the system's.)
pub fn unwind(drops: impl FnOnce()) {
    PANICKING.with(|panicking| panicking.set(true));
    drops();
    PANICKING.with(|panicking| panicking.set(false));
}

/// How many locks this thread has.
pub fn locks_held() -> usize {
    LOCKS.with(|locks| locks.get())
}

/// As the standard library's, poison included.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    inner: loom::sync::Mutex<T>,
    /// Changed under the lock, and looked at by who has it or has just had it: no order of steps comes of it.
    poisoned: std::sync::atomic::AtomicBool,
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex { inner: loom::sync::Mutex::new(value), poisoned: false.into() }
    }

    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        turn();
        let inner = self.inner.lock().expect("loom does not poison");
        self.checked(MutexGuard::new(self, inner))
    }

    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        turn();
        let inner = self.inner.try_lock().map_err(|_| TryLockError::WouldBlock)?;
        Ok(self.checked(MutexGuard::new(self, inner))?)
    }

    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    fn checked<'a>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        if self.is_poisoned() { Err(PoisonError::new(guard)) } else { Ok(guard) }
    }
}

/// As the standard library's.
pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    inner: Option<loom::sync::MutexGuard<'a, T>>,
    /// It was taken because of a panic.
    unwinding: bool,
}

impl<'a, T> MutexGuard<'a, T> {
    fn new(lock: &'a Mutex<T>, inner: loom::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        LOCKS.with(|locks| locks.set(locks.get() + 1));
        MutexGuard { lock, inner: Some(inner), unwinding: panicking() }
    }

    /// For who waits without it.
    fn part(mut self) -> (&'a Mutex<T>, loom::sync::MutexGuard<'a, T>) {
        (self.lock, self.inner.take().expect("it is held"))
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        LOCKS.with(|locks| locks.set(locks.get() - 1));
        if self.inner.is_some() && !self.unwinding && panicking() {
            self.lock.poisoned.store(true, Ordering::Relaxed);
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("it is held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("it is held")
    }
}

/// As the standard library's.
#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub fn new() -> Condvar {
        Condvar(loom::sync::Condvar::new())
    }

    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let (lock, inner) = guard.part();
        let inner = self.0.wait(inner).expect("loom does not poison");
        lock.checked(MutexGuard::new(lock, inner))
    }

    #[track_caller]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, loom::sync::WaitTimeoutResult)> {
        let (lock, inner) = guard.part();
        let (inner, timed_out) = self.0.wait_timeout(inner, timeout).expect("loom does not poison");
        Ok((MutexGuard::new(lock, inner), timed_out))
    }

    #[track_caller]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    #[track_caller]
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As the standard library's.
#[derive(Debug)]
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    is_set: AtomicBool,
    waiting: loom::sync::Mutex<()>,
    changed: loom::sync::Condvar,
}

impl<T> OnceLock<T> {
    pub fn new() -> OnceLock<T> {
        OnceLock {
            value: std::sync::OnceLock::new(),
            is_set: AtomicBool::new(false),
            waiting: loom::sync::Mutex::new(()),
            changed: loom::sync::Condvar::new(),
        }
    }

    #[track_caller]
    pub fn get(&self) -> Option<&T> {
        self.is_set.load(Ordering::Acquire).then(|| self.value.get()).flatten()
    }

    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        let waiting = self.waiting.lock().expect("loom does not poison");
        self.is_set.store(true, Ordering::Release);
        drop(waiting);
        self.changed.notify_all();
        Ok(())
    }

    #[track_caller]
    pub fn wait(&self) -> &T {
        let mut waiting = self.waiting.lock().expect("loom does not poison");
        while self.get().is_none() {
            waiting = self.changed.wait(waiting).expect("loom does not poison");
        }
        drop(waiting);
        self.value.get().expect("it is set")
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

/// As the standard library's.
#[derive(Debug)]
pub struct AtomicBool(AtomicUsize);

impl AtomicBool {
    pub fn new(value: bool) -> AtomicBool {
        AtomicBool(AtomicUsize::new(value.into()))
    }

    #[track_caller]
    pub fn load(&self, order: Ordering) -> bool {
        self.0.load(order) != 0
    }

    #[track_caller]
    pub fn store(&self, value: bool, order: Ordering) {
        self.0.store(value.into(), order);
    }

    #[track_caller]
    pub fn swap(&self, value: bool, order: Ordering) -> bool {
        self.0.swap(value.into(), order) != 0
    }
}
