//! RMA and atomic operations, a rule each, in virtual time.

mod support;

use srd_msg::atomic_ops::{AtomicOp, Datatype};
use srd_msg::*;
use srd_wire::Nanos;
use support::harness::pattern;
use support::*;

const SIZES: [usize; 7] = [1, 8, 4_000, 8_832, 9_000, 100_000, 2_000_000];

fn rma<'a>(to: PeerId, read: bool, local: &'a [Iov], remote: &'a [RemoteIov], context: u64) -> Rma<'a> {
    Rma { to, read, local, remote, data: None, context, flags: REPORT }
}

/// Keys that the provider chooses, and those that the program does.
const KEYS: [Option<u64>; 2] = [None, Some(1 << 63 | 77)];

#[test]
fn what_is_written_can_be_read_back() {
    for key in KEYS {
        for seed in [None, Some(5)] {
            let mut cluster = Cluster::new(2, Config::default());
            seed.into_iter().for_each(|seed| cluster.rough(seed));
            let there = cluster.room(1, 2_000_100);
            let (region, key) = cluster.register(1, there, key, ALL_RIGHTS);
            let to = cluster.peer(0, 1);
            for (n, len) in (1..).zip(SIZES) {
                let bytes = pattern(len, n);
                let (from, back) = (cluster.bytes(0, &bytes), cluster.room(0, len));
                let remote = [RemoteIov { addr: 50, len: len as u64, key }];
                cluster.rma(0, &rma(to, false, &[from], &remote, n)).unwrap();
                let done = cluster.next(0);
                assert_eq!((done.context, done.error, done.kind), (n, None, Kind::Write), "{len}");
                let target = Iov { addr: there.addr + 50, len: len as u64 };
                assert!(cluster.read(1, target) == bytes);
                cluster.rma(0, &rma(to, true, &[back], &remote, n)).unwrap();
                let done = cluster.next(0);
                assert_eq!((done.context, done.error, done.kind), (n, None, Kind::Read), "{len}");
                assert!(cluster.read(0, back) == bytes);
            }
            // Nobody can reach it afterwards; a key that was in use before says so too.
            cluster.domains[1].deregister(&mut cluster.net.devices[1], cluster.net.now, region).unwrap();
            let from = cluster.room(0, 100_000);
            let remote = [RemoteIov { addr: 0, len: 100_000, key }];
            for read in [true, false] {
                cluster.rma(0, &rma(to, read, &[from], &remote, 1)).unwrap();
                assert_eq!(cluster.next(0).error, Some(Failure::RemoteAccess { known: false }));
            }
        }
    }
}

#[test]
fn a_key_given_anew_to_other_memory_reaches_that_memory() {
    let mut cluster = Cluster::new(2, Config::default());
    let to = cluster.peer(0, 1);
    for n in 0..10 {
        let there = cluster.room(1, 50_000);
        let (region, key) = cluster.register(1, there, Some(5), ALL_RIGHTS);
        let bytes = pattern(50_000, n);
        let from = cluster.bytes(0, &bytes);
        // All that are under way when the old memory shows to be gone are tried again.
        for _ in 0..3 {
            let remote = [RemoteIov { addr: 0, len: 50_000, key }];
            cluster.rma(0, &rma(to, false, &[from], &remote, n)).unwrap();
        }
        for _ in 0..3 {
            assert_eq!(cluster.next(0).error, None);
        }
        assert!(cluster.read(1, there) == bytes);
        cluster.domains[1].deregister(&mut cluster.net.devices[1], cluster.net.now, region).unwrap();
    }
}

#[test]
fn rights_and_bounds_are_kept() {
    for key in KEYS {
        let mut cluster = Cluster::new(2, Config::default());
        let to = cluster.peer(0, 1);
        let there = cluster.room(1, 1000);
        let (_, key) = cluster.register(1, there, key, RemoteRights { read: true, write: false });
        let here = cluster.room(0, 500);
        for (read, addr) in [(false, 0), (true, 501), (true, u64::MAX)] {
            let remote = [RemoteIov { addr, len: 500, key }];
            cluster.rma(0, &rma(to, read, &[here], &remote, 1)).unwrap();
            assert_eq!(cluster.next(0).error, Some(Failure::RemoteAccess { known: true }));
        }
        cluster.rma(0, &rma(to, true, &[here], &[RemoteIov { addr: 500, len: 500, key }], 1)).unwrap();
        assert_eq!(cluster.next(0).error, None);
        let short = [RemoteIov { addr: 0, len: 499, key }];
        assert!(matches!(cluster.rma(0, &rma(to, true, &[here], &short, 1)), Err(Refused::Invalid(_))));
    }
}

#[test]
fn data_comes_when_all_is_written() {
    for key in KEYS {
        for len in [0, 8, 9_000, 400_000] {
            let mut cluster = Cluster::new(2, Config::default());
            cluster.rough(len as u64 + 1);
            let to = cluster.peer(0, 1);
            let back = cluster.peer(1, 0);
            let _ = back;
            let there = cluster.room(1, 400_000);
            let (_, key) = cluster.register(1, there, key, ALL_RIGHTS);
            let bytes = pattern(len, 3);
            let local = [cluster.bytes(0, &bytes)];
            let remote = [RemoteIov { addr: 0, len: len as u64, key }];
            let write = Rma { data: Some(0xABCD_EF01_2345), ..rma(to, false, &local, &remote, 4) };
            cluster.rma(0, &write).unwrap();
            let told = cluster.next(1);
            assert_eq!(
                (told.kind, told.data, told.len),
                (Kind::RemoteWrite, Some(0xABCD_EF01_2345), len as u64)
            );
            assert_eq!(told.source, 0);
            assert!(cluster.read(1, Iov { len: len as u64, ..there }) == bytes);
            assert_eq!((cluster.next(0).error, cluster.domains[0].poll_done()), (None, None));
        }
    }
}

