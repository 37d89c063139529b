//! Messages of peers: who is let in, where bytes go, what completes, and answers to reads.

use super::*;
use crate::read_responses::MAX_READ_RESPONSES_OF_PEER;

fn datagram(bench: &Bench) -> Op {
    Op::Send { route: bench.route(), imm: None, datagram: true }
}

fn write_op(bench: &Bench, imm: Option<u32>) -> Op {
    Op::Write { route: bench.route(), rkey: bench.key, addr: bench.addr + 1000, imm }
}

fn read_op(bench: &Bench, read_len: u32) -> Op {
    Op::ReadRequest { route: bench.route(), rkey: bench.key, addr: bench.addr + 1000, read_len, read: 77 }
}

#[test]
fn a_receive_reports_who_sent_how_much_and_what() {
    let mut bench = Bench::new();
    bench.post_recv(1, &[bench.sge(0, 4), bench.sge(100, 60)]);
    let op = Op::Send { route: bench.route(), imm: Some(0xABCD), datagram: false };
    bench.deliver(op, b"hello world").unwrap();
    let expected = Completion {
        wr_id: 1,
        status: Status::Ok,
        op: CompletionOp::Recv,
        qpn: bench.qpn,
        src_qpn: PEER_QPN,
        src_ah: bench.ah,
        src_gid: peer_gid(),
        byte_len: 11,
        imm: Some(0xABCD),
        unsolicited: false,
        claimed: false,
    };
    assert_eq!(bench.poll_all(), [expected]);
    assert_eq!((bench.memory(0, 4), bench.memory(100, 7)), (&b"hell"[..], &b"o world"[..]));
    assert_eq!((bench.objects.counters.recv_wrs, bench.objects.counters.recv_bytes), (1, 11));
}

#[test]
fn an_unknown_sender_is_reported_without_handle() {
    let mut bench = Bench::new();
    bench.objects.destroy_ah(&mut bench.transport, bench.pd, bench.ah).unwrap();
    // A handle of another domain is none here.
    let other = bench.objects.alloc_pd().unwrap();
    bench.objects.create_ah(other, peer_gid()).unwrap();
    bench.post_recv(1, &[]);
    bench.deliver(bench.send_op(), b"").unwrap();
    let completion = bench.poll_all()[0];
    assert_eq!((completion.src_ah, completion.src_gid), (AhNumber::NONE, peer_gid()));
}

#[test]
fn no_queue_pair_or_another_key_or_not_ready_is_bad_dest_qpn() {
    let mut bench = Bench::new();
    bench.post_recv(1, &[]);
    let send = |route| Op::Send { route, imm: None, datagram: false };
    let route = bench.route();
    let refused = Err(Status::RemoteBadDestQpn);
    assert_eq!(bench.deliver(send(Route { dst_qpn: Qpn(100), ..route }), b""), refused);
    assert_eq!(bench.deliver(send(Route { dst_qpn: Qpn(40_000), ..route }), b""), refused);
    assert_eq!(bench.deliver(send(Route { qkey: Qkey(1), ..route }), b""), refused);
    // Who says that he is a queue pair that is behind another port of his host.
    assert_eq!(bench.deliver(send(Route { src_qpn: Qpn(9), ..route }), b""), refused);
    let fresh = bench.objects.create_qp(srd(bench.pd, bench.cq)).unwrap();
    let init = QpModify { qkey: Some(QKEY), pkey_index: Some(0), port: Some(1), ..state(QpState::Init) };
    bench.objects.modify_qp(&mut bench.transport, fresh, &init).unwrap();
    bench.objects.post_recv(fresh, &RecvWr { wr_id: 1, sges: &[] }).unwrap();
    assert_eq!(bench.deliver(send(Route { dst_qpn: fresh, ..route }), b""), refused);
    bench.objects.modify_qp(&mut bench.transport, fresh, &state(QpState::Rtr)).unwrap();
    assert_eq!(bench.deliver(send(Route { dst_qpn: fresh, ..route }), b""), Ok(()));
    bench.modify(state(QpState::Err)).unwrap();
    assert_eq!(bench.deliver(send(route), b""), refused);
    assert_eq!(bench.objects.counters.refused_msgs, 6);
}

