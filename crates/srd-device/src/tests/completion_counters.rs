//! What is counted for whom, and when a counter is taken.

use super::*;
use crate::completion_counter::{CompletionCounter, Counted};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
struct Tally {
    completed: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
}

impl CompletionCounter for Tally {
    fn completed(&self, bytes: u32) {
        self.completed.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }
}

/// How much a counter has counted: work requests, their bytes, and what failed.
type Seen = [u64; 3];

impl Tally {
    fn seen(&self) -> Seen {
        [&self.completed, &self.bytes, &self.failed].map(|count| count.load(Ordering::Relaxed))
    }
}

fn attach(bench: &mut Bench, qpn: Qpn, what: &[Counted], tally: &Arc<Tally>) -> Result<(), DeviceError> {
    let counter: Arc<dyn CompletionCounter> = tally.clone();
    let index = bench.objects.qp_index(qpn).unwrap();
    bench.objects.qp_mut(index).attach(what, &counter)
}

/// A bench whose queue pair has a counter for each kind.
fn counted(init: impl Fn(PdId, CqId) -> QpInit) -> (Bench, [Arc<Tally>; 6]) {
    let mut bench = Bench::new();
    bench.qpn = bench.objects.create_qp(init(bench.pd, bench.cq)).unwrap();
    let qpn = bench.qpn;
    let tallies = Counted::ALL.map(|what| {
        let tally = Arc::new(Tally::default());
        attach(&mut bench, qpn, &[what], &tally).unwrap();
        tally
    });
    bench.ready(qpn);
    (bench, tallies)
}

/// What has been counted of each kind, in the order of [`Counted::ALL`].
fn seen(tallies: &[Arc<Tally>; 6]) -> [Seen; 6] {
    std::array::from_fn(|at| tallies[at].seen())
}

const NONE: Seen = [0; 3];

#[test]
fn each_kind_of_operation_is_counted_apart_with_its_bytes() {
    let (mut bench, tallies) = counted(srd);
    bench.post(1, SEND, &[bench.sge(0, 10), bench.sge(100, 5)]).unwrap();
    assert_eq!(seen(&tallies), [NONE; 6], "it has not been acknowledged");
    bench.outcome(Ok(()));
    assert_eq!(seen(&tallies), [[1, 15, 0], NONE, NONE, NONE, NONE, NONE]);

    bench.post_recv(2, &[bench.sge(0, 100)]);
    bench.deliver(bench.send_op(), &[7; 30]).unwrap();
    assert_eq!(seen(&tallies)[1], [1, 30, 0], "as much as has come, not as there was room for");

    bench.post(3, SendOp::Read { rkey: MrKey(1), addr: 0 }, &[bench.sge(0, 40)]).unwrap();
    let Op::ReadRequest { read, .. } = bench.transport.open[0].op else { panic!("no read request") };
    bench.outcome(Ok(()));
    assert_eq!(seen(&tallies)[2], NONE, "its data has not come");
    bench.deliver(Op::ReadResponse { read }, &[1; 40]).unwrap();
    assert_eq!(seen(&tallies)[2], [1, 40, 0]);

    let request =
        Op::ReadRequest { route: bench.route(), rkey: bench.key, addr: bench.addr, read_len: 50, read: 77 };
    bench.deliver(request, b"").unwrap();
    assert_eq!(seen(&tallies)[3], NONE, "the peer may not have it yet");
    bench.outcome(Ok(()));
    assert_eq!(seen(&tallies)[3], [1, 50, 0]);

    bench.post(4, SendOp::Write { rkey: MrKey(1), addr: 0, imm: None }, &[bench.sge(0, 60)]).unwrap();
    bench.outcome(Ok(()));
    assert_eq!(seen(&tallies)[4], [1, 60, 0]);

    let write = |imm| Op::Write { route: bench.route(), rkey: bench.key, addr: bench.addr, imm };
    let (plain, with_imm) = (write(None), write(Some(9)));
    bench.deliver(plain, &[2; 70]).unwrap();
    bench.post_recv(5, &[]);
    bench.deliver(with_imm, &[3; 8]).unwrap();
    let all = [[1, 15, 0], [1, 30, 0], [1, 40, 0], [1, 50, 0], [1, 60, 0], [2, 78, 0]];
    assert_eq!(seen(&tallies), all, "a write with immediate data is no receive");
}

