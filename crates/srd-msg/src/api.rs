//! The words of the messaging layer's surface: what is asked for, what completes, what is configured. Names and meanings
//! are those of libfabric's manual pages (fi_msg(3), fi_tagged(3), fi_rma(3), fi_atomic(3), fi_cq(3)), without its types.

use crate::atomic_ops::{AtomicOp, Datatype};
use crate::header::LONGEST;
use crate::lane::LaneTraffic;
use crate::peer::{FIRST_WINDOW, MOST_WINDOW};
use srd_wire::{Gid, Nanos, Qpn, Status};
use std::num::NonZeroU32;

/// Where an endpoint is, and which: a host, a queue pair there, and the endpoint's key. As a socket address, its port is
/// the queue pair's number. The same place with another key is another endpoint: its predecessor, or its successor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerAddr {
    /// The host.
    pub gid: Gid,
    /// The endpoint's queue pair.
    pub qpn: Qpn,
    /// The endpoint's key, which is its identity and opens its queue pair; 0: that of whichever well-known endpoint is there.
    pub key: u32,
}

/// Who an endpoint is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// Random: no other endpoint that was or will be at its address has it.
    pub number: NonZeroU32,
    /// Its place is known beforehand, as a service's port is, so its address shows no key, and whoever knows the place may
    /// send to it. Otherwise the number is its key, and only who was given the address may.
    pub well_known: bool,
}

impl Identity {
    /// The key in its address.
    pub fn key(&self) -> u32 {
        if self.well_known { 0 } else { self.number.get() }
    }
}

/// An endpoint of a [`crate::Domain`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EndpointId(pub u32);

/// A peer, as one endpoint knows it. Good until [`crate::Domain::forget_peer`], whatever becomes of the peer's process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerId(pub u32);

/// What is known of a peer, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerReport {
    /// The peer.
    pub id: PeerId,
    /// Where it is.
    pub addr: PeerAddr,
    /// The program has named it, and not forgotten it since.
    pub named: bool,
    /// What its lane has carried; `None`: messages to it go over the network.
    pub lane: Option<LaneReport>,
}

/// What is known of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneReport {
    /// What has gone over it so far.
    pub traffic: LaneTraffic,
    /// Bytes of messages that have come from the peer without the network, headers included.
    pub rx_bytes: u64,
    /// Whether long messages are copied out of the peer's memory.
    pub copies: bool,
}

/// A registered region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegionId {
    /// Slot.
    pub index: u32,
    /// Use of the slot.
    pub generation: u32,
}

/// Bytes of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Iov {
    /// Address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Bytes of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteIov {
    /// Address, or offset into the region, as the region was registered.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// The region's key.
    pub key: u64,
}

/// Most elements of any scatter-gather list.
pub const IOV_LIMIT: usize = 4;

/// When a transmit operation completes (fi_cq(3), "Completion Event Semantics").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Level {
    /// The buffer may be used again.
    Inject,
    /// It has arrived at the peer's endpoint, which puts it into a receive that waits for it in the same call that takes it from the
    /// network; or it lies in the lane to it; or it has been applied there.
    #[default]
    Transmit,
    /// A receive has it. The peer says so with a message of its own.
    Match,
}

/// How a transmit operation is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxFlags {
    /// The buffer is free when the call returns; at most [`Config::inject_size`] bytes.
    pub inject: bool,
    /// When it completes.
    pub level: Level,
    /// Whether a completion without error is reported ([`Done::report`]). Counters count in any case.
    pub report: bool,
    /// Starts when all earlier operations to that peer are complete (FI_FENCE). Until then posting answers
    /// [`Refused::Again`].
    pub fence: bool,
}

