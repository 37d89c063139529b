//! Messages, a rule each, in virtual time.

mod support;

use srd_device::DeviceConfig;
use srd_msg::*;
use srd_wire::Nanos;
use std::sync::{Arc, Mutex};
use support::harness::{Fate, gid, pattern};
use support::*;

const SIZES: [usize; 9] = [0, 1, 8, 512, 513, 8_000, 9_000, 60_000, 3_000_000];

#[track_caller]
fn check(cluster: &mut Cluster, at: usize, context: u64, iov: Iov, expected: &[u8]) -> Done {
    let done = cluster.next(at);
    assert_eq!((done.context, done.error, done.len), (context, None, expected.len() as u64), "{done:?}");
    let got = cluster.read(at, Iov { len: done.len, ..iov });
    assert!(got == expected, "bytes differ");
    done
}

#[test]
fn messages_of_all_lengths_arrive_whole_wherever_they_wait() {
    for rough in [None, Some(1), Some(2), Some(3)] {
        for by_read in [true, false] {
            for expected in [true, false] {
                let mut cluster =
                    Cluster::new(2, Config { rendezvous_by_read: by_read, ..Config::default() });
                rough.into_iter().for_each(|seed| cluster.rough(seed));
                for (n, len) in (1..).zip(SIZES) {
                    let bytes = pattern(len, n);
                    let (from, to) = (cluster.bytes(0, &bytes), cluster.room(1, len));
                    if expected {
                        cluster.recv(1, Some(0), n, 0, to, n + 100);
                    }
                    cluster.send(0, 1, n, from, n);
                    if !expected {
                        cluster.settle(Nanos::from_millis(5));
                        cluster.nothing(1);
                        cluster.recv(1, Some(0), n, 0, to, n + 100);
                    }
                    let done = check(&mut cluster, 1, n + 100, to, &bytes);
                    assert_eq!((done.tag, done.source), (n, 0));
                    let sent = cluster.next(0);
                    assert_eq!((sent.context, sent.kind, sent.error), (n, Kind::Send { tagged: true }, None));
                }
                let counters = cluster.counters(1);
                assert!(counters.malformed == 0 && counters.stale == 0, "{counters:?}");
                assert_eq!(counters.fetched_by_read > 0, by_read);
                assert_eq!(counters.fetched_by_grants > 0, !by_read);
            }
        }
    }
}

/// Two hosts that have spoken to each other, whose devices take messages of 64 KB, and a receive for one that is sent then.
fn long(rough: Option<u64>) -> (Cluster, Iov, Vec<u8>) {
    let device_config = DeviceConfig { max_msg: 70_000, ..device_config() };
    let mut cluster = Cluster::with_device(2, Config::default(), device_config);
    rough.into_iter().for_each(|seed| cluster.rough(seed));
    for (from, to) in [(0, 1), (1, 0), (0, 1), (1, 0)] {
        let (bytes, room) = (cluster.bytes(from, &[1]), cluster.room(to, 1));
        cluster.recv(to, Some(from), 1, 0, room, 1);
        cluster.send(from, to, 1, bytes, 2);
        cluster.next(to);
        cluster.next(from);
    }
    let bytes = pattern(60_000, 5);
    let (from, to) = (cluster.bytes(0, &bytes), cluster.room(1, 60_000));
    cluster.recv(1, None, 7, 0, to, 3);
    cluster.send(0, 1, 7, from, 4);
    (cluster, to, bytes)
}

