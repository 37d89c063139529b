//! Two devices over the transport, in virtual time: one test per clause of EFA's semantics that shows between hosts.

mod harness;

use harness::*;
use srd_device::*;
use srd_wire::{Gid, InstanceAddr, MrKey, Nanos, Qkey, Qpn, Status, Time};

const SEND: SendOp = SendOp::Send { imm: None };

fn instance(host: usize) -> InstanceAddr {
    InstanceAddr { gid: gid(host), port: port(host) }
}

fn write_to(side: &Side, at: u64, imm: Option<u32>) -> SendOp {
    SendOp::Write { rkey: side.key, addr: side.addr + at, imm }
}

fn read_from(side: &Side, at: u64) -> SendOp {
    SendOp::Read { rkey: side.key, addr: side.addr + at }
}

fn default() -> DeviceConfig {
    DeviceConfig::default()
}

#[test]
fn a_send_completes_after_the_receiver_has_it() {
    let (mut net, a, b) = two(&default());
    net.fill(&a, 0, 5000, 1);
    net.post_recv(&b, 7, 100, 5000);
    net.post(&a, &b, 3, SendOp::Send { imm: Some(42) }, 0, 5000);
    let sent = net.expect(&a, 3, Status::Ok);
    assert_eq!((sent.op, sent.qpn), (CompletionOp::Send, a.qpn));
    // It is there already, without another step.
    let received = net.devices[1].poll_cq(b.cq).unwrap();
    assert_eq!((received.wr_id, received.status, received.op), (7, Status::Ok, CompletionOp::Recv));
    assert_eq!((received.src_qpn, received.src_gid, received.src_ah), (a.qpn, gid(0), b.ahs[0]));
    assert_eq!((received.byte_len, received.imm), (5000, Some(42)));
    assert_eq!(net.bytes(&b, 100, 5000), pattern(5000, 1));
}

#[test]
fn messages_of_every_length_up_to_the_longest_cross() {
    let (mut net, a, b) = two(&default());
    let max = default().max_msg;
    net.fill(&a, 0, max as usize, 5);
    for len in [0, 1, 31, 1400, 1401, 1472, 4096, 8000, max - 1, max] {
        net.post_recv(&b, 1, 0, max);
        net.post(&a, &b, 2, SEND, 0, len);
        net.expect(&a, 2, Status::Ok);
        assert_eq!(net.expect(&b, 1, Status::Ok).byte_len, len);
        assert_eq!(net.bytes(&b, 0, len as usize), pattern(max as usize, 5)[..len as usize]);
    }
    net.post(&a, &b, 9, SEND, 0, max + 1);
    net.expect(&a, 9, Status::LocalBadLength);
}

#[test]
fn inline_bytes_are_taken_at_the_call() {
    let (mut net, a, b) = two(&default());
    net.post_recv(&b, 1, 0, 64);
    let mut bytes = *b"taken at the call, thirty-two by";
    let data = SendData::Inline(&bytes);
    let wr = SendWr { wr_id: 1, op: SEND, ah: a.ahs[1], dst_qpn: b.qpn, qkey: QKEY, data };
    net.devices[0].post_send(net.now, a.qpn, &wr).unwrap();
    bytes.fill(0);
    net.expect(&a, 1, Status::Ok);
    net.expect(&b, 1, Status::Ok);
    assert_eq!(net.bytes(&b, 0, 32), b"taken at the call, thirty-two by");
}

#[test]
fn two_elements_are_gathered_and_scattered_over_three() {
    let (mut net, a, b) = two(&default());
    net.fill(&a, 0, 3000, 1);
    net.fill(&a, 9000, 2000, 2);
    let sge = |side: &Side, at: u64, len: u32| Sge { addr: side.addr + at, len, lkey: side.key };
    let recv = RecvWr { wr_id: 1, sges: &[sge(&b, 0, 1000), sge(&b, 20_000, 3999), sge(&b, 10_000, 1)] };
    net.devices[1].post_recv(b.qpn, &recv).unwrap();
    let data = SendData::Sges(&[sge(&a, 0, 3000), sge(&a, 9000, 2000)]);
    let wr = SendWr { wr_id: 1, op: SEND, ah: a.ahs[1], dst_qpn: b.qpn, qkey: QKEY, data };
    net.devices[0].post_send(net.now, a.qpn, &wr).unwrap();
    net.expect(&b, 1, Status::Ok);
    let whole = [pattern(3000, 1), pattern(2000, 2)].concat();
    let scattered = [net.bytes(&b, 0, 1000), net.bytes(&b, 20_000, 3999), net.bytes(&b, 10_000, 1)].concat();
    assert_eq!(scattered, whole);
}

#[test]
fn receiver_too_short_gives_remote_bad_length_at_the_sender() {
    let (mut net, a, b) = two(&default());
    net.post_recv(&b, 1, 0, 4999);
    net.post(&a, &b, 1, SEND, 0, 5000);
    net.expect(&a, 1, Status::RemoteBadLength);
    net.expect_none(&b);
    net.post(&a, &b, 2, SEND, 0, 4999);
    net.expect(&a, 2, Status::Ok);
    net.expect(&b, 1, Status::Ok);
}

#[test]
fn no_receive_and_no_retries_gives_remote_rnr_at_the_sender() {
    let (mut net, a, b) = two(&default());
    net.set_rnr_retry(&a, 0);
    net.post(&a, &b, 1, SEND, 0, 5000);
    net.expect(&a, 1, Status::RemoteRnr);
    assert_eq!(net.devices[0].counters().rnr_retries, 0);
}

