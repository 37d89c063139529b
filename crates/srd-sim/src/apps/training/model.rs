//! Models of which the sizes are published.

/// A transformer, as far as its size goes.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// As scenarios name it.
    pub name: &'static str,
    /// Layers.
    pub layers: u32,
    /// Width of what goes from layer to layer.
    pub hidden: u64,
    /// Heads of the attention, and the width of each.
    pub heads: u64,
    /// See above.
    pub head: u64,
    /// Weights of the attention of a layer.
    pub attention: u64,
    /// Weights of the feed-forward part of a layer, where it has no experts.
    pub feed_forward: u64,
    /// Experts of a layer; 0: it has none.
    pub experts: u32,
    /// Of these, how many each token goes to.
    pub chosen: u64,
    /// Weights of an expert, and of what all tokens go through beside them.
    pub expert: u64,
    /// See above.
    pub shared: u64,
    /// The first layers have no experts.
    pub dense_layers: u32,
    /// Words, each with a vector before the first layer, and one behind the last.
    pub vocabulary: u64,
    /// Both are the same.
    pub tied: bool,
}

/// Weights of an attention in which keys and values have fewer heads than queries (Ainslie and others, 2023).
const fn grouped(hidden: u64, heads: u64, kv_heads: u64, head: u64) -> u64 {
    2 * hidden * heads * head + 2 * hidden * kv_heads * head
}

/// Weights of a feed-forward part with a gate (SwiGLU: Shazeer, 2020).
const fn gated(hidden: u64, inner: u64) -> u64 {
    3 * hidden * inner
}

const fn llama3(name: &'static str, layers: u32, hidden: u64, inner: u64, heads: u64) -> Model {
    Model {
        name,
        layers,
        hidden,
        heads,
        head: 128,
        attention: grouped(hidden, heads, 8, 128),
        feed_forward: gated(hidden, inner),
        experts: 0,
        chosen: 0,
        expert: 0,
        shared: 0,
        dense_layers: 0,
        vocabulary: 128_000,
        tied: false,
    }
}

/// All that are known here.
pub const MODELS: [Model; 6] = [
    // Grattafiori and others, 2024: Table 3.
    llama3("llama3-8b", 32, 4096, 14_336, 32),
    llama3("llama3-70b", 80, 8192, 28_672, 64),
    llama3("llama3-405b", 126, 16_384, 53_248, 128),
    // Brown and others, 2020: Table 2.1; words: GPT-2's.
    Model {
        name: "gpt3-175b",
        layers: 96,
        hidden: 12_288,
        heads: 96,
        head: 128,
        attention: grouped(12_288, 96, 96, 128),
        feed_forward: 2 * 12_288 * 4 * 12_288,
        experts: 0,
        chosen: 0,
        expert: 0,
        shared: 0,
        dense_layers: 0,
        vocabulary: 50_257,
        tied: true,
    },
    // Jiang and others, 2024: Table 1.
    Model {
        name: "mixtral-8x7b",
        layers: 32,
        hidden: 4096,
        heads: 32,
        head: 128,
        attention: grouped(4096, 32, 8, 128),
        feed_forward: 0,
        experts: 8,
        chosen: 2,
        expert: gated(4096, 14_336),
        shared: 4096 * 8,
        dense_layers: 0,
        vocabulary: 32_000,
        tied: false,
    },
    // DeepSeek-AI, 2024: section 4.2. Compressed queries (1536) and keys with values (512), 64 of each head with positions; the inner
    // width of the first three layers is that of the published weights.
    Model {
        name: "deepseek-v3",
        layers: 61,
        hidden: 7168,
        heads: 128,
        head: 128,
        attention: 7168 * 1536
            + 1536 * 128 * (128 + 64)
            + 7168 * (512 + 64)
            + 512 * 128 * (128 + 128)
            + 128 * 128 * 7168,
        feed_forward: gated(7168, 18_432),
        experts: 256,
        chosen: 8,
        expert: gated(7168, 2048),
        shared: gated(7168, 2048) + 7168 * 256,
        dense_layers: 3,
        vocabulary: 129_280,
        tied: false,
    },
];

impl Model {
    /// Whether a layer, counted from 0, has experts.
    pub fn has_experts(&self, layer: u32) -> bool {
        self.experts > 0 && layer >= self.dense_layers
    }

    /// Weights of a layer outside its experts.
    pub fn outside_experts(&self, layer: u32) -> u64 {
        self.attention + if self.has_experts(layer) { self.shared } else { self.feed_forward }
    }

    /// All weights.
    pub fn parameters(&self) -> u64 {
        let of_experts =
            |layer| if self.has_experts(layer) { u64::from(self.experts) * self.expert } else { 0 };
        let layers: u64 = (0..self.layers).map(|layer| self.outside_experts(layer) + of_experts(layer)).sum();
        layers + self.vocabulary * self.hidden * if self.tied { 1 } else { 2 }
    }
}
