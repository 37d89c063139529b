//! `[transport]`, which all hosts run, and `[[rival]]`, further transports that workloads may name.

use crate::hosts::{SrdSettings, TransportSettings};
use crate::net::{PacketSizes, QueueSettings, RoutingSettings, Topology};
use srd_baselines::document::Document;
use srd_baselines::input::{InputError, shown};
use srd_baselines::quantity::Bytes;
use srd_baselines::section::Section;
use srd_baselines::units::Ps;
use srd_baselines::{BASELINES, Choice, Surroundings};
use srd_proto::{Config, ControllerKind, SelectorKind};
use srd_wire::{BitRate, Nanos};

/// Keys of `[transport]` and `[[rival]]` whatever the kind.
pub(super) const COMMON_KEYS: [&str; 7] =
    ["kind", "name", "mtu", "class", "base_rtt_us", "line_rate_gbps", "stack_us"];
/// Keys that SRD has beside them.
pub(super) const SRD_KEYS: [&str; 6] =
    ["paths", "selector", "controller", "window", "receiver_hint", "ack_every"];
/// The transport whose section does not say which.
const USUAL_KIND: &str = "srd";

/// Largest IP datagram unless the file says otherwise: EC2's jumbo frames without tags (SRD paper, 9000).
const DEFAULT_MTU: u64 = 9000;
/// IPv4's least, and jumbo frames' usual most.
const MTU: std::ops::RangeInclusive<u64> = 576..=9216;
/// Most transports of a run.
const MOST_TRANSPORTS: usize = 16;

/// A transport's section, and what must be known of it before the fabric is.
pub(super) struct Wire<'a> {
    section: Section<'a>,
    kind: &'static str,
    name: String,
    mtu: u16,
    base_rtt: Option<Ps>,
    line_rate: Option<BitRate>,
}

/// The kinds that there are, each with the keys of its own.
pub(super) fn kinds() -> Vec<(&'static str, Vec<&'static str>)> {
    let baselines = BASELINES.iter().map(|(kind, keys)| (*kind, keys.to_vec()));
    [(USUAL_KIND, SRD_KEYS.to_vec())].into_iter().chain(baselines).collect()
}

/// Reads what must be known before the fabric is: of `[transport]`, and of each `[[rival]]`.
pub(super) fn wires(document: &Document) -> Result<Vec<Wire<'_>>, InputError> {
    let mut wires: Vec<Wire<'_>> = vec![wire(Section::of(document, "transport")?, DEFAULT_MTU)?];
    for section in Section::all(document, "rival")? {
        if !section.has("kind") {
            return Err(section.error("`kind` is missing: write, for example, `kind = \"tcp\"`"));
        }
        let wire = wire(section, wires[0].mtu as u64)?;
        if wires.iter().any(|other| other.name == wire.name) {
            let what =
                format!("there is another transport called {}: write another `name`", shown(&wire.name));
            return Err(wire.section.error(what));
        }
        if wires.len() == MOST_TRANSPORTS {
            return Err(wire
                .section
                .error(format!("these are too many: at most {MOST_TRANSPORTS} transports")));
        }
        wires.push(wire);
    }
    Ok(wires)
}

