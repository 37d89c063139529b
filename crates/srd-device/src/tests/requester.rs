//! Send work requests: what is refused where, retries, reads, lost peers.

use super::*;
use crate::send_queue::WAITS_PER_RETRY;
use srd_proto::{Payload, PeerLoss};

const READ: SendOp = SendOp::Read { rkey: MrKey(0x55), addr: 0x9000 };

#[test]
fn a_message_names_the_instance_by_host_and_queue_pair_number() {
    let mut bench = Bench::new();
    bench.objects.memory.at_mut(bench.addr, 8).copy_from_slice(b"abcdefgh");
    let (a, b) = (bench.sge(4, 4), bench.sge(0, 4));
    bench.post(1, SendOp::Send { imm: Some(7) }, &[a, b]).unwrap();
    let message = bench.transport.open[0].clone();
    assert_eq!(bench.transport.peers, [(0, peer_addr())]);
    assert_eq!(message.payload.as_slice(), b"efghabcd");
    let route = Route { dst_qpn: PEER_QPN, src_qpn: bench.qpn, qkey: QKEY };
    assert_eq!(message.op, Op::Send { route, imm: Some(7), datagram: false });
}

#[test]
fn what_the_library_refuses_is_not_posted() {
    let mut bench = Bench::new();
    let sge = bench.sge(0, 1);
    assert!(matches!(bench.post(1, SEND, &[sge; 3]), Err(DeviceError::Invalid(_))));
    assert!(matches!(bench.post(1, READ, &[sge; 2]), Err(DeviceError::Invalid(_))));
    let write = SendOp::Write { rkey: MrKey(1), addr: 0, imm: None };
    assert!(matches!(bench.post(1, write, &[sge; 2]), Err(DeviceError::Invalid(_))));
    let mut inline = |op, bytes: &[u8]| {
        let wr = bench.wr(1, op, SendData::Inline(bytes));
        bench.objects.post_send(&mut bench.transport, bench.qpn, &wr)
    };
    assert!(matches!(inline(SEND, &[0; 33]), Err(DeviceError::Invalid(_))));
    assert!(matches!(inline(READ, &[0; 4]), Err(DeviceError::Invalid(_))));
    inline(SEND, &[5; 32]).unwrap();
    inline(write, &[6; 3]).unwrap();
    assert_eq!(bench.transport.open[0].payload.as_slice(), [5; 32]);
    assert_eq!(bench.transport.open[1].payload.as_slice(), [6; 3]);
    let three = RecvWr { wr_id: 1, sges: &[sge; 3] };
    assert!(matches!(bench.objects.post_recv(bench.qpn, &three), Err(DeviceError::Invalid(_))));
}

#[test]
fn what_the_device_refuses_completes_with_its_status() {
    let mut bench = Bench::new();
    let config = DeviceConfig::default();
    let read_only = bench.objects.reg_mr(bench.pd, bench.addr, 4096, bench.addr, Access::default()).unwrap();
    let mut elsewhere = bench.objects.alloc_pd().unwrap();
    std::mem::swap(&mut elsewhere, &mut bench.pd);
    let foreign = bench.objects.reg_mr(bench.pd, bench.addr, 4096, bench.addr, ALL).unwrap();
    let sge = |lkey| Sge { addr: bench.addr, len: 8, lkey };
    let (own, bad, read_only, foreign) = (sge(bench.key), sge(MrKey(99)), sge(read_only), sge(foreign));
    let long = Sge { len: config.max_msg + 1, ..own };
    let longer = Sge { len: config.max_rdma + 1, ..own };
    let past = Sge { addr: bench.addr + (1 << 16) - 4, ..own };
    let write = SendOp::Write { rkey: MrKey(1), addr: 0, imm: None };
    let cases = [
        (SEND, bad, Status::LocalInvalidLkey),
        (SEND, foreign, Status::LocalInvalidLkey),
        (SEND, past, Status::LocalInvalidLkey),
        (SEND, long, Status::LocalBadLength),
        (READ, longer, Status::LocalBadLength),
        (write, longer, Status::LocalBadLength),
        (READ, read_only, Status::LocalInvalidLkey),
    ];
    for (op, sge, status) in cases {
        bench.post(1, op, &[sge]).unwrap();
        assert_eq!(bench.poll(), [(1, status)], "{op:?} {sge:?}");
    }
    bench.post(1, SEND, &[read_only]).unwrap();
    assert_eq!(bench.poll(), []);
    let wr = SendWr { ah: AhNumber(77), ..bench.wr(2, SEND, SendData::Sges(&[])) };
    bench.objects.post_send(&mut bench.transport, bench.qpn, &wr).unwrap();
    assert_eq!(bench.poll(), [(2, Status::LocalInvalidAh)]);
    assert_eq!(bench.objects.counters.send_wr_err, 8);
    assert_eq!(bench.objects.counters.rdma_read_wr_err, 2);
    assert_eq!(bench.objects.counters.rdma_write_wr_err, 1);
}

