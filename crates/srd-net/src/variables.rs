//! The one table of environment variables: what there is to set, for whoever reads, lists or documents it.

/// A row of the table of environment variables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it sets.
    pub meaning: &'static str,
    /// What holds if it is not set.
    pub default: &'static str,
    /// The values it takes.
    pub allowed: &'static str,
    /// Which part of OpenSRD reads it.
    pub read_by: ReadBy,
}

/// Which part of OpenSRD reads a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadBy {
    /// This crate, so everything that uses the network.
    Transport,
    /// The software EFA.
    Efa,
    /// The `srd` command.
    Command,
}

const fn row(
    name: &'static str,
    meaning: &'static str,
    default: &'static str,
    allowed: &'static str,
) -> Variable {
    Variable { name, meaning, default, allowed, read_by: ReadBy::Transport }
}

const fn elsewhere(
    read_by: ReadBy,
    name: &'static str,
    meaning: &'static str,
    default: &'static str,
    allowed: &'static str,
) -> Variable {
    Variable { name, meaning, default, allowed, read_by }
}

/// Every environment variable of OpenSRD. A set variable that begins with `SRD_` and is not among them gives a
/// warning.
pub const VARIABLES: &[Variable] = &[
    row(
        "SRD_ADDR",
        "local address to use, or the interface whose address to use",
        "the interface of the default route; else the first interface that is up; else loopback",
        "an IPv4 or IPv6 address of this host, or an interface name",
    ),
    row(
        "SRD_PORT_BASE",
        "first UDP port to receive on; an instance takes the lowest free of the 512 ports from here",
        "17408",
        "1024 to 65024",
    ),
    row("SRD_PATHS", "paths (UDP source ports) that each peer is reached over", "64", "1 to 256"),
    row(
        "SRD_MTU",
        "MTU of the path in bytes, IP header included",
        "the interface's MTU, at most 9216",
        "576 to 65535, at most the interface's",
    ),
    row(
        "SRD_KEY_FILE",
        "file with the pre-shared key; every packet is then encrypted and authenticated",
        "none: packets are in clear",
        "a file with 64 hexadecimal digits, or with 32 bytes, that only its owner can read (`srd key new`)",
    ),
    row("SRD_LOG", "how much to say on standard error", "warn", "error, warn, info or debug"),
    row(
        "SRD_STATS",
        "file to write counters to every second and at exit, as JSON; a process's second instance writes to file.1.json where this is file.json, and so on",
        "none",
        "a path; %p stands for the process id",
    ),
    row(
        "SRD_FAULT",
        "faults to inject into what is sent, or to stage of the device",
        "none",
        "@FILE, or comma-separated: loss=P, dup=P, reorder=P, corrupt=P (0 to 1), delay_us=N, blackhole=PATH, seed=N, panic_call=PACKETS, panic_thread=PACKETS; of the software EFA: fail=STATUS@WHICH, stale=WHICH, late=MICROSECONDS@WHICH, overtaken=COUNT@WHICH, overrun=WHICH, gone=WHICH, reset=WHICH",
    ),
    row("SRD_SELECTOR", "how paths are chosen", "reps", "reps, oblivious or pinned"),
    row("SRD_CC", "congestion control", "log-target", "log-target, or fixed:WINDOW_BYTES"),
    row(
        "SRD_LINE_RATE_GBPS",
        "rate of the host's link in Gb/s",
        "the interface's speed, else 100",
        "0.001 to 10000",
    ),
    row("SRD_BASE_RTT_US", "round trip of the unloaded network in microseconds", "200", "1 to 1000000"),
    row(
        "SRD_PEER_TIMEOUT_S",
        "seconds without any answer after which a peer is given up",
        "30",
        "0.1 to 3600",
    ),
    row("SRD_RCVBUF", "receive buffer of the socket in bytes", "8388608", "65536 to 1073741824"),
    row(
        "SRD_PROGRESS",
        "who moves packets: the program's polls, and a thread while it does not poll (auto); only the thread; only polls (inline)",
        "auto",
        "auto, thread or inline",
    ),
    row(
        "SRD_WIRE",
        "how short packets travel: by UDP sockets; by packet sockets, which are faster, need CAP_NET_RAW, and go around packet filters, IPsec and what tc does at the ingress; by these where the host has nothing of that (auto); or by AF_XDP sockets (xdp), which attach a program to the interface, need CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW, and go around its queueing discipline, too",
        "udp",
        "udp, packet, xdp or auto",
    ),
    row(
        "SRD_ENGINES",
        "instances that a process may have at an address, each with a port, a lock and a thread of its own: endpoints of the libfabric provider, and contexts of the software EFA, are dealt to them in turn",
        "1",
        "1 to 64",
    ),
    row(
        "SRD_SHM",
        "whether the libfabric provider uses shared memory between processes of one host",
        "on",
        "on or off",
    ),
    row("SRD_TOP", "whether `srd top` of the same user can see the process", "on", "on or off"),
    elsewhere(
        ReadBy::Command,
        "SRD_SIM",
        "the memory that a process of a simulated fabric shares with the simulator; `srd sim mpirun` and `srd sim run` set it",
        "none: a real network",
        "a file",
    ),
    elsewhere(
        ReadBy::Command,
        "SRD_SIM_RANK",
        "which part of that is the process's: its number; `srd sim mpirun` and `srd sim run` set it",
        "none",
        "a number",
    ),
    elsewhere(
        ReadBy::Efa,
        "SRD_EFA_PROFILE",
        "which generation of EFA to resemble, outside a machine",
        "gen3",
        "gen1, gen2 or gen3",
    ),
    elsewhere(
        ReadBy::Efa,
        "SRD_EFA_PCI",
        "PCI address to report, outside a machine",
        "0000:00:00.0, which is none",
        "domain:bus:device.function in hexadecimal",
    ),
    elsewhere(
        ReadBy::Efa,
        "SRD_EFA_DIRECT",
        "whether programs may write work requests to the device's queues themselves, as libfabric's direct data path does",
        "on",
        "on or off (1 or 0)",
    ),
    elsewhere(
        ReadBy::Efa,
        "SRD_EFA_STRICT",
        "whether what EFA, its library or the kernel refuses is refused here, too",
        "off",
        "on or off (1 or 0)",
    ),
    elsewhere(
        ReadBy::Efa,
        "SRD_EFA_LOOPBACK",
        "whether work for the device's own address reaches it; if not, it never completes",
        "on",
        "on or off (1 or 0)",
    ),
    elsewhere(
        ReadBy::Command,
        "SRD_LIB_DIR",
        "directory of efa (libibverbs.so.1 and libefa.so.1), fi (libsrd-fi.so) and fi-efa (libefa-fi.so), or of the libraries of one of them",
        "../lib/srd from the directory of the srd command",
        "a directory",
    ),
];

/// The known name that is fewest edits away, if that is near enough to be a slip.
pub(crate) fn nearest_name(name: &str) -> Option<&'static str> {
    VARIABLES
        .iter()
        .map(|known| {
            // Half a name, or a name and more, is a slip of its own kind.
            let part = name.starts_with(known.name) || known.name.starts_with(name);
            (if part { 1 } else { edit_distance(name, known.name) }, known.name)
        })
        .min()
        .filter(|&(distance, known)| distance <= 2.max((known.len() - "SRD_".len()) / 2))
        .map(|(_, known)| known)
}

/// Insertions, deletions and replacements that lead from `a` to `b` (Wagner and Fischer).
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
