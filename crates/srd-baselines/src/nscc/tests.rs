//! Flows end to end: on the star, and between two processes on a link that loses, cuts and delays whatever it likes.

use super::*;
use crate::document::Document;
use crate::star::{Net, Transfer, run};
use crate::test_link::{Fate, ROLE, Sent, TestLink};
use crate::units::Ps;
use proptest::prelude::{any, prop};
use proptest::test_runner::{Config as ProptestConfig, TestCaseError};
use proptest::{prop_assert, prop_assert_eq, proptest};

fn config(net: &Net, keys: &str) -> Result<NsccConfig, InputError> {
    let document = Document::parse(&format!("[transport]\n{keys}"), "test").expect("it is TOML");
    let section = Section::of(&document, "transport")?.only(config::KEYS)?;
    config::read(&section, &net.surroundings())
}

/// As uet-htsim has it: marks from 0.2 to 0.8 BDP, a queue of one.
fn net(hosts: u32, trims: bool) -> Net {
    let net = Net { hosts, trims, mtu: 4136, ..Net::default() };
    let bdp = net.surroundings().bdp;
    Net { marks: Some((bdp / 5, bdp * 4 / 5, 1.0)), capacity: bdp, ..net }
}

fn transfer(from: u32, to: u32, bytes: u64) -> Transfer {
    Transfer { from, to, bytes, start: Ps::ZERO, channel: from }
}

#[test]
fn one_flow_takes_the_link() {
    let net = net(2, true);
    let config = config(&net, "").unwrap();
    let ended = run::<Nscc>(&net, &config, &[transfer(1, 0, 2_000_000)], Ps::from_micros(1_000));
    let sent = ended.sent[0].expect("it ends").as_micros();
    // 490 frames at 100 Gb/s and 8.3 us of a round trip.
    assert!((170.0..175.0).contains(&sent), "{sent}");
    assert_eq!(ended.delivered, [2_000_000]);
    assert_eq!((ended.counts[1].data_new, ended.counts[1].data_again), (490, 0));
    let acks = ended.counts[0].bare;
    assert!((122..=130).contains(&acks), "an ACK for four packets: {acks}");
}

/// 15 senders: how long the last takes in units of the least time, and the run.
fn incast(trims: bool, keys: &str) -> (f64, crate::star::Ended) {
    let net = net(16, trims);
    let transfers: Vec<Transfer> = (1..16).map(|from| transfer(from, 0, 1_000_000)).collect();
    let ended = run::<Nscc>(&net, &config(&net, keys).unwrap(), &transfers, Ps::from_micros(20_000));
    let last = ended.sent.iter().map(|sent| sent.expect("it ends").as_micros()).fold(0.0, f64::max);
    assert_eq!(ended.delivered, [1_000_000; 15]);
    let packets = 15.0 * 1_000_000_f64.div_euclid(4086.0);
    (last / (packets * 4150.0 * 8.0 / 1e5), ended)
}

#[test]
fn an_incast_with_trimming_loses_no_time() {
    let (share, ended) = incast(true, "");
    assert!(share < 1.03, "{share}");
    assert_eq!(ended.dropped, 0);
    let again: u64 = ended.counts.iter().map(|counts| counts.data_again).sum();
    assert!(again > 100, "packets were cut: {again}");
    assert!(ended.counts.iter().all(|counts| counts.timeouts == 0 && counts.spurious == 0));
    // After its beginning the queue is kept by marks, not by cuts.
    let late: Vec<u64> = ended.queue[400..1000].to_vec();
    let mean = late.iter().sum::<u64>() as f64 / late.len() as f64;
    assert!((20_000.0..90_000.0).contains(&mean), "mean queue {mean}");
}

#[test]
fn an_incast_without_trimming_ends_too() {
    for recovery in ["timeout", "sleek"] {
        let (share, ended) = incast(false, &format!("recovery = \"{recovery}\""));
        assert!(share < 1.15, "{recovery}: {share}");
        let again: u64 = ended.counts.iter().map(|counts| counts.data_again).sum();
        assert!(ended.dropped > 0 && again >= ended.dropped, "{recovery}: {again} of {}", ended.dropped);
    }
}

