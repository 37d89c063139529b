//! What leaves back to back on one path: never more than the pace sends within the path's queueing target, so that sends
//! that fill a large GSO burst on a fast link are no queue on a slow one.

#[allow(dead_code)] // each test file uses a part of it
mod harness;
use harness::*;
use srd_proto::*;
use srd_wire::*;

/// Both directions: one line of that rate, a queue of 100 packets, and 50 us.
fn line(rate: BitRate) -> Network {
    let mut free = [Time(0); 2];
    Box::new(move |now, from, t| {
        let takes = rate.time_for(bytes(&t.packet) as u64 + 66);
        let begins = free[from].max(now);
        if begins.since(now) > Nanos(100 * rate.time_for(HOST_MTU).0) {
            return vec![];
        }
        free[from] = begins + takes;
        vec![Nanos(free[from].since(now).0 + 50_000)]
    })
}

/// Sends 12 MB or for half a second. Bytes of the longest burst, and of the longest after 100 ms, by when the rate is known
/// to who had to guess; and where a burst was longer than it may be.
fn longest_bursts(config: &Config, rate: BitRate) -> (u64, u64, Option<String>) {
    let mut world = World::new(2, config);
    world.network = line(rate);
    let settled = world.now + Nanos::from_millis(100);
    let events = trace(&mut world, 0);
    for n in 0..120 {
        world.send(0, 1, pattern(100_000, n));
    }
    world.run_for(Nanos::from_millis(500));
    let (mut allowed, mut burst, mut longest, mut broken) = (f64::INFINITY, 0, [0, 0], None);
    let mut left_at = Time(0);
    for (now, event) in events.lock().unwrap().iter() {
        match *event {
            Event::ControllerUpdated { rate, target, .. } => allowed = rate * target,
            Event::PathChosen { .. } => burst = 0,
            Event::PacketSent { bytes, .. } => {
                burst = if *now == left_at { burst } else { 0 } + u64::from(bytes);
                left_at = *now;
                longest[0] = burst.max(longest[0]);
                if *now > settled {
                    longest[1] = burst.max(longest[1]);
                }
                if burst > u64::from(bytes) && burst as f64 > allowed + 1.0 {
                    broken.get_or_insert(format!(
                        "at {now:?} {burst} B leave together where {allowed:.0} B may"
                    ));
                }
            }
            _ => {}
        }
    }
    assert!(world.hosts[1].endpoint.stats().rx_pkts > 100, "nothing moves");
    (longest[0], longest[1], broken)
}

#[test]
fn a_burst_is_at_most_what_the_pace_sends_in_the_paths_queueing_target() {
    for controller in [ControllerKind::LogTarget, ControllerKind::Paper] {
        for known in [true, false] {
            for mbps in [10, 50, 100, 1_000, 10_000, 100_000] {
                let rate = BitRate(mbps * 1_000_000);
                let (longest, later, broken) =
                    longest_bursts(&Config { controller, ..host_config(rate, known) }, rate);
                let which = format!("{controller:?}, {mbps} Mbit/s, rate known: {known}");
                assert_eq!(broken, None, "{which}");
                println!("{which}: {longest} B, after 100 ms {later} B");
                // Worth a GSO send where the round trip is short, and otherwise a part of it.
                let round_trip = rate.bytes_in(Nanos(200_000 + 4 * rate.time_for(HOST_MTU).0));
                let settled = if known { longest } else { later };
                assert!(
                    settled <= (2 * round_trip).max(HOST_MTU),
                    "{which}: {settled} B, a round trip has {round_trip} B"
                );
                assert!(mbps < 100_000 || longest > 40_000, "{which}: {longest} B");
            }
        }
    }
}
