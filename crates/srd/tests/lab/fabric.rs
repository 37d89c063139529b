//! What a lab is made of: all shapes carry packets, routers hash as switches do, queues hold, mark and cut.

use crate::{Fabric, PORT, SILENCE, eventually, exchange, receive, send, small};
use srd_lab::Shape;
use std::collections::HashMap;
use std::os::fd::AsFd;

#[test]
fn every_host_reaches_every_other_in_all_shapes() {
    let tiers =
        Shape { pods: 2, leaves: 4, hosts_per_leaf: 1, aggs_per_pod: 2, cores: 2, ..Shape::default() };
    let cutting = Shape { trim: true, ecn_bytes: Some(30_000), mtu_bytes: 9000, ..small() };
    for shape in [small(), tiers, cutting] {
        let Some(fabric) = Fabric::up(shape.clone()) else { return };
        let sockets: Vec<_> = (0..fabric.0.hosts().len()).map(|host| fabric.socket(host, PORT)).collect();
        for socket in &sockets {
            for host in 0..sockets.len() {
                send(socket, fabric.address(host), 1, 4);
            }
        }
        for (host, socket) in sockets.iter().enumerate() {
            assert_eq!(receive(socket, SILENCE).len(), sockets.len(), "host {host} of {shape:?}");
        }
    }
}

/// Packets that crossed each of leaf 0's uplinks.
fn uplinks(fabric: &Fabric) -> Vec<u64> {
    let spines = 0..fabric.0.shape().spines();
    spines.map(|spine| fabric.packets(&format!("leaf0>spine{spine}"))).collect()
}

#[test]
fn packets_of_one_five_tuple_take_one_uplink_also_after_reconnecting() {
    let Some(fabric) = Fabric::up(Shape { spines: Some(4), ..small() }) else { return };
    let _to = fabric.socket(2, PORT);
    for port in [5001, 5002, 5003] {
        let before = uplinks(&fabric);
        for _ in 0..3 {
            send(&fabric.socket(0, port), fabric.address(2), 10, 100);
        }
        eventually("30 packets pass", || {
            uplinks(&fabric).iter().sum::<u64>() == before.iter().sum::<u64>() + 30
        });
        let gained: Vec<_> = uplinks(&fabric).iter().zip(&before).map(|(now, then)| now - then).collect();
        assert!(gained.contains(&30), "port {port}: {gained:?}");
    }
}

#[test]
fn source_ports_are_spread_over_all_uplinks() {
    let Some(fabric) = Fabric::up(Shape { spines: Some(4), ..small() }) else { return };
    for port in 5000..5064 {
        send(&fabric.socket(0, port), fabric.address(2), 1, 100);
    }
    eventually("64 packets pass", || uplinks(&fabric).iter().sum::<u64>() == 64);
    // 16 each are expected. The seed is fixed, so it is the same every time.
    assert!(uplinks(&fabric).iter().all(|packets| (6..=28).contains(packets)), "{:?}", uplinks(&fabric));
}

/// Uplinks at a tenth of the hosts' rate, so that a burst waits in front of them.
fn narrow() -> Shape {
    Shape { uplink_mbps: 5.0, spines: Some(1), ..small() }
}

/// A burst of full packets from host 0 to host 2, and what came of it.
fn burst(fabric: &Fabric, count: u32, type_of_service: u8) -> Vec<(u32, Vec<u8>)> {
    let (from, to) = (fabric.socket(0, 0), fabric.socket(2, PORT));
    let tos = i32::from(type_of_service);
    nix::sys::socket::setsockopt(&from.as_fd(), nix::sys::socket::sockopt::Ipv4Tos, &tos).unwrap();
    exchange(&from, &to, fabric.address(2), count, 1400)
}

/// A counter of the kernel in host 2, as in `IpExt InCEPkts`.
fn kernel_counter(fabric: &Fabric, group: &str, counter: &str) -> u64 {
    let output = fabric.0.command(2, "cat").arg("/proc/net/netstat").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(&format!("{group}: ")));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let table: HashMap<_, _> = names.split(' ').zip(values.split(' ')).collect();
    table[counter].parse().unwrap()
}

#[test]
fn routers_mark_those_that_can_be_marked_while_their_queue_is_long() {
    let Some(fabric) = Fabric::up(Shape { ecn_bytes: Some(20_000), ..narrow() }) else { return };
    let marked = || fabric.link("leaf0>spine0").counters.marked;
    assert_eq!(burst(&fabric, 10, 2).len(), 10);
    assert_eq!(marked(), 0, "ten packets are below the threshold");
    assert_eq!(burst(&fabric, 60, 0).len(), 60);
    assert_eq!(marked(), 0, "a sender that does not know ECN");
    assert_eq!(burst(&fabric, 60, 2).len(), 60);
    assert!((10..60).contains(&marked()), "{} of 60", marked());
    assert_eq!(kernel_counter(&fabric, "IpExt", "InCEPkts"), marked());
}

#[test]
fn a_queue_holds_its_buffer_and_drops_the_rest() {
    let Some(fabric) =
        Fabric::up(Shape { buffer_bytes: 20_000, host_buffer_bytes: Some(200_000), ..narrow() })
    else {
        return;
    };
    let arrived = burst(&fabric, 60, 0).len() as u64;
    let link = fabric.link("leaf0>spine0").counters;
    assert!(link.drops > 0, "{link:?}");
    assert_eq!(arrived + u64::from(link.drops), 60);
    assert_eq!(link.packets, arrived);
}

#[test]
fn routers_that_cut_packets_lose_none_and_let_headers_pass_first() {
    let shape = Shape { buffer_bytes: 20_000, host_buffer_bytes: Some(200_000), trim: true, ..narrow() };
    let Some(fabric) = Fabric::up(shape) else { return };
    let arrived = burst(&fabric, 60, 0);
    let link = fabric.link("leaf0>spine0").counters;
    let cut: Vec<_> =
        arrived.iter().filter(|(_, bytes)| bytes.len() == 128).map(|(number, _)| *number).collect();
    let whole: Vec<_> =
        arrived.iter().filter(|(_, bytes)| bytes.len() == 1400).map(|(number, _)| *number).collect();
    assert_eq!(cut.len() + whole.len(), 60);
    assert_eq!((cut.len() as u64, link.drops), (link.trimmed, 0));
    assert!(cut.len() > 10 && whole.len() > 10, "{} cut", cut.len());
    let order: Vec<_> = arrived.iter().map(|(number, _)| *number).collect();
    let place = |number: u32| order.iter().position(|other| *other == number).unwrap();
    let before_the_first_cut: Vec<_> = whole.iter().filter(|number| **number < cut[0]).collect();
    assert!(
        before_the_first_cut.iter().any(|number| place(**number) > place(cut[0])),
        "a header overtakes packets that were queued before it: {order:?}"
    );
}
