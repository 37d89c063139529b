//! `srd info`: what this host offers to SRD.

use crate::host::{self, interfaces, limits, offload};
use crate::libraries::Libraries;
use crate::output;
use serde::Serialize;
use srd_net::{Instance, Options};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  srd info                    this host as SRD sees it
  SRD_ADDR=eth1 srd info      the same with another interface chosen
  srd info --json             for another program to read

What would hold SRD back here, and how to mend it, is the business of `srd doctor`.";

/// Arguments of `srd info`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Info {
    version: &'static str,
    protocol_version: u8,
    kernel: String,
    cpus: usize,
    cpus_allowed: usize,
    transport: Transport,
    interfaces: Vec<interfaces::Interface>,
    limits: limits::Limits,
    offload: Option<offload::Offload>,
    /// The software EFA's.
    libraries: Installed,
    /// The libfabric provider.
    provider: Installed,
    provider_as_efa: Installed,
}

/// What a program that used SRD now would get.
#[derive(Serialize)]
struct Transport {
    /// Why it would get nothing; the rest is then what was asked for.
    error: Option<String>,
    address: Option<std::net::IpAddr>,
    interface: Option<String>,
    port: Option<u16>,
    port_base: u16,
    /// How far above `port_base`: how many instances already run here.
    slot: Option<u16>,
    mtu: Option<u16>,
    paths: u16,
    key: KeyMode,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum KeyMode {
    Clear,
    Sealed,
}

/// Where libraries should be, and which of them are not.
#[derive(Serialize)]
struct Installed {
    directory: std::path::PathBuf,
    missing: Vec<&'static str>,
}

impl Installed {
    fn look(libraries: Libraries) -> anyhow::Result<Installed> {
        let directory = libraries.directory()?;
        Ok(Installed { missing: libraries.missing(&directory), directory })
    }

    fn describe(&self) -> String {
        let state = match self.missing.as_slice() {
            [] => String::new(),
            missing => format!(" (without {})", missing.join(" and ")),
        };
        format!("{}{state}", self.directory.display())
    }
}

/// Prints the facts.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (options, warnings) = Options::from_env()?;
    for warning in warnings {
        eprintln!("srd: {warning}");
    }
    let info = gather(&options)?;
    if args.json {
        output::json(&info)?
    } else {
        output::text(&describe(&info))?
    }
    Ok(if info.transport.error.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn gather(options: &Options) -> anyhow::Result<Info> {
    let (cpus_allowed, cpus) = host::cpus();
    Ok(Info {
        version: env!("CARGO_PKG_VERSION"),
        protocol_version: srd_wire::VERSION,
        kernel: host::kernel(),
        cpus,
        cpus_allowed,
        transport: transport(options),
        interfaces: interfaces::all(),
        limits: limits::read(),
        offload: offload::probe().ok(),
        libraries: Installed::look(Libraries::Efa)?,
        provider: Installed::look(Libraries::Provider)?,
        provider_as_efa: Installed::look(Libraries::ProviderAsEfa)?,
    })
}

/// Opens an instance for a moment: nothing else tells so well what a program would get.
fn transport(options: &Options) -> Transport {
    let mut transport = Transport {
        error: None,
        address: None,
        interface: None,
        port: None,
        port_base: options.port_base,
        slot: None,
        mtu: options.mtu,
        paths: options.paths,
        key: if options.key_file.is_some() { KeyMode::Sealed } else { KeyMode::Clear },
    };
    match Instance::open_separate(options) {
        Ok(instance) => {
            let address = instance.address();
            transport.address = Some(address.gid.ip());
            transport.interface = interfaces::of_address(address.gid.ip()).map(|interface| interface.name);
            transport.port = Some(address.port);
            transport.slot = address.port.checked_sub(options.port_base);
            transport.mtu = Some(instance.mtu());
        }
        Err(error) => transport.error = Some(error.to_string()),
    }
    transport
}

fn describe(info: &Info) -> String {
    let yes = |offered: bool| if offered { "yes" } else { "no" };
    let transport = &info.transport;
    let mut rows = vec![
        ("version", format!("{} (protocol {})", info.version, info.protocol_version)),
        ("kernel", info.kernel.clone()),
        ("processors", format!("{} of {} usable", info.cpus_allowed, info.cpus)),
    ];
    match (&transport.error, transport.address, transport.port) {
        (None, Some(address), Some(port)) => {
            let interface = transport.interface.as_deref().unwrap_or("unknown interface");
            rows.push(("address", format!("{address} ({interface})")));
            rows.push((
                "port",
                format!("{port} (slot {} from {})", port - transport.port_base, transport.port_base),
            ));
        }
        (error, ..) => rows.push(("address", format!("none: {}", error.as_deref().unwrap_or("unknown")))),
    }
    rows.push(("mtu", optional(transport.mtu, "unknown")));
    rows.push(("paths", transport.paths.to_string()));
    rows.push((
        "packets",
        match transport.key {
            KeyMode::Clear => "in clear (SRD_KEY_FILE is not set)".into(),
            KeyMode::Sealed if transport.error.is_some() => "to be sealed with the pre-shared key".into(),
            KeyMode::Sealed => "sealed with the pre-shared key".into(),
        },
    ));
    if let Some(offload) = info.offload {
        rows.push(("UDP GSO, GRO", format!("{}, {}", yes(offload.gso), yes(offload.gro))));
    }
    let limits = &info.limits;
    rows.push(("rmem_max", optional(limits.rmem_max, "unknown")));
    rows.push(("wmem_max", optional(limits.wmem_max, "unknown")));
    rows.push(("memlock", optional(limits.memlock, "unlimited")));
    rows.push(("open files", optional(limits.open_files, "unlimited")));
    rows.push(("software EFA", info.libraries.describe()));
    rows.push(("provider srd", info.provider.describe()));
    rows.push(("the same as efa", info.provider_as_efa.describe()));
    for interface in &info.interfaces {
        rows.push(("interface", describe_interface(interface)));
    }
    output::columns(rows)
}

fn describe_interface(interface: &interfaces::Interface) -> String {
    let speed = interface.speed_mbps.map_or_else(String::new, |mbps| format!(", {mbps} Mb/s"));
    let addresses: Vec<String> = interface.addresses.iter().map(ToString::to_string).collect();
    format!(
        "{}: {}, MTU {}{speed}, {}",
        interface.name,
        if interface.up { "up" } else { "down" },
        optional(interface.mtu, "unknown"),
        if addresses.is_empty() { "no address".into() } else { addresses.join(" ") },
    )
}

fn optional<T: ToString>(value: Option<T>, otherwise: &str) -> String {
    value.map_or_else(|| otherwise.to_owned(), |value| value.to_string())
}
