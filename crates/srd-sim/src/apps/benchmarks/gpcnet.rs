//! GPCNeT's network_load_test 1.3 (Chunduri and others, SC'19): programs whose messages must be quick, the victims, on a
//! fifth of the nodes, and four kinds of congestors on the others. Each test runs alone first and then among congestors; how
//! much worse it gets is the congestion impact.
//!
//! Nodes are shuffled, so every program is spread over the fabric. The ranks with the same number on their nodes form a
//! *slice*; slices run the same test at the same time, each for itself. The host of an incast so has as many incasts as ranks.

use crate::apps::collective::Group;
use crate::apps::draw::Draw;
use crate::apps::measure::spans;
use crate::apps::script::Script;
use crate::apps::writer::Writer;
use srd_wire::{Nanos, Time};

/// A test, alone or among congestors. Numbers in brackets are GPCNeT's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GpcNet {
    /// Nodes; at least [`LEAST_NODES`].
    pub nodes: u32,
    /// Ranks of a node.
    pub per_node: u32,
    /// The victims' test.
    pub test: Test,
    /// Who else is there.
    pub congestors: Congestors,
    /// Orders of the victims (30 for rings); all-reduces have but one.
    pub rings: u32,
    /// Measurements of each order: see [`Test::iterations`].
    pub iterations: u32,
    /// How often it is done before, not measured: see [`Test::warmup`].
    pub warmup: u32,
    /// The victims begin so much later. (The time of two passes of the congestors.)
    pub head_start: Nanos,
}

/// What victims do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// A few bytes to and from both neighbours in a random ring: half the time of that, in us.
    Latency,
    /// Eight times 128 KiB to both neighbours in a random ring, and a barrier: MiB/s of a rank.
    Bandwidth,
    /// An all-reduce of a few bytes: us.
    AllReduce,
}

/// What congestors do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Congestor {
    /// All-to-all, pairwise.
    AllToAll,
    /// All send to one.
    Incast,
    /// All write into the memory of one.
    PutIncast,
    /// All read from the memory of one.
    GetBroadcast,
}

/// Which congestors there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Congestors {
    /// None: their nodes are idle.
    None,
    /// These only; the nodes of the others are idle. (Not in GPCNeT: it tells who does the harm.)
    Only(Congestor),
    /// All at once.
    All,
}

/// What a node is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It runs the test.
    Victim,
    /// It congests, or would.
    Congestor(Congestor),
}

/// Average and tail as GPCNeT prints them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figures {
    /// Over ranks and orders, each the mean over its iterations.
    pub average: f64,
    /// 99 of 100 iterations are at least as good.
    pub tail: f64,
}

const CONGESTORS: [Congestor; 4] =
    [Congestor::AllToAll, Congestor::Incast, Congestor::PutIncast, Congestor::GetBroadcast];
/// Fewest nodes: two victims, and two of each congestor (build_subcomms).
pub const LEAST_NODES: u32 = 10;
/// CONGESTOR_NODE_FRAC, in tenths.
const CONGESTORS_OF_TEN: u64 = 8;
/// Bytes of a victim's short message.
const SHORT: u64 = 8;
/// BW_MSG_COUNT doubles.
const LONG: u64 = 16_384 * 8;
/// BW_OUTSTANDING: messages to each neighbour.
const OUTSTANDING: u32 = 8;
/// A2A_MSG_COUNT, INCAST_MSG_COUNT and BCAST_MSG_COUNT doubles.
const CONGESTING: u64 = 512 * 8;
/// Iterations of a congestor's pass (..._BASELINE_ITERS) among up to so many ranks (..._BASE_NODES), and a first one.
const PASS: (u64, u64) = (512, 32);
const TO_RIGHT: u64 = 81;
const TO_LEFT: u64 = 82;
const CONGESTION: u64 = 987;

impl Test {
    /// What GPCNeT measures for each order (NUM_..._ITERS).
    pub fn iterations(self) -> u32 {
        match self {
            Test::Latency | Test::AllReduce => 200,
            Test::Bandwidth => 8,
        }
    }

    /// The unit of what it measures.
    pub fn unit(self) -> &'static str {
        match self {
            Test::Latency | Test::AllReduce => "us",
            Test::Bandwidth => "MiB/s of a rank",
        }
    }

    /// What it does before.
    pub fn warmup(self) -> u32 {
        match self {
            Test::Latency => 200,
            Test::Bandwidth | Test::AllReduce => 1,
        }
    }
}

