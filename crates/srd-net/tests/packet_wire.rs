//! Short packets by packet sockets, between network namespaces joined by a link: what goes that way, and what becomes of it when
//! routes, neighbours, interfaces and rights are not what they were. Without the right to make such a link these tests are
//! skipped.

mod namespace;
mod support;

use namespace::Namespaces;
use srd_device::SendOp;
use srd_wire::Status;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use support::forger::{Forger, Kind};
use support::keys::KeyFile;
use support::traffic::{LENGTHS, PLACE, exchange, write_and_read};
use support::{Host, PATIENCE, options};

const PACKET: &str = "SRD_WIRE=packet";
/// For longer than this nobody believes what the routing table said (`packet_wire.rs`).
const BELIEVED: Duration = Duration::from_millis(1200);

fn pair(test: &str, mtu: u32) -> Option<Namespaces> {
    Namespaces::new(test, mtu)
}

fn host(pair: &Namespaces, side: usize, variables: &[&str]) -> Host {
    pair.run(side, || Host::with_options(&options("e0", variables)))
}

fn hosts(pair: &Namespaces, variables: &[&str]) -> (Host, Host) {
    (host(pair, 0, variables), host(pair, 1, variables))
}

/// The Ethernet address of side 0, once that has it.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A frame of a stranger who is free in all that it says, for the port of `to`. Its UDP checksum is wrong, or there is none.
fn frame(mac: [u8; 6], from: [u8; 4], to: &Host, payload: &[u8], damaged: bool) -> Vec<u8> {
    let address = to.instance.address();
    let [to0, to1, to2, to3] = [10, 66, 0, 1];
    let [l0, l1] = (payload.len() as u16 + 28).to_be_bytes();
    let [u0, u1] = (payload.len() as u16 + 8).to_be_bytes();
    let [p0, p1] = address.port.to_be_bytes();
    let [a, b, c, d] = from;
    let mut ip = [0x45, 0, l0, l1, 0, 0, 0x40, 0, 64, 17, 0, 0, a, b, c, d, to0, to1, to2, to3];
    let sum: u32 = ip.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    ip[10..12].copy_from_slice(&(!(((sum & 0xffff) + (sum >> 16)) as u16)).to_be_bytes());
    let udp = [0x43, 0, p0, p1, u0, u1, 0, u8::from(damaged)];
    [&mac[..], &[2, 0, 0, 0, 0, 9, 8, 0], &ip, &udp, payload].concat()
}

/// Sends frames from side 1.
fn send_frames(pair: &Namespaces, frames: &[Vec<u8>]) {
    pair.run(1, || {
        // SAFETY: calls of the system with memory of ours, whose lengths they are given.
        unsafe {
            let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
            let mut to: libc::sockaddr_ll = std::mem::zeroed();
            to.sll_family = libc::AF_PACKET as u16;
            to.sll_ifindex = libc::if_nametoindex(c"e0".as_ptr()) as i32;
            for frame in frames {
                let len = size_of_val(&to) as libc::socklen_t;
                let sent = libc::sendto(
                    socket,
                    frame.as_ptr().cast(),
                    frame.len(),
                    0,
                    std::ptr::from_ref(&to).cast(),
                    len,
                );
                assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
            }
            libc::close(socket);
        }
    });
}

/// Packets that a host has sent and received by packet sockets.
fn short(host: &Host) -> (u64, u64) {
    let stats = host.instance.stats().unwrap();
    (stats.transmit.by_packet_socket, stats.receive.by_packet_socket)
}

/// Polls until something has happened.
fn poll_until(host: &Host, happened: impl Fn() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE, "{}", host.report());
        host.poll();
    }
}

/// A short message each way, long enough after whatever went before (`SAME_WAY` of `source_ports.rs`).
fn lone_messages(a: &mut Host, b: &mut Host) {
    lone_message(a, b);
    lone_message(b, a);
}

fn lone_message(from: &mut Host, to: &mut Host) {
    std::thread::sleep(Duration::from_millis(2));
    to.recv(1, 200_000, PLACE);
    from.send(2, to.address(), 0, 8);
    to.success();
    from.success();
}

/// Sends messages until both hosts do so by packet sockets.
fn until_short(a: &mut Host, b: &mut Host) {
    let (before, start) = ((short(a).0, short(b).0), Instant::now());
    while short(a).0 == before.0 || short(b).0 == before.1 {
        assert!(start.elapsed() < PATIENCE, "{} {}", a.report(), b.report());
        lone_messages(a, b);
    }
    exchange(a, b, 1);
}

/// From now on what `a` sends leaves by UDP.
fn leaves_by_udp(a: &mut Host, b: &mut Host) {
    let start = Instant::now();
    loop {
        let before = short(a).0;
        (0..5).for_each(|_| lone_messages(a, b));
        if short(a).0 == before {
            return exchange(a, b, 1);
        }
        assert!(start.elapsed() < PATIENCE, "{}", a.report());
    }
}

