//! Everything that can be set about the transport, with the defaults and their sources.

use crate::burst::Turn;
use crate::congestion_control::{ControlLaw, ControllerKind};
use crate::path_selector::SelectorKind;
use srd_wire::{BitRate, Nanos};

/// Configuration of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path slots per peer, 1 to 256. 64: SRD paper, "Multipath Load Balancing".
    pub paths: u16,
    /// Number of source ports that a slot may name (the size of the sender's socket pool), 1 to 65535.
    pub entropy: u16,
    /// Largest UDP payload that fits the path MTU, in bytes, sealing overhead already taken off.
    pub max_datagram: u16,
    /// Send nothing above 1,232 bytes to a peer before a probe of that size has been answered.
    pub probe_path_mtu: bool,
    /// Longest message that crosses in one piece on one path; longer ones are cut into such chunks. In bytes.
    pub chunk_bytes: u32,
    /// Most bytes that leave back to back on one path; the datapath's largest GSO send. The pacing may allow less.
    pub burst_bytes: u32,
    /// Path selection.
    pub selector: SelectorKind,
    /// Congestion control.
    pub controller: ControllerKind,
    /// The window of [`ControllerKind::Fixed`].
    pub fixed_window_bytes: u64,
    /// Constants of [`ControllerKind::LogTarget`].
    pub law: ControlLaw,
    /// Rate of the host's link.
    pub line_rate: BitRate,
    /// Round trip of an unloaded fabric. Configured, never learned from a connection's own first packets
    /// (docs/design/congestion-control.md, "The prototype").
    pub base_rtt: Nanos,
    /// Take a context's own smallest round trip of late for its base if that is longer: for hosts, whose links may be
    /// so slow that one packet takes longer than `base_rtt` (docs/design/host-datapath.md, "Slow links"). Off where
    /// flows start in step.
    pub learn_base_rtt: bool,
    /// `line_rate` is that of the host's link for certain, not a guess. Where it is, and `base_rtt` has not turned out too short,
    /// the receiver's count is followed although `learn_base_rtt` is set.
    pub line_rate_known: bool,
    /// Follow the receiver's count of senders when it names two or more.
    pub receiver_hint: bool,
    /// Which way what goes to one's own address takes.
    pub own_address: OwnAddress,
    /// Smallest window of the controller, in packets; below one, a lone packet is paced.
    pub min_window: f64,
    /// Receive buffer of our own socket, told to peers so that together they do not overrun it.
    pub rcvbuf_bytes: u64,
    /// Lower bound of the retransmission timer: queues and scheduling of the host.
    pub min_rto: Nanos,
    /// Lower bound of the tail probe's timer.
    pub min_pto: Nanos,
    /// Upper bound of the retransmission timer after backing off.
    pub max_rto: Nanos,
    /// Longest that an ACK waits for data to ride on.
    pub ack_delay: Nanos,
    /// Longest that it waits where the sender has more to send, for that to be acknowledged with it; nothing if that is less than
    /// `ack_delay`. For links so slow that one packet takes longer than `ack_delay`.
    pub stream_ack_delay: Nanos,
    /// Longest that an ACK which the sender has asked for waits for the program's answer to a message, to ride on it: at most
    /// `ack_delay`.
    pub answer_delay: Nanos,
    /// Data packets from one peer that force an ACK at the end of a receive batch.
    pub ack_every: u32,
    /// A peer that has not answered on any path for this long, with something outstanding, is dead.
    pub peer_timeout: Nanos,
    /// Nothing counts from a peer, and nothing is sent to it, before it has named our incarnation (sealed mode).
    pub confirm_first: bool,
    /// Most peer contexts.
    pub max_peers: u32,
    /// Most messages queued towards one peer.
    pub max_messages_per_peer: u32,
    /// Most incomplete multi-packet messages from one peer.
    pub max_partial_per_peer: u32,
    /// A context with nothing to do for this long gives its buffers back.
    pub idle_release: Nanos,
}

impl Config {
    /// Whether there is a program above, whose answers may carry ACKs, and a datapath below that joins packets of equal size.
    pub(crate) fn on_a_host(&self) -> bool {
        self.answer_delay > Nanos::ZERO
    }

    /// How much of a message leaves before the next one has its turn.
    pub(crate) fn turn(&self) -> Turn {
        Turn { bytes: self.chunk_bytes, to_end_of_burst: self.on_a_host() }
    }

    /// Of a simulated network card: no kernel, no scheduler, packets that leave one by one. What the run says comes on top.
    pub fn of_a_simulated_card() -> Config {
        Config {
            learn_base_rtt: false,
            min_window: 1.0 / 50.0, // docs/design/congestion-control.md, "Constants of the window law"
            rcvbuf_bytes: 0,        // the receive ring is the card's
            min_rto: Nanos::ZERO,
            min_pto: Nanos::ZERO,
            ..Config::default()
        }
    }

    /// Longest that an ACK waits, but where the end of a transfer puts it off.
    pub(crate) fn longest_ack_delay(&self) -> Nanos {
        self.ack_delay.max(self.stream_ack_delay)
    }
}

/// How processes of a host reach each other by its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnAddress {
    /// As they reach others: a simulated card sends it to its switch and back.
    OverLink,
    /// On no link: the host's kernel carries it.
    PastLink,
    /// The same, by memory that loses nothing and takes everything at once: a simulated host's.
    ByMemory,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            paths: 64,
            entropy: 128,
            max_datagram: 1472,
            probe_path_mtu: false,
            chunk_bytes: 8928,
            burst_bytes: 65000,
            selector: SelectorKind::Reps,
            controller: ControllerKind::LogTarget,
            fixed_window_bytes: 65_536,
            law: ControlLaw::default(),
            line_rate: BitRate(100_000_000_000),
            base_rtt: Nanos::from_micros(14),
            learn_base_rtt: true,
            line_rate_known: false,
            receiver_hint: true,
            own_address: OwnAddress::OverLink,
            min_window: 1.0, // below it the ACK clock of a host stops; the simulator has 1/50
            rcvbuf_bytes: 8 << 20,
            min_rto: Nanos::from_micros(100),
            min_pto: Nanos::from_micros(50),
            max_rto: Nanos::from_millis(50),
            ack_delay: Nanos::from_micros(5),
            stream_ack_delay: Nanos::ZERO,
            answer_delay: Nanos::ZERO,
            ack_every: 4,
            peer_timeout: Nanos::from_secs(30),
            confirm_first: false,
            max_peers: 65_536,
            max_messages_per_peer: 1 << 20,
            max_partial_per_peer: 4096,
            idle_release: Nanos::from_secs(2),
        }
    }
}
