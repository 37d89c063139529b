//! Outcomes: EFA's numbers, which verbs report as the vendor's error, and the statuses of verbs that libefa makes of
//! them (`to_ibv_status`).

use crate::layout::constant::*;
use libc::c_int;
use srd_wire::Status;

/// The status that verbs have for it.
#[inline]
pub(crate) fn wc_status(status: Status) -> c_int {
    match status {
        Status::Ok => IBV_WC_SUCCESS,
        Status::Flushed => IBV_WC_WR_FLUSH_ERR,
        Status::LocalQpInternal | Status::LocalUnsupportedOp | Status::LocalInvalidAh => IBV_WC_LOC_QP_OP_ERR,
        Status::LocalInvalidLkey => IBV_WC_LOC_PROT_ERR,
        Status::LocalBadLength => IBV_WC_LOC_LEN_ERR,
        Status::RemoteBadAddress => IBV_WC_REM_ACCESS_ERR,
        Status::RemoteAbort => IBV_WC_REM_ABORT_ERR,
        Status::RemoteBadDestQpn => IBV_WC_REM_INV_RD_REQ_ERR,
        Status::RemoteRnr => IBV_WC_RNR_RETRY_EXC_ERR,
        Status::RemoteBadLength | Status::FeatureMismatch => IBV_WC_REM_INV_REQ_ERR,
        Status::RemoteBadStatus => IBV_WC_BAD_RESP_ERR,
        Status::Unresponsive | Status::Unreachable => IBV_WC_RESP_TIMEOUT_ERR,
        Status::UnknownPeer => IBV_WC_REM_OP_ERR,
    }
}

/// EFA's own number.
#[inline]
pub(crate) fn vendor_err(status: Status) -> u32 {
    status as u32
}
