//! What programs count, and what they sleep on besides a queue's descriptor: fi_cntr(3), and the wait sets of fi_poll(3).

mod rig;

use rig::*;
use srd_libfabric::layout::*;
use std::ptr::null_mut;
use std::time::Duration;

/// What other threads may do with an endpoint's objects.
struct Shared(End);
// SAFETY: the provider's objects may be used by several threads.
unsafe impl Sync for Shared {}

fn wait_set(rig: &Rig) -> *mut fid_wait {
    let mut attr = fi_wait_attr { wait_obj: WAIT_UNSPEC, flags: 0 };
    let mut set = null_mut();
    // SAFETY: live arguments.
    unsafe { check(((*(*rig.fabric).ops).wait_open)(rig.fabric, &mut attr, &mut set)).unwrap() };
    set
}

fn sleep(set: *mut fid_wait, milliseconds: i32) -> Result<(), i32> {
    // SAFETY: a live set.
    check(unsafe { ((*(*set).ops).wait)(set, milliseconds) })
}

/// An endpoint that counts, and that has a queue for what it is told to report.
fn counting(rig: &Rig, cq: Cq, counter: *mut fid_cntr, flag: u64) -> End {
    let (ep, av) = (rig.bare().unwrap(), rig.av());
    bind(ep.0, cq.0, SEND | RECV | SELECTIVE).unwrap();
    bind(ep.0, av.0, 0).unwrap();
    bind(ep.0, counter, flag).unwrap();
    control(ep.0, ENABLE, null_mut::<u8>()).unwrap();
    End { ep, cq, av }
}

fn value(counter: *mut fid_cntr) -> (u64, u64) {
    // SAFETY: a live counter.
    unsafe { (((*(*counter).ops).read)(counter), ((*(*counter).ops).readerr)(counter)) }
}

#[test]
fn a_wait_set_wakes_for_each_of_its_objects() {
    const ROUNDS: u64 = 200;
    let (rig, other) = (Rig::new(0), Rig::new(0));
    let set = wait_set(&rig);
    let cq = rig.cq_in(set);
    let counter = rig.counter_in(set);
    let reporting = rig.end_with(cq, rig.av(), 0);
    let counted = counting(&rig, rig.cq(0, 0), counter, RECV);
    let sender = other.end(0);
    let to = [&reporting, &counted].map(|end| sender.av.insert(end.ep.address()));
    assert_eq!(sleep(set, 20), Err(libc::ETIMEDOUT));
    let sender = Shared(sender);
    let (go, turns) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let sender = &sender;
        scope.spawn(move || {
            for turn in turns {
                assert_eq!(sender.0.ep.send(b"wake up!", to[turn as usize % 2], turn), 0);
                sender.0.cq.next();
            }
        });
        let mut buffer = [0u8; 8];
        for turn in 0..ROUNDS {
            match turn % 2 {
                0 => assert_eq!(reporting.ep.recv(&mut buffer, turn), 0),
                _ => assert_eq!(counted.ep.recv(&mut buffer, turn), 0),
            }
            go.send(turn).unwrap();
            let (mut seen, before) = (false, turn / 2);
            while !seen {
                sleep(set, 20_000).unwrap_or_else(|error| panic!("slept through turn {turn}: {error}"));
                seen = match turn % 2 {
                    0 => cq.read().is_ok_and(|entry| entry.op_context as u64 == turn),
                    _ => value(counter).0 > before,
                };
            }
        }
        drop(go);
    });
    sender.0.close();
    for end in [reporting, counted] {
        end.close();
    }
    close(counter).unwrap();
    close(set).unwrap();
    rig.close();
    other.close();
}

