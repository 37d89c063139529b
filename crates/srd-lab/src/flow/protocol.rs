//! What a worker is told, and what it answers: one JSON value a line.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What moves the flows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Transport {
    /// SRD, set up by the environment (`SRD_…`).
    Srd,
    /// The kernel's TCP.
    Tcp {
        /// Its congestion control, under the kernel's name for it.
        congestion: String,
        /// Whether it asks for marks instead of losses (`net.ipv4.tcp_ecn`, set for the whole host).
        ecn: bool,
    },
}

/// As much as goes.
pub const ALL: u64 = u64::MAX;

/// What a program has to send, by the time that has passed since it began.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// When it began.
    pub begin_ns: u64,
    /// Bits per second.
    pub bps: u64,
}

impl Offer {
    /// When it has had so many bytes.
    pub fn has_had_at(self, bytes: u64) -> u64 {
        match self.bps {
            ALL => self.begin_ns,
            bps => self.begin_ns + (u128::from(bytes) * 8_000_000_000 / u128::from(bps.max(1))) as u64,
        }
    }
}

/// How much a flow moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// As much as goes in this time, in nanoseconds from the flow's beginning.
    ForNs(u64),
}

/// A flow, as its receiver sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inbound {
    /// Its number in the run.
    pub flow: u32,
    /// How much will come.
    pub amount: Amount,
    /// When it begins, in nanoseconds from the start.
    pub begin_ns: u64,
}

/// A flow, as its sender sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outbound {
    /// Its number in the run.
    pub flow: u32,
    /// How much goes.
    pub amount: Amount,
    /// When it begins, in nanoseconds from the start.
    pub begin_ns: u64,
    /// Bits per second of payload that the program has to send; [`ALL`]: as much as goes.
    pub offered_bps: u64,
    /// Where it goes.
    pub to: ListenAddr,
    /// Source port, for TCP; 0: the kernel chooses.
    pub source_port: u16,
}

/// Where a flow is received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListenAddr {
    /// The flow.
    pub flow: u32,
    /// Address of the host.
    pub address: IpAddr,
    /// TCP port; 0 with SRD.
    pub port: u16,
    /// Queue pair; 0 with TCP.
    pub qpn: u16,
    /// Its key; 0 with TCP.
    pub qkey: u32,
}

/// Orders to a worker, in this order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Open listening for these flows.
    Open {
        /// What moves them.
        transport: Transport,
        /// Address of this host.
        address: IpAddr,
        /// What will come.
        inbound: Vec<Inbound>,
        /// Arrivals are counted in intervals of this many nanoseconds.
        bin_ns: u64,
    },
    /// Make these senders ready, each with a small message that has crossed.
    Connect {
        /// What goes.
        outbound: Vec<Outbound>,
    },
    /// Send from this moment on, in the machine's monotonic nanoseconds.
    Go {
        /// The moment.
        at_ns: u64,
        /// Who has not finished then has failed.
        until_ns: u64,
    },
}

/// A worker's answers, one to each order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To `Open`.
    Opened {
        /// Where the flows are received.
        listening: Vec<ListenAddr>,
    },
    /// To `Connect`.
    Connected,
    /// To `Go`.
    Done {
        /// What has arrived.
        received: Vec<Received>,
        /// What has been sent.
        sent: Vec<Sent>,
    },
    /// The worker cannot go on.
    Failed {
        /// Why.
        error: String,
    },
}

/// What has arrived of a flow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Received {
    /// The flow.
    pub flow: u32,
    /// Bytes that the receiving program has.
    pub bytes: u64,
    /// From the flow's beginning to the last byte, in nanoseconds.
    pub last_ns: u64,
    /// Whether all is there.
    pub complete: bool,
    /// Longest time in which nothing arrived, in nanoseconds.
    pub longest_gap_ns: u64,
    /// When it began, from the start.
    pub longest_gap_at_ns: u64,
    /// Bytes in each interval from the start.
    pub bins: Vec<u64>,
}

/// What a sender has done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sent {
    /// The flow.
    pub flow: u32,
    /// Packets (SRD) or segments (TCP) sent, those sent again among them.
    pub packets: u64,
    /// Of these, the ones sent again.
    pub again: u64,
    /// What went wrong, if anything did.
    pub error: Option<String>,
}
