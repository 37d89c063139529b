//! How long an endpoint that is to be closed should go on for its peers.

mod support;

use srd_msg::*;
use srd_wire::Nanos;
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

struct FullLane;

impl Lane for FullLane {
    fn longest(&self) -> usize {
        8192
    }
    fn send(&mut self, _parts: &[&[u8]]) -> LaneSend {
        LaneSend::Full
    }
    fn can_read(&self) -> bool {
        false
    }
    fn read(&mut self, _there: u64, _here: u64, _len: u64) -> bool {
        false
    }
    fn traffic(&self) -> LaneTraffic {
        LaneTraffic::default()
    }
}

#[test]
fn what_waits_for_room_in_a_lane_is_queued() {
    let mut hall = Hall::new(2, Config::default());
    let (peer, endpoint) = (hall.peer(0, 1), hall.endpoints[0]);
    hall.domains[0].set_lane(endpoint, peer, Some(Box::new(FullLane)));
    let iov = hall.bytes(0, &[1; 100]);
    hall.send(0, 1, 7, iov, 1);
    assert_eq!(farewell(&hall, 0), Farewell::Queued);
    hall.domains[0].set_lane(endpoint, peer, None);
    assert_eq!(farewell(&hall, 0), Farewell::Unacknowledged);
    assert_eq!(hall.next(0).error, None);
    hall.settle(Nanos::from_millis(10));
    assert_eq!(farewell(&hall, 0), Farewell::Over);
}
