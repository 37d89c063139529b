//! The words of the device's surface: what is posted, what completes, what is configured.

use crate::staged::StagedFaults;
use srd_proto::{Payload, PeerLoss};
use srd_wire::{Gid, InstanceAddr, MrKey, Nanos, Qkey, Qpn, Status};
use std::ops::Range;

/// Memory as the device sees it. On a host this is the process's own memory ([`crate::HostMemory`]), in tests a
/// vector of bytes ([`crate::VecMemory`]), in a simulator nothing but lengths ([`crate::LengthMemory`]). The device has
/// checked keys and bounds before it calls; the addresses in the pieces are real ones (`addr` of the registration), no
/// longer those by which the program or a peer named them (`iova`).
pub trait Memory {
    /// A reference to bytes, on their way out of registered memory or in from a packet.
    type Payload: Payload;

    /// A reference to the bytes of the pieces, one behind the other (at most [`MAX_SEND_SGE`]), to be read when the
    /// packets leave.
    fn reference(&self, pieces: &[Piece]) -> Self::Payload;

    /// A copy of what [`Memory::reference`] gave, made now: the memory may change or go as soon as this returns. `None` if it has
    /// gone already. What is taken is given back when nothing reads it any more.
    fn take(&mut self, referred: &Self::Payload) -> Option<Self::Payload> {
        Some(referred.clone())
    }

    /// See [`Memory::take`].
    fn give_back(&mut self, _taken: Self::Payload) {}

    /// A copy of up to [`MAX_INLINE`] bytes, taken now.
    fn inline(&self, bytes: &[u8]) -> Self::Payload;

    /// Writes a payload to the pieces, starting `skip` bytes into them. False if that cannot be: an accelerator's memory has gone.
    fn write(&mut self, pieces: &[Piece], skip: usize, payload: &Self::Payload) -> bool;

    /// As [`Memory::write`] to one piece, for memory that the program may have unmapped though its `region` is
    /// registered: then nothing is written, and the answer is false. With `in_order` aligned blocks of 128 bytes of the payload
    /// are written once and in order.
    fn write_if_there(
        &mut self,
        _region: Range<u64>,
        piece: Piece,
        skip: usize,
        payload: &Self::Payload,
        _in_order: bool,
    ) -> bool {
        self.write(&[piece], skip, payload)
    }
}

/// Most bytes of inline data (`efa_io_defs.h`: `EFA_IO_TX_DESC_INLINE_MAX_SIZE`).
pub const MAX_INLINE: usize = 32;

/// Most scatter-gather elements of a send (`efa_io_defs.h`: `EFA_IO_TX_DESC_NUM_BUFS`). RDMA takes one.
pub const MAX_SEND_SGE: usize = 2;

/// Most scatter-gather elements of a receive. With 32,768 descriptors of receives it is what makes libfabric's receive queues as
/// long as they are on instances (docs/design/efa-verbs.md, "Limits").
pub const MAX_RECV_SGE: usize = 3;

/// A contiguous range of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Piece {
    /// Address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
}

/// A range of registered memory with the key that opens it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// Address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Local key.
    pub lkey: MrKey,
}

/// Protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PdId(pub u32);

/// Completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CqId(pub u32);

/// Address handle number, as completions report it; 0xFFFF means "none" there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AhNumber(pub u16);

impl AhNumber {
    /// The sender has no address handle here: take its GID.
    pub const NONE: AhNumber = AhNumber(0xFFFF);
}

/// Access rights of a memory region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// The device may write (receive, sink of a read).
    pub local_write: bool,
    /// Peers may read.
    pub remote_read: bool,
    /// Peers may write.
    pub remote_write: bool,
}

/// Reliable datagrams or unreliable ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpKind {
    /// Scalable reliable datagram.
    Srd,
    /// Unreliable datagram.
    Ud,
}

/// States of a queue pair (those of UD).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpState {
    /// Created.
    Reset,
    /// Key and port are set; receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained.
    Sqd,
    /// Send queue error.
    Sqe,
    /// Error: everything is flushed.
    Err,
}

/// What a queue pair is made with.
#[derive(Clone, Copy, Debug)]
pub struct QpInit {
    /// Kind.
    pub kind: QpKind,
    /// Protection domain.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: CqId,
    /// Where receives complete.
    pub recv_cq: CqId,
    /// Send queue entries.
    pub sq_depth: u32,
    /// Receive queue entries.
    pub rq_depth: u32,
    /// Elements per send, at most [`MAX_SEND_SGE`].
    pub send_sge: u32,
    /// Elements per receive, at most [`MAX_RECV_SGE`].
    pub recv_sge: u32,
    /// Inline bytes per send, at most [`MAX_INLINE`].
    pub inline: u32,
    /// Permit RDMA read, write, write with immediate.
    pub rdma_read: bool,
    /// See `rdma_read`.
    pub rdma_write: bool,
    /// A write with immediate from a peer consumes no receive.
    pub unsolicited_write_recv: bool,
}