impl GpcNet {
    /// A test as GPCNeT has it. It would repeat it for ten seconds.
    pub fn new(nodes: u32, per_node: u32, test: Test, congestors: Congestors) -> GpcNet {
        let (iterations, warmup) = (test.iterations(), test.warmup());
        let rings = if test == Test::AllReduce { 1 } else { 30 };
        let head_start = Nanos::from_micros(200);
        GpcNet { nodes, per_node, test, congestors, rings, iterations, warmup, head_start }
    }

    /// Which node does what, and in which order. The same seed gives the same for all tests and congestors.
    ///
    /// # Panics
    /// With fewer than [`LEAST_NODES`].
    pub fn plan(&self, seed: u64) -> Plan {
        assert!(self.nodes >= LEAST_NODES, "GPCNeT needs {LEAST_NODES} nodes");
        let mut draw = Draw::of(seed, 0x6763_6e65);
        let mut nodes: Vec<u32> = (0..self.nodes).collect();
        draw.shuffle(&mut nodes);
        let congestors = (self.nodes as u64 * CONGESTORS_OF_TEN / 10) as usize;
        let (congestors, victims) = nodes.split_at(congestors);
        let mut colours: Vec<usize> = (0..congestors.len()).collect();
        draw.shuffle(&mut colours);
        let mut groups: [Vec<u32>; 4] = Default::default();
        for (&node, colour) in congestors.iter().zip(colours) {
            groups[colour % 4].push(node);
        }
        Plan { of: *self, victims: victims.to_vec(), groups, seed }
    }

    /// From all ranks' marks, what GPCNeT prints; `None` without marks.
    pub fn figures(&self, marks: &[Vec<Time>]) -> Option<Figures> {
        let value = |span: f64| match self.test {
            Test::Latency => span / 2e3,
            Test::AllReduce => span / 1e3,
            Test::Bandwidth => (2 * OUTSTANDING as u64 * LONG) as f64 * 1e9 / (span * (1 << 20) as f64),
        };
        let spans: Vec<Vec<f64>> =
            marks.iter().map(|marks| spans(marks).map(|span| span.as_f64()).collect()).collect();
        let orders = spans.iter().flat_map(|spans: &Vec<f64>| spans.chunks(self.iterations as usize));
        let means: Vec<f64> =
            orders.map(|order| value(order.iter().sum::<f64>() / order.len() as f64)).collect();
        let mut all: Vec<f64> = spans.iter().flatten().copied().collect();
        all.sort_by(f64::total_cmp);
        // Long spans are bad ones, whatever is made of them.
        let tail = *all.get((all.len() * 99).div_ceil(100).saturating_sub(1))?;
        Some(Figures { average: means.iter().sum::<f64>() / means.len() as f64, tail: value(tail) })
    }

    /// How many times worse the second is: of average and tail.
    pub fn impact(&self, alone: Figures, among: Figures) -> (f64, f64) {
        match self.test {
            Test::Bandwidth => (alone.average / among.average, alone.tail / among.tail),
            Test::Latency | Test::AllReduce => (among.average / alone.average, among.tail / alone.tail),
        }
    }
}

/// Which node does what.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    of: GpcNet,
    victims: Vec<u32>,
    /// Nodes of each congestor, the first one the target where there is one.
    groups: [Vec<u32>; 4],
    seed: u64,
}

impl Plan {
    /// What a node is for.
    pub fn role(&self, node: u32) -> Role {
        let group = self.groups.iter().position(|group| group.contains(&node));
        group.map_or(Role::Victim, |group| Role::Congestor(CONGESTORS[group]))
    }

    /// The scripts by rank, node behind node, and whether each begins again at its end: those of congestors do. Only victims
    /// have marks, a measurement for each iteration.
    pub fn scripts(&self) -> Vec<(Script, bool)> {
        let GpcNet { nodes, per_node, .. } = self.of;
        let mut scripts = vec![(Script::default(), false); nodes as usize * per_node as usize];
        let all_victims: Vec<u32> = self
            .victims
            .iter()
            .flat_map(|node| (0..per_node).map(move |local| node * per_node + local))
            .collect();
        for local in 0..per_node {
            let slice =
                |nodes: &[u32]| nodes.iter().map(|node| node * per_node + local).collect::<Vec<u32>>();
            let victims = slice(&self.victims);
            let rings = self.rings(&victims, local);
            for own in 0..victims.len() as u32 {
                let everyone = Group { ranks: &all_victims, own: own * per_node + local };
                let script = self.victim(everyone, Group { ranks: &victims, own }, &rings);
                scripts[victims[own as usize] as usize].0 = script;
            }
            for (group, congestor) in self.groups.iter().zip(CONGESTORS) {
                let there = match self.of.congestors {
                    Congestors::None => false,
                    Congestors::Only(only) => only == congestor,
                    Congestors::All => true,
                };
                let ranks = slice(group);
                for own in (0..ranks.len() as u32).filter(|_| there) {
                    let script = congestor.script(Group { ranks: &ranks, own });
                    scripts[ranks[own as usize] as usize] = (script, true);
                }
            }
        }
        scripts
    }

