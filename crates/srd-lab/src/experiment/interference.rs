//! A run whose measured traffic is an MPI job: alone; then disturbed, by flows beside it, by faults, or by both; then alone
//! in its lab again while the same flows go in another lab, on the same processors but over other links. All three with the
//! same job in the same places, so that one can be divided by the other.

use super::cpu_usage::Ticks;
use super::job::{Collective, Job, Program, carrier, expression};
use super::labs::Labs;
use super::launch::Launched;
use super::measure::{Figures, figures};
use super::plan::{Case, Experiment, TimedFault};
use super::run::{Account, Group, ask_for_marks, bring_about, run_telling};
use super::traffic::{Flow, flows, placed};
use crate::error::{Doing, Result, bad};
use crate::flow::clock::{now_ns, sleep_until};
use crate::flow::protocol::Amount;
use crate::iproute::{Program as Tool, batch};
use crate::lab::Lab;
use crate::mpi::{Mpi, MpiJob};
use crate::namespace::within;
use crate::plan::{FABRIC_DEVICE, Plan};
use crate::private::PrivateDirectory;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

pub use super::measure::{JobFigures, Measured, Times};

/// The program that measures collective operations.
const COLLECTIVE: &str = include_str!("../../mpi/collective.c");
/// From the start of flows beside a job to the job's: they have filled by then what they fill.
const SETTLING_NS: u64 = 500_000_000;
/// Until an MPI's launcher has started all ranks, on a machine that is busy.
const START: Duration = Duration::from_secs(90);
/// Beyond the time for which a collective operation is to be measured: a single one may take long.
const PATIENCE_S: f64 = 90.0;
/// Has ranks of Open MPI 5 that find nothing to do sleep for 20 us (with the kernel's slack some 70) instead of asking again:
/// a fraction of what a packet takes at the lab's rates. Otherwise a rank that waits keeps its processor for 4 ms from others.
const SLEEPY_RANKS: [&str; 6] = [
    "--mca",
    "threads_pthreads_yield_strategy",
    "nanosleep",
    "--mca",
    "threads_pthreads_nanosleep_time",
    "20000",
];
/// Intervals in which arrivals of flows beside a job are counted.
const BIN_NS: u64 = 20_000_000;

/// What is made once for all runs: compiled programs. Removed when dropped.
pub struct BuildCache {
    directory: PrivateDirectory,
    /// By how the MPI is called and where it is.
    collectives: HashMap<String, PathBuf>,
    /// By case: the lines of the first run that must be the same in all.
    answers: HashMap<String, Vec<String>>,
}

impl BuildCache {
    /// Makes what the experiment's jobs need, and refuses what cannot be run here, before anything is.
    pub fn open(experiment: &Experiment, srd: &Path, name: &str) -> Result<BuildCache> {
        let directory = PrivateDirectory::new(&format!("srd-experiment-{name}"))?;
        let mut build_cache = BuildCache { directory, collectives: HashMap::new(), answers: HashMap::new() };
        for case in &experiment.cases {
            let Some(job) = case.traffic.job() else { continue };
            let launch = launch(job, experiment, srd, crate::mpi::Transport::Tcp);
            launch.launcher()?;
            match job {
                Job::Collective(_) => build_cache.compile(&launch)?,
                Job::Program(program) => check_files(program, experiment)?,
            }
        }
        Ok(build_cache)
    }

