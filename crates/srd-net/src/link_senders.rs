//! What instances behind one link tell each other: of how many peers each awaits more. Senders are then told how many share the
//! link, whichever process they send to.
//!
//! They meet in a file of their user's in `/dev/shm`, with a record for each instance. It is read and written, never mapped, and
//! nothing in it is believed without a look at its time: a file that is cut short or full of nonsense costs what others
//! would have told. Who holds the lock on a record's first byte writes there. That lock ends with its process, and
//! what the process said last counts for a little longer. Instances of other users and those behind another network namespace's
//! interfaces are not seen, and where there is no such file each counts alone.

use crate::address::LocalAddress;
use crate::log;
use crate::options::LogLevel;
use crate::slots::SLOTS;
use crate::sys::process;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit};
use srd_wire::Nanos;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Base round trips after which one looks again.
const PERIOD: u64 = 4;
/// Base round trips for which a record counts: as long as a sender may count of which nothing is heard.
const FRESH: u64 = 128;
/// Base round trips after which one says again what has not changed.
const REPEAT: u64 = 32;
/// Others have no more senders than this, whatever the file says.
const MOST: u64 = 4096;

/// What an instance says.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Record {
    /// The network namespace and the interface in it.
    link: u64,
    /// When, by the host's monotonic clock.
    said_ns: u64,
    senders: u64,
}

const RECORD_BYTES: u64 = size_of::<Record>() as u64;

/// See the module.
pub struct LinkSenders {
    file: File,
    base_rtt: Nanos,
    /// Which record is ours, and what it says.
    index: usize,
    own: Record,
    /// All records, as they were read last.
    records: Vec<Record>,
}

impl LinkSenders {
    /// Of the link behind a local address. None if there is none, or nowhere to meet.
    pub fn open(local: &LocalAddress, base_rtt: Nanos) -> Option<LinkSenders> {
        if local.loopback {
            return None;
        }
        let path = format!("/dev/shm/opensrd-senders-{}", process::user());
        let opened = link_of(local).and_then(|link| LinkSenders::open_at(Path::new(&path), link, base_rtt));
        let told = |error| {
            log::once(
                LogLevel::Debug,
                &path,
                format_args!("counts senders without other processes: {path}: {error}"),
            );
        };
        opened.map_err(told).ok()
    }

    fn open_at(path: &Path, link: u64, base_rtt: Nanos) -> io::Result<LinkSenders> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(path)?;
        let about = file.metadata()?;
        if !about.is_file() || about.uid() != process::user() || about.mode() & 0o077 != 0 {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not this user's alone"));
        }
        let index = take_record(&file)?;
        let own = Record { link, ..Record::default() };
        file.write_all_at(own.as_bytes(), index as u64 * RECORD_BYTES)?;
        Ok(LinkSenders { file, base_rtt, index, own, records: vec![Record::default(); SLOTS as usize] })
    }

    /// How often [`LinkSenders::exchange`] is to be called while packets move.
    pub fn period(&self) -> Nanos {
        Nanos(PERIOD * self.base_rtt.0)
    }

    /// Whether what others know of us is to be taken back once it is not so any more.
    pub fn says_something(&self) -> bool {
        self.own.senders > 0
    }

    /// At `now_ns` more is awaited of so many peers over the link. Returns of how many others await more.
    pub fn exchange(&mut self, now_ns: u64, senders: u16) -> u16 {
        let age = now_ns.saturating_sub(self.own.said_ns);
        let changed = u64::from(senders) != self.own.senders;
        if changed || senders > 0 && age >= REPEAT * self.base_rtt.0 {
            self.own = Record { said_ns: now_ns, senders: senders.into(), ..self.own };
            // A file system that is full has no room for what the others would hear.
            let _ = self.file.write_all_at(self.own.as_bytes(), self.index as u64 * RECORD_BYTES);
        }
        let read = self.file.read_at(self.records.as_mut_slice().as_mut_bytes(), 0).unwrap_or(0);
        let records = self.records[..read / RECORD_BYTES as usize].iter().enumerate();
        // Another's clock may have been read a little later than ours.
        let is_fresh = |record: &Record| record.said_ns.abs_diff(now_ns) < FRESH * self.base_rtt.0;
        let others = records.filter(|&(index, record)| index != self.index && record.link == self.own.link);
        let others = others.filter(|(_, record)| is_fresh(record)).map(|(_, record)| record.senders);
        others.fold(0, u64::saturating_add).min(MOST) as u16
    }
}

/// A number for the interface of a local address, other than those of all other interfaces of this host.
fn link_of(local: &LocalAddress) -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino() << 32 | u64::from(local.index))
}

