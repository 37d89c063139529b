//! Objects, their rules of life, and queues.

use super::*;

#[test]
fn a_protection_domain_with_anything_in_it_is_busy() {
    let mut bench = Bench::new();
    let busy =
        |bench: &mut Bench| matches!(bench.objects.regions.dealloc_pd(bench.pd), Err(DeviceError::Busy(_)));
    assert!(busy(&mut bench));
    bench.objects.destroy_qp(&mut bench.transport, bench.qpn).unwrap();
    assert!(busy(&mut bench));
    bench.objects.dereg_mr(&mut bench.transport, bench.key).unwrap();
    assert!(busy(&mut bench));
    bench.objects.destroy_ah(&mut bench.transport, bench.pd, bench.ah).unwrap();
    bench.objects.regions.dealloc_pd(bench.pd).unwrap();
    assert!(matches!(bench.objects.regions.dealloc_pd(bench.pd), Err(DeviceError::NotFound(_))));
}

#[test]
fn a_completion_queue_in_use_is_busy() {
    let mut bench = Bench::new();
    assert!(matches!(bench.objects.destroy_cq(bench.cq), Err(DeviceError::Busy(_))));
    bench.objects.destroy_qp(&mut bench.transport, bench.qpn).unwrap();
    bench.objects.destroy_cq(bench.cq).unwrap();
    assert!(matches!(bench.objects.arm_cq(bench.cq, false), Err(DeviceError::NotFound(_))));
}

#[test]
fn a_notification_comes_once_and_goes_with_its_queue() {
    let mut bench = Bench::new();
    bench.objects.arm_cq(bench.cq, false).unwrap();
    bench.post_recv(1, &[]);
    bench.deliver(bench.send_op(), b"").unwrap();
    assert_eq!(bench.objects.poll_notification(), Some(bench.cq));
    assert_eq!(bench.objects.poll_notification(), None);
    bench.objects.arm_cq(bench.cq, false).unwrap();
    bench.post_recv(2, &[]);
    bench.deliver(bench.send_op(), b"").unwrap();
    bench.objects.destroy_qp(&mut bench.transport, bench.qpn).unwrap();
    bench.objects.destroy_cq(bench.cq).unwrap();
    assert_eq!(bench.objects.poll_notification(), None);
}

#[test]
fn a_disarmed_queue_notifies_nobody() {
    let mut bench = Bench::new();
    for already_fired in [false, true] {
        bench.objects.arm_cq(bench.cq, false).unwrap();
        if !already_fired {
            bench.objects.disarm_cq(bench.cq).unwrap();
        }
        bench.post_recv(1, &[]);
        bench.deliver(bench.send_op(), b"").unwrap();
        bench.objects.disarm_cq(bench.cq).unwrap();
        assert_eq!(bench.objects.poll_notification(), None);
    }
}

#[test]
fn an_alarm_rings_once_at_the_last_time_asked_for() {
    let mut bench = Bench::new();
    let mut ring_at = |times: &[u64], now: u64| {
        let objects = &mut bench.objects;
        times.iter().for_each(|&at| objects.set_alarm(bench.cq, Time(at)).unwrap());
        objects.now = Time(now);
        while let Some(work) = objects.deferred.pop_due(Time(now)) {
            objects.work(&mut bench.transport, work);
        }
        bench.objects.poll_notification()
    };
    assert_eq!(ring_at(&[100], 99), None);
    assert_eq!(ring_at(&[], 100), Some(bench.cq));
    assert_eq!(ring_at(&[], 200), None);
    assert_eq!(ring_at(&[300, 400, 500], 450), None);
    assert_eq!(ring_at(&[], 500), Some(bench.cq));
    assert_eq!(ring_at(&[900, 600], 700), Some(bench.cq));
    assert_eq!(ring_at(&[800, Time::NEVER.0], 1000), None);
}

