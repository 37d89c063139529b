//! Two processes and a cable on which each packet's fate is chosen.

use super::*;
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// What happens to a packet.
enum Luck {
    Lost,
    /// So much later than the others.
    Late(u64),
    Marked,
}

/// Luck of the packets that an end sends, by their number among all.
type Lots<'a> = Box<dyn FnMut(usize, u64, &Packet) -> Luck + 'a>;

/// Nothing.
const NONE: Luck = Luck::Late(0);
/// One way, in nanoseconds.
const DELAY: u64 = 1_000;
/// From one packet of a process to its next, in nanoseconds.
const GAP: u64 = 100;
/// A run that takes longer hangs: eight timeouts are over in 0.3 s.
const LONGEST: u64 = 100_000_000_000;
/// No test sends a hundredth of it, unless it hangs.
const MOST_PACKETS: usize = 2_000_000;

struct Wire<'a> {
    ends: [Roce; 2],
    free_at: [u64; 2],
    now: u64,
    serial: u64,
    flying: BinaryHeap<Reverse<(u64, u64)>>,
    packets: BTreeMap<u64, (usize, Packet, bool)>,
    luck: Lots<'a>,
    /// What has left, and when, by which end.
    left: Vec<(u64, usize, Packet)>,
    reports: [Vec<(u64, Report)>; 2],
}

