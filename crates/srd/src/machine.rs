//! Machines with EFA devices: `srd run --machine` starts a program in one, `srd machine` lists them and enters them.
//!
//! A machine is a mount namespace in which the kernel's files tell of the devices of an instance of EC2 (`namespace.rs` mounts them,
//! `srd-machine` writes them), and a directory in which others find it (`registry.rs`). The process that has made it stays, waits
//! for the program, and watches over what cannot be emulated (`watch.rs`). Nothing of a machine is outside its namespace but
//! that directory, so it goes with the last process.

mod namespace;
mod registry;
mod topology;
mod watch;

use crate::consumer;
use crate::libraries::Libraries;
use crate::output;
use crate::sealed;
use anyhow::{Context, bail};
use clap::Subcommand;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rand::TryRngCore;
use rand::rngs::OsRng;
use serde_json::json;
use srd_machine::{Description, Device, INSTANCE_TYPES, InstanceType, PciAddress};
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Descriptors that programs with several devices may have: each device takes two for each path, and some more.
const DESCRIPTORS: u64 = 65_536;

/// What `srd run` is told of the machine.
#[derive(clap::Args, Debug)]
pub struct Choice {
    /// Run CMD in a machine with the EFA devices of this instance type: /sys, /dev/infiniband, counters (`srd machine list` names them)
    #[arg(long, value_name = "TYPE", conflicts_with = "provider", value_parser = instance_type)]
    machine: Option<&'static InstanceType>,
    /// Name of the machine, for `srd machine enter` [default: the type and a number]
    #[arg(long, value_name = "NAME", requires = "machine", value_parser = machine_name)]
    machine_name: Option<String>,
    /// Addresses of its devices, dealt in turn; or "loopback": one of 127.0.0.0/8 for each, for machines that meet on this host only
    /// [default: what SRD_ADDR says, for all]
    #[arg(long, value_name = "ADDR,...", requires = "machine", value_delimiter = ',')]
    machine_addr: Vec<String>,
}

/// Arguments of `srd machine`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: MachineCommand,
}

#[derive(Subcommand, Debug)]
enum MachineCommand {
    /// List the machines of this user that run, and the instance types that there are
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a command, or a shell, in a machine that runs
    Enter {
        /// Also force the libraries in with LD_PRELOAD
        #[arg(long)]
        preload: bool,
        /// Its name; not needed if only one runs
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// The program and its arguments [default: $SHELL]
        #[arg(value_name = "CMD", last = true)]
        command: Vec<OsString>,
    },
}

fn instance_type(text: &str) -> Result<&'static InstanceType, String> {
    let known = || INSTANCE_TYPES.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
    InstanceType::named(text)
        .ok_or_else(|| format!("no instance type of that name is known; there are {}", known()))
}

fn machine_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let at_ends = text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric());
    if text.len() <= 32 && text.chars().all(fits) && at_ends && !text.ends_with(".new") {
        return Ok(text.to_owned());
    }
    Err("letters, digits, and the signs - _ . in between, 32 at most".to_owned())
}

/// Runs `srd machine`.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        MachineCommand::List { json } => list(*json),
        MachineCommand::Enter { preload, name, command } => enter(name.as_deref(), command, *preload),
    }
}

impl Choice {
    /// Makes the machine, if one is wanted, and moves this process into it. To be called before there is a second thread.
    /// What is returned must live until the program has ended.
    pub fn make(&self) -> anyhow::Result<Option<Machine>> {
        let Some(kind) = self.machine else { return Ok(None) };
        refuse_nested()?;
        if std::env::var_os("SRD_EFA_PROFILE").is_some() || std::env::var_os("SRD_EFA_PCI").is_some() {
            bail!(
                "a machine's devices are those of its instance type: unset SRD_EFA_PROFILE and SRD_EFA_PCI"
            );
        }
        let addresses = self.addresses(kind.device_count())?;
        let name =
            self.machine_name.clone().unwrap_or_else(|| format!("{}-{}", kind.name, std::process::id()));
        let description = describe(kind, &name, &addresses);
        let entry = registry::Entry::make(&name)?;
        let made = instance_id()
            .and_then(|id| namespace::enter_new(&description, &id, entry.path()))
            .with_context(|| format!("no machine {}", kind.name))
            .and_then(|()| entry.tell(&name, kind.product));
        if let Err(error) = made {
            entry.remove();
            return Err(error);
        }
        raise_descriptors(description.devices.len());
        watch::start(&description);
        Ok(Some(Machine { entry }))
    }

