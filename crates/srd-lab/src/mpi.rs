//! Command lines that start MPI programs in hosts of a lab.
//!
//! An MPI's launcher runs in the first host and starts its helpers in the others by ssh, in whose place `srd lab ssh` stands.
//! It talks over the management network; messages of the program pass the fabric, by one of three ways.

use crate::error::{Doing, Error, Result};
use crate::lab::{Host, Lab};
use crate::plan::{FABRIC_DEVICE, MANAGEMENT_DEVICE};
use crate::state::directory;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An MPI, by how it is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Mpi {
    /// Open MPI 5.
    #[default]
    #[serde(rename = "ompi")]
    OpenMpi5,
    /// Open MPI 4, as Debian 12 has it.
    #[serde(rename = "debian")]
    OpenMpi4,
    /// MPICH.
    #[serde(rename = "mpich")]
    Mpich,
    /// Intel MPI.
    #[serde(rename = "impi")]
    Intel,
}

impl Mpi {
    /// Where scripts/setup.sh has put it: in the source tree that the command `srd` lies in, or that one works in.
    pub fn installed(self, srd: &Path) -> Option<PathBuf> {
        let name = match self {
            Mpi::OpenMpi4 => return None, // Debian's package
            Mpi::OpenMpi5 => "ompi",
            Mpi::Mpich => "mpich",
            Mpi::Intel => "impi",
        };
        let here = std::env::current_dir().ok();
        let above = here.iter().flat_map(|here| here.ancestors()).chain(srd.ancestors());
        above.map(|directory| directory.join(".venv").join(name)).find(|prefix| prefix.join("bin").is_dir())
    }
}

/// The library that programs of Open MPI 3 to 5 are linked with.
const OPEN_MPI: [&str; 1] = ["libmpi.so.40"];
/// Those of MPICH, and of MPIs that are like it.
const MPICH: [&str; 2] = ["libmpi.so.12", "libmpich.so.12"];

/// Ranks that one of MPICH's proxies starts: with some 500 on one they all wait for each other in `MPI_Init`.
const OF_A_PROXY: usize = 64;

/// What carries a program's messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// SRD, by libfabric's efa provider over the software EFA.
    Efa,
    /// SRD, by the libfabric provider srd.
    Srd,
    /// The kernel's TCP: Open MPI's own, libfabric's tcp provider with others.
    Tcp,
}

/// A program and where it is to run.
#[derive(Clone, Debug)]
pub struct MpiJob {
    /// Which MPI.
    pub mpi: Mpi,
    /// Its directory with bin/ and lib/; without one, its launcher is looked for in PATH.
    pub prefix: Option<PathBuf>,
    /// What carries messages.
    pub transport: Transport,
    /// Ranks in all.
    pub ranks: usize,
    /// Names of hosts, filled in turn, each with as many ranks as the others if that comes out even.
    pub hosts: Vec<String>,
    /// Given to the launcher as they are.
    pub options: Vec<OsString>,
    /// The program and its arguments.
    pub program: Vec<OsString>,
}