impl<'a> Wire<'a> {
    /// A cable on which `luck` is had by the packets that an end sends, by their number among all.
    fn new(config: &Config, luck: impl FnMut(usize, u64, &Packet) -> Luck + 'a) -> Wire<'a> {
        let open = |host| {
            let role = Role {
                host,
                process: 0,
                flows_out: 8,
                inboxes: 8,
                seed: 1,
                line_rate: BitRate(100_000_000_000),
                base_rtt: Nanos(2 * DELAY),
                mtu: 4200,
                class: 3,
            };
            Roce::open(&role, config)
        };
        Wire {
            ends: [open(0), open(1)],
            free_at: [0; 2],
            now: 0,
            serial: 0,
            flying: BinaryHeap::new(),
            packets: BTreeMap::new(),
            luck: Box::new(luck),
            left: Vec::new(),
            reports: [Vec::new(), Vec::new()],
        }
    }

    /// Begins a flow from end 0 to end 1.
    fn start(&mut self, flow: u32, bytes: u64, channel: u32) {
        let [from, to] = &mut self.ends;
        to.expect(&from.address(), flow, bytes);
        from.start(Time(self.now), Order { flow, inbox: flow, bytes, channel }, &to.address());
    }

    /// Until nothing happens any more, or that moment. False: it hangs.
    fn run(&mut self, until: u64) -> bool {
        loop {
            let mut next = self.flying.peek().map_or(u64::MAX, |flying| flying.0.0);
            for end in 0..2 {
                self.reports[end].extend(std::iter::from_fn(|| self.ends[end].poll_report()).map(|it| (self.now, it)));
                self.send(end);
                let busy = if self.free_at[end] > self.now { self.free_at[end] } else { u64::MAX };
                next = next.min(busy).min(self.ends[end].next_timeout().0.max(self.now + 1));
            }
            next = next.min(self.flying.peek().map_or(u64::MAX, |flying| flying.0.0));
            if next == u64::MAX || next > until {
                return next == u64::MAX || until < LONGEST;
            }
            if self.left.len() > MOST_PACKETS {
                return false;
            }
            self.now = next;
            while let Some(Reverse((_, serial))) = self.flying.peek().copied().filter(|flying| flying.0.0 <= next) {
                self.flying.pop();
                let (end, packet, marked) = self.packets.remove(&serial).unwrap();
                let head = FrameHead {
                    tuple_hash: 0,
                    dst: end as u32,
                    bytes: 1,
                    class: 3,
                    ecn_capable: true,
                    marked,
                    trimmed: false,
                    corrupt: false,
                    epoch: 0,
                    process: 0,
                };
                self.ends[end].receive(Time(next), Time(next), &head, &packet);
            }
            self.ends.iter_mut().filter(|end| end.next_timeout() <= Time(next)).for_each(|end| {
                end.handle_timeout(Time(next));
            });
        }
    }

    fn send(&mut self, end: usize) {
        if self.free_at[end] > self.now {
            return;
        }
        let Some(out) = self.ends[end].poll_transmit(Time(self.now), |out| out) else { return };
        self.free_at[end] = self.now + GAP;
        self.left.push((self.now, end, out.content));
        let luck = (self.luck)(end, self.left.len() as u64 - 1, &out.content);
        let (late, marked) = match luck {
            Luck::Lost => return,
            Luck::Late(late) => (late, false),
            Luck::Marked => (0, true),
        };
        self.serial += 1;
        self.packets.insert(self.serial, (1 - end, out.content, marked));
        self.flying.push(Reverse((self.now + GAP + DELAY + late, self.serial)));
    }

    fn sent(&self, flow: u32) -> Option<u64> {
        self.reports[0].iter().find(|(_, report)| *report == Report::Sent { flow }).map(|(at, _)| *at)
    }

    /// Sequence numbers of data packets, in the order in which they left.
    fn data(&self) -> Vec<u64> {
        let psn = |packet: &Packet| match packet {
            Packet::Write(segment) => Some(segment.psn),
            _ => None,
        };
        self.left.iter().filter_map(|(_, _, packet)| psn(packet)).collect()
    }

    fn answers(&self, which: impl Fn(&Packet) -> bool) -> usize {
        self.left.iter().filter(|(_, end, packet)| *end == 1 && which(packet)).count()
    }
}

fn plain(lines: &str) -> Config {
    config(&Net::default(), lines)
}

/// Loses the data packet `psn` the first `times` times.
fn loses(psn: u64, times: usize) -> impl FnMut(usize, u64, &Packet) -> Luck {
    let mut left = times;
    move |_, _, packet| match packet {
        Packet::Write(segment) if segment.psn == psn && left > 0 => {
            left -= 1;
            Luck::Lost
        }
        _ => NONE,
    }
}

#[test]
fn go_back_n_sends_all_again_from_the_gap_after_one_nak() {
    let mut wire = Wire::new(&plain(""), loses(10, 1));
    wire.start(0, 100 * 4096, 0);
    assert!(wire.run(LONGEST));
    // The gap shows with packet 11; until the NAK is back, two ways and the times of packet 11 and the NAK pass.
    let behind = 11 + 2 * (DELAY / GAP) + 2;
    let expected: Vec<u64> = (0..behind).chain(10..100).collect();
    assert_eq!(wire.data(), expected);
    assert_eq!(wire.answers(|packet| matches!(packet, Packet::Ack { nak: true, psn: 10, sack: None, .. })), 1);
    assert_eq!(wire.ends[0].counts().timeouts, 0);
    assert_eq!(wire.ends[1].counts().spurious, 0);
}

#[test]
fn a_packet_lost_twice_costs_go_back_n_a_timeout() {
    let time = |lines: &str| {
        let mut wire = Wire::new(&plain(lines), loses(10, 2));
        wire.start(0, 100 * 4096, 0);
        assert!(wire.run(LONGEST));
        (wire.sent(0).unwrap(), wire.ends[0].counts().timeouts)
    };
    let (at, timeouts) = time("rto_us = 500");
    assert!(timeouts == 1 && (500_000..530_000).contains(&at), "{at}");
    let (at, timeouts) = time("rto_us = 500\nnak_again_us = 3");
    assert!(timeouts == 0 && at < 30_000, "{at}");
}

#[test]
fn a_lost_tail_is_found_by_the_timer() {
    let mut wire = Wire::new(&plain("rto_us = 500"), loses(99, 1));
    wire.start(0, 100 * 4096, 0);
    assert!(wire.run(LONGEST));
    // The ACK of packet 95 set the timer, at about 12 us.
    let at = wire.sent(0).unwrap();
    assert!((505_000..520_000).contains(&at), "{at}");
    let mut wire = Wire::new(&plain("recovery = \"irn\""), loses(99, 1));
    wire.start(0, 100 * 4096, 0);
    assert!(wire.run(LONGEST));
    let at = wire.sent(0).unwrap();
    assert!((100_000..130_000).contains(&at), "RTO_low: {at}");
}

#[test]
fn irn_sends_again_what_is_missing_and_nothing_else() {
    let mut missing = vec![10, 11, 30, 99];
    let mut wire = Wire::new(&plain("recovery = \"irn\""), move |_, _, packet| match packet {
        Packet::Write(segment) if missing.contains(&segment.psn) => {
            missing.retain(|psn| *psn != segment.psn);
            Luck::Lost
        }
        _ => NONE,
    });
    wire.start(0, 100 * 4096, 0);
    assert!(wire.run(LONGEST));
    let mut sent = wire.data();
    sent.sort();
    let expected: Vec<u64> = (0..100).flat_map(|psn| vec![psn; if [10, 11, 30, 99].contains(&psn) { 2 } else { 1 }]).collect();
    assert_eq!(sent, expected);
    assert_eq!(wire.ends[0].counts().timeouts, 1, "for the tail");
}

#[test]
fn reordering_is_loss_to_go_back_n_and_nothing_to_irn() {
    for (lines, again) in [("", true), ("recovery = \"irn\"", false)] {
        // Every seventh packet is overtaken by some.
        let mut wire = Wire::new(&plain(lines), |end, number, _| match end == 0 && number % 7 == 3 {
            true => Luck::Late(350),
            false => NONE,
        });
        wire.start(0, 400 * 4096, 0);
        assert!(wire.run(LONGEST));
        let counts = wire.ends[0].counts();
        assert_eq!(counts.data_again > 100, again, "{lines}: {counts:?}");
        assert_eq!(wire.ends[1].delivered(0), 400 * 4096);
    }
}

#[test]
fn a_dead_peer_is_given_up_after_seven_retries() {
    let mut wire = Wire::new(&plain("rto_us = 100\nqps = 1"), |_, _, _| Luck::Lost);
    wire.start(0, 4096, 0);
    wire.start(1, 4096, 0);
    assert!(wire.run(LONGEST));
    let failed: Vec<_> = wire.reports[0].iter().map(|(_, report)| *report).collect();
    let why = "transport retry counter exceeded";
    assert_eq!(failed, [0, 1].map(|flow| Report::Failed { flow, why }));
    // The last of the eight waits 128 times as long as the first.
    let at = wire.reports[0][0].0;
    assert!((25_500_000..25_502_000).contains(&at), "{at}");
    // A flow that begins later has a queue pair that works.
    wire.luck = Box::new(|_, _, _| NONE);
    wire.start(2, 4096, 0);
    assert!(wire.run(LONGEST) && wire.sent(2).is_some());
}

#[test]
fn a_paused_class_sends_nothing_and_notifications_go_on() {
    let around = Surroundings { marks: true, ..Net::default().surroundings() };
    let config = try_config(&around, "").unwrap();
    let mut wire = Wire::new(&config, |_, _, packet| match packet {
        Packet::Write(_) => Luck::Marked,
        _ => NONE,
    });
    wire.start(0, 4_000_000, 0);
    wire.ends[1].set_paused(1 << 3);
    wire.run(20_000);
    assert_eq!(wire.answers(|packet| matches!(packet, Packet::Ack { .. })), 0);
    assert_eq!(wire.answers(|packet| matches!(packet, Packet::Notification { .. })), 1);
    wire.ends[0].set_paused(1 << 3);
    let before = wire.left.len();
    wire.run(40_000);
    assert_eq!(wire.left.len(), before);
    wire.ends.iter_mut().for_each(|end| end.set_paused(0));
    assert!(wire.run(LONGEST) && wire.sent(0).is_some());
}

#[test]
fn notifications_keep_their_interval() {
    let around = Surroundings { marks: true, ..Net::default().surroundings() };
    for (lines, interval) in [("", 50_000), ("cnp_interval_us = 10\ncnp_delay_us = 3", 10_000)] {
        let config = try_config(&around, lines).unwrap();
        let mut wire = Wire::new(&config, |_, _, packet| match packet {
            Packet::Write(_) => Luck::Marked,
            _ => NONE,
        });
        wire.start(0, u64::MAX, 0);
        wire.run(400_000);
        let at: Vec<u64> = wire
            .left
            .iter()
            .filter(|(_, _, packet)| matches!(packet, Packet::Notification { .. }))
            .map(|(at, ..)| *at)
            .collect();
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] + GAP >= interval), "{at:?}");
        assert!(at.len() as u64 > 200_000 / interval, "{at:?}");
        let delay = config.dcqcn.unwrap().cnp_delay.0;
        assert!((1_100 + delay..1_300 + delay).contains(&at[0]), "{at:?}");
    }
}

