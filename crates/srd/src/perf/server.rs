//! `srd perf server`: waits for clients and plays the other side, one client at a time.

use super::control::{
    ANSWER, Answer, Control, DEFAULT_PORT, Endpoint, Hello, PROTOCOL, Report, Request, Welcome,
};
use super::plan::{Carrier, Plan};
use super::round::Arrived;
use super::srd_side::{SrdSide, require_memory};
use super::tcp_side::TcpSide;
use super::watch::{Role, Watch};
use super::{local_options, processor, tcp_retransmissions};
use crate::doctor::responder::Responder;
use crate::output;
use anyhow::{Context, bail};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

const EXAMPLES: &str = "\
Examples:
  srd perf server                      wait for clients on TCP port 17407 until interrupted
  srd perf server --cpu 1 --once       on processor 1; end after one client
  SRD_KEY_FILE=key srd perf server     packets sealed with a key that the client has too

It also answers the probes of `srd doctor`.";

/// Arguments of `srd perf server`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// TCP port of the control connection; 0 takes any free one
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Processor to run on, from 0
    #[arg(long)]
    cpu: Option<usize>,
    /// End after one client, whatever becomes of it
    #[arg(long)]
    once: bool,
}

/// Serves until interrupted.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(cpu) = args.cpu {
        processor::bind(cpu)?;
    }
    let listener = listen(args.port)?;
    let port = listener.local_addr()?.port();
    // Without it only `srd doctor` suffers, and another responder on the port does as well.
    if let Ok(responder) = Responder::bind(port) {
        std::thread::spawn(move || responder.run());
    }
    output::text(&format!("srd perf server: ready on port {port}\n"))?;

    // Whoever holds it has the server to itself: two measurements at once would measure each other.
    let turn = Arc::new(Mutex::new(()));
    loop {
        let (stream, from) = listener.accept().context("accepting connections")?;
        let control = Control::new(stream, "the client".into())?;
        let from = from.ip().to_canonical();
        let turn = Arc::clone(&turn);
        let once = args.once;
        let conversation = std::thread::spawn(move || converse(control, from, &turn));
        if once && let Some(end) = conversation.join().expect("a conversation does not panic") {
            return Ok(end);
        }
    }
}

/// Listens for both IP versions where the host has both.
fn listen(port: u16) -> anyhow::Result<TcpListener> {
    let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let four = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    TcpListener::bind(both).or_else(|_| TcpListener::bind(four)).with_context(|| {
        format!(
            "cannot listen on TCP port {port}; does another `srd perf server` run? (--port chooses another)"
        )
    })
}

/// One client from its first word to its last. How that ended, unless it was refused.
fn converse(mut control: Control, from: IpAddr, turn: &Mutex<()>) -> Option<ExitCode> {
    let served = greet(&mut control).and_then(|hello| match turn.try_lock() {
        Ok(_turn) => {
            let mut sides = accept(&mut control, &hello)?;
            Ok(serve(&mut control, &hello.plan, &mut sides))
        }
        Err(_) => refuse(&mut control, "another client is being served; try again when it has finished"),
    });
    let refused = served.is_err();
    let Err(error) = served.and_then(|served| served) else { return Some(ExitCode::SUCCESS) };
    eprintln!("srd perf server: {from}: {error:#}");
    // The client may be waiting for an answer; if it is gone, there is nobody to tell.
    let _ = control.send(&Answer::Failed { reason: format!("{error:#}") });
    (!refused).then_some(ExitCode::FAILURE)
}

fn greet(control: &mut Control) -> anyhow::Result<Hello> {
    let hello: serde_json::Value = control.receive(ANSWER)?;
    let (theirs, version) = (&hello["protocol"], hello["version"].as_str().unwrap_or("unknown"));
    if *theirs != PROTOCOL {
        return refuse(
            control,
            &format!(
                "srd {} here speaks version {PROTOCOL} of the measuring protocol, srd {version} there version {theirs}; \
                 use the same srd on both hosts",
                env!("CARGO_PKG_VERSION")
            ),
        );
    }
    serde_json::from_value(hello).context("the client's first line makes no sense")
}

