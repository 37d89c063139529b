//! The rules of docs/design/loss-recovery.md and of docs/design/path-selection.md, "Path states", each in the smallest
//! situation: two endpoints in virtual time, and a network that the test shapes.

#[allow(dead_code)] // each test file uses a part of it
mod harness;
use harness::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_proto::*;
use srd_wire::*;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

const SECOND: Nanos = Nanos::from_secs(1);
const BASE: Nanos = Nanos::from_micros(14);
const HALF: Nanos = Nanos::from_micros(7);

/// Timers as short as the rules allow: without the floors that hosts need.
fn fabric() -> Config {
    Config { base_rtt: BASE, min_rto: Nanos::ZERO, min_pto: Nanos::ZERO, ..Config::default() }
}

fn data<P>(packet: &Packet<P>) -> Option<&Data<P>> {
    match &packet.body {
        Body::Data(data) => Some(data),
        _ => None,
    }
}

/// A network without loss in which some ports, each way, are four times as long as the others.
fn skewed(seed: u64) -> Network {
    let mut rng = SmallRng::seed_from_u64(seed);
    let share = rng.random_range(0.05..0.6);
    let slow: Vec<[bool; 2]> = (0..512).map(|_| [rng.random_bool(share), rng.random_bool(share)]).collect();
    Box::new(move |_, from, t| vec![Nanos(HALF.0 * if slow[t.entropy as usize][from] { 4 } else { 1 })])
}

#[test]
fn paths_four_times_as_long_as_others_cause_no_retransmission() {
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let selector = SelectorKind::ALL[seed as usize % SelectorKind::ALL.len()].1;
        let burst_bytes = [1500, 9000, 65_000][rng.random_range(0..3)];
        let mut world = World::new(2, &Config { selector, burst_bytes, ..fabric() });
        world.network = skewed(seed);
        let events = trace(&mut world, 0);
        let start = world.now;
        while world.now < start + Nanos::from_millis(10) {
            let size = [100, 8192, 20_000, 300_000][rng.random_range(0..4)];
            for i in 0..rng.random_range(1..10) {
                world.send(0, 1, pattern(size, i));
            }
            world.run_for(Nanos::from_micros(rng.random_range(0..500)));
        }
        world.settle(SECOND);
        let events = events.lock().unwrap();
        let lost: Vec<_> =
            events.iter().filter(|(_, event)| matches!(event, Event::PacketLost { .. })).collect();
        assert!(lost.is_empty(), "seed {seed}, {selector:?}: {lost:?}");
    }
}

#[test]
fn what_one_path_shows_of_a_loss_is_not_lost_with_one_ack() {
    // One path. The first packet is lost, and so is the ACK with the echo of the second: the third ACK covers it.
    let mut world = World::new(2, &Config { paths: 1, ack_every: 1, ..fabric() });
    world.send(0, 1, pattern(10, 9));
    world.settle(SECOND);
    world.run_for(Nanos::from_millis(1));
    let (mut sent, mut acks) = (0, 0);
    world.network = Box::new(move |_, from, t| {
        sent += (from == 0 && data(&t.packet).is_some()) as u64;
        acks += (from == 1) as u32;
        let lost = from == 0 && sent == 1 || from == 1 && acks == 1;
        if lost { vec![] } else { vec![HALF + Nanos(100 * sent)] }
    });
    for i in 0..3 {
        world.send(0, 1, pattern(10, i));
    }
    world.settle(SECOND);
    let stats = world.hosts[0].endpoint.stats();
    assert_eq!((stats.lost_by_path_order, stats.lost_by_timer, stats.tail_probes), (1, 0, 0));
}

#[test]
fn no_packet_is_sent_twice_within_a_round_trip() {
    for seed in 0..30 {
        let mut world = World::new(2, &fabric());
        let mut rng = SmallRng::seed_from_u64(seed);
        let last: Rc<RefCell<HashMap<u32, Time>>> = Rc::default();
        let seen = last.clone();
        world.network = Box::new(move |now, from, t| {
            if let Some(data) = data(&t.packet).filter(|_| from == 0)
                && let Some(before) = seen.borrow_mut().insert(data.psn.0, now)
            {
                assert!(now.since(before) >= BASE, "sent again after {:?}", now.since(before));
            }
            // Losses, and an order that does not hold even on one path.
            if rng.random_bool(0.1) { vec![] } else { vec![HALF + Nanos(rng.random_range(0..10_000))] }
        });
        for i in 0..50 {
            world.send(0, 1, pattern(20_000, i));
        }
        world.settle(SECOND);
        assert!(world.hosts[0].endpoint.stats().retrans_pkts > 10);
    }
}

