//! The host itself: buffers, limits, processors, kernel features, and the address that SRD would use.

use super::capabilities;
use super::finding::{Finding, Level};
use crate::host::interfaces::{self, Interface, Kind};
use crate::host::{self, limits, offload};
use srd_net::{Instance, LocalAddress, Options, Wire, accelerator};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;

/// UDP ports from the base on that instances receive on.
pub const PORTS: u16 = 512;

/// Files that a program has open besides SRD's sockets, with room to spare.
const OTHER_FILES: u64 = 256;

/// Programs that check for locked memory before they use EFA expect at least this much.
const MEMLOCK: u64 = 64 << 20;

/// Clock sources that are read without a system call. SRD reads the time with every batch of packets.
const FAST_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase"];

/// All checks of this host. `refused`: the variable whose value was refused, with which `options` are not those of the
/// environment.
pub fn examine(options: &Options, refused: Option<&str>) -> Vec<Finding> {
    let key = key(options);
    // With a key that is refused no instance opens, for that reason alone.
    let usable = key.level != Level::Fail;
    let mut findings = vec![key];
    findings.extend(usable.then(|| instance(options)));
    findings.extend(buffers(options));
    findings.extend([
        directory(),
        open_files(options),
        memlock(),
        processors(),
        clock(),
        offloads(),
        gpus(),
        machines(),
        port_range(options),
    ]);
    findings.extend(match refused {
        Some(variable) => vec![Finding::skip("wire", format!("not looked at, as {variable} was refused"))],
        None => wire(options),
    });
    findings.extend(rp_filter());
    findings
}

/// Whether memory of a GPU can be used; most hosts have none, and need none.
fn gpus() -> Finding {
    match accelerator::available() {
        Ok(count) => Finding::ok(
            "gpus",
            format!(
                "{count} GPU(s): their memory can be used (FI_HMEM), copied by way of the host's (docs/guide/accelerator-memory.md)"
            ),
        ),
        Err(why) => Finding::ok("gpus", format!("{why}. Programs that ask for FI_HMEM are told so")),
    }
}

/// Whether a machine of devices can be made, which takes namespaces: one is.
fn machines() -> Finding {
    let made = std::env::current_exe()
        .and_then(|srd| Command::new(srd).args(["run", "--efa", "--machine", "c5n", "--", "true"]).output());
    match made {
        Ok(output) if output.status.success() => Finding::ok(
            "machines",
            "devices of EC2 instances can be shown to programs: srd run --efa --machine",
        ),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = said.lines().last().unwrap_or_default().trim_start_matches("srd: ");
            Finding::skip("machines", format!("none can be made here: {why}"))
        }
        Err(error) => Finding::skip("machines", format!("srd could not be started: {error}")),
    }
}

/// How short packets travel, and whether there is a faster way.
fn wire(options: &Options) -> Vec<Finding> {
    let Ok(local) = LocalAddress::find(&options.addr) else { return Vec::new() };
    let check = |wire| srd_net::check_wire(wire, &local);
    let by_choice = options.wire != Wire::Udp;
    let asked = if by_choice { options.wire } else { Wire::Auto };
    // Where only filters are in the way of `auto`, its reason names `packet`, which then must work.
    let checked = check(asked).or_else(|why| match asked {
        Wire::Auto => check(Wire::Packet).and(Err(why)),
        _ => Err(why),
    });
    let wire = match checked {
        Ok(by) if by_choice => Finding::ok("wire", format!("short packets travel by {by}")),
        Ok(by) => Finding::ok(
            "wire",
            format!("short packets travel by UDP sockets; {by} would be faster: SRD_WIRE=auto"),
        ),
        Err(why) if by_choice => {
            let instead = if asked == Wire::Xdp { check(Wire::Packet).ok() } else { None };
            let by = instead.unwrap_or_else(|| "UDP sockets".to_owned());
            let why = why.to_string();
            let grant = capabilities::grant(asked, &why).map(|how| format!("{how}; or "));
            Finding::warn("wire", format!("short packets of a process that starts now travel by {by}: {why}"))
                .mend(grant.unwrap_or_default() + "unset SRD_WIRE, unless that is as it should be")
        }
        Err(why) => {
            let why = why.to_string();
            let found =
                Finding::ok("wire", format!("short packets travel by UDP sockets; no faster way: {why}"));
            match capabilities::grant(Wire::Packet, &why) {
                Some(how) => found.mend(how),
                None => found,
            }
        }
    };
    let around = "past packet filters, IPsec and `tc`";
    let xdp = match check(Wire::Xdp) {
        Ok(by) => format!("SRD_WIRE=xdp works here: {by}, {around}, with a program at {}", local.interface),
        Err(why) => format!("SRD_WIRE=xdp ({around}) would not take effect now: {why}"),
    };
    vec![wire, Finding::ok("AF_XDP", xdp)]
}

