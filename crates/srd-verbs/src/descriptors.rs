//! What the device's queues hold where programs write and read them themselves: descriptors of sends and of receives, and
//! completions, byte by byte as in `efa_io_defs.h` of rdma-core's `providers/efa`. All numbers are little-endian.

use srd_device::{AhNumber, Completion, CompletionOp, MAX_INLINE, MAX_SEND_SGE, SendOp, Sge};
use srd_wire::{MrKey, Qkey, Qpn, Status};

/// Bytes of an entry of a send queue (`efa_io_tx_wqe`).
pub(crate) const SEND_ENTRY: usize = 64;
/// Bytes of a descriptor of a receive (`efa_io_rx_desc`).
pub(crate) const RECEIVE_ENTRY: usize = 16;
/// Bytes of a completion that has the sender's GID (`efa_io_rx_cdesc_ex`).
pub(crate) const COMPLETION_ENTRY: usize = 32;

/// Of `efa_io_tx_meta_desc`: `ctrl1`...
const OP: u8 = 0x0F;
const HAS_IMM: u8 = 1 << 4;
const INLINE: u8 = 1 << 5;
const EXTENSION: u8 = 1 << 6;
const META: u8 = 1 << 7;
/// ...and `ctrl2`.
const PHASE: u8 = 1 << 0;
const FIRST: u8 = 1 << 2;
const LAST: u8 = 1 << 3;
const COMP_REQ: u8 = 1 << 4;

/// `efa_io_send_op_type`.
const SEND: u8 = 0;
const READ: u8 = 1;
const WRITE: u8 = 2;

fn u16_at(entry: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([entry[at], entry[at + 1]])
}

fn u32_at(entry: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
}

fn u64_at(entry: &[u8], at: usize) -> u64 {
    u32_at(entry, at) as u64 | (u32_at(entry, at + 4) as u64) << 32
}

/// A send as its descriptor says it. Its keys have 24 bits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Send {
    pub op: SendOp,
    pub ah: AhNumber,
    pub dst_qpn: Qpn,
    pub qkey: Qkey,
    pub data: Data,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Data {
    Sges([Sge; MAX_SEND_SGE], usize),
    Inline([u8; MAX_INLINE], usize),
}

/// What an entry of a send queue calls itself: 16 bits, and 48 more for programs that want 64.
pub(crate) fn request_of(entry: &[u8; SEND_ENTRY]) -> u64 {
    u16_at(entry, 0) as u64 | (u16_at(entry, 26) as u64) << 16 | (u32_at(entry, 28) as u64) << 32
}

/// The kind of work that an entry says it is, for the completion of one that is wrong otherwise.
pub(crate) fn op_of(entry: &[u8; SEND_ENTRY]) -> CompletionOp {
    match entry[2] & OP {
        READ => CompletionOp::Read,
        WRITE => CompletionOp::Write,
        _ => CompletionOp::Send,
    }
}

/// Whether an entry of a send queue has been written in the round of `phase`.
pub(crate) fn is_written(entry: &[u8; SEND_ENTRY], phase: bool) -> bool {
    entry[2] & META != 0 && (entry[3] & PHASE != 0) == phase
}

/// Whether it asks for a completion, as all that libefa writes do.
pub(crate) fn is_signalled(entry: &[u8; SEND_ENTRY]) -> bool {
    entry[3] & COMP_REQ != 0
}

/// Reads an entry of a send queue, of which this is the round of `phase`. What cannot be is what the card would say of it.
pub(crate) fn send(entry: &[u8; SEND_ENTRY], phase: bool) -> Result<Send, Status> {
    let (ctrl1, ctrl2) = (entry[2], entry[3]);
    let whole = ctrl1 & EXTENSION == 0 && ctrl2 & (FIRST | LAST) == FIRST | LAST;
    if !whole || !is_written(entry, phase) {
        return Err(Status::LocalQpInternal);
    }
    let length = u16_at(entry, 6) as usize;
    let imm = (ctrl1 & HAS_IMM != 0).then(|| u32_at(entry, 8));
    let inline = ctrl1 & INLINE != 0;
    let remote = (MrKey(u32_at(entry, 36)), u64_at(entry, 40));
    let (op, first, most) = match ctrl1 & OP {
        SEND => (SendOp::Send { imm }, 32, MAX_SEND_SGE),
        READ if imm.is_none() && !inline => (SendOp::Read { rkey: remote.0, addr: remote.1 }, 48, 1),
        // Inline data of a write needs an entry of 128 bytes.
        WRITE if !inline => (SendOp::Write { rkey: remote.0, addr: remote.1, imm }, 48, 1),
        _ => return Err(Status::LocalUnsupportedOp),
    };
    let data = if inline {
        if length > MAX_INLINE {
            return Err(Status::LocalBadLength);
        }
        let mut bytes = [0; MAX_INLINE];
        bytes.copy_from_slice(&entry[32..]);
        Data::Inline(bytes, length)
    } else {
        if length > most {
            return Err(Status::LocalBadLength);
        }
        let mut sges = [Sge::default(); MAX_SEND_SGE];
        for (at, sge) in sges[..length].iter_mut().enumerate() {
            let at = first + 16 * at;
            *sge = Sge {
                len: u32_at(entry, at),
                lkey: MrKey(u32_at(entry, at + 4)),
                addr: u64_at(entry, at + 8),
            };
        }
        if most == 1 && sges[0].len != u32_at(entry, 32) {
            return Err(Status::LocalBadLength);
        }
        Data::Sges(sges, length)
    };
    Ok(Send {
        op,
        ah: AhNumber(u16_at(entry, 12)),
        dst_qpn: Qpn(u16_at(entry, 4)),
        qkey: Qkey(u32_at(entry, 16)),
        data,
    })
}