/// A change of a queue pair's state. Absent fields are not given.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpModify {
    /// The new state.
    pub state: Option<QpState>,
    /// The state the caller believes it is in.
    pub current_state: Option<QpState>,
    /// Queue key (RESET to INIT needs it).
    pub qkey: Option<Qkey>,
    /// Partition key index; 0 is the only one.
    pub pkey_index: Option<u16>,
    /// Port; 1 is the only one.
    pub port: Option<u8>,
    /// First send PSN (RTR to RTS needs it; it has no other meaning).
    pub sq_psn: Option<u32>,
    /// Retries when the receiver has no buffer: 0 to 6, 7 for ever (RTR to RTS).
    pub rnr_retry: Option<u8>,
}

impl QpModify {
    /// The steps from RESET to the state in which a queue pair sends and receives. `rnr_retry` is for SRD's alone.
    pub fn to_ready(qkey: Qkey, rnr_retry: Option<u8>) -> [QpModify; 3] {
        let to = |state| QpModify { state: Some(state), ..QpModify::default() };
        [
            QpModify { qkey: Some(qkey), pkey_index: Some(0), port: Some(1), ..to(QpState::Init) },
            to(QpState::Rtr),
            QpModify { sq_psn: Some(0), rnr_retry, ..to(QpState::Rts) },
        ]
    }
}

/// What a queue pair has done since it was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpCounters {
    /// Send work requests taken.
    pub sends_posted: u64,
    /// Send work requests completed, well or not.
    pub sends_completed: u64,
    /// Those of them that completed with an error.
    pub sends_failed: u64,
    /// Receive work requests taken.
    pub recvs_posted: u64,
    /// Receive completions, unsolicited ones included.
    pub recvs_completed: u64,
    /// Messages of ours that found no receive buffer and were retried.
    pub rnr_retries: u64,
    /// Messages of peers that found no receive buffer here.
    pub rnr_refused: u64,
    /// Messages of peers that were refused for another reason.
    pub refused: u64,
    /// Datagrams of peers that were dropped silently (UD).
    pub dropped: u64,
}

/// What `query_qp` reports.
#[derive(Clone, Copy, Debug)]
pub struct QpInfo {
    /// State.
    pub state: QpState,
    /// As created.
    pub init: QpInit,
    /// Queue key.
    pub qkey: Qkey,
    /// As set.
    pub sq_psn: u32,
    /// As set.
    pub rnr_retry: u8,
    /// Whether a drain is under way.
    pub draining: bool,
}

/// Operation of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// Send.
    Send {
        /// Immediate data, as the program gave it (network order is the program's business).
        imm: Option<u32>,
    },
    /// RDMA read into the local pieces.
    Read {
        /// Remote key.
        rkey: MrKey,
        /// Remote address.
        addr: u64,
    },
    /// RDMA write.
    Write {
        /// Remote key.
        rkey: MrKey,
        /// Remote address.
        addr: u64,
        /// Immediate data.
        imm: Option<u32>,
    },
}

/// Data of a send work request.
#[derive(Clone, Copy, Debug)]
pub enum SendData<'a> {
    /// Registered memory.
    Sges(&'a [Sge]),
    /// Bytes copied at the time of the call.
    Inline(&'a [u8]),
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Operation.
    pub op: SendOp,
    /// Address handle of the destination host.
    pub ah: AhNumber,
    /// Destination queue pair.
    pub dst_qpn: Qpn,
    /// Its key.
    pub qkey: Qkey,
    /// Data, or the sink of a read.
    pub data: SendData<'a>,
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Buffers. On a UD queue pair the first 40 bytes stay free for the routing header.
    pub sges: &'a [Sge],
}

/// What completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompletionOp {
    /// A send.
    Send,
    /// An RDMA read.
    Read,
    /// An RDMA write.
    Write,
    /// A receive.
    Recv,
    /// A write with immediate from a peer.
    RecvRdmaWithImm,
}

/// An entry of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// From the work request; 0 if `unsolicited`.
    pub wr_id: u64,
    /// Outcome.
    pub status: Status,
    /// What.
    pub op: CompletionOp,
    /// The local queue pair.
    pub qpn: Qpn,
    /// Receive: who sent it.
    pub src_qpn: Qpn,
    /// Receive: the address handle of the sending host, or [`AhNumber::NONE`].
    pub src_ah: AhNumber,
    /// Receive: the sending host.
    pub src_gid: Gid,
    /// Receive: bytes that arrived (on UD including the 40 bytes of routing header).
    pub byte_len: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// A write with immediate that consumed no receive.
    pub unsolicited: bool,
    /// Receive, where everybody may know the queue key ([`crate::Device::set_well_known`]): its sender may have forged his address.
    pub claimed: bool,
}

/// A message of which more is to come than what lies in its receive so far ([`crate::Device::tell_begun`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// The receive, its queue pair and whom it is from, as its completion will say.
    pub receive: Completion,
    /// Bytes of it that are there, from the first on.
    pub here: u32,
    /// To divert the rest.
    pub inbound: InboundId,
}

/// A message that comes in, for as long as it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InboundId(pub(crate) crate::slab::Key);

