//! What one rank does in a step.

use super::exchange::{Circle, Loom};
use super::{Place, Reduce, Training};
use crate::apps::graph::Graph;
use srd_wire::Nanos;

/// Bytes of an activation, and of a gradient: BF16.
pub const BYTES: u64 = 2;

/// Tags, by whom messages are between.
const SHARDS: u64 = 1 << 32;
const FORWARD: u64 = 2 << 32;
const BACKWARD: u64 = 3 << 32;
const REPLICAS: u64 = 4 << 32;
const EXPERTS: u64 = 5 << 32;
const SAME_EXPERTS: u64 = 6 << 32;

/// A pass of a microbatch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    Forward,
    Backward,
}

/// The passes of a stage in their order: forward until the pipeline is full, then one forward and one backward in turn
/// ("1F1B": Narayanan and others, 2021, section 2.2.1), then backward what is left.
fn schedule(stage: u32, stages: u32, microbatches: u32) -> Vec<(Pass, u32)> {
    let ahead = (stages - 1 - stage).min(microbatches);
    let mut passes: Vec<(Pass, u32)> = (0..ahead).map(|m| (Pass::Forward, m)).collect();
    for m in 0..microbatches {
        if m + ahead < microbatches {
            passes.push((Pass::Forward, m + ahead));
        }
        passes.push((Pass::Backward, m));
    }
    passes
}

/// Gradients of one kind that wait to be summed up, and the end of what was summed up before.
struct Bucket {
    circle: Circle,
    tag: u64,
    waiting: u64,
    last: Option<u32>,
    /// Those that have been summed up, for the end of a step in which each has a part.
    done: Vec<u64>,
}

struct Rank<'a> {
    training: &'a Training,
    place: Place,
    shares: &'a [f64],
    loom: Loom,
    shards: Circle,
    experts: Circle,
    /// Gradients that all replicas have, and those of experts, which only some have.
    common: Bucket,
    of_experts: Bucket,
}

/// The operations of a rank; `shares` is how much of all choices each rank of a group of experts gets.
pub(super) fn graph(training: &Training, rank: u32, shares: &[f64]) -> Graph {
    let place = training.place(rank);
    let circle = |own: u32, places: Vec<Place>| Circle {
        ranks: places.into_iter().map(|place| training.rank(place)).collect(),
        own: own as usize,
    };
    let (expert, group) = (place.replica % training.expert, place.replica / training.expert);
    let replicas = |numbers: Vec<u32>| -> Vec<Place> {
        numbers.into_iter().map(|replica| Place { replica, ..place }).collect()
    };
    let bucket = |circle, tag| Bucket { circle, tag, waiting: 0, last: None, done: Vec::new() };
    let same = (0..training.data / training.expert).map(|group| group * training.expert + expert).collect();
    let beside = (0..training.expert).map(|expert| group * training.expert + expert).collect();
    let mut rank = Rank {
        shards: circle(place.shard, (0..training.tensor).map(|shard| Place { shard, ..place }).collect()),
        experts: circle(expert, replicas(beside)),
        common: bucket(circle(place.replica, replicas((0..training.data).collect())), REPLICAS),
        of_experts: bucket(circle(group, replicas(same)), SAME_EXPERTS),
        training,
        place,
        shares,
        loom: Loom::default(),
    };
    let mut begin = rank.loom.join(&[]);
    for _ in 0..training.steps {
        begin = rank.step(begin);
    }
    rank.loom.graph()
}

