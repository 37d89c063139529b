//! The socket layer alone: many datagrams per call in both directions, errors, drops, marks. On loopback, and where
//! this user may make network namespaces also over a pair of virtual Ethernet devices between two of them.

mod namespace;

use namespace::Namespaces;
use srd_net::udp::{
    Destination, Gather, MAX_RUNS, MAX_SEND, ReceiveBatch, ReceiveSocket, SendSocket, path_mtu, scoped,
};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

fn localhost(v6: bool) -> IpAddr {
    if v6 { "::1".parse().unwrap() } else { "127.0.0.1".parse().unwrap() }
}

/// A receive socket on a port that the system chose.
fn receiver(ip: IpAddr, rcvbuf: u64) -> (ReceiveSocket, SocketAddr) {
    let socket = ReceiveSocket::bind(SocketAddr::new(ip, 0), rcvbuf).unwrap();
    let addr = socket.address().unwrap();
    (socket, addr)
}

struct Got {
    from: SocketAddr,
    datagrams: Vec<Vec<u8>>,
    ce: bool,
}

/// Receives until `bytes` have come.
fn receive(socket: &ReceiveSocket, bytes: usize) -> Vec<Got> {
    let mut batch = ReceiveBatch::new();
    let mut all = Vec::new();
    let (mut have, start) = (0, Instant::now());
    while have < bytes {
        assert!(start.elapsed() < Duration::from_secs(5), "{have} of {bytes} bytes came");
        for i in 0..batch.receive(socket, MAX_RUNS).unwrap() {
            let run = batch.run(i).unwrap();
            have += run.bytes.len();
            let (from, ce) = (run.from, run.ce);
            all.push(Got { from, ce, datagrams: run.datagrams().map(|it| it.to_vec()).collect() });
        }
    }
    all
}

fn numbered(count: usize, len: usize, last: usize) -> Vec<Vec<u8>> {
    (0..count).map(|i| vec![i as u8; if i + 1 == count { last } else { len }]).collect()
}

/// Gathers the datagrams, each from two pieces of which one is not copied.
fn gather(datagrams: &[Vec<u8>]) -> Gather {
    let mut gather = Gather::new();
    for datagram in datagrams {
        let (head, tail) = datagram.split_at(datagram.len() / 3);
        gather.append(head.len()).copy_from_slice(head);
        // SAFETY: the datagrams outlive the gather.
        unsafe { gather.reference(tail.as_ptr(), tail.len()) };
    }
    gather
}

fn bursts_arrive_as_they_were_sent(from: &SendSocket, to: &ReceiveSocket, addr: SocketAddr, mtu: usize) {
    let headers = if addr.is_ipv6() { 48 } else { 28 };
    let len = mtu - headers;
    for (count, len, last) in
        [(1, 1, 1), (1, len, len), (2, len, 1), (MAX_SEND / len, len, len), (64, 100, 99), (64, 700, 700)]
    {
        let sent = numbered(count, len, last);
        from.send(&Destination::new(addr), &gather(&sent), (count > 1).then_some(len as u16)).unwrap();
        let got = receive(to, sent.iter().map(Vec::len).sum());
        assert!(got.iter().all(|got| got.from.port() == from.port().unwrap() && !got.ce));
        let datagrams: Vec<_> = got.into_iter().flat_map(|got| got.datagrams).collect();
        assert!(datagrams == sent, "{count} datagrams of {len}, the last of {last}");
    }
}

#[test]
fn a_burst_crosses_loopback_in_one_call() {
    for v6 in [false, true] {
        let (to, addr) = receiver(localhost(v6), 4 << 20);
        assert!(to.has_gro());
        let from = SendSocket::bind(localhost(v6), 0).unwrap();
        assert!(from.has_gso());
        bursts_arrive_as_they_were_sent(&from, &to, addr, 1500);
        bursts_arrive_as_they_were_sent(&from, &to, addr, 9000);
        // 44 datagrams sent in one call come back in one run.
        let sent = numbered(44, 1472, 1472);
        from.send(&Destination::new(addr), &gather(&sent), Some(1472)).unwrap();
        assert_eq!(receive(&to, 44 * 1472).len(), 1);
    }
}

#[test]
fn a_burst_crosses_virtual_ethernet() {
    let Some(pair) = Namespaces::new("udp-burst", 1500) else { return };
    let (to, addr) = pair.run(1, || receiver(pair.ip(1), 4 << 20));
    let from = pair.run(0, || SendSocket::bind(pair.ip(0), 0).unwrap());
    bursts_arrive_as_they_were_sent(&from, &to, addr, 1500);
    let index = pair.run(0, || namespace::interface_index("e0"));
    let peer_index = pair.run(1, || namespace::interface_index("e0"));
    // Link-local IPv6 needs the interface's number.
    let (a, b) = (pair.link_local(0), pair.link_local(1));
    let to = pair.run(1, || ReceiveSocket::bind(scoped(b, 17_900, peer_index), 4 << 20).unwrap());
    let from = pair.run(0, || SendSocket::bind(a, index).unwrap());
    bursts_arrive_as_they_were_sent(&from, &to, scoped(b, 17_900, index), 1500);
}

