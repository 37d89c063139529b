//! The keys of a step of training.

use super::MOST_RANKS;
use super::kinds::{Room, gflops, times};
use crate::apps::MAX_BYTES;
use crate::apps::catalogue::Kind;
use crate::apps::training::{BYTES, MODELS, Model, Reduce, Training};
use srd_baselines::input::InputError;
use srd_baselines::section::Section;

/// Tokens of a sequence, unless a scenario says otherwise: what Llama 3 was trained with (Grattafiori and others, 2024, section 3.1.1).
const TOKENS: u64 = 8192;
/// Longest sequence.
const MOST_TOKENS: u64 = 1 << 24;
/// Bytes of gradients that PyTorch sums up together (DistributedDataParallel, `bucket_cap_mb`).
const BUCKET: u64 = 25 << 20;
/// Most uneven choice of experts.
const MOST_SKEW: f64 = 4.0;

/// Reads it.
pub(super) fn read(room: &Room, section: &Section<'_>) -> Result<Kind, InputError> {
    let names: Vec<(&str, usize)> =
        MODELS.iter().enumerate().map(|(number, model)| (model.name, number)).collect();
    let number = section.needed("model", section.word("model", &names)?, "\"llama3-8b\"")?;
    let model = MODELS[number].clone();
    let layers =
        section.whole("layers", 1..=u64::from(model.layers))?.map_or(model.layers, |layers| layers as u32);
    let model = Model { layers, ..model };
    let ways = |key: &str| Ok::<u32, InputError>(section.whole(key, 1..=MOST_RANKS)?.unwrap_or(1) as u32);
    let (tensor, pipeline, expert) = (ways("tensor")?, ways("pipeline")?, ways("expert")?);
    let ranks = room.ranks();
    let each = u64::from(tensor) * u64::from(pipeline);
    if !u64::from(ranks).is_multiple_of(each) {
        let message =
            format!("`tensor` times `pipeline` are {each}, and {ranks} processes are no multiple of that");
        return Err(section.error(message + ": write other ones, or another `hosts` or `per_host`"));
    }
    let data = ranks / each as u32;
    divides(section, "tensor", tensor, model.heads, "heads")?;
    divides(section, "pipeline", pipeline, u64::from(model.layers), "layers")?;
    divides(section, "expert", expert, u64::from(data), "replicas")?;
    if expert > 1 && model.experts == 0 {
        return Err(section.error_at("expert", format!("{} has no experts: leave it out", model.name)));
    }
    if expert > 1 {
        divides(section, "expert", expert, u64::from(model.experts), "experts")?;
    }
    let skew = section.number("skew", 0.0..=MOST_SKEW)?;
    if skew.is_some() && expert == 1 {
        return Err(
            section.error_at("skew", "goes with `expert`: no experts are apart here, so leave it out")
        );
    }
    let tokens = section.whole("tokens", 1..=MOST_TOKENS)?.unwrap_or(TOKENS);
    let activations = tokens.saturating_mul(model.hidden * BYTES * model.chosen.max(1));
    if activations > MAX_BYTES {
        let message = format!(
            "{tokens} of them are messages of {activations} bytes: at most {MAX_BYTES}, so write fewer"
        );
        return Err(section.error_at("tokens", message));
    }
    let bucket = section.bytes("bucket", 1 << 16)?.map_or(BUCKET, |bytes| bytes.with_bdp(room.bdp));
    if bucket > MAX_BYTES {
        return Err(section.error_at("bucket", format!("{bucket} bytes: at most {MAX_BYTES}")));
    }
    let words = [("ring", Reduce::Ring), ("tree", Reduce::Tree), ("sharded", Reduce::Sharded)];
    Ok(Kind::Training(Training {
        model,
        tensor,
        pipeline,
        data,
        expert,
        microbatches: times(section, "microbatches", 1)?,
        tokens,
        gflops: gflops(section)?,
        bucket,
        reduce: section.word("reduce", &words)?.unwrap_or(Reduce::Ring),
        skew: skew.unwrap_or(0.0),
        seed: room.seed,
        steps: times(section, "steps", 1)?,
    }))
}

/// Each of `ways` gets as many of them.
fn divides(section: &Section<'_>, key: &str, ways: u32, of: u64, what: &str) -> Result<(), InputError> {
    match of.is_multiple_of(u64::from(ways)) {
        true => Ok(()),
        false => Err(section.error_at(
            key,
            format!("{ways} ranks cannot share {of} {what} equally: write a divisor of {of}"),
        )),
    }
}
