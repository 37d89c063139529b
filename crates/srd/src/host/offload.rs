//! Whether the kernel cuts and joins UDP datagrams for us (GSO and GRO), found by doing it once over loopback.

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt, sockopt,
};
use serde::Serialize;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// What the kernel does for UDP sockets.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct Offload {
    /// One send becomes many datagrams.
    pub gso: bool,
    /// Many datagrams arrive in one receive.
    pub gro: bool,
}

const SEGMENT: u16 = 100;
const SEGMENTS: usize = 4;

/// Sends a few segments in one call and looks at how they arrive.
pub fn probe() -> std::io::Result<Offload> {
    let receiver = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    receiver.set_read_timeout(Some(Duration::from_millis(500)))?;
    let can_join = setsockopt(&receiver, sockopt::UdpGroSegment, &true).is_ok();
    let port = receiver.local_addr()?.port();
    let sender = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;

    let data = [0u8; SEGMENT as usize * SEGMENTS];
    let to = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
    let gso = sendmsg(
        sender.as_raw_fd(),
        &[IoSlice::new(&data)],
        &[ControlMessage::UdpGsoSegments(&SEGMENT)],
        MsgFlags::empty(),
        Some(&to),
    )
    .is_ok();
    if !gso {
        return Ok(Offload { gso, gro: can_join });
    }

    let mut buffer = [0u8; SEGMENT as usize * SEGMENTS];
    let mut space = nix::cmsg_space!(i32);
    let mut iov = [IoSliceMut::new(&mut buffer)];
    let arrived = recvmsg::<SockaddrIn>(receiver.as_raw_fd(), &mut iov, Some(&mut space), MsgFlags::empty())?;
    let joined = arrived.cmsgs()?.any(|message| matches!(message, ControlMessageOwned::UdpGroSegments(_)));
    Ok(Offload { gso, gro: can_join && joined && arrived.bytes > usize::from(SEGMENT) })
}
