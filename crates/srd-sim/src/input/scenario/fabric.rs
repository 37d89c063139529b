//! `[fabric]`: hosts, switches, cables.

use super::Context;
use crate::input::htsim::topo_file;
use crate::net::{Clos, Dragonfly, LeafSpine, OneSwitch, PacketSizes, Rails, Tier, Topology, in_planes};
use srd_baselines::input::InputError;
use srd_baselines::section::Section;
use srd_baselines::units::Ps;
use srd_wire::BitRate;

/// Keys of all kinds that are built here, beside their own. Cables are given by the time that light takes, or by their length.
macro_rules! keys {
    ($($own:literal),*) => {
        &["kind", "frame_overhead", "host_gbps", "cable_us", "cable_m", "base_rtt_us", "switch_latency_us", "planes", $($own),*]
    };
}

/// Kinds of fabric, each with the keys of its section.
pub(super) const KINDS: [(&str, &[&str]); 7] = [
    ("one-switch", keys!("hosts")),
    (
        "leaf-spine",
        keys!(
            "leaves",
            "spines",
            "hosts_per_leaf",
            "bundle",
            "spine_gbps",
            "host_cable_us",
            "host_cable_m",
            "spine_cable_us",
            "spine_cable_m"
        ),
    ),
    (
        "clos",
        keys!(
            "pods",
            "leaves_per_pod",
            "aggs_per_pod",
            "cores",
            "hosts_per_leaf",
            "agg_bundle",
            "core_bundle",
            "agg_gbps",
            "core_gbps",
            "host_cable_us",
            "host_cable_m",
            "agg_cable_us",
            "agg_cable_m",
            "core_cable_us",
            "core_cable_m"
        ),
    ),
    ("fat-tree", keys!("k")),
    (
        "rails",
        keys!(
            "units",
            "servers",
            "cards",
            "spines",
            "bundle",
            "spine_gbps",
            "host_cable_us",
            "host_cable_m",
            "spine_cable_us",
            "spine_cable_m"
        ),
    ),
    (
        "dragonfly",
        keys!(
            "groups",
            "routers",
            "hosts_per_router",
            "global_cables",
            "local_gbps",
            "global_gbps",
            "host_cable_us",
            "host_cable_m",
            "local_cable_us",
            "local_cable_m",
            "global_cable_us",
            "global_cable_m"
        ),
    ),
    ("topo", &["kind", "frame_overhead", "file"]),
];

/// Rate of a cable unless the file says otherwise.
const DEFAULT_RATE: BitRate = BitRate(100_000_000_000);
/// Propagation of a cable unless the file says otherwise: htsim's default, 200 m of fibre.
const DEFAULT_CABLE: Ps = Ps::from_micros(1);
/// What a metre of fibre takes: 200 m are a microsecond, as in htsim (light in glass, refractive index 1.47: 4.9 ns).
const PER_METRE: Ps = Ps::from_nanos(5);
/// Longest cable in metres.
const LONGEST_CABLE: f64 = 20_000_000.0;
/// Preamble, check sequence and gap between frames: 8 + 4 + 12 bytes (IEEE 802.3).
const DEFAULT_OVERHEAD: u64 = 24;

/// What `[fabric]` says.
pub(super) struct Fabric {
    pub(super) topology: Topology,
    pub(super) frame_overhead: u32,
}

/// Reads `[fabric]`. The MTU counts where cables are given by the round trip that they make.
pub(super) fn read(context: &mut Context<'_>, mtu: u16) -> Result<Fabric, InputError> {
    let section = Section::of(context.document, "fabric")?;
    let kinds: Vec<(&str, usize)> = KINDS.iter().enumerate().map(|(n, (kind, _))| (*kind, n)).collect();
    let kind = section.needed("kind", section.word("kind", &kinds)?, "\"leaf-spine\"")?;
    let section = section.only(KINDS[kind].1)?;
    let frame_overhead = section.whole("frame_overhead", 0..=1000)?.unwrap_or(DEFAULT_OVERHEAD) as u32;
    let sizes = PacketSizes::of(mtu, frame_overhead);
    let topology = match KINDS[kind].0 {
        "one-switch" => by_cable(&section, sizes, one_switch)?,
        "leaf-spine" => by_cable(&section, sizes, leaf_spine)?,
        "clos" => by_cable(&section, sizes, clos)?,
        "fat-tree" => by_cable(&section, sizes, fat_tree)?,
        "rails" => by_cable(&section, sizes, rails)?,
        "dragonfly" => by_cable(&section, sizes, dragonfly)?,
        _ => topo(context, &section)?,
    };
    topology.check().map_err(|message| section.error(message))?;
    Ok(Fabric { topology, frame_overhead })
}

