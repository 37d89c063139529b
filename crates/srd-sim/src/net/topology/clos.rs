//! Builders of the shapes that people build: one switch, leaf-spine, and Clos networks of three tiers.
//!
//! Hosts are cabled first, so that cable `h` is host `h`'s. Switches are numbered from the bottom up: leaves, then
//! aggregation switches or spines, then cores. Oversubscription is nothing but counts and rates.

use super::{Cable, NodeId, Role, Switch, Topology};
use srd_baselines::input::counted;
use srd_baselines::units::Ps;
use srd_wire::BitRate;

/// Most hosts of a topology. A run of so many needs more memory than today's servers have; beyond it a slip of the
/// pen is likelier.
pub const MAX_HOSTS: u64 = 1 << 20;
/// Most cables of a topology, for the same reason.
pub const MAX_CABLES: u64 = 1 << 23;

/// A layer of switches, with the cables from each of them down to the layer below (of the lowest: to its hosts).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tier {
    /// Rate of each cable down.
    pub rate: BitRate,
    /// Propagation of each cable down.
    pub delay: Ps,
    /// Latency of each switch.
    pub latency: Ps,
    /// Parallel cables to each switch below; hosts have one.
    pub bundle: u32,
    /// Capacity of the ports that look down, where it is not the fabric's usual.
    pub queue_down: Option<u64>,
    /// Capacity of the ports that look up, where it is not the fabric's usual.
    pub queue_up: Option<u64>,
}

impl Tier {
    /// Single cables, no switch latency, the usual queues.
    pub fn of(rate: BitRate, delay: Ps) -> Tier {
        Tier { rate, delay, latency: Ps::ZERO, bundle: 1, queue_down: None, queue_up: None }
    }
}

/// All hosts on one switch, `switch0`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OneSwitch {
    /// Hosts.
    pub hosts: u32,
    /// The switch.
    pub tier: Tier,
}

/// Two tiers: each of the switches `leaf0`, `leaf1`, ... is cabled to each of `spine0`, `spine1`, ...
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafSpine {
    /// Leaf switches.
    pub leaves: u32,
    /// Spine switches.
    pub spines: u32,
    /// Hosts of each leaf.
    pub hosts_per_leaf: u32,
    /// Leaves and spines.
    pub tiers: [Tier; 2],
}

/// Three tiers: pods of leaves and aggregation switches, joined by cores. Leaf switches are numbered through all pods
/// (`leaf5`), aggregation switches by pod and position (`agg1.0`). The aggregation switch at position `p` of its pod is
/// cabled to cores `p`, `p + aggs_per_pod`, `p + 2 aggs_per_pod`, ... as in htsim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clos {
    /// Pods.
    pub pods: u32,
    /// Leaf switches of each pod.
    pub leaves_per_pod: u32,
    /// Aggregation switches of each pod.
    pub aggs_per_pod: u32,
    /// Core switches, a multiple of `aggs_per_pod`.
    pub cores: u32,
    /// Hosts of each leaf.
    pub hosts_per_leaf: u32,
    /// Leaves, aggregation switches and cores.
    pub tiers: [Tier; 3],
}

impl OneSwitch {
    /// The topology, or what makes it impossible.
    pub fn build(&self) -> Result<Topology, String> {
        let mut wiring = Wiring::start(&[self.hosts], &[self.hosts], &[self.tier])?;
        wiring.switches(1, &self.tier, |_| "switch0".to_string());
        wiring.hosts(self.hosts, self.hosts, &self.tier);
        Ok(wiring.topology)
    }
}

impl LeafSpine {
    /// The topology, or what makes it impossible.
    pub fn build(&self) -> Result<Topology, String> {
        let [leaf, spine] = &self.tiers;
        let up = [self.leaves, self.spines, spine.bundle];
        let mut wiring = Wiring::start(&[self.leaves, self.hosts_per_leaf], &up, &self.tiers)?;
        wiring.switches(self.leaves, leaf, |n| format!("leaf{n}"));
        wiring.switches(self.spines, spine, |n| format!("spine{n}"));
        wiring.hosts(self.leaves * self.hosts_per_leaf, self.hosts_per_leaf, leaf);
        for l in 0..self.leaves {
            for s in 0..self.spines {
                wiring.cable(l, self.leaves + s, leaf, spine);
            }
        }
        Ok(wiring.topology)
    }
}

impl Clos {
    /// The k-ary fat tree: k pods of k/2 leaves and k/2 aggregation switches, k/2 hosts per leaf, all cables alike
    /// (Al-Fares and others, 2008).
    pub fn fat_tree(k: u32, tier: Tier) -> Result<Clos, String> {
        if k < 2 || !k.is_multiple_of(2) || k > 160 {
            return Err(format!(
                "a fat tree's k is an even number from 2 to 160 (k = 160 has 1,024,000 hosts), not {k}"
            ));
        }
        Ok(Clos {
            pods: k,
            leaves_per_pod: k / 2,
            aggs_per_pod: k / 2,
            cores: k * k / 4,
            hosts_per_leaf: k / 2,
            tiers: [tier; 3],
        })
    }

