//! Processes of one host, one of which ends at a well-known address where another begins.

mod support;

use srd_msg::*;
use srd_wire::Nanos;
use std::sync::{Arc, Mutex};
use support::harness::gid;
use support::*;

/// Two processes with lanes to each other. The first one lives for ever.
struct Near {
    cluster: Cluster,
    /// What lies in the lane of each to the other.
    letters: [Arc<Mutex<Vec<Vec<u8>>>>; 2],
}

impl Near {
    fn new(well_known: [bool; 2]) -> Near {
        let mut cluster = Cluster::with(2, Config::default(), device_config(), well_known[0]);
        cluster.well_known = well_known[1];
        cluster.restart(1);
        let mut near = Near { cluster, letters: Default::default() };
        (0..2).for_each(|at| near.connect(at, LaneSend::Sent { asleep: false }));
        near
    }

    /// The peer of a process.
    fn peer(&mut self, at: usize) -> PeerId {
        self.cluster.peer(at, 1 - at)
    }

    /// A process gets a lane to whoever is there now.
    fn connect(&mut self, at: usize, says: LaneSend) {
        let (peer, identity) = (self.peer(at), self.cluster.identities[1 - at].number.get());
        let lane = ToTest { says, sent: self.letters[at].clone(), identity };
        self.cluster.set_lane(at, peer, Some(Box::new(lane)));
    }

    /// The program sends a message of that length.
    fn send(&mut self, at: usize, len: usize, context: u64) {
        let bytes = self.cluster.bytes(at, &vec![at as u8; len]);
        self.cluster.send(at, 1 - at, 7, bytes, context);
    }

    /// Lets everything happen. Where a lane is asked for there is one.
    fn settle(&mut self) {
        for _ in 0..50 {
            for at in 0..2 {
                for letter in std::mem::take(&mut *self.letters[1 - at].lock().unwrap()) {
                    let letter = self.cluster.bytes(at, &letter);
                    let (now, endpoint) = (self.cluster.net.now, self.cluster.endpoints[at]);
                    let from = (gid(1 - at), self.cluster.qpns[1 - at]);
                    let (domain, device) = (&mut self.cluster.domains[at], &mut self.cluster.net.devices[at]);
                    domain.arrived_by_shm(device, now, endpoint, from, letter.addr, letter.len as u32);
                }
                if self.cluster.domains[at].poll_stranger().is_some() {
                    self.connect(at, LaneSend::Sent { asleep: false });
                }
            }
            self.cluster.settle(Nanos::from_millis(100));
        }
    }

    /// What has completed: whether it was a send, its context, and whether it has failed.
    fn done(&mut self, at: usize) -> Vec<(bool, u64, bool)> {
        let done = std::iter::from_fn(|| self.cluster.domains[at].poll_done());
        done.map(|done| (done.kind == Kind::Send { tagged: true }, done.context, done.error.is_some()))
            .collect()
    }

    /// They have heard of each other. Many receives wait.
    fn acquaint(&mut self) {
        for at in 0..2 {
            self.receives(at);
            self.send(at, 8, 1);
        }
        self.settle();
        for at in 0..2 {
            assert_eq!(self.done(at).iter().filter(|(_, _, failed)| !failed).count(), 2);
        }
    }

    fn receives(&mut self, at: usize) {
        for context in 100..110 {
            let room = self.cluster.room(at, 100_000);
            self.cluster.recv(at, None, 7, 0, room, context);
        }
    }

    /// The second process is killed and another begins.
    fn restart(&mut self) {
        self.letters.iter().for_each(|letters| letters.lock().unwrap().clear());
        self.cluster.restart(1);
        self.connect(1, LaneSend::Sent { asleep: false });
        self.receives(1);
    }
}

/// How the first process learns of the other's death, if it does before another is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Learns {
    Not,
    /// It looks, or has found its lane to lead nowhere.
    Before,
    /// It is just finding its lane to lead nowhere.
    Meanwhile,
}

/// Whoever begins has had nothing to do with those that it sends to, whatever they had to do with its predecessor.
#[test]
fn the_first_send_of_another_process_at_a_well_known_address_is_not_refused() {
    for keyed in [false, true] {
        for learns in [Learns::Not, Learns::Before, Learns::Meanwhile] {
            // What the first process sends meanwhile: nothing, a short message, one in parts, one that is to be read.
            for sends in [None, Some(8), Some(20_000), Some(90_000)] {
                for len in [8, 90_000] {
                    let case = format!("keyed {keyed}, learns {learns:?}, sends {sends:?}, {len} bytes");
                    let mut near = Near::new([!keyed, true]);
                    near.acquaint();
                    let dead = near.cluster.identities[1].number.get();
                    match learns {
                        Learns::Not => {}
                        Learns::Before => {
                            let (endpoint, now) = (near.cluster.endpoints[0], near.cluster.net.now);
                            let place = (gid(1), near.cluster.qpns[1]);
                            let device = &mut near.cluster.net.devices[0];
                            near.cluster.domains[0].lost_by_shm(device, now, endpoint, place, dead);
                        }
                        Learns::Meanwhile => {
                            near.connect(0, LaneSend::Gone);
                            near.send(0, 8, 2);
                        }
                    }
                    near.restart();
                    sends.into_iter().for_each(|len| near.send(0, len, 3));
                    near.send(1, len, 4);
                    near.settle();
                    let (first, second) = (near.done(0), near.done(1));
                    assert!(second.contains(&(true, 4, false)), "{case}: {second:?}");
                    let got = first.iter().filter(|(send, _, failed)| !send && !failed).count();
                    assert_eq!(got, 1, "{case}: {first:?}");
                }
            }
        }
    }
}

/// A message of the second process waits to be read when the context ends, and with it one of the first that cannot go again.
#[test]
fn what_the_living_has_lost_has_failed_where_it_was_sent() {
    for well_known in [false, true] {
        let mut near = Near::new([well_known; 2]);
        near.acquaint();
        let bytes = near.cluster.bytes(1, &[1; 90_000]);
        near.cluster.send(1, 0, 8, bytes, 2);
        near.settle();
        assert_eq!(near.done(1), []);
        let peer = near.peer(0);
        near.cluster.set_lane(0, peer, None);
        near.cluster.cut(1);
        near.send(0, 20_000, 3);
        near.connect(0, LaneSend::Sent { asleep: false });
        near.settle();
        assert_eq!((near.done(0), near.done(1)), (vec![(true, 3, true)], vec![(true, 2, true)]));
        near.cluster.net.judge = None;
        (0..2).for_each(|at| near.send(at, 8, 4));
        near.settle();
        for at in 0..2 {
            let done = near.done(at);
            assert!(done.len() == 2 && done.iter().all(|(_, _, failed)| !failed), "{done:?}");
        }
    }
}
