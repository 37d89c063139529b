//! Programs over the messaging layer in a simulated fabric.

use srd_sim::program::all_reduce::AllReduce;
use srd_sim::program::pairs::{ping_pong, stream};
use srd_sim::program::run::{Ended, place, to_end};
use srd_sim::program::script::Script;
use srd_sim::scenario::Scenario;
use srd_sim::settings::OnNode;
use srd_wire::BitRate;

const FABRIC: &str = r#"
[fabric]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts_per_leaf = 4
host_gbps = 100
base_rtt_us = 12

[transport]
mtu = 9000
"#;

fn run(
    scripts: impl IntoIterator<Item = Script>,
    per_host: u32,
    change: impl FnOnce(&mut Scenario),
) -> Ended {
    let programs = place(scripts, per_host);
    let mut scenario = Scenario::of_programs(FABRIC, "fabric", &[], programs).unwrap();
    change(&mut scenario);
    let ended = to_end(&scenario, &mut || true).expect("nobody stops it");
    assert_eq!(ended.complaints, [] as [String; 0]);
    ended
}

fn half_round_trip_us(bytes: u64, change: impl FnOnce(&mut Scenario)) -> f64 {
    let times = 10;
    let ended = run(ping_pong(bytes, times), 1, change);
    ended.span_of(0).unwrap().as_micros() / (2 * times) as f64
}

#[test]
fn a_ping_pong_takes_the_time_of_the_fabric_and_the_same_again() {
    for bytes in [0, 8, 8192, 65_536, 1 << 20] {
        let run = || run(ping_pong(bytes, 4), 1, |_| {});
        let ended = run();
        assert_eq!(ended, run(), "{bytes} bytes");
        assert!(ended.messages.iter().all(|counters| counters.expected + counters.unexpected == 4));
        assert!(ended.marks.iter().all(|marks| marks.len() == 2), "{bytes} bytes: {ended:?}");
        // Not faster than the way and the bytes, and not much slower.
        let half = ended.span_of(0).unwrap().as_micros() / 8.0;
        let least = 1.0 + bytes as f64 * 8e-5;
        assert!((least..least * 2.0 + 25.0).contains(&half), "{bytes} bytes: {half} us, {least} at best");
    }
}

#[test]
fn a_window_that_covers_the_round_trip_fills_the_link() {
    let (bytes, messages) = (32 << 10, 400);
    let gbps = |window| {
        let ended = run(stream(bytes, messages, window), 1, |_| {});
        bytes as f64 * 8.0 * messages as f64 / ended.span().unwrap().as_micros() / 1e3
    };
    let (one, many) = (gbps(1), gbps(32));
    assert!(one < 30.0 && many > 85.0, "{one} and {many} Gb/s");
}

#[test]
fn data_ahead_of_a_rendezvous_saves_time_and_never_cost_much() {
    let time = |bytes, ahead| {
        half_round_trip_us(bytes, |scenario| {
            scenario.settings.messages.medium_limit = 0;
            scenario.settings.messages.eager_ahead = ahead;
        })
    };
    for bytes in [1024, 8192, 65_536, 262_144, 1 << 20] {
        let without = time(bytes, 0);
        let (little, much) = (time(bytes, 16 << 10), time(bytes, 256 << 10));
        // A packet with data is behind one without at every switch, and so is the read that it begins.
        assert!(little <= 1.03 * without, "{bytes} bytes: {little} us, {without} us without");
        assert!(much < 0.99 * without, "{bytes} bytes: {much} us, {without} us without");
        assert!(bytes > 8192 || little < 0.8 * without, "{bytes} bytes: {little} us, {without} us without");
    }
}

#[test]
fn an_all_reduce_ends_and_does_the_same_again() {
    let adds = BitRate(80_000_000_000);
    let all_reduce = AllReduce { nodes: 4, per_node: 4, bytes: 4096, adds };
    let flat = || run(all_reduce.flat(true, 2), 4, |_| {});
    let aware =
        || run(all_reduce.on_node_first(2), 4, |it| it.settings.hosts.on_node = Some(OnNode::default()));
    assert_eq!(flat(), flat());
    assert_eq!(aware(), aware());
    assert!(aware().span() < flat().span());
}

#[test]
fn programs_of_a_host_reach_each_other_through_the_card_or_past_it() {
    let through = |on_node| {
        let ended = run(ping_pong(8, 10), 2, |scenario| scenario.settings.hosts.on_node = on_node);
        ended.span_of(0).unwrap().as_micros() / 20.0
    };
    let (card, memory) = (through(None), through(Some(OnNode::default())));
    // 0.3 us, and a nanosecond for the bytes.
    assert!((0.3..0.32).contains(&memory), "{memory} us");
    assert!(card > 1.0, "{card} us");
}
