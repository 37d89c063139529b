//! The surface by which a host runs a transport: what a simulated process can be asked to do. SRD is one, and so are
//! the transports it is compared with.

use crate::frame::{Content, ETHERNET_HEADER, FrameHead, SHORTEST_FRAME};
use srd_wire::{BitRate, Nanos, Time};

/// What a process must know before it begins.
#[derive(Clone, Debug)]
pub struct Role {
    /// Host number.
    pub host: u32,
    /// Number among the host's processes: its address there.
    pub process: u16,
    /// Flows that it will send at a time, at most.
    pub flows_out: u32,
    /// Inboxes that it will have, at most.
    pub inboxes: u32,
    /// Seed of its own.
    pub seed: u64,
    /// Rate of the fastest host's link.
    pub line_rate: BitRate,
    /// Longest unloaded round trip between two hosts.
    pub base_rtt: Nanos,
    /// Largest IP datagram in bytes.
    pub mtu: u16,
    /// Class of its packets, 0 to 7.
    pub class: u8,
}

/// What a flow costs on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WireCost {
    /// Payload bytes of a full packet.
    pub payload: u64,
    /// Bytes that each packet takes beside its payload.
    pub headers: u64,
}

impl WireCost {
    /// Bytes on the wire for so many bytes of payload.
    pub fn bytes(&self, payload: u64) -> u64 {
        payload + payload.div_ceil(self.payload) * self.headers
    }
}

/// A transfer that a process is asked to begin.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The flow's index.
    pub flow: u32,
    /// Which inbox of the receiver it fills.
    pub inbox: u32,
    /// Bytes; `u64::MAX`: until it is told to stop.
    pub bytes: u64,
    /// Orders of one channel between the same two processes share a connection (of TCP; a queue pair of RoCE), one behind
    /// the other in the order in which they are begun, like messages in a byte stream: its window, its round trips and its
    /// losses are theirs together, and it stays, as it is, while there are none. Each flow of a workload has a channel of
    /// its own; all messages of a program to another go through channel [`Order::PROGRAM`], thousands of them. A transport
    /// whose flows share everything anyway need not look at it.
    pub channel: u32,
}

impl Order {
    /// The channel of a program's messages.
    pub const PROGRAM: u32 = u32::MAX;
}

/// What a process hands to its network card.
#[derive(Clone, Debug)]
pub struct Outgoing<C> {
    /// Destination host.
    pub to: u32,
    /// Process there.
    pub process: u16,
    /// Source and destination port, of which ECMP makes a path.
    pub ports: (u16, u16),
    /// Bytes of the IP datagram.
    pub bytes: u32,
    /// Class, 0 to 7.
    pub class: u8,
    /// Whether congestion marks are understood.
    pub ecn_capable: bool,
    /// What it carries.
    pub content: C,
}

impl<C> Outgoing<C> {
    /// As a frame: what switches look at, and what it carries. `overhead`: bytes beside Ethernet's header and the datagram.
    #[inline]
    pub fn into_frame(self, tuple_hash: u32, overhead: u32) -> (FrameHead, C) {
        let Outgoing { to, process, bytes, class, ecn_capable, content, .. } = self;
        let head = FrameHead {
            tuple_hash,
            dst: to,
            bytes: (bytes + ETHERNET_HEADER).max(SHORTEST_FRAME) + overhead,
            class,
            ecn_capable,
            marked: false,
            trimmed: false,
            corrupt: false,
            epoch: 0,
            process,
        };
        (head, content)
    }

    /// The same with another content.
    #[inline]
    pub fn map<D>(self, make: impl FnOnce(C) -> D) -> Outgoing<D> {
        let Outgoing { to, process, ports, bytes, class, ecn_capable, content } = self;
        Outgoing { to, process, ports, bytes, class, ecn_capable, content: make(content) }
    }
}

/// What has become of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// The sender has every byte acknowledged.
    Sent {
        /// The flow.
        flow: u32,
    },
    /// The receiver has every byte.
    Received {
        /// The inbox that is full.
        inbox: u32,
    },
    /// The transport has given up.
    Failed {
        /// The flow.
        flow: u32,
        /// Why.
        why: &'static str,
    },
    /// The process's program has come to its end.
    Ended,
}

/// Counters of one process.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Data packets sent for the first time.
    pub data_new: u64,
    /// Data packets retransmitted.
    pub data_again: u64,
    /// Of those, for nothing: the first copy had arrived.
    pub spurious: u64,
    /// Packets without data.
    pub bare: u64,
    /// Timers that ran out.
    pub timeouts: u64,
}

/// A process that moves flows. It has no clock and no cable: moments and frames come in as arguments.
pub trait Transport: Sized {
    /// What its frames carry.
    type Content: Content;
    /// How others name it.
    type Address: Clone;

    /// Its address.
    fn address(&self) -> Self::Address;

    /// A flow of `bytes` (`u64::MAX`: without end) is about to come from that process and to fill that inbox, which is
    /// empty. Inboxes are below [`Role::inboxes`], and used again when they have been filled.
    fn expect(&mut self, from: &Self::Address, inbox: u32, bytes: u64);

    /// Begins a transfer.
    fn start(&mut self, now: Time, order: Order, to: &Self::Address);

    /// A transfer without end ends: nothing more is to be sent.
    fn stop(&mut self, now: Time, flow: u32);

    /// Addresses of all programs' processes, by rank. For transports that run programs, as the next one.
    fn meet(&mut self, _ranks: &[Self::Address]) {
        unreachable!("this transport runs no programs");
    }

    /// When the program, not the transport, wants [`Transport::handle_timeout`] to be called.
    fn program_timeout(&self) -> Time {
        Time::NEVER
    }

    /// A frame has come to the network card at `arrived`, and the host looks at it now.
    fn receive(&mut self, now: Time, arrived: Time, head: &FrameHead, content: &Self::Content);

    /// Gives the next frame to send to `sink`, if there is one now.
    fn poll_transmit<R>(&mut self, now: Time, sink: impl FnMut(Outgoing<Self::Content>) -> R) -> Option<R>;

    /// The network card may send no frames of these classes (a bit each) until it is told otherwise:
    /// [`Transport::poll_transmit`] gives none. Frames of other classes go on.
    fn set_paused(&mut self, classes: u8);

    /// How many processes send to this one now, as far as it knows.
    fn senders(&self, _now: Time) -> u16 {
        0
    }

    /// So many send to other processes of the host.
    fn set_neighbours(&mut self, _senders: u16) {}

    /// Work that is due by the clock.
    fn handle_timeout(&mut self, now: Time);

    /// When [`Transport::handle_timeout`] or [`Transport::poll_transmit`] wants to be called again.
    fn next_timeout(&self) -> Time;

    /// What has become of flows, each once.
    fn poll_report(&mut self) -> Option<Report>;

    /// Bytes that have come for an inbox.
    fn delivered(&mut self, inbox: u32) -> u64;

    /// Counters.
    fn counts(&self) -> Counts;
}
