//! `[[fault]]`: what goes wrong with cables, and when.

use super::Context;
use crate::net::rng::source;
use crate::net::{Direction, Fault, FaultKind, NamedCable, Topology};
use rand::Rng;
use srd_baselines::input::InputError;
use srd_baselines::section::Section;
use srd_baselines::units::Ps;

macro_rules! keys {
    ($($own:literal),*) => {
        &["kind", "at_us", "link", "links", "direction", "for_us", "period_us", "times", $($own),*]
    };
}

/// Kinds of fault, each with the keys of its section.
pub(super) const KINDS: [(&str, &[&str]); 8] = [
    ("down", keys!("noticed_after_us")),
    ("flaps", &["kind", "at_us", "link", "links", "direction", "per_day", "mean_us", "noticed_after_us"]),
    ("black-hole", keys!()),
    ("rate", keys!("share")),
    ("delay", keys!("extra_us")),
    ("loss", keys!("probability")),
    ("corruption", keys!("probability")),
    ("heal", &["kind", "at_us", "link", "links", "direction"]),
];

/// How long switches need to notice a dead cable unless the file says otherwise. SRD paper, "Multipath Load Balancing":
/// routing converges two to three orders of magnitude later than a round trip.
const DEFAULT_NOTICED: Ps = Ps::from_micros(10_000);
/// Most times that a fault comes again.
const MOST_TIMES: u64 = 100_000;

/// A day.
const DAY: Ps = Ps::from_micros(86_400_000_000);

/// Reads all `[[fault]]`. None may lie beyond the end of the run.
pub(super) fn read(
    context: &mut Context<'_>,
    topology: &Topology,
    seed: u64,
    end: Ps,
) -> Result<Vec<Fault>, InputError> {
    let document = context.document;
    let kinds: Vec<(&str, usize)> = KINDS.iter().enumerate().map(|(n, (kind, _))| (*kind, n)).collect();
    let mut faults = Vec::new();
    for (number, section) in (0..).zip(Section::all(document, "fault")?) {
        let kind = section.needed("kind", section.word("kind", &kinds)?, "\"black-hole\"")?;
        let (word, keys) = KINDS[kind];
        let section = section.called(word).only(keys)?;
        let what = kind_of(&section, word)?;
        let cables = cables(&section, topology)?;
        if word == "flaps" {
            let flaps = flaps(&section, &cables, what, seed ^ number << 32, end)?;
            if flaps.is_empty() {
                context.notes.push(format!(
                    "none of these cables flaps in this run ([[fault]] {number}): a larger `end_us` or `per_day`, or another seed, has some"
                ));
            }
            faults.extend(flaps);
            continue;
        }
        for (at, until) in spans(&section, word, end)? {
            for (direction, cables) in &cables {
                let fault = |at, kind| Fault { at, cables: cables.clone(), direction: *direction, kind };
                faults.push(fault(at, what));
                faults.extend(until.map(|until| fault(until, FaultKind::Heal)));
            }
        }
    }
    Ok(faults)
}

fn kind_of(section: &Section<'_>, word: &str) -> Result<FaultKind, InputError> {
    let probability = || {
        let probability = section.probability("probability")?;
        section.needed("probability", probability, "0.001")
    };
    Ok(match word {
        "down" | "flaps" => {
            FaultKind::Down { noticed_after: section.micros("noticed_after_us")?.unwrap_or(DEFAULT_NOTICED) }
        }
        "black-hole" => FaultKind::BlackHole,
        "rate" => {
            let share = section.number("share", 0.0001..=10.0)?;
            FaultKind::Rate(section.needed("share", share, "0.25")?)
        }
        "delay" => FaultKind::Delay(section.needed("extra_us", section.micros("extra_us")?, "10")?),
        "loss" => FaultKind::Loss(probability()?),
        "corruption" => FaultKind::Corruption(probability()?),
        _ => FaultKind::Heal,
    })
}

/// Each of the cables goes down at random moments, so often a day, and comes back: spans between and of flaps are exponential.
fn flaps(
    section: &Section<'_>,
    cables: &[(Direction, Vec<u32>)],
    what: FaultKind,
    seed: u64,
    end: Ps,
) -> Result<Vec<Fault>, InputError> {
    let per_day = section.needed("per_day", section.number("per_day", 1e-6..=1e9)?, "1")?;
    let mean = section.needed("mean_us", section.some_micros("mean_us")?, "1e6")?;
    let from = section.micros("at_us")?.unwrap_or(Ps::ZERO);
    if end == Ps::NEVER {
        return Err(section.error("`end_us` is missing: write until when cables flap"));
    }
    before_end(section, from, end)?;
    let mut flaps = Vec::new();
    for (direction, cables) in cables {
        for &cable in cables {
            let mut draws = source(seed ^ 0xF1A9, cable, 0);
            let mut span = |mean: f64| Ps((-(1.0 - draws.random::<f64>()).ln() * mean).round() as u64);
            let mut at = from + span(DAY.0 as f64 / per_day);
            while at < end {
                let fault = |at, kind| Fault { at, cables: vec![cable], direction: *direction, kind };
                let over = at + span(mean.0 as f64);
                flaps.push(fault(at, what));
                if over < end {
                    flaps.push(fault(over, FaultKind::Heal));
                }
                if flaps.len() as u64 > 2 * MOST_TIMES {
                    let message =
                        format!("makes more than {MOST_TIMES} flaps until the end of the run: write less");
                    return Err(section.error_at("per_day", message));
                }
                at = over + span(DAY.0 as f64 / per_day);
            }
        }
    }
    Ok(flaps)
}

