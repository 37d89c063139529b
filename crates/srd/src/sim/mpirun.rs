//! `srd sim mpirun`: an MPI program, unchanged, on the hosts of a simulated fabric.

use crate::libraries::Libraries;
use crate::mpi;
use crate::sim::batch::INTERRUPTED;
use crate::sim::guard;
use crate::sim::jobs::{self, Ranks};
use crate::sim::recording::{Cables, command_line};
use crate::sim::rivals::Rival;
use crate::sim::room::Room;
use anyhow::{Context, bail};
use clap::builder::Resettable;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use srd_lab::{Mpi, MpiJob, Transport};
use srd_sim::apps::Jobs;
use srd_sim::input::Scenario;
use srd_sim::record::{self, RanksRecorder, RanksRecording, RanksRun};
use srd_sim::run::{End, Launcher, Lived, Onlooker, Order, of_processes, run_processes};
use srd_virtual::Compute;
use srd_virtual::world::Manner;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const EXAMPLES: &str = "\
Examples:
  srd sim mpirun -n 2 --fabric scenarios/fabrics/leaf-spine-64.toml -- ./ping_pong
  srd sim mpirun -n 16 --fabric fabric.toml --compute measured -- lmp -in in.lj
  srd sim mpirun -n 16 --fabric fabric.toml --transport srd,tcp,roce,nscc -- ./program
  srd sim mpirun -n 64 --per-host 8 --fabric fabric.toml -- ./program
  srd sim mpirun -n 4 --fabric fabric.toml --place 0,4,8,12 --mpi mpich --json outcome.json -- ./program
  srd sim mpirun -n 4 --fabric fabric.toml --place 0,4,8,12 -- ./program --beside -n 8 --place 1,2,3,5,6,7,9,10 -- ./other

--beside, behind a program's arguments, begins another job on the same fabric, with its own -n, --place or --per-host, MPI's launcher
and MPI_COMM_WORLD; all else is common. Without --place it is on the hosts behind those of the jobs before it. All begin together,
and the run is over when the first is at its end: those that go on are ended then. One that fails before ends the run.

The program sees the simulation's time; what it computes takes none unless --compute says so. docs/VIRTUAL.md.

Exit code: 0 if the program ended well (and those beside it that came to their end), that of the MPI's launcher otherwise; 124 if the file's end_us came before the program's end,
130 after a signal, 1 if anything else went wrong.";

/// Arguments of `srd sim mpirun`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, mut_arg("n", |n| n.required(true).default_value(Resettable::Reset).help("Ranks")))]
pub struct OfMpi {
    #[command(flatten)]
    common: Args,
    #[command(flatten)]
    stack: mpi::Choice,
}

/// Those that other programs have, too.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    pub ranks: Ranks,
    /// The fabric: a scenario's file, without traffic (docs/SCENARIOS.md)
    #[arg(long, value_name = "FILE")]
    fabric: PathBuf,
    /// Change a value of the file: fabric.host_gbps=400 (may be given again)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Run it over each of these, one after the other, in the same fabric [default: what the file says]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    transport: Vec<Rival>,
    /// What computing costs: zero; fixed:US, so many microseconds for each call of the provider; measured, the thread's processor time;
    /// measured:SCALE, that times SCALE; recorded:FILE, before each call of MPI what was measured then, from a calls.csv of --out
    #[arg(long, value_name = "HOW", default_value = "zero")]
    compute: Cost,
    /// The program reads the processor's counter of time by itself (rdtsc): let it see the simulation's, which takes longer. Always so with
    /// Intel MPI
    #[arg(long)]
    rdtsc: bool,
    /// Write the outcome as JSON into this file: standard output is the program's
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    cables: Cables,
    /// Write the outcome, the calls of MPI of each rank, a timeline of them and a page into this directory; over several transports, into
    /// one of the transport's name in it (docs/OUTPUTS.md)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write a trace, too: what befell each message of SRD's and its packets, and why calls were late; `srd trace` reads it
    #[arg(long, requires = "out")]
    trace: bool,
    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// What computing costs.
#[derive(Clone, Debug)]
enum Cost {
    Now(Compute),
    /// As in the run that this file tells of.
    Recorded(PathBuf),
}

impl FromStr for Cost {
    type Err = String;

