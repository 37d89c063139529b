//! Flows end to end: on the star, and between two processes on a line that loses, cuts and delays whatever it likes.

use super::*;
use crate::document::Document;
use crate::star::{Net, Transfer, run};
use crate::frame::Content;
use crate::units::Ps;
use proptest::prelude::{any, prop};
use proptest::test_runner::Config as ProptestConfig;
use proptest::{prop_assert_eq, proptest};
use srd_wire::BitRate;

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

/// Two processes and a line between them.
struct Line {
    now: Time,
    ends: [Nscc; 2],
    /// When what comes to which end; the number decides among those of a moment.
    frames: BTreeMap<(Time, u64), (usize, FrameHead, Packet)>,
    serial: u64,
    draws: SmallRng,
    /// Shares of frames that are lost, and of data frames that are cut.
    loss: f64,
    cuts: f64,
    sent: Vec<u32>,
    received: Vec<u32>,
}

impl Line {
    fn new(keys: &str, inboxes: u32, seed: u64, loss: f64, cuts: f64) -> Line {
        let net = net(2, true);
        let config = config(&net, keys).unwrap();
        let end = |host: u32| {
            let role = Role {
                host,
                process: 0,
                flows_out: 1,
                inboxes,
                seed,
                line_rate: BitRate(100_000_000_000),
                base_rtt: Nanos::from_micros(12),
                mtu: net.mtu,
                class: 0,
            };
            Nscc::open(&role, &config)
        };
        Line {
            now: Time(0),
            ends: [end(0), end(1)],
            frames: BTreeMap::new(),
            serial: 0,
            draws: SmallRng::seed_from_u64(seed),
            loss,
            cuts,
            sent: Vec::new(),
            received: Vec::new(),
        }
    }

    /// End 0 begins to send a message.
    fn start(&mut self, flow: u32, inbox: u32, bytes: u64, channel: u32) {
        let (from, to) = (self.ends[0].address(), self.ends[1].address());
        self.ends[1].expect(&from, inbox, bytes);
        self.ends[0].start(self.now, Order { flow, inbox, bytes, channel }, &to);
    }

    /// What the ends have to say and to send.
    fn attend(&mut self) {
        for end in 0..2 {
            while let Some(report) = self.ends[end].poll_report() {
                match report {
                    Report::Sent { flow } => self.sent.push(flow),
                    Report::Received { inbox } => self.received.push(inbox),
                    other => panic!("{other:?}"),
                }
            }
            while let Some(Outgoing { bytes, mut content, class, ecn_capable, process, .. }) =
                self.ends[end].poll_transmit(self.now, |outgoing| outgoing)
            {
                if self.draws.random::<f64>() < self.loss {
                    continue;
                }
                let trimmed = matches!(content, Packet::Data(_)) && self.draws.random::<f64>() < self.cuts;
                let trimmed = trimmed && content.trim().is_some();
                let head = FrameHead {
                    tuple_hash: 0,
                    dst: 1 - end as u32,
                    bytes,
                    class,
                    ecn_capable,
                    marked: ecn_capable && self.draws.random::<f64>() < 0.3,
                    trimmed,
                    corrupt: false,
                    epoch: 0,
                    process,
                };
                let at = self.now + Nanos(self.draws.random_range(1_000..60_000));
                self.serial += 1;
                self.frames.insert((at, self.serial), (1 - end, head, content));
            }
        }
    }

    /// Runs until nothing is left to do, or until `end`.
    fn run(&mut self, end: Time) {
        self.attend();
        loop {
            let frame = self.frames.keys().next().map_or(Time::NEVER, |&(at, _)| at);
            let timer = self.ends[0].next_timeout().min(self.ends[1].next_timeout());
            let next = frame.min(timer);
            if next > end {
                return;
            }
            self.now = self.now.max(next);
            if frame <= timer {
                let (_, (to, head, content)) = self.frames.pop_first().expect("it is there");
                self.ends[to].receive(self.now, self.now, &head, &content);
            } else {
                self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
            }
            self.attend();
        }
    }
}