type Build = fn(&Section<'_>, Ps) -> Result<Topology, InputError>;

/// Layers of cables, by the beginning of their keys.
const LAYERS: [&str; 7] = ["", "host_", "spine_", "agg_", "core_", "local_", "global_"];

/// Builds the fabric, on each of its planes, with the usual cables, or with such as make the longest unloaded round trip
/// `base_rtt_us`.
fn by_cable(section: &Section<'_>, sizes: PacketSizes, build: Build) -> Result<Topology, InputError> {
    let planes = section.count("planes")?;
    let build = |section: &Section<'_>, cable: Ps| {
        let one = build(section, cable)?;
        let Some(planes) = planes else { return Ok(one) };
        one.check().map_err(|message| section.error(message))?;
        in_planes(&one, planes).map_err(|message| section.error_at("planes", message))
    };
    let Some(wanted) = section.some_micros("base_rtt_us")? else {
        return build(section, cable(section, "")?.unwrap_or(DEFAULT_CABLE));
    };
    let keys = LAYERS.iter().flat_map(|layer| ["us", "m"].map(|unit| format!("{layer}cable_{unit}")));
    if let Some(key) = keys.into_iter().find(|key| section.may_have(key) && section.has(key)).as_deref() {
        return Err(section
            .error_at(key, "not together with `base_rtt_us`, which sets all cables: leave one of them out"));
    }
    // The longest round trip grows by one microsecond for each cable on its way, there and back.
    let unit = Ps::from_micros(1);
    let none = build(section, Ps::ZERO)?.longest_base_rtt(sizes);
    let crossed = (build(section, unit)?.longest_base_rtt(sizes) - none).0 / unit.0;
    if wanted <= none || crossed == 0 {
        let alone = format!("packets and switches alone take {} us", none.as_micros());
        return Err(section.error_at("base_rtt_us", format!("{alone}: write more than that")));
    }
    build(section, Ps((wanted - none).0 / crossed))
}

/// Propagation of the cables of a layer, if the file gives it, as a time or as a length.
fn cable(section: &Section<'_>, layer: &str) -> Result<Option<Ps>, InputError> {
    let (micros, metres) = (format!("{layer}cable_us"), format!("{layer}cable_m"));
    if !section.may_have(&micros) {
        return Ok(None);
    }
    let length = section.number(&metres, 0.0..=LONGEST_CABLE)?;
    match (section.micros(&micros)?, length) {
        (Some(_), Some(_)) => {
            Err(section.error_at(&metres, format!("not together with `{micros}`: leave one of them out")))
        }
        (delay, length) => {
            Ok(delay.or(length.map(|length| Ps((length * PER_METRE.0 as f64).round() as u64))))
        }
    }
}

/// A tier whose keys begin with `name`.
fn tier(section: &Section<'_>, name: &str, cable: Ps, bundle: u32) -> Result<Tier, InputError> {
    let rate = match section.gbps(&format!("{name}_gbps"))? {
        Some(rate) => rate,
        None => section.gbps("host_gbps")?.unwrap_or(DEFAULT_RATE),
    };
    let delay = self::cable(section, &format!("{name}_"))?.unwrap_or(cable);
    let latency = section.micros("switch_latency_us")?.unwrap_or(Ps::ZERO);
    Ok(Tier { latency, bundle, ..Tier::of(rate, delay) })
}

fn one_switch(section: &Section<'_>, cable: Ps) -> Result<Topology, InputError> {
    let hosts = section.needed_count("hosts")?;
    let one = OneSwitch { hosts, tier: tier(section, "host", cable, 1)? };
    one.build().map_err(|message| section.error(message))
}

fn leaf_spine(section: &Section<'_>, cable: Ps) -> Result<Topology, InputError> {
    let bundle = section.count("bundle")?.unwrap_or(1);
    let two = LeafSpine {
        leaves: section.needed_count("leaves")?,
        spines: section.needed_count("spines")?,
        hosts_per_leaf: section.needed_count("hosts_per_leaf")?,
        tiers: [tier(section, "host", cable, 1)?, tier(section, "spine", cable, bundle)?],
    };
    two.build().map_err(|message| section.error(message))
}

fn clos(section: &Section<'_>, cable: Ps) -> Result<Topology, InputError> {
    let agg = section.count("agg_bundle")?.unwrap_or(1);
    let core = section.count("core_bundle")?.unwrap_or(1);
    let three = Clos {
        pods: section.needed_count("pods")?,
        leaves_per_pod: section.needed_count("leaves_per_pod")?,
        aggs_per_pod: section.needed_count("aggs_per_pod")?,
        cores: section.needed_count("cores")?,
        hosts_per_leaf: section.needed_count("hosts_per_leaf")?,
        tiers: [
            tier(section, "host", cable, 1)?,
            tier(section, "agg", cable, agg)?,
            tier(section, "core", cable, core)?,
        ],
    };
    three.build().map_err(|message| section.error(message))
}

fn fat_tree(section: &Section<'_>, cable: Ps) -> Result<Topology, InputError> {
    let tree = Clos::fat_tree(section.needed_count("k")?, tier(section, "host", cable, 1)?);
    tree.and_then(|tree| tree.build()).map_err(|message| section.error_at("k", message))
}

fn rails(section: &Section<'_>, cable: Ps) -> Result<Topology, InputError> {
    let bundle = section.count("bundle")?.unwrap_or(1);
    let rails = Rails {
        units: section.count("units")?.unwrap_or(1),
        servers: section.needed_count("servers")?,
        cards: section.needed_count("cards")?,
        spines: section.needed_count("spines")?,
        tiers: [tier(section, "host", cable, 1)?, tier(section, "spine", cable, bundle)?],
    };
    rails.build().map_err(|message| section.error(message))
}

fn dragonfly(section: &Section<'_>, cable: Ps) -> Result<Topology, InputError> {
    let dragonfly = Dragonfly {
        groups: section.needed_count("groups")?,
        routers: section.needed_count("routers")?,
        hosts_per_router: section.needed_count("hosts_per_router")?,
        global_cables: section.needed_count("global_cables")?,
        tiers: [
            tier(section, "host", cable, 1)?,
            tier(section, "local", cable, 1)?,
            tier(section, "global", cable, 1)?,
        ],
    };
    dragonfly.build().map_err(|message| section.error(message))
}

fn topo(context: &mut Context<'_>, section: &Section<'_>) -> Result<Topology, InputError> {
    let (text, name) = context.read_file(section, "file")?;
    let file = topo_file::parse(&text, &name)?;
    context.notes.extend(file.notes);
    Ok(file.topology)
}