    fn from_str(text: &str) -> Result<Cost, String> {
        let number = |text: &str, most: f64| match text.parse::<f64>() {
            Ok(number) if (0.0..=most).contains(&number) => Ok(number * 1000.0),
            _ => Err(format!("{text:?} is no number from 0 to {most}")),
        };
        Ok(Cost::Now(match text.split_once(':') {
            None if text == "zero" => Compute::default(),
            None if text == "measured" => Compute { measured: 1000, ..Compute::default() },
            Some(("fixed", us)) => Compute { per_call: number(us, 1e6)? as u64, ..Compute::default() },
            Some(("measured", scale)) => {
                Compute { measured: number(scale, 1e4)? as u64, ..Compute::default() }
            }
            Some(("recorded", file)) if !file.is_empty() => return Ok(Cost::Recorded(file.into())),
            _ => return Err("write zero, fixed:US, measured, measured:SCALE or recorded:FILE".into()),
        }))
    }
}

/// Code of a run that came to the end that its scenario names, as timeout(1) has it.
const OUT_OF_TIME: u8 = 124;

/// What starts the processes of a job, each by way of these words in front of its command.
pub type Starter<'a> = &'a dyn Fn(usize, &[OsString], &Room) -> anyhow::Result<Command>;

/// The launchers, with their programs.
struct Started<'a> {
    starter: Starter<'a>,
    srd: PathBuf,
    jobs: &'a Jobs,
    room: Room,
    /// Of each job, once it is started.
    children: Vec<Child>,
    stop: Arc<AtomicBool>,
}

impl Started<'_> {
    fn start_job(&self, job: usize, first: u32, world: &Path) -> io::Result<Child> {
        let words = ["sim", "join", "--first", &first.to_string(), "--world"].map(OsString::from);
        let words = [&[self.srd.clone().into()], &words[..], &[world.into(), "--".into()]].concat();
        let launcher = (self.starter)(job, &words, &self.room).map_err(io::Error::other)?;
        let mut guard = Command::new(&self.srd);
        guard.args(["sim", "guard", "--simulator", &std::process::id().to_string(), "--directory"]);
        guard.arg(self.room.of_job(job)?).arg("--").arg(launcher.get_program()).args(launcher.get_args());
        guard.envs(launcher.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if job > 0 {
            guard.stdin(Stdio::null());
        }
        guard.spawn()
    }
}

impl Launcher for Started<'_> {
    fn start(&mut self, world: &Path) -> io::Result<()> {
        for (job, ranks) in self.jobs.all().enumerate() {
            self.children.push(self.start_job(job, ranks.start, world)?);
        }
        Ok(())
    }

    fn ended(&mut self, job: usize) -> io::Result<Option<i32>> {
        Ok(self.children[job].try_wait()?.map(|status| status.code().unwrap_or(1)))
    }

    fn end(&mut self, job: usize) -> io::Result<()> {
        // Its guard ends what descends from it.
        kill(Pid::from_raw(self.children[job].id() as i32), Signal::SIGTERM)?;
        self.children[job].wait()?;
        Ok(())
    }

    fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    fn tell(&self) -> fn(&str) {
        |what| eprintln!("srd: {what}")
    }
}

/// A run over one transport.
struct Run {
    /// What was asked for, and as the command line has it.
    over: Option<Rival>,
    name: Option<String>,
    lived: Lived,
}

impl Run {
    /// As the page has it.
    fn told<'a>(&'a self, scenario: &'a Scenario) -> RanksRun<'a> {
        RanksRun { name: self.name.as_deref(), scenario, lived: &self.lived }
    }
}

impl Args {
    /// Takes a run down, if that is wanted.
    fn recorder(&self, over: Option<Rival>) -> anyhow::Result<Option<RanksRecorder>> {
        let Some(out) = &self.out else { return Ok(None) };
        let dir = over.filter(|_| self.transport.len() > 1).map_or(out.clone(), |over| out.join(over.name()));
        let recording = RanksRecording {
            dir,
            pcap: self.cables.pcap.clone(),
            snap_len: self.cables.snap_len,
            trace: self.trace,
        };
        Ok(Some(RanksRecorder::new(recording)?))
    }
}

