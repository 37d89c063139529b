//! The network between hosts. A packet's way is decided by (source host, destination host, source port), as ECMP
//! decides it: each such path is a queue in order with a delay of its own, and what goes wrong goes wrong per path,
//! per direction between two hosts, or per packet.

use crate::plan::{Faults, Plan, purpose};
use crate::rng::{Rng, mix};
use arrayvec::ArrayVec;
use srd_wire::{BitRate, Nanos, Time};

/// A link that sends one packet after the other from a queue of limited length.
#[derive(Clone, Debug)]
pub struct Link {
    rate: BitRate,
    queue_bytes: u64,
    mark_bytes: u64,
    busy_until: Time,
}

impl Link {
    fn new(mbps: u64, packets: u64, mark_packets: u64) -> Link {
        let mark_bytes = if mark_packets == 0 { u64::MAX } else { mark_packets * FULL_PACKET };
        let rate = BitRate(mbps * 1_000_000);
        Link { rate, queue_bytes: packets * FULL_PACKET, mark_bytes, busy_until: Time(0) }
    }

    /// When a packet that comes now has passed, and whether it is marked; `None` if the queue is full.
    fn pass(&mut self, now: Time, bytes: u64) -> Option<(Time, bool)> {
        let backlog = self.rate.bytes_in(self.busy_until.since(now));
        if backlog > self.queue_bytes {
            return None;
        }
        self.busy_until = self.busy_until.max(now) + self.rate.time_for(bytes);
        Some((self.busy_until, backlog > self.mark_bytes))
    }
}

/// What a queue counts as one packet.
const FULL_PACKET: u64 = 1_500;

#[derive(Clone, Debug, Default)]
struct Path {
    delay: Nanos,
    blackhole_until: Time,
    /// Comes and goes with this period; 0 if it stays.
    flap_ns: u64,
    bursting: bool,
    last_arrival: Time,
}

/// A packet that will come out at the far end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When it reaches the destination's own link (or the destination, if that link has no limit).
    pub at: Time,
    /// It met a long queue.
    pub marked: bool,
    /// Bits of it have changed.
    pub damaged: bool,
    /// Only its headers are left, if it has a payload.
    pub cut: bool,
}

/// What became of the packets.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Packets handed in.
    pub sent: u64,
    /// Bytes handed in.
    pub bytes: u64,
    /// Packets lost for any reason but a full queue.
    pub lost: u64,
    /// Packets lost in a full queue.
    pub overflowed: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets cut to their headers, where a queue was full.
    pub trimmed: u64,
    /// Packets damaged.
    pub damaged: u64,
}

/// See the module.
pub struct Net {
    rng: Rng,
    faults: Faults,
    rtt: Nanos,
    hosts: usize,
    entropy: usize,
    paths: Vec<Path>,
    /// Per direction between two hosts.
    slow: Vec<Option<Link>>,
    cut_until: Vec<Time>,
    mtu: Vec<u64>,
    downlinks: Vec<Option<Link>>,
    /// Packets so far.
    pub tally: Tally,
}

impl Net {
    /// The network of `plan` between so many hosts.
    pub fn new(plan: &Plan, hosts: usize) -> Net {
        let faults = plan.faults.clone();
        let mut rng = Rng::new(plan.seed, purpose::NET);
        let entropy = plan.shape.entropy as usize;
        let rtt = Nanos(plan.shape.rtt_ns);
        let pairs = hosts * hosts;
        let mut net = Net {
            paths: vec![Path::default(); pairs * entropy],
            slow: vec![None; pairs],
            cut_until: vec![Time(0); pairs],
            mtu: vec![if faults.mtu_bytes == 0 { u64::MAX } else { faults.mtu_bytes }; pairs],
            downlinks: vec![None; hosts],
            tally: Tally::default(),
            rtt,
            hosts,
            entropy,
            rng: rng.clone(),
            faults,
        };
        for src in 0..hosts {
            for dst in 0..hosts {
                for port in 0..entropy {
                    let at = net.at(src, dst, port as u16);
                    net.paths[at].delay = net.natural_delay(plan.seed, src, dst, port);
                }
            }
        }
        if net.faults.slow_mbps > 0 {
            for _ in 0..net.faults.slow_links {
                let pair = rng.below(pairs as u64) as usize;
                net.slow[pair] =
                    Some(Link::new(net.faults.slow_mbps, net.faults.slow_packets, net.faults.mark_packets));
            }
        }
        if net.faults.downlink_mbps > 0 {
            let link =
                Link::new(net.faults.downlink_mbps, net.faults.downlink_packets, net.faults.mark_packets);
            net.downlinks.fill(Some(link));
        }
        net.rng = rng;
        net
    }

    fn at(&self, src: usize, dst: usize, port: u16) -> usize {
        self.pair(src, dst) * self.entropy + (port as usize) % self.entropy
    }

