//! The transport between endpoints in virtual time: each test builds the smallest situation for one rule.

mod harness;
use harness::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_proto::*;
use srd_wire::*;

const SECOND: Nanos = Nanos::from_secs(1);

#[test]
fn a_message_crosses_without_a_handshake_round_trip() {
    let mut world = World::new(2, &Config::default());
    world.send(0, 1, pattern(100, 1));
    let start = world.now;
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.received[0].1, pattern(100, 1));
    assert_eq!(world.hosts[1].log.received_at[0], start + Nanos::from_micros(7));
    assert_eq!(world.hosts[0].log.outcomes, [(0, Ok(()))]);
}

#[test]
fn messages_of_all_sizes_arrive_whole() {
    let mut world = World::new(2, &Config::default());
    let sizes = [0, 1, 127, 1423, 1424, 1425, 1472, 1500, 4096, 8192, 8928, 8929, 65536, 1 << 20];
    for (i, &size) in sizes.iter().enumerate() {
        world.send(0, 1, pattern(size, i as u8));
    }
    world.settle(SECOND);
    assert!(world.hosts[0].log.outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
    let mut received: Vec<_> = world.hosts[1].log.received.iter().map(|(_, bytes)| bytes.clone()).collect();
    received.sort_by_key(|bytes| bytes.len());
    for (i, &size) in sizes.iter().enumerate() {
        assert_eq!(received[i], pattern(size, i as u8), "size {size}");
    }
    assert_eq!(world.hosts[0].endpoint.stats().retrans_pkts, 0);
}

fn lossy(seed: u64, loss: f64, reorder_us: u64, duplicate: f64) -> Network {
    let mut rng = SmallRng::seed_from_u64(seed);
    Box::new(move |_, _, _| {
        let mut copies = Vec::new();
        for _ in 0..1 + rng.random_bool(duplicate) as usize {
            if !rng.random_bool(loss) {
                copies.push(Nanos::from_micros(7 + rng.random_range(0..=reorder_us)));
            }
        }
        copies
    })
}

#[test]
fn every_message_arrives_once_under_loss_reordering_and_duplication() {
    for seed in 0..40 {
        let mut world = World::new(3, &Config::default());
        let mut rng = SmallRng::seed_from_u64(seed);
        world.network = lossy(seed, rng.random_range(0.0..0.3), rng.random_range(0..50), 0.05);
        let mut expected = vec![Vec::new(); 3];
        for i in 0..120u64 {
            let (from, to) = [(0, 1), (1, 0), (0, 2), (2, 1)][rng.random_range(0..4)];
            let size =
                if rng.random_bool(0.1) { rng.random_range(0..100_000) } else { rng.random_range(0..9000) };
            expected[to].push(pattern(size, i as u8));
            world.send(from, to, pattern(size, i as u8));
        }
        world.settle(Nanos::from_secs(20));
        for (host, expected) in world.hosts.iter().zip(expected.iter_mut()) {
            let mut received: Vec<_> = host.log.received.iter().map(|(_, bytes)| bytes.clone()).collect();
            received.sort();
            expected.sort();
            assert!(received == *expected, "seed {seed}");
            assert!(host.log.outcomes.iter().all(|(_, outcome)| outcome.is_ok()), "seed {seed}");
        }
        world.run_for(SECOND);
        assert!(world.hosts.iter().all(|host| host.endpoint.is_quiet()), "seed {seed}: something never ends");
    }
}

#[test]
fn pure_reordering_causes_no_retransmission() {
    let mut world = World::new(2, &Config::default());
    // Four times the round trip on some paths.
    world.network = Box::new(|_, _, t| vec![Nanos::from_micros(if t.entropy % 4 == 0 { 28 } else { 7 })]);
    for i in 0..400 {
        world.send(0, 1, pattern(8192, i as u8));
    }
    world.settle(SECOND);
    assert_eq!(world.hosts[0].endpoint.stats().retrans_pkts, 0);
}

#[test]
fn a_quarter_of_the_paths_blackholed_delays_no_message_beyond_three_rtt_and_a_probe() {
    let config = Config::default();
    let mut world = World::new(2, &config);
    let start = world.now;
    let fail_at = start + Nanos::from_micros(500);
    world.network =
        Box::new(
            move |now, _, t| {
                if now >= fail_at && t.entropy % 4 == 1 { vec![] } else { vec![Nanos::from_micros(7)] }
            },
        );
    let mut longest = Nanos::ZERO;
    let mut last = world.now;
    while world.now < start + Nanos::from_millis(5) {
        let before = world.hosts[1].log.received.len();
        while world.next_token - (world.hosts[0].log.outcomes.len() as u64) < 16 {
            world.send(0, 1, pattern(8192, 3));
        }
        world.step();
        if world.hosts[1].log.received.len() > before {
            longest = Nanos(longest.0.max(world.now.since(last).0));
            last = world.now;
        }
    }
    let rtt = config.base_rtt;
    let probe = Nanos(config.min_rto.0.max(3 * rtt.0)) + config.ack_delay;
    assert!(longest.0 <= 3 * rtt.0 + probe.0, "a gap of {longest:?}");
    assert!(world.hosts[0].endpoint.stats().paths_down >= 1);
}

#[test]
fn a_retransmission_takes_another_path() {
    let mut world = World::new(2, &Config::default());
    let first = std::rc::Rc::new(std::cell::Cell::new(None));
    let seen = first.clone();
    world.network = Box::new(move |_, from, t| {
        if from == 0 && matches!(t.packet.body, Body::Data(_)) {
            match seen.get() {
                None => {
                    seen.set(Some(t.entropy));
                    return vec![];
                }
                Some(failed) => assert_ne!(t.entropy, failed),
            }
        }
        vec![Nanos::from_micros(7)]
    });
    world.send(0, 1, pattern(10, 0));
    world.settle(SECOND);
    assert!(first.get().is_some());
}

#[test]
fn a_refused_message_fails_with_its_status_and_others_are_not_touched() {
    for loss in [0.0, 0.2] {
        for seed in 0..20 {
            let mut world = World::new(2, &Config::default());
            world.network = lossy(seed, loss, 20, 0.05);
            world.hosts[1].log.refuse = vec![Status::RemoteRnr, Status::RemoteBadDestQpn];
            for i in 0..20 {
                world.send(0, 1, pattern(if i % 2 == 0 { 50 } else { 20_000 }, i));
            }
            world.settle(Nanos::from_secs(20));
            let failed: Vec<_> = world.hosts[0].log.outcomes.iter().filter_map(|(_, o)| o.err()).collect();
            assert_eq!(failed.len(), 2, "seed {seed}");
            assert!(failed.contains(&Status::RemoteRnr) && failed.contains(&Status::RemoteBadDestQpn));
            assert_eq!(world.hosts[1].log.received.len(), 18);
            world.run_for(SECOND);
            assert!(world.hosts[1].log.open.is_empty(), "seed {seed}: a message stays half received");
        }
    }
}

#[test]
fn a_cancelled_message_is_forgotten_by_both_sides() {
    for seed in 0..30 {
        let mut world = World::new(2, &Config::default());
        world.network = lossy(seed, 0.1, 30, 0.02);
        let mut rng = SmallRng::seed_from_u64(seed);
        for i in 0..10 {
            world.send(0, 1, pattern(50_000, i));
        }
        world.run_for(Nanos::from_micros(rng.random_range(0..200)));
        let now = world.now;
        let peer = world.hosts[0].endpoint.connect(now, 0, addr(1)).unwrap();
        let done: Vec<u64> = world.hosts[0].log.outcomes.iter().map(|o| o.0).collect();
        let mut cancelled = 0;
        world.hosts[0].endpoint.cancel(now, peer, &mut |token| {
            let hit = token.0 % 2 == 0;
            cancelled += hit as u64;
            hit
        });
        assert_eq!(cancelled, (0..10).filter(|t| t % 2 == 0 && !done.contains(t)).count() as u64);
        world.next_token -= cancelled;
        world.settle(Nanos::from_secs(20));
        world.run_for(SECOND);
        assert!(world.hosts[1].log.open.is_empty(), "seed {seed}: a message stays half received");
        assert!(world.hosts[0].endpoint.is_quiet(), "seed {seed}");
    }
}

#[test]
fn a_restarted_peer_refuses_what_was_for_its_predecessor() {
    let config = Config::default();
    let mut world = World::new(2, &config);
    world.send(0, 1, pattern(10, 0));
    world.settle(SECOND);
    world.restart(1, &config, 0x9999);
    world.send(0, 1, pattern(10, 1));
    world.settle(SECOND);
    assert_eq!(world.hosts[0].log.outcomes[1], (1, Err(Status::RemoteAbort)));
    assert_eq!(world.hosts[0].log.lost_peers, [PeerLoss::Restarted]);
    assert!(world.hosts[1].log.received.is_empty());
    world.send(0, 1, pattern(10, 2));
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.received.len(), 1);
}

