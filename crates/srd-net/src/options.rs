//! What the user can set: one table of environment variables, and the values read from them. Unknown names and
//! impossible values are never ignored.

use crate::fault::FaultPlan;
use srd_proto::{ControllerKind, SelectorKind};
use srd_wire::{BitRate, Nanos};
use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

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
    /// The namespace fabric.
    Lab,
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
        "576 to 65535",
    ),
    row(
        "SRD_KEY_FILE",
        "file with the pre-shared key; every packet is then encrypted and authenticated",
        "none: packets are in clear",
        "a file with 64 hexadecimal digits, or with 32 bytes",
    ),
    row("SRD_LOG", "how much to say on standard error", "warn", "error, warn, info or debug"),
    row(
        "SRD_STATS",
        "file to write counters to every second and at exit, as JSON",
        "none",
        "a path; %p stands for the process id",
    ),
    row(
        "SRD_FAULT",
        "faults to inject into what is sent",
        "none",
        "comma-separated: loss=P, dup=P, reorder=P, corrupt=P (0 to 1), delay_us=N, blackhole=SOURCE_PORT_INDEX, seed=N",
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
    elsewhere(
        ReadBy::Efa,
        "SRD_EFA_PROFILE",
        "which generation of EFA to resemble",
        "gen3",
        "gen1, gen2 or gen3",
    ),
    elsewhere(
        ReadBy::Efa,
        "SRD_EFA_PCI",
        "PCI address to report for the device",
        "0000:00:00.0",
        "a PCI address",
    ),
    elsewhere(
        ReadBy::Command,
        "SRD_LIB_DIR",
        "directory of the software EFA's libibverbs.so.1 and libefa.so.1",
        "../lib/srd/efa from the directory of the srd command",
        "a directory",
    ),
    elsewhere(
        ReadBy::Lab,
        "SRD_FABRIC_PREFIX",
        "prefix of the names of the fabric's namespaces",
        "srdfab",
        "a short name",
    ),
];

/// Which local address to use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Address {
    /// That of the default route's interface; else of the first other interface that is up; else loopback.
    #[default]
    Auto,
    /// This one.
    Ip(IpAddr),
    /// The first one of the interface.
    Interface(String),
}

/// Who moves packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ProgressMode {
    /// The program's polls, and a thread while it does not poll.
    #[default]
    Auto,
    /// Only a thread.
    Thread,
    /// Only the program's polls.
    Inline,
}

/// How much is said on standard error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum LogLevel {
    /// What went wrong.
    Error,
    /// What will hurt.
    #[default]
    Warn,
    /// What was decided.
    Info,
    /// What happens.
    Debug,
}

/// Everything that can be set.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Local address.
    pub addr: Address,
    /// UDP port of slot 0.
    pub port_base: u16,
    /// Paths per peer.
    pub paths: u16,
    /// MTU of the path, IP header included; `None`: the interface's.
    pub mtu: Option<u16>,
    /// File with the pre-shared key.
    pub key_file: Option<PathBuf>,
    /// How much is said on standard error.
    pub log: LogLevel,
    /// File for counters; `%p` in it stands for the process id.
    pub stats: Option<PathBuf>,
    /// Faults to inject.
    pub fault: Option<FaultPlan>,
    /// Path selection.
    pub selector: SelectorKind,
    /// Congestion control.
    pub cc: ControllerKind,
    /// Rate of the link; `None`: the interface's speed, or 100 Gb/s.
    pub line_rate: Option<BitRate>,
    /// Round trip of the unloaded network; `None`: see [`crate::host`].
    pub base_rtt: Option<Nanos>,
    /// A peer that is silent for this long is given up.
    pub peer_timeout: Nanos,
    /// Receive buffer of the socket in bytes.
    pub rcvbuf: u64,
    /// Who moves packets.
    pub progress: ProgressMode,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            addr: Address::Auto,
            port_base: 17408,
            paths: 64,
            mtu: None,
            key_file: None,
            log: LogLevel::Warn,
            stats: None,
            fault: None,
            selector: SelectorKind::Reps,
            cc: ControllerKind::LogTarget,
            line_rate: None,
            base_rtt: None,
            peer_timeout: Nanos::from_secs(30),
            rcvbuf: 8 << 20,
            progress: ProgressMode::Auto,
        }
    }
}

/// A set variable that nothing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// Its name.
    pub name: String,
    /// The known name most like it, if any is like it.
    pub nearest: Option<&'static str>,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is set, but no such variable is known", self.name)?;
        match self.nearest {
            Some(nearest) => write!(f, "; did you mean {nearest}?"),
            None => write!(f, "; `srd env --help` lists them"),
        }
    }
}

/// A variable with an impossible value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionsError {
    /// The variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong with it, if that needs saying.
    pub why: Option<String>,
    /// What it may be.
    pub allowed: &'static str,
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?} is not possible", self.variable, self.value)?;
        if let Some(why) = &self.why {
            write!(f, ": {why}")?;
        }
        write!(f, "; allowed: {}", self.allowed)
    }
}

impl std::error::Error for OptionsError {}