#[test]
fn sleek_finds_a_stray_loss_before_the_clock() {
    let net = Net { loss: 0.01, ..net(2, false) };
    let mut took = Vec::new();
    for recovery in ["timeout", "sleek"] {
        let config = config(&net, &format!("recovery = \"{recovery}\"\nrto_us = 2000")).unwrap();
        let ended = run::<Nscc>(&net, &config, &[transfer(1, 0, 8_000_000)], Ps::from_micros(100_000));
        took.push(ended.sent[0].expect("it ends").as_micros());
    }
    assert!(took[1] < took[0] * 0.6, "{took:?}");
}

#[test]
fn fabrics_and_values_that_cannot_be_are_refused() {
    let told = |net: &Net, keys: &str| config(net, keys).expect_err("it is refused").message;
    assert!(told(&Net { marks: None, ..net(2, true) }, "").contains("congestion marks"));
    assert!(told(&net(2, false), "trimming = true").contains("cut no packets"));
    assert!(told(&net(2, true), "paths = 48").contains("power of two"));
    assert!(told(&net(2, true), "payload = 4087").contains("4086"));
    assert!(!config(&net(2, false), "").unwrap().trimming);
    assert!(config(&net(2, true), "").unwrap().trimming);
    assert!(!config(&net(2, true), "trimming = false").unwrap().trimming);
}

#[test]
fn a_full_frame_is_htsims() {
    let config = config(&net(2, true), "").unwrap();
    assert_eq!(Nscc::cost(&config, 4136, 0), WireCost { payload: 4086, headers: 64 });
    assert_eq!(Nscc::cost(&config, 4136, 24), WireCost { payload: 4086, headers: 88 });
}

/// Two processes and a link that delays each packet by something else.
fn link(keys: &str, inboxes: u32, seed: u64) -> TestLink<Nscc> {
    let config = config(&net(2, true), keys).unwrap();
    TestLink::new(&Role { inboxes, seed, ..ROLE }, &config, Nanos::ZERO, Nanos::ZERO)
}

/// Shares of packets that are lost, and of data packets that are cut; three of ten are marked.
pub(super) fn chance(seed: u64, loss: f64, cuts: f64) -> impl FnMut(&Sent<Packet>) -> Fate {
    let mut draws = SmallRng::seed_from_u64(seed);
    move |sent| {
        if draws.random::<f64>() < loss {
            return Fate::LOST;
        }
        let trimmed = sent.psn.is_some() && draws.random::<f64>() < cuts;
        let marked = sent.head.ecn_capable && draws.random::<f64>() < 0.3;
        Fate { late: Nanos(draws.random_range(1_000..60_000)), marked, trimmed, ..Fate::ARRIVES }
    }
}

/// Each message was sent, and received, once and whole.
pub(super) fn all_came_once<T: Baseline>(
    link: &mut TestLink<T>,
    messages: &[(u64, u32)],
) -> Result<(), TestCaseError> {
    prop_assert_eq!(link.reports.len(), 2 * messages.len());
    for (flow, &(bytes, _)) in (0..).zip(messages) {
        prop_assert!(
            link.sent_at(flow).is_some() && link.received_at(flow).is_some(),
            "{:?}",
            link.reports
        );
        prop_assert_eq!(link.ends[1].delivered(flow), bytes);
    }
    Ok(())
}

/// How many flows were sent, and how many received.
fn ended(link: &TestLink<Nscc>) -> (usize, usize) {
    let sent = link.reports.iter().filter(|it| matches!(it.1, Report::Sent { .. })).count();
    let received = link.reports.iter().filter(|it| matches!(it.1, Report::Received { .. })).count();
    assert_eq!(sent + received, link.reports.len(), "{:?}", link.reports);
    (sent, received)
}

