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