#[test]
fn no_receive_after_three_retries_gives_remote_rnr_at_the_sender() {
    let (mut net, a, b) = two(&default());
    net.set_rnr_retry(&a, 3);
    net.post(&a, &b, 1, SEND, 0, 5000);
    net.expect(&a, 1, Status::RemoteRnr);
    // Waits of 0.3, 0.6, 1.2, 2.4, 4.8 and 9.6 ms are not counted, 32 of 10 ms make up a retry.
    assert_eq!(net.devices[0].counters().rnr_retries, 6 + 96);
    assert_eq!(net.devices[0].qp_counters(a.qpn).unwrap().rnr_retries, 6 + 96);
    assert_eq!(net.devices[1].counters().rnr_refused, 6 + 97);
}

#[test]
fn each_refusal_is_a_retry_where_all_are_counted() {
    let (mut net, a, b) = two(&DeviceConfig { rnr_counts_all: true, ..default() });
    net.set_rnr_retry(&a, 3);
    net.post(&a, &b, 1, SEND, 0, 5000);
    net.expect(&a, 1, Status::RemoteRnr);
    assert_eq!(net.devices[0].counters().rnr_retries, 3);
    assert_eq!(net.devices[1].counters().rnr_refused, 4);
}

#[test]
fn a_receive_posted_late_takes_the_message_that_waits_for_it() {
    let (mut net, a, b) = two(&default());
    net.fill(&a, 0, 5000, 3);
    net.post(&a, &b, 1, SEND, 0, 5000);
    net.settle(SECOND);
    net.expect_none(&a);
    net.post_recv(&b, 1, 0, 5000);
    net.expect(&b, 1, Status::Ok);
    net.expect(&a, 1, Status::Ok);
    assert_eq!(net.bytes(&b, 0, 5000), pattern(5000, 3));
}

#[test]
fn one_without_a_receive_does_not_hold_up_others() {
    let (mut net, a, b) = two(&default());
    let other = net.devices[1].create_qp(srd(b.pd, b.cq)).unwrap();
    net.ready(1, other, None);
    let empty = Side { qpn: other, ..b.clone() };
    (0..100).for_each(|wr_id| net.post(&a, &empty, wr_id, SEND, 0, 8000));
    for wr_id in 1000..1010 {
        net.post_recv(&b, wr_id, 0, 8000);
        net.post(&a, &b, wr_id, SEND, 0, 8000);
        net.expect(&a, wr_id, Status::Ok);
        net.expect(&b, wr_id, Status::Ok);
    }
}

#[test]
fn an_unknown_queue_pair_or_another_key_gives_bad_dest_qpn() {
    let (mut net, a, b) = two(&default());
    net.post_recv(&b, 1, 0, 64);
    let nobody = Side { qpn: Qpn(b.qpn.0 + 50), ..b.clone() };
    net.post(&a, &nobody, 1, SEND, 0, 64);
    net.expect(&a, 1, Status::RemoteBadDestQpn);
    let data = SendData::Inline(b"wrong key");
    let wr = SendWr { wr_id: 2, op: SEND, ah: a.ahs[1], dst_qpn: b.qpn, qkey: Qkey(1), data };
    net.devices[0].post_send(net.now, a.qpn, &wr).unwrap();
    net.expect(&a, 2, Status::RemoteBadDestQpn);
    net.expect_none(&b);
}

#[test]
fn a_remote_error_changes_neither_queue_pair_nor_context() {
    let (mut net, a, b) = two(&default());
    net.set_rnr_retry(&a, 0);
    let nobody = Side { qpn: Qpn(b.qpn.0 + 1), ..b.clone() };
    (1..=4).for_each(|wr_id| net.post_recv(&b, wr_id, 0, 64));
    net.post(&a, &b, 1, SEND, 0, 64);
    net.post(&a, &nobody, 2, SEND, 0, 64);
    net.post(&a, &b, 3, SEND, 0, 65);
    net.post(&a, &b, 4, write_to(&nobody, MEMORY as u64, None), 0, 64);
    net.post(&a, &b, 5, SEND, 0, 64);
    let mut seen = [0; 5].map(|_| {
        let completion = net.next_completion(&a);
        (completion.wr_id, completion.status)
    });
    seen.sort();
    let expected = [
        (1, Status::Ok),
        (2, Status::RemoteBadDestQpn),
        (3, Status::RemoteBadLength),
        (4, Status::RemoteBadAddress),
        (5, Status::Ok),
    ];
    assert_eq!(seen, expected);
    assert_eq!(net.devices[0].query_qp(a.qpn).unwrap().state, QpState::Rts);
    assert_eq!(net.devices[0].endpoint().stats().peers_created, 1);
}

#[test]
fn a_read_brings_remote_bytes_and_tells_the_responder_nothing() {
    let (mut net, a, b) = two(&default());
    let len = 1 << 20;
    net.fill(&b, 64, len, 9);
    net.post(&a, &b, 1, read_from(&b, 64), 4096, len as u32);
    let completion = net.expect(&a, 1, Status::Ok);
    assert_eq!(completion.op, CompletionOp::Read);
    assert_eq!(net.bytes(&a, 4096, len), pattern(len, 9));
    net.expect_none(&b);
    assert_eq!(net.devices[0].counters().rdma_read_bytes, len as u64);
    net.settle(SECOND);
    assert_eq!(net.devices[1].counters().rdma_read_resp_bytes, len as u64);
}

