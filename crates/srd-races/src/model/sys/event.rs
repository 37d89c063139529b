//! Event counters, alarms and sleeping on them. Time passes only while somebody sleeps on an alarm that is set; other limits
//! on sleeps are too long to be waited for, so that who is not woken sleeps for ever, which loom reports.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fd(usize);

impl From<BorrowedFd<'_>> for Fd {
    fn from(_: BorrowedFd<'_>) -> Fd {
        unreachable!("no sockets here")
    }
}

#[derive(Clone, Copy, Default)]
struct Descriptor {
    readable: bool,
    /// Will be readable if somebody sleeps long enough.
    set: bool,
}

struct Kernel {
    descriptors: loom::sync::Mutex<Vec<Descriptor>>,
    changed: loom::sync::Condvar,
}

loom::lazy_static! {
    static ref KERNEL: Kernel =
        Kernel { descriptors: loom::sync::Mutex::new(Vec::new()), changed: loom::sync::Condvar::new() };
}

fn open() -> Fd {
    let mut descriptors = KERNEL.descriptors.lock().unwrap();
    descriptors.push(Descriptor::default());
    Fd(descriptors.len() - 1)
}

fn put(fd: Fd, new: Descriptor) -> Descriptor {
    let old = std::mem::replace(&mut KERNEL.descriptors.lock().unwrap()[fd.0], new);
    KERNEL.changed.notify_all();
    old
}

#[derive(Debug)]
pub struct EventFd(Fd);

impl EventFd {
    pub fn new() -> io::Result<EventFd> {
        Ok(EventFd(open()))
    }

    pub fn signal(&self) {
        put(self.0, Descriptor { readable: true, set: false });
    }

    pub fn drain(&self) -> bool {
        put(self.0, Descriptor::default()).readable
    }

    pub fn as_fd(&self) -> Fd {
        self.0
    }
}

#[derive(Debug)]
pub struct Alarm(Fd);

impl Alarm {
    pub fn new() -> io::Result<Alarm> {
        Ok(Alarm(open()))
    }

    pub fn set(&self, _span: Duration) {
        put(self.0, Descriptor { readable: false, set: true });
    }

    pub fn clear(&self) {
        put(self.0, Descriptor::default());
    }

    pub fn as_fd(&self) -> Fd {
        self.0
    }
}

#[derive(Debug)]
pub struct PollSet(std::sync::Mutex<Vec<Fd>>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wakening {
    pub by_signal: bool,
    pub first_is_ready: bool,
}

impl PollSet {
    pub fn new() -> PollSet {
        PollSet(std::sync::Mutex::default())
    }

    pub fn add_readable(&self, fd: impl Into<Fd>) {
        self.0.lock().unwrap().push(fd.into());
    }

    pub fn wait(&self, _timeout: Option<Duration>) -> Wakening {
        let fds = self.0.lock().unwrap().clone();
        let mut descriptors = KERNEL.descriptors.lock().unwrap();
        loop {
            let ends = |fd: &Fd| descriptors[fd.0].readable || descriptors[fd.0].set;
            if fds.iter().any(ends) {
                let first_is_ready = fds.first().is_some_and(|fd| descriptors[fd.0].readable);
                return Wakening { by_signal: false, first_is_ready };
            }
            descriptors = KERNEL.changed.wait(descriptors).unwrap();
        }
    }
}
