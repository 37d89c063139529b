//! What becomes of messages when a session begins while the program has not received what the one before has left.

mod support;

use srd_msg::*;
use srd_wire::Nanos;
use std::collections::BTreeSet;
use support::*;

/// Sends `count` messages with tags from `first` on. The tags of those that complete, and whether the others have failed.
fn send_all(hall: &mut Hall, iov: Iov, first: u64, count: u64) -> BTreeSet<u64> {
    (first..first + count).for_each(|tag| hall.send(0, 1, tag, iov, tag));
    let done: Vec<Done> = (0..count).map(|_| hall.next(0)).collect();
    done.iter().filter(|done| done.error.is_none()).map(|done| done.context).collect()
}

/// `left` messages wait for receives when their context ends; the session after it sends another 30. Which of all complete,
/// and which arrive once receives are posted.
fn after_a_pause(config: Config, left: u64, well_known: bool) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let mut hall = Hall::with(2, config, device_config(), well_known);
    let iov = hall.bytes(0, &[1; 2000]);
    hall.peer(1, 0);
    let mut completed = send_all(&mut hall, iov, 0, 1);
    hall.settle(Nanos::from_millis(1));
    completed.extend(send_all(&mut hall, iov, 1, left));
    hall.cut(1);
    assert!(send_all(&mut hall, iov, 10_000, 1).is_empty(), "nobody answers");
    hall.net.judge = None;
    for first in [20_000, 30_000, 40_000] {
        completed.extend(send_all(&mut hall, iov, first, 10));
    }
    hall.settle(Nanos::from_millis(10));
    let room = hall.room(1, 2000);
    let all = left as usize + 100;
    (0..all).for_each(|_| hall.recv(1, None, 0, u64::MAX, room, 0));
    hall.settle(Nanos::from_secs(1));
    let mut arrived = BTreeSet::new();
    while let Some(done) = hall.domains[1].poll_done() {
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
    let mut hall = Hall::new(2, Config { most_left: 10_000, ..Config::default() });
    let iov = hall.bytes(0, &[1; 2000]);
    assert_eq!(send_all(&mut hall, iov, 0, 10).len(), 10);
    hall.cut(1);
    assert!(send_all(&mut hall, iov, 100, 1).is_empty());
    hall.net.judge = None;
    assert!(send_all(&mut hall, iov, 200, 1).is_empty());
    let room = hall.room(1, 2000);
    (0..10).for_each(|_| hall.recv(1, None, 0, u64::MAX, room, 0));
    (0..10).for_each(|tag| assert_eq!(hall.next(1).tag, tag));
    assert_eq!(send_all(&mut hall, iov, 300, 1).len(), 1);
    hall.recv(1, None, 0, u64::MAX, room, 0);
    assert_eq!(hall.next(1).tag, 300);
}
