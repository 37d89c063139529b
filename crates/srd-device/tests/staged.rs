//! Faults on purpose, as a program sees them: words of `SRD_FAULT`.

mod harness;

use harness::*;
use srd_device::*;
use srd_wire::{Nanos, Status};

const SEND: SendOp = SendOp::Send { imm: None };

fn staged(words: &[(&str, &str)]) -> DeviceConfig {
    let mut faults = StagedFaults::default();
    for (word, value) in words {
        faults.set(word, value).expect("a word of these").unwrap();
    }
    DeviceConfig { staged: faults, ..DeviceConfig::default() }
}

/// Statuses of so many sends of the first host, one after the other, and what the second has received.
fn sends(config: &DeviceConfig, count: u64) -> (Vec<(u64, Status)>, usize) {
    let (mut net, a, b) = two(config);
    for n in 0..count {
        net.post_recv(&b, n, 0, 100);
        net.post(&a, &b, n, SEND, 0, 100);
    }
    net.settle(SECOND);
    let mut drain = |side: &Side| -> Vec<(u64, Status)> {
        let device = &mut net.devices[side.host];
        std::iter::from_fn(|| device.poll_cq(side.cq)).map(|it| (it.wr_id, it.status)).collect()
    };
    let received = drain(&b).len();
    let mut sent = drain(&a);
    sent.sort_by_key(|it| it.0);
    (sent, received)
}

#[test]
fn work_that_fails_is_not_sent_and_the_queue_goes_on() {
    let (sent, received) = sends(&staged(&[("fail", "13@2+10@%5")]), 10);
    let failed: Vec<_> = sent.iter().filter(|it| it.1 != Status::Ok).collect();
    assert_eq!(failed, [&(1, Status::Unresponsive), &(4, Status::RemoteRnr), &(9, Status::RemoteRnr)]);
    assert_eq!((sent.len(), received), (10, 7));
}

#[test]
fn a_late_completion_is_overtaken_and_comes() {
    let (mut net, a, b) = two(&staged(&[("late", "5000@send:1")]));
    for n in 0..3 {
        net.post_recv(&b, n, 0, 100);
        net.post(&a, &b, n, SEND, 0, 100);
    }
    let posted = net.now;
    for wr_id in [1, 2, 0] {
        net.run_until(SECOND, |net| net.devices[0].poll_cq(a.cq).is_some_and(|it| it.wr_id == wr_id));
    }
    assert!(net.now.since(posted) >= Nanos::from_micros(5000));
}

#[test]
fn a_late_completion_goes_with_its_queue_pair() {
    let (mut net, a, b) = two(&staged(&[("late", "5000@%1")]));
    net.post_recv(&b, 0, 0, 100);
    net.post(&a, &b, 0, SEND, 0, 100);
    net.settle(Nanos::from_micros(1000));
    assert!(net.devices[0].poll_cq(a.cq).is_none());
    let now = net.now;
    net.devices[0].destroy_qp(now, a.qpn).unwrap();
    net.settle(SECOND);
    assert!(net.devices[0].poll_cq(a.cq).is_none());
}

#[test]
fn an_overrun_loses_the_completion_and_says_so() {
    let config = staged(&[("overrun", "send:2")]);
    let (sent, received) = sends(&config, 3);
    // The message is there, and nobody hears of it.
    assert_eq!((sent.len(), received), (2, 3));
    let (mut net, a, b) = two(&config);
    for n in 0..2 {
        net.post_recv(&b, n, 0, 100);
        net.post(&a, &b, n, SEND, 0, 100);
    }
    net.settle(SECOND);
    assert_eq!(net.devices[0].poll_async_event(), Some(AsyncEvent::CqOverrun(a.cq)));
    assert_eq!(net.devices[0].poll_async_event(), None);
}

#[test]
fn chance_is_the_seeds() {
    let config = staged(&[("fail", "13@0.2")]);
    let (first, _) = sends(&config, 50);
    assert_eq!(first, sends(&config, 50).0);
    let mut other = config.clone();
    other.staged.seed = 2;
    assert_ne!(first, sends(&other, 50).0);
}

/// The next completions of a side, by work request.
fn next(net: &mut Hosts, side: &Side, count: usize) -> Vec<(u64, Status)> {
    (0..count).map(|_| net.next_completion(side)).map(|it| (it.wr_id, it.status)).collect()
}

#[test]
fn a_completion_that_is_overtaken_comes_after_so_many_others() {
    let (mut net, a, b) = two(&staged(&[("overtaken", "2@send:1")]));
    for n in 0..4 {
        net.post_recv(&b, n, 0, 100);
        net.post(&a, &b, n, SEND, 0, 100);
        net.settle(Nanos::from_micros(500));
    }
    let order: Vec<u64> = next(&mut net, &a, 4).iter().map(|it| it.0).collect();
    assert_eq!(order, [1, 2, 0, 3]);
    // Where nothing comes to overtake it, it comes all the same.
    let (mut net, a, b) = two(&staged(&[("overtaken", "2@send:1")]));
    net.post_recv(&b, 0, 0, 100);
    net.post(&a, &b, 0, SEND, 0, 100);
    net.settle(Nanos::from_millis(90));
    net.expect_none(&a);
    net.expect(&a, 0, Status::Ok);
}

/// Its work fails as if the handle had been destroyed, until it is.
#[test]
fn a_stale_handle_flushes_its_work_and_takes_no_more_until_there_is_another() {
    let (mut net, a, b) = two(&staged(&[("stale", "3")]));
    for n in 0..2 {
        net.post(&a, &b, n, SEND, 0, 100); // no receive: it waits
    }
    net.settle(Nanos::from_millis(5));
    net.post(&a, &b, 2, SEND, 0, 100);
    net.post(&a, &b, 3, SEND, 0, 100);
    let flushed = [(0, Status::Flushed), (1, Status::Flushed)];
    let refused = [(2, Status::LocalInvalidAh), (3, Status::LocalInvalidAh)];
    assert_eq!(next(&mut net, &a, 4), [flushed, refused].concat());
    let device = &mut net.devices[0];
    device.destroy_ah(net.now, a.pd, a.ahs[1]).unwrap();
    assert_eq!(device.create_ah(a.pd, gid(1)).unwrap(), a.ahs[1]);
    net.post_recv(&b, 0, 0, 100);
    net.post(&a, &b, 4, SEND, 0, 100);
    net.expect(&a, 4, Status::Ok);
}

#[test]
fn a_device_ends_with_a_work_request_or_at_a_time() {
    for (word, which, end) in [("gone", "send:2", DeviceEnd::Gone), ("reset", "us:2000", DeviceEnd::Reset)] {
        let (mut net, a, b) = two(&staged(&[(word, which)]));
        net.post(&a, &b, 0, SEND, 0, 100);
        net.settle(Nanos::from_micros(1900));
        assert!(net.devices[0].ended().is_none() && !net.devices[0].has_fired());
        net.settle(Nanos::from_micros(200));
        net.post(&a, &b, 1, SEND, 0, 100);
        assert_eq!(net.devices[0].ended(), Some(end));
        assert!(net.devices[0].has_fired(), "whoever runs it looks");
        let last = net.devices[0].last_completions();
        let last: Vec<_> = last.iter().map(|(_, it)| (it.wr_id, it.status)).collect();
        assert_eq!(last, [(0, Status::Flushed), (1, Status::Flushed)]);
    }
}
