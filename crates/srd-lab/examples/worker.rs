//! Temporary.
fn main() -> anyhow::Result<()> { srd_lab::flow::worker::run(std::io::stdin().lock(), std::io::stdout().lock()) }