    fn addresses(&self, devices: usize) -> anyhow::Result<Vec<IpAddr>> {
        if self.machine_addr.len() == 1 && self.machine_addr[0] == "loopback" {
            let [.., a, b] = std::process::id().to_be_bytes();
            return Ok((1..=devices).map(|n| Ipv4Addr::new(127, a, b, n as u8).into()).collect());
        }
        let (mut options, _) = srd_net::Options::from_env()?;
        if self.machine_addr.is_empty() {
            return Ok(vec![srd_net::check(&options)?.ip]);
        }
        let resolve = |text: &String| {
            if text.is_empty() {
                bail!(
                    "--machine-addr: an address is empty; they are written as 10.0.0.1,10.0.0.2, or as loopback"
                );
            }
            let vars = [("SRD_ADDR".into(), text.into())];
            options.addr = srd_net::Options::from_vars(vars)?.0.addr;
            Ok(srd_net::check(&options)?.ip)
        };
        if self.machine_addr.len() > devices {
            bail!(
                "--machine-addr: {} addresses, and the machine has {devices} device(s)",
                self.machine_addr.len()
            );
        }
        self.machine_addr.iter().map(resolve).collect()
    }
}

/// A machine that this process has made and is in.
pub struct Machine {
    entry: registry::Entry,
}

impl Machine {
    /// Runs a program to its end, and answers what it answers.
    pub fn attend(self, mut command: Command) -> anyhow::Result<ExitCode> {
        at_home(&mut command);
        let answer = sealed::attend(command);
        self.entry.remove();
        answer
    }

    /// The same for one that gets a key of its own.
    pub fn attend_sealed(self, mut command: Command, key_dir: Option<&Path>) -> anyhow::Result<ExitCode> {
        at_home(&mut command);
        let answer = sealed::run_attended(command, key_dir);
        self.entry.remove();
        answer
    }
}

/// A program finds the machine's devices without variables; those that lead elsewhere go.
fn at_home(command: &mut Command) {
    command.env_remove("SYSFS_PATH").envs(topology::variables());
}

fn refuse_nested() -> anyhow::Result<()> {
    if let Some(outer) = Description::here()? {
        bail!(
            "this is in the machine {} ({}) already, and machines are not nested: leave --machine out, or start the other one \
             outside, beside this one",
            outer.name,
            outer.product
        );
    }
    Ok(())
}

fn describe(kind: &InstanceType, name: &str, addresses: &[IpAddr]) -> Description {
    let devices = kind.places().enumerate().map(|(at, (device, pci, numa_node))| {
        let address = addresses[at % addresses.len()];
        let guid = Device::guid_of(address) + ((at as u64) << 48);
        Device {
            name: device,
            number: at as u32,
            pci: free_address(pci),
            part_id: kind.part_id,
            numa_node,
            pcie_gts: kind.pcie_gts,
            guid: if kind.has_guid { guid } else { 0 },
            address,
            gbps: kind.gbps,
            rdma_read: kind.rdma_read,
            rdma_write: kind.rdma_write,
        }
    });
    Description { name: name.to_owned(), product: kind.product.to_owned(), devices: devices.collect() }
}

/// The address, or if a device of this host has it the same in a domain that is free: its files stay as they are.
fn free_address(wanted: PciAddress) -> PciAddress {
    let is_taken =
        |address: &PciAddress| Path::new("/sys/bus/pci/devices").join(address.to_string()).exists();
    let domains = (1..16).map(|domain| PciAddress { domain: domain << 12, ..wanted });
    std::iter::once(wanted).chain(domains).find(|address| !is_taken(address)).unwrap_or(wanted)
}