#[test]
fn what_something_eats_is_sent_less_and_less_often() {
    // One path, on which every other packet passes and shows that this one has not.
    let mut world = World::new(2, &Config { paths: 1, ..fabric() });
    world.send(0, 1, pattern(10, 9));
    world.settle(SECOND);
    let transmissions: Rc<RefCell<Vec<Time>>> = Rc::default();
    let (seen, mut eaten) = (transmissions.clone(), None);
    world.network = Box::new(move |now, from, t| {
        let Some(data) = data(&t.packet).filter(|_| from == 0) else { return vec![HALF] };
        if data.psn != *eaten.get_or_insert(data.psn) {
            return vec![HALF];
        }
        seen.borrow_mut().push(now);
        vec![]
    });
    for i in 0..5000 {
        world.send(0, 1, pattern(10, i as u8));
        world.run_for(Nanos::from_micros(5));
    }
    let at = transmissions.borrow();
    let within = |from: u64, to: u64| {
        at.iter().filter(|when| (from..to).contains(&(when.since(at[0]).0 / BASE.0))).count()
    };
    let (often, rarely) = (within(0, 20), within(20, 200));
    assert!(often > 10, "{often} times in the first 20 round trips");
    assert!((3..20).contains(&rarely), "{rarely} times in the next 180");
}

#[test]
fn a_network_that_reorders_on_a_path_is_found_out_and_so_is_its_end() {
    let mut world = World::new(2, &Config { paths: 4, ..fabric() });
    let events = trace(&mut world, 0);
    let reorders = Rc::new(Cell::new(true));
    let (now_reorders, mut rng) = (reorders.clone(), SmallRng::seed_from_u64(1));
    // Packets pass each other on the way there, within half a round trip.
    world.network = Box::new(move |_, from, _| {
        let more = if from == 0 && now_reorders.get() { rng.random_range(0..7_000) } else { 0 };
        vec![HALF + Nanos(more)]
    });
    for i in 0..100 {
        world.send(0, 1, pattern(20_000, i));
    }
    world.settle(SECOND);
    let stats = *world.hosts[0].endpoint.stats();
    let needless = stats.retrans_pkts;
    assert!(needless < 200, "{needless} needless retransmissions of 1,500 packets");
    for i in 0..100 {
        world.send(0, 1, pattern(20_000, i));
    }
    world.settle(SECOND);
    let later = world.hosts[0].endpoint.stats().retrans_pkts - needless;
    // Each return to the rule of the path order costs a few, and takes twice as long to come again.
    assert!(needless + later < 100, "{later} more of another 1,500");
    reorders.set(false);
    world.run_for(Nanos::from_millis(20));
    for i in 0..20 {
        world.send(0, 1, pattern(20_000, i));
    }
    world.settle(SECOND);
    let rules: Vec<&str> = events
        .lock()
        .unwrap()
        .iter()
        .filter_map(|(_, event)| match event {
            Event::LossRule { rule, .. } => Some(*rule),
            _ => None,
        })
        .collect();
    assert_eq!((rules.first(), rules.last()), (Some(&"reordering"), Some(&"path_order")));
}

