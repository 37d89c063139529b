//! Two processes and a link on which packets are lost, late and marked.

use super::*;
use crate::test_link::{Fate, ROLE, Sent, TestLink, first};
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// One way, in nanoseconds.
const WAY: u64 = 1_100;
/// From one packet of a process to its next, in nanoseconds.
const GAP: u64 = 100;
/// A run that takes longer hangs: eight timeouts are over in 0.3 s.
const LONGEST: Time = Time(100_000_000_000);

fn link(config: &Config) -> TestLink<Roce> {
    TestLink::new(&Role { class: 3, ..ROLE }, config, Nanos(WAY), Nanos(GAP))
}

fn plain(lines: &str) -> TestLink<Roce> {
    link(&config(&Net::default(), lines))
}

/// A flow of so many packets.
fn flow(lines: &str, packets: u64, fate: impl FnMut(&Sent<Packet>) -> Fate) -> TestLink<Roce> {
    plain(lines).carry(packets * 4096, fate)
}

/// Marks all data.
fn mark_data(sent: &Sent<Packet>) -> Fate {
    if sent.psn.is_some() { Fate::MARKED } else { Fate::ARRIVES }
}

/// Sequence numbers of data packets, in the order in which they left.
fn data(link: &TestLink<Roce>) -> Vec<u32> {
    link.packets.iter().filter_map(|sent| sent.psn).collect()
}

/// When which answers left.
fn answers(link: &TestLink<Roce>, which: impl Fn(&Packet) -> bool) -> Vec<u64> {
    link.packets.iter().filter(|sent| sent.from == 1 && which(&sent.content)).map(|sent| sent.at.0).collect()
}

#[test]
fn go_back_n_sends_all_again_from_the_gap_after_one_nak() {
    let link = flow("", 100, first(1, &[10], Fate::LOST));
    // The gap shows with packet 11; until the NAK is back, two ways pass.
    let behind = 11 + 2 * (WAY / GAP) as u32;
    let expected: Vec<u32> = (0..behind).chain(10..100).collect();
    assert_eq!(data(&link), expected);
    assert_eq!(answers(&link, |packet| matches!(packet, Packet::Ack { nak: true, psn: 10, sack: None, .. })).len(), 1);
    assert_eq!(link.ends[0].counts().timeouts, 0);
    assert_eq!(link.ends[1].counts().spurious, 0);
}

#[test]
fn a_packet_lost_twice_costs_go_back_n_a_timeout() {
    let time = |lines: &str| {
        let link = flow(lines, 100, first(2, &[10], Fate::LOST));
        (link.sent_at(0).unwrap().0, link.ends[0].counts().timeouts)
    };
    let (at, timeouts) = time("rto_us = 500");
    assert!(timeouts == 1 && (500_000..530_000).contains(&at), "{at}");
    let (at, timeouts) = time("rto_us = 500\nnak_again_us = 3");
    assert!(timeouts == 0 && at < 30_000, "{at}");
}

#[test]
fn a_lost_tail_is_found_by_the_timer() {
    let link = flow("rto_us = 500", 100, first(1, &[99], Fate::LOST));
    // The ACK of packet 95 set the timer, at about 12 us.
    let at = link.sent_at(0).unwrap().0;
    assert!((505_000..520_000).contains(&at), "{at}");
    let link = flow("recovery = \"irn\"", 100, first(1, &[99], Fate::LOST));
    let at = link.sent_at(0).unwrap().0;
    assert!((100_000..130_000).contains(&at), "RTO_low: {at}");
}

#[test]
fn irn_sends_again_what_is_missing_and_nothing_else() {
    let missing = [10, 11, 30, 99];
    let link = flow("recovery = \"irn\"", 100, first(1, &missing, Fate::LOST));
    let mut sent = data(&link);
    sent.sort();
    let expected: Vec<u32> = (0..100).flat_map(|psn| vec![psn; 1 + usize::from(missing.contains(&psn))]).collect();
    assert_eq!(sent, expected);
    assert_eq!(link.ends[0].counts().timeouts, 1, "for the tail");
}

#[test]
fn reordering_is_loss_to_go_back_n_and_nothing_to_irn() {
    for (lines, again) in [("", true), ("recovery = \"irn\"", false)] {
        // Every seventh packet is overtaken by some.
        let mut left = 0..;
        let mut link = flow(lines, 400, |sent| match (left.next(), sent.from) {
            (Some(number), 0) if number % 7 == 3 => Fate::late(350),
            _ => Fate::ARRIVES,
        });
        let counts = link.ends[0].counts();
        assert_eq!(counts.data_again > 100, again, "{lines}: {counts:?}");
        assert_eq!(link.ends[1].delivered(0), 400 * 4096);
    }
}

