//! Messages, a rule each, in virtual time.

mod support;

use srd_msg::*;
use srd_wire::Nanos;
use std::sync::{Arc, Mutex};
use support::harness::{gid, pattern};
use support::*;

const SIZES: [usize; 9] = [0, 1, 8, 512, 513, 8_000, 9_000, 60_000, 3_000_000];

#[track_caller]
fn check(hall: &mut Hall, at: usize, context: u64, iov: Iov, expected: &[u8]) -> Done {
    let done = hall.next(at);
    assert_eq!((done.context, done.error, done.len), (context, None, expected.len() as u64), "{done:?}");
    let got = hall.read(at, Iov { len: done.len, ..iov });
    assert!(got == expected, "bytes differ");
    done
}

#[test]
fn messages_of_all_lengths_arrive_whole_wherever_they_wait() {
    for rough in [None, Some(1), Some(2), Some(3)] {
        for by_read in [true, false] {
            for expected in [true, false] {
                let mut hall = Hall::new(2, Config { rendezvous_by_read: by_read, ..Config::default() });
                rough.into_iter().for_each(|seed| hall.rough(seed));
                for (n, len) in (1..).zip(SIZES) {
                    let bytes = pattern(len, n);
                    let (from, to) = (hall.bytes(0, &bytes), hall.room(1, len));
                    if expected {
                        hall.recv(1, Some(0), n, 0, to, n + 100);
                    }
                    hall.send(0, 1, n, from, n);
                    if !expected {
                        hall.settle(Nanos::from_millis(5));
                        hall.nothing(1);
                        hall.recv(1, Some(0), n, 0, to, n + 100);
                    }
                    let done = check(&mut hall, 1, n + 100, to, &bytes);
                    assert_eq!((done.tag, done.source), (n, 0));
                    let sent = hall.next(0);
                    assert_eq!((sent.context, sent.kind, sent.error), (n, Kind::Send { tagged: true }, None));
                }
                let counters = hall.counters(1);
                assert!(counters.malformed == 0 && counters.stale == 0, "{counters:?}");
                assert_eq!(counters.fetched_by_read > 0, by_read);
                assert_eq!(counters.fetched_by_grants > 0, !by_read);
            }
        }
    }
}

#[test]
fn messages_of_one_sender_match_in_the_order_of_sending() {
    let mut hall = Hall::new(2, Config::default());
    hall.rough(7);
    let mut rooms = Vec::new();
    for n in 0..200u64 {
        let len = SIZES[n as usize % 8];
        let bytes = vec![n as u8; len];
        let from = hall.bytes(0, &bytes);
        hall.send(0, 1, 5, from, n);
        rooms.push(len);
    }
    for (n, &len) in (0..).zip(&rooms) {
        let to = hall.room(1, 60_000);
        hall.recv(1, None, 5, 0, to, n);
        let done = hall.next(1);
        assert_eq!((done.context, done.len, done.error), (n, len as u64, None));
        assert!(hall.read(1, Iov { len: len as u64, ..to }).iter().all(|&byte| byte == n as u8));
    }
}

#[test]
fn a_message_too_long_for_its_receive_is_truncated_and_says_by_how_much() {
    for len in [100, 20_000, 1_000_000] {
        let mut hall = Hall::new(2, Config::default());
        let bytes = pattern(len, 1);
        let (from, to) = (hall.bytes(0, &bytes), hall.room(1, 60));
        hall.recv(1, None, 1, 0, to, 1);
        hall.send(0, 1, 1, from, 2);
        let done = hall.next(1);
        assert_eq!(done.error, Some(Failure::Truncated { over: len as u64 - 60 }));
        assert_eq!((done.len, hall.read(1, to)), (60, bytes[..60].to_vec()));
        assert_eq!(hall.next(0).error, None);
    }
}

#[test]
fn delivery_complete_waits_for_the_receive() {
    for len in [0, 100, 20_000, 500_000] {
        let mut hall = Hall::new(2, Config::default());
        let (from, to) = (hall.bytes(0, &pattern(len, 1)), hall.room(1, len));
        hall.try_send(0, 1, Some(1), &[from], 2, DELIVER).unwrap();
        hall.settle(Nanos::from_millis(50));
        hall.nothing(0);
        hall.recv(1, None, 1, 0, to, 1);
        assert_eq!(hall.next(0).error, None);
    }
}

