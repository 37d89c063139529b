//! The four answers, and the jump, in numbers.

use super::*;

const US: u64 = 1000;

/// NSCC's own reference network: 100 Gb/s, 12 us, and uet-htsim's packets.
fn constants() -> Constants {
    let (rate, rtt) = (BitRate(100_000_000_000), Nanos(12 * US));
    Constants::new(rate, rtt, Nanos(9 * US), 1.5, 4086.0, 64.0)
}

/// A window of 100 kB at `now` = 0, and the first period of the jump well before its end.
fn window(constants: &Constants) -> Window {
    Window { bytes: 100_000.0, ..Window::new(constants, Time(0)) }
}

fn sample(marked: bool, delay: Nanos) -> Sample {
    Sample { marked, delay, bytes: 4150.0, in_flight: 50_000.0 }
}

/// The window after nine such ACKs at once: more than eight packets, so that increases take effect.
fn after_nine(marked: bool, delay: Nanos) -> f64 {
    let constants = constants();
    let mut window = window(&constants);
    (0..9).for_each(|_| window.on_ack(&constants, Time(US), sample(marked, delay)));
    window.bytes
}

fn near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-6 * expected, "{value}, not {expected}");
}

#[test]
fn a_window_begins_at_one_and_a_half_bdp() {
    near(Window::new(&constants(), Time(0)).bytes, 225_000.0);
}

#[test]
fn no_mark_and_little_delay_increase_in_proportion() {
    // 4 payloads of 4086 bytes per 12 us of room and window's worth of bytes; here 6 us of room.
    near(after_nine(false, Nanos(3 * US)), 100_000.0 + 9.0 * 4150.0 * 4.0 * 4086.0 * 6.0 / 12.0 / 100_000.0);
    near(after_nine(false, Nanos(8 * US)), 100_000.0 + 9.0 * 4150.0 * 4.0 * 4086.0 * 1.0 / 12.0 / 100_000.0);
}

#[test]
fn no_mark_and_much_delay_increase_by_the_same_for_all() {
    // 5 payloads per window's worth of bytes.
    near(after_nine(false, Nanos(9 * US)), 100_000.0 + 9.0 * 4150.0 * 5.0 * 4086.0 / 100_000.0);
    near(after_nine(false, Nanos(30 * US)), 100_000.0 + 9.0 * 4150.0 * 5.0 * 4086.0 / 100_000.0);
}

#[test]
fn a_mark_and_little_delay_change_nothing() {
    near(after_nine(true, Nanos(8 * US)), 100_000.0);
}

#[test]
fn a_mark_and_much_delay_decrease_once_in_a_round_trip() {
    let constants = constants();
    let mut window = window(&constants);
    let mut at = |us: u64, mean: f64| {
        (window.mean_delay_ns, window.grown_at) = (mean, Time(us * US));
        window.on_ack(&constants, Time(us * US), Sample { bytes: 0.0, ..sample(true, Nanos(9 * US)) });
        window.bytes
    };
    near(at(12, 18_000.0), 100_000.0); // not yet a round trip after the beginning
    near(at(13, 18_000.0), 60_000.0); // 0.8 x (18 - 9) / 18
    near(at(14, 18_000.0), 60_000.0);
    near(at(25, 18_000.0), 60_000.0);
    near(at(26, 1e9), 30_000.0); // half at most
    near(at(60, 9_000.0), 30_000.0); // the mean is not above the target
}

#[test]
fn every_window_grows_a_little_in_a_round_trip() {
    let constants = constants();
    let mut window = window(&constants);
    let nothing = Sample { bytes: 0.0, ..sample(true, Nanos(0)) };
    window.on_ack(&constants, Time(12 * US), nothing);
    near(window.bytes, 100_000.0);
    window.on_ack(&constants, Time(13 * US), nothing);
    near(window.bytes, 100_000.0 + 0.15 * 4086.0);
    window.on_ack(&constants, Time(14 * US), nothing);
    near(window.bytes, 100_000.0 + 0.15 * 4086.0);
}

#[test]
fn an_idle_path_fills_the_window_fast() {
    let constants = constants();
    let mut window = window(&constants);
    let idle = Sample { bytes: 60_000.0, ..sample(false, Nanos(999)) };
    window.on_ack(&constants, Time(1), idle); // not yet a windowful
    let before = window.bytes;
    window.on_ack(&constants, Time(2), idle);
    near(window.bytes, before + 0.25 * 60_000.0);
    let before = window.bytes;
    window.on_ack(&constants, Time(3), Sample { bytes: 4000.0, ..idle });
    near(window.bytes, before + 0.25 * 4000.0);
    window.on_ack(&constants, Time(4), sample(false, Nanos(US)));
    assert!(!window.fast, "a microsecond is not idle");
}

#[test]
fn where_little_comes_through_the_window_becomes_what_did() {
    let constants = constants();
    let mut window = Window { grown_at: Time::NEVER, ..window(&constants) };
    let late = Sample { bytes: 5000.0, ..sample(true, Nanos(37 * US)) };
    window.on_ack(&constants, Time(US), late); // the first period begins, and 5000 bytes are before it
    window.on_ack(&constants, Time(2 * US), late);
    window.on_ack(&constants, Time(22 * US), late);
    near(window.bytes, 100_000.0);
    window.on_ack(&constants, Time(23 * US), late);
    near(window.bytes, 15_000.0);
    // What was in flight says nothing new: 50 kB.
    window.mean_delay_ns = 1e9;
    for n in 1..10 {
        window.on_ack(&constants, Time((23 + 2 * n) * US), late);
        near(window.bytes, 15_000.0);
    }
    window.on_ack(&constants, Time(60 * US), late);
    assert!(window.bytes < 15_000.0);
}

#[test]
fn more_than_an_eighth_of_the_largest_window_is_no_reason_to_jump() {
    let constants = constants();
    let mut window = window(&constants);
    window.on_nack(&constants, Time(US), 4150.0, 50_000.0);
    near(window.bytes, 95_850.0); // a packet cut takes its bytes away
    window.delivered = 225_000.0 / 8.0;
    window.on_nack(&constants, Time(23 * US), 4150.0, 50_000.0);
    near(window.bytes, 91_700.0);
    window.delivered = 225_000.0 / 8.0 - 1.0;
    window.on_nack(&constants, Time(45 * US), 4150.0, 50_000.0);
    near(window.bytes, 225_000.0 / 8.0 - 1.0);
}

#[test]
fn a_window_has_bounds() {
    let constants = constants();
    let mut window = window(&constants);
    (0..100).for_each(|n| window.on_timeout(&constants, 4150.0 * n as f64));
    near(window.bytes, 4150.0);
    window.on_ack(&constants, Time(1), Sample { bytes: 1e9, ..sample(false, Nanos(3 * US)) });
    near(window.bytes, 225_000.0);
    window.measure(&constants, Nanos(8 * US), false);
    window.on_ack(&constants, Time(2), sample(true, Nanos(0)));
    near(window.bytes, 150_000.0); // a shorter round trip, a smaller product
}

#[test]
fn delay_without_a_mark_counts_as_a_quarter_of_a_round_trip() {
    let constants = constants();
    let mut window = window(&constants);
    assert_eq!(window.measure(&constants, Nanos(40 * US), false), Nanos(28 * US));
    near(window.mean_delay_ns, 0.0125 * 3000.0);
    window.mean_delay_ns = 0.0;
    assert_eq!(window.measure(&constants, Nanos(40 * US), true), Nanos(28 * US));
    near(window.mean_delay_ns, 0.0125 * 28_000.0);
}