#[test]
fn rdma_that_a_queue_pair_was_not_made_for_is_unsupported() {
    let write = SendOp::Write { rkey: MrKey(1), addr: 0, imm: None };
    for make in [ud, |pd, cq| QpInit { rdma_read: false, rdma_write: false, ..srd(pd, cq) }] {
        let mut bench = Bench::with(DeviceConfig::default(), make);
        bench.post(1, READ, &[]).unwrap();
        bench.post(2, write, &[]).unwrap();
        assert_eq!(bench.poll(), [(1, Status::LocalUnsupportedOp), (2, Status::LocalUnsupportedOp)]);
    }
}

#[test]
fn an_element_without_bytes_needs_no_key() {
    let mut bench = Bench::new();
    bench.post(1, SEND, &[Sge { lkey: MrKey(99), ..Sge::default() }]).unwrap();
    assert!(bench.transport.open[0].payload.is_empty());
}

#[test]
fn completions_come_as_outcomes_come_not_as_posted() {
    let mut bench = Bench::new();
    (1..=3).for_each(|wr_id| bench.post(wr_id, SEND, &[]).unwrap());
    bench.transport.open.swap(0, 2);
    (0..3).for_each(|_| bench.outcome(Ok(())));
    assert_eq!(bench.poll(), [(3, Status::Ok), (2, Status::Ok), (1, Status::Ok)]);
}

#[test]
fn a_remote_error_fails_only_that_work_request() {
    let mut bench = Bench::new();
    (1..=3).for_each(|wr_id| bench.post(wr_id, SEND, &[]).unwrap());
    bench.outcome(Ok(()));
    bench.outcome(Err(Status::RemoteBadDestQpn));
    bench.outcome(Ok(()));
    let expected = [(1, Status::Ok), (2, Status::RemoteBadDestQpn), (3, Status::Ok)];
    assert_eq!(bench.poll(), expected);
    assert_eq!(bench.objects.query_qp(bench.qpn).unwrap().state, QpState::Rts);
    bench.post(4, SEND, &[]).unwrap();
}

#[test]
fn a_status_that_makes_no_sense_is_remote_bad_status() {
    let mut bench = Bench::new();
    bench.post(1, SEND, &[]).unwrap();
    bench.outcome(Err(Status::LocalInvalidLkey));
    assert_eq!(bench.poll(), [(1, Status::RemoteBadStatus)]);
}