#[test]
fn a_write_puts_bytes_and_tells_the_responder_nothing() {
    let (mut net, a, b) = two(&default());
    let len = 1 << 20;
    net.fill(&a, 64, len, 9);
    net.post(&a, &b, 1, write_to(&b, 77, None), 64, len as u32);
    assert_eq!(net.expect(&a, 1, Status::Ok).op, CompletionOp::Write);
    assert_eq!(net.bytes(&b, 77, len), pattern(len, 9));
    net.expect_none(&b);
}

#[test]
fn a_write_with_immediate_consumes_a_receive() {
    let (mut net, a, b) = two(&default());
    net.fill(&a, 0, 100_000, 9);
    net.post_recv(&b, 8, 0, 0);
    net.post(&a, &b, 1, write_to(&b, 0, Some(0xFEED)), 0, 100_000);
    let completion = net.expect(&b, 8, Status::Ok);
    assert_eq!(completion.op, CompletionOp::RecvRdmaWithImm);
    assert_eq!((completion.byte_len, completion.imm), (100_000, Some(0xFEED)));
    assert_eq!(net.bytes(&b, 0, 100_000), pattern(100_000, 9));
    net.expect(&a, 1, Status::Ok);
}

#[test]
fn an_unsolicited_write_with_immediate_consumes_no_receive() {
    let unsolicited = |pd, cq| QpInit { unsolicited_write_recv: true, ..srd(pd, cq) };
    let (mut net, a, b) = two_with(&default(), unsolicited);
    net.post(&a, &b, 1, write_to(&b, 0, Some(5)), 0, 100);
    let completion = net.expect(&b, 0, Status::Ok);
    assert!(completion.unsolicited);
    assert_eq!((completion.byte_len, completion.imm), (100, Some(5)));
}

#[test]
fn empty_reads_and_writes_complete() {
    let (mut net, a, b) = two(&default());
    let nowhere = MrKey(0);
    net.post(&a, &b, 1, SendOp::Read { rkey: nowhere, addr: 0 }, 0, 0);
    net.expect(&a, 1, Status::Ok);
    net.post(&a, &b, 2, SendOp::Write { rkey: nowhere, addr: 0, imm: None }, 0, 0);
    net.expect(&a, 2, Status::Ok);
}

#[test]
fn rdma_outside_the_region_gives_remote_bad_address() {
    let (mut net, a, b) = two(&default());
    let end = MEMORY as u64;
    net.post(&a, &b, 1, write_to(&b, end - 10, None), 0, 11);
    net.expect(&a, 1, Status::RemoteBadAddress);
    net.post(&a, &b, 2, read_from(&b, end - 10), 0, 11);
    net.expect(&a, 2, Status::RemoteBadAddress);
    net.post(&a, &b, 3, SendOp::Read { rkey: MrKey(b.key.0 + 1), addr: b.addr }, 0, 8);
    net.expect(&a, 3, Status::RemoteBadAddress);
    net.post(&a, &b, 4, write_to(&b, end - 10, None), 0, 10);
    net.expect(&a, 4, Status::Ok);
    assert_eq!(net.devices[0].counters().rdma_read_wr_err, 2);
    assert_eq!(net.devices[0].counters().rdma_write_wr_err, 1);
}

#[test]
fn rdma_to_a_host_without_a_handle_of_ours_gives_unknown_peer() {
    let (mut net, a, b) = two(&default());
    net.devices[1].destroy_ah(net.now, b.pd, b.ahs[0]).unwrap();
    net.post(&a, &b, 1, write_to(&b, 0, None), 0, 8);
    net.expect(&a, 1, Status::UnknownPeer);
    net.post(&a, &b, 2, read_from(&b, 0), 0, 8);
    net.expect(&a, 2, Status::UnknownPeer);
    // Sends need none.
    net.post_recv(&b, 1, 0, 8);
    net.post(&a, &b, 3, SEND, 0, 8);
    net.expect(&a, 3, Status::Ok);
    assert_eq!(net.expect(&b, 1, Status::Ok).src_ah, AhNumber::NONE);
}

#[test]
fn rdma_that_the_responder_does_not_offer_gives_feature_mismatch() {
    let (mut net, a, _) = two(&default());
    let plain = DeviceConfig { rdma_read: false, rdma_write: false, ..default() };
    net.restart(1, &plain);
    let device = &mut net.devices[1];
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(16).unwrap());
    device.create_ah(pd, gid(0)).unwrap();
    let init = QpInit { rdma_read: false, rdma_write: false, ..srd(pd, cq) };
    let qpn = device.create_qp(init).unwrap();
    net.ready(1, qpn, None);
    let b = Side { host: 1, pd, cq, qpn, addr: 0, key: MrKey(1), ahs: vec![] };
    net.post(&a, &b, 1, write_to(&b, 0, None), 0, 8);
    net.expect(&a, 1, Status::FeatureMismatch);
    net.post(&a, &b, 2, read_from(&b, 0), 0, 8);
    net.expect(&a, 2, Status::FeatureMismatch);
}

/// Loses everything that data of `host` carries from its `n`-th data packet on, until told otherwise.
fn lose_data_after<P>(host: usize, n: u64) -> Judge<P> {
    let mut seen = 0;
    Box::new(move |from, transmit| {
        let data = matches!(transmit.packet.body, srd_wire::Body::Data(_));
        if from != host || !data {
            return Fate::Arrives;
        }
        seen += 1;
        if seen > n { Fate::Lost } else { Fate::Arrives }
    })
}