/// Who can read and forge packets.
fn key(options: &Options) -> Finding {
    let check = "key";
    if let Some(file) = &options.key_file {
        return match srd_net::key_file::check(file) {
            Ok(()) => Finding::ok(check, format!("packets are sealed with the key in {}", file.display())),
            Err(error) => Finding::fail(check, error.what.clone()).mend(error.advice),
        };
    }
    let address = LocalAddress::find(&options.addr).ok();
    match address.filter(|address| !srd_net::is_private(address.ip)) {
        None => Finding::ok(check, "none: packets are in clear, on a private network".to_owned()),
        Some(address) => Finding::warn(
            check,
            format!(
                "none, and {} is no private address: whoever is on the way of packets can read them and forge others",
                address.ip
            ),
        )
        .mend("srd key new"),
    }
}

/// Opens an instance: whatever prevents that says so itself.
fn instance(options: &Options) -> Finding {
    // Its way for short packets is looked at apart: nothing is attached to an interface to see.
    let by_udp = Options { wire: Wire::Udp, ..options.clone() };
    match Instance::open_separate(&by_udp) {
        Ok(instance) => examine_address(options, instance.address().gid.ip()),
        Err(error) => Finding::fail("address", error.what.clone()).mend(error.advice),
    }
}

/// The software EFA keeps the files that describe its device in a directory of its own: in `XDG_RUNTIME_DIR` if that is
/// this user's, or with other temporary files.
fn directory() -> Finding {
    let base = std::env::temp_dir();
    let probe = base.join(format!("srd-doctor-{}", std::process::id()));
    match std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe)) {
        Ok(()) => Finding::ok("directory", format!("{} can be written", base.display())),
        Err(error) => {
            Finding::warn("directory", format!("nothing can be made in {}: {error}", base.display()))
                .mend("export TMPDIR=DIR, a directory in which this user may make others")
        }
    }
}

