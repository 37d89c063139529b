//! A panic inside the device is the end of the device, and so is one that is staged; the program hears of it.

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

/// What is said if it was on purpose.
fn said_on_purpose(text: &str, what: &str) {
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("of this process is")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(
        lines[0].contains(&format!("of this process is {what}, on purpose, as SRD_FAULT says")),
        "{text}"
    );
}

#[test]
fn a_device_that_is_removed_fails_everything_and_everybody_is_told() {
    if let Some(text) = built::run("failing", "call", &[("SRD_FAULT", "gone=send:1")]) {
        said_on_purpose(&text, "gone");
    }
    if let Some(text) = built::run("failing", "thread", &[("SRD_FAULT", "gone=us:20000")]) {
        said_on_purpose(&text, "gone");
    }
}

#[test]
fn a_device_that_was_reset_can_be_opened_anew() {
    if let Some(text) = built::run("failing", "reset", &[("SRD_FAULT", "reset=1")]) {
        said_on_purpose(&text, "reset");
    }
}

#[test]
fn work_fails_and_a_handle_goes_stale_and_each_has_its_status() {
    let file = built::scratch().join(format!("faults-{}", std::process::id()));
    std::fs::write(&file, "fail=13@1 # the first\n# and then\nstale=3\n").unwrap();
    let text = built::run("failing", "staged", &[("SRD_FAULT", &format!("@{}", file.display()))]);
    std::fs::remove_file(&file).unwrap();
    if let Some(text) = text {
        assert!(text.contains("SRD_FAULT=\"fail=13@1,stale=3\" is set"), "what repeats the run: {text}");
    }
}
