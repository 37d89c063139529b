//! Everything that may not work, in words: what happened, to whom, and what to do.

use std::fmt;
use std::io;

/// Why there is no lane to an endpoint.
#[derive(Debug)]
pub enum NoLane {
    /// No segment of that name: the endpoint is on another host, or in another network namespace, or its process shares
    /// no such directory with this one, or it has no lanes, or it is not there yet.
    NoSegment,
    /// There is a segment, and its owner is dead.
    OwnerDead,
    /// The owner is about to go.
    Closing,
    /// It is the segment of another endpoint, which was there before the one that is meant, or came after it.
    OtherEndpoint,
    /// The segment belongs to another user, or may not be opened.
    Permission,
    /// The owner's release lays out its segment otherwise.
    OtherVersion {
        /// Its layout.
        theirs: u64,
        /// The layout here.
        ours: u64,
    },
    /// The file makes no sense.
    Damaged(&'static str),
    /// All lanes of the segment are taken.
    Full {
        /// How many it has.
        lanes: u16,
    },
    /// There is no memory for the ring in the shared file system.
    NoMemory,
    /// The system refuses what lanes need.
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        error: io::Error,
    },
}

impl NoLane {
    /// For `map_err`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> NoLane {
        move |error| NoLane::System { what, error }
    }

    /// Whether asking again later may help.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            NoLane::NoSegment
                | NoLane::OwnerDead
                | NoLane::Closing
                | NoLane::OtherEndpoint
                | NoLane::Full { .. }
                | NoLane::NoMemory
        )
    }
}

impl fmt::Display for NoLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoLane::NoSegment => f.write_str(
                "no process of this user on this host and in this network namespace offers lanes there",
            ),
            NoLane::OwnerDead => f.write_str("the process that offered lanes there has ended"),
            NoLane::Closing => f.write_str("the endpoint closes"),
            NoLane::OtherEndpoint => f.write_str("another endpoint is there"),
            NoLane::Permission => {
                f.write_str("the segment belongs to another user; lanes need processes of one user")
            }
            NoLane::OtherVersion { theirs, ours } => write!(
                f,
                "the peer's release lays out shared memory otherwise (version {theirs}, here {ours}); run one release"
            ),
            NoLane::Damaged(what) => {
                write!(f, "the segment is damaged: {what}; its file may be removed once the peer has ended")
            }
            NoLane::Full { lanes } => write!(f, "all {lanes} lanes of the peer are taken"),
            NoLane::NoMemory => f.write_str(
                "no memory left in the shared file system; make /dev/shm larger (containers: --shm-size)",
            ),
            NoLane::System { what, error } => write!(f, "cannot {what}: {error}"),
        }
    }
}

impl std::error::Error for NoLane {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NoLane::System { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Why the memory of a peer cannot be read and written by copies between processes, so that large messages have to go
/// through the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoCopy {
    /// Its process numbers are not ours.
    OtherPidNamespace,
    /// The system does not permit it.
    NotPermitted,
    /// The system has no such call.
    NotThere,
    /// The process of that number is not the one that owns the segment, or its memory cannot be read.
    OtherProcess,
}

impl fmt::Display for NoCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoCopy::OtherPidNamespace => {
                "the peer is in another PID namespace, so its memory cannot be named (containers: --pid=host for both)"
            }
            NoCopy::NotPermitted => {
                "process_vm_readv is not permitted (kernel.yama.ptrace_scope above 1, a seccomp filter, or a process \
                 that is not dumpable; containers: --cap-add=SYS_PTRACE)"
            }
            NoCopy::NotThere => "the kernel has no process_vm_readv (CONFIG_CROSS_MEMORY_ATTACH)",
            NoCopy::OtherProcess => "the peer's process has ended, or its number leads to another process",
        })
    }
}

impl std::error::Error for NoCopy {}

/// Why a copy between processes failed. Some of the bytes may have been copied.
#[derive(Debug)]
pub enum CopyError {
    /// It was never possible with this peer.
    NoCopy(NoCopy),
    /// The peer's process has ended, or closed its endpoint.
    PeerGone,
    /// The peer does not lend these bytes, or not any more, or had no place to say so.
    NotLent,
    /// Not all of the bytes, here or there, are memory that may be read or written so.
    Fault,
    /// Something else.
    System(io::Error),
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyError::NoCopy(why) => why.fmt(f),
            CopyError::PeerGone => f.write_str("the peer's process has ended or closed its endpoint"),
            CopyError::NotLent => f.write_str("the peer does not lend that memory any more"),
            CopyError::Fault => f.write_str(
                "part of the buffer, here or at the peer, is not mapped or may not be written; was it freed?",
            ),
            CopyError::System(error) => write!(f, "the copy between processes failed: {error}"),
        }
    }
}

impl std::error::Error for CopyError {}

/// Why a record was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// No room: the peer has not read enough yet. Try again later.
    Busy,
    /// Longer than [`crate::Lane::max_record`].
    TooLong,
    /// The peer has closed its endpoint.
    PeerClosed,
    /// The lane makes no sense any more, or the peer has said so. Connect again, or go through the network.
    Damaged(Damage),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Busy => f.write_str("the lane is full until the peer reads"),
            SendError::TooLong => f.write_str("the record is longer than the lane takes"),
            SendError::PeerClosed => f.write_str("the peer has closed its endpoint"),
            SendError::Damaged(damage) => write!(f, "the lane is damaged: {damage}"),
        }
    }
}

impl std::error::Error for SendError {}

/// What makes no sense in a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// A record that was not written for the place it is in.
    Misplaced,
    /// A record of no known kind.
    Kind,
    /// A record longer than allowed, or beyond the end of the ring.
    Length,
    /// The reader claims to have read what was not written, or not to have read what it had.
    Head,
    /// The lane was taken back by the peer.
    Refused,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Damage::Misplaced => "a record was not written for the place it is in",
            Damage::Kind => "a record is of no known kind",
            Damage::Length => "a record is longer than its lane",
            Damage::Head => "the reader's position cannot be",
            Damage::Refused => "the peer has taken it back",
        })
    }
}

/// Why a lane into an inbox has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhyEnded {
    /// The sender closed it; everything it sent was delivered.
    Closed,
    /// The sender's process died; everything it had finished sending was delivered.
    Died,
    /// What came made no sense; what came before was delivered.
    Damaged(Damage),
}

impl fmt::Display for WhyEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyEnded::Closed => f.write_str("the sender closed it"),
            WhyEnded::Died => f.write_str("the sender's process died"),
            WhyEnded::Damaged(damage) => write!(f, "it is damaged: {damage}"),
        }
    }
}