/// Takes the lock of the first record that nobody has, for as long as the file is open.
fn take_record(file: &File) -> io::Result<usize> {
    // To write beyond that limit would end the process (SIGXFSZ).
    let (longest, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    for index in (0..u64::from(SLOTS)).take_while(|index| (index + 1) * RECORD_BYTES <= longest) {
        let lock = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: (index * RECORD_BYTES) as libc::off_t,
            l_len: 1,
            l_pid: 0,
        };
        match fcntl(file, FcntlArg::F_OFD_SETLK(&lock)) {
            Ok(_) => return Ok(index as usize),
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::StorageFull, "every record is taken"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    const BASE: Nanos = Nanos(1000);
    const LATER: u64 = 1_000_000;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("srd-senders-{}-{name}", std::process::id()));
            let _ = fs::remove_file(&path);
            Scratch(path)
        }

        fn open(&self, link: u64) -> LinkSenders {
            LinkSenders::open_at(&self.0, link, BASE).unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn counts_of_one_link_add_up() {
        let file = Scratch::new("sum");
        let mut of_link: Vec<LinkSenders> = (0..3).map(|_| file.open(1)).collect();
        let mut elsewhere = file.open(2);
        assert_eq!(fs::metadata(&file.0).unwrap().mode() & 0o777, 0o600);
        assert_eq!(elsewhere.exchange(LATER, 50), 0);
        let heard: Vec<u16> = (0..3).map(|i| of_link[i].exchange(LATER, 1 + i as u16)).collect();
        assert_eq!(heard, [0, 1, 3]);
        assert_eq!(of_link[0].exchange(LATER - 5, 1), 5, "others' clocks may be a little ahead");
        assert_eq!(of_link[1].exchange(LATER + 5, 0), 4);
        assert_eq!(of_link[0].exchange(LATER + 5, 1), 3, "who has none any more says so");
        assert_eq!(elsewhere.exchange(LATER, 50), 0);
    }

    #[test]
    fn what_is_said_counts_as_long_as_it_is_repeated_and_a_record_until_its_owner_ends() {
        let file = Scratch::new("fresh");
        let (mut one, mut other) = (file.open(1), file.open(1));
        for now in (LATER..2 * LATER).step_by((PERIOD * BASE.0) as usize) {
            other.exchange(now, 7);
            assert_eq!(one.exchange(now, 0), 7);
        }
        drop(other);
        assert_eq!(one.exchange(2 * LATER, 0), 7, "it may have ended just now");
        assert_eq!(one.exchange(2 * LATER + FRESH * BASE.0, 0), 0);
        let mut third = file.open(1);
        assert_eq!(third.index, 1, "the record is free again");
        third.exchange(2 * LATER, 2);
        assert_eq!(one.exchange(2 * LATER, 0), 2);
    }

    #[test]
    fn nonsense_in_the_file_counts_for_nothing_or_for_so_much_at_most() {
        let file = Scratch::new("nonsense");
        let (mut one, mut other) = (file.open(1), file.open(1));
        other.exchange(LATER, 3);
        let writer = OpenOptions::new().write(true).open(&file.0).unwrap();
        for byte in [0, 1, 0x5a, 0xff] {
            writer.write_all_at(&vec![byte; SLOTS as usize * 100], 2 * RECORD_BYTES).unwrap();
            assert_eq!(one.exchange(LATER, 0), 3, "{byte:#x}");
        }
        let liar = Record { link: 1, said_ns: LATER, senders: u64::MAX };
        for index in [2, 3] {
            writer.write_all_at(liar.as_bytes(), index * RECORD_BYTES).unwrap();
        }
        assert_eq!(u64::from(one.exchange(LATER, 0)), MOST);
        for bytes in [2 * RECORD_BYTES - 1, 1, 0] {
            writer.set_len(bytes).unwrap();
            assert_eq!(one.exchange(LATER, 0), 0, "{bytes} bytes");
        }
        other.exchange(LATER, 4);
        assert_eq!(one.exchange(LATER, 0), 4, "who goes on is heard again");
    }

    #[test]
    fn there_are_as_many_records_as_instances_of_an_address() {
        let file = Scratch::new("full");
        let _all: Vec<LinkSenders> = (0..SLOTS).map(|_| file.open(1)).collect();
        let error = LinkSenders::open_at(&file.0, 1, BASE).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_file_that_others_could_write_is_left_alone() {
        let file = Scratch::new("theirs");
        let refused = || LinkSenders::open_at(&file.0, 1, BASE).is_err();
        fs::write(&file.0, "").unwrap();
        fs::set_permissions(&file.0, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(refused());
        fs::set_permissions(&file.0, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!refused());
        if process::user() == 0 {
            std::os::unix::fs::chown(&file.0, Some(12345), None).unwrap();
            assert!(refused());
        }
        fs::remove_file(&file.0).unwrap();
        symlink("/dev/null", &file.0).unwrap();
        assert!(refused());
        assert_eq!(fs::metadata("/dev/null").unwrap().len(), 0);
        assert!(LinkSenders::open_at(Path::new("/nowhere/senders"), 1, BASE).is_err());
    }
}