impl Rank<'_> {
    /// A step behind `begin`. Its end.
    fn step(&mut self, begin: u32) -> u32 {
        let Training { pipeline, microbatches, tokens, model, .. } = self.training;
        let stage = self.place.stage;
        let neighbour = |stage| self.training.rank(Place { stage, ..self.place });
        let previous = stage.checked_sub(1).map(neighbour);
        let next = (stage + 1 < *pipeline).then(|| neighbour(stage + 1));
        // Each shard sends all of it (without the scatter/gather of Narayanan and others, 2021, section 4.1).
        let bytes = tokens * model.hidden * BYTES;
        let mut last = begin;
        let mut ends = Vec::new();
        for (pass, m) in schedule(stage, *pipeline, *microbatches) {
            let (from, to, tag) = match pass {
                Pass::Forward => (previous, next, FORWARD),
                Pass::Backward => (next, previous, BACKWARD),
            };
            if let Some(from) = from {
                let come = self.loom.recv(from, tag, bytes, &[begin]);
                last = self.loom.join(&[come, last]);
            }
            last = self.pass(pass, m + 1 == *microbatches, last);
            if let Some(to) = to {
                ends.push(self.loom.send(to, tag, bytes, &[last]));
            }
        }
        ends.push(last);
        ends.extend(self.sum_up_rest(last));
        self.loom.join(&ends)
    }

    /// Time for so many floating-point operations, of which each shard does its part.
    fn time(&self, operations: f64) -> Nanos {
        Nanos((operations / f64::from(self.training.tensor) / self.training.gflops).round() as u64)
    }

    /// The layers of this stage.
    fn layers(&self) -> std::ops::Range<u32> {
        let each = self.training.model.layers / self.training.pipeline;
        self.place.stage * each..(self.place.stage + 1) * each
    }

    fn is_last_stage(&self) -> bool {
        self.place.stage + 1 == self.training.pipeline
    }

    /// A pass of a microbatch through this stage, behind `last`. Backward takes twice the time of forward, once for what goes on
    /// and once for the weights. In the last one, gradients are summed up as soon as they are there.
    fn pass(&mut self, pass: Pass, is_last: bool, mut last: u32) -> u32 {
        let model = &self.training.model;
        let (tokens, hidden) = (self.training.tokens as f64, model.hidden);
        let times = if pass == Pass::Forward { 1.0 } else { 2.0 };
        let words = self.time(times * 2.0 * tokens * (model.vocabulary * hidden) as f64);
        let layers: Vec<u32> = match pass {
            Pass::Forward => self.layers().collect(),
            Pass::Backward => self.layers().rev().collect(),
        };
        let sums_up = pass == Pass::Backward && is_last;
        if pass == Pass::Backward && self.is_last_stage() {
            last = self.loom.compute(words, &[last]);
            if sums_up {
                self.sum_up(false, model.vocabulary * hidden, last);
            }
        }
        for layer in layers {
            last = self.layer(layer, times, last);
            if sums_up {
                self.sum_up(false, model.outside_experts(layer), last);
                if model.has_experts(layer) {
                    let experts = u64::from(model.experts / self.training.expert);
                    self.sum_up(true, experts * model.expert, last);
                }
            }
        }
        if pass == Pass::Forward && self.is_last_stage() {
            last = self.loom.compute(words, &[last]);
        }
        // The words before the first layer are looked up, which takes no time; their gradients are summed up all the same.
        if sums_up && self.place.stage == 0 && !(model.tied && self.is_last_stage()) {
            self.sum_up(false, model.vocabulary * hidden, last);
        }
        last
    }

    /// A layer: the attention, and what comes behind it, each with what shards exchange (Shoeybi and others, 2019).
    fn layer(&mut self, layer: u32, times: f64, last: u32) -> u32 {
        let model = &self.training.model;
        let tokens = self.training.tokens as f64;
        let bytes = self.training.tokens * model.hidden * BYTES;
        // Two operations for each weight and token, and the products of queries, keys and values: 4 for each pair of tokens and each of
        // the width of all heads (Narayanan and others, 2021, appendix).
        let pairs = 4.0 * tokens * tokens * (model.heads * model.head) as f64;
        let of = |weights: u64| 2.0 * tokens * weights as f64;
        let attention = self.time(times * (of(model.attention) + pairs));
        let mut last = self.loom.compute(attention, &[last]);
        last = self.loom.all_reduce(&self.shards, SHARDS, bytes, last);
        if !model.has_experts(layer) {
            let span = self.time(times * of(model.feed_forward));
            last = self.loom.compute(span, &[last]);
            return self.loom.all_reduce(&self.shards, SHARDS, bytes, last);
        }
        // Each shard exchanges its part of the tokens.
        let choices = tokens * model.chosen as f64;
        let (shares, own) = (self.shares, self.experts.own);
        let each = choices * (model.hidden * BYTES) as f64 / f64::from(self.training.tensor);
        let bytes_to = |place: usize| (each * shares[place]).round() as u64;
        last = self.loom.all_to_all(&self.experts, EXPERTS, bytes_to, |_| bytes_to(own), last);
        let come = choices * shares[own] * self.experts.ranks.len() as f64;
        let span = self.time(times * (of(model.shared) + 2.0 * come * model.expert as f64));
        last = self.loom.compute(span, &[last]);
        last = self.loom.all_to_all(&self.experts, EXPERTS, |_| bytes_to(own), bytes_to, last);
        self.loom.all_reduce(&self.shards, SHARDS, bytes, last)
    }

    /// Gradients of so many weights, of which this rank has a shard, are there behind `last`. Full buckets go at once, one behind the
    /// other (Li and others, 2020, section 3.2.3).
    fn sum_up(&mut self, of_experts: bool, weights: u64, last: u32) {
        let (most, reduce) = (self.training.bucket, self.training.reduce);
        let bucket = if of_experts { &mut self.of_experts } else { &mut self.common };
        bucket.waiting += weights * BYTES / u64::from(self.training.tensor);
        while bucket.waiting >= most {
            bucket.waiting -= most;
            bucket.sum_up(&mut self.loom, reduce, most, last);
        }
    }

    /// What is left goes at the end of the step, and the parts go to all.
    fn sum_up_rest(&mut self, last: u32) -> Vec<u32> {
        let reduce = self.training.reduce;
        let mut ends = Vec::new();
        for bucket in [&mut self.common, &mut self.of_experts] {
            let rest = std::mem::take(&mut bucket.waiting);
            if rest > 0 {
                bucket.sum_up(&mut self.loom, reduce, rest, last);
            }
            let done = std::mem::take(&mut bucket.done);
            let mut end = bucket.last.take();
            if reduce == Reduce::Sharded {
                for bytes in done {
                    end = end.map(|end| self.loom.half_reduce(&bucket.circle, bucket.tag, bytes, end));
                }
            }
            ends.extend(end);
        }
        ends
    }
}

