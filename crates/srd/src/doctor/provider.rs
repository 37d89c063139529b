//! The libfabric provider: whether libfabric can load it, and whether processes of one host can share memory.

use super::bypass::{leads_to, missing};
use super::finding::Finding;
use crate::host;
use crate::libraries::Libraries;
use srd_net::Options;
use srd_shm::{Address, Inbox};
use std::net::Ipv6Addr;
use std::path::Path;
use std::process::Command;

/// Where processes of a host share memory.
const SHARED: &str = srd_shm::DIRECTORY;

/// All checks.
pub fn examine(options: &Options) -> Vec<Finding> {
    let mut findings = Vec::new();
    match Libraries::Provider.locate() {
        Ok(directory) => {
            findings.push(loads(&directory));
            findings.extend(not_found_by_path(&directory, &|name| std::env::var(name).ok()));
        }
        Err(error) => findings.push(missing("provider", &error)),
    }
    findings.push(shared_memory(options));
    findings
}

/// Has the system's libfabric load it: `fi_info` lists what the provider offers.
fn loads(directory: &Path) -> Finding {
    let check = "provider";
    let fi_info = |arguments: &[&str]| {
        let mut command = Command::new("fi_info");
        command.args(arguments).env("FI_PROVIDER_PATH", directory);
        command.env("FI_PROVIDER", "srd").env("FI_LOG_LEVEL", "warn");
        command.output()
    };
    let listed = match fi_info(&["-p", "srd"]) {
        Ok(output) => output,
        Err(_) => {
            let what = format!(
                "in {}; whether libfabric loads it is unknown: there is no fi_info",
                directory.display()
            );
            return Finding::skip(check, what).mend("apt-get install libfabric-bin");
        }
    };
    let version =
        fi_info(&["--version"]).map(|output| core_version(&String::from_utf8_lossy(&output.stdout)));
    let core = version.ok().flatten().unwrap_or_else(|| "of unknown version".into());
    if listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("provider: srd") {
        return Finding::ok(check, format!("libfabric {core} loads it from {}", directory.display()));
    }
    let said = String::from_utf8_lossy(&listed.stderr);
    let reason = said.lines().rfind(|line| line.contains("srd")).unwrap_or("fi_info does not say why");
    Finding::warn(
        check,
        format!("libfabric {core} does not offer srd from {}: {reason}", directory.display()),
    )
    .mend(format!("FI_LOG_LEVEL=info FI_PROVIDER_PATH={} fi_info -p srd", directory.display()))
}

/// `libfabric: 1.17.0`, among other lines.
fn core_version(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix("libfabric: ")).map(|version| version.trim().to_owned())
}