    fn compile(&mut self, launch: &MpiJob) -> Result<()> {
        let key = key(launch);
        if self.collectives.contains_key(&key) {
            return Ok(());
        }
        let program = self.directory.path().join(format!("collective-{}", self.collectives.len()));
        let source = self.directory.path().join("collective.c");
        fs::write(&source, COLLECTIVE).doing(|| format!("cannot write {}", source.display()))?;
        let mut compiler = launch.compiler(&source, &program)?;
        let output = compiler.output().doing(|| format!("running {:?}", compiler.get_program()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(bad(format!(
                "the MPI's compiler refuses the program that measures ({}):\n{}",
                output.status,
                said.trim_end()
            )));
        }
        self.collectives.insert(key, program);
        Ok(())
    }

    /// What lines are not those of the first run of that case.
    fn compare(&mut self, case: &str, answers: Vec<String>) -> Option<String> {
        let Some(first) = self.answers.get(case) else {
            self.answers.insert(case.into(), answers);
            return None;
        };
        if first.len() != answers.len() {
            return Some(format!(
                "{} lines that should be the same, {} in the first run",
                answers.len(),
                first.len()
            ));
        }
        let pairs = || first.iter().zip(&answers).filter(|(one, other)| one != other);
        let (one, other) = pairs().next()?;
        let count = pairs().count();
        Some(format!(
            "{count} of {} lines differ from the first run's; there {one:?}, here {other:?}",
            first.len()
        ))
    }
}

fn key(launch: &MpiJob) -> String {
    format!("{:?} {:?}", launch.mpi, launch.prefix)
}

/// A program's files, and the program itself.
fn check_files(program: &Program, experiment: &Experiment) -> Result<()> {
    for input in &program.inputs {
        let file = experiment.directory.join(input);
        if !file.is_file() {
            return Err(bad(format!(
                "there is no file {} (inputs: paths begin where the experiment's file lies)",
                file.display()
            )));
        }
    }
    let name = &program.program[0];
    which::which_in(name, std::env::var_os("PATH"), &experiment.directory).map(drop).map_err(|_| {
        bad(format!(
            "there is no program {name}: install it (`make setup` installs lmp and hpcc), or give its path from where the \
             experiment's file lies"
        ))
    })
}

/// An MPI job without its hosts and its program.
fn launch(job: Job<'_>, experiment: &Experiment, srd: &Path, transport: crate::mpi::Transport) -> MpiJob {
    let given = job.prefix().map(|prefix| experiment.directory.join(prefix));
    let prefix = given.and_then(|prefix| std::path::absolute(prefix).ok());
    // All hosts are on the same few processors: where one waits, others must get on.
    let options = match job.mpi() {
        Mpi::OpenMpi5 => SLEEPY_RANKS.as_slice(),
        Mpi::OpenMpi4 | Mpi::Mpich | Mpi::Intel => &[],
    };
    MpiJob {
        mpi: job.mpi(),
        prefix: prefix.or_else(|| job.mpi().installed(srd)),
        transport,
        ranks: job.ranks(),
        hosts: Vec::new(),
        options: options.iter().map(Into::into).collect(),
        program: Vec::new(),
    }
}

/// A run of a case whose traffic is an MPI job.
pub struct Run<'a> {
    /// All of the experiment.
    pub experiment: &'a Experiment,
    /// The case.
    pub case: &'a Case,
    /// The job.
    pub job: Job<'a>,
    /// The transport's name.
    pub transport: &'a str,
    /// For random choices.
    pub seed: u64,
    /// Where it takes place.
    pub labs: &'a Labs<'a>,
    /// The command srd.
    pub srd: &'a Path,
}

/// What came of it.
pub struct Outcome {
    /// Of the job.
    pub figures: Figures,
    /// Of the flows beside it, in the same lab.
    pub beside: Option<Figures>,
    /// How busy the processors were, when they were busiest.
    pub cpu_percent: f64,
}

