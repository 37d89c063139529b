//! What a fabric sees of it; `link` holds what two processes do to each other when packets get lost.

use super::*;
use crate::document::Document;
use crate::star::{Ended, Net, Transfer, run};
use crate::units::Ps;
use srd_wire::Nanos;

mod link;

/// What a section of these lines says on such a fabric.
pub(super) fn config(net: &Net, lines: &str) -> Config {
    try_config(&net.surroundings(), lines).unwrap_or_else(|error| panic!("{error}"))
}

fn try_config(around: &Surroundings, lines: &str) -> Result<Config, InputError> {
    let document = Document::parse(&format!("[roce]\n{lines}"), "test").unwrap();
    Roce::read(&Section::of(&document, "roce")?.only(Roce::KEYS)?, around)
}

fn transfer(from: u32, to: u32, bytes: u64) -> Transfer {
    Transfer { from, to, bytes, start: Ps::ZERO, channel: from << 8 | to }
}

fn try_on(net: &Net, lines: &str, transfers: &[Transfer], micros: u64) -> Ended {
    run::<Roce>(net, &config(net, lines), transfers, Ps::from_micros(micros))
}

/// Transfers without end from so many hosts to host 0.
fn incast(senders: u32) -> Vec<Transfer> {
    (1..=senders).map(|from| transfer(from, 0, u64::MAX)).collect()
}

/// Gb/s of payload of a transfer, from that microsecond on.
fn gbps(ended: &Ended, number: usize, from: usize) -> f64 {
    let progress = &ended.progress[number];
    let to = progress.len() - 1;
    (progress[to] - progress[from]) as f64 * 8e-3 / (to - from) as f64
}

fn mean_queue(ended: &Ended, from: usize) -> f64 {
    let queue = &ended.queue[from..];
    queue.iter().sum::<u64>() as f64 / queue.len() as f64
}

/// 40 Gb/s with the thresholds of SIGCOMM'15, section 6, and no losses.
fn net_of_the_paper(senders: u32) -> Net {
    Net {
        hosts: senders + 1,
        rate: BitRate(40_000_000_000),
        capacity: 8_000_000,
        marks: Some((5_000, 200_000, 0.01)),
        mtu: 1100,
        ..Net::default()
    }
}

#[test]
fn one_flow_has_the_line() {
    let net = Net::default();
    let ended = try_on(&net, "", &[transfer(0, 1, 10_000_000)], 2000);
    let frames = 10_000_000u64.div_ceil(4096);
    let bytes = 10_000_000 + frames * (44 + 14) + 10 * 16;
    let line = Ps::to_send(bytes, net.rate).as_micros();
    // A round trip of 8 us, the last frame once more through the switch, and the ACK.
    let took = ended.sent[0].unwrap().as_micros();
    assert!(took > line + 8.0 && took < line + 8.7, "{took} us, on the wire {line} us");
    assert_eq!(ended.delivered[0], 10_000_000);
    assert_eq!((ended.counts[0].data_new, ended.counts[0].data_again), (frames, 0));
}

#[test]
fn queue_pairs_of_a_process_take_turns() {
    let net = Net { hosts: 4, ..Net::default() };
    let transfers = [1, 2, 3].map(|to| transfer(0, to, u64::MAX));
    let ended = try_on(&net, "", &transfers, 1000);
    for number in 0..3 {
        let share = gbps(&ended, number, 100) / 98.6;
        assert!((share - 1.0 / 3.0).abs() < 0.001, "{share}");
    }
}

/// The efficiency of go-back-N, (1 - p) / (1 - p + p W), with W packets to a round trip (Bertsekas and Gallager, "Data
/// Networks", section 2.4). Besides, a packet that is lost when it is retransmitted costs a timeout: nobody says NAK twice.
#[test]
fn a_loss_costs_go_back_n_a_round_trip() {
    for (loss, seed) in [(0.0005, 1), (0.002, 2), (0.005, 3)] {
        let net = Net { loss, seed, ..Net::default() };
        let ended = try_on(&net, "", &[transfer(0, 1, u64::MAX)], 50_000);
        let packet_us = (4096.0 + 58.0) * 8e-5;
        // The round trip, the packet whose arrival shows the gap, the stores of switch and host.
        let window = 8.0 / packet_us + 3.0;
        let timeout = 1048.576 / packet_us;
        let expected = (1.0 - loss) / (1.0 - loss + loss * (window + loss * timeout));
        let efficiency = gbps(&ended, 0, 0) / 98.6;
        assert!((efficiency / expected - 1.0).abs() < 0.1, "{loss}: {efficiency} instead of {expected}");
    }
}

