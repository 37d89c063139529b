//! The topology that htsim takes without `-topo`: the k-ary fat tree, 1 us per cable, switches without latency.

use crate::net::{Clos, Tier, Topology};
use srd_baselines::units::Ps;
use srd_wire::BitRate;

/// Propagation of each cable. main_uec.cpp: `hop_latency`.
const CABLE: Ps = Ps::from_micros(1);

/// The fat tree of exactly `hosts` hosts, all cables at `rate`. htsim looks for the k with k^3/4 hosts and gives up
/// where there is none.
pub fn default_tree(hosts: u32, rate: BitRate) -> Result<Topology, String> {
    let sizes: Vec<(u32, u32)> = (1..=80).map(|half| (2 * half, 2 * half * half * half)).collect();
    match sizes.iter().find(|(_, size)| *size == hosts) {
        Some(&(k, _)) => Clos::fat_tree(k, Tier::of(rate, CABLE))?.build(),
        None => {
            let above = sizes.iter().position(|(_, size)| *size > hosts).unwrap_or(sizes.len() - 1);
            let near: Vec<String> = match above.checked_sub(1) {
                Some(below) => sizes[below..=above].iter().map(|(_, size)| size.to_string()).collect(),
                None => vec![sizes[above].1.to_string()],
            };
            Err(format!(
                "no fat tree has {hosts} hosts: the counts are k^3/4 for even k, nearest {}, and among them 16 (k = 4), \
                 128 (k = 8) and 1024 (k = 16). Give a topology file (--topo FILE.topo) for another number of hosts",
                near.join(" and ")
            ))
        }
    }
}