#[test]
fn a_read_whose_region_goes_while_it_is_answered_fails() {
    let (mut net, a, b) = two(&default());
    net.post(&a, &b, 1, read_from(&b, 0), 0, 1 << 20);
    net.judge = Some(lose_data_after(1, 20));
    net.settle(Nanos::from_micros(500));
    net.devices[1].dereg_mr(b.key).unwrap();
    net.judge = None;
    net.expect(&a, 1, Status::RemoteBadAddress);
}

#[test]
fn a_read_whose_queue_pair_goes_while_it_is_answered_fails() {
    let (mut net, a, b) = two(&default());
    net.post(&a, &b, 1, read_from(&b, 0), 0, 1 << 20);
    net.judge = Some(lose_data_after(1, 20));
    net.settle(Nanos::from_micros(500));
    net.devices[1].destroy_qp(net.now, b.qpn).unwrap();
    net.judge = None;
    net.expect(&a, 1, Status::RemoteBadDestQpn);
}

#[test]
fn after_the_requester_deregisters_nothing_of_a_read_is_written() {
    let (mut net, a, b) = two(&default());
    net.fill(&b, 0, 1 << 20, 4);
    net.post(&a, &b, 1, read_from(&b, 0), 0, 1 << 20);
    net.judge = Some(lose_data_after(1, 20));
    net.settle(Nanos::from_micros(500));
    net.devices[0].dereg_mr(a.key).unwrap();
    net.expect(&a, 1, Status::LocalInvalidLkey);
    net.fill(&a, 0, 1 << 20, 5);
    net.judge = None;
    net.settle(SECOND);
    assert_eq!(net.bytes(&a, 0, 1 << 20), pattern(1 << 20, 5));
}

/// Nothing of the host leaves, or everything again.
fn silence(host: usize) -> Judge<VecPayload> {
    Box::new(move |from, _| if from == host { Fate::Lost } else { Fate::Arrives })
}

fn impatient() -> DeviceConfig {
    let mut config = default();
    config.transport.peer_timeout = SECOND;
    config
}

#[test]
fn a_peer_that_never_answered_gives_unreachable_and_an_event() {
    let (mut net, a, b) = two(&impatient());
    net.judge = Some(silence(1));
    net.post(&a, &b, 1, SEND, 0, 8);
    net.post(&a, &b, 2, write_to(&b, 0, None), 0, 8);
    net.expect(&a, 1, Status::Unreachable);
    net.expect(&a, 2, Status::Unreachable);
    let event = AsyncEvent::RemoteUnresponsive { peer: instance(1), answered_before: false };
    assert_eq!(net.devices[0].poll_async_event(), Some(event));
    assert_eq!(net.devices[0].poll_async_event(), None);
    assert_eq!(net.devices[0].counters().unresponsive_remote_events, 1);
    assert_eq!(net.devices[0].query_qp(a.qpn).unwrap().state, QpState::Rts);
}

#[test]
fn a_peer_that_stops_answering_gives_unresponsive_and_can_come_back() {
    let (mut net, a, b) = two(&impatient());
    (1..=3).for_each(|wr_id| net.post_recv(&b, wr_id, 0, 8));
    net.post(&a, &b, 1, SEND, 0, 8);
    net.expect(&a, 1, Status::Ok);
    net.judge = Some(silence(1));
    net.post(&a, &b, 2, SEND, 0, 8);
    net.expect(&a, 2, Status::Unresponsive);
    let event = AsyncEvent::RemoteUnresponsive { peer: instance(1), answered_before: true };
    assert_eq!(net.devices[0].poll_async_event(), Some(event));
    net.judge = None;
    net.post(&a, &b, 3, SEND, 0, 8);
    net.expect(&a, 3, Status::Ok);
}

#[test]
fn a_read_owed_by_a_peer_that_dies_ends() {
    let (mut net, a, b) = two(&impatient());
    net.judge = Some(lose_data_after(1, 10));
    net.post(&a, &b, 1, read_from(&b, 0), 0, 1 << 20);
    net.settle(Nanos::from_millis(2));
    net.judge = Some(silence(1));
    net.expect(&a, 1, Status::Unresponsive);
}

#[test]
fn a_read_owed_by_a_peer_that_restarts_ends() {
    let (mut net, a, b) = two(&impatient());
    net.judge = Some(lose_data_after(1, 10));
    net.post(&a, &b, 1, read_from(&b, 0), 0, 1 << 20);
    net.settle(Nanos::from_millis(2));
    net.judge = None;
    net.restart(1, &impatient());
    net.expect(&a, 1, Status::RemoteAbort);
}

#[test]
fn a_read_does_not_hang_when_the_responder_took_the_requester_for_dead() {
    // Nothing reaches anybody for as long as it takes the responder to give up, and no longer.
    let (mut net, a, b) = two(&impatient());
    net.judge = Some(lose_data_after(1, 10));
    net.post(&a, &b, 1, read_from(&b, 0), 0, 1 << 20);
    net.settle(Nanos::from_millis(2));
    net.judge = Some(Box::new(|_, _| Fate::Lost));
    net.run_until(Nanos::from_secs(5), |net| net.devices[1].poll_async_event().is_some());
    net.judge = None;
    let completion = net.next_completion(&a);
    assert_eq!(completion.wr_id, 1);
    assert_ne!(completion.status, Status::Ok);
}

