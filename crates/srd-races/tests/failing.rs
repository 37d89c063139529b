//! A device in which there is a panic, in every order of what threads do with it.

use srd_races::failing::Part::*;
use srd_races::failing::a_panic_is_final;

#[test]
fn nobody_gets_a_device_in_which_there_was_a_panic() {
    a_panic_is_final(&[Panics, Calls], 4);
    a_panic_is_final(&[Panics, Calls, Looks], 2);
}

#[test]
fn what_a_failed_device_has_left_is_taken_once() {
    a_panic_is_final(&[Calls, Calls, Panics], 2);
}

#[test]
fn the_end_of_a_device_is_told_once_whoever_finds_out() {
    a_panic_is_final(&[Panics, Panics, Calls], 2);
    a_panic_is_final(&[GivesUp, Panics, Calls], 2);
    a_panic_is_final(&[GivesUp, GivesUp, Calls], 2);
    a_panic_is_final(&[GivesUp, Looks, Calls], 2);
}

#[test]
fn a_panic_elsewhere_does_no_harm_to_a_device_whose_thread_unwinds_through_it() {
    a_panic_is_final(&[Unwinds, Calls, Looks], 2);
}