/// With room for more than a round trip, IRN loses what is lost, and a timeout (RTO_high) where that is lost again.
#[test]
fn a_loss_costs_irn_a_packet() {
    for (loss, seed) in [(0.0005, 1), (0.002, 2), (0.005, 3)] {
        let net = Net { loss, seed, ..Net::default() };
        let lines = "recovery = \"irn\"\nwindow = \"4bdp\"";
        let ended = try_on(&net, lines, &[transfer(0, 1, u64::MAX)], 50_000);
        let packet_us = (4096.0 + 74.0) * 8e-5;
        let expected = (1.0 - loss) / (1.0 + loss * loss * 320.0 / packet_us);
        let efficiency = gbps(&ended, 0, 0) / 98.23;
        assert!((efficiency / expected - 1.0).abs() < 0.02, "{loss}: {efficiency} instead of {expected}");
        assert!(ended.counts[0].data_again <= ended.dropped + ended.counts[1].spurious);
    }
}

#[test]
fn bdp_flow_control_bounds_the_queue() {
    let net = Net { hosts: 17, capacity: 8_000_000, ..Net::default() };
    let transfers = incast(16);
    let ended = try_on(&net, "recovery = \"irn\"", &transfers, 2000);
    // Sixteen windows of 26 packets, less what is under way.
    let most = *ended.queue.iter().max().unwrap();
    assert!(most < 16 * 26 * 4170 && most > 15 * 26 * 4170 - 108_000, "{most}");
    let without = try_on(&net, "", &transfers, 2000);
    assert!(*without.queue.iter().max().unwrap() > 7_900_000);
}

/// Queue of N flows: Zhu et al., "ECN or Delay", CoNEXT'16, section 3, whose fixed point marks a share p of the packets with
/// p^3 = R_AI N^2 / (tau' C^2) (1/B + N/(T C))^2, all in packets, and tau' and T being 55 us, B 10 MB.
#[test]
fn dcqcn_is_fair_and_has_the_queue_of_its_fluid_model() {
    for senders in [2, 3, 4] {
        let net = net_of_the_paper(senders);
        let ended = try_on(&net, "payload = 1024\npreset = \"paper\"", &incast(senders), 100_000);
        let (n, packet_bits) = (senders as f64, (1024.0 + 58.0) * 8.0);
        let (line, additive, bytes) = (40e9 / packet_bits, 40e6 / packet_bits, 80e6 / packet_bits);
        let cube = additive * n * n / (55e-6 * line * line) * (1.0 / bytes + n / (55e-6 * line)).powi(2);
        let expected = 5_000.0 + 195_000.0 * cube.cbrt() / 0.01;
        let queue = mean_queue(&ended, 30_000);
        assert!((queue / expected - 1.0).abs() < 0.1, "{senders}: {queue} instead of {expected}");
        let rates: Vec<f64> = (0..senders as usize).map(|number| gbps(&ended, number, 30_000)).collect();
        let total: f64 = rates.iter().sum();
        assert!(total > 0.995 * 40.0 * 1024.0 / 1082.0, "{total} Gb/s");
        assert!(rates.iter().all(|rate| (rate * n / total - 1.0).abs() < 0.1), "{rates:?}");
    }
}

#[test]
fn a_newcomer_gets_its_share_whatever_the_preset() {
    for preset in ["paper", "hpcc", "mellanox"] {
        // Thresholds for 100 Gb/s of HPCC, mix/config.txt.
        let marks = Some((400_000, 1_600_000, 0.2));
        let net = Net { hosts: 3, capacity: 8_000_000, marks, ..Net::default() };
        let mut transfers = incast(2);
        transfers[1].start = Ps::from_micros(5_000);
        let ended = try_on(&net, &format!("preset = \"{preset}\""), &transfers, 60_000);
        let rates = [0, 1].map(|number| gbps(&ended, number, 40_000));
        assert!(rates[0] + rates[1] > 96.0, "{preset}: {rates:?}");
        assert!((rates[0] / rates[1] - 1.0).abs() < 0.1, "{preset}: {rates:?}");
        assert_eq!(ended.dropped, 0);
    }
}