#[test]
fn without_a_receive_buffer_a_message_is_sent_again_with_doubling_waits() {
    let mut bench = Bench::new();
    bench.modify(state(QpState::Reset)).unwrap();
    let init = QpModify { qkey: Some(QKEY), pkey_index: Some(0), port: Some(1), ..state(QpState::Init) };
    let rts = QpModify { sq_psn: Some(0), rnr_retry: Some(3), ..state(QpState::Rts) };
    for change in [init, state(QpState::Rtr), rts] {
        bench.modify(change).unwrap();
    }
    bench.post(1, SendOp::Send { imm: Some(5) }, &[bench.sge(0, 10)]).unwrap();
    let first = bench.transport.open[0].clone();
    let (wait, longest) = (bench.objects.config.rnr_wait, bench.objects.config.rnr_wait_max);
    let shorter = (0..).take_while(|&retry| Nanos(wait.0 << retry) < longest).count() as u64;
    let mut now = Time(1_000_000);
    let retries = shorter + 3 * WAITS_PER_RETRY as u64;
    for retry in 0..retries {
        bench.objects.now = now;
        bench.outcome(Err(Status::RemoteRnr));
        assert!(bench.transport.open.is_empty());
        now += Nanos(wait.0 << retry.min(32)).min(longest);
        assert_eq!(bench.objects.deferred.next_due(), now, "retry {retry}");
        bench.advance_to(now);
        let again = &bench.transport.open[0];
        assert_eq!((again.op, again.token), (first.op, first.token));
        assert_eq!(again.payload, first.payload);
    }
    bench.outcome(Err(Status::RemoteRnr));
    assert_eq!(bench.poll(), [(1, Status::RemoteRnr)]);
    assert_eq!(bench.objects.counters.rnr_retries, retries);
    assert_eq!(bench.objects.deferred.next_due(), Time::NEVER);
}

#[test]
fn rnr_retry_seven_never_gives_up_and_waits_are_bounded() {
    let mut bench = Bench::new();
    bench.post(1, SEND, &[]).unwrap();
    let mut now = Time(0);
    for _ in 0..100 {
        bench.objects.now = now;
        bench.outcome(Err(Status::RemoteRnr));
        let due = bench.objects.deferred.next_due();
        assert!(due.since(now) <= bench.objects.config.rnr_wait_max);
        now = due;
        bench.advance_to(now);
    }
    bench.outcome(Ok(()));
    assert_eq!(bench.poll(), [(1, Status::Ok)]);
}

#[test]
fn without_the_capability_there_are_no_retries() {
    let config = DeviceConfig { rnr_retry: false, ..DeviceConfig::default() };
    let mut bench = Bench::with(config, srd);
    bench.post(1, SEND, &[]).unwrap();
    bench.outcome(Err(Status::RemoteRnr));
    assert_eq!(bench.poll(), [(1, Status::RemoteRnr)]);
}

#[test]
fn a_full_transport_refuses_the_post_and_leaves_nothing_behind() {
    let mut bench = Bench::new();
    bench.transport.refuse = Some(SendError::Full);
    for _ in 0..100 {
        assert!(matches!(bench.post(1, SEND, &[]), Err(DeviceError::Full(_))));
    }
    bench.transport.refuse = None;
    (0..16).for_each(|wr_id| bench.post(wr_id, SEND, &[]).unwrap());
    assert_eq!(bench.objects.requests.len(), 16);
}

#[test]
fn a_retry_that_finds_the_transport_full_is_tried_again() {
    let mut bench = Bench::new();
    bench.post(1, SEND, &[]).unwrap();
    bench.outcome(Err(Status::RemoteRnr));
    bench.transport.refuse = Some(SendError::Full);
    let due = bench.objects.deferred.next_due();
    bench.advance_to(due);
    assert!(bench.transport.open.is_empty());
    bench.transport.refuse = None;
    let due = bench.objects.deferred.next_due();
    bench.advance_to(due);
    bench.outcome(Ok(()));
    assert_eq!(bench.poll(), [(1, Status::Ok)]);
}

#[test]
fn a_context_that_has_ended_is_made_anew() {
    let mut bench = Bench::new();
    bench.post(1, SEND, &[]).unwrap();
    let old = bench.transport.open[0].peer;
    bench.outcome(Ok(()));
    bench.transport.ended.push(old);
    bench.transport.generation += 1;
    bench.post(2, SEND, &[]).unwrap();
    assert_ne!(bench.transport.open[0].peer, old);
}