#[test]
fn a_long_message_whose_receive_waits_is_placed_there_from_its_first_packet_on() {
    let (mut cluster, to, bytes) = long(None);
    // It is there before the domain looks at what has completed.
    while cluster.counters(1).placed == 0 {
        assert!(cluster.step());
    }
    (0..20).for_each(|_| _ = cluster.step());
    let here = cluster.read(1, to).iter().zip(&bytes).take_while(|(here, sent)| here == sent).count();
    assert!(here > 10_000, "{here} bytes");
    cluster.nothing(1);
    check(&mut cluster, 1, 3, to, &bytes);
    assert_eq!(cluster.next(0).error, None);
    let placed = (0..20).filter(|&seed| {
        let (mut cluster, to, bytes) = long(Some(seed));
        check(&mut cluster, 1, 3, to, &bytes);
        cluster.counters(1).placed > 0
    });
    assert!(placed.count() > 0, "and where packets are lost and late");
}

#[test]
fn a_message_whose_sender_is_lost_halfway_fails_and_nothing_is_placed_afterwards() {
    let (mut cluster, to, bytes) = long(None);
    while cluster.counters(1).placed == 0 {
        assert!(cluster.step());
    }
    // Both are cut off for longer than the peer timeout, and what was under way comes later.
    let held = Nanos::from_secs(4);
    cluster.net.judge = Some(Box::new(move |from, _| if from == 0 { Fate::Late(held) } else { Fate::Lost }));
    let done = cluster.next(1);
    assert_eq!((done.context, done.len), (3, 60_000));
    assert!(matches!(done.error, Some(Failure::PeerLost(_))), "{done:?}");
    let left = cluster.read(1, to);
    assert!(left != bytes);
    cluster.net.judge = None;
    cluster.settle(Nanos::from_secs(10));
    assert!(cluster.read(1, to) == left, "it is the program's again");
    assert!(cluster.next(0).error.is_some());
}

#[test]
fn messages_of_one_sender_match_in_the_order_of_sending() {
    let mut cluster = Cluster::new(2, Config::default());
    cluster.rough(7);
    let mut rooms = Vec::new();
    for n in 0..200u64 {
        let len = SIZES[n as usize % 8];
        let bytes = vec![n as u8; len];
        let from = cluster.bytes(0, &bytes);
        cluster.send(0, 1, 5, from, n);
        rooms.push(len);
    }
    for (n, &len) in (0..).zip(&rooms) {
        let to = cluster.room(1, 60_000);
        cluster.recv(1, None, 5, 0, to, n);
        let done = cluster.next(1);
        assert_eq!((done.context, done.len, done.error), (n, len as u64, None));
        assert!(cluster.read(1, Iov { len: len as u64, ..to }).iter().all(|&byte| byte == n as u8));
    }
}

#[test]
fn a_message_too_long_for_its_receive_is_truncated_and_says_by_how_much() {
    for len in [100, 20_000, 1_000_000] {
        let mut cluster = Cluster::new(2, Config::default());
        let bytes = pattern(len, 1);
        let (from, to) = (cluster.bytes(0, &bytes), cluster.room(1, 60));
        cluster.recv(1, None, 1, 0, to, 1);
        cluster.send(0, 1, 1, from, 2);
        let done = cluster.next(1);
        assert_eq!(done.error, Some(Failure::Truncated { over: len as u64 - 60 }));
        assert_eq!((done.len, cluster.read(1, to)), (60, bytes[..60].to_vec()));
        assert_eq!(cluster.next(0).error, None);
    }
}

#[test]
fn delivery_complete_waits_for_the_receive() {
    for len in [0, 100, 20_000, 500_000] {
        let mut cluster = Cluster::new(2, Config::default());
        let (from, to) = (cluster.bytes(0, &pattern(len, 1)), cluster.room(1, len));
        cluster.try_send(0, 1, Some(1), &[from], 2, DELIVER).unwrap();
        cluster.settle(Nanos::from_millis(50));
        cluster.nothing(0);
        cluster.recv(1, None, 1, 0, to, 1);
        assert_eq!(cluster.next(0).error, None);
    }
}