#[test]
fn a_restarted_sender_is_a_new_peer() {
    let config = Config::default();
    let mut world = World::new(2, &config);
    world.send(0, 1, pattern(10, 0));
    world.settle(SECOND);
    world.restart(0, &config, 0x9999);
    world.next_token = 0;
    world.send(0, 1, pattern(10, 1));
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.received.len(), 2);
    assert_eq!(world.hosts[1].log.lost_peers, [PeerLoss::Restarted]);
}

#[test]
fn a_dead_peer_fails_after_the_limit_and_the_context_survives() {
    let config = Config { peer_timeout: Nanos::from_secs(3), ..Config::default() };
    let mut world = World::new(2, &config);
    let cut = std::rc::Rc::new(std::cell::Cell::new(true));
    let is_cut = cut.clone();
    world.network = Box::new(move |_, _, _| if is_cut.get() { vec![] } else { vec![Nanos::from_micros(7)] });
    world.send(0, 1, pattern(10, 0));
    let start = world.now;
    world.settle(Nanos::from_secs(10));
    assert_eq!(world.hosts[0].log.outcomes, [(0, Err(Status::Unreachable))]);
    assert!(world.now.since(start) >= Nanos::from_secs(3) && world.now.since(start) < Nanos::from_secs(4));
    cut.set(false);
    world.send(0, 1, pattern(10, 1));
    world.settle(SECOND);
    cut.set(true);
    world.send(0, 1, pattern(10, 2));
    world.settle(Nanos::from_secs(10));
    assert_eq!(world.hosts[0].log.outcomes[2], (2, Err(Status::Unresponsive)));
    cut.set(false);
    world.send(0, 1, pattern(10, 3));
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.received.len(), 2);
}

