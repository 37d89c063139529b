//! The named scenarios, with an allocator that counts.

#[path = "../src/heap.rs"]
mod heap;

use srd_world::scenario;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

fn holds(name: &str) {
    let scenario = scenario::ALL.iter().find(|scenario| scenario.name == name).expect("a known name");
    if let Err(why) = (scenario.run)(&heap::gauge()) {
        panic!("{why}\n  cargo run --profile checked -p srd-world -- --scenario {name}");
    }
}

#[test]
fn a_quarter_of_the_paths_may_fail_within_three_round_trips() {
    holds("failover");
}

#[test]
fn reordering_alone_causes_no_retransmission() {
    holds("reordering");
}

#[test]
fn ten_thousand_idle_peers_cost_little_memory_and_no_work() {
    holds("idle-peers");
}

#[test]
fn a_steady_stream_allocates_nothing() {
    holds("steady");
}