#[test]
fn what_is_injected_may_be_overwritten_at_once() {
    let mut hall = Hall::new(2, Config::default());
    for len in [1, 600, 4096] {
        let bytes = pattern(len, 9);
        let (from, to) = (hall.bytes(0, &bytes), hall.room(1, len));
        hall.try_send(0, 1, None, &[from], 3, INJECT).unwrap();
        hall.net.devices[0].memory().at_mut(from.addr, len).fill(0);
        let recv = Recv {
            from: None,
            matching: Match::Untagged,
            iov: &[to],
            context: 4,
            report: true,
            multi: false,
            claim: false,
        };
        hall.post(1, &recv).unwrap();
        check(&mut hall, 1, 4, to, &bytes);
    }
    let from = hall.room(0, 4097);
    assert_eq!(hall.try_send(0, 1, None, &[from], 3, INJECT), Err(Refused::TooLong));
}

#[test]
fn a_flooded_receiver_holds_no_more_than_its_window_and_loses_nothing() {
    let mut hall = Hall::new(2, Config::default());
    let len = 4_000;
    let mut sent = 0;
    for n in 0..3_000u64 {
        let from = hall.bytes(0, &vec![n as u8; len]);
        match hall.try_send(0, 1, Some(n), &[from], n, REPORT) {
            Ok(()) => sent += 1,
            Err(Refused::Again) => break,
            Err(other) => panic!("{other:?}"),
        }
        hall.settle(Nanos::from_micros(20));
    }
    hall.settle(Nanos::from_millis(50));
    let counters = hall.counters(0);
    // At most a megabyte is on the other side.
    assert!(counters.held_back > 0 && counters.eager_sent * len as u64 <= 1 << 20, "{counters:?}");
    for n in (0..sent).rev() {
        let to = hall.room(1, len);
        hall.recv(1, Some(0), n, 0, to, n);
        check(&mut hall, 1, n, to, &vec![n as u8; len]);
    }
    assert_eq!(hall.counters(1).malformed, 0);
}

#[test]
fn who_is_named_after_a_message_of_its_has_the_window_of_those_that_are() {
    let mut hall = Hall::new(2, Config::default());
    let len = 64 << 10;
    for n in 0..20u64 {
        let from = hall.bytes(0, &vec![n as u8; if n == 0 { 8 } else { len }]);
        let to = hall.room(1, len);
        // From whomever it comes.
        hall.recv(1, None, n, 0, to, n);
        hall.send(0, 1, n, from, n);
        hall.settle(Nanos::from_millis(1));
        check(&mut hall, 1, n, to, &vec![n as u8; from.len as usize]);
        if n == 0 {
            hall.peer(1, 0);
        }
    }
    let counters = hall.counters(0);
    // The first of them says that it is there, and hears of the window.
    assert_eq!((counters.held_back, counters.medium_sent), (1, 18), "{counters:?}");
}

#[test]
fn peek_claim_and_discard() {
    for len in [10, 30_000, 400_000] {
        let mut hall = Hall::new(2, Config::default());
        let from_0 = Some(hall.peer(1, 0));
        let look = Peek {
            from: from_0,
            matching: Match::Tagged { tag: 1, ignore: 0 },
            context: 50,
            claim: false,
            discard: false,
        };
        hall.peek(1, &look).unwrap();
        assert_eq!(hall.next(1).error, Some(Failure::NoMessage));
        for n in 1..=3 {
            let from = hall.bytes(0, &pattern(len, n));
            hall.send(0, 1, 1, from, n);
        }
        hall.settle(Nanos::from_millis(20));
        hall.peek(1, &look).unwrap();
        let done = hall.next(1);
        assert_eq!((done.error, done.len, done.tag, done.source), (None, len as u64, 1, 0));
        // The first is set aside, the second dropped, the third left.
        hall.peek(1, &Peek { claim: true, context: 51, ..look }).unwrap();
        assert_eq!(hall.next(1).context, 51);
        hall.peek(1, &Peek { discard: true, context: 52, ..look }).unwrap();
        assert_eq!(hall.next(1).context, 52);
        let to = hall.room(1, len);
        hall.recv(1, None, 1, 0, to, 60);
        check(&mut hall, 1, 60, to, &pattern(len, 3));
        let matching = Match::Tagged { tag: 1, ignore: 0 };
        let claim =
            Recv { from: None, matching, iov: &[to], context: 51, report: true, multi: false, claim: true };
        hall.post(1, &claim).unwrap();
        check(&mut hall, 1, 51, to, &pattern(len, 1));
        assert_eq!(hall.post(1, &claim), Err(Refused::NotClaimed));
        hall.settle(Nanos::from_millis(20));
        for n in 1..=3 {
            assert_eq!(hall.next(0).error, None, "{n}");
        }
    }
}