    fn pair(&self, src: usize, dst: usize) -> usize {
        src * self.hosts + dst
    }

    /// One way, from half the round trip to the skewed multiple of it.
    fn natural_delay(&self, seed: u64, src: usize, dst: usize, port: usize) -> Nanos {
        let (a, b) = if self.faults.asymmetric != 0 { (src, dst) } else { (src.min(dst), src.max(dst)) };
        let draw = mix(seed ^ mix((a as u64) << 40 | (b as u64) << 20 | port as u64)) % 1_000;
        let percent = 100 + (self.faults.skew_percent.max(100) - 100) * draw / 1_000;
        Nanos(self.rtt.0 / 2 * percent / 100)
    }

    /// The delay of a path, one way.
    pub fn delay(&self, src: usize, dst: usize, port: u16) -> Nanos {
        self.paths[self.at(src, dst, port)].delay
    }

    /// Gives a path another delay.
    pub fn set_delay(&mut self, src: usize, dst: usize, port: u16, delay: Nanos) {
        let at = self.at(src, dst, port);
        self.paths[at].delay = delay;
    }

    /// Makes a path swallow everything until `until`.
    pub fn blackhole(&mut self, src: usize, dst: usize, port: u16, until: Time) {
        let at = self.at(src, dst, port);
        self.paths[at].blackhole_until = until;
    }

    /// Makes a path come and go.
    pub fn flap(&mut self, src: usize, dst: usize, port: u16, period: Nanos) {
        let at = self.at(src, dst, port);
        self.paths[at].flap_ns = period.0;
    }

    /// Cuts one direction between two hosts.
    pub fn cut(&mut self, src: usize, dst: usize, until: Time) {
        let pair = self.pair(src, dst);
        self.cut_until[pair] = until;
    }

    /// Makes datagrams above `bytes` disappear in one direction between two hosts.
    pub fn limit(&mut self, src: usize, dst: usize, bytes: u64) {
        let pair = self.pair(src, dst);
        self.mtu[pair] = self.mtu[pair].min(bytes);
    }

    /// Ends every fault. Packets on their way stay on their way.
    pub fn heal(&mut self) {
        let skew = (self.faults.skew_percent, self.faults.asymmetric);
        self.faults = Faults::calm();
        (self.faults.skew_percent, self.faults.asymmetric) = skew;
        for path in &mut self.paths {
            path.blackhole_until = Time(0);
            path.flap_ns = 0;
        }
        self.slow.fill(None);
        self.downlinks.fill(None);
        self.cut_until.fill(Time(0));
        self.mtu.fill(u64::MAX);
    }

    /// Sends a packet; says when it and its copies come out.
    pub fn send(
        &mut self,
        now: Time,
        src: usize,
        dst: usize,
        port: u16,
        bytes: usize,
    ) -> ArrayVec<Arrival, 2> {
        self.tally.sent += 1;
        self.tally.bytes += bytes as u64;
        let mut arrivals = ArrayVec::new();
        let (at, pair) = (self.at(src, dst, port), self.pair(src, dst));
        if bytes as u64 > self.mtu[pair] || self.swallowed(now, at, pair) {
            self.tally.lost += 1;
            return arrivals;
        }
        let mut cut = self.rng.ppm(self.faults.trim_ppm);
        let (entered, marked) = match &mut self.slow[pair] {
            Some(link) if !cut => match link.pass(now, bytes as u64) {
                Some(passed) => passed,
                None if self.faults.trim_full != 0 => {
                    cut = true;
                    (now, false)
                }
                None => {
                    self.tally.overflowed += 1;
                    return arrivals;
                }
            },
            _ => (now, false),
        };
        self.tally.trimmed += cut as u64;
        let path = &mut self.paths[at];
        let jitter = Nanos(self.rng.below(self.faults.jitter_ns.saturating_add(1)));
        // A path is a queue: nobody overtakes.
        let in_order = (entered + path.delay + jitter).max(path.last_arrival + Nanos(1));
        let mut arrives = in_order;
        if cut {
            arrives = entered + path.delay; // headers go first
        } else if self.rng.ppm(self.faults.reorder_ppm) {
            arrives += Nanos(self.rng.below(self.faults.reorder_ns + 1));
        } else {
            path.last_arrival = in_order;
        }
        let damaged = self.rng.ppm(self.faults.corrupt_ppm);
        self.tally.damaged += damaged as u64;
        arrivals.push(Arrival { at: arrives, marked, damaged, cut });
        if self.rng.ppm(self.faults.dup_ppm) {
            self.tally.duplicated += 1;
            let later = Nanos(self.rng.below(self.faults.dup_ns + 1));
            arrivals.push(Arrival { at: arrives + later, marked, damaged: false, cut });
        }
        arrivals
    }

