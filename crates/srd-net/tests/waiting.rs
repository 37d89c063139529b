//! Who moves packets while programs poll, sleep, or do neither; and who is told of what has happened.

mod support;

use srd_device::{DeviceError, SendOp};
use srd_net::Locked;
use srd_wire::{Gid, Qpn};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::traffic::exchange;
use support::{Host, PATIENCE, pattern};

#[test]
fn a_program_that_never_polls_is_served_all_the_same() {
    let mut a = Host::open("127.0.0.1", &[]);
    let mut b = Host::open("127.0.0.2", &[]);
    b.handle(a.gid());
    for i in 0..100 {
        b.recv(i, 0, 9000);
    }
    // From here on, b's program does nothing.
    for i in 0..100 {
        a.send(i, b.address(), 0, 8000);
    }
    for _ in 0..100 {
        a.success();
    }
    a.buffer.write(0, &pattern(9, 600_000));
    a.post(1, SendOp::Write { rkey: b.key, addr: b.buffer.addr(), imm: None }, b.address(), 0, 600_000);
    a.success();
    assert!(b.buffer.to_vec(0, 600_000) == pattern(9, 600_000));
    assert!(b.instance.stats().unwrap().progress.thread_wakes > 0);
}

#[test]
fn neither_program_polls_and_the_message_still_goes() {
    let mut a = Host::open("127.0.0.1", &[]);
    let mut b = Host::open("127.0.0.2", &[]);
    b.handle(a.gid());
    a.buffer.write(0, &pattern(11, 500_000));
    a.post(1, SendOp::Write { rkey: b.key, addr: b.buffer.addr(), imm: None }, b.address(), 0, 500_000);
    let start = Instant::now();
    // Reading counters moves no packets.
    while b.instance.stats().unwrap().device["rdma_write_recv_bytes"] < 500_000 {
        assert!(start.elapsed() < PATIENCE, "{}", a.report());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(b.buffer.to_vec(0, 500_000) == pattern(11, 500_000));
}

#[test]
fn an_idle_instance_sleeps() {
    let (mut a, mut b) = (Host::open("127.0.0.1", &[]), Host::open("127.0.0.2", &[]));
    exchange(&mut a, &mut b, 2);
    std::thread::sleep(Duration::from_millis(100));
    let wakes = |host: &Host| {
        let progress = host.instance.stats().unwrap().progress;
        progress.thread_wakes + progress.thread_parks
    };
    let before = (wakes(&a), wakes(&b));
    std::thread::sleep(Duration::from_millis(500));
    let during = (wakes(&a) - before.0, wakes(&b) - before.1);
    assert!(during.0 < 20 && during.1 < 20, "{during:?} wake-ups with nothing to do");
    // The same while the program sleeps in a wait.
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| b.instance.wait(Some(Duration::from_millis(600))).unwrap());
        std::thread::sleep(Duration::from_millis(100));
        let before = wakes(&b);
        std::thread::sleep(Duration::from_millis(400));
        let during = wakes(&b) - before;
        assert!(during < 20, "{during} wake-ups beside a thread that waits");
        assert!(!waiter.join().unwrap());
    });
}

#[test]
fn a_program_that_comes_out_of_a_sleep_and_computes_is_served_soon() {
    let (mut a, mut b) = (Host::open("127.0.0.1", &[]), Host::open("127.0.0.2", &[]));
    b.handle(a.gid());
    let to = b.buffer.addr();
    let write = |a: &mut Host| {
        a.post(1, SendOp::Write { rkey: b.key, addr: to, imm: None }, b.address(), 0, 8000);
        a.success();
    };
    let mut times = Vec::new();
    for _ in 0..21 {
        // A sleep in which the program moves packets itself, and the thread, which they wake, too, finds that out.
        std::thread::scope(|scope| {
            scope.spawn(|| b.instance.wait(Some(Duration::from_millis(10))).unwrap());
            std::thread::sleep(Duration::from_millis(2));
            write(&mut a);
        });
        let start = Instant::now();
        write(&mut a);
        times.push(start.elapsed());
    }
    // Nearly all, on a machine that is busy with something else.
    times.sort();
    assert!(times[18] < Duration::from_millis(50), "the thread came back after {times:?}");
}

#[test]
fn a_program_that_sleeps_again_and_again_does_not_wake_its_thread() {
    let (mut a, mut b) = (Host::open("127.0.0.1", &[]), Host::open("127.0.0.2", &[]));
    b.handle(a.gid());
    // What arrives meanwhile ends no wait, but each time the sleeper wakes for it.
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let to = b.buffer.addr();
                a.post(1, SendOp::Write { rkey: b.key, addr: to, imm: None }, b.address(), 0, 8000);
                a.success();
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        let wakes = || {
            let progress = b.instance.stats().unwrap().progress;
            progress.thread_wakes + progress.thread_parks + progress.thread_kicks
        };
        b.instance.wait(Some(Duration::from_millis(20))).unwrap();
        let (before, mut late) = (wakes(), 0);
        for _ in 0..100 {
            let start = Instant::now();
            b.instance.wait(Some(Duration::from_millis(5))).unwrap();
            late += u64::from(start.elapsed() > Duration::from_millis(6));
        }
        let during = wakes() - before;
        over.store(true, Ordering::SeqCst);
        // Who waits for a core instead, as on a busy machine, is relieved.
        assert!(
            during < 50 + 4 * late,
            "the thread woke {during} times in 100 sleeps of 5 ms, of which {late} ended late"
        );
    });
}

