//! Programs made after applications: they end, move the bytes that formulas say, and take the time that the model says.

use super::net::{Net, run, run_ranks};
use crate::apps::benchmarks::file_servers::FileServers;
use crate::apps::benchmarks::gpcnet::{Congestor, Congestors, Figures, GpcNet, Role, Test};
use crate::apps::benchmarks::grid::Grid;
use crate::apps::benchmarks::hpcg::Hpcg;
use crate::apps::benchmarks::hpl::{Broadcast, Hpl};
use crate::apps::benchmarks::imb::{self, Imb};
use crate::apps::benchmarks::lammps::{Benchmark, Lammps};
use crate::apps::measure::spans;
use crate::apps::rank::Rank;
use proptest::prelude::*;
use srd_wire::{Nanos, Time};

fn marks_of(ranks: &[Rank]) -> Vec<Vec<Time>> {
    ranks.iter().map(|rank| rank.marks().to_vec()).collect()
}

fn run_gpcnet(test: &GpcNet, net: Net) -> (Vec<Rank>, Net) {
    let scripts = test.plan(5).scripts().into_iter();
    run_ranks(scripts.map(|(script, forever)| Rank::new(script).forever(forever)).collect(), net)
}

#[test]
fn a_fifth_of_the_nodes_are_victims_and_congestors_are_equally_many() {
    for nodes in [10, 32, 33, 512] {
        let plan = GpcNet::new(nodes, 2, Test::Latency, Congestors::All).plan(1);
        let count = |role| (0..nodes).filter(|&node| plan.role(node) == role).count() as u32;
        let congestors = nodes * 8 / 10;
        assert_eq!(count(Role::Victim), nodes - congestors);
        for of in [Congestor::AllToAll, Congestor::Incast, Congestor::PutIncast, Congestor::GetBroadcast] {
            assert!(count(Role::Congestor(of)).abs_diff(congestors / 4) <= 1, "{nodes}: {of:?}");
        }
        assert_ne!(plan, GpcNet::new(nodes, 2, Test::Latency, Congestors::All).plan(2), "the seed decides");
    }
}

#[test]
fn victims_measure_what_the_network_does() {
    let (message, byte) = (1000, 1);
    for (test, expected) in [
        // There and back at once, halved; a message of 8 bytes an exchange.
        (Test::Latency, 1.008 / 2.0),
        // Two rounds of doubling among four.
        (Test::AllReduce, 2.016),
        // Here messages do not hinder each other; a barrier of two rounds.
        (Test::Bandwidth, 2.0 * 1048576.0 / 1048576.0 / ((1000.0 + 131072.0 + 2000.0) * 1e-9)),
    ] {
        let gpcnet = GpcNet { rings: 3, iterations: 5, ..GpcNet::new(20, 2, test, Congestors::None) };
        let (ranks, _) = run_gpcnet(&gpcnet, Net::of(message, byte));
        let figures = gpcnet.figures(&marks_of(&ranks)).unwrap();
        let near = |value: f64| (value / expected - 1.0).abs() < 1e-6;
        assert!(near(figures.average) && near(figures.tail), "{test:?}: {figures:?}, not {expected}");
        let measured = ranks.iter().map(|rank| rank.marks().len()).filter(|&marks| marks > 0).count();
        assert_eq!(measured, 8);
    }
}

#[test]
fn congestors_go_on_as_long_as_the_victims_do() {
    let full = GpcNet::new(20, 2, Test::Latency, Congestors::None);
    let alone = GpcNet { rings: 2, warmup: 0, iterations: 50, head_start: Nanos(20_000), ..full };
    let (ranks, net) = run_gpcnet(&alone, Net::of(1000, 1));
    assert!(ranks.iter().all(|rank| !rank.is_endless()));
    let quiet = net.bytes();
    let end = ranks.iter().filter_map(|rank| rank.marks().last()).max().unwrap().0;
    for congestors in [
        Congestors::All,
        Congestors::Only(Congestor::AllToAll),
        Congestors::Only(Congestor::Incast),
        Congestors::Only(Congestor::PutIncast),
        Congestors::Only(Congestor::GetBroadcast),
    ] {
        let test = GpcNet { congestors, ..alone };
        let (ranks, net) = run_gpcnet(&test, Net::of(1000, 1));
        let nodes = if congestors == Congestors::All { 16 } else { 4 };
        assert_eq!(ranks.iter().filter(|rank| rank.is_endless()).count(), 2 * nodes, "{congestors:?}");
        // Each congestor has 4096 bytes under way at least every few message times.
        let least = end / 5096 / 4 * 4096 * nodes as u64;
        assert!(net.bytes() > quiet + least, "{congestors:?}: {}", net.bytes());
    }
}

