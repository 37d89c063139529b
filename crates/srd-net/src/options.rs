//! What the user can set, and how it is read from the environment. Unknown names and impossible values are never
//! ignored.

use crate::fault::FaultPlan;
use crate::variables::{ReadBy, VARIABLES, Variable, nearest_name};
use srd_device::DeviceConfig;
use srd_proto::{ControllerKind, SelectorKind};
use srd_wire::{BitRate, Nanos};
use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

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

/// How short packets leave and arrive. Long ones, and runs of them, always do so by UDP sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wire {
    /// By UDP sockets, too.
    #[default]
    Udp,
    /// By packet sockets.
    Packet,
    /// By AF_XDP sockets, or where there are none by packet sockets.
    Xdp,
    /// By packet sockets, if this host has neither packet filters nor IPsec policies, which these would go around.
    Auto,
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
    /// The window of the fixed one.
    pub fixed_window_bytes: u64,
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
    /// How short packets leave and arrive.
    pub wire: Wire,
    /// Instances that a process may have at an address, for layers above that use several ([`crate::Seat`]).
    pub engines: u16,
    /// Shared memory between processes of one host, for layers above that have it.
    pub shm: bool,
    /// Whether `srd top` of the same user may see the counters.
    pub top: bool,
    /// Longest message of a queue pair in bytes. No variable sets it: layers above that post buffers of that size do.
    pub max_msg: u32,
    /// As [`DeviceConfig::rnr_counts_all`]. The software EFA sets it.
    pub rnr_counts_all: bool,
    /// As [`DeviceConfig::loopback`]. The software EFA sets it.
    pub loopback: bool,
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
            fixed_window_bytes: 0,
            line_rate: None,
            base_rtt: None,
            peer_timeout: Nanos::from_secs(30),
            rcvbuf: 8 << 20,
            progress: ProgressMode::Auto,
            wire: Wire::Udp,
            engines: 1,
            shm: true,
            top: true,
            max_msg: DeviceConfig::default().max_msg,
            rnr_counts_all: false,
            loopback: true,
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
            None => write!(f, "; `srd env --list` lists them"),
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
        let it = Setting { variable, value };
        match variable.name {
            "SRD_ADDR" => self.addr = it.address()?,
            "SRD_PORT_BASE" => self.port_base = it.integer(1024, 65_024)? as u16,
            "SRD_PATHS" => self.paths = it.integer(1, 256)? as u16,
            "SRD_MTU" => self.mtu = Some(it.integer(576, 65_535)? as u16),
            "SRD_KEY_FILE" => self.key_file = Some(it.path()?),
            "SRD_LOG" => self.log = it.one_of(LOG_LEVELS)?,
            "SRD_STATS" => self.stats = Some(it.path()?),
            "SRD_FAULT" => {
                let plan = FaultPlan::parse(it.text()?).map_err(|why| it.wrong(why))?;
                self.fault = Some(plan).filter(|plan| !plan.is_empty());
            }
            "SRD_SELECTOR" => self.selector = it.one_of(SELECTORS)?,
            "SRD_CC" => (self.cc, self.fixed_window_bytes) = it.controller()?,
            "SRD_LINE_RATE_GBPS" => {
                self.line_rate = Some(BitRate((it.number(0.001, 10_000.0)? * 1e9) as u64));
            }
            "SRD_BASE_RTT_US" => self.base_rtt = Some(Nanos((it.number(1.0, 1e6)? * 1e3) as u64)),
            "SRD_PEER_TIMEOUT_S" => self.peer_timeout = Nanos((it.number(0.1, 3600.0)? * 1e9) as u64),
            "SRD_RCVBUF" => self.rcvbuf = it.integer(65_536, 1 << 30)?,
            "SRD_PROGRESS" => self.progress = it.one_of(PROGRESS_MODES)?,
            "SRD_WIRE" => self.wire = it.one_of(WIRES)?,
            "SRD_ENGINES" => self.engines = it.integer(1, 64)? as u16,
            "SRD_SHM" => self.shm = it.one_of(ON_OR_OFF)?,
            "SRD_TOP" => self.top = it.one_of(ON_OR_OFF)?,
            name => unreachable!("{name} is in the table, but is not read"),
        }
        Ok(())
    }
}

const LOG_LEVELS: &[(&str, LogLevel)] = &[
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
];
const SELECTORS: &[(&str, SelectorKind)] =
    &[("reps", SelectorKind::Reps), ("oblivious", SelectorKind::Oblivious), ("pinned", SelectorKind::Pinned)];
const PROGRESS_MODES: &[(&str, ProgressMode)] =
    &[("auto", ProgressMode::Auto), ("thread", ProgressMode::Thread), ("inline", ProgressMode::Inline)];
pub(crate) const WIRES: &[(&str, Wire)] =
    &[("udp", Wire::Udp), ("packet", Wire::Packet), ("xdp", Wire::Xdp), ("auto", Wire::Auto)];
const ON_OR_OFF: &[(&str, bool)] = &[("on", true), ("off", false)];

/// A variable as it is set.
struct Setting {
    variable: &'static Variable,
    value: OsString,
}

impl Setting {
    fn refuse(&self, why: Option<String>) -> OptionsError {
        let value = self.value.to_string_lossy().into_owned();
        OptionsError { variable: self.variable.name, value, why, allowed: self.variable.allowed }
    }

    fn wrong(&self, why: impl Into<String>) -> OptionsError {
        self.refuse(Some(why.into()))
    }

    fn text(&self) -> Result<&str, OptionsError> {
        self.value.to_str().map(str::trim).ok_or_else(|| self.wrong("not valid UTF-8"))
    }

    fn within<T: FromStr + PartialOrd>(&self, low: T, high: T, what: &str) -> Result<T, OptionsError> {
        let n = self.text()?.parse().map_err(|_| self.wrong(what))?;
        if (low..=high).contains(&n) { Ok(n) } else { Err(self.refuse(None)) }
    }

    fn number(&self, low: f64, high: f64) -> Result<f64, OptionsError> {
        self.within(low, high, "not a number")
    }

    fn integer(&self, low: u64, high: u64) -> Result<u64, OptionsError> {
        self.within(low, high, "not a whole number")
    }

    fn one_of<T: Copy>(&self, values: &[(&str, T)]) -> Result<T, OptionsError> {
        let text = self.text()?;
        let found = values.iter().find(|(name, _)| *name == text);
        found.map(|&(_, value)| value).ok_or_else(|| self.refuse(None))
    }

    fn path(&self) -> Result<PathBuf, OptionsError> {
        if self.value.is_empty() { Err(self.refuse(None)) } else { Ok(PathBuf::from(&self.value)) }
    }

    fn address(&self) -> Result<Address, OptionsError> {
        let text = self.text()?;
        match text.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() || ip.is_multicast() => {
                Err(self.wrong("peers cannot answer to such an address"))
            }
            Ok(ip) => Ok(Address::Ip(ip)),
            // IFNAMSIZ is 16 with the final zero.
            Err(_) if text.is_empty() || text.len() > 15 || text.contains(['/', ' ', ':']) => {
                Err(self.refuse(None))
            }
            Err(_) => Ok(Address::Interface(text.to_owned())),
        }
    }

    fn controller(&self) -> Result<(ControllerKind, u64), OptionsError> {
        let text = self.text()?;
        match text.strip_prefix("fixed:").map(str::parse) {
            None if text == "log-target" => Ok((ControllerKind::LogTarget, 0)),
            Some(Ok(window_bytes)) if window_bytes > 0 => Ok((ControllerKind::Fixed, window_bytes)),
            _ => Err(self.refuse(None)),
        }
    }
}
