//! Segments as files: made, named, found, taken over from the dead, removed; and their control words as memory.
//!
//! A segment gets its name only when it is complete and its owner's lock is held (an unnamed file that is linked), so
//! nobody ever sees half of one. A file is never used by a second owner: that of a dead one is removed, and the next
//! owner makes its own. Who removes it holds a lock on it meanwhile and sees that the name still leads to it, so that two
//! who find the same file dead do not remove what the faster one has put in its place.
#![allow(unsafe_code)]

use crate::address;
use crate::address::Address;
use crate::layout::{BURIAL, HEADER_BYTES, Header, LIFE, Shape, Signals, Slot, loans_at, signals_at};
use crate::memory::Table;
use crate::process_identity::ProcessIdentity;
use crate::reason::NoLane;
use crate::sys::{self, Mapping};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often the name is tried that others are fighting for.
const ATTEMPTS: u32 = 16;
/// How many files of others are looked at, at most, when a segment is made.
const MOST_LOOKED_AT: usize = 1024;

/// A segment, as its owner or a sender has it.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The file: the locks are on it.
    pub file: File,
    /// What the owner said of itself.
    pub header: Header,
    control: Arc<Mapping>,
}

impl Segment {
    /// Makes one that others find.
    pub fn create(dir: &Path, header: Header) -> io::Result<Segment> {
        let file = sys::unnamed_file(dir)?;
        sys::set_len(&file, header.shape.total_bytes() as u64)?;
        sys::reserve(&file, 0, header.shape.control_bytes() as u64)?;
        file.write_all_at(&header.encode(), 0)?;
        if !sys::lock(&file, LIFE)? {
            return Err(io::Error::other("the lock on a new file is taken"));
        }
        // All of it: the owner reads every ring.
        let control = Arc::new(Mapping::new(&file, 0, header.shape.total_bytes())?);
        let path = path(dir, &header.address)?;
        for _ in 0..ATTEMPTS {
            match sys::name(&file, &path) {
                Ok(()) => return Ok(Segment { file, header, control }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => bury(&path, &header.process)?,
                Err(e) => return Err(e),
            }
        }
        Err(in_use(&path))
    }

    /// Finds that of a living owner.
    pub fn find(dir: &Path, of: &Address, this: &ProcessIdentity) -> Result<Segment, NoLane> {
        let path = path(dir, of).map_err(NoLane::system("name the network namespace"))?;
        let file = match sys::open(&path) {
            Ok(file) => file,
            Err(e) => {
                return Err(match e.raw_os_error() {
                    Some(libc::ENOENT | libc::ENOTDIR) => NoLane::NoSegment,
                    Some(libc::EACCES | libc::EPERM) => NoLane::Permission,
                    Some(libc::ELOOP | libc::EISDIR | libc::ENXIO) => NoLane::Damaged("it is no file"),
                    _ => NoLane::System { what: "open the peer's segment", error: e },
                });
            }
        };
        let header = header_of(&file)?;
        if header.address != *of {
            return Err(NoLane::Damaged("it is another endpoint's"));
        }
        let about = file.metadata().map_err(NoLane::system("look at the peer's segment"))?;
        if about.len() < header.shape.total_bytes() as u64 {
            return Err(NoLane::Damaged("it is too short"));
        }
        if !is_alive(&file, Some(&header), this).map_err(NoLane::system("see whether the peer lives"))? {
            return Err(NoLane::OwnerDead);
        }
        let control = Mapping::new(&file, 0, header.shape.control_bytes())
            .map_err(NoLane::system("map the peer's segment"))?;
        Ok(Segment { file, header, control: Arc::new(control) })
    }

    /// Whether the owner's process is there, by the lock it holds.
    pub fn owner_lives(&self) -> io::Result<bool> {
        sys::is_locked(&self.file, LIFE)
    }

    /// What all lanes share.
    #[inline]
    pub fn signals(&self) -> &Signals {
        // SAFETY: within the control words, aligned, made of atomics, for which all bytes are values.
        unsafe { self.control.base().add(signals_at()).cast().as_ref() }
    }

    /// A lane's slot.
    ///
    /// # Panics
    ///
    /// If there is no such lane.
    #[inline]
    pub fn slot(&self, lane: u16) -> &Slot {
        assert!(lane < self.header.shape.lanes, "the segment has no lane {lane}");
        // SAFETY: as above.
        unsafe { self.control.base().add(self.header.shape.slot_at(lane)).cast().as_ref() }
    }

    /// What the owner lends.
    pub fn loans(&self) -> Table {
        Table::new(self.control.clone(), loans_at())
    }

    /// The owner's mapping of all rings, and where in it the ring of a lane is.
    pub fn ring_of_owner(&self, lane: u16) -> (Arc<Mapping>, usize) {
        (self.control.clone(), self.header.shape.ring_at(lane))
    }

    /// A mapping of the ring of a lane, with memory behind it.
    pub fn ring_of_sender(&self, lane: u16) -> Result<Arc<Mapping>, NoLane> {
        let Shape { ring_bytes, .. } = self.header.shape;
        let at = self.header.shape.ring_at(lane) as u64;
        sys::reserve(&self.file, at, ring_bytes.into()).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSPC | libc::ENOMEM | libc::EDQUOT) => NoLane::NoMemory,
            _ => NoLane::System { what: "take memory for a lane", error },
        })?;
        let len = (ring_bytes as usize).next_multiple_of(sys::page());
        Ok(Arc::new(Mapping::new(&self.file, at, len).map_err(NoLane::system("map a lane"))?))
    }

    /// Takes the name away, if it still is this segment's.
    pub fn remove(&self, dir: &Path) -> io::Result<()> {
        remove(&self.file, &path(dir, &self.header.address)?)
    }
}

