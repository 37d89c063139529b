//! What SRD processes of simulated hosts have in common, whatever their memory is and whatever lies above the device: their
//! addresses, the transport's configuration, what their frames carry and cost.

use crate::hosts::process::Birth;
use crate::net::{Content, DataPacket, ETHERNET_HEADER, FrameHead};
use srd_baselines::transport::{Counts, Outgoing, Role, WireCost};
use srd_device::{Device, DeviceConfig, Length, Memory, Received};
use srd_proto::{Config, Payload};
use srd_wire::{Ack, Body, Gid, Incarnation, MrKey, Nanos, Op, Packet, Psn, Qkey, Qpn, Route, Time, codec};
use std::net::{IpAddr, Ipv4Addr};

/// Bytes of IPv4 and UDP headers.
pub(crate) const IP_UDP: u32 = 28;
/// First source port of the pool that paths are made of.
pub const FIRST_SOURCE_PORT: u16 = 0xC000;
/// Source ports in the pool.
pub(crate) const SOURCE_PORTS: u16 = 4096;
/// ACKs that tell a sender of a bandwidth-delay product.
const ACKS_PER_BDP: u64 = 24;

/// The address of a simulated host.
pub fn gid(host: u32) -> Gid {
    let [_, b, c, d] = host.to_be_bytes();
    Gid::from(IpAddr::V4(Ipv4Addr::new(10, b, c, d)))
}

/// The host with this address.
pub(crate) fn host_of(gid: Gid) -> u32 {
    let [.., b, c, d] = gid.0;
    u32::from_be_bytes([0, b, c, d])
}

/// What a write costs on the wire in packets of at most `mtu` bytes of IP.
pub fn wire_cost(mtu: u16, frame_overhead: u32) -> WireCost {
    let route = Route { dst_qpn: Qpn(0), src_qpn: Qpn(0), qkey: Qkey(0) };
    let op = Op::Write { route, rkey: MrKey(0), addr: 0, imm: None };
    let datagram = mtu as usize - IP_UDP as usize;
    let room = codec::max_payload(&op, datagram, false);
    // The transport cuts long messages at multiples of 128 bytes.
    let payload = room - room % 128;
    let headers = (datagram - room) as u64 + IP_UDP as u64 + ETHERNET_HEADER as u64 + frame_overhead as u64;
    WireCost { payload: payload as u64, headers }
}

/// What an SRD frame carries.
#[derive(Clone, Debug)]
pub struct SrdContent<P = Length> {
    /// Sending host.
    pub from: u32,
    /// UDP source and destination port.
    pub ports: (u16, u16),
    /// Bytes of the UDP payload.
    pub datagram: u16,
    /// The packet.
    pub packet: Packet<P>,
}

impl<P: Payload> Content for SrdContent<P> {
    /// Of data the headers are left. What has no payload joins what was cut as it is; a padded question asks for its size.
    fn trim(&mut self) -> Option<u32> {
        let header = codec::header_len(&self.packet) as u16;
        if !matches!(self.packet.body, Body::Data(_)) && self.datagram > header {
            return None;
        }
        self.datagram = header;
        Some(ETHERNET_HEADER + IP_UDP + header as u32)
    }

    fn data(&self) -> Option<DataPacket> {
        let Body::Data(data) = &self.packet.body else { return None };
        let (psn, payload) = (data.psn.0, data.payload.len() as u32);
        let path = data.path.0 as u16;
        Some(DataPacket { connection: 0, psn, inbox: self.inbox()?, payload, path })
    }

    fn acknowledges(&self) -> Option<u32> {
        self.packet.ack.as_ref().map(|_| 0) // two processes have one context
    }

    fn covers(&self, psn: u32) -> bool {
        self.packet.ack.as_ref().is_some_and(|ack| covers(ack, Psn(psn)))
    }
}