#[test]
fn what_fails_is_counted_as_failed_and_adds_nothing() {
    let (mut bench, tallies) = counted(srd);
    let unknown = Sge { lkey: MrKey(99), ..bench.sge(0, 8) };
    bench.post(1, SEND, &[unknown]).unwrap();
    bench.post(2, SendOp::Write { rkey: MrKey(1), addr: 0, imm: None }, &[bench.sge(0, 8)]).unwrap();
    bench.outcome(Err(Status::RemoteBadAddress));
    bench.post(3, SendOp::Read { rkey: MrKey(1), addr: 0 }, &[bench.sge(0, 8)]).unwrap();
    let (route, addr, rkey) = (bench.route(), bench.addr, MrKey(99));
    let write = Op::Write { route, rkey, addr, imm: None };
    bench.deliver(write, b"x").unwrap_err();
    let request = Op::ReadRequest { route, rkey, addr, read_len: 8, read: 1 };
    bench.deliver(request, b"").unwrap_err();
    bench.post_recv(4, &[bench.sge(0, 8)]);
    bench.modify(state(QpState::Err)).unwrap();
    let failed = [0, 0, 1];
    assert_eq!(
        seen(&tallies),
        [failed, failed, failed, NONE, failed, NONE],
        "what peers do wrong fails at the peer"
    );
}

#[test]
fn a_datagram_counts_without_its_routing_header() {
    let (mut bench, tallies) = counted(ud);
    bench.post(1, SEND, &[bench.sge(0, 12)]).unwrap();
    assert_eq!(tallies[0].seen(), [1, 12, 0], "it is complete when it is posted");
    bench.post_recv(2, &[bench.sge(0, 100)]);
    bench.deliver(Op::Send { route: bench.route(), imm: None, datagram: true }, &[7; 30]).unwrap();
    assert_eq!(tallies[1].seen(), [1, 30, 0]);
}

#[test]
fn a_counter_may_be_of_several_queue_pairs_and_kinds_but_a_kind_has_one() {
    let mut bench = Bench::new();
    let [one, other] = [Arc::new(Tally::default()), Arc::new(Tally::default())];
    let qps = [(); 2].map(|()| bench.objects.create_qp(srd(bench.pd, bench.cq)).unwrap());
    for qpn in qps {
        attach(&mut bench, qpn, &[Counted::Send, Counted::Recv], &one).unwrap();
        let overlaps = attach(&mut bench, qpn, &[Counted::Read, Counted::Recv], &other);
        assert!(matches!(overlaps, Err(DeviceError::Busy(_))));
        attach(&mut bench, qpn, &[Counted::Read], &other).expect("what was refused has left nothing");
        assert!(matches!(attach(&mut bench, qpn, &[], &other), Err(DeviceError::Invalid(_))));
        bench.ready(qpn);
        let late = attach(&mut bench, qpn, &[Counted::Write], &other);
        assert!(matches!(late, Err(DeviceError::Invalid(_))), "in RTS");
        bench.qpn = qpn;
        bench.post(1, SEND, &[]).unwrap();
        bench.outcome(Ok(()));
        bench.post_recv(2, &[]);
        bench.deliver(bench.send_op(), b"").unwrap();
    }
    assert_eq!(one.seen(), [4, 0, 0]);
    assert_eq!(Arc::strong_count(&one), 5);
    // RESET takes none away, the end does.
    bench.modify(state(QpState::Reset)).unwrap();
    assert_eq!(Arc::strong_count(&one), 5);
    for qpn in qps {
        bench.objects.destroy_qp(&mut bench.transport, qpn).unwrap();
    }
    assert_eq!([Arc::strong_count(&one), Arc::strong_count(&other)], [1, 1]);
}
