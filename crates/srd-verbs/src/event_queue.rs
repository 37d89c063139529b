//! A queue whose file descriptor is readable while something is in it: completion channels and asynchronous events.
//!
//! The descriptor counts (an eventfd in semaphore mode) and the events lie in memory, so that a program may wait with
//! `poll(2)` or make the descriptor non-blocking, as with the kernel's, and events of an object that is destroyed can
//! be taken out again.

use crate::boundary::{Errno, Outcome};
use libc::c_int;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

pub(crate) struct EventQueue<T> {
    fd: c_int,
    events: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    pub fn new() -> Outcome<EventQueue<T>> {
        // SAFETY: a system call without pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(Errno::last());
        }
        Ok(EventQueue { fd, events: Mutex::default() })
    }

    /// The descriptor; the program may wait on it and set O_NONBLOCK.
    pub fn fd(&self) -> c_int {
        self.fd
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.events.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds an event if `wanted` says so, which is asked under the queue's lock.
    pub fn push_if(&self, event: T, wanted: impl FnOnce() -> bool) {
        let mut events = self.events();
        if !wanted() {
            return;
        }
        events.push_back(event);
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes, as eventfd wants. It would block only at 2^64 - 2 events.
        unsafe { libc::write(self.fd, one.as_ptr().cast(), one.len()) };
    }

    /// Takes the oldest event and hands it to `taken` under the queue's lock. Waits for one unless the descriptor is
    /// non-blocking; then EAGAIN.
    pub fn pop<R>(&self, taken: impl FnOnce(T) -> R) -> Outcome<R> {
        loop {
            self.count_down()?;
            let mut events = self.events();
            // Empty if the event was taken out after we had counted it.
            if let Some(event) = events.pop_front() {
                return Ok(taken(event));
            }
        }
    }

    fn count_down(&self) -> Outcome<()> {
        let mut buffer = [0u8; 8];
        // SAFETY: eight bytes, as eventfd wants.
        match unsafe { libc::read(self.fd, buffer.as_mut_ptr().cast(), buffer.len()) } {
            8 => Ok(()),
            _ => Err(Errno::last()),
        }
    }

    /// Takes out the events that `is_gone` picks. `close` runs under the lock before: no event can come in between.
    pub fn remove(&self, close: impl FnOnce(), is_gone: impl Fn(&T) -> bool) {
        let mut events = self.events();
        close();
        let before = events.len();
        events.retain(|event| !is_gone(event));
        for _ in events.len()..before {
            // Where it is not readable, another thread has counted the event and will find the queue empty.
            if self.is_readable() {
                let _ = self.count_down();
            }
        }
    }

    fn is_readable(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    }
}

impl<T> Drop for EventQueue<T> {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { libc::close(self.fd) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn non_blocking() -> EventQueue<u32> {
        let queue = EventQueue::new().unwrap();
        // SAFETY: system calls without pointers.
        unsafe {
            let flags = libc::fcntl(queue.fd(), libc::F_GETFL);
            libc::fcntl(queue.fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
        queue
    }

    #[test]
    fn the_descriptor_is_readable_while_events_wait() {
        let queue = non_blocking();
        assert!(!queue.is_readable());
        assert_eq!(queue.pop(|e| e), Err(Errno(libc::EAGAIN)));
        queue.push_if(1, || true);
        queue.push_if(2, || true);
        queue.push_if(3, || false);
        assert!(queue.is_readable());
        assert_eq!(queue.pop(|e| e), Ok(1));
        assert!(queue.is_readable());
        assert_eq!(queue.pop(|e| e), Ok(2));
        assert!(!queue.is_readable());
    }

    #[test]
    fn events_of_a_destroyed_object_are_taken_out() {
        let queue = non_blocking();
        [1, 2, 1, 3].into_iter().for_each(|event| queue.push_if(event, || true));
        queue.remove(|| (), |event| *event == 1);
        assert_eq!(queue.pop(|e| e), Ok(2));
        assert_eq!(queue.pop(|e| e), Ok(3));
        assert!(!queue.is_readable());
    }
}
