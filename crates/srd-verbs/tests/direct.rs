//! The device's queues in memory, driven by a C program as libfabric's direct data path drives them.

mod built;

use std::time::Duration;

fn run(test: &str) {
    built::run("direct", test, &[]);
}

#[test]
fn every_operation_works_by_descriptors() {
    run("operations");
}

#[test]
fn messages_arrive_once_and_whole_across_wrap_arounds() {
    run("flows");
}

#[test]
fn what_is_rung_for_after_a_pause_is_noticed() {
    run("pauses");
}

#[test]
fn counters_count_what_descriptors_ask_for() {
    run("counted");
}

#[test]
fn they_do_where_nobody_tells_of_writes_to_doorbells() {
    for test in ["operations", "flows", "notices", "pauses"] {
        built::run("direct", test, &[("REFUSE_USERFAULTFD", "1"), ("MESSAGES", "5000")]);
    }
}

#[test]
fn they_do_when_packets_are_lost() {
    let fault = ("SRD_FAULT", "loss=0.02,dup=0.01,reorder=0.05,seed=7");
    built::run("direct", "flows", &[fault, ("MESSAGES", "5000")]);
}

#[test]
#[ignore = "two minutes: the messages of the test before it, a hundred times as many"]
fn a_million_messages_arrive_once_and_whole() {
    built::run_within(Duration::from_secs(900), "direct", "flows", &[("MESSAGES", "1000000")]);
}

#[test]
fn rubbish_completes_with_an_error_or_ends_the_queue_pair() {
    run("rubbish");
}

#[test]
fn who_reads_a_channel_itself_is_told_of_entries_that_are_there() {
    run("notices");
}

#[test]
fn who_writes_beyond_a_queue_or_to_one_that_is_gone_is_stopped_there() {
    run("gone");
}
