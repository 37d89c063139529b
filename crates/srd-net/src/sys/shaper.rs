//! What `tc` does at an interface: the rate to which this host shapes what leaves by it, for a virtual link has no speed of its own, and a
//! real one may be allowed less than it could; and whether it looks at what comes. Read over netlink (rtnetlink(7); linux/rtnetlink.h, linux/pkt_sched.h).

use super::netlink::{Netlink, attribute, u32_of, u64_of};
use nix::sys::socket::SockProtocol;
use std::io;

const GET_QDISC: u16 = 38; // RTM_GETQDISC
const GET_CLASS: u16 = 42; // RTM_GETTCLASS
const TRAFFIC: usize = 20; // struct tcmsg
const ROOT: u32 = u32::MAX; // TC_H_ROOT
const INGRESS: u32 = 0xffff_fff1; // TC_H_INGRESS, TC_H_CLSACT
const KIND: u16 = 1; // TCA_KIND
const OPTIONS: u16 = 2; // TCA_OPTIONS
/// Where the rate lies in a `struct tc_ratespec` of 12 bytes.
const RATE_IN_SPEC: usize = 8;

/// Bytes per second that may leave the interface of this number, if a token bucket (tbf), hierarchical ones (htb) or cake at
/// its root say so.
pub fn bytes_per_s(interface: u32) -> io::Result<Option<u64>> {
    let netlink = Netlink::open(SockProtocol::NetlinkRoute)?;
    for message in dump(&netlink, GET_QDISC, interface)? {
        let Some(queue) = Queue::read(&message).filter(|queue| queue.is_root_of(interface)) else { continue };
        return Ok(match queue.kind {
            b"tbf" => queue.rate(1, 0, 4),
            b"cake" => attribute(queue.options, 2).and_then(u64_of), // TCA_CAKE_BASE_RATE64
            b"htb" => {
                let classes = dump(&netlink, GET_CLASS, interface)?;
                let top = classes.iter().filter_map(|message| Queue::read(message));
                let ceilings =
                    top.filter(|class| class.is_root_of(interface)).filter_map(|class| class.rate(1, 12, 7));
                ceilings.max()
            }
            _ => None,
        }
        .filter(|&rate| rate > 0));
    }
    Ok(None)
}

/// Whether it has a place for filters of what comes by the interface, whatever they are.
pub fn looks_at_what_comes(netlink: &Netlink, interface: u32) -> io::Result<bool> {
    let queues = dump(netlink, GET_QDISC, interface)?;
    let mut queues = queues.iter().filter_map(|message| Queue::read(message));
    Ok(queues.any(|queue| queue.interface == interface && queue.parent == INGRESS))
}

/// A queueing discipline, or a class of one.
struct Queue<'a> {
    interface: u32,
    parent: u32,
    kind: &'a [u8],
    options: &'a [u8],
}

impl<'a> Queue<'a> {
    /// Reads what follows a message's header.
    fn read(message: &'a [u8]) -> Option<Queue<'a>> {
        let attributes = message.get(TRAFFIC..)?;
        let kind = attribute(attributes, KIND)?;
        Some(Queue {
            interface: u32_of(message.get(4..8)?)?,
            parent: u32_of(message.get(12..16)?)?,
            kind: kind.strip_suffix(&[0]).unwrap_or(kind),
            options: attribute(attributes, OPTIONS).unwrap_or_default(),
        })
    }

    fn is_root_of(&self, interface: u32) -> bool {
        self.interface == interface && self.parent == ROOT
    }

    /// The rate in the `struct tc_ratespec` at `at` of attribute `parameters`, or, where 32 bits do not hold it, in `wide`.
    fn rate(&self, parameters: u16, at: usize, wide: u16) -> Option<u64> {
        if let Some(rate) = attribute(self.options, wide).and_then(u64_of) {
            return Some(rate);
        }
        let spec = attribute(self.options, parameters)?.get(at..)?;
        u32_of(spec.get(RATE_IN_SPEC..RATE_IN_SPEC + 4)?).map(u64::from)
    }
}

/// All that there is of what `what` asks for.
fn dump(netlink: &Netlink, what: u16, interface: u32) -> io::Result<Vec<Vec<u8>>> {
    let mut request = [0; TRAFFIC];
    request[4..8].copy_from_slice(&interface.to_ne_bytes());
    netlink.dump(what, &request)
}

#[cfg(test)]
mod tests {
    use super::super::netlink::with_attribute as with;
    use super::*;

    fn queue(interface: u32, parent: u32, kind: &[u8], options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&interface.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&parent.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend([with(KIND, kind), with(OPTIONS, options)].concat());
        bytes
    }

    #[test]
    fn a_token_buckets_rate_is_read_in_32_and_in_64_bits() {
        let mut parameters = vec![0; 36];
        parameters[8..12].copy_from_slice(&12_500_000u32.to_ne_bytes());
        let bytes = queue(7, ROOT, b"tbf\0", &with(1, &parameters));
        let read = Queue::read(&bytes).unwrap();
        assert!(read.is_root_of(7) && !read.is_root_of(8));
        assert_eq!((read.kind, read.rate(1, 0, 4)), (&b"tbf"[..], Some(12_500_000)));
        let wide = [with(1, &parameters), with(4, &50_000_000_000u64.to_ne_bytes())].concat();
        let bytes = queue(7, ROOT, b"tbf\0", &wide);
        assert_eq!(Queue::read(&bytes).unwrap().rate(1, 0, 4), Some(50_000_000_000));
    }

    #[test]
    fn what_is_cut_short_says_nothing() {
        let mut parameters = vec![0; 36];
        parameters[8..12].copy_from_slice(&1u32.to_ne_bytes());
        let whole = queue(7, ROOT, b"tbf\0", &with(1, &parameters));
        for length in 0..whole.len() {
            let rate = Queue::read(&whole[..length]).and_then(|queue| queue.rate(1, 0, 4));
            assert!(rate.is_none() || length >= whole.len() - 24, "{length}");
        }
    }

    #[test]
    fn loopback_is_not_shaped() {
        assert_eq!(bytes_per_s(1).unwrap(), None);
    }
}
