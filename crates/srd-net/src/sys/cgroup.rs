//! Packet filters of the control group that this process is in: BPF programs, as systemd's `IPAddressDeny=` makes them
//! (bpf(2), cgroups(7); linux/bpf.h).

use super::bpf::programs_at;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const EFFECTIVE: u32 = 1; // BPF_F_QUERY_EFFECTIVE: those of groups above, too
const DIRECTIONS: [u32; 2] = [0, 1]; // BPF_CGROUP_INET_INGRESS, BPF_CGROUP_INET_EGRESS

/// Where control groups of version 2 are mounted, if they are.
#[derive(Debug)]
pub struct Groups {
    /// Which of them is there, and where that is.
    mount: Option<(PathBuf, PathBuf)>,
}

impl Groups {
    /// As this process sees them now.
    pub fn new() -> io::Result<Groups> {
        let mounts = fs::read("/proc/self/mountinfo")?;
        let mount = mounts.split(|&byte| byte == b'\n').find_map(|mount| {
            let mut fields = mount.split(|&byte| byte == b' ');
            let (root, at) = (fields.nth(3)?, fields.next()?);
            let kind = fields.skip_while(|field| field != b"-").nth(1)?;
            let path = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
            (kind == b"cgroup2").then(|| (path(root), path(at)))
        });
        Ok(Groups { mount })
    }

    /// Whether that of this process has such filters. Takes CAP_NET_ADMIN where there are such groups.
    pub fn has_packet_filter(&self) -> io::Result<bool> {
        let Some(group) = self.own()? else { return Ok(false) };
        for direction in DIRECTIONS {
            if programs_at(group.as_raw_fd() as u32, direction, EFFECTIVE)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The directory of the group; `None` if there are no such groups here.
    fn own(&self) -> io::Result<Option<File>> {
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let Some(own) = groups.lines().find_map(|line| line.strip_prefix("0::")) else { return Ok(None) };
        let found =
            self.mount.as_ref().and_then(|(root, at)| Some(at.join(Path::new(own).strip_prefix(root).ok()?)));
        match found {
            Some(directory) => File::open(directory).map(Some),
            None if own == "/" => Ok(None),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }
}
