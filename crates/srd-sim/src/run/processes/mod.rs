//! Programs of the user's on a simulated fabric: a process each, which the simulation lets run in turn.

mod carrier;
mod endings;
mod fares;

use crate::apps::{Jobs, Place, Program, Script};
use crate::hosts::{AnyHost, Crowd, Process, RankFlows, RankHost};
use crate::input::Scenario;
use crate::run::drive::prepare_hosts;
use crate::run::offer::Offer;
use crate::run::outcome::{Meter, Outcome};
use crate::run::simulation::{Simulation, Step};
use srd_baselines::units::Ps;
use srd_virtual::world::{Manner, OneCore, State, World};
use srd_virtual::{Call, Phase};
use srd_wire::Nanos;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use carrier::Carrier;
use endings::Seen;
use fares::Fare;

/// How often it is looked whether the launcher has ended, while ranks talk, and who never rests.
const WATCH_EVERY: Duration = Duration::from_millis(100);
/// How long somebody outside is waited for at a time.
const A_MOMENT: Duration = Duration::from_micros(200);
/// Who asks for the turn waits so long for others that do something.
const LET_OTHERS: Duration = Duration::from_secs(5);
/// Where nothing can happen in the fabric those that poll look this soon, and later and later up to that.
const FIRST_LOOK: Duration = Duration::from_micros(500);
const LAST_LOOK: Duration = Duration::from_millis(50);
/// The same while things go on in the fabric, but not of a running program.
const LOOK_BESIDE_FLOWS: Duration = Duration::from_secs(1);
/// After so much simulated time it is seen whether anything moves that the simulation knows nothing of; where programs wait meanwhile, after twice
/// that, and so on up to a second.
const LISTEN_EVERY: Ps = Ps::from_micros(10_000);
const LISTEN_AT_LEAST_EVERY: Ps = Ps::from_micros(1_000_000);
/// So far time may be ahead of the machine's where it keeps to that: polls wait by short steps.
const AHEAD: Ps = Ps::from_micros(10_000);
/// For so long time waits for ranks that wait for their launcher while MPI begins.
const LONGEST_BEGINNING: Duration = Duration::from_secs(5);

/// What starts the processes, and how they fare.
pub trait Launcher {
    /// Starts those of all jobs; they find the shared memory at this path.
    fn start(&mut self, world: &Path) -> io::Result<()>;

    /// Whether whatever was started for a job has ended, and its code.
    fn ended(&mut self, job: usize) -> io::Result<Option<i32>>;

    /// Ends a job, which goes on.
    fn end(&mut self, job: usize) -> io::Result<()>;

    /// True once somebody wants an end; whoever says so kills what was started.
    fn stop(&self) -> Arc<AtomicBool>;

    /// Tells a person what is to be known at once.
    fn tell(&self) -> fn(&str);
}

/// A rank that has ended too early.
#[derive(Clone, Copy)]
struct Left {
    rank: u32,
    /// It waited for the fabric: so it was killed, and perhaps because another one had ended.
    waited: bool,
}

/// How a run has come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The launcher has ended, with this code.
    Launcher(i32),
    /// It has ended well, and ranks have never used the fabric: what was measured is none of it.
    Bypassed,
    /// A job beside the first has failed, with this code of its launcher, or has ended too early.
    Beside(i32),
    /// Somebody wanted it.
    Interrupted,
    /// The simulated time came to the end that the scenario names.
    OutOfTime,
    /// The transport gave up.
    GaveUp,
    /// Nothing happened any more.
    Standstill,
}

/// What became of it.
#[derive(Debug)]
pub struct Lived {
    /// The run's outcome.
    pub outcome: Outcome,
    /// How it ended.
    pub end: End,
    /// What the transport gave up, a line each.
    pub gave_up: Vec<String>,
    /// What else did not go as it should, a line each.
    pub complaints: Vec<String>,
    /// The calls of MPI of each rank, if they were to be noted, in the order in which they returned.
    pub calls: Vec<Vec<Call>>,
    /// Whose ranks they are.
    pub jobs: Jobs,
}