#[test]
fn acks_avoid_paths_that_are_down() {
    let config = fabric();
    let mut world = World::new(2, &config);
    // Host 1 sends too, so that it knows its paths; a quarter of them is dead in that direction.
    let dead_since = world.now + Nanos::from_millis(1);
    let (acks_lost, acks): (Rc<Cell<u32>>, Rc<Cell<u32>>) = Default::default();
    let (lost, all) = (acks_lost.clone(), acks.clone());
    let count_from = dead_since + Nanos::from_millis(1);
    world.network = Box::new(move |now, from, t| {
        let dead = from == 1 && now >= dead_since && t.entropy % 4 == 1;
        if from == 1 && now >= count_from && matches!(t.packet.body, Body::None) {
            all.set(all.get() + 1);
            lost.set(lost.get() + dead as u32);
        }
        if dead { vec![] } else { vec![HALF] }
    });
    let start = world.now;
    while world.now < start + Nanos::from_millis(5) {
        world.send(0, 1, pattern(8192, 1));
        world.send(1, 0, pattern(8192, 1));
        world.run_for(Nanos::from_micros(5));
    }
    world.settle(SECOND);
    assert!(acks.get() > 100);
    assert!(
        acks_lost.get() * 20 < acks.get(),
        "{} of {} ACKs sent into the void",
        acks_lost.get(),
        acks.get()
    );
}

#[test]
fn a_way_back_that_is_dead_takes_no_path_down() {
    let mut world = World::new(2, &fabric());
    let dead_since = world.now + Nanos::from_millis(1);
    // A quarter of the ports of host 1 is dead; its ACKs go round, and so some of them are lost.
    world.network =
        Box::new(
            move |now, from, t| {
                if from == 1 && now >= dead_since && t.entropy % 4 == 1 { vec![] } else { vec![HALF] }
            },
        );
    let start = world.now;
    while world.now < start + Nanos::from_millis(10) {
        world.send(0, 1, pattern(8192, 1));
        world.run_for(Nanos::from_micros(5));
    }
    world.settle(SECOND);
    world.run_for(Nanos::from_millis(1));
    let peer = world.hosts[0].endpoint.peers().next().unwrap().id;
    let unused = world.hosts[0].endpoint.paths(peer).filter(|path| path.state != PathState::Active).count();
    assert_eq!(unused, 0);
    assert!(
        world.hosts[0].endpoint.stats().paths_down <= 2,
        "{}",
        world.hosts[0].endpoint.stats().paths_down
    );
}

#[test]
fn a_first_hop_that_loses_most_packets_for_a_moment_costs_no_paths() {
    let config = Config { selector: SelectorKind::Oblivious, burst_bytes: 1500, ..fabric() };
    let mut world = World::new(2, &config);
    let (from_then, until) = (world.now + Nanos::from_micros(500), world.now + Nanos::from_micros(700));
    world.network = Box::new(move |now, from, t| {
        let bad = from == 0 && (from_then..until).contains(&now) && t.entropy % 8 != 0;
        if bad { vec![] } else { vec![HALF] }
    });
    let start = world.now;
    while world.now < start + Nanos::from_micros(720) {
        world.send(0, 1, pattern(20_000, 1));
        world.run_for(Nanos::from_micros(2));
    }
    assert_eq!(world.hosts[0].endpoint.stats().path_collapses, 1);
    let peer = world.hosts[0].endpoint.peers().next().unwrap().id;
    assert!(world.hosts[0].endpoint.paths(peer).all(|path| path.state == PathState::Active));
    world.settle(SECOND);
}

#[test]
fn a_question_is_answered_on_two_paths() {
    let mut world = World::new(2, &fabric());
    world.send(0, 1, pattern(10, 0));
    world.settle(SECOND);
    let answers: Rc<RefCell<Vec<u16>>> = Rc::default();
    let seen = answers.clone();
    let mut lost = 0;
    world.network = Box::new(move |_, from, t| {
        if from == 0 && data(&t.packet).is_some() {
            lost += 1;
            return if lost <= 2 { vec![] } else { vec![HALF] }; // the packet, and its tail probe
        }
        let probes = t.packet.ack.iter().flat_map(|ack| &ack.echoes).any(|echo| echo.tx_count == Echo::PROBE);
        if from == 1 && probes {
            seen.borrow_mut().push(t.entropy);
        }
        vec![HALF]
    });
    world.send(0, 1, pattern(10, 1));
    world.settle(SECOND);
    let mut ports = answers.borrow().clone();
    ports.sort_unstable();
    ports.dedup();
    assert!(ports.len() >= 2, "{ports:?}");
}

/// Only the headers of some data packets of host 0 arrive.
#[allow(clippy::type_complexity)]
fn cut(which: impl FnMut(&Data<Bytes>) -> bool + 'static) -> Box<dyn FnMut(usize, &Packet<Bytes>) -> bool> {
    let mut which = which;
    Box::new(move |from, packet| from == 0 && data(packet).is_some_and(&mut which))
}

