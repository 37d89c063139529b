//! `[fabric]`: hosts, switches, cables.

use super::Context;
use crate::input::htsim::topo_file;
use crate::net::{Clos, LeafSpine, OneSwitch, PacketSizes, Tier, Topology};
use srd_baselines::input::InputError;
use srd_baselines::section::Section;
use srd_baselines::units::Ps;
use srd_wire::BitRate;

/// Kinds of fabric, each with the keys of its section.
pub(super) const KINDS: [(&str, &[&str]); 5] = [
    (
        "one-switch",
        &["kind", "frame_overhead", "hosts", "host_gbps", "cable_us", "base_rtt_us", "switch_latency_us"],
    ),
    (
        "leaf-spine",
        &[
            "kind",
            "frame_overhead",
            "leaves",
            "spines",
            "hosts_per_leaf",
            "bundle",
            "host_gbps",
            "spine_gbps",
            "cable_us",
            "host_cable_us",
            "spine_cable_us",
            "base_rtt_us",
            "switch_latency_us",
        ],
    ),
    (
        "clos",
        &[
            "kind",
            "frame_overhead",
            "pods",
            "leaves_per_pod",
            "aggs_per_pod",
            "cores",
            "hosts_per_leaf",
            "agg_bundle",
            "core_bundle",
            "host_gbps",
            "agg_gbps",
            "core_gbps",
            "cable_us",
            "host_cable_us",
            "agg_cable_us",
            "core_cable_us",
            "base_rtt_us",
            "switch_latency_us",
        ],
    ),
    (
        "fat-tree",
        &["kind", "frame_overhead", "k", "host_gbps", "cable_us", "base_rtt_us", "switch_latency_us"],
    ),
    ("topo", &["kind", "frame_overhead", "file"]),
];

/// Rate of a cable unless the file says otherwise.
const DEFAULT_RATE: BitRate = BitRate(100_000_000_000);
/// Propagation of a cable unless the file says otherwise: htsim's default, 200 m of fibre.
const DEFAULT_CABLE: Ps = Ps::from_micros(1);
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
        _ => topo(context, &section)?,
    };
    topology.check().map_err(|message| section.error(message))?;
    Ok(Fabric { topology, frame_overhead })
}

type Build = fn(&Section<'_>, Ps) -> Result<Topology, InputError>;

/// Builds the fabric with the usual cables, or with such as make the longest unloaded round trip `base_rtt_us`.
fn by_cable(section: &Section<'_>, sizes: PacketSizes, build: Build) -> Result<Topology, InputError> {
    let Some(wanted) = section.some_micros("base_rtt_us")? else {
        return build(section, section.micros("cable_us")?.unwrap_or(DEFAULT_CABLE));
    };
    let cables = ["cable_us", "host_cable_us", "spine_cable_us", "agg_cable_us", "core_cable_us"];
    if let Some(key) = cables.into_iter().find(|key| section.may_have(key) && section.has(key)) {
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

/// A tier whose keys begin with `name`.
fn tier(section: &Section<'_>, name: &str, cable: Ps, bundle: u32) -> Result<Tier, InputError> {
    let rate = match section.gbps(&format!("{name}_gbps"))? {
        Some(rate) => rate,
        None => section.gbps("host_gbps")?.unwrap_or(DEFAULT_RATE),
    };
    let own = format!("{name}_cable_us");
    let delay = if section.may_have(&own) { section.micros(&own)?.unwrap_or(cable) } else { cable };
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

fn topo(context: &mut Context<'_>, section: &Section<'_>) -> Result<Topology, InputError> {
    let (text, name) = context.read_file(section, "file")?;
    let file = topo_file::parse(&text, &name)?;
    context.notes.extend(file.notes);
    Ok(file.topology)
}