fn wire(section: Section<'_>, usual_mtu: u64) -> Result<Wire<'_>, InputError> {
    let kinds = kinds();
    let words: Vec<(&str, usize)> = kinds.iter().enumerate().map(|(n, (kind, _))| (*kind, n)).collect();
    let (kind, own) = &kinds[section.word("kind", &words)?.unwrap_or(0)];
    let keys: Vec<&'static str> = COMMON_KEYS.iter().chain(own).copied().collect();
    let section = section.only(&keys)?;
    Ok(Wire {
        kind,
        name: section.text("name")?.unwrap_or(kind).to_string(),
        mtu: section.whole("mtu", MTU)?.unwrap_or(usual_mtu) as u16,
        base_rtt: section.some_micros("base_rtt_us")?,
        line_rate: section.gbps("line_rate_gbps")?,
        section,
    })
}

/// The largest IP datagram of all.
pub(super) fn largest_mtu(wires: &[Wire<'_>]) -> u16 {
    wires.iter().map(|wire| wire.mtu).max().unwrap_or_default()
}

/// The bandwidth-delay product in bytes: the fastest host's rate times the longest unloaded round trip, or what
/// `[transport]` says in their place.
pub(super) fn bdp(wires: &[Wire<'_>], topology: &Topology, sizes: PacketSizes) -> u64 {
    let (rate, rtt) = wires[0].link(topology, sizes);
    let bytes = rate.0 as u128 * rtt.0 as u128 / 8_000_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
}

impl Wire<'_> {
    fn link(&self, topology: &Topology, sizes: PacketSizes) -> (BitRate, Ps) {
        let rate = self.line_rate.unwrap_or_else(|| topology.fastest_host());
        let rtt = self.base_rtt.unwrap_or_else(|| topology.longest_base_rtt(sizes));
        (rate, rtt)
    }
}

/// Reads `[transport]` and all `[[rival]]`.
pub(super) fn read(
    document: &Document,
    wires: Vec<Wire<'_>>,
    topology: &Topology,
    sizes: PacketSizes,
    queues: &QueueSettings,
    routing: &RoutingSettings,
    bdp: u64,
) -> Result<Vec<TransportSettings>, InputError> {
    let law = super::control_law::read(document)?;
    let transport = |wire: Wire<'_>| {
        let section = &wire.section;
        let class = section.whole("class", 0..=7)?.unwrap_or(0) as u8;
        let (line_rate, base_rtt) = wire.link(topology, sizes);
        let choice = match wire.kind {
            USUAL_KIND => Choice::Srd(srd(section, law, bdp)?),
            kind => {
                let around = Surroundings {
                    line_rate,
                    base_rtt: Nanos(base_rtt.0.div_ceil(1000)),
                    bdp,
                    mtu: wire.mtu,
                    class,
                    marks: queues.marks(class),
                    trims: queues.trims(class),
                    lossless: queues.lossless(),
                    reorders: routing.reorders(),
                };
                Choice::read(kind, section, &around)?
            }
        };
        Ok(TransportSettings {
            mtu: wire.mtu,
            class,
            base_rtt: wire.base_rtt,
            line_rate: wire.line_rate,
            stack: section.micros("stack_us")?.unwrap_or(Ps::ZERO),
            choice,
            name: wire.name,
        })
    };
    wires.into_iter().map(transport).collect()
}

fn srd(
    section: &Section<'_>,
    law: srd_proto::congestion_control::ControlLaw,
    bdp: u64,
) -> Result<SrdSettings, InputError> {
    let usual = Config::default();
    let controller = section.word("controller", ControllerKind::ALL)?.unwrap_or(usual.controller);
    Ok(SrdSettings {
        paths: section.whole("paths", 1..=256)?.map_or(usual.paths, |paths| paths as u16),
        selector: section.word("selector", SelectorKind::ALL)?.unwrap_or(usual.selector),
        controller,
        fixed_window_bytes: fixed_window(section, controller, bdp)?,
        law,
        receiver_hint: section.flag("receiver_hint")?,
        ack_every: section.whole("ack_every", 1..=1024)?.map(|every| every as u32),
    })
}

/// The fixed controller's window.
fn fixed_window(section: &Section<'_>, controller: ControllerKind, bdp: u64) -> Result<u64, InputError> {
    let window = section.bytes("window", 1)?;
    if window.is_some() && controller != ControllerKind::Fixed {
        return Err(section.error_at("window", "only together with `controller = \"fixed\"`"));
    }
    Ok(window.unwrap_or(Bytes::Bdp(1.0)).with_bdp(bdp))
}