#[test]
fn impact_is_how_much_worse_it_gets() {
    let latency = GpcNet::new(10, 1, Test::Latency, Congestors::All);
    let bandwidth = GpcNet { test: Test::Bandwidth, ..latency };
    let of = |average, tail| Figures { average, tail };
    assert_eq!(latency.impact(of(2.0, 4.0), of(3.0, 8.0)), (1.5, 2.0));
    assert_eq!(bandwidth.impact(of(3.0, 8.0), of(2.0, 4.0)), (1.5, 2.0));
    assert_eq!(latency.figures(&[vec![], vec![]]), None);
}

#[test]
fn boxes_have_little_surface() {
    let of = |ranks| Grid::of(ranks).ranks;
    assert_eq!(
        [of(1), of(2), of(8), of(12), of(64)],
        [[1, 1, 1], [1, 1, 2], [2, 2, 2], [2, 2, 3], [4, 4, 4]]
    );
    assert_eq!([of(7), of(1024), of(128)], [[1, 1, 7], [8, 8, 16], [4, 4, 8]]);
}

proptest! {
    #[test]
    fn hpcg_moves_its_halos_and_ends(ranks in 1u32..30, x in 2u32..5, y in 2u32..5, z in 2u32..5) {
        let hpcg = Hpcg { ranks, points: [8 * x, 8 * y, 8 * z], iterations: 2, gflops: 1.0 };
        let (all, net) = run(hpcg.scripts(), Net::of(100, 1));
        let grid = Grid::of(ranks);
        // Bytes between two ranks, from those of the whole faces: at every point of the whole grid, those that it sees.
        let exchanged = |level: u32| {
            let sides = |d: usize| {
                let (n, p) = ((hpcg.points[d] >> level) as u64, grid.ranks[d] as u64);
                // A rank's points beside its own along this dimension: none, or one on either side but at the ends.
                (n * p, 2 * (p - 1))
            };
            let [(a, s), (b, t), (c, u)] = [sides(0), sides(1), sides(2)];
            // All but the ranks' own points.
            8 * ((a + s) * (b + t) * (c + u) - a * b * c)
        };
        let sums = net.messages_of(8);
        let per_iteration = 4 * exchanged(0) + 3 * exchanged(1) + 3 * exchanged(2) + exchanged(3);
        prop_assert!(net.bytes() >= 2 * per_iteration);
        prop_assert!(net.bytes() <= 2 * per_iteration + 8 * sums);
        let flops = hpcg.gflops_of(&marks_of(&all)).unwrap();
        prop_assert!(flops <= ranks as f64 && flops > 0.0);
        prop_assert!(ranks > 1 || (flops - 1.0).abs() < 1e-3);
    }

    #[test]
    fn lammps_moves_its_ghosts_and_ends(ranks in 1u32..30, eam: bool, steps in 1u32..45) {
        let benchmark = if eam { Benchmark::Eam } else { Benchmark::Lj };
        let lammps = Lammps { steps, ..Lammps::new(ranks, benchmark) };
        let (all, net) = run(lammps.scripts(), Net::of(1000, 0));
        let each: u64 = (0..ranks).map(|rank| lammps.bytes_per_step(rank)).sum();
        let lists = steps / if eam { 8 } else { 20 };
        prop_assert!(net.bytes() >= each * (steps - lists) as u64 && net.bytes() <= each * 4 * steps as u64);
        let efficiency = lammps.efficiency(&marks_of(&all)).unwrap();
        prop_assert!(efficiency <= 1.0 && efficiency > 0.99, "{efficiency}");
        prop_assert!(all.iter().all(|rank| rank.marks().len() == 2 * steps as usize));
    }
}

#[test]
fn ghosts_of_a_liquid_are_those_of_its_surface() {
    let lammps = Lammps::new(64, Benchmark::Lj);
    // A cube of 33.59 sigma: (33.59 + 5.6)^3 - 33.59^3 times the density are ghosts, with 24 bytes there and back.
    let ghosts = (39.19f64.powi(3) - 33.59f64.powi(3)) * 0.8442;
    let bytes = lammps.bytes_per_step(0) as f64;
    assert!((bytes / (ghosts * 48.0) - 1.0).abs() < 0.01, "{bytes}, not {}", ghosts * 48.0);
    assert_eq!(Lammps::new(1, Benchmark::Lj).bytes_per_step(0), 0);
}

