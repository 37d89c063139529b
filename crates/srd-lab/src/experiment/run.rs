//! One run: workers in all hosts that take part, one start, faults at their times.

use super::cpu_usage::{Ticks, with_longest_pause_ns};
use super::plan::TimedFault;
use super::traffic::Flow;
use crate::error::{Doing, Result, bad};
use crate::flow::clock::{now_ns, sleep_until};
use crate::flow::protocol::{Amount, Command, Inbound, Outbound, Received, Reply, Sent, Transport};
use crate::lab::Lab;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// From the last preparation to the start.
const HEAD_START_NS: u64 = 200_000_000;
/// How often who waits for a fault's time looks whether flows still go.
const LOOK_NS: u64 = 20_000_000;
/// Beyond what is expected, for a run whose flows have a size.
const PATIENCE_NS: u64 = 60_000_000_000;
/// Source ports of TCP flows: below those that Linux chooses itself.
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// Flows of one transport.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// What moves them.
    pub transport: &'a Transport,
    /// What they are.
    pub flows: Vec<Flow>,
}

/// What a group's flows did, in their order.
#[derive(Clone, Debug)]
pub struct Account {
    /// At receivers.
    pub received: Vec<Received>,
    /// At senders.
    pub sent: Vec<Sent>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Of each group.
    pub accounts: Vec<Account>,
    /// How busy the processors were while flows went.
    pub cpu_percent: f64,
    /// Longest time for which the machine stood still then, in nanoseconds.
    pub longest_pause_ns: u64,
}

