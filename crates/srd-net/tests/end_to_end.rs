//! Two instances in this process, each a host of its own on loopback, over real sockets: what arrives, what is refused,
//! and what ends with an error.

mod support;

use srd_device::{CompletionOp, SendData, SendOp, SendWr, Sge};
use srd_net::{Instance, PeerStats, Unavailable};
use srd_wire::{Gid, Qpn, Status};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::traffic::{LENGTHS, exchange, write_and_read};
use support::{Host, PATIENCE, QKEY, new_qp, options, pattern};

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

/// A poll that finds nothing only looks at the socket, as long as nothing else has happened and nothing is due.
#[test]
fn after_polls_in_vain_what_comes_is_found_and_what_is_due_is_done() {
    let polls_alone = "SRD_PROGRESS=inline";
    let mut a = Host::open("127.0.0.1", &[polls_alone, "SRD_FAULT=loss=0.2,seed=1"]);
    let b = Host::open("127.0.0.2", &[polls_alone]);
    let polled = [(&a, a.cq), (&b, b.cq)].map(|(host, cq)| (host.instance.clone(), cq));
    let poll_both = || {
        let done = polled.each_ref().map(|(instance, cq)| instance.poll_one(*cq).unwrap());
        done.into_iter().flatten().map(|done| (done.op, done.wr_id, done.status)).collect::<Vec<_>>()
    };
    for id in 0..20 {
        let rounds = b.instance.stats().unwrap().rounds;
        assert!((0..100).all(|_| poll_both().is_empty()));
        let after = b.instance.stats().unwrap().rounds;
        assert_eq!(after.rounds - rounds.rounds, 100);
        assert!(after.idle_rounds - rounds.idle_rounds >= 98, "{rounds:?} {after:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| b.recv(id, 4096, 100));
        });
        a.send(id, b.address(), 0, 100);
        // What is lost is sent again, and what has come acknowledged, by the clock alone.
        let (mut done, start) = (Vec::new(), Instant::now());
        while done.len() < 2 {
            done.extend(poll_both());
            assert!(start.elapsed() < PATIENCE, "{done:?}: {}", a.report());
        }
        assert!(done.iter().all(|&(_, of, status)| (of, status) == (id, Status::Ok)), "{done:?}");
    }
}

/// libfabric destroys its queue pair with messages on their way, and its peer counts on them.
#[test]
fn what_was_sent_before_a_queue_pair_was_destroyed_arrives() {
    let b = Host::open("127.0.0.2", &["SRD_FAULT=loss=0.3,seed=1"]);
    for round in 0..20 {
        let fault = format!("SRD_FAULT=loss=0.3,seed={}", 2 + round);
        let mut a = Host::open("127.0.0.1", &[&fault]);
        for id in 0..4 {
            b.recv(id, 4096 * id as usize, 100);
            a.send(id, b.address(), 4096 * id as usize, 100);
        }
        a.instance.destroy_qp(a.qpn).unwrap().unwrap();
        let done: BTreeSet<u64> = (0..4).map(|_| b.success().wr_id).collect();
        assert_eq!(done, BTreeSet::from([0, 1, 2, 3]));
    }
}

/// Nobody answers: the program must not wait for long.
#[test]
fn destroying_a_queue_pair_with_messages_to_nobody_takes_a_moment() {
    let mut a = Host::open("127.0.0.1", &[]);
    let mut nobody = a.address();
    nobody.0 = Gid::from("127.0.0.77".parse::<std::net::IpAddr>().unwrap());
    a.send(1, nobody, 0, 100);
    let start = Instant::now();
    a.instance.destroy_qp(a.qpn).unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_secs(2));
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
        let gone = b.gone();
        a.post(1, SendOp::Read { rkey: gone.lkey, addr: gone.addr }, b.address(), 0, len);
        let done = a.completion();
        assert_eq!((done.wr_id, done.status), (1, Status::RemoteBadAddress), "{len} B, {variables:?}");
        assert!(b.instance.stats().is_ok());
    }
}

#[test]
fn a_write_to_memory_that_has_gone_is_refused_and_kills_nobody() {
    for variables in [&[][..], &["SRD_FAULT=loss=0.1,seed=3"]] {
        let (mut a, mut b) = (Host::open("127.0.0.1", variables), Host::open("127.0.0.2", variables));
        b.handle(a.gid());
        let gone = b.gone();
        b.recv(9, 0, 100);
        for (wr_id, len, imm) in [(1, 100, None), (2, 20_000, None), (3, 100, Some(7)), (4, 20_000, Some(7))]
        {
            let op = SendOp::Write { rkey: gone.lkey, addr: gone.addr, imm };
            a.post(wr_id, op, b.address(), 0, len);
            let done = a.completion();
            assert_eq!((done.wr_id, done.status), (wr_id, Status::RemoteBadAddress), "{variables:?}");
        }
        // No receive was used up.
        a.send(5, b.address(), 0, 100);
        assert_eq!(a.success().wr_id, 5);
        assert_eq!(b.success().wr_id, 9);
        exchange(&mut a, &mut b, 1);
    }
}

