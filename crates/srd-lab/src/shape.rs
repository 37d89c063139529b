//! What a fabric looks like: how many hosts and routers, how fast the links, how deep the queues.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Links between routers have addresses from 10.64.0.0/10, a leaf's hosts a /24 each from 10.128.0.0/9.
const MOST_HOSTS_PER_LEAF: u32 = 120;
/// A namespace costs the kernel a few hundred KiB and the lab a few milliseconds.
const MOST_NAMESPACES: u32 = 1000;
const MOST_LINKS: u32 = 4000;

/// A leaf-spine fabric, or, with pods, one of three tiers: leaves, aggregation routers and cores.
///
/// Without values: 16 hosts, 4 leaves, 4 spines, 100 Mbit/s, 150 KB of queue, which two cores can carry.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Shape {
    /// Hosts on each leaf.
    pub hosts_per_leaf: u32,
    /// Leaves, over all pods.
    pub leaves: u32,
    /// Spines, each linked to each leaf. None in three tiers.
    pub spines: Option<u32>,
    /// Pods of a three-tier fabric; 0 makes a leaf-spine.
    pub pods: u32,
    /// Aggregation routers in each pod, each linked to each leaf of its pod.
    pub aggs_per_pod: u32,
    /// Core routers, a multiple of `aggs_per_pod`: the aggregation router at position p of its pod is linked to cores p,
    /// p + `aggs_per_pod`, and so on.
    pub cores: u32,
    /// Rate of the links to hosts, Mbit/s.
    pub host_mbps: f64,
    /// Rate of the links between leaves and the next tier, Mbit/s.
    pub uplink_mbps: f64,
    /// Rate of the links between aggregation routers and cores, Mbit/s. Without a value that of the uplinks.
    pub core_mbps: Option<f64>,
    /// What the queue of a router's port holds, bytes.
    pub buffer_bytes: u32,
    /// What the queue of a host's port holds, bytes. Without a value that of a router's port.
    pub host_buffer_bytes: Option<u32>,
    /// MTU of all links but the management network's, bytes.
    pub mtu_bytes: u32,
    /// Routers hash with seeds that follow from this one.
    pub hash_seed: u32,
    /// Routers mark packets (ECN) while the port's queue holds more than this, bytes. Without a value they do not.
    pub ecn_bytes: Option<u32>,
    /// Routers cut packets to their headers where the port's queue is full, as NDP does, instead of dropping them.
    pub trim: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            hosts_per_leaf: 4,
            leaves: 4,
            spines: None,
            pods: 0,
            aggs_per_pod: 0,
            cores: 0,
            host_mbps: 100.0,
            uplink_mbps: 100.0,
            core_mbps: None,
            buffer_bytes: 150_000,
            host_buffer_bytes: None,
            mtu_bytes: 1500,
            hash_seed: 1,
            ecn_bytes: None,
            trim: false,
        }
    }
}

impl Shape {
    /// Reads a shape from TOML; whether it makes a fabric is [`check`](Shape::check)'s. An error names the line.
    pub fn from_toml(text: &str) -> Result<Shape> {
        toml::from_str(text).map_err(|error| Error::BadShape(error.to_string()))
    }

    /// Hosts in all.
    pub fn hosts(&self) -> u32 {
        self.hosts_per_leaf * self.leaves
    }

    /// Spines of a leaf-spine: 4 unless said otherwise.
    pub fn spines(&self) -> u32 {
        if self.pods > 0 { 0 } else { self.spines.unwrap_or(4) }
    }

    /// The same fabric, with a value wherever this shape leaves it to the others or to a default.
    pub(crate) fn in_full(&self) -> Shape {
        Shape {
            spines: (self.pods == 0).then(|| self.spines()),
            core_mbps: (self.pods > 0).then(|| self.core_mbps()),
            host_buffer_bytes: Some(self.host_buffer()),
            ..self.clone()
        }
    }

    /// Leaves of one pod.
    pub(crate) fn leaves_per_pod(&self) -> u32 {
        self.leaves / self.pods.max(1)
    }

    /// Rate of the links above the uplinks, Mbit/s.
    pub fn core_mbps(&self) -> f64 {
        self.core_mbps.unwrap_or(self.uplink_mbps)
    }

    /// How much more the hosts of a leaf, or of a pod, can send than the links above them carry.
    pub fn oversubscription(&self) -> f64 {
        let hosts = f64::from(self.hosts_per_leaf) * self.host_mbps;
        let uplinks = if self.pods > 0 { self.aggs_per_pod } else { self.spines() };
        let of_leaf = hosts / (f64::from(uplinks) * self.uplink_mbps);
        // Each core is linked to one aggregation router of each pod.
        let of_pod = hosts * f64::from(self.leaves_per_pod()) / (f64::from(self.cores) * self.core_mbps());
        if self.pods > 0 { of_leaf.max(of_pod) } else { of_leaf }
    }

