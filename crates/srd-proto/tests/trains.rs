//! Packets that leave and arrive in trains take a shorter way through the transport, on which nothing may become of them but what
//! becomes of any packet: two worlds, in one of which no packet takes it, send the same packets at the same times.

#[allow(dead_code)] // each test file uses a part of it
mod harness;
use harness::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_proto::*;
use srd_wire::*;
use std::cell::RefCell;
use std::rc::Rc;

/// When a packet left, whence, by which path, and what it said.
type Left = Vec<(Time, usize, u16, u16, Vec<u8>)>;

/// Marks are by run, so none are made where runs are looked for. Packets are lost, late and doubled by `seed`.
fn network(seed: u64, loss: f64, late: f64, left: &Rc<RefCell<Left>>) -> Network {
    let (mut rng, left) = (SmallRng::seed_from_u64(seed), left.clone());
    Box::new(move |now, from, transmit| {
        left.borrow_mut().push((now, from, transmit.entropy, transmit.pad_to, encoded(&transmit.packet)));
        let late = rng.random_bool(late) as u64 * rng.random_range(1..40);
        let copies = if rng.random_bool(loss) { 0 } else { 1 + rng.random_bool(loss / 4.0) as usize };
        vec![Nanos::from_micros(7 + late); copies]
    })
}

/// Runs the program of `seed`. What left, what either side has counted, and what it has received.
fn run(seed: u64, trains: bool) -> (Left, Vec<String>, [u64; 2]) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let rate = BitRate([100_000_000, 10_000_000_000, 100_000_000_000][rng.random_range(0..3)]);
    let host = host_config(rate, rng.random());
    let config = if rng.random() { host } else { Config { line_rate: rate, ..Config::default() } };
    let left = Rc::new(RefCell::new(Left::new()));
    let mut world = World::new(3, &config);
    let (loss, late) =
        if rng.random() { (0.0, 0.0) } else { (rng.random_range(0.0..0.1), rng.random_range(0.0..0.2)) };
    world.network = network(seed, loss, late, &left);
    world.joins = trains;
    for n in 0..rng.random_range(1..60) {
        let (from, to) = (rng.random_range(0..3), rng.random_range(1..3));
        let most = [64, 9_000, 70_000, 400_000][rng.random_range(0..4)];
        let len = rng.random_range(0..most);
        let route = World::route((from + to) % 3);
        let op = match rng.random_range(0..3) {
            0 => Op::Write { route, rkey: MrKey(n), addr: rng.random_range(0..4096), imm: None },
            _ => Op::Send { route, imm: rng.random_bool(0.3).then_some(n), datagram: false },
        };
        world.send_op(from, (from + to) % 3, op, pattern(len, n as u8));
        if rng.random_bool(0.3) {
            world.run_for(Nanos::from_micros(rng.random_range(1..300)));
        }
        if rng.random_bool(0.05) {
            let host = &mut world.hosts[to];
            host.log.refuse.push(Status::RemoteRnr);
        }
    }
    world.settle(Nanos::from_secs(60));
    let ends = world
        .hosts
        .iter()
        .map(|host| format!("{:?} {:?} {:?}", host.endpoint.stats(), host.log.received, host.log.outcomes));
    let ends = ends.collect();
    (left.take(), ends, world.followed)
}

#[test]
fn trains_change_nothing_but_the_way() {
    let mut followed = [0; 2];
    for seed in 0..60 {
        let (one_by_one, trains) = (run(seed, false), run(seed, true));
        assert_eq!(one_by_one.2, [0; 2]);
        for (n, (one, other)) in one_by_one.0.iter().zip(&trains.0).enumerate() {
            assert_eq!(one, other, "packet {n} of seed {seed}");
        }
        assert_eq!(one_by_one.0.len(), trains.0.len(), "seed {seed}");
        assert_eq!(one_by_one.1, trains.1, "seed {seed}");
        followed = [followed[0] + trains.2[0], followed[1] + trains.2[1]];
    }
    assert!(
        followed.iter().all(|&packets| packets > 3_000),
        "of what left and what arrived too little followed: {followed:?}"
    );
}