/// What a receive must match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Match {
    /// Messages without a tag (fi_msg(3)).
    Untagged,
    /// Messages whose tag is `tag` in all bits but those set in `ignore` (fi_tagged(3)).
    Tagged {
        /// Tag.
        tag: u64,
        /// Bits that do not count.
        ignore: u64,
    },
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Send<'a> {
    /// To whom.
    pub to: PeerId,
    /// With this tag, or as a message without one.
    pub tag: Option<u64>,
    /// The message; at most [`IOV_LIMIT`] elements.
    pub iov: &'a [Iov],
    /// Completion data for the receiver.
    pub data: Option<u64>,
    /// Comes back in [`Done::context`].
    pub context: u64,
    /// How.
    pub flags: TxFlags,
}

/// A buffer to receive into.
#[derive(Clone, Copy, Debug)]
pub struct Recv<'a> {
    /// From that peer only; `None`: from any (FI_ADDR_UNSPEC).
    pub from: Option<PeerId>,
    /// Which message.
    pub matching: Match,
    /// The buffer; at most [`IOV_LIMIT`] elements, one with `multi`.
    pub iov: &'a [Iov],
    /// Comes back in [`Done::context`].
    pub context: u64,
    /// Whether completions without error are reported.
    pub report: bool,
    /// FI_MULTI_RECV: takes messages until less than [`crate::Domain::set_min_multi_recv`] bytes are left.
    pub multi: bool,
    /// FI_CLAIM: takes the message that a [`Peek`] with `claim` and the same `context` has set aside.
    pub claim: bool,
}

/// A look for a message that has arrived and not been received (FI_PEEK). It completes at once: as a receive would, with
/// the message's length, tag, data and source; or with [`Failure::NoMessage`].
#[derive(Clone, Copy, Debug)]
pub struct Peek {
    /// As [`Recv::from`].
    pub from: Option<PeerId>,
    /// As [`Recv::matching`].
    pub matching: Match,
    /// As [`Recv::context`].
    pub context: u64,
    /// FI_CLAIM: sets the message aside for a later receive with this context.
    pub claim: bool,
    /// FI_DISCARD: the message is dropped. Alone with FI_CLAIM and no peek, it drops the message set aside.
    pub discard: bool,
}

/// An RMA operation.
#[derive(Clone, Copy, Debug)]
pub struct Rma<'a> {
    /// At whom.
    pub to: PeerId,
    /// Read from there, or write to there.
    pub read: bool,
    /// Bytes here.
    pub local: &'a [Iov],
    /// Bytes there, together as long as `local`.
    pub remote: &'a [RemoteIov],
    /// Write: completion data for the peer (FI_REMOTE_CQ_DATA).
    pub data: Option<u64>,
    /// Comes back in [`Done::context`].
    pub context: u64,
    /// How.
    pub flags: TxFlags,
}

/// An atomic operation. Lengths are in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Atomic<'a> {
    /// At whom.
    pub to: PeerId,
    /// What.
    pub op: AtomicOp,
    /// On what.
    pub datatype: Datatype,
    /// Operands; for [`AtomicOp::Read`] empty.
    pub operand: &'a [Iov],
    /// Values to compare with: for compare operations only.
    pub compare: &'a [Iov],
    /// Where the values before the operation go: for fetching and compare operations only.
    pub result: &'a [Iov],
    /// The target.
    pub remote: &'a [RemoteIov],
    /// Comes back in [`Done::context`].
    pub context: u64,
    /// How.
    pub flags: TxFlags,
}

/// Which kind of operation has completed. Flags of fi_cq(3) and counters follow from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A send.
    Send {
        /// With a tag.
        tagged: bool,
    },
    /// A receive.
    Recv {
        /// With a tag.
        tagged: bool,
    },
    /// A look for a message. It is no operation, so counters do not count it.
    Peek {
        /// With a tag.
        tagged: bool,
    },
    /// A read of ours.
    Read,
    /// A write of ours.
    Write,
    /// An atomic operation of ours; `fetch` if it returns values.
    Atomic {
        /// It returns values.
        fetch: bool,
    },
    /// A peer has written here, with data (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA | FI_RMA). Takes no receive. Without data, and for
    /// atomic operations that return nothing, only where [`crate::Domain::count_at`] says so, and not to be reported.
    RemoteWrite,
    /// A peer has read here, or had an atomic operation return values; where [`crate::Domain::count_at`] says so.
    RemoteRead,
    /// A peer has read or changed a region of [`crate::Domain::count_in`], whose context comes back.
    Access {
        /// It was changed.
        write: bool,
    },
}

