//! Network namespaces: made, entered, emptied of processes, removed. A namespace belongs to a thread; whatever happens in
//! one happens on a thread that ends with it, so that this process never leaves its own.

use crate::error::{Doing, Error, Result};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Where ip(8) keeps namespaces by name, ip-netns(8).
const DIRECTORY: &str = "/run/netns";
/// How long a killed process may take to go.
const LAST_MOMENTS: Duration = Duration::from_secs(5);

/// The file that stands for a namespace.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// Makes the directory that holds the names, as ip(8) does: a mount of its own that passes mounts on, so that other
/// mount namespaces see namespaces come and go.
pub(crate) fn prepare() -> Result<()> {
    fs::create_dir_all(DIRECTORY).doing(|| format!("cannot make {DIRECTORY}"))?;
    let shared = MsFlags::MS_SHARED | MsFlags::MS_REC;
    let share = || mount(None::<&str>, DIRECTORY, None::<&str>, shared, None::<&str>);
    match share() {
        Err(Errno::EINVAL) => {} // no mount yet
        result => return result.map_err(refused),
    }
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(DIRECTORY), DIRECTORY, None::<&str>, bind, None::<&str>).map_err(refused)?;
    share().map_err(refused)
}

/// Makes a namespace and enters it: for a thread that is to end in it.
pub(crate) fn create(name: &str) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(refused)?;
    let file = path(name);
    File::create_new(&file).doing(|| format!("cannot make {}", file.display()))?;
    mount(Some("/proc/thread-self/ns/net"), &file, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(refused)
}

fn refused(errno: Errno) -> Error {
    let remedy = match errno {
        Errno::EPERM | Errno::EACCES => {
            "run it as root (sudo srd lab …); in a container, with CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged)"
        }
        Errno::ENOSPC | Errno::EUSERS => "too many namespaces: raise user.max_net_namespaces (sysctl)",
        _ => "the kernel needs CONFIG_NET_NS",
    };
    Error::NotPermitted { reason: errno.desc().into(), remedy: remedy.into() }
}

/// Says whether this process may make namespaces at all.
pub(crate) fn check_rights() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(refused(Errno::EPERM));
    }
    thread::scope(|scope| scope.spawn(|| unshare(CloneFlags::CLONE_NEWNET)).join())
        .expect("unshare does not panic")
        .map_err(refused)
}

/// Takes the calling thread into a namespace.
pub(crate) fn enter(name: &str) -> Result<()> {
    let file = File::open(path(name)).doing(|| format!("the namespace {name} cannot be opened"))?;
    setns(file, CloneFlags::CLONE_NEWNET).doing(|| format!("the namespace {name} cannot be entered"))
}

/// Does some work in a namespace, on a thread of its own.
pub(crate) fn within<T: Send>(name: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let entered = || {
        enter(name)?;
        work()
    };
    thread::scope(|scope| scope.spawn(entered).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Whether a namespace of that name exists.
pub(crate) fn exists(name: &str) -> bool {
    path(name).exists()
}

/// Processes that are in one of some namespaces, each with the index of its namespace.
pub(crate) fn processes(names: &[String]) -> Vec<(usize, Pid)> {
    let inodes: Vec<_> = names.iter().map(|name| identity(&path(name))).collect();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let own = identity(Path::new(&format!("/proc/{pid}/ns/net")))?;
        let index = inodes.iter().position(|inode| *inode == Some(own))?;
        Some((index, Pid::from_raw(pid)))
    })
    .collect()
}

/// What tells namespaces apart.
pub(crate) fn identity(file: &Path) -> Option<(u64, u64)> {
    fs::metadata(file).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Ends all processes in some namespaces, whatever they do about it. A namespace lives on while a process is in it.
pub(crate) fn kill_processes(names: &[String]) -> Result<()> {
    let step = Duration::from_millis(2);
    let mut waited = Duration::ZERO;
    loop {
        let left = processes(names);
        let Some((_, some)) = left.first() else { return Ok(()) };
        if waited > LAST_MOMENTS {
            return Err(Error::System {
                what: format!("process {some} does not end"),
                error: io::Error::from(io::ErrorKind::TimedOut),
            });
        }
        for (_, pid) in &left {
            // Gone in between is what is wanted.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        thread::sleep(step);
        waited += step;
    }
}

/// Removes a namespace if it exists; devices go with it.
pub(crate) fn remove(name: &str) -> Result<()> {
    let file = path(name);
    match umount2(&file, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {} // never mounted: `up` was interrupted in between
        Err(errno) => return Err(errno).doing(|| format!("the namespace {name} cannot be unmounted")),
    }
    match fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).doing(|| format!("the namespace {name} cannot be removed"))
        }
        _ => Ok(()),
    }
}

/// Sets a kernel variable of the calling thread's namespace.
pub(crate) fn set(key: &str, value: &str) -> Result<()> {
    fs::write(format!("/proc/sys/net/{key}"), value).map_err(|error| Error::MissingFeature {
        what: format!("net.{} = {value}", key.replace('/', ".")),
        reason: error.to_string(),
        option: "CONFIG_IP_ROUTE_MULTIPATH and Linux 5.12 or newer (multipath hash fields)",
    })
}
