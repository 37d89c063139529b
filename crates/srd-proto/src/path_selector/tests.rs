//! What must hold for every selector.

use super::*;
use crate::Config;
use proptest::prelude::*;

/// Paths to choose from.
pub(crate) struct Field {
    pub(crate) usable: PathSet,
    pub(crate) load: Load,
}

/// Packets in flight on each path.
pub(crate) struct Load(Vec<u32>);

impl Load {
    pub(crate) fn add(&mut self, path: PathId) {
        self.0[path.0 as usize] += 1;
    }
}

impl PathLoad for Load {
    fn paths(&self) -> u16 {
        self.0.len() as u16
    }

    fn on(&self, path: PathId) -> u32 {
        self.0[path.0 as usize]
    }
}

impl Field {
    pub(crate) fn new(paths: u16) -> Field {
        Field { usable: PathSet::first(paths), load: Load(vec![0; paths as usize]) }
    }

    /// All usable ones, at time `now`.
    pub(crate) fn all(&self, now: u64) -> Candidates<'_> {
        Candidates { now: Time(now), usable: &self.usable, avoid: None, load: &self.load }
    }
}

/// An early ACK without a mark.
pub(crate) fn acked(now: u64, path: PathId) -> AckedPath {
    AckedPath { now: Time(now), path, rtt: Some(Nanos::from_micros(14)), early: true, ce: false }
}

/// What may happen to a selector.
#[derive(Clone, Debug)]
enum Happening {
    Pick { avoid: Option<u8> },
    Ack { path: u8, rtt_us: Option<u64>, early: bool, ce: bool },
    Loss(u8),
    Timeout(u8),
    Down(u8),
    Up(u8),
    Reroll(u8),
    Pass { us: u64 },
}

fn happening() -> impl Strategy<Value = Happening> {
    let path = || any::<u8>();
    prop_oneof![
        6 => prop::option::of(path()).prop_map(|avoid| Happening::Pick { avoid }),
        4 => (path(), prop::option::of(0u64..1_000_000), any::<bool>(), any::<bool>())
            .prop_map(|(path, rtt_us, early, ce)| Happening::Ack { path, rtt_us, early, ce }),
        1 => path().prop_map(Happening::Loss),
        1 => path().prop_map(Happening::Timeout),
        1 => path().prop_map(Happening::Down),
        1 => path().prop_map(Happening::Up),
        1 => path().prop_map(Happening::Reroll),
        1 => (0u64..100_000).prop_map(|us| Happening::Pass { us }),
    ]
}

proptest! {
    /// Whatever happens: a selector picks a usable path, and another than the one to be avoided if there is one.
    #[test]
    fn no_selector_picks_an_unusable_path(
        paths in 1u16..=256,
        salt in any::<u64>(),
        happenings in prop::collection::vec(happening(), 1..300),
    ) {
        for &(_, kind) in SelectorKind::ALL {
            let config = Config { selector: kind, paths, ..Config::default() };
            let mut selector = selector(&config, salt);
            let mut field = Field::new(paths);
            let mut now = Time(0);
            let slot = |path: u8| PathId((path as u16 % paths) as u8);
            for happening in &happenings {
                match *happening {
                    Happening::Pick { avoid } => {
                        let avoid = avoid.map(slot);
                        let path = selector.pick(&Candidates { avoid, ..field.all(now.0) });
                        prop_assert!(field.usable.contains(path), "{kind:?} picked {path:?}");
                        prop_assert!(Some(path) != avoid || field.usable.len() == 1, "{kind:?} did not avoid");
                        field.load.add(path);
                    }
                    Happening::Ack { path, rtt_us, early, ce } => {
                        let (path, rtt) = (slot(path), rtt_us.map(Nanos::from_micros));
                        selector.on_ack(&AckedPath { now, path, rtt, early, ce });
                    }
                    Happening::Loss(path) => selector.on_loss(now, slot(path)),
                    Happening::Timeout(path) => selector.on_timeout(now, slot(path)),
                    Happening::Down(path) if field.usable.len() > 1 => {
                        field.usable.remove(slot(path));
                        if field.usable.is_empty() {
                            field.usable.insert(slot(path));
                        }
                        selector.on_path_down(now, slot(path));
                    }
                    Happening::Down(_) => {}
                    Happening::Up(path) => field.usable.insert(slot(path)),
                    Happening::Reroll(path) => selector.on_reroll(slot(path)),
                    Happening::Pass { us } => now += Nanos::from_micros(us),
                }
            }
        }
    }

    /// Penalties stay between nothing and their ceiling, so that no path is lost for good.
    #[test]
    fn penalties_are_bounded_and_worked_off(faults in prop::collection::vec(0u8..4, 0..100)) {
        let field = Field::new(2);
        let (mut swept, mut scored) =
            (bitmap::Bitmap::new(2, 1), rtt_p2c::RttP2c::new(2, Nanos::from_micros(14), 1));
        for fault in faults {
            for selector in [&mut swept as &mut dyn PathSelector, &mut scored] {
                match fault {
                    0 => selector.on_loss(Time(1), PathId(0)),
                    1 => selector.on_timeout(Time(1), PathId(0)),
                    2 => selector.on_ack(&AckedPath { ce: true, ..acked(1, PathId(0)) }),
                    _ => selector.on_ack(&acked(1, PathId(0))),
                }
            }
            prop_assert!(swept.penalty(PathId(0)) <= bitmap::CEILING);
            prop_assert!(scored.penalty(PathId(0)) <= rtt_p2c::CEILING);
        }
        (0..64).for_each(|_| { swept.pick(&field.all(1)); });
        prop_assert_eq!(swept.penalty(PathId(0)), 0);
        (0..rtt_p2c::CEILING).for_each(|_| scored.on_ack(&acked(1, PathId(0))));
        prop_assert_eq!(scored.penalty(PathId(0)), 0);
    }
}