/// Messages that `a` sends while nothing gets through, until `mend`.
fn sent_while_cut_off_arrives(a: &mut Host, b: &mut Host, mend: impl FnOnce()) {
    for (i, &len) in LENGTHS.iter().enumerate() {
        b.recv(i as u64, 200_000 + i * PLACE, PLACE);
        a.send(i as u64, b.address(), i * PLACE, len);
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(a.poll().is_none());
    mend();
    for _ in LENGTHS {
        a.success();
        b.success();
    }
    until_short(a, b);
}

#[test]
fn short_packets_take_packet_sockets_and_long_ones_do_not() {
    for sealed in [false, true] {
        let Some(pair) = pair("wire", 1500) else { return };
        let key = KeyFile::new();
        let (mut a, mut b) = hosts(&pair, &[PACKET, key.variable()][..if sealed { 2 } else { 1 }]);
        until_short(&mut a, &mut b);
        exchange(&mut b, &mut a, 3);
        write_and_read(&mut a, &mut b, 300_000, 7);
        let start = Instant::now();
        // All that has left so comes so; and short packets that were sent together.
        while short(&b).1 < short(&a).0 {
            assert!(start.elapsed() < PATIENCE, "{} {}", a.report(), b.report());
            b.poll();
        }
        let sent = a.instance.stats().unwrap().transmit;
        assert!(sent.packets > sent.by_packet_socket, "{}", a.report());
        let received = b.instance.stats().unwrap().receive;
        assert_eq!(received.host_drops, 0, "{}", b.report());
        assert!(received.not_decoded.is_empty() && received.not_opened.is_empty(), "{}", b.report());
    }
}

#[test]
fn who_has_packet_sockets_speaks_with_who_has_not() {
    let Some(pair) = pair("mixed", 1500) else { return };
    let (mut a, mut b) = (host(&pair, 0, &[PACKET]), host(&pair, 1, &[]));
    let start = Instant::now();
    while short(&a).0 == 0 || short(&a).1 == 0 {
        assert!(start.elapsed() < PATIENCE, "{} {}", a.report(), b.report());
        lone_messages(&mut a, &mut b);
    }
    assert_eq!(short(&b), (0, 0), "{}", b.report());
}

#[test]
fn an_interface_that_goes_down_and_up_loses_nothing() {
    let Some(pair) = pair("wiredown", 1500) else { return };
    let (mut a, mut b) = hosts(&pair, &[PACKET]);
    until_short(&mut a, &mut b);
    for side in [0, 1] {
        pair.ip_in(side, "link set e0 down");
        sent_while_cut_off_arrives(&mut a, &mut b, || pair.ip_in(side, "link set e0 up"));
    }
}

#[test]
fn a_neighbour_with_another_address_is_found_again() {
    let Some(pair) = pair("wiremac", 1500) else { return };
    let (mut a, mut b) = hosts(&pair, &[PACKET]);
    until_short(&mut a, &mut b);
    pair.ip_in(1, "link set e0 address 02:00:00:00:66:99");
    pair.ip_in(0, "neigh flush dev e0");
    exchange(&mut a, &mut b, 2);
    until_short(&mut a, &mut b);
}

#[test]
fn a_neighbour_that_does_not_answer_for_a_while_loses_nothing() {
    let Some(pair) = pair("wirearp", 1500) else { return };
    let (mut a, mut b) = hosts(&pair, &[PACKET]);
    until_short(&mut a, &mut b);
    pair.ip_in(1, "link set e0 arp off");
    pair.ip_in(0, "neigh flush dev e0");
    std::thread::sleep(BELIEVED); // what was known of the neighbour has been asked for again
    sent_while_cut_off_arrives(&mut a, &mut b, || pair.ip_in(1, "link set e0 arp on"));
}

#[test]
fn where_several_routes_lead_to_or_another_interface_does_udp_is_used() {
    let Some(pair) = pair("wireroute", 1500) else { return };
    for (side, other) in [(0, 1), (1, 2)] {
        pair.ip_in(side, &format!("address add 10.68.0.{}/32 dev lo", other));
    }
    pair.ip_in(0, "route add 10.68.0.2/32 via 10.66.0.2");
    pair.ip_in(1, "route add 10.68.0.1/32 via 10.66.0.1");
    // A second link beside the first.
    pair.join("e1");
    pair.ip_in(0, "address add 10.67.0.1/24 dev e1");
    pair.ip_in(1, "address add 10.67.0.2/24 dev e1");
    let (mut a, mut b) = hosts(&pair, &[PACKET]);
    until_short(&mut a, &mut b);
    pair.ip_in(0, "route add 10.66.0.2/32 nexthop via 10.67.0.2 nexthop via 10.66.0.2 onlink dev e0");
    leaves_by_udp(&mut a, &mut b);
    pair.ip_in(0, "route replace 10.66.0.2/32 via 10.67.0.2");
    leaves_by_udp(&mut a, &mut b);
    pair.ip_in(0, "route delete 10.66.0.2/32");
    until_short(&mut a, &mut b);
}

/// The interface, as it is after something was done to it, has its address and is up.
fn set_up(pair: &Namespaces, side: usize) {
    pair.ip_in(side, &format!("address add {}/24 dev e0", pair.ip(side)));
    pair.ip_in(side, "link set e0 up");
}

#[test]
fn an_interface_that_leaves_and_comes_back_with_its_number_loses_nothing() {
    let Some(pair) = pair("wireleave", 1500) else { return };
    let (mut a, mut b) = hosts(&pair, &[PACKET]);
    until_short(&mut a, &mut b);
    let index = pair.run(1, || namespace::interface_index("e0"));
    pair.leave_and_return(1);
    assert_eq!(pair.run(1, || namespace::interface_index("e0")), index, "the case that this test is for");
    set_up(&pair, 1);
    pair.ip_in(0, "link set e0 up");
    leaves_by_udp(&mut b, &mut a);
    exchange(&mut a, &mut b, 3);
}

#[test]
fn packets_of_a_path_do_not_overtake_one_another() {
    let Some(pair) = pair("wireorder", 1500) else { return };
    let (mut a, mut b) = hosts(&pair, &[PACKET]);
    until_short(&mut a, &mut b);
    // Each of two packets, of which the second is short.
    b.handle(a.gid());
    let remote = b.buffer.addr();
    for round in 0..200 {
        for i in 0..64 {
            let op = SendOp::Read { rkey: b.key, addr: remote };
            a.post(i, op, b.address(), i as usize * 2048, 2000);
        }
        let (mut done, start) = (0, Instant::now());
        while done < 64 {
            assert!(start.elapsed() < PATIENCE, "round {round}: {} {}", a.report(), b.report());
            b.poll();
            if let Some(completion) = a.poll() {
                assert_eq!(completion.status, Status::Ok);
                done += 1;
            }
        }
    }
    for host in [&a, &b] {
        let transport = host.instance.stats().unwrap().transport;
        let lost = transport["lost_by_path_order"];
        // Where they overtake, it is hundreds.
        assert!(lost <= 50, "{lost} taken for lost; {}", host.report());
    }
}

#[test]
fn a_link_that_was_down_does_not_keep_a_sleeper_awake() {
    let Some(pair) = pair("wireawake", 1500) else { return };
    let variables = [PACKET, "SRD_PROGRESS=thread"];
    let (mut a, mut b) = hosts(&pair, &variables);
    until_short(&mut a, &mut b);
    pair.ip_in(1, "link set e0 down");
    pair.ip_in(1, "link set e0 up");
    std::thread::sleep(Duration::from_millis(1500));
    let before = b.instance.stats().unwrap().progress.thread_wakes;
    std::thread::sleep(Duration::from_secs(1));
    let wakes = b.instance.stats().unwrap().progress.thread_wakes - before;
    assert!(wakes < 200, "{wakes} wakes in a second in which nothing came; {}", b.report());
}

#[test]
fn packets_that_come_by_another_interface_are_not_lost() {
    let Some(pair) = pair("wireother", 1500) else { return };
    pair.join("e1");
    pair.ip_in(0, "address add 10.67.0.1/24 dev e1");
    pair.ip_in(1, "address add 10.67.0.2/24 dev e1");
    let (mut a, mut b) = hosts(&pair, &[PACKET]);
    until_short(&mut a, &mut b);
    pair.ip_in(0, "route add 10.66.0.2/32 via 10.67.0.2");
    pair.ip_in(1, "route add 10.66.0.1/32 via 10.67.0.1");
    leaves_by_udp(&mut a, &mut b);
    leaves_by_udp(&mut b, &mut a);
}

#[test]
fn what_strangers_make_the_sockets_drop_does_not_end_packet_sockets() {
    let Some(pair) = pair("wireblind", 1500) else { return };
    pair.ip_in(0, "link set e0 address 02:00:00:00:00:01");
    let (mut a, mut b) = hosts(&pair, &[PACKET]);
    until_short(&mut a, &mut b);
    let frames = [frame(MAC, [10, 66, 0, 2], &a, &[7; 1400], true)];
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        send_frames(&pair, &frames);
        std::thread::sleep(Duration::from_millis(50));
        a.poll();
    }
    let before = short(&a).1;
    let start = Instant::now();
    while short(&a).1 == before {
        assert!(start.elapsed() < PATIENCE, "{} {}", a.report(), b.report());
        lone_messages(&mut a, &mut b);
    }
    until_short(&mut a, &mut b);
}

