//! Capabilities (capabilities(7)) that ways for short packets need, and how a program gets those that it lacks.

use crate::host;
use srd_net::Wire;

/// Name, and number in `linux/capability.h`.
const NET_ADMIN: (&str, u32) = ("NET_ADMIN", 12);
const NET_RAW: (&str, u32) = ("NET_RAW", 13);
const BPF: (&str, u32) = ("BPF", 39);

/// How to give a program what it lacks for `wire`, if `why`, the reason that there is none, names a capability.
pub fn grant(wire: Wire, why: &str) -> Option<String> {
    let status = host::read_trimmed("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let held = u64::from_str_radix(line.trim(), 16).ok()?;
    why.contains("CAP_").then(|| grant_beside(wire, held)).flatten()
}

fn grant_beside(wire: Wire, held: u64) -> Option<String> {
    let needed: &[_] = match wire {
        Wire::Udp => &[],
        Wire::Packet => &[NET_RAW],
        // It has to see whether there are packet filters.
        Wire::Auto => &[NET_RAW, NET_ADMIN],
        Wire::Xdp => &[NET_RAW, NET_ADMIN, BPF],
    };
    let lacking: Vec<&str> =
        needed.iter().filter(|(_, number)| held >> number & 1 == 0).map(|(name, _)| *name).collect();
    if lacking.is_empty() {
        return None;
    }
    let all = |before: &str| {
        let each: Vec<_> = lacking.iter().map(|name| format!("{before}{}", name.to_lowercase())).collect();
        each.join(",")
    };
    let options: Vec<_> = lacking.iter().map(|name| format!("--cap-add={name}")).collect();
    let wire = format!("{wire:?}").to_lowercase();
    // A program that has capabilities by setcap ignores LD_LIBRARY_PATH, by which `srd run` leads it to libraries: ld.so(8).
    Some(format!(
        "sudo setpriv --reuid=$(id -u) --regid=$(id -g) --init-groups --inh-caps={plus} --ambient-caps={plus} \
         env SRD_WIRE={wire} srd run -- PROGRAM (containers: {}; a program without `srd run`: sudo setcap {}+ep PROGRAM)",
        options.join(" "),
        all("cap_"),
        plus = all("+"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_lacking_is_granted() {
        let none = grant_beside(Wire::Packet, 0).unwrap();
        assert!(none.contains("--ambient-caps=+net_raw env SRD_WIRE=packet srd run"), "{none}");
        assert!(none.contains("--cap-add=NET_RAW;") && none.contains("setcap cap_net_raw+ep"), "{none}");
        assert_eq!(grant_beside(Wire::Packet, 1 << 13), None);
        let some = grant_beside(Wire::Xdp, 1 << 13).unwrap();
        assert!(some.contains("--inh-caps=+net_admin,+bpf "), "{some}");
        assert!(some.contains("--cap-add=NET_ADMIN --cap-add=BPF;"), "{some}");
        assert_eq!(grant_beside(Wire::Udp, 0), None);
    }
}
