//! A step of training as its messages show it: each rank has a share of the layers and of their weights (`model` is what others have
//! published of those), works through its microbatches, and exchanges what it must with the others. `step` writes that as a graph of
//! operations, with the collective operations of `exchange`; `alone` is what the step would take on a network that takes no time.
//!
//! Ranks lie as Megatron-LM's do (Narayanan and others, 2021): shards of a layer beside each other, then replicas, then stages.

mod alone;
mod exchange;
mod model;
mod step;

pub use model::{MODELS, Model};
pub use step::BYTES;

use crate::apps::draw::Draw;
use crate::apps::script::Script;
use alone::time_alone;
use srd_wire::{Nanos, Time};
use std::sync::Arc;

/// How gradients are summed up over replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduce {
    /// An all-reduce in a ring.
    Ring,
    /// An all-reduce up a binary tree and down again, in parts that follow one another.
    Tree,
    /// Each replica sums up its part, and in the end all get all parts: what replicas do that share the optimizer's state (Rajbhandari and
    /// others, 2020).
    Sharded,
}

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Training {
    /// What is trained.
    pub model: Model,
    /// Ranks that share each layer (tensor parallel).
    pub tensor: u32,
    /// Ranks that have different layers (pipeline parallel).
    pub pipeline: u32,
    /// Ranks that have different samples (data parallel).
    pub data: u32,
    /// Of these, those that have different experts (expert parallel).
    pub expert: u32,
    /// Microbatches of a step and replica.
    pub microbatches: u32,
    /// Tokens of a microbatch, which is one sequence.
    pub tokens: u64,
    /// What a rank computes, in 10^9 floating-point operations a second.
    pub gflops: f64,
    /// Bytes of gradients that are summed up together.
    pub bucket: u64,
    /// How.
    pub reduce: Reduce,
    /// How uneven experts are chosen: the one of rank k with a weight of k to the power of minus this.
    pub skew: f64,
    /// Decides which expert is chosen how often.
    pub seed: u64,
    /// Steps, one behind the other.
    pub steps: u32,
}

/// What the steps have taken.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepTimes {
    /// A step.
    pub step: Nanos,
    /// The same on a network that takes no time: computing, and waiting for others that compute.
    pub alone: Nanos,
}

/// Where a rank is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    stage: u32,
    replica: u32,
    shard: u32,
}

impl Training {
    /// How many ranks it has.
    pub fn ranks(&self) -> u32 {
        self.tensor * self.pipeline * self.data
    }

    fn place(&self, rank: u32) -> Place {
        let (shard, rest) = (rank % self.tensor, rank / self.tensor);
        Place { shard, replica: rest % self.data, stage: rest / self.data }
    }

    fn rank(&self, place: Place) -> u32 {
        (place.stage * self.data + place.replica) * self.tensor + place.shard
    }

    /// The part of all choices that each rank of a group of experts gets.
    fn shares(&self) -> Vec<f64> {
        let experts = self.model.experts.max(1);
        let mut weights: Vec<f64> = (1..=experts).map(|k| f64::from(k).powf(-self.skew)).collect();
        Draw::of(self.seed, 0x6578_7074).shuffle(&mut weights);
        let all: f64 = weights.iter().sum();
        let each = (experts / self.expert) as usize;
        weights.chunks(each).map(|of_rank| of_rank.iter().sum::<f64>() / all).collect()
    }

    /// The scripts, by rank.
    pub fn scripts(&self) -> Vec<Script> {
        let shares = self.shares();
        let graph = |rank| Script::Graph(Arc::new(step::graph(self, rank, &shares)));
        (0..self.ranks()).map(graph).collect()
    }

    /// From its ranks' marks; `None` of a run that did not come to its end.
    pub fn times(&self, marks: &[Vec<Time>]) -> Option<StepTimes> {
        let first = marks.iter().map(|marks| marks.first().copied()).min()??;
        let last = marks
            .iter()
            .map(|marks| marks.get(1).copied())
            .collect::<Option<Vec<Time>>>()?
            .into_iter()
            .max()?;
        let each = |all: Nanos| Nanos(all.0 / u64::from(self.steps));
        Some(StepTimes { step: each(last.since(first)), alone: each(time_alone(self.scripts())?) })
    }

    /// At most so many operations has a rank, or a little more.
    pub fn ops(&self) -> u64 {
        let layers = u64::from(self.model.layers / self.pipeline);
        let ring = |size: u32| if size > 1 { 4 * u64::from(size) } else { 0 };
        let layer = 3 + 2 * ring(self.tensor) + ring(self.expert);
        let blocks = 2 * u64::from(self.microbatches) * (layers * layer + 3);
        let gradients = self.model.parameters() * step::BYTES / u64::from(self.tensor * self.pipeline);
        let parts = if self.reduce == Reduce::Tree { 6 * exchange::MOST_PARTS } else { ring(self.data) + 2 };
        let buckets = (gradients / self.bucket + layers + 2) * parts * u64::from(self.data > 1);
        u64::from(self.steps) * (blocks + buckets)
    }
}