#[test]
fn a_peer_that_restarts_gives_remote_abort() {
    let (mut net, a, b) = two(&default());
    net.post_recv(&b, 1, 0, 8);
    net.post(&a, &b, 1, SEND, 0, 8);
    net.expect(&a, 1, Status::Ok);
    net.restart(1, &default());
    net.post(&a, &b, 2, SEND, 0, 8);
    net.expect(&a, 2, Status::RemoteAbort);
    // The new process has no such queue pair.
    net.post(&a, &b, 3, SEND, 0, 8);
    net.expect(&a, 3, Status::RemoteBadDestQpn);
}

#[test]
fn a_datagram_has_forty_bytes_in_front() {
    let (mut net, a, b) = two_with(&default(), ud);
    net.fill(&a, 0, 5000, 6);
    net.post_recv(&b, 1, 0, 5040);
    net.post(&a, &b, 1, SendOp::Send { imm: Some(3) }, 0, 5000);
    net.expect(&a, 1, Status::Ok);
    let completion = net.expect(&b, 1, Status::Ok);
    assert_eq!((completion.byte_len, completion.imm), (5040, Some(3)));
    assert_eq!((completion.src_qpn, completion.src_gid), (a.qpn, gid(0)));
    assert_eq!(net.bytes(&b, 40, 5000), pattern(5000, 6));
    assert_eq!(net.bytes(&b, 8, 16), gid(0).0);
}

#[test]
fn a_datagram_without_a_place_is_dropped_and_its_sender_does_not_know() {
    let (mut net, a, b) = two_with(&default(), ud);
    net.post(&a, &b, 1, SEND, 0, 5000);
    net.expect(&a, 1, Status::Ok);
    net.settle(Nanos::from_millis(10));
    net.post_recv(&b, 1, 0, 5039);
    net.post(&a, &b, 2, SEND, 0, 5000);
    net.expect(&a, 2, Status::Ok);
    let data = SendData::Inline(b"wrong key");
    let wr = SendWr { wr_id: 3, op: SEND, ah: a.ahs[1], dst_qpn: b.qpn, qkey: Qkey(1), data };
    net.devices[0].post_send(net.now, a.qpn, &wr).unwrap();
    net.expect(&a, 3, Status::Ok);
    net.settle(Nanos::from_millis(10));
    net.expect_none(&b);
    assert_eq!(net.devices[1].counters().ud_drops, 3);
    assert_eq!(net.devices[1].counters().rx_drops, 3);
}

#[test]
fn destroying_a_queue_pair_cancels_its_sends_and_no_others() {
    let (mut net, a, b) = two(&default());
    let second = net.devices[0].create_qp(srd(a.pd, a.cq)).unwrap();
    net.ready(0, second, None);
    let second = Side { qpn: second, ..a.clone() };
    (0..50).for_each(|wr_id| net.post_recv(&b, wr_id, 8000 * wr_id, 8000));
    for wr_id in 0..20 {
        net.post(&a, &b, wr_id, SEND, 0, 8000);
        net.post(&second, &b, 100 + wr_id, SEND, 0, 8000);
    }
    net.settle(Nanos::from_micros(7));
    net.devices[0].destroy_qp(net.now, a.qpn).unwrap();
    let mut done: Vec<u64> = (0..20).map(|_| net.next_completion(&second).wr_id).collect();
    done.sort();
    assert_eq!(done, (100..120).collect::<Vec<_>>());
    net.settle(SECOND);
    net.expect_none(&second);
    // What was half received gives its receive back: all that are left can be used.
    let taken = std::iter::from_fn(|| net.devices[1].poll_cq(b.cq)).count() as u64;
    assert!((20..40).contains(&taken), "{taken}");
    for wr_id in 0..50 - taken {
        net.post(&second, &b, 200 + wr_id, SEND, 0, 8000);
        net.expect(&second, 200 + wr_id, Status::Ok);
    }
}

#[test]
fn after_destroy_no_packet_carries_bytes_of_the_queue_pair() {
    let (mut net, a, b) = two(&default());
    net.post_recv(&b, 1, 0, 8000);
    net.post(&a, &b, 1, SEND, 0, 8000);
    net.post(&a, &b, 2, write_to(&b, 0, None), 0, 1 << 20);
    net.post(&b, &a, 3, read_from(&a, 0), 0, 1 << 20);
    net.judge = Some(lose_data_after(0, 10));
    net.settle(Nanos::from_micros(500));
    net.devices[0].destroy_qp(net.now, a.qpn).unwrap();
    net.devices[0].dereg_mr(a.key).unwrap();
    net.judge = Some(Box::new(|host, transmit| {
        if let srd_wire::Body::Data(data) = &transmit.packet.body {
            assert!(host != 0 || srd_proto::Payload::is_empty(&data.payload), "{data:?}");
        }
        Fate::Arrives
    }));
    net.settle(SECOND);
    net.expect_none(&a);
    let mut of_b = std::iter::from_fn(|| net.devices[1].poll_cq(b.cq));
    let read = of_b.find(|completion| completion.op == CompletionOp::Read).unwrap();
    assert_eq!((read.wr_id, read.status), (3, Status::RemoteBadDestQpn));
}

