//! What is to be measured, as both sides must know it.

use serde::{Deserialize, Serialize};
use srd_device::DeviceConfig;
use std::time::Duration;

/// What is measured.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Test {
    /// Half the round trip of one message at a time
    Latency,
    /// Bytes per second with a window of messages outstanding
    Bandwidth,
    /// Messages per second with a window of messages outstanding
    Msgrate,
}

/// How data moves.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Messages into posted receives
    Send,
    /// RDMA writes into the server's memory (for latency with immediate data, which tells the other side)
    Write,
    /// RDMA reads from the server's memory
    Read,
}

/// What carries it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// Scalable Reliable Datagram.
    Srd,
    /// The kernel's TCP.
    Tcp,
}

/// The shape of the measurement.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Plan {
    /// What is measured.
    pub test: Test,
    /// How data moves.
    pub op: Op,
    /// Bytes of a message.
    pub size: u32,
    /// Messages outstanding.
    pub window: u32,
    /// Sleep until something arrives, instead of looking all the time.
    pub blocking: bool,
    /// Fill every message with a pattern and check it on arrival.
    pub check: bool,
    /// Device instances (or TCP connections) on the server's side.
    pub peers: u16,
    /// Give up when nothing has moved for this long.
    pub timeout_ms: u64,
}

impl Plan {
    /// Default size of a message.
    pub fn default_size(test: Test) -> u32 {
        match test {
            Test::Latency | Test::Msgrate => 8,
            Test::Bandwidth => 8192,
        }
    }

    /// Default operation: the simplest that takes messages of this size.
    pub fn default_op(size: u32) -> Op {
        if size <= DeviceConfig::default().max_msg { Op::Send } else { Op::Write }
    }

    /// Default number of messages outstanding: for bandwidth 512 KiB, what 100 Gb/s carry in 40 us.
    pub fn default_window(test: Test, size: u32) -> u32 {
        match test {
            Test::Latency => 1,
            Test::Bandwidth => ((512 << 10) / size.max(1)).clamp(2, 512),
            Test::Msgrate => 256,
        }
    }

    /// Whether the server's program takes part for each message, or only its memory does.
    pub fn is_one_sided(&self) -> bool {
        match self.op {
            Op::Send => false,
            Op::Write => self.test != Test::Latency,
            Op::Read => true,
        }
    }

    /// How long nothing may move.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

/// When the client has measured enough.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Amount {
    /// After so many messages (round trips in the latency test), not counting those to warm up.
    Messages(u64),
    /// After this time.
    Time(Duration),
}

impl Amount {
    /// What comes first, without being counted: a tenth, within bounds.
    pub fn warm_up(self) -> Amount {
        match self {
            Amount::Messages(n) => Amount::Messages((n / 10).clamp(1, 100_000)),
            Amount::Time(span) => {
                Amount::Time((span / 10).clamp(Duration::from_millis(10), Duration::from_secs(1)))
            }
        }
    }

    /// How many messages can be outstanding at once, if no more go out than are asked for.
    pub fn most_at_once(self) -> u32 {
        match (self, self.warm_up()) {
            (Amount::Messages(n), Amount::Messages(warm_up)) => {
                n.saturating_add(warm_up).try_into().unwrap_or(u32::MAX)
            }
            _ => u32::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_outstanding_than_go_out() {
        assert_eq!(Amount::Messages(1).most_at_once(), 2);
        assert_eq!(Amount::Messages(300).most_at_once(), 330);
        assert_eq!(Amount::Messages(u64::MAX).most_at_once(), u32::MAX);
        assert_eq!(Amount::Time(Duration::from_secs(1)).most_at_once(), u32::MAX);
    }
}
