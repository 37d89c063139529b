//! A queue of events behind a file descriptor: completion channels and asynchronous events.
//!
//! The events lie in a pipe, so that a program may wait with `poll(2)`, make the descriptor non-blocking, and read from it what the
//! kernel would write there (libfabric's direct data path does). Everything of ours is written and read under one lock: events of
//! an object that is destroyed can be taken out again.

use crate::boundary::{Errno, Outcome};
use libc::c_int;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard};

/// What lies in a queue.
pub(crate) trait Event: Sized {
    /// As the program reads it from the descriptor: a structure of `rdma/ib_user_verbs.h`.
    type Bytes: AsRef<[u8]> + AsMut<[u8]> + Default;

    fn bytes(&self) -> Self::Bytes;

    fn of(bytes: Self::Bytes) -> Self;
}

pub(crate) struct EventQueue<T> {
    fd: c_int,
    to: c_int,
    ends: Mutex<PhantomData<T>>,
}

impl<T: Event> EventQueue<T> {
    pub fn new() -> Outcome<EventQueue<T>> {
        let mut fds = [0; 2];
        // SAFETY: two descriptors, as pipe2 wants.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
            return Err(Errno::last());
        }
        let [fd, to] = fds;
        // Nobody waits for a program that does not read: 64 KiB of events fit.
        // SAFETY: system calls without pointers.
        unsafe { libc::fcntl(to, libc::F_SETFL, flags(to) | libc::O_NONBLOCK) };
        Ok(EventQueue { fd, to, ends: Mutex::default() })
    }

    /// The descriptor; the program may wait on it and set O_NONBLOCK.
    pub fn fd(&self) -> c_int {
        self.fd
    }

    fn lock(&self) -> MutexGuard<'_, PhantomData<T>> {
        self.ends.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds an event. Whether there was room.
    pub fn push(&self, event: T) -> bool {
        let _locked = self.lock();
        self.write(&event)
    }

    /// Adds an event if `wanted` says so, and then tells `entered`, both under the queue's lock: who has the event from [`pop`]
    /// comes later, and so does [`remove`].
    ///
    /// [`pop`]: EventQueue::pop
    /// [`remove`]: EventQueue::remove
    pub fn push_if(&self, event: T, wanted: impl FnOnce() -> bool, entered: impl FnOnce()) {
        let _locked = self.lock();
        if wanted() && self.write(&event) {
            entered();
        }
    }

    /// Takes the oldest event and hands it to `taken` under the queue's lock. Waits for one unless the descriptor is
    /// non-blocking; then EAGAIN.
    pub fn pop<R>(&self, taken: impl FnOnce(T) -> R) -> Outcome<R> {
        loop {
            let locked = self.lock();
            if let Some(event) = self.read()? {
                return Ok(taken(event));
            }
            drop(locked);
            if flags(self.fd) & libc::O_NONBLOCK != 0 {
                return Err(Errno(libc::EAGAIN));
            }
            self.is_readable(-1)?;
        }
    }

    /// Takes out the events that `is_gone` picks, and returns how many they are. `close` runs under the lock before: no event can
    /// come in between.
    pub fn remove(&self, close: impl FnOnce(), is_gone: impl Fn(&T) -> bool) -> usize {
        let _locked = self.lock();
        close();
        let mut all = Vec::new();
        while let Ok(Some(event)) = self.read() {
            all.push(event);
        }
        let before = all.len();
        all.retain(|event| !is_gone(event));
        // They were there before, so there is room.
        all.iter().for_each(|event| _ = self.write(event));
        before - all.len()
    }

    /// Under the lock. Waits for nothing, since nobody else reads meanwhile.
    fn read(&self) -> Outcome<Option<T>> {
        if !self.is_readable(0)? {
            return Ok(None);
        }
        let mut bytes = T::Bytes::default();
        let room = bytes.as_mut();
        // SAFETY: as many bytes as there is room for. Events are written whole, and never more of them than a page.
        match unsafe { libc::read(self.fd, room.as_mut_ptr().cast(), room.len()) } {
            read if read == room.len() as isize => Ok(Some(T::of(bytes))),
            _ => Err(Errno::last()),
        }
    }

    /// Under the lock.
    fn write(&self, event: &T) -> bool {
        let bytes = event.bytes();
        let bytes = bytes.as_ref();
        // SAFETY: these bytes.
        unsafe { libc::write(self.to, bytes.as_ptr().cast(), bytes.len()) == bytes.len() as isize }
    }

    fn is_readable(&self, timeout_ms: c_int) -> Outcome<bool> {
        let mut poll = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        match unsafe { libc::poll(&mut poll, 1, timeout_ms) } {
            -1 => Err(Errno::last()),
            ready => Ok(ready == 1),
        }
    }
}

