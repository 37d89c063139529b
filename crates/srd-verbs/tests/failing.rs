//! A panic inside the device is the end of the device, and the program hears of it.

mod built;

/// What is said on standard error: once, with what happened and where.
fn said_once(text: &str, place: &str) {
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("of this process is gone")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    for part in ["\"on purpose, as SRD_FAULT says\" at crates/srd-net/src/core.rs:", place, "Please report"] {
        assert!(lines[0].contains(part), "{part:?} is missing in {}", lines[0]);
    }
}

#[test]
fn a_panic_in_a_poll_fails_everything_and_everybody_is_told() {
    if let Some(text) = built::run("failing", "call", &[("SRD_FAULT", "panic_call=1")]) {
        said_once(&text, "in a call");
    }
}

#[test]
fn a_panic_in_a_post_fails_it_and_everything_else() {
    if let Some(text) = built::run("failing", "post", &[("SRD_FAULT", "panic_call=1")]) {
        said_once(&text, "in a call");
    }
}

#[test]
fn a_panic_in_the_progress_thread_wakes_who_sleeps() {
    if let Some(text) = built::run("failing", "thread", &[("SRD_FAULT", "panic_thread=1")]) {
        said_once(&text, "in the progress thread");
    }
}
