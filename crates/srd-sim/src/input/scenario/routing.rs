//! `[routing]`: how switches choose among several ways of equal length.

use crate::net::{Role, RoutingMode, RoutingSettings, Topology};
use srd_baselines::document::Document;
use srd_baselines::input::InputError;
use srd_baselines::quantity::Bytes;
use srd_baselines::section::Section;
use srd_baselines::units::Ps;

/// Keys of the section.
pub(super) const KEYS: [&str; 6] =
    ["mode", "flowlet_us", "reroute_us", "reroute_queue", "strict_order", "strict_timeout_us"];

/// Base RTTs between two looks at a flow's way unless the file says otherwise: a move takes one to show in queues, and another
/// one makes sure that these are no burst.
const USUAL_REROUTE: u64 = 2;
/// What a flow must win by moving unless the file says otherwise: less is noise.
const USUAL_REROUTE_QUEUE: Bytes = Bytes::Bdp(0.25);
/// Base RTTs that frames wait for those before them unless the file says otherwise: as long as full queues of the usual
/// capacity may keep these on a way through three tiers.
const USUAL_PATIENCE: u64 = 4;

/// Reads `[routing]`.
pub(super) fn read(
    document: &Document,
    topology: &Topology,
    bdp: u64,
    base_rtt: Ps,
) -> Result<RoutingSettings, InputError> {
    let section = Section::of(document, "routing")?.only(&KEYS)?;
    let words = ["ecmp", "lag", "static", "adaptive", "flowlet", "reroute", "source", "valiant", "ugal"]
        .map(|word| (word, word));
    let word = section.word("mode", &words)?.unwrap_or("ecmp");
    for (key, mode) in [("flowlet_us", "flowlet"), ("reroute_us", "reroute"), ("reroute_queue", "reroute")] {
        if section.has(key) && word != mode {
            return Err(section.error_at(key, format!("only together with `mode = \"{mode}\"`")));
        }
    }
    let has_groups = topology.switches.iter().any(|switch| matches!(switch.role, Role::Router { .. }));
    if ["valiant", "ugal"].contains(&word) && !has_groups {
        let message = format!(
            "{word} makes detours over other groups, and this fabric has none: only with `kind = \"dragonfly\"`"
        );
        return Err(section.error_at("mode", message));
    }
    let mode = match word {
        "source" => RoutingMode::Source,
        "valiant" => RoutingMode::Valiant,
        "ugal" => RoutingMode::Ugal,
        "lag" => RoutingMode::Lag,
        "static" => RoutingMode::Static,
        "adaptive" => RoutingMode::Adaptive,
        "flowlet" => RoutingMode::Flowlet { gap: section.some_micros("flowlet_us")?.unwrap_or(base_rtt) },
        "reroute" => RoutingMode::Reroute {
            every: section.some_micros("reroute_us")?.unwrap_or(Ps(USUAL_REROUTE * base_rtt.0)),
            least: section.bytes("reroute_queue", 1)?.unwrap_or(USUAL_REROUTE_QUEUE).with_bdp(bdp),
        },
        _ => RoutingMode::Ecmp,
    };
    let strict = section.flag("strict_order")?.unwrap_or(false);
    let timeout = section.some_micros("strict_timeout_us")?;
    if strict
        && matches!(
            mode,
            RoutingMode::Ecmp
                | RoutingMode::Lag
                | RoutingMode::Static
                | RoutingMode::Source
                | RoutingMode::Valiant
        )
    {
        return Err(
            section.error_at("strict_order", format!("packets keep their order with `mode = \"{word}\"`"))
        );
    }
    if timeout.is_some() && !strict {
        return Err(section.error_at("strict_timeout_us", "only together with `strict_order = true`"));
    }
    let patience = timeout.unwrap_or(Ps(USUAL_PATIENCE * base_rtt.0));
    Ok(RoutingSettings { mode, strict_order: strict.then_some(patience) })
}
