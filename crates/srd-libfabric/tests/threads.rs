//! Many threads, more than any machine of ours has cores: each with a domain of its own, all of which share the process's
//! device, or all at one endpoint. Everything comes, whole, and everybody gets to his end. How fast that goes is for
//! benchmarks.

#[path = "rig/mod.rs"]
mod rig;

use rig::*;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;

const THREADS: usize = 16;

/// Byte `at` of message `number` from `thread`.
fn byte(thread: usize, number: usize, at: usize) -> u8 {
    (thread * 37 + number * 11 + at) as u8
}

fn fill(buf: &mut [u8], thread: usize, number: usize) {
    buf.iter_mut().enumerate().for_each(|(at, to)| *to = byte(thread, number, at));
}

/// The next entry, however long the others keep the cores.
fn next(cq: Cq) -> u64 {
    loop {
        match cq.read() {
            Ok(entry) => return entry.op_context as u64,
            Err(code) => assert_eq!(code, EAGAIN),
        }
    }
}

/// Posts, once there is room.
fn post(cq: Cq, mut post: impl FnMut() -> isize) {
    loop {
        match post() {
            0 => return,
            // Only moves packets: what this thread has posted before has completed.
            EAGAIN => assert_eq!(cq.read().map(|entry| entry.op_context), Err(EAGAIN)),
            code => panic!("{code}"),
        }
    }
}

/// One operation after the other, each waited for, with a domain and an endpoint for each thread.
fn each_with_its_own(len: usize, messages: usize) {
    let together = Barrier::new(2 * THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (tell, address) = mpsc::channel();
            let together = &together;
            scope.spawn(move || {
                let rig = Rig::new(0);
                let end = rig.end(0);
                tell.send(end.ep.address()).unwrap();
                together.wait();
                let mut buf = vec![0; len];
                for message in 0..messages {
                    post(end.cq, || end.ep.recv(&mut buf, 1));
                    assert_eq!(next(end.cq), 1);
                    let right = buf.iter().enumerate().all(|(at, &got)| got == byte(number, message, at));
                    assert!(right, "thread {number}, message {message}");
                }
                together.wait();
                end.close();
                rig.close();
            });
            scope.spawn(move || {
                let rig = Rig::new(0);
                let end = rig.end(0);
                let to = end.av.insert(address.recv().unwrap());
                together.wait();
                let mut buf = vec![0; len];
                for message in 0..messages {
                    fill(&mut buf, number, message);
                    post(end.cq, || end.ep.send(&buf, to, 2));
                    assert_eq!(next(end.cq), 2);
                }
                together.wait();
                end.close();
                rig.close();
            });
        }
    });
}

#[test]
fn threads_with_endpoints_of_their_own_get_every_short_message() {
    each_with_its_own(64, 300);
}

#[test]
fn threads_with_endpoints_of_their_own_get_every_long_message() {
    each_with_its_own(100_000, 20);
}

/// The provider's objects may be used by several threads.
struct Shared(End);

// SAFETY: as above.
unsafe impl Sync for Shared {}

/// What each thread has got so far, whoever saw it complete.
#[derive(Default)]
struct Done([AtomicU64; THREADS]);

impl Done {
    /// Looks for a completion, and counts it for whoever waits for it.
    fn look(&self, cq: Cq) {
        match cq.read() {
            Ok(entry) => {
                self.0[entry.op_context as usize].fetch_add(1, Ordering::Release);
            }
            Err(code) => assert_eq!(code, EAGAIN),
        }
    }

    /// Waits for the `count`th completion of `thread`.
    fn wait(&self, cq: Cq, thread: usize, count: u64) {
        while self.0[thread].load(Ordering::Acquire) < count {
            self.look(cq);
        }
    }
}

#[test]
fn threads_that_share_an_endpoint_each_get_their_own_messages() {
    const MESSAGES: u64 = 200;
    let rig = Rig::new(0);
    let (a, b, to_b, to_a) = rig.pair(0);
    let ends = [Shared(a), Shared(b)];
    let peers = [to_b, to_a];
    let sent: [Done; 2] = Default::default();
    thread::scope(|scope| {
        for side in 0..2 {
            for number in 0..THREADS {
                let (end, peer, done) = (&ends[side], peers[side], &sent[side]);
                scope.spawn(move || {
                    let Shared(End { ep, cq, .. }) = end;
                    let (tag, mut buf) = (number as u64, vec![0; 1 + 1000 * number]);
                    // Ping and pong, so that neither side runs ahead.
                    for message in 0..MESSAGES {
                        if (message % 2 == 0) == (side == 0) {
                            fill(&mut buf, number, message as usize);
                            while ep.tsend(&buf, peer, tag, tag) == EAGAIN {
                                done.look(*cq);
                            }
                        } else {
                            buf.fill(0);
                            assert_eq!(ep.trecv(&mut buf, UNSPEC, tag, 0, tag), 0);
                        }
                        done.wait(*cq, number, message + 1);
                        let right = |(at, &got): (usize, &u8)| got == byte(number, message as usize, at);
                        assert!(buf.iter().enumerate().all(right), "thread {number}, message {message}");
                    }
                });
            }
        }
    });
    for Shared(end) in ends {
        end.close();
    }
    rig.close();
}

#[test]
fn an_endpoint_closes_while_another_thread_changes_its_vector() {
    let rig = Rig::new(SOURCE);
    let av = rig.av();
    let (far, over) = (sockaddr([127, 0, 0, 1], 9500), AtomicU64::new(0));
    struct Vector(Av);
    // SAFETY: as of `Shared`.
    unsafe impl Sync for Vector {}
    let vector = &Vector(av);
    thread::scope(|scope| {
        scope.spawn(|| {
            let Vector(av) = vector;
            while over.load(Ordering::Relaxed) == 0 {
                let there = av.insert(far);
                av.remove(there).unwrap();
            }
        });
        let closed = (0..100).try_for_each(|_| {
            let (ep, cq) = (rig.bare()?, rig.cq(0, WAIT_UNSPEC));
            bind(ep.0, cq.0, SEND | RECV)?;
            bind(ep.0, av.0, 0)?;
            control(ep.0, ENABLE, null_mut::<u8>())?;
            close(ep.0)?;
            close(cq.0)
        });
        over.store(1, Ordering::Relaxed);
        assert_eq!(closed, Ok(()));
    });
    close(av.0).unwrap();
    rig.close();
}
