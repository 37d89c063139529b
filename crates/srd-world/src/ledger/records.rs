//! What the oracle remembers of messages, receives, queue pairs and processes.

use arrayvec::ArrayVec;
use srd_device::{CqId, Piece, QpKind};
use srd_wire::{Qkey, Qpn, Status, Time};

/// Operation of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Send.
    Send,
    /// RDMA read.
    Read,
    /// RDMA write.
    Write,
}

/// What is wrong with a message from the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Nothing.
    None,
    /// Another queue key than the destination's.
    Qkey,
    /// A queue pair number that nobody has.
    Qpn,
    /// A remote key that nobody has.
    Rkey,
    /// Remote addresses outside the region.
    Range,
    /// A region that does not permit remote access.
    Access,
    /// A local key that does not exist.
    Lkey,
    /// Longer than allowed.
    TooLong,
    /// An address handle that does not exist.
    Handle,
}

impl Flaw {
    /// Whether the sender's own device sees it.
    pub fn is_local(self) -> bool {
        matches!(self, Flaw::Lkey | Flaw::TooLong | Flaw::Handle)
    }
}

/// Where a message stands with its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not completed.
    Outstanding,
    /// Completed.
    Done(Status),
    /// It will never complete: its queue pair or its process is gone.
    Void,
}

/// A message, from the moment it was posted.
#[derive(Clone, Debug)]
pub struct Message {
    /// Operation.
    pub verb: Verb,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Length in bytes.
    pub len: u32,
    /// What is wrong with it.
    pub flaw: Flaw,
    /// The sending queue pair.
    pub qp: usize,
    /// The queue pair that it is for.
    pub dst_qp: usize,
    /// When it was posted.
    pub posted: Time,
    /// The same by the sender's clock.
    pub posted_local: Time,
    /// Where it stands.
    pub state: State,
    /// The destination has said that it is there.
    pub delivered: bool,
    /// The remote buffer held all of it when it was last looked at.
    pub placed: bool,
    /// Local buffers.
    pub local: ArrayVec<u64, 2>,
    /// Region of the local buffers.
    pub local_region: usize,
    /// Remote buffer.
    pub remote: Option<u64>,
    /// Region of the remote buffer.
    pub remote_region: usize,
}

/// A receive.
#[derive(Clone, Debug)]
pub struct Recv {
    /// Its queue pair.
    pub qp: usize,
    /// Where it puts what comes.
    pub pieces: ArrayVec<Piece, 2>,
    /// Its length.
    pub len: u32,
    /// Region of its buffers.
    pub region: usize,
    /// Not completed.
    pub open: bool,
}

/// A queue pair, from creation on.
#[derive(Clone, Debug)]
pub struct Qp {
    /// Its process...
    pub node: usize,
    /// ...and which life of it.
    pub life: u32,
    /// Its number.
    pub qpn: Qpn,
    /// Its kind.
    pub kind: QpKind,
    /// Its key.
    pub qkey: Qkey,
    /// Writes with immediate consume no receive.
    pub unsolicited: bool,
    /// Retries for want of a receive.
    pub rnr_retry: u8,
    /// Where sends complete.
    pub send_cq: CqId,
    /// Where receives complete.
    pub recv_cq: CqId,
    /// Entries of its receive queue.
    pub rq_depth: u32,
    /// There have been more receives than messages from the start.
    pub ample: bool,
    /// It has had receives shorter than the longest message.
    pub short: bool,
    /// Since when it is gone.
    pub destroyed: Option<Time>,
    /// Since when it is in the error state.
    pub errored: Option<Time>,
    /// Receives that are open.
    pub recvs_open: u32,
    /// Work requests in its send queue.
    pub sends_open: u32,
}

/// A stretch of time since which something has been so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Since {
    /// So or not.
    pub so: bool,
    /// Since when.
    pub at: Time,
}

/// What a process has heard of another one, by its own clock.
#[derive(Clone, Copy, Default, Debug)]
pub struct Contact {
    /// Last packet with an acknowledgement, of the current incarnations.
    pub heard: Option<Time>,
    /// Whether anything was heard since the context was last lost.
    pub answered: bool,
    /// The first packet sent since then.
    pub asked: Option<Time>,
    /// The peer has said how large its packets may be.
    pub introduced: bool,
    /// The last message that was begun before that.
    pub last_begun: Option<u32>,
}

/// Counts of what the run did.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Score {
    /// Messages posted.
    pub posted: u64,
    /// Completed with success.
    pub succeeded: u64,
    /// Completed with an error.
    pub failed: u64,
    /// Without completion because their queue pair or process went.
    pub void: u64,
    /// Receive completions with success.
    pub received: u64,
}
