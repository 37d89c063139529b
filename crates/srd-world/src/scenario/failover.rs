//! A quarter of the paths goes dark in the middle of a stream.

use super::stream::Stream;
use crate::plan::Plan;
use crate::rng::Rng;
use srd_wire::{Nanos, Time};

/// Longest time without a delivery: at most three round trips and a probe timeout.
pub fn failover() -> Result<String, String> {
    let (mut report, mut all_lost) = (String::new(), 0);
    for seed in 0..20 {
        let (gap, bound, lost) = dark_quarter(seed)?;
        if gap > bound {
            return Err(format!("seed {seed}: nothing arrived for {} ns; at most {} ns", gap.0, bound.0));
        }
        report.push_str(&format!("{}{:.1}", if seed == 0 { "" } else { " " }, gap.0 as f64 / 1e3));
        all_lost += lost;
    }
    if all_lost == 0 {
        return Err("nothing was lost, so nothing was shown".to_string());
    }
    Ok(format!("longest gaps between deliveries in us: {report}"))
}

fn dark_quarter(seed: u64) -> Result<(Nanos, Nanos, u64), String> {
    let mut plan = Plan::calm(seed);
    let shape = &mut plan.shape;
    (shape.paths, shape.entropy, shape.messages) = (64, 64, 100_000);
    shape.receives = 500;
    // REPS and oblivious spraying.
    shape.selector = seed % 2;
    (plan.faults.downlink_mbps, plan.faults.downlink_packets) = (100_000, 2_000);
    let mut stream = Stream::new(&plan, 8_192, 128).map_err(|violation| format!("{violation:?}"))?;
    let dark = Time(2_000_000);
    let run = |stream: &mut Stream, until| stream.run(until).map_err(|violation| format!("{violation:?}"));
    run(&mut stream, dark)?;
    let lost = stream.world.net.tally.lost;
    let mut rng = Rng::new(seed, 99);
    let mut ports: Vec<u16> = (0..64).collect();
    for i in 0..16 {
        let j = rng.within(i, 63) as usize;
        ports.swap(i as usize, j);
        stream.world.net.blackhole(0, 1, ports[i as usize], Time::NEVER);
    }
    run(&mut stream, Time(6_000_000))?;
    stream.drain().map_err(|violation| format!("{violation:?}"))?;
    if stream.world.ledger.score.failed > 0 {
        return Err(format!("seed {seed}: messages failed"));
    }
    let after = stream.deliveries().iter().copied().filter(|&at| at > dark && at < Time(6_000_000));
    let mut last = dark;
    let mut gap = Nanos::ZERO;
    for at in after {
        gap = gap.max(at.since(last));
        last = at;
    }
    gap = gap.max(Time(6_000_000).since(last));
    // The probe timeout is at its lower bound: two round trips are less.
    let bound = Nanos(3 * plan.shape.rtt_ns + plan.shape.min_pto_ns + plan.shape.ack_delay_ns);
    Ok((gap, bound, stream.world.net.tally.lost - lost))
}
