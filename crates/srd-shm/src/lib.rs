//! Message lanes between processes of one host.
//!
//! An endpoint opens a [`Inbox`]: a segment, which is a file in a directory that processes of the host share (`/dev/shm`).
//! A peer connects a [`Lane`] to it: a ring in that segment into which one process writes and out of which the owner
//! reads, in order. Large messages are not written into rings: one side names the bytes and the other copies them out of
//! the address space they are in ([`Lane::read`], [`Lane::write`]), for as long as they are lent ([`Inbox::loans`]).
//!
//! What belongs where: `address.rs` names segments; `layout.rs` says what lies where in one; `segment.rs` creates, finds
//! and removes them; `ring.rs` is the protocol of records in a ring (its memory: `memory.rs`); `inbox.rs` is the receiving end, `lane.rs` the sending
//! one; `loans.rs` says which memory may be copied from now; `process_identity.rs` says who a process is and whether it is still there; `reason.rs` is everything that may not work, in
//! words. `sys.rs` calls the system.
//!
//! # Who is trusted
//!
//! Processes of the same user, as the kernel trusts them: they may read each other's memory anyway. What one of them
//! writes by mistake or leaves half written is not: lengths and positions are checked before use, a record that makes no
//! sense ends its lane with a reason, a file that is too short is refused, and a process killed at any instruction keeps
//! nobody waiting. Only two things are beyond that: a process of the same user that cuts the file short while it is in use
//! ends those that touch what is gone (SIGBUS; only memory without a name could be sealed against that, which nobody would
//! find), and one that changes a record while it is read changes what is read. Such a process could do both with ptrace(2).
//!
//! # What the dead leave
//!
//! A process that is killed leaves its file: 64 KiB of memory and a ring for each process that has sent to it. Its peers
//! remove it when they notice; where a whole job was killed the next segment that this user makes does, or whoever calls
//! [`clear_away_the_dead`].
//!
//! # Signs of life
//!
//! The owner of a segment holds a lock on the file's first byte, the sender of a lane one on a byte of its own (open file
//! description locks, fcntl(2)). The kernel drops them when the process ends, however it ends, and they mean the same in
//! every PID namespace. A child that was forked without `exec` inherits them; so where both sides see the same PIDs the
//! process itself is looked at as well. A forked child must not use the posts and lanes of its parent, and dropping them
//! there changes nothing.
#![deny(unsafe_code)]

mod address;
mod inbox;
mod lane;
mod layout;
mod loans;
mod memory;
mod process_identity;
mod reason;
mod ring;
mod segment;
mod sync;
mod sys;

/// Where processes of a host meet: a file system in memory that all of them have.
pub const DIRECTORY: &str = "/dev/shm";

pub use address::Address;
pub use inbox::{Ended, Inbox, Options, Sender, Taken};
pub use lane::{Iov, Lane};
pub use loans::Loans;
pub use reason::{CopyError, Damage, NoCopy, NoLane, SendError, WhyEnded};
pub use segment::clear_away_the_dead;