impl Completion {
    /// One that tells nothing but what became of a work request.
    pub(crate) fn bare(wr_id: u64, op: CompletionOp, qpn: Qpn, status: Status) -> Completion {
        Completion {
            wr_id,
            status,
            op,
            qpn,
            src_qpn: Qpn(0),
            src_ah: AhNumber::NONE,
            src_gid: Gid::default(),
            byte_len: 0,
            imm: None,
            unsolicited: false,
            claimed: false,
        }
    }
}

/// The context with a peer has ended, in both directions: what was accepted of it has completed before this, and of what
/// comes after nothing belongs to it. See [`crate::Device::tell_losses`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Whose.
    pub peer: InstanceAddr,
    /// Which of our queue pairs it concerns: those whose numbers divided by [`QPS_PER_PORT`] are this.
    pub slot: u16,
    /// Why.
    pub why: PeerLoss,
}

/// Something that happened outside any work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEvent {
    /// A queue pair went to the error state.
    QpFatal(Qpn),
    /// More completions than the queue holds.
    CqOverrun(CqId),
    /// A remote instance does not answer any more (the device's event for an unresponsive remote).
    RemoteUnresponsive {
        /// Which one.
        peer: InstanceAddr,
        /// Whether it ever answered.
        answered_before: bool,
    },
    /// The device has failed, for good. Nobody else but who runs it can tell: it is never among its own events.
    DeviceFatal,
}

/// Why a call was refused. `errno` is what the real device's driver answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceError {
    /// EINVAL: which argument, and what would be right.
    Invalid(&'static str),
    /// ENOMEM: which queue or table is full.
    Full(&'static str),
    /// EOPNOTSUPP: what is not supported.
    Unsupported(&'static str),
    /// EBUSY: what still uses the object.
    Busy(&'static str),
    /// ENOENT-like: no such object; reported as EINVAL.
    NotFound(&'static str),
}

impl std::fmt::Display for DeviceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, what) = match self {
            DeviceError::Invalid(what) => ("invalid argument", what),
            DeviceError::Full(what) => ("full", what),
            DeviceError::Unsupported(what) => ("not supported", what),
            DeviceError::Busy(what) => ("busy", what),
            DeviceError::NotFound(what) => ("no such object", what),
        };
        write!(f, "{kind}: {what}")
    }
}

impl std::error::Error for DeviceError {}

/// Capabilities and limits of the device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// RDMA read offered.
    pub rdma_read: bool,
    /// RDMA write (and write with immediate) offered.
    pub rdma_write: bool,
    /// Retries when the receiver has no buffer can be set.
    pub rnr_retry: bool,
    /// Unsolicited write with immediate offered.
    pub unsolicited_write_recv: bool,
    /// Longest send in bytes.
    pub max_msg: u32,
    /// Longest RDMA operation in bytes.
    pub max_rdma: u32,
    /// UDP port of slot 0: the queue pairs with QPN `slot * 128 .. slot * 128 + 128` receive on port
    /// `port_base + slot`, on every host alike. At most 65,024, so that all 512 slots have a port.
    pub port_base: u16,
    /// Limits.
    pub max_qp: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Entries of a send queue.
    pub max_sq: u32,
    /// Entries of a receive queue.
    pub max_rq: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// First wait before a message that found no receive buffer is retried; doubles up to `rnr_wait_max`.
    /// Of the retries that a queue pair is given, each stands for 32 waits of that length.
    pub rnr_wait: Nanos,
    /// Longest such wait.
    pub rnr_wait_max: Nanos,
    /// Each wait counts as a retry, however short.
    pub rnr_counts_all: bool,
    /// Work for the device's own address reaches it. Otherwise nobody takes it, and it never completes.
    pub loopback: bool,
    /// Faults on purpose.
    pub staged: StagedFaults,
    /// The transport.
    pub transport: srd_proto::Config,
}

/// Queue pairs that share one receive port.
pub const QPS_PER_PORT: u16 = 128;

impl Default for DeviceConfig {
    fn default() -> DeviceConfig {
        DeviceConfig {
            rdma_read: true,
            rdma_write: true,
            rnr_retry: true,
            unsolicited_write_recv: true,
            // With headers and seal it fits one packet of a 9,000-byte path MTU over IPv6; a multiple of 128.
            max_msg: 8832,
            max_rdma: 1 << 30,
            port_base: 21_000,
            // libfabric masks QPNs by this, so that a smaller number would let two collide (docs/design/efa-verbs.md, "Trap 3").
            max_qp: 1 << 16,
            max_cq: 1024,
            // libfabric asks for 20 to 32 thousand (docs/design/efa-verbs.md, "Trap 4").
            max_cqe: 1 << 16,
            max_sq: 4096,
            max_rq: 1 << 15,
            max_mr: 1 << 18,
            max_ah: 65_000,
            max_pd: 1024,
            // Three retries, as libfabric asks for, take 49 ms: they outlast the time for which a busy host does not run a
            // receiver. (libfabric then sends again itself, but can lose a message over it.)
            rnr_wait: Nanos::from_micros(300),
            rnr_wait_max: Nanos::from_millis(10),
            rnr_counts_all: false,
            loopback: true,
            staged: StagedFaults::default(),
            transport: srd_proto::Config::default(),
        }
    }
}