#[test]
fn what_is_injected_may_be_overwritten_at_once() {
    let mut cluster = Cluster::new(2, Config::default());
    for len in [1, 600, 4096] {
        let bytes = pattern(len, 9);
        let (from, to) = (cluster.bytes(0, &bytes), cluster.room(1, len));
        cluster.try_send(0, 1, None, &[from], 3, INJECT).unwrap();
        cluster.net.devices[0].memory().at_mut(from.addr, len).fill(0);
        let recv = Recv {
            from: None,
            matching: Match::Untagged,
            iov: &[to],
            context: 4,
            report: true,
            multi: false,
            claim: false,
        };
        cluster.post(1, &recv).unwrap();
        check(&mut cluster, 1, 4, to, &bytes);
    }
    let from = cluster.room(0, 4097);
    assert_eq!(cluster.try_send(0, 1, None, &[from], 3, INJECT), Err(Refused::TooLong));
}

#[test]
fn a_flooded_receiver_holds_no_more_than_its_window_and_loses_nothing() {
    let mut cluster = Cluster::new(2, Config::default());
    let len = 4_000;
    let mut sent = 0;
    for n in 0..3_000u64 {
        let from = cluster.bytes(0, &vec![n as u8; len]);
        match cluster.try_send(0, 1, Some(n), &[from], n, REPORT) {
            Ok(()) => sent += 1,
            Err(Refused::Again) => break,
            Err(other) => panic!("{other:?}"),
        }
        cluster.settle(Nanos::from_micros(20));
    }
    cluster.settle(Nanos::from_millis(50));
    let counters = cluster.counters(0);
    // At most a megabyte is on the other side.
    assert!(counters.held_back > 0 && counters.eager_sent * len as u64 <= 1 << 20, "{counters:?}");
    for n in (0..sent).rev() {
        let to = cluster.room(1, len);
        cluster.recv(1, Some(0), n, 0, to, n);
        check(&mut cluster, 1, n, to, &vec![n as u8; len]);
    }
    assert_eq!(cluster.counters(1).malformed, 0);
}

#[test]
fn who_is_named_after_a_message_of_its_has_the_window_of_those_that_are() {
    let mut cluster = Cluster::new(2, Config::default());
    let len = 64 << 10;
    for n in 0..20u64 {
        let from = cluster.bytes(0, &vec![n as u8; if n == 0 { 8 } else { len }]);
        let to = cluster.room(1, len);
        // From whomever it comes.
        cluster.recv(1, None, n, 0, to, n);
        cluster.send(0, 1, n, from, n);
        cluster.settle(Nanos::from_millis(1));
        check(&mut cluster, 1, n, to, &vec![n as u8; from.len as usize]);
        if n == 0 {
            cluster.peer(1, 0);
        }
    }
    let counters = cluster.counters(0);
    // The first of them says that it is there, and hears of the window.
    assert_eq!((counters.held_back, counters.medium_sent), (1, 18), "{counters:?}");
}

#[test]
fn a_message_goes_in_one_piece_to_who_says_that_it_takes_that() {
    let config = Config::default();
    let long = DeviceConfig { max_msg: config.device_message(), ..device_config() };
    let mut cluster = Cluster::with_device(2, config, long);
    let len = 40_000;
    let talk = |cluster: &mut Cluster, from: usize, n: u64, len: usize| {
        let to = 1 - from;
        let (here, there) = (cluster.bytes(from, &vec![n as u8; len]), cluster.room(to, len));
        cluster.recv(to, None, n, 0, there, n);
        cluster.send(from, to, n, here, n);
        cluster.settle(Nanos::from_millis(1));
        check(cluster, to, n, there, &vec![n as u8; len]);
        assert_eq!(cluster.domains[from].poll_done().map(|done| (done.context, done.error)), Some((n, None)));
    };
    // Until it has said so, it may be one that does not.
    talk(&mut cluster, 0, 1, len);
    assert_eq!(cluster.counters(0).medium_sent, 1);
    talk(&mut cluster, 0, 2, len);
    talk(&mut cluster, 1, 3, len);
    talk(&mut cluster, 1, 4, len);
    assert_eq!((cluster.counters(0).medium_sent, cluster.counters(0).eager_sent), (1, 1));
    assert_eq!(cluster.counters(1).medium_sent, 0, "{:?}", cluster.counters(1));
    // Another process is there, which takes less.
    cluster.device_config = device_config();
    cluster.restart(1);
    talk(&mut cluster, 1, 5, 8);
    for n in 6..9 {
        talk(&mut cluster, 0, n, len);
        talk(&mut cluster, 1, n + 10, len);
    }
    assert_eq!((cluster.counters(0).medium_sent, cluster.counters(0).eager_sent), (4, 1));
    assert_eq!(cluster.counters(1).medium_sent, 3, "{:?}", cluster.counters(1));
}

