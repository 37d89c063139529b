//! BPF programs that let everything pass (bpf(2), linux/bpf.h).
#![allow(dead_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const PROG_LOAD: libc::c_long = 5; // BPF_PROG_LOAD
const PROG_ATTACH: libc::c_long = 8; // BPF_PROG_ATTACH
const LINK_CREATE: libc::c_long = 28; // BPF_LINK_CREATE
const SCHED_CLS: u32 = 3; // BPF_PROG_TYPE_SCHED_CLS
const XDP: u32 = 6; // BPF_PROG_TYPE_XDP
const CGROUP_SKB: u32 = 8; // BPF_PROG_TYPE_CGROUP_SKB
const AT_XDP: u64 = 37; // BPF_XDP
const AT_TCX_INGRESS: u64 = 46; // BPF_TCX_INGRESS
const INGRESS: u64 = 0; // BPF_CGROUP_INET_INGRESS

/// A program that consists of `r0 = result; exit`.
fn load(kind: u32, result: u32, name: &[u8; 8]) -> io::Result<OwnedFd> {
    let program = [u64::from(result) << 32 | 0xb7, 0x95];
    let mut load = [0u64; 16];
    load[0] = u64::from(kind) | (program.len() as u64) << 32;
    load[1] = program.as_ptr() as u64;
    load[2] = c"GPL".as_ptr() as u64;
    load[6] = u64::from_ne_bytes(*name);
    open(PROG_LOAD, &mut load)
}

/// Makes such a program the filter of what comes in for a control group.
pub fn filter_group(directory: &std::fs::File) -> io::Result<()> {
    let program = load(CGROUP_SKB, 1, b"pass\0\0\0\0")?;
    let mut attach = [0u64; 16];
    attach[0] = directory.as_raw_fd() as u64 | (program.as_raw_fd() as u64) << 32;
    attach[1] = INGRESS;
    bpf(PROG_ATTACH, &mut attach).map(drop)
}

/// Attaches one of the name `stranger` to an interface, until what is returned is dropped.
pub fn attach_to_interface(index: u32) -> io::Result<OwnedFd> {
    attach(&load(XDP, 2, b"stranger")?, index, AT_XDP)
}

/// Attaches one to the ingress of an interface, until what is returned is dropped.
pub fn attach_to_what_comes(index: u32) -> io::Result<OwnedFd> {
    attach(&load(SCHED_CLS, 0, b"pass\0\0\0\0")?, index, AT_TCX_INGRESS)
}

fn attach(program: &OwnedFd, index: u32, place: u64) -> io::Result<OwnedFd> {
    let mut attach = [0u64; 16];
    attach[0] = program.as_raw_fd() as u64 | u64::from(index) << 32;
    attach[1] = place;
    open(LINK_CREATE, &mut attach)
}

fn open(command: libc::c_long, attributes: &mut [u64; 16]) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: a descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn bpf(command: libc::c_long, attributes: &mut [u64; 16]) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads what the attributes point to, which lives on, and writes no more than them.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size_of_val(attributes)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
