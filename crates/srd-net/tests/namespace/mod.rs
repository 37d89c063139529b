//! Two network namespaces with a link between them, for tests that need a real path. They take rights that not
//! everybody has: without them the test is skipped.
#![allow(dead_code)]

#[path = "../support/skip.rs"]
pub mod skip;

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::process::Command;

pub struct Namespaces {
    name: String,
}

impl Namespaces {
    /// Namespaces with a pair of virtual Ethernet devices (`e0` in each) of this MTU, and addresses 10.66.0.1 and .2.
    pub fn new(test: &str, mtu: u32) -> Option<Namespaces> {
        let name = format!("srdnet-{test}-{}", std::process::id());
        let pair = Namespaces { name };
        let create = [
            format!("netns add {}", pair.netns(0)),
            format!("netns add {}", pair.netns(1)),
            format!(
                "link add e0 netns {} mtu {mtu} type veth peer name e0 netns {} mtu {mtu}",
                pair.netns(0),
                pair.netns(1)
            ),
        ];
        for command in &create {
            if let Err(why) = ip(command) {
                skip::skip(format_args!("needs to make network namespaces (root): {why}"));
                return None;
            }
        }
        for side in [0, 1] {
            pair.ip_in(side, "link set lo up");
            pair.ip_in(side, &format!("address add {}/24 dev e0", pair.ip(side)));
            pair.ip_in(side, &format!("-6 address add {}/64 dev e0 nodad", pair.ip6(side)));
            pair.ip_in(side, &format!("-6 address add {}/64 dev e0 nodad", pair.link_local(side)));
            pair.ip_in(side, "link set e0 up");
        }
        Some(pair)
    }

    fn netns(&self, side: usize) -> String {
        format!("{}-{side}", self.name)
    }

    pub fn ip(&self, side: usize) -> IpAddr {
        [10, 66, 0, 1 + side as u8].into()
    }

    pub fn ip6(&self, side: usize) -> IpAddr {
        format!("fd66::{}", 1 + side).parse().unwrap()
    }

    pub fn link_local(&self, side: usize) -> IpAddr {
        format!("fe80::{}", 1 + side).parse().unwrap()
    }

    /// Runs `ip` with these arguments in a namespace.
    pub fn ip_in(&self, side: usize, command: &str) {
        ip(&format!("-n {} {command}", self.netns(side))).unwrap();
    }

    /// As [`Namespaces::ip_in`], for what not every kernel has: without it the test is skipped.
    pub fn can(&self, side: usize, command: &str) -> bool {
        let done = ip(&format!("-n {} {command}", self.netns(side)));
        if let Err(why) = &done {
            skip::skip(format_args!("needs a kernel that has this: {why}"));
        }
        done.is_ok()
    }

    /// Joins them by another pair of virtual Ethernet devices of this name, without addresses.
    pub fn join(&self, name: &str) {
        let [here, there] = [0, 1].map(|side| self.netns(side));
        ip(&format!("link add {name} netns {here} type veth peer name {name} netns {there}")).unwrap();
        for side in [0, 1] {
            self.ip_in(side, &format!("link set {name} up"));
        }
    }

    /// Moves an interface to another namespace and back; it has no address then, and is down.
    pub fn leave_and_return(&self, side: usize) {
        let (here, elsewhere) = (self.netns(side), format!("{}-elsewhere", self.name));
        ip(&format!("netns add {elsewhere}")).unwrap();
        let moved = ip(&format!("-n {here} link set e0 netns {elsewhere}"))
            .and_then(|()| ip(&format!("-n {elsewhere} link set e0 netns {here}")));
        ip(&format!("netns delete {elsewhere}")).unwrap();
        moved.unwrap();
    }

    /// Runs `tc` with these arguments in a namespace.
    pub fn tc_in(&self, side: usize, command: &str) {
        command_of("tc", &format!("-n {} {command}", self.netns(side))).unwrap();
    }

    /// The kernel writes the checksums of what leaves a namespace by `e0`, as a network card would, instead of leaving them out.
    pub fn write_checksums(&self, side: usize) {
        const SET_TX_CHECKSUMS: u32 = 0x17; // ETHTOOL_STXCSUM
        let mut value = [SET_TX_CHECKSUMS, 0];
        self.run(side, || {
            // SAFETY: the request names an interface, and points to a command that has as many words as there are.
            let set = unsafe {
                let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
                let mut request: libc::ifreq = std::mem::zeroed();
                request.ifr_name[..2].copy_from_slice(&[b'e' as libc::c_char, b'0' as libc::c_char]);
                request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
                let set = libc::ioctl(socket, libc::SIOCETHTOOL as libc::c_ulong, &raw mut request);
                libc::close(socket);
                set
            };
            assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        });
    }

    pub fn enable_forwarding(&self, side: usize) {
        self.run(side, || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    }

    /// Runs `f` in a thread of its own inside a namespace. What it opens stays there.
    pub fn run<R: Send>(&self, side: usize, f: impl FnOnce() -> R + Send) -> R {
        let file = File::open(format!("/run/netns/{}", self.netns(side))).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: no memory is involved.
                assert_eq!(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
                f()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for side in [0, 1] {
            let _ = ip(&format!("netns delete {}", self.netns(side)));
        }
    }
}

fn ip(command: &str) -> Result<(), String> {
    command_of("ip", command)
}

fn command_of(program: &str, command: &str) -> Result<(), String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let out = Command::new(program).args(command.split_whitespace()).env("PATH", path).output();
    match out {
        Ok(out) if out.status.success() => Ok(()),
        Ok(out) => Err(format!("{program} {command}: {}", String::from_utf8_lossy(&out.stderr).trim())),
        Err(e) => Err(format!("{program}: {e}")),
    }
}

pub fn interface_index(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a string that ends in zero.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}
