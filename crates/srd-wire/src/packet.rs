//! What a packet says, as types. `P` is the payload: a slice of a receive buffer, a reference into registered
//! memory, or in a simulator a mere length.

use crate::ack_box::AckBox;
use crate::units::*;
use arrayvec::ArrayVec;

/// The protocol version that this crate speaks.
pub const VERSION: u8 = 1;

/// Most path echoes that one ACK carries.
pub const MAX_ECHOES: usize = 8;

/// Most 64-bit words in an ACK's bitmap; the receive window is this many times 64 packets.
pub const MAX_SACK_WORDS: usize = 16;

/// Packets that may be outstanding beyond the cumulative PSN: what the bitmap of an ACK can name.
pub const WINDOW_PACKETS: u32 = (MAX_SACK_WORDS * 64) as u32;

/// One packet.
#[derive(Clone, PartialEq, Debug)]
pub struct Packet<P> {
    /// UDP port on which the sending instance receives (the source port of the datagram is only path entropy).
    pub src_port: u16,
    /// Whom this packet is for: the destination's incarnation, as far as the sender knows it.
    pub dst_tag: Tag,
    /// The sending instance's own incarnation.
    pub src_tag: Tag,
    /// Introduction; on every packet until the peer is known to know us.
    pub hello: Option<Hello>,
    /// Acknowledgement of the other direction; rides on data where there is any.
    pub ack: Option<AckBox>,
    /// The rest.
    pub body: Body<P>,
}

impl<P> Packet<P> {
    /// The same packet with what `f` makes of its payload; `f` is called for a segment of a message only.
    #[inline]
    pub fn map_payload<Q>(self, f: impl FnOnce(P) -> Q) -> Packet<Q> {
        let Packet { src_port, dst_tag, src_tag, hello, ack, body } = self;
        let body = match body {
            Body::None => Body::None,
            Body::Data(data) => {
                let Data { psn, stamp, path, tx_count, ack_request, more, msg, len, offset, op, payload } =
                    data;
                let payload = f(payload);
                Body::Data(Data {
                    psn,
                    stamp,
                    path,
                    tx_count,
                    ack_request,
                    more,
                    msg,
                    len,
                    offset,
                    op,
                    payload,
                })
            }
            Body::Probe(probe) => Body::Probe(probe),
            Body::Reset { stale } => Body::Reset { stale },
        };
        Packet { src_port, dst_tag, src_tag, hello, ack, body }
    }
}

/// Bit of [`Hello::features`]: reads what an ACK says of packets that came cut ([`Ack::cut`]).
pub const FEATURE_CUTS: u16 = 1 << 0;

/// Who the sender is and what it can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The sending instance's incarnation in full; its tag is the packet's `src_tag`.
    pub incarnation: Incarnation,
    /// The destination's incarnation in full, as the sender knows it; 0 if not yet.
    pub echo: u64,
    /// Lowest protocol version spoken.
    pub version_min: u8,
    /// Highest protocol version spoken.
    pub version_max: u8,
    /// Feature bits; unknown ones are ignored.
    pub features: u16,
    /// Largest datagram (UDP payload) that the sender can receive, in bytes.
    pub max_datagram: u16,
    /// Which context of the sending instance with this address it is: 0 for the first, one more each time that the
    /// sender had to begin anew because the peer had restarted. First PSN of a context: [`first_psn`].
    pub context: u16,
    /// Receive buffer of the sender's socket in KiB: the limit on what all its peers together may have in flight.
    pub rcvbuf_kib: u32,
}

/// The first PSN of context number `context` of an instance. Contexts begin far apart, so that a late packet of an old
/// one falls outside the window of its successor.
pub fn first_psn(incarnation: Incarnation, context: u16) -> Psn {
    // splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    let mut z = incarnation.0.wrapping_add((context as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    Psn((z ^ (z >> 31)) as u32)
}