/// The local address by which `to` is reached.
pub fn address_towards(to: SocketAddr) -> std::io::Result<IpAddr> {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

/// Whether SRD uses the address by which `to` is reached.
pub fn examine_route(options: &Options, host: &str, to: SocketAddr) -> std::io::Result<Finding> {
    let by = address_towards(to)?;
    let interface = interfaces::of_address(by).map_or_else(|| "unknown".into(), |interface| interface.name);
    Ok(match LocalAddress::find(&options.addr) {
        Ok(chosen) if chosen.ip == by || to.ip().is_loopback() => {
            Finding::ok("route", format!("{host} is reached from {by} on {interface}"))
        }
        Ok(chosen) => Finding::warn(
            "route",
            format!(
                "SRD uses {} on {}, but {host} is reached from {by} on {interface}",
                chosen.ip, chosen.interface
            ),
        )
        .mend(format!("export SRD_ADDR={interface}")),
        // Said already, where the address was looked at.
        Err(_) => Finding::skip("route", format!("{host} is reached from {by} on {interface}")),
    })
}

/// The interface of a local address.
fn examine_address(options: &Options, address: IpAddr) -> Finding {
    let Some(Interface { name, kind, mtu, .. }) = interfaces::of_address(address) else {
        return Finding::warn("address", format!("{address} belongs to no interface")).mend("ip address");
    };
    let mtu = mtu.map_or_else(|| "unknown".into(), |mtu| mtu.to_string());
    let what = format!("{address} on {name}, MTU {mtu}");
    match kind {
        Kind::Loopback if options.addr == srd_net::Address::Auto => {
            Finding::warn("address", format!("{what}: only programs of this host can be reached"))
                .mend("SRD_ADDR=INTERFACE, with an interface of `ip address` that leads to the other hosts")
        }
        Kind::Tunnel => Finding::warn(
            "address",
            format!("{what}: a tunnel (VPN) has one path, whatever the source port, and a processor's speed"),
        )
        .mend("SRD_ADDR=INTERFACE, with an interface that reaches the other hosts directly"),
        _ => Finding::ok("address", what),
    }
}

fn buffers(options: &Options) -> Vec<Finding> {
    [("net.core.rmem_max", "receive buffer"), ("net.core.wmem_max", "send buffer")]
        .into_iter()
        .map(|(name, what)| match limits::sysctl::<u64>(name) {
            Some(limit) if limit >= options.rcvbuf => Finding::ok(what, format!("{name} is {limit}")),
            Some(limit) => Finding::warn(
                what,
                format!(
                    "{name} is {limit}, less than the {} that SRD asks for: bursts are lost",
                    options.rcvbuf
                ),
            )
            .mend(format!("sysctl -w {name}={}", options.rcvbuf)),
            None => Finding::skip(what, format!("{name} cannot be read here")),
        })
        .collect()
}

fn open_files(options: &Options) -> Finding {
    let limits = limits::read();
    // A pool of twice the paths' sockets, shared by all peers.
    let needed = 2 * u64::from(options.paths) + OTHER_FILES;
    match limits.open_files {
        Some(limit) if limit < needed => Finding::warn(
            "open files",
            format!("{limit} may be open; SRD's source ports and the program's own files may need {needed}"),
        )
        .mend(format!("ulimit -n {}", needed.next_power_of_two().max(4096))),
        Some(limit) => Finding::ok("open files", format!("{limit} may be open")),
        None => Finding::ok("open files", "unlimited"),
    }
}

fn memlock() -> Finding {
    match limits::read().memlock {
        Some(limit) if limit < MEMLOCK => Finding::warn(
            "memlock",
            format!(
                "{} KiB may be locked; SRD itself locks nothing but 2.5 MiB for each receive queue with SRD_WIRE=xdp, but some programs written for EFA check it",
                limit >> 10
            ),
        )
        .mend("ulimit -l unlimited"),
        Some(limit) => Finding::ok("memlock", format!("{} MiB may be locked", limit >> 20)),
        None => Finding::ok("memlock", "unlimited"),
    }
}

fn processors() -> Finding {
    let (allowed, online) = host::cpus();
    if allowed > 1 {
        return Finding::ok("processors", format!("{allowed} of {online} usable"));
    }
    let what = "one processor for the program and SRD's progress thread: they take turns";
    if online > 1 {
        Finding::warn("processors", format!("bound to {what}"))
            .mend("mpirun --bind-to none, or taskset with two processors for each process")
    } else {
        Finding::warn("processors", format!("this host has {what}"))
            .mend("use a host with two processors or more")
    }
}

fn clock() -> Finding {
    match host::clock_source() {
        Some(source) if FAST_CLOCKS.contains(&source.as_str()) => Finding::ok("clock", source),
        Some(source) => Finding::warn(
            "clock",
            format!("{source}: every look at the time is a system call, several per message"),
        )
        .mend("echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"),
        None => Finding::skip("clock", "the clock source cannot be read here"),
    }
}

fn offloads() -> Finding {
    match offload::probe() {
        Ok(offload::Offload { gso: true, gro: true }) => {
            Finding::ok("UDP offload", "the kernel cuts and joins datagrams (GSO, GRO)")
        }
        Ok(offload::Offload { gso, .. }) => {
            let (name, since) = if gso { ("GRO", "5.0") } else { ("GSO", "4.18") };
            Finding::warn(
                "UDP offload",
                format!(
                    "kernel {} lacks UDP {name} (since {since}): about a tenth of the bandwidth",
                    host::kernel()
                ),
            )
            .mend("use a newer kernel")
        }
        Err(error) => Finding::skip("UDP offload", format!("loopback does not work here: {error}")),
    }
}

/// The kernel hands out ephemeral ports at random; one that falls into our range takes the place of an instance.
fn port_range(options: &Options) -> Finding {
    let (low, high) = (options.port_base, options.port_base.saturating_add(PORTS - 1));
    let name = "net.ipv4.ip_local_port_range";
    let range = limits::sysctl_text(name).and_then(|text| {
        text.split_whitespace().map(|port| port.parse::<u16>().ok()).collect::<Option<Vec<_>>>()
    });
    match range.as_deref() {
        Some(&[first, last]) if first <= high && low <= last => Finding::warn(
            "ports",
            format!("{low}-{high} lie in the range {first}-{last} from which the kernel gives ports to any program"),
        )
        .mend(format!("sysctl -w net.ipv4.ip_local_reserved_ports={low}-{high}, or another SRD_PORT_BASE")),
        Some(_) => Finding::ok("ports", format!("{low}-{high} are not given to other programs")),
        None => Finding::skip("ports", format!("{name} cannot be read here")),
    }
}

/// Strict reverse-path filtering drops packets that come in by another interface than answers would leave by.
fn rp_filter() -> Option<Finding> {
    let name = |interface: &str| format!("net.ipv4.conf.{interface}.rp_filter");
    // The kernel takes the higher of the two (ip-sysctl.rst).
    let all =
        std::fs::read_to_string("/proc/sys/net/ipv4/conf/all/rp_filter").ok()?.trim().parse::<u8>().ok()?;
    let reachable = |interface: &&Interface| interface.up && interface.kind != Kind::Loopback;
    let interfaces = interfaces::all();
    let strict: Vec<&str> = interfaces
        .iter()
        .filter(reachable)
        .map(|interface| interface.name.as_str())
        // An interface's name may hold a dot, so the path is made by hand.
        .filter(|interface| {
            let own = host::read_trimmed(&format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter"));
            own.and_then(|own| own.parse().ok()).unwrap_or(0).max(all) == 1
        })
        .collect();
    Some(match strict.as_slice() {
        [] => Finding::ok("rp_filter", "packets may come in by any interface"),
        [_] if interfaces.iter().filter(reachable).count() == 1 => {
            Finding::ok("rp_filter", "strict, but there is only one interface")
        }
        [first, ..] => Finding::warn(
            "rp_filter",
            format!("strict on {}: packets that come in by another interface are dropped", strict.join(", ")),
        )
        // 2 on one of the two suffices, because the higher counts.
        .mend(format!("sysctl -w {}=2", if strict.len() == 1 { name(first) } else { name("all") })),
    })
}