#[test]
fn a_multi_receive_buffer_takes_messages_until_it_is_nearly_full() {
    let mut hall = Hall::new(2, Config::default());
    let endpoint = hall.endpoints[1];
    hall.domains[1].set_min_multi_recv(endpoint, 100);
    let room = hall.room(1, 1000);
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
        let from = hall.bytes(0, &[n; 300]);
        hall.try_send(0, 1, None, &[from], 1, REPORT).unwrap();
    }
    hall.settle(Nanos::from_millis(10));
    hall.post(1, &recv).unwrap();
    let from = hall.bytes(0, &[2; 350]);
    hall.try_send(0, 1, None, &[from], 1, REPORT).unwrap();
    let mut at = room.addr;
    for (n, len) in [(0u8, 300), (1, 300), (2, 350)] {
        let done = hall.next(1);
        assert_eq!((done.buf, done.len, done.context, done.buffer_released), (at, len, 9, n == 2));
        assert!(hall.read(1, Iov { addr: at, len }).iter().all(|&byte| byte == n));
        at += len;
    }
}

#[test]
fn a_receive_can_be_cancelled_until_it_has_a_message() {
    let mut hall = Hall::new(2, Config::default());
    let to = hall.room(1, 10);
    hall.recv(1, None, 1, 0, to, 7);
    let endpoint = hall.endpoints[1];
    assert!(hall.domains[1].cancel(endpoint, 7));
    assert_eq!(hall.next(1).error, Some(Failure::Canceled));
    assert!(!hall.domains[1].cancel(endpoint, 7));
}

#[test]
fn a_message_to_oneself_arrives() {
    let mut hall = Hall::new(1, Config::default());
    for len in [8, 20_000, 300_000] {
        let bytes = pattern(len, 2);
        let (from, to) = (hall.bytes(0, &bytes), hall.room(0, len));
        hall.recv(0, Some(0), 1, 0, to, 1);
        hall.send(0, 0, 1, from, 2);
        let mut contexts = [hall.next(0).context, hall.next(0).context];
        contexts.sort();
        assert_eq!(contexts, [1, 2]);
        assert!(hall.read(0, to) == bytes);
    }
}

// ---- peers that go ----

#[test]
fn a_dead_peer_ends_everything_that_waits_for_it() {
    for len in [100, 20_000, 3_000_000] {
        let mut hall = Hall::new(2, Config::default());
        let from = hall.bytes(0, &pattern(len, 1));
        // Something has gone well before.
        let to = hall.room(1, len);
        hall.recv(1, None, 1, 0, to, 1);
        hall.send(0, 1, 1, from, 1);
        hall.next(1);
        hall.next(0);
        // Half of a message is over when the line is cut.
        hall.recv(1, None, 2, 0, to, 2);
        hall.send(0, 1, 2, from, 2);
        hall.settle(Nanos::from_micros(if len < 1_000_000 { 2 } else { 12 }));
        hall.cut(1);
        let sent = hall.next(0);
        assert!(matches!(sent.error, Some(Failure::PeerLost(_))), "{len}: {sent:?}");
        if len > 1_000_000 {
            let received = hall.next(1);
            assert!(matches!(received.error, None | Some(Failure::PeerLost(_))), "{received:?}");
        }
        // The line is mended: a new session begins by itself.
        hall.net.judge = None;
        hall.settle(Nanos::from_secs(5));
        while hall.domains[1].poll_done().is_some() {}
        hall.recv(1, None, 3, 0, to, 3);
        hall.send(0, 1, 3, from, 3);
        assert_eq!(hall.next(1).error, None);
        assert_eq!(hall.next(0).error, None);
    }
}

