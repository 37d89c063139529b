//! Being in a host as on a machine of its own: its network, its name, names of the other hosts, shared memory. For launchers that
//! start programs by ssh, and for programs that would otherwise find themselves on one machine and take a short cut past the
//! network.

use crate::error::{Doing, Result};
use crate::lab::Lab;
use crate::namespace::enter;
use crate::state::directory;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// The hosts' names for /etc/hosts, beside a lab's notes.
fn hosts_file(lab: &str) -> PathBuf {
    directory(lab).join("hosts")
}

/// Writes the names of all hosts, with their management addresses: launchers talk there.
pub(crate) fn write_hosts(lab: &Lab) -> Result<()> {
    let mut text = String::from("127.0.0.1 localhost\n");
    for host in lab.hosts() {
        let _ = writeln!(text, "{} {}", host.management_address, host.name);
    }
    let file = hosts_file(lab.name());
    fs::write(&file, text).doing(|| format!("cannot write {}", file.display()))
}

impl Lab {
    /// Takes the calling process, which must have one thread only, into a host. There is no way back: for a process that is
    /// about to replace itself with a program.
    pub fn become_host(&self, host: usize) -> Result<()> {
        let host = &self.hosts()[host];
        enter(&host.namespace)?;
        let own = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
        let what = || format!("cannot make {} a machine of its own", host.name);
        unshare(own).doing(what)?;
        let nothing = None::<&str>;
        // What is mounted from here on is seen here only.
        mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).doing(what)?;
        // /sys shows the devices of the namespace in which it was mounted.
        let _ = umount2("/sys", MntFlags::MNT_DETACH);
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), nothing).doing(what)?;
        mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), nothing).doing(what)?;
        let names = hosts_file(self.name());
        mount(Some(&names), "/etc/hosts", nothing, MsFlags::MS_BIND, nothing).doing(what)?;
        nix::unistd::sethostname(&host.name).doing(what)
    }
}
