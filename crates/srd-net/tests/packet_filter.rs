//! Packet sockets where the process's control group has a packet filter. The test puts its own process into such a group, and is
//! skipped where there are none.

mod namespace;
mod support;

use namespace::{Namespaces, skip};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;
use support::traffic::exchange;
use support::{Host, PATIENCE, options};

const PROG_LOAD: libc::c_long = 5; // BPF_PROG_LOAD
const PROG_ATTACH: libc::c_long = 8; // BPF_PROG_ATTACH
const CGROUP_SKB: u32 = 8; // BPF_PROG_TYPE_CGROUP_SKB
const INGRESS: u32 = 0; // BPF_CGROUP_INET_INGRESS
/// `r0 = 1; exit`: let everything pass.
const PASS: [u64; 2] = [0x0000_0001_0000_00b7, 0x0000_0000_0000_0095];

/// A control group of this test's own.
struct Group(PathBuf);

impl Group {
    fn new() -> io::Result<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let at = mount.and_then(|line| line.split(' ').nth(1)).ok_or(io::ErrorKind::NotFound)?;
        let group = Group(PathBuf::from(at).join(format!("srdnet-{}", std::process::id())));
        fs::create_dir(&group.0)?;
        Ok(group)
    }

    fn enter(&self) -> io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), std::process::id().to_string())
    }

    /// Makes a program that lets everything pass its filter of what comes in.
    fn filter(&self) -> io::Result<()> {
        let directory = fs::File::open(&self.0)?;
        let mut load = [0u64; 16];
        load[0] = u64::from(CGROUP_SKB) | (PASS.len() as u64) << 32;
        load[1] = PASS.as_ptr() as u64;
        load[2] = c"GPL".as_ptr() as u64;
        let program = bpf(PROG_LOAD, &mut load)?;
        // SAFETY: a descriptor that nobody else has.
        let program = unsafe { OwnedFd::from_raw_fd(program as i32) };
        let mut attach = [0u64; 16];
        attach[0] = directory.as_raw_fd() as u64 | (program.as_raw_fd() as u64) << 32;
        attach[1] = u64::from(INGRESS);
        bpf(PROG_ATTACH, &mut attach).map(drop)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let above = self.0.parent().unwrap().join("cgroup.procs");
        let _ = fs::write(above, std::process::id().to_string());
        let _ = fs::remove_dir(&self.0);
    }
}

fn bpf(command: libc::c_long, attributes: &mut [u64; 16]) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads what the attributes point to, which lives on, and writes no more than them.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size_of_val(attributes)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Packets that a host has sent by packet sockets.
fn short(host: &Host) -> u64 {
    host.instance.stats().unwrap().transmit.by_packet_socket
}

#[test]
fn packets_of_a_filtered_control_group_stay_with_udp() {
    let Some(pair) = Namespaces::new("wirecgroup", 1500) else { return };
    let group = match Group::new().and_then(|group| group.enter().map(|()| group)) {
        Ok(group) => group,
        Err(why) => {
            return skip::kernel_lacks(format_args!("needs to make a control group of version 2: {why}"));
        }
    };
    let open = |side| pair.run(side, || Host::with_options(&options("e0", &["SRD_WIRE=auto"])));
    let (mut a, mut b) = (open(0), open(1));
    let start = Instant::now();
    while short(&a) == 0 {
        assert!(start.elapsed() < PATIENCE, "without a filter they are used: {}", a.report());
        exchange(&mut a, &mut b, 1);
    }
    if let Err(why) = group.filter() {
        return skip::kernel_lacks(format_args!("needs to load a BPF program: {why}"));
    }
    let start = Instant::now();
    loop {
        let before = short(&a);
        exchange(&mut a, &mut b, 2);
        if short(&a) == before {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "it is looked for again and again: {}", a.report());
    }
    let mut c = open(0);
    exchange(&mut c, &mut b, 3);
    assert_eq!(short(&c), 0, "{}", c.report());
}
