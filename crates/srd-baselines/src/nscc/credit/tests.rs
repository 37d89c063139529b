//! Credit by itself, and RCCC's flows end to end: on the star, and on a link that loses, cuts and delays whatever it likes.

use super::*;
use crate::document::Document;
use crate::input::InputError;
use crate::nscc::tests::{all_came_once, chance};
use crate::nscc::{NsccConfig, Packet};
use crate::rccc::Rccc;
use crate::section::Section;
use crate::star::{Ended, Net, Transfer, run};
use crate::test_link::{Fate, ROLE, Sent, TestLink};
use crate::transport::{Order, Report, Role, Transport};
use crate::units::Ps;
use crate::{Baseline, BASELINES};
use proptest::prelude::{any, prop};
use proptest::test_runner::Config as ProptestConfig;
use proptest::proptest;

const RATE: BitRate = BitRate(100_000_000_000);
/// A windowful in these tests, and a grant of four packets of 4086 bytes in quanta of 256.
const MOST: f64 = 150_000.0;
const GRANT: u64 = 63 * 256;

fn label(slot: u32, serial: u32) -> Label {
    Label { host: 1, process: 0, slot, serial, place: Label::UNKNOWN }
}

/// All grants of so long, each when it may be: when, to which slot, and how much in all.
fn grants(granting: &mut Granting, until: Time) -> Vec<(Time, u32, u64)> {
    let mut all = Vec::new();
    while granting.timer() <= until {
        let now = granting.timer();
        let (label, granted) = granting.poll(now).expect("it is time");
        all.push((now, label.slot, granted));
    }
    all
}

#[test]
fn credit_that_was_not_granted_is_worth_nothing_once_the_receiver_is_heard() {
    let mut purse = Purse::new(Time(0), MOST);
    purse.spend(100_000);
    assert!(purse.is_open());
    // It would send 80,000 more, and has 50,000.
    assert_eq!(purse.target(80_000, 4150, 1), 30_000_u64.next_multiple_of(QUANTUM));
    assert_eq!(purse.target(80_000, 4150, 4), 7_500_u64.next_multiple_of(QUANTUM));
    assert_eq!(purse.target(10_000, 4150, 1), 4150_u64.next_multiple_of(QUANTUM), "a packet's worth at least");
    assert_eq!(purse.target(0, 4150, 1), 0);
    purse.heard();
    assert!(!purse.is_open());
    purse.take(Time(5), GRANT);
    purse.take(Time(6), GRANT);
    purse.spend(GRANT as i64 - 1);
    assert!(purse.is_open(), "a byte is left");
    purse.spend(4150);
    assert!(!purse.is_open(), "a copy of a grant grants nothing");
}

#[test]
fn a_purse_holds_a_windowful() {
    let mut purse = Purse::new(Time(0), MOST);
    purse.take(Time(1), 10 * MOST as u64);
    purse.spend(MOST as i64);
    assert!(!purse.is_open());
}

#[test]
fn those_who_ask_are_granted_in_turn_at_the_rate_of_the_link() {
    let mut granting = Granting::new(RATE, 4086, MOST);
    granting.want(0, &label(0, 1), 10 * GRANT, false);
    granting.want(1, &label(1, 2), 3 * GRANT / 2, false);
    let first = grants(&mut granting, Time(6_000));
    // 16,128 bytes at 99 Gb/s are 1303 ns; the second's last grant is half of one.
    let expected =
        [(0, 0, GRANT), (1303, 1, GRANT), (2606, 0, 2 * GRANT), (3909, 1, 3 * GRANT / 2), (4560, 0, 3 * GRANT), (5863, 0, 4 * GRANT)];
    assert_eq!(first, expected.map(|(at, slot, granted)| (Time(at), slot, granted)));
    assert_eq!(granting.asking(), 1);
}

#[test]
fn neighbours_have_their_part_of_the_link() {
    let mut granting = Granting::new(RATE, 4086, MOST);
    granting.neighbours = 3;
    granting.want(0, &label(0, 1), 100 * GRANT, false);
    let all = grants(&mut granting, Time(100_000));
    assert_eq!(all.len() as u64, 1 + 100_000 / (4 * 1303 + 1), "a quarter of the rate");
}

#[test]
fn a_windowful_is_granted_ahead_when_nobody_asks() {
    let mut granting = Granting::new(RATE, 4086, MOST);
    granting.want(0, &label(0, 1), 2 * GRANT, false);
    let all = grants(&mut granting, Time(1_000_000_000));
    let ahead = all.last().unwrap().2 - 2 * GRANT;
    assert!((MOST as u64 - QUANTUM..MOST as u64 + GRANT).contains(&ahead), "{ahead}");
    assert_eq!(granting.timer(), Time::NEVER);
    // Whoever asks comes before those.
    granting.want(0, &label(0, 1), 4 * GRANT, false);
    granting.want(1, &label(1, 2), 2 * GRANT, false);
    let slots: Vec<u32> = grants(&mut granting, Time(1_000_005_000)).iter().map(|it| it.1).collect();
    assert_eq!(slots[..2], [1, 1]);
}