#[test]
fn kinds_of_queue_pairs_do_not_mix() {
    let mut bench = Bench::with(DeviceConfig::default(), ud);
    bench.post_recv(1, &[bench.sge(0, 100)]);
    assert_eq!(bench.deliver(bench.send_op(), b"x"), Err(Status::RemoteBadDestQpn));
    let mut bench = Bench::new();
    bench.post_recv(1, &[bench.sge(0, 100)]);
    assert_eq!(bench.deliver(datagram(&bench), b"x"), Ok(()));
    assert_eq!(bench.poll(), []);
    assert_eq!(bench.objects.counters.ud_drops, 1);
}

#[test]
fn without_a_receive_the_sender_is_told_receiver_not_ready() {
    let mut bench = Bench::new();
    assert_eq!(bench.deliver(bench.send_op(), b"x"), Err(Status::RemoteRnr));
    assert_eq!(bench.objects.counters.rnr_refused, 1);
    assert_eq!(bench.objects.qp(0).counters.rnr_refused, 1);
}

#[test]
fn a_receive_too_short_is_not_consumed() {
    let mut bench = Bench::new();
    bench.post_recv(1, &[bench.sge(0, 4), bench.sge(4, 4)]);
    assert_eq!(bench.deliver(bench.send_op(), &[0; 9]), Err(Status::RemoteBadLength));
    assert_eq!(bench.poll(), []);
    bench.deliver(bench.send_op(), &[1; 8]).unwrap();
    assert_eq!(bench.poll(), [(1, Status::Ok)]);
}

#[test]
fn a_receive_whose_key_is_bad_fails_and_the_next_one_takes_the_message() {
    let mut bench = Bench::new();
    let read_only = bench.objects.reg_mr(bench.pd, bench.addr, 64, bench.addr, Access::default()).unwrap();
    bench.post_recv(1, &[Sge { lkey: read_only, ..bench.sge(0, 64) }]);
    bench.post_recv(2, &[bench.sge(0, 64)]);
    bench.deliver(bench.send_op(), b"x").unwrap();
    assert_eq!(bench.poll(), [(1, Status::LocalInvalidLkey), (2, Status::Ok)]);
}

#[test]
fn receives_are_taken_in_order_and_an_abandoned_one_comes_back_to_the_front() {
    let mut bench = Bench::new();
    (1..=3).for_each(|wr_id| bench.post_recv(wr_id, &[bench.sge(64 * wr_id, 64)]));
    let message = bench.incoming(bench.send_op(), 10);
    let first = bench.objects.begin(&message, None).unwrap();
    bench.deliver(bench.send_op(), b"second").unwrap();
    bench.objects.abandon(first, &message);
    bench.deliver(bench.send_op(), b"third").unwrap();
    bench.deliver(bench.send_op(), b"fourth").unwrap();
    assert_eq!(bench.poll(), [(2, Status::Ok), (1, Status::Ok), (3, Status::Ok)]);
}

#[test]
fn receives_give_back_in_the_order_taken_keep_their_order() {
    let mut bench = Bench::new();
    (1..=2).for_each(|wr_id| bench.post_recv(wr_id, &[bench.sge(64 * wr_id, 64)]));
    let message = bench.incoming(bench.send_op(), 10);
    let first = bench.objects.begin(&message, None).unwrap();
    let second = bench.objects.begin(&message, None).unwrap();
    bench.objects.abandon(first, &message);
    bench.objects.abandon(second, &message);
    bench.deliver(bench.send_op(), b"x").unwrap();
    assert_eq!(bench.poll(), [(1, Status::Ok)]);
}

#[test]
fn where_it_is_wanted_the_receive_posted_last_is_taken_first() {
    let mut bench = Bench::new();
    let index = bench.objects.qp_index(bench.qpn).unwrap();
    bench.objects.qp_mut(index).rq.take_newest_first();
    (1..=3).for_each(|wr_id| bench.post_recv(wr_id, &[bench.sge(64 * wr_id, 64)]));
    let message = bench.incoming(bench.send_op(), 10);
    let first = bench.objects.begin(&message, None).unwrap();
    bench.deliver(bench.send_op(), b"second").unwrap();
    // It comes back before those that were posted before it, and behind one that is posted now.
    bench.objects.abandon(first, &message);
    bench.post_recv(4, &[bench.sge(0, 64)]);
    (0..3).for_each(|_| bench.deliver(bench.send_op(), b"later").unwrap());
    assert_eq!(bench.poll(), [(2, Status::Ok), (4, Status::Ok), (3, Status::Ok), (1, Status::Ok)]);
}