#[test]
fn peek_claim_and_discard() {
    for len in [10, 30_000, 400_000] {
        let mut cluster = Cluster::new(2, Config::default());
        let from_0 = Some(cluster.peer(1, 0));
        let look = Peek {
            from: from_0,
            matching: Match::Tagged { tag: 1, ignore: 0 },
            context: 50,
            claim: false,
            discard: false,
        };
        cluster.peek(1, &look).unwrap();
        assert_eq!(cluster.next(1).error, Some(Failure::NoMessage));
        for n in 1..=3 {
            let from = cluster.bytes(0, &pattern(len, n));
            cluster.send(0, 1, 1, from, n);
        }
        cluster.settle(Nanos::from_millis(20));
        cluster.peek(1, &look).unwrap();
        let done = cluster.next(1);
        assert_eq!((done.error, done.len, done.tag, done.source), (None, len as u64, 1, 0));
        // The first is set aside, the second dropped, the third left.
        cluster.peek(1, &Peek { claim: true, context: 51, ..look }).unwrap();
        assert_eq!(cluster.next(1).context, 51);
        cluster.peek(1, &Peek { discard: true, context: 52, ..look }).unwrap();
        assert_eq!(cluster.next(1).context, 52);
        let to = cluster.room(1, len);
        cluster.recv(1, None, 1, 0, to, 60);
        check(&mut cluster, 1, 60, to, &pattern(len, 3));
        let matching = Match::Tagged { tag: 1, ignore: 0 };
        let claim =
            Recv { from: None, matching, iov: &[to], context: 51, report: true, multi: false, claim: true };
        cluster.post(1, &claim).unwrap();
        check(&mut cluster, 1, 51, to, &pattern(len, 1));
        assert_eq!(cluster.post(1, &claim), Err(Refused::NotClaimed));
        cluster.settle(Nanos::from_millis(20));
        for n in 1..=3 {
            assert_eq!(cluster.next(0).error, None, "{n}");
        }
    }
}

#[test]
fn a_multi_receive_buffer_takes_messages_until_it_is_nearly_full() {
    let mut cluster = Cluster::new(2, Config::default());
    let endpoint = cluster.endpoints[1];
    cluster.domains[1].set_min_multi_recv(endpoint, 100);
    let room = cluster.room(1, 1000);
    let recv = Recv {
        from: None,
        matching: Match::Untagged,
        iov: &[room],
        context: 9,
        report: true,
        multi: true,
        claim: false,
    };
    for n in 0..2u8 {
        let from = cluster.bytes(0, &[n; 300]);
        cluster.try_send(0, 1, None, &[from], 1, REPORT).unwrap();
    }
    cluster.settle(Nanos::from_millis(10));
    cluster.post(1, &recv).unwrap();
    let from = cluster.bytes(0, &[2; 350]);
    cluster.try_send(0, 1, None, &[from], 1, REPORT).unwrap();
    let mut at = room.addr;
    for (n, len) in [(0u8, 300), (1, 300), (2, 350)] {
        let done = cluster.next(1);
        assert_eq!((done.buf, done.len, done.context, done.buffer_released), (at, len, 9, n == 2));
        assert!(cluster.read(1, Iov { addr: at, len }).iter().all(|&byte| byte == n));
        at += len;
    }
}

