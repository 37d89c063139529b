//! Defaults of the transport on a host with kernel UDP. The transport's own defaults are those of a fabric with
//! hardware at its ends; here every packet passes two kernels and two schedulers.

use crate::address::LocalAddress;
use crate::options::Options;
use srd_proto::{Config, OwnAddress};
use srd_wire::{BitRate, Nanos, seal};

/// Largest MTU that is used unless `SRD_MTU` says otherwise: jumbo frames with some reserve. A message of the device's
/// MTU fits one such packet; loopback's 64 KiB would only make losses dearer.
pub const LARGEST_DEFAULT_MTU: u32 = 9216;

/// Rate of a link that does not know its own.
const UNKNOWN_RATE: BitRate = BitRate(100_000_000_000);
/// Round trip of two hosts beside each other, of which one sleeps.
const HOSTS: Nanos = Nanos::from_micros(200);
/// Times that a full packet is sent between hosts of different leaves.
const HOPS: u64 = 4;
/// A program that answers a message does so within this time.
const ACK_DELAY: Nanos = Nanos::from_micros(15);
/// Packets that one ACK is for where they come one by one.
const ACKED_TOGETHER: u64 = 2;

/// Bytes of the headers below ours: IP without options, and UDP.
pub fn headers_below(v6: bool) -> u16 {
    if v6 { 40 + 8 } else { 20 + 8 }
}

/// MTU of the path, IP header included.
pub fn path_mtu(options: &Options, local: &LocalAddress) -> u16 {
    options.mtu.unwrap_or(local.mtu.clamp(576, LARGEST_DEFAULT_MTU) as u16)
}

/// Bytes of ours that fit a packet of `mtu` bytes when sealing has taken its part.
pub fn max_datagram(mtu: u16, v6: bool, sealed: bool) -> u16 {
    mtu - headers_below(v6) - if sealed { seal::overhead(true) as u16 } else { 0 }
}

/// Configuration of the transport.
///
/// | value | here | why |
/// |---|---|---|
/// | `base_rtt` | 200 us and the time of four packets | delays below a fraction of it are the schedulers' of both hosts, not queues in the network; a full packet is sent anew by each hop of a leaf-spine fabric |
/// | `line_rate` | the link's or what the host shapes it to, else 100 Gb/s | virtual links know no rate |
/// | `own_address` | past the link | the kernel carries it past the interface |
/// | `probe_path_mtu` | yes | networks that swallow large packets exist |
/// | `min_rto` | 1 ms | a descheduled process answers after a scheduler tick, not after a round trip |
/// | `min_pto` | 300 us | a thread that sleeps on a socket wakes within this time |
/// | `max_rto` | 100 ms | |
/// | `ack_delay` | 15 us | a program that answers a message does so within this time |
/// | `stream_ack_delay` | 15 us and the time of two packets | one ACK for two packets of a stream on a slow link, as TCP has it (RFC 5681) |
/// | `answer_delay` | 12 us | a program that polls has taken a message of 8 KB and answered it within this time |
/// | `ack_every` | 64 | more than one GSO send has: a program's answer to a long message carries its ACK, too |
/// | `entropy` | twice the paths, 16 to 512 | a bad port must be replaceable by another one |
/// | `rcvbuf_bytes` | what the system granted | which is half of what it really gives: it charges a datagram for all memory it takes |
/// | `burst_bytes` | 63,000 | one GSO send |
pub fn transport_config(options: &Options, local: &LocalAddress, rcvbuf: u64) -> Config {
    let sealed = options.key_file.is_some();
    let known_rate = options.line_rate.or(local.line_rate);
    let line_rate = known_rate.unwrap_or(UNKNOWN_RATE);
    let packet_time = line_rate.time_for(u64::from(path_mtu(options, local)));
    Config {
        paths: options.paths,
        entropy: (2 * options.paths).clamp(16, 512),
        max_datagram: max_datagram(path_mtu(options, local), local.ip.is_ipv6(), sealed),
        probe_path_mtu: true,
        burst_bytes: 63_000,
        selector: options.selector,
        controller: options.cc,
        fixed_window_bytes: options.fixed_window_bytes,
        line_rate,
        line_rate_known: known_rate.is_some(),
        own_address: OwnAddress::PastLink,
        base_rtt: options.base_rtt.unwrap_or(Nanos(HOSTS.0 + HOPS * packet_time.0)),
        rcvbuf_bytes: rcvbuf,
        min_rto: Nanos::from_millis(1),
        min_pto: Nanos::from_micros(300),
        max_rto: Nanos::from_millis(100),
        ack_delay: ACK_DELAY,
        stream_ack_delay: Nanos(ACK_DELAY.0 + ACKED_TOGETHER * packet_time.0),
        answer_delay: Nanos::from_micros(12),
        ack_every: 64,
        peer_timeout: options.peer_timeout,
        confirm_first: sealed,
        ..Config::default()
    }
}