/// Always an error, for the server's own record.
fn refuse<T>(control: &mut Control, reason: &str) -> anyhow::Result<T> {
    control.send(&Welcome::Refused { reason: reason.to_owned() })?;
    bail!("refused: {reason}")
}

fn accept(control: &mut Control, hello: &Hello) -> anyhow::Result<Vec<SrdSide>> {
    match open(control, &hello.plan, &hello.endpoint) {
        Ok(sides) => {
            let endpoints = sides.iter().map(SrdSide::endpoint).collect();
            control.send(&Welcome::Accepted { endpoints })?;
            Ok(sides)
        }
        Err(error) => refuse(control, &format!("{error:#}")),
    }
}

fn serve(control: &mut Control, plan: &Plan, sides: &mut [SrdSide]) -> anyhow::Result<()> {
    loop {
        let report = match control.receive(plan.timeout().max(ANSWER))? {
            Request::Round { carrier: Carrier::Srd } => srd_round(control, plan, sides)?,
            Request::Round { carrier: Carrier::Tcp } => tcp_round(control, plan)?,
            Request::End => bail!("the client ends a round that has not begun"),
            Request::Bye => return Ok(()),
        };
        control.send(&Answer::Report(report))?;
    }
}

fn open(control: &Control, plan: &Plan, client: &Endpoint) -> anyhow::Result<Vec<SrdSide>> {
    let options = local_options(control)?;
    require_memory(plan, Role::Server, plan.peers)?;
    (0..plan.peers)
        .map(|_| {
            let mut side = SrdSide::open(&options, plan, Role::Server)?;
            side.add_peer(client)?;
            Ok(side)
        })
        .collect()
}

fn srd_round(control: &mut Control, plan: &Plan, sides: &mut [SrdSide]) -> anyhow::Result<Report> {
    let resent = |sides: &[SrdSide]| sides.iter().map(SrdSide::retransmissions).sum::<u64>();
    let resent_before = resent(sides);
    control.send(&Answer::Ready { tcp_port: None })?;
    let cpu_before = processor::time_used();
    let mut watch = Watch::new(control, Role::Server, plan.timeout());
    'round: loop {
        for side in &mut *sides {
            if side.serve(&mut watch)?.is_none() {
                break 'round;
            }
        }
    }
    let cpu = processor::time_used() - cpu_before;
    let mut total = Arrived::default();
    for side in &mut *sides {
        let arrived = side.finish(&mut watch)?;
        total.messages += arrived.messages;
        total.numbers = total.numbers.wrapping_add(arrived.numbers);
    }
    Ok(Report {
        messages: total.messages,
        numbers: total.numbers,
        cpu_us: cpu.as_secs_f64() * 1e6,
        retransmissions: resent(sides) - resent_before,
    })
}

fn tcp_round(control: &mut Control, plan: &Plan) -> anyhow::Result<Report> {
    let listener = TcpListener::bind((control.local_address()?, 0))?;
    control.send(&Answer::Ready { tcp_port: Some(listener.local_addr()?.port()) })?;
    let mut side = TcpSide::accept(&listener, plan, ANSWER)?;
    let resent_before = tcp_retransmissions();
    let cpu_before = processor::time_used();
    let mut watch = Watch::new(control, Role::Server, plan.timeout());
    let arrived = side.serve(&mut watch)?;
    let cpu = processor::time_used() - cpu_before;
    // The client waits for the end of our direction before it ends the round.
    drop(side);
    watch.wait_for_end()?;
    Ok(Report {
        messages: arrived.messages,
        numbers: arrived.numbers,
        cpu_us: cpu.as_secs_f64() * 1e6,
        retransmissions: tcp_retransmissions().saturating_sub(resent_before),
    })
}
