//! After fork() the instance stays the parent's. The only test of its process: a child of a program with many threads
//! may do very little.

mod support;

use srd_net::stats_directory::ask_all;
use srd_net::{Instance, Unavailable};
use srd_wire::Status;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use support::{Host, options};

#[test]
fn a_forked_child_leaves_the_parents_instance_alone_and_opens_its_own() {
    let mut a = Host::open("127.0.0.1", &[]);
    let b = Host::open("127.0.0.2", &[]);
    let shared = Instance::open(&options("127.0.0.3", &[])).unwrap();
    // SAFETY: the child ends in `_exit`, without running anything of the test harness.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = a.instance.progress() == Err(Unavailable::Forked)
            && a.instance.poll_one(a.cq).map(|_| ()) == Err(Unavailable::Forked)
            && a.instance.with(|_, _| ()) == Err(Unavailable::Forked)
            && a.instance.wait(None) == Err(Unavailable::Forked);
        drop((a, b));
        let own = Instance::open(&options("127.0.0.3", &[]));
        let opened =
            own.is_ok_and(|own| own.address().port != shared.address().port && own.progress().is_ok());
        drop(shared);
        // SAFETY: ends the process.
        unsafe { libc::_exit(if refused && opened { 0 } else { 1 + refused as i32 }) };
    }
    let mut status = 0;
    // SAFETY: the status outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child says so");
    // The parent's sockets and threads are as they were.
    for i in 0..100 {
        b.recv(i, 0, 100);
        a.send(i, b.address(), 0, 100);
        assert_eq!(a.completion().status, Status::Ok);
    }
    for _ in 0..100 {
        assert_eq!(b.completion().status, Status::Ok);
    }
    assert!(shared.progress().is_ok());
    for host in [&a, &b] {
        assert!(support::counters_of(host.instance.address()).is_some(), "its socket is there and answers");
    }
    a_socket_that_only_a_fork_of_a_dead_process_has_goes();
}

fn a_socket_that_only_a_fork_of_a_dead_process_has_goes() {
    let (ended, mut until) = UnixStream::pair().unwrap();
    // SAFETY: the child and its own child end in `_exit`, without running anything of the test harness.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let own = Instance::open(&options("127.0.0.6", &[]));
        drop(ended);
        // SAFETY: as above.
        unsafe {
            if libc::fork() == 0 {
                let _ = until.read(&mut [0]); // keeps the socket until the test is over
            }
            libc::_exit(own.is_err() as i32);
        }
    }
    let mut status = 0;
    // SAFETY: the status outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child has opened an instance");
    let find = || ask_all().into_iter().find(|asked| asked.pid == child as u32);
    let mut asked = find().expect("its child has the socket");
    assert!(asked.read(Instant::now() + Duration::from_millis(20)).is_err(), "nobody is there to answer");
    assert!(asked.clear_if_dead());
    assert!(find().is_none());
    drop(ended);
}
