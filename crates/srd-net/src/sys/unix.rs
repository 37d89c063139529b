//! Unix stream sockets, as far as the standard library does not have them.

use super::check;
use std::ffi::c_char;
use std::io;
use std::mem::{offset_of, size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Connects without waiting: `WouldBlock` if as many wait already as the listener has room for.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    // SAFETY: plain data.
    let mut addr: libc::sockaddr_un = unsafe { zeroed() };
    addr.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= addr.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no path of a socket"));
    }
    for (to, from) in addr.sun_path.iter_mut().zip(bytes) {
        *to = *from as c_char;
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is involved.
    let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: the descriptor is new and belongs to nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let len = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    // SAFETY: an address of that length.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const addr).cast(), len as libc::socklen_t) })?;
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Ends a listening socket: whoever sleeps in `accept` wakes with an error, and nobody can connect any more.
pub fn stop_listening(listener: impl AsFd) {
    // SAFETY: no memory is involved. It cannot fail with a listening socket.
    unsafe { libc::shutdown(listener.as_fd().as_raw_fd(), libc::SHUT_RDWR) };
}

/// The process that listens at the other end, by its number in our PID namespace; none if it has none there.
pub fn listener_pid(stream: &UnixStream) -> Option<u32> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = stream.as_fd().as_raw_fd();
    let out = (&raw mut cred).cast();
    // SAFETY: room for the structure, whose length is said.
    check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, out, &mut len) }).ok()?;
    u32::try_from(cred.pid).ok().filter(|&pid| pid > 0)
}
