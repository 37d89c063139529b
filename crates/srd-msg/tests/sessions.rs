//! What becomes of messages when a session begins while the program has not received what the one before has left.

mod support;

use srd_msg::*;
use srd_wire::Nanos;
use std::collections::BTreeSet;
use support::*;

/// Sends `count` messages with tags from `first` on. The tags of those that complete, and whether the others have failed.
fn send_all(cluster: &mut Cluster, iov: Iov, first: u64, count: u64) -> BTreeSet<u64> {
    (first..first + count).for_each(|tag| cluster.send(0, 1, tag, iov, tag));
    let done: Vec<Done> = (0..count).map(|_| cluster.next(0)).collect();
    done.iter().filter(|done| done.error.is_none()).map(|done| done.context).collect()
}

/// `left` messages wait for receives when their context ends; the session after it sends another 30. Which of all complete,
/// and which arrive once receives are posted.
fn after_a_pause(config: Config, left: u64, well_known: bool) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let mut cluster = Cluster::with(2, config, device_config(), well_known);
    let iov = cluster.bytes(0, &[1; 2000]);
    cluster.peer(1, 0);
    let mut completed = send_all(&mut cluster, iov, 0, 1);
    cluster.settle(Nanos::from_millis(1));
    completed.extend(send_all(&mut cluster, iov, 1, left));
    cluster.cut(1);
    assert!(send_all(&mut cluster, iov, 10_000, 1).is_empty(), "nobody answers");
    cluster.net.judge = None;
    for first in [20_000, 30_000, 40_000] {
        completed.extend(send_all(&mut cluster, iov, first, 10));
    }
    cluster.settle(Nanos::from_millis(10));
    let room = cluster.room(1, 2000);
    let all = left as usize + 100;
    (0..all).for_each(|_| cluster.recv(1, None, 0, u64::MAX, room, 0));
    cluster.settle(Nanos::from_secs(1));
    let mut arrived = BTreeSet::new();
    while let Some(done) = cluster.domains[1].poll_done() {
        assert_eq!(done.error, None);
        assert!(arrived.insert(done.tag), "{} came twice", done.tag);
    }
    (completed, arrived)
}

#[test]
fn a_window_full_of_what_a_session_has_left_is_in_nobodys_way() {
    let (completed, arrived) = after_a_pause(Config::default(), 500, false);
    assert_eq!(completed.len(), 531);
    assert_eq!(arrived, completed);
}

#[test]
fn nothing_of_a_session_that_is_refused_completes() {
    for well_known in [false, true] {
        let config = Config { most_left: 100_000, ..Config::default() };
        let (completed, arrived) = after_a_pause(config, 100, well_known);
        assert_eq!(completed.len(), 101, "those before the pause");
        assert_eq!(arrived, completed);
    }
}

#[test]
fn a_session_is_refused_until_there_is_room() {
    let mut cluster = Cluster::new(2, Config { most_left: 10_000, ..Config::default() });
    let iov = cluster.bytes(0, &[1; 2000]);
    assert_eq!(send_all(&mut cluster, iov, 0, 10).len(), 10);
    cluster.cut(1);
    assert!(send_all(&mut cluster, iov, 100, 1).is_empty());
    cluster.net.judge = None;
    assert!(send_all(&mut cluster, iov, 200, 1).is_empty());
    let room = cluster.room(1, 2000);
    (0..10).for_each(|_| cluster.recv(1, None, 0, u64::MAX, room, 0));
    (0..10).for_each(|tag| assert_eq!(cluster.next(1).tag, tag));
    assert_eq!(send_all(&mut cluster, iov, 300, 1).len(), 1);
    cluster.recv(1, None, 0, u64::MAX, room, 0);
    assert_eq!(cluster.next(1).tag, 300);
}