impl Run<'_> {
    /// Runs it.
    pub fn perform(&self, build_cache: &mut BuildCache) -> Result<Outcome> {
        let (mpi_transport, congestion) = carrier(self.transport)?;
        let marks = self.transport.ends_with("+ecn");
        let shape = self.experiment.shape(self.case, marks);
        let plan = Plan::new(&shape)?;
        let mut random = SmallRng::seed_from_u64(self.seed);
        let places = self.case.places(&plan, &mut random);
        let hosts: Vec<usize> = self.job.hosts(&plan)?.into_iter().map(|host| places[host]).collect();
        let beside = match &self.case.beside {
            Some(beside) => {
                Some((beside.transport(self.transport)?, placed(flows(&beside.traffic, &plan)?, &places)))
            }
            None => None,
        };
        let group = beside.as_ref().map(|(transport, flows)| Group { transport, flows: flows.clone() });

        let lab = self.labs.up("", &shape)?;
        for &host in &hosts {
            if let Some(congestion) = &congestion {
                choose_congestion_control(&lab, host, congestion)?;
            }
            if marks {
                ask_for_marks(&lab, host)?;
            }
        }
        let mut launch = launch(self.job, self.experiment, self.srd, mpi_transport);
        launch.hosts = hosts.iter().map(|&host| plan.nodes[host].name.clone()).collect();
        let names = launch.hosts.clone();
        let mut worker = Worker::start(self, build_cache, launch, &lab)?;

        let alone = worker.work(&mut |_| ())?;
        let (mut disturbed, mut account, mut late_s) = (None, None, 0.0);
        if group.is_some() || !self.case.faults.is_empty() {
            let interference =
                Interference { lab: &lab, srd: self.srd, group: group.as_ref(), seed: random.random() };
            let (measured, of_flows, late) = interference.meanwhile(&self.case.faults, &mut worker)?;
            (disturbed, account, late_s) = (Some(measured), of_flows, late);
        }
        let mut elsewhere = None;
        if let Some(group) = &group {
            let other = self.labs.up("-b", &shape)?;
            let interference =
                Interference { lab: &other, srd: self.srd, group: Some(group), seed: random.random() };
            elsewhere = Some(interference.meanwhile(&[], &mut worker)?.0);
        }
        let answers = worker.end()?;
        let different =
            answers.into_iter().filter_map(|answers| build_cache.compare(&self.case.name, answers)).next();

        let mut complaints: Vec<String> = different.iter().cloned().collect();
        if late_s > 0.0 {
            complaints.push(format!(
                "the flows beside the job ended {late_s:.1} s before it did: give them more `seconds`"
            ));
        }
        let busiest = [Some(&alone), disturbed.as_ref(), elsewhere.as_ref()].into_iter().flatten();
        Ok(Outcome {
            cpu_percent: busiest.map(|measured| measured.cpu_percent).fold(0.0, f64::max),
            figures: Figures {
                again_percent: None,
                incomplete: 0,
                complaints,
                times_ms: Vec::new(),
                completion: None,
                throughput: None,
                job: Some(JobFigures { hosts: names, alone, disturbed, elsewhere, different }),
            },
            beside: group
                .zip(account)
                .map(|(group, account)| figures(&group.flows, &account, BIN_NS, &shape, None)),
        })
    }
}

/// Which congestion control the kernel's TCP uses on the fabric: by the host's route. (For all sockets the kernel lets other
/// namespaces than the machine's own choose only what everybody may use.)
fn choose_congestion_control(lab: &Lab, host: usize, name: &str) -> Result<()> {
    let namespace = &lab.hosts()[host].namespace;
    let leaf = lab.plan().links[host].upper.address;
    let line = format!("route change default via {leaf} dev {FABRIC_DEVICE} congctl {name}\n");
    within(namespace, || batch(Tool::Ip, namespace, &line))
        .map_err(|error| bad(format!("no TCP with congestion control {name:?}: {error}")))
}

/// What goes on beside a job.
struct Interference<'a> {
    lab: &'a Lab,
    srd: &'a Path,
    group: Option<&'a Group<'a>>,
    seed: u64,
}

impl Interference<'_> {
    /// Has a job work meanwhile; faults begin with it. The answer has what the flows did, and for how many seconds at the end the
    /// job had none beside it.
    fn meanwhile(
        &self,
        faults: &[TimedFault],
        worker: &mut Worker<'_>,
    ) -> Result<(Measured, Option<Account>, f64)> {
        let groups: Vec<Group<'_>> = self.group.iter().map(|group| (*group).clone()).collect();
        let mut random = SmallRng::seed_from_u64(self.seed);
        thread::scope(|scope| {
            let (tell, started) = channel();
            let flowing = (!groups.is_empty()).then(|| {
                let draw = move || random.random();
                let groups = &groups;
                scope.spawn(move || {
                    run_telling(self.lab, self.srd, groups, &[], BIN_NS, draw, move |at_ns| {
                        let _ = tell.send(at_ns);
                    })
                })
            });
            let mut flows_end_ns = u64::MAX;
            if let Some(flowing) = &flowing {
                // It has failed if it ends without having told.
                while !flowing.is_finished() {
                    if let Ok(at_ns) = started.recv_timeout(Duration::from_millis(20)) {
                        flows_end_ns = at_ns + self.longest_ns();
                        sleep_until(at_ns + SETTLING_NS);
                        break;
                    }
                }
            }
            let mut faulty = None;
            let measured = match flowing.as_ref().is_some_and(|flowing| flowing.is_finished()) {
                true => None,
                false => Some(worker.work(&mut |at_ns| {
                    faulty = Some(
                        scope.spawn(move || bring_about(self.lab, faults, at_ns, &AtomicBool::new(false))),
                    );
                })),
            };
            let late_ns = now_ns().saturating_sub(flows_end_ns);
            if measured.as_ref().is_some_and(Result::is_err) {
                // Nobody waits for flows and faults of a run that has failed: without a lab they end at once.
                let _ = Lab::remove(self.lab.name());
            }
            let outcome = flowing.map(|thread| thread.join().expect("no panic"));
            let healed = faulty.map_or(Ok(()), |thread| thread.join().expect("no panic"));
            let measured = match (measured, outcome) {
                (Some(measured), Some(Ok(outcome))) => (measured?, outcome.accounts.into_iter().next()),
                (Some(measured), None) => (measured?, None),
                // The job's failure, if there is one, has brought about that of the flows.
                (Some(Err(error)), _) | (_, Some(Err(error))) => return Err(error),
                (None, _) => unreachable!("flows that end early have failed"),
            };
            healed?;
            Ok((measured.0, measured.1, late_ns as f64 / 1e9))
        })
    }

    fn longest_ns(&self) -> u64 {
        let span = |flow: &Flow| match flow.amount {
            Amount::ForNs(span) => span,
            Amount::Bytes(_) => 0,
        };
        self.group.iter().flat_map(|group| &group.flows).map(span).max().unwrap_or(0)
    }
}

