//! Whatever is lost, late, marked: everything arrives, once, and then all is quiet.

use super::{link, with};
use crate::tcp::config::{Config, Framing, Marks, Placement, Recovery};
use crate::tcp::congestion::Algorithm;
use crate::tcp::segment::Segment;
use crate::test_link::{Fate, Sent};
use crate::transport::{Report, Transport};
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_wire::{Nanos, Time};

fn configs() -> impl Strategy<Value = Config> {
    let congestion = prop_oneof![
        Just(Algorithm::Cubic),
        Just(Algorithm::NewReno),
        Just(Algorithm::Dctcp),
        Just(Algorithm::Bbr),
        Just(Algorithm::Bbr3)
    ];
    let recovery = prop_oneof![Just(Recovery::Rack), Just(Recovery::Sack)];
    let placement = prop_oneof![
        Just(Placement::Kept),
        Just(Placement::Direct),
        Just(Placement::Bounded(0)),
        Just(Placement::Bounded(6000))
    ];
    let framing = prop_oneof![
        Just(Framing::Stream),
        any::<bool>().prop_map(|markers| Framing::Mpa { markers })
    ];
    let sizes = (1u64..100_000, 0u64..100_000, 1u64..200_000, 1u32..20);
    (congestion, recovery, placement, any::<(bool, bool)>(), framing, sizes).prop_map(
        |(congestion, recovery, placement, (classic, pacing), framing, (tso_bytes, gro_bytes, rcvbuf, initial_window))| {
            let usual = with(congestion);
            Config {
                recovery,
                placement,
                framing,
                marks: if classic && usual.marks == Marks::Ignored { Marks::Classic } else { usual.marks },
                pacing: pacing || usual.pacing,
                tso_bytes,
                gro_bytes,
                rcvbuf,
                initial_window,
                min_rto: Nanos::from_millis(1),
                ..usual
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn everything_arrives_whatever_happens(
        config in configs(),
        seed in any::<u64>(),
        (lost, late, marked) in (0.0..0.2f64, 0.0..0.3f64, 0.0..0.5f64),
        flows in proptest::collection::vec((0u64..300_000, 0u32..2), 1..4),
        endless in any::<bool>(),
    ) {
        let mut link = link(&config);
        let mut draws = SmallRng::seed_from_u64(seed);
        for (flow, &(bytes, channel)) in flows.iter().enumerate() {
            link.start(flow as u32, bytes, channel);
        }
        let last = flows.len() as u32;
        if endless {
            link.start(last, u64::MAX, 0);
            link.start(last + 1, 5000, 0);
        }
        let mut fate = |_: &Sent<Segment>| {
            if draws.random_bool(lost) {
                Fate::LOST
            } else if draws.random_bool(late) {
                Fate::late(draws.random_range(0..500_000))
            } else if draws.random_bool(marked) {
                Fate::MARKED
            } else {
                Fate::ARRIVES
            }
        };
        if endless {
            link.run(Time(20_000_000), &mut fate);
            link.ends[0].stop(link.now, last);
        }
        prop_assert!(link.run(Time(4_000_000_000_000), &mut fate), "it never ends");
        let expected = |flow: u32| !endless || flow != last;
        for flow in (0..last + 2 * endless as u32).filter(|&flow| expected(flow)) {
            let (sent, received) = (Report::Sent { flow }, Report::Received { inbox: flow });
            prop_assert_eq!((flow, link.count(sent), link.count(received)), (flow, 1, 1));
        }
        for (flow, &(bytes, _)) in flows.iter().enumerate() {
            prop_assert_eq!(link.ends[1].delivered(flow as u32), bytes);
        }
        prop_assert_eq!(link.reports.len(), 2 * (flows.len() + endless as usize));
    }
}
