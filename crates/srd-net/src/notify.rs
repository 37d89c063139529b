//! Who is told what: handlers of completion notifications and of asynchronous events, and threads that sleep until
//! something has happened.

use crate::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering};
use crate::sys::event::{EventFd, PollSet};
use srd_device::{AsyncEvent, CqId};
use srd_wire::Time;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

type CqHandler = Arc<dyn Fn(CqId) + Send + Sync>;
type EventHandler = Arc<dyn Fn(AsyncEvent) + Send + Sync>;

/// Locks; a handler that panicked while it held the lock has left nothing half-done here.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Handlers {
    next: u64,
    cqs: HashMap<CqId, Vec<(u64, CqHandler)>>,
    events: Vec<(u64, EventHandler)>,
}

/// What has fired and is still to be told. Collected while the device is locked, told afterwards.
#[derive(Default)]
pub struct Fired {
    /// Completion queues.
    pub cqs: Vec<CqId>,
    /// Asynchronous events.
    pub events: Vec<AsyncEvent>,
    /// The device has ended on purpose.
    pub ended: bool,
}

impl Fired {
    /// Whether there is nothing to tell.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.cqs.is_empty() && self.events.is_empty()
    }
}

/// All handlers of an instance, and its sleepers.
pub struct Notifier {
    handlers: Arc<Mutex<Handlers>>,
    sleepers: Sleepers,
    /// Notifications that [`Notifier::take_unclaimed`] has not seen.
    unclaimed: AtomicU64,
}

/// A handler stays registered for as long as this lives.
#[must_use = "the handler is registered only as long as this lives"]
pub struct Subscription {
    handlers: Weak<Mutex<Handlers>>,
    number: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(handlers) = self.handlers.upgrade() else { return };
        let mut handlers = lock(&handlers);
        handlers.events.retain(|(number, _)| *number != self.number);
        handlers.cqs.retain(|_, list| {
            list.retain(|(number, _)| *number != self.number);
            !list.is_empty()
        });
    }
}

impl Notifier {
    /// Nobody is told anything yet.
    pub fn new() -> io::Result<Notifier> {
        Ok(Notifier { handlers: Arc::default(), sleepers: Sleepers::new()?, unclaimed: AtomicU64::new(0) })
    }

    /// Registers a handler for the notifications of `cq`.
    pub fn on_cq(&self, cq: CqId, handler: CqHandler) -> Subscription {
        self.register(|handlers, number| handlers.cqs.entry(cq).or_default().push((number, handler)))
    }

    /// Registers a handler for asynchronous events.
    pub fn on_event(&self, handler: EventHandler) -> Subscription {
        self.register(|handlers, number| handlers.events.push((number, handler)))
    }

    fn register(&self, add: impl FnOnce(&mut Handlers, u64)) -> Subscription {
        let mut handlers = lock(&self.handlers);
        handlers.next += 1;
        let number = handlers.next;
        add(&mut handlers, number);
        Subscription { handlers: Arc::downgrade(&self.handlers), number }
    }

    /// Tells what has fired. No lock is held while handlers run.
    #[inline]
    pub fn tell(&self, fired: Fired) {
        if !fired.is_empty() {
            self.tell_some(fired);
        }
    }

    #[cold]
    fn tell_some(&self, fired: Fired) {
        for cq in &fired.cqs {
            let handlers: Vec<CqHandler> = match lock(&self.handlers).cqs.get(cq) {
                Some(list) => list.iter().map(|(_, handler)| handler.clone()).collect(),
                None => Vec::new(),
            };
            handlers.iter().for_each(|handler| handler(*cq));
        }
        for event in &fired.events {
            let handlers: Vec<EventHandler> =
                lock(&self.handlers).events.iter().map(|(_, handler)| handler.clone()).collect();
            handlers.iter().for_each(|handler| handler(*event));
        }
        self.unclaimed.fetch_add(fired.cqs.len() as u64, Ordering::SeqCst);
        self.sleepers.wake();
    }

    /// Tells the end of the device to everybody, also to those who wait for completions. A handler that panics, and may be
    /// why it is the end, does not keep others from hearing of it.
    #[cold]
    pub fn tell_all(&self, event: AsyncEvent) {
        let (cqs, events): (Vec<(CqId, CqHandler)>, Vec<EventHandler>) = {
            let handlers = lock(&self.handlers);
            let of_cqs = |(cq, list): (&CqId, &Vec<(u64, CqHandler)>)| {
                let cq = *cq;
                list.iter().map(move |(_, handler)| (cq, handler.clone())).collect::<Vec<_>>()
            };
            let cqs = handlers.cqs.iter().flat_map(of_cqs).collect();
            (cqs, handlers.events.iter().map(|(_, handler)| handler.clone()).collect())
        };
        for (cq, handler) in cqs {
            let _ = catch_unwind(AssertUnwindSafe(|| handler(cq)));
            self.unclaimed.fetch_add(1, Ordering::SeqCst);
        }
        for handler in events {
            let _ = catch_unwind(AssertUnwindSafe(|| handler(event)));
        }
        self.sleepers.wake();
    }