/// Runs groups of flows at once. `srd` is the command srd; `draw` gives random numbers; arrivals are counted in intervals
/// of `bin_ns`.
pub fn run(
    lab: &Lab,
    srd: &Path,
    groups: &[Group<'_>],
    faults: &[TimedFault],
    bin_ns: u64,
    draw: impl FnMut() -> u32,
) -> Result<Outcome> {
    run_telling(lab, srd, groups, faults, bin_ns, draw, |_| ())
}

/// The same; `tell` learns the moment of the start before it comes.
pub fn run_telling(
    lab: &Lab,
    srd: &Path,
    groups: &[Group<'_>],
    faults: &[TimedFault],
    bin_ns: u64,
    mut draw: impl FnMut() -> u32,
    tell: impl FnOnce(u64),
) -> Result<Outcome> {
    let mut workers: BTreeMap<(usize, usize), Worker> = BTreeMap::new();
    let mut longest_ns = 0;
    for (number, group) in groups.iter().enumerate() {
        let hosts = group.flows.iter().flat_map(|flow| [flow.from, flow.to]);
        for host in hosts {
            if let Entry::Vacant(place) = workers.entry((number, host)) {
                place.insert(Worker::start(lab, srd, host)?);
            }
        }
    }
    for (number, group) in groups.iter().enumerate() {
        if let Transport::Tcp { ecn: true, .. } = group.transport {
            let hosts = workers.range((number, 0)..(number + 1, 0)).map(|(&(_, host), _)| host);
            hosts.into_iter().try_for_each(|host| ask_for_marks(lab, host))?;
        }
        let mut listening = BTreeMap::new();
        for (&(_, host), worker) in workers.range_mut((number, 0)..(number + 1, 0)) {
            let inbound = |(index, flow): (usize, &Flow)| {
                let Flow { amount, begin_ns, .. } = *flow;
                (flow.to == host).then_some(Inbound { flow: index as u32, amount, begin_ns })
            };
            worker.tell(&Command::Open {
                transport: group.transport.clone(),
                address: lab.hosts()[host].fabric_address.into(),
                inbound: group.flows.iter().enumerate().filter_map(inbound).collect(),
                bin_ns,
            })?;
            match worker.hear()? {
                Reply::Opened { listening: opened } => {
                    listening.extend(opened.into_iter().map(|listen_addr| (listen_addr.flow, listen_addr)))
                }
                other => return Err(worker.out_of_turn(&other)),
            }
        }
        for (&(_, host), worker) in workers.range_mut((number, 0)..(number + 1, 0)) {
            let mut outbound = Vec::new();
            for (index, flow) in group.flows.iter().enumerate().filter(|(_, flow)| flow.from == host) {
                let source_port = match group.transport {
                    Transport::Srd => 0,
                    Transport::Tcp { .. } => PORTS.start + (draw() % PORTS.len() as u32) as u16,
                };
                let to = listening[&(index as u32)];
                let Flow { amount, begin_ns, offered_bps, .. } = *flow;
                outbound.push(Outbound {
                    flow: index as u32,
                    amount,
                    begin_ns,
                    offered_bps,
                    to,
                    source_port,
                });
            }
            worker.tell(&Command::Connect { outbound })?;
            match worker.hear()? {
                Reply::Connected => {}
                other => return Err(worker.out_of_turn(&other)),
            }
        }
        let spans = group.flows.iter().map(|flow| flow.begin_ns + span_ns(flow.amount));
        longest_ns = spans.chain([longest_ns]).max().unwrap_or(0);
    }
    let at_ns = now_ns() + HEAD_START_NS;
    let until_ns = at_ns + longest_ns;
    tell(at_ns);
    for worker in workers.values_mut() {
        worker.tell(&Command::Go { at_ns, until_ns })?;
    }
    let done = AtomicBool::new(false);
    let measure = || {
        thread::scope(|scope| {
            let faulty = scope.spawn(|| bring_about(lab, faults, at_ns, &done));
            sleep_until(at_ns);
            let before = Ticks::now();
            let mut answers = BTreeMap::new();
            let mut result = Ok(());
            for (&key, worker) in &mut workers {
                match worker.hear() {
                    Ok(answer) => {
                        answers.insert(key, answer);
                    }
                    Err(error) => result = result.and(Err(error)),
                }
            }
            let cpu_percent = Ticks::now().busy_percent_since(before);
            done.store(true, Ordering::Relaxed);
            let faulty = faulty.join().expect("no panic");
            (result.and(faulty).map(|()| answers), cpu_percent)
        })
    };
    let ((result, cpu_percent), longest_pause_ns) = with_longest_pause_ns(measure);
    let mut accounts = vec![Account { received: Vec::new(), sent: Vec::new() }; groups.len()];
    for ((number, host), answer) in result? {
        match answer {
            Reply::Done { received, sent } => {
                accounts[number].received.extend(received);
                accounts[number].sent.extend(sent);
            }
            other => return Err(workers[&(number, host)].out_of_turn(&other)),
        }
    }
    for account in &mut accounts {
        account.received.sort_by_key(|received| received.flow);
        account.sent.sort_by_key(|sent| sent.flow);
    }
    Ok(Outcome { accounts, cpu_percent, longest_pause_ns })
}

/// The kernel's TCP in that host asks for marks from now on (ip-sysctl, `tcp_ecn`).
pub(super) fn ask_for_marks(lab: &Lab, host: usize) -> Result<()> {
    let script = "echo 1 > /proc/sys/net/ipv4/tcp_ecn";
    let status = lab.command(host, "sh").args(["-c", script]).status().doing(|| "setting tcp_ecn".into())?;
    match status.success() {
        true => Ok(()),
        false => Err(bad(format!("cannot set net.ipv4.tcp_ecn in {}", lab.hosts()[host].name))),
    }
}

/// How long a flow may take.
fn span_ns(amount: Amount) -> u64 {
    match amount {
        Amount::Bytes(_) => PATIENCE_NS,
        Amount::ForNs(span) => span,
    }
}

/// Begins and ends faults at their times, until there is nothing any more that they could meet.
pub(super) fn bring_about(lab: &Lab, faults: &[TimedFault], at_ns: u64, over: &AtomicBool) -> Result<()> {
    let mut moments: Vec<(u64, usize, bool)> = Vec::new();
    for (index, timed) in faults.iter().enumerate() {
        moments.push((timed.at_ms, index, true));
        moments.push((timed.heal_ms, index, false));
    }
    moments.sort();
    let mut standing = BTreeMap::new();
    for (ms, index, begins) in moments {
        let moment_ns = at_ns + ms * 1_000_000;
        while now_ns() < moment_ns {
            if over.load(Ordering::Relaxed) {
                return Ok(()); // the lab goes down, and faults with it
            }
            sleep_until(moment_ns.min(now_ns() + LOOK_NS));
        }
        match begins {
            true => drop(standing.insert(index, lab.fault(faults[index].fault.clone())?)),
            false => lab.heal(standing[&index])?,
        }
    }
    Ok(())
}

/// A host's worker process.
struct Worker {
    host: String,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(lab: &Lab, srd: &Path, host: usize) -> Result<Worker> {
        let mut command = lab.command(host, srd);
        command.args(["lab", "worker"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.process_group(0); // Ctrl-C is for the one who orders, not for workers
        let mut child = command.spawn().doing(|| format!("starting {}", srd.display()))?;
        let orders = child.stdin.take().expect("it is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Ok(Worker { host: lab.hosts()[host].name.clone(), child, orders, answers })
    }

    fn tell(&mut self, order: &Command) -> Result<()> {
        let mut line = serde_json::to_vec(order).expect("orders are plain values");
        line.push(b'\n');
        self.orders
            .write_all(&line)
            .and_then(|()| self.orders.flush())
            .doing(|| format!("telling {}", self.host))
    }

    fn hear(&mut self) -> Result<Reply> {
        let mut line = String::new();
        self.answers.read_line(&mut line).doing(|| format!("hearing {}", self.host))?;
        match serde_json::from_str(&line) {
            Ok(Reply::Failed { error }) => Err(bad(format!("{}: {error}", self.host))),
            Ok(answer) => Ok(answer),
            Err(_) if line.is_empty() => {
                let how = self.child.wait().map_or("?".into(), |status| status.to_string());
                Err(bad(format!("the worker in {} has ended ({how}) without an answer", self.host)))
            }
            Err(error) => Err(bad(format!("the worker in {} answers {line:?}: {error}", self.host))),
        }
    }

    fn out_of_turn(&self, answer: &Reply) -> crate::error::Error {
        bad(format!("the worker in {} answers out of turn: {answer:?}", self.host))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