/// `wait_set` counts where `wait_obj` is FI_WAIT_SET only (fi_cq(3)).
#[test]
fn a_queue_with_a_descriptor_of_its_own_is_in_no_set() {
    let (rig, other) = (Rig::new(0), Rig::new(0));
    let set = wait_set(&rig);
    let receiver = rig.end_with(rig.cq_beside(set), rig.av(), 0);
    let sender = other.end(0);
    let to = sender.av.insert(receiver.ep.address());
    let mut buffer = [0u8; 8];
    assert_eq!(receiver.ep.recv(&mut buffer, 1), 0);
    assert_eq!(sender.ep.send(b"not here", to, 1), 0);
    sender.cq.next();
    assert_eq!(sleep(set, 100), Err(libc::ETIMEDOUT));
    assert_eq!(receiver.cq.next().op_context as u64, 1);
    receiver.close();
    sender.close();
    close(set).unwrap();
    rig.close();
    other.close();
}

#[test]
fn a_thread_sleeps_until_a_counter_has_got_there() {
    let (rig, other) = (Rig::new(0), Rig::new(0));
    let recvs = rig.counter();
    let receiver = counting(&rig, rig.cq(0, 0), recvs, RECV);
    let sender = other.end(0);
    let to = sender.av.insert(receiver.ep.address());
    let mut buffers = [[0u8; 8]; 30];
    buffers.iter_mut().for_each(|buffer| assert_eq!(receiver.ep.recv(buffer, 0), 0));
    let sender = Shared(sender);
    std::thread::scope(|scope| {
        let sender = &sender;
        scope.spawn(move || {
            for turn in 0..30 {
                if turn % 10 == 0 {
                    std::thread::sleep(Duration::from_millis(5));
                }
                assert_eq!(sender.0.ep.send(b"counted.", to, turn), 0);
                sender.0.cq.next();
            }
        });
        for threshold in [1, 10, 11, 20, 30] {
            // SAFETY: a live counter.
            assert_eq!(unsafe { ((*(*recvs).ops).wait)(recvs, threshold, 20_000) }, 0);
        }
    });
    assert_eq!(value(recvs), (30, 0));
    assert!(buffers.iter().all(|buffer| buffer == b"counted."));
    sender.0.close();
    receiver.close();
    close(recvs).unwrap();
    rig.close();
    other.close();
}

/// Nothing has been received yet, nor has anything failed: as with libfabric's tcp and shm.
#[test]
fn a_peek_is_not_counted_but_what_it_claims_is_once() {
    let rig = Rig::new(0);
    let recvs = rig.counter();
    let sender = rig.end(0);
    let receiver = counting(&rig, rig.cq(0, 0), recvs, RECV);
    let to = sender.av.insert(receiver.ep.address());
    let mut buffer = [0u8; 8];
    receiver.ep.trecvmsg(&mut buffer, 3, 0, 1, PEEK);
    assert_eq!(receiver.cq.next_error().err, libc::ENOMSG);
    for _ in 0..2 {
        assert_eq!(sender.ep.tsend(b"peeked..", to, 3, 0), 0);
        sender.cq.next();
    }
    for (flags, counts) in [(PEEK, 0), (PEEK | CLAIM, 0), (CLAIM | COMPLETION, 1), (PEEK | DISCARD, 1)] {
        assert_eq!(receiver.ep.trecvmsg(&mut buffer, 3, 0, 2, flags), 0);
        assert_eq!(receiver.cq.next().flags, RECV | TAGGED);
        assert_eq!(value(recvs), (counts, 0), "{flags:#x}");
    }
    sender.close();
    receiver.close();
    close(recvs).unwrap();
    rig.close();
}

extern "C" fn nothing(_signal: libc::c_int) {}

#[test]
fn a_signal_ends_a_wait() {
    let rig = Rig::new(0);
    let end = rig.end_with(rig.cq(8, WAIT_UNSPEC), rig.av(), 0);
    // SAFETY: a handler that does nothing, without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, null_mut()), 0);
    }
    // SAFETY: of this thread, which outlives the other.
    let waiter = unsafe { libc::pthread_self() } as usize;
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Until it has been noticed: the first may come before the sleep.
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                // SAFETY: as above.
                unsafe { libc::pthread_kill(waiter as libc::pthread_t, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let interrupted = end.cq.wait(60_000);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(interrupted.map(|entry| entry.op_context), Err(-(libc::EINTR as isize)));
    });
    end.close();
    rig.close();
}
