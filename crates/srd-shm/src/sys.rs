//! Calls into the system: locks that last as long as a process, memory that processes share, copies between processes.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::{self, NonNull};

/// The error of the call that has just returned `-1`; its value otherwise.
fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// The user on whose behalf this process acts.
pub fn user() -> u32 {
    // SAFETY: cannot fail, touches no memory.
    unsafe { libc::geteuid() }
}

/// The number of a namespace that the calling thread is in: `net`, `pid`.
pub fn namespace(kind: &str) -> io::Result<u64> {
    Ok(fs::metadata(format!("/proc/thread-self/ns/{kind}"))?.ino())
}

/// A new file in `dir`, for this user only, without a name: it is gone with its last descriptor.
pub fn unnamed_file(dir: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(dir)
}

/// Opens a file that is there, and not by a symbolic link.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Gives an unnamed file a name that no other file has.
pub fn name(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: two strings that end in zero.
    check(unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    })?;
    Ok(())
}

fn one_byte(kind: libc::c_int, byte: u64) -> libc::flock {
    // SAFETY: plain integers.
    let mut range: libc::flock = unsafe { zeroed() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = byte as libc::off_t;
    range.l_len = 1;
    range
}

/// Takes the lock on a byte of a file, for as long as this description of the file is open. False if another has it.
pub fn lock(file: &File, byte: u64) -> io::Result<bool> {
    let range = one_byte(libc::F_WRLCK, byte);
    // SAFETY: the kernel reads the structure.
    match check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &range) }) {
        Ok(_) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Gives it back.
pub fn unlock(file: &File, byte: u64) -> io::Result<()> {
    let range = one_byte(libc::F_UNLCK, byte);
    // SAFETY: the kernel reads the structure.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &range) })?;
    Ok(())
}

/// Whether another description of the file has the lock on that byte. Disturbs nobody.
pub fn is_locked(file: &File, byte: u64) -> io::Result<bool> {
    let mut range = one_byte(libc::F_WRLCK, byte);
    // SAFETY: the kernel reads and writes the structure.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut range) })?;
    Ok(range.l_type != libc::F_UNLCK as libc::c_short)
}

/// Makes a file so long, within `ulimit -f`: beyond that the kernel would end the process with a signal.
pub fn set_len(file: &File, len: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes the structure.
    check(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) })?;
    if len > limit.rlim_cur {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    file.set_len(len)
}

/// Takes the memory for a part of a file now. Without that a full file system is a SIGBUS for whoever touches it first.
pub fn reserve(file: &File, offset: u64, len: u64) -> io::Result<()> {
    loop {
        // SAFETY: no memory is involved.
        let done = unsafe { libc::fallocate(file.as_raw_fd(), 0, offset as libc::off_t, len as libc::off_t) };
        match check(done) {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
    }
}

/// A part of a file as memory, shared with whoever else has it.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a range of memory. Who touches what in it, and how, is up to those who ask for pointers.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes from `offset`, where a page begins.
    pub fn new(file: &File, offset: u64, len: usize) -> io::Result<Mapping> {
        Mapping::map(libc::MAP_SHARED, file.as_raw_fd(), offset, len)
    }

    /// Memory of this process alone.
    #[cfg(test)]
    pub fn anonymous(len: usize) -> Mapping {
        Mapping::map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0, len).unwrap()
    }

    fn map(flags: libc::c_int, fd: libc::c_int, offset: u64, len: usize) -> io::Result<Mapping> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, where the kernel finds room.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, fd, offset as libc::off_t) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { base: NonNull::new(base.cast()).expect("mmap answers no null"), len })
    }

    /// Where it begins; aligned to a page.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; who holds a pointer into it holds the mapping as well.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The page size.
pub fn page() -> usize {
    // SAFETY: cannot fail.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Lets other processes of the user copy from and to this one where the Yama module confines that to ancestors
/// (`kernel.yama.ptrace_scope` 1). Where it does not there is nothing to permit.
pub fn permit_copies() {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if scope.trim() == "1" {
        // SAFETY: no memory is involved. Whether it was enough is what a peer finds out when it connects.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    }
}

/// Copies `len` bytes at `remote` in process `pid` to `local`, and the word at `word` there to the answer, all of it out
/// of the same process even if another gets its number meanwhile. Answers how many bytes there are, and the word.
///
/// # Safety
///
/// `local` is good for `len` bytes, which nothing else of this process uses meanwhile.
pub unsafe fn read_process(
    pid: u32,
    word: u64,
    remote: u64,
    local: u64,
    len: usize,
) -> io::Result<(usize, u64)> {
    let mut value = 0u64;
    let to = [piece(ptr::from_mut(&mut value) as u64, 8), piece(local, len)];
    let from = [piece(word, 8), piece(remote, len)];
    // SAFETY: the kernel writes to the word here, and to `local` by the caller's promise; it checks what it reads.
    let got = unsafe { libc::process_vm_readv(pid as libc::pid_t, to.as_ptr(), 2, from.as_ptr(), 2, 0) };
    match got {
        0..8 => Ok((0, 0)),
        8.. => Ok((got as usize - 8, value)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Copies `len` bytes at `local` to `remote` in process `pid`. Answers how many.
///
/// # Safety
///
/// `local` can be read, `len` bytes. The other process expects these bytes where they go.
pub unsafe fn write_process(pid: u32, remote: u64, local: u64, len: usize) -> io::Result<usize> {
    let (from, to) = (piece(local, len), piece(remote, len));
    // SAFETY: by the caller's promise; the kernel checks both ranges.
    let put = unsafe { libc::process_vm_writev(pid as libc::pid_t, &from, 1, &to, 1, 0) };
    if put < 0 { Err(io::Error::last_os_error()) } else { Ok(put as usize) }
}

fn piece(addr: u64, len: usize) -> libc::iovec {
    libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: len }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_lasts_as_long_as_its_description_of_the_file() {
        let dir = std::env::temp_dir();
        let file = unnamed_file(&dir).unwrap();
        let again = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
            .unwrap();
        assert!(lock(&file, 5).unwrap() && lock(&file, 5).unwrap(), "one's own lock is no hindrance");
        assert!(is_locked(&again, 5).unwrap() && !is_locked(&file, 5).unwrap());
        assert!(!lock(&again, 5).unwrap() && lock(&again, 6).unwrap());
        unlock(&file, 5).unwrap();
        assert!(!is_locked(&again, 5).unwrap());
        drop(again);
        assert!(!is_locked(&file, 6).unwrap());
    }
}