/// Runs it.
pub fn run(of_mpi: &OfMpi) -> anyhow::Result<ExitCode> {
    let OfMpi { common: args, stack } = of_mpi;
    let srd = std::env::current_exe().context("the path of this program is unknown")?;
    let jobs = jobs::read(&args.ranks, &args.command)?;
    let prefix = stack.prefix(&srd)?;
    let of_mpi = |job: &jobs::Job| MpiJob {
        mpi: stack.mpi(),
        prefix: prefix.clone(),
        transport: Transport::Srd,
        ranks: job.hosts.len(),
        hosts: Vec::new(),
        options: stack.options.clone(),
        program: job.command.clone(),
    };
    let mpi_jobs: Vec<MpiJob> = jobs.iter().map(of_mpi).collect();
    let check = || {
        mpi_jobs.iter().try_for_each(|job| {
            job.launcher()?;
            job.check_program()?;
            Ok(())
        })
    };
    let starter = |job: usize, words: &[OsString], room: &Room| {
        let mut launcher = mpi_jobs[job].command_here(words, &room.of_job(job)?, &room.agent())?;
        // Ranks of Open MPI 5 send each other the name that their launcher has, which its process's number is a part of otherwise: of no fixed length.
        let name = format!("srd-{:07}-{job:04}", std::process::id());
        launcher.envs([("PMIX_SERVER_NSPACE", name.as_str()), ("PMIX_SERVER_RANK", "0")]);
        Ok(launcher)
    };
    let hosts: Vec<Vec<u32>> = jobs.into_iter().map(|job| job.hosts).collect();
    let covers_counter = args.rdtsc || stack.mpi() == Mpi::Intel;
    simulate(args, &hosts, Manner { covers_counter, mpi: true, ..Manner::default() }, &check, &starter)
}

/// The same for so many processes of no MPI.
pub fn run_without_mpi(args: &Args, n: u32, starter: Starter<'_>) -> anyhow::Result<ExitCode> {
    let hosts = Ranks { n, ..args.ranks.clone() }.hosts(0)?;
    let manner = Manner { covers_counter: args.rdtsc, ..Manner::default() };
    simulate(args, &[hosts], manner, &|| Ok(()), starter)
}

/// `hosts`: of each rank of each job.
fn simulate(
    args: &Args,
    hosts: &[Vec<u32>],
    manner: Manner,
    check: &dyn Fn() -> anyhow::Result<()>,
    starter: Starter<'_>,
) -> anyhow::Result<ExitCode> {
    let srd = std::env::current_exe().context("the path of this program is unknown")?;
    Libraries::Provider.locate()?;
    Libraries::Clock.locate()?;
    let over: Vec<Option<Rival>> = match args.transport.is_empty() {
        true => vec![None],
        false => args.transport.iter().copied().map(Some).collect(),
    };
    if let Some((name, _)) =
        args.transport.iter().zip(1..).find(|(rival, rest)| args.transport[*rest..].contains(rival))
    {
        bail!("--transport names {} twice: name it once", name.name());
    }
    let jobs = Jobs::of(hosts.iter().map(|hosts| hosts.len() as u32).collect());
    let hosts = hosts.concat();
    // All of them, before anything runs.
    let scenarios =
        over.iter().map(|over| scenario(args, &hosts, *over)).collect::<anyhow::Result<Vec<_>>>()?;
    scenarios.iter().try_for_each(|scenario| args.cables.check(scenario))?;
    let only_srd = args.trace || !args.cables.pcap.is_empty();
    if only_srd && scenarios.iter().any(|scenario| !scenario.settings.ranks_speak_srd()) {
        bail!(
            "--pcap and --trace look at packets of SRD, which are the program's own: leave out the other transports"
        );
    }
    let (compute, repeats) = match &args.compute {
        Cost::Now(compute) => (*compute, Vec::new()),
        Cost::Recorded(file) => (Compute::default(), record::read_calls(file, &jobs)?),
    };
    let manner = Manner { compute, keeps_calls: args.out.is_some(), ..manner };
    check()?;
    let json = args.json.as_deref().map(open).transpose()?;
    // Whatever its launcher leaves behind is this process's to end.
    nix::sys::prctl::set_child_subreaper(true).context("cannot become the parent of orphans")?;
    let room = Room::make().context("cannot make a directory for this run")?;
    let stop = guard::end_on_signal()?;
    let mut started = Started { starter, srd, jobs: &jobs, room, children: Vec::new(), stop };
    let recorders = over.iter().map(|over| args.recorder(*over)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut runs = Vec::new();
    for ((over, scenario), mut recorder) in over.into_iter().zip(&scenarios).zip(recorders) {
        if started.stop.load(Ordering::Relaxed) {
            break;
        }
        let onlooker = recorder.as_mut().map(|it| it as &mut dyn Onlooker);
        let order = Order { scenario, jobs: &jobs, manner, repeats: &repeats };
        let lived = run_processes(order, onlooker, &mut started).context("the processes could not be run")?;
        for mut child in started.children.drain(..) {
            let _ = child.wait();
        }
        let run = Run { over, name: over.map(Rival::name), lived };
        tell(&run);
        if let Some(recorder) = recorder {
            let cannot = format!("cannot write into {}", recorder.dir().display());
            for note in recorder.finish(scenario, &run.lived).context(cannot)? {
                eprintln!("srd: {note}");
            }
        }
        runs.push(run);
    }
    if let Some(dir) = &args.out {
        let runs: Vec<_> = runs.iter().zip(&scenarios).map(|(run, scenario)| run.told(scenario)).collect();
        record::write_ranks_page(dir, &runs, &command_line())
            .with_context(|| format!("cannot write into {}", dir.display()))?;
    }
    if let Some(mut file) = json {
        let answers = runs.iter().map(answer).collect::<anyhow::Result<Vec<_>>>()?;
        let text = match (&args.transport[..], &answers[..]) {
            ([], [answer]) => answer.to_string(),
            _ => serde_json::json!({ "runs": answers }).to_string(),
        };
        write(&mut file, text + "\n").context("cannot write the file of --json")?;
    }
    if started.stop.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let wrong = runs.iter().map(|run| run.lived.end).find(|end| *end != End::Launcher(0));
    Ok(wrong.map_or(ExitCode::SUCCESS, |end| match end {
        End::Launcher(code) => ExitCode::from(code.clamp(0, 255) as u8),
        End::Beside(code) => ExitCode::from(code.clamp(1, 255) as u8),
        End::OutOfTime => ExitCode::from(OUT_OF_TIME),
        End::Interrupted => ExitCode::from(INTERRUPTED),
        End::Bypassed | End::GaveUp | End::Standstill => ExitCode::FAILURE,
    }))
}

/// Opens the file of `--json` before anything runs. What is in it stays until there is something to write.
fn open(file: &Path) -> anyhow::Result<File> {
    File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(file)
        .with_context(|| format!("cannot write {}", file.display()))
}

fn write(file: &mut File, text: String) -> io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?; // it may be a pipe
    }
    file.write_all(text.as_bytes())
}

