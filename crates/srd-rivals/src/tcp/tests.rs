use super::*;
use crate::dumbbell::{Ended, Net, Transfer, run};
use crate::units::Ps;

fn one(bytes: u64) -> Vec<Transfer> {
    vec![Transfer { from: 1, to: 0, bytes, start: Ps::ZERO, channel: 0 }]
}

fn tcp(net: &Net, config: &Config, transfers: &[Transfer], end_us: u64) -> Ended {
    run::<Tcp>(net, config, transfers, Ps::from_micros(end_us))
}

/// Goodput over payload's share of the line.
fn share(net: &Net, config: &Config, bytes: u64, took: Ps) -> f64 {
    let cost = config.cost(net.mtu, 0);
    bytes as f64 * 8e12 / net.rate.0 as f64 / took.0 as f64 * (cost.payload + cost.headers) as f64
        / cost.payload as f64
}

#[test]
fn a_lone_flow_fills_the_line() {
    for congestion in [Algorithm::Cubic, Algorithm::NewReno, Algorithm::Bbr] {
        let net = Net::default();
        let config = Config { congestion, pacing: congestion == Algorithm::Bbr, ..Config::default() };
        let bytes = 50_000_000;
        let ended = tcp(&net, &config, &one(bytes), 100_000);
        let took = ended.received[0].expect("it arrives");
        let share = share(&net, &config, bytes, took);
        println!("{congestion:?}: {share:.3} in {} us, {:?}", took.as_micros(), ended.counts);
        assert!(share > 0.9, "{congestion:?}: {share}");
    }
}
