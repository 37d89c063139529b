//! `.topo` files: fat trees of two and three tiers, described tier by tier.

use super::tokens::Line;
use crate::net::topology::clos::MAX_CABLES;
use crate::net::{Clos, LeafSpine, Tier, Topology};
use srd_baselines::input::{InputError, listed, shown};
use srd_baselines::units::Ps;
use srd_wire::BitRate;

/// Keywords inside a tier, as htsim spells them; case does not matter.
const TIER_KEYWORDS: [&str; 8] = [
    "Downlink_speed_Gbps",
    "Radix_Down",
    "Radix_Up",
    "Oversubscribed",
    "Bundle",
    "Downlink_Latency_ns",
    "Switch_Latency_ns",
    "Queue_Down",
];
const QUEUE_UP: &str = "Queue_Up";

/// What a `.topo` file says, with what a person should know about the reading of it.
#[derive(Clone, PartialEq, Debug)]
pub struct TopoFile {
    /// The fabric.
    pub topology: Topology,
    /// Words that were passed over.
    pub notes: Vec<String>,
}

/// Reads the `.topo` file `text`, called `file` in errors.
pub fn parse(text: &str, file: &str) -> Result<TopoFile, InputError> {
    let mut reader =
        Reader { file, header: Header::default(), tiers: Default::default(), tier: None, notes: Vec::new() };
    for (index, line) in text.lines().enumerate() {
        reader.line(Line::of(file, index as u32 + 1, line)?)?;
    }
    let topology = reader.topology()?;
    Ok(TopoFile { topology, notes: reader.notes })
}

/// A value and the line that gave it.
#[derive(Clone, Copy)]
struct Given {
    value: u32,
    line: u32,
}

#[derive(Default)]
struct Header {
    nodes: Option<Given>,
    tiers: Option<Given>,
    podsize: Option<Given>,
}

#[derive(Default)]
struct TierText {
    /// Line of its `Tier`.
    line: Option<u32>,
    /// In the order of `TIER_KEYWORDS`, then `Queue_Up`.
    values: [Option<Given>; 9],
}

impl TierText {
    fn get(&self, keyword: &str) -> Option<Given> {
        self.values[keyword_index(keyword)?]
    }
}

fn keyword_index(word: &str) -> Option<usize> {
    TIER_KEYWORDS.iter().chain([&QUEUE_UP]).position(|keyword| keyword.eq_ignore_ascii_case(word))
}

struct Reader<'a> {
    file: &'a str,
    header: Header,
    tiers: [TierText; 3],
    tier: Option<usize>,
    notes: Vec<String>,
}

/// A tier, complete.
struct TierPlan {
    tier: Tier,
    radix_down: u64,
    radix_up: u64,
    oversubscribed: u64,
    speed: u64,
    line: u32,
}

impl<'a> Reader<'a> {
    fn line(&mut self, mut line: Line<'a>) -> Result<(), InputError> {
        if line.is_comment() {
            return Ok(());
        }
        let Some(word) = line.word() else { return Ok(()) };
        if word.eq_ignore_ascii_case("tier") {
            return self.begin_tier(line);
        }
        match self.tier {
            None => self.header_line(word, line),
            Some(tier) => self.tier_line(tier, word, line),
        }
    }

    fn header_line(&mut self, word: &str, mut line: Line<'a>) -> Result<(), InputError> {
        let slot = match word.to_ascii_lowercase().as_str() {
            "nodes" => &mut self.header.nodes,
            "tiers" => &mut self.header.tiers,
            "podsize" => &mut self.header.podsize,
            _ if keyword_index(word).is_some() => {
                return Err(line
                    .error(format!("{} belongs behind a line `Tier 0`, `Tier 1` or `Tier 2`", shown(word))));
            }
            _ => {
                let known = "the header has Nodes, Tiers and Podsize";
                self.notes.push(format!(
                    "{}:{}: {} is passed over: {known}",
                    self.file,
                    line.number,
                    shown(word)
                ));
                return Ok(());
            }
        };
        set_once(slot, word, &mut line, 1)
    }

