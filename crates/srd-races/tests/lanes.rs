//! Rings, posts and lanes of shared memory, in every order of their steps.

use srd_races::lanes;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_ring_of_four_lines_is_gone_round() {
    lanes::a_ring_hands_on_whole_records(256, &[20, 20, 20, 20, 20], 2);
}

#[test]
fn a_ring_is_padded_where_a_record_does_not_fit_at_its_end() {
    lanes::a_ring_hands_on_whole_records(512, &[100, 100, 100, 100, 20], 2);
}

#[test]
fn a_sleeper_sees_the_record_or_its_sender_the_sleeper() {
    lanes::a_sleeper_sees_the_record_or_its_sender_the_sleeper(false);
}

#[test]
fn a_sleeper_whose_lane_has_cooled_does_so_too() {
    lanes::a_sleeper_sees_the_record_or_its_sender_the_sleeper(true);
}

#[test]
fn no_record_is_left_in_a_lane_that_nobody_looks_at() {
    lanes::no_record_is_left_in_a_lane_that_nobody_looks_at();
}

#[test]
fn what_was_sent_before_the_end_comes_before_the_end() {
    lanes::what_was_sent_before_the_end_comes_before_the_end();
}

#[test]
fn who_connects_is_known() {
    lanes::who_connects_is_known_and_its_ring_gone_round(1, 2);
}

#[test]
fn a_ring_of_a_lane_is_gone_round() {
    lanes::who_connects_is_known_and_its_ring_gone_round(6, 1);
}

#[test]
fn what_is_copied_was_lent_until_then() {
    static WAYS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    lanes::what_is_copied_was_lent_until_then(&WAYS);
    let [counted, refused] = [0, 1].map(|way: usize| WAYS[way].load(Ordering::Relaxed));
    assert!(counted > 0 && refused > 0, "{counted} copies counted, {refused} did not");
}
