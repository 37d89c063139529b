//! `[law]`: the constants of the default controller, for sweeps that show what each is good for.

use srd_baselines::document::Document;
use srd_baselines::input::InputError;
use srd_baselines::section::Section;
use srd_proto::congestion_control::ControlLaw;

/// A constant that is a plain number.
type Constant = (&'static str, fn(&mut ControlLaw) -> &mut f64);

const CONSTANTS: [Constant; 20] = [
    ("target", |law| &mut law.target),
    ("slope", |law| &mut law.slope),
    ("increase", |law| &mut law.increase),
    ("max_increase", |law| &mut law.max_increase),
    ("decrease", |law| &mut law.decrease),
    ("max_decrease", |law| &mut law.max_decrease),
    ("filter", |law| &mut law.filter),
    ("first_window", |law| &mut law.first_window),
    ("max_window", |law| &mut law.max_window),
    ("hint_share", |law| &mut law.hint_share),
    ("hint_delay", |law| &mut law.hint_delay),
    ("hint_gain", |law| &mut law.hint_gain),
    ("hint_far_gain", |law| &mut law.hint_far_gain),
    ("hint_least", |law| &mut law.hint_least),
    ("unused", |law| &mut law.unused),
    ("take", |law| &mut law.take),
    ("loss", |law| &mut law.loss),
    ("cut", |law| &mut law.cut),
    ("catch_up", |law| &mut law.catch_up),
    ("memory", |law| &mut law.memory),
];
const CLEAN_ACKS: &str = "clean_acks";
/// Far beyond what makes sense of any of them; below it nothing overflows.
const MOST: f64 = 1e6;

/// Keys of the section.
pub(super) fn keys() -> Vec<&'static str> {
    CONSTANTS.iter().map(|(key, _)| *key).chain([CLEAN_ACKS]).collect()
}

/// Reads `[law]`.
pub(super) fn read(document: &Document) -> Result<ControlLaw, InputError> {
    let section = Section::of(document, "law")?.only(&keys())?;
    let mut law = ControlLaw::default();
    for (key, constant) in CONSTANTS {
        if let Some(value) = section.number(key, 0.0..=MOST)? {
            *constant(&mut law) = value;
        }
    }
    if let Some(acks) = section.whole(CLEAN_ACKS, 1..=1_000_000)? {
        law.clean_acks = acks as u32;
    }
    Ok(law)
}
