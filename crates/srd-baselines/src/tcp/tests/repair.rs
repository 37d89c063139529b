//! Losses, one by one.

use super::pair::{Happens, Pair, WAY};
use crate::tcp::config::{Config, Marks, Placement, Recovery};
use crate::tcp::segment::Data;
use crate::transport::{Report, Transport};
use srd_wire::{Nanos, Time};

const SEGMENT: u64 = 1448;
const TRIP: u64 = 2 * WAY.0;
const LONG: Time = Time(5_000_000_000);

/// A flow of so many segments.
fn flow(config: &Config, segments: u64, mut happens: impl FnMut(&Data, usize) -> Happens) -> Pair {
    let mut pair = Pair::new(config);
    pair.start(0, segments * SEGMENT, 0);
    pair.run(LONG, |data, copy| data.map_or(Happens::Nothing, |data| happens(data, copy)));
    assert!(pair.reports.iter().any(|(_, report)| *report == Report::Sent { flow: 0 }), "{:?}", pair.reports);
    pair
}

/// What happens to the first copies of these.
fn first(numbers: &[u64], what: Happens) -> impl FnMut(&Data, usize) -> Happens {
    move |data, copy| if copy == 1 && numbers.contains(&data.number) { what } else { Happens::Nothing }
}

/// Segments sent again, timeouts, and segments that were retransmitted for nothing.
fn costs(pair: &Pair) -> (u64, u64, u64) {
    (pair.counts().data_again, pair.counts().timeouts, pair.ends[1].counts().spurious)
}

#[test]
fn one_loss_costs_one_segment_and_one_round_trip() {
    for recovery in [Recovery::Rack, Recovery::Sack] {
        let config = Config { recovery, ..Config::default() };
        let none = flow(&config, 100, first(&[], Happens::Lost));
        let pair = flow(&config, 100, first(&[20], Happens::Lost));
        assert_eq!(costs(&pair), (1, 0, 0), "{recovery:?}");
        let later = pair.received(0).unwrap().since(none.received(0).unwrap());
        assert!(later < Nanos(2 * TRIP), "{recovery:?}: {later:?}");
    }
}

#[test]
fn many_losses_are_repaired_without_a_timeout() {
    let lost: Vec<u64> = (30..90).step_by(2).collect();
    let pair = flow(&Config::default(), 200, first(&lost, Happens::Lost));
    assert_eq!(costs(&pair), (30, 0, 0));
}

/// Only RACK finds a retransmission that is lost, too, without waiting for the timer.
#[test]
fn a_retransmission_may_be_lost() {
    let twice = |data: &Data, copy| if data.number == 20 && copy <= 2 { Happens::Lost } else { Happens::Nothing };
    let rack = flow(&Config::default(), 300, twice);
    assert_eq!(costs(&rack), (2, 0, 0));
    let sack = flow(&Config { recovery: Recovery::Sack, ..Config::default() }, 300, twice);
    assert_eq!(sack.counts().timeouts, 1);
}

/// The end of a flow is lost, and no ACK tells of it: a probe does after two round trips, or the timer after
/// 200 ms.
#[test]
fn a_probe_finds_a_lost_tail() {
    for lost in [vec![49], vec![47, 48, 49]] {
        let pair = flow(&Config::default(), 50, first(&lost, Happens::Lost));
        assert_eq!(costs(&pair), (lost.len() as u64, 0, 0), "{lost:?}");
        // A lone segment's ACK may be a delayed one.
        let limit = if lost.len() == 1 { 20 } else { 10 };
        assert!(pair.received(0).unwrap() < Time(limit * TRIP), "{:?}", pair.received(0));
        let sack = Config { recovery: Recovery::Sack, ..Config::default() };
        let pair = flow(&sack, 50, first(&lost, Happens::Lost));
        assert_eq!(pair.counts().timeouts, 1);
        assert!(pair.received(0).unwrap() > Time(200_000_000));
    }
}

/// A whole window is lost, and what is sent instead: timeouts of 200, 400, 800 ms.
#[test]
fn timeouts_double() {
    let dead = |data: &Data, copy| if data.number >= 10 && copy <= 3 { Happens::Lost } else { Happens::Nothing };
    let sack = Config { recovery: Recovery::Sack, ..Config::default() };
    let pair = flow(&sack, 11, dead);
    let copies: Vec<u64> = pair.sent.iter().filter(|sent| sent.1 == 10).map(|sent| sent.0.0 / 1_000_000).collect();
    assert_eq!(copies, [0, 200, 600, 1400]);
}