#[test]
fn a_dead_peer_is_given_up_after_seven_retries() {
    let mut link = plain("rto_us = 100\nqps = 1");
    link.start(0, 4096, 0);
    link.start(1, 4096, 0);
    assert!(link.run(LONGEST, |_| Fate::LOST));
    let failed: Vec<_> = link.reports.iter().map(|(_, report)| *report).collect();
    let why = "transport retry counter exceeded";
    assert_eq!(failed, [0, 1].map(|flow| Report::Failed { flow, why }));
    // The last of the eight waits 128 times as long as the first.
    let at = link.reports[0].0.0;
    assert!((25_500_000..25_502_000).contains(&at), "{at}");
    // A flow that begins later has a queue pair that works.
    link.start(2, 4096, 0);
    assert!(link.run(LONGEST, |_| Fate::ARRIVES) && link.sent_at(2).is_some());
}

#[test]
fn a_paused_class_sends_nothing_and_notifications_go_on() {
    let around = Surroundings { marks: true, ..Net::default().surroundings() };
    let config = try_config(&around, "").unwrap();
    let mut link = link(&config);
    link.start(0, 4_000_000, 0);
    link.ends[1].set_paused(1 << 3);
    link.run(Time(20_000), mark_data);
    assert_eq!(answers(&link, |packet| matches!(packet, Packet::Ack { .. })).len(), 0);
    assert_eq!(answers(&link, |packet| matches!(packet, Packet::Notification { .. })).len(), 1);
    link.ends[0].set_paused(1 << 3);
    let before = link.packets.len();
    link.run(Time(40_000), mark_data);
    assert_eq!(link.packets.len(), before);
    link.ends.iter_mut().for_each(|end| end.set_paused(0));
    assert!(link.run(LONGEST, mark_data) && link.sent_at(0).is_some());
}

#[test]
fn notifications_keep_their_interval() {
    let around = Surroundings { marks: true, ..Net::default().surroundings() };
    for (lines, interval) in [("", 50_000), ("cnp_interval_us = 10\ncnp_delay_us = 3", 10_000)] {
        let config = try_config(&around, lines).unwrap();
        let mut link = link(&config);
        link.start(0, u64::MAX, 0);
        link.run(Time(400_000), mark_data);
        let at = answers(&link, |packet| matches!(packet, Packet::Notification { .. }));
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] + GAP >= interval), "{at:?}");
        assert!(at.len() as u64 > 200_000 / interval, "{at:?}");
        let delay = config.dcqcn.unwrap().cnp_delay.0;
        assert!((1_100 + delay..1_300 + delay).contains(&at[0]), "{at:?}");
    }
}

#[test]
fn a_flow_without_end_ends_when_it_is_told() {
    let mut link = plain("qps = 1\nmessage = \"64KiB\"");
    link.start(0, u64::MAX, 0);
    link.run(Time(100_000), |_| Fate::ARRIVES);
    link.start(1, 100_000, 0);
    link.run(Time(120_000), |_| Fate::ARRIVES);
    let before = *data(&link).iter().max().unwrap();
    link.ends[0].stop(Time(120_000), 0);
    assert!(link.run(LONGEST, |_| Fate::ARRIVES));
    assert!(link.sent_at(0).is_none() && link.sent_at(1).is_some());
    assert_eq!(link.ends[1].delivered(1), 100_000);
    assert!(*data(&link).iter().max().unwrap() <= before + 26);
    assert_eq!(link.ends[0].counts().timeouts, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Each flow is delivered, each byte once, or fails because its retries are exhausted; nothing hangs.
    #[test]
    fn whatever_is_lost_or_late_flows_end(
        seed: u64,
        bad in 0u8..60,
        late in 0u8..40,
        sizes in proptest::collection::vec(1u64..300_000, 1..5),
        kind in 0usize..6,
    ) {
        let lines = ["", "recovery = \"irn\"", "qps = 1", "recovery = \"irn\"\nqps = 1\nwindow = 8192",
            "window = 16384", "ack_every = 3\nretries = 2\nnak_again_us = 20"][kind];
        // Luck that repeats itself may hit the same packet for ever, which is no fault of the transport.
        let mut luck = SmallRng::seed_from_u64(seed);
        let mut link = plain(lines);
        for (flow, &bytes) in sizes.iter().enumerate() {
            link.start(flow as u32, bytes, flow as u32 % 2);
        }
        let quiet = link.run(LONGEST, |_| match luck.random_range(0..100) {
            it if it < bad => Fate::LOST,
            it if it < bad + late => Fate::late(u64::from(it) * 97),
            _ => Fate::ARRIVES,
        });
        prop_assert!(quiet, "it hangs");
        for (flow, &bytes) in sizes.iter().enumerate() {
            let flow = flow as u32;
            let placed = link.ends[1].delivered(flow);
            let received = link.count(Report::Received { inbox: flow });
            let failed = link.reports.iter().any(|(_, it)| matches!(it, Report::Failed { flow: it, .. } if *it == flow));
            prop_assert!(placed <= bytes);
            prop_assert_eq!(received, usize::from(placed == bytes));
            prop_assert!(link.sent_at(flow).is_some() != failed);
            prop_assert!(failed || placed == bytes);
            prop_assert!(!failed || link.ends[0].counts().timeouts > 2);
        }
    }
}
