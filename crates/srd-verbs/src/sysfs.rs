//! The files about a device that the kernel would show under `/sys`, in a private directory.
//!
//! libfabric, UCX and MPI look there for driver, PCI address and numbers that verbs do not report; they find the
//! place through `ibdev_path` of the device and the variable `SYSFS_PATH` (docs/design/efa-verbs.md, "Lookups outside verbs").
//! The directory belongs to this process: nobody else may read it, it goes when the process exits, and the next one
//! sweeps up after processes that were killed.

use crate::profile::{self, Profile};
use srd_net::log;
use srd_wire::Gid;
use std::ffi::{CString, OsString};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// What every such directory's name begins with.
const PREFIX: &str = "opensrd-efa-";

/// Version of the kernel's verbs interface, as its file says (`IB_USER_VERBS_ABI_VERSION`).
pub(crate) const VERBS_ABI_VERSION: &str = "6";

/// What the name of one that nobody has locked yet ends with.
const UNLOCKED: &str = ".new";

/// Driver's name, to which `device/driver` must lead.
const DRIVER: &str = "efa";

/// The tree of this process.
pub(crate) struct Tree {
    root: PathBuf,
    /// Locked for as long as the process lives: this is how others tell a live directory from one left behind, also
    /// across PID namespaces that share the directory.
    _lock: File,
}

/// What there is to say about a device.
pub(crate) struct DeviceFiles<'a> {
    /// Name of the device.
    pub name: &'a str,
    /// Its only GID.
    pub gid: Gid,
    /// Its GUID.
    pub guid: u64,
    /// PCI address.
    pub pci: &'a str,
    /// Rate of the port.
    pub gbps: u64,
    /// What it resembles.
    pub profile: Profile,
}

impl Tree {
    /// Makes a tree for this process, and tells programs where it is.
    pub fn new() -> Result<Tree, String> {
        let base = base_directory();
        let tree = Tree::create(&base).map_err(|e| {
            format!(
                "cannot make a directory in {}: {e}; set TMPDIR to one that exists and can be written",
                base.display()
            )
        })?;
        tree.announce();
        Ok(tree)
    }

    /// Removes the files, at the end of the process.
    pub fn remove(&self) {
        remove_tree(&self.root);
    }

    fn create(base: &Path) -> io::Result<Tree> {
        sweep(base);
        let (root, lock) = private_directory(base)?;
        let tree = Tree { root, _lock: lock };
        let verbs = tree.root.join("class/infiniband_verbs");
        fs::create_dir_all(&verbs)?;
        fs::write(verbs.join("abi_version"), format!("{VERBS_ABI_VERSION}\n"))?;
        fs::create_dir_all(tree.root.join("class/infiniband"))?;
        fs::create_dir_all(tree.driver())?;
        Ok(tree)
    }

    /// `SYSFS_PATH`, for libfabric and children of this process. Set when the program first asks for devices, not when
    /// the library is loaded: nobody looks before that, and a process that never asks keeps its environment.
    fn announce(&self) {
        if let Ok(path) = CString::new(self.root.as_os_str().as_encoded_bytes()) {
            // SAFETY: both are C strings. Other threads that read the environment at this very moment see the old
            // value or the new one: glibc keeps the old block.
            unsafe { libc::setenv(c"SYSFS_PATH".as_ptr(), path.as_ptr(), 1) };
        }
    }

    fn driver(&self) -> PathBuf {
        self.root.join("bus/pci/drivers").join(DRIVER)
    }

    /// Path of the device's verbs class directory (`dev_path`).
    pub fn dev_path(&self, name: &str) -> PathBuf {
        self.root.join("class/infiniband_verbs").join(name)
    }

    /// Path of the device's own class directory (`ibdev_path`).
    pub fn ibdev_path(&self, name: &str) -> PathBuf {
        self.root.join("class/infiniband").join(name)
    }