#[test]
fn an_overrun_of_a_completion_queue_is_an_event_and_is_counted() {
    let mut bench = Bench::new();
    let small = bench.objects.create_cq(1).unwrap();
    let qpn = bench.another(QpInit { recv_cq: small, ..srd(bench.pd, bench.cq) });
    bench.qpn = qpn;
    for wr_id in 1..=3 {
        bench.post_recv(wr_id, &[]);
        bench.deliver(bench.send_op(), b"").unwrap();
    }
    assert_eq!(bench.objects.poll_async_event(), Some(AsyncEvent::CqOverrun(small)));
    assert_eq!(bench.objects.poll_async_event(), None);
    assert_eq!(bench.objects.counters.cq_overruns, 2);
    assert_eq!(bench.objects.poll_cq(small).unwrap().wr_id, 1);
    assert_eq!(bench.objects.poll_cq(small), None);
    // The slots of the lost ones are free.
    (0..16).for_each(|wr_id| bench.post_recv(wr_id, &[]));
}

#[test]
fn a_slot_is_free_when_its_completion_was_polled() {
    let mut bench = Bench::new();
    for wr_id in 0..16 {
        bench.post(wr_id, SEND, &[]).unwrap();
        bench.post_recv(wr_id, &[]);
    }
    for _ in 0..16 {
        bench.outcome(Ok(()));
        bench.deliver(bench.send_op(), b"").unwrap();
    }
    let recv = RecvWr { wr_id: 99, sges: &[] };
    assert!(matches!(bench.post(99, SEND, &[]), Err(DeviceError::Full(_))));
    assert!(matches!(bench.objects.post_recv(bench.qpn, &recv), Err(DeviceError::Full(_))));
    bench.objects.poll_cq(bench.cq).unwrap();
    bench.objects.poll_cq(bench.cq).unwrap();
    bench.post(99, SEND, &[]).unwrap();
    bench.objects.post_recv(bench.qpn, &recv).unwrap();
}

#[test]
fn what_the_device_does_not_offer_cannot_be_created() {
    let plain = DeviceConfig {
        rdma_read: false,
        rdma_write: false,
        unsolicited_write_recv: false,
        ..DeviceConfig::default()
    };
    let mut bench =
        Bench::with(plain, |pd, cq| QpInit { rdma_read: false, rdma_write: false, ..srd(pd, cq) });
    let none = QpInit { rdma_read: false, rdma_write: false, ..srd(bench.pd, bench.cq) };
    for init in [
        QpInit { rdma_read: true, ..none },
        QpInit { rdma_write: true, ..none },
        QpInit { unsolicited_write_recv: true, ..none },
    ] {
        assert!(matches!(bench.objects.create_qp(init), Err(DeviceError::Unsupported(_))));
    }
    for access in [Access { remote_read: true, ..Access::default() }, Access { remote_write: true, ..ALL }] {
        let made = bench.objects.reg_mr(bench.pd, 0, 8, 0, access);
        assert!(matches!(made, Err(DeviceError::Unsupported(_))));
    }
    assert_eq!((bench.objects.counters.create_qp_err, bench.objects.counters.reg_mr_err), (3, 2));
}

#[test]
fn limits_of_a_queue_pair_are_checked() {
    let mut bench = Bench::new();
    let good = srd(bench.pd, bench.cq);
    let max = DeviceConfig::default();
    for bad in [
        QpInit { sq_depth: max.max_sq + 1, ..good },
        QpInit { rq_depth: max.max_rq + 1, ..good },
        QpInit { send_sge: 3, ..good },
        QpInit { recv_sge: 4, ..good },
        QpInit { inline: 33, ..good },
    ] {
        assert!(matches!(bench.objects.create_qp(bad), Err(DeviceError::Invalid(_))), "{bad:?}");
    }
    for bad in [QpInit { pd: PdId(9), ..good }, QpInit { send_cq: CqId(9), ..good }] {
        assert!(matches!(bench.objects.create_qp(bad), Err(DeviceError::NotFound(_))), "{bad:?}");
    }
    let rdma_over_ud = QpInit { rdma_read: true, ..ud(bench.pd, bench.cq) };
    assert!(matches!(bench.objects.create_qp(rdma_over_ud), Err(DeviceError::Unsupported(_))));
}

#[test]
fn create_qp_asks_for_a_port_when_all_numbers_are_taken() {
    let mut bench = Bench::new();
    let init = srd(bench.pd, bench.cq);
    let mut made = 1;
    while bench.objects.create_qp(init).is_ok() {
        made += 1;
    }
    assert_eq!(made, 126, "0 and 1 are reserved");
    assert_eq!(bench.objects.create_qp(init), Err(DeviceError::Full("port")));
    bench.objects.numbers.add_slot(7).unwrap();
    assert_eq!(bench.objects.create_qp(init).unwrap().0 / 128, 7);
}

