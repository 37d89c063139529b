//! Steps of training against what formulas say of them, on a fabric that has room for everything.

use srd_sim::apps::training::{MODELS, Model, Reduce, Training};
use srd_sim::input::Scenario;
use srd_sim::run::{Outcome, place, run};

/// One switch, on which nobody waits for long.
const FABRIC: &str = r#"
[fabric]
kind = "one-switch"
hosts = 8
host_gbps = 100
cable_us = 0.1

[queues]
capacity = "10MB"

[transport]
mtu = 9000

[messages]
eager_limit = "64MB"
eager_buffer = "1GB"
"#;

/// A model of four layers, each with so many weights outside of its attention.
fn model(feed_forward: u64, hidden: u64) -> Model {
    Model {
        layers: 4,
        hidden,
        head: 1,
        heads: 1,
        attention: 0,
        feed_forward,
        vocabulary: 0,
        ..MODELS[0].clone()
    }
}

fn training(model: Model) -> Training {
    Training {
        model,
        tensor: 1,
        pipeline: 1,
        data: 1,
        expert: 1,
        microbatches: 1,
        tokens: 1,
        gflops: 1e7,
        bucket: 16 << 20,
        reduce: Reduce::Ring,
        skew: 0.0,
        seed: 1,
        steps: 1,
    }
}

/// What came of it, and how long it took, in us, from the first to the last.
fn run_alone(training: &Training) -> (Outcome, f64) {
    let programs = place(training.scripts(), 1);
    let scenario = Scenario::of_programs(FABRIC, "fabric", &[], programs).unwrap();
    let outcome = run(&scenario);
    assert_eq!(outcome.packets_rtx + outcome.packets_dropped, 0, "the fabric has room");
    let took = outcome.sim_us;
    (outcome, took)
}

fn within_one_per_cent(is: f64, wanted: f64) {
    assert!((is / wanted - 1.0).abs() < 0.01, "{is}, and the formula says {wanted}");
}

#[test]
fn models_have_as_many_weights_as_their_papers_say() {
    // Names and 10^9 weights: Llama 3 (Table 3 and its model cards), GPT-3 (Table 2.1), Mixtral (section 1), DeepSeek-V3 (abstract).
    let published = [8.03, 70.6, 405.0, 175.0, 46.7, 671.0];
    for (model, published) in MODELS.iter().zip(published) {
        within_one_per_cent(model.parameters() as f64 / 1e9, published);
    }
}

#[test]
fn a_ring_carries_twice_n_minus_one_nths_of_the_gradients() {
    for (reduce, ranks) in [(Reduce::Ring, 4), (Reduce::Ring, 8), (Reduce::Sharded, 8)] {
        // In one piece: each round costs some microseconds beside its bytes.
        let training = Training { data: ranks, reduce, bucket: 1 << 30, ..training(model(8 << 20, 64)) };
        let gradients = 2.0 * training.model.parameters() as f64;
        let each = 2.0 * f64::from(ranks - 1) / f64::from(ranks) * gradients;
        let (outcome, took_us) = run_alone(&training);
        let payload = 8900.0; // near enough: an MTU less its headers
        let packets = each * f64::from(ranks) / payload;
        assert!((outcome.packets_new as f64 / packets - 1.0).abs() < 0.02, "{} packets", outcome.packets_new);
        // Bytes at the rate of the cable, with 1.4 % of headers and gaps of frames.
        within_one_per_cent(took_us, each * 1.014 * 8.0 / 100e3);
    }
}

#[test]
fn a_pipeline_idles_p_minus_one_of_m_plus_p_minus_one() {
    for (stages, microbatches) in [(2, 4), (4, 4), (4, 12)] {
        // A pass forward of a stage is 2 operations for each of 10^6 weights of a layer, at 10^9 a second.
        let model = model(1_000_000, 8);
        let training = Training { pipeline: stages, microbatches, gflops: 1.0, ..training(model) };
        let layers = f64::from(4 / stages);
        let passes_us = layers * 2e3 * 3.0 * f64::from(microbatches);
        let (_, took_us) = run_alone(&training);
        let bubble = f64::from(stages - 1) / f64::from(microbatches + stages - 1);
        within_one_per_cent(took_us * (1.0 - bubble), passes_us);
    }
}

#[test]
fn shards_exchange_each_layer_twice_in_each_direction() {
    let training = Training { tensor: 4, tokens: 1024, ..training(model(0, 1024)) };
    // Four layers, four all-reduces of 2 MB each.
    let each = 2.0 * 0.75 * 16.0 * 1024.0 * 1024.0 * 2.0;
    let (_, took_us) = run_alone(&training);
    assert!(took_us > each * 8.0 / 100e3 && took_us < each * 8.0 / 100e3 * 1.1, "{took_us} us");
}

#[test]
fn experts_get_what_they_are_chosen_for() {
    let experts = Model { experts: 8, chosen: 2, expert: 1000, ..model(0, 1024) };
    let even = Training { data: 8, expert: 8, tokens: 1024, bucket: 1 << 30, ..training(experts) };
    // Each rank sends 7 of 8 of its 2,048 choices, there and back, forward and backward, in each of four layers.
    let each = 2048.0 * 2048.0 * 7.0 / 8.0 * 16.0;
    let (outcome, took_us) = run_alone(&even);
    assert!(
        (outcome.packets_new as f64 * 8900.0 / (8.0 * each) - 1.0).abs() < 0.03,
        "{}",
        outcome.packets_new
    );
    let skewed = Training { skew: 1.0, ..even.clone() };
    let scenario = Scenario::of_programs(FABRIC, "fabric", &[], place(skewed.scripts(), 1)).unwrap();
    let skewed = run(&scenario).sim_us;
    assert!(skewed > 1.5 * took_us, "{skewed} us, evenly {took_us}: a third of all goes to one");
}

#[test]
fn gradients_hide_behind_computing_and_a_tree_sums_up_as_well() {
    for reduce in [Reduce::Ring, Reduce::Tree, Reduce::Sharded] {
        // Computing takes ten times what the network does: what is left is the last bucket's.
        let slow = Training {
            data: 4,
            reduce,
            bucket: 1 << 20,
            gflops: 5.0,
            tokens: 10,
            ..training(model(1 << 20, 64))
        };
        let (_, took_us) = run_alone(&slow);
        let computing_us = 4.0 * 3.0 * 2.0 * 10.0 * (1 << 20) as f64 / 5e3;
        let rest = took_us - computing_us;
        assert!(rest > 0.0 && rest < 0.05 * computing_us, "{reduce:?}: {rest} us behind {computing_us}");
    }
}
