//! Completion channels.

mod built;

#[test]
fn processes_that_sleep_are_woken_by_each_message() {
    built::run("events", "sleepers", &[]);
}

#[test]
fn notifications_follow_the_manual_pages() {
    built::run("events", "rules", &[]);
}