#[test]
fn a_datagram_completes_well_whatever_becomes_of_it() {
    for outcome in [Ok(()), Err(Status::Unreachable), Err(Status::RemoteBadDestQpn)] {
        let mut bench = Bench::with(DeviceConfig::default(), ud);
        bench.post(1, SEND, &[]).unwrap();
        assert!(matches!(bench.transport.open[0].op, Op::Send { datagram: true, .. }));
        bench.outcome(outcome);
        assert_eq!(bench.poll(), [(1, Status::Ok)]);
    }
}

/// UCX deregisters the memory of datagrams that it has posted, and takes an error for the end of everything
/// (its `test_uct_ep.destroy_entity_after_send`).
#[test]
fn a_datagram_completes_when_it_is_posted_and_its_memory_may_go() {
    let mut bench = Bench::with(DeviceConfig::default(), ud);
    let (addr, key) = (bench.addr, bench.key);
    bench.objects.memory.at_mut(addr, 64).fill(7);
    bench.post(1, SEND, &[bench.sge(0, 64)]).unwrap();
    assert_eq!(bench.poll(), [(1, Status::Ok)]);
    bench.objects.memory.at_mut(addr, 64).fill(8);
    bench.objects.dereg_mr(&mut bench.transport, key).unwrap();
    assert_eq!(bench.transport.open[0].payload.as_slice(), [7; 64], "it is still to be sent");
    bench.outcome(Err(Status::Unreachable));
    assert_eq!(bench.poll(), [], "once is enough");
}

#[test]
fn datagrams_beyond_those_of_a_queue_complete_when_they_are_over() {
    let mut bench = Bench::with(DeviceConfig::default(), ud);
    for wr_id in 0..16 {
        bench.post(wr_id, SEND, &[]).unwrap();
    }
    assert_eq!(bench.poll().len(), 16);
    bench.post(16, SEND, &[]).unwrap();
    assert_eq!(bench.poll(), []);
    (0..17).for_each(|_| bench.outcome(Ok(())));
    assert_eq!(bench.poll(), [(16, Status::Ok)]);
    bench.post(17, SEND, &[]).unwrap();
    assert_eq!(bench.poll(), [(17, Status::Ok)]);
}

/// Posts a read of `len` bytes to the start of the bench's memory and returns the name that the peer knows it by.
fn post_read(bench: &mut Bench, wr_id: u64, len: u32) -> u32 {
    bench.post(wr_id, READ, &[bench.sge(0, len)]).unwrap();
    match bench.transport.open.last().unwrap().op {
        Op::ReadRequest { rkey: MrKey(0x55), addr: 0x9000, read_len, read, .. } => {
            assert_eq!(read_len, len);
            read
        }
        op => panic!("{op:?}"),
    }
}

#[test]
fn a_read_completes_when_all_its_bytes_are_there() {
    let mut bench = Bench::new();
    let read = post_read(&mut bench, 1, 100);
    assert!(bench.transport.open[0].payload.is_empty());
    bench.outcome(Ok(()));
    assert_eq!(bench.poll(), []);
    let message = bench.incoming(Op::ReadResponse { read }, 100);
    let cookie = bench.objects.begin(&message, None).unwrap();
    bench.objects.place(cookie, &message, 60, &VecPayload::from(&[2; 40][..]));
    assert_eq!(bench.poll(), []);
    bench.objects.place(cookie, &message, 0, &VecPayload::from(&[1; 60][..]));
    bench.objects.finish(cookie, &message).unwrap();
    assert_eq!(bench.poll(), [(1, Status::Ok)]);
    assert_eq!((bench.memory(0, 60), bench.memory(60, 40)), (&[1; 60][..], &[2; 40][..]));
    assert_eq!(bench.objects.counters.rdma_read_bytes, 100);
}

#[test]
fn read_data_may_overtake_the_acknowledgement_of_its_request() {
    let mut bench = Bench::new();
    let read = post_read(&mut bench, 1, 3);
    bench.deliver(Op::ReadResponse { read }, b"abc").unwrap();
    assert_eq!(bench.poll(), [(1, Status::Ok)]);
    bench.post(2, SEND, &[]).unwrap(); // may take the slot of the read
    bench.outcome(Ok(()));
    assert_eq!(bench.poll(), []);
    bench.outcome(Ok(()));
    assert_eq!(bench.poll(), [(2, Status::Ok)]);
}