#[test]
fn a_cut_packet_is_granted_again_and_a_request_is_always_answered() {
    let mut granting = Granting::new(RATE, 4086, 0.0);
    granting.want(0, &label(0, 1), 0, false);
    assert_eq!(granting.timer(), Time::NEVER);
    granting.was_cut(0, &label(0, 1), 4150);
    granting.want(1, &label(1, 2), 0, true);
    let told: Vec<(u32, u64)> = grants(&mut granting, Time(10_000)).iter().map(|it| (it.1, it.2)).collect();
    assert_eq!(told, [(0, 4150), (1, 0)]);
}

#[test]
fn another_connection_in_a_place_begins_anew() {
    let mut granting = Granting::new(RATE, 4086, 0.0);
    granting.want(0, &label(7, 1), 8 * GRANT, false);
    assert_eq!(grants(&mut granting, Time(3_000)).last().unwrap().2, 3 * GRANT);
    granting.want(0, &label(7, 2), GRANT, false);
    let told = grants(&mut granting, Time(100_000));
    assert_eq!(told.iter().map(|it| it.2).collect::<Vec<_>>(), [GRANT]);
    assert_eq!((granting.demands.len(), granting.idle.len() + granting.asking.len()), (1, 0));
}

fn config(net: &Net, keys: &str) -> Result<NsccConfig, InputError> {
    let document = Document::parse(&format!("[transport]\n{keys}"), "test").expect("it is TOML");
    let (_, known) = BASELINES.iter().find(|(name, _)| *name == "rccc").expect("it is a baseline");
    Rccc::read(&Section::of(&document, "transport")?.only(known)?, &net.surroundings())
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
    let ended =
        run::<Rccc>(&net, &config(&net, "").unwrap(), &[transfer(1, 0, 2_000_000)], Ps::from_micros(1_000));
    let sent = ended.sent[0].expect("it ends").as_micros();
    // 490 frames at 99 Gb/s and 8.3 us of a round trip.
    assert!((171.0..177.0).contains(&sent), "{sent}");
    assert_eq!((ended.counts[1].data_new, ended.counts[1].data_again), (490, 0));
}

fn incast(trims: bool, keys: &str) -> (f64, Ended) {
    let net = net(16, trims);
    let transfers: Vec<Transfer> = (1..16).map(|from| transfer(from, 0, 1_000_000)).collect();
    let ended = run::<Rccc>(&net, &config(&net, keys).unwrap(), &transfers, Ps::from_micros(20_000));
    let last = ended.sent.iter().map(|sent| sent.expect("it ends").as_micros()).fold(0.0, f64::max);
    assert_eq!(ended.delivered, [1_000_000; 15]);
    let packets = 15.0 * 1_000_000_f64.div_euclid(4086.0);
    (last / (packets * 4150.0 * 8.0 / 1e5), ended)
}

#[test]
fn an_incast_has_hardly_a_queue_after_its_first_window() {
    for keys in ["", "window = true"] {
        let (share, ended) = incast(true, keys);
        assert!(share < 1.03, "{keys}: {share}");
        assert!(ended.counts.iter().all(|counts| counts.timeouts == 0 && counts.spurious == 0), "{keys}");
        // What comes is less than the port takes: the queue of the first window has long gone.
        let late = ended.queue[800..1100].iter().max().unwrap();
        assert!(*late < 10 * 4150, "{keys}: {late} bytes");
    }
}

#[test]
fn an_incast_without_trimming_ends_too() {
    for keys in ["", "window = true"] {
        let (share, ended) = incast(false, keys);
        assert!(share < 1.1, "{keys}: {share}");
        assert!(ended.dropped > 0, "{keys}");
    }
}

#[test]
fn runs_of_one_seed_are_alike() {
    let of = |seed| {
        let net = Net { loss: 0.01, seed, ..net(16, true) };
        let transfers: Vec<Transfer> = (1..16).map(|from| transfer(from, 0, 300_000)).collect();
        run::<Rccc>(&net, &config(&net, "").unwrap(), &transfers, Ps::from_micros(20_000)).sent
    };
    assert_eq!(of(3), of(3));
    assert_ne!(of(3), of(4));
}