fn flags(fd: c_int) -> c_int {
    // SAFETY: a system call without pointers.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }
}

impl<T> Drop for EventQueue<T> {
    fn drop(&mut self) {
        for fd in [self.fd, self.to] {
            // SAFETY: it is ours.
            unsafe { libc::close(fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    impl Event for u32 {
        type Bytes = [u8; 4];

        fn bytes(&self) -> [u8; 4] {
            self.to_ne_bytes()
        }

        fn of(bytes: [u8; 4]) -> u32 {
            u32::from_ne_bytes(bytes)
        }
    }

    fn non_blocking() -> EventQueue<u32> {
        let queue = EventQueue::new().unwrap();
        // SAFETY: a system call without pointers.
        unsafe { libc::fcntl(queue.fd(), libc::F_SETFL, flags(queue.fd()) | libc::O_NONBLOCK) };
        queue
    }

    #[test]
    fn the_descriptor_is_readable_while_events_wait() {
        let queue = non_blocking();
        assert_eq!(queue.is_readable(0), Ok(false));
        assert_eq!(queue.pop(|e| e), Err(Errno(libc::EAGAIN)));
        assert!(queue.push(1));
        queue.push_if(2, || true, || ());
        queue.push_if(3, || false, || panic!("it was not wanted"));
        assert_eq!(queue.is_readable(0), Ok(true));
        assert_eq!(queue.pop(|e| e), Ok(1));
        assert_eq!(queue.is_readable(0), Ok(true));
        assert_eq!(queue.pop(|e| e), Ok(2));
        assert_eq!(queue.is_readable(0), Ok(false));
    }

    #[test]
    fn events_of_a_destroyed_object_are_taken_out() {
        let queue = non_blocking();
        [1, 2, 1, 3].into_iter().for_each(|event| assert!(queue.push(event)));
        assert_eq!(queue.remove(|| (), |event| *event == 1), 2);
        assert_eq!(queue.pop(|e| e), Ok(2));
        assert_eq!(queue.pop(|e| e), Ok(3));
        assert_eq!(queue.is_readable(0), Ok(false));
    }

    /// Each event is taken once or removed once, whatever meets.
    #[test]
    fn events_are_neither_lost_nor_doubled_between_threads() {
        const EVENTS: u32 = 20_000;
        let queue = Arc::new(EventQueue::<u32>::new().unwrap());
        let taker = std::thread::spawn({
            let queue = queue.clone();
            move || {
                let mut seen = 0;
                loop {
                    match queue.pop(|event| event).unwrap() {
                        0 => return seen,
                        _ => seen += 1,
                    }
                }
            }
        });
        let remover = std::thread::spawn({
            let queue = queue.clone();
            move || (0..500).map(|_| queue.remove(|| (), |event| event % 3 == 1)).sum::<usize>()
        });
        for event in 1..=EVENTS {
            while !queue.push(event) {
                std::thread::yield_now();
            }
        }
        let removed = remover.join().unwrap();
        while !queue.push(0) {
            std::thread::yield_now();
        }
        assert_eq!(taker.join().unwrap() + removed, EVENTS as usize);
        assert!(!queue.is_readable(0).unwrap());
    }
}
