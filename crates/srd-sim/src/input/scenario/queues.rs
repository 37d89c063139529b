//! `[queues]`: the output queues of switches.

use crate::net::{ClassSchedule, Ecn, PauseSettings, QueueSettings, SharedBuffer};
use srd_baselines::document::Document;
use srd_baselines::input::InputError;
use srd_baselines::quantity::Bytes;
use srd_baselines::section::Section;
use srd_baselines::units::Ps;

/// Keys of the section.
pub(super) const KEYS: [&str; 21] = [
    "capacity",
    "shared",
    "shared_alpha",
    "shared_lossless",
    "ecn_min",
    "ecn_max",
    "ecn_probability",
    "ecn_at",
    "ecn_last_hop",
    "ecn_classes",
    "lossless",
    "link_pause",
    "pfc_xoff",
    "pfc_xon",
    "pfc_alpha",
    "pfc_headroom",
    "pfc_response_us",
    "pfc_watchdog_us",
    "trim",
    "classes",
    "class_weights",
];

/// Capacity of a port unless the file says otherwise.
const DEFAULT_CAPACITY: Bytes = Bytes::Bdp(1.0);
/// Alpha unless the file says otherwise: a port alone may hold half of the memory (Choudhury and Hahne, 1998).
const DEFAULT_ALPHA: f64 = 1.0;
/// Bytes that come by a port before it is paused, where nothing is shared, unless the file says otherwise.
const DEFAULT_XOFF: Bytes = Bytes::Bdp(1.0);
/// What may come by a port before it is paused, in units of shared memory that is free, unless the file says otherwise
/// (`pfc_a_shift` 3 of the ns-3 model of Li and others, 2019).
const DEFAULT_PAUSE_ALPHA: f64 = 0.125;
/// Full frames that must have left before a port goes on, unless the file says otherwise: two, as there (3 KB).
const DEFAULT_GAP: u64 = 2;

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
    let pause = pause(&section, bdp, frame, shared.is_some())?;
    let ecn_classes = class_list(&section, "ecn_classes")?;
    let capacity_of_marked = if pause.is_none() { capacity } else { u64::MAX };
    let ecn = ecn(&section, bdp, capacity_of_marked)?;
    if ecn_classes.is_some() && ecn.is_none() {
        return Err(
            section.error_at("ecn_classes", "without `ecn_min`: say from how many bytes on they are marked")
        );
    }
    let by_class = pause.is_some_and(|pause| !pause.whole_link);
    Ok(QueueSettings {
        capacity,
        shared,
        ecn,
        marked_classes: ecn_classes.unwrap_or(u8::MAX),
        trim: section.flag("trim")?.unwrap_or(false),
        classes: classes(&section, by_class)?,
        pause,
    })
}

/// Classes, a bit each.
fn class_list(section: &Section<'_>, key: &str) -> Result<Option<u8>, InputError> {
    let expected = "whole numbers from 0 to 7";
    let list = section.list(key, expected, |item| item.whole().filter(|&class| class < 8))?;
    // An empty list, as an override has it, names none.
    let some = list.filter(|list| !list.is_empty());
    Ok(some.map(|list| list.iter().fold(0, |classes, class| classes | 1 << class)))
}

/// Who is paused, and when.
fn pause(
    section: &Section<'_>,
    bdp: u64,
    frame: u64,
    shared: bool,
) -> Result<Option<PauseSettings>, InputError> {
    let lossless = class_list(section, "lossless")?;
    let whole_link = section.flag("link_pause")?.unwrap_or(false);
    let classes = match (lossless, whole_link) {
        (Some(_), true) => {
            return Err(section.error_at("link_pause", "not together with `lossless`: it pauses all classes"));
        }
        (Some(classes), false) => classes,
        (None, true) => u8::MAX,
        (None, false) => {
            let mut keys = KEYS.iter().filter(|key| key.starts_with("pfc_") || **key == "shared_lossless");
            return match keys.find(|key| section.has(key)) {
                Some(key) => {
                    Err(section.error_at(key, "without `lossless` or `link_pause` nothing is paused"))
                }
                None => Ok(None),
            };
        }
    };
    let pool = section.bytes("shared_lossless", 1)?.map(|bytes| bytes.with_bdp(bdp));
    let xoff = section.bytes("pfc_xoff", 1)?.map(|bytes| bytes.with_bdp(bdp));
    let alpha = match section.number("pfc_alpha", 0.001..=1000.0)? {
        Some(_) if pool.is_none() && !shared => {
            let what = "without `shared_lossless` or `shared`: say how many bytes are shared";
            return Err(section.error_at("pfc_alpha", what));
        }
        Some(alpha) => Some(alpha),
        None => (pool.is_some() || (shared && xoff.is_none())).then_some(DEFAULT_PAUSE_ALPHA),
    };
    let xon = section.bytes("pfc_xon", 0)?.map(|bytes| bytes.with_bdp(bdp));
    let gap = match (xoff, xon) {
        (_, None) => xoff.map_or(u64::MAX, |xoff| xoff).min(DEFAULT_GAP * frame),
        (Some(xoff), Some(xon)) if xon <= xoff => xoff - xon,
        (Some(xoff), Some(xon)) => {
            return Err(section.error_at("pfc_xon", format!("{xon} bytes are more than pfc_xoff's {xoff}")));
        }
        (None, Some(_)) => return Err(section.error_at("pfc_xon", "without `pfc_xoff`: write both")),
    };
    let usual_xoff = if alpha.is_some() { 0 } else { DEFAULT_XOFF.with_bdp(bdp) };
    Ok(Some(PauseSettings {
        classes,
        whole_link,
        xoff: xoff.unwrap_or(usual_xoff),
        gap,
        alpha,
        pool,
        headroom: section.bytes("pfc_headroom", 0)?.map(|bytes| bytes.with_bdp(bdp)),
        response: section.micros("pfc_response_us")?.unwrap_or(Ps::ZERO),
        watchdog: section.some_micros("pfc_watchdog_us")?,
        frame,
    }))
}

fn ecn(section: &Section<'_>, bdp: u64, capacity: u64) -> Result<Option<Ecn>, InputError> {
    let (min, max) = (section.bytes("ecn_min", 1)?, section.bytes("ecn_max", 1)?);
    let probability = section.probability("ecn_probability")?;
    let Some(min) = min else {
        return match (max, probability) {
            (None, None) if !section.has("ecn_at") && !section.has("ecn_last_hop") => Ok(None),
            _ => Err(section.error("`ecn_min` is missing: say from how many bytes on packets are marked")),
        };
    };
    let on_leaving = section.word("ecn_at", &[("joining", false), ("leaving", true)])?.unwrap_or(false);
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
    let at_last_hop = section.flag("ecn_last_hop")?.unwrap_or(true);
    let max_probability = probability.unwrap_or(1.0);
    Ok(Some(Ecn { min_bytes, max_bytes, max_probability, on_leaving, at_last_hop }))
}

/// How classes share a port. Where single ones are paused (`by_class`), they must have queues of their own.
fn classes(section: &Section<'_>, by_class: bool) -> Result<ClassSchedule, InputError> {
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        None,
        Strict,
        Weighted,
    }
    let words = [("none", Kind::None), ("strict", Kind::Strict), ("weighted", Kind::Weighted)];
    let kind = match section.word("classes", &words)? {
        None if by_class => return Ok(ClassSchedule::Weighted([1; 8])),
        Some(Kind::None) if by_class => {
            return Err(section.error_at("classes", "with `lossless` classes need queues of their own"));
        }
        kind => kind.unwrap_or(Kind::None),
    };
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
