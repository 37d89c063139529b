//! Packet sockets where the process's control group has a packet filter. The test puts its own process into such a group, and is
//! skipped where there are none.

#[path = "namespace/bpf.rs"]
mod bpf;
mod namespace;
mod support;

use namespace::{Namespaces, skip};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Instant;
use support::traffic::exchange;
use support::{Host, PATIENCE, options};

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
        bpf::filter_group(&fs::File::open(&self.0)?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let above = self.0.parent().unwrap().join("cgroup.procs");
        let _ = fs::write(above, std::process::id().to_string());
        let _ = fs::remove_dir(&self.0);
    }
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