#[test]
fn every_progress_mode_works_with_every_other() {
    for mode_a in ["auto", "thread", "inline"] {
        for mode_b in ["auto", "thread", "inline"] {
            let mut a = Host::open("127.0.0.1", &[&format!("SRD_PROGRESS={mode_a}")]);
            let mut b = Host::open("127.0.0.2", &[&format!("SRD_PROGRESS={mode_b}")]);
            exchange(&mut a, &mut b, 2);
        }
    }
}

#[test]
fn waiting_ends_when_a_completion_comes() {
    for mode in ["auto", "thread", "inline"] {
        let mut a = Host::open("127.0.0.1", &[]);
        let b = Host::open("127.0.0.2", &[&format!("SRD_PROGRESS={mode}")]);
        let arm = || b.instance.with(|device, _| device.arm_cq(b.cq, false)).unwrap().unwrap();
        assert!(!b.instance.wait(Some(Duration::from_millis(5))).unwrap());
        for i in 0..20 {
            b.recv(i, 0, 100);
            arm();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| b.instance.wait(Some(PATIENCE)).unwrap());
                std::thread::sleep(Duration::from_millis(i % 3));
                a.send(1, b.address(), 0, 10);
                assert!(waiter.join().unwrap(), "mode {mode}: {}", b.report());
            });
            b.success();
            a.success_while(|| b.instance.progress().unwrap());
        }
        // Without being armed again, nothing is told.
        b.recv(1, 0, 100);
        a.send(1, b.address(), 0, 10);
        assert!(!b.instance.wait(Some(Duration::from_millis(50))).unwrap());
    }
}

#[test]
fn all_of_several_waiters_are_woken() {
    let mut a = Host::open("127.0.0.1", &[]);
    let b = Host::open("127.0.0.2", &[]);
    let told = Arc::new(AtomicU32::new(0));
    let count = told.clone();
    let _subscription = b.instance.on_notification(b.cq, move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    for round in 1..=10 {
        b.recv(1, 0, 100);
        b.instance.with(|device, _| device.arm_cq(b.cq, false)).unwrap().unwrap();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        b.instance.wait_until(Some(PATIENCE), || told.load(Ordering::SeqCst) >= round)
                    })
                })
                .collect();
            a.send(1, b.address(), 0, 10);
            a.success();
            for waiter in waiters {
                assert!(waiter.join().unwrap().unwrap());
            }
        });
    }
}

