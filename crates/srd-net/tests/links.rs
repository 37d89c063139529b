//! Instances in network namespaces of their own, joined by a link that goes down, carries less than it says, or is slow.
//! Without the right to make such a link these tests are skipped.

mod namespace;
mod support;

use namespace::Namespaces;
use srd_net::{Instance, Options};
use srd_wire::InstanceAddr;
use std::time::Duration;
use support::traffic::{LENGTHS, PLACE, exchange, write_and_read};
use support::{Host, options};

/// Packets that a host has sent, and those that it has retransmitted.
fn again(host: &Host) -> [u64; 2] {
    let transport = host.instance.stats().unwrap().transport;
    [transport["tx_pkts"], transport["retrans_pkts"]]
}

/// Since `before` a host has retransmitted few packets. Had it gone on sending what does not arrive, it would have been most.
fn loses_few(before: [u64; 2], host: &Host) {
    let now = again(host);
    let [sent, retransmitted] = [now[0] - before[0], now[1] - before[1]];
    assert!(retransmitted * 4 <= sent, "{retransmitted} of {sent} retransmitted; {}", host.report());
}

/// Messages from `a` to `b`, begun while their link is down. They are cut to packets, which do not leave; then `meanwhile` happens, the
/// link comes up, and they arrive.
fn send_while_down(pair: &Namespaces, a: &mut Host, b: &mut Host, meanwhile: impl FnOnce()) {
    pair.ip_in(0, "link set e0 down");
    for (i, &len) in LENGTHS.iter().enumerate() {
        b.recv(i as u64, 200_000 + i * PLACE, PLACE);
        a.send(i as u64, b.address(), i * PLACE, len);
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(a.poll().is_none());
    meanwhile();
    pair.ip_in(0, "link set e0 up");
    for _ in LENGTHS {
        a.success();
        b.success();
    }
}

#[test]
fn a_link_that_goes_down_and_up_loses_nothing() {
    let Some(pair) = Namespaces::new("updown", 1500) else { return };
    let mut a = pair.run(0, || Host::with_options(&options("e0", &[])));
    let mut b = pair.run(1, || Host::with_options(&options("e0", &[])));
    assert_eq!(a.instance.address(), InstanceAddr { gid: pair.ip(0).into(), port: 17_408 });
    exchange(&mut a, &mut b, 2);
    send_while_down(&pair, &mut a, &mut b, || ());
    exchange(&mut b, &mut a, 2);
}

#[test]
fn messages_under_way_when_the_mtu_is_lowered_arrive() {
    let Some(pair) = Namespaces::new("lower", 1500) else { return };
    let mut a = pair.run(0, || Host::with_options(&options("e0", &[])));
    let mut b = pair.run(1, || Host::with_options(&options("e0", &[])));
    exchange(&mut a, &mut b, 2);
    send_while_down(&pair, &mut a, &mut b, || {
        (0..2).for_each(|side| pair.ip_in(side, "link set e0 mtu 1400"));
    });
    exchange(&mut b, &mut a, 2);
}

#[test]
fn a_route_with_a_smaller_mtu_is_noticed() {
    let Some(pair) = Namespaces::new("routemtu", 9000) else { return };
    pair.ip_in(0, "route replace 10.66.0.0/24 dev e0 mtu 1400");
    let mut a = pair.run(0, || Host::with_options(&options("e0", &[])));
    let mut b = pair.run(1, || Host::with_options(&options("e0", &[])));
    exchange(&mut a, &mut b, 2);
    let before = again(&a);
    write_and_read(&mut a, &mut b, 300_000, 6);
    loses_few(before, &a);
}

#[test]
fn a_path_that_swallows_large_packets_is_noticed() {
    let Some(pair) = Namespaces::new("blackhole", 9000) else { return };
    // A virtual Ethernet device drops what is larger than its own MTU, and tells nobody.
    pair.ip_in(1, "link set e0 mtu 1500");
    let jumbo = ["SRD_MTU=9000"];
    let mut a = pair.run(0, || Host::with_options(&options("e0", &jumbo)));
    let mut b = pair.run(1, || Host::with_options(&options("e0", &[])));
    exchange(&mut a, &mut b, 2);
    let before = again(&a);
    write_and_read(&mut a, &mut b, 300_000, 6);
    loses_few(before, &a);
}

#[test]
fn a_slow_link_holds_packets_back_and_loses_few() {
    let Some(pair) = Namespaces::new("slow", 1500) else { return };
    for side in [0, 1] {
        pair.tc_in(side, "qdisc add dev e0 root tbf rate 200mbit burst 3028 limit 30000");
    }
    let mut a = pair.run(0, || Host::with_options(&options("e0", &["SRD_LINE_RATE_GBPS=0.2"])));
    let mut b = pair.run(1, || Host::with_options(&options("e0", &["SRD_LINE_RATE_GBPS=0.2"])));
    write_and_read(&mut a, &mut b, 500_000, 5);
    exchange(&mut a, &mut b, 5);
    let counters = a.instance.stats().unwrap().transmit;
    assert_eq!(counters.dropped_refused, 0, "{counters:?}");
    loses_few([0; 2], &a);
}

#[test]
fn the_default_address_is_that_of_the_default_route_else_any() {
    let Some(pair) = Namespaces::new("default", 1500) else { return };
    pair.ip_in(0, "link add e1 type veth peer name e2");
    pair.ip_in(0, "address add 10.67.0.1/24 dev e1");
    pair.ip_in(0, "link set e1 up");
    let open =
        || pair.run(0, || Instance::open_separate(&Options::default()).unwrap().gid().ip().to_string());
    assert_eq!(open(), "10.66.0.1");
    pair.ip_in(0, "link set e2 up");
    pair.ip_in(0, "route add default via 10.67.0.2");
    assert_eq!(open(), "10.67.0.1");
    pair.ip_in(0, "link set e0 down");
    pair.ip_in(0, "link delete e1");
    pair.ip_in(0, "address flush dev e0");
    assert_eq!(open(), "127.0.0.1");
}
