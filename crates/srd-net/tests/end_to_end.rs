//! Two instances in this process, each a host of its own on loopback, over real sockets.

mod namespace;
mod support;

use namespace::Namespaces;
use srd_device::{Access, CompletionOp, SendOp};
use srd_net::{Instance, Options};
use srd_wire::{Gid, InstanceAddr, Qpn, Status};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::{Host, PATIENCE, new_qp, options, pattern};

const LENGTHS: [usize; 9] = [0, 1, 31, 100, 1000, 1400, 1473, 4096, 8832];
const PLACE: usize = 16_384;

/// Sends messages of many lengths from one to the other and checks what arrives.
fn exchange(a: &mut Host, b: &mut Host, rounds: usize) {
    for round in 0..rounds {
        for (i, &len) in LENGTHS.iter().enumerate() {
            a.buffer.write(i * PLACE, &pattern((round * 100 + i) as u64, len));
            b.recv(i as u64, 200_000 + i * PLACE, PLACE);
        }
        for (i, &len) in LENGTHS.iter().enumerate() {
            a.send(i as u64, b.address(), i * PLACE, len);
        }
        let (mut sent, mut received, start) = (0, 0, Instant::now());
        while sent < LENGTHS.len() || received < LENGTHS.len() {
            assert!(start.elapsed() < PATIENCE, "{} {}", a.report(), b.report());
            if let Some(done) = a.poll() {
                assert_eq!((done.status, done.op), (Status::Ok, CompletionOp::Send), "{}", a.report());
                sent += 1;
            }
            if let Some(got) = b.poll() {
                assert_eq!((got.status, got.op), (Status::Ok, CompletionOp::Recv), "{}", b.report());
                assert_eq!((got.src_gid, got.src_qpn), a.address());
                let place = LENGTHS.iter().position(|&len| len == got.byte_len as usize).unwrap();
                let bytes = b.buffer.to_vec(200_000 + got.wr_id as usize * PLACE, got.byte_len as usize);
                assert!(bytes == pattern((round * 100 + place) as u64, bytes.len()), "content of {got:?}");
                received += 1;
            }
        }
    }
}

/// RDMA write and read of `len` bytes, each checked.
fn write_and_read(a: &mut Host, b: &mut Host, len: usize, seed: u64) {
    b.handle(a.gid()); // who may access memory must be known
    let bytes = pattern(seed, len);
    a.buffer.write(0, &bytes);
    let remote = b.buffer.addr() + 300_000;
    a.post(1, SendOp::Write { rkey: b.key, addr: remote, imm: None }, b.address(), 0, len);
    let start = Instant::now();
    let done = loop {
        b.poll();
        if let Some(done) = a.poll() {
            break done;
        }
        assert!(start.elapsed() < PATIENCE, "{} {}", a.report(), b.report());
    };
    assert_eq!((done.status, done.op), (Status::Ok, CompletionOp::Write));
    assert!(b.buffer.to_vec(300_000, len) == bytes, "what was written");
    a.post(2, SendOp::Read { rkey: b.key, addr: remote }, b.address(), 400_000, len);
    let done = loop {
        b.poll();
        if let Some(done) = a.poll() {
            break done;
        }
        assert!(start.elapsed() < PATIENCE, "{} {}", a.report(), b.report());
    };
    assert_eq!((done.status, done.op), (Status::Ok, CompletionOp::Read));
    assert!(a.buffer.to_vec(400_000, len) == bytes, "what was read");
}