#[test]
fn receives_are_posted_from_init_on() {
    let mut bench = Bench::new();
    let qpn = bench.objects.create_qp(srd(bench.pd, bench.cq)).unwrap();
    let post = |bench: &mut Bench| bench.objects.post_recv(qpn, &RecvWr { wr_id: 1, sges: &[] });
    assert!(matches!(post(&mut bench), Err(DeviceError::Invalid(_))));
    let init = QpModify { qkey: Some(QKEY), pkey_index: Some(0), port: Some(1), ..state(QpState::Init) };
    bench.objects.modify_qp(&mut bench.transport, qpn, &init).unwrap();
    post(&mut bench).unwrap();
    bench.objects.modify_qp(&mut bench.transport, qpn, &state(QpState::Err)).unwrap();
    assert!(matches!(post(&mut bench), Err(DeviceError::Invalid(_))));
}

#[test]
fn sends_are_posted_in_rts_and_sqd_only() {
    let mut bench = Bench::new();
    bench.post(1, SEND, &[]).unwrap();
    bench.modify(state(QpState::Sqd)).unwrap();
    bench.post(2, SEND, &[]).unwrap();
    bench.modify(state(QpState::Err)).unwrap();
    assert!(matches!(bench.post(3, SEND, &[]), Err(DeviceError::Invalid(_))));
    bench.modify(state(QpState::Reset)).unwrap();
    assert!(matches!(bench.post(3, SEND, &[]), Err(DeviceError::Invalid(_))));
    assert!(matches!(
        bench.objects.post_send(&mut bench.transport, Qpn(77), &bench_wr()),
        Err(DeviceError::NotFound(_))
    ));
}

fn bench_wr() -> SendWr<'static> {
    SendWr { wr_id: 1, op: SEND, ah: AhNumber(0), dst_qpn: PEER_QPN, qkey: QKEY, data: SendData::Sges(&[]) }
}

#[test]
fn in_sqd_work_is_held_until_rts_and_draining_shows_what_is_on_its_way() {
    let mut bench = Bench::new();
    bench.post(1, SEND, &[]).unwrap();
    bench.modify(state(QpState::Sqd)).unwrap();
    bench.post(2, SEND, &[]).unwrap();
    bench.post(3, SEND, &[]).unwrap();
    assert_eq!(bench.transport.open.len(), 1);
    assert!(bench.objects.query_qp(bench.qpn).unwrap().draining);
    bench.outcome(Ok(()));
    assert!(!bench.objects.query_qp(bench.qpn).unwrap().draining);
    assert_eq!(bench.poll(), [(1, Status::Ok)]);
    bench.modify(state(QpState::Rts)).unwrap();
    bench.outcome(Ok(()));
    bench.outcome(Ok(()));
    assert_eq!(bench.poll(), [(2, Status::Ok), (3, Status::Ok)]);
}

#[test]
fn to_err_everything_posted_completes_flushed_in_order() {
    let mut bench = Bench::new();
    for wr_id in 1..=3 {
        bench.post(wr_id, SEND, &[]).unwrap();
    }
    for wr_id in 11..=13 {
        bench.post_recv(wr_id, &[bench.sge(0, 100)]);
    }
    // One send waits for its retry, one receive is taken by a message that is half there.
    bench.outcome(Err(Status::RemoteRnr));
    let message = bench.incoming(bench.send_op(), 100);
    let cookie = bench.objects.begin(&message, None).unwrap();
    bench.modify(state(QpState::Err)).unwrap();
    let flushed = |wr_id| (wr_id, Status::Flushed);
    assert_eq!(bench.poll(), [1, 2, 3, 11, 12, 13].map(flushed));
    assert_eq!(bench.transport.cancelled.len(), 2);
    // The rest of that message touches nothing and completes nothing.
    bench.objects.place(cookie, &message, 0, &VecPayload::from(&[7; 100][..]));
    assert_eq!(bench.objects.finish(cookie, &message), Err(Status::RemoteBadDestQpn));
    assert_eq!(bench.memory(0, 100), [0; 100]);
    bench.advance_to(Time(u64::MAX - 1));
    assert!(bench.transport.open.is_empty() && bench.poll().is_empty());
}

