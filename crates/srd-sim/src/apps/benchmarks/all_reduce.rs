//! All-reduce: every rank has a vector, and in the end all have the sum. Flat, it treats all ranks alike; topology-aware, it
//! sums on each node first, so that one rank of a node talks to other nodes.

use crate::apps::script::{Script, Step};
use srd_wire::BitRate;

/// Ranks of nodes, one node's behind the other's, and what they sum.
#[derive(Clone, Copy, Debug)]
pub struct AllReduce {
    /// Nodes; a power of two.
    pub nodes: u32,
    /// Ranks of a node; a power of two.
    pub per_node: u32,
    /// Bytes of a vector.
    pub bytes: u64,
    /// How fast a rank adds one vector to another.
    pub adds: BitRate,
}

/// What is being written.
struct Writer {
    of: AllReduce,
    script: Vec<Step>,
    tag: u64,
}

impl AllReduce {
    /// Recursive doubling among all ranks, `times` times, between two marks: in round k each exchanges with the rank whose
    /// number differs in bit k. Numbers are given to nodes in turn if `scattered`, as a topology-blind layout may;
    /// otherwise the first rounds stay on the node.
    pub fn flat(self, scattered: bool, times: u32) -> Vec<Script> {
        let ranks = self.nodes * self.per_node;
        let place = |number: u32| match scattered {
            true => number % self.nodes * self.per_node + number / self.nodes,
            false => number,
        };
        let all: Vec<u32> = (0..ranks).map(place).collect();
        self.write(times, |writer, rank| writer.exchange(&all, rank))
    }

    /// On each node up a tree to its first rank, recursive doubling among these, and down the trees again; `times` times,
    /// between two marks.
    pub fn on_node_first(self, times: u32) -> Vec<Script> {
        let leaders: Vec<u32> = (0..self.nodes).map(|node| node * self.per_node).collect();
        self.write(times, |writer, rank| {
            let leader = rank - rank % self.per_node;
            writer.reduce(leader, rank);
            if rank == leader {
                writer.exchange(&leaders, rank);
            } else {
                writer.tag += leaders.len().ilog2() as u64;
            }
            writer.broadcast(leader, rank);
        })
    }

    fn write(self, times: u32, body: impl Fn(&mut Writer, u32)) -> Vec<Script> {
        assert!(
            self.nodes.is_power_of_two() && self.per_node.is_power_of_two(),
            "nodes and their ranks: powers of two"
        );
        let script = |rank| {
            let mut writer = Writer { of: self, script: vec![Step::Mark], tag: 0 };
            (0..times).for_each(|_| body(&mut writer, rank));
            writer.script.push(Step::Mark);
            writer.script.into()
        };
        (0..self.nodes * self.per_node).map(script).collect()
    }
}

impl Writer {
    fn send(&mut self, to: u32) {
        self.script.push(Step::Send { to, tag: self.tag, bytes: self.of.bytes });
    }

    fn recv(&mut self, from: u32) {
        self.script.push(Step::Recv { from, tag: self.tag, bytes: self.of.bytes });
    }

    fn wait(&mut self) {
        self.script.push(Step::Wait { open: 0 });
    }

    /// Adds what has come to its own vector.
    fn add(&mut self) {
        self.script.push(Step::Compute(self.of.adds.time_for(self.of.bytes)));
    }

    /// Recursive doubling among `group`, a power of two of ranks.
    fn exchange(&mut self, group: &[u32], rank: u32) {
        let own = group.iter().position(|&member| member == rank).expect("a member exchanges");
        for round in 0..group.len().ilog2() {
            self.tag += 1;
            let peer = group[own ^ 1 << round];
            self.recv(peer);
            self.send(peer);
            self.wait();
            self.add();
        }
    }

    /// A binomial tree of the node's ranks to `leader`.
    fn reduce(&mut self, leader: u32, rank: u32) {
        let own = rank - leader;
        for round in 0..self.of.per_node.ilog2() {
            self.tag += 1;
            let bit = 1 << round;
            match own % (2 * bit) {
                0 => {
                    self.recv(rank + bit);
                    self.wait();
                    self.add();
                }
                place if place == bit => {
                    self.send(rank - bit);
                    self.wait();
                }
                _ => {}
            }
        }
    }

    /// The same tree, the other way.
    fn broadcast(&mut self, leader: u32, rank: u32) {
        let own = rank - leader;
        for round in (0..self.of.per_node.ilog2()).rev() {
            self.tag += 1;
            let bit = 1 << round;
            match own % (2 * bit) {
                0 => self.send(rank + bit),
                place if place == bit => {
                    self.recv(rank - bit);
                    self.wait();
                }
                _ => {}
            }
        }
        self.wait();
    }
}