#[test]
fn a_read_into_memory_that_has_gone_fails_and_kills_nobody() {
    for variables in [&[][..], &["SRD_FAULT=loss=0.1,seed=3"]] {
        let (mut a, mut b) = (Host::open("127.0.0.1", variables), Host::open("127.0.0.2", variables));
        b.handle(a.gid());
        let gone = a.gone();
        for (wr_id, len) in [(1, 100), (2, 20_000)] {
            let op = SendOp::Read { rkey: b.key, addr: b.buffer.addr() };
            a.post_sge(wr_id, op, b.address(), Sge { len, ..gone });
            let done = a.completion();
            assert_eq!((done.wr_id, done.status), (wr_id, Status::LocalInvalidLkey), "{variables:?}");
        }
        exchange(&mut a, &mut b, 1);
        write_and_read(&mut a, &mut b, 20_000, 1);
    }
}

#[test]
fn what_is_sent_from_memory_that_has_gone_fails_alone() {
    for variables in [&[][..], &["SRD_FAULT=loss=0.1,seed=3"]] {
        let (mut a, mut b) = (Host::open("127.0.0.1", variables), Host::open("127.0.0.2", variables));
        b.handle(a.gid());
        let gone = a.gone();
        for wr_id in 0..8 {
            b.recv(wr_id, 0, 4096);
        }
        // At once, so that some leave in one call of the system.
        let (to, handle) = (b.address(), a.handle(b.gid()));
        let write = SendOp::Write { rkey: b.key, addr: b.buffer.addr() + 300_000, imm: None };
        let send = SendOp::Send { imm: None };
        let posts = [
            (send, a.sge(0, 1000), 1000),
            (send, gone, 1000),
            (write, gone, 20_000),
            (write, a.sge(0, 20_000), 20_000),
        ];
        let posts = posts.iter().cycle().take(8);
        a.instance
            .with(|device, now| {
                for (wr_id, &(op, sge, len)) in posts.enumerate() {
                    let sges = [Sge { len, ..sge }];
                    let data = SendData::Sges(&sges);
                    let wr = SendWr { wr_id: wr_id as u64, op, ah: handle, dst_qpn: to.1, qkey: QKEY, data };
                    device.post_send(now, a.qpn, &wr).expect("there is room");
                }
            })
            .expect("not forked");
        let mut failed = BTreeSet::new();
        for _ in 0..8 {
            let done = a.completion();
            if done.status != Status::Ok {
                assert_eq!(done.status, Status::LocalInvalidLkey, "{done:?}, {variables:?}");
                failed.insert(done.wr_id);
            }
        }
        assert_eq!(failed, BTreeSet::from([1, 2, 5, 6]));
        for _ in 0..2 {
            assert_eq!(b.success().op, CompletionOp::Recv);
        }
        // The other receives are still there.
        for wr_id in 10..16 {
            a.send(wr_id, to, 0, 1000);
            a.success();
            b.success();
        }
        exchange(&mut a, &mut b, 1);
    }
}

