//! The kernel: locks on bytes of files, memory of rings, event counters and alarms.

pub mod event;

use crate::layout::LINE;
use crate::sync::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// A line of a ring.
#[derive(Debug)]
pub struct Line {
    pub word: AtomicU64,
    pub bytes: loom::cell::UnsafeCell<[u8; LINE]>,
}

/// The memory of a ring.
#[derive(Debug)]
pub struct Mapping {
    pub lines: Vec<Line>,
}

// SAFETY: loom checks every access to the cells.
#[allow(unsafe_code)]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A ring of so many bytes.
    pub fn new(len: usize) -> Mapping {
        let line = |_| Line { word: AtomicU64::new(0), bytes: loom::cell::UnsafeCell::new([0; LINE]) };
        Mapping { lines: (0..len / LINE).map(line).collect() }
    }
}

/// A file: who has the lock on which byte. No order between threads comes of it.
#[derive(Debug, Default)]
pub struct Inode(std::sync::Mutex<HashMap<u64, usize>>);

/// A file that is open.
#[derive(Debug)]
pub struct File {
    inode: Arc<Inode>,
    /// Its locks are this one's.
    description: Box<u8>,
}

impl File {
    pub fn of(inode: &Arc<Inode>) -> File {
        File { inode: inode.clone(), description: Box::new(0) }
    }

    fn owner(&self) -> usize {
        &raw const *self.description as usize
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let owner = self.owner();
        self.inode.0.lock().unwrap().retain(|_, has| *has != owner);
    }
}

pub fn lock(file: &File, byte: u64) -> io::Result<bool> {
    Ok(*file.inode.0.lock().unwrap().entry(byte).or_insert(file.owner()) == file.owner())
}

pub fn unlock(file: &File, byte: u64) -> io::Result<()> {
    let owner = file.owner();
    file.inode.0.lock().unwrap().retain(|at, has| *at != byte || *has != owner);
    Ok(())
}

pub fn is_locked(file: &File, byte: u64) -> io::Result<bool> {
    Ok(file.inode.0.lock().unwrap().get(&byte).is_some_and(|has| *has != file.owner()))
}

pub fn user() -> u32 {
    0
}

pub fn namespace(_kind: &str) -> io::Result<u64> {
    Ok(1)
}

std::thread_local! {
    /// Whether there are copies between processes. loom runs all threads of a model in one of the system's.
    static COPIES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// From now on there are, of the words that atomics are: those of a process are written while another one copies.
pub fn permit_copies() {
    COPIES.set(true);
}

/// # Safety
///
/// What is read are atomics of eight bytes, which live; `local` is good for `len` bytes.
#[allow(unsafe_code)]
pub unsafe fn read_process(
    _pid: u32,
    word: u64,
    remote: u64,
    local: u64,
    len: usize,
) -> io::Result<(usize, u64)> {
    if !COPIES.get() {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    // SAFETY: by the caller's promise.
    let load = |from: *const AtomicU64| unsafe { &*from }.load(Ordering::Relaxed);
    let token = load(word as *const AtomicU64);
    for n in 0..len / 8 {
        // SAFETY: by the caller's promise. An atomic of loom's is larger than what it stands for.
        unsafe { *(local as *mut u64).add(n) = load((remote as *const AtomicU64).add(n)) };
    }
    Ok((len, token))
}

/// # Safety
///
/// As above.
#[allow(unsafe_code)]
pub unsafe fn write_process(_pid: u32, _remote: u64, _local: u64, _len: usize) -> io::Result<usize> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}