#[test]
fn a_receive_can_be_cancelled_until_it_has_a_message() {
    let mut cluster = Cluster::new(2, Config::default());
    let to = cluster.room(1, 10);
    cluster.recv(1, None, 1, 0, to, 7);
    let endpoint = cluster.endpoints[1];
    assert!(cluster.domains[1].cancel(endpoint, 7));
    assert_eq!(cluster.next(1).error, Some(Failure::Canceled));
    assert!(!cluster.domains[1].cancel(endpoint, 7));
}

#[test]
fn a_message_to_oneself_arrives() {
    let mut cluster = Cluster::new(1, Config::default());
    for len in [8, 20_000, 300_000] {
        let bytes = pattern(len, 2);
        let (from, to) = (cluster.bytes(0, &bytes), cluster.room(0, len));
        cluster.recv(0, Some(0), 1, 0, to, 1);
        cluster.send(0, 0, 1, from, 2);
        let mut contexts = [cluster.next(0).context, cluster.next(0).context];
        contexts.sort();
        assert_eq!(contexts, [1, 2]);
        assert!(cluster.read(0, to) == bytes);
    }
}

// ---- peers that go ----

#[test]
fn a_dead_peer_ends_everything_that_waits_for_it() {
    for len in [100, 20_000, 3_000_000] {
        let mut cluster = Cluster::new(2, Config::default());
        let from = cluster.bytes(0, &pattern(len, 1));
        // Something has gone well before.
        let to = cluster.room(1, len);
        cluster.recv(1, None, 1, 0, to, 1);
        cluster.send(0, 1, 1, from, 1);
        cluster.next(1);
        cluster.next(0);
        // Half of a message is over when the line is cut.
        cluster.recv(1, None, 2, 0, to, 2);
        cluster.send(0, 1, 2, from, 2);
        cluster.settle(Nanos::from_micros(if len < 1_000_000 { 2 } else { 12 }));
        cluster.cut(1);
        let sent = cluster.next(0);
        assert!(matches!(sent.error, Some(Failure::PeerLost(_))), "{len}: {sent:?}");
        if len > 1_000_000 {
            let received = cluster.next(1);
            assert!(matches!(received.error, None | Some(Failure::PeerLost(_))), "{received:?}");
        }
        // The line is mended: a new session begins by itself.
        cluster.net.judge = None;
        cluster.settle(Nanos::from_secs(5));
        while cluster.domains[1].poll_done().is_some() {}
        cluster.recv(1, None, 3, 0, to, 3);
        cluster.send(0, 1, 3, from, 3);
        assert_eq!(cluster.next(1).error, None);
        assert_eq!(cluster.next(0).error, None);
    }
}

/// It had ended without a word, and nothing follows that has a number.
#[test]
fn a_message_that_ended_with_its_receiver_fails_when_a_successor_speaks() {
    let mut cluster = Cluster::well_known(2, Config::default());
    let iov = cluster.bytes(1, &[1; 200_000]);
    cluster.send(1, 0, 7, iov, 1);
    // The device takes it; the process has no time to look.
    let endpoint = cluster.endpoints[1];
    while cluster.domains[1].drain(endpoint) != Drain::Over {
        cluster.net.flush();
        cluster.net.step();
        cluster.domains[1].progress(&mut cluster.net.devices[1], cluster.net.now);
    }
    cluster.restart(0);
    let (word, room) = (cluster.bytes(0, &[2; 8]), cluster.room(1, 8));
    cluster.recv(1, Some(0), 8, 0, room, 2);
    cluster.send(0, 1, 8, word, 1);
    let outcomes = [cluster.next(1), cluster.next(1)].map(|done| (done.context, done.error));
    let lost = outcomes.iter().find(|(context, _)| *context == 1).expect("both complete").1;
    assert!(matches!(lost, Some(Failure::PeerLost(_))), "{lost:?}");
    assert!(outcomes.contains(&(2, None)), "{outcomes:?}");
    assert_eq!(cluster.next(0).error, None);
}