    /// Whether the packet is lost before it meets any queue.
    fn swallowed(&mut self, now: Time, at: usize, pair: usize) -> bool {
        let path = &mut self.paths[at];
        let turn = if path.bursting { self.faults.burst_exit_ppm } else { self.faults.burst_enter_ppm };
        if self.rng.ppm(turn) {
            path.bursting = !path.bursting;
        }
        let dark = path.flap_ns != 0 && (now.0 / path.flap_ns) % 2 == 1;
        now < self.cut_until[pair]
            || now < path.blackhole_until
            || dark
            || (path.bursting && self.faults.burst_enter_ppm > 0)
            || self.rng.ppm(self.faults.loss_ppm)
    }

    /// Whether packets to this host queue for its own link on arrival.
    pub fn has_downlink(&self, host: usize) -> bool {
        self.downlinks[host].is_some()
    }

    /// A packet has come to the destination's own link: when it has passed, whether it is marked, and whether cut. `None` if the
    /// queue is full, and drops it. What is cut already passes.
    pub fn downlink(
        &mut self,
        now: Time,
        host: usize,
        bytes: usize,
        cut: bool,
    ) -> Option<(Time, bool, bool)> {
        let Some(link) = self.downlinks[host].as_mut().filter(|_| !cut) else {
            return Some((now, false, cut));
        };
        match link.pass(now, bytes as u64) {
            Some((at, marked)) => Some((at, marked, false)),
            None if self.faults.trim_full != 0 => {
                self.tally.trimmed += 1;
                Some((now, false, true))
            }
            None => {
                self.tally.overflowed += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(change: impl Fn(&mut Faults)) -> Net {
        let mut plan = Plan::calm(3);
        change(&mut plan.faults);
        Net::new(&plan, 2)
    }

    fn survivors(net: &mut Net, n: u64) -> u64 {
        (0..n).map(|i| net.send(Time(i * 1_000), 0, 1, (i % 16) as u16, 1_000).len() as u64).sum()
    }

    #[test]
    fn a_calm_network_delivers_everything_in_order_after_half_a_round_trip() {
        let mut net = net(|_| ());
        for i in 0..100 {
            let arrivals = net.send(Time(i), 0, 1, 5, 1_000);
            assert_eq!(
                arrivals[..],
                [Arrival { at: Time(i + 7_000), marked: false, damaged: false, cut: false }]
            );
        }
    }

    #[test]
    fn loss_takes_its_share() {
        let mut net = net(|f| f.loss_ppm = 300_000);
        let survivors = survivors(&mut net, 20_000);
        assert!((13_500..14_500).contains(&survivors), "{survivors}");
    }

    #[test]
    fn bursts_lose_many_in_a_row() {
        let mut net = net(|f| (f.burst_enter_ppm, f.burst_exit_ppm) = (10_000, 100_000));
        let arrived: Vec<bool> = (0..20_000).map(|i| !net.send(Time(i), 0, 1, 0, 100).is_empty()).collect();
        let lost = arrived.iter().filter(|arrived| !**arrived).count();
        let bursts = arrived.windows(2).filter(|pair| pair[0] && !pair[1]).count();
        assert!(lost > 5 * bursts && bursts > 20, "{lost} lost in {bursts} bursts");
    }

    #[test]
    fn a_blackhole_takes_one_path_in_one_direction() {
        let mut net = net(|_| ());
        net.blackhole(0, 1, 5, Time(1_000));
        assert!(net.send(Time(0), 0, 1, 5, 100).is_empty());
        assert_eq!(net.send(Time(0), 0, 1, 6, 100).len(), 1);
        assert_eq!(net.send(Time(0), 1, 0, 5, 100).len(), 1);
        assert_eq!(net.send(Time(1_000), 0, 1, 5, 100).len(), 1);
    }

    #[test]
    fn a_slow_link_queues_and_then_drops() {
        let mut net = net(|f| {
            (f.downlink_mbps, f.downlink_packets, f.mark_packets) = (1_000, 10, 5);
        });
        let passed: Vec<_> = (0..20).map(|_| net.downlink(Time(0), 1, 1_500, false)).collect();
        assert_eq!(passed[0], Some((Time(12_000), false, false)));
        assert_eq!(passed[9], Some((Time(120_000), true, false)));
        assert_eq!(passed[12], None);
    }

    #[test]
    fn healing_ends_every_fault() {
        let mut net = net(|f| (f.loss_ppm, f.dup_ppm, f.slow_mbps, f.slow_links) = (300_000, 300_000, 1, 9));
        net.cut(0, 1, Time::NEVER);
        net.blackhole(0, 1, 3, Time::NEVER);
        net.heal();
        assert_eq!(survivors(&mut net, 1_000), 1_000);
    }
}