    /// Whether any completion notification has fired since the last call.
    pub fn take_unclaimed(&self) -> bool {
        self.unclaimed.swap(0, Ordering::SeqCst) > 0
    }

    /// The sleepers.
    #[inline]
    pub fn sleepers(&self) -> &Sleepers {
        &self.sleepers
    }
}

/// Threads of the program that sleep until something has happened. One of them, the leader, sleeps on the sockets and
/// moves packets when it wakes, so that a packet needs to wake one thread only; the others sleep until the leader (or
/// anyone who moves packets) has something to tell.
pub struct Sleepers {
    count: AtomicUsize,
    /// When the leader wakes by itself; 0 while it is awake, and will look at what is due before it sleeps again.
    leader_wakes: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
    /// `wake_leader` and sockets.
    poll_set: PollSet,
    wake_leader: EventFd,
}

#[derive(Default)]
struct State {
    leader: bool,
    /// Threads that sleep until they are told: telling is a system call, even if there are none.
    followers: u32,
    told: u64,
}

impl Sleepers {
    fn new() -> io::Result<Sleepers> {
        let (poll_set, wake_leader) = (PollSet::new(), EventFd::new()?);
        poll_set.add_readable(wake_leader.as_fd());
        Ok(Sleepers {
            count: AtomicUsize::new(0),
            leader_wakes: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
            poll_set,
            wake_leader,
        })
    }

    /// The leader also wakes when `socket` has something.
    pub fn watch(&self, socket: BorrowedFd<'_>) {
        self.poll_set.add_readable(socket);
    }

    /// Whether a thread sleeps (or is about to) that will move packets.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Another thread has called the device. Wakes all if it has moved packets, and the leader if there is something
    /// due before it would wake.
    #[cold]
    pub fn moved(&self, moved: bool, due: Time) {
        if moved {
            self.wake();
        } else if due.0 < self.leader_wakes.load(Ordering::Relaxed) {
            self.leader_wakes.store(due.0, Ordering::Relaxed);
            self.wake_leader.signal();
        }
    }

    /// Wakes all.
    #[inline]
    pub fn wake(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.wake_them();
        }
    }

    #[cold]
    fn wake_them(&self) {
        let mut state = lock(&self.state);
        state.told += 1;
        if state.leader {
            self.wake_leader.signal();
        }
        let followers = state.followers;
        drop(state);
        if followers > 0 {
            self.changed.notify_all();
        }
    }

    /// From now on there is one more sleeper.
    pub fn enter(&self) -> Asleep<'_> {
        self.count.fetch_add(1, Ordering::SeqCst);
        Asleep { sleepers: self }
    }
}

/// A thread of the program that sleeps, from [`Sleepers::enter`] on.
pub struct Asleep<'a> {
    sleepers: &'a Sleepers,
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.sleepers.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Asleep<'_> {
    /// To be passed to [`Asleep::sleep`]: what is told after this call ends that sleep.
    pub fn mark(&self) -> u64 {
        lock(&self.sleepers.state).told
    }

    /// To be called with the device locked, before [`Asleep::sleep`]: when something is due.
    pub fn will_wake_at(&self, due: Time) {
        self.sleepers.leader_wakes.store(due.0, Ordering::Relaxed);
    }

    /// Sleeps until something has been told since `mark`, or a time is over: `timeout`, and for the leader also `due`,
    /// when packets must be moved; the leader also wakes when packets are there. `lead`: this thread may be it. Returns whether a
    /// signal's handler has run.
    pub fn sleep(&self, mark: u64, timeout: Option<Duration>, due: Option<Duration>, lead: bool) -> bool {
        let sleepers = self.sleepers;
        let mut state = lock(&sleepers.state);
        if state.told != mark {
            return false;
        }
        if state.leader || !lead {
            state.followers += 1;
            let mut state = match timeout {
                None => sleepers.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    sleepers.changed.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.followers -= 1;
            return false;
        }
        state.leader = true;
        drop(state);
        let woken = sleepers.poll_set.wait(match (timeout, due) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        });
        sleepers.leader_wakes.store(0, Ordering::Relaxed);
        let mut state = lock(&sleepers.state);
        state.leader = false;
        let followers = state.followers;
        drop(state);
        if woken.first_is_ready {
            sleepers.wake_leader.drain();
        }
        if followers > 0 {
            // Whoever wakes takes over if this thread does not come back.
            sleepers.changed.notify_one();
        }
        woken.by_signal
    }
}