    fn begin_tier(&mut self, mut line: Line<'a>) -> Result<(), InputError> {
        let tier: usize = line.number("Tier", 0)?;
        line.end()?;
        let text = self.tiers.get_mut(tier).ok_or_else(|| {
            line.error(format!(
                "there is no tier {tier}: tier 0 is the ToR switches, 1 the next, 2 the cores"
            ))
        })?;
        if let Some(first) = text.line {
            return Err(line.error(format!("tier {tier} has begun already, in line {first}")));
        }
        text.line = Some(line.number);
        self.tier = Some(tier);
        Ok(())
    }

    fn tier_line(&mut self, tier: usize, word: &str, mut line: Line<'a>) -> Result<(), InputError> {
        let Some(index) = keyword_index(word) else {
            let known: Vec<&str> = TIER_KEYWORDS.into_iter().chain([QUEUE_UP]).collect();
            return Err(line.error(format!("{} is not known: a tier has {}", shown(word), listed(&known))));
        };
        let top = self.header.tiers.map_or(2, |tiers| tiers.value.saturating_sub(1) as usize);
        if tier >= top && ["radix_up", "queue_up"].contains(&word.to_ascii_lowercase().as_str()) {
            return Err(line.error(format!(
                "{word} in tier {tier}, the top one, from which nothing leads up: leave it out"
            )));
        }
        let least = if word.eq_ignore_ascii_case("Switch_Latency_ns") { 0 } else { 1 };
        set_once(&mut self.tiers[tier].values[index], word, &mut line, least)
    }

    fn topology(&self) -> Result<Topology, InputError> {
        let nodes = self.required(self.header.nodes, "Nodes")?;
        let tiers = self.required(self.header.tiers, "Tiers")?;
        let podsize = self.required(self.header.podsize, "Podsize")?;
        if !(2..=3).contains(&tiers.value) {
            return Err(self.at(tiers.line, format!("Tiers is {}: it may be 2 or 3", tiers.value)));
        }
        if let Some(line) = self.tiers[tiers.value as usize..].iter().find_map(|tier| tier.line) {
            return Err(self.at(line, format!("a tier too many: Tiers says {}, counted from 0", tiers.value)));
        }
        if !nodes.value.is_multiple_of(podsize.value) {
            let what = format!("Podsize {} does not divide Nodes {}", podsize.value, nodes.value);
            return Err(self.at(podsize.line, what));
        }
        if tiers.value == 2 && podsize.value != nodes.value {
            let what = format!("with 2 tiers there is one pod: Podsize must be {}, as Nodes", nodes.value);
            return Err(self.at(podsize.line, what));
        }
        if let Some(lacking) = (0..tiers.value as usize).find(|&tier| self.tiers[tier].line.is_none()) {
            let what = format!("there is no `Tier {lacking}`: Tiers says {}, counted from 0", tiers.value);
            return Err(self.at(tiers.line, what));
        }
        let plans: Vec<TierPlan> = (0..tiers.value as usize)
            .map(|tier| self.plan(tier, tiers.value as usize))
            .collect::<Result<_, _>>()?;
        self.build(nodes.value.into(), podsize.value.into(), &plans)
    }

    fn required(&self, given: Option<Given>, word: &str) -> Result<Given, InputError> {
        given.ok_or_else(|| {
            InputError::of(self.file, format!("the header lacks a line `{word} N` before the first `Tier`"))
        })
    }

    fn at(&self, line: u32, message: impl Into<String>) -> InputError {
        InputError::at(self.file, line, message)
    }

