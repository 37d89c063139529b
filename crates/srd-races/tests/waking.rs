//! Threads that sleep and are woken, in every order of their steps.

use srd_races::waking;

#[test]
fn a_leader_that_sleeps_is_woken() {
    waking::whoever_sleeps_is_woken(1, 4);
}

#[test]
fn a_leader_and_its_follower_are_woken() {
    waking::whoever_sleeps_is_woken(2, 2);
}

#[test]
fn the_progress_thread_is_back_when_the_program_stops_sleeping() {
    waking::the_progress_thread_is_back(1);
}

#[test]
fn the_progress_thread_is_back_when_the_program_sleeps_again_and_stops() {
    waking::the_progress_thread_is_back(2);
}