/// It had ended without a word, and nothing follows that has a number.
#[test]
fn a_message_that_ended_with_its_receiver_fails_when_a_successor_speaks() {
    let mut hall = Hall::well_known(2, Config::default());
    let iov = hall.bytes(1, &[1; 200_000]);
    hall.send(1, 0, 7, iov, 1);
    // The device takes it; the process has no time to look.
    let endpoint = hall.endpoints[1];
    while hall.domains[1].farewell(endpoint) != Farewell::Over {
        hall.net.flush();
        hall.net.step();
        hall.domains[1].progress(&mut hall.net.devices[1], hall.net.now);
    }
    hall.restart(0);
    let (word, room) = (hall.bytes(0, &[2; 8]), hall.room(1, 8));
    hall.recv(1, Some(0), 8, 0, room, 2);
    hall.send(0, 1, 8, word, 1);
    let outcomes = [hall.next(1), hall.next(1)].map(|done| (done.context, done.error));
    let lost = outcomes.iter().find(|(context, _)| *context == 1).expect("both complete").1;
    assert!(matches!(lost, Some(Failure::PeerLost(_))), "{lost:?}");
    assert!(outcomes.contains(&(2, None)), "{outcomes:?}");
    assert_eq!(hall.next(0).error, None);
}

#[test]
fn the_dead_and_the_living_at_one_place_are_two_peers() {
    for (seed, len) in [(1, 100), (2, 20_000), (3, 3_000_000)] {
        let mut hall = Hall::new(2, Config::default());
        let bytes = pattern(len, seed);
        let (from, to) = (hall.bytes(0, &bytes), hall.room(1, len));
        hall.recv(1, None, 1, 0, to, 1);
        hall.send(0, 1, 1, from, 1);
        assert_eq!((hall.next(1).error, hall.next(0).error), (None, None));
        let dead = hall.peer(0, 1);
        hall.restart(1);
        let (living, to_room) = (hall.peer(0, 1), hall.room(1, len));
        assert_ne!(dead, living);
        // One after the other in the same context of the device.
        let to_them = [dead, living, dead, living];
        for (context, to) in (2..).zip(to_them) {
            let send = Send { to, tag: Some(2), iov: &[from], data: Some(context), context, flags: REPORT };
            hall.post_send(0, &send).unwrap();
            hall.recv(1, None, 2, 0, to_room, context);
        }
        let mut sent: Vec<Done> = (0..4).map(|_| hall.next(0)).collect();
        sent.sort_by_key(|done| done.context);
        for done in sent {
            let lost = matches!(done.error, Some(Failure::PeerLost(_)));
            assert_eq!(lost, done.context % 2 == 0, "{len}: {done:?}");
        }
        let received = [hall.next(1), hall.next(1)].map(|done| (done.error, done.data));
        assert_eq!(received, [(None, Some(3)), (None, Some(5))]);
        hall.settle(Nanos::from_secs(5));
        hall.nothing(1);
        assert_eq!((hall.read(1, to_room), hall.counters(1).malformed), (bytes, 0));
    }
}

