//! Losses, one by one.

use super::{WAY, link};
use crate::frame::ETHERNET_HEADER;
use crate::tcp::Tcp;
use crate::tcp::config::{Config, Marks, Placement, Recovery};
use crate::tcp::segment::Segment;
use crate::test_link::{Fate, Sent, TestLink, first};
use crate::transport::{Report, Transport};
use srd_wire::{Nanos, Time};

const SEGMENT: u64 = 1448;
const TRIP: u64 = 2 * WAY.0;
const LONG: Time = Time(5_000_000_000);

/// A flow of so many segments.
fn flow(config: &Config, segments: u64, fate: impl FnMut(&Sent<Segment>) -> Fate) -> TestLink<Tcp> {
    link(config).carry(segments * SEGMENT, fate)
}

/// Segments sent again, timeouts, and segments that were retransmitted for nothing.
fn costs(link: &TestLink<Tcp>) -> (u64, u64, u64) {
    let counts = link.ends[0].counts();
    (counts.data_again, counts.timeouts, link.ends[1].counts().spurious)
}

#[test]
fn one_loss_costs_one_segment_and_one_round_trip() {
    for recovery in [Recovery::Rack, Recovery::Sack] {
        let config = Config { recovery, ..Config::default() };
        let none = flow(&config, 100, first(1, &[], Fate::LOST));
        let link = flow(&config, 100, first(1, &[20], Fate::LOST));
        assert_eq!(costs(&link), (1, 0, 0), "{recovery:?}");
        let later = link.received_at(0).unwrap().since(none.received_at(0).unwrap());
        assert!(later < Nanos(2 * TRIP), "{recovery:?}: {later:?}");
    }
}

#[test]
fn many_losses_are_repaired_without_a_timeout() {
    let lost: Vec<u32> = (30..90).step_by(2).collect();
    let link = flow(&Config::default(), 200, first(1, &lost, Fate::LOST));
    assert_eq!(costs(&link), (30, 0, 0));
}

/// Only RACK finds a retransmission that is lost, too, without waiting for the timer.
#[test]
fn a_retransmission_may_be_lost() {
    let twice = || first(2, &[20], Fate::LOST);
    let rack = flow(&Config::default(), 300, twice());
    assert_eq!(costs(&rack), (2, 0, 0));
    let sack = flow(&Config { recovery: Recovery::Sack, ..Config::default() }, 300, twice());
    assert_eq!(sack.ends[0].counts().timeouts, 1);
}

/// The end of a flow is lost, and no ACK tells of it: a probe does after two round trips, or the timer after
/// 200 ms.
#[test]
fn a_probe_finds_a_lost_tail() {
    for lost in [vec![49], vec![47, 48, 49]] {
        let link = flow(&Config::default(), 50, first(1, &lost, Fate::LOST));
        assert_eq!(costs(&link), (lost.len() as u64, 0, 0), "{lost:?}");
        // A lone segment's ACK may be a delayed one.
        let limit = if lost.len() == 1 { 20 } else { 10 };
        assert!(link.received_at(0).unwrap() < Time(limit * TRIP), "{:?}", link.received_at(0));
        let sack = Config { recovery: Recovery::Sack, ..Config::default() };
        let link = flow(&sack, 50, first(1, &lost, Fate::LOST));
        assert_eq!(link.ends[0].counts().timeouts, 1);
        assert!(link.received_at(0).unwrap() > Time(200_000_000));
    }
}

/// A whole window is lost, and what is sent instead: timeouts of 200, 400, 800 ms.
#[test]
fn timeouts_double() {
    let sack = Config { recovery: Recovery::Sack, ..Config::default() };
    let link = flow(&sack, 11, first(3, &[10], Fate::LOST));
    let copies = link.packets.iter().filter(|sent| sent.psn == Some(10)).map(|sent| sent.at.0 / 1_000_000);
    assert_eq!(copies.collect::<Vec<_>>(), [0, 200, 600, 1400]);
}

#[test]
fn a_dead_path_is_given_up() {
    let mut link = link(&Config { min_rto: Nanos::from_millis(1), ..Config::default() });
    link.start(0, 10_000, 0);
    link.run(Time(u64::MAX / 2), |_| Fate::LOST);
    assert!(matches!(link.reports[..], [(_, Report::Failed { flow: 0, .. })]), "{:?}", link.reports);
}

