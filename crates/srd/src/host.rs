//! What the host and its kernel offer: interfaces, limits, processors, offloads.

pub mod interfaces;
pub mod limits;
pub mod offload;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// Processors that this process may run on, and those that the host has online.
pub fn cpus() -> (usize, usize) {
    let allowed = sched_getaffinity(Pid::from_raw(0))
        .map(|set| (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).count())
        .unwrap_or(1);
    let online = std::fs::read_to_string("/proc/stat")
        .map(|stat| stat.lines().filter(|line| is_processor_line(line)).count())
        .unwrap_or(allowed);
    (allowed, online)
}

/// `cpu0 …`, but not the sum in `cpu  …`.
fn is_processor_line(line: &str) -> bool {
    line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Release of the running kernel.
pub fn kernel() -> String {
    read_trimmed("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into())
}

/// Where the kernel takes the time from; the fast ones are read without a system call.
pub fn clock_source() -> Option<String> {
    read_trimmed("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

/// The file's content without white space around it; `None` if it cannot be read.
pub fn read_trimmed(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
