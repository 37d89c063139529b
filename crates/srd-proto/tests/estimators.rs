//! What ACKs teach of rates and congestion marks, as the event trace tells it.

#[allow(dead_code)] // each test file uses a part of it
mod harness;
use harness::*;
use srd_proto::*;
use srd_wire::*;

const SECOND: Nanos = Nanos::from_secs(1);
const HALF: Nanos = Nanos::from_micros(7);

/// Rates that ACKs from `from` on have shown, and whether the program limited them.
fn rates(events: &Events, from: Time) -> Vec<(f64, bool)> {
    let events = events.lock().unwrap();
    let later = events.iter().filter(|(at, _)| *at >= from);
    later
        .filter_map(|(_, event)| match *event {
            Event::AckReceived { delivery_rate, app_limited, .. } if delivery_rate > 0.0 => {
                Some((delivery_rate, app_limited))
            }
            _ => None,
        })
        .collect()
}

/// Always enough in flight.
fn saturating() -> Config {
    Config { controller: ControllerKind::Fixed, fixed_window_bytes: 300_000, ..Config::default() }
}

/// One queue on the way there that lets `rate` bytes per nanosecond through; the way back takes `back`.
fn bottleneck(rate: f64, mut back: impl FnMut(Time) -> Nanos + 'static) -> Network {
    let mut free = Time(0);
    Box::new(move |now, from, t| {
        if from == 1 {
            return vec![back(now)];
        }
        let start = free.max(now);
        free = start + Nanos((bytes(&t.packet) as f64 / rate) as u64);
        vec![HALF + free.since(now)]
    })
}

#[test]
fn the_rate_of_delivery_is_that_of_the_bottleneck() {
    for rate in [0.5, 2.0, 8.0] {
        let mut world = World::new(2, &saturating());
        world.network = bottleneck(rate, |_| HALF);
        let events = trace(&mut world, 0);
        world.send(0, 1, pattern(3_000_000, 0));
        world.settle(SECOND);
        let middle = Time(world.now.0 / 2);
        let shown = rates(&events, middle);
        let mean = shown.iter().map(|sample| sample.0).sum::<f64>() / shown.len() as f64;
        assert!((mean / rate - 1.0).abs() < 0.1, "{mean} where the bottleneck lets {rate} B/ns through");
    }
}

#[test]
fn acks_that_come_in_bursts_make_no_fast_network() {
    let mut world = World::new(2, &saturating());
    // ACKs wait for the next full 30 us.
    world.network = bottleneck(1.0, |now| HALF + Nanos(30_000 - now.0 % 30_000));
    let events = trace(&mut world, 0);
    world.send(0, 1, pattern(3_000_000, 0));
    world.settle(SECOND);
    let fastest = rates(&events, Time(2_000_000)).iter().map(|sample| sample.0).fold(0.0, f64::max);
    assert!(fastest < 1.15, "{fastest} where the bottleneck lets 1 B/ns through");
}

#[test]
fn a_pause_of_the_program_is_not_taken_for_a_slow_network() {
    let mut world = World::new(2, &Config::default());
    let events = trace(&mut world, 0);
    for i in 0..20 {
        world.send(0, 1, pattern(1000, i));
        world.settle(SECOND);
        world.now += Nanos::from_micros(500);
    }
    let shown = rates(&events, Time(2_000_000));
    assert!(shown.len() > 10);
    assert!(shown.iter().all(|sample| sample.1), "each is a lower bound only");
    let slowest = shown.iter().map(|sample| sample.0).fold(f64::MAX, f64::min);
    assert!(slowest > 1000.0 / 20_000.0, "a packet and its round trip, not the pause: {slowest} B/ns");
    // A long message ends the doubt.
    let start = world.now;
    world.send(0, 1, pattern(1_000_000, 0));
    world.settle(SECOND);
    assert!(rates(&events, start + Nanos::from_micros(60)).iter().any(|sample| !sample.1));
}

#[test]
fn each_congestion_mark_is_reported_once() {
    let mut world = World::new(2, &Config::default());
    let mut count = 0;
    world.marks = Box::new(move |from, packet| {
        count += (from == 0 && matches!(packet.body, Body::Data(_))) as u32;
        from == 0 && count % 3 == 0
    });
    let events = trace(&mut world, 0);
    for i in 0..50 {
        world.send(0, 1, pattern(8192, i));
        world.run_for(Nanos::from_micros(20));
    }
    world.settle(SECOND);
    let reported: u64 = events
        .lock()
        .unwrap()
        .iter()
        .map(|(_, event)| match event {
            Event::AckReceived { ce_marks, .. } => *ce_marks as u64,
            _ => 0,
        })
        .sum();
    assert_eq!(reported, world.hosts[1].endpoint.stats().ce_marks);
    assert!(reported > 90);
}