#[test]
fn the_dead_and_the_living_at_one_place_are_two_peers() {
    for (seed, len) in [(1, 100), (2, 20_000), (3, 3_000_000)] {
        let mut cluster = Cluster::new(2, Config::default());
        let bytes = pattern(len, seed);
        let (from, to) = (cluster.bytes(0, &bytes), cluster.room(1, len));
        cluster.recv(1, None, 1, 0, to, 1);
        cluster.send(0, 1, 1, from, 1);
        assert_eq!((cluster.next(1).error, cluster.next(0).error), (None, None));
        let dead = cluster.peer(0, 1);
        cluster.restart(1);
        let (living, to_room) = (cluster.peer(0, 1), cluster.room(1, len));
        assert_ne!(dead, living);
        // One after the other in the same context of the device.
        let to_them = [dead, living, dead, living];
        for (context, to) in (2..).zip(to_them) {
            let send = Send { to, tag: Some(2), iov: &[from], data: Some(context), context, flags: REPORT };
            cluster.post_send(0, &send).unwrap();
            cluster.recv(1, None, 2, 0, to_room, context);
        }
        let mut sent: Vec<Done> = (0..4).map(|_| cluster.next(0)).collect();
        sent.sort_by_key(|done| done.context);
        for done in sent {
            let lost = matches!(done.error, Some(Failure::PeerLost(_)));
            assert_eq!(lost, done.context % 2 == 0, "{len}: {done:?}");
        }
        // Long ones may come to their end in any order.
        let mut received = [cluster.next(1), cluster.next(1)].map(|done| (done.data, done.error));
        received.sort_by_key(|&(data, _)| data);
        assert_eq!(received, [(Some(3), None), (Some(5), None)]);
        cluster.settle(Nanos::from_secs(5));
        cluster.nothing(1);
        assert_eq!((cluster.read(1, to_room), cluster.counters(1).malformed), (bytes, 0));
    }
}

/// The device still has the context of the dead one when the living one, whom it knows by its lane alone, is woken.
#[test]
fn the_living_is_not_lost_with_the_context_of_the_dead() {
    let mut cluster = Cluster::new(2, Config::default());
    let (from, to) = (cluster.bytes(0, &[1; 100]), cluster.room(1, 100));
    cluster.recv(1, None, 1, 0, to, 1);
    cluster.send(0, 1, 1, from, 1);
    assert_eq!((cluster.next(1).error, cluster.next(0).error), (None, None));
    cluster.restart(1);
    let slots: [Arc<Mutex<Vec<Vec<u8>>>>; 2] = Default::default();
    for (at, of) in [(0, 1), (1, 0)] {
        let (peer, identity) = (cluster.peer(at, of), cluster.identities[of].key());
        cluster.set_lane(
            at,
            peer,
            Some(Box::new(ToTest {
                says: LaneSend::Sent { asleep: true },
                sent: slots[at].clone(),
                identity,
            })),
        );
    }
    let words = [cluster.bytes(0, &[2; 100]), cluster.bytes(1, &[3; 100])];
    let rooms = [cluster.room(0, 100), cluster.room(1, 100)];
    for turn in 2..6 {
        // The living one speaks first.
        for (at, of) in [(1, 0), (0, 1)] {
            cluster.recv(of, Some(at), turn, 0, rooms[of], turn);
            cluster.send(at, of, turn, words[at], turn);
            assert_eq!(cluster.next(at).error, None, "turn {turn}");
            for letter in std::mem::take(&mut *slots[at].lock().unwrap()) {
                let letter = cluster.bytes(of, &letter);
                let (now, endpoint) = (cluster.net.now, cluster.endpoints[of]);
                let from = (gid(at), cluster.qpns[at]);
                let (domain, device) = (&mut cluster.domains[of], &mut cluster.net.devices[of]);
                domain.arrived_by_shm(device, now, endpoint, from, letter.addr, letter.len as u32);
            }
            let done = cluster.next(of);
            assert_eq!((done.context, done.error), (turn, None), "turn {turn}");
        }
        cluster.settle(Nanos::from_secs(if turn == 2 { 5 } else { 0 }));
    }
}

