//! What each source port finds on its way: how long the round trip is, and what gets lost.

use super::finding::Finding;
use super::probe::{Request, SHORTEST, answered, any_address, nonce, unfragmented, wait_readable};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Probes from each source port.
const ROUNDS: u32 = 20;

/// Rounds after which a source port that has never been answered counts as dead.
const ROUNDS_TO_DIE: u32 = 4;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(50);

/// Many sockets, so many source ports, towards one responder.
pub struct Fan {
    /// The sockets, non-blocking.
    pub sockets: Vec<UdpSocket>,
    to: SocketAddr,
    nonce: u64,
}

impl Fan {
    /// `count` source ports.
    pub fn open(to: SocketAddr, count: u16) -> io::Result<Fan> {
        let sockets = (0..count)
            .map(|_| {
                let socket = unfragmented(any_address(to.ip()))?;
                socket.set_nonblocking(true)?;
                Ok(socket)
            })
            .collect::<io::Result<_>>()?;
        Ok(Fan { sockets, to, nonce: nonce() })
    }

    /// Sends probe `number` from one of the ports. A datagram that cannot be sent is a lost one.
    pub fn send(&self, index: usize, number: u32) {
        let request = Request { nonce: self.nonce, number, ..Request::default() };
        let _ = self.sockets[index].send_to(&request.encode(SHORTEST), self.to);
    }

    /// Takes answers until `deadline`: which port, which probe.
    pub fn collect(&self, deadline: Instant, mut answer: impl FnMut(usize, u32)) -> io::Result<()> {
        let mut buffer = [0; SHORTEST];
        while Instant::now() < deadline {
            for index in wait_readable(&self.sockets, deadline.saturating_duration_since(Instant::now()))? {
                while let Ok(len) = self.sockets[index].recv(&mut buffer) {
                    if let Some((_, number)) =
                        answered(&buffer[..len]).filter(|(nonce, _)| *nonce == self.nonce)
                    {
                        answer(index, number);
                    }
                }
            }
        }
        Ok(())
    }

    /// How long one probe's answer takes; `None` if it does not come.
    fn round_trip(&self, index: usize, number: u32) -> io::Result<Option<Duration>> {
        let sent = Instant::now();
        let deadline = sent + PATIENCE;
        self.send(index, number);
        let socket = std::slice::from_ref(&self.sockets[index]);
        let mut buffer = [0; SHORTEST];
        while Instant::now() < deadline {
            wait_readable(socket, deadline.saturating_duration_since(Instant::now()))?;
            while let Ok(len) = socket[0].recv(&mut buffer) {
                if answered(&buffer[..len]) == Some((self.nonce, number)) {
                    return Ok(Some(sent.elapsed()));
                }
            }
        }
        Ok(None)
    }

    /// Source port of one of the sockets.
    pub fn port(&self, index: usize) -> u16 {
        self.sockets[index].local_addr().map_or(0, |address| address.port())
    }
}

/// What one source port saw.
#[derive(Clone, Copy, Default)]
struct Seen {
    answers: u32,
    shortest: Option<Duration>,
}

/// Probes from as many source ports as SRD would use.
pub fn examine(to: SocketAddr, paths: u16) -> io::Result<Vec<Finding>> {
    let fan = Fan::open(to, paths)?;
    let mut seen = vec![Seen::default(); usize::from(paths)];
    for round in 0..ROUNDS {
        for (index, seen) in seen.iter_mut().enumerate() {
            // A dead path costs its patience in every round; a few rounds suffice to know it.
            if seen.answers == 0 && round >= ROUNDS_TO_DIE {
                continue;
            }
            // One at a time: the round trip of a probe that queues behind 63 others would say nothing.
            if let Some(took) = fan.round_trip(index, round)? {
                seen.answers += 1;
                seen.shortest = Some(seen.shortest.map_or(took, |shortest| shortest.min(took)));
            }
        }
    }
    Ok(judge(&fan, &seen))
}

fn judge(fan: &Fan, seen: &[Seen]) -> Vec<Finding> {
    let dead: Vec<u16> = (0..seen.len()).filter(|&i| seen[i].answers == 0).map(|i| fan.port(i)).collect();
    let alive: Vec<&Seen> = seen.iter().filter(|seen| seen.answers > 0).collect();
    let lost: u32 = alive.iter().map(|seen| ROUNDS - seen.answers).sum();
    let (shortest, longest) = (
        alive.iter().filter_map(|seen| seen.shortest).min().unwrap_or_default(),
        alive.iter().filter_map(|seen| seen.shortest).max().unwrap_or_default(),
    );
    let round_trips = format!(
        "best round trip from {:.0} us to {:.0} us by source port",
        shortest.as_secs_f64() * 1e6,
        longest.as_secs_f64() * 1e6
    );
    let mut findings = Vec::new();
    if !dead.is_empty() {
        findings.push(
            Finding::warn(
                "source ports",
                format!(
                    "{} of {} source ports never get an answer, such as {}: a path is dead; SRD goes around it",
                    dead.len(),
                    seen.len(),
                    dead[0]
                ),
            )
            .mend("find the failed link or switch: `srd doctor` shows the hops of the others; or a firewall that \
                   admits only some source ports"),
        );
    }
    let what = format!("{} source ports answered, {round_trips}", alive.len());
    findings.push(if lost == 0 {
        Finding::ok("paths", what)
    } else {
        let share = 100.0 * f64::from(lost) / f64::from(ROUNDS * alive.len() as u32);
        Finding::warn("paths", format!("{what}; {share:.1} % of the probes were lost on an idle path"))
            .mend("ethtool -S INTERFACE | grep -iE 'drop|err', on both hosts and the switches between")
    });
    findings
}