#[test]
fn segments_are_placed_in_any_order() {
    let mut bench = Bench::new();
    bench.post_recv(1, &[bench.sge(0, 5), bench.sge(100, 20)]);
    let message = bench.incoming(bench.send_op(), 12);
    let cookie = bench.objects.begin(&message, None).unwrap();
    bench.objects.place(cookie, &message, 8, &VecPayload::from(&b"IJKL"[..]));
    bench.objects.place(cookie, &message, 0, &VecPayload::from(&b"ABCD"[..]));
    bench.objects.place(cookie, &message, 4, &VecPayload::from(&b"EFGH"[..]));
    assert_eq!(bench.poll(), []);
    bench.objects.finish(cookie, &message).unwrap();
    assert_eq!(bench.poll(), [(1, Status::Ok)]);
    assert_eq!((bench.memory(0, 5), bench.memory(100, 7)), (&b"ABCDE"[..], &b"FGHIJKL"[..]));
}

#[test]
fn deregistering_the_memory_of_a_half_filled_receive_fails_it_and_refuses_the_message() {
    let mut bench = Bench::new();
    bench.post_recv(1, &[bench.sge(0, 64)]);
    let message = bench.incoming(bench.send_op(), 10);
    let cookie = bench.objects.begin(&message, None).unwrap();
    bench.objects.dereg_mr(&mut bench.transport, bench.key).unwrap();
    assert_eq!(bench.poll(), [(1, Status::LocalInvalidLkey)]);
    bench.objects.place(cookie, &message, 0, &VecPayload::from(&b"0123456789"[..]));
    assert_eq!(bench.memory(0, 10), [0; 10]);
    assert_eq!(bench.objects.finish(cookie, &message), Err(Status::RemoteBadAddress));
}

#[test]
fn a_datagram_lies_behind_forty_bytes_of_routing_header() {
    let mut bench = Bench::with(DeviceConfig::default(), ud);
    bench.post_recv(1, &[bench.sge(0, 30), bench.sge(100, 15)]);
    bench.deliver(datagram(&bench), b"hello").unwrap();
    let completion = bench.poll_all()[0];
    assert_eq!((completion.wr_id, completion.byte_len), (1, 45));
    let area = [bench.memory(0, 30), bench.memory(100, 15)].concat();
    assert_eq!(&area[40..], b"hello");
    assert_eq!(area[0] >> 4, 6);
    assert_eq!(area[4..6], 5u16.to_be_bytes());
    assert_eq!(area[8..24], peer_gid().0);
    assert_eq!(area[24..40], bench.objects.gid.0);
}

#[test]
fn a_datagram_without_a_place_is_dropped_silently_and_counted() {
    let mut bench = Bench::with(DeviceConfig::default(), ud);
    assert_eq!(bench.deliver(datagram(&bench), b"no receive"), Ok(()));
    bench.post_recv(1, &[bench.sge(0, 44)]);
    assert_eq!(bench.deliver(datagram(&bench), b"too long by one"), Ok(()));
    let route = Route { qkey: Qkey(1), ..bench.route() };
    assert_eq!(bench.deliver(Op::Send { route, imm: None, datagram: true }, b"key"), Ok(()));
    let route = Route { dst_qpn: Qpn(99), ..bench.route() };
    assert_eq!(bench.deliver(Op::Send { route, imm: None, datagram: true }, b"qpn"), Ok(()));
    assert_eq!(bench.poll(), []);
    assert_eq!((bench.objects.counters.ud_drops, bench.objects.counters.rx_drops), (4, 4));
    assert_eq!(bench.objects.qp(0).counters.dropped, 3);
    bench.deliver(datagram(&bench), b"four").unwrap();
    assert_eq!(bench.poll(), [(1, Status::Ok)]);
}

#[test]
fn a_sign_of_life_is_let_in_and_not_counted_as_a_drop() {
    let mut bench = Bench::new();
    let route = Route { dst_qpn: Qpn(0), ..bench.route() };
    assert_eq!(bench.deliver(Op::Send { route, imm: None, datagram: true }, b""), Ok(()));
    assert_eq!(bench.objects.counters.rx_drops, 0);
}

#[test]
fn a_write_goes_to_memory_and_completes_nothing_at_the_responder() {
    let mut bench = Bench::new();
    bench.post_recv(1, &[]);
    bench.deliver(write_op(&bench, None), b"written").unwrap();
    assert_eq!(bench.memory(1000, 7), b"written");
    assert_eq!(bench.poll(), []);
    assert_eq!(bench.objects.counters.rdma_write_recv_bytes, 7);
}