/// A fault that begins when the run is over is none.
fn before_end(section: &Section<'_>, at: Ps, end: Ps) -> Result<(), InputError> {
    if at < end {
        return Ok(());
    }
    let what = format!("the run ends at {} us: nobody would see this fault", end.as_micros());
    Err(section.error_at("at_us", format!("{what}. Write a larger `end_us`")))
}

/// When the fault comes, and when it goes if it does.
fn spans(section: &Section<'_>, word: &str, end: Ps) -> Result<Vec<(Ps, Option<Ps>)>, InputError> {
    let at = section.needed("at_us", section.micros("at_us")?, "100")?;
    before_end(section, at, end)?;
    if word == "heal" {
        return Ok(vec![(at, None)]);
    }
    let (lasts, period) = (section.some_micros("for_us")?, section.some_micros("period_us")?);
    let times = section.whole("times", 1..=MOST_TIMES)?;
    let spans: Vec<(Ps, Option<Ps>)> = match (lasts, period, times) {
        (lasts, None, None) => vec![(at, lasts.map(|lasts| at + lasts))],
        (Some(lasts), Some(period), Some(times)) if lasts < period => {
            (0..times).map(|n| at + Ps(period.0.saturating_mul(n))).map(|at| (at, Some(at + lasts))).collect()
        }
        (Some(_), Some(_), Some(_)) => {
            return Err(
                section.error_at("for_us", "must be less than `period_us`: the cable heals in between")
            );
        }
        _ => {
            return Err(section.error(
                "`period_us`, `times` and `for_us` go together: how often it comes, and how long it stays",
            ));
        }
    };
    match spans.iter().find(|(begin, over)| over.unwrap_or(*begin) > end) {
        None => Ok(spans),
        Some((begin, over)) => {
            let over = over.unwrap_or(*begin).as_micros();
            let what = format!("the run ends at {} us, before the fault does ({over} us)", end.as_micros());
            Err(section.error(format!("{what}: write a larger `end_us`, or leave `for_us` out")))
        }
    }
}

/// The cables that are meant, those of each direction together.
fn cables(section: &Section<'_>, topology: &Topology) -> Result<Vec<(Direction, Vec<u32>)>, InputError> {
    #[derive(Clone, Copy)]
    enum Way {
        Both,
        Forward,
        Backward,
    }
    let words = [("both", Way::Both), ("forward", Way::Forward), ("backward", Way::Backward)];
    let way = section.word("direction", &words)?.unwrap_or(Way::Both);
    let direction = |cable: &NamedCable| match (way, cable.reversed) {
        (Way::Both, _) => Direction::Both,
        (Way::Forward, false) | (Way::Backward, true) => Direction::AToB,
        (Way::Forward, true) | (Way::Backward, false) => Direction::BToA,
    };
    let mut groups: Vec<(Direction, Vec<u32>)> = Vec::new();
    for cable in &named_cables(section, topology)? {
        let direction = direction(cable);
        match groups.iter_mut().find(|(other, _)| *other == direction) {
            Some((_, cables)) => cables.push(cable.cable),
            None => groups.push((direction, vec![cable.cable])),
        }
    }
    for (_, cables) in &mut groups {
        cables.sort_unstable();
        cables.dedup();
    }
    Ok(groups)
}

/// What `link` or `links` name.
fn named_cables(section: &Section<'_>, topology: &Topology) -> Result<Vec<NamedCable>, InputError> {
    let named = |name: &str| topology.cables_named(name);
    match (section.has("link"), section.has("links")) {
        (true, false) => {
            let name = section.needed("link", section.text("link")?, "\"leaf0-spine1\"")?;
            named(name).map_err(|message| section.error_at("link", message))
        }
        (false, true) => {
            let expected = "a list of names, such as [\"leaf0-spine1\", \"leaf1-*\"]";
            let names = section.list("links", expected, |item| item.text().map(named))?.unwrap_or_default();
            if names.is_empty() {
                return Err(section.error_at("links", format!("is empty: write {expected}")));
            }
            let found = names.into_iter().collect::<Result<Vec<_>, String>>();
            Ok(found.map_err(|message| section.error_at("links", message))?.concat())
        }
        _ => {
            let either = "`link`, a name such as \"leaf0-spine1\", or `links`, a list of names";
            Err(section.error(format!("write either {either}")))
        }
    }
}
