//! What is known of receives that wait, and of messages that are on their way in. What happens to them is decided in
//! `receiving.rs`, `read_rendezvous.rs` and `grants.rs`.

use crate::api::Failure;
use crate::buffers::Buffer;
use crate::header;
use crate::iov::Iovs;
use crate::matching::{Place, Posted, Unexpected, Waiting, Wanted};
use srd_device::InboundId;
use srd_wire::KeyedHash;

/// A receive of the program.
#[derive(Debug)]
pub(crate) struct Receive {
    pub wanted: Wanted,
    pub tagged: bool,
    pub place: Option<Place>,
    pub iov: Iovs,
    pub context: u64,
    pub report: bool,
    pub multi: Option<Multi>,
}

/// A buffer for many messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Multi {
    /// Where the next message goes.
    pub used: u64,
    /// Messages on their way into it.
    pub active: u32,
    /// It takes no more.
    pub full: bool,
}

/// A receive that a message has.
#[derive(Clone, Debug)]
pub(crate) struct Matched {
    pub iov: Iovs,
    pub capacity: u64,
    pub context: u64,
    pub report: bool,
    /// The receive, if it takes more messages.
    pub multi: Option<u32>,
}

/// Where a message of a peer's stands that is not in its receiver's buffer yet.
#[derive(Debug)]
pub(crate) enum Standing {
    /// Others must be matched first.
    Early,
    /// Nobody has asked for it.
    Unexpected(Waiting),
    /// A peek has set it aside.
    Claimed,
    /// It goes into this receive.
    Matched(Matched),
    /// Nobody will get it.
    Discarded,
}

/// A message of a peer's that is not complete, or for which nobody waits.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub peer: u32,
    pub number: u32,
    /// Its sender's name of it.
    pub op: u32,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub receipt: bool,
    pub total: u64,
    /// How much comes by itself, and has come.
    pub eager: u32,
    pub arrived: u32,
    /// What has come before there was a receive.
    pub held: Option<Buffer>,
    pub standing: Standing,
    /// How the rest is fetched.
    pub fetch: Fetch,
    /// The device places the rest of it where its receive wants it.
    pub diverted: Option<InboundId>,
    pub failure: Option<Failure>,
    /// More of it is to come of which the peer may be asked.
    pub owed: bool,
    /// The peer's session has ended: nobody is to be told, nothing more comes.
    pub orphan: bool,
}

/// How the rest of a message is fetched.
#[derive(Debug)]
pub(crate) enum Fetch {
    /// All of it comes by itself.
    Nothing,
    /// By reading the sender's memory.
    Read {
        sources: header::Sources,
        /// Where the next read begins.
        next: u64,
        /// Bytes that have come.
        done: u64,
        /// Reads under way.
        reads: u32,
        /// The sender's memory cannot be read after all.
        refused: bool,
    },
    /// By letting the sender send.
    Grant {
        /// Up to where it may.
        granted: u64,
        /// Bytes that have come.
        done: u64,
    },
}

/// Messages of one kind, with tags or without: receives that wait, and messages that do.
#[derive(Debug)]
pub(crate) struct Matcher {
    pub posted: Posted,
    pub unexpected: Unexpected,
}

impl Matcher {
    pub fn new(hash: KeyedHash) -> Matcher {
        Matcher { posted: Posted::new(hash), unexpected: Unexpected::new(hash) }
    }
}
