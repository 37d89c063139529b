//! What a forked child does with what its parent has opened. The only test of its process: a child of a program with many
//! threads may do very little.

mod rig;

use rig::*;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs `part` in a forked child, and answers what the child has said on standard error.
fn said_by_child(part: impl FnOnce()) -> String {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors; the child ends in `_exit`, without running anything of the test harness.
    let (child, mut said) = unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let (from, to) = (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]));
        let child = libc::fork();
        if child == 0 {
            libc::dup2(to.as_raw_fd(), 2);
            part();
            libc::_exit(0);
        }
        (child, from)
    };
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    let mut status = 0;
    // SAFETY: the status outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child has not come to its end; it said: {text}");
    text
}

/// A child that reads a queue, whose lock another thread of its parent may have held when it was forked, is told whose it is.
fn forks_while_another_thread_reads(cq: &Cq) {
    let (over, place) = (AtomicBool::new(false), cq.0 as usize);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (cq, mut entry, start) = (Cq(place as *mut _), *zeroed(), Instant::now());
            while !over.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(60) {
                assert_eq!(cq.readerr(&mut entry), EAGAIN);
            }
        });
        for _ in 0..100 {
            said_by_child(|| {
                // SAFETY: nothing but a number. A child that waits for ever is ended by that.
                unsafe { libc::alarm(10) };
                let mut entry = *zeroed();
                if cq.readerr(&mut entry) >= 0 || cq.readerr(&mut entry) == EAGAIN {
                    // SAFETY: as in `said_by_child`.
                    unsafe { libc::_exit(1) };
                }
            });
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_forked_child_that_only_exits_is_not_warned_and_one_that_polls_is() {
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    let register = rig.register(&raw const a as u64, 8, READ, 1).unwrap();
    let said = said_by_child(|| {
        // What libraries do when their process exits, and libfabric when it is unloaded.
        let _ = close(register.0);
        let _ = (close(a.ep.0), close(a.cq.0), close(a.av.0), close(b.ep.0));
        let _ = close(rig.domain);
        // SAFETY: as libfabric calls it.
        unsafe { (provider().cleanup)() };
    });
    assert_eq!(said, "");
    let said = said_by_child(|| {
        let _ = a.cq.read();
    });
    assert!(said.contains("opened before fork()"), "{said}");
    forks_while_another_thread_reads(&a.cq);
    // The parent's are as they were.
    let mut got = [0; 3];
    assert_eq!(b.ep.recv(&mut got, 1), 0);
    assert_eq!(a.ep.send(b"one", to_b, 2), 0);
    a.cq.next();
    b.cq.next();
    assert_eq!(&got, b"one");
    close(register.0).unwrap();
    a.close();
    b.close();
    rig.close();
}