/// Which variables a launcher is to pass on to ranks.
type Variables = Vec<(&'static str, OsString)>;

impl MpiJob {
    /// The command. `srd` is the path of the command srd, which enters hosts and puts SRD under programs.
    pub fn command(&self, lab: &Lab, srd: &Path) -> Result<Command> {
        if self.ranks == 0 || self.hosts.is_empty() || self.program.is_empty() {
            return Err(Error::BadJob("an MPI job has ranks, hosts and a program".into()));
        }
        let hosts: Vec<Host> = self.hosts.iter().map(|name| lab.host(name)).collect::<Result<_>>()?;
        let agent = write_agent(lab, srd)?;
        let mut line: Vec<OsString> = vec![self.launcher()?.into()];
        let variables = self.variables();
        match self.mpi {
            Mpi::OpenMpi5 | Mpi::OpenMpi4 => self.open_mpi(&mut line, &agent, &hosts, &variables),
            Mpi::Mpich | Mpi::Intel => self.hydra(&mut line, &agent, &hosts),
        }
        line.extend(self.options.iter().cloned());
        if let Some(layer) = self.layer() {
            line.extend(
                [srd.as_os_str(), OsStr::new("run"), OsStr::new(layer), OsStr::new("--")].map(OsString::from),
            );
        }
        line.extend(self.program.iter().cloned());

        let mut command = Command::new(&agent);
        command.arg(&hosts[0].name).arg(shell_words(&line)).envs(variables);
        Ok(command)
    }

    /// The command that starts all ranks on this machine, each by way of `rank`: words in front of the program. `files`: a directory for what
    /// the launcher keeps in files. `agent`: a program that does on this machine what ssh would do on another; by it Intel MPI's launcher, which
    /// shares memory between ranks of a host whatever it is told, starts each rank on a host of its own, and MPICH's [`OF_A_PROXY`] of them.
    pub fn command_here(&self, rank: &[OsString], files: &Path, agent: &Path) -> Result<Command> {
        if self.ranks == 0 || self.program.is_empty() {
            return Err(Error::BadJob("an MPI job has ranks and a program".into()));
        }
        let mut command = Command::new(self.launcher()?);
        let ranks = self.ranks.to_string();
        let files = files.to_string_lossy();
        let hydra = |per_host: usize| {
            let hosts: Vec<_> = (0..self.ranks.div_ceil(per_host)).map(|host| format!("h{host}")).collect();
            self.hydra_words(agent, &hosts, per_host)
        };
        let open_mpi = |crowd: &[&str], directory: [&str; 2]| {
            let words = [&["-np", &ranks], crowd, &["--bind-to", "none"], &directory, &[&files]].concat();
            words.iter().map(OsString::from).collect()
        };
        command.args(match self.mpi {
            Mpi::OpenMpi5 => open_mpi(&["--map-by", ":OVERSUBSCRIBE"], ["--prtemca", "prte_tmpdir_base"]),
            Mpi::OpenMpi4 => open_mpi(&["--oversubscribe"], ["--mca", "orte_tmpdir_base"]),
            Mpi::Mpich => hydra(OF_A_PROXY),
            Mpi::Intel => hydra(1),
        });
        command.args(&self.options).args(rank).args(&self.program);
        command.envs(self.variables().into_iter().filter(|(name, _)| *name != "SRD_ADDR"));
        Ok(command)
    }

    /// Whether the program is one of this MPI's, as far as its libraries tell: scripts load theirs later.
    pub fn check_program(&self) -> Result<()> {
        let variables = self.variables();
        let path = variables.iter().find(|(name, _)| *name == "PATH").map(|(_, path)| path.clone());
        let found = self.program.first().and_then(|program| {
            let here = std::env::current_dir().unwrap_or_default();
            which::which_in(program, path.or_else(|| std::env::var_os("PATH")), here).ok()
        });
        let Some(program) = found else { return Ok(()) }; // the launcher says so
        let listed = Command::new("ldd").arg(&program).envs(variables).output();
        let listed =
            listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let (others, launcher, names) = match self.mpi {
            Mpi::OpenMpi5 | Mpi::OpenMpi4 => (&MPICH[..], "Open MPI", "--mpi mpich, or --mpi impi"),
            Mpi::Mpich => (&OPEN_MPI[..], "MPICH", "--mpi ompi, or --mpi debian"),
            Mpi::Intel => (&OPEN_MPI[..], "Intel MPI", "--mpi ompi, or --mpi debian"),
        };
        let mut libraries = listed.lines().filter_map(|line| line.split_whitespace().next());
        let Some(library) = libraries.find(|library| others.contains(library)) else { return Ok(()) };
        Err(Error::BadJob(format!(
            "{} is linked with {library} of another MPI, and {launcher} is to start it\n  \
             take the MPI that it was built with: {names}",
            program.display(),
        )))
    }

    /// What `srd run` puts under the program.
    fn layer(&self) -> Option<&'static str> {
        match self.transport {
            Transport::Efa => Some("--efa"),
            Transport::Srd => Some("--provider"),
            Transport::Tcp => None,
        }
    }

    /// What libfabric is asked for.
    fn provider(&self) -> &'static str {
        match self.transport {
            Transport::Efa => "efa",
            Transport::Srd => "srd",
            Transport::Tcp => "tcp",
        }
    }

    /// The program that starts ranks.
    pub fn launcher(&self) -> Result<PathBuf> {
        self.find(match self.mpi {
            Mpi::OpenMpi5 => "mpirun",
            Mpi::OpenMpi4 => "mpirun.openmpi",
            Mpi::Mpich => "mpiexec",
            Mpi::Intel => "mpiexec.hydra",
        })
    }

    /// A command that compiles a C program for this MPI.
    pub fn compiler(&self, source: &Path, program: &Path) -> Result<Command> {
        let options = ["-O2", "-std=c11", "-D_GNU_SOURCE", "-o"];
        let mut command = match (self.mpi, &self.prefix) {
            // The compiler wrapper of Intel MPI's wheel expects another prefix than it has.
            (Mpi::Intel, Some(prefix)) => {
                let mut command = Command::new("gcc");
                command.args(options).arg(program).arg(source);
                command.arg("-I").arg(prefix.join("include")).arg(prefix.join("lib/libmpi.so.12"));
                command
            }
            (mpi, _) => {
                let name = if mpi == Mpi::OpenMpi4 { "mpicc.openmpi" } else { "mpicc" };
                let mut command = Command::new(self.find(name)?);
                command.args(options).arg(program).arg(source);
                command
            }
        };
        command.envs(self.variables());
        Ok(command)
    }

    /// A program of the MPI's.
    fn find(&self, name: &str) -> Result<PathBuf> {
        let found = match &self.prefix {
            Some(prefix) => which::which(prefix.join("bin").join(name)),
            None => which::which(name),
        };
        found.map_err(|_| {
            let place = match &self.prefix {
                Some(prefix) => prefix.join("bin").display().to_string(),
                None => "PATH".into(),
            };
            Error::BadJob(format!(
                "{name} not found in {place}\n  `make setup` installs the MPIs that the lab knows; the directory of another one: \
                 --prefix DIR, in an experiment's file prefix = \"DIR\""
            ))
        })
    }

    /// What launcher and program need in their environment.
    fn variables(&self) -> Variables {
        let mut variables: Variables = Vec::new();
        if let Some(prefix) = &self.prefix {
            let mut libraries = vec![prefix.join("lib")];
            // Intel MPI's wheel has no libfabric, and takes that of MPICH's wheel beside it.
            let beside = prefix.with_file_name("mpich").join("lib/mpich");
            if self.mpi == Mpi::Intel && beside.is_dir() {
                libraries.push(beside);
            }
            libraries.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
            let path = std::env::var_os("PATH").unwrap_or_default();
            let bin = [prefix.join("bin")].into_iter().chain(std::env::split_paths(&path));
            variables.extend(std::env::join_paths(bin).ok().map(|path| ("PATH", path)));
            variables.extend(std::env::join_paths(libraries).ok().map(|path| ("LD_LIBRARY_PATH", path)));
        }
        let mut set = |name: &'static str, value: &str| variables.push((name, value.into()));
        match self.transport {
            // A host has two devices; this one is on the fabric.
            Transport::Efa | Transport::Srd => set("SRD_ADDR", FABRIC_DEVICE),
            Transport::Tcp => set("FI_TCP_IFACE", FABRIC_DEVICE),
        }
        match self.mpi {
            Mpi::OpenMpi5 | Mpi::OpenMpi4 => {
                for name in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
                    set(name, "1");
                }
                set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
                set("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            }
            // MPICH's wheel also has UCX, and prefers it.
            Mpi::Mpich => {
                set("MPIR_CVAR_CH4_NETMOD", "ofi");
                set("FI_PROVIDER", self.provider());
            }
            // No pinning: all hosts are on the same few cores.
            Mpi::Intel => {
                set("I_MPI_OFI_LIBRARY_INTERNAL", "0");
                set("I_MPI_PIN", "0");
                set("FI_PROVIDER", self.provider());
                set("I_MPI_FABRICS", "ofi");
            }
        }
        variables
    }

    fn per_host(&self, hosts: &[Host]) -> usize {
        self.ranks.div_ceil(hosts.len())
    }

    fn open_mpi(&self, line: &mut Vec<OsString>, agent: &Path, hosts: &[Host], variables: &Variables) {
        let per_host = self.per_host(hosts);
        let places: Vec<_> = hosts.iter().map(|host| format!("{}:{per_host}", host.name)).collect();
        let mut add = |words: &[&str]| line.extend(words.iter().map(OsString::from));
        add(&["-np", &self.ranks.to_string(), "--host", &places.join(",")]);
        // All hosts are on the same few cores: ranks that wait make room.
        add(&["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]);
        match self.transport {
            Transport::Tcp => {
                add(&["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
                add(&["--mca", "btl_tcp_if_include", FABRIC_DEVICE]);
            }
            _ => {
                add(&["--mca", "pml", "cm", "--mca", "mtl", "ofi"]);
                add(&["--mca", "mtl_ofi_provider_include", self.provider()]);
            }
        }
        let agent = agent.to_string_lossy();
        if self.mpi == Mpi::OpenMpi5 {
            add(&["--prtemca", "plm_ssh_agent", &agent, "--prtemca", "prte_if_include", MANAGEMENT_DEVICE]);
        } else {
            add(&["--mca", "plm_rsh_agent", &agent, "--mca", "oob_tcp_if_include", MANAGEMENT_DEVICE]);
        }
        // 4.1.4 ends in MPI_Win_allocate across hosts with any other. (With the provider, `srd run` sets what works.)
        if self.mpi == Mpi::OpenMpi4 && self.transport != Transport::Srd {
            add(&["--mca", "osc", "pt2pt"]);
        }
        for (name, _) in variables.iter().filter(|(name, _)| !name.contains("ALLOW_RUN")) {
            add(&["-x", name]);
        }
    }

    fn hydra(&self, line: &mut Vec<OsString>, agent: &Path, hosts: &[Host]) {
        let names: Vec<_> = hosts.iter().map(|host| host.name.clone()).collect();
        line.extend(self.hydra_words(agent, &names, self.per_host(hosts)));
    }

    /// So many ranks on each of these hosts, by the launcher of MPICH and of Intel MPI.
    fn hydra_words(&self, agent: &Path, hosts: &[String], per_host: usize) -> Vec<OsString> {
        let (launcher, program) = match self.mpi {
            Mpi::Intel => ("-bootstrap", "-bootstrap-exec"),
            _ => ("-launcher", "-launcher-exec"),
        };
        let (agent, hosts) = (agent.to_string_lossy(), hosts.join(","));
        let (per_host, ranks) = (per_host.to_string(), self.ranks.to_string());
        let words = [launcher, "ssh", program, &agent, "-hosts", &hosts, "-ppn", &per_host, "-n", &ranks];
        words.iter().map(OsString::from).collect()
    }
}

/// A program that launchers take for ssh, beside the lab's notes.
fn write_agent(lab: &Lab, srd: &Path) -> Result<PathBuf> {
    let file = directory(lab.name()).join("ssh");
    let call =
        [srd.as_os_str(), OsStr::new("lab"), OsStr::new("--lab"), OsStr::new(lab.name()), OsStr::new("ssh")];
    let words = shell_words(&call.map(OsString::from));
    let text = format!("#!/bin/sh\nexec {} \"$@\"\n", words.to_string_lossy());
    let what = || format!("cannot write {}", file.display());
    let beside = file.with_extension(std::process::id().to_string());
    fs::write(&beside, text).doing(what)?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).doing(what)?;
    fs::rename(&beside, &file).doing(what)?;
    Ok(file)
}

/// Words as a shell takes them.
fn shell_words(words: &[OsString]) -> OsString {
    let quoted = words.iter().map(|word| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''")));
    quoted.collect::<Vec<_>>().join(" ").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_gets_words_as_they_were() {
        let words = ["a b", "it's", "$HOME", ""].map(OsString::from);
        let direct = Command::new("printf").arg("%s|").args(&words).output().unwrap().stdout;
        let mut line = OsString::from("printf '%s|' ");
        line.push(shell_words(&words));
        assert_eq!(Command::new("sh").arg("-c").arg(line).output().unwrap().stdout, direct);
    }
}