    /// Refuses what makes no fabric.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::BadShape(what));
        if self.leaves == 0 || self.hosts_per_leaf == 0 {
            return refuse("a fabric has at least one leaf and one host on it".into());
        }
        if self.hosts_per_leaf > MOST_HOSTS_PER_LEAF {
            return refuse(format!("a leaf has at most {MOST_HOSTS_PER_LEAF} hosts (hosts_per_leaf)"));
        }
        if self.pods > 0 {
            self.check_pods()?;
        } else if self.aggs_per_pod > 0 || self.cores > 0 {
            return refuse("aggs_per_pod and cores need pods: with pods = 0 it is a leaf-spine".into());
        } else if self.spines() == 0 {
            return refuse("a leaf-spine has at least one spine".into());
        }
        for (name, mbps) in [
            ("host_mbps", self.host_mbps),
            ("uplink_mbps", self.uplink_mbps),
            ("core_mbps", self.core_mbps()),
        ] {
            if !(0.1..=100_000.0).contains(&mbps) {
                return refuse(format!("{name} is {mbps}: it lies between 0.1 and 100000 Mbit/s"));
            }
        }
        if !(576..=65_000).contains(&self.mtu_bytes) {
            return refuse(format!("mtu_bytes is {}: it lies between 576 and 65000", self.mtu_bytes));
        }
        for (name, bytes) in [("buffer_bytes", self.buffer_bytes), ("host_buffer_bytes", self.host_buffer())]
        {
            // Less would not hold what the token bucket lets through at once.
            if bytes < 2 * self.frame_bytes() {
                let least = 2 * self.frame_bytes();
                return refuse(format!(
                    "{name} is {bytes}: a queue holds at least two frames, {least} bytes"
                ));
            }
        }
        if self.ecn_bytes.is_some_and(|bytes| bytes >= self.buffer_bytes) {
            return refuse(
                "ecn_bytes lies below buffer_bytes: a queue never holds more than its buffer".into(),
            );
        }
        self.check_size()
    }

    fn check_pods(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::BadShape(what));
        if self.spines.is_some() {
            return refuse("a fabric has spines or pods, not both".into());
        }
        if self.aggs_per_pod == 0 || self.cores == 0 {
            return refuse("a fabric with pods needs aggs_per_pod and cores, at least 1 each".into());
        }
        if !self.leaves.is_multiple_of(self.pods) {
            return refuse(format!(
                "{} leaves cannot be shared out evenly among {} pods",
                self.leaves, self.pods
            ));
        }
        if !self.cores.is_multiple_of(self.aggs_per_pod) {
            return refuse(format!(
                "cores ({}) is a multiple of aggs_per_pod ({}): each core is linked to one aggregation router of each pod",
                self.cores, self.aggs_per_pod
            ));
        }
        Ok(())
    }

    fn check_size(&self) -> Result<()> {
        let sum = |terms: &[u32]| terms.iter().fold(0_u32, |sum, term| sum.saturating_add(*term));
        let product = |a: u32, b: u32| a.saturating_mul(b);
        let hosts = product(self.hosts_per_leaf, self.leaves);
        let aggs = product(self.pods, self.aggs_per_pod);
        let namespaces = sum(&[hosts, self.leaves, self.spines(), aggs, self.cores]);
        let uplinks = if self.pods > 0 {
            sum(&[product(self.leaves, self.aggs_per_pod), product(self.pods, self.cores)])
        } else {
            product(self.leaves, self.spines())
        };
        if namespaces > MOST_NAMESPACES || sum(&[hosts, uplinks]) > MOST_LINKS {
            return Err(Error::BadShape(format!(
                "that makes {namespaces} namespaces and {} links: at most {MOST_NAMESPACES} and {MOST_LINKS}; \
                 larger fabrics are for the simulator (srd sim)",
                sum(&[hosts, uplinks]),
            )));
        }
        Ok(())
    }

    /// A full frame as the queues count it: MTU and Ethernet header.
    pub(crate) fn frame_bytes(&self) -> u32 {
        self.mtu_bytes + 14
    }

    /// What the queue of a host's port holds.
    pub(crate) fn host_buffer(&self) -> u32 {
        self.host_buffer_bytes.unwrap_or(self.buffer_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let error = Shape::from_toml("leaves = 2\nspine = 3\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("spine"), "{error}");
    }

    #[test]
    fn three_tiers_need_whole_shares() {
        let shape = |text: &str| Shape::from_toml(text).unwrap().check();
        assert!(shape("pods = 2\nleaves = 4\naggs_per_pod = 2\ncores = 4").is_ok());
        for bad in [
            "pods = 2\nleaves = 3\naggs_per_pod = 2\ncores = 4",
            "pods = 2\nleaves = 4\naggs_per_pod = 2\ncores = 3",
            "pods = 2\nleaves = 4\naggs_per_pod = 2\ncores = 4\nspines = 4",
            "pods = 2\nleaves = 4\ncores = 4",
            "cores = 4",
        ] {
            assert!(shape(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_that_no_machine_holds_are_refused_without_overflow() {
        assert!(Shape { leaves: u32::MAX, ..Shape::default() }.check().is_err());
        assert!(Shape { spines: Some(u32::MAX), ..Shape::default() }.check().is_err());
    }

    #[test]
    fn a_shape_in_full_has_all_values_of_its_kind_and_is_the_same_fabric() {
        let leaf_spine = Shape::default().in_full();
        assert_eq!((leaf_spine.spines, leaf_spine.core_mbps), (Some(4), None));
        assert_eq!(leaf_spine.host_buffer_bytes, Some(leaf_spine.buffer_bytes));
        let text = "pods = 2\nleaves = 4\naggs_per_pod = 2\ncores = 4\nuplink_mbps = 40";
        let tiers = Shape::from_toml(text).unwrap().in_full();
        assert_eq!((tiers.spines, tiers.core_mbps), (None, Some(40.0)));
        assert!(leaf_spine.check().is_ok() && tiers.check().is_ok());
    }

    #[test]
    fn oversubscription_compares_hosts_with_uplinks() {
        let shape = Shape { spines: Some(2), uplink_mbps: 50.0, ..Shape::default() };
        assert!((shape.oversubscription() - 4.0).abs() < 1e-9);
    }
}
