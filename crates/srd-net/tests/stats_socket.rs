//! What an instance tells of itself to whoever asks.

mod support;

use serde_json::Value;
use srd_net::stats_directory::ask_all;
use srd_net::{LayerStats, LocalPeerStats};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{Host, counters_of, traffic::exchange};

fn peer<'a>(counters: &'a Value, address: &str) -> &'a Value {
    let peers = counters["peers"].as_array().expect("a list");
    peers.iter().find(|peer| peer["address"] == address).unwrap_or_else(|| panic!("{address} in {counters}"))
}

#[test]
fn two_instances_of_a_process_tell_of_each_other() {
    let mut a = Host::open("127.0.0.1", &[]);
    let mut b = Host::open("127.0.0.2", &[]);
    exchange(&mut a, &mut b, 3);
    let (at_a, at_b) = (a.instance.address(), b.instance.address());
    let (of_a, of_b) = (counters_of(at_a).unwrap(), counters_of(at_b).unwrap());
    let (b_seen, a_seen) = (peer(&of_a, &at_b.to_string()), peer(&of_b, &at_a.to_string()));
    let sent: u64 = 3 * support::traffic::LENGTHS.iter().sum::<usize>() as u64;
    assert!(b_seen["tx_bytes"].as_u64().unwrap() >= sent, "{of_a}");
    assert_eq!(a_seen["rx_bytes"].as_u64(), Some(sent), "{of_b}");
    assert_eq!((&b_seen["answered"], &b_seen["silent"]), (&Value::Bool(true), &Value::Bool(false)));
    assert!(b_seen["rtt_us"].as_f64() >= b_seen["least_rtt_us"].as_f64());
    // Less the time for which the peer held the packet: with both on one thread nothing may be left.
    assert!(b_seen["least_rtt_us"].as_f64() >= Some(0.0), "{b_seen}");
    assert!(b_seen["rtt_us"].as_f64() > Some(0.0), "{b_seen}");
    assert_eq!(b_seen["paths"].as_u64(), Some(64));
    assert_eq!(of_a["peer_count"].as_u64(), Some(1));
}

#[test]
fn readers_that_never_read_do_not_keep_an_instance_from_ending() {
    let host = Host::open("127.0.0.3", &[]);
    let address = host.instance.address();
    let readers: Vec<_> = (0..8).map(|_| ask_all()).collect();
    drop(host);
    assert!(counters_of(address).is_none(), "it is not there any more");
    drop(readers);
}

#[test]
fn who_asks_can_be_forbidden() {
    let host = Host::open("127.0.0.4", &["SRD_TOP=off"]);
    assert!(counters_of(host.instance.address()).is_none());
}

#[test]
fn a_layer_above_adds_what_it_knows_until_it_has_gone() {
    let host = Host::open("127.0.0.5", &[]);
    let there = Arc::new(AtomicBool::new(true));
    let layer = there.clone();
    host.instance.on_stats(move |_| {
        let peer = LocalPeerStats { shared_memory: true, address: "here:5".into(), ..Default::default() };
        let local_peers = vec![peer];
        layer.load(Ordering::SeqCst).then(|| LayerStats { local_peers, ..LayerStats::default() })
    });
    let layers = || counters_of(host.instance.address()).unwrap()["layers"].clone();
    assert_eq!(layers()[0]["local_peers"][0]["address"], "here:5");
    there.store(false, Ordering::SeqCst);
    assert_eq!(layers(), Value::Array(Vec::new()));
    there.store(true, Ordering::SeqCst);
    assert_eq!(layers(), Value::Array(Vec::new()), "it is not asked again");
}
