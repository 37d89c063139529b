//! A fabric under another simulator: that one's ranks send and receive here when it says so, and it is told when messages are sent and have
//! come. Time is the fabric's; the other simulator has itself called at moments of it.

use crate::apps::{Jobs, MAX_BYTES};
use crate::hosts::{AnyHost, Ending, Envelope, MatchedMessages};
use crate::input::{MOST_PROCESSES, Scenario};
use crate::run::drive::prepare_hosts;
use crate::run::offer::Offer;
use crate::run::outcome::{Meter, OfJob, Outcome};
use crate::run::processes::of_processes;
use crate::run::simulation::{Simulation, Step};
use srd_baselines::input::counted;
use srd_baselines::units::Ps;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Time between two looks for ports that wait for each other.
const LOOK_FOR_DEADLOCKS: Ps = Ps::from_micros(100);
/// Envelopes of receives without a message that are told.
const MOST_TOLD: usize = 4;

/// What is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// A send or a receive has come to its end.
    Ended(Ending),
    /// The moment has come that was asked for, by that name.
    Alarm(u64),
    /// There is nothing to do before the moment until which time was to go on; it is that moment.
    Until,
    /// Nothing is under way, and no moment is waited for.
    Nothing,
    /// The run has come to the end that the scenario names.
    OutOfTime,
    /// Ports wait for each other for ever.
    Deadlock,
}

/// What the messages of a job have come to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JobTotals {
    /// Messages sent.
    pub sent: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Receives that have ended well.
    pub received: u64,
    /// Sends and receives that have failed.
    pub failed: u64,
    /// When the last of all came to its end.
    pub last: Ps,
}

/// Gives a scenario without programs the ranks of jobs: the hosts of each rank of each job, and the job's transport, by index.
pub fn with_jobs(mut scenario: Scenario, jobs: &[(Vec<u32>, u16)]) -> Result<Scenario, String> {
    let hosts: Vec<u32> = jobs.iter().flat_map(|(hosts, _)| hosts).copied().collect();
    let mut there: BTreeMap<u32, u64> = BTreeMap::new();
    for &host in &hosts {
        *there.entry(host).or_default() += 1;
    }
    for place in scenario.traffic.flows.iter().flat_map(|flow| [flow.src, flow.dst]) {
        // Each flow's ends may be processes of their own.
        *there.entry(place.host).or_default() += 1;
    }
    if let Some((host, count)) = there.into_iter().find(|(_, count)| *count > MOST_PROCESSES) {
        return Err(format!(
            "host {host} would have up to {count} processes, ranks and ends of [[workload]]'s flows together: at most {MOST_PROCESSES}"
        ));
    }
    let mut programs = of_processes(&hosts);
    let transports = jobs.iter().flat_map(|(hosts, transport)| hosts.iter().map(|_| *transport));
    programs.iter_mut().zip(transports).for_each(|(program, transport)| program.transport = transport);
    scenario.traffic.make_room(programs);
    Ok(scenario)
}

/// See the module.
pub struct CoSimulation<'a> {
    simulation: Simulation<'a, AnyHost>,
    offer: Offer,
    meter: Meter,
    jobs: Jobs,
    totals: Vec<JobTotals>,
    /// Moments that are waited for, in the order in which they were asked for, and what they are called.
    alarms: BinaryHeap<Reverse<(Ps, u64, u64)>>,
    serial: u64,
    looks_at: Ps,
}

