//! Attacks over real sockets on two processes that use verbs: while messages and RDMA go both ways between them, somebody
//! sends forged packets to both, in the name of each. `SEED=n` takes other packets.

#[path = "../../srd-net/tests/support/attack.rs"]
mod attack;
mod built;
#[path = "../../srd-net/tests/support/forger.rs"]
mod forger;

use attack::{Attack, Lane};
use forger::{Forger, IN_CLEAR, SEALED};
use srd_wire::Qpn;
use std::net::{IpAddr, SocketAddr};

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 42, 9));

/// The tests of `transfer.c` under attack: they check all that arrives. Each process takes the first port that is free.
fn all_goes_on(base: u16, variables: &[(&str, &str)], sealed: bool) {
    let seed = std::env::var("SEED").map_or(16, |text| text.parse().expect("SEED: a number"));
    println!("SEED={seed}");
    let kinds = if sealed { [&IN_CLEAR[..], &SEALED].concat() } else { IN_CLEAR.to_vec() };
    let lanes = (0..2).map(|to: u16| {
        let qpns = (0..4).map(|more| Qpn(to * 128 + more)).collect();
        let forger = Forger { qpns, ..Forger::new(seed + u64::from(to), base + 1 - to) };
        Lane::new(forger, &kinds, &[HERE, ELSEWHERE], SocketAddr::new(HERE, base + to))
    });
    let attack = Attack::start(lanes.collect(), 5000);
    let port_base = base.to_string();
    let variables = [&[("SRD_PORT_BASE", port_base.as_str())], variables].concat();
    for test in ["sends", "forms", "rdma", "floods"] {
        built::run("transfer", test, &variables);
    }
    assert!(attack.sent() > 1000);
    drop(attack);
}

#[test]
fn messages_and_rdma_in_clear_go_on_under_forged_packets() {
    all_goes_on(19_100, &[], false);
}

#[test]
fn sealed_messages_and_rdma_go_on_under_forged_packets() {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let path = built::scratch().join("attacks-key");
    let _ = std::fs::remove_file(&path);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
    file.write_all(&[0x5E; 32]).unwrap();
    all_goes_on(19_200, &[("SRD_KEY_FILE", path.to_str().unwrap())], true);
}
