//! A queue whose file descriptor is readable while something is in it: completion channels and asynchronous events.
//!
//! The descriptor counts (an eventfd in semaphore mode) and the events lie in memory, so that a program may wait with
//! `poll(2)` or make the descriptor non-blocking, as with the kernel's, and events of an object that is destroyed can
//! be taken out again. Where programs read the kernel's structures from the descriptor themselves (libfabric's direct data path
//! does: `ib_uverbs_comp_event_desc`) it is a pipe, which holds a word for each event.

use crate::boundary::{Errno, Outcome};
use libc::c_int;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

pub(crate) struct EventQueue<T> {
    fd: c_int,
    words: Option<Words<T>>,
    events: Mutex<VecDeque<T>>,
}

/// The end of a pipe that is written to, and what is written for an event.
struct Words<T> {
    fd: c_int,
    of: fn(&T) -> u64,
}

impl<T> EventQueue<T> {
    pub fn new() -> Outcome<EventQueue<T>> {
        // SAFETY: a system call without pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(Errno::last());
        }
        Ok(EventQueue { fd, words: None, events: Mutex::default() })
    }

    /// One from whose descriptor `of` can be read, 8 bytes for each event.
    pub fn of_words(of: fn(&T) -> u64) -> Outcome<EventQueue<T>> {
        let mut fds = [0; 2];
        // SAFETY: two descriptors, as pipe2 wants.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
            return Err(Errno::last());
        }
        let [fd, write] = fds;
        // Nobody waits for a program that does not read: 8,192 events fit, and a queue that is armed once tells once.
        // SAFETY: system calls without pointers.
        unsafe { libc::fcntl(write, libc::F_SETFL, libc::fcntl(write, libc::F_GETFL) | libc::O_NONBLOCK) };
        Ok(EventQueue { fd, words: Some(Words { fd: write, of }), events: Mutex::default() })
    }

    /// The descriptor; the program may wait on it and set O_NONBLOCK.
    pub fn fd(&self) -> c_int {
        self.fd
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.events.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds an event if `wanted` says so, which is asked under the queue's lock. Whether it was added.
    pub fn push_if(&self, event: T, wanted: impl FnOnce() -> bool) -> bool {
        let mut events = self.events();
        if !wanted() {
            return false;
        }
        self.drop_what_was_read(&mut events);
        // It would block at 2^64 - 2 events only.
        let (fd, word) = self.words.as_ref().map_or((self.fd, 1), |words| (words.fd, (words.of)(&event)));
        let added = write_word(fd, word);
        if added {
            events.push_back(event);
        }
        added
    }

    /// Forgets events that the program has read from the descriptor itself.
    fn drop_what_was_read(&self, events: &mut VecDeque<T>) {
        if self.words.is_some() {
            let mut bytes: c_int = 0;
            // SAFETY: a number for an answer.
            unsafe { libc::ioctl(self.fd, libc::FIONREAD, &mut bytes) };
            while events.len() > bytes as usize / size_of::<u64>() {
                events.pop_front();
            }
        }
    }

    /// Takes the oldest event and hands it to `taken` under the queue's lock. Waits for one unless the descriptor is
    /// non-blocking; then EAGAIN.
    pub fn pop<R>(&self, taken: impl FnOnce(T) -> R) -> Outcome<R> {
        loop {
            let word = self.count_down()?;
            let mut events = self.events();
            // Empty if the event was taken out after we had counted it.
            while let Some(event) = events.pop_front() {
                // What comes before it in a pipe was read by others.
                if self.words.as_ref().is_none_or(|words| (words.of)(&event) == word) {
                    return Ok(taken(event));
                }
            }
        }
    }

    fn count_down(&self) -> Outcome<u64> {
        let mut buffer = [0u8; 8];
        // SAFETY: eight bytes, as eventfd wants.
        match unsafe { libc::read(self.fd, buffer.as_mut_ptr().cast(), buffer.len()) } {
            8 => Ok(u64::from_ne_bytes(buffer)),
            _ => Err(Errno::last()),
        }
    }

    /// Takes out the events that `is_gone` picks, and returns how many they are. `close` runs under the lock before: no event can
    /// come in between.
    pub fn remove(&self, close: impl FnOnce(), is_gone: impl Fn(&T) -> bool) -> usize {
        let mut events = self.events();
        close();
        self.drop_what_was_read(&mut events);
        let before = events.len();
        events.retain(|event| !is_gone(event));
        let gone = before - events.len();
        // A pipe is emptied and filled again, since the others' words are between theirs.
        for _ in 0..if self.words.is_some() && gone > 0 { before } else { gone } {
            // Where it is not readable, another thread has counted the event and will find the queue empty.
            if self.is_readable() {
                let _ = self.count_down();
            }
        }
        if let Some(words) = self.words.as_ref().filter(|_| gone > 0) {
            events.iter().for_each(|event| _ = write_word(words.fd, (words.of)(event)));
        }
        gone
    }

    fn is_readable(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    }
}

impl<T> Drop for EventQueue<T> {
    fn drop(&mut self) {
        for fd in std::iter::once(self.fd).chain(self.words.as_ref().map(|words| words.fd)) {
            // SAFETY: it is ours.
            unsafe { libc::close(fd) };
        }
    }
}

fn write_word(fd: c_int, word: u64) -> bool {
    let word = word.to_ne_bytes();
    // SAFETY: eight bytes, as eventfd wants.
    unsafe { libc::write(fd, word.as_ptr().cast(), word.len()) == word.len() as isize }
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
        assert!(queue.push_if(1, || true));
        assert!(queue.push_if(2, || true));
        assert!(!queue.push_if(3, || false));
        assert!(queue.is_readable());
        assert_eq!(queue.pop(|e| e), Ok(1));
        assert!(queue.is_readable());
        assert_eq!(queue.pop(|e| e), Ok(2));
        assert!(!queue.is_readable());
    }

    #[test]
    fn what_is_read_from_a_pipe_is_no_event_any_more() {
        let queue = EventQueue::of_words(|event: &u32| *event as u64).unwrap();
        [1, 2, 3, 2, 4].into_iter().for_each(|event| assert!(queue.push_if(event, || true)));
        assert_eq!(queue.count_down(), Ok(1), "as a program reads it");
        assert_eq!(queue.remove(|| (), |event| *event == 2), 2);
        assert_eq!(queue.count_down(), Ok(3));
        assert_eq!(queue.pop(|event| event), Ok(4));
        assert!(!queue.is_readable());
        assert!(queue.events().is_empty());
    }

    #[test]
    fn events_of_a_destroyed_object_are_taken_out() {
        let queue = non_blocking();
        [1, 2, 1, 3].into_iter().for_each(|event| assert!(queue.push_if(event, || true)));
        assert_eq!(queue.remove(|| (), |event| *event == 1), 2);
        assert_eq!(queue.pop(|e| e), Ok(2));
        assert_eq!(queue.pop(|e| e), Ok(3));
        assert!(!queue.is_readable());
    }
}