#[test]
fn nobody_is_answered_whose_address_no_peer_can_have() {
    let Some(pair) = pair("wiremartian", 1500) else { return };
    pair.ip_in(0, "link set e0 address 02:00:00:00:00:01");
    let (mut a, mut b) = hosts(&pair, &[PACKET]);
    until_short(&mut a, &mut b);
    let hello = Forger::new(5, 17_408).forge(Kind::Hello);
    let martians: [Ipv4Addr; 7] =
        ["127.0.0.1", "0.0.0.0", "0.1.2.3", "224.0.0.1", "240.0.0.9", "255.255.255.255", "10.66.0.1"]
            .map(|ip| ip.parse().unwrap());
    let mut frames: Vec<_> = martians.iter().map(|ip| frame(MAC, ip.octets(), &a, &hello, false)).collect();
    // For another host.
    frames.push(frame([2, 0, 0, 0, 0, 77], [10, 66, 0, 3], &a, &hello, false));
    let sent = a.instance.stats().unwrap().transmit.packets;
    send_frames(&pair, &frames);
    let counters = |a: &Host| a.instance.stats().unwrap();
    let refused = |a: &Host| counters(a).receive.not_decoded.get("martian_source").copied();
    poll_until(&a, || refused(&a) == Some(martians.len() as u64));
    std::thread::sleep(Duration::from_millis(100));
    a.poll();
    assert_eq!(a.instance.stats().unwrap().transmit.packets, sent, "{}", a.report());
    exchange(&mut a, &mut b, 1);
    // A stranger who may be somebody is.
    let sent = a.instance.stats().unwrap().transmit.packets;
    send_frames(&pair, &[frame(MAC, [10, 66, 0, 4], &a, &hello, false)]);
    poll_until(&a, || counters(&a).transmit.packets > sent);
}

