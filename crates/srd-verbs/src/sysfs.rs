//! Where the files about devices are that the kernel would show under `/sys` (`srd-machine` writes them): in a machine of `srd run
//! --machine` in its `/sys` itself, otherwise in a private directory.
//!
//! libfabric, UCX and MPI look there for driver, PCI address and numbers that verbs do not report; they find the
//! place through `ibdev_path` of the device and the variable `SYSFS_PATH` (docs/design/efa-verbs.md, "Lookups outside verbs").
//! A private directory belongs to this process: nobody else may read it, it goes when the process exits, and the next one
//! sweeps up after processes that were killed.

use srd_machine::{LockedDirectory, Tree};
use srd_net::log;
use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What every such directory's name begins with.
const PREFIX: &str = "opensrd-efa-";

/// The tree of this process.
pub(crate) struct PrivateTree {
    directory: LockedDirectory,
    tree: Tree,
}

impl PrivateTree {
    /// Makes a tree for this process, and tells programs where it is.
    pub fn new() -> Result<PrivateTree, String> {
        let base = base_directory();
        let tree = PrivateTree::create(&base).map_err(|e| {
            format!(
                "cannot make a directory in {}: {e}; set TMPDIR to one that exists and can be written",
                base.display()
            )
        })?;
        tree.announce();
        Ok(tree)
    }

    /// What is in it.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Removes the files, at the end of the process.
    pub fn remove(&self) {
        self.directory.remove();
    }

    fn create(base: &Path) -> io::Result<PrivateTree> {
        for swept in LockedDirectory::sweep(base, PREFIX) {
            log::debug(format_args!("removed {}: its process is gone", swept.display()));
        }
        let directory = LockedDirectory::make(base, PREFIX)?;
        let tree = Tree::at(directory.path());
        tree.begin()?;
        Ok(PrivateTree { directory, tree })
    }

    /// `SYSFS_PATH`, for libfabric and children of this process. Set when the program first asks for devices, not when
    /// the library is loaded: nobody looks before that, and a process that never asks keeps its environment.
    fn announce(&self) {
        if let Ok(path) = CString::new(self.tree.root().as_os_str().as_encoded_bytes()) {
            // SAFETY: both are C strings. Other threads that read the environment at this very moment see the old
            // value or the new one: glibc keeps the old block.
            unsafe { libc::setenv(c"SYSFS_PATH".as_ptr(), path.as_ptr(), 1) };
        }
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

/// Where the system's files are: `SYSFS_PATH`, unless privileges were gained at start, otherwise `/sys`.
pub(crate) fn system_root() -> OsString {
    // SAFETY: cannot fail.
    let privileged = unsafe { libc::getuid() != libc::geteuid() };
    std::env::var_os("SYSFS_PATH").filter(|_| !privileged).unwrap_or_else(|| "/sys".into())
}