/// Half of a long message has arrived when `end` does something to the receiver.
fn ended_midway(op: fn(&Side) -> SendOp, end: fn(&mut Hosts, &Side)) -> Status {
    let (mut net, a, b) = two(&default());
    net.post_recv(&b, 1, 0, 8832);
    net.judge = Some(lose_data_after(0, 3));
    net.post(&a, &b, 1, op(&b), 0, 8832);
    net.settle(Nanos::from_micros(300));
    end(&mut net, &b);
    net.judge = None;
    net.next_completion(&a).status
}

#[test]
fn a_message_whose_receiver_goes_midway_is_refused() {
    let dereg = |net: &mut Hosts, b: &Side| net.devices[1].dereg_mr(b.key).unwrap();
    let destroy = |net: &mut Hosts, b: &Side| net.devices[1].destroy_qp(net.now, b.qpn).unwrap();
    let write = |b: &Side| write_to(b, 0, None);
    assert_eq!(ended_midway(write, dereg), Status::RemoteBadAddress);
    assert_eq!(ended_midway(write, destroy), Status::RemoteBadDestQpn);
    assert_eq!(ended_midway(|_| SEND, destroy), Status::RemoteBadDestQpn);
}

#[test]
fn destroying_a_handle_flushes_what_is_on_its_way() {
    let (mut net, a, b) = two(&default());
    net.judge = Some(silence(1));
    net.post(&a, &b, 1, SEND, 0, 8);
    net.post(&a, &b, 2, read_from(&b, 0), 0, 8);
    net.settle(Nanos::from_micros(50));
    net.devices[0].destroy_ah(net.now, a.pd, a.ahs[1]).unwrap();
    net.expect(&a, 1, Status::Flushed);
    net.expect(&a, 2, Status::Flushed);
    net.judge = None;
    net.settle(SECOND);
    net.expect_none(&a);
}

#[test]
fn a_message_to_oneself_arrives() {
    let (mut net, a, _) = two(&default());
    net.fill(&a, 0, 8000, 2);
    net.post_recv(&a, 1, 100_000, 8000);
    net.post(&a, &a, 2, SEND, 0, 8000);
    let mut seen = [net.next_completion(&a).wr_id, net.next_completion(&a).wr_id];
    seen.sort();
    assert_eq!(seen, [1, 2]);
    assert_eq!(net.bytes(&a, 100_000, 8000), pattern(8000, 2));
    net.post(&a, &a, 3, read_from(&a, 100_000), 200_000, 8000);
    net.expect(&a, 3, Status::Ok);
    assert_eq!(net.bytes(&a, 200_000, 8000), pattern(8000, 2));
}

#[test]
fn without_loopback_a_message_to_oneself_never_completes() {
    for init in [srd, ud] {
        let (mut net, a, _) = two_with(&DeviceConfig { loopback: false, ..default() }, init);
        net.post_recv(&a, 7, 1000, 600);
        net.post(&a, &a, 1, SEND, 0, 500);
        if init(a.pd, a.cq).kind == QpKind::Ud {
            net.expect(&a, 1, Status::Ok); // has no outcome
        }
        net.settle(Nanos::from_secs(60));
        net.expect_none(&a);
        net.devices[0].destroy_ah(net.now, a.pd, a.ahs[0]).unwrap();
        if init(a.pd, a.cq).kind == QpKind::Srd {
            net.expect(&a, 1, Status::Flushed);
        }
        net.expect_none(&a);
    }
}

