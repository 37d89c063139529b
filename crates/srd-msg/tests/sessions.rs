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

/// What is received of everything that has come, by tag.
fn receive_all(cluster: &mut Cluster) -> BTreeSet<u64> {
    let room = cluster.room(1, 2000);
    (0..700).for_each(|_| cluster.recv(1, None, 0, u64::MAX, room, 0));
    cluster.settle(Nanos::from_secs(1));
    let mut arrived = BTreeSet::new();
    while let Some(done) = cluster.domains[1].poll_done() {
        assert_eq!(done.error, None);
        assert!(arrived.insert(done.tag), "{} came twice", done.tag);
    }
    arrived
}

/// The tags of messages that have completed by now.
fn completed(cluster: &mut Cluster) -> BTreeSet<u64> {
    cluster.settle(Nanos::from_secs(1));
    let done: Vec<Done> = std::iter::from_fn(|| cluster.domains[0].poll_done()).collect();
    done.iter().filter(|done| done.error.is_none()).map(|done| done.context).collect()
}

/// The context ends between two endpoints: a message is lost, and the sessions with it.
fn pause(cluster: &mut Cluster, tag: u64, iov: Iov) {
    cluster.cut(1);
    assert!(send_all(cluster, iov, tag, 1).is_empty(), "nobody answers");
    cluster.net.judge = None;
}

/// Two endpoints, after a pause before which `left` messages came that wait for receives.
fn after_a_pause(config: Config, left: u64, well_known: bool) -> (Cluster, Iov) {
    let mut cluster = Cluster::with(2, config, device_config(), well_known);
    let iov = cluster.bytes(0, &[1; 2000]);
    cluster.peer(1, 0);
    assert_eq!(send_all(&mut cluster, iov, 0, 1).len(), 1);
    cluster.settle(Nanos::from_millis(1));
    assert_eq!(send_all(&mut cluster, iov, 1, left - 1).len() as u64, left - 1);
    pause(&mut cluster, 10_000, iov);
    (cluster, iov)
}

#[test]
fn a_window_full_of_what_a_session_has_left_is_in_nobodys_way() {
    let (mut cluster, iov) = after_a_pause(Config::default(), 500, false);
    assert_eq!(send_all(&mut cluster, iov, 20_000, 30).len(), 30);
    assert_eq!(receive_all(&mut cluster).len(), 530);
}

#[test]
fn a_session_waits_for_room_that_earlier_ones_have_left() {
    for well_known in [false, true] {
        let config = Config { most_left: 100_000, ..Config::default() };
        let (mut cluster, iov) = after_a_pause(config, 100, well_known);
        (20_000..20_030).for_each(|tag| cluster.send(0, 1, tag, iov, tag));
        assert!(completed(&mut cluster).is_empty(), "it may still be dropped");
        assert_eq!(receive_all(&mut cluster).len(), 130);
        assert_eq!(completed(&mut cluster).len(), 30);
    }
}

#[test]
fn what_waits_for_room_in_vain_leaves_nothing() {
    let config = Config { most_left: 100_000, ..Config::default() };
    let (mut cluster, iov) = after_a_pause(config, 100, false);
    for session in 1..=10 {
        (0..30).for_each(|tag| cluster.send(0, 1, 20_000 * session + tag, iov, 20_000 * session + tag));
        assert!(completed(&mut cluster).is_empty());
        pause(&mut cluster, 10_000 * session, iov);
        assert!(completed(&mut cluster).is_empty());
    }
    // The receiver has not heard yet that the last one is over.
    assert_eq!(receive_all(&mut cluster), (0..100).chain(200_000..200_030).collect());
    assert_eq!(send_all(&mut cluster, iov, 500_000, 1).len(), 1);
    assert!(receive_all(&mut cluster).contains(&500_000));
}