/// Which domains have asked their device for something since the last call.
fn touched(cluster: &mut Cluster) -> Vec<bool> {
    cluster.domains.iter_mut().map(Domain::take_touched).collect()
}

/// Whoever runs the device relies on that: it then looks after nothing that was not due before.
#[test]
fn what_goes_by_a_lane_leaves_the_device_alone() {
    let mut cluster = Cluster::new(2, Config::default());
    let slots: [Arc<Mutex<Vec<Vec<u8>>>>; 2] = Default::default();
    for (at, of) in [(0, 1), (1, 0)] {
        let (peer, identity) = (cluster.peer(at, of), cluster.identities[of].key());
        let (says, sent) = (LaneSend::Sent { asleep: false }, slots[at].clone());
        cluster.set_lane(at, peer, Some(Box::new(ToTest { says, sent, identity })));
    }
    let words = [cluster.bytes(0, &[2; 100]), cluster.bytes(1, &[3; 100])];
    let rooms = [cluster.room(0, 100), cluster.room(1, 100)];
    for turn in 0..8 {
        for (at, of) in [(1, 0), (0, 1)] {
            let _ = touched(&mut cluster);
            cluster.recv(of, None, turn, 0, rooms[of], turn);
            cluster.send(at, of, turn, words[at], turn);
            for letter in std::mem::take(&mut *slots[at].lock().unwrap()) {
                let letter = cluster.bytes(of, &letter);
                let (now, endpoint, from) =
                    (cluster.net.now, cluster.endpoints[of], (gid(at), cluster.qpns[at]));
                let (domain, device) = (&mut cluster.domains[of], &mut cluster.net.devices[of]);
                domain.arrived_by_shm(device, now, endpoint, from, letter.addr, letter.len as u32);
            }
            let touched = touched(&mut cluster);
            // Hellos, which go by the lanes, too, are said in the first turns.
            assert!(turn < 2 || touched == [false, false], "turn {turn}: {touched:?}");
            assert_eq!((cluster.next(of).error, cluster.next(at).error), (None, None), "turn {turn}");
        }
    }
    let peer = cluster.peer(0, 1);
    cluster.set_lane(0, peer, None);
    let _ = touched(&mut cluster);
    cluster.send(0, 1, 9, words[0], 9);
    assert_eq!(touched(&mut cluster), [true, false], "by the network");
}

#[test]
fn a_receive_waits_for_later_unless_its_message_is_there() {
    let mut cluster = Cluster::new(2, Config::default());
    let (from, to) = (cluster.bytes(0, &[1; 100]), cluster.room(1, 100));
    let recv = |tag| Recv {
        from: None,
        matching: Match::Tagged { tag, ignore: 0 },
        iov: std::slice::from_ref(&to),
        context: tag,
        report: true,
        multi: false,
        claim: false,
    };
    let endpoint = cluster.endpoints[1];
    cluster.send(0, 1, 1, from, 1);
    cluster.settle(Nanos::from_secs(1));
    assert_eq!(cluster.domains[1].recv_later(endpoint, &recv(1)), Ok(false), "it is there");
    assert_eq!(cluster.domains[1].recv_later(endpoint, &recv(2)), Ok(true));
    assert_eq!(cluster.domains[1].recv_later(endpoint, &Recv { multi: true, ..recv(2) }), Ok(false));
    cluster.post(1, &recv(1)).unwrap();
    assert_eq!(cluster.next(1).context, 1);
    cluster.send(0, 1, 2, from, 2);
    let done = cluster.next(1);
    assert_eq!((done.context, done.error, cluster.read(1, to)), (2, None, vec![1; 100]));
}

