//! What the kernel tells of a TCP connection (`TCP_INFO`, tcp(7)).

use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Some of `struct tcp_info` of `linux/tcp.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpInfo {
    /// Segments sent, those sent again among them.
    pub segments: u64,
    /// Segments sent again.
    pub again: u64,
    /// Bytes that the other side has acknowledged.
    pub acknowledged_bytes: u64,
}

/// Asks about a connection; `None` where the kernel does not tell all of it.
pub fn of(stream: &TcpStream) -> Option<TcpInfo> {
    let mut info = [0u8; 256];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `info`, which has as many.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result != 0 || length < 140 {
        return None;
    }
    let word = |at: usize| u64::from(u32::from_ne_bytes(info[at..at + 4].try_into().expect("four bytes")));
    Some(TcpInfo {
        segments: word(136),
        again: word(100),
        acknowledged_bytes: u64::from_ne_bytes(info[120..128].try_into().expect("eight bytes")),
    })
}