/// libfabric is asked for `srd`, or for a path of ours, in a way in which it will not find it.
fn not_found_by_path(directory: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Option<Finding> {
    let path = variable("FI_PROVIDER_PATH");
    let asked = variable("FI_PROVIDER").as_deref() == Some("srd");
    let mend = |rest: &str| {
        format!("export FI_PROVIDER_PATH={}{rest} (srd run --provider does)", directory.display())
    };
    match path {
        None if asked => {
            let what =
                "FI_PROVIDER=srd, but FI_PROVIDER_PATH is not set: libfabric does not find the provider";
            Some(Finding::warn("provider path", what).mend(mend("")))
        }
        Some(path) if !path.is_empty() && !leads_to(&path, Libraries::Provider) => {
            let found = leads_to(&path, Libraries::ProviderAsEfa);
            (asked || !found).then(|| {
                let what = format!("FI_PROVIDER_PATH={path}: libfabric does not find the provider srd there");
                Finding::warn("provider path", what).mend(mend(&format!(":{path}")))
            })
        }
        _ => None,
    }
}

/// Makes what two endpoints of one host make, and tries it: a inbox each, a lane, a copy between address spaces.
fn shared_memory(options: &Options) -> Finding {
    let check = "lanes";
    if !options.shm {
        return Finding::ok(
            check,
            "SRD_SHM=off: the provider uses the network between processes of one host, too",
        );
    }
    let shape = srd_shm::Options::default();
    // Of the range for documentation (RFC 3849): no endpoint has it.
    let [high, low] = [std::process::id() >> 16, std::process::id()].map(|half| half as u16);
    let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, high, low).octets();
    let open = |qpn| {
        Inbox::open(
            Path::new(SHARED),
            Address { ip, port: 0, qpn },
            1,
            srd_shm::Options { permit_copies: false, ..shape },
        )
    };
    let lane = match (open(1), open(2)) {
        (Ok(one), Ok(_other)) => one.connect(Address { ip, port: 0, qpn: 2 }).map(|lane| lane.can_copy()),
        (Err(error), _) | (_, Err(error)) => {
            return Finding::warn(
                check,
                format!(
                    "no shared memory in {SHARED} ({error}): the provider uses the network on this host, too"
                ),
            )
            .mend(format!("mount a tmpfs on {SHARED} that this user may write to"));
        }
    };
    let copies = match lane {
        Ok(copies) => copies.map_err(|reason| reason.to_string()).and_then(|()| confined()),
        Err(reason) => {
            return Finding::warn(check, format!("no lanes between processes of this host: {reason}"))
                .mend(format!("mount a tmpfs on {SHARED} that this user may write to"));
        }
    };
    if let Err(reason) = copies {
        return Finding::warn(
            check,
            format!("long messages between processes of this host use the network: {reason}"),
        )
        .mend("sysctl -w kernel.yama.ptrace_scope=1 (containers: --cap-add=SYS_PTRACE --pid=host)");
    }
    // A rank for each processor has a lane to each other.
    let ranks = host::cpus().0 as u64;
    let wanted = ranks * (ranks - 1);
    let room = nix::sys::statvfs::statvfs(SHARED).map_or(u64::MAX, |found| {
        found.blocks_available() * found.fragment_size() / u64::from(shape.ring_bytes)
    });
    if room < wanted {
        let mib = (wanted * u64::from(shape.ring_bytes)).div_ceil(1 << 20);
        return Finding::warn(
            check,
            format!(
                "{SHARED} has room for {room} lanes; {ranks} ranks use {wanted}, the rest go by the network"
            ),
        )
        .mend(format!("mount -o remount,size={}m {SHARED} (containers: --shm-size)", 2 * mib));
    }
    Finding::ok(
        check,
        format!("processes of this host share memory in {SHARED}, and copy long messages once"),
    )
}

/// Whether Yama keeps processes from copying out of each other. (Between ancestors, `ptrace_scope` 1, endpoints permit it.)
fn confined() -> Result<(), String> {
    let scope = host::read_trimmed("/proc/sys/kernel/yama/ptrace_scope");
    let root = nix::unistd::geteuid().is_root();
    match scope.as_deref() {
        Some("3") => Err("kernel.yama.ptrace_scope is 3".into()),
        Some("2") if !root => Err("kernel.yama.ptrace_scope is 2, and this is not root".into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_libfabric_is_read() {
        assert_eq!(core_version("fi_info: 1.17.0\nlibfabric: 2.5.1\nlibfabric api: 2.5\n").unwrap(), "2.5.1");
        assert_eq!(core_version(""), None);
    }

    #[test]
    fn a_path_on_which_the_provider_is_not_is_named() {
        let found = |set: &'static [(&str, &str)]| {
            let variable = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            not_found_by_path(Path::new("/opt/srd/fi"), &variable).map(|finding| finding.mend.unwrap())
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("FI_PROVIDER", "tcp")]), None);
        assert!(found(&[("FI_PROVIDER", "srd")]).unwrap().contains("FI_PROVIDER_PATH=/opt/srd/fi "));
        let elsewhere = found(&[("FI_PROVIDER_PATH", "/nowhere")]).unwrap();
        assert!(elsewhere.contains("FI_PROVIDER_PATH=/opt/srd/fi:/nowhere"), "{elsewhere}");
    }
}
