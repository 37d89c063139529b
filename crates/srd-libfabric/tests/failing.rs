//! A panic inside the device is the end of the device, and programs hear of it in every way that libfabric has. Each test
//! runs in a process of its own, because that process has no device afterwards.

mod rig;

use rig::*;
use srd_libfabric::layout::*;
use std::process::Command;
use std::ptr::{null, null_mut};

const EIO: isize = -(libc::EIO as isize);
const GETWAIT: i32 = 5;

/// Runs an ignored test of this file with faults. It must succeed; what happened is said once of each engine.
fn run(test: &str, engines: usize, progress: &str, faults: &str, place: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env("SRD_ENGINES", engines.to_string())
        .envs([("SRD_PROGRESS", progress), ("SRD_FAULT", faults), ("SRD_SHM", "off")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{text}", String::from_utf8_lossy(&output.stdout));
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("of this process is gone")).collect();
    assert_eq!(lines.len(), engines, "{text}");
    for part in ["\"on purpose, as SRD_FAULT says\" at crates/srd-net/src/core.rs:", place, "Please report"] {
        assert!(lines[0].contains(part), "{part:?} is missing in {}", lines[0]);
    }
}

#[test]
fn a_panic_in_a_call_fails_everything() {
    run("in_a_call", 1, "inline", "panic_call=1", "in a call");
}

#[test]
fn a_panic_in_the_progress_thread_wakes_who_sleeps() {
    // Whoever waits would move the packets himself.
    run("in_the_thread", 1, "thread", "panic_thread=1", "in the progress thread");
}

#[test]
fn a_panic_in_one_of_several_engines_is_the_end_of_all() {
    run("in_a_call", 2, "inline", "panic_call=1", "in a call");
    run("in_the_thread", 2, "thread", "panic_thread=1", "in the progress thread");
}

/// What a program may look at.
struct Watch {
    rig: Rig,
    a: End,
    b: End,
    counter: *mut fid_cntr,
    eq: *mut fid_eq,
    buffer: Box<[u8; 64]>,
}

// SAFETY: the provider's objects may be used by several threads.
unsafe impl Sync for Watch {}

impl Watch {
    /// Two endpoints; one waits for a message, and the other has sent one.
    fn begin() -> Watch {
        let rig = Rig::new(0);
        let mut eq = null_mut();
        // SAFETY: live arguments.
        unsafe {
            let mut attr: fi_eq_attr = std::mem::zeroed();
            attr.wait_obj = WAIT_UNSPEC;
            check(((*(*rig.fabric).ops).eq_open)(rig.fabric, &mut attr, &mut eq, null_mut())).unwrap();
        }
        let counter = rig.counter();
        let (a, ep, cq, av) = (rig.end(0), rig.bare().unwrap(), rig.cq(0, WAIT_FD), rig.av());
        bind(ep.0, eq, 0).unwrap();
        bind(ep.0, cq.0, SEND | RECV).unwrap();
        bind(ep.0, counter, RECV).unwrap();
        bind(ep.0, av.0, 0).unwrap();
        control(ep.0, ENABLE, null_mut::<u8>()).unwrap();
        let b = End { ep, cq, av };
        let to = a.av.insert(b.ep.address());
        let mut buffer = Box::new([0; 64]);
        assert_eq!(b.ep.recv(&mut buffer[..], 1), 0);
        assert_eq!(a.ep.send(b"the last", to, 2), 0);
        Watch { rig, a, b, counter, eq, buffer }
    }

    /// Reads until nothing is left; then the queue says that it is gone, and goes on saying so.
    fn ends(&self, cq: Cq) {
        let mut first = cq.read().map(|_| ());
        while first == Ok(()) {
            first = cq.read().map(|_| ());
        }
        for said in [first, cq.read().map(|_| ()), cq.wait(-1).map(|_| ())] {
            assert_eq!(said, Err(EIO));
        }
    }

    fn event(&self) -> fi_eq_err_entry {
        let mut event = 0;
        // SAFETY: live arguments.
        unsafe {
            let ops = &*(*self.eq).ops;
            let mut error: fi_eq_err_entry = std::mem::zeroed();
            assert_eq!((ops.sread)(self.eq, &mut event, null_mut(), 0, -1, 0), EAVAIL);
            assert!((ops.readerr)(self.eq, &mut error, 0) > 0);
            error
        }
    }

    fn check(mut self) {
        assert_eq!(self.event().err, libc::EIO);
        for cq in [self.a.cq, self.b.cq] {
            self.ends(cq);
        }
        let mut descriptor = -1;
        control(self.b.cq.0, GETWAIT, &mut descriptor).unwrap();
        let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: live arguments.
        unsafe {
            assert_eq!(libc::poll(&mut poll, 1, 0), 1, "whoever sleeps on it wakes");
            assert_eq!(((*(*self.counter).ops).wait)(self.counter, 1000, -1), EIO as i32);
            assert!(((*(*self.counter).ops).readerr)(self.counter) > 0);
        }
        assert_eq!(self.b.ep.send(b"no", 0, 3), EIO);
        assert_eq!(self.b.ep.recv(&mut self.buffer[..], 3), EIO);
        assert!(self.rig.register(self.buffer.as_ptr() as u64, 64, REMOTE_READ, 7).is_err());
        // The program can end in order all the same.
        self.a.close();
        self.b.close();
        close(self.counter).unwrap();
        close(self.eq).unwrap();
        self.rig.close();
    }
}

#[test]
#[ignore = "in a process of its own"]
fn in_a_call() {
    let watch = Watch::begin();
    while watch.a.cq.read().map(|_| ()) == Err(EAGAIN) {}
    watch.check();
}

#[test]
#[ignore = "in a process of its own"]
fn in_the_thread() {
    let watch = Watch::begin();
    std::thread::scope(|scope| {
        let watch = &watch;
        scope.spawn(move || {
            let waited = watch.a.cq.wait(-1).map(|_| ());
            assert!([Ok(()), Err(EIO)].contains(&waited), "{waited:?}");
        });
        // SAFETY: a live counter.
        let waited = unsafe { ((*(*watch.counter).ops).wait)(watch.counter, 1000, -1) };
        assert_eq!(waited, EIO as i32);
    });
    watch.check();
}

#[test]
fn faults_of_work_requests_are_refused_by_name() {
    for fault in ["loss=0.01,fail=13@3", "late=100@%2", "gone=5"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["nothing_is_offered", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env("SRD_FAULT", fault)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}{text}", String::from_utf8_lossy(&output.stdout));
        let said = text.matches(&format!("SRD_FAULT=\"{fault}\" is not possible here: fail, stale")).count();
        assert_eq!(said, 1, "{text}");
    }
}

#[test]
#[ignore = "the test above runs it, with an SRD_FAULT that must be set before the process starts"]
fn nothing_is_offered() {
    for _ in 0..2 {
        assert_eq!(getinfo(API, None, 0, null()).map(|_| ()), Err(libc::ENODATA));
    }
}
