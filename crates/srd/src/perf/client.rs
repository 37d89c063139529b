//! `srd perf client`: measures against a server, SRD and TCP in turn if asked to.

use super::control::{ANSWER, Answer, Control, DEFAULT_PORT, Hello, PROTOCOL, Report, Request, Welcome};
use super::histogram::Histogram;
use super::plan::{Amount, Carrier, Op, Plan, Test};
use super::result::{Measurement, Outcome, Round};
use super::round::Counted;
use super::srd_side::{SrdSide, require_memory};
use super::tcp_side::TcpSide;
use super::watch::{Role, Watch};
use super::{local_options, processor, tcp_retransmissions};
use crate::output;
use anyhow::{Context, bail};
use clap::CommandFactory;
use clap::error::ErrorKind;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  srd perf client nodeb --test latency --vs-tcp            half round trip of 8 bytes, beside TCP's
  srd perf client nodeb --test bandwidth --op write        RDMA writes as fast as they go
  srd perf client nodeb --test msgrate --json | jq .msgs_per_s
  srd perf client nodeb --test bandwidth --check           with every byte compared on arrival

Start `srd perf server` on the other host first. For the least noise give each side a processor of its own (--cpu)
and leave the machines otherwise idle. With --vs-tcp the rounds of both alternate and each figure is the median.";

/// Arguments of `srd perf client`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where `srd perf server` runs: a name or an address
    host: String,
    /// What to measure
    #[arg(long, value_enum, default_value_t = Test::Latency)]
    test: Test,
    /// How the data moves [default: send; write for messages too long to send]
    #[arg(long, value_enum)]
    op: Option<Op>,
    /// Bytes of a message [default: 8; bandwidth: 8192]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    size: Option<u32>,
    /// Messages (latency: round trips) to count in each round
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "seconds")]
    iters: Option<u64>,
    /// Length of each round
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Rounds [default: 1; with --vs-tcp 3 of each]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Messages outstanding [default: latency 1; msgrate 256; bandwidth 512 KiB of them]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16384))]
    window: Option<u32>,
    /// Sleep until something arrives
    #[arg(long)]
    blocking: bool,
    /// Look for arrivals all the time (the default)
    #[arg(long, conflicts_with = "blocking")]
    polling: bool,
    /// Device instances on the server's side, to talk to in turn
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    peers: u16,
    /// Compare every byte that arrives with what was sent
    #[arg(long)]
    check: bool,
    /// Measure the kernel's TCP in the same shape too, alternating, and print the ratio
    #[arg(long)]
    vs_tcp: bool,
    /// Processor to run on, from 0
    #[arg(long)]
    cpu: Option<usize>,
    /// TCP port of the server's control connection
    #[arg(long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Give up when nothing has moved for so many seconds
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    timeout: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.01 to 86400".into()),
    }
}

impl Args {
    fn plan(&self) -> Plan {
        let size = self.size.unwrap_or(Plan::default_size(self.test));
        let usage = |message: &str| -> ! {
            crate::Cli::command().error(ErrorKind::ArgumentConflict, message).exit();
        };
        if self.test == Test::Latency && self.window.is_some_and(|window| window != 1) {
            usage("the latency test has one message outstanding; --window is for bandwidth and msgrate");
        }
        if self.blocking && self.peers > 1 {
            usage("--blocking sleeps on one peer; it cannot be combined with --peers");
        }
        Plan {
            test: self.test,
            op: self.op.unwrap_or(Plan::default_op(size)),
            size,
            window: self
                .window
                .unwrap_or(Plan::default_window(self.test, size))
                .min(self.amount().most_at_once()),
            blocking: self.blocking,
            check: self.check,
            peers: self.peers,
            timeout_ms: (self.timeout * 1e3) as u64,
        }
    }

    fn amount(&self) -> Amount {
        self.iters.map_or(Amount::Time(Duration::from_secs_f64(self.seconds)), Amount::Messages)
    }
}

/// Measures and prints.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = args.plan();
    if let Some(cpu) = args.cpu {
        processor::bind(cpu)?;
    }
    let mut control = Control::connect(&args.host, args.port)?;
    let options = local_options(&control)?;
    let paths = options.paths;
    require_memory(&plan, Role::Client, 1)?;
    let mut side = SrdSide::open(&options, &plan, Role::Client)?;
    introduce(&mut control, &plan, &mut side)?;
    let mtu = side.mtu();

    let amount = args.amount();
    let mut client = Client { control, plan, amount, side, histogram: Histogram::new(), least_share: 1.0 };
    let (mut srd, mut tcp) = (Vec::new(), Vec::new());
    for round in 1..=args.rounds.unwrap_or(if args.vs_tcp { 3 } else { 1 }) {
        let measured = client.srd_round()?.measure(&client.plan, Carrier::Srd, paths, mtu);
        show_progress(round, &measured);
        srd.push(measured);
        if args.vs_tcp {
            let measured = client.tcp_round()?.measure(&client.plan, Carrier::Tcp, 1, mtu);
            show_progress(round, &measured);
            tcp.push(measured);
        }
    }
    client.warn_about_load();
    client.control.part()?;

    let outcome = Outcome::new(&srd, &tcp);
    if args.json {
        output::json(&outcome)?
    } else {
        output::text(&outcome.describe(&client.plan))?
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells the server what is wanted, and learns where its queue pairs are.
fn introduce(control: &mut Control, plan: &Plan, side: &mut SrdSide) -> anyhow::Result<()> {
    control.send(&Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        plan: plan.clone(),
        endpoint: side.endpoint(),
    })?;
    match control.receive(ANSWER)? {
        Welcome::Accepted { endpoints } if endpoints.len() == usize::from(plan.peers) => {
            endpoints.iter().try_for_each(|endpoint| side.add_peer(endpoint))
        }
        Welcome::Accepted { .. } => bail!("{} offers another number of peers than asked for", control.peer()),
        Welcome::Refused { reason } | Welcome::Failed { reason } => bail!("{}: {reason}", control.peer()),
    }
}