#[test]
fn scattered_memory_is_written_in_order_at_both_sides() {
    let mut cluster = Cluster::new(2, Config::default());
    let to = cluster.peer(0, 1);
    let there = [cluster.room(1, 3_000), cluster.room(1, 70_000)];
    let keys = there.map(|iov| cluster.register(1, iov, None, ALL_RIGHTS).1);
    let bytes = pattern(60_000, 1);
    let here = [cluster.bytes(0, &bytes[..20_000]), cluster.bytes(0, &bytes[20_000..])];
    let remote = [
        RemoteIov { addr: 1_000, len: 2_000, key: keys[0] },
        RemoteIov { addr: 5, len: 58_000, key: keys[1] },
    ];
    cluster.rma(0, &rma(to, false, &here, &remote, 1)).unwrap();
    assert_eq!(cluster.next(0).error, None);
    assert!(cluster.read(1, Iov { addr: there[0].addr + 1_000, len: 2_000 }) == bytes[..2_000]);
    assert!(cluster.read(1, Iov { addr: there[1].addr + 5, len: 58_000 }) == bytes[2_000..]);
}

#[test]
fn atomic_operations_are_carried_out_once_each_whatever_the_network_does() {
    for seed in 1..6 {
        let mut cluster = Cluster::new(3, Config::default());
        cluster.rough(seed);
        let there = cluster.bytes(2, &[0; 16]);
        let (_, key) = cluster.register(2, there, None, ALL_RIGHTS);
        let remote = [RemoteIov { addr: 0, len: 8, key }];
        let one: Vec<Iov> = (0..2).map(|host| cluster.bytes(host, &1u64.to_ne_bytes())).collect();
        let mut results = Vec::new();
        for n in 0..100 {
            for (host, &operand) in one.iter().enumerate() {
                let (to, result) = (cluster.peer(host, 2), cluster.room(host, 8));
                results.push((host, result));
                let atomic = Atomic {
                    to,
                    op: AtomicOp::Sum,
                    datatype: Datatype::Uint64,
                    operand: &[operand],
                    compare: &[],
                    result: &[result],
                    remote: &remote,
                    context: n,
                    flags: REPORT,
                };
                cluster.atomic(host, &atomic).unwrap();
            }
        }
        for _ in 0..100 {
            assert_eq!((cluster.next(0).error, cluster.next(1).error), (None, None));
        }
        assert_eq!(cluster.read(2, there)[..8], 200u64.to_ne_bytes());
        let mut seen: Vec<u64> = results
            .into_iter()
            .map(|(host, iov)| u64::from_ne_bytes(cluster.read(host, iov).try_into().unwrap()))
            .collect();
        seen.sort();
        assert!(seen.into_iter().eq(0..200), "each sees another value");
        assert_eq!(cluster.counters(2).atomics, 200);
    }
}

#[test]
fn compare_and_swap_swaps_what_is_equal() {
    let mut cluster = Cluster::new(2, Config::default());
    let there = cluster.bytes(1, &[7u32.to_ne_bytes(), 8u32.to_ne_bytes()].concat());
    let (_, key) = cluster.register(1, there, Some(3), ALL_RIGHTS);
    let to = cluster.peer(0, 1);
    let operand = cluster.bytes(0, &[1u32.to_ne_bytes(), 2u32.to_ne_bytes()].concat());
    let compare = cluster.bytes(0, &[7u32.to_ne_bytes(), 7u32.to_ne_bytes()].concat());
    let result = cluster.room(0, 8);
    let remote = [RemoteIov { addr: 0, len: 8, key }];
    let atomic = Atomic {
        to,
        op: AtomicOp::CompareSwap,
        datatype: Datatype::Uint32,
        operand: &[operand],
        compare: &[compare],
        result: &[result],
        remote: &remote,
        context: 1,
        flags: DELIVER,
    };
    cluster.atomic(0, &atomic).unwrap();
    assert_eq!(cluster.next(0).error, None);
    assert_eq!(cluster.read(0, result), [7u32.to_ne_bytes(), 8u32.to_ne_bytes()].concat());
    assert_eq!(cluster.read(1, there), [1u32.to_ne_bytes(), 8u32.to_ne_bytes()].concat());
    let nowhere = [RemoteIov { addr: 0, len: 8, key: 99 }];
    let wrong = Atomic { remote: &nowhere, ..atomic };
    cluster.atomic(0, &wrong).unwrap();
    assert_eq!(cluster.next(0).error, Some(Failure::RemoteAccess { known: false }));
    let bits = Atomic { op: AtomicOp::BitAnd, datatype: Datatype::Float, ..atomic };
    assert!(matches!(cluster.atomic(0, &bits), Err(Refused::Unsupported(_))));
}

#[test]
fn one_sided_operations_with_a_dead_peer_end() {
    for key in KEYS {
        for read in [true, false] {
            let mut cluster = Cluster::new(2, Config::default());
            let to = cluster.peer(0, 1);
            let (there, here) = (cluster.room(1, 100_000), cluster.room(0, 100_000));
            let (_, key) = cluster.register(1, there, key, ALL_RIGHTS);
            let remote = [RemoteIov { addr: 0, len: 100_000, key }];
            cluster.rma(0, &rma(to, read, &[here], &remote, 1)).unwrap();
            cluster.settle(Nanos::from_micros(20));
            cluster.cut(1);
            assert!(matches!(cluster.next(0).error, Some(Failure::PeerLost(_))));
            cluster.rma(0, &rma(to, read, &[here], &remote, 2)).unwrap();
            assert!(matches!(cluster.next(0).error, Some(Failure::PeerLost(_))));
        }
    }
}