fn path(dir: &Path, address: &Address) -> io::Result<PathBuf> {
    Ok(dir.join(address::file_name(address)?))
}

/// Reads the header out of a file of this user.
fn header_of(file: &File) -> Result<Header, NoLane> {
    let about = file.metadata().map_err(NoLane::system("look at the peer's segment"))?;
    if about.uid() != sys::user() || about.mode() & 0o077 != 0 {
        return Err(NoLane::Permission);
    }
    if !about.is_file() {
        return Err(NoLane::Damaged("it is no file"));
    }
    let mut bytes = [0; HEADER_BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Header::decode(&bytes),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(NoLane::Damaged("it is too short")),
        Err(error) => Err(NoLane::System { what: "read the peer's segment", error }),
    }
}

/// Whether the owner of a file lives. A forked child may hold the lock of a process that has ended, so if there is a
/// header the process is looked at, too.
fn is_alive(file: &File, header: Option<&Header>, this: &ProcessIdentity) -> io::Result<bool> {
    Ok(sys::is_locked(file, LIFE)? && !header.is_some_and(|header| header.process.has_ended(this)))
}

/// Removes the file at `path` if its owner is dead; an error if it lives.
fn bury(path: &Path, this: &ProcessIdentity) -> io::Result<()> {
    let file = match sys::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if is_alive(&file, header_of(&file).ok().as_ref(), this)? {
        return Err(in_use(path));
    }
    remove(&file, path)
}

/// Removes the name at `path` if it leads to `file`.
fn remove(file: &File, path: &Path) -> io::Result<()> {
    if !sys::lock(file, BURIAL)? {
        // Somebody else is about to.
        std::thread::yield_now();
        return Ok(());
    }
    let mine = file.metadata()?;
    let removed = match fs::symlink_metadata(path) {
        Ok(named) if (named.dev(), named.ino()) == (mine.dev(), mine.ino()) => fs::remove_file(path),
        Ok(_) => Ok(()),
        Err(e) => Err(e),
    };
    sys::unlock(file, BURIAL)?;
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn in_use(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("{} is the segment of a living process, and this process has its address", path.display()),
    )
}

/// Removes the segments that this user's dead processes have left in `dir`. They hold memory. What cannot be removed is left
/// to the next one who tries. Returns how many are not there any more.
pub fn clear_away_the_dead(dir: &Path) -> usize {
    ProcessIdentity::this().map_or(0, |this| clear_away(dir, &this))
}

/// The same, as seen by this process.
pub(crate) fn clear_away(dir: &Path, this: &ProcessIdentity) -> usize {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let prefix = address::prefix();
    let ours = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.starts_with(&prefix));
    let ours = entries.flatten().filter(|entry| ours(&entry.file_name()));
    ours.take(MOST_LOOKED_AT).filter(|entry| bury(&entry.path(), this).is_ok()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_late_to_a_burial_leaves_the_new_owners_file_alone() {
        let dir = std::env::temp_dir().join(format!("srd-shm-burial-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let path = dir.join("segment");
        fs::write(&path, "of the dead").unwrap();
        let found = sys::open(&path).unwrap();
        // Somebody was faster, and has put a file of its own there.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "of the living").unwrap();
        remove(&found, &path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "of the living");
        let found = sys::open(&path).unwrap();
        remove(&found, &path).unwrap();
        assert!(!path.exists());
        remove(&found, &path).unwrap();
        fs::remove_dir(&dir).unwrap();
    }
}