#[test]
fn a_flow_without_end_ends_when_it_is_told() {
    let mut wire = Wire::new(&plain("qps = 1\nmessage = \"64KiB\""), |_, _, _| NONE);
    wire.start(0, u64::MAX, 0);
    wire.run(100_000);
    wire.start(1, 100_000, 0);
    wire.run(120_000);
    let before = *wire.data().iter().max().unwrap();
    wire.ends[0].stop(Time(120_000), 0);
    assert!(wire.run(LONGEST));
    assert!(wire.sent(0).is_none() && wire.sent(1).is_some());
    assert_eq!(wire.ends[1].delivered(1), 100_000);
    assert!(*wire.data().iter().max().unwrap() <= before + 26);
    assert_eq!(wire.ends[0].counts().timeouts, 0);
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
        let mut wire = Wire::new(&plain(lines), |_, _, _| match luck.random_range(0..100) {
            it if it < bad => Luck::Lost,
            it if it < bad + late => Luck::Late(u64::from(it) * 97),
            _ => NONE,
        });
        for (flow, &bytes) in sizes.iter().enumerate() {
            wire.start(flow as u32, bytes, flow as u32 % 2);
        }
        prop_assert!(wire.run(LONGEST), "it hangs");
        for (flow, &bytes) in sizes.iter().enumerate() {
            let flow = flow as u32;
            let placed = wire.ends[1].delivered(flow);
            let received = wire.reports[1].iter().filter(|(_, it)| *it == Report::Received { inbox: flow }).count();
            let failed = wire.reports[0].iter().any(|(_, it)| matches!(it, Report::Failed { flow: it, .. } if *it == flow));
            prop_assert!(placed <= bytes);
            prop_assert_eq!(received, usize::from(placed == bytes));
            prop_assert!(wire.sent(flow).is_some() != failed);
            prop_assert!(failed || placed == bytes);
            prop_assert!(!failed || wire.ends[0].counts().timeouts > 2);
        }
    }
}
