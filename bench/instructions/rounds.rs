//! What all these programs do: messages of the lengths that their arguments name, of which the first are not counted.

use std::hint::black_box;

/// Calls `one` for each message, with its number and its length.
pub fn of_each_length(warm_up: usize, messages: usize, mut one: impl FnMut(usize, usize)) {
    for text in std::env::args().skip(1) {
        let len = text.parse().expect("lengths in bytes");
        for message in 0..messages {
            if message == warm_up {
                next_length(len);
            }
            one(message, len);
        }
        next_length(0);
    }
}

/// Valgrind begins another part of its counts here.
#[inline(never)]
fn next_length(len: usize) {
    black_box(len);
}
