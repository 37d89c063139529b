//! A panic inside the device is final: nothing of it goes on, and everybody hears of it.

mod support;

use srd_device::AsyncEvent;
use srd_net::{Instance, Unavailable};
use srd_wire::Status;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use support::{Host, PATIENCE, options};

/// How often a host is told that its device is gone, and how often that something has completed.
struct Told {
    fatal: Arc<AtomicU32>,
    completions: Arc<AtomicU32>,
    _subscriptions: [srd_net::Subscription; 2],
}

impl Told {
    fn by(host: &Host) -> Told {
        let (fatal, completions) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (events, cqs) = (fatal.clone(), completions.clone());
        let subscriptions = [
            host.instance.on_async_event(move |event| {
                events.fetch_add((event == AsyncEvent::DeviceFatal) as u32, Ordering::SeqCst);
            }),
            host.instance.on_notification(host.cq, move |_| {
                cqs.fetch_add(1, Ordering::SeqCst);
            }),
        ];
        Told { fatal, completions, _subscriptions: subscriptions }
    }

    fn check(&self) {
        let start = Instant::now();
        while self.fatal.load(Ordering::SeqCst) == 0 || self.completions.load(Ordering::SeqCst) == 0 {
            assert!(start.elapsed() < PATIENCE, "nobody is told");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.fatal.load(Ordering::SeqCst), 1, "once");
    }
}

/// The next completions have these numbers and are flushed; then there is nothing more, for good.
fn ends_flushed(host: &Host, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        let completion = host.instance.poll_one(host.cq).expect("a completion").expect("one is left");
        assert_eq!((completion.wr_id, completion.status), (number, Status::Flushed));
    }
    is_gone(host);
}

fn is_gone(host: &Host) {
    let failed = Err(Unavailable::Failed);
    let instance = &host.instance;
    assert!(instance.has_failed());
    assert_eq!(instance.poll_one(host.cq).map(|_| ()), failed);
    assert_eq!(instance.poll_cq(host.cq, &mut []).map(|_| ()), failed);
    assert_eq!(instance.progress(), failed);
    assert_eq!(instance.with(|_, _| ()), failed);
    assert_eq!(instance.wait(None).map(|_| ()), failed);
    assert_eq!(instance.progress_with(host.cq, false, |_| true, |_, _| true).map(|_| ()), failed);
    assert_eq!(instance.destroy_qp(host.qpn).map(|_| ()), failed);
    assert_eq!(instance.stats().map(|_| ()), failed);
}

fn fail_in_a_call(host: &Host) {
    let call = catch_unwind(AssertUnwindSafe(|| host.instance.with(|_, _| panic!("on purpose"))));
    assert!(call.is_err(), "the panic goes on to whoever called");
}

/// One message has gone each way, so that both know each other and nothing is under way.
fn acquainted(variables: &[&str]) -> (Host, Host) {
    let mut a = Host::open("127.0.0.1", variables);
    let mut b = Host::open("127.0.0.2", &["SRD_PEER_TIMEOUT_S=1"]);
    a.handle(b.gid());
    b.handle(a.gid());
    a.recv(100, 0, 64);
    b.recv(100, 0, 64);
    a.send(101, b.address(), 64, 64);
    b.send(101, a.address(), 64, 64);
    for host in [&a, &b] {
        host.success();
        host.success();
    }
    (a, b)
}

#[test]
fn a_panic_in_a_call_ends_the_device_and_its_peer_gets_nothing_from_it_any_more() {
    let (mut a, mut b) = acquainted(&[]);
    let told = Told::by(&a);
    (0..3).for_each(|number| a.recv(number, 0, 64));
    a.instance.with(|device, _| device.arm_cq(a.cq, false)).unwrap().unwrap();
    // Nobody is there to take these, so that they are under way.
    (3..6).for_each(|number| a.send(number, b.address(), 0, 64));
    fail_in_a_call(&a);
    told.check();
    ends_flushed(&a, [3, 4, 5, 0, 1, 2]);

    b.send(7, a.address(), 0, 64);
    let completion = b.completion();
    assert_eq!((completion.wr_id, completion.status), (7, Status::Unresponsive));
}

#[test]
fn what_had_completed_before_is_still_told() {
    let (mut a, b) = acquainted(&["SRD_PROGRESS=inline"]);
    b.recv(1, 0, 64);
    a.send(1, b.address(), 0, 64);
    let start = Instant::now();
    // Packets move, and the completion is left where it is.
    while a.instance.with(|device, _| device.sends_in_flight(a.qpn)).unwrap() != Ok(false) {
        assert!(start.elapsed() < PATIENCE);
        a.instance.progress().unwrap();
        b.instance.progress().unwrap();
    }
    a.recv(2, 0, 64);
    fail_in_a_call(&a);
    assert_eq!(a.success().wr_id, 1);
    ends_flushed(&a, [2]);
}

#[test]
fn whoever_waits_wakes_in_every_mode() {
    for mode in ["auto", "thread", "inline"] {
        let (a, _b) = acquainted(&[&format!("SRD_PROGRESS={mode}")]);
        let (asleep, awake) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (asleep, a) = (asleep.clone(), &a);
                scope.spawn(move || {
                    let waited = a.instance.wait_until(None, || {
                        let _ = asleep.send(());
                        false
                    });
                    assert_eq!(waited, Err(Unavailable::Failed));
                });
            }
            (0..3).for_each(|_| awake.recv().unwrap());
            fail_in_a_call(&a);
        });
        is_gone(&a);
    }
}

#[test]
fn a_panic_in_the_progress_thread_ends_the_device() {
    let b = Host::open("127.0.0.2", &[]);
    let mut a = Host::open("127.0.0.1", &["SRD_PROGRESS=thread", "SRD_FAULT=panic_thread=1"]);
    let told = Told::by(&a);
    a.recv(1, 0, 64);
    a.send(2, b.address(), 0, 64);
    assert_eq!(a.instance.wait_until(None, || false), Err(Unavailable::Failed));
    told.check();
    ends_flushed(&a, [2, 1]);
}

#[test]
fn the_progress_thread_is_not_started_again_wherever_it_ended() {
    let (a, mut b) = acquainted(&["SRD_PROGRESS=thread"]);
    // Handlers run without the lock, in the thread.
    let _handler = a.instance.on_notification(a.cq, |_| panic!("on purpose"));
    a.recv(1, 0, 64);
    a.instance.with(|device, _| device.arm_cq(a.cq, false)).unwrap().unwrap();
    // The handler panics again when it is told of the failure; who sleeps hears of it all the same.
    let (asleep, awake) = mpsc::channel();
    std::thread::scope(|scope| {
        let a = &a;
        scope.spawn(move || {
            let waited = a.instance.wait_until(None, || {
                let _ = asleep.send(());
                false
            });
            assert_eq!(waited, Err(Unavailable::Failed));
        });
        awake.recv().unwrap();
        std::thread::sleep(Duration::from_millis(20)); // mostly it sleeps by then
        b.send(1, a.address(), 0, 64);
    });
    assert_eq!(a.success().wr_id, 1, "it had arrived");
    is_gone(&a);
}

#[test]
fn who_opens_the_device_again_is_told_that_it_has_failed() {
    let options = options("127.0.0.3", &[]);
    let instance = Instance::open(&options).unwrap();
    Instance::fail_all();
    assert_eq!(instance.progress(), Err(Unavailable::Failed));
    let refused = Instance::open(&options).map(|_| ()).expect_err("it has failed").to_string();
    assert!(refused.contains("has failed") && refused.contains("start the process again"), "{refused}");
    drop(instance);
}