/// A job that can be had work several times.
enum Worker<'a> {
    /// Ranks that wait for orders.
    Collective { job: &'a Collective, ranks: Launched },
    /// A program that is started each time.
    Program {
        job: &'a Program,
        launch: Box<MpiJob>,
        run: &'a Run<'a>,
        lab: &'a Lab,
        directory: PathBuf,
        answers: Vec<Vec<String>>,
    },
}

impl<'a> Worker<'a> {
    fn start(
        run: &'a Run<'a>,
        build_cache: &BuildCache,
        mut launch: MpiJob,
        lab: &'a Lab,
    ) -> Result<Worker<'a>> {
        match run.job {
            Job::Collective(job) => {
                let program = &build_cache.collectives[&key(&launch)];
                launch.program =
                    vec![program.into(), job.operation.name().into(), job.bytes.to_string().into()];
                let what = format!("the {} over {}", job.operation.name(), run.transport);
                let mut command = launch.command(lab, run.srd)?;
                command.current_dir(build_cache.directory.path());
                let mut ranks = Launched::start(what, command)?;
                ranks.wait_for("ready", Instant::now() + START, |_| ())?;
                Ok(Worker::Collective { job, ranks })
            }
            Job::Program(job) => {
                launch.program = job.program.iter().map(Into::into).collect();
                // Whoever gives a path does so from the file.
                if job.program[0].contains('/') {
                    let path = run.experiment.directory.join(&job.program[0]);
                    launch.program[0] =
                        std::path::absolute(path).doing(|| "finding the program".into())?.into();
                }
                let (launch, directory) = (Box::new(launch), build_cache.directory.path().join("job"));
                Ok(Worker::Program { job, launch, run, lab, directory, answers: Vec::new() })
            }
        }
    }

    /// Works once. `begin` learns the moment, in the machine's monotonic nanoseconds.
    fn work(&mut self, begin: &mut dyn FnMut(u64)) -> Result<Measured> {
        match self {
            Worker::Collective { job, ranks } => {
                let (before, at_ns) = (Ticks::now(), now_ns());
                begin(at_ns);
                ranks.tell(&format!("measure {}", job.seconds))?;
                let until = Instant::now() + Duration::from_secs_f64(job.seconds + PATIENCE_S);
                let mut times_us = Vec::new();
                ranks.wait_for("done", until, |line| {
                    times_us.extend(
                        serde_json::from_str::<Part>(line).map(|part| part.times_us).unwrap_or_default(),
                    );
                })?;
                let seconds = (now_ns() - at_ns) as f64 / 1e9;
                let cpu_percent = Ticks::now().busy_percent_since(before);
                match Times::of(times_us) {
                    Some(times) => Ok(Measured { seconds, cpu_percent, operation: Some(times) }),
                    None => Err(bad("the MPI job has measured nothing".into())),
                }
            }
            Worker::Program { job, launch, run, lab, directory, answers } => {
                lay_out(directory, job, run.experiment)?;
                let mut command = launch.command(lab, run.srd)?;
                command.current_dir(&*directory);
                let what = format!("{} over {}", job.program[0], run.transport);
                let until = Instant::now() + Duration::from_secs_f64(job.limit_s);
                let begins = job.begins.as_deref().map(expression).transpose()?;
                let before = Ticks::now();
                let mut at_ns = None;
                let mut start = |moment| {
                    begin(moment);
                    at_ns = Some(moment);
                };
                if begins.is_none() {
                    start(now_ns());
                }
                let mut begins = begins.as_ref();
                let mut process = Launched::start(what.clone(), command)?;
                let mut lines = Vec::new();
                while let Some(line) = process.hear(until)? {
                    if begins.take_if(|begins| begins.is_match(&line.text)).is_some() {
                        start(line.at_ns);
                    }
                    lines.push(line.text);
                }
                let end_ns = process.end(until)?;
                let cpu_percent = Ticks::now().busy_percent_since(before);
                let at_ns = at_ns.ok_or_else(|| {
                    bad(format!(
                        "{what} has printed no line that matches `begins`; its last lines:{}",
                        tail(&lines)
                    ))
                })?;
                if let Some(results) = &job.results {
                    let file = directory.join(results);
                    let text = fs::read_to_string(&file)
                        .doing(|| format!("{what} has left no {}", results.display()))?;
                    lines.extend(text.lines().map(str::to_owned));
                }
                for pattern in &job.expect {
                    let expect = expression(pattern)?;
                    if !lines.iter().any(|line| expect.is_match(line)) {
                        let last = tail(&lines);
                        return Err(bad(format!(
                            "no line that {what} has printed matches {pattern:?}; the last ones:{last}"
                        )));
                    }
                }
                if let Some(same) = job.same.as_deref().map(expression).transpose()? {
                    lines.retain(|line| same.is_match(line));
                    lines.sort(); // which rank speaks first is chance
                    answers.push(lines);
                }
                Ok(Measured {
                    seconds: end_ns.saturating_sub(at_ns) as f64 / 1e9,
                    cpu_percent,
                    operation: None,
                })
            }
        }
    }

    /// Ends it. The answer is the lines that must be the same, of each time.
    fn end(self) -> Result<Vec<Vec<String>>> {
        match self {
            Worker::Collective { mut ranks, .. } => {
                // Not every launcher passes on that its input has ended.
                ranks.tell("end")?;
                ranks.end(Instant::now() + START).map(|_| Vec::new())
            }
            Worker::Program { answers, .. } => Ok(answers),
        }
    }
}

