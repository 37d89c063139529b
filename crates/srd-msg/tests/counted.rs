//! What peers do is counted where they do it (FI_RMA_EVENT): each operation once, when all of it is done.

mod support;

use srd_msg::atomic_ops::{AtomicOp, Datatype};
use srd_msg::*;
use srd_wire::Nanos;
use support::harness::pattern;
use support::*;

const ALL: Counted = Counted { reads: true, writes: true };
const WRITES: Counted = Counted { reads: false, writes: true };
const NONE: Counted = Counted { reads: false, writes: false };
const REGION: u64 = 0xC0;
const ROOM: usize = 400_000;

/// What is done at host 1 by host 0.
struct Pair {
    cluster: Cluster,
    to: PeerId,
    there: Iov,
    region: RegionId,
    key: u64,
}

impl Pair {
    /// `at`: what the endpoint counts; `within`: what the region does.
    fn new(at: Counted, within: Counted, seed: Option<u64>) -> Pair {
        let mut cluster = Cluster::new(2, Config::default());
        seed.into_iter().for_each(|seed| cluster.rough(seed));
        let there = cluster.room(1, ROOM);
        let (region, key) = cluster.register(1, there, Some(77), ALL_RIGHTS);
        let endpoint = cluster.endpoints[1];
        cluster.domains[1].count_at(endpoint, at);
        cluster.domains[1].count_in(region, within, REGION);
        let to = cluster.peer(0, 1);
        Pair { cluster, to, there, region, key }
    }

    fn rma(&mut self, read: bool, len: usize, data: Option<u64>) {
        let here = self.cluster.bytes(0, &pattern(len, 1));
        // In two pieces, each of which is a request of the device's.
        let half = len as u64 / 2;
        let local = [Iov { len: half, ..here }, Iov { addr: here.addr + half, len: len as u64 - half }];
        let remote = [RemoteIov { addr: 0, len: len as u64, key: self.key }];
        let rma = Rma { to: self.to, read, local: &local, remote: &remote, data, context: 1, flags: REPORT };
        self.cluster.rma(0, &rma).unwrap();
        assert_eq!(self.cluster.next(0).error, None);
        if !read {
            assert!(self.cluster.read(1, Iov { len: len as u64, ..self.there }) == pattern(len, 1));
        }
    }

    fn atomic(&mut self, op: AtomicOp, compares: bool, fetches: bool) {
        let [operand, compare, result] = [0; 3].map(|_| self.cluster.room(0, 8));
        let some = |iov: Iov, there: bool| if there { vec![iov] } else { vec![] };
        let atomic = Atomic {
            to: self.to,
            op,
            datatype: Datatype::Uint64,
            operand: &some(operand, op != AtomicOp::Read),
            compare: &some(compare, compares),
            result: &some(result, fetches),
            remote: &[RemoteIov { addr: 0, len: 8, key: self.key }],
            context: 2,
            flags: REPORT,
        };
        self.cluster.atomic(0, &atomic).unwrap();
        assert_eq!(self.cluster.next(0).error, None);
    }

    /// What has been counted since this was last asked: reads and writes at the endpoint, reads and writes in the region.
    #[track_caller]
    fn counts(&mut self) -> [u32; 4] {
        self.cluster.settle(Nanos::from_secs(2));
        let mut counts = [0; 4];
        while let Some(done) = self.cluster.domains[1].poll_done() {
            assert_eq!(done.report, done.data.is_some(), "what is only counted is not reported");
            counts[match done.kind {
                Kind::RemoteRead => 0,
                Kind::RemoteWrite => 1,
                Kind::Access { write } => {
                    assert_eq!(done.context, REGION);
                    2 + usize::from(write)
                }
                other => panic!("{other:?}"),
            }] += 1;
        }
        counts
    }
}

#[test]
fn each_operation_is_counted_once_whatever_its_length_and_the_network() {
    for seed in [None, Some(3), Some(4)] {
        let mut pair = Pair::new(ALL, ALL, seed);
        for len in [0, 8, 8_000, 9_000, ROOM] {
            for data in [None, Some(5)] {
                pair.rma(false, len, data);
                assert_eq!(pair.counts(), [0, 1, 0, 1], "seed {seed:?}: a write of {len}, {data:?}");
            }
            pair.rma(true, len, None);
            assert_eq!(pair.counts(), [1, 0, 1, 0], "seed {seed:?}: a read of {len}");
        }
    }
}