/// A file that goes when the test ends.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, content: &[u8]) -> TempFile {
        let path = std::env::temp_dir().join(format!("srd-net-test-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        TempFile(path)
    }

    fn variable(&self, name: &str) -> String {
        format!("{name}={}", self.0.display())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn messages_of_every_length_arrive_whole() {
    let (mut a, mut b) = (Host::open("127.0.0.1", &[]), Host::open("127.0.0.2", &[]));
    exchange(&mut a, &mut b, 20);
    exchange(&mut b, &mut a, 20);
    for len in [0, 1, 8832, 8833, 65_536, 500_000] {
        write_and_read(&mut a, &mut b, len, len as u64);
    }
}

#[test]
fn messages_are_cut_to_the_mtu() {
    let small = ["SRD_MTU=1500"];
    let (mut a, mut b) = (Host::open("127.0.0.1", &small), Host::open("127.0.0.2", &small));
    exchange(&mut a, &mut b, 20);
    write_and_read(&mut a, &mut b, 500_000, 1);
    let stats = a.instance.stats().unwrap();
    assert!(stats.transmit.packets > stats.transmit.sends, "segments share a send: {}", a.report());
    assert!(stats.transmit.bytes / stats.transmit.packets <= 1472);
}

#[test]
fn ipv6_works_as_ipv4_does() {
    let (mut a, mut b) = (Host::open("::1", &[]), Host::open("::1", &[]));
    assert_ne!(a.instance.address().port, b.instance.address().port);
    exchange(&mut a, &mut b, 5);
    write_and_read(&mut a, &mut b, 100_000, 2);
}

#[test]
fn two_instances_of_one_host_talk_and_so_does_one_to_itself() {
    let (mut a, mut b) = (Host::open("127.0.0.1", &[]), Host::open("127.0.0.1", &[]));
    assert_eq!(a.gid(), b.gid());
    assert_ne!(a.qpn.0 / 128, b.qpn.0 / 128);
    exchange(&mut a, &mut b, 5);
    a.recv(5, 200_000, 100);
    a.send(6, a.address(), 0, 100);
    let done: BTreeSet<u64> = [a.success().wr_id, a.success().wr_id].into();
    assert_eq!(done, BTreeSet::from([5, 6]));
}

#[test]
fn everything_arrives_in_spite_of_faults() {
    let faults = "loss=0.05,dup=0.05,reorder=0.1,corrupt=0.02,delay_us=20";
    let (fault_a, fault_b) = (format!("SRD_FAULT={faults},seed=1"), format!("SRD_FAULT={faults},seed=2"));
    let mut a = Host::open("127.0.0.1", &[&fault_a, "SRD_MTU=1500"]);
    let mut b = Host::open("127.0.0.2", &[&fault_b, "SRD_MTU=1500"]);
    exchange(&mut a, &mut b, 10);
    exchange(&mut b, &mut a, 10);
    write_and_read(&mut a, &mut b, 300_000, 3);
    let faults = a.instance.stats().unwrap().transmit.faults;
    assert!(
        faults.lost > 0 && faults.duplicated > 0 && faults.reordered > 0 && faults.corrupted > 0,
        "{faults:?}"
    );
}

#[test]
fn a_read_of_memory_that_has_gone_fails_and_kills_nobody() {
    for (variables, len) in [
        (&[][..], 100),
        (&[][..], 20_000),
        (&["SRD_FAULT=loss=0.1,seed=3"][..], 20_000),
        (&["SRD_FAULT=dup=0.1"][..], 100),
    ] {
        let (mut a, mut b) = (Host::open("127.0.0.1", variables), Host::open("127.0.0.2", variables));
        b.handle(a.gid());
        let access = Access { remote_read: true, ..Access::default() };
        // Nothing is mapped below vm.mmap_min_addr.
        let gone = b.instance.with(|device, _| device.reg_mr(b.pd, 4096, 1 << 15, 4096, access));
        let rkey = gone.expect("not forked").expect("a region");
        a.post(1, SendOp::Read { rkey, addr: 4096 }, b.address(), 0, len);
        let done = a.completion();
        assert_eq!((done.wr_id, done.status), (1, Status::RemoteBadAddress), "{len} B, {variables:?}");
        assert!(b.instance.stats().is_ok());
    }
}

#[test]
fn a_black_holed_source_port_is_avoided() {
    let mut a = Host::open("127.0.0.1", &["SRD_FAULT=blackhole=3", "SRD_PATHS=8"]);
    let mut b = Host::open("127.0.0.2", &[]);
    exchange(&mut a, &mut b, 20);
}

#[test]
fn sealed_instances_with_one_key_talk() {
    let key = TempFile::new("key-hex", b"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
    let key = key.variable("SRD_KEY_FILE");
    for more in
        ["SRD_MTU=9000", "SRD_MTU=1500", "SRD_FAULT=loss=0.05,dup=0.05,reorder=0.1,corrupt=0.05,seed=4"]
    {
        let (mut a, mut b) = (Host::open("127.0.0.1", &[&key, more]), Host::open("127.0.0.2", &[&key, more]));
        exchange(&mut a, &mut b, 5);
        exchange(&mut b, &mut a, 5);
        write_and_read(&mut a, &mut b, 200_000, 4);
    }
}

#[test]
fn without_the_key_nothing_is_accepted_and_the_send_fails() {
    let key = TempFile::new("key-raw", &pattern(1, 32));
    let other = TempFile::new("key-other", &pattern(2, 32));
    let (key, other) = (key.variable("SRD_KEY_FILE"), other.variable("SRD_KEY_FILE"));
    let fast = "SRD_PEER_TIMEOUT_S=0.5";
    let cases: [(&[&str], &str); 3] =
        [(&[&other, fast], "wrong_key"), (&[fast], "not_sealed"), (&[&key, fast], "")];
    for (variables, cause) in cases {
        let b = Host::open("127.0.0.2", &[&key]);
        let mut a = Host::open("127.0.0.1", variables);
        b.recv(1, 0, 100);
        a.send(2, b.address(), 0, 100);
        let done = a.completion();
        let refused = b.instance.stats().unwrap().receive.not_opened;
        if cause.is_empty() {
            assert_eq!((done.status, refused.len()), (Status::Ok, 0));
        } else {
            assert_eq!(done.status, Status::Unreachable);
            assert!(refused.contains_key(cause), "{refused:?}");
            assert!(b.poll().is_none());
        }
    }
}

#[test]
fn a_key_file_that_is_none_is_refused() {
    let short = TempFile::new("key-short", b"0123");
    for (variable, part) in [
        (short.variable("SRD_KEY_FILE"), "hexadecimal digits"),
        ("SRD_KEY_FILE=/nonexistent/key".into(), "cannot read"),
    ] {
        let error = Instance::open_separate(&options("127.0.0.1", &[&variable])).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_peer_that_was_never_there_is_unreachable() {
    let mut a = Host::open("127.0.0.1", &["SRD_PEER_TIMEOUT_S=0.3"]);
    a.send(1, (Gid::from(std::net::IpAddr::from([127, 0, 0, 9])), Qpn(2)), 0, 10);
    assert_eq!(a.completion().status, Status::Unreachable);
}

#[test]
fn a_peer_that_has_died_is_unresponsive() {
    let mut a = Host::open("127.0.0.1", &["SRD_PEER_TIMEOUT_S=0.5"]);
    let mut b = Host::open("127.0.0.2", &[]);
    let b_address = b.address();
    exchange(&mut a, &mut b, 1);
    drop(b);
    a.send(1, b_address, 0, 10);
    assert_eq!(a.completion().status, Status::Unresponsive);
    let stats = a.instance.stats().unwrap();
    assert!(stats.transmit.network_errors.contains_key(&libc::ECONNREFUSED), "{}", a.report());
}

#[test]
fn a_peer_that_has_restarted_aborts_what_was_for_its_predecessor() {
    let base = "SRD_PORT_BASE=18000"; // apart from other tests, so that the same port is taken again
    let mut a = Host::open("127.0.0.1", &[base]);
    let mut b = Host::open("127.0.0.7", &[base]);
    exchange(&mut a, &mut b, 1);
    let address = b.instance.address();
    drop(b);
    let mut b = Host::open("127.0.0.7", &[base]);
    assert_eq!(b.instance.address(), address);
    b.recv(1, 0, 100);
    a.send(1, b.address(), 0, 10);
    let start = Instant::now();
    let done = loop {
        b.poll();
        if let Some(done) = a.poll() {
            break done;
        }
        assert!(start.elapsed() < PATIENCE, "{}", a.report());
    };
    assert_eq!(done.status, Status::RemoteAbort);
    // With the new process all is well.
    a.send(2, b.address(), 0, 10);
    let (mut sent, mut received, start) = (false, false, Instant::now());
    while !(sent && received) {
        assert!(start.elapsed() < PATIENCE, "{}", b.report());
        sent |= a.poll().is_some_and(|done| done.status == Status::Ok);
        received |= b.poll().is_some_and(|got| got.status == Status::Ok);
    }
    exchange(&mut b, &mut a, 1);
}

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
fn many_queue_pairs_take_another_port() {
    let mut a = Host::open("127.0.0.1", &[]);
    let b = Host::open("127.0.0.2", &[]);
    let qps: Vec<Qpn> = (0..130).map(|_| new_qp(&b.instance, b.pd, b.cq)).collect();
    assert_eq!(b.instance.stats().unwrap().ports.len(), 2);
    for &qpn in &qps {
        let sges = [b.sge(0, 100)];
        let wr = srd_device::RecvWr { wr_id: qpn.0 as u64, sges: &sges };
        b.instance.with(|device, _| device.post_recv(qpn, &wr)).unwrap().unwrap();
        a.send(1, (b.gid(), qpn), 0, 10);
    }
    let mut reached = BTreeSet::new();
    while reached.len() < qps.len() {
        reached.insert(b.success().wr_id as u16);
    }
    assert_eq!(reached, qps.iter().map(|qpn| qpn.0).collect());
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
fn threads_may_share_an_instance() {
    let a = Host::open("127.0.0.1", &[]);
    let b = Host::open("127.0.0.2", &[]);
    const EACH: u64 = 500;
    let pairs: Vec<_> = (0..3)
        .map(|_| {
            let side = |host: &Host| {
                let cq = host.instance.with(|device, _| device.create_cq(2048)).unwrap().unwrap();
                (cq, new_qp(&host.instance, host.pd, cq))
            };
            (side(&a), side(&b))
        })
        .collect();
    let ah = a.instance.with(|device, _| device.create_ah(a.pd, b.gid())).unwrap().unwrap();
    std::thread::scope(|scope| {
        for ((a_cq, a_qp), (b_cq, b_qp)) in pairs {
            let (a, b) = (&a, &b);
            let done = |host: &Host, cq, n: u64| {
                let start = Instant::now();
                let mut have = 0;
                while have < n {
                    assert!(start.elapsed() < PATIENCE, "{}", host.report());
                    if let Some(done) = host.instance.poll_one(cq).unwrap() {
                        assert_eq!(done.status, Status::Ok);
                        have += 1;
                    }
                }
            };
            scope.spawn(move || {
                for wr_id in 0..EACH {
                    let sges = [b.sge(0, 1000)];
                    let wr = srd_device::RecvWr { wr_id, sges: &sges };
                    b.instance.with(|device, _| device.post_recv(b_qp, &wr)).unwrap().unwrap();
                }
                done(b, b_cq, EACH);
            });
            scope.spawn(move || {
                for wr_id in 0..EACH {
                    let sges = [a.sge(0, 1000)];
                    let wr = srd_device::SendWr {
                        wr_id,
                        op: SendOp::Send { imm: None },
                        ah,
                        dst_qpn: b_qp,
                        qkey: support::QKEY,
                        data: srd_device::SendData::Sges(&sges),
                    };
                    a.instance.with(|device, now| device.post_send(now, a_qp, &wr)).unwrap().unwrap();
                }
                done(a, a_cq, EACH);
            });
        }
    });
}

#[test]
fn one_address_is_one_shared_instance() {
    let shared = options("127.0.0.5", &[]);
    let first = Instance::open(&shared).unwrap();
    let second = Instance::open(&shared).unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    let address = first.address();
    drop((first, second));
    let third = Instance::open(&shared).unwrap();
    assert_eq!(third.address(), address, "the port is free again");
}

#[test]
fn the_lowest_free_port_is_taken_and_the_last_one_missed_is_an_error() {
    let at = |base: u16| options("127.0.0.6", &[&format!("SRD_PORT_BASE={base}")]);
    let _held = std::net::UdpSocket::bind("127.0.0.6:19000").unwrap();
    let instance = Instance::open_separate(&at(19_000)).unwrap();
    assert_eq!(instance.address().port, 19_001);
    let held: Vec<_> =
        (0..512).filter_map(|i| std::net::UdpSocket::bind(("127.0.0.6", 19_000 + i)).ok()).collect();
    assert_eq!(held.len(), 510);
    let error = Instance::open_separate(&at(19_000)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("19000") && error.contains("19511") && error.contains("SRD_PORT_BASE"), "{error}");
}

#[test]
fn an_address_that_is_not_ours_is_an_error_that_names_those_that_are() {
    let open = |addr: &str| Instance::open(&options(addr, &[])).map(|_| ()).unwrap_err().to_string();
    let error = open("192.0.2.77");
    assert!(
        error.contains("192.0.2.77") && error.contains("127.0.0.1") && error.contains("SRD_ADDR"),
        "{error}"
    );
    let error = open("nosuch0");
    assert!(error.contains("nosuch0") && error.contains("lo"), "{error}");
}

#[test]
fn counters_are_written_while_running_and_at_the_end() {
    let file = TempFile::new("stats-%p", b"");
    let path = PathBuf::from(file.0.to_str().unwrap().replace("%p", &std::process::id().to_string()));
    let read = || -> Option<serde_json::Value> { serde_json::from_slice(&std::fs::read(&path).ok()?).ok() };
    {
        let mut a = Host::open("127.0.0.1", &[&file.variable("SRD_STATS")]);
        let mut b = Host::open("127.0.0.2", &[]);
        exchange(&mut a, &mut b, 1);
        let start = Instant::now();
        while read().is_none() {
            assert!(start.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(10));
        }
        exchange(&mut a, &mut b, 1);
    }
    let last = read().unwrap();
    assert_eq!(last["device"]["send_wrs"], 2 * LENGTHS.len());
    assert_eq!(last["pid"], std::process::id());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_link_that_goes_down_and_up_loses_nothing() {
    let Some(pair) = Namespaces::new("updown", 1500) else { return };
    let mut a = pair.run(0, || Host::with_options(&options("e0", &[])));
    let mut b = pair.run(1, || Host::with_options(&options("e0", &[])));
    assert_eq!(a.instance.address(), InstanceAddr { gid: pair.ip(0).into(), port: 17_408 });
    exchange(&mut a, &mut b, 2);
    pair.ip_in(0, "link set e0 down");
    for (i, &len) in LENGTHS.iter().enumerate() {
        b.recv(i as u64, 200_000 + i * PLACE, PLACE);
        a.send(i as u64, b.address(), i * PLACE, len);
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(a.poll().is_none());
    pair.ip_in(0, "link set e0 up");
    for _ in LENGTHS {
        a.success();
        b.success();
    }
    exchange(&mut b, &mut a, 2);
}

#[test]
fn a_route_with_a_smaller_mtu_is_noticed() {
    let Some(pair) = Namespaces::new("routemtu", 9000) else { return };
    pair.ip_in(0, "route replace 10.66.0.0/24 dev e0 mtu 1400");
    let mut a = pair.run(0, || Host::with_options(&options("e0", &[])));
    let mut b = pair.run(1, || Host::with_options(&options("e0", &[])));
    exchange(&mut a, &mut b, 2);
    write_and_read(&mut a, &mut b, 300_000, 6);
}

#[test]
fn a_path_that_swallows_large_packets_is_noticed() {
    let Some(pair) = Namespaces::new("blackhole", 9000) else { return };
    // A virtual Ethernet device drops what is larger than its own MTU, and tells nobody.
    pair.ip_in(1, "link set e0 mtu 1500");
    let jumbo = ["SRD_MTU=9000"];
    let mut a = pair.run(0, || Host::with_options(&options("e0", &jumbo)));
    let mut b = pair.run(1, || Host::with_options(&options("e0", &[])));
    exchange(&mut a, &mut b, 2);
    write_and_read(&mut a, &mut b, 300_000, 6);
}

#[test]
fn a_slow_link_holds_packets_back_and_loses_few() {
    let Some(pair) = Namespaces::new("slow", 1500) else { return };
    for side in [0, 1] {
        pair.tc_in(side, "qdisc add dev e0 root tbf rate 200mbit burst 3028 limit 30000");
    }
    let mut a = pair.run(0, || Host::with_options(&options("e0", &["SRD_LINE_RATE_GBPS=0.2"])));
    let mut b = pair.run(1, || Host::with_options(&options("e0", &["SRD_LINE_RATE_GBPS=0.2"])));
    write_and_read(&mut a, &mut b, 500_000, 5);
    exchange(&mut a, &mut b, 5);
    let counters = a.instance.stats().unwrap().transmit;
    assert_eq!(counters.dropped_refused, 0, "{counters:?}");
}

#[test]
fn the_default_address_is_that_of_the_default_route_else_any() {
    let Some(pair) = Namespaces::new("default", 1500) else { return };
    pair.ip_in(0, "link add e1 type veth peer name e2");
    pair.ip_in(0, "address add 10.67.0.1/24 dev e1");
    pair.ip_in(0, "link set e1 up");
    let open =
        || pair.run(0, || Instance::open_separate(&Options::default()).unwrap().gid().ip().to_string());
    assert_eq!(open(), "10.66.0.1");
    pair.ip_in(0, "link set e2 up");
    pair.ip_in(0, "route add default via 10.67.0.2");
    assert_eq!(open(), "10.67.0.1");
    pair.ip_in(0, "link set e0 down");
    pair.ip_in(0, "link delete e1");
    pair.ip_in(0, "address flush dev e0");
    assert_eq!(open(), "127.0.0.1");
}