/// What became of a run, on standard error: standard output is the program's.
fn tell(run: &Run) {
    let over = run.over.map_or_else(String::new, |over| format!("{}: ", over.name()));
    for complaint in run.lived.gave_up.iter().chain(&run.lived.complaints) {
        eprintln!("srd: {over}{complaint}");
    }
    let outcome = &run.lived.outcome;
    eprintln!(
        "srd: {over}{}, {:.3} ms simulated in {:.1} s: {} packets with data, {} of them again, {} without",
        run.lived.jobs.summary(),
        outcome.sim_us / 1000.0,
        outcome.cost.wall_s,
        outcome.packets_new + outcome.packets_rtx,
        outcome.packets_rtx,
        outcome.packets_bare,
    );
}

/// Its outcome for others to read.
fn answer(run: &Run) -> anyhow::Result<serde_json::Value> {
    let mut answer = serde_json::to_value(&run.lived.outcome)?;
    // How often processes were asked depends on how long their launcher took.
    answer["cost"]["events"] = answer.as_object_mut().and_then(|it| it.remove("events")).unwrap_or_default();
    if let Some(over) = run.over {
        answer["over"] = over.name().into();
    }
    let (ended_by, code) = match run.lived.end {
        End::Launcher(code) => ("launcher", Some(code)),
        End::Bypassed => ("launcher", Some(0)),
        End::Beside(code) => ("beside", Some(code)),
        End::Interrupted => ("signal", None),
        End::OutOfTime => ("end_us", None),
        End::GaveUp => ("transport", None),
        End::Standstill => ("standstill", None),
    };
    answer["ended_by"] = ended_by.into();
    answer["code"] = code.into();
    answer["gave_up"] = run.lived.gave_up.clone().into();
    Ok(answer)
}

/// The fabric, with the transport that is asked for.
fn scenario(args: &Args, hosts: &[u32], over: Option<Rival>) -> anyhow::Result<Scenario> {
    let name = args.fabric.display().to_string();
    let of_rival = over.into_iter().flat_map(Rival::sets).map(String::from);
    let sets: Vec<String> = of_rival.chain(args.sets.iter().cloned()).collect();
    let scenario = Scenario::load_for_processes(&args.fabric, &sets, of_processes(hosts))?;
    let most = scenario.topology.hosts;
    if let Some(host) = hosts.iter().find(|host| **host >= most) {
        bail!(
            "{name} has {most} hosts, h0 to h{}, and a rank is to run on h{host}: take a larger fabric, fewer ranks, or more of them on a host \
             (--per-host)",
            most - 1
        );
    }
    for note in &scenario.notes {
        eprintln!("srd: {note}");
    }
    Ok(scenario)
}