fn instance_id() -> anyhow::Result<String> {
    let number =
        OsRng.try_next_u64().map_err(anyhow::Error::msg).context("the system gives no random numbers")?;
    Ok(format!("i-0{number:016x}"))
}

fn raise_descriptors(devices: usize) {
    let resource = Resource::RLIMIT_NOFILE;
    if devices > 1
        && let Ok((soft, hard)) = getrlimit(resource)
        && soft < DESCRIPTORS.min(hard)
    {
        let _ = setrlimit(resource, DESCRIPTORS.min(hard), hard); // who lacks them is told so
    }
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let running = registry::running();
    if json {
        let types = INSTANCE_TYPES.iter().map(|kind| {
            json!({
                "name": kind.name, "product": kind.product, "devices": kind.device_count(), "gbps": kind.gbps,
                "part_id": kind.part_id, "rdma_read": kind.rdma_read, "rdma_write": kind.rdma_write,
                "addresses_are_known": kind.addresses_are_known,
            })
        });
        output::json(&json!({ "running": running, "types": types.collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("{:<24} {:<16} {:>8}\n", "MACHINE", "PRODUCT", "PID");
    for machine in &running {
        text += &format!("{:<24} {:<16} {:>8}\n", machine.name, machine.product, machine.pid);
    }
    text += &format!(
        "\n{:<8} {:<16} {:>7} {:>6} {:>7} {:<6} {}\n",
        "TYPE", "PRODUCT", "DEVICES", "GBIT/S", "PART", "RDMA", "FIRST"
    );
    for kind in INSTANCE_TYPES {
        let rdma = match (kind.rdma_read, kind.rdma_write) {
            (false, _) => "-",
            (true, false) => "read",
            (true, true) => "write",
        };
        let first = kind.places().next().map(|(name, ..)| name).unwrap_or_default();
        let made_up = if kind.addresses_are_known { "" } else { " (made up)" };
        text += &format!(
            "{:<8} {:<16} {:>7} {:>6} {:>#7x} {:<6} {first}{made_up}\n",
            kind.name,
            kind.product,
            kind.device_count(),
            kind.gbps,
            kind.part_id,
            rdma
        );
    }
    output::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn enter(name: Option<&str>, command: &[OsString], preload: bool) -> anyhow::Result<ExitCode> {
    refuse_nested()?;
    let machine = registry::find(name)?;
    let variables = consumer::efa(&Libraries::Efa.locate()?, preload);
    namespace::enter(machine.pid).with_context(|| format!("cannot enter the machine {}", machine.name))?;
    raise_descriptors(usize::MAX);
    let shell = [std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())];
    let (program, arguments) =
        if command.is_empty() { &shell } else { command }.split_first().expect("it has one");
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.into_iter().map(|variable| (variable.name, variable.value)));
    at_home(&mut command);
    let error = command.exec();
    eprintln!("srd: cannot run {}: {error}", program.display());
    Ok(ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_type_names_the_known_ones() {
        let why = instance_type("p9").unwrap_err();
        assert!(why.contains("p5, p5en, p4d") && why.contains("hpc7a"), "{why}");
        assert_eq!(instance_type("p4d.24xlarge").unwrap().name, "p4d");
    }

    #[test]
    fn names_are_names_of_directories() {
        assert!(machine_name("a-b_c.1").is_ok());
        for bad in ["", "a/b", "a b", "a.new", "..//", "..", "-x", "a-", &"a".repeat(33)] {
            assert!(machine_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn devices_differ_in_all_but_their_address() {
        let kind = InstanceType::named("p5").unwrap();
        let machine = describe(kind, "m", &["10.0.0.1".parse().unwrap()]);
        let distinct = |of: &dyn Fn(&Device) -> String| {
            machine.devices.iter().map(of).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(distinct(&|device| device.name.clone()), 32);
        assert_eq!(distinct(&|device| device.pci.to_string()), 32);
        assert_eq!(distinct(&|device| device.guid.to_string()), 32);
        assert_eq!(distinct(&|device| device.address.to_string()), 1);
    }
}
