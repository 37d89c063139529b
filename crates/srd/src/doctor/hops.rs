//! Which routers the source ports pass: probes whose time to live runs out on the way, as traceroute sends them, from
//! every source port.

use super::finding::Finding;
use super::paths::Fan;
use nix::libc::{sock_extended_err, sockaddr_in6};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Routers that are looked for.
const MOST_HOPS: u8 = 12;

/// Tries per hop: routers limit how many such answers they give in a second.
const TRIES: u32 = 3;

/// How long each try waits.
const PATIENCE: Duration = Duration::from_millis(200);

/// Hops in a row that may be silent before the search ends.
const SILENT_HOPS: usize = 3;

/// By hop, which router each source port met.
type Hops = Vec<BTreeMap<usize, IpAddr>>;

/// Looks at all hops.
pub fn examine(to: SocketAddr, paths: u16) -> io::Result<Vec<Finding>> {
    let fan = Fan::open(to, paths)?;
    for socket in &fan.sockets {
        let asked = if to.is_ipv4() {
            setsockopt(socket, sockopt::Ipv4RecvErr, &true)
        } else {
            setsockopt(socket, sockopt::Ipv6RecvErr, &true)
        };
        if let Err(error) = asked {
            return Ok(vec![Finding::skip(
                "hops",
                format!("this kernel does not report routers' answers: {error}"),
            )]);
        }
    }
    let mut hops = Hops::new();
    for ttl in 1..=MOST_HOPS {
        let (routers, reached) = hop(&fan, to, ttl)?;
        if reached > 0 {
            break;
        }
        hops.push(routers);
        if hops.iter().rev().take_while(|routers| routers.is_empty()).count() == SILENT_HOPS {
            break;
        }
    }
    Ok(vec![judge(to.ip(), paths, &hops)])
}

/// Who answers at one hop, and how many ports reach the host itself.
fn hop(fan: &Fan, to: SocketAddr, ttl: u8) -> io::Result<(BTreeMap<usize, IpAddr>, usize)> {
    for socket in &fan.sockets {
        if to.is_ipv4() {
            setsockopt(socket, sockopt::Ipv4Ttl, &i32::from(ttl))?;
        } else {
            setsockopt(socket, sockopt::Ipv6Ttl, &i32::from(ttl))?;
        }
    }
    let mut routers = BTreeMap::new();
    let mut reached = BTreeSet::new();
    for _ in 0..TRIES {
        let silent: Vec<usize> = (0..fan.sockets.len())
            .filter(|index| !routers.contains_key(index) && !reached.contains(index))
            .collect();
        if silent.is_empty() {
            break;
        }
        for index in silent {
            fan.send(index, ttl.into());
        }
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && routers.len() + reached.len() < fan.sockets.len() {
            // Short waits: the sockets are ready for as long as their error queues hold something.
            fan.collect(deadline.min(Instant::now() + Duration::from_millis(10)), |index, _| {
                reached.insert(index);
            })?;
            for (index, socket) in fan.sockets.iter().enumerate() {
                while let Some(router) = expired_at(socket) {
                    routers.insert(index, router);
                }
            }
        }
    }
    Ok((routers, reached.len()))
}

/// The router that a datagram of this socket died at, if one has said so since the last call.
fn expired_at(socket: &UdpSocket) -> Option<IpAddr> {
    const ORIGIN_ICMP: u8 = 2;
    const ORIGIN_ICMP6: u8 = 3;
    const TIME_EXCEEDED: u8 = 11;
    const TIME_EXCEEDED_6: u8 = 3;
    let mut buffer = [0; 64];
    let mut iov = [IoSliceMut::new(&mut buffer)];
    let mut space = nix::cmsg_space!((sock_extended_err, sockaddr_in6));
    loop {
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let message =
            recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut iov, Some(&mut space), flags).ok()?;
        for control in message.cmsgs().ok()? {
            match control {
                ControlMessageOwned::Ipv4RecvErr(error, Some(router))
                    if (error.ee_origin, error.ee_type) == (ORIGIN_ICMP, TIME_EXCEEDED) =>
                {
                    return Some(SockaddrIn::from(router).ip().into());
                }
                ControlMessageOwned::Ipv6RecvErr(error, Some(router))
                    if (error.ee_origin, error.ee_type) == (ORIGIN_ICMP6, TIME_EXCEEDED_6) =>
                {
                    return Some(SockaddrIn6::from(router).ip().into());
                }
                _ => {}
            }
        }
    }
}

fn judge(host: IpAddr, ports: u16, hops: &[BTreeMap<usize, IpAddr>]) -> Finding {
    let check = "hops";
    if hops.is_empty() {
        return Finding::skip(
            check,
            format!(
                "{host} is a neighbour: no router between shows which paths the source ports take, if any"
            ),
        );
    }
    // The hop that tells most: with unknown answers left out, distinct routers at one hop are distinct paths.
    let distinct = |routers: &BTreeMap<usize, IpAddr>| routers.values().collect::<BTreeSet<_>>().len();
    let (number, widest) = hops
        .iter()
        .enumerate()
        .max_by_key(|(index, routers)| (distinct(routers), usize::MAX - index))
        .expect("not empty");
    let answers = format!("{} of {ports} source ports got an answer from hop {}", widest.len(), number + 1);
    match distinct(widest) {
        0 => Finding::skip(
            check,
            format!("none of the {} routers on the way to {host} shows itself", hops.len()),
        ),
        1 => Finding::warn(
            check,
            format!("one path to {host}: every source port passes the same routers ({answers})"),
        )
        .mend(
            "if there are more paths, let the routers choose by UDP port; where they run Linux: \
                 sysctl -w net.ipv4.fib_multipath_hash_policy=1",
        ),
        count => {
            let routers: BTreeSet<String> = widest.values().map(ToString::to_string).collect();
            let routers: Vec<String> = routers.into_iter().take(8).collect();
            Finding::ok(
                check,
                format!("at least {count} paths to {host}, by way of {} ({answers})", routers.join(", ")),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn distinct_routers_at_a_hop_are_distinct_paths() {
        let router = |n: u8| IpAddr::from([10, 0, 0, n]);
        let same: BTreeMap<_, _> = (0..4).map(|port| (port, router(1))).collect();
        let spread: BTreeMap<_, _> = (0..4).map(|port| (port, router(port as u8 % 2))).collect();
        let host = router(99);
        assert_eq!(judge(host, 4, &[]).level, Level::Skip);
        assert_eq!(judge(host, 4, &[BTreeMap::new()]).level, Level::Skip);
        assert_eq!(judge(host, 4, std::slice::from_ref(&same)).level, Level::Warn);
        let finding = judge(host, 4, &[same.clone(), spread, same]);
        assert_eq!(finding.level, Level::Ok);
        assert!(finding.what.contains("at least 2 paths"), "{}", finding.what);
        assert!(finding.what.contains("hop 2"), "{}", finding.what);
    }
}
