//! Writes `docs/EVENTS.md`: `cargo run -p srd-proto --example events > docs/EVENTS.md`.

fn main() {
    print!("{}", srd_proto::events_markdown());
}
