//! The namespaces of a machine: a mount namespace, and where this user may not have one a user namespace around it.
//!
//! `/sys` and `/dev` stay the host's but for what is put into them. A directory of the host's that is to have more entries gets a
//! small file system on top, into which its old entries are bound again; those of them that are to have more entries themselves are
//! made anew in it, and so on. So paths, and links between them, lead where they always have.

use super::topology;
use anyhow::{Context, anyhow, bail};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{getegid, geteuid};
use srd_machine::{DRIVER, Description, Tree};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const NOTHING: Option<&str> = None;

/// Directories that get a file system on top.
const COVERED: [&str; 3] = ["/sys/bus", "/sys/class", "/sys/devices"];

/// Of those below, the ones that get more entries. (Besides them, the roots of the devices on PCI.)
const OPENED: [&str; 7] = [
    "/sys/bus/pci",
    "/sys/bus/pci/devices",
    "/sys/bus/pci/drivers",
    "/sys/class/pci_bus",
    "/sys/devices/virtual",
    "/sys/devices/virtual/dmi",
    "/sys/devices/virtual/dmi/id",
];

/// The host's that are not to be seen: RDMA devices of its own, and what its firmware says it is.
const REPLACED: [&str; 10] = [
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/devices/virtual/opensrd",
    "/sys/devices/virtual/dmi/id/product_name",
    "/sys/devices/virtual/dmi/id/sys_vendor",
    "/sys/devices/virtual/dmi/id/board_vendor",
    "/sys/devices/virtual/dmi/id/bios_vendor",
    "/sys/devices/virtual/dmi/id/chassis_vendor",
    "/sys/devices/virtual/dmi/id/board_asset_tag",
    "/sys/devices/virtual/dmi/id/chassis_asset_tag",
];

/// What helps where a container keeps the machine from being made.
const CONTAINER: &str = "start the container with --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
                         (docker, podman), or start it within a machine on the host";

/// How a file system on top is mounted.
const SMALL: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NOEXEC);

/// Moves this process into new namespaces, with the devices of `machine` in them. `own` takes the place of the directory it lies in.
pub fn enter_new(machine: &Description, instance_id: &str, own: &Path) -> anyhow::Result<()> {
    let (user, group) = (geteuid(), getegid());
    let directory = std::env::current_dir();
    if let Err(first) = unshare(CloneFlags::CLONE_NEWNS) {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
            .map_err(|error| refused(first, error))?;
        // The same numbers inside and outside, so that programs find themselves to be who they are.
        let map = |file: &str, text: String| {
            let path = format!("/proc/self/{file}");
            fs::write(&path, text).map_err(|error| cannot_map(&path, &error))
        };
        map("setgroups", "deny".to_owned())?;
        map("uid_map", format!("{user} {user} 1"))?;
        map("gid_map", format!("{group} {group} 1"))?;
    }
    // What the host mounts later appears here, too; what is mounted here, nowhere else.
    mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_SLAVE, NOTHING).map_err(|error| match error {
        Errno::EINVAL => anyhow!(
            "/ is a directory of another file system here, as in a chroot, and no place for mounts; start the machine outside of it, or \
             make the directory a mount of its own before: `mount --rbind DIR DIR`"
        ),
        other => cannot_mount(other),
    })?;
    fill_sys(machine, instance_id)?;
    fill_dev(machine)?;
    let above = own.parent().context("a machine's directory lies in another")?;
    mount(Some(own), above, NOTHING, MsFlags::MS_BIND, NOTHING).map_err(cannot_mount)?;
    return_to(directory);
    Ok(())
}

/// Back to where this process was: the directory of that path in the machine. One that is not there is the only reason to be elsewhere.
fn return_to(directory: io::Result<PathBuf>) {
    if let Ok(directory) = directory {
        let _ = std::env::set_current_dir(directory);
    }
}

/// Moves this process into the namespaces of another.
pub fn enter(pid: i32) -> anyhow::Result<()> {
    let directory = std::env::current_dir();
    let open = |kind: &str| {
        let path = format!("/proc/{pid}/ns/{kind}");
        File::open(&path).with_context(|| format!("cannot open {path}: its last process has ended"))
    };
    let (user, mounts) = (open("user")?, open("mnt")?);
    let same_user = fs::read_link(format!("/proc/{pid}/ns/user"))? == fs::read_link("/proc/self/ns/user")?;
    if !same_user {
        setns(&user, CloneFlags::CLONE_NEWUSER).context("its user namespace")?;
    }
    setns(&mounts, CloneFlags::CLONE_NEWNS).context("its mount namespace")?;
    return_to(directory);
    Ok(())
}

/// Why there are no namespaces, and what to do.
fn refused(mounts: Errno, user: Errno) -> anyhow::Error {
    let setting = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let what = format!(
        "neither a mount namespace ({}) nor a user namespace ({}) is permitted here",
        mounts.desc(),
        user.desc()
    );
    let advice = if setting("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        "this host keeps user namespaces from its users: `sysctl -w kernel.unprivileged_userns_clone=1`, or run srd as root"
    } else if setting("/proc/sys/user/max_user_namespaces").as_deref() == Some("0") {
        "this host permits no user namespaces: `sysctl -w user.max_user_namespaces=10000`, or run srd as root"
    } else if user == Errno::EINVAL {
        "this kernel has no user namespaces (CONFIG_USER_NS): run srd as root"
    } else if setting("/proc/self/status").is_some_and(|status| status.contains("Seccomp:\t2")) {
        return anyhow!("{what}; a seccomp profile forbids it: {CONTAINER}");
    } else {
        "run srd as root, or where users may have namespaces of their own"
    };
    anyhow!("{what}; {advice}")
}