#[test]
fn a_refused_read_request_fails_the_read() {
    let mut bench = Bench::new();
    post_read(&mut bench, 1, 100);
    bench.outcome(Err(Status::RemoteBadAddress));
    assert_eq!(bench.poll(), [(1, Status::RemoteBadAddress)]);
}

#[test]
fn a_read_that_fails_after_it_was_accepted_fails() {
    let mut bench = Bench::new();
    let read = post_read(&mut bench, 1, 100);
    bench.outcome(Ok(()));
    // Half of it is there already; the rest of that touches nothing any more.
    let message = bench.incoming(Op::ReadResponse { read }, 100);
    let cookie = bench.objects.begin(&message, None).unwrap();
    bench.deliver(Op::ReadFailed { read, status: Status::RemoteBadAddress }, b"").unwrap();
    assert_eq!(bench.poll(), [(1, Status::RemoteBadAddress)]);
    bench.objects.place(cookie, &message, 0, &VecPayload::from(&[1; 100][..]));
    assert_eq!(bench.memory(0, 100), [0; 100]);
    assert_eq!(bench.objects.finish(cookie, &message), Err(Status::RemoteBadStatus));
    assert_eq!(bench.poll(), []);
}

#[test]
fn nobody_else_answers_a_read_nor_anybody_twice() {
    let mut bench = Bench::new();
    let read = post_read(&mut bench, 1, 100);
    bench.outcome(Ok(()));
    let honest = bench.incoming(Op::ReadResponse { read }, 100);
    let stranger = PeerId { slot: 5, generation: 0 };
    for wrong in [
        Incoming { peer: stranger, ..honest },
        Incoming { op: Op::ReadResponse { read: read ^ 1 << 30 }, ..honest },
        Incoming { op: Op::ReadResponse { read: read + 1 }, ..honest },
    ] {
        assert_eq!(bench.objects.begin(&wrong, None), Err(Status::RemoteBadStatus));
    }
    let failed = Incoming { peer: stranger, op: Op::ReadFailed { read, status: Status::Flushed }, ..honest };
    let _ = bench.objects.begin(&failed, None);
    bench.objects.begin(&honest, None).unwrap();
    assert_eq!(bench.objects.begin(&honest, None), Err(Status::RemoteBadStatus));
    assert_eq!(bench.poll(), []);
}

#[test]
fn a_read_answered_with_another_length_fails() {
    let mut bench = Bench::new();
    let read = post_read(&mut bench, 1, 100);
    bench.outcome(Ok(()));
    assert_eq!(bench.deliver(Op::ReadResponse { read }, &[0; 99]), Err(Status::RemoteBadStatus));
    assert_eq!(bench.poll(), [(1, Status::RemoteBadStatus)]);
}

#[test]
fn abandoned_read_data_may_come_again() {
    let mut bench = Bench::new();
    let read = post_read(&mut bench, 1, 4);
    bench.outcome(Ok(()));
    let message = bench.incoming(Op::ReadResponse { read }, 4);
    let cookie = bench.objects.begin(&message, None).unwrap();
    bench.objects.abandon(cookie, &message);
    assert_eq!(bench.poll(), []);
    bench.deliver(Op::ReadResponse { read }, b"data").unwrap();
    assert_eq!(bench.poll(), [(1, Status::Ok)]);
}