#[test]
fn what_a_switch_has_cut_is_sent_again_in_the_next_round_trip() {
    let mut world = World::new(2, &fabric());
    world.send(0, 1, pattern(10, 1));
    world.settle(SECOND);
    let start = world.now;
    world.cuts = cut(|data| data.offset > 0 && data.tx_count == 0);
    world.send(0, 1, pattern(60_000, 2));
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.received[1].1, pattern(60_000, 2));
    let (sender, receiver) = (world.hosts[0].endpoint.stats(), world.hosts[1].endpoint.stats());
    let sent_again = sender.retrans_pkts;
    assert!(sent_again >= 5, "{sent_again}");
    assert_eq!((sender.lost_by_cut, receiver.cut_pkts), (sent_again, sent_again));
    assert_eq!((sender.spurious_retrans, sender.retrans_timeout_events, receiver.duplicates), (0, 0, 0));
    assert!(world.now.since(start) <= Nanos(6 * BASE.0), "{:?}", world.now.since(start));
}

#[test]
fn a_message_of_which_only_headers_come_first_is_taken_once() {
    // The very first packet of a context, with its introduction, is cut, and so is each other one, of both directions, at random.
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut world = World::new(2, &Config { burst_bytes: [1500, 20_000][seed as usize % 2], ..fabric() });
        world.joins = seed % 3 == 0;
        let share = [0.1, 0.5, 0.9][seed as usize % 3];
        let mut draws = SmallRng::seed_from_u64(seed ^ 77);
        world.cuts = Box::new(move |_, packet| {
            data(packet).is_some_and(|data| data.tx_count == 0) || draws.random_bool(share)
        });
        let mut jitter = SmallRng::seed_from_u64(seed ^ 99);
        world.network = Box::new(move |_, _, _| match jitter.random_range(0..20) {
            0 => vec![],
            1 => vec![HALF, HALF + Nanos(jitter.random_range(0..100_000))],
            _ => vec![HALF + Nanos(jitter.random_range(0..3_000))],
        });
        let sizes: Vec<usize> = (0..20).map(|_| [0, 100, 8192, 40_000][rng.random_range(0..4)]).collect();
        for (salt, &size) in sizes.iter().enumerate() {
            world.send(salt % 2, 1 - salt % 2, pattern(size, salt as u8));
            world.run_for(Nanos::from_micros(rng.random_range(0..40)));
        }
        world.settle(Nanos::from_secs(10));
        world.cuts = Box::new(|_, _| false);
        for host in 0..2 {
            let mut expected: Vec<_> = (0..20)
                .filter(|salt| salt % 2 != host)
                .map(|salt| pattern(sizes[salt], salt as u8))
                .collect();
            let mut received: Vec<_> =
                world.hosts[host].log.received.iter().map(|(_, bytes)| bytes.clone()).collect();
            expected.sort();
            received.sort();
            assert!(received == expected, "seed {seed}, host {host}");
            assert_eq!(world.hosts[host].log.outcomes.len(), 10, "seed {seed}");
        }
    }
}

#[test]
fn a_network_that_cuts_everything_is_not_flooded() {
    let mut world = World::new(2, &fabric());
    world.send(0, 1, pattern(10, 1));
    world.settle(SECOND);
    world.cuts = cut(|_| true);
    world.send(0, 1, pattern(1_000, 2));
    let before = world.hosts[0].sent;
    world.run_for(Nanos::from_millis(100));
    let sent = world.hosts[0].sent - before;
    // Twelve times at once, then by a timer of 16 times three base round trips, with questions in between.
    assert!((20..1_000).contains(&sent), "{sent}");
    world.cuts = cut(|_| false);
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.received.len(), 2);
}