#[test]
fn queue_pairs_of_another_port_are_reached_there() {
    let (mut net, a, b) = two(&default());
    let init = srd(b.pd, b.cq);
    let last = loop {
        match net.devices[1].create_qp(init) {
            Ok(_) => {}
            Err(DeviceError::Full("port")) => {
                net.devices[1].add_port(port(200)).unwrap();
                break net.devices[1].create_qp(init).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(last.0 / QPS_PER_PORT, 200);
    net.ready(1, last, None);
    let far = Side { qpn: last, ..b.clone() };
    net.post_recv(&far, 1, 0, 8);
    net.post(&a, &far, 1, SEND, 0, 8);
    net.expect(&a, 1, Status::Ok);
    net.expect(&far, 1, Status::Ok);
    // And back from there, to the queue pair that the completion names.
    net.post_recv(&a, 2, 0, 8);
    net.post(&far, &a, 2, SEND, 0, 8);
    net.expect(&far, 2, Status::Ok);
    assert_eq!(net.expect(&a, 2, Status::Ok).src_qpn, last);
    assert_eq!(net.devices[1].ports().collect::<Vec<_>>(), [port(1), port(200)]);
}

#[test]
fn a_packet_for_a_port_that_is_not_ours_is_dropped_and_counted() {
    let (mut net, a, b) = two(&impatient());
    let nobody = Side { qpn: Qpn(500 * 128), ..b.clone() };
    net.post(&a, &nobody, 1, SEND, 0, 8);
    net.expect(&a, 1, Status::Unreachable);
    assert!(net.devices[1].counters().rx_drops > 0);
}

#[test]
fn bytes_go_from_process_memory_to_process_memory() {
    // SAFETY: `memory` outlives the devices; nobody refers to it while they run.
    let mut net = Net::new(2, &default(), || unsafe { HostMemory::new() });
    let mut memory = [pattern(60_000, 1), pattern(60_000, 2)];
    let addrs = [memory[0].as_mut_ptr() as u64, memory[1].as_mut_ptr() as u64];
    let [a, b] = [0, 1].map(|host| net.side(host, addrs[host], 60_000, srd));
    net.post_recv(&b, 1, 7, 8000);
    net.post(&a, &b, 1, SEND, 100, 8000);
    net.expect(&a, 1, Status::Ok);
    net.post(&a, &b, 2, write_to(&b, 10_001, None), 20_000, 15_000);
    net.expect(&a, 2, Status::Ok);
    net.post(&a, &b, 3, read_from(&b, 40_000), 40_003, 19_000);
    net.expect(&a, 3, Status::Ok);
    drop(net);
    let (one, two) = (pattern(60_000, 1), pattern(60_000, 2));
    assert_eq!(memory[1][7..8007], one[100..8100]);
    assert_eq!(memory[1][10_001..25_001], one[20_000..35_000]);
    assert_eq!(memory[0][40_003..59_003], two[40_000..59_000]);
    assert_eq!(memory[0][..40_003], one[..40_003]);
}

/// A packet of a send is lost, its memory is deregistered and has other contents; then the packet is sent again.
#[test]
fn what_is_sent_again_is_what_was_sent() {
    // SAFETY: `memory` outlives the devices; nobody refers to it while they run.
    let mut net = Net::new(2, &default(), || unsafe { HostMemory::new() });
    let mut memory = [pattern(60_000, 1), pattern(60_000, 2)];
    let addrs = [memory[0].as_mut_ptr() as u64, memory[1].as_mut_ptr() as u64];
    let [a, b] = [0, 1].map(|host| net.side(host, addrs[host], 60_000, srd));
    net.post_recv(&b, 1, 0, 8000);
    net.post(&a, &b, 1, SEND, 0, 8000);
    net.judge = Some(lose_data_after(0, 1));
    net.post(&a, &b, 2, write_to(&b, 10_000, None), 10_000, 15_000);
    net.settle(Nanos::from_micros(300));
    net.devices[0].dereg_mr(a.key).unwrap();
    // SAFETY: a vector of so many bytes; the device does not touch it meanwhile.
    unsafe { std::ptr::write_bytes(addrs[0] as *mut u8, 0, 60_000) };
    net.judge = None;
    net.expect(&a, 1, Status::Ok);
    net.expect(&a, 2, Status::Ok);
    drop(net);
    let sent = pattern(60_000, 1);
    assert_eq!(memory[1][..8000], sent[..8000]);
    assert_eq!(memory[1][10_000..25_000], sent[10_000..25_000]);
}

#[test]
fn many_messages_over_a_bad_wire_arrive_at_most_once_and_whole() {
    for seed in 0..4 {
        let (mut net, a, b) = two(&default());
        let mut rng = Rng(seed);
        net.judge = Some(Box::new(move |_, _| match rng.below(100) {
            0..4 => Fate::Lost,
            4..8 => Fate::Twice(Nanos(rng.below(200_000))),
            8..30 => Fate::Late(Nanos(rng.below(40_000))),
            _ => Fate::Arrives,
        }));
        let mut lengths = Rng(seed + 100);
        let lengths: Vec<u32> = (0..200).map(|_| lengths.below(8833) as u32).collect();
        for (n, &len) in lengths.iter().enumerate() {
            let n = n as u64;
            net.fill(&a, n * 8832, len as usize, n);
            net.post_recv(&b, n, n * 8832, 8832);
            net.post(&a, &b, n, SendOp::Send { imm: Some(n as u32) }, n * 8832, len);
        }
        let mut sent = vec![false; lengths.len()];
        let mut got = vec![false; lengths.len()];
        for _ in 0..lengths.len() {
            let completion = net.next_completion(&a);
            assert_eq!(completion.status, Status::Ok, "seed {seed}");
            assert!(!std::mem::replace(&mut sent[completion.wr_id as usize], true), "seed {seed}");
            while let Some(received) = net.devices[1].poll_cq(b.cq) {
                let n = received.imm.unwrap() as usize;
                assert!(!std::mem::replace(&mut got[n], true), "seed {seed}: {n} twice");
                assert_eq!(received.byte_len, lengths[n]);
                let bytes = net.bytes(&b, received.wr_id * 8832, lengths[n] as usize);
                assert_eq!(bytes, pattern(lengths[n] as usize, n as u64), "seed {seed}: {n}");
            }
        }
        assert!(sent.iter().all(|&sent| sent) && got.iter().all(|&got| got), "seed {seed}");
        net.settle(SECOND);
        net.expect_none(&a);
        net.expect_none(&b);
    }
}

#[test]
fn whatever_is_done_every_work_request_completes_once_and_no_byte_is_wrong() {
    for seed in 0..6 {
        chaos(seed);
    }
}

/// Sink, source and length of a read; nothing for other work requests.
type Read = Option<(u64, u64, u32)>;

/// Both sides send, read and write over a bad wire, queue pairs and regions come and go, and at the end faults stop and
/// everything must complete. Run one seed again: `chaos(seed)`.
fn chaos(seed: u64) {
    const SLOTS: u64 = 64;
    const SLOT: u64 = 16_384;
    let (mut net, a, b) = two(&default());
    let mut rng = Rng(seed * 7919 + 5);
    let mut fates = Rng(seed);
    net.judge = Some(Box::new(move |_, _| match fates.below(100) {
        0..2 => Fate::Lost,
        2..4 => Fate::Twice(Nanos(fates.below(100_000))),
        4..20 => Fate::Late(Nanos(fates.below(30_000))),
        _ => Fate::Arrives,
    }));
    let sides = [a, b];
    let mut open: [Vec<(u64, Read)>; 2] = [vec![], vec![]];
    let mut statuses = std::collections::BTreeMap::new();
    // The upper half of the memory is what peers read; it never changes.
    let half = MEMORY as u64 / 2;
    for side in &sides {
        net.fill(side, half, half as usize, 1000 + side.host as u64);
    }
    let fixed = [pattern(half as usize, 1000), pattern(half as usize, 1001)];
    let mut next_wr = 1;
    let mut check = |net: &mut Hosts, open: &mut [Vec<(u64, Read)>; 2]| {
        for (me, other) in [(0, 1), (1, 0)] {
            while let Some(completion) = net.devices[me].poll_cq(sides[me].cq) {
                let recv = matches!(completion.op, CompletionOp::Recv | CompletionOp::RecvRdmaWithImm);
                if recv {
                    continue;
                }
                let at = open[me].iter().position(|(wr_id, _)| *wr_id == completion.wr_id);
                let (_, read) = open[me].remove(at.unwrap_or_else(|| panic!("seed {seed}: {completion:?}")));
                *statuses.entry(completion.status).or_insert(0) += 1;
                if let (Some((sink, source, len)), Status::Ok) = (read, completion.status) {
                    let expected = &fixed[other][source as usize..][..len as usize];
                    assert_eq!(net.bytes(&sides[me], sink, len as usize), expected, "seed {seed}");
                }
            }
        }
    };
    for _ in 0..3000 {
        let me = rng.below(2) as usize;
        let (from, to) = (&sides[me], &sides[1 - me]);
        // Reads have sinks of their own, since two into one place would overwrite each other.
        let slot = (0..SLOTS).find(|slot| {
            !open[me].iter().any(|(_, read)| read.is_some_and(|(sink, ..)| sink == slot * SLOT))
        });
        match rng.below(10) {
            0..4 => {
                let len = rng.below(8833) as u32;
                net.post_recv(to, 0, half / 2, 8832);
                net.post(from, to, next_wr, SEND, half, len);
                open[me].push((next_wr, None));
                next_wr += 1;
            }
            4..6 => {
                let len = rng.below(20_000) as u32;
                net.post(from, to, next_wr, write_to(to, half / 2 + rng.below(1000), None), half, len);
                open[me].push((next_wr, None));
                next_wr += 1;
            }
            6..9 if slot.is_some() => {
                let (sink, len) = (slot.unwrap() * SLOT, rng.below(SLOT + 1) as u32);
                let source = rng.below(half - SLOT);
                net.post(from, to, next_wr, read_from(to, half + source), sink, len);
                open[me].push((next_wr, Some((sink, source, len))));
                next_wr += 1;
            }
            _ => {
                for _ in 0..rng.below(40) {
                    net.step();
                }
            }
        }
        check(&mut net, &mut open);
        if open[me].len() > 300 {
            net.settle(Nanos::from_micros(200));
            check(&mut net, &mut open);
        }
    }
    net.judge = None;
    net.run_until(Nanos::from_secs(20), |net| {
        check(net, &mut open);
        open.iter().all(Vec::is_empty)
    });
    assert_eq!(statuses.keys().collect::<Vec<_>>(), [&Status::Ok], "seed {seed}: {statuses:?}");
    for (side, fixed) in sides.iter().zip(&fixed) {
        assert_eq!(net.bytes(side, half, half as usize), *fixed, "seed {seed}");
    }
}

#[test]
fn a_device_wants_a_port_of_its_range() {
    let new = |port| {
        let memory = VecMemory::default();
        Device::new(default(), Gid::default(), port, srd_wire::Incarnation(1), 1, memory)
    };
    let mut device = new(default().port_base + 511);
    assert!(std::panic::catch_unwind(|| new(default().port_base - 1)).is_err());
    assert!(matches!(device.add_port(default().port_base + 512), Err(DeviceError::Invalid(_))));
    assert!(matches!(device.add_port(default().port_base + 511), Err(DeviceError::Invalid(_))));
    device.add_port(default().port_base).unwrap();
    assert_eq!(device.next_timeout(), Time::NEVER);
}

#[test]
fn a_layers_header_crosses_in_front_of_payload_without_bytes() {
    let mut net = Net::new(2, &default(), HeaderMemory::default);
    let all = HeaderMemory::BASE * 2;
    let [a, b] = [0, 1].map(|host| net.side(host, 0, all, srd));
    let header: Vec<u8> = (0..100).collect();
    let slot = net.devices[0].memory().allocate(128).unwrap();
    net.devices[0].memory().bytes_mut(slot, 100).copy_from_slice(&header);
    let buffer = net.devices[1].memory().allocate(8192).unwrap();
    net.post_recv(&b, 1, buffer, 8192);
    let sges = [(slot, 100), (0x5000, 7000)].map(|(addr, len)| Sge { addr, len, lkey: a.key });
    let data = SendData::Sges(&sges);
    let wr = SendWr { wr_id: 2, op: SEND, ah: a.ahs[1], dst_qpn: b.qpn, qkey: QKEY, data };
    net.devices[0].post_send(net.now, a.qpn, &wr).unwrap();
    net.expect(&a, 2, Status::Ok);
    assert_eq!(net.expect(&b, 1, Status::Ok).byte_len, 7100);
    assert_eq!(net.devices[1].memory().bytes(buffer, 100), header);
    assert_eq!(net.devices[1].memory().held(), HeaderMemory::HEAD);
}
