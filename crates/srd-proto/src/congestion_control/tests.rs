//! What must hold for every controller.

use super::*;
use crate::Config;
use proptest::prelude::*;
use srd_wire::BitRate;

/// What may happen to a controller.
#[derive(Clone, Debug)]
enum Happening {
    Ack {
        pause_ns: u64,
        rtt_ns: Option<u64>,
        path: u8,
        newly_acked: u32,
        senders: u16,
        ce_marks: u32,
        rate: Option<(f64, bool)>,
        window_limited: bool,
    },
    Loss {
        pause_ns: u64,
    },
}

/// From a nanosecond to seconds, and none at all.
fn span() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1u64..1000, 1000u64..200_000, 200_000u64..5_000_000_000]
}

fn rate() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 1e-9..1e-3, 1e-3..100.0, 100.0..1e9]
}

fn happening() -> impl Strategy<Value = Happening> {
    let ack = (
        span(),
        prop::option::of(span()),
        any::<u8>(),
        prop_oneof![0u32..4, 0u32..1025],
        prop_oneof![Just(0u16), 1u16..4, any::<u16>()],
        any::<u16>(),
        prop::option::of((rate(), any::<bool>())),
        any::<bool>(),
    );
    let ack =
        ack.prop_map(|(pause_ns, rtt_ns, path, newly_acked, senders, ce_marks, rate, window_limited)| {
            let ce_marks = ce_marks as u32;
            Happening::Ack { pause_ns, rtt_ns, path, newly_acked, senders, ce_marks, rate, window_limited }
        });
    prop_oneof![4 => ack, 1 => span().prop_map(|pause_ns| Happening::Loss { pause_ns })]
}

/// The life of a context, as its controller is told of it.
struct Life {
    sample: AckSample,
}

impl Life {
    fn happen(&mut self, controller: &mut dyn CongestionController, happening: &Happening) {
        let sample = &mut self.sample;
        match *happening {
            Happening::Ack {
                pause_ns,
                rtt_ns,
                path,
                newly_acked,
                senders,
                ce_marks,
                rate,
                window_limited,
            } => {
                sample.now += Nanos(pause_ns);
                sample.rtt = rtt_ns.map(Nanos);
                sample.min_rtt =
                    [sample.min_rtt, sample.rtt].into_iter().flatten().reduce(|least, rtt| least.min(rtt));
                sample.path = rtt_ns.map(|_| PathId(path));
                sample.rate = rate.map(|(rate, app_limited)| RateSample { rate, app_limited });
                sample.delivery_rate = rate.map_or(sample.delivery_rate, |(rate, _)| rate);
                sample.sent_bytes += newly_acked as u64 * 1000;
                sample.round = sample.round.wrapping_add(window_limited as u32);
                (sample.newly_acked, sample.senders) = (newly_acked, senders);
                (sample.ce_marks, sample.window_limited) = (ce_marks, window_limited);
                controller.on_ack(sample);
            }
            Happening::Loss { pause_ns } => {
                sample.now += Nanos(pause_ns);
                controller.on_loss(sample.now);
            }
        }
    }
}

proptest! {
    /// Whatever ACKs say: there is always something that may be sent, and a pace that can be waited for.
    #[test]
    fn what_is_allowed_is_always_finite_and_positive(
        happenings in prop::collection::vec(happening(), 1..200),
        gbps in 1u64..1000,
        base_us in 1u64..1000,
        learn_base_rtt in any::<bool>(),
        receiver_hint in any::<bool>(),
        packet in 100u32..9000,
    ) {
        for &(_, controller) in ControllerKind::ALL {
            let config = Config {
                controller,
                line_rate: BitRate(gbps * 1_000_000_000),
                base_rtt: Nanos::from_micros(base_us),
                learn_base_rtt,
                receiver_hint,
                ..Config::default()
            };
            let mut life = Life { sample: AckSample { now: Time(1), ..AckSample::default() } };
            let mut law = super::controller(&config, packet);
            for happening in &happenings {
                life.happen(&mut *law, happening);
                let SendLimits { window_bytes, rate, burst_bytes, credit_bytes, .. } = law.send_limits();
                prop_assert!(window_bytes >= packet as u64, "{controller:?}: a window of {window_bytes} B");
                prop_assert!(window_bytes < 1 << 40, "{controller:?}: a window of {window_bytes} B");
                prop_assert!(rate > 0.0, "{controller:?}: {rate} B/ns");
                let paced = !matches!(controller, ControllerKind::Fixed);
                prop_assert!(rate.is_finite() == paced, "{controller:?}: {rate} B/ns");
                prop_assert!(burst_bytes >= packet as u64, "{controller:?}: bursts of {burst_bytes} B");
                prop_assert!(credit_bytes >= packet as u64, "{controller:?}: a credit of {credit_bytes} B");
            }
        }
    }
}
