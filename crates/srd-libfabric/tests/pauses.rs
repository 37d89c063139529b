//! Two processes that send to each other all the time, over real sockets, while one of them, or both, stand still (SIGSTOP)
//! for less and for more than their peer's patience: what completed was delivered, once and in order.
//!
//! The five tests take seconds. `make pauses` takes the pauses of a machine that was suspended, under the usual patience:
//! the variable PAUSES_S lists them, RUNS says how often.

mod rig;
mod sides;

use sides::{Variables, WAYS, acquainted, end, variables, wait_for_messages};
use std::time::Duration;

/// The same for who gives up after 2 s.
fn impatient(way: &str) -> Variables {
    [variables(way), vec![("SRD_PEER_TIMEOUT_S", "2".into())]].concat()
}

/// Those of `who` stand still for so long. What was sent, failed and came.
fn pause(who: &[usize], pause: Duration, variables: &Variables) {
    let sides = acquainted(variables);
    who.iter().for_each(|&side| sides[side].signal(libc::SIGSTOP));
    std::thread::sleep(pause);
    who.iter().for_each(|&side| sides[side].signal(libc::SIGCONT));
    wait_for_messages(&sides, 5);
    end(sides, &format!("{who:?} paused for {pause:?}"));
}

#[test]
fn a_short_pause_loses_and_doubles_nothing() {
    pause(&[1], Duration::from_secs(1), &impatient("clear"));
}

#[test]
fn a_pause_longer_than_the_peers_patience_loses_and_doubles_nothing() {
    pause(&[1], Duration::from_secs(5), &impatient("clear"));
}

#[test]
fn a_long_pause_of_both_loses_and_doubles_nothing() {
    pause(&[0, 1], Duration::from_secs(5), &impatient("clear"));
}

#[test]
fn a_long_pause_in_sealed_mode_loses_and_doubles_nothing() {
    pause(&[1], Duration::from_secs(5), &impatient("sealed"));
}

#[test]
fn a_long_pause_of_one_with_shared_memory_loses_and_doubles_nothing() {
    pause(&[1], Duration::from_secs(5), &impatient("shared memory"));
}

#[test]
#[ignore = "minutes: make pauses"]
fn pauses_of_a_suspended_machine_lose_and_double_nothing() {
    let from = |name: &str, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.to_string());
    let runs: usize = from("RUNS", "20").parse().expect("RUNS: how often");
    for seconds in from("PAUSES_S", "2,31,45").split(',') {
        let length = Duration::from_secs(seconds.parse().expect("PAUSES_S: seconds, with commas between"));
        for way in WAYS {
            let variables = &variables(way);
            std::thread::scope(|scope| {
                for run in 0..runs {
                    scope.spawn(move || pause(&[run % 2], length, variables));
                }
            });
            println!("{way}: {runs} runs with a pause of {seconds} s: nothing lost, nothing twice");
        }
    }
}
