//! Paths whose round trips are up to four times apart, and nothing is lost.

use super::stream::Stream;
use crate::plan::Plan;
use srd_wire::Time;

/// Nothing may be sent twice.
pub fn reordering() -> Result<String, String> {
    let mut packets = 0;
    for seed in 0..10 {
        // REPS and oblivious spraying; with a slow link the queues grow too.
        for selector in [0, 1] {
            for len in [200, 8_192] {
                packets += reordered(seed, selector, len)?;
            }
        }
    }
    Ok(format!("{packets} packets, none of them twice"))
}

fn reordered(seed: u64, selector: u64, len: u32) -> Result<u64, String> {
    let mut plan = Plan::calm(seed);
    (plan.shape.paths, plan.shape.entropy, plan.shape.selector) = (64, 64, selector);
    (plan.shape.messages, plan.shape.receives) = (100_000, 500);
    (plan.faults.skew_percent, plan.faults.asymmetric) = (400, 1);
    let told = |violation| format!("seed {seed} selector {selector} length {len}: {violation:?}");
    let mut stream = Stream::new(&plan, len, 128).map_err(told)?;
    stream.run(Time(3_000_000)).map_err(told)?;
    stream.drain().map_err(told)?;
    for name in ["retrans_pkts", "retrans_timeout_events"] {
        let count = stream.counter(name);
        if count > 0 {
            return Err(format!("seed {seed} selector {selector} length {len}: {name} is {count}, not 0"));
        }
    }
    Ok(stream.world.net.tally.sent)
}
