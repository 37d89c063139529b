//! What has arrived of a flow, and when.

use super::protocol::{Amount, Inbound, Received};

/// See the module.
#[derive(Clone, Debug)]
pub struct Arrivals {
    flow: Inbound,
    start_ns: u64,
    begin_ns: u64,
    bin_ns: u64,
    bytes: u64,
    last_ns: u64,
    longest_gap_ns: u64,
    longest_gap_at_ns: u64,
    bins: Vec<u64>,
}

impl Arrivals {
    /// Of a flow, where the start is at `start_ns`.
    pub fn new(flow: Inbound, start_ns: u64, bin_ns: u64) -> Arrivals {
        let begin_ns = start_ns + flow.begin_ns;
        Arrivals {
            flow,
            start_ns,
            begin_ns,
            bin_ns: bin_ns.max(1),
            bytes: 0,
            last_ns: begin_ns,
            longest_gap_ns: 0,
            longest_gap_at_ns: 0,
            bins: Vec::new(),
        }
    }

    /// So many bytes are there now.
    pub fn add(&mut self, now_ns: u64, bytes: u64) {
        self.look_at_gap(now_ns);
        self.bytes += bytes;
        self.last_ns = self.last_ns.max(now_ns);
        let bin = (now_ns.saturating_sub(self.start_ns) / self.bin_ns) as usize;
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += bytes;
    }

    fn look_at_gap(&mut self, now_ns: u64) {
        let gap = now_ns.saturating_sub(self.last_ns);
        if gap > self.longest_gap_ns {
            self.longest_gap_ns = gap;
            self.longest_gap_at_ns = self.last_ns - self.start_ns;
        }
    }

    /// Whether all is there.
    pub fn is_complete(&self) -> bool {
        match self.flow.amount {
            Amount::Bytes(bytes) => self.bytes >= bytes,
            Amount::ForNs(_) => false,
        }
    }

    /// The account, drawn up at `now_ns`.
    pub fn close(mut self, now_ns: u64) -> Received {
        let complete = match self.flow.amount {
            Amount::Bytes(_) => self.is_complete(),
            Amount::ForNs(span) => {
                self.look_at_gap(now_ns.min(self.begin_ns + span)); // what never came is a gap, too
                self.bytes > 0
            }
        };
        Received {
            flow: self.flow.flow,
            bytes: self.bytes,
            last_ns: self.last_ns - self.begin_ns,
            complete,
            longest_gap_ns: self.longest_gap_ns,
            longest_gap_at_ns: self.longest_gap_at_ns,
            bins: self.bins,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(amount: Amount, begin_ns: u64) -> Inbound {
        Inbound { flow: 7, amount, begin_ns }
    }

    #[test]
    fn gaps_and_bins_are_those_of_the_arrivals() {
        let mut arrivals = Arrivals::new(flow(Amount::Bytes(30), 0), 1000, 100);
        arrivals.add(1050, 10);
        arrivals.add(1060, 10);
        assert!(!arrivals.is_complete());
        arrivals.add(1460, 10);
        let account = arrivals.close(9999);
        assert!(account.complete);
        assert_eq!((account.last_ns, account.longest_gap_ns, account.longest_gap_at_ns), (460, 400, 60));
        assert_eq!(account.bins, [20, 0, 0, 0, 10]);
    }

    #[test]
    fn silence_until_the_end_is_a_gap() {
        let mut arrivals = Arrivals::new(flow(Amount::ForNs(1000), 0), 0, 100);
        arrivals.add(100, 1);
        assert_eq!(arrivals.close(5000).longest_gap_ns, 900);
    }

    #[test]
    fn a_flow_that_begins_late_is_not_silent_before() {
        let mut arrivals = Arrivals::new(flow(Amount::ForNs(1000), 500), 1000, 100);
        arrivals.add(1700, 1);
        arrivals.add(1800, 1);
        let account = arrivals.close(5000);
        assert_eq!((account.last_ns, account.longest_gap_ns, account.longest_gap_at_ns), (300, 700, 800));
        assert_eq!(account.bins, [0, 0, 0, 0, 0, 0, 0, 1, 1], "bins count from the common start");
    }
}