    /// Writes everything about one device.
    pub fn add(&self, device: &DeviceFiles<'_>) -> io::Result<()> {
        let pci = self.root.join("devices").join(device.pci);
        fs::create_dir_all(&pci)?;
        write_all(
            &pci,
            &[
                ("vendor", format!("{:#06x}", profile::VENDOR_ID)),
                ("device", format!("{:#06x}", device.profile.part_id)),
                ("subsystem_vendor", format!("{:#06x}", profile::VENDOR_ID)),
                ("subsystem_device", format!("{:#06x}", device.profile.part_id)),
                ("class", "0x020000".into()),
                ("numa_node", "-1".into()),
                ("current_link_speed", "16.0 GT/s PCIe".into()),
                ("current_link_width", "16".into()),
                ("max_link_speed", "16.0 GT/s PCIe".into()),
                ("max_link_width", "16".into()),
            ],
        )?;
        link(&self.driver(), &pci.join("driver"))?;

        let ibdev = self.ibdev_path(device.name);
        fs::create_dir_all(&ibdev)?;
        link(&pci, &ibdev.join("device"))?;
        write_all(
            &ibdev,
            &[
                ("node_type", "7: <unspecified>".into()),
                ("node_guid", groups(device.guid)),
                ("sys_image_guid", groups(device.guid)),
                ("node_desc", "OpenSRD software EFA".into()),
                ("fw_ver", env!("CARGO_PKG_VERSION").into()),
            ],
        )?;
        let port = ibdev.join("ports/1");
        fs::create_dir_all(port.join("gids"))?;
        fs::create_dir_all(port.join("pkeys"))?;
        write_all(
            &port,
            &[
                ("state", "4: ACTIVE".into()),
                ("phys_state", "5: LinkUp".into()),
                ("rate", format!("{} Gb/sec", device.gbps)),
                ("link_layer", "Unspecified".into()),
                ("lid", "0x0".into()),
                ("lid_mask_count", "1".into()),
                ("sm_lid", "0x0".into()),
                ("sm_sl", "0".into()),
                ("cap_mask", "0x00000000".into()),
                ("gids/0", gid_groups(device.gid)),
                ("pkeys/0", "0xffff".into()),
            ],
        )?;

        let verbs = self.dev_path(device.name);
        fs::create_dir_all(&verbs)?;
        link(&pci, &verbs.join("device"))?;
        write_all(&verbs, &[("ibdev", device.name.into()), ("abi_version", "1".into())])
    }
}

/// `$XDG_RUNTIME_DIR` if it is ours, otherwise the directory for temporary files.
fn base_directory() -> PathBuf {
    // SAFETY: cannot fail.
    let uid = unsafe { libc::geteuid() };
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| fs::metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid))
        .unwrap_or_else(std::env::temp_dir)
}

/// A new directory that only we can enter, under a name that nobody could have taken before, and its lock. It gets
/// that name once it is locked: another process's sweep would take the lock of one that nobody holds yet.
fn private_directory(base: &Path) -> io::Result<(PathBuf, File)> {
    for attempt in 0u32.. {
        let name = format!("{PREFIX}{}-{:08x}", std::process::id(), random(attempt));
        let unlocked = base.join(format!("{name}{UNLOCKED}"));
        match DirBuilder::new().mode(0o700).create(&unlocked) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => continue,
            result => result?,
        }
        let lock = File::create(unlocked.join("lock"))?;
        try_lock(&lock)?;
        let path = base.join(name);
        fs::rename(&unlocked, &path)?;
        return Ok((path, lock));
    }
    unreachable!("the loop returns")
}

fn random(attempt: u32) -> u32 {
    let mut bytes = attempt.to_ne_bytes();
    // SAFETY: the buffer has that length. Failure leaves a number that is merely easier to guess; `mkdir` does not
    // follow what another user may have put there.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    u32::from_ne_bytes(bytes)
}

fn try_lock(file: &File) -> io::Result<()> {
    // SAFETY: a system call on a descriptor that is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Removes a tree, the lock last: if the process is killed meanwhile, the next one still sees that nobody holds it.
fn remove_tree(root: &Path) {
    for entry in
        fs::read_dir(root).into_iter().flatten().flatten().filter(|entry| entry.file_name() != "lock")
    {
        let _ = fs::remove_dir_all(entry.path());
    }
    let _ = fs::remove_dir_all(root);
}

/// Removes trees whose process is gone.
fn sweep(base: &Path) {
    // SAFETY: cannot fail.
    let uid = unsafe { libc::geteuid() };
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(PREFIX) || !meta.is_dir() || meta.uid() != uid {
            continue;
        }
        let is_unlocked = name.ends_with(UNLOCKED);
        let is_old = || meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age.as_secs() > 60));
        let abandoned = match File::open(entry.path().join("lock")) {
            Ok(lock) if !is_unlocked || is_old() => try_lock(&lock).is_ok(),
            Ok(_) => false,
            // It is being made, which takes a moment, or was being removed.
            Err(_) => is_old(),
        };
        if abandoned {
            log::debug(format_args!("removing {}: its process is gone", entry.path().display()));
            remove_tree(&entry.path());
        }
    }
}