/// A line of the measuring program.
#[derive(serde::Deserialize)]
struct Part {
    times_us: Vec<f64>,
}

/// A program's directory, with its input in it and nothing else.
fn lay_out(directory: &Path, job: &Program, experiment: &Experiment) -> Result<()> {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory).doing(|| format!("cannot make {}", directory.display()))?;
    for input in &job.inputs {
        let from = experiment.directory.join(input);
        let name = from.file_name().ok_or_else(|| bad(format!("{} is no file", from.display())))?;
        fs::copy(&from, directory.join(name)).doing(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

/// The last lines, as an error shows them.
fn tail(lines: &[String]) -> String {
    lines[lines.len().saturating_sub(20)..].iter().map(|line| format!("\n  {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_go_from_the_least_to_the_most() {
        let times = Times::of((1..=1000).rev().map(f64::from).collect()).unwrap();
        assert_eq!((times.count, times.mean_us), (1000, 500.5));
        let ends = (times.percentiles_us[0], times.median_us(), times.p99_us(), times.percentiles_us[100]);
        assert_eq!(ends, (1.0, 501.0, 991.0, 1000.0));
        assert_eq!(Times::of(Vec::new()), None);
        assert_eq!(Times::of(vec![3.0]).unwrap().p99_us(), 3.0);
    }

    #[test]
    fn answers_are_compared_with_those_of_the_first_run() {
        let directory = PrivateDirectory::new("srd-answers").unwrap();
        let mut build_cache = BuildCache { directory, collectives: HashMap::new(), answers: HashMap::new() };
        let lines = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        assert_eq!(build_cache.compare("a", lines(&["1", "2"])), None);
        assert_eq!(build_cache.compare("a", lines(&["1", "2"])), None);
        let told = build_cache.compare("a", lines(&["1", "3"])).unwrap();
        assert!(told.contains("1 of 2 lines") && told.contains("\"3\""), "{told}");
        assert!(build_cache.compare("a", lines(&["1"])).unwrap().contains("1 lines"));
        assert_eq!(build_cache.compare("b", lines(&["1"])), None);
    }
}