/// Something has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// At which endpoint.
    pub endpoint: EndpointId,
    /// What.
    pub kind: Kind,
    /// From the request; 0 for [`Kind::RemoteWrite`] and [`Kind::RemoteRead`].
    pub context: u64,
    /// Whether an entry is to be written if there is no error.
    pub report: bool,
    /// Receive, remote write: bytes received.
    pub len: u64,
    /// Receive into a multi-receive buffer: where the message begins.
    pub buf: u64,
    /// The message's tag.
    pub tag: u64,
    /// Completion data.
    pub data: Option<u64>,
    /// Receive, remote write: the label of the sender ([`crate::Domain::set_label`]), or [`NO_LABEL`].
    pub source: u64,
    /// Receive, remote write: the sender.
    pub from: Option<PeerAddr>,
    /// The last completion of a multi-receive buffer, which is the program's again (FI_MULTI_RECV). It may come alone, with
    /// `report` set and no length, if a cancelled buffer had taken messages.
    pub buffer_released: bool,
    /// Why it failed.
    pub error: Option<Failure>,
}

impl Done {
    /// One without an error, to be filled in.
    #[inline]
    pub(crate) fn new(endpoint: EndpointId, kind: Kind, context: u64, report: bool) -> Done {
        Done {
            endpoint,
            kind,
            context,
            report,
            len: 0,
            buf: 0,
            tag: 0,
            data: None,
            source: NO_LABEL,
            from: None,
            buffer_released: false,
            error: None,
        }
    }
}

/// The sender has no label here.
pub const NO_LABEL: u64 = u64::MAX;

/// What becomes of what an endpoint has sent, before it closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    /// All of it has arrived, or never will.
    Over,
    /// The device waits for peers to acknowledge it.
    Unacknowledged,
    /// Some of it waits for room in shared memory.
    Queued,
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The buffer was too short by `over` bytes; what fits is there (FI_ETRUNC, olen).
    Truncated {
        /// Bytes that did not fit.
        over: u64,
    },
    /// Cancelled (FI_ECANCELED).
    Canceled,
    /// Peek: no such message (FI_ENOMSG).
    NoMessage,
    /// The peer's process does not answer, or has ended (FI_EHOSTUNREACH if it never answered, else FI_ECONNRESET or
    /// FI_ETIMEDOUT by the status).
    PeerLost(Status),
    /// The remote key does not cover the range or does not permit it (FI_EACCES; FI_EKEYREJECTED where there is no such key).
    RemoteAccess {
        /// There is such a region.
        known: bool,
    },
    /// The peer does not do that operation with that type (FI_EOPNOTSUPP).
    RemoteUnsupported,
    /// The device failed the operation for another reason (FI_EIO).
    Device(Status),
    /// The program's own memory, which is an accelerator's, could not be read or written: it has been freed (FI_EFAULT).
    MemoryGone,
    /// The endpoint closes (FI_ECANCELED).
    Closing,
}

/// Why a request was not taken. Nothing of it will complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// No room now; ask again after [`crate::Domain::progress`] (-FI_EAGAIN).
    Again,
    /// Longer than allowed (-FI_EMSGSIZE).
    TooLong,
    /// No such peer or endpoint, lengths that do not fit each other (-FI_EINVAL).
    Invalid(&'static str),
    /// Not an operation on that type (-FI_EOPNOTSUPP).
    Unsupported(&'static str),
    /// The memory, which is an accelerator's, cannot be read: it has been freed (-FI_EFAULT).
    MemoryGone,
    /// No message was claimed under that context (-FI_ENOMSG).
    NotClaimed,
    /// No such key, or the key is taken (-FI_ENOKEY).
    KeyTaken,
    /// The device has no room for another object (-FI_ENOMEM).
    NoMemory(&'static str),
}

/// What peers may do with a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteRights {
    /// RMA read, fetching atomics.
    pub read: bool,
    /// RMA write, atomics.
    pub write: bool,
}

/// What of peers' doing is counted where it is done (FI_RMA_EVENT).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Reads.
    pub reads: bool,
    /// Writes.
    pub writes: bool,
}

