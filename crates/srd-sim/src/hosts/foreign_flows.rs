//! Connections of other transports that a host's network card sees arrive. A card that serves all transports, as EFA's does
//! beside its Ethernet function, can count them with SRD's own senders: they share its link.

use srd_baselines::units::Ps;
use std::collections::HashMap;

/// Base round trips of an epoch: as for SRD's senders of unfinished messages, a flow may be slow.
const EPOCH_ROUND_TRIPS: u64 = 64;
/// Shortest frame that counts: acknowledgements take next to nothing of the link.
const SHORTEST: u32 = 256;
/// Connections that are kept beyond their time, at most.
const MOST_STALE: usize = 1024;

/// See the module.
pub struct ForeignFlows {
    epoch: Ps,
    number: u64,
    /// When each connection, by its hash, was seen last.
    seen: HashMap<u32, u64>,
    /// FrameMetadata in this epoch, and in the last one but not yet in this.
    current: u16,
    previous: u16,
}

impl ForeignFlows {
    /// None yet.
    pub fn new(base_rtt: Ps) -> ForeignFlows {
        let epoch = Ps(base_rtt.0.saturating_mul(EPOCH_ROUND_TRIPS).max(1));
        ForeignFlows { epoch, number: 0, seen: HashMap::new(), current: 0, previous: 0 }
    }

    fn turn(&mut self, now: Ps) {
        let number = now.0 / self.epoch.0 + 1;
        if number == self.number {
            return;
        }
        self.previous = if number == self.number + 1 { self.current } else { 0 };
        (self.current, self.number) = (0, number);
        if self.seen.len() > MOST_STALE + 2 * self.previous as usize {
            self.seen.retain(|_, seen| *seen + 1 >= number);
        }
    }

    /// A frame of that many bytes has come on a connection.
    pub fn see(&mut self, now: Ps, connection: u32, bytes: u32) {
        if bytes < SHORTEST {
            return;
        }
        self.turn(now);
        let seen = self.seen.entry(connection).or_default();
        if *seen + 1 == self.number && self.previous > 0 {
            self.previous -= 1;
        }
        if *seen != self.number {
            *seen = self.number;
            self.current = self.current.saturating_add(1);
        }
    }

    /// How many connections there are.
    pub fn count(&mut self, now: Ps) -> u16 {
        self.turn(now);
        self.current.saturating_add(self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_count_for_one_to_two_epochs() {
        let mut foreign_flows = ForeignFlows::new(Ps(10));
        for time in [0, 100, 500] {
            foreign_flows.see(Ps(time), 1, 1500);
            foreign_flows.see(Ps(time), 2, 1500);
            foreign_flows.see(Ps(time), 3, 64);
        }
        assert_eq!(foreign_flows.count(Ps(600)), 2);
        foreign_flows.see(Ps(700), 2, 1500);
        assert_eq!(foreign_flows.count(Ps(1279)), 2, "the first was there in the last epoch");
        assert_eq!(foreign_flows.count(Ps(1281)), 1);
        assert_eq!(foreign_flows.count(Ps(5000)), 0);
    }
}