fn write_all(directory: &Path, files: &[(&str, String)]) -> io::Result<()> {
    files.iter().try_for_each(|(name, content)| fs::write(directory.join(name), format!("{content}\n")))
}

fn link(target: &Path, at: &Path) -> io::Result<()> {
    match symlink(target, at) {
        // Two devices may share a PCI address.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// The kernel's way to write a GUID: four groups of four hexadecimal digits.
fn groups(guid: u64) -> String {
    let group = |shift: u32| (guid >> shift) as u16;
    format!("{:04x}:{:04x}:{:04x}:{:04x}", group(48), group(32), group(16), group(0))
}

/// The kernel's way to write a GID.
fn gid_groups(gid: Gid) -> String {
    gid.0
        .chunks(2)
        .map(|pair| format!("{:04x}", u16::from_be_bytes([pair[0], pair[1]])))
        .collect::<Vec<_>>()
        .join(":")
}

/// Where the system's files are: `SYSFS_PATH`, unless privileges were gained at start, otherwise `/sys`.
pub(crate) fn system_root() -> OsString {
    // SAFETY: cannot fail.
    let privileged = unsafe { libc::getuid() != libc::geteuid() };
    std::env::var_os("SYSFS_PATH").filter(|_| !privileged).unwrap_or_else(|| "/sys".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("srd-verbs-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn example() -> DeviceFiles<'static> {
        DeviceFiles {
            name: "rdmap0s31",
            gid: Gid::from("10.1.2.3".parse::<std::net::IpAddr>().unwrap()),
            guid: 0x0253_5244_0a01_0203,
            pci: "0000:00:00.0",
            gbps: 100,
            profile: Profile::from_env().unwrap(),
        }
    }

    #[test]
    fn the_tree_leads_to_driver_and_pci_address() {
        let base = scratch("tree");
        let tree = Tree::create(&base).unwrap();
        tree.add(&example()).unwrap();
        let device = tree.ibdev_path("rdmap0s31").join("device");
        assert_eq!(fs::canonicalize(&device).unwrap().file_name().unwrap(), "0000:00:00.0");
        assert_eq!(fs::canonicalize(device.join("driver")).unwrap().file_name().unwrap(), "efa");
        let read = |path: &str| fs::read_to_string(tree.ibdev_path("rdmap0s31").join(path)).unwrap();
        assert_eq!(read("node_guid"), "0253:5244:0a01:0203\n");
        assert_eq!(read("ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:0a01:0203\n");
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn only_the_owner_may_enter_the_tree() {
        let base = scratch("mode");
        let tree = Tree::create(&base).unwrap();
        assert_eq!(fs::metadata(&tree.root).unwrap().permissions().mode() & 0o777, 0o700);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn processes_that_start_together_do_not_sweep_each_other_away() {
        let base = scratch("together");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let tree = Tree::create(&base).unwrap();
                        assert!(tree.driver().exists());
                        tree.remove();
                    }
                });
            }
        });
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn trees_of_dead_processes_are_swept_and_those_of_live_ones_stay() {
        let base = scratch("sweep");
        let dead = Tree::create(&base).unwrap().root.clone();
        let live = Tree::create(&base).unwrap();
        assert!(!dead.exists(), "its lock went with the object");
        let _new = Tree::create(&base).unwrap();
        assert!(live.root.exists());
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn one_that_was_never_locked_stays_for_a_minute() {
        let base = scratch("never-locked");
        let path = base.join(format!("{PREFIX}1-0{UNLOCKED}"));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("lock"), "").unwrap();
        sweep(&base);
        assert!(path.exists(), "its process may be about to lock it");
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(70);
        File::open(&path).unwrap().set_modified(old).unwrap();
        sweep(&base);
        assert!(!path.exists());
        fs::remove_dir_all(base).unwrap();
    }
}