/// user_namespaces(7): who maps root's number needs CAP_SETFCAP.
fn cannot_map(path: &str, error: &io::Error) -> anyhow::Error {
    anyhow!(
        "cannot write {path} ({error}): this user may not be in a user namespace of its own, as root without its capabilities; run srd as \
         another user, or {CONTAINER}"
    )
}

fn cannot_mount(error: Errno) -> anyhow::Error {
    let restricted = fs::read_to_string("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    let advice = if restricted.is_ok_and(|text| text.trim() == "1") {
        "AppArmor keeps users from mounting in namespaces of their own: `sysctl -w \
         kernel.apparmor_restrict_unprivileged_userns=0`, or run srd as root"
    } else {
        CONTAINER
    };
    anyhow!("nothing may be mounted in the machine's namespace ({}); {advice}", error.desc())
}

fn fill_sys(machine: &Description, instance_id: &str) -> anyhow::Result<()> {
    let mut opened: Vec<PathBuf> = OPENED.map(PathBuf::from).into();
    opened.extend(machine.devices.iter().map(|device| Path::new("/sys/devices").join(device.pci.root())));
    for directory in COVERED {
        cover(Path::new(directory), &opened)?;
    }
    let tree = Tree::at(Path::new("/sys"));
    let write = || -> io::Result<()> {
        tree.begin()?;
        machine.devices.iter().try_for_each(|device| tree.add(device, env!("CARGO_PKG_VERSION")))?;
        tree.describe(machine, instance_id)?;
        if let Some(text) = topology::xml(Path::new("/sys")) {
            fs::write(topology::FILE, text)?;
        }
        let dmi = Path::new("/sys/class/dmi");
        if !dmi.exists() {
            fs::create_dir(dmi)?;
            symlink("../../devices/virtual/dmi/id", dmi.join("id"))?;
        }
        Ok(())
    };
    write().with_context(|| format!("cannot write the files of the {DRIVER} devices"))?;
    // Nobody makes files there, as in the kernel's. (Counters change, and lie below /sys/devices.)
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | SMALL;
    for directory in COVERED.iter().filter(|directory| **directory != "/sys/devices") {
        mount(NOTHING, *directory, NOTHING, read_only, NOTHING).map_err(cannot_mount)?;
    }
    Ok(())
}

/// Puts a file system on top of a directory, with its old entries.
fn cover(directory: &Path, opened: &[PathBuf]) -> anyhow::Result<()> {
    let old = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_PATH | OFlag::O_DIRECTORY).bits())
        .open(directory)
        .with_context(|| format!("cannot open {}", directory.display()))?;
    small_file_system(directory)?;
    bind_entries(&old_path(&old), directory, opened)
}

/// The old directory, which has another on top now.
fn old_path(old: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", old.as_raw_fd()))
}

fn small_file_system(at: &Path) -> anyhow::Result<()> {
    mount(Some("opensrd"), at, Some("tmpfs"), SMALL, Some("mode=755,size=64m")).map_err(cannot_mount)
}

fn bind_entries(old: &Path, new: &Path, opened: &[PathBuf]) -> anyhow::Result<()> {
    let entries = fs::read_dir(old).with_context(|| format!("cannot list {}", new.display()))?;
    for entry in entries {
        let entry = entry?;
        let (from, to) = (entry.path(), new.join(entry.file_name()));
        if REPLACED.iter().any(|replaced| to == Path::new(replaced)) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
        } else if kind.is_dir() && opened.contains(&to) {
            fs::create_dir(&to)?;
            bind_entries(&from, &to, opened)?;
        } else {
            if kind.is_dir() {
                fs::create_dir(&to)?
            } else {
                drop(File::create(&to)?)
            }
            bind(&from, &to)?;
        }
    }
    Ok(())
}

fn bind(from: &Path, to: &Path) -> anyhow::Result<()> {
    match mount(Some(from), to, NOTHING, MsFlags::MS_BIND | MsFlags::MS_REC, NOTHING) {
        // It has gone meanwhile, as devices do.
        Err(Errno::ENOENT) => {
            let _ = if to.is_dir() { fs::remove_dir(to) } else { fs::remove_file(to) };
            Ok(())
        }
        result => result.map_err(cannot_mount),
    }
}

/// `/dev/infiniband`: a character device for each verbs device, that can be opened for reading and writing as programs want it
/// (Mooncake, UCX) and refuses to be written to or asked, as `/dev/full` does: what there is to open is in libibverbs.
fn fill_dev(machine: &Description) -> anyhow::Result<()> {
    let directory = Path::new("/dev/infiniband");
    if directory.is_dir() {
        small_file_system(directory)?;
    } else {
        cover(Path::new("/dev"), &[])?;
        fs::create_dir(directory)?;
    }
    let stand_in = ["/dev/full", "/dev/null"].into_iter().map(Path::new).find(|path| path.exists());
    let Some(stand_in) = stand_in else { bail!("there is neither /dev/full nor /dev/null here") };
    for device in &machine.devices {
        let node = directory.join(device.verbs_name());
        let mode = Mode::from_bits_truncate(0o666);
        // One of its own, if root makes it: then it is known who opens it (`watch.rs`).
        if mknod(&node, SFlag::S_IFCHR, mode, makedev(1, 7)).is_ok()
            && OpenOptions::new().read(true).open(&node).is_ok()
        {
            fs::set_permissions(&node, Permissions::from_mode(0o666))?;
            continue;
        }
        let _ = fs::remove_file(&node);
        File::create(&node)?;
        bind(stand_in, &node)?;
    }
    Ok(())
}
