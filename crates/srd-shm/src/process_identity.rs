//! Who a process is, and whether it is still there: its number, when it started, and whose numbers these are.

use crate::sys;
use std::fs;
use std::io;

/// A process, so that another that later gets its number is not taken for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProcessIdentity {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since the host booted (proc_pid_stat(5), field 22); 0: it cannot know, since its
    /// `/proc` shows another namespace's processes.
    pub started: u64,
    /// The PID namespace in which `pid` is its number.
    pub namespace: u64,
}

impl ProcessIdentity {
    /// This process.
    pub fn this() -> io::Result<ProcessIdentity> {
        let pid = std::process::id();
        let shown = fs::read_link("/proc/self")?;
        let started = if shown.as_os_str() == pid.to_string().as_str() { started(pid)? } else { None };
        let started = started.unwrap_or(0);
        Ok(ProcessIdentity { pid, started, namespace: sys::namespace("pid")? })
    }

    /// Whether it has certainly ended. Of a process of another PID namespace nothing is certain.
    pub fn has_ended(&self, seen_from: &ProcessIdentity) -> bool {
        let certain = self.namespace == seen_from.namespace && self.started != 0 && seen_from.started != 0;
        certain && matches!(started(self.pid), Ok(now) if now != Some(self.started))
    }
}

/// When process `pid` started; `None` if there is none, or only its exit status is left.
fn started(pid: u32) -> io::Result<Option<u64>> {
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        // ESRCH: it ended between open and read.
        Err(e) if e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    let unreadable = || io::Error::other("/proc/PID/stat does not read as proc_pid_stat(5) says");
    // The program's name is in parentheses and may hold any character. Behind it: field 3 and on.
    let (_, rest) = stat.rsplit_once(')').ok_or_else(unreadable)?;
    let mut fields = rest.split_whitespace();
    if matches!(fields.next(), Some("Z" | "X")) {
        return Ok(None);
    }
    let started = fields.nth(22 - 4).and_then(|field| field.parse().ok()).ok_or_else(unreadable)?;
    Ok(Some(started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_there_until_it_ends_whoever_gets_its_number() {
        let this = ProcessIdentity::this().unwrap();
        assert!(!this.has_ended(&this));
        assert!(ProcessIdentity { started: this.started + 1, ..this }.has_ended(&this));
        let elsewhere = ProcessIdentity { started: 0, namespace: 1, ..this };
        assert!(!elsewhere.has_ended(&this), "nothing is known of another namespace");
        let blind = ProcessIdentity { started: 0, ..this };
        assert!(
            !blind.has_ended(&this)
                && !ProcessIdentity { started: this.started + 1, ..this }.has_ended(&blind)
        );
    }

    #[test]
    fn a_process_of_which_only_the_exit_status_is_left_has_ended() {
        let this = ProcessIdentity::this().unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let started = started(child.id()).unwrap().unwrap();
        let process = ProcessIdentity { pid: child.id(), started, ..this };
        assert!(!process.has_ended(&this));
        child.kill().unwrap();
        while !process.has_ended(&this) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert!(process.has_ended(&this));
    }
}