/// fi_endpoint(3) and fi_mr(3) differ: at an endpoint what returns values is a read, in a region what changes it is a write.
#[test]
fn atomic_operations_count_by_what_they_return_and_by_what_they_change() {
    let mut pair = Pair::new(ALL, ALL, None);
    for (op, compares, fetches, counts) in [
        (AtomicOp::Sum, false, false, [0, 1, 0, 1]),
        (AtomicOp::Sum, false, true, [1, 0, 0, 1]),
        (AtomicOp::CompareSwap, true, true, [1, 0, 0, 1]),
        (AtomicOp::Read, false, true, [1, 0, 1, 0]),
    ] {
        pair.atomic(op, compares, fetches);
        assert_eq!(pair.counts(), counts, "{op:?}");
    }
}

#[test]
fn only_what_is_asked_for_is_counted() {
    for (at, within, write, read) in [
        (WRITES, NONE, [0, 1, 0, 0], [0; 4]),
        (NONE, WRITES, [0, 0, 0, 1], [0; 4]),
        (NONE, ALL, [0, 0, 0, 1], [0, 0, 1, 0]),
        (NONE, NONE, [0; 4], [0; 4]),
    ] {
        let mut pair = Pair::new(at, within, None);
        for len in [8, ROOM] {
            pair.rma(false, len, None);
            assert_eq!(pair.counts(), write, "{at:?} {within:?} {len}");
            pair.rma(true, len, None);
            assert_eq!(pair.counts(), read, "{at:?} {within:?} {len}");
        }
    }
}

#[test]
fn what_is_refused_is_not_counted() {
    let mut pair = Pair::new(ALL, ALL, None);
    for (read, len) in [(false, 8), (false, 9_000), (true, 8)] {
        let here = pair.cluster.room(0, len);
        let remote = [RemoteIov { addr: ROOM as u64, len: len as u64, key: pair.key }];
        let rma =
            Rma { to: pair.to, read, local: &[here], remote: &remote, data: None, context: 1, flags: REPORT };
        pair.cluster.rma(0, &rma).unwrap();
        assert_eq!(pair.cluster.next(0).error, Some(Failure::RemoteAccess { known: true }));
        assert_eq!(pair.counts(), [0; 4]);
    }
}

#[test]
fn a_region_that_takes_the_key_of_one_that_counts_does_not() {
    let mut pair = Pair::new(NONE, WRITES, None);
    pair.rma(false, ROOM, None);
    assert_eq!(pair.counts(), [0, 0, 0, 1]);
    let cluster = &mut pair.cluster;
    cluster.domains[1].deregister(&mut cluster.net.devices[1], cluster.net.now, pair.region).unwrap();
    pair.there = cluster.room(1, ROOM);
    cluster.register(1, pair.there, Some(pair.key), ALL_RIGHTS);
    pair.rma(false, ROOM, None);
    assert_eq!(pair.counts(), [0; 4]);
}

#[test]
fn an_operation_in_two_regions_counts_in_both_and_once_at_the_endpoint() {
    let mut pair = Pair::new(ALL, ALL, None);
    let other = pair.cluster.room(1, ROOM);
    let (region, key) = pair.cluster.register(1, other, Some(78), ALL_RIGHTS);
    pair.cluster.domains[1].count_in(region, ALL, REGION);
    for read in [false, true] {
        let here = pair.cluster.bytes(0, &pattern(ROOM, 9));
        let piece = |addr, key| RemoteIov { addr, len: ROOM as u64 / 4, key };
        let quarter = ROOM as u64 / 4;
        let remote = [piece(0, pair.key), piece(0, key), piece(quarter, pair.key), piece(quarter, key)];
        let rma =
            Rma { to: pair.to, read, local: &[here], remote: &remote, data: None, context: 1, flags: REPORT };
        pair.cluster.rma(0, &rma).unwrap();
        assert_eq!(pair.cluster.next(0).error, None);
        assert_eq!(pair.counts(), if read { [1, 0, 2, 0] } else { [0, 1, 0, 2] });
    }
}