    fn plan(&self, number: usize, tiers: usize) -> Result<TierPlan, InputError> {
        let text = &self.tiers[number];
        let line = text.line.unwrap_or(1);
        let need = |keyword: &str| {
            let lacking = || self.at(line, format!("tier {number} lacks a line `{keyword} N`"));
            text.get(keyword).map(|given| given.value).ok_or_else(lacking)
        };
        let or = |keyword: &str, default: u32| text.get(keyword).map_or(default, |given| given.value);
        let speed: u64 = need("Downlink_speed_Gbps")?.into();
        let radix_down = need("Radix_Down")?.into();
        let radix_up = if number + 1 < tiers { need("Radix_Up")?.into() } else { 0 };
        let tier = Tier {
            rate: BitRate(speed * 1_000_000_000),
            delay: Ps::from_nanos(need("Downlink_Latency_ns")?.into()),
            latency: Ps::from_nanos(or("Switch_Latency_ns", 0).into()),
            bundle: or("Bundle", 1),
            queue_down: text.get("Queue_Down").map(|given| given.value.into()),
            queue_up: text.get(QUEUE_UP).map(|given| given.value.into()),
        };
        Ok(TierPlan {
            tier,
            radix_down,
            radix_up,
            oversubscribed: or("Oversubscribed", 1).into(),
            speed,
            line,
        })
    }

    /// The counts that follow from those given, as `FatTreeTopologyCfg::set_custom_params` finds them.
    fn build(&self, nodes: u64, podsize: u64, plans: &[TierPlan]) -> Result<Topology, InputError> {
        let [tor, agg, ..] = plans else { return Err(InputError::of(self.file, "too few tiers")) };
        self.check_tor(tor, podsize)?;
        for (below, above) in plans.iter().zip(&plans[1..]) {
            self.check_bundle(below, above)?;
        }
        let pods = nodes / podsize;
        let uplinks =
            self.whole(nodes * tor.speed, agg.speed * tor.oversubscribed, tor.line, "the ToRs' uplinks")?;
        let aggs_per_pod = self.aggs_per_pod(uplinks, pods, tor, agg)?;
        let tors_per_pod = podsize / tor.radix_down;
        match plans {
            [tor, agg] => LeafSpine {
                leaves: count(tors_per_pod),
                spines: count(aggs_per_pod),
                hosts_per_leaf: count(tor.radix_down),
                tiers: [tor.tier, agg.tier],
            }
            .build(),
            [tor, agg, core, ..] => Clos {
                pods: count(pods),
                leaves_per_pod: count(tors_per_pod),
                aggs_per_pod: count(aggs_per_pod),
                cores: count(self.cores(uplinks, aggs_per_pod, agg, core)?),
                hosts_per_leaf: count(tor.radix_down),
                tiers: [tor.tier, agg.tier, core.tier],
            }
            .build(),
            _ => Err("too few tiers".to_string()),
        }
        .map_err(|message| InputError::of(self.file, message))
    }

    fn check_tor(&self, tor: &TierPlan, podsize: u64) -> Result<(), InputError> {
        if tor.tier.bundle != 1 {
            return Err(self.at(tor.line, "Bundle in tier 0: a host has one cable, leave it out"));
        }
        if !podsize.is_multiple_of(tor.radix_down) {
            let what = format!("tier 0's Radix_Down {} does not divide Podsize {podsize}", tor.radix_down);
            return Err(self.at(tor.line, what));
        }
        if tor.radix_down / tor.radix_up != tor.oversubscribed || !tor.radix_down.is_multiple_of(tor.radix_up)
        {
            let what = "tier 0: Radix_Down / Radix_Up must be Oversubscribed (1 where it is not given)";
            let are = format!("they are {} / {} and {}", tor.radix_down, tor.radix_up, tor.oversubscribed);
            return Err(self.at(tor.line, format!("{what}; {are}")));
        }
        Ok(())
    }