/// Whether an ACK says that a packet has arrived.
pub(crate) fn covers(ack: &Ack, psn: Psn) -> bool {
    if psn.before(ack.cum) {
        return true;
    }
    let Some(bit) = psn.offset_from(ack.cum).checked_sub(1) else { return false };
    ack.sack.get(bit as usize / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
}

/// Data packets per ACK: the more are in flight, the fewer of them need one of their own. Between 2 and 6, since an ACK has
/// room for eight paths.
fn ack_every(bdp: u64, datagram: u16) -> u32 {
    (bdp / (ACKS_PER_BDP * datagram as u64)).clamp(2, 6) as u32
}

/// The transport's configuration in a run: the host's defaults, less what is about kernels and software timers.
pub(crate) fn transport_config(birth: &Birth<'_>) -> Config {
    let Role { line_rate, base_rtt, mtu, .. } = birth.role;
    let settings = birth.transport.srd().expect("a process of SRD is born for it");
    let datagram = mtu - IP_UDP as u16;
    Config {
        paths: settings.paths,
        entropy: SOURCE_PORTS,
        max_datagram: datagram,
        burst_bytes: datagram as u32, // no GSO: a network card takes packets one by one
        selector: settings.selector,
        controller: settings.controller,
        fixed_window_bytes: settings.fixed_window_bytes,
        law: settings.law,
        line_rate,
        base_rtt,
        receiver_hint: settings.receiver_hint.unwrap_or(true),
        ack_delay: Nanos(base_rtt.0 / 4),
        ack_every: settings.ack_every.unwrap_or_else(|| ack_every(line_rate.bytes_in(base_rtt), datagram)),
        ..Config::of_a_simulated_card()
    }
}

/// The device of a process, at its host's network card.
pub(crate) struct Nic<M: Memory> {
    pub device: Device<M>,
    host: u32,
    port_base: u16,
    /// Class of its packets, and classes that are paused (a bit each).
    class: u8,
    paused: u8,
    /// Packets sent, without data and with.
    bare: u64,
    data: u64,
}

impl<M: Memory> Nic<M> {
    /// A new device, as the process's role and `config` say.
    pub fn new(role: &Role, config: DeviceConfig, memory: M) -> Nic<M> {
        let port_base = config.port_base;
        let port = port_base + role.process;
        let incarnation = Incarnation(role.seed | 1);
        let device = Device::new(config, gid(role.host), port, incarnation, role.seed ^ 0x5eed, memory);
        Nic { device, host: role.host, port_base, class: role.class, paused: 0, bare: 0, data: 0 }
    }

    /// The host.
    pub fn host(&self) -> u32 {
        self.host
    }

    /// As [`srd_baselines::transport::Transport::set_paused`].
    pub fn set_paused(&mut self, classes: u8) {
        self.paused = classes;
    }

    /// As [`srd_baselines::transport::Transport::next_timeout`].
    pub fn next_timeout(&self) -> Time {
        match self.paused >> self.class & 1 {
            0 => self.device.next_timeout(),
            _ => self.device.next_timer(),
        }
    }

    /// As [`srd_baselines::transport::Transport::receive`].
    #[inline]
    pub fn receive(&mut self, now: Time, arrived: Time, head: &FrameHead, content: &SrdContent<M::Payload>) {
        let &SrdContent { from, ports, datagram, ref packet } = content;
        let (from, bytes) = (gid(from), datagram as usize);
        // What had no payload is whole.
        let cut = head.trimmed && matches!(&packet.body, Body::Data(data) if !data.payload.is_empty());
        self.device.handle_packet(
            now,
            ports.1,
            Received { arrived, seen: now, from, packet, bytes, ce: head.marked, cut },
        );
    }

    /// As [`srd_baselines::transport::Transport::poll_transmit`].
    #[inline]
    pub fn poll_transmit<R>(
        &mut self,
        now: Time,
        mut sink: impl FnMut(Outgoing<SrdContent<M::Payload>>) -> R,
    ) -> Option<R> {
        if self.paused >> self.class & 1 != 0 {
            return None;
        }
        let (from, port_base, class) = (self.host, self.port_base, self.class);
        let (data, bare) = (&mut self.data, &mut self.bare);
        self.device.poll_transmit_with(now, |transmit| {
            let ports = (FIRST_SOURCE_PORT + transmit.entropy, transmit.to.port);
            let payload = match &transmit.packet.body {
                Body::Data(segment) => {
                    *data += 1;
                    segment.payload.len().max(transmit.pad_to as usize)
                }
                _ => {
                    *bare += 1;
                    transmit.pad_to as usize
                }
            };
            let datagram = (codec::header_len(&transmit.packet) + payload) as u16;
            sink(Outgoing {
                to: host_of(transmit.to.gid),
                process: transmit.to.port - port_base,
                ports,
                bytes: datagram as u32 + IP_UDP,
                class,
                ecn_capable: true,
                content: SrdContent { from, ports, datagram, packet: transmit.packet },
            })
        })
    }

    /// As [`srd_baselines::transport::Transport::counts`].
    pub fn counts(&self) -> Counts {
        let stats = self.device.endpoint().stats();
        Counts {
            data_new: self.data - stats.retrans_pkts,
            data_again: stats.retrans_pkts,
            spurious: stats.spurious_retrans,
            bare: self.bare,
            timeouts: stats.retrans_timeout_events,
        }
    }
}
