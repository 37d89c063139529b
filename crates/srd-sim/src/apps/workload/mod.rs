//! Generators of traffic: each turns a few numbers into flows, and triggers that start them.
//!
//! One file per pattern. [`Load`] is what most of them share: how much each pair of processes moves, and how often.
//! All randomness comes from [`Draw`]. To add one: a file here, a variant of [`Kind`], a line in [`Workload::add_to`],
//! and one in `input/scenario/workloads.rs`.

mod all_to_all;
mod incast;
mod join_leave;
mod load;
mod pairs;
mod permutation;
mod rack_pairs;
mod ring;
mod tree;

pub use all_to_all::AllToAll;
pub use incast::Incast;
pub use join_leave::JoinLeave;
pub use load::Load;
pub use pairs::Pairs;
pub use permutation::Permutation;
pub use rack_pairs::RackPairs;
pub use ring::RingAllReduce;
pub use tree::TreeAllReduce;

use crate::apps::draw::Draw;
use crate::apps::flow::{Flow, MAX_FLOWS, Place, Size, Start, Traffic, TriggerKind};
use crate::net::Topology;
use srd_baselines::units::Ps;

/// A pattern with its name and beginning.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// For reports.
    pub name: String,
    /// When it begins.
    pub start: Ps,
    /// Index of the transport that moves its flows.
    pub transport: u16,
    /// Which pattern.
    pub kind: Kind,
}

/// The patterns.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// Given pairs.
    Pairs(Pairs),
    /// Many to one.
    Incast(Incast),
    /// Every host sends to one other and receives from one other.
    Permutation(Permutation),
    /// The hosts of one leaf to those of another.
    RackPairs(RackPairs),
    /// Every host to every other.
    AllToAll(AllToAll),
    /// All-reduce around a ring.
    RingAllReduce(RingAllReduce),
    /// All-reduce up and down a binary tree.
    TreeAllReduce(TreeAllReduce),
    /// Flows to one receiver that begin one after another and end one after another.
    JoinLeave(JoinLeave),
}

impl Workload {
    /// Puts its flows into `traffic`. `seed` feeds what is random in it. The error says what makes it impossible on
    /// this topology.
    pub fn add_to(&self, traffic: &mut Traffic, topology: &Topology, seed: u64) -> Result<(), String> {
        let mut draw = Draw::of(seed, traffic.workloads.len() as u64);
        let mut plan = Plan::begin(traffic, self, topology.hosts);
        match &self.kind {
            Kind::Pairs(pairs) => pairs.plan(&mut plan, &mut draw),
            Kind::Incast(incast) => incast.plan(&mut plan, &mut draw),
            Kind::Permutation(permutation) => permutation.plan(&mut plan, &mut draw),
            Kind::RackPairs(pairs) => pairs.plan(&mut plan, &mut draw, topology),
            Kind::AllToAll(all) => all.plan(&mut plan),
            Kind::RingAllReduce(ring) => ring.plan(&mut plan),
            Kind::TreeAllReduce(tree) => tree.plan(&mut plan),
            Kind::JoinLeave(flows) => flows.plan(&mut plan),
        }
    }
}

/// The flows of one workload, as they are put into a [`Traffic`].
struct Plan<'a> {
    traffic: &'a mut Traffic,
    workload: u16,
    transport: u16,
    start: Ps,
    hosts: u32,
    next_id: u32,
}

impl Plan<'_> {
    fn begin<'a>(traffic: &'a mut Traffic, of: &Workload, hosts: u32) -> Plan<'a> {
        let (next_id, workload) = (traffic.next_id(), traffic.add_workload(&of.name));
        Plan { workload, transport: of.transport, traffic, start: of.start, hosts, next_id }
    }

    /// Refuses what cannot be: to be called before flows are added.
    fn expect(&self, flows: u64, hosts: impl IntoIterator<Item = u32>) -> Result<(), String> {
        if let Some(host) = hosts.into_iter().find(|&host| host >= self.hosts) {
            return Err(format!("there is no host {host}: this fabric has hosts 0 to {}", self.hosts - 1));
        }
        let all = self.traffic.flows.len() as u64 + flows;
        if all > MAX_FLOWS {
            return Err(format!("this would make {all} flows: at most {MAX_FLOWS}"));
        }
        Ok(())
    }

    /// Adds a flow that fires nothing yet. Returns its index.
    fn flow(&mut self, (src, dst): (Place, Place), size: Size, start: Start) -> u32 {
        let id = self.next_id;
        self.next_id = id.saturating_add(1);
        let (on_sent, on_received) = (Vec::new(), Vec::new());
        self.traffic.add_flow(Flow {
            id,
            workload: self.workload,
            transport: self.transport,
            src,
            dst,
            size,
            start,
            on_sent,
            on_received,
        })
    }

    fn trigger(&mut self, kind: TriggerKind) -> u32 {
        self.traffic.add_trigger(kind)
    }

    fn barrier(&mut self, flows: usize) -> u32 {
        self.trigger(TriggerKind::Barrier(flows as u32))
    }

    /// Lets `flow` fire `trigger` when its sender is done.
    fn when_sent(&mut self, flow: u32, trigger: u32) {
        self.traffic.flows[flow as usize].on_sent.push(trigger);
    }

    /// Lets `flow` fire `trigger` when its receiver has everything.
    fn when_received(&mut self, flow: u32, trigger: u32) {
        self.traffic.flows[flow as usize].on_received.push(trigger);
    }
}

/// Process 0 of `host`.
fn place(host: u32) -> Place {
    Place { host, process: 0 }
}

/// Refuses a list in which a host comes twice.
fn all_differ(hosts: &[u32]) -> Result<(), String> {
    let mut sorted = hosts.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("host {} is listed twice", pair[0])),
        None => Ok(()),
    }
}
