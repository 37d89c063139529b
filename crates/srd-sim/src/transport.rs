//! The surface by which a host runs a transport: what a simulated process can be asked to do. SRD is one, and so are
//! the transports it is compared with.

use crate::frame::{Content, FrameHead};
use crate::program::script::Script;
use crate::settings::Settings;
use srd_wire::{BitRate, Nanos, Time};

/// What a process must know before it begins.
#[derive(Clone, Debug)]
pub struct Role<'a> {
    /// Everything about the run.
    pub settings: &'a Settings,
    /// Host number.
    pub host: u32,
    /// Number among the host's processes.
    pub process: u16,
    /// Flows that it will send, at most.
    pub flows_out: u32,
    /// Its rank and script, if it runs a program.
    pub program: Option<(u32, &'a Script)>,
    /// Bytes of each flow that it will receive, by inbox (`u64::MAX` if without end).
    pub inboxes: Vec<u64>,
    /// Seed of its own.
    pub seed: u64,
    /// Rate of the fastest host's link.
    pub line_rate: BitRate,
    /// Longest unloaded round trip between two hosts.
    pub base_rtt: Nanos,
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

/// A message between two programs of a host, which does not leave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Near {
    /// Rank of the sender.
    pub from: u32,
    /// Rank of the receiver.
    pub to: u32,
    /// Its tag.
    pub tag: u64,
    /// When the receiver has it.
    pub at: Time,
}

/// Counters of one process.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Data packets sent for the first time.
    pub data_new: u64,
    /// Data packets sent again.
    pub data_again: u64,
    /// Of those, for nothing: the first copy had arrived.
    pub spurious: u64,
    /// Packets without data.
    pub bare: u64,
    /// Timers that ran out.
    pub timeouts: u64,
}

/// A process that moves flows.
pub trait Transport: Sized {
    /// What its frames carry.
    type Content: Content;
    /// How others name it.
    type Address: Clone;

    /// A process as `role` says.
    fn new(role: Role<'_>) -> Self;

    /// Its address.
    fn address(&self) -> Self::Address;

    /// A flow is about to come from that process.
    fn expect(&mut self, from: &Self::Address);

    /// Begins a transfer.
    fn start(&mut self, now: Time, order: Order, to: &Self::Address);

    /// A transfer without end ends: nothing more is to be sent.
    fn stop(&mut self, now: Time, flow: u32);

    /// Addresses of all programs' processes, by rank. For transports that run programs, as the next three.
    fn meet(&mut self, _ranks: &[Self::Address]) {
        unreachable!("this transport runs no programs");
    }

    /// The next message to another program of the host.
    fn poll_near(&mut self) -> Option<Near> {
        None
    }

    /// Such a message will have come at its time.
    fn receive_near(&mut self, _near: Near) {
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

    /// How many processes send to this one now, as far as it knows.
    fn senders(&self, now: Time) -> u16;

    /// So many send to other processes of the host.
    fn set_neighbours(&mut self, senders: u16);

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
