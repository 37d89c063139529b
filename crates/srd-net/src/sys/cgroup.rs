//! Packet filters of the control group that this process is in: BPF programs, as systemd's `IPAddressDeny=` makes them
//! (bpf(2), cgroups(7); linux/bpf.h).

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const PROG_QUERY: libc::c_long = 16; // BPF_PROG_QUERY
const EFFECTIVE: u32 = 1; // BPF_F_QUERY_EFFECTIVE: those of groups above, too
const DIRECTIONS: [u32; 2] = [0, 1]; // BPF_CGROUP_INET_INGRESS, BPF_CGROUP_INET_EGRESS

/// That part of `union bpf_attr`.
#[repr(C)]
struct Query {
    target_fd: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    prog_cnt: u32,
    end: u32,
}

/// Whether there are such filters. Takes CAP_NET_ADMIN where there are control groups of version 2.
pub fn has_packet_filter() -> io::Result<bool> {
    let Some(group) = own_group()? else { return Ok(false) };
    for direction in DIRECTIONS {
        let mut query = Query {
            target_fd: group.as_raw_fd() as u32,
            attach_type: direction,
            query_flags: EFFECTIVE,
            attach_flags: 0,
            prog_ids: 0,
            prog_cnt: 0,
            end: 0,
        };
        // SAFETY: the kernel reads and writes no more than the struct.
        if unsafe { libc::syscall(libc::SYS_bpf, PROG_QUERY, &raw mut query, size_of::<Query>()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if query.prog_cnt > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The directory of the group of version 2; `None` if there are no such groups here.
fn own_group() -> io::Result<Option<File>> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let Some(own) = groups.lines().find_map(|line| line.strip_prefix("0::")) else { return Ok(None) };
    let mounts = fs::read("/proc/self/mountinfo")?;
    for mount in mounts.split(|&byte| byte == b'\n') {
        let mut fields = mount.split(|&byte| byte == b' ');
        let (root, at) = (fields.nth(3), fields.next());
        let kind = fields.skip_while(|field| field != b"-").nth(1);
        if let (Some(b"cgroup2"), Some(root), Some(at)) = (kind, root, at)
            && let Ok(below) = Path::new(own).strip_prefix(OsStr::from_bytes(root))
        {
            return File::open(Path::new(OsStr::from_bytes(at)).join(below)).map(Some);
        }
    }
    if own == "/" { Ok(None) } else { Err(io::Error::from(io::ErrorKind::NotFound)) }
}
