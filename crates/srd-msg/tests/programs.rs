//! Random programs of sends and receives on networks that lose, delay and double packets, cut hosts off and restart them,
//! checked against the rules of matching (MPI 4.1, 3.5: messages do not overtake each other, nor do receives).
//!
//! A program depends on its seed alone. `SEEDS=N` runs N, from `FIRST=n` on if that is set, `SEED=n` runs that one:
//! `SEED=n cargo test --profile checked -p srd-msg --test programs`.

mod support;

use srd_msg::*;
use srd_wire::Nanos;
use std::collections::HashMap;
use support::harness::{Fate, Rng, gid};
use support::*;

/// A message, as its sender remembers it.
struct Sent {
    from: usize,
    to: usize,
    /// Its sender's and its receiver's lives.
    lives: (u32, u32),
    tag: Option<u64>,
    len: usize,
    delivery: bool,
    /// None: not complete. Some(Ok): complete.
    outcome: Option<Result<(), Failure>>,
    taken_by: Option<usize>,
    silent: bool,
}

/// A receive, as its poster remembers it.
struct Posted {
    at: usize,
    life: u32,
    /// A host, and its life.
    from: Option<(usize, u32)>,
    tag: Option<(u64, u64)>,
    room: Iov,
    outcome: Option<Result<u64, Failure>>,
    took: Option<usize>,
    cancelled: bool,
    /// Its host's endpoints have no keys.
    well_known: bool,
}

impl Posted {
    fn matches(&self, message: &Sent) -> bool {
        let tags = match (self.tag, message.tag) {
            (None, None) => true,
            (Some((tag, ignore)), Some(sent)) => (tag ^ sent) & !ignore == 0,
            _ => false,
        };
        // A first message to a well-known address may reach the process that has taken the place of the one it was meant for.
        let is_meant = self.life == message.lives.1 || self.well_known && self.life > message.lives.1;
        let is_wanted = self
            .from
            .is_none_or(|(from, life)| from == message.from && (self.well_known || life == message.lives.0));
        self.at == message.to && is_meant && tags && is_wanted
    }
}

struct Program {
    cluster: Cluster,
    rng: Rng,
    lives: Vec<u32>,
    sent: Vec<Sent>,
    posted: Vec<Posted>,
    by_context: HashMap<(usize, u64), Entry>,
    contexts: u64,
    /// Something has been cut off or restarted: operations may fail.
    calm: bool,
}

#[derive(Clone, Copy)]
enum Entry {
    Send(usize),
    Recv(usize),
}

/// The bytes of a message say which it is.
fn content(message: usize, len: usize) -> Vec<u8> {
    let mut rng = Rng(message as u64 + 1);
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next().to_le_bytes()[..chunk.len()]);
    }
    for (at, byte) in (message as u64).to_le_bytes().into_iter().enumerate().take(len) {
        bytes[at] = byte;
    }
    bytes
}

impl Program {
    fn new(seed: u64) -> Program {
        let mut rng = Rng(seed.wrapping_mul(0x1234_5678_9ABC_DEF1) + 1);
        let hosts = 2 + rng.below(3) as usize;
        let config = Config {
            receive_buffers: [8, 64, 1024][rng.below(3) as usize],
            medium_limit: [0, 20_000, 64 << 10][rng.below(3) as usize],
            eager_ahead: [0, 1_000, 16 << 10][rng.below(3) as usize],
            read_bytes: [10_000, 1 << 20][rng.below(2) as usize],
            reads_in_flight: 1 + rng.below(4) as u32,
            grant_bytes: [1, 9_000, 256 << 10][rng.below(3) as usize].max(9_000 * rng.below(2)),
            rendezvous_by_read: !rng.one_in(3),
            // The smallest windows, or the largest.
            unexpected_bytes: [0, 64 << 20][rng.below(2) as usize],
            max_outstanding: [8, 4096][rng.below(2) as usize],
            ..Config::default()
        };
        let config = Config { grant_bytes: config.grant_bytes.max(2_000), ..config };
        let mut device = device_config();
        device.rnr_wait = Nanos::from_micros(20);
        device.rnr_wait_max = Nanos::from_micros(200);
        let cluster = Cluster::with(hosts, config, device, seed.is_multiple_of(3));
        Program {
            cluster,
            rng,
            lives: vec![0; hosts],
            sent: Vec::new(),
            posted: Vec::new(),
            by_context: HashMap::new(),
            contexts: 0,
            calm: true,
        }
    }

    fn context(&mut self, at: usize, entry: Entry) -> u64 {
        self.contexts += 1;
        self.by_context.insert((at, self.contexts), entry);
        self.contexts
    }