    fn aggs_per_pod(
        &self,
        uplinks: u64,
        pods: u64,
        tor: &TierPlan,
        agg: &TierPlan,
    ) -> Result<u64, InputError> {
        let aggs_per_pod =
            self.whole(uplinks, pods * agg.radix_down, agg.line, "switches of tier 1 per pod")?;
        let bundle = u64::from(agg.tier.bundle);
        if aggs_per_pod * bundle != tor.radix_up {
            let fits = format!("{aggs_per_pod} switches of tier 1 in each pod and a Bundle of {bundle}");
            let hint = bundle_hint(tor.radix_up, aggs_per_pod, 1);
            return Err(
                self.at(agg.line, format!("{fits} do not fit tier 0's Radix_Up of {}{hint}", tor.radix_up))
            );
        }
        Ok(aggs_per_pod)
    }

    fn cores(
        &self,
        tor_uplinks: u64,
        aggs_per_pod: u64,
        agg: &TierPlan,
        core: &TierPlan,
    ) -> Result<u64, InputError> {
        let down = tor_uplinks * agg.speed;
        let uplinks = self.whole(down, core.speed * agg.oversubscribed, agg.line, "tier 1's uplinks")?;
        let cores = self.whole(uplinks, core.radix_down, core.line, "switches of tier 2")?;
        if !cores.is_multiple_of(aggs_per_pod) {
            let what = format!("these numbers give {cores} cores, not a multiple of the {aggs_per_pod}");
            return Err(self.at(core.line, format!("{what} switches of tier 1 in each pod")));
        }
        let bundle = u64::from(core.tier.bundle);
        if cores * bundle / aggs_per_pod != agg.radix_up {
            let fits = format!(
                "{cores} cores and a Bundle of {bundle}, shared out among {aggs_per_pod} switches per pod,"
            );
            let hint = bundle_hint(agg.radix_up, cores / aggs_per_pod, 2);
            return Err(
                self.at(core.line, format!("{fits} do not fit tier 1's Radix_Up of {}{hint}", agg.radix_up))
            );
        }
        Ok(cores)
    }

    fn check_bundle(&self, below: &TierPlan, above: &TierPlan) -> Result<(), InputError> {
        let bundle = u64::from(above.tier.bundle);
        for (radix, line, what) in [
            (above.radix_down, above.line, "Radix_Down"),
            (below.radix_up, below.line, "Radix_Up of the tier below the bundle"),
        ] {
            if !radix.is_multiple_of(bundle) {
                return Err(self.at(line, format!("a Bundle of {bundle} does not divide {radix}, {what}")));
            }
        }
        Ok(())
    }

    /// `a / b` if that is a whole number above 0.
    fn whole(&self, a: u64, b: u64, line: u32, what: &str) -> Result<u64, InputError> {
        match a.checked_rem(b) {
            Some(0) if a / b > MAX_CABLES => Err(self.at(line, format!("{} are too many for {what}", a / b))),
            Some(0) if a > 0 => Ok(a / b),
            _ => {
                let why =
                    format!("the number of {what} would be {a} / {b}, which must be a whole number above 0");
                Err(self
                    .at(line, format!("{why}: speeds, radices, Oversubscribed and Nodes do not go together")))
            }
        }
    }
}

fn set_once(slot: &mut Option<Given>, word: &str, line: &mut Line<'_>, least: u32) -> Result<(), InputError> {
    if let Some(first) = slot {
        return Err(line.error(format!("{word} has been given already, in line {}", first.line)));
    }
    *slot = Some(Given { value: line.number(word, least)?, line: line.number });
    line.end()
}

/// As htsim's "Did you mean".
fn bundle_hint(radix_up: u64, switches: u64, tier: u32) -> String {
    match radix_up.checked_rem(switches) {
        Some(0) if radix_up > 0 => {
            format!("; with `Bundle {}` in tier {tier} they would", radix_up / switches)
        }
        _ => String::new(),
    }
}

/// A count for the builders, which refuse what is too large.
fn count(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