#[test]
fn rdma_needs_a_handle_of_the_requester() {
    let mut bench = Bench::new();
    bench.objects.destroy_ah(&mut bench.transport, bench.pd, bench.ah).unwrap();
    assert_eq!(bench.deliver(write_op(&bench, None), b"x"), Err(Status::UnknownPeer));
    assert_eq!(bench.deliver(read_op(&bench, 1), b""), Err(Status::UnknownPeer));
    bench.objects.create_ah(bench.pd, peer_gid()).unwrap();
    assert_eq!(bench.deliver(write_op(&bench, None), b"x"), Ok(()));
}

#[test]
fn rdma_that_the_device_does_not_offer_is_a_feature_mismatch() {
    let config = DeviceConfig { rdma_read: false, rdma_write: false, ..DeviceConfig::default() };
    let mut bench =
        Bench::with(config, |pd, cq| QpInit { rdma_read: false, rdma_write: false, ..srd(pd, cq) });
    assert_eq!(bench.deliver(write_op(&bench, None), b"x"), Err(Status::FeatureMismatch));
    assert_eq!(bench.deliver(read_op(&bench, 1), b""), Err(Status::FeatureMismatch));
}

#[test]
fn rdma_checks_key_bounds_access_and_domain() {
    let mut bench = Bench::new();
    let (addr, pd) = (bench.addr, bench.pd);
    let other_pd = bench.objects.alloc_pd().unwrap();
    let foreign = bench.objects.reg_mr(other_pd, addr, 4096, addr, ALL).unwrap();
    let local = Access { local_write: true, ..Access::default() };
    let private = bench.objects.reg_mr(pd, addr, 4096, addr, local).unwrap();
    let read_only = Access { remote_read: true, ..Access::default() };
    let readable = bench.objects.reg_mr(pd, addr, 4096, addr, read_only).unwrap();
    let gone = bench.objects.reg_mr(pd, addr, 4096, addr, ALL).unwrap();
    bench.objects.dereg_mr(&mut bench.transport, gone).unwrap();
    let route = bench.route();
    let refused = Err(Status::RemoteBadAddress);
    let end = addr + (1 << 16);
    for (rkey, at) in [
        (foreign, addr),
        (private, addr),
        (gone, addr),
        (MrKey(0), addr),
        (MrKey(0xFF_FFFF), addr),
        (bench.key, end - 3),
        (bench.key, addr - 1),
        (bench.key, u64::MAX),
    ] {
        let write = Op::Write { route, rkey, addr: at, imm: None };
        assert_eq!(bench.deliver(write, b"four"), refused, "{rkey:?} {at:#x}");
        let read = Op::ReadRequest { route, rkey, addr: at, read_len: 4, read: 1 };
        assert_eq!(bench.deliver(read, b""), refused, "{rkey:?} {at:#x}");
    }
    let write = Op::Write { route, rkey: readable, addr, imm: None };
    assert_eq!(bench.deliver(write, b"four"), refused);
    let read = Op::ReadRequest { route, rkey: readable, addr, read_len: 4, read: 1 };
    assert_eq!(bench.deliver(read, b""), Ok(()));
    let write = Op::Write { route, rkey: bench.key, addr: end - 4, imm: None };
    assert_eq!(bench.deliver(write, b"four"), Ok(()));
    // Without bytes the key does not matter.
    let write = Op::Write { route, rkey: MrKey(0), addr: 0, imm: None };
    assert_eq!(bench.deliver(write, b""), Ok(()));
}

#[test]
fn rdma_to_a_wrong_queue_pair_is_bad_dest_qpn() {
    let mut bench = Bench::new();
    let route = Route { qkey: Qkey(1), ..bench.route() };
    let write = Op::Write { route, rkey: bench.key, addr: bench.addr, imm: None };
    assert_eq!(bench.deliver(write, b"x"), Err(Status::RemoteBadDestQpn));
    let read = Op::ReadRequest { route, rkey: bench.key, addr: bench.addr, read_len: 1, read: 1 };
    assert_eq!(bench.deliver(read, b""), Err(Status::RemoteBadDestQpn));
}

