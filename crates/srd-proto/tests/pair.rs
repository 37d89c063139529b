//! The transport between endpoints in virtual time: each test builds the smallest situation for one rule.

#[allow(dead_code)] // each test file uses a part of it
mod harness;
use harness::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_proto::*;
use srd_wire::*;
use std::cell::RefCell;
use std::rc::Rc;

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

#[test]
fn who_has_only_taken_a_message_has_nothing_to_send_until_its_acknowledgement_is_due() {
    let mut world = World::new(2, &Config::default());
    world.send(0, 1, pattern(100, 1));
    world.settle(SECOND);
    world.send(0, 1, pattern(100, 2));
    assert!(world.hosts[0].endpoint.has_to_send(world.now));
    while world.hosts[1].log.received.len() < 2 {
        assert!(world.step());
    }
    let endpoint = &world.hosts[1].endpoint;
    assert!(!endpoint.has_to_send(world.now));
    assert_eq!(endpoint.next_timeout(), world.now, "it is to be asked all the same, to say when");
    assert!(endpoint.has_to_send(world.now + Config::default().base_rtt));
    world.settle(SECOND);
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

/// Waits for the program's answers.
fn patient() -> Config {
    let (answer_delay, ack_delay) = (Nanos::from_micros(10), Nanos::from_micros(20));
    Config { answer_delay, ack_delay, ack_every: 64, ..Config::default() }
}

#[test]
fn the_answer_to_a_long_message_carries_its_ack() {
    let config = patient();
    for size in [1500, 4000, 8192, 8193, 8900] {
        let mut world = World::new(2, &config);
        let packets = Rc::new(RefCell::new(Vec::new()));
        let seen = packets.clone();
        world.network = Box::new(move |_, from, t| {
            let Body::Data(data) = &t.packet.body else { return vec![Nanos::from_micros(7)] };
            if from == 1 {
                let payload = data.payload.len().max(t.pad_to as usize);
                seen.borrow_mut().push((codec::header_len(&t.packet) + payload, t.packet.ack.is_some()));
            }
            vec![Nanos::from_micros(7)]
        });
        let mut pure_acks = 0;
        for round in 0..3 {
            for (from, to) in [(0, 1), (1, 0)] {
                let received = world.hosts[to].log.received.len();
                packets.borrow_mut().clear();
                world.send(from, to, pattern(size, round));
                while world.hosts[to].log.received.len() == received {
                    assert!(world.step());
                }
            }
            // The first messages introduce the two to each other.
            let pure = world.hosts[1].endpoint.stats().pure_acks_sent;
            assert!(round == 0 || pure == pure_acks, "{size} bytes");
            pure_acks = pure;
        }
        let packets = packets.borrow();
        let (last, others) = packets.split_last().unwrap();
        assert!(last.1, "{size} bytes: {packets:?}");
        assert!(others.iter().all(|packet| *packet == (others[0].0, false)), "{size} bytes: {packets:?}");
        assert!(last.0 <= others[0].0, "{size} bytes: {packets:?}");
    }
}

/// The program answers when it has all of a message, so that is what its ACK waits for.
#[test]
fn the_end_of_a_message_puts_its_ack_off() {
    // When the last packet arrives after the first, when the program answers after that, and whether the ACK can wait.
    for (last_after, answer_after, rides) in [(8, 5, true), (8, 11, false), (9, 9, true)] {
        let mut world = World::new(2, &patient());
        world.send(0, 1, pattern(4000, 0));
        world.send(1, 0, pattern(8, 0));
        world.run_for(SECOND);
        world.network = Box::new(move |_, from, t| {
            let last = matches!(&t.packet.body, Body::Data(data) if data.offset > 0 && !data.more);
            vec![Nanos::from_micros(if from == 0 && last { 7 + last_after } else { 7 })]
        });
        let (received, pure) =
            (world.hosts[1].log.received.len(), world.hosts[1].endpoint.stats().pure_acks_sent);
        world.send(0, 1, pattern(4000, 1));
        while world.hosts[1].log.received.len() == received {
            assert!(world.step());
        }
        world.run_for(Nanos::from_micros(answer_after));
        world.send(1, 0, pattern(8, 1));
        world.run_for(Nanos::from_micros(1));
        let alone = world.hosts[1].endpoint.stats().pure_acks_sent - pure;
        assert_eq!(alone, !rides as u64, "{last_after} us, {answer_after} us");
        world.settle(SECOND);
    }
}

#[test]
fn what_no_program_answers_is_acknowledged_at_once() {
    let config = patient();
    let send = Op::Send { route: World::route(1), imm: None, datagram: false };
    let write = |imm| Op::Write { route: World::route(1), rkey: MrKey(1), addr: 0, imm };
    for (op, micros) in [(send, 24), (write(Some(7)), 24), (write(None), 14)] {
        let mut world = World::new(2, &config);
        world.send_op(0, 1, op, pattern(4000, 0));
        world.settle(SECOND);
        let start = world.now;
        world.send_op(0, 1, op, pattern(4000, 1));
        world.settle(SECOND);
        assert_eq!(world.now.since(start), Nanos::from_micros(micros));
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
fn time_in_which_we_stood_still_ourselves_kills_no_peer() {
    let mut world = World::new(2, &Config::default());
    let end = world.now + Nanos::from_secs(5);
    let pause = Nanos::from_secs(100);
    world.network = Box::new(move |now, _, _| if now < end { vec![] } else { vec![Nanos::from_micros(7)] });
    world.send(0, 1, pattern(10, 0));
    world.run_for(Nanos::from_secs(2)); // far more than eight probes
    world.now += pause;
    world.settle(Nanos::from_secs(10));
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

fn carries(t: &Transmit<Bytes>, len: usize) -> bool {
    matches!(&t.packet.body, Body::Data(data) if data.payload.len() == len)
}

const RTT_HALF: Nanos = Nanos::from_micros(7);

#[test]
fn a_late_packet_of_a_dead_process_ends_no_context_and_comes_once() {
    let config = Config::default();
    let mut world = World::new(2, &config);
    // A second copy of the first message comes when its sender has been replaced, and again when that is long known.
    world.network = Box::new(|_, _, t| {
        if carries(t, 10) {
            vec![RTT_HALF, Nanos::from_micros(500), Nanos::from_micros(3000)]
        } else {
            vec![RTT_HALF]
        }
    });
    world.send(0, 1, pattern(10, 0));
    world.settle(SECOND);
    world.restart(0, &config, 0x9999);
    world.next_token = 0;
    world.send(0, 1, pattern(20, 1));
    world.settle(SECOND);
    world.run_for(Nanos::from_millis(5));
    world.send(0, 1, pattern(30, 2));
    world.settle(SECOND);
    let lengths: Vec<usize> = world.hosts[1].log.received.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths, [10, 20, 30]);
    assert_eq!(world.hosts[1].log.lost_peers, [PeerLoss::Restarted]);
    assert!(world.hosts[0].log.outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
}

#[test]
fn a_refusal_concerns_no_message_of_a_later_context() {
    let config = Config::default();
    let mut world = World::new(2, &config);
    world.network = Box::new(|_, from, t| match &t.packet.body {
        Body::Data(data) if from == 1 && matches!(data.op, Op::Refuse { .. }) => {
            vec![Nanos::from_micros(400)]
        }
        _ if carries(t, 10) => vec![RTT_HALF, Nanos::from_micros(500)],
        _ if carries(t, 30) => vec![Nanos::from_micros(1500)],
        _ => vec![RTT_HALF],
    });
    world.send(0, 1, pattern(10, 0));
    world.settle(SECOND);
    world.restart(1, &config, 0x9999);
    world.hosts[1].log.refuse = vec![Status::RemoteRnr]; // the late copy, of the context with its predecessor
    world.run_for(Nanos::from_micros(600));
    assert!(world.hosts[1].log.refuse.is_empty() && world.hosts[0].log.lost_peers == [PeerLoss::Restarted]);
    world.send(0, 1, pattern(30, 1)); // it bears the number that the refused message had
    world.settle(SECOND);
    assert_eq!(world.hosts[0].log.outcomes, [(0, Ok(())), (1, Ok(()))]);
}

#[test]
fn death_leaves_nothing_to_be_settled() {
    let config = Config { peer_timeout: SECOND, max_messages_per_peer: 4, ..Config::default() };
    let mut world = World::new(2, &config);
    world.send(0, 1, pattern(10, 0));
    world.settle(SECOND);
    let cut = std::rc::Rc::new(std::cell::Cell::new(true));
    let is_cut = cut.clone();
    world.network = Box::new(move |_, _, _| if is_cut.get() { vec![] } else { vec![RTT_HALF] });
    for i in 0..4 {
        world.send(0, 1, pattern(5000, i));
    }
    world.settle(Nanos::from_secs(5));
    assert!(
        world.hosts[0].log.outcomes[1..].iter().all(|(_, outcome)| *outcome == Err(Status::Unresponsive))
    );
    let sent = world.hosts[0].sent;
    world.run_for(Nanos::from_secs(10));
    assert_eq!(world.hosts[0].sent, sent, "nothing is said to the dead");
    assert!(world.hosts[0].endpoint.is_quiet());
    cut.set(false);
    for i in 0..4 {
        world.send(0, 1, pattern(5000, i));
    }
    world.settle(SECOND);
    assert!(world.hosts[0].log.outcomes[5..].iter().all(|(_, outcome)| outcome.is_ok()));
    assert_eq!(world.hosts[1].log.received.len(), 5);
}

#[test]
fn what_is_half_received_of_a_silent_sender_is_abandoned_and_its_sender_told_should_it_go_on() {
    let config = Config::default();
    let mut world = World::new(2, &config);
    let impatient = Config { peer_timeout: SECOND, ..Config::default() };
    world.restart(1, &impatient, 0x9999);
    let end = world.now + Nanos::from_secs(5);
    let mut passed = 0;
    world.network = Box::new(move |now, from, t| {
        passed += (from == 0 && matches!(t.packet.body, Body::Data(_))) as u32;
        if now < end && passed > 3 { vec![] } else { vec![RTT_HALF] }
    });
    world.send(0, 1, pattern(50_000, 0));
    world.run_for(Nanos::from_secs(4));
    assert!(world.hosts[1].log.open.is_empty() && world.hosts[1].log.abandoned == 1);
    world.settle(Nanos::from_secs(10));
    assert_eq!(world.hosts[0].log.outcomes, [(0, Err(Status::RemoteAbort))], "never a false success");
    assert_eq!(world.hosts[0].log.lost_peers, [PeerLoss::GivenUp]);
    world.send(0, 1, pattern(50_000, 1));
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.received.len(), 1);
}

#[test]
fn a_sender_that_gave_up_says_so_when_it_hears_the_peer_again() {
    let mut world = World::new(2, &Config::default());
    world.restart(0, &Config { peer_timeout: SECOND, ..Config::default() }, 0x9999);
    let end = world.now + Nanos::from_secs(3);
    let mut passed = 0;
    world.network = Box::new(move |now, from, t| {
        passed += (from == 0 && matches!(t.packet.body, Body::Data(_))) as u32;
        if now < end && (from == 1 || passed > 3) { vec![] } else { vec![RTT_HALF] }
    });
    world.send(0, 1, pattern(50_000, 0));
    world.run_for(Nanos::from_secs(4));
    assert_eq!(world.hosts[0].log.outcomes.len(), 1);
    assert_eq!(world.hosts[1].log.open.len(), 1, "it holds a buffer, and awaits more");
    world.send(1, 0, pattern(10, 1));
    world.run_for(SECOND);
    assert!(world.hosts[1].log.open.is_empty() && world.hosts[1].log.abandoned == 1);
}

#[test]
fn a_living_peer_that_once_did_not_know_us_ends_nothing() {
    let mut world = World::new(2, &Config::default());
    world.send(0, 1, pattern(10, 0));
    world.settle(SECOND);
    let [ours, theirs] = [0, 1].map(|i| world.hosts[i].endpoint.incarnation().tag());
    let late = Packet {
        src_port: PORT,
        dst_tag: ours,
        src_tag: theirs,
        hello: None,
        ack: None,
        body: Body::Reset { stale: theirs },
    };
    world.send(0, 1, pattern(50_000, 1));
    let (now, host) = (world.now, &mut world.hosts[0]);
    host.endpoint.handle_packet(now, 0, Received::new(now, gid(1), &late, 100), &mut host.log);
    world.settle(SECOND);
    assert_eq!(world.hosts[0].log.outcomes, [(0, Ok(())), (1, Ok(()))]);
    assert_eq!(world.hosts[1].log.received.len(), 2);
}

#[test]
fn packets_that_are_sent_back_change_nothing() {
    let mut world = World::new(2, &Config::default());
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let tap = seen.clone();
    world.network = Box::new(move |_, from, t| {
        tap.borrow_mut().push((from, t.packet.clone()));
        vec![RTT_HALF]
    });
    for round in 0..50 {
        world.send(0, 1, pattern(3000, round));
        world.send(1, 0, pattern(3000, round));
        world.run_for(Nanos::from_micros(20));
        for (from, packet) in seen.borrow_mut().drain(..) {
            let (now, host) = (world.now, &mut world.hosts[from]);
            host.endpoint.handle_packet(
                now,
                0,
                Received::new(now, gid(1 - from), &packet, 100),
                &mut host.log,
            );
        }
    }
    world.settle(SECOND);
    for host in &world.hosts {
        assert!(host.log.outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
        assert_eq!((host.log.outcomes.len(), host.log.received.len()), (50, 50));
        assert!(host.log.lost_peers.is_empty() && host.endpoint.stats().reflected > 50);
    }
}

#[test]
fn a_lone_packet_that_does_not_arrive_is_sent_ever_more_rarely() {
    let mut world = World::new(2, &Config::default());
    world.send(0, 1, pattern(20, 0));
    world.settle(SECOND);
    world.network = Box::new(|_, _, t| if carries(t, 10) { vec![] } else { vec![RTT_HALF] });
    let sent = world.hosts[0].sent;
    world.send(0, 1, pattern(10, 0));
    world.run_for(Nanos::from_millis(20));
    assert!(world.hosts[0].sent - sent < 200, "{} packets", world.hosts[0].sent - sent);
}

#[test]
fn a_clock_that_steps_back_and_packets_of_strangers_move_no_time() {
    let mut world = World::new(2, &Config::default());
    world.send(0, 1, pattern(10, 0));
    world.settle(SECOND);
    let log = &mut Log::default();
    let endpoint = &mut world.hosts[0].endpoint;
    endpoint.handle_timeout(Time(100_000_000_000), log);
    let now = Time(50_000_000_000);
    for _ in 0..100 {
        let packet = Packet {
            src_port: PORT,
            dst_tag: Tag(77),
            src_tag: Tag(5),
            hello: None,
            ack: None,
            body: Body::None,
        };
        endpoint.handle_packet(now, 0, Received::new(now, gid(1), &packet, 100), log);
        while endpoint.poll_transmit(now).is_some() {}
    }
    let peer = endpoint.connect(now, 0, addr(1)).unwrap();
    let op = Op::Send { route: World::route(1), imm: None, datagram: false };
    endpoint.send(now, peer, Token(1), op, Bytes::new(pattern(10, 1))).unwrap();
    while endpoint.poll_transmit(now).is_some() {}
    assert!(endpoint.next_timeout() < now + SECOND);
}

#[test]
fn one_dead_way_back_does_not_keep_a_restarted_peer_a_stranger() {
    for dead in 0..4 {
        let config = Config { entropy: 4, ..Config::default() };
        let mut world = World::new(2, &config);
        world.send(0, 1, pattern(100, 0));
        world.settle(SECOND);
        world.restart(0, &config, 0x9999);
        world.network =
            Box::new(move |_, from, t| if from == 1 && t.entropy == dead { vec![] } else { vec![RTT_HALF] });
        world.send(0, 1, pattern(100, 1));
        world.run_for(Nanos::from_millis(5));
        assert_eq!(world.hosts[1].log.received.len(), 2, "port {dead} is dead");
    }
}

/// Each refusal takes a number of the refuser's window, which moves only when the peer's refusals arrive.
#[test]
fn two_that_refuse_each_others_messages_over_a_bad_network_come_to_an_end() {
    for seed in 0..20 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut world = World::new(2, &Config { paths: 1, ..Config::default() });
        for host in &mut world.hosts {
            host.log.refuse = vec![Status::RemoteRnr; 1_000_000];
        }
        for i in 0..1500 {
            world.send(0, 1, pattern(24, i as u8));
            world.send(1, 0, pattern(24, i as u8));
        }
        let bad_until = world.now + Nanos::from_millis(500);
        world.network = Box::new(move |now, _, _| {
            let lost = now < bad_until && rng.random_bool(0.6);
            if lost { vec![] } else { vec![Nanos::from_micros(10 + rng.random_range(0..20))] }
        });
        world.settle(Nanos::from_secs(120));
        for host in &world.hosts {
            assert_eq!(host.log.outcomes.len(), 1500, "seed {seed}");
            assert!(host.log.outcomes.iter().all(|(_, outcome)| outcome.is_err()), "seed {seed}");
        }
    }
}