/// A side that polls and has less of a processor than this shares it with another program.
const FULL_SHARE: f64 = 0.9;

/// What a round has taken of this process's time and of everybody's.
struct Spent {
    cpu: Duration,
    wall: Duration,
}

struct Client {
    control: Control,
    plan: Plan,
    amount: Amount,
    side: SrdSide,
    histogram: Histogram,
    /// Least share of a processor that a side has had in a round.
    least_share: f64,
}

/// While the server's report is waited for, the side is polled this often.
const NAP: Duration = Duration::from_millis(1);

impl Client {
    fn srd_round(&mut self) -> anyhow::Result<Round> {
        self.begin(Carrier::Srd)?;
        let resent_before = self.side.retransmissions();
        let (cpu_before, began) = (processor::time_used(), Instant::now());
        let mut watch = Watch::new(&mut self.control, Role::Client, self.plan.timeout());
        let counted = match self.plan.test {
            Test::Latency => self.side.ping(self.amount, &mut self.histogram, &mut watch),
            _ => self.side.stream(self.amount, &mut self.histogram, &mut watch),
        }?;
        let spent = Spent { cpu: processor::time_used() - cpu_before, wall: began.elapsed() };
        self.side.finish(&mut watch)?;
        let report = self.end()?;
        if !self.plan.is_one_sided() {
            self.compare(&counted, &report)?;
        }
        let resent = self.side.retransmissions() - resent_before;
        Ok(self.round(counted, spent, resent, &report))
    }

    fn tcp_round(&mut self) -> anyhow::Result<Round> {
        let port = self.begin(Carrier::Tcp)?.context("the server names no TCP port")?;
        let mut side = TcpSide::connect(self.control.peer_address()?, port, &self.plan, ANSWER)?;
        let resent_before = tcp_retransmissions();
        let (cpu_before, began) = (processor::time_used(), Instant::now());
        let mut watch = Watch::new(&mut self.control, Role::Client, self.plan.timeout());
        let counted = side.run(self.amount, &mut self.histogram, &mut watch)?;
        let spent = Spent { cpu: processor::time_used() - cpu_before, wall: began.elapsed() };
        let report = self.end()?;
        if self.plan.op != Op::Read && report.messages != counted.all_messages {
            bail!("{} messages went out over TCP, {} arrived", counted.all_messages, report.messages);
        }
        let resent = tcp_retransmissions().saturating_sub(resent_before);
        Ok(self.round(counted, spent, resent, &report))
    }

    fn begin(&mut self, carrier: Carrier) -> anyhow::Result<Option<u16>> {
        self.histogram.clear();
        self.control.send(&Request::Round { carrier })?;
        match self.control.receive(ANSWER)? {
            Answer::Ready { tcp_port } => Ok(tcp_port),
            Answer::Failed { reason } => bail!("{}: {reason}", self.control.peer()),
            Answer::Report(_) => bail!("{} reports a round that has not begun", self.control.peer()),
        }
    }

    fn end(&mut self) -> anyhow::Result<Report> {
        self.control.send(&Request::End)?;
        // The server may wait for our last ACK, which where nobody else moves packets leaves with a poll.
        let (control, side) = (&mut self.control, &mut self.side);
        match control.receive_meanwhile(ANSWER, NAP, || side.poll())? {
            Answer::Report(report) => Ok(report),
            Answer::Failed { reason } => bail!("{}: {reason}", self.control.peer()),
            Answer::Ready { .. } => bail!("{} begins a round that has ended", self.control.peer()),
        }
    }

    /// Everything must have arrived, and only once.
    fn compare(&self, counted: &Counted, report: &Report) -> anyhow::Result<()> {
        if report.messages != counted.all_messages {
            bail!("{} messages were acknowledged, {} arrived", counted.all_messages, report.messages);
        }
        if self.plan.check && self.plan.size >= 8 {
            let expected = (0..counted.all_messages).fold(0u64, u64::wrapping_add);
            if report.numbers != expected {
                bail!("as many messages arrived as were sent, but some twice and some not at all");
            }
        }
        Ok(())
    }

    fn round(&mut self, counted: Counted, spent: Spent, resent: u64, report: &Report) -> Round {
        let cpu_us = spent.cpu.as_secs_f64() * 1e6;
        let least = cpu_us.min(report.cpu_us) / (spent.wall.as_secs_f64() * 1e6);
        self.least_share = self.least_share.min(least);
        Round {
            counted,
            half_rtt_us: self.histogram.half_in_microseconds().filter(|_| self.plan.test == Test::Latency),
            cpu_us: cpu_us + report.cpu_us,
            retransmissions: resent + report.retransmissions,
        }
    }

    /// One who polls without end and yet did not have the processor all the time shared it with others.
    fn warn_about_load(&self) {
        if !self.plan.blocking && self.least_share < FULL_SHARE {
            eprintln!(
                "srd: a side had only {:.0} % of a processor: others were running, and the figures tell more of them \
                 than of the transports; measure on idle hosts, each side on a processor of its own (--cpu)",
                100.0 * self.least_share
            );
        }
    }
}

/// A line per round for a person who waits.
fn show_progress(round: u32, measured: &Measurement) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let figure = match measured.half_rtt_us {
        Some(half) => format!("{:.2} us", half.p50),
        None => format!("{:.2} Gb/s, {:.0} messages/s", measured.gbps, measured.msgs_per_s),
    };
    eprintln!("round {round}: {:?} {figure}", measured.transport);
}