#[test]
fn marking_earlier_shortens_the_queue_and_costs_throughput() {
    let [late, early] = [(100_000, 400_000, 0.2), (4_000, 16_000, 0.2)].map(|marks| {
        let net = Net { hosts: 3, capacity: 8_000_000, marks: Some(marks), ..Net::default() };
        let ended = try_on(&net, "preset = \"paper\"", &incast(2), 60_000);
        (mean_queue(&ended, 30_000), gbps(&ended, 0, 30_000) + gbps(&ended, 1, 30_000))
    });
    assert!(early.0 < 0.1 * late.0 && early.1 < late.1 - 0.5, "{early:?} and {late:?}");
}

#[test]
fn dcqcn_spares_an_incast_most_losses() {
    let net = Net { hosts: 17, marks: Some((100_000, 400_000, 0.2)), ..Net::default() };
    let lost = |lines: &str| try_on(&net, lines, &incast(16), 20_000).dropped;
    let (with, without) = (lost("dcqcn = true"), lost("dcqcn = false"));
    assert!(with < without / 5, "{with} and {without}");
}

#[test]
fn a_late_reaction_makes_the_queue_longer() {
    let queue = |lines: &str| {
        let net = Net { hosts: 5, capacity: 30_000_000, marks: Some((100_000, 400_000, 0.2)), ..Net::default() };
        *try_on(&net, lines, &incast(4), 3_000).queue.iter().max().unwrap()
    };
    let (hardware, firmware) = (queue(""), queue("reaction_us = 50"));
    // Three links' worth too much for 50 us more.
    assert!(firmware > hardware + 1_000_000, "{firmware} and {hardware}");
}

#[test]
fn many_flows_share_few_queue_pairs_in_order() {
    let net = Net::default();
    let transfers: Vec<Transfer> = (0..6)
        .map(|number| Transfer { channel: number, ..transfer(0, 1, 1_000_000) })
        .collect();
    let ends = |lines: &str| -> Vec<f64> {
        let ended = try_on(&net, lines, &transfers, 10_000);
        ended.sent.iter().map(|at| at.unwrap().as_micros()).collect()
    };
    let (own, two) = (ends(""), ends("qps = 2"));
    assert!(own.iter().all(|at| *at > 480.0), "all end together: {own:?}");
    assert!(two[0] < 180.0 && two[2] < 345.0 && two[4] > 480.0, "two by two: {two:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    let plain = Net::default().surroundings();
    let marking = Surroundings { marks: true, ..plain };
    for (around, lines, word) in [
        (&plain, "dcqcn = true", "do not mark"),
        (&plain, "preset = \"paper\"", "does not mark"),
        (&marking, "dcqcn = false\ng = 0.1", "meaningless"),
        (&plain, "payload = 1000", "InfiniBand"),
        (&Surroundings { mtu: 1500, ..plain }, "payload = 2048", "room for 1024"),
        (&Surroundings { mtu: 300, ..plain }, "", "no room"),
        (&plain, "recovery = \"irn\"\nack_every = 4", "each packet"),
        (&plain, "rto_low_us = 10", "irn"),
        (&plain, "retries = 8", "from 0 to 7"),
        (&plain, "window = 100", "4096"),
    ] {
        let error = try_config(around, lines).unwrap_err().to_string();
        assert!(error.contains(word), "{lines}: {error}");
    }
}

#[test]
fn payload_and_timeout_follow_the_fabric() {
    let plain = Net::default().surroundings();
    let of = |around: Surroundings, lines: &str| try_config(&around, lines).unwrap();
    assert_eq!(of(plain, "").payload, 4096);
    assert_eq!(of(Surroundings { mtu: 4155, ..plain }, "").payload, 2048);
    assert_eq!(of(Surroundings { mtu: 1500, ..plain }, "").payload, 1024);
    assert_eq!(of(plain, "").rto, Nanos(1_048_576));
    assert_eq!(of(Surroundings { lossless: 1, ..plain }, "").rto, Nanos(4_194_304));
    assert_eq!(of(plain, "recovery = \"irn\"").rto, Nanos(320_000));
    assert_eq!(of(plain, "recovery = \"irn\"").window, 26);
    assert!(of(plain, "").dcqcn.is_none() && of(Surroundings { marks: true, ..plain }, "").dcqcn.is_some());
    assert_eq!(Roce::cost(&of(plain, ""), 4200, 24).bytes(8192), 8192 + 2 * (20 + 8 + 12 + 4 + 14 + 24));
}