/// A NACK of the second copy comes when the third has just left: taken for the third's, it made a base round trip of nothing,
/// and probes without end.
#[test]
fn a_nack_of_an_earlier_copy_measures_no_round_trip() {
    let keys = "selector = \"reps\"\nrecovery = \"sleek\"\npaths = 16";
    let seed = 2_004_384_615;
    let mut link = link(keys, 5, seed);
    let messages = [(12_882, 1), (49_030, Order::PROGRAM), (6_872, Order::PROGRAM), (21_016, Order::PROGRAM), (22_580, 1)];
    for (number, (bytes, channel)) in (0..).zip(messages) {
        link.start(number, bytes, channel);
    }
    link.run(Time(2_000_000_000), chance(seed, 0.077_189_703_964_227_08, 0.518_821_748_843_682_1));
    assert_eq!(ended(&link).1, 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_is_lost_or_cut_everything_comes_once(
        seed in 0u64..1 << 32,
        loss in 0.0f64..0.4,
        cuts in 0.0f64..0.6,
        selector in prop::sample::select(vec!["mixed", "reps", "bitmap", "oblivious"]),
        recovery in prop::sample::select(vec!["timeout", "sleek"]),
        trimming in any::<bool>(),
        messages in prop::collection::vec((0u64..60_000, prop::sample::select(vec![1, 2, Order::PROGRAM])), 1..8),
    ) {
        let keys = format!("selector = \"{selector}\"\nrecovery = \"{recovery}\"\ntrimming = {trimming}\npaths = 16");
        let mut link = link(&keys, messages.len() as u32, seed);
        for (number, &(bytes, channel)) in messages.iter().enumerate() {
            link.start(number as u32, bytes, channel);
        }
        link.run(Time(2_000_000_000), chance(seed, loss, cuts));
        all_came_once(&mut link, &messages)?;
    }
}

#[test]
fn inboxes_and_slots_are_used_again() {
    let (mut link, mut fate) = (link("", 1, 3), chance(3, 0.2, 0.2));
    for flow in 0..50 {
        link.order(Order { flow, inbox: 0, bytes: 10_000 + flow as u64, channel: flow });
        link.run(link.now + Nanos(50_000_000), &mut fate);
        assert_eq!(ended(&link), (flow as usize + 1, flow as usize + 1));
        assert_eq!(link.ends[1].delivered(0), 10_000 + flow as u64);
    }
    assert_eq!((link.ends[0].flows.len(), link.ends[1].receiving.len()), (1, 1));
}

#[test]
fn a_flow_without_end_ends_when_it_is_told_to() {
    let (mut link, mut fate) = (link("", 1, 3), chance(3, 0.05, 0.05));
    link.start(0, u64::MAX, 0);
    link.run(Time(1_000_000), &mut fate);
    let before = link.ends[1].delivered(0);
    assert!(before > 1_000_000, "{before}");
    link.ends[0].stop(link.now, 0);
    link.run(Time(100_000_000), &mut fate);
    let sent = link.ends[0].counts().data_new * 4086;
    assert_eq!(link.ends[1].delivered(0), sent, "what was sent has come");
    assert_eq!((link.ends[0].next_timeout(), link.ends[0].idle()), (Time::NEVER, true));
    assert!(link.reports.is_empty(), "it was not to end by itself");
}

#[test]
fn messages_of_a_channel_share_a_window() {
    let (mut link, mut fate) = (link("", 2, 3), chance(3, 0.0, 0.0));
    link.start(0, 400_000, Order::PROGRAM);
    link.start(1, 400_000, Order::PROGRAM);
    link.run(link.now, &mut fate);
    // 1.5 BDP of 150,000 bytes, in packets of 4150.
    assert_eq!(link.ends[0].counts().data_new, 54);
    link.run(Time(100_000_000), &mut fate);
    assert_eq!((ended(&link).0, link.ends[0].flows.len()), (2, 1));
    assert!(!link.ends[0].idle(), "a program's connection stays");
}

/// A short packet is back in 2 us: taken for the base, that left a sixth of the window.
#[test]
fn a_short_message_leaves_the_window_to_those_behind_it() {
    let mut link = link("", 2, 3);
    link.start(0, 64, Order::PROGRAM);
    link.run(Time(20_000), |_| Fate::late(1_000));
    assert_eq!(ended(&link), (1, 1));
    link.start(1, 400_000, Order::PROGRAM);
    link.run(link.now, |_| Fate::late(6_000));
    assert_eq!(link.ends[0].counts().data_new, 1 + 54, "1.5 BDP of 150,000 bytes, in packets of 4150");
}

#[test]
fn paused_classes_wait() {
    let (mut link, mut fate) = (link("control_class = 1", 1, 3), chance(3, 0.0, 0.0));
    link.start(0, 4_000, 0);
    link.ends[0].set_paused(0b01);
    link.run(link.now, &mut fate);
    assert!(link.packets.is_empty());
    link.ends[0].set_paused(0b10);
    link.ends[1].set_paused(0b10);
    link.run(Time(70_000), &mut fate);
    assert_eq!(ended(&link), (0, 1));
    link.ends[1].set_paused(0b01);
    link.run(Time(200_000), &mut fate);
    assert_eq!(ended(&link).0, 1);
}

/// Its timeout is 87 us, and from 16 ms of silence on twice as much as that, and twice as much again.
#[test]
fn a_receiver_that_is_gone_is_given_up() {
    let mut link = link("", 3, 3);
    link.start(0, 4_000, Order::PROGRAM);
    link.start(1, 400_000, Order::PROGRAM);
    assert!(link.run(Time::NEVER, |_| Fate::LOST), "it sends for ever");
    let why = "no answer through five doublings of the timeout";
    let failed = [0, 1].map(|flow| (Time(1_008_000_000), Report::Failed { flow, why }));
    assert_eq!(link.reports, failed);
    let copies: Vec<u64> = link.packets.iter().filter(|sent| sent.psn == Some(0)).map(|sent| sent.at.0).collect();
    let (soon, later) = copies.split_at(copies.len() - 4);
    assert!(soon.len() == 184 && soon.windows(2).all(|pair| pair[1] - pair[0] == 87_000), "{soon:?}");
    assert_eq!(later, [48, 112, 240, 496].map(|ms| ms * 1_000_000));
    // What comes later has another connection.
    link.start(2, 400_000, Order::PROGRAM);
    assert!(link.run(Time::NEVER, |_| Fate::ARRIVES) && link.sent_at(2).is_some(), "{:?}", link.reports);
    assert_eq!((link.ends[0].flows.len(), link.ends[1].delivered(2)), (1, 400_000));
}

/// A receiver that answers now and then is not given up, however much is lost.
#[test]
fn an_answer_ends_the_silence() {
    let mut link = link("", 1, 3);
    link.start(0, 400_000, 0);
    let mut heard_at = Time(0);
    link.run(Time(60_000_000_000), |sent| {
        let arrives = sent.at > heard_at + Nanos(400_000_000);
        if arrives && sent.from == 1 {
            heard_at = sent.at;
        }
        Fate { lost: !arrives, ..Fate::ARRIVES }
    });
    assert_eq!(ended(&link), (1, 1));
}

#[test]
fn a_cut_packet_is_sent_again_after_a_round_trip() {
    let (mut link, mut fate) = (link("", 1, 3), chance(3, 0.0, 0.0));
    link.start(0, 4_000, 0);
    link.run(Time(1_000_000), |sent| Fate { trimmed: sent.copy == 1, ..fate(sent) });
    let counts = link.ends[0].counts();
    assert_eq!((counts.data_new, counts.data_again, counts.timeouts), (1, 1, 0));
    assert_eq!(ended(&link), (1, 1));
}

impl Nscc {
    fn idle(&self) -> bool {
        self.flows.iter().all(Option::is_none)
    }
}