/// A NACK of the second copy comes when the third has just left: taken for the third's, it made a base round trip of nothing,
/// and probes without end.
#[test]
fn a_nack_of_an_earlier_copy_measures_no_round_trip() {
    let keys = "selector = \"reps\"\nrecovery = \"sleek\"\npaths = 16";
    let mut line = Line::new(keys, 5, 2_004_384_615, 0.077_189_703_964_227_08, 0.518_821_748_843_682_1);
    let messages = [(12_882, 1), (49_030, Order::PROGRAM), (6_872, Order::PROGRAM), (21_016, Order::PROGRAM), (22_580, 1)];
    for (number, (bytes, channel)) in (0..).zip(messages) {
        line.start(number, number, bytes, channel);
    }
    line.run(Time(2_000_000_000));
    assert_eq!(line.received.len(), 5);
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
        let mut line = Line::new(&keys, messages.len() as u32, seed, loss, cuts);
        for (number, &(bytes, channel)) in messages.iter().enumerate() {
            line.start(number as u32, number as u32, bytes, channel);
        }
        line.run(Time(2_000_000_000));
        let all: Vec<u32> = (0..messages.len() as u32).collect();
        line.sent.sort_unstable();
        line.received.sort_unstable();
        prop_assert_eq!(&line.sent, &all);
        prop_assert_eq!(&line.received, &all);
        for (inbox, &(bytes, _)) in messages.iter().enumerate() {
            prop_assert_eq!(line.ends[1].delivered(inbox as u32), bytes);
        }
    }
}

#[test]
fn inboxes_and_slots_are_used_again() {
    let mut line = Line::new("", 1, 3, 0.2, 0.2);
    for flow in 0..50 {
        line.start(flow, 0, 10_000 + flow as u64, flow);
        line.run(Time::NEVER.min(Time(line.now.0 + 50_000_000)));
        assert_eq!((line.sent.len(), line.received.len()), (flow as usize + 1, flow as usize + 1));
        assert_eq!(line.ends[1].delivered(0), 10_000 + flow as u64);
    }
    assert_eq!((line.ends[0].flows.len(), line.ends[1].receiving.len()), (1, 1));
}

#[test]
fn a_flow_without_end_ends_when_it_is_told_to() {
    let mut line = Line::new("", 1, 3, 0.05, 0.05);
    line.start(0, 0, u64::MAX, 0);
    line.run(Time(1_000_000));
    let before = line.ends[1].delivered(0);
    assert!(before > 1_000_000, "{before}");
    line.ends[0].stop(line.now, 0);
    line.run(Time(100_000_000));
    let sent = line.ends[0].counts().data_new * 4086;
    assert_eq!(line.ends[1].delivered(0), sent, "what was sent has come");
    assert_eq!((line.ends[0].next_timeout(), line.ends[0].idle()), (Time::NEVER, true));
    assert!(line.sent.is_empty(), "it was not to end by itself");
}

#[test]
fn messages_of_a_channel_share_a_window() {
    let mut line = Line::new("", 2, 3, 0.0, 0.0);
    line.start(0, 0, 400_000, Order::PROGRAM);
    line.start(1, 1, 400_000, Order::PROGRAM);
    line.attend();
    // 1.5 BDP of 150,000 bytes, in packets of 4150.
    assert_eq!(line.ends[0].counts().data_new, 54);
    line.run(Time(100_000_000));
    assert_eq!((line.sent.len(), line.ends[0].flows.len()), (2, 1));
    assert!(!line.ends[0].idle(), "a program's connection stays");
}

#[test]
fn paused_classes_wait() {
    let mut line = Line::new("control_class = 1", 1, 3, 0.0, 0.0);
    line.start(0, 0, 4_000, 0);
    line.ends[0].set_paused(0b01);
    line.attend();
    assert!(line.frames.is_empty());
    line.ends[0].set_paused(0b10);
    line.ends[1].set_paused(0b10);
    line.run(Time(70_000));
    assert_eq!((line.received.len(), line.sent.len()), (1, 0));
    line.ends[1].set_paused(0b01);
    line.run(Time(200_000));
    assert_eq!(line.sent.len(), 1);
}

#[test]
fn a_cut_packet_is_sent_again_after_a_round_trip() {
    let mut line = Line::new("", 1, 3, 0.0, 1.0);
    line.start(0, 0, 4_000, 0);
    line.attend();
    line.cuts = 0.0;
    line.run(Time(1_000_000));
    let counts = line.ends[0].counts();
    assert_eq!((counts.data_new, counts.data_again, counts.timeouts), (1, 1, 0));
    assert_eq!((line.sent.len(), line.received.len()), (1, 1));
}

impl Nscc {
    fn idle(&self) -> bool {
        self.flows.iter().all(Option::is_none)
    }
}