#[test]
fn an_echo_of_a_cut_packet_speaks_of_its_transmission_only() {
    // The report of the first transmission comes again after the second has left: nothing is sent a third time.
    let mut world = World::new(2, &Config { ack_every: 1, ..fabric() });
    world.send(0, 1, pattern(10, 1));
    world.settle(SECOND);
    world.cuts = cut(|data| data.tx_count == 0);
    world.network = Box::new(|_, from, t| {
        let told = t.packet.ack.as_ref().is_some_and(|ack| from == 1 && ack.cuts > 0);
        if told { vec![HALF, HALF + Nanos(3_000), HALF + Nanos(6_000)] } else { vec![HALF] }
    });
    world.send(0, 1, pattern(1_000, 2));
    world.settle(SECOND);
    let stats = world.hosts[0].endpoint.stats();
    assert_eq!((stats.retrans_pkts, stats.lost_by_cut), (1, 1));
}

#[test]
fn who_does_not_read_of_cut_packets_is_not_told_of_them() {
    for (features, told) in [(0, 0), (FEATURE_CUTS, 1), (0x8000 | FEATURE_CUTS, 1)] {
        let mut world = World::new(2, &fabric());
        let own = Incarnation(0x77_0001);
        let hello = Hello {
            incarnation: own,
            echo: 0,
            version_min: VERSION,
            version_max: VERSION,
            features,
            max_datagram: 1472,
            context: 0,
            rcvbuf_kib: 1024,
        };
        let op = Op::Send { route: World::route(1), imm: None, datagram: false };
        let (psn, stamp) = (first_psn(own, 0), world.now.stamp());
        let body = Body::Data(Data {
            psn,
            stamp,
            path: PathId(3),
            tx_count: 0,
            ack_request: true,
            more: false,
            msg: MsgId(0),
            len: 100,
            offset: 0,
            op,
            payload: Bytes::empty(),
        });
        let packet = Packet {
            src_port: PORT,
            dst_tag: Tag::UNKNOWN,
            src_tag: own.tag(),
            hello: Some(hello),
            ack: None,
            body,
        };
        let received = Received { cut: true, ..Received::new(world.now, gid(0), &packet, 80) };
        let host = &mut world.hosts[1];
        host.endpoint.handle_packet(world.now, 0, received, &mut host.log);
        world.now += SECOND;
        let mut cuts = 0;
        while let Some(answer) = host.endpoint.poll_transmit(world.now) {
            cuts += answer.packet.ack.as_ref().map_or(0, |ack| ack.cut().len());
        }
        assert_eq!(
            (cuts, host.log.received.len(), host.endpoint.stats().cut_pkts),
            (told, 0, 1),
            "{features}"
        );
    }
}

/// A part of the way takes shorter packets from one moment to the next than every network has to, and says nothing. `beside`: others are sent.
fn a_message_whose_packets_never_arrive_fails(beside: bool) {
    let mut world = World::new(2, &fabric());
    let exchange = |world: &mut World, size| {
        let token = world.send(0, 1, pattern(size, 1));
        world.run_for(Nanos::from_micros(200));
        token
    };
    for _ in 0..10 {
        exchange(&mut world, 1000);
    }
    world.network = Box::new(|_, _, t| {
        let swallowed = data(&t.packet).is_some_and(|data| data.payload.len() > 600);
        if swallowed { Vec::new() } else { vec![HALF] }
    });
    let token = world.send(0, 1, pattern(1000, 2));
    let outcome = |world: &World, token| {
        world.hosts[0].log.outcomes.iter().find(|(of, _)| *of == token).map(|&(_, outcome)| outcome)
    };
    let begin = world.now;
    while outcome(&world, token).is_none() {
        assert!(world.now < begin + SECOND, "it neither arrives nor fails");
        if beside {
            exchange(&mut world, 8);
        } else {
            world.run_for(Nanos::from_micros(200));
        }
    }
    assert_eq!(outcome(&world, token), Some(Err(Status::Unresponsive)));
    assert_eq!(world.hosts[0].endpoint.take_unsendable(), Some(addr(1)));
    let after = exchange(&mut world, 8);
    world.settle(SECOND);
    assert_eq!(outcome(&world, after), Some(Ok(())));
}

#[test]
fn a_message_whose_packets_never_arrive_fails_while_others_do_not() {
    a_message_whose_packets_never_arrive_fails(true);
}

#[test]
fn a_lone_message_whose_packets_never_arrive_fails_though_its_peer_answers() {
    a_message_whose_packets_never_arrive_fails(false);
}