#[test]
fn a_port_belongs_to_one_socket() {
    let (_held, addr) = receiver(localhost(false), 1 << 20);
    let error = ReceiveSocket::bind(addr, 1 << 20).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn overflow_is_counted() {
    let (to, addr) = receiver(localhost(false), 65_536);
    let from = SendSocket::bind(localhost(false), 0).unwrap();
    let datagram = vec![1u8; 1000];
    for _ in 0..1000 {
        from.send_bytes(&Destination::new(addr), &datagram, None).unwrap();
    }
    let drops = to.drops().unwrap();
    assert!(drops > 0 && drops < 1000, "{drops}");
    // What did not overflow is there.
    receive(&to, (1000 - drops as usize) * 1000);
}

#[test]
fn a_socket_keeps_its_port_through_connections() {
    for v6 in [false, true] {
        let (ours, other) = (receiver(localhost(v6), 1 << 20), receiver(localhost(v6), 1 << 20));
        let mut from = SendSocket::bind(localhost(v6), 0).unwrap();
        let port = from.port().unwrap();
        let [to, elsewhere] = [ours.1, other.1].map(Destination::new);
        for _ in 0..3 {
            from.connect(&to);
            assert!(from.connected() == Some(&to));
            from.send_bytes(&to, b"connected", None).unwrap();
            from.send_bytes(&elsewhere, b"named", None).unwrap();
            from.disconnect();
            assert!(from.connected().is_none());
            from.send_bytes(&to, b"again", None).unwrap();
        }
        assert_eq!(from.port().unwrap(), port);
        for (socket, bytes) in [(&ours.0, 3 * (9 + 5)), (&other.0, 3 * 5)] {
            assert!(receive(socket, bytes).iter().all(|got| got.from.port() == port));
        }
    }
}

#[test]
fn a_congestion_mark_is_seen() {
    for v6 in [false, true] {
        let (to, addr) = receiver(localhost(v6), 1 << 20);
        let from = SendSocket::bind(localhost(v6), 0).unwrap();
        let (level, name) =
            if v6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
        for (mark, ce) in [(0b11, true), (0b10, false), (0b01, false)] {
            let mark: libc::c_int = mark;
            // SAFETY: the value outlives the call, and its size is given.
            let set = unsafe {
                let value = std::ptr::from_ref(&mark).cast();
                libc::setsockopt(from.as_fd().as_raw_fd(), level, name, value, size_of_val(&mark) as u32)
            };
            assert_eq!(set, 0);
            from.send_bytes(&Destination::new(addr), &[0; 10], None).unwrap();
            assert_eq!(receive(&to, 10)[0].ce, ce, "mark {mark:b}, IPv6 {v6}");
        }
    }
}

#[test]
fn a_closed_port_is_reported() {
    let from = SendSocket::bind(localhost(false), 0).unwrap();
    let (closed, addr) = receiver(localhost(false), 1 << 20);
    drop(closed);
    // The answer comes in place of a later send, which is therefore made again: of the next one, unless the machine is busy.
    let send = |n: u64| {
        std::thread::sleep(std::time::Duration::from_millis(n.min(10)));
        from.send_bytes(&Destination::new(addr), &[0; 10], None)
    };
    let error = (0..500).find_map(|n| send(n).err()).expect("nobody listens there");
    assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
    let report = from.take_error().unwrap();
    assert_eq!((report.to, report.errno, report.from_network), (Some(addr), libc::ECONNREFUSED, true));
}

#[test]
fn what_is_larger_than_the_path_is_refused_with_its_mtu() {
    let Some(pair) = Namespaces::new("udp-mtu", 1500) else { return };
    let from = pair.run(0, || SendSocket::bind(pair.ip(0), 0).unwrap());
    let to = SocketAddr::new(pair.ip(1), 9);
    let error = from.send_bytes(&Destination::new(to), &[0; 1473], None).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    let report = from.take_error().unwrap();
    assert_eq!((report.mtu, report.from_network), (Some(1500), false));
    assert_eq!(pair.run(0, || path_mtu(to).unwrap()), 1500);
    from.send_bytes(&Destination::new(to), &[0; 1472], None).unwrap();
}

#[test]
fn a_router_that_refuses_a_size_lowers_the_path_mtu() {
    let Some(pair) = Namespaces::new("udp-pmtu", 1500) else { return };
    // Behind the peer lies a link of 1280 bytes.
    pair.ip_in(1, "link add far mtu 1280 type veth peer name farther");
    pair.ip_in(1, "link set farther up");
    pair.ip_in(1, "link set far up");
    pair.ip_in(1, "route add 10.77.0.0/24 dev far");
    pair.enable_forwarding(1);
    pair.ip_in(0, &format!("route add 10.77.0.0/24 via {}", pair.ip(1)));
    let from = pair.run(0, || SendSocket::bind(pair.ip(0), 0).unwrap());
    let to = Destination::new("10.77.0.1:9".parse().unwrap());
    from.send_bytes(&to, &[0; 1400], None).unwrap();
    let start = Instant::now();
    let report = loop {
        if let Some(report) = from.take_error() {
            break report;
        }
        assert!(start.elapsed() < Duration::from_secs(5), "no router answered");
    };
    assert_eq!((report.errno, report.mtu, report.from_network), (libc::EMSGSIZE, Some(1280), true));
}