impl<'a> CoSimulation<'a> {
    /// Of a scenario whose programs are the ranks of these jobs.
    pub fn new(scenario: &'a Scenario, jobs: Jobs) -> CoSimulation<'a> {
        let offer = Offer::of(scenario);
        let mut simulation: Simulation<'a, AnyHost> = prepare_hosts(scenario, &offer);
        let places: Vec<_> = scenario.traffic.programs.iter().map(|program| program.at).collect();
        let base = simulation.flows.len() as u32;
        let messages = MatchedMessages::new(&places, scenario.settings.hosts.intra_node, base);
        simulation.set_programs(Box::new(messages));
        simulation.keep_order();
        simulation.begin_flows();
        let looks_at = if simulation.fabric.pauses() { LOOK_FOR_DEADLOCKS } else { Ps::NEVER };
        CoSimulation {
            simulation,
            offer,
            meter: Meter::start(),
            totals: vec![JobTotals::default(); jobs.count()],
            jobs,
            alarms: BinaryHeap::new(),
            serial: 0,
            looks_at,
        }
    }

    /// Hosts of the fabric.
    pub fn hosts(&self) -> u32 {
        self.simulation.hosts()
    }

    /// The present.
    pub fn now(&self) -> Ps {
        self.simulation.now
    }

    fn messages(&mut self) -> &mut MatchedMessages {
        self.simulation.programs_mut().and_then(|programs| programs.matched()).expect("they are its programs")
    }

    /// Among all ranks, the number of a job's rank.
    fn number(&self, job: usize, rank: u32) -> Result<u32, String> {
        if job >= self.jobs.count() {
            return Err(format!("there is no job {job}: there are {}", self.jobs.summary()));
        }
        let ranks = self.jobs.ranks_of(job);
        let count = ranks.end - ranks.start;
        if rank >= count {
            let ranks = counted(u64::from(count), "rank");
            return Err(format!("job {job} has no rank {rank}: it has {ranks}, and the first is 0"));
        }
        Ok(ranks.start + rank)
    }

    /// The envelope of a message of a job.
    pub fn envelope(&self, job: usize, from: u32, to: u32, tag: u64) -> Result<Envelope, String> {
        let envelope = Envelope { from: self.number(job, from)?, to: self.number(job, to)?, tag };
        if from == to {
            return Err(format!("rank {from} and itself: messages go from one rank to another"));
        }
        Ok(envelope)
    }

    /// Sends a message; `request` names it when it ends.
    pub fn send(&mut self, envelope: Envelope, bytes: u64, request: u64) -> Result<(), String> {
        if bytes > MAX_BYTES {
            return Err(format!("a message of {bytes} bytes: at most {MAX_BYTES}, send it in parts"));
        }
        if !self.messages().has_room(envelope.to) {
            let most = MatchedMessages::MOST_AT_A_TIME;
            let name = self.jobs.name(envelope.to);
            return Err(format!(
                "{most} messages are on their way to {name}: at most so many, let some come first"
            ));
        }
        let now = self.simulation.now;
        let (job, _) = self.jobs.locate(envelope.from);
        let totals = &mut self.totals[job as usize];
        totals.sent += 1;
        totals.bytes += bytes;
        self.messages().send(now, envelope, bytes, request);
        self.simulation.advance(envelope.from);
        Ok(())
    }

    /// Receives a message of up to so many bytes; `request` names it when it ends.
    pub fn recv(&mut self, envelope: Envelope, room: u64, request: u64) {
        self.messages().recv(envelope, room, request);
    }

    /// Wants [`Turn::Alarm`] after that time.
    pub fn schedule(&mut self, after: Ps, alarm: u64) {
        self.serial += 1;
        self.alarms.push(Reverse((self.simulation.now + after, self.serial, alarm)));
    }

    /// Goes on to what is next, at most until that moment.
    pub fn next(&mut self, until: Ps) -> Turn {
        let end = self.simulation.settings().end;
        loop {
            if let Some(ending) = self.messages().poll() {
                self.count(&ending);
                return Turn::Ended(ending);
            }
            let alarm = self.alarms.peek().map_or(Ps::NEVER, |&Reverse((at, ..))| at);
            if alarm == Ps::NEVER && !self.messages().are_open() {
                return self.rest(until);
            }
            if self.simulation.now >= self.looks_at {
                self.looks_at = self.simulation.now + LOOK_FOR_DEADLOCKS;
                let heals =
                    self.simulation.settings().queues.pause.is_none_or(|pause| pause.watchdog.is_some());
                if self.simulation.fabric.find_deadlock() && !heals {
                    return Turn::Deadlock;
                }
            }
            match self.simulation.step(alarm.min(until), end) {
                Step::Happened => {}
                Step::Over => return Turn::OutOfTime,
                Step::Nothing => return Turn::Nothing,
                Step::Later if alarm <= until => {
                    self.simulation.now = alarm.min(end);
                    if alarm > end {
                        return Turn::OutOfTime;
                    }
                    let Reverse((_, _, name)) = self.alarms.pop().expect("it was looked at");
                    return Turn::Alarm(name);
                }
                Step::Later => {
                    self.simulation.now = until;
                    return Turn::Until;
                }
            }
        }
    }

    /// Nothing is to be done: if time is to go on to a moment, it does, with what else there is on the fabric.
    fn rest(&mut self, until: Ps) -> Turn {
        if until == Ps::NEVER {
            return Turn::Nothing;
        }
        let end = self.simulation.settings().end;
        loop {
            match self.simulation.step(until, end) {
                Step::Happened => {}
                Step::Over => return Turn::OutOfTime,
                Step::Nothing | Step::Later => {
                    self.simulation.now = until;
                    return Turn::Until;
                }
            }
        }
    }

    fn count(&mut self, ending: &Ending) {
        let now = self.simulation.now;
        let (job, _) = self.jobs.locate(ending.envelope.from);
        let totals = &mut self.totals[job as usize];
        totals.last = now;
        match ending.bytes {
            Err(_) => totals.failed += 1,
            Ok(_) if ending.receives => totals.received += 1,
            Ok(_) => {}
        }
    }

    /// Receives for which no message was sent, in words, if there are any.
    pub fn unmatched(&mut self) -> Option<String> {
        let unmatched = self.messages().unmatched();
        let all: usize = unmatched.iter().map(|(_, count)| count).sum();
        let told: Vec<String> = unmatched
            .iter()
            .take(MOST_TOLD)
            .map(|(Envelope { from, to, tag }, _)| {
                format!("{} for one of {} with tag {tag}", self.jobs.name(*to), self.jobs.name(*from))
            })
            .collect();
        let more = if unmatched.len() > told.len() { ", and others" } else { "" };
        (all > 0).then(|| {
            let receives = counted(all as u64, "receive");
            format!("nothing is under way, and {receives} without a message: {}{more}", told.join(", "))
        })
    }

    /// What a job's messages have come to.
    pub fn totals(&self, job: usize) -> Option<JobTotals> {
        self.totals.get(job).copied()
    }

    /// What the run has come to so far.
    pub fn outcome(&mut self) -> Outcome {
        let mut outcome = Outcome::of(&mut self.simulation, self.offer.ideal, &self.meter);
        let of_job = |(totals, ranks): (&JobTotals, std::ops::Range<u32>)| OfJob {
            ranks: ranks.end - ranks.start,
            ended_us: Some(totals.last.as_micros()),
        };
        outcome.jobs = self.totals.iter().zip(self.jobs.all()).map(of_job).collect();
        outcome
    }
}