#[test]
fn a_sleeper_learns_of_what_another_thread_received() {
    let mut a = Host::open("127.0.0.1", &[]);
    let b = Host::open("127.0.0.2", &[]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                b.instance.progress().unwrap();
            }
        });
        for _ in 0..100 {
            b.recv(1, 0, 100);
            let sleeper = scope.spawn(|| {
                // Looks, and moves no packets.
                let look = || b.instance.with(|device, _| device.poll_cq(b.cq).is_some()).unwrap();
                b.instance.wait_until(Some(PATIENCE), look).unwrap()
            });
            a.send(1, b.address(), 0, 10);
            a.success();
            assert!(sleeper.join().unwrap(), "{}", b.report());
        }
        over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_sleeper_minds_the_timers_of_what_another_thread_sends() {
    let mut a = Host::open("127.0.0.1", &["SRD_FAULT=loss=0.4,seed=5", "SRD_PROGRESS=inline"]);
    let b = Host::open("127.0.0.2", &[]);
    let (instance, over) = (a.instance.clone(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // The only one who moves a's packets.
        scope.spawn(|| instance.wait_until(None, || over.load(Ordering::SeqCst)).unwrap());
        let start = Instant::now();
        for i in 0..50 {
            b.recv(i, 0, 100);
            a.send(i, b.address(), 0, 100);
            while a.instance.stats().unwrap().device["send_wrs"] <= i {
                assert!(start.elapsed() < PATIENCE, "{}", a.report());
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        over.store(true, Ordering::SeqCst);
        a.instance.wake();
    });
}

#[test]
fn a_handler_may_call_the_instance_and_is_gone_with_its_subscription() {
    let mut a = Host::open("127.0.0.1", &[]);
    let b = Host::open("127.0.0.2", &[]);
    let got = Arc::new(AtomicU32::new(0));
    let (instance, count) = (Arc::downgrade(&b.instance), got.clone());
    let subscription = b.instance.on_notification(b.cq, move |cq| {
        let Some(instance) = instance.upgrade() else { return };
        while instance.poll_one(cq).unwrap().is_some() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    for round in 1..=2 {
        b.recv(1, 0, 100);
        b.instance.with(|device, _| device.arm_cq(b.cq, false)).unwrap().unwrap();
        a.send(1, b.address(), 0, 10);
        a.success();
        let start = Instant::now();
        while got.load(Ordering::SeqCst) < round {
            assert!(start.elapsed() < PATIENCE, "{}", b.report());
            std::thread::yield_now();
        }
    }
    drop(subscription);
    b.recv(1, 0, 100);
    b.instance.with(|device, _| device.arm_cq(b.cq, false)).unwrap().unwrap();
    a.send(1, b.address(), 0, 10);
    b.success();
    assert_eq!(got.load(Ordering::SeqCst), 2);
}

#[test]
fn an_unresponsive_peer_is_an_event_for_every_subscriber() {
    let mut a = Host::open("127.0.0.1", &["SRD_PEER_TIMEOUT_S=0.2"]);
    let seen = Arc::new(AtomicU32::new(0));
    let subscriptions: Vec<_> = (0..2)
        .map(|_| {
            let seen = seen.clone();
            a.instance.on_async_event(move |_| {
                seen.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    a.send(1, (Gid::from(std::net::IpAddr::from([127, 0, 0, 9])), Qpn(2)), 0, 10);
    a.completion();
    let start = Instant::now();
    while seen.load(Ordering::SeqCst) < 2 {
        assert!(start.elapsed() < PATIENCE);
        a.poll();
    }
    drop(subscriptions);
}

#[test]
fn a_layer_that_drives_is_told_only_of_what_comes_while_it_does_not() {
    let mut a = Host::open("127.0.0.1", &[]);
    // Without a thread, only calls move packets.
    let mut b = Host::open("127.0.0.2", &["SRD_PROGRESS=inline"]);
    b.handle(a.gid());
    let told = Arc::new(AtomicU32::new(0));
    let counter = told.clone();
    let subscription = b.instance.on_notification(b.cq, move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let looks = Cell::new(0);
    let drive = |b: &Host| {
        let look = |device: &mut Locked<'_>, _| {
            looks.set(looks.get() + 1);
            device.poll_cq(b.cq).is_some()
        };
        b.instance.progress_with(b.cq, true, |_| false, look).unwrap()
    };
    for i in 0..50 {
        b.recv(i, 0, 100);
        a.send(i, b.address(), 0, 10);
        let start = Instant::now();
        while !drive(&b) {
            assert!(start.elapsed() < PATIENCE, "{}", a.report());
        }
        while a.poll().is_none() {
            assert!(!drive(&b) && start.elapsed() < PATIENCE, "{}", a.report());
        }
    }
    assert_eq!(told.load(Ordering::SeqCst), 0);
    let start = Instant::now();
    loop {
        let before = looks.get();
        assert!(!drive(&b) && start.elapsed() < PATIENCE);
        if looks.get() == before {
            break; // nothing had moved
        }
    }
    b.recv(50, 0, 100);
    a.send(50, b.address(), 0, 10);
    let start = Instant::now();
    while told.load(Ordering::SeqCst) == 0 {
        assert!(start.elapsed() < PATIENCE, "{}", a.report());
        a.poll();
        b.instance.progress().unwrap();
    }
    let attended = b.instance.progress_when_notified(b.cq, |device, _| device.poll_cq(b.cq).is_some());
    assert_eq!(attended, Ok(true));
    drop(subscription);
}

#[test]
fn an_alarm_wakes_a_program_that_does_not_poll() {
    let a = Host::open("127.0.0.1", &[]);
    let told = Arc::new(AtomicBool::new(false));
    let flag = told.clone();
    let subscription = a.instance.on_notification(a.cq, move |_| flag.store(true, Ordering::SeqCst));
    let at = |now: srd_wire::Time| now + srd_wire::Nanos::from_millis(5);
    a.instance.with(|device, now| device.set_alarm(a.cq, at(now))).unwrap().unwrap();
    let start = Instant::now();
    while !told.load(Ordering::SeqCst) {
        assert!(start.elapsed() < PATIENCE, "{}", a.report());
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(subscription);
}

#[test]
fn a_chosen_number_is_one_queue_pairs_of_the_whole_host() {
    let (a, b) = (Host::open("127.0.0.1", &[]), Host::open("127.0.0.1", &[]));
    let number = Qpn(511 * 128 + 7);
    let create = |host: &Host| {
        let init = host.instance.with(|device, _| device.query_qp(host.qpn)).unwrap().unwrap().init;
        host.instance.create_numbered_qp(init, number).unwrap()
    };
    assert_eq!(create(&a), Ok(number));
    assert!(matches!(create(&a), Err(DeviceError::Busy(_))));
    assert!(matches!(create(&b), Err(DeviceError::Busy(_))), "its port is the other's");
    a.instance.destroy_qp(number).unwrap().unwrap();
    assert_eq!(create(&a), Ok(number));
}