#[test]
fn fabrics_and_values_that_cannot_be_are_refused() {
    let told = |net: &Net, keys: &str| config(net, keys).unwrap_err().to_string();
    assert!(told(&Net::default(), "").contains("congestion marks"));
    assert!(told(&net(2, true), "paths = 48").contains("power of two"));
    assert!(told(&net(2, true), "target_us = 5").contains("window = true"));
    assert!(told(&net(2, true), "recovery = \"sleek\"").contains("recovery"));
    assert!(config(&net(2, true), "window = true\ntarget_us = 5").unwrap().trimming);
}

/// Two processes and a link that delays each packet by something else.
fn link(keys: &str, inboxes: u32, seed: u64) -> TestLink<Rccc> {
    let config = config(&net(2, true), keys).unwrap();
    TestLink::new(&Role { inboxes, seed, ..ROLE }, &config, Nanos::ZERO, Nanos::ZERO)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_is_lost_or_cut_everything_comes_once(
        seed in 0u64..1 << 32,
        loss in 0.0f64..0.4,
        cuts in 0.0f64..0.6,
        window in any::<bool>(),
        messages in prop::collection::vec((0u64..300_000, prop::sample::select(vec![1, 2, Order::PROGRAM])), 1..8),
    ) {
        let mut link = link(&format!("window = {window}\npaths = 16"), messages.len() as u32, seed);
        for (number, &(bytes, channel)) in messages.iter().enumerate() {
            link.start(number as u32, bytes, channel);
        }
        link.run(Time(5_000_000_000), chance(seed, loss, cuts));
        all_came_once(&mut link, &messages)?;
    }
}

/// All grants but each tenth are lost: credit is told in bytes since the beginning, so the next one makes up for them.
#[test]
fn lost_grants_are_made_up_for() {
    let mut link = link("", 1, 3);
    link.start(0, 2_000_000, 0);
    let mut grants = 0;
    link.run(Time(2_000_000_000), |sent| {
        let grant = matches!(sent.content, Packet::Credit { .. });
        grants += grant as u32;
        if grant && grants % 10 != 0 { Fate::LOST } else { Fate::late(6_000) }
    });
    let took = link.sent_at(0).expect("it ends");
    assert!(took < Time(1_000_000), "{took:?}");
}

/// The only grant that would let it go on is lost, and nothing is in flight that could time out.
#[test]
fn a_sender_that_waits_in_vain_asks() {
    let mut link = link("", 1, 3);
    link.start(0, 2_000_000, 0);
    link.run(Time(10_000_000), |sent| {
        let grant = matches!(sent.content, Packet::Credit { .. });
        if grant && sent.at < Time(3_000_000) { Fate::LOST } else { Fate::late(6_000) }
    });
    let asked: Vec<u64> =
        link.packets.iter().filter(|it| matches!(it.content, Packet::Ask { .. })).map(|it| it.at.0).collect();
    assert!((3..10).contains(&asked.len()), "{asked:?}");
    assert!(asked.windows(3).all(|three| three[2] - three[1] > three[1] - three[0]), "it doubles: {asked:?}");
    assert!(link.sent_at(0).is_some(), "{:?}", link.reports);
}

#[test]
fn a_receiver_that_is_gone_is_given_up() {
    // From the beginning, and once nothing is in flight: then requests for credit are what stays without an answer.
    for gone_from in [Time(0), Time(60_000)] {
        let mut link = link("", 1, 3);
        link.start(0, 4_000_000, Order::PROGRAM);
        let fate = |sent: &Sent<Packet>| {
            if sent.at < gone_from { Fate::late(6_000) } else { Fate::LOST }
        };
        assert!(link.run(Time::NEVER, fate), "it sends for ever");
        let failed = link.reports.iter().filter(|it| matches!(it.1, Report::Failed { flow: 0, .. })).count();
        assert_eq!((failed, link.reports.len()), (1, 1), "{:?}", link.reports);
        assert!(link.now > Time(900_000_000) && link.now < Time(1_200_000_000), "{:?}", link.now);
    }
}

#[test]
fn places_are_used_again() {
    let (mut link, mut fate) = (link("", 1, 3), chance(3, 0.2, 0.2));
    for flow in 0..50 {
        link.order(Order { flow, inbox: 0, bytes: 100_000 + flow as u64, channel: flow });
        link.run(link.now + Nanos(80_000_000), &mut fate);
        assert_eq!(link.ends[1].delivered(0), 100_000 + flow as u64);
    }
    let granting = link.ends[1].0.granting.as_ref().unwrap();
    assert_eq!((granting.demands.len(), granting.idle.len() + granting.asking.len()), (1, 0));
    assert_eq!((link.ends[0].0.flows.len(), link.ends[0].next_timeout()), (1, Time::NEVER));
}
