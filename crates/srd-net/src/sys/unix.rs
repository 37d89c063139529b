//! Unix stream sockets, as far as the standard library does not have them.

use nix::sys::socket::{
    AddressFamily, Shutdown, SockFlag, SockType, UnixAddr, getsockopt, shutdown, socket, sockopt,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Connects without waiting: `WouldBlock` if as many wait already as the listener has room for.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let to = UnixAddr::new(path)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "no path of a socket"))?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let stream = UnixStream::from(socket(AddressFamily::Unix, SockType::Stream, flags, None)?);
    nix::sys::socket::connect(stream.as_raw_fd(), &to)?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Ends a listening socket: whoever sleeps in `accept` wakes with an error, and nobody can connect any more.
pub fn stop_listening(listener: impl AsFd) {
    let _ = shutdown(listener.as_fd().as_raw_fd(), Shutdown::Both); // it cannot fail with a listening socket
}

/// The process that listens at the other end, by its number in our PID namespace; none if it has none there.
pub fn listener_pid(stream: &UnixStream) -> Option<u32> {
    let peer = getsockopt(stream, sockopt::PeerCredentials).ok()?;
    u32::try_from(peer.pid()).ok().filter(|&pid| pid > 0)
}