#[test]
fn a_write_with_immediate_consumes_a_receive() {
    let mut bench = Bench::new();
    assert_eq!(bench.deliver(write_op(&bench, Some(9)), b"x"), Err(Status::RemoteRnr));
    bench.post_recv(5, &[]);
    bench.deliver(write_op(&bench, Some(9)), b"imm").unwrap();
    let completion = bench.poll_all()[0];
    assert_eq!((completion.wr_id, completion.op), (5, CompletionOp::RecvRdmaWithImm));
    assert_eq!((completion.imm, completion.byte_len, completion.unsolicited), (Some(9), 3, false));
    assert_eq!((completion.src_qpn, completion.src_ah), (PEER_QPN, bench.ah));
    assert_eq!(bench.objects.qp(0).rq.used, 0);
}

#[test]
fn an_abandoned_write_with_immediate_gives_its_receive_back() {
    let mut bench = Bench::new();
    bench.post_recv(5, &[]);
    let message = bench.incoming(write_op(&bench, Some(9)), 10);
    let cookie = bench.objects.begin(&message, None).unwrap();
    bench.objects.abandon(cookie, &message);
    bench.deliver(bench.send_op(), b"").unwrap();
    assert_eq!(bench.poll(), [(5, Status::Ok)]);
}

#[test]
fn an_unsolicited_write_with_immediate_consumes_no_receive() {
    let init = |pd, cq| QpInit { unsolicited_write_recv: true, ..srd(pd, cq) };
    let mut bench = Bench::with(DeviceConfig::default(), init);
    bench.deliver(write_op(&bench, Some(9)), b"imm").unwrap();
    let completion = bench.poll_all()[0];
    assert_eq!((completion.wr_id, completion.op), (0, CompletionOp::RecvRdmaWithImm));
    assert_eq!((completion.imm, completion.byte_len, completion.unsolicited), (Some(9), 3, true));
}

#[test]
fn deregistering_memory_stops_a_write_that_is_under_way() {
    let mut bench = Bench::new();
    bench.post_recv(5, &[]);
    let message = bench.incoming(write_op(&bench, Some(1)), 8);
    let cookie = bench.objects.begin(&message, None).unwrap();
    bench.objects.dereg_mr(&mut bench.transport, bench.key).unwrap();
    bench.objects.place(cookie, &message, 0, &VecPayload::from(&[1; 8][..]));
    assert_eq!(bench.memory(1000, 8), [0; 8]);
    assert_eq!(bench.objects.finish(cookie, &message), Err(Status::RemoteBadAddress));
    assert_eq!(bench.poll(), [(5, Status::Flushed)]);
}

#[test]
fn a_read_request_is_answered_with_the_bytes() {
    let mut bench = Bench::new();
    bench.objects.memory.at_mut(bench.addr + 1000, 5).copy_from_slice(b"bytes");
    bench.deliver(read_op(&bench, 5), b"").unwrap();
    let answer = bench.transport.open[0].clone();
    assert_eq!(answer.op, Op::ReadResponse { read: 77 });
    assert_eq!(answer.payload.as_slice(), b"bytes");
    bench.outcome(Ok(()));
    assert_eq!(bench.objects.counters.rdma_read_resp_bytes, 5);
    assert_eq!(bench.objects.read_responses.len(), 0);
    assert_eq!(bench.poll(), []);
}

#[test]
fn a_read_longer_than_the_device_allows_is_refused() {
    let mut bench = Bench::with(DeviceConfig { max_rdma: 100, ..DeviceConfig::default() }, srd);
    assert_eq!(bench.deliver(read_op(&bench, 101), b""), Err(Status::RemoteBadLength));
    assert_eq!(bench.deliver(read_op(&bench, 100), b""), Ok(()));
}

#[test]
fn an_answer_that_finds_the_transport_full_is_sent_later() {
    let mut bench = Bench::new();
    bench.transport.refuse = Some(SendError::Full);
    bench.deliver(read_op(&bench, 5), b"").unwrap();
    assert!(bench.transport.open.is_empty());
    bench.transport.refuse = None;
    let due = bench.objects.deferred.next_due();
    bench.advance_to(due);
    assert_eq!(bench.transport.open[0].op, Op::ReadResponse { read: 77 });
}