    fn tag(&mut self) -> Option<u64> {
        (!self.rng.one_in(4)).then(|| self.rng.below(4))
    }

    fn send(&mut self) {
        let hosts = self.lives.len() as u64;
        let (from, to) = (self.rng.below(hosts) as usize, self.rng.below(hosts) as usize);
        let len = [0, 8, 100, 600, 8_000, 9_000, 30_000, 70_000, 200_000][self.rng.below(9) as usize];
        let number = self.sent.len();
        let bytes = content(number, len);
        let iov = match self.rng.below(3) {
            0 if len > 2 => {
                let cut = 1 + self.rng.below(len as u64 - 1) as usize;
                vec![self.cluster.bytes(from, &bytes[..cut]), self.cluster.bytes(from, &bytes[cut..])]
            }
            _ => vec![self.cluster.bytes(from, &bytes)],
        };
        let inject = len <= 4096 && self.rng.one_in(4);
        let level = [Level::Inject, Level::Transmit, Level::Match][self.rng.below(3) as usize];
        let flags = TxFlags { inject, level, report: !inject, fence: false };
        let tag = self.tag();
        let context = self.context(from, Entry::Send(number));
        // The data tell which message it is, whatever its length.
        let peer = self.cluster.peer(from, to);
        let send = Send { to: peer, tag, iov: &iov, data: Some(number as u64), context, flags };
        match self.cluster.post_send(from, &send) {
            Ok(()) => self.sent.push(Sent {
                from,
                to,
                lives: (self.lives[from], self.lives[to]),
                tag,
                len,
                delivery: level == Level::Match,
                outcome: None,
                taken_by: None,
                silent: inject,
            }),
            Err(Refused::Again) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    fn recv(&mut self) {
        let hosts = self.lives.len() as u64;
        let at = self.rng.below(hosts) as usize;
        let from = (!self.rng.one_in(3)).then(|| self.rng.below(hosts) as usize);
        let ignore = [0, 0, 1, 2, u64::MAX][self.rng.below(5) as usize];
        let tag = self.tag().map(|tag| (tag, ignore));
        let len = if self.rng.one_in(8) { 500 } else { 200_000 };
        let room = self.cluster.room(at, len);
        let number = self.posted.len();
        let context = self.context(at, Entry::Recv(number));
        let matching = tag.map_or(Match::Untagged, |(tag, ignore)| Match::Tagged { tag, ignore });
        let peer = from.map(|from| self.cluster.peer(at, from));
        let recv =
            Recv { from: peer, matching, iov: &[room], context, report: true, multi: false, claim: false };
        self.cluster.post(at, &recv).unwrap();
        let life = self.lives[at];
        let well_known = self.cluster.well_known;
        let from = from.map(|from| (from, self.lives[from]));
        self.posted.push(Posted {
            at,
            life,
            from,
            tag,
            room,
            outcome: None,
            took: None,
            cancelled: false,
            well_known,
        });
    }

    fn calamity(&mut self) {
        let host = self.rng.below(self.lives.len() as u64) as usize;
        self.calm = false;
        match self.rng.below(2) {
            0 => {
                self.cluster.restart(host);
                self.lives[host] += 1;
                for message in self.sent.iter_mut().filter(|sent| sent.from == host) {
                    message.outcome.get_or_insert(Err(Failure::Closing));
                }
                for posted in self.posted.iter_mut().filter(|posted| posted.at == host) {
                    posted.outcome.get_or_insert(Err(Failure::Closing));
                }
                self.by_context.retain(|(at, _), _| *at != host);
                self.introduce();
            }
            _ => {
                // Cut off for less or more than it takes to be given up.
                let span = Nanos::from_millis(1 + self.rng.below(5_000));
                let end = self.cluster.net.now + span;
                let seed = self.rng.next();
                self.network(seed, Some((host, end)));
            }
        }
    }

    fn network(&mut self, seed: u64, cut: Option<(usize, srd_wire::Time)>) {
        let mut rng = Rng(seed);
        let loss = [0, 2, 10][rng.below(3) as usize];
        let mut packets = 0u64;
        let begin = self.cluster.net.now;
        let _ = begin;
        self.cluster.net.judge = Some(Box::new(move |from, transmit| {
            packets += 1;
            // The judge knows no time; a cut ends after so many packets have died of it, which come ever more slowly.
            if let Some((host, _)) = cut
                && packets < 400
                && (from == host || transmit.to.gid == gid(host))
            {
                return Fate::Lost;
            }
            match rng.below(100) {
                n if n < loss => Fate::Lost,
                n if n < 15 => Fate::Twice(Nanos(rng.below(100_000))),
                n if n < 50 => Fate::Late(Nanos(rng.below(60_000))),
                _ => Fate::Arrives,
            }
        }));
    }

    fn collect(&mut self) {
        let mut all = Vec::new();
        for at in 0..self.lives.len() {
            all.extend(std::iter::from_fn(|| self.cluster.domains[at].poll_done()).map(|done| (at, done)));
        }
        // Whoever looks at the receivers first sees what had happened when a sender was told.
        all.sort_by_key(|(_, done)| !matches!(done.kind, Kind::Recv { .. }));
        for (at, done) in all {
            self.completed(at, &done);
        }
    }

    fn completed(&mut self, at: usize, done: &Done) {
        let entry = self.by_context.get(&(at, done.context)).copied();
        match entry.unwrap_or_else(|| panic!("nobody asked for this: {done:?}")) {
            Entry::Send(number) => {
                let sent = &mut self.sent[number];
                assert!(sent.outcome.is_none(), "completed twice: {done:?}");
                sent.outcome = Some(done.error.map_or(Ok(()), Err));
                if let Some(error) = done.error {
                    assert!(!self.calm && matches!(error, Failure::PeerLost(_)), "{done:?}");
                } else if sent.delivery {
                    assert!(sent.taken_by.is_some() || !self.calm, "delivered, but to nobody: {done:?}");
                }
            }
            Entry::Recv(number) => self.received(number, done),
        }
    }

    fn received(&mut self, number: usize, done: &Done) {
        let posted = &self.posted[number];
        assert!(posted.outcome.is_none(), "completed twice: {done:?}");
        let outcome = done.error.map_or(Ok(done.len), Err);
        match done.error {
            None | Some(Failure::Truncated { .. }) => {}
            Some(Failure::Canceled) => assert!(posted.cancelled),
            Some(Failure::PeerLost(_)) => assert!(!self.calm, "{done:?}"),
            Some(other) => panic!("{other:?}"),
        }
        if matches!(done.error, None | Some(Failure::Truncated { .. })) {
            let message = done.data.expect("every message has data") as usize;
            let sent = &self.sent[message];
            // A first message whose acknowledgement was lost with its receiver comes to the next process at a well-known
            // address, too.
            let before = sent.taken_by.map(|by| self.posted[by].life);
            assert!(
                before.is_none_or(|life| posted.well_known && life < posted.life),
                "message {message} has come twice: {done:?}"
            );
            assert!(posted.matches(sent) && done.source == sent.from as u64, "{done:?}");
            assert_eq!(done.tag, sent.tag.unwrap_or(0));
            let over = if let Some(Failure::Truncated { over }) = done.error { over } else { 0 };
            assert_eq!(done.len + over, sent.len as u64);
            let memory = self.cluster.net.devices[posted.at].memory();
            let bytes = memory.at(posted.room.addr, done.len as usize);
            assert!(*bytes == content(message, sent.len)[..bytes.len()], "message {message} has other bytes");
            self.sent[message].taken_by = Some(number);
            self.posted[number].took = Some(message);
        }
        self.posted[number].outcome = Some(outcome);
    }

    /// Messages do not overtake each other, nor do receives.
    fn check_order(&self) {
        for (second, posted) in self.posted.iter().enumerate() {
            let Some(message) = posted.took else { continue };
            let taken = &self.sent[message];
            for (earlier, other) in self.sent[..message].iter().enumerate() {
                let same = other.len > 0
                    && other.from == taken.from
                    && other.lives == taken.lives
                    && posted.matches(other);
                if !same || matches!(other.outcome, Some(Err(_))) || !self.calm && other.taken_by.is_none() {
                    continue;
                }
                let before = other.taken_by.is_some_and(|by| by < second);
                assert!(before, "message {message} overtook {earlier} from {} to {}", taken.from, taken.to);
            }
            for (first, other) in self.posted[..second].iter().enumerate() {
                if other.at != posted.at
                    || other.life != posted.life
                    || !other.matches(taken)
                    || other.cancelled
                {
                    continue;
                }
                // It may have taken another sender's message, or an earlier one, or have failed with one.
                let fine = match other.took {
                    Some(took) => self.sent[took].from != taken.from || took < message,
                    None => matches!(other.outcome, Some(Err(Failure::PeerLost(_) | Failure::Closing))),
                };
                assert!(
                    fine,
                    "receive {second} overtook {first}, which took {:?}: message {message} from {} to {}",
                    other.took, taken.from, taken.to,
                );
            }
        }
    }

    /// Everybody knows everybody.
    fn introduce(&mut self) {
        let hosts = self.lives.len();
        for pair in 0..hosts * hosts {
            self.cluster.peer(pair / hosts, pair % hosts);
        }
    }

    fn run(&mut self) {
        self.introduce();
        let seed = self.rng.next();
        self.network(seed, None);
        let calamities = self.rng.one_in(2);
        for _ in 0..150 {
            match self.rng.below(20) {
                0..8 => self.send(),
                8..16 => self.recv(),
                16 => {
                    let number = self.rng.below(self.posted.len().max(1) as u64) as usize;
                    self.cancel(number);
                }
                17 if calamities && self.rng.one_in(4) => self.calamity(),
                _ => {
                    let span = Nanos(self.rng.below(300_000));
                    self.cluster.settle(span);
                }
            }
            self.collect();
        }
        // From now on nothing goes wrong: everything that has a partner completes.
        self.cluster.net.judge = None;
        self.cluster.settle(Nanos::from_secs(10));
        self.collect();
        // Receives for whatever was not asked for.
        for at in 0..self.lives.len() {
            for tag in [None, Some((0, u64::MAX))] {
                for _ in 0..80 {
                    let room = self.cluster.room(at, 200_000);
                    let number = self.posted.len();
                    let context = self.context(at, Entry::Recv(number));
                    let matching = tag.map_or(Match::Untagged, |(tag, ignore)| Match::Tagged { tag, ignore });
                    let recv = Recv {
                        from: None,
                        matching,
                        iov: &[room],
                        context,
                        report: true,
                        multi: false,
                        claim: false,
                    };
                    self.cluster.post(at, &recv).unwrap();
                    let life = self.lives[at];
                    self.posted.push(Posted {
                        at,
                        life,
                        from: None,
                        tag,
                        room,
                        outcome: None,
                        took: None,
                        cancelled: false,
                        well_known: self.cluster.well_known,
                    });
                }
            }
        }
        self.cluster.settle(Nanos::from_secs(10));
        self.collect();
        for (number, sent) in self.sent.iter().enumerate() {
            assert!(
                sent.outcome.is_some(),
                "message {number} from {} to {} never completes ({} bytes, lives {:?}, taken by {:?}, delivery {})",
                sent.from,
                sent.to,
                sent.len,
                sent.lives,
                sent.taken_by,
                sent.delivery
            );
            if self.calm {
                assert!(
                    sent.taken_by.is_some(),
                    "message {number} was lost ({} bytes, silent {})",
                    sent.len,
                    sent.silent
                );
            }
        }
        self.check_order();
        // Whatever has happened, all can talk to each other: the first message may find out that its peer is another now.
        for number in 0..self.posted.len() {
            self.cancel(number);
        }
        (0..self.lives.len()).for_each(|at| while self.cluster.domains[at].poll_done().is_some() {});
        self.by_context.clear();
        for from in 0..self.lives.len() {
            for to in 0..self.lives.len() {
                for attempt in 0..3u64 {
                    let iov = self.cluster.bytes(from, &[1; 20]);
                    self.cluster.try_send(from, to, Some(1000 + attempt), &[iov], 1, DELIVER).unwrap();
                    let room = self.cluster.room(to, 20);
                    self.cluster.recv(to, Some(from), 1000 + attempt, 0, room, 2);
                    self.cluster.settle(Nanos::from_secs(1));
                }
                let reached = std::iter::from_fn(|| self.cluster.domains[to].poll_done())
                    .any(|done| done.context == 2 && done.tag == 1002 && done.error.is_none());
                assert!(reached, "{from} does not reach {to} any more");
                while self.cluster.domains[from].poll_done().is_some() {}
            }
        }
        for at in 0..self.lives.len() {
            // Who keeps the rules is never refused, and nothing stays behind.
            let counters = self.cluster.counters(at);
            let refused = counters.refused();
            assert_eq!(refused, 0, "{counters:?}");
            assert_eq!(counters.kept_bytes, 0, "something is still kept for peers");
        }
    }

    fn cancel(&mut self, number: usize) {
        let Some(posted) = self.posted.get(number).filter(|posted| posted.outcome.is_none()) else { return };
        let at = posted.at;
        let context = self.by_context.iter().find_map(|(&(host, context), entry)| {
            (host == at && matches!(entry, Entry::Recv(n) if *n == number)).then_some(context)
        });
        if let Some(context) = context {
            let endpoint = self.cluster.endpoints[at];
            self.posted[number].cancelled = self.cluster.domains[at].cancel(endpoint, context);
        }
    }
}

#[test]
fn random_programs_match_as_mpi_says() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("FIRST").unwrap_or(0);
            first..first + number("SEEDS").unwrap_or(60)
        }
    };
    for seed in seeds {
        let run = std::panic::catch_unwind(|| Program::new(seed).run());
        if let Err(panic) = run {
            eprintln!("again with: SEED={seed} cargo test --profile checked -p srd-msg --test programs");
            std::panic::resume_unwind(panic);
        }
    }
}