#[test]
fn reads_of_a_lost_peer_end_with_the_status_of_the_loss() {
    let cases = [
        (PeerLoss::Dead { answered_before: true }, Status::Unresponsive),
        (PeerLoss::Dead { answered_before: false }, Status::Unreachable),
        (PeerLoss::Restarted, Status::RemoteAbort),
        (PeerLoss::Incompatible, Status::FeatureMismatch),
    ];
    for (why, status) in cases {
        let mut bench = Bench::new();
        post_read(&mut bench, 1, 100);
        bench.outcome(Ok(()));
        bench.post(2, SEND, &[]).unwrap();
        bench.outcome(Err(Status::RemoteRnr));
        let peer = bench.peer();
        bench.objects.peer_lost(peer, 0, peer_addr(), why);
        assert_eq!(bench.poll(), [(1, status), (2, status)]);
        let event = bench.objects.poll_async_event();
        match why {
            PeerLoss::Dead { answered_before } => {
                let peer = peer_addr();
                assert_eq!(event, Some(AsyncEvent::RemoteUnresponsive { peer, answered_before }));
            }
            _ => assert_eq!(event, None),
        }
    }
}

#[test]
fn a_peer_that_owes_read_data_is_asked_for_a_sign_of_life() {
    let mut bench = Bench::new();
    let read = post_read(&mut bench, 1, 100);
    bench.outcome(Ok(()));
    for _ in 0..3 {
        let due = bench.objects.deferred.next_due();
        bench.advance_to(due);
        // One at a time, to the queue pair that nobody has.
        assert_eq!(bench.transport.open.len(), 1);
        let Op::Send { route, datagram: true, .. } = bench.transport.open[0].op else { panic!() };
        assert_eq!(route.dst_qpn, Qpn(0));
        let due = bench.objects.deferred.next_due();
        bench.advance_to(due);
        assert_eq!(bench.transport.open.len(), 1);
        bench.outcome(Ok(()));
    }
    bench.deliver(Op::ReadResponse { read }, &[1; 100]).unwrap();
    assert_eq!(bench.poll(), [(1, Status::Ok)]);
    // Nothing is owed any more: the questions end.
    let due = bench.objects.deferred.next_due();
    bench.advance_to(due);
    assert!(bench.transport.open.is_empty());
    assert_eq!(bench.objects.deferred.next_due(), Time::NEVER);
}

#[test]
fn deregistering_memory_ends_the_work_that_uses_it() {
    let mut bench = Bench::new();
    bench.post(1, SEND, &[bench.sge(0, 100)]).unwrap();
    let read = post_read(&mut bench, 2, 100);
    bench.post(3, SEND, &[]).unwrap();
    let message = bench.incoming(Op::ReadResponse { read }, 100);
    let cookie = bench.objects.begin(&message, None).unwrap();
    bench.objects.dereg_mr(&mut bench.transport, bench.key).unwrap();
    assert_eq!(bench.poll(), [(1, Status::LocalInvalidLkey), (2, Status::LocalInvalidLkey)]);
    assert!(bench.transport.cancelled.iter().all(|&token| is_request(token)));
    assert_eq!((bench.transport.cancelled.len(), bench.transport.open.len()), (2, 1));
    bench.objects.place(cookie, &message, 0, &VecPayload::from(&[1; 100][..]));
    assert_eq!(bench.memory(0, 100), [0; 100]);
}

/// libfabric's `efa` deregisters memory when its peer has told that all has come, which may be before the acknowledgement.
#[test]
fn what_has_left_is_kept_when_its_memory_goes() {
    let mut bench = Bench::new();
    bench.post(1, SEND, &[bench.sge(0, 100)]).unwrap();
    bench.post(2, SendOp::Write { rkey: MrKey(1), addr: 0, imm: None }, &[bench.sge(0, 100)]).unwrap();
    post_read(&mut bench, 3, 100);
    bench.transport.sent = true;
    bench.objects.dereg_mr(&mut bench.transport, bench.key).unwrap();
    assert_eq!(bench.poll(), [(3, Status::LocalInvalidLkey)], "what a read fetches has nowhere to go");
    bench.outcome(Err(Status::RemoteRnr));
    bench.outcome(Ok(()));
    assert_eq!(bench.poll(), [(2, Status::Ok)]);
    bench.advance_to(Time(bench.objects.deferred.next_due().0));
    bench.outcome(Ok(()));
    assert_eq!(bench.poll(), [(1, Status::Ok)], "sent again from the copy");
}