impl Bucket {
    fn sum_up(&mut self, loom: &mut Loom, reduce: Reduce, bytes: u64, last: u32) {
        let begin = match self.last {
            Some(before) => loom.join(&[before, last]),
            None => last,
        };
        self.done.push(bytes);
        self.last = Some(match reduce {
            Reduce::Ring => loom.all_reduce(&self.circle, self.tag, bytes, begin),
            Reduce::Tree => loom.tree_reduce(&self.circle, self.tag, bytes, begin),
            Reduce::Sharded => loom.half_reduce(&self.circle, self.tag, bytes, begin),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_runs_ahead_by_as_many_microbatches_as_there_are_stages_behind_it() {
        use Pass::{Backward as B, Forward as F};
        assert_eq!(schedule(1, 2, 3), [(F, 0), (B, 0), (F, 1), (B, 1), (F, 2), (B, 2)]);
        assert_eq!(schedule(0, 3, 3), [(F, 0), (F, 1), (F, 2), (B, 0), (B, 1), (B, 2)]);
        assert_eq!(schedule(0, 3, 4)[..4], [(F, 0), (F, 1), (F, 2), (B, 0)]);
        assert_eq!(schedule(0, 4, 2), [(F, 0), (F, 1), (B, 0), (B, 1)]);
    }
}
