//! Short packets by packet sockets and by AF_XDP sockets, between network namespaces joined by a link: what goes that way, and what
//! becomes of it when routes, neighbours, interfaces and rights are not what they were. Without the right to make such a link these
//! tests are skipped.

#[path = "namespace/bpf.rs"]
mod bpf;
mod namespace;
mod support;

use namespace::Namespaces;
use namespace::skip::kernel_lacks;
use srd_device::SendOp;
use srd_wire::Status;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use support::forger::{Forger, Kind};
use support::keys::KeyFile;
use support::traffic::{LENGTHS, PLACE, exchange, write_and_read};
use support::{Host, PATIENCE, options, pattern};

const PACKET: Wire = Wire { name: "packet", variable: "SRD_WIRE=packet", by: "packet sockets" };
const XDP: Wire = Wire { name: "xdp", variable: "SRD_WIRE=xdp", by: "AF_XDP sockets (generic mode, copies)" };

/// By what short packets are to travel.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wire {
    name: &'static str,
    variable: &'static str,
    /// How it is called in counters.
    by: &'static str,
}

impl Wire {
    /// Two namespaces. `None`: the test is skipped.
    fn pair(self, test: &str) -> Option<Namespaces> {
        if self == XDP && !has_xdp_sockets() {
            kernel_lacks("needs a kernel with AF_XDP sockets");
            return None;
        }
        Namespaces::new(&format!("{}{test}", self.name), 1500)
    }

    fn host(self, pair: &Namespaces, side: usize) -> Host {
        self.host_with(pair, side, &[])
    }

    fn host_with(self, pair: &Namespaces, side: usize, more: &[&str]) -> Host {
        let host = host(pair, side, &[&[self.variable], more].concat());
        assert_eq!(by(&host), self.by);
        host
    }

    fn hosts(self, pair: &Namespaces) -> (Host, Host) {
        (self.host(pair, 0), self.host(pair, 1))
    }
}

/// By what a host's short packets travel.
fn by(host: &Host) -> String {
    host.instance.stats().unwrap().short_packets_by
}

fn has_xdp_sockets() -> bool {
    // SAFETY: nothing but numbers.
    let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0) };
    if socket >= 0 {
        // SAFETY: it is ours.
        unsafe { libc::close(socket) };
    }
    socket >= 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EAFNOSUPPORT)
}