    /// The topology, or what makes it impossible.
    pub fn build(&self) -> Result<Topology, String> {
        let [leaf, agg, core] = &self.tiers;
        if self.aggs_per_pod == 0 || self.cores == 0 || !self.cores.is_multiple_of(self.aggs_per_pod) {
            return Err(format!(
                "the number of cores must be a multiple of the aggregation switches per pod; {} and {} do not go together",
                self.cores, self.aggs_per_pod
            ));
        }
        let hosts = [self.pods, self.leaves_per_pod, self.hosts_per_leaf];
        let up = [self.pods, self.leaves_per_pod, self.aggs_per_pod, agg.bundle];
        let mut wiring = Wiring::start(&hosts, &up, &self.tiers)?;
        let cores = [self.pods, self.cores, core.bundle];
        wiring.at_most(&cores, MAX_CABLES, "cables to the cores")?;
        let (leaves, aggs) = (self.pods * self.leaves_per_pod, self.pods * self.aggs_per_pod);
        wiring.switches(leaves, leaf, |n| format!("leaf{n}"));
        wiring.switches(aggs, agg, |n| format!("agg{}.{}", n / self.aggs_per_pod, n % self.aggs_per_pod));
        wiring.switches(self.cores, core, |n| format!("core{n}"));
        wiring.hosts(leaves * self.hosts_per_leaf, self.hosts_per_leaf, leaf);
        for l in 0..leaves {
            for position in 0..self.aggs_per_pod {
                let pod = l / self.leaves_per_pod;
                wiring.cable(l, leaves + pod * self.aggs_per_pod + position, leaf, agg);
            }
        }
        for a in 0..aggs {
            for c in (a % self.aggs_per_pod..self.cores).step_by(self.aggs_per_pod as usize) {
                wiring.cable(leaves + a, leaves + aggs + c, agg, core);
            }
        }
        Ok(wiring.topology)
    }
}

/// A topology that grows.
pub(super) struct Wiring {
    pub(super) topology: Topology,
}

impl Wiring {
    /// Sizes up what is to be built: the product of `hosts` is their number, that of `up` the number of cables from
    /// the lowest switches upwards.
    pub(super) fn start(hosts: &[u32], up: &[u32], tiers: &[Tier]) -> Result<Wiring, String> {
        let mut wiring = Wiring { topology: Topology::default() };
        wiring.at_most(hosts, MAX_HOSTS, "hosts")?;
        wiring.at_most(up, MAX_CABLES, "cables")?;
        let hosts = hosts.iter().product::<u32>();
        if hosts < 2 {
            return Err(format!("{} is too few: a fabric needs at least 2", counted(hosts.into(), "host")));
        }
        if tiers.iter().any(|tier| tier.rate.0 == 0) {
            return Err("a cable's rate must be above 0".to_string());
        }
        if tiers[0].bundle != 1 {
            return Err(format!("a host has one cable, not a bundle of {}", tiers[0].bundle));
        }
        wiring.topology.hosts = hosts;
        Ok(wiring)
    }

    pub(super) fn at_most(&self, factors: &[u32], most: u64, what: &str) -> Result<(), String> {
        if factors.contains(&0) {
            return Err("every count must be at least 1".to_string());
        }
        let product = factors.iter().try_fold(1u64, |product, &n| product.checked_mul(n.into()));
        match product {
            Some(n) if n <= most => Ok(()),
            Some(n) => Err(format!("{n} {what} are too many: at most {most}")),
            None => Err(format!("too many {what}: at most {most}")),
        }
    }

    pub(super) fn switches(&mut self, n: u32, tier: &Tier, name: impl Fn(u32) -> String) {
        let latency = tier.latency;
        self.topology.switches.extend((0..n).map(|n| Switch { name: name(n), latency, role: Role::Switch }));
    }

    pub(super) fn hosts(&mut self, n: u32, per_leaf: u32, leaf: &Tier) {
        (0..n).for_each(|host| self.host(host, host / per_leaf, leaf));
    }

    /// The cable of `host`, the next one, to switch number `leaf`.
    pub(super) fn host(&mut self, host: u32, leaf: u32, tier: &Tier) {
        let b = self.topology.switch(leaf);
        let queue_bytes = [None, tier.queue_down];
        let cable = Cable { a: NodeId(host), b, rate: tier.rate, delay: tier.delay, queue_bytes };
        self.topology.cables.push(cable);
    }

    /// The bundle between switch number `lower` and switch number `upper`.
    pub(super) fn cable(&mut self, lower: u32, upper: u32, below: &Tier, above: &Tier) {
        let (a, b) = (self.topology.switch(lower), self.topology.switch(upper));
        let queue_bytes = [below.queue_up, above.queue_down];
        let cable = Cable { a, b, rate: above.rate, delay: above.delay, queue_bytes };
        self.topology.cables.extend(std::iter::repeat_n(cable, above.bundle as usize));
    }
}