#[test]
fn a_mark_is_laid_to_a_path_only_where_it_is_certain() {
    // Packets of even paths are marked, one ACK each; then two packets of different paths in one ACK.
    let mut world =
        World::new(2, &Config { selector: SelectorKind::Oblivious, burst_bytes: 1500, ..Config::default() });
    world.marks = Box::new(|from, packet| {
        from == 0 && matches!(&packet.body, Body::Data(data) if data.path.0.is_multiple_of(2))
    });
    let events = trace(&mut world, 0);
    for i in 0..100 {
        world.send(0, 1, pattern(1000, i));
        world.settle(SECOND);
    }
    for i in 0..100 {
        world.send(0, 1, pattern(1000, i));
        world.send(0, 1, pattern(1000, i));
        world.settle(SECOND);
    }
    let events = events.lock().unwrap();
    let told = |marked: bool| {
        events.iter().filter_map(move |(_, event)| match *event {
            Event::PathAcked { path, marked: is, .. } if is == marked => Some(path.0),
            _ => None,
        })
    };
    assert!(told(true).all(|path| path % 2 == 0), "no path is blamed for another's mark");
    assert!(told(true).count() >= 50, "a mark on a path acknowledged alone is that path's");
}

/// Two hosts, and what the first one has decided.
fn hosts(way: Nanos) -> (World, Events) {
    let mut world = World::new(2, &host_config(BitRate(10_000_000_000), true));
    world.network = Box::new(move |_, _, _| vec![way]);
    let events = trace(&mut world, 0);
    (world, events)
}

/// Messages to and fro.
fn ping_pong(world: &mut World, rounds: u8) {
    for i in 0..rounds {
        for from in [0, 1] {
            world.send(from, 1 - from, pattern(100, i));
            while world.hosts[1 - from].log.received.pop().is_none() {
                world.step();
            }
        }
    }
}

fn predicted(world: &World) -> u64 {
    world.hosts[0].endpoint.stats().acks_predicted
}

#[test]
fn of_acks_without_news_one_in_half_a_base_round_trip_is_learnt_from() {
    let (mut world, events) = hosts(Nanos::from_micros(10));
    ping_pong(&mut world, 200);
    let all = world.hosts[0].endpoint.stats().acks_received;
    assert!(
        predicted(&world) > all * 7 / 10 && predicted(&world) < all * 9 / 10,
        "{} of {all}",
        predicted(&world)
    );
    let events = events.lock().unwrap();
    let learned: Vec<Time> = (events.iter())
        .filter_map(|(at, event)| matches!(event, Event::ControllerUpdated { .. }).then_some(*at))
        .collect();
    let longest = learned.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap();
    assert!(longest < Nanos::from_micros(130), "nothing was learnt for {longest:?}");
    let acks = events.iter().filter(|(_, event)| matches!(event, Event::AckReceived { .. })).count();
    assert_eq!(acks as u64, all, "each is told of");
}

#[test]
fn an_ack_with_news_is_learnt_from() {
    let (mut world, _) = hosts(Nanos::from_micros(10));
    world.marks = Box::new(|_, _| true);
    ping_pong(&mut world, 50);
    assert_eq!(predicted(&world), 0, "marks");

    let (mut world, _) = hosts(Nanos::from_micros(60));
    ping_pong(&mut world, 50);
    assert_eq!(predicted(&world), 0, "round trips above half of the base");

    let (mut world, _) = hosts(Nanos::from_micros(10));
    let mut left = 0;
    world.network = Box::new(move |_, from, transmit| {
        left += (from == 0 && matches!(transmit.packet.body, Body::Data(_))) as u64;
        if from == 0 && left % 2 == 1 { vec![] } else { vec![Nanos::from_micros(10)] }
    });
    for i in 0..50 {
        world.send(0, 1, pattern(100, i));
        world.send(0, 1, pattern(100, i));
        world.settle(SECOND);
    }
    assert_eq!(predicted(&world), 0, "gaps");
}