/// Tests of both kinds of sockets.
macro_rules! by_both {
    ($($test:ident)*) => {
        mod packet {
            $(#[test] fn $test() { super::$test(super::PACKET) })*
        }
        mod xdp {
            $(#[test] fn $test() { super::$test(super::XDP) })*
        }
    };
}

/// For longer than this nobody believes what the routing table said (`packet_wire.rs`).
const BELIEVED: Duration = Duration::from_millis(1200);

fn host(pair: &Namespaces, side: usize, variables: &[&str]) -> Host {
    pair.run(side, || Host::with_options(&options("e0", variables)))
}

by_both! {
    short_packets_take_packet_sockets_and_long_ones_do_not
    who_has_packet_sockets_speaks_with_who_has_not
    an_interface_that_goes_down_and_up_loses_nothing
    a_neighbour_with_another_address_is_found_again
    a_neighbour_that_does_not_answer_for_a_while_loses_nothing
    where_several_routes_lead_to_or_another_interface_does_udp_is_used
    an_interface_that_leaves_and_comes_back_with_its_number_loses_nothing
    packets_of_a_path_do_not_overtake_one_another
    a_link_that_was_down_does_not_keep_a_sleeper_awake
    packets_that_come_by_another_interface_are_not_lost
    what_ip_has_cut_arrives_while_short_packets_go_on
    what_strangers_make_the_sockets_drop_does_not_end_packet_sockets
    nobody_is_answered_whose_address_no_peer_can_have
    without_the_right_to_packet_sockets_udp_is_used
    what_sleeps_is_woken_by_a_short_packet
    frames_with_anything_in_them_do_no_harm
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
    message(from, to);
}

fn message(from: &mut Host, to: &mut Host) {
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

fn short_packets_take_packet_sockets_and_long_ones_do_not(wire: Wire) {
    for sealed in [false, true] {
        let Some(pair) = wire.pair("wire") else { return };
        let key = KeyFile::new();
        let more: &[&str] = if sealed { &[key.variable()] } else { &[] };
        let (mut a, mut b) = (wire.host_with(&pair, 0, more), wire.host_with(&pair, 1, more));
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

/// The first go by UDP, and one each second.
#[test]
fn nearly_all_short_packets_of_a_stream_leave_by_packet_sockets() {
    let Some(pair) = PACKET.pair("stream") else { return };
    let [mut a, mut b] = [0, 1].map(|side| PACKET.host_with(&pair, side, &["SRD_PATHS=1"]));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2500) {
        message(&mut a, &mut b);
        message(&mut b, &mut a);
    }
    for host in [&a, &b] {
        let sent = host.instance.stats().unwrap().transmit;
        // Joined ones, two at a time, go by UDP.
        let alone = (2 * sent.sends).saturating_sub(sent.packets);
        assert!(alone > 500 && sent.by_packet_socket >= alone / 20 * 19, "{}", host.report());
    }
}

/// Messages of up to 8 KiB come in packets that are joined.
#[test]
fn short_runs_come_by_packet_sockets() {
    for sealed in [false, true] {
        let Some(pair) = PACKET.pair("runs") else { return };
        let key = KeyFile::new();
        let more: &[&str] = if sealed { &[key.variable()] } else { &[] };
        let [mut a, mut b] = [0, 1].map(|side| PACKET.host_with(&pair, side, more));
        until_short(&mut a, &mut b);
        for len in [1500, 4000, 8192] {
            std::thread::sleep(Duration::from_millis(2));
            let before = short(&b).1;
            a.buffer.write(0, &pattern(len as u64, len));
            b.recv(1, 200_000, 10_000);
            a.send(2, b.address(), 0, len);
            b.success();
            a.success();
            assert!(b.buffer.to_vec(200_000, len) == pattern(len as u64, len), "what was sent");
            poll_until(&b, || short(&b).1 >= before + len.div_ceil(1472) as u64);
        }
    }
}

fn who_has_packet_sockets_speaks_with_who_has_not(wire: Wire) {
    let Some(pair) = wire.pair("mixed") else { return };
    if wire == XDP {
        pair.write_checksums(1); // without them they pass to UDP sockets
    }
    let (mut a, mut b) = (wire.host(&pair, 0), host(&pair, 1, &[]));
    let start = Instant::now();
    while short(&a).0 == 0 || short(&a).1 == 0 {
        assert!(start.elapsed() < PATIENCE, "{} {}", a.report(), b.report());
        lone_messages(&mut a, &mut b);
    }
    assert_eq!(short(&b), (0, 0), "{}", b.report());
}

fn an_interface_that_goes_down_and_up_loses_nothing(wire: Wire) {
    let Some(pair) = wire.pair("down") else { return };
    let (mut a, mut b) = wire.hosts(&pair);
    until_short(&mut a, &mut b);
    for side in [0, 1] {
        pair.ip_in(side, "link set e0 down");
        sent_while_cut_off_arrives(&mut a, &mut b, || pair.ip_in(side, "link set e0 up"));
    }
}

fn a_neighbour_with_another_address_is_found_again(wire: Wire) {
    let Some(pair) = wire.pair("mac") else { return };
    let (mut a, mut b) = wire.hosts(&pair);
    until_short(&mut a, &mut b);
    pair.ip_in(1, "link set e0 address 02:00:00:00:66:99");
    pair.ip_in(0, "neigh flush dev e0");
    exchange(&mut a, &mut b, 2);
    until_short(&mut a, &mut b);
}

fn a_neighbour_that_does_not_answer_for_a_while_loses_nothing(wire: Wire) {
    let Some(pair) = wire.pair("arp") else { return };
    let (mut a, mut b) = wire.hosts(&pair);
    until_short(&mut a, &mut b);
    pair.ip_in(1, "link set e0 arp off");
    pair.ip_in(0, "neigh flush dev e0");
    std::thread::sleep(BELIEVED); // what was known of the neighbour has been asked for again
    sent_while_cut_off_arrives(&mut a, &mut b, || pair.ip_in(1, "link set e0 arp on"));
}

fn where_several_routes_lead_to_or_another_interface_does_udp_is_used(wire: Wire) {
    let Some(pair) = wire.pair("route") else { return };
    for (side, other) in [(0, 1), (1, 2)] {
        pair.ip_in(side, &format!("address add 10.68.0.{}/32 dev lo", other));
    }
    pair.ip_in(0, "route add 10.68.0.2/32 via 10.66.0.2");
    pair.ip_in(1, "route add 10.68.0.1/32 via 10.66.0.1");
    // A second link beside the first.
    pair.join("e1");
    pair.ip_in(0, "address add 10.67.0.1/24 dev e1");
    pair.ip_in(1, "address add 10.67.0.2/24 dev e1");
    let (mut a, mut b) = wire.hosts(&pair);
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

fn an_interface_that_leaves_and_comes_back_with_its_number_loses_nothing(wire: Wire) {
    let Some(pair) = wire.pair("leave") else { return };
    let (mut a, mut b) = wire.hosts(&pair);
    until_short(&mut a, &mut b);
    let index = pair.run(1, || namespace::interface_index("e0"));
    pair.leave_and_return(1);
    assert_eq!(pair.run(1, || namespace::interface_index("e0")), index, "the case that this test is for");
    set_up(&pair, 1);
    pair.ip_in(0, "link set e0 up");
    leaves_by_udp(&mut b, &mut a);
    exchange(&mut a, &mut b, 3);
}

fn packets_of_a_path_do_not_overtake_one_another(wire: Wire) {
    let Some(pair) = wire.pair("order") else { return };
    let (mut a, mut b) = wire.hosts(&pair);
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

/// Long writes, which come by UDP sockets, and sends, which come by packet sockets, in turn; looked at while they come.
#[test]
fn what_comes_by_packet_sockets_and_by_udp_keeps_its_order() {
    const ROUNDS: u64 = 5_000;
    const WINDOW: u64 = 8;
    let Some(pair) = PACKET.pair("turns") else { return };
    let (mut a, mut b) = PACKET.hosts(&pair);
    until_short(&mut a, &mut b);
    b.handle(a.gid()); // who may access memory must be known
    let (to, write) =
        (b.address(), SendOp::Write { rkey: b.key, addr: b.buffer.addr() + 300_000, imm: None });
    let lost = |a: &Host| a.instance.stats().unwrap().transport["lost_by_path_order"];
    let mut attempts = 0;
    loop {
        let before = lost(&a);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..2 * WINDOW).for_each(|i| b.recv(i, 200_000, 4000));
                for i in 0..ROUNDS {
                    b.success();
                    if i + 2 * WINDOW < ROUNDS {
                        b.recv(i, 200_000, 4000);
                    }
                }
            });
            for i in 0..ROUNDS {
                a.post(i, write, to, 0, 40_000);
                a.send(i, to, 0, 4000);
                if i >= WINDOW {
                    a.success();
                    a.success();
                }
            }
            for _ in 0..2 * WINDOW {
                a.success();
            }
        });
        // A thread that moves to another core in between may send what overtakes. Where they overtake here, too, it is 75 and more each time.
        if lost(&a) - before < 30 {
            break;
        }
        attempts += 1;
        assert!(attempts < 6, "{} taken for lost once more; {}", lost(&a) - before, a.report());
    }
    let received = b.instance.stats().unwrap().receive;
    assert!(received.by_packet_socket > 0 && received.by_packet_socket < received.packets, "{}", b.report());
}

fn a_link_that_was_down_does_not_keep_a_sleeper_awake(wire: Wire) {
    let Some(pair) = wire.pair("awake") else { return };
    let (mut a, mut b) = (wire.host(&pair, 0), wire.host_with(&pair, 1, &["SRD_PROGRESS=thread"]));
    until_short(&mut a, &mut b);
    pair.ip_in(1, "link set e0 down");
    pair.ip_in(1, "link set e0 up");
    std::thread::sleep(Duration::from_millis(1500));
    let before = b.instance.stats().unwrap().progress.thread_wakes;
    std::thread::sleep(Duration::from_secs(1));
    let wakes = b.instance.stats().unwrap().progress.thread_wakes - before;
    assert!(wakes < 200, "{wakes} wakes in a second in which nothing came; {}", b.report());
}

fn packets_that_come_by_another_interface_are_not_lost(wire: Wire) {
    let Some(pair) = wire.pair("other") else { return };
    pair.join("e1");
    pair.ip_in(0, "address add 10.67.0.1/24 dev e1");
    pair.ip_in(1, "address add 10.67.0.2/24 dev e1");
    let (mut a, mut b) = wire.hosts(&pair);
    until_short(&mut a, &mut b);
    pair.ip_in(0, "route add 10.66.0.2/32 via 10.67.0.2");
    pair.ip_in(1, "route add 10.66.0.1/32 via 10.67.0.1");
    leaves_by_udp(&mut a, &mut b);
    leaves_by_udp(&mut b, &mut a);
}

/// The interface takes less from one moment to the next, so that IP cuts a message that had been cut for more: the ring does not see it.
fn what_ip_has_cut_arrives_while_short_packets_go_on(wire: Wire) {
    let Some(pair) = wire.pair("cut") else { return };
    let (mut a, mut b) = wire.hosts(&pair);
    until_short(&mut a, &mut b);
    (0..2).for_each(|side| pair.ip_in(side, "link set e0 mtu 1000"));
    const LONG: u64 = 8;
    b.recv(1, 200_000, PLACE);
    a.send(LONG, b.address(), 0, 1000);
    let (start, mut arrived) = (Instant::now(), false);
    while !arrived {
        std::thread::sleep(Duration::from_millis(2));
        b.recv(1, 200_000, PLACE);
        a.send(2, b.address(), 0, 8);
        loop {
            assert!(start.elapsed() < PATIENCE, "{} {}", a.report(), b.report());
            b.poll();
            match a.poll() {
                Some(done) if done.wr_id == LONG => arrived = true,
                Some(_) => break,
                None => {}
            }
        }
    }
}

fn what_strangers_make_the_sockets_drop_does_not_end_packet_sockets(wire: Wire) {
    let Some(pair) = wire.pair("blind") else { return };
    pair.ip_in(0, "link set e0 address 02:00:00:00:00:01");
    let (mut a, mut b) = wire.hosts(&pair);
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

fn nobody_is_answered_whose_address_no_peer_can_have(wire: Wire) {
    let Some(pair) = wire.pair("martian") else { return };
    pair.ip_in(0, "link set e0 address 02:00:00:00:00:01");
    let (mut a, mut b) = wire.hosts(&pair);
    until_short(&mut a, &mut b);
    let hello = Forger::new(5, 17_408).forge(Kind::Hello);
    let martians: [Ipv4Addr; 7] =
        ["127.0.0.1", "0.0.0.0", "0.1.2.3", "224.0.0.1", "240.0.0.9", "255.255.255.255", "10.66.0.1"]
            .map(|ip| ip.parse().unwrap());
    let mut frames: Vec<_> = martians.iter().map(|ip| frame(MAC, ip.octets(), &a, &hello, false)).collect();
    // For another host, and for another interface: with an 802.1Q tag.
    frames.push(frame([2, 0, 0, 0, 0, 77], [10, 66, 0, 3], &a, &hello, false));
    let mut tagged = frame(MAC, [10, 66, 0, 3], &a, &hello, false);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    frames.push(tagged);
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

/// `place` makes something look at packets that packet sockets take before it sees them, until what it returns is dropped.
fn what_looks_at_packets_keeps_them_with_udp_unless_packet_sockets_are_asked_for<T>(
    name: &str,
    place: impl FnOnce(&Namespaces) -> Option<T>,
) {
    let Some(pair) = Namespaces::new(name, 1500) else { return };
    let (mut a, mut b) = (host(&pair, 0, &["SRD_WIRE=auto"]), host(&pair, 1, &["SRD_WIRE=auto"]));
    until_short(&mut a, &mut b);
    let Some(_placed) = place(&pair) else { return };
    leaves_by_udp(&mut a, &mut b);
    let came = short(&a).1;
    lone_messages(&mut b, &mut a);
    assert!(short(&b).0 > 0 && short(&a).1 == came, "{}", a.report());
    let mut c = host(&pair, 0, &["SRD_WIRE=auto"]);
    leaves_by_udp(&mut c, &mut b);
    assert_eq!(short(&c), (0, 0));
    let mut d = PACKET.host(&pair, 0);
    until_short(&mut d, &mut b);
}

#[test]
fn ipsec_policies_keep_packets_with_udp() {
    let policy = "xfrm policy add src 10.99.0.0/24 dst 10.98.0.0/24 dir out action allow";
    let place = |pair: &Namespaces| pair.can(0, policy).then_some(());
    what_looks_at_packets_keeps_them_with_udp_unless_packet_sockets_are_asked_for("wirexfrm", place);
}

#[test]
fn filters_of_tc_keep_packets_with_udp() {
    let place = |pair: &Namespaces| {
        pair.tc_in(0, "qdisc add dev e0 clsact");
        Some(())
    };
    what_looks_at_packets_keeps_them_with_udp_unless_packet_sockets_are_asked_for("wiretc", place);
}

#[test]
fn programs_for_what_comes_keep_packets_with_udp() {
    let attach = |pair: &Namespaces| match pair
        .run(0, || bpf::attach_to_what_comes(namespace::interface_index("e0")))
    {
        Ok(link) => Some(link),
        Err(why) => {
            kernel_lacks(format_args!("needs to attach a BPF program (tcx): {why}"));
            None
        }
    };
    what_looks_at_packets_keeps_them_with_udp_unless_packet_sockets_are_asked_for("wiretcx", attach);
}

fn without_the_right_to_packet_sockets_udp_is_used(wire: Wire) {
    let Some(pair) = wire.pair("right") else { return };
    let mut a = pair.run(0, || {
        drop_capabilities(&[NET_RAW]);
        Host::with_options(&options("e0", &[wire.variable]))
    });
    let mut b = wire.host(&pair, 1);
    exchange(&mut a, &mut b, 3);
    assert_eq!(short(&a), (0, 0), "{}", a.report());
}

fn what_sleeps_is_woken_by_a_short_packet(wire: Wire) {
    let Some(pair) = wire.pair("sleep") else { return };
    let (mut a, mut b) = wire.hosts(&pair);
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

/// Frames whose beginnings are like those of a packet, and in which anything may stand.
fn spoiled(of: &[u8], count: u64) -> Vec<Vec<u8>> {
    let mut random = 1u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let spoil = |_| {
        let mut frame = of.to_vec();
        for _ in 0..1 + next(4) {
            let at = 12 + next(frame.len().min(80) - 12);
            frame[at] = next(256) as u8;
        }
        frame.truncate(14 + next(2 * of.len()));
        frame
    };
    (0..count).map(spoil).collect()
}

fn frames_with_anything_in_them_do_no_harm(wire: Wire) {
    let Some(pair) = wire.pair("spoiled") else { return };
    pair.ip_in(0, "link set e0 address 02:00:00:00:00:01");
    let (mut a, mut b) = wire.hosts(&pair);
    until_short(&mut a, &mut b);
    let hello = Forger::new(5, 17_408).forge(Kind::Hello);
    for frames in spoiled(&frame(MAC, [10, 66, 0, 4], &a, &hello, false), 5_000).chunks(100) {
        send_frames(&pair, frames);
        while a.poll().is_some() {}
    }
    exchange(&mut a, &mut b, 1);
    until_short(&mut a, &mut b);
    let refused = a.instance.stats().unwrap().receive.not_decoded;
    assert!(refused.contains_key("damaged"), "{refused:?}");
}

#[test]
fn an_interface_has_one_process_with_xdp_sockets_and_others_have_packet_sockets() {
    let Some(pair) = XDP.pair("two") else { return };
    let (a, mut b) = XDP.hosts(&pair);
    let mut second = host(&pair, 0, &[XDP.variable]);
    assert_eq!(by(&second), PACKET.by);
    until_short(&mut second, &mut b);
    drop(a);
    // With it goes its program; the kernel lets go of the queue a little later.
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut third = loop {
        let host = host(&pair, 0, &[XDP.variable]);
        if by(&host) == XDP.by {
            break host;
        }
        assert!(Instant::now() < deadline, "the interface is never free again");
        std::thread::sleep(Duration::from_millis(50));
    };
    until_short(&mut third, &mut b);
    until_short(&mut second, &mut b);
}

#[test]
fn an_interface_with_a_program_of_others_keeps_it() {
    let Some(pair) = XDP.pair("stranger") else { return };
    let program = pair.run(0, || bpf::attach_to_interface(namespace::interface_index("e0"))).unwrap();
    let local = pair.run(0, || srd_net::LocalAddress::find(&options("e0", &[]).addr)).unwrap();
    let why = pair.run(0, || srd_net::check_wire(srd_net::Wire::Xdp, &local)).unwrap_err().to_string();
    assert!(why.contains("stranger"), "{why}");
    let (mut a, mut b) = (host(&pair, 0, &[XDP.variable]), XDP.host(&pair, 1));
    assert_eq!(by(&a), PACKET.by);
    until_short(&mut a, &mut b);
    exchange(&mut b, &mut a, 2);
    drop(program);
    // On a busy machine the kernel lets go of the interface a little later.
    let deadline = Instant::now() + Duration::from_secs(10);
    let mode = loop {
        match pair.run(0, || srd_net::check_wire(srd_net::Wire::Xdp, &local)) {
            Ok(mode) => break mode,
            Err(why) => assert!(Instant::now() < deadline, "the interface is never free again: {why}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(mode.contains("generic"), "{mode}");
}

#[test]
fn without_the_right_to_programs_packet_sockets_are_used() {
    let Some(pair) = XDP.pair("noprogram") else { return };
    let mut a = pair.run(0, || {
        drop_capabilities(&[NET_ADMIN, SYS_ADMIN, BPF]);
        Host::with_options(&options("e0", &[XDP.variable]))
    });
    let mut b = XDP.host(&pair, 1);
    assert_eq!(by(&a), PACKET.by);
    until_short(&mut a, &mut b);
}

#[test]
fn a_shaped_interface_is_not_gone_around() {
    let Some(pair) = XDP.pair("shaped") else { return };
    pair.tc_in(0, "qdisc add dev e0 root tbf rate 1gbit burst 1mbit latency 10ms");
    let (mut a, mut b) = (host(&pair, 0, &[XDP.variable]), XDP.host(&pair, 1));
    assert_eq!(by(&a), PACKET.by);
    until_short(&mut a, &mut b);
}

#[test]
fn an_interface_whose_driver_runs_no_programs_has_them_behind_it() {
    let Some(pair) = XDP.pair("generic") else { return };
    for side in [0, 1] {
        pair.ip_in(side, "link add v0 type bridge");
        pair.ip_in(side, "link set e0 master v0");
        pair.ip_in(side, &format!("address add 10.67.0.{}/24 dev v0", side + 1));
        pair.ip_in(side, "link set v0 up");
    }
    let open = |side| pair.run(side, || Host::with_options(&options("v0", &[XDP.variable])));
    let (mut a, mut b) = (open(0), open(1));
    assert_eq!(by(&a), XDP.by);
    until_short(&mut a, &mut b);
    exchange(&mut b, &mut a, 3);
    write_and_read(&mut a, &mut b, 300_000, 7);
    // Several short packets that leave in one call come as one; so do those that the kernel joins.
    (0..200).for_each(|_| exchange(&mut a, &mut b, 1));
    let received = b.instance.stats().unwrap().receive;
    assert!(received.by_packet_socket > 0, "{}", b.report());
    assert!(received.not_decoded.is_empty() && received.host_drops == 0, "{}", b.report());
}

/// A virtual device at which we are the network: its driver runs programs.
fn tap(pair: &Namespaces) -> std::fs::File {
    use std::os::unix::fs::OpenOptionsExt;
    let tap = pair.run(0, || {
        let mut options = std::fs::OpenOptions::new();
        let tap = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun").unwrap();
        // SAFETY: the request names the interface, and has its flags.
        let made = unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            request.ifr_name[..2].copy_from_slice(&[b't' as libc::c_char, b'0' as libc::c_char]);
            request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
            libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&tap), libc::TUNSETIFF, &raw mut request)
        };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        tap
    });
    pair.ip_in(0, "address flush dev e0");
    pair.ip_in(0, "link set t0 address 02:00:00:00:00:01");
    pair.ip_in(0, "address add 10.66.0.1/24 dev t0");
    pair.ip_in(0, "link set t0 up");
    tap
}

#[test]
fn an_interface_whose_driver_runs_programs_has_them_there() {
    use std::io::Write;
    let Some(pair) = XDP.pair("native") else { return };
    if !std::path::Path::new("/dev/net/tun").exists() {
        return kernel_lacks("needs /dev/net/tun");
    }
    let mut tap = tap(&pair);
    let a = pair.run(0, || Host::with_options(&options("t0", &[XDP.variable])));
    assert_eq!(by(&a), "AF_XDP sockets (native mode, copies)");
    let hello = Forger::new(5, 17_408).forge(Kind::Hello);
    let frames = [
        frame(MAC, [10, 66, 0, 4], &a, &hello, false),
        frame([2, 0, 0, 0, 0, 77], [10, 66, 0, 4], &a, &hello, false), // for another host
    ];
    for frame in frames.iter().cycle().take(20) {
        tap.write_all(frame).unwrap();
    }
    poll_until(&a, || short(&a).1 == 10);
    assert!(a.instance.stats().unwrap().transmit.packets > 0, "{}", a.report());
}

#[test]
fn long_frames_pass_by_xdp_sockets() {
    if !has_xdp_sockets() {
        return kernel_lacks("needs a kernel with AF_XDP sockets");
    }
    let Some(pair) = Namespaces::new("xdpjumbo", 9000) else { return };
    let (mut a, mut b) = XDP.hosts(&pair);
    until_short(&mut a, &mut b);
    exchange(&mut b, &mut a, 3);
    write_and_read(&mut a, &mut b, 300_000, 7);
    let received = b.instance.stats().unwrap().receive;
    assert!(received.packets > received.by_packet_socket, "{}", b.report());
    assert!(received.not_decoded.is_empty() && received.host_drops == 0, "{}", b.report());
}

// Capabilities (linux/capability.h).
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const SYS_ADMIN: u32 = 21;
const BPF: u32 = 39;

/// This thread, and those that it starts, have these capabilities no longer (capabilities(7)).
fn drop_capabilities(capabilities: &[u32]) {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let mut sets = [0u32; 6]; // effective, permitted, inheritable; then their upper halves
    // SAFETY: as many words as version 3 has.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    assert_eq!(got, 0);
    for &capability in capabilities {
        let half = &mut sets[3 * (capability / 32) as usize..][..3];
        half.iter_mut().for_each(|set| *set &= !(1 << (capability % 32)));
    }
    // SAFETY: as above.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!(set, 0);
}
