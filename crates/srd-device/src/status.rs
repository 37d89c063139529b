//! Status mapping: what the transport reports, as a work request's status; and that status as verbs and programs name
//! it.

use srd_proto::PeerLoss;
use srd_wire::Status;

/// The status under which a work request completes when the transport reports `reported` for its message. A peer
/// cannot speak about our own queues: such an answer makes no sense, which has its own status (12,
/// `efa_io_defs.h`: "unexpected status returned by responder").
pub(crate) fn of_message(reported: Status) -> Status {
    match reported {
        Status::Ok
        | Status::Flushed
        | Status::LocalQpInternal
        | Status::LocalUnsupportedOp
        | Status::LocalInvalidAh
        | Status::LocalInvalidLkey
        | Status::LocalBadLength => Status::RemoteBadStatus,
        other => other,
    }
}

/// The status of work whose peer was lost.
pub(crate) fn of_loss(why: PeerLoss) -> Status {
    match why {
        PeerLoss::Dead { answered_before: true } => Status::Unresponsive,
        PeerLoss::Dead { answered_before: false } => Status::Unreachable,
        PeerLoss::Restarted | PeerLoss::GivenUp => Status::RemoteAbort,
        PeerLoss::Incompatible => Status::FeatureMismatch,
    }
}

/// The number of the `ibv_wc_status` that verbs programs see (libefa `verbs.c`, `to_ibv_status`; numbers of
/// `infiniband/verbs.h`). The device's own number travels beside it as `vendor_err`.
pub fn ibv_wc_status(status: Status) -> u32 {
    match status {
        Status::Ok => 0,                 // IBV_WC_SUCCESS
        Status::LocalBadLength => 1,     // IBV_WC_LOC_LEN_ERR
        Status::LocalQpInternal => 2,    // IBV_WC_LOC_QP_OP_ERR
        Status::LocalUnsupportedOp => 2, // IBV_WC_LOC_QP_OP_ERR
        Status::LocalInvalidAh => 2,     // IBV_WC_LOC_QP_OP_ERR
        Status::LocalInvalidLkey => 4,   // IBV_WC_LOC_PROT_ERR
        Status::Flushed => 5,            // IBV_WC_WR_FLUSH_ERR
        Status::RemoteBadStatus => 7,    // IBV_WC_BAD_RESP_ERR
        Status::RemoteBadLength => 9,    // IBV_WC_REM_INV_REQ_ERR
        Status::FeatureMismatch => 9,    // IBV_WC_REM_INV_REQ_ERR
        Status::RemoteBadAddress => 10,  // IBV_WC_REM_ACCESS_ERR
        Status::UnknownPeer => 11,       // IBV_WC_REM_OP_ERR
        Status::RemoteRnr => 13,         // IBV_WC_RNR_RETRY_EXC_ERR
        Status::RemoteBadDestQpn => 15,  // IBV_WC_REM_INV_RD_REQ_ERR
        Status::RemoteAbort => 16,       // IBV_WC_REM_ABORT_ERR
        Status::Unresponsive => 20,      // IBV_WC_RESP_TIMEOUT_ERR
        Status::Unreachable => 20,       // IBV_WC_RESP_TIMEOUT_ERR
    }
}

/// What a status means, in words, and what to look at.
pub fn describe(status: Status) -> &'static str {
    match status {
        Status::Ok => "done",
        Status::Flushed => {
            "flushed: the queue pair went to the error state, or the address handle was destroyed"
        }
        Status::LocalQpInternal => "internal error of the local queue pair",
        Status::LocalUnsupportedOp => "operation that the local queue pair was not created for",
        Status::LocalInvalidAh => "no such address handle in the queue pair's protection domain",
        Status::LocalInvalidLkey => "local key does not cover the buffer or does not permit the access",
        Status::LocalBadLength => "message longer than the device allows",
        Status::RemoteBadAddress => "remote key does not cover the range or does not permit the access",
        Status::RemoteAbort => "the peer's process has ended, or another one answers at its address",
        Status::RemoteBadDestQpn => "no such remote queue pair, not ready to receive, or another queue key",
        Status::RemoteRnr => "the receiver has no receive buffer, and all retries are used up",
        Status::RemoteBadLength => "the receiver's buffer is too short",
        Status::RemoteBadStatus => "the responder answered with a status that makes no sense",
        Status::Unresponsive => "the peer has stopped answering",
        Status::UnknownPeer => "the responder has no address handle of this host, which RDMA needs",
        Status::Unreachable => {
            "nothing has ever come from there over the network: its process has not begun, has ended, or cannot be reached"
        }
        Status::FeatureMismatch => "the peer does not offer this operation, or no common protocol version",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_cannot_report_a_local_status() {
        for n in 0..=u8::MAX {
            let Some(status) = Status::from_u8(n) else { continue };
            let local = matches!(n, 0..=6);
            assert_eq!(of_message(status) == Status::RemoteBadStatus, local || n == 12, "{status:?}");
        }
    }

    #[test]
    fn statuses_map_to_verbs_as_libefa_maps_them() {
        // docs/design/efa-verbs.md, "Status numbers".
        let expected = [
            (Status::Ok, 0),
            (Status::Flushed, 5),
            (Status::LocalQpInternal, 2),
            (Status::LocalUnsupportedOp, 2),
            (Status::LocalInvalidAh, 2),
            (Status::LocalInvalidLkey, 4),
            (Status::LocalBadLength, 1),
            (Status::RemoteBadAddress, 10),
            (Status::RemoteAbort, 16),
            (Status::RemoteBadDestQpn, 15),
            (Status::RemoteRnr, 13),
            (Status::RemoteBadLength, 9),
            (Status::RemoteBadStatus, 7),
            (Status::Unresponsive, 20),
            (Status::Unreachable, 20),
            (Status::UnknownPeer, 11),
            (Status::FeatureMismatch, 9),
        ];
        for (status, number) in expected {
            assert_eq!(ibv_wc_status(status), number, "{status:?}");
        }
    }
}