/// Acknowledgement: what arrived, over which paths, and what the receiver knows about its own load.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ack {
    /// The next PSN expected: all before it have been accepted.
    pub cum: Psn,
    /// Bytes of data packets accepted so far, duplicates excluded, low 32 bits.
    pub rcvd_bytes: u32,
    /// The receiver's clock when it received the newest packet that this ACK covers.
    pub rx_time: Stamp,
    /// How many senders have unfinished messages at this receiver (hint for the share that one may take).
    pub senders: u16,
    /// Data packets that came with a congestion mark, low 16 bits of a running count.
    pub ce_count: u16,
    /// How full the receiver's buffer is, in 1/255.
    pub buffer_level: u8,
    /// One entry for each path that packets arrived on since the last ACK: the newest such packet. Then those that came cut.
    pub echoes: ArrayVec<Echo, MAX_ECHOES>,
    /// How many of the echoes, the last ones, are of data packets that came without their payload: see [`Ack::cut`].
    pub cuts: u8,
    /// Bit i of word w set: PSN `cum + 1 + 64*w + i` has been accepted.
    pub sack: ArrayVec<u64, MAX_SACK_WORDS>,
}

impl Ack {
    fn split(&self) -> (&[Echo], &[Echo]) {
        self.echoes.split_at(self.echoes.len().saturating_sub(self.cuts.into()))
    }

    /// The echoes of what has arrived whole.
    #[inline]
    pub fn arrived(&self) -> &[Echo] {
        self.split().0
    }

    /// The echoes of data packets whose payload a switch had cut off, because it found no room for it: they were not accepted, and
    /// each is told of once. Only who knows [`FEATURE_CUTS`] is told.
    #[inline]
    pub fn cut(&self) -> &[Echo] {
        self.split().1
    }
}

/// What an ACK says about one path: its newest arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    /// The path slot of the sender of the data.
    pub path: PathId,
    /// The number of the transmission that arrived (see [`Data::tx_count`]), or [`Echo::PROBE`].
    pub tx_count: u8,
    /// From its arrival to the departure of this ACK.
    pub hold: Hold,
    /// Its PSN; for a probe, the probe's number.
    pub psn: Psn,
    /// Its time stamp, returned.
    pub stamp: Stamp,
}

impl Echo {
    /// `tx_count` of an echo that answers a probe.
    pub const PROBE: u8 = 255;
}

/// The part of a packet that is neither introduction nor acknowledgement.
#[derive(Clone, PartialEq, Debug)]
pub enum Body<P> {
    /// Nothing more: an ACK or an introduction on its own.
    None,
    /// A segment of a message.
    Data(Data<P>),
    /// A header-only question on one path: is it alive, and what have you received? Answered by an ACK at once.
    Probe(Probe),
    /// The receiver of this packet has named an incarnation that is no longer (or never was) at this address.
    /// `dst_tag` returns the refused packet's `src_tag`, `src_tag` is the refuser's own, and `stale` returns the
    /// `dst_tag` that was refused, so that only one who saw the packet can forge the answer.
    Reset {
        /// The destination tag that was refused.
        stale: Tag,
    },
}

/// A question on one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The path that is asked about.
    pub path: PathId,
    /// Number of the probe, returned in the echo's `psn`.
    pub number: u32,
    /// When it left, returned in the echo.
    pub stamp: Stamp,
}

/// A segment of a message.
#[derive(Clone, PartialEq, Debug)]
pub struct Data<P> {
    /// Sequence number of the packet; a retransmission keeps it.
    pub psn: Psn,
    /// When this transmission left, for the receiver to return.
    pub stamp: Stamp,
    /// The path slot it left on.
    pub path: PathId,
    /// 0 for the first transmission of this PSN, 1 for the second, and so on; stays at 254 after 254.
    pub tx_count: u8,
    /// The sender wants an ACK at once.
    pub ack_request: bool,
    /// The sender has more to send for the first time: it goes on taking its share of the receiver's link.
    pub more: bool,
    /// The message that this segment belongs to.
    pub msg: MsgId,
    /// Length of the whole message in bytes.
    pub len: u32,
    /// Where in the message this segment begins, in bytes.
    pub offset: u32,
    /// What the message asks for.
    pub op: Op,
    /// The bytes of this segment. On the wire padding may follow them, so that the datagrams of one burst are of
    /// equal size.
    pub payload: P,
}