impl Counted {
    /// Whether one of these is.
    #[inline]
    pub(crate) fn has(&self, read: bool) -> bool {
        if read { self.reads } else { self.writes }
    }

    pub(crate) fn any(&self) -> bool {
        self.reads || self.writes
    }

    pub(crate) fn or(&self, other: Counted) -> Counted {
        Counted { reads: self.reads || other.reads, writes: self.writes || other.writes }
    }
}

/// A region to register.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// Address; marked if it is an accelerator's ([`srd_device::accelerator`]), of which peers know nothing.
    pub addr: u64,
    /// Length; `u64::MAX` from address 0 on means all memory.
    pub len: u64,
    /// The key that the program wants (FI_MR_PROV_KEY not set); `None`: the device chooses.
    pub key: Option<u64>,
    /// Peers name bytes by virtual address (FI_MR_VIRT_ADDR); otherwise by offset.
    pub virtual_addresses: bool,
    /// What peers may do.
    pub rights: RemoteRights,
}

/// Limits and choices of a domain. All endpoints of an application should have the same.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Receive buffers of an endpoint, of the device's longest message each.
    pub receive_buffers: u32,
    /// Transmit operations outstanding on an endpoint; beyond, posting answers [`Refused::Again`].
    pub max_outstanding: u32,
    /// Longest message or RMA operation.
    pub longest: u64,
    /// Longest injected message.
    pub inject_size: u64,
    /// Longest message that is sent without asking, in one piece or in segments; longer ones meet by rendezvous.
    pub medium_limit: u64,
    /// Bytes that a rendezvous sends ahead, while the read is set up.
    pub eager_ahead: u64,
    /// Longest single RDMA read of a rendezvous.
    pub read_bytes: u64,
    /// RDMA reads of one rendezvous that are under way at a time.
    pub reads_in_flight: u32,
    /// Bytes granted at a time where the sender's buffer cannot be read.
    pub grant_bytes: u64,
    /// Whether peers may read send buffers; otherwise all rendezvous are by grants.
    pub rendezvous_by_read: bool,
    /// Bytes of messages for which nobody waits that an endpoint holds at most. Divided among its peers.
    pub unexpected_bytes: u64,
    /// Bytes of messages that nobody has received and that ended sessions of a peer have left, beyond which sends of another wait.
    pub most_left: u32,
    /// Longest message that goes to a peer of the same host in one piece; longer ones are read from the sender's memory, where
    /// that can be done.
    pub shm_limit: u64,
    /// How often a peer that owes something and is silent is asked whether it is there.
    pub ask_every: Nanos,
}

impl Config {
    /// The longest message of a device on which every message up to [`Config::medium_limit`] goes in one piece: each piece has a
    /// record, a header, a buffer and a completion at every layer.
    pub fn device_message(&self) -> u32 {
        self.medium_limit.min(u32::MAX as u64 / 2) as u32 + LONGEST as u32
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            receive_buffers: 1024,
            max_outstanding: 4096,
            longest: 1 << 40,
            inject_size: 4096,
            medium_limit: 64 << 10,
            eager_ahead: 16 << 10,
            read_bytes: 1 << 20,
            reads_in_flight: 4,
            grant_bytes: 256 << 10,
            rendezvous_by_read: true,
            unexpected_bytes: 64 << 20,
            // One session leaves its window at most, and each after it what may be sent unasked.
            most_left: MOST_WINDOW + 8 * FIRST_WINDOW,
            shm_limit: 8 << 10,
            ask_every: Nanos::from_millis(500),
        }
    }
}