    /// Orders of the victims of a slice.
    fn rings(&self, victims: &[u32], local: u32) -> Vec<Vec<u32>> {
        let ring = |ring: u32| {
            let mut order = victims.to_vec();
            Draw::of(self.seed, 1 << 40 | (local as u64) << 20 | ring as u64).shuffle(&mut order);
            order
        };
        (0..self.of.rings).map(ring).collect()
    }

    fn victim(&self, everyone: Group<'_>, slice: Group<'_>, rings: &[Vec<u32>]) -> Script {
        let GpcNet { test, warmup, iterations, head_start, .. } = self.of;
        let mut writer = Writer::default();
        writer.compute(head_start);
        let rank = slice.at(slice.own);
        for ring in rings {
            let own = ring.iter().position(|&other| other == rank).expect("a ring has all of its slice");
            let ring = Group { ranks: ring, own: own as u32 };
            let once = |writer: &mut Writer| match test {
                Test::Latency => writer.both_neighbours(ring, SHORT, 1),
                Test::Bandwidth => {
                    writer.both_neighbours(ring, LONG, OUTSTANDING);
                    writer.barrier(slice);
                }
                Test::AllReduce => writer.all_reduce(slice, SHORT),
            };
            writer.barrier(everyone);
            writer.repeat(warmup, once);
            writer.repeat(iterations, |writer| writer.measured(once));
            writer.barrier(slice);
        }
        writer.script()
    }
}

impl Congestor {
    /// A pass: iterations one behind the other, and the all-reduce by which GPCNeT's congestors agree whether to go on. (There
    /// it goes on while they iterate; here they wait for it, a few microseconds of a pass of 513 iterations.)
    fn script(self, group: Group<'_>) -> Script {
        let size = group.size() as u64;
        let iterations = match self {
            // Only all-to-all and incasts get shorter with more ranks: with broadcasts, a slip scales another's (run_congestor_tests).
            Congestor::AllToAll | Congestor::Incast | Congestor::PutIncast if size > PASS.1 => {
                (PASS.0 * PASS.1 / size).max(1)
            }
            _ => PASS.0,
        };
        let mut writer = Writer::default();
        writer.repeat(iterations as u32 + 1, |writer| self.write(writer, group));
        writer.all_reduce(group, SHORT);
        writer.script()
    }

    fn write(self, writer: &mut Writer, group: Group<'_>) {
        let target = group.at(0);
        match self {
            Congestor::AllToAll => writer.all_to_all_by_pairs(group, CONGESTING),
            Congestor::Incast if group.own == 0 => {
                (1..group.size()).for_each(|from| writer.recv(group.at(from), CONGESTION, CONGESTING));
                writer.wait();
            }
            Congestor::PutIncast | Congestor::GetBroadcast if group.own == 0 => {}
            Congestor::Incast => {
                writer.send(target, CONGESTION, CONGESTING);
                writer.wait();
            }
            Congestor::PutIncast => {
                writer.put(target, CONGESTING);
                writer.wait();
            }
            Congestor::GetBroadcast => {
                writer.get(target, CONGESTING);
                writer.wait();
            }
        }
    }
}

impl Writer {
    /// So many messages to and from both neighbours in a ring.
    fn both_neighbours(&mut self, ring: Group<'_>, bytes: u64, messages: u32) {
        let (left, right) = (ring.before(1), ring.after(1));
        for _ in 0..messages {
            self.recv(left, TO_RIGHT, bytes);
            self.recv(right, TO_LEFT, bytes);
        }
        for _ in 0..messages {
            self.send(left, TO_LEFT, bytes);
            self.send(right, TO_RIGHT, bytes);
        }
        self.wait();
    }
}