/// The device still has the context of the dead one when the living one, whom it knows by its lane alone, is woken.
#[test]
fn the_living_is_not_lost_with_the_context_of_the_dead() {
    let mut hall = Hall::new(2, Config::default());
    let (from, to) = (hall.bytes(0, &[1; 100]), hall.room(1, 100));
    hall.recv(1, None, 1, 0, to, 1);
    hall.send(0, 1, 1, from, 1);
    assert_eq!((hall.next(1).error, hall.next(0).error), (None, None));
    hall.restart(1);
    let slots: [Arc<Mutex<Vec<Vec<u8>>>>; 2] = Default::default();
    for (at, of) in [(0, 1), (1, 0)] {
        let (peer, identity) = (hall.peer(at, of), hall.identities[of].key());
        hall.set_lane(
            at,
            peer,
            Some(Box::new(ToTest {
                says: LaneSend::Sent { asleep: true },
                sent: slots[at].clone(),
                identity,
            })),
        );
    }
    let words = [hall.bytes(0, &[2; 100]), hall.bytes(1, &[3; 100])];
    let rooms = [hall.room(0, 100), hall.room(1, 100)];
    for turn in 2..6 {
        // The living one speaks first.
        for (at, of) in [(1, 0), (0, 1)] {
            hall.recv(of, Some(at), turn, 0, rooms[of], turn);
            hall.send(at, of, turn, words[at], turn);
            assert_eq!(hall.next(at).error, None, "turn {turn}");
            for letter in std::mem::take(&mut *slots[at].lock().unwrap()) {
                let letter = hall.bytes(of, &letter);
                let (now, endpoint) = (hall.net.now, hall.endpoints[of]);
                let from = (gid(at), hall.qpns[at]);
                let (domain, device) = (&mut hall.domains[of], &mut hall.net.devices[of]);
                domain.arrived_near(device, now, endpoint, from, letter.addr, letter.len as u32);
            }
            let done = hall.next(of);
            assert_eq!((done.context, done.error), (turn, None), "turn {turn}");
        }
        hall.settle(Nanos::from_secs(if turn == 2 { 5 } else { 0 }));
    }
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
        let mut hall = Hall::new(2, Config::default());
        let (lent, letters) = (Lent::default(), Arc::<Mutex<Vec<Vec<u8>>>>::default());
        let (peer, identity) = (hall.peer(0, 1), hall.identities[1].key());
        hall.domains[0].set_loans(hall.endpoints[0], Box::new(lent.clone()));
        hall.set_lane(
            0,
            peer,
            Some(Box::new(ToTest { says: LaneSend::Sent { asleep: true }, sent: letters.clone(), identity })),
        );
        let bytes = pattern(100_000, 1);
        let (from, to) = (hall.bytes(0, &bytes), hall.room(1, 100_000));
        let (left, right) = (Iov { len: 40_000, ..from }, Iov { addr: from.addr + 40_000, len: 60_000 });
        hall.try_send(0, 1, Some(1), &[left, right], 1, REPORT).unwrap();
        assert_eq!((letters.lock().unwrap().len(), lent.0.lock().unwrap().len()), (1, 2), "{ending}");
        let now = hall.net.now;
        match ending {
            "delivered" => {
                hall.recv(1, None, 1, 0, to, 2);
                let letter = letters.lock().unwrap().pop().expect("it is there");
                let letter = hall.bytes(1, &letter);
                let (domain, device) = (&mut hall.domains[1], &mut hall.net.devices[1]);
                let place = (gid(0), hall.qpns[0]);
                domain.arrived_near(device, now, hall.endpoints[1], place, letter.addr, letter.len as u32);
                check(&mut hall, 1, 2, to, &bytes);
            }
            "lost" => {
                let (domain, device) = (&mut hall.domains[0], &mut hall.net.devices[0]);
                domain.lost_near(device, now, hall.endpoints[0], (gid(1), hall.qpns[1]), identity);
            }
            _ => hall.reopen(0),
        }
        if ending != "closed" {
            assert_eq!(hall.next(0).error.is_some(), ending == "lost");
        }
        assert_eq!(*lent.0.lock().unwrap(), [0; 0], "{ending}");
    }
}

#[test]
fn another_endpoint_at_a_well_known_address_is_a_new_peer() {
    let mut hall = Hall::well_known(2, Config::default());
    let bytes = pattern(100, 1);
    let (from, to) = (hall.bytes(0, &bytes), hall.room(1, 100));
    for n in 0..5 {
        hall.recv(1, None, n, 0, to, n);
        hall.send(0, 1, n, from, n);
        hall.next(1);
        hall.next(0);
    }
    hall.restart(1);
    hall.recv(1, None, 9, 0, to, 9);
    // The first message goes to a process that has ended.
    hall.send(0, 1, 9, from, 9);
    assert!(matches!(hall.next(0).error, Some(Failure::PeerLost(_))));
    hall.send(0, 1, 9, from, 10);
    check(&mut hall, 1, 9, to, &bytes);
    assert_eq!(hall.next(0).error, None);
}
