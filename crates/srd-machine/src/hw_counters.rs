//! The counters of a device, as the driver gives them: a file for each. All processes of a machine add to the same files, each
//! what has come since it last did, so that what a process has counted stays after its end and nobody has to ask anybody.
//!
//! A lock in the machine's directory keeps two from adding at once, and a file takes the place of the old one when it is
//! whole: who reads sees a number, before or after.

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long others may hold the lock. They need it for microseconds; on busy processors many of them may be first for seconds.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Counters of a port (efa_verbs.c of amzn-drivers at 64788ef, `EFA_DEFINE_PORT_STATS`), in the driver's order.
pub const PORT_COUNTERS: &[&str] = &[
    "tx_bytes",
    "tx_pkts",
    "rx_bytes",
    "rx_pkts",
    "rx_drops",
    "send_bytes",
    "send_wrs",
    "recv_bytes",
    "recv_wrs",
    "rdma_read_wrs",
    "rdma_read_bytes",
    "rdma_read_wr_err",
    "rdma_read_resp_bytes",
    "rdma_write_wrs",
    "rdma_write_bytes",
    "rdma_write_wr_err",
    "rdma_write_recv_bytes",
    "retrans_bytes",
    "retrans_pkts",
    "retrans_timeout_events",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
];

/// Counters of a device (there, `EFA_DEFINE_DEVICE_STATS`). Commands and what else needs a card's admin queue stay at zero.
pub const DEVICE_COUNTERS: &[&str] = &[
    "submitted_cmds",
    "completed_cmds",
    "cmds_err",
    "no_completion_cmds",
    "keep_alive_rcvd",
    "alloc_pd_err",
    "create_qp_err",
    "create_cq_err",
    "reg_mr_err",
    "alloc_ucontext_err",
    "create_ah_err",
    "mmap_err",
];

/// The files of one device.
#[derive(Clone, Debug)]
pub struct HwCounters {
    device: PathBuf,
    port: PathBuf,
    scratch: PathBuf,
}

impl HwCounters {
    /// Of the device whose directory this is (`…/infiniband/NAME`); `scratch` is on the same file system, and those who add may write
    /// there.
    pub(crate) fn new(device: &Path, scratch: PathBuf) -> HwCounters {
        HwCounters { device: device.join("hw_counters"), port: device.join("ports/1/hw_counters"), scratch }
    }

    /// Makes the files, all zero.
    pub(crate) fn make(&self) -> io::Result<()> {
        for (directory, names) in [(&self.device, DEVICE_COUNTERS), (&self.port, PORT_COUNTERS)] {
            fs::create_dir_all(directory)?;
            names.iter().try_for_each(|name| put(&directory.join(name), 0o444, b"0\n"))?;
            // RDMA_HW_STATS_DEFAULT_LIFESPAN of ib_verbs.h, in whole ticks of 4 ms.
            put(&directory.join("lifespan"), 0o644, b"12\n")?;
        }
        Ok(())
    }

    /// Adds these amounts. Those of names that the driver has no counter of are passed over.
    ///
    /// # Errors
    ///
    /// Nothing can be written: the process belongs to another user than the machine, or others have held the lock for ten seconds.
    /// None, or some, have been added.
    pub fn add(&self, amounts: impl Iterator<Item = (&'static str, u64)>) -> io::Result<()> {
        let mut locked = None;
        for (name, amount) in amounts.filter(|&(_, amount)| amount > 0) {
            let directory = match name {
                name if PORT_COUNTERS.contains(&name) => &self.port,
                name if DEVICE_COUNTERS.contains(&name) => &self.device,
                _ => continue,
            };
            if locked.is_none() {
                locked = Some(self.lock(LOCK_WAIT)?);
            }
            let file = directory.join(name);
            let sum = read(&file)?.wrapping_add(amount);
            let new = self.scratch.join("new");
            let _ = fs::remove_file(&new);
            put(&new, 0o444, format!("{sum}\n").as_bytes())?;
            fs::rename(&new, &file)?;
        }
        Ok(())
    }

    /// A counter of the port, as it is now.
    pub fn port_counter(&self, name: &str) -> io::Result<u64> {
        read(&self.port.join(name))
    }

    fn lock(&self, longest: Duration) -> io::Result<Flock<File>> {
        let path = self.scratch.join("lock");
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        let until = Instant::now() + longest;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((again, Errno::EWOULDBLOCK | Errno::EINTR)) if Instant::now() < until => file = again,
                Err((_, Errno::EWOULDBLOCK)) => {
                    return Err(io::Error::other(format!("another process keeps {} locked", path.display())));
                }
                Err((_, error)) => return Err(error.into()),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn read(file: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(file)?;
    text.trim().parse().map_err(|_| io::Error::other(format!("{} holds no number", file.display())))
}

/// Writes a new file.
pub(crate) fn put(file: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    use std::io::Write;
    OpenOptions::new().write(true).create_new(true).mode(mode).open(file)?.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_another_keeps_is_waited_for_so_long_and_named() {
        let scratch = std::env::temp_dir().join(format!("srd-hw-counters-{}", std::process::id()));
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch).unwrap();
        let counters = HwCounters::new(&scratch.join("rdmap0s6"), scratch.clone());
        counters.make().unwrap();
        let short = Duration::from_millis(20);
        let kept = counters.lock(short).unwrap();
        let why = counters.lock(short).unwrap_err().to_string();
        assert!(why.contains("another process keeps") && why.contains("lock locked"), "{why}");
        drop(kept);
        counters.add([("tx_bytes", 7), ("no_such_counter", 1)].into_iter()).unwrap();
        assert_eq!(counters.port_counter("tx_bytes").unwrap(), 7);
        fs::remove_dir_all(&scratch).unwrap();
    }
}