/// Further reads come back: nobody's fail, and what is kept for whoever takes no answers is bounded.
#[test]
fn a_peer_has_so_many_reads_answered_at_once() {
    let mut bench = Bench::new();
    for _ in 0..MAX_READ_RESPONSES_OF_PEER {
        bench.deliver(read_op(&bench, 5), b"").unwrap();
    }
    assert_eq!(bench.deliver(read_op(&bench, 5), b""), Err(Status::RemoteRnr));
    assert_eq!(bench.objects.counters.answers_kept, MAX_READ_RESPONSES_OF_PEER as u64);
    bench.outcome(Ok(()));
    assert_eq!(bench.deliver(read_op(&bench, 5), b""), Ok(()));
    assert_eq!(bench.deliver(read_op(&bench, 5), b""), Err(Status::RemoteRnr));
    while !bench.transport.open.is_empty() {
        bench.outcome(Ok(()));
    }
    assert_eq!(bench.objects.counters.answers_kept, 0);
    assert_eq!((bench.objects.read_responses.len(), bench.objects.read_responses_of[0]), (0, 0));
}

#[test]
fn a_requester_is_told_when_its_answer_cannot_be_given_any_more() {
    type End = fn(&mut Bench);
    let cases: [(End, Status); 3] = [
        (|bench| bench.objects.dereg_mr(&mut bench.transport, bench.key).unwrap(), Status::RemoteBadAddress),
        (
            |bench| bench.objects.destroy_qp(&mut bench.transport, bench.qpn).unwrap(),
            Status::RemoteBadDestQpn,
        ),
        (|bench| bench.modify(state(QpState::Err)).unwrap(), Status::RemoteBadDestQpn),
    ];
    for (end, status) in cases {
        let mut bench = Bench::new();
        bench.deliver(read_op(&bench, 5), b"").unwrap();
        end(&mut bench);
        assert_eq!(bench.transport.cancelled.len(), 1);
        let ops: Vec<Op> = bench.transport.open.iter().map(|message| message.op).collect();
        assert_eq!(ops, [Op::ReadFailed { read: 77, status }]);
        assert_eq!(bench.objects.read_responses.len(), 0);
        bench.outcome(Ok(()));
    }
}

#[test]
fn a_requester_that_seemed_dead_is_told_that_its_answer_is_lost() {
    let mut bench = Bench::new();
    bench.deliver(read_op(&bench, 5), b"").unwrap();
    bench.outcome(Err(Status::Unresponsive));
    assert_eq!(bench.transport.open[0].op, Op::ReadFailed { read: 77, status: Status::Unresponsive });
    // And no more than once.
    bench.outcome(Err(Status::Unresponsive));
    assert!(bench.transport.open.is_empty());
}

/// Whoever knows the queue key of a well-known queue pair gets buffers for messages that come in parts, but never all of them.
#[test]
fn half_messages_of_strangers_leave_half_of_a_well_known_queue_pairs_receives_to_others() {
    let mut bench = Bench::new();
    (0..16).for_each(|wr_id| bench.post_recv(wr_id, &[bench.sge(64 * wr_id, 64)]));
    let message = bench.incoming(bench.send_op(), 10);
    let (proven, unproven) = (Some(Stranger::Proven), Some(Stranger::Unproven));
    let begun = |bench: &mut Bench, of| {
        let cookies = std::iter::from_fn(|| bench.objects.begin(&message, of).ok());
        cookies.collect::<Vec<_>>()
    };
    bench.objects.qp_mut(0).well_known = true;
    let op = bench.send_op();
    assert!(bench.objects.trusts(&op, false) && !bench.objects.trusts(&op, true));
    let forged = begun(&mut bench, unproven);
    assert_eq!(forged.len(), 4);
    assert!(!bench.objects.trusts(&op, false), "newcomers are asked first");
    assert_eq!(begun(&mut bench, proven).len(), 4);
    bench.deliver(op, b"all of it").unwrap();
    assert_eq!(begun(&mut bench, None).len(), 7, "named peers have the rest");
    // What is over counts no more: arrived, given up, or flushed with its queue pair.
    bench.objects.abandon(forged[0], &message);
    // (Nor does its receive, whatever takes that next.)
    let write = bench.incoming(write_op(&bench, Some(1)), 10);
    let taken = bench.objects.begin(&write, None).unwrap();
    bench.objects.abandon(taken, &write);
    assert_eq!(begun(&mut bench, proven).len(), 1);
    bench.objects.finish(forged[1], &message).unwrap();
    bench.modify(state(QpState::Err)).unwrap();
    assert_eq!(bench.objects.qp(0).rq.lent(), (0, 0));
    // Elsewhere they are as good as anybody's.
    let mut bench = Bench::new();
    (0..16).for_each(|wr_id| bench.post_recv(wr_id, &[bench.sge(64 * wr_id, 64)]));
    assert_eq!(begun(&mut bench, unproven).len(), 16);
}