#[test]
fn a_step_alone_takes_what_the_benchmark_takes() {
    for benchmark in [Benchmark::Lj, Benchmark::Eam] {
        let lammps = Lammps { steps: 3, ..Lammps::new(1, benchmark) };
        let (all, _) = run(lammps.scripts(), Net::of(1000, 1));
        assert_eq!(spans(all[0].marks()).collect::<Vec<Nanos>>(), [benchmark.step_alone(); 3]);
    }
}

#[test]
fn every_client_writes_all_its_blocks() {
    for (write, stripes, window) in [(true, 1, 1), (true, 3, 4), (false, 2, 100)] {
        let files = FileServers { servers: 3, clients: 7, write, bytes: 1000, blocks: 20, stripes, window };
        let (all, net) = run(files.scripts(), Net::of(1000, 1));
        let (clients, servers) = if write { (&net.given, &net.taken) } else { (&net.taken, &net.given) };
        assert!((3..10).all(|client| clients[&client] == 20_000));
        let least = servers.values().min().unwrap();
        assert!(servers.len() == 3 && *least >= 20_000 && servers.values().sum::<u64>() == 140_000);
        // A block takes 2 us, or 3 with the request for it; so many go at once.
        let rounds = 20u32.div_ceil(window) as f64;
        let mbps = 20_000.0 / (rounds * if write { 2.0 } else { 3.0 });
        let rates = files.rates(&marks_of(&all));
        assert!(rates.len() == 7 && rates.iter().all(|rate| (rate / mbps - 1.0).abs() < 1e-9), "{rates:?}");
    }
}

#[test]
fn imb_tells_what_a_message_takes() {
    for (benchmark, messages) in
        [(imb::Benchmark::PingPong, 1), (imb::Benchmark::Sendrecv, 2), (imb::Benchmark::Exchange, 4)]
    {
        for ranks in [2, 5, 8] {
            let imb = Imb { ranks, benchmark, bytes: 500, iterations: 10, warmup: 3 };
            let (all, net) = run(imb.scripts(), Net::of(1000, 1));
            let times = imb.times(&marks_of(&all));
            assert!(times.iter().all(|&time| time == 1.5), "{benchmark:?}: {times:?}");
            let partners = if messages == 1 { ranks / 2 * 2 } else { ranks };
            assert_eq!(net.bytes(), 13 * 500 * u64::from(partners * messages.max(2) / 2));
        }
    }
}

proptest! {
    #[test]
    fn linpack_ends_and_takes_at_least_its_arithmetic(
        rows in 1u32..5, columns in 1u32..5, order in 1u32..200, block in 1u32..40, modified: bool,
    ) {
        let broadcast = if modified { Broadcast::ModifiedRing } else { Broadcast::Ring };
        let hpl = Hpl { rows, columns, order, block, panels: u32::MAX, broadcast, gflops: 1.0 };
        let (all, net) = run(hpl.scripts(), Net::of(10, 1));
        let panels = order.div_ceil(block) as usize;
        prop_assert!(all.iter().all(|rank| rank.marks().len() == 2 * panels));
        // As HPL counts: 2/3 n^3 and less.
        let (n, nb) = (order as f64, block.min(order) as f64);
        let operations = hpl.operations();
        prop_assert!(operations >= 2.0 / 3.0 * n * n * n - 1.0, "{operations}");
        prop_assert!(operations <= 2.0 / 3.0 * n * n * n + 3.0 * nb * n * n, "{operations}");
        // Computing times are rounded to nanoseconds, a few for every column.
        if let Some(gflops) = hpl.gflops_of(&marks_of(&all)) {
            prop_assert!(gflops <= 1.2 * (rows * columns) as f64 + 1.0, "{gflops}");
        }
        // A panel goes to all other columns but one's own.
        let along: u64 = (0..rows * columns).map(|rank| net.taken.get(&rank).copied().unwrap_or(0)).sum();
        prop_assert!(columns == 1 || along >= u64::from(columns - 1) * 8 * (n * n / 2.0) as u64);
    }
}
