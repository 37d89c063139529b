//! `srd lab up`: the fabric's shape from a file and from options.

use anyhow::Context;
use srd_lab::Shape;
use std::path::PathBuf;

/// Arguments of `srd lab up`. Without any: 16 hosts, 4 leaves, 4 spines, 100 Mbit/s, queues of 150 KB.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A shape in TOML, its keys named as the options are, with _ for -; options count for more
    #[arg(value_name = "FILE.toml")]
    file: Option<PathBuf>,
    /// Hosts on each leaf [default: 4]
    #[arg(long, value_name = "N")]
    hosts_per_leaf: Option<u32>,
    /// Leaves, over all pods [default: 4]
    #[arg(long, value_name = "N")]
    leaves: Option<u32>,
    /// Spines, each linked to every leaf [default: 4]
    #[arg(long, value_name = "N")]
    spines: Option<u32>,
    /// Pods: makes a fabric of three tiers
    #[arg(long, value_name = "N")]
    pods: Option<u32>,
    /// Aggregation routers of each pod, each linked to every leaf of the pod
    #[arg(long, value_name = "N")]
    aggs_per_pod: Option<u32>,
    /// Core routers, a multiple of --aggs-per-pod
    #[arg(long, value_name = "N")]
    cores: Option<u32>,
    /// Rate of the links to hosts [default: 100]
    #[arg(long, value_name = "MBIT/S", allow_negative_numbers = true)]
    host_mbps: Option<f64>,
    /// Rate of the links between leaves and the next tier [default: 100]
    #[arg(long, value_name = "MBIT/S", allow_negative_numbers = true)]
    uplink_mbps: Option<f64>,
    /// Rate of the links to cores [default: that of uplinks]
    #[arg(long, value_name = "MBIT/S", allow_negative_numbers = true)]
    core_mbps: Option<f64>,
    /// What a router's port holds [default: 150000]
    #[arg(long, value_name = "BYTES")]
    buffer_bytes: Option<u32>,
    /// What a host's port holds [default: as a router's]
    #[arg(long, value_name = "BYTES")]
    host_buffer_bytes: Option<u32>,
    /// MTU of the fabric [default: 1500]
    #[arg(long, value_name = "BYTES")]
    mtu_bytes: Option<u32>,
    /// Another seed has the routers choose other ways [default: 1]
    #[arg(long, value_name = "N")]
    hash_seed: Option<u32>,
    /// Routers mark packets (ECN) while a port's queue holds more than this
    #[arg(long, value_name = "BYTES")]
    ecn_bytes: Option<u32>,
    /// Routers cut packets to their headers where a queue is full, instead of dropping them
    #[arg(long)]
    trim: bool,
}

impl Args {
    /// The file's values, and the options' over them. Whether all that makes a fabric is looked at by whoever builds it.
    pub fn shape(&self) -> anyhow::Result<Shape> {
        let mut shape = match &self.file {
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
                Shape::from_toml(&text).with_context(|| file.display().to_string())?
            }
            None => Shape::default(),
        };
        let set = |value: &mut u32, option: Option<u32>| *value = option.unwrap_or(*value);
        set(&mut shape.hosts_per_leaf, self.hosts_per_leaf);
        set(&mut shape.leaves, self.leaves);
        set(&mut shape.pods, self.pods);
        set(&mut shape.aggs_per_pod, self.aggs_per_pod);
        set(&mut shape.cores, self.cores);
        set(&mut shape.buffer_bytes, self.buffer_bytes);
        set(&mut shape.mtu_bytes, self.mtu_bytes);
        set(&mut shape.hash_seed, self.hash_seed);
        shape.host_mbps = self.host_mbps.unwrap_or(shape.host_mbps);
        shape.uplink_mbps = self.uplink_mbps.unwrap_or(shape.uplink_mbps);
        shape.core_mbps = self.core_mbps.or(shape.core_mbps);
        shape.spines = self.spines.or(shape.spines);
        shape.host_buffer_bytes = self.host_buffer_bytes.or(shape.host_buffer_bytes);
        shape.ecn_bytes = self.ecn_bytes.or(shape.ecn_bytes);
        shape.trim |= self.trim;
        Ok(shape)
    }
}