/// Segments that overtake others: the first time that costs retransmissions, and the reduction is taken back.
/// Then RACK waits.
#[test]
fn reordering_is_learned() {
    let late = Fate::late(20_000);
    let numbers: Vec<u32> = (100..4000).step_by(100).collect();
    let link = flow(&Config::default(), 4000, first(1, &numbers, late));
    let (again, timeouts, spurious) = costs(&link);
    assert!(again <= 3 && again == spurious && timeouts == 0, "{again} {spurious} {timeouts}");
    let sack = Config { recovery: Recovery::Sack, ..Config::default() };
    let sack = flow(&sack, 4000, first(1, &numbers, late));
    assert_eq!(costs(&sack).0, numbers.len() as u64);
    // What is taken back leaves no trace: as fast as without.
    let none = flow(&Config::default(), 4000, first(1, &[], late));
    let longer = link.received_at(0).unwrap().0 as f64 / none.received_at(0).unwrap().0 as f64;
    assert!(longer < 1.1, "{longer}");
}

/// A mark halves the window once per round trip, however many there are, and nothing is retransmitted.
#[test]
fn marks_count_once_per_round_trip() {
    let config = Config { marks: Marks::Classic, congestion: super::Algorithm::NewReno, ..Config::default() };
    let none = flow(&config, 500, first(1, &[], Fate::MARKED));
    let one = flow(&config, 500, first(1, &[70], Fate::MARKED));
    let burst = flow(&config, 500, first(1, &(70..90).collect::<Vec<_>>(), Fate::MARKED));
    let at = |link: &TestLink<Tcp>| link.received_at(0).unwrap().0 as f64;
    assert!(at(&one) > 1.1 * at(&none), "{} {}", at(&one), at(&none));
    assert!(at(&burst) < 1.1 * at(&one), "{} {}", at(&burst), at(&one));
    assert_eq!(burst.ends[0].counts().data_again, 0);
}

/// The second message on a channel finds the window that the first has left.
#[test]
fn a_channel_keeps_its_window() {
    let took = |channel| {
        let mut link = link(&Config::default());
        link.start(0, 100 * SEGMENT, 0);
        link.run(LONG, |_| Fate::ARRIVES);
        let begun = link.now;
        link.start(1, 100 * SEGMENT, channel);
        link.run(LONG, |_| Fate::ARRIVES);
        link.received_at(1).unwrap().since(begun)
    };
    assert!(took(0) < Nanos(2 * TRIP + 100_000), "{:?}", took(0));
    assert!(took(1) > Nanos(3 * TRIP), "{:?}", took(1));
}

/// 52 bytes of headers, and 12, 20 or 28 more for one, two or three ranges.
#[test]
fn acks_have_ranges() {
    let link = flow(&Config::default(), 100, first(1, &[20, 22, 24, 26], Fate::LOST));
    let acks = link.packets.iter().filter(|sent| sent.psn.is_none());
    let acks: Vec<u32> = acks.map(|sent| sent.head.bytes - ETHERNET_HEADER).collect();
    for size in [52, 64, 72, 80] {
        assert!(acks.contains(&size), "{size}: {acks:?}");
    }
}

/// A card without memory drops what comes after a hole; one that places directly counts it at once.
#[test]
fn placement_says_what_a_hole_costs() {
    let run = |placement| flow(&Config { placement, ..Config::default() }, 60, first(1, &[20], Fate::LOST));
    assert_eq!(run(Placement::Kept).ends[0].counts().data_again, 1);
    assert_eq!(run(Placement::Direct).ends[0].counts().data_again, 1);
    assert!(run(Placement::Bounded(0)).ends[0].counts().data_again > 5);
    let delivered = |placement| {
        let mut link = link(&Config { placement, ..Config::default() });
        link.start(0, 10 * SEGMENT, 0);
        link.run(Time(WAY.0 + 30_000), first(usize::MAX, &[3], Fate::LOST));
        link.ends[1].delivered(0) / SEGMENT
    };
    assert_eq!((delivered(Placement::Kept), delivered(Placement::Direct)), (3, 9));
}
