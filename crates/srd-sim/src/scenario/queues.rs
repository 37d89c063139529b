//! `[queues]`: the output queues of switches.

use crate::input::InputError;
use crate::settings::{ClassSchedule, Ecn, QueueSettings, SharedBuffer};
use srd_rivals::document::Document;
use srd_rivals::quantity::Bytes;
use srd_rivals::section::Section;

/// Keys of the section.
pub(super) const KEYS: [&str; 9] = [
    "capacity",
    "shared",
    "shared_alpha",
    "ecn_min",
    "ecn_max",
    "ecn_probability",
    "trim",
    "classes",
    "class_weights",
];

/// Capacity of a port unless the file says otherwise.
const DEFAULT_CAPACITY: Bytes = Bytes::Bdp(1.0);
/// Alpha unless the file says otherwise: a port alone may hold half of the memory (Choudhury and Hahne, 1998).
const DEFAULT_ALPHA: f64 = 1.0;

/// Reads `[queues]`.
///
/// `frame`: bytes of a full frame; a queue that holds none lets nothing through, ever.
pub(super) fn read(document: &Document, bdp: u64, frame: u64) -> Result<QueueSettings, InputError> {
    let section = Section::of(document, "queues")?.only(&KEYS)?;
    let capacity = section.bytes("capacity", 1)?.unwrap_or(DEFAULT_CAPACITY).with_bdp(bdp);
    let holds_a_frame = |key: &str, bytes: u64| {
        let what = format!("{bytes} bytes hold no full frame, which has {frame}: write at least that");
        if bytes < frame { Err(section.error_at(key, what)) } else { Ok(()) }
    };
    holds_a_frame("capacity", capacity)?;
    let alpha = section.number("shared_alpha", 0.001..=1000.0)?;
    let shared = match section.bytes("shared", 1)? {
        Some(bytes) => {
            let bytes = bytes.with_bdp(bdp);
            holds_a_frame("shared", bytes)?;
            Some(SharedBuffer { bytes, alpha: alpha.unwrap_or(DEFAULT_ALPHA) })
        }
        None if alpha.is_some() => {
            return Err(
                section.error_at("shared_alpha", "without `shared`: say how many bytes the ports share")
            );
        }
        None => None,
    };
    Ok(QueueSettings {
        capacity,
        shared,
        ecn: ecn(&section, bdp, capacity)?,
        trim: section.flag("trim")?.unwrap_or(false),
        classes: classes(&section)?,
    })
}

fn ecn(section: &Section<'_>, bdp: u64, capacity: u64) -> Result<Option<Ecn>, InputError> {
    let (min, max) = (section.bytes("ecn_min", 1)?, section.bytes("ecn_max", 1)?);
    let probability = section.probability("ecn_probability")?;
    let Some(min) = min else {
        return match (max, probability) {
            (None, None) => Ok(None),
            _ => Err(section.error("`ecn_min` is missing: say from how many bytes on packets are marked")),
        };
    };
    let min_bytes = min.with_bdp(bdp);
    let max_bytes = max.map_or(min_bytes, |max| max.with_bdp(bdp));
    if max_bytes < min_bytes {
        return Err(
            section.error_at("ecn_max", format!("{max_bytes} bytes are fewer than ecn_min's {min_bytes}"))
        );
    }
    if min_bytes > capacity {
        let what =
            format!("{min_bytes} bytes are more than a queue holds ({capacity}): nothing would be marked");
        return Err(section.error_at("ecn_min", what));
    }
    Ok(Some(Ecn { min_bytes, max_bytes, max_probability: probability.unwrap_or(1.0) }))
}

fn classes(section: &Section<'_>) -> Result<ClassSchedule, InputError> {
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        None,
        Strict,
        Weighted,
    }
    let words = [("none", Kind::None), ("strict", Kind::Strict), ("weighted", Kind::Weighted)];
    let kind = section.word("classes", &words)?.unwrap_or(Kind::None);
    let expected = "8 whole numbers from 1 to 1000, one for each class";
    let weights =
        section.list("class_weights", expected, |item| item.whole().filter(|w| (1..=1000).contains(w)))?;
    match (kind, weights) {
        (Kind::Weighted, Some(weights)) => {
            let eight = <[u32; 8]>::try_from(weights);
            let weights =
                eight.map_err(|_| section.error_at("class_weights", format!("write {expected}")))?;
            Ok(ClassSchedule::Weighted(weights))
        }
        (Kind::Weighted, None) => Err(section.error(format!("`class_weights` is missing: write {expected}"))),
        (_, Some(_)) => Err(section.error_at("class_weights", "only together with `classes = \"weighted\"`")),
        (Kind::Strict, None) => Ok(ClassSchedule::Strict),
        (Kind::None, None) => Ok(ClassSchedule::None),
    }
}