#[test]
fn to_reset_everything_posted_and_completed_is_dropped() {
    let mut bench = Bench::new();
    bench.post(1, SEND, &[]).unwrap();
    bench.post(2, SEND, &[]).unwrap();
    bench.post_recv(11, &[]);
    bench.outcome(Ok(()));
    bench.modify(state(QpState::Reset)).unwrap();
    assert_eq!(bench.poll(), []);
    assert_eq!(bench.transport.cancelled.len(), 1);
    bench.ready(bench.qpn);
    assert_eq!(bench.deliver(bench.send_op(), b""), Err(Status::RemoteRnr));
    (0..16).for_each(|wr_id| bench.post(wr_id, SEND, &[]).unwrap());
}

#[test]
fn after_destroy_nothing_of_a_queue_pair_surfaces() {
    let mut bench = Bench::new();
    let other = bench.another(srd(bench.pd, bench.cq));
    bench.post(1, SEND, &[]).unwrap();
    bench.post(2, SEND, &[]).unwrap();
    bench.post(3, SendOp::Read { rkey: MrKey(5), addr: 0 }, &[bench.sge(0, 64)]).unwrap();
    bench.post_recv(11, &[bench.sge(0, 64)]);
    bench.post_recv(12, &[bench.sge(64, 64)]);
    bench.deliver(bench.send_op(), b"polled never").unwrap();
    bench.outcome(Ok(()));
    let message = bench.incoming(bench.send_op(), 64);
    let cookie = bench.objects.begin(&message, None).unwrap();
    let wr = bench.wr(4, SEND, SendData::Sges(&[]));
    bench.objects.post_send(&mut bench.transport, other, &wr).unwrap();

    bench.objects.destroy_qp(&mut bench.transport, bench.qpn).unwrap();
    assert_eq!(bench.poll(), []);
    assert_eq!(bench.transport.cancelled.len(), 2);
    bench.objects.place(cookie, &message, 0, &VecPayload::from(&[7; 64][..]));
    assert_eq!(bench.memory(64, 64), [0; 64]);
    bench.objects.abandon(cookie, &message);
    assert_eq!(bench.deliver(bench.send_op(), b"x"), Err(Status::RemoteBadDestQpn));
    // Others are not affected.
    bench.outcome(Ok(()));
    assert_eq!(bench.poll(), [(4, Status::Ok)]);
    assert!(matches!(bench.objects.query_qp(bench.qpn), Err(DeviceError::NotFound(_))));
}

#[test]
fn destroying_the_last_handle_of_a_host_flushes_the_work_to_it() {
    let mut bench = Bench::new();
    let other_host = Gid::from(std::net::IpAddr::from([10, 0, 0, 3]));
    let other = bench.objects.create_ah(bench.pd, other_host).unwrap();
    assert_eq!(bench.objects.create_ah(bench.pd, peer_gid()), Ok(bench.ah));
    bench.post(1, SEND, &[]).unwrap();
    let wr = SendWr { ah: other, ..bench.wr(2, SEND, SendData::Sges(&[])) };
    bench.objects.post_send(&mut bench.transport, bench.qpn, &wr).unwrap();
    bench.objects.destroy_ah(&mut bench.transport, bench.pd, bench.ah).unwrap();
    assert_eq!(bench.poll(), []);
    bench.objects.destroy_ah(&mut bench.transport, bench.pd, bench.ah).unwrap();
    assert_eq!(bench.poll(), [(1, Status::Flushed)]);
    assert_eq!(bench.transport.open.len(), 1);
    assert!(bench.objects.destroy_ah(&mut bench.transport, bench.pd, bench.ah).is_err());
}

#[test]
fn a_handle_of_another_domain_is_no_handle_here() {
    let mut bench = Bench::new();
    let other_pd = bench.objects.alloc_pd().unwrap();
    let gid = Gid::from(std::net::IpAddr::from([10, 0, 0, 9]));
    let ah = bench.objects.create_ah(other_pd, gid).unwrap();
    let wr = SendWr { ah, ..bench.wr(1, SEND, SendData::Sges(&[])) };
    bench.objects.post_send(&mut bench.transport, bench.qpn, &wr).unwrap();
    assert_eq!(bench.poll(), [(1, Status::LocalInvalidAh)]);
}
