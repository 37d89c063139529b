//! `srd doctor`: what would hold SRD back on this host, or between it and another, and how to mend it.

mod bypass;
mod capabilities;
mod device;
mod finding;
mod firewall;
mod hops;
mod loaded;
mod path_mtu;
mod paths;
mod ports;
mod probe;
mod programs;
mod provider;
pub mod responder;
mod system;

use crate::output;
use crate::perf::control::DEFAULT_PORT;
use anyhow::Context;
use clap::CommandFactory;
use clap::error::ErrorKind;
use finding::{Finding, Level};
use probe::Prober;
use programs::Stranger;
use srd_net::Options;
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  srd doctor                   this host alone
  srd doctor --serve           answer another host's probes until interrupted; then there:
  srd doctor nodeb             this host, and what lies between it and nodeb
  srd doctor nodeb --json | jq '.findings[] | select(.level == \"fail\")'

Each finding is ok, warn (it works, but not as well as it could), fail (it will not work), or skip (it could not be
checked, and why). `srd perf server` answers probes too.

Exit code: 1 if anything failed, otherwise 0.";

/// Arguments of `srd doctor`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Another host, to look at what lies between
    host: Option<String>,
    /// Answer the probes of another host's `srd doctor`
    #[arg(long, conflicts_with_all = ["host", "json"])]
    serve: bool,
    /// UDP port of the probes; 0 with --serve takes any free one
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(serde::Serialize)]
struct Diagnosis {
    host: Option<String>,
    worst: Level,
    findings: Vec<Finding>,
}

/// Examines and prints.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.serve {
        let responder = responder::Responder::bind(args.port)?;
        output::text(&format!("srd doctor: answering probes on UDP port {}\n", responder.port()))?;
        return responder.run();
    }
    if args.port == 0 {
        crate::Cli::command()
            .error(
                ErrorKind::ValueValidation,
                "--port 0 is for --serve alone, which takes any free port; here name the one that it has printed",
            )
            .exit();
    }
    let mut findings = Vec::new();
    let mut refused = None;
    let options = match Options::from_env() {
        Ok((options, warnings)) => {
            findings.extend(warnings.iter().map(|warning| {
                Finding::warn("options", warning.to_string()).mend(format!("unset {}", warning.name))
            }));
            options
        }
        Err(error) => {
            let mend = format!("unset {}", error.variable);
            findings.push(Finding::fail("options", error.to_string()).mend(mend));
            refused = Some(error.variable);
            Options::default()
        }
    };
    findings.extend(system::examine(&options, refused));
    findings.extend(firewall::examine(options.port_base));
    findings.extend(bypass::examine());
    findings.extend(provider::examine(&options));
    findings.extend(loaded::examine());
    if let Some(host) = &args.host {
        findings.extend(towards(host, args.port, &options)?);
    }

    let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
    let diagnosis = Diagnosis { host: args.host.clone(), worst, findings };
    if args.json {
        output::json(&diagnosis)?;
    } else {
        output::text(&finding::describe(&diagnosis.findings))?;
    }
    Ok(if worst == Level::Fail { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What lies between here and `host`.
fn towards(host: &str, port: u16, options: &Options) -> anyhow::Result<Vec<Finding>> {
    let to: SocketAddr = (host, port)
        .to_socket_addrs()
        .with_context(|| format!("{host} has no address"))?
        .min_by_key(|address| address.is_ipv6())
        .with_context(|| format!("{host} has no address"))?;
    let to = SocketAddr::new(to.ip().to_canonical(), port);
    let mut findings = Vec::new();
    match system::examine_route(options, host, to) {
        Ok(finding) => findings.push(finding),
        Err(error) => {
            findings
                .push(Finding::fail("route", format!("there is no way to {host}: {error}")).mend("ip route"));
            return Ok(findings);
        }
    }
    show_progress("looking for SRD programs there");
    let stranger = Stranger::open(to)?;
    let programs = stranger.find(to.ip(), options.port_base)?;
    if !programs.is_empty() {
        findings.push(programs::describe(to.ip(), &programs, options.key_file.is_some()));
    }
    let Some(mut prober) = Prober::open(to)? else {
        if let Some(&program) = programs.first() {
            show_progress("looking for the longest packet that passes");
            findings.push(path_mtu::examine_one_way(&stranger, to, program, options)?);
        }
        findings.push(unanswered(host, port, !programs.is_empty()));
        return Ok(findings);
    };
    show_progress("trying SRD's ports there");
    findings.extend(ports::examine(&mut prober, options.port_base)?);
    show_progress("looking for the longest packet that passes");
    findings.push(path_mtu::examine(&mut prober, options)?);
    show_progress("probing from every source port");
    findings.extend(paths::examine(to, options.paths)?);
    show_progress("looking for the routers on the way");
    findings.extend(hops::examine(to, options.paths)?);
    Ok(findings)
}

/// Nobody answers the doctor's probes there; perhaps SRD programs did what they could.
fn unanswered(host: &str, port: u16, programs: bool) -> Finding {
    let unchecked = if programs { "its other ports" } else { "its ports, the path MTU" };
    Finding::skip(
        "probes",
        format!(
            "{host} does not answer on UDP port {port}, so {unchecked} and the paths between could not be checked"
        ),
    )
    .mend(format!("run `srd doctor --serve` on {host}, and let UDP port {port} pass its firewall"))
}

/// For a person who waits: most of this takes a second, but dead paths and black holes take longer.
fn show_progress(what: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("srd doctor: {what} …");
    }
}

/// Bytes of IP and UDP header towards an address.
fn header_bytes(to: IpAddr) -> u16 {
    if to.is_ipv4() { 28 } else { 48 }
}
