//! Programs of two ranks: how long a message takes, and how much goes when many are under way.

use crate::apps::script::{Script, Step};

const TAG: u64 = 1;

/// A message there and the same back, again and again, between two marks: a message takes the time between them by twice
/// `times`.
pub fn ping_pong(bytes: u64, times: u32) -> [Script; 2] {
    [0, 1].map(|rank| {
        let peer = 1 - rank;
        let (send, recv) =
            (Step::Send { to: peer, tag: TAG, bytes }, Step::Recv { from: peer, tag: TAG, bytes });
        // The other side's receive is there before the message is.
        let turn = if rank == 0 { [recv, send] } else { [recv, Step::Wait { open: 0 }] };
        let rest = if rank == 0 { vec![Step::Wait { open: 0 }] } else { vec![send, Step::Wait { open: 0 }] };
        let round = || turn.iter().chain(&rest).copied();
        let rounds = (0..times).flat_map(|_| round());
        [Step::Mark].into_iter().chain(rounds).chain([Step::Mark]).collect()
    })
}

/// So many messages one way, at most `window` of them under way at each side, then one back: the first rank's marks stand
/// before and after.
///
/// # Panics
/// If the window is empty.
pub fn stream(bytes: u64, messages: u32, window: u32) -> [Script; 2] {
    assert!(window > 0, "nothing goes through an empty window");
    let last = [Step::Wait { open: 0 }, Step::Mark];
    let steps = |step| (0..messages).flat_map(move |_| [step, Step::Wait { open: window - 1 }]);
    let there = steps(Step::Send { to: 1, tag: TAG, bytes });
    let here = steps(Step::Recv { from: 0, tag: TAG, bytes });
    let answer = [Step::Wait { open: 0 }, Step::Send { to: 0, tag: TAG, bytes: 0 }];
    let answered = [Step::Recv { from: 1, tag: TAG, bytes: 0 }];
    [
        [Step::Mark].into_iter().chain(there).chain(answered).chain(last).collect(),
        [Step::Mark].into_iter().chain(here).chain(answer).chain(last).collect(),
    ]
}