/// What an endpoint lends, as the test sees it.
#[derive(Clone, Default)]
struct Lent(Arc<Mutex<Vec<u32>>>);

impl Loans for Lent {
    fn lend(&mut self, key: u32) {
        self.0.lock().unwrap().push(key);
    }
    fn end(&mut self, key: u32) {
        self.0.lock().unwrap().retain(|&lent| lent != key);
    }
}

/// Whoever copies out of our memory by a lane has no other way to know that it is the program's again.
#[test]
fn what_a_message_lends_is_taken_back_before_its_program_hears_of_it_however_it_ends() {
    for ending in ["delivered", "lost", "closed"] {
        let mut cluster = Cluster::new(2, Config::default());
        let (lent, letters) = (Lent::default(), Arc::<Mutex<Vec<Vec<u8>>>>::default());
        let (peer, identity) = (cluster.peer(0, 1), cluster.identities[1].key());
        cluster.domains[0].set_loans(cluster.endpoints[0], Box::new(lent.clone()));
        cluster.set_lane(
            0,
            peer,
            Some(Box::new(ToTest { says: LaneSend::Sent { asleep: true }, sent: letters.clone(), identity })),
        );
        let bytes = pattern(100_000, 1);
        let (from, to) = (cluster.bytes(0, &bytes), cluster.room(1, 100_000));
        let (left, right) = (Iov { len: 40_000, ..from }, Iov { addr: from.addr + 40_000, len: 60_000 });
        cluster.try_send(0, 1, Some(1), &[left, right], 1, REPORT).unwrap();
        assert_eq!((letters.lock().unwrap().len(), lent.0.lock().unwrap().len()), (1, 2), "{ending}");
        let now = cluster.net.now;
        match ending {
            "delivered" => {
                cluster.recv(1, None, 1, 0, to, 2);
                let letter = letters.lock().unwrap().pop().expect("it is there");
                let letter = cluster.bytes(1, &letter);
                let (domain, device) = (&mut cluster.domains[1], &mut cluster.net.devices[1]);
                let place = (gid(0), cluster.qpns[0]);
                domain.arrived_by_shm(
                    device,
                    now,
                    cluster.endpoints[1],
                    place,
                    letter.addr,
                    letter.len as u32,
                );
                check(&mut cluster, 1, 2, to, &bytes);
            }
            "lost" => {
                let (domain, device) = (&mut cluster.domains[0], &mut cluster.net.devices[0]);
                domain.lost_by_shm(device, now, cluster.endpoints[0], (gid(1), cluster.qpns[1]), identity);
            }
            _ => cluster.reopen(0),
        }
        if ending != "closed" {
            assert_eq!(cluster.next(0).error.is_some(), ending == "lost");
        }
        assert_eq!(*lent.0.lock().unwrap(), [0; 0], "{ending}");
    }
}

#[test]
fn another_endpoint_at_a_well_known_address_is_a_new_peer() {
    let mut cluster = Cluster::well_known(2, Config::default());
    let bytes = pattern(100, 1);
    let (from, to) = (cluster.bytes(0, &bytes), cluster.room(1, 100));
    for n in 0..5 {
        cluster.recv(1, None, n, 0, to, n);
        cluster.send(0, 1, n, from, n);
        cluster.next(1);
        cluster.next(0);
    }
    cluster.restart(1);
    cluster.recv(1, None, 9, 0, to, 9);
    // The first message goes to a process that has ended.
    cluster.send(0, 1, 9, from, 9);
    assert!(matches!(cluster.next(0).error, Some(Failure::PeerLost(_))));
    cluster.send(0, 1, 9, from, 10);
    check(&mut cluster, 1, 9, to, &bytes);
    assert_eq!(cluster.next(0).error, None);
}