/// What a message asks for. All of a message's segments carry the same value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Deliver to a receive buffer of a queue pair.
    Send {
        /// From and to whom.
        route: Route,
        /// Immediate data.
        imm: Option<u32>,
        /// Sent by a UD queue pair: the receiver drops it silently where a reliable one would refuse it.
        datagram: bool,
    },
    /// Write to the responder's memory.
    Write {
        /// From and to whom.
        route: Route,
        /// The region.
        rkey: MrKey,
        /// Where the message's first byte goes.
        addr: u64,
        /// Immediate data, which also makes a completion at the responder.
        imm: Option<u32>,
    },
    /// Ask the responder to send `read_len` bytes of its memory. The message itself is empty (`len` 0).
    ReadRequest {
        /// From and to whom.
        route: Route,
        /// The region.
        rkey: MrKey,
        /// Where reading begins.
        addr: u64,
        /// How much to read.
        read_len: u32,
        /// The requester's name for this read, returned in the answer.
        read: u32,
    },
    /// The answer to a read request.
    ReadResponse {
        /// The requester's name for the read.
        read: u32,
    },
    /// The answer to a read request that was accepted will not come, or not all of it: the region or the queue pair
    /// has gone since. It is empty (`len` 0).
    ReadFailed {
        /// The requester's name for the read.
        read: u32,
        /// Why.
        status: Status,
    },
    /// The message that packet `refused` of the other direction belongs to was not accepted. It is empty (`len` 0).
    Refuse {
        /// The packet with which the message was refused. It is not acknowledged before this refusal is, so its number
        /// means one packet of one context only, where a message's number could mean one of a later context.
        refused: Psn,
        /// Why.
        status: Status,
    },
    /// This PSN belongs to a message that its sender has given up; whatever has arrived of it is to be forgotten.
    /// Without payload (whatever `len` and `offset` say).
    Skip,
}

/// From which queue pair to which, and the key that opens it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The destination.
    pub dst_qpn: Qpn,
    /// The source.
    pub src_qpn: Qpn,
    /// The destination's key.
    pub qkey: Qkey,
}

/// Outcome of a work request, with EFA's numbers (`efa_io_defs.h`, completion status).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// Flushed: the queue pair was destroyed or went to the error state, or the address handle was destroyed.
    Flushed = 1,
    /// Local queue pair internal error.
    LocalQpInternal = 2,
    /// Operation that the local queue pair does not support.
    LocalUnsupportedOp = 3,
    /// Invalid address handle.
    LocalInvalidAh = 4,
    /// Local key does not cover the buffer or does not permit the access.
    LocalInvalidLkey = 5,
    /// Message longer than allowed.
    LocalBadLength = 6,
    /// Remote address or key does not permit the access.
    RemoteBadAddress = 7,
    /// The peer was reset: another process answers at its address.
    RemoteAbort = 8,
    /// No such destination queue pair, or it is in a state that cannot receive.
    RemoteBadDestQpn = 9,
    /// The receiver has no receive buffer.
    RemoteRnr = 10,
    /// The receive buffer is too short.
    RemoteBadLength = 11,
    /// The responder answered with a status that makes no sense.
    RemoteBadStatus = 12,
    /// No answer any more from a peer that did answer before.
    Unresponsive = 13,
    /// The responder does not know the requester (it has no address handle for it).
    UnknownPeer = 14,
    /// Never an answer.
    Unreachable = 15,
    /// The peer speaks no common version or lacks a feature.
    FeatureMismatch = 18,
}

impl Status {
    /// The status with number `n`, if there is one.
    pub fn from_u8(n: u8) -> Option<Status> {
        use Status::*;
        Some(match n {
            0 => Ok,
            1 => Flushed,
            2 => LocalQpInternal,
            3 => LocalUnsupportedOp,
            4 => LocalInvalidAh,
            5 => LocalInvalidLkey,
            6 => LocalBadLength,
            7 => RemoteBadAddress,
            8 => RemoteAbort,
            9 => RemoteBadDestQpn,
            10 => RemoteRnr,
            11 => RemoteBadLength,
            12 => RemoteBadStatus,
            13 => Unresponsive,
            14 => UnknownPeer,
            15 => Unreachable,
            18 => FeatureMismatch,
            _ => return None,
        })
    }
}