#[test]
fn a_black_holed_source_port_is_avoided() {
    let swallowed = |host: &Host| host.instance.stats().unwrap().transmit.faults.blackholed;
    let mut b = Host::open("127.0.0.2", &[]);
    // Of the two source ports that swallow all one is in use at first.
    let mut a = Host::open("127.0.0.1", &["SRD_FAULT=blackhole=3", "SRD_PATHS=8"]);
    let start = Instant::now();
    loop {
        exchange(&mut a, &mut b, 5);
        let stats = a.instance.stats().unwrap();
        let bad: Vec<u16> =
            stats.paths.iter().filter(|path| path.path % 8 == 3).map(|path| path.source_port).collect();
        let in_use = |peer: &PeerStats| {
            peer.path_list.iter().any(|path| bad.contains(&path.source_port) && path.state == "active")
        };
        if swallowed(&a) > 0 && stats.transport["paths_down"] > 0 && !stats.peers.iter().any(in_use) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{}", a.report());
    }
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
fn a_key_file_that_others_can_read_is_refused() {
    let key = TempFile::new("key-open", &pattern(1, 32));
    let open = || {
        let options = options("127.0.0.1", &[&key.variable("SRD_KEY_FILE")]);
        Instance::open_separate(&options).map(drop).map_err(|error| error.to_string())
    };
    for (mode, part) in [
        (0o640, "its group can read"),
        (0o620, "its group can read or change"),
        (0o604, "everybody on this host can read"),
        (0o666, "its group and everybody else"),
    ] {
        std::fs::set_permissions(&key.0, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = open().unwrap_err();
        assert!(error.contains(part) && error.contains("chmod 600"), "{mode:o}: {error}");
    }
    for mode in [0o600, 0o400, 0o700, 0o711] {
        std::fs::set_permissions(&key.0, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(open(), Ok(()), "{mode:o}");
    }
    // Only root can give a file away.
    if std::os::unix::fs::chown(&key.0, Some(12345), None).is_ok() {
        let error = open().unwrap_err();
        assert!(error.contains("belongs to user 12345") && error.contains("chown"), "{error}");
    }
}

#[test]
fn what_is_no_key_is_refused_without_waiting_for_it() {
    let zeroes = TempFile::new("key-zeroes", &[0; 32]);
    let long = TempFile::new("key-long", &[b' '; 5000]);
    let pipe = TempFile::new("key-pipe", b"");
    std::fs::remove_file(&pipe.0).unwrap();
    assert!(
        std::process::Command::new("mkfifo").arg("-m").arg("600").arg(&pipe.0).status().unwrap().success()
    );
    for (file, part) in [(&zeroes, "zeroes"), (&long, "is no key file"), (&pipe, "is no key file")] {
        let error = srd_net::key_file::check(&file.0).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(srd_net::key_file::check(std::path::Path::new("/")).is_err());
}

/// Between the two the instances have been silent for so long that they take other keys.
#[test]
fn sealed_messages_arrive_after_a_pause_too() {
    let key = TempFile::new("key-pause", &pattern(3, 32));
    let key = key.variable("SRD_KEY_FILE");
    let (mut a, mut b) = (Host::open("127.0.0.1", &[&key]), Host::open("127.0.0.2", &[&key]));
    exchange(&mut a, &mut b, 5);
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(1100));
        exchange(&mut a, &mut b, 5);
    }
    for host in [&a, &b] {
        assert!(host.instance.stats().unwrap().receive.not_opened.is_empty(), "{}", host.report());
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
    let mut b = Host::open("127.0.0.8", &[]); // no other test's, which might take the dead one's port
    let b_address = b.address();
    exchange(&mut a, &mut b, 1);
    drop(b);
    a.send(1, b_address, 0, 10);
    assert_eq!(a.completion().status, Status::Unresponsive);
    let stats = a.instance.stats().unwrap();
    assert!(stats.transmit.network_errors.contains_key(&libc::ECONNREFUSED), "{}", a.report());
}

#[test]
fn a_peer_at_our_own_address_that_has_ended_is_unresponsive_long_before_the_time_limit() {
    for (addr, base) in [("127.0.0.10", "SRD_PORT_BASE=18100"), ("::1", "SRD_PORT_BASE=18200")] {
        let mut a = Host::open(addr, &[base, "SRD_PEER_TIMEOUT_S=3600"]);
        let mut b = Host::open(addr, &[base]);
        let b_address = b.address();
        exchange(&mut a, &mut b, 1);
        drop(b);
        for i in 0..3 {
            a.send(i, b_address, 0, 10);
            assert_eq!(a.completion().status, Status::Unresponsive);
        }
        // Where nobody has answered yet somebody may be about to begin.
        a.send(9, (a.gid(), Qpn(3 * 128 + 2)), 0, 10);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            assert_eq!(a.poll().map(|done| done.status), None);
        }
    }
}

#[test]
fn a_peer_at_our_own_address_that_only_stands_still_is_waited_for() {
    let base = "SRD_PORT_BASE=18300";
    let mut a = Host::open("127.0.0.11", &[base]);
    let b = Host::open("127.0.0.11", &[base, "SRD_PROGRESS=inline"]);
    b.recv(1, 0, 100);
    a.send(1, b.address(), 0, 10);
    while b.poll().is_none() {}
    a.success_while(|| _ = b.poll());
    // From here on nobody moves the packets of b, as if it were stopped.
    b.recv(2, 0, 100);
    a.send(2, b.address(), 0, 10);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1500) {
        assert_eq!(a.poll().map(|done| done.status), None);
    }
    a.success_while(|| _ = b.poll());
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

/// Where everybody may make files anybody can guess the name that is written first.
#[test]
fn counters_are_not_written_through_a_link_that_somebody_has_put_there() {
    let victim = TempFile::new("stats-victim", b"as it was");
    let file = TempFile::new("stats-linked", b"");
    let links: Vec<PathBuf> = (0..200)
        .flat_map(|n| [format!(".{}.{n}.tmp", std::process::id()), format!(".{}.tmp", std::process::id())])
        .map(|end| PathBuf::from(format!("{}{end}", file.0.display())))
        .collect();
    for link in &links {
        let _ = std::os::unix::fs::symlink(&victim.0, link); // one of them comes again and again
    }
    drop(Host::open("127.0.0.1", &[&file.variable("SRD_STATS")]));
    assert_eq!(std::fs::read(&victim.0).unwrap(), b"as it was");
    let written = std::fs::read(&file.0).unwrap();
    assert!(serde_json::from_slice::<serde_json::Value>(&written).is_ok());
    links.iter().for_each(|link| drop(std::fs::remove_file(link)));
}

#[test]
fn a_call_from_within_a_call_is_refused_and_does_not_wait_for_itself() {
    let host = Host::open("127.0.0.1", &[]);
    let inner = host.instance.with(|_, _| {
        // As a signal handler would, or a destructor that its exit() runs.
        (host.instance.with(|_, _| ()), host.instance.progress(), host.instance.poll_one(host.cq).map(|_| ()))
    });
    let barred = Err(Unavailable::Interrupted);
    assert_eq!(inner, Ok((barred, barred, barred)));
    assert_eq!(host.instance.progress(), Ok(()), "and afterwards all is as it was");
}