/// A descriptor of a receive: one element of its buffer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Receive {
    pub request: u16,
    /// Its key has 24 bits.
    pub sge: Sge,
    pub first: bool,
    pub last: bool,
}

pub(crate) fn receive(entry: &[u8; RECEIVE_ENTRY]) -> Receive {
    let control = u32_at(entry, 12);
    Receive {
        request: u16_at(entry, 8),
        sge: Sge {
            addr: u64_at(entry, 0),
            len: u16_at(entry, 10) as u32,
            lkey: MrKey(control & 0x00FF_FFFF),
        },
        first: control & 1 << 30 != 0,
        last: control & 1 << 31 != 0,
    }
}

/// Writes a completion, in the round of `phase`. The first eight bytes hold the phase, and so have to be seen last.
pub(crate) fn completion(completion: &Completion, phase: bool) -> [u8; COMPLETION_ENTRY] {
    const SEND_QUEUE: u8 = 1 << 1;
    const RECEIVE_QUEUE: u8 = 2 << 1;
    const HAS_IMM: u8 = 1 << 3;
    const UNSOLICITED: u8 = 1 << 7;
    let (queue, op) = match completion.op {
        CompletionOp::Send => (SEND_QUEUE, SEND),
        CompletionOp::Read => (SEND_QUEUE, READ),
        CompletionOp::Write => (SEND_QUEUE, WRITE),
        CompletionOp::Recv => (RECEIVE_QUEUE, SEND),
        CompletionOp::RecvRdmaWithImm => (RECEIVE_QUEUE, WRITE),
    };
    let mut entry = [0; COMPLETION_ENTRY];
    let mut put = |at: usize, bytes: &[u8]| entry[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(completion.wr_id as u16).to_le_bytes());
    let imm = if completion.imm.is_some() { HAS_IMM } else { 0 };
    let unsolicited = if completion.unsolicited { UNSOLICITED } else { 0 };
    put(2, &[completion.status as u8, phase as u8 | queue | imm | op << 4 | unsolicited]);
    put(4, &completion.qpn.0.to_le_bytes());
    if queue == SEND_QUEUE {
        put(6, &((completion.wr_id >> 16) as u16).to_le_bytes());
        put(8, &((completion.wr_id >> 32) as u32).to_le_bytes());
        return entry;
    }
    put(6, &(completion.byte_len as u16).to_le_bytes());
    put(8, &completion.src_ah.0.to_le_bytes());
    put(10, &completion.src_qpn.0.to_le_bytes());
    put(12, &completion.imm.unwrap_or(0).to_le_bytes());
    match completion.op {
        CompletionOp::RecvRdmaWithImm => put(16, &((completion.byte_len >> 16) as u16).to_le_bytes()),
        _ if completion.src_ah == AhNumber::NONE => put(16, &completion.src_gid.0),
        _ => {}
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_wire::Gid;

    /// A send of two elements with immediate data, by the offsets of `efa_io_tx_wqe`.
    fn two_elements() -> [u8; SEND_ENTRY] {
        let mut entry = [0; SEND_ENTRY];
        entry[0..2].copy_from_slice(&0x1234u16.to_le_bytes());
        entry[2] = META | HAS_IMM;
        entry[3] = FIRST | LAST | 1 << 4;
        entry[4..6].copy_from_slice(&77u16.to_le_bytes());
        entry[6] = 2;
        entry[8..12].copy_from_slice(&0xdead_beefu32.to_le_bytes());
        entry[12..14].copy_from_slice(&5u16.to_le_bytes());
        entry[16..20].copy_from_slice(&0x1111_2222u32.to_le_bytes());
        entry[26..32].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
        for (at, len) in [(32, 100u32), (48, 200)] {
            entry[at..at + 4].copy_from_slice(&len.to_le_bytes());
            entry[at + 4..at + 8].copy_from_slice(&0x00ab_cdefu32.to_le_bytes());
            entry[at + 8..at + 16].copy_from_slice(&0x7fff_0000_1000u64.to_le_bytes());
        }
        entry
    }

    #[test]
    fn a_send_is_read_as_it_is_written() {
        let sge = |len| Sge { addr: 0x7fff_0000_1000, len, lkey: MrKey(0x00ab_cdef) };
        let entry = two_elements();
        let expected = Send {
            op: SendOp::Send { imm: Some(0xdead_beef) },
            ah: AhNumber(5),
            dst_qpn: Qpn(77),
            qkey: Qkey(0x1111_2222),
            data: Data::Sges([sge(100), sge(200)], 2),
        };
        assert_eq!(send(&entry, false), Ok(expected));
        assert_eq!(request_of(&entry), 0x0605_0403_0201_1234);
        assert_eq!(send(&entry, true), Err(Status::LocalQpInternal), "an entry of the last round");
    }

    #[test]
    fn rubbish_is_told_by_what_is_wrong_with_it() {
        let wrong = |change: fn(&mut [u8; SEND_ENTRY])| {
            let mut entry = two_elements();
            change(&mut entry);
            send(&entry, false).unwrap_err()
        };
        assert_eq!(wrong(|entry| entry.fill(0)), Status::LocalQpInternal);
        assert_eq!(wrong(|entry| entry.fill(0xFF)), Status::LocalQpInternal);
        assert_eq!(wrong(|entry| entry[3] &= !LAST), Status::LocalQpInternal);
        assert_eq!(wrong(|entry| entry[2] |= 7), Status::LocalUnsupportedOp);
        assert_eq!(wrong(|entry| entry[2] = META | INLINE | WRITE), Status::LocalUnsupportedOp);
        assert_eq!(wrong(|entry| entry[6] = 3), Status::LocalBadLength);
        assert_eq!(wrong(|entry| (entry[2], entry[6]) = (META | INLINE, 33)), Status::LocalBadLength);
        assert_eq!(
            wrong(|entry| (entry[2], entry[6]) = (META | READ, 1)),
            Status::LocalBadLength,
            "two lengths"
        );
    }

    #[test]
    fn a_receive_is_read_as_it_is_written() {
        let mut entry = [0; RECEIVE_ENTRY];
        entry[0..8].copy_from_slice(&0x1_2345_6789u64.to_le_bytes());
        entry[8..12].copy_from_slice(&[7, 0, 0xFF, 0xFF]);
        entry[12..16].copy_from_slice(&(0x0012_3456u32 | 1 << 31).to_le_bytes());
        let sge = Sge { addr: 0x1_2345_6789, len: 65_535, lkey: MrKey(0x12_3456) };
        assert_eq!(receive(&entry), Receive { request: 7, sge, first: false, last: true });
    }

    #[test]
    fn completions_say_what_the_iterator_would() {
        let done = Completion {
            wr_id: 0x0605_0403_0201_1234,
            status: Status::RemoteRnr,
            op: CompletionOp::Write,
            qpn: Qpn(9),
            src_qpn: Qpn(8),
            src_ah: AhNumber::NONE,
            src_gid: Gid([7; 16]),
            byte_len: 0x1_0002,
            imm: None,
            unsolicited: false,
            claimed: false,
        };
        let entry = completion(&done, true);
        assert_eq!(entry[..12], [0x34, 0x12, 10, 0x23, 9, 0, 1, 2, 3, 4, 5, 6]);
        let received = Completion { op: CompletionOp::Recv, status: Status::Ok, byte_len: 300, ..done };
        let entry = completion(&received, false);
        assert_eq!(entry[..16], [0x34, 0x12, 0, 0x04, 9, 0, 44, 1, 0xFF, 0xFF, 8, 0, 0, 0, 0, 0]);
        assert_eq!(entry[16..], [7; 16]);
        let op = CompletionOp::RecvRdmaWithImm;
        let written =
            Completion { op, imm: Some(0x0102_0304), unsolicited: true, src_ah: AhNumber(3), ..done };
        let entry = completion(&written, true);
        assert_eq!(entry[3..18], [0xAD, 9, 0, 2, 0, 3, 0, 8, 0, 4, 3, 2, 1, 1, 0]);
    }
}
