//! Flows end to end.

use super::*;
use crate::document::Document;
use crate::dumbbell::{Net, Transfer, run};
use crate::units::Ps;

fn config(net: &Net, keys: &str) -> Result<NsccConfig, InputError> {
    let document = Document::parse(&format!("[transport]\n{keys}"), "test").expect("it is TOML");
    let section = Section::of(&document, "transport")?.only(config::KEYS)?;
    config::read(&section, &net.surroundings())
}

/// As uet-htsim has it: marks from 0.2 to 0.8 BDP, a queue of one.
fn net(hosts: u32, trims: bool) -> Net {
    let net = Net { hosts, trims, mtu: 4136, ..Net::default() };
    let bdp = net.surroundings().bdp;
    Net { marks: Some((bdp / 5, bdp * 4 / 5, 1.0)), capacity: bdp, ..net }
}

fn transfer(from: u32, to: u32, bytes: u64) -> Transfer {
    Transfer { from, to, bytes, start: Ps::ZERO, channel: 0 }
}

#[test]
fn one_flow_takes_the_link() {
    let net = net(2, true);
    let ended =
        run::<Nscc>(&net, &config(&net, "").unwrap(), &[transfer(1, 0, 2_000_000)], Ps::from_micros(1_000));
    let sent = ended.sent[0].expect("it ends").as_micros();
    // 490 frames at 100 Gb/s and 8.3 us of a round trip.
    assert!((170.0..175.0).contains(&sent), "{sent}");
    assert_eq!(ended.delivered, [2_000_000]);
    assert_eq!((ended.counts[1].data_new, ended.counts[1].data_again), (490, 0));
}