#[test]
fn a_dead_path_is_given_up() {
    let mut pair = Pair::new(&Config { min_rto: Nanos::from_millis(1), ..Config::default() });
    pair.start(0, 10_000, 0);
    pair.run(Time(u64::MAX / 2), |_, _| Happens::Lost);
    assert!(matches!(pair.reports[..], [(_, Report::Failed { flow: 0, .. })]), "{:?}", pair.reports);
}

/// Segments that overtake others: the first time that costs retransmissions, and the reduction is taken back.
/// Then RACK waits.
#[test]
fn reordering_is_learned() {
    let late = Happens::Late(Nanos(20_000));
    let numbers: Vec<u64> = (100..4000).step_by(100).collect();
    let pair = flow(&Config::default(), 4000, first(&numbers, late));
    let (again, timeouts, spurious) = costs(&pair);
    assert!(again <= 3 && again == spurious && timeouts == 0, "{again} {spurious} {timeouts}");
    let sack = Config { recovery: Recovery::Sack, ..Config::default() };
    let sack = flow(&sack, 4000, first(&numbers, late));
    assert_eq!(costs(&sack).0, numbers.len() as u64);
    // What is taken back leaves no trace: as fast as without.
    let none = flow(&Config::default(), 4000, first(&[], late));
    let longer = pair.received(0).unwrap().0 as f64 / none.received(0).unwrap().0 as f64;
    assert!(longer < 1.1, "{longer}");
}

/// A mark halves the window once per round trip, however many there are, and nothing is retransmitted.
#[test]
fn marks_count_once_per_round_trip() {
    let config = Config { marks: Marks::Classic, congestion: super::Algorithm::NewReno, ..Config::default() };
    let none = flow(&config, 500, first(&[], Happens::Marked));
    let one = flow(&config, 500, first(&[70], Happens::Marked));
    let burst = flow(&config, 500, first(&(70..90).collect::<Vec<_>>(), Happens::Marked));
    let at = |pair: &Pair| pair.received(0).unwrap().0 as f64;
    assert!(at(&one) > 1.1 * at(&none), "{} {}", at(&one), at(&none));
    assert!(at(&burst) < 1.1 * at(&one), "{} {}", at(&burst), at(&one));
    assert_eq!(burst.counts().data_again, 0);
}

/// The second message on a channel finds the window that the first has left.
#[test]
fn a_channel_keeps_its_window() {
    let took = |channel| {
        let mut pair = Pair::new(&Config::default());
        pair.start(0, 100 * SEGMENT, 0);
        pair.run(LONG, |_, _| Happens::Nothing);
        let begun = pair.now;
        pair.start(1, 100 * SEGMENT, channel);
        pair.run(LONG, |_, _| Happens::Nothing);
        pair.received(1).unwrap().since(begun)
    };
    assert!(took(0) < Nanos(2 * TRIP + 100_000), "{:?}", took(0));
    assert!(took(1) > Nanos(3 * TRIP), "{:?}", took(1));
}

/// 52 bytes of headers, and 12, 20 or 28 more for one, two or three ranges.
#[test]
fn acks_have_ranges() {
    let pair = flow(&Config::default(), 100, first(&[20, 22, 24, 26], Happens::Lost));
    for size in [52, 64, 72, 80] {
        assert!(pair.acks.contains(&size), "{size}: {:?}", pair.acks);
    }
}

/// A card without memory drops what comes after a hole; one that places directly counts it at once.
#[test]
fn placement_says_what_a_hole_costs() {
    let run = |placement| flow(&Config { placement, ..Config::default() }, 60, first(&[20], Happens::Lost));
    assert_eq!(run(Placement::Kept).counts().data_again, 1);
    assert_eq!(run(Placement::Direct).counts().data_again, 1);
    assert!(run(Placement::Bounded(0)).counts().data_again > 5);
    let delivered = |placement| {
        let mut pair = Pair::new(&Config { placement, ..Config::default() });
        pair.start(0, 10 * SEGMENT, 0);
        pair.run(Time(WAY.0 + 30_000), |data, _| match data {
            Some(Data { number: 3, .. }) => Happens::Lost,
            _ => Happens::Nothing,
        });
        pair.ends[1].delivered(0) / SEGMENT
    };
    assert_eq!((delivered(Placement::Kept), delivered(Placement::Direct)), (3, 9));
}