#[test]
fn a_pause_of_seconds_is_not_death() {
    let mut world = World::new(2, &Config::default());
    let start = world.now;
    let end = start + Nanos::from_secs(5);
    world.network = Box::new(move |now, _, _| if now < end { vec![] } else { vec![Nanos::from_micros(7)] });
    world.send(0, 1, pattern(10, 0));
    world.settle(Nanos::from_secs(6));
    assert_eq!(world.hosts[0].log.outcomes, [(0, Ok(()))]);
    assert!(world.hosts[0].endpoint.stats().tail_probes < 200, "silence is not filled with packets");
}

#[test]
fn a_clock_that_jumps_kills_no_peer() {
    let mut world = World::new(2, &Config::default());
    world.send(0, 1, pattern(10, 0));
    world.run_for(Nanos::from_micros(3));
    world.now += Nanos::from_secs(100);
    world.settle(SECOND);
    assert_eq!(world.hosts[0].log.outcomes, [(0, Ok(()))]);
}

#[test]
fn with_keys_nothing_counts_before_the_peer_has_named_us() {
    let config = Config { confirm_first: true, ..Config::default() };
    let mut world = World::new(2, &config);
    world.network = Box::new(|_, _, t| {
        if matches!(t.packet.body, Body::Data(_)) {
            assert!(t.packet.dst_tag != Tag::UNKNOWN && t.peer_incarnation.is_some());
        }
        vec![Nanos::from_micros(7)]
    });
    let start = world.now;
    world.send(0, 1, pattern(10, 0));
    world.send(1, 0, pattern(10, 0));
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.received_at[0].since(start), Nanos::from_micros(21), "one round trip more");
    assert_eq!(world.hosts[0].log.received.len(), 1);
}

#[test]
fn unreliable_messages_are_not_sent_again() {
    let mut world = World::new(2, &Config::default());
    let mut dropped = 0;
    world.network = Box::new(move |_, from, t| {
        let data = matches!(&t.packet.body, Body::Data(data) if matches!(data.op, Op::Send { .. }));
        if from == 0 && data && dropped < 5 {
            dropped += 1;
            return vec![];
        }
        vec![Nanos::from_micros(7)]
    });
    for i in 0..10 {
        world.send_op(0, 1, Op::Send { route: World::route(1), imm: None, datagram: true }, pattern(100, i));
    }
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.received.len(), 5);
    assert!(world.hosts[0].log.outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
}

#[test]
fn an_idle_context_sends_nothing() {
    let mut world = World::new(2, &Config::default());
    world.send(0, 1, pattern(100_000, 0));
    world.settle(SECOND);
    world.run_for(SECOND);
    let sent: Vec<u64> = world.hosts.iter().map(|host| host.sent).collect();
    world.run_for(Nanos::from_secs(20));
    assert_eq!(sent, world.hosts.iter().map(|host| host.sent).collect::<Vec<_>>());
}
