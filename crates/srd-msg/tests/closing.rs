//! How long an endpoint that is to be closed should go on for its peers, and what those see that count on one that has gone.

mod support;

use srd_msg::*;
use srd_wire::{Nanos, Status};
use support::*;

fn drain(cluster: &Cluster, at: usize) -> Drain {
    cluster.domains[at].drain(cluster.endpoints[at])
}

#[test]
fn what_a_peer_has_not_acknowledged_is_waited_for_until_the_peer_is_lost() {
    let mut cluster = Cluster::new(2, Config::default());
    assert_eq!(drain(&cluster, 0), Drain::Over);
    let iov = cluster.bytes(0, &[1; 100]);
    cluster.cut(1);
    cluster.send(0, 1, 7, iov, 1);
    cluster.settle(Nanos::from_millis(10));
    assert_eq!(drain(&cluster, 0), Drain::Unacknowledged);
    assert!(matches!(cluster.next(0).error, Some(Failure::PeerLost(_))));
    assert_eq!(drain(&cluster, 0), Drain::Over);
}

#[test]
fn what_has_arrived_is_not_waited_for() {
    let mut cluster = Cluster::new(2, Config::default());
    let iov = cluster.bytes(0, &[1; 100]);
    cluster.send(0, 1, 7, iov, 1);
    assert_eq!(drain(&cluster, 0), Drain::Unacknowledged);
    assert_eq!(cluster.next(0).error, None);
    cluster.settle(Nanos::from_millis(10));
    assert_eq!((drain(&cluster, 0), drain(&cluster, 1)), (Drain::Over, Drain::Over));
}

/// Whoever closes does not want the rest of a message that it is reading.
#[test]
fn a_message_on_its_way_in_is_not_waited_for() {
    let mut cluster = Cluster::new(2, Config::default());
    let (iov, room) = (cluster.bytes(0, &[1; 4_000_000]), cluster.room(1, 4_000_000));
    cluster.recv(1, Some(0), 7, 0, room, 2);
    cluster.send(0, 1, 7, iov, 1);
    let mut waits = false;
    while !waits || drain(&cluster, 1) != Drain::Over {
        cluster.progress();
        waits |= drain(&cluster, 1) == Drain::Unacknowledged;
        assert_eq!(cluster.domains[1].poll_done(), None, "it is all there, and was never read alone");
        cluster.step();
    }
}

#[test]
fn what_waits_for_room_in_a_lane_is_queued() {
    let mut cluster = Cluster::new(2, Config::default());
    let peer = cluster.peer(0, 1);
    cluster.set_lane(
        0,
        peer,
        Some(Box::new(ToTest {
            says: LaneSend::Full,
            sent: Default::default(),
            identity: cluster.identities[1].key(),
        })),
    );
    let iov = cluster.bytes(0, &[1; 100]);
    cluster.send(0, 1, 7, iov, 1);
    assert_eq!(drain(&cluster, 0), Drain::Queued);
    cluster.set_lane(0, peer, None);
    assert_eq!(drain(&cluster, 0), Drain::Unacknowledged);
    assert_eq!(cluster.next(0).error, None);
    cluster.settle(Nanos::from_millis(10));
    assert_eq!(drain(&cluster, 0), Drain::Over);
}

#[test]
fn a_message_for_a_lane_that_leads_nowhere_has_failed() {
    let mut cluster = Cluster::new(2, Config::default());
    let peer = cluster.peer(0, 1);
    cluster.set_lane(
        0,
        peer,
        Some(Box::new(ToTest {
            says: LaneSend::Gone,
            sent: Default::default(),
            identity: cluster.identities[1].key(),
        })),
    );
    let (short, long) = (cluster.bytes(0, &[1; 100]), cluster.bytes(0, &[1; 100_000]));
    cluster.send(0, 1, 7, short, 1);
    cluster.send(0, 1, 7, long, 2);
    // What the peer has sent by its own lane may still lie there.
    cluster.domains[0].progress(&mut cluster.net.devices[0], cluster.net.now);
    assert!(cluster.domains[0].poll_done().is_none());
    let failed = [cluster.next(0), cluster.next(0)].map(|done| (done.context, done.error));
    let lost = Some(Failure::PeerLost(Status::RemoteAbort));
    assert_eq!(failed, [(1, lost), (2, lost)]);
    // Another process may be there now.
    let room = cluster.room(1, 100);
    cluster.recv(1, None, 7, 0, room, 3);
    cluster.send(0, 1, 7, short, 4);
    assert_eq!((cluster.next(0).error, cluster.next(1).error), (None, None));
}

/// Nothing is on its way to the peer, so nothing but a question finds out.
#[test]
fn receives_from_a_peer_that_has_gone_fail_and_others_stay() {
    let mut cluster = Cluster::new(3, Config::default());
    let (iov, room) = (cluster.bytes(1, &[1; 100]), cluster.room(0, 100));
    cluster.recv(0, Some(1), 7, 0, room, 1);
    cluster.send(1, 0, 7, iov, 0);
    assert_eq!(cluster.next(0).error, None);
    cluster.recv(0, Some(1), 7, 0, room, 2);
    let anybody = cluster.room(0, 100);
    cluster.recv(0, None, 7, 0, anybody, 3);
    cluster.settle(Nanos::from_secs(10));
    assert_eq!(cluster.domains[0].poll_done(), None, "the peer takes its time");
    cluster.cut(1);
    let cut = cluster.net.now;
    let failed = cluster.next(0);
    assert_eq!((failed.context, failed.error), (2, Some(Failure::PeerLost(Status::Unresponsive))));
    assert!(cluster.net.now <= cut + Nanos::from_secs(5), "asked after 2 s, given up after 2 more");
    let iov = cluster.bytes(2, &[2; 100]);
    cluster.send(2, 0, 7, iov, 0);
    assert_eq!((cluster.next(0).context, cluster.read(0, anybody)), (3, vec![2; 100]));
}

#[test]
fn receives_from_a_peer_that_has_not_begun_wait() {
    let mut cluster = Cluster::new(2, Config::default());
    let room = cluster.room(0, 100);
    cluster.cut(1);
    cluster.recv(0, Some(1), 7, 0, room, 1);
    cluster.settle(Nanos::from_secs(60));
    assert_eq!(cluster.domains[0].poll_done(), None);
    cluster.net.judge = None;
    let iov = cluster.bytes(1, &[1; 100]);
    cluster.send(1, 0, 7, iov, 0);
    let done = cluster.next(0);
    assert_eq!((done.context, done.error), (1, None));
}

/// fi_av_remove(3), then fi_av_insert(3) of the same address: whoever is there now is meant.
#[test]
fn a_well_known_address_that_is_named_anew_is_that_of_another_process() {
    let mut cluster = Cluster::well_known(2, Config::default());
    for life in 0..3u8 {
        let (iov, room) = (cluster.bytes(0, &[life; 100]), cluster.room(1, 100));
        cluster.recv(1, None, 7, 0, room, 2);
        cluster.send(0, 1, 7, iov, 1);
        assert_eq!((cluster.next(0).error, cluster.next(1).error), (None, None), "life {life}");
        assert_eq!(cluster.read(1, room), [life; 100]);
        let peer = cluster.peer(0, 1);
        let endpoint = cluster.endpoints[0];
        cluster.domains[0].forget_peer(endpoint, peer);
        cluster.restart(1);
    }
}