impl Options {
    /// Reads the environment. Warnings name set variables that nothing reads.
    pub fn from_env() -> Result<(Options, Vec<Warning>), OptionsError> {
        Options::from_vars(std::env::vars_os())
    }

    /// Reads `vars` as [`Options::from_env`] reads the environment.
    pub fn from_vars(
        vars: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(Options, Vec<Warning>), OptionsError> {
        let mut options = Options::default();
        let mut warnings = Vec::new();
        for (name, value) in vars {
            let name = name.to_string_lossy();
            if !name.starts_with("SRD_") {
                continue;
            }
            match VARIABLES.iter().find(|known| known.name == name) {
                Some(variable) if variable.read_by == ReadBy::Transport => options.set(variable, value)?,
                Some(_) => {}
                None => warnings.push(Warning { nearest: nearest_name(&name), name: name.into_owned() }),
            }
        }
        Ok((options, warnings))
    }

    fn set(&mut self, variable: &'static Variable, value: OsString) -> Result<(), OptionsError> {
        let refuse = |why: Option<String>| OptionsError {
            variable: variable.name,
            value: value.to_string_lossy().into_owned(),
            why,
            allowed: variable.allowed,
        };
        let text = || value.to_str().map(str::trim).ok_or_else(|| refuse(Some("not valid UTF-8".into())));
        let number = |low: f64, high: f64| {
            let n: f64 = text()?.parse().map_err(|_| refuse(Some("not a number".into())))?;
            if (low..=high).contains(&n) { Ok(n) } else { Err(refuse(None)) }
        };
        let integer = |low: u64, high: u64| {
            let n: u64 = text()?.parse().map_err(|_| refuse(Some("not a whole number".into())))?;
            if (low..=high).contains(&n) { Ok(n) } else { Err(refuse(None)) }
        };
        let path = || if value.is_empty() { Err(refuse(None)) } else { Ok(PathBuf::from(&value)) };
        match variable.name {
            "SRD_ADDR" => {
                let text = text()?;
                self.addr = match text.parse::<IpAddr>() {
                    Ok(ip) if ip.is_unspecified() || ip.is_multicast() => {
                        return Err(refuse(Some("peers cannot answer to such an address".into())));
                    }
                    Ok(ip) => Address::Ip(ip),
                    // IFNAMSIZ is 16 with the final zero.
                    Err(_) if text.is_empty() || text.len() > 15 || text.contains(['/', ' ', ':']) => {
                        return Err(refuse(None));
                    }
                    Err(_) => Address::Interface(text.to_owned()),
                }
            }
            "SRD_PORT_BASE" => self.port_base = integer(1024, 65_024)? as u16,
            "SRD_PATHS" => self.paths = integer(1, 256)? as u16,
            "SRD_MTU" => self.mtu = Some(integer(576, 65_535)? as u16),
            "SRD_KEY_FILE" => self.key_file = Some(path()?),
            "SRD_LOG" => {
                self.log = match text()? {
                    "error" => LogLevel::Error,
                    "warn" => LogLevel::Warn,
                    "info" => LogLevel::Info,
                    "debug" => LogLevel::Debug,
                    _ => return Err(refuse(None)),
                }
            }
            "SRD_STATS" => self.stats = Some(path()?),
            "SRD_FAULT" => {
                self.fault = Some(FaultPlan::parse(text()?).map_err(|why| refuse(Some(why)))?);
            }
            "SRD_SELECTOR" => {
                self.selector = match text()? {
                    "reps" => SelectorKind::Reps,
                    "oblivious" => SelectorKind::Oblivious,
                    "pinned" => SelectorKind::Pinned,
                    _ => return Err(refuse(None)),
                }
            }
            "SRD_CC" => {
                let text = text()?;
                self.cc = match text.strip_prefix("fixed:").map(str::parse) {
                    None if text == "log-target" => ControllerKind::LogTarget,
                    Some(Ok(window_bytes)) if window_bytes > 0 => ControllerKind::Fixed { window_bytes },
                    _ => return Err(refuse(None)),
                }
            }
            "SRD_LINE_RATE_GBPS" => self.line_rate = Some(BitRate((number(0.001, 10_000.0)? * 1e9) as u64)),
            "SRD_BASE_RTT_US" => self.base_rtt = Some(Nanos((number(1.0, 1e6)? * 1e3) as u64)),
            "SRD_PEER_TIMEOUT_S" => self.peer_timeout = Nanos((number(0.1, 3600.0)? * 1e9) as u64),
            "SRD_RCVBUF" => self.rcvbuf = integer(65_536, 1 << 30)?,
            "SRD_PROGRESS" => {
                self.progress = match text()? {
                    "auto" => ProgressMode::Auto,
                    "thread" => ProgressMode::Thread,
                    "inline" => ProgressMode::Inline,
                    _ => return Err(refuse(None)),
                }
            }
            name => unreachable!("{name} is in the table, but is not read"),
        }
        Ok(())
    }
}

/// The known name that is fewest edits away, if that is near enough to be a slip.
fn nearest_name(name: &str) -> Option<&'static str> {
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