/// A program of a process on each of those hosts, in the order of ranks: what a scenario's traffic is then.
pub fn of_processes(hosts: &[u32]) -> Vec<Program> {
    let mut there: BTreeMap<u32, u16> = BTreeMap::new();
    let program = |&host| {
        let of_host = there.entry(host).or_default();
        let at = Place { host, process: *of_host };
        *of_host = of_host.saturating_add(1);
        Program { at, transport: 0, script: Script::Steps([].into()), forever: false }
    };
    hosts.iter().map(program).collect()
}

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// Where.
    pub scenario: &'a Scenario,
    /// Whose its programs are. The run is over when the first job is at its end; those that go on beside it are ended then.
    pub jobs: &'a Jobs,
    /// How.
    pub manner: Manner,
    /// What each rank is to compute before its calls, as another run has noted it; of no rank if that is not so.
    pub repeats: &'a [Vec<Call>],
}

/// Looks at the packets of processes, where they are their own.
pub trait Onlooker {
    /// Takes its place, before anything runs.
    fn begin(&mut self, scenario: &Scenario, simulation: &mut Simulation<'_, RankHost>) -> io::Result<()>;

    /// The run has ended at this time.
    fn end(&mut self, now: Ps) -> io::Result<()>;
}

/// Runs the processes that the scenario's programs stand for: with packets of their own where the transport is SRD, otherwise each message is a flow
/// of it.
pub fn run_processes(
    order: Order<'_>,
    onlooker: Option<&mut dyn Onlooker>,
    launcher: &mut dyn Launcher,
) -> io::Result<Lived> {
    let scenario = order.scenario;
    let offer = Offer::of(scenario);
    match scenario.settings.ranks_speak_srd() {
        true => run_on::<RankHost>(order, &offer, prepare_hosts(scenario, &offer), onlooker, launcher),
        false => {
            let mut simulation: Simulation<'_, AnyHost> = prepare_hosts(scenario, &offer);
            let places: Vec<Place> = scenario.traffic.programs.iter().map(|program| program.at).collect();
            let base = simulation.flows.len() as u32;
            let base_rtt = Nanos(offer.base_rtt.0.div_ceil(1000));
            let flows = RankFlows::new(
                order.jobs.clone(),
                &places,
                scenario.settings.hosts.intra_node,
                scenario.settings.seed,
                base,
                scenario.topology.fastest_host(),
                base_rtt,
            );
            simulation.set_programs(Box::new(flows));
            run_on::<AnyHost>(order, &offer, simulation, onlooker, launcher)
        }
    }
}

fn run_on<T: Carrier>(
    order: Order<'_>,
    offer: &Offer,
    mut simulation: Simulation<'_, T>,
    mut onlooker: Option<&mut dyn Onlooker>,
    launcher: &mut dyn Launcher,
) -> io::Result<Lived> {
    let Order { scenario, jobs, manner, repeats } = order;
    let meter = Meter::start();
    simulation.keep_order();
    if let Some(onlooker) = onlooker.as_deref_mut() {
        T::let_look(&mut simulation, scenario, onlooker)?;
    }
    let ranks = jobs.ranks_of(jobs.count() - 1).end;
    assert_eq!(
        ranks as usize,
        scenario.traffic.programs.len(),
        "each program of the scenario is a job's rank"
    );
    let places: Vec<_> = (0..ranks).map(|rank| T::seat(&mut simulation, rank).place()).collect();
    let (world, seats) = World::create(&places, manner, repeats).map_err(|error| {
        let what = format!("{error}: no room for the memory that ranks share with the simulator: allow more (`ulimit -v`), or run fewer ranks");
        io::Error::new(error.kind(), what)
    })?;
    let crowd = Rc::new(RefCell::new(Crowd::new(world.bell(), launcher.stop(), launcher.tell())));
    for (rank, seat) in (0..).zip(seats) {
        T::seat(&mut simulation, rank).sit(seat, Rc::clone(&crowd));
    }
    launcher.start(&world.path())?;
    let mut run = Run {
        simulation,
        ranks,
        jobs: jobs.clone(),
        fares: vec![Fare::default(); jobs.count()],
        ending: 0,
        mpi: manner.mpi,
        world,
        crowd,
        paced_since: None,
        listens_at: Ps::ZERO,
        listens_after: LISTEN_EVERY,
        went_on: 0,
        turns: 0,
        seen: Seen { at: Instant::now(), own_turns: 0, sent: 0, now: Ps::ZERO },
        last: Instant::now(),
        looked_at: None,
        restless_at: Instant::now(),
        together: false,
        core: None,
        left: None,
        outcome: None,
        complaints: Vec::new(),
    };
    let end = run.live(launcher, &mut |simulation| Outcome::of(simulation, offer.ideal, &meter));
    run.crowd.borrow_mut().kill();
    let end = end?;
    let gave_up = run.given_up();
    let mut outcome =
        run.outcome.take().unwrap_or_else(|| Outcome::of(&mut run.simulation, offer.ideal, &meter));
    outcome.jobs = run.tell_of_jobs();
    let dropped: u64 = (0..ranks).map(|rank| T::seat(&mut run.simulation, rank).dropped()).sum();
    if dropped > 0 {
        run.complaints.push(format!("{dropped} packets came to processes that took none any more"));
    }
    let calls = run.calls()?;
    run.simulation.fabric.watcher = None;
    onlooker.map(|it| it.end(run.simulation.now)).transpose()?;
    Ok(Lived { outcome, end, gave_up, complaints: run.complaints, calls, jobs: run.jobs })
}

struct Run<'a, T: Process> {
    simulation: Simulation<'a, T>,
    ranks: u32,
    jobs: Jobs,
    /// How each of them fares.
    fares: Vec<Fare>,
    /// Ranks at their program's end when it was last seen which jobs are.
    ending: u32,
    /// As [`Manner::mpi`].
    mpi: bool,
    world: World,
    crowd: Rc<RefCell<Crowd>>,
    /// Since when time has kept to the machine's, and what it was.
    paced_since: Option<(Instant, Ps)>,
    listens_at: Ps,
    listens_after: Ps,
    /// Turns of programs that went on, as of then.
    went_on: u64,
    /// Turns that ranks had had when somebody last looked.
    turns: u64,
    /// What there was when it was last seen whether programs go on.
    seen: Seen,
    /// When somebody last looked at anything.
    last: Instant,
    /// The moment at which those that poll have looked because nothing was to happen for long.
    looked_at: Option<Ps>,
    /// When somebody last looked for processes that never rest.
    restless_at: Instant,
    /// All ranks have been let go on behind MPI's beginning.
    together: bool,
    /// Where they have their turns since then.
    core: Option<OneCore>,
    /// The first rank that has ended behind MPI's beginning, and without its end.
    left: Option<Left>,
    /// As of the moment when the first job was at its end: what follows is between processes and their launcher.
    outcome: Option<Outcome>,
    complaints: Vec<String>,
}