#[test]
fn ipsec_policies_keep_packets_with_udp_unless_packet_sockets_are_asked_for() {
    let Some(pair) = pair("wirexfrm", 1500) else { return };
    let policy = "xfrm policy add src 10.99.0.0/24 dst 10.98.0.0/24 dir out action allow";
    let (mut a, mut b) = hosts(&pair, &["SRD_WIRE=auto"]);
    until_short(&mut a, &mut b);
    if !pair.can(0, policy) {
        return;
    }
    leaves_by_udp(&mut a, &mut b);
    let came = short(&a).1;
    lone_messages(&mut b, &mut a);
    assert!(short(&b).0 > 0 && short(&a).1 == came, "{}", a.report());
    let mut c = host(&pair, 0, &["SRD_WIRE=auto"]);
    leaves_by_udp(&mut c, &mut b);
    assert_eq!(short(&c), (0, 0));
    let mut d = host(&pair, 0, &[PACKET]);
    until_short(&mut d, &mut b);
}

#[test]
fn without_the_right_to_packet_sockets_udp_is_used() {
    let Some(pair) = pair("wireright", 1500) else { return };
    let mut a = pair.run(0, || {
        drop_net_raw();
        Host::with_options(&options("e0", &[PACKET]))
    });
    let mut b = host(&pair, 1, &[PACKET]);
    exchange(&mut a, &mut b, 3);
    assert_eq!(short(&a), (0, 0), "{}", a.report());
}

#[test]
fn what_sleeps_is_woken_by_a_short_packet() {
    let Some(pair) = pair("wiresleep", 1500) else { return };
    let (mut a, mut b) = hosts(&pair, &[PACKET]);
    until_short(&mut a, &mut b);
    // Longer than any poll of the thread's own: it sleeps by then.
    for i in 0..5 {
        std::thread::sleep(Duration::from_millis(50));
        b.recv(i, 200_000, PLACE);
        let before = b.instance.stats().unwrap().receive.packets;
        a.send(i, b.address(), 0, 8);
        let start = Instant::now();
        while b.instance.stats().unwrap().receive.packets == before {
            assert!(start.elapsed() < PATIENCE, "{}", b.report());
            std::thread::sleep(Duration::from_millis(1));
        }
        a.success();
        b.success();
    }
}

/// This thread, and those that it starts, have CAP_NET_RAW no longer (capabilities(7)).
fn drop_net_raw() {
    const VERSION_3: u32 = 0x2008_0522;
    const NET_RAW: u32 = 13;
    let header = [VERSION_3, 0];
    let mut sets = [0u32; 6]; // effective, permitted, inheritable; then their upper halves
    // SAFETY: as many words as version 3 has.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    assert_eq!(got, 0);
    sets[..3].iter_mut().for_each(|set| *set &= !(1 << NET_RAW));
    // SAFETY: as above.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!(set, 0);
}
