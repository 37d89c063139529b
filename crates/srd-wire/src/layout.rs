//! The headers as they lie in a datagram: one structure per header, big-endian, without alignment or padding.
//! `docs/SPEC.md` draws each of them. Nothing here is checked beyond "there are enough bytes"; that is for
//! [`crate::codec`].

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bit of [`Common::flags`]: a [`Hello`] follows the common header.
pub const FLAG_HELLO: u8 = 1 << 0;
/// Bit of [`Common::flags`]: an [`Ack`] follows.
pub const FLAG_ACK: u8 = 1 << 1;
/// Bit of [`Common::flags`]: all behind the common header is encrypted, see [`crate::seal`].
pub const FLAG_SEALED: u8 = 1 << 2;
/// Bit of [`Common::flags`]: sealed under the sender's introduction key.
pub const FLAG_INITIAL: u8 = 1 << 3;

pub const KIND_NONE: u8 = 0;
pub const KIND_DATA: u8 = 1;
pub const KIND_PROBE: u8 = 2;
pub const KIND_RESET: u8 = 3;

/// Bit of [`Data::op_flags`]: the sender wants an ACK at once.
pub const OP_ACK_REQUEST: u8 = 1 << 0;
/// Bit of [`Data::op_flags`]: immediate data ends the operation's header.
pub const OP_IMM: u8 = 1 << 1;
/// Bit of [`Data::op_flags`]: from a UD queue pair.
pub const OP_DATAGRAM: u8 = 1 << 2;
pub const OP_MORE: u8 = 1 << 3;
/// Flags of every operation.
pub const OP_ANY: u8 = OP_ACK_REQUEST | OP_MORE;

pub const OP_SEND: u8 = 1;
pub const OP_WRITE: u8 = 2;
pub const OP_READ_REQUEST: u8 = 3;
pub const OP_READ_RESPONSE: u8 = 4;
pub const OP_READ_FAILED: u8 = 5;
pub const OP_REFUSE: u8 = 6;
pub const OP_SKIP: u8 = 7;

macro_rules! header {
    ($(#[$doc:meta])* $name:ident, $len:literal { $($field:ident: $ty:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
        #[repr(C)]
        pub struct $name { $(pub $field: $ty),* }
        const _: () = assert!(size_of::<$name>() == $len);
    };
}

header!(
    /// Begins every packet.
    Common, 12 { version_kind: u8, flags: u8, src_port: U16, dst_tag: U32, src_tag: U32 }
);
header!(
    Hello, 28 {
        incarnation: U64, echo: U64, version_min: u8, version_max: u8, features: U16, max_datagram: U16,
        context: U16, rcvbuf_kib: U32,
    }
);
header!(
    /// `echoes` times [`Echo`] and `sack_words` times a 64-bit word follow.
    Ack, 20 {
        cum: U32, rcvd_bytes: U32, rx_time: U32, senders: U16, ce_count: U16, buffer_level: u8, echoes: u8,
        sack_words: u8, cuts: u8,
    }
);
header!(Echo, 12 { path: u8, tx_count: u8, hold: U16, psn: U32, stamp: U32 });
header!(Probe, 12 { path: u8, reserved: [u8; 3], number: U32, stamp: U32 });
header!(Reset, 4 { stale: U32 });
header!(
    /// The operation's own header follows.
    Data, 28 {
        psn: U32, stamp: U32, msg: U32, len: U32, offset: U32, seg_len: U16, path: u8, tx_count: u8, op: u8,
        op_flags: u8, reserved: U16,
    }
);
header!(
/// What [`crate::Op::Send`] needs, and what begins the longer ones.
Route, 8 { dst_qpn: U16, src_qpn: U16, qkey: U32 }
);
header!(Write, 20 { route: Route, rkey: U32, addr: U64 });
header!(ReadRequest, 28 { route: Route, rkey: U32, addr: U64, read_len: U32, read: U32 });
header!(
    /// Of the operations that report a failure: `subject` is a read or a message.
    Failure, 8 { subject: U32, status: u8, reserved: [u8; 3] }
);