impl<T: Carrier> Run<'_, T> {
    fn live(
        &mut self,
        launcher: &mut dyn Launcher,
        outcome: &mut dyn FnMut(&mut Simulation<'_, T>) -> Outcome,
    ) -> io::Result<End> {
        let mut quiet_since = Instant::now();
        let mut moves_since = Instant::now();
        let mut pause = FIRST_LOOK;
        let mut looked_all = Instant::now();
        let mut looked = Instant::now();
        let mut idle = false;
        loop {
            if self.crowd.borrow().is_to_stop() {
                return Ok(self.interrupted());
            }
            if !self.given_up().is_empty() {
                return Ok(End::GaveUp);
            }
            let now = Instant::now();
            if self.has_stopped(now) {
                return Ok(self.standstill());
            }
            if std::mem::take(&mut idle) || now - looked > WATCH_EVERY {
                looked = now;
                if let Some((job, code)) = self.have_ended(launcher)? {
                    return Ok(self.conclude(job, code));
                }
            }
            if self.outcome.is_none() && self.is_first_at_its_end() {
                let _ = self.look_at_all(); // who has left before
                self.outcome = Some(outcome(&mut self.simulation));
                self.simulation.silence_flows();
                self.end_those_beside(launcher)?;
            }
            let wanted = match self.crowd.borrow().is_anybody_outside() || self.crowd.borrow().has_rung() {
                true => self.look_at_all(),
                false => Vec::new(),
            };
            // Behind the outcome it does not matter any more who goes on first.
            if self.outcome.is_some() && self.let_go_on(&wanted) {
                (quiet_since, pause) = (Instant::now(), FIRST_LOOK);
                continue;
            }
            let waits = self.crowd.borrow().is_anybody_outside();
            let quiet = !waits || self.crowd.borrow_mut().stays_quiet();
            let settled = quiet && (!waits || self.crowd.borrow().is_complete());
            // Others may come that are to have the turn first; without an MPI they may wait until they hear of the one that asks. Who asks is let
            // go on even while they do something for long: no time passes.
            let may_go_on = settled || quiet && !self.mpi;
            if (may_go_on || moves_since.elapsed() > LET_OTHERS) && self.let_go_on(&wanted) {
                (quiet_since, pause) = (Instant::now(), FIRST_LOOK);
                continue;
            }
            if !settled {
                self.world.listen(A_MOMENT);
                if !quiet {
                    quiet_since = Instant::now();
                } else if quiet_since.elapsed() > self.patience() {
                    return Ok(self.standstill());
                }
                self.give_up_on_the_restless();
                idle = true;
                continue;
            }
            moves_since = now;
            if self.crowd.borrow().in_phase(Phase::Beginning) > 0 {
                // Ranks wait for their launcher, and time for them, unless they talk to each other.
                if !self.carries() && quiet_since.elapsed() < LONGEST_BEGINNING {
                    self.world.listen(A_MOMENT);
                    self.let_all_look();
                    idle = true;
                    continue;
                }
            } else if !self.together && self.crowd.borrow().in_phase(Phase::Running) > 0 {
                self.together = true;
                self.go_on_together();
                continue;
            }
            let timeless = self.outcome.is_some() || self.crowd.borrow().in_phase(Phase::Beginning) > 0;
            let spoke = self.crowd.borrow_mut().has_spoken() && !timeless;
            if spoke || self.simulation.now >= self.listens_at {
                self.await_answers();
            }
            let until = if self.looked_at == Some(self.simulation.now) { Ps::NEVER } else { self.listens_at };
            let may_wait = waits || self.left.is_some();
            let paced = if may_wait && !timeless { self.pace() } else { None };
            if paced.is_none() {
                self.paced_since = None;
            }
            match self.simulation.step(paced.map_or(until, |paced| paced.min(until)), self.end()) {
                Step::Later if paced.is_some_and(|paced| paced < until) => {
                    self.world.listen(A_MOMENT);
                    idle = true;
                    continue;
                }
                Step::Later => {
                    // What ranks poll for may be no packet: a file, a thread of theirs that takes no part.
                    self.await_answers();
                    self.let_all_look();
                    self.looked_at = Some(self.simulation.now);
                    continue;
                }
                Step::Happened => {
                    // A program has come to a standstill though its last calls go on, or flows beside it.
                    if self.outcome.is_some() || self.has_had_turns() {
                        (quiet_since, pause) = (Instant::now(), FIRST_LOOK);
                    }
                    if looked_all.max(quiet_since).elapsed() < LOOK_BESIDE_FLOWS {
                        continue;
                    }
                }
                Step::Over => return Ok(self.out_of_time()),
                // Nothing can happen in the fabric.
                Step::Nothing => self.world.listen(pause),
            }
            looked_all = Instant::now();
            pause = (pause * 2).min(LAST_LOOK);
            self.let_all_look();
            idle = true;
            if quiet_since.elapsed() > self.patience() {
                if !self.awaits_a_time() {
                    return Ok(self.standstill());
                }
                quiet_since = Instant::now(); // what goes on beside it takes long until then
            }
        }
    }

    /// Until when time may go on: while programs run, to the end that the scenario names. What they do when they end is not of the run any more.
    fn end(&self) -> Ps {
        if self.outcome.is_some() { Ps::NEVER } else { self.simulation.settings().end }
    }

    /// Whether any rank has had the turn since this was last asked.
    fn has_had_turns(&mut self) -> bool {
        let turns = self.crowd.borrow().turns();
        std::mem::replace(&mut self.turns, turns) != turns
    }

    /// Turns that those ranks have had whose threads had not polled.
    fn own_turns(&mut self, ranks: Range<u32>) -> u64 {
        ranks.map(|rank| T::seat(&mut self.simulation, rank).own_turns()).sum()
    }

    /// Whether any program will go on at some time, whatever comes.
    fn awaits_a_time(&mut self) -> bool {
        (0..self.ranks).any(|rank| T::seat(&mut self.simulation, rank).awaits_a_time())
    }

    /// Whether anything is under way between ranks.
    fn carries(&mut self) -> bool {
        self.simulation.carries_frames()
            || self.simulation.programs().is_some_and(|programs| programs.is_carrying())
            || (0..self.ranks).any(|rank| T::seat(&mut self.simulation, rank).is_expecting())
    }

    /// What the transport has given up: then it cannot go on.
    fn given_up(&self) -> Vec<String> {
        self.simulation.programs().map_or_else(Vec::new, |programs| programs.complaints(self.simulation.now))
    }

    /// Somebody waits for something of the machine's, or has gone, and its launcher will see it. If all others wait for him, time goes no faster than
    /// the machine's, though their transports have timers: until when it may.
    fn pace(&mut self) -> Option<Ps> {
        if self.carries() || self.awaits_a_time() {
            return None;
        }
        let (since, then) = *self.paced_since.get_or_insert((Instant::now(), self.simulation.now));
        Some(then + AHEAD + Ps::from_nanos(since.elapsed().as_nanos() as u64))
    }

    /// Waits until nothing moves that the simulation knows nothing of: a launcher has answered, a library's thread has done its work.
    fn await_answers(&mut self) {
        let went_on = self.own_turns(0..self.ranks);
        self.listens_after = match std::mem::replace(&mut self.went_on, went_on) == went_on {
            true => (self.listens_after + self.listens_after).min(LISTEN_AT_LEAST_EVERY),
            false => LISTEN_EVERY,
        };
        self.listens_at = self.simulation.now + self.listens_after;
        while !self.crowd.borrow_mut().is_all_quiet() {
            self.give_up_on_the_restless();
            std::thread::sleep(A_MOMENT);
        }
    }

    fn give_up_on_the_restless(&mut self) {
        if self.restless_at.elapsed() < WATCH_EVERY {
            return;
        }
        self.restless_at = Instant::now();
        let restless = self.crowd.borrow_mut().give_up_on_the_restless();
        for process in restless {
            let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            self.complaints.push(format!(
                "process {process} ({}) does something all the time that is not of the fabric: time does not wait for it, so this \
                 run may differ from the next",
                name.trim_end()
            ));
        }
    }

    /// Looks what all are doing. Those who ask for the turn, or have ended, in the order of ranks.
    fn look_at_all(&mut self) -> Vec<u32> {
        self.crowd.borrow_mut().hear();
        let mut wanted = Vec::new();
        // Then jobs beside the first have been ended.
        let over = self.outcome.is_some();
        let first = self.jobs.ranks_of(0);
        for rank in 0..self.ranks {
            let seat = T::seat(&mut self.simulation, rank);
            if seat.look() || seat.state() == State::Ended {
                wanted.push(rank);
            }
            if seat.has_left() && (!over || first.contains(&rank)) {
                let left = Left { rank, waited: seat.was_killed_in_a_wait() };
                if self.left.is_none_or(|first| first.waited && !left.waited) {
                    self.left = Some(left);
                }
            }
        }
        wanted
    }

    /// Gives the turn to those. Whether any of them lives.
    fn let_go_on(&mut self, wanted: &[u32]) -> bool {
        let mut any = false;
        for &rank in wanted {
            any |= T::seat(&mut self.simulation, rank).state() != State::Ended;
            T::call(&mut self.simulation, rank);
        }
        any
    }

    /// All have left MPI's beginning. From here on one of all acts at a time, and a turn that goes to another processor takes longer to get there.
    fn go_on_together(&mut self) {
        self.simulation.begin_flows();
        self.core = OneCore::here();
        if let Some(core) = &self.core {
            for rank in 0..self.ranks {
                T::seat(&mut self.simulation, rank).set_core(core.number());
            }
        }
        for rank in 0..self.ranks {
            if T::seat(&mut self.simulation, rank).is_together() {
                T::seat(&mut self.simulation, rank).go_on();
                T::call(&mut self.simulation, rank);
            }
        }
    }

    fn let_all_look(&mut self) {
        let now = self.simulation.now.time();
        for rank in 0..self.ranks {
            T::seat(&mut self.simulation, rank).let_look(now);
            T::call(&mut self.simulation, rank);
        }
    }

    /// What the ranks have noted of their calls.
    fn calls(&mut self) -> io::Result<Vec<Vec<Call>>> {
        let mut calls = Vec::new();
        for rank in 0..self.ranks {
            let seat = T::seat(&mut self.simulation, rank);
            let noted = self.world.calls(rank, seat.calls())?;
            let missing = seat.calls() - noted.len() as u64;
            calls.push(noted);
            if missing > 0 {
                let name = self.jobs.name(rank);
                self.complaints
                    .push(format!("{name}: {missing} calls of MPI found no room, and are not there"));
            }
            if let Some(same) = seat.strayed() {
                self.complaints.push(format!(
                    "{} has made other calls of MPI than were recorded, behind {same} that were the same: what it computes \
                     takes no time from there on. Record the same program with the same arguments and ranks",
                    self.jobs.name(rank)
                ));
            }
        }
        Ok(calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_host_are_its_processes_in_their_order() {
        let places =
            of_processes(&[4, 0, 4, 4, 0]).into_iter().map(|program| (program.at.host, program.at.process));
        assert_eq!(places.collect::<Vec<_>>(), [(4, 0), (0, 0), (4, 1), (4, 2), (0, 1)]);
    }
}
