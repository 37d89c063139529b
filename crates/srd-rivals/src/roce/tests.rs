use super::*;
use crate::document::Document;
use crate::dumbbell::{Ended, Net, Transfer, run};
use crate::units::Ps;

/// What a section of these lines says on such a fabric.
fn config(net: &Net, lines: &str) -> Config {
    try_config(&net.surroundings(), lines).unwrap_or_else(|error| panic!("{error}"))
}

fn try_config(around: &Surroundings, lines: &str) -> Result<Config, InputError> {
    let document = Document::parse(&format!("[roce]\n{lines}"), "test").unwrap();
    Roce::read(&Section::of(&document, "roce")?.only(Roce::KEYS)?, around)
}

fn transfer(from: u32, to: u32, bytes: u64) -> Transfer {
    Transfer { from, to, bytes, start: Ps::ZERO, channel: from }
}

fn try_on(net: &Net, lines: &str, transfers: &[Transfer], micros: u64) -> Ended {
    run::<Roce>(net, &config(net, lines), transfers, Ps::from_micros(micros))
}

/// Share of the cable that payload took, of a transfer between two moments in microseconds.
fn share(net: &Net, ended: &Ended, number: usize, from: usize, to: usize) -> f64 {
    let progress = &ended.progress[number];
    (progress[to] - progress[from]) as f64 * 8e6 / (to - from) as f64 / net.rate.0 as f64
}

#[test]
fn one_flow_has_the_line() {
    let net = Net::default();
    let ended = try_on(&net, "", &[transfer(0, 1, 10_000_000)], 2000);
    let frames = 10_000_000u64.div_ceil(4096);
    let bytes = 10_000_000 + frames * (44 + 14) + 10 * 16;
    let line = Ps::to_send(bytes, net.rate).as_micros();
    // A round trip of 8 us, the last frame once more through the switch, and the ACK.
    let took = ended.sent[0].unwrap().as_micros();
    assert!(took > line + 8.0 && took < line + 8.7, "{took} us, on the wire {line} us");
    assert_eq!(ended.delivered[0], 10_000_000);
    assert_eq!((ended.counts[0].data_new, ended.counts[0].data_again), (frames, 0));
}
