//! How long an endpoint that is to be closed should go on for its peers, and what those see that count on one that has gone.

mod support;

use srd_msg::*;
use srd_wire::{Nanos, Status};
use support::*;

fn farewell(hall: &Hall, at: usize) -> Farewell {
    hall.domains[at].farewell(hall.endpoints[at])
}

#[test]
fn what_a_peer_has_not_acknowledged_is_waited_for_until_the_peer_is_lost() {
    let mut hall = Hall::new(2, Config::default());
    assert_eq!(farewell(&hall, 0), Farewell::Over);
    let iov = hall.bytes(0, &[1; 100]);
    hall.cut(1);
    hall.send(0, 1, 7, iov, 1);
    hall.settle(Nanos::from_millis(10));
    assert_eq!(farewell(&hall, 0), Farewell::Unacknowledged);
    assert!(matches!(hall.next(0).error, Some(Failure::PeerLost(_))));
    assert_eq!(farewell(&hall, 0), Farewell::Over);
}

#[test]
fn what_has_arrived_is_not_waited_for() {
    let mut hall = Hall::new(2, Config::default());
    let iov = hall.bytes(0, &[1; 100]);
    hall.send(0, 1, 7, iov, 1);
    assert_eq!(farewell(&hall, 0), Farewell::Unacknowledged);
    assert_eq!(hall.next(0).error, None);
    hall.settle(Nanos::from_millis(10));
    assert_eq!((farewell(&hall, 0), farewell(&hall, 1)), (Farewell::Over, Farewell::Over));
}

/// Whoever closes does not want the rest of a message that it is reading.
#[test]
fn a_message_on_its_way_in_is_not_waited_for() {
    let mut hall = Hall::new(2, Config::default());
    let (iov, room) = (hall.bytes(0, &[1; 4_000_000]), hall.room(1, 4_000_000));
    hall.recv(1, Some(0), 7, 0, room, 2);
    hall.send(0, 1, 7, iov, 1);
    let mut waits = false;
    while !waits || farewell(&hall, 1) != Farewell::Over {
        hall.progress();
        waits |= farewell(&hall, 1) == Farewell::Unacknowledged;
        assert_eq!(hall.domains[1].poll_done(), None, "it is all there, and was never read alone");
        hall.step();
    }
}

#[test]
fn what_waits_for_room_in_a_lane_is_queued() {
    let mut hall = Hall::new(2, Config::default());
    let peer = hall.peer(0, 1);
    hall.set_lane(
        0,
        peer,
        Some(Box::new(ToTest {
            says: LaneSend::Full,
            sent: Default::default(),
            identity: hall.identities[1].key(),
        })),
    );
    let iov = hall.bytes(0, &[1; 100]);
    hall.send(0, 1, 7, iov, 1);
    assert_eq!(farewell(&hall, 0), Farewell::Queued);
    hall.set_lane(0, peer, None);
    assert_eq!(farewell(&hall, 0), Farewell::Unacknowledged);
    assert_eq!(hall.next(0).error, None);
    hall.settle(Nanos::from_millis(10));
    assert_eq!(farewell(&hall, 0), Farewell::Over);
}

#[test]
fn a_message_for_a_lane_that_leads_nowhere_has_failed() {
    let mut hall = Hall::new(2, Config::default());
    let peer = hall.peer(0, 1);
    hall.set_lane(
        0,
        peer,
        Some(Box::new(ToTest {
            says: LaneSend::Gone,
            sent: Default::default(),
            identity: hall.identities[1].key(),
        })),
    );
    let (short, long) = (hall.bytes(0, &[1; 100]), hall.bytes(0, &[1; 100_000]));
    hall.send(0, 1, 7, short, 1);
    hall.send(0, 1, 7, long, 2);
    let failed = [hall.next(0), hall.next(0)].map(|done| (done.context, done.error));
    let lost = Some(Failure::PeerLost(Status::RemoteAbort));
    assert_eq!(failed, [(1, lost), (2, lost)]);
    // Another process may be there now.
    let room = hall.room(1, 100);
    hall.recv(1, None, 7, 0, room, 3);
    hall.send(0, 1, 7, short, 4);
    assert_eq!((hall.next(0).error, hall.next(1).error), (None, None));
}

/// Nothing is on its way to the peer, so nothing but a question finds out.
#[test]
fn receives_from_a_peer_that_has_gone_fail_and_others_stay() {
    let mut hall = Hall::new(3, Config::default());
    let (iov, room) = (hall.bytes(1, &[1; 100]), hall.room(0, 100));
    hall.recv(0, Some(1), 7, 0, room, 1);
    hall.send(1, 0, 7, iov, 0);
    assert_eq!(hall.next(0).error, None);
    hall.recv(0, Some(1), 7, 0, room, 2);
    let anybody = hall.room(0, 100);
    hall.recv(0, None, 7, 0, anybody, 3);
    hall.settle(Nanos::from_secs(10));
    assert_eq!(hall.domains[0].poll_done(), None, "the peer takes its time");
    hall.cut(1);
    let cut = hall.net.now;
    let failed = hall.next(0);
    assert_eq!((failed.context, failed.error), (2, Some(Failure::PeerLost(Status::Unresponsive))));
    assert!(hall.net.now <= cut + Nanos::from_secs(5), "asked after 2 s, given up after 2 more");
    let iov = hall.bytes(2, &[2; 100]);
    hall.send(2, 0, 7, iov, 0);
    assert_eq!((hall.next(0).context, hall.read(0, anybody)), (3, vec![2; 100]));
}

#[test]
fn receives_from_a_peer_that_has_not_begun_wait() {
    let mut hall = Hall::new(2, Config::default());
    let room = hall.room(0, 100);
    hall.cut(1);
    hall.recv(0, Some(1), 7, 0, room, 1);
    hall.settle(Nanos::from_secs(60));
    assert_eq!(hall.domains[0].poll_done(), None);
    hall.net.judge = None;
    let iov = hall.bytes(1, &[1; 100]);
    hall.send(1, 0, 7, iov, 0);
    let done = hall.next(0);
    assert_eq!((done.context, done.error), (1, None));
}

/// fi_av_remove(3), then fi_av_insert(3) of the same address: whoever is there now is meant.
#[test]
fn a_well_known_address_that_is_named_anew_is_that_of_another_process() {
    let mut hall = Hall::well_known(2, Config::default());
    for life in 0..3u8 {
        let (iov, room) = (hall.bytes(0, &[life; 100]), hall.room(1, 100));
        hall.recv(1, None, 7, 0, room, 2);
        hall.send(0, 1, 7, iov, 1);
        assert_eq!((hall.next(0).error, hall.next(1).error), (None, None), "life {life}");
        assert_eq!(hall.read(1, room), [life; 100]);
        let peer = hall.peer(0, 1);
        let endpoint = hall.endpoints[0];
        hall.domains[0].forget_peer(endpoint, peer);
        hall.restart(1);
    }
}
