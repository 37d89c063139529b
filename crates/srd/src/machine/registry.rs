//! Where the machines of a user are found: a directory for each, beside the sockets of `srd top`, locked for as long as a process
//! of the machine has it. The processes of the machine have it in the place of the directory above, so that those of two
//! machines do not see each other's keys and counters.

use anyhow::{Context, bail};
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use serde::{Deserialize, Serialize};
use srd_machine::LockedDirectory;
use srd_net::stats_directory::{self, MACHINES};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What a machine tells of itself to this host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Running {
    /// Its name.
    pub name: String,
    /// What it is.
    pub product: String,
    /// A process in its namespaces: the one that has made it, if that lives.
    pub pid: i32,
    /// Its mount namespace, as `/proc/PID/ns/mnt` names it.
    namespace: PathBuf,
}

impl Running {
    /// With a process that is in it now. `None`: there is none left.
    fn with_a_process(mut self) -> Option<Running> {
        let is_inside =
            |pid: i32| namespace_of(&pid.to_string()).is_ok_and(|namespace| namespace == self.namespace);
        if !is_inside(self.pid) {
            self.pid = processes_in(&self.namespace).next()?;
        }
        Some(self)
    }
}

fn namespace_of(process: &str) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt"))
}

fn processes_in(namespace: &Path) -> impl Iterator<Item = i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(move |pid| namespace_of(&pid.to_string()).is_ok_and(|theirs| theirs == namespace))
}

/// The directory of a machine of this process.
pub struct Entry {
    directory: LockedDirectory,
    /// The one that it lies in, for when it has taken its place.
    above: File,
}

impl Entry {
    pub fn make(name: &str) -> anyhow::Result<Entry> {
        let base = base()?;
        LockedDirectory::sweep(&base, MACHINES);
        let directory = match LockedDirectory::named(&base, &format!("{MACHINES}{name}")) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                bail!("a machine {name} runs already; give this one another name (--machine-name)")
            }
            result => result.with_context(|| {
                format!(
                    "cannot keep a machine in {} (another place: XDG_RUNTIME_DIR, a directory of this user's)",
                    base.display()
                )
            })?,
        };
        // Programs inherit the lock: what of theirs is there stays for as long as one of them lives, whatever becomes of this process.
        fcntl(directory.lock(), FcntlArg::F_SETFD(FdFlag::empty()))?;
        let above = OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(&base)?;
        Ok(Entry { directory, above })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The machine is made, and this process in it: from here on others find it.
    pub fn tell(&self, name: &str, product: &str) -> anyhow::Result<()> {
        let pid = nix::unistd::getpid().as_raw();
        let running = Running {
            name: name.to_owned(),
            product: product.to_owned(),
            pid,
            namespace: namespace_of("self")?,
        };
        let path = self.path_above().context("a machine's directory has a name")?;
        fs::write(path.join("machine"), serde_json::to_vec(&running)?).context("cannot tell of the machine")
    }

    /// The directory's path from the one above, which it has taken the place of.
    fn path_above(&self) -> Option<PathBuf> {
        Some(
            PathBuf::from(format!("/proc/self/fd/{}", self.above.as_raw_fd())).join(self.path().file_name()?),
        )
    }

    /// The machine's program has ended. While others of its processes live the machine is found, and what they have in the directory
    /// stays until somebody sweeps after them.
    pub fn remove(self) {
        let Some(path) = self.path_above() else { return };
        let own = nix::unistd::getpid().as_raw();
        let told = path.join("machine");
        let lives_on = |namespace: PathBuf| processes_in(&namespace).any(|pid| pid != own);
        if told.exists() && namespace_of("self").is_ok_and(lives_on) {
            // Dropping it would unlock it for those, too.
            return std::mem::forget(self);
        }
        let _ = fs::remove_file(told);
        let entries = fs::read_dir(&path).into_iter().flatten().flatten();
        if entries.count() <= 1 {
            let _ = fs::remove_dir_all(&path); // the lock
        }
    }
}

fn base() -> anyhow::Result<PathBuf> {
    stats_directory::private().context(
        "there is no directory in which machines are found (another place: XDG_RUNTIME_DIR, a directory of this user's)",
    )
}

/// The machines of this user that run.
pub fn running() -> Vec<Running> {
    let Ok(base) = stats_directory::private() else { return Vec::new() };
    LockedDirectory::sweep(&base, MACHINES);
    let read = |path: PathBuf| {
        serde_json::from_slice::<Running>(&fs::read(path.join("machine")).ok()?).ok()?.with_a_process()
    };
    let mut all: Vec<Running> = LockedDirectory::live(&base, MACHINES).into_iter().filter_map(read).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// The one of that name, or the only one.
pub fn find(name: Option<&str>) -> anyhow::Result<Running> {
    let running = running();
    let names = || running.iter().map(|machine| machine.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = match name {
        Some(name) => running.iter().find(|machine| machine.name == name),
        None if running.len() == 1 => running.first(),
        None => None,
    };
    match (found, running.is_empty(), name) {
        (Some(found), ..) => Ok(found.clone()),
        (None, true, _) => bail!("no machine of this user runs; `srd run --machine TYPE -- CMD` starts one"),
        (None, false, Some(name)) => bail!("no machine {name} of this user runs; there are {}", names()),
        (None, false, None) => bail!("several machines run, name one: {}", names()),
    }
}
